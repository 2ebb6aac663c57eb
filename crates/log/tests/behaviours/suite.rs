//! The behaviours, each a function over a form.

use std::ops::ControlFlow;

use strandline_log::{
    LiveMetadataEventLog, MetadataDelivery, MetadataEventLog, MetadataEventQueueCapacity,
    MetadataEventRecord, MetadataRange,
};

use crate::apache_kafka::Apache;
use crate::embedded_kafka::EmbeddedKafka;
use crate::in_process::InProcess;
use crate::{Form, bytes, capacity, expected, publish, records, soon, stop, until, within};

macro_rules! suite {
    ($($behaviour:ident)*) => {
        on! { form_in_memory, InProcess, [] $($behaviour)* }
        on! { embedded_kafka_per_partition, EmbeddedKafka<false>, [] $($behaviour)* }
        on! { embedded_kafka_per_leader, EmbeddedKafka<true>, [] $($behaviour)* }
        on! {
            apache_kafka_per_partition, Apache<false>,
            [#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]] $($behaviour)*
        }
        on! {
            apache_kafka_per_leader, Apache<true>,
            [#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]] $($behaviour)*
        }
    };
}

macro_rules! on {
    ($module:ident, $form:ty, $attributes:tt $($behaviour:ident)*) => {
        mod $module {
            use super::*;

            $( on!(@ $form, $attributes $behaviour); )*
        }
    };
    (@ $form:ty, [$(#[$attribute:meta])*] $behaviour:ident) => {
        #[tokio::test]
        $(#[$attribute])*
        async fn $behaviour() {
            if can_be_shown::<$form>(stringify!($behaviour)) {
                super::$behaviour::<$form>().await;
            }
        }
    };
}

fn can_be_shown<F: Form>(behaviour: &str) -> bool {
    let cannot = F::CANNOT.iter().find(|(name, _)| *name == behaviour);
    if let Some((_, reason)) = cannot {
        eprintln!("not shown on this form: {reason}");
    }
    cannot.is_none()
}

suite! {
    what_is_published_comes_to_each_subscriber_once_and_in_order
    a_subscription_begins_at_the_offset_that_it_names
    a_slow_subscriber_is_held_back_and_never_skipped
    the_queue_is_bounded_in_bytes_too_and_a_larger_record_waits_for_an_empty_one
    a_busy_partition_does_not_starve_another
    removing_a_partition_while_the_queue_is_full_takes_effect_at_once
    a_partition_that_is_removed_and_added_at_once_is_delivered_once_from_its_new_offset
    a_delivery_says_to_which_adding_of_its_partition_it_belongs
    offsets_without_events_make_progress
    an_offset_outside_the_log_stops_that_partition_alone_and_nothing_is_reset
    retention_that_overtakes_a_slow_subscriber_is_told
    a_log_cut_below_what_was_delivered_is_told
    ranges_hold_what_subscribers_see
    a_visitor_that_breaks_off_ends_its_range
    many_events_in_flight_are_all_answered_with_their_own_offsets
    a_log_for_reading_refuses_to_write_and_can_be_followed
    what_does_not_exist_or_does_not_fit_is_refused
    closing_a_log_ends_its_subscriptions_and_refuses_what_comes_later
    a_dropped_wait_for_a_delivery_loses_nothing
    every_log_on_a_topic_names_the_same_topic
    high_water_marks_tell_what_is_there_whether_it_is_read_or_not
    a_range_is_visited_while_its_partition_is_followed
    events_lie_in_the_order_in_which_they_were_published
    two_logs_that_write_at_once_leave_one_log_without_gap_or_repetition
    a_publish_without_time_says_truly_whether_its_event_is_written
    a_dropped_publish_loses_its_answer_and_leaves_the_log_whole
    closing_under_load_answers_every_publish_and_what_was_acknowledged_is_there
    a_log_can_be_closed_twice
}

async fn what_is_published_comes_to_each_subscriber_once_and_in_order<F: Form>() {
    let form = F::new(3).await;
    let log = form.open().await;
    let mut early = log.subscribe(MetadataEventQueueCapacity::default());
    early.assignment().add(1, 0).unwrap();
    publish(&log, 1, 0..50).await;
    let other = form.open().await;
    let mut late = other.subscribe(MetadataEventQueueCapacity::default());
    late.assignment().add(1, 0).unwrap();
    publish(&log, 1, 50..100).await;
    assert_eq!(records(&mut early, 100).await, expected(1, 0..100));
    assert_eq!(records(&mut late, 100).await, expected(1, 0..100));
}

async fn a_subscription_begins_at_the_offset_that_it_names<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..10).await;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 7).unwrap();
    assert_eq!(records(&mut events, 3).await, expected(0, 7..10));
    let mut at_the_end = log.subscribe(MetadataEventQueueCapacity::default());
    at_the_end.assignment().add(0, 10).unwrap();
    publish(&log, 0, 10..12).await;
    assert_eq!(records(&mut at_the_end, 2).await, expected(0, 10..12));
}

async fn a_slow_subscriber_is_held_back_and_never_skipped<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..1000).await;
    let mut events = log.subscribe(capacity(4, 1 << 20));
    events.assignment().add(0, 0).unwrap();
    until(&events, "a full queue", |list| list[0].queued_records == 4).await;
    for seen in 0..1000 {
        assert_eq!(records(&mut events, 1).await, expected(0, seen..seen + 1));
        let list = events.assignment().list();
        let [partition] = &list[..] else { panic!("one partition is assigned") };
        assert!(partition.queued_records <= 4, "{partition:?}");
        assert!(partition.next_offset <= seen + 1 + 4, "{partition:?}");
    }
}

async fn the_queue_is_bounded_in_bytes_too_and_a_larger_record_waits_for_an_empty_one<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    for length in [400, 400, 400, 5000, 400] {
        log.publish(0, bytes(length), soon()).await.unwrap();
    }
    let mut events = log.subscribe(capacity(100, 1000));
    events.assignment().add(0, 0).unwrap();
    for (offset, length) in (0..).zip([400, 400, 400, 5000, 400]) {
        until(&events, "a record in the queue", |list| list[0].queued_records > 0).await;
        let list = events.assignment().list();
        let [partition] = &list[..] else { panic!("one partition is assigned") };
        // Two records of 400 bytes fit, a third does not; the large one is alone.
        assert!(partition.queued_records <= 2, "{partition:?}");
        let Some(MetadataDelivery::Record { record, .. }) = within("a record", events.next()).await else {
            panic!("a record comes")
        };
        assert_eq!((record.offset, record.value.unwrap().len()), (offset, length));
    }
}

async fn a_busy_partition_does_not_starve_another<F: Form>() {
    let form = F::new(2).await;
    let log = form.open().await;
    publish(&log, 0, 0..2000).await;
    publish(&log, 1, 0..20).await;
    let mut events = log.subscribe(capacity(8, 1 << 20));
    events.assignment().add(0, 0).unwrap();
    until(&events, "a queue full of the busy partition", |list| list[0].queued_records == 8).await;
    events.assignment().add(1, 0).unwrap();
    let mut seen = records(&mut events, 1).await;
    while !seen.last().unwrap().starts_with("1@") {
        assert!(seen.len() < 1500, "the other one does not come");
        seen.extend(records(&mut events, 1).await);
    }
    // From its first record on they come in turns.
    let mut quiet = vec![seen.pop().unwrap()];
    let rest = records(&mut events, 100).await;
    quiet.extend(rest.iter().filter(|record| record.starts_with("1@")).cloned());
    assert_eq!(quiet, expected(1, 0..20), "{rest:?}");
}

async fn removing_a_partition_while_the_queue_is_full_takes_effect_at_once<F: Form>() {
    let form = F::new(2).await;
    let log = form.open().await;
    publish(&log, 0, 0..100).await;
    publish(&log, 1, 0..3).await;
    let mut events = log.subscribe(capacity(2, 1 << 20));
    let assignment = events.assignment();
    assignment.add(0, 0).unwrap();
    until(&events, "a full queue", |list| list[0].queued_records == 2).await;
    assert!(assignment.remove(0));
    assert!(!assignment.remove(0), "it is removed already");
    assignment.add(1, 0).unwrap();
    assert_eq!(records(&mut events, 3).await, expected(1, 0..3));
    assert_eq!(assignment.list().iter().map(|partition| partition.partition).collect::<Vec<_>>(), [1]);
}

async fn a_partition_that_is_removed_and_added_at_once_is_delivered_once_from_its_new_offset<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..200).await;
    let mut events = log.subscribe(capacity(16, 1 << 20));
    let assignment = events.assignment();
    assignment.add(0, 0).unwrap();
    for turn in 0..50 {
        let from = 3 * turn;
        assert!(assignment.remove(0));
        assignment.add(0, from).unwrap();
        assert_eq!(records(&mut events, 2).await, expected(0, from..from + 2), "turn {turn}");
    }
    assert_eq!(records(&mut events, 51).await, expected(0, 149..200));
}

async fn a_delivery_says_to_which_adding_of_its_partition_it_belongs<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..10).await;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    let assignment = events.assignment();
    let first = assignment.add(0, 0).unwrap();
    let early = within("a record", events.next()).await.unwrap();
    assignment.remove(0);
    let second = assignment.add(0, 0).unwrap();
    let late = within("a record", events.next()).await.unwrap();
    assert_eq!((early.assignment(), late.assignment()), (first, second));
    assert_ne!(first, second);
    assert_eq!((early.partition(), late.partition()), (0, 0));
}

async fn offsets_without_events_make_progress<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..2).await;
    form.leave_offsets_without_events(0, 3).await;
    publish(&log, 0, 5..6).await;
    form.leave_offsets_without_events(0, 4).await;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    let (mut offsets, mut next_offset) = (Vec::new(), 0);
    while next_offset < 10 {
        match within("progress", events.next()).await {
            Some(MetadataDelivery::Record { record, .. }) => {
                assert!(record.offset >= next_offset, "{record:?} after {next_offset}");
                next_offset = record.offset + 1;
                offsets.extend((!record.control).then_some(record.offset));
            }
            Some(MetadataDelivery::Advanced { next_offset: advanced, .. }) => {
                assert!(advanced > next_offset, "{advanced} after {next_offset}");
                next_offset = advanced;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(offsets, [0, 1, 5]);
    // Within such a gap one can begin, too.
    let mut within_the_gap = log.subscribe(MetadataEventQueueCapacity::default());
    within_the_gap.assignment().add(0, 3).unwrap();
    assert_eq!(records(&mut within_the_gap, 1).await, expected(0, 5..6));
}

async fn an_offset_outside_the_log_stops_that_partition_alone_and_nothing_is_reset<F: Form>() {
    let form = F::new(2).await;
    let log = form.open().await;
    publish(&log, 0, 0..10).await;
    form.advance_log_start(0, 4).await;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    let assignment = events.assignment();
    assignment.add(1, 0).unwrap();
    for outside in [3, 11] {
        assignment.add(0, outside).unwrap();
        let told = stop(&mut events, 0).await;
        let expected =
            format!("offset {outside} of metadata partition 0 is outside its log, which holds 4..10");
        assert_eq!(told, expected);
        assert!(assignment.list()[0].state.is_stopped(), "it stays assigned, and is not read");
        assignment.remove(0);
    }
    publish(&log, 1, 0..1).await;
    assert_eq!(records(&mut events, 1).await, expected(1, 0..1));
    assignment.add(0, 4).unwrap();
    assert_eq!(records(&mut events, 6).await, expected(0, 4..10));
}

async fn retention_that_overtakes_a_slow_subscriber_is_told<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..2000).await;
    let mut events = log.subscribe(capacity(2, 1 << 20));
    events.assignment().add(0, 0).unwrap();
    until(&events, "a full queue", |list| list[0].queued_records == 2).await;
    form.advance_log_start(0, 1999).await;
    let mut next_offset = 0;
    let told = loop {
        match within("the stop", events.next()).await {
            Some(MetadataDelivery::Record { record, .. }) => {
                assert_eq!(record.offset, next_offset, "nothing is skipped");
                next_offset += 1;
            }
            Some(MetadataDelivery::Stopped { error, .. }) => break error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let expected =
        format!("offset {next_offset} of metadata partition 0 is outside its log, which holds 1999..2000");
    assert_eq!(told, expected);
}

async fn a_log_cut_below_what_was_delivered_is_told<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..10).await;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    assert_eq!(records(&mut events, 10).await, expected(0, 0..10));
    form.truncate(0, 6).await;
    // The offsets are there again, with other records: only the leader epoch shows it.
    publish(&log, 0, 6..20).await;
    let told = stop(&mut events, 0).await;
    let expected = "metadata partition 0 was read up to offset 10 in leader epoch 0, of which the log holds no more than 6";
    assert_eq!(told, expected);
}

async fn ranges_hold_what_subscribers_see<F: Form>() {
    let form = F::new(2).await;
    let log = form.open().await;
    publish(&log, 0, 0..30).await;
    form.leave_offsets_without_events(0, 2).await;
    publish(&log, 0, 32..40).await;
    form.advance_log_start(0, 5).await;
    let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();
    assert_eq!((marks[0].log_start_offset, marks[0].high_watermark), (5, 40));
    assert_eq!((marks[1].log_start_offset, marks[1].high_watermark), (0, 0));
    let (sender, receiver) = std::sync::mpsc::channel();
    let visitor = move |record: &MetadataEventRecord<'_>| {
        if !record.control {
            sender.send(record.offset).unwrap();
        }
        ControlFlow::Continue(())
    };
    let visit = log.visit_range(marks[0].range(), visitor).await;
    assert!(visit.error.is_none(), "{:?}", visit.error);
    assert_eq!(visit.outcome.next_offset, 40);
    drop(visit);
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 5).unwrap();
    let seen = records(&mut events, 33).await;
    let ranges: Vec<_> = receiver.iter().map(|offset| format!("0@{offset}={offset}")).collect();
    assert_eq!(seen, ranges);
    for (from, to) in [(4, 40), (5, 41)] {
        let range = MetadataRange { partition: 0, from, to };
        let visit = log.visit_range(range, |_: &MetadataEventRecord<'_>| ControlFlow::Continue(())).await;
        assert!(visit.error.is_some(), "{range:?} is not inside the log");
    }
}

async fn a_visitor_that_breaks_off_ends_its_range<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..10).await;
    let range = MetadataRange { partition: 0, from: 2, to: 10 };
    let visit = log
        .visit_range(range, |record: &MetadataEventRecord<'_>| match record.offset {
            6 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
        .await;
    assert!(visit.outcome.stopped && visit.error.is_none(), "{:?}", visit.outcome);
    assert_eq!((visit.outcome.records, visit.outcome.next_offset), (5, 7));
}

async fn many_events_in_flight_are_all_answered_with_their_own_offsets<F: Form>() {
    let form = F::new(4).await;
    let log = form.open().await;
    let publishes = (0..400).map(|event| {
        let log = log.clone();
        async move { (event, log.publish(event % 4, event.to_string().into(), soon()).await.unwrap()) }
    });
    let answers = within("every answer", futures::future::join_all(publishes)).await;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    for partition in 0..4 {
        events.assignment().add(partition, 0).unwrap();
    }
    let mut seen = records(&mut events, 400).await;
    seen.sort();
    let mut told: Vec<_> =
        answers.iter().map(|(event, offset)| format!("{}@{offset}={event}", event % 4)).collect();
    told.sort();
    assert_eq!(seen, told);
}

async fn a_log_for_reading_refuses_to_write_and_can_be_followed<F: Form>() {
    let form = F::new(1).await;
    let writer = form.open().await;
    let reader = form.open_read_only().await;
    let refused = reader.publish(0, "x".into(), soon()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the metadata log was opened for reading only");
    assert!(!refused.may_be_written());
    let mut events = reader.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    publish(&writer, 0, 0..3).await;
    assert_eq!(records(&mut events, 3).await, expected(0, 0..3));
}

async fn what_does_not_exist_or_does_not_fit_is_refused<F: Form>() {
    let form = F::new(2).await;
    let log = form.open().await;
    for partition in [-1, 2] {
        let refused = log.publish(partition, "x".into(), soon()).await.unwrap_err();
        let expected = format!("there is no metadata partition {partition}: the topic has 2");
        assert_eq!(refused.to_string(), expected);
        let events = log.subscribe(MetadataEventQueueCapacity::default());
        assert_eq!(events.assignment().add(partition, 0).unwrap_err().to_string(), expected);
    }
    let refused = log.publish(0, bytes(2 << 20), soon()).await.unwrap_err();
    assert!(refused.to_string().starts_with("an event of 2097152 bytes: "), "{refused}");
    let events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    let twice = events.assignment().add(0, 0).unwrap_err();
    assert_eq!(twice.to_string(), "metadata partition 0 is assigned already");
    publish(&log, 0, 0..1).await;
}

async fn closing_a_log_ends_its_subscriptions_and_refuses_what_comes_later<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..100).await;
    let mut full = log.subscribe(capacity(1, 1 << 20));
    full.assignment().add(0, 0).unwrap();
    until(&full, "a full queue", |list| list[0].queued_records == 1).await;
    let mut idle = log.subscribe(MetadataEventQueueCapacity::default());
    let waiting = tokio::spawn(async move { idle.next().await.is_none() });
    within("the close", log.clone().close()).await;
    assert!(within("the end of the one that waits", waiting).await.unwrap());
    assert!(within("the end of the one that is full", full.next()).await.is_none());
    assert_eq!(full.assignment().add(0, 0).unwrap_err().to_string(), "the subscription is closed");
    let refused = log.publish(0, "x".into(), soon()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the metadata log is closed");
    let mut later = log.subscribe(MetadataEventQueueCapacity::default());
    assert!(within("the end", later.next()).await.is_none());
    // Another one on the same topic does not notice.
    publish(&form.open().await, 0, 100..101).await;
}

async fn a_dropped_wait_for_a_delivery_loses_nothing<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    let mut events = log.subscribe(capacity(2, 1 << 20));
    events.assignment().add(0, 0).unwrap();
    let mut seen = Vec::new();
    for event in 0..100 {
        publish(&log, 0, event..event + 1).await;
        // Polled once, ready or not, and dropped.
        if let Some(Some(MetadataDelivery::Record { record, .. })) =
            futures::FutureExt::now_or_never(events.next())
        {
            seen.push(record.offset);
        }
    }
    while seen.len() < 100 {
        if let Some(MetadataDelivery::Record { record, .. }) = within("the rest", events.next()).await {
            seen.push(record.offset);
        }
    }
    assert!(seen.into_iter().eq(0..100));
}

async fn every_log_on_a_topic_names_the_same_topic<F: Form>() {
    let form = F::new(3).await;
    let log = form.open().await;
    let identity = log.identity();
    assert_eq!((identity.partition_count, log.partition_count()), (3, 3));
    assert!(identity.topic_id.is_some() && identity.cluster_id.is_some(), "{identity:?}");
    assert_eq!(form.open().await.identity(), identity);
    assert_eq!(form.open_read_only().await.identity(), identity);
}

async fn high_water_marks_tell_what_is_there_whether_it_is_read_or_not<F: Form>() {
    let form = F::new(3).await;
    let log = form.open().await;
    let reader = form.open_read_only().await;
    assert_eq!(ends(&log).await, [0, 0, 0]);
    publish(&log, 1, 0..7).await;
    assert_eq!(ends(&log).await, [0, 7, 0]);
    assert_eq!(ends(&reader).await, [0, 7, 0]);
    let mut events = reader.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(2, 0).unwrap();
    publish(&log, 2, 0..2).await;
    assert_eq!(records(&mut events, 2).await, expected(2, 0..2));
    assert_eq!(ends(&reader).await, [0, 7, 2]);
}

/// The high watermark of each partition.
async fn ends(log: &impl MetadataEventLog) -> Vec<i64> {
    let marks = within("the marks", log.high_water_marks()).await;
    marks.into_iter().map(|marks| marks.unwrap().high_watermark).collect()
}

async fn a_range_is_visited_while_its_partition_is_followed<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..60).await;
    let mut events = log.subscribe(capacity(4, 1 << 20));
    events.assignment().add(0, 30).unwrap();
    assert_eq!(records(&mut events, 10).await, expected(0, 30..40));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let visitor = {
        let seen = std::sync::Arc::clone(&seen);
        move |record: &MetadataEventRecord<'_>| {
            seen.lock().unwrap().push(record.offset);
            ControlFlow::Continue(())
        }
    };
    let range = MetadataRange { partition: 0, from: 5, to: 50 };
    // The one that follows stands in front of a full queue all the while.
    let visit = within("the range", log.visit_range(range, visitor)).await;
    assert!(visit.error.is_none(), "{:?}", visit.error);
    assert!(seen.lock().unwrap().iter().copied().eq(5..50));
    publish(&log, 0, 60..70).await;
    assert_eq!(records(&mut events, 30).await, expected(0, 40..70));
}

async fn events_lie_in_the_order_in_which_they_were_published<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    // All of them are begun, in this order, before the first has its answer.
    let publishes = (0..200).map(|event: i64| log.publish(0, event.to_string().into(), soon()));
    let answers = within("every answer", futures::future::join_all(publishes)).await;
    assert!(answers.into_iter().map(Result::unwrap).eq(0..200));
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    assert_eq!(records(&mut events, 200).await, expected(0, 0..200));
}

async fn two_logs_that_write_at_once_leave_one_log_without_gap_or_repetition<F: Form>() {
    let form = F::new(1).await;
    let logs = [form.open().await, form.open().await];
    let mut events = logs[0].subscribe(capacity(7, 1 << 20));
    events.assignment().add(0, 0).unwrap();
    let write = async |log: &F::Log, name: &str| {
        let mut told = Vec::new();
        for event in 0..50 {
            let value = format!("{name}{event}");
            let offset = log.publish(0, value.clone().into(), soon()).await.unwrap();
            told.push(format!("0@{offset}={value}"));
        }
        told
    };
    let (mut told, other, seen) = futures::join!(write(&logs[0], "a"), write(&logs[1], "b"), async {
        records(&mut events, 100).await
    },);
    told.extend(other);
    told.sort();
    let offset = |record: &String| record[2..record.find('=').unwrap()].parse::<i64>().unwrap();
    assert!(seen.iter().map(offset).eq(0..100), "{seen:?}");
    let mut seen = seen;
    seen.sort();
    assert_eq!(seen, told);
}

async fn a_publish_without_time_says_truly_whether_its_event_is_written<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    let (mut written, mut unknown) = (0, 0);
    for turn in 0..40 {
        // No time at all, and hardly any.
        let time = std::time::Duration::from_micros(500 * (turn % 2));
        match log.publish(0, "late".into(), tokio::time::Instant::now() + time).await {
            Ok(offset) => {
                assert!((written..=written + unknown).contains(&offset), "{offset} after {written}");
                written += 1;
            }
            Err(error) if error.may_be_written() => unknown += 1,
            Err(_) => {}
        }
    }
    let offset = log.publish(0, "in time".into(), soon()).await.unwrap();
    assert!((written..=written + unknown).contains(&offset), "{offset} after {written}, {unknown} unknown");
}

async fn a_dropped_publish_loses_its_answer_and_leaves_the_log_whole<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    for event in 0..30 {
        // Polled once, answered or not, and dropped.
        let _ = futures::FutureExt::now_or_never(log.publish(0, format!("dropped {event}").into(), soon()));
        log.publish(0, format!("kept {event}").into(), soon()).await.unwrap();
    }
    let count = ends(&log).await[0];
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    let seen = records(&mut events, usize::try_from(count).unwrap()).await;
    let values: Vec<_> = seen.iter().map(|record| record.split_once('=').unwrap().1).collect();
    let kept: Vec<_> = values.iter().filter(|value| value.starts_with("kept")).copied().collect();
    assert_eq!(kept, (0..30).map(|event| format!("kept {event}")).collect::<Vec<_>>());
    for event in 0..30 {
        let dropped = format!("dropped {event}");
        assert!(values.iter().filter(|value| **value == dropped).count() <= 1, "{values:?}");
    }
}

async fn closing_under_load_answers_every_publish_and_what_was_acknowledged_is_there<F: Form>() {
    let form = F::new(2).await;
    let log = form.open().await;
    let mut following = log.subscribe(capacity(3, 1 << 20));
    following.assignment().add(0, 0).unwrap();
    let (first, begun) = tokio::sync::oneshot::channel();
    let mut first = Some(first);
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..8 {
        let log = log.clone();
        let first = first.take();
        publishers.spawn(async move {
            let (mut told, mut first) = (Vec::new(), first);
            for event in 0.. {
                // The form in memory waits for nothing by itself.
                tokio::task::yield_now().await;
                let value = format!("{publisher}.{event}");
                match log.publish(publisher % 2, value.clone().into(), soon()).await {
                    Ok(offset) => told.push(format!("{}@{offset}={value}", publisher % 2)),
                    Err(strandline_log::PublishError::Closed) => return told,
                    Err(error) => panic!("{error}"),
                }
                if event == 5 {
                    let _ = first.take().map(|first| first.send(()));
                }
            }
            unreachable!("it is closed at some time")
        });
    }
    within("some events", begun).await.unwrap();
    within("the close", log.close()).await;
    let mut told: Vec<_> = within("every answer", publishers.join_all()).await.concat();
    while within("the end of what follows", following.next()).await.is_some() {}
    told.sort();
    let log = form.open().await;
    let count = usize::try_from(ends(&log).await.iter().sum::<i64>()).unwrap();
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    for partition in 0..2 {
        events.assignment().add(partition, 0).unwrap();
    }
    let mut seen = records(&mut events, count).await;
    seen.sort();
    assert_eq!(seen, told);
}

async fn a_log_can_be_closed_twice<F: Form>() {
    let form = F::new(1).await;
    let log = form.open().await;
    publish(&log, 0, 0..1).await;
    within("the first", log.clone().close()).await;
    within("the second", log.close()).await;
}

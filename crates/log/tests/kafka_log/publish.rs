//! What publishers are told when answers are lost, leaders move, replicas lag, and the topic goes.

use std::cell::Cell;
use std::time::Duration;

use strandline_log::{
    FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _,
    METADATA_TOPIC, MetadataDelivery, MetadataEventLog as _, MetadataEventQueueCapacity, PublishError,
};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{
    Acl, EmbeddedCluster, Fault, Held, JournalEntry, Network, Operation, Rule,
};
use tokio::time::Instant;

use crate::support::{DELIVERY_TIMEOUT, chain, config, connect, kafka, late};

fn produce(fault: Fault) -> Rule {
    Rule::new(fault).api(ApiKey::Produce)
}

/// A log of one partition, which broker 1 leads.
async fn open(kafka: &EmbeddedCluster) -> KafkaMetadataEventLog {
    open_as(kafka, config(1, FetchConnections::PerPartition)).await
}

async fn open_as(kafka: &EmbeddedCluster, config: KafkaMetadataLogConfig) -> KafkaMetadataEventLog {
    let log = KafkaMetadataEventLog::start(&connect(kafka).await, config, late()).await.unwrap();
    kafka.move_leader(METADATA_TOPIC, 0, 1);
    log
}

/// Publishes to partition 0, with so many seconds' time.
async fn publish(log: &KafkaMetadataEventLog, value: &str, seconds: u64) -> Result<i64, PublishError> {
    log.publish(0, value.to_owned().into(), Instant::now() + Duration::from_secs(seconds)).await
}

/// The values in partition 0, as a subscriber gets them; offsets have no gap.
async fn values(kafka: &EmbeddedCluster) -> Vec<String> {
    let log = open_values(kafka).await;
    let end = log.high_water_marks().await.remove(0).unwrap().high_watermark;
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    let mut values = Vec::new();
    while values.len() < usize::try_from(end).unwrap() {
        match events.next().await {
            Some(MetadataDelivery::Record { record, .. }) => {
                assert_eq!(record.offset, values.len() as i64);
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
            other => panic!("{other:?} after {values:?}"),
        }
    }
    values
}

async fn open_values(kafka: &EmbeddedCluster) -> KafkaMetadataEventLog {
    let config = config(1, FetchConnections::PerPartition);
    KafkaMetadataEventLog::open_read_only(&connect(kafka).await, config, late()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_at_any_point_leaves_no_duplicate_and_no_gap() {
    for lost in 1..=6 {
        for times in 1..=3 {
            let kafka = kafka(2);
            let log = open(&kafka).await;
            kafka.script(produce(Fault::ApplyThenLose).nth(lost).times(times));
            for event in 0..6 {
                let offset = publish(&log, &event.to_string(), 60).await;
                assert_eq!(offset.unwrap(), event, "the {lost}th answer, {times} times");
            }
            assert_eq!(values(&kafka).await, ["0", "1", "2", "3", "4", "5"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_unknown_at_the_publishers_own_deadline() {
    let kafka = kafka(2);
    let log = open(&kafka).await;
    assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
    kafka.script(produce(Fault::ApplyThenLose).always());
    let began = Instant::now();
    let lost = publish(&log, "b", 7).await.unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 7);
    assert!(matches!(lost, PublishError::Unknown { partition: 0, .. }) && lost.may_be_written(), "{lost}");
    assert!(
        chain(&lost)
            .starts_with("metadata partition 0: no acknowledgement within 7.0s, the event may be written: "),
        "{}",
        chain(&lost)
    );
    kafka.clear_script();
    // It had been written, once, and nobody could know.
    assert_eq!(publish(&log, "c", 60).await.unwrap(), 2);
    assert_eq!(values(&kafka).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_reached_no_broker_by_its_publishers_deadline_is_not_written_and_never_will_be() {
    for network in [Network::Refuse, Network::Blackhole] {
        let kafka = kafka(1);
        let log = open(&kafka).await;
        assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
        kafka.set_network(1, network).await.unwrap();
        kafka.close_connections(1).await;
        let began = Instant::now();
        let (short, long, kept) = tokio::join!(publish(&log, "b", 7), publish(&log, "c", 11), async {
            // Behind them in the same batch, or in the next.
            let kept = publish(&log, "d", 100);
            let up = async {
                tokio::time::sleep(Duration::from_secs(30)).await;
                kafka.set_network(1, Network::Up).await.unwrap();
            };
            tokio::join!(kept, up).0
        });
        for (lost, seconds) in [(short, 7.0), (long, 11.0)] {
            let lost = lost.unwrap_err();
            assert!(matches!(lost, PublishError::NotWritten { .. }), "{network:?}: {}", chain(&lost));
            assert!(!lost.may_be_written());
            assert!(lost.to_string().ends_with(&format!("not written within {seconds:.1}s")), "{lost}");
        }
        assert!(began.elapsed() >= Duration::from_secs(30));
        assert_eq!(kept.unwrap(), 1, "{network:?}");
        assert_eq!(values(&kafka).await, ["a", "d"], "{network:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_publisher_with_more_time_than_one_delivery_has_all_of_it() {
    let kafka = kafka(1);
    let log = open(&kafka).await;
    assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
    kafka.set_network(1, Network::Refuse).await.unwrap();
    kafka.close_connections(1).await;
    let back = async {
        tokio::time::sleep(DELIVERY_TIMEOUT * 3).await;
        kafka.set_network(1, Network::Up).await.unwrap();
    };
    let (written, ()) = tokio::join!(publish(&log, "b", 3600), back);
    assert_eq!(written.unwrap(), 1);
    assert_eq!(values(&kafka).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn too_few_replicas_are_waited_for_and_at_the_deadline_the_event_is_not_written() {
    let kafka = kafka(3);
    let replicated =
        KafkaMetadataLogConfig { replication: 3, min_isr: 2, ..config(1, FetchConnections::PerPartition) };
    let log = open_as(&kafka, replicated).await;
    kafka.set_isr(METADATA_TOPIC, 0, &[1]);
    let lost = publish(&log, "a", 7).await.unwrap_err();
    assert!(matches!(lost, PublishError::NotWritten { .. }), "{}", chain(&lost));
    assert!(chain(&lost).contains("NOT_ENOUGH_REPLICAS"), "{}", chain(&lost));
    let back = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        kafka.set_isr(METADATA_TOPIC, 0, &[1, 3]);
    };
    let (written, ()) = tokio::join!(publish(&log, "b", 60), back);
    assert_eq!(written.unwrap(), 0);
    // Appended, and the replicas were lost while they were waited for: nobody knows, and the repetition tells.
    kafka.script(produce(Fault::Error(ErrorCode::NotEnoughReplicasAfterAppend)));
    assert_eq!(publish(&log, "c", 60).await.unwrap(), 1);
    assert_eq!(values(&kafka).await, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_moves_in_the_middle_of_a_publish_is_followed() {
    for fault in [None, Some(Fault::ApplyThenLose)] {
        let kafka = kafka(3);
        let replicated =
            KafkaMetadataLogConfig { replication: 3, ..config(1, FetchConnections::PerPartition) };
        let log = open_as(&kafka, replicated).await;
        assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
        let held = Held::default();
        kafka.script(produce(fault.clone().unwrap_or(Fault::Hold(held.clone()))));
        let journal = kafka.journal().len();
        let moved = async {
            kafka
                .journal_when(|entries| entries[journal..].iter().any(|entry| entry.api == ApiKey::Produce))
                .await;
            kafka.move_leader(METADATA_TOPIC, 0, 2);
            held.release();
        };
        let (written, ()) = tokio::join!(publish(&log, "b", 60), moved);
        assert_eq!(written.unwrap(), 1, "{fault:?}");
        assert_eq!(publish(&log, "c", 60).await.unwrap(), 2);
        assert_eq!(values(&kafka).await, ["a", "b", "c"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_dies_under_load_costs_time_and_no_event() {
    let kafka = kafka(3);
    let replicated = KafkaMetadataLogConfig { replication: 3, ..config(1, FetchConnections::PerPartition) };
    let log = open_as(&kafka, replicated).await;
    let (over, dying) = (Cell::new(false), async {
        for broker in [1, 2] {
            let journal = kafka.journal().len();
            let produced = |entry: &&JournalEntry| entry.api == ApiKey::Produce;
            let enough = |entries: &[JournalEntry]| entries[journal..].iter().filter(produced).count() > 50;
            kafka.journal_when(enough).await;
            kafka.stop_broker(broker).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            kafka.restart_broker(broker).await.unwrap();
        }
    });
    let publishing = async {
        let mut event = 0;
        while !over.get() {
            assert_eq!(publish(&log, &event.to_string(), 60).await.unwrap(), event);
            event += 1;
            // So that the clock moves.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        event
    };
    let (events, ()) = tokio::join!(publishing, async {
        dying.await;
        over.set(true);
    });
    assert!(events > 100, "{events}");
    assert!(values(&kafka).await.into_iter().eq((0..events).map(|event| event.to_string())));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_created_anew_is_not_written_to() {
    for written_before in [false, true] {
        let kafka = kafka(2);
        let log = open(&kafka).await;
        if written_before {
            assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
        }
        kafka.recreate_topic(METADATA_TOPIC);
        for _ in 0..2 {
            let refused = publish(&log, "b", 60).await.unwrap_err();
            assert!(matches!(refused, PublishError::Recreated { .. }), "{}", chain(&refused));
            assert!(!refused.may_be_written());
        }
        assert!(values(&kafka).await.is_empty(), "written before: {written_before}");
        // Opened again it is the new one.
        let anew = open(&kafka).await;
        assert_eq!(publish(&anew, "b", 60).await.unwrap(), 0);
        assert_ne!(anew.identity(), log.identity());
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_is_told_and_not_created_again() {
    let kafka = kafka(2);
    let log = open(&kafka).await;
    assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
    kafka.delete_topic(METADATA_TOPIC);
    let began = Instant::now();
    let refused = publish(&log, "b", 60).await.unwrap_err();
    assert!(matches!(refused, PublishError::Recreated { .. }), "{}", chain(&refused));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(kafka.view().topics.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_is_named_and_given_back_it_works() {
    let kafka = kafka(2);
    let log = open(&kafka).await;
    assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
    let right = |operation| Acl::topic("User:ANONYMOUS", METADATA_TOPIC, operation);
    kafka.set_acls(Some(vec![right(Operation::Describe)]));
    let refused = publish(&log, "b", 60).await.unwrap_err();
    assert!(
        matches!(refused, PublishError::Forbidden { partition: 0, right: "WRITE" }),
        "{}",
        chain(&refused)
    );
    kafka.set_acls(None);
    assert_eq!(publish(&log, "c", 60).await.unwrap(), 1);
    assert_eq!(values(&kafka).await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_too_large_is_told_with_what_fits_and_that_much_fits() {
    let kafka = kafka(1);
    kafka.create_topic_with(METADATA_TOPIC, 1, 1, &[("max.message.bytes", "1000")]);
    let log = open(&kafka).await;
    let refused = publish(&log, &"x".repeat(1001), 60).await.unwrap_err();
    let PublishError::TooLarge { bytes: 1001, bytes_max: Some(bytes_max) } = refused else {
        panic!("{refused}")
    };
    assert_eq!(refused.to_string(), "an event of 1001 bytes: the metadata topic takes at most 920");
    assert_eq!(publish(&log, &"x".repeat(bytes_max), 60).await.unwrap(), 0);
    // A topic whose limit is not known.
    kafka.set_acls(Some(
        [Operation::Read, Operation::Write]
            .map(|right| Acl::topic("User:ANONYMOUS", METADATA_TOPIC, right))
            .to_vec(),
    ));
    let log = open(&kafka).await;
    let refused = publish(&log, &"x".repeat(1001), 60).await.unwrap_err();
    assert_eq!(refused.to_string(), "an event of 1001 bytes: the metadata topic does not take as many");
}

#[tokio::test(start_paused = true)]
async fn a_written_event_whose_offset_the_broker_has_forgotten_is_told_as_written() {
    let kafka = kafka(1);
    let log = open(&kafka).await;
    kafka.script(produce(Fault::Error(ErrorCode::DuplicateSequenceNumber)));
    let told = publish(&log, "a", 60).await.unwrap_err();
    assert!(matches!(told, PublishError::NoOffset { partition: 0, .. }) && told.may_be_written(), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_publisher_without_room_waits_for_it_until_its_deadline() {
    let kafka = kafka(1);
    let mut small = config(1, FetchConnections::PerPartition);
    small.producer.buffer_memory = 1000;
    let log = open_as(&kafka, small).await;
    let larger = publish(&log, &"x".repeat(2000), 60).await.unwrap_err();
    assert!(matches!(larger, PublishError::TooLarge { bytes: 2000, bytes_max: Some(872) }), "{larger}");
    kafka.set_network(1, Network::Blackhole).await.unwrap();
    let publishes = (0..5).map(|event| {
        let (log, value) = (log.clone(), format!("{event}{}", "x".repeat(300)));
        async move { publish(&log, &value, 7).await }
    });
    for lost in futures::future::join_all(publishes).await {
        let lost = lost.unwrap_err();
        assert!(matches!(lost, PublishError::NotWritten { .. }), "{}", chain(&lost));
    }
    kafka.set_network(1, Network::Up).await.unwrap();
    assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
    assert_eq!(values(&kafka).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn close_while_no_broker_can_be_reached_ends_within_the_delivery_timeout_and_answers_all() {
    let kafka = kafka(1);
    let log = open(&kafka).await;
    assert_eq!(publish(&log, "a", 60).await.unwrap(), 0);
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(0, 0).unwrap();
    kafka.set_network(1, Network::Blackhole).await.unwrap();
    let mut publishing = tokio::task::JoinSet::new();
    for event in 0..20 {
        let log = log.clone();
        publishing.spawn(async move { publish(&log, &event.to_string(), 3600).await });
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let began = Instant::now();
    log.clone().close().await;
    assert!(began.elapsed() <= DELIVERY_TIMEOUT, "{:?}", began.elapsed());
    // Nobody waits for anything any more.
    let answers = tokio::time::timeout(Duration::from_secs(1), publishing.join_all()).await.unwrap();
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    while tokio::time::timeout(Duration::from_secs(1), events.next()).await.unwrap().is_some() {}
    let refused = publish(&log, "b", 60).await.unwrap_err();
    assert!(matches!(refused, PublishError::Closed), "{refused}");
}

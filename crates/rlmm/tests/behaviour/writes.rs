//! Writing: read back, with an outcome; refused where it would harm a Java broker; never a false success or failure.

use std::time::Duration;

use strandline_log::InProcessMetadataTopic;
use strandline_rlmm::{
    PartitionHolders, RemoteLogMetadataManager as _, TopicBasedRemoteLogMetadataManager, WriteError,
    WriteOutcome,
};
use strandline_tier::{EpochEntry, RawEvent, RawSegmentMetadata, RawSegmentUpdate, codec};
use tokio::time::Instant;

use crate::faulty::FaultyLog;
use crate::support::{
    add, append, append_copied, caught_up, change, config, home, orders, partition_delete, readable, serve,
    serving, soon, start, started, until, update, within,
};

fn topic() -> InProcessMetadataTopic {
    InProcessMetadataTopic::with_partitions(50)
}

#[tokio::test]
async fn a_write_says_what_every_reader_made_of_it() {
    let topic = topic();
    let manager = serving(topic.open(), config(), &[orders(0)]).await;
    let tp = orders(0);
    let mut told = Vec::new();
    told.push(add(&manager, started(&tp, 1, 0..=99)).await.unwrap());
    // As often as one likes while the copy goes on.
    told.push(add(&manager, started(&tp, 1, 0..=99)).await.unwrap());
    for (segment, state) in [(1, 3), (1, 1), (1, 1), (9, 1), (1, 2), (1, 1), (1, 3), (1, 3), (1, 2)] {
        told.push(change(&manager, update(&tp, segment, state)).await.unwrap());
    }
    told.push(add(&manager, started(&tp, 2, 100..=199)).await.unwrap());
    change(&manager, update(&tp, 2, 1)).await.unwrap();
    told.push(add(&manager, started(&tp, 2, 100..=199)).await.unwrap());
    let told: Vec<_> = told
        .iter()
        .map(|written| match written.outcome {
            WriteOutcome::Rejected(rejection) => format!("{}: {rejection}", written.offset),
            outcome => format!("{}: {outcome:?}", written.offset),
        })
        .collect();
    assert_eq!(
        told,
        [
            "0: Applied",
            "1: Applied",
            "2: the segment is in state COPY_SEGMENT_STARTED, and cannot go to DELETE_SEGMENT_FINISHED",
            "3: Applied",
            "4: Applied",
            "5: there is no such segment",
            "6: Applied",
            "7: the segment is in state DELETE_SEGMENT_STARTED, and cannot go to COPY_SEGMENT_FINISHED",
            "8: Applied",
            "9: NoOp",
            "10: there is no such segment",
            "11: Applied",
            "13: NoOp",
        ]
    );
    assert_eq!(manager.status()[0].waiting_writes, 0);
}

#[tokio::test]
async fn what_would_end_or_mislead_a_java_broker_is_refused_and_not_written() {
    let topic = topic();
    let manager = serving(topic.open(), config(), &[orders(0)]).await;
    let tp = orders(0);
    let epochs = |entries: &[(i32, i64)]| {
        entries.iter().map(|&(epoch, start_offset)| EpochEntry { epoch, start_offset }).collect()
    };
    let good = || started(&tp, 1, 10..=99);
    let mut refused = Vec::new();
    for event in [
        RawSegmentMetadata { state_id: 1, ..good() },
        RawSegmentMetadata { state_id: 4, ..good() },
        RawSegmentMetadata { start_offset: -1, ..good() },
        RawSegmentMetadata { end_offset: 9, ..good() },
        RawSegmentMetadata { segment_leader_epochs: epochs(&[]), ..good() },
        RawSegmentMetadata { segment_leader_epochs: epochs(&[(0, 10), (1, 101)]), ..good() },
    ] {
        refused.push(add(&manager, event).await.unwrap_err());
    }
    for state in [0, -1, 4] {
        refused.push(change(&manager, update(&tp, 1, state)).await.unwrap_err());
    }
    for state in [2, 3] {
        let event = partition_delete(&tp, state);
        let put =
            manager.put_remote_partition_delete_metadata(event, PartitionHolders::Possible, soon()).await;
        refused.push(put.unwrap_err());
    }
    let reasons: Vec<_> = refused
        .iter()
        .map(|error| {
            assert!(!error.may_be_written(), "{error:?}");
            let WriteError::Refused(reason) = error else { panic!("{error:?}") };
            let source = std::error::Error::source(reason).map(|source| format!(": {source}"));
            format!("{reason}{}", source.unwrap_or_default())
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "a segment is announced in state COPY_SEGMENT_STARTED, not COPY_SEGMENT_FINISHED",
            "no reader accepts such an event: unknown state 4",
            "no reader accepts such an event: start offset -1 is negative",
            "no reader accepts such an event: end offset 9 is below start offset 10",
            "no reader accepts such an event: no leader epochs",
            "leader epoch 1 begins at offset 101, beyond the segment's end at 99",
            "no update leads to COPY_SEGMENT_STARTED",
            "no reader accepts such an event: unknown state -1",
            "no reader accepts such an event: unknown state 4",
            "DELETE_PARTITION_FINISHED can end the reading of a broker that holds the partition; say that none does to write it",
            "no reader accepts such an event: unknown state 3",
        ]
    );
    // The names of topics have a longest form in Kafka's bytes.
    let long = strandline_rlmm::TopicIdPartition { topic: "x".repeat(40_000).into(), ..orders(1) };
    serve(&manager, std::slice::from_ref(&long)).await;
    let error = add(&manager, started(&long, 1, 0..=9)).await.unwrap_err();
    assert!(matches!(error, WriteError::Refused(_)), "{error:?}");
    // Right behind the end an epoch may begin; and the first event that was written is this one.
    let event = RawSegmentMetadata { segment_leader_epochs: epochs(&[(0, 10), (1, 100)]), ..good() };
    assert_eq!(add(&manager, event).await.unwrap().offset, 0);
}

#[tokio::test]
async fn a_deletion_keeps_the_custom_metadata_that_java_would_forget() {
    let topic = topic();
    let tp = orders(0);
    let manager = serving(topic.open(), config(), &[orders(0)]).await;
    add(&manager, started(&tp, 1, 0..=99)).await.unwrap();
    let finished = RawSegmentUpdate { custom_metadata: Some(b"where".into()), ..update(&tp, 1, 1) };
    change(&manager, finished).await.unwrap();
    change(&manager, update(&tp, 1, 2)).await.unwrap();
    let listed = manager.list_remote_log_segments(&tp).unwrap();
    assert_eq!(listed[0].custom_metadata(), Some(&b"where"[..]));
    let other = RawSegmentUpdate { custom_metadata: Some(b"told".into()), ..update(&tp, 1, 3) };
    change(&manager, other).await.unwrap();
    // What stands in the log is what Java reads.
    let custom = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let range = strandline_log::MetadataRange { partition: home(&topic, &tp), from: 0, to: 4 };
    let seen = std::sync::Arc::clone(&custom);
    let visit = move |record: &strandline_log::MetadataEventRecord<'_>| {
        if let Ok(RawEvent::SegmentMetadataUpdate(event)) = codec::decode(record.value.unwrap()) {
            let custom = event.custom_metadata.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
            seen.lock().unwrap().push((event.state_id, custom.unwrap()));
        }
        std::ops::ControlFlow::Continue(())
    };
    strandline_log::MetadataEventLog::visit_range(&topic.open(), range, visit).await;
    let expected = [(1, "where".to_owned()), (2, "where".to_owned()), (3, "told".to_owned())];
    assert_eq!(*custom.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_acknowledgement_that_comes_after_the_event_was_read_finds_its_outcome() {
    let topic = topic();
    let log = FaultyLog::new(&topic);
    let faults = log.faults.clone();
    let tp = orders(0);
    let manager = std::sync::Arc::new(serving(log, config(), std::slice::from_ref(&tp)).await);
    faults.acknowledgements.send_replace(false);
    let writer = std::sync::Arc::clone(&manager);
    let write = tokio::spawn({
        let event = started(&tp, 1, 0..=99);
        async move { writer.add_remote_log_segment_metadata(event, soon()).await }
    });
    until("the event is applied", || !manager.list_remote_log_segments(&tp).unwrap().is_empty()).await;
    // Another writer's very same bytes are another event.
    append(&topic, home(&topic, &tp), started(&tp, 1, 0..=99));
    caught_up(&manager, |_| 2).await;
    faults.acknowledgements.send_replace(true);
    let written = within("the write", write).await.unwrap().unwrap();
    assert_eq!((written.offset, written.outcome), (0, WriteOutcome::Applied));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_read_back_in_time_is_said_to_be_in_the_log() {
    let topic = topic();
    let tp = orders(0);
    let manager = serving(FaultyLog::new(&topic).deaf(), config(), std::slice::from_ref(&tp)).await;
    let deadline = Instant::now() + Duration::from_secs(5);
    let error = manager.add_remote_log_segment_metadata(started(&tp, 1, 0..=99), deadline).await.unwrap_err();
    let home = home(&topic, &tp);
    assert_eq!(
        error.to_string(),
        format!("the event at offset 0 of metadata partition {home} was not read back within 5.0s")
    );
    assert!(error.may_be_written());
    assert_eq!(manager.status()[0].waiting_writes, 0, "nobody waits any more");
}

#[tokio::test]
async fn a_dropped_write_leaves_nobody_waiting() {
    let topic = topic();
    let tp = orders(0);
    let manager = serving(FaultyLog::new(&topic).deaf(), config(), std::slice::from_ref(&tp)).await;
    {
        let mut write = Box::pin(manager.add_remote_log_segment_metadata(started(&tp, 1, 0..=99), soon()));
        until("it waits", || {
            assert!(futures::FutureExt::now_or_never(write.as_mut()).is_none());
            manager.status()[0].waiting_writes == 1
        })
        .await;
    }
    assert_eq!(manager.status()[0].waiting_writes, 0);
}

#[tokio::test]
async fn a_lost_acknowledgement_is_unknown_and_a_refusal_of_the_log_is_not_written() {
    let topic = topic();
    let tp = orders(0);
    let log = FaultyLog::new(&topic);
    let faults = log.faults.clone();
    let manager = serving(log, config(), std::slice::from_ref(&tp)).await;
    for (not_written, may_be_written) in [(true, false), (false, true)] {
        *faults.publish_error.lock().unwrap() = Some(not_written);
        let error =
            manager.add_remote_log_segment_metadata(started(&tp, 1, 0..=99), soon()).await.unwrap_err();
        assert!(matches!(error, WriteError::Publish(_)), "{error:?}");
        assert_eq!(error.may_be_written(), may_be_written, "{error:?}");
    }
    // It was written; a second write of the same event changes nothing.
    *faults.publish_error.lock().unwrap() = None;
    let written = manager.add_remote_log_segment_metadata(started(&tp, 1, 0..=99), soon()).await.unwrap();
    assert_eq!((written.offset, written.outcome), (1, WriteOutcome::Applied));
    assert_eq!(manager.list_remote_log_segments(&tp).unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_for_a_partition_that_is_not_served_or_not_ready() {
    let topic = topic();
    let tp = orders(0);
    let log = FaultyLog::new(&topic);
    append_copied(&topic, &tp, 7, 0..=9);
    log.faults.ranges.send_replace(false);
    let manager = TopicBasedRemoteLogMetadataManager::start(log, config()).unwrap();
    let add = |deadline| manager.add_remote_log_segment_metadata(started(&tp, 1, 10..=99), deadline);
    let error = add(soon()).await.unwrap_err();
    assert_eq!(error.to_string(), "user partition orders-0 (vaZwr6blSEWMAbm7z-tW-w) is not served here");
    manager.on_partition_leadership_changes(&[], std::slice::from_ref(&tp)).unwrap();
    let error = add(Instant::now() + Duration::from_secs(2)).await.unwrap_err();
    let expected = "user partition orders-0 (vaZwr6blSEWMAbm7z-tW-w) was not ready within 2.0s";
    assert_eq!(error.to_string(), expected);
    assert!(!error.may_be_written());
    let read_only = TopicBasedRemoteLogMetadataManager::start(topic.open_read_only(), config()).unwrap();
    serve(&read_only, std::slice::from_ref(&tp)).await;
    let error =
        read_only.add_remote_log_segment_metadata(started(&tp, 1, 10..=99), soon()).await.unwrap_err();
    assert!(matches!(&error, WriteError::Publish(strandline_log::PublishError::ReadOnly)), "{error:?}");
    // Reading needs no right to write.
    assert_eq!(readable(&read_only, &tp, &[5, 10]), [Some(7), None]);
    assert_eq!(append(&topic, home(&topic, &tp), update(&tp, 7, 2)), 2, "nothing was written");
}

#[tokio::test]
async fn writers_are_told_when_the_partition_is_stopped_or_the_manager_closed() {
    let topic = topic();
    let partitions = [orders(0), orders(1)];
    let manager = serving(FaultyLog::new(&topic).deaf(), config(), &partitions).await;
    let manager = std::sync::Arc::new(manager);
    let write = |partition: usize| {
        let (manager, event) = (std::sync::Arc::clone(&manager), started(&partitions[partition], 1, 0..=99));
        tokio::spawn(async move { manager.add_remote_log_segment_metadata(event, soon()).await })
    };
    let (first, second) = (write(0), write(1));
    let waiting = || manager.status().iter().map(|status| status.waiting_writes).sum::<usize>();
    until("both wait", || waiting() == 2).await;
    manager.on_stop_partitions(&partitions[..1]);
    let error = within("the first write", first).await.unwrap().unwrap_err();
    assert!(matches!(&error, WriteError::Unassigned { offset: 0, .. }), "{error:?}");
    assert_eq!(waiting(), 1, "the other one waits on");
    within("the close", manager.close()).await;
    let error = within("the second write", second).await.unwrap().unwrap_err();
    assert!(error.may_be_written(), "{error:?}");
    let error = manager.add_remote_log_segment_metadata(started(&partitions[1], 1, 0..=99), soon()).await;
    assert!(matches!(error, Err(WriteError::Closed)), "{error:?}");
    assert!(manager.on_partition_leadership_changes(&partitions, &[]).is_err());
}

#[tokio::test]
async fn a_partition_whose_deletion_is_finished_is_forgotten() {
    let topic = topic();
    let tp = orders(0);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    add(&manager, started(&tp, 1, 0..=99)).await.unwrap();
    for state in [0, 1] {
        let event = partition_delete(&tp, state);
        let put =
            manager.put_remote_partition_delete_metadata(event, PartitionHolders::Possible, soon()).await;
        assert_eq!(put.unwrap().outcome, WriteOutcome::Applied);
        assert_eq!(manager.list_remote_log_segments(&tp).unwrap().len(), 1, "it is served until the end");
    }
    let event = partition_delete(&tp, 2);
    let put = manager.put_remote_partition_delete_metadata(event, PartitionHolders::None, soon()).await;
    assert_eq!(put.unwrap().outcome, WriteOutcome::Applied);
    until("it is forgotten", || manager.list_remote_log_segments(&tp).is_err()).await;
    assert!(manager.status().is_empty(), "nobody needs the metadata partition any more");
    // Who begins to serve it afterwards finds that it is gone, and events behind that are passed over.
    append(&topic, home(&topic, &tp), started(&tp, 2, 0..=99));
    let late = start(&topic);
    late.on_partition_leadership_changes(std::slice::from_ref(&tp), &[]).unwrap();
    let error = within("the end", late.wait_until_ready(&tp, soon())).await.unwrap_err();
    assert_eq!(error.kafka_exception(), "RemoteResourceNotFoundException");
}

#[tokio::test]
async fn each_writer_of_many_gets_the_outcome_of_its_own_event() {
    let topic = InProcessMetadataTopic::with_partitions(3);
    let partitions: Vec<_> = (0..8).map(orders).collect();
    let manager = serving(topic.open(), config(), &partitions).await;
    let writes = (0..400_u64).map(|write| {
        let (manager, tp) = (&manager, &partitions[usize::try_from(write % 8).unwrap()]);
        async move {
            let begin = i64::try_from(write).unwrap() * 10;
            let added = add(manager, started(tp, write, begin..=begin + 9)).await.unwrap();
            assert_eq!(added.outcome, WriteOutcome::Applied);
            let finished = change(manager, update(tp, write, 1)).await.unwrap();
            assert!(finished.offset > added.offset);
            // What was written can be read at once.
            assert_eq!(readable(manager, tp, &[begin + 5]), [Some(write)]);
        }
    });
    within("every write", futures::future::join_all(writes)).await;
}

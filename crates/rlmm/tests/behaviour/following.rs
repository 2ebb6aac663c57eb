//! Reading: what is there, what comes, for whom, and past whatever is in the way.

use bytes::Bytes;
use strandline_log::{InProcessMetadataTopic, InProcessRecord, LiveMetadataEventLog as _, MetadataRange};
use strandline_rlmm::{RemoteLogMetadataManager as _, TopicBasedRemoteLogMetadataManager, TopicIdPartition};
use strandline_tier::{EpochEntry, RawSegmentMetadata};

use crate::faulty::FaultyLog;
use crate::support::{
    add, answers, append, append_copied, append_value, caught_up, config, home, number, orders,
    partition_delete, readable, serve, serving, soon, start, started, status_of, until, update, within,
};

fn topic(partitions: i32) -> InProcessMetadataTopic {
    InProcessMetadataTopic::with_partitions(partitions)
}

#[tokio::test]
async fn what_other_brokers_write_shows_whether_it_was_there_before_or_comes_later() {
    let topic = topic(50);
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=99);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(readable(&manager, &tp, &[50, 150]), [Some(1), None]);
    append_copied(&topic, &tp, 2, 100..=199);
    caught_up(&manager, |_| 4).await;
    assert_eq!(readable(&manager, &tp, &[50, 150, 250]), [Some(1), Some(2), None]);
    // Both write on one topic, and agree.
    let other = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    add(&other, started(&tp, 3, 200..=299)).await.unwrap();
    caught_up(&manager, |_| 5).await;
    assert_eq!(answers(&manager, &tp), answers(&other, &tp));
}

#[tokio::test]
async fn records_that_are_no_event_or_are_refused_are_counted_once_and_passed_over() {
    let topic = topic(1);
    let tp = orders(0);
    let snapshot = Bytes::from_static(&[1, 3, 0]);
    let put_bad_ones = || {
        append_value(&topic, 0, None);
        append_value(&topic, 0, Some("no event".into()));
        append_value(&topic, 0, Some(snapshot.clone()));
        append(&topic, 0, RawSegmentMetadata { state_id: 1, ..started(&tp, 8, 0..=9) });
        append(&topic, 0, RawSegmentMetadata { end_offset: -1, ..started(&tp, 8, 0..=9) });
        append(&topic, 0, update(&tp, 8, 77));
        // Of a partition that nobody serves here, so that nothing of it is applied.
        append(&topic, 0, update(&orders(9), 8, 77));
        let control =
            InProcessRecord { value: Some("marker".into()), control: true, ..InProcessRecord::default() };
        topic.append(0, control);
        // What Kafka drops without a word is none of them.
        append(&topic, 0, update(&tp, 8, 1));
    };
    put_bad_ones();
    append_copied(&topic, &tp, 1, 0..=99);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(status_of(&manager, 0).passed_over, 6);
    put_bad_ones();
    append_copied(&topic, &tp, 2, 100..=199);
    caught_up(&manager, |_| 22).await;
    let status = status_of(&manager, 0);
    assert_eq!((status.passed_over, status.last_passed_over.as_ref().map(|last| last.0)), (12, Some(16)));
    assert_eq!(readable(&manager, &tp, &[50, 150]), [Some(1), Some(2)]);
    // Another partition reads the same records again, and none is counted twice.
    serve(&manager, &[orders(1)]).await;
    assert_eq!(status_of(&manager, 0).passed_over, 12);
}

#[tokio::test]
async fn a_new_partition_is_replayed_for_itself_alone_and_holds_up_nobody() {
    let topic = topic(1);
    let (old, new) = (orders(0), orders(1));
    append_copied(&topic, &old, 1, 0..=99);
    append_copied(&topic, &new, 2, 0..=99);
    let log = FaultyLog::new(&topic);
    let faults = log.faults.clone();
    let manager = serving(log, config(), std::slice::from_ref(&old)).await;
    assert_eq!(*faults.visited.lock().unwrap(), [MetadataRange { partition: 0, from: 0, to: 4 }]);
    let before = answers(&manager, &old);
    faults.ranges.send_replace(false);
    manager.on_partition_leadership_changes(std::slice::from_ref(&new), &[]).unwrap();
    until("the replay has begun", || faults.visited.lock().unwrap().len() == 2).await;
    assert_eq!(faults.visited.lock().unwrap()[1], MetadataRange { partition: 0, from: 0, to: 4 });
    // Meanwhile the old one is read and written, and events of the new one come.
    assert_eq!(answers(&manager, &old), before);
    within("a write", manager.add_remote_log_segment_metadata(started(&old, 3, 100..=199), soon()))
        .await
        .unwrap();
    append(&topic, 0, update(&new, 2, 2));
    append(&topic, 0, update(&old, 3, 1));
    caught_up(&manager, |_| 7).await;
    assert_eq!(readable(&manager, &old, &[50, 150]), [Some(1), Some(3)]);
    assert!(!manager.is_ready(&new));
    let error = manager.list_remote_log_segments(&new).unwrap_err();
    assert_eq!(error.kafka_exception(), "ReplicaNotAvailableException");
    faults.ranges.send_replace(true);
    manager.wait_until_ready(&new, soon()).await.unwrap();
    assert_eq!(faults.visited.lock().unwrap().len(), 2, "nothing is read a third time");
    let fresh = serving(topic.open(), config(), &[old.clone(), new.clone()]).await;
    for tp in [&old, &new] {
        assert_eq!(answers(&manager, tp), answers(&fresh, tp));
    }
}

#[tokio::test]
async fn more_events_than_are_kept_during_a_replay_are_read_in_another_round() {
    let topic = topic(1);
    let (old, new) = (orders(0), orders(1));
    append_copied(&topic, &new, 1, 0..=9);
    let log = FaultyLog::new(&topic);
    let faults = log.faults.clone();
    let manager = serving(log, config(), std::slice::from_ref(&old)).await;
    faults.ranges.send_replace(false);
    manager.on_partition_leadership_changes(std::slice::from_ref(&new), &[]).unwrap();
    until("the replay has begun", || faults.visited.lock().unwrap().len() == 2).await;
    for segment in 2..2502 {
        let begin = i64::try_from(segment).unwrap() * 10;
        append_copied(&topic, &new, segment, begin..=begin + 9);
    }
    caught_up(&manager, |_| 5002).await;
    faults.ranges.send_replace(true);
    manager.wait_until_ready(&new, soon()).await.unwrap();
    assert_eq!(
        faults.visited.lock().unwrap()[2..],
        [MetadataRange { partition: 0, from: 2, to: 5002 }],
        "what was too much to be kept, and nothing else"
    );
    append_copied(&topic, &new, 9999, 90_000..=90_009);
    caught_up(&manager, |_| 5004).await;
    let fresh = serving(topic.open(), config(), std::slice::from_ref(&new)).await;
    assert_eq!(answers(&manager, &new), answers(&fresh, &new));
    assert_eq!(readable(&manager, &new, &[5, 25_015, 90_001]), [Some(1), Some(2501), Some(9999)]);
}

#[tokio::test]
async fn only_metadata_partitions_that_are_needed_are_read_and_nothing_is_kept_of_those_that_are_not() {
    let topic = topic(50);
    let partitions: Vec<_> = (0..3).map(orders).collect();
    let homes: Vec<_> = partitions.iter().map(|tp| home(&topic, tp)).collect();
    assert!(homes[0] != homes[1] && homes[1] != homes[2] && homes[0] != homes[2], "{homes:?}");
    let manager = serving(topic.open(), config(), &partitions[..2]).await;
    let read = |manager: &crate::support::Manager| -> Vec<i32> {
        manager.status().iter().map(|s| s.partition).collect()
    };
    let mut expected = homes[..2].to_vec();
    expected.sort_unstable();
    assert_eq!(read(&manager), expected);
    manager.on_stop_partitions(&partitions[..1]);
    assert_eq!(read(&manager), [homes[1]]);
    let error = manager.list_remote_log_segments(&partitions[0]).unwrap_err();
    assert_eq!(error.kafka_exception(), "RemoteResourceNotFoundException");
    assert!(!manager.is_ready(&partitions[0]));
    // What comes meanwhile is read when it is served again.
    append_copied(&topic, &partitions[0], 1, 0..=99);
    serve(&manager, &partitions).await;
    assert_eq!(readable(&manager, &partitions[0], &[7]), [Some(1)]);
    // Stopping what is not served, and serving what is, changes nothing.
    manager.on_stop_partitions(&[orders(9)]);
    serve(&manager, &partitions).await;
    assert_eq!(manager.status().iter().map(|status| status.user_partitions).sum::<usize>(), 3);
}

#[tokio::test]
async fn a_partition_that_is_stopped_and_served_again_at_once_has_every_event_once() {
    let topic = topic(1);
    let tp = orders(0);
    let manager = serving(topic.open(), config(), &[orders(1)]).await;
    for turn in 0..100_u64 {
        let begin = i64::try_from(turn).unwrap() * 10;
        append_copied(&topic, &tp, turn, begin..=begin + 9);
        manager.on_partition_leadership_changes(std::slice::from_ref(&tp), &[]).unwrap();
        append(&topic, 0, update(&tp, turn / 2, 2));
        manager.on_stop_partitions(std::slice::from_ref(&tp));
        manager.on_partition_leadership_changes(&[], std::slice::from_ref(&tp)).unwrap();
        if turn % 7 == 0 {
            manager.wait_until_ready(&tp, soon()).await.unwrap();
        }
        if turn % 11 == 0 {
            manager.on_stop_partitions(&[tp.clone(), orders(1)]);
        }
    }
    serve(&manager, std::slice::from_ref(&tp)).await;
    caught_up(&manager, |_| 300).await;
    let fresh = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(answers(&manager, &tp), answers(&fresh, &tp));
    assert_eq!(manager.list_remote_log_segments(&tp).unwrap().len(), 100);
}

#[tokio::test]
async fn the_partition_count_is_that_of_the_log_and_the_name_is_part_of_a_partition() {
    let tp = orders(0);
    for (count, home) in [(5, 2), (50, 32)] {
        assert_eq!(start(&topic(count)).metadata_partition(&tp), home, "{count} partitions");
    }
    let topic = topic(5);
    let renamed = TopicIdPartition { topic: "order".into(), ..orders(0) };
    append_copied(&topic, &renamed, 1, 0..=99);
    let manager = serving(topic.open(), config(), &[tp.clone(), renamed.clone()]).await;
    assert_eq!(readable(&manager, &tp, &[7]), [None]);
    assert_eq!(readable(&manager, &renamed, &[7]), [Some(1)]);
}

#[tokio::test]
async fn a_log_that_ends_with_a_marker_or_a_gap_gets_ready_all_the_same() {
    let topic = topic(1);
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=99);
    topic.append(0, InProcessRecord { control: true, transactional: true, ..InProcessRecord::default() });
    topic.skip_offsets(0, 5);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(status_of(&manager, 0).next_offset, Some(8));
    topic.skip_offsets(0, 1);
    caught_up(&manager, |_| 9).await;
    add(&manager, started(&tp, 2, 100..=199)).await.unwrap();
    assert_eq!(readable(&manager, &tp, &[7]), [Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_metadata_partition_that_cannot_be_read_is_tried_again_and_holds_up_no_other() {
    let topic = topic(50);
    let (good, bad, slow) = (orders(0), orders(1), orders(2));
    for tp in [&good, &bad, &slow] {
        append_copied(&topic, tp, 1, 0..=99);
    }
    let log = FaultyLog::new(&topic);
    log.fail_marks(home(&topic, &bad), 50);
    log.fail_ranges(home(&topic, &slow), 1);
    let manager = TopicBasedRemoteLogMetadataManager::start(log, config()).unwrap();
    manager
        .on_partition_leadership_changes(&[good.clone(), bad.clone()], std::slice::from_ref(&slow))
        .unwrap();
    manager.wait_until_ready(&good, soon()).await.unwrap();
    assert_eq!(readable(&manager, &good, &[7]), [Some(1)]);
    until("what hinders is told", || status_of(&manager, home(&topic, &bad)).hindrance.is_some()).await;
    assert!(!manager.is_ready(&bad));
    for tp in [&slow, &bad] {
        manager.wait_until_ready(tp, soon()).await.unwrap();
        assert_eq!(readable(&manager, tp, &[7]), [Some(1)], "{tp:?}");
    }
    until("nothing hinders any more", || manager.status().iter().all(|status| status.hindrance.is_none()))
        .await;
}

#[tokio::test]
async fn a_reading_that_is_refused_for_a_while_answers_as_it_stood_and_then_goes_on() {
    let topic = topic(1);
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=99);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    for turn in 0..3 {
        topic.set_readable(false);
        until("the stop is told", || status_of(&manager, 0).stopped.is_some()).await;
        let told = status_of(&manager, 0).stopped.unwrap().to_string();
        assert_eq!(told, "no right to read metadata partition 0: READ on the metadata topic is missing");
        let begin = (turn + 1) * 100;
        append_copied(&topic, &tp, u64::try_from(turn).unwrap() + 2, begin..=begin + 99);
        assert_eq!(readable(&manager, &tp, &[50, begin]), [Some(1), None]);
        // A partition that begins now waits for the right as well, and says so.
        manager.on_partition_leadership_changes(&[orders(1)], &[]).unwrap();
        until("what hinders is told", || status_of(&manager, 0).hindrance.is_some()).await;
        topic.set_readable(true);
        caught_up(&manager, |_| 2 * (turn + 2)).await;
        manager.wait_until_ready(&orders(1), soon()).await.unwrap();
        manager.on_stop_partitions(&[orders(1)]);
        let status = status_of(&manager, 0);
        assert!(status.stopped.is_none(), "{status:?}");
        assert_eq!(readable(&manager, &tp, &[50, begin]), [Some(1), Some(u64::try_from(turn).unwrap() + 2)]);
    }
    let fresh = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(answers(&manager, &tp), answers(&fresh, &tp));
}

#[tokio::test]
async fn closing_ends_everything_and_the_log_stays_open() {
    let topic = topic(1);
    let log = FaultyLog::new(&topic);
    log.faults.ranges.send_replace(false);
    append_copied(&topic, &orders(0), 1, 0..=99);
    let manager =
        std::sync::Arc::new(TopicBasedRemoteLogMetadataManager::start(log.clone(), config()).unwrap());
    manager.on_partition_leadership_changes(&[orders(0)], &[]).unwrap();
    let waiting = {
        let manager = std::sync::Arc::clone(&manager);
        tokio::spawn(async move { manager.wait_until_ready(&orders(0), soon()).await })
    };
    until("the replay has begun", || !log.faults.visited.lock().unwrap().is_empty()).await;
    within("the close", manager.close()).await;
    assert!(within("the one that waits", waiting).await.unwrap().is_err());
    assert!(manager.status().is_empty());
    assert!(manager.list_remote_log_segments(&orders(0)).is_err());
    within("a second close", manager.close()).await;
    log.publish(0, "still open".into(), soon()).await.unwrap();
}

#[tokio::test]
async fn a_dropped_manager_ends_its_tasks() {
    let topic = topic(1);
    let log = FaultyLog::new(&topic);
    let faults = std::sync::Arc::downgrade(&log.faults);
    drop(serving(log, config(), &[orders(0)]).await);
    until("nothing holds the log any more", || faults.strong_count() == 0).await;
}

#[tokio::test]
async fn the_endless_search_for_a_transaction_index_ends() {
    let topic = topic(1);
    let tp = orders(0);
    let epochs = [EpochEntry { epoch: 0, start_offset: 0 }, EpochEntry { epoch: 1, start_offset: 1000 }];
    let endless = RawSegmentMetadata {
        segment_leader_epochs: epochs.into_iter().collect(),
        txn_index_empty: true,
        ..started(&tp, 1, 0..=10)
    };
    append(&topic, 0, endless);
    append(&topic, 0, update(&tp, 1, 1));
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(manager.highest_offset_for_epoch(&tp, 0).unwrap(), Some(999));
    assert_eq!(readable(&manager, &tp, &[500]), [Some(1)]);
    assert_eq!(manager.next_segment_with_txn_index(&tp, 0, 5).unwrap(), None);
}

#[tokio::test]
async fn what_kafka_hides_is_found_under_names_of_its_own() {
    let topic = topic(1);
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=100);
    append_copied(&topic, &tp, 2, 0..=50);
    append_copied(&topic, &tp, 3, 200..=300);
    append_copied(&topic, &tp, 4, 240..=260);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(readable(&manager, &tp, &[20, 70, 270]), [Some(2), None, None], "as Kafka's");
    let any = |offset| manager.any_remote_log_segment_metadata(&tp, 0, offset).unwrap().as_ref().map(number);
    assert_eq!([any(20), any(70), any(270), any(150)], [Some(2), Some(1), Some(3), None]);
    let orphans = manager.list_orphaned_segments(&tp, 0).unwrap();
    assert_eq!(orphans.iter().map(number).collect::<Vec<_>>(), [1]);
    assert!(manager.list_orphaned_segments(&tp, 1).unwrap().is_empty());
    // Once it is being deleted it is nothing to be read from.
    append(&topic, 0, update(&tp, 1, 2));
    caught_up(&manager, |_| 9).await;
    assert_eq!(any_of(&manager, &tp, 70), None);
}

fn any_of(manager: &crate::support::Manager, tp: &TopicIdPartition, offset: i64) -> Option<u64> {
    manager.any_remote_log_segment_metadata(tp, 0, offset).unwrap().as_ref().map(number)
}

#[tokio::test]
async fn the_deletion_of_a_partition_by_another_broker_ends_it_here_too() {
    let topic = topic(1);
    let (gone, stays) = (orders(0), orders(1));
    for tp in [&gone, &stays] {
        append_copied(&topic, tp, 1, 0..=99);
    }
    let manager = serving(topic.open(), config(), &[gone.clone(), stays.clone()]).await;
    append(&topic, 0, partition_delete(&gone, 2));
    // In Kafka this one ends the reading of every broker that holds the partition.
    append(&topic, 0, update(&gone, 1, 2));
    append_copied(&topic, &stays, 2, 100..=199);
    caught_up(&manager, |_| 8).await;
    until("it is forgotten", || manager.list_remote_log_segments(&gone).is_err()).await;
    assert_eq!(readable(&manager, &stays, &[50, 150]), [Some(1), Some(2)]);
}

//! Starting from snapshots.

use std::num::NonZeroU64;
use std::time::Duration;

use strandline_log::{InProcessMetadataTopic, MetadataRange};
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, SnapshotConfig, StartError,
    TopicBasedRemoteLogMetadataManager,
};

use crate::faulty::FaultyLog;
use crate::support::{
    answers, append, append_copied, caught_up, config, config_with_snapshots, home, orders, readable, serve,
    serving, started, status_of, update, within,
};

#[tokio::test]
async fn a_restart_reads_what_came_since_the_snapshot_and_nothing_else() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    let partitions = [orders(0), orders(1)];
    for segment in 0..500 {
        let begin = i64::try_from(segment).unwrap() * 10;
        append_copied(&topic, &partitions[0], segment, begin..=begin + 9);
        append_copied(&topic, &partitions[1], segment, begin..=begin + 9);
    }
    append(&topic, 0, update(&partitions[0], 3, 2));
    append(&topic, 0, started(&partitions[0], 1000, 7..=9));
    serving(topic.open(), config_with_snapshots(dir.path()), &partitions).await.close().await;
    for _ in 0..3 {
        append(&topic, 0, update(&partitions[1], 3, 2));
        let log = FaultyLog::new(&topic);
        let faults = log.faults.clone();
        let manager = serving(log, config_with_snapshots(dir.path()), &partitions).await;
        let [MetadataRange { from, to, .. }] = faults.visited.lock().unwrap()[..] else {
            panic!("one range")
        };
        assert_eq!(to - from, 2, "the new event, and the last known one, by which the log is known again");
        let fresh = serving(topic.open(), config(), &partitions).await;
        for tp in &partitions {
            assert_eq!(answers(&manager, tp), answers(&fresh, tp));
        }
        manager.close().await;
    }
}

#[tokio::test]
async fn a_partition_that_the_snapshot_does_not_know_is_read_from_the_start_beside_it() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    for partition in 0..2 {
        append_copied(&topic, &orders(partition), 1, 0..=99);
    }
    serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await.close().await;
    append_copied(&topic, &orders(0), 2, 100..=199);
    let partitions = [orders(0), orders(1)];
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &partitions).await;
    assert_eq!(readable(&manager, &orders(0), &[50, 150]), [Some(1), Some(2)]);
    assert_eq!(readable(&manager, &orders(1), &[50, 150]), [Some(1), None]);
    assert_eq!(status_of(&manager, 0).snapshot_discarded, None);
    manager.close().await;
    // The next one knows both; one that is not wanted any more is passed over.
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(1)]).await;
    assert_eq!(readable(&manager, &orders(1), &[50, 150]), [Some(1), None]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_written_when_enough_came_or_enough_time_went_by_and_only_where_something_did() {
    let topic = InProcessMetadataTopic::with_partitions(50);
    let dir = tempfile::tempdir().unwrap();
    let snapshots = SnapshotConfig {
        records: NonZeroU64::new(100).unwrap(),
        check_interval: Duration::from_secs(1),
        interval: Duration::from_secs(600),
        ..SnapshotConfig::new(dir.path())
    };
    let config = RemoteLogMetadataManagerConfig { snapshots: Some(snapshots), ..config() };
    let partitions = [orders(0), orders(1)];
    let manager = serving(topic.open(), config, &partitions).await;
    let files = || -> Vec<String> {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".snapshot"));
        names.sort();
        names
    };
    let name = |tp| format!("remote-log-metadata-{}.snapshot", home(&topic, tp));
    for segment in 0..60 {
        append_copied(&topic, &partitions[0], segment, 0..=9);
    }
    append_copied(&topic, &partitions[1], 1, 0..=9);
    within("the first snapshot", async {
        while files().is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(files(), [name(&partitions[0])], "the other one is not worth it yet");
    tokio::time::timeout(Duration::from_secs(700), async {
        while files().len() < 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .unwrap();
    drop(manager);
}

#[tokio::test]
async fn two_managers_do_not_share_a_snapshot_directory() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    let first = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
    let second = TopicBasedRemoteLogMetadataManager::start(topic.open(), config_with_snapshots(dir.path()));
    let error = second.unwrap_err();
    assert!(matches!(error, StartError::SnapshotDirInUse { .. }), "{error}");
    first.close().await;
    drop(first);
    serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error =
        TopicBasedRemoteLogMetadataManager::start(topic.open(), config_with_snapshots(&file)).unwrap_err();
    assert!(matches!(error, StartError::SnapshotDir { .. }), "{error}");
}

#[tokio::test]
async fn a_snapshot_that_was_being_written_when_the_process_died_is_no_matter() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    append_copied(&topic, &orders(0), 1, 0..=99);
    serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await.close().await;
    std::fs::write(dir.path().join("remote-log-metadata-0.snapshot.new"), "half").unwrap();
    append_copied(&topic, &orders(0), 2, 100..=199);
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
    assert_eq!(readable(&manager, &orders(0), &[50, 150]), [Some(1), Some(2)]);
    assert_eq!(status_of(&manager, 0).snapshot_discarded, None);
}

#[tokio::test]
async fn a_snapshot_that_cannot_take_its_place_leaves_nothing_behind() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("remote-log-metadata-0.snapshot")).unwrap();
    append_copied(&topic, &orders(0), 1, 0..=99);
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
    assert_eq!(readable(&manager, &orders(0), &[50]), [Some(1)]);
    let reason = status_of(&manager, 0).snapshot_discarded.unwrap();
    assert!(reason.starts_with("the file cannot be read: "), "{reason}");
    manager.close().await;
    assert!(!dir.path().join("remote-log-metadata-0.snapshot.new").exists());
}

#[tokio::test]
async fn a_damaged_snapshot_is_not_used_and_the_next_one_takes_its_place() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    append_copied(&topic, &orders(0), 1, 0..=99);
    serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await.close().await;
    let path = dir.path().join("remote-log-metadata-0.snapshot");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
    assert_eq!(readable(&manager, &orders(0), &[50]), [Some(1)]);
    let reason = status_of(&manager, 0).snapshot_discarded.unwrap();
    assert!(reason.starts_with("the checksum at byte "), "{reason}");
    manager.close().await;
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
    assert_eq!(status_of(&manager, 0).snapshot_discarded, None);
}

#[tokio::test]
async fn a_snapshot_knows_nothing_of_a_partition_that_left_and_came_back_that_the_log_does_not() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    append_copied(&topic, &orders(0), 1, 0..=99);
    serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0), orders(1)]).await.close().await;
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(1)]).await;
    append_copied(&topic, &orders(0), 2, 100..=199);
    caught_up(&manager, |_| 4).await;
    serve(&manager, &[orders(0)]).await;
    assert_eq!(readable(&manager, &orders(0), &[50, 150]), [Some(1), Some(2)]);
}

/// Events of two partitions in turn, with a snapshot after each turn; what is in the directory afterwards, and what it leads to.
#[tokio::test]
async fn a_snapshot_grows_by_what_changed_and_is_written_anew_before_it_is_twice_too_long() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("remote-log-metadata-0.snapshot");
    let partitions = [orders(0), orders(1)];
    for segment in 0..200 {
        let begin = i64::try_from(segment).unwrap() * 10;
        append_copied(&topic, &partitions[0], segment, begin..=begin + 9);
    }
    let manager = serving(topic.open(), after_each_event(dir.path()), &partitions).await;
    let length = || std::fs::metadata(&path).map_or(0, |file| file.len());
    let changes = async |before: u64| {
        within("the next snapshot", async {
            while length() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        length()
    };
    let whole = changes(0).await;
    let (mut lengths, mut inode) = (vec![whole], inode_of(&path));
    let mut written_anew = 0;
    for segment in 0..60 {
        let begin = i64::try_from(segment).unwrap() * 10;
        append_copied(&topic, &partitions[1], segment, begin..=begin + 9);
        caught_up(&manager, |_| 400 + 2 * (i64::try_from(segment).unwrap() + 1)).await;
        lengths.push(changes(*lengths.last().unwrap()).await);
        written_anew += usize::from(std::mem::replace(&mut inode, inode_of(&path)) != inode);
        // A crash at this moment: a copy of the directory is all that is left.
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(&path, copy.path().join("remote-log-metadata-0.snapshot")).unwrap();
        let restarted = serving(topic.open(), config_with_snapshots(copy.path()), &partitions).await;
        for tp in &partitions {
            assert_eq!(answers(&restarted, tp), answers(&manager, tp), "segment {segment}");
        }
        assert_eq!(status_of(&restarted, 0).snapshot_discarded, None);
    }
    assert!((1..20).contains(&written_anew), "{written_anew} times: {lengths:?}");
    assert!(lengths[1] < whole + whole / 10, "the first change took {} of {whole}", lengths[1] - whole);
    assert!(lengths.iter().all(|&length| length < 3 * whole), "{lengths:?}");
    manager.close().await;
}

/// A snapshot as soon as anything has happened.
fn after_each_event(dir: &std::path::Path) -> RemoteLogMetadataManagerConfig {
    let snapshots = SnapshotConfig {
        records: NonZeroU64::MIN,
        check_interval: Duration::from_millis(1),
        ..SnapshotConfig::new(dir)
    };
    RemoteLogMetadataManagerConfig { snapshots: Some(snapshots), ..config() }
}

fn inode_of(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).unwrap().ino()
}

#[tokio::test]
async fn a_partition_that_leaves_is_forgotten_by_the_snapshot_that_follows() {
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    let partitions = [orders(0), orders(1)];
    for tp in &partitions {
        append_copied(&topic, tp, 1, 0..=99);
    }
    let manager = serving(topic.open(), after_each_event(dir.path()), &partitions).await;
    within("the first snapshot", async {
        while status_of(&manager, 0).snapshot_discarded.is_some()
            || !dir.path().join("remote-log-metadata-0.snapshot").exists()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    // It leaves, misses an event, and comes back after the next snapshot: what the file says of it must not reach beyond.
    manager.on_stop_partitions(&[orders(0)]);
    append_copied(&topic, &orders(0), 2, 100..=199);
    append_copied(&topic, &orders(1), 2, 100..=199);
    caught_up(&manager, |_| 8).await;
    manager.close().await;
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), &partitions).await;
    for tp in &partitions {
        assert_eq!(readable(&manager, tp, &[50, 150]), [Some(1), Some(2)]);
    }
}

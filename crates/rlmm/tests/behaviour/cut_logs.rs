//! Logs that lose their beginning or their end under the manager.

use std::path::Path;

use strandline_log::{InProcessMetadataTopic, MetadataLogIdentity};
use strandline_rlmm::RemoteLogMetadataManager as _;

use crate::faulty::FaultyLog;
use crate::support::{
    Manager, answers, append_copied, caught_up, config, config_with_snapshots, orders, readable, serving,
    soon, status_of, until, within,
};

fn topic() -> InProcessMetadataTopic {
    InProcessMetadataTopic::with_partitions(1)
}

/// A manager that has read four events, and left a snapshot.
async fn snapshot_of_two_segments(topic: &InProcessMetadataTopic, dir: &Path) {
    let tp = orders(0);
    append_copied(topic, &tp, 1, 0..=99);
    append_copied(topic, &tp, 2, 100..=199);
    let manager = serving(topic.open(), config_with_snapshots(dir), std::slice::from_ref(&tp)).await;
    manager.close().await;
}

async fn restarted(topic: &InProcessMetadataTopic, dir: &Path) -> (Manager, Option<String>) {
    let manager = serving(topic.open(), config_with_snapshots(dir), &[orders(0)]).await;
    let fresh = serving(topic.open(), config(), &[orders(0)]).await;
    assert_eq!(answers(&manager, &orders(0)), answers(&fresh, &orders(0)));
    let discarded = status_of(&manager, 0).snapshot_discarded;
    (manager, discarded)
}

#[tokio::test]
async fn a_log_cut_under_a_running_manager_is_read_anew() {
    let topic = topic();
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=99);
    append_copied(&topic, &tp, 2, 100..=199);
    let manager = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(readable(&manager, &tp, &[50, 150]), [Some(1), Some(2)]);
    topic.truncate(0, 2);
    append_copied(&topic, &tp, 3, 100..=149);
    // Beyond what was there before, too.
    append_copied(&topic, &tp, 4, 150..=199);
    let look_up = |offset| manager.remote_log_segment_metadata(&tp, 0, offset);
    until(
        "it is read anew",
        || matches!(look_up(160), Ok(Some(segment)) if crate::support::number(&segment) == 4),
    )
    .await;
    assert_eq!(readable(&manager, &tp, &[50, 120, 160]), [Some(1), Some(3), Some(4)]);
    let fresh = serving(topic.open(), config(), std::slice::from_ref(&tp)).await;
    assert_eq!(answers(&manager, &tp), answers(&fresh, &tp));
}

#[tokio::test]
async fn a_log_whose_start_passes_what_is_not_read_yet_is_read_from_there() {
    let topic = topic();
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=99);
    append_copied(&topic, &tp, 2, 100..=199);
    let log = FaultyLog::new(&topic);
    let faults = log.faults.clone();
    faults.ranges.send_replace(false);
    let manager = strandline_rlmm::TopicBasedRemoteLogMetadataManager::start(log, config()).unwrap();
    manager.on_partition_leadership_changes(std::slice::from_ref(&tp), &[]).unwrap();
    until("the replay has begun", || faults.visited.lock().unwrap().len() == 1).await;
    topic.advance_log_start(0, 2);
    faults.ranges.send_replace(true);
    within("the replay", manager.wait_until_ready(&tp, soon())).await.unwrap();
    assert_eq!(readable(&manager, &tp, &[50, 150]), [None, Some(2)], "as a broker that starts now");
}

#[tokio::test]
async fn a_log_cut_during_a_replay_is_read_anew() {
    let topic = topic();
    let tp = orders(0);
    append_copied(&topic, &tp, 1, 0..=99);
    append_copied(&topic, &tp, 2, 100..=199);
    let log = FaultyLog::new(&topic);
    let faults = log.faults.clone();
    faults.ranges.send_replace(false);
    let manager = strandline_rlmm::TopicBasedRemoteLogMetadataManager::start(log, config()).unwrap();
    manager.on_partition_leadership_changes(std::slice::from_ref(&tp), &[]).unwrap();
    until("the replay has begun", || faults.visited.lock().unwrap().len() == 1).await;
    topic.truncate(0, 1);
    faults.ranges.send_replace(true);
    within("the replay", manager.wait_until_ready(&tp, soon())).await.unwrap();
    caught_up(&manager, |_| 1).await;
    assert_eq!(readable(&manager, &tp, &[50, 150]), [None, None]);
    assert_eq!(manager.list_remote_log_segments(&tp).unwrap().len(), 1);
}

#[tokio::test]
async fn a_snapshot_of_a_log_that_was_cut_meanwhile_is_not_used() {
    let tp = orders(0);
    let (topic, dir) = (topic(), tempfile::tempdir().unwrap());
    snapshot_of_two_segments(&topic, dir.path()).await;
    topic.truncate(0, 2);
    let (manager, discarded) = restarted(&topic, dir.path()).await;
    assert_eq!(discarded.unwrap(), "the snapshot reaches to offset 4, and the log ends at 2");
    manager.close().await;
    // Cut, and as long as before again: only its last record shows it.
    let (topic, dir) = (self::topic(), tempfile::tempdir().unwrap());
    snapshot_of_two_segments(&topic, dir.path()).await;
    topic.truncate(0, 2);
    append_copied(&topic, &tp, 3, 100..=149);
    append_copied(&topic, &tp, 4, 150..=199);
    let (manager, discarded) = restarted(&topic, dir.path()).await;
    let expected = "the log holds another record at offset 3, or none, than when the snapshot was written";
    assert_eq!(discarded.unwrap(), expected);
    assert_eq!(readable(&manager, &tp, &[50, 120, 160]), [Some(1), Some(3), Some(4)]);
}

#[tokio::test]
async fn a_snapshot_whose_last_record_is_missing_from_the_log_is_not_used() {
    let (topic, dir) = (topic(), tempfile::tempdir().unwrap());
    snapshot_of_two_segments(&topic, dir.path()).await;
    topic.truncate(0, 3);
    topic.skip_offsets(0, 4);
    let (manager, discarded) = restarted(&topic, dir.path()).await;
    let expected = "the log holds another record at offset 3, or none, than when the snapshot was written";
    assert_eq!(discarded.unwrap(), expected);
    assert_eq!(readable(&manager, &orders(0), &[50, 150]), [Some(1), None]);
}

#[tokio::test]
async fn a_snapshot_that_retention_has_overtaken_is_not_used() {
    let tp = orders(0);
    let (topic, dir) = (topic(), tempfile::tempdir().unwrap());
    snapshot_of_two_segments(&topic, dir.path()).await;
    // Up to what the snapshot knows it is still of use.
    topic.advance_log_start(0, 4);
    let manager = serving(topic.open(), config_with_snapshots(dir.path()), std::slice::from_ref(&tp)).await;
    assert_eq!(status_of(&manager, 0).snapshot_discarded, None);
    assert_eq!(readable(&manager, &tp, &[50, 150]), [Some(1), Some(2)]);
    manager.close().await;
    append_copied(&topic, &tp, 3, 200..=299);
    topic.advance_log_start(0, 5);
    let (_, discarded) = restarted(&topic, dir.path()).await;
    assert_eq!(discarded.unwrap(), "the log begins at offset 5, behind what the snapshot knows");
}

#[tokio::test]
async fn a_snapshot_of_another_log_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let topic = topic();
    snapshot_of_two_segments(&topic, dir.path()).await;
    let identity = topic.identity().clone();
    let others = [
        (
            MetadataLogIdentity { cluster_id: Some("another".into()), ..identity.clone() },
            "topic nM8pU2dTQoq0XzWk1sRy5A of 1 partitions in cluster another",
        ),
        (
            MetadataLogIdentity { topic_id: None, ..identity.clone() },
            "topic without an id of 1 partitions in cluster in-process",
        ),
        (
            // The same metadata partition, since its number is 0 in each.
            MetadataLogIdentity { partition_count: 2, ..identity },
            "topic nM8pU2dTQoq0XzWk1sRy5A of 2 partitions in cluster in-process",
        ),
    ];
    for (identity, here) in others {
        let topic = InProcessMetadataTopic::new(identity);
        let in_zero = (0..).map(orders).find(|tp| crate::support::home(&topic, tp) == 0).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let name = "remote-log-metadata-0.snapshot";
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        let manager =
            serving(topic.open(), config_with_snapshots(copy.path()), std::slice::from_ref(&in_zero)).await;
        assert!(manager.list_remote_log_segments(&in_zero).unwrap().is_empty());
        assert_eq!(
            status_of(&manager, 0).snapshot_discarded.unwrap(),
            format!(
                "the snapshot is of topic nM8pU2dTQoq0XzWk1sRy5A of 1 partitions in cluster in-process, and the log is {here}"
            )
        );
    }
}

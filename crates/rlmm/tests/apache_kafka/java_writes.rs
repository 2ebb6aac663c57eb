//! Brokers copy, delete by retention, lead in turns, and delete a whole topic; the manager reads what they write.

use anyhow::{Context as _, ensure};
use strandline_log::METADATA_TOPIC;
use strandline_meta::Cluster;
use strandline_rlmm::{RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, SnapshotConfig};
use strandline_testkit::apache::ApacheKafka;
use tokio::task::block_in_place;

use crate::agreement::Told;
use crate::topic::{
    Manager, create_tiered, delete, log, move_leaders, partitions, serving, until, while_nobody_writes,
};

/// Segments of the one are deleted by retention, the other is deleted as a whole.
const TIERED: [(&str, i32); 2] = [("orders", 3), ("gone", 2)];
/// The topic whose segments retention deletes.
pub(crate) const WITH_RETENTION: &str = "orders";
const RETENTION: &[(&str, &str)] = &[("retention.bytes", "6291456")];

pub(crate) async fn a_tier_under_load(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    let mut served = Vec::new();
    for ((topic, count), configs) in TIERED.into_iter().zip([RETENTION, &[]]) {
        create_tiered(cluster, topic, count, configs).await?;
        served.extend(partitions(cluster, topic).await?);
    }
    let dir = tempfile::tempdir()?;
    let with_snapshots = || RemoteLogMetadataManagerConfig {
        snapshots: Some(SnapshotConfig::new(dir.path())),
        ..RemoteLogMetadataManagerConfig::default()
    };
    // One that is there from the start, and one that begins then, and goes on later from its snapshot.
    let log = log(cluster).await?;
    let manager = serving(log.clone(), RemoteLogMetadataManagerConfig::default(), &served).await?;
    let early = serving(log.clone(), with_snapshots(), &served).await?;
    block_in_place(|| kafka.produce("gone", 8_000, 500))?;
    for _epoch in 0..2 {
        block_in_place(|| kafka.produce("orders", 40_000, 500))?;
        move_leaders(kafka, 1, &["orders", "gone", METADATA_TOPIC])?;
    }
    early.close().await;
    for (topic, _) in TIERED {
        block_in_place(|| kafka.wait_until_copied(topic))?;
    }
    let gone = || served.iter().filter(|partition| partition.topic == "gone");
    for partition in gone() {
        ensure!(
            !manager.list_remote_log_segments(partition)?.is_empty(),
            "nothing of {partition:?} was copied"
        );
    }
    delete(cluster, "gone").await?;
    until("the segments of the deleted topic are deleted", || {
        let mut left = 0;
        for partition in gone() {
            left += manager.list_remote_log_segments(partition)?.len();
        }
        Ok(left == 0)
    })
    .await?;
    while_nobody_writes(kafka, async || {
        let told = Told::by_java(kafka)?;
        for partition in &served {
            ensure!(told.partitions().contains(partition), "{partition:?} has no events");
        }
        told.hold_against(&manager).await.context("a manager that followed everything")?;
        let late = Manager::start(log.clone(), RemoteLogMetadataManagerConfig::default())?;
        told.hold_against(&late).await.context("a manager that comes later")?;
        late.close().await;
        let restarted = Manager::start(log.clone(), with_snapshots())?;
        told.hold_against(&restarted).await.context("a manager that starts again")?;
        let discarded: Vec<_> =
            restarted.status().into_iter().filter_map(|status| status.snapshot_discarded).collect();
        ensure!(discarded.is_empty(), "snapshots were not used: {discarded:?}");
        restarted.close().await;
        Ok(())
    })
    .await?;
    for partition in served.iter().filter(|partition| partition.topic == "orders") {
        let segments = manager.list_remote_log_segments(partition)?;
        ensure!(segments.len() > 2, "{partition:?} keeps {} segments", segments.len());
        ensure!(segments.iter().all(|segment| segment.start_offset() > 0), "retention has deleted some");
        let epochs = manager.with_index(partition, |index| index.leader_epochs().count())?;
        ensure!(kafka.brokers() == 1 || epochs > 1, "leaders have moved");
    }
    manager.close().await;
    Ok(())
}

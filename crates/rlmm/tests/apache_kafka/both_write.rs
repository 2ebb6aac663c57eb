//! A manager and the brokers write to the metadata topic at the same time, while its leaders move, a broker is killed and
//! comes back: in the end everything stands in the log that was acknowledged, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use strandline_log::{FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig, METADATA_TOPIC};
use strandline_meta::Cluster;
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, SnapshotConfig, Written,
};
use strandline_testkit::apache::ApacheKafka;
use strandline_tier::RawEvent;
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::agreement::Told;
use crate::history::History;
use crate::soon;
use crate::topic::{
    Manager, create_tiered, events, log, move_leaders, partitions, serving, while_nobody_writes,
};
use crate::we_write::{same, unknown_to_brokers, write};

/// Once through everything that happens, unless this many seconds are asked for.
const SECONDS: &str = "STRANDLINE_BOTH_WRITE_SECONDS";
/// A writer's pause, so that it has something to write all the time and not too much of it.
const PAUSE: Duration = Duration::from_millis(50);
const WRITERS: usize = 4;
const SEED: u64 = 100;
/// Any but the first, whom the waits ask.
const VICTIM: usize = 3;

pub(crate) async fn while_leaders_move_and_a_broker_dies(
    kafka: &ApacheKafka,
    cluster: &Cluster,
) -> anyhow::Result<()> {
    let seconds = std::env::var(SECONDS).map_or(Ok(0), |seconds| seconds.parse())?;
    let end = Instant::now() + Duration::from_secs(seconds);
    create_tiered(cluster, "busy", 3, &[]).await?;
    let busy = partitions(cluster, "busy").await?;
    let log = log(cluster).await?;
    let config = RemoteLogMetadataManagerConfig::default;
    let manager = Arc::new(serving(log.clone(), config(), &busy).await?);
    // No broker knows these partitions: whatever the log holds of them is ours.
    let unknown = unknown_to_brokers(&manager, &busy, WRITERS, SEED);
    manager.on_partition_leadership_changes(&unknown, &[])?;
    // Two more read along: one over the other kind of connections, one that is started again and again.
    let all = [&busy[..], &unknown].concat();
    let fetch_connections = FetchConnections::PerPartition;
    let per_partition = KafkaMetadataLogConfig { fetch_connections, ..KafkaMetadataLogConfig::default() };
    let per_partition = KafkaMetadataEventLog::start(cluster, per_partition, soon()).await?;
    let follower = serving(per_partition, config(), &all).await?;
    let dir = tempfile::tempdir()?;
    let with_snapshots = || RemoteLogMetadataManagerConfig {
        snapshots: Some(SnapshotConfig::new(dir.path())),
        ..RemoteLogMetadataManagerConfig::default()
    };

    let stop = Arc::<AtomicBool>::default();
    let writers: Vec<_> = (SEED..)
        .zip(&unknown)
        .map(|(seed, partition)| {
            let history = History::new(partition.clone(), seed);
            tokio::spawn(write_on(Arc::clone(&manager), history, Arc::clone(&stop)))
        })
        .collect();
    let topics = ["busy", METADATA_TOPIC];
    let turns: [&dyn Fn() -> anyhow::Result<()>; 4] = [
        &|| {
            block_in_place(|| kafka.produce("busy", 12_000, 500))?;
            move_leaders(kafka, 2, &topics)
        },
        &|| {
            block_in_place(|| {
                kafka.kill_broker(VICTIM)?;
                kafka.produce("busy", 12_000, 500)
            })
        },
        &|| {
            block_in_place(|| {
                kafka.start_broker(VICTIM)?;
                kafka.wait_until_ready()
            })
        },
        &|| move_leaders(kafka, 2, &topics),
    ];
    loop {
        for happens in turns {
            let restarted = serving(log.clone(), with_snapshots(), &all).await?;
            happens()?;
            restarted.close().await;
        }
        if Instant::now() >= end {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = BTreeMap::new();
    for writer in writers {
        let placed = writer.await??;
        ensure!(placed.len() > 20, "a writer wrote {} events only", placed.len());
        written.extend(placed);
    }
    block_in_place(|| kafka.wait_until_copied("busy"))?;
    while_nobody_writes(kafka, async || {
        let mut in_log = events(&log).await?;
        in_log.retain(|(.., event)| event.topic_id_partition().is_some_and(|about| unknown.contains(about)));
        let (there, told) = (in_log.len(), written.len());
        ensure!(there == told, "{told} events were acknowledged, {there} are there");
        for (partition, offset, there) in &in_log {
            let event = written.get(&(*partition, *offset));
            let event = event.with_context(|| format!("nobody wrote {there:?} at {partition}@{offset}"))?;
            ensure!(same(there, event), "{partition}@{offset} holds {there:?}\n  written: {event:?}");
        }
        let told = Told::by_java(kafka)?;
        told.hold_against(&manager).await.context("the manager that wrote")?;
        told.hold_against(&follower).await.context("a manager with a connection for each partition")?;
        let restarted = serving(log.clone(), with_snapshots(), &all).await?;
        told.hold_against(&restarted).await.context("a manager that starts again")?;
        restarted.close().await;
        Ok(())
    })
    .await?;
    follower.close().await;
    manager.close().await;
    Ok(())
}

/// Writes one event after the other. Every one is acknowledged and read back in the end, whatever befalls the brokers.
async fn write_on(
    manager: Arc<Manager>,
    mut history: History,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<BTreeMap<(i32, i64), RawEvent<'static>>> {
    let mut placed = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let event = history.next();
        let Written { metadata_partition, offset, .. } = write(&manager, event.clone()).await?;
        let before = placed.insert((metadata_partition, offset), event);
        ensure!(before.is_none(), "two events at {metadata_partition}@{offset}");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(placed)
}

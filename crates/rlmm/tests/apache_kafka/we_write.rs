//! The manager writes whatever it may into the topic that brokers read: Kafka's tools read it, Kafka's classes answer as we
//! do, and the brokers go on.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use strandline_meta::Cluster;
use strandline_rlmm::{
    PartitionHolders, RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicIdPartition,
    WriteError, WriteOutcome, Written,
};
use strandline_testkit::apache::ApacheKafka;
use strandline_testkit::random::Random;
use strandline_tier::{RawEvent, RawSegmentUpdate, RemotePartitionDeleteState};
use tokio::task::block_in_place;

use crate::agreement::Told;
use crate::history::{History, formatted};
use crate::topic::{
    Manager, Placed, brokers_copy_and_delete, create_tiered, events, log, partitions, serving,
    while_nobody_writes,
};
use crate::{java_writes, soon};

/// Events of each partition.
const EVENTS: usize = 60;
const SEED: u64 = 7;
/// What has to be among them, with the numbers of the states.
const KINDS: &[&str] = &[
    "a segment, applied",
    "a segment, nothing new",
    "a segment to 1, applied",
    "a segment to 1, dropped",
    "a segment to 2, applied",
    "a segment to 2, dropped",
    "a segment to 3, applied",
    "a segment to 3, nothing new",
    "a segment to 3, dropped",
    "a partition to 0, applied",
    "a partition to 1, applied",
    "a partition to 2, applied",
];
/// What the broker keeps of a partition for ever, so that it deletes nothing of what it did not copy.
const FOR_EVER: &[(&str, &str)] = &[("retention.ms", "-1"), ("retention.bytes", "-1")];

pub(crate) async fn everything_that_may_be_written(
    kafka: &ApacheKafka,
    cluster: &Cluster,
) -> anyhow::Result<()> {
    create_tiered(cluster, "ours", 3, FOR_EVER).await?;
    let held = partitions(cluster, "ours").await?;
    let orders = partitions(cluster, java_writes::WITH_RETENTION).await?;
    let log = log(cluster).await?;
    let config = RemoteLogMetadataManagerConfig::default;
    let manager = serving(log.clone(), config(), &[&held[..], &orders].concat()).await?;
    let unknown = unknown_to_brokers(&manager, &[&held[..], &orders].concat(), 2, SEED);
    manager.on_partition_leadership_changes(&unknown, &[])?;

    let lives = held.iter().chain(&unknown).zip(SEED..).map(|(partition, seed)| {
        let history = History::new(partition.clone(), seed);
        live(&manager, history, unknown.contains(partition))
    });
    let (written, kinds): (Vec<Placed>, BTreeSet<String>) =
        try_join_all(lives).await?.into_iter().flatten().unzip();
    for kind in KINDS {
        ensure!(kinds.contains(*kind), "no event is {kind}, only {kinds:?}");
    }
    while_nobody_writes(kafka, async || {
        // Each stands where we were told, and Kafka's formatter prints all as we read it.
        let in_log = events(&log).await?;
        for (partition, offset, event) in &written {
            let there = in_log.iter().find(|(at, place, _)| (at, place) == (partition, offset));
            let there = there.with_context(|| format!("nothing at {partition}@{offset}"))?;
            ensure!(same(&there.2, event), "{partition}@{offset} holds {there:?}\n  written: {event:?}");
        }
        let ours: BTreeSet<String> =
            in_log.iter().map(|(partition, offset, event)| formatted(*partition, *offset, event)).collect();
        let kafkas: BTreeSet<String> = block_in_place(|| kafka.formatted_events())?.into_iter().collect();
        let alone: Vec<_> = ours.symmetric_difference(&kafkas).collect();
        ensure!(alone.is_empty(), "only one of us prints {alone:#?}");

        let told = Told::by_java(kafka)?;
        told.hold_against(&manager).await.context("the manager that wrote")?;
        let late = Manager::start(log.clone(), config())?;
        told.hold_against(&late).await.context("a manager that comes later")?;
        late.close().await;
        Ok(())
    })
    .await?;
    brokers_copy_and_delete(kafka, &manager, java_writes::WITH_RETENTION, &orders).await?;
    manager.close().await;
    Ok(())
}

/// Partitions of topics that no broker knows, in metadata partitions that brokers read; others for another seed.
pub(crate) fn unknown_to_brokers(
    manager: &Manager,
    known: &[TopicIdPartition],
    count: usize,
    seed: u64,
) -> Vec<TopicIdPartition> {
    let read: BTreeSet<i32> = known.iter().map(|partition| manager.metadata_partition(partition)).collect();
    let mut random = Random::new(seed);
    let mut any = std::iter::repeat_with(|| TopicIdPartition {
        topic: "elsewhere".into(),
        topic_id: random.uuid().into(),
        partition: 0,
    });
    any.by_ref()
        .filter(|partition| read.contains(&manager.metadata_partition(partition)))
        .take(count)
        .collect()
}

/// An event, and what became of it.
fn kind(event: &RawEvent<'_>, outcome: WriteOutcome) -> String {
    let outcome = match outcome {
        WriteOutcome::Applied => "applied",
        WriteOutcome::NoOp => "nothing new",
        WriteOutcome::Rejected(_) => "dropped",
    };
    match event {
        RawEvent::SegmentMetadata(_) => format!("a segment, {outcome}"),
        RawEvent::SegmentMetadataUpdate(update) => format!("a segment to {}, {outcome}", update.state_id),
        RawEvent::PartitionDeleteMetadata(delete) => format!("a partition to {}, {outcome}", delete.state_id),
        RawEvent::SegmentMetadataSnapshot(_) => "a snapshot".to_owned(),
    }
}

/// A life of segments, and the steps of a partition's deletion: the last one only where no broker holds the partition.
async fn live(
    manager: &Manager,
    mut history: History,
    to_the_end: bool,
) -> anyhow::Result<Vec<(Placed, String)>> {
    let mut placed = Vec::new();
    for _ in 0..EVENTS {
        let event = history.next();
        let Written { metadata_partition, offset, outcome } = write(manager, event.clone()).await?;
        let kind = kind(&event, outcome);
        placed.push(((metadata_partition, offset, event), kind));
    }
    use RemotePartitionDeleteState as To;
    for to in [To::DeletePartitionMarked, To::DeletePartitionStarted, To::DeletePartitionFinished] {
        let holders = match (to, to_the_end) {
            (To::DeletePartitionFinished, false) => continue,
            (_, false) => PartitionHolders::Possible,
            (_, true) => PartitionHolders::None,
        };
        let event = history.partition_delete(to);
        let written = manager.put_remote_partition_delete_metadata(event.clone(), holders, soon()).await?;
        let Written { metadata_partition, offset, outcome } = written;
        let event = RawEvent::PartitionDeleteMetadata(event);
        let kind = kind(&event, outcome);
        placed.push(((metadata_partition, offset, event), kind));
    }
    Ok(placed)
}

pub(crate) async fn write(manager: &Manager, event: RawEvent<'static>) -> Result<Written, WriteError> {
    match event {
        RawEvent::SegmentMetadata(event) => manager.add_remote_log_segment_metadata(event, soon()).await,
        RawEvent::SegmentMetadataUpdate(event) => {
            manager.update_remote_log_segment_metadata(event, soon()).await
        }
        other => unreachable!("no life of a segment has {other:?}"),
    }
}

/// A broker that holds the partition repeats deletions that it finds begun; what custom metadata a segment has then, the
/// manager knows better than the history.
pub(crate) fn same(there: &RawEvent<'_>, written: &RawEvent<'_>) -> bool {
    let without = |event: &RawEvent<'_>| match event.clone().into_owned() {
        RawEvent::SegmentMetadataUpdate(update) if update.state_id >= 2 => {
            RawEvent::SegmentMetadataUpdate(RawSegmentUpdate { custom_metadata: None, ..update })
        }
        event => event,
    };
    without(there) == without(written)
}

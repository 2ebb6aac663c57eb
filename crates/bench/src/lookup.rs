//! One user partition whose segments lie one behind the other in five leader epochs; offsets are asked for at random, and each
//! of them is served.

use std::hint::black_box;

use anyhow::Context as _;
use serde_json::{Value, json};
use strandline_log::{InProcessMetadataTopic, LiveMetadataEventLog as _};
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicBasedRemoteLogMetadataManager,
    TopicIdPartition,
};
use strandline_tier::{
    EpochEntry, RawEvent, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentIndex, RemoteLogSegmentState,
    Uuid, codec,
};

use crate::{memory_kb, soon};

const EPOCHS: usize = 5;
const QUESTIONS_MAX: usize = 1 << 20;
const QUESTIONS_PER_SEGMENT: usize = 128;
const ROUNDS: usize = 8;
/// The first rounds are not counted.
const WARM_UP_ROUNDS: usize = 3;

pub(crate) async fn run(segments: usize) -> anyhow::Result<Value> {
    anyhow::ensure!(segments >= EPOCHS, "{segments} segments have no {EPOCHS} leader epochs");
    let before_kb = memory_kb("VmRSS")?;
    let mut index = RemoteLogSegmentIndex::new();
    for event in Events::new(segments) {
        match event {
            RawEvent::SegmentMetadata(event) => index.apply_segment_metadata(&event)?,
            RawEvent::SegmentMetadataUpdate(event) => index.apply_segment_update(&event)?,
            other => anyhow::bail!("{other:?}"),
        };
    }
    let index_kb = memory_kb("VmRSS")?.saturating_sub(before_kb);
    let count = QUESTIONS_MAX.min(segments * QUESTIONS_PER_SEGMENT);
    let questions = questions(&index, count);
    let ns_min =
        best(&questions, |&(epoch, offset)| index.remote_log_segment_metadata(epoch, offset).is_some())?;

    let manager = manager(segments).await?;
    let partition = partition();
    let asked = best(&questions, |&(epoch, offset)| {
        let found =
            |index: &RemoteLogSegmentIndex| index.remote_log_segment_metadata(epoch, offset).is_some();
        manager.with_index(&partition, found).unwrap_or(false)
    })?;
    let owned = best(&questions, |&(epoch, offset)| {
        manager.remote_log_segment_metadata(&partition, epoch, offset).is_ok_and(|found| found.is_some())
    })?;
    manager.close().await;
    Ok(json!({
        "peer": "strandline",
        "segments": segments,
        "ns_min": ns_min,
        "bytes_per_segment": index_kb as f64 * 1024.0 / segments as f64,
        "ns_min_manager": asked,
        "ns_min_manager_owned": owned,
    }))
}

/// The nanoseconds of one question, in the best of some rounds.
fn best(questions: &[(i32, i64)], ask: impl Fn(&(i32, i64)) -> bool) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        let began = on_cpu_ns()?;
        let hits = questions.iter().filter(|question| ask(black_box(question))).count();
        let ns = (on_cpu_ns()? - began) / questions.len() as f64;
        anyhow::ensure!(hits == questions.len(), "each offset is in a segment");
        if round >= WARM_UP_ROUNDS {
            best = best.min(ns);
        }
    }
    Ok(best)
}

/// Time that this thread was on a CPU: other work on the machine does not count.
fn on_cpu_ns() -> anyhow::Result<f64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(told.split_whitespace().next().context("the kernel tells no time on a CPU")?.parse()?)
}

/// Leader epochs and offsets, each in a segment that is as likely as any other.
fn questions(index: &RemoteLogSegmentIndex, count: usize) -> Vec<(i32, i64)> {
    let ranges = index.list_remote_log_segments().flat_map(|segment| segment.epoch_ranges());
    let ranges: Vec<_> = ranges.collect();
    let mut random = Random(7);
    let mut question = || {
        let (entry, end_offset) = ranges[random.below(ranges.len() as u64) as usize];
        let width = (end_offset - entry.start_offset + 1) as u64;
        (entry.epoch, entry.start_offset + random.below(width) as i64)
    };
    (0..count).map(|_| question()).collect()
}

/// A manager that serves the partition.
async fn manager(
    segments: usize,
) -> anyhow::Result<TopicBasedRemoteLogMetadataManager<strandline_log::InProcessMetadataEventLog>> {
    let log = InProcessMetadataTopic::with_partitions(50).open();
    let config = RemoteLogMetadataManagerConfig::default();
    let manager = TopicBasedRemoteLogMetadataManager::start(log.clone(), config)?;
    let home = manager.metadata_partition(&partition());
    for event in Events::new(segments) {
        let mut value = Vec::new();
        codec::encode(&event, &mut value)?;
        log.publish(home, value.into(), soon()).await?;
    }
    manager.on_partition_leadership_changes(&[partition()], &[])?;
    manager.wait_until_ready(&partition(), soon()).await?;
    Ok(manager)
}

fn partition() -> TopicIdPartition {
    let topic_id = strandline_tier::TopicId(Uuid([7; 16]));
    TopicIdPartition { topic: "orders.events.v0".into(), topic_id, partition: 0 }
}

/// The events of finished segments of 1 000 to 9 999 offsets; the last segment of every fifth part of them ends in the next
/// leader epoch.
struct Events {
    segments: usize,
    next: usize,
    offset: i64,
    epoch: i32,
    random: Random,
    /// The copy that was begun.
    begun: Option<Uuid>,
}

impl Events {
    fn new(segments: usize) -> Self {
        Self { segments, next: 0, offset: 0, epoch: 0, random: Random(42), begun: None }
    }
}

impl Iterator for Events {
    type Item = RawEvent<'static>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(segment_id) = self.begun.take() {
            return Some(RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
                topic_id_partition: partition(),
                segment_id,
                broker_id: 1,
                event_timestamp_ms: 2,
                custom_metadata: None,
                state_id: RemoteLogSegmentState::CopySegmentFinished.id(),
            }));
        }
        if self.next == self.segments {
            return None;
        }
        let mut segment_id = [0; 16];
        segment_id[..8].copy_from_slice(&self.random.next().to_be_bytes());
        segment_id[8..].copy_from_slice(&self.random.next().to_be_bytes());
        self.begun = Some(Uuid(segment_id));
        let (start_offset, end_offset) = (self.offset, self.offset + 999 + self.random.below(9_000) as i64);
        let mut epochs = vec![EpochEntry { epoch: self.epoch, start_offset }];
        let fifth = self.segments / EPOCHS;
        self.next += 1;
        if self.next.is_multiple_of(fifth) && self.next < self.segments {
            self.epoch += 1;
            epochs.push(EpochEntry {
                epoch: self.epoch,
                start_offset: start_offset + (end_offset - start_offset) / 2,
            });
        }
        self.offset = end_offset + 1;
        Some(RawEvent::SegmentMetadata(RawSegmentMetadata {
            topic_id_partition: partition(),
            segment_id: Uuid(segment_id),
            start_offset,
            end_offset,
            broker_id: 1,
            max_timestamp_ms: 1,
            event_timestamp_ms: 1,
            segment_leader_epochs: epochs.into(),
            segment_size_in_bytes: 1 << 20,
            custom_metadata: None,
            state_id: RemoteLogSegmentState::CopySegmentStarted.id(),
            txn_index_empty: false,
        }))
    }
}

/// SplitMix64: repeatable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

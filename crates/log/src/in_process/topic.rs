//! The topic that lies in memory: what a cluster keeps, apart from who reads it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use strandline_protocol::TopicId;
use tokio::sync::watch;

use super::InProcessMetadataEventLog;
use crate::event_log::MetadataLogIdentity;
use crate::range::{PartitionMarks, RangeError};
use crate::record::OwnedMetadataEventRecord;

/// The metadata topic in this process's memory: it outlives the logs that are opened on it, as a cluster outlives its
/// clients. Nothing of it is ever deleted but by [`advance_log_start`](Self::advance_log_start) and
/// [`truncate`](Self::truncate), so it grows with what is published. Clones are the same topic.
///
/// For tests of what stands on a log, and for a broker of one process that keeps no metadata.
#[derive(Clone, Debug)]
pub struct InProcessMetadataTopic {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    identity: MetadataLogIdentity,
    /// READ was taken away from everybody.
    unreadable: AtomicBool,
    partitions: Box<[Partition]>,
}

#[derive(Debug)]
struct Partition {
    log: Mutex<PartitionLog>,
    /// Sees each change of the log.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct PartitionLog {
    log_start_offset: i64,
    end_offset: i64,
    records: VecDeque<OwnedMetadataEventRecord>,
    /// Where each leader epoch begins, ascending; the last one is the current one.
    epochs: Vec<i64>,
}

/// A record that the broker, or a writer of another kind, puts into the topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InProcessRecord {
    /// The key; Kafka writes null.
    pub key: Option<Bytes>,
    /// The value; `None` is null, which is no event.
    pub value: Option<Bytes>,
    /// A transaction marker.
    pub control: bool,
    /// Written in a transaction.
    pub transactional: bool,
}

/// Where a reading stands: the next offset, and the leader epoch of what was read before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) next_offset: i64,
    pub(super) epoch: usize,
}

/// Records from a position on.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) records: Vec<OwnedMetadataEventRecord>,
    pub(super) position: Position,
    pub(super) log_end_offset: i64,
}

impl InProcessMetadataTopic {
    /// An empty topic.
    ///
    /// # Panics
    /// Where `identity` has no metadata partition.
    pub fn new(identity: MetadataLogIdentity) -> Self {
        assert!(identity.partition_count > 0, "a topic has at least one partition");
        let partition = |_| Partition {
            log: Mutex::new(PartitionLog {
                log_start_offset: 0,
                end_offset: 0,
                records: VecDeque::new(),
                epochs: vec![0],
            }),
            changed: watch::Sender::new(0),
        };
        let partitions = (0..identity.partition_count).map(partition).collect();
        Self { inner: Arc::new(Inner { identity, unreadable: AtomicBool::new(false), partitions }) }
    }

    /// An empty topic of so many partitions in a cluster and with an id of its own.
    pub fn with_partitions(partition_count: i32) -> Self {
        let topic_id: TopicId = "nM8pU2dTQoq0XzWk1sRy5A".parse().expect("an id in Kafka's form");
        let cluster_id = Some("in-process".into());
        Self::new(MetadataLogIdentity { cluster_id, topic_id: Some(topic_id), partition_count })
    }

    /// Opens the topic for reading and writing. Each log that is opened is closed for itself.
    pub fn open(&self) -> InProcessMetadataEventLog {
        InProcessMetadataEventLog::new(self.clone(), true)
    }

    /// Opens the topic for reading.
    pub fn open_read_only(&self) -> InProcessMetadataEventLog {
        InProcessMetadataEventLog::new(self.clone(), false)
    }

    /// Which topic of which cluster this claims to be.
    pub fn identity(&self) -> &MetadataLogIdentity {
        &self.inner.identity
    }

    /// Appends a record of any kind, and gives its offset; `None` if there is no such partition.
    pub fn append(&self, partition: i32, record: InProcessRecord) -> Option<i64> {
        self.change(partition, |log| {
            let offset = log.end_offset;
            let InProcessRecord { key, value, control, transactional } = record;
            let timestamp_ms = now_ms();
            log.records.push_back(OwnedMetadataEventRecord {
                partition,
                offset,
                timestamp_ms,
                key,
                value,
                control,
                transactional,
            });
            log.end_offset += 1;
            offset
        })
    }

    /// Leaves out so many offsets, as compaction does: the log ends behind them, and no record has them.
    pub fn skip_offsets(&self, partition: i32, count: u32) {
        self.change(partition, |log| log.end_offset += i64::from(count));
    }

    /// Forgets what lies below an offset, as retention and DeleteRecords do. The log start never goes back, nor beyond
    /// the end.
    pub fn advance_log_start(&self, partition: i32, log_start_offset: i64) {
        self.change(partition, |log| {
            log.log_start_offset = log_start_offset.clamp(log.log_start_offset, log.end_offset);
            while log.records.front().is_some_and(|record| record.offset < log.log_start_offset) {
                log.records.pop_front();
            }
        });
    }

    /// Cuts the log at an offset and begins a leader epoch there, as an unclean leader election does. An offset at or
    /// above the end cuts nothing and only begins the epoch.
    pub fn truncate(&self, partition: i32, end_offset: i64) {
        self.change(partition, |log| {
            log.end_offset = end_offset.clamp(log.log_start_offset, log.end_offset);
            while log.records.back().is_some_and(|record| record.offset >= log.end_offset) {
                log.records.pop_back();
            }
            let end_offset = log.end_offset;
            log.epochs.iter_mut().for_each(|start| *start = (*start).min(end_offset));
            log.epochs.push(end_offset);
        });
    }

    /// Takes READ on the topic away from everybody, or gives it back.
    pub fn set_readable(&self, readable: bool) {
        self.inner.unreadable.store(!readable, Ordering::Release);
        for partition in &self.inner.partitions {
            partition.changed.send_modify(|changes| *changes += 1);
        }
    }

    pub(super) fn partition_count(&self) -> i32 {
        self.inner.identity.partition_count
    }

    fn partition(&self, partition: i32) -> Option<&Partition> {
        self.inner.partitions.get(usize::try_from(partition).ok()?)
    }

    fn change<T>(&self, partition: i32, change: impl FnOnce(&mut PartitionLog) -> T) -> Option<T> {
        let partition = self.partition(partition)?;
        let done = change(&mut lock(&partition.log));
        partition.changed.send_modify(|changes| *changes += 1);
        Some(done)
    }

    /// Sees each change of a partition from now on.
    pub(super) fn changes(&self, partition: i32) -> Option<watch::Receiver<u64>> {
        Some(self.partition(partition)?.changed.subscribe())
    }

    pub(super) fn marks(&self, partition: i32) -> Result<PartitionMarks, RangeError> {
        let log = self.partition(partition).ok_or(RangeError::NoSuchPartition { partition })?;
        let log = lock(&log.log);
        let (log_start_offset, high_watermark) = (log.log_start_offset, log.end_offset);
        Ok(PartitionMarks { partition, log_start_offset, high_watermark })
    }

    /// A position that has read nothing before: it takes the log as it is.
    pub(super) fn position(&self, partition: i32, next_offset: i64) -> Result<Position, RangeError> {
        let log = self.partition(partition).ok_or(RangeError::NoSuchPartition { partition })?;
        let epoch = lock(&log.log).epochs.len() - 1;
        Ok(Position { next_offset, epoch })
    }

    /// The next records, `max` at most, with offsets below `to`.
    pub(super) fn page(
        &self,
        partition: i32,
        from: Position,
        to: i64,
        max: usize,
    ) -> Result<Page, RangeError> {
        let log = self.partition(partition).ok_or(RangeError::NoSuchPartition { partition })?;
        if self.inner.unreadable.load(Ordering::Acquire) {
            return Err(RangeError::Forbidden { partition, right: "READ" });
        }
        let log = lock(&log.log);
        let (next_offset, current) = (from.next_offset, log.epochs.len() - 1);
        if let Some(&end_offset) = log.epochs.get(from.epoch + 1)
            && end_offset < next_offset
        {
            let leader_epoch = i32::try_from(from.epoch).unwrap_or(i32::MAX);
            return Err(RangeError::Truncated { partition, next_offset, leader_epoch, end_offset });
        }
        if !(log.log_start_offset..=log.end_offset).contains(&next_offset) {
            return Err(RangeError::OffsetOutOfRange {
                partition,
                offset: next_offset,
                log_start_offset: log.log_start_offset,
                end_offset: log.end_offset,
            });
        }
        let begin = log.records.partition_point(|record| record.offset < next_offset);
        let records: Vec<_> =
            log.records.range(begin..).take(max).take_while(|record| record.offset < to).cloned().collect();
        let end = to.min(log.end_offset);
        let next_offset = match records.last() {
            Some(last) if records.len() == max => last.offset + 1,
            _ => end.max(next_offset),
        };
        let position = Position { next_offset, epoch: current };
        Ok(Page { records, position, log_end_offset: log.end_offset })
    }
}

fn lock(log: &Mutex<PartitionLog>) -> MutexGuard<'_, PartitionLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

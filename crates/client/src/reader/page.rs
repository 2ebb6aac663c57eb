//! One Fetch for one partition: how it is asked for, and what the answer comes to. No socket, no clock.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::TopicId;
use strandline_protocol::Uuid;
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use strandline_protocol::records::{
    Batch, BatchError, BatchHeader, Corruption, CutTail, DecompressError, Decompressor, Headers, Record,
};

use super::aborted::AbortedTransactions;
use super::walk::{Ended, PageError, PageVisitor, Progress, visit_page};
use super::{ReadErrorKind, ReadPosition, ReaderConfig};
use crate::admin::Isolation;

/// A record, borrowed while it is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRecord<'a> {
    /// The record's offset in its partition.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since 1970; -1 if it has none.
    pub timestamp_ms: i64,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null (a tombstone).
    pub value: Option<&'a [u8]>,
    /// The headers, decoded when they are iterated.
    pub headers: Headers<'a>,
    /// The leader epoch under which it was appended, where its batch names one.
    pub leader_epoch: Option<i32>,
    /// The record was written in a transaction.
    pub transactional: bool,
}

/// What one answer of the leader came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records given out.
    pub records: u64,
    /// The batches passed, also those of which nothing was given out.
    pub batches: u64,
    /// The bytes of those batches, compressed as they are.
    pub bytes: u64,
    /// The first offset of the log; `None` where the broker does not say.
    pub log_start_offset: Option<i64>,
    /// The offset after the last one that every replica in sync has.
    pub high_watermark: i64,
    /// Where a reader of this isolation has read everything there is at this moment: the high watermark, or the last stable
    /// offset.
    pub end_offset: i64,
    /// The visitor ended the page.
    pub stopped: bool,
}

impl Page {
    pub(super) fn new(data: &PartitionData, committed: bool, progress: Progress, stopped: bool) -> Self {
        let stable = Some(data.last_stable_offset).filter(|offset| committed && *offset >= 0);
        Self {
            records: progress.records,
            batches: progress.batches,
            bytes: progress.bytes,
            log_start_offset: Some(data.log_start_offset).filter(|offset| *offset >= 0),
            high_watermark: data.high_watermark,
            end_offset: stable.unwrap_or(data.high_watermark),
            stopped,
        }
    }
}

/// A Fetch request for the next page. Without a session (KIP-227), which saves nothing for one partition.
pub(super) fn request(
    topic: &Arc<str>,
    topic_id: Option<TopicId>,
    partition: i32,
    position: ReadPosition,
    leader_epoch: Option<i32>,
    config: &ReaderConfig,
    max_wait: Duration,
) -> FetchRequest {
    let partition = FetchPartition {
        partition,
        current_leader_epoch: leader_epoch.unwrap_or(-1),
        fetch_offset: position.next_offset,
        // A leader whose lineage has left this epoch before the offset says so instead of records. It can judge that only
        // against a leader epoch of its own.
        last_fetched_epoch: leader_epoch.and(position.leader_epoch).unwrap_or(-1),
        log_start_offset: -1,
        partition_max_bytes: config.max_bytes,
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        topic: topic.to_string(),
        topic_id: topic_id.map_or(Uuid::ZERO, |id| id.0),
        partitions: vec![partition],
        ..FetchTopic::default()
    };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: config.min_bytes,
        max_bytes: config.max_bytes,
        isolation_level: match config.isolation {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
        },
        session_id: 0,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    }
}

/// The stop, where the leader says that its lineage has left that of the position.
pub(super) fn diverging(data: &PartitionData, position: ReadPosition) -> Option<ReadErrorKind> {
    let end = &data.diverging_epoch;
    let leader_epoch = position.leader_epoch?;
    (end.end_offset >= 0).then(|| ReadErrorKind::Truncated {
        offset: position.next_offset,
        leader_epoch,
        end_offset: end.end_offset,
        end_epoch: Some(end.epoch).filter(|epoch| *epoch >= 0),
    })
}

/// Where a page ended.
pub(super) struct PageEnd {
    pub(super) stopped: bool,
    pub(super) tail: Option<CutTail>,
}

/// Gives out the records of an answer.
pub(super) fn read(
    data: &PartitionData,
    committed: bool,
    decompressor: &mut Decompressor,
    progress: &mut Progress,
    visit: &mut impl FnMut(&ReadRecord<'_>) -> ControlFlow<()>,
) -> Result<PageEnd, PageError> {
    // Whoever wants uncommitted records wants aborted ones, whatever the broker lists.
    let aborted =
        committed.then(|| AbortedTransactions::new(data.aborted_transactions.as_deref().unwrap_or_default()));
    let mut visitor = ClientRecords { aborted, visit };
    let records = data.records.as_deref().unwrap_or_default();
    let (ended, tail) = visit_page(records, i64::MAX, decompressor, progress, &mut visitor)?;
    Ok(PageEnd { stopped: ended == Some(Ended::Visitor), tail })
}

/// Passes on what clients wrote, and what was not aborted.
struct ClientRecords<'v, V> {
    aborted: Option<AbortedTransactions>,
    visit: &'v mut V,
}

impl<V: FnMut(&ReadRecord<'_>) -> ControlFlow<()>> PageVisitor for ClientRecords<'_, V> {
    fn batch(&mut self, batch: &Batch<'_>, decompressor: &mut Decompressor) -> Result<bool, BatchError> {
        let control = batch.header.attributes.is_control();
        match &mut self.aborted {
            Some(aborted) if control => aborted.control(batch, decompressor)?,
            Some(aborted) => return Ok(!aborted.is_aborted(batch)),
            None => {}
        }
        Ok(!control)
    }

    fn record(&mut self, header: &BatchHeader, record: &Record<'_>) -> ControlFlow<()> {
        (self.visit)(&ReadRecord {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            headers: record.headers,
            leader_epoch: Some(header.partition_leader_epoch).filter(|epoch| *epoch >= 0),
            transactional: header.attributes.is_transactional(),
        })
    }
}

/// The stop that bytes lead to which cannot be read any further.
pub(super) fn stop(error: PageError, offset: i64, peer: &str) -> ReadErrorKind {
    let peer = peer.to_owned();
    match error {
        PageError::OffsetsFall { offset, expected } => ReadErrorKind::OffsetsFall { offset, expected, peer },
        PageError::Batch(error) => {
            let source = Arc::new(error);
            match &*source {
                BatchError::LegacyBatch { .. } => ReadErrorKind::LegacyBatch { offset, peer, source },
                BatchError::Corrupt {
                    source: Corruption::Decompress(DecompressError::TooLarge { .. }),
                    ..
                } => ReadErrorKind::TooLarge { offset, peer, source },
                _ => ReadErrorKind::Corrupt { offset, peer, source },
            }
        }
    }
}

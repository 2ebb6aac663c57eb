//! Reading a range of offsets of one metadata partition: what is asked for, what came of it, what can go wrong.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strandline_client::reader::Progress;
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::TopicId;
use strandline_protocol::records::BatchError;

use crate::data_dir::FileError;

/// Offsets `from..to` of one metadata partition; `to` is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetadataRange {
    /// The metadata partition.
    pub partition: i32,
    /// The first offset to be read.
    pub from: i64,
    /// The first offset not to be read.
    pub to: i64,
}

/// The offsets that a metadata partition holds: `log_start_offset..high_watermark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMarks {
    /// The metadata partition.
    pub partition: i32,
    /// The first offset that is still there.
    pub log_start_offset: i64,
    /// Live, the high watermark: where readers stop. On disk, the end of the last whole batch.
    pub high_watermark: i64,
}

impl PartitionMarks {
    /// Everything that the partition holds.
    pub fn range(&self) -> MetadataRange {
        MetadataRange { partition: self.partition, from: self.log_start_offset, to: self.high_watermark }
    }
}

/// How far a reading came. It is right also when the reading failed: what lies below `next_offset` was visited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeOutcome {
    /// The first offset not read. It follows batch ends, so it can exceed the last record's offset + 1.
    pub next_offset: i64,
    /// The records visited, control records included.
    pub records: u64,
    /// The batches read, empty ones included.
    pub batches: u64,
    /// The bytes of those batches, compressed as they are.
    pub bytes: u64,
    /// The visitor asked to stop.
    pub stopped: bool,
    /// What was odd and did not end the reading, in order. Only the on-disk form has any.
    pub warnings: Vec<RangeWarning>,
}

impl RangeOutcome {
    /// What is read from here on is counted in this, and then [taken](Self::take).
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            next_offset: self.next_offset,
            leader_epoch: None,
            records: self.records,
            batches: self.batches,
            bytes: self.bytes,
        }
    }

    pub(crate) fn take(&mut self, progress: Progress) {
        self.next_offset = progress.next_offset;
        (self.records, self.batches, self.bytes) = (progress.records, progress.batches, progress.bytes);
    }
}

/// Something in a partition's files that did not end the reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeWarning {
    /// The last segment file ends inside a batch: its broker was killed, or writes at this moment. What a restarted
    /// broker would cut off.
    #[error("{} ends inside the batch at offset {offset}, byte {position}: {bytes} bytes are no whole batch", path.display())]
    TruncatedTail {
        /// The file.
        path: PathBuf,
        /// Where the cut batch begins.
        position: u64,
        /// The bytes from there to the end of the file.
        bytes: u64,
        /// The offset at which the log ends.
        offset: i64,
    },
    /// The last segment file ends in zeroes: space that was allocated and not written (`log.preallocate`, or a crash
    /// of the machine). Not damage by itself.
    #[error("{} has no batch but {bytes} zero bytes from byte {position} on", path.display())]
    ZeroTail {
        /// The file.
        path: PathBuf,
        /// Where the zeroes begin.
        position: u64,
        /// How many there are.
        bytes: u64,
        /// The offset at which the log ends.
        offset: i64,
    },
    /// A segment file below the last one ends inside a batch: events are lost. Reading goes on with the next file.
    #[error("{} ends inside the batch at offset {offset}, byte {position}, although later segment files exist", path.display())]
    TruncatedFile {
        /// The file.
        path: PathBuf,
        /// Where the cut batch begins.
        position: u64,
        /// The bytes from there to the end of the file.
        bytes: u64,
        /// The first offset that is missing.
        offset: i64,
    },
    /// The segment file begins above the end of the one before it: the offsets between them are nowhere. In a topic
    /// that is not compacted, events are lost.
    #[error("{} begins at offset {base_offset}, but the file before it ends at {expected_offset}", path.display())]
    SegmentGap {
        /// The later file.
        path: PathBuf,
        /// Where the earlier file ends.
        expected_offset: i64,
        /// Where the later file begins.
        base_offset: i64,
    },
    /// The segment file begins below the end of the one before it; what both hold is visited once.
    #[error("{} begins at offset {base_offset}, although the file before it reaches to {expected_offset}", path.display())]
    SegmentOverlap {
        /// The later file.
        path: PathBuf,
        /// Where the earlier file ends.
        expected_offset: i64,
        /// Where the later file begins.
        base_offset: i64,
    },
    /// Two copies of the partition differ below the end of the shorter one: one broker has lost or replaced records, as
    /// after an unclean leader election. The one in `path` was read, since it reaches farther.
    #[error("the copies in {} and {} differ from offset {offset} on", path.display(), other.display())]
    CopiesDiffer {
        /// The directory of the copy that was read.
        path: PathBuf,
        /// The directory of the other copy.
        other: PathBuf,
        /// The first batch that differs.
        offset: i64,
    },
    /// Another copy of the partition exists and cannot be read; this one was read instead of it.
    #[error("the copy in {} cannot be read: {reason}", path.display())]
    CopyUnreadable {
        /// The directory of the copy.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl RangeWarning {
    /// True if records that were in the log are missing from what was visited.
    pub fn loses_events(&self) -> bool {
        matches!(self, Self::TruncatedFile { .. } | Self::SegmentGap { .. })
    }
}

/// A metadata partition could not be read to the end of the range.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// There is no such partition here. On disk: another broker or another disk may have it.
    #[error("metadata partition {partition} is not here")]
    NoSuchPartition {
        /// The metadata partition.
        partition: i32,
    },
    /// The range is not inside the log. Ask for the marks again; nothing is skipped by itself.
    #[error(
        "offset {offset} of metadata partition {partition} is outside its log, which holds {log_start_offset}..{end_offset}"
    )]
    OffsetOutOfRange {
        /// The metadata partition.
        partition: i32,
        /// The offset asked for.
        offset: i64,
        /// The first offset of the log.
        log_start_offset: i64,
        /// The first offset after the log.
        end_offset: i64,
    },
    /// The log was cut below what was read: records that were read are not in it any more, as after an unclean leader
    /// election. What was made of offsets from `end_offset` on is to be given up.
    #[error(
        "metadata partition {partition} was read up to offset {next_offset} in leader epoch {leader_epoch}, of which the log holds no more than {end_offset}"
    )]
    Truncated {
        /// The metadata partition.
        partition: i32,
        /// Where the reading stood.
        next_offset: i64,
        /// The leader epoch of what was read last.
        leader_epoch: i32,
        /// Where that epoch ends in the log now.
        end_offset: i64,
    },
    /// A batch is damaged or of a format before Kafka 0.11. The reading stopped in front of it.
    #[error("metadata partition {partition}, from {origin}")]
    Batch {
        /// The metadata partition.
        partition: i32,
        /// The file or broker that the bytes came from.
        origin: String,
        /// The damage, with offset and position.
        #[source]
        source: BatchError,
    },
    /// Within one answer a batch begins below the end of the one before it. The reading stopped in front of it: no
    /// log is like that, so nothing can be said of what lies between.
    #[error(
        "metadata partition {partition}, from {origin}: a batch at offset {offset} follows one that ends at {expected}"
    )]
    OffsetsFall {
        /// The metadata partition.
        partition: i32,
        /// The broker that the bytes came from.
        origin: String,
        /// Where the later batch begins.
        offset: i64,
        /// The offset at which the batch before it ends.
        expected: i64,
    },
    /// A file cannot be read, or is none of Kafka's. The reading stopped in front of it.
    #[error("metadata partition {partition}")]
    File {
        /// The metadata partition.
        partition: i32,
        /// The file and what is wrong with it.
        #[source]
        source: FileError,
    },
    /// The principal lacks a right on the metadata topic. Tell the user.
    #[error("no right to read metadata partition {partition}: {right} on the metadata topic is missing")]
    Forbidden {
        /// The metadata partition.
        partition: i32,
        /// The missing right, READ or DESCRIBE.
        right: &'static str,
    },
    /// The topic was deleted, or deleted and created anew: offsets of the old one mean nothing any more. Open it again.
    #[error("topic {topic} {}", Gone(*.known, *.now))]
    Recreated {
        /// The metadata partition.
        partition: i32,
        /// The topic.
        topic: Arc<str>,
        /// The id under which it was opened.
        known: Option<TopicId>,
        /// The id that it has now; `None` if it does not exist.
        now: Option<TopicId>,
    },
    /// The position has not moved for so long, although the cluster was asked again and again.
    #[error("metadata partition {partition} has not moved from offset {next_offset} for {waited:.1?}")]
    Stalled {
        /// The metadata partition.
        partition: i32,
        /// Where it stands.
        next_offset: i64,
        /// Since when.
        waited: Duration,
        /// What hindered it last; `None` if the answers had neither errors nor records.
        #[source]
        source: Option<Box<SendError>>,
    },
    /// The leader refuses one offset again and again, with a code that would pass by itself if it were in order.
    #[error("metadata partition {partition} cannot be read at offset {offset}{}: {tries} tries in a row failed", Within(.log.as_ref()))]
    Refused {
        /// The metadata partition.
        partition: i32,
        /// The offset asked for.
        offset: i64,
        /// How often.
        tries: u32,
        /// The leader's own log start offset and high watermark, where they were asked for: the offset is inside.
        log: Option<Range<i64>>,
        /// The leader's code.
        #[source]
        source: Box<SendError>,
    },
    /// The time of the call was up.
    #[error("metadata partition {partition} was read up to offset {next_offset} within {waited:.1?}")]
    Deadline {
        /// The metadata partition.
        partition: i32,
        /// Where it stands.
        next_offset: i64,
        /// From the call to the deadline.
        waited: Duration,
        /// What hindered it last, if something did.
        #[source]
        source: Option<Box<SendError>>,
    },
    /// The cluster gives no answer that a repetition would better.
    #[error("metadata partition {partition} cannot be read")]
    Cluster {
        /// The metadata partition.
        partition: i32,
        /// Why.
        #[source]
        source: Box<SendError>,
    },
}

impl RangeError {
    /// What a failed request says about a partition; `right` is the one that the request needs.
    pub(crate) fn of_send(partition: i32, source: SendError, right: &'static str) -> Self {
        match source.code() {
            Some(ErrorCode::TopicAuthorizationFailed) => Self::Forbidden { partition, right },
            _ => Self::Cluster { partition, source: Box::new(source) },
        }
    }
}

struct Within<'a>(Option<&'a Range<i64>>);

impl std::fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(log) => write!(f, ", although its log holds {}..{}", log.start, log.end),
            None => Ok(()),
        }
    }
}

struct Gone(Option<TopicId>, Option<TopicId>);

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0, self.1) {
            (_, None) => f.write_str("does not exist any more"),
            (None, Some(now)) => write!(f, "is another one now, with id {now}"),
            (Some(known), Some(now)) => write!(f, "is another one now: its id was {known} and is {now}"),
        }
    }
}

/// What became of one range: the visitor comes back, also when the reading failed.
#[derive(Debug)]
pub struct RangeVisit<V> {
    /// What was asked for.
    pub range: MetadataRange,
    /// The visitor, with what it has seen.
    pub visitor: V,
    /// How far the reading came.
    pub outcome: RangeOutcome,
    /// Why it did not come to the end of the range; `None` where it did, where the visitor stopped it, or where a
    /// log on disk ends earlier.
    pub error: Option<RangeError>,
}

//! Why a reading stands still: typed stops, which stay, and deadlines, which do not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::{SendError, TopicId};
use strandline_protocol::records::BatchError;

/// A partition's reading gave no page. [`kind`](Self::kind) says why, and whether it stays so.
#[derive(Clone, Debug)]
pub struct ReadError {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
    /// Why.
    pub kind: ReadErrorKind,
}

impl ReadError {
    /// True where the reader has stopped: it asks nobody any more and gives this error again, until somebody decides
    /// where to go on ([`seek`](super::PartitionReader::seek)). False where the next call tries again.
    pub fn is_stop(&self) -> bool {
        !matches!(self.kind, ReadErrorKind::Deadline { .. })
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.topic, self.partition, self.kind)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

/// Why a partition's reading gave no page.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The offset is not in the log: retention has taken it, or it was never written. Nothing is reset; `seek` to an
    /// offset that the log holds.
    #[error("offset {offset} is out of range: the log holds {log_start_offset}..{log_end_offset}")]
    OutOfRange {
        /// The offset asked for.
        offset: i64,
        /// The first offset of the log.
        log_start_offset: i64,
        /// The offset after the last one that readers may have.
        log_end_offset: i64,
    },
    /// The log was cut below the position and written anew (an unclean leader election): what was read from
    /// `end_offset` on is not in the log any more. Undo that, then `seek` to `end_offset`.
    #[error(
        "the log was truncated: the leader's lineage leaves that of offset {offset} (leader epoch {leader_epoch}) at offset {end_offset}"
    )]
    Truncated {
        /// The position.
        offset: i64,
        /// The leader epoch of what was read last.
        leader_epoch: i32,
        /// The first offset at which log and reading may differ.
        end_offset: i64,
        /// The largest epoch of the leader's lineage that is not above `leader_epoch`; `None` if there is none.
        end_epoch: Option<i32>,
    },
    /// The topic was deleted, or deleted and created anew: offsets of the old one mean nothing any more. Open a reader
    /// of the new one.
    #[error("the topic {}", Gone(*.known, *.now))]
    Recreated {
        /// The id under which it was opened; `None` from brokers older than Kafka 2.8.
        known: Option<TopicId>,
        /// The id that the name has now; `None` if there is no such topic.
        now: Option<TopicId>,
    },
    /// The topic has fewer partitions.
    #[error("the topic has {count} partitions, and none has this number")]
    NoSuchPartition {
        /// The partitions that it has.
        count: usize,
    },
    /// A batch is damaged. The reading stands in front of it, or behind the last record before the damage; nothing is
    /// skipped unasked.
    #[error("the log cannot be read from offset {offset} on; the bytes are from {peer}")]
    Corrupt {
        /// The position.
        offset: i64,
        /// Who gave the bytes.
        peer: String,
        /// The damage, with the offset that the batch names.
        #[source]
        source: Arc<BatchError>,
    },
    /// A message set of a format before Kafka 0.11, as an old topic may still hold. This reader cannot read it;
    /// `seek` beyond it.
    #[error("the log cannot be read from offset {offset} on; the bytes are from {peer}")]
    LegacyBatch {
        /// The position.
        offset: i64,
        /// Who gave the bytes.
        peer: String,
        /// The format, with the offset that the message set names.
        #[source]
        source: Arc<BatchError>,
    },
    /// The records of a batch become larger than
    /// [`decompressed_bytes_max`](super::ReaderConfig::decompressed_bytes_max): a bomb, or a limit that is too low.
    #[error("the batch at offset {offset} is too large; the bytes are from {peer}")]
    TooLarge {
        /// The position.
        offset: i64,
        /// Who gave the bytes.
        peer: String,
        /// The codec and the limit.
        #[source]
        source: Arc<BatchError>,
    },
    /// Within one answer a batch begins below the end of the one before it, which no log has.
    #[error("{peer} sent a batch at offset {offset} behind one that ends at {expected}")]
    OffsetsFall {
        /// Where the later batch begins.
        offset: i64,
        /// The offset at which the batch before it ends.
        expected: i64,
        /// Who gave the bytes.
        peer: String,
    },
    /// The principal lacks a right. Grant it.
    #[error("no right to read: {right} on the topic is missing")]
    Forbidden {
        /// The missing right, READ or DESCRIBE.
        right: &'static str,
    },
    /// The broker and this client have no version in common for what is needed.
    #[error("the broker cannot serve this reader")]
    Unsupported {
        /// Who, and what is missing.
        #[source]
        source: Box<SendError>,
    },
    /// The leader refuses the offset again and again, with an answer that would pass by itself if all were in order: it
    /// calls the batch corrupt, sends it cut, or says that the offset is out of range while its log holds it.
    #[error("offset {offset} was refused {tries} times in a row")]
    Refused {
        /// The position.
        offset: i64,
        /// How often.
        tries: u32,
        /// The last answer.
        #[source]
        source: Box<SendError>,
    },
    /// The cluster gives no answer that a repetition would better.
    #[error("the partition cannot be read")]
    Cluster {
        /// Why.
        #[source]
        source: Box<SendError>,
    },
    /// No page came before the deadline. The position is where it was; call again.
    #[error("no page from offset {offset} within {waited:.1?}")]
    Deadline {
        /// The position.
        offset: i64,
        /// From the call to the deadline.
        waited: Duration,
        /// What hindered it last, if something did.
        #[source]
        source: Option<Box<SendError>>,
    },
}

impl ReadErrorKind {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self)
    }
}

/// How a topic is gone, as the end of a sentence that begins with its name.
struct Gone(Option<TopicId>, Option<TopicId>);

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (None, None) => f.write_str("does not exist"),
            (Some(_), None) => f.write_str("does not exist any more"),
            (None, Some(now)) => write!(f, "is another one now, with id {now}"),
            (Some(known), Some(now)) => write!(f, "is another one now: its id was {known} and is {now}"),
        }
    }
}

use std::sync::Arc;
use std::time::Duration;

/// What hindered a publish, as the form of the log tells it.
pub type PublishCause = Box<dyn std::error::Error + Send + Sync>;

/// An event was not acknowledged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The log was opened for reading. Not written; open it for writing.
    #[error("the metadata log was opened for reading only")]
    ReadOnly,
    /// There is no such metadata partition. Not written; the log's own partition count decides.
    #[error("there is no metadata partition {partition}: the topic has {partition_count}")]
    NoSuchPartition {
        /// The metadata partition asked for.
        partition: i32,
        /// How many there are.
        partition_count: i32,
    },
    /// The event is larger than the topic takes. Not written, and will never be.
    #[error("an event of {bytes} bytes: {}", Most(*.bytes_max))]
    TooLarge {
        /// The bytes of the value.
        bytes: usize,
        /// The most that fit; `None` where the topic's limit may not be read, or was lowered since.
        bytes_max: Option<usize>,
    },
    /// The principal lacks a right. Not written; tell the user.
    #[error("no right to write to metadata partition {partition}: {right} on the metadata topic is missing")]
    Forbidden {
        /// The metadata partition.
        partition: i32,
        /// The missing right.
        right: &'static str,
    },
    /// The topic is another one than the one opened. Not written; open it again.
    #[error("topic {topic} is not the one that was opened any more")]
    Recreated {
        /// The topic.
        topic: Arc<str>,
    },
    /// The event is certainly not in the log. It may be published again.
    #[error("metadata partition {partition}: not written within {waited:.1?}")]
    NotWritten {
        /// The metadata partition.
        partition: i32,
        /// From the call to the giving up.
        waited: Duration,
        /// What hindered it last, if something did.
        #[source]
        source: Option<PublishCause>,
    },
    /// Whether the event is in the log is unknown. Publish it again after a look at the log: a repeated event of the same
    /// state changes nothing for its readers.
    #[error(
        "metadata partition {partition}: no acknowledgement within {waited:.1?}, the event may be written"
    )]
    Unknown {
        /// The metadata partition.
        partition: i32,
        /// From the call to the giving up.
        waited: Duration,
        /// What hindered it last, if something did.
        #[source]
        source: Option<PublishCause>,
    },
    /// The event is in the log, once, and the broker does not tell at which offset: it has forgotten that it took it, as the
    /// answer came late. Do not publish it again; who needs the offset reads the partition.
    #[error(
        "metadata partition {partition}: the event is written, and the broker does not tell at which offset"
    )]
    NoOffset {
        /// The metadata partition.
        partition: i32,
        /// What the broker answered.
        #[source]
        source: PublishCause,
    },
    /// The log is closed. Not written.
    #[error("the metadata log is closed")]
    Closed,
}

impl PublishError {
    /// True if the event is, or can be, in the log although there is no offset.
    pub fn may_be_written(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::NoOffset { .. })
    }
}

struct Most(Option<usize>);

impl std::fmt::Display for Most {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes_max) => write!(f, "the metadata topic takes at most {bytes_max}"),
            None => f.write_str("the metadata topic does not take as many"),
        }
    }
}

/// What a batch of one record without key and headers adds to its value, at most: its header of 61 bytes, and 15 bytes of
/// the record's own frame, rounded up.
pub(crate) const FRAME_BYTES_MAX: usize = 80;

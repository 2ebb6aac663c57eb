//! What became of a record that has no offset.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::{ErrorCode, Recovery, SendError, TopicId};
use strandline_protocol::records::BuildError;

/// Whether a record is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is, once.
    Written,
    /// It is not, and will not be: it may be sent again without being there twice.
    NotWritten,
    /// It was sent, and whether it was appended nobody has told. Look into the log before sending it again. It cannot be
    /// appended any more behind a later record of its partition.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Written => "written",
            Self::NotWritten => "not written",
            Self::Unknown => "unknown whether written",
        })
    }
}

/// A record has no offset. [`outcome`](Self::outcome) says whether it is in the log, [`kind`](Self::kind) why.
#[derive(Clone, Debug)]
pub struct ProduceError {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
    /// Whether the record is in the log.
    pub outcome: Outcome,
    /// Why.
    pub kind: ProduceErrorKind,
}

impl fmt::Display for ProduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.topic, self.partition, self.outcome, self.kind)
    }
}

impl std::error::Error for ProduceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.kind)
    }
}

impl ProduceError {
    /// What the caller does next, as far as the cause tells; whether a record may be sent again is told by
    /// [`outcome`](Self::outcome) alone.
    pub fn recovery(&self) -> Recovery {
        match &self.kind {
            ProduceErrorKind::Deadline { .. } | ProduceErrorKind::TakenBack { .. } => Recovery::Retry,
            ProduceErrorKind::Refused { code, .. } => Recovery::of(*code),
            ProduceErrorKind::NoProducerId { source } | ProduceErrorKind::Cluster { source } => {
                source.recovery()
            }
            ProduceErrorKind::Fenced { .. } | ProduceErrorKind::StateLost { .. } => Recovery::Retry,
            ProduceErrorKind::NoOffset { .. } => Recovery::Proceed,
            ProduceErrorKind::TooLarge { .. }
            | ProduceErrorKind::LargerThanBuffer { .. }
            | ProduceErrorKind::NotATopicName
            | ProduceErrorKind::Recreated { .. }
            | ProduceErrorKind::Encode { .. }
            | ProduceErrorKind::Closed => Recovery::Fail,
        }
    }
}

/// Why a record has no offset.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceErrorKind {
    /// [`delivery_timeout`](super::ProducerConfig::delivery_timeout) passed first.
    #[error("not acknowledged within {waited:.1?}")]
    Deadline {
        /// From the acceptance to the deadline.
        waited: Duration,
        /// What hindered it last, if something did.
        #[source]
        source: Option<Arc<SendError>>,
    },
    /// Its sender [took it back](super::Producer::take_back) before it had an answer.
    #[error("not acknowledged when its sender took it back")]
    TakenBack {
        /// What hindered it last, if something did.
        #[source]
        source: Option<Arc<SendError>>,
    },
    /// The broker refuses it. Correct what the code names.
    #[error("the broker answered {code}{}", Said(.message))]
    Refused {
        /// The code.
        code: ErrorCode,
        /// The broker's own words.
        message: Option<Arc<str>>,
    },
    /// The record alone is larger than the topic allows (`max.message.bytes`), or than a segment. Make it smaller, or the
    /// limit larger.
    #[error(
        "the record is too large for the topic: {bytes} bytes, before compression, are refused with {code}"
    )]
    TooLarge {
        /// The bytes of the batch with this record alone, before compression.
        bytes: usize,
        /// The broker's code.
        code: ErrorCode,
    },
    /// The record is larger than all of [`buffer_memory`](super::ProducerConfig::buffer_memory). It was not accepted.
    #[error("the record needs {bytes} bytes, and the producer has room for {buffer_memory} in all")]
    LargerThanBuffer {
        /// What it needs.
        bytes: usize,
        /// The limit.
        buffer_memory: usize,
    },
    /// No topic can have this name: it is empty, or longer than 249 bytes. The record was not accepted.
    #[error("no topic can have this name")]
    NotATopicName,
    /// The topic was deleted, or deleted and created anew, since this producer first wrote to it. Records meant for the old
    /// one are not written into the new one: make a new producer for that.
    #[error("the topic {}", Gone(*.known, *.now))]
    Recreated {
        /// The id that the producer has written under.
        known: TopicId,
        /// The id that the name has now; `None` if there is no such topic.
        now: Option<TopicId>,
    },
    /// The broker knows a later epoch of this producer's id: somebody else writes under it. The record is not sent again;
    /// later records go out under a new producer id.
    #[error("producer {producer_id} is fenced in epoch {producer_epoch}: the broker answered {code}")]
    Fenced {
        /// The producer id.
        producer_id: i64,
        /// The epoch that the broker calls old.
        producer_epoch: i16,
        /// The broker's code.
        code: ErrorCode,
    },
    /// The record was sent without an answer, and by the next try the broker had lost what it knew of this producer, so
    /// that nobody can tell whether it was appended.
    #[error("the broker has lost its state of producer {producer_id}, and with it what became of the record")]
    StateLost {
        /// The producer id.
        producer_id: i64,
    },
    /// The record is in the log, and the broker does not tell at which offset.
    #[error("the broker does not tell the offset: it answered {code}")]
    NoOffset {
        /// The code of the answer.
        code: ErrorCode,
    },
    /// No broker gave a producer id.
    #[error("no producer id can be had")]
    NoProducerId {
        /// Why.
        #[source]
        source: Arc<SendError>,
    },
    /// The partition cannot be written to, and waiting does not help: it does not exist, credentials are refused, the
    /// cluster was made read-only.
    #[error("the partition cannot be written")]
    Cluster {
        /// Why.
        #[source]
        source: Arc<SendError>,
    },
    /// The batch cannot be encoded.
    #[error("the batch cannot be encoded")]
    Encode {
        /// Why.
        #[source]
        source: Arc<BuildError>,
    },
    /// The producer was closed, or the runtime is shutting down.
    #[error("the producer is closed")]
    Closed,
}

struct Said<'a>(&'a Option<Arc<str>>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(message) if !message.is_empty() => write!(f, ": {message}"),
            _ => Ok(()),
        }
    }
}

/// How a topic is gone, as the end of a sentence that begins with its name.
struct Gone(TopicId, Option<TopicId>);

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            None => f.write_str("does not exist any more"),
            Some(now) => write!(f, "is another one now: its id was {} and is {now}", self.0),
        }
    }
}

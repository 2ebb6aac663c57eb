use std::sync::Arc;
use std::time::Duration;

use strandline_log::{PublishError, RangeError};
use strandline_tier::codec::EncodeError;
use strandline_tier::{ApplyError, ApplyOutcome, DanglingSegment, ObjectError, RemoteLogSegmentState};

use crate::TopicIdPartition;

/// An event that was written and read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The metadata partition.
    pub metadata_partition: i32,
    /// The event's offset in it.
    pub offset: i64,
    /// What became of it.
    pub outcome: WriteOutcome,
}

/// What every reader made of an event, Java's included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is part of the answers.
    Applied,
    /// It says what was so already: a segment that is known, or the deletion of one that is gone. An update to the state
    /// that a segment is in is `Applied`, as in Kafka's cache: it may bring other custom metadata.
    NoOp,
    /// It changed nothing, since it contradicts what came before it in the log.
    Rejected(Rejection),
}

/// Why readers drop an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The state of the segment does not allow the update.
    #[error("the segment is in state {from}, and cannot go to {to}")]
    InvalidTransition {
        /// The state that the segment is in.
        from: RemoteLogSegmentState,
        /// The state that the update asks for.
        to: RemoteLogSegmentState,
    },
    /// The segment was never announced, or is gone.
    #[error("there is no such segment")]
    UnknownSegment,
    /// Kafka's classes refuse the event.
    #[error("the event is refused")]
    Refused(#[source] ApplyError),
    /// The deletion of the partition was finished before.
    #[error("the partition's deletion was finished before")]
    PartitionDeleted,
}

impl WriteOutcome {
    /// What an index's answer to an event, whose target state is given, means to its writer.
    pub(crate) fn of(applied: Result<ApplyOutcome, ApplyError>, to: Option<RemoteLogSegmentState>) -> Self {
        match applied {
            Ok(ApplyOutcome::Applied) => Self::Applied,
            Ok(ApplyOutcome::AlreadyKnown { .. }) => Self::NoOp,
            Ok(ApplyOutcome::UnknownSegment) | Err(ApplyError::UnknownSegment { .. }) => match to {
                Some(RemoteLogSegmentState::DeleteSegmentFinished) => Self::NoOp,
                _ => Self::Rejected(Rejection::UnknownSegment),
            },
            Ok(ApplyOutcome::InvalidTransition { from, to }) => {
                Self::Rejected(Rejection::InvalidTransition { from, to })
            }
            // A kind of no effect that this crate does not know by name yet.
            Ok(_) => Self::NoOp,
            Err(error) => Self::Rejected(Rejection::Refused(error)),
        }
    }
}

/// An event that is not written, since it would end or mislead the reading of a Java broker, or since no reader would
/// take it. Source: the rules for any other writer to a topic that Kafka's brokers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedWrite {
    /// Kafka's classes refuse such an event, which ends the reading of every broker.
    #[error("no reader accepts such an event")]
    Object(#[from] ObjectError),
    /// The event cannot be written in Kafka's form.
    #[error("the event has no bytes in Kafka's form")]
    Encode(#[from] EncodeError),
    /// A segment is announced in state COPY_SEGMENT_STARTED, and then updated.
    #[error("a segment is announced in state COPY_SEGMENT_STARTED, not {state}")]
    NotStarted {
        /// The event's state.
        state: RemoteLogSegmentState,
    },
    /// No update leads to COPY_SEGMENT_STARTED; on a segment in that state it ends the reading of a broker.
    #[error("no update leads to COPY_SEGMENT_STARTED")]
    UpdateToStarted,
    /// A leader epoch begins beyond the end of the segment: Java's search for a transaction index can go round in it for
    /// ever.
    #[error("leader epoch {epoch} begins at offset {start_offset}, beyond the segment's end at {end_offset}")]
    EpochBeyondEnd {
        /// The leader epoch.
        epoch: i32,
        /// Where it begins.
        start_offset: i64,
        /// The segment's last offset.
        end_offset: i64,
    },
    /// A snapshot has no place in the topic: it ends the reading of every broker.
    #[error("a segment metadata snapshot ends the reading of every broker")]
    Snapshot,
    /// DELETE_PARTITION_FINISHED can end the reading of a broker that holds the partition.
    #[error(
        "DELETE_PARTITION_FINISHED can end the reading of a broker that holds the partition; say that none does to write it"
    )]
    PartitionMayBeHeld,
}

/// A write was not completed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The event must not be written. Correct it.
    #[error("the event must not be written")]
    Refused(#[from] RefusedWrite),
    /// The manager does not serve the partition. Nothing was written; assign it first.
    #[error("user partition {0} is not served here")]
    NotAssigned(Partition),
    /// What was written before had not been read in time. Nothing was written; try again.
    #[error("user partition {partition} was not ready within {waited:.1?}")]
    NotReady {
        /// The user partition.
        partition: Partition,
        /// From the call to the deadline.
        waited: Duration,
    },
    /// The metadata partition is not read any more, so that nothing could be read back. Nothing was written.
    #[error("metadata partition {metadata_partition} is not read any more")]
    ReadingStopped {
        /// The metadata partition.
        metadata_partition: i32,
        /// Why.
        #[source]
        source: Arc<RangeError>,
    },
    /// The event was not acknowledged.
    #[error("the event was not acknowledged")]
    Publish(#[from] PublishError),
    /// The event is in the log and was not read back in time. What becomes of it will show in the answers.
    #[error(
        "the event at offset {offset} of metadata partition {metadata_partition} was not read back within {waited:.1?}"
    )]
    NotReadBack {
        /// The metadata partition.
        metadata_partition: i32,
        /// The event's offset.
        offset: i64,
        /// From the call to the deadline.
        waited: Duration,
    },
    /// The event is in the log, and the manager ceased to serve the partition before it was read back.
    #[error("user partition {partition} ceased to be served before offset {offset} was read back")]
    Unassigned {
        /// The user partition.
        partition: Partition,
        /// The event's offset.
        offset: i64,
    },
    /// The event was acknowledged, and the log was cut or is read anew: whether the event is still there will show in the
    /// answers once the partition is ready again.
    #[error("metadata partition {metadata_partition} is read anew since offset {offset} was acknowledged")]
    ReadAnew {
        /// The metadata partition.
        metadata_partition: i32,
        /// The event's offset.
        offset: i64,
    },
    /// The manager is closed. Nothing was written.
    #[error("the manager is closed")]
    Closed,
}

impl WriteError {
    /// True if the event can be in the log, or is.
    pub fn may_be_written(&self) -> bool {
        match self {
            Self::Publish(error) => error.may_be_written(),
            Self::NotReadBack { .. } | Self::Unassigned { .. } | Self::ReadAnew { .. } => true,
            _ => false,
        }
    }
}

/// A query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The manager does not serve the partition. Kafka answers RemoteResourceNotFoundException.
    #[error("user partition {0} is not served here")]
    NotAssigned(Partition),
    /// What was written before has not all been read yet. Ask again later. Kafka answers ReplicaNotAvailableException.
    #[error("user partition {0} is not ready: its events have not all been read yet")]
    NotReady(Partition),
    /// The list of the epoch names a segment that is gone. Kafka answers RemoteResourceNotFoundException.
    #[error(transparent)]
    Dangling(#[from] DanglingSegment),
}

impl QueryError {
    /// The Java exception that Kafka answers with.
    pub fn kafka_exception(&self) -> &'static str {
        match self {
            Self::NotAssigned(_) | Self::Dangling(_) => "RemoteResourceNotFoundException",
            Self::NotReady(_) => "ReplicaNotAvailableException",
        }
    }
}

/// Partitions cannot be assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssignError {
    /// The manager is closed.
    #[error("the manager is closed")]
    Closed,
}

/// A manager cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The log says that it has no partitions.
    #[error("the metadata log has {partition_count} partitions")]
    NoPartitions {
        /// What it says.
        partition_count: i32,
    },
    /// The directory for snapshots cannot be used. Name another one, or make it writable.
    #[error("the snapshot directory {} cannot be used", dir.display())]
    SnapshotDir {
        /// The directory.
        dir: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another manager uses the directory for snapshots. Two would overwrite each other's.
    #[error("another manager uses the snapshot directory {}", dir.display())]
    SnapshotDirInUse {
        /// The directory.
        dir: std::path::PathBuf,
    },
}

/// A user partition in messages: `orders-0 (vaZwr6blSEWMAbm7z-tW-w)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition(pub TopicIdPartition);

impl std::fmt::Display for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TopicIdPartition { topic, topic_id, partition } = &self.0;
        write!(f, "{topic}-{partition} ({topic_id})")
    }
}

use std::future::Future;

use strandline_tier::{RawPartitionDelete, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentMetadata};
use tokio::time::Instant;

use crate::TopicIdPartition;
use crate::errors::{AssignError, QueryError, WriteError, Written};

/// Keeps the metadata of remote log segments: what a broker with tiered storage writes when it copies and deletes
/// segments, and asks when it reads them.
///
/// Queries and writes are about *user partitions*, those of the tiered topics. A manager knows the ones that it was told
/// to serve, by [`on_partition_leadership_changes`](Self::on_partition_leadership_changes), and answers about one once
/// everything that was written before has been read ([`is_ready`](Self::is_ready)).
///
/// Queries are look-ups in memory. A write ends when its event has been read back, and says what became of it.
///
/// Source: KIP-405, `org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager`.
pub trait RemoteLogMetadataManager {
    /// Announces a segment, whose copy is about to begin. Its state must be COPY_SEGMENT_STARTED.
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::may_be_written`] says whether the event can be in the log all the same.
    ///
    /// # Cancel safety
    /// A dropped call loses the answer, not the event: it may be written or not.
    fn add_remote_log_segment_metadata(
        &self,
        event: RawSegmentMetadata<'static>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Written, WriteError>> + Send;

    /// Announces that a segment is in another state, any but COPY_SEGMENT_STARTED.
    ///
    /// An update that the state of the segment does not allow is written, as Kafka does, and the answer says that its
    /// readers reject it. A deletion without custom metadata is written with that of the segment, since Java's readers
    /// would forget it otherwise.
    ///
    /// # Errors
    /// As [`add_remote_log_segment_metadata`](Self::add_remote_log_segment_metadata).
    ///
    /// # Cancel safety
    /// A dropped call loses the answer, not the event.
    fn update_remote_log_segment_metadata(
        &self,
        event: RawSegmentUpdate<'static>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Written, WriteError>> + Send;

    /// Announces how far the deletion of a whole partition is. After DELETE_PARTITION_FINISHED the manager forgets the
    /// partition and serves it no longer.
    ///
    /// # Errors
    /// As [`add_remote_log_segment_metadata`](Self::add_remote_log_segment_metadata); DELETE_PARTITION_FINISHED is
    /// refused unless `holders` says that no broker holds the partition, because it can end the reading of one that does.
    ///
    /// # Cancel safety
    /// A dropped call loses the answer, not the event.
    fn put_remote_partition_delete_metadata(
        &self,
        event: RawPartitionDelete<'static>,
        holders: PartitionHolders,
        deadline: Instant,
    ) -> impl Future<Output = Result<Written, WriteError>> + Send;

    /// The finished segment that serves `offset` in the leader epoch.
    fn remote_log_segment_metadata(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, QueryError>;

    /// The first segment from `offset` on in the leader epoch that may have aborted transactions: from segment to the
    /// next, until there is a gap or the epoch ends.
    ///
    /// Segments that lead back to themselves are such an end. (Kafka 4.3.1 never returns from that search.)
    fn next_segment_with_txn_index(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, QueryError>;

    /// Highest offset ever copied in the leader epoch, inclusive; `None` before the first copy. Deleting a segment does
    /// not lower it.
    fn highest_offset_for_epoch(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
    ) -> Result<Option<i64>, QueryError>;

    /// Every segment in every state but DELETE_SEGMENT_FINISHED, in no order.
    fn list_remote_log_segments(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, QueryError>;

    /// The segments of a leader epoch in every state but DELETE_SEGMENT_FINISHED, by ascending offset.
    fn list_remote_log_segments_for_epoch(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, QueryError>;

    /// The bytes of all segments that the list of the epoch names, each counted whole.
    fn remote_log_size(&self, partition: &TopicIdPartition, leader_epoch: i32) -> Result<i64, QueryError>;

    /// The broker leads or follows these partitions from now on: the manager begins to serve those that it does not serve
    /// yet. Leaders and followers are treated alike. Returns at once; [`is_ready`](Self::is_ready) tells the rest.
    fn on_partition_leadership_changes(
        &self,
        leaders: &[TopicIdPartition],
        followers: &[TopicIdPartition],
    ) -> Result<(), AssignError>;

    /// The broker has nothing to do with these partitions any more: the manager forgets them.
    fn on_stop_partitions(&self, partitions: &[TopicIdPartition]);

    /// True once everything of the partition has been read that was in the log when the manager began to serve it.
    fn is_ready(&self, partition: &TopicIdPartition) -> bool;
}

/// Whether a broker may hold the partition whose deletion is announced as finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionHolders {
    /// One may: what would end its reading is refused.
    Possible,
    /// The caller knows that the topic is deleted and that every broker has stopped the partition.
    None,
}

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use strandline_protocol::TopicId;
use tokio::time::Instant;

use crate::publish::PublishError;
use crate::range::{MetadataRange, PartitionMarks, RangeError, RangeVisit};
use crate::record::MetadataEventVisitor;
use crate::subscription::{MetadataEventQueueCapacity, MetadataEventSubscription};

/// The metadata topic, as a log of events that somebody else keeps: a cluster, or a broker's disk.
///
/// Every future may be dropped: the reading ends, and with it go the visitors that were handed over.
pub trait MetadataEventLog {
    /// The number of metadata partitions. The log owns this number; a configured one never overrides it.
    fn partition_count(&self) -> i32;

    /// The offsets that each partition holds, one answer per partition in ascending order.
    ///
    /// A partition that cannot tell does not keep the others from answering.
    fn high_water_marks(&self) -> impl Future<Output = Vec<Result<PartitionMarks, RangeError>>> + Send;

    /// Visits the records of one range, in order. Of an empty range nobody is asked.
    fn visit_range<V: MetadataEventVisitor + 'static>(
        &self,
        range: MetadataRange,
        visitor: V,
    ) -> impl Future<Output = RangeVisit<V>> + Send;

    /// Visits many ranges, several at once, each in order and with its own visitor. Answers come in the order of
    /// the ranges. A range that fails does not end the others.
    fn visit_ranges<V: MetadataEventVisitor + 'static>(
        &self,
        ranges: Vec<(MetadataRange, V)>,
    ) -> impl Future<Output = Vec<RangeVisit<V>>> + Send;

    /// Ends everything that the log keeps running, and returns when it has ended.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A metadata log that goes on: it can be followed from an offset, and appended to. A disk is none.
///
/// One suite of behaviours (`tests/behaviours` of this crate) holds every form of it to this contract. Clones are
/// cheap and share everything.
pub trait LiveMetadataEventLog: MetadataEventLog + Clone + Send + Sync + 'static {
    /// Which topic of which cluster this is. What was kept from another one must not be used here.
    fn identity(&self) -> MetadataLogIdentity;

    /// Appends one event to the metadata partition that the caller names, and gives the record's offset once every
    /// in-sync replica has it. The key is null and there are no headers, as Kafka's brokers write.
    ///
    /// What the bytes mean is not looked at. Some end the reading of every Java broker; the remote log metadata manager
    /// refuses to write those.
    ///
    /// # Errors
    /// [`PublishError`]; [`PublishError::may_be_written`] says whether the event can be in the log all the same.
    ///
    /// # Cancel safety
    /// A dropped call loses the answer, not the event: it may be appended or not.
    fn publish(
        &self,
        partition: i32,
        value: Bytes,
        deadline: Instant,
    ) -> impl Future<Output = Result<i64, PublishError>> + Send;

    /// A subscription without partitions, to which [its assignment](MetadataEventSubscription::assignment) adds some.
    ///
    /// Every record from the offset named at [`add`](crate::MetadataAssignment::add) on is delivered once, in order. A
    /// slow subscriber is held back, never skipped. Must be called within a tokio runtime.
    fn subscribe(&self, capacity: MetadataEventQueueCapacity) -> MetadataEventSubscription;
}

/// Which topic of which cluster a log is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetadataLogIdentity {
    /// The cluster's id; `None` from brokers that tell none.
    pub cluster_id: Option<Arc<str>>,
    /// The topic's id; `None` from brokers older than Kafka 2.8.
    pub topic_id: Option<TopicId>,
    /// The number of metadata partitions.
    pub partition_count: i32,
}

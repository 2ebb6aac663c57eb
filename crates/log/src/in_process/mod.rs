//! The metadata event log on a topic in memory, with the contract of the one on a cluster.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::event_log::{LiveMetadataEventLog, MetadataEventLog, MetadataLogIdentity};
use crate::publish::{FRAME_BYTES_MAX, PublishError};
use crate::range::{MetadataRange, PartitionMarks, RangeError, RangeOutcome, RangeVisit};
use crate::record::MetadataEventVisitor;
use crate::subscription::{
    MetadataEventQueueCapacity, MetadataEventSubscription, PartitionSink, PartitionSource, ReadingState,
    Subscriptions,
};

mod topic;

pub use topic::{InProcessMetadataTopic, InProcessRecord};

/// The most bytes of a value: Kafka's default of `max.message.bytes`, less what a batch of one record adds.
const VALUE_BYTES_MAX: usize = 1_048_588 - FRAME_BYTES_MAX;

/// Records that are taken out of the topic in one go.
const PAGE_RECORDS: usize = 256;

/// A log on an [`InProcessMetadataTopic`]. Clones are cheap and share everything.
#[derive(Clone, Debug)]
pub struct InProcessMetadataEventLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    topic: InProcessMetadataTopic,
    writable: bool,
    closed: AtomicBool,
    subscriptions: Subscriptions,
}

impl InProcessMetadataEventLog {
    fn new(topic: InProcessMetadataTopic, writable: bool) -> Self {
        let (closed, subscriptions) = (AtomicBool::new(false), Subscriptions::default());
        Self { shared: Arc::new(Shared { topic, writable, closed, subscriptions }) }
    }

    /// The topic that it is opened on.
    pub fn topic(&self) -> &InProcessMetadataTopic {
        &self.shared.topic
    }

    fn read_range(
        &self,
        range: MetadataRange,
        visitor: &mut impl MetadataEventVisitor,
        outcome: &mut RangeOutcome,
    ) -> Result<(), RangeError> {
        let topic = &self.shared.topic;
        let MetadataRange { partition, from, to } = range;
        if from >= to {
            return Ok(());
        }
        let marks = topic.marks(partition)?;
        let (log_start_offset, end_offset) = (marks.log_start_offset, marks.high_watermark);
        let outside =
            |offset| RangeError::OffsetOutOfRange { partition, offset, log_start_offset, end_offset };
        if from < log_start_offset || from > end_offset {
            return Err(outside(from));
        }
        if to > end_offset {
            return Err(outside(to));
        }
        let mut position = topic.position(partition, from)?;
        while position.next_offset < to {
            let page = topic.page(partition, position, to, PAGE_RECORDS)?;
            outcome.batches += 1;
            for record in &page.records {
                outcome.records += 1;
                outcome.bytes += record.value.as_ref().map_or(0, Bytes::len) as u64;
                outcome.next_offset = record.offset + 1;
                if visitor.visit(&record.as_record()) == ControlFlow::Break(()) {
                    outcome.stopped = true;
                    return Ok(());
                }
            }
            position = page.position;
            outcome.next_offset = position.next_offset;
        }
        Ok(())
    }
}

impl MetadataEventLog for InProcessMetadataEventLog {
    fn partition_count(&self) -> i32 {
        self.shared.topic.partition_count()
    }

    async fn high_water_marks(&self) -> Vec<Result<PartitionMarks, RangeError>> {
        (0..self.partition_count()).map(|partition| self.shared.topic.marks(partition)).collect()
    }

    async fn visit_range<V: MetadataEventVisitor + 'static>(
        &self,
        range: MetadataRange,
        mut visitor: V,
    ) -> RangeVisit<V> {
        let mut outcome = RangeOutcome { next_offset: range.from, ..RangeOutcome::default() };
        let error = self.read_range(range, &mut visitor, &mut outcome).err();
        RangeVisit { range, visitor, outcome, error }
    }

    async fn visit_ranges<V: MetadataEventVisitor + 'static>(
        &self,
        ranges: Vec<(MetadataRange, V)>,
    ) -> Vec<RangeVisit<V>> {
        let mut visits = Vec::with_capacity(ranges.len());
        for (range, visitor) in ranges {
            visits.push(self.visit_range(range, visitor).await);
            // There is nothing to wait for here; who waits for others must not wait for all of this.
            tokio::task::yield_now().await;
        }
        visits
    }

    async fn close(self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.subscriptions.close().await;
    }
}

impl LiveMetadataEventLog for InProcessMetadataEventLog {
    fn identity(&self) -> MetadataLogIdentity {
        self.shared.topic.identity().clone()
    }

    async fn publish(&self, partition: i32, value: Bytes, _: Instant) -> Result<i64, PublishError> {
        let partition_count = self.partition_count();
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(PublishError::Closed);
        }
        if !self.shared.writable {
            return Err(PublishError::ReadOnly);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(PublishError::TooLarge { bytes: value.len(), bytes_max: Some(VALUE_BYTES_MAX) });
        }
        let record = InProcessRecord { value: Some(value), ..InProcessRecord::default() };
        let offset = self.shared.topic.append(partition, record);
        offset.ok_or(PublishError::NoSuchPartition { partition, partition_count })
    }

    fn subscribe(&self, capacity: MetadataEventQueueCapacity) -> MetadataEventSubscription {
        let source = Arc::new(Follower { topic: self.shared.topic.clone() });
        self.shared.subscriptions.open(source, capacity)
    }
}

#[derive(Debug)]
struct Follower {
    topic: InProcessMetadataTopic,
}

impl PartitionSource for Follower {
    fn partition_count(&self) -> i32 {
        self.topic.partition_count()
    }

    fn follow(&self, partition: i32, from: i64, sink: PartitionSink) -> BoxFuture<'static, RangeError> {
        let topic = self.topic.clone();
        async move {
            match follow(&topic, partition, from, &sink).await {
                Err(error) => error,
                Ok(never) => match never {},
            }
        }
        .boxed()
    }
}

async fn follow(
    topic: &InProcessMetadataTopic,
    partition: i32,
    from: i64,
    sink: &PartitionSink,
) -> Result<std::convert::Infallible, RangeError> {
    let mut position = topic.position(partition, from)?;
    let mut changes = topic.changes(partition).ok_or(RangeError::NoSuchPartition { partition })?;
    loop {
        changes.borrow_and_update();
        let page = topic.page(partition, position, i64::MAX, PAGE_RECORDS)?;
        sink.log_end(page.log_end_offset);
        sink.state(ReadingState::Fetching);
        let mut delivered = position.next_offset;
        for record in page.records {
            delivered = record.offset + 1;
            sink.record(record).await;
        }
        let moved = page.position.next_offset > position.next_offset;
        position = page.position;
        if position.next_offset > delivered {
            sink.advanced(position.next_offset);
        }
        // The topic, and with it the sender, lives as long as this reading.
        if !moved && changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

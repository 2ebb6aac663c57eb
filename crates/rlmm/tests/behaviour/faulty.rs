//! A log that does what a cluster does on a bad day: answers late, not at all, or with an error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use strandline_log::{
    InProcessMetadataEventLog, InProcessMetadataTopic, LiveMetadataEventLog, MetadataEventLog,
    MetadataEventQueueCapacity, MetadataEventSubscription, MetadataEventVisitor, MetadataLogIdentity,
    MetadataRange, PartitionMarks, PublishError, RangeError, RangeOutcome, RangeVisit,
};
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) struct FaultyLog {
    inner: InProcessMetadataEventLog,
    pub(crate) faults: Arc<Faults>,
}

pub(crate) struct Faults {
    /// Ranges are read while this is true.
    pub(crate) ranges: watch::Sender<bool>,
    /// Acknowledgements come while this is true.
    pub(crate) acknowledgements: watch::Sender<bool>,
    /// What subscribers follow in place of the topic.
    follow: Mutex<Option<InProcessMetadataEventLog>>,
    /// So often the marks of a partition cannot be had.
    marks_failures: Mutex<HashMap<i32, usize>>,
    /// So often a range of a partition cannot be read beyond one record.
    range_failures: Mutex<HashMap<i32, usize>>,
    /// Every range asked for.
    pub(crate) visited: Mutex<Vec<MetadataRange>>,
    /// Published events are lost together with their acknowledgement, or with it alone.
    pub(crate) publish_error: Mutex<Option<bool>>,
}

impl FaultyLog {
    pub(crate) fn new(topic: &InProcessMetadataTopic) -> Self {
        let faults = Faults {
            ranges: watch::Sender::new(true),
            acknowledgements: watch::Sender::new(true),
            follow: Mutex::default(),
            marks_failures: Mutex::default(),
            range_failures: Mutex::default(),
            visited: Mutex::default(),
            publish_error: Mutex::default(),
        };
        Self { inner: topic.open(), faults: Arc::new(faults) }
    }

    /// Subscribers hear nothing, although the log grows.
    pub(crate) fn deaf(self) -> Self {
        let silence = InProcessMetadataTopic::with_partitions(self.inner.partition_count()).open();
        *self.faults.follow.lock().unwrap() = Some(silence);
        self
    }

    pub(crate) fn fail_marks(&self, partition: i32, times: usize) {
        self.faults.marks_failures.lock().unwrap().insert(partition, times);
    }

    pub(crate) fn fail_ranges(&self, partition: i32, times: usize) {
        self.faults.range_failures.lock().unwrap().insert(partition, times);
    }
}

fn fails(failures: &Mutex<HashMap<i32, usize>>, partition: i32) -> bool {
    let mut failures = failures.lock().unwrap();
    let left = failures.entry(partition).or_default();
    let fails = *left > 0;
    *left = left.saturating_sub(1);
    fails
}

async fn open(gate: &watch::Sender<bool>) {
    gate.subscribe().wait_for(|open| *open).await.unwrap();
}

fn deadline_error(partition: i32, next_offset: i64) -> RangeError {
    RangeError::Deadline { partition, next_offset, waited: std::time::Duration::ZERO, source: None }
}

impl MetadataEventLog for FaultyLog {
    fn partition_count(&self) -> i32 {
        self.inner.partition_count()
    }

    async fn high_water_marks(&self) -> Vec<Result<PartitionMarks, RangeError>> {
        let mut marks = self.inner.high_water_marks().await;
        for (partition, mark) in (0..).zip(&mut marks) {
            if fails(&self.faults.marks_failures, partition) {
                *mark = Err(deadline_error(partition, 0));
            }
        }
        marks
    }

    async fn visit_range<V: MetadataEventVisitor + 'static>(
        &self,
        range: MetadataRange,
        visitor: V,
    ) -> RangeVisit<V> {
        self.faults.visited.lock().unwrap().push(range);
        open(&self.faults.ranges).await;
        if !fails(&self.faults.range_failures, range.partition) {
            return self.inner.visit_range(range, visitor).await;
        }
        let first = MetadataRange { to: range.from + 1, ..range };
        let visit = self.inner.visit_range(first, visitor).await;
        let error = Some(deadline_error(range.partition, visit.outcome.next_offset));
        RangeVisit { range, error, outcome: RangeOutcome { ..visit.outcome }, ..visit }
    }

    async fn visit_ranges<V: MetadataEventVisitor + 'static>(
        &self,
        ranges: Vec<(MetadataRange, V)>,
    ) -> Vec<RangeVisit<V>> {
        let mut visits = Vec::new();
        for (range, visitor) in ranges {
            visits.push(self.visit_range(range, visitor).await);
        }
        visits
    }

    async fn close(self) {
        self.inner.close().await;
    }
}

impl LiveMetadataEventLog for FaultyLog {
    fn identity(&self) -> MetadataLogIdentity {
        self.inner.identity()
    }

    async fn publish(&self, partition: i32, value: Bytes, deadline: Instant) -> Result<i64, PublishError> {
        let unknown = || PublishError::Unknown { partition, waited: std::time::Duration::ZERO, source: None };
        let error = *self.faults.publish_error.lock().unwrap();
        if error == Some(true) {
            return Err(PublishError::NotWritten {
                partition,
                waited: std::time::Duration::ZERO,
                source: None,
            });
        }
        let offset = self.inner.publish(partition, value, deadline).await?;
        if error == Some(false) {
            return Err(unknown());
        }
        open(&self.faults.acknowledgements).await;
        Ok(offset)
    }

    fn subscribe(&self, capacity: MetadataEventQueueCapacity) -> MetadataEventSubscription {
        match &*self.faults.follow.lock().unwrap() {
            Some(other) => other.subscribe(capacity),
            None => self.inner.subscribe(capacity),
        }
    }
}

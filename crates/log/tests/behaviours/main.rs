//! What every live form of the metadata event log does: one suite, run on each form.
//!
//! A form joins with a [`Form`] and a line in `suite.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apache_kafka;
mod embedded_kafka;
mod in_process;
mod markers;
mod model;
mod suite;
#[path = "../support/mod.rs"]
mod support;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use strandline_log::{
    LiveMetadataEventLog, MetadataDelivery, MetadataEventQueueCapacity, MetadataEventSubscription,
};
use tokio::time::{Instant, timeout};

/// A topic that a form of the log is opened on, and what befalls it.
pub(crate) trait Form: Sized {
    type Log: LiveMetadataEventLog;

    /// Behaviours that cannot be shown on this form, and why.
    const CANNOT: &'static [(&'static str, &'static str)] = &[];

    async fn new(partition_count: i32) -> Self;
    async fn open(&self) -> Self::Log;
    async fn open_read_only(&self) -> Self::Log;
    /// Puts offsets into a partition that hold no event, as control batches and compaction do.
    async fn leave_offsets_without_events(&self, partition: i32, count: u32);
    /// Deletes everything below an offset, as retention does.
    async fn advance_log_start(&self, partition: i32, offset: i64);
    /// Cuts a partition at an offset, under a new leader epoch, as an unclean election does.
    async fn truncate(&self, partition: i32, offset: i64);
}

/// Far longer than anything here takes; a test that waits for something that never comes fails with it.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("nothing happened: {what}"))
}

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Publishes `from..to` as texts into a partition, and expects offsets without gaps.
pub(crate) async fn publish(log: &impl LiveMetadataEventLog, partition: i32, events: std::ops::Range<i64>) {
    for event in events {
        let offset = log.publish(partition, event.to_string().into(), soon()).await.unwrap();
        assert_eq!(offset, event, "offset of event {event} of partition {partition}");
    }
}

pub(crate) fn capacity(records: usize, bytes: u32) -> MetadataEventQueueCapacity {
    MetadataEventQueueCapacity { records: records.try_into().unwrap(), bytes: bytes.try_into().unwrap() }
}

/// The next `count` records, as `partition@offset=value`; anything else that comes is an error.
pub(crate) async fn records(events: &mut MetadataEventSubscription, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        match within("the next record", events.next()).await {
            // The marker of a transaction.
            Some(MetadataDelivery::Record { record, .. }) if record.control => {}
            Some(MetadataDelivery::Record { record, .. }) => {
                let value = String::from_utf8(record.value.as_deref().unwrap().to_vec()).unwrap();
                seen.push(format!("{}@{}={value}", record.partition, record.offset));
            }
            Some(MetadataDelivery::Advanced { .. }) => {}
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    seen
}

pub(crate) fn expected(partition: i32, events: std::ops::Range<i64>) -> Vec<String> {
    events.map(|event| format!("{partition}@{event}={event}")).collect()
}

/// The error with which a partition stops; its records before that are passed over.
pub(crate) async fn stop(events: &mut MetadataEventSubscription, partition: i32) -> String {
    loop {
        match within("the stop", events.next()).await {
            Some(MetadataDelivery::Stopped { partition: stopped, error, .. }) if stopped == partition => {
                return error.to_string();
            }
            Some(_) => {}
            None => panic!("the subscription is closed"),
        }
    }
}

/// Waits until the queue holds something that the condition is true of.
pub(crate) async fn until(
    events: &MetadataEventSubscription,
    what: &str,
    condition: impl Fn(&[strandline_log::AssignedMetadataPartition]) -> bool,
) {
    let assignment = events.assignment();
    within(what, async {
        while !condition(&assignment.list()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) fn bytes(length: usize) -> Bytes {
    vec![b'x'; length].into()
}

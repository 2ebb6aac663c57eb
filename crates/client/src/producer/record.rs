//! A record on its way, and its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::errors::{Outcome, ProduceError, ProduceErrorKind};

/// A record to be written. The partition is the caller's choice, and is never changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProducerRecord<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Partition number.
    pub partition: i32,
    /// Milliseconds since 1970; `None` for the time of acceptance.
    pub timestamp_ms: Option<i64>,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, which is a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers: key and value, `None` being null.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// What a record takes of the producer's memory beside its own bytes: its frame, and who waits for its answer.
const RECORD_OVERHEAD: usize = 128;
const HEADER_OVERHEAD: usize = 8;

impl ProducerRecord<'_> {
    /// What it counts against [`buffer_memory`](super::ProducerConfig::buffer_memory).
    pub fn memory_bytes(&self) -> usize {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let headers = self.headers.iter().map(|(key, value)| key.len() + length(*value) + HEADER_OVERHEAD);
        RECORD_OVERHEAD + length(self.key) + length(self.value) + headers.sum::<usize>()
    }
}

/// Where a record lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
    /// The record's offset.
    pub offset: i64,
    /// When the broker appended it, in milliseconds since 1970; `None` where the topic keeps the producer's timestamps.
    pub log_append_time_ms: Option<i64>,
}

/// The answer to one accepted record, which comes within [`delivery_timeout`](super::ProducerConfig::delivery_timeout).
///
/// # Cancel safety
/// Dropping it loses the answer; the record is delivered all the same.
#[derive(Debug)]
#[must_use = "only the answer tells whether the record was written"]
pub struct Delivery {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<Result<RecordMetadata, ProduceError>>,
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, ProduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map(|answer| {
            // The producer answers before it ends, whatever ends it; this is for the compiler.
            let (topic, partition) = (Arc::clone(&self.topic), self.partition);
            let gone =
                ProduceError { topic, partition, outcome: Outcome::Unknown, kind: ProduceErrorKind::Closed };
            answer.unwrap_or(Err(gone))
        })
    }
}

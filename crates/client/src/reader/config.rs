//! How a partition is read, and from where.

use std::time::Duration;

use crate::admin::Isolation;

/// A place in a partition, between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPosition {
    /// The first offset not read.
    pub next_offset: i64,
    /// The leader epoch of what was read last, by which a leader tells whether its log still holds that (KIP-320);
    /// `None` where nothing was read, which nobody can check.
    pub leader_epoch: Option<i32>,
}

impl ReadPosition {
    /// An offset of which nothing else is known.
    pub fn at(next_offset: i64) -> Self {
        Self { next_offset, leader_epoch: None }
    }
}

/// How a partition is read.
#[derive(Clone, Copy, Debug)]
pub struct ReaderConfig {
    /// Whether records of open and aborted transactions are given out. Default: all are.
    pub isolation: Isolation,
    /// Fewer bytes than these, from 1 on, and the broker waits for more. Default 1, as Kafka's `fetch.min.bytes`.
    pub min_bytes: i32,
    /// Most bytes of one answer, except for a batch that alone is larger. Default 1 MiB, as Kafka's
    /// `max.partition.fetch.bytes`.
    pub max_bytes: i32,
    /// How long a broker may wait for `min_bytes`. Default 500 ms, as Kafka's `fetch.max.wait.ms`.
    pub max_wait: Duration,
    /// Most bytes that the records of one batch may become. Default 64 MiB, as the decompressor's.
    pub decompressed_bytes_max: usize,
    /// Longest wait for one answer beyond the broker's own waiting. Default 30 s, as Kafka's `request.timeout.ms`.
    pub request_timeout: Duration,
    /// The first wait after a failure; it doubles up to eight times this, and has jitter. Default 100 ms, as Kafka's
    /// `retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// Makes the jitter repeatable.
    pub jitter_seed: Option<u64>,
}

impl Default for ReaderConfig {
    fn default() -> Self {
        Self {
            isolation: Isolation::ReadUncommitted,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_wait: Duration::from_millis(500),
            decompressed_bytes_max: strandline_protocol::records::DEFAULT_DECOMPRESSED_BYTES_MAX,
            request_timeout: strandline_meta::DEFAULT_REQUEST_TIMEOUT,
            retry_backoff: Duration::from_millis(100),
            jitter_seed: None,
        }
    }
}

//! How a producer batches, waits and gives up.

use std::time::Duration;

pub use strandline_protocol::records::Compression;

/// The default of [`ProducerConfig::batch_size`]: below a broker's own default limit of a batch (`max.message.bytes`, 1 048 588).
pub const DEFAULT_BATCH_SIZE: usize = 1_000_000;
/// The default of [`ProducerConfig::max_request_size`].
pub const DEFAULT_MAX_REQUEST_SIZE: usize = 8 << 20;
/// The default of [`ProducerConfig::buffer_memory`]: that of Kafka's `buffer.memory`.
pub const DEFAULT_BUFFER_MEMORY: usize = 32 << 20;
/// The default of [`ProducerConfig::delivery_timeout`]: that of Kafka's `delivery.timeout.ms`.
pub const DEFAULT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(120);
/// The default of [`ProducerConfig::max_in_flight_requests`]: that of Kafka's `max.in.flight.requests.per.connection`.
pub const DEFAULT_MAX_IN_FLIGHT_REQUESTS: usize = 5;

/// How a [`Producer`](super::Producer) batches, waits and gives up. Idempotence and acks=all are not a matter of choice, and how
/// long one broker is waited for is the [cluster's](strandline_meta::ClusterConfig::request_timeout).
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// How long a record may wait for others to share its batch, as Kafka's `linger.ms`. Records always share a batch
    /// while an earlier one of their partition is under way, so zero, the default, batches under load all the same.
    pub linger: Duration,
    /// Most bytes of a batch before compression, as Kafka's `batch.size`; a record that is larger has a batch of its own.
    /// Default [`DEFAULT_BATCH_SIZE`].
    pub batch_size: usize,
    /// Most bytes of the batches in one Produce request, before compression; a batch that is larger goes alone. Default
    /// [`DEFAULT_MAX_REQUEST_SIZE`].
    pub max_request_size: usize,
    /// Most bytes of records that are accepted and not answered, as Kafka's `buffer.memory`, at most 4 GiB; beyond it
    /// [`send`](super::Producer::send) waits. What is under way to a broker exists once more, encoded. Default
    /// [`DEFAULT_BUFFER_MEMORY`].
    pub buffer_memory: usize,
    /// How batches are compressed. Default: not at all.
    pub compression: Compression,
    /// The time from acceptance within which each record has its answer, as Kafka's `delivery.timeout.ms`. A record that
    /// joins a batch counts with that batch, and has half of this at least. Default [`DEFAULT_DELIVERY_TIMEOUT`].
    pub delivery_timeout: Duration,
    /// Most Produce requests under way to one broker. Of one partition never more than one batch is. Default
    /// [`DEFAULT_MAX_IN_FLIGHT_REQUESTS`].
    pub max_in_flight_requests: usize,
    /// The wait after a failure; it doubles up to [`retry_backoff_max`](Self::retry_backoff_max), and has jitter. Default
    /// 100 ms, as Kafka's `retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// The longest such wait. Default 1 s, as Kafka's `retry.backoff.max.ms`.
    pub retry_backoff_max: Duration,
    /// Makes the jitter repeatable.
    pub jitter_seed: Option<u64>,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            linger: Duration::ZERO,
            batch_size: DEFAULT_BATCH_SIZE,
            max_request_size: DEFAULT_MAX_REQUEST_SIZE,
            buffer_memory: DEFAULT_BUFFER_MEMORY,
            compression: Compression::None,
            delivery_timeout: DEFAULT_DELIVERY_TIMEOUT,
            max_in_flight_requests: DEFAULT_MAX_IN_FLIGHT_REQUESTS,
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            jitter_seed: None,
        }
    }
}

/// A setting with which no record could be delivered. Correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the producer's {setting} is {value}; {needed}")]
pub struct ProducerConfigError {
    /// The field of [`ProducerConfig`].
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What it has to be.
    pub needed: &'static str,
}

impl ProducerConfig {
    pub(super) fn check(&self) -> Result<(), ProducerConfigError> {
        let refuse = |setting, value: String, needed| Err(ProducerConfigError { setting, value, needed });
        for (setting, value) in [
            ("batch_size", self.batch_size),
            ("max_request_size", self.max_request_size),
            ("buffer_memory", self.buffer_memory),
            ("max_in_flight_requests", self.max_in_flight_requests),
        ] {
            if value == 0 {
                return refuse(setting, value.to_string(), "it must be above zero");
            }
        }
        for (setting, value) in [("batch_size", self.batch_size), ("max_request_size", self.max_request_size)]
        {
            if value > i32::MAX as usize / 2 {
                return refuse(
                    setting,
                    value.to_string(),
                    "a request cannot exceed 2 GiB, so it must be below 1 GiB",
                );
            }
        }
        if u32::try_from(self.buffer_memory).is_err() {
            return refuse("buffer_memory", self.buffer_memory.to_string(), "it must be at most 4 GiB");
        }
        if self.delivery_timeout <= self.linger {
            let value = format!("{:?}", self.delivery_timeout);
            return refuse("delivery_timeout", value, "it must be above linger, or nothing is ever sent");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_accepted_and_a_setting_with_which_nothing_could_be_sent_is_named() {
        let with = |change: fn(&mut ProducerConfig)| {
            let mut config = ProducerConfig::default();
            change(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(with(|_| ()), Ok(()));
        let refused = |change| with(change).unwrap_err();
        insta::assert_snapshot!(
            [
                refused(|config| config.batch_size = 0),
                refused(|config| config.max_request_size = 3 << 30),
                refused(|config| config.buffer_memory = 5 << 30),
                refused(|config| config.linger = DEFAULT_DELIVERY_TIMEOUT),
            ]
            .join("\n"),
            @r"
        the producer's batch_size is 0; it must be above zero
        the producer's max_request_size is 3221225472; a request cannot exceed 2 GiB, so it must be below 1 GiB
        the producer's buffer_memory is 5368709120; it must be at most 4 GiB
        the producer's delivery_timeout is 120s; it must be above linger, or nothing is ever sent
        "
        );
    }
}

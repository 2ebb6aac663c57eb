//! How the metadata topic is made, read and written.

use std::num::NonZeroUsize;
use std::time::Duration;

use strandline_client::admin::is_topic_name;
use strandline_client::producer::ProducerConfig;

use crate::record::METADATA_TOPIC;

/// Most bytes of one partition in one Fetch answer: 1 MiB, some 6 400 events of 163 bytes. A larger batch comes whole.
pub const DEFAULT_METADATA_FETCH_MAX_BYTES: i32 = 1 << 20;

/// Longest wait of a broker that has nothing new: two requests a second for an idle partition.
pub const DEFAULT_METADATA_FETCH_MAX_WAIT: Duration = Duration::from_millis(500);

/// The first back-off after an answer that asks for patience; it doubles up to eight times this.
pub const DEFAULT_METADATA_FETCH_RETRY_BACKOFF: Duration = Duration::from_millis(200);

/// How long the brokers may take to create the topic before they are asked again.
pub const DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Replicas that must have an event before it counts as written.
///
/// Source: the default of `remote.log.metadata.topic.min.isr` in Kafka's `TopicBasedRemoteLogMetadataManagerConfig`.
pub const DEFAULT_MIN_ISR: i16 = 2;

/// Metadata partitions of a topic that is created.
///
/// Source: the default of `remote.log.metadata.topic.num.partitions` in Kafka's `TopicBasedRemoteLogMetadataManagerConfig`.
pub const DEFAULT_NUM_PARTITIONS: i32 = 50;

/// Replicas of each metadata partition.
///
/// Source: the default of `remote.log.metadata.topic.replication.factor` in Kafka's `TopicBasedRemoteLogMetadataManagerConfig`.
pub const DEFAULT_REPLICATION: i16 = 3;

/// Over which connections assigned partitions are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchConnections {
    /// One for each assigned partition.
    PerPartition,
    /// One for each leader, with a fetch session (KIP-227) for all assigned partitions that it leads: for 50 partitions on
    /// three brokers 3 connections instead of 50, and a fifteenth of the requests while nothing happens. A session that is not
    /// needed any more is not ended by name: the leader drops it when it needs the room.
    PerLeader,
}

/// What is done where the topic is there already and is not as the configuration would have created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnDeviation {
    /// The log does not start; the error names every deviation, and what could not be checked.
    Strict,
    /// The log starts, and the deviations are logged as a warning.
    Warn,
    /// The log starts without a word.
    Adopt,
}

/// How the metadata topic of a cluster is made, read and written.
#[derive(Clone, Debug)]
pub struct KafkaMetadataLogConfig {
    /// The topic's name. Default [`METADATA_TOPIC`].
    pub topic: String,
    /// Whether a topic that is not there is created; if not, a start fails without it. Default true.
    pub create_topic: bool,
    /// Metadata partitions of a topic that is created; one that is there keeps its own. Default [`DEFAULT_NUM_PARTITIONS`].
    pub num_partitions: i32,
    /// Replicas of each metadata partition. Default [`DEFAULT_REPLICATION`].
    pub replication: i16,
    /// Replicas that must have an event before it counts as written (`min.insync.replicas`). Default [`DEFAULT_MIN_ISR`].
    pub min_isr: i16,
    /// What is done where the topic is there already and is otherwise. Default [`OnDeviation::Warn`].
    pub on_deviation: OnDeviation,
    /// How long the brokers may take to create the topic before they are asked again. Default
    /// [`DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT`].
    pub topic_create_timeout: Duration,
    /// How events are written. An event's own deadline comes first where it is sooner than the delivery timeout.
    pub producer: ProducerConfig,
    /// Over which connections assigned partitions are followed. Default [`FetchConnections::PerLeader`].
    pub fetch_connections: FetchConnections,
    /// Most bytes of one partition in one answer, for all but a batch that alone is larger. Default
    /// [`DEFAULT_METADATA_FETCH_MAX_BYTES`].
    pub fetch_max_bytes: i32,
    /// Most bytes of one answer over all partitions. Default 4 MiB, which measured fastest from a broker on the same
    /// machine: larger answers leave the caches before they are walked. At most eight answers are held at a time.
    pub answer_max_bytes: i32,
    /// How long a broker may wait for records. Default [`DEFAULT_METADATA_FETCH_MAX_WAIT`].
    pub fetch_max_wait: Duration,
    /// The first back-off. Default [`DEFAULT_METADATA_FETCH_RETRY_BACKOFF`].
    pub retry_backoff: Duration,
    /// Dedicated connections to each leader, over which the partitions of a range read are spread. Default 2.
    pub connections_per_leader: NonZeroUsize,
    /// Longest wait for one answer, beyond the broker's own waiting. Default 30 s, as Kafka's `request.timeout.ms`.
    pub request_timeout: Duration,
    /// How long a range may stay where it is before the reading gives it up. Default 60 s, in which a leader has moved.
    pub stall_timeout: Duration,
    /// How long one call may read. Default 1 h.
    pub read_timeout: Duration,
}

impl Default for KafkaMetadataLogConfig {
    fn default() -> Self {
        Self {
            topic: METADATA_TOPIC.to_owned(),
            create_topic: true,
            num_partitions: DEFAULT_NUM_PARTITIONS,
            replication: DEFAULT_REPLICATION,
            min_isr: DEFAULT_MIN_ISR,
            on_deviation: OnDeviation::Warn,
            topic_create_timeout: DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT,
            producer: ProducerConfig::default(),
            fetch_connections: FetchConnections::PerLeader,
            fetch_max_bytes: DEFAULT_METADATA_FETCH_MAX_BYTES,
            answer_max_bytes: 4 << 20,
            fetch_max_wait: DEFAULT_METADATA_FETCH_MAX_WAIT,
            retry_backoff: DEFAULT_METADATA_FETCH_RETRY_BACKOFF,
            connections_per_leader: const { NonZeroUsize::new(2).expect("2 is not zero") },
            request_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            read_timeout: Duration::from_secs(3600),
        }
    }
}

/// A setting with which no metadata log can work. Correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metadata log's {setting} is {value}; {needed}")]
pub struct MetadataLogConfigError {
    /// The field of [`KafkaMetadataLogConfig`].
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What it has to be.
    pub needed: &'static str,
}

/// What a timeout on the wire can hold.
const WIRE_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

impl KafkaMetadataLogConfig {
    pub(super) fn check(&self) -> Result<(), MetadataLogConfigError> {
        let refuse = |setting, value, needed| Err(MetadataLogConfigError { setting, value, needed });
        let name = &self.topic;
        if !is_topic_name(name) {
            let needed = "it must be 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'";
            return refuse("topic", format!("{name:?}"), needed);
        }
        for (setting, value) in [
            ("num_partitions", self.num_partitions),
            ("replication", self.replication.into()),
            ("min_isr", self.min_isr.into()),
            ("fetch_max_bytes", self.fetch_max_bytes),
            ("answer_max_bytes", self.answer_max_bytes),
        ] {
            if value < 1 {
                return refuse(setting, value.to_string(), "it must be above zero");
            }
        }
        if self.min_isr > self.replication {
            let needed = "it must not exceed replication, or nothing can ever be written";
            return refuse("min_isr", self.min_isr.to_string(), needed);
        }
        for (setting, value) in [
            ("topic_create_timeout", self.topic_create_timeout),
            ("fetch_max_wait", self.fetch_max_wait),
            ("retry_backoff", self.retry_backoff),
            ("request_timeout", self.request_timeout),
            ("stall_timeout", self.stall_timeout),
            ("read_timeout", self.read_timeout),
        ] {
            if value.is_zero() || value > WIRE_TIMEOUT_MAX {
                return refuse(setting, format!("{value:?}"), "it must be above zero and below 24 days");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_accepted_and_a_setting_with_which_nothing_works_is_named() {
        let with = |change: fn(&mut KafkaMetadataLogConfig)| {
            let mut config = KafkaMetadataLogConfig::default();
            change(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|config| (config.replication, config.min_isr) = (1, 1)), Ok(()));
        let refused = |change| with(change).unwrap_err();
        insta::assert_snapshot!(
            [
                refused(|config| config.topic.clear()),
                refused(|config| config.topic = "events of today".to_owned()),
                refused(|config| config.num_partitions = 0),
                refused(|config| config.replication = -1),
                refused(|config| config.min_isr = 4),
                refused(|config| config.fetch_max_bytes = 0),
                refused(|config| config.fetch_max_wait = Duration::ZERO),
                refused(|config| config.topic_create_timeout = Duration::MAX),
            ]
            .join("\n"),
            @r#"
        the metadata log's topic is ""; it must be 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'
        the metadata log's topic is "events of today"; it must be 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'
        the metadata log's num_partitions is 0; it must be above zero
        the metadata log's replication is -1; it must be above zero
        the metadata log's min_isr is 4; it must not exceed replication, or nothing can ever be written
        the metadata log's fetch_max_bytes is 0; it must be above zero
        the metadata log's fetch_max_wait is 0ns; it must be above zero and below 24 days
        the metadata log's topic_create_timeout is 18446744073709551615.999999999s; it must be above zero and below 24 days
        "#
        );
    }
}

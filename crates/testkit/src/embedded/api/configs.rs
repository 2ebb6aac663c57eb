//! The configs that topics and brokers have, with their defaults: the one table of them.

use std::collections::BTreeMap;

use super::KafkaVersion;

/// The configs of a topic: name, default, Kafka's number for the type.
///
/// Source: what Kafka 4.3.1 answers.
#[rustfmt::skip]
const TOPIC_CONFIGS: &[(&str, &str, i8)] = &[
    ("cleanup.policy", "delete", LIST),
    ("compression.gzip.level", "-1", INT),
    ("compression.lz4.level", "9", INT),
    ("compression.type", "producer", STRING),
    ("compression.zstd.level", "3", INT),
    ("delete.retention.ms", "86400000", LONG),
    ("file.delete.delay.ms", "60000", LONG),
    ("flush.messages", "9223372036854775807", LONG),
    ("flush.ms", "9223372036854775807", LONG),
    ("follower.replication.throttled.replicas", "", LIST),
    ("index.interval.bytes", "4096", INT),
    ("leader.replication.throttled.replicas", "", LIST),
    ("local.retention.bytes", "-2", LONG),
    ("local.retention.ms", "-2", LONG),
    ("max.compaction.lag.ms", "9223372036854775807", LONG),
    ("max.message.bytes", "1048588", INT),
    ("message.timestamp.after.max.ms", "3600000", LONG),
    ("message.timestamp.before.max.ms", "9223372036854775807", LONG),
    ("message.timestamp.type", "CreateTime", STRING),
    ("min.cleanable.dirty.ratio", "0.5", DOUBLE),
    ("min.compaction.lag.ms", "0", LONG),
    ("min.insync.replicas", "1", INT),
    ("preallocate", "false", BOOLEAN),
    ("remote.log.copy.disable", "false", BOOLEAN),
    ("remote.log.delete.on.disable", "false", BOOLEAN),
    ("remote.storage.enable", "false", BOOLEAN),
    ("retention.bytes", "-1", LONG),
    ("retention.ms", "604800000", LONG),
    ("segment.bytes", "1073741824", INT),
    ("segment.index.bytes", "10485760", INT),
    ("segment.jitter.ms", "0", LONG),
    ("segment.ms", "604800000", LONG),
    ("unclean.leader.election.enable", "false", BOOLEAN),
];

/// Those that Kafka 4.4 has beside them. Source: what Kafka 4.4.0 answers.
#[rustfmt::skip]
const TOPIC_CONFIGS_4_4: &[(&str, &str, i8)] = &[
    ("errors.deadletterqueue.group.enable", "false", BOOLEAN),
    ("max.decompressed.message.bytes", "2147483639", INT),
    ("remote.copy.lag.bytes", "-1", LONG),
    ("remote.copy.lag.ms", "0", LONG),
];

const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

/// Those that only Kafka 3.9 has, and the one whose default was another. Source: what Kafka 3.9.1 answers.
#[rustfmt::skip]
const TOPIC_CONFIGS_3_9: &[(&str, &str, i8)] = &[
    ("message.downconversion.enable", "true", BOOLEAN),
    ("message.format.version", "3.0-IV1", STRING),
    ("message.timestamp.after.max.ms", "9223372036854775807", LONG),
    ("message.timestamp.difference.max.ms", "9223372036854775807", LONG),
];

/// The configs of a broker that say how it keeps topics and tiers: name, default, Kafka's number for the type, and whether a
/// running broker can take another value.
///
/// Source: what Kafka 3.9.1, 4.0.0, 4.3.1 and 4.4.0 answer, all the same.
#[rustfmt::skip]
pub(super) const BROKER_CONFIGS: &[(&str, Option<&str>, i8, bool)] = &[
    ("auto.create.topics.enable", Some("true"), BOOLEAN, false),
    ("connections.max.idle.ms", Some("600000"), LONG, false),
    ("connections.max.reauth.ms", Some("0"), LONG, false),
    ("default.replication.factor", Some("1"), INT, false),
    ("delete.topic.enable", Some("true"), BOOLEAN, false),
    ("fetch.max.bytes", Some("57671680"), INT, false),
    ("log.cleaner.threads", Some("1"), INT, true),
    ("log.cleanup.policy", Some("delete"), LIST, true),
    ("log.local.retention.bytes", Some("-2"), LONG, true),
    ("log.local.retention.ms", Some("-2"), LONG, true),
    ("log.message.timestamp.type", Some("CreateTime"), STRING, true),
    ("log.retention.bytes", Some("-1"), LONG, true),
    ("log.retention.hours", Some("168"), INT, false),
    ("log.retention.ms", None, LONG, true),
    ("log.roll.hours", Some("168"), INT, false),
    ("log.segment.bytes", Some("1073741824"), INT, true),
    ("max.incremental.fetch.session.cache.slots", Some("1000"), INT, false),
    ("message.max.bytes", Some("1048588"), INT, true),
    ("num.io.threads", Some("8"), INT, true),
    ("num.partitions", Some("1"), INT, false),
    ("offsets.retention.minutes", Some("10080"), INT, false),
    ("offsets.topic.num.partitions", Some("50"), INT, false),
    ("remote.log.manager.task.interval.ms", Some("30000"), LONG, false),
    ("remote.log.metadata.manager.class.name", Some("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"), STRING, false),
    ("remote.log.storage.system.enable", Some("false"), BOOLEAN, false),
    ("replica.lag.time.max.ms", Some("30000"), LONG, false),
    ("socket.request.max.bytes", Some("104857600"), INT, false),
    ("transaction.max.timeout.ms", Some("900000"), INT, false),
    ("transaction.state.log.num.partitions", Some("50"), INT, false),
    ("transactional.id.expiration.ms", Some("604800000"), INT, false),
    ("unclean.leader.election.enable", Some("false"), BOOLEAN, true),
];

/// Name, default and type of each.
pub(super) fn topic_configs(
    kafka: KafkaVersion,
) -> impl Iterator<Item = &'static (&'static str, &'static str, i8)> {
    let more = match kafka {
        KafkaVersion::V3_9 => TOPIC_CONFIGS_3_9,
        KafkaVersion::V4_0 | KafkaVersion::V4_3 => &[],
        KafkaVersion::V4_4 => TOPIC_CONFIGS_4_4,
    };
    let other = move |name: &str| more.iter().any(|(config, _, _)| *config == name);
    TOPIC_CONFIGS.iter().filter(move |(name, _, _)| !other(name)).chain(more)
}

/// True if topics have a config of this name.
pub(super) fn is_topic_config(kafka: KafkaVersion, name: &str) -> bool {
    topic_configs(kafka).any(|(config, _, _)| *config == name)
}

/// The value that holds for a topic: its own, or the default.
pub(super) fn topic_config<'a>(configs: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let default = TOPIC_CONFIGS.iter().find(|(config, _, _)| *config == name).map(|(_, value, _)| *value);
    configs.get(name).map(String::as_str).or(default)
}

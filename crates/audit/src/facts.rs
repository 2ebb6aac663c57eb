//! What is known besides the events: one value per fact, in the form of an event file's `fact` lines.
//!
//! Names and ids are always there; everything else is optional, and absent means *not known*.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use strandline_tier::{TopicId, Uuid};

use crate::rules::Need;

/// A topic of the cluster, or the certainty that there is none of that name.
///
/// `{"kind":"fact","fact":"topic","topic":"orders","topic_id":"…","partitions":3,"configs":{…}}`, or, where the
/// cluster said that it has no such topic, `{"kind":"fact","fact":"topic","topic":"orders","absent":true}`.
/// Where the right to see it is missing there is no fact at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicFact {
    /// The topic's name.
    pub topic: String,
    /// The id that the cluster gives it now.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    /// How many partitions it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<i32>,
    /// Effective configs by Kafka's names: the topic's own, else the broker's or the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configs: Option<BTreeMap<String, String>>,
    /// True when the cluster, asked by name, answered that there is no such topic (code 3).
    #[serde(default, skip_serializing_if = "is_false")]
    pub absent: bool,
}

/// Where a log start offset came from, since not every source is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogStartSource {
    /// The leader's answer to ListOffsets.
    ListOffsets,
    /// The file `log-start-offset-checkpoint`: written once a minute, so it can lie below the truth.
    LogStartOffsetCheckpoint,
    /// The first entry of `leader-epoch-checkpoint`: a lower bound as well.
    LeaderEpochCheckpoint,
}

/// The transaction that holds the last stable offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenTransaction {
    /// The producer's id.
    pub producer_id: i64,
    /// The transactional id, where ListTransactions tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactional_id: Option<String>,
    /// The transaction's first offset in the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_offset: Option<i64>,
    /// When it began, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<i64>,
    /// How long it may take before its coordinator aborts it, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// Its state, as its coordinator names it: `Ongoing`. One that is over there and open here hangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The broker that coordinates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<i32>,
    /// When its producer last wrote to the partition, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_timestamp_ms: Option<i64>,
}

/// The states of a transaction that has not ended. Source: `org.apache.kafka.clients.admin.TransactionState`.
const UNDER_WAY: [&str; 4] = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"];

impl OpenTransaction {
    /// True if its coordinator calls it over, so that nobody will end it in the partition: it hangs.
    pub fn hangs(&self) -> bool {
        self.state.as_deref().is_some_and(|state| !UNDER_WAY.contains(&state))
    }
}

/// Where a consumer group stands in a user partition.
///
/// `{"kind":"fact","fact":"group_offset","group":"billing","topic":"orders","partition":0,"next_offset":812,
/// "state":"Stable"}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupOffsetFact {
    /// The group's id.
    pub group: String,
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset that it committed: the next one that it will read.
    pub next_offset: i64,
    /// The group's state as Kafka names it: `Stable`, or `Empty` where nobody reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Whether the groups were looked for.
///
/// `{"kind":"fact","fact":"groups","complete":true}`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupsFact {
    /// True when a group without a `group_offset` fact has committed nothing.
    pub complete: bool,
}

/// Something that was asked for and may not be seen, or that these brokers cannot tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotKnown {
    /// What is not known.
    pub what: String,
    /// Why: which right is missing.
    pub reason: String,
}

/// A user partition as its leader sees it.
///
/// `{"kind":"fact","fact":"log","topic":"orders","partition":0,"leader":1,"leader_epoch":4,"log_start_offset":0,
/// "local_start_offset":900,"log_end_offset":1500,"leader_epochs":[[0,0],[4,700]]}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogFact {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The id of the topic whose log this is; absent: the one that the cluster has now.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    /// The broker that leads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<i32>,
    /// The leader's epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<i32>,
    /// The first offset that readers may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_start_offset: Option<i64>,
    /// Where `log_start_offset` came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_start_source: Option<LogStartSource>,
    /// The first offset of the leader's local log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_start_offset: Option<i64>,
    /// The offset after the last one; a client's is the high watermark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_end_offset: Option<i64>,
    /// The first offset that a transaction still holds back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_stable_offset: Option<i64>,
    /// The transaction that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_transaction: Option<OpenTransaction>,
    /// The leader's whole lineage, `[epoch, first offset]`, as in its `leader-epoch-checkpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epochs: Option<Vec<(i32, i64)>>,
    /// What OffsetForLeaderEpoch answered for each epoch that the events name:
    /// `[epoch asked, epoch answered, end offset]`. An epoch is in the lineage where both are the same; the end
    /// offset is the first one after the epoch. Used where `leader_epochs` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_ends: Option<Vec<(i32, i32, i64)>>,
}

/// Whether every topic of the cluster was visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicsFact {
    /// True when a topic without a `topic` fact does not exist.
    pub complete: bool,
}

/// A file of the metadata topic that ends inside a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruncatedFile {
    /// The metadata partition.
    pub metadata_partition: i32,
    /// The file.
    pub path: String,
    /// The offset after the last whole batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<i64>,
    /// True for the file with the highest base offset of its partition.
    pub last: bool,
}

/// The metadata topic itself.
///
/// `{"kind":"fact","fact":"metadata_topic","partitions":50,"replication_factor":3,"configs":{…},
/// "log_start_offsets":[…],"end_offsets":[…]}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataTopicFact {
    /// How many partitions it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<i32>,
    /// How many partitions the brokers are configured for, as `--metadata-partitions` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_partitions: Option<i32>,
    /// How many replicas a partition has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<i32>,
    /// How many brokers the cluster has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brokers: Option<i32>,
    /// Effective configs by Kafka's names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configs: Option<BTreeMap<String, String>>,
    /// The first offset of each partition, by index; null where not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_start_offsets: Option<Vec<Option<i64>>>,
    /// The offset after the last of each partition, by index; null where not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_offsets: Option<Vec<Option<i64>>>,
    /// Partitions of which a replica is out of sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_replicated: Option<Vec<i32>>,
    /// Partitions of which a replica is offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<Vec<i32>>,
    /// Where the topic was read from files: those that end inside a batch. Absent where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_files: Option<Vec<TruncatedFile>>,
}

/// A segment file of a local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSegment {
    /// The offset in the file's name.
    pub base_offset: i64,
    /// The size of the `.log` file.
    pub size_bytes: i64,
    /// The largest record timestamp, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_timestamp_ms: Option<i64>,
}

/// One replica's local log.
///
/// `{"kind":"fact","fact":"local_segments","topic":"orders","partition":0,"broker":1,"size_bytes":2093000,
/// "segments":[{"base_offset":900,"size_bytes":1046000,"max_timestamp_ms":1700000000123}]}`. A broker asked over
/// the wire tells `size_bytes` alone; its data directory has the segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSegmentsFact {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The id of the topic whose log this is; absent: the one that the cluster has now.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    /// The broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// The data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_dir: Option<String>,
    /// The bytes of all local segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// The segment files, the active one included, by base offset. Files ending in `.deleted`, `.cleaned` or
    /// `.swap` are not segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<LocalSegment>>,
    /// The offsets of the producer snapshots, ascending. A rolled segment is copied only where there is one at its
    /// end, which is the base offset of the next segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer_snapshots: Option<Vec<i64>>,
}

/// What an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectRole {
    /// The segment's records: the data object.
    Log,
    /// The offset index.
    OffsetIndex,
    /// The time index.
    TimeIndex,
    /// The index of aborted transactions; never required.
    TransactionIndex,
    /// The leader epoch checkpoint.
    LeaderEpochCheckpoint,
    /// The producer state snapshot.
    ProducerSnapshot,
    /// All indexes in one object.
    Indexes,
    /// What the plugin says of the segment.
    Manifest,
}

impl ObjectRole {
    /// The word that facts and messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "offset-index",
            Self::TimeIndex => "time-index",
            Self::TransactionIndex => "transaction-index",
            Self::LeaderEpochCheckpoint => "leader-epoch-checkpoint",
            Self::ProducerSnapshot => "producer-snapshot",
            Self::Indexes => "indexes",
            Self::Manifest => "manifest",
        }
    }
}

/// The listing of a store as a whole.
///
/// `{"kind":"fact","fact":"store","layout":"local","prefix":"","complete":true,
/// "required":["log","offset-index"],"sizes_exact":true}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreFact {
    /// The key layout.
    pub layout: String,
    /// What stands before each key.
    #[serde(default)]
    pub prefix: String,
    /// True when the listing came to its end: only then does an object that is not in it not exist.
    #[serde(default)]
    pub complete: bool,
    /// The roles that each segment must have in this layout. Never the transaction index.
    #[serde(default)]
    pub required: Vec<ObjectRole>,
    /// True when the data object holds the segment byte for byte, so that sizes must agree.
    #[serde(default)]
    pub sizes_exact: bool,
}

/// What an object's key says, where it parses in the layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParsedKey {
    /// The topic's name.
    pub topic: String,
    /// The topic's id.
    #[serde(with = "required_text")]
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// The segment's id.
    #[serde(with = "required_text")]
    pub segment_id: Uuid,
    /// The segment's first offset, where the layout has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_offset: Option<i64>,
    /// What the object is for.
    pub role: ObjectRole,
}

/// One object of the store.
///
/// `{"kind":"fact","fact":"object","key":"…","size_bytes":1046336,"parsed":{"topic":"orders","topic_id":"…",
/// "partition":0,"segment_id":"…","start_offset":0,"role":"log"}}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectFact {
    /// The whole key.
    pub key: String,
    /// The object's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// When it was written, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified_ms: Option<i64>,
    /// What the key says; absent where it does not parse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parsed: Option<ParsedKey>,
}

/// One `fact` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// `topic`
    Topic(TopicFact),
    /// `log`
    Log(LogFact),
    /// `topics`
    Topics(TopicsFact),
    /// `metadata_topic`
    MetadataTopic(MetadataTopicFact),
    /// `local_segments`
    LocalSegments(LocalSegmentsFact),
    /// `store`
    Store(StoreFact),
    /// `object`
    Object(ObjectFact),
    /// `group_offset`
    GroupOffset(GroupOffsetFact),
    /// `groups`
    Groups(GroupsFact),
}

/// A `fact` line that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactError {
    /// The line has no text field `fact`.
    #[error("the fact has no field \"fact\" that names what it is about")]
    Unnamed,
    /// No such fact.
    #[error(
        "no fact is called {0:?}; there are topic, log, topics, metadata_topic, local_segments, store, object, \
         group_offset, groups"
    )]
    UnknownName(String),
    /// A field is missing, misspelt or of another type.
    #[error("the fact {fact:?} cannot be read")]
    Fields {
        /// Which fact.
        fact: &'static str,
        /// What is wrong with its fields.
        source: serde_json::Error,
    },
}

impl Fact {
    /// Reads the object of a line `{"kind":"fact",…}`; the field `kind` may be absent.
    ///
    /// # Errors
    /// A fact of an unknown name, and a field that is missing, misspelt or of another type.
    pub fn from_json(mut fields: Map<String, Value>) -> Result<Self, FactError> {
        fields.remove("kind");
        let name = match fields.remove("fact") {
            Some(Value::String(name)) => name,
            _ => return Err(FactError::Unnamed),
        };
        match name.as_str() {
            "topic" => read("topic", fields).map(Self::Topic),
            "log" => read("log", fields).map(Self::Log),
            "topics" => read("topics", fields).map(Self::Topics),
            "metadata_topic" => read("metadata_topic", fields).map(Self::MetadataTopic),
            "local_segments" => read("local_segments", fields).map(Self::LocalSegments),
            "store" => read("store", fields).map(Self::Store),
            "object" => read("object", fields).map(Self::Object),
            "group_offset" => read("group_offset", fields).map(Self::GroupOffset),
            "groups" => read("groups", fields).map(Self::Groups),
            _ => Err(FactError::UnknownName(name.chars().take(64).collect())),
        }
    }

    /// The object of the line, `kind` and `fact` first.
    pub fn to_json(&self) -> Map<String, Value> {
        let (name, value) = match self {
            Self::Topic(fact) => ("topic", serde_json::to_value(fact)),
            Self::Log(fact) => ("log", serde_json::to_value(fact)),
            Self::Topics(fact) => ("topics", serde_json::to_value(fact)),
            Self::MetadataTopic(fact) => ("metadata_topic", serde_json::to_value(fact)),
            Self::LocalSegments(fact) => ("local_segments", serde_json::to_value(fact)),
            Self::Store(fact) => ("store", serde_json::to_value(fact)),
            Self::Object(fact) => ("object", serde_json::to_value(fact)),
            Self::GroupOffset(fact) => ("group_offset", serde_json::to_value(fact)),
            Self::Groups(fact) => ("groups", serde_json::to_value(fact)),
        };
        let mut line = Map::new();
        line.insert("kind".to_owned(), "fact".into());
        line.insert("fact".to_owned(), name.into());
        let Ok(Value::Object(fields)) = value else { unreachable!("a fact is a JSON object with text keys") };
        line.extend(fields);
        line
    }
}

fn read<T: DeserializeOwned>(fact: &'static str, fields: Map<String, Value>) -> Result<T, FactError> {
    serde_json::from_value(Value::Object(fields)).map_err(|source| FactError::Fields { fact, source })
}

/// All that is known besides the events. What is not there is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Topics that the cluster has, or is known not to have.
    pub topics: Vec<TopicFact>,
    /// User partitions, as their leaders see them.
    pub logs: Vec<LogFact>,
    /// Whether the topics above are all there are.
    pub topics_complete: bool,
    /// The metadata topic.
    pub metadata_topic: Option<MetadataTopicFact>,
    /// Local logs, one entry per replica.
    pub local_segments: Vec<LocalSegmentsFact>,
    /// The store's listing; absent where no store was given.
    pub store: Option<StoreFact>,
    /// The objects of the listing.
    pub objects: Vec<ObjectFact>,
    /// Where groups stand, in any order.
    pub group_offsets: Vec<GroupOffsetFact>,
    /// Whether the groups above are all there are.
    pub groups_complete: bool,
    /// What was asked for beside the rules' facts and may not be seen. Not part of a file: it speaks of this reading alone.
    pub not_known: Vec<NotKnown>,
    /// Why not every metadata partition, or not every event of it, was meant to be read (an address that names
    /// partitions); absent where all was. Not part of a file: it speaks of this reading alone.
    pub partial_read: Option<String>,
    /// Facts that a missing right withholds, with that right in Kafka's words (`DESCRIBE_CONFIGS on the topic`). Not
    /// part of a file: it speaks of this reading alone.
    pub missing_rights: BTreeMap<Need, &'static str>,
}

impl Facts {
    /// Takes in one fact. A second one about the same topic, log, replica or object stands beside the first,
    /// and the last one counts.
    pub fn add(&mut self, fact: Fact) {
        match fact {
            Fact::Topic(fact) => self.topics.push(fact),
            Fact::Log(fact) => self.logs.push(fact),
            Fact::Topics(fact) => self.topics_complete = fact.complete,
            Fact::MetadataTopic(fact) => self.metadata_topic = Some(fact),
            Fact::LocalSegments(fact) => self.local_segments.push(fact),
            Fact::Store(fact) => self.store = Some(fact),
            Fact::Object(fact) => self.objects.push(fact),
            Fact::GroupOffset(fact) => self.group_offsets.push(fact),
            Fact::Groups(fact) => self.groups_complete = fact.complete,
        }
    }

    /// All facts, as [`Facts::add`] takes them: written to a file and read back they give the same verdicts.
    pub fn iter(&self) -> impl Iterator<Item = Fact> + '_ {
        let topics = self.topics.iter().cloned().map(Fact::Topic);
        let all = self.topics_complete.then_some(Fact::Topics(TopicsFact { complete: true }));
        let logs = self.logs.iter().cloned().map(Fact::Log);
        let metadata_topic = self.metadata_topic.iter().cloned().map(Fact::MetadataTopic);
        let local = self.local_segments.iter().cloned().map(Fact::LocalSegments);
        let store = self.store.iter().cloned().map(Fact::Store);
        let objects = self.objects.iter().cloned().map(Fact::Object);
        let groups = self.group_offsets.iter().cloned().map(Fact::GroupOffset);
        let all_groups = self.groups_complete.then_some(Fact::Groups(GroupsFact { complete: true }));
        topics
            .chain(all)
            .chain(logs)
            .chain(metadata_topic)
            .chain(local)
            .chain(store)
            .chain(objects)
            .chain(groups)
            .chain(all_groups)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

mod text {
    use super::{Deserialize, Deserializer, Serializer, TopicId};

    pub(super) fn serialize<S: Serializer>(id: &Option<TopicId>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TopicId>, D::Error> {
        Option::<String>::deserialize(from)?
            .map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

mod required_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use super::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display>,
    {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

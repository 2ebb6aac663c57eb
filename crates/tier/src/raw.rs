//! Events as their bytes say them, before any check: the first of the two steps of decoding.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::{TopicId, Uuid, codec};

/// A leader epoch and the offset at which it begins within a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochEntry {
    /// The leader epoch; any signed value can stand in a record.
    pub epoch: i32,
    /// The first offset of the epoch; not checked against the segment's range.
    pub start_offset: i64,
}

/// The leader epochs of a segment, ascending by signed epoch, each epoch once.
pub type EpochEntries = SmallVec<[EpochEntry; 2]>;

/// Puts entries into the order of [`EpochEntries`]; of a repeated epoch the last entry stays, as in Kafka.
pub(crate) fn sort_epochs(entries: &mut EpochEntries) {
    if !is_canonical(entries) {
        entries.reverse();
        entries.sort_by_key(|entry| entry.epoch); // Stable: the last entry of an epoch now comes first.
        entries.dedup_by_key(|entry| entry.epoch);
    }
}

pub(crate) fn is_canonical(entries: &[EpochEntry]) -> bool {
    entries.is_sorted_by(|a, b| a.epoch < b.epoch)
}

/// A user partition as an event names it: all three fields are its identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawTopicIdPartition<'a> {
    /// The topic's name.
    pub topic: Cow<'a, str>,
    /// The topic's id.
    pub topic_id: TopicId,
    /// The partition; a record can hold any signed value.
    pub partition: i32,
}

/// Api key 0: a segment is introduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSegmentMetadata<'a> {
    /// The partition that the segment belongs to.
    pub topic_id_partition: RawTopicIdPartition<'a>,
    /// The id of the segment.
    pub segment_id: Uuid,
    /// The first offset of the segment.
    pub start_offset: i64,
    /// The last offset of the segment, inclusive.
    pub end_offset: i64,
    /// The broker that wrote the event.
    pub broker_id: i32,
    /// The largest record timestamp within the segment, in milliseconds since 1970.
    pub max_timestamp_ms: i64,
    /// When the event was made, in milliseconds since 1970.
    pub event_timestamp_ms: i64,
    /// The leader epochs of the segment.
    pub segment_leader_epochs: EpochEntries,
    /// The size of the log file in bytes.
    pub segment_size_in_bytes: i32,
    /// What the storage plugin wants back; absent and empty differ.
    pub custom_metadata: Option<Cow<'a, [u8]>>,
    /// The id of the state, known or not.
    pub state_id: i8,
    /// True when the segment is known to have no aborted transactions.
    pub txn_index_empty: bool,
}

/// Api key 1: a segment changes its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSegmentUpdate<'a> {
    /// The partition that the segment belongs to.
    pub topic_id_partition: RawTopicIdPartition<'a>,
    /// The id of the segment.
    pub segment_id: Uuid,
    /// The broker that wrote the event.
    pub broker_id: i32,
    /// When the event was made, in milliseconds since 1970.
    pub event_timestamp_ms: i64,
    /// Replaces the segment's custom metadata, also when absent.
    pub custom_metadata: Option<Cow<'a, [u8]>>,
    /// The id of the new state, known or not.
    pub state_id: i8,
}

/// Api key 2: a partition's remote data is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPartitionDelete<'a> {
    /// The partition.
    pub topic_id_partition: RawTopicIdPartition<'a>,
    /// The broker that wrote the event.
    pub broker_id: i32,
    /// When the event was made, in milliseconds since 1970.
    pub event_timestamp_ms: i64,
    /// The id of the partition delete state, known or not.
    pub state_id: i8,
}

/// Api key 3: a segment without its partition, meant for snapshots and never legal in the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSegmentSnapshot<'a> {
    /// The id of the segment.
    pub segment_id: Uuid,
    /// The first offset of the segment.
    pub start_offset: i64,
    /// The last offset of the segment, inclusive.
    pub end_offset: i64,
    /// The broker that wrote the event.
    pub broker_id: i32,
    /// The largest record timestamp within the segment, in milliseconds since 1970.
    pub max_timestamp_ms: i64,
    /// When the event was made, in milliseconds since 1970.
    pub event_timestamp_ms: i64,
    /// The leader epochs of the segment.
    pub segment_leader_epochs: EpochEntries,
    /// The size of the log file in bytes.
    pub segment_size_in_bytes: i32,
    /// What the storage plugin wants back; absent and empty differ.
    pub custom_metadata: Option<Cow<'a, [u8]>>,
    /// The id of the state, known or not.
    pub state_id: i8,
    /// True when the segment is known to have no aborted transactions.
    pub txn_index_empty: bool,
}

/// An event as its bytes say it. Borrows from the record where it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawEvent<'a> {
    /// Api key 0.
    SegmentMetadata(RawSegmentMetadata<'a>),
    /// Api key 1.
    SegmentMetadataUpdate(RawSegmentUpdate<'a>),
    /// Api key 2.
    PartitionDeleteMetadata(RawPartitionDelete<'a>),
    /// Api key 3.
    SegmentMetadataSnapshot(RawSegmentSnapshot<'a>),
}

/// What a record of the metadata topic holds, readable or not. Nothing is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordValue<'a> {
    /// The bytes are an event; its checks may still refuse it.
    Event(RawEvent<'a>),
    /// The record has no value.
    NullValue,
    /// The bytes are not an event.
    Undecodable {
        /// The record's value.
        bytes: Cow<'a, [u8]>,
        /// What is wrong with it, in words.
        error: Cow<'a, str>,
        /// True when only the api key or version is unknown, so that a newer Kafka may know it.
        unknown_api: bool,
    },
}

fn owned_bytes(bytes: Option<Cow<'_, [u8]>>) -> Option<Cow<'static, [u8]>> {
    bytes.map(|bytes| Cow::Owned(bytes.into_owned()))
}

impl RawTopicIdPartition<'_> {
    /// The same value without a borrow.
    pub fn into_owned(self) -> RawTopicIdPartition<'static> {
        RawTopicIdPartition { topic: Cow::Owned(self.topic.into_owned()), ..self }
    }
}

impl<'a> RawEvent<'a> {
    /// The user partition that the event is about; a snapshot names none.
    pub fn topic_id_partition(&self) -> Option<&RawTopicIdPartition<'a>> {
        match self {
            Self::SegmentMetadata(event) => Some(&event.topic_id_partition),
            Self::SegmentMetadataUpdate(event) => Some(&event.topic_id_partition),
            Self::PartitionDeleteMetadata(event) => Some(&event.topic_id_partition),
            Self::SegmentMetadataSnapshot(_) => None,
        }
    }

    /// The segment that the event is about; a partition delete event names none.
    pub fn segment_id(&self) -> Option<Uuid> {
        match self {
            Self::SegmentMetadata(event) => Some(event.segment_id),
            Self::SegmentMetadataUpdate(event) => Some(event.segment_id),
            Self::PartitionDeleteMetadata(_) => None,
            Self::SegmentMetadataSnapshot(event) => Some(event.segment_id),
        }
    }

    /// The same event without a borrow.
    pub fn into_owned(self) -> RawEvent<'static> {
        match self {
            Self::SegmentMetadata(event) => RawEvent::SegmentMetadata(RawSegmentMetadata {
                topic_id_partition: event.topic_id_partition.into_owned(),
                custom_metadata: owned_bytes(event.custom_metadata),
                ..event
            }),
            Self::SegmentMetadataUpdate(event) => RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
                topic_id_partition: event.topic_id_partition.into_owned(),
                custom_metadata: owned_bytes(event.custom_metadata),
                ..event
            }),
            Self::PartitionDeleteMetadata(event) => RawEvent::PartitionDeleteMetadata(RawPartitionDelete {
                topic_id_partition: event.topic_id_partition.into_owned(),
                ..event
            }),
            Self::SegmentMetadataSnapshot(event) => RawEvent::SegmentMetadataSnapshot(RawSegmentSnapshot {
                custom_metadata: owned_bytes(event.custom_metadata),
                ..event
            }),
        }
    }
}

impl<'a> RecordValue<'a> {
    /// Reads the value of a record of the metadata topic. Never fails: what is no event is kept as it is.
    pub fn from_value(value: Option<&'a [u8]>) -> Self {
        let Some(bytes) = value else {
            return Self::NullValue;
        };
        match codec::decode(bytes) {
            Ok(event) => Self::Event(event),
            Err(error) => Self::Undecodable {
                bytes: Cow::Borrowed(bytes),
                error: Cow::Owned(error.to_string()),
                unknown_api: error.is_unknown_api(),
            },
        }
    }

    /// The same value without a borrow.
    pub fn into_owned(self) -> RecordValue<'static> {
        match self {
            Self::Event(event) => RecordValue::Event(event.into_owned()),
            Self::NullValue => RecordValue::NullValue,
            Self::Undecodable { bytes, error, unknown_api } => RecordValue::Undecodable {
                bytes: Cow::Owned(bytes.into_owned()),
                error: Cow::Owned(error.into_owned()),
                unknown_api,
            },
        }
    }
}

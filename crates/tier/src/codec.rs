//! The bytes of an event: a frame header, then one message, exactly as Kafka 4.3.1 reads and writes them.
//!
//! [`decode`] accepts what Kafka's serde accepts (padded varints, unknown tags, a tag count below zero) and
//! refuses what it refuses; the object checks are a second step, [`RawEvent::check`]. [`encode`] writes
//! Kafka's canonical form. Unknown tagged fields are skipped and not kept, as in Kafka.
//!
//! Source: KIP-405, `RemoteLogMetadataSerde`, `AbstractApiMessageSerde`, `ByteBufferAccessor`.

use std::borrow::Cow;

use crate::raw::{
    EpochEntries, EpochEntry, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentSnapshot,
    RawSegmentUpdate, RawTopicIdPartition, is_canonical, sort_epochs,
};
use crate::{RemoteLogSegmentState, RemotePartitionDeleteState, TopicId, Uuid, utf8};

/// The only frame version there is.
const FRAME_VERSION: u32 = 1;
/// The version of every message: only 0. Kafka takes those below zero for it, which no writer produces.
const MESSAGE_VERSION: u32 = 0;
const API_SEGMENT_METADATA: u32 = 0;
const API_SEGMENT_METADATA_UPDATE: u32 = 1;
const API_PARTITION_DELETE_METADATA: u32 = 2;
const API_SEGMENT_METADATA_SNAPSHOT: u32 = 3;
/// The one tagged field of api keys 0 and 3.
const TAG_TXN_INDEX_EMPTY: i32 = 0;
/// The longest string of Kafka's protocol, in bytes (`Short.MAX_VALUE`).
const STRING_MAX_BYTES: usize = 0x7fff;

/// The bytes are not an event. Kafka's broker would stop reading the metadata partition here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}{}", Place(self))]
pub struct DecodeError {
    /// Where the field that cannot be read begins, in bytes from the start of the value.
    pub offset: usize,
    /// The field that cannot be read, by its name in Kafka's schema.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: DecodeProblem,
}

/// Says where, except for header numbers, whose place is always the same.
struct Place<'a>(&'a DecodeError);

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.problem {
            DecodeProblem::UnknownApiKey { .. } | DecodeProblem::UnsupportedVersion { .. } => Ok(()),
            _ => write!(f, " ({} at byte {})", self.0.field, self.0.offset),
        }
    }
}

/// What is wrong with bytes that are not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeProblem {
    /// The bytes end within the field.
    #[error("cut off: {needed} bytes are needed and {left} are left")]
    Truncated {
        /// What the field takes.
        needed: usize,
        /// What there is.
        left: usize,
    },
    /// A length field says more than there is.
    #[error("a length of {length} bytes and only {left} bytes left")]
    LengthTooLarge {
        /// The length; one below zero is given as the unsigned number.
        length: usize,
        /// The bytes left.
        left: usize,
    },
    /// The fifth byte of a variable-length integer says that more follow.
    #[error("variable-length integer of more than 5 bytes")]
    VarintTooLong,
    /// A header number does not fit 16 bits.
    #[error("header number {value} is above 32767")]
    HeaderNumberTooLarge {
        /// The number.
        value: i32,
    },
    /// The frame is of a version that no Kafka writes.
    #[error("frame version {version} instead of 1")]
    FrameVersion {
        /// The version.
        version: i16,
    },
    /// A message of another kind than the four known ones; a newer Kafka may know it.
    #[error("unknown api key {api_key}")]
    UnknownApiKey {
        /// The api key.
        api_key: i16,
    },
    /// A known message in an unknown version; a newer Kafka may know it.
    #[error("unknown version {version} of api key {api_key}")]
    UnsupportedVersion {
        /// The api key.
        api_key: i16,
        /// The version.
        version: i16,
    },
    /// The field is null and must not be.
    #[error("null where a value is needed")]
    Null,
    /// A string is longer than Kafka allows.
    #[error("string of {length} bytes, above 32767")]
    StringTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// An array has more elements than bytes are left.
    #[error("{count} elements and only {left} bytes left")]
    CountTooLarge {
        /// The count of elements.
        count: usize,
        /// The bytes left.
        left: usize,
    },
    /// The message is complete and bytes are left over.
    #[error("{left} bytes left over after the message")]
    Garbage {
        /// The bytes left.
        left: usize,
    },
}

impl DecodeError {
    /// True when only the api key or the message version is unknown, so that a newer Kafka may know it.
    pub fn is_unknown_api(&self) -> bool {
        matches!(self.problem, DecodeProblem::UnknownApiKey { .. } | DecodeProblem::UnsupportedVersion { .. })
    }
}

/// The bytes are an event, and Kafka's class for it refuses to hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The segment would begin before offset 0.
    #[error("start offset {start_offset} is negative")]
    NegativeStartOffset {
        /// The start offset.
        start_offset: i64,
    },
    /// The segment would end before it begins.
    #[error("end offset {end_offset} is below start offset {start_offset}")]
    EndBeforeStart {
        /// The start offset.
        start_offset: i64,
        /// The end offset, inclusive.
        end_offset: i64,
    },
    /// The segment has no leader epoch.
    #[error("no leader epochs")]
    NoLeaderEpochs,
    /// The number stands for no state.
    #[error("unknown state {state_id}")]
    UnknownState {
        /// The number.
        state_id: i8,
    },
}

impl ObjectError {
    /// The Java exception that Kafka answers with, which ends the reading of the broker that meets it.
    pub fn kafka_exception(&self) -> &'static str {
        match self {
            Self::NegativeStartOffset { .. } | Self::EndBeforeStart { .. } | Self::NoLeaderEpochs => {
                "IllegalArgumentException"
            }
            Self::UnknownState { .. } => "NullPointerException",
        }
    }
}

/// The event has no bytes in Kafka's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A topic name is at most 32767 bytes long.
    #[error("topic name of {length} bytes, above 32767")]
    TopicTooLong {
        /// Its length in bytes.
        length: usize,
    },
}

/// Reads the value of a record of the metadata topic. Borrows names and custom metadata where it can.
///
/// Allocates at most in proportion to `value`, and only for names that are not UTF-8 and for more than two
/// leader epochs.
pub fn decode(value: &[u8]) -> Result<RawEvent<'_>, DecodeError> {
    let mut reader = Reader { bytes: value, offset: 0 };
    let version = reader.header_number("frame_version")?;
    if version as u32 != FRAME_VERSION {
        return Err(reader.error_at(0, "frame_version", DecodeProblem::FrameVersion { version }));
    }
    let at = reader.offset;
    let api_key = reader.header_number("api_key")?;
    let version_at = reader.offset;
    let version = reader.header_number("message_version")?;
    if !(0..=API_SEGMENT_METADATA_SNAPSHOT as i16).contains(&api_key) {
        return Err(reader.error_at(at, "api_key", DecodeProblem::UnknownApiKey { api_key }));
    }
    if version > MESSAGE_VERSION as i16 {
        let problem = DecodeProblem::UnsupportedVersion { api_key, version };
        return Err(reader.error_at(version_at, "message_version", problem));
    }
    let event = match api_key as u32 {
        API_SEGMENT_METADATA => RawEvent::SegmentMetadata(reader.segment_metadata()?),
        API_SEGMENT_METADATA_UPDATE => RawEvent::SegmentMetadataUpdate(reader.segment_update()?),
        API_PARTITION_DELETE_METADATA => RawEvent::PartitionDeleteMetadata(reader.partition_delete()?),
        _ => RawEvent::SegmentMetadataSnapshot(reader.segment_snapshot()?),
    };
    match reader.left() {
        0 => Ok(event),
        left => Err(reader.error("end", DecodeProblem::Garbage { left })),
    }
}

/// Appends the event's bytes to `out` in Kafka's canonical form; on an error `out` is as before.
///
/// Every state id and every offset is written as it is: [`RawEvent::check`] says whether Kafka takes it.
pub fn encode(event: &RawEvent<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if let Some(partition) = event.topic_id_partition() {
        let length = partition.topic.len();
        if length > STRING_MAX_BYTES {
            return Err(EncodeError::TopicTooLong { length });
        }
    }
    let mut writer = Writer { out };
    writer.uvarint(FRAME_VERSION);
    match event {
        RawEvent::SegmentMetadata(event) => {
            writer.uvarint(API_SEGMENT_METADATA);
            writer.uvarint(MESSAGE_VERSION);
            writer.segment_id(&event.topic_id_partition, event.segment_id);
            writer.i64(event.start_offset);
            writer.i64(event.end_offset);
            writer.i32(event.broker_id);
            writer.i64(event.max_timestamp_ms);
            writer.i64(event.event_timestamp_ms);
            writer.epochs(&event.segment_leader_epochs);
            writer.i32(event.segment_size_in_bytes);
            writer.nullable_bytes(event.custom_metadata.as_deref());
            writer.i8(event.state_id);
            writer.txn_index_empty(event.txn_index_empty);
        }
        RawEvent::SegmentMetadataUpdate(event) => {
            writer.uvarint(API_SEGMENT_METADATA_UPDATE);
            writer.uvarint(MESSAGE_VERSION);
            writer.segment_id(&event.topic_id_partition, event.segment_id);
            writer.i32(event.broker_id);
            writer.i64(event.event_timestamp_ms);
            writer.nullable_bytes(event.custom_metadata.as_deref());
            writer.i8(event.state_id);
            writer.no_tags();
        }
        RawEvent::PartitionDeleteMetadata(event) => {
            writer.uvarint(API_PARTITION_DELETE_METADATA);
            writer.uvarint(MESSAGE_VERSION);
            writer.topic_id_partition(&event.topic_id_partition);
            writer.i32(event.broker_id);
            writer.i64(event.event_timestamp_ms);
            writer.i8(event.state_id);
            writer.no_tags();
        }
        RawEvent::SegmentMetadataSnapshot(event) => {
            writer.uvarint(API_SEGMENT_METADATA_SNAPSHOT);
            writer.uvarint(MESSAGE_VERSION);
            writer.uuid(event.segment_id);
            writer.i64(event.start_offset);
            writer.i64(event.end_offset);
            writer.i32(event.broker_id);
            writer.i64(event.max_timestamp_ms);
            writer.i64(event.event_timestamp_ms);
            writer.epochs(&event.segment_leader_epochs);
            writer.i32(event.segment_size_in_bytes);
            writer.nullable_bytes(event.custom_metadata.as_deref());
            writer.i8(event.state_id);
            writer.txn_index_empty(event.txn_index_empty);
        }
    }
    Ok(())
}

impl RawEvent<'_> {
    /// The second step of decoding: what Kafka's classes demand of their values when they are built.
    ///
    /// Of several faults the one is told that Kafka meets first.
    pub fn check(&self) -> Result<(), ObjectError> {
        match self {
            Self::SegmentMetadata(event) => event.check().map(|_| ()),
            Self::SegmentMetadataUpdate(event) => event.check().map(|_| ()),
            Self::PartitionDeleteMetadata(event) => event.check().map(|_| ()),
            Self::SegmentMetadataSnapshot(event) => event.check().map(|_| ()),
        }
    }
}

fn segment_state(state_id: i8) -> Result<RemoteLogSegmentState, ObjectError> {
    RemoteLogSegmentState::from_id(state_id).ok_or(ObjectError::UnknownState { state_id })
}

impl RawSegmentMetadata<'_> {
    /// The event's state, when Kafka would accept the event.
    pub fn check(&self) -> Result<RemoteLogSegmentState, ObjectError> {
        let Self { start_offset, end_offset, .. } = *self;
        if start_offset < 0 {
            return Err(ObjectError::NegativeStartOffset { start_offset });
        }
        if end_offset < start_offset {
            return Err(ObjectError::EndBeforeStart { start_offset, end_offset });
        }
        if self.segment_leader_epochs.is_empty() {
            return Err(ObjectError::NoLeaderEpochs);
        }
        segment_state(self.state_id)
    }
}

impl RawSegmentUpdate<'_> {
    /// The event's state, when Kafka would accept the event.
    pub fn check(&self) -> Result<RemoteLogSegmentState, ObjectError> {
        segment_state(self.state_id)
    }
}

impl RawPartitionDelete<'_> {
    /// The event's state, when Kafka would accept the event.
    pub fn check(&self) -> Result<RemotePartitionDeleteState, ObjectError> {
        let state_id = self.state_id;
        RemotePartitionDeleteState::from_id(state_id).ok_or(ObjectError::UnknownState { state_id })
    }
}

impl RawSegmentSnapshot<'_> {
    /// The event's state, when Kafka would accept the event. Its offsets are not looked at.
    pub fn check(&self) -> Result<RemoteLogSegmentState, ObjectError> {
        let state = segment_state(self.state_id)?;
        if self.segment_leader_epochs.is_empty() {
            return Err(ObjectError::NoLeaderEpochs);
        }
        Ok(state)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    fn error(&self, field: &'static str, problem: DecodeProblem) -> DecodeError {
        self.error_at(self.offset, field, problem)
    }

    #[cold]
    fn error_at(&self, offset: usize, field: &'static str, problem: DecodeProblem) -> DecodeError {
        DecodeError { offset, field, problem }
    }

    /// The bytes that a length field announced.
    #[inline]
    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let left = &self.bytes[self.offset..];
        match left.get(..length) {
            Some(taken) => {
                self.offset += length;
                Ok(taken)
            }
            None => Err(self.error(field, DecodeProblem::LengthTooLarge { length, left: left.len() })),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.bytes[self.offset..].first_chunk() {
            Some(taken) => {
                self.offset += N;
                Ok(*taken)
            }
            None => Err(self.error(field, DecodeProblem::Truncated { needed: N, left: self.left() })),
        }
    }

    #[inline]
    fn i8(&mut self, field: &'static str) -> Result<i8, DecodeError> {
        self.array(field).map(i8::from_be_bytes)
    }

    #[inline]
    fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    #[inline]
    fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    #[inline]
    fn uuid(&mut self, field: &'static str) -> Result<Uuid, DecodeError> {
        self.array(field).map(Uuid)
    }

    /// Unsigned LEB128 in at most five bytes, then taken as signed. Bits above the 32nd are lost.
    #[inline]
    fn uvarint(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        let start = self.offset;
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value as i32);
            }
        }
        Err(self.error_at(start, field, DecodeProblem::VarintTooLong))
    }

    /// A number of the frame header. Kafka looks only for numbers that are too large, and then keeps the
    /// low 16 bits: a number below zero can come out as a valid one.
    #[inline]
    fn header_number(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        let start = self.offset;
        let value = self.uvarint(field)?;
        if value > i32::from(i16::MAX) {
            return Err(self.error_at(start, field, DecodeProblem::HeaderNumberTooLarge { value }));
        }
        Ok(value as i16)
    }

    /// The length that follows in a compact field, which is stored plus one; `None` is null.
    #[inline]
    fn compact_length(&mut self, field: &'static str) -> Result<Option<usize>, DecodeError> {
        Ok(usize::try_from(self.uvarint(field)?.wrapping_sub(1)).ok())
    }

    fn string(&mut self, field: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        let start = self.offset;
        let Some(length) = self.compact_length(field)? else {
            return Err(self.error_at(start, field, DecodeProblem::Null));
        };
        if length > STRING_MAX_BYTES {
            return Err(self.error_at(start, field, DecodeProblem::StringTooLong { length }));
        }
        Ok(utf8::decode(self.take(length, field)?))
    }

    fn nullable_bytes(&mut self, field: &'static str) -> Result<Option<Cow<'a, [u8]>>, DecodeError> {
        match self.compact_length(field)? {
            None => Ok(None),
            Some(length) => Ok(Some(Cow::Borrowed(self.take(length, field)?))),
        }
    }

    /// Skips the tagged fields of a structure that knows none.
    #[inline]
    fn skip_tags(&mut self, field: &'static str) -> Result<(), DecodeError> {
        for _ in 0..self.uvarint(field)? {
            self.uvarint(field)?;
            self.skip_tagged_field(field)?;
        }
        Ok(())
    }

    fn skip_tagged_field(&mut self, field: &'static str) -> Result<(), DecodeError> {
        // A size below zero is as unreadable as one beyond the end.
        let length = self.uvarint(field)? as u32 as usize;
        self.take(length, field).map(|_| ())
    }

    /// The tagged fields of api keys 0 and 3. Kafka ignores the size of the one that it knows.
    fn txn_index_empty(&mut self) -> Result<bool, DecodeError> {
        let mut value = false;
        for _ in 0..self.uvarint("tags")? {
            if self.uvarint("tags")? == TAG_TXN_INDEX_EMPTY {
                self.uvarint("txn_index_empty")?;
                value = self.i8("txn_index_empty")? != 0;
            } else {
                self.skip_tagged_field("tags")?;
            }
        }
        Ok(value)
    }

    fn topic_id_partition(&mut self) -> Result<RawTopicIdPartition<'a>, DecodeError> {
        let topic = self.string("topic")?;
        let topic_id = TopicId(self.uuid("topic_id")?);
        let partition = self.i32("partition")?;
        self.skip_tags("topic_id_partition tags")?;
        Ok(RawTopicIdPartition { topic, topic_id, partition })
    }

    fn segment_id(&mut self) -> Result<(RawTopicIdPartition<'a>, Uuid), DecodeError> {
        let topic_id_partition = self.topic_id_partition()?;
        let segment_id = self.uuid("segment_id")?;
        self.skip_tags("segment_id tags")?;
        Ok((topic_id_partition, segment_id))
    }

    fn epochs(&mut self) -> Result<EpochEntries, DecodeError> {
        const FIELD: &str = "segment_leader_epochs";
        let start = self.offset;
        let Some(count) = self.compact_length(FIELD)? else {
            return Err(self.error_at(start, FIELD, DecodeProblem::Null));
        };
        if count > self.left() {
            let left = self.left();
            return Err(self.error_at(start, FIELD, DecodeProblem::CountTooLarge { count, left }));
        }
        // Grows with what is really there: an entry takes at least 13 bytes.
        let mut entries = EpochEntries::new();
        for _ in 0..count {
            let epoch = self.i32(FIELD)?;
            let start_offset = self.i64(FIELD)?;
            self.skip_tags("segment_leader_epochs tags")?;
            entries.push(EpochEntry { epoch, start_offset });
        }
        sort_epochs(&mut entries);
        Ok(entries)
    }

    fn segment_metadata(&mut self) -> Result<RawSegmentMetadata<'a>, DecodeError> {
        let (topic_id_partition, segment_id) = self.segment_id()?;
        Ok(RawSegmentMetadata {
            topic_id_partition,
            segment_id,
            start_offset: self.i64("start_offset")?,
            end_offset: self.i64("end_offset")?,
            broker_id: self.i32("broker_id")?,
            max_timestamp_ms: self.i64("max_timestamp_ms")?,
            event_timestamp_ms: self.i64("event_timestamp_ms")?,
            segment_leader_epochs: self.epochs()?,
            segment_size_in_bytes: self.i32("segment_size_in_bytes")?,
            custom_metadata: self.nullable_bytes("custom_metadata")?,
            state_id: self.i8("state")?,
            txn_index_empty: self.txn_index_empty()?,
        })
    }

    fn segment_update(&mut self) -> Result<RawSegmentUpdate<'a>, DecodeError> {
        let (topic_id_partition, segment_id) = self.segment_id()?;
        let event = RawSegmentUpdate {
            topic_id_partition,
            segment_id,
            broker_id: self.i32("broker_id")?,
            event_timestamp_ms: self.i64("event_timestamp_ms")?,
            custom_metadata: self.nullable_bytes("custom_metadata")?,
            state_id: self.i8("state")?,
        };
        self.skip_tags("tags")?;
        Ok(event)
    }

    fn partition_delete(&mut self) -> Result<RawPartitionDelete<'a>, DecodeError> {
        let event = RawPartitionDelete {
            topic_id_partition: self.topic_id_partition()?,
            broker_id: self.i32("broker_id")?,
            event_timestamp_ms: self.i64("event_timestamp_ms")?,
            state_id: self.i8("state")?,
        };
        self.skip_tags("tags")?;
        Ok(event)
    }

    fn segment_snapshot(&mut self) -> Result<RawSegmentSnapshot<'a>, DecodeError> {
        Ok(RawSegmentSnapshot {
            segment_id: self.uuid("segment_id")?,
            start_offset: self.i64("start_offset")?,
            end_offset: self.i64("end_offset")?,
            broker_id: self.i32("broker_id")?,
            max_timestamp_ms: self.i64("max_timestamp_ms")?,
            event_timestamp_ms: self.i64("event_timestamp_ms")?,
            segment_leader_epochs: self.epochs()?,
            segment_size_in_bytes: self.i32("segment_size_in_bytes")?,
            custom_metadata: self.nullable_bytes("custom_metadata")?,
            state_id: self.i8("state")?,
            txn_index_empty: self.txn_index_empty()?,
        })
    }
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    fn i8(&mut self, value: i8) {
        self.out.push(value as u8);
    }

    fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn uuid(&mut self, value: Uuid) {
        self.out.extend_from_slice(&value.0);
    }

    fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// The length of a compact field, stored plus one because 0 is null.
    fn compact_length(&mut self, length: usize) {
        self.uvarint(u32::try_from(length + 1).expect("fields of an event are below 2 GiB"));
    }

    fn no_tags(&mut self) {
        self.uvarint(0);
    }

    fn nullable_bytes(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.uvarint(0),
            Some(bytes) => {
                self.compact_length(bytes.len());
                self.out.extend_from_slice(bytes);
            }
        }
    }

    fn txn_index_empty(&mut self, value: bool) {
        if value {
            // One tagged field: tag, size, value.
            self.out.extend_from_slice(&[1, TAG_TXN_INDEX_EMPTY as u8, 1, 1]);
        } else {
            self.no_tags();
        }
    }

    fn topic_id_partition(&mut self, partition: &RawTopicIdPartition<'_>) {
        self.compact_length(partition.topic.len());
        self.out.extend_from_slice(partition.topic.as_bytes());
        self.uuid(partition.topic_id.0);
        self.i32(partition.partition);
        self.no_tags();
    }

    fn segment_id(&mut self, partition: &RawTopicIdPartition<'_>, segment_id: Uuid) {
        self.topic_id_partition(partition);
        self.uuid(segment_id);
        self.no_tags();
    }

    fn epochs(&mut self, entries: &EpochEntries) {
        if !is_canonical(entries) {
            let mut sorted = entries.clone();
            sort_epochs(&mut sorted);
            return self.epochs(&sorted);
        }
        self.compact_length(entries.len());
        for entry in entries {
            self.i32(entry.epoch);
            self.i64(entry.start_offset);
            self.no_tags();
        }
    }
}

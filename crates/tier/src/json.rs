//! Events as lines of JSON: the form of an event file, which `strandline events -o jsonl` prints.
//!
//! One object per line: the position where it is known (`metadata_partition`, `offset`, `timestamp_ms`), a
//! `kind`, and the fields of that kind. Ids are in Kafka's text form, custom metadata and undecodable bytes in
//! hex, `segment_leader_epochs` pairs of epoch and offset. A state without a name is `null` and its number
//! stands in `state_id`, which is optional on reading otherwise.

use std::borrow::Cow;

use serde::Deserialize;

use crate::raw::{
    EpochEntries, EpochEntry, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentSnapshot,
    RawSegmentUpdate, RawTopicIdPartition, RecordValue, is_canonical,
};
use crate::{ParseUuidError, RemoteLogSegmentState, RemotePartitionDeleteState, Uuid};

const SEGMENT_METADATA: &str = "segment_metadata";
const SEGMENT_METADATA_UPDATE: &str = "segment_metadata_update";
const PARTITION_DELETE_METADATA: &str = "partition_delete_metadata";
const SEGMENT_METADATA_SNAPSHOT: &str = "segment_metadata_snapshot";
const NULL_VALUE: &str = "null_value";
const UNDECODABLE: &str = "undecodable";

/// What stands before a field's value, as one constant: the comma, the name, the colon.
macro_rules! field {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

/// Where a record stands in the metadata topic, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventPosition {
    /// The partition of the metadata topic.
    pub metadata_partition: Option<i32>,
    /// The record's offset in it.
    pub offset: Option<i64>,
    /// The record's timestamp, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// The line is not an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseEventError {
    /// The line is not JSON, or a field is of the wrong type.
    #[error("{message} (column {column})")]
    Json {
        /// What is wrong, in the words of the JSON parser.
        message: String,
        /// Where in the line, from 1.
        column: usize,
    },
    /// The kind is none of the six.
    #[error("{kind:?} is no kind of event")]
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// A field that this kind needs is not there.
    #[error("field {field} is missing")]
    Missing {
        /// The field's name.
        field: &'static str,
    },
    /// An id is not in Kafka's text form.
    #[error("field {field}")]
    Id {
        /// The field's name.
        field: &'static str,
        /// What is wrong with it.
        source: ParseUuidError,
    },
    /// Bytes are not written as pairs of hexadecimal digits.
    #[error("field {field} is not hex: an even number of digits 0-9 a-f is expected")]
    Hex {
        /// The field's name.
        field: &'static str,
    },
    /// The state has no such name.
    #[error("{state:?} is no state of a {kind}")]
    UnknownState {
        /// The name.
        state: String,
        /// The kind of event.
        kind: &'static str,
    },
    /// A leader epoch is named twice, and only one of the entries could be meant.
    #[error("field segment_leader_epochs names epoch {epoch} twice")]
    RepeatedEpoch {
        /// The epoch.
        epoch: i32,
    },
    /// The state's name and its number contradict each other.
    #[error("state {state} has id {id}, not the state_id {state_id}")]
    StateMismatch {
        /// The state's name.
        state: &'static str,
        /// Its number.
        id: i8,
        /// The number given.
        state_id: i8,
    },
}

impl From<serde_json::Error> for ParseEventError {
    fn from(error: serde_json::Error) -> Self {
        // The parser counts lines from the start of what it was given, which is one line.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        Self::Json { message, column: error.column() }
    }
}

/// Appends one line, without the line end. Allocates nothing but what `out` needs to grow.
pub fn write_event(out: &mut Vec<u8>, position: &EventPosition, value: &RecordValue<'_>) {
    let start = out.len();
    let mut line = Line { out };
    if let Some(partition) = position.metadata_partition {
        line.integer(field!("metadata_partition"), partition);
    }
    if let Some(offset) = position.offset {
        line.integer(field!("offset"), offset);
    }
    if let Some(timestamp) = position.timestamp_ms {
        line.integer(field!("timestamp_ms"), timestamp);
    }
    match value {
        RecordValue::Event(RawEvent::SegmentMetadata(event)) => line.segment_metadata(event),
        RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)) => line.segment_update(event),
        RecordValue::Event(RawEvent::PartitionDeleteMetadata(event)) => line.partition_delete(event),
        RecordValue::Event(RawEvent::SegmentMetadataSnapshot(event)) => line.segment_snapshot(event),
        RecordValue::NullValue => line.word(field!("kind"), NULL_VALUE),
        RecordValue::Undecodable { bytes, error, .. } => {
            line.word(field!("kind"), UNDECODABLE);
            line.hex(field!("hex"), Some(bytes));
            line.text(field!("error"), error);
        }
    }
    line.out.push(b'}');
    // Whatever the first field was, it came with a comma.
    out[start] = b'{';
}

/// Reads one line. Fields that the kind does not have are passed over.
///
/// Of an undecodable record the bytes count and not the words: they are read anew.
pub fn parse_event(line: &[u8]) -> Result<(EventPosition, RecordValue<'_>), ParseEventError> {
    let fields: Fields<'_> = serde_json::from_slice(line)?;
    let position = EventPosition {
        metadata_partition: fields.metadata_partition,
        offset: fields.offset,
        timestamp_ms: fields.timestamp_ms,
    };
    Ok((position, fields.value()?))
}

/// Text that borrows from the line where it holds no escapes. Within an `Option`, `Cow` alone would not.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields of all kinds.
#[derive(Deserialize)]
#[serde(expecting = "an object with the fields of an event")]
struct Fields<'a> {
    metadata_partition: Option<i32>,
    offset: Option<i64>,
    timestamp_ms: Option<i64>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    topic_id: Option<Text<'a>>,
    #[serde(borrow)]
    topic: Option<Text<'a>>,
    partition: Option<i32>,
    #[serde(borrow)]
    segment_id: Option<Text<'a>>,
    start_offset: Option<i64>,
    end_offset: Option<i64>,
    broker_id: Option<i32>,
    max_timestamp_ms: Option<i64>,
    event_timestamp_ms: Option<i64>,
    segment_leader_epochs: Option<Vec<(i32, i64)>>,
    segment_size_in_bytes: Option<i32>,
    #[serde(borrow)]
    custom_metadata: Option<Text<'a>>,
    #[serde(borrow)]
    state: Option<Text<'a>>,
    state_id: Option<i8>,
    txn_index_empty: Option<bool>,
    #[serde(borrow)]
    hex: Option<Text<'a>>,
}

fn required<T>(value: Option<T>, field: &'static str) -> Result<T, ParseEventError> {
    value.ok_or(ParseEventError::Missing { field })
}

fn parse_id(text: Option<Text<'_>>, field: &'static str) -> Result<Uuid, ParseEventError> {
    required(text, field)?.0.parse().map_err(|source| ParseEventError::Id { field, source })
}

fn parse_hex(text: &str, field: &'static str) -> Result<Vec<u8>, ParseEventError> {
    let digit = |byte: u8| (byte as char).to_digit(16).ok_or(ParseEventError::Hex { field });
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return Err(ParseEventError::Hex { field });
    };
    pairs.iter().map(|&[high, low]| Ok((digit(high)? << 4 | digit(low)?) as u8)).collect()
}

impl<'a> Fields<'a> {
    fn value(self) -> Result<RecordValue<'a>, ParseEventError> {
        let kind = required(self.kind.as_ref(), "kind")?;
        let event = match &*kind.0 {
            SEGMENT_METADATA => RawEvent::SegmentMetadata(self.segment_metadata()?),
            SEGMENT_METADATA_UPDATE => RawEvent::SegmentMetadataUpdate(self.segment_update()?),
            PARTITION_DELETE_METADATA => RawEvent::PartitionDeleteMetadata(self.partition_delete()?),
            SEGMENT_METADATA_SNAPSHOT => RawEvent::SegmentMetadataSnapshot(self.segment_snapshot()?),
            NULL_VALUE => return Ok(RecordValue::NullValue),
            UNDECODABLE => {
                let bytes = parse_hex(&required(self.hex, "hex")?.0, "hex")?;
                return Ok(RecordValue::from_value(Some(&bytes)).into_owned());
            }
            kind => return Err(ParseEventError::UnknownKind { kind: kind.chars().take(64).collect() }),
        };
        Ok(RecordValue::Event(event))
    }

    fn topic_id_partition(&mut self) -> Result<RawTopicIdPartition<'a>, ParseEventError> {
        Ok(RawTopicIdPartition {
            topic: required(self.topic.take(), "topic")?.0,
            topic_id: parse_id(self.topic_id.take(), "topic_id")?.into(),
            partition: required(self.partition, "partition")?,
        })
    }

    fn epochs(&mut self) -> Result<EpochEntries, ParseEventError> {
        let pairs = required(self.segment_leader_epochs.take(), "segment_leader_epochs")?;
        let mut entries: EpochEntries =
            pairs.into_iter().map(|(epoch, start_offset)| EpochEntry { epoch, start_offset }).collect();
        if !is_canonical(&entries) {
            entries.sort_by_key(|entry| entry.epoch);
            let twice = entries.windows(2).find(|pair| pair[0].epoch == pair[1].epoch);
            if let Some(pair) = twice {
                return Err(ParseEventError::RepeatedEpoch { epoch: pair[0].epoch });
            }
        }
        Ok(entries)
    }

    fn custom_metadata(&mut self) -> Result<Option<Cow<'a, [u8]>>, ParseEventError> {
        let hex = self.custom_metadata.take();
        hex.map(|hex| parse_hex(&hex.0, "custom_metadata").map(Cow::Owned)).transpose()
    }

    fn state_id(
        &self,
        kind: &'static str,
        named: impl Fn(&str) -> Option<(&'static str, i8)>,
    ) -> Result<i8, ParseEventError> {
        let Some(state) = &self.state else {
            return required(self.state_id, "state");
        };
        let Some((name, id)) = named(&state.0) else {
            return Err(ParseEventError::UnknownState { state: state.0.chars().take(64).collect(), kind });
        };
        match self.state_id {
            Some(state_id) if state_id != id => {
                Err(ParseEventError::StateMismatch { state: name, id, state_id })
            }
            _ => Ok(id),
        }
    }

    fn segment_state_id(&self) -> Result<i8, ParseEventError> {
        let named = |name: &str| RemoteLogSegmentState::from_name(name).map(|s| (s.name(), s.id()));
        self.state_id("remote log segment", named)
    }

    fn segment_metadata(mut self) -> Result<RawSegmentMetadata<'a>, ParseEventError> {
        Ok(RawSegmentMetadata {
            topic_id_partition: self.topic_id_partition()?,
            segment_id: parse_id(self.segment_id.take(), "segment_id")?,
            start_offset: required(self.start_offset, "start_offset")?,
            end_offset: required(self.end_offset, "end_offset")?,
            broker_id: required(self.broker_id, "broker_id")?,
            max_timestamp_ms: required(self.max_timestamp_ms, "max_timestamp_ms")?,
            event_timestamp_ms: required(self.event_timestamp_ms, "event_timestamp_ms")?,
            segment_leader_epochs: self.epochs()?,
            segment_size_in_bytes: required(self.segment_size_in_bytes, "segment_size_in_bytes")?,
            custom_metadata: self.custom_metadata()?,
            state_id: self.segment_state_id()?,
            txn_index_empty: required(self.txn_index_empty, "txn_index_empty")?,
        })
    }

    fn segment_update(mut self) -> Result<RawSegmentUpdate<'a>, ParseEventError> {
        Ok(RawSegmentUpdate {
            topic_id_partition: self.topic_id_partition()?,
            segment_id: parse_id(self.segment_id.take(), "segment_id")?,
            broker_id: required(self.broker_id, "broker_id")?,
            event_timestamp_ms: required(self.event_timestamp_ms, "event_timestamp_ms")?,
            custom_metadata: self.custom_metadata()?,
            state_id: self.segment_state_id()?,
        })
    }

    fn partition_delete(mut self) -> Result<RawPartitionDelete<'a>, ParseEventError> {
        let named = |name: &str| RemotePartitionDeleteState::from_name(name).map(|s| (s.name(), s.id()));
        Ok(RawPartitionDelete {
            topic_id_partition: self.topic_id_partition()?,
            broker_id: required(self.broker_id, "broker_id")?,
            event_timestamp_ms: required(self.event_timestamp_ms, "event_timestamp_ms")?,
            state_id: self.state_id("partition deletion", named)?,
        })
    }

    fn segment_snapshot(mut self) -> Result<RawSegmentSnapshot<'a>, ParseEventError> {
        Ok(RawSegmentSnapshot {
            segment_id: parse_id(self.segment_id.take(), "segment_id")?,
            start_offset: required(self.start_offset, "start_offset")?,
            end_offset: required(self.end_offset, "end_offset")?,
            broker_id: required(self.broker_id, "broker_id")?,
            max_timestamp_ms: required(self.max_timestamp_ms, "max_timestamp_ms")?,
            event_timestamp_ms: required(self.event_timestamp_ms, "event_timestamp_ms")?,
            segment_leader_epochs: self.epochs()?,
            segment_size_in_bytes: required(self.segment_size_in_bytes, "segment_size_in_bytes")?,
            custom_metadata: self.custom_metadata()?,
            state_id: self.segment_state_id()?,
            txn_index_empty: required(self.txn_index_empty, "txn_index_empty")?,
        })
    }
}

/// A line in the making. Every field brings the comma before it; the first one becomes the opening brace.
struct Line<'o> {
    out: &'o mut Vec<u8>,
}

impl Line<'_> {
    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn integer(&mut self, field: &str, value: impl itoa::Integer) {
        self.raw(field);
        self.number(value);
    }

    fn number(&mut self, value: impl itoa::Integer) {
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn boolean(&mut self, field: &str, value: bool) {
        self.raw(field);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Text that needs no escapes.
    fn word(&mut self, field: &str, word: &str) {
        self.raw(field);
        self.out.push(b'"');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b'"');
    }

    fn text(&mut self, field: &str, text: &str) {
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
            return self.word(field, text);
        }
        self.raw(field);
        self.out.push(b'"');
        for char in text.chars() {
            self.escaped(char);
        }
        self.out.push(b'"');
    }

    /// Escapes all control characters, more than JSON asks for: a terminal obeys some of them.
    fn escaped(&mut self, char: char) {
        match char {
            '"' => self.out.extend_from_slice(b"\\\""),
            '\\' => self.out.extend_from_slice(b"\\\\"),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
                self.out.extend_from_slice(b"\\u00");
                self.hex_digits(&[char as u8]);
            }
            _ => self.out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    fn hex(&mut self, field: &str, bytes: Option<&[u8]>) {
        self.raw(field);
        let Some(bytes) = bytes else {
            return self.out.extend_from_slice(b"null");
        };
        self.out.push(b'"');
        self.hex_digits(bytes);
        self.out.push(b'"');
    }

    fn hex_digits(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| DIGITS[usize::from(value & 15)];
        self.out.extend(bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]));
    }

    fn id(&mut self, field: &str, id: Uuid) {
        self.raw(field);
        self.out.push(b'"');
        self.out.extend_from_slice(&id.encode());
        self.out.push(b'"');
    }

    fn epochs(&mut self, entries: &[EpochEntry]) {
        self.raw(field!("segment_leader_epochs"));
        let mut separator = b'[';
        for entry in entries {
            self.out.extend_from_slice(&[separator, b'[']);
            self.number(entry.epoch);
            self.out.push(b',');
            self.number(entry.start_offset);
            self.out.push(b']');
            separator = b',';
        }
        if separator == b'[' {
            self.out.push(b'[');
        }
        self.out.push(b']');
    }

    fn state(&mut self, name: Option<&str>, state_id: i8) {
        match name {
            Some(name) => self.word(field!("state"), name),
            None => {
                self.raw(concat!(field!("state"), "null"));
                self.integer(field!("state_id"), state_id);
            }
        }
    }

    fn segment_state(&mut self, state_id: i8) {
        self.state(RemoteLogSegmentState::from_id(state_id).map(RemoteLogSegmentState::name), state_id);
    }

    fn topic_id_partition(&mut self, partition: &RawTopicIdPartition<'_>) {
        self.id(field!("topic_id"), partition.topic_id.0);
        self.text(field!("topic"), &partition.topic);
        self.integer(field!("partition"), partition.partition);
    }

    fn segment_metadata(&mut self, event: &RawSegmentMetadata<'_>) {
        self.word(field!("kind"), SEGMENT_METADATA);
        self.topic_id_partition(&event.topic_id_partition);
        self.id(field!("segment_id"), event.segment_id);
        self.integer(field!("start_offset"), event.start_offset);
        self.integer(field!("end_offset"), event.end_offset);
        self.integer(field!("broker_id"), event.broker_id);
        self.integer(field!("max_timestamp_ms"), event.max_timestamp_ms);
        self.integer(field!("event_timestamp_ms"), event.event_timestamp_ms);
        self.epochs(&event.segment_leader_epochs);
        self.integer(field!("segment_size_in_bytes"), event.segment_size_in_bytes);
        self.hex(field!("custom_metadata"), event.custom_metadata.as_deref());
        self.segment_state(event.state_id);
        self.boolean(field!("txn_index_empty"), event.txn_index_empty);
    }

    fn segment_update(&mut self, event: &RawSegmentUpdate<'_>) {
        self.word(field!("kind"), SEGMENT_METADATA_UPDATE);
        self.topic_id_partition(&event.topic_id_partition);
        self.id(field!("segment_id"), event.segment_id);
        self.integer(field!("broker_id"), event.broker_id);
        self.integer(field!("event_timestamp_ms"), event.event_timestamp_ms);
        self.hex(field!("custom_metadata"), event.custom_metadata.as_deref());
        self.segment_state(event.state_id);
    }

    fn partition_delete(&mut self, event: &RawPartitionDelete<'_>) {
        self.word(field!("kind"), PARTITION_DELETE_METADATA);
        self.topic_id_partition(&event.topic_id_partition);
        self.integer(field!("broker_id"), event.broker_id);
        self.integer(field!("event_timestamp_ms"), event.event_timestamp_ms);
        let state = RemotePartitionDeleteState::from_id(event.state_id);
        self.state(state.map(RemotePartitionDeleteState::name), event.state_id);
    }

    fn segment_snapshot(&mut self, event: &RawSegmentSnapshot<'_>) {
        self.word(field!("kind"), SEGMENT_METADATA_SNAPSHOT);
        self.id(field!("segment_id"), event.segment_id);
        self.integer(field!("start_offset"), event.start_offset);
        self.integer(field!("end_offset"), event.end_offset);
        self.integer(field!("broker_id"), event.broker_id);
        self.integer(field!("max_timestamp_ms"), event.max_timestamp_ms);
        self.integer(field!("event_timestamp_ms"), event.event_timestamp_ms);
        self.epochs(&event.segment_leader_epochs);
        self.integer(field!("segment_size_in_bytes"), event.segment_size_in_bytes);
        self.hex(field!("custom_metadata"), event.custom_metadata.as_deref());
        self.segment_state(event.state_id);
        self.boolean(field!("txn_index_empty"), event.txn_index_empty);
    }
}

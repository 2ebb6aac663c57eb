use std::ops::ControlFlow;

use bytes::Bytes;
use strandline_client::reader::PageVisitor;
use strandline_protocol::records::{BatchHeader, Record};

/// The default name of the metadata topic.
pub const METADATA_TOPIC: &str = "__remote_log_metadata";

/// One record of the metadata topic, borrowed while it is visited.
///
/// Control records (transaction markers) are given out too, marked as such: a judge wants to see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataEventRecord<'a> {
    /// The metadata partition.
    pub partition: i32,
    /// The record's offset in it.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since 1970; -1 if it has none.
    pub timestamp_ms: i64,
    /// The key; `None` is null, as Kafka writes it.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// The record is the broker's own, a transaction marker; its value is no event.
    pub control: bool,
    /// The record was written in a transaction.
    pub transactional: bool,
}

/// One record of the metadata topic that stays, as a subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedMetadataEventRecord {
    /// The metadata partition.
    pub partition: i32,
    /// The record's offset in it.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since 1970; -1 if it has none.
    pub timestamp_ms: i64,
    /// The key; `None` is null, as Kafka writes it.
    pub key: Option<Bytes>,
    /// The value; `None` is null.
    pub value: Option<Bytes>,
    /// The record is the broker's own, a transaction marker; its value is no event.
    pub control: bool,
    /// The record was written in a transaction.
    pub transactional: bool,
}

/// What a record takes up besides its key and value, roughly.
const RECORD_OVERHEAD_BYTES: usize = 64;

impl From<MetadataEventRecord<'_>> for OwnedMetadataEventRecord {
    /// A copy: the bytes of an answer are not kept for the sake of one record.
    fn from(record: MetadataEventRecord<'_>) -> Self {
        Self {
            partition: record.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            control: record.control,
            transactional: record.transactional,
        }
    }
}

impl OwnedMetadataEventRecord {
    /// The record, borrowed.
    pub fn as_record(&self) -> MetadataEventRecord<'_> {
        MetadataEventRecord {
            partition: self.partition,
            offset: self.offset,
            timestamp_ms: self.timestamp_ms,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            control: self.control,
            transactional: self.transactional,
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let payload = [&self.key, &self.value].into_iter().flatten().map(Bytes::len).sum::<usize>();
        payload + RECORD_OVERHEAD_BYTES
    }
}

/// Takes the records of one partition, in the order of their offsets.
///
/// Each partition has its own visitor, so that several are read at once without a lock. A closure serves.
pub trait MetadataEventVisitor: Send {
    /// Takes one record. `Break` ends the reading of this partition behind it, without an error.
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()>;
}

impl<F> MetadataEventVisitor for F
where
    F: FnMut(&MetadataEventRecord<'_>) -> ControlFlow<()> + Send,
{
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        self(record)
    }
}

/// Every record of a metadata partition, for its visitor: control records and aborted ones too.
pub(crate) struct EveryRecord<'v, V> {
    pub(crate) partition: i32,
    pub(crate) visitor: &'v mut V,
}

impl<V: MetadataEventVisitor> PageVisitor for EveryRecord<'_, V> {
    fn record(&mut self, header: &BatchHeader, record: &Record<'_>) -> ControlFlow<()> {
        self.visitor.visit(&MetadataEventRecord {
            partition: self.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            control: header.attributes.is_control(),
            transactional: header.attributes.is_transactional(),
        })
    }
}

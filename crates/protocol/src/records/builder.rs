use std::io;

use super::batch::{Attributes, BATCH_HEADER_BYTES, BATCH_PREFIX_BYTES, BatchHeader, TimestampType, crc_of};
use super::compression::Compression;
use super::varint::{put_i64, size_i64};

/// The producer whose sequence a batch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The producer id, as InitProducerId gave it.
    pub id: i64,
    /// The producer epoch.
    pub epoch: i16,
    /// The sequence number of the batch's first record, per partition from 0; -1 in a transaction marker.
    pub base_sequence: i32,
}

/// What a batch's header says beside its records. The default is what a plain producer sends.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// The offset of the first record; 0 in a Produce request, since the broker sets it.
    pub base_offset: i64,
    /// The leader epoch of the append; -1 in a Produce request, since the broker sets it.
    pub partition_leader_epoch: i32,
    /// How the records are compressed.
    pub compression: Compression,
    /// Who set the timestamps.
    pub timestamp_type: TimestampType,
    /// The producer, for an idempotent or transactional one.
    pub producer: Option<Producer>,
    /// The batch belongs to a transaction.
    pub transactional: bool,
    /// The batch is the broker's own: a transaction marker.
    pub control: bool,
    /// When tombstones may go, in milliseconds since 1970 (KIP-534); takes the place of the base timestamp.
    pub delete_horizon_ms: Option<i64>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: -1,
            compression: Compression::None,
            timestamp_type: TimestampType::CreateTime,
            producer: None,
            transactional: false,
            control: false,
            delete_horizon_ms: None,
        }
    }
}

/// A record to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// Milliseconds since 1970; -1 for none.
    pub timestamp_ms: i64,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// The headers: key (UTF-8) and value, `None` being null.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// A batch cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The offset does not follow the last one, or is out of a batch's reach.
    #[error("offset {offset} cannot follow in a batch whose base offset is {base_offset}")]
    Offset {
        /// The offset.
        offset: i64,
        /// The base offset of the batch.
        base_offset: i64,
    },
    /// A batch's length is a signed 32-bit number.
    #[error("the batch would exceed 2 GiB")]
    TooLarge,
    /// The codec failed.
    #[error("the records cannot be compressed")]
    Compress(#[source] io::Error),
}

/// Writes one batch: records in order, then the header in front of them.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    records: Vec<u8>,
    count: i32,
    /// The last offset delta so far, -1 before the first record.
    last_offset_delta: i32,
    base_timestamp_ms: Option<i64>,
    max_timestamp_ms: i64,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new(options: BatchOptions) -> Self {
        Self {
            options,
            records: Vec::new(),
            count: 0,
            last_offset_delta: -1,
            base_timestamp_ms: options.delete_horizon_ms,
            max_timestamp_ms: -1,
        }
    }

    /// The offset that the next pushed record will have.
    pub fn next_offset(&self) -> i64 {
        self.options.base_offset + i64::from(self.last_offset_delta) + 1
    }

    /// The number of records so far.
    pub fn record_count(&self) -> usize {
        self.count as usize
    }

    /// The bytes of the batch so far, were it not compressed.
    pub fn size_bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.records.len()
    }

    /// Appends a record at the next offset.
    pub fn push(&mut self, record: NewRecord<'_>) -> Result<(), BuildError> {
        self.push_at(self.next_offset(), record)
    }

    /// Appends a record at `offset`, which may lie beyond the next one: the gap is what compaction leaves.
    pub fn push_at(&mut self, offset: i64, record: NewRecord<'_>) -> Result<(), BuildError> {
        let offset_delta = self.delta_of(offset)?;
        let base_timestamp_ms = self.base_timestamp_ms.unwrap_or(record.timestamp_ms);
        let timestamp_delta = record.timestamp_ms.wrapping_sub(base_timestamp_ms);
        let body = body_bytes(timestamp_delta, offset_delta, &record);
        let size = size_i64(body as i64) + body;
        if size > i32::MAX as usize - self.size_bytes() {
            return Err(BuildError::TooLarge);
        }
        let out = &mut self.records;
        put_i64(out, body as i64);
        out.push(0); // The attributes of a record: no bit has a meaning yet.
        put_i64(out, timestamp_delta);
        put_i64(out, i64::from(offset_delta));
        put_bytes(out, record.key);
        put_bytes(out, record.value);
        put_i64(out, record.headers.len() as i64);
        for (key, value) in record.headers {
            put_bytes(out, Some(key.as_bytes()));
            put_bytes(out, *value);
        }
        self.count += 1;
        self.last_offset_delta = offset_delta;
        self.base_timestamp_ms = Some(base_timestamp_ms);
        self.max_timestamp_ms = self.max_timestamp_ms.max(record.timestamp_ms);
        Ok(())
    }

    /// Lets the batch reach to `next_offset` although its last records are gone, as compaction does.
    pub fn extend_to(&mut self, next_offset: i64) -> Result<(), BuildError> {
        self.last_offset_delta = self.delta_of(next_offset.saturating_sub(1))?;
        Ok(())
    }

    fn delta_of(&self, offset: i64) -> Result<i32, BuildError> {
        let base_offset = self.options.base_offset;
        let error = BuildError::Offset { offset, base_offset };
        if base_offset < 0 || offset < self.next_offset() || offset == i64::MAX {
            return Err(error);
        }
        i32::try_from(offset - base_offset).map_err(|_| error)
    }

    /// Appends the batch to `out`.
    ///
    /// A batch without records whose end was never set ([`Self::extend_to`]) covers its base offset.
    pub fn finish(&self, out: &mut Vec<u8>) -> Result<(), BuildError> {
        self.finish_as(self.options.producer, out)
    }

    /// As [`finish`](Self::finish), with a producer that was not known when the batch began.
    pub fn finish_as(&self, producer: Option<Producer>, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let options = &self.options;
        let start = out.len();
        out.extend_from_slice(&[0; BATCH_HEADER_BYTES]);
        // A batch without records has no compressed bytes either: Kafka writes the header alone.
        if self.count > 0 {
            let compressed = options.compression.compress(&self.records, out);
            if let Err(error) = compressed {
                out.truncate(start);
                return Err(BuildError::Compress(error));
            }
        }
        let Ok(batch_length) = i32::try_from(out.len() - start - BATCH_PREFIX_BYTES) else {
            out.truncate(start);
            return Err(BuildError::TooLarge);
        };
        let producer = producer.unwrap_or(Producer { id: -1, epoch: -1, base_sequence: -1 });
        let mut header = BatchHeader {
            base_offset: options.base_offset,
            batch_length,
            partition_leader_epoch: options.partition_leader_epoch,
            crc: 0,
            attributes: self.attributes(),
            last_offset_delta: self.last_offset_delta.max(0),
            base_timestamp_ms: self.base_timestamp_ms.unwrap_or(-1),
            max_timestamp_ms: self.max_timestamp_ms,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence: producer.base_sequence,
            record_count: self.count,
        };
        out[start..start + BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
        header.crc = crc_of(&out[start..]);
        out[start..start + BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
        Ok(())
    }

    fn attributes(&self) -> Attributes {
        let options = &self.options;
        let mut bits = if self.count == 0 { Compression::None.id() } else { options.compression.id() };
        let flags = [
            (options.timestamp_type == TimestampType::LogAppendTime, Attributes::LOG_APPEND_TIME),
            (options.transactional, Attributes::TRANSACTIONAL),
            (options.control, Attributes::CONTROL),
            (options.delete_horizon_ms.is_some(), Attributes::DELETE_HORIZON),
        ];
        for (set, bit) in flags {
            if set {
                bits |= bit;
            }
        }
        Attributes(bits)
    }
}

fn body_bytes(timestamp_delta: i64, offset_delta: i32, record: &NewRecord<'_>) -> usize {
    let headers =
        record.headers.iter().map(|(key, value)| bytes_size(Some(key.as_bytes())) + bytes_size(*value));
    1 + size_i64(timestamp_delta)
        + size_i64(i64::from(offset_delta))
        + bytes_size(record.key)
        + bytes_size(record.value)
        + size_i64(record.headers.len() as i64)
        + headers.sum::<usize>()
}

fn bytes_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| size_i64(bytes.len() as i64) + bytes.len())
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_i64(out, -1),
        Some(bytes) => {
            put_i64(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

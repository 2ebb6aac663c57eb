use super::compression::{Compression, Decompressor};
use super::error::{BatchError, Corruption};
use super::record::Records;

/// The bytes of a batch header: what stands before the first record.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Base offset and length field: the bytes of a batch that its length field does not count.
pub const BATCH_PREFIX_BYTES: usize = 12;

/// Base offset, length, leader epoch and format: what must be there to tell the format.
const MAGIC_END: usize = 17;

/// Where the bytes that the CRC-32C covers begin: at the attributes.
const CRC_START: usize = 21;

/// Who set the timestamps of a batch's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer: each record has its own.
    #[default]
    CreateTime,
    /// The broker: every record has the batch's largest timestamp.
    LogAppendTime,
}

/// The attributes of a batch, bit by bit; the unused ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(pub i16);

impl Attributes {
    pub(super) const LOG_APPEND_TIME: i16 = 1 << 3;
    pub(super) const TRANSACTIONAL: i16 = 1 << 4;
    pub(super) const CONTROL: i16 = 1 << 5;
    pub(super) const DELETE_HORIZON: i16 = 1 << 6;

    /// How the records are compressed; `Err` with the number that Kafka 4.4 gives no meaning.
    pub fn compression(self) -> Result<Compression, i16> {
        Compression::from_id(self.0 & 7)
    }

    /// Who set the timestamps.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// True for a batch that belongs to a transaction, markers included.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// True for a batch that the broker wrote for itself (transaction markers); no client data.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// True where the base timestamp is the delete horizon (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}

/// The header of a batch, 61 bytes, as plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The offset from which the record's offset deltas count.
    pub base_offset: i64,
    /// The bytes that follow this field: the whole batch less 12.
    pub batch_length: i32,
    /// The leader epoch under which the broker appended the batch; -1 in a batch that no broker has appended.
    pub partition_leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Compression and flags.
    pub attributes: Attributes,
    /// The last offset of the batch less its base offset; kept when compaction removes the last record.
    pub last_offset_delta: i32,
    /// From which the timestamp deltas count, in milliseconds since 1970; see [`Self::delete_horizon_ms`].
    pub base_timestamp_ms: i64,
    /// The largest timestamp of the batch, in milliseconds since 1970; -1 if there is none.
    pub max_timestamp_ms: i64,
    /// The producer's id, -1 without one.
    pub producer_id: i64,
    /// The producer's epoch, -1 without one.
    pub producer_epoch: i16,
    /// The sequence number of the first record, -1 without one.
    pub base_sequence: i32,
    /// The number of records; 0 for a batch that compaction emptied.
    pub record_count: i32,
}

/// The big-endian integer at `at`; the array bounds are known when this compiles.
macro_rules! field {
    ($bytes:expr, $at:expr, $type:ty) => {{
        const SIZE: usize = size_of::<$type>();
        let mut field = [0; SIZE];
        field.copy_from_slice(&$bytes[$at..$at + SIZE]);
        <$type>::from_be_bytes(field)
    }};
}

impl BatchHeader {
    /// Reads a header and checks it as far as it can be checked without the records; the CRC is not checked.
    ///
    /// `position` is where the batch begins; it stands in the errors and changes nothing else.
    #[inline]
    pub fn decode(bytes: &[u8; BATCH_HEADER_BYTES], position: u64) -> Result<Self, BatchError> {
        check_prefix(bytes, position)?;
        let header = Self {
            base_offset: field!(bytes, 0, i64),
            batch_length: field!(bytes, 8, i32),
            partition_leader_epoch: field!(bytes, 12, i32),
            crc: field!(bytes, 17, u32),
            attributes: Attributes(field!(bytes, 21, i16)),
            last_offset_delta: field!(bytes, 23, i32),
            base_timestamp_ms: field!(bytes, 27, i64),
            max_timestamp_ms: field!(bytes, 35, i64),
            producer_id: field!(bytes, 43, i64),
            producer_epoch: field!(bytes, 51, i16),
            base_sequence: field!(bytes, 53, i32),
            record_count: field!(bytes, 57, i32),
        };
        let next = header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1);
        let source = if header.base_offset < 0 || header.last_offset_delta < 0 || next.is_none() {
            Corruption::Offsets {
                base_offset: header.base_offset,
                last_offset_delta: header.last_offset_delta,
            }
        } else if header.record_count < 0 {
            Corruption::RecordCount { count: header.record_count, bytes: header.records_bytes() }
        } else {
            return Ok(header);
        };
        Err(BatchError::Corrupt { base_offset: header.base_offset, position, source })
    }

    /// The header's 61 bytes.
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.base_offset.to_be_bytes());
        put(&self.batch_length.to_be_bytes());
        put(&self.partition_leader_epoch.to_be_bytes());
        put(&[2]);
        put(&self.crc.to_be_bytes());
        put(&self.attributes.0.to_be_bytes());
        put(&self.last_offset_delta.to_be_bytes());
        put(&self.base_timestamp_ms.to_be_bytes());
        put(&self.max_timestamp_ms.to_be_bytes());
        put(&self.producer_id.to_be_bytes());
        put(&self.producer_epoch.to_be_bytes());
        put(&self.base_sequence.to_be_bytes());
        put(&self.record_count.to_be_bytes());
        bytes
    }

    /// The offset after the batch, from the header alone: also right for a batch without records.
    #[inline]
    pub fn next_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta) + 1
    }

    /// The bytes of the whole batch.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        BATCH_PREFIX_BYTES + self.batch_length as usize
    }

    /// The bytes that hold the records, compressed or not.
    fn records_bytes(&self) -> usize {
        self.size_bytes().saturating_sub(BATCH_HEADER_BYTES)
    }

    /// When tombstones of this batch may go, in milliseconds since 1970 (KIP-534).
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp_ms)
    }
}

/// Checks format and length of what may be a batch; gives the length of the whole batch as soon as it is known.
#[inline]
fn check_prefix(bytes: &[u8], position: u64) -> Result<Option<usize>, BatchError> {
    if bytes.len() < BATCH_PREFIX_BYTES {
        return Ok(None);
    }
    let base_offset = field!(bytes, 0, i64);
    let length = field!(bytes, 8, i32);
    let corrupt = |source| Err(BatchError::Corrupt { base_offset, position, source });
    if bytes.len() < MAGIC_END {
        return if length < 0 { corrupt(Corruption::Length { length }) } else { Ok(None) };
    }
    match bytes[MAGIC_END - 1] as i8 {
        2 => {}
        // Zeroes everywhere are what a file system leaves after a crash, not a message of format 0.
        magic @ (0 | 1) if length > 0 => {
            return Err(BatchError::LegacyBatch { offset: base_offset, position, magic });
        }
        0 | 1 => return corrupt(Corruption::Length { length }),
        magic => return corrupt(Corruption::Magic { magic }),
    }
    if length < (BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES) as i32 {
        return corrupt(Corruption::Length { length });
    }
    Ok(Some(BATCH_PREFIX_BYTES + length as usize))
}

/// One whole batch whose CRC-32C was right.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The header.
    pub header: BatchHeader,
    /// Where the batch begins, in bytes from the start of what is read.
    pub position: u64,
    /// All bytes of the batch, the header included.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The bytes that hold the records, as they are: compressed where [`Attributes::compression`] says so.
    pub fn records_bytes(&self) -> &'a [u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }

    /// The records, in order.
    ///
    /// Uncompressed ones borrow from the batch, compressed ones are decompressed into `decompressor` first. More
    /// records than the bytes can hold are refused before the first one.
    #[inline]
    pub fn records<'b>(&self, decompressor: &'b mut Decompressor) -> Result<Records<'b>, BatchError>
    where
        'a: 'b,
    {
        let compression = self.header.attributes.compression();
        let bytes = match compression {
            Ok(Compression::None) => self.records_bytes(),
            // Nothing is compressed where nothing is left.
            _ if self.records_bytes().is_empty() => &[],
            _ => decompressor.decompress_id(self.header.attributes.0 & 7, self.records_bytes()).map_err(
                |error| BatchError::Corrupt {
                    base_offset: self.header.base_offset,
                    position: self.position,
                    source: Corruption::Decompress(error),
                },
            )?,
        };
        Records::new(&self.header, self.position, bytes)
    }
}

/// What is left of a buffer behind its last whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutTail {
    /// Where the cut batch begins, in bytes from the start of what is read.
    pub position: u64,
    /// The bytes of it that are there.
    pub bytes: usize,
    /// Its base offset, if the bytes reach that far.
    pub base_offset: Option<i64>,
    /// The bytes of the whole batch, if the bytes reach that far.
    pub batch_bytes: Option<usize>,
}

/// The whole batches of a buffer, in order, each CRC checked.
///
/// A last batch that is cut ends the iteration without an error; [`Self::tail`] then tells of it. An error ends
/// the iteration too: [`Self::position`] stays at the batch that could not be read.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    position: u64,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// Walks `bytes`; positions count from their start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::at(bytes, 0)
    }

    /// Walks `bytes`, which begin at `position` of a file or answer.
    pub fn at(bytes: &'a [u8], position: u64) -> Self {
        Self { rest: bytes, position, failed: false }
    }

    /// Where the next batch begins: behind the last one given out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The cut batch behind the last whole one, once the iteration has ended; `None` if nothing is left or the
    /// iteration ended with an error.
    pub fn tail(&self) -> Option<CutTail> {
        let bytes = self.rest;
        if bytes.is_empty() || self.failed {
            return None;
        }
        Some(CutTail {
            position: self.position,
            bytes: bytes.len(),
            base_offset: bytes.first_chunk().copied().map(i64::from_be_bytes),
            batch_bytes: (bytes.len() >= BATCH_PREFIX_BYTES)
                .then(|| BATCH_PREFIX_BYTES + field!(bytes, 8, i32).max(0) as usize),
        })
    }

    #[inline]
    fn read(&mut self) -> Result<Option<Batch<'a>>, BatchError> {
        let size = match check_prefix(self.rest, self.position)? {
            Some(size) if size <= self.rest.len() => size,
            _ => return Ok(None),
        };
        let (bytes, rest) = self.rest.split_at(size);
        let header = bytes.first_chunk().expect("check_prefix gives no length below that of a header");
        let header = BatchHeader::decode(header, self.position)?;
        let computed = crc32c::crc32c(&bytes[CRC_START..]);
        if computed != header.crc {
            return Err(BatchError::Corrupt {
                base_offset: header.base_offset,
                position: self.position,
                source: Corruption::Checksum { stored: header.crc, computed },
            });
        }
        let batch = Batch { header, position: self.position, bytes };
        self.rest = rest;
        self.position += size as u64;
        Ok(Some(batch))
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.read().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

/// The CRC-32C of a whole batch, as its header should say it.
pub(super) fn crc_of(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[CRC_START..])
}

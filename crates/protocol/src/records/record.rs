use super::batch::{BatchHeader, TimestampType};
use super::error::{BatchError, Corruption};
use super::varint::{take_i32, take_i64};

/// The smallest record: seven fields of one byte each.
const RECORD_BYTES_MIN: usize = 7;

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The record's offset in its partition.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since 1970; -1 if it has none.
    pub timestamp_ms: i64,
    /// The key; `None` is null, which is not the empty key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null (a tombstone), which is not the empty value.
    pub value: Option<&'a [u8]>,
    /// The headers, decoded when they are iterated.
    pub headers: Headers<'a>,
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The key's bytes; UTF-8 where a Kafka client wrote them.
    pub key: &'a [u8],
    /// The value; `None` is null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in order. Their bytes were checked when the record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: i32,
}

impl Headers<'_> {
    /// How many headers are left.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// True if no header is left.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.count == 0 {
            return None;
        }
        let header = take_header(&mut self.bytes).expect("headers are checked when the record is read");
        self.count -= 1;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

/// The records of one batch, in order.
///
/// An error ends the iteration. What is checked: each length stays inside the record, offsets ascend and stay
/// inside the batch, and the batch holds as many records as its header says and nothing else.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    index: i32,
    count: i32,
    base_offset: i64,
    base_timestamp_ms: i64,
    /// The timestamp of every record, where the broker set it.
    append_time_ms: Option<i64>,
    last_offset_delta: i32,
    previous_offset_delta: i32,
    position: u64,
}

impl<'a> Records<'a> {
    #[inline]
    pub(super) fn new(header: &BatchHeader, position: u64, bytes: &'a [u8]) -> Result<Self, BatchError> {
        let records = Self {
            rest: bytes,
            index: 0,
            count: header.record_count,
            base_offset: header.base_offset,
            base_timestamp_ms: header.base_timestamp_ms,
            append_time_ms: match header.attributes.timestamp_type() {
                TimestampType::CreateTime => None,
                TimestampType::LogAppendTime => Some(header.max_timestamp_ms),
            },
            last_offset_delta: header.last_offset_delta,
            previous_offset_delta: -1,
            position,
        };
        let count = header.record_count;
        if count as usize > bytes.len() / RECORD_BYTES_MIN {
            return Err(records.corrupt(Corruption::RecordCount { count, bytes: bytes.len() }));
        }
        if count == 0 && !bytes.is_empty() {
            return Err(records.corrupt(Corruption::BytesAfterRecords { bytes: bytes.len(), count }));
        }
        Ok(records)
    }

    #[cold]
    fn corrupt(&self, source: Corruption) -> BatchError {
        BatchError::Corrupt { base_offset: self.base_offset, position: self.position, source }
    }

    #[inline]
    fn read(&mut self) -> Result<Record<'a>, &'static str> {
        let length = take_i32(&mut self.rest).ok_or("its length is not a number")?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        if length > self.rest.len() {
            return Err("its length goes beyond the batch");
        }
        let (mut body, rest) = self.rest.split_at(length);
        self.rest = rest;
        let (_attributes, after) = body.split_first().ok_or("it has no attributes")?;
        body = after;
        let timestamp_delta = take_i64(&mut body).ok_or("its timestamp delta is not a number")?;
        let offset_delta = take_i32(&mut body).ok_or("its offset delta is not a number")?;
        if offset_delta <= self.previous_offset_delta || offset_delta > self.last_offset_delta {
            return Err("its offset does not follow the previous one inside the batch");
        }
        self.previous_offset_delta = offset_delta;
        let key = take_bytes(&mut body).ok_or("its key goes beyond the record")?;
        let value = take_bytes(&mut body).ok_or("its value goes beyond the record")?;
        let headers = take_headers(body)?;
        Ok(Record {
            offset: self.base_offset + i64::from(offset_delta),
            timestamp_ms: match self.append_time_ms {
                Some(time) => time,
                None => self.base_timestamp_ms.wrapping_add(timestamp_delta),
            },
            key,
            value,
            headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            return None;
        }
        let index = self.index;
        let mut result = self.read().map_err(|what| self.corrupt(Corruption::Record { index, what }));
        self.index += 1;
        if result.is_ok() && self.index == self.count && !self.rest.is_empty() {
            let (bytes, count) = (self.rest.len(), self.count);
            result = Err(self.corrupt(Corruption::BytesAfterRecords { bytes, count }));
        }
        if result.is_err() {
            self.index = self.count;
        }
        Some(result)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some((self.count - self.index) as usize))
    }
}

/// Takes a length and that many bytes; a negative length is null, as Kafka reads it.
#[inline]
fn take_bytes<'a>(body: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_i32(body)?;
    let Ok(length) = usize::try_from(length) else { return Some(None) };
    if length > body.len() {
        return None;
    }
    let (bytes, rest) = body.split_at(length);
    *body = rest;
    Some(Some(bytes))
}

#[inline]
fn take_headers(mut body: &[u8]) -> Result<Headers<'_>, &'static str> {
    let count = take_i32(&mut body).ok_or("its header count is not a number")?;
    if count < 0 {
        return Err("its header count is negative");
    }
    // A header has at least a key length and a value length.
    if count as usize > body.len() / 2 {
        return Err("its header count exceeds the bytes left");
    }
    let headers = Headers { bytes: body, count };
    for _ in 0..count {
        take_header(&mut body).ok_or("a header goes beyond the record, or has no key")?;
    }
    if !body.is_empty() {
        return Err("bytes are left after its headers");
    }
    Ok(headers)
}

fn take_header<'a>(body: &mut &'a [u8]) -> Option<Header<'a>> {
    let key = take_bytes(body)??;
    Some(Header { key, value: take_bytes(body)? })
}

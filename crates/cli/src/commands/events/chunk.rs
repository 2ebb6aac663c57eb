//! Records on their way from the thread that reads them to those that write them out.

use strandline_log::MetadataEventRecord;
use strandline_tier::RecordValue;
use strandline_tier::json::EventPosition;

use crate::event_line::{Wanted, Written};

/// A chunk is full with this many bytes of values.
const CHUNK_BYTES: usize = 256 << 10;

/// Records, copied out of the reader's buffer.
#[derive(Default)]
pub(crate) struct Chunk {
    values: Vec<u8>,
    records: Vec<Record>,
    /// Control records, which are no events.
    control: u64,
}

struct Record {
    partition: i32,
    offset: i64,
    timestamp_ms: i64,
    /// Where the value ends in `values`; it begins where the one before ends. Null values have no bytes.
    end: usize,
    null: bool,
}

impl Chunk {
    /// Takes in a record; true when the chunk is full.
    pub(crate) fn push(&mut self, record: &MetadataEventRecord<'_>) -> bool {
        if record.control {
            self.control += 1;
            return false;
        }
        if self.records.is_empty() {
            self.values.reserve(CHUNK_BYTES + CHUNK_BYTES / 8);
        }
        self.values.extend_from_slice(record.value.unwrap_or_default());
        self.records.push(Record {
            partition: record.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            end: self.values.len(),
            null: record.value.is_none(),
        });
        self.values.len() >= CHUNK_BYTES
    }

    /// How many records it holds.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64 + self.control
    }

    /// How many of them are control records.
    pub(crate) fn control(&self) -> u64 {
        self.control
    }

    /// Writes the events that are wanted.
    pub(crate) fn write(&self, wanted: &Wanted) -> Written {
        let mut written = Written { bytes: Vec::with_capacity(self.values.len() * 5), ..Written::default() };
        let mut start = 0;
        for record in &self.records {
            let bytes = &self.values[start..record.end];
            start = record.end;
            let value = RecordValue::from_value((!record.null).then_some(bytes));
            let position = EventPosition {
                metadata_partition: Some(record.partition),
                offset: Some(record.offset),
                timestamp_ms: (record.timestamp_ms >= 0).then_some(record.timestamp_ms),
            };
            wanted.write(&position, &value, &mut written);
        }
        written
    }
}

//! A log segment: its events where it belongs to the metadata topic, else its batches.

use std::collections::VecDeque;
use std::io::{self, Read};

use serde_json::Value;
use strandline_protocol::records::{Batch, BatchError, Batches, Decompressor, TimestampType};
use strandline_tier::RecordValue;
use strandline_tier::json::EventPosition;

use super::event::event_row;
use super::{Broken, Row, row, time};

/// How much of a segment is read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// The largest batch that is read; 128 times Kafka's default limit. Beyond it a length is taken for damage.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// The rows: events where the first record is one, else batches. A cut last batch is an error at the end.
///
/// Memory: one chunk and its rows, or the largest batch where that is more.
pub(super) fn rows(reader: impl Read) -> impl Iterator<Item = Result<Row, Broken>> {
    let mut segment = Segment {
        reader,
        buffer: vec![0; CHUNK_BYTES],
        filled: 0,
        position: 0,
        events: None,
        decompressor: Decompressor::default(),
        ended: false,
    };
    let mut waiting = VecDeque::new();
    std::iter::from_fn(move || {
        while waiting.is_empty() && !segment.ended {
            segment.read_on(&mut waiting);
        }
        waiting.pop_front()
    })
}

/// A segment on its way through a buffer.
struct Segment<R> {
    reader: R,
    buffer: Vec<u8>,
    /// How many bytes of the buffer are read and not yet rows.
    filled: usize,
    /// Where in the file they begin.
    position: u64,
    /// Whether the first record that is no control record was an event of the metadata topic.
    events: Option<bool>,
    decompressor: Decompressor,
    ended: bool,
}

impl<R: Read> Segment<R> {
    /// Reads once, and makes rows of the batches that are whole then.
    fn read_on(&mut self, rows: &mut VecDeque<Result<Row, Broken>>) {
        let read = match self.reader.read(&mut self.buffer[self.filled..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => {
                return self
                    .end(rows, Broken::at_byte(self.position, format!("the file cannot be read: {error}")));
            }
        };
        self.filled += read;
        let mut batches = Batches::at(&self.buffer[..self.filled], self.position);
        for batch in &mut batches {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    self.ended = true;
                    rows.push_back(Err(broken(&error)));
                    return;
                }
            };
            if self.events.is_none() && !batch.header.attributes.is_control() {
                self.events = first_is_event(&batch, &mut self.decompressor);
            }
            if self.events == Some(true) {
                rows.extend(event_rows(&batch, &mut self.decompressor));
            } else {
                rows.push_back(Ok(batch_row(&batch)));
            }
        }
        let consumed = (batches.position() - self.position) as usize;
        let tail = batches.tail();
        self.position += consumed as u64;
        self.buffer.copy_within(consumed..self.filled, 0);
        self.filled -= consumed;
        let Some(tail) = tail else {
            self.ended = read == 0;
            return;
        };
        let wanted = tail.batch_bytes.unwrap_or(0);
        if wanted > BATCH_BYTES_MAX {
            let problem =
                format!("the batch claims {wanted} bytes, more than the limit of {BATCH_BYTES_MAX}");
            self.end(rows, Broken::at_byte(tail.position, problem));
        } else if read == 0 {
            let problem = format!("the last batch is cut: {} bytes of it are there", tail.bytes);
            self.end(rows, Broken::at_byte(tail.position, problem));
        } else if self.filled == self.buffer.len() {
            // Only as fast as bytes come: a damaged length alone takes no memory.
            self.buffer.resize(self.filled * 2, 0);
        }
    }

    fn end(&mut self, rows: &mut VecDeque<Result<Row, Broken>>, broken: Broken) {
        self.ended = true;
        rows.push_back(Err(broken));
    }
}

fn broken(error: &BatchError) -> Broken {
    let mut problem = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        problem = format!("{problem}: {error}");
        cause = error.source();
    }
    Broken { place: format!("offset {}, byte {}", error.offset(), error.position()), problem }
}

/// Whether a batch's first record is an event of the metadata topic; `None` for a batch without records.
fn first_is_event(batch: &Batch<'_>, decompressor: &mut Decompressor) -> Option<bool> {
    let Ok(mut records) = batch.records(decompressor) else { return Some(false) };
    let Ok(record) = records.next()? else { return Some(false) };
    Some(matches!(RecordValue::from_value(record.value), RecordValue::Event(_)))
}

fn event_rows(batch: &Batch<'_>, decompressor: &mut Decompressor) -> Vec<Result<Row, Broken>> {
    if batch.header.attributes.is_control() {
        return vec![Ok(batch_row(batch))];
    }
    let records = match batch.records(decompressor) {
        Ok(records) => records,
        Err(error) => return vec![Err(broken(&error))],
    };
    let event = |record: Result<strandline_protocol::records::Record<'_>, BatchError>| {
        let record = record.map_err(|error| broken(&error))?;
        let position = EventPosition {
            metadata_partition: None,
            offset: Some(record.offset),
            timestamp_ms: Some(record.timestamp_ms),
        };
        Ok(event_row(&position, &RecordValue::from_value(record.value)))
    };
    records.map(event).collect()
}

fn batch_row(batch: &Batch<'_>) -> Row {
    let header = &batch.header;
    let attributes = header.attributes;
    let known = |number: i64| -> Value { (number >= 0).then_some(number).into() };
    row([
        ("base_offset", header.base_offset.into()),
        ("last_offset", (header.next_offset() - 1).into()),
        ("records", header.record_count.into()),
        ("position", batch.position.into()),
        ("size_bytes", batch.bytes.len().into()),
        ("leader_epoch", header.partition_leader_epoch.into()),
        ("max_time", time(header.max_timestamp_ms)),
        (
            "timestamp_type",
            match attributes.timestamp_type() {
                TimestampType::CreateTime => "CreateTime",
                TimestampType::LogAppendTime => "LogAppendTime",
            }
            .into(),
        ),
        (
            "compression",
            match attributes.compression() {
                Ok(compression) => compression.name().into(),
                Err(id) => id.into(),
            },
        ),
        ("producer_id", known(header.producer_id)),
        ("base_sequence", known(header.base_sequence.into())),
        ("transactional", attributes.is_transactional().into()),
        ("control", attributes.is_control().into()),
    ])
}

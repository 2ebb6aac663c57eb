//! What the bytes of a Fetch answer, or of a segment file, come to: batch by batch, record by record. No socket, no clock.
//!
//! The position follows batch ends, never records, so gaps that compaction left, empty batches and control batches
//! make progress.

use std::ops::ControlFlow;

use strandline_protocol::records::{Batch, BatchError, BatchHeader, Batches, CutTail, Decompressor, Record};

/// How far a reading came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first offset not read. It follows batch ends, so it can exceed the last record's offset + 1.
    pub next_offset: i64,
    /// The leader epoch of the last batch of which something was read; `None` before the first, and where the batch
    /// names none.
    pub leader_epoch: Option<i32>,
    /// The records given out.
    pub records: u64,
    /// The batches read to their end, empty ones and those that were passed over included.
    pub batches: u64,
    /// The bytes of those batches, compressed as they are.
    pub bytes: u64,
}

/// Takes what is read.
pub trait PageVisitor {
    /// Looks at a batch before its records; `false` passes over them.
    ///
    /// # Errors
    /// The batch says something of itself that cannot be read.
    fn batch(&mut self, batch: &Batch<'_>, decompressor: &mut Decompressor) -> Result<bool, BatchError> {
        let (_, _) = (batch, decompressor);
        Ok(true)
    }

    /// Takes one record. `Break` ends the reading behind it, without an error.
    fn record(&mut self, header: &BatchHeader, record: &Record<'_>) -> ControlFlow<()>;
}

/// Why a reading ended before the bytes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The position has reached the end that was given.
    EndOffset,
    /// The visitor asked for it.
    Visitor,
}

/// The bytes cannot be read any further. What stands before the damage was visited.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A batch is damaged, of a format before Kafka 0.11, or larger than the decompressor allows.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A batch begins below the end of the one before it, which no log has.
    #[error("a batch at offset {offset} follows one that ends at {expected}")]
    OffsetsFall {
        /// Where the later batch begins.
        offset: i64,
        /// The offset at which the batch before it ends.
        expected: i64,
    },
}

/// Visits the whole batches of a Fetch answer, from the position on, below `end_offset`.
///
/// A cut batch at the end of the bytes is left for the next answer and told. On an error the records before the damage
/// were visited, and the position stands behind the last of them.
///
/// # Errors
/// [`PageError`].
pub fn visit_page(
    bytes: &[u8],
    end_offset: i64,
    decompressor: &mut Decompressor,
    progress: &mut Progress,
    visitor: &mut impl PageVisitor,
) -> Result<(Option<Ended>, Option<CutTail>), PageError> {
    let mut expected = 0;
    let mut batches = Batches::new(bytes);
    for batch in batches.by_ref() {
        let batch = batch?;
        let offset = batch.header.base_offset;
        if offset < expected {
            return Err(PageError::OffsetsFall { offset, expected });
        }
        expected = batch.header.next_offset();
        // The first batch holds the offset asked for, and may begin below it; what ends below it is not ours.
        if batch.header.next_offset() <= progress.next_offset {
            continue;
        }
        if let Some(ended) = visit_batch(&batch, end_offset, decompressor, progress, visitor)? {
            return Ok((Some(ended), None));
        }
    }
    Ok((None, batches.tail()))
}

/// Visits the records of one batch from the position on, below `end_offset`, and moves the position past the batch.
///
/// # Errors
/// The batch is damaged, or larger than the decompressor allows. The records before the damage were visited, and the
/// position stands behind the last of them.
pub fn visit_batch(
    batch: &Batch<'_>,
    end_offset: i64,
    decompressor: &mut Decompressor,
    progress: &mut Progress,
    visitor: &mut impl PageVisitor,
) -> Result<Option<Ended>, BatchError> {
    let header = &batch.header;
    let leader_epoch = Some(header.partition_leader_epoch).filter(|epoch| *epoch >= 0);
    if visitor.batch(batch, decompressor)? {
        for record in batch.records(decompressor)? {
            let record = record?;
            if record.offset < progress.next_offset {
                continue;
            }
            if record.offset >= end_offset {
                progress.next_offset = progress.next_offset.max(end_offset);
                break;
            }
            progress.records += 1;
            (progress.next_offset, progress.leader_epoch) = (record.offset + 1, leader_epoch);
            if visitor.record(header, &record).is_break() {
                return Ok(Some(Ended::Visitor));
            }
        }
    }
    progress.batches += 1;
    progress.bytes += batch.bytes.len() as u64;
    progress.next_offset = header.next_offset().min(end_offset).max(progress.next_offset);
    progress.leader_epoch = leader_epoch;
    Ok((progress.next_offset >= end_offset).then_some(Ended::EndOffset))
}

#[cfg(test)]
mod tests;

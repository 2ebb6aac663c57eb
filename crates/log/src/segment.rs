use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use strandline_protocol::records::{Batch, BatchError, Batches, Corruption};

use crate::data_dir::{FileError, open_file, segment_size};

/// How much of a segment file is read at a time: what stays in a core's own cache until it is walked.
const CHUNK_BYTES: usize = 256 << 10;

/// The largest batch that is read; 128 times Kafka's default limit. Beyond it a length is taken for damage.
pub(crate) const BATCH_BYTES_MAX: usize = 128 << 20;

/// A buffer for one reader after another; grows to the largest batch seen.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
}

/// How the walk over a segment file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentEnd {
    /// With the last batch.
    Whole,
    /// Inside a batch that begins at `position`; `bytes` of it are there.
    Cut { position: u64, bytes: u64 },
    /// With `bytes` zeroes from `position` on, and no batch after them.
    Zeroes { position: u64, bytes: u64 },
    /// The caller had enough.
    Stopped,
}

/// Why a segment file could not be walked to its end.
pub(crate) enum WalkError {
    File(FileError),
    Batch(BatchError),
}

/// Walks the batches of a segment file in order; each CRC is checked.
///
/// Memory: one chunk, or the largest batch where that is more. A file that grows meanwhile is read as far as it
/// reaches when its end is met.
pub(crate) fn walk_segment(
    path: &Path,
    base_offset: i64,
    buffer: &mut ReadBuffer,
    mut each: impl FnMut(&Batch<'_>) -> Result<ControlFlow<()>, WalkError>,
) -> Result<SegmentEnd, WalkError> {
    let failed = |source| WalkError::File(FileError::Unreadable { path: path.to_owned(), source });
    let mut file = open_file(path).map_err(failed)?;
    segment_size(path, &file).map_err(WalkError::File)?;
    if buffer.bytes.len() < CHUNK_BYTES {
        buffer.bytes.resize(CHUNK_BYTES, 0);
    }
    let (mut position, mut filled) = (0, 0);
    loop {
        let read = read_retrying(&mut file, &mut buffer.bytes[filled..]).map_err(failed)?;
        filled += read;
        let mut batches = Batches::at(&buffer.bytes[..filled], position);
        for batch in &mut batches {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    let kept = (error.position() - position) as usize;
                    return not_a_batch(path, base_offset, error, &buffer.bytes[kept..filled], file);
                }
            };
            if batch.header.base_offset < base_offset {
                let what = format!("it holds a batch at offset {}", batch.header.base_offset);
                return Err(WalkError::File(FileError::NotALogSegment { path: path.to_owned(), what }));
            }
            if each(&batch)?.is_break() {
                return Ok(SegmentEnd::Stopped);
            }
        }
        let consumed = (batches.position() - position) as usize;
        let tail = batches.tail();
        position += consumed as u64;
        buffer.bytes.copy_within(consumed..filled, 0);
        filled -= consumed;
        let wanted = tail.and_then(|tail| tail.batch_bytes).unwrap_or(0);
        if read == 0 {
            return ended(path, base_offset, position, &buffer.bytes[..filled], wanted);
        }
        if wanted > BATCH_BYTES_MAX {
            return Err(WalkError::Batch(too_long(&buffer.bytes[..filled], position, wanted)));
        }
        if wanted > buffer.bytes.len() {
            let rest = file.metadata().map_err(failed)?.len().saturating_sub(position);
            // What the file cannot hold is cut; the buffer grows only as far as there are bytes.
            let size = usize::try_from(rest).unwrap_or(usize::MAX).min(wanted).max(filled + 1);
            buffer.bytes.resize(size.max(buffer.bytes.len()), 0);
        }
    }
}

fn read_retrying(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The file has ended; `rest` is what follows its last whole batch.
fn ended(
    path: &Path,
    base_offset: i64,
    position: u64,
    rest: &[u8],
    wanted: usize,
) -> Result<SegmentEnd, WalkError> {
    let bytes = rest.len() as u64;
    if rest.is_empty() {
        return Ok(SegmentEnd::Whole);
    }
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(SegmentEnd::Zeroes { position, bytes });
    }
    let offset = rest.first_chunk().copied().map(i64::from_be_bytes);
    if offset.is_some_and(|offset| offset < base_offset) || (position == 0 && offset.is_none()) {
        let what = format!("no batch at offset {base_offset} stands at its beginning");
        return Err(WalkError::File(FileError::NotALogSegment { path: path.to_owned(), what }));
    }
    if wanted > BATCH_BYTES_MAX {
        return Err(WalkError::Batch(too_long(rest, position, wanted)));
    }
    // A damaged length that points beyond the end of the file would look like a cut batch and hide what follows.
    if let Some(next) = find_batch(&rest[1..], offset.unwrap_or(base_offset)) {
        let what = format!(
            "the batch at byte {position} claims {wanted} bytes, but another batch begins {} bytes later",
            next + 1
        );
        return Err(WalkError::File(FileError::DamagedLength { path: path.to_owned(), position, what }));
    }
    Ok(SegmentEnd::Cut { position, bytes })
}

fn too_long(batch: &[u8], position: u64, wanted: usize) -> BatchError {
    BatchError::Corrupt {
        base_offset: batch.first_chunk().copied().map_or(-1, i64::from_be_bytes),
        position,
        source: Corruption::TooLong {
            length: i32::try_from(wanted).unwrap_or(i32::MAX),
            max: BATCH_BYTES_MAX,
        },
    }
}

/// Where in `bytes` a whole batch with an offset above `after` begins. Looks a few batches far, no farther.
fn find_batch(bytes: &[u8], after: i64) -> Option<usize> {
    const MAGIC_AT: usize = 16;
    const SEARCH_BYTES_MAX: usize = 4 << 20;
    const CANDIDATES_MAX: usize = 1000;
    let ends = bytes.len().saturating_sub(MAGIC_AT).min(SEARCH_BYTES_MAX);
    (0..ends)
        .filter(|&start| {
            bytes[start + MAGIC_AT] == 2
                && bytes[start..]
                    .first_chunk()
                    .copied()
                    .map(i64::from_be_bytes)
                    .is_some_and(|offset| offset > after)
        })
        .take(CANDIDATES_MAX)
        .find(|&start| matches!(Batches::new(&bytes[start..]).next(), Some(Ok(_))))
}

/// What stands where a batch should begin: zeroes to the end of the file, another kind of file, or damage.
fn not_a_batch(
    path: &Path,
    base_offset: i64,
    error: BatchError,
    first: &[u8],
    mut file: File,
) -> Result<SegmentEnd, WalkError> {
    let position = error.position();
    if matches!(&error, BatchError::Corrupt { source: Corruption::Length { length: 0 }, .. })
        && first.iter().all(|byte| *byte == 0)
    {
        let mut bytes = first.len() as u64;
        let mut chunk = vec![0; 64 << 10];
        loop {
            let read = read_retrying(&mut file, &mut chunk)
                .map_err(|source| WalkError::File(FileError::Unreadable { path: path.to_owned(), source }))?;
            if read == 0 {
                return Ok(SegmentEnd::Zeroes { position, bytes });
            }
            if chunk[..read].iter().any(|byte| *byte != 0) {
                return Err(WalkError::Batch(error));
            }
            bytes += read as u64;
        }
    }
    if position == 0 && error.offset() != base_offset {
        let what = format!("no batch at offset {base_offset} stands at its beginning");
        return Err(WalkError::File(FileError::NotALogSegment { path: path.to_owned(), what }));
    }
    Err(WalkError::Batch(error))
}

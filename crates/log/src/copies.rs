//! Copies of one partition, held against each other.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::data_dir::PartitionDir;
use crate::segment::{ReadBuffer, SegmentEnd, walk_segment};

/// How many batches are told at a time, and how many such tellings wait.
const TOLD_BATCHES: usize = 4096;
const TOLD_WAITING: usize = 2;

/// A batch as its copies have it in common: base offset and checksum.
type BatchMark = (i64, u32);

/// The first offset at which two copies differ, as far as both reach and can be read. Memory is bounded; both are read.
///
/// Damage is not told here: whoever reads the copy meets it.
pub(crate) fn first_difference(one: &PartitionDir, other: &PartitionDir) -> Option<i64> {
    let start = one.local_start_offset().max(other.local_start_offset());
    std::thread::scope(|scope| {
        let [one, other] = [one, other].map(|dir| {
            let (sender, receiver) = sync_channel(TOLD_WAITING);
            scope.spawn(move || tell(dir, start, sender));
            marks(receiver)
        });
        let differing = one.zip(other).find(|(one, other)| one != other);
        differing.map(|((one, _), (other, _))| one.min(other))
    })
}

fn marks(receiver: Receiver<Vec<BatchMark>>) -> impl Iterator<Item = BatchMark> {
    receiver.into_iter().flatten()
}

/// Tells every batch from `start` on, until the copy ends or nobody listens.
fn tell(dir: &PartitionDir, start: i64, listener: SyncSender<Vec<BatchMark>>) {
    let mut buffer = ReadBuffer::default();
    let mut told = Vec::with_capacity(TOLD_BATCHES);
    for segment in &dir.segments {
        let end = walk_segment(&segment.path, segment.base_offset, &mut buffer, |batch| {
            if batch.header.base_offset >= start {
                told.push((batch.header.base_offset, batch.header.crc));
            }
            if told.len() < TOLD_BATCHES {
                return Ok(ControlFlow::Continue(()));
            }
            let full = std::mem::replace(&mut told, Vec::with_capacity(TOLD_BATCHES));
            let heard = listener.send(full).is_ok();
            Ok(if heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        if !matches!(end, Ok(SegmentEnd::Whole)) {
            break;
        }
    }
    // A listener that has found a difference is gone.
    let _ = listener.send(told);
}

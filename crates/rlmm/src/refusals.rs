//! What must never be written to a topic that Java brokers read.

use strandline_tier::{
    RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteState,
};

use crate::errors::RefusedWrite;
use crate::manager::PartitionHolders;

/// Whether an event may be written at all, by what it says itself: the rules that the manager holds its own writes to. What
/// came before it in the log is not looked at.
///
/// # Errors
/// [`RefusedWrite`] says what a broker would come to.
pub fn check_write(event: &RawEvent<'_>, holders: PartitionHolders) -> Result<(), RefusedWrite> {
    match event {
        RawEvent::SegmentMetadata(event) => check_add(event),
        RawEvent::SegmentMetadataUpdate(event) => check_update(event).map(|_| ()),
        RawEvent::PartitionDeleteMetadata(event) => check_partition_delete(event, holders),
        RawEvent::SegmentMetadataSnapshot(_) => Err(RefusedWrite::Snapshot),
    }
}

pub(crate) fn check_add(event: &RawSegmentMetadata<'_>) -> Result<(), RefusedWrite> {
    let state = event.check()?;
    if state != RemoteLogSegmentState::CopySegmentStarted {
        return Err(RefusedWrite::NotStarted { state });
    }
    let end_offset = event.end_offset;
    // An epoch may begin right behind the end: it is empty then.
    let beyond =
        event.segment_leader_epochs.iter().find(|entry| entry.start_offset > end_offset.saturating_add(1));
    match beyond {
        Some(&entry) => Err(RefusedWrite::EpochBeyondEnd {
            epoch: entry.epoch,
            start_offset: entry.start_offset,
            end_offset,
        }),
        None => Ok(()),
    }
}

pub(crate) fn check_update(event: &RawSegmentUpdate<'_>) -> Result<RemoteLogSegmentState, RefusedWrite> {
    match event.check()? {
        RemoteLogSegmentState::CopySegmentStarted => Err(RefusedWrite::UpdateToStarted),
        state => Ok(state),
    }
}

pub(crate) fn check_partition_delete(
    event: &RawPartitionDelete<'_>,
    holders: PartitionHolders,
) -> Result<(), RefusedWrite> {
    match (event.check()?, holders) {
        (RemotePartitionDeleteState::DeletePartitionFinished, PartitionHolders::Possible) => {
            Err(RefusedWrite::PartitionMayBeHeld)
        }
        _ => Ok(()),
    }
}

//! Building an index from what another one held, as a snapshot does.

use super::RemoteLogSegmentIndex;
use crate::{EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid};

/// Builds an index from the parts that another one told: all of its
/// [segments](RemoteLogSegmentIndex::list_remote_log_segments) first, then for each
/// [leader epoch](RemoteLogSegmentIndex::leader_epochs) the [readable](RemoteLogSegmentIndex::referenced) and the
/// [other](RemoteLogSegmentIndex::unreferenced) segments and the
/// [highest offset](RemoteLogSegmentIndex::highest_offset_for_epoch).
///
/// The parts are not trusted: what no sequence of events could have led to is an error.
#[derive(Debug, Default)]
pub struct RemoteLogSegmentIndexBuilder {
    index: RemoteLogSegmentIndex,
}

/// The parts do not make an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A segment comes twice.
    #[error("segment {segment_id} comes twice")]
    SegmentTwice {
        /// The segment.
        segment_id: Uuid,
    },
    /// A segment is in a state in which no index keeps it.
    #[error("segment {segment_id} is in state {state}")]
    Gone {
        /// The segment.
        segment_id: Uuid,
        /// The state.
        state: RemoteLogSegmentState,
    },
    /// A leader epoch reads from a segment that is not there, is not readable, or has that epoch elsewhere.
    #[error(
        "leader epoch {epoch} reads from segment {segment_id} at offset {start_offset}, which does not fit"
    )]
    Referenced {
        /// The leader epoch.
        epoch: i32,
        /// Where the epoch would begin in the segment.
        start_offset: i64,
        /// The segment.
        segment_id: Uuid,
    },
}

impl RemoteLogSegmentIndexBuilder {
    /// A builder without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a segment.
    pub fn segment(&mut self, metadata: RemoteLogSegmentMetadata) -> Result<(), RestoreError> {
        let (segment_id, state) = (metadata.segment_id(), metadata.state());
        if state == RemoteLogSegmentState::DeleteSegmentFinished {
            return Err(RestoreError::Gone { segment_id, state });
        }
        if self.index.segments.find(segment_id).is_some() {
            return Err(RestoreError::SegmentTwice { segment_id });
        }
        self.index.segments.insert(metadata);
        Ok(())
    }

    /// Adds a leader epoch, or raises its highest offset.
    pub fn epoch(&mut self, epoch: i32, highest_offset: Option<i64>) {
        let state = self.index.epochs.entry(epoch).or_default();
        state.highest_offset = state.highest_offset.max(highest_offset);
    }

    /// Makes a segment, which must have been added, readable in the epoch from an offset on.
    pub fn referenced(
        &mut self,
        epoch: i32,
        start_offset: i64,
        segment_id: Uuid,
    ) -> Result<(), RestoreError> {
        let fits = |slot: &_| {
            let segment: &RemoteLogSegmentMetadata = &self.index.segments[*slot];
            segment.state() == RemoteLogSegmentState::CopySegmentFinished
                && segment.segment_leader_epochs().any(|entry| entry == EpochEntry { epoch, start_offset })
        };
        let slot = self.index.segments.find(segment_id).filter(fits);
        let slot = slot.ok_or(RestoreError::Referenced { epoch, start_offset, segment_id })?;
        self.index.epochs.entry(epoch).or_default().referenced.insert(start_offset, slot);
        Ok(())
    }

    /// Adds a segment to those of the epoch that cannot be read. It need not exist: ids outlive their segments here.
    pub fn unreferenced(&mut self, epoch: i32, segment_id: Uuid) {
        self.index.epochs.entry(epoch).or_default().unreferenced.insert(segment_id);
    }

    /// The index, not marked initialised.
    pub fn build(self) -> RemoteLogSegmentIndex {
        self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawSegmentMetadata, RawSegmentUpdate, RawTopicIdPartition};

    fn partition() -> RawTopicIdPartition<'static> {
        let topic_id = "vaZwr6blSEWMAbm7z-tW-w".parse().unwrap();
        RawTopicIdPartition { topic: "orders".into(), topic_id, partition: 0 }
    }

    fn started(
        id: u8,
        start_offset: i64,
        end_offset: i64,
        epochs: &[(i32, i64)],
    ) -> RawSegmentMetadata<'static> {
        RawSegmentMetadata {
            topic_id_partition: partition(),
            segment_id: Uuid([id; 16]),
            start_offset,
            end_offset,
            broker_id: 1,
            max_timestamp_ms: 5,
            event_timestamp_ms: 6,
            segment_leader_epochs: epochs
                .iter()
                .map(|&(epoch, start_offset)| EpochEntry { epoch, start_offset })
                .collect(),
            segment_size_in_bytes: 7,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: false,
        }
    }

    fn update(id: u8, state_id: i8) -> RawSegmentUpdate<'static> {
        RawSegmentUpdate {
            topic_id_partition: partition(),
            segment_id: Uuid([id; 16]),
            broker_id: 2,
            event_timestamp_ms: 8,
            custom_metadata: Some(vec![id].into()),
            state_id,
        }
    }

    fn segment(id: u8, epochs: &[(i32, i64)], state_id: i8) -> RemoteLogSegmentMetadata {
        RemoteLogSegmentMetadata::new(&RawSegmentMetadata { state_id, ..started(id, 0, 99, epochs) }).unwrap()
    }

    #[test]
    fn what_an_index_tells_of_itself_builds_one_that_goes_on_alike() {
        let mut index = RemoteLogSegmentIndex::new();
        for (id, start, end, epochs) in [
            (1, 0, 99, &[(0, 0), (1, 50)][..]),
            (2, 100, 199, &[(1, 100)]),
            (3, 0, 250, &[(1, 0)]),
            (4, 300, 310, &[(2, 300)]),
        ] {
            index.apply_segment_metadata(&started(id, start, end, epochs)).unwrap();
        }
        for (id, state_id) in [(1, 1), (2, 1), (3, 1), (2, 2)] {
            index.apply_segment_update(&update(id, state_id)).unwrap();
        }
        let mut builder = RemoteLogSegmentIndexBuilder::new();
        index.list_remote_log_segments().for_each(|segment| builder.segment(segment.clone()).unwrap());
        for epoch in index.leader_epochs() {
            builder.epoch(epoch, index.highest_offset_for_epoch(epoch));
            for (start_offset, segment_id) in index.referenced(epoch) {
                builder.referenced(epoch, start_offset, segment_id).unwrap();
            }
            index.unreferenced(epoch).for_each(|segment_id| builder.unreferenced(epoch, segment_id));
        }
        let mut restored = builder.build();
        assert!(!restored.is_initialised());
        // Both take the same further events, among them one that is refused and one of a segment not there.
        for (id, state_id) in [(2, 3), (4, 1), (1, 0), (9, 1), (3, 2), (3, 3)] {
            assert_eq!(
                restored.apply_segment_update(&update(id, state_id)),
                index.apply_segment_update(&update(id, state_id))
            );
            for epoch in 0..4 {
                assert_eq!(
                    restored.list_remote_log_segments_for_epoch(epoch),
                    index.list_remote_log_segments_for_epoch(epoch)
                );
                assert_eq!(restored.highest_offset_for_epoch(epoch), index.highest_offset_for_epoch(epoch));
                for offset in 0..320 {
                    assert_eq!(
                        restored.remote_log_segment_metadata(epoch, offset),
                        index.remote_log_segment_metadata(epoch, offset)
                    );
                }
            }
        }
    }

    #[test]
    fn parts_that_no_events_lead_to_are_refused() {
        let mut builder = RemoteLogSegmentIndexBuilder::new();
        builder.segment(segment(1, &[(0, 0)], 1)).unwrap();
        builder.segment(segment(2, &[(0, 0)], 2)).unwrap();
        let segment_id = Uuid([1; 16]);
        assert_eq!(builder.segment(segment(1, &[(0, 0)], 1)), Err(RestoreError::SegmentTwice { segment_id }));
        let state = RemoteLogSegmentState::DeleteSegmentFinished;
        let gone = RestoreError::Gone { segment_id: Uuid([3; 16]), state };
        assert_eq!(builder.segment(segment(3, &[(0, 0)], 3)), Err(gone));
        for (epoch, start_offset, id) in [(0, 0, 2), (0, 1, 1), (1, 0, 1), (0, 0, 9)] {
            let segment_id = Uuid([id; 16]);
            let refused = RestoreError::Referenced { epoch, start_offset, segment_id };
            assert_eq!(builder.referenced(epoch, start_offset, segment_id), Err(refused));
        }
        builder.referenced(0, 0, segment_id).unwrap();
        assert_eq!(builder.build().referenced(0).collect::<Vec<_>>(), [(0, segment_id)]);
    }
}

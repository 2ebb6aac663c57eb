//! What a broker knows about the segments of one user partition, rebuilt from the partition's events.

mod offsets;
mod restore;
mod segments;

use std::collections::BTreeMap;

use hashbrown::HashSet;

use self::offsets::OffsetMap;
pub use self::restore::{RemoteLogSegmentIndexBuilder, RestoreError};
use self::segments::{SegmentTable, Slot};
use crate::{
    ObjectError, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid,
};

/// The segments of one user partition, with the answers of Kafka's cache, its quirks included.
///
/// Events go in through [`apply_segment_metadata`](Self::apply_segment_metadata) and
/// [`apply_segment_update`](Self::apply_segment_update) in the order of the metadata partition. The index does
/// not look at the partition that an event names: the caller gives it the events of one
/// ([`RemotePartitionMetadataStore`](crate::RemotePartitionMetadataStore) does).
///
/// Queries answer by reference. A look-up takes O(log n) for n readable segments, an event amortised
/// O(log n) for each of its epochs. Deleted segments free their place; leader epochs are never forgotten, as in
/// Kafka.
///
/// Source: KIP-405, `RemoteLogMetadataCache`, `RemoteLogLeaderEpochState`.
#[derive(Debug, Default)]
pub struct RemoteLogSegmentIndex {
    segments: SegmentTable,
    epochs: BTreeMap<i32, EpochState>,
    initialised: bool,
}

/// What is known about the segments of one leader epoch.
#[derive(Debug, Default)]
struct EpochState {
    /// The readable segments by the offset at which the epoch begins in them.
    referenced: OffsetMap<Slot>,
    /// Segments that are being copied or deleted, or that another one displaced. An id can outlive its segment.
    unreferenced: HashSet<Uuid>,
    /// The highest offset ever readable. Never lowered.
    highest_offset: Option<i64>,
}

/// What an event did. Everything but [`Applied`](Self::Applied) changed nothing, and is no error for Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApplyOutcome {
    /// The event is part of the answers from here on.
    Applied,
    /// A segment was introduced again after it had left COPY_SEGMENT_STARTED.
    AlreadyKnown {
        /// The state that it is in.
        state: RemoteLogSegmentState,
    },
    /// An update of a segment that was never introduced, or is gone.
    UnknownSegment,
    /// An update that the table of states does not allow.
    InvalidTransition {
        /// The state that the segment is in.
        from: RemoteLogSegmentState,
        /// The state that the update asks for.
        to: RemoteLogSegmentState,
    },
}

/// Kafka refuses the event with an exception. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The event itself is not acceptable, whatever is known already. Ends the reading of every broker.
    #[error("the event is not valid")]
    Object(#[from] ObjectError),
    /// A segment is introduced in another state than COPY_SEGMENT_STARTED. Ends the reading of a broker that
    /// holds the partition.
    #[error("segment introduced in state {state} instead of COPY_SEGMENT_STARTED")]
    NotStarted {
        /// The event's state.
        state: RemoteLogSegmentState,
    },
    /// An update to COPY_SEGMENT_STARTED of a segment in that state. Ends the reading of a broker that holds
    /// the partition.
    #[error("update to COPY_SEGMENT_STARTED")]
    UpdateToStarted,
    /// An update of a segment that was never introduced, or is gone, after the index was marked initialised.
    #[error("update of unknown segment {segment_id}")]
    UnknownSegment {
        /// The segment.
        segment_id: Uuid,
    },
    /// A segment event of a partition that is not loaded in the store. Load it first.
    #[error("the partition is not loaded")]
    NotLoaded,
    /// A snapshot names no partition and has no place in the topic. Ends the reading of every broker.
    #[error("a segment metadata snapshot in the metadata topic")]
    Snapshot,
}

impl ApplyError {
    /// The Java exception that Kafka answers with.
    pub fn kafka_exception(&self) -> &'static str {
        match self {
            Self::Object(error) => error.kafka_exception(),
            Self::NotStarted { .. } | Self::UpdateToStarted => "IllegalArgumentException",
            Self::UnknownSegment { .. } => "RemoteResourceNotFoundException",
            Self::NotLoaded => "IllegalStateException",
            Self::Snapshot => "UnsupportedOperationException",
        }
    }
}

/// A list of an epoch's segments fails for ever: one of them was introduced twice, the second time without this
/// epoch, and is gone. Kafka answers RemoteResourceNotFoundException.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader epoch {epoch} lists segment {segment_id}, which is gone")]
pub struct DanglingSegment {
    /// The leader epoch.
    pub epoch: i32,
    /// The segment.
    pub segment_id: Uuid,
}

/// The answer of [`RemoteLogSegmentIndex::next_segment_with_txn_index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextWithTxnIndex<'a> {
    /// The first segment from there on that may have aborted transactions.
    Found(&'a RemoteLogSegmentMetadata),
    /// There is none before the next gap or the end of the epoch.
    None,
    /// The segments lead back to this one. Kafka 4.3.1 **never returns** from this search; only leader epochs
    /// that begin beyond the end of their segment make it possible.
    Endless(&'a RemoteLogSegmentMetadata),
}

impl RemoteLogSegmentIndex {
    /// An index without segments that is not marked initialised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks that all events written before the start have been applied. From here on an update of an unknown
    /// segment is an error.
    pub fn mark_initialised(&mut self) {
        self.initialised = true;
    }

    /// True once marked initialised.
    pub fn is_initialised(&self) -> bool {
        self.initialised
    }

    /// Takes in api key 0. A segment in COPY_SEGMENT_STARTED is replaced as a whole.
    ///
    /// Source: `RemoteLogMetadataCache#addCopyInProgressSegment`.
    pub fn apply_segment_metadata(
        &mut self,
        event: &RawSegmentMetadata<'_>,
    ) -> Result<ApplyOutcome, ApplyError> {
        let metadata = RemoteLogSegmentMetadata::new(event)?;
        let state = metadata.state();
        if state != RemoteLogSegmentState::CopySegmentStarted {
            return Err(ApplyError::NotStarted { state });
        }
        let known = self.segments.find(metadata.segment_id());
        if let Some(slot) = known {
            let state = self.segments[slot].state();
            if state != RemoteLogSegmentState::CopySegmentStarted {
                return Ok(ApplyOutcome::AlreadyKnown { state });
            }
        }
        for entry in metadata.segment_leader_epochs() {
            self.epochs.entry(entry.epoch).or_default().unreferenced.insert(metadata.segment_id());
        }
        match known {
            Some(slot) => self.segments[slot] = metadata,
            None => self.segments.insert(metadata),
        }
        Ok(ApplyOutcome::Applied)
    }

    /// Takes in api key 1.
    ///
    /// Source: `RemoteLogMetadataCache#updateRemoteLogSegmentMetadata`.
    pub fn apply_segment_update(&mut self, event: &RawSegmentUpdate<'_>) -> Result<ApplyOutcome, ApplyError> {
        let segment_id = event.segment_id;
        let to = event.check()?;
        let Some(slot) = self.segments.find(segment_id) else {
            return match self.initialised {
                true => Err(ApplyError::UnknownSegment { segment_id }),
                false => Ok(ApplyOutcome::UnknownSegment),
            };
        };
        let segment = &self.segments[slot];
        let from = segment.state();
        if !RemoteLogSegmentState::is_valid_transition(Some(from), to) {
            return Ok(ApplyOutcome::InvalidTransition { from, to });
        }
        if to == RemoteLogSegmentState::CopySegmentStarted {
            return Err(ApplyError::UpdateToStarted);
        }
        for (entry, end_offset) in segment.epoch_ranges() {
            let epoch = self.epochs.entry(entry.epoch).or_default();
            match to {
                RemoteLogSegmentState::CopySegmentFinished => {
                    epoch.reference(entry.start_offset, end_offset, slot, &self.segments);
                }
                RemoteLogSegmentState::DeleteSegmentStarted => {
                    epoch.referenced.remove_if(entry.start_offset, slot);
                    epoch.unreferenced.insert(segment_id);
                }
                _ => {
                    epoch.unreferenced.remove(&segment_id);
                }
            }
        }
        if to == RemoteLogSegmentState::DeleteSegmentFinished {
            self.segments.remove(slot);
        } else {
            self.segments[slot].update(event, to);
        }
        Ok(ApplyOutcome::Applied)
    }

    /// The finished segment that serves `offset` in the leader epoch.
    ///
    /// Only the segment whose part of the epoch begins last at or below `offset` is looked at, as in Kafka: one
    /// that begins earlier and reaches farther does not serve what follows the later one's end.
    ///
    /// Source: KIP-405, `RemoteLogMetadataManager#remoteLogSegmentMetadata`.
    pub fn remote_log_segment_metadata(&self, epoch: i32, offset: i64) -> Option<&RemoteLogSegmentMetadata> {
        let (_, slot) = self.epochs.get(&epoch)?.referenced.floor(offset)?;
        let segment = &self.segments[slot];
        (offset <= segment.epoch_end_offset(epoch)?).then_some(segment)
    }

    /// Highest offset ever copied to remote storage in the leader epoch, inclusive; `None` before the first copy.
    ///
    /// Only finished copies count, and deleting a segment does not lower it.
    ///
    /// Source: KIP-405, `RemoteLogMetadataManager#highestOffsetForEpoch`.
    pub fn highest_offset_for_epoch(&self, epoch: i32) -> Option<i64> {
        self.epochs.get(&epoch)?.highest_offset
    }

    /// The segments of a leader epoch in every state but DELETE_SEGMENT_FINISHED.
    ///
    /// Not among them are orphans: finished segments whose place another one took at the same offset. By the offset at which the epoch begins in them while all are readable, else by segment start offset
    /// (Kafka does the same). Of equal start offsets readable segments come first, then ids ascend.
    ///
    /// Source: KIP-405, `RemoteLogMetadataManager#listRemoteLogSegments(TopicIdPartition, int)`.
    pub fn list_remote_log_segments_for_epoch(
        &self,
        epoch: i32,
    ) -> Result<Vec<&RemoteLogSegmentMetadata>, DanglingSegment> {
        let Some(state) = self.epochs.get(&epoch) else {
            return Ok(Vec::new());
        };
        let mut segments: Vec<_> = state.referenced.iter().map(|(_, slot)| &self.segments[slot]).collect();
        if state.unreferenced.is_empty() {
            return Ok(segments);
        }
        let mut unreferenced: Vec<Uuid> = state.unreferenced.iter().copied().collect();
        unreferenced.sort_unstable();
        for segment_id in unreferenced {
            let slot = self.segments.find(segment_id).ok_or(DanglingSegment { epoch, segment_id })?;
            segments.push(&self.segments[slot]);
        }
        segments.sort_by_key(|segment| segment.start_offset());
        Ok(segments)
    }

    /// Every segment in every state but DELETE_SEGMENT_FINISHED, orphans included, in no order.
    ///
    /// Source: KIP-405, `RemoteLogMetadataManager#listRemoteLogSegments(TopicIdPartition)`.
    pub fn list_remote_log_segments(&self) -> impl Iterator<Item = &RemoteLogSegmentMetadata> {
        self.segments.iter()
    }

    /// The segment of that id, in any state but DELETE_SEGMENT_FINISHED.
    pub fn segment(&self, segment_id: Uuid) -> Option<&RemoteLogSegmentMetadata> {
        self.segments.find(segment_id).map(|slot| &self.segments[slot])
    }

    /// The first segment from `offset` on in the leader epoch that may have aborted transactions: goes from
    /// segment to the next while there are none in it.
    ///
    /// Source: `RemoteLogMetadataManager#nextSegmentWithTxnIndex`.
    pub fn next_segment_with_txn_index(&self, epoch: i32, offset: i64) -> NextWithTxnIndex<'_> {
        let Some(state) = self.epochs.get(&epoch) else {
            return NextWithTxnIndex::None;
        };
        let mut next = self.remote_log_segment_metadata(epoch, offset);
        // Where to go on depends on the segment alone. So after as many steps as there are segments the search
        // has met one of them twice and would go round for ever.
        for _ in 0..state.referenced.len() {
            match next {
                Some(segment) if segment.txn_index_empty() => {
                    next = self.remote_log_segment_metadata(epoch, segment.end_offset().wrapping_add(1));
                }
                _ => break,
            }
        }
        match next {
            Some(segment) if segment.txn_index_empty() => NextWithTxnIndex::Endless(segment),
            Some(segment) => NextWithTxnIndex::Found(segment),
            None => NextWithTxnIndex::None,
        }
    }

    /// The bytes of all segments that the list of the epoch names, each counted whole. Linear in their number.
    ///
    /// Source: KIP-405, `RemoteLogMetadataManager#remoteLogSize`.
    pub fn remote_log_size(&self, epoch: i32) -> Result<i64, DanglingSegment> {
        let segments = self.list_remote_log_segments_for_epoch(epoch)?;
        Ok(segments.iter().map(|segment| i64::from(segment.segment_size_in_bytes())).sum())
    }

    /// The readable segments of a leader epoch: where the epoch begins in each, ascending, and its id.
    pub fn referenced(&self, epoch: i32) -> impl Iterator<Item = (i64, Uuid)> {
        let state = self.epochs.get(&epoch);
        let entries = state.into_iter().flat_map(|state| state.referenced.iter());
        entries.map(|(start_offset, slot)| (start_offset, self.segments[slot].segment_id()))
    }

    /// The ids of a leader epoch's segments that are being copied or deleted or were displaced, in no order.
    pub fn unreferenced(&self, epoch: i32) -> impl Iterator<Item = Uuid> {
        self.epochs.get(&epoch).into_iter().flat_map(|state| state.unreferenced.iter().copied())
    }

    /// Every leader epoch that a segment ever named, ascending.
    pub fn leader_epochs(&self) -> impl Iterator<Item = i32> {
        self.epochs.keys().copied()
    }
}

impl EpochState {
    /// Makes a finished segment readable from `start_offset` on, and displaces those that it covers.
    fn reference(&mut self, start_offset: i64, end_offset: i64, slot: Slot, segments: &SegmentTable) {
        // Each turn takes out what one event put in: linear over all events. Kafka compares with the highest
        // offset of the epoch here and not with the end of the segment that it displaces.
        while self.highest_offset.is_some_and(|highest| highest <= end_offset)
            && let Some((_, displaced)) = self.referenced.pop_last_from(start_offset)
        {
            self.unreferenced.insert(segments[displaced].segment_id());
        }
        self.referenced.insert(start_offset, slot);
        self.unreferenced.remove(&segments[slot].segment_id());
        self.highest_offset = self.highest_offset.max(Some(end_offset));
    }
}

//! A segment as its events so far describe it.

use std::borrow::Cow;

use crate::{EpochEntry, ObjectError, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentState, Uuid};

/// A segment of one user partition as its events so far describe it. Has passed Kafka's checks: offsets are not
/// negative, the end is not below the start, and there is a leader epoch.
///
/// The partition is that of the index which holds it, and is not repeated in each segment.
///
/// Source: KIP-405, `org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLogSegmentMetadata {
    start_offset: i64,
    end_offset: i64,
    /// Of a segment that has this one alone, from its first offset on, as most have. Else [`Rare`] lists them.
    leader_epoch: i32,
    segment_size_in_bytes: i32,
    rare: Option<Box<Rare>>,
    segment_id: Uuid,
    max_timestamp_ms: i64,
    event_timestamp_ms: i64,
    broker_id: i32,
    state: RemoteLogSegmentState,
    txn_index_empty: bool,
}

/// What few segments have: segments are what the memory goes into. Not there where both are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rare {
    /// Empty where the segment has one leader epoch from its first offset on.
    segment_leader_epochs: Box<[EpochEntry]>,
    custom_metadata: Option<Box<[u8]>>,
}

impl RemoteLogSegmentMetadata {
    /// The segment that an event introduces, in whatever state the event says.
    pub fn new(event: &RawSegmentMetadata<'_>) -> Result<Self, ObjectError> {
        let state = event.check()?;
        let epochs = &*event.segment_leader_epochs;
        let is_plain = matches!(epochs, [one] if one.start_offset == event.start_offset);
        let mut segment = Self {
            start_offset: event.start_offset,
            end_offset: event.end_offset,
            leader_epoch: epochs[0].epoch,
            segment_size_in_bytes: event.segment_size_in_bytes,
            rare: None,
            segment_id: event.segment_id,
            max_timestamp_ms: event.max_timestamp_ms,
            event_timestamp_ms: event.event_timestamp_ms,
            broker_id: event.broker_id,
            state,
            txn_index_empty: event.txn_index_empty,
        };
        let segment_leader_epochs = if is_plain { Box::default() } else { epochs.into() };
        segment.set_rare(Rare { segment_leader_epochs, custom_metadata: owned(&event.custom_metadata) });
        Ok(segment)
    }

    fn set_rare(&mut self, rare: Rare) {
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }

    /// Takes over what an update of this segment says. Custom metadata is replaced even by none.
    ///
    /// Source: `RemoteLogSegmentMetadata#createWithUpdates`.
    pub(crate) fn update(&mut self, event: &RawSegmentUpdate<'_>, state: RemoteLogSegmentState) {
        self.broker_id = event.broker_id;
        self.event_timestamp_ms = event.event_timestamp_ms;
        self.state = state;
        if event.custom_metadata.is_some() || self.rare.is_some() {
            let rare = self.rare.take().map_or_else(Rare::default, |rare| *rare);
            self.set_rare(Rare { custom_metadata: owned(&event.custom_metadata), ..rare });
        }
    }

    /// The id of the segment.
    pub fn segment_id(&self) -> Uuid {
        self.segment_id
    }

    /// The first offset of the segment.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The last offset of the segment, inclusive.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// The largest record timestamp within the segment, in milliseconds since 1970.
    pub fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms
    }

    /// When the last event was made, in milliseconds since 1970.
    pub fn event_timestamp_ms(&self) -> i64 {
        self.event_timestamp_ms
    }

    /// The leader epochs of the segment, ascending, and where each begins; at least one.
    pub fn segment_leader_epochs(&self) -> impl Iterator<Item = EpochEntry> + Clone {
        let (epoch, start_offset) = (self.leader_epoch, self.start_offset);
        let listed = self.listed_epochs();
        let one = listed.is_empty().then_some(EpochEntry { epoch, start_offset });
        one.into_iter().chain(listed.iter().copied())
    }

    fn listed_epochs(&self) -> &[EpochEntry] {
        self.rare.as_ref().map_or(&[], |rare| &rare.segment_leader_epochs)
    }

    /// The broker that wrote the last event.
    pub fn broker_id(&self) -> i32 {
        self.broker_id
    }

    /// The size of the log file in bytes.
    pub fn segment_size_in_bytes(&self) -> i32 {
        self.segment_size_in_bytes
    }

    /// What the storage plugin wants back; absent and empty differ.
    pub fn custom_metadata(&self) -> Option<&[u8]> {
        self.rare.as_ref()?.custom_metadata.as_deref()
    }

    /// The state.
    pub fn state(&self) -> RemoteLogSegmentState {
        self.state
    }

    /// True when the segment is known to have no aborted transactions.
    pub fn txn_index_empty(&self) -> bool {
        self.txn_index_empty
    }

    /// Each leader epoch with its last offset within the segment, inclusive: the offset before the next epoch,
    /// or the end of the segment. Not checked against the segment's own range.
    pub fn epoch_ranges(&self) -> impl Iterator<Item = (EpochEntry, i64)> {
        let epochs = self.segment_leader_epochs();
        let ends = epochs.clone().skip(1).map(|next| next.start_offset.wrapping_sub(1));
        std::iter::zip(epochs, ends.chain([self.end_offset]))
    }

    /// The last offset of that leader epoch within the segment, inclusive; `None` when it has no such epoch.
    pub fn epoch_end_offset(&self, epoch: i32) -> Option<i64> {
        let listed = self.listed_epochs();
        if listed.is_empty() {
            return (epoch == self.leader_epoch).then_some(self.end_offset);
        }
        let at = listed.binary_search_by_key(&epoch, |entry| entry.epoch).ok()?;
        Some(match listed.get(at + 1) {
            Some(next) => next.start_offset.wrapping_sub(1),
            None => self.end_offset,
        })
    }
}

fn owned(bytes: &Option<Cow<'_, [u8]>>) -> Option<Box<[u8]>> {
    bytes.as_deref().map(Box::from)
}

//! Takes in records one by one and keeps every event, compactly.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use strandline_tier::{
    EpochEntry, RawEvent, RawSegmentMetadata, RawTopicIdPartition, RecordValue, TopicId, Uuid,
};

use crate::view::{MetadataPartitionStats, OddRecord, OddValue, Outcome};

/// Where a record was. Whatever the source does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The partition of the metadata topic.
    pub metadata_partition: Option<i32>,
    /// The offset in that partition.
    pub offset: Option<i64>,
    /// The record's timestamp, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// What else a record says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The record has a key; none of a broker's has.
    pub has_key: bool,
    /// A control record: its value is not an event.
    pub control: bool,
    /// Part of a transaction.
    pub transactional: bool,
}

/// No value, in the compact fields below.
pub(crate) const NONE: u32 = u32::MAX;
pub(crate) const NO_OFFSET: i64 = i64::MIN;
pub(crate) const NO_PARTITION: i32 = i32::MIN;

/// Bytes and characters kept of a record that is no event.
const ODD_BYTES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UserPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: TopicId,
    pub(crate) partition: i32,
}

/// What an event of api key 0 says of a segment, without its identity. Not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentContent {
    /// The first offset.
    pub start_offset: i64,
    /// The last offset, inclusive.
    pub end_offset: i64,
    /// The largest record timestamp, in milliseconds since 1970.
    pub max_timestamp_ms: i64,
    /// The leader epochs, ascending by epoch.
    pub epochs: SmallVec<[EpochEntry; 1]>,
    /// The size of the log file in bytes.
    pub size_in_bytes: i32,
    /// True when the segment is known to have no aborted transactions.
    pub txn_index_empty: bool,
    pub(crate) custom: u32,
}

impl SegmentContent {
    /// The same with no reference to the view's custom metadata, so that two can be compared.
    pub(crate) fn without_custom(&self) -> Self {
        Self { custom: NONE, ..self.clone() }
    }

    /// True where the checks refuse it whatever its state is.
    pub(crate) fn is_refused(&self) -> bool {
        self.start_offset < 0 || self.end_offset < self.start_offset || self.epochs.is_empty()
    }

    /// Each epoch with the first and the last offset that the segment holds of it; epochs without any are left
    /// out. The first epoch never begins before the segment itself.
    pub fn epoch_ranges(&self) -> impl DoubleEndedIterator<Item = (i32, i64, i64)> + '_ {
        (0..self.epochs.len()).filter_map(|at| self.range_at(at))
    }

    /// The first and the last offset that the segment holds of the epoch.
    pub(crate) fn epoch_range(&self, epoch: i32) -> Option<(i64, i64)> {
        let at = self.epochs.binary_search_by_key(&epoch, |entry| entry.epoch).ok()?;
        self.range_at(at).map(|(_, start, end)| (start, end))
    }

    fn range_at(&self, at: usize) -> Option<(i32, i64, i64)> {
        let entry = self.epochs[at];
        let end = match self.epochs.get(at + 1) {
            Some(next) => next.start_offset.saturating_sub(1).min(self.end_offset),
            None => self.end_offset,
        };
        let start = entry.start_offset.max(self.start_offset);
        (start <= end).then_some((entry.epoch, start, end))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Base,
    Update,
    PartitionDelete,
}

/// One event. `link` is the index of the base for key 0, of the custom metadata for an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) user_partition: u32,
    pub(crate) segment: u32,
    pub(crate) link: u32,
    pub(crate) metadata_partition: i32,
    pub(crate) broker_id: i32,
    pub(crate) state: i8,
    pub(crate) kind: Kind,
    pub(crate) refused: bool,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentSeed {
    pub(crate) id: Uuid,
    pub(crate) user_partition: u32,
    /// The latest custom metadata, so that the next event can share it.
    pub(crate) custom: u32,
}

/// Custom metadata, end to end in one buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blobs {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Blobs {
    pub(crate) fn get(&self, index: u32) -> Option<&[u8]> {
        let index = index as usize;
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    fn add(&mut self, bytes: &[u8]) -> u32 {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        index(self.ends.len() - 1)
    }
}

/// An index into one of the builder's tables, which hold less than four thousand million entries each.
fn index(position: usize) -> u32 {
    u32::try_from(position)
        .ok()
        .filter(|index| *index != NONE)
        .expect("fewer than 2^32 - 1 events fit in memory")
}

/// Builds a [`TierView`](crate::TierView) from records, each fed once, in the order of their log.
///
/// Every event is kept, whatever a broker would make of it. Builders can run at the same time, one for each
/// metadata partition or for several of them, and [`merge`](Self::merge) puts them together. Costs about 40
/// bytes for an event and 150 for a segment, plus custom metadata.
#[derive(Debug, Default)]
pub struct TierViewBuilder {
    pub(crate) user_partitions: Vec<UserPartition>,
    partition_index: FxHashMap<(TopicId, i32), SmallVec<[u32; 1]>>,
    pub(crate) segments: Vec<SegmentSeed>,
    /// Of the first `indexed` segments; the others follow when one is looked up.
    segment_index: FxHashMap<(Uuid, u32), u32>,
    indexed: usize,
    pub(crate) bases: Vec<SegmentContent>,
    pub(crate) blobs: Blobs,
    pub(crate) events: Vec<Event>,
    pub(crate) odd: Vec<OddRecord>,
    pub(crate) stats: Vec<MetadataPartitionStats>,
    stats_index: FxHashMap<Option<i32>, usize>,
    names: FxHashMap<Arc<str>, ()>,
}

impl TierViewBuilder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The user partitions that events have named so far, by topic id and number.
    pub fn user_partitions(&self) -> impl Iterator<Item = (TopicId, i32)> + '_ {
        self.user_partitions.iter().map(|of| (of.topic_id, of.partition))
    }

    /// True while no record was taken in.
    pub fn is_empty(&self) -> bool {
        self.stats.is_empty()
    }

    /// Takes in one record. Those of one metadata partition must come in the order of their offsets.
    pub fn push(&mut self, position: Position, flags: Flags, value: &RecordValue<'_>) {
        self.count(position, flags);
        if flags.control {
            self.push_odd(position, OddValue::Control);
            return;
        }
        match value {
            RecordValue::Event(RawEvent::SegmentMetadata(event)) => self.push_base(position, event),
            RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)) => {
                let user_partition = self.user_partition(&event.topic_id_partition);
                let segment = self.segment(event.segment_id, user_partition);
                let link = self.custom(segment, event.custom_metadata.as_deref());
                self.events.push(Event {
                    offset: position.offset.unwrap_or(NO_OFFSET),
                    timestamp_ms: event.event_timestamp_ms,
                    user_partition,
                    segment,
                    link,
                    metadata_partition: position.metadata_partition.unwrap_or(NO_PARTITION),
                    broker_id: event.broker_id,
                    state: event.state_id,
                    kind: Kind::Update,
                    refused: event.check().is_err(),
                    outcome: Outcome::Applied,
                });
            }
            RecordValue::Event(RawEvent::PartitionDeleteMetadata(event)) => {
                let user_partition = self.user_partition(&event.topic_id_partition);
                self.events.push(Event {
                    offset: position.offset.unwrap_or(NO_OFFSET),
                    timestamp_ms: event.event_timestamp_ms,
                    user_partition,
                    segment: NONE,
                    link: NONE,
                    metadata_partition: position.metadata_partition.unwrap_or(NO_PARTITION),
                    broker_id: event.broker_id,
                    state: event.state_id,
                    kind: Kind::PartitionDelete,
                    refused: event.check().is_err(),
                    outcome: Outcome::Applied,
                });
            }
            RecordValue::Event(RawEvent::SegmentMetadataSnapshot(event)) => {
                self.push_odd(position, OddValue::Snapshot { segment_id: event.segment_id });
            }
            RecordValue::NullValue => self.push_odd(position, OddValue::NullValue),
            RecordValue::Undecodable { bytes, error, unknown_api } => {
                let value = OddValue::Undecodable {
                    bytes: bytes.iter().copied().take(ODD_BYTES_MAX).collect(),
                    error: error.chars().take(ODD_BYTES_MAX).collect(),
                    unknown_api: *unknown_api,
                };
                self.push_odd(position, value);
            }
        }
    }

    /// Adds what another builder took in. Where both read the same metadata partition, `other` read later offsets.
    pub fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let known = index(self.user_partitions.len());
        let partitions: Vec<u32> = other
            .user_partitions
            .iter()
            .map(|partition| {
                self.user_partition(&RawTopicIdPartition {
                    topic: Cow::Borrowed(&partition.topic),
                    topic_id: partition.topic_id,
                    partition: partition.partition,
                })
            })
            .collect();
        let place = |seed: &SegmentSeed| partitions[seed.user_partition as usize];
        let segments: Vec<u32> = if partitions.iter().all(|partition| *partition >= known) {
            // The usual case: a user partition has its events in one metadata partition. Nothing has to be looked up.
            let first = self.segments.len();
            self.segments.extend(other.segments.iter().map(|seed| SegmentSeed {
                user_partition: place(seed),
                custom: NONE,
                ..*seed
            }));
            (first..self.segments.len()).map(index).collect()
        } else {
            other.segments.iter().map(|seed| self.segment(seed.id, place(seed))).collect()
        };
        let first_blob = index(self.blobs.ends.len());
        let first_byte = self.blobs.bytes.len();
        self.blobs.bytes.extend_from_slice(&other.blobs.bytes);
        self.blobs.ends.extend(other.blobs.ends.iter().map(|end| first_byte + end));
        let custom = |custom: u32| if custom == NONE { NONE } else { index((first_blob + custom) as usize) };
        for (segment, seed) in segments.iter().zip(&other.segments) {
            self.segments[*segment as usize].custom = custom(seed.custom);
        }
        let first_base = self.bases.len();
        self.bases.extend(
            other.bases.into_iter().map(|base| SegmentContent { custom: custom(base.custom), ..base }),
        );
        self.events.extend(other.events.into_iter().map(|event| Event {
            user_partition: partitions[event.user_partition as usize],
            segment: if event.segment == NONE { NONE } else { segments[event.segment as usize] },
            link: match event.kind {
                Kind::Base => index(first_base + event.link as usize),
                Kind::Update => custom(event.link),
                Kind::PartitionDelete => NONE,
            },
            ..event
        }));
        self.odd.extend(other.odd);
        for stats in other.stats {
            self.stats_of(stats.metadata_partition).extend(&stats);
        }
    }

    fn push_base(&mut self, position: Position, event: &RawSegmentMetadata<'_>) {
        let user_partition = self.user_partition(&event.topic_id_partition);
        let segment = self.segment(event.segment_id, user_partition);
        let custom = self.custom(segment, event.custom_metadata.as_deref());
        let link = index(self.bases.len());
        self.bases.push(SegmentContent {
            start_offset: event.start_offset,
            end_offset: event.end_offset,
            max_timestamp_ms: event.max_timestamp_ms,
            epochs: event.segment_leader_epochs.iter().copied().collect(),
            size_in_bytes: event.segment_size_in_bytes,
            custom,
            txn_index_empty: event.txn_index_empty,
        });
        self.events.push(Event {
            offset: position.offset.unwrap_or(NO_OFFSET),
            timestamp_ms: event.event_timestamp_ms,
            user_partition,
            segment,
            link,
            metadata_partition: position.metadata_partition.unwrap_or(NO_PARTITION),
            broker_id: event.broker_id,
            state: event.state_id,
            kind: Kind::Base,
            refused: event.check().is_err(),
            outcome: Outcome::Applied,
        });
    }

    fn push_odd(&mut self, position: Position, value: OddValue) {
        self.odd.push(OddRecord { position, value });
    }

    fn user_partition(&mut self, of: &RawTopicIdPartition<'_>) -> u32 {
        let known = self.partition_index.entry((of.topic_id, of.partition)).or_default();
        for candidate in known.iter() {
            if *self.user_partitions[*candidate as usize].topic == *of.topic {
                return *candidate;
            }
        }
        let topic = match self.names.get_key_value(&*of.topic) {
            Some((name, ())) => Arc::clone(name),
            None => {
                let name: Arc<str> = Arc::from(&*of.topic);
                self.names.insert(Arc::clone(&name), ());
                name
            }
        };
        let new = index(self.user_partitions.len());
        known.push(new);
        self.user_partitions.push(UserPartition { topic, topic_id: of.topic_id, partition: of.partition });
        new
    }

    fn segment(&mut self, id: Uuid, user_partition: u32) -> u32 {
        self.index_segments();
        let Self { segments, segment_index, indexed, .. } = self;
        *segment_index.entry((id, user_partition)).or_insert_with(|| {
            segments.push(SegmentSeed { id, user_partition, custom: NONE });
            *indexed = segments.len();
            index(segments.len() - 1)
        })
    }

    /// Makes the look-up table hold every segment.
    fn index_segments(&mut self) {
        let first = self.indexed;
        for (at, segment) in self.segments.iter().enumerate().skip(first) {
            self.segment_index.insert((segment.id, segment.user_partition), index(at));
        }
        self.indexed = self.segments.len();
    }

    /// Makes the look-up tables of a builder whose lists were filled from a view.
    pub(crate) fn index(&mut self) {
        for (at, of) in self.user_partitions.iter().enumerate() {
            self.partition_index.entry((of.topic_id, of.partition)).or_default().push(index(at));
            self.names.insert(Arc::clone(&of.topic), ());
        }
        for (at, stats) in self.stats.iter().enumerate() {
            self.stats_index.insert(stats.metadata_partition, at);
        }
    }

    fn custom(&mut self, segment: u32, bytes: Option<&[u8]>) -> u32 {
        let Some(bytes) = bytes else { return NONE };
        let latest = self.segments[segment as usize].custom;
        if self.blobs.get(latest) == Some(bytes) {
            return latest;
        }
        let new = self.blobs.add(bytes);
        self.segments[segment as usize].custom = new;
        new
    }

    fn stats_of(&mut self, metadata_partition: Option<i32>) -> &mut MetadataPartitionStats {
        let at = *self.stats_index.entry(metadata_partition).or_insert_with(|| {
            self.stats.push(MetadataPartitionStats::new(metadata_partition));
            self.stats.len() - 1
        });
        &mut self.stats[at]
    }

    fn count(&mut self, position: Position, flags: Flags) {
        let stats = self.stats_of(position.metadata_partition);
        stats.records += 1;
        stats.null_keys += u64::from(!flags.has_key && !flags.control);
        stats.control_records += u64::from(flags.control);
        stats.transactional_records += u64::from(flags.transactional && !flags.control);
        if (flags.control || flags.transactional) && stats.first_transactional.is_none() {
            stats.first_transactional = Some(position);
        }
        stats.ends_with_control = flags.control;
        stats.first_offset = stats.first_offset.or(position.offset);
        stats.last_offset = position.offset.or(stats.last_offset);
        stats.last_timestamp_ms = stats.last_timestamp_ms.max(position.timestamp_ms);
    }
}

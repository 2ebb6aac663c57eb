//! Every event of the metadata topic, by user partition and by segment.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use strandline_tier::{
    ApplyError, ApplyOutcome, RawSegmentMetadata, RawSegmentUpdate, RawTopicIdPartition,
    RemoteLogSegmentIndex, RemoteLogSegmentState, RemotePartitionDeleteState, TopicId, Uuid,
};

use crate::builder::{
    Blobs, Event, Kind, NO_OFFSET, NO_PARTITION, NONE, Position, SegmentContent, SegmentSeed,
    TierViewBuilder, UserPartition,
};
use crate::placement::{self, Placement};
use crate::readable::{Readable, ReadableRange};

/// A record that is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddRecord {
    /// Where it is.
    pub position: Position,
    /// What it is.
    pub value: OddValue,
}

/// What a record is that is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OddValue {
    /// Bytes that are not an event.
    Undecodable {
        /// The first of them, at most 256.
        bytes: Vec<u8>,
        /// What is wrong with them.
        error: String,
        /// Only the api key or version is unknown.
        unknown_api: bool,
    },
    /// A record without a value.
    NullValue,
    /// Api key 3, which has no place in the topic and names no partition.
    Snapshot {
        /// The segment.
        segment_id: Uuid,
    },
    /// A control record: the end of a transaction.
    Control,
}

/// Counts of one metadata partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPartitionStats {
    /// The partition; `None` where the source does not tell.
    pub metadata_partition: Option<i32>,
    /// Records read, of every kind.
    pub records: u64,
    /// Records without a key, control records aside.
    pub null_keys: u64,
    /// Control records.
    pub control_records: u64,
    /// Records that are part of a transaction.
    pub transactional_records: u64,
    /// The first control or transactional record.
    pub first_transactional: Option<Position>,
    /// The last record read is a control record.
    pub ends_with_control: bool,
    /// The first offset read.
    pub first_offset: Option<i64>,
    /// The last offset read.
    pub last_offset: Option<i64>,
    /// The newest record timestamp, in milliseconds since 1970.
    pub last_timestamp_ms: Option<i64>,
}

impl MetadataPartitionStats {
    pub(crate) fn new(metadata_partition: Option<i32>) -> Self {
        Self {
            metadata_partition,
            records: 0,
            null_keys: 0,
            control_records: 0,
            transactional_records: 0,
            first_transactional: None,
            ends_with_control: false,
            first_offset: None,
            last_offset: None,
            last_timestamp_ms: None,
        }
    }

    /// Takes in the counts of later records.
    pub(crate) fn extend(&mut self, later: &Self) {
        self.records += later.records;
        self.null_keys += later.null_keys;
        self.control_records += later.control_records;
        self.transactional_records += later.transactional_records;
        self.first_transactional = self.first_transactional.or(later.first_transactional);
        if later.records > 0 {
            self.ends_with_control = later.ends_with_control;
        }
        self.first_offset = self.first_offset.or(later.first_offset);
        self.last_offset = later.last_offset.or(self.last_offset);
        self.last_timestamp_ms = self.last_timestamp_ms.max(later.last_timestamp_ms);
    }
}

/// What a broker that reads the whole log makes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It changed what the broker knows.
    Applied,
    /// Legal, and the segment was in that state already.
    Repeated,
    /// Key 0 of a segment that has left COPY_SEGMENT_STARTED: dropped.
    AlreadyKnown,
    /// An update of a segment not introduced, or gone: ignored.
    UnknownSegment,
    /// An update that the table of states does not allow: dropped.
    InvalidTransition,
    /// It ends the reading of a broker that holds the partition.
    Fatal,
    /// The checks refuse it: it ends the reading of every broker.
    Refused,
    /// It lies in another metadata partition than it should: not part of what most brokers know.
    Misplaced,
}

/// The api key of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Key 0: introduces a segment.
    SegmentMetadata,
    /// Key 1: moves a segment to a state.
    SegmentMetadataUpdate,
    /// Key 2: moves a partition's deletion to a state.
    PartitionDeleteMetadata,
}

/// How many segments are in which state, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// In COPY_SEGMENT_STARTED.
    pub copy_started: u64,
    /// In COPY_SEGMENT_FINISHED.
    pub copy_finished: u64,
    /// In DELETE_SEGMENT_STARTED.
    pub delete_started: u64,
    /// In DELETE_SEGMENT_FINISHED.
    pub delete_finished: u64,
    /// Never introduced in a way that a broker accepts.
    pub unknown: u64,
    /// Bytes of the segments in COPY_SEGMENT_FINISHED.
    pub copy_finished_bytes: u64,
    /// Bytes of all live segments, those above included.
    pub live_bytes: u64,
}

impl std::ops::AddAssign for StateCounts {
    fn add_assign(&mut self, other: Self) {
        self.copy_started += other.copy_started;
        self.copy_finished += other.copy_finished;
        self.delete_started += other.delete_started;
        self.delete_finished += other.delete_finished;
        self.unknown += other.unknown;
        self.copy_finished_bytes = self.copy_finished_bytes.saturating_add(other.copy_finished_bytes);
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
    }
}

/// Kafka's name of a segment state; `None` for a number without one.
pub fn state_name(state_id: i8) -> Option<&'static str> {
    RemoteLogSegmentState::from_id(state_id).map(RemoteLogSegmentState::name)
}

#[derive(Debug)]
pub(crate) struct SegmentData {
    pub(crate) id: Uuid,
    pub(crate) user_partition: u32,
    /// The content that counts: the last accepted one, else the first of all; NONE without any.
    pub(crate) base: u32,
    pub(crate) state: Option<RemoteLogSegmentState>,
    pub(crate) last_state: i8,
    /// A copy of it was finished once, whatever became of it.
    pub(crate) ever_finished: bool,
    /// Introduced once, then moved from state to state without custom metadata: nothing to judge event by event.
    pub(crate) plain: bool,
    events: (u32, u32),
}

impl SegmentData {
    fn new(seed: &SegmentSeed) -> Self {
        Self {
            id: seed.id,
            user_partition: seed.user_partition,
            base: NONE,
            state: None,
            last_state: 0,
            ever_finished: false,
            plain: true,
            events: (0, 0),
        }
    }
}

#[derive(Debug)]
pub(crate) struct PartitionData {
    pub(crate) user_partition: u32,
    pub(crate) home: Option<i32>,
    events: Range<usize>,
    segments: Range<usize>,
    pub(crate) readable: Readable,
}

/// Every event of the metadata topic, and what a broker would make of them.
///
/// Partitions come by topic name, topic id and number; segments by start offset; events in the order of their
/// log. Made by [`TierViewBuilder::finish`]; immutable.
#[derive(Debug, Default)]
pub struct TierView {
    pub(crate) user_partitions: Vec<UserPartition>,
    pub(crate) partitions: Vec<PartitionData>,
    pub(crate) segments: Vec<SegmentData>,
    pub(crate) bases: Vec<SegmentContent>,
    pub(crate) events: Vec<Event>,
    blobs: Blobs,
    by_segment: Vec<u32>,
    ordered: Vec<u32>,
    odd: Vec<OddRecord>,
    stats: Vec<MetadataPartitionStats>,
    placement: Placement,
    /// By user partition: its place among `partitions`.
    ranks: Vec<u32>,
}

/// Goes on from a view: what is pushed or merged next are later records of the same log.
impl From<&TierView> for TierViewBuilder {
    fn from(view: &TierView) -> Self {
        let seed =
            |of: &SegmentData| SegmentSeed { id: of.id, user_partition: of.user_partition, custom: NONE };
        let mut builder = Self::default();
        builder.segments = view.segments.iter().map(seed).collect();
        builder.user_partitions = view.user_partitions.clone();
        builder.bases = view.bases.clone();
        builder.blobs = view.blobs.clone();
        builder.events = view.events.clone();
        builder.odd = view.odd.clone();
        builder.stats = view.stats.clone();
        for at in 0..builder.events.len() {
            let event = &mut builder.events[at];
            event.outcome = Outcome::Applied;
            let custom = match event.kind {
                Kind::Base => builder.bases[event.link as usize].custom,
                Kind::Update => event.link,
                Kind::PartitionDelete => NONE,
            };
            if custom != NONE {
                builder.segments[event.segment as usize].custom = custom;
            }
        }
        builder.index();
        builder
    }
}

impl TierViewBuilder {
    /// Sorts what was taken in, and works out what brokers make of it.
    ///
    /// `metadata_partitions` is the metadata topic's partition count, where known: only then can an event be
    /// told to lie in the wrong partition, and is left out of what brokers know. Linear in the events, apart
    /// from sorting segments.
    pub fn finish(mut self, metadata_partitions: Option<i32>) -> TierView {
        let (placement, homes) = placement::judge(metadata_partitions, &self.user_partitions, &self.events);
        let judged = matches!(placement, Placement::Judged { .. });
        let ranks = ranks(&self.user_partitions);
        let rank = |user_partition: u32| ranks[user_partition as usize] as usize;
        let (order, event_ranges) =
            group(self.events.iter().map(|event| rank(event.user_partition)), ranks.len());
        let mut events: Vec<Event> = order.iter().map(|at| self.events[*at as usize]).collect();
        self.events = Vec::new();
        let (order, segment_ranges) =
            group(self.segments.iter().map(|seed| rank(seed.user_partition)), ranks.len());
        let mut segments: Vec<SegmentData> =
            order.iter().map(|at| SegmentData::new(&self.segments[*at as usize])).collect();
        let mut places = vec![0_u32; order.len()];
        for (place, at) in order.iter().enumerate() {
            places[*at as usize] = place as u32;
        }
        for event in events.iter_mut().filter(|event| event.segment != NONE) {
            event.segment = places[event.segment as usize];
        }
        if judged {
            for event in &mut events {
                let home = homes[event.user_partition as usize].metadata_partition;
                if event.metadata_partition != NO_PARTITION && Some(event.metadata_partition) != home {
                    event.outcome = Outcome::Misplaced;
                }
            }
        } else {
            order_across_partitions(&mut events, &event_ranges);
        }
        let by_segment = group_by_segment(&events, &mut segments);
        let replays = replays(&self.bases, &mut events, &event_ranges, &mut segments, &segment_ranges);
        let readables = replay_all(replays);
        let mut by_rank: Vec<u32> = vec![0; ranks.len()];
        for (user_partition, rank) in ranks.iter().enumerate() {
            by_rank[*rank as usize] = user_partition as u32;
        }
        let mut partitions: Vec<PartitionData> = by_rank
            .into_iter()
            .zip(event_ranges)
            .zip(readables)
            .map(|((user_partition, events), readable)| PartitionData {
                user_partition,
                home: homes[user_partition as usize].metadata_partition,
                events,
                segments: 0..0,
                readable,
            })
            .collect();
        let ordered = order_segments(&segments, &self.bases, &ranks, &mut partitions);
        self.stats.sort_by_key(|stats| stats.metadata_partition);
        self.odd.sort_by_key(|odd| odd.position);
        TierView {
            user_partitions: self.user_partitions,
            partitions,
            segments,
            bases: self.bases,
            events,
            blobs: self.blobs,
            by_segment,
            ordered,
            odd: self.odd,
            stats: self.stats,
            placement,
            ranks,
        }
    }
}

/// The place of each user partition by topic name, topic id and number.
fn ranks(user_partitions: &[UserPartition]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..user_partitions.len() as u32).collect();
    order.sort_by(|a, b| {
        let key = |at: u32| {
            let of = &user_partitions[at as usize];
            (&of.topic, of.topic_id, of.partition)
        };
        key(*a).cmp(&key(*b))
    });
    let mut ranks = vec![0; order.len()];
    for (rank, user_partition) in order.into_iter().enumerate() {
        ranks[user_partition as usize] = rank as u32;
    }
    ranks
}

/// Counting sort: the numbers of the items by group, otherwise as they came, and the range of each group.
fn group(groups: impl Iterator<Item = usize> + Clone, count: usize) -> (Vec<u32>, Vec<Range<usize>>) {
    let mut sizes = vec![0_usize; count];
    groups.clone().for_each(|group| sizes[group] += 1);
    let mut ranges = Vec::with_capacity(count);
    let mut start = 0;
    for size in sizes {
        ranges.push(start..start + size);
        start += size;
    }
    let mut next: Vec<usize> = ranges.iter().map(|range| range.start).collect();
    let mut order = vec![0_u32; start];
    for (at, group) in groups.enumerate() {
        let place = &mut next[group];
        order[*place] = at as u32;
        *place += 1;
    }
    (order, ranges)
}

/// Events of one user partition that lie in several metadata partitions have no common order of offsets: their
/// times must do.
fn order_across_partitions(events: &mut [Event], ranges: &[Range<usize>]) {
    for range in ranges {
        let events = &mut events[range.clone()];
        if events.windows(2).any(|pair| pair[0].metadata_partition != pair[1].metadata_partition) {
            events.sort_by_key(|event| event.timestamp_ms);
        }
    }
}

fn group_by_segment(events: &[Event], segments: &mut [SegmentData]) -> Vec<u32> {
    for event in events {
        if event.segment != NONE {
            segments[event.segment as usize].events.1 += 1;
        }
    }
    let mut start = 0;
    for segment in segments.iter_mut() {
        let count = segment.events.1;
        segment.events = (start, start);
        start += count;
    }
    let mut by_segment = vec![0_u32; start as usize];
    for (at, event) in events.iter().enumerate() {
        if event.segment != NONE {
            let end = &mut segments[event.segment as usize].events.1;
            by_segment[*end as usize] = at as u32;
            *end += 1;
        }
    }
    by_segment
}

/// Partitions' segments by start offset, then in the order of their first event; those without content last.
fn order_segments(
    segments: &[SegmentData],
    bases: &[SegmentContent],
    ranks: &[u32],
    partitions: &mut [PartitionData],
) -> Vec<u32> {
    let mut keyed: Vec<(u32, i64, u32, u32)> = segments
        .iter()
        .enumerate()
        .map(|(at, segment)| {
            let start = bases.get(segment.base as usize).map_or(i64::MAX, |base| base.start_offset);
            (ranks[segment.user_partition as usize], start, segment.events.0, at as u32)
        })
        .collect();
    keyed.sort_unstable();
    let mut start = 0;
    for (rank, partition) in partitions.iter_mut().enumerate() {
        let end = start + keyed[start..].partition_point(|(of, ..)| *of as usize == rank);
        partition.segments = start..end;
        start = end;
    }
    keyed.into_iter().map(|(_, _, _, at)| at).collect()
}

/// So many events are worth a thread of their own.
const EVENTS_PER_THREAD_MIN: usize = 20_000;

/// The replay of each partition, in the order of the ranges.
fn replays<'a>(
    bases: &'a [SegmentContent],
    mut events: &'a mut [Event],
    event_ranges: &[Range<usize>],
    mut segments: &'a mut [SegmentData],
    segment_ranges: &[Range<usize>],
) -> Vec<Replay<'a>> {
    let mut replays = Vec::with_capacity(event_ranges.len());
    for (of_events, of_segments) in event_ranges.iter().zip(segment_ranges) {
        let (own_events, later_events) = events.split_at_mut(of_events.len());
        let (own_segments, later_segments) = segments.split_at_mut(of_segments.len());
        let first_segment = of_segments.start as u32;
        replays.push(Replay { bases, events: own_events, segments: own_segments, first_segment });
        (events, segments) = (later_events, later_segments);
    }
    replays
}

/// Partitions do not touch each other, so where there are many events they are shared among the cores.
fn replay_all(mut replays: Vec<Replay<'_>>) -> Vec<Readable> {
    let events: usize = replays.iter().map(|replay| replay.events.len()).sum();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(events / EVENTS_PER_THREAD_MIN);
    if threads < 2 {
        return replays.into_iter().map(Replay::run).collect();
    }
    let share = events.div_ceil(threads);
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        while !replays.is_empty() {
            let mut taken = 0;
            let full = |replay: &Replay<'_>| {
                taken += replay.events.len();
                taken >= share
            };
            let count = replays.iter().position(full).map_or(replays.len(), |last| last + 1);
            let later = replays.split_off(count);
            let own = std::mem::replace(&mut replays, later);
            workers.push(scope.spawn(move || own.into_iter().map(Replay::run).collect::<Vec<Readable>>()));
        }
        let mut readables = Vec::new();
        for worker in workers {
            readables.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        readables
    })
}

/// One partition's events go through the index of a broker.
struct Replay<'a> {
    bases: &'a [SegmentContent],
    events: &'a mut [Event],
    /// The partition's segments.
    segments: &'a mut [SegmentData],
    /// The place of the first of them among all.
    first_segment: u32,
}

impl Replay<'_> {
    fn run(mut self) -> Readable {
        let mut index = RemoteLogSegmentIndex::new();
        for at in 0..self.events.len() {
            if self.events[at].outcome != Outcome::Misplaced {
                self.events[at].outcome = self.apply(&mut index, &self.events[at]);
            }
            let event = self.events[at];
            self.note(&event);
        }
        self.flatten(&index)
    }

    fn segment_at(&self, event: &Event) -> usize {
        (event.segment - self.first_segment) as usize
    }

    fn apply(&self, index: &mut RemoteLogSegmentIndex, event: &Event) -> Outcome {
        if event.refused {
            return Outcome::Refused;
        }
        let before = match event.kind {
            // A broker forgets the partition once it is deleted; here its segments stay to be looked at.
            Kind::PartitionDelete => return Outcome::Applied,
            Kind::Base | Kind::Update => self.segments[self.segment_at(event)].state,
        };
        let result = match event.kind {
            Kind::Base => index.apply_segment_metadata(&self.metadata(event)),
            _ => index.apply_segment_update(&self.update(event)),
        };
        let after = RemoteLogSegmentState::from_id(event.state);
        match result {
            Ok(ApplyOutcome::Applied) if before == after => Outcome::Repeated,
            Ok(ApplyOutcome::Applied) => Outcome::Applied,
            Ok(ApplyOutcome::AlreadyKnown { .. }) => Outcome::AlreadyKnown,
            Ok(ApplyOutcome::UnknownSegment) if before.is_some() && before == after => Outcome::Repeated,
            Ok(ApplyOutcome::UnknownSegment) if before.is_some() => Outcome::InvalidTransition,
            Ok(ApplyOutcome::UnknownSegment) => Outcome::UnknownSegment,
            Ok(_) => Outcome::InvalidTransition,
            Err(ApplyError::Object(_)) => Outcome::Refused,
            Err(_) => Outcome::Fatal,
        }
    }

    /// Keeps the segment's content and states up to date.
    fn note(&mut self, event: &Event) {
        if event.segment == NONE {
            return;
        }
        let at = self.segment_at(event);
        let segment = &mut self.segments[at];
        let accepted = match event.outcome {
            Outcome::Applied | Outcome::Repeated => true,
            Outcome::AlreadyKnown
            | Outcome::UnknownSegment
            | Outcome::InvalidTransition
            | Outcome::Fatal
            | Outcome::Refused
            | Outcome::Misplaced => false,
        };
        let custom = match event.kind {
            Kind::Base => self.bases[event.link as usize].custom,
            _ => event.link,
        };
        let again = event.kind == Kind::Base && segment.base != NONE;
        segment.plain &= event.outcome == Outcome::Applied && custom == NONE && !again;
        if event.kind == Kind::Base && (accepted || segment.base == NONE) {
            segment.base = event.link;
        }
        segment.ever_finished |= event.kind == Kind::Update
            && accepted
            && event.state == RemoteLogSegmentState::CopySegmentFinished.id();
        if accepted {
            segment.state = RemoteLogSegmentState::from_id(event.state);
        }
        if event.outcome != Outcome::Misplaced {
            segment.last_state = event.state;
        }
    }

    /// The index does not look at the partition, and the judge needs no custom metadata from it.
    fn metadata(&self, event: &Event) -> RawSegmentMetadata<'static> {
        let base = &self.bases[event.link as usize];
        RawSegmentMetadata {
            topic_id_partition: nameless(),
            segment_id: self.segments[self.segment_at(event)].id,
            start_offset: base.start_offset,
            end_offset: base.end_offset,
            broker_id: event.broker_id,
            max_timestamp_ms: base.max_timestamp_ms,
            event_timestamp_ms: event.timestamp_ms,
            segment_leader_epochs: base.epochs.iter().copied().collect(),
            segment_size_in_bytes: base.size_in_bytes,
            custom_metadata: None,
            state_id: event.state,
            txn_index_empty: base.txn_index_empty,
        }
    }

    fn update(&self, event: &Event) -> RawSegmentUpdate<'static> {
        RawSegmentUpdate {
            topic_id_partition: nameless(),
            segment_id: self.segments[self.segment_at(event)].id,
            broker_id: event.broker_id,
            event_timestamp_ms: event.timestamp_ms,
            custom_metadata: None,
            state_id: event.state,
        }
    }

    fn flatten(&self, index: &RemoteLogSegmentIndex) -> Readable {
        let mut readable = Readable::default();
        let ids = self.segments.iter().map(|segment| segment.id).zip(self.first_segment..);
        let by_id: FxHashMap<Uuid, u32> = ids.collect();
        let find = |id: Uuid| by_id.get(&id).copied();
        for epoch in index.leader_epochs() {
            let first = readable.ranges.len();
            for (start_offset, id) in index.referenced(epoch) {
                let Some(segment) = find(id) else { continue };
                let Some(end_offset) = index.segment(id).and_then(|found| found.epoch_end_offset(epoch))
                else {
                    continue;
                };
                // A look-up goes to the range that begins last, so this one ends the one before it.
                if let Some(before) = readable.ranges[first..].last_mut() {
                    before.end_offset = before.end_offset.min(start_offset.saturating_sub(1));
                }
                readable.ranges.push(ReadableRange { epoch, start_offset, end_offset, segment });
                readable.listed.insert(segment);
            }
            readable.listed.extend(index.unreferenced(epoch).filter_map(find));
            readable.highest.extend(index.highest_offset_for_epoch(epoch).map(|highest| (epoch, highest)));
        }
        readable.ranges.retain(|range| range.start_offset <= range.end_offset);
        readable
    }
}

fn nameless() -> RawTopicIdPartition<'static> {
    RawTopicIdPartition { topic: "".into(), topic_id: TopicId::default(), partition: 0 }
}

impl TierView {
    /// Every user partition that an event names.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = PartitionView<'_>> {
        self.partitions.iter().map(|data| PartitionView { view: self, data })
    }

    /// The partitions of that topic name and number, one for each topic id.
    pub fn partition<'a>(&'a self, topic: &str, partition: i32) -> impl Iterator<Item = PartitionView<'a>> {
        let topic: Arc<str> = Arc::from(topic);
        self.partitions().filter(move |of| of.topic() == &*topic && of.partition() == partition)
    }

    /// The segments of that id: one, unless events contradict each other about its partition.
    pub fn segment(&self, id: Uuid) -> impl Iterator<Item = SegmentView<'_>> {
        let indexes = 0..self.segments.len();
        indexes.map(|index| self.segment_view(index as u32)).filter(move |segment| segment.id() == id)
    }

    /// Records that are no events, by position.
    pub fn odd_records(&self) -> &[OddRecord] {
        &self.odd
    }

    /// Counts by metadata partition.
    pub fn metadata_partitions(&self) -> &[MetadataPartitionStats] {
        &self.stats
    }

    /// What the places of the events say.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// How many events there are; records that are none are not counted.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// How many segments there are, in every state.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn segment_view(&self, index: u32) -> SegmentView<'_> {
        SegmentView { view: self, index, data: &self.segments[index as usize] }
    }
}

/// A user partition: a topic's name and id, and a number.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'a> {
    pub(crate) view: &'a TierView,
    pub(crate) data: &'a PartitionData,
}

impl<'a> PartitionView<'a> {
    fn name(&self) -> &'a UserPartition {
        &self.view.user_partitions[self.data.user_partition as usize]
    }

    /// The topic's name, as the events have it.
    pub fn topic(&self) -> &'a str {
        &self.name().topic
    }

    /// The topic's id.
    pub fn topic_id(&self) -> TopicId {
        self.name().topic_id
    }

    /// The partition's number.
    pub fn partition(&self) -> i32 {
        self.name().partition
    }

    /// The metadata partition that its events belong into, where the partition count is known.
    pub fn metadata_partition(&self) -> Option<i32> {
        self.data.home
    }

    /// All segments, by start offset; those never introduced last.
    pub fn segments(
        &self,
    ) -> impl ExactSizeIterator<Item = SegmentView<'a>> + DoubleEndedIterator + Clone + use<'a> {
        let view = self.view;
        view.ordered[self.data.segments.clone()].iter().map(move |index| view.segment_view(*index))
    }

    /// All events, in the order of their log.
    pub fn events(
        &self,
    ) -> impl ExactSizeIterator<Item = EventView<'a>> + DoubleEndedIterator + Clone + use<'a> {
        let view = self.view;
        view.events[self.data.events.clone()].iter().map(move |event| EventView { view, event })
    }

    /// What look-ups answer.
    pub fn readable(&self) -> &'a Readable {
        &self.data.readable
    }

    /// The segment that serves the offset at the leader epoch.
    pub fn find(&self, epoch: i32, offset: i64) -> Option<SegmentView<'a>> {
        self.data.readable.find(epoch, offset).map(|range| self.view.segment_view(range.segment))
    }

    /// Every leader epoch and segment that serve the offset, by epoch.
    pub fn find_at_any_epoch(&self, offset: i64) -> impl Iterator<Item = (i32, SegmentView<'a>)> + use<'a> {
        let this = *self;
        this.readable().leader_epochs().filter_map(move |epoch| Some((epoch, this.find(epoch, offset)?)))
    }

    /// The segment of a range of [`PartitionView::readable`].
    pub fn segment_of(&self, range: &ReadableRange) -> SegmentView<'a> {
        self.view.segment_view(range.segment)
    }

    /// How many segments are in which state, and their bytes.
    pub fn counts(&self) -> StateCounts {
        let mut counts = StateCounts::default();
        for segment in self.segments() {
            let bytes = segment.size_bytes();
            match segment.state() {
                Some(RemoteLogSegmentState::CopySegmentStarted) => counts.copy_started += 1,
                Some(RemoteLogSegmentState::CopySegmentFinished) => {
                    counts.copy_finished += 1;
                    counts.copy_finished_bytes = counts.copy_finished_bytes.saturating_add(bytes);
                }
                Some(RemoteLogSegmentState::DeleteSegmentStarted) => counts.delete_started += 1,
                Some(RemoteLogSegmentState::DeleteSegmentFinished) => counts.delete_finished += 1,
                None => counts.unknown += 1,
            }
            if segment.is_live() {
                counts.live_bytes = counts.live_bytes.saturating_add(bytes);
            }
        }
        counts
    }

    /// When the last copy was finished, by its event, in milliseconds since 1970.
    pub fn last_copy_finished_ms(&self) -> Option<i64> {
        self.events().filter(|event| event.finishes_copy()).map(|event| event.timestamp_ms()).max()
    }

    /// The last event of api key 2 that is in its right place.
    pub fn last_partition_delete(&self) -> Option<EventView<'a>> {
        self.events().rev().find(|event| {
            event.kind() == EventKind::PartitionDeleteMetadata && event.outcome() == Outcome::Applied
        })
    }
}

/// A segment, with everything that was ever said of it.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView<'a> {
    view: &'a TierView,
    pub(crate) index: u32,
    data: &'a SegmentData,
}

impl<'a> SegmentView<'a> {
    /// Its id.
    pub fn id(&self) -> Uuid {
        self.data.id
    }

    /// The topic's name, as its events have it.
    pub fn topic(&self) -> &'a str {
        &self.view.user_partitions[self.data.user_partition as usize].topic
    }

    /// The topic's id.
    pub fn topic_id(&self) -> TopicId {
        self.view.user_partitions[self.data.user_partition as usize].topic_id
    }

    /// The partition's number.
    pub fn partition(&self) -> i32 {
        self.view.user_partitions[self.data.user_partition as usize].partition
    }

    /// Offsets, epochs, size and times: what brokers accepted last, else what was said first. `None` where the
    /// segment was never introduced.
    pub fn content(&self) -> Option<&'a SegmentContent> {
        self.view.bases.get(self.data.base as usize)
    }

    /// The first offset.
    pub fn start_offset(&self) -> Option<i64> {
        self.content().map(|content| content.start_offset)
    }

    /// The last offset, inclusive.
    pub fn end_offset(&self) -> Option<i64> {
        self.content().map(|content| content.end_offset)
    }

    /// The size of its log file; 0 where not known or negative.
    pub fn size_bytes(&self) -> u64 {
        self.content().map_or(0, |content| u64::try_from(content.size_in_bytes).unwrap_or(0))
    }

    /// The state that brokers have it in; `None` where they accepted nothing about it.
    pub fn state(&self) -> Option<RemoteLogSegmentState> {
        self.data.state
    }

    /// The state of its last event, accepted or not.
    pub fn last_state_id(&self) -> i8 {
        self.data.last_state
    }

    /// True while its last event is not DELETE_SEGMENT_FINISHED.
    pub fn is_live(&self) -> bool {
        self.data.last_state != RemoteLogSegmentState::DeleteSegmentFinished.id()
    }

    /// True when brokers have it in COPY_SEGMENT_FINISHED and no event says that it is gone.
    pub fn is_finished(&self) -> bool {
        self.data.state == Some(RemoteLogSegmentState::CopySegmentFinished) && self.is_live()
    }

    /// True where a copy of it was finished once, whatever became of it.
    pub(crate) fn was_finished(&self) -> bool {
        self.data.ever_finished
    }

    /// True where its events need no judging one by one: each moved it on, and none has custom metadata.
    pub(crate) fn is_plain(&self) -> bool {
        self.data.plain
    }

    /// The custom metadata that brokers have now; absent and empty differ.
    pub fn custom_metadata(&self) -> Option<&'a [u8]> {
        let accepted =
            |event: &EventView<'_>| matches!(event.outcome(), Outcome::Applied | Outcome::Repeated);
        self.events().rfind(accepted).and_then(|event| event.custom_metadata())
    }

    /// All its events, in the order of their log.
    pub fn events(
        &self,
    ) -> impl ExactSizeIterator<Item = EventView<'a>> + DoubleEndedIterator + Clone + use<'a> {
        let view = self.view;
        let range = self.data.events.0 as usize..self.data.events.1 as usize;
        view.by_segment[range].iter().map(move |at| EventView { view, event: &view.events[*at as usize] })
    }
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    view: &'a TierView,
    event: &'a Event,
}

impl<'a> EventView<'a> {
    /// The partition of the metadata topic that it lies in.
    pub fn metadata_partition(&self) -> Option<i32> {
        (self.event.metadata_partition != NO_PARTITION).then_some(self.event.metadata_partition)
    }

    /// Its offset there.
    pub fn offset(&self) -> Option<i64> {
        (self.event.offset != NO_OFFSET).then_some(self.event.offset)
    }

    /// The event's own time, in milliseconds since 1970.
    pub fn timestamp_ms(&self) -> i64 {
        self.event.timestamp_ms
    }

    /// The broker that wrote it.
    pub fn broker_id(&self) -> i32 {
        self.event.broker_id
    }

    /// Its api key.
    pub fn kind(&self) -> EventKind {
        match self.event.kind {
            Kind::Base => EventKind::SegmentMetadata,
            Kind::Update => EventKind::SegmentMetadataUpdate,
            Kind::PartitionDelete => EventKind::PartitionDeleteMetadata,
        }
    }

    /// The number of the state, known or not; of a partition's deletion for api key 2.
    pub fn state_id(&self) -> i8 {
        self.event.state
    }

    /// The state as Kafka names it; `None` for a number without a name.
    pub fn state_name(&self) -> Option<&'static str> {
        match self.event.kind {
            Kind::Base | Kind::Update => state_name(self.event.state),
            Kind::PartitionDelete => {
                RemotePartitionDeleteState::from_id(self.event.state).map(RemotePartitionDeleteState::name)
            }
        }
    }

    /// What a broker makes of it.
    pub fn outcome(&self) -> Outcome {
        self.event.outcome
    }

    /// The segment; `None` for api key 2.
    pub fn segment(&self) -> Option<SegmentView<'a>> {
        (self.event.segment != NONE).then(|| self.view.segment_view(self.event.segment))
    }

    /// What this event says of the segment; `None` for updates.
    pub fn content(&self) -> Option<&'a SegmentContent> {
        match self.event.kind {
            Kind::Base => self.view.bases.get(self.event.link as usize),
            Kind::Update | Kind::PartitionDelete => None,
        }
    }

    /// The custom metadata that it carries; absent and empty differ.
    pub fn custom_metadata(&self) -> Option<&'a [u8]> {
        match self.event.kind {
            Kind::Base => self.content().and_then(|content| self.view.blobs.get(content.custom)),
            Kind::Update => self.view.blobs.get(self.event.link),
            Kind::PartitionDelete => None,
        }
    }

    /// The user partition that it names.
    pub fn user_partition(&self) -> PartitionView<'a> {
        let data = &self.view.partitions[self.view.ranks[self.event.user_partition as usize] as usize];
        PartitionView { view: self.view, data }
    }

    /// True when the checks of its kind refuse it, wherever it lies.
    pub fn is_refused(&self) -> bool {
        self.event.refused
    }

    /// True when both are the very same record.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.event, other.event)
    }

    pub(crate) fn finishes_copy(&self) -> bool {
        self.event.kind == Kind::Update
            && self.event.state == RemoteLogSegmentState::CopySegmentFinished.id()
            && matches!(self.event.outcome, Outcome::Applied | Outcome::Repeated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_and_a_segment_stay_small() {
        // Millions of them are held at once.
        let sizes = [size_of::<Event>(), size_of::<SegmentData>(), size_of::<SegmentContent>()];
        assert!(sizes[0] <= 40 && sizes[1] <= 48 && sizes[2] <= 80, "{sizes:?}");
    }
}

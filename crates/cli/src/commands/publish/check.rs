//! What may be appended: each event of a file, held against the log as it stands and against the events before it.
//!
//! Values in, verdicts out: nothing is asked and nothing is written here.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use strandline_audit::{EventKind, EventView, Intervals, Outcome, PartitionView, SegmentView, TierView};
use strandline_rlmm::{PartitionHolders, check_write};
use strandline_tier::{
    MetadataPartitioner, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentUpdate,
    RawTopicIdPartition, RecordValue, RemoteLogSegmentState as State,
    RemotePartitionDeleteState as DeleteState, TopicId, Uuid, codec,
};

use super::file::Entry;
use crate::moment::{Clock, Millis};
use crate::sources::chain;

/// What the cluster says of a topic by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicNow {
    /// It has it, with this id and so many partitions.
    There { id: Option<TopicId>, partitions: i32 },
    /// There is none of that name.
    Absent,
    /// It cannot be seen.
    NotSeen,
}

/// What the events are held against.
pub(super) struct Against<'a> {
    /// Every event of the metadata partitions concerned.
    pub(super) view: &'a TierView,
    /// Where events belong.
    pub(super) partitioner: MetadataPartitioner,
    /// Up to where whoever made the file had read each metadata partition.
    pub(super) as_of: &'a BTreeMap<i32, i64>,
    /// The topics that the events name.
    pub(super) topics: &'a BTreeMap<String, TopicNow>,
    /// Whether DELETE_PARTITION_FINISHED is confirmed.
    pub(super) holders: PartitionHolders,
    /// How times are shown.
    pub(super) clock: &'a Clock,
}

/// What is to become of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It can be appended: these are its bytes.
    Append(Vec<u8>),
    /// The very same event is in the log, at this offset of its metadata partition.
    InLog(Option<i64>),
    /// It must not be appended, for this reason.
    Refused(String),
}

/// An event of the file with its place and its verdict.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    /// The metadata partition that it belongs into; `None` for what names no partition.
    pub(super) metadata_partition: Option<i32>,
    /// What is to become of it.
    pub(super) verdict: Verdict,
}

/// Judges the events one after the other, each as if those before it that can be appended were appended.
pub(super) fn check(entries: &[Entry], against: &Against<'_>) -> Vec<Checked> {
    let mut log = Log::of(entries, against);
    entries.iter().map(|entry| log.check(entry)).collect()
}

/// What readers of the log lose by the deletions that can be appended: offsets between two segments that stay, which no
/// segment has any more. In words, for each segment.
pub(super) fn losses(entries: &[Entry], checked: &[Checked], view: &TierView) -> Vec<String> {
    let mut deleted: FxHashMap<Uuid, u64> = FxHashMap::default();
    let mut concerned: FxHashSet<(TopicId, i32)> = FxHashSet::default();
    for (entry, checked) in entries.iter().zip(checked) {
        let RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)) = &entry.value else { continue };
        let deletes = matches!(
            State::from_id(event.state_id),
            Some(State::DeleteSegmentStarted | State::DeleteSegmentFinished)
        );
        if deletes && matches!(checked.verdict, Verdict::Append(_)) {
            deleted.entry(event.segment_id).or_insert(entry.line);
            concerned.insert((event.topic_id_partition.topic_id, event.topic_id_partition.partition));
        }
    }
    let mut losses = Vec::new();
    for of in view.partitions().filter(|of| concerned.contains(&(of.topic_id(), of.partition()))) {
        let range = |segment: &SegmentView<'_>| Some((segment.start_offset()?, segment.end_offset()?));
        let readable = || of.segments().filter(|segment| segment.state() == Some(State::CopySegmentFinished));
        let stays = readable().filter(|segment| !deleted.contains_key(&segment.id()));
        let stays = Intervals::new(stays.filter_map(|segment| range(&segment)).collect());
        let (Some(first), Some(last)) = (stays.first(), stays.last()) else { continue };
        for segment in readable() {
            let (Some(line), Some((start, end))) = (deleted.get(&segment.id()), range(&segment)) else {
                continue;
            };
            for (start, end) in stays.missing(start.max(first), end.min(last)) {
                losses.push(format!(
                    "line {line}: without segment {} no segment has offsets {start} to {end} of {}:{}, and others lie before and behind",
                    segment.id(),
                    of.topic(),
                    of.partition()
                ));
            }
        }
    }
    losses
}

/// A segment, in the log and with what the file appends.
#[derive(Default)]
struct Segment<'a> {
    of: Option<RawTopicIdPartition<'a>>,
    state: Option<State>,
    custom_metadata: Option<Vec<u8>>,
    newest: Option<(Millis, String)>,
    /// Of the log alone.
    in_log: Vec<EventView<'a>>,
    /// Of the file alone: the line and the event.
    in_file: Vec<(u64, &'a RawEvent<'static>)>,
}

/// The deletion of a user partition.
#[derive(Default)]
struct Deletion<'a> {
    state: Option<DeleteState>,
    in_log: Vec<EventView<'a>>,
}

impl Deletion<'_> {
    /// True once the partition was deleted, whatever somebody wrote behind that.
    fn was_finished(&self) -> bool {
        let finished = DeleteState::DeletePartitionFinished;
        self.state == Some(finished) || self.in_log.iter().any(|event| event.state_id() == finished.id())
    }
}

/// The log as it stands, and as it will stand.
struct Log<'a> {
    against: &'a Against<'a>,
    segments: FxHashMap<Uuid, Segment<'a>>,
    deletions: FxHashMap<(TopicId, i32), Deletion<'a>>,
    /// The names that topic ids have in the log.
    names: FxHashMap<TopicId, &'a str>,
    /// Every event of the file, to tell what it brings itself from what others wrote.
    entries: &'a [Entry],
}

impl<'a> Log<'a> {
    fn of(entries: &'a [Entry], against: &'a Against<'a>) -> Self {
        let mut log = Self {
            against,
            segments: FxHashMap::default(),
            deletions: FxHashMap::default(),
            names: FxHashMap::default(),
            entries,
        };
        for entry in entries {
            if let RecordValue::Event(event) = &entry.value {
                event.segment_id().map(|id| log.segments.entry(id).or_default());
                let of = event.topic_id_partition();
                of.map(|of| log.deletions.entry((of.topic_id, of.partition)).or_default());
            }
        }
        for of in against.view.partitions() {
            log.names.entry(of.topic_id()).or_insert_with(|| of.topic());
            log.take_in(&of);
        }
        log
    }

    /// Takes in what the view has of the segments and the partition of the file.
    fn take_in(&mut self, of: &PartitionView<'a>) {
        // What lies elsewhere is no part of what brokers know.
        let placed = |event: &EventView<'_>| event.outcome() != Outcome::Misplaced;
        if let Some(deletion) = self.deletions.get_mut(&(of.topic_id(), of.partition())) {
            let kind = |event: &EventView<'_>| event.kind() == EventKind::PartitionDeleteMetadata;
            deletion.in_log = of.events().filter(|event| kind(event) && placed(event)).collect();
            let last = deletion.in_log.last();
            deletion.state = last.and_then(|event| DeleteState::from_id(event.state_id()));
        }
        for segment in of.segments() {
            let Some(known) = self.segments.get_mut(&segment.id()) else { continue };
            let events: Vec<EventView<'a>> = segment.events().filter(placed).collect();
            if events.is_empty() {
                continue;
            }
            known.of.get_or_insert_with(|| RawTopicIdPartition {
                topic: of.topic().into(),
                topic_id: of.topic_id(),
                partition: of.partition(),
            });
            known.state = known.state.or(segment.state());
            if known.custom_metadata.is_none() {
                known.custom_metadata = segment.custom_metadata().map(<[u8]>::to_vec);
            }
            let newest = events.iter().max_by_key(|event| event.timestamp_ms());
            known.newest = newest.map(|event| {
                let state = event.state_name().unwrap_or("unknown state");
                (event.timestamp_ms(), format!("{state} at {}", place(event)))
            });
            known.in_log.extend(events);
        }
    }

    fn check(&mut self, entry: &'a Entry) -> Checked {
        let event = match &entry.value {
            RecordValue::Event(event) => event,
            RecordValue::NullValue => {
                return refused(None, "a record without a value ends the reading of every broker");
            }
            RecordValue::Undecodable { .. } => {
                return refused(None, "bytes that are no event end the reading of every broker");
            }
        };
        let Some(of) = event.topic_id_partition() else {
            return refused(
                None,
                "a snapshot has no place in the topic: it ends the reading of every broker",
            );
        };
        let home = self.against.partitioner.metadata_partition(of.topic_id, of.partition);
        let verdict = match self.verdict(entry, event, of, home) {
            Ok(verdict) => verdict,
            Err(reason) => Verdict::Refused(reason),
        };
        if matches!(verdict, Verdict::Append(_)) {
            self.append(entry.line, event, of);
        }
        Checked { metadata_partition: Some(home), verdict }
    }

    fn verdict(
        &self,
        entry: &Entry,
        event: &'a RawEvent<'static>,
        of: &RawTopicIdPartition<'_>,
        home: i32,
    ) -> Result<Verdict, String> {
        if let Some(named) = entry.position.metadata_partition.filter(|named| *named != home) {
            return Err(format!(
                "the file has it in metadata partition {named}; {}:{} belongs into {home}, and no broker looks for it elsewhere",
                of.topic, of.partition
            ));
        }
        check_write(event, self.against.holders).map_err(|error| chain(&error))?;
        let mut value = Vec::new();
        codec::encode(event, &mut value).map_err(|error| chain(&error))?;
        if let Some(name) = self.names.get(&of.topic_id).filter(|name| **name != of.topic) {
            return Err(format!("topic id {} is of topic {name} in the log", of.topic_id));
        }
        let deletion = self.deletions.get(&(of.topic_id, of.partition));
        let known = match event {
            RawEvent::PartitionDeleteMetadata(event) => self.partition_delete(event, deletion, of)?,
            RawEvent::SegmentMetadata(_) | RawEvent::SegmentMetadataUpdate(_) => {
                self.segment(event, deletion, of, home)?
            }
            RawEvent::SegmentMetadataSnapshot(_) => None,
        };
        Ok(known.map_or(Verdict::Append(value), Verdict::InLog))
    }

    /// The offset of the same event in the log, if it is there; nothing if the event can be appended.
    fn partition_delete(
        &self,
        event: &RawPartitionDelete<'_>,
        deletion: Option<&Deletion<'a>>,
        of: &RawTopicIdPartition<'_>,
    ) -> Result<Option<Option<i64>>, String> {
        let same = |there: &&EventView<'_>| {
            (there.state_id(), there.broker_id(), there.timestamp_ms())
                == (event.state_id, event.broker_id, event.event_timestamp_ms)
        };
        if let Some(there) = deletion.and_then(|deletion| deletion.in_log.iter().find(same)) {
            return Ok(Some(there.offset()));
        }
        let to = DeleteState::from_id(event.state_id).ok_or("the state is not known")?;
        let from = deletion.and_then(|deletion| deletion.state);
        if !DeleteState::is_valid_transition(from, to) {
            return Err(match from {
                Some(from) => format!("the deletion is at {from}, and cannot go to {to}"),
                None => format!("the deletion was not begun, and cannot go to {to}"),
            });
        }
        let there = self.against.topics.get(&*of.topic);
        let held = matches!(there, Some(TopicNow::There { id, .. }) if id.is_none_or(|id| id == of.topic_id));
        if to == DeleteState::DeletePartitionFinished && held {
            return Err(format!(
                "the cluster still has topic {}: {to} ends the reading of the brokers that hold the partition",
                of.topic
            ));
        }
        Ok(None)
    }

    /// The offset of the same event in the log, if it is there; nothing if the event can be appended.
    fn segment(
        &self,
        event: &'a RawEvent<'static>,
        deletion: Option<&Deletion<'a>>,
        of: &RawTopicIdPartition<'_>,
        home: i32,
    ) -> Result<Option<Option<i64>>, String> {
        let Some(segment) = event.segment_id().and_then(|id| self.segments.get(&id)) else { return Ok(None) };
        if let Some(there) = segment.in_log.iter().find(|there| is_same(event, there)) {
            return Ok(Some(there.offset()));
        }
        if let Some((line, _)) = segment.in_file.iter().find(|(_, other)| *other == event) {
            return Err(format!("line {line} is the same event"));
        }
        if let Some(other) = segment.of.as_ref().filter(|other| *other != of) {
            return Err(format!(
                "the segment is of {}:{} (topic id {})",
                other.topic, other.partition, other.topic_id
            ));
        }
        if deletion.is_some_and(Deletion::was_finished) {
            return Err("the deletion of the partition was finished: an event behind it ends the reading of a broker \
                        that held the partition"
                .to_owned());
        }
        if let Some(newer) = self.newer_than_file(segment, home) {
            return Err(format!(
                "the log has {} at {}, written after the file was made",
                newer.state_name().unwrap_or("an event"),
                place(&newer)
            ));
        }
        let (to, time_ms) = match event {
            RawEvent::SegmentMetadata(event) => {
                self.topic_is_there(of)?;
                epochs_rise(event)?;
                (State::CopySegmentStarted, event.event_timestamp_ms)
            }
            RawEvent::SegmentMetadataUpdate(event) => {
                let to = event.check().map_err(|error| chain(&error))?;
                keeps_custom_metadata(event, to, segment)?;
                (to, event.event_timestamp_ms)
            }
            _ => return Ok(None),
        };
        match segment.state {
            None if to != State::CopySegmentStarted => {
                return Err(format!("no event introduces the segment, and so none can move it to {to}"));
            }
            Some(from) if !State::is_valid_transition(Some(from), to) => {
                return Err(format!("the segment is in {from}, and cannot go to {to}"));
            }
            Some(from) if matches!(event, RawEvent::SegmentMetadata(_)) => {
                return Err(format!(
                    "the segment is introduced already, with other content, and is in {from}"
                ));
            }
            _ => {}
        }
        match &segment.newest {
            Some((newest_ms, what)) if time_ms < *newest_ms => Err(format!(
                "{what} is newer: {}, and this event is of {}",
                self.against.clock.show(*newest_ms),
                self.against.clock.show(time_ms)
            )),
            _ => Ok(None),
        }
    }

    /// An event that the file's maker had not read, and that is not of the file itself.
    fn newer_than_file(&self, segment: &Segment<'a>, home: i32) -> Option<EventView<'a>> {
        let as_of = self.against.as_of.get(&home)?;
        let own = |there: &EventView<'_>| {
            self.entries
                .iter()
                .any(|entry| matches!(&entry.value, RecordValue::Event(event) if is_same(event, there)))
        };
        let newer =
            |there: &&EventView<'_>| there.offset().is_some_and(|offset| offset >= *as_of) && !own(there);
        segment.in_log.iter().find(newer).copied()
    }

    /// A segment that is introduced is one of a partition that there is.
    fn topic_is_there(&self, of: &RawTopicIdPartition<'_>) -> Result<(), String> {
        match self.against.topics.get(&*of.topic) {
            Some(TopicNow::There { id: Some(id), .. }) if *id != of.topic_id => {
                Err(format!("topic {} has id {id} here, not {}", of.topic, of.topic_id))
            }
            Some(TopicNow::There { partitions, .. }) if !(0..*partitions).contains(&of.partition) => Err(
                format!("topic {} has {partitions} partitions, and no partition {}", of.topic, of.partition),
            ),
            Some(TopicNow::Absent) => Err(format!("the cluster has no topic {}", of.topic)),
            _ => Ok(()),
        }
    }

    /// Notes an event that will be appended.
    fn append(&mut self, line: u64, event: &'a RawEvent<'static>, of: &RawTopicIdPartition<'a>) {
        if let RawEvent::PartitionDeleteMetadata(event) = event {
            let deletion = self.deletions.entry((of.topic_id, of.partition)).or_default();
            deletion.state = DeleteState::from_id(event.state_id);
            return;
        }
        let Some(segment) = event.segment_id().and_then(|id| self.segments.get_mut(&id)) else { return };
        let (state_id, time_ms, custom_metadata) = match event {
            RawEvent::SegmentMetadata(event) => {
                (event.state_id, event.event_timestamp_ms, event.custom_metadata.as_deref())
            }
            RawEvent::SegmentMetadataUpdate(event) => {
                (event.state_id, event.event_timestamp_ms, event.custom_metadata.as_deref())
            }
            _ => return,
        };
        segment.of.get_or_insert_with(|| of.clone());
        segment.state = State::from_id(state_id);
        segment.custom_metadata = custom_metadata.map(<[u8]>::to_vec);
        let state = segment.state.map_or("unknown state", State::name);
        segment.newest = Some((time_ms, format!("{state} in line {line}")));
        segment.in_file.push((line, event));
    }
}

fn refused(metadata_partition: Option<i32>, reason: &str) -> Checked {
    Checked { metadata_partition, verdict: Verdict::Refused(reason.to_owned()) }
}

/// A later leader epoch never begins before an earlier one: Kafka writes no such segment, and look-ups by epoch in it go astray.
fn epochs_rise(event: &RawSegmentMetadata<'_>) -> Result<(), String> {
    let mut entries: Vec<_> =
        event.segment_leader_epochs.iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
    entries.sort_unstable();
    for pair in entries.windows(2) {
        let [(earlier, begun), (later, begins)] = [pair[0], pair[1]];
        if earlier == later {
            return Err(format!("leader epoch {later} is named twice, at offsets {begun} and {begins}"));
        }
        if begins < begun {
            return Err(format!(
                "leader epoch {later} begins at offset {begins}, before epoch {earlier} at {begun}"
            ));
        }
    }
    Ok(())
}

/// Java's readers forget custom metadata with an update that has none, and the plugin may then not find the objects.
fn keeps_custom_metadata(
    event: &RawSegmentUpdate<'_>,
    to: State,
    segment: &Segment<'_>,
) -> Result<(), String> {
    let deletes = matches!(to, State::DeleteSegmentStarted | State::DeleteSegmentFinished);
    match &segment.custom_metadata {
        Some(there) if deletes && event.custom_metadata.as_deref() != Some(there.as_slice()) => Err(format!(
            "the segment has custom metadata ({} bytes), and {to} has to carry it: else the objects may not be found",
            there.len()
        )),
        _ => Ok(()),
    }
}

/// `7:1204`, as far as it is known.
fn place(event: &EventView<'_>) -> String {
    match (event.metadata_partition(), event.offset()) {
        (Some(partition), Some(offset)) => format!("{partition}:{offset}"),
        _ => "an unknown place".to_owned(),
    }
}

/// True where both are one event, written once or twice.
fn is_same(event: &RawEvent<'_>, there: &EventView<'_>) -> bool {
    let of = there.user_partition();
    let same_partition = event.topic_id_partition().is_some_and(|named| {
        (&*named.topic, named.topic_id, named.partition) == (of.topic(), of.topic_id(), of.partition())
    });
    let said = (there.state_id(), there.broker_id(), there.timestamp_ms(), there.custom_metadata());
    let same = match event {
        RawEvent::SegmentMetadata(event) => {
            there.kind() == EventKind::SegmentMetadata
                && said
                    == (
                        event.state_id,
                        event.broker_id,
                        event.event_timestamp_ms,
                        event.custom_metadata.as_deref(),
                    )
                && has_content(event, there)
        }
        RawEvent::SegmentMetadataUpdate(event) => {
            there.kind() == EventKind::SegmentMetadataUpdate
                && said
                    == (
                        event.state_id,
                        event.broker_id,
                        event.event_timestamp_ms,
                        event.custom_metadata.as_deref(),
                    )
        }
        RawEvent::PartitionDeleteMetadata(_) | RawEvent::SegmentMetadataSnapshot(_) => false,
    };
    same && same_partition && event.segment_id() == there.segment().map(|segment| segment.id())
}

fn has_content(event: &RawSegmentMetadata<'_>, there: &EventView<'_>) -> bool {
    there.content().is_some_and(|content| {
        content.start_offset == event.start_offset
            && content.end_offset == event.end_offset
            && content.max_timestamp_ms == event.max_timestamp_ms
            && content.size_in_bytes == event.segment_size_in_bytes
            && content.txn_index_empty == event.txn_index_empty
            && content.epochs[..] == event.segment_leader_epochs[..]
    })
}

#[cfg(test)]
mod tests {
    use strandline_audit::{Flags, Position, TierViewBuilder};
    use strandline_tier::json::EventPosition;
    use strandline_tier::{EpochEntry, RawSegmentSnapshot};

    use super::*;

    const PARTITIONS: i32 = 4;
    const ORDERS: TopicId = TopicId(Uuid([9; 16]));

    fn orders(partition: i32) -> RawTopicIdPartition<'static> {
        RawTopicIdPartition { topic: "orders".into(), topic_id: ORDERS, partition }
    }

    fn home() -> i32 {
        MetadataPartitioner::new(PARTITIONS).unwrap().metadata_partition(ORDERS, 0)
    }

    fn base(id: u8, event_timestamp_ms: i64) -> RawSegmentMetadata<'static> {
        RawSegmentMetadata {
            topic_id_partition: orders(0),
            segment_id: Uuid([id; 16]),
            start_offset: 0,
            end_offset: 9,
            broker_id: 1,
            max_timestamp_ms: 50,
            event_timestamp_ms,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
            segment_size_in_bytes: 100,
            custom_metadata: None,
            state_id: State::CopySegmentStarted.id(),
            txn_index_empty: true,
        }
    }

    fn start(id: u8, time_ms: i64) -> RecordValue<'static> {
        RecordValue::Event(RawEvent::SegmentMetadata(base(id, time_ms)))
    }

    fn changed(id: u8, change: impl FnOnce(&mut RawSegmentMetadata<'static>)) -> RecordValue<'static> {
        let mut event = base(id, 100);
        change(&mut event);
        RecordValue::Event(RawEvent::SegmentMetadata(event))
    }

    fn with_custom(
        id: u8,
        state: State,
        time_ms: i64,
        custom: Option<&'static [u8]>,
    ) -> RecordValue<'static> {
        RecordValue::Event(RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
            topic_id_partition: orders(0),
            segment_id: Uuid([id; 16]),
            broker_id: 1,
            event_timestamp_ms: time_ms,
            custom_metadata: custom.map(Into::into),
            state_id: state.id(),
        }))
    }

    fn to(id: u8, state: State, time_ms: i64) -> RecordValue<'static> {
        with_custom(id, state, time_ms, None)
    }

    fn delete(state: DeleteState, time_ms: i64) -> RecordValue<'static> {
        RecordValue::Event(RawEvent::PartitionDeleteMetadata(RawPartitionDelete {
            topic_id_partition: orders(0),
            broker_id: 1,
            event_timestamp_ms: time_ms,
            state_id: state.id(),
        }))
    }

    /// What a case changes of a cluster that has `orders` with one partition.
    struct Case {
        log: Vec<RecordValue<'static>>,
        file: Vec<RecordValue<'static>>,
        named: Option<i32>,
        as_of: Option<i64>,
        topic: TopicNow,
        holders: PartitionHolders,
    }

    fn case(log: &[RecordValue<'static>], file: &[RecordValue<'static>]) -> Case {
        Case {
            log: log.to_vec(),
            file: file.to_vec(),
            named: None,
            as_of: None,
            topic: TopicNow::There { id: Some(ORDERS), partitions: 1 },
            holders: PartitionHolders::Possible,
        }
    }

    impl Case {
        /// A word for each event, or why it is refused.
        fn verdicts(&self) -> Vec<String> {
            self.judged().0
        }

        /// The same, and what is lost.
        fn judged(&self) -> (Vec<String>, Vec<String>) {
            let mut builder = TierViewBuilder::new();
            for (offset, value) in (0..).zip(&self.log) {
                let position =
                    Position { metadata_partition: Some(home()), offset: Some(offset), timestamp_ms: None };
                builder.push(position, Flags::default(), value);
            }
            let position = EventPosition { metadata_partition: self.named, offset: None, timestamp_ms: None };
            let entry =
                |(line, value): (u64, &RecordValue<'static>)| Entry { line, position, value: value.clone() };
            let entries: Vec<Entry> = (1..).zip(&self.file).map(entry).collect();
            let view = builder.finish(Some(PARTITIONS));
            let against = Against {
                view: &view,
                partitioner: MetadataPartitioner::new(PARTITIONS).unwrap(),
                as_of: &self.as_of.map(|offset| (home(), offset)).into_iter().collect(),
                topics: &[("orders".to_owned(), self.topic)].into_iter().collect(),
                holders: self.holders,
                clock: &Clock::new(Some("2026-01-01T00:00:00Z"), None).unwrap(),
            };
            let words = |checked: Checked| match checked.verdict {
                Verdict::Append(bytes) => {
                    assert_eq!(checked.metadata_partition, Some(home()));
                    assert!(matches!(RecordValue::from_value(Some(&bytes)), RecordValue::Event(_)));
                    "append".to_owned()
                }
                Verdict::InLog(offset) => format!("in the log at {}", offset.unwrap()),
                Verdict::Refused(reason) => reason,
            };
            let checked = check(&entries, &against);
            let losses = losses(&entries, &checked, &view);
            (checked.into_iter().map(words).collect(), losses)
        }
    }

    use State::{CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted};

    #[test]
    fn what_follows_legally_from_the_log_and_the_file_is_appended() {
        let life = [
            start(1, 100),
            to(1, CopySegmentFinished, 200),
            to(1, DeleteSegmentStarted, 300),
            to(1, DeleteSegmentFinished, 400),
        ];
        for there in 0..=life.len() {
            // What is in the log already is told with its place, so that a file can be published again.
            let expected: Vec<String> = (0..life.len())
                .map(|at| if at < there { format!("in the log at {at}") } else { "append".to_owned() })
                .collect();
            assert_eq!(case(&life[..there], &life).verdicts(), expected);
        }
        let repeated = [to(1, CopySegmentFinished, 250)];
        assert_eq!(case(&life[..2], &repeated).verdicts(), ["append"], "a repeated state is legal");
        let elsewhere = Case { topic: TopicNow::NotSeen, ..case(&[], &life) };
        assert_eq!(elsewhere.verdicts(), ["append"; 4], "what may not be seen is not held against it");
        let gone = Case { topic: TopicNow::Absent, ..case(&life[..2], &life[2..]) };
        assert_eq!(gone.verdicts(), ["append"; 2], "a deleted topic is cleaned up after");
    }

    #[test]
    fn what_contradicts_the_log_is_refused_with_the_reason() {
        let finished = [start(1, 100), to(1, CopySegmentFinished, 200)];
        let deleting = [&finished[..], &[to(1, DeleteSegmentStarted, 300)]].concat();
        let custom = [start(1, 100), with_custom(1, CopySegmentFinished, 200, Some(b"key"))];
        let refused = [
            (
                case(&[], &[to(1, CopySegmentFinished, 200)]),
                "no event introduces the segment, and so none can move it to COPY_SEGMENT_FINISHED",
            ),
            (
                case(&deleting, &[to(1, CopySegmentFinished, 400)]),
                "the segment is in DELETE_SEGMENT_STARTED, and cannot go to COPY_SEGMENT_FINISHED",
            ),
            (
                case(&finished, &[to(1, DeleteSegmentFinished, 400)]),
                "the segment is in COPY_SEGMENT_FINISHED, and cannot go to DELETE_SEGMENT_FINISHED",
            ),
            (
                case(&finished, &[start(1, 300)]),
                "the segment is in COPY_SEGMENT_FINISHED, and cannot go to COPY_SEGMENT_STARTED",
            ),
            (
                case(&[start(1, 100)], &[changed(1, |event| event.end_offset = 8)]),
                "the segment is introduced already, with other content, and is in COPY_SEGMENT_STARTED",
            ),
            (
                case(&finished, &[to(1, DeleteSegmentStarted, 150)]),
                "COPY_SEGMENT_FINISHED at 0:1 is newer: 1970-01-01 00:00:00Z, and this event is of 1970-01-01 00:00:00Z",
            ),
            (
                Case { as_of: Some(1), ..case(&finished, &[to(1, DeleteSegmentStarted, 300)]) },
                "the log has COPY_SEGMENT_FINISHED at 0:1, written after the file was made",
            ),
            (
                case(&custom, &[to(1, DeleteSegmentStarted, 300)]),
                "the segment has custom metadata (3 bytes), and DELETE_SEGMENT_STARTED has to carry it: else the objects may not be found",
            ),
            (
                case(
                    &finished,
                    &[RecordValue::Event(RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
                        topic_id_partition: orders(1),
                        segment_id: Uuid([1; 16]),
                        broker_id: 1,
                        event_timestamp_ms: 300,
                        custom_metadata: None,
                        state_id: 2,
                    }))],
                ),
                "the segment is of orders:0",
            ),
            (
                case(&finished, &[changed(2, |event| event.topic_id_partition.topic = "ordres".into())]),
                "is of topic orders in the log",
            ),
            (
                Case { named: Some(3 - home()), ..case(&[], &[start(1, 100)]) },
                "and no broker looks for it elsewhere",
            ),
        ];
        for (case, reason) in refused {
            let reason = reason.replace("0:1", &format!("{}:1", home()));
            let verdicts = case.verdicts();
            assert!(verdicts[0].contains(&reason), "{verdicts:?}: {reason}");
        }
        let kept = with_custom(1, DeleteSegmentStarted, 300, Some(b"key"));
        assert_eq!(case(&custom, &[kept]).verdicts(), ["append"]);
        // What the file has appended itself is no news to it.
        let as_of = Case {
            as_of: Some(1),
            ..case(&finished, &[finished[1].clone(), to(1, DeleteSegmentStarted, 300)])
        };
        assert_eq!(as_of.verdicts(), ["in the log at 1", "append"]);
    }

    #[test]
    fn a_deletion_that_leaves_a_hole_between_segments_is_told() {
        let copied = |id: u8, start_offset: i64| {
            let begun = changed(id, |event| {
                (event.start_offset, event.end_offset) = (start_offset, start_offset + 9);
                event.segment_leader_epochs = [EpochEntry { epoch: 0, start_offset }].into_iter().collect();
            });
            [begun, to(id, CopySegmentFinished, 200)]
        };
        let log = [copied(1, 0), copied(2, 10), copied(3, 20)].concat();
        let lost = |id: u8| case(&log, &[to(id, DeleteSegmentStarted, 300)]).judged();
        let told = format!(
            "line 1: without segment {} no segment has offsets 10 to 19 of orders:0, and others lie before and behind",
            Uuid([2; 16])
        );
        assert_eq!(lost(2), (vec!["append".to_owned()], vec![told]));
        // Retention deletes so.
        assert_eq!(lost(1), (vec!["append".to_owned()], Vec::new()));
    }

    #[test]
    fn what_contradicts_the_file_itself_is_refused() {
        let same = case(&[], &[start(1, 100), start(1, 100)]).verdicts();
        assert_eq!(same, ["append", "line 1 is the same event"]);
        let newer = case(&[], &[start(1, 100), to(1, CopySegmentFinished, 50)]).verdicts();
        assert!(newer[1].starts_with("COPY_SEGMENT_STARTED in line 1 is newer"), "{newer:?}");
        // Behind an event that is refused those that depend on it are refused too.
        let broken = case(&[], &[changed(1, |event| event.end_offset = -1), to(1, CopySegmentFinished, 200)]);
        assert!(broken.verdicts().iter().all(|verdict| verdict != "append"), "{:?}", broken.verdicts());
    }

    #[test]
    fn what_ends_or_misleads_a_java_reader_is_refused() {
        let snapshot = RawEvent::SegmentMetadataSnapshot(RawSegmentSnapshot {
            segment_id: Uuid([1; 16]),
            start_offset: 0,
            end_offset: 9,
            broker_id: 1,
            max_timestamp_ms: 0,
            event_timestamp_ms: 0,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
            segment_size_in_bytes: 1,
            custom_metadata: None,
            state_id: 1,
            txn_index_empty: false,
        });
        let undecodable = RecordValue::Undecodable {
            bytes: b"{}"[..].into(),
            error: "no event".into(),
            unknown_api: false,
        };
        let beyond = |event: &mut RawSegmentMetadata<'static>| {
            event.segment_leader_epochs.push(EpochEntry { epoch: 1, start_offset: 11 });
        };
        let falling = |event: &mut RawSegmentMetadata<'static>| {
            event.segment_leader_epochs =
                [EpochEntry { epoch: 1, start_offset: 0 }, EpochEntry { epoch: 0, start_offset: 5 }]
                    .into_iter()
                    .collect();
        };
        let twice = |event: &mut RawSegmentMetadata<'static>| {
            event.segment_leader_epochs.push(EpochEntry { epoch: 0, start_offset: 5 });
        };
        for (value, reason) in [
            (RecordValue::NullValue, "without a value"),
            (undecodable, "no event end the reading"),
            (RecordValue::Event(snapshot), "a snapshot has no place"),
            (changed(1, |event| event.state_id = 1), "announced in state COPY_SEGMENT_STARTED"),
            (changed(1, |event| event.state_id = 7), "no reader accepts such an event"),
            (changed(1, |event| event.start_offset = -1), "no reader accepts such an event"),
            (changed(1, |event| event.segment_leader_epochs.clear()), "no reader accepts such an event"),
            (changed(1, beyond), "beyond the segment's end"),
            (changed(1, falling), "leader epoch 1 begins at offset 0, before epoch 0 at 5"),
            (changed(1, twice), "leader epoch 0 is named twice, at offsets 0 and 5"),
            (to(1, CopySegmentStarted, 200), "no update leads to COPY_SEGMENT_STARTED"),
        ] {
            let verdicts = case(&[], std::slice::from_ref(&value)).verdicts();
            assert!(verdicts[0].contains(reason), "{value:?}: {verdicts:?}");
        }
    }

    #[test]
    fn a_segment_is_introduced_only_in_a_partition_that_there_is() {
        let there = |id: u8, partitions| TopicNow::There { id: Some(TopicId(Uuid([id; 16]))), partitions };
        let of_1 = [changed(1, |event| event.topic_id_partition.partition = 1)];
        for (topic, file, reason) in [
            (TopicNow::Absent, &[start(1, 100)], "the cluster has no topic orders"),
            (there(8, 1), &[start(1, 100)], "topic orders has id"),
            (there(9, 1), &of_1, "topic orders has 1 partitions, and no partition 1"),
        ] {
            let verdicts = Case { topic, ..case(&[], file) }.verdicts();
            assert!(verdicts[0].contains(reason), "{verdicts:?}");
        }
    }

    #[test]
    fn a_deletion_goes_its_way_and_its_end_has_to_be_confirmed() {
        use DeleteState::{DeletePartitionFinished, DeletePartitionMarked, DeletePartitionStarted};
        let way = [
            delete(DeletePartitionMarked, 500),
            delete(DeletePartitionStarted, 501),
            delete(DeletePartitionFinished, 502),
        ];
        let unconfirmed = Case { topic: TopicNow::Absent, ..case(&[], &way) };
        let verdicts = unconfirmed.verdicts();
        assert_eq!(verdicts[..2], ["append", "append"]);
        assert!(verdicts[2].contains("say that none does to write it"), "{verdicts:?}");
        let confirmed = |case: Case| Case { holders: PartitionHolders::None, ..case }.verdicts();
        assert_eq!(confirmed(unconfirmed), ["append"; 3]);
        // The cluster itself says that somebody holds it.
        let held = confirmed(case(&[], &way));
        assert!(held[2].contains("the cluster still has topic orders"), "{held:?}");
        let behind = Case {
            topic: TopicNow::Absent,
            ..case(&[start(1, 100)], &[&way[..], &[to(1, DeleteSegmentStarted, 503)]].concat())
        };
        assert!(confirmed(behind)[3].contains("the deletion of the partition was finished"));
        let marked_again = [&way[..], &[delete(DeletePartitionMarked, 504)]].concat();
        let behind = Case { topic: TopicNow::NotSeen, ..case(&marked_again, &[start(1, 600)]) };
        assert!(behind.verdicts()[0].contains("the deletion of the partition was finished"));
        assert_eq!(case(&way[..1], &way[1..2]).verdicts(), ["append"]);
        assert_eq!(case(&way[..1], &way[..1]).verdicts(), ["in the log at 0"]);
        let skipped = case(&[], &way[1..2]).verdicts();
        assert!(skipped[0].contains("the deletion was not begun"), "{skipped:?}");
    }
}

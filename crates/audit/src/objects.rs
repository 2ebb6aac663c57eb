//! Rules about the store's objects.

use rustc_hash::FxHashMap;
use strandline_tier::{RemoteLogSegmentState, TopicId, Uuid};

use crate::events::count;
use crate::facts::{ObjectFact, ObjectRole, ParsedKey, StoreFact};
use crate::finding::{Evidence, Severity};
use crate::judge::{Draft, Judge};
use crate::rules::Need;
use crate::subject::{Subject, is};
use crate::view::SegmentView;

const ALL: [&str; 7] = [
    "obj.missing",
    "obj.partial-set",
    "obj.size-mismatch",
    "obj.orphan",
    "obj.deleted-but-present",
    "obj.unknown-key",
    "obj.foreign-cluster",
];

/// Every rule of this group over the store's listing.
pub(crate) fn store(judge: &mut Judge<'_>, subjects: &[Subject<'_>]) {
    let Some(store) = &judge.facts.store else {
        for code in ALL {
            judge.absent_wholly(code, Need::Listing);
        }
        return;
    };
    let objects = Objects::new(&judge.facts.objects);
    unknown_keys(judge);
    if !store.complete {
        judge.absent_wholly("obj.missing", Need::WholeListing);
        judge.absent_wholly("obj.partial-set", Need::WholeListing);
    }
    for subject in subjects.iter().filter(|subject| !subject.is_gone()) {
        for segment in subject.segments() {
            let own = objects.of(segment);
            if store.complete {
                missing(judge, store, segment, &own);
            }
            if store.sizes_exact {
                size_mismatch(judge, segment, &own);
            }
        }
    }
    if !store.sizes_exact {
        let why = "the plugin of this layout transforms segments, so that sizes differ";
        judge.undecided_wholly("obj.size-mismatch", why);
    }
    unclaimed(judge, &objects, subjects);
}

/// The objects whose keys parse, by segment id.
struct Objects<'a> {
    by_segment: Vec<(&'a ParsedKey, &'a ObjectFact)>,
}

impl<'a> Objects<'a> {
    fn new(objects: &'a [ObjectFact]) -> Self {
        let mut by_segment: Vec<_> =
            objects.iter().filter_map(|object| Some((object.parsed.as_ref()?, object))).collect();
        by_segment.sort_by(|(a, left), (b, right)| {
            (a.segment_id, a.role, &left.key).cmp(&(b.segment_id, b.role, &right.key))
        });
        Self { by_segment }
    }

    /// The objects that a broker would find for the segment: the key names it in every part.
    fn of(&self, segment: SegmentView<'_>) -> Vec<(&'a ParsedKey, &'a ObjectFact)> {
        let first = self.by_segment.partition_point(|(parsed, _)| parsed.segment_id < segment.id());
        self.by_segment[first..]
            .iter()
            .take_while(|(parsed, _)| parsed.segment_id == segment.id())
            .filter(|(parsed, _)| {
                parsed.topic_id == segment.topic_id()
                    && parsed.partition == segment.partition()
                    && parsed.topic == segment.topic()
                    && (parsed.start_offset.is_none() || parsed.start_offset == segment.start_offset())
            })
            .copied()
            .collect()
    }
}

fn unknown_keys(judge: &mut Judge<'_>) {
    for object in judge.facts.objects.iter().filter(|object| object.parsed.is_none()) {
        judge
            .found("obj.unknown-key")
            .message(format!("{} is no key of this layout", object.key))
            .key(&object.key)
            .evidence(object_words(object))
            .add();
    }
}

fn object_words(object: &ObjectFact) -> Evidence {
    Evidence {
        metadata_partition: None,
        offset: None,
        time_ms: object.last_modified_ms,
        what: match object.size_bytes {
            Some(size) => format!("{}: {size} bytes", object.key),
            None => object.key.clone(),
        },
    }
}

/// `obj.missing` and `obj.partial-set`. Where the data object is gone as well, one finding names all.
fn missing(
    judge: &mut Judge<'_>,
    store: &StoreFact,
    segment: SegmentView<'_>,
    own: &[(&ParsedKey, &ObjectFact)],
) {
    let has = |role: ObjectRole| own.iter().any(|(parsed, _)| parsed.role == role);
    let gone: Vec<&str> =
        store.required.iter().filter(|role| !has(**role)).map(|role| role.as_str()).collect();
    let finished = segment.is_finished();
    if finished && !has(ObjectRole::Log) {
        let left = match own.len() {
            0 => "nothing of it is in the store".to_owned(),
            n => {
                format!("{} of it in the store, gone are {}", count(n, "object", "objects"), gone.join(", "))
            }
        };
        let draft = judge
            .found("obj.missing")
            .segment(segment)
            .message(format!("the data object of segment {} is gone; {left}", segment.id()));
        with_state(draft, segment).add();
        return;
    }
    if gone.is_empty() || own.is_empty() || !(finished || stalled(judge, segment)) {
        return;
    }
    let mut draft = judge
        .found("obj.partial-set")
        .segment(segment)
        .severity(if finished { Severity::Damage } else { Severity::Cost })
        .message(format!("of segment {} these objects are gone: {}", segment.id(), gone.join(", ")));
    draft = with_state(draft, segment);
    for (_, object) in own {
        draft = draft.key(&object.key);
    }
    draft.add();
}

/// A copy or deletion that has been under way for longer than its limit: younger ones are expected to be partial.
fn stalled(judge: &Judge<'_>, segment: SegmentView<'_>) -> bool {
    let limit = if is(segment, RemoteLogSegmentState::CopySegmentStarted) {
        judge.limits.copy_stuck_ms
    } else if is(segment, RemoteLogSegmentState::DeleteSegmentStarted) {
        judge.limits.delete_stuck_ms
    } else {
        return false;
    };
    segment
        .events()
        .next_back()
        .is_some_and(|event| judge.now_ms.saturating_sub(event.timestamp_ms()) > limit)
}

fn with_state<'j>(draft: Draft<'j>, segment: SegmentView<'_>) -> Draft<'j> {
    match segment.events().next_back() {
        Some(event) => draft.event(event),
        None => draft,
    }
}

fn size_mismatch(judge: &mut Judge<'_>, segment: SegmentView<'_>, own: &[(&ParsedKey, &ObjectFact)]) {
    let (true, Some(content)) = (segment.is_finished(), segment.content()) else { return };
    for (_, object) in own.iter().filter(|(parsed, _)| parsed.role == ObjectRole::Log) {
        let Some(size) = object.size_bytes else {
            if !judge.in_scope(segment.topic(), segment.partition()) {
                continue;
            }
            judge.undecided("obj.size-mismatch", "the object's size not known", || object.key.clone());
            continue;
        };
        if size == i64::from(content.size_in_bytes) {
            continue;
        }
        let draft = judge
            .found("obj.size-mismatch")
            .segment(segment)
            .message(format!(
                "the data object of segment {} has {size} bytes, its event says {}",
                segment.id(),
                content.size_in_bytes
            ))
            .key(&object.key)
            .evidence(object_words(object));
        with_state(draft, segment).add();
    }
}

/// Objects that no live segment claims, one finding for each segment id.
fn unclaimed(judge: &mut Judge<'_>, objects: &Objects<'_>, subjects: &[Subject<'_>]) {
    let view = judge.view;
    if objects.by_segment.is_empty() {
        return;
    }
    if view.segment_count() == 0 {
        let why = "no metadata event was read: another cluster, another prefix, or an empty topic";
        for code in ["obj.orphan", "obj.deleted-but-present", "obj.foreign-cluster"] {
            judge.undecided_wholly(code, why);
        }
        return;
    }
    let partial = judge.facts.partial_read.is_some();
    if partial {
        judge.absent_wholly("obj.orphan", Need::AllEvents);
        judge.absent_wholly("obj.foreign-cluster", Need::AllEvents);
    }
    // By id: a live segment of it, else any.
    let mut known: FxHashMap<Uuid, SegmentView<'_>> = FxHashMap::default();
    for segment in (0..view.segment_count() as u32).map(|index| view.segment_view(index)) {
        let entry = known.entry(segment.id()).or_insert(segment);
        if segment.is_live() {
            *entry = segment;
        }
    }
    let topic_ids: rustc_hash::FxHashSet<TopicId> = view.partitions().map(|of| of.topic_id()).collect();
    let by_id: FxHashMap<(TopicId, i32), &Subject<'_>> = subjects
        .iter()
        .filter(|subject| !subject.is_gone())
        .filter_map(|subject| Some(((subject.topic_id?, subject.partition), subject)))
        .collect();
    for run in objects.by_segment.chunk_by(|(a, _), (b, _)| a.segment_id == b.segment_id) {
        let parsed = run[0].0;
        let segment = known.get(&parsed.segment_id).copied();
        let (code, why) = match segment {
            Some(segment) if segment.is_live() => continue,
            Some(_) => ("obj.deleted-but-present", "its last event is DELETE_SEGMENT_FINISHED"),
            None if partial => continue,
            None if !topic_ids.contains(&parsed.topic_id) => {
                ("obj.foreign-cluster", "the metadata never named its topic id")
            }
            None => ("obj.orphan", "no event names it"),
        };
        let bytes = run.iter().filter_map(|(_, object)| object.size_bytes).fold(0, i64::saturating_add);
        let mut draft = judge
            .found(code)
            .topic(&parsed.topic, Some(parsed.topic_id))
            .partition(parsed.partition)
            .segment_id(parsed.segment_id)
            .start(parsed.start_offset)
            .message(format!(
                "{} of segment {} in the store, {bytes} bytes, and {why}",
                count(run.len(), "object", "objects"),
                parsed.segment_id
            ));
        let subject = by_id.get(&(parsed.topic_id, parsed.partition));
        if let Some(start) = parsed.start_offset.filter(|start| subject.is_some_and(|of| of.lacks(*start))) {
            draft = draft.fact(format!(
                "no segment serves offset {start}, at which it begins: it may be the only copy of what is missing there"
            ));
        }
        if let Some(segment) = segment {
            draft = with_state(draft, segment);
        }
        for (_, object) in run {
            draft = draft.key(&object.key).evidence(object_words(object));
        }
        draft.add();
    }
}

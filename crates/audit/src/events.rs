//! Rules about single records of the metadata topic.

use rustc_hash::FxHashMap;
use strandline_tier::{RemoteLogSegmentState, RemotePartitionDeleteState, Uuid};

use crate::builder::SegmentContent;
use crate::finding::{Evidence, Severity};
use crate::judge::{Judge, event_words};
use crate::placement::Placement;
use crate::rules::Need;
use crate::subject::{Existence, Subject};
use crate::view::{EventKind, EventView, OddRecord, OddValue, Outcome, SegmentView};

/// Event times may run backwards by this much before it is told.
const TIME_REGRESS_MS: i64 = 60_000;

/// Rules about the log as a whole: what belongs to no user partition.
pub(crate) fn whole(judge: &mut Judge<'_>) {
    for odd in judge.view.odd_records() {
        odd_record(judge, odd);
    }
    transactional(judge);
    placement_known(judge);
    id_mismatch_and_base_missing(judge);
}

/// Rules about the events of one user partition.
pub(crate) fn partition(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let Some(view) = subject.view else { return };
    for event in view.events().filter(|event| event.is_refused()) {
        refused(judge, event);
    }
    // Nobody holds a partition of a topic that is gone: what only its holders would meet is met by none.
    if subject.existence == Existence::Gone {
        return;
    }
    fatal(judge, subject);
    partition_delete(judge, subject);
    misplaced(judge, subject);
    time_regress(judge, subject);
    for segment in view.segments().filter(|segment| !segment.is_plain()) {
        transitions(judge, segment);
        bases(judge, segment);
        custom_metadata_lost(judge, segment);
        repeats(judge, segment);
    }
}

/// How a value begins: as text where it is text, which says whose it is, else in hex.
fn beginning(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 32;
    let start = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let more = if bytes.len() > SHOWN_BYTES { "…" } else { "" };
    match std::str::from_utf8(start) {
        Ok(text) if !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            format!("the value is text: {text}{more}")
        }
        _ => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("value begins {hex}")
        }
    }
}

fn odd_record(judge: &mut Judge<'_>, odd: &OddRecord) {
    let evidence = |what: String| Evidence {
        metadata_partition: odd.position.metadata_partition,
        offset: odd.position.offset,
        time_ms: odd.position.timestamp_ms,
        what,
    };
    let which = match (odd.position.metadata_partition, odd.position.offset) {
        (Some(partition), Some(offset)) => format!("the record at {partition}:{offset}"),
        _ => "a record".to_owned(),
    };
    match &odd.value {
        OddValue::Undecodable { bytes, error, unknown_api } => {
            let code = if *unknown_api { "event.unknown-api" } else { "event.undecodable" };
            judge
                .found(code)
                .message(format!("{which} is no event that is known: {error}"))
                .evidence(evidence(beginning(bytes)))
                .add();
        }
        OddValue::NullValue => judge
            .found("event.poison")
            .message(format!("{which} has no value"))
            .evidence(evidence("null value".to_owned()))
            .add(),
        OddValue::Snapshot { segment_id } => judge
            .found("event.poison")
            .segment_id(*segment_id)
            .message(format!("{which} is a snapshot (api key 3), which has no place in the topic"))
            .evidence(evidence("segment metadata snapshot".to_owned()))
            .add(),
        OddValue::Control => {}
    }
}

fn transactional(judge: &mut Judge<'_>) {
    let ends = judge.facts.metadata_topic.as_ref().and_then(|topic| topic.end_offsets.as_ref());
    for stats in judge.view.metadata_partitions() {
        let Some(first) = stats.first_transactional else { continue };
        let end = stats
            .metadata_partition
            .and_then(|partition| usize::try_from(partition).ok())
            .and_then(|partition| ends?.get(partition).copied().flatten());
        let at_end = stats.ends_with_control
            && match (end, stats.last_offset) {
                (Some(end), Some(last)) => last.saturating_add(1) >= end,
                _ => true,
            };
        let partition = stats.metadata_partition.map_or("?".to_owned(), |partition| partition.to_string());
        let message = match at_end {
            true => format!("metadata partition {partition} ends with a control record"),
            false => format!("metadata partition {partition} has transactional or control records"),
        };
        judge
            .found("event.transactional")
            .severity(if at_end { Severity::Risk } else { Severity::Info })
            .message(message)
            .evidence(Evidence {
                metadata_partition: first.metadata_partition,
                offset: first.offset,
                time_ms: first.timestamp_ms,
                what: "the first of them".to_owned(),
            })
            .fact(format!(
                "{} control and {} transactional records",
                stats.control_records, stats.transactional_records
            ))
            .add();
    }
}

/// `event.misplaced` needs the count, the places, and all that was written.
fn placement_known(judge: &mut Judge<'_>) {
    let code = "event.misplaced";
    match judge.view.placement() {
        Placement::Judged { .. } | Placement::OtherCount { .. } => judge.checked(code),
        Placement::Unknown => {
            let count = judge.facts.metadata_topic.as_ref().and_then(|topic| topic.partitions);
            match count {
                None => judge.absent_wholly(code, Need::MetadataPartitionCount),
                Some(_) if judge.view.event_count() == 0 => judge.checked(code),
                Some(_) => judge.undecided_wholly(code, "the events' metadata partitions not known"),
            }
        }
    }
    if judge.facts.partial_read.is_some() {
        judge.absent_wholly(code, Need::AllEvents);
    }
}

/// Updates of segments that were never introduced under their partition.
fn id_mismatch_and_base_missing(judge: &mut Judge<'_>) {
    let view = judge.view;
    let baseless: Vec<SegmentView<'_>> = (0..view.segment_count())
        .map(|index| view.segment_view(index as u32))
        .filter(|segment| segment.content().is_none())
        .collect();
    if baseless.is_empty() {
        return;
    }
    let introduced: FxHashMap<Uuid, u32> = (0..view.segment_count() as u32)
        .map(|index| view.segment_view(index))
        .filter(|segment| segment.content().is_some())
        .map(|segment| (segment.id(), segment.index))
        .collect();
    for segment in baseless {
        if judge.existence(segment.topic(), segment.topic_id()) == Existence::Gone {
            continue;
        }
        match introduced.get(&segment.id()).map(|index| view.segment_view(*index)) {
            Some(base) => {
                let draft = judge.found("event.id-mismatch").segment(segment).message(format!(
                    "updates of segment {} name {}:{} ({}), its introduction {}:{} ({})",
                    segment.id(),
                    segment.topic(),
                    segment.partition(),
                    segment.topic_id(),
                    base.topic(),
                    base.partition(),
                    base.topic_id(),
                ));
                draft.events(base.events().take(1).chain(segment.events())).add();
            }
            None => {
                let draft = judge.found("event.base-missing").segment(segment).message(format!(
                    "segment {} has updates and was never introduced: its offsets are not known",
                    segment.id()
                ));
                draft.events(segment.events()).add();
            }
        }
    }
}

/// Records that the checks refuse: they end the reading of every broker, whoever holds the partition.
fn refused(judge: &mut Judge<'_>, event: EventView<'_>) {
    let mut why = Vec::new();
    if event.state_name().is_none() {
        why.push(format!("no state has the number {}", event.state_id()));
    }
    if let (Some(content), Some(segment)) = (event.content(), event.segment()) {
        if content.start_offset < 0 || content.end_offset < content.start_offset {
            why.push(format!("it spans offsets {} to {}", content.start_offset, content.end_offset));
            judge
                .found("seg.bad-range")
                .segment(segment)
                .offsets(content.start_offset, content.end_offset)
                .message(format!(
                    "segment {} spans offsets {} to {}",
                    segment.id(),
                    content.start_offset,
                    content.end_offset
                ))
                .event(event)
                .add();
        }
        if content.epochs.is_empty() {
            why.push("it names no leader epochs".to_owned());
            judge
                .found("seg.epochs-empty")
                .segment(segment)
                .message(format!("segment {} names no leader epochs", segment.id()))
                .event(event)
                .add();
        }
    }
    let message = format!("no reader accepts this event: {}", why.join(", "));
    poison(judge, event, message);
}

fn poison(judge: &mut Judge<'_>, event: EventView<'_>, message: String) {
    let user_partition = event.user_partition();
    let draft = judge.found("event.poison").message(message).event(event);
    match event.segment() {
        Some(segment) => draft.segment(segment).add(),
        None => draft
            .topic(user_partition.topic(), Some(user_partition.topic_id()))
            .partition(user_partition.partition())
            .add(),
    }
}

/// Events that end the reading of the brokers that hold the partition.
fn fatal(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let Some(view) = subject.view else { return };
    for event in view.events().filter(|event| event.outcome() == Outcome::Fatal) {
        let message = match event.kind() {
            EventKind::SegmentMetadata => {
                format!("a segment is introduced as {}", event_words(event))
            }
            _ => "an update to COPY_SEGMENT_STARTED of a segment in that state".to_owned(),
        };
        poison(judge, event, message);
    }
}

fn partition_delete(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let Some(view) = subject.view else { return };
    let finished = RemotePartitionDeleteState::DeletePartitionFinished.id();
    let mut events = view.events().filter(|event| event.outcome() != Outcome::Misplaced);
    let Some(event) = events
        .find(|event| event.kind() == EventKind::PartitionDeleteMetadata && event.state_id() == finished)
    else {
        return;
    };
    let message = match events.next() {
        Some(next) => format!(
            "DELETE_PARTITION_FINISHED is followed by {}{}",
            event_words(next),
            next.offset().map_or(String::new(), |offset| format!(" at offset {offset}"))
        ),
        None if subject.existence == Existence::Present => {
            "DELETE_PARTITION_FINISHED of a topic id that the cluster still has".to_owned()
        }
        None => return,
    };
    poison(judge, event, message);
}

/// One finding for each metadata partition that holds events of the user partition by mistake.
fn misplaced(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let (Some(view), Some(home)) = (subject.view, subject.view.and_then(|view| view.metadata_partition()))
    else {
        return;
    };
    if !matches!(judge.view.placement(), Placement::Judged { .. }) || judge.count_differs() {
        return;
    }
    let mut strays: Vec<EventView<'_>> =
        view.events().filter(|event| event.outcome() == Outcome::Misplaced).collect();
    strays.sort_by_key(|event| event.metadata_partition());
    for run in strays.chunk_by(|a, b| a.metadata_partition() == b.metadata_partition()) {
        let lies = run[0].metadata_partition().unwrap_or_default();
        let draft = judge.found("event.misplaced").of(subject).message(format!(
            "{} of {} in metadata partition {lies} belong into {home}",
            count(run.len(), "event", "events"),
            subject.name(),
        ));
        draft.events(run.iter().copied()).add();
    }
}

fn time_regress(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let Some(view) = subject.view else { return };
    let mut before: Option<EventView<'_>> = None;
    let mut worst: Option<(i64, EventView<'_>, EventView<'_>)> = None;
    let mut times = 0;
    for event in view.events().filter(|event| event.outcome() != Outcome::Misplaced) {
        if let Some(before) = before {
            let by = before.timestamp_ms().saturating_sub(event.timestamp_ms());
            if by > TIME_REGRESS_MS {
                times += 1;
                if worst.is_none_or(|(worst, ..)| by > worst) {
                    worst = Some((by, before, event));
                }
            }
        }
        before = Some(event);
    }
    let Some((by, before, event)) = worst else { return };
    judge
        .found("event.time-regress")
        .of(subject)
        .message(format!(
            "event times run backwards {}, at most by {}",
            count(times, "time", "times"),
            crate::judge::span(by)
        ))
        .event(before)
        .event(event)
        .add();
}

fn transitions(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let introduced = segment.content().is_some();
    let dropped = |event: &EventView<'_>| {
        event.kind() == EventKind::SegmentMetadataUpdate
            && (event.outcome() == Outcome::InvalidTransition
                || event.outcome() == Outcome::UnknownSegment && introduced)
    };
    let mut dropped = segment.events().filter(dropped).peekable();
    let Some(first) = dropped.peek().copied() else { return };
    let before = state_before(segment, first);
    let draft = judge.found("event.invalid-transition").segment(segment).message(format!(
        "segment {} cannot move from {} to {}",
        segment.id(),
        before.map_or("not introduced", RemoteLogSegmentState::name),
        first.state_name().unwrap_or("?"),
    ));
    draft.events(dropped).add();
}

/// The state that the segment was in when the event came.
fn state_before(segment: SegmentView<'_>, event: EventView<'_>) -> Option<RemoteLogSegmentState> {
    segment
        .events()
        .take_while(|before| !before.is(&event))
        .filter(|before| matches!(before.outcome(), Outcome::Applied | Outcome::Repeated))
        .last()
        .and_then(|before| RemoteLogSegmentState::from_id(before.state_id()))
}

/// Key 0 more than once: with other content, or after the segment was gone.
fn bases(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let mut accepted: Option<EventView<'_>> = None;
    let mut gone = false;
    for event in segment.events() {
        let usable = !matches!(event.outcome(), Outcome::Refused | Outcome::Fatal | Outcome::Misplaced);
        if event.kind() == EventKind::SegmentMetadata && usable {
            if let Some(first) = accepted
                && (gone || !same_content(first, event))
            {
                let how = if gone { "after it was deleted" } else { "with other content" };
                judge
                    .found("event.duplicate-base")
                    .segment(segment)
                    .message(format!("segment {} is introduced again {how}", segment.id()))
                    .event_as(first, content_words(first))
                    .event_as(event, content_words(event))
                    .add();
            }
            accepted = accepted.or(Some(event));
            gone = false;
        }
        gone = gone
            || event.state_id() == RemoteLogSegmentState::DeleteSegmentFinished.id()
                && event.outcome() == Outcome::Applied;
    }
}

/// Who wrote it and when may differ: a repeated record is no other content.
fn same_content(a: EventView<'_>, b: EventView<'_>) -> bool {
    let plain = |event: EventView<'_>| event.content().map(SegmentContent::without_custom);
    plain(a) == plain(b) && a.custom_metadata() == b.custom_metadata()
}

fn content_words(event: EventView<'_>) -> String {
    match event.content() {
        Some(content) => format!(
            "{}: offsets {} to {}, {} bytes",
            event_words(event),
            content.start_offset,
            content.end_offset,
            content.size_in_bytes
        ),
        None => event_words(event),
    }
}

fn custom_metadata_lost(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let finished = RemoteLogSegmentState::CopySegmentFinished.id();
    let mut had: Option<EventView<'_>> = None;
    for event in segment.events() {
        if !matches!(event.outcome(), Outcome::Applied | Outcome::Repeated) {
            continue;
        }
        if event.state_id() == finished {
            had = event.custom_metadata().is_some().then_some(event);
        }
        if let Some(copied) = had
            && event.state_id() > finished
            && event.custom_metadata().is_none()
        {
            judge
                .found("event.custom-metadata-lost")
                .segment(segment)
                .message(format!(
                    "the deletion of segment {} drops the custom metadata that its copy had",
                    segment.id()
                ))
                .event(copied)
                .event(event)
                .add();
            return;
        }
    }
}

fn repeats(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let mut first_base: Option<EventView<'_>> = None;
    let mut repeats: Vec<EventView<'_>> = Vec::new();
    for event in segment.events() {
        let base = event.kind() == EventKind::SegmentMetadata;
        let same = || first_base.is_some_and(|first| same_content(first, event));
        match event.outcome() {
            Outcome::Repeated if !base || same() => repeats.push(event),
            Outcome::AlreadyKnown if same() => repeats.push(event),
            _ => {}
        }
        if base && first_base.is_none() {
            first_base = Some(event);
        }
    }
    if repeats.is_empty() {
        return;
    }
    let draft = judge.found("event.repeat").segment(segment).message(format!(
        "{} of segment {} say what was said before",
        count(repeats.len(), "event", "events"),
        segment.id()
    ));
    draft.events(repeats).add();
}

/// `1 event`, `2 events`.
pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

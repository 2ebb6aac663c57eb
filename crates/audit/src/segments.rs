//! Rules about one segment, and about segments of one partition against each other.

use strandline_tier::RemoteLogSegmentState;

use crate::finding::time_text;
use crate::judge::{Judge, span};
use crate::readable::Intervals;
use crate::rules::Need;
use crate::subject::{Subject, is};
use crate::view::{EventKind, EventView, Outcome, PartitionView, SegmentView};

/// Every rule of this group over one user partition.
pub(crate) fn partition(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let Some(view) = subject.view else { return };
    for segment in view.segments() {
        delete_stuck(judge, segment);
    }
    if subject.is_gone() {
        return;
    }
    let ever_finished = ever_finished(view);
    let readable = readable_segments(view);
    for segment in view.segments().filter(SegmentView::is_live) {
        delete_retrying(judge, segment);
        copy_stuck(judge, subject, segment, &ever_finished);
        shape(judge, segment);
        timestamp_future(judge, segment);
        if readable.binary_search(&segment.index).is_ok() {
            zero_size(judge, segment);
        }
        shadowed(judge, view, segment);
        not_in_lineage(judge, subject, segment);
    }
    if subject.lineage.is_none() {
        judge.absent("seg.not-in-lineage", Need::LeaderEpochs, || subject.name());
    } else {
        judge.checked("seg.not-in-lineage");
    }
    overlaps(judge, subject);
}

/// What finished copies ever held, those deleted since included.
fn ever_finished(view: PartitionView<'_>) -> Intervals {
    let ever = view.segments().filter(SegmentView::was_finished);
    Intervals::new(ever.filter_map(|of| Some((of.start_offset()?, of.end_offset()?))).collect())
}

fn readable_segments(view: PartitionView<'_>) -> Vec<u32> {
    let mut indexes: Vec<u32> = view.readable().ranges().iter().map(|range| range.segment).collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

fn last_event(segment: SegmentView<'_>) -> Option<EventView<'_>> {
    segment.events().rfind(|event| event.outcome() != Outcome::Misplaced)
}

fn copy_stuck(
    judge: &mut Judge<'_>,
    subject: &Subject<'_>,
    segment: SegmentView<'_>,
    ever_finished: &Intervals,
) {
    if !is(segment, RemoteLogSegmentState::CopySegmentStarted) || subject.awaits_cleaner(segment) {
        return;
    }
    let (Some(event), Some(content)) = (last_event(segment), segment.content()) else { return };
    let age = judge.now_ms.saturating_sub(event.timestamp_ms());
    if age <= judge.limits.copy_stuck_ms {
        return;
    }
    let covered = ever_finished.hold(content.start_offset, content.end_offset);
    let (code, message) = match covered {
        true => ("seg.copy-abandoned", "replaced by other copies of its offsets"),
        false => ("seg.copy-stuck", "neither finished nor replaced"),
    };
    judge
        .found(code)
        .segment(segment)
        .message(format!("the copy of segment {} was started {} ago and {message}", segment.id(), span(age)))
        .event(event)
        .add();
}

fn deletions(segment: SegmentView<'_>) -> impl Iterator<Item = EventView<'_>> + Clone {
    let started = RemoteLogSegmentState::DeleteSegmentStarted.id();
    segment.events().filter(move |event| {
        event.kind() == EventKind::SegmentMetadataUpdate
            && event.state_id() == started
            && matches!(event.outcome(), Outcome::Applied | Outcome::Repeated)
    })
}

fn delete_stuck(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    if segment.state() != Some(RemoteLogSegmentState::DeleteSegmentStarted) || !segment.is_live() {
        return;
    }
    let Some(first) = deletions(segment).next() else { return };
    let age = judge.now_ms.saturating_sub(first.timestamp_ms());
    if age <= judge.limits.delete_stuck_ms {
        return;
    }
    let draft = judge.found("seg.delete-stuck").segment(segment).message(format!(
        "the deletion of segment {} was started {} ago and is not finished",
        segment.id(),
        span(age)
    ));
    draft.events(deletions(segment)).add();
}

fn delete_retrying(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let times = deletions(segment).count();
    if times < 2 {
        return;
    }
    let draft = judge
        .found("seg.delete-retrying")
        .segment(segment)
        .message(format!("the deletion of segment {} was started {times} times", segment.id()));
    draft.events(deletions(segment)).add();
}

/// Where the leader epochs lie in the segment. What the checks refuse has its own rules.
fn shape(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let Some(content) = segment.content().filter(|content| !content.is_refused()) else { return };
    let base = || segment.events().find(|event| event.content().is_some_and(|of| std::ptr::eq(of, content)));
    if let Some([low, high]) =
        content.epochs.windows(2).find(|pair| pair[1].start_offset < pair[0].start_offset)
    {
        judge
            .found("seg.epochs-not-monotonic")
            .segment(segment)
            .message(format!(
                "epoch {} of segment {} starts at {}, below epoch {} at {}",
                high.epoch,
                segment.id(),
                high.start_offset,
                low.epoch,
                low.start_offset
            ))
            .events(base())
            .add();
    }
    let outside: [(&str, &str, bool); 2] = [
        ("seg.epochs-outside-range", "below the segment's start", true),
        ("seg.epoch-overrun", "beyond the segment's end", false),
    ];
    for (code, words, below) in outside {
        let beyond = content.end_offset.saturating_add(1);
        let lies = |start: i64| if below { start < content.start_offset } else { start > beyond };
        let Some(entry) = content.epochs.iter().find(|entry| lies(entry.start_offset)) else { continue };
        judge
            .found(code)
            .segment(segment)
            .message(format!(
                "epoch {} of segment {} starts at {}, {words} {}",
                entry.epoch,
                segment.id(),
                entry.start_offset,
                if below { content.start_offset } else { content.end_offset }
            ))
            .events(base())
            .add();
    }
}

fn zero_size(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let Some(content) = segment.content() else { return };
    if content.size_in_bytes > 0 {
        return;
    }
    let draft = judge.found("seg.zero-size").segment(segment).message(format!(
        "segment {} can be read and has {} bytes",
        segment.id(),
        content.size_in_bytes
    ));
    draft.events(segment.events().take(1)).add();
}

fn shadowed(judge: &mut Judge<'_>, view: PartitionView<'_>, segment: SegmentView<'_>) {
    if !segment.is_finished() || view.readable().listed.contains(&segment.index) {
        return;
    }
    let draft = judge
        .found("seg.shadowed")
        .segment(segment)
        .message(format!("no look-up and no list of an epoch returns segment {}", segment.id()));
    draft.events(last_event(segment)).add();
}

fn not_in_lineage(judge: &mut Judge<'_>, subject: &Subject<'_>, segment: SegmentView<'_>) {
    let Some(lineage) = &subject.lineage else { return };
    // A leader forgets its epochs below the log start: what is of those alone and ends there has only aged.
    let older = |epoch: i32| lineage.earliest().is_some_and(|earliest| epoch < earliest);
    let aged = subject.awaits_cleaner(segment)
        && segment.content().is_some_and(|content| content.epochs.iter().all(|entry| older(entry.epoch)));
    if !segment.is_finished() || subject.in_lineage(segment) || aged {
        return;
    }
    let epochs: Vec<String> = segment
        .content()
        .into_iter()
        .flat_map(|content| content.epochs.iter().take(10).map(|entry| entry.epoch.to_string()))
        .collect();
    let draft = judge.found("seg.not-in-lineage").segment(segment).message(format!(
        "segment {} belongs to leader epochs ({}) that the leader does not have",
        segment.id(),
        epochs.join(", ")
    ));
    draft.events(last_event(segment)).add();
}

fn timestamp_future(judge: &mut Judge<'_>, segment: SegmentView<'_>) {
    let Some(content) = segment.content() else { return };
    let ahead = content.max_timestamp_ms.saturating_sub(judge.now_ms);
    if ahead <= judge.limits.clock_skew_ms {
        return;
    }
    let draft = judge.found("seg.timestamp-future").segment(segment).message(format!(
        "the newest record of segment {} is of {}, {} from now",
        segment.id(),
        time_text(content.max_timestamp_ms),
        span(ahead)
    ));
    draft.events(segment.events().take(1)).add();
}

/// One epoch's part of a finished segment.
struct Part {
    epoch: i32,
    start: i64,
    end: i64,
    /// The segment's place among those compared.
    of: usize,
}

/// `seg.duplicate`, `seg.contained`, `seg.overlap`: finished segments against each other, epoch by epoch.
///
/// Each part is compared with the one before it that reaches farthest, so the work is linear after sorting, and
/// every segment that shares an offset with another is named at least once.
fn overlaps(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let segments: Vec<SegmentView<'_>> =
        subject.lineage_segments().filter(|segment| !subject.awaits_cleaner(*segment)).collect();
    let mut parts: Vec<Part> = Vec::with_capacity(segments.len());
    for (of, segment) in segments.iter().enumerate() {
        let ranges = segment.content().into_iter().flat_map(|content| content.epoch_ranges());
        parts.extend(ranges.map(|(epoch, start, end)| Part { epoch, start, end, of }));
    }
    parts.sort_unstable_by_key(|part| (part.epoch, part.start, std::cmp::Reverse(part.end), part.of));
    let mut lens = vec![0_i128; segments.len()];
    for part in &parts {
        lens[part.of] += offsets(part.start, part.end);
    }
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for parts in parts.chunk_by(|a, b| a.epoch == b.epoch) {
        let mut farthest = &parts[0];
        for part in &parts[1..] {
            if part.start <= farthest.end && part.of != farthest.of {
                pairs.push((farthest.of.min(part.of), farthest.of.max(part.of)));
            }
            if part.end > farthest.end {
                farthest = part;
            }
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    for (a, b) in pairs {
        overlap(judge, (segments[a], lens[a]), (segments[b], lens[b]));
    }
}

/// How many offsets lie from `start` to `end`, both included.
fn offsets(start: i64, end: i64) -> i128 {
    i128::from(end) - i128::from(start) + 1
}

fn overlap(judge: &mut Judge<'_>, a: (SegmentView<'_>, i128), b: (SegmentView<'_>, i128)) {
    let ((a, len_a), (b, len_b)) = (a, b);
    let (Some(of_a), Some(of_b)) = (a.content(), b.content()) else { return };
    // Whichever names fewer epochs is walked, the other looked up.
    let (few, many) = if of_a.epochs.len() <= of_b.epochs.len() { (of_a, of_b) } else { (of_b, of_a) };
    let (mut shared, mut first, mut last) = (0_i128, i64::MAX, i64::MIN);
    for (epoch, start, end) in few.epoch_ranges() {
        let Some((from, to)) = many.epoch_range(epoch) else { continue };
        let (from, to) = (start.max(from), end.min(to));
        if from <= to {
            shared += offsets(from, to);
            (first, last) = (first.min(from), last.max(to));
        }
    }
    if shared == 0 {
        return;
    }
    let (code, segment, other, how) = match (shared == len_a, shared == len_b) {
        (true, true) => ("seg.duplicate", b, a, "holds the same offsets as"),
        (true, false) => ("seg.contained", a, b, "lies inside"),
        (false, true) => ("seg.contained", b, a, "lies inside"),
        (false, false) => ("seg.overlap", b, a, "shares offsets with"),
    };
    let mut draft = judge.found(code).segment(segment).offsets(first, last).message(format!(
        "segment {} {how} segment {}",
        segment.id(),
        other.id()
    ));
    for segment in [segment, other] {
        if let Some(event) = last_event(segment) {
            let words = crate::judge::event_words(event);
            draft = draft.event_as(event, format!("{}: {words}", segment.id()));
        }
    }
    draft.add();
}

//! Rules about user partitions and topics.

use std::collections::{BTreeMap, BTreeSet};

use strandline_tier::{RemoteLogSegmentState, RemotePartitionDeleteState, TopicId};

use crate::facts::LocalSegmentsFact;
use crate::finding::{Evidence, Severity, time_text};
use crate::judge::{Draft, Judge, span};
use crate::rules::Need;
use crate::subject::{Existence, Subject, held_ranges};
use crate::view::{EventView, PartitionView, SegmentView};

/// Every rule of this group over one user partition.
pub(crate) fn partition(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    delete_stuck(judge, subject);
    if subject.is_gone() {
        return;
    }
    gaps(judge, subject);
    holes(judge, subject);
    gap_to_local(judge, subject);
    start_mismatch(judge, subject);
    diverged_tail(judge, subject);
    retention(judge, subject);
    uploads(judge, subject);
    replicas(judge, subject);
}

fn delete_stuck(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let Some(event) = subject.view.and_then(|view| view.last_partition_delete()) else { return };
    let age = judge.now_ms.saturating_sub(event.timestamp_ms());
    if event.state_id() == RemotePartitionDeleteState::DeletePartitionFinished.id()
        || age <= judge.limits.delete_stuck_ms
    {
        return;
    }
    judge
        .found("part.delete-stuck")
        .of(subject)
        .message(format!(
            "the deletion of {} was started {} ago and is not finished",
            subject.name(),
            span(age)
        ))
        .event(event)
        .add();
}

/// Where gap and hole rules begin to look: what lies below is nobody's to read.
fn baseline(subject: &Subject<'_>) -> Option<i64> {
    subject.proven_log_start().max(subject.readable.first())
}

/// A range cut at the leader's local start: what lies below is in the tier or nowhere.
fn cut_at_local(subject: &Subject<'_>, start: i64, end: i64) -> Vec<(i64, i64, Severity)> {
    let log_end = subject.log.and_then(|log| log.log_end_offset).unwrap_or(i64::MAX);
    match subject.local_start() {
        Some(local) if local <= end && end < log_end => {
            let mut parts = Vec::with_capacity(2);
            if start < local {
                parts.push((start, local - 1, Severity::Damage));
            }
            parts.push((start.max(local), end, Severity::Risk));
            parts
        }
        _ => vec![(start, end, Severity::Damage)],
    }
}

fn log_start_words(subject: &Subject<'_>) -> Evidence {
    Evidence::fact(match subject.log_start() {
        Some(start) => format!("the log starts at {start}"),
        None => "the log start offset is not known; looked from the first readable offset".to_owned(),
    })
}

fn local_words(subject: &Subject<'_>, severity: Severity) -> String {
    match (severity, subject.local_start()) {
        (Severity::Risk, Some(local)) => {
            format!("the leader's local log, which starts at {local}, still holds them")
        }
        (_, Some(local)) => format!("the leader's local log starts at {local}"),
        (_, None) => {
            "the leader's local start offset is not known: its local log may still hold them".to_owned()
        }
    }
}

/// Offsets between two readable segments that no finished segment of the lineage holds.
fn gaps(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let (Some(view), Some(from)) = (subject.view, baseline(subject)) else { return };
    let Some(to) = subject.readable.last() else { return };
    let ranges = neighbours(view);
    for (start, end) in subject.readable.missing(from, to) {
        for (start, end) in subject.held.missing(start, end) {
            for (start, end, severity) in cut_at_local(subject, start, end) {
                let mut draft = judge
                    .found("part.gap")
                    .of(subject)
                    .severity(severity)
                    .offsets(start, end)
                    .message(format!(
                        "offsets {start} to {end} of {} are missing between two segments",
                        subject.name()
                    ))
                    .fact(local_words(subject, severity))
                    .evidence(log_start_words(subject));
                for segment in ranges.around(view, start, end) {
                    draft = neighbour(draft, segment);
                }
                draft.add();
            }
        }
    }
}

fn neighbour<'j>(draft: Draft<'j>, segment: SegmentView<'_>) -> Draft<'j> {
    let (Some(start), Some(end)) = (segment.start_offset(), segment.end_offset()) else { return draft };
    let what = format!("neighbour {}: offsets {start} to {end}", segment.id());
    match segment.events().rfind(EventView::finishes_copy) {
        Some(event) => draft.event_as(event, what),
        None => draft.fact(what),
    }
}

/// Readable segments by their offsets, to name a gap's neighbours.
struct Neighbours {
    by_end: Vec<(i64, u32)>,
    by_start: Vec<(i64, u32)>,
}

fn neighbours(view: PartitionView<'_>) -> Neighbours {
    let ranges = view.readable().ranges();
    let mut by_end: Vec<(i64, u32)> = ranges.iter().map(|range| (range.end_offset, range.segment)).collect();
    let mut by_start: Vec<(i64, u32)> =
        ranges.iter().map(|range| (range.start_offset, range.segment)).collect();
    by_end.sort_unstable();
    by_start.sort_unstable();
    Neighbours { by_end, by_start }
}

impl Neighbours {
    fn around<'a>(
        &self,
        view: PartitionView<'a>,
        start: i64,
        end: i64,
    ) -> impl Iterator<Item = SegmentView<'a>> {
        let below = self.by_end.partition_point(|(last, _)| *last < start).checked_sub(1);
        let above = self.by_start.partition_point(|(first, _)| *first <= end);
        let below = below.map(|at| self.by_end[at].1);
        let above = self.by_start.get(above).map(|(_, segment)| *segment);
        below.into_iter().chain(above).map(move |index| view.view.segment_view(index))
    }
}

/// Offsets that a finished segment of the lineage holds and no look-up returns.
fn holes(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let (Some(view), Some(from)) = (subject.view, baseline(subject)) else { return };
    let missing: Vec<(i64, i64)> = subject
        .held
        .as_slice()
        .iter()
        .flat_map(|(start, end)| subject.readable.missing((*start).max(from), *end))
        .collect();
    if missing.is_empty() {
        return;
    }
    let mut parts: Vec<(i64, i64, SegmentView<'_>)> = view
        .segments()
        .filter(SegmentView::is_finished)
        .flat_map(|segment| {
            held_ranges(segment, subject.lineage.as_ref()).map(move |(start, end)| (start, end, segment))
        })
        .collect();
    parts.sort_by_key(|(start, end, _)| (*start, *end));
    // Of the segments that hold an offset the one that reaches farthest is named, so each part is seen once.
    let mut parts = parts.into_iter().peekable();
    let mut holder: Option<(i64, SegmentView<'_>)> = None;
    for (start, end) in missing {
        let mut next = start;
        loop {
            while let Some((_, last, segment)) = parts.next_if(|(first, ..)| *first <= next) {
                if holder.is_none_or(|(farthest, _)| last > farthest) {
                    holder = Some((last, segment));
                }
            }
            let Some((last, segment)) = holder.filter(|(last, _)| *last >= next) else { break };
            let until = last.min(end);
            hole(judge, subject, segment, next, until);
            if until == end {
                break;
            }
            next = until + 1;
        }
    }
}

fn hole(judge: &mut Judge<'_>, subject: &Subject<'_>, segment: SegmentView<'_>, start: i64, end: i64) {
    for (start, end, severity) in cut_at_local(subject, start, end) {
        let draft = judge
            .found("part.hole-in-epoch")
            .segment(segment)
            .severity(severity)
            .offsets(start, end)
            .message(format!(
                "offsets {start} to {end} of {} are in segment {} and no look-up returns it",
                subject.name(),
                segment.id()
            ));
        draft
            .events(segment.events().rfind(EventView::finishes_copy))
            .fact(local_words(subject, severity))
            .evidence(log_start_words(subject))
            .add();
    }
}

/// Offsets above the tier's end and below the local start.
fn gap_to_local(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let code = "part.gap-to-local";
    let (log_start, local_start) = (subject.log_start(), subject.local_start());
    if log_start.is_none() {
        judge.absent(code, Need::LogStart, || subject.name());
    }
    if local_start.is_none() {
        judge.absent(code, Need::LocalStart, || subject.name());
    }
    let (Some(log_start), Some(local_start)) = (log_start, local_start) else { return };
    judge.checked(code);
    let tier_end = subject.held.last();
    let from = tier_end.map_or(log_start, |end| end.saturating_add(1).max(log_start));
    if from >= local_start {
        return;
    }
    let until = local_start - 1;
    judge
        .found(code)
        .of(subject)
        .offsets(from, until)
        .message(format!(
            "offsets {from} to {until} of {} are neither in the tier nor in the leader's local log",
            subject.name()
        ))
        .fact(format!("the log starts at {log_start}, the leader's local log at {local_start}"))
        .fact(match tier_end {
            Some(end) => format!("the tier ends at {end}"),
            None => "the tier holds nothing of the leader's lineage".to_owned(),
        })
        .add();
}

fn start_mismatch(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let code = "part.start-mismatch";
    let Some(log_start) = subject.log_start() else {
        judge.absent(code, Need::LogStart, || subject.name());
        return;
    };
    judge.checked(code);
    let Some(first) = subject.readable.first().filter(|first| log_start < *first) else { return };
    if is_from_file(subject) && retired_up_to(subject, log_start) >= first {
        return;
    }
    judge
        .found(code)
        .of(subject)
        .offsets(log_start, first - 1)
        .message(format!(
            "the log of {} starts at {log_start}, the first offset that can be read from the tier is {first}",
            subject.name()
        ))
        .fact_if(subject.log.is_some_and(|log| log.log_start_source.is_some()), || {
            use crate::facts::LogStartSource as Source;
            match subject.log.and_then(|log| log.log_start_source) {
                Some(Source::LogStartOffsetCheckpoint) => {
                    "the log start is of log-start-offset-checkpoint, which is up to a minute old".to_owned()
                }
                Some(Source::LeaderEpochCheckpoint) => {
                    "the log start is the first entry of leader-epoch-checkpoint".to_owned()
                }
                Some(Source::ListOffsets) | None => "the log start is the leader's answer".to_owned(),
            }
        })
        .add();
}

/// True where the log start was read from a file, which a broker writes some time after it has moved its log start.
fn is_from_file(subject: &Subject<'_>) -> bool {
    use crate::facts::LogStartSource as Source;
    matches!(
        subject.log.and_then(|log| log.log_start_source),
        Some(Source::LogStartOffsetCheckpoint | Source::LeaderEpochCheckpoint)
    )
}

/// The first offset at or above `from` that no segment held whose deletion has begun. A leader moves its log start
/// before it deletes, so such a segment proves that the log starts above it, whatever a file still says.
fn retired_up_to(subject: &Subject<'_>, from: i64) -> i64 {
    use RemoteLogSegmentState::{CopySegmentFinished, DeleteSegmentFinished, DeleteSegmentStarted};
    let mut retired: Vec<(i64, i64)> = subject
        .segments()
        .filter(|segment| matches!(segment.state(), Some(DeleteSegmentStarted | DeleteSegmentFinished)))
        .filter(|segment| segment.events().any(|event| event.state_id() == CopySegmentFinished.id()))
        .filter_map(|segment| Some((segment.start_offset()?, segment.end_offset()?)))
        .collect();
    retired.sort_unstable();
    let mut next = from;
    for (start, end) in retired {
        if start <= next {
            next = next.max(end.saturating_add(1));
        }
    }
    next
}

/// Epochs of which more was copied than the leader has.
fn diverged_tail(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let code = "part.diverged-tail";
    let Some(view) = subject.view else { return };
    let Some(lineage) = &subject.lineage else {
        judge.absent(code, Need::LeaderEpochs, || subject.name());
        return;
    };
    judge.checked(code);
    for leader in lineage.epochs() {
        let (Some(end), Some(highest)) = (leader.end, view.readable().highest_offset(leader.epoch)) else {
            continue;
        };
        let below = subject.log_start().is_some_and(|log_start| highest < log_start);
        if highest <= end || below {
            continue;
        }
        let mut draft =
            judge.found(code).of(subject).offsets(end.saturating_add(1), highest).message(format!(
                "epoch {} of {} was copied up to offset {highest}, the leader's ends at {end}",
                leader.epoch,
                subject.name()
            ));
        let copied = view.segments().filter(|segment| {
            segment.content().is_some_and(|content| {
                content.epoch_ranges().any(|(epoch, _, last)| epoch == leader.epoch && last == highest)
            })
        });
        for segment in copied.take(3) {
            draft = neighbour(draft, segment);
        }
        draft.add();
    }
}

/// The topic's retention, as the leader's remote log manager goes by it.
struct Policy {
    retention_ms: Option<i64>,
    retention_bytes: Option<i64>,
}

/// `None` where nothing is ever due. A config that is absent or below zero is no bound.
fn policy(subject: &Subject<'_>) -> Option<Policy> {
    let bound = |name| subject.config_number(name).filter(|bound| *bound >= 0);
    let policy = Policy { retention_ms: bound("retention.ms"), retention_bytes: bound("retention.bytes") };
    (policy.retention_ms.is_some() || policy.retention_bytes.is_some()).then_some(policy)
}

/// `part.retention-blocked` and `part.retention-overdue`: the leader's walk over its segments, done here.
fn retention(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let codes = ["part.retention-blocked", "part.retention-overdue"];
    let Some(view) = subject.view else { return };
    let known = subject.config("retention.ms").is_some() || subject.config("retention.bytes").is_some();
    for code in codes {
        if !known {
            judge.absent(code, Need::TopicConfigs, || subject.name());
        }
        if subject.lineage.is_none() {
            judge.absent(code, Need::LeaderEpochs, || subject.name());
        }
        if known && subject.lineage.is_some() {
            judge.checked(code);
        }
    }
    let (Some(lineage), true) = (&subject.lineage, known) else { return };
    let tiering_off = subject.config("remote.storage.enable") == Some("false");
    let Some(policy) = policy(subject).filter(|_| !tiering_off) else { return };
    let mut walk: Vec<(i32, i64, u32)> = Vec::new();
    for segment in view.segments().filter(|of| of.state().is_some() && of.is_live()) {
        let Some(content) = segment.content() else { continue };
        if view.readable().listed.contains(&segment.index) {
            let epochs = content.epochs.iter().filter(|entry| lineage.epoch(entry.epoch).is_some());
            walk.extend(epochs.map(|entry| (entry.epoch, content.start_offset, segment.index)));
        }
    }
    walk.sort_unstable();
    let mut seen = rustc_hash::FxHashSet::default();
    let order: Vec<SegmentView<'_>> = walk
        .into_iter()
        .filter(|(_, _, index)| seen.insert(*index))
        .map(|(_, _, index)| view.view.segment_view(index))
        .collect();
    Walk::new(judge, subject, policy).run(judge, &order);
}

struct Walk<'s, 'a> {
    subject: &'s Subject<'a>,
    policy: Policy,
    /// Bytes of the lineage's finished segments beyond `retention.bytes`; what is only local is not counted.
    excess: i64,
    /// When the newest of them was finished: since then at the latest the bytes are too many.
    newest_copy_ms: Option<i64>,
    now_ms: i64,
    slack_ms: i64,
}

impl<'s, 'a> Walk<'s, 'a> {
    fn new(judge: &Judge<'_>, subject: &'s Subject<'a>, policy: Policy) -> Self {
        let (mut bytes, mut newest) = (0_i64, None);
        for segment in subject.lineage_segments() {
            bytes = bytes.saturating_add(i64::try_from(segment.size_bytes()).unwrap_or(i64::MAX));
            newest = newest.max(Subject::copy_finished_ms(segment));
        }
        let excess = policy.retention_bytes.map_or(i64::MIN, |bound| bytes.saturating_sub(bound));
        Self {
            subject,
            policy,
            excess,
            newest_copy_ms: newest,
            now_ms: judge.now_ms,
            slack_ms: judge.limits.overdue_slack_ms,
        }
    }

    /// Since when the segment's time is over; `None` while it is not.
    fn due_by_time(&self, segment: SegmentView<'_>) -> Option<i64> {
        let newest_record = segment.content()?.max_timestamp_ms;
        let due = newest_record.saturating_add(self.policy.retention_ms?);
        (due < self.now_ms).then_some(due)
    }

    /// Since when it should be gone, and in words why.
    fn due(&self, segment: SegmentView<'_>) -> Option<(i64, String)> {
        let by_time = self.due_by_time(segment).map(|due| {
            let bound = self.policy.retention_ms.unwrap_or_default();
            (due, format!("retention.ms is {bound}: due since {}", time_text(due)))
        });
        let size = i64::try_from(segment.size_bytes()).unwrap_or(i64::MAX);
        let by_bytes = (self.policy.retention_bytes.is_some() && self.excess >= size)
            .then_some(self.newest_copy_ms)
            .flatten()
            .map(|since| {
                let bound = self.policy.retention_bytes.unwrap_or_default();
                (since, format!("retention.bytes is {bound}: the tier holds {} more", self.excess))
            });
        match (by_time, by_bytes) {
            (Some(time), Some(bytes)) => Some(if time.0 <= bytes.0 { time } else { bytes }),
            (time, bytes) => time.or(bytes),
        }
    }

    fn run(mut self, judge: &mut Judge<'_>, order: &[SegmentView<'_>]) {
        let Some(lineage) = &self.subject.lineage else { return };
        for (at, segment) in order.iter().enumerate() {
            let deleting = segment.state() == Some(RemoteLogSegmentState::DeleteSegmentStarted);
            if deleting || self.subject.awaits_cleaner(*segment) || !lineage.owns(*segment) {
                continue;
            }
            let Some((since, why)) = self.due(*segment) else {
                self.blocked(judge, *segment, &order[at + 1..]);
                return;
            };
            self.excess = self.excess.saturating_sub(i64::try_from(segment.size_bytes()).unwrap_or(i64::MAX));
            self.overdue(judge, *segment, since, why);
        }
    }

    fn overdue(&self, judge: &mut Judge<'_>, segment: SegmentView<'_>, since: i64, why: String) {
        let Some(copied) = Subject::copy_finished_ms(segment).filter(|_| segment.is_finished()) else {
            return;
        };
        let overdue = self.now_ms.saturating_sub(since.max(copied));
        if overdue <= self.slack_ms {
            return;
        }
        let draft = judge
            .found("part.retention-overdue")
            .segment(segment)
            .message(format!("segment {} should have been removed {} ago", segment.id(), span(overdue)))
            .fact(why);
        draft.events(segment.events().rfind(EventView::finishes_copy)).add();
    }

    fn blocked(&self, judge: &mut Judge<'_>, blocker: SegmentView<'_>, rest: &[SegmentView<'_>]) {
        let Some(lineage) = &self.subject.lineage else { return };
        let late = |segment: &&SegmentView<'_>| {
            segment.is_finished()
                && lineage.owns(**segment)
                && !self.subject.awaits_cleaner(**segment)
                && self.due_by_time(**segment).is_some_and(|due| {
                    let since = due.max(Subject::copy_finished_ms(**segment).unwrap_or(due));
                    self.now_ms.saturating_sub(since) > self.slack_ms
                })
        };
        let held: Vec<&SegmentView<'_>> = rest.iter().filter(late).collect();
        let Some(first) = held.first() else { return };
        let bytes: u64 = held.iter().map(|segment| segment.size_bytes()).fold(0, u64::saturating_add);
        let blocking = blocker.content().map_or(0, |content| content.max_timestamp_ms);
        let draft = judge
            .found("part.retention-blocked")
            .segment(blocker)
            .message(format!(
                "segment {} keeps {} behind it from being removed, {bytes} bytes",
                blocker.id(),
                crate::events::count(held.len(), "segment", "segments")
            ))
            .fact(format!("its newest record is of {}", time_text(blocking)))
            .fact(format!(
                "retention.ms is {}; the first segment that waits is {}",
                self.policy.retention_ms.unwrap_or_default(),
                first.id()
            ));
        draft.events(blocker.events().take(1)).add();
    }
}

/// Proof that segments wait to be copied.
pub(crate) struct Waiting {
    words: String,
    /// The newest record of the oldest one, where known.
    pub(crate) newest_record_ms: Option<i64>,
}

/// Why nothing can be said about waiting segments.
pub(crate) enum Unproved {
    /// A fact is absent.
    Absent(Need),
    /// The local bytes do not prove that a segment was rolled, and there are no segment files to prove that none was.
    TooFewBytes,
}

impl Unproved {
    pub(crate) fn note(&self, judge: &mut Judge<'_>, code: &'static str, subject: &Subject<'_>) {
        match self {
            Self::Absent(need) => judge.absent(code, *need, || subject.name()),
            Self::TooFewBytes => {
                let why =
                    "the local bytes do not tell whether segments wait, their files (log directories) would";
                judge.undecided(code, why, || subject.name());
            }
        }
    }
}

/// Whether the leader's local log proves that segments wait.
pub(crate) fn waiting(subject: &Subject<'_>) -> Result<Option<Waiting>, Unproved> {
    let leader = subject.log.and_then(|log| log.leader);
    let of_leader = |replica: &&&LocalSegmentsFact| match (leader, replica.broker) {
        (Some(leader), Some(broker)) => leader == broker,
        _ => true,
    };
    let local = subject.local.iter().filter(of_leader);
    let with_segments = local.clone().find(|replica| replica.segments.is_some());
    let next =
        subject.held.last().map_or(0, |end| end.saturating_add(1)).max(subject.log_start().unwrap_or(0));
    if let Some(segments) = with_segments.and_then(|replica| replica.segments.as_ref()) {
        let mut segments = segments.clone();
        segments.sort_unstable_by_key(|segment| segment.base_offset);
        // The last one is the active segment, which is never copied.
        let oldest = segments.windows(2).find(|pair| pair[1].base_offset > next).map(|pair| pair[0]);
        return Ok(oldest.map(|oldest| Waiting {
            words: format!("local segment {} is rolled and not in the tier", oldest.base_offset),
            // Kafka says -1 where no record has a time.
            newest_record_ms: oldest.max_timestamp_ms.filter(|time| *time >= 0),
        }));
    }
    let Some(size) = local.clone().find_map(|replica| replica.size_bytes) else {
        return Err(Unproved::Absent(Need::LocalSegments));
    };
    let Some(segment_bytes) = subject.config_number("segment.bytes") else {
        return Err(Unproved::Absent(Need::TopicConfigs));
    };
    // All that the tier holds of the local log, segments that begin below it included: what is left is above. Unless the tier
    // has a hole there: what lies in that is local, too, and nobody will copy it.
    let local_start = subject.local_start().unwrap_or(0);
    if subject.held.last().is_some_and(|end| !subject.held.hold(local_start.min(end), end)) {
        return Err(Unproved::TooFewBytes);
    }
    let copied = subject
        .lineage_segments()
        .filter(|segment| segment.end_offset().is_some_and(|end| end >= local_start))
        .fold(0_i64, |sum, of| sum.saturating_add(i64::try_from(of.size_bytes()).unwrap_or(i64::MAX)));
    let above = size.saturating_sub(copied);
    if above > segment_bytes {
        let words = format!(
            "the leader has at least {above} local bytes above the tier's end, more than segment.bytes ({segment_bytes})"
        );
        return Ok(Some(Waiting { words, newest_record_ms: None }));
    }
    Err(Unproved::TooFewBytes)
}

/// `part.no-upload` and `part.copy-lag`.
fn uploads(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let codes = ["part.no-upload", "part.copy-lag"];
    let Some(tiering) = subject.config("remote.storage.enable") else {
        for code in codes {
            judge.absent(code, Need::TopicConfigs, || subject.name());
        }
        return;
    };
    if tiering != "true" || subject.config("remote.log.copy.disable") == Some("true") {
        codes.into_iter().for_each(|code| judge.checked(code));
        return;
    }
    let waiting = match waiting(subject) {
        Ok(waiting) => waiting,
        Err(unproved) => {
            for code in codes {
                unproved.note(judge, code, subject);
            }
            return;
        }
    };
    let Some(waiting) = waiting else {
        codes.into_iter().for_each(|code| judge.checked(code));
        return;
    };
    no_upload(judge, subject, &waiting);
    copy_lag(judge, subject, &waiting);
}

fn no_upload(judge: &mut Judge<'_>, subject: &Subject<'_>, waiting: &Waiting) {
    let code = "part.no-upload";
    let last = subject.view.and_then(|view| view.last_copy_finished_ms());
    // Where nothing was ever copied, the wait begins with the records themselves.
    let Some(since) = last.or(waiting.newest_record_ms) else {
        judge.undecided(code, "no copy was ever finished, and since when segments wait is not known", || {
            subject.name()
        });
        return;
    };
    judge.checked(code);
    let idle = judge.now_ms.saturating_sub(since);
    if idle <= judge.limits.no_upload_ms {
        return;
    }
    judge
        .found(code)
        .of(subject)
        .start(subject.held.last().map(|end| end.saturating_add(1)))
        .message(match last {
            Some(_) => format!(
                "segments of {} wait to be copied, and no copy was finished for {}",
                subject.name(),
                span(idle)
            ),
            None => format!("segments of {} wait to be copied, and none was ever copied", subject.name()),
        })
        .fact(waiting.words.clone())
        .fact(match last {
            Some(last) => format!("the last copy was finished at {}", time_text(last)),
            None => format!("the oldest of them has records of {}", time_text(since)),
        })
        .add();
}

fn copy_lag(judge: &mut Judge<'_>, subject: &Subject<'_>, waiting: &Waiting) {
    let code = "part.copy-lag";
    let Some(newest) = waiting.newest_record_ms else {
        judge.absent(code, Need::LocalSegments, || subject.name());
        return;
    };
    judge.checked(code);
    let lag = judge.now_ms.saturating_sub(newest);
    if lag <= judge.limits.copy_lag_ms {
        return;
    }
    judge
        .found(code)
        .of(subject)
        .start(subject.held.last().map(|end| end.saturating_add(1)))
        .message(format!(
            "the oldest segment of {} that waits to be copied has no record younger than {}",
            subject.name(),
            span(lag)
        ))
        .fact(waiting.words.clone())
        .add();
}

/// `part.replica-not-purging`: copied local segments that local retention should have removed.
fn replicas(judge: &mut Judge<'_>, subject: &Subject<'_>) {
    let code = "part.replica-not-purging";
    let Some(tiering) = subject.config("remote.storage.enable") else {
        judge.absent(code, Need::TopicConfigs, || subject.name());
        return;
    };
    if tiering != "true" {
        judge.checked(code);
        return;
    }
    let inherited = |local: &str, whole: &str| match subject.config_number(local)? {
        -2 => subject.config_number(whole),
        bound => Some(bound),
    };
    let bounds = (
        inherited("local.retention.ms", "retention.ms"),
        inherited("local.retention.bytes", "retention.bytes"),
    );
    if bounds == (None, None) {
        judge.absent(code, Need::TopicConfigs, || subject.name());
        return;
    }
    if !subject.local.iter().any(|replica| replica.segments.is_some()) {
        judge.absent(code, Need::LocalSegments, || subject.name());
        return;
    }
    judge.checked(code);
    for replica in &subject.local {
        not_purging(judge, subject, replica, bounds);
    }
}

fn not_purging(
    judge: &mut Judge<'_>,
    subject: &Subject<'_>,
    replica: &LocalSegmentsFact,
    (local_ms, local_bytes): (Option<i64>, Option<i64>),
) {
    let (Some(segments), Some(tier_end)) = (&replica.segments, subject.held.last()) else { return };
    let mut segments = segments.clone();
    segments.sort_unstable_by_key(|segment| segment.base_offset);
    let total = segments.iter().fold(0_i64, |sum, segment| sum.saturating_add(segment.size_bytes));
    let mut excess = local_bytes.filter(|bound| *bound >= 0).map(|bound| total.saturating_sub(bound));
    let slack = judge.limits.overdue_slack_ms;
    let mut kept: Option<(i64, i64, i64, usize)> = None;
    let mut copies: Vec<(i64, i64)> = subject
        .lineage_segments()
        .filter_map(|segment| Some((segment.end_offset()?, Subject::copy_finished_ms(segment)?)))
        .collect();
    copies.sort_unstable();
    for pair in segments.windows(2) {
        let (segment, end) = (pair[0], pair[1].base_offset.saturating_sub(1));
        // The copy that holds the segment's last offset: before it the replica had to keep the segment.
        let copied = copies.get(copies.partition_point(|(last, _)| *last < end)).map(|(_, copied)| *copied);
        let (true, Some(copied)) = (end <= tier_end, copied) else { break };
        let late = |due: i64| judge.now_ms.saturating_sub(due.max(copied)) > slack;
        let by_time = match (local_ms.filter(|bound| *bound >= 0), segment.max_timestamp_ms) {
            (Some(bound), Some(newest)) => late(newest.saturating_add(bound)),
            _ => false,
        };
        let by_bytes = excess.is_some_and(|excess| excess >= segment.size_bytes) && late(copied);
        if !by_time && !by_bytes {
            break;
        }
        excess = excess.map(|excess| excess.saturating_sub(segment.size_bytes));
        let (first, _, bytes, count) = kept.unwrap_or((segment.base_offset, end, 0, 0));
        kept = Some((first, end, bytes.saturating_add(segment.size_bytes), count + 1));
    }
    let Some((first, last, bytes, count)) = kept else { return };
    let broker = replica.broker.map_or("a replica".to_owned(), |broker| format!("broker {broker}"));
    judge
        .found("part.replica-not-purging")
        .of(subject)
        .offsets(first, last)
        .message(format!(
            "{broker} keeps {} of {} that are copied and past local retention, {bytes} bytes",
            crate::events::count(count, "local segment", "local segments"),
            subject.name()
        ))
        .fact(format!("the tier ends at {tier_end}"))
        .fact_if(replica.log_dir.is_some(), || {
            format!("data directory {}", replica.log_dir.as_deref().unwrap_or_default())
        })
        .add();
}

/// What is known of one topic id over all its partitions.
#[derive(Default)]
struct Topic {
    live: u64,
    live_bytes: u64,
    partitions: u64,
    newest_event_ms: Option<i64>,
    newest_deletion_ms: Option<i64>,
}

/// Rules about topics as a whole.
pub(crate) fn topics(judge: &mut Judge<'_>, subjects: &[Subject<'_>]) {
    let mut topics: BTreeMap<(&str, TopicId), Topic> = BTreeMap::new();
    let in_scope: BTreeSet<(&str, Option<TopicId>)> = subjects
        .iter()
        .filter(|subject| judge.in_scope(subject.topic, subject.partition))
        .map(|subject| (subject.topic, subject.topic_id))
        .collect();
    for view in subjects.iter().filter_map(|subject| subject.view) {
        let topic = topics.entry((view.topic(), view.topic_id())).or_default();
        for segment in view.segments().filter(SegmentView::is_live) {
            topic.live += 1;
            topic.live_bytes = topic.live_bytes.saturating_add(segment.size_bytes());
        }
        topic.partitions += 1;
        topic.newest_event_ms =
            topic.newest_event_ms.max(view.events().map(|event| event.timestamp_ms()).max());
        let deletions = view.events().filter(|event| {
            let state = event.segment().and_then(|segment| segment.state());
            matches!(
                state,
                Some(
                    RemoteLogSegmentState::DeleteSegmentStarted
                        | RemoteLogSegmentState::DeleteSegmentFinished
                )
            )
        });
        topic.newest_deletion_ms =
            topic.newest_deletion_ms.max(deletions.map(|event| event.timestamp_ms()).max());
    }
    topics.retain(|(name, id), _| in_scope.contains(&(*name, Some(*id))));
    for ((name, id), topic) in &topics {
        id_unknown(judge, name, *id, topic);
    }
    disabled(judge, subjects, &topics);
    recreated(judge, &topics);
}

fn id_unknown(judge: &mut Judge<'_>, name: &str, id: TopicId, topic: &Topic) {
    let code = "topic.id-unknown";
    match judge.existence(name, id) {
        Existence::Unknown => {
            judge.absent(code, Need::TopicIds, || name.to_owned());
            return;
        }
        Existence::Present => {
            judge.checked(code);
            return;
        }
        Existence::Gone => judge.checked(code),
    }
    let quiet = topic.newest_event_ms.map_or(i64::MAX, |newest| judge.now_ms.saturating_sub(newest));
    if topic.live == 0 || quiet <= judge.limits.delete_stuck_ms {
        return;
    }
    judge
        .found(code)
        .topic(name, Some(id))
        .message(format!(
            "{} of topic {name} ({id}) in {}, {} bytes, and the cluster has no such topic id",
            crate::events::count(topic.live as usize, "live segment", "live segments"),
            crate::events::count(topic.partitions as usize, "partition", "partitions"),
            topic.live_bytes
        ))
        .fact(format!("the newest event of this topic id is {} old", span(quiet)))
        .add();
}

fn disabled(judge: &mut Judge<'_>, subjects: &[Subject<'_>], topics: &BTreeMap<(&str, TopicId), Topic>) {
    let code = "topic.disabled-with-data";
    let mut told: Option<(&str, Option<TopicId>)> = None;
    let present = subjects.iter().filter(|subject| subject.view.is_some() && !subject.is_gone());
    for subject in present {
        if !judge.in_scope(subject.topic, subject.partition) {
            continue;
        }
        if told == Some((subject.topic, subject.topic_id)) {
            continue;
        }
        told = Some((subject.topic, subject.topic_id));
        let Some(tiering) = subject.config("remote.storage.enable") else {
            judge.absent(code, Need::TopicConfigs, || subject.topic.to_owned());
            continue;
        };
        judge.checked(code);
        let Some(topic) = subject.topic_id.and_then(|id| topics.get(&(subject.topic, id))) else { continue };
        // Disabled with `remote.log.delete.on.disable`, the segments go one after the other.
        let deleting = topic
            .newest_deletion_ms
            .is_some_and(|newest| judge.now_ms.saturating_sub(newest) <= judge.limits.delete_stuck_ms);
        if tiering != "false" || topic.live == 0 || deleting {
            continue;
        }
        judge
            .found(code)
            .topic(subject.topic, subject.topic_id)
            .message(format!(
                "tiering of topic {} is off, and {} are left, {} bytes",
                subject.topic,
                crate::events::count(topic.live as usize, "live segment", "live segments"),
                topic.live_bytes
            ))
            .fact("remote.storage.enable is false")
            .add();
    }
}

fn recreated(judge: &mut Judge<'_>, topics: &BTreeMap<(&str, TopicId), Topic>) {
    let ids: Vec<&(&str, TopicId)> = topics.keys().collect();
    for same_name in ids.chunk_by(|a, b| a.0 == b.0).filter(|ids| ids.len() > 1) {
        let name = same_name[0].0;
        let mut draft = judge
            .found("topic.recreated")
            .topic(name, None)
            .message(format!("the events name topic {name} under {} ids", same_name.len()));
        for (_, id) in same_name {
            draft = draft.fact(format!("topic id {id}"));
        }
        draft.add();
    }
}

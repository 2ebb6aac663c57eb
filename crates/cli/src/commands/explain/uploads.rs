//! Why nothing more of a partition is uploaded.
//!
//! A broker copies rolled segments below the last stable offset, the oldest first, and each only with the producer
//! snapshot at its end. Source: `RemoteLogManager.RLMCopyTask` (Kafka 4.3.1).

use strandline_audit::{
    Intervals, LocalSegment, LocalSegmentsFact, LogFact, OpenTransaction, PartitionView, SegmentView,
};
use strandline_tier::RemoteLogSegmentState as State;

use super::Asked;

/// How many unfinished copies are named; the table of segments has more.
const COPIES_MAX: usize = 3;

/// A partition, for the question what keeps the rest of it from the tier.
pub(super) struct Uploads<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    /// What the metadata says of it; nothing where nothing was ever copied.
    pub(super) view: Option<PartitionView<'a>>,
    /// The leader's log.
    pub(super) log: Option<&'a LogFact>,
}

/// The files of the leader's local log, sorted.
struct Files<'a> {
    segments: Vec<LocalSegment>,
    active: LocalSegment,
    replica: &'a LocalSegmentsFact,
}

impl<'a> Uploads<'a> {
    /// The offset after the tier's end: the first that is still to be uploaded.
    fn next_offset(&self, tier: &Intervals) -> i64 {
        let start = self.log.and_then(|log| log.log_start_offset).unwrap_or(0);
        tier.last().map_or(0, |end| end.saturating_add(1)).max(start)
    }

    /// True where the tier has, from an offset to its end, all that the log has.
    fn is_whole_from(&self, start: i64, tier: &Intervals) -> bool {
        let end = self.log.and_then(|log| log.log_end_offset).map_or(i64::MAX, |end| end.saturating_sub(1));
        tier.last().is_none_or(|last| last < start || tier.missing(start, last.min(end)).is_empty())
    }
}

impl<'a> Asked<'a> {
    /// What is not uploaded, and what keeps it from that, as far as the facts tell. `tier` is what look-ups find there.
    pub(super) fn why_no_more(&self, of: &Uploads<'a>, tier: &Intervals) -> Vec<String> {
        let mut reasons = self.switched_off(of.topic);
        let (next, end) = (of.next_offset(tier), of.log.and_then(|log| log.log_end_offset));
        reasons.extend(self.unfinished(of, next));
        if end.is_some_and(|end| end <= next) {
            let start = of.log.and_then(|log| log.log_start_offset).unwrap_or(0);
            let what = match of.is_whole_from(start, tier) {
                true => "nothing is left to upload: all that is written is in the tier",
                false => {
                    "nothing is left to upload above the tier's end; what is missing below it is not copied any more"
                }
            };
            reasons.push(what.to_owned());
            return reasons;
        }
        let transaction = of.log.and_then(|log| self.held_back(of, log, next));
        let explained = !reasons.is_empty() || transaction.is_some();
        let waits = match self.files(of) {
            Some(files) => self.by_files(&files, next, end, &mut reasons),
            None => self.by_sizes(of, tier, (next, end), &mut reasons),
        };
        reasons.extend(transaction);
        if !explained && waits == Waits::Unexplained {
            reasons.push(match of.log.filter(|log| log.last_stable_offset.is_some()) {
                None => "whether an open transaction holds them back is not known from these sources: ask the cluster (-b)"
                    .to_owned(),
                Some(log) => {
                    let leader = log.leader.map_or_else(|| "the leader".to_owned(), |id| format!("broker {id}"));
                    format!(
                        "nothing here holds them back: the leader looks for them every remote.log.manager.task.interval.ms; if they stay, look for RemoteLogManager in the log of {leader}"
                    )
                }
            });
        }
        reasons
    }

    /// Switches of the topic that stop uploads.
    fn switched_off(&self, topic: &str) -> Vec<String> {
        let topics = self.judged.collected.facts.topics.iter();
        let Some(configs) =
            topics.rev().find(|fact| fact.topic == topic).and_then(|fact| fact.configs.as_ref())
        else {
            return Vec::new();
        };
        let is = |name: &str, value: &str| configs.get(name).is_some_and(|found| found == value);
        let mut reasons = Vec::new();
        if is("remote.storage.enable", "false") {
            reasons.push(
                "tiered storage is switched off for the topic (remote.storage.enable=false)".to_owned(),
            );
        }
        if is("remote.log.copy.disable", "true") {
            reasons.push("copying is switched off for the topic (remote.log.copy.disable=true)".to_owned());
        }
        reasons
    }

    /// Copies of offsets from `next` on that were started and have not finished, the first few.
    fn unfinished(&self, of: &Uploads<'_>, next: i64) -> Vec<String> {
        let Some(view) = &of.view else { return Vec::new() };
        let started = |segment: &SegmentView<'_>| {
            segment.is_live()
                && !segment.is_finished()
                && State::from_id(segment.last_state_id()) == Some(State::CopySegmentStarted)
                && segment.end_offset().is_some_and(|end| end >= next)
        };
        let findings = &self.judged.report.findings;
        let stuck = |segment: &SegmentView<'_>| {
            findings
                .iter()
                .any(|finding| finding.code == "seg.copy-stuck" && finding.segment_id == Some(segment.id()))
        };
        let tell = |segment: SegmentView<'_>| {
            let since = segment.events().next().map_or_else(String::new, |event| {
                let age = self.output.clock.age(event.timestamp_ms());
                format!(", started {age} ago by broker {}", event.broker_id())
            });
            let what = if stuck(&segment) {
                "a copy is stuck, and later ones may wait for it"
            } else {
                "a copy is under way"
            };
            format!("{what}: segment {}{since}", segment.id())
        };
        view.segments().filter(started).take(COPIES_MAX).map(tell).collect()
    }

    /// The segment files of the leader, else of the replica that reaches farthest.
    fn files(&self, of: &Uploads<'a>) -> Option<Files<'a>> {
        let leader = of.log.and_then(|log| log.leader);
        let replicas = self.judged.collected.facts.local_segments.iter();
        let here = replicas.filter(|local| local.topic == of.topic && local.partition == of.partition);
        let files = here.filter_map(|replica| {
            let mut segments = replica.segments.clone()?;
            segments.sort_unstable_by_key(|segment| segment.base_offset);
            let active = *segments.last()?;
            Some(Files { segments, active, replica })
        });
        files.max_by_key(|files| {
            (leader.is_some() && files.replica.broker == leader, files.active.base_offset)
        })
    }

    /// What the segment files tell: which are rolled and wait, and what is in the active one.
    fn by_files(&self, files: &Files<'_>, next: i64, end: Option<i64>, reasons: &mut Vec<String>) -> Waits {
        let active = files.active.base_offset;
        let pairs = files.segments.windows(2);
        let rolled: Vec<(LocalSegment, i64)> = pairs
            .filter(|pair| pair[1].base_offset > next)
            .map(|pair| (pair[0], pair[1].base_offset))
            .collect();
        let first = next.max(files.segments.first().map_or(active, |segment| segment.base_offset));
        let Some((oldest, after)) = rolled.first() else {
            reasons.push(format!(
                "not uploaded: {}, in the active segment, which is never copied",
                offsets(first, end)
            ));
            return Waits::Nothing;
        };
        let bytes = rolled.iter().fold(0_i64, |bytes, (segment, _)| bytes.saturating_add(segment.size_bytes));
        reasons.push(format!(
            "not uploaded: {}, in {} ({}), of which {:020}.log is the next",
            offsets(first, Some(active)),
            crate::text::count(rolled.len() as u64, "rolled segment"),
            self.output.sizes.show(bytes),
            oldest.base_offset
        ));
        let mut waits = Waits::Unexplained;
        let snapshots = files.replica.producer_snapshots.as_ref();
        if snapshots.is_some_and(|snapshots| !snapshots.contains(after)) {
            waits = Waits::Explained;
            reasons.push(format!(
                "the producer snapshot at its end, {after:020}.snapshot, is not there: without it a broker copies neither this segment nor a later one"
            ));
        }
        if end.is_none_or(|end| end > active) {
            reasons.push(format!(
                "not uploaded: {}, in the active segment, which is never copied",
                offsets(active, end)
            ));
        }
        waits
    }

    /// What a broker tells over the wire, the bytes of its local log alone.
    fn by_sizes(
        &self,
        of: &Uploads<'_>,
        tier: &Intervals,
        (next, end): (i64, Option<i64>),
        reasons: &mut Vec<String>,
    ) -> Waits {
        // Without the local log nothing is known, which stands there already.
        let Some(log) = of.log else { return Waits::Nothing };
        let first = next.max(log.local_start_offset.unwrap_or(next));
        let left = offsets(first, end);
        let facts = &self.judged.collected.facts;
        let here = |local: &&LocalSegmentsFact| {
            let leader = log.leader.is_none() || local.broker.is_none() || local.broker == log.leader;
            leader && local.topic == of.topic && local.partition == of.partition
        };
        let size = facts.local_segments.iter().filter(here).find_map(|local| local.size_bytes);
        let configs = facts.topics.iter().rev().find(|fact| fact.topic == of.topic);
        let config =
            |name: &str| configs.and_then(|fact| fact.configs.as_ref()).and_then(|all| all.get(name));
        let segment_bytes: Option<i64> = config("segment.bytes").and_then(|value| value.parse().ok());
        let (Some(size), Some(segment_bytes)) = (size, segment_bytes) else {
            reasons.push(format!(
                "not uploaded: {left}; how much of that is the active segment, which is never copied, is not known from these sources"
            ));
            return Waits::Nothing;
        };
        if !of.is_whole_from(log.local_start_offset.unwrap_or(0), tier) {
            reasons.push(format!(
                "not uploaded: {left}; how much of that is the active segment, which is never copied, is not known: the tier lacks offsets that the local log has, and sizes do not tell them apart (its files would: --log-dir)"
            ));
            return Waits::Nothing;
        }
        // Local files that the tier has too take their share; those that begin below the local start do as well.
        let copied = of.view.as_ref().map_or(0, |view| {
            let local = log.local_start_offset.unwrap_or(0);
            let copied = view.segments().filter(|segment| {
                segment.is_finished() && segment.end_offset().is_some_and(|end| end >= local)
            });
            copied.fold(0_i64, |sum, segment| {
                sum.saturating_add(i64::try_from(segment.size_bytes()).unwrap_or(i64::MAX))
            })
        });
        let above = size.saturating_sub(copied).max(0);
        let (above_shown, limit) = (self.output.sizes.show(above), self.output.sizes.show(segment_bytes));
        if above <= segment_bytes {
            reasons.push(format!(
                "not uploaded: {left}, in the active segment, which is never copied, as far as sizes tell: about {above_shown} are left, and a segment is rolled at {limit} (segment.bytes)"
            ));
            return Waits::Nothing;
        }
        reasons.push(format!(
            "not uploaded: {left}, about {above_shown}: more than the active segment holds (segment.bytes is {limit}), so rolled segments wait to be copied"
        ));
        reasons.push(
            "whether a producer snapshot is missing, without which a broker copies no further, only its directories tell (--log-dir)"
                .to_owned(),
        );
        Waits::Unexplained
    }

    /// Where in the leader's files an offset lies that the tier does not have.
    pub(super) fn local_place(&self, of: &Uploads<'a>, offset: i64) -> String {
        match self.files(of) {
            Some(files) if offset >= files.active.base_offset => {
                "the tier does not hold it: it is in the active segment, which is never copied".to_owned()
            }
            Some(_) => format!(
                "the tier does not hold it: it is in a rolled segment that waits to be copied; `explain {}:{}` says why",
                of.topic, of.partition
            ),
            None => "the tier does not hold it".to_owned(),
        }
    }

    /// The last stable offset, and who holds it.
    fn held_back(&self, of: &Uploads<'_>, log: &LogFact, next: i64) -> Option<String> {
        let (stable, end) = (log.last_stable_offset?, log.log_end_offset?);
        if stable >= end || next > stable {
            return None;
        }
        let holder = match &log.open_transaction {
            None => "who holds it is not known (the leader's list of producers would tell)".to_owned(),
            Some(transaction) => self.holder(of, transaction),
        };
        Some(format!(
            "an open transaction holds the last stable offset at {stable}: {holder}; no segment that reaches beyond it is copied before it ends"
        ))
    }

    /// A transaction in words: whose, since when, in which state.
    fn holder(&self, of: &Uploads<'_>, transaction: &OpenTransaction) -> String {
        let clock = &self.output.clock;
        let mut words = vec![format!("producer {}", transaction.producer_id)];
        words.push(match &transaction.transactional_id {
            Some(id) => format!("transactional id {id}"),
            None => "transactional id not known".to_owned(),
        });
        words.extend(transaction.first_offset.map(|first| format!("since offset {first}")));
        match (transaction.start_ms, transaction.last_timestamp_ms) {
            (Some(start), _) => {
                words.push(format!("open for {} (since {})", clock.age(start), clock.show(start)))
            }
            (None, Some(last)) => words.push(format!("last wrote {}", clock.ago(last))),
            (None, None) => {}
        }
        words.extend(transaction.state.as_ref().map(|state| format!("state {state}")));
        words.extend(transaction.timeout_ms.map(|timeout| {
            format!("aborted by its coordinator after {}", crate::moment::show_span(timeout.max(0)))
        }));
        words.extend(transaction.coordinator.map(|broker| format!("coordinator broker {broker}")));
        if let (true, Some(first)) = (transaction.hangs(), transaction.first_offset) {
            words.push(format!(
                "which calls it over, so it hangs here: kafka-transactions abort --topic {} --partition {} --start-offset {first} ends it",
                of.topic, of.partition
            ));
        }
        words.join(", ")
    }
}

/// Whether rolled segments wait, and whether the reason is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nothing,
    Explained,
    Unexplained,
}

/// `offsets 10240 to 10367`; `end` is the offset after the last.
fn offsets(first: i64, end: Option<i64>) -> String {
    match end {
        Some(end) if end.saturating_sub(1) <= first => format!("offset {first}"),
        Some(end) => format!("offsets {first} to {}", end.saturating_sub(1)),
        None => format!("offsets from {first} on"),
    }
}

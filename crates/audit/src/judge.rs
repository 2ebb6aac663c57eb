//! Brings view, facts and rules together.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use strandline_tier::{TopicId, Uuid};

use crate::facts::{Facts, LocalSegmentsFact, LogFact, TopicFact};
use crate::finding::{Evidence, Finding, NotChecked, Report, Severity};
use crate::limits::Limits;
use crate::rules::{Group, Need, RULES, rule};
use crate::subject::{Existence, Lineage, Subject};
use crate::view::{EventView, PartitionView, SegmentView, TierView};
use crate::{events, metadata_topic, objects, partitions, segments};

/// Judges a tier: every rule of [`RULES`] over every event, with what else is known, at the time `now_ms`
/// (milliseconds since 1970).
///
/// Takes time linear in events, facts and findings, apart from sorting. Nothing is read or written.
pub fn audit(view: &TierView, facts: &Facts, limits: &Limits, now_ms: i64) -> Report {
    audit_within(view, facts, limits, now_ms, &|_, _| true)
}

/// As [`audit`], of the user partitions (topic, partition) that lie in `scope`: rules about one partition look at no
/// other, and no reason for a rule that is not checked names another. Rules about a whole topic, the store and the
/// metadata topic still judge all that is there.
pub fn audit_within(
    view: &TierView,
    facts: &Facts,
    limits: &Limits,
    now_ms: i64,
    scope: &dyn Fn(&str, i32) -> bool,
) -> Report {
    let mut judge = Judge::new(view, facts, limits, now_ms, scope);
    let subjects = judge.subjects();
    events::whole(&mut judge);
    for subject in subjects.iter().filter(|subject| scope(subject.topic, subject.partition)) {
        events::partition(&mut judge, subject);
        segments::partition(&mut judge, subject);
        partitions::partition(&mut judge, subject);
    }
    partitions::topics(&mut judge, &subjects);
    objects::store(&mut judge, &subjects);
    metadata_topic::topic(&mut judge, &subjects);
    judge.report()
}

/// How many names a reason lists before it only counts.
const NAMES_MAX: usize = 3;

/// What the rules share: the values, look-up tables over the facts, and what was found so far.
pub(crate) struct Judge<'a> {
    pub(crate) view: &'a TierView,
    pub(crate) facts: &'a Facts,
    pub(crate) limits: &'a Limits,
    pub(crate) now_ms: i64,
    scope: &'a dyn Fn(&str, i32) -> bool,
    topics_by_name: FxHashMap<&'a str, &'a TopicFact>,
    topics_by_id: FxHashMap<TopicId, &'a TopicFact>,
    logs: FxHashMap<(&'a str, i32), Vec<&'a LogFact>>,
    local: FxHashMap<(&'a str, i32), Vec<&'a LocalSegmentsFact>>,
    findings: Vec<Finding>,
    checked: FxHashMap<&'static str, usize>,
    absent: FxHashMap<(&'static str, Absent), Absence>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Absent {
    Need(Need),
    Words(&'static str),
}

#[derive(Default)]
struct Absence {
    whole: bool,
    count: usize,
    names: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(
        view: &'a TierView,
        facts: &'a Facts,
        limits: &'a Limits,
        now_ms: i64,
        scope: &'a dyn Fn(&str, i32) -> bool,
    ) -> Self {
        let mut logs: FxHashMap<_, Vec<&LogFact>> = FxHashMap::default();
        for log in &facts.logs {
            logs.entry((log.topic.as_str(), log.partition)).or_default().push(log);
        }
        let mut local: FxHashMap<_, Vec<&LocalSegmentsFact>> = FxHashMap::default();
        for replica in &facts.local_segments {
            local.entry((replica.topic.as_str(), replica.partition)).or_default().push(replica);
        }
        Self {
            view,
            facts,
            limits,
            now_ms,
            scope,
            topics_by_name: facts.topics.iter().map(|topic| (topic.topic.as_str(), topic)).collect(),
            topics_by_id: facts.topics.iter().filter_map(|topic| Some((topic.topic_id?, topic))).collect(),
            logs,
            local,
            findings: Vec::new(),
            checked: FxHashMap::default(),
            absent: FxHashMap::default(),
        }
    }

    /// True when the user partition is to be judged.
    pub(crate) fn in_scope(&self, topic: &str, partition: i32) -> bool {
        (self.scope)(topic, partition)
    }

    /// Whether the cluster has the topic id, as far as is known.
    pub(crate) fn existence(&self, topic: &str, topic_id: TopicId) -> Existence {
        if self.topics_by_id.contains_key(&topic_id) {
            return Existence::Present;
        }
        match self.topics_by_name.get(topic) {
            Some(fact) if fact.absent || fact.topic_id.is_some() => Existence::Gone,
            Some(_) => Existence::Unknown,
            None if self.facts.topics_complete => Existence::Gone,
            None => Existence::Unknown,
        }
    }

    /// Every user partition that an event names, and those that only facts name, in order.
    fn subjects(&self) -> Vec<Subject<'a>> {
        let mut subjects: Vec<Subject<'a>> = self.view.partitions().map(|of| self.subject(of)).collect();
        let mut named: Vec<(&str, i32)> = self.logs.keys().chain(self.local.keys()).copied().collect();
        named.sort_unstable();
        named.dedup();
        let seen: std::collections::HashSet<(&str, i32)> = subjects
            .iter()
            .filter(|subject| subject.existence != Existence::Gone)
            .map(|subject| (subject.topic, subject.partition))
            .collect();
        named.retain(|name| !seen.contains(name));
        subjects.extend(named.into_iter().map(|(topic, partition)| {
            let fact = self.topics_by_name.get(topic).copied();
            let topic_id = fact.and_then(|fact| fact.topic_id);
            self.with_facts(topic, topic_id, partition, None, Existence::Unknown, fact)
        }));
        // So that reasons name the first few partitions in their order.
        subjects.sort_by(|a, b| (a.topic, a.topic_id, a.partition).cmp(&(b.topic, b.topic_id, b.partition)));
        subjects
    }

    fn subject(&self, of: PartitionView<'a>) -> Subject<'a> {
        let existence = self.existence(of.topic(), of.topic_id());
        let by_name = || self.topics_by_name.get(of.topic()).filter(|fact| fact.topic_id.is_none());
        let fact = self.topics_by_id.get(&of.topic_id()).or_else(by_name).copied();
        self.with_facts(of.topic(), Some(of.topic_id()), of.partition(), Some(of), existence, fact)
    }

    fn with_facts(
        &self,
        topic: &'a str,
        topic_id: Option<TopicId>,
        partition: i32,
        view: Option<PartitionView<'a>>,
        existence: Existence,
        fact: Option<&'a TopicFact>,
    ) -> Subject<'a> {
        // A log without a topic id is that of the topic which the cluster has now.
        let same = |id: Option<TopicId>| match (id, topic_id) {
            (Some(log), Some(topic)) => log == topic,
            _ => existence != Existence::Gone,
        };
        let key = (topic, partition);
        let logs = self.logs.get(&key).map_or(&[][..], Vec::as_slice);
        let log = logs.iter().rev().find(|log| same(log.topic_id)).copied();
        let local = self.local.get(&key).map_or(&[][..], Vec::as_slice);
        let local = local.iter().filter(|replica| same(replica.topic_id)).copied().collect();
        let lineage = log.and_then(Lineage::of);
        Subject::new(topic, topic_id, partition, view, existence, fact, log, local, lineage)
    }

    /// The real partition count is not what brokers are said to be configured for.
    pub(crate) fn count_differs(&self) -> bool {
        self.facts.metadata_topic.as_ref().is_some_and(
            |topic| matches!((topic.partitions, topic.configured_partitions), (Some(a), Some(b)) if a != b),
        )
    }

    /// Starts a finding with what the table says of its rule. It counts once it is handed to [`Judge::report`]
    /// through [`Draft::add`].
    pub(crate) fn found(&mut self, code: &'static str) -> Draft<'_> {
        let rule = rule(code).expect("every code that a rule reports is in the table");
        Draft {
            findings: &mut self.findings,
            finding: Finding {
                code: rule.code,
                severity: rule.severity,
                topic: None,
                topic_id: None,
                partition: None,
                segment_id: None,
                start_offset: None,
                end_offset: None,
                message: String::new(),
                effect: Cow::Borrowed(rule.effect),
                next: Cow::Borrowed(rule.next),
                evidence: Vec::new(),
                object_keys: Vec::new(),
            },
        }
    }

    /// The rule had its facts for one more partition, topic or object.
    pub(crate) fn checked(&mut self, code: &'static str) {
        *self.checked.entry(code).or_default() += 1;
    }

    /// The rule lacks a fact about one partition or topic.
    pub(crate) fn absent(&mut self, code: &'static str, need: Need, of: impl FnOnce() -> String) {
        self.note_absent(code, Absent::Need(need), of);
    }

    /// As [`Judge::absent`], where a fact is there and still does not suffice.
    pub(crate) fn undecided(&mut self, code: &'static str, why: &'static str, of: impl FnOnce() -> String) {
        self.note_absent(code, Absent::Words(why), of);
    }

    /// The rule lacks a fact altogether.
    pub(crate) fn absent_wholly(&mut self, code: &'static str, need: Need) {
        self.absent.entry((code, Absent::Need(need))).or_default().whole = true;
    }

    /// The rule cannot speak at all, for a reason of its own.
    pub(crate) fn undecided_wholly(&mut self, code: &'static str, why: &'static str) {
        self.absent.entry((code, Absent::Words(why))).or_default().whole = true;
    }

    fn note_absent(&mut self, code: &'static str, what: Absent, of: impl FnOnce() -> String) {
        let absence = self.absent.entry((code, what)).or_default();
        absence.count += 1;
        if absence.names.len() < NAMES_MAX {
            absence.names.push(of());
        }
    }

    fn report(mut self) -> Report {
        self.nothing_to_judge();
        let mut not_checked = Vec::new();
        for rule in RULES {
            let mut reasons: BTreeMap<Absent, &Absence> = BTreeMap::new();
            for ((code, what), absence) in &self.absent {
                if *code == rule.code {
                    reasons.insert(*what, absence);
                }
            }
            let checked = self.checked.get(rule.code).copied().unwrap_or(0);
            for (what, absence) in reasons {
                not_checked.push(NotChecked { code: rule.code, reason: self.reason(what, absence, checked) });
            }
        }
        self.findings.sort_by(Finding::order);
        Report { findings: self.findings, not_checked }
    }

    /// The fact that is missing; for which partitions, unless it is missing altogether; how many, unless for all; and
    /// the right that would show it, where one is missing.
    fn reason(&self, what: Absent, absence: &Absence, checked: usize) -> String {
        let (words, right) = match what {
            Absent::Need(need) => {
                (format!("{} not known", need.words()), self.facts.missing_rights.get(&need))
            }
            Absent::Words(words) => (words.to_owned(), None),
        };
        let names = absence.names.join(", ");
        let more = match absence.count - absence.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let mut reason = match (what, checked) {
            _ if absence.whole || absence.count == 0 => words,
            (Absent::Need(_), 1..) => format!("{words} for {} ({names}{more})", absence.count),
            _ => format!("{words} ({names}{more})"),
        };
        if let Some(right) = right {
            reason.push_str(": missing right: ");
            reason.push_str(right);
        }
        reason
    }

    /// A rule about partitions or topics that met none of them had nothing to judge, which is not the same as
    /// having judged. Where facts are missing altogether it says so, so that no rule is passed over in silence.
    fn nothing_to_judge(&mut self) {
        for rule in RULES {
            let spoken = self.checked.contains_key(rule.code)
                || self.absent.keys().any(|(code, _)| *code == rule.code);
            if spoken || !matches!(rule.group, Group::Segments | Group::Partitions) {
                continue;
            }
            let absent: Vec<Need> =
                rule.needs.iter().copied().filter(|need| self.knows_nothing_of(*need)).collect();
            for need in absent {
                self.absent_wholly(rule.code, need);
            }
        }
    }

    fn knows_nothing_of(&self, need: Need) -> bool {
        let no_log = |known: fn(&LogFact) -> bool| !self.facts.logs.iter().any(known);
        match need {
            Need::TopicConfigs => !self.facts.topics.iter().any(|topic| topic.configs.is_some()),
            Need::TopicIds => self.facts.topics.is_empty() && !self.facts.topics_complete,
            Need::LogStart => no_log(|log| log.log_start_offset.is_some()),
            Need::LocalStart => no_log(|log| log.local_start_offset.is_some()),
            Need::LogEnd => no_log(|log| log.log_end_offset.is_some()),
            Need::Leader => no_log(|log| log.leader.is_some()),
            Need::LeaderEpochs => no_log(|log| log.leader_epochs.is_some() || log.epoch_ends.is_some()),
            Need::LocalSegments => self.facts.local_segments.is_empty(),
            Need::AllEvents => self.facts.partial_read.is_some(),
            Need::Listing | Need::WholeListing => self.facts.store.is_none(),
            Need::MetadataPartitionCount
            | Need::MetadataConfigs
            | Need::MetadataReplication
            | Need::MetadataReplicas
            | Need::MetadataLogStarts
            | Need::MetadataFiles => self.facts.metadata_topic.is_none(),
        }
    }
}

/// A finding in the making.
pub(crate) struct Draft<'a> {
    findings: &'a mut Vec<Finding>,
    finding: Finding,
}

impl Draft<'_> {
    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.finding.severity = severity;
        self
    }

    pub(crate) fn topic(mut self, topic: &str, topic_id: Option<TopicId>) -> Self {
        self.finding.topic = Some(topic.to_owned());
        self.finding.topic_id = topic_id;
        self
    }

    pub(crate) fn of(mut self, subject: &Subject<'_>) -> Self {
        self.finding.partition = Some(subject.partition);
        self.topic(subject.topic, subject.topic_id)
    }

    pub(crate) fn segment(mut self, segment: SegmentView<'_>) -> Self {
        self.finding.partition = Some(segment.partition());
        self.finding.segment_id = Some(segment.id());
        self.finding.start_offset = segment.start_offset();
        self.finding.end_offset = segment.end_offset();
        self.topic(segment.topic(), Some(segment.topic_id()))
    }

    pub(crate) fn segment_id(mut self, id: Uuid) -> Self {
        self.finding.segment_id = Some(id);
        self
    }

    pub(crate) fn partition(mut self, partition: i32) -> Self {
        self.finding.partition = Some(partition);
        self
    }

    pub(crate) fn offsets(mut self, start: i64, end: i64) -> Self {
        self.finding.start_offset = Some(start);
        self.finding.end_offset = Some(end);
        self
    }

    pub(crate) fn start(mut self, start: Option<i64>) -> Self {
        self.finding.start_offset = start;
        self
    }

    pub(crate) fn message(mut self, message: impl Into<String>) -> Self {
        self.finding.message = message.into();
        self
    }

    pub(crate) fn event(self, event: EventView<'_>) -> Self {
        let what = event_words(event);
        self.event_as(event, what)
    }

    /// The first of the events that a finding has room for.
    pub(crate) fn events<'e>(self, events: impl IntoIterator<Item = EventView<'e>>) -> Self {
        events.into_iter().take(Finding::EVIDENCE_MAX).fold(self, Self::event)
    }

    pub(crate) fn event_as(self, event: EventView<'_>, what: String) -> Self {
        self.evidence(Evidence {
            metadata_partition: event.metadata_partition(),
            offset: event.offset(),
            time_ms: Some(event.timestamp_ms()),
            what,
        })
    }

    pub(crate) fn fact(self, what: impl Into<String>) -> Self {
        self.evidence(Evidence::fact(what))
    }

    pub(crate) fn fact_if(self, known: bool, what: impl FnOnce() -> String) -> Self {
        if known { self.fact(what()) } else { self }
    }

    pub(crate) fn evidence(mut self, evidence: Evidence) -> Self {
        if self.finding.evidence.len() < Finding::EVIDENCE_MAX {
            self.finding.evidence.push(evidence);
        }
        self
    }

    pub(crate) fn key(mut self, key: &str) -> Self {
        if self.finding.object_keys.len() < Finding::EVIDENCE_MAX {
            self.finding.object_keys.push(key.to_owned());
        }
        self
    }

    pub(crate) fn add(self) {
        self.findings.push(self.finding);
    }
}

/// `COPY_SEGMENT_STARTED by broker 1`.
pub(crate) fn event_words(event: EventView<'_>) -> String {
    match event.state_name() {
        Some(name) => format!("{name} by broker {}", event.broker_id()),
        None => {
            format!("state {} (no state has this number) by broker {}", event.state_id(), event.broker_id())
        }
    }
}

/// A span in the two largest units that say something: `3 h 20 min`.
pub(crate) fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

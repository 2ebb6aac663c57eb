use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::{Serialize, Serializer};
use strandline_tier::{TopicId, Uuid};

use crate::rules::{Recheck, rule};

/// How bad a finding is; the worst sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Reads fail or will fail.
    Damage,
    /// Nothing is lost yet.
    Risk,
    /// Money or disk for nothing.
    Cost,
    /// Worth knowing; a tier with nothing but these is clean.
    Info,
}

impl Severity {
    /// The word that screens and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::Risk => "risk",
            Self::Cost => "cost",
            Self::Info => "info",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One piece of proof: a record of the metadata topic, or a fact in words. Whatever is not known is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The partition of the metadata topic.
    pub metadata_partition: Option<i32>,
    /// The offset in that partition.
    pub offset: Option<i64>,
    /// When, in milliseconds since 1970; RFC 3339 in JSON.
    #[serde(rename = "time", serialize_with = "rfc3339")]
    pub time_ms: Option<i64>,
    /// What it shows.
    pub what: String,
}

impl Evidence {
    /// A fact in words, without a record.
    pub fn fact(what: impl Into<String>) -> Self {
        Self { metadata_partition: None, offset: None, time_ms: None, what: what.into() }
    }
}

/// What is wrong, where, and what to do. Serialises as in the output contract of `audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code of the rule, a row of [`RULES`](crate::RULES).
    pub code: &'static str,
    /// How bad it is here; a few rules are milder where local copies remain.
    pub severity: Severity,
    /// The topic's name.
    pub topic: Option<String>,
    /// The topic's id.
    #[serde(serialize_with = "display")]
    pub topic_id: Option<TopicId>,
    /// The user partition.
    pub partition: Option<i32>,
    /// The segment.
    #[serde(serialize_with = "display")]
    pub segment_id: Option<Uuid>,
    /// The first offset concerned.
    pub start_offset: Option<i64>,
    /// The last offset concerned, inclusive.
    pub end_offset: Option<i64>,
    /// One sentence that says what was found.
    pub message: String,
    /// What it does to readers, brokers or the bill.
    pub effect: Cow<'static, str>,
    /// What to do next.
    pub next: Cow<'static, str>,
    /// The proof; at most [`Finding::EVIDENCE_MAX`] pieces.
    pub evidence: Vec<Evidence>,
    /// The objects concerned, by key; at most [`Finding::EVIDENCE_MAX`] of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub object_keys: Vec<String>,
}

impl Finding {
    /// The most pieces of evidence, and of object keys, that one finding holds.
    pub const EVIDENCE_MAX: usize = 10;

    /// What to read again before this finding is believed, where a race could explain it.
    pub fn recheck(&self) -> Recheck {
        rule(self.code).map_or(Recheck::Nothing, |rule| rule.recheck)
    }

    /// The order of a report: severity, topic (those about the cluster first), partition, offset, then whatever
    /// makes it the same every time.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.severity
            .cmp(&other.severity)
            .then_with(|| self.topic.cmp(&other.topic))
            .then_with(|| self.partition.cmp(&other.partition))
            .then_with(|| self.start_offset.cmp(&other.start_offset))
            .then_with(|| self.code.cmp(other.code))
            .then_with(|| self.topic_id.cmp(&other.topic_id))
            .then_with(|| self.segment_id.cmp(&other.segment_id))
            .then_with(|| self.object_keys.cmp(&other.object_keys))
            .then_with(|| self.message.cmp(&other.message))
    }

    /// Two readings speak of the same thing: code, topic id, partition, segment, keys, and offsets that touch.
    fn same_subject(&self, other: &Self) -> bool {
        let touch = match (self.start_offset, self.end_offset, other.start_offset, other.end_offset) {
            (Some(a), Some(b), Some(c), Some(d)) => a <= d && c <= b,
            _ => true,
        };
        self.subject() == other.subject() && touch
    }

    fn subject(&self) -> Subject<'_> {
        (
            self.code,
            self.topic_id,
            self.partition,
            self.segment_id,
            if self.segment_id.is_none() { self.object_keys.first().map(String::as_str) } else { None },
        )
    }
}

type Subject<'a> = (&'static str, Option<TopicId>, Option<i32>, Option<Uuid>, Option<&'a str>);

/// A rule, or a part of what it speaks of, that could not be judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotChecked {
    /// The code of the rule.
    pub code: &'static str,
    /// Which fact is absent, and for what, where some of it is known.
    pub reason: String,
}

/// What [`audit`](crate::audit) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By severity, topic, partition and offset; the same values give the same order.
    pub findings: Vec<Finding>,
    /// Rules whose facts are absent, in the order of the table.
    pub not_checked: Vec<NotChecked>,
}

impl Report {
    /// The worst severity found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// True when nothing is above info. What could not be read, the caller knows: it counts as well.
    pub fn is_clean(&self) -> bool {
        self.worst().is_none_or(|worst| worst == Severity::Info)
    }

    /// Findings that a race between the readings could explain, each with what to read again.
    ///
    /// Read that again, judge again, and pass the second report to [`Report::retain_confirmed`].
    pub fn candidates(&self) -> impl Iterator<Item = (&Finding, Recheck)> {
        self.findings
            .iter()
            .map(|finding| (finding, finding.recheck()))
            .filter(|(_, recheck)| *recheck != Recheck::Nothing)
    }

    /// Drops each candidate that the second reading does not show as well. Other findings stay.
    pub fn retain_confirmed(&mut self, second: &Self) {
        let mut seen: std::collections::HashMap<Subject<'_>, Vec<&Finding>> =
            std::collections::HashMap::new();
        for finding in &second.findings {
            seen.entry(finding.subject()).or_default().push(finding);
        }
        self.findings.retain(|finding| {
            finding.recheck() == Recheck::Nothing
                || seen
                    .get(&finding.subject())
                    .is_some_and(|others| others.iter().any(|other| finding.same_subject(other)))
        });
    }
}

/// Milliseconds since 1970 as RFC 3339 in UTC; a time that no calendar holds stays a number of milliseconds.
pub(crate) fn time_text(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        Err(_) => format!("{ms} ms since 1970"),
    }
}

fn rfc3339<S: Serializer>(ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    match ms {
        Some(ms) => serializer.serialize_str(&time_text(*ms)),
        None => serializer.serialize_none(),
    }
}

fn display<T: fmt::Display, S: Serializer>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}

//! One reading, judged: what the screens of `status`, `segments`, `explain` and `audit` all render.

use rustc_hash::{FxHashMap, FxHashSet};
use strandline_audit::{
    Facts, Finding, Limits, ObjectFact, Recheck, Report, Severity, TierView, audit, audit_within,
};

use crate::address::Selection;
use crate::args::FailOn;
use crate::exit::{Exit, Failure};
use crate::output::Incomplete;
use crate::sources::{self, Collected, Request, Source, StoreSource};

/// What is known and what is wrong.
pub(crate) struct Judged {
    /// What is known.
    pub(crate) collected: Collected,
    /// What is wrong with it, within the selection.
    pub(crate) report: Report,
}

/// Reads the source and the store, judges, and reads once more what a race could have caused.
pub(crate) fn judge(
    source: &Source,
    store: Option<&StoreSource>,
    request: &Request<'_>,
    limits: &Limits,
) -> Result<Judged, Failure> {
    let mut collected = sources::collect(source, store, request)?;
    named_something(&collected, request.selection)?;
    let mut report = audit_selected(&collected.view, &collected.facts, limits, request);
    if collected.ended_by.is_none() && report.candidates().next().is_some() {
        confirm(&mut report, &mut collected, source, store, request, limits)?;
    }
    report.findings.retain(|finding| concerns(request.selection, finding));
    Ok(Judged { collected, report })
}

/// Judges the partitions that are looked at, those of segments that are named by their ids included.
fn audit_selected(view: &TierView, facts: &Facts, limits: &Limits, request: &Request<'_>) -> Report {
    let selection = request.selection;
    if selection.is_everything() {
        return audit(view, facts, limits, request.now_ms);
    }
    let of_segments: FxHashSet<(&str, i32)> = selection
        .segment_ids()
        .flat_map(|id| view.segment(id))
        .map(|segment| (segment.topic(), segment.partition()))
        .collect();
    let scope = |topic: &str, partition: i32| {
        selection.has_partition(topic, partition) || of_segments.contains(&(topic, partition))
    };
    audit_within(view, facts, limits, request.now_ms, &scope)
}

/// An address that names nothing is exit 2, unless what it names may lie in what could not be read.
pub(crate) fn named_something(collected: &Collected, selection: &Selection) -> Result<(), Failure> {
    if selection.addresses().is_empty() || !collected.incomplete.is_empty() {
        return Ok(());
    }
    let view = &collected.view;
    let seen = view.partitions().any(|partition| {
        let mut segments = partition.segments();
        selection.has_partition(partition.topic(), partition.partition())
            || segments
                .any(|segment| selection.has_segment(segment.topic(), segment.partition(), segment.id()))
    });
    let facts = &collected.facts;
    let known = facts.logs.iter().any(|log| selection.has_partition(&log.topic, log.partition))
        || facts
            .topics
            .iter()
            .filter(|topic| !topic.absent)
            .any(|topic| selection.has_some_partition(&topic.topic, topic.partitions.unwrap_or(0)));
    if seen || known {
        return Ok(());
    }
    let failure = sources::names_nothing(selection, collected.topics());
    Err(collected.doubt.iter().fold(failure, |failure, doubt| failure.hint(doubt)))
}

/// True when the finding is about what is looked at, or about the metadata topic as a whole, which all depends on.
fn concerns(selection: &Selection, finding: &Finding) -> bool {
    match (&finding.topic, finding.partition, finding.segment_id) {
        (Some(topic), Some(partition), Some(id)) => selection.has_segment(topic, partition, id),
        (Some(topic), Some(partition), None) => selection.has_partition(topic, partition),
        (Some(topic), None, _) => selection.has_topic(topic),
        (None, ..) => selection.is_everything() || finding.object_keys.is_empty(),
    }
}

/// Reads again what the candidates depend on, judges again, and keeps what both readings show.
fn confirm(
    report: &mut Report,
    collected: &mut Collected,
    source: &Source,
    store: Option<&StoreSource>,
    request: &Request<'_>,
    limits: &Limits,
) -> Result<(), Failure> {
    let objects = match store {
        Some(store) => objects_again(report, &collected.facts.objects, store, &mut collected.incomplete),
        None => collected.facts.objects.clone(),
    };
    // Who holds and who stands is told from the first reading, and no rule looks at it.
    let rules_only = Request { who: None, ..*request };
    let mut again =
        match source.can_change().then(|| sources::collect_again(source, collected, &rules_only)).transpose()
        {
            Ok(again) => again,
            Err(failure) => {
                // The first reading stands: what it found is told, and that nobody looked twice.
                if matches!(failure.exit, Exit::HungUp | Exit::Interrupted | Exit::Terminated) {
                    collected.ended_by = Some(failure.exit);
                }
                let what = "the second look at what was found".to_owned();
                collected.incomplete.push(Incomplete { what, reason: failure.to_string() });
                return Ok(());
            }
        };
    if let Some(again) = again.as_mut().filter(|again| !again.incomplete.is_empty()) {
        // What the second reading did not see it cannot deny: the findings stay, and the gap is told.
        collected.ended_by = again.ended_by;
        for missing in again.incomplete.drain(..) {
            if !collected.incomplete.contains(&missing) {
                collected.incomplete.push(missing);
            }
        }
        return Ok(());
    }
    let same = |again: &Collected| {
        again.view.event_count() == collected.view.event_count() && again.facts == collected.facts
    };
    if store.is_none() && again.as_ref().is_none_or(same) {
        return Ok(());
    }
    let view = again.as_ref().map_or(&collected.view, |again| &again.view);
    let facts = again.as_ref().map_or(&collected.facts, |again| &again.facts).clone();
    let facts = Facts { store: collected.facts.store.clone(), objects, ..facts };
    report.retain_confirmed(&audit_selected(view, &facts, limits, request));
    Ok(())
}

/// The listing, corrected by a second look at each object that a finding names.
fn objects_again(
    report: &Report,
    listed: &[ObjectFact],
    store: &StoreSource,
    incomplete: &mut Vec<Incomplete>,
) -> Vec<ObjectFact> {
    let mut looks: FxHashMap<String, Option<ObjectFact>> = FxHashMap::default();
    let named = report.candidates().filter(|(_, recheck)| *recheck == Recheck::ObjectsAndNewestEvents);
    for (finding, _) in named {
        // What is said to be gone has no key in the finding: the layout gives those of the segment.
        for key in store.required_keys(finding).into_iter().chain(finding.object_keys.iter().cloned()) {
            if looks.contains_key(&key) {
                continue;
            }
            match store.look(&key) {
                Ok(object) => drop(looks.insert(key, object)),
                Err(unseen) => incomplete.push(unseen),
            }
        }
    }
    let kept = listed.iter().filter(|object| !looks.contains_key(&object.key)).cloned();
    let kept: Vec<ObjectFact> = kept.collect();
    kept.into_iter().chain(looks.into_values().flatten()).collect()
}

impl Judged {
    /// The exit code: findings at or above `fail_on` win over what could not be read. A signal wins over both.
    pub(crate) fn exit(&self, fail_on: FailOn) -> Exit {
        let limit = match fail_on {
            FailOn::Damage => Some(Severity::Damage),
            FailOn::Risk => Some(Severity::Risk),
            FailOn::Cost => Some(Severity::Cost),
            FailOn::Info => Some(Severity::Info),
            FailOn::Never => None,
        };
        if let Some(exit) = self.collected.ended_by {
            return exit;
        }
        // The worst severity sorts first.
        let reached = limit.zip(self.report.worst()).is_some_and(|(limit, worst)| worst <= limit);
        if reached { Exit::Findings } else { self.collected.exit() }
    }

    /// How many findings there are of each severity, the worst first.
    pub(crate) fn counts(&self) -> [(Severity, u64); 4] {
        [Severity::Damage, Severity::Risk, Severity::Cost, Severity::Info].map(|severity| {
            let count = self.report.findings.iter().filter(|finding| finding.severity == severity).count();
            (severity, count as u64)
        })
    }

    /// True when nothing is above info and nothing is missing.
    pub(crate) fn is_clean(&self) -> bool {
        let whole = self.collected.incomplete.is_empty() && self.collected.ended_by.is_none();
        whole && self.collected.doubt.is_none() && self.report.is_clean()
    }
}

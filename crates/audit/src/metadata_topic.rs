//! Rules about the metadata topic itself.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::events::count;
use crate::facts::MetadataTopicFact;
use crate::finding::{Evidence, Severity};
use crate::judge::{Judge, span};
use crate::partitions::waiting;
use crate::placement::Placement;
use crate::rules::{Group, Need, RULES};
use crate::subject::Subject;
use crate::view::{EventKind, SegmentView};

/// Every rule of this group.
pub(crate) fn topic(judge: &mut Judge<'_>, subjects: &[Subject<'_>]) {
    null_keys(judge);
    dead_share(judge);
    silent_brokers(judge, subjects);
    let Some(topic) = &judge.facts.metadata_topic else {
        let needing = |need: &Need| !matches!(need, Need::Leader | Need::LocalSegments);
        for rule in RULES.iter().filter(|rule| rule.group == Group::MetadataTopic) {
            for need in rule.needs.iter().copied().filter(needing) {
                judge.absent_wholly(rule.code, need);
            }
        }
        return;
    };
    partition_count(judge, topic);
    trimmed(judge, topic, subjects);
    configs(judge, topic);
    replication(judge, topic);
    under_replicated(judge, topic);
    truncated_files(judge, topic);
}

fn partition_count(judge: &mut Judge<'_>, topic: &MetadataTopicFact) {
    let code = "meta.partition-count";
    let Some(real) = topic.partitions else {
        judge.absent_wholly(code, Need::MetadataPartitionCount);
        return;
    };
    judge.checked(code);
    if let Some(configured) = topic.configured_partitions.filter(|configured| *configured != real) {
        judge
            .found(code)
            .message(format!(
                "the metadata topic has {}, brokers are said to be configured for {configured}",
                count(usize::try_from(real).unwrap_or(0), "partition", "partitions")
            ))
            .add();
    }
    if let Placement::OtherCount { explains, user_partitions, .. } = judge.view.placement() {
        judge
            .found(code)
            .message(format!(
                "the metadata topic has {real} partitions; events of {} lie where a count of {explains} puts them",
                count(user_partitions, "user partition", "user partitions")
            ))
            .add();
    }
}

/// Live segments without a base, by metadata partition, where its log start is above 0.
fn trimmed(judge: &mut Judge<'_>, topic: &MetadataTopicFact, subjects: &[Subject<'_>]) {
    let code = "meta.trimmed";
    let Some(starts) = &topic.log_start_offsets else {
        judge.absent_wholly(code, Need::MetadataLogStarts);
        return;
    };
    let mut unknown = 0;
    for (partition, start) in starts.iter().enumerate() {
        match start {
            Some(_) => judge.checked(code),
            None => {
                unknown += 1;
                judge.absent(code, Need::MetadataLogStarts, || format!("metadata partition {partition}"));
            }
        }
    }
    if unknown == starts.len() {
        return;
    }
    let mut lost: BTreeMap<i32, Vec<SegmentView<'_>>> = BTreeMap::new();
    for subject in subjects.iter().filter(|subject| !subject.is_gone()) {
        for segment in subject.segments().filter(|of| of.content().is_none() && of.is_live()) {
            if let Some(partition) = segment.events().next().and_then(|event| event.metadata_partition()) {
                lost.entry(partition).or_default().push(segment);
            }
        }
    }
    for (partition, segments) in lost {
        let start = usize::try_from(partition).ok().and_then(|at| starts.get(at).copied().flatten());
        let Some(start) = start.filter(|start| *start > 0) else { continue };
        let mut draft = judge.found(code).message(format!(
            "metadata partition {partition} starts at offset {start}, and {} of it lost their introduction",
            count(segments.len(), "live segment", "live segments")
        ));
        for segment in &segments {
            for event in segment.events().take(1) {
                draft = draft.event_as(event, format!("segment {}", segment.id()));
            }
        }
        draft.add();
    }
}

fn configs(judge: &mut Judge<'_>, topic: &MetadataTopicFact) {
    let config = |name: &str| topic.configs.as_ref().and_then(|configs| configs.get(name));
    let number = |name: &str| config(name).and_then(|value| value.trim().parse::<i64>().ok());
    let mut known = |code: &'static str, names: &[&str]| {
        let known = names.iter().any(|name| config(name).is_some());
        match known {
            true => judge.checked(code),
            false => judge.absent_wholly(code, Need::MetadataConfigs),
        }
    };
    known("meta.retention", &["retention.ms", "retention.bytes"]);
    known("meta.cleanup-policy", &["cleanup.policy"]);
    known("meta.unclean-election", &["unclean.leader.election.enable"]);
    known("meta.tiered", &["remote.storage.enable"]);
    known("meta.min-isr", &["min.insync.replicas"]);
    let finite: Vec<String> = ["retention.ms", "retention.bytes"]
        .iter()
        .filter_map(|name| Some((name, number(name).filter(|bound| *bound >= 0)?)))
        .map(|(name, bound)| format!("{name}={bound}"))
        .collect();
    // Without delete in the policy neither bound is looked at.
    let deletes = config("cleanup.policy").is_none_or(|policy| has(policy, "delete"));
    if !finite.is_empty() && deletes {
        let message = format!("the metadata topic forgets its events: {}", finite.join(", "));
        judge.found("meta.retention").message(message).add();
    }
    if let Some(policy) = config("cleanup.policy").filter(|policy| has(policy, "compact")) {
        let null_keys: u64 = judge.view.metadata_partitions().iter().map(|stats| stats.null_keys).sum();
        if null_keys > 0 {
            judge
                .found("meta.cleanup-policy")
                .message(format!("cleanup.policy is {policy}, and {null_keys} records have no key"))
                .add();
        }
    }
    if config("unclean.leader.election.enable").is_some_and(|value| value == "true") {
        judge
            .found("meta.unclean-election")
            .message("unclean leader election is allowed on the metadata topic")
            .add();
    }
    if config("remote.storage.enable").is_some_and(|value| value == "true") {
        judge.found("meta.tiered").message("remote.storage.enable is true on the metadata topic").add();
    }
    let Some(replicas) = topic.replication_factor else {
        judge.absent_wholly("meta.min-isr", Need::MetadataReplication);
        return;
    };
    if let Some(least) = number("min.insync.replicas").filter(|least| *least < 2 && replicas >= 3) {
        judge
            .found("meta.min-isr")
            .message(format!("min.insync.replicas is {least} with a replication factor of {replicas}"))
            .add();
    }
}

fn has(policy: &str, word: &str) -> bool {
    policy.split(',').any(|part| part.trim() == word)
}

fn replication(judge: &mut Judge<'_>, topic: &MetadataTopicFact) {
    let code = "meta.rf";
    let (Some(replicas), Some(brokers)) = (topic.replication_factor, topic.brokers) else {
        judge.absent_wholly(code, Need::MetadataReplication);
        return;
    };
    judge.checked(code);
    if replicas < brokers.min(3) {
        judge
            .found(code)
            .message(format!("the replication factor is {replicas}, with {brokers} brokers"))
            .add();
    }
}

fn under_replicated(judge: &mut Judge<'_>, topic: &MetadataTopicFact) {
    let code = "meta.under-replicated";
    if topic.under_replicated.is_none() && topic.offline.is_none() {
        judge.absent_wholly(code, Need::MetadataReplicas);
        return;
    }
    judge.checked(code);
    for (partitions, what) in [(&topic.under_replicated, "out of sync"), (&topic.offline, "offline")] {
        let Some(partitions) = partitions.as_ref().filter(|partitions| !partitions.is_empty()) else {
            continue;
        };
        let names: Vec<String> = partitions.iter().take(20).map(i32::to_string).collect();
        let more = if partitions.len() > names.len() { ", …" } else { "" };
        judge
            .found(code)
            .message(format!("a replica is {what} of metadata partitions {}{more}", names.join(", ")))
            .add();
    }
}

fn truncated_files(judge: &mut Judge<'_>, topic: &MetadataTopicFact) {
    let code = "meta.truncated-file";
    let Some(files) = &topic.truncated_files else {
        judge.absent_wholly(code, Need::MetadataFiles);
        return;
    };
    judge.checked(code);
    for file in files {
        let place = if file.last { "the last file" } else { "a file below the last one" };
        judge
            .found(code)
            .severity(if file.last { Severity::Risk } else { Severity::Damage })
            .message(format!(
                "{place} of metadata partition {} ends inside a batch: {}",
                file.metadata_partition, file.path
            ))
            .evidence(Evidence {
                metadata_partition: Some(file.metadata_partition),
                offset: file.next_offset,
                time_ms: None,
                what: "the offset after the last whole batch".to_owned(),
            })
            .add();
    }
}

fn null_keys(judge: &mut Judge<'_>) {
    let stats = judge.view.metadata_partitions();
    let records: u64 = stats.iter().map(|stats| stats.records).sum();
    let null: u64 = stats.iter().map(|stats| stats.null_keys).sum();
    if null > 0 {
        let message = format!("{null} of {records} records have no key");
        judge.found("meta.null-keys").message(message).add();
    }
}

/// Events about segments that are deleted, with the bytes of their values.
fn dead_share(judge: &mut Judge<'_>) {
    let (mut dead, mut bytes) = (0_u64, 0_u64);
    for segment in judge.view.partitions().flat_map(|of| of.segments()).filter(|of| !of.is_live()) {
        for event in segment.events() {
            dead += 1;
            let name = segment.topic().len() as u64;
            // The sizes of the two kinds of record value, custom metadata aside.
            bytes += match event.kind() {
                EventKind::SegmentMetadata => {
                    86 + name + 13 * event.content().map_or(1, |content| content.epochs.len() as u64)
                }
                EventKind::SegmentMetadataUpdate | EventKind::PartitionDeleteMetadata => 57 + name,
            };
        }
    }
    let all = judge.view.event_count() as u64;
    if dead > 0 {
        judge
            .found("meta.dead-share")
            .message(format!(
                "{dead} of {all} events ({} %) are about deleted segments",
                (dead * 100).checked_div(all).unwrap_or(0)
            ))
            .fact(format!("each start of a broker reads about {bytes} bytes of values for nothing"))
            .add();
    }
}

/// Brokers that lead partitions with waiting segments and write no events.
fn silent_brokers(judge: &mut Judge<'_>, subjects: &[Subject<'_>]) {
    let code = "meta.silent-broker";
    let mut waits: BTreeMap<i32, (Vec<String>, Option<i64>)> = BTreeMap::new();
    for subject in subjects.iter().filter(|subject| !subject.is_gone()) {
        if !judge.in_scope(subject.topic, subject.partition) {
            continue;
        }
        let Some(tiering) = subject.config("remote.storage.enable") else {
            judge.absent(code, Need::TopicConfigs, || subject.name());
            continue;
        };
        if tiering != "true" || subject.config("remote.log.copy.disable") == Some("true") {
            continue;
        }
        let Some(leader) = subject.log.and_then(|log| log.leader) else {
            judge.absent(code, Need::Leader, || subject.name());
            continue;
        };
        match waiting(subject) {
            Err(unproved) => unproved.note(judge, code, subject),
            Ok(None) => judge.checked(code),
            Ok(Some(waiting)) => {
                judge.checked(code);
                let entry = waits.entry(leader).or_default();
                entry.0.push(subject.name());
                entry.1 = [entry.1, waiting.newest_record_ms].into_iter().flatten().min();
            }
        }
    }
    if subjects.is_empty() {
        judge.absent_wholly(code, Need::Leader);
    }
    if waits.is_empty() {
        return;
    }
    let mut last: FxHashMap<i32, i64> = FxHashMap::default();
    for event in judge.view.partitions().flat_map(|of| of.events()) {
        let newest = last.entry(event.broker_id()).or_insert(i64::MIN);
        *newest = (*newest).max(event.timestamp_ms());
    }
    for (broker, (names, oldest)) in waits {
        // A broker that never wrote any is silent since its oldest waiting record at least.
        let Some(since) = last.get(&broker).copied().or(oldest) else { continue };
        let silent = judge.now_ms.saturating_sub(since);
        if silent <= judge.limits.silent_broker_ms {
            continue;
        }
        let shown = names.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
        judge
            .found(code)
            .message(format!("broker {broker} has written no event for {}", span(silent)))
            .fact(format!(
                "it leads {} with waiting segments: {shown}",
                count(names.len(), "partition", "partitions")
            ))
            .add();
    }
}

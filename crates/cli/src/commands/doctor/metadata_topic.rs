//! The health of the metadata topic, by the rules of `audit`.

use strandline_audit::{Facts, Limits, audit};
use strandline_log::{MetadataEventLog as _, PartitionMarks};
use strandline_meta::{Cluster, Topic};

use super::check::{Check, Section};
use super::rights::Found;
use crate::exit::Exit;
use crate::moment::Clock;
use crate::sources::{chain, metadata_topic_fact, no_event_among};
use crate::text::count;

/// What is checked by a rule of `audit`: the check, the rule, the configs that it looks at.
const RULED: [(&str, &str, &[&str]); 6] = [
    ("replicas", "meta.rf", &[]),
    ("in sync", "meta.under-replicated", &[]),
    ("min ISR", "meta.min-isr", &["min.insync.replicas"]),
    ("retention", "meta.retention", &["retention.ms", "retention.bytes"]),
    ("cleanup", "meta.cleanup-policy", &["cleanup.policy"]),
    ("election", "meta.unclean-election", &["unclean.leader.election.enable"]),
];

/// How the topic is, as far as it can be seen.
pub(super) fn check(cluster: &Cluster, name: &str, found: &Found, clock: &Clock) -> Vec<Check> {
    let section = Section::MetadataTopic;
    let Some(log) = &found.log else {
        let check = if found.absent {
            let detail = "there is none: no broker of this cluster has tiered storage on, or the topic has another name";
            Check::failed(section, "topic", Exit::Unsupported, detail)
                .help("--metadata-topic NAME names another; tiered storage takes remote.log.storage.system.enable=true on the brokers")
        } else {
            Check::skipped(section, "topic", "it cannot be seen")
        };
        return vec![check.subject(name)];
    };
    let view = cluster.snapshot();
    let marks: Vec<PartitionMarks> = found.marks.iter().flatten().copied().collect();
    let mut checks = Vec::new();
    let id = log.topic_id().map(|id| format!(", id {id}")).unwrap_or_default();
    let partitions = count(u64::from(log.partition_count().unsigned_abs()), "partition");
    checks.push(Check::ok(section, "topic", format!("{partitions}{id}")));
    checks.extend(view.topic(name).map(leaders));
    checks.push(offsets(found, &marks));

    let facts = Facts {
        metadata_topic: Some(metadata_topic_fact(&view, log, &marks, found.configs.clone())),
        ..Facts::default()
    };
    let report = audit(&found.sample, &facts, &Limits::default(), clock.now_ms);
    for (check, code, configs) in RULED {
        let value = |config: &&str| {
            let value = found.configs.as_ref()?.get(*config)?;
            Some(format!("{config}={value}"))
        };
        let values: Vec<String> = configs.iter().filter_map(value).collect();
        let fact = facts.metadata_topic.as_ref();
        let replicas = fact.and_then(|fact| fact.replication_factor).unwrap_or_default();
        let detail = match code {
            "meta.rf" => format!("{replicas} of each partition, on {} brokers", view.brokers().len()),
            "meta.under-replicated" => "every replica".to_owned(),
            _ => values.join(", "),
        };
        let finding = report.findings.iter().find(|finding| finding.code == code);
        let unknown = report.not_checked.iter().find(|rule| rule.code == code);
        checks.push(match (finding, unknown) {
            (Some(finding), _) => {
                let detail = format!("{} {code}: {}", finding.severity, finding.message);
                Check::warning(section, check, detail).help(finding.next.clone().into_owned())
            }
            (None, Some(unknown)) => Check::skipped(section, check, unknown.reason.clone()),
            (None, None) => Check::ok(section, check, detail),
        });
    }
    checks.push(tiering(found, clock));
    checks.into_iter().map(|check| check.subject(name)).collect()
}

fn leaders(topic: &Topic) -> Check {
    let section = Section::MetadataTopic;
    let without: Vec<String> = topic
        .partitions
        .iter()
        .filter(|partition| partition.leader.is_none())
        .map(|partition| partition.index.to_string())
        .collect();
    if without.is_empty() {
        let mut brokers: Vec<i32> =
            topic.partitions.iter().filter_map(|partition| partition.leader).collect();
        brokers.sort_unstable();
        brokers.dedup();
        return Check::ok(
            section,
            "leaders",
            format!("each partition has one, on {}", count(brokers.len() as u64, "broker")),
        );
    }
    let some = without.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
    let more = if without.len() > 20 { ", …" } else { "" };
    Check::failed(section, "leaders", Exit::Incomplete, format!("partitions {some}{more} have none"))
        .help("their replicas are all offline: bring a broker back that has one")
}

fn offsets(found: &Found, marks: &[PartitionMarks]) -> Check {
    let section = Section::MetadataTopic;
    let records = marks.iter().fold(0_u64, |sum, mark| {
        let here = mark.high_watermark.saturating_sub(mark.log_start_offset).max(0).unsigned_abs();
        sum.saturating_add(here)
    });
    let trimmed = marks.iter().filter(|mark| mark.log_start_offset > 0).count() as u64;
    let trimmed = match trimmed {
        0 => "none trimmed".to_owned(),
        trimmed => format!("{} begin above offset 0", count(trimmed, "partition")),
    };
    let detail = format!("{} below the high watermarks, {trimmed}", count(records, "offset"));
    let failures: Vec<_> = found.marks.iter().filter_map(|mark| mark.as_ref().err()).collect();
    match failures.first() {
        None => Check::ok(section, "offsets", detail),
        Some(first) => {
            let failed = count(failures.len() as u64, "partition");
            let detail = format!("no answer about {failed}; {}", chain(*first));
            Check::failed(section, "offsets", Exit::Incomplete, detail)
        }
    }
}

/// Whether tiering appears to be on: events, and topics that ask for it.
fn tiering(found: &Found, clock: &Clock) -> Check {
    let section = Section::MetadataTopic;
    let topics = match found.tiered {
        Some(0) => "no topic has remote.storage.enable=true".to_owned(),
        Some(tiered) => format!("{} with remote.storage.enable=true", count(tiered as u64, "topic")),
        None => "which topics have it on is not known".to_owned(),
    };
    let events = found.sample.partitions().flat_map(|of| of.events().collect::<Vec<_>>());
    let Some(newest) = events.max_by_key(|event| event.timestamp_ms()) else {
        if let Some(none) = no_event_among(&found.sample) {
            return Check::failed(section, "tiering", Exit::Unsupported, format!("{none}; {topics}"))
                .help("this is another topic, or something else was written to it: --metadata-topic names the right one");
        }
        let detail = format!("no event can be seen; {topics}");
        return Check::warning(section, "tiering", detail)
            .help("nothing was ever copied, or other rights than these are needed to see it");
    };
    let detail = format!(
        "the newest event is {} old, by broker {}; {topics}",
        clock.age(newest.timestamp_ms()),
        newest.broker_id()
    );
    if found.tiered == Some(0) {
        let help = "events of the past are there, and no topic is tiered now: `status` says what is left";
        return Check::warning(section, "tiering", detail).help(help);
    }
    Check::ok(section, "tiering", detail)
}

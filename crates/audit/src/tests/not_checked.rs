//! A rule whose facts are absent says so.

use super::dsl::World;
use crate::Need;

/// `code: reason`, one line each.
fn not_checked(script: &str) -> String {
    let report = World::parse(script).report();
    report.not_checked.iter().map(|entry| format!("{}: {}\n", entry.code, entry.reason)).collect()
}

#[test]
fn events_alone_leave_every_rule_unchecked_that_needs_more() {
    insta::assert_snapshot!(not_checked("
        copy-started a 0..=99
        copy-finished a
    "), @"
    event.misplaced: the metadata topic's partition count not known
    seg.not-in-lineage: the leader's epochs not known (orders:0)
    part.gap-to-local: the leader's log start offset not known (orders:0)
    part.gap-to-local: the leader's local start offset not known (orders:0)
    part.start-mismatch: the leader's log start offset not known (orders:0)
    part.diverged-tail: the leader's epochs not known (orders:0)
    part.retention-blocked: the topic's configs not known (orders:0)
    part.retention-blocked: the leader's epochs not known (orders:0)
    part.retention-overdue: the topic's configs not known (orders:0)
    part.retention-overdue: the leader's epochs not known (orders:0)
    part.no-upload: the topic's configs not known (orders:0)
    part.copy-lag: the topic's configs not known (orders:0)
    part.replica-not-purging: the topic's configs not known (orders:0)
    topic.id-unknown: the cluster's topics and their ids not known (orders)
    topic.disabled-with-data: the topic's configs not known (orders)
    obj.missing: the store's listing not known
    obj.partial-set: the store's listing not known
    obj.size-mismatch: the store's listing not known
    obj.orphan: the store's listing not known
    obj.deleted-but-present: the store's listing not known
    obj.unknown-key: the store's listing not known
    obj.foreign-cluster: the store's listing not known
    meta.partition-count: the metadata topic's partition count not known
    meta.trimmed: the metadata topic's log start offsets not known
    meta.retention: the metadata topic's configs not known
    meta.cleanup-policy: the metadata topic's configs not known
    meta.rf: the metadata topic's replication factor and the number of brokers not known
    meta.min-isr: the metadata topic's configs not known
    meta.min-isr: the metadata topic's replication factor and the number of brokers not known
    meta.unclean-election: the metadata topic's configs not known
    meta.under-replicated: the metadata topic's replicas in sync not known
    meta.silent-broker: the topic's configs not known (orders:0)
    meta.truncated-file: the metadata topic's files not known
    meta.tiered: the metadata topic's configs not known
    ");
}

#[test]
fn an_empty_reading_without_facts_leaves_the_same_rules_unchecked() {
    insta::assert_snapshot!(not_checked(""), @"
    event.misplaced: the metadata topic's partition count not known
    seg.not-in-lineage: the leader's epochs not known
    part.gap-to-local: the leader's log start offset not known
    part.gap-to-local: the leader's local start offset not known
    part.start-mismatch: the leader's log start offset not known
    part.diverged-tail: the leader's epochs not known
    part.retention-blocked: the topic's configs not known
    part.retention-blocked: the leader's epochs not known
    part.retention-overdue: the topic's configs not known
    part.retention-overdue: the leader's epochs not known
    part.no-upload: the topic's configs not known
    part.no-upload: the local logs' segments or bytes (log directories) not known
    part.copy-lag: the topic's configs not known
    part.copy-lag: the local logs' segments or bytes (log directories) not known
    part.replica-not-purging: the topic's configs not known
    part.replica-not-purging: the local logs' segments or bytes (log directories) not known
    topic.id-unknown: the cluster's topics and their ids not known
    topic.disabled-with-data: the topic's configs not known
    obj.missing: the store's listing not known
    obj.partial-set: the store's listing not known
    obj.size-mismatch: the store's listing not known
    obj.orphan: the store's listing not known
    obj.deleted-but-present: the store's listing not known
    obj.unknown-key: the store's listing not known
    obj.foreign-cluster: the store's listing not known
    meta.partition-count: the metadata topic's partition count not known
    meta.trimmed: the metadata topic's log start offsets not known
    meta.retention: the metadata topic's configs not known
    meta.cleanup-policy: the metadata topic's configs not known
    meta.rf: the metadata topic's replication factor and the number of brokers not known
    meta.min-isr: the metadata topic's configs not known
    meta.min-isr: the metadata topic's replication factor and the number of brokers not known
    meta.unclean-election: the metadata topic's configs not known
    meta.under-replicated: the metadata topic's replicas in sync not known
    meta.silent-broker: the partition's leader not known
    meta.truncated-file: the metadata topic's files not known
    meta.tiered: the metadata topic's configs not known
    ");
}

#[test]
fn facts_about_some_partitions_are_told_as_such() {
    insta::assert_snapshot!(not_checked("
        metadata-partitions 5
        meta rf=1 brokers=1 starts=0,0,-,0,0 under-replicated=none offline=none truncated=none
        meta retention.ms=-1 cleanup.policy=delete min.insync.replicas=2 unclean.leader.election.enable=false remote.storage.enable=false
        topics complete
        topic orders remote.storage.enable=true retention.ms=-1 segment.bytes=1000 local.retention.ms=-2
        topic payments remote.storage.enable=true retention.ms=-1 segment.bytes=1000 local.retention.ms=-2
        copy-started a 0..=99
        copy-finished a
        log orders:0 start=0 local=100 end=200 epochs=0:0 leader=1
        local orders:0 broker=1 segments=100:1000:1m
        partition orders:1
        copy-started b 0..=99
        copy-finished b
        log orders:1 start=0 end=200 leader=1
        local orders:1 broker=1 size=500
        partition payments:0
        copy-started c 0..=99
        copy-finished c
        store
        object a log
    "), @"
    seg.not-in-lineage: the leader's epochs not known for 2 (orders:1, payments:0)
    part.gap-to-local: the leader's log start offset not known for 1 (payments:0)
    part.gap-to-local: the leader's local start offset not known for 2 (orders:1, payments:0)
    part.start-mismatch: the leader's log start offset not known for 1 (payments:0)
    part.diverged-tail: the leader's epochs not known for 2 (orders:1, payments:0)
    part.retention-blocked: the leader's epochs not known for 2 (orders:1, payments:0)
    part.retention-overdue: the leader's epochs not known for 2 (orders:1, payments:0)
    part.no-upload: the local logs' segments or bytes (log directories) not known for 1 (payments:0)
    part.no-upload: the local bytes do not tell whether segments wait, their files (log directories) would (orders:1)
    part.copy-lag: the local logs' segments or bytes (log directories) not known for 1 (payments:0)
    part.copy-lag: the local bytes do not tell whether segments wait, their files (log directories) would (orders:1)
    part.replica-not-purging: the local logs' segments or bytes (log directories) not known for 2 (orders:1, payments:0)
    obj.missing: a listing of the store that came to its end not known
    obj.partial-set: a listing of the store that came to its end not known
    obj.size-mismatch: the plugin of this layout transforms segments, so that sizes differ
    meta.trimmed: the metadata topic's log start offsets not known for 1 (metadata partition 2)
    meta.silent-broker: the partition's leader not known for 1 (payments:0)
    meta.silent-broker: the local bytes do not tell whether segments wait, their files (log directories) would (orders:1)
    ");
}

#[test]
fn all_facts_leave_nothing_unchecked() {
    insta::assert_snapshot!(not_checked("
        metadata-partitions 5
        meta configured=5 rf=1 brokers=1 starts=0,0,0,0,0 under-replicated=none offline=none truncated=none
        meta retention.ms=-1 cleanup.policy=delete min.insync.replicas=2 unclean.leader.election.enable=false remote.storage.enable=false
        topics complete
        topic orders remote.storage.enable=true retention.ms=-1 segment.bytes=1000 local.retention.ms=-2
        copy-started a 0..=99
        copy-finished a
        log orders:0 start=0 local=100 end=200 epochs=0:0 leader=1
        local orders:0 broker=1 segments=100:1000:1m
        store complete exact
        object a all
    "), @"");
}

#[test]
fn a_reading_of_some_partitions_finds_neither_orphans_nor_misplaced_events() {
    let script = "
        partial
        metadata-partitions 5
        copy-started a 0..=99
        copy-finished a
        store complete exact
        object a all
        object b all
    ";
    assert_eq!(super::above_info(script), "");
    let not_checked = not_checked(script);
    for code in ["event.misplaced", "obj.orphan", "obj.foreign-cluster"] {
        assert!(
            not_checked.contains(&format!("{code}: every event of the metadata topic not known")),
            "{not_checked}"
        );
    }
}

#[test]
fn an_empty_metadata_read_against_a_full_store_gives_no_orphans() {
    let script = "
        store complete exact
        object a all
    ";
    assert_eq!(super::findings(script), "");
    assert!(not_checked(script).contains("obj.orphan: no metadata event was read"));
}

#[test]
fn a_listing_cut_short_proves_nothing_missing() {
    let script = "
        copy-started a 0..=99
        copy-finished a
        store exact
    ";
    assert_eq!(super::above_info(script), "");
    assert!(
        not_checked(script).contains("obj.missing: a listing of the store that came to its end not known")
    );
}

#[test]
fn a_topic_that_may_not_be_seen_is_neither_gone_nor_there() {
    let script = "
        now 10h
        topic payments
        copy-started a 0..=99
        copy-finished a
    ";
    assert_eq!(super::above_info(script), "");
    assert!(
        not_checked(script)
            .contains("topic.id-unknown: the cluster's topics and their ids not known (orders)")
    );
}

#[test]
fn a_missing_right_is_named_beside_what_it_withholds() {
    let mut world = World::parse(
        "
        copy-started a 0..=99
        copy-finished a
    ",
    );
    world.facts.missing_rights.insert(Need::TopicIds, "DESCRIBE on the topic");
    world.facts.missing_rights.insert(Need::MetadataConfigs, "DESCRIBE_CONFIGS on the metadata topic");
    let report = world.report();
    let told: Vec<String> = report
        .not_checked
        .iter()
        .filter(|entry| entry.reason.contains("right"))
        .map(|entry| format!("{}: {}", entry.code, entry.reason))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    topic.id-unknown: the cluster's topics and their ids not known (orders): missing right: DESCRIBE on the topic
    meta.retention: the metadata topic's configs not known: missing right: DESCRIBE_CONFIGS on the metadata topic
    meta.cleanup-policy: the metadata topic's configs not known: missing right: DESCRIBE_CONFIGS on the metadata topic
    meta.min-isr: the metadata topic's configs not known: missing right: DESCRIBE_CONFIGS on the metadata topic
    meta.unclean-election: the metadata topic's configs not known: missing right: DESCRIBE_CONFIGS on the metadata topic
    meta.tiered: the metadata topic's configs not known: missing right: DESCRIBE_CONFIGS on the metadata topic
    ");
}

#[test]
fn the_reasons_of_a_selection_name_no_other_partition_and_come_in_order() {
    let script: String = [11, 2, 0, 5, 7, 1]
        .map(|partition| {
            format!(
                "partition orders:{partition}\ncopy-started a{partition} 0..=99\ncopy-finished a{partition}\n"
            )
        })
        .concat();
    let reasons = |scope: &dyn Fn(&str, i32) -> bool| {
        let world = World::parse(&script);
        let (limits, now_ms) = (world.limits, world.now_ms);
        let (view, facts) = world.view();
        let report = crate::audit_within(&view, &facts, &limits, now_ms, scope);
        let of = |code: &str| {
            let entry = report.not_checked.iter().find(|entry| entry.code == code);
            entry.map_or_else(String::new, |entry| entry.reason.clone())
        };
        [of("part.no-upload"), of("meta.silent-broker"), of("topic.id-unknown")].join("\n")
    };
    insta::assert_snapshot!(reasons(&|_, _| true), @"
    the topic's configs not known (orders:0, orders:1, orders:2 and 3 more)
    the topic's configs not known (orders:0, orders:1, orders:2 and 3 more)
    the cluster's topics and their ids not known (orders)
    ");
    insta::assert_snapshot!(reasons(&|topic, partition| (topic, partition) == ("orders", 7)), @"
    the topic's configs not known (orders:7)
    the topic's configs not known (orders:7)
    the cluster's topics and their ids not known (orders)
    ");
    insta::assert_snapshot!(reasons(&|topic, _| topic == "payments"), @"
    the topic's configs not known

    the cluster's topics and their ids not known
    ");
}

//! Tens of thousands of segments in one partition, in shapes that a quadratic judge would not get through.

use super::dsl::World;
use crate::*;

const SEGMENTS: i64 = 20_000;

/// How many findings there are of each code, for segments whose range comes from their number.
fn codes(range: impl Fn(i64) -> (i64, i64)) -> Vec<(&'static str, usize)> {
    let mut world = World::parse("now 10m");
    for n in 0..SEGMENTS {
        let (start, end) = range(n);
        world.finished_copy(n as u128 + 1, start, end);
    }
    count(&world.report())
}

fn count(report: &Report) -> Vec<(&'static str, usize)> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for finding in &report.findings {
        assert!(finding.evidence.len() <= Finding::EVIDENCE_MAX);
        *counts.entry(finding.code).or_default() += 1;
    }
    counts.into_iter().collect()
}

#[test]
fn a_long_chain_is_clean() {
    assert_eq!(codes(|n| (n * 10, n * 10 + 9)), [("meta.null-keys", 1)]);
}

#[test]
fn a_gap_after_each_segment_is_told_each() {
    let found = codes(|n| (n * 10, n * 10 + 4));
    assert_eq!(found, [("meta.null-keys", 1), ("part.gap", SEGMENTS as usize - 1)]);
}

#[test]
fn segments_that_all_begin_at_one_offset_shadow_each_other() {
    let found = codes(|n| (0, 2 * SEGMENTS - n));
    let others = SEGMENTS as usize - 1;
    assert_eq!(
        found,
        [
            ("meta.null-keys", 1),
            ("part.hole-in-epoch", 1),
            ("seg.contained", others),
            ("seg.shadowed", others)
        ]
    );
}

#[test]
fn segments_inside_one_large_segment_leave_holes_between_them() {
    let found = codes(|n| if n == 0 { (0, 10 * SEGMENTS) } else { (n * 10, n * 10 + 4) });
    let others = SEGMENTS as usize - 1;
    assert_eq!(found, [("meta.null-keys", 1), ("part.hole-in-epoch", others), ("seg.contained", others)]);
}

#[test]
fn every_object_of_a_large_store_may_be_an_orphan() {
    let mut world = World::parse("copy-started a 0..=99\nstore complete exact");
    for n in 0..SEGMENTS {
        world.stray_object(n as u128 + 1);
    }
    assert_eq!(count(&world.report()), [("meta.null-keys", 1), ("obj.orphan", SEGMENTS as usize)]);
}

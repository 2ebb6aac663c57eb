//! What a broker's look-ups answer, as ranges.

use rustc_hash::FxHashSet;

/// Offsets of one leader epoch that a look-up answers with one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadableRange {
    /// The leader epoch.
    pub epoch: i32,
    /// The first offset.
    pub start_offset: i64,
    /// The last offset, inclusive.
    pub end_offset: i64,
    pub(crate) segment: u32,
}

/// What look-ups of one user partition answer: the index of a broker that has read every event, flattened.
#[derive(Clone, Debug, Default)]
pub struct Readable {
    /// By epoch, then by offset; ranges of one epoch do not touch each other's offsets.
    pub(crate) ranges: Vec<ReadableRange>,
    /// By epoch: the highest offset ever copied.
    pub(crate) highest: Vec<(i32, i64)>,
    /// Segments that a per-epoch list returns.
    pub(crate) listed: FxHashSet<u32>,
}

impl Readable {
    /// Every range, by epoch, then by offset.
    pub fn ranges(&self) -> &[ReadableRange] {
        &self.ranges
    }

    /// The ranges of one leader epoch, by offset.
    pub fn epoch(&self, epoch: i32) -> &[ReadableRange] {
        let start = self.ranges.partition_point(|range| range.epoch < epoch);
        let len = self.ranges[start..].partition_point(|range| range.epoch == epoch);
        &self.ranges[start..start + len]
    }

    /// The range that serves `offset` at the leader epoch.
    pub fn find(&self, epoch: i32, offset: i64) -> Option<&ReadableRange> {
        let ranges = self.epoch(epoch);
        let at = ranges.partition_point(|range| range.start_offset <= offset).checked_sub(1)?;
        (offset <= ranges[at].end_offset).then(|| &ranges[at])
    }

    /// The highest offset ever copied in the leader epoch, inclusive; deletions do not lower it.
    pub fn highest_offset(&self, epoch: i32) -> Option<i64> {
        let at = self.highest.binary_search_by_key(&epoch, |(epoch, _)| *epoch).ok()?;
        Some(self.highest[at].1)
    }

    /// Every leader epoch that has a highest offset.
    pub fn leader_epochs(&self) -> impl Iterator<Item = i32> + '_ {
        self.highest.iter().map(|(epoch, _)| *epoch)
    }
}

/// Sorted intervals of offsets, both ends inclusive, none touching another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<(i64, i64)>);

impl Intervals {
    /// Joins what overlaps or adjoins.
    pub fn new(mut parts: Vec<(i64, i64)>) -> Self {
        parts.retain(|(start, end)| start <= end);
        parts.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(parts.len().min(16));
        for (start, end) in parts {
            match joined.last_mut() {
                Some(last) if start <= last.1.saturating_add(1) => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        Self(joined)
    }

    /// All of them, by offset.
    pub fn as_slice(&self) -> &[(i64, i64)] {
        &self.0
    }

    /// The lowest offset that is held.
    pub fn first(&self) -> Option<i64> {
        self.0.first().map(|(start, _)| *start)
    }

    /// The highest offset that is held.
    pub fn last(&self) -> Option<i64> {
        self.0.last().map(|(_, end)| *end)
    }

    /// The parts of `start..=end` that no interval holds.
    pub fn missing(&self, start: i64, end: i64) -> Vec<(i64, i64)> {
        let mut missing = Vec::new();
        let mut next = start;
        let first = self.0.partition_point(|(_, last)| *last < start);
        for (from, to) in &self.0[first..] {
            if *from > end || next > end {
                break;
            }
            if next < *from {
                missing.push((next, from - 1));
            }
            match to.checked_add(1) {
                Some(after) => next = next.max(after),
                None => return missing,
            }
        }
        if next <= end {
            missing.push((next, end));
        }
        missing
    }

    /// The parts of `start..=end` that are held.
    pub fn within(&self, start: i64, end: i64) -> Vec<(i64, i64)> {
        let first = self.0.partition_point(|(_, last)| *last < start);
        let held = self.0[first..].iter().take_while(|(from, _)| *from <= end);
        held.map(|(from, to)| (*from.max(&start), *to.min(&end))).collect()
    }

    /// True when every offset of `start..=end` is held.
    pub fn hold(&self, start: i64, end: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < start);
        self.0.get(at).is_some_and(|(from, to)| *from <= start && end <= *to)
    }
}

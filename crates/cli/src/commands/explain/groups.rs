//! Where consumer groups stand: in the local log, only in the tier, or where nothing serves them.

use serde::Serialize;
use strandline_audit::{LogFact, PartitionView};

use super::offset::epoch_at;
use super::{Asked, Explanation};

/// A group and what serves its next offset.
#[derive(Clone, Serialize)]
pub(super) struct GroupRow {
    group: String,
    state: Option<String>,
    /// The offset that it will read next.
    next_offset: i64,
    /// `local`, `tier`, `hole`, `below-log-start`, `beyond-end`, or `unknown`.
    place: &'static str,
    /// The segment that serves it, where only the tier does.
    segment_id: Option<String>,
    /// Offsets from the next one to the end of the log; some of them may be gaps.
    lag: Option<i64>,
}

/// What serves an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The leader's local log, or its end.
    Local,
    /// Only this segment of the tier.
    Tier(strandline_tier::Uuid),
    /// Nothing: the tier and the local log lack it. The first offset of the hole tells it from others.
    Hole(i64),
    /// Nothing any more.
    BelowLogStart,
    /// Nothing yet: the log ends below.
    BeyondEnd,
    /// The tier does not have it, and where the local log begins is not known.
    Unknown,
}

impl Place {
    fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Tier(_) => "tier",
            Self::Hole(_) => "hole",
            Self::BelowLogStart => "below-log-start",
            Self::BeyondEnd => "beyond-end",
            Self::Unknown => "unknown",
        }
    }

    /// A consumer that asks here is refused.
    fn is_refused(self) -> bool {
        matches!(self, Self::Hole(_) | Self::BelowLogStart | Self::BeyondEnd)
    }
}

impl GroupRow {
    /// Where it stands, as a cell of the table.
    pub(super) fn cells(&self) -> Vec<String> {
        let place = match (self.place, &self.segment_id) {
            ("tier", Some(segment)) => format!("only in the tier, segment {segment}"),
            ("hole", _) => "in a hole: nothing serves it".to_owned(),
            ("below-log-start", _) => "below the log start: nothing serves it".to_owned(),
            ("beyond-end", _) => "beyond the end of the log".to_owned(),
            ("local", _) => "in the local log".to_owned(),
            _ => "not in the tier; the local log is not known".to_owned(),
        };
        vec![
            self.group.clone(),
            self.state.clone().unwrap_or_else(|| "-".to_owned()),
            self.next_offset.to_string(),
            self.lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
            place,
        ]
    }

    /// Whether the screen shows it: in the local log all is well.
    pub(super) fn matters(&self) -> bool {
        self.place != "local"
    }
}

impl<'a> Asked<'a> {
    /// Adds the groups of a partition, and says of those that nothing serves what becomes of them.
    pub(super) fn add_groups(
        &self,
        explanation: &mut Explanation,
        topic: &str,
        partition: i32,
        view: Option<&PartitionView<'a>>,
        log: Option<&LogFact>,
    ) {
        let rows = self.groups(topic, partition, view, log);
        let refused = rows.iter().filter(|(place, _)| place.is_refused()).count();
        let in_tier = rows.iter().filter(|(place, _)| matches!(place, Place::Tier(_))).count();
        let groups = |count: usize| crate::text::count(count as u64, "consumer group");
        if refused > 0 {
            explanation.reasons.push(format!("{} where nothing serves the next offset", stand(refused)));
            let refusal = "a group that stands where nothing serves gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it";
            explanation.effect.get_or_insert_with(|| refusal.to_owned());
        }
        if in_tier > 0 {
            explanation.reasons.push(format!("{} where only the tier has the next offset", stand(in_tier)));
        }
        if refused + in_tier == 0 && self.judged.collected.facts.groups_complete {
            explanation.reasons.push(match rows.len() {
                0 => "no consumer group has committed an offset".to_owned(),
                all => format!("{}: none needs the tier for its next offset", groups(all)),
            });
        }
        explanation.groups.extend(rows.into_iter().map(|(_, row)| row));
    }

    /// Adds the groups that stand at an offset, or in the same hole or segment.
    pub(super) fn add_groups_at(
        &self,
        explanation: &mut Explanation,
        offset: i64,
        topic: &str,
        partition: i32,
        view: Option<&PartitionView<'a>>,
        log: Option<&LogFact>,
    ) {
        let here = place(view, log, offset);
        let mut rows = self.groups(topic, partition, view, log);
        // In the local log neighbours mean nothing.
        rows.retain(|(place, row)| row.next_offset == offset || (*place == here && *place != Place::Local));
        let exactly = rows.iter().filter(|(_, row)| row.next_offset == offset).count();
        let beside = rows.len() - exactly;
        if exactly > 0 {
            explanation.reasons.push(format!("{} exactly here", stand(exactly)));
        }
        if beside > 0 {
            let where_to = match here {
                Place::Hole(_) => "in the same hole",
                Place::Tier(_) => "in the same segment",
                _ => "there as well",
            };
            explanation.reasons.push(format!("{} {where_to}", stand(beside)));
        }
        explanation.groups.extend(rows.into_iter().map(|(_, row)| row));
    }

    fn groups(
        &self,
        topic: &str,
        partition: i32,
        view: Option<&PartitionView<'a>>,
        log: Option<&LogFact>,
    ) -> Vec<(Place, GroupRow)> {
        let facts = &self.judged.collected.facts;
        // Groups commit for a name; what an earlier topic of this name left in the tier is not theirs.
        let known = facts.topics.iter().rev().find(|fact| fact.topic == topic);
        let other = |fact: &strandline_audit::TopicFact| {
            fact.absent || matches!((fact.topic_id, view), (Some(id), Some(view)) if id != view.topic_id())
        };
        if known.is_some_and(other) {
            return Vec::new();
        }
        let end = log.and_then(|log| log.log_end_offset);
        let here =
            facts.group_offsets.iter().filter(|group| group.topic == topic && group.partition == partition);
        let mut rows: Vec<(Place, GroupRow)> = here
            .map(|group| {
                let place = place(view, log, group.next_offset);
                let segment_id = match place {
                    Place::Tier(segment) => Some(segment.to_string()),
                    _ => None,
                };
                let row = GroupRow {
                    group: group.group.clone(),
                    state: group.state.clone(),
                    next_offset: group.next_offset,
                    place: place.word(),
                    segment_id,
                    lag: end.map(|end| end.saturating_sub(group.next_offset).max(0)),
                };
                (place, row)
            })
            .collect();
        rows.sort_by(|(_, a), (_, b)| (a.next_offset, &a.group).cmp(&(b.next_offset, &b.group)));
        rows
    }
}

fn stand(count: usize) -> String {
    match count {
        1 => "1 consumer group stands".to_owned(),
        many => format!("{many} consumer groups stand"),
    }
}

/// What serves an offset, in the order in which a broker asks: its log, then the tier.
fn place(view: Option<&PartitionView<'_>>, log: Option<&LogFact>, offset: i64) -> Place {
    let log_start = log.and_then(|log| log.log_start_offset);
    let local_start = log.and_then(|log| log.local_start_offset);
    if log_start.is_some_and(|start| offset < start) {
        return Place::BelowLogStart;
    }
    if let Some(end) = log.and_then(|log| log.log_end_offset).filter(|end| offset >= *end) {
        // Who has read everything waits at the end.
        return if offset == end { Place::Local } else { Place::BeyondEnd };
    }
    if local_start.is_some_and(|start| offset >= start) {
        return Place::Local;
    }
    let lineage = log.and_then(|log| epoch_at(log, offset));
    let found = view.and_then(|view| {
        let mut served = view.find_at_any_epoch(offset);
        match lineage {
            Some(epoch) => served.find(|(of, _)| *of == epoch),
            None => served.last(),
        }
    });
    match (found, local_start) {
        (Some((_, segment)), _) => Place::Tier(segment.id()),
        (None, None) => Place::Unknown,
        (None, Some(_)) => {
            let ranges = view.map(|view| view.readable().ranges()).unwrap_or_default();
            let below = ranges.iter().map(|range| range.end_offset).filter(|end| *end < offset).max();
            Place::Hole(below.map_or(0, |end| end.saturating_add(1)).max(log_start.unwrap_or(0)))
        }
    }
}

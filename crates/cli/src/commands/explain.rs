//! `explain`: what serves an offset, or the exact reason why nothing does; what a segment, an object, a partition is.

mod groups;
mod object;
mod offset;
mod partition;
mod segment;
mod uploads;

use serde::Serialize;
use strandline_audit::{Finding, Limits, LogFact, NotKnown, PartitionView, SegmentView, Severity};
use strandline_tier::Uuid;

use super::audit::{groups, show_brief, show_group};
use crate::address::{Address, Selection};
use crate::args::{DisplayArgs, ExplainArgs};
use crate::exit::{Exit, Failure};
use crate::judge::{Judged, judge};
use crate::output::{Form, Grid, Output};
use crate::segment_row::{EventRow, SegmentRow, grid};
use crate::sources::{Request, Source, StoreSource, names_nothing};
use crate::text::{count, escape};

const SCHEMA: &str = "strandline.explain/v1";
/// How many segments the screen shows of one answer; the JSON forms hold all.
const SEGMENTS_SHOWN_MAX: usize = 20;
/// How many consumer groups it shows.
const GROUPS_SHOWN_MAX: usize = 20;

/// The answer to one question.
#[derive(Default, Serialize)]
struct Explanation {
    /// What was asked for: `offset`, `partition`, `segment` or `object`.
    kind: &'static str,
    /// What was asked for, in words.
    subject: String,
    /// The answer in one sentence.
    summary: String,
    /// How it comes to that, one sentence each.
    reasons: Vec<String>,
    /// What it means for a consumer, where nothing serves it.
    effect: Option<String>,
    /// Which segment a look-up returns, by leader epoch.
    served_by: Vec<Served>,
    /// The segments concerned.
    segments: Vec<SegmentRow>,
    /// What the log says about them.
    events: Vec<EventRow>,
    /// Their objects, where a store was read.
    objects: Vec<ObjectRow>,
    /// The transaction that holds the last stable offset, and so uploads, back.
    open_transaction: Option<TransactionRow>,
    /// The consumer groups that stand in the partition, or at the offset.
    groups: Vec<groups::GroupRow>,
    /// What was asked for and may not be seen.
    not_known: Vec<NotKnown>,
    /// What is wrong about it.
    findings: Vec<Finding>,
}

/// An open transaction.
#[derive(Serialize)]
struct TransactionRow {
    transactional_id: Option<String>,
    producer_id: i64,
    /// The broker that coordinates it.
    coordinator: Option<i32>,
    state: Option<String>,
    /// Its first offset in the partition.
    first_offset: Option<i64>,
    start_time: Option<String>,
    timeout_ms: Option<i64>,
    /// When its producer last wrote to the partition.
    last_write_time: Option<String>,
}

/// A look-up's answer.
#[derive(Serialize)]
struct Served {
    leader_epoch: i32,
    /// True when the leader's lineage has this epoch at the offset; null where the lineage is not known.
    in_lineage: Option<bool>,
    segment_id: String,
    start_offset: i64,
    end_offset: i64,
}

/// An object of a segment.
#[derive(Serialize)]
struct ObjectRow {
    role: &'static str,
    key: Option<String>,
    size_bytes: Option<i64>,
    present: bool,
    required: bool,
}

/// Answers the question that the address is.
pub(crate) fn run(args: &ExplainArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    let clock = output.clock.clone();
    let address = Address::parse(&args.address, &clock)?;
    // A segment or a key may lie anywhere, so all is read; a partition narrows what has to be.
    let narrowed = [args.address.clone()];
    let selection = match address {
        Address::Partition(..) | Address::Position(..) => Selection::parse(&narrowed, &[], &clock)?,
        _ => Selection::default(),
    };
    let source = Source::choose(&args.source)?;
    let store = StoreSource::open(&args.source.store)?;
    let who = match address {
        Address::Segment(..) | Address::Key(..) => None,
        Address::Topic(..) | Address::Partition(..) | Address::Position(..) | Address::TopicOrSegment(..) => {
            Some(Selection::parse(&narrowed, &[], &clock)?)
        }
    };
    let request = Request {
        args: &args.source,
        selection: &selection,
        now_ms: clock.now_ms,
        who: who.as_ref(),
        progress: display.progress,
    };
    let judged = judge(&source, store.as_ref(), &request, &Limits::default())?;
    let asked = Asked { judged: &judged, output };
    let mut explanations = match &address {
        Address::Position(topic, partition, at) => asked.offset(topic, *partition, *at),
        Address::Partition(topic, partition) => {
            asked.partitions(|name, of| topic.matches(name) && *partition == of)
        }
        Address::Topic(topic) => asked.partitions(|name, _| topic.matches(name)),
        Address::Segment(id) => asked.segment(*id),
        Address::TopicOrSegment(name, id) => {
            let topic = asked.partitions(|other, _| name == other);
            if topic.is_empty() { asked.segment(*id) } else { topic }
        }
        Address::Key(key) => asked.object(key, store.as_ref())?,
    };
    for explanation in &mut explanations {
        explanation.not_known.clone_from(&judged.collected.facts.not_known);
    }
    judged.collected.tell();
    if explanations.is_empty() && judged.collected.incomplete.is_empty() {
        let selection = Selection::parse(&narrowed, &[], &clock)?;
        return Err(names_nothing(&selection, judged.collected.topics()));
    }
    if output.kind == Form::Table {
        for (index, explanation) in explanations.iter().enumerate() {
            if index > 0 {
                output.line("")?;
            }
            screen(explanation, display.verbose > 0, output)?;
        }
    } else {
        let mut about = judged.collected.about(SCHEMA, clock.now_ms);
        about.not_checked.clone_from(&judged.report.not_checked);
        output.machine(&about, &explanations)?;
    }
    Ok(judged.collected.exit())
}

/// What the answers are made from.
struct Asked<'a> {
    judged: &'a Judged,
    output: &'a Output,
}

impl<'a> Asked<'a> {
    fn view_partitions(&self) -> impl Iterator<Item = PartitionView<'a>> {
        self.judged.collected.view.partitions()
    }

    /// The leader's log of a partition, where it is known.
    fn log(&self, of: &PartitionView<'_>) -> Option<&'a LogFact> {
        let facts = &self.judged.collected.facts;
        let same_id = |log: &&LogFact| {
            let current = || facts.topics.iter().rev().find(|topic| topic.topic == log.topic)?.topic_id;
            log.topic_id.or_else(current).is_none_or(|id| id == of.topic_id())
        };
        facts
            .logs
            .iter()
            .rev()
            .filter(|log| log.topic == of.topic() && log.partition == of.partition())
            .find(same_id)
    }

    fn row(&self, of: &PartitionView<'_>, segment: &SegmentView<'_>) -> SegmentRow {
        let readable = of.readable().ranges().iter().any(|range| of.segment_of(range).id() == segment.id());
        SegmentRow::of(segment, readable, self.output.clock.now_ms)
    }

    fn findings(&self, concerns: impl Fn(&Finding) -> bool) -> Vec<Finding> {
        self.judged.report.findings.iter().filter(|finding| concerns(finding)).cloned().collect()
    }

    /// The objects of a segment, empty without a store; those that it misses too, where its copy is finished and not
    /// being deleted: only then has it to have them.
    fn objects(&self, segment: Uuid) -> Vec<ObjectRow> {
        let facts = &self.judged.collected.facts;
        let Some(store) = &facts.store else { return Vec::new() };
        let of_segment = |object: &&strandline_audit::ObjectFact| {
            object.parsed.as_ref().is_some_and(|key| key.segment_id == segment)
        };
        let mut rows: Vec<ObjectRow> = facts
            .objects
            .iter()
            .filter(of_segment)
            .filter_map(|object| {
                let role = object.parsed.as_ref()?.role;
                Some(ObjectRow {
                    role: role.as_str(),
                    key: Some(object.key.clone()),
                    size_bytes: object.size_bytes,
                    present: true,
                    required: store.required.contains(&role),
                })
            })
            .collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        if !self.judged.collected.view.segment(segment).any(|segment| segment.is_finished()) {
            return rows;
        }
        let missing = store.required.iter().filter(|role| !rows.iter().any(|row| row.role == role.as_str()));
        let missing: Vec<ObjectRow> = missing
            .map(|role| ObjectRow {
                role: role.as_str(),
                key: None,
                size_bytes: None,
                present: false,
                required: true,
            })
            .collect();
        rows.extend(missing);
        rows
    }
}

fn screen(explanation: &Explanation, details: bool, output: &mut Output) -> Result<(), Failure> {
    output.wrapped(&escape(&explanation.subject), "")?;
    output.paragraph(&explanation.summary, "")?;
    for reason in &explanation.reasons {
        output.paragraph(&format!("- {reason}"), "  ")?;
    }
    for unknown in &explanation.not_known {
        output.paragraph(&format!("- not known: {}: {}", unknown.what, unknown.reason), "  ")?;
    }
    if let Some(effect) = &explanation.effect {
        output.paragraph(&format!("effect: {effect}"), "")?;
    }
    if !explanation.served_by.is_empty() {
        let mut served = Grid::new(&["LEADER EPOCH>", "IN LINEAGE", "SERVED BY", "OFFSETS"]);
        for row in &explanation.served_by {
            served.row(vec![
                row.leader_epoch.to_string(),
                row.in_lineage.map_or("not known", |yes| if yes { "yes" } else { "no" }).to_owned(),
                row.segment_id.clone(),
                format!("{}-{}", row.start_offset, row.end_offset),
            ]);
        }
        section(&served, output)?;
    }
    let mut groups_here = Grid::new(&["CONSUMER GROUP", "STATE", "NEXT OFFSET>", "LAG>", "WHERE"]);
    let everybody = explanation.kind == "offset";
    let of_interest: Vec<_> =
        explanation.groups.iter().filter(|group| everybody || group.matters()).collect();
    for group in of_interest.iter().take(GROUPS_SHOWN_MAX) {
        groups_here.row(group.cells());
    }
    section(&groups_here, output)?;
    more(of_interest.len(), GROUPS_SHOWN_MAX, "more group", output)?;
    let segments = grid(explanation.segments.iter().take(SEGMENTS_SHOWN_MAX), true, output);
    section(&segments, output)?;
    more(explanation.segments.len(), SEGMENTS_SHOWN_MAX, "more segment", output)?;
    let mut events = Grid::new(&["METADATA", "TIME", "SINCE PREVIOUS>", "EVENT", "BROKER>", "OUTCOME"]);
    let mut previous: Option<i64> = None;
    for event in &explanation.events {
        let at = match (event.metadata_partition, event.offset) {
            (Some(partition), Some(offset)) => format!("{partition}:{offset}"),
            _ => "-".to_owned(),
        };
        let since = previous.map_or_else(
            || "-".to_owned(),
            |previous| crate::moment::show_span(event.timestamp_ms.saturating_sub(previous).max(0)),
        );
        previous = Some(event.timestamp_ms);
        let state = event.state.map_or_else(|| format!("state {} (unknown)", event.state_id), str::to_owned);
        let time = output.clock.show(event.timestamp_ms);
        events.row(vec![at, time, since, state, event.broker_id.to_string(), event.outcome.clone()]);
    }
    section(&events, output)?;
    let mut objects = Grid::new(&["OBJECT", "SIZE>", "KEY"]);
    for object in &explanation.objects {
        let missing = if object.required { "MISSING" } else { "-" };
        objects.row(vec![
            object.role.to_owned(),
            object.size_bytes.map_or_else(|| "-".to_owned(), |bytes| output.sizes.show(bytes)),
            object.key.clone().unwrap_or_else(|| missing.to_owned()),
        ]);
    }
    section(&objects, output)?;
    for group in groups(&explanation.findings) {
        output.line("")?;
        if group.first().is_some_and(|first| first.severity == Severity::Info) {
            show_brief(&group, output)?;
        } else {
            show_group(&group, details, output)?;
        }
    }
    Ok(())
}

/// Says that the screen does not show all.
fn more(all: usize, shown_max: usize, noun: &str, output: &mut Output) -> Result<(), Failure> {
    if let Some(more) = all.checked_sub(shown_max).filter(|more| *more > 0) {
        output.wrapped(&format!("… and {}: -o json has all", count(more as u64, noun)), "")?;
    }
    Ok(())
}

fn section(grid: &Grid, output: &mut Output) -> Result<(), Failure> {
    if !grid.is_empty() {
        output.line("")?;
        output.table(grid)?;
    }
    Ok(())
}

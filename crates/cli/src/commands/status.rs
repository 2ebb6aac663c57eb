//! `status`: how the tier is, on one screen.

use serde::Serialize;
use strandline_audit::{Limits, StateCounts};

use super::audit::{groups, place, verdict};
use crate::address::Selection;
use crate::args::{DisplayArgs, StatusArgs};
use crate::exit::{Exit, Failure};
use crate::judge::{Judged, judge};
use crate::moment::rfc3339;
use crate::output::{Form, Grid, Output};
use crate::sources::{Request, Source, StoreSource};
use crate::text::{count, escape, thousands};

const SCHEMA: &str = "strandline.status/v1";
/// How many kinds of findings the screen shows.
const KINDS_MAX: usize = 8;

/// The whole tier in one row.
#[derive(Serialize)]
struct Status {
    source: String,
    topics: usize,
    partitions: usize,
    segments: Segments,
    remote_bytes: u64,
    last_copy_time: Option<String>,
    store: Option<StoreStatus>,
    clean: bool,
    findings: Findings,
    kinds: Vec<Kind>,
    #[serde(skip)]
    last_copy_ms: Option<i64>,
}

#[derive(Serialize)]
struct Segments {
    copy_segment_started: u64,
    copy_segment_finished: u64,
    delete_segment_started: u64,
    unknown: u64,
}

#[derive(Serialize)]
struct StoreStatus {
    objects: usize,
    size_bytes: i64,
}

#[derive(Default, Serialize)]
struct Findings {
    damage: u64,
    risk: u64,
    cost: u64,
    info: u64,
}

/// Findings of one code and severity.
#[derive(Serialize)]
struct Kind {
    code: &'static str,
    severity: &'static str,
    count: usize,
    first: String,
    next: String,
}

/// Prints the screen.
pub(crate) fn run(args: &StatusArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    let clock = output.clock.clone();
    let selection = Selection::parse(&args.selection.addresses, &args.selection.exclude, &clock)?;
    let source = Source::choose(&args.source)?;
    let store = StoreSource::open(&args.source.store)?;
    let request = Request {
        args: &args.source,
        selection: &selection,
        now_ms: clock.now_ms,
        who: None,
        progress: display.progress,
    };
    let judged = judge(&source, store.as_ref(), &request, &Limits::default())?;
    judged.collected.tell();
    let status = status(&judged, &selection);
    if output.kind == Form::Table {
        screen(&status, &judged, output)?;
    } else {
        let mut about = judged.collected.about(SCHEMA, clock.now_ms);
        about.not_checked.clone_from(&judged.report.not_checked);
        output.machine(&about, [&status])?;
    }
    Ok(judged.exit(args.fail_on))
}

fn status(judged: &Judged, selection: &Selection) -> Status {
    let collected = &judged.collected;
    let mut counts = StateCounts::default();
    let (mut topics, mut partitions, mut last_copy_ms) = (Vec::new(), 0, None);
    let selected = |topic: &str, partition| selection.has_partition(topic, partition);
    for partition in collected.view.partitions().filter(|of| selected(of.topic(), of.partition())) {
        let here = partition.counts();
        counts += here;
        last_copy_ms = last_copy_ms.max(partition.last_copy_finished_ms());
        if here.copy_started + here.copy_finished + here.delete_started + here.unknown > 0 {
            partitions += 1;
            topics.push((partition.topic(), partition.topic_id()));
        }
    }
    topics.sort_unstable();
    topics.dedup();
    let mut findings = Findings::default();
    for (severity, number) in judged.counts() {
        match severity {
            strandline_audit::Severity::Damage => findings.damage = number,
            strandline_audit::Severity::Risk => findings.risk = number,
            strandline_audit::Severity::Cost => findings.cost = number,
            strandline_audit::Severity::Info => findings.info = number,
        }
    }
    let kinds = groups(&judged.report.findings).into_iter().filter_map(|group| {
        let first = *group.first()?;
        Some(Kind {
            code: first.code,
            severity: first.severity.as_str(),
            count: group.len(),
            first: format!("{}{}", place(first), first.message),
            next: first.next.clone().into_owned(),
        })
    });
    Status {
        source: collected.source.clone(),
        topics: topics.len(),
        partitions,
        segments: Segments {
            copy_segment_started: counts.copy_started,
            copy_segment_finished: counts.copy_finished,
            delete_segment_started: counts.delete_started,
            unknown: counts.unknown,
        },
        remote_bytes: counts.copy_finished_bytes,
        last_copy_time: last_copy_ms.and_then(rfc3339),
        store: collected.facts.store.as_ref().map(|_| StoreStatus {
            objects: collected.facts.objects.len(),
            size_bytes: collected.facts.objects.iter().filter_map(|object| object.size_bytes).sum(),
        }),
        clean: judged.is_clean(),
        findings,
        kinds: kinds.collect(),
        last_copy_ms,
    }
}

fn screen(status: &Status, judged: &Judged, output: &mut Output) -> Result<(), Failure> {
    let cluster = judged.collected.cluster_id.as_deref().map_or("not named", |id| id);
    output.wrapped_below("Cluster ", &format!("{}, from {}", escape(cluster), escape(&status.source)))?;
    let as_of = output.clock.show(output.clock.now_ms);
    output.line(&format!("As of   {as_of}"))?;
    let sizes = output.sizes;
    let segments = &status.segments;
    if judged.collected.view.segment_count() == 0 && judged.collected.doubt.is_some() {
        output.wrapped_below("Tier    ", "not known: no event was read")?;
    } else if judged.collected.view.segment_count() == 0 {
        output.wrapped_below("Tier    ", "nothing: no segment was ever copied")?;
    } else {
        let held = format!(
            "{} in {} of {}, {}",
            count(segments.copy_segment_finished, "readable segment"),
            count(status.partitions as u64, "partition"),
            count(status.topics as u64, "topic"),
            sizes.show(i64::try_from(status.remote_bytes).unwrap_or(i64::MAX)),
        );
        let under_way: Vec<String> = [
            (segments.copy_segment_started, "being copied"),
            (segments.delete_segment_started, "being deleted"),
            (segments.unknown, "in an unknown state"),
        ]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
        let under_way =
            if under_way.is_empty() { String::new() } else { format!("; also {}", under_way.join(", ")) };
        output.wrapped_below("Tier    ", &format!("{held}{under_way}"))?;
    }
    if let Some(ms) = status.last_copy_ms {
        output.line(&format!("Copied  last {}", output.clock.ago(ms)))?;
    }
    if let Some(store) = &status.store {
        output.line(&format!(
            "Store   {}, {}",
            count(store.objects as u64, "object"),
            sizes.show(store.size_bytes)
        ))?;
    }
    output.line("")?;
    kinds(status, output)?;
    output.wrapped(&verdict(judged), "")?;
    let mut unchecked: Vec<&str> = judged.report.not_checked.iter().map(|rule| rule.code).collect();
    unchecked.dedup();
    let unchecked = unchecked.len() as u64;
    if unchecked > 0 {
        output.wrapped(&format!("Not checked: {}; `audit` says why.", count(unchecked, "rule")), "")?;
    }
    Ok(())
}

/// What is wrong, worst first, with the next step of each kind; info does not trouble a healthy screen.
fn kinds(status: &Status, output: &mut Output) -> Result<(), Failure> {
    let above_info: Vec<&Kind> = status.kinds.iter().filter(|kind| kind.severity != "info").collect();
    if above_info.is_empty() {
        return Ok(());
    }
    let mut grid = Grid::new(&["SEVERITY", "CODE", "COUNT>", "FIRST"]);
    for kind in above_info.iter().take(KINDS_MAX) {
        grid.row(vec![
            kind.severity.to_owned(),
            kind.code.to_owned(),
            thousands(kind.count as u64),
            kind.first.clone(),
        ]);
    }
    output.table(&grid)?;
    if let Some(more) = above_info.len().checked_sub(KINDS_MAX).filter(|more| *more > 0) {
        output.wrapped(&format!("… and {more} more kinds: `audit` shows all"), "")?;
    }
    output.line("\nWhat to do")?;
    for kind in above_info.iter().take(KINDS_MAX) {
        output.paragraph(&format!("{}: {}", kind.code, kind.next), "  ")?;
    }
    output.line("")?;
    Ok(())
}

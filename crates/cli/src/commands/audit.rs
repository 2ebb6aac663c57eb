//! `audit`: all findings.

use strandline_audit::{Evidence, Finding, Limits, NotChecked, Severity, rule};

use crate::address::Selection;
use crate::args::{AuditArgs, DisplayArgs, Level};
use crate::exit::{Exit, Failure};
use crate::judge::{Judged, judge};
use crate::moment::parse_span;
use crate::output::{Form, Output};
use crate::sources::{Request, Source, StoreSource};
use crate::text::{count, escape, thousands};

const SCHEMA: &str = "strandline.audit/v1";
/// How many findings of one kind the table shows; the JSON forms hold all.
const SHOWN_MAX: usize = 5;

/// Judges the source, and the store where one is named.
pub(crate) fn run(args: &AuditArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    Ok(show(args, display, output)?.exit(args.fail_on))
}

/// Judges and prints; gives what was judged.
pub(crate) fn show(args: &AuditArgs, display: &DisplayArgs, output: &mut Output) -> Result<Judged, Failure> {
    let judged = look(args, display, output)?;
    judged.collected.tell();
    if output.kind == Form::Table {
        table(&judged, display.verbose > 0, output)?;
    } else {
        let mut about = judged.collected.about(SCHEMA, output.clock.now_ms);
        about.not_checked.clone_from(&judged.report.not_checked);
        output.machine(&about, &judged.report.findings)?;
    }
    Ok(judged)
}

/// Judges, and prints nothing.
pub(crate) fn look(args: &AuditArgs, display: &DisplayArgs, output: &Output) -> Result<Judged, Failure> {
    let clock = &output.clock;
    let selection = Selection::parse(&args.selection.addresses, &args.selection.exclude, clock)?;
    let limits = limits(&args.limit)?;
    let source = Source::choose(&args.source)?;
    let store = match args.level {
        Some(Level::Metadata) => None,
        Some(Level::Objects) if args.source.store.url.is_none() => {
            return Err(
                Failure::usage("--level objects needs a store").hint("--store file://DIR --layout local")
            );
        }
        _ => StoreSource::open(&args.source.store)?,
    };
    let request = Request {
        args: &args.source,
        selection: &selection,
        now_ms: clock.now_ms,
        who: None,
        progress: display.progress,
    };
    judge(&source, store.as_ref(), &request, &limits)
}

fn limits(given: &[String]) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    for pair in given {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--limit {pair:?} is not NAME=VALUE")))?;
        let value = parse_span(value).ok_or_else(|| {
            Failure::usage(format!("--limit {name}: {value:?} is not a span such as 30m or 2h"))
        })?;
        limits.set(name, value).map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(limits)
}

/// What is above info in full; info, and the rules that are not checked, in full only where `details` are asked for.
fn table(judged: &Judged, details: bool, output: &mut Output) -> Result<(), Failure> {
    let groups = groups(&judged.report.findings);
    let in_full = |group: &&Vec<&Finding>| {
        details || group.first().is_some_and(|first| first.severity != Severity::Info)
    };
    for group in groups.iter().filter(in_full) {
        show_group(group, details, output)?;
        output.line("")?;
    }
    let mut brief = groups.iter().filter(|group| !in_full(group)).peekable();
    let any = brief.peek().is_some();
    for group in brief {
        show_brief(group, output)?;
    }
    let unchecked = &judged.report.not_checked;
    if details {
        not_checked(unchecked, output)?;
    } else {
        not_checked_brief(unchecked, output)?;
    }
    if any || !unchecked.is_empty() {
        output.line("")?;
    }
    output.wrapped(&verdict(judged), "")?;
    Ok(())
}

/// A line for findings that nobody has to act on.
pub(crate) fn show_brief(group: &[&Finding], output: &mut Output) -> Result<(), Failure> {
    let Some(first) = group.first() else { return Ok(()) };
    let more = match group.len() - 1 {
        0 => String::new(),
        more => format!(" (and {} more)", thousands(more as u64)),
    };
    let text = format!("{}: {}{}{more}", first.code, place(first), escape(&first.message));
    output.severity_line(first.severity, &text)?;
    Ok(())
}

/// The findings by code and severity, in the order in which the worst of them come.
pub(crate) fn groups(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            group
                .first()
                .is_some_and(|first| (first.code, first.severity) == (finding.code, finding.severity))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// A heading, the findings, then what they have in common: effect and next step. With `details` every piece of evidence.
pub(crate) fn show_group(group: &[&Finding], details: bool, output: &mut Output) -> Result<(), Failure> {
    let Some(first) = group.first() else { return Ok(()) };
    let title = rule(first.code).map_or("", |rule| rule.title);
    let times = match group.len() {
        1 => String::new(),
        count => format!(" ({} findings)", thousands(count as u64)),
    };
    output.severity_line(first.severity, &format!("{}: {title}{times}", first.code))?;
    for finding in group.iter().take(SHOWN_MAX) {
        output.wrapped(&format!("{}{}", place(finding), escape(&finding.message)), "  ")?;
        let shown = if details { finding.evidence.len() } else { 1 };
        for (evidence, number) in finding.evidence.iter().zip(1..=shown) {
            let more = match finding.evidence.len() - number {
                more if more > 0 && number == shown => format!(" (and {more} more, with -v)"),
                _ => String::new(),
            };
            output.wrapped(&format!("proof: {}{more}", proof(evidence, output)), "    ")?;
        }
    }
    if let Some(more) = group.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let more = thousands(more as u64);
        output.wrapped(&format!("… and {more} more: -o json has all, an address narrows them down"), "  ")?;
    }
    output.paragraph(&format!("effect: {}", first.effect), "  ")?;
    output.paragraph(&format!("next: {}", first.next), "  ")?;
    Ok(())
}

/// `orders:0 100-199: `, as far as the finding has a place that its message does not name.
pub(crate) fn place(finding: &Finding) -> String {
    let message = &finding.message;
    let mut place = match (&finding.topic, finding.partition) {
        (Some(topic), Some(partition)) => format!("{topic}:{partition}"),
        (Some(topic), None) => topic.clone(),
        (None, _) => String::new(),
    };
    if message.split([' ', ',', ';']).any(|word| word == place) {
        place.clear();
    }
    if let (Some(start), Some(end)) = (finding.start_offset, finding.end_offset)
        && !message.contains(&format!("{start} to {end}"))
    {
        place.push_str(&format!(" {start}-{end}"));
    }
    if let Some(id) = finding.segment_id.filter(|id| !message.contains(&id.to_string())) {
        place.push_str(&format!(" {id}"));
    }
    if place.is_empty() { place } else { format!("{}: ", escape(place.trim_start())) }
}

/// A piece of evidence with its place and time.
fn proof(evidence: &Evidence, output: &Output) -> String {
    let place = match (evidence.metadata_partition, evidence.offset) {
        (Some(partition), Some(offset)) => format!("{partition}:{offset} "),
        _ => String::new(),
    };
    let time = evidence.time_ms.map(|ms| format!("{} ", output.clock.show(ms))).unwrap_or_default();
    format!("{place}{time}{}", escape(&evidence.what))
}

/// The rules that could not be judged, those with one reason on one line.
fn not_checked(rules: &[NotChecked], output: &mut Output) -> Result<(), Failure> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for rule in rules {
        match reasons.iter_mut().find(|(reason, _)| *reason == rule.reason) {
            Some((_, codes)) => codes.push(rule.code),
            None => reasons.push((&rule.reason, vec![rule.code])),
        }
    }
    for (reason, codes) in reasons {
        output.paragraph(&format!("not checked: {} ({reason})", codes.join(", ")), "")?;
    }
    Ok(())
}

/// How many rules could not be judged, and for want of what.
fn not_checked_brief(rules: &[NotChecked], output: &mut Output) -> Result<(), Failure> {
    if rules.is_empty() {
        return Ok(());
    }
    let mut codes: Vec<&str> = rules.iter().map(|rule| rule.code).collect();
    codes.dedup();
    let mut reasons: Vec<&str> = Vec::new();
    for rule in rules {
        let reason = without_places(&rule.reason);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    output.paragraph(
        &format!(
            "not checked: {} (-v names them): {}",
            count(codes.len() as u64, "rule"),
            reasons.join("; ")
        ),
        "",
    )?;
    Ok(())
}

/// A reason without the list of partitions or topics at its end, and how many they are.
fn without_places(reason: &str) -> &str {
    let Some((words, _)) = reason.rsplit_once(" (").filter(|(_, places)| places.ends_with(')')) else {
        return reason;
    };
    match words.rsplit_once(" for ") {
        Some((words, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => words,
        _ => words,
    }
}

/// One line that says how it stands. Nothing that is partial is called clean.
pub(crate) fn verdict(judged: &Judged) -> String {
    let view = &judged.collected.view;
    let looked = format!(
        "{} about {} in {}",
        count(view.event_count() as u64, "event"),
        count(view.segment_count() as u64, "segment"),
        count(view.partitions().len() as u64, "partition")
    );
    let found: Vec<String> = judged
        .counts()
        .into_iter()
        .filter(|(_, number)| *number > 0)
        .map(|(severity, number)| format!("{} {severity}", thousands(number)))
        .collect();
    let found = if found.is_empty() { "no findings".to_owned() } else { found.join(", ") };
    let missing = judged.collected.incomplete.len() as u64;
    if judged.is_clean() {
        return format!("Clean: {found}. Looked at {looked}.");
    }
    if missing > 0 {
        return format!(
            "Incomplete: {found} so far, and {} could not be read. Looked at {looked}.",
            count(missing, "part")
        );
    }
    if let Some(doubt) = &judged.collected.doubt {
        return format!("Doubtful: {}. Looked at {looked}: {found}.", escape(doubt));
    }
    format!("Findings: {found}. Looked at {looked}.")
}

//! `publish`: appends the events of a file to the metadata topic, after holding each against the log.
//!
//! `file.rs` reads the file, `check.rs` says of each event whether it may be appended, `write.rs` appends and reads back.
//! Without `--yes` the connection is read-only. One event that is refused keeps all of them back.

mod check;
mod file;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use strandline_audit::{TierView, TierViewBuilder};
use strandline_client::admin::Admin;
use strandline_log::{KafkaMetadataEventLog, MetadataEventLog as _, MetadataRange, PublishError, RangeError};
use strandline_meta::ErrorCode;
use strandline_rlmm::PartitionHolders;
use strandline_tier::json::{EventPosition, write_event};
use strandline_tier::{
    MetadataPartitioner, RawEvent, RecordValue, RemoteLogSegmentState, RemotePartitionDeleteState,
};

use crate::args::{DisplayArgs, ProgressKind, PublishArgs};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{About, Form, Grid, Output};
use crate::progress::{Progress, Unit};
use crate::sources::{Live, Purpose, Visitor, chain, no_event_among, refresh_failure, tell_warning};
use crate::text::count;
use check::{Against, Checked, TopicNow, Verdict};
use file::{Entry, Events};
use write::{Appended, Fate};

const SCHEMA: &str = "strandline.publish/v1";

/// Checks, shows, and with `--yes` appends.
pub(crate) fn run(args: &PublishArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    let events = file::read(&args.file)?;
    let settings = Live::settings(args.bootstrap_server.as_deref(), &args.config)?;
    if !settings.names_a_cluster() {
        return Err(Failure::usage("no cluster is named").hint("-b HOST:PORT names one"));
    }
    let purpose = if args.yes { Purpose::Write } else { Purpose::Read };
    let live = Live::connect(settings, purpose)?;
    let log = live.open_log(&args.metadata_topic)?;
    same_cluster(&events, &live, &log)?;
    events.warnings.iter().for_each(|warning| tell_warning(warning));

    let partitioner = MetadataPartitioner::new(log.partition_count())
        .ok_or_else(|| Failure::unsupported("the metadata topic has no partitions"))?;
    let homes = homes(&events.entries, partitioner);
    let standing = Standing::read(&live, &log, &homes, display.progress)?;
    if let Some(none) = no_event_among(&standing.view) {
        let topic = &args.metadata_topic;
        return Err(Failure::usage(format!("{topic} does not look like the metadata topic: {none}"))
            .hint("--metadata-topic names it; without it, it is __remote_log_metadata"));
    }
    let topics = interruptible(&live, topics(&live, &events.entries))??;
    let holders = if args.no_broker_holds_it { PartitionHolders::None } else { PartitionHolders::Possible };
    let against = Against {
        view: &standing.view,
        partitioner,
        as_of: &events.as_of,
        topics: &topics,
        holders,
        clock: &output.clock,
    };
    let checked = check::check(&events.entries, &against);
    let losses = check::losses(&events.entries, &checked, &standing.view);
    losses.iter().for_each(|loss| tell_warning(loss));
    let mut rows: Vec<Row> = events.entries.iter().zip(checked).map(Row::new).collect();

    let refused = rows.iter().any(|row| row.outcome == What::Refused);
    let mut ended_by = None;
    if args.yes && !refused && rows.iter().any(|row| row.outcome == What::WouldAppend) {
        match standing.moved(&live, &log, &events.entries)? {
            Some(moved) => hold_back(&mut rows, &moved),
            None => ended_by = append(&live, args, &log, &mut rows)?,
        }
    }
    let about = About {
        schema: SCHEMA,
        cluster_id: live.cluster_id(),
        as_of_ms: output.clock.now_ms,
        metadata_offsets: standing.ends,
        warnings: live.warnings().iter().chain(&events.warnings).chain(&losses).cloned().collect(),
        ..About::default()
    };
    let exit = ended_by.unwrap_or_else(|| exit(&rows));
    let shown = show(&rows, &about, args.yes, output).and_then(|()| Ok(output.flush()?));
    match shown {
        // Who has read enough is still told by the exit code how it ended.
        Err(failure) if failure.quiet => Err(Failure { exit, ..failure }),
        // What was written is not to be guessed.
        Err(failure) => Err(failure.hint(verdict(&rows, args.yes))),
        Ok(()) => Ok(exit),
    }
}

/// Events of one cluster mean nothing in another, nor with another partition count.
fn same_cluster(events: &Events, live: &Live, log: &KafkaMetadataEventLog) -> Result<(), Failure> {
    let name = &events.name;
    if let (Some(theirs), Some(here)) = (&events.cluster_id, live.cluster_id())
        && *theirs != here
    {
        return Err(Failure::usage(format!(
            "the events of {name} are of cluster {theirs}, and this is {here}"
        ))
        .hint("-b names the cluster; without its header line the file is taken as it is"));
    }
    match events.metadata_partitions {
        Some(theirs) if theirs != log.partition_count() => Err(Failure::usage(format!(
            "{name} was made where the metadata topic had {theirs} partitions, and here it has {}",
            log.partition_count()
        ))),
        _ => Ok(()),
    }
}

fn homes(entries: &[Entry], partitioner: MetadataPartitioner) -> BTreeSet<i32> {
    let of = |entry: &Entry| match &entry.value {
        RecordValue::Event(event) => {
            event.topic_id_partition().map(|of| partitioner.metadata_partition(of.topic_id, of.partition))
        }
        _ => None,
    };
    entries.iter().filter_map(of).collect()
}

/// The metadata partitions concerned, as they stand.
struct Standing {
    view: TierView,
    /// Up to where each was read, exclusive.
    ends: BTreeMap<i32, i64>,
}

impl Standing {
    fn read(
        live: &Live,
        log: &KafkaMetadataEventLog,
        homes: &BTreeSet<i32>,
        progress: ProgressKind,
    ) -> Result<Self, Failure> {
        let ranges = ends(live, log, homes, |_| None)?;
        let progress = Progress::start(progress, "reading events", Unit::Events);
        let builder = visit(live, log, &ranges, progress)?;
        let ends = ranges.iter().map(|range| (range.partition, range.to)).collect();
        Ok(Self { view: builder.finish(Some(log.partition_count())), ends })
    }

    /// What was written since about segments or partitions of the file, in words.
    fn moved(
        &self,
        live: &Live,
        log: &KafkaMetadataEventLog,
        entries: &[Entry],
    ) -> Result<Option<String>, Failure> {
        let homes = self.ends.keys().copied().collect();
        let ranges = ends(live, log, &homes, |partition| self.ends.get(&partition).copied())?;
        let progress = Progress::start(ProgressKind::None, "reading events", Unit::Events);
        let newer = visit(live, log, &ranges, progress)?.finish(Some(log.partition_count()));
        let ours = |entry: &Entry, event: &strandline_audit::EventView<'_>| {
            let RecordValue::Event(own) = &entry.value else { return false };
            let of = event.user_partition();
            let same_partition = own
                .topic_id_partition()
                .is_some_and(|own| (own.topic_id, own.partition) == (of.topic_id(), of.partition()));
            match (own.segment_id(), event.segment()) {
                (Some(own), Some(there)) => own == there.id(),
                // The deletion of a partition is about all of its segments.
                _ => same_partition,
            }
        };
        let mut events = newer.partitions().flat_map(|of| of.events().collect::<Vec<_>>());
        let newer = events.find(|event| entries.iter().any(|entry| ours(entry, event)));
        Ok(newer.map(|event| {
            let at = event.metadata_partition().zip(event.offset());
            let at = at.map(|(partition, offset)| format!(" at {partition}:{offset}")).unwrap_or_default();
            format!("{}{at} was written while this was checked", event.state_name().unwrap_or("an event"))
        }))
    }
}

/// What each metadata partition holds now, from where an earlier reading ended.
fn ends(
    live: &Live,
    log: &KafkaMetadataEventLog,
    homes: &BTreeSet<i32>,
    read_to: impl Fn(i32) -> Option<i64>,
) -> Result<Vec<MetadataRange>, Failure> {
    let marks = interruptible(live, log.high_water_marks())?;
    let mut ranges = Vec::with_capacity(homes.len());
    for (partition, mark) in (0..).zip(marks).filter(|(partition, _)| homes.contains(partition)) {
        let mark = mark.map_err(|error| unread(&error))?;
        let range = mark.range();
        let from = read_to(partition).unwrap_or(range.from);
        if from > range.to {
            return Err(Failure {
                exit: Exit::Incomplete,
                ..Failure::usage(format!(
                    "metadata partition {partition} ends at {} now, and was read up to {from}: it was cut or created anew; nothing was written",
                    range.to
                ))
            });
        }
        ranges.push(MetadataRange { from, ..range });
    }
    Ok(ranges)
}

fn visit(
    live: &Live,
    log: &KafkaMetadataEventLog,
    ranges: &[MetadataRange],
    progress: Progress,
) -> Result<TierViewBuilder, Failure> {
    let progress = Arc::new(progress);
    let visitors = ranges.iter().map(|range| (*range, Visitor::new(Arc::clone(&progress)))).collect();
    let mut builder = TierViewBuilder::new();
    for visit in interruptible(live, log.visit_ranges(visitors))? {
        if let Some(error) = visit.error {
            return Err(unread(&error));
        }
        builder.merge(visit.visitor.builder);
    }
    match interrupt::pending() {
        Some(exit) => Err(stopped(exit)),
        None => Ok(builder),
    }
}

/// Waits for an answer, or for a signal.
fn interruptible<T>(live: &Live, asked: impl Future<Output = T>) -> Result<T, Failure> {
    live.runtime().block_on(async {
        tokio::select! {
            answer = asked => Ok(answer),
            exit = interrupt::wait() => Err(stopped(exit)),
        }
    })
}

fn stopped(exit: Exit) -> Failure {
    Failure { exit, ..Failure::unreachable("interrupted; nothing was written") }
}

/// What is not known cannot be held against.
fn unread(error: &RangeError) -> Failure {
    let exit = if matches!(error, RangeError::Forbidden { .. }) { Exit::Rights } else { Exit::Incomplete };
    Failure {
        exit,
        ..Failure::usage(format!("the log cannot be read to its end: {}; nothing was written", chain(error)))
    }
}

/// The topics that the events name, as the cluster has them.
async fn topics(live: &Live, entries: &[Entry]) -> Result<BTreeMap<String, TopicNow>, Failure> {
    let name = |entry: &Entry| match &entry.value {
        RecordValue::Event(event) => event.topic_id_partition().map(|of| of.topic.clone().into_owned()),
        _ => None,
    };
    let names: BTreeSet<String> = entries.iter().filter_map(name).collect();
    let names: Vec<String> = names.into_iter().collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let answers = Admin::new(live.cluster()).topics_by_name(&names, live.deadline()).await;
    let answers = answers.map_err(|error| refresh_failure(&error))?;
    let now = |answer| match answer {
        Ok(strandline_meta::Topic { id, partitions, .. }) => {
            TopicNow::There { id, partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX) }
        }
        Err(ErrorCode::UnknownTopicOrPartition | ErrorCode::InvalidTopicException) => TopicNow::Absent,
        Err(_) => TopicNow::NotSeen,
    };
    Ok(answers.into_iter().map(|(name, answer)| (name, now(answer))).collect())
}

/// What is or was done with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Nothing speaks against it.
    WouldAppend,
    /// The same event is in the log.
    InLog,
    /// It must not be appended.
    Refused,
    /// It was appended, and read back.
    Written,
    /// It was appended, and could not be read back.
    WrittenNotReadBack,
    /// It may have been appended.
    Unknown,
    /// It was not appended.
    NotWritten,
    /// One before it failed.
    NotTried,
}

impl What {
    fn words(self) -> &'static str {
        match self {
            Self::WouldAppend => "append",
            Self::InLog => "in the log",
            Self::Refused => "refused",
            Self::Written => "written",
            Self::WrittenNotReadBack => "written, unseen",
            Self::Unknown => "unknown",
            Self::NotWritten => "not written",
            Self::NotTried => "not tried",
        }
    }
}

/// An event of the file and what becomes of it.
#[derive(Serialize)]
struct Row {
    line: u64,
    outcome: What,
    metadata_partition: Option<i32>,
    offset: Option<i64>,
    reason: Option<String>,
    event: serde_json::Value,
    /// The event's bytes, where it is to be appended.
    #[serde(skip)]
    value: Option<Bytes>,
    /// What a refused right or a lost connection is as an exit code.
    #[serde(skip)]
    exit: Exit,
    #[serde(skip)]
    shown: [String; 4],
}

impl Row {
    fn new((entry, checked): (&Entry, Checked)) -> Self {
        let mut line = Vec::new();
        write_event(&mut line, &EventPosition::default(), &entry.value);
        let (what, offset, reason, value) = match checked.verdict {
            Verdict::Append(value) => (What::WouldAppend, None, None, Some(value.into())),
            Verdict::InLog(offset) => (What::InLog, offset, None, None),
            Verdict::Refused(reason) => (What::Refused, None, Some(reason), None),
        };
        Self {
            line: entry.line,
            outcome: what,
            metadata_partition: checked.metadata_partition,
            offset,
            reason,
            event: serde_json::from_slice(&line).unwrap_or_default(),
            value,
            exit: Exit::Done,
            shown: shown(&entry.value),
        }
    }

    fn fated(&mut self, fate: Fate) {
        let failed = |error: &PublishError| match error {
            PublishError::Forbidden { .. } => Exit::Rights,
            _ => Exit::Unreachable,
        };
        match fate {
            Fate::Written { offset, not_read_back } => {
                self.offset = Some(offset);
                self.outcome = if not_read_back.is_some() { What::WrittenNotReadBack } else { What::Written };
                self.reason = not_read_back;
            }
            Fate::Unknown(error) => {
                (self.outcome, self.exit, self.reason) = (What::Unknown, failed(&error), Some(chain(&error)));
            }
            Fate::NotWritten(error) => {
                (self.outcome, self.exit, self.reason) =
                    (What::NotWritten, failed(&error), Some(chain(&error)));
            }
            Fate::NotTried => self.outcome = What::NotTried,
        }
    }
}

/// The event, its segment, and its user partition, in words.
fn shown(value: &RecordValue<'_>) -> [String; 4] {
    let segment_state = |id: i8| {
        RemoteLogSegmentState::from_id(id).map_or_else(|| format!("state {id}"), |state| state.to_string())
    };
    let event = match value {
        RecordValue::Event(event) => event,
        RecordValue::NullValue => return ["no value", "-", "-", "-"].map(str::to_owned),
        RecordValue::Undecodable { .. } => return ["undecodable", "-", "-", "-"].map(str::to_owned),
    };
    let name = match event {
        RawEvent::SegmentMetadata(event) => segment_state(event.state_id),
        RawEvent::SegmentMetadataUpdate(event) => segment_state(event.state_id),
        RawEvent::PartitionDeleteMetadata(event) => RemotePartitionDeleteState::from_id(event.state_id)
            .map_or_else(|| format!("state {}", event.state_id), |state| state.to_string()),
        RawEvent::SegmentMetadataSnapshot(_) => "segment snapshot".to_owned(),
    };
    let segment = event.segment_id().map_or_else(|| "-".to_owned(), |id| id.to_string());
    let of = event.topic_id_partition().map(|of| format!("{}:{}", of.topic, of.partition));
    let offsets = match event {
        RawEvent::SegmentMetadata(event) => format!("{}-{}", event.start_offset, event.end_offset),
        _ => "-".to_owned(),
    };
    [name, segment, of.unwrap_or_else(|| "-".to_owned()), offsets]
}

/// Something came in between: nothing is appended.
fn hold_back(rows: &mut [Row], moved: &str) {
    for row in rows.iter_mut().filter(|row| row.outcome == What::WouldAppend) {
        (row.outcome, row.reason) = (What::Refused, Some(moved.to_owned()));
    }
}

/// Refuses the events that the topic does not take; true if there are any. What comes before them is not to be written alone.
fn refuse_too_large(rows: &mut [Row], most: usize) -> bool {
    let mut any = false;
    for row in rows.iter_mut().filter(|row| row.outcome == What::WouldAppend) {
        let bytes = row.value.as_ref().map_or(0, Bytes::len);
        if bytes > most {
            let reason = format!("an event of {bytes} bytes: the metadata topic takes at most {most}");
            (row.outcome, row.reason, any) = (What::Refused, Some(reason), true);
        }
    }
    any
}

/// Appends what may be appended; gives the signal that ended it early.
fn append(
    live: &Live,
    args: &PublishArgs,
    checked: &KafkaMetadataEventLog,
    rows: &mut [Row],
) -> Result<Option<Exit>, Failure> {
    let log = live.open_log_for_writing(&args.metadata_topic)?;
    if log.topic_id() != checked.topic_id() {
        return Err(Failure {
            exit: Exit::Incomplete,
            ..Failure::usage(
                "the metadata topic was created anew while this was checked; nothing was written",
            )
        });
    }
    if log.value_bytes_max().is_some_and(|most| refuse_too_large(rows, most)) {
        return Ok(None);
    }
    let due: Vec<&mut Row> = rows.iter_mut().filter(|row| row.outcome == What::WouldAppend).collect();
    let values: Vec<(i32, Bytes)> =
        due.iter().filter_map(|row| row.metadata_partition.zip(row.value.clone())).collect();
    let Appended { fates, ended_by } = live.runtime().block_on(async {
        let appended = write::append(&log, &values, live.request_timeout()).await;
        tokio::select! {
            () = log.close() => {}
            () = write::overdue() => {}
        }
        appended
    });
    due.into_iter().zip(fates).for_each(|(row, fate)| row.fated(fate));
    Ok(ended_by)
}

/// 1 where something was refused; where something failed, 6 if a part is written or may be, else what failed.
fn exit(rows: &[Row]) -> Exit {
    let any = |of: &[What]| rows.iter().any(|row| of.contains(&row.outcome));
    let failed = rows.iter().map(|row| row.exit).find(|exit| *exit != Exit::Done);
    match failed {
        _ if any(&[What::Refused]) => Exit::Findings,
        _ if any(&[What::Unknown, What::WrittenNotReadBack]) => Exit::Incomplete,
        Some(_) if any(&[What::Written]) => Exit::Incomplete,
        Some(exit) => exit,
        None => Exit::Done,
    }
}

fn show(rows: &[Row], about: &About, yes: bool, output: &mut Output) -> Result<(), Failure> {
    if output.kind != Form::Table {
        output.machine(about, rows)?;
        return Ok(());
    }
    let mut grid = Grid::new(&["LINE>", "WHAT", "METADATA", "EVENT", "SEGMENT", "PARTITION", "OFFSETS"]);
    for row in rows {
        let at = match (row.metadata_partition, row.offset) {
            (Some(partition), Some(offset)) => format!("{partition}:{offset}"),
            (Some(partition), None) => partition.to_string(),
            (None, _) => "-".to_owned(),
        };
        let [event, segment, of, offsets] = row.shown.clone();
        grid.row(vec![row.line.to_string(), row.outcome.words().to_owned(), at, event, segment, of, offsets]);
    }
    output.table(&grid)?;
    // Below the table, since no terminal may cut a reason.
    for row in rows {
        if let Some(reason) = &row.reason {
            output.hanging("  ", 2, &format!("line {}, {}: {reason}", row.line, row.outcome.words()))?;
        }
    }
    if !grid.is_empty() {
        output.line("")?;
    }
    output.wrapped(&verdict(rows, yes), "")?;
    Ok(())
}

/// One line that says what was done, or would be.
fn verdict(rows: &[Row], yes: bool) -> String {
    let number = |of: What| rows.iter().filter(|row| row.outcome == of).count() as u64;
    let there = match number(What::InLog) {
        0 => String::new(),
        there => format!("; {} in the log already", count(there, "event")),
    };
    let all = count(rows.len() as u64, "event");
    let (refused, due, written) = (number(What::Refused), number(What::WouldAppend), number(What::Written));
    let stopped = [
        (What::WrittenNotReadBack, "written and not seen"),
        (What::Unknown, "perhaps written"),
        (What::NotWritten, "not written"),
        (What::NotTried, "not tried"),
    ];
    let stopped: Vec<String> = stopped
        .into_iter()
        .filter(|(of, _)| number(*of) > 0)
        .map(|(of, words)| format!("{} {words}", number(of)))
        .collect();
    if refused > 0 {
        return format!("Nothing was written: {refused} of {all} refused{there}.");
    }
    if !stopped.is_empty() {
        return format!(
            "Stopped: {} written, {}{there}. What was written stays.",
            written,
            stopped.join(", ")
        );
    }
    match (due, written) {
        (0, 0) => format!("Nothing to append{there}."),
        (0, _) => format!("{} appended and read back{there}.", count(written, "event")),
        _ if yes => format!("Nothing was written{there}."),
        _ => format!("Would append {}{there}. Nothing was written: --yes does it.", count(due, "event")),
    }
}

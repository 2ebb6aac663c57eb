//! `events`: the decoded records of the metadata topic, as they come.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::address::Selection;
use crate::args::{DisplayArgs, EventsArgs};
use crate::event_file::{Block, Completeness, Envelope, EventFile, Line};
use crate::event_line::{Bound, Wanted, Window, Written, fit, table_heading};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::judge::named_something;
use crate::output::{About, Form, Incomplete, Output};
use crate::parallel;
use crate::positions;
use crate::progress::{Progress, Unit};
use crate::sources::{self, Request, Source};

mod chunk;
mod follow;
mod log;

const SCHEMA: &str = "strandline.events/v1";

/// Prints the events of the source.
pub(crate) fn run(args: &EventsArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    let clock = output.clock.clone();
    let bound = |text: &str| Bound::parse(text, &clock).map_err(Failure::usage);
    let to = args.to.as_deref().map_or(Ok(Bound::Latest), bound)?;
    let window = Window { from: bound(&args.from)?, to };
    if let (Bound::Offset(from, _), Bound::Offset(to, _)) = (window.from, window.to)
        && from != to
    {
        return Err(Failure::usage(format!("--from names metadata partition {from} and --to names {to}")));
    }
    let selection = Selection::parse(&args.selection.addresses, &args.selection.exclude, &clock)?;
    let source = Source::choose(&args.source)?;
    let request = Request {
        args: &args.source,
        selection: &selection,
        now_ms: clock.now_ms,
        who: None,
        progress: display.progress,
    };
    let segments = if positions::any(&selection) {
        at_positions(&source, args.follow, &request)?
    } else {
        selection.clone()
    };
    let wanted =
        Arc::new(Wanted { selection: segments, window, kind: output.kind, clock, width: output.width() });
    let unit = if matches!(source, Source::EventFile(_)) { Unit::Bytes } else { Unit::Events };
    let progress = Progress::start(display.progress, "reading events", unit);
    match source {
        Source::EventFile(path) if args.follow => {
            Err(Failure::usage(format!("{} has an end: nothing can follow it", path.display()))
                .hint("-f follows a cluster (-b) or data directories (--log-dir)"))
        }
        Source::EventFile(path) => event_file(&path, &wanted, &progress, output),
        Source::Live(live) => {
            let log = live.open_log(&args.source.metadata_topic)?;
            let homes = live.homes(&log, &selection);
            log::run(&log::LiveLog { live: &live, log }, homes, args.follow, None, &wanted, &progress, output)
        }
        Source::LogDirs(paths) => {
            let log = sources::open_log_dirs(&paths, &args.source.metadata_topic)?;
            let homes = sources::homes_in_dirs(&log, &selection, args.source.metadata_partitions);
            let told = args.source.metadata_partitions;
            log::run(&log, homes, args.follow, told, &wanted, &progress, output)
        }
    }
}

/// The selection with the segments that hold its positions, as far as events tell of them now.
fn at_positions(source: &Source, follow: bool, request: &Request<'_>) -> Result<Selection, Failure> {
    if follow {
        return Err(Failure::usage("-f cannot follow an offset or a time of a partition")
            .hint("follow the whole partition, TOPIC:P"));
    }
    if matches!(source, Source::EventFile(path) if path == Path::new("-")) {
        return Err(Failure::usage(
            "stdin is read only once, and which segments hold an offset has to be known first",
        )
        .hint("keep the events in a file, or ask for TOPIC:P"));
    }
    let collected = sources::collect(source, None, request)?;
    named_something(&collected, request.selection)?;
    let segments = positions::resolved(request.selection, &collected.view);
    if segments.addresses().is_empty() {
        return Err(Failure::usage(
            "no event names a segment that holds this offset, or a record of this time or later",
        )
        .hint("`explain` says where it is"));
    }
    Ok(segments)
}

/// The events on their way to stdout.
pub(crate) struct Stream<'a> {
    output: &'a mut Output,
    wanted: Arc<Wanted>,
    about: About,
    count: u64,
    matched: bool,
    topics: FxHashSet<String>,
}

impl<'a> Stream<'a> {
    /// Prints what stands before the events.
    pub(crate) fn begin(
        output: &'a mut Output,
        wanted: Arc<Wanted>,
        mut about: About,
    ) -> Result<Self, Failure> {
        about.schema = SCHEMA;
        match wanted.kind {
            Form::Table => output.text(&fit(&table_heading(), wanted.width))?,
            Form::Json => output.text(&about.envelope_head())?,
            Form::Jsonl => output.json_line(&about.header())?,
        }
        // Who waits for the first event sees at once that it is waited for.
        output.flush()?;
        let matched = wanted.selection.addresses().is_empty();
        Ok(Self { output, wanted, about, count: 0, matched, topics: FxHashSet::default() })
    }

    /// Prints the events of a chunk.
    pub(crate) fn push(&mut self, mut written: Written) -> Result<(), Failure> {
        let first_in_json = self.wanted.kind == Form::Json && self.count == 0;
        // The separator before the first item.
        let bytes =
            if first_in_json && !written.bytes.is_empty() { &written.bytes[1..] } else { &written.bytes };
        self.output.bytes(bytes)?;
        self.count += written.count;
        self.matched |= written.matched;
        self.topics.extend(written.topics.drain());
        Ok(())
    }

    /// True while no event has been printed.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Hands everything printed so far to the reader.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.output.flush()?)
    }

    /// Notes that what the selection names exists, whether it has events or not.
    pub(crate) fn exists(&mut self) {
        self.matched = true;
    }

    /// True once something that the selection names was seen.
    pub(crate) fn matched(&self) -> bool {
        self.matched
    }

    /// Notes what could not be read.
    pub(crate) fn incomplete(&mut self, incomplete: Incomplete) {
        sources::tell_incomplete(&incomplete);
        self.about.incomplete.push(incomplete);
    }

    /// Notes what the reader should know.
    pub(crate) fn warn(&mut self, warning: String) {
        sources::tell_warning(&warning);
        self.about.warnings.push(warning);
    }

    /// Prints what stands after the events, and judges how it went.
    ///
    /// An address that names nothing is exit 2, unless something could not be read.
    pub(crate) fn end(self, ended_by: Option<Exit>) -> Result<Exit, Failure> {
        match self.wanted.kind {
            Form::Table => {}
            Form::Json => {
                self.output.text(if self.count > 0 { "\n  ]" } else { "]" })?;
                self.output.text(&self.about.envelope_tail())?;
            }
            Form::Jsonl => self.output.json_line(&self.about.summary(self.count))?,
        }
        self.output.flush()?;
        if let Some(exit) = ended_by {
            return Ok(exit);
        }
        if !self.about.incomplete.is_empty() {
            return Ok(Exit::Incomplete);
        }
        if !self.matched {
            return Err(sources::names_nothing(
                &self.wanted.selection,
                self.topics.iter().map(String::as_str),
            ));
        }
        Ok(Exit::Done)
    }
}

fn event_file(
    path: &Path,
    wanted: &Arc<Wanted>,
    progress: &Progress,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let file = EventFile::open(path)?;
    let name = file.name().to_owned();
    progress.add_total(file.size_bytes.unwrap_or(0));
    let is_file = file.size_bytes.is_some();
    let mut blocks = file.take_while(|_| interrupt::pending().is_none()).peekable();
    // What the file says first is said first again. A pipe is not waited for: its reader sees at once that this one is.
    let first = if is_file { blocks.peek().and_then(|block| block.as_ref().ok()) } else { None };
    let metadata_partitions = first.and_then(|block| match block.lines(&name).next()? {
        Ok((_, Line::Envelope(Envelope::Header(header)))) => header.metadata_partitions,
        _ => None,
    });
    let about = About { as_of_ms: output.clock.now_ms, metadata_partitions, ..About::default() };
    let mut stream = Stream::begin(output, Arc::clone(wanted), about)?;
    let mut completeness = Completeness::default();
    let write = |(): &mut (), block: Result<Block, Failure>| {
        let block = block?;
        Ok((write_block(&block, &name, wanted)?, block.bytes.len() as u64))
    };
    parallel::ordered(
        blocks,
        || (),
        write,
        |result: Result<(FromBlock, u64), Failure>| {
            let (FromBlock { written, envelopes, any_line }, bytes) = result?;
            progress.add(bytes);
            completeness.push(&name, any_line, envelopes);
            stream.push(written)
        },
    )?;
    let ended_by = interrupt::pending();
    if let Some(exit) = ended_by {
        stream.incomplete(Incomplete {
            what: format!("{name} after {}", progress.covered()),
            reason: exit.meaning().to_owned(),
        });
    } else {
        let (incomplete, warnings) = completeness.finish(&name);
        warnings.into_iter().for_each(|warning| stream.warn(warning));
        incomplete.into_iter().for_each(|missing| stream.incomplete(missing));
    }
    stream.end(ended_by)
}

/// What a block of an event file comes to.
#[derive(Default)]
struct FromBlock {
    written: Written,
    envelopes: Vec<Envelope>,
    any_line: bool,
}

fn write_block(block: &Block, name: &str, wanted: &Wanted) -> Result<FromBlock, Failure> {
    let mut from = FromBlock::default();
    for line in block.lines(name) {
        from.any_line = true;
        match line? {
            (_, Line::Event(position, value)) => wanted.write(&position, &value, &mut from.written),
            (_, Line::Envelope(envelope)) => from.envelopes.push(envelope),
            (_, Line::Fact(_)) => {}
        }
    }
    Ok(from)
}

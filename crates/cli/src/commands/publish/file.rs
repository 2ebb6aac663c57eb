//! The event file: every event of it, and what it says of where it comes from.

use std::collections::BTreeMap;
use std::path::Path;

use strandline_tier::RecordValue;
use strandline_tier::json::EventPosition;

use crate::event_file::{Completeness, EventFile, Line};
use crate::exit::{Exit, Failure};

/// Most events of a file: what is appended is meant to be looked at first.
const EVENTS_MAX: usize = 100_000;

/// An event of the file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The number of its line.
    pub(super) line: u64,
    /// Where it lay, where the line says it.
    pub(super) position: EventPosition,
    /// The event, or what is none.
    pub(super) value: RecordValue<'static>,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// How messages call the file.
    pub(super) name: String,
    /// Its events, in order.
    pub(super) entries: Vec<Entry>,
    /// The cluster that they were read from, where the file says it.
    pub(super) cluster_id: Option<String>,
    /// How many partitions that cluster's metadata topic had.
    pub(super) metadata_partitions: Option<i32>,
    /// Up to where each metadata partition had been read.
    pub(super) as_of: BTreeMap<i32, i64>,
    /// What its reader should know.
    pub(super) warnings: Vec<String>,
}

/// Reads the whole file. One that is not complete is refused: what is missing might be what matters.
pub(super) fn read(path: &Path) -> Result<Events, Failure> {
    let mut file = EventFile::open(path)?;
    let name = file.name().to_owned();
    let mut events = Events { name: name.clone(), ..Events::default() };
    let mut completeness = Completeness::default();
    while let Some(block) = file.next().transpose()? {
        let (mut any_line, mut envelopes) = (false, Vec::new());
        for line in block.lines(&name) {
            any_line = true;
            match line? {
                (line, Line::Event(position, value)) => {
                    events.entries.push(Entry { line, position, value: value.into_owned() });
                }
                // Of the cluster itself more is known than a file can tell.
                (_, Line::Fact(_)) => {}
                (_, Line::Envelope(envelope)) => envelopes.push(envelope),
            }
        }
        if events.entries.len() > EVENTS_MAX {
            return Err(Failure::usage(format!("{name} holds more than {EVENTS_MAX} events"))
                .hint("publish the events that are to be appended, and no others"));
        }
        completeness.push(&name, any_line, envelopes);
    }
    if completeness.headers() > 1 {
        return Err(Failure::usage(format!("{name} holds what several runs printed"))
            .hint("publish one file after the other"));
    }
    events.cluster_id = completeness.cluster_id().map(str::to_owned);
    events.metadata_partitions = completeness.metadata_partitions();
    events.as_of = completeness.metadata_offsets();
    let (incomplete, warnings) = completeness.finish(&name);
    if let Some(missing) = incomplete.first() {
        let what = format!("{} is missing: {}; nothing was written", missing.what, missing.reason);
        return Err(Failure { exit: Exit::Incomplete, ..Failure::usage(what) });
    }
    events.warnings = warnings;
    Ok(events)
}

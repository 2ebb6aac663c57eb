//! An event file as a source.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use strandline_audit::{Fact, Flags, MetadataPartitionStats, NotKnown, Position, TierViewBuilder};

use super::{Collected, Request, chain};
use crate::event_file::{Block, Completeness, Envelope, EventFile, Line, bad_line};
use crate::exit::Failure;
use crate::interrupt;
use crate::output::Incomplete;
use crate::parallel;
use crate::progress::{Progress, Unit};

/// What a block holds.
#[derive(Default)]
struct Read {
    events: TierViewBuilder,
    facts: Vec<Fact>,
    envelopes: Vec<Envelope>,
    any_line: bool,
}

/// Reads the whole file: events in their order, facts from anywhere in it.
pub(super) fn collect(path: &Path, request: &Request<'_>) -> Result<Collected, Failure> {
    let file = EventFile::open(path)?;
    let name = file.name().to_owned();
    let progress = Progress::start(request.progress, "reading events", Unit::Bytes);
    progress.add_total(file.size_bytes.unwrap_or(0));
    let mut collected = Collected { source: name.clone(), ..Collected::default() };
    let mut builder = TierViewBuilder::new();
    let mut completeness = Completeness::default();
    let blocks = file.take_while(|_| interrupt::pending().is_none());
    let read = |(): &mut (), block: Result<Block, Failure>| {
        let block = block?;
        Ok((read_block(&block, &name)?, block.bytes.len() as u64))
    };
    parallel::ordered(
        blocks,
        || (),
        read,
        |result: Result<(Read, u64), Failure>| {
            let (read, bytes) = result?;
            builder.merge(read.events);
            completeness.push(&name, read.any_line, read.envelopes);
            read.facts.into_iter().for_each(|fact| collected.facts.add(fact));
            progress.add(bytes);
            Ok::<_, Failure>(())
        },
    )?;
    if let Some(exit) = interrupt::pending() {
        collected.ended_by = Some(exit);
        collected.incomplete.push(Incomplete {
            what: format!("{name} after {}", progress.covered()),
            reason: exit.meaning().to_owned(),
        });
    } else {
        // A fact wins: whoever wrote it looked at the topic.
        collected.cluster_id = completeness.cluster_id().map(str::to_owned);
        if let Some(partitions) = completeness.metadata_partitions() {
            let topic = collected.facts.metadata_topic.get_or_insert_default();
            topic.partitions.get_or_insert(partitions);
        }
        (collected.incomplete, collected.warnings) = completeness.finish(&name);
    }
    if !collected.incomplete.is_empty() {
        collected.facts.partial_read = Some(format!("{name} does not hold all events"));
    }
    let partitions = collected.facts.metadata_topic.as_ref().and_then(|topic| topic.partitions);
    collected.view = Arc::new(builder.finish(partitions));
    let placed = |stats: &MetadataPartitionStats| stats.metadata_partition.is_some();
    if partitions.is_none() && collected.view.metadata_partitions().iter().any(placed) {
        collected.facts.not_known.push(NotKnown {
            what: "whether these events lie where brokers look for them".to_owned(),
            reason: format!("{name} does not say how many partitions the metadata topic has"),
        });
    }
    for stats in collected.view.metadata_partitions() {
        if let (Some(partition), Some(last)) = (stats.metadata_partition, stats.last_offset) {
            collected.metadata_offsets.insert(partition, last.saturating_add(1));
        }
    }
    Ok(collected)
}

fn read_block(block: &Block, name: &str) -> Result<Read, Failure> {
    let mut read = Read::default();
    for line in block.lines(name) {
        read.any_line = true;
        match line? {
            (_, Line::Event(at, value)) => {
                let position = Position {
                    metadata_partition: at.metadata_partition,
                    offset: at.offset,
                    timestamp_ms: at.timestamp_ms,
                };
                read.events.push(position, Flags::default(), &value);
            }
            (number, Line::Fact(bytes)) => {
                read.facts.push(fact(bytes).map_err(|reason| bad_line(name, number, reason))?)
            }
            (_, Line::Envelope(envelope)) => read.envelopes.push(envelope),
        }
    }
    Ok(read)
}

fn fact(bytes: &[u8]) -> Result<Fact, String> {
    let fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    Fact::from_json(fields).map_err(|error| chain(&error))
}

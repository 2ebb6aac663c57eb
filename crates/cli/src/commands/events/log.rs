//! The events of a log, in data directories or on a cluster: one side reads and checks, several threads decode and
//! write. The order within a metadata partition is kept.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use strandline_log::data_dir::DataDir;
use strandline_log::{
    KafkaMetadataEventLog, MetadataEventLog as _, MetadataEventRecord, MetadataEventVisitor, MetadataRange,
    OnDiskMetadataLog, PartitionMarks, RangeError, RangeVisit, RangeWarning,
};

use super::chunk::Chunk;
use super::{Stream, follow};
use crate::event_line::{Bound, Wanted, Written};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{About, Incomplete, Output};
use crate::parallel;
use crate::progress::Progress;
use crate::sources::{Homes, Live, chain, nothing_read};

/// Time between two looks for new records in files with `-f`.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// Chunks between the reader and the writers.
const CHUNKS_AHEAD_MAX: usize = 4;
/// How long a reading that was told to stop may take to hand over what it has.
const STOP_MAX: Duration = Duration::from_secs(1);

/// What the reading side hands on: records, or how the reading of a range ended.
pub(super) enum Piece {
    Chunk(Chunk),
    Visited(Box<RangeVisit<()>>),
}

/// A log that `events` can print.
pub(super) trait EventLog: Sync + Sized {
    /// The cluster's id, where it is known.
    fn cluster_id(&self) -> Option<String>;
    /// How many partitions the topic has, where that is certain.
    fn certain_count(&self) -> Option<i32>;
    /// What was told when the log was opened.
    fn told(&self) -> Vec<String> {
        Vec::new()
    }
    /// What each partition holds now.
    fn marks(&self) -> Vec<(i32, Result<PartitionMarks, RangeError>)>;
    /// Hands the records of the ranges on. Ends early when nobody takes them, or when a signal asks for it.
    fn read(&self, ranges: &[MetadataRange], to: &SyncSender<Piece>);
    /// Prints what is written from now on, until a signal. Files are looked at again and again.
    fn follow(&self, reading: &mut Reading<'_, Self>, stream: &mut Stream<'_>) -> Result<(), Failure> {
        while interrupt::sleep(FOLLOW_EVERY).is_none() {
            let ranges = reading.grown();
            reading.pass(&ranges, stream)?;
            stream.flush()?;
        }
        Ok(())
    }
}

impl EventLog for OnDiskMetadataLog {
    fn cluster_id(&self) -> Option<String> {
        let id =
            |dir: &DataDir| dir.meta_properties.as_ref().and_then(|properties| properties.cluster_id.clone());
        self.data_dirs().iter().find_map(id)
    }

    /// A disk tells only the least that it can be.
    fn certain_count(&self) -> Option<i32> {
        None
    }

    fn marks(&self) -> Vec<(i32, Result<PartitionMarks, RangeError>)> {
        self.partitions().map(|partition| (partition, self.marks_blocking(partition))).collect()
    }

    fn read(&self, ranges: &[MetadataRange], to: &SyncSender<Piece>) {
        for range in ranges {
            let mut sender = Sender { to, chunk: Chunk::default(), gone: false };
            let visitor = |record: &MetadataEventRecord<'_>| sender.visit(record);
            let RangeVisit { range, outcome, error, .. } = self.visit_range_blocking(*range, visitor);
            if sender.end(RangeVisit { range, visitor: (), outcome, error }).is_break() {
                return;
            }
        }
    }
}

/// The metadata topic of a cluster.
pub(super) struct LiveLog<'a> {
    pub(super) live: &'a Live,
    pub(super) log: KafkaMetadataEventLog,
}

impl EventLog for LiveLog<'_> {
    fn cluster_id(&self) -> Option<String> {
        self.live.cluster_id()
    }

    fn certain_count(&self) -> Option<i32> {
        Some(self.log.partition_count())
    }

    fn told(&self) -> Vec<String> {
        self.live.warnings().to_vec()
    }

    fn marks(&self) -> Vec<(i32, Result<PartitionMarks, RangeError>)> {
        let asked = async {
            tokio::select! {
                marks = self.log.high_water_marks() => marks,
                _ = interrupt::wait() => Vec::new(),
            }
        };
        (0..).zip(self.live.runtime().block_on(asked)).collect()
    }

    fn read(&self, ranges: &[MetadataRange], to: &SyncSender<Piece>) {
        let sender = || Sender { to: to.clone(), chunk: Chunk::default(), gone: false };
        let some = ranges.iter().filter(|range| range.from < range.to);
        let ranges = some.map(|range| (*range, sender())).collect();
        let visits = self.live.runtime().block_on(async {
            tokio::select! {
                visits = self.log.visit_ranges(ranges) => visits,
                () = async { interrupt::wait().await; tokio::time::sleep(STOP_MAX).await } => Vec::new(),
            }
        });
        for RangeVisit { range, visitor, outcome, error } in visits {
            if visitor.end(RangeVisit { range, visitor: (), outcome, error }).is_break() {
                return;
            }
        }
    }

    fn follow(&self, reading: &mut Reading<'_, Self>, stream: &mut Stream<'_>) -> Result<(), Failure> {
        follow::follow(self, reading, stream)
    }
}

/// Fills chunks and hands them on; waits while the writers are behind.
struct Sender<S> {
    to: S,
    chunk: Chunk,
    /// Nobody takes chunks any more.
    gone: bool,
}

impl<S: Borrow<SyncSender<Piece>>> Sender<S> {
    /// Hands on what is left, and how the reading ended; `Break` when reading on makes no sense.
    fn end(self, visit: RangeVisit<()>) -> ControlFlow<()> {
        let to = self.to.borrow();
        let sent = to.send(Piece::Chunk(self.chunk)).and_then(|()| to.send(Piece::Visited(Box::new(visit))));
        let over = self.gone || sent.is_err() || interrupt::pending().is_some();
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<S: Borrow<SyncSender<Piece>> + Send> MetadataEventVisitor for Sender<S> {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        if !self.chunk.push(record) {
            return ControlFlow::Continue(());
        }
        self.gone = self.to.borrow().send(Piece::Chunk(std::mem::take(&mut self.chunk))).is_err();
        let over = self.gone || interrupt::pending().is_some();
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Prints the events of the window; with `follow`, what is written from then on too. `told_partitions` is how many
/// partitions the user says that the topic has.
pub(super) fn run(
    log: &impl EventLog,
    homes: Option<Homes>,
    follow: bool,
    told_partitions: Option<i32>,
    wanted: &Arc<Wanted>,
    progress: &Progress,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let (mut marks, mut unread) = (BTreeMap::new(), Vec::new());
    let is_home = |partition: &i32| homes.as_ref().is_none_or(|homes| homes.partitions.contains(partition));
    let (mut elsewhere, mut known) = (Vec::new(), BTreeSet::new());
    for (partition, mark) in log.marks() {
        known.insert(partition);
        match mark {
            Ok(mark) if is_home(&partition) => drop(marks.insert(partition, mark)),
            Ok(mark) => elsewhere.push(mark),
            Err(error) if is_home(&partition) => unread.push((partition, error)),
            Err(_) => {}
        }
    }
    if marks.is_empty() && !unread.is_empty() {
        return Err(nothing_read(unread.into_iter().map(|(_, error)| error).collect()));
    }
    if let Some(named) = wanted.window.metadata_partition()
        && !known.contains(&named)
    {
        return Err(Failure::usage(format!("there is no metadata partition {named} here")));
    }
    let about = About {
        as_of_ms: output.clock.now_ms,
        cluster_id: log.cluster_id(),
        metadata_partitions: log.certain_count().or(told_partitions),
        warnings: log.told(),
        metadata_offsets: marks.iter().map(|(partition, mark)| (*partition, mark.high_watermark)).collect(),
        ..About::default()
    };
    let mut stream = Stream::begin(output, Arc::clone(wanted), about)?;
    for (partition, error) in &unread {
        let what = format!("metadata partition {partition}");
        stream.incomplete(Incomplete { what, reason: chain(error) });
    }
    let mut reading =
        Reading { log, wanted, progress, next: BTreeMap::new(), following: follow, refused: Vec::new() };
    let ranges: Vec<MetadataRange> = marks.values().map(|mark| range(wanted, mark)).collect();
    reading.pass(&ranges, &mut stream)?;
    match homes {
        Some(Homes { certain: true, .. }) => stream.exists(),
        // The partition count was a guess: what is not where it should be is looked for elsewhere.
        Some(_) if !stream.matched() && interrupt::pending().is_none() => {
            let ranges: Vec<MetadataRange> = elsewhere.iter().map(|mark| range(wanted, mark)).collect();
            reading.pass(&ranges, &mut stream)?;
        }
        _ => {}
    }
    let forbidden = |error: &RangeError| matches!(error, RangeError::Forbidden { .. });
    if stream.is_empty() && reading.refused.iter().any(forbidden) {
        return Err(nothing_read(reading.refused));
    }
    if follow && interrupt::pending().is_none() {
        stream.flush()?;
        log.follow(&mut reading, &mut stream)?;
    }
    let ended_by = interrupt::pending();
    if let (Some(exit), false) = (ended_by, follow) {
        let what = format!("the metadata topic after {}", progress.covered());
        stream.incomplete(Incomplete { what, reason: exit.meaning().to_owned() });
    }
    stream.end(ended_by)
}

fn range(wanted: &Wanted, mark: &PartitionMarks) -> MetadataRange {
    let offsets = wanted.window.offsets(mark.partition, mark.log_start_offset, mark.high_watermark);
    // What comes after a window that begins at the end is still to be followed.
    let from = if wanted.window.from == Bound::Latest { mark.high_watermark } else { offsets.start };
    MetadataRange { partition: mark.partition, from, to: offsets.end.max(from) }
}

/// How far a log has been read.
pub(super) struct Reading<'a, L> {
    log: &'a L,
    wanted: &'a Arc<Wanted>,
    progress: &'a Progress,
    /// Per metadata partition the offset to go on from.
    pub(super) next: BTreeMap<i32, i64>,
    /// True with `-f`.
    following: bool,
    /// Why ranges could not be read to their end.
    refused: Vec<RangeError>,
}

impl<L: EventLog> Reading<'_, L> {
    /// What has been written since.
    fn grown(&self) -> Vec<MetadataRange> {
        let grown = |(partition, mark): (i32, Result<PartitionMarks, RangeError>)| {
            let (from, to) = (self.next.get(&partition).copied()?, mark.ok()?.high_watermark);
            (to > from).then_some(MetadataRange { partition, from, to })
        };
        self.log.marks().into_iter().filter_map(grown).collect()
    }

    /// Reads the ranges and prints their events.
    fn pass(&mut self, ranges: &[MetadataRange], stream: &mut Stream<'_>) -> Result<(), Failure> {
        let records = ranges.iter().map(|range| range.to.saturating_sub(range.from).max(0) as u64);
        self.progress.add_total(records.sum());
        for range in ranges {
            self.next.entry(range.partition).or_insert(range.from);
        }
        let (log, wanted) = (self.log, self.wanted);
        let mut control = 0;
        thread::scope(|scope| {
            let (sender, pieces) = sync_channel(CHUNKS_AHEAD_MAX);
            scope.spawn(move || log.read(ranges, &sender));
            let write = |(): &mut (), piece: Piece| match piece {
                Piece::Chunk(chunk) => (chunk.write(wanted), chunk.len(), chunk.control(), None),
                Piece::Visited(visit) => (Written::default(), 0, 0, Some(visit)),
            };
            parallel::ordered(
                pieces.into_iter(),
                || (),
                write,
                |(written, records, markers, visit)| {
                    self.progress.add(records);
                    control += markers;
                    if let Some(visit) = visit {
                        self.note(*visit, stream);
                    }
                    stream.push(written)
                },
            )
        })?;
        tell_control(control, stream);
        Ok(())
    }

    /// Prints the events of a chunk.
    pub(super) fn print(&self, chunk: &Chunk, stream: &mut Stream<'_>) -> Result<(), Failure> {
        self.progress.add(chunk.len());
        tell_control(chunk.control(), stream);
        stream.push(chunk.write(self.wanted))
    }

    fn note(&mut self, visit: RangeVisit<()>, stream: &mut Stream<'_>) {
        let partition = visit.range.partition;
        self.next.insert(partition, visit.outcome.next_offset);
        for warning in &visit.outcome.warnings {
            // While the broker writes, its last batch is often half there; following, it is complete the next time.
            if self.following
                && matches!(warning, RangeWarning::TruncatedTail { .. } | RangeWarning::ZeroTail { .. })
            {
                continue;
            }
            if warning.loses_events() {
                let what = format!("a part of metadata partition {partition}");
                stream.incomplete(Incomplete { what, reason: warning.to_string() });
            } else {
                stream.warn(format!("metadata partition {partition}: {warning}"));
            }
        }
        if let Some(error) = visit.error {
            let what = format!("metadata partition {partition} from offset {}", visit.outcome.next_offset);
            stream.incomplete(Incomplete { what, reason: chain(&error) });
            self.refused.push(error);
        }
    }
}

fn tell_control(control: u64, stream: &mut Stream<'_>) {
    if control > 0 {
        stream
            .warn(format!("{control} control records (transaction markers) are no events and are not shown"));
    }
}

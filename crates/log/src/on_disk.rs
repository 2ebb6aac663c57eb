use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use strandline_client::reader::{Ended, visit_batch};
use strandline_protocol::records::Decompressor;

use crate::copies::first_difference;
use crate::data_dir::{DataDir, DataDirError, FileError, PartitionDir, PartitionPath, SegmentFile};
use crate::event_log::MetadataEventLog;
use crate::range::{MetadataRange, PartitionMarks, RangeError, RangeOutcome, RangeVisit, RangeWarning};
use crate::record::{EveryRecord, METADATA_TOPIC, MetadataEventVisitor};
use crate::segment::{ReadBuffer, SegmentEnd, WalkError, walk_segment};

/// The metadata topic cannot be read from these directories.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenDirError {
    /// No directory holds a partition of the topic: no tiered storage here, another broker's disk, or another name.
    #[error(
        "no partition of {topic} lies in {dirs}: tiered storage is off here, or the topic has another name"
    )]
    NoMetadataTopic {
        /// The topic looked for.
        topic: String,
        /// The directories.
        dirs: String,
    },
    /// A directory is not a broker's data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
}

/// The metadata topic as it lies in the data directories of one or several brokers, read without a broker.
///
/// A directory holds the partitions that its broker keeps, so some can be missing. Of a partition found in several
/// directories the copy that reaches farthest is read. Nothing is kept open: each reading lists the files anew.
/// Clones are cheap.
#[derive(Clone, Debug)]
pub struct OnDiskMetadataLog {
    topic: Arc<str>,
    dirs: Arc<[DataDir]>,
    partitions: Arc<BTreeMap<i32, Vec<CopyPlace>>>,
}

/// Where one copy of a partition lies.
#[derive(Clone, Debug)]
struct CopyPlace {
    /// Index into the directories.
    dir: usize,
    place: PartitionPath,
}

/// The copies of a partition that can be read, and what was odd about those that cannot.
struct Copies {
    best: PartitionDir,
    others: Vec<PartitionDir>,
    warnings: Vec<RangeWarning>,
}

/// What one reader needs again and again.
struct Reader<'a> {
    log: &'a OnDiskMetadataLog,
    stop: &'a AtomicBool,
    buffer: ReadBuffer,
    decompressor: Decompressor,
}

impl OnDiskMetadataLog {
    /// Opens the topic [`METADATA_TOPIC`] in one data directory.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenDirError> {
        Self::from_data_dirs(vec![DataDir::open(dir)?], METADATA_TOPIC)
    }

    /// Opens `topic` in several data directories: the disks of one broker, or those of several.
    pub fn from_data_dirs(dirs: Vec<DataDir>, topic: &str) -> Result<Self, OpenDirError> {
        let mut partitions: BTreeMap<i32, Vec<CopyPlace>> = BTreeMap::new();
        for (index, dir) in dirs.iter().enumerate() {
            for place in dir.partitions_of(topic) {
                partitions
                    .entry(place.partition)
                    .or_default()
                    .push(CopyPlace { dir: index, place: place.clone() });
            }
        }
        if partitions.is_empty() {
            let dirs: Vec<_> = dirs.iter().map(|dir| dir.path.display().to_string()).collect();
            return Err(OpenDirError::NoMetadataTopic { topic: topic.to_owned(), dirs: dirs.join(", ") });
        }
        Ok(Self { topic: topic.into(), dirs: dirs.into(), partitions: partitions.into() })
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The data directories, in the order given.
    pub fn data_dirs(&self) -> &[DataDir] {
        &self.dirs
    }

    /// The partitions that are here, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = i32> {
        self.partitions.keys().copied()
    }

    /// The files of the copy that is read: the one that reaches farthest.
    pub fn partition_dir(&self, partition: i32) -> Result<PartitionDir, RangeError> {
        self.copies(partition).map(|copies| copies.best)
    }

    fn copies(&self, partition: i32) -> Result<Copies, RangeError> {
        let places = self.partitions.get(&partition).ok_or(RangeError::NoSuchPartition { partition })?;
        let read = |copy: &CopyPlace| self.dirs[copy.dir].read_partition(&copy.place);
        let failed = |source| RangeError::File { partition, source };
        if let [only] = &places[..] {
            return Ok(Copies {
                best: read(only).map_err(failed)?,
                others: Vec::new(),
                warnings: Vec::new(),
            });
        }
        let (mut readable, mut failure, mut warnings) = (Vec::new(), None, Vec::new());
        for copy in places {
            match read(copy).and_then(|dir| Ok((dir.log_end_offset()?, dir))) {
                Ok(copy) => readable.push(copy),
                Err(error) => {
                    let (path, reason) = (copy.place.path.clone(), chain(&error));
                    warnings.push(RangeWarning::CopyUnreadable { path, reason });
                    failure = failure.or(Some(error));
                }
            }
        }
        // The sort is stable: of copies that reach equally far the one named first is read.
        readable.sort_by_key(|(end_offset, _)| std::cmp::Reverse(*end_offset));
        let mut readable = readable.into_iter().map(|(_, dir)| dir);
        match (readable.next(), failure) {
            (Some(best), _) => Ok(Copies { best, others: readable.collect(), warnings }),
            (None, Some(error)) => Err(failed(error)),
            (None, None) => Err(RangeError::NoSuchPartition { partition }),
        }
    }

    /// The offsets that one partition's files hold.
    pub fn marks_blocking(&self, partition: i32) -> Result<PartitionMarks, RangeError> {
        let dir = self.partition_dir(partition)?;
        let high_watermark = dir.log_end_offset().map_err(|source| RangeError::File { partition, source })?;
        let log_start_offset = dir.local_start_offset();
        Ok(PartitionMarks {
            partition,
            log_start_offset,
            high_watermark: high_watermark.max(log_start_offset),
        })
    }

    /// Visits a whole partition on the calling thread, from its log start to its last whole batch.
    ///
    /// Where there are other copies of it they are read too, and a difference is a warning.
    pub fn visit_partition_blocking<V: MetadataEventVisitor>(
        &self,
        partition: i32,
        visitor: V,
    ) -> RangeVisit<V> {
        Reader::new(self, &AtomicBool::new(false)).read(partition, None, visitor)
    }

    /// Visits a range on the calling thread. It ends at the end of the files, if that comes before the end of the range.
    pub fn visit_range_blocking<V: MetadataEventVisitor>(
        &self,
        range: MetadataRange,
        visitor: V,
    ) -> RangeVisit<V> {
        Reader::new(self, &AtomicBool::new(false)).read(range.partition, Some(range), visitor)
    }

    /// Visits every partition that is here, whole, on up to `threads` threads, the largest first.
    ///
    /// `visitor` makes the visitor of a partition. Answers come in the order of the partitions.
    pub fn visit_all_blocking<V: MetadataEventVisitor>(
        &self,
        threads: NonZeroUsize,
        visitor: impl Fn(i32) -> V,
    ) -> Vec<RangeVisit<V>> {
        let jobs = self.partitions().map(|partition| (partition, None, visitor(partition))).collect();
        self.run(threads, jobs, &AtomicBool::new(false))
    }

    /// Runs jobs on threads of their own; the answers come in the order of the jobs.
    fn run<V: MetadataEventVisitor>(
        &self,
        threads: NonZeroUsize,
        jobs: Vec<(i32, Option<MetadataRange>, V)>,
        stop: &AtomicBool,
    ) -> Vec<RangeVisit<V>> {
        let mut queue: Vec<_> = jobs.into_iter().enumerate().collect();
        let threads = threads.get().min(queue.len());
        // The largest are taken from the end first, so that none of them is started when the others are done.
        queue.sort_by_cached_key(|(_, (partition, ..))| self.size_of(*partition));
        let queue = Mutex::new(queue);
        let mut answers: Vec<_> = std::thread::scope(|scope| {
            let worker = || {
                let mut reader = Reader::new(self, stop);
                let mut done = Vec::new();
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some((index, (partition, range, visitor))) = job else { return done };
                    done.push((index, reader.read(partition, range, visitor)));
                }
            };
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(worker)).collect();
            let mut answers = worker();
            for worker in workers {
                answers.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            answers
        });
        answers.sort_unstable_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, visit)| visit).collect()
    }

    /// The bytes of a partition's first copy, as far as they can be told; only an order depends on it.
    fn size_of(&self, partition: i32) -> u64 {
        let first = self.partitions.get(&partition).and_then(|copies| copies.first());
        let dir = first.and_then(|copy| self.dirs[copy.dir].read_partition(&copy.place).ok());
        dir.map_or(0, |dir| dir.segments.iter().map(|segment| segment.size_bytes).sum())
    }
}

impl<'a> Reader<'a> {
    fn new(log: &'a OnDiskMetadataLog, stop: &'a AtomicBool) -> Self {
        Self { log, stop, buffer: ReadBuffer::default(), decompressor: Decompressor::default() }
    }

    /// Reads a range, or the whole partition.
    fn read<V: MetadataEventVisitor>(
        &mut self,
        partition: i32,
        asked: Option<MetadataRange>,
        mut visitor: V,
    ) -> RangeVisit<V> {
        let mut range = asked.unwrap_or(MetadataRange { partition, from: 0, to: i64::MAX });
        let mut outcome = RangeOutcome { next_offset: range.from, ..RangeOutcome::default() };
        let result = self.log.copies(partition).and_then(|copies| {
            let dir = &copies.best;
            outcome.warnings = copies.warnings;
            if asked.is_some() {
                check_start(dir, &range)?;
            } else {
                range.from = dir.local_start_offset();
                outcome.next_offset = range.from;
                outcome.warnings.extend(copies.others.iter().filter_map(|other| difference(dir, other)));
            }
            self.read_segments(dir, &range, &mut visitor, &mut outcome)
        });
        if asked.is_none() {
            range.to = outcome.next_offset;
        }
        RangeVisit { range, visitor, outcome, error: result.err() }
    }

    fn read_segments<V: MetadataEventVisitor>(
        &mut self,
        dir: &PartitionDir,
        range: &MetadataRange,
        visitor: &mut V,
        outcome: &mut RangeOutcome,
    ) -> Result<(), RangeError> {
        let after = dir.segments.partition_point(|segment| segment.base_offset <= range.from);
        let segments = &dir.segments[after.saturating_sub(1)..];
        let mut expected_offset = None;
        for (index, segment) in segments.iter().enumerate() {
            if outcome.next_offset >= range.to || segment.base_offset >= range.to {
                break;
            }
            outcome.warnings.extend(expected_offset.and_then(|expected| misfit(segment, expected)));
            let (end, next_offset) = self.read_segment(segment, range, visitor, outcome)?;
            let last = index + 1 == segments.len();
            outcome.warnings.extend(oddity(segment, end, last, next_offset));
            if end == SegmentEnd::Stopped {
                break;
            }
            expected_offset = Some(next_offset);
        }
        Ok(())
    }

    /// Reads one file; tells how it ended, and the offset after its last whole batch.
    fn read_segment<V: MetadataEventVisitor>(
        &mut self,
        segment: &SegmentFile,
        range: &MetadataRange,
        visitor: &mut V,
        outcome: &mut RangeOutcome,
    ) -> Result<(SegmentEnd, i64), RangeError> {
        let (path, partition) = (&segment.path, range.partition);
        let mut next_offset = segment.base_offset;
        let (stop, decompressor) = (self.stop, &mut self.decompressor);
        let mut every = EveryRecord { partition, visitor };
        let end = walk_segment(path, segment.base_offset, &mut self.buffer, |batch| {
            let header = &batch.header;
            if header.base_offset < next_offset {
                return Err(WalkError::File(FileError::OffsetsFall {
                    path: path.clone(),
                    position: batch.position,
                    offset: header.base_offset,
                    expected: next_offset,
                }));
            }
            next_offset = header.next_offset();
            if next_offset <= outcome.next_offset {
                return Ok(ControlFlow::Continue(()));
            }
            if header.base_offset >= range.to || stop.load(Ordering::Relaxed) {
                return Ok(ControlFlow::Break(()));
            }
            let mut progress = outcome.progress();
            let visited = visit_batch(batch, range.to, decompressor, &mut progress, &mut every);
            outcome.take(progress);
            let ended = visited.map_err(WalkError::Batch)?;
            outcome.stopped = ended == Some(Ended::Visitor);
            Ok(if ended.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        match end {
            Ok(end) => Ok((end, next_offset)),
            Err(WalkError::File(source)) => Err(RangeError::File { partition, source }),
            Err(WalkError::Batch(source)) => {
                Err(RangeError::Batch { partition, origin: path.display().to_string(), source })
            }
        }
    }
}

fn difference(read: &PartitionDir, other: &PartitionDir) -> Option<RangeWarning> {
    let offset = first_difference(read, other)?;
    Some(RangeWarning::CopiesDiffer { path: read.path.clone(), other: other.path.clone(), offset })
}

/// What is odd about how a file ended.
fn oddity(segment: &SegmentFile, end: SegmentEnd, last: bool, offset: i64) -> Option<RangeWarning> {
    let path = segment.path.clone();
    match end {
        SegmentEnd::Whole | SegmentEnd::Stopped => None,
        SegmentEnd::Cut { position, bytes } if last => {
            Some(RangeWarning::TruncatedTail { path, position, bytes, offset })
        }
        SegmentEnd::Zeroes { position, bytes } if last => {
            Some(RangeWarning::ZeroTail { path, position, bytes, offset })
        }
        SegmentEnd::Cut { position, bytes } | SegmentEnd::Zeroes { position, bytes } => {
            Some(RangeWarning::TruncatedFile { path, position, bytes, offset })
        }
    }
}

/// What is odd about where a file begins.
fn misfit(segment: &SegmentFile, expected_offset: i64) -> Option<RangeWarning> {
    let (path, base_offset) = (segment.path.clone(), segment.base_offset);
    match base_offset.cmp(&expected_offset) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(RangeWarning::SegmentGap { path, expected_offset, base_offset }),
        std::cmp::Ordering::Less => Some(RangeWarning::SegmentOverlap { path, expected_offset, base_offset }),
    }
}

fn check_start(dir: &PartitionDir, range: &MetadataRange) -> Result<(), RangeError> {
    let (partition, log_start_offset) = (range.partition, dir.local_start_offset());
    let last_base_offset = dir.segments.last().map_or(log_start_offset, |segment| segment.base_offset);
    if range.from >= log_start_offset && range.from <= last_base_offset {
        return Ok(());
    }
    let end_offset = dir.log_end_offset().map_err(|source| RangeError::File { partition, source })?;
    if range.from >= log_start_offset && range.from <= end_offset {
        return Ok(());
    }
    Err(RangeError::OffsetOutOfRange { partition, offset: range.from, log_start_offset, end_offset })
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Tells a reader on another thread to stop once nobody waits for it.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl OnDiskMetadataLog {
    /// Runs blocking work on tokio's threads for it. A dropped future stops the work at the next batch.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Self, &AtomicBool) -> T + Send + 'static,
    ) -> T {
        let (log, stop) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let _stop = StopOnDrop(Arc::clone(&stop));
        match tokio::task::spawn_blocking(move || work(log, &stop)).await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Needs a tokio runtime. [`OnDiskMetadataLog::visit_all_blocking`] and its like need none.
impl MetadataEventLog for OnDiskMetadataLog {
    /// One more than the highest partition found: a lower bound, since a directory need not hold all of them.
    fn partition_count(&self) -> i32 {
        self.partitions.keys().next_back().map_or(0, |highest| highest.saturating_add(1))
    }

    async fn high_water_marks(&self) -> Vec<Result<PartitionMarks, RangeError>> {
        self.blocking(|log, _| log.partitions().map(|partition| log.marks_blocking(partition)).collect())
            .await
    }

    async fn visit_range<V: MetadataEventVisitor + 'static>(
        &self,
        range: MetadataRange,
        visitor: V,
    ) -> RangeVisit<V> {
        self.blocking(move |log, stop| Reader::new(&log, stop).read(range.partition, Some(range), visitor))
            .await
    }

    async fn visit_ranges<V: MetadataEventVisitor + 'static>(
        &self,
        ranges: Vec<(MetadataRange, V)>,
    ) -> Vec<RangeVisit<V>> {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let jobs =
            ranges.into_iter().map(|(range, visitor)| (range.partition, Some(range), visitor)).collect();
        self.blocking(move |log, stop| log.run(threads, jobs, stop)).await
    }

    async fn close(self) {}
}

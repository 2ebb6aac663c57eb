//! Brokers' data directories as a source, without a broker.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use rustc_hash::{FxHashMap, FxHashSet};
use strandline_audit::{
    Facts, LocalSegment, LocalSegmentsFact, LogFact, LogStartSource, MetadataTopicFact, TierViewBuilder,
    TopicFact, TruncatedFile,
};
use strandline_log::data_dir::{DataDir, FileError, PartitionDir};
use strandline_log::{OnDiskMetadataLog, OpenDirError, RangeVisit, RangeWarning};
use strandline_tier::{MetadataPartitioner, TopicId};

use super::visitor::Visitor;
use super::{Collected, Earlier, Homes, Request, chain};
use crate::address::Selection;
use crate::exit::Failure;
use crate::interrupt;
use crate::output::Incomplete;
use crate::progress::{Progress, Unit};

/// Up to which metadata partition the marks are told: a directory's name can claim any number.
const MARKS_MAX: i32 = 100_000;

/// How many ranges of missing metadata partitions are told.
const RANGES_SHOWN_MAX: usize = 20;

/// Opens the metadata topic in the directories.
pub(crate) fn open(paths: &[PathBuf], topic: &str) -> Result<OnDiskMetadataLog, Failure> {
    let mut dirs = Vec::with_capacity(paths.len());
    for path in paths {
        dirs.push(DataDir::open(path).map_err(|error| Failure::usage(anyhow::Error::new(error)))?);
    }
    one_cluster(&dirs)?;
    OnDiskMetadataLog::from_data_dirs(dirs, topic).map_err(|error| match error {
        OpenDirError::NoMetadataTopic { .. } => Failure::unsupported(anyhow::Error::new(error))
            .hint("--metadata-topic NAME if the topic has another name"),
        error => Failure::usage(anyhow::Error::new(error)),
    })
}

fn one_cluster(dirs: &[DataDir]) -> Result<(), Failure> {
    let id =
        |dir: &DataDir| dir.meta_properties.as_ref().and_then(|properties| properties.cluster_id.clone());
    let ids: BTreeSet<String> = dirs.iter().filter_map(id).collect();
    if ids.len() < 2 {
        return Ok(());
    }
    let ids: Vec<String> = ids.into_iter().collect();
    Err(Failure::usage(format!("the directories are of different clusters: {}", ids.join(", "))))
}

/// Reads the metadata topic and what the directories say of the partitions that its events name.
pub(super) fn collect(
    paths: &[PathBuf],
    request: &Request<'_>,
    earlier: Earlier,
) -> Result<Collected, Failure> {
    let log = open(paths, &request.args.metadata_topic)?;
    let dirs = PartitionDirs::list(&log);
    if !earlier.is_none() {
        let only = earlier.partial.then(|| earlier.metadata_offsets.keys().copied().collect());
        return read(&log, &dirs, request, only.as_ref(), earlier);
    }
    if let Some(some) = some_partitions(&log, &dirs, request.selection, request.args.metadata_partitions) {
        let collected = read(&log, &dirs, request, Some(&some), Earlier::default())?;
        // The named partitions have events where they were looked for; otherwise the guess of the count, or the
        // id, was wrong, and everything is read.
        let found = |&(topic, partition): &(&str, i32)| {
            collected.view.partitions().any(|seen| seen.topic() == topic && seen.partition() == partition)
        };
        if request.selection.exact_partitions().unwrap_or_default().iter().all(found) {
            return Ok(collected);
        }
    }
    read(&log, &dirs, request, None, earlier)
}

/// The metadata partitions that the named partitions hash to, where that can be told.
fn some_partitions(
    log: &OnDiskMetadataLog,
    dirs: &PartitionDirs,
    selection: &Selection,
    metadata_partitions: Option<i32>,
) -> Option<BTreeSet<i32>> {
    let named = selection.exact_partitions()?;
    let count = metadata_partitions.or_else(|| contiguous_count(log))?;
    let partitioner = MetadataPartitioner::new(count)?;
    let here: FxHashSet<i32> = log.partitions().collect();
    let home = |(topic, partition): (&str, i32)| {
        let id =
            dirs.topic_ids.get(topic).and_then(|ids| if let [id] = ids[..] { Some(id) } else { None })?;
        Some(partitioner.metadata_partition(id, partition)).filter(|home| here.contains(home))
    };
    named.into_iter().map(home).collect()
}

/// Where the events of the named partitions are, as far as the directories tell.
pub(crate) fn homes(
    log: &OnDiskMetadataLog,
    selection: &Selection,
    metadata_partitions: Option<i32>,
) -> Option<Homes> {
    selection.exact_partitions()?;
    let dirs = PartitionDirs::list(log);
    let partitions = some_partitions(log, &dirs, selection, metadata_partitions)?;
    Some(Homes { partitions, certain: false })
}

/// The metadata topic's partition count, as far as the directories can tell: all partitions from 0 on, without a
/// hole. It is still only the least that it can be.
fn contiguous_count(log: &OnDiskMetadataLog) -> Option<i32> {
    let partitions: Vec<i32> = log.partitions().collect();
    partitions.iter().copied().eq(0..partitions.len() as i32).then_some(partitions.len() as i32)
}

fn read(
    log: &OnDiskMetadataLog,
    dirs: &PartitionDirs,
    request: &Request<'_>,
    only: Option<&BTreeSet<i32>>,
    earlier: Earlier,
) -> Result<Collected, Failure> {
    let progress = Progress::start(request.progress, "reading events", Unit::Events);
    let mut collected = Collected {
        source: words(log),
        cluster_id: log.data_dirs().iter().find_map(|dir| {
            dir.meta_properties.as_ref().and_then(|properties| properties.cluster_id.clone())
        }),
        metadata_offsets: earlier.metadata_offsets.clone(),
        ..Collected::default()
    };
    // Listed before they are read: what is written meanwhile then shows as a change.
    let asked = log.partitions().filter(|at| only.is_none_or(|only| only.contains(at)));
    collected.files = asked.filter_map(|at| Some((at, log.partition_dir(at).ok()?.segments))).collect();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let visitor = |_| Visitor::new(&progress);
    let visits: Vec<RangeVisit<Visitor<&Progress>>> = match only {
        _ if !earlier.is_none() => {
            let written = earlier.written_since(&collected.files);
            written.map(|range| log.visit_range_blocking(range, visitor(range.partition))).collect()
        }
        None => log.visit_all_blocking(threads, visitor),
        Some(only) => only.iter().map(|&at| log.visit_partition_blocking(at, visitor(at))).collect(),
    };
    let mut builders = Vec::with_capacity(visits.len());
    let mut topic = MetadataTopicFact { truncated_files: Some(Vec::new()), ..MetadataTopicFact::default() };
    for visit in visits {
        note(&visit, &mut collected, &mut topic);
        builders.push((visit.range.partition, visit.visitor.builder));
    }
    topic.partitions = if earlier.is_none() {
        let (told, found) = (request.args.metadata_partitions, count_that_fits(log, &builders));
        // Where events lie proves more than what the brokers are said to be configured for.
        let events = builders.iter().any(|(_, events)| events.user_partitions().next().is_some());
        if events { found.or(told) } else { told.or(found) }
    } else {
        earlier.metadata_partitions
    };
    let missing = missing_partitions(log.partitions(), topic.partitions);
    if only.is_none() && !missing.is_empty() {
        collected.incomplete.push(Incomplete {
            what: format!("metadata partitions {}", numbers(&missing)),
            reason: "they are not in these directories: name those of the other disks or brokers too"
                .to_owned(),
        });
    }
    marks(log, &collected.metadata_offsets, &mut topic);
    collected.view =
        earlier.with(builders.into_iter().map(|(_, builder)| builder).collect(), topic.partitions);
    let named: FxHashSet<&str> = collected.view.partitions().map(|partition| partition.topic()).collect();
    dirs.facts(&named, &mut collected.facts, &mut collected.incomplete);
    collected.facts.metadata_topic = Some(topic);
    if let Some(only) = only {
        let read: Vec<String> = only.iter().map(i32::to_string).collect();
        collected.facts.partial_read =
            Some(format!("only metadata partition {} was read, as the address asks", read.join(", ")));
    }
    if let Some(exit) = interrupt::pending() {
        collected.ended_by = Some(exit);
        let what = format!("the metadata topic after {}", progress.covered());
        collected.incomplete.push(Incomplete { what, reason: exit.meaning().to_owned() });
    }
    Ok(collected)
}

fn words(log: &OnDiskMetadataLog) -> String {
    let dirs: Vec<String> = log.data_dirs().iter().map(|dir| dir.path.display().to_string()).collect();
    dirs.join(", ")
}

/// What was odd about a partition's files, and why it was not read to its end.
fn note(visit: &RangeVisit<Visitor<&Progress>>, collected: &mut Collected, topic: &mut MetadataTopicFact) {
    let partition = visit.range.partition;
    collected.metadata_offsets.insert(partition, visit.outcome.next_offset);
    for warning in &visit.outcome.warnings {
        let file = |path: &std::path::Path, offset: i64, last: bool| TruncatedFile {
            metadata_partition: partition,
            path: path.display().to_string(),
            next_offset: Some(offset),
            last,
        };
        let truncated = topic.truncated_files.get_or_insert_default();
        match warning {
            RangeWarning::TruncatedTail { path, offset, .. } => truncated.push(file(path, *offset, true)),
            RangeWarning::TruncatedFile { path, offset, .. } => truncated.push(file(path, *offset, false)),
            _ => {}
        }
        if matches!(warning, RangeWarning::SegmentGap { .. }) {
            let what = format!("a part of metadata partition {partition}");
            collected.incomplete.push(Incomplete { what, reason: warning.to_string() });
        } else if !matches!(warning, RangeWarning::ZeroTail { .. }) {
            collected.warnings.push(format!("metadata partition {partition}: {warning}"));
        }
    }
    if let Some(error) = &visit.error {
        let what = format!("metadata partition {partition} from offset {}", visit.outcome.next_offset);
        collected.incomplete.push(Incomplete { what, reason: chain(error) });
    }
}

/// The partition count of the directories, where it agrees with the places of the events. A broker's directory can
/// hold partitions 0 to 3 of 50: then most events would lie where that count does not put them.
fn count_that_fits(log: &OnDiskMetadataLog, builders: &[(i32, TierViewBuilder)]) -> Option<i32> {
    let count = contiguous_count(log)?;
    let partitioner = MetadataPartitioner::new(count)?;
    let pairs = || {
        let events = builders.iter();
        events.flat_map(|(at, events)| {
            events.user_partitions().map(move |(id, partition)| (*at, id, partition))
        })
    };
    let all = pairs().count();
    let fitting =
        pairs().filter(|&(at, id, partition)| partitioner.metadata_partition(id, partition) == at).count();
    // One event among many that is out of place is a finding; most of them out of place is another count.
    (fitting * 2 > all || all == 0).then_some(count)
}

/// Partitions that the topic must have and that are not here, as ranges: a directory's name can claim any number.
fn missing_partitions(here: impl IntoIterator<Item = i32>, count: Option<i32>) -> Vec<RangeInclusive<i64>> {
    let mut missing = Vec::new();
    let mut next = 0;
    for partition in here.into_iter().map(i64::from) {
        if next < partition {
            missing.push(next..=partition - 1);
        }
        next = partition + 1;
    }
    if let Some(count) = count.map(i64::from).filter(|count| next < *count) {
        missing.push(next..=count - 1);
    }
    missing
}

/// Ranges in words, the first of them: `2, 5-7`.
fn numbers(ranges: &[RangeInclusive<i64>]) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN_MAX).map(|range| match (range.start(), range.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start}-{end}"),
    });
    let mut shown: Vec<String> = shown.collect();
    if ranges.len() > RANGES_SHOWN_MAX {
        shown.push("and others".to_owned());
    }
    shown.join(", ")
}

/// First and next offset of each metadata partition; the next of one that was not read is not known, and neither of
/// one beyond [`MARKS_MAX`].
fn marks(log: &OnDiskMetadataLog, next_offsets: &BTreeMap<i32, i64>, topic: &mut MetadataTopicFact) {
    let starts: BTreeMap<i32, i64> = log
        .partitions()
        .filter_map(|at| Some((at, log.partition_dir(at).ok()?.local_start_offset())))
        .collect();
    let highest = starts.keys().next_back().map_or(0, |highest| highest.saturating_add(1)).min(MARKS_MAX);
    let each = |of: &BTreeMap<i32, i64>| (0..highest).map(|at| of.get(&at).copied()).collect();
    topic.log_start_offsets = Some(each(&starts));
    topic.end_offsets = Some(each(next_offsets));
}

/// The directories of user partitions.
struct PartitionDirs {
    /// Per partition every copy, with its broker and its disk.
    copies: BTreeMap<(String, i32), Vec<Copy>>,
    topic_ids: FxHashMap<String, Vec<TopicId>>,
    broken: Vec<(String, FileError)>,
}

struct Copy {
    dir: PartitionDir,
    broker: Option<i32>,
    disk: String,
}

impl PartitionDirs {
    fn list(log: &OnDiskMetadataLog) -> Self {
        let mut list = Self { copies: BTreeMap::new(), topic_ids: FxHashMap::default(), broken: Vec::new() };
        for disk in log.data_dirs() {
            let broker = disk.meta_properties.as_ref().and_then(|properties| properties.node_id);
            for place in disk.partitions.iter().filter(|place| place.topic != log.topic()) {
                match disk.read_partition(place) {
                    Ok(dir) => {
                        if let Some(id) = dir.topic_id {
                            let ids = list.topic_ids.entry(place.topic.clone()).or_default();
                            if !ids.contains(&id) {
                                ids.push(id);
                            }
                        }
                        let key = (place.topic.clone(), place.partition);
                        let disk = disk.path.display().to_string();
                        list.copies.entry(key).or_default().push(Copy { dir, broker, disk });
                    }
                    // Deleted since the disk was listed: a running broker does that.
                    Err(error) if error.is_gone() => {}
                    Err(error) => list.broken.push((place.topic.clone(), error)),
                }
            }
        }
        list
    }

    /// What the directories say of the topics that have events.
    fn facts(&self, named: &FxHashSet<&str>, facts: &mut Facts, incomplete: &mut Vec<Incomplete>) {
        for (topic, ids) in &self.topic_ids {
            if let ([id], true) = (&ids[..], named.contains(topic.as_str())) {
                facts.topics.push(TopicFact {
                    topic: topic.clone(),
                    topic_id: Some(*id),
                    ..TopicFact::default()
                });
            }
        }
        facts.topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        for (topic, error) in &self.broken {
            if named.contains(topic.as_str()) {
                incomplete.push(Incomplete {
                    what: format!("a partition's directory of topic {topic}"),
                    reason: chain(error),
                });
            }
        }
        for ((topic, partition), copies) in &self.copies {
            if !named.contains(topic.as_str()) {
                continue;
            }
            let mut farthest: Option<(i64, PartitionDir)> = None;
            for copy in copies {
                let (dir, end) = match copy.dir.clone().to_its_end() {
                    Ok(None) => continue,
                    Ok(Some((dir, end))) => (dir, Some(end)),
                    Err(error) => {
                        incomplete.push(Incomplete {
                            what: format!("the local log of {topic}:{partition} in {}", copy.disk),
                            reason: chain(&error),
                        });
                        (copy.dir.clone(), None)
                    }
                };
                facts.local_segments.push(local_segments(topic, *partition, copy, &dir));
                if let Some(end) = end
                    && farthest.as_ref().is_none_or(|(best, _)| end > *best)
                {
                    farthest = Some((end, dir));
                }
            }
            if let Some((end, dir)) = farthest {
                facts.logs.push(log_fact(topic, *partition, end, &dir));
            }
        }
    }
}

/// A replica's view of a partition. Who leads it, a directory does not tell.
fn log_fact(topic: &str, partition: i32, end: i64, dir: &PartitionDir) -> LogFact {
    let checkpoint = dir.checkpointed_log_start_offset;
    let first_epoch = dir.leader_epochs.as_ref().and_then(|epochs| epochs.first()).map(|(_, start)| *start);
    let (log_start_offset, log_start_source) = match (checkpoint, first_epoch) {
        (Some(start), epoch) if epoch.is_none_or(|epoch| start >= epoch) => {
            (Some(start), Some(LogStartSource::LogStartOffsetCheckpoint))
        }
        (_, Some(epoch)) => (Some(epoch), Some(LogStartSource::LeaderEpochCheckpoint)),
        (_, None) => (None, None),
    };
    LogFact {
        topic: topic.to_owned(),
        partition,
        topic_id: dir.topic_id,
        leader: None,
        leader_epoch: None,
        log_start_offset,
        log_start_source,
        local_start_offset: Some(dir.local_start_offset()),
        log_end_offset: Some(end),
        last_stable_offset: None,
        open_transaction: None,
        leader_epochs: dir.leader_epochs.clone(),
        epoch_ends: None,
    }
}

fn local_segments(topic: &str, partition: i32, copy: &Copy, dir: &PartitionDir) -> LocalSegmentsFact {
    let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let segments: Vec<LocalSegment> = dir
        .segments
        .iter()
        .map(|file| LocalSegment {
            base_offset: file.base_offset,
            size_bytes: size(file.size_bytes),
            // A file that vanished or cannot be read has no newest record that is known.
            max_timestamp_ms: file.max_timestamp_ms().ok().flatten(),
        })
        .collect();
    LocalSegmentsFact {
        topic: topic.to_owned(),
        partition,
        topic_id: dir.topic_id,
        broker: copy.broker,
        log_dir: Some(copy.disk.clone()),
        size_bytes: Some(segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.size_bytes))),
        segments: Some(segments),
        producer_snapshots: Some(dir.producer_snapshots.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_metadata_partitions_are_told_as_ranges_whatever_a_name_claims() {
        let told = |here: &[i32], count| numbers(&missing_partitions(here.iter().copied(), count));
        assert_eq!(told(&[0, 1, 2], None), "");
        assert_eq!(told(&[0, 2, 7], Some(10)), "1, 3-6, 8-9");
        assert_eq!(told(&[3], Some(2)), "0-2");
        assert_eq!(told(&[0, i32::MAX], None), "1-2147483646");
        assert_eq!(told(&[0], Some(i32::MAX)), "1-2147483646");
        let every_other: Vec<i32> = (0..100).map(|partition| 2 * partition).collect();
        assert!(told(&every_other, None).ends_with("39, and others"));
    }
}

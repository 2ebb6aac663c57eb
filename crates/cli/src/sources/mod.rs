//! Where the facts come from: a live cluster, data directories, an event file, a store.
//!
//! [`Source::choose`] reads the flags; [`collect`] gives everything that is known as one [`Collected`], which all
//! commands judge and show.

mod event_file;
mod live;
mod log_dir;
mod reach;
mod store;
mod visitor;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use strandline_audit::{Facts, MetadataPartitionStats, TierView, TierViewBuilder};

pub(crate) use live::{
    LOG_DIRS_RIGHT, Live, METADATA_CONFIGS_RIGHT, Purpose, TOPIC_CONFIGS_RIGHT, TOPIC_RIGHT,
    metadata_topic_fact, nothing_read,
};
pub(crate) use log_dir::{homes as homes_in_dirs, open as open_log_dirs};
pub(crate) use reach::{connect_exit, connect_hint, refresh_failure};
pub(crate) use store::StoreSource;
pub(crate) use visitor::Visitor;

use strandline_log::data_dir::SegmentFile;
use strandline_log::{MetadataRange, PartitionMarks};

use crate::address::{Address, Selection, TopicPattern};
use crate::args::{ProgressKind, SourceArgs};
use crate::exit::{Exit, Failure};
use crate::moment::show_span;
use crate::output::{About, Incomplete};
use crate::text::{escape, nearest, thousands};

/// Where the events come from: exactly one of these.
#[derive(Debug)]
pub(crate) enum Source {
    /// `-b HOST:PORT`, or a cluster that the environment or a file names.
    Live(Box<Live>),
    /// `--events FILE`
    EventFile(PathBuf),
    /// `--log-dir DIR`, once or more.
    LogDirs(Vec<PathBuf>),
}

impl Source {
    /// The source that the flags name. Two of them are refused, since their events would not be of one log.
    pub(crate) fn choose(args: &SourceArgs) -> Result<Self, Failure> {
        let given = [
            ("-b", args.bootstrap_server.is_some()),
            ("--log-dir", !args.log_dir.is_empty()),
            ("--events", args.events.is_some()),
        ];
        let flags: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
        if flags.len() > 1 {
            return Err(Failure::usage(format!("{} exclude each other", flags.join(" and ")))
                .hint("their events are not of one log; look at one after the other"));
        }
        if let Some(path) = &args.events {
            return Ok(Self::EventFile(path.clone()));
        }
        if !args.log_dir.is_empty() {
            return Ok(Self::LogDirs(args.log_dir.clone()));
        }
        // Without a flag the environment or a file may name a cluster.
        let settings = Live::settings(args.bootstrap_server.as_deref(), &args.config)?;
        if settings.names_a_cluster() {
            return Ok(Self::Live(Box::new(Live::connect(settings, Purpose::Read)?)));
        }
        Err(Failure::usage("no source is named").hint(
            "-b HOST:PORT asks a cluster, --log-dir DIR reads a broker's data directory, --events FILE an event file",
        ))
    }

    /// True when a second reading can show something else than the first.
    pub(crate) fn can_change(&self) -> bool {
        match self {
            Self::EventFile(_) => false,
            Self::Live(_) | Self::LogDirs(_) => true,
        }
    }
}

/// The metadata partitions that hold the events of the partitions that a selection names.
#[derive(Debug)]
pub(crate) struct Homes {
    /// The metadata partitions.
    pub(crate) partitions: BTreeSet<i32>,
    /// True where the partitions exist and the count that they hash by is known; else both are a guess.
    pub(crate) certain: bool,
}

/// What is asked of a source.
pub(crate) struct Request<'a> {
    /// The flags.
    pub(crate) args: &'a SourceArgs,
    /// What is looked at: addresses that name partitions let a source read less.
    pub(crate) selection: &'a Selection,
    /// Now, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    /// The partitions of which is asked who holds uploads back and who stands where (transactions and consumer groups);
    /// `None` for none.
    pub(crate) who: Option<&'a Selection>,
    /// How long work shows itself.
    pub(crate) progress: ProgressKind,
}

/// Everything that is known, from one reading.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Every event.
    pub(crate) view: Arc<TierView>,
    /// What is known besides.
    pub(crate) facts: Facts,
    /// The source in words: `events.jsonl`, `/var/kafka/data`.
    pub(crate) source: String,
    /// The cluster, where the source names it.
    pub(crate) cluster_id: Option<String>,
    /// Per metadata partition the offset up to which it was read, exclusive.
    pub(crate) metadata_offsets: BTreeMap<i32, i64>,
    /// Per metadata partition its files, as they were before they were read; empty unless the source is a directory.
    files: BTreeMap<i32, Vec<SegmentFile>>,
    /// What the reader should know, and was told when the source was opened.
    pub(crate) told: Vec<String>,
    /// What the reader should know.
    pub(crate) warnings: Vec<String>,
    /// Why what was read may be of another topic; then nothing is called clean.
    pub(crate) doubt: Option<String>,
    /// What could not be read.
    pub(crate) incomplete: Vec<Incomplete>,
    /// The signal that ended the reading early.
    pub(crate) ended_by: Option<Exit>,
}

impl Collected {
    /// What machine output says beside its rows.
    pub(crate) fn about(&self, schema: &'static str, now_ms: i64) -> About {
        About {
            schema,
            cluster_id: self.cluster_id.clone(),
            as_of_ms: now_ms,
            metadata_offsets: self.metadata_offsets.clone(),
            warnings: self.told.iter().chain(&self.warnings).chain(&self.doubt).cloned().collect(),
            not_checked: Vec::new(),
            incomplete: self.incomplete.clone(),
            ..About::default()
        }
    }

    /// Tells on stderr what the reader should know and what could not be read.
    pub(crate) fn tell(&self) {
        self.warnings.iter().chain(&self.doubt).for_each(|warning| tell_warning(warning));
        self.incomplete.iter().for_each(tell_incomplete);
    }

    /// The exit code of a command that found nothing to complain of.
    pub(crate) fn exit(&self) -> Exit {
        match self.ended_by {
            Some(exit) => exit,
            None if !self.incomplete.is_empty() => Exit::Incomplete,
            None => Exit::Done,
        }
    }

    /// The names of the topics that are known, once each.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        let seen = self.view.partitions().map(|partition| partition.topic());
        let known = self.facts.topics.iter().map(|topic| topic.topic.as_str());
        let mut names: Vec<&str> = seen.chain(known).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }
}

/// An earlier reading of the same log: what it read needs no reading again.
#[derive(Default)]
struct Earlier {
    view: Arc<TierView>,
    metadata_offsets: BTreeMap<i32, i64>,
    files: BTreeMap<i32, Vec<SegmentFile>>,
    metadata_partitions: Option<i32>,
    /// Only the metadata partitions that have an offset above were asked for.
    partial: bool,
}

impl Earlier {
    /// True where nothing was read before.
    fn is_none(&self) -> bool {
        self.metadata_offsets.is_empty()
    }

    /// What has not been read of a metadata partition.
    fn rest(&self, mark: &PartitionMarks) -> MetadataRange {
        let range = mark.range();
        let read = self.metadata_offsets.get(&mark.partition).copied().unwrap_or(range.from);
        MetadataRange { from: read.max(range.from), ..range }
    }

    /// What has not been read of the metadata partitions whose files have changed.
    fn written_since(&self, files: &BTreeMap<i32, Vec<SegmentFile>>) -> impl Iterator<Item = MetadataRange> {
        files.iter().filter(|(at, files)| self.files.get(at) != Some(files)).map(|(&partition, _)| {
            let from = self.metadata_offsets.get(&partition).copied().unwrap_or(0);
            MetadataRange { partition, from, to: i64::MAX }
        })
    }

    /// The whole view: what was read then, and what was read since.
    fn with(self, newer: Vec<TierViewBuilder>, metadata_partitions: Option<i32>) -> Arc<TierView> {
        if self.view.event_count() > 0 && newer.iter().all(TierViewBuilder::is_empty) {
            return self.view;
        }
        let mut builder = TierViewBuilder::from(&*self.view);
        newer.into_iter().for_each(|newer| builder.merge(newer));
        Arc::new(builder.finish(metadata_partitions))
    }
}

/// Reads the events that came after an earlier reading, and all other facts anew.
pub(crate) fn collect_again(
    source: &Source,
    earlier: &Collected,
    request: &Request<'_>,
) -> Result<Collected, Failure> {
    let earlier = Earlier {
        view: Arc::clone(&earlier.view),
        metadata_offsets: earlier.metadata_offsets.clone(),
        files: earlier.files.clone(),
        metadata_partitions: earlier.facts.metadata_topic.as_ref().and_then(|topic| topic.partitions),
        partial: earlier.facts.partial_read.is_some(),
    };
    read(source, earlier, request)
}

fn read(source: &Source, earlier: Earlier, request: &Request<'_>) -> Result<Collected, Failure> {
    let mut collected = match source {
        Source::EventFile(path) => event_file::collect(path, request)?,
        Source::LogDirs(paths) => log_dir::collect(paths, request, earlier)?,
        Source::Live(live) => live.collect(request, earlier)?,
    };
    if let Some(configured) = request.args.metadata_partitions {
        collected.facts.metadata_topic.get_or_insert_default().configured_partitions = Some(configured);
    }
    collected.warnings.extend(clock_doubt(&collected.view, request.now_ms));
    collected.doubt = no_event_among(&collected.view).map(|none| match source {
        Source::EventFile(_) => none,
        Source::Live(_) | Source::LogDirs(_) => {
            format!(
                "{none}: is {} the metadata topic? (--metadata-topic names it)",
                request.args.metadata_topic
            )
        }
    });
    Ok(collected)
}

/// A clock that is behind the events by more than this is doubted.
const CLOCK_BEHIND_MS: i64 = 86_400_000;

/// The words for a now that lies before what has happened already.
fn clock_doubt(view: &TierView, now_ms: i64) -> Option<String> {
    let events = view.partitions().flat_map(|of| of.events());
    let newest = events.map(|event| event.timestamp_ms()).max()?;
    let ahead = newest.saturating_sub(now_ms);
    (ahead > CLOCK_BEHIND_MS).then(|| {
        format!(
            "the newest event is of {} after now: what depends on the time is not to be relied on (--now, or the \
             clock of this machine or of a broker)",
            show_span(ahead)
        )
    })
}

/// The words for records of which not one is an event; `None` where one is, or where there are no records.
pub(crate) fn no_event_among(view: &TierView) -> Option<String> {
    let records = |stats: &MetadataPartitionStats| stats.records.saturating_sub(stats.control_records);
    let records: u64 = view.metadata_partitions().iter().map(records).sum();
    (records > 0 && view.event_count() == 0).then(|| match records {
        1 => "the one record that was read is no event of tiered storage".to_owned(),
        _ => {
            format!("none of the {} records that were read is an event of tiered storage", thousands(records))
        }
    })
}

/// Reads the source, and the store where one is named, in the order that keeps a live upload from looking like an
/// orphan: the listing first, then the metadata.
pub(crate) fn collect(
    source: &Source,
    store: Option<&StoreSource>,
    request: &Request<'_>,
) -> Result<Collected, Failure> {
    let listing = store.map(|store| store.list(request.progress)).transpose()?;
    let mut collected = read(source, Earlier::default(), request)?;
    if let Some(listing) = listing {
        let full = !listing.objects.is_empty();
        if full && collected.view.event_count() == 0 && collected.incomplete.is_empty() {
            return Err(Failure::unsupported(
                "the store holds objects, and the metadata not a single event: wrong cluster, or wrong directory",
            )
            .hint("check the source and --store; if both are right, the metadata topic was emptied or recreated"));
        }
        collected.ended_by = collected.ended_by.or(listing.ended_by);
        collected.incomplete.extend(listing.incomplete);
        collected.facts.store = Some(listing.store);
        collected.facts.objects = listing.objects;
    }
    Ok(collected)
}

/// Tells of data that could not be read.
pub(crate) fn tell_incomplete(incomplete: &Incomplete) {
    tell_warning(&format!("{} could not be read: {}", incomplete.what, incomplete.reason));
}

/// Tells what the user should know.
pub(crate) fn tell_warning(warning: &str) {
    eprintln!("warning: {}", escape(warning));
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The failure for addresses that name nothing that exists (exit 2), with the nearest name that does.
pub(crate) fn names_nothing<'a>(selection: &Selection, topics: impl Iterator<Item = &'a str>) -> Failure {
    let mut exact = None;
    let words: Vec<String> = selection.addresses().iter().map(Address::to_string).collect();
    for address in selection.addresses() {
        if let Address::Topic(TopicPattern::Exact(name))
        | Address::Partition(TopicPattern::Exact(name), _)
        | Address::Position(TopicPattern::Exact(name), ..) = address
        {
            exact = Some(name);
        }
    }
    let failure = Failure::usage(format!("nothing here is called {}", words.join(" or ")));
    let mut topics = topics.peekable();
    if topics.peek().is_none() {
        return failure.hint("there is no tiered topic here at all");
    }
    match exact.and_then(|name| nearest(name, topics)) {
        Some(near) if exact.is_some_and(|name| name != near) => failure.hint(format!("did you mean {near}?")),
        Some(near) => failure.hint(format!("{near} has other partitions, not this one")),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Clock;

    /// The example's data directory, its metadata partition `partition` cut to `bytes`.
    fn example(partition: i32, bytes: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/crashed-broker/broker-1");
        copy(&from, dir.path());
        let log = dir.path().join(format!("__remote_log_metadata-{partition}/00000000000000000000.log"));
        let whole = std::fs::read(&log).unwrap();
        std::fs::write(&log, &whole[..bytes]).unwrap();
        (dir, log, whole)
    }

    fn copy(from: &std::path::Path, to: &std::path::Path) {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                std::fs::create_dir(&to).unwrap();
                copy(&entry.path(), &to);
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }

    /// Every segment with its state and the places of its events.
    fn segments(collected: &Collected) -> Vec<String> {
        let segments = collected.view.partitions().flat_map(|of| of.segments().collect::<Vec<_>>());
        let line = |segment: strandline_audit::SegmentView<'_>| {
            let offsets: Vec<i64> = segment.events().filter_map(|event| event.offset()).collect();
            format!("{} {:?} {offsets:?}", segment.id(), segment.state())
        };
        segments.map(line).collect()
    }

    #[test]
    fn a_second_reading_adds_what_was_written_since_and_reads_nothing_else() {
        // The first batch's length field says where the second begins.
        let (_, _, whole) = example(2, 0);
        let first_batch = 12 + usize::try_from(i32::from_be_bytes(whole[8..12].try_into().unwrap())).unwrap();
        let (dir, log, whole) = example(2, first_batch);
        let clock = Clock::new(Some("2026-01-01T00:00:00Z"), None).unwrap();
        let selection = Selection::parse(&[], &[], &clock).unwrap();
        let args = SourceArgs {
            metadata_topic: "__remote_log_metadata".to_owned(),
            log_dir: vec![dir.path().to_owned()],
            ..SourceArgs::default()
        };
        let request = Request {
            args: &args,
            selection: &selection,
            now_ms: clock.now_ms,
            who: None,
            progress: ProgressKind::None,
        };
        let source = Source::LogDirs(args.log_dir.clone());
        let earlier = collect(&source, None, &request).unwrap();
        let before = segments(&earlier);

        // A file that was not touched is not read: its damage is then not met.
        let untouched = dir.path().join("__remote_log_metadata-0/00000000000000000000.log");
        let size = std::fs::metadata(&untouched).unwrap().len();
        let modified = std::fs::metadata(&untouched).unwrap().modified().unwrap();
        std::fs::write(&untouched, vec![0xff; usize::try_from(size).unwrap()]).unwrap();
        std::fs::File::options().write(true).open(&untouched).unwrap().set_modified(modified).unwrap();
        let same = collect_again(&source, &earlier, &request).unwrap();
        assert_eq!((segments(&same), &same.incomplete[..]), (before.clone(), &[][..]));

        std::fs::write(&log, &whole).unwrap();
        let after = collect_again(&source, &same, &request).unwrap();
        let (whole_dir, ..) = example(2, whole.len());
        let whole_args = SourceArgs { log_dir: vec![whole_dir.path().to_owned()], ..args.clone() };
        let whole_request = Request { args: &whole_args, ..request };
        let whole = collect(&Source::LogDirs(whole_args.log_dir.clone()), None, &whole_request).unwrap();
        assert_ne!(before, segments(&after));
        assert_eq!(segments(&after), segments(&whole));
        assert_eq!(after.metadata_offsets, whole.metadata_offsets);
    }
}

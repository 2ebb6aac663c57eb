//! What lies in a broker's data directory (`log.dirs`), told without a broker.
//!
//! Start at [`DataDir::open`]. It lists the partitions and reads the checkpoints of the whole directory;
//! [`DataDir::read_partition`] reads what belongs to one partition. Nothing is written, locked or repaired, and a
//! running broker is not disturbed: what is read can then be a moment old.
//!
//! Files ending in `.deleted`, `.cleaned` and `.swap` are not segments, and directories ending in `-delete`,
//! `-future` and `-stray` are not partitions.
//!
//! Source: `org.apache.kafka.storage.internals.log.LogFileUtils`, `LogManager`, `CheckpointFile`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use strandline_protocol::TopicId;
use strandline_protocol::records::{BATCH_HEADER_BYTES, BatchError, BatchHeader};

use crate::segment::{ReadBuffer, SegmentEnd, WalkError, walk_segment};

/// The largest checkpoint or properties file that is read: some half a million partitions.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The largest segment file: positions in it are 32 bits wide. Source: `FileRecords`, which opens no larger one.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// How often the files of a partition are listed again because the last one was deleted in between.
const LISTINGS_MAX: usize = 5;

/// A timestamp and a relative offset.
const TIME_INDEX_ENTRY_BYTES: u64 = 12;

/// A file of a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refuses it.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file's name is that of a log segment, its bytes are not.
    #[error("{} is not a log segment: {what}", path.display())]
    NotALogSegment {
        /// The file.
        path: PathBuf,
        /// What gives it away.
        what: String,
    },
    /// A batch of a segment is damaged or of a format before Kafka 0.11.
    #[error("{}", path.display())]
    Batch {
        /// The file.
        path: PathBuf,
        /// The damage, with offset and position.
        #[source]
        source: BatchError,
    },
    /// The length of a batch points beyond the end of the file, and whole batches follow.
    #[error("{} is damaged: {what}", path.display())]
    DamagedLength {
        /// The file.
        path: PathBuf,
        /// Where the batch with the damaged length begins.
        position: u64,
        /// What was seen.
        what: String,
    },
    /// Offsets fall inside a segment file.
    #[error("{} is damaged: the batch at byte {position} has offset {offset}, after one that ends at {expected}", path.display())]
    OffsetsFall {
        /// The file.
        path: PathBuf,
        /// Where the batch begins.
        position: u64,
        /// Its base offset.
        offset: i64,
        /// The offset at which the batch before it ends.
        expected: i64,
    },
    /// A text file is not in Kafka's form.
    #[error("{}, line {line}: {what}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl FileError {
    fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Unreadable { path: path.to_owned(), source }
    }

    /// True when the file or directory is not there (any more): a running broker deletes segments between the moment
    /// they are listed and the moment they are read.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn of_walk(path: &Path, error: WalkError) -> Self {
        match error {
            WalkError::File(error) => error,
            WalkError::Batch(source) => Self::Batch { path: path.to_owned(), source },
        }
    }
}

/// A directory cannot be read as a broker's data directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// It does not exist, is no directory, or may not be read.
    #[error("the directory {} cannot be read", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is one partition's directory.
    #[error("{} is the directory of one partition: name the broker's data directory, the one above it", path.display())]
    PartitionDir {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing in it is Kafka's.
    #[error("{} is not a Kafka data directory: it has neither meta.properties nor a directory named TOPIC-PARTITION with segment files", path.display())]
    NotADataDir {
        /// The directory.
        path: PathBuf,
    },
    /// One of the files that speak for the whole directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What `meta.properties` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaProperties {
    /// `node.id`, or `broker.id` in files of version 0.
    pub node_id: Option<i32>,
    /// `cluster.id`.
    pub cluster_id: Option<String>,
    /// `directory.id` (KIP-858).
    pub directory_id: Option<String>,
}

/// The place of one partition's files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionPath {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The directory.
    pub path: PathBuf,
}

/// A broker's data directory, one disk of it.
#[derive(Clone, Debug)]
pub struct DataDir {
    /// The directory.
    pub path: PathBuf,
    /// `meta.properties`; `None` where the file is not there, as in a copy.
    pub meta_properties: Option<MetaProperties>,
    /// The partitions, by topic and number.
    pub partitions: Vec<PartitionPath>,
    log_start_offsets: HashMap<(String, i32), i64>,
    high_watermarks: HashMap<(String, i32), i64>,
    recovery_points: HashMap<(String, i32), i64>,
}

impl DataDir {
    /// Lists the partitions of `path` and reads `meta.properties` and the checkpoints; a checkpoint that is not
    /// there says nothing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataDirError> {
        let path = path.as_ref();
        let unreadable = |source| DataDirError::Unreadable { path: path.to_owned(), source };
        let mut partitions = Vec::new();
        let mut segments_here = false;
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            segments_here |= segment_base_offset(name).is_some();
            let Some((topic, partition)) = parse_partition_name(name) else { continue };
            let place = entry.path();
            let is_partition = match fs::metadata(&place) {
                Ok(metadata) => metadata.is_dir(),
                // A link that leads nowhere, as to a disk that is not mounted: who reads the partition is told.
                Err(_) => !is_gone(&place),
            };
            if is_partition {
                partitions.push(PartitionPath { topic, partition, path: place });
            }
        }
        partitions.sort();
        let meta_properties = read_meta_properties(&path.join("meta.properties"))?;
        if meta_properties.is_none() {
            if segments_here {
                return Err(DataDirError::PartitionDir { path: path.to_owned() });
            }
            if !partitions.iter().any(|partition| has_segments(&partition.path)) {
                return Err(DataDirError::NotADataDir { path: path.to_owned() });
            }
        }
        Ok(Self {
            path: path.to_owned(),
            meta_properties,
            partitions,
            log_start_offsets: read_offset_checkpoint(&path.join("log-start-offset-checkpoint"))?,
            high_watermarks: read_offset_checkpoint(&path.join("replication-offset-checkpoint"))?,
            recovery_points: read_offset_checkpoint(&path.join("recovery-point-offset-checkpoint"))?,
        })
    }

    /// The partitions of one topic, ascending.
    pub fn partitions_of<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a PartitionPath> {
        self.partitions.iter().filter(move |place| place.topic == topic)
    }

    /// Lists the files of a partition of this directory and reads its small ones.
    ///
    /// Segments are listed by name, size and time; [`SegmentFile`] and [`PartitionDir`] tell more on demand.
    pub fn read_partition(&self, place: &PartitionPath) -> Result<PartitionDir, FileError> {
        let key = (place.topic.clone(), place.partition);
        let mut dir = PartitionDir {
            topic: place.topic.clone(),
            partition: place.partition,
            path: place.path.clone(),
            topic_id: None,
            leader_epochs: None,
            checkpointed_log_start_offset: self.log_start_offsets.get(&key).copied(),
            checkpointed_high_watermark: self.high_watermarks.get(&key).copied(),
            recovery_point_offset: self.recovery_points.get(&key).copied(),
            segments: Vec::new(),
            producer_snapshots: Vec::new(),
        };
        dir.list_again()?;
        Ok(dir)
    }
}

/// One partition's files.
#[derive(Clone, Debug)]
pub struct PartitionDir {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The directory.
    pub path: PathBuf,
    /// The topic's id, from `partition.metadata`; `None` where the file is not there.
    pub topic_id: Option<TopicId>,
    /// Leader epochs and the offsets at which they begin, ascending, from `leader-epoch-checkpoint`; `None` where
    /// the file is not there.
    pub leader_epochs: Option<Vec<(i32, i64)>>,
    /// From `log-start-offset-checkpoint`: written once a minute and only where the log start is not that of the
    /// first segment file, so after a crash it can be too low.
    pub checkpointed_log_start_offset: Option<i64>,
    /// From `replication-offset-checkpoint`: written every five seconds and at a clean end.
    pub checkpointed_high_watermark: Option<i64>,
    /// From `recovery-point-offset-checkpoint`: below it everything was flushed.
    pub recovery_point_offset: Option<i64>,
    /// The segment files, by base offset.
    pub segments: Vec<SegmentFile>,
    /// The offsets of the producer snapshots (`.snapshot` files), ascending.
    pub producer_snapshots: Vec<i64>,
}

impl PartitionDir {
    /// Lists the files anew, as a running broker needs that deletes and rolls them; the checkpoints of the data
    /// directory keep what they said.
    pub fn list_again(&mut self) -> Result<(), FileError> {
        let path = &self.path;
        let (mut segments, mut snapshots) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(path).map_err(FileError::unreadable(path))? {
            let entry = entry.map_err(FileError::unreadable(path))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(base_offset) = segment_base_offset(name) {
                let file = entry.path();
                match fs::metadata(&file) {
                    Ok(metadata) => segments.push(SegmentFile {
                        base_offset,
                        size_bytes: metadata.len(),
                        modified: metadata.modified().map_err(FileError::unreadable(&file))?,
                        path: file,
                    }),
                    // Deleted since it was listed: a running broker does that.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && is_gone(&file) => {}
                    Err(error) => return Err(FileError::unreadable(&file)(error)),
                }
            } else if let Some(offset) = offset_name(name, ".snapshot") {
                snapshots.push(offset);
            }
        }
        segments.sort_by_key(|segment| segment.base_offset);
        snapshots.sort_unstable();
        self.topic_id = read_partition_metadata(&path.join("partition.metadata"))?;
        self.leader_epochs = read_leader_epochs(&path.join("leader-epoch-checkpoint"))?;
        self.segments = segments;
        self.producer_snapshots = snapshots;
        Ok(())
    }

    /// The first offset that these files hold: the base of the first segment, or the checkpointed log start where
    /// that is higher. For a tiered topic this is the local start; the log start lies in the checkpoint alone.
    pub fn local_start_offset(&self) -> i64 {
        let first = self.segments.first().map_or(0, |segment| segment.base_offset);
        first.max(self.checkpointed_log_start_offset.unwrap_or(0))
    }

    /// The offset after the last whole batch, from the batch headers of the last segment file; CRCs are not checked.
    pub fn log_end_offset(&self) -> Result<i64, FileError> {
        match self.segments.last() {
            None => Ok(self.checkpointed_log_start_offset.unwrap_or(0)),
            Some(segment) => segment.next_offset(),
        }
    }

    /// The files and the offset at which the log ends, both of one moment. The files of a running broker that are gone
    /// by now are listed again, a few times. `None` when the partition itself is gone.
    pub fn to_its_end(mut self) -> Result<Option<(Self, i64)>, FileError> {
        for _ in 0..LISTINGS_MAX {
            match self.log_end_offset() {
                Err(error) if error.is_gone() => {}
                end => return end.map(|end| Some((self, end))),
            }
            match self.list_again() {
                Err(error) if error.is_gone() => return Ok(None),
                listed => listed?,
            }
        }
        self.log_end_offset().map(|end| Some((self, end)))
    }
}

/// One segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// The base offset, from the file's name.
    pub base_offset: i64,
    /// The file.
    pub path: PathBuf,
    /// Its size when it was listed.
    pub size_bytes: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

impl SegmentFile {
    /// The offset after the last whole batch, or the base offset of a file without one; reads headers only.
    pub fn next_offset(&self) -> Result<i64, FileError> {
        let mut next_offset = self.base_offset;
        self.walk_headers(|header| next_offset = header.next_offset())?;
        Ok(next_offset)
    }

    /// The largest record timestamp, in milliseconds since 1970; `None` for a segment without records.
    ///
    /// The last entry of the time index says it, as it does to a broker that loads the segment; without a usable
    /// index the batch headers are read.
    pub fn max_timestamp_ms(&self) -> Result<Option<i64>, FileError> {
        if let Some(timestamp_ms) = self.last_time_index_entry()? {
            return Ok(Some(timestamp_ms));
        }
        let mut max = -1;
        self.walk_headers(|header| max = max.max(header.max_timestamp_ms))?;
        Ok((max >= 0).then_some(max))
    }

    /// Of a segment that is still written the index is allocated ahead and ends in zeroes: then it says nothing.
    fn last_time_index_entry(&self) -> Result<Option<i64>, FileError> {
        let path = self.path.with_extension("timeindex");
        let failed = FileError::unreadable(&path);
        let read = || -> io::Result<Option<i64>> {
            let mut file = match open_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            let size = file.metadata()?.len();
            if size == 0 || size % TIME_INDEX_ENTRY_BYTES != 0 {
                return Ok(None);
            }
            file.seek(SeekFrom::Start(size - TIME_INDEX_ENTRY_BYTES))?;
            let mut timestamp = [0; 8];
            file.read_exact(&mut timestamp)?;
            Ok(Some(i64::from_be_bytes(timestamp)).filter(|timestamp| *timestamp > 0))
        };
        read().map_err(failed)
    }

    /// Reads the batch headers one by one, up to the last whole batch or to zeroes. Large batches are leapt over, of
    /// small ones many come with one read.
    fn walk_headers(&self, mut each: impl FnMut(&BatchHeader)) -> Result<(), FileError> {
        let failed = || FileError::unreadable(&self.path);
        let file = open_file(&self.path).map_err(failed())?;
        let size = segment_size(&self.path, &file)?;
        let mut file = BufReader::new(file);
        let (mut position, mut bytes) = (0, [0; BATCH_HEADER_BYTES]);
        while size - position >= BATCH_HEADER_BYTES as u64 {
            file.read_exact(&mut bytes).map_err(failed())?;
            let header = match BatchHeader::decode(&bytes, position) {
                Ok(header) => header,
                Err(_) if bytes.iter().all(|byte| *byte == 0) => break,
                Err(error) if position == 0 && error.offset() != self.base_offset => {
                    let what = format!("no batch at offset {} stands at its beginning", self.base_offset);
                    return Err(FileError::NotALogSegment { path: self.path.clone(), what });
                }
                Err(source) => return Err(FileError::Batch { path: self.path.clone(), source }),
            };
            position += header.size_bytes() as u64;
            if position > size {
                break;
            }
            each(&header);
            file.seek_relative(header.size_bytes() as i64 - BATCH_HEADER_BYTES as i64).map_err(failed())?;
        }
        Ok(())
    }

    /// Reads the whole file and checks every batch; tells the offset after the last whole one, and how many bytes
    /// follow it that are no whole batch.
    pub fn verify(&self) -> Result<(i64, u64), FileError> {
        let mut next_offset = self.base_offset;
        let end = walk_segment(&self.path, self.base_offset, &mut ReadBuffer::default(), |batch| {
            next_offset = batch.header.next_offset();
            Ok(ControlFlow::Continue(()))
        });
        match end.map_err(|error| FileError::of_walk(&self.path, error))? {
            SegmentEnd::Whole | SegmentEnd::Stopped => Ok((next_offset, 0)),
            SegmentEnd::Cut { bytes, .. } | SegmentEnd::Zeroes { bytes, .. } => Ok((next_offset, bytes)),
        }
    }
}

/// Opens a file to read it. What is no file is refused: to open a pipe is to wait for its writer, perhaps for ever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    // A directory opens at once and says itself what it is.
    if kind.is_file() || kind.is_dir() {
        return File::open(path);
    }
    Err(io::Error::other("it is a pipe, a socket or a device"))
}

/// The size of an open segment file. No broker writes or loads a larger one than it can have positions in.
pub(crate) fn segment_size(path: &Path, file: &File) -> Result<u64, FileError> {
    let bytes = file.metadata().map_err(FileError::unreadable(path))?.len();
    if bytes <= SEGMENT_BYTES_MAX {
        return Ok(bytes);
    }
    let what = format!("it has {bytes} bytes, and a segment has at most {SEGMENT_BYTES_MAX}");
    Err(FileError::NotALogSegment { path: path.to_owned(), what })
}

/// True when the entry of a directory is gone. A link whose target cannot be found is still there.
fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn has_segments(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                entry.file_name().to_str().is_some_and(|name| segment_base_offset(name).is_some())
            })
        })
    })
}

/// `TOPIC-N`; a topic's name can hold hyphens, so the last one counts. What Kafka calls `…-delete`, `…-future` and
/// `…-stray` ends in no number.
fn parse_partition_name(name: &str) -> Option<(String, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
    (digits && !topic.is_empty())
        .then(|| partition.parse().ok().map(|partition| (topic.to_owned(), partition)))?
}

/// Twenty digits and `.log`.
fn segment_base_offset(name: &str) -> Option<i64> {
    offset_name(name, ".log")
}

fn offset_name(name: &str, suffix: &str) -> Option<i64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// The text of a small file; `None` where it is not there.
fn read_text(path: &Path) -> Result<Option<String>, FileError> {
    let failed = || FileError::unreadable(path);
    let file = match open_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed())?,
    };
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed())?;
    let line = |what: String| FileError::Text { path: path.to_owned(), line: 1, what };
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(line(format!("the file has more than {TEXT_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| line("the file is not text".to_owned()))
}

/// The entries of a checkpoint: version 0, their number, one a line.
fn read_checkpoint<T>(
    path: &Path,
    form: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<Vec<T>>, FileError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let error = |line: usize, what: String| FileError::Text { path: path.to_owned(), line, what };
    let mut lines = text.lines();
    // A broker that dies while it makes the file leaves an empty one, and reads it as no entries.
    let Some(version) = lines.next() else { return Ok(Some(Vec::new())) };
    if version.trim() != "0" {
        return Err(error(1, format!("a checkpoint of version 0 is expected, this one says {version:.40?}")));
    }
    let count: usize = lines
        .next()
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| error(2, "the number of entries is expected".to_owned()))?;
    let mut entries = Vec::new();
    for (index, line) in lines.enumerate() {
        let entry =
            parse(line).ok_or_else(|| error(index + 3, format!("{form} is expected, not {line:.80?}")))?;
        entries.push(entry);
    }
    if entries.len() != count {
        return Err(error(2, format!("{count} entries are announced, {} follow", entries.len())));
    }
    Ok(Some(entries))
}

fn read_offset_checkpoint(path: &Path) -> Result<HashMap<(String, i32), i64>, FileError> {
    let entries = read_checkpoint(path, "TOPIC PARTITION OFFSET", |line| {
        let mut words = line.split_ascii_whitespace();
        let entry = ((words.next()?.to_owned(), words.next()?.parse().ok()?), words.next()?.parse().ok()?);
        words.next().is_none().then_some(entry)
    })?;
    Ok(entries.unwrap_or_default().into_iter().collect())
}

fn read_leader_epochs(path: &Path) -> Result<Option<Vec<(i32, i64)>>, FileError> {
    read_checkpoint(path, "EPOCH START_OFFSET", |line| {
        let mut words = line.split_ascii_whitespace();
        let entry = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(entry)
    })
}

/// Lines `version: 0` and `topic_id: …`.
fn read_partition_metadata(path: &Path) -> Result<Option<TopicId>, FileError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    for (index, line) in text.lines().enumerate() {
        let Some(id) = line.strip_prefix("topic_id:") else { continue };
        return id.trim().parse().map(Some).map_err(|error| FileError::Text {
            path: path.to_owned(),
            line: index + 1,
            what: format!("{error}"),
        });
    }
    Err(FileError::Text { path: path.to_owned(), line: 1, what: "no line says topic_id".to_owned() })
}

/// Java properties, of which only plain `key=value` lines occur here.
fn read_meta_properties(path: &Path) -> Result<Option<MetaProperties>, FileError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let mut properties = MetaProperties::default();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with(['#', '!']) {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim();
        match key.trim() {
            "node.id" | "broker.id" => {
                let id = value.parse().map_err(|_| FileError::Text {
                    path: path.to_owned(),
                    line: index + 1,
                    what: format!("{value:.40?} is no node id"),
                })?;
                properties.node_id = Some(id);
            }
            "cluster.id" => properties.cluster_id = Some(value.to_owned()),
            "directory.id" => properties.directory_id = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(Some(properties))
}

//! Snapshots: what is known of a metadata partition's user partitions, and up to which offset, in a file of its own.
//!
//! What happened since is appended to the file: the user partitions that changed. Where more was appended than the file had
//! at first, or a user partition is to be forgotten, the file is written anew: beside the old one, made durable, and put in its
//! place, so that there is always a whole one. It is written piece by piece, one user partition in memory, and each user
//! partition says itself up to which offset it knows everything: the running reading goes on meanwhile. What does not fit the log
//! any more is not used, with a reason.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use strandline_log::{LiveMetadataEventLog, MetadataLogIdentity};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::TopicIdPartition;
use crate::errors::StartError;
use crate::metadata_partition::{MemberStage, MetadataPartition, RecordMark};
use crate::partition_map::PartitionMap;
use crate::topic_based::{Shared, SnapshotConfig};
use crate::user_partition::{State, UserPartition};

mod format;
#[cfg(test)]
mod tests;

use format::{Header, Next, Reader, Writer};

/// The directory of snapshots, and the log that they are of.
#[derive(Debug)]
pub(crate) struct Snapshots {
    dir: PathBuf,
    identity: MetadataLogIdentity,
    /// `None` once the directory is given up. Held while a snapshot is written, of which there is one at a time: a writing
    /// that was begun goes on although whoever waited for it is gone.
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    /// As long as this file is open no other manager gets the directory.
    _lock: File,
    /// The files that this manager wrote, by metadata partition. To no other is anything appended.
    written: HashMap<i32, Written>,
}

/// A file as this manager left it.
#[derive(Debug)]
struct Written {
    generation: u64,
    /// The offset of the last event that was applied to each user partition when it was last written.
    users: PartitionMap<i64>,
    /// Bytes of the first section.
    whole: u64,
    /// Bytes of the file.
    bytes: u64,
}

/// What a metadata partition's snapshot is to tell.
struct Content<'a> {
    metadata_partition: &'a MetadataPartition,
    users: Vec<Arc<UserPartition>>,
    /// Everything below was applied before the users were listed.
    position: i64,
    generation: u64,
}

/// What a snapshot knows of those that were asked for.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) users: Vec<LoadedUser>,
    /// The record that was read last when the snapshot was written.
    pub(crate) last_record: Option<RecordMark>,
    /// Why the end of the file is not used: what was being appended when the process or the machine stopped.
    pub(crate) cut: Option<Discarded>,
}

#[derive(Debug)]
pub(crate) struct LoadedUser {
    pub(crate) id: TopicIdPartition,
    pub(crate) state: State,
    pub(crate) next_offset: i64,
}

/// Why a snapshot is not used. The log is read from its start then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Discarded {
    #[error("the file cannot be read: {0}")]
    Io(#[source] io::Error),
    #[error("the file is no snapshot")]
    NotASnapshot,
    #[error("the file has format version {version}, which this program does not know")]
    UnknownVersion { version: u16 },
    #[error("the checksum at byte {position} does not match")]
    Checksum { position: u64 },
    #[error("the file ends too early")]
    Cut,
    #[error("the file holds {what}")]
    Malformed { what: String },
    #[error("the snapshot is of {there}, and the log is {here}")]
    OtherLog { there: String, here: String },
    #[error("the snapshot is of metadata partition {there} instead of {here}")]
    OtherPartition { there: i32, here: i32 },
    #[error("the snapshot reaches to offset {next_offset}, and the log ends at {end_offset}")]
    AheadOfLog { next_offset: i64, end_offset: i64 },
    #[error("the log begins at offset {log_start_offset}, behind what the snapshot knows")]
    BehindLogStart { log_start_offset: i64 },
    #[error("the log holds another record at offset {offset}, or none, than when the snapshot was written")]
    RecordDiffers { offset: i64 },
}

impl Loaded {
    /// The next section of a file, and the offset below which it tells everything.
    fn section(
        reader: &mut Reader<impl io::BufRead>,
        wanted: &PartitionMap<()>,
    ) -> Result<(Self, i64), Discarded> {
        let (mut users, mut seen) = (Vec::new(), 0);
        loop {
            match reader.next()? {
                Next::UserPartition { id, next_offset, last_applied } => {
                    seen += 1;
                    if wanted.get(&id).is_none() {
                        reader.skip_user_partition()?;
                        continue;
                    }
                    if last_applied >= next_offset {
                        let what = format!("an event at offset {last_applied}, at or above {next_offset}");
                        return Err(Discarded::Malformed { what });
                    }
                    let state = State::new(reader.user_partition(&id)?, last_applied);
                    users.push(LoadedUser { id, state, next_offset });
                }
                Next::End { user_partitions, position, last_record } => {
                    if user_partitions != seen {
                        let what = format!("{seen} user partitions instead of {user_partitions}");
                        return Err(Discarded::Malformed { what });
                    }
                    return Ok((Self { users, last_record, cut: None }, position));
                }
            }
        }
    }

    /// Takes in a later section, which knows of those that it does not have that nothing happened to them below `position`.
    fn append(&mut self, later: Self, position: i64) {
        for user in &mut self.users {
            user.next_offset = user.next_offset.max(position);
        }
        for user in later.users {
            match self.users.iter_mut().find(|known| known.id == user.id) {
                Some(known) => *known = user,
                None => self.users.push(user),
            }
        }
        self.last_record = later.last_record;
    }

    /// Whether the log, which holds `log_start_offset..end_offset`, can be the one that was read.
    pub(crate) fn check(self, log_start_offset: i64, end_offset: i64) -> Result<Self, Discarded> {
        for user in &self.users {
            let next_offset = user.next_offset;
            if next_offset > end_offset {
                return Err(Discarded::AheadOfLog { next_offset, end_offset });
            }
            if next_offset < log_start_offset {
                return Err(Discarded::BehindLogStart { log_start_offset });
            }
        }
        match self.last_record {
            Some(mark) if mark.offset >= end_offset => {
                Err(Discarded::AheadOfLog { next_offset: mark.offset.saturating_add(1), end_offset })
            }
            _ => Ok(self),
        }
    }
}

impl Snapshots {
    /// Makes the directory its own.
    pub(crate) fn open(dir: PathBuf, identity: MetadataLogIdentity) -> Result<Self, StartError> {
        let lock = || -> io::Result<Result<File, TryLockError>> {
            fs::create_dir_all(&dir)?;
            let path = dir.join(".lock");
            no_pipe(&path)?;
            let lock = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
            Ok(lock.try_lock().map(|()| lock))
        };
        let failed = |source| StartError::SnapshotDir { dir: dir.clone(), source };
        match lock().map_err(failed)? {
            Ok(lock) => {
                let open = Open { _lock: lock, written: HashMap::new() };
                Ok(Self { dir, identity, open: Mutex::new(Some(open)) })
            }
            Err(TryLockError::WouldBlock) => Err(StartError::SnapshotDirInUse { dir }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Gives the directory up, once what is being written is. Nothing is written afterwards.
    pub(crate) async fn close(self: Arc<Self>) {
        let close = move || drop(self.open.lock().unwrap_or_else(PoisonError::into_inner).take());
        // Fails only where the runtime ends, and the directory is given up with the process.
        let _ended = tokio::task::spawn_blocking(close).await;
    }

    fn path(&self, partition: i32) -> PathBuf {
        self.dir.join(format!("remote-log-metadata-{partition}.snapshot"))
    }

    fn header(&self, metadata_partition: i32) -> Header {
        Header { identity: self.identity.clone(), metadata_partition }
    }

    /// What the snapshot of a metadata partition knows of the partitions that are wanted; `None` without a snapshot.
    pub(crate) fn load(
        &self,
        partition: i32,
        wanted: &PartitionMap<()>,
    ) -> Result<Option<Loaded>, Discarded> {
        let path = self.path(partition);
        let file = match no_pipe(&path).and_then(|()| File::open(path)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Discarded::Io(error)),
        };
        let (mut reader, header) = Reader::new(BufReader::with_capacity(1 << 16, file))?;
        let Header { identity, metadata_partition: there } = header;
        if identity != self.identity {
            return Err(Discarded::OtherLog { there: name(&identity), here: name(&self.identity) });
        }
        if there != partition {
            return Err(Discarded::OtherPartition { there, here: partition });
        }
        let mut loaded = Loaded::section(&mut reader, wanted)?.0;
        loop {
            match reader.has_more().and_then(|more| match more {
                true => Loaded::section(&mut reader, wanted).map(Some),
                false => Ok(None),
            }) {
                Ok(None) => return Ok(Some(loaded)),
                Ok(Some((later, position))) => loaded.append(later, position),
                // What is whole before it stays true.
                Err(error) if reader.is_appended_to() => {
                    loaded.cut = Some(error);
                    return Ok(Some(loaded));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the snapshot of a metadata partition: what changed behind what was written before, or all of it in its place.
    fn save(&self, metadata_partition: &MetadataPartition) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = open.as_mut() else { return Ok(()) };
        let partition = metadata_partition.partition;
        let (content, debt) = {
            let reading = metadata_partition.lock();
            let Some(position) = reading.position else { return Ok(()) };
            let live = reading.members.values().filter(|member| matches!(member.stage, MemberStage::Live));
            let users = live.map(|member| Arc::clone(&member.user)).collect();
            let generation = reading.generation;
            (Content { metadata_partition, users, position, generation }, reading.records_since_snapshot)
        };
        // Not there any more if anything fails: the next time all of it is written anew.
        let before = open.written.remove(&partition);
        let before = before.filter(|before| before.generation == content.generation && !before.is_long());
        let appended = match before {
            Some(before) => self.append(&content, before)?,
            None => None,
        };
        let written = match appended {
            Some(written) => Some(written),
            None => self.rewrite(&content)?,
        };
        if let Some(written) = written {
            open.written.insert(partition, written);
            let mut reading = metadata_partition.lock();
            reading.records_since_snapshot = reading.records_since_snapshot.saturating_sub(debt);
        }
        Ok(())
    }

    /// Appends what changed since `before`; nothing where the file has to be written anew.
    fn append(&self, content: &Content<'_>, before: Written) -> io::Result<Option<Written>> {
        let path = self.path(content.metadata_partition.partition);
        let file = match no_pipe(&path).and_then(|()| File::options().append(true).open(path)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() != before.bytes {
            // Somebody else had it.
            return Ok(None);
        }
        let written = content.write(Writer::appending(Vec::new()), file, Some(&before))?;
        Ok(written.map(|written| Written { whole: before.whole, ..written }))
    }

    /// Writes all of it, in place of what was there before; nothing where nobody needs it any more.
    fn rewrite(&self, content: &Content<'_>) -> io::Result<Option<Written>> {
        let partition = content.metadata_partition.partition;
        let path = self.path(partition);
        let beside = path.with_extension("snapshot.new");
        no_pipe(&beside)?;
        let writer = Writer::new(Vec::new(), &self.header(partition))?;
        let written = content.write(writer, File::create(&beside)?, None).and_then(|written| {
            if written.is_some() {
                fs::rename(&beside, &path)?;
            }
            Ok(written)
        });
        if !matches!(written, Ok(Some(_))) {
            // Half a snapshot would keep a disk full that is. What went wrong before matters more than this.
            let _ = fs::remove_file(&beside);
        }
        if written.as_ref().is_ok_and(Option::is_some) {
            sync_dir(&self.dir)?;
        }
        written
    }
}

impl Written {
    /// True if as much was appended as the file had at first.
    fn is_long(&self) -> bool {
        self.bytes >= 2 * self.whole
    }
}

impl Content<'_> {
    /// Writes one section, of those that `before` has otherwise or not at all, and makes it durable. Nothing where the section
    /// would be of no use: a user partition of `before` is not served any more, or the metadata partition is read anew.
    fn write(
        &self,
        mut writer: Writer<Vec<u8>>,
        file: File,
        before: Option<&Written>,
    ) -> io::Result<Option<Written>> {
        let mut file = BufWriter::new(file);
        let (mut users, mut known) = (PartitionMap::default(), 0);
        for user in &self.users {
            let state = user.read();
            if !user.is_ready() {
                continue;
            }
            let last_applied = state.last_applied;
            let last_written = before.and_then(|before| before.users.get(&user.id));
            known += usize::from(last_written.is_some());
            if last_written != Some(&last_applied) {
                // Everything below `position` was applied before the users were listed, and of what came later all that is
                // applied is told by `last_applied`.
                writer.user_partition(&user.id, self.position.max(last_applied + 1), &state)?;
            }
            drop(state);
            // Not under the lock: a disk may take its time.
            writer.flush_into(&mut file)?;
            users.insert(user.id.clone(), last_applied);
        }
        if before.is_some_and(|before| known < before.users.len()) {
            return Ok(None);
        }
        let last_record = {
            let reading = self.metadata_partition.lock();
            if reading.generation != self.generation {
                return Ok(None);
            }
            reading.last_record
        };
        file.write_all(&writer.finish(self.position, last_record)?)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        Ok(Some(Written { generation: self.generation, users, whole: bytes, bytes }))
    }
}

/// An error where something that is no file has the name of one: to open a pipe is to wait for its other end.
fn no_pipe(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::other(format!("{} is not a file", path.display()))),
        _ => Ok(()),
    }
}

/// Makes a change of the names in a directory durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn name(identity: &MetadataLogIdentity) -> String {
    let MetadataLogIdentity { cluster_id, topic_id, partition_count } = identity;
    let cluster_id = cluster_id.as_deref().unwrap_or("without an id");
    let topic_id = topic_id.map_or("without an id".to_owned(), |id| id.to_string());
    format!("topic {topic_id} of {partition_count} partitions in cluster {cluster_id}")
}

/// Writes snapshots as long as the manager lives.
pub(crate) async fn run<L: LiveMetadataEventLog>(shared: Arc<Shared<L>>, config: SnapshotConfig) {
    let Some(snapshots) = shared.snapshots.load_full() else { return };
    let mut checks = interval_at(Instant::now() + config.check_interval, config.check_interval);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut all_at = Instant::now() + config.interval;
    loop {
        let now = checks.tick().await;
        let records = match now >= all_at {
            true => {
                all_at = now + config.interval;
                1
            }
            false => config.records.get(),
        };
        save_worthy(&snapshots, &shared.metadata_partitions, records).await;
    }
}

/// Writes a snapshot of each metadata partition with so many records since its last one, one after the other.
pub(crate) async fn save_worthy(
    snapshots: &Arc<Snapshots>,
    metadata_partitions: &[Arc<MetadataPartition>],
    records: u64,
) {
    for partition in metadata_partitions {
        let is_worthy = {
            let reading = partition.lock();
            reading.position.is_some() && reading.records_since_snapshot >= records
        };
        if !is_worthy {
            continue;
        }
        let (snapshots, saved) = (Arc::clone(snapshots), Arc::clone(partition));
        let done = tokio::task::spawn_blocking(move || snapshots.save(&saved)).await;
        let partition = partition.partition;
        match done {
            Ok(Ok(())) => tracing::debug!(partition, "a snapshot was written"),
            // The old one is still there, and the next try comes with the next look.
            Ok(Err(error)) => tracing::warn!(partition, %error, "a snapshot cannot be written"),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return,
        }
    }
}

use std::future::Future;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use strandline_log::{
    LiveMetadataEventLog, MetadataAssignment, MetadataEventQueueCapacity, MetadataLogIdentity, RangeError,
};
use strandline_tier::{
    MetadataPartitioner, NextWithTxnIndex, RawEvent, RawPartitionDelete, RawSegmentMetadata,
    RawSegmentUpdate, RemoteLogSegmentIndex, RemoteLogSegmentMetadata,
};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::errors::{AssignError, Partition, QueryError, StartError, WriteError, Written};
use crate::manager::{PartitionHolders, RemoteLogMetadataManager};
use crate::metadata_partition::{MetadataPartition, Reading};
use crate::partition_map::PartitionMap;
use crate::snapshot::Snapshots;
use crate::user_partition::UserPartition;
use crate::{TopicIdPartition, catch_up, follow, refusals, snapshot};

/// How a manager reads, waits, and keeps snapshots.
#[derive(Clone, Debug)]
pub struct RemoteLogMetadataManagerConfig {
    /// How much of what is followed may wait to be applied. Default: that of the log.
    pub queue_capacity: MetadataEventQueueCapacity,
    /// The first wait after a failed reading; it doubles, with jitter. Default 200 ms.
    pub retry_backoff: Duration,
    /// The longest wait. Default 10 s.
    pub retry_backoff_max: Duration,
    /// Where and when snapshots are written; `None` writes none, and every start reads the log from its beginning, as
    /// Kafka does. Default `None`.
    pub snapshots: Option<SnapshotConfig>,
}

/// Where and when snapshots are written: one file for each metadata partition, and only for those in which enough
/// happened. The user partitions that changed are appended; a file that has doubled by that is written anew.
#[derive(Clone, Debug)]
pub struct SnapshotConfig {
    /// A directory of this manager's own. It is created where it does not exist.
    pub dir: PathBuf,
    /// So many records since the last snapshot are worth one at once. Default 10 000: some 50 ms of reading.
    pub records: NonZeroU64,
    /// Fewer records are worth one after so long. Default 10 min.
    pub interval: Duration,
    /// So often it is looked whether one is worth it. Default 5 s.
    pub check_interval: Duration,
}

impl SnapshotConfig {
    /// Into this directory, with the defaults.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            records: const { NonZeroU64::new(10_000).expect("not zero") },
            interval: Duration::from_secs(600),
            check_interval: Duration::from_secs(5),
        }
    }
}

impl Default for RemoteLogMetadataManagerConfig {
    fn default() -> Self {
        Self {
            queue_capacity: MetadataEventQueueCapacity::default(),
            retry_backoff: Duration::from_millis(200),
            retry_backoff_max: Duration::from_secs(10),
            snapshots: None,
        }
    }
}

/// The remote log metadata manager on a [`LiveMetadataEventLog`], with the answers of Kafka's
/// `TopicBasedRemoteLogMetadataManager` on the same topic.
///
/// It reads only the metadata partitions that its user partitions need, and keeps state only for those user partitions.
/// Queries take no lock that is held while anything is waited for: each user partition has a lock of its own, which the
/// reading holds while it applies one event. What holds it long is copying: a list of a hundred thousand segments, or
/// their part of a snapshot, takes milliseconds, for which the next event of that partition waits, and what is asked
/// about it behind that event.
///
/// Dropped without [`close`](Self::close), its tasks are told to end; what was written since the last snapshot is read
/// again at the next start.
#[derive(Debug)]
pub struct TopicBasedRemoteLogMetadataManager<L: LiveMetadataEventLog> {
    pub(crate) shared: Arc<Shared<L>>,
}

/// What the manager's tasks share.
pub(crate) struct Shared<L> {
    pub(crate) log: L,
    pub(crate) config: RemoteLogMetadataManagerConfig,
    pub(crate) assignment: MetadataAssignment,
    pub(crate) metadata_partitions: Box<[Arc<MetadataPartition>]>,
    /// `None` where none are kept, and once the manager is closed.
    pub(crate) snapshots: ArcSwapOption<Snapshots>,
    partitioner: MetadataPartitioner,
    /// The user partitions that are served. Lock order: `membership`, then a metadata partition, then a user partition.
    users: ArcSwap<PartitionMap<Arc<UserPartition>>>,
    membership: Mutex<Membership>,
    /// `None` once the manager is closed: a task that still runs then begins no other.
    tasks: Mutex<Option<JoinSet<()>>>,
    runtime: Handle,
}

impl<L> std::fmt::Debug for Shared<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("metadata_partitions", &self.metadata_partitions.len())
            .field("user_partitions", &self.users.load().len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Membership {
    closed: bool,
}

impl<L: LiveMetadataEventLog> TopicBasedRemoteLogMetadataManager<L> {
    /// A manager that serves no partition yet. The log stays the caller's: it is not closed with the manager.
    ///
    /// # Errors
    /// [`StartError`]: the log has no partitions, or the directory for snapshots cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(log: L, config: RemoteLogMetadataManagerConfig) -> Result<Self, StartError> {
        let identity = log.identity();
        let partition_count = log.partition_count();
        let partitioner =
            MetadataPartitioner::new(partition_count).ok_or(StartError::NoPartitions { partition_count })?;
        let snapshots = match &config.snapshots {
            Some(snapshots) => Some(Arc::new(Snapshots::open(snapshots.dir.clone(), identity)?)),
            None => None,
        };
        let events = log.subscribe(config.queue_capacity);
        let partition = |partition| Arc::new(MetadataPartition::new(partition));
        let shared = Arc::new(Shared {
            log,
            assignment: events.assignment(),
            metadata_partitions: (0..partition_count).map(partition).collect(),
            snapshots: ArcSwapOption::new(snapshots),
            partitioner,
            users: ArcSwap::default(),
            membership: Mutex::default(),
            tasks: Mutex::new(Some(JoinSet::new())),
            runtime: Handle::current(),
            config,
        });
        shared.spawn(follow::run(Arc::clone(&shared), events));
        if let Some(config) = shared.config.snapshots.clone() {
            shared.spawn(snapshot::run(Arc::clone(&shared), config));
        }
        Ok(Self { shared })
    }

    /// Which topic of which cluster the log is.
    pub fn identity(&self) -> MetadataLogIdentity {
        self.shared.log.identity()
    }

    /// Which metadata partition holds the events of a user partition.
    pub fn metadata_partition(&self, partition: &TopicIdPartition) -> i32 {
        self.shared.partitioner.metadata_partition(partition.topic_id, partition.partition)
    }

    /// Waits until a partition [is ready](RemoteLogMetadataManager::is_ready).
    ///
    /// # Errors
    /// [`QueryError::NotAssigned`] if it is not served, or ceases to be; [`QueryError::NotReady`] at the deadline.
    ///
    /// # Cancel safety
    /// A dropped call leaves nothing behind.
    pub async fn wait_until_ready(
        &self,
        partition: &TopicIdPartition,
        deadline: Instant,
    ) -> Result<(), QueryError> {
        let not_assigned = || QueryError::NotAssigned(Partition(partition.clone()));
        let user = self.shared.user(partition).ok_or_else(not_assigned)?;
        match timeout_at(deadline, user.ready()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_assigned()),
            Err(_) => Err(QueryError::NotReady(Partition(partition.clone()))),
        }
    }

    /// Asks the index of a partition something, by reference and in one piece. Nothing is applied to it meanwhile.
    ///
    /// # Errors
    /// [`QueryError`]: not served here, or not ready.
    pub fn with_index<T>(
        &self,
        partition: &TopicIdPartition,
        ask: impl FnOnce(&RemoteLogSegmentIndex) -> T,
    ) -> Result<T, QueryError> {
        let users = self.shared.users.load();
        let user = users.get(partition).filter(|user| !user.is_gone());
        let user = user.ok_or_else(|| QueryError::NotAssigned(Partition(partition.clone())))?;
        let state = user.read();
        // Asked while the lock is held: what is shut is emptied after it is shut.
        match user.is_ready() {
            true => Ok(ask(&state.index)),
            false => Err(QueryError::NotReady(Partition(partition.clone()))),
        }
    }

    /// Ends every task, after a last snapshot of what is worth one; writers that wait are told. From here on nothing is
    /// served.
    ///
    /// # Cancel safety
    /// A dropped call may leave out the last snapshots; the rest of the manager ends with the value itself.
    pub async fn close(&self) {
        let tasks = self.shared.begin_close();
        if let Some(mut tasks) = tasks {
            // They end at whatever they wait for.
            tasks.shutdown().await;
        }
        if let Some(snapshots) = self.shared.snapshots.swap(None) {
            snapshot::save_worthy(&snapshots, &self.shared.metadata_partitions, 1).await;
            snapshots.close().await;
        }
        let users: Vec<_> = self.shared.users.load().values().map(|user| user.id.clone()).collect();
        self.shared.leave(&users);
    }
}

impl<L: LiveMetadataEventLog> Drop for TopicBasedRemoteLogMetadataManager<L> {
    fn drop(&mut self) {
        // Dropped, they are told to end.
        drop(self.shared.begin_close());
    }
}

impl<L: LiveMetadataEventLog> Shared<L> {
    pub(crate) fn user(&self, partition: &TopicIdPartition) -> Option<Arc<UserPartition>> {
        self.users.load().get(partition).cloned()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.membership().closed
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        let Some(tasks) = &mut *tasks else { return };
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "a task of the remote log metadata manager panicked");
            }
        }
        tasks.spawn_on(task, &self.runtime);
    }

    pub(crate) fn metadata_partition(&self, partition: i32) -> Option<&Arc<MetadataPartition>> {
        self.metadata_partitions.get(usize::try_from(partition).ok()?)
    }

    fn begin_close(&self) -> Option<JoinSet<()>> {
        self.membership().closed = true;
        self.tasks().take()
    }

    /// Begins to serve those that are not served yet.
    fn assign<'p>(
        self: &Arc<Self>,
        partitions: impl Iterator<Item = &'p TopicIdPartition>,
    ) -> Result<(), AssignError> {
        let membership = self.membership();
        if membership.closed {
            return Err(AssignError::Closed);
        }
        let users = self.users.load_full();
        let mut with_new = None;
        let mut begin = Vec::new();
        for id in partitions {
            if with_new.as_ref().unwrap_or(&*users).get(id).is_some() {
                continue;
            }
            let home = self.partitioner.metadata_partition(id.topic_id, id.partition);
            let Some(metadata_partition) = self.metadata_partition(home) else { continue };
            let user = Arc::new(UserPartition::new(id.clone(), home));
            with_new.get_or_insert_with(|| (*users).clone()).insert(id.clone(), Arc::clone(&user));
            if metadata_partition.lock().join(user) {
                begin.push(Arc::clone(metadata_partition));
            }
        }
        if let Some(with_new) = with_new {
            self.users.store(Arc::new(with_new));
        }
        if !begin.is_empty() {
            self.spawn(begin_catch_ups(Arc::clone(self), begin));
        }
        Ok(())
    }

    /// Ceases to serve these.
    fn leave(&self, partitions: &[TopicIdPartition]) {
        let _membership = self.membership();
        let mut users = (*self.users.load_full()).clone();
        let gone: Vec<_> = partitions.iter().filter_map(|id| users.remove(id)).collect();
        if !gone.is_empty() {
            self.users.store(Arc::new(users));
        }
        gone.iter().for_each(|user| self.part_from(user));
    }

    /// Ceases to serve this one, unless it was replaced meanwhile.
    pub(crate) fn forget(&self, user: &Arc<UserPartition>) {
        let _membership = self.membership();
        let users = self.users.load_full();
        if users.get(&user.id).is_some_and(|current| Arc::ptr_eq(current, user)) {
            let mut users = (*users).clone();
            users.remove(&user.id);
            self.users.store(Arc::new(users));
        }
        self.part_from(user);
    }

    fn part_from(&self, user: &UserPartition) {
        user.give_up();
        if let Some(metadata_partition) = self.metadata_partition(user.metadata_partition) {
            let mut reading = metadata_partition.lock();
            if reading.leave(user) {
                self.assignment.remove(metadata_partition.partition);
            }
        }
    }

    /// Follows a metadata partition from an offset on; an earlier following of it ends.
    pub(crate) fn follow(&self, reading: &mut Reading, partition: i32, from: i64) {
        self.assignment.remove(partition);
        reading.assignment = match self.assignment.add(partition, from) {
            Ok(assignment) => Some(assignment),
            Err(error) => {
                // The log was closed, by its owner or with this manager: nothing comes any more.
                tracing::error!(partition, %error, "the metadata partition cannot be followed");
                None
            }
        };
    }

    /// The log is not what was read of it: everything of the metadata partition is read again.
    pub(crate) fn read_anew(self: &Arc<Self>, metadata_partition: &Arc<MetadataPartition>, why: &RangeError) {
        let partition = metadata_partition.partition;
        tracing::warn!(partition, error = ?why, "the metadata partition is read anew");
        let mut reading = metadata_partition.lock();
        reading.read_anew();
        self.assignment.remove(partition);
        if !reading.members.is_empty() && !std::mem::replace(&mut reading.catching_up, true) {
            drop(reading);
            self.spawn(catch_up::run(Arc::clone(self), Arc::clone(metadata_partition), None));
        }
    }
}

/// Begins to catch up in many metadata partitions, whose ends are asked for once.
async fn begin_catch_ups<L: LiveMetadataEventLog>(
    shared: Arc<Shared<L>>,
    begin: Vec<Arc<MetadataPartition>>,
) {
    let mut marks = shared.log.high_water_marks().await;
    for partition in begin {
        let index = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        // Who has no answer asks again, and says so if that fails as well.
        let marks = marks.get_mut(index).and_then(|marks| marks.as_ref().ok().copied());
        shared.spawn(catch_up::run(Arc::clone(&shared), partition, marks));
    }
}

impl<L: LiveMetadataEventLog> RemoteLogMetadataManager for TopicBasedRemoteLogMetadataManager<L> {
    async fn add_remote_log_segment_metadata(
        &self,
        event: RawSegmentMetadata<'static>,
        deadline: Instant,
    ) -> Result<Written, WriteError> {
        refusals::check_add(&event)?;
        let partition = event.topic_id_partition.clone();
        self.shared.write(&partition, RawEvent::SegmentMetadata(event), deadline).await
    }

    async fn update_remote_log_segment_metadata(
        &self,
        event: RawSegmentUpdate<'static>,
        deadline: Instant,
    ) -> Result<Written, WriteError> {
        refusals::check_update(&event)?;
        let partition = event.topic_id_partition.clone();
        self.shared.write(&partition, RawEvent::SegmentMetadataUpdate(event), deadline).await
    }

    async fn put_remote_partition_delete_metadata(
        &self,
        event: RawPartitionDelete<'static>,
        holders: PartitionHolders,
        deadline: Instant,
    ) -> Result<Written, WriteError> {
        refusals::check_partition_delete(&event, holders)?;
        let partition = event.topic_id_partition.clone();
        self.shared.write(&partition, RawEvent::PartitionDeleteMetadata(event), deadline).await
    }

    fn remote_log_segment_metadata(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, QueryError> {
        self.with_index(partition, |index| index.remote_log_segment_metadata(leader_epoch, offset).cloned())
    }

    fn next_segment_with_txn_index(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, QueryError> {
        self.with_index(partition, |index| match index.next_segment_with_txn_index(leader_epoch, offset) {
            NextWithTxnIndex::Found(segment) => Some(segment.clone()),
            _ => None,
        })
    }

    fn highest_offset_for_epoch(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
    ) -> Result<Option<i64>, QueryError> {
        self.with_index(partition, |index| index.highest_offset_for_epoch(leader_epoch))
    }

    fn list_remote_log_segments(
        &self,
        partition: &TopicIdPartition,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, QueryError> {
        self.with_index(partition, |index| index.list_remote_log_segments().cloned().collect())
    }

    fn list_remote_log_segments_for_epoch(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, QueryError> {
        let list = |index: &RemoteLogSegmentIndex| {
            let segments = index.list_remote_log_segments_for_epoch(leader_epoch)?;
            Ok(segments.into_iter().cloned().collect())
        };
        self.with_index(partition, list)?
    }

    fn remote_log_size(&self, partition: &TopicIdPartition, leader_epoch: i32) -> Result<i64, QueryError> {
        Ok(self.with_index(partition, |index| index.remote_log_size(leader_epoch))??)
    }

    fn on_partition_leadership_changes(
        &self,
        leaders: &[TopicIdPartition],
        followers: &[TopicIdPartition],
    ) -> Result<(), AssignError> {
        self.shared.assign(leaders.iter().chain(followers))
    }

    fn on_stop_partitions(&self, partitions: &[TopicIdPartition]) {
        self.shared.leave(partitions);
    }

    fn is_ready(&self, partition: &TopicIdPartition) -> bool {
        self.shared.users.load().get(partition).is_some_and(|user| user.is_ready())
    }
}

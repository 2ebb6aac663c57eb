//! Following partitions of the metadata topic: what every live form of the log has in common.

use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::future::BoxFuture;
use strandline_meta::SendError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::range::RangeError;
use crate::record::OwnedMetadataEventRecord;

mod meters;
mod queue;

#[cfg(feature = "metrics")]
pub use meters::describe_metrics;
pub(crate) use queue::PartitionSink;
use queue::Queue;

/// Records that wait for a subscriber, over all of its partitions. Small: what waits here is read twice into a cache.
pub const DEFAULT_METADATA_EVENT_QUEUE_CAPACITY: MetadataEventQueueCapacity = MetadataEventQueueCapacity {
    records: NonZeroUsize::new(1024).expect("not zero"),
    bytes: NonZeroU32::new(16 << 20).expect("not zero"),
};

/// How much may wait for a subscriber, over all of its partitions. A reading that finds no room waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataEventQueueCapacity {
    /// Records. Default 1 024.
    pub records: NonZeroUsize,
    /// Bytes of keys and values, with a small addition for each record. Default 16 MiB. A record that alone is larger
    /// waits until the queue is empty. On a cluster each reading keeps the rest of its page beside the queue: of its
    /// partition's equal part of these bytes, and 64 KiB or one batch at least, four times that where it was compressed.
    pub bytes: NonZeroU32,
}

impl Default for MetadataEventQueueCapacity {
    fn default() -> Self {
        DEFAULT_METADATA_EVENT_QUEUE_CAPACITY
    }
}

/// One adding of a partition to an assignment: the same partition, removed and added again, has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssignmentId(u64);

/// What a subscriber gets.
///
/// Each says which adding of its partition it belongs to: who takes deliveries in one task and changes the assignment in
/// another tells those of a reading that was ended meanwhile by it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MetadataDelivery {
    /// The next record of its partition.
    Record {
        /// Which adding of the partition it belongs to.
        assignment: AssignmentId,
        /// The record.
        record: OwnedMetadataEventRecord,
    },
    /// The reading of a partition has passed offsets that have no record: all below `next_offset` is read.
    Advanced {
        /// Which adding of the partition it belongs to.
        assignment: AssignmentId,
        /// The metadata partition.
        partition: i32,
        /// The first offset not read.
        next_offset: i64,
    },
    /// The reading of a partition ended in front of something that the subscriber has to decide about: an offset that the
    /// log does not hold, a log that was cut, another topic, a damaged batch. Nothing was reset or skipped. The partition
    /// stays in the assignment, without being read, until it is removed; add it again where it shall go on.
    Stopped {
        /// Which adding of the partition it belongs to.
        assignment: AssignmentId,
        /// The metadata partition.
        partition: i32,
        /// Why, with the offsets.
        error: Arc<RangeError>,
    },
}

impl MetadataDelivery {
    /// The metadata partition that it is about.
    pub fn partition(&self) -> i32 {
        match *self {
            Self::Record { ref record, .. } => record.partition,
            Self::Advanced { partition, .. } | Self::Stopped { partition, .. } => partition,
        }
    }

    /// Which adding of its partition it belongs to.
    pub fn assignment(&self) -> AssignmentId {
        match *self {
            Self::Record { assignment, .. }
            | Self::Advanced { assignment, .. }
            | Self::Stopped { assignment, .. } => assignment,
        }
    }
}

/// The partition cannot be added to the assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssignError {
    /// It is there already; remove it first to read it from elsewhere.
    #[error("metadata partition {partition} is assigned already")]
    AlreadyAssigned {
        /// The metadata partition.
        partition: i32,
    },
    /// There is no such metadata partition.
    #[error("there is no metadata partition {partition}: the topic has {partition_count}")]
    NoSuchPartition {
        /// The metadata partition asked for.
        partition: i32,
        /// How many there are.
        partition_count: i32,
    },
    /// The subscription or the log is closed.
    #[error("the subscription is closed")]
    Closed,
}

/// What the reading of an assigned partition does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReadingState {
    /// Nothing has been heard of the partition yet.
    Starting,
    /// Its leader answers.
    Fetching,
    /// Something hinders it that is tried again for as long as it takes: a partition without a leader
    /// ([`SendError::NoLeader`]), a broker that cannot be reached, one that throttles this client.
    Retrying {
        /// When it began.
        since: Instant,
        /// Failures since then.
        failures: u32,
        /// The last of them.
        error: Arc<SendError>,
    },
    /// It has stopped for good, and the subscriber was told or will be.
    Stopped(Arc<RangeError>),
}

impl ReadingState {
    /// True once it has stopped for good.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }
}

/// Where the reading of an assigned partition stands.
#[derive(Clone, Debug)]
pub struct AssignedMetadataPartition {
    /// The metadata partition.
    pub partition: i32,
    /// The first offset that is not in the queue yet.
    pub next_offset: i64,
    /// Its records that wait in the queue.
    pub queued_records: usize,
    /// Where the log ended when that was last heard; `None` before.
    pub log_end_offset: Option<i64>,
    /// What the reading does.
    pub state: ReadingState,
}

impl AssignedMetadataPartition {
    /// How many offsets lie between the reading and the end of the log; `None` before that was heard.
    pub fn lag(&self) -> Option<i64> {
        lag(self.log_end_offset, self.next_offset)
    }
}

fn lag(log_end_offset: Option<i64>, next_offset: i64) -> Option<i64> {
    Some((log_end_offset? - next_offset).max(0))
}

/// What reads one partition for a subscriber: the part in which the forms of the log differ.
pub(crate) trait PartitionSource: Send + Sync + std::fmt::Debug + 'static {
    fn partition_count(&self) -> i32;

    /// Reads from `from` on into the sink, until something stops it for good. The future is dropped to end it, at
    /// whatever it waits for.
    fn follow(&self, partition: i32, from: i64, sink: PartitionSink) -> BoxFuture<'static, RangeError>;

    /// Ends what the readings share, after the last of them has ended, and returns when it has ended.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The readings of some partitions, in one bounded queue. Dropped, all of them end.
#[derive(Debug)]
pub struct MetadataEventSubscription {
    assignment: MetadataAssignment,
}

impl MetadataEventSubscription {
    /// The handle that adds and removes partitions, also while another task waits in [`next`](Self::next).
    pub fn assignment(&self) -> MetadataAssignment {
        self.assignment.clone()
    }

    /// Waits for the next delivery: partitions come in turns, the records of each in order. `None` once the subscription
    /// or the log is closed.
    ///
    /// # Cancel safety
    /// A dropped call has taken nothing.
    pub async fn next(&mut self) -> Option<MetadataDelivery> {
        self.assignment.core.queue.next().await
    }

    /// Waits until there is something, then takes what lies there, `max` deliveries at most (at least one), and puts it
    /// behind what is in `into`. False once the subscription or the log is closed.
    ///
    /// # Cancel safety
    /// A dropped call has taken nothing.
    pub async fn next_many(&mut self, into: &mut Vec<MetadataDelivery>, max: usize) -> bool {
        let Some(first) = self.next().await else { return false };
        into.push(first);
        self.assignment.core.queue.take_ready(into, max.saturating_sub(1));
        true
    }

    /// Ends every reading, and returns when all have ended.
    pub async fn close(self) {
        self.assignment.core.close().await;
    }
}

impl Drop for MetadataEventSubscription {
    fn drop(&mut self) {
        self.assignment.core.begin_close();
    }
}

/// Adds partitions to a subscription and removes them. Clones act on the same subscription.
#[derive(Clone, Debug)]
pub struct MetadataAssignment {
    core: Arc<Core>,
}

impl MetadataAssignment {
    /// Begins to read a partition at `from`, the first offset that is delivered. Whether the log holds that offset turns
    /// out with the reading: where it does not, [`MetadataDelivery::Stopped`] says so.
    ///
    /// Where the same partition was removed a moment ago, its reading begins after the old one has ended. The id that is
    /// given back is that of every delivery of this reading.
    ///
    /// # Errors
    /// [`AssignError`]; nothing has changed then.
    pub fn add(&self, partition: i32, from: i64) -> Result<AssignmentId, AssignError> {
        self.core.add(partition, from)
    }

    /// Ends the reading of a partition, at whatever it waits for. Once this returns the subscription gives out nothing of
    /// it any more, not even what was in the queue. False if the partition was not assigned.
    pub fn remove(&self, partition: i32) -> bool {
        self.core.remove(partition)
    }

    /// The assigned partitions, ascending, and where each stands.
    pub fn list(&self) -> Vec<AssignedMetadataPartition> {
        self.core.list()
    }
}

#[derive(Debug)]
struct Core {
    source: Arc<dyn PartitionSource>,
    queue: Arc<Queue>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    assigned: BTreeMap<i32, JoinHandle<()>>,
    /// Held by a partition's reading while it lives, so that the next one waits for its end.
    turns: HashMap<i32, Arc<tokio::sync::Mutex<()>>>,
    /// Told to end, and perhaps not ended yet.
    ending: Vec<JoinHandle<()>>,
    assignments: u64,
    closed: bool,
}

impl Core {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, partition: i32, from: i64) -> Result<AssignmentId, AssignError> {
        let partition_count = self.source.partition_count();
        let mut tasks = self.tasks();
        if tasks.closed {
            return Err(AssignError::Closed);
        }
        if !(0..partition_count).contains(&partition) {
            return Err(AssignError::NoSuchPartition { partition, partition_count });
        }
        if tasks.assigned.contains_key(&partition) {
            return Err(AssignError::AlreadyAssigned { partition });
        }
        tasks.assignments += 1;
        let assignment = AssignmentId(tasks.assignments);
        let sink = self.queue.open_lane(partition, assignment, from);
        let turn = Arc::clone(tasks.turns.entry(partition).or_default());
        let source = Arc::clone(&self.source);
        let task = tokio::spawn(async move {
            let _turn = turn.lock_owned().await;
            let error = source.follow(partition, from, sink.clone()).await;
            sink.stopped(error);
        });
        tasks.assigned.insert(partition, task);
        Ok(assignment)
    }

    fn remove(&self, partition: i32) -> bool {
        let mut tasks = self.tasks();
        let Some(task) = tasks.assigned.remove(&partition) else { return false };
        task.abort();
        self.queue.close_lane(partition);
        tasks.ending.retain(|task| !task.is_finished());
        tasks.ending.push(task);
        true
    }

    fn list(&self) -> Vec<AssignedMetadataPartition> {
        let tasks = self.tasks();
        let view = |&partition: &i32| {
            let lane = self.queue.view(partition)?;
            Some(AssignedMetadataPartition {
                partition,
                next_offset: lane.next_offset,
                queued_records: lane.queued_records,
                log_end_offset: lane.log_end_offset,
                state: lane.state,
            })
        };
        tasks.assigned.keys().filter_map(view).collect()
    }

    fn begin_close(&self) {
        let mut tasks = self.tasks();
        tasks.closed = true;
        let assigned = std::mem::take(&mut tasks.assigned);
        for task in assigned.into_values() {
            task.abort();
            tasks.ending.push(task);
        }
        self.queue.close();
    }

    async fn close(&self) {
        self.begin_close();
        let ending = std::mem::take(&mut self.tasks().ending);
        for task in ending {
            // It was told to end; that it ended so is no error.
            let _ended = task.await;
        }
        self.source.close().await;
    }
}

/// The subscriptions of one log, so that closing it ends them all.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    open: Mutex<(bool, Vec<Weak<Core>>)>,
}

impl Subscriptions {
    pub(crate) fn open(
        &self,
        source: Arc<dyn PartitionSource>,
        capacity: MetadataEventQueueCapacity,
    ) -> MetadataEventSubscription {
        let queue = Arc::new(Queue::new(capacity));
        let core = Arc::new(Core { source, queue, tasks: Mutex::default() });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (closed, cores) = &mut *open;
        if *closed {
            core.begin_close();
        }
        cores.retain(|core| core.strong_count() > 0);
        cores.push(Arc::downgrade(&core));
        MetadataEventSubscription { assignment: MetadataAssignment { core } }
    }

    /// Ends all of them, and returns when everything has ended. Those opened later are closed from the start.
    pub(crate) async fn close(&self) {
        let cores = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.0 = true;
            std::mem::take(&mut open.1)
        };
        for core in cores.iter().filter_map(Weak::upgrade) {
            core.close().await;
        }
    }
}

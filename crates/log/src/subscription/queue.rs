//! The bounded queue between the readings of many partitions and one subscriber.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::meters::Meters;
use super::{AssignmentId, MetadataDelivery, MetadataEventQueueCapacity, ReadingState};
use crate::range::RangeError;
use crate::record::OwnedMetadataEventRecord;

/// Records of many partitions on their way to one subscriber.
///
/// Each partition has a lane, and lanes are emptied in turns, one delivery at a time. A lane takes no more than its share
/// of the room (an equal part of it, at least one record), so that partitions with much to tell leave room for the others;
/// where the shares together are more than there is, room goes to who asked first.
#[derive(Debug)]
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    records: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    capacity: MetadataEventQueueCapacity,
    /// Something came, or the queue was closed. There is one subscriber, so that one permit is enough.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Lanes {
    by_partition: HashMap<i32, Lane>,
    /// The partitions that have something, in the order of their turns.
    turns: VecDeque<i32>,
    closed: bool,
}

#[derive(Debug)]
struct Lane {
    /// Which assignment this lane is for: what an earlier one of the partition still brings is refused.
    assignment: AssignmentId,
    items: VecDeque<Item>,
    records: usize,
    bytes: usize,
    /// Told whenever a record has left.
    room: Arc<Notify>,
    next_offset: i64,
    log_end_offset: Option<i64>,
    state: ReadingState,
    meters: Meters,
}

impl Lane {
    fn lag(&self) -> Option<i64> {
        super::lag(self.log_end_offset, self.next_offset)
    }

    /// Where nobody follows, nobody lags.
    fn ended(&self) {
        self.meters.lag(0);
    }
}

#[derive(Debug)]
struct Item {
    delivery: MetadataDelivery,
    /// The room that the delivery takes up, given back with it.
    _room: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

/// What is known of a lane.
#[derive(Clone, Debug)]
pub(super) struct LaneView {
    pub(super) queued_records: usize,
    pub(super) next_offset: i64,
    pub(super) log_end_offset: Option<i64>,
    pub(super) state: ReadingState,
}

impl Queue {
    pub(super) fn new(capacity: MetadataEventQueueCapacity) -> Self {
        let records = capacity.records.get().min(Semaphore::MAX_PERMITS);
        Self {
            lanes: Mutex::default(),
            records: Arc::new(Semaphore::new(records)),
            bytes: Arc::new(Semaphore::new(capacity.bytes.get() as usize)),
            capacity,
            arrived: Notify::new(),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a lane; what another assignment of the partition left is gone.
    pub(super) fn open_lane(
        self: &Arc<Self>,
        partition: i32,
        assignment: AssignmentId,
        next_offset: i64,
    ) -> PartitionSink {
        let room = Arc::new(Notify::new());
        let lane = Lane {
            assignment,
            items: VecDeque::new(),
            records: 0,
            bytes: 0,
            room: Arc::clone(&room),
            next_offset,
            log_end_offset: None,
            state: ReadingState::Starting,
            meters: Meters::of(partition),
        };
        let mut lanes = self.lanes();
        lanes.turns.retain(|&other| other != partition);
        lanes.by_partition.insert(partition, lane);
        PartitionSink { queue: Arc::clone(self), partition, assignment, room }
    }

    /// Ends a lane: what lies in it is never delivered, and its room is free.
    pub(super) fn close_lane(&self, partition: i32) {
        let mut lanes = self.lanes();
        lanes.turns.retain(|&other| other != partition);
        if let Some(lane) = lanes.by_partition.remove(&partition) {
            lane.ended();
        }
    }

    pub(super) fn view(&self, partition: i32) -> Option<LaneView> {
        let lanes = self.lanes();
        let lane = lanes.by_partition.get(&partition)?;
        Some(LaneView {
            queued_records: lane.records,
            next_offset: lane.next_offset,
            log_end_offset: lane.log_end_offset,
            state: lane.state.clone(),
        })
    }

    /// Nothing is taken any more; what lies in the queue is gone.
    pub(super) fn close(&self) {
        let mut lanes = self.lanes();
        lanes.closed = true;
        lanes.turns.clear();
        lanes.by_partition.drain().for_each(|(_, lane)| lane.ended());
        self.arrived.notify_one();
    }

    /// The next delivery in turn; `Err` once the queue is closed.
    fn pop(&self) -> Result<Option<MetadataDelivery>, ()> {
        let mut lanes = self.lanes();
        let lanes = &mut *lanes;
        if lanes.closed {
            return Err(());
        }
        while let Some(partition) = lanes.turns.pop_front() {
            let Some(lane) = lanes.by_partition.get_mut(&partition) else { continue };
            let Some(item) = lane.items.pop_front() else { continue };
            if let MetadataDelivery::Record { record, .. } = &item.delivery {
                lane.records -= 1;
                lane.bytes -= record.size_bytes();
                lane.room.notify_one();
            }
            if !lane.items.is_empty() {
                lanes.turns.push_back(partition);
            }
            return Ok(Some(item.delivery));
        }
        Ok(None)
    }

    /// Waits for the next delivery; `None` once the queue is closed. Dropped, nothing is lost.
    pub(super) async fn next(&self) -> Option<MetadataDelivery> {
        loop {
            match self.pop() {
                Ok(Some(delivery)) => return Some(delivery),
                Ok(None) => self.arrived.notified().await,
                Err(()) => return None,
            }
        }
    }

    /// What lies there now, `max` deliveries at most, behind those in `into`.
    pub(super) fn take_ready(&self, into: &mut Vec<MetadataDelivery>, max: usize) {
        for _ in 0..max {
            match self.pop() {
                Ok(Some(delivery)) => into.push(delivery),
                _ => return,
            }
        }
    }

    /// True if the lane's share has room for so many more bytes, or the lane is not there any more.
    fn has_share(&self, partition: i32, assignment: AssignmentId, bytes: usize) -> bool {
        let lanes = self.lanes();
        let count = lanes.by_partition.len().max(1);
        let lane = lanes.by_partition.get(&partition).filter(|lane| lane.assignment == assignment);
        lane.is_none_or(|lane| {
            let fits = lane.records < self.capacity.records.get() / count
                && lane.bytes + bytes <= self.capacity.bytes.get() as usize / count;
            fits || lane.records == 0
        })
    }

    /// False if the partition is not in this assignment any more.
    fn push(&self, partition: i32, assignment: AssignmentId, next_offset: Option<i64>, item: Item) -> bool {
        let mut lanes = self.lanes();
        let lanes = &mut *lanes;
        let lane = lanes.by_partition.get_mut(&partition).filter(|lane| lane.assignment == assignment);
        let Some(lane) = lane else { return false };
        lane.next_offset = next_offset.unwrap_or(lane.next_offset);
        if let MetadataDelivery::Stopped { error, .. } = &item.delivery {
            lane.state = ReadingState::Stopped(Arc::clone(error));
            lane.meters.stop();
        }
        if let MetadataDelivery::Record { record, .. } = &item.delivery {
            lane.records += 1;
            lane.bytes += record.size_bytes();
            lane.meters.record();
        }
        // Two in a row say no more than the later one, so that these take no room worth counting.
        if let MetadataDelivery::Advanced { next_offset, .. } = item.delivery
            && let Some(Item { delivery: MetadataDelivery::Advanced { next_offset: last, .. }, .. }) =
                lane.items.back_mut()
        {
            *last = next_offset;
            return true;
        }
        lane.items.push_back(item);
        if lane.items.len() == 1 {
            lanes.turns.push_back(partition);
            self.arrived.notify_one();
        }
        true
    }
}

/// Where the reading of one partition puts what it reads. Every form of the log fills its queue through this.
#[derive(Clone, Debug)]
pub(crate) struct PartitionSink {
    queue: Arc<Queue>,
    partition: i32,
    assignment: AssignmentId,
    room: Arc<Notify>,
}

impl PartitionSink {
    /// Puts a record into the queue, and waits for room before. Records of a partition that was removed vanish.
    ///
    /// Dropped while it waits, the record is not in the queue.
    pub(crate) async fn record(&self, record: OwnedMetadataEventRecord) {
        while !self.queue.has_share(self.partition, self.assignment, record.size_bytes()) {
            self.room.notified().await;
        }
        let bytes_max = self.queue.capacity.bytes.get();
        let bytes = u32::try_from(record.size_bytes()).unwrap_or(u32::MAX).min(bytes_max);
        let records = Arc::clone(&self.queue.records).acquire_owned();
        let records = records.await.expect("the semaphore is never closed");
        let bytes = Arc::clone(&self.queue.bytes).acquire_many_owned(bytes);
        let bytes = bytes.await.expect("the semaphore is never closed");
        let next_offset = record.offset + 1;
        let item = Item {
            delivery: MetadataDelivery::Record { assignment: self.assignment, record },
            _room: Some((records, bytes)),
        };
        self.queue.push(self.partition, self.assignment, Some(next_offset), item);
    }

    /// Waits until the queue has room for one more record of this partition, so that nothing is asked for that would have
    /// to be kept elsewhere. Dropped, it has changed nothing.
    pub(crate) async fn room(&self) {
        while !self.queue.has_share(self.partition, self.assignment, 0) {
            self.room.notified().await;
        }
        self.show(|lane| lane.lag().into_iter().for_each(|lag| lane.meters.lag(lag)));
        // Who has asked for room before comes first.
        drop(self.queue.records.acquire().await);
        drop(self.queue.bytes.acquire().await);
    }

    /// The partition's equal part of the queue's bytes.
    pub(crate) fn share_bytes(&self) -> usize {
        self.queue.capacity.bytes.get() as usize / self.queue.lanes().by_partition.len().max(1)
    }

    /// Says that the reading stands at `next_offset` although no record ends right before it: control batches, empty
    /// ones, gaps of compaction.
    pub(crate) fn advanced(&self, next_offset: i64) {
        let (assignment, partition) = (self.assignment, self.partition);
        let delivery = MetadataDelivery::Advanced { assignment, partition, next_offset };
        self.queue.push(self.partition, self.assignment, Some(next_offset), Item { delivery, _room: None });
    }

    /// Says where the log ends, for the lag that is shown.
    pub(crate) fn log_end(&self, log_end_offset: i64) {
        self.show(|lane| {
            lane.log_end_offset = Some(log_end_offset);
            lane.lag().into_iter().for_each(|lag| lane.meters.lag(lag));
        });
    }

    /// Says what the reading does, for those who look.
    pub(crate) fn state(&self, state: ReadingState) {
        self.show(|lane| {
            if matches!(state, ReadingState::Retrying { .. }) {
                lane.meters.retry();
            }
            lane.state = state;
        });
    }

    fn show(&self, change: impl FnOnce(&mut Lane)) {
        let mut lanes = self.queue.lanes();
        if let Some(lane) = lanes.by_partition.get_mut(&self.partition)
            && lane.assignment == self.assignment
        {
            change(lane);
        }
    }

    pub(super) fn stopped(&self, error: RangeError) {
        let (assignment, partition, error) = (self.assignment, self.partition, Arc::new(error));
        let delivery = MetadataDelivery::Stopped { assignment, partition, error };
        self.queue.push(self.partition, self.assignment, None, Item { delivery, _room: None });
    }
}

//! What is known of one user partition, and who may ask.

use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use strandline_tier::{
    ApplyError, ApplyOutcome, RawEvent, RemoteLogSegmentIndex, RemoteLogSegmentState,
    RemotePartitionDeleteState,
};
use tokio::sync::Notify;

use crate::TopicIdPartition;
use crate::errors::{Rejection, WriteOutcome};

const CATCHING_UP: u8 = 0;
const READY: u8 = 1;
const GONE: u8 = 2;

/// One user partition that is served. Another assignment of the same partition is another value.
#[derive(Debug)]
pub(crate) struct UserPartition {
    pub(crate) id: TopicIdPartition,
    pub(crate) metadata_partition: i32,
    stage: AtomicU8,
    stage_changed: Notify,
    /// Written by the reading alone, for one event at a time: nobody holds this across a wait of any kind.
    state: RwLock<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) index: RemoteLogSegmentIndex,
    /// The offset of the last event of this partition that was applied, or -1.
    pub(crate) last_applied: i64,
}

impl State {
    pub(crate) fn new(index: RemoteLogSegmentIndex, last_applied: i64) -> Self {
        Self { index, last_applied }
    }

    /// An empty one, before any event.
    pub(crate) fn empty() -> Self {
        Self::new(RemoteLogSegmentIndex::new(), -1)
    }

    /// Takes in the next event of this partition.
    pub(crate) fn apply(&mut self, offset: i64, event: &RawEvent<'_>) -> Effect {
        self.last_applied = offset;
        match event {
            RawEvent::SegmentMetadata(event) => Effect::of(self.index.apply_segment_metadata(event), None),
            RawEvent::SegmentMetadataUpdate(event) => {
                let to = RemoteLogSegmentState::from_id(event.state_id);
                Effect::of(self.index.apply_segment_update(event), to)
            }
            RawEvent::PartitionDeleteMetadata(event) => match event.check() {
                Ok(RemotePartitionDeleteState::DeletePartitionFinished) => Effect::PartitionDeleted,
                Ok(_) => Effect::of(Ok(ApplyOutcome::Applied), None),
                Err(error) => Effect::of(Err(error.into()), None),
            },
            RawEvent::SegmentMetadataSnapshot(_) => Effect::of(Err(ApplyError::Snapshot), None),
        }
    }
}

/// What an event did to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Outcome(WriteOutcome),
    /// The partition is gone, with all that is known of it.
    PartitionDeleted,
}

impl Effect {
    fn of(applied: Result<ApplyOutcome, ApplyError>, to: Option<RemoteLogSegmentState>) -> Self {
        Self::Outcome(WriteOutcome::of(applied, to))
    }

    pub(crate) fn outcome(self) -> WriteOutcome {
        match self {
            Self::Outcome(outcome) => outcome,
            Self::PartitionDeleted => WriteOutcome::Applied,
        }
    }

    /// Why Kafka's classes would have thrown here, if they would: such an event is reported. What Kafka drops silently
    /// is not.
    pub(crate) fn refusal(self) -> Option<ApplyError> {
        match self {
            Self::Outcome(WriteOutcome::Rejected(Rejection::Refused(error))) => Some(error),
            _ => None,
        }
    }
}

impl UserPartition {
    pub(crate) fn new(id: TopicIdPartition, metadata_partition: i32) -> Self {
        Self {
            id,
            metadata_partition,
            stage: AtomicU8::new(CATCHING_UP),
            stage_changed: Notify::new(),
            state: RwLock::new(State::empty()),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage.load(Ordering::Acquire) == READY
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stage.load(Ordering::Acquire) == GONE
    }

    /// Takes the state that a catch-up has led to, and lets the readers in.
    pub(crate) fn open(&self, state: State) {
        *self.write() = state;
        self.enter(READY);
    }

    /// Shuts the readers out until the next [`open`](Self::open).
    pub(crate) fn shut(&self) {
        self.enter(CATCHING_UP);
        *self.write() = State::empty();
    }

    /// The partition is not served any more.
    pub(crate) fn give_up(&self) {
        self.enter(GONE);
        *self.write() = State::empty();
    }

    fn enter(&self, stage: u8) {
        // Gone is for ever.
        let enter = |current| (current != GONE).then_some(stage);
        let _gone = self.stage.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        self.stage_changed.notify_waiters();
    }

    /// Waits until readers are let in; false if the partition ceases to be served before.
    pub(crate) async fn ready(&self) -> bool {
        loop {
            let mut changed = pin!(self.stage_changed.notified());
            changed.as_mut().enable();
            match self.stage.load(Ordering::Acquire) {
                READY => return true,
                GONE => return false,
                _ => changed.await,
            }
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

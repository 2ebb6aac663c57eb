//! One metadata partition: how far it is read, for whom, and who waits for what. No I/O, no clock, no task.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use strandline_log::{AssignmentId, OwnedMetadataEventRecord, RangeError};
use strandline_tier::RecordValue;
use tokio::sync::oneshot;

use crate::catch_up::CatchUp;
use crate::errors::WriteOutcome;
use crate::partition_map::PartitionMap;
use crate::user_partition::{Effect, UserPartition};

/// Events of one user partition that are kept while it catches up; with more the catch-up goes another round.
const BUFFERED_EVENTS_MAX: usize = 4096;
const BUFFERED_BYTES_MAX: usize = 4 << 20;

/// One metadata partition. The lock is held for one event at a time, and never across a wait.
#[derive(Debug)]
pub(crate) struct MetadataPartition {
    pub(crate) partition: i32,
    state: Mutex<Reading>,
}

/// How far a metadata partition is read, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The next offset that the running reading takes; `None` while nobody needs the partition.
    pub(crate) position: Option<i64>,
    /// Which adding to the log's assignment the running reading is; what comes of another one is not taken.
    pub(crate) assignment: Option<AssignmentId>,
    /// Counts how often what was read was given up: what was taken from here before belongs to another reading.
    pub(crate) generation: u64,
    /// The user partitions whose events lie here, as far as they are served.
    pub(crate) members: PartitionMap<Member>,
    /// A task catches up for some members.
    pub(crate) catching_up: bool,
    /// Events on their way into the log, and what was read of them so far.
    in_flight: HashMap<Bytes, InFlight>,
    /// Writers whose event was acknowledged, by its offset.
    waiters: BTreeMap<i64, Waiter>,
    pub(crate) passed_over: PassedOver,
    /// Why the running reading stands still, if it does.
    pub(crate) stopped: Option<Arc<RangeError>>,
    /// Stops without progress between them.
    pub(crate) stops_in_a_row: u32,
    /// The first offset of the log when the reading began.
    pub(crate) log_start_offset: i64,
    /// What hinders the catch-up, if something does.
    pub(crate) hindrance: Option<Arc<RangeError>>,
    /// The record before the position, to know the log again by.
    pub(crate) last_record: Option<RecordMark>,
    /// Records that a start without the last snapshot would read again.
    pub(crate) records_since_snapshot: u64,
    /// Why the last snapshot that was found was not used.
    pub(crate) snapshot_discarded: Option<String>,
}

/// A record by which a log is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordMark {
    pub(crate) offset: i64,
    /// CRC-32C of the value; 0 without one, as of an empty one.
    pub(crate) value_crc: u32,
}

impl RecordMark {
    pub(crate) fn new(offset: i64, value: Option<&[u8]>) -> Self {
        Self { offset, value_crc: value.map_or(0, crc32c::crc32c) }
    }
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) user: Arc<UserPartition>,
    pub(crate) stage: MemberStage,
}

#[derive(Debug)]
pub(crate) enum MemberStage {
    /// No catch-up has begun.
    Waiting,
    /// What was there before is being read; what comes meanwhile is kept.
    CatchingUp(Buffer),
    /// The running reading applies its events.
    Live,
}

/// Events that came while their partition caught up.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    events: Vec<(i64, Bytes)>,
    bytes: usize,
    overflowed: bool,
}

impl Buffer {
    fn push(&mut self, offset: i64, value: &Bytes) {
        self.bytes += value.len();
        if self.events.len() == BUFFERED_EVENTS_MAX || self.bytes > BUFFERED_BYTES_MAX {
            *self = Self { overflowed: true, ..Self::default() };
        }
        if !self.overflowed {
            self.events.push((offset, value.clone()));
        }
    }
}

#[derive(Debug, Default)]
struct InFlight {
    writers: usize,
    /// Offsets at which such an event was read, and what became of it; `None` where nobody was served.
    seen: Vec<(i64, Option<WriteOutcome>)>,
}

/// So many readings of one event on its way are kept: another writer can write the very same bytes.
const SEEN_MAX: usize = 64;

#[derive(Debug)]
struct Waiter {
    user: Arc<UserPartition>,
    answer: oneshot::Sender<Result<WriteOutcome, NotSeen>>,
}

/// Why an acknowledged event will not be seen by its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSeen {
    Unassigned,
    ReadAnew,
}

/// What a writer has of its acknowledged event.
#[derive(Debug)]
pub(crate) enum Claim {
    Seen(WriteOutcome),
    NotSeen(NotSeen),
    Wait(oneshot::Receiver<Result<WriteOutcome, NotSeen>>),
}

/// Records that are no event, or an event that Kafka's classes refuse. Each is counted once, however often it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedOver {
    pub(crate) count: u64,
    pub(crate) last: Option<(i64, String)>,
    /// The offsets in which such records were counted.
    pub(crate) counted: Option<Range<i64>>,
}

impl PassedOver {
    pub(crate) fn report(&mut self, partition: i32, offset: i64, reason: String) {
        tracing::warn!(partition, offset, reason, "a record of the metadata topic was passed over");
        self.count += 1;
        if self.last.as_ref().is_none_or(|&(last, _)| last <= offset) {
            self.last = Some((offset, reason));
        }
    }

    pub(crate) fn is_counted(&self, offset: i64) -> bool {
        self.counted.as_ref().is_some_and(|counted| counted.contains(&offset))
    }

    pub(crate) fn cover(&mut self, range: Range<i64>) {
        self.counted = Some(match self.counted.take() {
            Some(counted) => counted.start.min(range.start)..counted.end.max(range.end),
            None => range,
        });
    }
}

/// What a catch-up has to do: for these members, from the records before `end`.
#[derive(Debug)]
pub(crate) struct CatchUpRound {
    pub(crate) users: Vec<Arc<UserPartition>>,
    pub(crate) end: i64,
    pub(crate) counted: PassedOver,
}

impl MetadataPartition {
    pub(crate) fn new(partition: i32) -> Self {
        Self { partition, state: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Reading> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Begins to serve a user partition. True if a catch-up has to be started for it.
    pub(crate) fn join(&mut self, user: Arc<UserPartition>) -> bool {
        let member = Member { user: Arc::clone(&user), stage: MemberStage::Waiting };
        self.members.insert(user.id.clone(), member);
        !std::mem::replace(&mut self.catching_up, true)
    }

    /// Ceases to serve a user partition. True if nobody needs the metadata partition any more.
    pub(crate) fn leave(&mut self, user: &UserPartition) -> bool {
        let is_member = self.members.get(&user.id).is_some_and(|member| std::ptr::eq(&*member.user, user));
        if is_member {
            self.members.remove(&user.id);
        }
        self.end_waiters(NotSeen::Unassigned, |waiter| std::ptr::eq(&*waiter.user, user));
        // Nothing is known any more that a snapshot could tell of it: the next one has to be without it.
        self.records_since_snapshot += 1;
        if self.members.is_empty() {
            self.generation += 1;
            self.assignment = None;
            self.position = None;
            self.stopped = None;
            self.last_record = None;
        }
        self.members.is_empty()
    }

    /// The running reading begins at `position`; false if nobody needs it any more, or it runs already.
    pub(crate) fn begin(&mut self, log_start_offset: i64, position: i64) -> bool {
        let begins = self.position.is_none() && !self.members.is_empty();
        if begins {
            self.position = Some(position);
            self.log_start_offset = log_start_offset;
            self.passed_over.cover(position..position);
        }
        begins
    }

    /// The next round of a catch-up: everybody who waits for one. `None` if nobody does, or the reading does not run;
    /// the caller then ends, unless members are left, for which it has to begin the reading first.
    pub(crate) fn next_round(&mut self) -> Option<CatchUpRound> {
        let end = self.position?;
        let mut users = Vec::new();
        for (_, member) in self.members.iter_mut() {
            if matches!(member.stage, MemberStage::Waiting) {
                member.stage = MemberStage::CatchingUp(Buffer::default());
                users.push(Arc::clone(&member.user));
            }
        }
        let counted = PassedOver { counted: self.passed_over.counted.clone(), ..PassedOver::default() };
        (!users.is_empty()).then_some(CatchUpRound { users, end, counted })
    }

    /// Takes over what a catch-up has read up to `end`, and lets the readers in. Members whose events were too many to be
    /// kept meanwhile stay in the catch-up: for them it has to go on to the offset that is given back.
    pub(crate) fn finish_round(
        &mut self,
        partition: i32,
        catch_up: &mut CatchUp,
        end: i64,
    ) -> (Option<i64>, Vec<Arc<UserPartition>>) {
        let mut deleted = Vec::new();
        self.passed_over.count += std::mem::take(&mut catch_up.passed_over.count);
        if let Some(last) = catch_up.passed_over.last.take()
            && self.passed_over.last.as_ref().is_none_or(|(offset, _)| *offset < last.0)
        {
            self.passed_over.last = Some(last);
        }
        if let Some(read) = catch_up.read.clone() {
            self.passed_over.cover(read);
        }
        self.records_since_snapshot += std::mem::take(&mut catch_up.records);
        if self.last_record.is_none() && self.position == Some(end) {
            self.last_record = catch_up.last_record();
        }
        let mut behind = false;
        let Self { members, passed_over, .. } = self;
        catch_up.members.retain(|id, caught_up| {
            let user = &caught_up.user;
            let member = members.get_mut(id).filter(|member| Arc::ptr_eq(&member.user, user));
            let Some(Member { stage: stage @ MemberStage::CatchingUp(_), .. }) = member else {
                // Given up, or to be read anew by another round.
                return false;
            };
            let MemberStage::CatchingUp(buffer) = std::mem::replace(stage, MemberStage::Live) else {
                unreachable!("it was matched above");
            };
            if buffer.overflowed {
                *stage = MemberStage::CatchingUp(Buffer::default());
                behind = true;
                return true;
            }
            let Some(mut state) = caught_up.state.take() else {
                deleted.push(Arc::clone(user));
                return false;
            };
            state.index.mark_initialised();
            for (offset, value) in buffer.events {
                if let RecordValue::Event(event) = RecordValue::from_value(Some(&value)) {
                    let effect = state.apply(offset, &event);
                    if let Some(error) = effect.refusal() {
                        passed_over.report(partition, offset, error.to_string());
                    }
                    if effect == Effect::PartitionDeleted {
                        deleted.push(Arc::clone(user));
                        return false;
                    }
                }
            }
            user.open(state);
            false
        });
        (behind.then_some(self.position).flatten(), deleted)
    }

    /// Takes the next record of the running reading. The user partition that it ended, if it did.
    pub(crate) fn take(
        &mut self,
        partition: i32,
        record: &OwnedMetadataEventRecord,
    ) -> Option<Arc<UserPartition>> {
        // What lies below was read before this reading began; without a position the record is of an earlier one.
        self.position.filter(|&position| position <= record.offset)?;
        self.progress();
        let mut deleted = None;
        if !record.control {
            let outcome = self.apply(partition, record, &mut deleted);
            if !self.in_flight.is_empty()
                && let Some(value) = &record.value
                && let Some(in_flight) = self.in_flight.get_mut(value)
            {
                if in_flight.seen.len() == SEEN_MAX {
                    in_flight.seen.remove(0);
                }
                in_flight.seen.push((record.offset, outcome));
            }
            if let Some(waiter) = self.waiters.remove(&record.offset) {
                // A writer whose time is up has gone.
                let _gone = waiter.answer.send(outcome.ok_or(NotSeen::ReadAnew));
            }
        }
        self.records_since_snapshot += 1;
        self.last_record = Some(RecordMark::new(record.offset, record.value.as_deref()));
        self.advance(record.offset + 1);
        deleted
    }

    /// The running reading has passed offsets without records.
    pub(crate) fn advance(&mut self, next_offset: i64) {
        let Some(position) = self.position.filter(|&position| position < next_offset) else { return };
        self.progress();
        self.position = Some(next_offset);
        self.passed_over.cover(position..next_offset);
        // Those of whom no record was there: the log is not the one that acknowledged them.
        while let Some(entry) = self.waiters.first_entry()
            && *entry.key() < next_offset
        {
            let _gone = entry.remove().answer.send(Err(NotSeen::ReadAnew));
        }
    }

    fn progress(&mut self) {
        self.stopped = None;
        self.stops_in_a_row = 0;
    }

    fn apply(
        &mut self,
        partition: i32,
        record: &OwnedMetadataEventRecord,
        deleted: &mut Option<Arc<UserPartition>>,
    ) -> Option<WriteOutcome> {
        let (offset, value) = (record.offset, record.value.as_ref());
        let event = match RecordValue::from_value(value.map(|value| &**value)) {
            RecordValue::Event(event) => event,
            other => {
                self.passed_over.report(partition, offset, not_an_event(&other));
                return None;
            }
        };
        let Some(id) = event.topic_id_partition() else {
            self.passed_over.report(partition, offset, SNAPSHOT_IN_TOPIC.to_owned());
            return None;
        };
        let member = self.members.get_mut(id)?;
        match &mut member.stage {
            MemberStage::Waiting => None,
            MemberStage::CatchingUp(buffer) => {
                if let Some(value) = value {
                    buffer.push(offset, value);
                }
                None
            }
            MemberStage::Live => {
                let effect = member.user.write().apply(offset, &event);
                if let Some(error) = effect.refusal() {
                    self.passed_over.report(partition, offset, error.to_string());
                }
                if effect == Effect::PartitionDeleted {
                    *deleted = Some(Arc::clone(&member.user));
                }
                Some(effect.outcome())
            }
        }
    }

    /// Everybody has to be read anew from the start: the log is not what was read of it.
    pub(crate) fn read_anew(&mut self) {
        self.generation += 1;
        self.assignment = None;
        self.position = None;
        self.last_record = None;
        self.stopped = None;
        self.passed_over.counted = None;
        for (_, member) in self.members.iter_mut() {
            member.user.shut();
            member.stage = MemberStage::Waiting;
        }
        self.end_waiters(NotSeen::ReadAnew, |_| true);
    }

    /// The event is on its way: what is read of it is kept until it is claimed.
    pub(crate) fn expect(&mut self, value: &Bytes) {
        self.in_flight.entry(value.clone()).or_default().writers += 1;
    }

    /// The event will not be claimed any more.
    pub(crate) fn expect_no_more(&mut self, value: &Bytes) {
        if let Some(in_flight) = self.in_flight.get_mut(value) {
            in_flight.writers -= 1;
            if in_flight.writers == 0 {
                self.in_flight.remove(value);
            }
        }
    }

    /// The event, which is expected, was acknowledged at `offset`.
    pub(crate) fn claim(&mut self, user: &Arc<UserPartition>, value: &Bytes, offset: i64) -> Claim {
        let seen = self.in_flight.get(value).and_then(|in_flight| {
            in_flight.seen.iter().find_map(|&(seen, outcome)| (seen == offset).then_some(outcome))
        });
        if let Some(Some(outcome)) = seen {
            return Claim::Seen(outcome);
        }
        if !self.members.get(&user.id).is_some_and(|member| Arc::ptr_eq(&member.user, user)) {
            return Claim::NotSeen(NotSeen::Unassigned);
        }
        if self.position.is_none_or(|position| position > offset) {
            return Claim::NotSeen(NotSeen::ReadAnew);
        }
        let (answer, wait) = oneshot::channel();
        let waiter = Waiter { user: Arc::clone(user), answer };
        if let Some(other) = self.waiters.insert(offset, waiter) {
            // Two events cannot have one offset, unless the log was cut between them.
            let _gone = other.answer.send(Err(NotSeen::ReadAnew));
        }
        Claim::Wait(wait)
    }

    /// Forgets the writers that do not wait any more.
    pub(crate) fn forget_waiter(&mut self, offset: i64) {
        if self.waiters.get(&offset).is_some_and(|waiter| waiter.answer.is_closed()) {
            self.waiters.remove(&offset);
        }
    }

    fn end_waiters(&mut self, end: NotSeen, which: impl Fn(&Waiter) -> bool) {
        let offsets: Vec<i64> =
            self.waiters.iter().filter(|(_, waiter)| which(waiter)).map(|(&offset, _)| offset).collect();
        for offset in offsets {
            if let Some(waiter) = self.waiters.remove(&offset) {
                let _gone = waiter.answer.send(Err(end));
            }
        }
    }

    pub(crate) fn waiting_writes(&self) -> usize {
        self.waiters.len()
    }
}

pub(crate) const SNAPSHOT_IN_TOPIC: &str = "a segment metadata snapshot, which has no place in the topic";

/// Why a record is passed over that is no event.
pub(crate) fn not_an_event(value: &RecordValue<'_>) -> String {
    match value {
        RecordValue::Undecodable { error, .. } => error.to_string(),
        _ => "the value is null".to_owned(),
    }
}

//! What a producer does next: a state machine without socket, clock or task.
//!
//! Records come in through [`Core::push`]. [`Core::poll`] says what to do: which requests to send to whom, which topics to
//! look up, whether to ask for a producer id. What came of it goes back in through [`Core::answered`], [`Core::refreshed`]
//! and [`Core::producer_id`]; answers to records come out through [`Core::take_answers`].
//!
//! The rules that keep each record in the log once and in its order:
//! - of a partition at most one batch is under way, and the next one goes out only after it has an answer or is given up;
//! - a batch keeps its sequence through all tries, so that a broker that has it already knows it;
//! - a batch that is given up while nobody knows whether it was appended takes its epoch with it: what follows goes out in
//!   the next epoch from sequence 0, and the broker refuses the old epoch from then on (KIP-360). The epoch is that of the
//!   partition, since a broker keeps it for each partition by itself; others are not disturbed;
//! - what the broker refused for certain has used no sequence numbers.

mod landing;
mod placing;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::{Recovery, SendError, TopicId};
use strandline_protocol::records::{NewRecord, Producer};
use tokio::time::Instant;

use super::batch::Batch;
use super::config::ProducerConfig;
use super::errors::{Outcome, ProduceError, ProduceErrorKind};
use super::partition::{Partition, Status};
use placing::{Departure, Unplaced};
pub(super) use work::{
    Answered, Appended, Outgoing, Part, PartAnswer, PartFailure, PartResult, Place, Refresh, Retry, Work,
};

struct Topic {
    partitions: HashMap<i32, usize>,
    /// The id that it had when this producer first wrote to it.
    id: Option<TopicId>,
    /// What a batch may have, after a broker refused a larger one.
    batch_size: usize,
}

/// The id under which partitions begin that have no sequence yet.
#[derive(Debug, Default)]
struct ProducerId {
    known: Option<(i64, i16)>,
    under_way: bool,
    failures: u32,
    not_before: Option<Instant>,
    last: Option<Arc<SendError>>,
    /// The partitions that wait for it.
    awaited_by: Vec<usize>,
}

pub(super) struct Core<W> {
    config: ProducerConfig,
    topics: HashMap<Arc<str>, Topic>,
    /// One for each partition that was ever written to; never removed.
    partitions: Vec<Partition<W>>,
    /// Those that may have something to send now.
    ready: VecDeque<usize>,
    /// Those that wait until their broker has room for a request.
    blocked: HashMap<i32, Vec<usize>>,
    timers: BTreeSet<(Instant, usize)>,
    /// Broker and partitions of each request under way.
    requests: HashMap<u64, (i32, Vec<usize>)>,
    next_request: u64,
    in_flight: HashMap<i32, usize>,
    producer_id: ProducerId,
    /// Batches of an earlier generation do not linger.
    generation: u64,
    /// Batches without an answer, by generation.
    unanswered: BTreeMap<u64, usize>,
    answers: Vec<Answered<W>>,
    retries: Vec<Retry>,
    jitter: u64,
    closed: bool,
}

impl<W> Core<W> {
    pub(super) fn new(config: ProducerConfig, seed: u64) -> Self {
        Self {
            config,
            topics: HashMap::new(),
            partitions: Vec::new(),
            ready: VecDeque::new(),
            blocked: HashMap::new(),
            timers: BTreeSet::new(),
            requests: HashMap::new(),
            next_request: 0,
            in_flight: HashMap::new(),
            producer_id: ProducerId::default(),
            generation: 0,
            unanswered: BTreeMap::new(),
            answers: Vec::new(),
            retries: Vec::new(),
            jitter: seed,
            closed: false,
        }
    }

    /// Accepts a record, which takes no more than `record_bytes` of a batch. The topic's name as all share it, and true if
    /// there is something new to do, or something sooner than before.
    ///
    /// # Errors
    /// The record was not accepted; `waiter` is dropped.
    pub(super) fn push(
        &mut self,
        now: Instant,
        (topic, partition): (&str, i32),
        record: NewRecord<'_>,
        record_bytes: usize,
        waiter: W,
    ) -> Result<(Arc<str>, bool), ProduceErrorKind> {
        if self.closed {
            return Err(ProduceErrorKind::Closed);
        }
        let at = self.partition(topic, partition);
        let batch_size = self.topics.get(topic).map_or(self.config.batch_size, |topic| topic.batch_size);
        let young = self.config.delivery_timeout / 2;
        let queue = &mut self.partitions[at].queue;
        let joins = |batch: &&mut Batch<W>| {
            !batch.sealed
                && batch.size_bytes() + record_bytes <= batch_size
                && now.saturating_duration_since(batch.accepted_at) < young
        };
        let failed = |error| ProduceErrorKind::Encode { source: Arc::new(error) };
        match queue.back_mut().filter(joins) {
            Some(batch) => batch.push(record, waiter).map_err(failed)?,
            None => {
                let mut batch = Batch::new(self.config.compression, now, self.generation);
                batch.push(record, waiter).map_err(failed)?;
                queue.push_back(batch);
                *self.unanswered.entry(self.generation).or_default() += 1;
            }
        }
        let partition = &self.partitions[at];
        let name = Arc::clone(&partition.topic);
        // Where something else decides when it goes on, or an earlier record has set the clock, nothing is new.
        let waits =
            partition.status != Status::Idle || partition.queue.len() == 1 && !partition.is_full(batch_size);
        if waits && partition.timer.is_some() {
            return Ok((name, false));
        }
        let before = self.next_timer();
        self.settle(now, at);
        Ok((name, !self.ready.is_empty() || self.next_timer() != before))
    }

    /// Lets a topic's records go to the topic of this id alone. Without that it is the one that the first record finds.
    pub(super) fn bind_topic(&mut self, topic: &str, id: TopicId) {
        let batch_size = self.config.batch_size;
        let fresh = || Topic { partitions: HashMap::new(), id: None, batch_size };
        self.topics.entry(topic.into()).or_insert_with(fresh).id = Some(id);
    }

    /// Takes a record back: `NotWritten` if it is in no request and never will be, `Unknown` if it was sent, in which case
    /// nothing has changed.
    pub(super) fn take_back(
        &mut self,
        topic: &str,
        partition: i32,
        is_it: impl Fn(&W) -> bool,
    ) -> (Outcome, Option<Arc<SendError>>) {
        let known = self.topics.get(topic).and_then(|topic| topic.partitions.get(&partition));
        let Some(partition) = known.map(|at| &mut self.partitions[*at]) else {
            return (Outcome::Unknown, None);
        };
        let last = partition.last.clone().or_else(|| self.producer_id.last.clone());
        if let Some(flight) = &mut partition.in_flight
            && flight.batch.waiters.iter().any(&is_it)
            && flight.outcome_if_given_up() == Outcome::NotWritten
        {
            // It waits with the others of its batch, which go out when this request, left without them, has ended.
            let batch = flight.batch.take();
            partition.queue.push_front(batch);
        }
        for batch in &mut partition.queue {
            if let Some(number) = batch.waiters.iter().position(&is_it) {
                if batch.in_doubt {
                    return (Outcome::Unknown, last);
                }
                batch.taken_back.insert(number);
                return (Outcome::NotWritten, last);
            }
        }
        (Outcome::Unknown, last)
    }

    /// Answers the records of a partition's first batch that were taken back, and leaves them out of it. False if nothing is
    /// left of the batch.
    fn leave_out_taken_back(&mut self, at: usize) -> bool {
        let Some(head) = self.partitions[at].queue.front_mut().filter(|head| !head.taken_back.is_empty())
        else {
            return true;
        };
        let taken_back = std::mem::take(&mut head.taken_back);
        let Some(mut batch) = self.partitions[at].queue.pop_front() else { return false };
        let kind = ProduceErrorKind::TakenBack { source: None };
        if taken_back.len() >= batch.waiters.len() {
            self.refuse(at, &mut batch, Outcome::NotWritten, kind);
            return false;
        }
        match batch.divide(|number| !taken_back.contains(&number)) {
            Ok((rest, mut left_out)) => {
                *self.unanswered.entry(rest.generation).or_default() += 1;
                self.partitions[at].queue.push_front(rest);
                self.refuse(at, &mut left_out, Outcome::NotWritten, kind);
                true
            }
            Err(failed) => {
                let (mut batch, error) = *failed;
                self.give_up(at, &mut batch, ProduceErrorKind::Encode { source: Arc::new(error) });
                false
            }
        }
    }

    fn partition(&mut self, topic: &str, partition: i32) -> usize {
        if let Some(at) = self.topics.get(topic).and_then(|topic| topic.partitions.get(&partition)) {
            return *at;
        }
        let at = self.partitions.len();
        let name = match self.topics.get_key_value(topic) {
            Some((name, _)) => Arc::clone(name),
            None => {
                let name: Arc<str> = topic.into();
                let fresh =
                    Topic { partitions: HashMap::new(), id: None, batch_size: self.config.batch_size };
                self.topics.insert(Arc::clone(&name), fresh);
                name
            }
        };
        if let Some(known) = self.topics.get_mut(&name) {
            known.partitions.insert(partition, at);
        }
        self.partitions.push(Partition::new(name, partition));
        at
    }

    /// Ends lingering for all that was accepted so far, and gives the number by which [`flushed`](Self::flushed) knows it.
    pub(super) fn flush(&mut self, now: Instant) -> u64 {
        let flushed = self.generation;
        self.generation += 1;
        for at in 0..self.partitions.len() {
            if self.partitions[at].status == Status::Idle && !self.partitions[at].queue.is_empty() {
                self.settle(now, at);
            }
        }
        flushed
    }

    /// True if everything accepted before that [`flush`](Self::flush) has its answer.
    pub(super) fn flushed(&self, flush: u64) -> bool {
        self.unanswered.first_key_value().is_none_or(|(oldest, _)| *oldest > flush)
    }

    /// Accepts no further record, and lets none linger.
    pub(super) fn close(&mut self, now: Instant) {
        self.closed = true;
        self.flush(now);
    }

    /// True if it was closed, and nothing is left to be answered.
    pub(super) fn is_done(&self) -> bool {
        self.closed && self.unanswered.is_empty()
    }

    /// Gives every record its answer, whatever is under way, and accepts no further one.
    pub(super) fn abandon(&mut self) {
        self.closed = true;
        for at in 0..self.partitions.len() {
            if let Some(mut flight) = self.partitions[at].in_flight.take() {
                let outcome = flight.outcome_if_given_up();
                self.refuse(at, &mut flight.batch, outcome, ProduceErrorKind::Closed);
            }
            self.refuse_queue(at, &ProduceErrorKind::Closed);
        }
        self.requests.clear();
    }

    /// Answers to records, once.
    pub(super) fn take_answers(&mut self) -> Vec<Answered<W>> {
        std::mem::take(&mut self.answers)
    }

    /// When [`poll`](Self::poll) has something to do though nothing happened.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let id = self.producer_id.not_before.filter(|_| !self.producer_id.awaited_by.is_empty());
        let id = id.filter(|_| !self.producer_id.under_way);
        self.timers.first().map(|(at, _)| *at).into_iter().chain(id).min()
    }

    /// What is to be done at `now`. `place` says who leads a partition.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        mut place: impl FnMut(&Arc<str>, i32) -> Result<Place, SendError>,
    ) -> Work {
        while let Some((at, partition)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, partition));
            self.partitions[partition].timer = None;
            self.settle(now, partition);
        }
        let mut work = Work { retries: std::mem::take(&mut self.retries), ..Work::default() };
        let mut departure = Departure::default();
        while let Some(at) = self.ready.pop_front() {
            self.partitions[at].status = Status::Idle;
            if self.partitions[at].queue.is_empty() || !self.leave_out_taken_back(at) {
                self.settle(now, at);
                continue;
            }
            let placed = place(&self.partitions[at].topic, self.partitions[at].index);
            match self.judge_place(now, at, placed, &mut work.refreshes) {
                Ok(place) => self.board(at, place, &mut departure),
                Err(Unplaced::Refresh { repair }) => self.await_refresh(now, at, repair, &mut work.refreshes),
                Err(Unplaced::Final(kind)) => {
                    self.refuse_queue(at, &kind);
                    self.settle(now, at);
                }
            }
        }
        for (number, (node_id, parts, partitions)) in departure.requests {
            self.requests.insert(number, (node_id, partitions));
            work.requests.push(Outgoing { number, node_id, parts });
        }
        let id = &mut self.producer_id;
        let due = id.not_before.is_none_or(|at| at <= now);
        if !id.awaited_by.is_empty() && !id.under_way && due {
            id.under_way = true;
            work.producer_id = true;
        }
        work
    }

    /// A producer id was given, or could not be had.
    pub(super) fn producer_id(&mut self, now: Instant, result: Result<(i64, i16), SendError>) {
        let awaited_by = std::mem::take(&mut self.producer_id.awaited_by);
        self.producer_id.under_way = false;
        // Without an id a batch would not be idempotent.
        let result = match result {
            Ok((id, epoch)) if id < 0 || epoch < 0 => Err(SendError::LeftOut { peer: "a broker".to_owned() }),
            result => result,
        };
        let fatal = match result {
            Ok(known) => {
                self.producer_id = ProducerId { known: Some(known), ..ProducerId::default() };
                None
            }
            Err(error) => {
                let error = Arc::new(error);
                self.producer_id.failures += 1;
                self.producer_id.not_before = Some(now + self.wait(self.producer_id.failures));
                self.producer_id.last = Some(Arc::clone(&error));
                // An unknown outcome costs an id, of which there are plenty.
                let passes = error.may_have_been_sent() || !is_final(error.recovery());
                if passes { None } else { Some(error) }
            }
        };
        for at in awaited_by {
            self.partitions[at].status = Status::Idle;
            if let Some(source) = &fatal {
                self.refuse_queue(at, &ProduceErrorKind::NoProducerId { source: Arc::clone(source) });
            }
            self.settle(now, at);
        }
    }

    /// Answers a batch that is not sent again.
    fn give_up(&mut self, at: usize, batch: &mut Batch<W>, kind: ProduceErrorKind) {
        let outcome = if batch.in_doubt { Outcome::Unknown } else { Outcome::NotWritten };
        self.refuse(at, batch, outcome, kind);
        self.let_go(at, batch);
    }

    /// Sees to it that what follows a batch that is not sent again has a sequence that the broker takes.
    fn let_go(&mut self, at: usize, batch: &mut Batch<W>) {
        if batch.in_doubt {
            self.begin_next_epoch(at, batch.producer);
        }
    }

    fn begin_next_epoch(&mut self, at: usize, producer: Option<Producer>) {
        let Some(producer) = producer else { return };
        match producer.epoch.checked_add(1) {
            Some(epoch) => {
                self.partitions[at].sequence = Some(Producer { epoch, base_sequence: 0, ..producer })
            }
            // Source: `TransactionManager#bumpIdempotentProducerEpoch`.
            None => self.leave_producer_id(at, producer.id),
        }
    }

    /// Lets a partition begin under another producer id.
    fn leave_producer_id(&mut self, at: usize, id: i64) {
        self.partitions[at].sequence = None;
        if self.producer_id.known.is_some_and(|(known, _)| known == id) {
            self.producer_id.known = None;
        }
    }

    /// Answers all that waits in a partition's queue.
    fn refuse_queue(&mut self, at: usize, kind: &ProduceErrorKind) {
        for mut batch in std::mem::take(&mut self.partitions[at].queue) {
            self.give_up(at, &mut batch, kind.clone());
        }
    }

    fn refuse(&mut self, at: usize, batch: &mut Batch<W>, outcome: Outcome, kind: ProduceErrorKind) {
        let waiters = std::mem::take(&mut batch.waiters);
        if !waiters.is_empty() {
            let error = self.error(at, outcome, kind);
            self.answer(batch.generation, waiters, Err(error));
        }
    }

    fn error(&self, at: usize, outcome: Outcome, kind: ProduceErrorKind) -> ProduceError {
        let partition = &self.partitions[at];
        ProduceError { topic: Arc::clone(&partition.topic), partition: partition.index, outcome, kind }
    }

    fn answer(&mut self, generation: u64, waiters: Vec<W>, result: Result<Appended, ProduceError>) {
        self.answers.push(Answered { waiters, result });
        if let Some(batches) = self.unanswered.get_mut(&generation) {
            *batches -= 1;
            if *batches == 0 {
                self.unanswered.remove(&generation);
            }
        }
    }

    /// Answers what is overdue, and says when this partition goes on.
    fn settle(&mut self, now: Instant, at: usize) {
        self.expire(now, at);
        let batch_size = self.topics.get(&self.partitions[at].topic).map_or(0, |topic| topic.batch_size);
        let hurried = self.closed;
        let (linger, generation) = (self.config.linger, self.generation);
        let partition = &mut self.partitions[at];
        let mut wake = None;
        if partition.status == Status::Idle {
            match partition.sendable_at(linger, generation, batch_size, hurried) {
                Some(due) if due <= now => {
                    partition.status = Status::Ready;
                    self.ready.push_back(at);
                }
                due => wake = due,
            }
        }
        let deadline =
            partition.oldest_unanswered().map(|accepted_at| accepted_at + self.config.delivery_timeout);
        let wake = wake.into_iter().chain(deadline).min();
        if partition.timer != wake {
            if let Some(timer) = partition.timer {
                self.timers.remove(&(timer, at));
            }
            partition.timer = wake;
            self.timers.extend(wake.map(|wake| (wake, at)));
        }
    }

    fn expire(&mut self, now: Instant, at: usize) {
        let waited = self.config.delivery_timeout;
        let source = self.partitions[at].last.clone().or_else(|| self.producer_id.last.clone());
        let late = || ProduceErrorKind::Deadline { waited, source: source.clone() };
        let is_late = |batch: &Batch<W>| batch.accepted_at + waited <= now;
        if let Some(mut flight) = self.partitions[at].in_flight.take() {
            if !flight.batch.waiters.is_empty() && is_late(&flight.batch) {
                let outcome = flight.outcome_if_given_up();
                self.refuse(at, &mut flight.batch, outcome, late());
            }
            // It stays until the request has ended: until then nothing of this partition is sent.
            self.partitions[at].in_flight = Some(flight);
        }
        while self.partitions[at].queue.front().is_some_and(is_late) {
            if let Some(mut batch) = self.partitions[at].queue.pop_front() {
                self.give_up(at, &mut batch, late());
            }
        }
    }

    fn back_off(&mut self, now: Instant, at: usize) {
        self.partitions[at].failures += 1;
        let failures = self.partitions[at].failures;
        self.partitions[at].not_before = Some(now + self.wait(failures));
    }

    /// The wait after so many failures in a row: doubled each time up to the longest, then 80 % to 120 % of it.
    fn wait(&mut self, failures: u32) -> Duration {
        let doubled = self.config.retry_backoff.saturating_mul(1 << failures.saturating_sub(1).min(16));
        // A linear congruential generator: nobody has to be surprised by it, only spread.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.jitter >> 11) as f64 / (1_u64 << 53) as f64;
        doubled.min(self.config.retry_backoff_max).mul_f64(0.8 + 0.4 * unit)
    }
}

fn is_final(recovery: Recovery) -> bool {
    matches!(recovery, Recovery::Authenticate | Recovery::Forbidden | Recovery::Fail)
}

#[cfg(test)]
mod tests;

//! What the end of a request comes to, batch by batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use strandline_conn::RetryDecision;
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::records::Producer;
use tokio::time::Instant;

use super::{Appended, Core, PartAnswer, PartFailure, PartResult, Retry, is_final};
use crate::producer::batch::Batch;
use crate::producer::errors::{Outcome, ProduceError, ProduceErrorKind};
use crate::producer::partition::Status;
use crate::producer::verdict::{Next, Verdict};

impl<W> Core<W> {
    /// A request has ended: what became of each of its parts, in their order.
    pub(in crate::producer) fn answered(&mut self, now: Instant, number: u64, results: Vec<PartResult>) {
        let Some((node_id, partitions)) = self.requests.remove(&number) else { return };
        if let Some(in_flight) = self.in_flight.get_mut(&node_id) {
            *in_flight = in_flight.saturating_sub(1);
        }
        let results = results.into_iter().chain(std::iter::repeat_with(|| Err(PartFailure::LeftOut)));
        let (mut again, mut given_up) = (None, None);
        for (at, result) in partitions.into_iter().zip(results) {
            self.partitions[at].status = Status::Idle;
            if let Some(flight) = self.partitions[at].in_flight.take().filter(|flight| !flight.withdrawn)
                && let Some(error) = self.landed(now, at, node_id, flight.batch, result)
            {
                let partition = &self.partitions[at];
                let attempt = partition.failures.max(1);
                let after =
                    partition.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
                // What was sent before, or a part of it, waits again.
                let waits = partition.queue.front().is_some_and(|batch| batch.sealed);
                let (first, decision) = match waits {
                    true => (&mut again, RetryDecision::Again { after }),
                    false => (&mut given_up, RetryDecision::GiveUp),
                };
                first.get_or_insert(Retry { attempt, error, decision });
            }
            self.settle(now, at);
        }
        self.retries.extend(again.into_iter().chain(given_up));
        // One request of theirs may take them all.
        for at in self.blocked.remove(&node_id).unwrap_or_default() {
            self.partitions[at].status = Status::Idle;
            self.settle(now, at);
        }
    }

    /// What a try comes to; its failure, if it failed.
    fn landed(
        &mut self,
        now: Instant,
        at: usize,
        node_id: i32,
        mut batch: Batch<W>,
        result: PartResult,
    ) -> Option<Arc<SendError>> {
        let peer = || format!("broker {node_id}");
        let (verdict, answer, error) = match result {
            Ok(answer) => {
                let verdict = Verdict::of(answer.code);
                if verdict.next == Next::Done {
                    self.appended(at, batch, &answer);
                    return None;
                }
                let message = answer.message.as_ref().map(ToString::to_string);
                let error = SendError::Code { peer: peer(), code: answer.code, message };
                (verdict, Some(answer), Arc::new(error))
            }
            Err(PartFailure::LeftOut) => {
                let error = SendError::LeftOut { peer: peer() };
                (Verdict { next: Next::Follow, in_doubt: true }, None, Arc::new(error))
            }
            Err(PartFailure::Encode(source)) => {
                self.give_up(at, &mut batch, ProduceErrorKind::Encode { source });
                return None;
            }
            Err(PartFailure::Send(error)) => {
                let in_doubt = error.may_have_been_sent();
                // A wrong answer is one more unknown outcome: the next connection may do better.
                let gone = matches!(*error, SendError::NoSuchBroker { .. });
                let passes = in_doubt || gone || !is_final(error.recovery());
                let next = if passes { Next::Follow } else { Next::Fail };
                (Verdict { next, in_doubt }, None, error)
            }
        };
        batch.in_doubt |= verdict.in_doubt;
        let refused = |answer: Option<PartAnswer>| match answer {
            Some(PartAnswer { code, message, .. }) => ProduceErrorKind::Refused { code, message },
            None => ProduceErrorKind::Cluster { source: Arc::clone(&error) },
        };
        let producer = batch.producer.unwrap_or(Producer { id: -1, epoch: -1, base_sequence: -1 });
        match (verdict.next, answer) {
            (Next::Done | Next::Retry | Next::Follow, _) if batch.waiters.is_empty() => {
                self.let_go(at, &mut batch);
            }
            (Next::Retry, _) => {
                self.partitions[at].last = Some(Arc::clone(&error));
                self.back_off(now, at);
                self.partitions[at].queue.push_front(batch);
            }
            (Next::Done | Next::Follow, _) => {
                let partition = &mut self.partitions[at];
                partition.last = Some(Arc::clone(&error));
                partition.failures += 1;
                partition.refused_by = Some(node_id);
                partition.queue.push_front(batch);
            }
            (Next::BumpEpoch, _) => self.again_in_next_epoch(now, at, batch, &error),
            (Next::StateLost, _) if !batch.in_doubt => self.again_in_next_epoch(now, at, batch, &error),
            (Next::StateLost, _) => {
                let kind = ProduceErrorKind::StateLost { producer_id: producer.id };
                self.give_up(at, &mut batch, kind);
            }
            (Next::Fenced, answer) => {
                let code = answer.map_or(ErrorCode::ProducerFenced, |answer| answer.code);
                let (producer_id, producer_epoch) = (producer.id, producer.epoch);
                tracing::warn!(topic = %self.partitions[at].topic, partition = self.partitions[at].index, producer_id, producer_epoch, %code, "fenced; another producer id is taken");
                self.give_up(at, &mut batch, ProduceErrorKind::Fenced { producer_id, producer_epoch, code });
                self.leave_producer_id(at, producer_id);
            }
            (Next::Split, Some(answer)) if !batch.in_doubt => self.split(at, batch, answer.code),
            (Next::Fail, Some(answer)) if !batch.in_doubt && !answer.refused_records.is_empty() => {
                self.drop_refused_records(at, batch, answer);
            }
            (Next::Split | Next::Fail, answer) => {
                let kind = refused(answer);
                self.give_up(at, &mut batch, kind);
            }
        }
        Some(error)
    }

    fn appended(&mut self, at: usize, mut batch: Batch<W>, answer: &PartAnswer) {
        let count = batch.record_count();
        let waiters = std::mem::take(&mut batch.waiters);
        let partition = &mut self.partitions[at];
        partition.appended(batch.producer, count);
        if waiters.is_empty() {
            return;
        }
        let (topic, partition) = (Arc::clone(&partition.topic), partition.index);
        // No log has offsets beyond the largest number: what says so says nothing.
        let last = i64::try_from(count).ok().and_then(|count| answer.base_offset.checked_add(count));
        let result = if answer.base_offset >= 0 && last.is_some() {
            let base_offset = answer.base_offset;
            let log_append_time_ms = Some(answer.log_append_time_ms).filter(|time| *time >= 0);
            Ok(Appended { topic, partition, base_offset, log_append_time_ms })
        } else {
            let kind = ProduceErrorKind::NoOffset { code: answer.code };
            Err(ProduceError { topic, partition, outcome: Outcome::Written, kind })
        };
        self.answer(batch.generation, waiters, result);
    }

    /// Sends a batch again that is not in the log for certain, though its sequence was refused.
    fn again_in_next_epoch(&mut self, now: Instant, at: usize, mut batch: Batch<W>, error: &Arc<SendError>) {
        let partition = &self.partitions[at];
        tracing::warn!(topic = %partition.topic, partition = partition.index, %error, "the log does not hold what was acknowledged before; the next epoch begins");
        self.begin_next_epoch(at, batch.producer);
        if batch.waiters.is_empty() {
            return;
        }
        (batch.producer, batch.in_doubt) = (None, false);
        self.partitions[at].last = Some(Arc::clone(error));
        self.partitions[at].queue.push_front(batch);
        match self.partitions[at].failures {
            0 => self.partitions[at].failures = 1,
            _ => self.back_off(now, at),
        }
    }

    fn split(&mut self, at: usize, batch: Batch<W>, code: ErrorCode) {
        let (bytes, count) = (batch.size_bytes(), batch.record_count());
        if count < 2 || batch.waiters.is_empty() {
            let mut batch = batch;
            return self.give_up(at, &mut batch, ProduceErrorKind::TooLarge { bytes, code });
        }
        if let Some(topic) = self.topics.get_mut(&self.partitions[at].topic) {
            topic.batch_size = topic.batch_size.min(bytes / 2);
        }
        match batch.divide(|number| number < count / 2) {
            Ok((first, second)) => {
                *self.unanswered.entry(first.generation).or_default() += 1;
                let queue = &mut self.partitions[at].queue;
                queue.push_front(second);
                queue.push_front(first);
            }
            Err(failed) => {
                let (mut batch, error) = *failed;
                self.give_up(at, &mut batch, ProduceErrorKind::Encode { source: Arc::new(error) });
            }
        }
    }

    /// Answers the records that the broker names as bad, and sends the others without them.
    fn drop_refused_records(&mut self, at: usize, batch: Batch<W>, answer: PartAnswer) {
        let PartAnswer { code, message, refused_records, .. } = answer;
        let bad: BTreeMap<usize, Option<Arc<str>>> = refused_records.into_iter().collect();
        let count = batch.waiters.len();
        let named = bad.keys().filter(|number| **number < count).count();
        if named == 0 || named == count {
            let mut batch = batch;
            let first = bad.into_values().flatten().next();
            let message = first.or(message);
            return self.give_up(at, &mut batch, ProduceErrorKind::Refused { code, message });
        }
        match batch.divide(|number| !bad.contains_key(&number)) {
            Ok((good, bad_ones)) => {
                *self.unanswered.entry(good.generation).or_default() += named;
                let mut messages = bad.into_values();
                for waiter in bad_ones.waiters {
                    let message = messages.next().flatten().or_else(|| message.clone());
                    let kind = ProduceErrorKind::Refused { code, message };
                    let error = self.error(at, Outcome::NotWritten, kind);
                    self.answer(bad_ones.generation, vec![waiter], Err(error));
                }
                self.partitions[at].queue.push_front(good);
            }
            Err(failed) => {
                let (mut batch, error) = *failed;
                self.give_up(at, &mut batch, ProduceErrorKind::Encode { source: Arc::new(error) });
            }
        }
    }
}

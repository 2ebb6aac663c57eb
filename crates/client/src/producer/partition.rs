//! One partition as a producer sees it: what waits, what is under way, and which sequence comes next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::{SendError, TopicId};
use strandline_protocol::records::Producer;
use tokio::time::Instant;

use super::batch::{Batch, Handover};
use super::core::Part;
use super::errors::Outcome;

/// Who says when a partition goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Its timer, or the next record.
    Idle,
    /// The next poll.
    Ready,
    /// The end of some request to its broker.
    Blocked,
    /// The end of its own request.
    InFlight,
    /// The end of a refresh of the view.
    Refreshing,
    /// The producer id that was asked for.
    AwaitingId,
}

#[derive(Debug)]
pub(super) struct Partition<W> {
    pub(super) topic: Arc<str>,
    pub(super) index: i32,
    pub(super) status: Status,
    /// The oldest first. Only the first can have been sent before.
    pub(super) queue: VecDeque<Batch<W>>,
    pub(super) in_flight: Option<Flight<W>>,
    /// Id, epoch and next sequence; `None` until the first batch, and after the id was left.
    pub(super) sequence: Option<Producer>,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) not_before: Option<Instant>,
    /// The last failure.
    pub(super) last: Option<Arc<SendError>>,
    /// The broker that sent the last batch away: the view is old unless it names another one by now.
    pub(super) refused_by: Option<i32>,
    /// The view was refreshed since the last look at it.
    pub(super) looked_up: bool,
    /// Refreshed views in a row that do not have it.
    pub(super) absent: u32,
    /// Its entry among the timers.
    pub(super) timer: Option<Instant>,
}

/// A batch in a request.
#[derive(Debug)]
pub(super) struct Flight<W> {
    pub(super) batch: Batch<W>,
    pub(super) handover: Arc<Handover>,
    /// It was taken back before it was in a request.
    pub(super) withdrawn: bool,
}

impl<W> Flight<W> {
    /// What can be said of the batch if its answer is not waited for any longer.
    pub(super) fn outcome_if_given_up(&mut self) -> Outcome {
        // A batch that was sent before may lie in the log from then, also if this try is taken back.
        match self.batch.in_doubt {
            true => Outcome::Unknown,
            false if self.handover.withdraw() => {
                self.withdrawn = true;
                Outcome::NotWritten
            }
            false => Outcome::Unknown,
        }
    }
}

impl<W> Partition<W> {
    pub(super) fn new(topic: Arc<str>, index: i32) -> Self {
        Self {
            topic,
            index,
            status: Status::Idle,
            queue: VecDeque::new(),
            in_flight: None,
            sequence: None,
            failures: 0,
            not_before: None,
            last: None,
            refused_by: None,
            looked_up: false,
            absent: 0,
            timer: None,
        }
    }

    /// True if the first batch that waits has no room for more.
    pub(super) fn is_full(&self, batch_size: usize) -> bool {
        self.queue.front().is_some_and(|batch| batch.size_bytes() >= batch_size)
    }

    /// From when on the first batch may be sent; `None` if there is none.
    pub(super) fn sendable_at(
        &self,
        linger: Duration,
        generation: u64,
        batch_size: usize,
        hurried: bool,
    ) -> Option<Instant> {
        let head = self.queue.front()?;
        let waits_no_longer = hurried
            || head.sealed
            || head.generation < generation
            || self.queue.len() > 1
            || head.size_bytes() >= batch_size;
        let due = if waits_no_longer { head.accepted_at } else { head.accepted_at + linger };
        Some(self.not_before.map_or(due, |not_before| due.max(not_before)))
    }

    /// When the oldest record that waits for its answer was accepted.
    pub(super) fn oldest_unanswered(&self) -> Option<Instant> {
        let in_flight = self.in_flight.as_ref().map(|flight| &flight.batch);
        let oldest = in_flight.filter(|batch| !batch.waiters.is_empty()).or_else(|| self.queue.front())?;
        Some(oldest.accepted_at)
    }

    /// Gives the first batch out, under its sequence.
    pub(super) fn take_off(&mut self, producer: Producer, topic_id: Option<TopicId>) -> Option<Part> {
        let mut batch = self.queue.pop_front()?;
        batch.producer = Some(producer);
        batch.sealed = true;
        let part = Part {
            topic: Arc::clone(&self.topic),
            topic_id,
            partition: self.index,
            producer,
            records: Arc::clone(&batch.records),
            handover: Arc::default(),
        };
        let handover = Arc::clone(&part.handover);
        self.in_flight = Some(Flight { batch, handover, withdrawn: false });
        self.status = Status::InFlight;
        Some(part)
    }

    /// A batch of `count` records is in the log.
    pub(super) fn appended(&mut self, producer: Option<Producer>, count: usize) {
        self.sequence = producer.map(|producer| {
            let base_sequence = sequence_after(producer.base_sequence, count);
            Producer { base_sequence, ..producer }
        });
        (self.failures, self.not_before, self.last) = (0, None, None);
    }
}

/// The sequence number `count` records behind `sequence`: after the largest 32-bit number comes 0.
///
/// Source: `DefaultRecordBatch#incrementSequence`.
fn sequence_after(sequence: i32, count: usize) -> i32 {
    let after = (i64::from(sequence) + count as i64) % (i64::from(i32::MAX) + 1);
    i32::try_from(after).expect("a remainder below 2^31")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_begin_anew_after_the_largest_number() {
        assert_eq!(sequence_after(0, 5), 5);
        assert_eq!(sequence_after(i32::MAX - 1, 1), i32::MAX);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 4), 2);
    }
}

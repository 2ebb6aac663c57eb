//! What is open on one connection: a state machine without socket, clock or task.
//!
//! Requests come in through [`Pipeline::submit`], their bytes go out through [`Pipeline::output`], frames
//! come in through [`Pipeline::take_answers`]. A broker answers in the order of the requests, so each answer
//! belongs to the oldest open one; anything else ends the connection.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use strandline_protocol::ApiKey;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::frame::FrameReader;
use crate::lane::Patience;
use crate::{CloseReason, RequestError};

/// Offset of the correlation id in a request frame: behind length, API key and version.
const CORRELATION_ID_AT: usize = 8;

/// A request on its way to the socket.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    /// Length, header and body. The correlation id is filled in by the pipeline.
    pub(crate) frame: BytesMut,
    /// When its clock started.
    pub(crate) since: Instant,
    /// When its clock ends.
    pub(crate) deadline: Instant,
    /// From what the deadline was made.
    pub(crate) patience: Patience,
    /// Reads an answer for what it says about throttling, if its caller has given up.
    pub(crate) throttle_of_orphan: fn(Bytes, i16) -> i32,
    /// Gets the answer from its correlation id on. A closed one was given up by its caller.
    pub(crate) waiter: oneshot::Sender<Result<Bytes, RequestError>>,
    /// Held until the answer, or the end of the connection: also when the caller has given up.
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Submission {
    /// Tells the caller that nothing was sent.
    pub(crate) fn refuse(self, reason: &Arc<CloseReason>) {
        let error = RequestError::NotSent { api: self.api, source: Arc::clone(reason) };
        // The caller may have given up; then nobody is left to tell.
        let _ = self.waiter.send(Err(error));
    }

    /// Tells the caller that its time has passed and nothing was sent.
    pub(crate) fn expire(self) {
        let error = RequestError::NotSentInTime { api: self.api, waited: self.deadline - self.since };
        let _ = self.waiter.send(Err(error));
    }
}

#[derive(Debug)]
struct Open {
    correlation_id: i32,
    api: ApiKey,
    version: i16,
    /// Position of the first byte in all bytes ever put into the output.
    starts_at: u64,
    since: Instant,
    deadline: Instant,
    patience: Patience,
    throttle_of_orphan: fn(Bytes, i16) -> i32,
    waiter: oneshot::Sender<Result<Bytes, RequestError>>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    open: VecDeque<Open>,
    next_correlation_id: i32,
    output: BytesMut,
    /// All bytes ever put into the output, and those of them that the socket took.
    put: u64,
    written: u64,
    /// True while a hang-up would be how a SASL listener answers a client without SASL.
    on_probation: bool,
}

impl Pipeline {
    /// The connection is ready for its caller's requests, and was not authenticated: until the next answer a
    /// hang-up means that the broker wanted it to be.
    pub(crate) fn begin_probation(&mut self) {
        self.on_probation = true;
    }

    /// Takes a request, unless its caller has given up already.
    pub(crate) fn submit(&mut self, mut request: Submission) {
        if request.waiter.is_closed() {
            return;
        }
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.checked_add(1).unwrap_or(0);
        request.frame[CORRELATION_ID_AT..][..4].copy_from_slice(&correlation_id.to_be_bytes());
        self.open.push_back(Open {
            correlation_id,
            api: request.api,
            version: request.version,
            starts_at: self.put,
            since: request.since,
            deadline: request.deadline,
            patience: request.patience,
            throttle_of_orphan: request.throttle_of_orphan,
            waiter: request.waiter,
            _permit: request.permit,
        });
        self.put += request.frame.len() as u64;
        if self.output.is_empty() {
            self.output = request.frame;
        } else {
            self.output.extend_from_slice(&request.frame);
        }
    }

    /// Bytes that the socket has not taken yet. Whoever takes bytes from the front says so with
    /// [`Pipeline::wrote`].
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// The socket took `count` bytes.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.written += count as u64;
    }

    /// Gives every whole answer in `input` to its caller. Where the caller has given up, `orphan_throttled` hears for how
    /// many milliseconds the broker throttles us.
    ///
    /// # Errors
    /// The bytes are no answer to the oldest open request: the connection must end.
    pub(crate) fn take_answers(
        &mut self,
        input: &mut FrameReader,
        mut orphan_throttled: impl FnMut(ApiKey, i32),
    ) -> Result<(), CloseReason> {
        while let Some(frame) = input.next_frame()? {
            let received = (&frame[..]).get_i32();
            let sent = self.open.front().filter(|open| open.starts_at < self.written);
            let expected = sent.map(|open| open.correlation_id);
            if expected != Some(received) {
                return Err(CloseReason::CorrelationId { expected, received });
            }
            if let Some(open) = self.open.pop_front()
                && let Err(Ok(orphan)) = open.waiter.send(Ok(frame))
            {
                orphan_throttled(open.api, (open.throttle_of_orphan)(orphan, open.version));
            }
            self.on_probation = false;
        }
        Ok(())
    }

    /// Why the connection ends when the peer sends no more.
    pub(crate) fn end_of_input(&self, input: &FrameReader) -> CloseReason {
        match input.pending_bytes() {
            0 if self.on_probation && self.has_sent() => CloseReason::ClosedUnauthenticated,
            0 => CloseReason::ClosedByBroker,
            received => CloseReason::CutAnswer { received },
        }
    }

    /// True if the broker may have seen a byte of an open request.
    fn has_sent(&self) -> bool {
        self.open.front().is_some_and(|open| open.starts_at < self.written)
    }

    /// True if no request waits for an answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// The earliest deadline of all open requests, given up or not.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.deadline).min()
    }

    /// The reason to end the connection if a deadline has passed. `muted_until` is the end of the last time for which the
    /// broker muted us: it reads nothing before, so the clock of a request that was on its way starts then.
    pub(crate) fn expired(&mut self, now: Instant, muted_until: Option<Instant>) -> Option<CloseReason> {
        for late in self.open.iter_mut().filter(|open| open.deadline <= now) {
            let restarted = muted_until.filter(|end| *end > late.since).map(|end| late.patience.end(end));
            late.deadline = late.deadline.max(restarted.unwrap_or(late.deadline));
        }
        let late = self.open.iter().find(|open| open.deadline <= now)?;
        Some(CloseReason::TimedOut { api: late.api, waited: late.deadline - late.since })
    }

    /// The connection is over: tells every caller, and each whether its request was sent.
    pub(crate) fn fail(&mut self, reason: &Arc<CloseReason>) {
        for open in self.open.drain(..) {
            let source = Arc::clone(reason);
            let error = if open.starts_at < self.written {
                RequestError::NoAnswer { api: open.api, source }
            } else {
                RequestError::NotSent { api: open.api, source }
            };
            let _ = open.waiter.send(Err(error));
        }
    }
}

//! The way of a request into a connection's task, and of its answer out of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use strandline_protocol::messages::{RequestHeader, ResponseHeader};
use strandline_protocol::{
    ApiKey, DecodeError, EncodeError, EncodeErrorKind, Message as _, Request, Response as _,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::pipeline::Submission;
use crate::{BrokerAddress, CloseReason, ConnectionConfig, Mute, RequestError, ThrottleEvent};

/// One end of a queue of requests. A connection has two: one for its callers, and one for the handshake, whose requests
/// pass while those of the callers are held back.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) shared: Arc<Shared>,
    submissions: mpsc::Sender<Submission>,
    permits: Arc<Semaphore>,
    close: mpsc::Sender<CloseReason>,
    closed: watch::Receiver<Option<Arc<CloseReason>>>,
}

/// What everything that belongs to one connection knows.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: BrokerAddress,
    pub(crate) config: Arc<ConnectionConfig>,
    pub(crate) mute: Mute,
}

impl Shared {
    /// Hears what an answer says about throttling.
    pub(crate) fn throttled(&self, api: ApiKey, throttle_time_ms: i32) {
        let Some(millis) = u64::try_from(throttle_time_ms).ok().filter(|millis| *millis > 0) else { return };
        let wait = Duration::from_millis(millis);
        self.mute.extend(wait);
        self.config.observer.on_throttle(&ThrottleEvent { address: &self.address, api, wait });
    }
}

/// What one request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The caller's: covers everything.
    pub(crate) deadline: Instant,
    /// From the moment that the broker may be asked; [`Duration::MAX`] for no other bound than the deadline.
    pub(crate) request_timeout: Duration,
}

impl Patience {
    /// When to give up a request whose clock started at `start`.
    pub(crate) fn end(self, start: Instant) -> Instant {
        start.checked_add(self.request_timeout).map_or(self.deadline, |end| end.min(self.deadline))
    }
}

impl From<Instant> for Patience {
    fn from(deadline: Instant) -> Self {
        Self { deadline, request_timeout: Duration::MAX }
    }
}

/// The far ends of a lane and what its task shares with it.
pub(crate) struct LaneEnds {
    pub(crate) submissions: mpsc::Receiver<Submission>,
    pub(crate) permits: Arc<Semaphore>,
}

impl Lane {
    /// A lane for at most `max` open requests.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        max: usize,
        close: &mpsc::Sender<CloseReason>,
        closed: &watch::Receiver<Option<Arc<CloseReason>>>,
    ) -> (Self, LaneEnds) {
        // Each request in the queue holds a permit, so the queue has room for whoever got one.
        let max = max.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(max));
        let (sender, submissions) = mpsc::channel(max);
        let lane = Self {
            shared: Arc::clone(shared),
            submissions: sender,
            permits: Arc::clone(&permits),
            close: close.clone(),
            closed: closed.clone(),
        };
        (lane, LaneEnds { submissions, permits })
    }

    /// Sends a request in a given version, and waits for its answer.
    pub(crate) async fn exchange<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: impl Into<Patience>,
    ) -> Result<R::Response, RequestError> {
        let mut started = None;
        let body = self.exchange_bytes(request, version, patience.into(), &mut started).await?;
        self.decode::<R>(body, version)
    }

    /// As [`exchange`](Self::exchange), with the answer's body still encoded; says in `started` when the request's clock
    /// started.
    pub(crate) async fn exchange_bytes<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: Patience,
        started: &mut Option<Instant>,
    ) -> Result<Bytes, RequestError> {
        let api = R::API_KEY;
        let since = Instant::now();
        let frame = encode(request, version, &self.shared.config.client_id)?;
        let permit = loop {
            self.wait_for_mute(api, since, patience.deadline).await?;
            let end = patience.end(Instant::now());
            match timeout_at(end, Arc::clone(&self.permits).acquire_owned()).await {
                // The broker may have muted us while we waited.
                Ok(Ok(_)) if self.shared.mute.until().is_some() => {}
                Ok(Ok(permit)) => break permit,
                Ok(Err(_closed)) => return Err(RequestError::NotSent { api, source: self.reason() }),
                Err(_) => return Err(RequestError::NotSentInTime { api, waited: end - since }),
            }
        };
        let start = Instant::now();
        *started = Some(start);
        let (waiter, answer) = oneshot::channel();
        let deadline = patience.end(start);
        let submission = Submission {
            api,
            version,
            frame,
            since: start,
            deadline,
            patience,
            throttle_of_orphan: throttle_of::<R>,
            waiter,
            permit,
        };
        // Never full: whoever holds a permit has a place.
        if self.submissions.try_send(submission).is_err() {
            return Err(RequestError::NotSent { api, source: self.reason() });
        }
        // The task keeps the deadline, and tells whether the request was sent.
        match answer.await {
            Ok(Ok(frame)) => self.strip_header::<R>(frame, version),
            Ok(Err(error)) => Err(error),
            Err(_task_ended) => Err(RequestError::NoAnswer { api, source: self.reason() }),
        }
    }

    /// Waits until the broker wants to hear from this client, or the connection has ended.
    async fn wait_for_mute(
        &self,
        api: ApiKey,
        since: Instant,
        deadline: Instant,
    ) -> Result<(), RequestError> {
        if self.shared.mute.until().is_none() {
            return Ok(());
        }
        let waited = async {
            tokio::select! {
                () = self.shared.mute.passed() => {}
                _ = self.ended() => {}
            }
        };
        let waited = timeout_at(deadline, waited).await;
        waited.map_err(|_| RequestError::Throttled { api, waited: deadline - since })
    }

    fn strip_header<R: Request>(&self, mut frame: Bytes, version: i16) -> Result<Bytes, RequestError> {
        match ResponseHeader::decode_prefix(&mut frame, R::API_KEY.response_header_version(version)) {
            Ok(_) => Ok(frame),
            Err(source) => Err(self.malformed(R::API_KEY, version, source)),
        }
    }

    /// Decodes the body of an answer, and hears what it says about throttling; a malformed one closes the connection.
    pub(crate) fn decode<R: Request>(&self, body: Bytes, version: i16) -> Result<R::Response, RequestError> {
        match R::Response::decode(body, version) {
            Ok(answer) => {
                self.shared.throttled(R::API_KEY, answer.throttle_time_ms());
                Ok(answer)
            }
            Err(source) => Err(self.malformed(R::API_KEY, version, source)),
        }
    }

    fn malformed(&self, api: ApiKey, version: i16, source: DecodeError) -> RequestError {
        self.close_with(CloseReason::Malformed { api, version });
        RequestError::Malformed { api, version, source }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some() || self.closed.has_changed().is_err()
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) -> Arc<CloseReason> {
        // Fails if the task ended without a word; `reason` knows that case.
        let _ = self.closed.clone().wait_for(Option::is_some).await;
        self.reason()
    }

    pub(crate) fn close_with(&self, reason: CloseReason) {
        // Full: another reason came first. Closed: the task has ended already.
        let _ = self.close.try_send(reason);
    }

    pub(crate) fn reason(&self) -> Arc<CloseReason> {
        self.closed.borrow().clone().unwrap_or_else(|| Arc::new(CloseReason::RuntimeGone))
    }
}

/// What an answer says about throttling whose caller has given up: the broker mutes the client all the same.
fn throttle_of<R: Request>(mut frame: Bytes, version: i16) -> i32 {
    let header = ResponseHeader::decode_prefix(&mut frame, R::API_KEY.response_header_version(version));
    // A malformed answer is nobody's any more; the frame around it was whole, so the next one can be read.
    header.and_then(|_| R::Response::decode(frame, version)).map_or(0, |answer| answer.throttle_time_ms())
}

/// Bytes of the length in front of a frame.
const LENGTH_BYTES: usize = 4;

/// Length, header and body; the correlation id is a placeholder.
fn encode<R: Request>(request: &R, version: i16, client_id: &str) -> Result<BytesMut, RequestError> {
    let api = R::API_KEY;
    let failed = |source| RequestError::Encode { api, version, source };
    let mut frame = BytesMut::with_capacity(256);
    frame.put_bytes(0, LENGTH_BYTES);
    let header = RequestHeader {
        request_api_key: api.code(),
        request_api_version: version,
        correlation_id: 0,
        client_id: Some(client_id.to_owned()),
        ..RequestHeader::default()
    };
    header.encode(api.request_header_version(version), &mut frame).map_err(failed)?;
    request.encode(version, &mut frame).map_err(failed)?;
    let length = frame.len() - LENGTH_BYTES;
    let Ok(length) = i32::try_from(length) else {
        let kind = EncodeErrorKind::TooLong { length, max: i32::MAX as usize };
        return Err(failed(EncodeError { message: R::NAME, version, field: String::new(), kind }));
    };
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

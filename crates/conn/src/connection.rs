use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use strandline_protocol::Request;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::dial::{self, ByteStream, Limits, Progress};
use crate::frame::FrameReader;
use crate::handshake::Handshake;
use crate::lane::{Lane, Patience, Shared};
use crate::task::{Established, Task};
use crate::{
    BrokerAddress, BrokerVersions, CloseReason, ConnectError, ConnectEvent, ConnectStep, ConnectionConfig,
    Evidence, Mute, PeerIdentity, RequestError, RequestEvent, Target,
};

/// A connection to one broker, ready for requests: dialled, inside TLS where configured, versions agreed on,
/// authenticated.
///
/// Requests are pipelined: several callers may wait on one connection at the same time, up to
/// [`ConnectionConfig::max_in_flight`], and the broker answers them in order. A request that waits long at
/// the broker (a long poll) therefore delays all behind it: give it a connection of its own.
///
/// A connection never heals: once [`is_closed`](Self::is_closed) it stays so, and a new one has to be
/// dialled. A task owns the socket; it ends when the connection is dropped or closed, when the peer or the
/// socket fails, when a request misses its deadline, when nothing was asked for
/// [`ConnectionConfig::idle_timeout`], or when a SASL session that the broker limits cannot be renewed.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use strandline_conn::{Connection, ConnectionConfig};
/// use strandline_protocol::messages::DescribeClusterRequest;
/// use tokio::time::Instant;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Arc::new(ConnectionConfig::default());
/// let deadline = Instant::now() + Duration::from_secs(10);
/// let connection = Connection::connect(&"broker1:9092".parse()?, &config, deadline).await?;
/// let answer = connection.send(|_version| DescribeClusterRequest::default(), deadline).await?;
/// assert!(!answer.error_code.is_error(), "{}", answer.error_code);
/// # Ok(())
/// # }
/// ```
pub struct Connection {
    lane: Lane,
    versions: BrokerVersions,
}

/// Limits and knowledge that go with one request. A deadline alone converts into one.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    patience: Patience,
    max_version: Option<i16>,
    evidence: Evidence,
}

impl Call {
    /// A request that must be answered by `deadline`.
    pub fn by(deadline: Instant) -> Self {
        Self { patience: deadline.into(), max_version: None, evidence: Evidence::default() }
    }

    /// Waits at most `timeout` for the answer, the wait for a place on the connection included: Kafka's
    /// `request.timeout.ms`. Its clock starts when the broker wants to hear from this client (KIP-219); time for which the
    /// broker has muted us counts against the deadline alone. Without it the deadline is the only bound.
    #[must_use]
    pub fn request_timeout(self, timeout: Duration) -> Self {
        Self { patience: Patience { request_timeout: timeout, ..self.patience }, ..self }
    }

    /// Negotiates no version above `version`: for a request whose data is not what later versions want, such
    /// as a Fetch without topic ids (up to 12).
    #[must_use]
    pub fn at_most(self, version: i16) -> Self {
        Self { max_version: Some(version), ..self }
    }

    /// Tells the read-only gate what the caller has seen of the cluster.
    #[must_use]
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence, ..self }
    }
}

impl From<Instant> for Call {
    fn from(deadline: Instant) -> Self {
        Self::by(deadline)
    }
}

impl Connection {
    /// Dials a broker and gets the connection ready for requests.
    ///
    /// The name is resolved anew, and every address it has is tried: one after the other, the next one 250 ms later if none
    /// has accepted by then (RFC 8305). A [`Target`] may say which broker is meant (KIP-1242) and share that broker's
    /// throttling; an address alone will do. `deadline` and [`ConnectionConfig::connect_timeout`] cover it all; the earlier
    /// one counts.
    ///
    /// # Errors
    /// [`ConnectError`] says what failed and what to do next.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing behind: the socket is closed.
    pub async fn connect(
        target: impl Into<Target>,
        config: &Arc<ConnectionConfig>,
        deadline: Instant,
    ) -> Result<Self, ConnectError> {
        Self::connect_to(target.into(), Arc::clone(config), deadline).await
    }

    async fn connect_to(
        target: Target,
        config: Arc<ConnectionConfig>,
        deadline: Instant,
    ) -> Result<Self, ConnectError> {
        let since = Instant::now();
        let limits = Limits { since, deadline: deadline.min(since + config.connect_timeout) };
        let mut progress = Progress::new();
        let Target { address, identity, mute } = target;
        let shared = Arc::new(Shared { address, config, mute });
        let connected = match dial::dial(&shared.address, &shared.config, limits, &mut progress).await {
            Ok(stream) => Self::over(&shared, &identity, stream, limits, &mut progress).await,
            Err(error) => Err(error),
        };
        shared.config.observer.on_connect(&ConnectEvent {
            address: &shared.address,
            resolved: &progress.resolved,
            peer: progress.peer,
            steps: &progress.steps,
            took: since.elapsed(),
            outcome: connected.as_ref().map(|_| ()),
        });
        let (connection, established) = connected?;
        established.begin();
        Ok(connection)
    }

    /// Gets a stream that is connected already ready for requests.
    async fn over(
        shared: &Arc<Shared>,
        identity: &PeerIdentity,
        stream: Box<dyn ByteStream>,
        limits: Limits,
        progress: &mut Progress,
    ) -> Result<(Self, Ready), ConnectError> {
        let (mut connection, handshake, establish) = Self::start(shared, stream);
        connection.versions = handshake.versions(identity, limits).await?;
        progress.finished(ConnectStep::Versions);
        let session = match &shared.config.sasl {
            Some(sasl) => {
                let session = handshake.authenticate(&connection.versions, sasl, limits).await?;
                progress.finished(ConnectStep::Authenticating);
                session
            }
            None => None,
        };
        let session = session.map(|session| (session, handshake, connection.versions.clone()));
        let established = Established { authenticated: shared.config.sasl.is_some(), session };
        Ok((connection, Ready { establish, established }))
    }

    /// Starts the task; versions are not known yet.
    fn start(
        shared: &Arc<Shared>,
        stream: Box<dyn ByteStream>,
    ) -> (Self, Handshake, oneshot::Sender<Established>) {
        let (close, close_queue) = mpsc::channel(1);
        let (closed_sender, closed) = watch::channel(None);
        let max_in_flight = shared.config.max_in_flight.get();
        let (lane, requests) = Lane::new(shared, max_in_flight, &close, &closed);
        let (handshake_lane, handshake_requests) = Lane::new(shared, 1, &close, &closed);
        let (establish, established) = oneshot::channel();
        let task = Task {
            shared: Arc::clone(shared),
            requests,
            handshake_requests,
            established,
            close: close_queue,
            closed: closed_sender,
        };
        tokio::spawn(task.run(stream, FrameReader::new(shared.config.max_frame_bytes)));
        let connection = Self { lane, versions: BrokerVersions::default() };
        (connection, Handshake { lane: handshake_lane }, establish)
    }

    /// Sends a request and waits for its answer.
    ///
    /// `build` gets the version negotiated on this connection, the highest both sides speak (within
    /// [`Call::at_most`]), and makes the request for it. The deadline covers the wait for a free place, the
    /// writing and the answer. The answer is given as the broker sent it: error codes inside it are the
    /// caller's business.
    ///
    /// # Errors
    /// [`RequestError`] says what failed, and whether the request may have reached the broker. A deadline
    /// that passes after the request was handed to the socket closes the connection, since the answers behind
    /// it can no longer be had in time.
    ///
    /// # Cancel safety
    /// A dropped future loses this answer and nothing else: a frame once begun is finished, the answer is
    /// read and dropped when it comes, and its place counts as taken until then. Its deadline stays in force.
    pub async fn send<R, F>(&self, build: F, call: impl Into<Call>) -> Result<R::Response, RequestError>
    where
        R: Request,
        F: FnOnce(i16) -> R,
    {
        let call = call.into();
        let version = self.versions.pick(R::API_KEY, R::VERSIONS, call.max_version)?;
        let request = build(version);
        self.lane.shared.config.gate.check(&request, call.evidence)?;
        let (since, mut started) = (Instant::now(), None);
        let sent = self.lane.exchange_bytes(&request, version, call.patience, &mut started).await;
        let answer = sent.and_then(|body| self.lane.decode::<R>(body, version));
        let now = Instant::now();
        let started = started.unwrap_or(now);
        self.lane.shared.config.observer.on_request(&RequestEvent {
            address: self.address(),
            api: R::API_KEY,
            version,
            queued: started - since,
            served: now - started,
            outcome: answer.as_ref().map(|_| ()),
        });
        answer
    }

    /// Which broker was dialled, as it was named.
    pub fn address(&self) -> &BrokerAddress {
        &self.lane.shared.address
    }

    /// What the broker answers, in which versions.
    pub fn versions(&self) -> &BrokerVersions {
        &self.versions
    }

    /// The configuration the connection was made with.
    pub fn config(&self) -> &Arc<ConnectionConfig> {
        &self.lane.shared.config
    }

    /// What the broker's throttling mutes: the one of the [`Target`].
    pub fn mute(&self) -> &Mute {
        &self.lane.shared.mute
    }

    /// True once no further request can be sent. Never waits.
    pub fn is_closed(&self) -> bool {
        self.lane.is_closed()
    }

    /// Why the connection ended; `None` while it lives. Never waits.
    pub fn close_reason(&self) -> Option<Arc<CloseReason>> {
        self.is_closed().then(|| self.lane.reason())
    }

    /// Waits until the connection ends, by itself or by [`close`](Self::close), and says why.
    ///
    /// # Cancel safety
    /// Loses nothing.
    pub async fn closed(&self) -> Arc<CloseReason> {
        self.lane.ended().await
    }

    /// Ends the connection. Requests without an answer fail with [`CloseReason::ClosedHere`]. Does not wait;
    /// [`closed`](Self::closed) does. Dropping the connection does the same.
    pub fn close(&self) {
        self.lane.close_with(CloseReason::ClosedHere);
    }
}

/// A connection's task, about to be told that it is ready: after that its end is an event.
struct Ready {
    establish: oneshot::Sender<Established>,
    established: Established,
}

impl Ready {
    fn begin(self) {
        // Fails only if the task has ended, and then the first request says so.
        let _ = self.establish.send(self.established);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("address", self.address())
            .field("close_reason", &self.close_reason())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

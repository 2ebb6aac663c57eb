//! The task that owns a connection's socket: a reader and a writer, driven by one [`Pipeline`].
//!
//! It holds nothing of the [`Connection`](crate::Connection) but the far ends of its channels, and so ends
//! when the connection is dropped.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep_until, timeout};

use crate::dial::ByteStream;
use crate::frame::FrameReader;
use crate::handshake::{Handshake, Session};
use crate::lane::{LaneEnds, Shared};
use crate::pipeline::{Pipeline, Submission};
use crate::renewal::Renewal;
use crate::{BrokerVersions, CloseEvent, CloseReason};

/// How long the end of a TLS session may take to be said to the peer.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Versions and authentication are agreed on.
pub(crate) struct Established {
    pub(crate) authenticated: bool,
    /// Where the broker limits the session: what it takes to renew it.
    pub(crate) session: Option<(Session, Handshake, BrokerVersions)>,
}

/// The far ends of a connection's channels.
pub(crate) struct Task {
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: LaneEnds,
    pub(crate) handshake_requests: LaneEnds,
    pub(crate) established: oneshot::Receiver<Established>,
    /// The first reason to end wins.
    pub(crate) close: mpsc::Receiver<CloseReason>,
    pub(crate) closed: watch::Sender<Option<Arc<CloseReason>>>,
}

/// Why the loop ended, and whether to say goodbye.
enum End {
    /// The peer is still there.
    Here(CloseReason),
    /// The peer is gone, or is not worth a word.
    Broken(CloseReason),
}

/// What the loop keeps between two turns.
struct Flow {
    shared: Arc<Shared>,
    pipeline: Pipeline,
    /// Keeps the SASL session alive, and callers' requests back while it is renewed.
    renewal: Renewal,
    /// True once the connection is ready, or will never be: then nothing more is said about it.
    connect_over: bool,
    /// When the connection became ready for its callers.
    ready_since: Option<Instant>,
    /// When bytes last went in or out.
    active_at: Instant,
}

impl Task {
    /// Runs until the connection is closed, dropped, broken or idle for too long; then tells every waiter why.
    pub(crate) async fn run(mut self, stream: Box<dyn ByteStream>, mut input: FrameReader) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut flow = Flow {
            shared: Arc::clone(&self.shared),
            pipeline: Pipeline::default(),
            renewal: Renewal::new(&self.shared),
            connect_over: false,
            ready_since: None,
            active_at: Instant::now(),
        };
        let end = self.drive(&mut reader, &mut writer, &mut input, &mut flow).await;
        let (reason, polite) = match end {
            End::Here(reason) => (Arc::new(reason), true),
            End::Broken(reason) => (Arc::new(reason), false),
        };
        // In this order: whoever wakes up with an error already finds the connection closed.
        self.closed.send_replace(Some(Arc::clone(&reason)));
        for lane in [&mut self.requests, &mut self.handshake_requests] {
            lane.permits.close();
            lane.submissions.close();
        }
        flow.pipeline.fail(&reason);
        flow.renewal.take_held().for_each(|request| request.refuse(&reason));
        for lane in [&mut self.requests, &mut self.handshake_requests] {
            // Not `try_recv`: a request that is being put into the queue at this moment is waited for. One that stayed there
            // would wait for ever.
            while let Some(request) = lane.submissions.recv().await {
                request.refuse(&reason);
            }
        }
        if let Some(since) = flow.ready_since {
            let (address, lived) = (&self.shared.address, since.elapsed());
            self.shared.config.observer.on_close(&CloseEvent { address, reason: &reason, lived });
        }
        if polite {
            // The peer learns of the end all the same when the socket is dropped.
            let _ = timeout(GOODBYE_TIMEOUT, writer.shutdown()).await;
        }
    }

    async fn drive<R, W>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
        input: &mut FrameReader,
        flow: &mut Flow,
    ) -> End
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut unflushed = false;
        let mut timer = pin!(sleep_until(Instant::now()));
        loop {
            flow.renewal.drained(flow.pipeline.is_idle());
            let wake = flow.wake_at();
            // Waking up too early does no harm, and deadlines mostly move forward: few requests touch the
            // timer.
            if let Some(wake) = wake.filter(|wake| *wake < timer.deadline() || timer.is_elapsed()) {
                timer.as_mut().reset(wake);
            }
            let has_output = !flow.pipeline.output().is_empty();
            // `select!` drops the arms that lose; none of these loses data when dropped.
            tokio::select! {
                read = reader.read_buf(input.buffer()) => {
                    if let Err(reason) = flow.took_in(read, input) {
                        return flow.broken(reason);
                    }
                }
                written = push(writer, flow.pipeline.output()), if has_output || unflushed => match written {
                    Ok(count) => {
                        flow.pipeline.wrote(count);
                        flow.active_at = Instant::now();
                        unflushed = has_output;
                    }
                    Err(error) => return End::Broken(CloseReason::Io(error)),
                },
                // Whoever has a request knows that the connection is established, and so must the task.
                request = self.requests.submissions.recv(), if flow.connect_over => {
                    let Some(mut request) = request else { return End::Here(CloseReason::ClosedHere) };
                    let was_idle = flow.pipeline.is_idle();
                    // Requests that wait already go out with one write.
                    loop {
                        flow.request(request);
                        match self.requests.submissions.try_recv() {
                            Ok(next) => request = next,
                            Err(_) => break,
                        }
                    }
                    // A broker may have closed an idle connection a moment ago. Seen before the first byte is
                    // written, that costs the callers nothing: their requests were not sent.
                    if was_idle
                        && let Some(read) = reader.read_buf(input.buffer()).now_or_never()
                        && let Err(reason) = flow.took_in(read, input)
                    {
                        return flow.broken(reason);
                    }
                }
                Some(request) = self.handshake_requests.submissions.recv() => flow.pipeline.submit(request),
                established = &mut self.established, if !flow.connect_over => {
                    flow.connect_over = true;
                    // Else whoever connected has given up, and the other ends of the channels go with it.
                    if let Ok(established) = established {
                        flow.established(established);
                    }
                }
                renewed = flow.renewal.step() => {
                    if let Err(error) = renewed {
                        return End::Here(CloseReason::Reauthentication(Box::new(error)));
                    }
                    flow.release();
                }
                Some(reason) = self.close.recv() => return End::Here(reason),
                () = &mut timer, if wake.is_some() => {
                    if let Some(end) = flow.time_passed(Instant::now()) {
                        return end;
                    }
                }
            }
        }
    }
}

impl Flow {
    /// The connection is its callers' from now on.
    fn established(&mut self, established: Established) {
        let now = Instant::now();
        (self.ready_since, self.active_at) = (Some(now), now);
        if !established.authenticated {
            self.pipeline.begin_probation();
        }
        if let Some((session, handshake, versions)) = established.session {
            self.renewal.watch(session, handshake, versions);
        }
    }

    /// A caller's request: goes out, or waits for the renewal of the session.
    fn request(&mut self, request: Submission) {
        if let Some(request) = self.renewal.pass(request) {
            self.pipeline.submit(request);
        }
    }

    /// Lets go what waited for the renewal, if it is over.
    fn release(&mut self) {
        if !self.renewal.holds() {
            for request in self.renewal.take_held() {
                self.pipeline.submit(request);
            }
        }
    }

    /// What came from the socket.
    fn took_in(&mut self, read: io::Result<usize>, input: &mut FrameReader) -> Result<(), CloseReason> {
        match read {
            Ok(0) => return Err(self.pipeline.end_of_input(input)),
            Ok(_) => self.active_at = Instant::now(),
            // TLS reports so an end without its own goodbye (close_notify). Frames have lengths, so nothing can be cut
            // off unseen: it is an end as that of any socket.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.pipeline.end_of_input(input));
            }
            Err(error) => return Err(CloseReason::Io(error)),
        }
        let shared = &self.shared;
        self.pipeline.take_answers(input, |api, throttle_time_ms| shared.throttled(api, throttle_time_ms))
    }

    /// The socket is of no use any more. A broker that refuses a renewal says so and hangs up: what it said counts.
    fn broken(&mut self, reason: CloseReason) -> End {
        match unconstrained(self.renewal.step()).now_or_never() {
            Some(Err(error)) => End::Broken(CloseReason::Reauthentication(Box::new(error))),
            _ => End::Broken(reason),
        }
    }

    /// The next moment at which time alone changes something.
    fn wake_at(&self) -> Option<Instant> {
        let held = self.renewal.next_deadline();
        [self.pipeline.next_deadline(), held, self.idle_at()].into_iter().flatten().min()
    }

    /// When the connection has been idle for too long, if nothing happens before.
    fn idle_at(&self) -> Option<Instant> {
        let timeout = self.shared.config.idle_timeout;
        let idle = self.ready_since.is_some() && self.pipeline.is_idle() && self.renewal.is_quiet();
        if idle && timeout > Duration::ZERO { self.active_at.checked_add(timeout) } else { None }
    }

    fn time_passed(&mut self, now: Instant) -> Option<End> {
        if let Some(reason) = self.pipeline.expired(now, self.shared.mute.last()) {
            return Some(End::Broken(reason));
        }
        self.renewal.expire(now);
        let idle = self.idle_at().is_some_and(|at| at <= now);
        idle.then(|| End::Here(CloseReason::Idle(self.shared.config.idle_timeout)))
    }
}

/// Moves bytes to the socket and says how many; with none left, sees to it that a TLS layer holds none back.
/// Cancel safe: what was not written stays in `output`.
async fn push<W: AsyncWrite + Unpin>(writer: &mut W, output: &mut BytesMut) -> io::Result<usize> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(0);
    }
    match writer.write_buf(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

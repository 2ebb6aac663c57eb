//! From an address to a stream of bytes: look-up, TCP, TLS.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::client::TlsStream;

use crate::frame::dialect;
use crate::{BrokerAddress, ConnectError, ConnectStep, ConnectionConfig, Dialect, Security, TlsConfig};

/// A connection that is silent for this long is probed.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// Between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Sent bytes without acknowledgement for this long end the connection: the host is gone. That of Kafka's
/// default `request.timeout.ms`.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// An address that has not accepted after this long gets company from the next one: RFC 8305, section 5.
const STAGGER: Duration = Duration::from_millis(250);

/// A stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// What a [`Dialler`] gives back later.
pub type Dialling<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// How names become addresses and addresses streams of bytes. [`TcpDialler`] is the one for the network; a test has its own,
/// to have brokers in memory and time that stands still.
///
/// A dropped future must leave nothing behind.
pub trait Dialler: fmt::Debug + Send + Sync {
    /// Every address of a host name (or of an IP address, which is its own), in the order in which they should be tried.
    /// Called at every dial: what was found must not be kept for long.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>>;

    /// A fresh stream to one address. No deadline need be kept: the caller has one.
    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>>;
}

/// TCP by the operating system's resolver. Sockets send at once (`TCP_NODELAY`), probe a silent peer after a minute, and
/// give up a peer that has acknowledged nothing for 30 s (Linux).
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialler;

impl Dialler for TcpDialler {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await.and_then(prepare)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

/// What one call of `connect` may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) since: Instant,
    pub(crate) deadline: Instant,
}

impl Limits {
    pub(crate) fn timed_out(self, address: &BrokerAddress, step: ConnectStep) -> ConnectError {
        ConnectError::TimedOut { address: address.clone(), step, waited: self.deadline - self.since }
    }

    async fn within<T>(
        self,
        address: &BrokerAddress,
        step: ConnectStep,
        work: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        timeout_at(self.deadline, work).await.unwrap_or_else(|_| Err(self.timed_out(address, step)))
    }
}

/// What an attempt to connect has come to so far.
#[derive(Debug)]
pub(crate) struct Progress {
    step_since: Instant,
    pub(crate) steps: Vec<(ConnectStep, Duration)>,
    pub(crate) resolved: Vec<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { step_since: Instant::now(), steps: Vec::new(), resolved: Vec::new(), peer: None }
    }

    pub(crate) fn finished(&mut self, step: ConnectStep) {
        let now = Instant::now();
        self.steps.push((step, now - self.step_since));
        self.step_since = now;
    }
}

/// Looks up the name, connects to the first of its addresses that accepts, and begins TLS where configured.
pub(crate) async fn dial(
    address: &BrokerAddress,
    config: &ConnectionConfig,
    limits: Limits,
    progress: &mut Progress,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    let dialler = &*config.dialler;
    progress.resolved = limits.within(address, ConnectStep::Resolving, resolve(dialler, address)).await?;
    progress.finished(ConnectStep::Resolving);
    let accepted = connect_any(dialler, address, &progress.resolved);
    let (stream, peer) = limits.within(address, ConnectStep::Dialling, accepted).await?;
    progress.peer = Some(peer);
    progress.finished(ConnectStep::Dialling);
    match &config.security {
        Security::Plaintext => Ok(stream),
        Security::Tls(tls) => {
            let handshake = begin_tls(address, tls, stream);
            let stream = limits.within(address, ConnectStep::Tls, handshake).await?;
            progress.finished(ConnectStep::Tls);
            Ok(Box::new(stream))
        }
    }
}

/// A stream to `address` outside of a connection to a broker.
#[cfg(feature = "oidc")]
pub(crate) async fn stream_to(
    dialler: &dyn Dialler,
    address: &BrokerAddress,
    security: &Security,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    let addresses = resolve(dialler, address).await?;
    let (stream, _) = connect_any(dialler, address, &addresses).await?;
    match security {
        Security::Plaintext => Ok(stream),
        Security::Tls(tls) => Ok(Box::new(begin_tls(address, tls, stream).await?)),
    }
}

async fn resolve(dialler: &dyn Dialler, address: &BrokerAddress) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |source| ConnectError::Resolve { address: address.clone(), source };
    let addresses = dialler.resolve(address.host(), address.port()).await.map_err(failed)?;
    if addresses.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(addresses)
}

/// The first stream that any of the addresses gives. The next address is begun when one has failed, and when none has
/// accepted for a while: those begun before go on, so that a slow one still counts and a dead one holds nobody up.
async fn connect_any(
    dialler: &dyn Dialler,
    address: &BrokerAddress,
    addresses: &[SocketAddr],
) -> Result<(Box<dyn ByteStream>, SocketAddr), ConnectError> {
    let mut waiting = alternating(addresses);
    let mut begun = FuturesUnordered::new();
    let mut attempts = Vec::with_capacity(addresses.len());
    loop {
        match waiting.pop_front() {
            Some(target) => begun.push(async move { (target, dialler.connect(target).await) }),
            None if begun.is_empty() => {
                return Err(ConnectError::Unreachable { address: address.clone(), attempts });
            }
            None => {}
        }
        tokio::select! {
            Some((target, outcome)) = begun.next() => match outcome {
                Ok(stream) => return Ok((stream, target)),
                Err(error) => attempts.push((target, error)),
            },
            () = sleep(STAGGER), if !waiting.is_empty() => {}
        }
    }
}

/// The addresses in their order, but the two families by turns: where one of them leads nowhere, the other is not far.
fn alternating(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let first_family = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv6() == first_family);
    let mut all = VecDeque::with_capacity(addresses.len());
    while !(first.is_empty() && second.is_empty()) {
        all.extend(first.pop_front());
        all.extend(second.pop_front());
    }
    all
}

fn prepare(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(stream)
}

async fn begin_tls<S>(
    address: &BrokerAddress,
    tls: &TlsConfig,
    stream: S,
) -> Result<TlsStream<Watched<S>>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connector = tls.connector().await?;
    let name = tls.server_name(address.host())?;
    match connector.connect(name, Watched::new(stream)).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((source, watched)) => Err(watched.explain(address, source)),
    }
}

/// A stream that remembers how the peer began to speak, to tell what it speaks if that is not TLS.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    start: [u8; 4],
    seen: usize,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, start: [0; 4], seen: 0 }
    }

    /// What a failed handshake means.
    pub(crate) fn explain(&self, address: &BrokerAddress, source: io::Error) -> ConnectError {
        let address = address.clone();
        // A plaintext Kafka listener takes our handshake for an absurd length and hangs up without a word.
        if self.seen == 0 {
            return ConnectError::TlsMismatch { address, configured_tls: true, peer: None };
        }
        match dialect(self.start) {
            Some(Dialect::Tls) => ConnectError::Tls { address, source },
            peer => ConnectError::TlsMismatch { address, configured_tls: true, peer },
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.seen < self.start.len() {
            for byte in &buf.filled()[before..] {
                let seen = self.seen;
                if let Some(place) = self.start.get_mut(seen) {
                    *place = *byte;
                    self.seen += 1;
                }
            }
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;

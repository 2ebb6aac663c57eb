//! A cluster without sockets: its brokers are reached over pipes in memory, so that time can stand still.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::watch;

use super::network::{Network, Server};
use super::{EmbeddedCluster, Shared};

/// One end of a pipe in memory to a broker. A connection that the broker's network resets gives `ConnectionReset`, as a socket
/// does.
#[derive(Debug)]
pub struct MemoryStream {
    pipe: DuplexStream,
    reset: Arc<AtomicBool>,
}

impl MemoryStream {
    pub(crate) fn new(pipe: DuplexStream, reset: Arc<AtomicBool>) -> Self {
        Self { pipe, reset }
    }

    fn check(&self) -> io::Result<()> {
        if self.reset.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.pipe).poll_read(cx, buf))?;
        let at_end = buf.filled().len() == before && buf.remaining() > 0;
        Poll::Ready(if at_end { this.check() } else { Ok(()) })
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write(cx, bytes));
        Poll::Ready(written.or_else(|error| this.check().and(Err(error))))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().pipe).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().pipe).poll_shutdown(cx)
    }
}

pub(crate) type Servers = tokio::sync::Mutex<BTreeMap<i32, Server>>;

/// What a client dials with instead of the operating system: every broker at the address that it serves at, names as the test
/// gives them, each connection a pipe in memory that meets the broker's [`Network`]. Nothing here waits for a clock or a
/// socket, so a test with paused time (`start_paused = true`) runs as fast as it computes.
///
/// Clones are the same network. It does not keep the cluster alive: when that is dropped, connections are refused.
#[derive(Clone, Debug)]
pub struct MemoryNetwork {
    shared: Weak<Shared>,
    servers: Weak<Servers>,
    names: Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>,
}

impl MemoryNetwork {
    /// Says which addresses a host name has from now on; none for a name that cannot be resolved. `localhost` has 127.0.0.1
    /// from the start, where all brokers are: any other address is one that nobody listens at.
    pub fn set_name(&self, host: &str, addresses: &[IpAddr]) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(host.to_owned(), addresses.to_vec());
    }

    /// The addresses of a host name, or of an IP address, which is its own.
    ///
    /// # Errors
    /// `NotFound`: the name has none.
    pub fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.get(host) {
            Some(known) if !known.is_empty() => {
                Ok(known.iter().map(|address| SocketAddr::new(*address, port)).collect())
            }
            _ => Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no host {host}"))),
        }
    }

    /// A new connection to the broker that serves at this address. Waits for as long as its network is a black hole.
    ///
    /// # Errors
    /// `ConnectionRefused`: nobody serves there, or the broker's network refuses.
    ///
    /// # Cancel safety
    /// A dropped call has made no connection.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<MemoryStream> {
        loop {
            match self.try_connect(address).await? {
                Ok(stream) => return Ok(stream),
                // An error is the end of the server, which the next look sees.
                Err(mut network) => drop(network.changed().await),
            }
        }
    }

    /// A connection, or what tells when the network is no black hole any more.
    async fn try_connect(
        &self,
        address: SocketAddr,
    ) -> io::Result<Result<MemoryStream, watch::Receiver<Network>>> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let (shared, servers) = self.shared.upgrade().zip(self.servers.upgrade()).ok_or_else(refused)?;
        let servers = servers.lock().await;
        let found = servers.iter().find(|(_, server)| server.address == address);
        let (broker, server) = found.ok_or_else(refused)?;
        let mut network = server.network();
        let now = *network.borrow_and_update();
        match now {
            Network::Refuse => Err(refused()),
            Network::Blackhole => Ok(Err(network)),
            Network::Up | Network::HalfOpen | Network::Reset => {
                Ok(Ok(server.connect_in_memory(&shared, *broker)))
            }
        }
    }
}

impl EmbeddedCluster {
    /// The cluster's network in memory.
    pub fn memory_network(&self) -> MemoryNetwork {
        let localhost = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        MemoryNetwork {
            shared: Arc::downgrade(&self.shared),
            servers: Arc::downgrade(&self.servers),
            names: Arc::new(Mutex::new(BTreeMap::from([("localhost".to_owned(), localhost)]))),
        }
    }

    /// A connection to a broker without a socket, for tests with paused time.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn connect_in_memory(&self, broker: i32) -> MemoryStream {
        let servers = self.servers.lock().await;
        let server = servers.get(&broker).unwrap_or_else(|| panic!("there is no broker {broker}"));
        server.connect_in_memory(&self.shared, broker)
    }
}

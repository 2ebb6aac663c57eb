//! How connections come about: listeners on the loopback interface, pipes in memory, and what a network does to both.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::Shared;
use super::memory::MemoryStream;
use super::server::serve_connection;

/// What a connection to a broker meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// All is well.
    Up,
    /// New connections are refused; those that are open live on.
    Refuse,
    /// Nothing comes through: a new connection is never made and never refused, and those that are open are silent. When
    /// this ends those that were open are reset, and those that are still being tried are made. On loopback sockets this
    /// needs a system that drops what wants to connect to a full queue (Linux).
    Blackhole,
    /// The host is there and the broker hangs, or a middlebox has forgotten: connections are made, and nothing is ever
    /// read or answered, on those that were open before either. When this ends they are reset.
    HalfOpen,
    /// Connections are reset: those that are open, and new ones as soon as they are made.
    Reset,
}

impl Network {
    /// True if what is sent over an open connection is lost.
    fn swallows(self) -> bool {
        matches!(self, Self::Blackhole | Self::HalfOpen)
    }
}

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 256;

/// How long a connection on the loopback interface may take that is not dropped.
const LOOPBACK_CONNECTS_WITHIN: Duration = Duration::from_millis(50);

/// One broker's listener and connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    network: watch::Sender<Network>,
    connections: Arc<std::sync::Mutex<JoinSet<()>>>,
    state: Listening,
}

#[derive(Debug)]
enum Listening {
    Yes(oneshot::Sender<()>, JoinHandle<io::Result<()>>),
    /// Between two of the others.
    Nowhere,
    /// The port is kept, so that nobody else gets it, and every connection to it is refused.
    No(#[expect(dead_code, reason = "held for its port")] TcpSocket),
    /// Nobody accepts and the queue is full, so that the system drops what wants to connect.
    Full(
        #[expect(dead_code, reason = "held for their places")] TcpListener,
        #[expect(dead_code, reason = "as above")] Option<TcpStream>,
    ),
}

impl Server {
    /// Listens on a free port of the loopback interface, or on `port`.
    pub(crate) fn start(shared: &Arc<Shared>, broker: i32, port: u16) -> io::Result<Self> {
        let socket = bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
        let address = socket.local_addr()?;
        let network = watch::Sender::new(Network::Up);
        let connections = Arc::default();
        let listener = socket.listen(BACKLOG)?;
        let mut server = Self { address, network, connections, state: Listening::Nowhere };
        server.state = server.accepting(listener, shared, broker);
        Ok(server)
    }

    fn accepting(&self, listener: TcpListener, shared: &Arc<Shared>, broker: i32) -> Listening {
        let (stop, stopped) = oneshot::channel();
        let (network, connections) = (self.network.subscribe(), Arc::clone(&self.connections));
        let acceptor = Acceptor { shared: Arc::clone(shared), broker, network, connections };
        Listening::Yes(stop, tokio::spawn(acceptor.accept(listener, stopped)))
    }

    /// Changes what connections meet. Returns when it is so.
    pub(crate) async fn set_network(
        &mut self,
        shared: &Arc<Shared>,
        broker: i32,
        network: Network,
    ) -> io::Result<()> {
        self.network.send_replace(network);
        let same = matches!(
            (&self.state, network),
            (Listening::Yes(..), Network::Up | Network::HalfOpen | Network::Reset)
                | (Listening::No(_), Network::Refuse)
                | (Listening::Full(..), Network::Blackhole)
        );
        if same {
            return Ok(());
        }
        // Two sockets bound to one port cannot listen: the one that is there goes first.
        if let Listening::Yes(stop, task) = std::mem::replace(&mut self.state, Listening::Nowhere) {
            drop(stop);
            task.await.map_err(io::Error::other)??;
        }
        let socket = bind(self.address)?;
        self.state = match network {
            Network::Refuse => Listening::No(socket),
            Network::Blackhole => {
                let listener = socket.listen(0)?;
                Listening::Full(listener, fill_queue(self.address).await?)
            }
            Network::Up | Network::HalfOpen | Network::Reset => {
                self.accepting(socket.listen(BACKLOG)?, shared, broker)
            }
        };
        Ok(())
    }

    /// Closes every connection; returns when they are closed.
    pub(crate) async fn close_connections(&self) {
        let mut connections = std::mem::take(&mut *lock(&self.connections));
        connections.shutdown().await;
    }

    /// Connections that are open now.
    pub(crate) fn open_connections(&self) -> usize {
        let mut connections = lock(&self.connections);
        while connections.try_join_next().is_some() {}
        connections.len()
    }

    /// What connections meet, now and later.
    pub(crate) fn network(&self) -> watch::Receiver<Network> {
        self.network.subscribe()
    }

    /// A connection without a socket: the other end of a pipe in memory, which meets what sockets meet.
    pub(crate) fn connect_in_memory(&self, shared: &Arc<Shared>, broker: i32) -> MemoryStream {
        let (mut ours, theirs) = tokio::io::duplex(64 << 10);
        let reset = Arc::new(AtomicBool::new(false));
        let stream = MemoryStream::new(theirs, Arc::clone(&reset));
        let (shared, network) = (Arc::clone(shared), self.network.subscribe());
        lock(&self.connections).spawn(async move {
            if serve_until_the_end(&mut ours, shared, broker, network).await == End::Reset {
                reset.store(true, Ordering::Release);
            }
        });
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Listening::Yes(_, task) = &self.state {
            task.abort();
        }
        lock(&self.connections).abort_all();
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Takes the one place that a queue of length 0 has, and makes sure that there is no other. `None`: a client was quicker, and
/// has the place.
async fn fill_queue(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let filling = tokio::task::spawn_blocking(move || {
        let first = match TcpStream::connect_timeout(&address, LOOPBACK_CONNECTS_WITHIN) {
            Ok(first) => Some(first),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
            Err(error) => return Err(error),
        };
        match TcpStream::connect_timeout(&address, LOOPBACK_CONNECTS_WITHIN) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(first),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this system answers what wants to connect to a full queue, so that it shows no black hole",
            )),
        }
    });
    filling.await.map_err(io::Error::other)?
}

/// Takes the connections of one listener.
struct Acceptor {
    shared: Arc<Shared>,
    broker: i32,
    network: watch::Receiver<Network>,
    connections: Arc<std::sync::Mutex<JoinSet<()>>>,
}

impl Acceptor {
    /// Ends when the other end of `stopped` is dropped. What is connected then and not yet taken is taken first: it would
    /// be reset otherwise, whatever befalls the network.
    async fn accept(self, listener: TcpListener, mut stopped: oneshot::Receiver<()>) -> io::Result<()> {
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream),
                    // Out of file descriptors: they come back when connections end.
                    Err(_) => sleep(Duration::from_millis(10)).await,
                },
            }
        }
        let listener = listener.into_std()?;
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            self.serve(tokio::net::TcpStream::from_std(stream)?);
        }
        Ok(())
    }

    fn serve(&self, mut stream: tokio::net::TcpStream) {
        // Small answers would wait for acknowledgements otherwise.
        let _ = stream.set_nodelay(true);
        let (shared, broker, network) = (Arc::clone(&self.shared), self.broker, self.network.clone());
        let serving = async move {
            if serve_until_the_end(&mut stream, shared, broker, network).await == End::Reset {
                // A socket that does not linger is reset when it is closed.
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
        };
        let mut connections = lock(&self.connections);
        while connections.try_join_next().is_some() {}
        connections.spawn(serving);
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Orderly,
    Reset,
}

async fn serve_until_the_end<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: &mut S,
    shared: Arc<Shared>,
    broker: i32,
    network: watch::Receiver<Network>,
) -> End {
    let mut changes = network.clone();
    tokio::select! {
        biased;
        _ = changes.wait_for(|network| *network == Network::Reset) => End::Reset,
        end = serve_unless_swallowed(stream, shared, broker, network) => end,
    }
}

async fn serve_unless_swallowed<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: &mut S,
    shared: Arc<Shared>,
    broker: i32,
    mut network: watch::Receiver<Network>,
) -> End {
    tokio::select! {
        biased;
        _ = network.wait_for(|network| network.swallows()) => {}
        // How a connection ended is seen by its other end, and in the journal.
        _ = over_tls_or_not(stream, shared, broker) => return End::Orderly,
    }
    // A host that is back does not know the connection.
    let _ = network.wait_for(|network| !network.swallows()).await;
    End::Reset
}

async fn over_tls_or_not<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: &mut S,
    shared: Arc<Shared>,
    broker: i32,
) -> io::Result<()> {
    let Some(acceptor) = shared.acceptor.clone() else {
        return serve_connection(stream, shared, broker, None).await;
    };
    // A client that fails the handshake has been told by TLS itself.
    let mut stream = acceptor.accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let principal = shown.and_then(|certificate| shared.state().certified.get(&certificate[..]).cloned());
    serve_connection(&mut stream, shared, broker, principal).await
}

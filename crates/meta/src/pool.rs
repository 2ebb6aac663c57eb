//! The connections of a cluster: one per broker and purpose, dialled once however many callers want it.
//!
//! A connection is kept under an [`Endpoint`] and a [`Purpose`]. It is replaced when it has ended, and retired when the
//! broker advertises another address, leaves the cluster or is disowned; requests under way on a retired connection still get
//! their answers. What concerns the broker and not one connection is kept once for all of them ([`Peer`]): for how long it
//! wants to be left alone (KIP-219), whether it was silent, how many requests are under way.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use strandline_conn::{
    BrokerAddress, ConnectError, Connection, ConnectionConfig, Mute, PeerIdentity, Recovery, Target,
};
use strandline_protocol::ApiKey;
use tokio::time::Instant;
use tracing::{Instrument as _, debug_span};

use crate::backoff::{BACKOFF_MAX, BACKOFF_MIN, Jitter};
use crate::errors::{DialError, SendError};
use crate::snapshot::{Broker, ClusterSnapshot};

/// Back-off after refused credentials. Trying often locks accounts.
const AUTHENTICATION_BACKOFF: Duration = Duration::from_secs(10);
/// So long a broker that let a request time out is asked last.
const SILENCE_REMEMBERED: Duration = Duration::from_secs(30);

/// Who is connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Endpoint {
    /// A broker of the cluster, at whatever address it advertises at the moment.
    Node(i32),
    /// An address from the configuration, whichever broker answers there.
    Bootstrap(BrokerAddress),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node_id) => write!(f, "broker {node_id}"),
            Self::Bootstrap(address) => write!(f, "{address}"),
        }
    }
}

/// What a connection is for. Answers come in the order of the requests, so a slow kind must not sit before a quick one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    /// Everything that is answered at once.
    Control,
    /// Produce, whose answers wait for followers, and whose order on the socket is the order in the log: there is never a
    /// second one to a broker beside it.
    Produce,
    /// Fetch, whose answers may be large and may wait for data.
    Fetch,
}

impl Purpose {
    pub(crate) fn of(key: ApiKey) -> Self {
        match key {
            ApiKey::Produce => Self::Produce,
            ApiKey::Fetch | ApiKey::ShareFetch => Self::Fetch,
            _ => Self::Control,
        }
    }
}

type Dial = Shared<BoxFuture<'static, Result<Arc<Connection>, DialError>>>;

enum State {
    Idle,
    Dialling(Dial),
    Ready(Arc<Connection>),
}

/// What a caller has to do with.
enum Stands {
    Ready(Arc<Connection>),
    Dialling(Dial),
}

struct Slot {
    target: Aim,
    state: State,
    /// Number of the dial, so that the end of an old one does not touch what came after it.
    dial: u64,
    failures: u32,
    /// Until then this failure is told instead of dialling again.
    failed: Option<(Instant, DialError)>,
}

/// What a slot's connection is to lead to. Where this changes, the connection is retired.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Aim {
    address: BrokerAddress,
    identity: PeerIdentity,
}

/// What concerns a broker, whatever connection it is seen on.
#[derive(Default)]
struct Peer {
    mute: Mute,
    /// Requests under way.
    load: Arc<AtomicUsize>,
    silent_until: Option<Instant>,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<(Endpoint, Purpose), Slot>,
    /// By address, so that a broker is the same one whether it was asked as itself or as a bootstrap address.
    peers: HashMap<BrokerAddress, Peer>,
}

impl Inner {
    /// Gives up the connections of all slots that `gone` says yes to.
    fn retire(&mut self, gone: impl Fn(&Endpoint, &Slot) -> bool) {
        let slots = self.slots.extract_if(|(endpoint, _), slot| gone(endpoint, slot));
        slots.for_each(|((_, purpose), slot)| slot.retire(purpose));
    }

    /// What is known of the broker behind an endpoint that was connected to.
    fn peer(&mut self, endpoint: &Endpoint, act: impl FnOnce(&mut Peer)) {
        let slot = self.slots.iter().find(|((kept, _), _)| kept == endpoint);
        if let Some(peer) = slot.and_then(|(_, slot)| self.peers.get_mut(&slot.target.address)) {
            act(peer);
        }
    }
}

/// A connection while somebody uses it.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Arc<Connection>,
    load: Arc<AtomicUsize>,
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct Pool {
    config: Arc<ConnectionConfig>,
    bootstrap: Vec<BrokerAddress>,
    inner: Mutex<Inner>,
    dials: AtomicU64,
    pub(crate) jitter: Jitter,
}

impl Pool {
    pub(crate) fn new(config: Arc<ConnectionConfig>, bootstrap: Vec<BrokerAddress>, seed: u64) -> Arc<Self> {
        let inner = Mutex::new(Inner::default());
        Arc::new(Self { config, bootstrap, inner, dials: AtomicU64::new(0), jitter: Jitter::new(seed) })
    }

    /// Who hears of what happens.
    pub(crate) fn observer(&self) -> &dyn strandline_conn::Observer {
        &*self.config.observer
    }

    /// The connection to `endpoint`: the one that stands, the one being dialled, or a new one.
    ///
    /// After a failed dial the same failure is given without dialling until its back-off is over.
    ///
    /// # Cancel safety
    /// A dropped call leaves the dial running for whoever else waits for it.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        purpose: Purpose,
        view: &ClusterSnapshot,
    ) -> Result<Lease, SendError> {
        let aim = aim(endpoint, view)?;
        let (stands, load) = self.stand(endpoint, purpose, &aim)?;
        let connection = match stands {
            Stands::Ready(connection) => connection,
            Stands::Dialling(dial) => dial.await?,
        };
        load.fetch_add(1, Ordering::Relaxed);
        Ok(Lease { connection, load })
    }

    /// A new connection for the caller alone, outside of the pool; the broker's throttling mutes it with the others.
    pub(crate) async fn dedicated(
        &self,
        broker: &Broker,
        view: &ClusterSnapshot,
        deadline: Instant,
    ) -> Result<Connection, SendError> {
        let endpoint = Endpoint::Node(broker.node_id);
        let aim = aim(&endpoint, view)?;
        let mute = self.lock().peers.entry(aim.address.clone()).or_default().mute.clone();
        let target = Target::new(aim.address.clone()).with_identity(aim.identity.clone()).with_mute(mute);
        let dialled = Connection::connect(target, &self.config, deadline).await;
        dialled.map_err(|source| self.dial_error(&endpoint, &aim, source).into())
    }

    /// What stands for the key, or the dial that will, with the broker's load; begins the dial if there is neither.
    fn stand(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        purpose: Purpose,
        aim: &Aim,
    ) -> Result<(Stands, Arc<AtomicUsize>), DialError> {
        let mut inner = self.lock();
        let Inner { slots, peers } = &mut *inner;
        let peer = peers.entry(aim.address.clone()).or_default();
        let load = Arc::clone(&peer.load);
        let slot = slots.entry((endpoint.clone(), purpose)).or_insert_with(|| Slot::new(aim));
        if slot.target != *aim {
            // The cluster id becomes known with the first answer, which came over such a connection: it stays.
            match slot.target.becomes(aim) {
                true => slot.target = aim.clone(),
                false => std::mem::replace(slot, Slot::new(aim)).retire(purpose),
            }
        }
        match &slot.state {
            State::Ready(connection) if !connection.is_closed() => {
                return Ok((Stands::Ready(Arc::clone(connection)), load));
            }
            State::Dialling(dial) => return Ok((Stands::Dialling(dial.clone()), load)),
            State::Ready(_) | State::Idle => {}
        }
        if let Some((until, error)) = &slot.failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        slot.dial = self.dials.fetch_add(1, Ordering::Relaxed);
        let dial = self.begin_dial(endpoint.clone(), purpose, aim.clone(), peer.mute.clone(), slot.dial);
        slot.state = State::Dialling(dial.clone());
        Ok((Stands::Dialling(dial), load))
    }

    /// Dials in a task of its own, so that a caller that gives up does not end it for the others.
    fn begin_dial(
        self: &Arc<Self>,
        endpoint: Endpoint,
        purpose: Purpose,
        aim: Aim,
        mute: Mute,
        number: u64,
    ) -> Dial {
        let pool: Weak<Self> = Arc::downgrade(self);
        let config = Arc::clone(&self.config);
        // The configured connect timeout is the bound: no caller's deadline may end a dial that others wait for.
        let deadline = Instant::now() + config.connect_timeout;
        let target = Target::new(aim.address.clone()).with_identity(aim.identity.clone()).with_mute(mute);
        let span = debug_span!("dial", %endpoint, ?purpose);
        let dial = async move {
            let dialled = Connection::connect(target, &config, deadline).await;
            let Some(pool) = pool.upgrade() else { return Err(DialError::RuntimeGone) };
            let dialled = dialled.map(Arc::new).map_err(|source| pool.dial_error(&endpoint, &aim, source));
            pool.dialled(&(endpoint, purpose), number, &dialled);
            dialled
        };
        let task = tokio::spawn(dial.instrument(span));
        async move { task.await.unwrap_or(Err(DialError::RuntimeGone)) }.boxed().shared()
    }

    fn dialled(&self, key: &(Endpoint, Purpose), number: u64, dialled: &Result<Arc<Connection>, DialError>) {
        let mut inner = self.lock();
        let Some(slot) = inner.slots.get_mut(key).filter(|slot| slot.dial == number) else { return };
        match dialled {
            Ok(connection) => {
                slot.state = State::Ready(Arc::clone(connection));
                slot.failures = 0;
                slot.failed = None;
            }
            Err(error) => {
                slot.failures += 1;
                let wait = match error.recovery() {
                    Recovery::Authenticate => AUTHENTICATION_BACKOFF,
                    _ => self.jitter.backoff(slot.failures, BACKOFF_MIN, BACKOFF_MAX),
                };
                slot.state = State::Idle;
                slot.failed = Some((Instant::now() + wait, error.clone()));
            }
        }
    }

    fn dial_error(&self, endpoint: &Endpoint, aim: &Aim, source: ConnectError) -> DialError {
        let (source, address) = (Arc::new(source), aim.address.clone());
        match endpoint {
            Endpoint::Bootstrap(_) => DialError::Bootstrap { address, source },
            Endpoint::Node(node_id) => {
                let bootstrap: Vec<String> = self.bootstrap.iter().map(ToString::to_string).collect();
                let bootstrap = bootstrap.join(",");
                DialError::Advertised { node_id: *node_id, advertised: address, bootstrap, source }
            }
        }
    }

    /// Brings the pool in line with a new view: connections to brokers that left, or that advertise another address, are
    /// retired.
    pub(crate) fn follow(&self, view: &ClusterSnapshot) {
        let mut inner = self.lock();
        inner.retire(|endpoint, slot| match endpoint {
            Endpoint::Bootstrap(_) => false,
            Endpoint::Node(node_id) => {
                view.broker(*node_id).is_none_or(|broker| broker.address != slot.target.address)
            }
        });
        let told: HashSet<&BrokerAddress> = view.brokers().map(|broker| &broker.address).collect();
        inner.peers.retain(|address, _| told.contains(address) || self.bootstrap.contains(address));
    }

    /// A broker that was asked at a bootstrap address and says that it is at that very address: the connection is one to that
    /// broker, which saves a dial. Nobody but the broker itself is believed in this, and an address of several is nobody's.
    pub(crate) fn recognise(&self, told_by: &Endpoint, view: &ClusterSnapshot) {
        let Endpoint::Bootstrap(address) = told_by else { return };
        let mut there = view.brokers().filter(|broker| broker.address == *address);
        let (Some(broker), None) = (there.next(), there.next()) else { return };
        let endpoint = Endpoint::Node(broker.node_id);
        let Ok(aim) = aim(&endpoint, view) else { return };
        let (found, known) = ((told_by.clone(), Purpose::Control), (endpoint, Purpose::Control));
        let mut inner = self.lock();
        if !inner.slots.get(&found).is_some_and(Slot::is_ready) || inner.slots.contains_key(&known) {
            return;
        }
        if let Some(slot) = inner.slots.remove(&found) {
            inner.slots.insert(known, Slot { target: aim, ..slot });
        }
    }

    /// Retires the connections to one endpoint.
    pub(crate) fn retire(&self, endpoint: &Endpoint) {
        self.lock().retire(|kept, _| kept == endpoint);
    }

    /// Retires the connections to every learned broker.
    pub(crate) fn forget_nodes(&self) {
        self.lock().retire(|endpoint, _| matches!(endpoint, Endpoint::Node(_)));
    }

    /// Remembers that a broker let a request time out, so that a request that any broker can answer avoids it.
    pub(crate) fn was_silent(&self, endpoint: &Endpoint) {
        let until = Instant::now() + SILENCE_REMEMBERED;
        self.lock().peer(endpoint, |peer| peer.silent_until = Some(until));
    }

    /// Forgets that a broker was silent: it has answered.
    pub(crate) fn has_answered(&self, endpoint: &Endpoint) {
        self.lock().peer(endpoint, |peer| peer.silent_until = None);
    }

    /// Everyone who could answer a question that any broker can answer, the best first.
    ///
    /// Brokers with a connection that stands, then the other brokers, then those that want to be left alone for the moment;
    /// the bootstrap addresses follow the brokers of which none failed, and precede those that did or were lately silent.
    /// Within a group who has the fewest requests under way comes first, and among equals chance decides.
    pub(crate) fn anyone(&self, view: &ClusterSnapshot, purpose: Purpose) -> Vec<Endpoint> {
        self.anyone_but(&[], view, purpose)
    }

    /// As [`anyone`](Self::anyone), where the brokers of `answered` come after the others of which none failed, the last of
    /// them last: their answer is known.
    pub(crate) fn anyone_but(
        &self,
        answered: &[Endpoint],
        view: &ClusterSnapshot,
        purpose: Purpose,
    ) -> Vec<Endpoint> {
        let nodes = view.brokers().map(|broker| Endpoint::Node(broker.node_id));
        let mut all: Vec<Endpoint> =
            nodes.chain(self.bootstrap.iter().cloned().map(Endpoint::Bootstrap)).collect();
        for n in (1..all.len()).rev() {
            all.swap(n, self.jitter.below(n + 1));
        }
        let now = Instant::now();
        let inner = self.lock();
        // The sort keeps the order of equals.
        all.sort_by_cached_key(|endpoint| {
            let slot = inner.slots.get(&(endpoint.clone(), purpose));
            let peer = aim(endpoint, view).ok().and_then(|aim| inner.peers.get(&aim.address));
            let failing = slot.is_some_and(|slot| slot.is_failing(now))
                || peer.is_some_and(|peer| peer.silent_until.is_some_and(|until| now < until));
            let muted = peer.is_some_and(|peer| peer.mute.until().is_some());
            let ready = slot.is_some_and(Slot::is_ready);
            let at = answered.iter().position(|other| other == endpoint);
            let group = match (endpoint, failing, muted) {
                (Endpoint::Node(_), false, false) if at.is_none() => u8::from(!ready),
                (Endpoint::Node(_), false, _) => 2,
                (Endpoint::Bootstrap(_), false, _) => 3,
                (Endpoint::Node(_), true, _) => 4,
                (Endpoint::Bootstrap(_), true, _) => 5,
            };
            (group, at, peer.map_or(0, |peer| peer.load.load(Ordering::Relaxed)))
        });
        all
    }

    /// For people: the endpoint with its address.
    pub(crate) fn peer(&self, endpoint: &Endpoint, view: &ClusterSnapshot) -> String {
        match endpoint {
            Endpoint::Node(node_id) => match view.broker(*node_id) {
                Some(broker) => broker.to_string(),
                None => format!("broker {node_id}"),
            },
            Endpoint::Bootstrap(address) => address.to_string(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held; if it did, each slot is still whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the connections of an endpoint lead, by the view there is. What a bootstrap address leads to is any broker of the
/// cluster, once that is known.
fn aim(endpoint: &Endpoint, view: &ClusterSnapshot) -> Result<Aim, SendError> {
    let cluster_id = view.cluster_id().map(str::to_owned);
    let (address, node_id) = match endpoint {
        Endpoint::Node(node_id) => match view.broker(*node_id) {
            Some(broker) => (broker.address.clone(), Some(*node_id)),
            None => return Err(SendError::NoSuchBroker { node_id: *node_id }),
        },
        Endpoint::Bootstrap(address) => (address.clone(), None),
    };
    Ok(Aim { address, identity: PeerIdentity { cluster_id, node_id } })
}

impl Aim {
    /// True if `later` is the same aim with a cluster id that was not known before.
    fn becomes(&self, later: &Self) -> bool {
        self.address == later.address
            && self.identity.node_id == later.identity.node_id
            && self.identity.cluster_id.is_none()
    }
}

impl Slot {
    fn new(aim: &Aim) -> Self {
        Self { target: aim.clone(), state: State::Idle, dial: 0, failures: 0, failed: None }
    }

    /// Gives up the connection: its socket closes once the last request on it has its answer. One that carries Produce
    /// closes now, since what is sent on the next one must not overtake what is still under way on it.
    fn retire(self, purpose: Purpose) {
        if let (State::Ready(connection), Purpose::Produce) = (&self.state, purpose) {
            connection.close();
        }
    }

    fn is_ready(&self) -> bool {
        matches!(&self.state, State::Ready(connection) if !connection.is_closed())
    }

    fn is_failing(&self, now: Instant) -> bool {
        self.failed.as_ref().is_some_and(|(until, _)| now < *until)
    }
}

//! A Kafka cluster in this process: real sockets on the loopback interface, brokers that are tasks, and every failure
//! at the test's word.
//!
//! ```
//! # async fn run() -> std::io::Result<()> {
//! use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, Fault, Rule};
//! use strandline_protocol::{ApiKey, ErrorCode};
//!
//! let cluster = EmbeddedCluster::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() })?;
//! cluster.create_topic("orders", 2);
//! cluster.append("orders", 0, &[b"first", b"second"]);
//! cluster.script(Rule::new(Fault::Error(ErrorCode::NotLeaderOrFollower)).api(ApiKey::Fetch).nth(2));
//! cluster.move_leader("orders", 0, 2);
//! println!("{}", cluster.bootstrap());
//! # Ok(()) }
//! ```
//!
//! Start at [`EmbeddedCluster`]. What goes wrong with one request is a [`Rule`] with a [`Fault`], what goes wrong with
//! a broker's network a [`Network`]; [`EmbeddedCluster::journal`] has every request. With paused time brokers are reached
//! through [`EmbeddedCluster::memory_network`], where no socket is. What each API keeps of a real
//! broker's behaviour, and what it leaves out, stands at the head of its file in `api/`; the versions served stand in
//! one table, `api/mod.rs`.
//!
//! It shares nothing with a client but the codec. It is for tests and demonstrations, and never a storage engine: logs
//! lie in memory, and the replicas of a partition are one log.
//!
//! # Cancel safety
//! Dropping the cluster ends every task and socket of it.

mod acl;
mod api;
mod controls;
mod controls_of_topics;
mod journal;
mod log;
mod memory;
mod network;
mod sasl;
mod script;
mod server;
mod state;
mod tls;
mod transactions;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::random::Random;

pub use acl::{Acl, Operation, Resource};
pub use api::KafkaVersion;
pub use journal::JournalEntry;
use memory::Servers;
pub use memory::{MemoryNetwork, MemoryStream};
pub use network::Network;
use network::Server;
pub use sasl::{Mechanism, Sasl};
pub use script::{Fault, Held, Rule};
use state::{BrokerState, State};
pub use tls::{Certificates, Tls};
pub use view::{BrokerView, ClusterView, PartitionView, TopicView};

/// What to start. The default is one broker that serves what Kafka 4.4 serves.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// How many brokers; ids count from 1. The controller is broker 1.
    pub brokers: i32,
    /// Whose version ranges are served.
    pub version: KafkaVersion,
    /// From which topic ids, the cluster id and random faults follow. A test that panics prints it.
    pub seed: u64,
    /// Kafka's `auto.create.topics.enable`: then a Metadata request that allows it creates the topics it names, with
    /// one partition. Default false; that of a real broker is true.
    pub auto_create_topics: bool,
    /// Kafka's `super.users`, as `User:NAME`: whom no missing right stops.
    pub super_users: Vec<String>,
    /// How the listeners authenticate; `None` for no SASL.
    pub sasl: Option<Sasl>,
    /// Whether the listeners speak TLS, and how; `None` for plain text. With both, SASL comes inside TLS.
    pub tls: Option<Tls>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            brokers: 1,
            version: KafkaVersion::V4_4,
            seed: 1,
            auto_create_topics: false,
            super_users: Vec::new(),
            sasl: None,
            tls: None,
        }
    }
}

/// A running cluster. Dropping it ends it. It needs a tokio runtime with I/O and time to be started in.
#[derive(Debug)]
pub struct EmbeddedCluster {
    shared: Arc<Shared>,
    servers: Arc<Servers>,
    seed: u64,
    authority: Option<tls::Authority>,
    certificates: Option<Certificates>,
}

/// What all brokers share.
pub(crate) struct Shared {
    state: Mutex<State>,
    version: KafkaVersion,
    sasl: Option<Sasl>,
    super_users: Vec<String>,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    /// Counts changes, so that a long poll and a test can wait for one.
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Shared {
    /// The state. Held for a few lines, never across a wait.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits for a change.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }
}

impl EmbeddedCluster {
    /// Starts the brokers; they serve when this returns.
    ///
    /// # Errors
    /// The loopback interface gives no port.
    pub fn start(options: ClusterOptions) -> io::Result<Self> {
        let tls = options.tls.map(tls::make).transpose().map_err(io::Error::other)?;
        let (authority, acceptor) = tls.unzip();
        let mut random = Random::new(options.seed);
        let state = State {
            cluster_id: random.uuid().to_string(),
            controller: 1,
            brokers: BTreeMap::new(),
            topics: BTreeMap::new(),
            groups: BTreeMap::new(),
            transactions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_producer_id: 0,
            auto_create: options.auto_create_topics,
            acls: None,
            certified: BTreeMap::new(),
            rules: Vec::new(),
            journal: VecDeque::new(),
            journaled: 0,
            connections: 0,
            random,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            version: options.version,
            sasl: options.sasl,
            super_users: options.super_users,
            acceptor,
            changes: watch::Sender::new(0),
        });
        let mut servers = BTreeMap::new();
        for id in 1..=options.brokers {
            servers.insert(id, start_broker(&shared, id)?);
        }
        let servers = Arc::new(tokio::sync::Mutex::new(servers));
        let mut cluster = Self { shared, servers, seed: options.seed, authority, certificates: None };
        if cluster.authority.is_some() {
            cluster.certificates = Some(cluster.issue_certificate("client"));
        }
        Ok(cluster)
    }
}

impl Drop for EmbeddedCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the embedded cluster's seed is {}", self.seed);
        }
    }
}

fn start_broker(shared: &Arc<Shared>, id: i32) -> io::Result<Server> {
    let server = Server::start(shared, id, 0)?;
    let broker = BrokerState {
        host: server.address.ip().to_string(),
        port: server.address.port(),
        alive: true,
        latency: Duration::ZERO,
        told: None,
        configs: BTreeMap::new(),
        static_configs: BTreeMap::new(),
        kafka: None,
        versions: BTreeMap::new(),
    };
    shared.state().brokers.insert(id, broker);
    Ok(server)
}

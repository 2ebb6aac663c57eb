//! A real Apache Kafka with tiered storage, started and stopped by a test.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use strandline_testkit::apache::{ApacheKafka, Options};
//!
//! let kafka = ApacheKafka::start(Options::default())?;
//! kafka.create_tiered_topic("orders", 3, &[])?;
//! kafka.produce("orders", 30_000, 500)?;
//! kafka.wait_until_copied("orders")?;
//! println!("{} {}", kafka.bootstrap(), kafka.tier_dir().display());
//! # Ok(()) }
//! ```
//!
//! One broker is up in about ten seconds; each of Kafka's own tools costs a Java start of one or two. Tests that
//! need it are marked `#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]`, and those of one test
//! binary share a broker: in one test function, or in a `static OnceLock<ApacheKafka>`.
//!
//! # What ends it
//! Dropping [`ApacheKafka`] ends every broker and removes its directory. So does the end of the test's process,
//! however it comes (a static is never dropped, a test can be killed): a small shell waits for the closing of a
//! pipe from that process. With `STRANDLINE_KEEP_KAFKA=1` the directory stays.
//!
//! # Security
//! Principals on the PLAINTEXT and SSL listeners are `User:ANONYMOUS`, a super user; with the client certificate of
//! [`client_pem`](ApacheKafka::client_pem) on the SSL listener it is `User:CN=client`, who has only what ACLs give. On
//! the SASL_PLAINTEXT and SASL_SSL listeners [`ADMIN`] (SCRAM) is a super user, and [`READER`] (PLAIN and SCRAM) has
//! only what ACLs give it.

mod broker;
mod distribution;
mod guard;
mod python;
mod run;
mod tools;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use broker::{Broker, Ports};
pub use distribution::Distribution;
use guard::Guard;
pub use python::{Python, python_with};
pub use run::wait_for;

/// Name and password of the super user on the SASL listeners: SCRAM-SHA-256 and SCRAM-SHA-512.
pub const ADMIN: (&str, &str) = ("admin", "admin-secret");
/// Name and password of the user without any right on the SASL listeners: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
pub const READER: (&str, &str) = ("reader", "reader-secret");

/// The version that tests use unless they say another: the reference of all formats.
pub const VERSION: &str = "4.3.1";

/// How long a cluster may take until it serves. Bounds a hanging start, not a slow one.
const START_WITHIN: Duration = Duration::from_secs(240);
/// How long the broker may take to copy what it has to, or to write what it must.
const COPY_WITHIN: Duration = Duration::from_secs(240);
/// How often a start is tried with other ports when another process took one meanwhile.
const PORT_ATTEMPTS_MAX: usize = 3;

/// What to start. The default is one broker of [`VERSION`] with tiered storage.
#[derive(Clone, Debug)]
pub struct Options {
    /// The version, as Maven Central knows it.
    pub version: &'static str,
    /// How many brokers, each of them a controller as well.
    pub brokers: usize,
    /// Tiered storage with LocalTieredStorage. Not to be had for 4.4.0, whose storage test jar is not published.
    pub tiered: bool,
    /// How many partitions `__remote_log_metadata` gets.
    pub metadata_partitions: i32,
    /// More lines for `server.properties`.
    pub properties: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { version: VERSION, brokers: 1, tiered: true, metadata_partitions: 5, properties: Vec::new() }
    }
}

/// A running cluster of real brokers. Broker ids count from 1.
#[derive(Debug)]
pub struct ApacheKafka {
    distribution: Distribution,
    directory: PathBuf,
    options: Options,
    certificates: Certificates,
    brokers: Vec<Broker>,
    // Last, so that it is dropped after the brokers have ended: it removes the directory.
    guard: Guard,
}

impl ApacheKafka {
    /// What a machine lacks to run it, in words; `None` where nothing is lacking.
    pub fn lacking() -> Option<String> {
        distribution::lacking()
    }

    /// Fetches the jars if they are not there yet, starts the brokers, and waits until they serve.
    ///
    /// Ready means that every broker is in the metadata and, with tiering, that `__remote_log_metadata` exists
    /// with a leader for each partition. An error holds the end of the broker's log.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        let distribution = Distribution::fetch(options.version, options.tiered)?;
        for attempt in 1.. {
            let ports = Ports::choose(options.brokers)?;
            match Self::start_on(&distribution, &options, &ports) {
                Err(error) if attempt < PORT_ATTEMPTS_MAX && broker::lost_its_port(&error) => {}
                result => return result,
            }
        }
        unreachable!("the last attempt returns its result")
    }

    fn start_on(distribution: &Distribution, options: &Options, ports: &[Ports]) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("strandline-kafka-").tempdir()?.keep();
        let guard = Guard::start(&directory)?;
        let certificates = write_certificates(&directory)?;
        std::fs::write(directory.join("log4j2.yaml"), LOG4J2)?;
        let kafka = Self {
            distribution: distribution.clone(),
            brokers: Broker::prepare(distribution, &directory, options, ports)?,
            directory,
            options: options.clone(),
            certificates,
            guard,
        };
        for id in 1..=options.brokers {
            kafka.start_broker(id)?;
        }
        kafka.wait_until_ready()?;
        Ok(kafka)
    }

    /// Waits until every running broker is registered and serves, and every partition has a leader.
    pub fn wait_until_ready(&self) -> anyhow::Result<()> {
        let running = self.brokers.iter().filter(|broker| broker.is_started()).count();
        let tiered = self.options.tiered;
        let partitions = usize::try_from(self.options.metadata_partitions)?;
        let brokers = &self.brokers;
        let ready = wait_for("the brokers to serve", START_WITHIN, || {
            for broker in brokers {
                broker.check_running(&self.guard)?;
            }
            if running == 0 {
                bail!("no broker runs");
            }
            // Each has a view of its own, which may be behind those of the others.
            for broker in brokers.iter().filter(|broker| broker.is_started()) {
                let Ok(view) = wire::metadata(broker.ports.plain) else { return Ok(None) };
                let led = view.topics.values().flatten().all(|partition| partition.leader >= 1);
                let has_metadata_topic =
                    view.topics.get("__remote_log_metadata").is_some_and(|topic| topic.len() == partitions);
                if view.brokers.len() != running || !led || (tiered && !has_metadata_topic) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        });
        ready.with_context(|| self.log_ends())
    }

    /// How many brokers there are, running or not.
    pub fn brokers(&self) -> usize {
        self.brokers.len()
    }

    /// `127.0.0.1:PORT` of the first broker's PLAINTEXT listener.
    pub fn bootstrap(&self) -> String {
        self.bootstrap_of(1)
    }

    /// `127.0.0.1:PORT` of one broker's PLAINTEXT listener.
    pub fn bootstrap_of(&self, id: usize) -> String {
        format!("127.0.0.1:{}", self.broker(id).ports.plain)
    }

    /// `127.0.0.1:PORT` of the first broker's SASL_PLAINTEXT listener.
    pub fn sasl(&self) -> String {
        format!("127.0.0.1:{}", self.broker(1).ports.sasl)
    }

    /// `localhost:PORT` of the first broker's SSL listener; the certificate is for that name and for 127.0.0.1.
    pub fn ssl(&self) -> String {
        format!("localhost:{}", self.broker(1).ports.ssl)
    }

    /// `localhost:PORT` of the first broker's SASL_SSL listener, which has the certificate of the SSL listener.
    pub fn sasl_ssl(&self) -> String {
        format!("localhost:{}", self.broker(1).ports.sasl_ssl)
    }

    /// The certificate of the authority that signed the brokers' certificates and the client's.
    pub fn ca_pem(&self) -> &str {
        &self.certificates.ca
    }

    /// A client's certificate and its key: `User:CN=client` on the SSL listener.
    pub fn client_pem(&self) -> (&str, &str) {
        (&self.certificates.client, &self.certificates.client_key)
    }

    /// The directory that the cluster lives in; a place for a test's own files, too.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the plugin's setting `rsm.config.dir` names.
    pub fn tier_dir(&self) -> PathBuf {
        self.directory.join("tier")
    }

    /// What a broker's `log.dirs` names.
    pub fn data_dir(&self, id: usize) -> PathBuf {
        self.broker(id).data_dir.clone()
    }

    /// Ends a broker at once, as a crash does, and waits for its end.
    pub fn kill_broker(&self, id: usize) -> anyhow::Result<()> {
        self.broker(id).kill(&self.guard)
    }

    /// Shuts a broker down in an orderly way and waits for its end.
    pub fn stop_broker(&self, id: usize) -> anyhow::Result<()> {
        self.broker(id).stop(&self.guard)
    }

    /// Starts a broker that was ended, on the same ports and directories. Does not wait; see
    /// [`wait_until_ready`](Self::wait_until_ready).
    pub fn start_broker(&self, id: usize) -> anyhow::Result<()> {
        self.broker(id).spawn(&self.guard)
    }

    /// Gives a broker that was ended other ports for clients, which it tells once it is started again. Its place among the
    /// controllers stays.
    pub fn readdress_broker(&mut self, id: usize) -> anyhow::Result<()> {
        let mut ports: Vec<Ports> = self.brokers.iter().map(|broker| broker.ports).collect();
        ports[id - 1] = ports[id - 1].elsewhere()?;
        self.brokers[id - 1].readdress(&self.directory, &self.options, &ports)
    }

    fn broker(&self, id: usize) -> &Broker {
        &self.brokers[id - 1]
    }

    /// The last lines of each broker's log, for a failure's message.
    pub fn log_ends(&self) -> String {
        self.brokers.iter().map(Broker::log_end).collect()
    }
}

impl Drop for ApacheKafka {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_ends());
        }
        for broker in &self.brokers {
            if let Err(error) = broker.kill(&self.guard) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// What a client needs to trust, and to show, as PEM.
#[derive(Debug)]
struct Certificates {
    ca: String,
    client: String,
    client_key: String,
}

/// Makes an authority, a broker's certificate and a client's, and writes what a broker needs.
fn write_certificates(directory: &Path) -> anyhow::Result<Certificates> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    std::fs::write(directory.join("ca.pem"), &ca)?;
    std::fs::write(directory.join("keystore.pem"), key.serialize_pem() + &certificate.pem())?;
    let client_key = KeyPair::generate()?;
    let mut client = CertificateParams::new(Vec::new())?;
    client.distinguished_name.push(DnType::CommonName, "client");
    let client = client.signed_by(&client_key, &issuer)?.pem();
    Ok(Certificates { ca, client, client_key: client_key.serialize_pem() })
}

const LOG4J2: &str = "\
Configuration:
  Appenders:
    Console:
      name: STDERR
      target: SYSTEM_ERR
      PatternLayout: { pattern: '[%d] %p %m (%c)%n' }
  Loggers:
    Root:
      level: WARN
      AppenderRef: [{ref: STDERR}]
";

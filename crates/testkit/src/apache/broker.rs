//! One broker: its properties, its ports, its process.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::guard::Guard;
use super::run::run_well;
use super::{ADMIN, Distribution, Options, READER, wait_for};

const FORMAT_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(60);
const LOG_END_LINES: usize = 30;

/// The ports of one broker's listeners.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) plain: u16,
    pub(super) sasl: u16,
    pub(super) ssl: u16,
    pub(super) sasl_ssl: u16,
    controller: u16,
}

/// How many ports a broker has.
const PORTS: usize = 5;

/// Below the range from which systems take the ports of outgoing connections, so that a broker which was ended
/// finds its ports free when it is started again.
const PORT_RANGE: std::ops::Range<u16> = 12_000..32_000;

impl Ports {
    /// Ports that are free at this moment. Another process can take one before the broker does.
    pub(super) fn choose(brokers: usize) -> anyhow::Result<Vec<Self>> {
        let mut held = Vec::new();
        for _ in 0..10_000 {
            let random = RandomState::new().build_hasher().finish();
            let span = u64::from(PORT_RANGE.end - PORT_RANGE.start);
            let port = PORT_RANGE.start + u16::try_from(random % span).expect("below a span of 16 bits");
            held.extend(TcpListener::bind(("127.0.0.1", port)).map(|listener| (port, listener)));
            if held.len() == brokers * PORTS {
                break;
            }
        }
        let ports: Vec<u16> = held.into_iter().map(|(port, _)| port).collect();
        if ports.len() < brokers * PORTS {
            bail!("no free ports in {PORT_RANGE:?}");
        }
        let of_broker = |ports: &[u16]| Self {
            plain: ports[0],
            sasl: ports[1],
            ssl: ports[2],
            sasl_ssl: ports[3],
            controller: ports[4],
        };
        Ok(ports.chunks_exact(PORTS).map(of_broker).collect())
    }

    /// Other ports for clients; the controllers know each other by theirs.
    pub(super) fn elsewhere(self) -> anyhow::Result<Self> {
        let other = Self::choose(1)?.remove(0);
        Ok(Self { controller: self.controller, ..other })
    }
}

/// Java's words.
const PORT_TAKEN: &str = "Address already in use";

/// True when a start failed because another process took a port in between.
pub(super) fn lost_its_port(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains(PORT_TAKEN))
}

/// A broker that was prepared, and may run.
#[derive(Debug)]
pub(super) struct Broker {
    id: usize,
    distribution: Distribution,
    pub(super) ports: Ports,
    pub(super) data_dir: PathBuf,
    properties: PathBuf,
    log: PathBuf,
    log4j2: PathBuf,
    /// `None` while the broker does not run. Held for a few lines, never while waiting for an end by itself.
    child: Mutex<Option<Child>>,
}

impl Broker {
    /// Writes the properties of all brokers and formats their directories.
    pub(super) fn prepare(
        distribution: &Distribution,
        directory: &Path,
        options: &Options,
        ports: &[Ports],
    ) -> anyhow::Result<Vec<Self>> {
        let cluster_id = random_cluster_id();
        let mut brokers = Vec::new();
        for (index, &own) in ports.iter().enumerate() {
            let id = index + 1;
            let broker = Self {
                id,
                distribution: distribution.clone(),
                ports: own,
                data_dir: directory.join(format!("data{id}")),
                properties: directory.join(format!("server{id}.properties")),
                log: directory.join(format!("server{id}.log")),
                log4j2: directory.join("log4j2.yaml"),
                child: Mutex::new(None),
            };
            fs::write(&broker.properties, broker.server_properties(directory, options, ports))?;
            brokers.push(broker);
        }
        thread::scope(|scope| {
            let running: Vec<_> =
                brokers.iter().map(|broker| scope.spawn(|| broker.format(&cluster_id))).collect();
            running
                .into_iter()
                .try_for_each(|formatting| formatting.join().expect("formatting does not panic"))
        })?;
        Ok(brokers)
    }

    fn format(&self, cluster_id: &str) -> anyhow::Result<()> {
        let mut java = self.distribution.java(128);
        // Without it the storage test jar's own settings write a storage.log into the current directory.
        java.arg(format!("-Dlog4j2.configurationFile={}", self.log4j2.display()));
        java.args(["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"]).arg(&self.properties);
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            for (name, password) in [ADMIN, READER] {
                java.args(["--add-scram", &format!("{mechanism}=[name={name},password={password}]")]);
            }
        }
        run_well(&mut java, FORMAT_WITHIN).map(drop)
    }

    fn server_properties(&self, directory: &Path, options: &Options, all: &[Ports]) -> String {
        let Ports { plain, sasl, ssl, sasl_ssl, controller } = self.ports;
        let voters: Vec<String> = all
            .iter()
            .enumerate()
            .map(|(index, ports)| format!("{}@127.0.0.1:{}", index + 1, ports.controller))
            .collect();
        let directory = directory.display();
        let replication = options.brokers.min(3);
        let min_isr = replication.div_ceil(2);
        let mut lines = vec![
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", self.id.to_string()),
            ("controller.quorum.voters", voters.join(",")),
            (
                "listeners",
                format!(
                    "PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},\
                     SSL://127.0.0.1:{ssl},SASL_SSL://127.0.0.1:{sasl_ssl},\
                     CONTROLLER://127.0.0.1:{controller}"
                ),
            ),
            (
                "advertised.listeners",
                format!(
                    "PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},\
                     SSL://localhost:{ssl},SASL_SSL://localhost:{sasl_ssl}"
                ),
            ),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,\
                 CONTROLLER:PLAINTEXT"
                    .to_owned(),
            ),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned()),
            ("super.users", format!("User:ANONYMOUS;User:{}", ADMIN.0)),
            ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned()),
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.location", format!("{directory}/keystore.pem")),
            ("ssl.truststore.type", "PEM".to_owned()),
            ("ssl.truststore.location", format!("{directory}/ca.pem")),
            // A client that shows a certificate is the one that it names; one that shows none is anonymous.
            ("listener.name.ssl.ssl.client.auth", "requested".to_owned()),
            ("log.dirs", self.data_dir.display().to_string()),
            ("offsets.topic.replication.factor", replication.to_string()),
            ("transaction.state.log.replication.factor", replication.to_string()),
            ("transaction.state.log.min.isr", min_isr.to_string()),
            ("log.retention.check.interval.ms", "1000".to_owned()),
            ("log.initial.task.delay.ms", "1000".to_owned()),
        ];
        if options.tiered {
            lines.extend([
                ("remote.log.storage.system.enable", "true".to_owned()),
                (
                    "remote.log.storage.manager.class.name",
                    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage".to_owned(),
                ),
                ("remote.log.storage.manager.class.path", String::new()),
                ("remote.log.storage.manager.impl.prefix", "rsm.config.".to_owned()),
                ("rsm.config.dir", format!("{directory}/tier")),
                ("remote.log.metadata.manager.listener.name", "PLAINTEXT".to_owned()),
                ("remote.log.metadata.manager.impl.prefix", "rlmm.config.".to_owned()),
                ("rlmm.config.remote.log.metadata.topic.replication.factor", replication.to_string()),
                (
                    "rlmm.config.remote.log.metadata.topic.num.partitions",
                    options.metadata_partitions.to_string(),
                ),
                ("rlmm.config.remote.log.metadata.topic.min.isr", min_isr.to_string()),
                ("remote.log.manager.task.interval.ms", "1000".to_owned()),
            ]);
        }
        let mut text = String::new();
        for (key, value) in lines {
            let _ = writeln!(text, "{key}={value}");
        }
        let modules = "org.apache.kafka.common.security";
        let (reader, password) = READER;
        let plain = format!("{modules}.plain.PlainLoginModule required user_{reader}=\"{password}\";");
        let scram = format!("{modules}.scram.ScramLoginModule required;");
        for listener in ["sasl_plaintext", "sasl_ssl"] {
            for (mechanism, jaas) in [("plain", &plain), ("scram-sha-256", &scram), ("scram-sha-512", &scram)]
            {
                let _ = writeln!(text, "listener.name.{listener}.{mechanism}.sasl.jaas.config={jaas}");
            }
        }
        for (key, value) in &options.properties {
            let _ = writeln!(text, "{key}={value}");
        }
        text
    }

    /// Makes the broker serve at its ports of `all` from its next start on.
    pub(super) fn readdress(
        &mut self,
        directory: &Path,
        options: &Options,
        all: &[Ports],
    ) -> anyhow::Result<()> {
        if self.is_started() {
            bail!("broker {} runs: end it first", self.id);
        }
        self.ports = all[self.id - 1];
        fs::write(&self.properties, self.server_properties(directory, options, all))?;
        Ok(())
    }

    /// Starts the process; its output goes to the end of its log.
    pub(super) fn spawn(&self, guard: &Guard) -> anyhow::Result<()> {
        let mut child = self.child();
        if child.is_some() {
            bail!("broker {} runs already", self.id);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut java = self.distribution.java(500);
        java.arg(format!("-Dlog4j2.configurationFile={}", self.log4j2.display()));
        java.arg("kafka.Kafka").arg(&self.properties);
        // A group of its own: an interrupt at the terminal is for the test, which then ends the broker.
        java.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = child.insert(java.spawn().context("cannot start a broker")?);
        guard.watch(child.id())
    }

    pub(super) fn is_started(&self) -> bool {
        self.child().is_some()
    }

    /// An error when the process ended by itself.
    pub(super) fn check_running(&self, guard: &Guard) -> anyhow::Result<()> {
        let mut slot = self.child();
        let Some(child) = slot.as_mut() else { return Ok(()) };
        if let Some(status) = child.try_wait()? {
            guard.forget(child.id())?;
            *slot = None;
            let why = if self.log_text().contains(PORT_TAKEN) { PORT_TAKEN } else { "by itself" };
            bail!("broker {} ended: {why}: {status}\n{}", self.id, self.log_end());
        }
        Ok(())
    }

    /// Kills the process and waits for its end.
    pub(super) fn kill(&self, guard: &Guard) -> anyhow::Result<()> {
        let Some(mut child) = self.child().take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).with_context(|| format!("cannot end broker {}", self.id))?;
        guard.forget(child.id())
    }

    /// Asks the process to end and waits; kills it when it does not.
    pub(super) fn stop(&self, guard: &Guard) -> anyhow::Result<()> {
        let Some(id) = self.child().as_ref().map(Child::id) else { return Ok(()) };
        run_well(Command::new("sh").args(["-c", "kill -TERM \"$1\"", "stop", &id.to_string()]), STOP_WITHIN)?;
        let ended = wait_for("a broker to shut down", STOP_WITHIN, || {
            let mut slot = self.child();
            Ok(slot
                .as_mut()
                .map_or(Ok(true), |child| child.try_wait().map(|status| status.is_some()))?
                .then_some(()))
        });
        self.kill(guard)?;
        ended
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of the log.
    pub(super) fn log_end(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        let end = &lines[lines.len().saturating_sub(LOG_END_LINES)..];
        format!("--- the end of {} ---\n{}\n", self.log.display(), end.join("\n"))
    }
}

/// 22 characters that decode to 16 bytes.
fn random_cluster_id() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = || usize::try_from(RandomState::new().build_hasher().finish() % 64).expect("below 64");
    // The first is never `-`, which a tool would take for an option; the last holds two bits.
    let mut id = String::from("S");
    id.extend((0..20).map(|_| char::from(ALPHABET[digit()])));
    id.push('w');
    id
}

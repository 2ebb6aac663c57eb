//! The embedded cluster of one round, what is done to it, and what was seen to be wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strandline_conn::{
    Credentials, MetadataEvent, Observer, Password, Pem, Roots, SaslConfig, Security, TlsConfig,
};
use strandline_meta::{ClusterConfig, ConnectionConfig};
use strandline_protocol::records::Producer;
use strandline_testkit::embedded::{
    ClusterOptions, ClusterView, EmbeddedCluster, Fault, Held, Mechanism, Network, Rule, Sasl, Tls,
};
use tokio::time::{Instant, sleep_until};

use crate::resources::Lateness;
use crate::schedule::{Event, FaultKind, FaultRule, GROUPS, Lie, Protection, Setting, Step, TOPICS};
use crate::truth::{self, Truth};

const USER: (&str, &str) = ("ada", "lovelace");
/// Of which partition of [`CONSUMER_OFFSETS`] a group is, the embedded cluster knows.
pub(crate) const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// So long a broker may take for one answer, and for one dial: shorter than most troubles of a round, so that the client
/// meets both, a broker that is given up and one that comes back in time.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(700);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);
/// With SCRAM a dial is thousands of hashes on both sides, for which a busy machine may take its time.
const CONNECT_TIMEOUT_WITH_SCRAM: Duration = Duration::from_secs(3);
/// How many of the last events a failure shows.
const EVENTS_SHOWN: usize = 60;
const REQUESTS_SHOWN: usize = 60;
/// Violations that are kept; the first ones say most.
const VIOLATIONS_MAX: usize = 20;
const FIRST_RECORDS: u64 = 3;

/// What all tasks of a round share.
pub(crate) struct World {
    pub(crate) embedded: EmbeddedCluster,
    pub(crate) setting: Setting,
    pub(crate) lateness: Lateness,
    truth: Mutex<Truth>,
    bootstrap: String,
    /// Held while the cluster changes: whoever takes it sees no half of a change.
    changes: tokio::sync::Mutex<Changes>,
    calm: AtomicBool,
    began: Instant,
    events: Mutex<VecDeque<String>>,
    counts: Mutex<BTreeMap<String, u64>>,
    violations: Arc<Mutex<Vec<String>>>,
}

/// What whoever changes the cluster keeps.
#[derive(Default)]
pub(crate) struct Changes {
    held: Vec<Held>,
    /// Addresses of brokers that advertise another one.
    truly_at: BTreeMap<i32, String>,
    /// Brokers that ever coordinated a group.
    coordinators: BTreeMap<&'static str, BTreeSet<i32>>,
    extra: Option<i32>,
    /// Number of the next request of the journal that is looked at.
    pub(crate) journal_from: u64,
}

impl Changes {
    pub(crate) fn coordinated(&self, group: &str, broker: i32) -> bool {
        self.coordinators.get(group).is_some_and(|brokers| brokers.contains(&broker))
    }
}

/// What the nth group has committed: topic, partition, next offset.
pub(crate) fn committed(nth: i64) -> Vec<(String, i32, i64)> {
    (0..3).map(|partition| ("orders".to_owned(), partition, 100 * nth + i64::from(partition))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Starts the cluster with its topics, groups and transactions. Within the runtime that serves it.
    pub(crate) fn start(setting: Setting) -> io::Result<Self> {
        let sasl = Sasl {
            users: vec![(USER.0.to_owned(), USER.1.to_owned())],
            mechanisms: vec![Mechanism::ScramSha256],
            session_lifetime: Some(Duration::from_secs(2)),
        };
        let embedded = EmbeddedCluster::start(ClusterOptions {
            brokers: setting.brokers,
            version: setting.version,
            seed: setting.cluster_seed,
            auto_create_topics: true,
            sasl: (setting.protection == Protection::Scram).then_some(sasl),
            tls: (setting.protection == Protection::Tls).then_some(Tls::Server),
            ..ClusterOptions::default()
        })?;
        let world = Self {
            bootstrap: embedded.bootstrap(),
            embedded,
            setting,
            lateness: Lateness::default(),
            truth: Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            calm: AtomicBool::new(false),
            began: Instant::now(),
            events: Mutex::default(),
            counts: Mutex::default(),
            violations: Arc::default(),
        };
        for topic in &TOPICS {
            world.create(topic.name, topic.partitions, false);
        }
        for (group, nth) in GROUPS.into_iter().zip(0..) {
            let offsets = committed(nth);
            let offsets: Vec<(&str, i32, i64)> =
                offsets.iter().map(|(topic, partition, next)| (topic.as_str(), *partition, *next)).collect();
            world.embedded.set_group(group, "Stable", &offsets);
            let producer = Producer { id: 4_000 + nth, epoch: 0, base_sequence: 0 };
            world.embedded.set_transaction(group, producer, "Ongoing", 1, &[("orders", 0)]);
        }
        world.note_replicas(&mut world.changes.try_lock().expect("nobody else knows of it yet"));
        Ok(world)
    }

    /// How a client finds the cluster, through the addresses of its start.
    pub(crate) fn client_config(&self, jitter_seed: u64) -> ClusterConfig {
        let credentials = Credentials { username: USER.0.to_owned(), password: Password::new(USER.1) };
        let security = match self.embedded.certificates() {
            None => Security::Plaintext,
            Some(certificates) => {
                let roots = Roots::Pem(Pem::Inline(Password::new(certificates.ca.clone())));
                Security::Tls(TlsConfig { roots, ..TlsConfig::default() })
            }
        };
        let connection = ConnectionConfig {
            client_id: "soak".to_owned(),
            connect_timeout: match self.setting.protection {
                Protection::Scram => CONNECT_TIMEOUT_WITH_SCRAM,
                Protection::Plaintext | Protection::Tls => CONNECT_TIMEOUT,
            },
            sasl: (self.setting.protection == Protection::Scram)
                .then_some(SaslConfig::ScramSha256(credentials)),
            security,
            observer: Arc::new(Refreshes {
                last_end: Mutex::default(),
                began: self.began,
                violations: Arc::clone(&self.violations),
            }),
            ..ConnectionConfig::default()
        };
        let addresses =
            self.bootstrap.split(',').map(|address| address.parse().expect("an address of our own"));
        ClusterConfig::new(addresses, connection).request_timeout(REQUEST_TIMEOUT).jitter_seed(jitter_seed)
    }

    pub(crate) fn truth(&self) -> MutexGuard<'_, Truth> {
        lock(&self.truth)
    }

    pub(crate) async fn changes(&self) -> tokio::sync::MutexGuard<'_, Changes> {
        self.changes.lock().await
    }

    /// True once nothing befalls the cluster any more, and every question must be answered.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self, what: String) {
        *lock(&self.counts).entry(what).or_insert(0) += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        lock(&self.counts).clone()
    }

    /// Notes something that must not be, and ends the round.
    pub(crate) fn violation(&self, what: String) {
        note(&self.violations, self.began, what);
    }

    pub(crate) fn is_violated(&self) -> bool {
        !lock(&self.violations).is_empty()
    }

    /// What was wrong, with the last events and requests; `None` if nothing was.
    pub(crate) fn failure(&self) -> Option<String> {
        let violations = lock(&self.violations).clone();
        if violations.is_empty() {
            return None;
        }
        let mut text = format!("{:?}\n", self.setting);
        for violation in violations {
            let _ = writeln!(text, "VIOLATION {violation}");
        }
        let _ = writeln!(text, "the last events:");
        for event in lock(&self.events).iter() {
            let _ = writeln!(text, "  {event}");
        }
        let _ = writeln!(text, "the last requests:");
        let journal = self.embedded.journal();
        for entry in &journal[journal.len().saturating_sub(REQUESTS_SHOWN)..] {
            let _ = writeln!(text, "  {} {entry}", entry.number);
        }
        Some(text)
    }

    /// Does what the schedule says, when it says so, until its end or a violation.
    pub(crate) async fn run(&self, steps: Vec<Step>) -> io::Result<()> {
        let began = Instant::now();
        for Step { at, event } in steps {
            sleep_until(began + at).await;
            if self.is_violated() {
                break;
            }
            self.apply(event).await?;
        }
        Ok(())
    }

    async fn apply(&self, event: Event) -> io::Result<()> {
        self.note_event(&event);
        let mut changes = self.changes.lock().await;
        self.change(&mut changes, event).await?;
        self.note_replicas(&mut changes);
        Ok(())
    }

    fn note_event(&self, event: &Event) {
        let mut events = lock(&self.events);
        if events.len() == EVENTS_SHOWN {
            events.pop_front();
        }
        events.push_back(format!("{:7.3} s {event:?}", self.began.elapsed().as_secs_f64()));
    }

    async fn change(&self, changes: &mut Changes, event: Event) -> io::Result<()> {
        let embedded = &self.embedded;
        match event {
            Event::Network { broker, network } => embedded.set_network(broker, network).await?,
            Event::Latency { broker, latency } => embedded.set_latency(broker, latency),
            Event::CloseConnections { broker } => embedded.close_connections(broker).await,
            Event::Stop { broker } => embedded.stop_broker(broker).await?,
            Event::Restart { broker } => embedded.restart_broker(broker).await?,
            Event::Readdress { broker } => embedded.readdress_broker(broker).await?,
            Event::AdvertiseNowhere { broker } => {
                changes.truly_at.insert(broker, embedded.bootstrap_of(broker));
                embedded.advertise(broker, "127.0.0.1", 1);
            }
            Event::AdvertiseTruth { broker } => self.advertise_truth(changes, broker),
            Event::AddBroker => changes.extra = Some(embedded.add_broker().await?),
            Event::RemoveBroker => {
                if let Some(extra) = changes.extra.take() {
                    embedded.remove_broker(extra).await?;
                }
            }
            Event::MoveLeader { topic, partition, steps } => self.move_leader(topic, partition, steps),
            Event::LoseLeader { topic, partition } => embedded.move_leader(topic, partition, -1),
            Event::MoveController { broker } => embedded.move_controller(broker),
            Event::MoveCoordinator { group, steps } => self.move_coordinator(group, steps),
            Event::Append { topic, partition, records } => self.append(topic, partition, records),
            Event::Recreate { topic } => {
                let partitions =
                    TOPICS.iter().find(|shape| shape.name == topic).map_or(1, |shape| shape.partitions);
                self.create(topic, partitions, true);
            }
            Event::View { broker, lie } => embedded.freeze_view(broker, |view| tell(view, lie)),
            Event::Truth { broker } => embedded.thaw_view(broker),
            Event::Fault { rule } => embedded.script(self.rule(changes, rule)),
            Event::Release => changes.held.drain(..).for_each(|held| held.release()),
            Event::ClearFaults => embedded.clear_script(),
        }
        Ok(())
    }

    fn rule(&self, changes: &mut Changes, rule: FaultRule) -> Rule {
        let fault = match rule.kind {
            FaultKind::Error(code) => Fault::Error(code),
            FaultKind::Delay(delay) => Fault::Delay(delay),
            FaultKind::Hold => {
                let held = Held::default();
                changes.held.push(held.clone());
                Fault::Hold(held)
            }
            FaultKind::Drop => Fault::Drop,
            FaultKind::Close => Fault::Close,
            FaultKind::CloseAfter(bytes) => Fault::CloseAfter(bytes),
            FaultKind::ApplyThenLose => Fault::ApplyThenLose,
            FaultKind::Trickle(bytes, pause) => Fault::Trickle { bytes, pause },
            FaultKind::Garbage(bytes) => Fault::Garbage(bytes),
            FaultKind::WrongCorrelationId => Fault::WrongCorrelationId,
            FaultKind::Twice => Fault::Twice,
            FaultKind::Throttle(wait) => Fault::Throttle(wait),
        };
        let made = Rule::new(fault).times(rule.times);
        let made = rule.broker.into_iter().fold(made, Rule::broker);
        rule.api.into_iter().fold(made, Rule::api)
    }

    fn create(&self, topic: &'static str, partitions: i32, again: bool) {
        let starts = self.truth().creating(topic, partitions);
        let id = match again {
            true => self.embedded.recreate_topic(topic),
            false => self.embedded.create_topic_with(
                topic,
                partitions as usize,
                2,
                &[("retention.ms", "86400001")],
            ),
        };
        for (partition, start) in (0..).zip(starts) {
            self.append(topic, partition, FIRST_RECORDS);
            self.embedded.delete_records(topic, partition, start);
        }
        self.truth().created(topic, id);
    }

    fn append(&self, topic: &'static str, partition: i32, records: u64) {
        let offsets = self.truth().appending(topic, partition, records);
        self.embedded.append_raw(topic, partition, truth::batch(topic, partition, offsets));
        self.truth().appended(topic, partition);
    }

    /// Leads with a living replica, so many steps from the present leader, or with none where none lives.
    fn move_leader(&self, topic: &str, partition: i32, steps: u64) {
        let view = self.embedded.view();
        let told = &view.topics[topic].partitions[partition as usize];
        let alive: Vec<i32> = told
            .replicas
            .iter()
            .copied()
            .filter(|id| view.brokers.iter().any(|broker| broker.id == *id))
            .collect();
        let present = alive.iter().position(|id| *id == told.leader).unwrap_or(0);
        let next = if alive.is_empty() { -1 } else { alive[(present + steps as usize) % alive.len()] };
        self.embedded.move_leader(topic, partition, next);
    }

    /// The coordinator is whoever leads the group's partition of a topic; which one that is, is found by moving.
    fn move_coordinator(&self, group: &str, steps: u64) {
        let Some(present) = self.embedded.group_coordinator(group) else { return };
        let led: Vec<i32> = (0..)
            .zip(&self.embedded.view().topics[CONSUMER_OFFSETS].partitions)
            .filter(|(_, partition)| partition.leader == present)
            .map(|(index, _)| index)
            .collect();
        for partition in led {
            self.move_leader(CONSUMER_OFFSETS, partition, steps);
            if self.embedded.group_coordinator(group) != Some(present) {
                return;
            }
        }
    }

    fn advertise_truth(&self, changes: &mut Changes, broker: i32) {
        let Some(address) = changes.truly_at.remove(&broker) else { return };
        let (host, port) = address.rsplit_once(':').expect("HOST:PORT");
        self.embedded.advertise(broker, host, port.parse().expect("a port"));
    }

    fn note_replicas(&self, changes: &mut Changes) {
        let view = self.embedded.view();
        let mut truth = self.truth();
        for topic in &TOPICS {
            for (partition, told) in (0..).zip(&view.topics[topic.name].partitions) {
                truth.replicas(topic.name, partition, &told.replicas);
            }
        }
        for group in GROUPS {
            let coordinator = self.embedded.group_coordinator(group);
            changes.coordinators.entry(group).or_default().extend(coordinator);
        }
    }

    /// Ends every fault: all brokers serve and tell the truth, every partition has a leader.
    pub(crate) async fn heal(&self) -> io::Result<()> {
        let mut changes = self.changes.lock().await;
        let embedded = &self.embedded;
        embedded.clear_script();
        changes.held.drain(..).for_each(|held| held.release());
        embedded.thaw_views();
        for broker in 1..=self.setting.brokers {
            embedded.restart_broker(broker).await?;
            embedded.set_network(broker, Network::Up).await?;
            embedded.set_latency(broker, Duration::ZERO);
            self.advertise_truth(&mut changes, broker);
        }
        let view = embedded.view();
        for (name, topic) in &view.topics {
            let leaderless = (0..).zip(&topic.partitions).filter(|(_, partition)| partition.leader == -1);
            leaderless.for_each(|(partition, _)| self.move_leader(name, partition, 0));
        }
        self.note_replicas(&mut changes);
        self.calm.store(true, Ordering::Release);
        Ok(())
    }

    /// Connections that the brokers have open.
    pub(crate) async fn open_connections(&self) -> usize {
        let mut open = 0;
        for broker in self.embedded.view().brokers {
            open += self.embedded.open_connections(broker.id).await;
        }
        open
    }
}

fn note(violations: &Mutex<Vec<String>>, began: Instant, what: String) {
    let mut violations = lock(violations);
    if violations.len() < VIOLATIONS_MAX {
        violations.push(format!("at {:.3} s: {what}", began.elapsed().as_secs_f64()));
    }
}

/// Sees every refresh of one client.
#[derive(Debug)]
struct Refreshes {
    last_end: Mutex<Option<Instant>>,
    began: Instant,
    violations: Arc<Mutex<Vec<String>>>,
}

impl Observer for Refreshes {
    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        let now = Instant::now();
        // The clock was read a little earlier for `took` than for `now`.
        let since = now.checked_sub(event.took).unwrap_or(self.began) + Duration::from_micros(500);
        if let Some(last_end) = lock(&self.last_end).replace(now)
            && since < last_end
        {
            let overlap = last_end - since;
            note(&self.violations, self.began, format!("two refreshes at once, for {overlap:?}: {event:?}"));
        }
        if !event.epoch_regressions.is_empty() {
            note(&self.violations, self.began, format!("epochs went back: {event:?}"));
        }
    }
}

fn tell(view: &mut ClusterView, lie: Lie) {
    let partitions = view.topics.values_mut().flat_map(|topic| &mut topic.partitions);
    match lie {
        Lie::Stale => {}
        Lie::NoBrokers => view.brokers.clear(),
        Lie::NoTopics => view.topics.clear(),
        Lie::WrongLeaders => partitions.for_each(|partition| {
            let other = partition.replicas.iter().copied().find(|id| *id != partition.leader);
            partition.leader = other.unwrap_or(partition.leader);
        }),
        Lie::NoEpochs => partitions.for_each(|partition| partition.leader_epoch = -1),
    }
}

/// A [`World`] that tasks of both runtimes share.
pub(crate) type SharedWorld = Arc<World>;

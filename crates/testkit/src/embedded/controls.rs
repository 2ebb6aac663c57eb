//! What a test can do to the cluster; `controls_of_topics.rs` has what it can do to topics.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use strandline_protocol::records::Producer;
use strandline_protocol::{ApiKey, VersionRange};

use super::network::Server;
use super::state::{Committed, GROUP_TOPIC, GroupState, TRANSACTION_TOPIC};
use super::transactions::TransactionState;
use super::view::ClusterView;
use super::{Acl, Certificates, EmbeddedCluster, JournalEntry, KafkaVersion, Network, Rule, start_broker};

/// Brokers and their network.
impl EmbeddedCluster {
    /// The address of every living broker as told, comma-separated: what a client is given.
    pub fn bootstrap(&self) -> String {
        let brokers = self.shared.state().view().brokers;
        let addresses: Vec<String> =
            brokers.iter().map(|broker| format!("{}:{}", broker.host, broker.port)).collect();
        addresses.join(",")
    }

    /// `HOST:PORT` of one broker as told.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn bootstrap_of(&self, broker: i32) -> String {
        let state = self.shared.state();
        let broker = state.brokers.get(&broker).unwrap_or_else(|| panic!("there is no broker {broker}"));
        format!("{}:{}", broker.host, broker.port)
    }

    /// What a client needs to trust, and to show; `None` without TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Another client certificate of the cluster's authority, for `User:CN=COMMON_NAME`: one to change to, or somebody
    /// else's. The name must need no escapes in a distinguished name.
    ///
    /// # Panics
    /// The cluster speaks no TLS.
    pub fn issue_certificate(&self, common_name: &str) -> Certificates {
        let authority = self.authority.as_ref().expect("the cluster speaks TLS");
        let (pem, der) =
            authority.issue(common_name).unwrap_or_else(|error| panic!("no certificate: {error}"));
        self.shared.state().certified.insert(der, format!("User:CN={common_name}"));
        pem
    }

    /// The cluster id.
    pub fn cluster_id(&self) -> String {
        self.shared.state().cluster_id.clone()
    }

    /// Changes what connections to a broker meet. The cluster does not notice: the broker stays in Metadata and keeps
    /// its partitions. Returns when it is so.
    ///
    /// # Errors
    /// The port cannot be had back.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn set_network(&self, broker: i32, network: Network) -> io::Result<()> {
        let mut servers = self.servers.lock().await;
        server(&mut servers, broker).set_network(&self.shared, broker, network).await
    }

    /// Delays every answer of a broker.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn set_latency(&self, broker: i32, latency: Duration) {
        let mut state = self.shared.state();
        state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}")).latency =
            latency;
    }

    /// Closes a broker's connections once; new ones are served. Returns when they are closed.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn close_connections(&self, broker: i32) {
        server(&mut *self.servers.lock().await, broker).close_connections().await;
    }

    /// Connections that a broker has open now.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn open_connections(&self, broker: i32) -> usize {
        server(&mut *self.servers.lock().await, broker).open_connections()
    }

    /// Ends a broker, and the cluster notices: its connections close, new ones are refused, its partitions get another
    /// leader out of the in-sync replicas or none, and so does the controller.
    ///
    /// # Errors
    /// The port cannot be kept for its return.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn stop_broker(&self, broker: i32) -> io::Result<()> {
        let mut servers = self.servers.lock().await;
        let server = server(&mut servers, broker);
        server.set_network(&self.shared, broker, Network::Refuse).await?;
        server.close_connections().await;
        let mut state = self.shared.state();
        if let Some(broker) = state.brokers.get_mut(&broker) {
            broker.alive = false;
        }
        state.broker_is_gone(broker);
        drop(state);
        self.shared.changed();
        Ok(())
    }

    /// Starts a stopped broker again, at its old address. It follows, and leads what nobody else leads.
    ///
    /// # Errors
    /// The port cannot be had back.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn restart_broker(&self, broker: i32) -> io::Result<()> {
        self.set_network(broker, Network::Up).await?;
        let mut state = self.shared.state();
        if let Some(broker) = state.brokers.get_mut(&broker) {
            broker.alive = true;
        }
        state.broker_is_back(broker);
        drop(state);
        self.shared.changed();
        Ok(())
    }

    /// Gives a broker another port, which it tells from now on. At the old one connections close and new ones are
    /// refused.
    ///
    /// # Errors
    /// The loopback interface gives no port.
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn readdress_broker(&self, broker: i32) -> io::Result<()> {
        let new = Server::start(&self.shared, broker, 0)?;
        let mut servers = self.servers.lock().await;
        let old = std::mem::replace(server(&mut servers, broker), new);
        old.close_connections().await;
        let port = servers[&broker].address.port();
        if let Some(broker) = self.shared.state().brokers.get_mut(&broker) {
            broker.port = port;
        }
        Ok(())
    }

    /// Makes a broker serve what another Kafka does, as in the midst of an upgrade. A real broker closes its connections
    /// for that: see [`close_connections`](Self::close_connections).
    ///
    /// # Panics
    /// There is no such broker.
    pub fn set_version(&self, broker: i32, version: KafkaVersion) {
        let mut state = self.shared.state();
        state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}")).kafka =
            Some(version);
    }

    /// Makes a broker serve one API in these versions alone, or (`None`) not at all.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn limit_versions(&self, broker: i32, api: ApiKey, versions: Option<VersionRange>) {
        let mut state = self.shared.state();
        let broker = state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}"));
        broker.versions.insert(api, versions);
    }

    /// Makes a broker tell another address than the one it serves at: an unreachable listener, a proxy.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn advertise(&self, broker: i32, host: &str, port: u16) {
        let mut state = self.shared.state();
        let broker = state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}"));
        (broker.host, broker.port) = (host.to_owned(), port);
    }

    /// Adds a broker without partitions; its id is one above the highest.
    ///
    /// # Errors
    /// The loopback interface gives no port.
    pub async fn add_broker(&self) -> io::Result<i32> {
        let mut servers = self.servers.lock().await;
        let id = servers.keys().last().map_or(1, |id| id + 1);
        servers.insert(id, start_broker(&self.shared, id)?);
        Ok(id)
    }

    /// Ends a broker for good: it is as if stopped, and then forgotten.
    ///
    /// # Errors
    /// As [`stop_broker`](Self::stop_broker).
    ///
    /// # Panics
    /// There is no such broker.
    pub async fn remove_broker(&self, broker: i32) -> io::Result<()> {
        self.stop_broker(broker).await?;
        self.servers.lock().await.remove(&broker);
        self.shared.state().brokers.remove(&broker);
        Ok(())
    }
}

fn server(servers: &mut BTreeMap<i32, Server>, broker: i32) -> &mut Server {
    servers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}"))
}

/// What the brokers tell, and what befalls requests.
impl EmbeddedCluster {
    /// The cluster as it truly is.
    pub fn view(&self) -> ClusterView {
        self.shared.state().view()
    }

    /// Makes a broker tell the cluster as it is now, whatever happens to it later; and what `change` makes of that:
    /// no brokers, a wrong leader, an older epoch. It goes into Metadata, DescribeCluster, DescribeTopicPartitions and the
    /// hints about leaders; what the broker leads in truth stays as it is.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn freeze_view(&self, broker: i32, change: impl FnOnce(&mut ClusterView)) {
        let mut state = self.shared.state();
        let mut view = state.view();
        change(&mut view);
        state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}")).told =
            Some(view);
    }

    /// Makes a broker tell the truth again.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn thaw_view(&self, broker: i32) {
        let mut state = self.shared.state();
        state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}")).told = None;
    }

    /// Makes every broker tell the truth again.
    pub fn thaw_views(&self) {
        self.shared.state().brokers.values_mut().for_each(|broker| broker.told = None);
    }

    /// Adds a rule, after those that are there.
    pub fn script(&self, rule: Rule) {
        self.shared.state().rules.push(rule);
    }

    /// Says what stands in a broker's `server.properties`: `remote.log.storage.system.enable`, say. DescribeConfigs tells it,
    /// nothing else heeds it.
    ///
    /// # Panics
    /// There is no such broker.
    pub fn set_broker_config(&self, broker: i32, name: &str, value: &str) {
        let mut state = self.shared.state();
        let broker = state.brokers.get_mut(&broker).unwrap_or_else(|| panic!("there is no broker {broker}"));
        broker.static_configs.insert(name.to_owned(), value.to_owned());
    }

    /// Makes a broker coordinate a group from now on: it leads the partition of `__consumer_offsets` that keeps the group, which is
    /// made if it is not there.
    pub fn move_group_coordinator(&self, group: &str, broker: i32) {
        self.move_coordinator(GROUP_TOPIC, group, broker);
    }

    /// Makes a broker coordinate a transactional id from now on, as [`move_group_coordinator`](Self::move_group_coordinator).
    pub fn move_transaction_coordinator(&self, transactional_id: &str, broker: i32) {
        self.move_coordinator(TRANSACTION_TOPIC, transactional_id, broker);
    }

    fn move_coordinator(&self, topic: &str, key: &str, broker: i32) {
        let mut state = self.shared.state();
        state.ensure_coordinators(topic);
        let partition = state.coordinating(topic, key).expect("the topic has partitions");
        drop(state);
        self.move_leader(topic, i32::try_from(partition).expect("there are 50"), broker);
    }

    /// The broker that coordinates a transactional id now.
    pub fn transaction_coordinator(&self, transactional_id: &str) -> Option<i32> {
        self.shared.state().coordinator(TRANSACTION_TOPIC, transactional_id)
    }

    /// Lets principals do what these rights say, and nothing else; `None` lets everybody do everything, as at the start.
    pub fn set_acls(&self, acls: Option<Vec<Acl>>) {
        self.shared.state().acls = acls;
    }

    /// Removes every rule.
    pub fn clear_script(&self) {
        self.shared.state().rules.clear();
    }

    /// Makes a broker forget every fetch session, as one does whose cache of sessions is full.
    pub fn forget_fetch_sessions(&self, broker: i32) {
        self.shared.state().sessions.retain(|_, session| session.broker != broker);
    }

    /// Every request so far, in the order in which they were read; the oldest go once there are 65 536.
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.shared.state().journal.iter().cloned().collect()
    }

    /// The requests from that number on, as far as they are kept.
    pub fn journal_since(&self, number: u64) -> Vec<JournalEntry> {
        let state = self.shared.state();
        let older = state.journal.partition_point(|entry| entry.number < number);
        state.journal.range(older..).cloned().collect()
    }

    /// Waits until the journal is as `wanted` says, and gives it.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing.
    pub async fn journal_when(&self, wanted: impl Fn(&[JournalEntry]) -> bool) -> Vec<JournalEntry> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let journal = self.journal();
            if wanted(&journal) {
                return journal;
            }
            changes.changed().await.expect("the sender lives in the cluster");
        }
    }

    /// How many connections were ever served.
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// Makes a broker the controller.
    pub fn move_controller(&self, broker: i32) {
        self.shared.state().controller = broker;
    }

    /// Says that a consumer group exists, in a state as Kafka spells it (`Stable`), and what it committed: topic,
    /// partition, next offset. Makes `__consumer_offsets` if it is not there.
    pub fn set_group(&self, group: &str, state: &str, offsets: &[(&str, i32, i64)]) {
        let committed =
            |offset: &i64| Committed { offset: *offset, leader_epoch: -1, metadata: String::new() };
        let offsets = offsets
            .iter()
            .map(|(topic, partition, offset)| ((topic.to_string(), *partition), committed(offset)));
        let entry = GroupState {
            state: state.to_owned(),
            protocol_type: "consumer".to_owned(),
            offsets: offsets.collect(),
        };
        let mut state = self.shared.state();
        state.ensure_coordinators(GROUP_TOPIC);
        state.groups.insert(group.to_owned(), entry);
    }

    /// Says that a transactional id is in a state as Kafka spells it (`Ongoing`), since a time in milliseconds since
    /// 1970, with these partitions. Makes `__transaction_state` if it is not there. The records of its batches are
    /// appended apart.
    pub fn set_transaction(
        &self,
        id: &str,
        producer: Producer,
        transaction_state: &str,
        start_ms: i64,
        partitions: &[(&str, i32)],
    ) {
        let mut state = self.shared.state();
        state.ensure_coordinators(TRANSACTION_TOPIC);
        let entry = TransactionState {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            last_epoch: -1,
            state: transaction_state.to_owned(),
            start_ms,
            timeout_ms: 60_000,
            partitions: partitions.iter().map(|(topic, partition)| (topic.to_string(), *partition)).collect(),
        };
        state.transactions.insert(id.to_owned(), entry);
    }

    /// The broker that coordinates a group now. It moves with the leader of its partition of `__consumer_offsets`.
    pub fn group_coordinator(&self, group: &str) -> Option<i32> {
        self.shared.state().coordinator(GROUP_TOPIC, group)
    }
}

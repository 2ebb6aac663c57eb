//! What the cluster is at a moment: brokers, topics, logs. One value behind one lock, from which every broker answers.

use std::collections::{BTreeMap, VecDeque};

use strandline_protocol::records::Producer;
use strandline_protocol::{ApiKey, ErrorCode, TopicId, Uuid, VersionRange};

use super::acl::Acl;
use super::api::{FetchSession, KafkaVersion};
use super::journal::JournalEntry;
use super::log::PartitionLog;
use super::script::Rule;
use super::transactions::{Markers, TransactionState};
use super::view::{BrokerView, ClusterView, PartitionView, TopicView};
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cluster_id: String,
    pub(crate) controller: i32,
    pub(crate) brokers: BTreeMap<i32, BrokerState>,
    pub(crate) topics: BTreeMap<String, TopicState>,
    pub(crate) groups: BTreeMap<String, GroupState>,
    pub(crate) transactions: BTreeMap<String, TransactionState>,
    pub(crate) sessions: BTreeMap<i32, FetchSession>,
    pub(crate) next_producer_id: i64,
    pub(crate) auto_create: bool,
    /// `None`: everybody may do everything.
    pub(crate) acls: Option<Vec<Acl>>,
    /// Who a client is that shows this certificate (DER).
    pub(crate) certified: BTreeMap<Vec<u8>, String>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) journal: VecDeque<JournalEntry>,
    pub(crate) journaled: u64,
    pub(crate) connections: u64,
    pub(crate) random: Random,
}

#[derive(Debug)]
pub(crate) struct BrokerState {
    /// Host and port that the others tell of it.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// False once the cluster has noticed that it is gone.
    pub(crate) alive: bool,
    pub(crate) latency: std::time::Duration,
    /// What it tells instead of the truth.
    pub(crate) told: Option<ClusterView>,
    /// What was altered while it runs.
    pub(crate) configs: BTreeMap<String, String>,
    /// What stands in its `server.properties`.
    pub(crate) static_configs: BTreeMap<String, String>,
    /// Whose versions it serves, where that is not what the whole cluster serves.
    pub(crate) kafka: Option<KafkaVersion>,
    /// APIs that it serves in other versions than its Kafka does.
    pub(crate) versions: BTreeMap<ApiKey, Option<VersionRange>>,
}

#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) id: TopicId,
    pub(crate) configs: BTreeMap<String, String>,
    pub(crate) partitions: Vec<PartitionState>,
}

#[derive(Debug, Default)]
pub(crate) struct PartitionState {
    /// -1 while there is none.
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) replicas: Vec<i32>,
    pub(crate) isr: Vec<i32>,
    pub(crate) log: PartitionLog,
}

/// A consumer group as others see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) state: String,
    /// Empty for a group that never had members.
    pub(crate) protocol_type: String,
    pub(crate) offsets: BTreeMap<(String, i32), Committed>,
}

/// What a group committed for a partition.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    /// -1 where the group did not say it.
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
}

/// The topics whose partitions' leaders coordinate groups and transactions.
pub(crate) const GROUP_TOPIC: &str = "__consumer_offsets";
pub(crate) const TRANSACTION_TOPIC: &str = "__transaction_state";

/// Names that Kafka calls internal.
pub(crate) const INTERNAL: [&str; 2] = [GROUP_TOPIC, TRANSACTION_TOPIC];

/// Kafka's default of `offsets.topic.num.partitions` and `transaction.state.log.num.partitions`.
const COORDINATOR_PARTITIONS: usize = 50;

impl State {
    /// The cluster as it truly is.
    pub(crate) fn view(&self) -> ClusterView {
        let alive = self.brokers.iter().filter(|(_, broker)| broker.alive);
        ClusterView {
            cluster_id: self.cluster_id.clone(),
            controller: self.controller,
            brokers: alive
                .map(|(id, broker)| BrokerView { id: *id, host: broker.host.clone(), port: broker.port })
                .collect(),
            topics: self.topics.iter().map(|(name, topic)| (name.clone(), self.topic_view(topic))).collect(),
        }
    }

    fn topic_view(&self, topic: &TopicState) -> TopicView {
        let partition = |partition: &PartitionState| PartitionView {
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
            replicas: partition.replicas.clone(),
            isr: partition.isr.clone(),
            offline: partition.replicas.iter().copied().filter(|id| !self.is_alive(*id)).collect(),
        };
        TopicView { id: topic.id, partitions: topic.partitions.iter().map(partition).collect() }
    }

    /// The cluster as this broker tells it.
    pub(crate) fn told_by(&self, broker: i32) -> ClusterView {
        self.brokers.get(&broker).and_then(|broker| broker.told.clone()).unwrap_or_else(|| self.view())
    }

    /// A partition's leader (-1: none), its epoch and where it is, as this broker tells it.
    pub(crate) fn told_leader(
        &self,
        broker: i32,
        topic: &str,
        partition: i32,
    ) -> Option<(i32, i32, Option<BrokerView>)> {
        let view = self.told_by(broker);
        let partition = view.topics.get(topic)?.partitions.get(usize::try_from(partition).ok()?)?;
        let leader = view.brokers.iter().find(|broker| broker.id == partition.leader).cloned();
        Some((partition.leader, partition.leader_epoch, leader))
    }

    pub(crate) fn is_alive(&self, broker: i32) -> bool {
        self.brokers.get(&broker).is_some_and(|broker| broker.alive)
    }

    pub(crate) fn alive(&self) -> Vec<i32> {
        self.brokers.iter().filter(|(_, broker)| broker.alive).map(|(id, _)| *id).collect()
    }

    pub(crate) fn partition(&mut self, topic: &str, partition: i32) -> Option<&mut PartitionState> {
        let index = usize::try_from(partition).ok()?;
        self.topics.get_mut(topic)?.partitions.get_mut(index)
    }

    /// The partition, if this broker leads it and the caller knows it by its current epoch (-1: does not say).
    ///
    /// Source: `Partition#checkCurrentLeaderEpoch`, `ReplicaManager#getPartitionOrError`.
    pub(crate) fn led(
        &mut self,
        broker: i32,
        topic: &str,
        partition: i32,
        known_epoch: i32,
    ) -> Result<&mut PartitionState, ErrorCode> {
        let partition = self.replicated(broker, topic, partition, known_epoch)?;
        if partition.leader != broker {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        Ok(partition)
    }

    /// The partition, if this broker has a replica of it: a leader or a follower.
    pub(crate) fn replicated(
        &mut self,
        broker: i32,
        topic: &str,
        partition: i32,
        known_epoch: i32,
    ) -> Result<&mut PartitionState, ErrorCode> {
        let partition = self.partition(topic, partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if !partition.replicas.contains(&broker) {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        match known_epoch {
            -1 => Ok(partition),
            known if known < partition.leader_epoch => Err(ErrorCode::FencedLeaderEpoch),
            known if known > partition.leader_epoch => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(partition),
        }
    }

    pub(crate) fn name_of(&self, id: Uuid) -> Option<String> {
        self.topics.iter().find(|(_, topic)| topic.id.0 == id).map(|(name, _)| name.clone())
    }

    /// Makes a topic whose replicas go round the living brokers.
    pub(crate) fn create_topic(
        &mut self,
        name: &str,
        partitions: usize,
        replication: usize,
        configs: BTreeMap<String, String>,
    ) -> TopicId {
        let id = TopicId(self.random.uuid());
        self.topics.insert(name.to_owned(), TopicState { id, configs, partitions: Vec::new() });
        self.add_partitions(name, partitions, replication);
        id
    }

    /// Makes a topic whose leaders coordinate, if it is not there; true if it was made now.
    pub(crate) fn ensure_coordinators(&mut self, topic: &str) -> bool {
        if self.topics.contains_key(topic) {
            return false;
        }
        let replication = self.alive().len().min(3);
        let compacted = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
        self.create_topic(topic, COORDINATOR_PARTITIONS, replication, compacted);
        true
    }

    /// Makes the topic have `count` partitions.
    pub(crate) fn add_partitions(&mut self, name: &str, count: usize, replication: usize) {
        let alive = self.alive();
        // Where no broker lives, replicas are placed on those that may come back.
        let places = if alive.is_empty() { self.brokers.keys().copied().collect() } else { alive.clone() };
        let Some(topic) = self.topics.get_mut(name) else { return };
        for index in topic.partitions.len()..count {
            let replicas: Vec<i32> = places.iter().cycle().skip(index).take(replication).copied().collect();
            let leader = replicas.first().copied().filter(|id| alive.contains(id)).unwrap_or(-1);
            let isr = replicas.clone();
            let mut partition = PartitionState { leader, replicas, isr, ..PartitionState::default() };
            partition.log.begin_epoch(0);
            topic.partitions.push(partition);
        }
    }

    /// Replicas by hand, all of them in sync, the leader first.
    pub(crate) fn assign(&mut self, topic: &str, partition: i32, replicas: &[i32]) {
        if let Some(partition) = self.partition(topic, partition) {
            partition.replicas = replicas.to_vec();
            partition.isr = replicas.to_vec();
            partition.leader = replicas.first().copied().unwrap_or(-1);
        }
    }

    /// What a controller does when a broker goes: its partitions get the next living replica, or none.
    pub(crate) fn broker_is_gone(&mut self, gone: i32) {
        let alive = self.alive();
        self.sessions.retain(|_, session| session.broker != gone);
        for partition in self.topics.values_mut().flat_map(|topic| &mut topic.partitions) {
            if partition.isr.len() > 1 {
                partition.isr.retain(|id| *id != gone);
            }
            if partition.leader == gone {
                let next = partition.isr.iter().copied().find(|id| alive.contains(id));
                partition.lead(next.unwrap_or(-1));
            }
        }
        if self.controller == gone {
            self.controller = alive.first().copied().unwrap_or(-1);
        }
    }

    /// What a controller does when a broker comes back.
    pub(crate) fn broker_is_back(&mut self, back: i32) {
        for partition in self.topics.values_mut().flat_map(|topic| &mut topic.partitions) {
            if partition.replicas.contains(&back) && !partition.isr.contains(&back) {
                partition.isr.push(back);
            }
            if partition.leader == -1 && partition.isr.contains(&back) {
                partition.lead(back);
            }
        }
        if self.controller == -1 {
            self.controller = back;
        }
    }

    /// The broker that coordinates a group or a transactional id: the leader of its partition of `topic`; `None`
    /// while there is none.
    ///
    /// Source: `GroupCoordinator#partitionFor`.
    pub(crate) fn coordinator(&self, topic: &str, key: &str) -> Option<i32> {
        let leader = self.topics.get(topic)?.partitions[self.coordinating(topic, key)?].leader;
        Some(leader).filter(|leader| *leader != -1)
    }

    /// The partition of `topic` that keeps a group or a transactional id; `None` without the topic.
    pub(crate) fn coordinating(&self, topic: &str, key: &str) -> Option<usize> {
        let partitions = &self.topics.get(topic)?.partitions;
        let hash =
            key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
        let hash = hash.checked_abs().unwrap_or(0);
        usize::try_from(hash).ok()?.checked_rem(partitions.len())
    }
}

impl State {
    /// Writes what ends a transaction into its partitions, those that are still there.
    pub(crate) fn write_markers(&mut self, transactional_id: &str, markers: Markers) {
        let coordinator_epoch = self.coordinator_epoch(transactional_id);
        let producer = Producer { id: markers.producer_id, epoch: markers.producer_epoch, base_sequence: -1 };
        for (topic, partition) in markers.partitions {
            if let Some(partition) = self.partition(&topic, partition) {
                partition
                    .log
                    .end_transaction(producer, markers.commit, coordinator_epoch)
                    .expect("a marker is a batch that can be written");
            }
        }
    }

    /// The leader epoch of the partition that keeps a transactional id; 0 where there is none.
    fn coordinator_epoch(&self, transactional_id: &str) -> i32 {
        let partition = self.coordinating(TRANSACTION_TOPIC, transactional_id);
        partition.map_or(0, |partition| self.topics[TRANSACTION_TOPIC].partitions[partition].leader_epoch)
    }
}

impl PartitionState {
    /// Makes `broker` (-1: none) the leader, in the next epoch.
    pub(crate) fn lead(&mut self, broker: i32) {
        (self.leader, self.leader_epoch) = (broker, self.leader_epoch + 1);
        if broker != -1 {
            self.log.begin_epoch(self.leader_epoch);
            if !self.isr.contains(&broker) {
                self.isr.push(broker);
            }
        }
    }
}

//! The cluster as Metadata tells it.

use std::collections::BTreeMap;

use strandline_protocol::TopicId;

/// What a broker tells about the cluster. A test may change it to make a broker tell something old or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Kafka's cluster id.
    pub cluster_id: String,
    /// The controller's broker id, -1 for none.
    pub controller: i32,
    /// The brokers, in any order; none is a legal answer of a broker that is starting.
    pub brokers: Vec<BrokerView>,
    /// The topics by name.
    pub topics: BTreeMap<String, TopicView>,
}

/// A broker as told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerView {
    /// The broker id.
    pub id: i32,
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: u16,
}

/// A topic as told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// The topic id.
    pub id: TopicId,
    /// The partitions, from 0.
    pub partitions: Vec<PartitionView>,
}

/// A partition as told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// The leader's broker id, -1 for none.
    pub leader: i32,
    /// The leader epoch.
    pub leader_epoch: i32,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// The replicas that are in sync.
    pub isr: Vec<i32>,
    /// The replicas whose broker is gone.
    pub offline: Vec<i32>,
}

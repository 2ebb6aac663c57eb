//! Leaders as brokers name them beside the error NOT_LEADER_OR_FOLLOWER (KIP-951), in answers to Fetch and Produce.

use std::sync::Arc;

use strandline_conn::BrokerAddress;
use strandline_protocol::messages::{FetchResponse, ProduceResponse};
use strandline_protocol::{TopicId, Uuid};

use crate::snapshot::Broker;

/// All that one answer says about who leads what, and where those brokers are. It is worth something only where its leader
/// epochs are newer than those of the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderHints {
    pub(crate) leaders: Vec<LeaderHint>,
    pub(crate) brokers: Vec<Broker>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaderHint {
    pub(crate) topic: HintedTopic,
    pub(crate) partition: i32,
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
}

/// How an answer names a topic: by id from Fetch version 13 and Produce version 13 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HintedTopic {
    Name(Arc<str>),
    Id(TopicId),
}

impl LeaderHints {
    /// True if the answer names no leader.
    pub fn is_empty(&self) -> bool {
        self.leaders.is_empty()
    }

    pub(crate) fn of_fetch(answer: &FetchResponse) -> Self {
        let mut hints = Self::default();
        for topic in &answer.responses {
            for partition in &topic.partitions {
                let leader = &partition.current_leader;
                let at = (partition.partition_index, leader.leader_id, leader.leader_epoch);
                hints.leader(&topic.topic, topic.topic_id, at);
            }
        }
        for node in &answer.node_endpoints {
            hints.broker(node.node_id, &node.host, node.port, node.rack.as_ref());
        }
        hints
    }

    pub(crate) fn of_produce(answer: &ProduceResponse) -> Self {
        let mut hints = Self::default();
        for topic in &answer.responses {
            for partition in &topic.partition_responses {
                let leader = &partition.current_leader;
                let at = (partition.index, leader.leader_id, leader.leader_epoch);
                hints.leader(&topic.name, topic.topic_id, at);
            }
        }
        for node in &answer.node_endpoints {
            hints.broker(node.node_id, &node.host, node.port, node.rack.as_ref());
        }
        hints
    }

    /// The wire says -1 where there is nothing to say.
    fn leader(&mut self, name: &str, id: Uuid, (partition, leader, leader_epoch): (i32, i32, i32)) {
        if leader >= 0 && leader_epoch >= 0 {
            let topic =
                if id.is_zero() { HintedTopic::Name(name.into()) } else { HintedTopic::Id(TopicId(id)) };
            self.leaders.push(LeaderHint { topic, partition, leader, leader_epoch });
        }
    }

    /// What is no address is passed over: Metadata will tell a better one.
    fn broker(&mut self, node_id: i32, host: &str, port: i32, rack: Option<&String>) {
        if let Ok(address) = BrokerAddress::new(host, port) {
            self.brokers.push(Broker { node_id, address, rack: rack.cloned() });
        }
    }
}

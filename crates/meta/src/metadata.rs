//! The Metadata request, in the one form that this client sends, and its answer without the codec.

use std::sync::Arc;

use strandline_conn::BrokerAddress;
use strandline_protocol::TopicId;
use strandline_protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};

use crate::pool::Endpoint;
use crate::snapshot::Broker;
use crate::snapshot::apply::{Asked, MetadataAnswer, PartitionAnswer, RejectedAnswer, TopicAnswer};

/// The only place that makes a Metadata request.
///
/// It never lets the broker create a topic: the schema's default would, and then a misspelt name in a question would become
/// a topic. (Versions below 4 cannot say so and are never encoded.)
pub(crate) fn metadata_request(asked: &Asked) -> MetadataRequest {
    let topics = match asked {
        Asked::All => None,
        Asked::Named(names) => Some(names.iter().map(topic_named).collect()),
    };
    MetadataRequest { topics, allow_auto_topic_creation: false, ..MetadataRequest::default() }
}

fn topic_named(name: &Arc<str>) -> MetadataRequestTopic {
    MetadataRequestTopic { name: Some(name.to_string()), ..MetadataRequestTopic::default() }
}

impl MetadataAnswer {
    /// What the response of `told_by` says.
    pub(crate) fn new(told_by: Endpoint, response: MetadataResponse) -> Result<Self, RejectedAnswer> {
        let mut brokers = Vec::with_capacity(response.brokers.len());
        for broker in response.brokers {
            let node_id = broker.node_id;
            let address = BrokerAddress::new(&broker.host, broker.port)
                .map_err(|source| RejectedAnswer::BadAddress { node_id, source })?;
            brokers.push(Broker { node_id, address, rack: broker.rack });
        }
        Ok(Self {
            told_by,
            error: response.error_code,
            cluster_id: response.cluster_id,
            controller_id: known(response.controller_id),
            brokers,
            topics: response.topics.into_iter().filter_map(topic_answer).collect(),
        })
    }
}

/// `None` for a topic without a name, which only an answer to a question by id holds; we never ask so.
fn topic_answer(topic: MetadataResponseTopic) -> Option<TopicAnswer> {
    Some(TopicAnswer {
        error: topic.error_code,
        name: topic.name?.into(),
        id: (!topic.topic_id.is_zero()).then_some(TopicId(topic.topic_id)),
        is_internal: topic.is_internal,
        partitions: topic.partitions.into_iter().map(partition_answer).collect(),
    })
}

fn partition_answer(partition: MetadataResponsePartition) -> PartitionAnswer {
    PartitionAnswer {
        index: partition.partition_index,
        leader: known(partition.leader_id),
        leader_epoch: known(partition.leader_epoch),
        replicas: partition.replica_nodes,
        isr: partition.isr_nodes,
        offline_replicas: partition.offline_replicas,
    }
}

/// The wire's -1 is "none" here.
fn known(value: i32) -> Option<i32> {
    (value >= 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use strandline_protocol::Message;

    use super::*;

    #[test]
    fn a_metadata_request_never_lets_the_broker_create_a_topic() {
        for asked in [Asked::All, Asked::Named(vec![]), Asked::Named(vec!["ordres".into()])] {
            let request = metadata_request(&asked);
            assert!(!request.allow_auto_topic_creation);
            for version in MetadataRequest::VERSIONS.iter() {
                let mut bytes = BytesMut::new();
                match request.encode(version, &mut bytes) {
                    Err(_) => assert!(version < 4, "version {version} must be able to say it"),
                    Ok(()) => {
                        let read = MetadataRequest::decode(bytes.freeze(), version).unwrap();
                        assert!(!read.allow_auto_topic_creation, "version {version}");
                    }
                }
            }
        }
    }
}

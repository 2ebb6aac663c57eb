//! DescribeCluster.

use strandline_meta::routing::Subject;
use strandline_meta::{BrokerAddress, Call, ErrorCode, ItemAnswer, Routed, SendError};
use strandline_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use tokio::time::Instant;

use super::Admin;

/// Version that can ask for fenced brokers.
const FENCED_BROKERS: i16 = 2;

/// What the cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// The cluster's id.
    pub cluster_id: String,
    /// The broker that takes requests for the controller.
    pub controller_id: Option<i32>,
    /// The brokers by id; fenced ones only from Kafka 4.0 on.
    pub brokers: Vec<DescribedBroker>,
}

/// One broker of a [`ClusterDescription`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedBroker {
    /// The broker's id.
    pub node_id: i32,
    /// Where it listens; `None` where it advertises no usable address, as a fenced broker may.
    pub address: Option<BrokerAddress>,
    /// The rack, where one is configured.
    pub rack: Option<String>,
    /// True while the controller keeps it from serving.
    pub is_fenced: bool,
}

impl Admin {
    /// The cluster's id, controller and brokers, fenced ones included.
    ///
    /// # Errors
    /// [`SendError`]; a code of the whole answer is [`SendError::Code`].
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn describe_cluster(&self, deadline: Instant) -> Result<ClusterDescription, SendError> {
        let mut results = self.cluster().send_each(&DescribeCluster, &[()], deadline).await?;
        results.pop().expect("one item has one result")
    }
}

/// A call of its own, so that a code which passes is asked past.
struct DescribeCluster;

impl Call for DescribeCluster {
    type Request = DescribeClusterRequest;
    type Item = ();
    type Answer = ClusterDescription;

    fn subject(&self, (): &()) -> Subject {
        Subject::Cluster
    }

    fn request(&self, _items: &[Routed<'_, ()>], version: i16) -> DescribeClusterRequest {
        DescribeClusterRequest {
            include_fenced_brokers: version >= FENCED_BROKERS,
            ..DescribeClusterRequest::default()
        }
    }

    fn answers(
        &self,
        items: &[Routed<'_, ()>],
        response: DescribeClusterResponse,
    ) -> Vec<ItemAnswer<ClusterDescription>> {
        let answer = match response.error_code {
            ErrorCode::None => ItemAnswer::Answer(described(response)),
            code => ItemAnswer::Code(code, response.error_message),
        };
        vec![answer; items.len()]
    }
}

fn described(response: DescribeClusterResponse) -> ClusterDescription {
    let broker = |broker: DescribeClusterBroker| DescribedBroker {
        node_id: broker.broker_id,
        address: BrokerAddress::new(&broker.host, broker.port).ok(),
        rack: broker.rack,
        is_fenced: broker.is_fenced,
    };
    let mut brokers: Vec<DescribedBroker> = response.brokers.into_iter().map(broker).collect();
    brokers.sort_by_key(|broker| broker.node_id);
    ClusterDescription {
        cluster_id: response.cluster_id,
        controller_id: (response.controller_id >= 0).then_some(response.controller_id),
        brokers,
    }
}

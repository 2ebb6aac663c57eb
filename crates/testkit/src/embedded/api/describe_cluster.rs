//! DescribeCluster.
//!
//! - Versions: 0 to 1 (3.9) or 2.
//! - Kept: brokers and controller as Metadata tells them; another endpoint type than brokers is refused with
//!   MISMATCHED_ENDPOINT_TYPE.
//! - Left out: fenced brokers (there are none), authorized operations, racks.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_cluster::DescribeClusterBroker;
use strandline_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::{Answer, Call, from_state};
use crate::embedded::state::State;

/// Kafka's number for an endpoint that is a broker's.
const BROKERS: i8 = 1;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let error_code = match call.check() {
        Err(code) => code,
        Ok(()) if request.endpoint_type != BROKERS => ErrorCode::MismatchedEndpointType,
        Ok(()) => ErrorCode::None,
    };
    let mut response = DescribeClusterResponse {
        throttle_time_ms: call.throttle_ms,
        error_code,
        ..DescribeClusterResponse::default()
    };
    if error_code == ErrorCode::None {
        let view = state.told_by(call.broker);
        let broker = |broker: crate::embedded::BrokerView| DescribeClusterBroker {
            broker_id: broker.id,
            host: broker.host,
            port: broker.port.into(),
            ..DescribeClusterBroker::default()
        };
        response.cluster_id = view.cluster_id;
        response.controller_id = view.controller;
        response.brokers = view.brokers.into_iter().map(broker).collect();
    }
    response
}

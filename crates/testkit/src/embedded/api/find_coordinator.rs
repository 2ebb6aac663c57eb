//! FindCoordinator.
//!
//! - Versions: 0 to 6.
//! - Kept: many keys at once from version 4; the coordinator is the leader of the key's partition of
//!   `__consumer_offsets` or `__transaction_state`; where that topic is missing it is created, and the answer is
//!   COORDINATOR_NOT_AVAILABLE, as while the partition has no leader.
//! - Left out: share groups (INVALID_REQUEST).

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::find_coordinator::Coordinator;
use strandline_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{GROUP_TOPIC, State, TRANSACTION_TOPIC};

/// The first version with many keys.
const MANY_KEYS: i16 = 4;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    let throttle_time_ms = if call.version >= 1 { call.throttle_ms } else { 0 };
    let response = FindCoordinatorResponse { throttle_time_ms, ..FindCoordinatorResponse::default() };
    if call.version >= MANY_KEYS {
        let found = |key| find(call, state, request.key_type, key);
        return FindCoordinatorResponse {
            coordinators: request.coordinator_keys.into_iter().map(found).collect(),
            ..response
        };
    }
    let found = find(call, state, request.key_type, request.key);
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..response
    }
}

fn find(call: &Call, state: &mut State, key_type: i8, key: String) -> Coordinator {
    let (error_code, node_id) = match leader(call, state, key_type, &key) {
        Ok(leader) => (ErrorCode::None, leader),
        Err(code) => (code, -1),
    };
    let broker = state.brokers.get(&node_id);
    let (host, port) = broker.map_or((String::new(), -1), |broker| (broker.host.clone(), broker.port.into()));
    Coordinator { key, node_id, host, port, error_code, ..Coordinator::default() }
}

fn leader(call: &Call, state: &mut State, key_type: i8, key: &str) -> Result<i32, ErrorCode> {
    let topic = match key_type {
        0 => {
            call.check_group(state, key, Operation::Describe)?;
            GROUP_TOPIC
        }
        1 => {
            call.check_transactional_id(state, key, Operation::Describe)?;
            TRANSACTION_TOPIC
        }
        _ => {
            call.check()?;
            return Err(ErrorCode::InvalidRequest);
        }
    };
    if state.ensure_coordinators(topic) {
        return Err(ErrorCode::CoordinatorNotAvailable);
    }
    state.coordinator(topic, key).ok_or(ErrorCode::CoordinatorNotAvailable)
}

//! DescribeGroups.
//!
//! - Versions: 0 to 5 (3.9) or 6.
//! - Kept: only the coordinator answers (NOT_COORDINATOR); a group that does not exist is `Dead`, and from version 6
//!   GROUP_ID_NOT_FOUND.
//! - Left out: members; authorized operations.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_groups::DescribedGroup;
use strandline_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{GROUP_TOPIC, State};

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: DescribeGroupsRequest) -> DescribeGroupsResponse {
    let groups = request.groups.into_iter().map(|group_id| describe(call, state, group_id));
    DescribeGroupsResponse {
        groups: groups.collect(),
        throttle_time_ms: if call.version >= 1 { call.throttle_ms } else { 0 },
        ..DescribeGroupsResponse::default()
    }
}

fn describe(call: &Call, state: &State, group_id: String) -> DescribedGroup {
    let refused = match call.check_group(state, &group_id, Operation::Describe) {
        Err(code) => Some(code),
        Ok(()) if state.coordinator(GROUP_TOPIC, &group_id) != Some(call.broker) => {
            Some(ErrorCode::NotCoordinator)
        }
        Ok(()) => None,
    };
    let group = state.groups.get(&group_id).filter(|_| refused.is_none());
    let missing = (group.is_none() && call.version >= 6).then_some(ErrorCode::GroupIdNotFound);
    let (group_state, protocol_type) = match group {
        Some(group) => (group.state.clone(), group.protocol_type.clone()),
        None if refused.is_some() => (String::new(), String::new()),
        None => ("Dead".to_owned(), String::new()),
    };
    DescribedGroup {
        error_code: refused.or(missing).unwrap_or(ErrorCode::None),
        group_id,
        group_state,
        protocol_type,
        ..DescribedGroup::default()
    }
}

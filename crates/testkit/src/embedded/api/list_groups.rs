//! ListGroups.
//!
//! - Versions: 0 to 5.
//! - Kept: a broker lists the groups that it coordinates, and no others; filters by state (version 4) and type
//!   (version 5), in any case of letters; without DESCRIBE on the cluster only groups that the client may describe.
//! - Left out: groups exist only as a test says and by OffsetCommit; all are classic consumer groups.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::list_groups::ListedGroup;
use strandline_protocol::messages::{ListGroupsRequest, ListGroupsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{GROUP_TOPIC, State};

const CLASSIC: &str = "classic";

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: ListGroupsRequest) -> ListGroupsResponse {
    let wanted = |filter: &[String], value: &str| {
        filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
    };
    let all = call.check_cluster(state, Operation::Describe).is_ok();
    let listed = state.groups.iter().filter(|(id, group)| {
        state.coordinator(GROUP_TOPIC, id) == Some(call.broker)
            && wanted(&request.states_filter, &group.state)
            && wanted(&request.types_filter, CLASSIC)
            && (all || call.check_group(state, id, Operation::Describe).is_ok())
    });
    let groups = listed.map(|(id, group)| ListedGroup {
        group_id: id.clone(),
        protocol_type: group.protocol_type.clone(),
        group_state: if call.version >= 4 { group.state.clone() } else { String::new() },
        group_type: if call.version >= 5 { CLASSIC.to_owned() } else { String::new() },
        ..ListedGroup::default()
    });
    ListGroupsResponse {
        throttle_time_ms: if call.version >= 1 { call.throttle_ms } else { 0 },
        error_code: call.error.unwrap_or(ErrorCode::None),
        groups: if call.error.is_none() { groups.collect() } else { Vec::new() },
        ..ListGroupsResponse::default()
    }
}

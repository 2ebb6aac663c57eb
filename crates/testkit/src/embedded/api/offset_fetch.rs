//! OffsetFetch.
//!
//! - Versions: 1 to 9 (3.9, 4.0) or 10.
//! - Kept: only the coordinator answers (NOT_COORDINATOR); many groups from version 8; topics by id in version 10
//!   (UNKNOWN_TOPIC_ID); null topics are all that the group committed; what it did not commit is -1.
//! - Left out: member ids and epochs; transactions that hold offsets back.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::offset_fetch::{
    OffsetFetchRequestTopics, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use strandline_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{Committed, GROUP_TOPIC, GroupState, State};

/// The first version with many groups.
const MANY_GROUPS: i16 = 8;

/// The first version that names topics by id.
const BY_ID: i16 = 10;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let response = OffsetFetchResponse {
        throttle_time_ms: if call.version >= 3 { call.throttle_ms } else { 0 },
        ..OffsetFetchResponse::default()
    };
    if call.version >= MANY_GROUPS {
        let groups = request.groups.into_iter().map(|group| fetch(call, state, group.group_id, group.topics));
        return OffsetFetchResponse { groups: groups.collect(), ..response };
    }
    let topics = request.topics.map(|topics| {
        let newer = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..OffsetFetchRequestTopics::default()
        });
        newer.collect()
    });
    let group = fetch(call, state, request.group_id, topics);
    let older = group.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(older).collect(),
        ..OffsetFetchResponseTopic::default()
    });
    let error_code = if call.version >= 2 { group.error_code } else { ErrorCode::None };
    OffsetFetchResponse { topics: older.collect(), error_code, ..response }
}

fn older(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
        ..OffsetFetchResponsePartition::default()
    }
}

fn fetch(
    call: &Call,
    state: &State,
    group_id: String,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
) -> OffsetFetchResponseGroup {
    let response = OffsetFetchResponseGroup { group_id, ..OffsetFetchResponseGroup::default() };
    let refused = match call.check_group(state, &response.group_id, Operation::Describe) {
        Err(code) => Some(code),
        Ok(()) if state.coordinator(GROUP_TOPIC, &response.group_id) != Some(call.broker) => {
            Some(ErrorCode::NotCoordinator)
        }
        Ok(()) => None,
    };
    if let Some(error_code) = refused {
        return OffsetFetchResponseGroup { error_code, ..response };
    }
    let nothing = GroupState::default();
    let group = state.groups.get(&response.group_id).unwrap_or(&nothing);
    let wanted = topics.unwrap_or_else(|| committed(call, state, group));
    let topics = wanted.into_iter().map(|topic| of_topic(call, state, group, topic)).collect();
    OffsetFetchResponseGroup { topics, ..response }
}

/// All that the group committed, as if it had been asked for.
fn committed(call: &Call, state: &State, group: &GroupState) -> Vec<OffsetFetchRequestTopics> {
    let mut topics: Vec<OffsetFetchRequestTopics> = Vec::new();
    let seen = |topic: &str| call.check_topic(state, topic, Operation::Describe).is_ok();
    for (name, partition) in group.offsets.keys().filter(|(topic, _)| seen(topic)) {
        if topics.last().is_none_or(|topic| topic.name != *name) {
            let id = state.topics.get(name).map_or_else(Default::default, |topic| topic.id.0);
            topics.push(OffsetFetchRequestTopics {
                name: name.clone(),
                topic_id: if call.version >= BY_ID { id } else { Default::default() },
                ..OffsetFetchRequestTopics::default()
            });
        }
        if let Some(topic) = topics.last_mut() {
            topic.partition_indexes.push(*partition);
        }
    }
    topics
}

fn of_topic(
    call: &Call,
    state: &State,
    group: &GroupState,
    wanted: OffsetFetchRequestTopics,
) -> OffsetFetchResponseTopics {
    let name = match call.version >= BY_ID {
        true => state.name_of(wanted.topic_id),
        false => Some(wanted.name.clone()),
    };
    let hidden = name.as_ref().and_then(|name| call.check_topic(state, name, Operation::Describe).err());
    let error_code = match &name {
        Some(_) => hidden.unwrap_or(ErrorCode::None),
        None => ErrorCode::UnknownTopicId,
    };
    let name = name.filter(|_| hidden.is_none());
    let partitions = wanted.partition_indexes.into_iter().map(|partition_index| {
        let committed =
            name.as_ref().and_then(|name| group.offsets.get(&(name.clone(), partition_index)).cloned());
        let none = Committed { offset: -1, leader_epoch: -1, metadata: String::new() };
        let committed = committed.unwrap_or(none);
        OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: committed.offset,
            committed_leader_epoch: if call.version >= 5 { committed.leader_epoch } else { -1 },
            metadata: Some(committed.metadata),
            error_code,
            ..OffsetFetchResponsePartitions::default()
        }
    });
    OffsetFetchResponseTopics {
        partitions: partitions.collect(),
        name: wanted.name,
        topic_id: wanted.topic_id,
        ..OffsetFetchResponseTopics::default()
    }
}

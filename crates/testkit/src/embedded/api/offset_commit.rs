//! OffsetCommit.
//!
//! - Versions: 2 to 9 (3.9: from 0), or 10 (4.3).
//! - Kept: only the coordinator answers (NOT_COORDINATOR); a group without members takes offsets of no generation, and is made by
//!   the first (`Empty`, without a protocol); a generation is UNKNOWN_MEMBER_ID, since no group has members here;
//!   topics by id in version 10 (UNKNOWN_TOPIC_ID); metadata of 4 096 bytes at most.
//! - Left out: members and their generations, so a group whose state a test says is not fenced; retention of offsets.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use strandline_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{Committed, GROUP_TOPIC, GroupState, State};

/// The first version that names topics by id.
const BY_ID: i16 = 10;

/// Kafka's default of `offset.metadata.max.bytes`.
const METADATA_BYTES_MAX: usize = 4_096;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

fn respond(call: &Call, state: &mut State, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let refused = refused(call, state, &request).err();
    let topics = request.topics.iter().map(|topic| {
        let name = match call.version >= BY_ID {
            true => state.name_of(topic.topic_id).ok_or(ErrorCode::UnknownTopicId),
            false => Ok(topic.name.clone()),
        };
        let partitions = topic.partitions.iter().map(|wanted| {
            let committed = match (refused, &name) {
                (Some(code), _) => Err(code),
                (None, Err(code)) => Err(*code),
                (None, Ok(name)) => commit(call, state, &request.group_id, name, wanted),
            };
            OffsetCommitResponsePartition {
                partition_index: wanted.partition_index,
                error_code: committed.err().unwrap_or(ErrorCode::None),
                ..OffsetCommitResponsePartition::default()
            }
        });
        OffsetCommitResponseTopic {
            partitions: partitions.collect(),
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            ..OffsetCommitResponseTopic::default()
        }
    });
    let topics = topics.collect();
    OffsetCommitResponse {
        throttle_time_ms: if call.version >= 3 { call.throttle_ms } else { 0 },
        topics,
        ..OffsetCommitResponse::default()
    }
}

fn refused(call: &Call, state: &State, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
    call.check_group(state, &request.group_id, Operation::Read)?;
    if state.coordinator(GROUP_TOPIC, &request.group_id) != Some(call.broker) {
        return Err(ErrorCode::NotCoordinator);
    }
    if request.generation_id_or_member_epoch >= 0 {
        return Err(ErrorCode::UnknownMemberId);
    }
    Ok(())
}

fn commit(
    call: &Call,
    state: &mut State,
    group: &str,
    topic: &str,
    wanted: &OffsetCommitRequestPartition,
) -> Result<(), ErrorCode> {
    call.check_topic(state, topic, Operation::Read)?;
    if state.partition(topic, wanted.partition_index).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let metadata = wanted.committed_metadata.clone().unwrap_or_default();
    if metadata.len() > METADATA_BYTES_MAX {
        return Err(ErrorCode::OffsetMetadataTooLarge);
    }
    let committed =
        Committed { offset: wanted.committed_offset, leader_epoch: wanted.committed_leader_epoch, metadata };
    let fresh = || GroupState { state: "Empty".to_owned(), ..GroupState::default() };
    let group = state.groups.entry(group.to_owned()).or_insert_with(fresh);
    group.offsets.insert((topic.to_owned(), wanted.partition_index), committed);
    Ok(())
}

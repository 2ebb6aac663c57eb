//! OffsetForLeaderEpoch.
//!
//! - Versions: 2 to 4.
//! - Kept: the end of the largest epoch that is not above the one asked for; -1 for an epoch that the leader does not
//!   know yet; the current leader epoch is checked; only leaders answer.
//! - Left out: nothing known.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use strandline_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(
    call: &Call,
    state: &mut State,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut topics = Vec::new();
    for topic in request.topics {
        let ends = topic.partitions.iter().map(|wanted| {
            let (error_code, (leader_epoch, end_offset)) = match end(call, state, &topic.topic, wanted) {
                Ok(end) => (ErrorCode::None, end),
                Err(code) => (code, (-1, -1)),
            };
            let partition = wanted.partition;
            EpochEndOffset { error_code, partition, leader_epoch, end_offset, ..EpochEndOffset::default() }
        });
        let partitions = ends.collect();
        topics.push(OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions,
            ..OffsetForLeaderTopicResult::default()
        });
    }
    OffsetForLeaderEpochResponse {
        throttle_time_ms: call.throttle_ms,
        topics,
        ..OffsetForLeaderEpochResponse::default()
    }
}

fn end(
    call: &Call,
    state: &mut State,
    topic: &str,
    wanted: &OffsetForLeaderPartition,
) -> Result<(i32, i64), ErrorCode> {
    call.check_topic(state, topic, Operation::Describe)?;
    let partition = state.led(call.broker, topic, wanted.partition, wanted.current_leader_epoch)?;
    Ok(partition.log.end_of_epoch(wanted.leader_epoch))
}

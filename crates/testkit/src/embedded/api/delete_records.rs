//! DeleteRecords.
//!
//! - Versions: 0 to 2.
//! - Kept: only leaders; -1 is the high watermark, and beyond it OFFSET_OUT_OF_RANGE; below the log start nothing
//!   changes; a topic that is only compacted is POLICY_VIOLATION. The records before the log start stay on disk, as in the
//!   segment that is written, so that ListOffsets -3 may tell one of them.
//! - Left out: waiting for followers; segments, whose last record before the log start would take them off the disk.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use strandline_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::configs::topic_config;
use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

fn respond(call: &Call, state: &mut State, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut topics = Vec::new();
    for topic in request.topics {
        let results = topic.partitions.iter().map(|wanted| {
            let (error_code, low_watermark) = match delete(call, state, &topic.name, wanted) {
                Ok(start) => (ErrorCode::None, start),
                Err(code) => (code, -1),
            };
            let partition_index = wanted.partition_index;
            DeleteRecordsPartitionResult {
                partition_index,
                low_watermark,
                error_code,
                ..DeleteRecordsPartitionResult::default()
            }
        });
        let partitions = results.collect();
        topics.push(DeleteRecordsTopicResult {
            name: topic.name,
            partitions,
            ..DeleteRecordsTopicResult::default()
        });
    }
    DeleteRecordsResponse { throttle_time_ms: call.throttle_ms, topics, ..DeleteRecordsResponse::default() }
}

fn delete(
    call: &Call,
    state: &mut State,
    topic: &str,
    wanted: &DeleteRecordsPartition,
) -> Result<i64, ErrorCode> {
    call.check_topic(state, topic, Operation::Delete)?;
    let configs = state.topics.get(topic).map(|topic| &topic.configs);
    let policy = configs.and_then(|configs| topic_config(configs, "cleanup.policy"));
    let only_compacted = policy == Some("compact");
    let log = &mut state.led(call.broker, topic, wanted.partition_index, -1)?.log;
    if only_compacted {
        return Err(ErrorCode::PolicyViolation);
    }
    let offset = if wanted.offset == -1 { log.high_watermark() } else { wanted.offset };
    if !(0..=log.high_watermark()).contains(&offset) {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    log.move_start(offset);
    Ok(log.start_offset())
}

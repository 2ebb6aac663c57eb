//! ListOffsets.
//!
//! - Versions: 1 to 9 (3.9), 10 (4.0) or 11.
//! - Kept: every special timestamp from the version on that has it, UNSUPPORTED_VERSION below it: -1 latest (the last
//!   stable offset for readers of committed records), -2 earliest, -3 that of the largest timestamp, -4 earliest on
//!   disk, -5 last in the tier, -6 first to be uploaded; a timestamp that no record reaches is -1; the current leader
//!   epoch is checked; only leaders answer. All of it also of a topic with a tier: before the first upload, where the older
//!   records are only in the tier (-3 does not look there), and after DeleteRecords into it. What a reader cannot read
//!   yet is not found by -3, -5, -6 or its time.
//! - Left out: what is in the tier is looked up at once, so `timeout_ms` is not looked at; a log whose high watermark lags
//!   behind its leader epoch does not say OFFSET_NOT_AVAILABLE.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use strandline_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::configs::topic_config;
use super::{Answer, Call, Operation, from_state};
use crate::embedded::log::{Found, PartitionLog};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let committed = request.isolation_level == 1;
    let mut topics = Vec::new();
    for topic in request.topics {
        let mut partitions = Vec::new();
        for wanted in topic.partitions {
            let found = look_up(call, state, &topic.name, &wanted, committed);
            let (error_code, found) = match found {
                Ok(found) => (ErrorCode::None, found.unwrap_or(NOT_FOUND)),
                Err(code) => (code, NOT_FOUND),
            };
            partitions.push(ListOffsetsPartitionResponse {
                partition_index: wanted.partition_index,
                error_code,
                timestamp: found.timestamp_ms,
                offset: found.offset,
                leader_epoch: if call.version >= 4 { found.leader_epoch } else { -1 },
                ..ListOffsetsPartitionResponse::default()
            });
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name,
            partitions,
            ..ListOffsetsTopicResponse::default()
        });
    }
    ListOffsetsResponse {
        throttle_time_ms: if call.version >= 2 { call.throttle_ms } else { 0 },
        topics,
        ..ListOffsetsResponse::default()
    }
}

const NOT_FOUND: Found = Found { timestamp_ms: -1, offset: -1, leader_epoch: -1 };

fn look_up(
    call: &Call,
    state: &mut State,
    topic: &str,
    wanted: &ListOffsetsPartition,
    committed: bool,
) -> Result<Option<Found>, ErrorCode> {
    call.check_topic(state, topic, Operation::Describe)?;
    // The special timestamp, and the first version that has it.
    let first_version = match wanted.timestamp {
        -6 => 11,
        -5 => 9,
        -4 => 8,
        -3 => 7,
        _ => 1,
    };
    if call.version < first_version || wanted.timestamp < -6 {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let config = |name| state.topics.get(topic).and_then(|topic| topic_config(&topic.configs, name));
    let has_tier = config("remote.storage.enable") == Some("true");
    let partition = state.led(call.broker, topic, wanted.partition_index, wanted.current_leader_epoch)?;
    let log = &partition.log;
    let at = |offset: i64| Some(Found { timestamp_ms: -1, offset, leader_epoch: log.epoch_of(offset) });
    let end = if committed { log.last_stable_offset() } else { log.high_watermark() };
    Ok(match wanted.timestamp {
        -1 => Some(Found { timestamp_ms: -1, offset: end, leader_epoch: log.latest_epoch().unwrap_or(-1) }),
        -2 => at(log.start_offset()),
        -4 => at(log.local_start_offset()),
        // What a consumer cannot read yet is not told.
        other => match other {
            -3 => log.largest_timestamp(),
            -5 => log.tiered_offset().and_then(at),
            -6 => pending_upload(log, has_tier).and_then(at),
            time => log.first_at_or_after(time),
        }
        .filter(|found| found.offset < end),
    })
}

/// The first offset that is not in the tier; none where the topic has no tier.
///
/// Source: `UnifiedLog#fetchOffsetByTimestamp` (KIP-1023).
fn pending_upload(log: &PartitionLog, has_tier: bool) -> Option<i64> {
    match log.tiered_offset() {
        Some(last) => Some((last + 1).max(log.start_offset())),
        None => (has_tier && log.local_start_offset() == log.start_offset()).then(|| log.start_offset()),
    }
}

//! DescribeProducers.
//!
//! - Versions: 0.
//! - Kept: only leaders answer; every idempotent producer that the log remembers, with the first offset of its open
//!   transaction and the epoch of the coordinator that wrote its last marker.
//! - Left out: producers are never forgotten.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_producers::{PartitionResponse, ProducerState, TopicResponse};
use strandline_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: DescribeProducersRequest) -> DescribeProducersResponse {
    let mut topics = Vec::new();
    for topic in request.topics {
        let described = topic.partition_indexes.iter().map(|partition_index| {
            let (error_code, active_producers) = match producers(call, state, &topic.name, *partition_index) {
                Ok(producers) => (ErrorCode::None, producers),
                Err(code) => (code, Vec::new()),
            };
            PartitionResponse {
                partition_index: *partition_index,
                error_code,
                active_producers,
                ..PartitionResponse::default()
            }
        });
        let partitions = described.collect();
        topics.push(TopicResponse { name: topic.name, partitions, ..TopicResponse::default() });
    }
    DescribeProducersResponse {
        throttle_time_ms: call.throttle_ms,
        topics,
        ..DescribeProducersResponse::default()
    }
}

fn producers(
    call: &Call,
    state: &mut State,
    topic: &str,
    partition: i32,
) -> Result<Vec<ProducerState>, ErrorCode> {
    call.check_topic(state, topic, Operation::Read)?;
    let partition = state.led(call.broker, topic, partition, -1)?;
    let told = partition.log.producers().map(|(producer_id, entry, open)| ProducerState {
        producer_id,
        producer_epoch: entry.epoch.into(),
        last_sequence: entry.last_sequence(),
        last_timestamp: entry.last_timestamp_ms,
        coordinator_epoch: entry.coordinator_epoch,
        current_txn_start_offset: open.unwrap_or(-1),
        ..ProducerState::default()
    });
    Ok(told.collect())
}

//! CreatePartitions.
//!
//! - Versions: 0 to 3.
//! - Kept: any broker takes it; a count that is not above the present one is INVALID_PARTITIONS; replicas by hand, one list for
//!   each new partition, of brokers that there are (INVALID_REPLICA_ASSIGNMENT); `validate_only`.
//! - Left out: nothing known.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use strandline_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

fn respond(call: &Call, state: &mut State, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let results = request.topics.into_iter().map(|topic| {
        let error_code = grow(call, state, &topic, request.validate_only).err().unwrap_or(ErrorCode::None);
        let error_message =
            (error_code != ErrorCode::None).then(|| "not so many partitions, or not there".to_owned());
        CreatePartitionsTopicResult {
            name: topic.name,
            error_code,
            error_message,
            ..CreatePartitionsTopicResult::default()
        }
    });
    CreatePartitionsResponse {
        results: results.collect(),
        throttle_time_ms: call.throttle_ms,
        ..CreatePartitionsResponse::default()
    }
}

fn grow(
    call: &Call,
    state: &mut State,
    wanted: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), ErrorCode> {
    call.check_topic(state, &wanted.name, Operation::Alter)?;
    let topic = state.topics.get(&wanted.name).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let count = usize::try_from(wanted.count).map_err(|_| ErrorCode::InvalidPartitions)?;
    if count <= topic.partitions.len() {
        return Err(ErrorCode::InvalidPartitions);
    }
    let (present, replication) =
        (topic.partitions.len(), topic.partitions.first().map_or(1, |partition| partition.replicas.len()));
    if let Some(by_hand) = &wanted.assignments {
        let fits = |assignment: &CreatePartitionsAssignment| {
            let ids = &assignment.broker_ids;
            ids.len() == replication
                && ids.iter().all(|id| state.brokers.contains_key(id))
                && (1..ids.len()).all(|index| !ids[..index].contains(&ids[index]))
        };
        if by_hand.len() != count - present || !by_hand.iter().all(fits) {
            return Err(ErrorCode::InvalidReplicaAssignment);
        }
    }
    if !validate_only {
        state.add_partitions(&wanted.name, count, replication);
        let by_hand = wanted.assignments.iter().flatten();
        for (assignment, index) in by_hand.zip(present as i32..) {
            state.assign(&wanted.name, index, &assignment.broker_ids);
        }
    }
    Ok(())
}

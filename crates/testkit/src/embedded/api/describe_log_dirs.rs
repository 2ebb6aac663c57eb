//! DescribeLogDirs.
//!
//! - Versions: 1 to 4 (3.9, 4.0) or 5.
//! - Kept: the asked broker's own replicas; null topics are all; what it does not have is left out without a word.
//! - Left out: a broker has one directory, without sizes of its volume; moves between directories; lag.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use strandline_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let wanted = |topic: &str, partition: i32| {
        request.topics.as_ref().is_none_or(|topics| {
            topics.iter().any(|asked| asked.topic == topic && asked.partitions.contains(&partition))
        })
    };
    let mut topics = Vec::new();
    for (name, topic) in &state.topics {
        let partitions: Vec<DescribeLogDirsPartition> = topic
            .partitions
            .iter()
            .zip(0..)
            .filter(|(partition, index)| partition.replicas.contains(&call.broker) && wanted(name, *index))
            .map(|(partition, partition_index)| DescribeLogDirsPartition {
                partition_index,
                partition_size: partition.log.size_bytes(),
                ..DescribeLogDirsPartition::default()
            })
            .collect();
        if !partitions.is_empty() {
            let name = name.clone();
            topics.push(DescribeLogDirsTopic { name, partitions, ..DescribeLogDirsTopic::default() });
        }
    }
    let error_code = call.check_cluster(state, Operation::Describe).err().unwrap_or(ErrorCode::None);
    let log_dir = format!("/embedded/broker-{}", call.broker);
    let result = DescribeLogDirsResult { log_dir, topics, ..DescribeLogDirsResult::default() };
    DescribeLogDirsResponse {
        throttle_time_ms: call.throttle_ms,
        error_code,
        results: if error_code == ErrorCode::None { vec![result] } else { Vec::new() },
        ..DescribeLogDirsResponse::default()
    }
}

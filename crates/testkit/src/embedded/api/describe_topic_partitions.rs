//! DescribeTopicPartitions.
//!
//! - Versions: 0.
//! - Kept: topics in the order of their names, all for an empty list; a page of as many partitions as the request
//!   allows, 2 000 at most, and a cursor to the next.
//! - Left out: eligible leader replicas (there are none), authorized operations.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_topic_partitions::{
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic, ResponseCursor,
};
use strandline_protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{INTERNAL, State};
use crate::embedded::view::{PartitionView, TopicView};

/// Kafka's default of `max.request.partition.size.limit`.
const PARTITIONS_MAX: usize = 2_000;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(
    call: &Call,
    state: &mut State,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let view = state.told_by(call.broker);
    let mut names: Vec<String> = request.topics.into_iter().map(|topic| topic.name).collect();
    if names.is_empty() {
        let seen = |name: &&String| call.check_topic(state, name, Operation::Describe).is_ok();
        names.extend(view.topics.keys().filter(seen).cloned());
    }
    names.sort();
    names.dedup();
    let mut left = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PARTITIONS_MAX);
    let mut response = DescribeTopicPartitionsResponse {
        throttle_time_ms: call.throttle_ms,
        ..DescribeTopicPartitionsResponse::default()
    };
    for name in names {
        let cursor = request.cursor.as_ref();
        if cursor.is_some_and(|cursor| name < cursor.topic_name) {
            continue;
        }
        let found = call
            .check_topic(state, &name, Operation::Describe)
            .and(view.topics.get(&name).ok_or(ErrorCode::UnknownTopicOrPartition));
        let topic = match found {
            Ok(topic) => topic,
            Err(error_code) => {
                response.topics.push(DescribeTopicPartitionsResponseTopic {
                    error_code,
                    name: Some(name),
                    ..DescribeTopicPartitionsResponseTopic::default()
                });
                continue;
            }
        };
        let from =
            cursor.filter(|cursor| cursor.topic_name == name).map_or(0, |cursor| cursor.partition_index);
        let from = usize::try_from(from).unwrap_or(0).min(topic.partitions.len());
        let to = topic.partitions.len().min(from + left);
        if left == 0 || to < topic.partitions.len() {
            let partition_index = to as i32;
            let topic_name = name.clone();
            response.next_cursor =
                Some(ResponseCursor { topic_name, partition_index, ..ResponseCursor::default() });
        }
        if left > 0 {
            response.topics.push(told(name, topic, from..to));
        }
        left -= to - from;
        if response.next_cursor.is_some() {
            break;
        }
    }
    response
}

fn told(
    name: String,
    topic: &TopicView,
    range: std::ops::Range<usize>,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = topic.partitions[range.clone()].iter().zip(range);
    DescribeTopicPartitionsResponseTopic {
        is_internal: INTERNAL.contains(&name.as_str()),
        name: Some(name),
        topic_id: topic.id.0,
        partitions: partitions.map(|(view, index)| partition(view, index as i32)).collect(),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn partition(view: &PartitionView, partition_index: i32) -> DescribeTopicPartitionsResponsePartition {
    DescribeTopicPartitionsResponsePartition {
        error_code: if view.leader == -1 { ErrorCode::LeaderNotAvailable } else { ErrorCode::None },
        partition_index,
        leader_id: view.leader,
        leader_epoch: view.leader_epoch,
        replica_nodes: view.replicas.clone(),
        isr_nodes: view.isr.clone(),
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        offline_replicas: view.offline.clone(),
        ..DescribeTopicPartitionsResponsePartition::default()
    }
}

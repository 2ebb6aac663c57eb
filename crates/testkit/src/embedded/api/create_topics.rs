//! CreateTopics.
//!
//! - Versions: 2 to 7.
//! - Kept: any broker takes it (it forwards to the controller); names, counts and configs are checked; -1 is the
//!   broker's default, 1; assignments by hand; a name given twice is INVALID_REQUEST, once; `validate_only`.
//! - Left out: names that differ in '.' and '_' alone; the values of configs; the configs in the answer are those of the
//!   topic itself; the topic is there at once, at every broker.

use std::collections::BTreeMap;

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use strandline_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::configs::is_topic_config;
use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

/// The first version that describes what was created, and takes -1 for a default.
const DESCRIBES: i16 = 5;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

/// Source: `org.apache.kafka.common.internals.Topic#validate`.
pub(super) fn is_valid_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

fn respond(call: &Call, state: &mut State, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut results = Vec::new();
    for (index, topic) in request.topics.iter().enumerate() {
        if request.topics[..index].iter().any(|other| other.name == topic.name) {
            continue;
        }
        let repeated = request.topics.iter().filter(|other| other.name == topic.name).count() > 1;
        let created = match repeated {
            true => Err((ErrorCode::InvalidRequest, "the topic is named twice".to_owned())),
            false => create(call, state, topic, request.validate_only),
        };
        results.push(created.unwrap_or_else(|(error_code, message)| CreatableTopicResult {
            name: topic.name.clone(),
            error_code,
            error_message: Some(message),
            ..CreatableTopicResult::default()
        }));
    }
    CreateTopicsResponse {
        throttle_time_ms: call.throttle_ms,
        topics: results,
        ..CreateTopicsResponse::default()
    }
}

fn create(
    call: &Call,
    state: &mut State,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<CreatableTopicResult, (ErrorCode, String)> {
    call.check_cluster(state, Operation::Create)
        .or_else(|_| call.check_topic(state, &topic.name, Operation::Create))
        .map_err(|code| (code, "refused by the script or for want of a right".to_owned()))?;
    let refuse = |code, message: &str| Err((code, message.to_owned()));
    if !is_valid_name(&topic.name) {
        return refuse(ErrorCode::InvalidTopicException, "the name is not legal");
    }
    if state.topics.contains_key(&topic.name) {
        return Err((ErrorCode::TopicAlreadyExists, format!("Topic '{}' already exists.", topic.name)));
    }
    let by_hand = !topic.assignments.is_empty();
    let alive = state.alive().len();
    let (partitions, replication) = match by_hand {
        true => (topic.assignments.len(), topic.assignments[0].broker_ids.len()),
        false => {
            let or_default = |count: i64| if count == -1 { Some(1) } else { usize::try_from(count).ok() };
            let partitions = or_default(topic.num_partitions.into()).filter(|count| *count > 0);
            let Some(partitions) = partitions else {
                return refuse(ErrorCode::InvalidPartitions, "the number of partitions must be above 0");
            };
            let replication = or_default(topic.replication_factor.into()).filter(|count| *count > 0);
            match replication.filter(|count| *count <= alive) {
                Some(replication) => (partitions, replication),
                None => {
                    return refuse(
                        ErrorCode::InvalidReplicationFactor,
                        "not that many brokers are registered",
                    );
                }
            }
        }
    };
    if let Some(unknown) =
        topic.configs.iter().find(|config| !is_topic_config(call.shared.version, &config.name))
    {
        return Err((ErrorCode::InvalidConfig, format!("Unknown topic config name: {}", unknown.name)));
    }
    let configs: BTreeMap<String, String> = topic
        .configs
        .iter()
        .filter_map(|config| Some((config.name.clone(), config.value.clone()?)))
        .collect();
    let mut result = CreatableTopicResult { name: topic.name.clone(), ..CreatableTopicResult::default() };
    if call.version >= DESCRIBES {
        result.num_partitions = partitions as i32;
        result.replication_factor = replication as i16;
        let config = |(name, value): (&String, &String)| CreatableTopicConfigs {
            name: name.clone(),
            value: Some(value.clone()),
            config_source: super::describe_configs::SOURCE_TOPIC,
            ..CreatableTopicConfigs::default()
        };
        result.configs = Some(configs.iter().map(config).collect());
    }
    let id = match validate_only {
        // A broker makes up an id for what it does not create, too.
        true => state.random.uuid(),
        false => {
            let id = state.create_topic(&topic.name, partitions, replication, configs);
            assign(state, topic);
            id.0
        }
    };
    if call.version >= 7 {
        result.topic_id = id;
    }
    Ok(result)
}

/// Replicas by hand take the place of those that the controller would choose.
fn assign(state: &mut State, topic: &CreatableTopic) {
    for assignment in &topic.assignments {
        state.assign(&topic.name, assignment.partition_index, &assignment.broker_ids);
    }
}

//! DescribeConfigs.
//!
//! - Versions: 1 to 4.
//! - Kept: a topic's configs with value, source and type; a broker answers for itself alone (INVALID_REQUEST for another
//!   id); a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION; null keys are all.
//!   Of a broker those of `configs.rs`, with synonyms if wanted.
//! - Left out: documentation; the synonyms of topics' configs; client metrics and groups (INVALID_REQUEST).

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use strandline_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::configs::{BROKER_CONFIGS, topic_configs};
use super::{Answer, Call, KafkaVersion, Operation, from_state};
use crate::embedded::state::State;

/// Kafka's numbers for the kinds of resources.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;

/// Kafka's numbers for where a value comes from.
pub(super) const SOURCE_TOPIC: i8 = 1;
const SOURCE_DYNAMIC_BROKER: i8 = 2;
const SOURCE_DYNAMIC_DEFAULT_BROKER: i8 = 3;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let describe = |resource: &DescribeConfigsResource| {
        let (error_code, error_message, configs) =
            match configs(call, state, resource, request.include_synonyms) {
                Ok(configs) => (ErrorCode::None, None, configs),
                Err((code, message)) => (code, Some(message), Vec::new()),
            };
        DescribeConfigsResult {
            error_code,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            configs,
            ..DescribeConfigsResult::default()
        }
    };
    DescribeConfigsResponse {
        throttle_time_ms: call.throttle_ms,
        results: request.resources.iter().map(describe).collect(),
        ..DescribeConfigsResponse::default()
    }
}

fn configs(
    call: &Call,
    state: &State,
    resource: &DescribeConfigsResource,
    include_synonyms: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, (ErrorCode, String)> {
    let right = match resource.resource_type {
        TOPIC => call.check_topic(state, &resource.resource_name, Operation::DescribeConfigs),
        _ => call.check_cluster(state, Operation::DescribeConfigs),
    };
    right.map_err(|code| (code, "refused by the script or for want of a right".to_owned()))?;
    let wanted = |name: &str| {
        resource.configuration_keys.as_ref().is_none_or(|keys| keys.iter().any(|key| key == name))
    };
    let entry = |name: &str, value: Option<&str>, config_source, config_type, read_only| {
        DescribeConfigsResourceResult {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            config_source,
            read_only,
            config_type: if call.version >= 3 { config_type } else { 0 },
            ..DescribeConfigsResourceResult::default()
        }
    };
    let kafka = call.shared.version;
    match resource.resource_type {
        TOPIC => {
            let Some(topic) = state.topics.get(&resource.resource_name) else {
                return Err((ErrorCode::UnknownTopicOrPartition, "no such topic".to_owned()));
            };
            let configs = topic_configs(kafka).filter(|(name, _, _)| wanted(name));
            Ok(configs
                .map(|(name, default, kind)| match topic.configs.get(*name) {
                    Some(value) => entry(name, Some(value), SOURCE_TOPIC, *kind, false),
                    None => entry(name, Some(default), default_source(kafka, name), *kind, false),
                })
                .collect())
        }
        BROKER if resource.resource_name == call.broker.to_string() => {
            let broker = &state.brokers[&call.broker];
            let configs = BROKER_CONFIGS.iter().filter(|(name, ..)| wanted(name));
            let known = configs.map(|(name, default, kind, changes)| {
                let dynamic = broker.configs.get(*name).map(|value| (value, SOURCE_DYNAMIC_BROKER));
                let set = dynamic.or_else(|| Some((broker.static_configs.get(*name)?, SOURCE_STATIC_BROKER)));
                let read_only = !changes;
                let mut config = match set {
                    Some((value, source)) => entry(name, Some(value), source, *kind, read_only),
                    None => entry(name, *default, SOURCE_DEFAULT, *kind, read_only),
                };
                if include_synonyms {
                    let held = set.map(|(value, source)| (value.as_str(), source));
                    let synonyms = held.into_iter().chain(default.map(|value| (value, SOURCE_DEFAULT)));
                    config.synonyms = synonyms.map(|(value, source)| synonym(name, value, source)).collect();
                }
                config
            });
            Ok(known.collect())
        }
        BROKER => {
            let (expected, given) = (call.broker, &resource.resource_name);
            let message = format!("Unexpected broker id, expected {expected}, but received {given}");
            Err((ErrorCode::InvalidRequest, message))
        }
        other => Err((ErrorCode::InvalidRequest, format!("Unsupported resource type: {other}"))),
    }
}

fn synonym(name: &str, value: &str, source: i8) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        source,
        ..DescribeConfigsSynonym::default()
    }
}

/// Where eligible leader replicas are on, the controller holds `min.insync.replicas` for all brokers (KIP-966).
fn default_source(kafka: KafkaVersion, name: &str) -> i8 {
    let held = name == "min.insync.replicas" && matches!(kafka, KafkaVersion::V4_3 | KafkaVersion::V4_4);
    if held { SOURCE_DYNAMIC_DEFAULT_BROKER } else { SOURCE_DEFAULT }
}

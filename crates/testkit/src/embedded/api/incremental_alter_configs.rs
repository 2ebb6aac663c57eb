//! IncrementalAlterConfigs.
//!
//! - Versions: 0 to 1.
//! - Kept: set, delete, append and subtract; topics' names of configs are checked (INVALID_CONFIG), all of a resource
//!   or none; `validate_only`.
//!   A broker's configs only where a running broker can take another value (INVALID_REQUEST).
//! - Left out: values are not checked; of brokers each alone, not the cluster's default (INVALID_REQUEST); other
//!   resources (INVALID_REQUEST).

use std::collections::BTreeMap;

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig,
};
use strandline_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::configs::{BROKER_CONFIGS, is_topic_config, topic_config};
use super::describe_configs::{BROKER, TOPIC};
use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

/// Kafka's numbers for what is done to a config.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(
    call: &Call,
    state: &mut State,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let responses = request.resources.into_iter().map(|resource| {
        let altered = alter(call, state, &resource, request.validate_only);
        AlterConfigsResourceResponse {
            error_code: altered.err().unwrap_or(ErrorCode::None),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..AlterConfigsResourceResponse::default()
        }
    });
    IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        throttle_time_ms: call.throttle_ms,
        ..IncrementalAlterConfigsResponse::default()
    }
}

fn alter(
    call: &Call,
    state: &mut State,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), ErrorCode> {
    match resource.resource_type {
        TOPIC => call.check_topic(state, &resource.resource_name, Operation::AlterConfigs)?,
        _ => call.check_cluster(state, Operation::AlterConfigs)?,
    }
    let configs = match resource.resource_type {
        TOPIC => {
            let topic = state.topics.get_mut(&resource.resource_name);
            let configs = &mut topic.ok_or(ErrorCode::UnknownTopicOrPartition)?.configs;
            if !resource.configs.iter().all(|config| is_topic_config(call.shared.version, &config.name)) {
                return Err(ErrorCode::InvalidConfig);
            }
            configs
        }
        BROKER => {
            let id = resource.resource_name.parse().map_err(|_| ErrorCode::InvalidRequest)?;
            let changes =
                |name: &str| BROKER_CONFIGS.iter().any(|(known, _, _, changes)| *known == name && *changes);
            if !resource.configs.iter().all(|config| changes(&config.name)) {
                return Err(ErrorCode::InvalidRequest);
            }
            &mut state.brokers.get_mut(&id).ok_or(ErrorCode::InvalidRequest)?.configs
        }
        _ => return Err(ErrorCode::InvalidRequest),
    };
    let mut altered = configs.clone();
    for config in &resource.configs {
        apply(&mut altered, config)?;
    }
    if !validate_only {
        *configs = altered;
    }
    Ok(())
}

fn apply(configs: &mut BTreeMap<String, String>, config: &AlterableConfig) -> Result<(), ErrorCode> {
    let given = || config.value.as_deref().ok_or(ErrorCode::InvalidConfig);
    let items = |value: &str| -> Vec<String> {
        value.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
    };
    let present = items(topic_config(configs, &config.name).unwrap_or_default());
    let value = match config.config_operation {
        SET => given()?.to_owned(),
        DELETE => {
            configs.remove(&config.name);
            return Ok(());
        }
        APPEND => {
            let added = items(given()?).into_iter().filter(|item| !present.contains(item));
            present.iter().cloned().chain(added).collect::<Vec<_>>().join(",")
        }
        SUBTRACT => {
            let gone = items(given()?);
            present.into_iter().filter(|item| !gone.contains(item)).collect::<Vec<_>>().join(",")
        }
        // Kafka's controller stumbles over a number that it does not know.
        _ => return Err(ErrorCode::UnknownServerError),
    };
    configs.insert(config.name.clone(), value);
    Ok(())
}

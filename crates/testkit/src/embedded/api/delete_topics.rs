//! DeleteTopics.
//!
//! - Versions: 1 to 6.
//! - Kept: any broker takes it; by name or, from version 6, by id (UNKNOWN_TOPIC_ID).
//! - Left out: `delete.topic.enable`; the topic is gone at once, at every broker.

use bytes::Bytes;
use strandline_protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use strandline_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use strandline_protocol::{ErrorCode, Uuid};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

fn respond(call: &Call, state: &mut State, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let by_name = |name| DeleteTopicState { name: Some(name), ..DeleteTopicState::default() };
    let named = request.topic_names.into_iter().map(by_name);
    let responses = request.topics.into_iter().chain(named).map(|topic| {
        let by_id = topic.name.is_none();
        let name = topic.name.or_else(|| state.name_of(topic.topic_id));
        let (error_code, id) = match delete(call, state, name.as_deref(), by_id) {
            Ok(id) => (ErrorCode::None, id),
            Err(code) => (code, topic.topic_id),
        };
        // The name of a hidden topic is not told to who knows its id.
        let name = name.filter(|_| !(by_id && error_code == ErrorCode::TopicAuthorizationFailed));
        let topic_id = if call.version >= 6 { id } else { Uuid::ZERO };
        DeletableTopicResult { name, topic_id, error_code, ..DeletableTopicResult::default() }
    });
    DeleteTopicsResponse {
        responses: responses.collect(),
        throttle_time_ms: call.throttle_ms,
        ..DeleteTopicsResponse::default()
    }
}

fn delete(call: &Call, state: &mut State, name: Option<&str>, by_id: bool) -> Result<Uuid, ErrorCode> {
    call.check()?;
    if let Some(name) = name {
        call.check_topic(state, name, Operation::Delete)?;
    }
    let unknown = if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
    let topic = name.and_then(|name| state.topics.remove(name)).ok_or(unknown)?;
    Ok(topic.id.0)
}

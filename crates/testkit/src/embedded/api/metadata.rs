//! Metadata.
//!
//! - Versions: 0 to 12 (3.9) or 13.
//! - Kept: null topics are all topics (an empty list in version 0); an empty list is none. Topics by id from version
//!   12. A topic is created only if the request allows it (versions below 4 always do), the cluster does, and it was
//!   named; the answer then still is UNKNOWN_TOPIC_OR_PARTITION. Brokers that are gone are not listed; a partition without a leader
//!   has LEADER_NOT_AVAILABLE. An unknown id is UNKNOWN_TOPIC_ID.
//! - Left out: authorized operations, racks, listeners that a replica's broker lacks.

use std::collections::BTreeMap;

use bytes::Bytes;
use strandline_protocol::messages::metadata::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use strandline_protocol::messages::{MetadataRequest, MetadataResponse};
use strandline_protocol::{ErrorCode, Uuid};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{INTERNAL, State};
use crate::embedded::view::{PartitionView, TopicView};

/// The first version in which the request says whether it may create topics.
const SAYS_AUTO_CREATION: i16 = 4;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: MetadataRequest) -> MetadataResponse {
    let view = state.told_by(call.broker);
    let all =
        request.topics.is_none() || (call.version == 0 && request.topics.as_ref().is_some_and(Vec::is_empty));
    let may_create =
        state.auto_create && (call.version < SAYS_AUTO_CREATION || request.allow_auto_topic_creation);
    let mut topics = Vec::new();
    if all {
        let seen = |(name, _): &(&String, &TopicView)| {
            call.error.is_some() || call.check_topic(state, name, Operation::Describe).is_ok()
        };
        topics.extend(
            view.topics.iter().filter(seen).map(|(name, topic)| told(call, Some(name.clone()), topic)),
        );
    }
    for wanted in request.topics.into_iter().flatten() {
        let by_id = wanted.name.is_none();
        let name = wanted.name.or_else(|| {
            let found = view.topics.iter().find(|(_, topic)| topic.id.0 == wanted.topic_id);
            found.map(|(name, _)| name.clone())
        });
        let hidden = name.as_ref().and_then(|name| call.check_topic(state, name, Operation::Describe).err());
        if let Some(code) = hidden {
            let name = name.filter(|_| !by_id);
            topics.push(refused(name, wanted.topic_id, code));
            continue;
        }
        topics.push(match name.as_ref().and_then(|name| view.topics.get(name)) {
            Some(topic) => told(call, name, topic),
            None if by_id => refused(None, wanted.topic_id, ErrorCode::UnknownTopicId),
            None => missing(state, name, may_create),
        });
    }
    if let Err(code) = call.check() {
        topics.iter_mut().for_each(|topic| topic.error_code = code);
    }
    MetadataResponse {
        throttle_time_ms: call.throttle_ms,
        brokers: view
            .brokers
            .into_iter()
            .map(|broker| MetadataResponseBroker {
                node_id: broker.id,
                host: broker.host,
                port: broker.port.into(),
                ..MetadataResponseBroker::default()
            })
            .collect(),
        cluster_id: Some(view.cluster_id),
        controller_id: view.controller,
        topics,
        // Version 13 has a code of the whole answer, which is what a script means there.
        error_code: call.error.filter(|_| call.version >= 13).unwrap_or(ErrorCode::None),
        ..MetadataResponse::default()
    }
}

fn missing(state: &mut State, name: Option<String>, may_create: bool) -> MetadataResponseTopic {
    match &name {
        Some(created) if may_create && super::create_topics::is_valid_name(created) => {
            state.create_topic(created, 1, 1, BTreeMap::new());
            refused(name, Uuid::ZERO, ErrorCode::UnknownTopicOrPartition)
        }
        Some(bad) if !super::create_topics::is_valid_name(bad) => {
            refused(name, Uuid::ZERO, ErrorCode::InvalidTopicException)
        }
        _ => refused(name, Uuid::ZERO, ErrorCode::UnknownTopicOrPartition),
    }
}

fn refused(name: Option<String>, topic_id: Uuid, error_code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic { error_code, name, topic_id, ..MetadataResponseTopic::default() }
}

fn told(call: &Call, name: Option<String>, topic: &TopicView) -> MetadataResponseTopic {
    let is_internal = name.as_deref().is_some_and(|name| INTERNAL.contains(&name));
    // Before version 12 the name cannot be null, and here it never is.
    let partitions = topic.partitions.iter().zip(0..).map(|(view, index)| partition(call, view, index));
    MetadataResponseTopic {
        error_code: ErrorCode::None,
        name,
        topic_id: topic.id.0,
        is_internal,
        partitions: partitions.collect(),
        ..MetadataResponseTopic::default()
    }
}

fn partition(call: &Call, view: &PartitionView, partition_index: i32) -> MetadataResponsePartition {
    let error_code = if view.leader == -1 { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
    MetadataResponsePartition {
        error_code,
        partition_index,
        leader_id: view.leader,
        leader_epoch: view.leader_epoch,
        replica_nodes: view.replicas.clone(),
        isr_nodes: view.isr.clone(),
        offline_replicas: if call.version >= 5 { view.offline.clone() } else { Vec::new() },
        ..MetadataResponsePartition::default()
    }
}

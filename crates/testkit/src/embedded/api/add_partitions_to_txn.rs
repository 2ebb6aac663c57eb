//! AddPartitionsToTxn.
//!
//! - Versions: 0 to 5.
//! - Kept: only the coordinator answers (NOT_COORDINATOR); the producer has to be the one that has the transactional id
//!   (INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED); all partitions are added or none, where one is wrong the others are
//!   OPERATION_NOT_ATTEMPTED; a transaction begins with its first partition. From version 4 on many transactions at once, from
//!   brokers (CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION), which may only verify.
//! - Left out: nothing known.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
};
use strandline_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::log::now_ms;
use crate::embedded::state::{State, TRANSACTION_TOPIC};

/// The first version with many transactions, for brokers.
const MANY: i16 = 4;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse {
    let throttle_time_ms = call.throttle_ms;
    if call.version < MANY {
        let id = &request.v3_and_below_transactional_id;
        let producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch);
        let topics = &request.v3_and_below_topics;
        let results_by_topic_v3_and_below = add(call, state, id, producer, topics, false);
        return AddPartitionsToTxnResponse {
            throttle_time_ms,
            results_by_topic_v3_and_below,
            ..AddPartitionsToTxnResponse::default()
        };
    }
    if let Err(error_code) = call.check_cluster(state, Operation::ClusterAction) {
        return AddPartitionsToTxnResponse {
            throttle_time_ms,
            error_code,
            ..AddPartitionsToTxnResponse::default()
        };
    }
    let results = request.transactions.iter().map(|it| AddPartitionsToTxnResult {
        transactional_id: it.transactional_id.clone(),
        topic_results: add(
            call,
            state,
            &it.transactional_id,
            (it.producer_id, it.producer_epoch),
            &it.topics,
            it.verify_only,
        ),
        ..AddPartitionsToTxnResult::default()
    });
    AddPartitionsToTxnResponse {
        throttle_time_ms,
        results_by_transaction: results.collect(),
        ..AddPartitionsToTxnResponse::default()
    }
}

fn add(
    call: &Call,
    state: &mut State,
    id: &str,
    producer: (i64, i16),
    topics: &[AddPartitionsToTxnTopic],
    verify_only: bool,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let partitions: Vec<(String, i32)> = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.name.clone(), *partition)))
        .collect();
    let wrong: Vec<Option<ErrorCode>> =
        partitions.iter().map(|(topic, partition)| wrong(call, state, topic, *partition)).collect();
    let refused = call.check_transactional_id(state, id, Operation::Write).err();
    let codes: Vec<ErrorCode> = if let Some(code) = refused {
        vec![code; partitions.len()]
    } else if wrong.iter().any(Option::is_some) {
        wrong.into_iter().map(|code| code.unwrap_or(ErrorCode::OperationNotAttempted)).collect()
    } else {
        let added = take(call, state, id, producer, &partitions, verify_only);
        vec![added.err().unwrap_or(ErrorCode::None); partitions.len()]
    };
    let mut codes = codes.into_iter();
    let result = |topic: &AddPartitionsToTxnTopic| AddPartitionsToTxnTopicResult {
        name: topic.name.clone(),
        results_by_partition: topic
            .partitions
            .iter()
            .zip(codes.by_ref())
            .map(|(partition, code)| AddPartitionsToTxnPartitionResult {
                partition_index: *partition,
                partition_error_code: code.code(),
                ..AddPartitionsToTxnPartitionResult::default()
            })
            .collect(),
        ..AddPartitionsToTxnTopicResult::default()
    };
    topics.iter().map(result).collect()
}

fn wrong(call: &Call, state: &mut State, topic: &str, partition: i32) -> Option<ErrorCode> {
    if let Err(code) = call.check_topic(state, topic, Operation::Write) {
        return Some(code);
    }
    state.partition(topic, partition).is_none().then_some(ErrorCode::UnknownTopicOrPartition)
}

fn take(
    call: &Call,
    state: &mut State,
    id: &str,
    (producer_id, epoch): (i64, i16),
    partitions: &[(String, i32)],
    verify_only: bool,
) -> Result<(), ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    if state.coordinator(TRANSACTION_TOPIC, id) != Some(call.broker) {
        return Err(ErrorCode::NotCoordinator);
    }
    let transaction = state.transactions.get_mut(id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
    transaction.check_producer(producer_id, epoch).map_err(|code| older(call, code))?;
    if verify_only {
        let has = partitions.iter().all(|partition| transaction.partitions.contains(partition));
        return if has { Ok(()) } else { Err(ErrorCode::TransactionAbortable) };
    }
    transaction.add(partitions, now_ms())
}

/// PRODUCER_FENCED is told from version 2 on.
pub(super) fn older(call: &Call, code: ErrorCode) -> ErrorCode {
    if call.version < 2 && code == ErrorCode::ProducerFenced { ErrorCode::InvalidProducerEpoch } else { code }
}

//! Produce.
//!
//! - Versions: 3 to 11 (3.9), 12 (4.0) or 13.
//! - Kept: topics by id in version 13; only leaders append; one batch per partition; its CRC and records are checked;
//!   `max.message.bytes`; a compacted topic wants keys; a repeated batch of an idempotent producer (one of its last
//!   five) is answered with its first offset and not appended again, a gap is OUT_OF_ORDER_SEQUENCE_NUMBER, an older
//!   epoch INVALID_PRODUCER_EPOCH; acks=all with fewer in-sync replicas than `min.insync.replicas` is
//!   NOT_ENOUGH_REPLICAS and appends nothing; acks=0 is not answered, and closes the connection on an error; from
//!   version 10 the current leader is told with NOT_LEADER_OR_FOLLOWER (KIP-951).
//!   A batch of a transaction needs its transactional id, and its partition in the transaction: older clients have added it
//!   (TRANSACTION_ABORTABLE, INVALID_TXN_STATE below version 11), version 12 adds it by writing.
//!   Where `message.timestamp.type` is LogAppendTime, the batch and the answer have the time of the append.
//! - Left out: waiting for replicas (all have the record at once); bounds on timestamps.

use bytes::Bytes;
use strandline_protocol::messages::produce::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData, PartitionProduceResponse, TopicProduceResponse,
};
use strandline_protocol::messages::{ProduceRequest, ProduceResponse};
use strandline_protocol::records::BatchHeader;
use strandline_protocol::{ErrorCode, Message as _};

use super::configs::topic_config;
use super::{Answer, Call, Operation, encoded};
use crate::embedded::log::{NO_KEY, header_of, now_ms};
use crate::embedded::state::State;

/// The first version that names topics by id.
const BY_ID: i16 = 13;

/// The first version that tells the current leader.
const LEADER_HINTS: i16 = 10;

/// The first version whose transactional batches take their partition into the transaction.
const ADDS_PARTITIONS: i16 = 12;

/// The first version in which a partition that is not in the transaction is TRANSACTION_ABORTABLE.
const ABORTABLE: i16 = 11;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let Ok(request) = ProduceRequest::decode(body, call.version) else { return Answer::Close };
    let response = respond(call, &mut call.shared.state(), &request);
    call.shared.changed();
    if request.acks != 0 {
        return encoded(call, &response);
    }
    let mut partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    match partitions.all(|partition| partition.error_code == ErrorCode::None) {
        true => Answer::Nothing,
        false => Answer::Close,
    }
}

fn respond(call: &Call, state: &mut State, request: &ProduceRequest) -> ProduceResponse {
    let mut response = ProduceResponse { throttle_time_ms: call.throttle_ms, ..ProduceResponse::default() };
    for topic in &request.topic_data {
        let name = match call.version >= BY_ID {
            true => state.name_of(topic.topic_id).ok_or(ErrorCode::UnknownTopicId),
            false => Ok(topic.name.clone()),
        };
        let mut partition_responses = Vec::new();
        for data in &topic.partition_data {
            let result = match &name {
                Ok(name) => append(call, state, name, data, request),
                Err(code) => Err((*code, None, -1)),
            };
            let mut partition = told(call, data.index, result);
            if let Ok(name) = &name {
                hint(call, state, name, &mut partition, &mut response.node_endpoints);
            }
            partition_responses.push(partition);
        }
        response.responses.push(TopicProduceResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partition_responses,
            ..TopicProduceResponse::default()
        });
    }
    response
}

/// The code, a message, and the log start where it is told.
type Refusal = (ErrorCode, Option<&'static str>, i64);

struct Appended {
    base_offset: i64,
    /// The log start.
    start: i64,
    /// -1 where the timestamps are the producer's.
    append_time_ms: i64,
}

fn append(
    call: &Call,
    state: &mut State,
    topic: &str,
    data: &PartitionProduceData,
    request: &ProduceRequest,
) -> Result<Appended, Refusal> {
    let acks = request.acks;
    let header = data.records.as_deref().and_then(header_of);
    if let Some(header) = header.filter(|header| header.attributes.is_transactional()) {
        may_write(call, state, topic, data.index, request, &header).map_err(|code| (code, None, -1))?;
    }
    call.check_topic(state, topic, Operation::Write).map_err(|code| (code, None, -1))?;
    if !(-1..=1).contains(&acks) {
        return Err((ErrorCode::InvalidRequiredAcks, None, -1));
    }
    let number = |state: &State, name| {
        let configs = state.topics.get(topic).map(|topic| &topic.configs);
        configs.and_then(|configs| topic_config(configs, name)).and_then(|value| value.parse::<usize>().ok())
    };
    let (min_isr, bytes_max) = (number(state, "min.insync.replicas"), number(state, "max.message.bytes"));
    let config = |name| state.topics.get(topic).and_then(|topic| topic_config(&topic.configs, name));
    let append_time_ms = (config("message.timestamp.type") == Some("LogAppendTime")).then(now_ms);
    let compacted = state
        .topics
        .get(topic)
        .and_then(|topic| topic.configs.get("cleanup.policy"))
        .is_some_and(|policy| policy.split(',').any(|policy| policy.trim() == "compact"));
    let partition = state.led(call.broker, topic, data.index, -1).map_err(|code| (code, None, -1))?;
    if acks == -1 && min_isr.is_some_and(|min| partition.isr.len() < min) {
        return Err((ErrorCode::NotEnoughReplicas, None, -1));
    }
    let records = data.records.clone().unwrap_or_default();
    if bytes_max.is_some_and(|max| records.len() > max) {
        return Err((ErrorCode::MessageTooLarge, None, -1));
    }
    let epoch = partition.leader_epoch;
    let appended = partition.log.produce(&records, epoch, compacted, append_time_ms);
    let start = partition.log.start_offset();
    match appended {
        Ok(base_offset) => Ok(Appended { base_offset, start, append_time_ms: append_time_ms.unwrap_or(-1) }),
        // A broker tells the log start where it refuses single records or a sequence, and not where it refuses the batch.
        Err((code @ (ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch), message)) => {
            Err((code, Some(message), start))
        }
        Err((code, message @ NO_KEY)) => Err((code, Some(message), start)),
        Err((code, message)) => Err((code, Some(message), -1)),
    }
}

/// Whether a batch of a transaction may be written: the producer needs the right on the transactional id, and the partition
/// has to be in the transaction. A client of version 12 or newer need not have added it first (KIP-890).
///
/// Source: `AddPartitionsToTxnManager`, `ReplicaManager#handleProduceAppend`.
fn may_write(
    call: &Call,
    state: &mut State,
    topic: &str,
    index: i32,
    request: &ProduceRequest,
    header: &BatchHeader,
) -> Result<(), ErrorCode> {
    let id = request.transactional_id.as_deref().ok_or(ErrorCode::TransactionalIdAuthorizationFailed)?;
    call.check_transactional_id(state, id, Operation::Write)?;
    let partition = state.partition(topic, index);
    if partition.is_none_or(|partition| partition.log.is_open(header.producer_id, header.producer_epoch)) {
        return Ok(());
    }
    let transaction = state.transactions.get_mut(id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
    transaction.check_producer(header.producer_id, header.producer_epoch).map_err(|code| match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        other => other,
    })?;
    let partition = (topic.to_owned(), index);
    if call.version >= ADDS_PARTITIONS {
        return transaction.add(&[partition], now_ms());
    }
    match transaction.partitions.contains(&partition) {
        true => Ok(()),
        false if call.version >= ABORTABLE => Err(ErrorCode::TransactionAbortable),
        false => Err(ErrorCode::InvalidTxnState),
    }
}

fn told(call: &Call, index: i32, result: Result<Appended, Refusal>) -> PartitionProduceResponse {
    let told = PartitionProduceResponse {
        index,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        ..PartitionProduceResponse::default()
    };
    match result {
        Ok(Appended { base_offset, start, append_time_ms }) => PartitionProduceResponse {
            base_offset,
            log_append_time_ms: append_time_ms,
            log_start_offset: if call.version >= 5 { start } else { -1 },
            ..told
        },
        Err((error_code, message, start)) => PartitionProduceResponse {
            error_code,
            log_start_offset: if call.version >= 5 { start } else { -1 },
            error_message: message.filter(|_| call.version >= 8).map(str::to_owned),
            ..told
        },
    }
}

/// Tells the current leader where the error says that the client knows another.
fn hint(
    call: &Call,
    state: &State,
    topic: &str,
    told: &mut PartitionProduceResponse,
    endpoints: &mut Vec<NodeEndpoint>,
) {
    let stale = told.error_code == ErrorCode::NotLeaderOrFollower;
    if !stale || call.version < LEADER_HINTS || call.error.is_some() {
        return;
    }
    let Some((leader_id, leader_epoch, broker)) = state.told_leader(call.broker, topic, told.index) else {
        return;
    };
    told.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch, ..LeaderIdAndEpoch::default() };
    let known = endpoints.iter().any(|endpoint| endpoint.node_id == leader_id);
    if let (Some(broker), false) = (broker, known) {
        let (host, port) = (broker.host, broker.port.into());
        endpoints.push(NodeEndpoint { node_id: leader_id, host, port, ..NodeEndpoint::default() });
    }
}

//! EndTxn.
//!
//! - Versions: 0 to 4 (3.9) or 5.
//! - Kept: only the coordinator answers (NOT_COORDINATOR); only the producer that has the transactional id ends it
//!   (INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED); ending nothing is INVALID_TXN_STATE, the same end again is success. From
//!   version 5 on (KIP-890) each end tells the producer its next epoch, aborting nothing is an end as well, and the same end
//!   again is success only with the epoch before.
//! - Left out: the markers are in every partition when the answer comes.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::{EndTxnRequest, EndTxnResponse};

use super::add_partitions_to_txn::older;
use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{State, TRANSACTION_TOPIC};

/// The first version whose end gives the producer another epoch.
const BUMPS: i16 = 5;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

fn respond(call: &Call, state: &mut State, request: EndTxnRequest) -> EndTxnResponse {
    let (error_code, (producer_id, producer_epoch)) = match end(call, state, &request) {
        Ok(producer) if call.version >= BUMPS => (ErrorCode::None, producer),
        Ok(_) => (ErrorCode::None, (-1, -1)),
        Err(code) => (older(call, code), (-1, -1)),
    };
    EndTxnResponse {
        throttle_time_ms: call.throttle_ms,
        error_code,
        producer_id,
        producer_epoch,
        ..EndTxnResponse::default()
    }
}

fn end(call: &Call, state: &mut State, request: &EndTxnRequest) -> Result<(i64, i16), ErrorCode> {
    let id = &request.transactional_id;
    call.check_transactional_id(state, id, Operation::Write)?;
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    if state.coordinator(TRANSACTION_TOPIC, id) != Some(call.broker) {
        return Err(ErrorCode::NotCoordinator);
    }
    let next_producer_id = &mut state.next_producer_id;
    let next_id = || {
        *next_producer_id += 1;
        *next_producer_id - 1
    };
    let transaction = state.transactions.get_mut(id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
    let producer = (request.producer_id, request.producer_epoch);
    let markers = transaction.end(producer, request.committed, call.version >= BUMPS, next_id)?;
    let now = (transaction.producer_id, transaction.producer_epoch);
    if let Some(markers) = markers {
        state.write_markers(id, markers);
    }
    Ok(now)
}

//! InitProducerId.
//!
//! - Versions: 0 to 5.
//! - Kept: a new id in epoch 0 without a transactional id; with one, from its coordinator only (NOT_COORDINATOR), the same
//!   id in the next epoch; id and epoch that the caller knows of itself are compared (PRODUCER_FENCED), and epoch by epoch
//!   an id runs out; an open transaction is aborted first (CONCURRENT_TRANSACTIONS, until the caller asks again); a timeout has
//!   bounds (INVALID_TRANSACTION_TIMEOUT).
//! - Left out: two-phase commit (KIP-939); transactions do not time out.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{State, TRANSACTION_TOPIC};
use crate::embedded::transactions::{TransactionState, is_valid_timeout};

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let answer = from_state(call, body, respond);
    call.shared.changed();
    answer
}

fn respond(call: &Call, state: &mut State, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let (error_code, (producer_id, producer_epoch)) = match producer(call, state, &request) {
        Ok(producer) => (ErrorCode::None, producer),
        Err(code) => (code, (-1, -1)),
    };
    InitProducerIdResponse {
        throttle_time_ms: call.throttle_ms,
        error_code,
        producer_id,
        producer_epoch,
        ..InitProducerIdResponse::default()
    }
}

fn producer(
    call: &Call,
    state: &mut State,
    request: &InitProducerIdRequest,
) -> Result<(i64, i16), ErrorCode> {
    call.check()?;
    let Some(id) = &request.transactional_id else {
        // Who may write to some topic may be idempotent there (KIP-679).
        let writes = call.may_somewhere(state, Operation::Write);
        call.check_cluster(state, Operation::IdempotentWrite).or_else(|code| writes.ok_or(code))?;
        return Ok((next_id(state), 0));
    };
    call.check_transactional_id(state, id, Operation::Write)?;
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    if !is_valid_timeout(request.transaction_timeout_ms) {
        return Err(ErrorCode::InvalidTransactionTimeout);
    }
    if state.coordinator(TRANSACTION_TOPIC, id) != Some(call.broker) {
        return Err(ErrorCode::NotCoordinator);
    }
    let Some(mut transaction) = state.transactions.remove(id) else {
        let producer_id = next_id(state);
        let transaction = TransactionState::new(producer_id, request.transaction_timeout_ms);
        state.transactions.insert(id.clone(), transaction);
        return Ok((producer_id, 0));
    };
    let known = (request.producer_id >= 0).then_some((request.producer_id, request.producer_epoch));
    let initialised = transaction.initialise(known, request.transaction_timeout_ms, || next_id(state));
    let producer = (transaction.producer_id, transaction.producer_epoch);
    state.transactions.insert(id.clone(), transaction);
    initialised.map(|()| producer).map_err(|(code, markers)| {
        if let Some(markers) = markers {
            state.write_markers(id, markers);
        }
        code
    })
}

fn next_id(state: &mut State) -> i64 {
    state.next_producer_id += 1;
    state.next_producer_id - 1
}

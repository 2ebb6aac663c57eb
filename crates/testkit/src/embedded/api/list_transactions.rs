//! ListTransactions.
//!
//! - Versions: 0 to 1 (3.9, 4.0) or 2.
//! - Kept: a broker lists the transactions that it coordinates, and no others; filters by state (unknown ones are told
//!   and match nothing), producer id, from version 1 duration, and from version 2 a pattern for the whole id
//!   (INVALID_REGULAR_EXPRESSION where it is none); only ids that the client may describe.
//! - Left out: patterns are those of the crate `regex`, which has what Kafka's RE2 has.

use bytes::Bytes;
use regex::Regex;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::list_transactions::TransactionState as Listed;
use strandline_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::log::now_ms;
use crate::embedded::state::{State, TRANSACTION_TOPIC};

/// Source: `org.apache.kafka.coordinator.transaction.TransactionState`.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(call: &Call, state: &mut State, request: ListTransactionsRequest) -> ListTransactionsResponse {
    let pattern = request.transactional_id_pattern.filter(|pattern| !pattern.is_empty());
    let pattern = pattern.map(|pattern| Regex::new(&format!("^(?:{pattern})$"))).transpose();
    let error_code = match (call.check(), &pattern) {
        (Err(code), _) => code,
        (Ok(()), Err(_)) => ErrorCode::InvalidRegularExpression,
        (Ok(()), Ok(_)) => ErrorCode::None,
    };
    let mut response = ListTransactionsResponse {
        throttle_time_ms: call.throttle_ms,
        error_code,
        ..ListTransactionsResponse::default()
    };
    let (ErrorCode::None, Ok(pattern)) = (error_code, pattern) else { return response };
    let unknown = |name: &&String| !STATES.contains(&name.as_str());
    response.unknown_state_filters = request.state_filters.iter().filter(unknown).cloned().collect();
    let listed = state.transactions.iter().filter(|(id, transaction)| {
        let ids = &request.producer_id_filters;
        state.coordinator(TRANSACTION_TOPIC, id) == Some(call.broker)
            && (request.state_filters.is_empty() || request.state_filters.contains(&transaction.state))
            && (ids.is_empty() || ids.contains(&transaction.producer_id))
            && (request.duration_filter < 0 || now_ms() - transaction.start_ms >= request.duration_filter)
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
            && call.check_transactional_id(state, id, Operation::Describe).is_ok()
    });
    let told = listed.map(|(id, transaction)| Listed {
        transactional_id: id.clone(),
        producer_id: transaction.producer_id,
        transaction_state: transaction.state.clone(),
        ..Listed::default()
    });
    response.transaction_states = told.collect();
    response
}

//! DescribeTransactions.
//!
//! - Versions: 0.
//! - Kept: only the coordinator answers (NOT_COORDINATOR); an id that nobody has is TRANSACTIONAL_ID_NOT_FOUND; topics that the
//!   client may not describe are left out without a word.
//! - Left out: nothing known.

use bytes::Bytes;
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_transactions::{TopicData, TransactionState as Described};
use strandline_protocol::messages::{DescribeTransactionsRequest, DescribeTransactionsResponse};

use super::{Answer, Call, Operation, from_state};
use crate::embedded::state::{State, TRANSACTION_TOPIC};

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

fn respond(
    call: &Call,
    state: &mut State,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let states = request.transactional_ids.into_iter().map(|id| {
        let described = describe(call, state, &id)
            .unwrap_or_else(|error_code| Described { error_code, ..Described::default() });
        Described { transactional_id: id, ..described }
    });
    DescribeTransactionsResponse {
        transaction_states: states.collect(),
        throttle_time_ms: call.throttle_ms,
        ..DescribeTransactionsResponse::default()
    }
}

fn describe(call: &Call, state: &State, id: &str) -> Result<Described, ErrorCode> {
    call.check_transactional_id(state, id, Operation::Describe)?;
    if state.coordinator(TRANSACTION_TOPIC, id) != Some(call.broker) {
        return Err(ErrorCode::NotCoordinator);
    }
    let transaction = state.transactions.get(id).ok_or(ErrorCode::TransactionalIdNotFound)?;
    let mut topics: Vec<TopicData> = Vec::new();
    let seen = |topic: &str| call.check_topic(state, topic, Operation::Describe).is_ok();
    for (topic, partition) in transaction.partitions.iter().filter(|(topic, _)| seen(topic)) {
        match topics.iter_mut().find(|known| known.topic == *topic) {
            Some(known) => known.partitions.push(*partition),
            None => topics.push(TopicData {
                topic: topic.clone(),
                partitions: vec![*partition],
                ..TopicData::default()
            }),
        }
    }
    Ok(Described {
        transaction_state: transaction.state.clone(),
        transaction_timeout_ms: transaction.timeout_ms,
        transaction_start_time_ms: transaction.start_ms,
        producer_id: transaction.producer_id,
        producer_epoch: transaction.producer_epoch,
        topics,
        ..Described::default()
    })
}

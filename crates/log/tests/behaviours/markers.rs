//! Transactions without records, on a real cluster: each leaves the marker of its end in a partition, and nothing else.

use std::time::Duration;

use strandline_conn::Call;
use strandline_meta::routing::Subject;
use strandline_meta::{Cluster, ErrorCode};
use strandline_protocol::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use strandline_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
};
use tokio::time::{Instant, sleep};

use crate::soon;

/// The last versions in which a client takes each step of a transaction by itself.
const ADD_BY_CLIENT: i16 = 3;
const END_WITHOUT_EPOCH: i16 = 4;

/// Repeats what a coordinator puts off: while it starts, and while it ends the transaction before.
async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, ErrorCode>) -> T {
    let deadline = soon();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(code) => assert!(Instant::now() < deadline, "{what}: {code}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn checked<T>(code: ErrorCode, done: T) -> Result<T, ErrorCode> {
    if code == ErrorCode::None { Ok(done) } else { Err(code) }
}

/// Leaves so many markers in a partition. When it returns they are there.
pub(crate) async fn leave(cluster: &Cluster, topic: &str, partition: i32, count: u32) {
    let id = format!("markers of {topic}");
    let node_id = until("FindCoordinator", async || {
        let build = |_| FindCoordinatorRequest {
            key_type: 1,
            coordinator_keys: vec![id.clone()],
            ..FindCoordinatorRequest::default()
        };
        let found = cluster.send(Subject::Cluster, build, soon()).await;
        let found = found.map_err(|error| error.code().unwrap_or(ErrorCode::NetworkException))?;
        checked(found.coordinators[0].error_code, found.coordinators[0].node_id)
    })
    .await;
    let coordinator = cluster.dedicated(node_id, soon()).await.unwrap();
    // It is given once the transaction before has ended, and its markers are written.
    let producer = async || {
        until("InitProducerId", async || {
            let request = InitProducerIdRequest {
                transactional_id: Some(id.clone()),
                transaction_timeout_ms: 600_000,
                producer_id: -1,
                producer_epoch: -1,
                ..InitProducerIdRequest::default()
            };
            let given = coordinator.send(|_| request, Call::by(soon())).await.unwrap();
            checked(given.error_code, (given.producer_id, given.producer_epoch))
        })
        .await
    };
    for _ in 0..count {
        let (producer_id, producer_epoch) = producer().await;
        until("AddPartitionsToTxn", async || {
            let topics = vec![AddPartitionsToTxnTopic {
                name: topic.to_owned(),
                partitions: vec![partition],
                ..AddPartitionsToTxnTopic::default()
            }];
            let request = AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: id.clone(),
                v3_and_below_producer_id: producer_id,
                v3_and_below_producer_epoch: producer_epoch,
                v3_and_below_topics: topics,
                ..AddPartitionsToTxnRequest::default()
            };
            let call = Call::by(soon()).at_most(ADD_BY_CLIENT);
            let added = coordinator.send(|_| request, call).await.unwrap();
            let added = &added.results_by_topic_v3_and_below[0].results_by_partition[0];
            checked(ErrorCode::from_code(added.partition_error_code), ())
        })
        .await;
        until("EndTxn", async || {
            let request = EndTxnRequest {
                transactional_id: id.clone(),
                producer_id,
                producer_epoch,
                committed: false,
                ..EndTxnRequest::default()
            };
            let call = Call::by(soon()).at_most(END_WITHOUT_EPOCH);
            checked(coordinator.send(|_| request, call).await.unwrap().error_code, ())
        })
        .await;
    }
    producer().await;
}

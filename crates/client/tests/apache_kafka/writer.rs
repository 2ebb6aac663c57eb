//! Writes transactions and keyed records as a producer would, so that a test decides what is aborted.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use strandline_conn::Call;
use strandline_meta::routing::Subject;
use strandline_meta::{Cluster, Connection};
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use strandline_protocol::messages::produce::{PartitionProduceData, TopicProduceData};
use strandline_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest,
};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord, Producer};

use crate::soon;

/// The last versions in which a client takes each step of a transaction by itself.
const ADD_BY_CLIENT: i16 = 3;
const END_WITHOUT_EPOCH: i16 = 4;
const PRODUCE_BY_NAME: i16 = 11;

/// Repeats what a starting coordinator puts off.
async fn until<T, F>(what: &str, mut attempt: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Result<T, ErrorCode>>>,
{
    let deadline = soon();
    loop {
        match attempt().await? {
            Ok(done) => return Ok(done),
            Err(code) => {
                ensure!(tokio::time::Instant::now() < deadline, "{what}: {code}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn checked(code: ErrorCode) -> Result<(), ErrorCode> {
    if code == ErrorCode::None { Ok(()) } else { Err(code) }
}

/// One batch, appended by the leader of the moment; gives its first offset.
pub(crate) async fn append(
    cluster: &Cluster,
    topic: &str,
    transaction: Option<(&str, Producer)>,
    records: &[(Option<&str>, &str)],
) -> anyhow::Result<i64> {
    let mut batch = BatchBuilder::new(BatchOptions {
        producer: transaction.map(|(_, producer)| producer),
        transactional: transaction.is_some(),
        ..BatchOptions::default()
    });
    let timestamp_ms = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?;
    for (key, value) in records {
        let (key, value) = (key.map(str::as_bytes), Some(value.as_bytes()));
        batch.push(NewRecord { timestamp_ms, key, value, ..NewRecord::default() })?;
    }
    let mut bytes = Vec::new();
    batch.finish(&mut bytes)?;
    let partition =
        PartitionProduceData { index: 0, records: Some(bytes.into()), ..PartitionProduceData::default() };
    let request = ProduceRequest {
        transactional_id: transaction.map(|(id, _)| id.to_owned()),
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![partition],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    until("Produce", async || {
        let view = cluster.refresh_topics(&[topic], soon()).await?;
        let Some(leader) = view.partition(topic, 0).and_then(|partition| partition.leader) else {
            return Ok(Err(ErrorCode::LeaderNotAvailable));
        };
        // A leader that was killed stands in the view for a while.
        let Ok(connection) = cluster.dedicated(leader, soon()).await else {
            return Ok(Err(ErrorCode::BrokerNotAvailable));
        };
        let call = Call::by(soon()).at_most(PRODUCE_BY_NAME);
        let answer = connection.send(|_| request.clone(), call).await?;
        let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        let partition = partition.context("Produce answers nothing")?;
        Ok(checked(partition.error_code).map(|()| partition.base_offset))
    })
    .await
}

/// A transactional producer of one topic's partition 0.
pub(crate) struct Transactions<'a> {
    cluster: &'a Cluster,
    coordinator: Connection,
    id: &'a str,
    topic: &'a str,
    producer: Producer,
}

impl<'a> Transactions<'a> {
    pub(crate) async fn begin(cluster: &'a Cluster, id: &'a str, topic: &'a str) -> anyhow::Result<Self> {
        let node_id = until("FindCoordinator", async || {
            let build = |_| FindCoordinatorRequest {
                key_type: 1,
                coordinator_keys: vec![id.to_owned()],
                ..FindCoordinatorRequest::default()
            };
            let found = match cluster.send(Subject::Cluster, build, soon()).await {
                Ok(found) => found,
                Err(error) => return error.code().map(Err).ok_or_else(|| error.into()),
            };
            let found = found.coordinators.first().context("FindCoordinator answers nothing")?;
            Ok(checked(found.error_code).map(|()| found.node_id))
        })
        .await?;
        let coordinator = cluster.dedicated(node_id, soon()).await?;
        let producer = until("InitProducerId", async || {
            let request = InitProducerIdRequest {
                transactional_id: Some(id.to_owned()),
                transaction_timeout_ms: 600_000,
                producer_id: -1,
                producer_epoch: -1,
                ..InitProducerIdRequest::default()
            };
            let given = coordinator.send(|_| request, soon()).await?;
            let producer = Producer { id: given.producer_id, epoch: given.producer_epoch, base_sequence: 0 };
            Ok(checked(given.error_code).map(|()| producer))
        })
        .await?;
        Ok(Self { cluster, coordinator, id, topic, producer })
    }

    pub(crate) fn producer_id(&self) -> i64 {
        self.producer.id
    }

    /// Writes records in the transaction, which begins with the first of them.
    pub(crate) async fn write(&mut self, values: &[&str]) -> anyhow::Result<i64> {
        until("AddPartitionsToTxn", async || {
            let topic = AddPartitionsToTxnTopic {
                name: self.topic.to_owned(),
                partitions: vec![0],
                ..AddPartitionsToTxnTopic::default()
            };
            let request = AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: self.id.to_owned(),
                v3_and_below_producer_id: self.producer.id,
                v3_and_below_producer_epoch: self.producer.epoch,
                v3_and_below_topics: vec![topic],
                ..AddPartitionsToTxnRequest::default()
            };
            let added = self.coordinator.send(|_| request, Call::by(soon()).at_most(ADD_BY_CLIENT)).await?;
            let code = added
                .results_by_topic_v3_and_below
                .first()
                .and_then(|topic| topic.results_by_partition.first())
                .context("AddPartitionsToTxn answers nothing")?
                .partition_error_code;
            Ok(checked(ErrorCode::from_code(code)))
        })
        .await?;
        let records: Vec<(Option<&str>, &str)> = values.iter().map(|value| (None, *value)).collect();
        let offset = append(self.cluster, self.topic, Some((self.id, self.producer)), &records).await?;
        self.producer.base_sequence += i32::try_from(values.len())?;
        Ok(offset)
    }

    pub(crate) async fn end(&mut self, committed: bool) -> anyhow::Result<()> {
        until("EndTxn", async || {
            let request = EndTxnRequest {
                transactional_id: self.id.to_owned(),
                producer_id: self.producer.id,
                producer_epoch: self.producer.epoch,
                committed,
                ..EndTxnRequest::default()
            };
            let call = Call::by(soon()).at_most(END_WITHOUT_EPOCH);
            Ok(checked(self.coordinator.send(|_| request, call).await?.error_code))
        })
        .await
    }
}

//! A cluster in memory whose clock stands still, and a client that writes to it.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use strandline_client::producer::{
    Delivery, Outcome, ProduceError, Producer, ProducerConfig, ProducerRecord, RecordMetadata,
};
use strandline_client::reader::{PartitionReader, ReadPosition, ReaderConfig};
use strandline_conn::{ByteStream, Dialler, Dialling};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_protocol::messages::ProduceRequest;
use strandline_protocol::records::{Batches, Producer as Sequence};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{
    ClusterOptions, EmbeddedCluster, Fault, JournalEntry, MemoryNetwork, Rule,
};
use tokio::time::Instant;

pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct InMemory(MemoryNetwork);

impl Dialler for InMemory {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(async move { self.0.resolve(host, port) })
    }

    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        Box::pin(async move { Ok(Box::new(self.0.connect(address).await?) as Box<dyn ByteStream>) })
    }
}

/// A moment that nothing which works comes near.
pub(crate) fn late() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// So many brokers, and topic `orders` with one partition that broker 1 leads.
pub(crate) fn kafka(brokers: i32) -> EmbeddedCluster {
    kafka_as(ClusterOptions { brokers, ..ClusterOptions::default() })
}

pub(crate) fn kafka_as(options: ClusterOptions) -> EmbeddedCluster {
    let kafka = EmbeddedCluster::start(options).expect("loopback");
    kafka.create_topic("orders", 1);
    kafka.move_leader("orders", 0, 1);
    kafka
}

/// A client of the cluster that may write.
pub(crate) async fn connect(kafka: &EmbeddedCluster) -> Cluster {
    Cluster::connect(cluster_config(kafka).read_write(), late()).await.expect("the cluster answers")
}

pub(crate) fn cluster_config(kafka: &EmbeddedCluster) -> ClusterConfig {
    cluster_config_as(kafka, connection_config(kafka))
}

pub(crate) fn connection_config(kafka: &EmbeddedCluster) -> ConnectionConfig {
    let dialler = Arc::new(InMemory(kafka.memory_network()));
    ConnectionConfig { dialler, ..ConnectionConfig::default() }
}

pub(crate) fn cluster_config_as(kafka: &EmbeddedCluster, connection: ConnectionConfig) -> ClusterConfig {
    let addresses = BrokerAddress::parse_list(&kafka.bootstrap()).expect("addresses");
    ClusterConfig::new(addresses, connection).request_timeout(REQUEST_TIMEOUT).jitter_seed(1)
}

pub(crate) fn config() -> ProducerConfig {
    ProducerConfig { delivery_timeout: DELIVERY_TIMEOUT, jitter_seed: Some(1), ..ProducerConfig::default() }
}

pub(crate) async fn producer(kafka: &EmbeddedCluster) -> Producer {
    producer_as(kafka, config()).await
}

pub(crate) async fn producer_as(kafka: &EmbeddedCluster, config: ProducerConfig) -> Producer {
    Producer::start(&connect(kafka).await, config).expect("the settings are good")
}

/// A record of partition 0 of `orders`.
pub(crate) fn order(value: &str) -> ProducerRecord<'_> {
    record("orders", 0, value)
}

pub(crate) fn record<'a>(topic: &'a str, partition: i32, value: &'a str) -> ProducerRecord<'a> {
    ProducerRecord { topic, partition, value: Some(value.as_bytes()), ..ProducerRecord::default() }
}

pub(crate) async fn accept(producer: &Producer, record: ProducerRecord<'_>) -> Delivery {
    producer.send(record).await.expect("it is accepted")
}

/// Sends one record and waits for its answer: the offset, or what was told instead.
pub(crate) async fn write(producer: &Producer, record: ProducerRecord<'_>) -> Result<i64, ProduceError> {
    Ok(accept(producer, record).await.await?.offset)
}

/// Accepts all these orders, then waits for their answers.
pub(crate) async fn write_all(producer: &Producer, values: &[&str]) -> Vec<Result<i64, ProduceError>> {
    let mut deliveries = Vec::new();
    for value in values {
        deliveries.push(accept(producer, order(value)).await);
    }
    let mut answers = Vec::new();
    for delivery in deliveries {
        answers.push(delivery.await.map(|RecordMetadata { offset, .. }| offset));
    }
    answers
}

pub(crate) fn outcomes(answers: &[Result<i64, ProduceError>]) -> Vec<String> {
    let told = |answer: &Result<i64, ProduceError>| match answer {
        Ok(offset) => offset.to_string(),
        Err(error) => error.outcome.to_string(),
    };
    answers.iter().map(told).collect()
}

pub(crate) fn outcome(answer: &Result<i64, ProduceError>) -> Option<Outcome> {
    answer.as_ref().err().map(|error| error.outcome)
}

/// The values in a partition, as a reader gets them.
pub(crate) async fn log(kafka: &EmbeddedCluster, topic: &str, partition: i32) -> Vec<String> {
    let cluster = Cluster::connect(cluster_config(kafka), late()).await.expect("the cluster answers");
    let config = ReaderConfig { max_wait: Duration::from_millis(1), ..ReaderConfig::default() };
    let from = ReadPosition::at(0);
    let mut reader =
        PartitionReader::open(&cluster, topic, partition, from, config, late()).await.expect("it opens");
    let mut values = Vec::new();
    loop {
        let page = reader
            .next_page(late(), |record| {
                assert_eq!(record.offset, values.len() as i64, "offsets have no gap");
                values.push(String::from_utf8_lossy(record.value.unwrap_or(b"null")).into_owned());
                ControlFlow::Continue(())
            })
            .await
            .expect("it can be read");
        if reader.position().next_offset >= page.end_offset {
            return values;
        }
    }
}

pub(crate) async fn orders(kafka: &EmbeddedCluster) -> Vec<String> {
    log(kafka, "orders", 0).await
}

/// Every batch of every Produce request, in the order in which brokers read them: topic or its id, partition, sequence, and
/// how many records.
pub(crate) fn batches(kafka: &EmbeddedCluster) -> Vec<(i32, Sequence, i32)> {
    let produce = kafka.journal().into_iter().filter(|entry| entry.api == ApiKey::Produce);
    let mut batches = Vec::new();
    for entry in produce {
        for topic in entry.decode::<ProduceRequest>().expect("a request").topic_data {
            for data in topic.partition_data {
                let records = data.records.expect("it has records");
                let header = Batches::new(&records).next().expect("a batch").expect("a whole one").header;
                let sequence = Sequence {
                    id: header.producer_id,
                    epoch: header.producer_epoch,
                    base_sequence: header.base_sequence,
                };
                batches.push((data.index, sequence, header.record_count));
            }
        }
    }
    batches
}

/// `ID/EPOCH FIRST..=LAST` of each batch that was sent, in order.
pub(crate) fn sequences(kafka: &EmbeddedCluster) -> Vec<String> {
    let told = |(_, sequence, count): (i32, Sequence, i32)| {
        let Sequence { id, epoch, base_sequence } = sequence;
        format!("{id}/{epoch} {base_sequence}..={}", base_sequence + count - 1)
    };
    batches(kafka).into_iter().map(told).collect()
}

/// Waits until brokers have read so many Produce requests in all.
pub(crate) async fn produced(kafka: &EmbeddedCluster, requests: usize) {
    let wanted = |journal: &[JournalEntry]| {
        journal.iter().filter(|entry| entry.api == ApiKey::Produce).count() >= requests
    };
    let found = tokio::time::timeout(Duration::from_secs(600), kafka.journal_when(wanted)).await;
    assert!(found.is_ok(), "there were not {requests} Produce requests");
}

/// The next Produce request meets this.
pub(crate) fn produce(fault: Fault) -> Rule {
    Rule::new(fault).api(ApiKey::Produce)
}

pub(crate) fn code(code: ErrorCode) -> Rule {
    produce(Fault::Error(code))
}

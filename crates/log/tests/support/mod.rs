//! An embedded cluster reached through pipes in memory, and clients of it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use strandline_client::producer::ProducerConfig;
use strandline_conn::{ByteStream, Dialler, Dialling};
use strandline_log::{FetchConnections, KafkaMetadataLogConfig, METADATA_TOPIC};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_protocol::ApiKey;
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, MemoryNetwork};
use tokio::time::Instant;

/// How long one answer is waited for.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the producer tries.
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

pub(crate) fn kafka(brokers: i32) -> EmbeddedCluster {
    EmbeddedCluster::start(ClusterOptions { brokers, ..ClusterOptions::default() }).expect("loopback")
}

fn cluster_config(kafka: &EmbeddedCluster) -> ClusterConfig {
    let addresses = BrokerAddress::parse_list(&kafka.bootstrap()).expect("addresses");
    let dialler = Arc::new(InMemory(kafka.memory_network()));
    let connection = ConnectionConfig { dialler, ..ConnectionConfig::default() };
    ClusterConfig::new(addresses, connection).request_timeout(REQUEST_TIMEOUT).jitter_seed(1)
}

/// A client of the cluster that may write.
pub(crate) async fn connect(kafka: &EmbeddedCluster) -> Cluster {
    Cluster::connect(cluster_config(kafka).read_write(), late()).await.expect("the cluster answers")
}

/// One that only reads.
pub(crate) async fn connect_read_only(kafka: &EmbeddedCluster) -> Cluster {
    Cluster::connect(cluster_config(kafka), late()).await.expect("the cluster answers")
}

/// One that looks for the cluster with its first question.
pub(crate) fn unconnected(kafka: &EmbeddedCluster) -> Cluster {
    Cluster::start(cluster_config(kafka).read_write())
}

/// A log whose topic has so many partitions, with as many replicas as a small cluster has brokers. Answers are small, so that
/// a few records make more than one.
pub(crate) fn config(partition_count: i32, fetch_connections: FetchConnections) -> KafkaMetadataLogConfig {
    KafkaMetadataLogConfig {
        num_partitions: partition_count,
        replication: 1,
        min_isr: 1,
        fetch_connections,
        fetch_max_bytes: 2000,
        connections_per_leader: NonZeroUsize::MIN,
        request_timeout: REQUEST_TIMEOUT,
        stall_timeout: Duration::from_secs(10),
        producer: ProducerConfig {
            delivery_timeout: DELIVERY_TIMEOUT,
            jitter_seed: Some(1),
            ..ProducerConfig::default()
        },
        ..KafkaMetadataLogConfig::default()
    }
}

/// How often an API was asked for.
pub(crate) fn asked(kafka: &EmbeddedCluster, api: ApiKey) -> usize {
    kafka.journal().iter().filter(|entry| entry.api == api).count()
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The partition's leader leads on in the next epoch, as after an unclean election that cut the log at `offset`.
pub(crate) fn cut(kafka: &EmbeddedCluster, partition: i32, offset: i64) {
    let (leader, _) = kafka.leader(METADATA_TOPIC, partition);
    kafka.truncate(METADATA_TOPIC, partition, offset);
    kafka.move_leader(METADATA_TOPIC, partition, leader);
}

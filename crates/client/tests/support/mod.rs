//! What every test on the embedded cluster needs.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::ops::ControlFlow;
use std::time::Duration;

use strandline_client::reader::{PartitionReader, ReadError, ReadPosition, ReadRecord, ReaderConfig};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_protocol::ApiKey;
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster};
use tokio::time::Instant;

/// Long enough for everything that works.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// So many brokers, one topic `orders` with one partition, led by broker 1.
pub(crate) fn kafka(brokers: i32) -> EmbeddedCluster {
    let kafka =
        EmbeddedCluster::start(ClusterOptions { brokers, ..ClusterOptions::default() }).expect("loopback");
    kafka.create_topic("orders", 1);
    kafka
}

/// A read-only client.
pub(crate) async fn connect(kafka: &EmbeddedCluster) -> Cluster {
    let addresses = BrokerAddress::parse_list(&kafka.bootstrap()).expect("addresses");
    let config = ClusterConfig::new(addresses, ConnectionConfig::default()).jitter_seed(1);
    Cluster::connect(config, soon()).await.expect("the cluster answers")
}

/// Waits little, so that tests are fast.
pub(crate) fn brisk() -> ReaderConfig {
    ReaderConfig {
        max_wait: Duration::from_millis(50),
        retry_backoff: Duration::from_millis(5),
        jitter_seed: Some(1),
        ..ReaderConfig::default()
    }
}

pub(crate) async fn reader(cluster: &Cluster, from: i64, config: ReaderConfig) -> PartitionReader {
    PartitionReader::open(cluster, "orders", 0, ReadPosition::at(from), config, soon())
        .await
        .expect("it opens")
}

/// `OFFSET VALUE`
pub(crate) fn line(record: &ReadRecord<'_>) -> String {
    format!("{} {}", record.offset, String::from_utf8_lossy(record.value.unwrap_or(b"null")))
}

/// Reads to the end of the moment: the records, and the stop if there was one.
pub(crate) async fn read(reader: &mut PartitionReader) -> (Vec<String>, Option<ReadError>) {
    let mut lines = Vec::new();
    loop {
        let page = reader
            .next_page(soon(), |record| {
                lines.push(line(record));
                ControlFlow::Continue(())
            })
            .await;
        match page {
            Ok(page) if reader.position().next_offset >= page.end_offset => return (lines, None),
            Ok(_) => {}
            Err(error) => return (lines, Some(error)),
        }
    }
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

/// How often an API was asked for.
pub(crate) fn asked(kafka: &EmbeddedCluster, api: ApiKey) -> usize {
    kafka.journal().iter().filter(|entry| entry.api == api).count()
}

//! Following on the embedded cluster, over pipes in memory and with a clock that stands still: every way in which it does not
//! go well, each with both kinds of connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strandline_conn::{ByteStream, Dialler, Dialling};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_protocol::{ApiKey, TopicId};
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, JournalEntry, MemoryNetwork};
use tokio::time::{Instant, sleep, timeout};

use super::Follower;
use crate::kafka_log::brokers::ClusterBrokers;
use crate::kafka_log::config::{FetchConnections, KafkaMetadataLogConfig};
use crate::kafka_log::read::Shared;
use crate::subscription::{
    AssignedMetadataPartition, MetadataDelivery, MetadataEventQueueCapacity, MetadataEventSubscription,
    ReadingState, Subscriptions,
};

mod hindrances;
mod leaders;
mod model;
mod pages;
mod queue;
mod sessions;
mod stops;

/// Runs each test with both kinds of connections.
macro_rules! both_ways {
    ($($behaviour:ident)*) => {
        mod per_partition {
            $(
                #[tokio::test(start_paused = true)]
                async fn $behaviour() {
                    super::$behaviour(crate::kafka_log::config::FetchConnections::PerPartition).await;
                }
            )*
        }
        mod per_leader {
            $(
                #[tokio::test(start_paused = true)]
                async fn $behaviour() {
                    super::$behaviour(crate::kafka_log::config::FetchConnections::PerLeader).await;
                }
            )*
        }
    };
}
use both_ways;

const TOPIC: &str = "metadata";

/// Longer than anything here takes, on a clock that jumps when all wait.
const PATIENCE: Duration = Duration::from_secs(3600);

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

/// A cluster, its metadata topic, and what follows it.
struct World {
    kafka: EmbeddedCluster,
    shared: Arc<Shared<ClusterBrokers>>,
    subscriptions: Subscriptions,
    partition_count: i32,
}

impl World {
    /// Partition `n` is led by broker `n % brokers + 1`.
    async fn new(connections: FetchConnections, brokers: i32, partition_count: i32) -> Self {
        Self::with(connections, brokers, partition_count, |_| {}).await
    }

    async fn with(
        connections: FetchConnections,
        brokers: i32,
        partition_count: i32,
        change: impl FnOnce(&mut KafkaMetadataLogConfig),
    ) -> Self {
        let kafka = EmbeddedCluster::start(ClusterOptions { brokers, ..ClusterOptions::default() })
            .expect("loopback");
        let topic_id = kafka.create_topic(TOPIC, usize::try_from(partition_count).unwrap());
        for partition in 0..partition_count {
            let leader = partition % brokers + 1;
            if kafka.leader(TOPIC, partition).0 != leader {
                kafka.move_leader(TOPIC, partition, leader);
            }
        }
        let mut config =
            KafkaMetadataLogConfig { fetch_connections: connections, ..KafkaMetadataLogConfig::default() };
        change(&mut config);
        let shared = open(&kafka, topic_id, config).await;
        Self { kafka, shared, subscriptions: Subscriptions::default(), partition_count }
    }

    fn subscribe(&self, capacity: MetadataEventQueueCapacity) -> MetadataEventSubscription {
        let follower = Follower::new(Arc::clone(&self.shared), self.partition_count);
        self.subscriptions.open(Arc::new(follower), capacity)
    }

    /// A subscription with a queue of the usual size, which reads these partitions from their beginning.
    fn follow(&self, partitions: impl IntoIterator<Item = i32>) -> MetadataEventSubscription {
        let events = self.subscribe(MetadataEventQueueCapacity::default());
        for partition in partitions {
            events.assignment().add(partition, 0).unwrap();
        }
        events
    }

    /// Appends a batch for each of these offsets, with the offset as text.
    fn append(&self, partition: i32, offsets: std::ops::Range<i64>) {
        for offset in offsets {
            let at = self.kafka.append(TOPIC, partition, &[offset.to_string().as_bytes()]);
            assert_eq!(at, offset, "where the log of partition {partition} ends");
        }
    }

    fn fetches(&self) -> Vec<JournalEntry> {
        self.kafka.journal().into_iter().filter(|entry| entry.api == ApiKey::Fetch).collect()
    }

    fn asked(&self, api: ApiKey) -> usize {
        self.kafka.journal().iter().filter(|entry| entry.api == api).count()
    }
}

async fn open(
    kafka: &EmbeddedCluster,
    topic_id: TopicId,
    config: KafkaMetadataLogConfig,
) -> Arc<Shared<ClusterBrokers>> {
    let addresses = BrokerAddress::parse_list(&kafka.bootstrap()).expect("addresses");
    let dialler = Arc::new(InMemory(kafka.memory_network()));
    let connection = ConnectionConfig { dialler, ..ConnectionConfig::default() };
    let cluster = ClusterConfig::new(addresses, connection).jitter_seed(1);
    let cluster = Cluster::connect(cluster, Instant::now() + PATIENCE).await.expect("the cluster answers");
    cluster.refresh_topics(&[TOPIC], Instant::now() + PATIENCE).await.expect("the topic is there");
    let topic: Arc<str> = TOPIC.into();
    let brokers = ClusterBrokers { cluster, topic: Arc::clone(&topic) };
    Arc::new(Shared::new(brokers, topic, Some(topic_id), config))
}

fn capacity(records: usize) -> MetadataEventQueueCapacity {
    let records = records.try_into().unwrap();
    MetadataEventQueueCapacity { records, ..MetadataEventQueueCapacity::default() }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("nothing happened: {what}"))
}

/// Waits for a condition, as long as it takes.
async fn until(what: &str, condition: impl Fn() -> bool) {
    within(what, async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// The next `count` records, as `partition@offset=value`; anything else that comes is an error.
async fn records(events: &mut MetadataEventSubscription, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        match within(&format!("the next record after {seen:?}"), events.next()).await {
            Some(MetadataDelivery::Record { record, .. }) => {
                let value = record.value.as_deref().map_or("null".into(), String::from_utf8_lossy);
                seen.push(format!("{}@{}={value}", record.partition, record.offset));
            }
            Some(MetadataDelivery::Advanced { .. }) => {}
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    seen
}

fn expected(partition: i32, offsets: std::ops::Range<i64>) -> Vec<String> {
    offsets.map(|offset| format!("{partition}@{offset}={offset}")).collect()
}

/// What comes before the stop, and the stop with its causes.
async fn stop(events: &mut MetadataEventSubscription) -> (Vec<String>, String) {
    let mut seen = Vec::new();
    loop {
        match within(&format!("the stop after {seen:?}"), events.next()).await {
            Some(MetadataDelivery::Stopped { error, .. }) => return (seen, chain(&error)),
            Some(MetadataDelivery::Record { record, .. }) => seen.push(record.offset.to_string()),
            Some(MetadataDelivery::Advanced { next_offset, .. }) => seen.push(format!("to {next_offset}")),
            None => panic!("the subscription is closed"),
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn view(events: &MetadataEventSubscription, partition: i32) -> AssignedMetadataPartition {
    let list = events.assignment().list();
    list.into_iter().find(|assigned| assigned.partition == partition).expect("it is assigned")
}

/// What hinders a partition, and how often it has been tried in vain.
fn hindrance(events: &MetadataEventSubscription, partition: i32) -> Option<(String, u32)> {
    match view(events, partition).state {
        ReadingState::Retrying { failures, error, .. } => Some((chain(&error), failures)),
        _ => None,
    }
}

fn is_fetching(events: &MetadataEventSubscription, partition: i32) -> bool {
    matches!(view(events, partition).state, ReadingState::Fetching)
}

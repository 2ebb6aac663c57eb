//! The form on a real Apache Kafka: one broker for the whole suite, a topic for each behaviour.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use strandline_log::{FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options};

use crate::support::config;
use crate::{Form, markers, soon};

static KAFKA: OnceLock<ApacheKafka> = OnceLock::new();
static TOPICS: AtomicU32 = AtomicU32::new(1);

pub(crate) struct Apache<const PER_LEADER: bool> {
    cluster: Cluster,
    topic: String,
    partition_count: i32,
}

impl<const PER_LEADER: bool> Apache<PER_LEADER> {
    fn kafka() -> &'static ApacheKafka {
        let options = Options { tiered: false, ..Options::default() };
        KAFKA.get_or_init(|| ApacheKafka::start(options).unwrap())
    }

    fn config(&self) -> KafkaMetadataLogConfig {
        let connections =
            if PER_LEADER { FetchConnections::PerLeader } else { FetchConnections::PerPartition };
        KafkaMetadataLogConfig { topic: self.topic.clone(), ..config(self.partition_count, connections) }
    }
}

fn cluster_config() -> ClusterConfig {
    let bootstrap = BrokerAddress::parse_list(&Apache::<false>::kafka().bootstrap()).unwrap();
    ClusterConfig::new(bootstrap, ConnectionConfig::default())
}

impl<const PER_LEADER: bool> Form for Apache<PER_LEADER> {
    type Log = KafkaMetadataEventLog;

    const CANNOT: &'static [(&'static str, &'static str)] = &[(
        "a_log_cut_below_what_was_delivered_is_told",
        "no test can make a healthy broker lose what it acknowledged",
    )];

    async fn new(partition_count: i32) -> Self {
        // It blocks this test's thread alone.
        Self::kafka();
        let cluster = Cluster::connect(cluster_config().read_write(), soon()).await.unwrap();
        let topic = format!("metadata-{}", TOPICS.fetch_add(1, Ordering::Relaxed));
        let form = Self { cluster, topic, partition_count };
        form.open().await;
        form
    }

    async fn open(&self) -> Self::Log {
        KafkaMetadataEventLog::start(&self.cluster, self.config(), soon()).await.unwrap()
    }

    async fn open_read_only(&self) -> Self::Log {
        let cluster = Cluster::connect(cluster_config(), soon()).await.unwrap();
        KafkaMetadataEventLog::open_read_only(&cluster, self.config(), soon()).await.unwrap()
    }

    async fn leave_offsets_without_events(&self, partition: i32, count: u32) {
        markers::leave(&self.cluster, &self.topic, partition, count).await;
    }

    async fn advance_log_start(&self, partition: i32, offset: i64) {
        Self::kafka().delete_records(&self.topic, partition, offset).unwrap();
    }

    async fn truncate(&self, _: i32, _: i64) {
        unreachable!("see CANNOT");
    }
}

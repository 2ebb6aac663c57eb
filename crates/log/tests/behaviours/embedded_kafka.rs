//! The form on a Kafka cluster, embedded in this process, in both ways to fetch.

use strandline_log::{FetchConnections, KafkaMetadataEventLog, METADATA_TOPIC};
use strandline_meta::Cluster;
use strandline_protocol::records::Producer;
use strandline_testkit::embedded::EmbeddedCluster;

use crate::support::{config, connect, connect_read_only, cut, kafka};
use crate::{Form, soon};

pub(crate) struct EmbeddedKafka<const PER_LEADER: bool> {
    kafka: EmbeddedCluster,
    cluster: Cluster,
    partition_count: i32,
}

impl<const PER_LEADER: bool> EmbeddedKafka<PER_LEADER> {
    const FETCH_CONNECTIONS: FetchConnections =
        if PER_LEADER { FetchConnections::PerLeader } else { FetchConnections::PerPartition };
}

impl<const PER_LEADER: bool> Form for EmbeddedKafka<PER_LEADER> {
    type Log = KafkaMetadataEventLog;

    async fn new(partition_count: i32) -> Self {
        let kafka = kafka(2);
        let cluster = connect(&kafka).await;
        let form = Self { kafka, cluster, partition_count };
        // The first that opens it creates the topic.
        form.open().await;
        form
    }

    async fn open(&self) -> Self::Log {
        let config = config(self.partition_count, Self::FETCH_CONNECTIONS);
        KafkaMetadataEventLog::start(&self.cluster, config, soon()).await.unwrap()
    }

    async fn open_read_only(&self) -> Self::Log {
        let cluster = connect_read_only(&self.kafka).await;
        let config = config(self.partition_count, Self::FETCH_CONNECTIONS);
        KafkaMetadataEventLog::open_read_only(&cluster, config, soon()).await.unwrap()
    }

    /// Each is the marker of a transaction without records.
    async fn leave_offsets_without_events(&self, partition: i32, count: u32) {
        let producer = Producer { id: 77, epoch: 0, base_sequence: 0 };
        for _ in 0..count {
            self.kafka.end_transaction(METADATA_TOPIC, partition, producer, false);
        }
    }

    async fn advance_log_start(&self, partition: i32, offset: i64) {
        self.kafka.delete_records(METADATA_TOPIC, partition, offset);
    }

    async fn truncate(&self, partition: i32, offset: i64) {
        cut(&self.kafka, partition, offset);
    }
}

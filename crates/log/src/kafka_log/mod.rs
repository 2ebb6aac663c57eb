//! The metadata topic on a Kafka cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use strandline_client::producer::Producer;
use strandline_meta::{Cluster, ErrorCode, RefreshError, TopicView};
use strandline_protocol::TopicId;
use tokio::time::Instant;

use crate::event_log::{LiveMetadataEventLog, MetadataEventLog, MetadataLogIdentity};
use crate::publish::PublishError;
use crate::range::{MetadataRange, PartitionMarks, RangeError, RangeVisit};
use crate::record::MetadataEventVisitor;
use crate::subscription::{MetadataEventQueueCapacity, MetadataEventSubscription, Subscriptions};

mod brokers;
mod config;
mod follow;
mod page;
mod publish;
mod read;
mod start;
#[cfg(test)]
mod tests;

use brokers::{Brokers as _, ClusterBrokers};
pub use config::{
    DEFAULT_METADATA_FETCH_MAX_BYTES, DEFAULT_METADATA_FETCH_MAX_WAIT, DEFAULT_METADATA_FETCH_RETRY_BACKOFF,
    DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT, DEFAULT_MIN_ISR, DEFAULT_NUM_PARTITIONS, DEFAULT_REPLICATION,
    FetchConnections, KafkaMetadataLogConfig, MetadataLogConfigError, OnDeviation,
};
use publish::Publisher;
use read::Shared;
use start::Provisioned;
pub use start::{Awaited, StartLogError, TopicDeviation};

/// The metadata topic cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLogError {
    /// A setting is wrong. Correct it.
    #[error(transparent)]
    Config(#[from] MetadataLogConfigError),
    /// The cluster has no such topic: tiered storage was never used here, or the topic has another name.
    #[error(
        "the cluster has no topic {topic}: tiered storage is not in use here, or the topic has another name"
    )]
    NoMetadataTopic {
        /// The name looked for.
        topic: String,
    },
    /// The principal may not see the topic. READ and DESCRIBE on it suffice for everything here.
    #[error("no right to see topic {topic}: DESCRIBE on it is missing (READ and DESCRIBE are needed)")]
    Forbidden {
        /// The topic.
        topic: String,
    },
    /// The cluster answers about the topic with another code.
    #[error("the cluster answers {code} about topic {topic}")]
    Refused {
        /// The topic.
        topic: String,
        /// The code.
        code: ErrorCode,
    },
    /// The cluster could not be asked.
    #[error("the cluster could not be asked about topic {topic}")]
    Cluster {
        /// The topic.
        topic: String,
        /// Why.
        #[source]
        source: RefreshError,
    },
}

/// The metadata topic of a Kafka cluster. Clones are cheap and share everything.
///
/// [`start`](Self::start) opens it for reading and writing, and creates the topic where it is not there.
/// [`open_read_only`](Self::open_read_only) only reads: nothing but Metadata, ListOffsets, OffsetForLeaderEpoch and Fetch is
/// sent; no topic is created, no group is joined, nothing is written.
///
/// Positions belong to the caller: no group, no commit. What reads has connections of its own, which end with it.
#[derive(Clone)]
pub struct KafkaMetadataEventLog {
    shared: Arc<Shared<ClusterBrokers>>,
    live: Arc<Live>,
    partition_count: i32,
}

/// What a log keeps running.
struct Live {
    cluster: Cluster,
    /// `None` where the log was opened for reading.
    publisher: Option<Publisher>,
    subscriptions: Subscriptions,
    closed: AtomicBool,
    deviations: Vec<TopicDeviation>,
}

impl std::fmt::Debug for KafkaMetadataEventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaMetadataEventLog")
            .field("topic", &self.shared.topic)
            .field("topic_id", &self.shared.topic_id)
            .field("partition_count", &self.partition_count)
            .field("writable", &self.live.publisher.is_some())
            .finish_non_exhaustive()
    }
}

impl KafkaMetadataEventLog {
    /// Opens the topic for reading and writing. Where it is there it is taken as it is, and its partition count wins over
    /// the configured one; where it is not it is created. Of two that create it at once both succeed.
    ///
    /// A topic that was there is held against the configuration; [`deviations`](Self::deviations) tells what was found, and
    /// [`on_deviation`](KafkaMetadataLogConfig::on_deviation) what is done about it.
    ///
    /// A cluster that is coming up is waited for: brokers that do not answer, too few of them for the replicas, a
    /// controller that is being elected. The rights that it takes: DESCRIBE and, to write, WRITE on the topic; CREATE on the
    /// topic or the cluster where it is to be created; DESCRIBE_CONFIGS on the topic to hold it against the configuration,
    /// without which its settings are [not checked](TopicDeviation::NotChecked). READ is for reading.
    ///
    /// Must be called within a tokio runtime; the cluster must be a
    /// [read-write](strandline_meta::ClusterConfig::read_write) one.
    ///
    /// # Errors
    /// [`StartLogError`]; at `deadline` it says what was waited for.
    ///
    /// # Cancel safety
    /// A dropped call may leave the topic created.
    pub async fn start(
        cluster: &Cluster,
        config: KafkaMetadataLogConfig,
        deadline: Instant,
    ) -> Result<Self, StartLogError> {
        config.check()?;
        if !cluster.is_read_write() {
            return Err(StartLogError::ReadOnlyCluster);
        }
        // It asks nobody before the first event, and ends with this call if that fails.
        let producer = Producer::start(cluster, config.producer.clone())?;
        let provisioned = start::provision(cluster, &config, deadline).await?;
        let Provisioned { topic_id, partition_count, deviations, batch_bytes_max } = provisioned;
        let topic: Arc<str> = config.topic.as_str().into();
        let publisher = Publisher::new(
            producer,
            cluster,
            (Arc::clone(&topic), topic_id),
            partition_count,
            batch_bytes_max,
            config.producer.delivery_timeout,
        );
        Ok(Self::new(cluster, (topic, topic_id), partition_count, config, Some(publisher), deviations))
    }

    /// Finds the topic, its id and its partition count. A topic that does not exist is an error and stays so.
    ///
    /// # Errors
    /// [`OpenLogError`]: no such topic, no right to see it, or no answer before `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call leaves nothing behind.
    pub async fn open_read_only(
        cluster: &Cluster,
        config: KafkaMetadataLogConfig,
        deadline: Instant,
    ) -> Result<Self, OpenLogError> {
        config.check()?;
        let topic = config.topic.clone();
        let view = cluster.refresh_topics(&[&topic], deadline).await;
        let view = view.map_err(|source| OpenLogError::Cluster { topic: topic.clone(), source })?;
        let (topic_id, partition_count) = match view.topic_view(&topic) {
            TopicView::Known(known) => (known.id, known.partitions.len()),
            TopicView::NotAsked => return Err(OpenLogError::NoMetadataTopic { topic }),
            TopicView::Refused { code, .. } => {
                return Err(match code {
                    ErrorCode::UnknownTopicOrPartition => OpenLogError::NoMetadataTopic { topic },
                    ErrorCode::TopicAuthorizationFailed => OpenLogError::Forbidden { topic },
                    code => OpenLogError::Refused { topic, code },
                });
            }
        };
        let partition_count = i32::try_from(partition_count).unwrap_or(i32::MAX);
        Ok(Self::new(cluster, (topic.into(), topic_id), partition_count, config, None, Vec::new()))
    }

    fn new(
        cluster: &Cluster,
        (topic, topic_id): (Arc<str>, Option<TopicId>),
        partition_count: i32,
        config: KafkaMetadataLogConfig,
        publisher: Option<Publisher>,
        deviations: Vec<TopicDeviation>,
    ) -> Self {
        let brokers = ClusterBrokers { cluster: cluster.clone(), topic: Arc::clone(&topic) };
        let live = Live {
            cluster: cluster.clone(),
            publisher,
            subscriptions: Subscriptions::default(),
            closed: AtomicBool::new(false),
            deviations,
        };
        let shared = Arc::new(Shared::new(brokers, topic, topic_id, config));
        Self { shared, live: Arc::new(live), partition_count }
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.shared.topic
    }

    /// The topic's id when it was opened; `None` from brokers older than Kafka 2.8.
    pub fn topic_id(&self) -> Option<TopicId> {
        self.shared.topic_id
    }

    /// Where the topic that [`start`](Self::start) found was not as configured, and what it could not check; nothing where it
    /// created the topic, and where the log was opened for reading.
    pub fn deviations(&self) -> &[TopicDeviation] {
        &self.live.deviations
    }

    /// The most bytes of an event that the topic took when the log was opened; `None` where that is not known, and where the
    /// log was opened for reading.
    pub fn value_bytes_max(&self) -> Option<usize> {
        self.live.publisher.as_ref()?.value_bytes_max
    }
}

impl MetadataEventLog for KafkaMetadataEventLog {
    fn partition_count(&self) -> i32 {
        self.partition_count
    }

    async fn high_water_marks(&self) -> Vec<Result<PartitionMarks, RangeError>> {
        let partitions: Vec<_> = (0..self.partition_count).collect();
        let deadline = Instant::now() + self.shared.config.request_timeout;
        self.shared.brokers.marks(&partitions, deadline).await
    }

    async fn visit_range<V: MetadataEventVisitor + 'static>(
        &self,
        range: MetadataRange,
        visitor: V,
    ) -> RangeVisit<V> {
        let mut visits = self.visit_ranges(vec![(range, visitor)]).await;
        visits.pop().expect("one range has one answer")
    }

    async fn visit_ranges<V: MetadataEventVisitor + 'static>(
        &self,
        ranges: Vec<(MetadataRange, V)>,
    ) -> Vec<RangeVisit<V>> {
        read::visit_ranges(&self.shared, ranges).await
    }

    /// Accepts no further event from any clone, ends every subscription, and returns when all of them have ended and every
    /// event that was accepted has its answer. That takes no longer than the producer's delivery timeout.
    ///
    /// A dropped call has closed the log all the same.
    async fn close(self) {
        self.live.closed.store(true, Ordering::Release);
        let publisher = async {
            if let Some(publisher) = &self.live.publisher {
                publisher.close().await;
            }
        };
        tokio::join!(publisher, self.live.subscriptions.close());
    }
}

impl LiveMetadataEventLog for KafkaMetadataEventLog {
    fn identity(&self) -> MetadataLogIdentity {
        let cluster_id = self.live.cluster.snapshot().cluster_id().map(Arc::from);
        MetadataLogIdentity {
            cluster_id,
            topic_id: self.shared.topic_id,
            partition_count: self.partition_count,
        }
    }

    async fn publish(&self, partition: i32, value: Bytes, deadline: Instant) -> Result<i64, PublishError> {
        if self.live.closed.load(Ordering::Acquire) {
            return Err(PublishError::Closed);
        }
        match &self.live.publisher {
            Some(publisher) => publisher.publish(partition, value, deadline).await,
            None => Err(PublishError::ReadOnly),
        }
    }

    fn subscribe(&self, capacity: MetadataEventQueueCapacity) -> MetadataEventSubscription {
        let source = Arc::new(follow::Follower::new(Arc::clone(&self.shared), self.partition_count));
        self.live.subscriptions.open(source, capacity)
    }
}

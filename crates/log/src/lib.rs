//! The remote log metadata event log: what the topic `__remote_log_metadata` holds, record by record.
//!
//! Start at [`MetadataEventLog`], the seam: it tells which offsets each metadata partition holds and visits the
//! records of a range, one partition or many at once. A log that goes on is a [`LiveMetadataEventLog`]: it can be appended
//! to and followed. [`KafkaMetadataEventLog`] is the one on a cluster's topic, [`InProcessMetadataEventLog`] one on a topic in
//! memory. [`OnDiskMetadataLog`] reads a broker's data directories, without a broker; [`data_dir`] tells what else lies
//! in such a directory.
//!
//! ```
//! use std::time::Duration;
//! use strandline_log::{
//!     KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _, MetadataDelivery, MetadataEventLog as _,
//!     MetadataEventQueueCapacity,
//! };
//! use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
//! # use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster};
//! use tokio::time::Instant;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let kafka = EmbeddedCluster::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() })?;
//! # let bootstrap = kafka.bootstrap();
//! let soon = || Instant::now() + Duration::from_secs(30);
//! let brokers = BrokerAddress::parse_list(&bootstrap)?;
//! let config = ClusterConfig::new(brokers, ConnectionConfig::default()).read_write();
//! let cluster = Cluster::connect(config, soon()).await?;
//!
//! // Takes the topic as it is, or creates it: 50 partitions on three brokers.
//! let log = KafkaMetadataEventLog::start(&cluster, KafkaMetadataLogConfig::default(), soon()).await?;
//! let mut events = log.subscribe(MetadataEventQueueCapacity::default());
//! events.assignment().add(7, 0)?;
//!
//! // Once this returns, every replica in sync has the event.
//! let offset = log.publish(7, "an event".into(), soon()).await?;
//! let Some(MetadataDelivery::Record { record, .. }) = events.next().await else { panic!("a record was published") };
//! assert_eq!((record.partition, record.offset), (7, offset));
//!
//! // Every publish has its answer, and nothing is left running.
//! log.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A test that wants a log and no cluster opens an [`InProcessMetadataTopic`] in its place; all that follows is the same.
//!
//! Records come as bytes. What they mean is the business of `strandline-tier`. How such logs fail elsewhere, and which tests
//! hold this one to doing otherwise, stands in [`failures`].
//!
//! # Cancel safety
//! Dropping a future of this crate ends its reading and drops the visitors handed over; nothing else is lost. A dropped
//! [`publish`](LiveMetadataEventLog::publish) loses the answer, not the event.

mod copies;
pub mod data_dir;
mod event_log;
pub mod failures;
mod in_process;
mod kafka_log;
mod on_disk;
mod publish;
pub mod range;
mod record;
mod segment;
mod subscription;

pub use event_log::{LiveMetadataEventLog, MetadataEventLog, MetadataLogIdentity};
pub use in_process::{InProcessMetadataEventLog, InProcessMetadataTopic, InProcessRecord};
pub use kafka_log::{
    Awaited, DEFAULT_METADATA_FETCH_MAX_BYTES, DEFAULT_METADATA_FETCH_MAX_WAIT,
    DEFAULT_METADATA_FETCH_RETRY_BACKOFF, DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT, DEFAULT_MIN_ISR,
    DEFAULT_NUM_PARTITIONS, DEFAULT_REPLICATION, FetchConnections, KafkaMetadataEventLog,
    KafkaMetadataLogConfig, MetadataLogConfigError, OnDeviation, OpenLogError, StartLogError, TopicDeviation,
};
pub use on_disk::{OnDiskMetadataLog, OpenDirError};
pub use publish::{PublishCause, PublishError};
pub use range::{MetadataRange, PartitionMarks, RangeError, RangeOutcome, RangeVisit, RangeWarning};
pub use record::{METADATA_TOPIC, MetadataEventRecord, MetadataEventVisitor, OwnedMetadataEventRecord};
#[cfg(feature = "metrics")]
pub use subscription::describe_metrics;
pub use subscription::{
    AssignError, AssignedMetadataPartition, AssignmentId, DEFAULT_METADATA_EVENT_QUEUE_CAPACITY,
    MetadataAssignment, MetadataDelivery, MetadataEventQueueCapacity, MetadataEventSubscription,
    ReadingState,
};

//! The remote log metadata manager of KIP-405 on a metadata event log, with Kafka's answers and Kafka's bytes: it shares a
//! topic with Java brokers.
//!
//! Start at the trait [`RemoteLogMetadataManager`], what a broker asks, and at
//! [`TopicBasedRemoteLogMetadataManager`], which answers from a [`LiveMetadataEventLog`](strandline_log::LiveMetadataEventLog).
//!
//! ```
//! use std::time::Duration;
//! use strandline_log::InProcessMetadataTopic;
//! use strandline_rlmm::{
//!     RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicBasedRemoteLogMetadataManager,
//!     TopicIdPartition, WriteOutcome,
//! };
//! use strandline_tier::{EpochEntry, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentState, Uuid};
//! use tokio::time::Instant;
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! let log = InProcessMetadataTopic::with_partitions(50).open();
//! let manager = TopicBasedRemoteLogMetadataManager::start(log, RemoteLogMetadataManagerConfig::default())?;
//! let soon = || Instant::now() + Duration::from_secs(30);
//!
//! let topic_id = "vaZwr6blSEWMAbm7z-tW-w".parse()?;
//! let orders = TopicIdPartition { topic: "orders".into(), topic_id, partition: 0 };
//! manager.on_partition_leadership_changes(&[orders.clone()], &[])?;
//! manager.wait_until_ready(&orders, soon()).await?;
//!
//! // A copy begins, and ends.
//! let segment_id = Uuid([7; 16]);
//! let started = RawSegmentMetadata {
//!     topic_id_partition: orders.clone(),
//!     segment_id,
//!     start_offset: 0,
//!     end_offset: 2047,
//!     broker_id: 1,
//!     max_timestamp_ms: 1_700_000_000_123,
//!     event_timestamp_ms: 1_700_000_001_234,
//!     segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
//!     segment_size_in_bytes: 1_046_336,
//!     custom_metadata: None,
//!     state_id: RemoteLogSegmentState::CopySegmentStarted.id(),
//!     txn_index_empty: false,
//! };
//! manager.add_remote_log_segment_metadata(started, soon()).await?;
//! let finished = RawSegmentUpdate {
//!     topic_id_partition: orders.clone(),
//!     segment_id,
//!     broker_id: 1,
//!     event_timestamp_ms: 1_700_000_002_222,
//!     custom_metadata: None,
//!     state_id: RemoteLogSegmentState::CopySegmentFinished.id(),
//! };
//! let written = manager.update_remote_log_segment_metadata(finished, soon()).await?;
//! assert_eq!(written.outcome, WriteOutcome::Applied);
//!
//! let serves = manager.remote_log_segment_metadata(&orders, 0, 1000)?.expect("the copy is finished");
//! assert_eq!(serves.segment_id(), segment_id);
//! manager.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On a cluster, with snapshots
//! The same manager on the topic of a cluster, which goes on from its snapshots after a restart. The log can be handed to
//! several (`clone`); whoever opened it closes it, after the managers.
//!
//! ```
//! use std::time::Duration;
//! use strandline_log::{KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _};
//! use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
//! use strandline_rlmm::{RemoteLogMetadataManagerConfig, SnapshotConfig, TopicBasedRemoteLogMetadataManager};
//! # use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster};
//! use tokio::time::Instant;
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! # let kafka = EmbeddedCluster::start(ClusterOptions::default())?;
//! # let (bootstrap, directory) = (kafka.bootstrap(), tempfile::tempdir()?);
//! let soon = || Instant::now() + Duration::from_secs(30);
//! let brokers = BrokerAddress::parse_list(&bootstrap)?;
//! let config = ClusterConfig::new(brokers, ConnectionConfig::default()).read_write();
//! let cluster = Cluster::connect(config, soon()).await?;
//! // One broker is enough for a try; by default a topic that is created has three replicas, and wants two in sync.
//! let topic = KafkaMetadataLogConfig { replication: 1, min_isr: 1, ..KafkaMetadataLogConfig::default() };
//! let log = KafkaMetadataEventLog::start(&cluster, topic, soon()).await?;
//!
//! let config = RemoteLogMetadataManagerConfig {
//!     snapshots: Some(SnapshotConfig::new(directory.path())),
//!     ..RemoteLogMetadataManagerConfig::default()
//! };
//! let manager = TopicBasedRemoteLogMetadataManager::start(log.clone(), config)?;
//! // What is asked and written is as above.
//! manager.close().await;
//! log.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it reads
//! A metadata partition is read for the user partitions that need it, and only then: the running reading begins at the
//! end of the log at once, so that writes are read back, while what lies before is read in one go for those that are new,
//! and for no others. A record that is no event is counted ([`status`](TopicBasedRemoteLogMetadataManager::status)) and
//! passed over.
//!
//! # Where it differs from Kafka's on purpose
//! | Kafka | here |
//! | --- | --- |
//! | replays everything at each start | goes on from a snapshot, if [configured](RemoteLogMetadataManagerConfig::snapshots) and still fitting |
//! | a new user partition rewinds its metadata partition, and the writes of others wait | replays for that one only |
//! | one record that cannot be read ends the reading for good | passes over it, counts and reports it |
//! | a write is a success although its readers drop it, a failure although it is in the log | [`Written::outcome`], [`WriteError::may_be_written`] |
//! | polls every 50 ms whether an event was read back | is told when it was |
//! | writes what ends the reading of brokers | [`RefusedWrite`] |
//! | a query waits up to 100 ms for a partition that is not ready | [`QueryError::NotReady`] at once; [`wait_until_ready`](TopicBasedRemoteLogMetadataManager::wait_until_ready) waits |
//! | the search for a transaction index never returns where a segment leads back to itself | ends there |
//! | a segment behind a shorter one cannot be found | the same; [`any_remote_log_segment_metadata`](TopicBasedRemoteLogMetadataManager::any_remote_log_segment_metadata) finds it |
//! | a segment that another one replaced at its offset is in no list of an epoch | the same; [`list_orphaned_segments`](TopicBasedRemoteLogMetadataManager::list_orphaned_segments) lists it |
//! | the log being cut under it is not noticed | everything of the metadata partition is read anew, and not answered meanwhile |
//!
//! # Cancel safety
//! A dropped write loses the answer, not the event. Every other future may be dropped.

mod backoff;
mod better_answers;
mod catch_up;
mod errors;
pub mod failures;
mod follow;
mod manager;
mod metadata_partition;
mod partition_map;
mod refusals;
mod snapshot;
mod status;
mod topic_based;
mod user_partition;
mod write;

pub use errors::{
    AssignError, Partition, QueryError, RefusedWrite, Rejection, StartError, WriteError, WriteOutcome,
    Written,
};
pub use manager::{PartitionHolders, RemoteLogMetadataManager};
pub use refusals::check_write;
pub use status::MetadataPartitionStatus;
pub use topic_based::{RemoteLogMetadataManagerConfig, SnapshotConfig, TopicBasedRemoteLogMetadataManager};

/// A user partition: topic name, topic id and partition, all three of which are its identity.
pub type TopicIdPartition = strandline_tier::RawTopicIdPartition<'static>;

//! One place that knows the API; the tests speak in data.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use strandline_log::{
    InProcessMetadataEventLog, InProcessMetadataTopic, InProcessRecord, LiveMetadataEventLog,
};
use strandline_rlmm::{
    MetadataPartitionStatus, RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, SnapshotConfig,
    TopicBasedRemoteLogMetadataManager, TopicIdPartition, WriteError, Written,
};
use strandline_tier::{
    EpochEntry, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentMetadata,
    Uuid, codec,
};
use tokio::time::{Instant, timeout};

pub(crate) type Manager = TopicBasedRemoteLogMetadataManager<InProcessMetadataEventLog>;

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("nothing happened: {what}"))
}

pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    within(what, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) fn orders(partition: i32) -> TopicIdPartition {
    TopicIdPartition {
        topic: "orders".into(),
        topic_id: "vaZwr6blSEWMAbm7z-tW-w".parse().unwrap(),
        partition,
    }
}

pub(crate) fn segment_id(number: u64) -> Uuid {
    let mut id = *b"Strndlne\0\0\0\0\0\0\0\0";
    id[8..].copy_from_slice(&number.to_be_bytes());
    Uuid(id)
}

pub(crate) fn number(segment: &RemoteLogSegmentMetadata) -> u64 {
    segment.segment_id().least_significant() as u64
}

/// Api key 0: a segment of one epoch that begins with it.
pub(crate) fn started(
    partition: &TopicIdPartition,
    segment: u64,
    offsets: std::ops::RangeInclusive<i64>,
) -> RawSegmentMetadata<'static> {
    RawSegmentMetadata {
        topic_id_partition: partition.clone(),
        segment_id: segment_id(segment),
        start_offset: *offsets.start(),
        end_offset: *offsets.end(),
        broker_id: 1,
        max_timestamp_ms: 1000,
        event_timestamp_ms: 2000,
        segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: *offsets.start() }]
            .into_iter()
            .collect(),
        segment_size_in_bytes: 100,
        custom_metadata: None,
        state_id: 0,
        txn_index_empty: false,
    }
}

/// Api key 1.
pub(crate) fn update(partition: &TopicIdPartition, segment: u64, state_id: i8) -> RawSegmentUpdate<'static> {
    RawSegmentUpdate {
        topic_id_partition: partition.clone(),
        segment_id: segment_id(segment),
        broker_id: 1,
        event_timestamp_ms: 3000 + i64::from(state_id),
        custom_metadata: None,
        state_id,
    }
}

/// Api key 2.
pub(crate) fn partition_delete(partition: &TopicIdPartition, state_id: i8) -> RawPartitionDelete<'static> {
    RawPartitionDelete {
        topic_id_partition: partition.clone(),
        broker_id: 1,
        event_timestamp_ms: 4000,
        state_id,
    }
}

pub(crate) fn encoded(event: impl Into<Event>) -> Bytes {
    let mut value = Vec::new();
    codec::encode(&event.into().0, &mut value).unwrap();
    value.into()
}

pub(crate) struct Event(pub(crate) RawEvent<'static>);

impl From<RawSegmentMetadata<'static>> for Event {
    fn from(event: RawSegmentMetadata<'static>) -> Self {
        Self(RawEvent::SegmentMetadata(event))
    }
}

impl From<RawSegmentUpdate<'static>> for Event {
    fn from(event: RawSegmentUpdate<'static>) -> Self {
        Self(RawEvent::SegmentMetadataUpdate(event))
    }
}

impl From<RawPartitionDelete<'static>> for Event {
    fn from(event: RawPartitionDelete<'static>) -> Self {
        Self(RawEvent::PartitionDeleteMetadata(event))
    }
}

/// Puts an event into the topic as another broker does.
pub(crate) fn append(
    topic: &InProcessMetadataTopic,
    metadata_partition: i32,
    event: impl Into<Event>,
) -> i64 {
    append_value(topic, metadata_partition, Some(encoded(event)))
}

pub(crate) fn append_value(topic: &InProcessMetadataTopic, partition: i32, value: Option<Bytes>) -> i64 {
    topic.append(partition, InProcessRecord { value, ..InProcessRecord::default() }).unwrap()
}

/// A segment that was copied, as another broker does it.
pub(crate) fn append_copied(
    topic: &InProcessMetadataTopic,
    partition: &TopicIdPartition,
    segment: u64,
    offsets: std::ops::RangeInclusive<i64>,
) {
    let home = home(topic, partition);
    append(topic, home, started(partition, segment, offsets));
    append(topic, home, update(partition, segment, 1));
}

/// The metadata partition of a user partition.
pub(crate) fn home(topic: &InProcessMetadataTopic, partition: &TopicIdPartition) -> i32 {
    let count = topic.identity().partition_count;
    let partitioner = strandline_tier::MetadataPartitioner::new(count).unwrap();
    partitioner.metadata_partition(partition.topic_id, partition.partition)
}

/// Short waits between tries, so that tests do not wait for them.
pub(crate) fn config() -> RemoteLogMetadataManagerConfig {
    RemoteLogMetadataManagerConfig {
        retry_backoff: Duration::from_millis(1),
        retry_backoff_max: Duration::from_millis(10),
        ..RemoteLogMetadataManagerConfig::default()
    }
}

/// Snapshots are written when the manager is closed, and not before.
pub(crate) fn config_with_snapshots(dir: &std::path::Path) -> RemoteLogMetadataManagerConfig {
    let snapshots = SnapshotConfig { check_interval: Duration::from_secs(3600), ..SnapshotConfig::new(dir) };
    RemoteLogMetadataManagerConfig { snapshots: Some(snapshots), ..config() }
}

pub(crate) fn start(topic: &InProcessMetadataTopic) -> Manager {
    TopicBasedRemoteLogMetadataManager::start(topic.open(), config()).unwrap()
}

/// A manager that serves these partitions, and is ready to answer.
pub(crate) async fn serving<L: LiveMetadataEventLog>(
    log: L,
    config: RemoteLogMetadataManagerConfig,
    partitions: &[TopicIdPartition],
) -> TopicBasedRemoteLogMetadataManager<L> {
    let manager = TopicBasedRemoteLogMetadataManager::start(log, config).unwrap();
    serve(&manager, partitions).await;
    manager
}

pub(crate) async fn serve<L: LiveMetadataEventLog>(
    manager: &TopicBasedRemoteLogMetadataManager<L>,
    partitions: &[TopicIdPartition],
) {
    manager.on_partition_leadership_changes(partitions, &[]).unwrap();
    for partition in partitions {
        manager.wait_until_ready(partition, soon()).await.unwrap();
    }
}

pub(crate) async fn add(
    manager: &Manager,
    event: RawSegmentMetadata<'static>,
) -> Result<Written, WriteError> {
    within("the write", manager.add_remote_log_segment_metadata(event, soon())).await
}

pub(crate) async fn change(
    manager: &Manager,
    event: RawSegmentUpdate<'static>,
) -> Result<Written, WriteError> {
    within("the write", manager.update_remote_log_segment_metadata(event, soon())).await
}

/// Waits until everything in the topic was applied.
pub(crate) async fn caught_up<L: LiveMetadataEventLog>(
    manager: &TopicBasedRemoteLogMetadataManager<L>,
    ends: impl Fn(i32) -> i64,
) {
    until("everything is read", || {
        manager
            .status()
            .iter()
            .all(|status| status.next_offset.is_some_and(|next| next >= ends(status.partition)))
    })
    .await;
}

pub(crate) fn status_of<L: LiveMetadataEventLog>(
    manager: &TopicBasedRemoteLogMetadataManager<L>,
    metadata_partition: i32,
) -> MetadataPartitionStatus {
    let status = manager.status().into_iter().find(|status| status.partition == metadata_partition);
    status.unwrap_or_else(|| panic!("metadata partition {metadata_partition} is not read"))
}

/// Which segment serves each of these offsets of epoch 0.
pub(crate) fn readable<L: LiveMetadataEventLog>(
    manager: &TopicBasedRemoteLogMetadataManager<L>,
    partition: &TopicIdPartition,
    offsets: &[i64],
) -> Vec<Option<u64>> {
    let look_up = |&offset| manager.remote_log_segment_metadata(partition, 0, offset).unwrap();
    offsets.iter().map(look_up).map(|segment| segment.as_ref().map(number)).collect()
}

/// Everything that can be asked about epochs 0 to 3 of a partition, in words.
pub(crate) fn answers<L: LiveMetadataEventLog>(
    manager: &TopicBasedRemoteLogMetadataManager<L>,
    partition: &TopicIdPartition,
) -> String {
    manager.with_index(partition, index_answers).unwrap_or_else(|error| error.to_string())
}

pub(crate) fn index_answers(index: &strandline_tier::RemoteLogSegmentIndex) -> String {
    let mut all: Vec<String> =
        index.list_remote_log_segments().map(|segment| format!("{segment:?}")).collect();
    all.sort();
    for epoch in index.leader_epochs() {
        let mut unreferenced: Vec<_> = index.unreferenced(epoch).collect();
        unreferenced.sort_unstable();
        all.push(format!(
            "epoch {epoch}: highest {:?}, referenced {:?}, unreferenced {unreferenced:?}",
            index.highest_offset_for_epoch(epoch),
            index.referenced(epoch).collect::<Vec<_>>(),
        ));
    }
    all.join("\n")
}

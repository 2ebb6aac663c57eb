//! The topics of a real cluster: ours to write to, the brokers' to copy, and the metadata topic as we read it.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog, MetadataEventRecord,
    MetadataEventVisitor,
};
use strandline_meta::routing::Subject;
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig, ErrorCode};
use strandline_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use strandline_protocol::messages::delete_topics::DeleteTopicState;
use strandline_protocol::messages::{CreateTopicsRequest, DeleteTopicsRequest};
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicBasedRemoteLogMetadataManager,
    TopicIdPartition,
};
use strandline_testkit::apache::ApacheKafka;
use strandline_tier::{RawEvent, RecordValue};
use tokio::task::block_in_place;

use crate::soon;

/// On a busy machine a broker can make a pause that looks like its end.
const STILL_ATTEMPTS_MAX: usize = 5;

pub(crate) type Manager = TopicBasedRemoteLogMetadataManager<KafkaMetadataEventLog>;

/// A client that any broker may be killed under, as long as one lives.
pub(crate) async fn connect(kafka: &ApacheKafka) -> anyhow::Result<Cluster> {
    let addresses = (1..=kafka.brokers()).map(|id| kafka.bootstrap_of(id)).collect::<Vec<_>>().join(",");
    let config = ClusterConfig::new(BrokerAddress::parse_list(&addresses)?, ConnectionConfig::default());
    Ok(Cluster::connect(config.read_write(), soon()).await?)
}

/// The metadata topic of the brokers, as a log that is followed and written.
pub(crate) async fn log(cluster: &Cluster) -> anyhow::Result<KafkaMetadataEventLog> {
    Ok(KafkaMetadataEventLog::start(cluster, KafkaMetadataLogConfig::default(), soon()).await?)
}

/// A manager that serves these partitions, and is ready to answer.
pub(crate) async fn serving(
    log: KafkaMetadataEventLog,
    config: RemoteLogMetadataManagerConfig,
    partitions: &[TopicIdPartition],
) -> anyhow::Result<Manager> {
    let manager = Manager::start(log, config)?;
    manager.on_partition_leadership_changes(partitions, &[])?;
    for partition in partitions {
        manager.wait_until_ready(partition, soon()).await?;
    }
    Ok(manager)
}

/// The partitions of a topic, once the brokers know it.
pub(crate) async fn partitions(cluster: &Cluster, topic: &str) -> anyhow::Result<Vec<TopicIdPartition>> {
    let deadline = soon();
    loop {
        let view = cluster.refresh_topics(&[topic], deadline).await?;
        if let Some(known) = view.topic(topic)
            && let Some(topic_id) = known.id
        {
            let name = |partition| TopicIdPartition { topic: topic.to_owned().into(), topic_id, partition };
            return Ok(known.partitions.iter().map(|partition| name(partition.index)).collect());
        }
        ensure!(tokio::time::Instant::now() < deadline, "no topic {topic}");
    }
}

/// Creates a topic with these configs, on three brokers where there are as many. Asked without a Java start.
pub(crate) async fn create(
    cluster: &Cluster,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> anyhow::Result<()> {
    let brokers = cluster.snapshot().brokers().count();
    let config = |&(name, value): &(&str, &str)| CreatableTopicConfig {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..CreatableTopicConfig::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.to_owned(),
            num_partitions: partitions,
            replication_factor: if brokers >= 3 { 3 } else { 1 },
            configs: configs.iter().map(config).collect(),
            ..CreatableTopic::default()
        }],
        timeout_ms: 60_000,
        ..CreateTopicsRequest::default()
    };
    let answer = cluster.send(Subject::Cluster, |_| request.clone(), soon()).await?;
    let created = &answer.topics[0];
    ensure!(created.error_code == ErrorCode::None, "CreateTopics of {topic}: {created:?}");
    Ok(())
}

/// Creates a tiered topic of the smallest segments, of which a broker keeps two.
pub(crate) async fn create_tiered(
    cluster: &Cluster,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> anyhow::Result<()> {
    const TIERED: &[(&str, &str)] = &[
        ("remote.storage.enable", "true"),
        ("segment.bytes", "1048576"),
        ("local.retention.bytes", "2097152"),
    ];
    create(cluster, topic, partitions, &[TIERED, configs].concat()).await
}

pub(crate) async fn delete(cluster: &Cluster, topic: &str) -> anyhow::Result<()> {
    let build = |_| DeleteTopicsRequest {
        topics: vec![DeleteTopicState { name: Some(topic.to_owned()), ..DeleteTopicState::default() }],
        timeout_ms: 60_000,
        ..DeleteTopicsRequest::default()
    };
    let answer = cluster.send(Subject::Cluster, build, soon()).await?;
    let code = answer.responses[0].error_code;
    ensure!(code == ErrorCode::None, "DeleteTopics of {topic}: {code}");
    Ok(())
}

/// Gives every partition of these topics another leader, so many times. Where there is one broker, nothing can move.
pub(crate) fn move_leaders(kafka: &ApacheKafka, rounds: u32, topics: &[&str]) -> anyhow::Result<()> {
    if kafka.brokers() == 1 {
        return Ok(());
    }
    let (bootstrap, rounds) = (kafka.bootstrap(), rounds.to_string());
    let arguments = [&[&*bootstrap, &*rounds], topics].concat();
    let output = block_in_place(|| kafka.tool("MoveLeaders", &arguments))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "MoveLeaders: {}\n{stderr}", output.status);
    Ok(())
}

/// An event at its place.
pub(crate) type Placed = (i32, i64, RawEvent<'static>);

struct Events(Vec<Placed>, Vec<String>);

impl MetadataEventVisitor for Events {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        let (partition, offset) = (record.partition, record.offset);
        match RecordValue::from_value(record.value).into_owned() {
            RecordValue::Event(event) => self.0.push((partition, offset, event)),
            other => self.1.push(format!("{other:?} at offset {offset} of metadata partition {partition}")),
        }
        ControlFlow::Continue(())
    }
}

/// Everything that the metadata topic holds at this moment, by partition and offset.
pub(crate) async fn events(log: &KafkaMetadataEventLog) -> anyhow::Result<Vec<Placed>> {
    let mut ranges = Vec::new();
    for marks in log.high_water_marks().await {
        ranges.push((marks?.range(), Events(Vec::new(), Vec::new())));
    }
    let mut events = Vec::new();
    for visit in log.visit_ranges(ranges).await {
        if let Some(error) = visit.error {
            return Err(error.into());
        }
        let Events(of_partition, no_events) = visit.visitor;
        ensure!(no_events.is_empty(), "no events: {no_events:?}");
        events.extend(of_partition);
    }
    Ok(events)
}

/// Looks again and again until it is so.
pub(crate) async fn until(
    what: &str,
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = soon();
    while !condition()? {
        ensure!(tokio::time::Instant::now() < deadline, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Every broker still copies and deletes segments of a tiered topic with a retention: its reading of the metadata topic
/// lives, since each step waits until the event before it was read back.
pub(crate) async fn brokers_copy_and_delete(
    kafka: &ApacheKafka,
    manager: &Manager,
    topic: &str,
    partitions: &[TopicIdPartition],
) -> anyhow::Result<()> {
    let first_offsets = || -> anyhow::Result<Vec<Option<i64>>> {
        let first = |partition| -> anyhow::Result<Option<i64>> {
            let segments = manager.list_remote_log_segments(partition)?;
            Ok(segments.iter().map(|segment| segment.start_offset()).min())
        };
        partitions.iter().map(first).collect()
    };
    let before = first_offsets()?;
    block_in_place(|| {
        kafka.produce(topic, 10_000 * partitions.len() as u64, 500)?;
        kafka.wait_until_copied(topic)
    })?;
    until("retention deletes segments of every partition", || {
        Ok(first_offsets()?.iter().zip(&before).all(|(now, before)| now > before))
    })
    .await
    .with_context(|| kafka.log_ends())
}

/// Does something while the brokers have nothing to write: once more where one turns out to have written meanwhile, since
/// what was read at different moments then need not agree.
pub(crate) async fn while_nobody_writes(
    kafka: &ApacheKafka,
    attempt: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for _ in 0..STILL_ATTEMPTS_MAX {
        let before = block_in_place(|| {
            kafka.wait_until_quiet()?;
            kafka.metadata_end_offsets()
        })?;
        let result = attempt().await;
        if block_in_place(|| kafka.metadata_end_offsets())? == before {
            return result;
        }
    }
    bail!("the brokers write again and again")
}

//! The whole metadata topic into a manager that serves every user partition of it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Instant;

use serde_json::{Value, json};
use strandline_log::data_dir::DataDir;
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog, MetadataEventRecord,
    MetadataEventVisitor, OnDiskMetadataLog,
};
use strandline_meta::Cluster;
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicBasedRemoteLogMetadataManager,
    TopicIdPartition,
};
use strandline_tier::RecordValue;

use crate::{connect, memory_kb, soon, variable};

pub(crate) async fn run() -> anyhow::Result<Value> {
    let topic = variable("TOPIC")?;
    let partitions = user_partitions(&topic).await?;
    let began = Instant::now();
    let log = open(&connect().await?, &topic).await?;
    let config = RemoteLogMetadataManagerConfig::default();
    let manager = TopicBasedRemoteLogMetadataManager::start(log, config)?;
    manager.on_partition_leadership_changes(&partitions, &[])?;
    for partition in &partitions {
        manager.wait_until_ready(partition, soon()).await?;
    }
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let hwm_kb = memory_kb("VmHWM")?;
    // Offsets are without gaps here.
    let events: i64 = manager.status().iter().filter_map(|status| status.next_offset).sum();
    let mut segments = 0;
    for partition in &partitions {
        segments += manager.with_index(partition, |index| index.list_remote_log_segments().count())?;
    }
    manager.close().await;
    Ok(json!({
        "peer": "strandline",
        "ms": ms,
        "events": events,
        "segments": segments,
        "user_partitions": partitions.len(),
        "hwm_kb": hwm_kb,
    }))
}

/// The user partitions that the topic names. A broker knows which ones it leads and follows; here they are looked for before
/// the clock starts: in the broker's files, or in the topic where no directory is named.
async fn user_partitions(topic: &str) -> anyhow::Result<Vec<TopicIdPartition>> {
    match std::env::var("DATA_DIR") {
        Ok(dir) => seen(&OnDiskMetadataLog::from_data_dirs(vec![DataDir::open(dir)?], topic)?).await,
        Err(_) => seen(&open(&connect().await?, topic).await?).await,
    }
}

async fn open(cluster: &Cluster, topic: &str) -> anyhow::Result<KafkaMetadataEventLog> {
    let config = KafkaMetadataLogConfig { topic: topic.to_owned(), ..KafkaMetadataLogConfig::default() };
    Ok(KafkaMetadataEventLog::open_read_only(cluster, config, soon()).await?)
}

async fn seen(log: &impl MetadataEventLog) -> anyhow::Result<Vec<TopicIdPartition>> {
    let mut ranges = Vec::new();
    for marks in log.high_water_marks().await {
        ranges.push((marks?.range(), Seen::default()));
    }
    let mut found = HashSet::new();
    for visit in log.visit_ranges(ranges).await {
        if let Some(error) = visit.error {
            return Err(error.into());
        }
        found.extend(visit.visitor.0);
    }
    Ok(found.into_iter().collect())
}

#[derive(Default)]
struct Seen(HashSet<TopicIdPartition>);

impl MetadataEventVisitor for Seen {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        if let RecordValue::Event(event) = RecordValue::from_value(record.value)
            && let Some(partition) = event.topic_id_partition()
            && !self.0.contains(partition)
        {
            self.0.insert(partition.clone().into_owned());
        }
        ControlFlow::Continue(())
    }
}

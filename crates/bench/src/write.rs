//! Segments copied, as the manager is told: from the call until the event is acknowledged and read back, so that it is in the
//! answers.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use strandline_log::{KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _, OnDeviation};
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicBasedRemoteLogMetadataManager,
    TopicIdPartition,
};
use strandline_tier::{
    EpochEntry, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentState, TopicId, Uuid,
};

use crate::{connect, memory_kb, percentiles, soon, variable};

const USER_PARTITIONS: u128 = 200;
const WARM_UP_SEGMENTS: usize = 250;

pub(crate) async fn run(events: usize) -> anyhow::Result<Value> {
    let cluster = connect().await?;
    let config = KafkaMetadataLogConfig {
        topic: variable("TOPIC")?,
        replication: 1,
        min_isr: 1,
        on_deviation: OnDeviation::Adopt,
        ..KafkaMetadataLogConfig::default()
    };
    let log = KafkaMetadataEventLog::start(&cluster, config, soon()).await?;
    let config = RemoteLogMetadataManagerConfig::default();
    let manager = TopicBasedRemoteLogMetadataManager::start(log.clone(), config)?;
    // Others than in any run before.
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() << 16;
    let partition = |nth: u128| TopicIdPartition {
        topic: format!("orders.events.v{nth}").into(),
        topic_id: TopicId(Uuid((run + nth).to_be_bytes())),
        partition: 0,
    };
    let partitions: Vec<TopicIdPartition> = (0..USER_PARTITIONS).map(partition).collect();
    manager.on_partition_leadership_changes(&partitions, &[])?;
    for partition in &partitions {
        manager.wait_until_ready(partition, soon()).await?;
    }
    let segments = events.div_ceil(2);
    let mut waits = Vec::with_capacity(2 * segments);
    let mut began = Instant::now();
    for nth in 0..WARM_UP_SEGMENTS + segments {
        if nth == WARM_UP_SEGMENTS {
            waits.clear();
            began = Instant::now();
        }
        let partition = &partitions[nth % partitions.len()];
        let segment_id = Uuid((run + nth as u128).to_be_bytes());
        let start_offset = 1_000 * nth as i64;
        let called_at = Instant::now();
        manager.add_remote_log_segment_metadata(started(partition, segment_id, start_offset), soon()).await?;
        waits.push(called_at.elapsed());
        let called_at = Instant::now();
        manager.update_remote_log_segment_metadata(finished(partition, segment_id), soon()).await?;
        waits.push(called_at.elapsed());
        let serves = manager.remote_log_segment_metadata(partition, 0, start_offset)?;
        anyhow::ensure!(
            serves.is_some_and(|segment| segment.segment_id() == segment_id),
            "it cannot be read"
        );
    }
    let events_s = (2 * segments) as f64 / began.elapsed().as_secs_f64();
    let (p50_us, p99_us) = percentiles(waits);
    manager.close().await;
    log.close().await;
    let hwm_kb = memory_kb("VmHWM")?;
    Ok(
        json!({ "peer": "strandline", "events_s": events_s, "p50_us": p50_us, "p99_us": p99_us, "hwm_kb": hwm_kb }),
    )
}

fn started(partition: &TopicIdPartition, segment_id: Uuid, start_offset: i64) -> RawSegmentMetadata<'static> {
    RawSegmentMetadata {
        topic_id_partition: partition.clone(),
        segment_id,
        start_offset,
        end_offset: start_offset + 999,
        broker_id: 1,
        max_timestamp_ms: 1_790_000_000_000,
        event_timestamp_ms: 1_790_000_000_000,
        segment_leader_epochs: [EpochEntry { epoch: 0, start_offset }].into_iter().collect(),
        segment_size_in_bytes: 1 << 20,
        custom_metadata: None,
        state_id: RemoteLogSegmentState::CopySegmentStarted.id(),
        txn_index_empty: true,
    }
}

fn finished(partition: &TopicIdPartition, segment_id: Uuid) -> RawSegmentUpdate<'static> {
    RawSegmentUpdate {
        topic_id_partition: partition.clone(),
        segment_id,
        broker_id: 1,
        event_timestamp_ms: 1_790_000_000_900,
        custom_metadata: None,
        state_id: RemoteLogSegmentState::CopySegmentFinished.id(),
    }
}

//! Writes a tier as brokers and their storage plugin would have: records into the logs of the embedded cluster, events
//! through the remote log metadata manager into `__remote_log_metadata`, objects of layout `local` into a directory. What no
//! manager writes goes into the topic's log as it is.
//!
//! Everything follows from the seed and the clock. Segments are real: an object holds the very batches that the log had.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use futures::future::try_join_all;
use strandline_conn::ConnectionConfig;
use strandline_log::{KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, TopicBasedRemoteLogMetadataManager,
    WriteOutcome,
};
use strandline_store::{Layout, ObjectKey, ObjectRole};
use strandline_testkit::embedded::EmbeddedCluster;
use strandline_testkit::random::Random;
use strandline_tier::{
    EpochEntries, EpochEntry, MetadataPartitioner, RawEvent, RawSegmentMetadata, RawSegmentUpdate,
    RawTopicIdPartition, RemoteLogSegmentState, TopicId, Uuid, codec,
};
use tokio::time::Instant;

pub(super) const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;

/// Kafka's default of `remote.log.metadata.topic.num.partitions`.
const METADATA_PARTITIONS: i32 = 50;
/// How long writing the events may take: a fraction of a second, where nothing is wrong.
const PUBLISH_MAX: Duration = Duration::from_secs(30);
/// How far a wrong clock was ahead.
const FUTURE_MS: i64 = 400 * 24 * HOUR;
/// The `segment.bytes` of every topic here; segments stay below it, as a broker's do.
pub(super) const SEGMENT_BYTES: &str = "65536";
/// Records of a segment: no fewer, and fewer than.
const RECORDS: (i64, i64) = (520, 620);

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is in the tier.
    Copied,
    /// Retention removed it from the tier.
    Retired,
    /// Its deletion was begun and never finished; its objects are still there.
    Deleting,
    /// Its copy was begun and never finished.
    Copying,
    /// It is rolled, and nobody has begun to copy it.
    Waiting,
    /// It was copied, and its events are gone.
    Forgotten,
    /// It is in the tier, and its objects are gone.
    Emptied,
    /// It is in the tier, and its offset index is gone.
    WithoutIndex,
    /// It is in the tier, and its events lie in another metadata partition than they should.
    Astray,
    /// It is in the tier, and a record of it was written with a clock far ahead.
    FromTheFuture,
}

/// The history of one partition.
pub(super) struct History<'a> {
    /// The topic, which exists.
    pub(super) topic: &'a str,
    /// Its id.
    pub(super) topic_id: TopicId,
    /// The partition.
    pub(super) partition: i32,
    /// The topic's `retention.ms`.
    pub(super) retention_ms: i64,
    /// How long ago the last record was written.
    pub(super) idle_ms: i64,
    /// The rolled segments, the oldest first; after them comes the active one.
    pub(super) fates: &'a [Fate],
    /// How many of the rolled segments that were copied are on disk as well.
    pub(super) local: usize,
    /// In the middle of which segment another broker began to lead.
    pub(super) leader_change: Option<usize>,
}

/// A segment as it was written.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) id: Uuid,
    pub(super) start_offset: i64,
    pub(super) end_offset: i64,
    newest_ms: i64,
    max_timestamp_ms: i64,
    epochs: EpochEntries,
    /// The broker that led at its end.
    broker: i32,
    /// Whole batches: first offset, position in `bytes`, largest timestamp.
    batches: Vec<(i64, usize, i64)>,
    bytes: Vec<u8>,
}

/// The writer.
pub(super) struct Tier<'a> {
    cluster: &'a EmbeddedCluster,
    store: PathBuf,
    layout: &'static Layout,
    partitioner: MetadataPartitioner,
    random: Random,
    now_ms: i64,
    /// Time and event of what a manager writes.
    events: Vec<(i64, RawEvent<'static>)>,
    /// Time, metadata partition and value of what none would write.
    damage: Vec<(i64, i32, Vec<u8>)>,
}

impl<'a> Tier<'a> {
    /// A tier without anything in it; `store` is the storage plugin's directory.
    pub(super) fn new(cluster: &'a EmbeddedCluster, store: &Path, seed: u64, now_ms: i64) -> Self {
        Self {
            cluster,
            store: store.to_owned(),
            layout: Layout::by_name("local").expect("the table has this row"),
            partitioner: MetadataPartitioner::new(METADATA_PARTITIONS).expect("50 is above 0"),
            random: Random::new(seed),
            now_ms,
            events: Vec::new(),
            damage: Vec::new(),
        }
    }

    /// A number of at least `low` and below `high`.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.random.next() % (high - low).unsigned_abs()) as i64
    }

    /// Writes the history of a partition: its log, its events, its objects.
    pub(super) fn write(&mut self, history: &History<'_>) -> anyhow::Result<Vec<Segment>> {
        let gone = |fate: &Fate| matches!(fate, Fate::Retired | Fate::Deleting);
        let kept = history.fates.iter().filter(|fate| !gone(fate)).count();
        // The oldest segment that is kept is a little younger than retention, the youngest that is not a little older,
        // except behind a segment that retention cannot remove.
        let due = if history.fates.contains(&Fate::FromTheFuture) { kept - 3 } else { kept };
        let step = (history.retention_ms as f64 / (due as f64 + 0.25)) as i64;
        let newest = |index: usize| {
            let later = (history.fates.len() - 1 - index) as i64;
            self.now_ms - history.idle_ms - later * step - step / 2
        };
        let mut times: Vec<(i64, i64)> =
            (0..history.fates.len()).map(|index| (newest(index) - step, newest(index))).collect();
        times.push((self.now_ms - history.idle_ms - step / 2, self.now_ms - history.idle_ms - MINUTE / 4));
        let mut segments = Vec::with_capacity(times.len());
        let mut next_offset = 0;
        for (index, (from_ms, to_ms)) in times.into_iter().enumerate() {
            let active = index == history.fates.len();
            let future = history.fates.get(index) == Some(&Fate::FromTheFuture);
            let moves = history.leader_change == Some(index);
            let records = self.between(RECORDS.0, RECORDS.1) / if active { 2 } else { 1 };
            let segment = self.roll(history, next_offset, records, (from_ms, to_ms), moves, future)?;
            next_offset = segment.end_offset + 1;
            segments.push(segment);
        }
        self.settle(history, &segments);
        for (segment, fate) in segments.iter().zip(history.fates) {
            self.tell(history, segment, *fate)?;
        }
        Ok(segments)
    }

    /// Appends a segment's records to the leader's log, in two batches.
    fn roll(
        &mut self,
        history: &History<'_>,
        start_offset: i64,
        records: i64,
        (from_ms, to_ms): (i64, i64),
        leader_moves: bool,
        future: bool,
    ) -> anyhow::Result<Segment> {
        let mut segment = Segment {
            id: self.random.uuid(),
            start_offset,
            end_offset: start_offset + records - 1,
            newest_ms: to_ms,
            max_timestamp_ms: if future { to_ms + FUTURE_MS } else { to_ms },
            epochs: EpochEntries::new(),
            broker: -1,
            batches: Vec::new(),
            bytes: Vec::new(),
        };
        let middle = start_offset + records / 2;
        for (first, until) in [(start_offset, middle), (middle, segment.end_offset + 1)] {
            let (leader, _) = self.cluster.leader(history.topic, history.partition);
            if first == middle && leader_moves {
                self.cluster.move_leader(history.topic, history.partition, leader % 3 + 1);
            }
            let (leader, epoch) = self.cluster.leader(history.topic, history.partition);
            segment.broker = leader;
            if segment.epochs.last().is_none_or(|last| last.epoch != epoch) {
                segment.epochs.push(EpochEntry { epoch, start_offset: first });
            }
            let mut batch = BatchBuilder::new(BatchOptions {
                base_offset: first,
                partition_leader_epoch: epoch,
                ..BatchOptions::default()
            });
            let mut largest = from_ms;
            for offset in first..until {
                let share = (offset - start_offset + 1) as f64 / records as f64;
                let mut timestamp_ms = from_ms + ((to_ms - from_ms) as f64 * share) as i64;
                if future && offset == start_offset {
                    timestamp_ms += FUTURE_MS;
                }
                largest = largest.max(timestamp_ms);
                let value = self.value(history.topic, offset);
                let value = Some(value.as_bytes());
                batch.push(NewRecord { timestamp_ms, value, ..NewRecord::default() })?;
            }
            let position = segment.bytes.len();
            batch.finish(&mut segment.bytes)?;
            segment.batches.push((first, position, largest));
            let batch = segment.bytes[position..].to_vec();
            self.cluster.append_raw(history.topic, history.partition, batch);
        }
        segment.max_timestamp_ms = segment.batches.iter().map(|batch| batch.2).max().unwrap_or(to_ms);
        Ok(segment)
    }

    fn value(&mut self, topic: &str, number: i64) -> String {
        let (customer, cents) = (self.between(10_000, 99_999), self.between(100, 99_999));
        let token = self.random.uuid();
        format!(r#"{{"{topic}":{number},"customer":{customer},"cents":{cents},"token":"{token}"}}"#)
    }

    /// Makes the log begin where retention and local retention left it.
    fn settle(&self, history: &History<'_>, segments: &[Segment]) {
        let (topic, partition) = (history.topic, history.partition);
        let fates = history.fates;
        let gone = |fate: &Fate| matches!(fate, Fate::Retired | Fate::Deleting);
        let first_kept = fates.iter().position(|fate| !gone(fate)).unwrap_or(fates.len());
        let copied = |fate: &Fate| !matches!(fate, Fate::Copying | Fate::Waiting);
        let copied = fates.iter().take_while(|fate| copied(fate)).count();
        let first_local = copied.saturating_sub(history.local);
        let local_start = segments[first_local].start_offset;
        for (base_offset, ..) in segments[..first_local].iter().flat_map(|segment| &segment.batches) {
            self.cluster.compact_away(topic, partition, *base_offset);
        }
        self.cluster.delete_records(topic, partition, segments[first_kept].start_offset);
        let last_tiered = copied.checked_sub(1).map(|last| segments[last].end_offset);
        self.cluster.set_tiered(topic, partition, last_tiered, Some(local_start));
    }

    /// Writes the events and the objects that a segment's fate left.
    fn tell(&mut self, history: &History<'_>, segment: &Segment, fate: Fate) -> anyhow::Result<()> {
        use RemoteLogSegmentState::{
            CopySegmentFinished, CopySegmentStarted, DeleteSegmentFinished, DeleteSegmentStarted,
        };
        let started_ms = segment.newest_ms + self.between(5_000, 60_000);
        let finished_ms = started_ms + self.between(900, 9_000);
        let deleting_ms = segment.newest_ms + history.retention_ms + self.between(20_000, 4 * MINUTE);
        let deleted_ms = deleting_ms + self.between(100, 2_000);
        let states = [
            (CopySegmentStarted, started_ms),
            (CopySegmentFinished, finished_ms),
            (DeleteSegmentStarted, deleting_ms),
            (DeleteSegmentFinished, deleted_ms),
        ];
        let seen = match fate {
            Fate::Waiting | Fate::Forgotten => 0,
            Fate::Copying => 1,
            Fate::Copied | Fate::Emptied | Fate::WithoutIndex | Fate::Astray | Fate::FromTheFuture => 2,
            Fate::Deleting => 3,
            Fate::Retired => 4,
        };
        for (state, time_ms) in &states[..seen] {
            self.event(history, segment, *state, *time_ms, fate == Fate::Astray)?;
        }
        let stored = !matches!(fate, Fate::Waiting | Fate::Copying | Fate::Emptied | Fate::Retired);
        if stored {
            self.objects(history, segment, finished_ms, fate == Fate::WithoutIndex)?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        history: &History<'_>,
        segment: &Segment,
        state: RemoteLogSegmentState,
        time_ms: i64,
        astray: bool,
    ) -> anyhow::Result<()> {
        let topic_id_partition = RawTopicIdPartition {
            topic: history.topic.to_owned().into(),
            topic_id: history.topic_id,
            partition: history.partition,
        };
        let event = if state == RemoteLogSegmentState::CopySegmentStarted {
            RawEvent::SegmentMetadata(RawSegmentMetadata {
                topic_id_partition,
                segment_id: segment.id,
                start_offset: segment.start_offset,
                end_offset: segment.end_offset,
                broker_id: segment.broker,
                max_timestamp_ms: segment.max_timestamp_ms,
                event_timestamp_ms: time_ms,
                segment_leader_epochs: segment.epochs.clone(),
                segment_size_in_bytes: i32::try_from(segment.bytes.len())?,
                custom_metadata: None,
                state_id: state.id(),
                txn_index_empty: true,
            })
        } else {
            RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
                topic_id_partition,
                segment_id: segment.id,
                broker_id: segment.broker,
                event_timestamp_ms: time_ms,
                custom_metadata: None,
                state_id: state.id(),
            })
        };
        if astray {
            let mut value = Vec::new();
            codec::encode(&event, &mut value)?;
            let home = self.partitioner.metadata_partition(history.topic_id, history.partition);
            self.damage.push((time_ms, (home + 1) % METADATA_PARTITIONS, value));
        } else {
            self.events.push((time_ms, event));
        }
        Ok(())
    }

    /// Puts bytes into the metadata topic that are no event.
    pub(super) fn foreign_record(&mut self, age_ms: i64, value: &[u8]) {
        let partition = self.between(0, METADATA_PARTITIONS.into()) as i32;
        self.damage.push((self.now_ms - age_ms, partition, value.to_vec()));
    }

    fn objects(
        &self,
        history: &History<'_>,
        segment: &Segment,
        time_ms: i64,
        without_index: bool,
    ) -> anyhow::Result<()> {
        for row in self.layout.roles {
            let bytes = match row.role {
                ObjectRole::Log => segment.bytes.clone(),
                ObjectRole::OffsetIndex if without_index => continue,
                ObjectRole::OffsetIndex => segment.offset_index(),
                ObjectRole::TimeIndex => segment.time_index(),
                ObjectRole::ProducerSnapshot => no_producers(),
                ObjectRole::LeaderEpochCheckpoint => segment.leader_epoch_checkpoint(),
                // The segments have no aborted transactions.
                ObjectRole::TransactionIndex => continue,
            };
            let key = self.layout.key(&ObjectKey {
                topic: history.topic,
                partition: history.partition,
                topic_id: history.topic_id,
                segment_id: segment.id,
                start_offset: segment.start_offset,
                role: row.role,
            });
            let path = self.store.join(key);
            let directory = path.parent().unwrap_or(&self.store);
            let write = || -> std::io::Result<()> {
                std::fs::create_dir_all(directory)?;
                std::fs::write(&path, &bytes)?;
                let time = SystemTime::UNIX_EPOCH + Duration::from_millis(time_ms.unsigned_abs());
                File::options().write(true).open(&path)?.set_modified(time)
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Creates the metadata topic and writes every event into it, in the order of their times: what a broker would write
    /// through its manager, then what was broken.
    pub(super) async fn publish(mut self, metadata_topic: &str, min_isr: i16) -> anyhow::Result<()> {
        let deadline = Instant::now() + PUBLISH_MAX;
        let addresses: Vec<BrokerAddress> =
            self.cluster.bootstrap().split(',').map(str::parse).collect::<Result<_, _>>()?;
        let config = ClusterConfig::new(addresses, ConnectionConfig::default()).read_write();
        let client = Cluster::connect(config, deadline).await?;
        let config = KafkaMetadataLogConfig {
            topic: metadata_topic.to_owned(),
            num_partitions: METADATA_PARTITIONS,
            min_isr,
            ..KafkaMetadataLogConfig::default()
        };
        let log = KafkaMetadataEventLog::start(&client, config, deadline).await?;
        let config = RemoteLogMetadataManagerConfig::default();
        let manager = TopicBasedRemoteLogMetadataManager::start(log.clone(), config)?;
        self.events.sort_by_key(|(time_ms, _)| *time_ms);
        let mut partitions: Vec<RawTopicIdPartition<'static>> = Vec::new();
        // One metadata partition's events go one after the other, so that they lie where they did the last time.
        let mut queues: BTreeMap<i32, Vec<RawEvent<'static>>> = BTreeMap::new();
        for (_, event) in self.events.drain(..) {
            let Some(of) = event.topic_id_partition() else { continue };
            if !partitions.contains(of) {
                partitions.push(of.clone());
            }
            queues.entry(manager.metadata_partition(of)).or_default().push(event);
        }
        manager.on_partition_leadership_changes(&partitions, &[])?;
        let write = async |events: Vec<RawEvent<'static>>| {
            for event in events {
                let written = match event {
                    RawEvent::SegmentMetadata(event) => {
                        manager.add_remote_log_segment_metadata(event, deadline).await?
                    }
                    RawEvent::SegmentMetadataUpdate(event) => {
                        manager.update_remote_log_segment_metadata(event, deadline).await?
                    }
                    other => bail!("the story has no such event: {other:?}"),
                };
                ensure!(written.outcome == WriteOutcome::Applied, "an event was not applied: {written:?}");
            }
            Ok(())
        };
        try_join_all(queues.into_values().map(write)).await?;
        manager.close().await;
        log.close().await;
        self.damage.sort_by_key(|(time_ms, ..)| *time_ms);
        for (timestamp_ms, partition, value) in &self.damage {
            // Kafka's brokers write one record to a batch, without a key.
            let record =
                NewRecord { timestamp_ms: *timestamp_ms, value: Some(value), ..NewRecord::default() };
            self.cluster.append_batch(metadata_topic, *partition, BatchOptions::default(), &[record]);
        }
        Ok(())
    }
}

impl Segment {
    /// Entries of 8 bytes: offset relative to the segment's start, position. The first batch needs none.
    fn offset_index(&self) -> Vec<u8> {
        let entry = |(base, position, _): &(i64, usize, i64)| {
            [self.relative(*base), (*position as i32).to_be_bytes()].concat()
        };
        self.batches.iter().skip(1).flat_map(entry).collect()
    }

    /// Entries of 12 bytes: the largest timestamp so far, relative offset.
    fn time_index(&self) -> Vec<u8> {
        let mut largest = i64::MIN;
        let mut bytes = Vec::new();
        for (base, _, timestamp_ms) in &self.batches {
            if *timestamp_ms > largest {
                largest = *timestamp_ms;
                bytes.extend_from_slice(&largest.to_be_bytes());
                bytes.extend_from_slice(&self.relative(*base));
            }
        }
        bytes
    }

    fn relative(&self, offset: i64) -> [u8; 4] {
        ((offset - self.start_offset) as i32).to_be_bytes()
    }

    fn leader_epoch_checkpoint(&self) -> Vec<u8> {
        let mut text = format!("0\n{}\n", self.epochs.len());
        for entry in &self.epochs {
            text.push_str(&format!("{} {}\n", entry.epoch, entry.start_offset));
        }
        text.into_bytes()
    }
}

/// A producer snapshot without producers: version, checksum, count.
fn no_producers() -> Vec<u8> {
    let count = 0_i32.to_be_bytes();
    [&1_i16.to_be_bytes()[..], &crc32c::crc32c(&count).to_be_bytes(), &count].concat()
}

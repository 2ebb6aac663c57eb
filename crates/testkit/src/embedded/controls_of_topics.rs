//! What a test can do to topics and their logs.

use bytes::Bytes;
use strandline_protocol::TopicId;
use strandline_protocol::records::{BatchOptions, NewRecord, Producer};

use super::EmbeddedCluster;
use super::log::{header_of, now_ms};
use super::state::PartitionState;

/// Topics and their logs. Each panics where there is no such topic or partition.
#[expect(clippy::missing_panics_doc, reason = "said once, above")]
impl EmbeddedCluster {
    /// Creates a topic with a replica of each partition on every living broker, up to three.
    pub fn create_topic(&self, name: &str, partitions: usize) -> TopicId {
        self.create_topic_with(name, partitions, 3, &[])
    }

    /// Creates a topic; `replication` is cut to the number of living brokers.
    pub fn create_topic_with(
        &self,
        name: &str,
        partitions: usize,
        replication: usize,
        configs: &[(&str, &str)],
    ) -> TopicId {
        let mut state = self.shared.state();
        let replication = replication.min(state.alive().len());
        let configs = configs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        state.create_topic(name, partitions, replication, configs)
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, name: &str) {
        self.shared.state().topics.remove(name);
        self.shared.changed();
    }

    /// Deletes a topic and creates one of the same name, partitions and configs: another id, empty logs, epoch 0.
    pub fn recreate_topic(&self, name: &str) -> TopicId {
        let mut state = self.shared.state();
        let old = state.topics.remove(name).unwrap_or_else(|| panic!("there is no topic {name}"));
        let replication = old.partitions.first().map_or(1, |partition| partition.replicas.len());
        let id = state.create_topic(name, old.partitions.len(), replication, old.configs);
        drop(state);
        self.shared.changed();
        id
    }

    /// Makes a broker, or nobody (-1), lead a partition, in the next leader epoch. A broker that was no replica
    /// becomes one.
    pub fn move_leader(&self, topic: &str, partition: i32, broker: i32) {
        self.with_partition(topic, partition, |partition| {
            if broker != -1 && !partition.replicas.contains(&broker) {
                partition.replicas.push(broker);
            }
            partition.lead(broker);
        });
    }

    /// The broker that leads a partition (-1: none) and its leader epoch.
    pub fn leader(&self, topic: &str, partition: i32) -> (i32, i32) {
        self.with_partition(topic, partition, |partition| (partition.leader, partition.leader_epoch))
    }

    /// Sets the leader epoch to any value, lower ones too, as an unclean election with lost metadata would.
    pub fn set_leader_epoch(&self, topic: &str, partition: i32, epoch: i32) {
        self.with_partition(topic, partition, |partition| partition.leader_epoch = epoch);
    }

    /// Says which replicas are in sync.
    pub fn set_isr(&self, topic: &str, partition: i32, isr: &[i32]) {
        self.with_partition(topic, partition, |partition| partition.isr = isr.to_vec());
    }

    /// Appends one batch with a record per value, without keys, and gives its first offset.
    pub fn append<'a>(&self, topic: &str, partition: i32, values: &[&'a [u8]]) -> i64 {
        let timestamp_ms = now_ms();
        let record =
            |value: &&'a [u8]| NewRecord { timestamp_ms, value: Some(value), ..NewRecord::default() };
        let records: Vec<NewRecord<'_>> = values.iter().map(record).collect();
        self.append_batch(topic, partition, BatchOptions::default(), &records)
    }

    /// Appends one batch of records, as the options say but for offset and epoch, which are the log's, and gives its
    /// first offset. A batch of a transaction opens it.
    pub fn append_batch(
        &self,
        topic: &str,
        partition: i32,
        options: BatchOptions,
        records: &[NewRecord<'_>],
    ) -> i64 {
        self.with_partition(topic, partition, |partition| {
            partition.log.append_records(options, records).unwrap_or_else(|error| panic!("{error}"))
        })
    }

    /// Appends bytes as they are. Where they begin with a batch's header its offsets count, with a gap before them if
    /// they lie beyond the end; otherwise they take the next offset.
    pub fn append_raw(&self, topic: &str, partition: i32, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.with_partition(topic, partition, |partition| {
            let end = partition.log.end_offset();
            let (base, last) =
                header_of(&bytes).map_or((end, end), |header| (header.base_offset, header.next_offset() - 1));
            partition.log.append_raw(base, last, bytes);
        });
    }

    /// Ends the transaction of a producer in a partition with its marker, and gives the marker's offset.
    pub fn end_transaction(&self, topic: &str, partition: i32, producer: Producer, commit: bool) -> i64 {
        self.with_partition(topic, partition, |partition| {
            partition.log.end_transaction(producer, commit, 0).unwrap_or_else(|error| panic!("{error}"))
        })
    }

    /// Lets `change` damage the stored bytes of the batch that holds `offset`: a flipped bit, a cut.
    pub fn damage(&self, topic: &str, partition: i32, offset: i64, change: impl FnOnce(&mut Vec<u8>)) {
        let found = self.with_partition(topic, partition, |partition| partition.log.damage(offset, change));
        assert!(found, "no batch of {topic}-{partition} holds offset {offset}");
    }

    /// Removes the batch that holds `offset`, as compaction does.
    pub fn compact_away(&self, topic: &str, partition: i32, offset: i64) {
        self.with_partition(topic, partition, |partition| partition.log.compact_away(offset));
    }

    /// Loses what lies at `offset` and beyond, as an unclean election does.
    pub fn truncate(&self, topic: &str, partition: i32, offset: i64) {
        self.with_partition(topic, partition, |partition| partition.log.truncate_to(offset));
    }

    /// Moves the log start, as retention does.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        self.with_partition(topic, partition, |partition| partition.log.delete_before(before));
    }

    /// Holds the high watermark where it is told, or lets it follow the end again.
    pub fn hold_high_watermark(&self, topic: &str, partition: i32, at: Option<i64>) {
        self.with_partition(topic, partition, |partition| partition.log.hold_high_watermark(at));
    }

    /// Says how far the tier reaches: the last offset in it, and the first that is still on disk. ListOffsets tells of both,
    /// and Fetch reads from the tier what lies before the latter.
    pub fn set_tiered(
        &self,
        topic: &str,
        partition: i32,
        last_tiered: Option<i64>,
        local_start: Option<i64>,
    ) {
        self.with_partition(topic, partition, |partition| partition.log.set_tiered(last_tiered, local_start));
    }

    fn with_partition<T>(
        &self,
        topic: &str,
        partition: i32,
        act: impl FnOnce(&mut PartitionState) -> T,
    ) -> T {
        let mut state = self.shared.state();
        let found = state.partition(topic, partition);
        let result = act(found.unwrap_or_else(|| panic!("there is no partition {topic}-{partition}")));
        drop(state);
        self.shared.changed();
        result
    }
}

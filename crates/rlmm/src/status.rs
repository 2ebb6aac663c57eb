use std::sync::Arc;

use strandline_log::{LiveMetadataEventLog, RangeError};

use crate::topic_based::TopicBasedRemoteLogMetadataManager;

/// Where the reading of one metadata partition stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetadataPartitionStatus {
    /// The metadata partition.
    pub partition: i32,
    /// The first offset that was not applied.
    pub next_offset: Option<i64>,
    /// Where the log ended when that was last heard.
    pub log_end_offset: Option<i64>,
    /// The user partitions that are served from it.
    pub user_partitions: usize,
    /// Those of them that are ready.
    pub ready_user_partitions: usize,
    /// Writers whose event is in the log and was not read back yet.
    pub waiting_writes: usize,
    /// Records that are no event, or one that Kafka's classes refuse: they would have ended a Java broker's reading.
    pub passed_over: u64,
    /// The last of them: its offset and what is wrong with it.
    pub last_passed_over: Option<(i64, String)>,
    /// Why it is not read at the moment, if it is not. Tried again after a while, except after
    /// [`RangeError::Recreated`].
    pub stopped: Option<Arc<RangeError>>,
    /// What hindered the last try to read what was written before, if that goes on.
    pub hindrance: Option<Arc<RangeError>>,
    /// Why a snapshot that was there was not used.
    pub snapshot_discarded: Option<String>,
}

impl<L: LiveMetadataEventLog> TopicBasedRemoteLogMetadataManager<L> {
    /// Where the reading of each metadata partition stands that is needed here, ascending.
    pub fn status(&self) -> Vec<MetadataPartitionStatus> {
        let assigned = self.shared.assignment.list();
        let status = |partition: &Arc<crate::metadata_partition::MetadataPartition>| {
            let reading = partition.lock();
            let assigned = assigned.iter().find(|assigned| assigned.partition == partition.partition);
            (!reading.members.is_empty()).then(|| MetadataPartitionStatus {
                partition: partition.partition,
                next_offset: reading.position,
                log_end_offset: assigned.and_then(|assigned| assigned.log_end_offset),
                user_partitions: reading.members.len(),
                ready_user_partitions: reading
                    .members
                    .values()
                    .filter(|member| member.user.is_ready())
                    .count(),
                waiting_writes: reading.waiting_writes(),
                passed_over: reading.passed_over.count,
                last_passed_over: reading.passed_over.last.clone(),
                stopped: reading.stopped.clone(),
                hindrance: reading.hindrance.clone(),
                snapshot_discarded: reading.snapshot_discarded.clone(),
            })
        };
        self.shared.metadata_partitions.iter().filter_map(status).collect()
    }
}

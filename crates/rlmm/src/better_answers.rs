//! Answers that Kafka does not give and a user is better off with, each under a name of its own.

use strandline_log::LiveMetadataEventLog;
use strandline_tier::{RemoteLogSegmentIndex, RemoteLogSegmentMetadata, RemoteLogSegmentState};

use crate::TopicIdPartition;
use crate::errors::QueryError;
use crate::topic_based::TopicBasedRemoteLogMetadataManager;

impl<L: LiveMetadataEventLog> TopicBasedRemoteLogMetadataManager<L> {
    /// A finished segment that holds `offset` in the leader epoch, also where Kafka's look-up misses it.
    ///
    /// Kafka looks at one segment alone, the one that begins last at or below the offset. Behind the end of a shorter
    /// segment that was finished later, what a longer one holds cannot be read there, although its objects are in the
    /// store. The answer is Kafka's wherever Kafka has one; else, of the segments that hold the offset, the one that
    /// reaches farthest. Linear in the number of segments where Kafka has no answer.
    pub fn any_remote_log_segment_metadata(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
        offset: i64,
    ) -> Result<Option<RemoteLogSegmentMetadata>, QueryError> {
        self.with_index(partition, |index| {
            let kafkas = index.remote_log_segment_metadata(leader_epoch, offset);
            kafkas.or_else(|| hidden(index, leader_epoch, offset)).cloned()
        })
    }

    /// Finished segments of a leader epoch that are in none of Kafka's lists of that epoch: another one was finished at the
    /// same offset. By ascending start offset. Retention goes by those lists, so these stay in the store, and cost, until
    /// the topic is deleted.
    pub fn list_orphaned_segments(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: i32,
    ) -> Result<Vec<RemoteLogSegmentMetadata>, QueryError> {
        self.with_index(partition, |index| {
            let mut listed: Vec<_> = index.referenced(leader_epoch).map(|(_, id)| id).collect();
            listed.extend(index.unreferenced(leader_epoch));
            listed.sort_unstable();
            let is_orphan = |segment: &&RemoteLogSegmentMetadata| {
                segment.epoch_end_offset(leader_epoch).is_some()
                    && listed.binary_search(&segment.segment_id()).is_err()
            };
            let mut orphans: Vec<_> = index.list_remote_log_segments().filter(is_orphan).cloned().collect();
            orphans.sort_unstable_by_key(|segment| (segment.start_offset(), segment.segment_id()));
            orphans
        })
    }
}

fn hidden(
    index: &RemoteLogSegmentIndex,
    leader_epoch: i32,
    offset: i64,
) -> Option<&RemoteLogSegmentMetadata> {
    let holds = |segment: &&RemoteLogSegmentMetadata| {
        segment.state() == RemoteLogSegmentState::CopySegmentFinished
            && segment.epoch_ranges().any(|(entry, end_offset)| {
                entry.epoch == leader_epoch && (entry.start_offset..=end_offset).contains(&offset)
            })
            && (segment.start_offset()..=segment.end_offset()).contains(&offset)
    };
    let reach = |segment: &&RemoteLogSegmentMetadata| {
        (segment.epoch_end_offset(leader_epoch), segment.start_offset(), segment.segment_id())
    };
    index.list_remote_log_segments().filter(holds).max_by_key(reach)
}

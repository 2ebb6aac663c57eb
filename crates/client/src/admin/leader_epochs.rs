//! OffsetForLeaderEpoch, grouped by leader.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::try_join_all;
use strandline_meta::routing::Subject;
use strandline_meta::{Call, ItemAnswer, Routed};
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use tokio::time::Instant;

use super::{Admin, Results, by_topic, without_repeats};

/// One epoch of one partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochQuery {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
    /// The leader epoch asked about, 0 or above.
    pub leader_epoch: i32,
}

/// Where an epoch ends in the leader's lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch of the lineage that is not above the one asked for: it may be smaller, if the one asked for is not part
    /// of the lineage.
    pub leader_epoch: i32,
    /// The first offset that does not belong to `leader_epoch`: where the next epoch starts, or for the newest one the
    /// leader's log end, which may lie above the high watermark.
    pub end_offset: i64,
}

impl Admin {
    /// Where epochs end, each asked of the partition's leader; one partition may be asked for several epochs.
    ///
    /// `None` where the leader knows no epoch that small: its lineage begins above, or it knows the epoch not yet.
    ///
    /// # Errors
    /// Per query, as for [`list_offsets`](Self::list_offsets).
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn offsets_for_leader_epochs(
        &self,
        queries: &[EpochQuery],
        deadline: Instant,
    ) -> Results<Option<EpochEnd>> {
        let lists = without_repeats(queries.iter().map(|query| (&query.topic, query.partition)));
        let calls = lists.iter().map(|positions| {
            let items: Vec<EpochQuery> = positions.iter().map(|&at| queries[at].clone()).collect();
            async move { self.cluster().send_each(&LeaderEpochs, &items, deadline).await }
        });
        Ok(super::in_order(queries.len(), &lists, try_join_all(calls).await?))
    }
}

pub(super) struct LeaderEpochs;

impl Call for LeaderEpochs {
    type Request = OffsetForLeaderEpochRequest;
    type Item = EpochQuery;
    type Answer = Option<EpochEnd>;

    fn subject(&self, item: &EpochQuery) -> Subject {
        Subject::Partition { topic: item.topic.clone(), partition: item.partition }
    }

    fn request(&self, items: &[Routed<'_, EpochQuery>], _version: i16) -> OffsetForLeaderEpochRequest {
        let topics = by_topic(items.iter().map(|routed| &*routed.item.topic));
        let partition = |at: &usize| OffsetForLeaderPartition {
            partition: items[*at].item.partition,
            current_leader_epoch: items[*at].leader_epoch.unwrap_or(-1),
            leader_epoch: items[*at].item.leader_epoch,
            ..OffsetForLeaderPartition::default()
        };
        let topics = topics.into_iter().map(|(topic, positions)| OffsetForLeaderTopic {
            topic: topic.to_owned(),
            partitions: positions.iter().map(partition).collect(),
            ..OffsetForLeaderTopic::default()
        });
        OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics: topics.collect(),
            ..OffsetForLeaderEpochRequest::default()
        }
    }

    fn answers(
        &self,
        items: &[Routed<'_, EpochQuery>],
        response: OffsetForLeaderEpochResponse,
    ) -> Vec<ItemAnswer<Option<EpochEnd>>> {
        let mut told = HashMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                told.insert((topic.topic.as_str(), partition.partition), partition);
            }
        }
        let answer =
            |routed: &Routed<'_, EpochQuery>| match told.get(&(&*routed.item.topic, routed.item.partition)) {
                None => ItemAnswer::LeftOut,
                Some(partition) if partition.error_code != ErrorCode::None => {
                    ItemAnswer::Code(partition.error_code, None)
                }
                Some(partition) if partition.leader_epoch < 0 || partition.end_offset < 0 => {
                    ItemAnswer::Answer(None)
                }
                Some(partition) => ItemAnswer::Answer(Some(EpochEnd {
                    leader_epoch: partition.leader_epoch,
                    end_offset: partition.end_offset,
                })),
            };
        items.iter().map(answer).collect()
    }
}

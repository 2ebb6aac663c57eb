//! What the reading of ranges needs of a cluster. A seam for tests: [`ClusterBrokers`] is the real one.

use std::future::Future;
use std::sync::Arc;

use strandline_client::admin::{Admin, EpochQuery, Isolation, ListedOffset, OffsetQuery, OffsetSpec};
use strandline_client::reader::FETCH_BY_NAME;
use strandline_conn::{Call, Connection};
use strandline_meta::{Cluster, ErrorCode, SendError, TopicView};
use strandline_protocol::TopicId;
use strandline_protocol::messages::fetch::{FetchRequest, FetchResponse};
use tokio::time::Instant;

use crate::range::{PartitionMarks, RangeError};

/// What is known of the metadata topic at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopicState {
    /// It exists. By partition: the leader's node id and epoch.
    Known { id: Option<TopicId>, leaders: Vec<Option<(i32, Option<i32>)>> },
    /// The cluster answers with this code.
    Refused(ErrorCode),
}

pub(super) trait Brokers: Send + Sync + 'static {
    type Fetcher: Fetcher;

    /// The topic as the view has it; asks nobody.
    fn topic(&self) -> TopicState;

    /// Asks the cluster anew about the topic, after something has contradicted the view.
    fn repair(&self, deadline: Instant) -> impl Future<Output = Result<(), SendError>> + Send;

    /// A connection of its own to one broker.
    fn dial(
        &self,
        node_id: i32,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Fetcher, SendError>> + Send;

    /// Takes in what an answer says about leaders (KIP-951); true if any of it is newer than the view.
    fn learn_leaders(&self, response: &FetchResponse) -> bool;

    /// True while the connection lives and leads to where the view has the broker.
    fn stands(&self, node_id: i32, fetcher: &Self::Fetcher) -> bool;

    /// Where a leader epoch ends in the lineage of the partition's leader: the largest epoch that is not above it, and the
    /// first offset behind that. `None` where the lineage begins above it.
    fn epoch_end(
        &self,
        partition: i32,
        leader_epoch: i32,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<(i32, i64)>, SendError>> + Send;

    /// The bounds of partitions, in their order.
    fn marks(
        &self,
        partitions: &[i32],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<PartitionMarks, RangeError>>> + Send;
}

pub(super) trait Fetcher: Send + Sync + 'static {
    fn fetch(
        &self,
        request: FetchRequest,
        deadline: Instant,
    ) -> impl Future<Output = Result<FetchResponse, SendError>> + Send;
}

/// The cluster's own brokers, and the one topic that is read.
#[derive(Clone, Debug)]
pub(super) struct ClusterBrokers {
    pub(super) cluster: Cluster,
    pub(super) topic: Arc<str>,
}

/// A dedicated connection.
pub(super) struct BrokerConnection {
    connection: Connection,
    peer: String,
}

impl Brokers for ClusterBrokers {
    type Fetcher = BrokerConnection;

    fn topic(&self) -> TopicState {
        match self.cluster.snapshot().topic_view(&self.topic) {
            TopicView::Known(topic) => {
                let count = topic.partitions.last().map_or(0, |last| last.index + 1);
                // A broker may leave a partition out.
                let leader = |index| {
                    let partition = topic.partition(index)?;
                    partition.leader.map(|leader| (leader, partition.leader_epoch))
                };
                TopicState::Known { id: topic.id, leaders: (0..count).map(leader).collect() }
            }
            TopicView::Refused { code, .. } => TopicState::Refused(code),
            TopicView::NotAsked => TopicState::Refused(ErrorCode::UnknownTopicOrPartition),
        }
    }

    async fn repair(&self, deadline: Instant) -> Result<(), SendError> {
        self.cluster.repair_topics(&[&self.topic], deadline).await?;
        Ok(())
    }

    async fn dial(&self, node_id: i32, deadline: Instant) -> Result<BrokerConnection, SendError> {
        let connection = self.cluster.dedicated(node_id, deadline).await?;
        let peer = format!("broker {node_id} ({})", connection.address());
        Ok(BrokerConnection { connection, peer })
    }

    fn learn_leaders(&self, response: &FetchResponse) -> bool {
        self.cluster.learn_leaders(response)
    }

    fn stands(&self, node_id: i32, fetcher: &BrokerConnection) -> bool {
        let view = self.cluster.snapshot();
        let broker = view.broker(node_id);
        !fetcher.connection.is_closed()
            && broker.is_none_or(|broker| broker.address == *fetcher.connection.address())
    }

    async fn epoch_end(
        &self,
        partition: i32,
        leader_epoch: i32,
        deadline: Instant,
    ) -> Result<Option<(i32, i64)>, SendError> {
        let query = EpochQuery { topic: Arc::clone(&self.topic), partition, leader_epoch };
        let mut ends = Admin::new(&self.cluster).offsets_for_leader_epochs(&[query], deadline).await?;
        let end = ends.pop().expect("one query has one answer")?;
        Ok(end.map(|end| (end.leader_epoch, end.end_offset)))
    }

    async fn marks(&self, partitions: &[i32], deadline: Instant) -> Vec<Result<PartitionMarks, RangeError>> {
        let query = |partition, spec| OffsetQuery { topic: Arc::clone(&self.topic), partition, spec };
        let queries: Vec<_> = partitions
            .iter()
            .flat_map(|&partition| {
                [query(partition, OffsetSpec::Earliest), query(partition, OffsetSpec::Latest)]
            })
            .collect();
        let listed =
            Admin::new(&self.cluster).list_offsets(&queries, Isolation::ReadUncommitted, deadline).await;
        let mut listed = match listed {
            Ok(listed) => listed.into_iter(),
            Err(source) => {
                let failed = |&partition| Err(RangeError::of_send(partition, source.clone(), "DESCRIBE"));
                return partitions.iter().map(failed).collect();
            }
        };
        let mut next = |partition| offset_of(partition, listed.next());
        partitions
            .iter()
            .map(|&partition| {
                let (log_start_offset, high_watermark) = (next(partition), next(partition));
                Ok(PartitionMarks {
                    partition,
                    log_start_offset: log_start_offset?,
                    high_watermark: high_watermark?,
                })
            })
            .collect()
    }
}

/// A bound of a partition. Every log has a start and an end: an answer without one is none, and to take it for 0
/// would be to take the log for empty.
fn offset_of(partition: i32, listed: Option<Result<ListedOffset, SendError>>) -> Result<i64, RangeError> {
    let error = match listed {
        Some(Ok(ListedOffset { offset: Some(offset), .. })) => return Ok(offset),
        Some(Err(error)) => error,
        Some(Ok(_)) | None => SendError::LeftOut { peer: "the partition's leader".to_owned() },
    };
    Err(RangeError::of_send(partition, error, "DESCRIBE"))
}

impl Fetcher for BrokerConnection {
    async fn fetch(&self, request: FetchRequest, deadline: Instant) -> Result<FetchResponse, SendError> {
        let call = Call::by(deadline);
        // Without an id the topic has to be named, which later versions cannot.
        let by_name = request.topics.iter().any(|topic| topic.topic_id.is_zero());
        let call = if by_name { call.at_most(FETCH_BY_NAME) } else { call };
        self.connection
            .send(|_version| request, call)
            .await
            .map_err(|source| SendError::Request { peer: self.peer.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_the_leader_does_not_tell_is_an_error_and_not_an_empty_log() {
        let listed = |offset| ListedOffset { offset, timestamp_ms: None, leader_epoch: None };
        assert_eq!(offset_of(3, Some(Ok(listed(Some(7))))).unwrap(), 7);
        for untold in [Some(Ok(listed(None))), None] {
            let error = offset_of(3, untold).unwrap_err();
            assert_eq!(error.to_string(), "metadata partition 3 cannot be read");
        }
    }
}

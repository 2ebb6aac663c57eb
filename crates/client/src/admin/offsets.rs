//! ListOffsets, grouped by leader.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use strandline_meta::routing::Subject;
use strandline_meta::{Call, ItemAnswer, Routed};
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use tokio::time::Instant;

use super::{Admin, Results, by_topic, known, without_repeats};

/// Longest time that a broker may spend reading the tier for a look-up by time.
const REMOTE_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Which offset of a partition is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffsetSpec {
    /// The first record at or after this time, in milliseconds since 1970, not negative.
    AtTime(i64),
    /// The log end as a client sees it: the high watermark, or with [`Isolation::ReadCommitted`] the last stable offset.
    Latest,
    /// The log start offset, in the tier where there is one.
    Earliest,
    /// The record with the highest timestamp. Needs version 7 (Kafka 3.0).
    MaxTimestamp,
    /// The first offset on the leader's own disk. Needs version 8 (Kafka 3.6).
    EarliestLocal,
    /// The last offset in the tier. Needs version 9 (Kafka 3.9).
    LatestTiered,
    /// The first offset that waits to be copied to the tier. Needs version 11 (Kafka 4.1).
    EarliestPendingUpload,
}

impl OffsetSpec {
    /// The number on the wire. Source: `org.apache.kafka.common.requests.ListOffsetsRequest`.
    fn timestamp(self) -> i64 {
        match self {
            Self::AtTime(timestamp_ms) => timestamp_ms,
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::MaxTimestamp => -3,
            Self::EarliestLocal => -4,
            Self::LatestTiered => -5,
            Self::EarliestPendingUpload => -6,
        }
    }

    /// A broker that knows only older versions would take the number for a time.
    fn first_version(self) -> i16 {
        match self {
            Self::AtTime(_) | Self::Latest | Self::Earliest => 1,
            Self::MaxTimestamp => 7,
            Self::EarliestLocal => 8,
            Self::LatestTiered => 9,
            Self::EarliestPendingUpload => 11,
        }
    }
}

/// Whether records of open and aborted transactions count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All records count.
    #[default]
    ReadUncommitted,
    /// The end is the last stable offset. Needs version 2.
    ReadCommitted,
}

/// One offset of one partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetQuery {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
    /// Which offset.
    pub spec: OffsetSpec,
}

/// What a leader says about one [`OffsetQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset; `None` where there is none such, as in a tier without segments or after the newest record.
    pub offset: Option<i64>,
    /// The record's time in milliseconds since 1970, for look-ups by time.
    pub timestamp_ms: Option<i64>,
    /// The leader epoch of the offset, where the leader knows it.
    pub leader_epoch: Option<i32>,
}

impl Admin {
    /// Offsets of partitions, each asked of its leader; one partition may be asked for several.
    ///
    /// # Errors
    /// Per query: the topic or partition is unknown, may not be described, has no leader until `deadline`, or is led by a
    /// broker too old for the question.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        isolation: Isolation,
        deadline: Instant,
    ) -> Results<ListedOffset> {
        let left = deadline.saturating_duration_since(Instant::now()).min(REMOTE_READ_TIMEOUT);
        let timeout_ms = super::wire_ms(left);
        let call = ListOffsets { isolation, timeout_ms };
        let lists = without_repeats(queries.iter().map(|query| (&query.topic, query.partition)));
        let calls = lists.iter().map(|positions| {
            let items: Vec<OffsetQuery> = positions.iter().map(|&at| queries[at].clone()).collect();
            let call = &call;
            async move { self.cluster().send_each(call, &items, deadline).await }
        });
        Ok(super::in_order(queries.len(), &lists, try_join_all(calls).await?))
    }
}

pub(super) struct ListOffsets {
    pub(super) isolation: Isolation,
    pub(super) timeout_ms: i32,
}

impl Call for ListOffsets {
    type Request = ListOffsetsRequest;
    type Item = OffsetQuery;
    type Answer = ListedOffset;

    fn subject(&self, item: &OffsetQuery) -> Subject {
        Subject::Partition { topic: item.topic.clone(), partition: item.partition }
    }

    fn fits(&self, item: &OffsetQuery, version: i16) -> Result<(), String> {
        let (spec, first) = (item.spec, item.spec.first_version());
        if version < first {
            return Err(format!("{spec:?} needs version {first}"));
        }
        if version < 2 && self.isolation == Isolation::ReadCommitted {
            return Err("the last stable offset needs version 2".to_owned());
        }
        Ok(())
    }

    fn request(&self, items: &[Routed<'_, OffsetQuery>], _version: i16) -> ListOffsetsRequest {
        let topics = by_topic(items.iter().map(|routed| &*routed.item.topic));
        let partition = |at: &usize| ListOffsetsPartition {
            partition_index: items[*at].item.partition,
            current_leader_epoch: items[*at].leader_epoch.unwrap_or(-1),
            timestamp: items[*at].item.spec.timestamp(),
            ..ListOffsetsPartition::default()
        };
        let topics = topics.into_iter().map(|(topic, positions)| ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: positions.iter().map(partition).collect(),
            ..ListOffsetsTopic::default()
        });
        ListOffsetsRequest {
            replica_id: -1,
            isolation_level: match self.isolation {
                Isolation::ReadUncommitted => 0,
                Isolation::ReadCommitted => 1,
            },
            topics: topics.collect(),
            timeout_ms: self.timeout_ms,
            ..ListOffsetsRequest::default()
        }
    }

    fn answers(
        &self,
        items: &[Routed<'_, OffsetQuery>],
        response: ListOffsetsResponse,
    ) -> Vec<ItemAnswer<ListedOffset>> {
        let mut told = HashMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                told.insert((topic.name.as_str(), partition.partition_index), partition);
            }
        }
        let answer = |routed: &Routed<'_, OffsetQuery>| match told
            .get(&(&*routed.item.topic, routed.item.partition))
        {
            None => ItemAnswer::LeftOut,
            Some(partition) if partition.error_code != ErrorCode::None => {
                ItemAnswer::Code(partition.error_code, None)
            }
            Some(partition) => ItemAnswer::Answer(ListedOffset {
                offset: known(partition.offset),
                timestamp_ms: known(partition.timestamp),
                leader_epoch: (partition.leader_epoch >= 0).then_some(partition.leader_epoch),
            }),
        };
        items.iter().map(answer).collect()
    }
}

//! Questions about a cluster, and the creation of a topic.
//!
//! Every question is split by the brokers that can answer it, sent to them at the same time, and repeated where that failed,
//! until its deadline. An answer has one result per thing asked: what could not be had is an error that says why, and never
//! missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::{Cluster, ClusterSnapshot, ErrorCode, RefreshError, SendError, Topic, TopicView};
use tokio::time::Instant;

mod configs;
mod create_topic;
mod describe_cluster;
mod groups;
mod leader_epochs;
mod log_dirs;
mod offsets;
mod transactions;

pub use configs::{ConfigEntry, ConfigQuery, ConfigSource};
pub use create_topic::{CreatedTopic, NewTopic};
pub use describe_cluster::{ClusterDescription, DescribedBroker};
pub use groups::{
    CommittedOffset, GroupDescription, GroupListing, GroupMember, GroupOffset, GroupsWithOffsets,
};
pub use leader_epochs::{EpochEnd, EpochQuery};
pub use log_dirs::{LogDir, LogDirReplica};
pub use offsets::{Isolation, ListedOffset, OffsetQuery, OffsetSpec};
pub use strandline_meta::routing::ResourceKind;
pub use transactions::{ActiveProducer, PartitionQuery, TransactionDescription, TransactionListing};

/// Asks a cluster; cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    cluster: Cluster,
}

/// A list of results, one per thing asked, in that order; or one error if nothing could be asked at all.
pub type Results<T> = Result<Vec<Result<T, SendError>>, SendError>;

impl Admin {
    /// Asks this cluster.
    pub fn new(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone() }
    }

    /// The cluster that is asked.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Every topic that this principal may describe, in the view that holds the list.
    ///
    /// A topic without the right DESCRIBE is left out without a word: see [`topics_by_name`](Self::topics_by_name).
    ///
    /// # Errors
    /// No broker gave the list before `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn all_topics(&self, deadline: Instant) -> Result<Arc<ClusterSnapshot>, RefreshError> {
        self.cluster.refresh_all(deadline).await
    }

    /// What the cluster says about these names: the topic, or the code of its refusal, 3 for one that does not exist and
    /// 29 for one that this principal may not describe. A name that no topic can have is answered with 17, as a broker does,
    /// and nobody is asked about it: a name may be too long to be asked. A name given twice stands there once.
    ///
    /// # Errors
    /// No broker answered before `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn topics_by_name<T: AsRef<str>>(
        &self,
        names: &[T],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Result<Topic, ErrorCode>>, RefreshError> {
        let (asked, impossible): (Vec<&str>, Vec<&str>) =
            names.iter().map(AsRef::as_ref).partition(|name| is_topic_name(name));
        let mut found: BTreeMap<String, Result<Topic, ErrorCode>> = impossible
            .into_iter()
            .map(|name| (name.to_owned(), Err(ErrorCode::InvalidTopicException)))
            .collect();
        if asked.is_empty() {
            return Ok(found);
        }
        let view = self.cluster.refresh_topics(&asked, deadline).await?;
        found.extend(asked.into_iter().map(|name| {
            let found = match view.topic_view(name) {
                TopicView::Known(topic) => Ok(topic.clone()),
                TopicView::Refused { code, .. } => Err(code),
                // The answer said nothing about the name, which is what an unknown topic comes to.
                TopicView::NotAsked => Err(ErrorCode::UnknownTopicOrPartition),
            };
            (name.to_owned(), found)
        }));
        Ok(found)
    }
}

/// True for a name that a topic can have: 1 to 249 letters, digits, `.`, `_` and `-`, and not `.` or `..`.
pub fn is_topic_name(name: &str) -> bool {
    // Source: `org.apache.kafka.common.internals.Topic#validate`.
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

/// Positions of `items` in lists within which no key occurs twice. A broker refuses a request that names a partition twice.
fn without_repeats<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<Vec<usize>> {
    let mut seen: BTreeMap<K, usize> = BTreeMap::new();
    let mut lists: Vec<Vec<usize>> = Vec::new();
    for (position, key) in keys.enumerate() {
        let nth = seen.entry(key).or_insert(0);
        match lists.get_mut(*nth) {
            Some(list) => list.push(position),
            None => lists.push(vec![position]),
        }
        *nth += 1;
    }
    lists
}

/// Groups positions by topic, keeping the order of first appearance of each.
fn by_topic<'a>(topics: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Vec<usize>> {
    let mut grouped: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, topic) in topics.enumerate() {
        grouped.entry(topic).or_default().push(position);
    }
    grouped
}

/// Puts the results of several lists of positions back in the order of what was asked.
fn in_order<T>(count: usize, lists: &[Vec<usize>], results: Vec<Vec<T>>) -> Vec<T> {
    let mut ordered: Vec<Option<T>> = (0..count).map(|_| None).collect();
    for (positions, results) in lists.iter().zip(results) {
        for (position, result) in positions.iter().zip(results) {
            ordered[*position] = Some(result);
        }
    }
    ordered.into_iter().map(|result| result.expect("each position is in one list")).collect()
}

/// A wait as requests carry it.
fn wire_ms(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX)
}

/// The wire's -1 is "none" here.
fn known(value: i64) -> Option<i64> {
    (value >= 0).then_some(value)
}

#[cfg(test)]
mod tests;

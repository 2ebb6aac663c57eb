//! What the cluster looked like when a broker last told: an immutable view.
//!
//! Pure: no socket, no clock, no lock. A reader holds an `Arc` of one view and sees it unchanged for as long as it likes. By
//! which rules an answer makes the next view stands in [`apply`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashMap};
use indexmap::IndexMap;
use strandline_conn::BrokerAddress;
use strandline_protocol::{ErrorCode, TopicId};
use tokio::time::Instant;

pub(crate) mod apply;
mod doubt;

pub use doubt::AGREEING_ANSWERS;
use doubt::Doubt;

/// A broker as the cluster advertises it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broker {
    /// The broker's id, unique in the cluster.
    pub node_id: i32,
    /// The advertised listener.
    pub address: BrokerAddress,
    /// The rack, where one is configured.
    pub rack: Option<String>,
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broker {} ({})", self.node_id, self.address)
    }
}

/// One partition as the view knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The partition's number, from 0.
    pub index: i32,
    /// The leader's broker id; `None` while the partition has none.
    pub leader: Option<i32>,
    /// The leader epoch; `None` until a broker has told one.
    pub leader_epoch: Option<i32>,
    /// Broker ids of all replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Broker ids of the replicas in sync.
    pub isr: Vec<i32>,
    /// Broker ids of the replicas that are offline.
    pub offline_replicas: Vec<i32>,
    /// A lower epoch that brokers tell, which is not believed yet.
    lower_epoch: Option<Box<Doubt<i32>>>,
}

impl Partition {
    /// What brokers said of it, without the marks of this client.
    fn told(&self) -> (i32, Option<i32>, Option<i32>, [&[i32]; 3]) {
        let Self { index, leader, leader_epoch, replicas, isr, offline_replicas, lower_epoch: _ } = self;
        (*index, *leader, *leader_epoch, [replicas, isr, offline_replicas])
    }
}

/// One topic as the view knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id; `None` from a broker older than Kafka 2.8.
    pub id: Option<TopicId>,
    /// True for the topics that Kafka keeps for itself.
    pub is_internal: bool,
    /// The partitions by number, without holes unless the broker left some out.
    pub partitions: Vec<Partition>,
    /// When a broker last told about this topic.
    pub seen_at: Instant,
    /// True once something showed that this entry is out of date; the next answer clears it.
    pub stale: bool,
    replaced_ids: Vec<TopicId>,
    /// One of these that brokers tell again, which is not believed yet.
    returning_id: Option<Box<Doubt<TopicId>>>,
}

impl Topic {
    /// The partition of that number.
    pub fn partition(&self, index: i32) -> Option<&Partition> {
        // Without holes it stands at its number.
        let at = self.partitions.get(usize::try_from(index).ok()?);
        at.filter(|partition| partition.index == index).or_else(|| {
            let at = self.partitions.binary_search_by_key(&index, |partition| partition.index).ok()?;
            Some(&self.partitions[at])
        })
    }

    /// Time since a broker last told about this topic.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.seen_at)
    }

    /// Ids that this name had before, as far as this client saw it, the latest last; at most four. Not empty if the topic
    /// was deleted and created again: positions, epochs and sequences that were had under one of these mean nothing now.
    pub fn replaced_ids(&self) -> &[TopicId] {
        &self.replaced_ids
    }
}

/// What the view knows about a topic name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TopicView<'a> {
    /// The topic exists.
    Known(&'a Topic),
    /// A broker answered with this code: 3 (no such topic), 29 (no right to describe it), 17 (not a topic name), and so on.
    Refused {
        /// The code of the answer.
        code: ErrorCode,
        /// When it was given.
        at: Instant,
    },
    /// Nobody asked about this name since the last full list, or the last full list left it out.
    NotAsked,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The last good answer; kept beside a refusal so that epochs of the same id stay monotone.
    topic: Option<Arc<Topic>>,
    refused: Option<(ErrorCode, Instant)>,
    /// False once a full list left the topic out: nothing is shown of it, and what it was is remembered for a while.
    listed: bool,
}

/// An immutable view of the cluster.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    cluster_id: Option<String>,
    controller_id: Option<i32>,
    brokers: BTreeMap<i32, Broker>,
    /// Most brokers that an answer named lately, and when it was: a broker that lags behind may know of fewer.
    most_brokers: Option<(usize, Instant)>,
    /// In the order of the names. Hashed by a seed of this process, so that nobody can choose names that collide.
    topics: IndexMap<Arc<str>, Entry, DefaultHashBuilder>,
    names_by_id: HashMap<TopicId, Arc<str>>,
    full_list_at: Option<Instant>,
    updated_at: Option<Instant>,
}

impl ClusterSnapshot {
    /// The cluster's id; `None` from a broker older than Kafka 0.10.1.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// The broker that takes requests for the controller. With KRaft any broker does, and the answer names one at random.
    pub fn controller_id(&self) -> Option<i32> {
        self.controller_id
    }

    /// All brokers that are registered, by id.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &Broker> {
        self.brokers.values()
    }

    /// The broker of that id.
    pub fn broker(&self, node_id: i32) -> Option<&Broker> {
        self.brokers.get(&node_id)
    }

    /// All topics known, by name.
    ///
    /// Every topic of the cluster that the caller may see only where [`full_list_at`](Self::full_list_at) says so.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        let shown = self.topics.values().filter(|entry| entry.listed && entry.refused.is_none());
        shown.filter_map(|entry| entry.topic.as_deref())
    }

    /// The topic of that name, where it is known to exist.
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        match self.topic_view(name) {
            TopicView::Known(topic) => Some(topic),
            TopicView::Refused { .. } | TopicView::NotAsked => None,
        }
    }

    /// What is known about a name, refusals included.
    pub fn topic_view(&self, name: &str) -> TopicView<'_> {
        match self.topics.get(name) {
            Some(Entry { listed: false, .. }) | None => TopicView::NotAsked,
            Some(Entry { refused: Some((code, at)), .. }) => TopicView::Refused { code: *code, at: *at },
            Some(Entry { topic: Some(topic), .. }) => TopicView::Known(topic),
            Some(Entry { topic: None, refused: None, .. }) => TopicView::NotAsked,
        }
    }

    /// The topic of that id, where it is known to exist.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Topic> {
        self.topic(self.names_by_id.get(&id)?)
    }

    /// The topic that has the name now which the topic of that id had before; `None` if this client saw no such change.
    pub fn topic_instead_of(&self, id: TopicId) -> Option<&Topic> {
        self.topics().find(|topic| topic.replaced_ids.contains(&id))
    }

    /// The partition of a topic that is known to exist.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&Partition> {
        self.topic(topic)?.partition(index)
    }

    /// Time since a broker last told about brokers and controller; `None` before the first answer.
    ///
    /// For a topic ask [`Topic::age`]: an answer about one topic makes no other look fresh.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.updated_at?))
    }

    /// When a broker last told about brokers and controller; `None` before the first answer.
    pub(crate) fn told_at(&self) -> Option<Instant> {
        self.updated_at
    }

    /// When a broker last listed every topic that the caller may see.
    pub fn full_list_at(&self) -> Option<Instant> {
        self.full_list_at
    }
}

#[cfg(test)]
mod tests;

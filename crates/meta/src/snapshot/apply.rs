//! The rules by which an answer, a hint or a contradiction makes the next view of the last one.
//!
//! Pure, each rule with a test in `snapshot/tests.rs`:
//! - brokers, controller and cluster id of *every* answer are taken in, also of one that was asked for a single topic;
//! - a top-level error, an answer without a broker or one from another cluster changes nothing;
//! - for one topic id the leader epoch never goes back, the partition count never shrinks, and a missing epoch (-1) keeps the
//!   old one; a lower epoch counts after [`AGREEING_ANSWERS`](super::AGREEING_ANSWERS) answers that say the same, of as many brokers
//!   as there are to ask, or of most of them for long, and is then reported;
//! - another topic id is another topic: nothing of the old one is carried over, and an id that was replaced comes back only as a
//!   lower epoch does: a broker that lags behind may have told an id in between that this client had not seen before;
//! - each topic carries its own stamp, and a contradiction marks it stale without taking anything away;
//! - a hint about a leader (KIP-951) counts only in a newer epoch, and makes nothing look fresh.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use indexmap::IndexMap;
use indexmap::map::Entry as Place;
use strandline_conn::ParseBrokerAddressError;
use strandline_protocol::{ErrorCode, TopicId};
use tokio::time::Instant;

use crate::hints::{HintedTopic, LeaderHints};
use crate::pool::Endpoint;

use super::doubt::{BELIEVED_AFTER, Doubt, Teller};
use super::{Broker, ClusterSnapshot, Entry, Partition, Topic};

/// Ids a name has had before are remembered up to this number, so that a lagging broker cannot bring one back.
const REPLACED_IDS_MAX: usize = 4;

/// What a topic was is remembered for so long after a full list left it out: that of Kafka's `metadata.max.idle.ms`.
const UNLISTED_REMEMBERED: Duration = Duration::from_secs(300);

/// What a Metadata answer says, free of the codec.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetadataAnswer {
    /// Who gave it.
    pub(crate) told_by: Endpoint,
    pub(crate) error: ErrorCode,
    pub(crate) cluster_id: Option<String>,
    pub(crate) controller_id: Option<i32>,
    pub(crate) brokers: Vec<Broker>,
    pub(crate) topics: Vec<TopicAnswer>,
}

/// One topic of a Metadata answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopicAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) name: Arc<str>,
    pub(crate) id: Option<TopicId>,
    pub(crate) is_internal: bool,
    pub(crate) partitions: Vec<PartitionAnswer>,
}

/// One partition of a Metadata answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartitionAnswer {
    pub(crate) index: i32,
    pub(crate) leader: Option<i32>,
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) replicas: Vec<i32>,
    pub(crate) isr: Vec<i32>,
    pub(crate) offline_replicas: Vec<i32>,
}

/// Which topics a Metadata request named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All topics that the caller may see.
    All,
    /// These, perhaps none.
    Named(Vec<Arc<str>>),
}

/// An answer that must not replace the view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectedAnswer {
    /// The broker answered the whole request with an error. Ask another, or later.
    #[error("the broker answered Metadata with {code}")]
    TopLevelError {
        /// The code of the answer.
        code: ErrorCode,
    },
    /// No broker is named, which no working cluster says. Ask another, or later.
    #[error("the Metadata answer names no broker")]
    NoBrokers,
    /// A broker advertises what is no address. Its `advertised.listeners` must be corrected.
    #[error("broker {node_id} advertises an unusable address")]
    BadAddress {
        /// The broker.
        node_id: i32,
        /// What is wrong with it.
        source: ParseBrokerAddressError,
    },
    /// The peer belongs to another cluster than the one this client talked to. Never retry there: its address was reused.
    #[error("the broker belongs to cluster {found}, but this client is connected to cluster {expected}")]
    OtherCluster {
        /// The cluster id this client is bound to.
        expected: String,
        /// The cluster id that the answer holds.
        found: String,
    },
}

/// Something in an answer that a person may want to know; the refresher logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A lower leader epoch was accepted after several agreeing answers.
    LeaderEpochWentBack {
        /// Topic name.
        topic: Arc<str>,
        /// Partition number.
        partition: i32,
        /// The epoch known before.
        from: i32,
        /// The epoch known now.
        to: i32,
    },
    /// The name belongs to another topic now: it was deleted and created again.
    TopicRecreated {
        /// Topic name.
        topic: Arc<str>,
        /// The id before.
        from: TopicId,
        /// The id now.
        to: TopicId,
    },
}

/// The next view, and what the answer brought.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) snapshot: ClusterSnapshot,
    pub(crate) notices: Vec<Notice>,
    /// True where brokers, or anything about the topics of the answer, differ from the view before (stamps aside).
    pub(crate) changed: bool,
}

impl ClusterSnapshot {
    /// A view that knows nothing yet.
    pub(crate) fn empty() -> Self {
        Self {
            cluster_id: None,
            controller_id: None,
            brokers: BTreeMap::new(),
            most_brokers: None,
            topics: IndexMap::default(),
            names_by_id: HashMap::new(),
            full_list_at: None,
            updated_at: None,
        }
    }

    /// The same view with these topics marked stale; `None` if that changes nothing. Unknown names are passed over.
    pub(crate) fn with_stale(&self, topics: &[Arc<str>]) -> Option<Self> {
        let fresh = |name: &&Arc<str>| self.topic(name).is_some_and(|topic| !topic.stale);
        let fresh: Vec<&Arc<str>> = topics.iter().filter(fresh).collect();
        if fresh.is_empty() {
            return None;
        }
        let mut next = self.clone();
        for name in fresh {
            if let Some(topic) = next.topics.get_mut(name).and_then(|entry| entry.topic.as_mut()) {
                Arc::make_mut(topic).stale = true;
            }
        }
        Some(next)
    }

    /// The same view without a controller, if this broker is the one that the view names; else `None`.
    pub(crate) fn without_controller(&self, node_id: i32) -> Option<Self> {
        (self.controller_id == Some(node_id)).then(|| Self { controller_id: None, ..self.clone() })
    }

    /// The view with those leaders of `hints` that are newer than its own; `None` if none is. A broker that the view does not
    /// know comes with them; where a known one is, only Metadata tells.
    pub(crate) fn with_hints(&self, hints: &LeaderHints) -> Option<Self> {
        let mut next: Option<Self> = None;
        for hint in &hints.leaders {
            let name = match &hint.topic {
                HintedTopic::Name(name) => self.topic(name).map(|topic| &topic.name),
                HintedTopic::Id(id) => self.topic_by_id(*id).map(|topic| &topic.name),
            };
            let Some(name) = name else { continue };
            let known = self.partition(name, hint.partition);
            let is_newer =
                |known: &Partition| known.leader_epoch.is_none_or(|epoch| hint.leader_epoch > epoch);
            let is_somebody = |id| self.broker(id).is_some() || hints.brokers.iter().any(|b| b.node_id == id);
            if hint.leader_epoch < 0 || !known.is_some_and(is_newer) || !is_somebody(hint.leader) {
                continue;
            }
            let next = next.get_or_insert_with(|| self.clone());
            let entry = next.topics.get_mut(name).and_then(|entry| entry.topic.as_mut());
            let Some(topic) = entry.map(Arc::make_mut) else { continue };
            topic.stale = true;
            if let Ok(at) = topic.partitions.binary_search_by_key(&hint.partition, |known| known.index) {
                let partition = &mut topic.partitions[at];
                partition.leader = Some(hint.leader);
                partition.leader_epoch = Some(hint.leader_epoch);
                partition.lower_epoch = None;
            }
            if let Some(broker) = hints.brokers.iter().find(|broker| broker.node_id == hint.leader) {
                next.brokers.entry(broker.node_id).or_insert_with(|| broker.clone());
            }
        }
        next
    }

    /// The view after an answer, by the rules at the head of this file.
    pub(crate) fn apply(
        &self,
        answer: MetadataAnswer,
        asked: &Asked,
        now: Instant,
    ) -> Result<Applied, RejectedAnswer> {
        if answer.error != ErrorCode::None {
            return Err(RejectedAnswer::TopLevelError { code: answer.error });
        }
        if answer.brokers.is_empty() {
            return Err(RejectedAnswer::NoBrokers);
        }
        if let (Some(expected), Some(found)) = (&self.cluster_id, &answer.cluster_id)
            && expected != found
        {
            return Err(RejectedAnswer::OtherCluster { expected: expected.clone(), found: found.clone() });
        }
        let mut next = self.clone();
        next.cluster_id = answer.cluster_id.or(next.cluster_id);
        next.controller_id = answer.controller_id;
        next.brokers = answer.brokers.into_iter().map(|broker| (broker.node_id, broker)).collect();
        next.updated_at = Some(now);
        let mut changed = next.brokers != self.brokers;
        let mut notices = Vec::new();
        next.most_brokers = match self.most_brokers {
            Some((most, at)) if most > next.brokers.len() && now - at < BELIEVED_AFTER => Some((most, at)),
            _ => Some((next.brokers.len(), now)),
        };
        let told_by = next.teller(answer.told_by);
        let brokers = next.most_brokers.map_or(1, |(most, _)| most);
        let teller = Teller { told_by: &told_by, brokers, now };
        if *asked == Asked::All {
            next.full_list_at = Some(now);
            let listed: HashSet<&Arc<str>> = answer.topics.iter().map(|topic| &topic.name).collect();
            next.topics.retain(|name, entry| {
                listed.contains(name) || {
                    changed |= entry.listed;
                    entry.listed = false;
                    entry.topic.as_ref().is_some_and(|topic| topic.age(now) < UNLISTED_REMEMBERED)
                }
            });
        }
        let known = next.topics.len();
        for mut topic in answer.topics {
            match next.topics.entry(Arc::clone(&topic.name)) {
                Place::Occupied(mut place) => {
                    topic.name = Arc::clone(place.key());
                    let entry = next_entry(Some(place.get()), topic, teller, &mut notices);
                    changed |= differs(place.get(), &entry);
                    place.insert(entry);
                }
                Place::Vacant(place) => {
                    changed = true;
                    place.insert(next_entry(None, topic, teller, &mut notices));
                }
            }
        }
        if next.topics.len() > known {
            // Stable: what was in order before is one run of it.
            next.topics.sort_keys();
        }
        if changed {
            next.names_by_id =
                next.topics().filter_map(|topic| Some((topic.id?, Arc::clone(&topic.name)))).collect();
        }
        Ok(Applied { snapshot: next, notices, changed })
    }

    /// A broker is the same one whether it was asked as itself or at an address from the configuration.
    fn teller(&self, endpoint: Endpoint) -> Endpoint {
        match endpoint {
            Endpoint::Node(node_id) => Endpoint::Node(node_id),
            Endpoint::Bootstrap(address) => {
                let found = self.brokers.values().find(|broker| broker.address == address);
                found.map_or(Endpoint::Bootstrap(address), |broker| Endpoint::Node(broker.node_id))
            }
        }
    }
}

fn next_entry(
    before: Option<&Entry>,
    answer: TopicAnswer,
    teller: Teller<'_>,
    notices: &mut Vec<Notice>,
) -> Entry {
    let now = teller.now;
    let old = before.and_then(|entry| entry.topic.as_ref());
    if answer.error != ErrorCode::None {
        return Entry { topic: old.cloned(), refused: Some((answer.error, now)), listed: true };
    }
    let Some(old) = old else {
        return Entry {
            topic: Some(Arc::new(new_topic(answer, Vec::new(), now))),
            refused: None,
            listed: true,
        };
    };
    let topic = match (old.id, answer.id) {
        (Some(from), Some(to)) if from != to => {
            let is_former = old.replaced_ids.contains(&to);
            let mut doubt = Doubt::of(to, old.returning_id.as_deref(), now);
            if is_former && !doubt.confirmed(teller) {
                // As a broker tells that lags behind.
                Topic { seen_at: now, returning_id: Some(doubt), ..Topic::clone(old) }
            } else {
                notices.push(Notice::TopicRecreated { topic: Arc::clone(&answer.name), from, to });
                let mut replaced_ids: Vec<TopicId> =
                    old.replaced_ids.iter().copied().filter(|id| *id != to).collect();
                replaced_ids.push(from);
                if replaced_ids.len() > REPLACED_IDS_MAX {
                    replaced_ids.remove(0);
                }
                new_topic(answer, replaced_ids, now)
            }
        }
        _ => merged_topic(old, answer, teller, notices),
    };
    Entry { topic: Some(Arc::new(topic)), refused: None, listed: true }
}

fn new_topic(answer: TopicAnswer, replaced_ids: Vec<TopicId>, now: Instant) -> Topic {
    let mut partitions: Vec<Partition> = answer.partitions.into_iter().map(new_partition).collect();
    tidy(&mut partitions);
    Topic {
        name: answer.name,
        id: answer.id,
        is_internal: answer.is_internal,
        partitions,
        seen_at: now,
        stale: false,
        replaced_ids,
        returning_id: None,
    }
}

fn merged_topic(old: &Topic, answer: TopicAnswer, teller: Teller<'_>, notices: &mut Vec<Notice>) -> Topic {
    let mut partitions: Vec<Partition> = Vec::with_capacity(answer.partitions.len());
    for partition in answer.partitions {
        partitions.push(match old.partition(partition.index) {
            Some(old_partition) => merged_partition(old_partition, partition, teller, &answer.name, notices),
            None => new_partition(partition),
        });
    }
    tidy(&mut partitions);
    // Partitions are never taken away from a topic: an answer that lacks some comes from a broker that lags behind.
    let left_out = |kept: &Partition| partitions.binary_search_by_key(&kept.index, |p| p.index).is_err();
    let kept: Vec<Partition> = old.partitions.iter().filter(|p| left_out(p)).cloned().collect();
    partitions.extend(kept);
    tidy(&mut partitions);
    Topic {
        name: answer.name,
        id: answer.id.or(old.id),
        is_internal: answer.is_internal,
        partitions,
        seen_at: teller.now,
        stale: false,
        replaced_ids: old.replaced_ids.clone(),
        returning_id: old.returning_id.clone().and_then(|doubt| doubt.contradicted(teller)),
    }
}

fn tidy(partitions: &mut Vec<Partition>) {
    partitions.sort_by_key(|partition| partition.index);
    partitions.dedup_by_key(|partition| partition.index);
}

fn new_partition(answer: PartitionAnswer) -> Partition {
    Partition {
        index: answer.index,
        leader: answer.leader,
        leader_epoch: answer.leader_epoch,
        replicas: answer.replicas,
        isr: answer.isr,
        offline_replicas: answer.offline_replicas,
        lower_epoch: None,
    }
}

fn merged_partition(
    old: &Partition,
    answer: PartitionAnswer,
    teller: Teller<'_>,
    topic: &Arc<str>,
    notices: &mut Vec<Notice>,
) -> Partition {
    match (old.leader_epoch, answer.leader_epoch) {
        (Some(from), Some(to)) if to < from => {
            let mut lower = Doubt::of(to, old.lower_epoch.as_deref(), teller.now);
            if !lower.confirmed(teller) {
                return Partition { lower_epoch: Some(lower), ..old.clone() };
            }
            notices.push(Notice::LeaderEpochWentBack {
                topic: Arc::clone(topic),
                partition: answer.index,
                from,
                to,
            });
            new_partition(answer)
        }
        (Some(known), Some(told)) if known == told => {
            let lower_epoch = old.lower_epoch.clone().and_then(|lower| lower.contradicted(teller));
            Partition { lower_epoch, ..new_partition(answer) }
        }
        // -1 is no epoch, and says nothing about those that are.
        (known, None) => {
            let lower_epoch = old.lower_epoch.clone();
            Partition { leader_epoch: known, lower_epoch, ..new_partition(answer) }
        }
        (_, Some(_)) => new_partition(answer),
    }
}

/// True where the two say different things; stamps and marks do not count.
fn differs(before: &Entry, after: &Entry) -> bool {
    let codes = |entry: &Entry| entry.refused.map(|(code, _)| code);
    if codes(before) != codes(after) || before.listed != after.listed {
        return true;
    }
    match (&before.topic, &after.topic) {
        (Some(before), Some(after)) => {
            let (before_told, after_told) = (before.partitions.iter(), after.partitions.iter());
            before.id != after.id || !before_told.map(Partition::told).eq(after_told.map(Partition::told))
        }
        (None, None) => false,
        _ => true,
    }
}

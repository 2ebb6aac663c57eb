//! What holds at every moment: of the view that the client has, and of the requests that the brokers got.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use strandline_meta::{Cluster, ClusterSnapshot};
use strandline_protocol::messages::{
    DescribeConfigsRequest, DescribeGroupsRequest, DescribeProducersRequest, FetchRequest,
    ListOffsetsRequest, MetadataRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
};
use strandline_protocol::{ApiKey, DecodeError, TopicId};
use strandline_testkit::embedded::JournalEntry;
use tokio::time::sleep;

use crate::schedule::TOPICS;
use crate::world::{Changes, SharedWorld, World};

/// A view lives longer than this almost always.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The journal keeps far more than the requests of so short a time.
const READ_JOURNAL_EVERY: Duration = Duration::from_millis(200);

/// Holds every view against the ones before it, for as long as it is polled.
pub(crate) async fn views(world: SharedWorld, cluster: Cluster) {
    let mut seen = Seen::default();
    let mut last: Option<Arc<ClusterSnapshot>> = None;
    loop {
        let view = cluster.snapshot();
        if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &view)) {
            if let Err(wrong) = seen.look(&view, &world) {
                world.violation(wrong);
                return;
            }
            last = Some(view);
        }
        sleep(LOOK_EVERY).await;
    }
}

#[derive(Default)]
struct Seen {
    cluster_id: Option<String>,
    epochs: HashMap<(TopicId, i32), i32>,
    ids: BTreeMap<String, TopicId>,
    gone: HashSet<TopicId>,
}

impl Seen {
    fn look(&mut self, view: &ClusterSnapshot, world: &World) -> Result<(), String> {
        let id = view.cluster_id().map(str::to_owned);
        let known = self.cluster_id.get_or_insert_with(|| id.clone().unwrap_or_default());
        if id.as_ref() != Some(known) {
            return Err(format!("the cluster id was {known} and is {id:?}"));
        }
        if view.brokers().len() == 0 {
            return Err("a view without a broker".to_owned());
        }
        for topic in view.topics() {
            let Some(id) = topic.id else { return Err(format!("{} has no id", topic.name)) };
            if let Some(before) = self.ids.insert(topic.name.to_string(), id)
                && before != id
            {
                self.gone.insert(before);
            }
            // An id can come back that a broker which lagged behind had made the client drop; not one that is truly gone.
            if self.gone.contains(&id) && world.truth().is_long_gone(&topic.name, id) {
                return Err(format!("{} has its former id {id} again", topic.name));
            }
            let ours = TOPICS.iter().any(|shape| shape.name == &*topic.name);
            if ours && !world.truth().had_id(&topic.name, id) && world.is_calm() {
                return Err(format!("{} never had the id {id}", topic.name));
            }
            for partition in &topic.partitions {
                let key = (id, partition.index);
                let (before, now) = (self.epochs.get(&key).copied(), partition.leader_epoch);
                if now < before {
                    let (name, index) = (&topic.name, partition.index);
                    return Err(format!(
                        "the leader epoch of {name}-{index} ({id}) went from {before:?} to {now:?}"
                    ));
                }
                self.epochs.extend(now.map(|now| (key, now)));
            }
        }
        Ok(())
    }
}

/// Holds every request against what its broker is there for, for as long as it is polled.
pub(crate) async fn requests(world: SharedWorld) {
    loop {
        read_journal(&world).await;
        sleep(READ_JOURNAL_EVERY).await;
    }
}

/// Looks at the requests that came since it was last called.
pub(crate) async fn read_journal(world: &World) {
    let mut changes = world.changes().await;
    let entries = world.embedded.journal_since(changes.journal_from);
    for entry in &entries {
        if let Err(wrong) = misplaced(entry, world, &changes) {
            world.violation(format!("request {} ({entry}): {wrong}", entry.number));
        }
        world.count(format!("request {}", entry.api));
    }
    if let Some(last) = entries.last() {
        changes.journal_from = last.number + 1;
    }
}

/// Says why a broker should not have got this request.
fn misplaced(entry: &JournalEntry, world: &World, changes: &Changes) -> Result<(), String> {
    let broker = entry.broker;
    let undecodable = |error: DecodeError| format!("cannot be decoded: {error}");
    let truth = world.truth();
    let replica = |topic: &str, partition: i32| match truth.had_replica(topic, partition, broker) {
        true => Ok(()),
        false => Err(format!("broker {broker} never had a replica of {topic}-{partition}")),
    };
    let coordinator = |group: &str| match changes.coordinated(group, broker) {
        true => Ok(()),
        false => Err(format!("broker {broker} never coordinated {group}")),
    };
    match entry.api {
        ApiKey::Metadata => {
            let request: MetadataRequest = entry.decode().map_err(undecodable)?;
            match request.allow_auto_topic_creation {
                true => Err("it lets the broker create topics".to_owned()),
                false => Ok(()),
            }
        }
        ApiKey::ListOffsets => {
            let request: ListOffsetsRequest = entry.decode().map_err(undecodable)?;
            request.topics.iter().try_for_each(|topic| {
                topic.partitions.iter().try_for_each(|asked| replica(&topic.name, asked.partition_index))
            })
        }
        ApiKey::OffsetForLeaderEpoch => {
            let request: OffsetForLeaderEpochRequest = entry.decode().map_err(undecodable)?;
            request.topics.iter().try_for_each(|topic| {
                topic.partitions.iter().try_for_each(|asked| replica(&topic.topic, asked.partition))
            })
        }
        ApiKey::DescribeProducers => {
            let request: DescribeProducersRequest = entry.decode().map_err(undecodable)?;
            request.topics.iter().try_for_each(|topic| {
                topic.partition_indexes.iter().try_for_each(|asked| replica(&topic.name, *asked))
            })
        }
        ApiKey::Fetch => {
            let request: FetchRequest = entry.decode().map_err(undecodable)?;
            request.topics.iter().try_for_each(|topic| {
                let name = match topic.topic_id.is_zero() {
                    true => Some(topic.topic.as_str()),
                    false => truth.name_of(TopicId(topic.topic_id)),
                };
                let name = name.ok_or_else(|| format!("no topic ever had the id {}", topic.topic_id))?;
                topic.partitions.iter().try_for_each(|asked| replica(name, asked.partition))
            })
        }
        ApiKey::DescribeConfigs => {
            const BROKER: i8 = 4;
            let request: DescribeConfigsRequest = entry.decode().map_err(undecodable)?;
            let own = broker.to_string();
            let other =
                |resource: &&strandline_protocol::messages::describe_configs::DescribeConfigsResource| {
                    resource.resource_type == BROKER && resource.resource_name != own
                };
            match request.resources.iter().find(other) {
                Some(resource) => Err(format!("broker {} was meant", resource.resource_name)),
                None => Ok(()),
            }
        }
        ApiKey::DescribeGroups => {
            let request: DescribeGroupsRequest = entry.decode().map_err(undecodable)?;
            request.groups.iter().try_for_each(|group| coordinator(group))
        }
        ApiKey::OffsetFetch => {
            let request: OffsetFetchRequest = entry.decode().map_err(undecodable)?;
            let single = (!request.group_id.is_empty()).then_some(&request.group_id);
            let groups = request.groups.iter().map(|group| &group.group_id);
            groups.chain(single).try_for_each(|group| coordinator(group))
        }
        ApiKey::ApiVersions
        | ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate
        | ApiKey::FindCoordinator
        | ApiKey::DescribeCluster
        | ApiKey::DescribeTopicPartitions
        | ApiKey::DescribeLogDirs
        | ApiKey::ListGroups
        | ApiKey::ListTransactions
        | ApiKey::DescribeTransactions => Ok(()),
        _ => Err("a client that only reads never sends it".to_owned()),
    }
}

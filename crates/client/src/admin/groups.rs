//! Groups and what they committed: ListGroups of every broker, DescribeGroups and OffsetFetch of each group's coordinator.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use strandline_meta::routing::Subject;
use strandline_meta::{Call, ErrorCode, ItemAnswer, Routed, SendError};
use strandline_protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup,
};
use strandline_protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use strandline_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse,
};
use tokio::time::Instant;

use super::{Admin, PartitionQuery, Results, by_topic};

/// The first version of OffsetFetch with many groups.
const MANY_GROUPS: i16 = 8;

/// The last version of OffsetFetch that names topics by name. Later ones leave out what was committed for a topic that the
/// broker does not know any more.
const OFFSETS_BY_NAME: i16 = 9;

/// The type of groups whose members share partitions (KIP-932). A coordinator has no committed offset of theirs.
const SHARE: &str = "share";

/// Groups in one request: with offsets of a thousand partitions each an answer has some 3 MB.
const GROUPS_PER_REQUEST: usize = 100;

/// A group that a coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// The group's id.
    pub group_id: String,
    /// What it is for: `consumer`, `connect`, or empty for a group that only commits offsets.
    pub protocol_type: String,
    /// Its state as Kafka names it, for example `Stable`; `None` from brokers older than Kafka 2.6.
    pub state: Option<String>,
    /// `classic`, `consumer` (KIP-848), `share` or `streams`; `None` from brokers older than Kafka 3.8.
    pub group_type: Option<String>,
}

/// A group of the classic protocol, as its coordinator tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group's id.
    pub group_id: String,
    /// Its state as Kafka names it; `Dead` for a group that does not exist, from brokers older than Kafka 4.0.
    pub state: String,
    /// What it is for: `consumer`, `connect`, or empty.
    pub protocol_type: String,
    /// How its partitions are assigned, for example `range`; empty without members.
    pub protocol: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the coordinator gave it.
    pub member_id: String,
    /// The id that it gave itself (KIP-345).
    pub group_instance_id: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it is, as the coordinator sees it.
    pub client_host: String,
}

/// What a group committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// Topic name.
    pub topic: String,
    /// Partition number.
    pub partition: i32,
    /// The offset, or the code that stands in its place: 29 where the topic may not be described.
    pub committed: Result<CommittedOffset, ErrorCode>,
}

/// An offset that a group committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset that the group will read.
    pub next_offset: i64,
    /// The leader epoch of what it read last, where it said so.
    pub leader_epoch: Option<i32>,
}

/// Groups with what they committed, as far as it could be had.
#[derive(Clone, Debug, Default)]
pub struct GroupsWithOffsets {
    /// The groups by id, each with its offsets, or why they could not be had.
    pub groups: Vec<(GroupListing, Result<Vec<GroupOffset>, SendError>)>,
    /// The brokers that did not list the groups they coordinate: those are missing above.
    pub failed_brokers: BTreeMap<i32, SendError>,
}

impl Admin {
    /// The groups that each broker coordinates, by broker.
    ///
    /// Without DESCRIBE on the cluster a broker lists the groups that this principal may describe, and says nothing of the
    /// others. Who lists a group coordinates it, so groups that were listed need not be looked for.
    ///
    /// # Errors
    /// The list of brokers could not be had. Per broker, always named: it cannot be reached until `deadline`, or answers
    /// with a code.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn list_groups(
        &self,
        deadline: Instant,
    ) -> Result<BTreeMap<i32, Result<Vec<GroupListing>, SendError>>, SendError> {
        let view = self.cluster().refresh_topics::<&str>(&[], deadline).await?;
        let brokers: Vec<i32> = view.brokers().map(|broker| broker.node_id).collect();
        let results = self.cluster().send_each(&ListGroups, &brokers, deadline).await?;
        for (broker, groups) in brokers.iter().zip(&results) {
            let groups = groups.iter().flatten().map(|group| Subject::Group(group.group_id.clone()));
            self.cluster().learn_coordinator(*broker, groups);
        }
        Ok(brokers.into_iter().zip(results).collect())
    }

    /// State and members of groups of the classic protocol, each asked of its coordinator.
    ///
    /// # Errors
    /// Per group: it does not exist or is of another protocol (69), may not be described (30), or its coordinator cannot be
    /// found or reached until `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn describe_groups(&self, groups: &[String], deadline: Instant) -> Results<GroupDescription> {
        self.cluster().send_each(&DescribeGroups, groups, deadline).await
    }

    /// What groups committed for `partitions`, or for every partition that they committed anything for, each asked of the
    /// group's coordinator; groups of one coordinator share a request. A partition without a committed offset is left out.
    ///
    /// Offsets that an open transaction commits do not count before it ends.
    ///
    /// # Errors
    /// Per group: it may not be described (30), or its coordinator cannot be found or reached until `deadline`. A group that
    /// does not exist has committed nothing.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn committed_offsets(
        &self,
        groups: &[String],
        partitions: Option<&[PartitionQuery]>,
        deadline: Instant,
    ) -> Results<Vec<GroupOffset>> {
        self.cluster().send_each(&OffsetFetch::new(partitions), groups, deadline).await
    }

    /// Every group with what it committed for `partitions`: [`list_groups`](Self::list_groups), then
    /// [`committed_offsets`](Self::committed_offsets) of all that were listed. Share groups commit no offsets and stand there
    /// without any.
    ///
    /// # Errors
    /// The list of brokers could not be had. All else is told per broker or per group.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn groups_with_offsets(
        &self,
        partitions: Option<&[PartitionQuery]>,
        deadline: Instant,
    ) -> Result<GroupsWithOffsets, SendError> {
        let mut found = GroupsWithOffsets::default();
        // A group whose coordinator moves at this moment can be listed twice.
        let mut listings: BTreeMap<String, GroupListing> = BTreeMap::new();
        for (broker, listed) in self.list_groups(deadline).await? {
            match listed {
                Ok(listed) => {
                    listings.extend(listed.into_iter().map(|group| (group.group_id.clone(), group)));
                }
                Err(error) => drop(found.failed_brokers.insert(broker, error)),
            }
        }
        let commits = |group: &GroupListing| group.group_type.as_deref() != Some(SHARE);
        let ids: Vec<String> =
            listings.values().filter(|group| commits(group)).map(|group| group.group_id.clone()).collect();
        let mut offsets = match ids.is_empty() {
            true => Vec::new(),
            false => self.committed_offsets(&ids, partitions, deadline).await?,
        }
        .into_iter();
        for group in listings.into_values() {
            let committed = if commits(&group) { offsets.next() } else { None };
            found.groups.push((group, committed.unwrap_or_else(|| Ok(Vec::new()))));
        }
        Ok(found)
    }
}

struct ListGroups;

impl Call for ListGroups {
    type Request = ListGroupsRequest;
    type Item = i32;
    type Answer = Vec<GroupListing>;

    fn subject(&self, node_id: &i32) -> Subject {
        Subject::Broker(*node_id)
    }

    fn request(&self, _items: &[Routed<'_, i32>], _version: i16) -> ListGroupsRequest {
        ListGroupsRequest::default()
    }

    fn answers(
        &self,
        items: &[Routed<'_, i32>],
        response: ListGroupsResponse,
    ) -> Vec<ItemAnswer<Vec<GroupListing>>> {
        let told = |text: String| Some(text).filter(|text| !text.is_empty());
        let answer = match response.error_code {
            ErrorCode::None => {
                let listed = response.groups.into_iter().map(|group| GroupListing {
                    group_id: group.group_id,
                    protocol_type: group.protocol_type,
                    state: told(group.group_state),
                    group_type: told(group.group_type),
                });
                ItemAnswer::Answer(listed.collect())
            }
            code => ItemAnswer::Code(code, None),
        };
        vec![answer; items.len()]
    }
}

struct DescribeGroups;

impl Call for DescribeGroups {
    type Request = DescribeGroupsRequest;
    type Item = String;
    type Answer = GroupDescription;

    fn subject(&self, group: &String) -> Subject {
        Subject::Group(group.clone())
    }

    fn items_per_request(&self, _version: i16) -> usize {
        GROUPS_PER_REQUEST
    }

    fn request(&self, items: &[Routed<'_, String>], _version: i16) -> DescribeGroupsRequest {
        let groups = items.iter().map(|routed| routed.item.clone());
        DescribeGroupsRequest { groups: groups.collect(), ..DescribeGroupsRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, String>],
        response: DescribeGroupsResponse,
    ) -> Vec<ItemAnswer<GroupDescription>> {
        let groups = response.groups.iter();
        let told: HashMap<&str, &DescribedGroup> =
            groups.map(|group| (group.group_id.as_str(), group)).collect();
        let answer = |routed: &Routed<'_, String>| match told.get(routed.item.as_str()) {
            None => ItemAnswer::LeftOut,
            Some(group) if group.error_code != ErrorCode::None => {
                ItemAnswer::Code(group.error_code, group.error_message.clone())
            }
            Some(group) => ItemAnswer::Answer(description(group)),
        };
        items.iter().map(answer).collect()
    }
}

fn description(group: &DescribedGroup) -> GroupDescription {
    let members = group.members.iter().map(|member| GroupMember {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
    });
    GroupDescription {
        group_id: group.group_id.clone(),
        state: group.group_state.clone(),
        protocol_type: group.protocol_type.clone(),
        protocol: group.protocol_data.clone(),
        members: members.collect(),
    }
}

pub(super) struct OffsetFetch {
    /// Topics with their partitions; `None` for all that a group committed.
    topics: Option<Vec<(Arc<str>, Vec<i32>)>>,
}

impl OffsetFetch {
    pub(super) fn new(partitions: Option<&[PartitionQuery]>) -> Self {
        let topics = partitions.map(|partitions| {
            let topics = by_topic(partitions.iter().map(|query| &*query.topic));
            let numbers = |positions: &[usize]| {
                let mut numbers: Vec<i32> = positions.iter().map(|&at| partitions[at].partition).collect();
                numbers.sort_unstable();
                numbers.dedup();
                numbers
            };
            topics.into_iter().map(|(topic, positions)| (topic.into(), numbers(&positions))).collect()
        });
        Self { topics }
    }
}

impl Call for OffsetFetch {
    type Request = OffsetFetchRequest;
    type Item = String;
    type Answer = Vec<GroupOffset>;

    fn subject(&self, group: &String) -> Subject {
        Subject::Group(group.clone())
    }

    fn version_max(&self) -> Option<i16> {
        Some(OFFSETS_BY_NAME)
    }

    fn fits(&self, _item: &String, version: i16) -> Result<(), String> {
        if version < 2 && self.topics.is_none() {
            return Err("all that a group committed needs version 2".to_owned());
        }
        Ok(())
    }

    fn items_per_request(&self, version: i16) -> usize {
        if version >= MANY_GROUPS { GROUPS_PER_REQUEST } else { 1 }
    }

    fn request(&self, items: &[Routed<'_, String>], version: i16) -> OffsetFetchRequest {
        if version < MANY_GROUPS {
            let topics = self.topics.as_ref().map(|topics| {
                let topic = |(name, partitions): &(Arc<str>, Vec<i32>)| OffsetFetchRequestTopic {
                    name: name.to_string(),
                    partition_indexes: partitions.clone(),
                    ..OffsetFetchRequestTopic::default()
                };
                topics.iter().map(topic).collect()
            });
            let group_id = items.first().map(|routed| routed.item.clone()).unwrap_or_default();
            return OffsetFetchRequest { group_id, topics, ..OffsetFetchRequest::default() };
        }
        let group = |routed: &Routed<'_, String>| {
            let topics = self.topics.as_ref().map(|topics| {
                let topic = |(name, partitions): &(Arc<str>, Vec<i32>)| OffsetFetchRequestTopics {
                    name: name.to_string(),
                    partition_indexes: partitions.clone(),
                    ..OffsetFetchRequestTopics::default()
                };
                topics.iter().map(topic).collect()
            });
            OffsetFetchRequestGroup {
                group_id: routed.item.clone(),
                topics,
                ..OffsetFetchRequestGroup::default()
            }
        };
        OffsetFetchRequest { groups: items.iter().map(group).collect(), ..OffsetFetchRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, String>],
        response: OffsetFetchResponse,
    ) -> Vec<ItemAnswer<Vec<GroupOffset>>> {
        // Up to version 7 the whole answer is about the one group.
        if let ([_], []) = (items, &response.groups[..]) {
            let partitions = response.topics.into_iter().flat_map(|topic| {
                let name = topic.name;
                topic.partitions.into_iter().map(move |partition| Committed {
                    topic: name.clone(),
                    partition: partition.partition_index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    code: partition.error_code,
                })
            });
            return vec![offsets(response.error_code, partitions.collect())];
        }
        let groups = response.groups.iter();
        let told: HashMap<&str, _> = groups.map(|group| (group.group_id.as_str(), group)).collect();
        let answer = |routed: &Routed<'_, String>| {
            let Some(group) = told.get(routed.item.as_str()) else { return ItemAnswer::LeftOut };
            let partitions = group.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| Committed {
                    topic: topic.name.clone(),
                    partition: partition.partition_index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    code: partition.error_code,
                })
            });
            offsets(group.error_code, partitions.collect())
        };
        items.iter().map(answer).collect()
    }
}

/// One partition of an answer of any version.
struct Committed {
    topic: String,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    code: ErrorCode,
}

fn offsets(code: ErrorCode, partitions: Vec<Committed>) -> ItemAnswer<Vec<GroupOffset>> {
    // Version 1 has no room for the code of the whole answer, and tells what is about the coordinator with each partition.
    let of_all = partitions.iter().map(|committed| committed.code).find(|code| {
        matches!(
            code,
            ErrorCode::NotCoordinator
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::GroupAuthorizationFailed
        )
    });
    let code = if code == ErrorCode::None { of_all.unwrap_or(code) } else { code };
    if code != ErrorCode::None {
        return ItemAnswer::Code(code, None);
    }
    let committed = partitions.into_iter().filter(|found| found.offset >= 0 || found.code.is_error());
    let offset = |found: Committed| GroupOffset {
        topic: found.topic,
        partition: found.partition,
        committed: match found.code {
            ErrorCode::None => Ok(CommittedOffset {
                next_offset: found.offset,
                leader_epoch: (found.leader_epoch >= 0).then_some(found.leader_epoch),
            }),
            code => Err(code),
        },
    };
    ItemAnswer::Answer(committed.map(offset).collect())
}

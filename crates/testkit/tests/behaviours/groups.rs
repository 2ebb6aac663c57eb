//! Groups that committed offsets without members.

use strandline_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use strandline_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use strandline_protocol::messages::{DescribeGroupsRequest, ListGroupsRequest};
use strandline_protocol::{ApiKey, Uuid};

use crate::trace::{LEDGER, Trace, say};

const GROUP: &str = "readers";
const TOPIC: &str = "ledger";

/// What a group commits is what it is told.
pub(crate) async fn compare_groups(address: &str) {
    let mut trace = Trace::connect(address).await;
    let ledger = trace.create(TOPIC, LEDGER).await;
    trace.groups(ledger).await;
    trace.delete(TOPIC).await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
OffsetCommit v8 to nothing that there is: UNKNOWN_TOPIC_OR_PARTITION
OffsetCommit v8 to no such partition: UNKNOWN_TOPIC_OR_PARTITION
OffsetCommit v8 with much to say: OFFSET_METADATA_TOO_LARGE
OffsetCommit v8 of a generation: UNKNOWN_MEMBER_ID
OffsetCommit v8 of a member: NONE
OffsetCommit v8 of no group: NONE
OffsetCommit v2 in an old version: NONE
OffsetCommit v9 by name: NONE
OffsetCommit v10 in the newest version: NONE
OffsetCommit v10 by an unknown id: UNKNOWN_TOPIC_ID
OffsetFetch v1 Some([("ledger", [0, 1, 9]), ("nothing", [0])]): NONE
  ("ledger", 0, NONE, 5, -1, Some("m"))
  ("ledger", 1, NONE, 5, -1, Some("n"))
  ("ledger", 9, NONE, -1, -1, Some(""))
  ("nothing", 0, NONE, -1, -1, Some(""))
OffsetFetch v2 None: NONE
  ("ledger", 0, NONE, 5, -1, Some("m"))
  ("ledger", 1, NONE, 5, -1, Some("n"))
OffsetFetch v7 Some([("ledger", [1])]): NONE
  ("ledger", 1, NONE, 5, 0, Some("n"))
OffsetFetch v8 readers: NONE
  ("ledger", false, 0, NONE, 5, -1, Some("m"))
  ("ledger", false, 1, NONE, 5, 0, Some("n"))
OffsetFetch v8 readers: NONE
  ("ledger", false, 0, NONE, 5, -1, Some("m"))
  ("ledger", false, 9, NONE, -1, -1, Some(""))
  ("nothing", false, 0, NONE, -1, -1, Some(""))
  ("nothing", false, 9, NONE, -1, -1, Some(""))
OffsetFetch v8 strangers: NONE
  ("ledger", false, 0, NONE, -1, -1, Some(""))
  ("ledger", false, 9, NONE, -1, -1, Some(""))
OffsetFetch v9 readers: NONE
  ("ledger", false, 0, NONE, 5, -1, Some("m"))
  ("ledger", false, 1, NONE, 5, 0, Some("n"))
OffsetFetch v9 readers: NONE
  ("ledger", false, 0, NONE, 5, -1, Some("m"))
  ("ledger", false, 9, NONE, -1, -1, Some(""))
  ("nothing", false, 0, NONE, -1, -1, Some(""))
  ("nothing", false, 9, NONE, -1, -1, Some(""))
OffsetFetch v9 strangers: NONE
  ("ledger", false, 0, NONE, -1, -1, Some(""))
  ("ledger", false, 9, NONE, -1, -1, Some(""))
OffsetFetch v10 readers: NONE
  ("", true, 0, NONE, 5, -1, Some("m"))
  ("", true, 1, NONE, 5, 0, Some("n"))
OffsetFetch v10 readers: NONE
  ("", false, 0, UNKNOWN_TOPIC_ID, -1, -1, Some(""))
  ("", false, 9, UNKNOWN_TOPIC_ID, -1, -1, Some(""))
  ("", true, 0, NONE, 5, -1, Some("m"))
  ("", true, 9, NONE, -1, -1, Some(""))
OffsetFetch v10 strangers: NONE
  ("", true, 0, NONE, -1, -1, Some(""))
  ("", true, 9, NONE, -1, -1, Some(""))
DescribeGroups v0 readers: NONE "Empty" "" 0
DescribeGroups v5 readers: NONE "Empty" "" 0
DescribeGroups v5 strangers: NONE "Dead" "" 0
ListGroups v0 [] []: NONE [("", "", "", ""), ("readers", "", "", "")]
ListGroups v4 ["Empty"] []: NONE [("", "", "Empty", ""), ("readers", "", "Empty", "")]
ListGroups v4 ["Stable"] []: NONE []
ListGroups v5 ["empty"] []: NONE [("", "", "Empty", "classic"), ("readers", "", "Empty", "classic")]
ListGroups v5 ["Odd"] []: NONE []
ListGroups v5 [] ["classic"]: NONE [("", "", "Empty", "classic"), ("readers", "", "Empty", "classic")]
ListGroups v5 [] ["Consumer"]: NONE []
ListGroups v5 [] ["odd"]: NONE []
"#) };
}

impl Trace {
    async fn groups(&mut self, ledger: Uuid) {
        self.until_coordinated(0, GROUP).await;
        let newest = self.at_most(ApiKey::OffsetCommit, 10);
        let long = "m".repeat(4_097);
        for (name, version, group, generation, member, topic, topic_id, partition, metadata) in [
            ("to nothing that there is", 8, GROUP, -1, "", "nothing", Uuid::ZERO, 0, Some("")),
            ("to no such partition", 8, GROUP, -1, "", TOPIC, ledger, 9, Some("")),
            ("with much to say", 8, GROUP, -1, "", TOPIC, ledger, 0, Some(long.as_str())),
            ("of a generation", 8, GROUP, 3, "", TOPIC, ledger, 0, Some("")),
            ("of a member", 8, GROUP, -1, "someone", TOPIC, ledger, 0, Some("")),
            ("of no group", 8, "", -1, "", TOPIC, ledger, 0, Some("")),
            ("in an old version", 2, GROUP, -1, "", TOPIC, ledger, 0, Some("m")),
            ("by name", 9, GROUP, -1, "", TOPIC, ledger, 1, None),
            ("in the newest version", newest, GROUP, -1, "", TOPIC, ledger, 1, Some("n")),
            ("by an unknown id", newest, GROUP, -1, "", "nothing", Uuid([7; 16]), 1, Some("n")),
        ] {
            let partition = OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: 5,
                committed_leader_epoch: if version >= 6 { 0 } else { -1 },
                committed_metadata: metadata.map(str::to_owned),
                ..OffsetCommitRequestPartition::default()
            };
            let topic = OffsetCommitRequestTopic {
                name: if version < 10 { topic.to_owned() } else { String::new() },
                topic_id: if version >= 10 { topic_id } else { Uuid::ZERO },
                partitions: vec![partition],
                ..OffsetCommitRequestTopic::default()
            };
            let request = OffsetCommitRequest {
                group_id: group.to_owned(),
                generation_id_or_member_epoch: generation,
                member_id: member.to_owned(),
                topics: vec![topic],
                ..OffsetCommitRequest::default()
            };
            let response = self.peer.call(version, &request).await;
            let code = response.topics[0].partitions[0].error_code;
            say!(self, "OffsetCommit v{version} {name}: {code:?}");
        }
        self.fetch_one_group(1, Some(&[("ledger", &[0, 1, 9]), ("nothing", &[0])])).await;
        self.fetch_one_group(2, None).await;
        self.fetch_one_group(7, Some(&[("ledger", &[1])])).await;
        for version in [8, 9, 10] {
            if self.at_most(ApiKey::OffsetFetch, version) == version {
                self.fetch_groups(version, ledger).await;
            }
        }
        for (version, group) in [(0, GROUP), (5, GROUP), (5, "strangers")] {
            let request = DescribeGroupsRequest {
                groups: vec![group.to_owned()],
                include_authorized_operations: false,
                ..DescribeGroupsRequest::default()
            };
            let group = self.peer.call(version, &request).await.groups.remove(0);
            let (code, state, kind) = (group.error_code, group.group_state, group.protocol_type);
            let members = group.members.len();
            say!(self, "DescribeGroups v{version} {}: {code:?} {state:?} {kind:?} {members}", group.group_id);
        }
        for (version, states, types) in [
            (0, &[][..], &[][..]),
            (4, &["Empty"], &[]),
            (4, &["Stable"], &[]),
            (5, &["empty"], &[]),
            (5, &["Odd"], &[]),
            (5, &[], &["classic"]),
            (5, &[], &["Consumer"]),
            (5, &[], &["odd"]),
        ] {
            let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
            let request = ListGroupsRequest {
                states_filter: owned(states),
                types_filter: owned(types),
                ..ListGroupsRequest::default()
            };
            let response = self.peer.call(version, &request).await;
            let listed: Vec<_> = response
                .groups
                .iter()
                .map(|group| (&group.group_id, &group.protocol_type, &group.group_state, &group.group_type))
                .collect();
            say!(self, "ListGroups v{version} {states:?} {types:?}: {:?} {listed:?}", response.error_code);
        }
    }

    async fn fetch_one_group(&mut self, version: i16, topics: Option<&[(&str, &[i32])]>) {
        let topic = |(name, partitions): &(&str, &[i32])| OffsetFetchRequestTopic {
            name: name.to_string(),
            partition_indexes: partitions.to_vec(),
            ..OffsetFetchRequestTopic::default()
        };
        let request = OffsetFetchRequest {
            group_id: GROUP.to_owned(),
            topics: topics.map(|topics| topics.iter().map(topic).collect()),
            ..OffsetFetchRequest::default()
        };
        let response = self.peer.call(version, &request).await;
        say!(self, "OffsetFetch v{version} {topics:?}: {:?}", response.error_code);
        let mut told = Vec::new();
        for topic in response.topics {
            for it in topic.partitions {
                let (code, offset, epoch) = (it.error_code, it.committed_offset, it.committed_leader_epoch);
                told.push((topic.name.clone(), it.partition_index, code, offset, epoch, it.metadata));
            }
        }
        told.sort();
        told.iter().for_each(|told| say!(self, "  {told:?}"));
    }

    async fn fetch_groups(&mut self, version: i16, ledger: Uuid) {
        let topic = |name: &str, id: Uuid| OffsetFetchRequestTopics {
            name: if version < 10 { name.to_owned() } else { String::new() },
            topic_id: if version >= 10 { id } else { Uuid::ZERO },
            partition_indexes: vec![0, 9],
            ..OffsetFetchRequestTopics::default()
        };
        let group = |id: &str, topics| OffsetFetchRequestGroup {
            group_id: id.to_owned(),
            topics,
            member_epoch: -1,
            ..OffsetFetchRequestGroup::default()
        };
        let request = OffsetFetchRequest {
            groups: vec![
                group(GROUP, None),
                group("strangers", Some(vec![topic(TOPIC, ledger)])),
                group(GROUP, Some(vec![topic(TOPIC, ledger), topic("nothing", Uuid([7; 16]))])),
            ],
            ..OffsetFetchRequest::default()
        };
        let mut response = self.peer.call(version, &request).await;
        response.groups.sort_by_key(|group| (group.group_id.clone(), group.topics.len()));
        for group in response.groups {
            say!(self, "OffsetFetch v{version} {}: {:?}", group.group_id, group.error_code);
            let mut told = Vec::new();
            for topic in group.topics {
                let known = topic.topic_id == ledger;
                for it in topic.partitions {
                    let (code, offset, epoch) =
                        (it.error_code, it.committed_offset, it.committed_leader_epoch);
                    let partition = it.partition_index;
                    told.push((topic.name.clone(), known, partition, code, offset, epoch, it.metadata));
                }
            }
            told.sort();
            told.iter().for_each(|told| say!(self, "  {told:?}"));
        }
    }
}

//! Requests as they are built and responses as they are taken apart; no broker is needed for either.

use std::fmt::Debug;

use strandline_meta::{Call, ItemAnswer, Routed};
use strandline_protocol::Message as _;
use strandline_protocol::messages::describe_configs::{DescribeConfigsResponse, DescribeConfigsResult};
use strandline_protocol::messages::describe_log_dirs::DescribeLogDirsResponse;
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use strandline_protocol::messages::list_transactions::ListTransactionsResponse;
use strandline_protocol::messages::offset_fetch::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use strandline_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

use super::configs::DescribeConfigs;
use super::groups::OffsetFetch;
use super::leader_epochs::LeaderEpochs;
use super::log_dirs::DescribeLogDirs;
use super::offsets::ListOffsets;
use super::transactions::ListTransactions;
use super::*;

fn routed<I>(items: &[I]) -> Vec<Routed<'_, I>> {
    items.iter().map(|item| Routed { item, leader_epoch: Some(7) }).collect()
}

fn lines<A: Debug>(answers: Vec<ItemAnswer<A>>) -> String {
    answers.into_iter().map(|answer| format!("{answer:?}")).collect::<Vec<_>>().join("\n")
}

fn query(topic: &str, partition: i32, spec: OffsetSpec) -> OffsetQuery {
    OffsetQuery { topic: topic.into(), partition, spec }
}

const LIST_OFFSETS: ListOffsets = ListOffsets { isolation: Isolation::ReadCommitted, timeout_ms: 1_000 };

#[test]
fn a_partition_asked_twice_goes_into_two_requests_and_results_come_back_in_order() {
    let lists = without_repeats(["a", "b", "a", "c", "a"].into_iter());
    assert_eq!(lists, [vec![0, 1, 3], vec![2], vec![4]]);
    let results = lists.iter().map(|list| list.iter().map(|at| at * 10).collect()).collect();
    assert_eq!(in_order(5, &lists, results), [0, 10, 20, 30, 40]);
}

#[test]
fn offsets_are_asked_with_the_numbers_of_kafka_and_the_leader_epoch_of_the_view() {
    let items = [
        query("b", 0, OffsetSpec::Latest),
        query("a", 1, OffsetSpec::Earliest),
        query("b", 2, OffsetSpec::EarliestLocal),
        query("b", 1, OffsetSpec::AtTime(1_700_000_000_000)),
    ];
    let request = LIST_OFFSETS.request(&routed(&items), 11);
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            format!(
                "{}@{} epoch {}",
                partition.partition_index, partition.timestamp, partition.current_leader_epoch
            )
        });
        format!("{}: {}", topic.name, partitions.collect::<Vec<_>>().join(", "))
    });
    insta::assert_snapshot!(topics.collect::<Vec<_>>().join("\n"), @r"
    a: 1@-2 epoch 7
    b: 0@-1 epoch 7, 2@-4 epoch 7, 1@1700000000000 epoch 7
    ");
    assert_eq!((request.replica_id, request.isolation_level), (-1, 1));
    for version in 1..=11 {
        let fits = items.iter().all(|item| LIST_OFFSETS.fits(item, version).is_ok());
        let encodes = request.encode(version, &mut bytes::BytesMut::new()).is_ok();
        assert_eq!((fits, encodes), (version >= 8, version >= 2), "version {version}");
    }
    assert_eq!(LIST_OFFSETS.fits(&items[2], 7).unwrap_err(), "EarliestLocal needs version 8");
}

#[test]
fn an_offset_that_is_not_there_is_none_and_a_partition_left_out_is_said_to_be() {
    let told = |partition_index, code, offset| ListOffsetsPartitionResponse {
        partition_index,
        error_code: ErrorCode::from_code(code),
        offset,
        leader_epoch: -1,
        timestamp: -1,
        ..Default::default()
    };
    let partitions = vec![told(1, 6, -1), told(0, 0, 42), told(2, 0, -1)];
    let topics = vec![ListOffsetsTopicResponse { name: "a".into(), partitions, ..Default::default() }];
    let items = [0, 1, 2, 3].map(|partition| query("a", partition, OffsetSpec::Latest));
    let answers = LIST_OFFSETS.answers(&routed(&items), ListOffsetsResponse { topics, ..Default::default() });
    insta::assert_snapshot!(lines(answers), @r"
    Answer(ListedOffset { offset: Some(42), timestamp_ms: None, leader_epoch: None })
    Code(NOT_LEADER_OR_FOLLOWER, None)
    Answer(ListedOffset { offset: None, timestamp_ms: None, leader_epoch: None })
    LeftOut
    ");
}

#[test]
fn an_epoch_below_the_lineage_has_no_end() {
    let told = |partition, leader_epoch, end_offset| EpochEndOffset {
        partition,
        leader_epoch,
        end_offset,
        ..Default::default()
    };
    let partitions = vec![told(0, 3, 900), told(1, -1, -1)];
    let topics = vec![OffsetForLeaderTopicResult { topic: "a".into(), partitions, ..Default::default() }];
    let items = [0, 1, 2].map(|partition| EpochQuery { topic: "a".into(), partition, leader_epoch: 4 });
    let request = LeaderEpochs.request(&routed(&items), 4);
    let first = &request.topics[0].partitions[0];
    assert_eq!((request.replica_id, first.leader_epoch, first.current_leader_epoch), (-1, 4, 7));
    let response = OffsetForLeaderEpochResponse { topics, ..Default::default() };
    insta::assert_snapshot!(lines(LeaderEpochs.answers(&routed(&items), response)), @r"
    Answer(Some(EpochEnd { leader_epoch: 3, end_offset: 900 }))
    Answer(None)
    LeftOut
    ");
}

#[test]
fn configs_that_may_not_be_read_are_an_error_with_the_brokers_words() {
    let items = [ConfigQuery::topic("a").only(["retention.ms"]), ConfigQuery::broker(3)];
    let request = DescribeConfigs.request(&routed(&items), 4);
    assert_eq!(request.resources[0].configuration_keys.as_deref(), Some(&["retention.ms".to_owned()][..]));
    assert_eq!((request.resources[1].resource_type, request.resources[1].resource_name.as_str()), (4, "3"));
    let refused = DescribeConfigsResult {
        error_code: ErrorCode::TopicAuthorizationFailed,
        error_message: Some("no".into()),
        resource_type: 2,
        resource_name: "a".into(),
        ..Default::default()
    };
    let response = DescribeConfigsResponse { results: vec![refused], ..Default::default() };
    insta::assert_snapshot!(lines(DescribeConfigs.answers(&routed(&items), response)), @r#"
    Code(TOPIC_AUTHORIZATION_FAILED, Some("no"))
    LeftOut
    "#);
}

#[test]
fn a_missing_right_to_see_log_dirs_is_not_an_empty_disk() {
    let call = DescribeLogDirs { topics: None };
    let refused =
        DescribeLogDirsResponse { error_code: ErrorCode::ClusterAuthorizationFailed, ..Default::default() };
    assert_eq!(lines(call.answers(&routed(&[1]), refused)), "Code(CLUSTER_AUTHORIZATION_FAILED, None)");
    assert_eq!(lines(call.answers(&routed(&[1]), DescribeLogDirsResponse::default())), "Answer([])");
    assert!(call.fits(&1, 2).is_err() && call.fits(&1, 3).is_ok());
}

#[test]
fn a_state_that_the_broker_does_not_know_is_not_an_empty_list_of_transactions() {
    let call = ListTransactions { states: vec!["Bogus".into()] };
    let unknown_state_filters = vec!["Bogus".to_owned()];
    let response = ListTransactionsResponse { unknown_state_filters, ..Default::default() };
    insta::assert_snapshot!(
        lines(call.answers(&routed(&[1]), response)),
        @r#"Code(INVALID_REQUEST, Some("the broker knows no transaction state Bogus"))"#
    );
}

/// One partition of each kind, told by any version: committed, not committed, and with a code.
fn committed_of(code: ErrorCode) -> [(i32, i64, i32, ErrorCode); 3] {
    [(0, 42, 3, ErrorCode::None), (1, -1, -1, ErrorCode::None), (2, -1, -1, code)]
}

#[test]
fn offsets_of_many_groups_are_told_apart_and_what_was_not_committed_is_left_out() {
    let partitions = |group: i64| {
        let partition =
            move |(partition_index, offset, committed_leader_epoch, error_code): (i32, i64, i32, _)| {
                let committed_offset = if offset < 0 { offset } else { offset + group };
                OffsetFetchResponsePartitions {
                    partition_index,
                    committed_offset,
                    committed_leader_epoch,
                    error_code,
                    ..Default::default()
                }
            };
        committed_of(ErrorCode::TopicAuthorizationFailed).map(partition).to_vec()
    };
    let group = |group_id: &str, number, error_code| OffsetFetchResponseGroup {
        group_id: group_id.to_owned(),
        topics: vec![OffsetFetchResponseTopics {
            name: "a".into(),
            partitions: partitions(number),
            ..Default::default()
        }],
        error_code,
        ..Default::default()
    };
    let groups = vec![
        group("second", 100, ErrorCode::None),
        group("refused", 0, ErrorCode::GroupAuthorizationFailed),
        group("first", 0, ErrorCode::None),
    ];
    let asked = ["first", "second", "refused", "missing"].map(str::to_owned);
    let call = OffsetFetch::new(None);
    let request = call.request(&routed(&asked), 9);
    assert!(request.groups.len() == 4 && request.groups.iter().all(|group| group.topics.is_none()));
    let answers = call.answers(&routed(&asked), OffsetFetchResponse { groups, ..Default::default() });
    insta::assert_snapshot!(lines(answers), @r#"
    Answer([GroupOffset { topic: "a", partition: 0, committed: Ok(CommittedOffset { next_offset: 42, leader_epoch: Some(3) }) }, GroupOffset { topic: "a", partition: 2, committed: Err(TOPIC_AUTHORIZATION_FAILED) }])
    Answer([GroupOffset { topic: "a", partition: 0, committed: Ok(CommittedOffset { next_offset: 142, leader_epoch: Some(3) }) }, GroupOffset { topic: "a", partition: 2, committed: Err(TOPIC_AUTHORIZATION_FAILED) }])
    Code(GROUP_AUTHORIZATION_FAILED, None)
    LeftOut
    "#);
}

#[test]
fn offsets_of_one_group_are_read_from_old_answers_and_codes_about_its_coordinator_are_those_of_the_whole() {
    let old = |code| {
        let partition =
            |(partition_index, committed_offset, committed_leader_epoch, error_code): (i32, i64, i32, _)| {
                OffsetFetchResponsePartition {
                    partition_index,
                    committed_offset,
                    committed_leader_epoch,
                    error_code,
                    ..Default::default()
                }
            };
        let partitions = committed_of(code).map(partition).to_vec();
        let topics = vec![OffsetFetchResponseTopic { name: "a".into(), partitions, ..Default::default() }];
        OffsetFetchResponse { topics, ..Default::default() }
    };
    let partition = |partition| PartitionQuery { topic: "a".into(), partition };
    let call = OffsetFetch::new(Some(&[partition(1), partition(0), partition(1), partition(2)]));
    let asked = ["one".to_owned()];
    let request = call.request(&routed(&asked), 7);
    let topics = request.topics.unwrap();
    assert_eq!((request.group_id.as_str(), &topics[0].partition_indexes[..]), ("one", &[0, 1, 2][..]));
    for code in
        [ErrorCode::UnknownTopicOrPartition, ErrorCode::NotCoordinator, ErrorCode::GroupAuthorizationFailed]
    {
        let answers = call.answers(&routed(&asked), old(code));
        let refused = matches!(answers[..], [ItemAnswer::Code(of_all, None)] if of_all == code);
        assert_eq!(refused, code != ErrorCode::UnknownTopicOrPartition, "{code}: {answers:?}");
    }
    assert!(OffsetFetch::new(None).fits(&asked[0], 1).is_err() && call.fits(&asked[0], 1).is_ok());
    assert_eq!((call.items_per_request(7), call.items_per_request(8) > 1), (1, true));
}

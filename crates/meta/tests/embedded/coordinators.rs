//! Groups and transactions: their coordinators found, kept, lost, and never made by looking for them.

use futures::future::join_all;
use strandline_meta::{ApiKey, Cluster, ErrorCode, Recovery, SendError};
use strandline_protocol::VersionRange;
use strandline_protocol::records::Producer;
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Rule};

use crate::support::{
    Groups, Transactions, asked, brokers_asked, config, connect, shown, soon, start, within,
};

/// Three groups of a cluster of three, each with another coordinator.
async fn groups(embedded: &EmbeddedCluster) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    let mut coordinators = Vec::new();
    for number in 0.. {
        let group = format!("group-{number}");
        embedded.set_group(&group, "Stable", &[]);
        let coordinator = embedded.group_coordinator(&group);
        if !coordinators.contains(&coordinator) {
            coordinators.push(coordinator);
            groups.push(group);
        }
        if groups.len() == 3 {
            break;
        }
    }
    groups
}

async fn describe(cluster: &Cluster, groups: &[String]) -> Vec<String> {
    shown(cluster.send_each(&Groups, groups, soon()).await.unwrap())
}

/// Makes another broker coordinate the group, and gives it.
fn move_coordinator(embedded: &EmbeddedCluster, group: &str) -> i32 {
    let old = embedded.group_coordinator(group).unwrap();
    let new = old % 3 + 1;
    for partition in 0..50 {
        if embedded.leader("__consumer_offsets", partition).0 == old {
            embedded.move_leader("__consumer_offsets", partition, new);
        }
    }
    assert_eq!(embedded.group_coordinator(group), Some(new));
    new
}

#[tokio::test(start_paused = true)]
async fn a_call_about_groups_is_split_by_coordinator_after_one_look_up_for_all() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    let cluster = connect(&embedded).await;
    let items = [groups[2].clone(), groups[0].clone(), groups[1].clone(), groups[2].clone()];
    assert_eq!(describe(&cluster, &items).await, ["Stable"; 4]);
    assert_eq!(asked(&embedded, ApiKey::FindCoordinator).len(), 1);
    assert_eq!(brokers_asked(&embedded, ApiKey::DescribeGroups), [1, 2, 3]);
    assert_eq!(asked(&embedded, ApiKey::DescribeGroups).len(), 3);
    describe(&cluster, &items).await;
    assert_eq!(asked(&embedded, ApiKey::FindCoordinator).len(), 1, "what is known is not looked up again");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_looks_up_one_coordinator_at_a_time_is_asked_for_each() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    for broker in 1..=3 {
        let old = VersionRange { first: 0, last: 3 };
        embedded.limit_versions(broker, ApiKey::FindCoordinator, Some(old));
    }
    let cluster = connect(&embedded).await;
    assert_eq!(describe(&cluster, &groups).await, ["Stable"; 3]);
    let mut keys: Vec<String> = asked(&embedded, ApiKey::FindCoordinator)
        .iter()
        .map(|line| line.split_once("FindCoordinator ").unwrap().1.to_owned())
        .collect();
    keys.sort();
    assert_eq!(keys, groups);
}

#[tokio::test(start_paused = true)]
async fn transactional_ids_have_coordinators_of_their_own() {
    let embedded = start(3);
    let producer = Producer { id: 7, epoch: 0, base_sequence: 0 };
    let ids: Vec<String> = (0..8).map(|number| format!("id-{number}")).collect();
    for id in &ids {
        embedded.set_transaction(id, producer, "Ongoing", 0, &[]);
    }
    let cluster = connect(&embedded).await;
    let mut items = ids.clone();
    items.push("nobody".to_owned());
    let results = shown(cluster.send_each(&Transactions, &items, soon()).await.unwrap());
    assert_eq!(results[..8], ["Ongoing"; 8]);
    assert!(results[8].ends_with("TRANSACTIONAL_ID_NOT_FOUND"), "{}", results[8]);
    assert_eq!(asked(&embedded, ApiKey::FindCoordinator).len(), 1);
    assert!(brokers_asked(&embedded, ApiKey::DescribeTransactions).len() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moved_is_found_again_and_only_its_groups_are_asked_again() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    let cluster = connect(&embedded).await;
    describe(&cluster, &groups).await;
    let before = asked(&embedded, ApiKey::DescribeGroups).len();
    let new = move_coordinator(&embedded, &groups[1]);
    assert_eq!(describe(&cluster, &groups).await, ["Stable"; 3]);
    let asked = asked(&embedded, ApiKey::DescribeGroups).split_off(before);
    assert_eq!(asked.len(), 4, "three, and the one that moved once more: {asked:?}");
    assert_eq!(asked[3], format!("{new} DescribeGroups {}", groups[1]));
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_loads_is_asked_again_and_not_looked_for() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    let cluster = connect(&embedded).await;
    let loading = Fault::Error(ErrorCode::CoordinatorLoadInProgress);
    embedded.script(Rule::new(loading).api(ApiKey::DescribeGroups).times(3));
    assert_eq!(describe(&cluster, &groups[..1]).await, ["Stable"]);
    assert_eq!(asked(&embedded, ApiKey::DescribeGroups).len(), 4);
    assert_eq!(brokers_asked(&embedded, ApiKey::DescribeGroups).len(), 1);
    assert_eq!(asked(&embedded, ApiKey::FindCoordinator).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_is_not_there_yet_is_looked_for_until_the_deadline_and_not_so_many_times() {
    let embedded = start(1);
    embedded.set_group("group", "Stable", &[]);
    let cluster = connect(&embedded).await;
    let missing = Fault::Error(ErrorCode::CoordinatorNotAvailable);
    embedded.script(Rule::new(missing.clone()).api(ApiKey::FindCoordinator).times(6));
    assert_eq!(describe(&cluster, &["group".to_owned()]).await, ["Stable"]);
    assert_eq!(asked(&embedded, ApiKey::FindCoordinator).len(), 7);

    embedded.script(Rule::new(missing).api(ApiKey::FindCoordinator).always());
    let item = ["another".to_owned()];
    let late = cluster.send_each(&Groups, &item, within(300)).await.unwrap().pop().unwrap().unwrap_err();
    assert!(matches!(late, SendError::Deadline { .. }), "{late:?}");
    assert_eq!(late.code(), Some(ErrorCode::CoordinatorNotAvailable));
    assert_eq!(late.recovery(), Recovery::FindCoordinator);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_falls_with_its_broker_and_is_looked_for_again() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    let cluster = connect(&embedded).await;
    describe(&cluster, &groups).await;
    // The one that the client was not found through, so that nothing else goes down with it.
    let group = groups.iter().find(|group| embedded.group_coordinator(group) == Some(2)).unwrap().clone();
    embedded.stop_broker(2).await.unwrap();
    assert_eq!(describe(&cluster, std::slice::from_ref(&group)).await, ["Stable"]);
    assert!(asked(&embedded, ApiKey::FindCoordinator).len() > 1);
    let last = asked(&embedded, ApiKey::DescribeGroups).pop().unwrap();
    assert_eq!(last, format!("{} DescribeGroups {group}", embedded.group_coordinator(&group).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_left_the_cluster_is_not_asked_although_its_socket_lives() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    let cluster = connect(&embedded).await;
    describe(&cluster, &groups).await;
    let group = groups.iter().find(|group| embedded.group_coordinator(group) == Some(2)).unwrap().clone();
    // Broker 2 is told by nobody any more, and goes on answering.
    for broker in 1..=3 {
        embedded.freeze_view(broker, |view| view.brokers.retain(|broker| broker.id != 2));
    }
    cluster.refresh_topics::<&str>(&[], soon()).await.unwrap();
    move_coordinator(&embedded, &group);
    let before = asked(&embedded, ApiKey::DescribeGroups).len();
    assert_eq!(describe(&cluster, &[group]).await, ["Stable"]);
    assert_eq!(asked(&embedded, ApiKey::DescribeGroups).len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_callers_share_the_look_up_of_a_coordinator() {
    let embedded = start(3);
    let groups = groups(&embedded).await;
    let cluster = connect(&embedded).await;
    let calls = join_all((0..200).map(|_| describe(&cluster, &groups[..1]))).await;
    assert!(calls.iter().all(|states| states == &["Stable"]));
    let look_ups = asked(&embedded, ApiKey::FindCoordinator).len();
    assert!(look_ups <= 3, "{look_ups} look-ups");
}

#[tokio::test(start_paused = true)]
async fn without_the_coordinators_topic_a_read_only_client_does_not_look_and_so_does_not_create_it() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    let results = describe(&cluster, &["group".to_owned()]).await;
    insta::assert_snapshot!(results[0], @"topic __consumer_offsets does not exist, so nobody is coordinator, and looking for one would create it");
    assert!(asked(&embedded, ApiKey::FindCoordinator).is_empty());
    assert!(!embedded.view().topics.contains_key("__consumer_offsets"));
    let ids = ["id".to_owned()];
    let results = shown(cluster.send_each(&Transactions, &ids, soon()).await.unwrap());
    assert!(results[0].starts_with("topic __transaction_state does not exist"), "{}", results[0]);
    assert!(!embedded.view().topics.contains_key("__transaction_state"));
    // Once the topic is there, it is seen and the coordinator found.
    embedded.set_group("group", "Empty", &[]);
    assert_eq!(describe(&cluster, &["group".to_owned()]).await, ["Empty"]);
}

#[tokio::test(start_paused = true)]
async fn a_read_write_client_looks_whether_or_not_the_topic_is_there() {
    let embedded = start(2);
    let cluster = Cluster::connect(config(&embedded).read_write(), soon()).await.unwrap();
    let results = describe(&cluster, &["group".to_owned()]).await;
    assert!(results[0].ends_with("GROUP_ID_NOT_FOUND"), "{results:?}");
    assert!(embedded.view().topics.contains_key("__consumer_offsets"));
}

#[tokio::test(start_paused = true)]
async fn the_coordinator_may_be_a_broker_that_has_just_joined() {
    let embedded = start(2);
    embedded.set_group("group", "Stable", &[]);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    let new = embedded.add_broker().await.unwrap();
    for partition in 0..50 {
        embedded.move_leader("__consumer_offsets", partition, new);
    }
    assert_eq!(describe(&cluster, &["group".to_owned()]).await, ["Stable"]);
    assert_eq!(asked(&embedded, ApiKey::DescribeGroups), [format!("{new} DescribeGroups group")]);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_nobody_waits_for_any_more_does_not_hinder_the_next() {
    let embedded = start(1);
    embedded.set_group("group", "Stable", &[]);
    let cluster = connect(&embedded).await;
    cluster.refresh_topics(&["__consumer_offsets"], soon()).await.unwrap();
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::FindCoordinator));
    let item = ["group".to_owned()];
    let late = cluster.send_each(&Groups, &item, within(100)).await.unwrap().pop().unwrap();
    assert!(late.is_err());
    embedded.close_connections(1).await;
    assert_eq!(describe(&cluster, &item).await, ["Stable"]);
}

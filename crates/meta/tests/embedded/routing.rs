//! Requests go to the brokers that they belong to, and what a broker alone knows is asked of it.

use strandline_meta::routing::{RouteError, Subject};
use strandline_meta::{ApiKey, SendError};
use strandline_protocol::messages::{ListGroupsRequest, ListTransactionsRequest};
use strandline_testkit::embedded::Network;

use crate::support::{LogDirs, asked, connect, offsets, shown, soon, start, within};

#[tokio::test(start_paused = true)]
async fn a_call_is_split_by_leader_and_its_results_come_back_in_order() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    let items = [("orders", 2), ("orders", 0), ("orders", 1), ("orders", 0)];
    assert_eq!(offsets(&cluster, &items, soon()).await, ["20", "0", "10", "0"]);
    let mut asked = asked(&embedded, ApiKey::ListOffsets);
    asked.sort();
    assert_eq!(
        asked,
        ["1 ListOffsets orders:0,orders:0", "2 ListOffsets orders:1", "3 ListOffsets orders:2"]
    );
}

#[tokio::test(start_paused = true)]
async fn every_broker_is_asked_for_what_it_alone_knows_and_a_dead_one_is_named() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    embedded.set_network(2, Network::Refuse).await.unwrap();
    let results = shown(cluster.send_each(&LogDirs, &[1, 2, 3, 9], within(1_500)).await.unwrap());
    assert_eq!((results[0].as_str(), results[2].as_str()), ("/embedded/broker-1", "/embedded/broker-3"));
    insta::assert_snapshot!(results[1], @"no answer within TIME: cannot connect to broker 2 at 127.0.0.1:PORT, the address it advertises (the cluster was found through 127.0.0.1:PORT): cannot reach 127.0.0.1:PORT: 127.0.0.1:PORT: connection refused");
    assert_eq!(results[3], "the cluster has no broker 9");
}

#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_followed_and_only_its_partition_is_asked_again() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    let all = [("orders", 0), ("orders", 1), ("orders", 2)];
    offsets(&cluster, &all, soon()).await;
    let before = asked(&embedded, ApiKey::ListOffsets).len();
    embedded.move_leader("orders", 0, 3);
    assert_eq!(offsets(&cluster, &all, soon()).await, ["0", "10", "20"]);
    let mut since = asked(&embedded, ApiKey::ListOffsets).split_off(before);
    since.sort();
    assert_eq!(
        since,
        [
            "1 ListOffsets orders:0",
            "2 ListOffsets orders:1",
            "3 ListOffsets orders:0",
            "3 ListOffsets orders:2"
        ]
    );
    assert_eq!(cluster.snapshot().partition("orders", 0).unwrap().leader_epoch, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_one_broker_gives_too_short_has_to_be_asked_of_each() {
    let embedded = start(3);
    for number in 0..9 {
        embedded.set_group(&format!("group-{number}"), "Stable", &[]);
    }
    let cluster = connect(&embedded).await;
    let error = cluster.send(Subject::Cluster, |_| ListGroupsRequest::default(), soon()).await.unwrap_err();
    let key = ApiKey::ListGroups;
    assert!(matches!(&error, SendError::Route(RouteError::NeedsEveryBroker { key: told }) if *told == key));
    let mut groups = 0;
    for broker in 1..=3 {
        let listed = cluster.send(Subject::Broker(broker), |_| ListGroupsRequest::default(), soon()).await;
        let listed = listed.unwrap().groups.len();
        assert!(listed < 9, "one broker alone tells {listed}");
        groups += listed;
    }
    assert_eq!(groups, 9);
    let error = cluster.send(Subject::Cluster, |_| ListTransactionsRequest::default(), soon()).await;
    assert!(matches!(error, Err(SendError::Route(RouteError::NeedsEveryBroker { .. }))));
}

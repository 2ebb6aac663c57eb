//! Groups and transactions of the embedded cluster, each asked of its coordinator.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use strandline_client::admin::{Admin, GroupsWithOffsets, PartitionQuery};
use strandline_meta::SendError;
use strandline_protocol::messages::OffsetFetchRequest;
use strandline_protocol::records::Producer;
use strandline_protocol::{ApiKey, ErrorCode, VersionRange};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Network, Rule};

use support::{asked, chain, connect, kafka, soon};

const GROUPS: [&str; 6] = ["billing", "search", "mail", "audit", "fraud", "stock"];

/// Six groups, coordinated by three brokers.
fn with_groups() -> EmbeddedCluster {
    let kafka = kafka(3);
    kafka.create_topic("returns", 2);
    for (group, offset) in GROUPS.iter().zip(10..) {
        kafka.set_group(group, "Stable", &[("orders", 0, offset), ("returns", 1, offset * 2)]);
    }
    kafka
}

fn orders() -> Vec<PartitionQuery> {
    vec![PartitionQuery { topic: "orders".into(), partition: 0 }]
}

/// `GROUP STATE TOPIC:P@OFFSET…`
fn lines(found: &GroupsWithOffsets) -> String {
    let line = |(group, offsets): &(strandline_client::admin::GroupListing, Result<Vec<_>, SendError>)| {
        let offsets = match offsets {
            Ok(offsets) => offsets.iter().map(offset).collect::<Vec<_>>().join(" "),
            Err(error) => format!("{:?}", error.code()),
        };
        format!("{} {} {offsets}", group.group_id, group.state.as_deref().unwrap_or("-"))
    };
    found.groups.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn offset(found: &strandline_client::admin::GroupOffset) -> String {
    let committed = match &found.committed {
        Ok(committed) => committed.next_offset.to_string(),
        Err(code) => code.to_string(),
    };
    format!("{}:{}@{committed}", found.topic, found.partition)
}

#[tokio::test]
async fn groups_of_every_broker_come_with_their_offsets_in_one_request_per_coordinator() {
    let kafka = with_groups();
    let admin = Admin::new(&connect(&kafka).await);
    let found = admin.groups_with_offsets(Some(&orders()), soon()).await.unwrap();
    assert!(found.failed_brokers.is_empty(), "{found:?}");
    insta::assert_snapshot!(lines(&found), @r"
    audit Stable orders:0@13
    billing Stable orders:0@10
    fraud Stable orders:0@14
    mail Stable orders:0@12
    search Stable orders:0@11
    stock Stable orders:0@15
    ");
    let coordinators: std::collections::BTreeSet<_> =
        GROUPS.iter().map(|group| kafka.group_coordinator(group)).collect();
    assert!(coordinators.len() > 1, "the groups have one coordinator: nothing is shown");
    assert_eq!(asked(&kafka, ApiKey::ListGroups), 3);
    assert_eq!(asked(&kafka, ApiKey::OffsetFetch), coordinators.len());
    assert_eq!(asked(&kafka, ApiKey::FindCoordinator), 0, "who lists a group coordinates it");
    let version =
        kafka.journal().iter().find(|entry| entry.api == ApiKey::OffsetFetch).map(|entry| entry.version);
    assert_eq!(version, Some(9), "later versions name topics by id, and leave out those that are gone");

    // All that was committed, topics that are gone included.
    kafka.delete_topic("returns");
    let found = admin.groups_with_offsets(None, soon()).await.unwrap();
    assert!(lines(&found).starts_with("audit Stable orders:0@13 returns:1@26\n"), "{}", lines(&found));
}

#[tokio::test]
async fn an_old_coordinator_is_asked_for_one_group_at_a_time() {
    let kafka = with_groups();
    for broker in 1..=3 {
        kafka.limit_versions(broker, ApiKey::OffsetFetch, Some(VersionRange { first: 1, last: 7 }));
    }
    let admin = Admin::new(&connect(&kafka).await);
    let found = admin.groups_with_offsets(Some(&orders()), soon()).await.unwrap();
    assert!(
        lines(&found).starts_with("audit Stable orders:0@13\nbilling Stable orders:0@10\n"),
        "{}",
        lines(&found)
    );
    let requests = kafka.journal();
    let requests = requests.iter().filter(|entry| entry.api == ApiKey::OffsetFetch);
    let mut groups: Vec<String> =
        requests.map(|entry| entry.decode::<OffsetFetchRequest>().unwrap().group_id).collect();
    groups.sort();
    assert_eq!(groups, ["audit", "billing", "fraud", "mail", "search", "stock"]);
}

#[tokio::test]
async fn a_broker_that_fails_is_named_and_so_is_each_group_whose_coordinator_is_silent() {
    let kafka = with_groups();
    let admin = Admin::new(&connect(&kafka).await);
    kafka.script(
        Rule::new(Fault::Error(ErrorCode::UnknownServerError)).api(ApiKey::ListGroups).broker(2).always(),
    );
    let found = admin.groups_with_offsets(None, soon()).await.unwrap();
    let failed: BTreeMap<i32, Option<ErrorCode>> =
        found.failed_brokers.iter().map(|(broker, error)| (*broker, error.code())).collect();
    assert_eq!(failed, BTreeMap::from([(2, Some(ErrorCode::UnknownServerError))]));
    let elsewhere = GROUPS.iter().filter(|group| kafka.group_coordinator(group) != Some(2)).count();
    assert_eq!(found.groups.len(), elsewhere);

    kafka.clear_script();
    kafka.script(
        Rule::new(Fault::Error(ErrorCode::GroupAuthorizationFailed))
            .api(ApiKey::OffsetFetch)
            .broker(1)
            .always(),
    );
    let found = admin.groups_with_offsets(None, soon()).await.unwrap();
    assert_eq!(found.groups.len(), GROUPS.len());
    for (group, offsets) in &found.groups {
        let of_one = kafka.group_coordinator(&group.group_id) == Some(1);
        assert_eq!(offsets.is_err(), of_one, "{}: {offsets:?}", group.group_id);
        let code = offsets.as_ref().err().and_then(SendError::code);
        assert_eq!(code, of_one.then_some(ErrorCode::GroupAuthorizationFailed));
    }
}

#[tokio::test]
async fn a_silent_broker_delays_its_own_groups_alone_and_is_named_at_the_deadline() {
    let kafka = with_groups();
    let admin = Admin::new(&connect(&kafka).await);
    admin.list_groups(soon()).await.unwrap();
    kafka.set_network(3, Network::Blackhole).await.unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_millis(500);
    let listed = admin.list_groups(deadline).await.unwrap();
    assert_eq!(listed.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    let failed: Vec<i32> =
        listed.iter().filter(|(_, listed)| listed.is_err()).map(|(broker, _)| *broker).collect();
    assert_eq!(failed, [3], "{listed:?}");
}

#[tokio::test]
async fn a_coordinator_that_moves_is_found_again() {
    let kafka = with_groups();
    let admin = Admin::new(&connect(&kafka).await);
    admin.groups_with_offsets(None, soon()).await.unwrap();
    let old = kafka.group_coordinator("billing").expect("it has one");
    kafka.stop_broker(old).await.unwrap();
    let found = admin.groups_with_offsets(Some(&orders()), soon()).await.unwrap();
    assert!(found.failed_brokers.is_empty(), "{:?}", found.failed_brokers);
    assert!(lines(&found).contains("billing Stable orders:0@10"), "{}", lines(&found));
}

#[tokio::test]
async fn groups_are_described_by_their_coordinators_and_one_that_nobody_has_is_an_error() {
    let kafka = with_groups();
    let admin = Admin::new(&connect(&kafka).await);
    let wanted = ["billing", "nobody", "billing", "mail"].map(str::to_owned);
    let found = admin.describe_groups(&wanted, soon()).await.unwrap();
    let shown: Vec<String> = found
        .iter()
        .map(|found| match found {
            Ok(group) => format!("{} {}", group.group_id, group.state),
            Err(error) => error.code().map_or_else(|| chain(error), |code| code.to_string()),
        })
        .collect();
    assert_eq!(shown, ["billing Stable", "GROUP_ID_NOT_FOUND", "billing Stable", "mail Stable"]);
}

#[tokio::test]
async fn without_groups_no_coordinator_is_looked_for_and_no_topic_is_created() {
    let kafka = kafka(3);
    let admin = Admin::new(&connect(&kafka).await);
    let found = admin.groups_with_offsets(None, soon()).await.unwrap();
    assert!(found.groups.is_empty() && found.failed_brokers.is_empty(), "{found:?}");
    let one = admin.committed_offsets(&["billing".to_owned()], None, soon()).await.unwrap().remove(0);
    assert!(matches!(one, Err(SendError::NoCoordinators { .. })), "{one:?}");
    assert_eq!(asked(&kafka, ApiKey::FindCoordinator), 0);
    assert_eq!(kafka.view().topics.keys().collect::<Vec<_>>(), ["orders"]);
}

#[tokio::test]
async fn transactions_are_described_by_their_coordinators() {
    let kafka = kafka(3);
    for (id, number) in ["mover-1", "mover-2", "mover-3", "mover-4"].iter().zip(7..) {
        let producer = Producer { id: number, epoch: 2, base_sequence: 0 };
        kafka.set_transaction(id, producer, "Ongoing", 1_700_000_000_000 + number, &[("orders", 0)]);
    }
    let admin = Admin::new(&connect(&kafka).await);
    let wanted = ["mover-3", "nobody", "mover-1"].map(str::to_owned);
    let found = admin.describe_transactions(&wanted, soon()).await.unwrap();
    let third = found[0].as_ref().unwrap();
    assert_eq!(
        (third.state.as_str(), third.producer_id, third.producer_epoch, third.start_ms, &third.partitions),
        ("Ongoing", 9, 2, Some(1_700_000_000_009), &orders())
    );
    assert_eq!(found[1].as_ref().unwrap_err().code(), Some(ErrorCode::TransactionalIdNotFound));
    assert_eq!(found[2].as_ref().unwrap().producer_id, 7);
}

#[tokio::test]
async fn groups_and_transactions_that_were_listed_are_asked_about_without_the_right_to_see_their_topics() {
    let kafka = with_groups();
    let producer = Producer { id: 7, epoch: 2, base_sequence: 0 };
    kafka.set_transaction("mover", producer, "Ongoing", 1_700_000_000_000, &[("orders", 0)]);
    let cluster = connect(&kafka).await;
    let admin = Admin::new(&cluster);
    let denied = |topic: &str| {
        assert!(cluster.snapshot().topic(topic).is_none(), "{topic} is in the view: nothing is shown");
    };
    let found = admin.groups_with_offsets(Some(&orders()), soon()).await.unwrap();
    assert!(lines(&found).starts_with("audit Stable orders:0@13\n"), "{}", lines(&found));
    admin.list_transactions(&[], soon()).await.unwrap();
    let described = admin.describe_transactions(&["mover".to_owned()], soon()).await.unwrap().remove(0);
    assert_eq!(described.unwrap().producer_id, 7);
    denied("__consumer_offsets");
    denied("__transaction_state");
    // A coordinator that has moved since is found anew, as always.
    let old = kafka.group_coordinator("billing").expect("it has one");
    kafka.stop_broker(old).await.unwrap();
    let moved = admin.committed_offsets(&["billing".to_owned()], None, soon()).await.unwrap().remove(0);
    assert_eq!(moved.unwrap().iter().map(offset).collect::<Vec<_>>(), ["orders:0@10", "returns:1@20"]);
}

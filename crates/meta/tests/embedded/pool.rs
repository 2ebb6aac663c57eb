//! Connections: shared, one per purpose, given up when they are silent or lead somewhere else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use strandline_conn::{ByteStream, Credentials, Dialler, Dialling, Password, SaslConfig};
use strandline_meta::routing::Subject;
use strandline_meta::{
    ApiKey, Call, Cluster, ClusterConfig, ConnectionConfig, ErrorCode, ItemAnswer, Recovery, Routed,
};
use strandline_protocol::VersionRange;
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use strandline_protocol::messages::{DescribeClusterRequest, ListGroupsRequest, ProduceRequest};
use strandline_testkit::embedded::{
    ClusterOptions, EmbeddedCluster, Fault, Held, KafkaVersion, Mechanism, Network, Rule, Sasl,
};
use tokio::time::Instant;

use crate::support::{
    Groups, Memory, address, asked, brokers_asked, chain, config, connect, connection, eventually, offsets,
    shown, soon, start, start_with, within, without_numbers,
};

const ALL_THREE: [(&str, i32); 3] = [("orders", 0), ("orders", 1), ("orders", 2)];

#[tokio::test(start_paused = true)]
async fn two_hundred_callers_of_one_broker_share_one_dial() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    let before = embedded.connections();
    let calls = join_all((0..200).map(|_| offsets(&cluster, &[("orders", 1)], soon()))).await;
    assert!(calls.iter().all(|result| result == &["10"]));
    // The refresh may have gone to broker 2 already.
    assert!(embedded.connections() - before <= 1, "{} dials", embedded.connections() - before);
}

#[tokio::test(start_paused = true)]
async fn the_connection_through_which_a_cluster_of_one_broker_was_found_is_the_only_one() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    assert_eq!(offsets(&cluster, &[("orders", 0)], soon()).await, ["0"]);
    let asked: Vec<String> = embedded.journal().iter().map(|entry| entry.api.to_string()).collect();
    assert_eq!(asked, ["ApiVersions", "Metadata", "Metadata", "ListOffsets"]);
    assert_eq!(embedded.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_broker_do_not_wait_for_the_dial_to_another() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    embedded.close_connections(2).await;
    embedded.set_network(2, Network::Blackhole).await.unwrap();
    let began = Instant::now();
    let quick = async {
        let results = offsets(&cluster, &[("orders", 0)], soon()).await;
        (results, began.elapsed())
    };
    let (slow, (quick, took)) = tokio::join!(offsets(&cluster, &[("orders", 1)], within(5_000)), quick);
    assert_eq!((quick, took < Duration::from_millis(100)), (vec!["0".to_owned()], true), "{took:?}");
    assert!(slow[0].starts_with("no answer within"), "{slow:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_broker_costs_its_own_items_alone_and_is_named() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::ListOffsets).broker(2).always());
    let results = offsets(&cluster, &ALL_THREE, within(1_000)).await;
    assert_eq!((results[0].as_str(), results[2].as_str()), ("0", "20"));
    insta::assert_snapshot!(results[1], @"no answer within TIME: broker 2 (127.0.0.1:PORT) gave no answer: ListOffsets was sent and has no answer: the broker did not answer ListOffsets within TIME");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_gives_up_the_socket_and_the_next_try_has_a_new_one() {
    let embedded = start(1);
    let config = config(&embedded).request_timeout(Duration::from_millis(500));
    let cluster = Cluster::connect(config, soon()).await.unwrap();
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::ListOffsets));
    assert_eq!(offsets(&cluster, &[("orders", 0)], soon()).await, ["0"]);
    let journal = embedded.journal();
    let tries: Vec<u64> = journal
        .iter()
        .filter(|entry| entry.api == ApiKey::ListOffsets)
        .map(|entry| entry.connection)
        .collect();
    assert_eq!(tries.len(), 2);
    assert_ne!(tries[0], tries[1]);
}

#[tokio::test(start_paused = true)]
async fn a_hung_broker_is_not_picked_again_for_what_any_broker_can_answer() {
    let embedded = start(3);
    let config = config(&embedded).request_timeout(Duration::from_millis(300));
    let cluster = Cluster::connect(config, soon()).await.unwrap();
    offsets(&cluster, &ALL_THREE, soon()).await;
    embedded.set_network(2, Network::HalfOpen).await.unwrap();
    for _ in 0..30 {
        let describe = |_| DescribeClusterRequest::default();
        cluster.send(Subject::Cluster, describe, soon()).await.unwrap();
    }
    // What it swallows is not in its journal: the ones that were answered tell how long the rest took.
    let began = Instant::now();
    for _ in 0..30 {
        cluster.send(Subject::Cluster, |_| DescribeClusterRequest::default(), soon()).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    let brokers = brokers_asked(&embedded, ApiKey::DescribeCluster);
    assert!(brokers.contains(&1) && brokers.contains(&3), "{brokers:?}");
    // Nor while there is a connection to nobody at all.
    for _ in 0..20 {
        embedded.close_connections(1).await;
        embedded.close_connections(3).await;
        cluster.send(Subject::Cluster, |_| DescribeClusterRequest::default(), soon()).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_broker_with_the_fewest_requests_under_way_is_asked() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &ALL_THREE, soon()).await;
    let held = Held::default();
    embedded.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::DescribeCluster).always());
    let describe = || cluster.send(Subject::Cluster, |_| DescribeClusterRequest::default(), soon());
    let release = async {
        let under_way = |journal: &[strandline_testkit::embedded::JournalEntry]| {
            journal.iter().filter(|entry| entry.api == ApiKey::DescribeCluster).count() == 3
        };
        embedded.journal_when(under_way).await;
        let mut brokers = brokers_asked(&embedded, ApiKey::DescribeCluster);
        brokers.sort_unstable();
        held.release();
        brokers
    };
    let (one, two, three, brokers) = tokio::join!(describe(), describe(), describe(), release);
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    assert_eq!(brokers, [1, 2, 3], "three requests at once went to three brokers");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_under_a_request_is_replaced_within_the_call() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    embedded.script(Rule::new(Fault::Close).api(ApiKey::ListOffsets).broker(2).times(2));
    assert_eq!(offsets(&cluster, &[("orders", 1)], soon()).await, ["10"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_broker_closed_while_idle_costs_nothing() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &[("orders", 1)], soon()).await;
    let metadata = asked(&embedded, ApiKey::Metadata).len();
    for _ in 0..5 {
        embedded.close_connections(1).await;
        embedded.close_connections(2).await;
        let began = Instant::now();
        assert_eq!(offsets(&cluster, &[("orders", 1)], soon()).await, ["10"]);
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    }
    assert_eq!(asked(&embedded, ApiKey::Metadata).len(), metadata, "a planned close is no reason to refresh");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_this_side_closed_while_idle_is_not_held_against_the_broker() {
    let embedded = start(1);
    let connection = ConnectionConfig { idle_timeout: Duration::from_secs(60), ..connection(&embedded) };
    let config = ClusterConfig::new([address(&embedded, 1)], connection);
    let cluster = Cluster::connect(config, soon()).await.unwrap();
    offsets(&cluster, &[("orders", 0)], soon()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(embedded.open_connections(1).await, 0);
    let metadata = asked(&embedded, ApiKey::Metadata).len();
    assert_eq!(offsets(&cluster, &[("orders", 0)], soon()).await, ["0"]);
    assert_eq!(asked(&embedded, ApiKey::Metadata).len(), metadata);
}

fn long_poll(version: i16, embedded: &EmbeddedCluster) -> FetchRequest {
    let view = embedded.view();
    let id = view.topics["orders"].id.0;
    let by_name = version < 13;
    let topic = FetchTopic {
        topic: if by_name { "orders".to_owned() } else { String::new() },
        topic_id: if by_name { Default::default() } else { id },
        partitions: vec![FetchPartition {
            partition: 0,
            fetch_offset: 0,
            partition_max_bytes: 1_000_000,
            ..Default::default()
        }],
        ..Default::default()
    };
    FetchRequest { max_wait_ms: 10_000, min_bytes: 1, topics: vec![topic], ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_waits_delays_no_question_to_the_same_broker() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &[("orders", 0)], soon()).await;
    let partition = Subject::Partition { topic: "orders".into(), partition: 0 };
    let fetch = cluster.send(partition, |version| long_poll(version, &embedded), soon());
    let question = async {
        embedded.journal_when(|journal| journal.iter().any(|entry| entry.api == ApiKey::Fetch)).await;
        let began = Instant::now();
        assert_eq!(offsets(&cluster, &[("orders", 0)], soon()).await, ["0"]);
        began.elapsed()
    };
    let (fetch, took) = tokio::join!(fetch, question);
    fetch.unwrap();
    assert!(took < Duration::from_millis(100), "{took:?}");
    let journal = embedded.journal();
    let connection = |api| journal.iter().rfind(|entry| entry.api == api).unwrap().connection;
    assert_ne!(connection(ApiKey::Fetch), connection(ApiKey::ListOffsets));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_throttles_is_left_alone_on_all_its_connections_and_the_others_are_asked() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &[("orders", 0), ("orders", 1)], soon()).await;
    let throttle = Fault::Throttle(Duration::from_secs(5));
    embedded.script(Rule::new(throttle).api(ApiKey::ListOffsets).broker(2));
    offsets(&cluster, &[("orders", 1)], soon()).await;
    // Anybody can answer this: the other broker does, at once.
    let began = Instant::now();
    for _ in 0..10 {
        cluster.send(Subject::Cluster, |_| DescribeClusterRequest::default(), soon()).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    assert_eq!(brokers_asked(&embedded, ApiKey::DescribeCluster), [1]);
    // This one alone can answer that: it is asked when it wants to hear from us again, on another connection too.
    let began = Instant::now();
    let dedicated = cluster.dedicated(2, soon()).await.unwrap();
    dedicated.send(|_| ListGroupsRequest::default(), soon()).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
    // Waiting for the end of it counts against the deadline, and is told as what it is.
    embedded.script(Rule::new(Fault::Throttle(Duration::from_secs(60))).api(ApiKey::ListOffsets).broker(2));
    offsets(&cluster, &[("orders", 1)], soon()).await;
    let results = offsets(&cluster, &[("orders", 1)], within(2_000)).await;
    assert!(results[0].contains("throttles this client"), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_advertises_another_address_is_asked_there_although_the_old_socket_lives() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &[("orders", 1)], soon()).await;
    let old = cluster.snapshot().broker(2).unwrap().address.clone();
    let on = |connection: u64| {
        let journal = embedded.journal();
        let mut entries = journal.iter().filter(|entry| entry.connection == connection);
        entries.next().map(|entry| entry.broker)
    };
    let before = embedded.journal().last().unwrap().connection;
    assert_eq!(on(before), Some(2));
    // Another name for the same broker: the old socket goes on working.
    embedded.advertise(2, "localhost", old.port());
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    assert_eq!(offsets(&cluster, &[("orders", 1)], soon()).await, ["10"]);
    let after = embedded.journal().last().unwrap().connection;
    assert_ne!(before, after);
    assert_eq!(cluster.snapshot().broker(2).unwrap().address.host(), "localhost");
}

#[tokio::test(start_paused = true)]
async fn brokers_that_swap_their_addresses_are_told_apart() {
    for version in [KafkaVersion::V4_0, KafkaVersion::V4_4] {
        let embedded = start_with(ClusterOptions { brokers: 3, version, ..ClusterOptions::default() });
        let cluster = connect(&embedded).await;
        offsets(&cluster, &ALL_THREE, soon()).await;
        // All but broker 1 tell that 2 is where 3 is and the reverse, as after containers were moved; then the truth.
        let (two, three) = (address(&embedded, 2), address(&embedded, 3));
        for broker in 1..=3 {
            embedded.freeze_view(broker, |view| {
                for told in &mut view.brokers {
                    told.port = match told.id {
                        2 => three.port(),
                        3 => two.port(),
                        _ => told.port,
                    };
                }
            });
        }
        cluster.refresh_all(soon()).await.unwrap();
        let truth = async {
            embedded
                .journal_when(|journal| {
                    journal.iter().filter(|entry| entry.api == ApiKey::Metadata).count() > 4
                })
                .await;
            embedded.thaw_views();
        };
        let (results, ()) = tokio::join!(offsets(&cluster, &ALL_THREE, within(60_000)), truth);
        assert_eq!(results, ["0", "10", "20"], "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_leads_to_another_broker_is_refused_by_a_broker_that_knows_how() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    // Broker 2 is told to be where broker 1 is.
    let one = address(&embedded, 1);
    embedded.freeze_view(1, |view| view.brokers[1].port = one.port());
    embedded.freeze_view(2, |view| view.brokers[1].port = one.port());
    cluster.refresh_all(soon()).await.unwrap();
    let error = cluster.dedicated(2, soon()).await.unwrap_err();
    let text = without_numbers(&chain(&error)).replace(&embedded.cluster_id(), "ours");
    insta::assert_snapshot!(text, @"cannot connect to broker 2 at 127.0.0.1:PORT, the address it advertises (the cluster was found through 127.0.0.1:PORT): 127.0.0.1:PORT is not broker 2 of cluster ours");
}

/// Leads every address to a broker of another cluster, from a moment on.
#[derive(Debug)]
struct Redirected {
    ours: Memory,
    theirs: (Memory, SocketAddr),
    now: AtomicBool,
}

impl Dialler for Redirected {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        self.ours.resolve(host, port)
    }

    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        match self.now.load(Ordering::Relaxed) {
            true => self.theirs.0.connect(self.theirs.1),
            false => self.ours.connect(address),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_that_lead_to_another_cluster_are_an_error_and_nothing_is_asked_there() {
    for version in [KafkaVersion::V4_0, KafkaVersion::V4_4] {
        let ours = start_with(ClusterOptions { version, ..ClusterOptions::default() });
        let theirs = start_with(ClusterOptions { version, seed: 2, ..ClusterOptions::default() });
        let dialler = Arc::new(Redirected {
            ours: Memory(ours.memory_network()),
            theirs: (Memory(theirs.memory_network()), theirs.bootstrap().parse().unwrap()),
            now: AtomicBool::new(false),
        });
        let connection = ConnectionConfig { dialler: dialler.clone(), ..ConnectionConfig::default() };
        let config = ClusterConfig::new([address(&ours, 1)], connection);
        let cluster = Cluster::connect(config, soon()).await.unwrap();
        offsets(&cluster, &[("orders", 0)], soon()).await;
        dialler.now.store(true, Ordering::Relaxed);
        ours.close_connections(1).await;
        let error = cluster.refresh_all(within(5_000)).await.unwrap_err();
        assert_eq!(error.recovery(), Recovery::Fail, "{}", chain(&error));
        let told = without_numbers(&chain(&error));
        assert!(told.contains(&format!("cluster {}", ours.cluster_id())), "{told}");
        assert_eq!(cluster.snapshot().cluster_id(), Some(&*ours.cluster_id()));
        if version == KafkaVersion::V4_4 {
            // A broker since 4.4 is told who is meant, and refuses before it is asked anything; a bootstrap address, whose node
            // is not known, shows by its metadata that it is of another cluster.
            let results = offsets(&cluster, &[("orders", 0)], within(1_000)).await;
            assert!(results[0].contains("is not"), "{results:?}");
            assert!(asked(&theirs, ApiKey::ListOffsets).is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_advertised_address_that_leads_nowhere_is_told_with_where_it_came_from() {
    let embedded = start(2);
    embedded.advertise(2, "kafka-2.internal", 9092);
    let cluster = connect(&embedded).await;
    let results = offsets(&cluster, &[("orders", 1)], within(3_000)).await;
    insta::assert_snapshot!(results[0], @"no answer within TIME: cannot connect to broker 2 at kafka-2.internal:9092, the address it advertises (the cluster was found through 127.0.0.1:PORT): cannot resolve kafka-2.internal:9092: there is no host kafka-2.internal");
}

fn with_passwords(users: &[(&str, &str)]) -> EmbeddedCluster {
    let users = users.iter().map(|(name, password)| (name.to_string(), password.to_string())).collect();
    let sasl = Sasl { users, mechanisms: vec![Mechanism::Plain], session_lifetime: None };
    start_with(ClusterOptions { sasl: Some(sasl), ..ClusterOptions::default() })
}

fn as_ada(embedded: &EmbeddedCluster, password: &str) -> ClusterConfig {
    let credentials = Credentials { username: "ada".to_owned(), password: Password::new(password) };
    let sasl = Some(SaslConfig::Plain(credentials));
    ClusterConfig::new([address(embedded, 1)], ConnectionConfig { sasl, ..connection(embedded) })
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_stay_refused_credentials_and_are_not_tried_again_at_once() {
    let embedded = with_passwords(&[("ada", "right")]);
    let error = Cluster::connect(as_ada(&embedded, "wrong"), soon()).await.unwrap_err();
    assert_eq!(error.recovery(), Recovery::Authenticate);
    assert_eq!(asked(&embedded, ApiKey::SaslAuthenticate).len(), 1);
    let text = without_numbers(&chain(&error));
    assert!(text.contains("refused the PLAIN credentials") && !text.contains("wrong"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_later_are_told_as_that_and_not_as_a_closed_connection() {
    let embedded = with_passwords(&[("ada", "right")]);
    let cluster = Cluster::connect(as_ada(&embedded, "right"), soon()).await.unwrap();
    offsets(&cluster, &[("orders", 0)], soon()).await;
    let refused = Fault::Error(ErrorCode::SaslAuthenticationFailed);
    embedded.script(Rule::new(refused).api(ApiKey::SaslAuthenticate).always());
    embedded.close_connections(1).await;
    let tried = asked(&embedded, ApiKey::SaslAuthenticate).len();
    let began = Instant::now();
    // During the back-off too: twenty callers in ten seconds are all told what it is.
    for _ in 0..20 {
        let results = offsets(&cluster, &[("orders", 0)], soon()).await;
        assert!(results[0].contains("refused the PLAIN credentials"), "{results:?}");
        tokio::time::advance(Duration::from_millis(400)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // Broker and bootstrap address, once each and not twenty times: trying often locks accounts.
    let tries = asked(&embedded, ApiKey::SaslAuthenticate).len() - tried;
    assert!(tries <= 2, "{tries} tries");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_shaped_by_the_connection_that_carries_it_in_a_cluster_of_mixed_versions() {
    let embedded = start(3);
    embedded.set_version(2, KafkaVersion::V3_9);
    let old = VersionRange { first: 1, last: 5 };
    embedded.limit_versions(3, ApiKey::ListOffsets, Some(old));
    let cluster = connect(&embedded).await;
    assert_eq!(offsets(&cluster, &ALL_THREE, soon()).await, ["0", "10", "20"]);
    let journal = embedded.journal();
    let mut versions: Vec<(i32, i16)> = journal
        .iter()
        .filter(|entry| entry.api == ApiKey::ListOffsets)
        .map(|entry| (entry.broker, entry.version))
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, [(1, 11), (2, 9), (3, 5)]);
    // Topics by name up to Fetch 12, by id from 13 on: each leader gets what it understands.
    embedded.limit_versions(2, ApiKey::Fetch, Some(VersionRange { first: 4, last: 12 }));
    for partition in 0..2 {
        let subject = Subject::Partition { topic: "orders".into(), partition };
        let fetch = |version| {
            let mut request = long_poll(version, &embedded);
            request.topics[0].partitions[0].partition = partition;
            request.max_wait_ms = 0;
            request
        };
        let answer = cluster.send(subject, fetch, soon()).await.unwrap();
        assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_takes_nothing_from_the_others() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    let held = Held::default();
    embedded.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::ListOffsets));
    let dropped = tokio::time::timeout(Duration::from_millis(5), offsets(&cluster, &[("orders", 1)], soon()));
    let kept = async {
        embedded.journal_when(|journal| journal.iter().any(|e| e.api == ApiKey::ListOffsets)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        held.release();
        offsets(&cluster, &[("orders", 1)], soon()).await
    };
    let (dropped, kept) = tokio::join!(dropped, kept);
    assert!(dropped.is_err());
    assert_eq!(kept, ["10"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_tasks_and_connections() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &[("orders", 0), ("orders", 1)], soon()).await;
    let clone = cluster.clone();
    drop(cluster);
    assert_eq!(offsets(&clone, &[("orders", 1)], soon()).await, ["10"]);
    drop(clone);
    eventually("closed sockets", async || {
        embedded.open_connections(1).await + embedded.open_connections(2).await == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_ones_own_follows_a_broker_to_its_new_address() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    embedded.readdress_broker(2).await.unwrap();
    let connection = cluster.dedicated(2, soon()).await.unwrap();
    assert_eq!(connection.address(), &address(&embedded, 2));
    connection.send(|_| ListGroupsRequest::default(), soon()).await.unwrap();
    let new = embedded.add_broker().await.unwrap();
    assert!(cluster.snapshot().broker(new).is_none());
    cluster.dedicated(new, soon()).await.unwrap();
    // Where nothing has changed it is told at once.
    embedded.set_network(2, Network::Refuse).await.unwrap();
    let began = Instant::now();
    let error = cluster.dedicated(2, soon()).await.unwrap_err();
    assert!(chain(&error).contains("connection refused"), "{}", chain(&error));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_brokers_version_cannot_say_is_told_for_the_items_that_need_it_and_the_others_are_answered() {
    let embedded = start(2);
    let old = VersionRange { first: 1, last: 5 };
    embedded.limit_versions(2, ApiKey::ListOffsets, Some(old));
    let cluster = connect(&embedded).await;
    // The end of partition 0 and 1, and the last offset in the tier, which takes version 9.
    let items = [(0, -1), (1, -1), (1, -5), (0, -5)];
    let results = shown(cluster.send_each(&TimestampOffsets, &items, soon()).await.unwrap());
    assert_eq!(results[..2], ["0", "10"]);
    insta::assert_snapshot!(results[2], @"broker 2 (127.0.0.1:PORT) knows ListOffsets only in versions 1 to 5; timestamp -5 needs version 9");
    assert_eq!(results[3], "-1");
}

/// The offsets that special timestamps stand for.
struct TimestampOffsets;

impl Call for TimestampOffsets {
    type Request = ListOffsetsRequest;
    type Item = (i32, i64);
    type Answer = i64;

    fn subject(&self, &(partition, _): &(i32, i64)) -> Subject {
        Subject::Partition { topic: "orders".into(), partition }
    }

    fn fits(&self, &(_, timestamp): &(i32, i64), version: i16) -> Result<(), String> {
        match timestamp == -5 && version < 9 {
            true => Err("timestamp -5 needs version 9".to_owned()),
            false => Ok(()),
        }
    }

    fn request(&self, items: &[Routed<'_, (i32, i64)>], _version: i16) -> ListOffsetsRequest {
        let topics = items.iter().map(|routed| ListOffsetsTopic {
            name: "orders".to_owned(),
            partitions: vec![ListOffsetsPartition {
                partition_index: routed.item.0,
                timestamp: routed.item.1,
                ..Default::default()
            }],
            ..Default::default()
        });
        ListOffsetsRequest { replica_id: -1, topics: topics.collect(), ..Default::default() }
    }

    fn answers(
        &self,
        _items: &[Routed<'_, (i32, i64)>],
        response: ListOffsetsResponse,
    ) -> Vec<ItemAnswer<i64>> {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| ItemAnswer::Answer(partition.offset)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_for_produce_is_dead_before_another_takes_its_place() {
    let embedded = start(2);
    let cluster = Cluster::connect(config(&embedded).read_write(), soon()).await.unwrap();
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    let partition = Subject::Partition { topic: "orders".into(), partition: 1 };
    // What is in it does not matter here: it is held before it is looked at.
    embedded.script(Rule::new(Fault::Hold(Held::default())).api(ApiKey::Produce));
    let produce = |_| ProduceRequest { acks: -1, timeout_ms: 1_000, ..ProduceRequest::default() };
    let sent = cluster.send(partition, produce, soon());
    let moved = async {
        embedded.journal_when(|journal| journal.iter().any(|entry| entry.api == ApiKey::Produce)).await;
        let port = address(&embedded, 2).port();
        embedded.advertise(2, "localhost", port);
        cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    };
    let (error, ()) = tokio::join!(sent, moved);
    let error = error.unwrap_err();
    assert!(error.may_have_been_sent(), "{}", chain(&error));
    assert!(chain(&error).contains("closed"), "{}", chain(&error));
}

#[tokio::test(start_paused = true)]
async fn a_hung_broker_does_not_have_all_the_time_of_a_call_that_others_can_answer() {
    for broker in 1..=3 {
        let embedded = start(3);
        embedded.set_group("group", "Stable", &[]);
        let cluster = connect(&embedded).await;
        offsets(&cluster, &ALL_THREE, soon()).await;
        cluster.refresh_topics(&["__consumer_offsets"], soon()).await.unwrap();
        embedded.set_network(broker, Network::HalfOpen).await.unwrap();
        for _ in 0..6 {
            // The request timeout is 30 s.
            let describe = |_| DescribeClusterRequest::default();
            cluster.send(Subject::Cluster, describe, within(4_000)).await.unwrap();
        }
        if embedded.group_coordinator("group") != Some(broker) {
            let groups = ["group".to_owned()];
            let described = shown(cluster.send_each(&Groups, &groups, within(10_000)).await.unwrap());
            assert_eq!(described, ["Stable"], "broker {broker} hangs");
        }
    }
}

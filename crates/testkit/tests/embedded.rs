//! What a test can make the embedded cluster do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::ErrorKind;

use bytes::Bytes;
use strandline_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchTopic, FetchableTopicResponse,
};
use strandline_protocol::messages::metadata::MetadataRequest;
use strandline_protocol::messages::{
    ApiVersionsRequest, DescribeClusterRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use strandline_protocol::records::{BatchOptions, Batches, NewRecord, Producer};
use strandline_protocol::{ApiKey, ErrorCode, TopicId};
use strandline_testkit::embedded::{
    ClusterOptions, EmbeddedCluster, Fault, Held, KafkaVersion, Mechanism, Network, Rule, Sasl,
};
use support::{PATIENCE, Peer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, timeout};

fn cluster(brokers: i32) -> EmbeddedCluster {
    EmbeddedCluster::start(ClusterOptions { brokers, ..ClusterOptions::default() }).unwrap()
}

impl Peer<TcpStream> {
    async fn connect(address: &str) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }
}

async fn peer(cluster: &EmbeddedCluster, broker: i32) -> Peer<TcpStream> {
    Peer::connect(&cluster.bootstrap_of(broker)).await
}

fn ask() -> DescribeClusterRequest {
    DescribeClusterRequest { endpoint_type: 1, ..DescribeClusterRequest::default() }
}

fn fetch(topic_id: TopicId, partition: FetchPartition, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..partition };
    let topic = FetchTopic { topic_id: topic_id.0, partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest { max_wait_ms, min_bytes: 1, topics: vec![topic], ..FetchRequest::default() }
}

fn code(responses: &[FetchableTopicResponse]) -> ErrorCode {
    responses[0].partitions[0].error_code
}

fn records(responses: &[FetchableTopicResponse]) -> Bytes {
    responses[0].partitions[0].records.clone().unwrap()
}

#[tokio::test]
async fn each_fault_does_what_its_name_says_and_the_next_request_is_answered() {
    let cluster = cluster(1);
    let mut lines = String::new();
    for fault in [
        Fault::Error(ErrorCode::ClusterAuthorizationFailed),
        Fault::Delay(Duration::from_millis(1)),
        Fault::Close,
        Fault::CloseAfter(0),
        Fault::CloseAfter(7),
        Fault::ApplyThenLose,
        Fault::Trickle { bytes: 3, pause: Duration::from_micros(10) },
        Fault::Throttle(Duration::from_millis(20)),
    ] {
        let name = format!("{fault:?}");
        cluster.script(Rule::new(fault).api(ApiKey::DescribeCluster));
        let mut peer = peer(&cluster, 1).await;
        let outcome = match peer.try_call(1, &ask()).await {
            Ok(answer) => format!("{:?}, throttled {} ms", answer.error_code, answer.throttle_time_ms),
            Err(error) => format!("{:?}", error.kind()),
        };
        let next = match peer.try_call(1, &ask()).await {
            Ok(answer) => format!("{:?}", answer.error_code),
            Err(_) => "gone".to_owned(),
        };
        lines += &format!("{name}: {outcome}; then {next}\n");
    }
    insta::assert_snapshot!(lines, @"
Error(CLUSTER_AUTHORIZATION_FAILED): CLUSTER_AUTHORIZATION_FAILED, throttled 0 ms; then NONE
Delay(1ms): NONE, throttled 0 ms; then NONE
Close: UnexpectedEof; then gone
CloseAfter(0): UnexpectedEof; then gone
CloseAfter(7): UnexpectedEof; then gone
ApplyThenLose: UnexpectedEof; then gone
Trickle { bytes: 3, pause: 10µs }: NONE, throttled 0 ms; then NONE
Throttle(20ms): NONE, throttled 20 ms; then NONE
");
}

#[tokio::test]
async fn answers_can_be_lost_doubled_misnumbered_and_replaced_by_garbage() {
    let cluster = cluster(1);
    let mut peer = peer(&cluster, 1).await;
    cluster.script(Rule::new(Fault::Drop));
    cluster.script(Rule::new(Fault::Twice));
    cluster.script(Rule::new(Fault::WrongCorrelationId));
    cluster.script(Rule::new(Fault::Garbage(vec![0, 0, 0, 5, b'H', b'T', b'T', b'P', b'/'])));
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(peer.send(1, &ask()).await.unwrap());
    }
    let (first, _) = peer.receive().await.unwrap();
    let (second, _) = peer.receive().await.unwrap();
    let (third, _) = peer.receive().await.unwrap();
    let (_, garbage) = peer.receive().await.unwrap();
    assert_eq!((first, second), (sent[1], sent[1]));
    assert!(!sent.contains(&third));
    assert_eq!(&garbage[..], b"HTTP/");
}

#[tokio::test]
async fn a_rule_befalls_the_nth_request_of_its_broker_and_api_as_often_as_it_says() {
    let cluster = cluster(2);
    let fault = Fault::Error(ErrorCode::NotController);
    cluster.script(Rule::new(fault).broker(2).api(ApiKey::DescribeCluster).nth(2).times(2));
    let mut seen = Vec::new();
    for broker in [1, 2] {
        let mut peer = peer(&cluster, broker).await;
        peer.call(4, &ApiVersionsRequest::default()).await;
        for _ in 0..4 {
            seen.push(peer.call(1, &ask()).await.error_code.code());
        }
    }
    assert_eq!(seen, [0, 0, 0, 0, 0, 41, 41, 0]);
}

#[tokio::test]
async fn a_held_request_is_answered_after_its_release_and_stands_in_the_journal_before() {
    let cluster = cluster(1);
    let held = Held::default();
    cluster.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::DescribeCluster));
    let mut peer = peer(&cluster, 1).await;
    peer.send(1, &ask()).await.unwrap();
    let journal = timeout(PATIENCE, cluster.journal_when(|journal| !journal.is_empty())).await.unwrap();
    assert_eq!(journal[0].to_string(), "broker 1 connection 1 DescribeCluster v1");
    assert_eq!(journal[0].decode::<DescribeClusterRequest>().unwrap(), ask());
    held.release();
    peer.receive().await.unwrap();
}

#[tokio::test]
async fn a_network_that_refuses_resets_or_swallows_comes_back() {
    let cluster = cluster(1);
    let address = cluster.bootstrap();
    let mut old = peer(&cluster, 1).await;
    old.call(1, &ask()).await;

    cluster.set_network(1, Network::Refuse).await.unwrap();
    assert_eq!(TcpStream::connect(&address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    old.call(1, &ask()).await;

    cluster.set_network(1, Network::Reset).await.unwrap();
    assert_eq!(old.try_call(1, &ask()).await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    cluster.set_network(1, Network::Up).await.unwrap();
    let mut old = peer(&cluster, 1).await;
    old.call(1, &ask()).await;
    cluster.set_network(1, Network::HalfOpen).await.unwrap();
    let mut new = peer(&cluster, 1).await;
    for swallowed in [&mut old, &mut new] {
        swallowed.send(1, &ask()).await.unwrap();
        let waited = timeout(Duration::from_millis(100), swallowed.receive()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    cluster.set_network(1, Network::Up).await.unwrap();
    for swallowed in [&mut old, &mut new] {
        assert_eq!(swallowed.receive().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    peer(&cluster, 1).await.call(1, &ask()).await;
}

#[tokio::test]
async fn a_black_hole_lets_no_connection_be_made_until_it_ends() {
    let cluster = cluster(1);
    let address = cluster.bootstrap();
    let mut old = peer(&cluster, 1).await;
    cluster.set_network(1, Network::Blackhole).await.unwrap();
    old.send(1, &ask()).await.unwrap();
    let mut dialling = Box::pin(TcpStream::connect(&address));
    let waited = timeout(Duration::from_millis(100), &mut dialling).await;
    assert!(waited.is_err(), "{waited:?}");
    assert!(timeout(Duration::from_millis(10), old.receive()).await.is_err());
    cluster.set_network(1, Network::Up).await.unwrap();
    assert_eq!(old.receive().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    // The system tries again after a second.
    let stream = timeout(PATIENCE, dialling).await.unwrap().unwrap();
    Peer::over(stream).call(1, &ask()).await;
}

#[tokio::test(start_paused = true)]
async fn in_memory_every_broker_is_reached_at_its_address_and_meets_its_network() {
    let cluster = cluster(2);
    let network = cluster.memory_network();
    let address = cluster.bootstrap_of(2);
    let (host, port) = address.split_once(':').unwrap();
    let port = port.parse().unwrap();
    assert_eq!(network.resolve("localhost", port).unwrap(), network.resolve(host, port).unwrap());
    assert_eq!(network.resolve("kafka.example", port).unwrap_err().kind(), ErrorKind::NotFound);
    network.set_name("kafka.example", &["127.0.0.9".parse().unwrap(), host.parse().unwrap()]);
    let [nobody, address] = network.resolve("kafka.example", port).unwrap()[..] else { panic!() };
    let refused = async |address| network.connect(address).await.unwrap_err().kind();
    assert_eq!(refused(nobody).await, ErrorKind::ConnectionRefused);

    let mut old = Peer::over(network.connect(address).await.unwrap());
    old.call(1, &ask()).await;
    assert_eq!(cluster.journal().last().unwrap().broker, 2);
    for (what, silent) in [(Network::HalfOpen, true), (Network::Reset, false), (Network::Blackhole, true)] {
        cluster.set_network(2, what).await.unwrap();
        let waited = timeout(Duration::from_secs(10), old.try_call(1, &ask())).await;
        assert_eq!(waited.is_err(), silent, "{what:?}");
        let new = timeout(Duration::from_secs(60), network.connect(address)).await;
        assert_eq!(new.is_err(), what == Network::Blackhole, "{what:?}");
        cluster.set_network(2, Network::Up).await.unwrap();
        assert_eq!(old.try_call(1, &ask()).await.unwrap_err().kind(), ErrorKind::ConnectionReset, "{what:?}");
        old = Peer::over(network.connect(address).await.unwrap());
    }
    cluster.stop_broker(2).await.unwrap();
    assert_eq!(old.try_call(1, &ask()).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(refused(address).await, ErrorKind::ConnectionRefused);
    drop(cluster);
    assert_eq!(refused(address).await, ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_stopped_broker_loses_its_partitions_and_follows_when_it_is_back_at_its_address() {
    let cluster = cluster(3);
    cluster.create_topic("orders", 1);
    let address = cluster.bootstrap_of(1);
    let mut old = peer(&cluster, 1).await;
    old.call(1, &ask()).await;
    assert_eq!((cluster.leader("orders", 0), cluster.view().controller), ((1, 0), 1));
    cluster.stop_broker(1).await.unwrap();
    assert!(old.try_call(1, &ask()).await.is_err());
    assert!(TcpStream::connect(&address).await.is_err());
    assert_eq!((cluster.leader("orders", 0), cluster.view().controller), ((2, 1), 2));
    let partition = cluster.view().topics["orders"].partitions[0].clone();
    assert_eq!((partition.isr, partition.offline), (vec![2, 3], vec![1]));

    cluster.restart_broker(1).await.unwrap();
    Peer::connect(&address).await.call(1, &ask()).await;
    assert_eq!(cluster.leader("orders", 0), (2, 1));
    assert_eq!(cluster.view().topics["orders"].partitions[0].isr, [2, 3, 1]);
}

#[tokio::test]
async fn brokers_move_join_and_go() {
    let cluster = cluster(1);
    let before = cluster.bootstrap();
    cluster.readdress_broker(1).await.unwrap();
    assert_ne!(cluster.bootstrap(), before);
    assert!(TcpStream::connect(&before).await.is_err());
    assert_eq!(cluster.add_broker().await.unwrap(), 2);
    let answer = peer(&cluster, 1).await.call(1, &ask()).await;
    assert_eq!(answer.brokers.iter().map(|broker| broker.broker_id).collect::<Vec<_>>(), [1, 2]);
    cluster.remove_broker(1).await.unwrap();
    let answer = peer(&cluster, 2).await.call(1, &ask()).await;
    assert_eq!((answer.brokers.len(), answer.controller_id), (1, 2));
}

#[tokio::test]
async fn a_broker_tells_an_old_or_wrong_view_until_it_is_thawed() {
    let cluster = cluster(2);
    cluster.create_topic("orders", 1);
    cluster.freeze_view(1, |_| {});
    cluster.freeze_view(2, |view| view.brokers.clear());
    cluster.move_leader("orders", 0, 2);
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let told = |answer: strandline_protocol::messages::MetadataResponse| {
        let partition = &answer.topics[0].partitions[0];
        (answer.brokers.len(), partition.leader_id, partition.leader_epoch)
    };
    let (mut one, mut two) = (peer(&cluster, 1).await, peer(&cluster, 2).await);
    assert_eq!(told(one.call(12, &all).await), (2, 1, 0));
    assert_eq!(told(two.call(12, &all).await), (0, 1, 0));
    cluster.thaw_views();
    assert_eq!(told(one.call(12, &all).await), (2, 2, 1));
    assert_eq!(told(two.call(12, &all).await), (2, 2, 1));
}

#[tokio::test]
async fn a_fetch_waits_for_an_append_and_ends_at_once_when_the_leader_moves() {
    let cluster = cluster(2);
    let id = cluster.create_topic_with("orders", 1, 1, &[]);
    let mut peer = peer(&cluster, 1).await;
    for (act, expected) in [
        (&(|| assert_eq!(cluster.append("orders", 0, &[b"a"]), 0)) as &dyn Fn(), ErrorCode::None),
        (&|| cluster.move_leader("orders", 0, 2), ErrorCode::NotLeaderOrFollower),
    ] {
        let fetch_offset = cluster.journal().len() as i64;
        let request = fetch(id, FetchPartition { fetch_offset, ..FetchPartition::default() }, 20_000);
        let before = cluster.journal().len();
        // Version 11 on, a follower answers; the old leader here stays a replica, so ask as an older client does.
        let request = FetchRequest {
            topics: vec![FetchTopic { topic: "orders".to_owned(), ..request.topics[0].clone() }],
            ..request
        };
        let version = 10;
        peer.send(version, &request).await.unwrap();
        timeout(PATIENCE, cluster.journal_when(|journal| journal.len() > before)).await.unwrap();
        let began = Instant::now();
        act();
        let (_, frame) = peer.receive().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        let answer = <strandline_protocol::messages::FetchResponse as strandline_protocol::Message>::decode(
            frame.slice(4..),
            version,
        );
        assert_eq!(code(&answer.unwrap().responses), expected);
    }
}

#[tokio::test]
async fn old_leader_epochs_are_fenced_with_a_hint_and_divergence_is_told() {
    let cluster = cluster(2);
    let id = cluster.create_topic("orders", 1);
    cluster.append("orders", 0, &[b"a", b"b"]);
    cluster.move_leader("orders", 0, 2);
    cluster.append("orders", 0, &[b"c"]);
    let mut peer = peer(&cluster, 2).await;
    let old = FetchPartition { current_leader_epoch: 0, ..FetchPartition::default() };
    let answer = peer.call(17, &fetch(id, old, 0)).await;
    let hint = &answer.responses[0].partitions[0].current_leader;
    assert_eq!(code(&answer.responses), ErrorCode::FencedLeaderEpoch);
    assert_eq!((hint.leader_id, hint.leader_epoch, answer.node_endpoints[0].node_id), (2, 1, 2));

    let diverged = FetchPartition { fetch_offset: 3, last_fetched_epoch: 0, ..FetchPartition::default() };
    let answer = peer.call(17, &fetch(id, diverged, 0)).await;
    let told = &answer.responses[0].partitions[0].diverging_epoch;
    assert_eq!((told.epoch, told.end_offset), (0, 2));
}

#[tokio::test]
async fn a_broker_with_a_frozen_view_gives_wrong_hints_about_leaders() {
    let cluster = cluster(3);
    let id = cluster.create_topic("orders", 1);
    cluster.freeze_view(1, |view| view.topics.get_mut("orders").unwrap().partitions[0].leader = 3);
    cluster.move_leader("orders", 0, 2);
    let old = FetchPartition { current_leader_epoch: 0, ..FetchPartition::default() };
    let answer = peer(&cluster, 1).await.call(17, &fetch(id, old, 0)).await;
    let hint = &answer.responses[0].partitions[0].current_leader;
    assert_eq!(code(&answer.responses), ErrorCode::FencedLeaderEpoch);
    assert_eq!((hint.leader_id, hint.leader_epoch, answer.node_endpoints[0].node_id), (3, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn after_its_lifetime_a_session_admits_only_a_new_authentication() {
    let sasl = Sasl {
        users: vec![("ada".to_owned(), "lovelace".to_owned())],
        mechanisms: vec![Mechanism::Plain],
        session_lifetime: Some(Duration::from_secs(60)),
    };
    let cluster =
        EmbeddedCluster::start(ClusterOptions { sasl: Some(sasl), ..ClusterOptions::default() }).unwrap();
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    let credentials = SaslAuthenticateRequest {
        auth_bytes: Bytes::from_static(b"\0ada\0lovelace"),
        ..SaslAuthenticateRequest::default()
    };
    let mut peer = in_memory(&cluster).await;
    for _ in 0..2 {
        peer.call(1, &handshake).await;
        assert_eq!(peer.call(2, &credentials).await.session_lifetime_ms, 60_000);
        peer.call(1, &ask()).await;
        tokio::time::advance(Duration::from_secs(61)).await;
    }
    assert!(peer.try_call(1, &ask()).await.is_err());
}

#[tokio::test]
async fn a_log_holds_gaps_damage_transactions_and_anything_else() {
    let cluster = cluster(1);
    let id = cluster.create_topic("orders", 1);
    for value in [b"a", b"b", b"c"] {
        cluster.append("orders", 0, &[value]);
    }
    cluster.compact_away("orders", 0, 1);
    cluster.damage("orders", 0, 2, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let mut peer = peer(&cluster, 1).await;
    let from = |fetch_offset| fetch(id, FetchPartition { fetch_offset, ..FetchPartition::default() }, 0);
    let bytes = records(&peer.call(17, &from(0)).await.responses);
    let read: Vec<_> =
        Batches::new(&bytes).map(|batch| batch.map(|batch| batch.header.base_offset).ok()).collect();
    assert_eq!(read, [Some(0), None]);

    let producer = Producer { id: 7, epoch: 0, base_sequence: 0 };
    let options = BatchOptions { producer: Some(producer), transactional: true, ..BatchOptions::default() };
    let first = cluster.append_batch("orders", 0, options, &[NewRecord::default()]);
    let committed = FetchRequest { isolation_level: 1, ..from(first) };
    let answer = peer.call(17, &committed).await;
    let data = &answer.responses[0].partitions[0];
    assert_eq!((first, data.last_stable_offset, data.high_watermark), (3, 3, 4));
    assert!(records(&answer.responses).is_empty());
    cluster.end_transaction("orders", 0, producer, false);
    let answer = peer.call(17, &committed).await;
    let aborted = answer.responses[0].partitions[0].aborted_transactions.as_ref().unwrap();
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (7, 3));
    let bytes = records(&answer.responses);
    let control: Vec<bool> =
        Batches::new(&bytes).map(|batch| batch.unwrap().header.attributes.is_control()).collect();
    assert_eq!(control, [false, true]);

    cluster.append_raw("orders", 0, &b"no batch at all"[..]);
    assert_eq!(&records(&peer.call(17, &from(5)).await.responses)[..], b"no batch at all");
    cluster.truncate("orders", 0, 1);
    assert_eq!(code(&peer.call(17, &from(3)).await.responses), ErrorCode::OffsetOutOfRange);
    let other = cluster.recreate_topic("orders");
    assert_ne!(other, id);
    assert_eq!(code(&peer.call(17, &from(0)).await.responses), ErrorCode::UnknownTopicId);
}

#[tokio::test]
async fn an_older_kafka_serves_its_own_versions_and_hangs_up_at_others() {
    for (version, newest) in [(KafkaVersion::V3_9, 12), (KafkaVersion::V4_0, 13)] {
        let options = ClusterOptions { version, ..ClusterOptions::default() };
        let cluster = EmbeddedCluster::start(options).unwrap();
        let mut peer = peer(&cluster, 1).await;
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        peer.call(newest, &request).await;
        let beyond = peer.try_call(13, &request).await;
        assert_eq!(beyond.is_err(), newest < 13);
    }
}

#[tokio::test(start_paused = true)]
async fn over_a_pipe_in_memory_time_can_stand_still() {
    let cluster = cluster(1);
    let id = cluster.create_topic("orders", 1);
    let mut peer = in_memory(&cluster).await;
    let began = Instant::now();
    let answer = peer.call(17, &fetch(id, FetchPartition::default(), 3_000)).await;
    assert!(records(&answer.responses).is_empty());
    assert_eq!(began.elapsed().as_secs(), 3);
}

async fn in_memory(cluster: &EmbeddedCluster) -> Peer<impl AsyncRead + AsyncWrite + Unpin> {
    Peer::over(cluster.connect_in_memory(1).await)
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ids_and_the_same_faults() {
    let run = async |seed| {
        let cluster = EmbeddedCluster::start(ClusterOptions { seed, ..ClusterOptions::default() }).unwrap();
        let id = cluster.create_topic("orders", 1);
        let fault = Fault::Error(ErrorCode::NotController);
        cluster.script(Rule::new(fault).probability(0.5).always());
        let mut peer = peer(&cluster, 1).await;
        let mut seen = Vec::new();
        for _ in 0..32 {
            seen.push(peer.call(1, &ask()).await.error_code == ErrorCode::None);
        }
        (cluster.cluster_id(), id, seen)
    };
    let (first, again, other) = (run(5).await, run(5).await, run(6).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.2.contains(&true) && first.2.contains(&false));
}

#[tokio::test]
async fn dropping_the_cluster_closes_its_connections_and_ports() {
    let cluster = cluster(1);
    let address = cluster.bootstrap();
    let mut peer = peer(&cluster, 1).await;
    peer.call(1, &ask()).await;
    assert_eq!(cluster.open_connections(1).await, 1);
    drop(cluster);
    assert!(peer.try_call(1, &ask()).await.is_err());
    assert!(TcpStream::connect(&address).await.is_err());
}

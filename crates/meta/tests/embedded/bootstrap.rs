//! How a cluster is found, and found again when all that was known of it is wrong.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use strandline_meta::{
    ApiKey, BrokerAddress, Cluster, ClusterConfig, ConnectionConfig, ErrorCode, MetadataRecovery, Recovery,
    RefreshError,
};
use strandline_protocol::VersionRange;
use strandline_testkit::embedded::{EmbeddedCluster, Fault, MemoryNetwork, Network, Rule};
use tokio::time::Instant;

use crate::support::{
    Memory, address, asked, brokers_asked, chain, config, connect, connection, eventually, offsets, soon,
    start, within, without_numbers,
};

/// A client of a cluster that is found by a name.
fn by_name(embedded: &EmbeddedCluster) -> (ClusterConfig, MemoryNetwork) {
    let network = embedded.memory_network();
    let dialler = Arc::new(Memory(network.clone()));
    let connection = ConnectionConfig { dialler, ..ConnectionConfig::default() };
    let port = address(embedded, 1).port();
    let name = BrokerAddress::new("kafka.internal", port.into()).unwrap();
    (ClusterConfig::new([name], connection).jitter_seed(1), network)
}

const HERE: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];

#[tokio::test(start_paused = true)]
async fn without_an_address_there_is_nobody_to_ask() {
    let nowhere = ClusterConfig::new([], ConnectionConfig::default());
    let error = Cluster::connect(nowhere.clone(), soon()).await.unwrap_err();
    assert_eq!(error.to_string(), "no bootstrap address is given");
    let began = Instant::now();
    let results = offsets(&Cluster::start(nowhere), &[("orders", 0)], soon()).await;
    assert_eq!(results, ["no bootstrap address is given"]);
    assert!(began.elapsed() < Duration::from_secs(1), "no time cures that");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_resolved_yet_is_tried_again_until_it_can() {
    let embedded = start(1);
    let (config, network) = by_name(&embedded);
    let back = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        network.set_name("kafka.internal", &HERE);
    };
    let began = Instant::now();
    let (connected, ()) = tokio::join!(Cluster::connect(config, within(60_000)), back);
    connected.unwrap();
    assert!(began.elapsed() < Duration::from_secs(23), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_resolved_is_given_up_after_its_own_time() {
    let embedded = start(1);
    let (config, _network) = by_name(&embedded);
    let config = config.bootstrap_resolve_timeout(Duration::from_secs(5));
    let began = Instant::now();
    let error = Cluster::connect(config, within(600_000)).await.unwrap_err();
    assert!(chain(&error).contains("cannot resolve kafka.internal"), "{}", chain(&error));
    assert!((5..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_may_be_started_before_its_name_is_known_and_each_call_looks_for_it() {
    let embedded = start(1);
    let (config, network) = by_name(&embedded);
    let cluster = Cluster::start(config);
    let results = offsets(&cluster, &[("orders", 0)], within(2_000)).await;
    assert!(results[0].contains("cannot resolve kafka.internal"), "{results:?}");
    network.set_name("kafka.internal", &HERE);
    assert_eq!(offsets(&cluster, &[("orders", 0)], soon()).await, ["0"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_at_every_bootstrap_address_is_told_at_once() {
    let embedded = start(2);
    embedded.set_network(1, Network::Refuse).await.unwrap();
    embedded.set_network(2, Network::Refuse).await.unwrap();
    let (one, two) = (address(&embedded, 1), address(&embedded, 2));
    let config = ClusterConfig::new([one.clone(), two, one], connection(&embedded));
    let began = Instant::now();
    let error = Cluster::connect(config, within(60_000)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let RefreshError::NoAnswer { asked, .. } = &error else { panic!("{error:?}") };
    assert_eq!(asked.len(), 2, "an address that stands there twice is asked once");
    assert_eq!(error.recovery(), Recovery::Redial);
}

#[tokio::test(start_paused = true)]
async fn one_good_bootstrap_address_of_several_is_enough() {
    let embedded = start(2);
    embedded.set_network(2, Network::Refuse).await.unwrap();
    let addresses = [address(&embedded, 2), address(&embedded, 1)];
    for seed in 0..8 {
        let config = ClusterConfig::new(addresses.clone(), connection(&embedded)).jitter_seed(seed);
        Cluster::connect(config, soon()).await.unwrap();
    }
    // One that takes the connection and says nothing holds up nobody for long either.
    embedded.set_network(2, Network::HalfOpen).await.unwrap();
    for seed in 0..8 {
        let began = Instant::now();
        let config = ClusterConfig::new(addresses.clone(), connection(&embedded)).jitter_seed(seed);
        Cluster::connect(config, soon()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_of_metadata_that_both_sides_cannot_speak_is_told_at_once() {
    let embedded = start(1);
    let newer = VersionRange { first: 99, last: 99 };
    embedded.limit_versions(1, ApiKey::Metadata, Some(newer));
    let began = Instant::now();
    let error = Cluster::connect(config(&embedded), soon()).await.unwrap_err();
    let told = without_numbers(&chain(&error));
    assert!(told.contains("Metadata has no version that both sides speak"), "{told}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(embedded.connections(), 1, "nothing is tried again");
}

#[tokio::test(start_paused = true)]
async fn a_version_of_metadata_that_a_restarted_broker_lost_ends_a_call_at_once() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    embedded.limit_versions(1, ApiKey::Metadata, Some(VersionRange { first: 99, last: 99 }));
    embedded.close_connections(1).await;
    let began = Instant::now();
    let results = offsets(&cluster, &[("orders", 0)], soon()).await;
    assert!(results[0].contains("Metadata has no version that both sides speak"), "{results:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_hindered_the_last_whole_attempt_is_told_at_the_deadline() {
    let embedded = start(1);
    embedded.freeze_view(1, |view| view.brokers.clear());
    // The deadline cuts the last attempt at every stage.
    let attempts = (300..500).step_by(5).map(|millis| {
        let config = config(&embedded);
        async move { chain(&Cluster::connect(config, within(millis)).await.unwrap_err()) }
    });
    for told in join_all(attempts).await {
        assert!(told.contains("names no broker"), "{told}");
    }
}

/// Moves every broker to another port, the bootstrap name to where broker 1 is now.
async fn roll(embedded: &EmbeddedCluster, brokers: i32) {
    for broker in 1..=brokers {
        embedded.readdress_broker(broker).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn when_every_broker_has_a_new_address_the_bootstrap_name_is_resolved_anew() {
    let embedded = start(3);
    // A load balancer in front of the brokers, whose port stays: broker 4 leads nothing.
    let front = embedded.add_broker().await.unwrap();
    let network = embedded.memory_network();
    network.set_name("kafka.internal", &HERE);
    let dialler = Arc::new(Memory(network));
    let connection = ConnectionConfig { dialler, ..ConnectionConfig::default() };
    let name = BrokerAddress::new("kafka.internal", address(&embedded, front).port().into()).unwrap();
    let config = ClusterConfig::new([name], connection).jitter_seed(1);
    let cluster = Cluster::connect(config, soon()).await.unwrap();
    assert_eq!(offsets(&cluster, &[("orders", 1)], soon()).await, ["10"]);
    for _ in 0..3 {
        roll(&embedded, 3).await;
        embedded.set_network(front, Network::Up).await.unwrap();
        assert_eq!(offsets(&cluster, &[("orders", 1), ("orders", 2)], soon()).await, ["10", "20"]);
        assert_eq!(cluster.snapshot().broker(2).unwrap().address, address(&embedded, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn all_brokers_down_for_long_and_up_again_need_no_new_client() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    let all = [("orders", 0), ("orders", 1), ("orders", 2)];
    offsets(&cluster, &all, soon()).await;
    for network in [Network::Refuse, Network::Reset, Network::HalfOpen, Network::Blackhole] {
        for broker in 1..=3 {
            embedded.set_network(broker, network).await.unwrap();
            embedded.close_connections(broker).await;
        }
        let results = offsets(&cluster, &all, within(20_000)).await;
        assert!(results.iter().all(|result| result.starts_with("no answer within")), "{results:?}");
        tokio::time::sleep(Duration::from_secs(1_200)).await;
        let down = offsets(&cluster, &all, within(3_000)).await;
        assert!(down.iter().all(|result| result.starts_with("no answer within")), "{down:?}");
        for broker in 1..=3 {
            embedded.set_network(broker, Network::Up).await.unwrap();
        }
        let began = Instant::now();
        assert_eq!(offsets(&cluster, &all, within(60_000)).await, ["0", "10", "20"], "{network:?}");
        // At the worst a connect timeout of the dials that began in the dark.
        assert!(began.elapsed() < Duration::from_secs(15), "{network:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_a_new_start_sends_the_client_back_to_the_bootstrap_address() {
    for seed in 0..10 {
        let embedded = start(5);
        let cluster = Cluster::connect(config(&embedded).jitter_seed(seed), soon()).await.unwrap();
        let all: Vec<(&str, i32)> = (0..5).map(|partition| ("orders", partition)).collect();
        offsets(&cluster, &all, soon()).await;
        for broker in 2..=5 {
            let disowned = Fault::Error(ErrorCode::RebootstrapRequired);
            embedded.script(Rule::new(disowned).api(ApiKey::Metadata).broker(broker));
        }
        let before = embedded.journal().len();
        let learned_before: Vec<usize> = open(&embedded).await;
        assert!(learned_before.iter().all(|open| *open > 0), "{learned_before:?}");
        assert_eq!(cluster.refresh_all(soon()).await.unwrap().brokers().len(), 5);
        // Once one broker has said so, no other learned broker is asked, and their sockets are closed.
        let journal = &embedded.journal()[before..];
        let asked: Vec<i32> =
            journal.iter().filter(|entry| entry.api == ApiKey::Metadata).map(|entry| entry.broker).collect();
        let learned = asked.iter().filter(|broker| **broker != 1).count();
        assert!(learned <= 1, "seed {seed}: {asked:?}");
        if learned == 1 {
            eventually("closed sockets", async || open(&embedded).await.iter().sum::<usize>() == 0).await;
        }
        assert_eq!(offsets(&cluster, &all, soon()).await, ["0", "10", "20", "30", "40"]);
    }
}

/// Open connections of all brokers but the first.
async fn open(embedded: &EmbeddedCluster) -> Vec<usize> {
    let mut open = Vec::new();
    for broker in embedded.view().brokers.iter().skip(1) {
        open.push(embedded.open_connections(broker.id).await);
    }
    open
}

#[tokio::test(start_paused = true)]
async fn after_the_time_without_metadata_only_the_bootstrap_address_is_asked_and_then_the_learned_ones_again()
{
    let embedded = start(3);
    let trigger = Duration::from_secs(60);
    let recovery = MetadataRecovery::Rebootstrap { trigger };
    let config = config(&embedded).metadata_recovery(recovery).request_timeout(Duration::from_millis(400));
    let cluster = Cluster::connect(config, soon()).await.unwrap();
    cluster.refresh_all(soon()).await.unwrap();
    for broker in 1..=3 {
        embedded.freeze_view(broker, |view| view.brokers.clear());
    }
    let brokers_of = |from: usize| {
        let journal = embedded.journal();
        let metadata = journal[from..].iter().filter(|entry| entry.api == ApiKey::Metadata);
        metadata.map(|entry| entry.broker).collect::<Vec<i32>>()
    };
    let round = async || {
        let from = embedded.journal().len();
        cluster.refresh_all(soon()).await.unwrap_err();
        let mut brokers = brokers_of(from);
        brokers.sort_unstable();
        brokers.dedup();
        brokers
    };
    assert_eq!(round().await, [1, 2, 3]);
    tokio::time::sleep(trigger / 2).await;
    assert_eq!(round().await, [1, 2, 3], "not yet");
    tokio::time::sleep(trigger).await;
    assert_eq!(round().await, [1], "a new start");
    assert_eq!(round().await, [1, 2, 3], "its timer began anew");
    tokio::time::sleep(trigger).await;
    assert_eq!(round().await, [1]);
    embedded.thaw_views();
    assert_eq!(cluster.refresh_all(soon()).await.unwrap().brokers().len(), 3);
    tokio::time::sleep(trigger * 2).await;
    for broker in 1..=3 {
        embedded.freeze_view(broker, |view| view.brokers.clear());
    }
    assert_eq!(round().await, [1, 2, 3], "time in which nobody asked does not count");
}

#[tokio::test(start_paused = true)]
async fn without_recovery_the_bootstrap_address_is_not_asked_again() {
    let embedded = start(2);
    // Broker 2 alone is told of, and broker 1 is the bootstrap address.
    embedded.freeze_view(1, |view| view.brokers.retain(|broker| broker.id == 2));
    let config = config(&embedded).metadata_recovery(MetadataRecovery::None);
    let cluster = Cluster::connect(config, soon()).await.unwrap();
    embedded.set_network(2, Network::Refuse).await.unwrap();
    let before = embedded.journal().len();
    cluster.refresh_all(within(5_000)).await.unwrap_err();
    assert_eq!(embedded.journal().len(), before);
    assert_eq!(brokers_asked(&embedded, ApiKey::Metadata), [1]);
    embedded.set_network(2, Network::Up).await.unwrap();
    assert_eq!(offsets(&cluster, &[("orders", 1)], soon()).await, ["10"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_hangs_up_for_want_of_credentials_is_told_after_a_few_tries() {
    let embedded = start(1);
    embedded.script(Rule::new(Fault::Close).api(ApiKey::Metadata).always());
    let began = Instant::now();
    let error = Cluster::connect(config(&embedded), within(60_000)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!((2..=4).contains(&asked(&embedded, ApiKey::Metadata).len()));
    assert!(
        chain(&error).contains("without authentication") || chain(&error).contains("closed"),
        "{}",
        chain(&error)
    );
}

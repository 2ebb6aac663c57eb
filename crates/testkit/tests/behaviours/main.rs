//! One suite of behaviours for two clusters: the embedded one and Apache Kafka. Both must give the very same trace;
//! where they do not, the embedded one is wrong.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod authentication;
mod coordinators;
mod groups;
mod leaders;
mod records;
mod rights;
mod security;
#[path = "../support/mod.rs"]
mod support;
mod throttle;
mod tiered;
mod topics;
mod trace;
mod transactions;

use crate::authentication::{LIFETIME, compare_authentication, compare_sessions};
use crate::groups::compare_groups;
use crate::leaders::compare_leaders;
use crate::rights::{compare_rights, give};
use crate::security::compare_certificates;
use crate::throttle::{compare_throttle, limit};
use crate::tiered::{LAST_TIERED, compare_tiered, compare_untiered};
use crate::trace::{Dialler, Trace};
use crate::transactions::compare_transactions;
use std::sync::Mutex;

use strandline_protocol::{ApiKey, Uuid};
use strandline_testkit::apache::{self, ApacheKafka};
use strandline_testkit::embedded::{
    Acl, ClusterOptions, EmbeddedCluster, Fault, KafkaVersion, Mechanism, Rule, Sasl, Tls,
};
use tokio::time::{Duration, timeout};

/// Bounds a trace that waits for what never comes; the longest takes ten seconds.
const TRACE_WITHIN: Duration = Duration::from_secs(120);

/// The APIs that the embedded cluster serves.
const SERVED: [ApiKey; 26] = [
    ApiKey::OffsetCommit,
    ApiKey::AddPartitionsToTxn,
    ApiKey::EndTxn,
    ApiKey::OffsetFetch,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::CreatePartitions,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::DescribeProducers,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
    ApiKey::DescribeTopicPartitions,
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DescribeConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::DescribeCluster,
];

#[tokio::test]
async fn the_embedded_cluster_behaves_as_the_trace_says() {
    for version in [KafkaVersion::V4_3, KafkaVersion::V4_4] {
        let cluster = embedded(version);
        let address = cluster.bootstrap();
        timeout(TRACE_WITHIN, compare_open(&address)).await.unwrap();
        timeout(TRACE_WITHIN, compare_coordinators(&address)).await.unwrap();
    }
}

/// One cluster of each version for all traces that one broker can show.
#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn apache_kafka_behaves_as_the_traces_say() {
    for (number, version) in [("4.3.1", KafkaVersion::V4_3), ("4.4.0", KafkaVersion::V4_4)] {
        let lifetime = "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms";
        let properties = vec![
            (lifetime.to_owned(), LIFETIME.as_millis().to_string()),
            ("listener.name.ssl.ssl.client.auth".to_owned(), "required".to_owned()),
        ];
        let options =
            apache::Options { version: number, tiered: false, properties, ..apache::Options::default() };
        let kafka = tokio::task::spawn_blocking(|| ApacheKafka::start(options)).await.unwrap().unwrap();
        let (plain, sasl) = (kafka.bootstrap(), kafka.sasl());
        let traces = async {
            compare_open(&plain).await;
            assert_same(
                version,
                &version_of(&plain).await,
                &version_of(&embedded(version).bootstrap()).await,
            );
            let others = async {
                compare_coordinators(&plain).await;
                let mut admin = Trace::connect(&plain).await;
                let orders = admin.topics().await;
                compare_strangers(&sasl, orders).await;
                admin.create("secured", &[]).await;
                let give = async |rights: &[Acl]| give(&plain, rights).await;
                compare_certificates(&kafka.ssl(), kafka.ca_pem(), kafka.client_pem(), give).await;
                compare_rights(admin, &sasl, give).await;
            };
            // What depends on nothing but who asks takes its time beside the others.
            tokio::join!(others, compare_authentication(&sasl), compare_sessions(Dialler::Tcp, &sasl));
            limit(&plain).await;
            compare_throttle(&plain).await;
        };
        timeout(TRACE_WITHIN, traces).await.unwrap();
    }
}

/// What older Kafkas answer differs in much, so the two traces are held against each other and written down nowhere.
#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn older_apache_kafkas_behave_as_the_presets() {
    for (number, version) in [("3.9.1", KafkaVersion::V3_9), ("4.0.0", KafkaVersion::V4_0)] {
        let options = apache::Options { version: number, tiered: false, ..apache::Options::default() };
        let kafka = tokio::task::spawn_blocking(|| ApacheKafka::start(options)).await.unwrap().unwrap();
        let cluster = embedded(version);
        let basics = async |address: &str| {
            let mut trace = Trace::connect(address).await;
            trace.basics().await;
            trace.lines + &version_of(address).await
        };
        let (real, ours) = (kafka.bootstrap(), cluster.bootstrap());
        let (real, ours) = (timeout(TRACE_WITHIN, basics(&real)), timeout(TRACE_WITHIN, basics(&ours)));
        assert_same(version, &real.await.unwrap(), &ours.await.unwrap());
    }
}

fn embedded(version: KafkaVersion) -> EmbeddedCluster {
    let options = ClusterOptions { version, auto_create_topics: true, ..ClusterOptions::default() };
    EmbeddedCluster::start(options).unwrap()
}

/// What differs from version to version: what is served, and the configs.
async fn version_of(address: &str) -> String {
    let mut trace = Trace::connect(address).await;
    trace.versions().await;
    trace.topic_configs().await;
    trace.lines
}

fn assert_same(version: KafkaVersion, real: &str, ours: &str) {
    let only = |one: &str, other: &str, sign: char| {
        let other: Vec<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !other.contains(line)).map(|line| format!("{sign} {line}\n"));
        lines.collect::<String>()
    };
    let differences = only(real, ours, '<') + &only(ours, real, '>');
    assert!(real == ours, "{version:?}: < Apache Kafka, > the embedded cluster\n{differences}");
}

#[tokio::test]
async fn the_embedded_cluster_knows_who_shows_a_certificate_as_the_trace_says() {
    let options = ClusterOptions { tls: Some(Tls::Mutual), ..ClusterOptions::default() };
    let cluster = EmbeddedCluster::start(options).unwrap();
    cluster.create_topic("secured", 1);
    cluster.set_acls(Some(vec![]));
    let certificates = cluster.certificates().unwrap();
    let shown = (certificates.client.as_str(), certificates.client_key.as_str());
    let give = async |rights: &[Acl]| cluster.set_acls(Some(rights.to_vec()));
    let address = cluster.bootstrap();
    timeout(TRACE_WITHIN, compare_certificates(&address, &certificates.ca, shown, give)).await.unwrap();
}

#[tokio::test]
async fn the_embedded_cluster_throttles_as_the_trace_says() {
    let cluster = EmbeddedCluster::start(ClusterOptions::default()).unwrap();
    let throttle = || Fault::Throttle(Duration::from_millis(300));
    cluster.script(Rule::new(throttle()).api(ApiKey::Produce));
    cluster.script(Rule::new(throttle()).api(ApiKey::Fetch).nth(2));
    timeout(TRACE_WITHIN, compare_throttle(&cluster.bootstrap())).await.unwrap();
}

fn sasl() -> Sasl {
    let user = |(name, password): (&str, &str)| (name.to_owned(), password.to_owned());
    Sasl {
        users: vec![user(apache::READER), user(apache::ADMIN)],
        mechanisms: vec![Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512],
        session_lifetime: None,
    }
}

fn secured(sasl: Sasl) -> EmbeddedCluster {
    let options = ClusterOptions {
        version: KafkaVersion::V4_3,
        sasl: Some(sasl),
        super_users: vec![format!("User:{}", apache::ADMIN.0)],
        ..ClusterOptions::default()
    };
    EmbeddedCluster::start(options).unwrap()
}

#[tokio::test]
async fn the_embedded_cluster_refuses_strangers_as_the_trace_says() {
    let cluster = secured(sasl());
    let orders = cluster.create_topic("orders", 1);
    cluster.set_acls(Some(vec![]));
    timeout(TRACE_WITHIN, compare_strangers(&cluster.bootstrap(), orders.0)).await.unwrap();
}

#[tokio::test]
async fn the_embedded_cluster_authenticates_as_the_trace_says() {
    let cluster = secured(sasl());
    timeout(TRACE_WITHIN, compare_authentication(&cluster.bootstrap())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_embedded_cluster_renews_sessions_as_the_trace_says() {
    let cluster = secured(Sasl { session_lifetime: Some(LIFETIME), ..sasl() });
    let dialler = Dialler::Memory(cluster.memory_network());
    timeout(TRACE_WITHIN, compare_sessions(dialler, &cluster.bootstrap())).await.unwrap();
}

#[tokio::test]
async fn the_embedded_cluster_gives_rights_as_the_trace_says() {
    let cluster = secured(sasl());
    let address = cluster.bootstrap();
    cluster.set_acls(Some(vec![]));
    let mut admin = Trace::connect(&address).await;
    admin.become_user(&address, apache::ADMIN).await;
    let all = Mutex::new(Vec::new());
    let give = async |more: &[Acl]| {
        let mut all = all.lock().unwrap();
        all.extend(more.iter().cloned());
        cluster.set_acls(Some(all.clone()));
    };
    timeout(TRACE_WITHIN, compare_rights(admin, &address, give)).await.unwrap();
}

/// Groups and transactions, on a listener without security.
async fn compare_coordinators(address: &str) {
    compare_groups(address).await;
    compare_transactions(address).await;
}

async fn compare_strangers(address: &str, orders: Uuid) {
    let mut trace = Trace::connect(address).await;
    trace.strangers(address).await;
    trace.without_rights(orders).await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
Metadata before SASL: closed
SaslHandshake v1 MAGIC: UNSUPPORTED_SASL_MECHANISM
  then closed
SaslAuthenticate v2: SASL_AUTHENTICATION_FAILED Some("Authentication failed: Invalid username or password") bytes=0 lifetime=0
  then Err("closed")
SaslAuthenticate v2: NONE Some("") bytes=0 lifetime=0
  then Ok(0)
Metadata v12 Some("orders"): TOPIC_AUTHORIZATION_FAILED id=false 0
Metadata v12 Some("nothing"): TOPIC_AUTHORIZATION_FAILED id=false 0
Metadata v12 by id: None TOPIC_AUTHORIZATION_FAILED id=true
Fetch v12: TOPIC_AUTHORIZATION_FAILED hw=-1 aborted=Some([])
Fetch v17: TOPIC_AUTHORIZATION_FAILED hw=-1 aborted=Some([])
ListOffsets v10 orders-0 known=-1 -1: TOPIC_AUTHORIZATION_FAILED timestamp=-1 offset=-1 epoch=-1
Produce v9 without a right: TOPIC_AUTHORIZATION_FAILED base=-1 start=-1
InitProducerId v4: CLUSTER_AUTHORIZATION_FAILED
CreateTopics v7: TOPIC_AUTHORIZATION_FAILED
DeleteTopics v6: Some("orders") TOPIC_AUTHORIZATION_FAILED id=false
DeleteTopics v6: None TOPIC_AUTHORIZATION_FAILED id=true
DeleteRecords v2: TOPIC_AUTHORIZATION_FAILED
DescribeConfigs v4 2: TOPIC_AUTHORIZATION_FAILED
DescribeConfigs v4 4: CLUSTER_AUTHORIZATION_FAILED
DescribeLogDirs v4: CLUSTER_AUTHORIZATION_FAILED 0
DescribeCluster v1: NONE
DescribeTopicPartitions v0: TOPIC_AUTHORIZATION_FAILED
"#) };
}

#[tokio::test]
async fn the_embedded_cluster_tells_of_a_tier_as_the_trace_says() {
    let options = ClusterOptions { version: KafkaVersion::V4_3, ..ClusterOptions::default() };
    let cluster = EmbeddedCluster::start(options).unwrap();
    let id = cluster.create_topic_with(tiered::TOPIC, 1, 1, &[("remote.storage.enable", "true")]);
    let address = cluster.bootstrap();
    timeout(TRACE_WITHIN, compare_untiered(&address)).await.unwrap();
    cluster.set_tiered(tiered::TOPIC, 0, Some(LAST_TIERED), Some(LAST_TIERED + 1));
    timeout(TRACE_WITHIN, compare_tiered(&address, id.0)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn apache_kafka_tells_of_a_tier_as_the_trace_says() {
    let start =
        || ApacheKafka::start(apache::Options { metadata_partitions: 1, ..apache::Options::default() });
    let kafka = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    kafka.create_tiered_topic(tiered::TOPIC, 1, &tiered::CONFIGS).unwrap();
    let address = kafka.bootstrap();
    timeout(TRACE_WITHIN, compare_untiered(&address)).await.unwrap();
    let copied = kafka.wait_until_copied(tiered::TOPIC).unwrap();
    assert_eq!(copied[&0], LAST_TIERED);
    let mut trace = Trace::connect(&address).await;
    let on_disk = trace.until_on_disk_from(LAST_TIERED + 1);
    let id = timeout(TRACE_WITHIN, on_disk).await.unwrap();
    timeout(TRACE_WITHIN, compare_tiered(&address, id)).await.unwrap();
}

#[tokio::test]
async fn the_embedded_cluster_moves_a_leader_as_the_trace_says() {
    let options = ClusterOptions { brokers: 3, version: KafkaVersion::V4_3, ..ClusterOptions::default() };
    let cluster = EmbeddedCluster::start(options).unwrap();
    let addresses = [1, 2, 3].map(|id| cluster.bootstrap_of(id));
    let stop = async || cluster.stop_broker(1).await.unwrap();
    timeout(TRACE_WITHIN, compare_leaders(&addresses, stop)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn apache_kafka_moves_a_leader_as_the_trace_says() {
    let options = apache::Options { tiered: false, brokers: 3, ..apache::Options::default() };
    let kafka = tokio::task::spawn_blocking(|| ApacheKafka::start(options)).await.unwrap().unwrap();
    let addresses = [1, 2, 3].map(|id| kafka.bootstrap_of(id));
    let stop = async || kafka.stop_broker(1).unwrap();
    timeout(TRACE_WITHIN, compare_leaders(&addresses, stop)).await.unwrap();
}

/// On a listener without security, of a cluster without topics.
async fn compare_open(address: &str) {
    let mut trace = Trace::connect(address).await;
    trace.basics().await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
CreateTopics v2 orders: NONE partitions=-1 replicas=-1 id=false
CreateTopics v7 orders: TOPIC_ALREADY_EXISTS partitions=-1 replicas=-1 id=false
CreateTopics v7 compacted: NONE partitions=1 replicas=1 id=true
CreateTopics v7 imagined: NONE partitions=3 replicas=1 id=true
CreateTopics v5 a/b: INVALID_TOPIC_EXCEPTION partitions=-1 replicas=-1 id=false
CreateTopics v5 many: INVALID_REPLICATION_FACTOR partitions=-1 replicas=-1 id=false
CreateTopics v5 none: INVALID_PARTITIONS partitions=-1 replicas=-1 id=false
CreateTopics v7 odd: INVALID_CONFIG partitions=-1 replicas=-1 id=false
CreateTopics v7 twin: INVALID_REQUEST partitions=-1 replicas=-1 id=false
Metadata v4 Some(["orders", "nothing", "a/b"]): brokers=1 controller=1
  a/b: INVALID_TOPIC_EXCEPTION internal=false []
  nothing: UNKNOWN_TOPIC_OR_PARTITION internal=false []
  orders: NONE internal=false [(0, 1, -1, [1], [1]), (1, 1, -1, [1], [1])]
Metadata v12 Some([]): brokers=1 controller=1
Metadata v12 Some(["orders", "nothing"]): brokers=1 controller=1
  nothing: UNKNOWN_TOPIC_OR_PARTITION internal=false []
  orders: NONE internal=false [(0, 1, 0, [1], [1]), (1, 1, 0, [1], [1])]
Metadata v12 None: brokers=1 controller=1
  compacted: NONE internal=false [(0, 1, 0, [1], [1])]
  orders: NONE internal=false [(0, 1, 0, [1], [1]), (1, 1, 0, [1], [1])]
Metadata v9 Some(["made-by-asking"]): brokers=1 controller=1
  made-by-asking: UNKNOWN_TOPIC_OR_PARTITION internal=false []
Metadata v12 by unknown id: UNKNOWN_TOPIC_ID name=None
Produce v9 two records: NONE base=0 start=0
Produce v9 a flipped bit: CORRUPT_MESSAGE base=-1 start=-1
Produce v9 two batches: INVALID_RECORD base=-1 start=-1
Produce v9 a cut batch: INVALID_RECORD base=-1 start=-1
Produce v9 no batch: INVALID_RECORD base=-1 start=-1
Produce v9 no such partition: UNKNOWN_TOPIC_OR_PARTITION base=-1 start=-1
Produce v9 no such topic: UNKNOWN_TOPIC_OR_PARTITION base=-1 start=-1
Produce v9 acks=7: INVALID_REQUIRED_ACKS base=-1 start=-1
Produce v9 acks=all: NONE base=2 start=0
Produce v9 no key, compacted: INVALID_RECORD base=-1 start=0
Produce v3 an old version: NONE base=3 start=-1
InitProducerId v4: NONE epoch=0
InitProducerId v4 of an empty id: INVALID_REQUEST
Produce v9 the first: NONE base=0 start=0
Produce v9 the same again: NONE base=0 start=0
Produce v9 a gap: OUT_OF_ORDER_SEQUENCE_NUMBER base=-1 start=0
Produce v9 the next: NONE base=2 start=0
Produce v9 one of the last five again: NONE base=0 start=0
Produce v9 half of one again: OUT_OF_ORDER_SEQUENCE_NUMBER base=-1 start=0
Produce v9 a newer epoch from the middle: OUT_OF_ORDER_SEQUENCE_NUMBER base=-1 start=0
Produce v9 a newer epoch from 0: NONE base=3 start=0
Produce v9 the older epoch: INVALID_PRODUCER_EPOCH base=-1 start=0
Produce v9 an unknown producer from the middle: NONE base=4 start=0
ListOffsets v1 orders-0 known=-1 -1: NONE timestamp=-1 offset=4 epoch=-1
ListOffsets v5 orders-0 known=-1 -2: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v6 orders-0 known=-1 -3: UNSUPPORTED_VERSION timestamp=-1 offset=-1 epoch=-1
ListOffsets v7 orders-0 known=-1 -3: NONE timestamp=5000 offset=2 epoch=0
ListOffsets v7 orders-0 known=-1 -4: UNSUPPORTED_VERSION timestamp=-1 offset=-1 epoch=-1
ListOffsets v8 orders-0 known=-1 -4: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v8 orders-0 known=-1 -5: UNSUPPORTED_VERSION timestamp=-1 offset=-1 epoch=-1
ListOffsets v9 orders-0 known=-1 -5: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=-1 -6: UNSUPPORTED_VERSION timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 orders-0 known=-1 -6: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 orders-0 known=-1 -7: UNSUPPORTED_VERSION timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=-1 0: NONE timestamp=1000 offset=0 epoch=0
ListOffsets v10 orders-0 known=-1 1001: NONE timestamp=1001 offset=1 epoch=0
ListOffsets v10 orders-0 known=-1 4000: NONE timestamp=5000 offset=2 epoch=0
ListOffsets v10 orders-0 known=-1 9000: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-7 known=-1 -1: UNKNOWN_TOPIC_OR_PARTITION timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 nothing-0 known=-1 -1: UNKNOWN_TOPIC_OR_PARTITION timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=0 -1: NONE timestamp=-1 offset=4 epoch=0
ListOffsets v10 orders-0 known=5 -1: UNKNOWN_LEADER_EPOCH timestamp=-1 offset=-1 epoch=-1
OffsetForLeaderEpoch v4 known=-1 epoch=0: NONE epoch=0 end=4
OffsetForLeaderEpoch v4 known=0 epoch=0: NONE epoch=0 end=4
OffsetForLeaderEpoch v4 known=0 epoch=4: NONE epoch=-1 end=-1
OffsetForLeaderEpoch v4 known=5 epoch=0: UNKNOWN_LEADER_EPOCH epoch=-1 end=-1
OffsetForLeaderEpoch v4 known=-1 epoch=-1: NONE epoch=-1 end=-1
Fetch v4 from 0 isolation=0: NONE hw=4 lso=4 start=-1 bytes=Some(234) aborted=None diverging=(-1, -1)
Fetch v4 from 0 isolation=1: NONE hw=4 lso=4 start=-1 bytes=Some(234) aborted=Some([]) diverging=(-1, -1)
Fetch v12 from 0 isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=None diverging=(-1, -1)
Fetch v12 from 0 isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=Some([]) diverging=(-1, -1)
Fetch v17 from 0 isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=None diverging=(-1, -1)
Fetch v17 from 0 isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=Some([]) diverging=(-1, -1)
Fetch v17 from the middle of a batch isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=None diverging=(-1, -1)
Fetch v17 from the middle of a batch isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=Some([]) diverging=(-1, -1)
Fetch v17 one byte isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(86) aborted=None diverging=(-1, -1)
Fetch v17 one byte isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(86) aborted=Some([]) diverging=(-1, -1)
Fetch v17 into the second batch isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(100) aborted=None diverging=(-1, -1)
Fetch v17 into the second batch isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(100) aborted=Some([]) diverging=(-1, -1)
Fetch v17 at the end isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 at the end isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(0) aborted=Some([]) diverging=(-1, -1)
Fetch v17 beyond the end isolation=0: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 beyond the end isolation=1: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 below 0 isolation=0: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 below 0 isolation=1: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 no such partition isolation=0: UNKNOWN_TOPIC_OR_PARTITION hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=Some([]) diverging=(-1, -1)
Fetch v17 no such partition isolation=1: UNKNOWN_TOPIC_OR_PARTITION hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=Some([]) diverging=(-1, -1)
Fetch v17 no such id isolation=0: UNKNOWN_TOPIC_ID hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=Some([]) diverging=(-1, -1)
Fetch v17 no such id isolation=1: UNKNOWN_TOPIC_ID hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=Some([]) diverging=(-1, -1)
Fetch v17 the current epoch isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=None diverging=(-1, -1)
Fetch v17 the current epoch isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(234) aborted=Some([]) diverging=(-1, -1)
Fetch v17 a newer epoch isolation=0: UNKNOWN_LEADER_EPOCH hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 a newer epoch isolation=1: UNKNOWN_LEADER_EPOCH hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 last fetched epoch 0 isolation=0: NONE hw=4 lso=4 start=0 bytes=Some(148) aborted=None diverging=(-1, -1)
Fetch v17 last fetched epoch 0 isolation=1: NONE hw=4 lso=4 start=0 bytes=Some(148) aborted=Some([]) diverging=(-1, -1)
Fetch v17 last fetched epoch 3 isolation=0: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 last fetched epoch 3 isolation=1: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None diverging=(-1, -1)
Fetch v17 of an unknown session: FETCH_SESSION_ID_NOT_FOUND 0
DescribeConfigs v4 2 compacted: NONE
  cleanup.policy=Some("compact") source=1 type=7
  retention.ms=Some("604800000") source=5 type=5
DescribeConfigs v4 2 nothing: UNKNOWN_TOPIC_OR_PARTITION
DescribeConfigs v4 4 1: NONE
DescribeConfigs v4 4 2: INVALID_REQUEST
DescribeConfigs v4 4 x: INVALID_REQUEST
DescribeConfigs v4 77 x: INVALID_REQUEST
DescribeLogDirs v4: NONE NONE []
DescribeCluster v0 of 1: NONE [1] controller=1
DescribeCluster v1 of 1: NONE [1] controller=1
DescribeCluster v1 of 2: MISMATCHED_ENDPOINT_TYPE [] controller=-1
FindCoordinator v3 of kind 7: Ok(INVALID_REQUEST)
Fetch session, begin: NONE session=true same=false [(0, NONE, Some(234)), (1, NONE, Some(309))]
Fetch session, move one on: NONE session=true same=true [(1, NONE, Some(309))]
Fetch session, nothing new but the other: NONE session=true same=true [(1, NONE, Some(309))]
Fetch session, the wrong epoch: INVALID_FETCH_SESSION_EPOCH session=false same=false []
Fetch session, by name: FETCH_SESSION_TOPIC_ID_ERROR session=false same=false []
Fetch session, move the other on: NONE session=true same=true []
Fetch session, nothing new: NONE session=true same=true []
Fetch session, beyond the end: NONE session=true same=true [(0, OFFSET_OUT_OF_RANGE, Some(0))]
Fetch session, still beyond the end: NONE session=true same=true [(0, OFFSET_OUT_OF_RANGE, Some(0))]
Fetch session, forget one: NONE session=true same=true []
Fetch session, forget the other: NONE session=false same=false []
Fetch session, after its end: FETCH_SESSION_ID_NOT_FOUND session=false same=false []
Fetch session, without a session: NONE session=false same=false [(0, NONE, Some(0))]
CreatePartitions v3 orders to 2: INVALID_PARTITIONS
CreatePartitions v3 orders to 1: INVALID_PARTITIONS
CreatePartitions v3 orders to 5: INVALID_REPLICA_ASSIGNMENT
CreatePartitions v3 orders to 3: INVALID_REPLICA_ASSIGNMENT
CreatePartitions v3 nothing to 3: UNKNOWN_TOPIC_OR_PARTITION
DeleteRecords v2 orders-0 before 2: NONE low=2
DeleteRecords v2 orders-0 before 1: NONE low=2
DeleteRecords v2 orders-0 before 9: OFFSET_OUT_OF_RANGE low=-1
DeleteRecords v2 orders-0 before -7: OFFSET_OUT_OF_RANGE low=-1
DeleteRecords v2 orders-0 before -1: NONE low=4
DeleteRecords v2 orders-9 before 0: UNKNOWN_TOPIC_OR_PARTITION low=-1
DeleteRecords v2 compacted-0 before 0: POLICY_VIOLATION low=-1
ListOffsets v10 orders-0 known=-1 -2: NONE timestamp=-1 offset=4 epoch=0
ListOffsets v10 orders-0 known=-1 -3: NONE timestamp=5000 offset=2 epoch=0
IncrementalAlterConfigs v1 orders cleanup.policy 2 Some("compact"): NONE
IncrementalAlterConfigs v1 orders cleanup.policy 2 Some("compact"): NONE
IncrementalAlterConfigs v1 orders cleanup.policy 3 Some("delete"): NONE
IncrementalAlterConfigs v1 orders retention.ms 0 Some("7"): NONE
IncrementalAlterConfigs v1 orders retention.ms 1 None: NONE
IncrementalAlterConfigs v1 orders retention.ms 9 Some("7"): UNKNOWN_SERVER_ERROR
IncrementalAlterConfigs v1 orders colour 0 Some("red"): INVALID_CONFIG
IncrementalAlterConfigs v1 nothing retention.ms 0 Some("7"): UNKNOWN_TOPIC_OR_PARTITION
IncrementalAlterConfigs v1 9x retention.ms 0 Some("7"): INVALID_REQUEST
DescribeTopicPartitions v0 ["orders", "nothing"] limit=100: next=None
  nothing: UNKNOWN_TOPIC_OR_PARTITION []
  orders: NONE [(0, 1, NONE), (1, 1, NONE)]
DescribeTopicPartitions v0 ["orders", "compacted"] limit=2: next=Some(("orders", 1))
  compacted: NONE [(0, 1, NONE)]
  orders: NONE [(0, 1, NONE)]
DescribeTopicPartitions v0 ["orders", "compacted"] limit=1: next=None
  orders: NONE [(1, 1, NONE)]
DescribeProducers v0 orders-1: NONE
  epoch=1 last=0 coordinator=-1 open=-1
  epoch=3 last=5 coordinator=-1 open=-1
DescribeProducers v0 orders-9: UNKNOWN_TOPIC_OR_PARTITION
DeleteTopics v5 Some("nothing"): UNKNOWN_TOPIC_OR_PARTITION name=Some("nothing") id=false
DeleteTopics v6 Some("nothing"): UNKNOWN_TOPIC_OR_PARTITION name=Some("nothing") id=false
DeleteTopics v6 None: UNKNOWN_TOPIC_ID name=None id=true
DeleteTopics v6 None: NONE name=Some("orders") id=true
DeleteTopics v1 Some("compacted"): NONE name=Some("compacted") id=false
FindCoordinator v4 of kind 0: COORDINATOR_NOT_AVAILABLE
  then some 1
FindCoordinator v4 of kind 1: COORDINATOR_NOT_AVAILABLE
  then some 1
ListGroups v5: NONE 0
DescribeTransactions v0: TRANSACTIONAL_ID_NOT_FOUND ""
DescribeGroups v5: NONE "Dead" ""
DescribeGroups v6: GROUP_ID_NOT_FOUND "Dead" ""
OffsetFetch v9: NONE
OffsetFetch v9: NONE
  orders: NONE -1 -1 Some("")
ListTransactions v1: NONE unknown=[] 0
ListTransactions v1: NONE unknown=["Odd"] 0
CreatePartitions v3 by the broker, 3: NONE said=false
CreatePartitions v3 by hand, 4: NONE said=false
CreatePartitions v3 by hand, too few, 4: INVALID_REPLICA_ASSIGNMENT said=true
CreatePartitions v3 by hand, too many, 3: INVALID_REPLICA_ASSIGNMENT said=true
CreatePartitions v3 by hand, none, 3: INVALID_REPLICA_ASSIGNMENT said=true
CreatePartitions v3 by hand, an unknown broker, 3: INVALID_REPLICA_ASSIGNMENT said=true
CreatePartitions v3 by hand, a broker twice, 3: INVALID_REPLICA_ASSIGNMENT said=true
CreatePartitions v3 by hand, no broker, 3: INVALID_REPLICA_ASSIGNMENT said=true
CreatePartitions v3 by the broker, 3: NONE said=false
CreatePartitions v3 by hand, 4: NONE said=false
Produce v9 stamped: NONE base=0 now=true
ListOffsets v7 stamped-0 isolation=0 -3: NONE timestamp=now offset=0
Produce v9 stamped: NONE base=2 now=true
  a batch at 0: LogAppendTime now=true
  a batch at 2: LogAppendTime now=true
ListOffsets v7 stamped-0 isolation=0 1000: NONE timestamp=now offset=0
ListOffsets v7 stamped-0 isolation=0 9223372036854775807: NONE timestamp=-1 offset=-1
"#); }
}

impl Trace {
    /// What one connection without security shows of a cluster without topics.
    async fn basics(&mut self) {
        let orders = self.topics().await;
        self.metadata().await;
        self.produce().await;
        self.idempotence().await;
        self.offsets().await;
        self.fetch(orders).await;
        self.admin().await;
        self.sessions(orders).await;
        self.changes(orders).await;
        self.groups_and_transactions().await;
        self.partitions().await;
        self.append_time().await;
    }
}

//! Starting a log: on a topic that it creates, and on one that is there; and reading it with the least rights.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strandline_conn::{Credentials, Observer, Password, RequestEvent, SaslConfig};
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _, MetadataDelivery,
    MetadataEventLog as _, MetadataEventQueueCapacity, MetadataEventRecord, OnDeviation, PublishError,
    StartLogError,
};
use strandline_meta::{ApiKey, BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options, READER};

use crate::{ONE_CLUSTER, soon};

const TOPIC: &str = "metadata-of-ours";

/// Five partitions on three brokers, two of which must have an event.
fn config() -> KafkaMetadataLogConfig {
    KafkaMetadataLogConfig { topic: TOPIC.to_owned(), num_partitions: 5, ..KafkaMetadataLogConfig::default() }
}

async fn connect(bootstrap: &str, connection: ConnectionConfig) -> Cluster {
    let bootstrap = BrokerAddress::parse_list(bootstrap).unwrap();
    Cluster::connect(ClusterConfig::new(bootstrap, connection).read_write(), soon()).await.unwrap()
}

/// Which APIs were asked.
#[derive(Debug, Default)]
struct Asked(Mutex<BTreeSet<String>>);

impl Observer for Asked {
    fn on_request(&self, event: &RequestEvent<'_>) {
        self.0.lock().unwrap().insert(event.api.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn a_log_starts_on_a_topic_of_its_own_and_on_one_that_is_there() {
    let _one = ONE_CLUSTER.lock().await;
    let kafka = ApacheKafka::start(Options { brokers: 3, tiered: false, ..Options::default() }).unwrap();
    let bootstrap = [1, 2, 3].map(|id| kafka.bootstrap_of(id)).join(",");

    // Eight that start at once agree on one topic, which is as configured.
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let cluster = connect(&bootstrap, ConnectionConfig::default()).await;
        starting
            .spawn(async move { KafkaMetadataEventLog::start(&cluster, config(), soon()).await.unwrap() });
    }
    let logs = starting.join_all().await;
    for log in &logs {
        assert_eq!(log.identity(), logs[0].identity());
        assert_eq!((log.partition_count(), log.deviations()), (5, &[][..]));
    }
    let described =
        kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &["--describe", "--topic", TOPIC]);
    let described = described.unwrap();
    for expected in [
        "PartitionCount: 5",
        "ReplicationFactor: 3",
        "cleanup.policy=delete",
        "min.insync.replicas=2",
        "retention.ms=-1",
        &format!("TopicId: {}", logs[0].topic_id().unwrap()),
    ] {
        assert!(described.contains(expected), "{expected} in {described}");
    }

    // Offsets are those of the log, whoever writes, and whoever leads.
    let mut offsets = Vec::new();
    for (event, log) in (0..20).zip(logs.iter().cycle()) {
        offsets.push(log.publish(3, format!("event {event}").into(), soon()).await.unwrap());
        if event == 9 {
            let cluster = connect(&bootstrap, ConnectionConfig::default()).await;
            let view = cluster.refresh_topics(&[TOPIC], soon()).await.unwrap();
            let leader = view.partition(TOPIC, 3).unwrap().leader.unwrap();
            kafka.kill_broker(usize::try_from(leader).unwrap()).unwrap();
        }
    }
    assert!(offsets.iter().copied().eq(0..20), "{offsets:?}");
    let mut events = logs[0].subscribe(MetadataEventQueueCapacity::default());
    events.assignment().add(3, 0).unwrap();
    for event in 0..20 {
        let Some(MetadataDelivery::Record { record, .. }) = events.next().await else { panic!("a record") };
        assert_eq!(record.offset, event);
        assert_eq!(record.value.as_deref(), Some(format!("event {event}").as_bytes()));
        assert_eq!((record.key, record.control, record.transactional), (None, false, false));
    }
    for log in logs {
        log.close().await;
    }

    // One that is configured otherwise takes it as it is, and tells, or refuses.
    let cluster = connect(&bootstrap, ConnectionConfig::default()).await;
    let other = KafkaMetadataLogConfig { num_partitions: 7, min_isr: 3, ..config() };
    let log = KafkaMetadataEventLog::start(&cluster, other.clone(), soon()).await.unwrap();
    let told: Vec<_> = log.deviations().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["partitions 5, wanted 7", "min.insync.replicas 2, wanted 3"]);
    assert_eq!(log.partition_count(), 5);
    let strict = KafkaMetadataLogConfig { on_deviation: OnDeviation::Strict, ..other };
    let refused = KafkaMetadataEventLog::start(&cluster, strict, soon()).await.unwrap_err();
    assert!(
        matches!(&refused, StartLogError::Deviates { deviations, .. } if deviations.len() == 2),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn with_read_and_describe_a_log_is_read_and_nothing_is_written() {
    let _one = ONE_CLUSTER.lock().await;
    let kafka = ApacheKafka::start(Options { tiered: false, ..Options::default() }).unwrap();
    let small = KafkaMetadataLogConfig { replication: 1, min_isr: 1, ..config() };
    let cluster = connect(&kafka.bootstrap(), ConnectionConfig::default()).await;
    let writer = KafkaMetadataEventLog::start(&cluster, small.clone(), soon()).await.unwrap();
    for partition in 0..5 {
        writer.publish(partition, format!("event of {partition}").into(), soon()).await.unwrap();
    }

    let asked = Arc::new(Asked::default());
    let credentials = Credentials { username: READER.0.to_owned(), password: Password::new(READER.1) };
    let connection = ConnectionConfig {
        sasl: Some(SaslConfig::Plain(credentials)),
        observer: Arc::clone(&asked) as Arc<dyn Observer>,
        ..ConnectionConfig::default()
    };
    // One that may write by itself: the broker is what says no.
    let cluster = connect(&kafka.sasl(), connection).await;
    let refused = KafkaMetadataEventLog::start(&cluster, small.clone(), soon()).await.unwrap_err();
    assert!(refused.to_string().ends_with("the right DESCRIBE on it is missing"), "{refused}");
    let principal = format!("User:{}", READER.0);
    let allow = |operations: &[&str]| {
        let operations: Vec<_> = operations.iter().flat_map(|operation| ["--operation", operation]).collect();
        let arguments = ["--add", "--allow-principal", &principal, "--topic", TOPIC];
        kafka
            .admin_tool("org.apache.kafka.tools.AclCommand", &[&arguments[..], &operations].concat())
            .unwrap();
    };
    allow(&["Read", "Describe"]);
    let until = soon();
    // A right takes a moment to reach the broker.
    let log = loop {
        match KafkaMetadataEventLog::open_read_only(&cluster, small.clone(), soon()).await {
            Ok(log) => break log,
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
        }
    };
    let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();
    assert!(marks.iter().all(|marks| marks.high_watermark == 1), "{marks:?}");
    let all = |_: &MetadataEventRecord<'_>| ControlFlow::Continue(());
    let visit = log.visit_range(marks[2].range(), all).await;
    assert_eq!((visit.outcome.records, visit.error.is_none()), (1, true), "{:?}", visit.error);
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    for partition in 0..5 {
        events.assignment().add(partition, 0).unwrap();
    }
    for _ in 0..5 {
        let next = tokio::time::timeout(Duration::from_secs(120), events.next()).await.unwrap();
        let Some(MetadataDelivery::Record { record, .. }) = next else { panic!("{next:?}") };
        let expected = format!("event of {}", record.partition);
        assert_eq!(record.value.as_deref(), Some(expected.as_bytes()));
    }
    let refused = log.publish(0, "an event".into(), soon()).await.unwrap_err();
    assert!(matches!(refused, PublishError::ReadOnly), "{refused}");
    log.close().await;
    let seen = asked.0.lock().unwrap().clone();
    for api in [ApiKey::InitProducerId, ApiKey::Produce, ApiKey::CreateTopics, ApiKey::FindCoordinator] {
        assert!(!seen.contains(&api.to_string()), "{api} in {seen:?}");
    }
    assert!(seen.contains("Fetch") && seen.contains("ListOffsets"), "{seen:?}");

    // To write takes WRITE, and whoever starts is told what could not be checked.
    let log = KafkaMetadataEventLog::start(&cluster, small.clone(), soon()).await.unwrap();
    let told: Vec<_> = log.deviations().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "min.insync.replicas, cleanup.policy, retention.ms, retention.bytes not checked: the right DESCRIBE_CONFIGS on the topic is missing"
        ]
    );
    let refused = log.publish(0, "an event".into(), soon()).await.unwrap_err();
    assert!(matches!(refused, PublishError::Forbidden { right: "WRITE", .. }), "{refused:?}");
    allow(&["Write"]);
    let until = soon();
    loop {
        match log.publish(0, "an event".into(), soon()).await {
            Ok(offset) => break assert_eq!(offset, 1),
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error:?}"),
        }
    }
    // Which topic may be created is a right of its own.
    let missing = KafkaMetadataLogConfig { topic: "metadata-of-others".to_owned(), ..small };
    let refused = KafkaMetadataEventLog::start(&cluster, missing, soon()).await.unwrap_err();
    assert!(matches!(refused, StartLogError::Forbidden { .. }), "{refused}");
}

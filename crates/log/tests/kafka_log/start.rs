//! Finding the topic, creating it, holding it against the configuration, and waiting for a cluster that comes up.

use std::collections::BTreeSet;
use std::time::Duration;

use strandline_log::{
    Awaited, FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _,
    METADATA_TOPIC, MetadataEventLog as _, MetadataEventQueueCapacity, MetadataEventRecord, OnDeviation,
    PublishError, StartLogError,
};
use strandline_meta::Cluster;
use strandline_protocol::messages::CreateTopicsRequest;
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Acl, EmbeddedCluster, Fault, Held, Network, Operation, Rule};
use tokio::time::Instant;

use crate::support::{asked, chain, config, connect, connect_read_only, kafka, late, unconnected};

const ANONYMOUS: &str = "User:ANONYMOUS";

/// Three partitions on three brokers, two of which must have an event.
fn three_replicas() -> KafkaMetadataLogConfig {
    let config = config(3, FetchConnections::PerPartition);
    KafkaMetadataLogConfig { replication: 3, min_isr: 2, ..config }
}

async fn start(
    cluster: &Cluster,
    config: KafkaMetadataLogConfig,
) -> Result<KafkaMetadataEventLog, StartLogError> {
    KafkaMetadataEventLog::start(cluster, config, Instant::now() + Duration::from_secs(60)).await
}

/// Waits until so many requests of an API were read.
async fn until_asked(kafka: &EmbeddedCluster, api: ApiKey, times: usize) {
    kafka.journal_when(|journal| journal.iter().filter(|entry| entry.api == api).count() >= times).await;
}

fn create_topics(fault: Fault) -> Rule {
    Rule::new(fault).api(ApiKey::CreateTopics)
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_there_is_created_as_configured() {
    let kafka = kafka(3);
    let log = start(&connect(&kafka).await, three_replicas()).await.unwrap();
    assert_eq!((log.partition_count(), log.deviations()), (3, &[][..]));
    let topic = &kafka.view().topics[METADATA_TOPIC];
    assert_eq!(log.topic_id(), Some(topic.id));
    assert!(topic.partitions.iter().all(|partition| partition.replicas.len() == 3), "{topic:?}");
    let journal = kafka.journal();
    let requests = journal.iter().filter(|entry| entry.api == ApiKey::CreateTopics);
    let requests: Vec<CreateTopicsRequest> = requests.map(|entry| entry.decode().unwrap()).collect();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let mut configs: Vec<_> = request.topics[0]
        .configs
        .iter()
        .map(|config| format!("{}={}", config.name, config.value.as_deref().unwrap()))
        .collect();
    configs.sort();
    assert_eq!(configs, ["cleanup.policy=delete", "min.insync.replicas=2", "retention.ms=-1"]);
    assert_eq!(log.publish(2, "an event".into(), late()).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_there_is_taken_as_it_is_and_its_partition_count_wins() {
    let kafka = kafka(3);
    let configs = [("retention.ms", "-1"), ("min.insync.replicas", "2")];
    let id = kafka.create_topic_with(METADATA_TOPIC, 7, 3, &configs);
    let log = start(&connect(&kafka).await, three_replicas()).await.unwrap();
    assert_eq!((log.partition_count(), log.topic_id()), (7, Some(id)));
    let told: Vec<_> = log.deviations().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["partitions 7, wanted 3"]);
    assert_eq!(log.publish(6, "an event".into(), late()).await.unwrap(), 0);
    let refused = log.publish(7, "an event".into(), late()).await.unwrap_err();
    assert!(matches!(refused, PublishError::NoSuchPartition { partition_count: 7, .. }), "{refused}");
    assert_eq!(asked(&kafka, ApiKey::CreateTopics), 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_to_be_created_is_missed() {
    let kafka = kafka(3);
    let config = KafkaMetadataLogConfig { create_topic: false, ..three_replicas() };
    let cluster = connect(&kafka).await;
    let missed = start(&cluster, config.clone()).await.unwrap_err();
    assert!(matches!(missed, StartLogError::NoMetadataTopic { .. }), "{missed}");
    assert_eq!(asked(&kafka, ApiKey::CreateTopics), 0);
    kafka.create_topic(METADATA_TOPIC, 7);
    assert_eq!(start(&cluster, config).await.unwrap().partition_count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_otherwise_is_refused_or_told_or_adopted_as_configured() {
    let kafka = kafka(3);
    let configs = [("cleanup.policy", "compact,delete"), ("retention.bytes", "1000000")];
    kafka.create_topic_with(METADATA_TOPIC, 3, 2, &configs);
    let cluster = connect(&kafka).await;
    let with = |on_deviation| KafkaMetadataLogConfig { on_deviation, ..three_replicas() };
    let refused = start(&cluster, with(OnDeviation::Strict)).await.unwrap_err();
    insta::assert_snapshot!(refused, @"topic __remote_log_metadata is not as configured: replicas 2, wanted 3; min.insync.replicas 1, wanted 2; cleanup.policy compact,delete, wanted delete; retention.ms 604800000, wanted -1; retention.bytes 1000000, wanted -1");
    let StartLogError::Deviates { deviations, .. } = refused else { panic!("{refused}") };
    for on_deviation in [OnDeviation::Warn, OnDeviation::Adopt] {
        let log = start(&cluster, with(on_deviation)).await.unwrap();
        assert_eq!(log.deviations(), deviations, "{on_deviation:?}");
    }
    // More replicas are no worse, and what is as configured is not told.
    let exact = KafkaMetadataLogConfig {
        replication: 1,
        min_isr: 1,
        topic: "other".to_owned(),
        ..with(OnDeviation::Strict)
    };
    kafka.create_topic_with("other", 3, 2, &[("retention.ms", "-1")]);
    assert_eq!(start(&cluster, exact).await.unwrap().deviations(), []);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_configs_they_are_not_checked_and_that_is_said() {
    let kafka = kafka(3);
    kafka.create_topic_with(METADATA_TOPIC, 3, 3, &[]);
    let on_topic = |operation| Acl::topic(ANONYMOUS, METADATA_TOPIC, operation);
    kafka.set_acls(Some(vec![on_topic(Operation::Read), on_topic(Operation::Write)]));
    let cluster = connect(&kafka).await;
    let log = start(&cluster, three_replicas()).await.unwrap();
    let told: Vec<_> = log.deviations().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "min.insync.replicas, cleanup.policy, retention.ms, retention.bytes not checked: the right DESCRIBE_CONFIGS on the topic is missing"
        ]
    );
    assert_eq!(log.publish(0, "an event".into(), late()).await.unwrap(), 0);
    // What is not checked is not as configured, for all that anybody knows.
    let strict = KafkaMetadataLogConfig { on_deviation: OnDeviation::Strict, ..three_replicas() };
    let refused = start(&cluster, strict).await.unwrap_err();
    assert!(refused.to_string().contains("DESCRIBE_CONFIGS on the topic is missing"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_named() {
    let kafka = kafka(3);
    let cluster = connect(&kafka).await;
    let on_topic = |operation| Acl::topic(ANONYMOUS, METADATA_TOPIC, operation);
    kafka.set_acls(Some(Vec::new()));
    let unseen = start(&cluster, three_replicas()).await.unwrap_err();
    assert_eq!(unseen.to_string(), "topic __remote_log_metadata: the right DESCRIBE on it is missing");
    kafka.set_acls(Some(vec![on_topic(Operation::Describe)]));
    let not_created = start(&cluster, three_replicas()).await.unwrap_err();
    assert_eq!(
        not_created.to_string(),
        "topic __remote_log_metadata: the right CREATE on it, or on the cluster, is missing"
    );
    assert_eq!(kafka.view().topics.len(), 0);
    let create = [
        vec![on_topic(Operation::Describe), on_topic(Operation::Create)],
        vec![on_topic(Operation::Describe), Acl::cluster(ANONYMOUS, Operation::Create)],
    ];
    for acls in create {
        kafka.set_acls(Some(acls));
        let log = start(&cluster, three_replicas()).await.unwrap();
        let refused = log.publish(0, "an event".into(), late()).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no right to write to metadata partition 0: WRITE on the metadata topic is missing"
        );
        kafka.delete_topic(METADATA_TOPIC);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_create_the_topic_at_once_both_succeed() {
    let kafka = kafka(3);
    let held = Held::default();
    kafka.script(create_topics(Fault::Hold(held.clone())));
    let (first, second) = (connect(&kafka).await, connect(&kafka).await);
    let slow = tokio::spawn(async move { start(&first, three_replicas()).await });
    until_asked(&kafka, ApiKey::CreateTopics, 1).await;
    let other = KafkaMetadataLogConfig { num_partitions: 5, ..three_replicas() };
    let quick = start(&second, other).await.unwrap();
    held.release();
    let slow = slow.await.unwrap().unwrap();
    assert_eq!(slow.identity(), quick.identity());
    assert_eq!((slow.partition_count(), quick.deviations().len()), (5, 0));
    let told: Vec<_> = slow.deviations().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["partitions 5, wanted 3"], "who was second finds a topic that is there");
    assert_eq!(slow.publish(4, "an event".into(), late()).await.unwrap(), 0);
    assert_eq!(quick.publish(4, "another".into(), late()).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_that_start_at_once_agree_on_one_topic() {
    let kafka = kafka(3);
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let cluster = connect(&kafka).await;
        starting.spawn(async move { start(&cluster, three_replicas()).await.unwrap().identity() });
    }
    let identities: std::collections::HashSet<_> = starting.join_all().await.into_iter().collect();
    assert_eq!(identities.len(), 1, "{identities:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_creation_is_found_out() {
    for fault in [Fault::ApplyThenLose, Fault::Drop, Fault::Close, Fault::Error(ErrorCode::RequestTimedOut)] {
        let kafka = kafka(3);
        kafka.script(create_topics(fault.clone()));
        let log = start(&connect(&kafka).await, three_replicas()).await;
        let log = log.unwrap_or_else(|error| panic!("{fault:?}: {}", chain(&error)));
        assert_eq!(log.topic_id(), Some(kafka.view().topics[METADATA_TOPIC].id), "{fault:?}");
        assert_eq!(log.partition_count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_enough_brokers_and_says_so_when_they_do_not_come() {
    let kafka = kafka(1);
    let cluster = connect(&kafka).await;
    let late = start(&cluster, three_replicas()).await.unwrap_err();
    assert!(
        matches!(
            late,
            StartLogError::Waited { awaited: Awaited::Brokers { replication: 3, registered: 1 }, .. }
        ),
        "{late}"
    );
    insta::assert_snapshot!(late, @"topic __remote_log_metadata: waited 60.0s for 3 brokers to hold its replicas (there are 1)");
    assert!(chain(&late).contains("INVALID_REPLICATION_FACTOR"), "{}", chain(&late));
    let waiting = tokio::spawn(async move { start(&cluster, three_replicas()).await });
    let before = asked(&kafka, ApiKey::CreateTopics);
    for added in 1..=2 {
        until_asked(&kafka, ApiKey::CreateTopics, before + added).await;
        kafka.add_broker().await.unwrap();
    }
    let log = waiting.await.unwrap().unwrap();
    assert_eq!(log.publish(0, "an event".into(), crate::support::late()).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_a_cluster_that_is_down_and_says_so_when_it_stays_down() {
    let kafka = kafka(1);
    for network in [Network::Refuse, Network::Blackhole] {
        let cluster = unconnected(&kafka);
        kafka.set_network(1, network).await.unwrap();
        let began = Instant::now();
        let late = start(&cluster, config(3, FetchConnections::PerPartition)).await.unwrap_err();
        assert_eq!(began.elapsed().as_secs(), 60, "{network:?}");
        let told = late.to_string();
        assert_eq!(
            told, "topic __remote_log_metadata: waited 60.0s for a broker that tells about the cluster",
            "{network:?}"
        );
        let waiting =
            tokio::spawn(async move { start(&cluster, config(3, FetchConnections::PerPartition)).await });
        tokio::time::sleep(Duration::from_secs(20)).await;
        kafka.set_network(1, Network::Up).await.unwrap();
        waiting.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_moves_delays_the_creation_and_a_refusal_is_told_at_once() {
    for code in [ErrorCode::NotController, ErrorCode::UnknownServerError] {
        let kafka = kafka(3);
        kafka.script(create_topics(Fault::Error(code)).times(2));
        let log = start(&connect(&kafka).await, three_replicas()).await.unwrap();
        assert_eq!((log.partition_count(), asked(&kafka, ApiKey::CreateTopics)), (3, 3), "{code}");
    }
    // One that does not pass by itself is told at once.
    let kafka = kafka(3);
    kafka.script(create_topics(Fault::Error(ErrorCode::PolicyViolation)));
    let began = Instant::now();
    let refused = start(&connect(&kafka).await, three_replicas()).await.unwrap_err();
    assert!(
        chain(&refused).ends_with("answered POLICY_VIOLATION: refused by the script or for want of a right"),
        "{}",
        chain(&refused)
    );
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn brokers_that_hear_late_of_the_topic_are_waited_for() {
    let kafka = kafka(3);
    for broker in 1..=3 {
        kafka.freeze_view(broker, |_| {});
    }
    let cluster = connect(&kafka).await;
    let waiting = tokio::spawn(async move { start(&cluster, three_replicas()).await });
    until_asked(&kafka, ApiKey::CreateTopics, 2).await;
    kafka.thaw_views();
    let log = waiting.await.unwrap().unwrap();
    assert_eq!((log.partition_count(), log.deviations()), (3, &[][..]));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_to_be_written_wants_a_cluster_that_may_write_and_settings_that_work() {
    let kafka = kafka(1);
    let cluster = connect_read_only(&kafka).await;
    let before = kafka.journal().len();
    let refused = start(&cluster, config(3, FetchConnections::PerPartition)).await.unwrap_err();
    assert!(matches!(refused, StartLogError::ReadOnlyCluster), "{refused}");
    let cluster = connect(&kafka).await;
    let before = kafka.journal().len() - before;
    let wrong = KafkaMetadataLogConfig { num_partitions: 0, ..three_replicas() };
    let told = start(&cluster, wrong.clone()).await.unwrap_err().to_string();
    assert_eq!(told, "the metadata log's num_partitions is 0; it must be above zero");
    let told = KafkaMetadataEventLog::open_read_only(&cluster, wrong, late()).await.unwrap_err().to_string();
    assert_eq!(told, "the metadata log's num_partitions is 0; it must be above zero");
    let mut wrong = three_replicas();
    wrong.producer.batch_size = 0;
    let told = start(&cluster, wrong).await.unwrap_err().to_string();
    assert_eq!(told, "the producer's batch_size is 0; it must be above zero");
    assert_eq!(kafka.view().topics.len(), 0, "{before} requests");
}

#[tokio::test(start_paused = true)]
async fn a_log_for_reading_asks_nothing_that_changes_anything() {
    let kafka = kafka(3);
    let writer = start(&connect(&kafka).await, three_replicas()).await.unwrap();
    for partition in 0..3 {
        writer.publish(partition, "an event".into(), late()).await.unwrap();
    }
    let on_topic = |operation| Acl::topic(ANONYMOUS, METADATA_TOPIC, operation);
    kafka.set_acls(Some(vec![on_topic(Operation::Read), on_topic(Operation::Describe)]));
    let before = kafka.journal().last().unwrap().number;
    // A cluster that may write changes nothing about that.
    for cluster in [connect_read_only(&kafka).await, connect(&kafka).await] {
        let log = KafkaMetadataEventLog::open_read_only(&cluster, three_replicas(), late()).await.unwrap();
        assert_eq!(log.deviations(), []);
        let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();
        assert!(marks.iter().all(|marks| marks.high_watermark == 1), "{marks:?}");
        let all = |_: &MetadataEventRecord<'_>| std::ops::ControlFlow::Continue(());
        let visit = log.visit_range(marks[1].range(), all).await;
        assert_eq!((visit.outcome.records, visit.error.is_none()), (1, true));
        let mut events = log.subscribe(MetadataEventQueueCapacity::default());
        for partition in 0..3 {
            events.assignment().add(partition, 0).unwrap();
        }
        for _ in 0..3 {
            events.next().await.unwrap();
        }
        let refused = log.publish(0, "an event".into(), late()).await.unwrap_err();
        assert!(matches!(refused, PublishError::ReadOnly), "{refused}");
        log.close().await;
    }
    let asked: BTreeSet<_> =
        kafka.journal_since(before + 1).iter().map(|entry| entry.api.to_string()).collect();
    let reading = ["ApiVersions", "Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch"];
    let others: Vec<_> = asked.iter().filter(|api| !reading.contains(&api.as_str())).collect();
    assert!(others.is_empty() && asked.contains("Fetch"), "{asked:?}");
}

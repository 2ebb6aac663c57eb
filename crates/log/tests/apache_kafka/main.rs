//! The log on a real Apache Kafka: the same records, live and from the disk of a dead broker; and a topic of its own, started,
//! written and read.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod follow;
mod start;

use std::ops::ControlFlow;
use std::time::Duration;

use strandline_conn::{Credentials, Password, SaslConfig};
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog, MetadataEventRecord,
    MetadataEventVisitor, MetadataRange, OnDiskMetadataLog, OpenLogError, RangeError,
};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options, READER};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Held by a test that runs a cluster: two clusters at once are too much for a small machine.
static ONE_CLUSTER: Mutex<()> = Mutex::const_new(());

/// Partition, offset, timestamp, value.
type Seen = Vec<(i32, i64, i64, Option<Vec<u8>>)>;

/// Longer than anything takes on a busy machine, a broker's death included.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

async fn cluster(bootstrap: &str, connection: ConnectionConfig) -> Cluster {
    let bootstrap = BrokerAddress::parse_list(bootstrap).unwrap();
    Cluster::connect(ClusterConfig::new(bootstrap, connection), soon()).await.unwrap()
}

async fn open(cluster: &Cluster) -> Result<KafkaMetadataEventLog, OpenLogError> {
    let read_timeout = Duration::from_secs(180);
    let config = KafkaMetadataLogConfig { read_timeout, ..KafkaMetadataLogConfig::default() };
    KafkaMetadataEventLog::open_read_only(cluster, config, soon()).await
}

struct Collector(Seen);

impl MetadataEventVisitor for Collector {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        assert!(!record.control && !record.transactional && record.key.is_none());
        let value = record.value.map(<[u8]>::to_vec);
        self.0.push((record.partition, record.offset, record.timestamp_ms, value));
        ControlFlow::Continue(())
    }
}

/// Everything that the log holds.
async fn everything<L: MetadataEventLog>(log: &L) -> Seen {
    let marks = log.high_water_marks().await;
    let ranges = marks.into_iter().map(|marks| (marks.unwrap().range(), Collector(Seen::new())));
    let mut seen = Seen::new();
    for visit in log.visit_ranges(ranges.collect()).await {
        assert!(visit.error.is_none(), "{:?}", visit.error);
        assert_eq!(visit.outcome.next_offset, visit.range.to);
        assert_eq!(visit.outcome.records, visit.visitor.0.len() as u64);
        seen.extend(visit.visitor.0);
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn the_metadata_topic_reads_the_same_live_with_the_least_rights_and_from_a_dead_brokers_disk() {
    let _one = ONE_CLUSTER.lock().await;
    let kafka = ApacheKafka::start(Options::default()).unwrap();
    let admin = cluster(&kafka.bootstrap(), ConnectionConfig::default()).await;
    kafka.create_tiered_topic("orders", 3, &[]).unwrap();
    kafka.produce("orders", 30_000, 500).unwrap();
    kafka.wait_until_copied("orders").unwrap();
    kafka.wait_until_quiet().unwrap();

    let log = open(&admin).await.unwrap();
    let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();
    let ends: Vec<_> = marks.iter().map(|marks| marks.high_watermark).collect();
    assert_eq!(ends, kafka.metadata_end_offsets().unwrap());
    let seen = everything(&log).await;
    assert_eq!(seen.len() as i64, ends.iter().sum::<i64>());
    assert!(!seen.is_empty());

    // One partition, a part of it, page by page.
    let fullest = *marks.iter().max_by_key(|marks| marks.high_watermark).unwrap();
    let (from, to) = (1, fullest.high_watermark - 1);
    let range = MetadataRange { from, to, ..fullest.range() };
    let config = KafkaMetadataLogConfig { fetch_max_bytes: 1, ..KafkaMetadataLogConfig::default() };
    let by_page = KafkaMetadataEventLog::open_read_only(&admin, config, soon()).await.unwrap();
    let visit = by_page.visit_range(range, Collector(Seen::new())).await;
    let part: Seen = seen
        .iter()
        .filter(|(partition, offset, ..)| *partition == range.partition && (from..to).contains(offset))
        .cloned()
        .collect();
    assert_eq!(visit.visitor.0, part);

    let beyond = MetadataRange { from: fullest.high_watermark + 5, to: i64::MAX, ..range };
    let visit = log.visit_range(beyond, Collector(Seen::new())).await;
    assert!(
        matches!(visit.error, Some(RangeError::OffsetOutOfRange { log_start_offset: 0, end_offset, .. })
            if end_offset == fullest.high_watermark),
        "{:?}",
        visit.error
    );

    a_topic_that_is_not_there_stays_away(&kafka, &admin).await;
    read_and_describe_suffice(&kafka, &seen).await;

    kafka.kill_broker(1).unwrap();
    let on_disk = OnDiskMetadataLog::open(kafka.data_dir(1)).unwrap();
    assert_eq!(on_disk.partition_count(), log.partition_count());
    assert_eq!(everything(&on_disk).await, seen);
}

async fn a_topic_that_is_not_there_stays_away(kafka: &ApacheKafka, admin: &Cluster) {
    let config =
        KafkaMetadataLogConfig { topic: "other_metadata".to_owned(), ..KafkaMetadataLogConfig::default() };
    let error = KafkaMetadataEventLog::open_read_only(admin, config, soon()).await.unwrap_err();
    assert!(matches!(error, OpenLogError::NoMetadataTopic { .. }), "{error}");
    let topics = kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &["--list"]).unwrap();
    assert!(!topics.contains("other_metadata"), "{topics}");
}

async fn read_and_describe_suffice(kafka: &ApacheKafka, seen: &Seen) {
    let credentials = Credentials { username: READER.0.to_owned(), password: Password::new(READER.1) };
    let sasl = Some(SaslConfig::Plain(credentials));
    let reader = cluster(&kafka.sasl(), ConnectionConfig { sasl, ..ConnectionConfig::default() }).await;
    let error = open(&reader).await.unwrap_err();
    assert!(matches!(error, OpenLogError::Forbidden { .. }), "{error}");

    let allow = |operation: &str| {
        let principal = format!("User:{}", READER.0);
        let arguments = ["--add", "--allow-principal", &principal, "--operation", operation, "--topic"];
        let arguments = [&arguments[..], &["__remote_log_metadata"]].concat();
        kafka.admin_tool("org.apache.kafka.tools.AclCommand", &arguments).unwrap();
    };
    allow("Describe");
    let log = opened(&reader).await;
    // Of a partition that has records: an empty one would be waited for.
    let (partition, from, ..) = seen[0];
    let range = MetadataRange { partition, from, to: from + 1 };
    let visit = log.visit_range(range, Collector(Seen::new())).await;
    assert!(matches!(visit.error, Some(RangeError::Forbidden { right: "READ", .. })), "{:?}", visit.error);

    allow("Read");
    // A right takes a moment to reach the broker.
    let until = soon();
    while let Some(error) = log.visit_range(range, Collector(Seen::new())).await.error {
        assert!(Instant::now() < until, "{error:?}");
    }
    assert_eq!(&everything(&log).await, seen);
}

/// Opens the log as soon as the right to see it has reached the broker.
async fn opened(cluster: &Cluster) -> KafkaMetadataEventLog {
    let until = soon();
    loop {
        match open(cluster).await {
            Ok(log) => return log,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn leaders_that_die_are_followed() {
    let _one = ONE_CLUSTER.lock().await;
    let kafka = ApacheKafka::start(Options { brokers: 3, ..Options::default() }).unwrap();
    let bootstrap = [1, 2, 3].map(|id| kafka.bootstrap_of(id)).join(",");
    let cluster = cluster(&bootstrap, ConnectionConfig::default()).await;
    kafka.create_tiered_topic("orders", 3, &[]).unwrap();
    kafka.produce("orders", 30_000, 500).unwrap();
    kafka.wait_until_copied("orders").unwrap();
    kafka.wait_until_quiet().unwrap();

    let log = open(&cluster).await.unwrap();
    let seen = everything(&log).await;
    assert!(!seen.is_empty());
    let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();
    // Of a partition that has records: who leads it is the cluster's own choice.
    let (partition, ..) = seen[0];
    let view = cluster.snapshot();
    let leader = view.topic("__remote_log_metadata").unwrap().partition(partition).unwrap().leader.unwrap();

    kafka.kill_broker(leader.try_into().unwrap()).unwrap();
    let ranges = marks.iter().map(|marks| (marks.range(), Collector(Seen::new()))).collect();
    let mut again = Seen::new();
    for visit in log.visit_ranges(ranges).await {
        assert!(visit.error.is_none(), "{:?}", visit.error);
        again.extend(visit.visitor.0);
    }
    assert_eq!(again, seen);
    let view = cluster.snapshot();
    let topic = view.topic("__remote_log_metadata").unwrap();
    assert!(topic.partitions.iter().all(|partition| partition.leader != Some(leader)));
}

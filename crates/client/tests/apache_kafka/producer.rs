//! What our producer writes into a real Apache Kafka, as Kafka's own consumer reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use strandline_client::admin::{Admin, Isolation, OffsetQuery, OffsetSpec};
use strandline_client::producer::{
    Compression, Outcome, ProduceErrorKind, Producer, ProducerConfig, ProducerRecord,
};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options};
use tokio::sync::watch;

use crate::reader::connect;
use crate::soon;

const PARTITIONS: i32 = 3;

fn create(kafka: &ApacheKafka, topic: &str, configs: &[&str]) -> anyhow::Result<()> {
    let partitions = PARTITIONS.to_string();
    let mut arguments = vec!["--create", "--topic", topic, "--partitions", &partitions];
    arguments.extend(["--replication-factor", "3", "--config", "min.insync.replicas=2"]);
    arguments.extend(configs.iter().flat_map(|config| ["--config", config]));
    kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &arguments).map(drop)
}

/// For brokers that take long to come back on a busy machine.
fn patient() -> ProducerConfig {
    ProducerConfig { delivery_timeout: Duration::from_secs(600), ..ProducerConfig::default() }
}

/// Offset, headers, key and value of the first so many records of a partition.
fn consumed(kafka: &ApacheKafka, topic: &str, partition: i32, records: usize) -> anyhow::Result<Vec<String>> {
    let (partition, records) = (partition.to_string(), records.to_string());
    let mut arguments = vec!["--topic", topic, "--partition", &partition, "--offset", "earliest"];
    arguments.extend(["--max-messages", &records, "--timeout-ms", "30000"]);
    for property in ["print.offset=true", "print.headers=true", "print.key=true"] {
        arguments.extend(["--formatter-property", property]);
    }
    let stdout = kafka.admin_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments)?;
    Ok(stdout.lines().map(str::to_owned).collect())
}

async fn end_offset(cluster: &Cluster, topic: &str, partition: i32) -> anyhow::Result<Option<i64>> {
    let query = OffsetQuery { topic: topic.into(), partition, spec: OffsetSpec::Latest };
    let mut ends = Admin::new(cluster).list_offsets(&[query], Isolation::ReadUncommitted, soon()).await?;
    Ok(ends.remove(0)?.offset)
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn what_is_written_is_read_by_kafkas_own_consumer_while_brokers_die_and_come_back() -> anyhow::Result<()> {
    let kafka = ApacheKafka::start(Options { brokers: 3, tiered: false, ..Options::default() })?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let cluster = connect(&kafka).await?;
        codecs(&kafka, &cluster).await.context("codecs")?;
        limits(&kafka, &cluster).await.context("limits")?;
        min_isr(&kafka, &cluster).await.context("min ISR")?;
        impatience(&kafka).await.context("impatience")?;
        deaths(&kafka, &cluster).await.context("deaths")
    })
}

async fn codecs(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(kafka, "bills", &[])?;
    let mut expected = Vec::new();
    for compression in
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let linger = Duration::from_millis(50);
        let config = ProducerConfig { compression, linger, ..ProducerConfig::default() };
        let producer = Producer::start(cluster, config)?;
        let mut deliveries = Vec::new();
        for number in 0..100 {
            let (key, value) =
                (format!("k{number}"), format!("{} {number} {}", compression.name(), "x".repeat(90)));
            let headers: &[(&str, Option<&[u8]>)] = &[("codec", Some(compression.name().as_bytes()))];
            let record = ProducerRecord {
                topic: "bills",
                partition: 1,
                key: (number % 10 != 0).then_some(key.as_bytes()),
                value: (number % 10 != 1).then_some(value.as_bytes()),
                headers: if number % 2 == 0 { headers } else { &[] },
                ..ProducerRecord::default()
            };
            deliveries.push(producer.send(record).await?);
            let headers =
                if number % 2 == 0 { format!("codec:{}", compression.name()) } else { "NO_HEADERS".into() };
            let key = if number % 10 == 0 { "null" } else { &key };
            let value = if number % 10 == 1 { "null" } else { &value };
            expected.push(format!("Offset:{}\t{headers}\t{key}\t{value}", expected.len()));
        }
        producer.close(soon()).await;
        for (delivery, offset) in deliveries.into_iter().zip(expected.len() as i64 - 100..) {
            assert_eq!(delivery.await?.offset, offset);
        }
    }
    assert_eq!(consumed(kafka, "bills", 1, expected.len())?, expected);
    assert_eq!(end_offset(cluster, "bills", 1).await?, Some(expected.len() as i64));
    Ok(())
}

/// Batches that the topic does not take are split, and a record that it does not take is told.
async fn limits(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(kafka, "narrow", &["max.message.bytes=2000"])?;
    create(kafka, "states", &["cleanup.policy=compact"])?;
    let linger = Duration::from_millis(200);
    let producer = Producer::start(cluster, ProducerConfig { linger, ..ProducerConfig::default() })?;
    let mut deliveries = Vec::new();
    for number in 0..50 {
        let value = format!("{number} {}", "y".repeat(if number == 30 { 3000 } else { 500 }));
        let record =
            ProducerRecord { topic: "narrow", value: Some(value.as_bytes()), ..ProducerRecord::default() };
        deliveries.push(producer.send(record).await?);
    }
    let mut offset = 0;
    for (number, delivery) in deliveries.into_iter().enumerate() {
        match delivery.await {
            Ok(told) => {
                assert_eq!(told.offset, offset);
                offset += 1;
            }
            Err(error) => {
                assert_eq!((number, error.outcome), (30, Outcome::NotWritten), "{error}");
                assert!(matches!(error.kind, ProduceErrorKind::TooLarge { .. }), "{error}");
            }
        }
    }
    assert_eq!(offset, 49);
    assert_eq!(end_offset(cluster, "narrow", 0).await?, Some(49));

    // A compacted topic wants keys: the broker names the records that have none, and the others are written.
    let mut deliveries = Vec::new();
    for number in 0..6 {
        let key = number.to_string();
        let key = (number != 2).then_some(key.as_bytes());
        let record = ProducerRecord { topic: "states", key, value: Some(b"v"), ..ProducerRecord::default() };
        deliveries.push(producer.send(record).await?);
    }
    let mut offsets = Vec::new();
    for delivery in deliveries {
        offsets.push(delivery.await.map(|told| told.offset).map_err(|error| error.outcome));
    }
    assert_eq!(offsets, [Ok(0), Ok(1), Err(Outcome::NotWritten), Ok(2), Ok(3), Ok(4)]);
    producer.close(soon()).await;
    Ok(())
}

/// With two of three brokers left the partition takes nothing; with three it does.
async fn min_isr(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(kafka, "safe", &["min.insync.replicas=3"])?;
    let producer = Producer::start(cluster, patient())?;
    let record = |value| ProducerRecord { topic: "safe", value: Some(value), ..ProducerRecord::default() };
    assert_eq!(producer.send(record(b"a")).await?.await?.offset, 0);
    let leader = cluster.snapshot().partition("safe", 0).and_then(|partition| partition.leader);
    let leader = usize::try_from(leader.context("it has a leader")?)?;
    let follower = leader % 3 + 1;
    kafka.stop_broker(follower)?;
    let mut delivery = producer.send(record(b"b")).await?;
    let early = tokio::time::timeout(Duration::from_secs(3), &mut delivery).await;
    ensure!(early.is_err(), "two replicas are in sync, and three are wanted: {early:?}");
    kafka.start_broker(follower)?;
    assert_eq!(delivery.await?.offset, 1);
    kafka.wait_until_ready()?;
    producer.close(soon()).await;
    Ok(())
}

/// Answers are waited for so shortly that most are lost: what was told is true all the same, and the broker takes the epochs
/// that follow each other.
async fn impatience(kafka: &ApacheKafka) -> anyhow::Result<()> {
    create(kafka, "hurried", &[])?;
    let mut outcomes = [0; 3];
    let mut values = Vec::new();
    for timeout_ms in [1, 2, 3, 5, 8, 20, 300, 2000] {
        let addresses = BrokerAddress::parse_list(&kafka.bootstrap())?;
        let config = ClusterConfig::new(addresses, ConnectionConfig::default()).read_write();
        let hurried =
            Cluster::connect(config.request_timeout(Duration::from_millis(timeout_ms)), soon()).await;
        // It may be too impatient to find the cluster.
        let Ok(hurried) = hurried else { continue };
        let delivery_timeout = Duration::from_millis(timeout_ms * 4);
        let retry_backoff = Duration::from_millis(1);
        let producer = Producer::start(
            &hurried,
            ProducerConfig { delivery_timeout, retry_backoff, ..ProducerConfig::default() },
        )?;
        for _ in 0..40 {
            let mut deliveries = Vec::new();
            for _ in 0..5 {
                let value = values.len().to_string();
                let record = ProducerRecord {
                    topic: "hurried",
                    value: Some(value.as_bytes()),
                    ..ProducerRecord::default()
                };
                values.push(None);
                deliveries.push((values.len() - 1, producer.send(record).await?));
            }
            for (number, delivery) in deliveries {
                let answer = delivery.await.map(|told| told.offset).map_err(|error| error.outcome);
                outcomes
                    [answer.map_or_else(|outcome| 1 + usize::from(outcome == Outcome::Unknown), |_| 0)] += 1;
                values[number] = Some(answer);
            }
        }
        producer.close(soon()).await;
    }
    let cluster = connect(kafka).await?;
    let producer = Producer::start(&cluster, ProducerConfig::default())?;
    let last = ProducerRecord { topic: "hurried", value: Some(b"last"), ..ProducerRecord::default() };
    let end = producer.send(last).await?.await?.offset;
    let found = consumed(kafka, "hurried", 0, usize::try_from(end)? + 1)?;
    let found: Vec<&str> = found.iter().filter_map(|line| line.rsplit('\t').next()).collect();
    let numbers: Vec<usize> = found.iter().filter_map(|value| value.parse().ok()).collect();
    ensure!(numbers.is_sorted_by(|a, b| a < b), "in order and once: {numbers:?}");
    for (number, answer) in values.into_iter().enumerate() {
        let at = numbers.binary_search(&number).ok().map(|at| at as i64);
        match answer.context("each has an answer")? {
            Ok(offset) => ensure!(at == Some(offset), "{number} is at {at:?}, told was {offset}"),
            Err(Outcome::NotWritten) => ensure!(at.is_none(), "{number} is at {at:?}, told was not written"),
            Err(Outcome::Written) => ensure!(at.is_some(), "{number} is not there, told was written"),
            Err(Outcome::Unknown) => {}
        }
    }
    ensure!(outcomes[0] > 0 && outcomes[2] > 0, "too little happened: {outcomes:?}");
    Ok(())
}

/// Brokers are killed, stopped and started while three partitions are written without a pause.
async fn deaths(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(kafka, "orders", &[])?;
    let producer = Producer::start(cluster, patient())?;
    let stop = Arc::new(AtomicBool::new(false));
    let (written, mut progress) = watch::channel(0_usize);
    let written = Arc::new(written);
    let writers: Vec<_> = (0..PARTITIONS)
        .map(|partition| {
            tokio::spawn(write(producer.clone(), partition, Arc::clone(&stop), Arc::clone(&written)))
        })
        .collect();
    for round in 0..3 {
        let leader = cluster.refresh_topics(&["orders"], soon()).await?;
        let leader = leader.partition("orders", round).and_then(|partition| partition.leader);
        let leader = usize::try_from(leader.context("it has a leader")?)?;
        let before = *progress.borrow_and_update();
        if round == 1 {
            kafka.stop_broker(leader)?
        } else {
            kafka.kill_broker(leader)?
        }
        // All three partitions go on without it: one of them alone could not write so much.
        tokio::time::timeout(Duration::from_secs(180), progress.wait_for(|now| *now > before + 600))
            .await??;
        kafka.start_broker(leader)?;
        kafka.wait_until_ready()?;
    }
    stop.store(true, Ordering::Relaxed);
    for (writer, partition) in writers.into_iter().zip(0..) {
        let values = writer.await?.with_context(|| format!("partition {partition}"))?;
        let expected: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(offset, value)| format!("Offset:{offset}\tNO_HEADERS\tnull\t{value}"))
            .collect();
        assert_eq!(end_offset(cluster, "orders", partition).await?, Some(values.len() as i64));
        ensure!(consumed(kafka, "orders", partition, values.len())? == expected, "the log differs");
    }
    producer.close(soon()).await;
    Ok(())
}

/// Writes until it is told to stop, a few records at a time; all that was written, which is one record for each offset.
async fn write(
    producer: Producer,
    partition: i32,
    stop: Arc<AtomicBool>,
    written: Arc<watch::Sender<usize>>,
) -> anyhow::Result<Vec<String>> {
    let mut values = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut deliveries = Vec::new();
        for _ in 0..10 {
            let value = format!("{partition}-{}", values.len());
            let record = ProducerRecord {
                topic: "orders",
                partition,
                value: Some(value.as_bytes()),
                ..ProducerRecord::default()
            };
            deliveries.push((values.len() as i64, producer.send(record).await?));
            values.push(value);
        }
        for (offset, delivery) in deliveries {
            let told = delivery.await?;
            ensure!(told.offset == offset, "{told:?} has {}", values[offset as usize]);
        }
        written.send_modify(|written| *written += 10);
        // One record after the other would fill the disk.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(values)
}

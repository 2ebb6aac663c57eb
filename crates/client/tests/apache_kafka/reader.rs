//! A partition of a real Apache Kafka, read, and held against what Kafka's own consumer prints.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use strandline_client::admin::Isolation;
use strandline_client::reader::{PartitionReader, ReadErrorKind, ReadPosition, ReaderConfig};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options};

use crate::soon;
use crate::writer::{Transactions, append};

pub(crate) async fn connect(kafka: &ApacheKafka) -> anyhow::Result<Cluster> {
    // Any broker may be killed.
    let addresses = (1..=3).map(|id| kafka.bootstrap_of(id)).collect::<Vec<_>>().join(",");
    let addresses = BrokerAddress::parse_list(&addresses)?;
    Ok(Cluster::connect(ClusterConfig::new(addresses, ConnectionConfig::default()).read_write(), soon())
        .await?)
}

fn config(isolation: Isolation) -> ReaderConfig {
    ReaderConfig { isolation, max_wait: Duration::from_millis(100), ..ReaderConfig::default() }
}

async fn open(cluster: &Cluster, topic: &str, isolation: Isolation) -> anyhow::Result<PartitionReader> {
    let from = ReadPosition::at(0);
    Ok(PartitionReader::open(cluster, topic, 0, from, config(isolation), soon()).await?)
}

/// Reads to the end of the moment: offset, key and value of each record.
async fn read(reader: &mut PartitionReader) -> anyhow::Result<Vec<String>> {
    let text = |bytes: Option<&[u8]>| {
        bytes.map_or("null".into(), |bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let mut lines = Vec::new();
    loop {
        let page = reader
            .next_page(soon(), |record| {
                lines.push(format!("Offset:{}\t{}\t{}", record.offset, text(record.key), text(record.value)));
                ControlFlow::Continue(())
            })
            .await?;
        if reader.position().next_offset >= page.end_offset {
            return Ok(lines);
        }
    }
}

/// What Kafka's consumer prints of the first so many records.
fn consumed(
    kafka: &ApacheKafka,
    topic: &str,
    isolation: &str,
    records: usize,
) -> anyhow::Result<Vec<String>> {
    let records = records.to_string();
    let arguments =
        ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", &records];
    let shown = ["--timeout-ms", "30000", "--isolation-level", isolation];
    let properties = ["print.offset=true", "print.key=true"];
    let properties = properties.iter().flat_map(|property| ["--formatter-property", property]);
    let arguments: Vec<&str> = arguments.into_iter().chain(shown).chain(properties).collect();
    let stdout = kafka.admin_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments)?;
    Ok(stdout.lines().map(str::to_owned).collect())
}

fn create(kafka: &ApacheKafka, topic: &str, configs: &[&str]) -> anyhow::Result<()> {
    let mut arguments = vec!["--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3"];
    arguments.extend(configs.iter().flat_map(|config| ["--config", config]));
    kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &arguments).map(drop)
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn a_partition_reads_as_kafkas_own_consumer_reads_it() -> anyhow::Result<()> {
    // The cleaner of the one test must not wait for long.
    let properties = vec![("log.cleaner.backoff.ms".to_owned(), "100".to_owned())];
    let kafka = ApacheKafka::start(Options { brokers: 3, tiered: false, properties, ..Options::default() })?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let cluster = connect(&kafka).await?;
        transactions(&kafka, &cluster).await.context("transactions")?;
        compaction(&kafka, &cluster).await.context("compaction")?;
        leader_moves(&kafka, &cluster).await.context("leader moves")?;
        stops(&kafka, &cluster).await.context("stops")
    })
}

async fn transactions(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(kafka, "payments", &[])?;
    let mut first = Transactions::begin(cluster, "first", "payments").await?;
    let mut second = Transactions::begin(cluster, "second", "payments").await?;
    append(cluster, "payments", None, &[(Some("plain"), "a")]).await?;
    first.write(&["first is undone"]).await?;
    second.write(&["second stays", "second stays too"]).await?;
    first.write(&["first is undone too"]).await?;
    first.end(false).await?;
    first.write(&["first stays"]).await?;
    second.end(true).await?;
    first.end(true).await?;
    second.write(&["second is open"]).await?;
    append(cluster, "payments", None, &[(None, "behind it")]).await?;

    let mut every = open(cluster, "payments", Isolation::ReadUncommitted).await?;
    let lines = read(&mut every).await?;
    ensure!(lines.len() == 8, "{lines:?}");
    assert_eq!(lines, consumed(kafka, "payments", "read_uncommitted", lines.len())?);
    let mut committed = open(cluster, "payments", Isolation::ReadCommitted).await?;
    let mut lines = read(&mut committed).await?;
    ensure!(lines.len() == 4, "{lines:?}");
    second.end(false).await?;
    // The marker is written by the coordinator, a moment after its answer.
    let deadline = soon();
    while lines.len() == 4 && tokio::time::Instant::now() < deadline {
        lines.extend(read(&mut committed).await?);
    }
    assert_eq!(lines, consumed(kafka, "payments", "read_committed", 5)?);
    Ok(())
}

async fn compaction(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    let configs = [
        "cleanup.policy=compact",
        "min.cleanable.dirty.ratio=0.01",
        "segment.ms=100",
        "max.compaction.lag.ms=1",
    ];
    create(kafka, "prices", &configs)?;
    let written = 200;
    for number in 0..written {
        let (key, value) = (format!("k{}", number % 7), format!("v{number}"));
        append(cluster, "prices", None, &[(Some(&key), &value), (Some("twice"), &value)]).await?;
    }
    // Compaction leaves the active segment alone, so something has to be written for it to go on.
    let deadline = soon();
    let lines = loop {
        append(cluster, "prices", None, &[(Some("last"), "x")]).await?;
        let lines = read(&mut open(cluster, "prices", Isolation::ReadCommitted).await?).await?;
        let first: i64 =
            lines[0].trim_start_matches("Offset:").split('\t').next().context("an offset")?.parse()?;
        if first > written {
            break lines;
        }
        ensure!(tokio::time::Instant::now() < deadline, "nothing was compacted: {} records", lines.len());
    };
    let shown = consumed(kafka, "prices", "read_committed", lines.len())?;
    // The cleaner goes on between the two readings; what both have is the same.
    let mut both = 0;
    for line in &shown {
        let offset = line.split('\t').next().unwrap_or_default();
        if let Some(ours) = lines.iter().find(|ours| ours.split('\t').next() == Some(offset)) {
            assert_eq!(ours, line);
            both += 1;
        }
    }
    ensure!(both > 0 && lines.len() < usize::try_from(written)?, "{} records, {both} in both", lines.len());
    Ok(())
}

async fn leader_moves(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(kafka, "orders", &["min.insync.replicas=1"])?;
    let mut reader = open(cluster, "orders", Isolation::ReadUncommitted).await?;
    let mut lines = Vec::new();
    let mut killed = None;
    for round in 0..6 {
        for number in 0..20 {
            append(cluster, "orders", None, &[(None, &format!("{round}-{number}"))]).await?;
        }
        lines.extend(read(&mut reader).await?);
        // Every other round the leader dies while the reader waits for more of it; then it comes back.
        match killed.take() {
            None => {
                let view = cluster.refresh_topics(&["orders"], soon()).await?;
                let leader = view.partition("orders", 0).and_then(|partition| partition.leader);
                let leader = usize::try_from(leader.context("it has a leader")?)?;
                kafka.kill_broker(leader)?;
                killed = Some(leader);
            }
            Some(leader) => {
                kafka.start_broker(leader)?;
                kafka.wait_until_ready()?;
            }
        }
    }
    let offsets: Vec<String> = (0..120).map(|offset| format!("Offset:{offset}")).collect();
    let read: Vec<&str> = lines.iter().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(read, offsets);
    assert!(reader.position().leader_epoch > Some(0), "{:?}", reader.position());
    assert_eq!(lines, consumed(kafka, "orders", "read_uncommitted", lines.len())?);
    Ok(())
}

async fn stops(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    let mut reader = open(cluster, "orders", Isolation::ReadUncommitted).await?;
    kafka.delete_records("orders", 0, 50)?;
    let stop = read(&mut reader).await.expect_err("offset 0 is deleted");
    let stop = stop.downcast::<strandline_client::reader::ReadError>()?;
    let expected = ReadErrorKind::OutOfRange { offset: 0, log_start_offset: 50, log_end_offset: 120 };
    assert_eq!(format!("{:?}", stop.kind), format!("{expected:?}"));
    reader.seek(ReadPosition::at(50));
    ensure!(read(&mut reader).await?.len() == 70);

    let old = reader.topic_id().context("topics have ids")?;
    kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &["--delete", "--topic", "orders"])?;
    create(kafka, "orders", &[])?;
    let stop = read(&mut reader).await.expect_err("it is another topic");
    let stop = stop.downcast::<strandline_client::reader::ReadError>()?;
    match stop.kind {
        ReadErrorKind::Recreated { known, now } => {
            ensure!(known == Some(old) && now != Some(old), "{known:?} {now:?}");
        }
        kind => anyhow::bail!("{kind:?}"),
    }
    Ok(())
}

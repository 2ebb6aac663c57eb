//! Batches in every codec: what we write, the Java consumer and librdkafka read, and we read what Java's producer and
//! librdkafka write.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use strandline_client::producer::{Compression, ProducerConfig};
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _, MetadataEventLog,
    MetadataEventRecord, MetadataEventVisitor,
};
use strandline_meta::Cluster;
use strandline_testkit::apache::{ApacheKafka, python_with};
use tokio::task::block_in_place;

use crate::soon;
use crate::topic::create;

const TOPIC: &str = "every_codec";
/// One for each partition of the topic, in the order of their numbers in a batch.
const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
/// Of each writer in each partition.
const RECORDS: i64 = 40;
/// Set to 1, what cannot run fails instead of being left out.
const REQUIRE_KAFKA: &str = "STRANDLINE_REQUIRE_KAFKA";
/// The wheel brings librdkafka along.
const LIBRDKAFKA: &str = "confluent-kafka==2.14.2";

/// Value by partition and offset.
type Values = BTreeMap<(i32, i64), String>;

pub(crate) async fn every_codec_both_ways(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    create(cluster, TOPIC, i32::try_from(CODECS.len())?, &[]).await?;

    let mut expected =
        try_join_all(CODECS.into_iter().zip(0..).map(|(codec, partition)| write(cluster, partition, codec)))
            .await?;
    let mut expected: Values = expected.drain(..).flatten().collect();
    let bootstrap = kafka.bootstrap();
    let names = CODECS.map(Compression::name);
    let records = RECORDS.to_string();
    let arguments = [&[&*bootstrap, TOPIC, &records], &names[..]].concat();

    let output = block_in_place(|| kafka.tool("Codecs", &arguments))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(printed(&output.stdout)? == expected, "the Java consumer reads {:?}", printed(&output.stdout)?);
    expect_of("java", &mut expected);

    match block_in_place(|| python_with(LIBRDKAFKA)) {
        Ok(python) => {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apache_kafka/codecs.py");
            let output = block_in_place(|| python.run(&script, &arguments))?;
            ensure!(printed(&output.stdout)? == expected, "librdkafka reads {:?}", printed(&output.stdout)?);
            expect_of("librdkafka", &mut expected);
        }
        Err(lacking) if std::env::var_os(REQUIRE_KAFKA).is_some_and(|value| value == "1") => {
            return Err(lacking);
        }
        Err(lacking) => eprintln!("librdkafka is left out: {lacking:#}"),
    }

    let log = log(cluster, Compression::None).await?;
    let mut read = Values::new();
    for marks in log.high_water_marks().await {
        let visit = log.visit_range(marks?.range(), Texts(Values::new())).await;
        ensure!(visit.error.is_none(), "{:?}", visit.error);
        read.extend(visit.visitor.0);
    }
    ensure!(read == expected, "we read {read:?}");
    log.close().await;

    // And the codecs were really in use.
    for (codec, partition) in CODECS.into_iter().zip(0..) {
        let segment = kafka.data_dir(1).join(format!("{TOPIC}-{partition}/00000000000000000000.log"));
        let codecs = codecs_of(&std::fs::read(&segment)?).with_context(|| segment.display().to_string())?;
        ensure!(codecs.len() > 1 && codecs.iter().all(|&id| id == codec.id()), "{codec:?}: {codecs:?}");
    }
    Ok(())
}

async fn log(cluster: &Cluster, compression: Compression) -> anyhow::Result<KafkaMetadataEventLog> {
    let producer =
        ProducerConfig { compression, linger: Duration::from_millis(50), ..ProducerConfig::default() };
    let config =
        KafkaMetadataLogConfig { topic: TOPIC.to_owned(), producer, ..KafkaMetadataLogConfig::default() };
    Ok(KafkaMetadataEventLog::start(cluster, config, soon()).await?)
}

fn value(who: &str, codec: Compression, number: i64) -> String {
    format!("{who} {} {number} {}", codec.name(), "x".repeat(90))
}

async fn write(cluster: &Cluster, partition: i32, codec: Compression) -> anyhow::Result<Values> {
    let log = log(cluster, codec).await?;
    let values: Vec<_> = (0..RECORDS).map(|number| value("ours", codec, number)).collect();
    let publish = |value: &String| log.publish(partition, value.clone().into(), soon());
    let offsets = try_join_all(values.iter().map(publish)).await?;
    log.close().await;
    Ok(offsets.into_iter().map(|offset| (partition, offset)).zip(values).collect())
}

/// What another writer has put behind what was there.
fn expect_of(who: &str, expected: &mut Values) {
    for (codec, partition) in CODECS.into_iter().zip(0..) {
        let end = expected.range((partition, 0)..(partition + 1, 0)).count() as i64;
        expected.extend((0..RECORDS).map(|number| ((partition, end + number), value(who, codec, number))));
    }
}

/// What a program prints: partition, offset and value of each record.
fn printed(stdout: &[u8]) -> anyhow::Result<Values> {
    let record = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().context("three words to a line");
        Ok(((word()?.parse()?, word()?.parse()?), word()?.to_owned()))
    };
    std::str::from_utf8(stdout)?.lines().map(record).collect()
}

struct Texts(Values);

impl MetadataEventVisitor for Texts {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        let text = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
        self.0.insert((record.partition, record.offset), text);
        ControlFlow::Continue(())
    }
}

/// The codec's number of each batch in the bytes of a segment.
fn codecs_of(mut segment: &[u8]) -> anyhow::Result<Vec<i16>> {
    let mut codecs = Vec::new();
    while let Some((head, _)) = segment.split_at_checked(23) {
        let length = u32::from_be_bytes(head[8..12].try_into()?);
        codecs.push(i16::from(head[22] & 7));
        segment = segment.get(12 + usize::try_from(length)?..).context("a batch that is not whole")?;
    }
    Ok(codecs)
}

//! golden-events: the bytes of events, what cannot be read, and whole batches as a broker stores them.

use std::collections::HashMap;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use strandline_protocol::records::{Batches, Decompressor, Record, TimestampType};
use strandline_tier::codec::{self, DecodeError, DecodeProblem};
use strandline_tier::json::{self, EventPosition};
use strandline_tier::{MetadataPartitioner, RawEvent, RecordValue};

use super::{Tally, from_hex, same, to_hex};

/// The version whose answers count.
const REFERENCE: &str = "4.3.1";

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    vectors: Vec<Vector>,
    #[serde(default)]
    decode_only: Vec<DecodeOnly>,
    #[serde(default)]
    errors: Vec<Failure>,
    #[serde(default)]
    version_dependent: Vec<VersionDependent>,
    #[serde(default)]
    captured_batches: Vec<CapturedBatch>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    api_key: Option<u8>,
    version: Option<u8>,
    len: Option<usize>,
    hex: String,
    event: Value,
}

#[derive(Deserialize)]
struct DecodeOnly {
    name: String,
    hex: String,
    event: Value,
    reencoded_hex: Option<String>,
    reencode_identical: Option<bool>,
}

#[derive(Deserialize)]
struct Failure {
    name: String,
    hex: Option<String>,
    error: String,
    cause: Option<String>,
}

#[derive(Deserialize)]
struct VersionDependent {
    name: String,
    hex: String,
    event: Option<Value>,
    /// By version: "ok" or the error.
    #[serde(flatten)]
    outcomes: HashMap<String, Value>,
}

#[derive(Deserialize)]
struct CapturedBatch {
    metadata_partition: i32,
    num_partitions: i32,
    hex: String,
    base_offset: i64,
    partition_leader_epoch: i32,
    compression: String,
    timestamp_type: String,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    max_timestamp: i64,
    records: Vec<CapturedRecord>,
}

#[derive(Deserialize)]
struct CapturedRecord {
    offset: i64,
    timestamp: i64,
    key: Option<String>,
    headers: usize,
    value_hex: Option<String>,
    event: Option<Value>,
}

pub(super) fn check(file: &File) -> Tally {
    let mut tally = Tally::default();
    for vector in &file.vectors {
        tally.entry(&vector.name, check_vector(vector));
    }
    for entry in &file.decode_only {
        tally.entry(&entry.name, check_decode_only(entry));
    }
    for entry in &file.errors {
        tally.entry(&entry.name, check_failure(entry));
    }
    for entry in &file.version_dependent {
        tally.entry(&entry.name, check_version_dependent(entry));
    }
    for batch in &file.captured_batches {
        let name = format!("batch {}:{}", batch.metadata_partition, batch.base_offset);
        tally.entry(name, check_batch(batch));
    }
    tally
}

fn check_vector(vector: &Vector) -> anyhow::Result<()> {
    let bytes = from_hex(&vector.hex)?;
    let event = parse_event(&vector.event)?;
    let mut encoded = Vec::new();
    codec::encode(&event, &mut encoded)?;
    same("encoded", to_hex(&encoded), vector.hex.clone())?;
    same("length", encoded.len(), vector.len.unwrap_or(encoded.len()))?;
    // Frame version, api key and message version are one byte each in canonical form.
    same("api key", encoded[1], vector.api_key.unwrap_or(encoded[1]))?;
    same("version", encoded[2], vector.version.unwrap_or(encoded[2]))?;
    check_decoded(&bytes, &vector.event)
}

fn check_decode_only(entry: &DecodeOnly) -> anyhow::Result<()> {
    let bytes = from_hex(&entry.hex)?;
    check_decoded(&bytes, &entry.event)?;
    let mut encoded = Vec::new();
    codec::encode(&codec::decode(&bytes)?, &mut encoded)?;
    if let Some(golden) = &entry.reencoded_hex {
        same("encoded again", to_hex(&encoded), golden.clone())?;
    }
    same("encoded again alike", encoded == bytes, entry.reencode_identical.unwrap_or(encoded == bytes))
}

fn check_failure(entry: &Failure) -> anyhow::Result<()> {
    let bytes = entry.hex.as_deref().map(from_hex).transpose()?;
    let (error, cause) = kafka_failure(bytes.as_deref()).context("no failure")?;
    same("error", error, &entry.error)?;
    same("cause", cause, entry.cause.as_deref())
}

fn check_version_dependent(entry: &VersionDependent) -> anyhow::Result<()> {
    let outcome = entry.outcomes.get(REFERENCE).and_then(Value::as_str);
    let outcome = outcome.with_context(|| format!("no outcome for {REFERENCE}"))?;
    let bytes = from_hex(&entry.hex)?;
    if outcome == "ok" {
        return check_decoded(&bytes, entry.event.as_ref().context("an outcome ok needs an event")?);
    }
    let (error, _) = kafka_failure(Some(&bytes)).context("no failure")?;
    same("error", error, outcome)
}

fn check_decoded(bytes: &[u8], golden: &Value) -> anyhow::Result<()> {
    let event = codec::decode(bytes)?;
    event.check()?;
    same("event", &event, &parse_event(golden)?)?;
    // The line that we write holds the same fields, but for the number of a state that has a name.
    let mut line = Vec::new();
    json::write_event(&mut line, &EventPosition::default(), &RecordValue::Event(event));
    let mut golden = golden.clone();
    golden.as_object_mut().context("the event is no object")?.shift_remove("state_id");
    same("line", serde_json::from_slice::<Value>(&line)?, golden)
}

fn parse_event(golden: &Value) -> anyhow::Result<RawEvent<'static>> {
    match json::parse_event(golden.to_string().as_bytes())?.1.into_owned() {
        RecordValue::Event(event) => Ok(event),
        other => bail!("{other:?} is no event"),
    }
}

/// The Java exception that Kafka answers a record's value with, and its cause; `None` when it is accepted.
fn kafka_failure(value: Option<&[u8]>) -> Option<(&'static str, Option<&'static str>)> {
    let Some(bytes) = value else {
        return Some(("NullPointerException", None));
    };
    match codec::decode(bytes) {
        Err(error) => Some(("MetadataParseException", kafka_cause(&error))),
        Ok(event) => event.check().err().map(|error| (error.kafka_exception(), None)),
    }
}

fn kafka_cause(error: &DecodeError) -> Option<&'static str> {
    match error.problem {
        DecodeProblem::LengthTooLarge { length, .. } if length > i32::MAX as usize => {
            Some("NegativeArraySizeException")
        }
        DecodeProblem::Truncated { .. } => Some("BufferUnderflowException"),
        DecodeProblem::UnknownApiKey { .. } | DecodeProblem::UnsupportedVersion { .. } => {
            Some("UnsupportedVersionException")
        }
        DecodeProblem::LengthTooLarge { .. }
        | DecodeProblem::Null
        | DecodeProblem::CountTooLarge { .. }
        | DecodeProblem::StringTooLong { .. } => Some("RuntimeException"),
        DecodeProblem::VarintTooLong => Some("IllegalArgumentException"),
        _ => None,
    }
}

fn check_batch(golden: &CapturedBatch) -> anyhow::Result<()> {
    let bytes = from_hex(&golden.hex)?;
    let mut batches = Batches::new(&bytes);
    let batch = batches.next().context("no whole batch")??;
    ensure!(batches.next().is_none() && batches.tail().is_none(), "more than one batch");
    let header = &batch.header;
    same("base offset", header.base_offset, golden.base_offset)?;
    same("leader epoch", header.partition_leader_epoch, golden.partition_leader_epoch)?;
    let compression = header.attributes.compression().map(|compression| compression.name());
    same("compression", compression, Ok(&*golden.compression))?;
    let timestamp_type = match header.attributes.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    same("timestamp type", timestamp_type, &golden.timestamp_type)?;
    same("producer id", header.producer_id, golden.producer_id)?;
    same("producer epoch", header.producer_epoch, golden.producer_epoch)?;
    same("base sequence", header.base_sequence, golden.base_sequence)?;
    same("transactional", header.attributes.is_transactional(), golden.transactional)?;
    same("largest timestamp", header.max_timestamp_ms, golden.max_timestamp)?;

    let partitioner = MetadataPartitioner::new(golden.num_partitions).context("no partitions")?;
    let mut decompressor = Decompressor::default();
    let records: Vec<_> = batch.records(&mut decompressor)?.collect::<Result<_, _>>()?;
    same("count of records", records.len(), golden.records.len())?;
    for (record, golden_record) in records.iter().zip(&golden.records) {
        check_record(record, golden_record, partitioner, golden.metadata_partition)
            .with_context(|| format!("record {}", golden_record.offset))?;
    }
    Ok(())
}

fn check_record(
    record: &Record<'_>,
    golden: &CapturedRecord,
    partitioner: MetadataPartitioner,
    metadata_partition: i32,
) -> anyhow::Result<()> {
    same("offset", record.offset, golden.offset)?;
    same("timestamp", record.timestamp_ms, golden.timestamp)?;
    same("key", record.key.map(to_hex), golden.key.clone())?;
    same("count of headers", record.headers.len(), golden.headers)?;
    same("value", record.value.map(to_hex), golden.value_hex.clone())?;
    let (Some(value), Some(golden)) = (record.value, &golden.event) else {
        return Ok(());
    };
    check_decoded(value, golden)?;
    let event = codec::decode(value)?;
    if let Some(partition) = event.topic_id_partition() {
        let chosen = partitioner.metadata_partition(partition.topic_id, partition.partition);
        same("metadata partition", chosen, metadata_partition)?;
    }
    let mut encoded = Vec::new();
    codec::encode(&event, &mut encoded)?;
    same("encoded", to_hex(&encoded), to_hex(value))
}

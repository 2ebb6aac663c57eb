//! Batches that Apache Kafka wrote: `data/*.log` (see `data/README.md`), and those of the golden events.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]
use serde_json::Value;
use strandline_protocol::records::{
    BATCH_HEADER_BYTES, Batch, BatchBuilder, BatchHeader, BatchOptions, Batches, Compression, Decompressor,
    NewRecord, Producer, TimestampType,
};

const SMALL: &str = r#"
0 k1 = "first value, first value, first value, first value, first value" {trace=a1 empty=}
1 k2 = "second value" {trace=a2}
2 null = "a value without a key" {trace=a3}
3 k4 = null {trace=a4}
"#;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// One line per record.
fn show(log: &[u8]) -> String {
    let mut decompressor = Decompressor::default();
    let mut shown = String::from("\n");
    for batch in Batches::new(log) {
        let batch = batch.unwrap();
        for record in batch.records(&mut decompressor).unwrap() {
            let record = record.unwrap();
            let key = record.key.map_or("null", text);
            let value = match record.value.map(text) {
                None => "null".to_owned(),
                Some(value) if value.len() < 100 => format!("{value:?}"),
                Some(value) => {
                    let piece = "a value of more than one block, ";
                    assert_eq!(value, piece.repeat(value.len() / piece.len()));
                    format!("{} times {piece:?}", value.len() / piece.len())
                }
            };
            let headers: Vec<_> = record
                .headers
                .map(|header| format!("{}={}", text(header.key), header.value.map_or("null", text)))
                .collect();
            shown += &format!("{} {key} = {value} {{{}}}\n", record.offset, headers.join(" "));
        }
    }
    shown
}

fn only_compression(log: &[u8]) -> Compression {
    let mut seen = Batches::new(log).map(|batch| batch.unwrap().header.attributes.compression().unwrap());
    let first = seen.next().unwrap();
    assert!(seen.all(|other| other == first));
    first
}

#[test]
fn kafkas_batches_read_in_every_codec() {
    assert_eq!(show(include_bytes!("data/none.log")), SMALL);
    let large = format!("{SMALL}4 k5 = 3000 times \"a value of more than one block, \" {{trace=a5}}\n");
    let logs: [(&[u8], _); 4] = [
        (include_bytes!("data/gzip.log"), Compression::Gzip),
        (include_bytes!("data/snappy.log"), Compression::Snappy),
        (include_bytes!("data/lz4.log"), Compression::Lz4),
        (include_bytes!("data/zstd.log"), Compression::Zstd),
    ];
    for (log, compression) in logs {
        assert_eq!(only_compression(log), compression);
        assert_eq!(show(log), large, "{compression:?}");
    }
}

#[test]
fn kafkas_transactional_and_control_batches_are_told_apart() {
    let mut decompressor = Decompressor::default();
    let mut shown = String::new();
    for batch in Batches::new(include_bytes!("data/transaction.log")) {
        let batch = batch.unwrap();
        let header = &batch.header;
        let attributes = header.attributes;
        let same_time = batch.records(&mut decompressor).unwrap().all(|record| {
            attributes.timestamp_type() == TimestampType::CreateTime
                || record.unwrap().timestamp_ms == header.max_timestamp_ms
        });
        shown += &format!(
            "{}..{} records={} control={} transactional={} {:?} sequence={} all at the batch's time={}\n",
            header.base_offset,
            header.next_offset(),
            header.record_count,
            attributes.is_control(),
            attributes.is_transactional(),
            attributes.timestamp_type(),
            header.base_sequence,
            same_time,
        );
    }
    insta::assert_snapshot!(shown, @r"
    0..3 records=3 control=false transactional=true LogAppendTime sequence=0 all at the batch's time=true
    3..4 records=1 control=true transactional=true LogAppendTime sequence=-1 all at the batch's time=true
    ");
}

fn golden() -> Vec<Value> {
    let text = include_str!("../../../tests/golden/golden-events.json");
    let golden: Value = serde_json::from_str(text).unwrap();
    golden["captured_batches"].as_array().unwrap().clone()
}

fn unhex(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_golden_batches_decode_to_what_kafka_says_of_them() {
    let golden = golden();
    assert!(!golden.is_empty());
    for expected in &golden {
        let bytes = unhex(&expected["hex"]);
        let mut batches = Batches::new(&bytes);
        let batch = batches.next().unwrap().unwrap();
        assert!(batches.next().is_none() && batches.tail().is_none());
        let header = &batch.header;
        let actual = serde_json::json!({
            "base_offset": header.base_offset,
            "partition_leader_epoch": header.partition_leader_epoch,
            "compression": header.attributes.compression().unwrap().name(),
            "timestamp_type": format!("{:?}", header.attributes.timestamp_type()),
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.attributes.is_transactional(),
            "max_timestamp": header.max_timestamp_ms,
        });
        for (name, value) in actual.as_object().unwrap() {
            assert_eq!(value, &expected[name], "{name}");
        }
        let mut decompressor = Decompressor::default();
        let records: Result<Vec<_>, _> = batch.records(&mut decompressor).unwrap().collect();
        let (records, expected) = (records.unwrap(), expected["records"].as_array().unwrap());
        assert_eq!(records.len(), expected.len());
        for (record, expected) in records.iter().zip(expected) {
            assert_eq!(record.offset, expected["offset"]);
            assert_eq!(record.timestamp_ms, expected["timestamp"]);
            assert!(record.key.is_none() && expected["key"].is_null());
            assert_eq!(record.headers.len(), expected["headers"].as_u64().unwrap() as usize);
            assert_eq!(record.value.unwrap(), unhex(&expected["value_hex"]));
        }
    }
}

/// The same batch, written by our builder.
fn rebuilt(batch: &Batch<'_>, compression: Compression) -> Vec<u8> {
    let header = &batch.header;
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: header.base_offset,
        partition_leader_epoch: header.partition_leader_epoch,
        compression,
        timestamp_type: header.attributes.timestamp_type(),
        producer: Some(Producer {
            id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        }),
        transactional: header.attributes.is_transactional(),
        control: header.attributes.is_control(),
        delete_horizon_ms: header.delete_horizon_ms(),
    });
    for record in batch.records(&mut Decompressor::default()).unwrap() {
        let record = record.unwrap();
        let headers: Vec<_> = record.headers.map(|header| (text(header.key), header.value)).collect();
        let (timestamp_ms, key, value) = (record.timestamp_ms, record.key, record.value);
        builder.push_at(record.offset, NewRecord { timestamp_ms, key, value, headers: &headers }).unwrap();
    }
    let mut out = Vec::new();
    builder.finish(&mut out).unwrap();
    out
}

#[test]
fn kafkas_uncompressed_batches_are_written_back_bit_for_bit() {
    let mut logs: Vec<Vec<u8>> = golden()
        .iter()
        .filter(|batch| batch["compression"] == "none")
        .map(|batch| unhex(&batch["hex"]))
        .collect();
    assert!(!logs.is_empty());
    logs.push(include_bytes!("data/none.log").to_vec());
    for log in &logs {
        let rebuilt: Vec<u8> =
            Batches::new(log).flat_map(|batch| rebuilt(&batch.unwrap(), Compression::None)).collect();
        assert_eq!(&rebuilt, log);
    }
}

#[test]
fn kafkas_headers_are_written_back_bit_for_bit() {
    let logs: [&[u8]; 6] = [
        include_bytes!("data/none.log"),
        include_bytes!("data/gzip.log"),
        include_bytes!("data/snappy.log"),
        include_bytes!("data/lz4.log"),
        include_bytes!("data/zstd.log"),
        include_bytes!("data/transaction.log"),
    ];
    for log in logs {
        for batch in Batches::new(log) {
            let batch = batch.unwrap();
            let bytes: &[u8; BATCH_HEADER_BYTES] = batch.bytes.first_chunk().unwrap();
            assert_eq!(&batch.header.encode(), bytes);
            assert_eq!(BatchHeader::decode(bytes, 0).unwrap(), batch.header);
        }
    }
}

#[test]
fn kafkas_compressed_batches_are_written_back_record_for_record() {
    let logs: [&[u8]; 4] = [
        include_bytes!("data/gzip.log"),
        include_bytes!("data/snappy.log"),
        include_bytes!("data/lz4.log"),
        include_bytes!("data/zstd.log"),
    ];
    for log in logs {
        let compression = only_compression(log);
        let rebuilt: Vec<u8> =
            Batches::new(log).flat_map(|batch| rebuilt(&batch.unwrap(), compression)).collect();
        assert_eq!(only_compression(&rebuilt), compression);
        assert_eq!(show(&rebuilt), show(log));
    }
}

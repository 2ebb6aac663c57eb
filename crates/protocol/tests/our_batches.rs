//! Batches that we write, read by Apache Kafka's own tool.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use strandline_protocol::records::{BatchBuilder, BatchOptions, Compression, NewRecord, Producer};
use strandline_testkit::apache::{ApacheKafka, Options};

/// Larger than a block of snappy or lz4.
const PIECE: &str = "a value of more than one block, ";
const PIECES: usize = 3000;

/// A batch in each codec, each with a gap in its offsets, then one without records.
fn segment() -> Vec<u8> {
    let large = PIECE.repeat(PIECES);
    let mut segment = Vec::new();
    let mut base_offset = 0;
    for compression in
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            partition_leader_epoch: 3,
            compression,
            producer: Some(Producer { id: 7, epoch: 1, base_sequence: 40 }),
            transactional: true,
            ..BatchOptions::default()
        });
        let headers: &[_] = &[("h", Some(&b"x"[..])), ("n", None)];
        let first =
            NewRecord { timestamp_ms: 1_700_000_000_000, key: Some(b"k"), value: Some(b"v"), headers };
        let second = NewRecord { key: None, value: Some(large.as_bytes()), headers: &[], ..first };
        let third = NewRecord { timestamp_ms: 1_699_999_999_999, key: Some(b""), value: None, headers: &[] };
        builder.push(first).unwrap();
        builder.push_at(base_offset + 2, second).unwrap();
        builder.push(third).unwrap();
        base_offset = builder.next_offset();
        builder.finish(&mut segment).unwrap();
    }
    let mut builder = BatchBuilder::new(BatchOptions { base_offset, ..BatchOptions::default() });
    builder.extend_to(base_offset + 5).unwrap();
    builder.finish(&mut segment).unwrap();
    segment
}

/// What the tool says of each batch that can change, and of each record.
fn shown(dump: &str) -> String {
    const OF_BATCH: &[&str] =
        &["baseOffset:", "lastOffset:", "count:", "baseSequence:", "compresscodec:", "isvalid:"];
    let large = PIECE.repeat(PIECES);
    let mut lines = Vec::new();
    for line in dump.lines() {
        if line.starts_with("| offset") {
            lines.push(line.replace(&large, "LARGE").trim_end().to_owned());
        } else if line.starts_with("baseOffset") {
            let words: Vec<_> = line.split(' ').collect();
            let pairs = words.windows(2).filter(|pair| OF_BATCH.contains(&pair[0]));
            lines.push(pairs.map(|pair| pair.join(" ")).collect::<Vec<_>>().join(" "));
        }
    }
    lines.join("\n")
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn kafka_reads_what_we_write_in_every_codec() {
    let kafka = ApacheKafka::start(Options { tiered: false, ..Options::default() }).unwrap();
    let file = kafka.directory().join("00000000000000000000.log");
    std::fs::write(&file, segment()).unwrap();
    let arguments = ["--deep-iteration", "--print-data-log", "--files", file.to_str().unwrap()];
    let output = kafka.tool("org.apache.kafka.tools.DumpLogSegments", &arguments).unwrap();
    assert!(output.status.success(), "{output:?}");
    insta::assert_snapshot!(shown(std::str::from_utf8(&output.stdout).unwrap()), @r"
    baseOffset: 0 lastOffset: 3 count: 3 baseSequence: 40 compresscodec: none isvalid: true
    | offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: 40 headerKeys: [h,n] key: k payload: v
    | offset: 2 CreateTime: 1700000000000 keySize: -1 valueSize: 96000 sequence: 42 headerKeys: [] payload: LARGE
    | offset: 3 CreateTime: 1699999999999 keySize: 0 valueSize: -1 sequence: 43 headerKeys: [] key:
    baseOffset: 4 lastOffset: 7 count: 3 baseSequence: 40 compresscodec: gzip isvalid: true
    | offset: 4 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: 40 headerKeys: [h,n] key: k payload: v
    | offset: 6 CreateTime: 1700000000000 keySize: -1 valueSize: 96000 sequence: 42 headerKeys: [] payload: LARGE
    | offset: 7 CreateTime: 1699999999999 keySize: 0 valueSize: -1 sequence: 43 headerKeys: [] key:
    baseOffset: 8 lastOffset: 11 count: 3 baseSequence: 40 compresscodec: snappy isvalid: true
    | offset: 8 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: 40 headerKeys: [h,n] key: k payload: v
    | offset: 10 CreateTime: 1700000000000 keySize: -1 valueSize: 96000 sequence: 42 headerKeys: [] payload: LARGE
    | offset: 11 CreateTime: 1699999999999 keySize: 0 valueSize: -1 sequence: 43 headerKeys: [] key:
    baseOffset: 12 lastOffset: 15 count: 3 baseSequence: 40 compresscodec: lz4 isvalid: true
    | offset: 12 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: 40 headerKeys: [h,n] key: k payload: v
    | offset: 14 CreateTime: 1700000000000 keySize: -1 valueSize: 96000 sequence: 42 headerKeys: [] payload: LARGE
    | offset: 15 CreateTime: 1699999999999 keySize: 0 valueSize: -1 sequence: 43 headerKeys: [] key:
    baseOffset: 16 lastOffset: 19 count: 3 baseSequence: 40 compresscodec: zstd isvalid: true
    | offset: 16 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: 40 headerKeys: [h,n] key: k payload: v
    | offset: 18 CreateTime: 1700000000000 keySize: -1 valueSize: 96000 sequence: 42 headerKeys: [] payload: LARGE
    | offset: 19 CreateTime: 1699999999999 keySize: 0 valueSize: -1 sequence: 43 headerKeys: [] key:
    baseOffset: 20 lastOffset: 24 count: 0 baseSequence: -1 compresscodec: none isvalid: true
    ");
}

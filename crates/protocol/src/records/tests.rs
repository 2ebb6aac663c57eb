//! Round trips, and what happens to damaged bytes. What Apache Kafka wrote is read in `tests/kafka_batches.rs`.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

type OwnedHeader = (String, Option<Vec<u8>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    offset: i64,
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

fn encode(options: BatchOptions, records: &[Owned]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for record in records {
        let headers: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        let new = NewRecord {
            timestamp_ms: record.timestamp_ms,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        };
        builder.push_at(record.offset, new).unwrap();
    }
    let mut out = Vec::new();
    builder.finish(&mut out).unwrap();
    out
}

fn decode(batch: &Batch<'_>) -> Result<Vec<Owned>, BatchError> {
    let mut decompressor = Decompressor::new(1 << 20);
    let records = batch.records(&mut decompressor)?;
    records
        .map(|record| {
            let record = record?;
            let header =
                |h: Header<'_>| (String::from_utf8_lossy(h.key).into_owned(), h.value.map(<[u8]>::to_vec));
            Ok(Owned {
                offset: record.offset,
                timestamp_ms: record.timestamp_ms,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers.map(header).collect(),
            })
        })
        .collect()
}

/// Reads everything there is to read of any bytes: must neither panic nor hang.
fn walk(bytes: &[u8]) -> (usize, Option<BatchError>) {
    let mut batches = Batches::new(bytes);
    let mut whole = 0;
    for batch in &mut batches {
        match batch.and_then(|batch| decode(&batch)) {
            Ok(_) => whole += 1,
            Err(error) => return (whole, Some(error)),
        }
    }
    let _ = batches.tail();
    (whole, None)
}

fn record(offset: i64, value: &[u8]) -> Owned {
    Owned { offset, timestamp_ms: 1_700_000_000_000, key: None, value: Some(value.to_vec()), headers: vec![] }
}

fn with_crc(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = batch::crc_of(&batch).to_be_bytes();
    batch[17..21].copy_from_slice(&crc);
    batch
}

/// The error of the only batch, causes included.
fn error_of(bytes: &[u8]) -> String {
    let (_, error) = walk(bytes);
    let error = error.expect("an error");
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn bytes_option() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(vec(any::<u8>(), 0..40))
}

fn owned_records() -> impl Strategy<Value = Vec<Owned>> {
    let headers = vec(("[a-z]{0,4}", bytes_option()), 0..3);
    let one = (1i64..1000, any::<i32>(), bytes_option(), bytes_option(), headers);
    vec(one, 1..20).prop_map(|ones| {
        let mut offset = 4;
        ones.into_iter()
            .map(|(gap, time, key, value, headers)| {
                offset += gap;
                Owned { offset, timestamp_ms: 1_700_000_000_000 + i64::from(time), key, value, headers }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn records_read_back_in_every_codec(
        records in owned_records(), codec in 0usize..5, transactional: bool, control: bool, epoch: i16,
    ) {
        let options = BatchOptions {
            base_offset: 5,
            partition_leader_epoch: 7,
            compression: CODECS[codec],
            producer: Some(Producer { id: 9, epoch, base_sequence: 3 }),
            transactional,
            control,
            ..BatchOptions::default()
        };
        let bytes = encode(options, &records);
        let mut batches = Batches::new(&bytes);
        let batch = batches.next().unwrap().unwrap();
        prop_assert_eq!(decode(&batch).unwrap(), records.clone());
        prop_assert_eq!(batch.header.next_offset(), records.last().unwrap().offset + 1);
        prop_assert_eq!(batch.header.attributes.compression(), Ok(CODECS[codec]));
        prop_assert_eq!(batch.header.attributes.is_transactional(), transactional);
        prop_assert_eq!(batch.header.attributes.is_control(), control);
        prop_assert_eq!((batch.header.producer_id, batch.header.producer_epoch), (9, epoch));
        prop_assert!(batches.next().is_none());
        prop_assert_eq!(batches.tail(), None);
        prop_assert_eq!(batches.position(), bytes.len() as u64);
    }

    #[test]
    fn a_flipped_bit_never_changes_a_record_unnoticed(records in owned_records(), codec in 0usize..5, at: usize, bit in 0u8..8) {
        let options = BatchOptions { base_offset: 5, compression: CODECS[codec], ..BatchOptions::default() };
        let mut bytes = encode(options, &records);
        // The first 17 bytes are outside the checksum: offset, length, leader epoch, format.
        let at = 17 + at % (bytes.len() - 17);
        bytes[at] ^= 1 << bit;
        let outcome = walk(&bytes);
        prop_assert!(matches!(outcome, (0, Some(BatchError::Corrupt { .. }))), "{:?}", outcome);
    }

    #[test]
    fn a_flipped_bit_with_a_right_checksum_neither_panics_nor_hangs(
        records in owned_records(), codec in 0usize..5, flips in vec((any::<usize>(), 0u8..8), 1..4),
    ) {
        let options = BatchOptions { base_offset: 5, compression: CODECS[codec], ..BatchOptions::default() };
        let mut bytes = encode(options, &records);
        for (at, bit) in flips {
            let at = 21 + at % (bytes.len() - 21);
            bytes[at] ^= 1 << bit;
        }
        walk(&with_crc(bytes));
    }

    #[test]
    fn random_bytes_neither_panic_nor_hang(bytes in vec(any::<u8>(), 0..300)) {
        walk(&bytes);
    }

    #[test]
    fn random_records_bytes_behind_a_right_header_neither_panic_nor_hang(
        payload in vec(any::<u8>(), 0..200), attributes in 0u8..8, count in 0u8..20,
    ) {
        let mut bytes = encode(BatchOptions::default(), &[]);
        bytes.extend_from_slice(&payload);
        let length = (bytes.len() - BATCH_PREFIX_BYTES) as u32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[22] = attributes;
        bytes[26] = 100;
        bytes[60] = count;
        walk(&with_crc(bytes));
    }
}

#[test]
fn whole_batches_are_kept_when_the_last_one_is_cut_at_any_byte() {
    let first = encode(BatchOptions::default(), &[record(0, b"one"), record(1, b"two")]);
    let second = encode(
        BatchOptions { base_offset: 2, compression: Compression::Zstd, ..BatchOptions::default() },
        &[record(2, b"three")],
    );
    let both = [first.clone(), second.clone()].concat();
    for length in 0..both.len() {
        let mut batches = Batches::at(&both[..length], 1000);
        let whole: Result<Vec<_>, _> = batches.by_ref().collect();
        let whole = whole.unwrap().len();
        assert_eq!(whole, usize::from(length >= first.len()), "cut at {length}");
        let start = if whole == 0 { 0 } else { first.len() };
        let left = length - start;
        let tail = batches.tail();
        assert_eq!(tail.is_none(), left == 0);
        let Some(tail) = tail else { continue };
        assert_eq!((tail.position, tail.bytes), (1000 + start as u64, left));
        assert_eq!(tail.base_offset, (left >= 8).then_some(if whole == 0 { 0 } else { 2 }));
        let size = if whole == 0 { first.len() } else { second.len() };
        assert_eq!(tail.batch_bytes, (left >= 12).then_some(size));
    }
}

#[test]
fn an_empty_batch_moves_the_offset_on() {
    let mut builder = BatchBuilder::new(BatchOptions { base_offset: 40, ..BatchOptions::default() });
    builder.extend_to(50).unwrap();
    let mut bytes = Vec::new();
    builder.finish(&mut bytes).unwrap();
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    assert_eq!((batch.header.record_count, batch.header.next_offset()), (0, 50));
    assert_eq!(decode(&batch).unwrap(), []);
}

#[test]
fn the_brokers_time_takes_the_place_of_every_records_own() {
    let records = [record(0, b"a"), Owned { timestamp_ms: 1_700_000_000_500, ..record(1, b"b") }];
    let options = BatchOptions { timestamp_type: TimestampType::LogAppendTime, ..BatchOptions::default() };
    let bytes = encode(options, &records);
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    let times: Vec<_> = decode(&batch).unwrap().iter().map(|record| record.timestamp_ms).collect();
    assert_eq!(times, [1_700_000_000_500; 2]);
}

#[test]
fn a_delete_horizon_is_told_and_leaves_the_timestamps_right() {
    let options = BatchOptions { delete_horizon_ms: Some(1_800_000_000_000), ..BatchOptions::default() };
    let bytes = encode(options, &[record(0, b"a")]);
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    assert_eq!(batch.header.delete_horizon_ms(), Some(1_800_000_000_000));
    assert_eq!(decode(&batch).unwrap()[0].timestamp_ms, 1_700_000_000_000);
}

#[test]
fn damage_is_named_with_offset_and_position() {
    let good = encode(BatchOptions { base_offset: 5, ..BatchOptions::default() }, &[record(5, b"value")]);
    let set = |at: usize, bytes: &[u8]| {
        let mut batch = good.clone();
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        batch
    };
    let shown = [
        ("format 0", set(16, &[0])),
        ("format 1", set(16, &[1])),
        ("format 3", set(16, &[3])),
        ("zeroes", vec![0; 100]),
        ("negative length", set(8, &[0xff; 4])),
        ("short length", set(8, &48i32.to_be_bytes())),
        ("checksum", set(70, &[0xff])),
        ("negative offset", set(0, &[0xff])),
        ("last offset", with_crc(set(23, &(-2i32).to_be_bytes()))),
        ("offset overflow", set(0, &i64::MAX.to_be_bytes())),
        ("negative count", with_crc(set(57, &(-1i32).to_be_bytes()))),
        ("huge count", with_crc(set(57, &i32::MAX.to_be_bytes()))),
        ("no count", with_crc(set(57, &0i32.to_be_bytes()))),
        ("codec 5", with_crc(set(22, &[5]))),
        ("not gzip", with_crc(set(22, &[1]))),
        ("not snappy", with_crc(set(22, &[2]))),
        ("not lz4", with_crc(set(22, &[3]))),
        ("not zstd", with_crc(set(22, &[4]))),
        ("record length", with_crc(set(61, &[0x7e]))),
        ("negative record length", with_crc(set(61, &[0x01]))),
        ("endless number", with_crc(set(61, &[0xff; 12]))),
        ("short record", with_crc(set(61, &[0x00]))),
        ("offset delta", with_crc(set(64, &[0x02]))),
        ("value length", with_crc(set(66, &[0x7e]))),
        ("header count", with_crc(set(72, &[0x7e]))),
    ]
    .map(|(name, bytes)| format!("{name}: {}", error_of(&bytes)))
    .join("\n");
    insta::assert_snapshot!(shown, @r"
    format 0: a message of format 0 (written before Kafka 0.11) at offset 5, byte 0, cannot be read
    format 1: a message of format 1 (written before Kafka 0.11) at offset 5, byte 0, cannot be read
    format 3: the batch at offset 5, byte 0, is corrupt: unknown message format 3
    zeroes: the batch at offset 0, byte 0, is corrupt: the length field says 0 bytes, fewer than a batch header has
    negative length: the batch at offset 5, byte 0, is corrupt: the length field says -1 bytes, fewer than a batch header has
    short length: the batch at offset 5, byte 0, is corrupt: the length field says 48 bytes, fewer than a batch header has
    checksum: the batch at offset 5, byte 0, is corrupt: the stored CRC-32C is 98948709, that of the bytes is 648d9c82
    negative offset: the batch at offset -72057594037927931, byte 0, is corrupt: base offset -72057594037927931 with last offset delta 0 names no offsets
    last offset: the batch at offset 5, byte 0, is corrupt: base offset 5 with last offset delta -2 names no offsets
    offset overflow: the batch at offset 9223372036854775807, byte 0, is corrupt: base offset 9223372036854775807 with last offset delta 0 names no offsets
    negative count: the batch at offset 5, byte 0, is corrupt: -1 records cannot lie in 12 bytes
    huge count: the batch at offset 5, byte 0, is corrupt: 2147483647 records cannot lie in 12 bytes
    no count: the batch at offset 5, byte 0, is corrupt: 12 bytes are left after the last of 0 records
    codec 5: the batch at offset 5, byte 0, is corrupt: the records cannot be decompressed: unknown compression 5
    not gzip: the batch at offset 5, byte 0, is corrupt: the records cannot be decompressed: the gzip data is damaged: invalid gzip header
    not snappy: the batch at offset 5, byte 0, is corrupt: the records cannot be decompressed: the snappy data is damaged: snappy: corrupt input (expected valid offset but got offset 24950; dst position: 2)
    not lz4: the batch at offset 5, byte 0, is corrupt: the records cannot be decompressed: the lz4 data is damaged: WrongMagicNumber
    not zstd: the batch at offset 5, byte 0, is corrupt: the records cannot be decompressed: the zstd data is damaged: Unknown frame descriptor
    record length: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: its length goes beyond the batch
    negative record length: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: its length is negative
    endless number: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: its length is not a number
    short record: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: it has no attributes
    offset delta: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: its offset does not follow the previous one inside the batch
    value length: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: its value goes beyond the record
    header count: the batch at offset 5, byte 0, is corrupt: record 0 of the batch: its header count exceeds the bytes left
    ");
}

#[test]
fn records_that_do_not_fill_their_batch_are_an_error_after_the_last_one() {
    let mut bytes = encode(BatchOptions::default(), &[record(0, b"a"), record(1, b"b")]);
    bytes[60] = 1;
    let bytes = with_crc(bytes);
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    let mut decompressor = Decompressor::default();
    let mut records = batch.records(&mut decompressor).unwrap();
    assert!(records.next().unwrap().is_err());
    assert!(records.next().is_none());
}

#[test]
fn an_error_ends_the_iteration_and_keeps_what_came_before() {
    let good = encode(BatchOptions::default(), &[record(0, b"a")]);
    let mut bad = encode(BatchOptions { base_offset: 1, ..BatchOptions::default() }, &[record(1, b"b")]);
    bad[65] ^= 1;
    let bytes = [good.clone(), bad, good.clone()].concat();
    let mut batches = Batches::new(&bytes);
    assert!(batches.next().unwrap().is_ok());
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!((error.offset(), error.position()), (1, good.len() as u64));
    assert!(batches.next().is_none());
    assert_eq!(batches.position(), good.len() as u64);
    assert_eq!(batches.tail(), None, "a damaged batch is not a cut one");
}

#[test]
fn a_bomb_stops_at_the_cap_in_every_codec() {
    let zeroes = vec![0; 1 << 20];
    for codec in CODECS {
        let mut compressed = Vec::new();
        codec.compress(&zeroes, &mut compressed).unwrap();
        for (max, fits) in [(1 << 20, true), ((1 << 20) - 1, false), (1000, false), (0, false)] {
            let mut decompressor = Decompressor::new(max);
            let result = decompressor.decompress(codec, &compressed);
            match result {
                Ok(bytes) => assert!(fits && bytes == zeroes, "{codec:?} {max}"),
                Err(DecompressError::TooLarge { .. }) => assert!(!fits, "{codec:?} {max}"),
                Err(error) => panic!("{codec:?} {max}: {error:?}"),
            }
        }
    }
}

#[test]
fn a_decompressor_serves_one_batch_after_another_also_after_damage() {
    let mut decompressor = Decompressor::default();
    for round in 0..3 {
        for codec in CODECS {
            let input = vec![round; 1000 * usize::from(round + 1)];
            let mut compressed = Vec::new();
            codec.compress(&input, &mut compressed).unwrap();
            assert_eq!(decompressor.decompress(codec, &compressed).unwrap(), input, "{codec:?}");
            if codec != Compression::None {
                let cut = &compressed[..compressed.len() / 2];
                // A cut lz4 frame can end between two blocks: then the record count tells.
                let cut = decompressor.decompress(codec, cut);
                assert!(codec == Compression::Lz4 || cut.is_err(), "{codec:?}");
            }
        }
    }
}

#[test]
fn raw_snappy_reads_as_well_as_the_framed_form() {
    let mut decompressor = Decompressor::default();
    let raw = snap::raw::Encoder::new().compress_vec(b"raw snappy, as librdkafka once wrote it").unwrap();
    assert_eq!(
        decompressor.decompress(Compression::Snappy, &raw).unwrap(),
        b"raw snappy, as librdkafka once wrote it"
    );
    let claims_a_gigabyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00];
    assert!(decompressor.decompress(Compression::Snappy, &claims_a_gigabyte).is_err());
    assert!(decompressor.buffer_bytes() < 1 << 20, "a claim alone costs no memory");
}

#[test]
fn the_builder_refuses_offsets_that_do_not_follow() {
    let mut builder = BatchBuilder::new(BatchOptions { base_offset: 5, ..BatchOptions::default() });
    let new = NewRecord::default();
    builder.push_at(7, new).unwrap();
    for offset in [4, 7, 5 + (1 << 31), i64::MAX] {
        assert!(matches!(builder.push_at(offset, new), Err(BuildError::Offset { .. })), "{offset}");
    }
    assert_eq!(builder.next_offset(), 8);
}

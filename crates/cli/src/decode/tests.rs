use super::*;

fn shown(name: &str, bytes: &[u8]) -> String {
    let Some(kind) = Kind::of(name, bytes) else { return "unknown".to_owned() };
    let mut text = kind.name().to_owned();
    for row in rows(kind, bytes, base_offset(name)) {
        text.push('\n');
        match row {
            Ok(row) => text.push_str(&Value::Object(row).to_string()),
            Err(broken) => text.push_str(&format!("broken {broken}")),
        }
    }
    text
}

#[test]
fn an_offset_index_counts_from_the_offset_in_its_name() {
    let mut bytes = Vec::new();
    for (relative, position) in [(10_i32, 4096_i32), (25, 8192)] {
        bytes.extend(relative.to_be_bytes());
        bytes.extend(position.to_be_bytes());
    }
    bytes.extend([0; 16]);
    insta::assert_snapshot!(shown("00000000000000001000.index", &bytes), @r#"
    offset_index
    {"offset":1010,"relative_offset":10,"position":4096}
    {"offset":1025,"relative_offset":25,"position":8192}
    "#);
    bytes.truncate(12);
    insta::assert_snapshot!(shown("00000000000000001000-bI-hfDx_TbelfaFXX2nvqg.index", &bytes), @r#"
    offset_index
    {"offset":1010,"relative_offset":10,"position":4096}
    broken at byte 8: the entry is cut
    "#);
}

#[test]
fn a_time_index_and_a_transaction_index_are_read() {
    let mut bytes = Vec::new();
    bytes.extend(1_700_000_000_123_i64.to_be_bytes());
    bytes.extend(7_i32.to_be_bytes());
    insta::assert_snapshot!(shown("00000000000000001000.timeindex", &bytes), @r#"
    time_index
    {"time":"2023-11-14T22:13:20.123Z","timestamp_ms":1700000000123,"offset":1007,"relative_offset":7}
    "#);
    let mut bytes = vec![0, 0];
    for field in [42_i64, 100, 110, 95] {
        bytes.extend(field.to_be_bytes());
    }
    insta::assert_snapshot!(shown("00000000000000000000.txnindex", &bytes), @r#"
    transaction_index
    {"producer_id":42,"first_offset":100,"last_offset":110,"last_stable_offset":95}
    "#);
    bytes[1] = 9;
    insta::assert_snapshot!(shown("00000000000000000000.txnindex", &bytes), @"
    transaction_index
    broken at byte 0: entry version 9 is unknown
    ");
}

#[test]
fn checkpoints_are_told_apart_and_their_bad_lines_are_named() {
    insta::assert_snapshot!(shown("leader-epoch-checkpoint", b"0\n2\n0 0\n4 700\n"), @r#"
    leader_epoch_checkpoint
    {"epoch":0,"start_offset":0}
    {"epoch":4,"start_offset":700}
    "#);
    insta::assert_snapshot!(shown("-", b"0\n1\norders 3 900\n"), @r#"
    offset_checkpoint
    {"topic":"orders","partition":3,"offset":900}
    "#);
    insta::assert_snapshot!(shown("leader-epoch-checkpoint", b"0\n2\n0 0\n"), @r#"
    leader_epoch_checkpoint
    {"epoch":0,"start_offset":0}
    broken at the end: 1 of the lines that its second line promises are missing
    "#);
    insta::assert_snapshot!(shown("leader-epoch-checkpoint", b"0\n1\n0 0\n1 5\n"), @r#"
    leader_epoch_checkpoint
    {"epoch":0,"start_offset":0}
    broken line 4: more lines than its second line promises
    "#);
    insta::assert_snapshot!(shown("leader-epoch-checkpoint", b"0\n1\nx y\n"), @r#"
    leader_epoch_checkpoint
    broken line 3: "x y" is not an entry
    "#);
    insta::assert_snapshot!(shown("leader-epoch-checkpoint", b"7\n"), @"
    leader_epoch_checkpoint
    broken line 1: version 7 is unknown
    ");
    insta::assert_snapshot!(shown("leader-epoch-checkpoint", b""), @"
    leader_epoch_checkpoint
    broken line 1: the version is missing
    ");
}

#[test]
fn an_event_in_hex_is_read_with_or_without_blanks() {
    let hex = "01 01 00 076f7264657273bda670afa6e548458c01b9bbcfeb56fb0000000000\nb99d1692b77d4630b2e30f1cafc421e500000000010000018bcfe570ae000100";
    insta::assert_snapshot!(shown("-", hex.as_bytes()), @r#"
    event
    {"kind":"segment_metadata_update","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders","partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","broker_id":1,"event_timestamp_ms":1700000002222,"custom_metadata":null,"state":"COPY_SEGMENT_FINISHED"}
    "#);
    insta::assert_snapshot!(shown("-", b"0x0109"), @r#"
    event
    {"kind":"undecodable","hex":"0109","error":"cut off: 1 bytes are needed and 0 are left (message_version at byte 2)"}
    "#);
    insta::assert_snapshot!(shown("-", b"010"), @"
    event
    broken at byte 0: an odd number of hex digits
    ");
}

#[test]
fn a_producer_snapshot_is_checked_and_read() {
    let mut checked = 1_i32.to_be_bytes().to_vec();
    checked.extend(7_i64.to_be_bytes());
    checked.extend(0_i16.to_be_bytes());
    checked.extend(41_i32.to_be_bytes());
    checked.extend(41_i64.to_be_bytes());
    checked.extend(0_i32.to_be_bytes());
    checked.extend(1_700_000_000_000_i64.to_be_bytes());
    checked.extend((-1_i32).to_be_bytes());
    checked.extend((-1_i64).to_be_bytes());
    let mut bytes = 1_i16.to_be_bytes().to_vec();
    bytes.extend(crc32c::crc32c(&checked).to_be_bytes());
    bytes.extend(&checked);
    insta::assert_snapshot!(shown("00000000000000000042.snapshot", &bytes), @r#"
    producer_snapshot
    {"producer_id":7,"producer_epoch":0,"last_sequence":41,"last_offset":41,"offset_delta":0,"time":"2023-11-14T22:13:20.000Z","coordinator_epoch":-1,"open_transaction_first_offset":null}
    "#);
    bytes[20] ^= 1;
    insta::assert_snapshot!(shown("00000000000000000042.snapshot", &bytes), @"
    producer_snapshot
    broken at byte 2: the checksum is wrong
    ");
    insta::assert_snapshot!(shown("00000000000000000042.snapshot", &bytes[..4]), @"
    producer_snapshot
    broken at byte 0: too short for a producer snapshot
    ");
}

#[test]
fn noise_is_no_artefact() {
    for noise in [&b""[..], b"\x7fELF", b"hello there", &[0xff; 64]] {
        assert_eq!(shown("-", noise), "unknown");
    }
    assert!(shown("00000000000000000000.log", &[0xff; 64]).contains("broken"));
}

#[test]
fn batches_that_kafka_wrote_are_read_as_events() {
    let golden = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/golden-events.json"
    ))
    .unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    for captured in golden["captured_batches"].as_array().unwrap() {
        let hex = captured["hex"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
        let read: Vec<Row> =
            rows(Kind::of("-", &bytes).unwrap(), &bytes, None).collect::<Result<_, _>>().unwrap();
        let records = captured["records"].as_array().unwrap();
        assert_eq!(read.len(), records.len());
        for (row, record) in read.iter().zip(records) {
            assert_eq!((&row["offset"], &row["timestamp_ms"]), (&record["offset"], &record["timestamp"]));
            assert!(row["kind"].as_str().unwrap().starts_with("segment_metadata"));
        }
        let cut: Vec<_> = rows(Kind::LogSegment, &bytes[..bytes.len() - 1], None).collect();
        assert!(cut.last().unwrap().is_err(), "a cut batch is never passed over");
    }
}

/// Gives the same bytes again and again, and counts them.
struct Endless<'a> {
    bytes: &'a [u8],
    given: &'a std::cell::Cell<usize>,
}

impl std::io::Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let from = self.given.get() % self.bytes.len();
        let count = buffer.len().min(self.bytes.len() - from);
        buffer[..count].copy_from_slice(&self.bytes[from..from + count]);
        self.given.set(self.given.get() + count);
        Ok(count)
    }
}

#[test]
fn a_segment_of_any_size_is_read_only_as_far_as_its_rows_are_asked_for() {
    let bytes = std::fs::read("tests/data/broker1/__remote_log_metadata-4/00000000000000000000.log").unwrap();
    let given = std::cell::Cell::new(0);
    let rows = log_segment_rows(Endless { bytes: &bytes, given: &given });
    let rows: Vec<Row> = rows.take(26 * 1000).map(Result::unwrap).collect();
    assert_eq!(rows[26 * 999 + 3], rows[3], "the file holds 26 events, over and over");
    let asked = bytes.len() * 1000;
    assert!((asked..asked + (1 << 20)).contains(&given.get()), "{} of {asked} bytes", given.get());
}

#[test]
fn a_batch_that_claims_more_than_there_is_takes_no_memory_for_it() {
    let mut bytes = vec![0; 61];
    bytes[8..12].copy_from_slice(&(100_i32 << 20).to_be_bytes());
    bytes[16] = 2;
    insta::assert_snapshot!(shown("00000000000000000000.log", &bytes), @"
    log_segment
    broken at byte 0: the last batch is cut: 61 bytes of it are there
    ");
    bytes[8..12].copy_from_slice(&(1_i32 << 30).to_be_bytes());
    insta::assert_snapshot!(shown("00000000000000000000.log", &bytes), @"
    log_segment
    broken at byte 0: the batch claims 1073741836 bytes, more than the limit of 134217728
    ");
}

//! What lies in the log: gaps, empty batches, markers, aborted records, damage.

use std::ops::ControlFlow;
use std::time::Duration;

use strandline_client::admin::Isolation;
use strandline_client::reader::{ReadErrorKind, ReadPosition, ReaderConfig};
use strandline_protocol::ApiKey;
use strandline_protocol::records::{BatchBuilder, BatchOptions, Compression, NewRecord, Producer};
use strandline_testkit::embedded::EmbeddedCluster;

use crate::support::{asked, brisk, chain, connect, kafka, read, reader, soon};

fn committed() -> ReaderConfig {
    ReaderConfig { isolation: Isolation::ReadCommitted, ..brisk() }
}

/// A batch with one record per value; with a producer it is one of a transaction.
fn append(kafka: &EmbeddedCluster, producer: Option<Producer>, values: &[&str]) -> i64 {
    let records: Vec<NewRecord<'_>> = values
        .iter()
        .map(|value| NewRecord { value: Some(value.as_bytes()), ..NewRecord::default() })
        .collect();
    let options = BatchOptions { producer, transactional: producer.is_some(), ..BatchOptions::default() };
    kafka.append_batch("orders", 0, options, &records)
}

fn producer(id: i64) -> Option<Producer> {
    Some(Producer { id, epoch: 0, base_sequence: -1 })
}

fn end(kafka: &EmbeddedCluster, id: i64, commit: bool) {
    kafka.end_transaction("orders", 0, producer(id).expect("it is one"), commit);
}

/// A batch whose records compaction has taken.
fn empty_batch(base_offset: i64, next_offset: i64) -> Vec<u8> {
    let options = BatchOptions { base_offset, partition_leader_epoch: 0, ..BatchOptions::default() };
    let mut batch = BatchBuilder::new(options);
    batch.extend_to(next_offset).expect("offsets ascend");
    let mut bytes = Vec::new();
    batch.finish(&mut bytes).expect("it is small");
    bytes
}

#[tokio::test]
async fn gaps_empty_batches_and_markers_make_progress() {
    let kafka = kafka(1);
    append(&kafka, None, &["a", "b"]);
    append(&kafka, None, &["c"]);
    append(&kafka, None, &["d"]);
    kafka.compact_away("orders", 0, 2);
    kafka.append_raw("orders", 0, empty_batch(4, 10));
    append(&kafka, producer(7), &["e"]);
    end(&kafka, 7, true);
    kafka.append_raw("orders", 0, empty_batch(15, 20));

    let cluster = connect(&kafka).await;
    for config in [brisk(), committed()] {
        let mut reader = reader(&cluster, 0, config).await;
        let (lines, stop) = read(&mut reader).await;
        assert_eq!((lines.join(", ").as_str(), stop.map(|stop| chain(&stop))), ("0 a, 1 b, 3 d, 10 e", None));
        assert_eq!(reader.position(), ReadPosition { next_offset: 20, leader_epoch: Some(0) });
    }
    // From inside a batch, a gap, an empty batch.
    for (from, expected) in [(1, "1 b, 3 d, 10 e"), (2, "3 d, 10 e"), (5, "10 e"), (12, ""), (17, "")] {
        let mut reader = reader(&cluster, from, brisk()).await;
        let (lines, _) = read(&mut reader).await;
        assert_eq!((lines.join(", ").as_str(), reader.position().next_offset), (expected, 20), "from {from}");
    }
}

#[tokio::test]
async fn a_page_that_ends_within_a_batch_goes_on_with_that_batch() {
    let kafka = kafka(1);
    for number in 0..20 {
        append(&kafka, None, &[&format!("{number:0100}")]);
    }
    let cluster = connect(&kafka).await;
    // Two batches and a half, of some 170 bytes each, fit in an answer; and in none the first alone.
    for max_bytes in [450, 100] {
        let mut reader = reader(&cluster, 0, ReaderConfig { max_bytes, ..brisk() }).await;
        let before = asked(&kafka, ApiKey::Fetch);
        let (lines, stop) = read(&mut reader).await;
        assert!(stop.is_none(), "{stop:?}");
        let offsets: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(offsets, (0..20).map(|offset| offset.to_string()).collect::<Vec<_>>());
        let pages = asked(&kafka, ApiKey::Fetch) - before;
        assert!(pages >= if max_bytes == 450 { 10 } else { 20 }, "{max_bytes}: {pages}");
    }
}

#[tokio::test]
async fn records_of_aborted_transactions_are_passed_over_where_committed_ones_are_wanted() {
    let kafka = kafka(1);
    append(&kafka, producer(1), &["1 is undone"]); // 0
    append(&kafka, producer(2), &["2 stays"]); // 1
    append(&kafka, None, &["plain"]); // 2
    append(&kafka, producer(1), &["1 is undone too"]); // 3
    end(&kafka, 1, false); // 4
    append(&kafka, producer(1), &["1 begins anew"]); // 5
    end(&kafka, 2, true); // 6
    end(&kafka, 1, true); // 7
    // A transaction that began and ended without a record here: a marker with no entry in the list.
    end(&kafka, 9, false); // 8
    append(&kafka, producer(2), &["2 is open"]); // 9
    append(&kafka, None, &["behind it"]); // 10

    let cluster = connect(&kafka).await;
    let mut every = reader(&cluster, 0, brisk()).await;
    let (lines, _) = read(&mut every).await;
    insta::assert_snapshot!(lines.join("\n"), @r"
    0 1 is undone
    1 2 stays
    2 plain
    3 1 is undone too
    5 1 begins anew
    9 2 is open
    10 behind it
    ");
    let mut reader = reader(&cluster, 0, committed()).await;
    let (lines, _) = read(&mut reader).await;
    insta::assert_snapshot!(lines.join("\n"), @r"
    1 2 stays
    2 plain
    5 1 begins anew
    ");
    // It stands at the last stable offset, and goes on when the transaction ends.
    assert_eq!(reader.position().next_offset, 9);
    end(&kafka, 2, false);
    assert_eq!(read(&mut reader).await.0, ["10 behind it"]);
    assert_eq!(reader.position().next_offset, 12);
    // From within an aborted transaction: it began below the page.
    let mut within = crate::support::reader(&cluster, 3, committed()).await;
    assert_eq!(read(&mut within).await.0, ["5 1 begins anew", "10 behind it"]);
}

#[tokio::test]
async fn a_flipped_bit_stops_in_front_of_its_batch_and_only_seek_goes_on_behind_it() {
    let kafka = kafka(1);
    append(&kafka, None, &["a"]);
    append(&kafka, None, &["b", "c"]);
    append(&kafka, None, &["d"]);
    kafka.damage("orders", 0, 1, |batch| *batch.last_mut().unwrap() ^= 1);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    let (lines, stop) = read(&mut reader).await;
    let stop = stop.expect("the batch at 1 is damaged");
    assert!(stop.is_stop() && matches!(stop.kind, ReadErrorKind::Corrupt { offset: 1, .. }), "{stop:?}");
    assert_eq!((lines, reader.position().next_offset), (vec!["0 a".to_owned()], 1));
    let text = chain(&stop).replace(&kafka.bootstrap(), "ADDRESS");
    let text = text.split("the stored").next().unwrap_or_default().to_owned();
    insta::assert_snapshot!(text, @"orders:0: the log cannot be read from offset 1 on; the bytes are from broker 1 (ADDRESS): the batch at offset 1, byte 69, is corrupt: ");

    let fetches = asked(&kafka, ApiKey::Fetch);
    for _ in 0..3 {
        let (lines, again) = read(&mut reader).await;
        assert_eq!((lines.len(), again.map(|again| again.to_string())), (0, Some(stop.to_string())));
    }
    assert_eq!(asked(&kafka, ApiKey::Fetch), fetches, "a stop asks nobody");
    reader.seek(ReadPosition::at(3));
    assert_eq!(read(&mut reader).await.0, ["3 d"]);
}

#[tokio::test]
async fn a_decompression_bomb_stops_the_partition_once_and_is_not_fetched_again() {
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let kafka = kafka(1);
        append(&kafka, None, &["a"]);
        let bomb = vec![0; 4 << 20];
        let record = NewRecord { value: Some(&bomb), ..NewRecord::default() };
        let options = BatchOptions { compression, ..BatchOptions::default() };
        kafka.append_batch("orders", 0, options, &[record]);
        let cluster = connect(&kafka).await;
        let config = ReaderConfig { decompressed_bytes_max: 1 << 20, ..brisk() };
        let mut reader = reader(&cluster, 0, config).await;
        let (lines, stop) = read(&mut reader).await;
        let stop = stop.expect("it is too large");
        assert!(matches!(stop.kind, ReadErrorKind::TooLarge { offset: 1, .. }), "{compression:?}: {stop:?}");
        assert_eq!(lines, ["0 a"]);
        let fetches = asked(&kafka, ApiKey::Fetch);
        assert!(read(&mut reader).await.1.is_some());
        assert_eq!(asked(&kafka, ApiKey::Fetch), fetches);
        // With a higher limit it is an ordinary record.
        let mut reader = crate::support::reader(&cluster, 1, brisk()).await;
        assert_eq!(read(&mut reader).await.0.len(), 1);
    }
}

#[tokio::test]
async fn a_message_set_of_an_old_format_is_a_stop_with_its_offset_and_format() {
    let kafka = kafka(1);
    append(&kafka, None, &["a"]);
    for magic in [0_u8, 1] {
        // Offset, length, CRC, format: what the two old formats have in common.
        let mut message = vec![0; 40];
        message[..8].copy_from_slice(&1_i64.to_be_bytes());
        message[8..12].copy_from_slice(&28_i32.to_be_bytes());
        message[16] = magic;
        kafka.truncate("orders", 0, 1);
        kafka.append_raw("orders", 0, message);
        let cluster = connect(&kafka).await;
        let mut reader = reader(&cluster, 0, brisk()).await;
        let (lines, stop) = read(&mut reader).await;
        let stop = stop.expect("it cannot be read");
        assert!(matches!(stop.kind, ReadErrorKind::LegacyBatch { offset: 1, .. }), "{stop:?}");
        let format = format!("a message of format {magic} (written before Kafka 0.11) at offset 1");
        assert!(chain(&stop).contains(&format), "{}", chain(&stop));
        assert_eq!(lines, ["0 a"]);
    }
}

#[tokio::test]
async fn a_first_batch_that_comes_cut_is_asked_for_a_few_times_and_then_told() {
    let kafka = kafka(1);
    append(&kafka, None, &["a"]);
    append(&kafka, None, &["b"]);
    kafka.damage("orders", 0, 1, |batch| batch.truncate(65));
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    let (lines, stop) = read(&mut reader).await;
    let stop = stop.expect("it never comes whole");
    assert_eq!(lines, ["0 a"]);
    assert!(matches!(stop.kind, ReadErrorKind::Refused { offset: 1, tries: 6, .. }), "{stop:?}");
    assert!(chain(&stop).contains("a batch is cut after 65 bytes"), "{}", chain(&stop));
}

#[tokio::test]
async fn a_visitor_that_breaks_ends_the_page_and_the_next_one_begins_behind_its_record() {
    let kafka = kafka(1);
    append(&kafka, None, &["a", "b", "c"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    for expected in ["a", "b", "c"] {
        let mut value = None;
        let page = reader
            .next_page(soon(), |record| {
                value = record.value.map(<[u8]>::to_vec);
                ControlFlow::Break(())
            })
            .await
            .unwrap();
        assert_eq!((value.as_deref(), page.records, page.stopped), (Some(expected.as_bytes()), 1, true));
    }
    assert_eq!(reader.position(), ReadPosition { next_offset: 3, leader_epoch: Some(0) });
}

#[tokio::test]
async fn the_end_of_the_log_is_an_empty_page_after_the_wait_and_new_records_come_at_once() {
    let kafka = kafka(1);
    append(&kafka, None, &["a"]);
    kafka.hold_high_watermark("orders", 0, Some(0));
    let cluster = connect(&kafka).await;
    let config = ReaderConfig { max_wait: Duration::from_millis(50), ..brisk() };
    let mut reader = reader(&cluster, 0, config).await;
    let page =
        reader.next_page(soon(), |_| unreachable!("nothing is below the high watermark")).await.unwrap();
    assert_eq!((page.records, page.end_offset, page.log_start_offset), (0, 0, Some(0)));
    kafka.hold_high_watermark("orders", 0, None);
    let (lines, _) = read(&mut reader).await;
    assert_eq!(lines, ["0 a"]);
}

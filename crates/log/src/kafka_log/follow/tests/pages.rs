//! What a page can hold: the position follows batch ends.

use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord, Producer};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, Rule};

use super::{TOPIC, World, both_ways, capacity, expected, records, stop, within};
use crate::kafka_log::config::FetchConnections;
use crate::subscription::MetadataDelivery;

both_ways! {
    gaps_empty_batches_and_markers_make_progress
    a_position_within_a_batch_is_read_from_there
    a_page_that_grows_many_times_over_is_taken_in_pieces
    a_first_batch_that_comes_cut_is_asked_for_a_few_times_and_then_told
    small_pages_are_read_to_the_end
}

async fn gaps_empty_batches_and_markers_make_progress(ways: FetchConnections) {
    let world = World::new(ways, 1, 1).await;
    world.append(0, 0..4);
    world.kafka.compact_away(TOPIC, 0, 2);
    world.kafka.append_raw(TOPIC, 0, empty_batch(4, 10));
    world.append(0, 10..11);
    let producer = Producer { id: 7, epoch: 0, base_sequence: -1 };
    assert_eq!(world.kafka.end_transaction(TOPIC, 0, producer, false), 11);
    world.kafka.append_raw(TOPIC, 0, empty_batch(15, 20));
    let mut events = world.follow([0]);
    let (mut lines, mut next_offset) = (Vec::new(), 0);
    while next_offset < 20 {
        match within("progress", events.next()).await {
            Some(MetadataDelivery::Record { record, .. }) => {
                let control = if record.control { " control" } else { "" };
                lines.push(format!("{}{control}", record.offset));
                next_offset = record.offset + 1;
            }
            Some(MetadataDelivery::Advanced { next_offset: advanced, .. }) => {
                lines.push(format!("to {advanced}"));
                next_offset = advanced;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lines.join(", "), "0, 1, 3, 10, 11 control, to 20");
    // What comes later is found from there.
    world.append(0, 20..21);
    assert_eq!(records(&mut events, 1).await, expected(0, 20..21));
    // One page after the other, each without a record.
    let mut by_page = world.subscribe(capacity(1));
    by_page.assignment().add(0, 4).unwrap();
    assert_eq!(records(&mut by_page, 1).await, expected(0, 10..11));
}

/// A batch whose records compaction has taken.
fn empty_batch(base_offset: i64, next_offset: i64) -> Vec<u8> {
    let options = BatchOptions { base_offset, partition_leader_epoch: 0, ..BatchOptions::default() };
    let mut batch = BatchBuilder::new(options);
    batch.extend_to(next_offset).unwrap();
    let mut bytes = Vec::new();
    batch.finish(&mut bytes).unwrap();
    bytes
}

async fn a_position_within_a_batch_is_read_from_there(ways: FetchConnections) {
    let world = World::new(ways, 1, 1).await;
    world.kafka.append(TOPIC, 0, &[b"0", b"1", b"2", b"3", b"4"]);
    let mut events = world.subscribe(capacity(2));
    events.assignment().add(0, 3).unwrap();
    assert_eq!(records(&mut events, 2).await, expected(0, 3..5));
}

async fn a_page_that_grows_many_times_over_is_taken_in_pieces(ways: FetchConnections) {
    let world = World::with(ways, 1, 1, |config| config.fetch_max_bytes = 1000).await;
    let value = vec![b'x'; 1000];
    let record = NewRecord { value: Some(&value), ..NewRecord::default() };
    let options = BatchOptions {
        compression: strandline_protocol::records::Compression::Gzip,
        ..BatchOptions::default()
    };
    world.kafka.append_batch(TOPIC, 0, options, &vec![record; 50]);
    let mut events = world.follow([0]);
    let seen = records(&mut events, 50).await;
    assert!(seen.iter().enumerate().all(|(offset, line)| line.starts_with(&format!("0@{offset}=xxx"))));
    let asked = world.fetches().len();
    assert!((10..20).contains(&asked), "{asked} requests for 50 records, of which four are taken at a time");
}

async fn a_first_batch_that_comes_cut_is_asked_for_a_few_times_and_then_told(ways: FetchConnections) {
    let world = World::new(ways, 1, 1).await;
    world.append(0, 0..1);
    world.append(0, 1..2);
    world.kafka.damage(TOPIC, 0, 1, |bytes| bytes.truncate(65));
    let mut events = world.follow([0]);
    let (seen, told) = stop(&mut events).await;
    assert_eq!(seen, ["0"]);
    assert_eq!(
        told,
        "metadata partition 0 cannot be read at offset 1: 6 tries in a row failed: broker 1 answered CORRUPT_MESSAGE: a batch is cut after 65 bytes"
    );
}

async fn small_pages_are_read_to_the_end(ways: FetchConnections) {
    let world = World::with(ways, 2, 3, |config| config.fetch_max_bytes = 1).await;
    for partition in 0..3 {
        world.append(partition, 0..50);
    }
    world.kafka.script(Rule::new(Fault::Error(ErrorCode::OffsetNotAvailable)).api(ApiKey::Fetch).nth(20));
    let mut events = world.subscribe(capacity(7));
    for partition in 0..3 {
        events.assignment().add(partition, 0).unwrap();
    }
    let seen = records(&mut events, 150).await;
    for partition in 0..3 {
        let own: Vec<_> =
            seen.iter().filter(|line| line.starts_with(&format!("{partition}@"))).cloned().collect();
        assert_eq!(own, expected(partition, 0..50));
    }
}

//! Figures for this crate on the machine at hand: `cargo bench -p strandline-tier`.
//!
//! Plain wall-clock time, the best of several rounds: to see where a change leads, not to be compared between
//! machines.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks on stdout and may panic")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use strandline_tier::json::{self, EventPosition};
use strandline_tier::{
    EpochEntry, RawEvent, RawSegmentMetadata, RawSegmentUpdate, RawTopicIdPartition, RecordValue,
    RemoteLogSegmentIndex, RemotePartitionMetadataStore, TopicId, Uuid, codec,
};

const ROUNDS: usize = 7;

fn main() {
    // Cargo passes --bench; without it (`cargo test --benches`) there is nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let values = record_values(100_000);
    let count = values.len();
    let bytes: usize = values.iter().map(Vec::len).sum();
    println!("{count} events, {} bytes each on average", bytes / count);

    per_item("decode", count, || {
        values.iter().for_each(|value| {
            black_box(codec::decode(value).unwrap());
        });
    });

    let position =
        EventPosition { metadata_partition: Some(7), offset: Some(1 << 20), timestamp_ms: Some(1 << 40) };
    let mut line = Vec::with_capacity(1 << 16);
    per_item("decode and write as JSON", count, || {
        for value in &values {
            json::write_event(&mut line, &position, &RecordValue::from_value(Some(value)));
            line.push(b'\n');
            if line.len() > 1 << 15 {
                black_box(&line);
                line.clear();
            }
        }
    });

    let lines: Vec<Vec<u8>> = values
        .iter()
        .map(|value| {
            let mut line = Vec::new();
            json::write_event(&mut line, &position, &RecordValue::from_value(Some(value)));
            line
        })
        .collect();
    per_item("parse a JSON line", count, || {
        lines.iter().for_each(|line| {
            black_box(json::parse_event(line).unwrap());
        });
    });

    per_item("decode and apply", count, || {
        let mut store = RemotePartitionMetadataStore::new();
        store.load(&partition());
        for value in &values {
            store.apply(&codec::decode(value).unwrap()).unwrap();
        }
        black_box(&store);
    });

    for segments in [10_000, 100_000] {
        let index = index(&record_values(segments));
        // A fixed walk over offsets in no order.
        let offsets: Vec<i64> = (0..1_000_000_u64).map(|i| (mix(i) % (segments * 1000)) as i64).collect();
        per_item(&format!("look-up among {segments} segments"), offsets.len(), || {
            for &offset in &offsets {
                black_box(index.remote_log_segment_metadata(0, black_box(offset)).unwrap());
            }
        });
    }
}

fn per_item(what: &str, count: usize, mut run: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    let nanoseconds = best.as_nanos() as f64 / count as f64;
    println!("{what:<36} {nanoseconds:7.1} ns {:10.2} million/s", 1e3 / nanoseconds);
}

fn partition() -> RawTopicIdPartition<'static> {
    RawTopicIdPartition { topic: "orders".into(), topic_id: TopicId(uuid(u64::MAX)), partition: 3 }
}

/// The finalizer of splitmix64: scatters consecutive numbers.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn uuid(number: u64) -> Uuid {
    Uuid((u128::from(mix(number)) << 64 | u128::from(mix(!number))).to_be_bytes())
}

/// Two events for each segment: copy started, copy finished.
fn record_values(segments: u64) -> Vec<Vec<u8>> {
    let encode = |event: &RawEvent<'_>| {
        let mut bytes = Vec::new();
        codec::encode(event, &mut bytes).unwrap();
        bytes
    };
    let events = |number: u64| {
        let start_offset = number as i64 * 1000;
        let event_timestamp_ms = 1_700_000_000_000 + start_offset;
        let segment_id = uuid(number);
        let metadata = RawEvent::SegmentMetadata(RawSegmentMetadata {
            topic_id_partition: partition(),
            segment_id,
            start_offset,
            end_offset: start_offset + 999,
            broker_id: 1,
            max_timestamp_ms: event_timestamp_ms - 1000,
            event_timestamp_ms,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset }].into_iter().collect(),
            segment_size_in_bytes: 1 << 20,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: true,
        });
        let update = RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
            topic_id_partition: partition(),
            segment_id,
            broker_id: 1,
            event_timestamp_ms: event_timestamp_ms + 5,
            custom_metadata: None,
            state_id: 1,
        });
        [encode(&metadata), encode(&update)]
    };
    (0..segments).flat_map(events).collect()
}

fn index(values: &[Vec<u8>]) -> RemoteLogSegmentIndex {
    let mut index = RemoteLogSegmentIndex::new();
    for value in values {
        match codec::decode(value).unwrap() {
            RawEvent::SegmentMetadata(event) => index.apply_segment_metadata(&event).unwrap(),
            RawEvent::SegmentMetadataUpdate(event) => index.apply_segment_update(&event).unwrap(),
            other => panic!("{other:?}"),
        };
    }
    index
}

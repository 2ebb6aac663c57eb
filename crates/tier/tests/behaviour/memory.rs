//! What a segment costs in the index.

use strandline_tier::{
    EpochEntry, RawSegmentMetadata, RawSegmentUpdate, RawTopicIdPartition, RemoteLogSegmentIndex, TopicId,
    Uuid,
};

/// The aim for a finished segment with one leader epoch and no custom metadata.
const BYTES_PER_SEGMENT_MAX: f64 = 120.0;

fn index_of(segments: u64) -> RemoteLogSegmentIndex {
    let mut index = RemoteLogSegmentIndex::new();
    let topic_id_partition =
        RawTopicIdPartition { topic: "orders".into(), topic_id: TopicId::default(), partition: 0 };
    for number in 0..segments {
        let segment_id = Uuid(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let start_offset = number as i64 * 1000;
        let metadata = RawSegmentMetadata {
            topic_id_partition: topic_id_partition.clone(),
            segment_id,
            start_offset,
            end_offset: start_offset + 999,
            broker_id: 1,
            max_timestamp_ms: 0,
            event_timestamp_ms: 0,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset }].into_iter().collect(),
            segment_size_in_bytes: 1 << 20,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: true,
        };
        index.apply_segment_metadata(&metadata).unwrap();
        let update = RawSegmentUpdate {
            topic_id_partition: topic_id_partition.clone(),
            segment_id,
            broker_id: 1,
            event_timestamp_ms: 1,
            custom_metadata: None,
            state_id: 1,
        };
        index.apply_segment_update(&update).unwrap();
    }
    index
}

#[test]
fn a_finished_segment_takes_at_most_120_bytes() {
    // Just above a power of two the tables that double are emptiest.
    for segments in [1_000, 1_030, 10_000, 16_400, 60_000, 100_000, 132_000] {
        let mut index = None;
        let allocated = allocation_counter::measure(|| index = Some(index_of(segments)));
        let bytes = allocated.bytes_current as f64 / segments as f64;
        println!("{segments} segments: {bytes:.1} bytes each");
        assert!(bytes <= BYTES_PER_SEGMENT_MAX, "{segments} segments take {bytes:.1} bytes each");
        drop(index);
    }
}

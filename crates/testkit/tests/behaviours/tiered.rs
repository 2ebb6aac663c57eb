//! Offsets of a partition whose older records are only in the tier.

use bytes::Bytes;
use strandline_protocol::Uuid;
use strandline_protocol::messages::fetch::{FetchPartition, PartitionData};
use strandline_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use tokio::time::{Duration, sleep};

use crate::trace::{Trace, WAITS_MAX, say};

pub(crate) const TOPIC: &str = "tiered";

/// Three of these fill a segment of 1 MiB.
const RECORD_BYTES: usize = 340_000;

/// Records, each a batch: three segments of three, and one more that is in the active segment.
pub(crate) const RECORDS: i64 = 10;

/// The last offset that is copied, and the first that is on disk once the copied ones are gone from there.
pub(crate) const LAST_TIERED: i64 = 8;

/// The topic's configs on a real cluster: everything that is copied leaves the disk at once, and nothing leaves the tier.
pub(crate) const CONFIGS: [(&str, &str); 4] = [
    ("segment.bytes", "1048576"),
    ("local.retention.bytes", "1"),
    ("retention.ms", "-1"),
    ("segment.ms", "3153600000000"),
];

/// The largest timestamp is in the tier.
fn timestamp_of(offset: i64) -> i64 {
    if offset == 2 { 5_000 } else { 1_000 + offset }
}

/// Writes the records, and compares what is told of the tier while it has none of them.
pub(crate) async fn compare_untiered(address: &str) {
    let mut trace = Trace::connect(address).await;
    trace.until_served(TOPIC, 0).await;
    trace.list_tier().await;
    let value = vec![7; RECORD_BYTES];
    for offset in 0..RECORDS {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let record =
            NewRecord { timestamp_ms: timestamp_of(offset), value: Some(&value), ..NewRecord::default() };
        builder.push(record).unwrap();
        let mut records = Vec::new();
        builder.finish(&mut records).unwrap();
        let data = PartitionProduceData { records: Some(records.into()), ..PartitionProduceData::default() };
        let topic = TopicProduceData {
            name: TOPIC.to_owned(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 10_000,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        };
        let response = trace.peer.call(9, &request).await;
        assert_eq!(response.responses[0].partition_responses[0].base_offset, offset);
        if offset == 0 {
            trace.list_tier().await;
        }
    }
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r"
ListOffsets v11 tiered-0 known=-1 -1: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v11 tiered-0 known=-1 -2: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v11 tiered-0 known=-1 -4: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v11 tiered-0 known=-1 -5: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 tiered-0 known=-1 -6: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 tiered-0 known=-1 -1: NONE timestamp=-1 offset=1 epoch=0
ListOffsets v11 tiered-0 known=-1 -2: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v11 tiered-0 known=-1 -4: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v11 tiered-0 known=-1 -5: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 tiered-0 known=-1 -6: NONE timestamp=-1 offset=0 epoch=0
") };
}

/// All but the last record are in the tier, and no longer on disk.
pub(crate) async fn compare_tiered(address: &str, id: Uuid) {
    let mut trace = Trace::connect(address).await;
    for (version, timestamp) in [
        (9, -1),
        (9, -2),
        (9, -3),
        (8, -4),
        (9, -5),
        (11, -6),
        (11, 0),
        (11, 1_004),
        (11, 1_008),
        (11, 1_009),
        (11, 1_010),
        (11, 5_001),
    ] {
        trace.list_offset(version, TOPIC, 0, -1, timestamp).await;
    }
    for offset in [0, 4, LAST_TIERED, LAST_TIERED + 1, RECORDS, RECORDS + 1] {
        let partition = FetchPartition {
            fetch_offset: offset,
            partition_max_bytes: 400_000,
            ..FetchPartition::default()
        };
        for isolation_level in [0, 1] {
            let data = trace.fetch_isolated(17, id, partition.clone(), isolation_level).await;
            trace.say_fetched(&format!("from {offset} isolation={isolation_level}"), data);
        }
    }
    for (offset, bytes_max) in [(7, 0), (7, 1), (7, 700_000), (7, 2_000_000), (9, 0)] {
        let partition = FetchPartition {
            fetch_offset: offset,
            partition_max_bytes: bytes_max,
            ..FetchPartition::default()
        };
        let data = trace.fetch_isolated(17, id, partition, 0).await;
        trace.say_fetched(&format!("from {offset} up to {bytes_max} bytes"), data);
    }
    for before in [4, LAST_TIERED + 1, RECORDS] {
        trace.delete_before(TOPIC, 0, before).await;
        trace.list_tier().await;
        for timestamp in [-3, 0, 1_004] {
            trace.list_offset(11, TOPIC, 0, -1, timestamp).await;
        }
        for offset in [before - 1, before] {
            let partition = FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 400_000,
                ..FetchPartition::default()
            };
            let data = trace.fetch_isolated(17, id, partition, 0).await;
            trace.say_fetched(&format!("from {offset}"), data);
        }
    }
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r"
ListOffsets v9 tiered-0 known=-1 -1: NONE timestamp=-1 offset=10 epoch=0
ListOffsets v9 tiered-0 known=-1 -2: NONE timestamp=-1 offset=0 epoch=0
ListOffsets v9 tiered-0 known=-1 -3: NONE timestamp=1009 offset=9 epoch=0
ListOffsets v8 tiered-0 known=-1 -4: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v9 tiered-0 known=-1 -5: NONE timestamp=-1 offset=8 epoch=0
ListOffsets v11 tiered-0 known=-1 -6: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 0: NONE timestamp=1000 offset=0 epoch=0
ListOffsets v11 tiered-0 known=-1 1004: NONE timestamp=5000 offset=2 epoch=0
ListOffsets v11 tiered-0 known=-1 1008: NONE timestamp=5000 offset=2 epoch=0
ListOffsets v11 tiered-0 known=-1 1009: NONE timestamp=5000 offset=2 epoch=0
ListOffsets v11 tiered-0 known=-1 1010: NONE timestamp=5000 offset=2 epoch=0
ListOffsets v11 tiered-0 known=-1 5001: NONE timestamp=-1 offset=-1 epoch=-1
Fetch v17 from 0 isolation=0: NONE hw=10 lso=10 start=0 bytes=Some(400000) aborted=None
Fetch v17 from 0 isolation=1: NONE hw=10 lso=10 start=0 bytes=Some(400000) aborted=Some(0)
Fetch v17 from 4 isolation=0: NONE hw=10 lso=10 start=0 bytes=Some(400000) aborted=None
Fetch v17 from 4 isolation=1: NONE hw=10 lso=10 start=0 bytes=Some(400000) aborted=Some(0)
Fetch v17 from 8 isolation=0: NONE hw=10 lso=10 start=0 bytes=Some(340072) aborted=None
Fetch v17 from 8 isolation=1: NONE hw=10 lso=10 start=0 bytes=Some(340072) aborted=Some(0)
Fetch v17 from 9 isolation=0: NONE hw=10 lso=10 start=0 bytes=Some(340072) aborted=None
Fetch v17 from 9 isolation=1: NONE hw=10 lso=10 start=0 bytes=Some(340072) aborted=Some(0)
Fetch v17 from 10 isolation=0: NONE hw=10 lso=10 start=0 bytes=Some(0) aborted=None
Fetch v17 from 10 isolation=1: NONE hw=10 lso=10 start=0 bytes=Some(0) aborted=Some(0)
Fetch v17 from 11 isolation=0: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None
Fetch v17 from 11 isolation=1: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None
Fetch v17 from 7 up to 0 bytes: NONE hw=10 lso=10 start=0 bytes=Some(0) aborted=None
Fetch v17 from 7 up to 1 bytes: NONE hw=10 lso=10 start=0 bytes=Some(340072) aborted=None
Fetch v17 from 7 up to 700000 bytes: NONE hw=10 lso=10 start=0 bytes=Some(680144) aborted=None
Fetch v17 from 7 up to 2000000 bytes: NONE hw=10 lso=10 start=0 bytes=Some(680144) aborted=None
Fetch v17 from 9 up to 0 bytes: NONE hw=10 lso=10 start=0 bytes=Some(340072) aborted=None
DeleteRecords v2 tiered-0 before 4: NONE low=4
ListOffsets v11 tiered-0 known=-1 -1: NONE timestamp=-1 offset=10 epoch=0
ListOffsets v11 tiered-0 known=-1 -2: NONE timestamp=-1 offset=4 epoch=0
ListOffsets v11 tiered-0 known=-1 -4: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 -5: NONE timestamp=-1 offset=8 epoch=0
ListOffsets v11 tiered-0 known=-1 -6: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 -3: NONE timestamp=1009 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 0: NONE timestamp=1004 offset=4 epoch=0
ListOffsets v11 tiered-0 known=-1 1004: NONE timestamp=1004 offset=4 epoch=0
Fetch v17 from 3: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None
Fetch v17 from 4: NONE hw=10 lso=10 start=4 bytes=Some(400000) aborted=None
DeleteRecords v2 tiered-0 before 9: NONE low=9
ListOffsets v11 tiered-0 known=-1 -1: NONE timestamp=-1 offset=10 epoch=0
ListOffsets v11 tiered-0 known=-1 -2: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 -4: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 -5: NONE timestamp=-1 offset=8 epoch=-1
ListOffsets v11 tiered-0 known=-1 -6: NONE timestamp=-1 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 -3: NONE timestamp=1009 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 0: NONE timestamp=1009 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 1004: NONE timestamp=1009 offset=9 epoch=0
Fetch v17 from 8: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None
Fetch v17 from 9: NONE hw=10 lso=10 start=9 bytes=Some(340072) aborted=None
DeleteRecords v2 tiered-0 before 10: NONE low=10
ListOffsets v11 tiered-0 known=-1 -1: NONE timestamp=-1 offset=10 epoch=0
ListOffsets v11 tiered-0 known=-1 -2: NONE timestamp=-1 offset=10 epoch=0
ListOffsets v11 tiered-0 known=-1 -4: NONE timestamp=-1 offset=10 epoch=0
ListOffsets v11 tiered-0 known=-1 -5: NONE timestamp=-1 offset=8 epoch=-1
ListOffsets v11 tiered-0 known=-1 -6: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 tiered-0 known=-1 -3: NONE timestamp=1009 offset=9 epoch=0
ListOffsets v11 tiered-0 known=-1 0: NONE timestamp=-1 offset=-1 epoch=-1
ListOffsets v11 tiered-0 known=-1 1004: NONE timestamp=-1 offset=-1 epoch=-1
Fetch v17 from 9: OFFSET_OUT_OF_RANGE hw=-1 lso=-1 start=-1 bytes=Some(0) aborted=None
Fetch v17 from 10: NONE hw=10 lso=10 start=10 bytes=Some(0) aborted=None
") };
}

impl Trace {
    /// Where the log begins and ends, and how far it is on disk and in the tier.
    async fn list_tier(&mut self) {
        for timestamp in [-1, -2, -4, -5, -6] {
            self.list_offset(11, TOPIC, 0, -1, timestamp).await;
        }
    }

    fn say_fetched(&mut self, name: &str, data: PartitionData) {
        say!(
            self,
            "Fetch v17 {name}: {:?} hw={} lso={} start={} bytes={:?} aborted={:?}",
            data.error_code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            data.records.as_ref().map(Bytes::len),
            data.aborted_transactions.map(|aborted| aborted.len()),
        );
    }

    /// Waits until nothing below `offset` is on disk, and gives the topic's id.
    pub(crate) async fn until_on_disk_from(&mut self, offset: i64) -> Uuid {
        let mut told = -1;
        for _ in 0..WAITS_MAX * 3 {
            told = self.offset_of(TOPIC, 0, -4).await;
            if told == offset {
                return self.until_led_partitions(TOPIC, 1).await;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("what is on disk begins at {told}, not at {offset}");
    }
}

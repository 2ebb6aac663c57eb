//! Quotas: the answer comes at once and says for how long the client is throttled, and the connection is mute for as long
//! (KIP-219).

use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use strandline_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use strandline_protocol::{ApiKey, Uuid};
use tokio::time::{Duration, Instant};

use crate::trace::{Dialler, LEDGER, Trace, WAITS_MAX, metadata, say};

/// Bytes a second that a client may write, and read, where it is throttled. A broker looks at ten seconds.
const QUOTA: usize = 1_000;

/// A record with which a client that has written or read nothing else is throttled for less than a second.
const RECORD_BYTES: usize = QUOTA * 10 + 500;

/// Half of it: the first reading is within the quota, the second is beyond.
const HALF_BYTES: usize = QUOTA * 5 + 300;

/// The client is throttled when it has written [`RECORD_BYTES`], and when it has read [`HALF_BYTES`] twice.
pub(crate) async fn compare_throttle(address: &str) {
    let mut trace = Trace::connect(address).await;
    let id = trace.create("throttled", LEDGER).await;
    let mut throttled = 0;
    // A quota takes a moment to reach the broker.
    for _ in 0..WAITS_MAX {
        throttled = trace.write_throttled().await;
        if throttled > 0 {
            break;
        }
    }
    assert!(throttled > 0, "no quota throttles");
    trace.reconnect(address).await;
    trace.read_throttled(id).await;
    trace.delete("throttled").await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @"
    Produce v9 beyond the quota: NONE, the answer at once: true, the next after the throttle: true
    Fetch v17 within the quota: NONE throttled=false partitions=1
    Fetch v17 beyond the quota: NONE throttled=true partitions=0, the answer at once: true, the next after the throttle: true
    ") };
}

impl Trace {
    async fn write_throttled(&mut self) -> i32 {
        let large = write(0, RECORD_BYTES);
        let began = Instant::now();
        let response = self.peer.call(9, &large).await;
        let took = began.elapsed();
        let throttle = Duration::from_millis(response.throttle_time_ms.unsigned_abs().into());
        if throttle.is_zero() {
            return 0;
        }
        let code = response.responses[0].partition_responses[0].error_code;
        let muted = self.is_muted(throttle).await;
        let at_once = took < throttle;
        say!(
            self,
            "Produce v9 beyond the quota: {code:?}, the answer at once: {at_once}, the next after the throttle: {muted}"
        );
        response.throttle_time_ms
    }

    /// True if the next answer comes only when the throttle is over, but for what a clock can be off.
    async fn is_muted(&mut self, throttle: Duration) -> bool {
        let began = Instant::now();
        self.peer.call(12, &metadata(Some(&[]), false)).await;
        began.elapsed() >= throttle.mul_f64(0.8)
    }

    async fn read_throttled(&mut self, topic_id: Uuid) {
        // Written beyond the quota, and waited for.
        let response = self.peer.call(9, &write(1, HALF_BYTES)).await;
        assert!(response.throttle_time_ms >= 0);
        let partition =
            FetchPartition { partition: 1, partition_max_bytes: 1 << 20, ..FetchPartition::default() };
        let topic = FetchTopic { topic_id, partitions: vec![partition], ..FetchTopic::default() };
        let request = FetchRequest { max_wait_ms: 50, topics: vec![topic], ..FetchRequest::default() };
        for name in ["within", "beyond"] {
            let began = Instant::now();
            let response = self.peer.call(17, &request).await;
            let took = began.elapsed();
            let throttle = Duration::from_millis(response.throttle_time_ms.unsigned_abs().into());
            let (code, partitions) = (response.error_code, response.responses.len());
            let throttled = !throttle.is_zero();
            let mut line =
                format!("Fetch v17 {name} the quota: {code:?} throttled={throttled} partitions={partitions}");
            if throttled {
                let at_once = took < throttle;
                let muted = self.is_muted(throttle).await;
                line += &format!(", the answer at once: {at_once}, the next after the throttle: {muted}");
            }
            say!(self, "{line}");
        }
    }
}

fn write(index: i32, bytes: usize) -> ProduceRequest {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![7; bytes];
    builder.push(NewRecord { value: Some(&value), ..NewRecord::default() }).unwrap();
    let mut records = Vec::new();
    builder.finish(&mut records).unwrap();
    let data =
        PartitionProduceData { index, records: Some(records.into()), ..PartitionProduceData::default() };
    let topic = TopicProduceData {
        name: "throttled".to_owned(),
        partition_data: vec![data],
        ..TopicProduceData::default()
    };
    ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..ProduceRequest::default() }
}

/// Limits every client of a real broker with AlterClientQuotas, by hand: the project has no use for its messages.
pub(crate) async fn limit(address: &str) {
    let string = |text: &str| {
        let mut bytes = vec![u8::try_from(text.len() + 1).unwrap()];
        bytes.extend(text.bytes());
        bytes
    };
    // One entry of one entity: every client id (null) that has no quota of its own.
    let mut body = vec![2, 2];
    body.extend(string("client-id"));
    body.extend([0, 0]);
    body.push(3);
    for key in ["producer_byte_rate", "consumer_byte_rate"] {
        body.extend(string(key));
        body.extend((QUOTA as f64).to_be_bytes());
        // Nothing is removed; no tags.
        body.extend([0, 0]);
    }
    // Tags of the entry; not only validated; tags.
    body.extend([0, 0, 0]);
    let mut peer = Dialler::Tcp.dial(address).await.unwrap();
    peer.send_raw(ApiKey::AlterClientQuotas, 1, &body).await.unwrap();
    let frame = peer.receive_frame().await.unwrap();
    // Correlation id, tags, throttle time, the count; then the code.
    assert_eq!(frame[4 + 1 + 4..][..3], [2, 0, 0], "{frame:?}");
}

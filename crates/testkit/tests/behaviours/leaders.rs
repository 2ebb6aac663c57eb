//! A leader that moves.

use crate::trace::{Trace, batch, say};
use bytes::Bytes;
use strandline_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use strandline_protocol::messages::fetch::FetchPartition;

/// Broker 1 leads, is stopped, and broker 2 leads.
pub(crate) async fn compare_leaders(addresses: &[String; 3], stop: impl AsyncFn()) {
    let mut trace = Trace::connect(&addresses[0]).await;
    let by_hand =
        CreatableReplicaAssignment { broker_ids: vec![1, 2, 3], ..CreatableReplicaAssignment::default() };
    let topic = CreatableTopic {
        name: "orders".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![by_hand],
        configs: vec![CreatableTopicConfig {
            name: "retention.ms".to_owned(),
            value: Some("-1".to_owned()),
            ..CreatableTopicConfig::default()
        }],
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..CreateTopicsRequest::default() };
    let orders = trace.peer.call(7, &request).await.topics[0].topic_id;
    trace.until_led_by(1).await;
    let records = batch(&[Some("a"), Some("b")], None, 1_000);
    trace.produce_one("acks=all", 9, -1, "orders", 0, records.clone()).await;
    stop().await;
    trace.reconnect(&addresses[1]).await;
    trace.until_led_by(2).await;
    trace.produce_one("acks=all", 9, -1, "orders", 0, records.clone()).await;
    for broker in [2, 3] {
        say!(trace, "at broker {broker}");
        trace.reconnect(&addresses[broker - 1]).await;
        trace.until_led_by(2).await;
        trace.until_high_watermark(orders, 4).await;
        for (version, known, last) in
            [(10, -1, -1), (17, -1, -1), (17, 1, -1), (17, 0, -1), (17, 9, -1), (17, 1, 0)]
        {
            let partition = FetchPartition {
                fetch_offset: 3,
                current_leader_epoch: known,
                last_fetched_epoch: last,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            };
            let data = trace.fetch_one(version, orders, partition).await;
            let (leader, diverging) = (&data.0.current_leader, &data.0.diverging_epoch);
            say!(
                trace,
                "Fetch v{version} known={known} last={last}: {:?} bytes={:?} leader={:?} endpoints={:?} diverging={:?}",
                data.0.error_code,
                data.0.records.as_ref().map(Bytes::len),
                (leader.leader_id, leader.leader_epoch),
                data.1,
                (diverging.epoch, diverging.end_offset)
            );
        }
        for known in [-1, 0, 1, 9] {
            trace.list_offset(10, "orders", 0, known, -1).await;
        }
        for epoch in [0, 1, 2] {
            trace.end_of_epoch(-1, epoch).await;
        }
    }
    trace.produce_one("to a follower", 10, 1, "orders", 0, records).await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @"
Produce v9 acks=all: NONE base=0 start=0
Produce v9 acks=all: NONE base=2 start=0
at broker 2
Fetch v10 known=-1 last=-1: NONE bytes=Some(87) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=-1 last=-1: NONE bytes=Some(87) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=1 last=-1: NONE bytes=Some(87) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=0 last=-1: FENCED_LEADER_EPOCH bytes=Some(0) leader=(2, 1) endpoints=[2] diverging=(-1, -1)
Fetch v17 known=9 last=-1: UNKNOWN_LEADER_EPOCH bytes=Some(0) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=1 last=0: NONE bytes=Some(0) leader=(-1, -1) endpoints=[] diverging=(0, 2)
ListOffsets v10 orders-0 known=-1 -1: NONE timestamp=-1 offset=4 epoch=1
ListOffsets v10 orders-0 known=0 -1: FENCED_LEADER_EPOCH timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=1 -1: NONE timestamp=-1 offset=4 epoch=1
ListOffsets v10 orders-0 known=9 -1: UNKNOWN_LEADER_EPOCH timestamp=-1 offset=-1 epoch=-1
OffsetForLeaderEpoch v4 known=-1 epoch=0: NONE epoch=0 end=2
OffsetForLeaderEpoch v4 known=-1 epoch=1: NONE epoch=1 end=4
OffsetForLeaderEpoch v4 known=-1 epoch=2: NONE epoch=-1 end=-1
at broker 3
Fetch v10 known=-1 last=-1: NOT_LEADER_OR_FOLLOWER bytes=Some(0) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=-1 last=-1: NONE bytes=Some(87) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=1 last=-1: NONE bytes=Some(87) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=0 last=-1: FENCED_LEADER_EPOCH bytes=Some(0) leader=(2, 1) endpoints=[2] diverging=(-1, -1)
Fetch v17 known=9 last=-1: UNKNOWN_LEADER_EPOCH bytes=Some(0) leader=(-1, -1) endpoints=[] diverging=(-1, -1)
Fetch v17 known=1 last=0: NONE bytes=Some(0) leader=(-1, -1) endpoints=[] diverging=(0, 2)
ListOffsets v10 orders-0 known=-1 -1: NOT_LEADER_OR_FOLLOWER timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=0 -1: FENCED_LEADER_EPOCH timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=1 -1: NOT_LEADER_OR_FOLLOWER timestamp=-1 offset=-1 epoch=-1
ListOffsets v10 orders-0 known=9 -1: UNKNOWN_LEADER_EPOCH timestamp=-1 offset=-1 epoch=-1
OffsetForLeaderEpoch v4 known=-1 epoch=0: NOT_LEADER_OR_FOLLOWER epoch=-1 end=-1
OffsetForLeaderEpoch v4 known=-1 epoch=1: NOT_LEADER_OR_FOLLOWER epoch=-1 end=-1
OffsetForLeaderEpoch v4 known=-1 epoch=2: NOT_LEADER_OR_FOLLOWER epoch=-1 end=-1
Produce v10 to a follower: NOT_LEADER_OR_FOLLOWER base=-1 start=-1
") };
}

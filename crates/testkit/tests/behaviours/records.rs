//! Records: written, looked up and read.

use crate::trace::{Trace, batch, say};
use bytes::Bytes;
use strandline_protocol::messages::InitProducerIdRequest;
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use strandline_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use strandline_protocol::records::{Batches, Producer};
use strandline_protocol::{ErrorCode, Uuid};
use tokio::time::{Duration, sleep};

impl Trace {
    /// A topic whose records have the time of their append.
    pub(crate) async fn append_time(&mut self) {
        let id = self.create("stamped", &[("message.timestamp.type", "LogAppendTime")]).await;
        for keys in [&[Some("a"), Some("b")][..], &[Some("c")]] {
            let data = PartitionProduceData {
                records: Some(batch(keys, None, 1_000)),
                ..PartitionProduceData::default()
            };
            let topic = TopicProduceData {
                name: "stamped".to_owned(),
                partition_data: vec![data],
                ..TopicProduceData::default()
            };
            let request = ProduceRequest {
                acks: -1,
                timeout_ms: 10_000,
                topic_data: vec![topic],
                ..ProduceRequest::default()
            };
            let response = self.peer.call(9, &request).await;
            let it = &response.responses[0].partition_responses[0];
            let now = it.log_append_time_ms > 1_000_000;
            say!(self, "Produce v9 stamped: {:?} base={} now={now}", it.error_code, it.base_offset);
            if it.base_offset == 0 {
                self.list_offset_isolated("stamped", 0, 0, -3).await;
            }
        }
        let all = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
        let records = self.fetch_isolated(17, id, all, 0).await.records.unwrap();
        for it in Batches::new(&records).map(Result::unwrap) {
            let (kind, base) = (it.header.attributes.timestamp_type(), it.header.base_offset);
            let now = it.header.max_timestamp_ms > 1_000_000;
            say!(self, "  a batch at {base}: {kind:?} now={now}");
        }
        self.list_offset_isolated("stamped", 0, 0, 1_000).await;
        self.list_offset_isolated("stamped", 0, 0, i64::MAX).await;
        self.delete("stamped").await;
    }

    pub(crate) async fn produce(&mut self) {
        let two = batch(&[Some("k"), None], None, 1_000);
        let mut flipped = two.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let twice = [&two[..], &two[..]].concat();
        let cases = [
            ("two records", 1, "orders", 0, two.clone()),
            ("a flipped bit", 1, "orders", 0, flipped.into()),
            ("two batches", 1, "orders", 0, twice.into()),
            ("a cut batch", 1, "orders", 0, two.slice(..two.len() - 3)),
            ("no batch", 1, "orders", 0, Bytes::new()),
            ("no such partition", 1, "orders", 9, two.clone()),
            ("no such topic", 1, "nothing", 0, two.clone()),
            ("acks=7", 7, "orders", 0, two.clone()),
            ("acks=all", -1, "orders", 0, batch(&[Some("k")], None, 5_000)),
            ("no key, compacted", 1, "compacted", 0, two.clone()),
        ];
        for (name, acks, topic, partition, records) in cases {
            self.produce_one(name, 9, acks, topic, partition, records).await;
        }
        self.produce_one("an old version", 3, 1, "orders", 0, batch(&[Some("k")], None, 3_000)).await;
    }

    pub(crate) async fn idempotence(&mut self) {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdRequest::default()
        };
        let mut response = self.peer.call(4, &request).await;
        while response.error_code == ErrorCode::CoordinatorLoadInProgress {
            // A real broker fetches a block of ids first.
            sleep(Duration::from_millis(50)).await;
            response = self.peer.call(4, &request).await;
        }
        say!(self, "InitProducerId v4: {:?} epoch={}", response.error_code, response.producer_epoch);
        let id = response.producer_id;
        assert!(id >= 0, "a producer without an id is not idempotent");
        let empty = InitProducerIdRequest { transactional_id: Some(String::new()), ..request };
        let refused = self.peer.call(4, &empty).await;
        say!(self, "InitProducerId v4 of an empty id: {:?}", refused.error_code);
        for (name, epoch, base_sequence, records) in [
            ("the first", 0, 0, 2),
            ("the same again", 0, 0, 2),
            ("a gap", 0, 7, 1),
            ("the next", 0, 2, 1),
            ("one of the last five again", 0, 0, 2),
            ("half of one again", 0, 0, 1),
            ("a newer epoch from the middle", 1, 3, 1),
            ("a newer epoch from 0", 1, 0, 1),
            ("the older epoch", 0, 3, 1),
        ] {
            let records = batch(&vec![Some("k"); records], Some(Producer { id, epoch, base_sequence }), 1);
            self.produce_one(name, 9, -1, "orders", 1, records).await;
        }
        let unknown = Producer { id: id + 1_000, epoch: 3, base_sequence: 5 };
        self.produce_one(
            "an unknown producer from the middle",
            9,
            -1,
            "orders",
            1,
            batch(&[Some("k")], Some(unknown), 1),
        )
        .await;
    }

    pub(crate) async fn offsets(&mut self) {
        for (version, timestamp) in [
            (1, -1),
            (5, -2),
            (6, -3),
            (7, -3),
            (7, -4),
            (8, -4),
            (8, -5),
            (9, -5),
            (10, -6),
            (11, -6),
            (11, -7),
            (10, 0),
            (10, 1_001),
            (10, 4_000),
            (10, 9_000),
        ] {
            self.list_offset(version, "orders", 0, -1, timestamp).await;
        }
        self.list_offset(10, "orders", 7, -1, -1).await;
        self.list_offset(10, "nothing", 0, -1, -1).await;
        self.list_offset(10, "orders", 0, 0, -1).await;
        self.list_offset(10, "orders", 0, 5, -1).await;
        for (known, epoch) in [(-1, 0), (0, 0), (0, 4), (5, 0), (-1, -1)] {
            self.end_of_epoch(known, epoch).await;
        }
    }

    pub(crate) async fn fetch(&mut self, orders: Uuid) {
        let at = |fetch_offset| FetchPartition {
            partition: 0,
            fetch_offset,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let cases = [
            ("from 0", 4, orders, at(0)),
            ("from 0", 12, orders, at(0)),
            ("from 0", 17, orders, at(0)),
            ("from the middle of a batch", 17, orders, at(1)),
            ("one byte", 17, orders, FetchPartition { partition_max_bytes: 1, ..at(0) }),
            ("into the second batch", 17, orders, FetchPartition { partition_max_bytes: 100, ..at(0) }),
            ("at the end", 17, orders, at(4)),
            ("beyond the end", 17, orders, at(5)),
            ("below 0", 17, orders, at(-3)),
            ("no such partition", 17, orders, FetchPartition { partition: 9, ..at(0) }),
            ("no such id", 17, Uuid([7; 16]), at(0)),
            ("the current epoch", 17, orders, FetchPartition { current_leader_epoch: 0, ..at(0) }),
            ("a newer epoch", 17, orders, FetchPartition { current_leader_epoch: 5, ..at(0) }),
            ("last fetched epoch 0", 17, orders, FetchPartition { last_fetched_epoch: 0, ..at(2) }),
            ("last fetched epoch 3", 17, orders, FetchPartition { last_fetched_epoch: 3, ..at(2) }),
        ];
        for (name, version, topic_id, partition) in cases {
            let topic = FetchTopic {
                topic: "orders".to_owned(),
                topic_id,
                partitions: vec![partition],
                ..FetchTopic::default()
            };
            for isolation_level in [0, 1] {
                let request = FetchRequest {
                    max_wait_ms: 100,
                    min_bytes: 1,
                    isolation_level,
                    topics: vec![topic.clone()],
                    ..FetchRequest::default()
                };
                let response = self.peer.call(version, &request).await;
                let data = &response.responses[0].partitions[0];
                say!(
                    self,
                    "Fetch v{version} {name} isolation={isolation_level}: {:?} hw={} lso={} start={} bytes={:?} aborted={:?} diverging={:?}",
                    data.error_code,
                    data.high_watermark,
                    data.last_stable_offset,
                    data.log_start_offset,
                    data.records.as_ref().map(Bytes::len),
                    data.aborted_transactions,
                    (data.diverging_epoch.epoch, data.diverging_epoch.end_offset),
                );
            }
        }
        let request = FetchRequest { session_id: 77, session_epoch: 5, ..FetchRequest::default() };
        let response = self.peer.call(17, &request).await;
        say!(self, "Fetch v17 of an unknown session: {:?} {}", response.error_code, response.responses.len());
    }

    pub(crate) async fn sessions(&mut self, orders: Uuid) {
        let topic = |partitions: &[(i32, i64)]| FetchTopic {
            topic: "orders".to_owned(),
            topic_id: orders,
            partitions: partitions
                .iter()
                .map(|(partition, fetch_offset)| FetchPartition {
                    partition: *partition,
                    fetch_offset: *fetch_offset,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                })
                .collect(),
            ..FetchTopic::default()
        };
        let forget = |partition: i32| ForgottenTopic {
            topic: "orders".to_owned(),
            topic_id: orders,
            partitions: vec![partition],
            ..ForgottenTopic::default()
        };
        let mut session_id = 0;
        for (name, version, epoch, partitions, forgotten) in [
            ("begin", 17, 0, &[(0, 0), (1, 0)][..], None),
            ("move one on", 17, 1, &[(0, 4)], None),
            ("nothing new but the other", 17, 2, &[], None),
            ("the wrong epoch", 17, 2, &[], None),
            ("by name", 12, 3, &[], None),
            ("move the other on", 17, 3, &[(1, 5)], None),
            ("nothing new", 17, 4, &[], None),
            ("beyond the end", 17, 5, &[(0, 9)], None),
            ("still beyond the end", 17, 6, &[], None),
            ("forget one", 17, 7, &[], Some(0)),
            ("forget the other", 17, 8, &[], Some(1)),
            ("after its end", 17, 9, &[(0, 4)], None),
            ("without a session", 17, -1, &[(0, 4)], None),
        ] {
            let request = FetchRequest {
                max_wait_ms: 50,
                min_bytes: 1,
                session_id,
                session_epoch: epoch,
                topics: if partitions.is_empty() { vec![] } else { vec![topic(partitions)] },
                forgotten_topics_data: forgotten.map(forget).into_iter().collect(),
                ..FetchRequest::default()
            };
            let response = self.peer.call(version, &request).await;
            let partitions: Vec<_> = response
                .responses
                .iter()
                .flat_map(|topic| &topic.partitions)
                .map(|it| (it.partition_index, it.error_code, it.records.as_ref().map(Bytes::len)))
                .collect();
            let same = response.session_id == session_id;
            say!(
                self,
                "Fetch session, {name}: {:?} session={} same={same} {partitions:?}",
                response.error_code,
                response.session_id != 0
            );
            if epoch == 0 {
                session_id = response.session_id;
            }
        }
    }
}

//! What goes over the wire, and what lies in the log.

use std::collections::BTreeSet;

use strandline_client::producer::{Compression, ProducerConfig, ProducerRecord};
use strandline_protocol::messages::{InitProducerIdRequest, ProduceRequest};
use strandline_protocol::records::{Batches, Decompressor};
use strandline_protocol::{ApiKey, Uuid};
use strandline_testkit::embedded::{ClusterOptions, Fault, Held, KafkaVersion};

use crate::support::asked;
use crate::world::{
    accept, batches, config, kafka, kafka_as, log, order, orders, produce, produced, producer, producer_as,
    record, write, write_all,
};

#[tokio::test(start_paused = true)]
async fn records_lie_where_their_answers_say_in_the_order_of_their_acceptance_in_every_codec() {
    for compression in
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let kafka = kafka(3);
        kafka.create_topic("bills", 3);
        let producer = producer_as(&kafka, ProducerConfig { compression, ..config() }).await;
        let mut deliveries = Vec::new();
        for number in 0..300 {
            let (topic, partition) = [("orders", 0), ("bills", 0), ("bills", 1), ("bills", 2)][number % 4];
            let value = format!("{topic} {number}");
            deliveries.push((value.clone(), accept(&producer, record(topic, partition, &value)).await));
        }
        let mut told = Vec::new();
        for (value, delivery) in deliveries {
            let at = delivery.await.expect("it is written");
            told.push(((at.topic.to_string(), at.partition, at.offset), value));
        }
        told.sort();
        let mut found = Vec::new();
        for (topic, partition) in [("bills", 0), ("bills", 1), ("bills", 2), ("orders", 0)] {
            let values = log(&kafka, topic, partition).await;
            let sorted = values.iter().map(|value| value.split_once(' ').unwrap().1.parse::<u32>().unwrap());
            assert!(sorted.is_sorted(), "{compression:?} {topic}:{partition}: {values:?}");
            found.extend(
                values.into_iter().zip(0..).map(|(value, at)| ((topic.to_owned(), partition, at), value)),
            );
        }
        assert_eq!(told, found, "{compression:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_keeps_key_headers_timestamp_and_what_is_null() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    let records = [
        ProducerRecord {
            topic: "orders",
            timestamp_ms: Some(12),
            key: Some(b"k"),
            value: Some(b"v"),
            headers: &[("a", Some(b"1")), ("b", None)],
            ..ProducerRecord::default()
        },
        ProducerRecord {
            topic: "orders",
            timestamp_ms: Some(7),
            key: Some(b""),
            ..ProducerRecord::default()
        },
        ProducerRecord { topic: "orders", ..ProducerRecord::default() },
    ];
    for record in records {
        accept(&producer, record).await.await.expect("it is written");
    }
    let mut shown = Vec::new();
    for entry in kafka.journal().into_iter().filter(|entry| entry.api == ApiKey::Produce) {
        let request = entry.decode::<ProduceRequest>().unwrap();
        let bytes = request.topic_data[0].partition_data[0].records.clone().unwrap();
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        for record in batch.records(&mut Decompressor::default()).unwrap() {
            let record = record.unwrap();
            let headers: Vec<_> = record
                .headers
                .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                .collect();
            let now = record.timestamp_ms > 1_700_000_000_000;
            let timestamp = if now { "now".to_owned() } else { record.timestamp_ms.to_string() };
            shown.push(format!("{timestamp} {:?} {:?} {headers:?}", record.key, record.value));
        }
    }
    assert_eq!(
        shown,
        [
            "12 Some([107]) Some([118]) [([97], Some([49])), ([98], None)]",
            "7 Some([]) None []",
            "now None None []"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_request_asks_for_all_replicas_and_every_batch_carries_its_sequence() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    for value in ["a", "b", "c"] {
        write(&producer, order(value)).await.expect("it is written");
    }
    let journal = kafka.journal();
    let ids: Vec<_> = journal.iter().filter(|entry| entry.api == ApiKey::InitProducerId).collect();
    assert_eq!(ids.len(), 1, "one producer id for all");
    assert_eq!(ids[0].decode::<InitProducerIdRequest>().unwrap().transactional_id, None);
    for entry in journal.iter().filter(|entry| entry.api == ApiKey::Produce) {
        let request = entry.decode::<ProduceRequest>().unwrap();
        assert_eq!((request.acks, request.transactional_id), (-1, None));
        assert!((1..5000).contains(&request.timeout_ms), "{}", request.timeout_ms);
    }
    assert_eq!(crate::world::sequences(&kafka), ["0/0 0..=0", "0/0 1..=1", "0/0 2..=2"]);
}

#[tokio::test(start_paused = true)]
async fn topics_go_by_id_from_version_13_on_and_by_name_to_older_brokers() {
    for (version, expected) in [
        (KafkaVersion::V3_9, (11, false)),
        (KafkaVersion::V4_0, (12, false)),
        (KafkaVersion::V4_3, (13, true)),
        (KafkaVersion::V4_4, (13, true)),
    ] {
        let kafka = kafka_as(ClusterOptions { version, ..ClusterOptions::default() });
        write(&producer(&kafka).await, order("a")).await.expect("it is written");
        let journal = kafka.journal();
        let entry = journal.iter().find(|entry| entry.api == ApiKey::Produce).unwrap();
        let request = entry.decode::<ProduceRequest>().unwrap();
        assert_eq!((entry.version, request.topic_data[0].topic_id != Uuid::ZERO), expected, "{version:?}");
        assert_eq!(orders(&kafka).await, ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_batch_is_under_way_what_comes_for_its_partition_becomes_the_next_batch() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("first")).await.expect("it is written");
    let held = Held::default();
    kafka.script(produce(Fault::Hold(held.clone())));
    let mut deliveries = vec![accept(&producer, order("0")).await];
    produced(&kafka, 2).await;
    for number in 1..50 {
        deliveries.push(accept(&producer, order(&number.to_string())).await);
    }
    held.release();
    for (delivery, offset) in deliveries.into_iter().zip(1..) {
        assert_eq!(delivery.await.expect("it is written").offset, offset);
    }
    let counts: Vec<_> = batches(&kafka).into_iter().map(|(_, _, count)| count).collect();
    assert_eq!(counts, [1, 1, 49]);
}

#[tokio::test(start_paused = true)]
async fn many_partitions_share_one_request_to_their_broker_and_one_connection() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 50);
    let producer = producer(&kafka).await;
    let mut deliveries = Vec::new();
    for partition in 0..50 {
        deliveries.push(accept(&producer, record("bills", partition, "x")).await);
    }
    for delivery in deliveries {
        assert_eq!(delivery.await.expect("it is written").offset, 0);
    }
    let journal = kafka.journal();
    let requests: Vec<_> = journal.iter().filter(|entry| entry.api == ApiKey::Produce).collect();
    assert_eq!(requests.len(), 1);
    assert_eq!(batches(&kafka).len(), 50);
}

#[tokio::test(start_paused = true)]
async fn one_connection_to_a_broker_carries_all_produce_requests_and_nothing_else() {
    let kafka = kafka(3);
    kafka.create_topic("bills", 30);
    let producer = producer(&kafka).await;
    for round in 0..5 {
        let mut deliveries = Vec::new();
        for partition in 0..30 {
            deliveries.push(accept(&producer, record("bills", partition, &round.to_string())).await);
        }
        for delivery in deliveries {
            delivery.await.expect("it is written");
        }
    }
    let journal = kafka.journal();
    let carrying = |produce: bool| -> BTreeSet<(i32, u64)> {
        let of = |api| (api == ApiKey::Produce) == produce && api != ApiKey::ApiVersions;
        journal.iter().filter(|entry| of(entry.api)).map(|entry| (entry.broker, entry.connection)).collect()
    };
    assert_eq!(carrying(true).len(), 3, "one for each broker");
    assert!(carrying(true).is_disjoint(&carrying(false)));
}

#[tokio::test(start_paused = true)]
async fn a_request_has_no_more_bytes_than_allowed() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 20);
    let config = ProducerConfig { max_request_size: 1000, max_in_flight_requests: 2, ..config() };
    let producer = producer_as(&kafka, config).await;
    write(&producer, order("first")).await.expect("it is written");
    let held = Held::default();
    kafka.script(produce(Fault::Hold(held.clone())));
    let value = "x".repeat(400);
    let mut deliveries = Vec::new();
    for partition in 0..20 {
        deliveries.push(accept(&producer, record("bills", partition, &value)).await);
    }
    produced(&kafka, 2).await;
    held.release();
    for delivery in deliveries {
        delivery.await.expect("it is written");
    }
    let sizes: Vec<usize> = kafka
        .journal()
        .into_iter()
        .filter(|entry| entry.api == ApiKey::Produce)
        .map(|entry| entry.decode::<ProduceRequest>().unwrap().topic_data[0].partition_data.len())
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 21);
    assert!(sizes.iter().all(|parts| *parts <= 2), "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_only_reads_lets_no_record_out() {
    let kafka = kafka(1);
    let cluster =
        strandline_meta::Cluster::connect(crate::world::cluster_config(&kafka), crate::world::late())
            .await
            .unwrap();
    let producer = strandline_client::producer::Producer::start(&cluster, config()).unwrap();
    let answers = write_all(&producer, &["a", "b"]).await;
    assert_eq!(crate::world::outcomes(&answers), ["not written", "not written"]);
    let told = crate::support::chain(answers[0].as_ref().unwrap_err());
    assert!(told.contains("this client only reads"), "{told}");
    assert_eq!(asked(&kafka, ApiKey::Produce) + asked(&kafka, ApiKey::InitProducerId), 0);
}

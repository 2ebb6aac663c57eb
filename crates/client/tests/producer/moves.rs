//! Leaders that move, brokers that go and come back, topics that are deleted and created anew.

use std::sync::Arc;
use std::time::Duration;

use strandline_client::producer::{Outcome, ProduceErrorKind};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, KafkaVersion, Rule};
use tokio::time::Instant;

use crate::support::{asked, chain};
use crate::world::{
    DELIVERY_TIMEOUT, accept, kafka, log, order, orders, outcome, outcomes, produce, produced, producer,
    record, write, write_all,
};

#[tokio::test(start_paused = true)]
async fn a_leader_that_moves_is_followed_without_loss_or_repetition() {
    let kafka = kafka(3);
    let producer = producer(&kafka).await;
    let mut values = Vec::new();
    for round in 0..12 {
        for value in [format!("{round}a"), format!("{round}b")] {
            assert_eq!(write(&producer, order(&value)).await.expect("it is written"), values.len() as i64);
            values.push(value);
        }
        kafka.move_leader("orders", 0, round % 3 + 1);
    }
    assert_eq!(orders(&kafka).await, values);
}

#[tokio::test(start_paused = true)]
async fn a_hint_of_the_old_leader_is_followed_without_a_wait() {
    let kafka = kafka(2);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.move_leader("orders", 0, 2);
    let began = Instant::now();
    write(&producer, order("b")).await.expect("it is written");
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hints_at_the_wrong_leader_is_believed_once_and_then_the_view_is_refreshed() {
    let kafka = kafka(3);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.move_leader("orders", 0, 2);
    kafka.move_leader("orders", 0, 3);
    // Broker 1 says that 2 leads, in a newer epoch than the truth.
    for broker in [1, 2] {
        kafka.freeze_view(broker, |view| {
            let told = &mut view.topics.get_mut("orders").unwrap().partitions[0];
            (told.leader, told.leader_epoch) = (2, told.leader_epoch + 10);
        });
    }
    let delivery = accept(&producer, order("b")).await;
    produced(&kafka, 6).await;
    kafka.thaw_views();
    kafka.set_leader_epoch("orders", 0, 50);
    assert_eq!(delivery.await.expect("it is written").offset, 1);
    assert_eq!(orders(&kafka).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn not_leader_always_refreshes_the_view_though_the_leader_stays_the_same() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    let before = asked(&kafka, ApiKey::Metadata);
    kafka.script(produce(Fault::Error(ErrorCode::NotLeaderOrFollower)).times(3));
    write(&producer, order("b")).await.expect("it is written");
    assert_eq!(asked(&kafka, ApiKey::Metadata), before + 3);
}

#[tokio::test(start_paused = true)]
async fn a_partition_without_a_leader_is_waited_for_and_not_written_at_the_deadline() {
    let kafka = kafka(2);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.move_leader("orders", 0, -1);
    let answers = write_all(&producer, &["b"]).await;
    // The old leader was asked, and a deposed leader may say so after it has appended.
    assert_eq!(outcomes(&answers), ["unknown whether written"]);
    let answers = write_all(&producer, &["c"]).await;
    assert_eq!(outcomes(&answers), ["not written"]);
    assert!(chain(answers[0].as_ref().unwrap_err()).ends_with("partition orders:0 has no leader"));
    let delivery = accept(&producer, order("d")).await;
    kafka.move_leader("orders", 0, 2);
    assert_eq!(delivery.await.expect("it is written").offset, 1);
    assert_eq!(orders(&kafka).await, ["a", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_stopped_and_started_under_load_loses_and_repeats_nothing() {
    let kafka = Arc::new(kafka(3));
    kafka.create_topic("bills", 6);
    let producer = producer(&kafka).await;
    let mut deliveries = Vec::new();
    for round in 0..60 {
        for partition in 0..6 {
            let value = round.to_string();
            deliveries.push((partition, round, accept(&producer, record("bills", partition, &value)).await));
        }
        match round {
            10 => kafka.stop_broker(2).await.unwrap(),
            25 => kafka.restart_broker(2).await.unwrap(),
            30 => kafka.stop_broker(1).await.unwrap(),
            50 => kafka.restart_broker(1).await.unwrap(),
            _ => tokio::time::advance(Duration::from_millis(20)).await,
        }
        tokio::task::yield_now().await;
    }
    for (partition, round, delivery) in deliveries {
        let offset = delivery.await.unwrap_or_else(|error| panic!("{}", chain(&error))).offset;
        assert_eq!(offset, round, "partition {partition}");
    }
    let expected: Vec<String> = (0..60).map(|round: i64| round.to_string()).collect();
    for partition in 0..6 {
        assert_eq!(log(&kafka, "bills", partition).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_moves_to_another_address_is_found_there() {
    let kafka = kafka(2);
    let producer = producer(&kafka).await;
    let mut values = Vec::new();
    for round in 0..4 {
        let value = round.to_string();
        assert_eq!(write(&producer, order(&value)).await.expect("it is written"), round);
        values.push(value);
        // The other broker tells where.
        kafka.readdress_broker(1).await.unwrap();
    }
    assert_eq!(orders(&kafka).await, values);
}

#[tokio::test(start_paused = true)]
async fn a_broker_of_an_older_version_that_takes_over_in_the_midst_of_an_upgrade_is_spoken_to_in_its_version()
{
    let kafka = kafka(3);
    for (broker, version) in [(1, KafkaVersion::V4_4), (2, KafkaVersion::V3_9), (3, KafkaVersion::V4_0)] {
        kafka.set_version(broker, version);
        kafka.close_connections(broker).await;
    }
    let producer = producer(&kafka).await;
    for (offset, broker) in [1, 2, 3, 1, 3, 2].into_iter().enumerate() {
        kafka.move_leader("orders", 0, broker);
        let value = offset.to_string();
        assert_eq!(write(&producer, order(&value)).await.expect("it is written"), offset as i64);
    }
    assert_eq!(orders(&kafka).await, ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_created_anew_is_not_written_to_and_both_ids_are_told() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    let known = kafka.view().topics["orders"].id;
    let now = kafka.recreate_topic("orders");
    let answers = write_all(&producer, &["b", "c"]).await;
    assert_eq!(outcomes(&answers), ["not written", "not written"]);
    for answer in answers {
        let kind = answer.unwrap_err().kind;
        assert!(
            matches!(kind, ProduceErrorKind::Recreated { known: was, now: Some(is) } if (was, is) == (known, now)),
            "{kind}"
        );
    }
    assert_eq!(outcome(&write(&producer, order("d")).await), Some(Outcome::NotWritten), "it stays so");
    assert_eq!(orders(&kafka).await, Vec::<String>::new());
    let another = crate::world::producer(&kafka).await;
    assert_eq!(write(&another, order("e")).await.expect("it is written"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_is_told_soon_and_not_created_again() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.delete_topic("orders");
    let began = Instant::now();
    let answer = write(&producer, order("b")).await.unwrap_err();
    assert!(matches!(answer.kind, ProduceErrorKind::Recreated { now: None, .. }), "{}", chain(&answer));
    assert_eq!(answer.outcome, Outcome::NotWritten);
    assert!(began.elapsed() < DELIVERY_TIMEOUT / 2, "{:?}", began.elapsed());
    assert!(!kafka.view().topics.contains_key("orders"));
}

#[tokio::test(start_paused = true)]
async fn a_topic_or_partition_that_does_not_exist_is_told_soon_and_one_that_comes_late_is_written() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    for (topic, partition, expected) in [
        ("ordres", 0, "topic ordres: UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", 7, "topic orders has 1 partitions, and none has number 7"),
        ("orders", -1, "topic orders has 1 partitions, and none has number -1"),
    ] {
        let began = Instant::now();
        let answer = write(&producer, record(topic, partition, "x")).await.unwrap_err();
        assert_eq!(answer.outcome, Outcome::NotWritten);
        assert!(chain(&answer).ends_with(expected), "{}", chain(&answer));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    assert!(!kafka.view().topics.contains_key("ordres"));
    kafka.script(Rule::new(Fault::Error(ErrorCode::UnknownTopicOrPartition)).api(ApiKey::Metadata).times(1));
    kafka.create_topic("bills", 1);
    assert_eq!(write(&producer, record("bills", 0, "x")).await.expect("it is written"), 0);
}

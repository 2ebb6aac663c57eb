//! Batches, memory, flush and close: what is bounded, and what is never left unanswered.

use std::time::Duration;

use futures::FutureExt as _;
use strandline_client::producer::{Outcome, ProduceErrorKind, Producer, ProducerConfig};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, Held, Network};
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout};

use crate::support::asked;
use crate::world::{
    DELIVERY_TIMEOUT, accept, batches, code, config, connect, kafka, late, log, order, orders, outcomes,
    produce, produced, producer, producer_as, record, write,
};

#[tokio::test(start_paused = true)]
async fn a_record_lingers_for_company_and_no_longer() {
    let kafka = kafka(1);
    let linger = Duration::from_millis(300);
    let producer = producer_as(&kafka, ProducerConfig { linger, ..config() }).await;
    let began = Instant::now();
    let mut deliveries = Vec::new();
    for value in ["a", "b", "c"] {
        deliveries.push(accept(&producer, order(value)).await);
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    for delivery in deliveries {
        delivery.await.expect("it is written");
    }
    let waited = began.elapsed();
    assert!(waited >= linger && waited < linger + Duration::from_millis(20), "{waited:?}");
    assert_eq!(batches(&kafka).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_linger_and_a_larger_record_has_a_batch_of_its_own() {
    let kafka = kafka(1);
    let linger = Duration::from_secs(30);
    let producer = producer_as(&kafka, ProducerConfig { linger, batch_size: 1100, ..config() }).await;
    let began = Instant::now();
    let (small, large) = ("x".repeat(400), "y".repeat(3000));
    let mut deliveries = Vec::new();
    for value in [&small, &small, &small, &large] {
        deliveries.push(accept(&producer, order(value)).await);
    }
    for (delivery, offset) in deliveries.into_iter().zip(0..) {
        assert_eq!(delivery.await.expect("it is written").offset, offset);
    }
    assert!(began.elapsed() < linger, "{:?}", began.elapsed());
    let counts: Vec<_> = batches(&kafka).into_iter().map(|(_, _, count)| count).collect();
    assert_eq!(counts, [2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_too_large_for_its_topic_is_split_until_it_fits_and_a_record_too_large_is_told() {
    let kafka = kafka(1);
    kafka.create_topic_with("narrow", 1, 1, &[("max.message.bytes", "600")]);
    let producer = producer_as(&kafka, ProducerConfig { linger: Duration::from_secs(1), ..config() }).await;
    let (small, large) = ("x".repeat(100), "y".repeat(700));
    let mut deliveries = Vec::new();
    for number in 0..20 {
        let value = if number == 7 { large.clone() } else { format!("{number} {small}") };
        deliveries.push((number, accept(&producer, record("narrow", 0, &value)).await));
    }
    // Flush waits for the parts as well.
    producer.flush().await;
    let mut offset = 0;
    for (number, delivery) in deliveries {
        match delivery.await {
            Ok(told) => {
                assert_eq!(told.offset, offset, "record {number}");
                offset += 1;
            }
            Err(error) => {
                assert_eq!((number, error.outcome), (7, Outcome::NotWritten), "{error}");
                assert!(matches!(error.kind, ProduceErrorKind::TooLarge { bytes: 700.., .. }), "{error}");
            }
        }
    }
    let written: Vec<String> = log(&kafka, "narrow", 0)
        .await
        .iter()
        .map(|value| value.split(' ').next().unwrap().to_owned())
        .collect();
    let expected: Vec<String> =
        (0..20).filter(|number| *number != 7).map(|number| number.to_string()).collect();
    assert_eq!(written, expected);
    // It has learned the limit: what follows is not refused first.
    let before = asked(&kafka, ApiKey::Produce);
    let mut deliveries = Vec::new();
    for _ in 0..8 {
        deliveries.push(accept(&producer, record("narrow", 0, &small)).await);
    }
    producer.flush().await;
    for delivery in deliveries {
        delivery.await.expect("it is written");
    }
    assert!(asked(&kafka, ApiKey::Produce) - before <= 8);
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_a_segment_is_split_as_well() {
    let kafka = kafka(1);
    let producer = producer_as(&kafka, ProducerConfig { linger: Duration::from_secs(1), ..config() }).await;
    kafka.script(code(ErrorCode::RecordListTooLarge));
    let mut deliveries = Vec::new();
    for value in ["a", "b", "c"] {
        deliveries.push(accept(&producer, order(value)).await);
    }
    producer.flush().await;
    for (delivery, offset) in deliveries.into_iter().zip(0..) {
        assert_eq!(delivery.await.expect("it is written").offset, offset);
    }
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_may_be_in_the_log_is_not_split() {
    let kafka = kafka(1);
    let producer = producer_as(&kafka, ProducerConfig { linger: Duration::from_secs(1), ..config() }).await;
    kafka.script(produce(Fault::ApplyThenLose));
    kafka.script(code(ErrorCode::MessageTooLarge));
    let first = accept(&producer, order("a")).await;
    let second = accept(&producer, order("b")).await;
    for delivery in [first, second] {
        assert_eq!(delivery.await.unwrap_err().outcome, Outcome::Unknown);
    }
    write(&producer, order("c")).await.expect("it is written");
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_sender_waits_while_the_memory_is_used_up_and_goes_on_in_turn() {
    let kafka = kafka(1);
    let value = "x".repeat(1000);
    let config = ProducerConfig { buffer_memory: 5000, ..config() };
    let producer = producer_as(&kafka, config).await;
    write(&producer, order("first")).await.expect("it is written");
    assert_eq!(producer.free_memory(), 5000, "an answer gives the room back");
    let held = Held::default();
    kafka.script(produce(Fault::Hold(held.clone())));
    let mut deliveries = Vec::new();
    while let Some(delivery) = producer.try_send(order(&value)).expect("it is open") {
        deliveries.push(delivery);
    }
    assert_eq!(deliveries.len(), 4);
    produced(&kafka, 2).await;
    let waiting = tokio::spawn({
        let (producer, value) = (producer.clone(), value.clone());
        async move { accept(&producer, order(&value)).await.await }
    });
    tokio::task::yield_now().await;
    let given_up = timeout(Duration::from_secs(1), producer.send(order("smaller, and behind it"))).await;
    assert!(given_up.is_err(), "it is not its turn");
    assert!(!waiting.is_finished());
    held.release();
    for delivery in deliveries {
        delivery.await.expect("it is written");
    }
    waiting.await.unwrap().expect("it is written");
    assert_eq!(producer.free_memory(), 5000);
    assert_eq!(orders(&kafka).await.len(), 6, "what was given up was not accepted");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_room_does_not_wait_for_linger() {
    let kafka = kafka(1);
    let linger = Duration::from_secs(50);
    let producer = producer_as(&kafka, ProducerConfig { linger, buffer_memory: 3000, ..config() }).await;
    let value = "x".repeat(1000);
    let began = Instant::now();
    let mut deliveries = Vec::new();
    for _ in 0..10 {
        deliveries.push(accept(&producer, order(&value)).await);
    }
    assert!(began.elapsed() < linger, "{:?}", began.elapsed());
    producer.flush().await;
    for delivery in deliveries {
        delivery.await.expect("it is written");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_can_never_be_accepted_is_told_at_once() {
    let kafka = kafka(1);
    let producer = producer_as(&kafka, ProducerConfig { buffer_memory: 1000, ..config() }).await;
    let value = "x".repeat(1000);
    let refused = producer.send(order(&value)).await.unwrap_err();
    assert!(matches!(refused.kind, ProduceErrorKind::LargerThanBuffer { bytes: 1128, buffer_memory: 1000 }));
    for topic in [String::new(), "x".repeat(250)] {
        let refused = producer.send(record(&topic, 0, "x")).await.unwrap_err();
        assert!(matches!(refused.kind, ProduceErrorKind::NotATopicName), "{refused}");
        assert_eq!(refused.outcome, Outcome::NotWritten);
    }
    assert_eq!(producer.free_memory(), 1000);
}

#[tokio::test(start_paused = true)]
async fn flush_sends_what_lingers_and_returns_when_all_before_it_is_answered() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 10);
    let linger = Duration::from_secs(50);
    let producer = producer_as(&kafka, ProducerConfig { linger, ..config() }).await;
    producer.flush().await;
    let mut deliveries = Vec::new();
    for partition in 0..10 {
        deliveries.push(accept(&producer, record("bills", partition, "x")).await);
    }
    let began = Instant::now();
    producer.flush().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    for mut delivery in deliveries {
        let answer = unconstrained(&mut delivery).now_or_never().expect("it is answered already");
        assert_eq!(answer.expect("it is written").offset, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_does_not_wait_for_what_comes_after_it() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 1);
    let producer = producer_as(&kafka, ProducerConfig { linger: Duration::from_secs(40), ..config() }).await;
    let first = accept(&producer, order("a")).await;
    let flushing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.flush().await }
    });
    tokio::task::yield_now().await;
    let second = accept(&producer, record("bills", 0, "b")).await;
    let began = Instant::now();
    flushing.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    first.await.expect("it is written");
    second.await.expect("it is written");
}

#[tokio::test(start_paused = true)]
async fn close_under_load_answers_every_record_and_accepts_none_after_it() {
    let kafka = kafka(3);
    kafka.create_topic("bills", 6);
    kafka.script(produce(Fault::ApplyThenLose).probability(0.2).always());
    let producer = producer(&kafka).await;
    let loads: Vec<_> = (0..6)
        .map(|partition| {
            let producer = producer.clone();
            tokio::spawn(async move {
                let mut deliveries = Vec::new();
                loop {
                    match producer.send(record("bills", partition, &deliveries.len().to_string())).await {
                        Ok(delivery) => deliveries.push(delivery),
                        Err(error) => {
                            assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
                            return deliveries;
                        }
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    produced(&kafka, 40).await;
    producer.close(late()).await;
    for (load, partition) in loads.into_iter().zip(0..) {
        let deliveries = load.await.unwrap();
        assert!(!deliveries.is_empty());
        let expected: Vec<String> = (0..deliveries.len()).map(|number| number.to_string()).collect();
        for (mut delivery, offset) in deliveries.into_iter().zip(0..) {
            let answer = unconstrained(&mut delivery).now_or_never().expect("it is answered already");
            assert_eq!(answer.expect("it is written").offset, offset);
        }
        assert_eq!(log(&kafka, "bills", partition).await, expected);
    }
    producer.close(late()).await;
    producer.flush().await;
    let refused = producer.send(order("x")).await.unwrap_err();
    assert!(matches!(refused.kind, ProduceErrorKind::Closed), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_at_its_deadline_and_says_what_was_sent_and_what_was_not() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(produce(Fault::Hold(Held::default())));
    let sent = accept(&producer, order("b")).await;
    produced(&kafka, 2).await;
    let queued = accept(&producer, order("c")).await;
    let began = Instant::now();
    producer.close(began + Duration::from_secs(1)).await;
    assert_eq!(began.elapsed().as_secs(), 1);
    assert_eq!(sent.await.unwrap_err().outcome, Outcome::Unknown);
    assert_eq!(queued.await.unwrap_err().outcome, Outcome::NotWritten);
}

#[tokio::test(start_paused = true)]
async fn close_while_no_broker_can_be_reached_ends_in_time() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    kafka.set_network(1, Network::Refuse).await.unwrap();
    kafka.close_connections(1).await;
    let delivery = accept(&producer, order("a")).await;
    let began = Instant::now();
    producer.close(late()).await;
    assert_eq!(began.elapsed().as_secs(), DELIVERY_TIMEOUT.as_secs());
    assert_eq!(delivery.await.unwrap_err().outcome, Outcome::NotWritten);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_dropped_has_closed_the_producer_and_keeps_its_deadline() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    kafka.script(produce(Fault::Hold(Held::default())));
    let delivery = accept(&producer, order("a")).await;
    produced(&kafka, 1).await;
    let began = Instant::now();
    assert!(producer.close(began + Duration::from_secs(2)).now_or_never().is_none());
    assert!(matches!(producer.send(order("b")).await.unwrap_err().kind, ProduceErrorKind::Closed));
    assert_eq!(delivery.await.unwrap_err().outcome, Outcome::Unknown);
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_waits_for_room_is_told_when_the_producer_is_closed() {
    let kafka = kafka(1);
    let producer = producer_as(&kafka, ProducerConfig { buffer_memory: 1300, ..config() }).await;
    kafka.script(produce(Fault::Hold(Held::default())));
    let value = "x".repeat(1000);
    let first = accept(&producer, order(&value)).await;
    let waiting = tokio::spawn({
        let (producer, value) = (producer.clone(), value.clone());
        async move { producer.send(order(&value)).await.map(drop) }
    });
    tokio::task::yield_now().await;
    producer.close(Instant::now() + Duration::from_secs(1)).await;
    assert!(matches!(waiting.await.unwrap().unwrap_err().kind, ProduceErrorKind::Closed));
    assert_eq!(first.await.unwrap_err().outcome, Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn what_was_accepted_is_delivered_though_the_producer_and_the_answer_are_dropped() {
    let kafka = kafka(1);
    let producer = producer_as(&kafka, ProducerConfig { linger: Duration::from_secs(50), ..config() }).await;
    drop(accept(&producer, order("a")).await);
    let kept = accept(&producer, order("b")).await;
    drop(producer);
    assert_eq!(kept.await.expect("it is written").offset, 1);
    assert_eq!(orders(&kafka).await, ["a", "b"]);
}

#[test]
fn a_runtime_that_ends_leaves_no_record_without_an_answer() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (producer, sent, queued): (Producer, _, _) = runtime.block_on(async {
        let kafka = kafka(1);
        let producer = producer(&kafka).await;
        kafka.script(produce(Fault::Hold(Held::default())));
        let sent = accept(&producer, order("a")).await;
        produced(&kafka, 1).await;
        let queued = accept(&producer, order("b")).await;
        (producer, sent, queued)
    });
    drop(runtime);
    let another = tokio::runtime::Builder::new_current_thread().build().unwrap();
    another.block_on(async {
        let answers = [sent.await, queued.await].map(|answer| answer.map(|at| at.offset));
        assert_eq!(outcomes(&answers), ["unknown whether written", "not written"]);
        let refused = producer.send(order("c")).await.unwrap_err();
        assert!(matches!(refused.kind, ProduceErrorKind::Closed), "{refused}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_setting_with_which_nothing_could_be_sent_is_refused_at_the_start() {
    let kafka = kafka(1);
    let refused = Producer::start(&connect(&kafka).await, ProducerConfig { batch_size: 0, ..config() });
    assert_eq!(refused.unwrap_err().setting, "batch_size");
}

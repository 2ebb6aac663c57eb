//! Answers that are lost, late, wrong or bad: each record is written once, or its answer says that nobody knows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use strandline_client::producer::{Outcome, ProduceErrorKind, Producer, ProducerConfig};
use strandline_conn::{Observer, RetryDecision, RetryEvent};
use strandline_meta::{Cluster, ConnectionConfig};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Acl, Fault, Held, Network, Operation, Resource, Rule};
use tokio::time::Instant;

use crate::support::{asked, chain};
use crate::world::{
    DELIVERY_TIMEOUT, REQUEST_TIMEOUT, accept, cluster_config_as, code, config, connection_config, kafka,
    late, log, order, orders, outcome, outcomes, produce, produced, producer, producer_as, record, sequences,
    write, write_all,
};

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_at_any_point_leaves_no_duplicate_and_no_gap() {
    for lost in 1..=6 {
        for times in 1..=3 {
            let kafka = kafka(1);
            kafka.script(produce(Fault::ApplyThenLose).nth(lost).times(times));
            let producer = producer(&kafka).await;
            for (number, offset) in (0..6).zip(0..) {
                let answer = write(&producer, order(&number.to_string())).await;
                assert_eq!(answer.expect("it is written"), offset, "the {lost}th answer, {times} times");
            }
            assert_eq!(orders(&kafka).await, ["0", "1", "2", "3", "4", "5"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_in_any_way_is_one_more_lost_answer() {
    let tls_alert = vec![0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x46];
    let faults = [
        Fault::CloseAfter(0),
        Fault::CloseAfter(3),
        Fault::CloseAfter(30),
        Fault::Garbage(vec![0, 0, 0, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        Fault::Garbage(tls_alert),
        Fault::WrongCorrelationId,
        Fault::Twice,
        Fault::Close,
        Fault::Drop,
        Fault::Delay(Duration::from_secs(20)),
        Fault::Trickle { bytes: 3, pause: Duration::from_millis(1) },
        Fault::Throttle(Duration::from_secs(1)),
    ];
    for fault in faults {
        let kafka = kafka(1);
        kafka.script(produce(fault.clone()).nth(2));
        let producer = producer(&kafka).await;
        for (number, offset) in (0..4).zip(0..) {
            let answer = write(&producer, order(&number.to_string())).await;
            assert_eq!(answer.expect("it is written"), offset, "{fault:?}");
        }
        assert_eq!(orders(&kafka).await, ["0", "1", "2", "3"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resent_batch_keeps_its_sequence() {
    let kafka = kafka(1);
    kafka.script(produce(Fault::ApplyThenLose).nth(2));
    kafka.script(code(ErrorCode::NotEnoughReplicasAfterAppend).nth(3));
    kafka.script(code(ErrorCode::RequestTimedOut).nth(3));
    let producer = producer(&kafka).await;
    for value in ["a", "b", "c"] {
        write(&producer, order(value)).await.expect("it is written");
    }
    assert_eq!(
        sequences(&kafka),
        ["0/0 0..=0", "0/0 1..=1", "0/0 1..=1", "0/0 2..=2", "0/0 2..=2", "0/0 2..=2"]
    );
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_unknown_at_the_deadline_and_what_follows_has_the_next_epoch() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(produce(Fault::ApplyThenLose).always());
    let began = Instant::now();
    let lost = write(&producer, order("b")).await;
    assert_eq!(outcome(&lost), Some(Outcome::Unknown));
    assert_eq!(began.elapsed().as_secs(), DELIVERY_TIMEOUT.as_secs());
    let told = chain(&lost.unwrap_err());
    assert!(told.starts_with("orders:0: unknown whether written: not acknowledged within 60.0s"), "{told}");
    kafka.clear_script();
    assert_eq!(write(&producer, order("c")).await.expect("it is written"), 2);
    // It had been written, once, and nobody could know.
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
    assert_eq!(sequences(&kafka).last().map(String::as_str), Some("0/1 0..=0"));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_given_up_cannot_be_appended_behind_what_follows_it() {
    let kafka = kafka(1);
    let quick = ProducerConfig { delivery_timeout: Duration::from_secs(2), ..config() };
    let producer = producer_as(&kafka, quick).await;
    write(&producer, order("a")).await.expect("it is written");
    // The broker has read the request, and acts upon it after its connection was given up and more was written.
    let held = Held::default();
    kafka.script(produce(Fault::Hold(held.clone())));
    let late = write(&producer, order("late")).await;
    assert_eq!(outcome(&late), Some(Outcome::Unknown));
    tokio::time::sleep(REQUEST_TIMEOUT).await;
    assert_eq!(write(&producer, order("b")).await.expect("it is written"), 1);
    held.release();
    // The pipe in memory brings the held request to its end before the next answer.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(write(&producer, order("c")).await.expect("it is written"), 2);
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_still_tells_the_producer_which_sequence_is_next() {
    let kafka = kafka(1);
    let quick = ProducerConfig { delivery_timeout: Duration::from_secs(2), ..config() };
    let producer = producer_as(&kafka, quick).await;
    kafka.script(produce(Fault::Delay(Duration::from_secs(3))));
    assert_eq!(outcome(&write(&producer, order("a")).await), Some(Outcome::Unknown));
    assert_eq!(write(&producer, order("b")).await.expect("it is written"), 1);
    assert_eq!(sequences(&kafka), ["0/0 0..=0", "0/0 1..=1"], "no new epoch is needed");
    assert_eq!(orders(&kafka).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_reached_no_broker_is_not_written_and_is_so_for_certain() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    for network in [Network::Refuse, Network::Blackhole] {
        kafka.close_connections(1).await;
        kafka.set_network(1, network).await.unwrap();
        kafka.close_connections(1).await;
        let began = Instant::now();
        let answers = write_all(&producer, &["b", "c"]).await;
        assert_eq!(outcomes(&answers), ["not written", "not written"], "{network:?}");
        assert_eq!(began.elapsed().as_secs(), DELIVERY_TIMEOUT.as_secs());
        kafka.set_network(1, Network::Up).await.unwrap();
    }
    write(&producer, order("d")).await.expect("it is written");
    assert_eq!(orders(&kafka).await, ["a", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_lost_answer_settles_nothing() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(produce(Fault::ApplyThenLose));
    kafka.script(code(ErrorCode::TopicAuthorizationFailed));
    let answer = write(&producer, order("b")).await;
    assert_eq!(outcome(&answer), Some(Outcome::Unknown));
    assert!(matches!(answer.unwrap_err().kind, ProduceErrorKind::Refused { .. }));
    write(&producer, order("c")).await.expect("it is written");
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
    assert_eq!(sequences(&kafka).last().map(String::as_str), Some("0/1 0..=0"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_of_one_topic_does_not_take_the_answer_of_another_topic() {
    let kafka = kafka(1);
    kafka.create_topic_with("states", 1, 1, &[("cleanup.policy", "compact")]);
    kafka.append("orders", 0, &[b"before"]);
    let producer = producer(&kafka).await;
    // Same partition number, same request.
    let orders_delivery = accept(&producer, record("orders", 0, "a")).await;
    let states_delivery = accept(&producer, record("states", 0, "without a key")).await;
    assert_eq!(orders_delivery.await.expect("it is written").offset, 1);
    let refused = states_delivery.await.unwrap_err();
    assert_eq!(asked(&kafka, ApiKey::Produce), 1);
    assert_eq!((&*refused.topic, refused.partition, refused.outcome), ("states", 0, Outcome::NotWritten));
    assert!(matches!(refused.kind, ProduceErrorKind::Refused { code: ErrorCode::InvalidRecord, .. }));
    assert_eq!(log(&kafka, "states", 0).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_for_certain_uses_no_sequence_and_holds_up_nothing() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    for refusal in [ErrorCode::InvalidRecord, ErrorCode::InvalidTimestamp, ErrorCode::PolicyViolation] {
        kafka.script(code(refusal));
        let answer = write(&producer, order("b")).await;
        assert_eq!(outcome(&answer), Some(Outcome::NotWritten), "{refusal}");
        assert!(
            matches!(answer.unwrap_err().kind, ProduceErrorKind::Refused { code, .. } if code == refusal)
        );
    }
    assert_eq!(write(&producer, order("c")).await.expect("it is written"), 1);
    assert_eq!(sequences(&kafka).last().map(String::as_str), Some("0/0 1..=1"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_nothing_is_written() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    let describe = Acl {
        principal: "User:ANONYMOUS".to_owned(),
        operation: Operation::Describe,
        resource: Resource::Topic("orders".to_owned()),
    };
    kafka.set_acls(Some(vec![describe]));
    let answer = write(&producer, order("a")).await.unwrap_err();
    assert_eq!(
        (answer.outcome, answer.recovery()),
        (Outcome::NotWritten, strandline_meta::Recovery::Forbidden)
    );
    kafka.set_acls(None);
    assert_eq!(write(&producer, order("b")).await.expect("rights change"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_whose_offset_the_broker_has_forgotten_is_written() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    kafka.script(produce(Fault::ApplyThenLose));
    kafka.script(code(ErrorCode::DuplicateSequenceNumber));
    let answer = write(&producer, order("a")).await.unwrap_err();
    assert_eq!(answer.outcome, Outcome::Written);
    assert!(matches!(answer.kind, ProduceErrorKind::NoOffset { .. }), "{answer}");
    assert_eq!(write(&producer, order("b")).await.expect("it is written"), 1);
    assert_eq!(orders(&kafka).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn min_isr_that_is_lost_and_comes_back_delays_and_loses_nothing() {
    let kafka = Arc::new(kafka(3));
    kafka.create_topic_with("safe", 1, 3, &[("min.insync.replicas", "2")]);
    let (leader, _) = kafka.leader("safe", 0);
    let producer = producer(&kafka).await;
    write(&producer, record("safe", 0, "a")).await.expect("it is written");
    kafka.set_isr("safe", 0, &[leader]);
    let before = asked(&kafka, ApiKey::Produce);
    let delivery = accept(&producer, record("safe", 0, "b")).await;
    produced(&kafka, before + 3).await;
    kafka.set_isr("safe", 0, &[1, 2, 3]);
    assert_eq!(delivery.await.expect("it is written").offset, 1);
    assert_eq!(log(&kafka, "safe", 0).await, ["a", "b"]);

    kafka.set_isr("safe", 0, &[leader]);
    let answer = write(&producer, record("safe", 0, "c")).await;
    assert_eq!(outcome(&answer), Some(Outcome::NotWritten), "every try was refused before the append");
    let told = chain(&answer.unwrap_err());
    assert!(told.ends_with("answered NOT_ENOUGH_REPLICAS"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_passes_by_itself_is_waited_for() {
    for passing in [
        ErrorCode::NotEnoughReplicas,
        ErrorCode::NotEnoughReplicasAfterAppend,
        ErrorCode::RequestTimedOut,
        ErrorCode::KafkaStorageError,
        ErrorCode::CorruptMessage,
        ErrorCode::NotLeaderOrFollower,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::UnknownTopicId,
        ErrorCode::LeaderNotAvailable,
    ] {
        let kafka = kafka(1);
        kafka.script(code(passing).times(4));
        let producer = producer(&kafka).await;
        assert_eq!(write(&producer, order("a")).await.expect("it is written"), 0, "{passing}");
        assert_eq!(orders(&kafka).await, ["a"], "{passing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_disk_makes_the_producer_look_for_another_leader() {
    let kafka = kafka(2);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(
        Rule::new(Fault::Error(ErrorCode::KafkaStorageError)).api(ApiKey::Produce).broker(1).always(),
    );
    let looked_up = asked(&kafka, ApiKey::Metadata);
    let delivery = accept(&producer, order("b")).await;
    produced(&kafka, 3).await;
    assert!(asked(&kafka, ApiKey::Metadata) > looked_up);
    kafka.move_leader("orders", 0, 2);
    assert_eq!(delivery.await.expect("it is written").offset, 1);
}

/// Keeps what is decided about Produce requests.
#[derive(Debug, Default)]
struct Decisions(Mutex<Vec<String>>);

impl Observer for Decisions {
    fn on_retry(&self, event: &RetryEvent<'_>) {
        if event.api == ApiKey::Produce {
            let decision = match event.decision {
                RetryDecision::Again { .. } => "again",
                RetryDecision::GiveUp => "given up",
            };
            self.0
                .lock()
                .expect("nobody panicked")
                .push(format!("{} {decision}: {}", event.attempt, event.error));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_try_that_fails_is_told_to_the_observer_with_what_was_decided() {
    let kafka = kafka(1);
    let decisions = Arc::new(Decisions::default());
    let connection = connection_config(&kafka);
    let connection = ConnectionConfig { observer: Arc::<Decisions>::clone(&decisions), ..connection };
    let cluster = Cluster::connect(cluster_config_as(&kafka, connection).read_write(), late()).await.unwrap();
    let producer = Producer::start(&cluster, config()).unwrap();
    kafka.script(code(ErrorCode::NotEnoughReplicas).times(2));
    kafka.script(code(ErrorCode::InvalidTimestamp));
    write(&producer, order("a")).await.unwrap_err();
    assert_eq!(
        *decisions.0.lock().unwrap(),
        [
            "1 again: broker 1 answered NOT_ENOUGH_REPLICAS",
            "2 again: broker 1 answered NOT_ENOUGH_REPLICAS",
            "2 given up: broker 1 answered INVALID_TIMESTAMP"
        ]
    );
}

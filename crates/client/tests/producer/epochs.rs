//! Producer ids, epochs and sequences that brokers refuse (KIP-360).

use strandline_client::producer::{Outcome, ProduceErrorKind};
use strandline_protocol::records::{BatchOptions, NewRecord, Producer as Sequence};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, Rule};

use crate::support::{asked, chain};
use crate::world::{
    accept, code, kafka, order, orders, outcome, outcomes, produce, producer, record, sequences, write,
    write_all,
};

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_acknowledged_batches_is_written_on_in_the_next_epoch_without_a_duplicate() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(code(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(write(&producer, order("b")).await.expect("it is written"), 1);
    write(&producer, order("c")).await.expect("it is written");
    assert_eq!(orders(&kafka).await, ["a", "b", "c"]);
    assert_eq!(sequences(&kafka), ["0/0 0..=0", "0/0 1..=1", "0/1 0..=0", "0/1 1..=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_truncated_under_the_producer_is_written_on_once_and_in_order() {
    for answer_lost in [false, true] {
        let kafka = kafka(1);
        let producer = producer(&kafka).await;
        for value in ["a", "b", "c"] {
            write(&producer, order(value)).await.expect("it is written");
        }
        kafka.truncate("orders", 0, 1);
        if answer_lost {
            // The log takes nothing while it is being lost: the first try is refused unseen.
            kafka.script(produce(Fault::ApplyThenLose));
        }
        assert_eq!(write(&producer, order("d")).await.expect("it is written"), 1);
        assert_eq!(write(&producer, order("e")).await.expect("it is written"), 2);
        assert_eq!(orders(&kafka).await, ["a", "d", "e"]);
        assert_eq!(sequences(&kafka).last().map(String::as_str), Some("0/1 1..=1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_sequence_out_of_order_settles_that_the_batch_of_a_lost_answer_is_not_in_the_log() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    // Sent, not acted upon, no answer; and by the next try the log holds less than it did.
    kafka.script(produce(Fault::Close));
    kafka.script(code(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(write(&producer, order("b")).await.expect("it is written"), 1);
    assert_eq!(orders(&kafka).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_lost_the_producer_gets_the_batch_in_the_next_epoch_in_order() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(code(ErrorCode::UnknownProducerId));
    let answers = write_all(&producer, &["b", "c", "d"]).await;
    assert_eq!(outcomes(&answers), ["1", "2", "3"]);
    assert_eq!(orders(&kafka).await, ["a", "b", "c", "d"]);
    assert_eq!(sequences(&kafka)[..3], ["0/0 0..=0", "0/0 1..=3", "0/1 0..=2"]);
    assert_eq!(asked(&kafka, ApiKey::InitProducerId), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_lost_the_producer_after_a_lost_answer_leaves_it_unknown() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    kafka.script(produce(Fault::ApplyThenLose));
    kafka.script(code(ErrorCode::UnknownProducerId));
    let answer = write(&producer, order("b")).await;
    assert_eq!(outcome(&answer), Some(Outcome::Unknown));
    assert!(matches!(answer.unwrap_err().kind, ProduceErrorKind::StateLost { producer_id: 0 }));
    assert_eq!(write(&producer, order("c")).await.expect("it is written"), 2);
    assert_eq!(orders(&kafka).await, ["a", "b", "c"], "sent again it would be there twice");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_batch_is_not_sent_again_and_what_follows_has_a_new_producer_id() {
    for fencing in [ErrorCode::InvalidProducerEpoch, ErrorCode::ProducerFenced] {
        let kafka = kafka(1);
        let producer = producer(&kafka).await;
        write(&producer, order("a")).await.expect("it is written");
        kafka.script(code(fencing));
        let answer = write(&producer, order("b")).await.unwrap_err();
        assert_eq!(answer.outcome, Outcome::NotWritten);
        let told = answer.to_string();
        assert!(told.contains("producer 0 is fenced in epoch 0"), "{told}");
        assert_eq!(write(&producer, order("c")).await.expect("it is written"), 1);
        assert_eq!(sequences(&kafka), ["0/0 0..=0", "0/0 1..=1", "1/0 0..=0"], "{fencing}");
        assert_eq!(orders(&kafka).await, ["a", "c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_else_who_writes_under_our_producer_id_in_a_later_epoch_is_told() {
    let kafka = kafka(1);
    let producer = producer(&kafka).await;
    write(&producer, order("a")).await.expect("it is written");
    let theirs = Sequence { id: 0, epoch: 5, base_sequence: 0 };
    let options = BatchOptions { producer: Some(theirs), ..BatchOptions::default() };
    let record = NewRecord { value: Some(b"theirs"), ..NewRecord::default() };
    kafka.append_batch("orders", 0, options, &[record]);
    let answer = write(&producer, order("b")).await.unwrap_err();
    assert!(matches!(answer.kind, ProduceErrorKind::Fenced { producer_epoch: 0, .. }), "{}", chain(&answer));
    assert_eq!(write(&producer, order("c")).await.expect("it is written"), 2);
    assert_eq!(orders(&kafka).await, ["a", "theirs", "c"]);
}

#[tokio::test(start_paused = true)]
async fn the_next_epoch_of_one_partition_disturbs_no_other() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 2);
    let producer = producer(&kafka).await;
    for partition in [0, 1] {
        write(&producer, record("bills", partition, "a")).await.expect("it is written");
    }
    kafka.script(code(ErrorCode::OutOfOrderSequenceNumber));
    write(&producer, record("bills", 0, "b")).await.expect("it is written");
    write(&producer, record("bills", 1, "b")).await.expect("it is written");
    assert_eq!(sequences(&kafka), ["0/0 0..=0", "0/0 0..=0", "0/0 1..=1", "0/1 0..=0", "0/0 1..=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_producer_id_that_cannot_be_had_at_first_delays_and_one_that_is_forbidden_is_told() {
    let kafka = kafka(1);
    let init = |fault| Rule::new(fault).api(ApiKey::InitProducerId);
    kafka.script(init(Fault::Error(ErrorCode::CoordinatorLoadInProgress)).times(2));
    kafka.script(init(Fault::ApplyThenLose));
    kafka.script(init(Fault::Close));
    let first = producer(&kafka).await;
    assert_eq!(write(&first, order("a")).await.expect("it is written"), 0);

    kafka.script(init(Fault::Error(ErrorCode::ClusterAuthorizationFailed)));
    let second = producer(&kafka).await;
    let answers = write_all(&second, &["b", "c"]).await;
    assert_eq!(outcomes(&answers), ["not written", "not written"]);
    assert!(matches!(answers[0].as_ref().unwrap_err().kind, ProduceErrorKind::NoProducerId { .. }));
    assert_eq!(write(&second, order("d")).await.expect("rights change"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_producer_id_is_asked_for_once_however_many_partitions_wait_for_it() {
    let kafka = kafka(1);
    kafka.create_topic("bills", 40);
    let producer = producer(&kafka).await;
    let mut deliveries = Vec::new();
    for partition in 0..40 {
        deliveries.push(accept(&producer, record("bills", partition, "a")).await);
    }
    for delivery in deliveries {
        delivery.await.expect("it is written");
    }
    assert_eq!(asked(&kafka, ApiKey::InitProducerId), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_no_producer_ids_is_told_at_once_and_gets_no_record() {
    let kafka = kafka(1);
    kafka.limit_versions(1, ApiKey::InitProducerId, None);
    let began = tokio::time::Instant::now();
    let answer = write(&producer(&kafka).await, order("a")).await.unwrap_err();
    assert_eq!(answer.outcome, Outcome::NotWritten);
    assert!(matches!(answer.kind, ProduceErrorKind::NoProducerId { .. }), "{}", chain(&answer));
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    assert_eq!(asked(&kafka, ApiKey::Produce), 0);
}

//! What passes, however long it takes: it is tried again for ever, with growing waits, and the subscriber can see it.

use std::time::Duration;

use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, Network, Rule};
use tokio::time::{Instant, sleep};

use super::{World, both_ways, expected, hindrance, is_fetching, records, until, view};
use crate::kafka_log::config::FetchConnections;
use crate::subscription::ReadingState;

both_ways! {
    a_first_connect_that_fails_is_tried_for_as_long_as_it_takes
    a_connection_that_ends_later_is_dialled_anew_and_nothing_is_lost_or_repeated
    a_connection_that_a_broker_closes_while_nothing_is_asked_costs_no_wait
    every_fault_that_passes_is_waited_out
    fenced_and_unknown_epochs_are_waited_out_with_a_fresh_view
    a_throttled_reading_leaves_the_broker_alone_and_says_so
    a_broker_at_another_address_is_found_there
}

async fn a_first_connect_that_fails_is_tried_for_as_long_as_it_takes(ways: FetchConnections) {
    let world = World::new(ways, 2, 2).await;
    world.append(1, 0..5);
    world.kafka.set_network(2, Network::Refuse).await.unwrap();
    let mut events = world.follow([1]);
    assert!(matches!(view(&events, 1).state, ReadingState::Starting));
    until("a first failure", || hindrance(&events, 1).is_some()).await;
    sleep(Duration::from_secs(3600)).await;
    let (told, failures) = hindrance(&events, 1).expect("it goes on trying");
    assert!(told.starts_with("cannot connect to broker 2 at "), "{told}");
    // At the longest wait of 1.6 s, more or less a fifth, an hour has some 2 250 tries, and at the first of 0.2 s 18 000.
    assert!((1000..4000).contains(&failures), "{failures} failures within an hour");
    let list = events.assignment().list();
    assert_eq!((list.len(), list[0].next_offset, list[0].log_end_offset), (1, 0, None));

    world.kafka.set_network(2, Network::Up).await.unwrap();
    assert_eq!(records(&mut events, 5).await, expected(1, 0..5));
    assert!(is_fetching(&events, 1));
    assert_eq!(view(&events, 1).lag(), Some(0));
}

async fn a_connection_that_ends_later_is_dialled_anew_and_nothing_is_lost_or_repeated(
    ways: FetchConnections,
) {
    let world = World::new(ways, 2, 2).await;
    let mut events = world.follow([0]);
    for round in 0..10 {
        world.append(0, round * 3..round * 3 + 3);
        if round % 2 == 1 {
            world.kafka.close_connections(1).await;
        } else {
            world.kafka.set_network(1, Network::Reset).await.unwrap();
            until("a failure", || hindrance(&events, 0).is_some() || round == 0).await;
            world.kafka.set_network(1, Network::Up).await.unwrap();
        }
        assert_eq!(records(&mut events, 3).await, expected(0, round * 3..round * 3 + 3), "round {round}");
    }
    assert!(is_fetching(&events, 0));
}

async fn a_connection_that_a_broker_closes_while_nothing_is_asked_costs_no_wait(ways: FetchConnections) {
    let world = World::with(ways, 1, 1, |config| config.fetch_max_bytes = 1).await;
    world.append(0, 0..2);
    let mut events = world.subscribe(super::capacity(1));
    events.assignment().add(0, 0).unwrap();
    until("a full queue", || view(&events, 0).queued_records == 1).await;
    world.kafka.close_connections(1).await;
    let began = Instant::now();
    assert_eq!(records(&mut events, 2).await, expected(0, 0..2));
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    assert!(hindrance(&events, 0).is_none());
}

async fn every_fault_that_passes_is_waited_out(ways: FetchConnections) {
    let passing = [
        Fault::Error(ErrorCode::NotLeaderOrFollower),
        Fault::Error(ErrorCode::KafkaStorageError),
        Fault::Error(ErrorCode::UnknownLeaderEpoch),
        Fault::Error(ErrorCode::FencedLeaderEpoch),
        Fault::Error(ErrorCode::OffsetNotAvailable),
        Fault::Error(ErrorCode::ReplicaNotAvailable),
        Fault::Error(ErrorCode::UnknownTopicId),
        Fault::Error(ErrorCode::InconsistentTopicId),
        Fault::Error(ErrorCode::CorruptMessage),
        Fault::Error(ErrorCode::OffsetOutOfRange),
        Fault::Close,
        Fault::CloseAfter(9),
        Fault::ApplyThenLose,
        Fault::Throttle(Duration::from_millis(20)),
        Fault::Trickle { bytes: 16, pause: Duration::from_millis(1) },
        Fault::WrongCorrelationId,
        Fault::Twice,
        Fault::Drop,
        Fault::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        Fault::Garbage(vec![0xff; 64]),
    ];
    let world = World::new(ways, 1, 3).await;
    let mut events = world.follow(0..3);
    let mut next = 0;
    for fault in passing {
        let name = format!("{fault:?}");
        world.kafka.script(Rule::new(fault).api(ApiKey::Fetch).times(2));
        for partition in 0..3 {
            world.append(partition, next..next + 2);
        }
        let mut seen = records(&mut events, 6).await;
        seen.sort();
        let all: Vec<_> = (0..3).flat_map(|partition| expected(partition, next..next + 2)).collect();
        let mut all = all;
        all.sort();
        assert_eq!(seen, all, "{name}");
        next += 2;
        world.kafka.clear_script();
    }
}

async fn fenced_and_unknown_epochs_are_waited_out_with_a_fresh_view(ways: FetchConnections) {
    let world = World::new(ways, 2, 1).await;
    for broker in [2, 1, 2, 1] {
        world.kafka.move_leader(super::TOPIC, 0, broker);
    }
    world.append(0, 0..1);
    let mut events = world.follow([0]);
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
    // The controllers lost their log and came back with an older one: the brokers' logs are as they were.
    let (_, epoch) = world.kafka.leader(super::TOPIC, 0);
    world.kafka.set_leader_epoch(super::TOPIC, 0, epoch - 2);
    world.append(0, 1..2);
    assert_eq!(records(&mut events, 1).await, expected(0, 1..2));
    // And the leader is ahead of the view.
    world.kafka.set_leader_epoch(super::TOPIC, 0, epoch + 7);
    world.append(0, 2..3);
    assert_eq!(records(&mut events, 1).await, expected(0, 2..3));
}

async fn a_throttled_reading_leaves_the_broker_alone_and_says_so(ways: FetchConnections) {
    let world = World::new(ways, 1, 2).await;
    world.append(0, 0..1);
    let mut events = world.follow(0..2);
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
    until("both fetch", || is_fetching(&events, 0) && is_fetching(&events, 1)).await;
    world.kafka.script(Rule::new(Fault::Throttle(Duration::from_secs(60))).api(ApiKey::Fetch).always());
    until("a throttle", || hindrance(&events, 0).is_some() && hindrance(&events, 1).is_some()).await;
    let (told, _) = hindrance(&events, 1).unwrap();
    assert!(told.contains("throttles this client"), "{told}");
    let before = world.fetches().len();
    sleep(Duration::from_secs(600)).await;
    let asked = world.fetches().len() - before;
    assert!(asked <= 2 * 11, "{asked} requests in ten minutes, of which each asks for a pause of one");
    world.kafka.clear_script();
    world.append(0, 1..3);
    world.append(1, 0..2);
    let mut seen = records(&mut events, 4).await;
    seen.sort();
    assert_eq!(seen, [expected(0, 1..3), expected(1, 0..2)].concat());
}

async fn a_broker_at_another_address_is_found_there(ways: FetchConnections) {
    let world = World::new(ways, 2, 1).await;
    world.append(0, 0..1);
    let mut events = world.follow([0]);
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
    world.kafka.readdress_broker(1).await.unwrap();
    world.append(0, 1..3);
    assert_eq!(records(&mut events, 2).await, expected(0, 1..3));
}

//! Leaders that move, lie, die and hang.

use std::time::Duration;

use strandline_protocol::ApiKey;
use strandline_testkit::embedded::Network;
use tokio::time::{Instant, sleep};

use super::{TOPIC, World, both_ways, capacity, expected, hindrance, is_fetching, records, until, view};
use crate::kafka_log::config::FetchConnections;

both_ways! {
    a_leader_that_moves_is_followed_without_loss_or_repetition
    a_leader_that_moves_in_the_middle_of_a_page_is_followed
    a_hint_at_the_new_leader_is_followed_without_asking_anybody
    a_wrong_hint_does_not_pin_the_reading
    a_partition_without_a_leader_is_waited_for
    one_dead_leader_of_three_holds_up_its_own_partitions_alone
    one_silent_leader_of_three_holds_up_its_own_partitions_alone
    a_silent_leader_is_left_as_soon_as_another_one_leads
    a_broker_that_stops_is_left_for_the_next_leader
}

async fn a_leader_that_moves_is_followed_without_loss_or_repetition(ways: FetchConnections) {
    let world = World::new(ways, 3, 4).await;
    let mut events = world.follow(0..4);
    for round in 0..12 {
        for partition in 0..4 {
            world.append(partition, round..round + 1);
        }
        let mut seen = records(&mut events, 4).await;
        seen.sort();
        let all: Vec<_> = (0..4).flat_map(|partition| expected(partition, round..round + 1)).collect();
        assert_eq!(seen, all, "round {round}");
        let partition = i32::try_from(round % 4).unwrap();
        let (leader, _) = world.kafka.leader(TOPIC, partition);
        world.kafka.move_leader(TOPIC, partition, leader % 3 + 1);
    }
}

async fn a_leader_that_moves_in_the_middle_of_a_page_is_followed(ways: FetchConnections) {
    let world = World::new(ways, 3, 1).await;
    world.append(0, 0..100);
    let mut events = world.subscribe(capacity(3));
    events.assignment().add(0, 0).unwrap();
    until("a full queue", || view(&events, 0).queued_records == 3).await;
    for round in 0..10 {
        let (leader, _) = world.kafka.leader(TOPIC, 0);
        world.kafka.move_leader(TOPIC, 0, leader % 3 + 1);
        world.append(0, 100 + round * 10..110 + round * 10);
        assert_eq!(records(&mut events, 20).await, expected(0, round * 20..round * 20 + 20));
    }
}

async fn a_hint_at_the_new_leader_is_followed_without_asking_anybody(ways: FetchConnections) {
    let world = World::new(ways, 3, 1).await;
    world.append(0, 0..1);
    let mut events = world.follow([0]);
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
    until("a long poll", || is_fetching(&events, 0)).await;
    let before = world.asked(ApiKey::Metadata);
    world.kafka.move_leader(TOPIC, 0, 2);
    world.append(0, 1..2);
    assert_eq!(records(&mut events, 1).await, expected(0, 1..2));
    assert_eq!(world.asked(ApiKey::Metadata), before, "the refusal said who leads now");
    assert!(hindrance(&events, 0).is_none());
}

async fn a_wrong_hint_does_not_pin_the_reading(ways: FetchConnections) {
    let world = World::new(ways, 3, 1).await;
    world.append(0, 0..1);
    let mut events = world.follow([0]);
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
    world.kafka.move_leader(TOPIC, 0, 2);
    // The old leader names one that is none, and goes on to do so.
    world.kafka.freeze_view(1, |view| view.topics.get_mut(TOPIC).unwrap().partitions[0].leader = 3);
    world.append(0, 1..2);
    assert_eq!(records(&mut events, 1).await, expected(0, 1..2));
}

async fn a_partition_without_a_leader_is_waited_for(ways: FetchConnections) {
    let world = World::new(ways, 2, 2).await;
    world.append(0, 0..2);
    world.append(1, 0..2);
    world.kafka.move_leader(TOPIC, 0, -1);
    let mut events = world.follow(0..2);
    assert_eq!(records(&mut events, 2).await, expected(1, 0..2));
    until("it is told", || hindrance(&events, 0).is_some_and(|(_, failures)| failures > 3)).await;
    assert_eq!(hindrance(&events, 0).unwrap().0, "partition metadata:0 has no leader");
    world.kafka.move_leader(TOPIC, 0, 2);
    assert_eq!(records(&mut events, 2).await, expected(0, 0..2));
}

async fn one_dead_leader_of_three_holds_up_its_own_partitions_alone(ways: FetchConnections) {
    one_of_three_is_gone(ways, Network::Refuse).await;
}

async fn one_silent_leader_of_three_holds_up_its_own_partitions_alone(ways: FetchConnections) {
    one_of_three_is_gone(ways, Network::Blackhole).await;
}

/// Fifty partitions, and a leader that is gone although the cluster does not notice.
async fn one_of_three_is_gone(ways: FetchConnections, network: Network) {
    let world = World::new(ways, 3, 50).await;
    let led_by = |broker: i32| (0..50).filter(move |partition| partition % 3 + 1 == broker);
    let mut events = world.follow(0..50);
    until("all fetch", || (0..50).all(|partition| is_fetching(&events, partition))).await;
    world.kafka.set_network(2, network).await.unwrap();
    if network == Network::Refuse {
        world.kafka.close_connections(2).await;
    }
    for round in 0..5 {
        for partition in led_by(1).chain(led_by(3)) {
            world.append(partition, round..round + 1);
        }
        let began = Instant::now();
        let mut seen = records(&mut events, 33).await;
        assert!(began.elapsed() < Duration::from_millis(600), "round {round}: {:?}", began.elapsed());
        seen.sort();
        let mut all: Vec<_> =
            led_by(1).chain(led_by(3)).flat_map(|partition| expected(partition, round..round + 1)).collect();
        all.sort();
        assert_eq!(seen, all);
        sleep(Duration::from_secs(20)).await;
    }
    for partition in led_by(2) {
        world.append(partition, 0..1);
        assert!(hindrance(&events, partition).is_some(), "partition {partition}");
    }
    world.kafka.set_network(2, Network::Up).await.unwrap();
    let mut seen = records(&mut events, 17).await;
    seen.sort();
    let mut all: Vec<_> = led_by(2).flat_map(|partition| expected(partition, 0..1)).collect();
    all.sort();
    assert_eq!(seen, all);
}

async fn a_silent_leader_is_left_as_soon_as_another_one_leads(ways: FetchConnections) {
    let world = World::new(ways, 3, 3).await;
    let mut events = world.follow(0..3);
    until("all fetch", || (0..3).all(|partition| is_fetching(&events, partition))).await;
    world.kafka.set_network(1, Network::HalfOpen).await.unwrap();
    world.kafka.move_leader(TOPIC, 0, 2);
    world.append(0, 0..1);
    let began = Instant::now();
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
    // Far below the time that is waited for an answer, which is 30 s.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

async fn a_broker_that_stops_is_left_for_the_next_leader(ways: FetchConnections) {
    let world = World::new(ways, 3, 6).await;
    let mut events = world.follow(0..6);
    for round in 0..3 {
        let broker = i32::try_from(round).unwrap() + 1;
        world.kafka.stop_broker(broker).await.unwrap();
        for partition in 0..6 {
            world.append(partition, round..round + 1);
        }
        let mut seen = records(&mut events, 6).await;
        seen.sort();
        let all: Vec<_> = (0..6).flat_map(|partition| expected(partition, round..round + 1)).collect();
        assert_eq!(seen, all, "round {round}");
        world.kafka.restart_broker(broker).await.unwrap();
    }
}

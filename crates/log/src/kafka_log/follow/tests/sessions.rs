//! What only one connection per leader can get wrong, and what it is for.

use std::time::Duration;

use strandline_protocol::messages::FetchRequest;
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, JournalEntry, Rule};
use tokio::time::{Instant, sleep};

use super::{World, expected, hindrance, is_fetching, records, until};
use crate::kafka_log::config::FetchConnections::{self, PerLeader, PerPartition};

/// Fifty partitions on three brokers, all of them at their end: sockets, requests within ten seconds.
async fn idle(ways: FetchConnections) -> (usize, usize) {
    let world = World::new(ways, 3, 50).await;
    let mut before = 0;
    for broker in 1..=3 {
        before += world.kafka.open_connections(broker).await;
    }
    let events = world.follow(0..50);
    until("all fetch", || (0..50).all(|partition| is_fetching(&events, partition))).await;
    // A second connection that was needed to begin with is closed.
    sleep(Duration::from_secs(10)).await;
    let asked = world.fetches().len();
    sleep(Duration::from_secs(10)).await;
    let asked = world.fetches().len() - asked;
    let mut sockets = 0;
    for broker in 1..=3 {
        sockets += world.kafka.open_connections(broker).await;
    }
    (sockets - before, asked)
}

#[tokio::test(start_paused = true)]
async fn one_connection_per_leader_takes_a_few_sockets_and_requests_where_one_per_partition_takes_many() {
    let (sockets, asked) = idle(PerPartition).await;
    assert_eq!(sockets, 50);
    assert!((950..=1050).contains(&asked), "{asked} requests");
    let (sockets, asked) = idle(PerLeader).await;
    assert_eq!(sockets, 3);
    assert!((57..=63).contains(&asked), "{asked} requests");
}

/// `epoch 3: 5@7 forgets [2]`, with `-` where nothing has changed, `new` where a session begins and `none` for a request without one.
fn shown(entry: &JournalEntry) -> String {
    let request: FetchRequest = entry.decode().unwrap();
    let asked: Vec<_> = request
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|partition| format!("{}@{}", partition.partition, partition.fetch_offset))
        .collect();
    let forgotten: Vec<_> =
        request.forgotten_topics_data.iter().flat_map(|topic| &topic.partitions).copied().collect();
    let epoch = match request.session_epoch {
        0 => "new".to_owned(),
        -1 => "none".to_owned(),
        epoch => format!("epoch {epoch}"),
    };
    let asked = if asked.is_empty() { "-".to_owned() } else { asked.join(" ") };
    let mut line = format!("{epoch}: {asked}");
    if !forgotten.is_empty() {
        line = format!("{line} forgets {forgotten:?}");
    }
    line
}

#[tokio::test(start_paused = true)]
async fn a_session_asks_for_everything_once_and_then_for_what_changed() {
    let world = World::new(PerLeader, 1, 4).await;
    let mut events = world.follow(0..3);
    until("all fetch", || (0..3).all(|partition| is_fetching(&events, partition))).await;
    world.append(1, 0..1);
    assert_eq!(records(&mut events, 1).await, expected(1, 0..1));
    sleep(Duration::from_millis(700)).await;
    events.assignment().remove(2);
    sleep(Duration::from_millis(700)).await;
    let lines: Vec<_> = world.fetches().iter().map(shown).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    new: 0@0 1@0 2@0
    epoch 1: -
    epoch 2: 1@1
    epoch 3: -
    epoch 4: - forgets [2]
    ");
    let topics_by_name = world.fetches().iter().any(|entry| {
        entry.decode::<FetchRequest>().unwrap().topics.iter().any(|topic| topic.topic_id.is_zero())
    });
    assert!(!topics_by_name);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_begins_anew_without_loss_or_repetition() {
    let world = World::new(PerLeader, 1, 3).await;
    let mut events = world.follow(0..3);
    until("all fetch", || (0..3).all(|partition| is_fetching(&events, partition))).await;
    let lose: [&dyn Fn(); 5] = [
        &|| world.kafka.forget_fetch_sessions(1),
        &|| script(&world, ErrorCode::FetchSessionIdNotFound),
        &|| script(&world, ErrorCode::InvalidFetchSessionEpoch),
        &|| script(&world, ErrorCode::FetchSessionTopicIdError),
        // A topic id that is not the one the broker knows: the view is refreshed before it is asked again.
        &|| script(&world, ErrorCode::InconsistentTopicId),
    ];
    let mut next = 0;
    for (lose, within_ms) in lose.into_iter().zip([60, 60, 60, 60, 600]) {
        let began = Instant::now();
        lose();
        for _ in 0..3 {
            for partition in 0..3 {
                world.append(partition, next..next + 1);
            }
            let mut seen = records(&mut events, 3).await;
            seen.sort();
            let all: Vec<_> = (0..3).flat_map(|partition| expected(partition, next..next + 1)).collect();
            assert_eq!(seen, all);
            next += 1;
        }
        assert!((0..3).all(|partition| hindrance(&events, partition).is_none()));
        assert!(began.elapsed() < Duration::from_millis(within_ms), "{:?}", began.elapsed());
    }
}

fn script(world: &World, code: ErrorCode) {
    world.kafka.script(Rule::new(Fault::Error(code)).api(ApiKey::Fetch));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_loses_every_session_is_asked_with_pauses() {
    let world = World::new(PerLeader, 1, 1).await;
    world
        .kafka
        .script(Rule::new(Fault::Error(ErrorCode::FetchSessionIdNotFound)).api(ApiKey::Fetch).always());
    let mut events = world.follow([0]);
    sleep(Duration::from_secs(60)).await;
    let asked = world.fetches().len();
    assert!((20..=80).contains(&asked), "{asked} requests within a minute");
    world.kafka.clear_script();
    world.append(0, 0..1);
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
}

#[tokio::test(start_paused = true)]
async fn what_is_new_of_many_idle_partitions_comes_at_once() {
    for ways in [PerPartition, PerLeader] {
        let world = World::new(ways, 3, 50).await;
        let mut events = world.follow(0..50);
        until("all fetch", || (0..50).all(|partition| is_fetching(&events, partition))).await;
        for turn in 0..200 {
            let partition = (turn * 7) % 50;
            let offset = i64::from(turn / 50);
            let began = Instant::now();
            world.append(partition, offset..offset + 1);
            assert_eq!(records(&mut events, 1).await, expected(partition, offset..offset + 1));
            assert!(began.elapsed() <= Duration::from_millis(5), "{ways:?}, {turn}: {:?}", began.elapsed());
            if turn % 9 == 0 {
                sleep(Duration::from_millis(u64::try_from(turn).unwrap() * 5)).await;
            }
        }
    }
}

//! A queue that is full, and partitions that come and go.

use std::time::Duration;

use strandline_protocol::messages::FetchRequest;
#[cfg(feature = "metrics")]
use strandline_testkit::embedded::Network;
use tokio::time::{Instant, sleep};

use super::{World, both_ways, capacity, expected, is_fetching, records, until, view, within};
use crate::kafka_log::config::FetchConnections;

both_ways! {
    a_partition_whose_queue_is_full_is_not_asked_for
    a_full_share_holds_up_no_other_partition
    removing_a_partition_while_the_queue_is_full_ends_its_connection
    a_partition_that_is_removed_and_added_at_once_is_delivered_once_from_its_new_offset
    a_partition_that_is_added_does_not_wait_for_the_polls_of_others
    closing_a_subscription_ends_every_connection
    dropping_a_subscription_ends_every_connection
    two_subscriptions_read_the_same_partition_apart
}

async fn a_partition_whose_queue_is_full_is_not_asked_for(ways: FetchConnections) {
    let world = World::with(ways, 1, 1, |config| config.fetch_max_bytes = 1).await;
    world.append(0, 0..100);
    let mut events = world.subscribe(capacity(4));
    events.assignment().add(0, 0).unwrap();
    until("a full queue", || view(&events, 0).queued_records == 4).await;
    let before = world.fetches().len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fetches().len(), before, "nobody is asked for a minute");
    let list = view(&events, 0);
    assert_eq!((list.next_offset, list.log_end_offset, list.lag()), (4, Some(100), Some(96)));
    assert_eq!(records(&mut events, 100).await, expected(0, 0..100));
}

async fn a_full_share_holds_up_no_other_partition(ways: FetchConnections) {
    let world = World::new(ways, 1, 3).await;
    world.append(0, 0..1000);
    let mut events = world.subscribe(capacity(30));
    for partition in 0..3 {
        events.assignment().add(partition, 0).unwrap();
    }
    until("a full share", || view(&events, 0).queued_records == 10).await;
    until("the others fetch", || is_fetching(&events, 1) && is_fetching(&events, 2)).await;
    // Nobody takes anything, and all that is new of the others comes in at once.
    for round in 0..5 {
        for partition in [1, 2] {
            world.append(partition, round..round + 1);
        }
        let began = Instant::now();
        let came = |partition| view(&events, partition).next_offset == round + 1;
        until("the events of the others", || came(1) && came(2)).await;
        assert!(began.elapsed() < Duration::from_millis(100), "round {round}: {:?}", began.elapsed());
        sleep(Duration::from_secs(7)).await;
    }
    assert_eq!(view(&events, 0).queued_records, 10);
    let seen = records(&mut events, 1010).await;
    for (partition, count) in [(0, 1000), (1, 5), (2, 5)] {
        let own: Vec<_> =
            seen.iter().filter(|line| line.starts_with(&format!("{partition}@"))).cloned().collect();
        assert_eq!(own, expected(partition, 0..count));
    }
}

async fn removing_a_partition_while_the_queue_is_full_ends_its_connection(ways: FetchConnections) {
    let world = World::with(ways, 2, 2, |config| config.fetch_max_bytes = 1).await;
    world.append(1, 0..100);
    let before = world.kafka.open_connections(2).await;
    let mut events = world.subscribe(capacity(2));
    events.assignment().add(1, 0).unwrap();
    until("a full queue", || view(&events, 1).queued_records == 2).await;
    assert!(world.kafka.open_connections(2).await > before);
    assert!(events.assignment().remove(1));
    within("the end of the connection", async {
        while world.kafka.open_connections(2).await > before {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    world.append(0, 0..1);
    events.assignment().add(0, 0).unwrap();
    assert_eq!(records(&mut events, 1).await, expected(0, 0..1));
}

async fn a_partition_that_is_removed_and_added_at_once_is_delivered_once_from_its_new_offset(
    ways: FetchConnections,
) {
    let world = World::new(ways, 1, 2).await;
    world.append(0, 0..200);
    let mut events = world.subscribe(capacity(16));
    events.assignment().add(0, 0).unwrap();
    events.assignment().add(1, 0).unwrap();
    for turn in 0..60 {
        let from = 3 * turn;
        assert!(events.assignment().remove(0));
        events.assignment().add(0, from).unwrap();
        if turn % 3 == 0 {
            // Perhaps its wish is under way, perhaps its page.
            sleep(Duration::from_millis(u64::try_from(turn).unwrap())).await;
        }
        assert_eq!(records(&mut events, 2).await, expected(0, from..from + 2), "turn {turn}");
    }
    // At the end of the log, where every question is a long poll.
    for turn in 0..20 {
        events.assignment().remove(0);
        events.assignment().add(0, 200 + turn).unwrap();
        if turn % 2 == 0 {
            until("a long poll", || view(&events, 0).log_end_offset.is_some()).await;
        }
        world.append(0, 200 + turn..201 + turn);
        assert_eq!(records(&mut events, 1).await, expected(0, 200 + turn..201 + turn));
    }
}

async fn a_partition_that_is_added_does_not_wait_for_the_polls_of_others(ways: FetchConnections) {
    let world = World::with(ways, 1, 20, |config| config.fetch_max_wait = Duration::from_secs(300)).await;
    for partition in 10..20 {
        world.append(partition, 0..1);
    }
    let mut events = world.follow(0..10);
    until("long polls", || (0..10).all(|partition| !world.fetches().is_empty() && partition >= 0)).await;
    sleep(Duration::from_millis(20)).await;
    for partition in 10..20 {
        let began = Instant::now();
        events.assignment().add(partition, 0).unwrap();
        assert_eq!(records(&mut events, 1).await, expected(partition, 0..1));
        assert!(began.elapsed() <= Duration::from_millis(60), "{partition}: {:?}", began.elapsed());
        // And once it is there, what is new comes at once.
        let began = Instant::now();
        world.append(partition, 1..2);
        assert_eq!(records(&mut events, 1).await, expected(partition, 1..2));
        assert!(began.elapsed() <= Duration::from_millis(60), "{partition}: {:?}", began.elapsed());
    }
}

async fn closing_a_subscription_ends_every_connection(ways: FetchConnections) {
    let world = World::new(ways, 2, 6).await;
    let before = open_connections(&world).await;
    let events = world.follow(0..6);
    until("all fetch", || (0..6).all(|partition| world.fetches().len() > 1 && partition >= 0)).await;
    within("the close", events.close()).await;
    gone(&world, before).await;
    let fetches = world.fetches().len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fetches().len(), fetches);
}

async fn dropping_a_subscription_ends_every_connection(ways: FetchConnections) {
    let world = World::new(ways, 2, 6).await;
    let before = open_connections(&world).await;
    let events = world.follow(0..6);
    until("some fetch", || world.fetches().len() > 1).await;
    drop(events);
    gone(&world, before).await;
}

async fn open_connections(world: &World) -> usize {
    world.kafka.open_connections(1).await + world.kafka.open_connections(2).await
}

async fn gone(world: &World, before: usize) {
    within("the end of the connections", async {
        while open_connections(world).await > before {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

async fn two_subscriptions_read_the_same_partition_apart(ways: FetchConnections) {
    let world = World::new(ways, 1, 1).await;
    world.append(0, 0..10);
    let mut first = world.follow([0]);
    let mut second = world.subscribe(capacity(2));
    second.assignment().add(0, 5).unwrap();
    assert_eq!(records(&mut first, 10).await, expected(0, 0..10));
    world.append(0, 10..12);
    assert_eq!(records(&mut second, 7).await, expected(0, 5..12));
    assert_eq!(records(&mut first, 2).await, expected(0, 10..12));
    let offsets: Vec<i64> = world
        .fetches()
        .iter()
        .filter_map(|entry| {
            Some(entry.decode::<FetchRequest>().unwrap().topics.first()?.partitions[0].fetch_offset)
        })
        .collect();
    assert!(offsets.contains(&0) && offsets.contains(&5), "{offsets:?}");
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn lag_records_retries_and_stops_are_counted() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    crate::describe_metrics();
    let world = World::new(FetchConnections::PerPartition, 1, 2).await;
    world.append(0, 0..10);
    world.kafka.set_network(1, Network::Refuse).await.unwrap();
    let mut events = world.follow([0]);
    until("a failure", || super::hindrance(&events, 0).is_some()).await;
    world.kafka.set_network(1, Network::Up).await.unwrap();
    assert_eq!(records(&mut events, 10).await, expected(0, 0..10));
    events.assignment().add(1, 7).unwrap();
    let (_, told) = super::stop(&mut events).await;
    assert!(told.contains("outside its log"), "{told}");
    let mut seen: Vec<_> = snapshotter.snapshot().into_vec();
    seen.retain(|(key, ..)| key.key().name().starts_with("strandline_log_"));
    let of = |name: &str, partition: &str| {
        let found = seen.iter().find(|(key, ..)| {
            key.key().name() == name && key.key().labels().all(|label| label.value() == partition)
        });
        match found.map(|(_, _, _, value)| value) {
            Some(DebugValue::Counter(count)) => *count,
            Some(DebugValue::Gauge(value)) => value.0 as u64,
            other => panic!("{name} {partition}: {other:?}"),
        }
    };
    assert_eq!((of("strandline_log_records_total", "0"), of("strandline_log_records_total", "1")), (10, 0));
    assert_eq!((of("strandline_log_stops_total", "0"), of("strandline_log_stops_total", "1")), (0, 1));
    assert_eq!((of("strandline_log_lag_offsets", "0"), of("strandline_log_lag_offsets", "1")), (0, 0));
    assert!(of("strandline_log_retries_total", "0") >= 1);
}

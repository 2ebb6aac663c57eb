//! Everything at once: partitions come and go, leaders move, brokers fail, a log grows, and the subscriber stalls. What it sees
//! of each partition is exactly the log from the offset named, in order, once.

use std::collections::BTreeMap;
use std::time::Duration;

use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, Network, Rule};
use strandline_testkit::random::Random;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, TOPIC, World, capacity};
use crate::kafka_log::config::FetchConnections;
use crate::subscription::{MetadataDelivery, MetadataEventSubscription};

const BROKERS: i32 = 3;
const PARTITIONS: i32 = 7;
const STEPS: usize = 300;

/// Where a partition's deliveries stand.
#[derive(Debug, Default)]
struct Seen {
    next: BTreeMap<i32, i64>,
}

impl Seen {
    fn take(&mut self, delivery: &MetadataDelivery) {
        let next = self.next.get_mut(&delivery.partition()).expect("it is assigned");
        match delivery {
            MetadataDelivery::Record { record, .. } => {
                assert_eq!(record.offset, *next, "{record:?}");
                assert_eq!(record.value.as_deref(), Some(record.offset.to_string().as_bytes()));
                *next += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn run(ways: FetchConnections, seed: u64) {
    let mut random = Random::new(seed);
    let world = World::with(ways, BROKERS, PARTITIONS, |config| {
        config.fetch_max_bytes = 400;
        config.request_timeout = Duration::from_secs(5);
    })
    .await;
    let mut events = world.subscribe(capacity(20));
    let (mut ends, mut seen) = (BTreeMap::<i32, i64>::new(), Seen::default());
    for _ in 0..STEPS {
        let partition = below(&mut random, PARTITIONS);
        let broker = below(&mut random, BROKERS) + 1;
        match below(&mut random, 12) {
            0..=3 => {
                let end = ends.entry(partition).or_default();
                let more = i64::from(below(&mut random, 12));
                world.append(partition, *end..*end + more);
                *end += more;
            }
            4 => {
                let from = ends.get(&partition).copied().unwrap_or(0) / 2;
                if events.assignment().add(partition, from).is_ok() {
                    seen.next.insert(partition, from);
                }
            }
            5 => {
                events.assignment().remove(partition);
                seen.next.remove(&partition);
            }
            6 => world.kafka.move_leader(TOPIC, partition, broker),
            7 => world.kafka.close_connections(broker).await,
            8 => {
                let faults = [
                    Fault::Close,
                    Fault::ApplyThenLose,
                    Fault::Error(ErrorCode::NotLeaderOrFollower),
                    Fault::Error(ErrorCode::OffsetNotAvailable),
                    Fault::Error(ErrorCode::FetchSessionIdNotFound),
                    Fault::Delay(Duration::from_millis(700)),
                    Fault::Throttle(Duration::from_millis(300)),
                ];
                let fault = faults[random.next() as usize % faults.len()].clone();
                let of_session = matches!(fault, Fault::Error(ErrorCode::FetchSessionIdNotFound));
                if !of_session || ways == FetchConnections::PerLeader {
                    world.kafka.script(Rule::new(fault).api(ApiKey::Fetch).broker(broker));
                }
            }
            9 => {
                let networks = [Network::Refuse, Network::Reset, Network::HalfOpen, Network::Blackhole];
                let network = networks[random.next() as usize % networks.len()];
                world.kafka.set_network(broker, network).await.unwrap();
                sleep(Duration::from_millis(u64::from(random.next() as u16 % 3000))).await;
                world.kafka.set_network(broker, Network::Up).await.unwrap();
            }
            10 => sleep(Duration::from_millis(u64::from(random.next() as u16 % 900))).await,
            _ => {
                let many = random.next() as usize % 60;
                take(&mut events, &mut seen, many).await;
            }
        }
    }
    // At the end everything that was assigned is delivered.
    world.kafka.clear_script();
    loop {
        let missing = |(partition, next): (&i32, &i64)| {
            let end = ends.get(partition).copied().unwrap_or(0);
            (*next < end).then_some((*partition, *next, end))
        };
        let missing: Vec<_> = seen.next.iter().filter_map(missing).collect();
        if missing.is_empty() {
            break;
        }
        let delivery = timeout(PATIENCE, events.next()).await;
        let list = events.assignment().list();
        seen.take(
            &delivery.unwrap_or_else(|_| panic!("{ways:?}, seed {seed}: {missing:?} of {list:?}")).unwrap(),
        );
    }
    events.close().await;
}

/// Takes what comes soon, up to so many deliveries.
async fn take(events: &mut MetadataEventSubscription, seen: &mut Seen, many: usize) {
    for _ in 0..many {
        let Ok(delivery) = timeout(Duration::from_millis(200), events.next()).await else { return };
        seen.take(&delivery.expect("it is open"));
    }
}

fn below(random: &mut Random, bound: i32) -> i32 {
    i32::try_from(random.next() % u64::try_from(bound).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_each_partition_is_delivered_from_its_offset_in_order_and_once() {
    for seed in 0..10 {
        for ways in [FetchConnections::PerPartition, FetchConnections::PerLeader] {
            run(ways, seed).await;
        }
    }
}

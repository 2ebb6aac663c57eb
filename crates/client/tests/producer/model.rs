//! Whatever happens, what lies in the log is exactly what the answers say: in order per partition, once.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use strandline_client::producer::{Delivery, Outcome, ProduceErrorKind, Producer, ProducerConfig};
use strandline_protocol::ErrorCode;
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, Fault, Held, Network, Rule};

use crate::support::chain;
use crate::world::{config, kafka_as, late, log, produce, producer_as, record};

const BROKERS: i32 = 3;
const TOPICS: [&str; 2] = ["orders", "bills"];
const PARTITIONS: i32 = 3;
/// Longer than a record may take, and than a broker is waited for.
const LONG: Duration = Duration::from_secs(40);

#[derive(Clone, Debug)]
enum Step {
    /// So many records to a partition of a topic.
    Send {
        topic: usize,
        partition: i32,
        records: usize,
        bytes: usize,
    },
    Fault {
        fault: usize,
        broker: Option<i32>,
        nth: u64,
        times: u64,
    },
    /// Lets go what brokers hold.
    Release,
    MoveLeader {
        topic: usize,
        partition: i32,
        broker: i32,
    },
    Isr {
        topic: usize,
        partition: i32,
        replicas: i32,
    },
    Stop(i32),
    Start(i32),
    Network(i32, usize),
    Close(i32),
    Wait(u64),
    Flush,
}

/// What a request may meet. None of them lies about what is in the log.
fn fault(kind: usize, held: &Held) -> Fault {
    const CODES: [ErrorCode; 12] = [
        ErrorCode::NotLeaderOrFollower,
        ErrorCode::NotEnoughReplicas,
        ErrorCode::NotEnoughReplicasAfterAppend,
        ErrorCode::RequestTimedOut,
        ErrorCode::KafkaStorageError,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::CorruptMessage,
        ErrorCode::UnknownServerError,
        ErrorCode::InvalidRecord,
        ErrorCode::MessageTooLarge,
        ErrorCode::UnknownProducerId,
        ErrorCode::InvalidProducerEpoch,
    ];
    match kind {
        0..4 => Fault::ApplyThenLose,
        4 => Fault::Close,
        5 => Fault::CloseAfter(9),
        6 => Fault::Drop,
        7 => Fault::Delay(Duration::from_secs(1)),
        8 => Fault::Delay(Duration::from_secs(12)),
        9 => Fault::Hold(held.clone()),
        10 => Fault::WrongCorrelationId,
        11 => Fault::Twice,
        12 => Fault::Throttle(Duration::from_secs(2)),
        13 => Fault::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        kind => Fault::Error(CODES[(kind - 14) % CODES.len()]),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let broker = || 1..=BROKERS;
    let place = || (0..TOPICS.len(), 0..PARTITIONS);
    prop_oneof![
        12 => (place(), 1..6usize, 0..300usize)
            .prop_map(|((topic, partition), records, bytes)| Step::Send { topic, partition, records, bytes }),
        6 => (0..26usize, prop::option::of(broker()), 1..4u64, 1..4u64)
            .prop_map(|(fault, broker, nth, times)| Step::Fault { fault, broker, nth, times }),
        1 => Just(Step::Release),
        3 => (place(), -1..=BROKERS).prop_filter("a broker or nobody", |(_, broker)| *broker != 0)
            .prop_map(|((topic, partition), broker)| Step::MoveLeader { topic, partition, broker }),
        1 => (place(), 1..=BROKERS)
            .prop_map(|((topic, partition), replicas)| Step::Isr { topic, partition, replicas }),
        1 => broker().prop_map(Step::Stop),
        2 => broker().prop_map(Step::Start),
        1 => (broker(), 0..4usize).prop_map(|(broker, network)| Step::Network(broker, network)),
        1 => broker().prop_map(Step::Close),
        4 => (0..20_000u64).prop_map(Step::Wait),
        1 => Just(Step::Flush),
    ]
}

struct World {
    kafka: EmbeddedCluster,
    producer: Producer,
    held: Held,
    /// In the order of acceptance, by partition.
    sent: BTreeMap<(usize, i32), Vec<(String, Delivery)>>,
    flushes: Vec<tokio::task::JoinHandle<()>>,
}

impl World {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Send { topic, partition, records, bytes } => {
                for _ in 0..records {
                    let sent = self.sent.entry((topic, partition)).or_default();
                    let value = format!("{} {}", sent.len(), "x".repeat(bytes));
                    // Without room nothing is accepted, which is no failure.
                    let accepted = self.producer.try_send(record(TOPICS[topic], partition, &value));
                    if let Some(delivery) = accepted.expect("it is open") {
                        sent.push((value, delivery));
                    }
                }
            }
            Step::Fault { fault: kind, broker, nth, times } => {
                let rule = produce(fault(kind, &self.held)).nth(nth).times(times);
                self.kafka.script(broker.into_iter().fold(rule, Rule::broker));
            }
            Step::Release => std::mem::take(&mut self.held).release(),
            Step::MoveLeader { topic, partition, broker } => {
                self.kafka.move_leader(TOPICS[topic], partition, broker);
            }
            Step::Isr { topic, partition, replicas } => {
                self.kafka.set_isr(TOPICS[topic], partition, &(1..=replicas).collect::<Vec<_>>());
            }
            Step::Stop(broker) => self.kafka.stop_broker(broker).await.expect("its port is kept"),
            Step::Start(broker) => self.kafka.restart_broker(broker).await.expect("its port is kept"),
            Step::Network(broker, network) => {
                let network = [Network::Up, Network::Refuse, Network::Blackhole, Network::Reset][network];
                self.kafka.set_network(broker, network).await.expect("its port is kept");
            }
            Step::Close(broker) => self.kafka.close_connections(broker).await,
            Step::Wait(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            Step::Flush => {
                let producer = self.producer.clone();
                self.flushes.push(tokio::spawn(async move { producer.flush().await }));
            }
        }
        tokio::task::yield_now().await;
    }

    /// All is well again, and stays so until every record has its answer.
    async fn heal(&mut self) {
        self.held.release();
        self.kafka.clear_script();
        for broker in 1..=BROKERS {
            self.kafka.restart_broker(broker).await.expect("its port is kept");
        }
        for (topic, partition) in
            TOPICS.into_iter().flat_map(|topic| (0..PARTITIONS).map(move |p| (topic, p)))
        {
            self.kafka.set_isr(topic, partition, &[1, 2, 3]);
            self.kafka.move_leader(topic, partition, 1 + partition % BROKERS);
        }
        self.producer.flush().await;
        for flush in self.flushes.drain(..) {
            flush.await.expect("it returns");
        }
    }

    async fn check(&mut self) -> Result<(), TestCaseError> {
        for ((topic, partition), sent) in std::mem::take(&mut self.sent) {
            let found = log(&self.kafka, TOPICS[topic], partition).await;
            let number = |value: &String| value.split(' ').next().and_then(|number| number.parse().ok());
            let numbers: Vec<usize> = found.iter().map(|value| number(value).expect("it is ours")).collect();
            let place = format!("{}:{partition} holds {numbers:?}", TOPICS[topic]);
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order and once: {place}");
            for (number, (value, delivery)) in sent.into_iter().enumerate() {
                let at = numbers.iter().position(|found| *found == number);
                prop_assert!(at.is_none_or(|at| found[at] == value));
                match delivery.await {
                    Ok(told) => {
                        prop_assert_eq!(Some(told.offset), at.map(|at| at as i64), "{}: {}", number, place)
                    }
                    Err(error) => {
                        let story = format!("record {number}: {}; {place}", chain(&error));
                        prop_assert!(!matches!(error.kind, ProduceErrorKind::Closed), "{}", story);
                        match error.outcome {
                            Outcome::Written => prop_assert!(at.is_some(), "{}", story),
                            Outcome::NotWritten => prop_assert!(at.is_none(), "{}", story),
                            Outcome::Unknown => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

async fn run(seed: u64, linger: u64, delivery: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let kafka = kafka_as(ClusterOptions { brokers: BROKERS, seed, ..ClusterOptions::default() });
    kafka.delete_topic("orders");
    for topic in TOPICS {
        kafka.create_topic_with(topic, PARTITIONS as usize, 3, &[("min.insync.replicas", "2")]);
    }
    let config = ProducerConfig {
        linger: Duration::from_millis(linger),
        batch_size: 1000,
        max_request_size: 3000,
        max_in_flight_requests: 2,
        buffer_memory: 20_000,
        delivery_timeout: Duration::from_secs(delivery),
        ..config()
    };
    let producer = producer_as(&kafka, config).await;
    let mut world =
        World { kafka, producer, held: Held::default(), sent: BTreeMap::new(), flushes: Vec::new() };
    for step in steps {
        world.take(step).await;
    }
    world.heal().await;
    // What brokers held is acted upon by now, too late or not.
    tokio::time::sleep(LONG).await;
    world.check().await?;
    // Every partition can still be written.
    let mut last = Vec::new();
    for (topic, partition) in TOPICS.into_iter().flat_map(|topic| (0..PARTITIONS).map(move |p| (topic, p))) {
        last.push(world.producer.send(record(topic, partition, "99999 last")).await.expect("it is open"));
    }
    for delivery in last {
        if let Err(error) = delivery.await {
            prop_assert!(false, "{}", chain(&error));
        }
    }
    prop_assert_eq!(world.producer.free_memory(), 20_000);
    world.producer.close(late()).await;
    Ok(())
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_what_the_answers_say_whatever_happens(
        seed in any::<u64>(),
        linger in prop_oneof![Just(0), 1..500u64],
        // Shorter and longer than one broker is waited for.
        delivery in prop_oneof![Just(2), Just(7), Just(25)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed, linger, delivery, steps))?;
    }
}

//! Random publishes, faults, assignments and restarts, held against a plain model of the log: what publishers were told is
//! true of it, and what subscribers saw is the log from their start offsets, in order, once.
//!
//! `STRANDLINE_MODEL_CASES` says how many histories are tried (40 if it does not), `PROPTEST_RNG_SEED` from which seed;
//! the seed is printed.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use strandline_log::{
    AssignmentId, FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _,
    METADATA_TOPIC, MetadataDelivery, MetadataEventLog as _, MetadataEventQueueCapacity, MetadataEventRecord,
    MetadataEventSubscription, PartitionMarks, PublishError, RangeError,
};
use strandline_meta::Cluster;
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Rule};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{chain, config, connect, kafka, late};

const PARTITIONS: i32 = 3;
const BROKERS: i32 = 3;
/// Far longer than anything takes once nothing is in its way; the clock stands still meanwhile.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
enum Step {
    /// One publisher after the other, or all at once; each event has so many seconds.
    Publish {
        partition: i32,
        events: u32,
        seconds: u64,
        at_once: bool,
    },
    /// Until every publish has its answer.
    Settle,
    Add {
        partition: i32,
        back: i64,
    },
    Remove {
        partition: i32,
    },
    Take {
        deliveries: usize,
    },
    /// The log is closed and opened again; subscribers go on where they stand.
    Reopen,
    Fault {
        fault: usize,
        api: usize,
        nth: u64,
        times: u64,
    },
    MoveLeader {
        partition: i32,
        broker: i32,
    },
    Isr {
        partition: i32,
        replicas: i32,
    },
    Stop {
        broker: i32,
    },
    Start {
        broker: i32,
    },
    CloseConnections {
        broker: i32,
    },
    Wait {
        seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let partition = || 0..PARTITIONS;
    let broker = || 1..=BROKERS;
    let seconds = || prop::sample::select(vec![1_u64, 3, 20, 200]);
    prop_oneof![
        8 => (partition(), 1..12_u32, seconds(), any::<bool>()).prop_map(|(partition, events, seconds, at_once)| {
            Step::Publish { partition, events, seconds, at_once }
        }),
        2 => Just(Step::Settle),
        4 => (partition(), 0..30_i64).prop_map(|(partition, back)| Step::Add { partition, back }),
        2 => partition().prop_map(|partition| Step::Remove { partition }),
        5 => (1..40_usize).prop_map(|deliveries| Step::Take { deliveries }),
        1 => Just(Step::Reopen),
        5 => (0..FAULTS, 0..3_usize, 1..4_u64, 1..4_u64).prop_map(|(fault, api, nth, times)| {
            Step::Fault { fault, api, nth, times }
        }),
        2 => (partition(), broker()).prop_map(|(partition, broker)| Step::MoveLeader { partition, broker }),
        1 => (partition(), 0..=BROKERS).prop_map(|(partition, replicas)| Step::Isr { partition, replicas }),
        1 => broker().prop_map(|broker| Step::Stop { broker }),
        2 => broker().prop_map(|broker| Step::Start { broker }),
        1 => broker().prop_map(|broker| Step::CloseConnections { broker }),
        2 => seconds().prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// What a request may meet. None of them lies about what is in the log.
const FAULTS: usize = 15;

fn fault(kind: usize) -> Fault {
    match kind {
        0 | 1 => Fault::ApplyThenLose,
        2 => Fault::Close,
        3 => Fault::CloseAfter(9),
        4 => Fault::Drop,
        5 => Fault::Delay(Duration::from_millis(700)),
        6 => Fault::Delay(Duration::from_secs(12)),
        7 => Fault::WrongCorrelationId,
        8 => Fault::Throttle(Duration::from_secs(1)),
        9 => Fault::Error(ErrorCode::NotLeaderOrFollower),
        10 => Fault::Error(ErrorCode::NotEnoughReplicas),
        11 => Fault::Error(ErrorCode::NotEnoughReplicasAfterAppend),
        12 => Fault::Error(ErrorCode::RequestTimedOut),
        13 => Fault::Error(ErrorCode::KafkaStorageError),
        _ => Fault::Error(ErrorCode::CorruptMessage),
    }
}

/// Codes of writing and reading mean something else in an answer to Metadata, so that those only get lost or late.
fn rule(kind: usize, api: usize) -> Option<Rule> {
    let (fault, api) = (fault(kind), [ApiKey::Produce, ApiKey::Fetch, ApiKey::Metadata][api]);
    let of_writing =
        matches!(fault, Fault::Error(ErrorCode::NotEnoughReplicas | ErrorCode::NotEnoughReplicasAfterAppend));
    let fits = match api {
        ApiKey::Produce => true,
        ApiKey::Fetch => !of_writing,
        _ => !matches!(fault, Fault::Error(_)),
    };
    fits.then(|| Rule::new(fault).api(api))
}

/// What a subscriber saw of one adding of a partition.
#[derive(Clone, Debug)]
struct Run {
    partition: i32,
    from: i64,
    next_offset: i64,
    seen: Vec<(i64, String)>,
}

/// Partition, publisher, number of the event, and what its publisher was told.
type Told = (i32, u32, u32, Result<i64, PublishError>);

struct World {
    kafka: EmbeddedCluster,
    cluster: Cluster,
    config: KafkaMetadataLogConfig,
    log: KafkaMetadataEventLog,
    events: MetadataEventSubscription,
    runs: HashMap<AssignmentId, Run>,
    assigned: BTreeMap<i32, AssignmentId>,
    /// Runs of subscriptions that were closed.
    ended: Vec<Run>,
    publishing: JoinSet<Vec<Told>>,
    told: Vec<Told>,
    publishers: u32,
}

fn value(publisher: u32, number: u32) -> String {
    format!("{publisher}.{number}")
}

impl World {
    async fn new(fetch_connections: FetchConnections) -> Self {
        let kafka = kafka(BROKERS);
        let config = KafkaMetadataLogConfig { replication: 3, ..config(PARTITIONS, fetch_connections) };
        let cluster = connect(&kafka).await;
        let log = KafkaMetadataEventLog::start(&cluster, config.clone(), late()).await.unwrap();
        let events = log.subscribe(queue());
        Self {
            kafka,
            cluster,
            config,
            log,
            events,
            runs: HashMap::new(),
            assigned: BTreeMap::new(),
            ended: Vec::new(),
            publishing: JoinSet::new(),
            told: Vec::new(),
            publishers: 0,
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Publish { partition, events, seconds, at_once } => {
                let groups = if at_once { vec![1; events as usize] } else { vec![events] };
                for events in groups {
                    self.publish(partition, events, Duration::from_secs(seconds));
                }
                // They begin in this order.
                tokio::task::yield_now().await;
            }
            Step::Settle => self.settle().await,
            Step::Add { partition, back } => {
                let end = self.told.iter().filter(|told| told.0 == partition);
                let end = end.filter_map(|told| told.3.as_ref().ok()).max().map_or(0, |offset| offset + 1);
                let from = (end - back).max(0);
                let added = self.events.assignment().add(partition, from);
                assert_eq!(added.is_ok(), !self.assigned.contains_key(&partition));
                if let Ok(assignment) = added {
                    self.assigned.insert(partition, assignment);
                    self.runs
                        .insert(assignment, Run { partition, from, next_offset: from, seen: Vec::new() });
                }
            }
            Step::Remove { partition } => {
                let removed = self.events.assignment().remove(partition);
                assert_eq!(removed, self.assigned.remove(&partition).is_some());
            }
            Step::Take { deliveries } => {
                for _ in 0..deliveries {
                    let Ok(delivery) = timeout(Duration::from_millis(300), self.events.next()).await else {
                        return;
                    };
                    self.take(delivery.expect("it is open"));
                }
            }
            Step::Reopen => self.reopen().await,
            Step::Fault { fault, api, nth, times } => {
                if let Some(rule) = rule(fault, api) {
                    self.kafka.script(rule.nth(nth).times(times));
                }
            }
            Step::MoveLeader { partition, broker } => {
                self.kafka.move_leader(METADATA_TOPIC, partition, broker)
            }
            Step::Isr { partition, replicas } => {
                let isr: Vec<_> = (1..=replicas).collect();
                self.kafka.set_isr(METADATA_TOPIC, partition, &isr);
            }
            Step::Stop { broker } => self.kafka.stop_broker(broker).await.unwrap(),
            Step::Start { broker } => self.kafka.restart_broker(broker).await.unwrap(),
            Step::CloseConnections { broker } => self.kafka.close_connections(broker).await,
            Step::Wait { seconds } => sleep(Duration::from_secs(seconds)).await,
        }
    }

    fn publish(&mut self, partition: i32, events: u32, time: Duration) {
        let (log, publisher) = (self.log.clone(), self.publishers);
        self.publishers += 1;
        self.publishing.spawn(async move {
            let mut told = Vec::new();
            for number in 0..events {
                let deadline = Instant::now() + time;
                let answer = log.publish(partition, value(publisher, number).into(), deadline).await;
                // The answer itself takes no time: the clock stands still.
                assert!(Instant::now() <= deadline + Duration::from_millis(1), "{answer:?} comes late");
                told.push((partition, publisher, number, answer));
            }
            told
        });
    }

    async fn settle(&mut self) {
        while let Some(told) = timeout(PATIENCE, self.publishing.join_next()).await.expect("it is answered") {
            self.told.extend(told.unwrap());
        }
    }

    async fn reopen(&mut self) {
        timeout(PATIENCE, self.log.clone().close()).await.expect("it closes");
        self.settle().await;
        self.heal().await;
        self.log = KafkaMetadataEventLog::start(&self.cluster, self.config.clone(), late()).await.unwrap();
        self.events = self.log.subscribe(queue());
        self.ended.extend(std::mem::take(&mut self.runs).into_values());
        for (partition, assignment) in &mut self.assigned {
            let last = self.ended.iter().rfind(|run| run.partition == *partition && !run.seen.is_empty());
            let from = last.map_or(0, |run| run.next_offset);
            *assignment = self.events.assignment().add(*partition, from).unwrap();
            let run = Run { partition: *partition, from, next_offset: from, seen: Vec::new() };
            self.runs.insert(*assignment, run);
        }
    }

    /// Nothing is in the way any more.
    async fn heal(&self) {
        self.kafka.clear_script();
        for broker in 1..=BROKERS {
            self.kafka.restart_broker(broker).await.unwrap();
        }
        for partition in 0..PARTITIONS {
            self.kafka.set_isr(METADATA_TOPIC, partition, &[1, 2, 3]);
            self.kafka.move_leader(METADATA_TOPIC, partition, 1 + partition % BROKERS);
        }
    }

    fn take(&mut self, delivery: MetadataDelivery) {
        let run = self.runs.get_mut(&delivery.assignment()).expect("it was added");
        assert_eq!(self.assigned.get(&run.partition), Some(&delivery.assignment()), "it was removed");
        match delivery {
            MetadataDelivery::Record { record, .. } => {
                assert!(record.offset >= run.next_offset, "{record:?} after {run:?}");
                run.seen.push((record.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
                run.next_offset = record.offset + 1;
            }
            MetadataDelivery::Advanced { next_offset, .. } => {
                assert!(next_offset > run.next_offset, "{next_offset} after {run:?}");
                run.next_offset = next_offset;
            }
            other => panic!("{other:?} after {run:?}"),
        }
    }

    /// Lets everything come to its end, and compares.
    async fn finish(mut self) {
        self.heal().await;
        self.settle().await;
        let mut logs = Vec::new();
        for marks in timeout(PATIENCE, self.marks()).await.expect("the bounds are told") {
            logs.push(self.read(marks.high_watermark, marks.partition).await);
        }
        let behind = |runs: &HashMap<AssignmentId, Run>, assigned: &BTreeMap<i32, AssignmentId>| {
            assigned.values().any(|assignment| {
                runs[assignment].next_offset < logs[runs[assignment].partition as usize].len() as i64
            })
        };
        while behind(&self.runs, &self.assigned) {
            let delivery = timeout(PATIENCE, self.events.next()).await.expect("the rest comes");
            self.take(delivery.expect("it is open"));
        }
        for run in self.ended.iter().chain(self.runs.values()) {
            let log = &logs[run.partition as usize];
            let range = run.from as usize..run.next_offset as usize;
            let expected: Vec<_> = (run.from..).zip(log[range].iter().cloned()).collect();
            assert_eq!(run.seen, expected, "{run:?}");
        }
        self.check_answers(&logs);
        timeout(PATIENCE, self.log.close()).await.expect("it closes");
    }

    /// The bounds of every partition. A question behind an answer that is still held back is late itself, and asked again.
    async fn marks(&self) -> Vec<PartitionMarks> {
        loop {
            let marks: Result<Vec<_>, _> = self.log.high_water_marks().await.into_iter().collect();
            match marks {
                Ok(marks) => return marks,
                Err(error) => assert!(matches!(error, RangeError::Cluster { .. }), "{error}"),
            }
        }
    }

    /// The values of a partition: offsets have no gap, since each record is an event.
    async fn read(&self, end: i64, partition: i32) -> Vec<String> {
        let values = Arc::new(Mutex::new(Vec::new()));
        let visitor = {
            let values = Arc::clone(&values);
            move |record: &MetadataEventRecord<'_>| {
                let mut values = values.lock().unwrap();
                assert_eq!(record.offset, values.len() as i64);
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                ControlFlow::Continue(())
            }
        };
        let range = strandline_log::MetadataRange { partition, from: 0, to: end };
        let visit = self.log.visit_range(range, visitor).await;
        assert!(visit.error.is_none(), "{:?}", visit.error);
        let values = values.lock().unwrap().clone();
        assert_eq!(values.len() as i64, end);
        values
    }

    fn check_answers(&self, logs: &[Vec<String>]) {
        for (partition, publisher, number, answer) in &self.told {
            let (log, value) = (&logs[*partition as usize], value(*publisher, *number));
            let times = log.iter().filter(|held| **held == value).count();
            let all: usize = logs.iter().map(|log| log.iter().filter(|held| **held == value).count()).sum();
            assert_eq!(all, times, "{value} is in another partition");
            match answer {
                Ok(offset) => {
                    assert_eq!(log[*offset as usize], value, "of partition {partition} at {offset}");
                    assert_eq!(times, 1, "{value}");
                }
                Err(PublishError::NoOffset { .. }) => assert_eq!(times, 1, "{value}"),
                Err(error) if error.may_be_written() => assert!(times <= 1, "{value}: {}", chain(error)),
                Err(error) => assert_eq!(times, 0, "{value}: {}", chain(error)),
            }
        }
        // The events of one publisher lie in its order.
        for log in logs {
            let mut last: HashMap<u32, u32> = HashMap::new();
            for value in log {
                let (publisher, number) = value.split_once('.').unwrap();
                let (publisher, number) = (publisher.parse().unwrap(), number.parse().unwrap());
                let before = last.insert(publisher, number);
                assert!(before.is_none_or(|before| before < number), "{value} in {log:?}");
            }
        }
    }
}

fn queue() -> MetadataEventQueueCapacity {
    MetadataEventQueueCapacity { records: 8.try_into().unwrap(), bytes: (1 << 16).try_into().unwrap() }
}

fn run(fetch_connections: FetchConnections, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut world = World::new(fetch_connections).await;
        for step in steps {
            world.step(step).await;
        }
        world.finish().await;
    });
}

fn histories(fetch_connections: FetchConnections) {
    let cases = std::env::var("STRANDLINE_MODEL_CASES").map_or(40, |cases| cases.parse().unwrap());
    let config = ProptestConfig::default();
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => {
            u64::from(std::process::id()) ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
        }
    };
    eprintln!("PROPTEST_RNG_SEED={seed}");
    let config =
        ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..config };
    let steps = prop::collection::vec(step(), 1..50);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        run(fetch_connections, steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("PROPTEST_RNG_SEED={seed}: {error}");
    }
}

#[test]
fn whatever_happens_publishers_and_subscribers_are_told_what_the_log_holds() {
    histories(FetchConnections::PerPartition);
}

#[test]
fn whatever_happens_it_is_so_with_one_connection_to_each_leader() {
    histories(FetchConnections::PerLeader);
}

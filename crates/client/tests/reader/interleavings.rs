//! Everything at once, from a seed: writers, aborts, leaders that move, brokers that go and come, faults, callers that give up.
//! Each committed record is read once, in its order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use strandline_client::admin::Isolation;
use strandline_client::reader::ReaderConfig;
use strandline_protocol::records::{BatchOptions, NewRecord, Producer};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Rule};
use tokio::time::timeout;

use crate::support::{brisk, chain, connect, kafka, line, read, reader, soon};

const STEPS: u32 = 120;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What was written, and what of it has to be read.
#[derive(Default)]
struct Model {
    /// Producers whose transaction is open, with their records.
    open: BTreeMap<i64, Vec<String>>,
    committed: Vec<String>,
    written: u32,
}

impl Model {
    fn append(&mut self, kafka: &EmbeddedCluster, producer: Option<i64>, records: u64) {
        let values: Vec<String> = (0..records).map(|at| format!("{}-{at}", self.written)).collect();
        self.written += 1;
        let owned: Vec<NewRecord<'_>> = values
            .iter()
            .map(|value| NewRecord { value: Some(value.as_bytes()), ..NewRecord::default() })
            .collect();
        let producer_of = |id| Producer { id, epoch: 0, base_sequence: -1 };
        let options = BatchOptions {
            producer: producer.map(producer_of),
            transactional: producer.is_some(),
            ..BatchOptions::default()
        };
        let base = kafka.append_batch("orders", 0, options, &owned);
        let lines = values.iter().zip(base..).map(|(value, offset)| format!("{offset} {value}"));
        match producer {
            Some(id) => self.open.entry(id).or_default().extend(lines),
            None => self.committed.extend(lines),
        }
    }

    fn end(&mut self, kafka: &EmbeddedCluster, producer: i64, commit: bool) {
        let Some(lines) = self.open.remove(&producer) else { return };
        let producer = Producer { id: producer, epoch: 0, base_sequence: -1 };
        kafka.end_transaction("orders", 0, producer, commit);
        if commit {
            self.committed.extend(lines);
        }
    }
}

fn fault(random: &mut Random) -> Fault {
    match random.below(8) {
        0 => Fault::Error(ErrorCode::NotLeaderOrFollower),
        1 => Fault::Error(ErrorCode::OffsetNotAvailable),
        2 => Fault::Error(ErrorCode::UnknownLeaderEpoch),
        3 => Fault::Close,
        4 => Fault::CloseAfter(usize::try_from(random.below(200)).unwrap_or(0)),
        5 => Fault::ApplyThenLose,
        6 => Fault::Delay(Duration::from_millis(random.below(20))),
        _ => Fault::Throttle(Duration::from_millis(random.below(20))),
    }
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let kafka = kafka(3);
    let cluster = connect(&kafka).await;
    let max_bytes = [100, 500, 1 << 20][usize::try_from(random.below(3)).unwrap_or(0)];
    let config = ReaderConfig {
        isolation: Isolation::ReadCommitted,
        max_bytes,
        max_wait: Duration::from_millis(10),
        ..brisk()
    };
    let mut reader = reader(&cluster, 0, config).await;
    let (mut model, mut got, mut stopped) = (Model::default(), Vec::new(), None);
    for _ in 0..STEPS {
        match random.below(12) {
            0..=2 => model.append(&kafka, None, 1 + random.below(3)),
            3 | 4 => {
                model.append(&kafka, Some(i64::try_from(random.below(3)).unwrap_or(0)), 1 + random.below(2))
            }
            5 => {
                let commit = random.below(2) == 0;
                model.end(&kafka, i64::try_from(random.below(3)).unwrap_or(0), commit);
            }
            6 => kafka.move_leader("orders", 0, i32::try_from(1 + random.below(3)).unwrap_or(1)),
            7 => kafka.script(Rule::new(fault(&mut random)).api(ApiKey::Fetch).times(1 + random.below(2))),
            8 => match stopped.take() {
                Some(broker) => kafka.restart_broker(broker).await.expect("its port is free"),
                None => {
                    let broker = i32::try_from(1 + random.below(3)).unwrap_or(1);
                    kafka.stop_broker(broker).await.expect("it can be stopped");
                    stopped = Some(broker);
                }
            },
            9 => kafka.close_connections(kafka.leader("orders", 0).0.max(1)).await,
            _ => {
                // A caller that may give up at any moment.
                let patience = Duration::from_millis(random.below(30));
                let page = reader.next_page(soon(), |record| {
                    got.push(line(record));
                    ControlFlow::Continue(())
                });
                if let Ok(Err(error)) = timeout(patience, page).await {
                    panic!("seed {seed}: {}", chain(&error));
                }
            }
        }
    }
    for producer in 0..3 {
        model.end(&kafka, producer, producer % 2 == 0);
    }
    if let Some(broker) = stopped {
        kafka.restart_broker(broker).await.expect("its port is free");
    }
    kafka.clear_script();
    let (rest, stop) = read(&mut reader).await;
    assert!(stop.is_none(), "seed {seed}: {}", chain(&stop.expect("it is one")));
    got.extend(rest);
    let offset = |line: &String| line.split(' ').next().and_then(|offset| offset.parse::<i64>().ok());
    model.committed.sort_by_key(offset);
    assert_eq!(got, model.committed, "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_committed_record_is_read_once_in_its_order_whatever_happens_meanwhile() {
    for seed in 0..6 {
        run(seed).await;
    }
}

//! Random publishes, assignments, cuts and restarts, held against a plain model of the log: what a subscriber saw is the
//! log from its start offset, in order, once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use strandline_log::{
    InProcessMetadataTopic, LiveMetadataEventLog as _, MetadataDelivery, MetadataEventLog as _, RangeError,
};

use crate::{capacity, soon, until, within};

#[derive(Clone, Debug)]
enum Op {
    Publish { partition: i32, count: u32 },
    Gap { partition: i32, count: u32 },
    Add { partition: i32, back: i64 },
    Remove { partition: i32 },
    Take { count: usize },
    Reopen,
    AdvanceStart { partition: i32, back: i64 },
    Truncate { partition: i32, back: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let partition = || 0..3_i32;
    prop_oneof![
        6 => (partition(), 1..40_u32).prop_map(|(partition, count)| Op::Publish { partition, count }),
        1 => (partition(), 1..4_u32).prop_map(|(partition, count)| Op::Gap { partition, count }),
        4 => (partition(), 0..60_i64).prop_map(|(partition, back)| Op::Add { partition, back }),
        2 => partition().prop_map(|partition| Op::Remove { partition }),
        6 => (1..50_usize).prop_map(|count| Op::Take { count }),
        1 => Just(Op::Reopen),
        1 => (partition(), 0..30_i64).prop_map(|(partition, back)| Op::AdvanceStart { partition, back }),
        1 => (partition(), 1..10_i64).prop_map(|(partition, back)| Op::Truncate { partition, back }),
    ]
}

/// The log of a partition: the value at each offset that has one.
#[derive(Clone, Debug, Default)]
struct Log {
    start: i64,
    end: i64,
    values: BTreeMap<i64, String>,
}

/// What a subscriber saw of one assignment.
#[derive(Debug)]
struct Seen {
    next_offset: i64,
    /// The log was cut or its start moved: what comes is the old log up to a stop, or a stop alone.
    disturbed: bool,
    /// Every version of the log that could have been read, as long as the reading is undisturbed there is one.
    logs: Vec<Log>,
    stopped: bool,
}

impl Seen {
    /// The next offset with a value in one version of the log.
    fn expects(&self, offset: i64, value: &str) -> bool {
        self.logs.iter().any(|log| {
            let next = log.values.range(self.next_offset..).next();
            next.is_some_and(|(&at, held)| at == offset && held == value)
        })
    }
}

async fn run(ops: Vec<Op>) {
    let topic = InProcessMetadataTopic::with_partitions(3);
    let mut log = topic.open();
    let mut events = log.subscribe(capacity(8, 1 << 16));
    let mut logs: BTreeMap<i32, Log> = (0..3).map(|partition| (partition, Log::default())).collect();
    let mut seen: BTreeMap<i32, Seen> = BTreeMap::new();
    let mut published = 0;
    for op in ops {
        match op {
            Op::Publish { partition, count } => {
                for _ in 0..count {
                    published += 1;
                    let value = format!("event {published}");
                    let offset = log.publish(partition, value.clone().into(), soon()).await.unwrap();
                    let model = logs.get_mut(&partition).unwrap();
                    assert_eq!(offset, model.end);
                    model.values.insert(offset, value.clone());
                    model.end += 1;
                    if let Some(seen) = seen.get_mut(&partition) {
                        let last = seen.logs.last_mut().unwrap();
                        last.values.insert(offset, value);
                        last.end = offset + 1;
                    }
                }
            }
            Op::Gap { partition, count } => {
                topic.skip_offsets(partition, count);
                logs.get_mut(&partition).unwrap().end += i64::from(count);
            }
            Op::Add { partition, back } => {
                let model = &logs[&partition];
                let from = (model.end - back).max(model.start);
                let added = events.assignment().add(partition, from);
                assert_eq!(added.is_ok(), !seen.contains_key(&partition));
                seen.entry(partition).or_insert_with(|| Seen {
                    next_offset: from,
                    disturbed: false,
                    logs: vec![model.clone()],
                    stopped: false,
                });
            }
            Op::Remove { partition } => {
                assert_eq!(events.assignment().remove(partition), seen.remove(&partition).is_some());
            }
            Op::Take { count } => {
                for _ in 0..count {
                    let Some(delivery) = futures::FutureExt::now_or_never(events.next()) else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    take(delivery.expect("it is open"), &mut seen);
                }
            }
            Op::Reopen => {
                log.close().await;
                log = topic.open();
                events = log.subscribe(capacity(8, 1 << 16));
                // A restarted reader goes on where it stands, if the log still has that.
                seen.retain(|partition, seen| !seen.disturbed && logs[partition].end >= seen.next_offset);
                for (&partition, seen) in &seen {
                    events.assignment().add(partition, seen.next_offset).unwrap();
                }
            }
            Op::AdvanceStart { partition, back } => {
                let model = logs.get_mut(&partition).unwrap();
                let start = (model.end - back).max(model.start);
                topic.advance_log_start(partition, start);
                model.start = start;
                model.values.retain(|&offset, _| offset >= start);
                if let Some(seen) = seen.get_mut(&partition)
                    && seen.next_offset < start
                {
                    seen.disturbed = true;
                }
            }
            Op::Truncate { partition, back } => {
                let model = logs.get_mut(&partition).unwrap();
                let end = (model.end - back).max(model.start);
                topic.truncate(partition, end);
                model.end = end;
                model.values.retain(|&offset, _| offset < end);
                if let Some(seen) = seen.get_mut(&partition) {
                    seen.disturbed = true;
                    seen.logs.push(model.clone());
                }
            }
        }
    }
    // Whoever was not disturbed sees everything to the end.
    let pending = |seen: &BTreeMap<i32, Seen>| {
        seen.iter().any(|(partition, seen)| !seen.disturbed && seen.next_offset < logs[partition].end)
    };
    while pending(&seen) {
        take(within("the rest", events.next()).await.expect("it is open"), &mut seen);
    }
    until(&events, "the list", |list| list.len() == seen.len()).await;
    log.close().await;
}

fn take(delivery: MetadataDelivery, seen: &mut BTreeMap<i32, Seen>) {
    let partition = delivery.partition();
    let seen = seen.get_mut(&partition).expect("only assigned partitions are delivered");
    assert!(!seen.stopped, "{delivery:?} after a stop");
    match delivery {
        MetadataDelivery::Record { record, .. } => {
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            assert!(seen.expects(record.offset, &value), "{}={value} after {seen:?}", record.offset);
            seen.next_offset = record.offset + 1;
        }
        MetadataDelivery::Advanced { next_offset, .. } => {
            let skipped = |log: &Log| log.values.range(seen.next_offset..next_offset).next().is_none();
            assert!(seen.logs.iter().any(skipped), "{next_offset} after {seen:?}");
            assert!(next_offset > seen.next_offset);
            seen.next_offset = next_offset;
        }
        MetadataDelivery::Stopped { error, .. } => {
            assert!(seen.disturbed, "{error} of {seen:?}");
            assert!(
                matches!(*error, RangeError::Truncated { .. } | RangeError::OffsetOutOfRange { .. }),
                "{error}"
            );
            seen.stopped = true;
        }
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn what_a_subscriber_saw_is_the_log_from_its_start_offset_in_order_and_once(
        ops in prop::collection::vec(op(), 1..80)
    ) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(ops));
    }
}

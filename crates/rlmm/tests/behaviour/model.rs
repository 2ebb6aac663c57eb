//! Random writes, foreign events, assignments, cuts and restarts, held against a plain model: the log from its start, put
//! event by event into Kafka's store.

use proptest::prelude::*;
use strandline_log::InProcessMetadataTopic;
use strandline_rlmm::{
    RemoteLogMetadataManager as _, TopicBasedRemoteLogMetadataManager, TopicIdPartition, WriteError,
    WriteOutcome,
};
use strandline_tier::{
    EpochEntry, RawEvent, RawSegmentMetadata, RawSegmentUpdate, RecordValue, RemotePartitionMetadataStore,
};

use crate::support::{
    Manager, answers, append, append_value, caught_up, config_with_snapshots, home, index_answers, orders,
    soon, started, until, update, within,
};

const METADATA_PARTITIONS: i32 = 2;
const USER_PARTITIONS: i32 = 4;

#[derive(Clone, Debug)]
enum Op {
    /// A segment is announced or changed, through the manager or past it.
    Event {
        user: i32,
        segment: u64,
        state: i8,
        begin: i64,
        length: i64,
        epochs: u8,
        through: bool,
    },
    /// A record that is no event.
    Garbage {
        home: i32,
    },
    Serve {
        user: i32,
    },
    Stop {
        user: i32,
    },
    /// Closed, with a snapshot, or dropped.
    Restart {
        close: bool,
    },
    Truncate {
        home: i32,
        back: i64,
    },
    Gap {
        home: i32,
    },
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let event = (
        0..USER_PARTITIONS,
        0..12_u64,
        prop_oneof![3 => Just(0_i8), 3 => Just(1), 2 => Just(2), 2 => Just(3)],
        0..200_i64,
        0..80_i64,
        1..4_u8,
        any::<bool>(),
    );
    let event = event.prop_map(|(user, segment, state, begin, length, epochs, through)| Op::Event {
        user,
        segment,
        state,
        begin,
        length,
        epochs,
        through,
    });
    prop_oneof![
        24 => event,
        1 => (0..METADATA_PARTITIONS).prop_map(|home| Op::Garbage { home }),
        4 => (0..USER_PARTITIONS).prop_map(|user| Op::Serve { user }),
        2 => (0..USER_PARTITIONS).prop_map(|user| Op::Stop { user }),
        2 => any::<bool>().prop_map(|close| Op::Restart { close }),
        1 => (0..METADATA_PARTITIONS, 1..8_i64).prop_map(|(home, back)| Op::Truncate { home, back }),
        1 => (0..METADATA_PARTITIONS).prop_map(|home| Op::Gap { home }),
        2 => Just(Op::Check),
    ]
}

/// What the log holds: values by offset, for each metadata partition.
#[derive(Debug, Default)]
struct Log {
    end: i64,
    values: Vec<(i64, Vec<u8>)>,
}

fn modelled(log: &Log, tp: &TopicIdPartition) -> String {
    let mut store = RemotePartitionMetadataStore::new();
    store.load(tp);
    for (_, value) in &log.values {
        if let RecordValue::Event(event) = RecordValue::from_value(Some(value)) {
            // What Kafka's classes refuse, and what is of others, changes nothing.
            let _outcome = store.apply(&event);
        }
    }
    assert!(store.mark_initialised(tp));
    index_answers(store.index(tp).unwrap())
}

fn begin(topic: &InProcessMetadataTopic, dir: &std::path::Path) -> Manager {
    TopicBasedRemoteLogMetadataManager::start(topic.open(), config_with_snapshots(dir)).unwrap()
}

async fn run(ops: Vec<Op>) {
    let topic = InProcessMetadataTopic::with_partitions(METADATA_PARTITIONS);
    let dir = tempfile::tempdir().unwrap();
    let mut logs = [Log::default(), Log::default()];
    let mut served: Vec<TopicIdPartition> = Vec::new();
    let mut manager = begin(&topic, dir.path());
    let (mut time, mut was_cut) = (0, false);
    for op in ops.into_iter().chain([Op::Check]) {
        match op {
            Op::Event { user, segment, state, begin, length, epochs, through } => {
                time += 1;
                let tp = orders(user);
                let log = &mut logs[usize::try_from(home(&topic, &tp)).unwrap()];
                let event = event(&tp, segment, state, begin, length, epochs, time);
                let mut value = Vec::new();
                strandline_tier::codec::encode(&event, &mut value).unwrap();
                if through && served.contains(&tp) {
                    // A deletion without custom metadata would get that of the segment; these all have some.
                    let written = match event {
                        RawEvent::SegmentMetadata(event) => {
                            within("a write", manager.add_remote_log_segment_metadata(event, soon())).await
                        }
                        RawEvent::SegmentMetadataUpdate(event) => {
                            within("a write", manager.update_remote_log_segment_metadata(event, soon())).await
                        }
                        other => panic!("{other:?}"),
                    };
                    let before = modelled(log, &tp);
                    log.values.push((log.end, value));
                    let changed = before != modelled(log, &tp);
                    match written {
                        Ok(written) => {
                            assert_eq!(written.offset, log.end);
                            assert_eq!(changed, written.outcome == WriteOutcome::Applied, "{written:?}");
                        }
                        // A cut can be noticed as late as now.
                        Err(WriteError::ReadAnew { offset, .. }) if was_cut => assert_eq!(offset, log.end),
                        Err(error) => panic!("{error}"),
                    }
                } else {
                    append_value(&topic, home(&topic, &tp), Some(value.clone().into()));
                    log.values.push((log.end, value));
                }
                log.end += 1;
            }
            Op::Garbage { home } => {
                append_value(&topic, home, Some("no event".into()));
                logs[usize::try_from(home).unwrap()].end += 1;
            }
            Op::Gap { home } => {
                topic.skip_offsets(home, 2);
                logs[usize::try_from(home).unwrap()].end += 2;
            }
            Op::Serve { user } => {
                let tp = orders(user);
                manager.on_partition_leadership_changes(std::slice::from_ref(&tp), &[]).unwrap();
                if !served.contains(&tp) {
                    served.push(tp);
                }
            }
            Op::Stop { user } => {
                let tp = orders(user);
                manager.on_stop_partitions(std::slice::from_ref(&tp));
                served.retain(|other| *other != tp);
            }
            Op::Restart { close } => {
                if close {
                    check(&manager, &logs, &served, &topic, was_cut).await;
                    manager.close().await;
                }
                drop(manager);
                let mut next = None;
                until("the directory is free", || {
                    let started = TopicBasedRemoteLogMetadataManager::start(
                        topic.open(),
                        config_with_snapshots(dir.path()),
                    );
                    next = started.ok();
                    next.is_some()
                })
                .await;
                manager = next.unwrap();
                manager.on_partition_leadership_changes(&[], &served).unwrap();
                was_cut = false;
            }
            Op::Truncate { home, back } => {
                let log = &mut logs[usize::try_from(home).unwrap()];
                log.end = (log.end - back).max(0);
                let end = log.end;
                log.values.retain(|&(offset, _)| offset < end);
                topic.truncate(home, log.end);
                was_cut = true;
                // An event under the new leader, so that every reading notices before it is asked.
                time += 1;
                let tp = orders(USER_PARTITIONS);
                append(
                    &topic,
                    home,
                    RawSegmentMetadata { event_timestamp_ms: time, ..started(&tp, 0, 0..=9) },
                );
                log.end += 1;
                check_until_equal(&manager, &logs, &served, &topic).await;
            }
            Op::Check => check(&manager, &logs, &served, &topic, was_cut).await,
        }
    }
    manager.close().await;
}

async fn check(
    manager: &Manager,
    logs: &[Log; 2],
    served: &[TopicIdPartition],
    topic: &InProcessMetadataTopic,
    was_cut: bool,
) {
    if was_cut {
        // One that took nothing away is noticed with the next record, perhaps while this looks.
        return check_until_equal(manager, logs, served, topic).await;
    }
    for tp in served {
        within("a partition is ready", manager.wait_until_ready(tp, soon())).await.unwrap();
    }
    caught_up(manager, |partition| logs[usize::try_from(partition).unwrap()].end).await;
    for tp in served {
        let log = &logs[usize::try_from(home(topic, tp)).unwrap()];
        assert_eq!(answers(manager, tp), modelled(log, tp), "{tp:?}");
    }
    let homes: std::collections::BTreeSet<_> = served.iter().map(|tp| home(topic, tp)).collect();
    assert!(manager.status().iter().map(|status| status.partition).eq(homes));
}

/// A cut is noticed by the reading, when it comes to it: until then the old answers are given.
async fn check_until_equal(
    manager: &Manager,
    logs: &[Log; 2],
    served: &[TopicIdPartition],
    topic: &InProcessMetadataTopic,
) {
    let expected: Vec<_> = served
        .iter()
        .map(|tp| (tp, modelled(&logs[usize::try_from(home(topic, tp)).unwrap()], tp)))
        .collect();
    until("the cut is noticed", || {
        let at_the_end = manager
            .status()
            .iter()
            .all(|status| status.next_offset == Some(logs[usize::try_from(status.partition).unwrap()].end));
        at_the_end && expected.iter().all(|(tp, expected)| answers(manager, tp) == *expected)
    })
    .await;
}

fn event(
    tp: &TopicIdPartition,
    segment: u64,
    state: i8,
    begin: i64,
    length: i64,
    epochs: u8,
    time: i64,
) -> RawEvent<'static> {
    match state {
        0 => RawEvent::SegmentMetadata(RawSegmentMetadata {
            event_timestamp_ms: time,
            segment_leader_epochs: (0..epochs)
                .map(|epoch| EpochEntry {
                    epoch: i32::from(epoch),
                    start_offset: begin + length * i64::from(epoch) / i64::from(epochs),
                })
                .collect(),
            ..started(tp, segment, begin..=begin + length)
        }),
        state => RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
            event_timestamp_ms: time,
            custom_metadata: Some(vec![state.unsigned_abs(), 7].into()),
            ..update(tp, segment, state)
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_the_log_whatever_was_written_cut_stopped_and_restarted(
        ops in prop::collection::vec(op(), 1..120),
        threads in any::<bool>(),
    ) {
        let mut builder = match threads {
            true => tokio::runtime::Builder::new_multi_thread(),
            false => tokio::runtime::Builder::new_current_thread(),
        };
        let runtime = builder.enable_all().worker_threads(2).build().unwrap();


        runtime.block_on(run(ops));
    }
}

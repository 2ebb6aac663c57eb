//! The segment index, by example and against a plain model of Kafka's cache.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::prelude::*;
use strandline_tier::{
    ApplyError, ApplyOutcome, EpochEntry, NextWithTxnIndex, RawSegmentMetadata, RawSegmentUpdate,
    RawTopicIdPartition, RemoteLogSegmentIndex, RemoteLogSegmentMetadata, RemoteLogSegmentState as State,
    TopicId, Uuid,
};

fn segment_id(number: u8) -> Uuid {
    Uuid([number; 16])
}

fn number(segment: &RemoteLogSegmentMetadata) -> u8 {
    segment.segment_id().0[0]
}

fn partition() -> RawTopicIdPartition<'static> {
    RawTopicIdPartition { topic: "orders".into(), topic_id: TopicId::default(), partition: 0 }
}

/// One event, or the mark.
#[derive(Clone, Debug)]
enum Step {
    Add {
        segment: u8,
        start: i64,
        end: i64,
        epochs: BTreeMap<i32, i64>,
        state: i8,
        size: i32,
        txn_empty: bool,
    },
    Update {
        segment: u8,
        state: i8,
        custom: Option<u8>,
    },
    Init,
}

fn add(step: &Step) -> Option<RawSegmentMetadata<'static>> {
    let &Step::Add { segment, start, end, ref epochs, state, size, txn_empty } = step else {
        return None;
    };
    Some(RawSegmentMetadata {
        topic_id_partition: partition(),
        segment_id: segment_id(segment),
        start_offset: start,
        end_offset: end,
        broker_id: 1,
        max_timestamp_ms: 2,
        event_timestamp_ms: 3,
        segment_leader_epochs: epochs
            .iter()
            .map(|(&epoch, &start_offset)| EpochEntry { epoch, start_offset })
            .collect(),
        segment_size_in_bytes: size,
        custom_metadata: None,
        state_id: state,
        txn_index_empty: txn_empty,
    })
}

fn update(step: &Step) -> Option<RawSegmentUpdate<'static>> {
    let &Step::Update { segment, state, custom } = step else {
        return None;
    };
    Some(RawSegmentUpdate {
        topic_id_partition: partition(),
        segment_id: segment_id(segment),
        broker_id: 4,
        event_timestamp_ms: 5,
        custom_metadata: custom.map(|byte| Cow::Owned(vec![byte])),
        state_id: state,
    })
}

fn apply(index: &mut RemoteLogSegmentIndex, step: &Step) -> String {
    let outcome = match (add(step), update(step)) {
        (Some(event), _) => index.apply_segment_metadata(&event),
        (_, Some(event)) => index.apply_segment_update(&event),
        _ => {
            index.mark_initialised();
            Ok(ApplyOutcome::Applied)
        }
    };
    match outcome {
        Ok(ApplyOutcome::Applied) => "applied".to_owned(),
        Ok(_) => "dropped".to_owned(),
        Err(error) => error.kafka_exception().to_owned(),
    }
}

/// Kafka's cache, written down as it is described, without a thought for speed.
#[derive(Default)]
struct Model {
    segments: BTreeMap<u8, ModelSegment>,
    epochs: BTreeMap<i32, ModelEpoch>,
    initialised: bool,
}

struct ModelSegment {
    start: i64,
    end: i64,
    epochs: BTreeMap<i32, i64>,
    size: i32,
    txn_empty: bool,
    state: i8,
    custom: Option<u8>,
}

#[derive(Default)]
struct ModelEpoch {
    refs: BTreeMap<i64, u8>,
    unref: BTreeSet<u8>,
    highest: Option<i64>,
}

impl ModelSegment {
    fn epoch_end(&self, epoch: i32) -> i64 {
        self.epochs.range(epoch + 1..).next().map_or(self.end, |(_, start)| start - 1)
    }
}

impl Model {
    fn apply(&mut self, step: &Step) -> &'static str {
        match step {
            Step::Init => {
                self.initialised = true;
                "applied"
            }
            Step::Add { .. } => self.add(step),
            &Step::Update { segment, state, custom } => self.update(segment, state, custom),
        }
    }

    fn add(&mut self, step: &Step) -> &'static str {
        let Step::Add { segment, start, end, epochs, state, size, txn_empty } = step.clone() else {
            unreachable!()
        };
        if start < 0 || end < start || epochs.is_empty() {
            return "IllegalArgumentException";
        }
        if !(0..=3).contains(&state) {
            return "NullPointerException";
        }
        if state != 0 {
            return "IllegalArgumentException";
        }
        if self.segments.get(&segment).is_some_and(|known| known.state != 0) {
            return "dropped";
        }
        for &epoch in epochs.keys() {
            self.epochs.entry(epoch).or_default().unref.insert(segment);
        }
        let metadata = ModelSegment { start, end, epochs, size, txn_empty, state, custom: None };
        self.segments.insert(segment, metadata);
        "applied"
    }

    fn update(&mut self, segment: u8, state: i8, custom: Option<u8>) -> &'static str {
        if !(0..=3).contains(&state) {
            return "NullPointerException";
        }
        let Some(metadata) = self.segments.get_mut(&segment) else {
            return if self.initialised { "RemoteResourceNotFoundException" } else { "dropped" };
        };
        let legal: &[i8] = match metadata.state {
            0 => &[0, 1, 2],
            1 => &[1, 2],
            _ => &[2, 3],
        };
        if !legal.contains(&state) {
            return "dropped";
        }
        if state == 0 {
            return "IllegalArgumentException";
        }
        metadata.state = state;
        metadata.custom = custom;
        for (&epoch, &s) in &metadata.epochs {
            let n = metadata.epoch_end(epoch);
            let epoch = self.epochs.get_mut(&epoch).unwrap();
            match state {
                1 => {
                    while let Some((&last, &displaced)) = epoch.refs.last_key_value()
                        && last >= s
                        && epoch.highest.unwrap() <= n
                    {
                        epoch.refs.remove(&last);
                        epoch.unref.insert(displaced);
                    }
                    epoch.refs.insert(s, segment);
                    epoch.unref.remove(&segment);
                    epoch.highest = Some(epoch.highest.map_or(n, |highest| highest.max(n)));
                }
                2 => {
                    if epoch.refs.get(&s) == Some(&segment) {
                        epoch.refs.remove(&s);
                    }
                    epoch.unref.insert(segment);
                }
                _ => {
                    epoch.unref.remove(&segment);
                }
            }
        }
        if state == 3 {
            self.segments.remove(&segment);
        }
        "applied"
    }

    fn lookup(&self, epoch: i32, offset: i64) -> Option<u8> {
        let (_, &segment) = self.epochs.get(&epoch)?.refs.range(..=offset).next_back()?;
        (offset <= self.segments[&segment].epoch_end(epoch)).then_some(segment)
    }

    fn list(&self, epoch: i32) -> Result<Vec<u8>, ()> {
        let Some(state) = self.epochs.get(&epoch) else {
            return Ok(Vec::new());
        };
        let mut list: Vec<u8> = state.refs.values().chain(&state.unref).copied().collect();
        if list.iter().any(|segment| !self.segments.contains_key(segment)) {
            return Err(());
        }
        if !state.unref.is_empty() {
            list.sort_by_key(|segment| self.segments[segment].start);
        }
        Ok(list)
    }

    fn next_txn(&self, epoch: i32, offset: i64) -> String {
        let mut seen = BTreeSet::new();
        let mut next = self.lookup(epoch, offset);
        while let Some(segment) = next.filter(|segment| self.segments[segment].txn_empty) {
            if !seen.insert(segment) {
                return "endless".to_owned();
            }
            next = self.lookup(epoch, self.segments[&segment].end + 1);
        }
        format!("{next:?}")
    }
}

fn next_txn(index: &RemoteLogSegmentIndex, epoch: i32, offset: i64) -> String {
    match index.next_segment_with_txn_index(epoch, offset) {
        NextWithTxnIndex::Found(segment) => format!("{:?}", Some(number(segment))),
        NextWithTxnIndex::None => "None".to_owned(),
        _ => "endless".to_owned(),
    }
}

const SEGMENTS: u8 = 7;
const EPOCHS: i32 = 4;
const OFFSETS: i64 = 40;

fn step() -> impl Strategy<Value = Step> {
    let epochs = prop::collection::btree_map(0..EPOCHS, 0..OFFSETS, 0..4);
    let state = prop_oneof![20 => Just(0_i8), 1 => -1..5_i8];
    let custom = prop::option::of(any::<u8>());
    let add = (0..SEGMENTS, -1..OFFSETS, 0..15_i64, epochs, state, any::<bool>(), 0..100_i32);
    let to = prop_oneof![1 => -1..5_i8, 6 => Just(1_i8), 2 => Just(2_i8), 2 => Just(3_i8)];
    prop_oneof![
        20 => add.prop_map(|(segment, start, length, epochs, state, txn_empty, size)| Step::Add {
            segment,
            start,
            end: start + length - i64::from(length == 14) * 15,
            epochs,
            state,
            size,
            txn_empty,
        }),
        40 => (0..SEGMENTS, to, custom)
            .prop_map(|(segment, state, custom)| Step::Update { segment, state, custom }),
        1 => Just(Step::Init),
    ]
}

proptest! {
    #[test]
    fn the_index_answers_as_the_plain_model_does(steps in prop::collection::vec(step(), 1..80)) {
        let mut index = RemoteLogSegmentIndex::new();
        let mut model = Model::default();
        for step in &steps {
            prop_assert_eq!(apply(&mut index, step), model.apply(step), "{:?}", step);
            let all: BTreeMap<_, _> = index
                .list_remote_log_segments()
                .map(|s| (number(s), (s.state().id(), s.custom_metadata().map(|custom| custom[0]))))
                .collect();
            let golden = model.segments.iter().map(|(&s, segment)| (s, (segment.state, segment.custom)));
            prop_assert_eq!(all, golden.collect());
            prop_assert!(index.leader_epochs().eq(model.epochs.keys().copied()));
        }
        let model = model;
        for segment in 0..SEGMENTS {
            let found = index.segment(segment_id(segment)).map(number);
            prop_assert_eq!(found, model.segments.contains_key(&segment).then_some(segment));
        }
        for epoch in -1..=EPOCHS {
            let list = index.list_remote_log_segments_for_epoch(epoch);
            let list = list.map(|list| list.into_iter().map(number).collect::<Vec<_>>()).map_err(|_| ());
            prop_assert_eq!(&list, &model.list(epoch), "list of epoch {}", epoch);
            let size = list.map(|list| list.iter().map(|s| i64::from(model.segments[s].size)).sum::<i64>());
            prop_assert_eq!(index.remote_log_size(epoch).map_err(|_| ()), size);
            let highest = model.epochs.get(&epoch).and_then(|epoch| epoch.highest);
            prop_assert_eq!(index.highest_offset_for_epoch(epoch), highest);
            for offset in -2..OFFSETS + 20 {
                let found = index.remote_log_segment_metadata(epoch, offset).map(number);
                prop_assert_eq!(found, model.lookup(epoch, offset), "epoch {} offset {}", epoch, offset);
                prop_assert_eq!(next_txn(&index, epoch, offset), model.next_txn(epoch, offset));
            }
        }
    }
}

/// Runs a script, one event or question a line, and writes the answer behind each.
///
/// `started S START..=END EPOCH:OFFSET,… [txn-empty]`, `finished S`, `deleting S`, `deleted S`, `init`,
/// `find EPOCH OFFSET`, `next-txn EPOCH OFFSET`, `list EPOCH`.
fn replay(script: &str) -> String {
    let mut index = RemoteLogSegmentIndex::new();
    let mut trace = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let integer = |at: usize| words[at].parse::<i64>().unwrap();
        let update = |state| Step::Update { segment: integer(1) as u8, state, custom: None };
        let answer = match words[0] {
            "started" => {
                let (start, end) = words[2].split_once("..=").unwrap();
                let epochs = words[3].split(',').map(|epoch| {
                    let (epoch, start) = epoch.split_once(':').unwrap();
                    (epoch.parse().unwrap(), start.parse().unwrap())
                });
                let step = Step::Add {
                    segment: integer(1) as u8,
                    start: start.parse().unwrap(),
                    end: end.parse().unwrap(),
                    epochs: epochs.collect(),
                    state: 0,
                    size: 100,
                    txn_empty: words.contains(&"txn-empty"),
                };
                apply(&mut index, &step)
            }
            "finished" => apply(&mut index, &update(1)),
            "deleting" => apply(&mut index, &update(2)),
            "deleted" => apply(&mut index, &update(3)),
            "init" => apply(&mut index, &Step::Init),
            "find" => match index.remote_log_segment_metadata(integer(1) as i32, integer(2)) {
                Some(segment) => format!("segment {}", number(segment)),
                None => "none".to_owned(),
            },
            "next-txn" => next_txn(&index, integer(1) as i32, integer(2)),
            "list" => match index.list_remote_log_segments_for_epoch(integer(1) as i32) {
                Ok(list) => format!("{:?}", list.into_iter().map(number).collect::<Vec<_>>()),
                Err(error) => error.to_string(),
            },
            other => panic!("{other}?"),
        };
        writeln!(trace, "{line:<32} -> {answer}").unwrap();
    }
    trace
}

#[test]
fn a_segment_is_readable_only_between_copy_finished_and_delete_started() {
    insta::assert_snapshot!(replay("
        started 1 0..=99 0:0
        find 0 50
        finished 1
        find 0 50
        find 0 100
        deleting 1
        find 0 50
        list 0
        deleted 1
        list 0
        deleted 1
        init
        deleted 1
    "), @r"
    started 1 0..=99 0:0             -> applied
    find 0 50                        -> none
    finished 1                       -> applied
    find 0 50                        -> segment 1
    find 0 100                       -> none
    deleting 1                       -> applied
    find 0 50                        -> none
    list 0                           -> [1]
    deleted 1                        -> applied
    list 0                           -> []
    deleted 1                        -> dropped
    init                             -> applied
    deleted 1                        -> RemoteResourceNotFoundException
    ");
}

#[test]
fn a_shorter_segment_at_the_same_offset_orphans_the_longer_one() {
    insta::assert_snapshot!(replay("
        started 1 0..=100 0:0
        finished 1
        started 2 0..=50 0:0
        finished 2
        find 0 50
        find 0 51
        list 0
    "), @r"
    started 1 0..=100 0:0            -> applied
    finished 1                       -> applied
    started 2 0..=50 0:0             -> applied
    finished 2                       -> applied
    find 0 50                        -> segment 2
    find 0 51                        -> none
    list 0                           -> [2]
    ");
}

#[test]
fn an_epoch_that_lost_a_segment_to_a_second_introduction_cannot_be_listed_any_more() {
    insta::assert_snapshot!(replay("
        started 1 0..=9 0:0
        started 1 0..=9 1:0
        deleting 1
        list 0
        deleted 1
        list 0
        list 1
    "), @r"
    started 1 0..=9 0:0              -> applied
    started 1 0..=9 1:0              -> applied
    deleting 1                       -> applied
    list 0                           -> [1]
    deleted 1                        -> applied
    list 0                           -> leader epoch 0 lists segment AQEBAQEBAQEBAQEBAQEBAQ, which is gone
    list 1                           -> []
    ");
}

#[test]
fn a_search_that_never_ends_in_kafka_ends_here() {
    // Epoch 0 claims offsets beyond the end of segment 1; in epoch 2 segments 2 and 3 lead to each other.
    insta::assert_snapshot!(replay("
        started 1 0..=10 0:0,1:1000 txn-empty
        finished 1
        find 0 500
        next-txn 0 5
        started 2 0..=60 2:0 txn-empty
        finished 2
        started 3 0..=20 2:50,3:2000 txn-empty
        finished 3
        next-txn 2 0
        next-txn 2 1000
    "), @r"
    started 1 0..=10 0:0,1:1000 txn-empty -> applied
    finished 1                       -> applied
    find 0 500                       -> segment 1
    next-txn 0 5                     -> endless
    started 2 0..=60 2:0 txn-empty   -> applied
    finished 2                       -> applied
    started 3 0..=20 2:50,3:2000 txn-empty -> applied
    finished 3                       -> applied
    next-txn 2 0                     -> endless
    next-txn 2 1000                  -> endless
    ");
}

#[test]
fn offsets_at_the_ends_of_their_range_do_not_overflow() {
    let mut index = RemoteLogSegmentIndex::new();
    let epochs = BTreeMap::from([(i32::MIN, 0), (0, i64::MIN), (i32::MAX, i64::MAX)]);
    let step = Step::Add { segment: 1, start: 0, end: i64::MAX, epochs, state: 0, size: -1, txn_empty: true };
    assert_eq!(apply(&mut index, &step), "applied");
    assert_eq!(apply(&mut index, &Step::Update { segment: 1, state: 1, custom: None }), "applied");
    assert_eq!(index.highest_offset_for_epoch(i32::MIN), Some(i64::MAX));
    assert_eq!(index.remote_log_segment_metadata(i32::MAX, i64::MAX).map(number), Some(1));
    assert_eq!(next_txn(&index, i32::MAX, i64::MAX), "None");
    assert_eq!(index.remote_log_size(0), Ok(-1));
}

#[test]
fn a_refused_event_says_why() {
    let mut index = RemoteLogSegmentIndex::new();
    let add = |state, start| Step::Add {
        segment: 1,
        start,
        end: 9,
        epochs: BTreeMap::from([(0, 0)]),
        state,
        size: 1,
        txn_empty: false,
    };
    let error = |outcome: Result<ApplyOutcome, ApplyError>| outcome.unwrap_err().to_string();
    let not_started = index.apply_segment_metadata(&self::add(&add(1, 0)).unwrap());
    assert_eq!(
        error(not_started),
        "segment introduced in state COPY_SEGMENT_FINISHED instead of COPY_SEGMENT_STARTED"
    );
    assert_eq!(
        index.apply_segment_metadata(&self::add(&add(0, 10)).unwrap()),
        Err(ApplyError::Object(strandline_tier::ObjectError::EndBeforeStart {
            start_offset: 10,
            end_offset: 9
        }))
    );
    assert_eq!(apply(&mut index, &add(0, 0)), "applied");
    let deleted = update(&Step::Update { segment: 1, state: 3, custom: None }).unwrap();
    assert_eq!(
        index.apply_segment_update(&deleted),
        Ok(ApplyOutcome::InvalidTransition {
            from: State::CopySegmentStarted,
            to: State::DeleteSegmentFinished
        })
    );
}

//! golden-cache: the state tables, and what a broker's cache and store answer after given events.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use strandline_tier::{
    ApplyError, ApplyOutcome, EpochEntry, NextWithTxnIndex, RawEvent, RawPartitionDelete, RawSegmentMetadata,
    RawSegmentUpdate, RawTopicIdPartition, RemoteLogSegmentIndex, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, RemotePartitionDeleteState, RemotePartitionMetadataStore, Uuid,
};

use super::{Tally, from_hex, same, to_hex};

/// The first eight bytes of every segment id in the file; the segment's number follows.
const SEGMENT_ID_PREFIX: [u8; 8] = *b"Strndlne";
const TOPIC_ID: &str = "vaZwr6blSEWMAbm7z-tW-w";

/// From (null for none), to, legal.
type Transition = (Option<i8>, i8, bool);

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    segment_transitions: Vec<Transition>,
    #[serde(default)]
    partition_delete_transitions: Vec<Transition>,
    #[serde(default)]
    scenarios: Vec<Scenario<Step>>,
    #[serde(default)]
    store_scenarios: Vec<Scenario<StoreStep>>,
}

#[derive(Deserialize)]
struct Scenario<S> {
    name: String,
    steps: Vec<S>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Step {
    Add(Add),
    Update(Update),
    Init {},
    Check(Check),
}

#[derive(Deserialize)]
struct Add {
    seg: u64,
    start: i64,
    end: i64,
    epochs: Vec<(i32, i64)>,
    state: i8,
    broker: i32,
    ts: i64,
    max_ts: i64,
    size: i32,
    txn_empty: bool,
    custom: Option<String>,
    result: String,
}

#[derive(Deserialize)]
struct Update {
    seg: u64,
    state: i8,
    broker: i32,
    ts: i64,
    custom: Option<String>,
    result: String,
}

#[derive(Deserialize)]
struct Check {
    all: Option<BTreeSet<SegmentCheck>>,
    /// By epoch.
    #[serde(default)]
    epochs: BTreeMap<String, EpochCheck>,
    /// Epoch, offset, segment.
    #[serde(default)]
    lookup: Vec<(i32, i64, Value)>,
    #[serde(default)]
    next_txn: Vec<(i32, i64, Value)>,
}

/// Segment, state, broker, event timestamp, custom metadata.
type SegmentCheck = (u64, i8, i32, i64, Option<String>);

#[derive(Deserialize)]
struct EpochCheck {
    list: Value,
    size: Option<i64>,
    highest: Option<i64>,
    refs: Option<Vec<(i64, u64)>>,
    unref: Option<BTreeSet<u64>>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum StoreStep {
    Load { tp: String, result: String },
    Init { tp: String, result: String },
    Clear { tp: String, result: String },
    Add { tp: String, seg: u64, start: i64, end: i64, epoch: i32, state: i8, ts: i64, result: String },
    Update { tp: String, seg: u64, state: i8, ts: i64, result: String },
    PartitionDelete { tp: String, state: i8, ts: i64, result: String },
    Query(Box<Query>),
}

#[derive(Deserialize)]
struct Query {
    tp: String,
    initialized: bool,
    list_all: Value,
    list_epoch_0: Value,
    lookup_0_5: Value,
    highest_0: Value,
    next_txn_0_0: Value,
}

pub(super) fn check(file: &File) -> Tally {
    let mut tally = Tally::default();
    for &transition in &file.segment_transitions {
        let outcome = check_transition(
            transition,
            RemoteLogSegmentState::from_id,
            RemoteLogSegmentState::is_valid_transition,
        );
        tally.entry(format!("segment transition {transition:?}"), outcome);
    }
    for &transition in &file.partition_delete_transitions {
        let outcome = check_transition(
            transition,
            RemotePartitionDeleteState::from_id,
            RemotePartitionDeleteState::is_valid_transition,
        );
        tally.entry(format!("partition delete transition {transition:?}"), outcome);
    }
    for scenario in &file.scenarios {
        let mut index = RemoteLogSegmentIndex::new();
        tally.entry(&scenario.name, run_steps(&scenario.steps, |step| run_step(&mut index, step)));
    }
    for scenario in &file.store_scenarios {
        let mut store = RemotePartitionMetadataStore::new();
        tally.entry(&scenario.name, run_steps(&scenario.steps, |step| run_store_step(&mut store, step)));
    }
    tally
}

fn check_transition<S>(
    (from, to, golden): Transition,
    state: impl Fn(i8) -> Option<S>,
    is_valid: impl Fn(Option<S>, S) -> bool,
) -> anyhow::Result<()> {
    let from = from.map(|id| state(id).context("unknown state")).transpose()?;
    same("legality", is_valid(from, state(to).context("unknown state")?), golden)
}

fn run_steps<S>(steps: &[S], mut run: impl FnMut(&S) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for (step, number) in steps.iter().zip(1..) {
        run(step).with_context(|| format!("step {number}"))?;
    }
    Ok(())
}

fn run_step(index: &mut RemoteLogSegmentIndex, step: &Step) -> anyhow::Result<()> {
    match step {
        Step::Add(add) => {
            let outcome = index.apply_segment_metadata(&add.event()?);
            same("result", cache_result(outcome), &*add.result)
        }
        Step::Update(update) => {
            let outcome = index.apply_segment_update(&update.event()?);
            same("result", cache_result(outcome), &*update.result)
        }
        Step::Init {} => {
            index.mark_initialised();
            Ok(())
        }
        Step::Check(check) => check.run(index),
    }
}

impl Add {
    fn event(&self) -> anyhow::Result<RawSegmentMetadata<'static>> {
        Ok(RawSegmentMetadata {
            topic_id_partition: partition(0)?,
            segment_id: segment_id(self.seg),
            start_offset: self.start,
            end_offset: self.end,
            broker_id: self.broker,
            max_timestamp_ms: self.max_ts,
            event_timestamp_ms: self.ts,
            segment_leader_epochs: self
                .epochs
                .iter()
                .map(|&(epoch, start_offset)| EpochEntry { epoch, start_offset })
                .collect(),
            segment_size_in_bytes: self.size,
            custom_metadata: custom(self.custom.as_deref())?,
            state_id: self.state,
            txn_index_empty: self.txn_empty,
        })
    }
}

impl Update {
    fn event(&self) -> anyhow::Result<RawSegmentUpdate<'static>> {
        Ok(RawSegmentUpdate {
            topic_id_partition: partition(0)?,
            segment_id: segment_id(self.seg),
            broker_id: self.broker,
            event_timestamp_ms: self.ts,
            custom_metadata: custom(self.custom.as_deref())?,
            state_id: self.state,
        })
    }
}

impl Check {
    fn run(&self, index: &RemoteLogSegmentIndex) -> anyhow::Result<()> {
        if let Some(golden) = &self.all {
            let all = index.list_remote_log_segments().map(|segment| {
                let custom = segment.custom_metadata().map(to_hex);
                let (broker, timestamp) = (segment.broker_id(), segment.event_timestamp_ms());
                (number(segment.segment_id()), segment.state().id(), broker, timestamp, custom)
            });
            same("all", &all.collect(), golden)?;
        }
        for (epoch, golden) in &self.epochs {
            golden.run(index, epoch.parse()?).with_context(|| format!("epoch {epoch}"))?;
        }
        for (epoch, offset, golden) in &self.lookup {
            let found = lookup(index, *epoch, *offset);
            same(&format!("lookup of {offset} in epoch {epoch}"), &found, golden)?;
        }
        for (epoch, offset, golden) in &self.next_txn {
            let found = next_txn(index, *epoch, *offset);
            same(&format!("next transaction index from {offset} in epoch {epoch}"), &found, golden)?;
        }
        Ok(())
    }
}

impl EpochCheck {
    fn run(&self, index: &RemoteLogSegmentIndex, epoch: i32) -> anyhow::Result<()> {
        same("list", &list_epoch(index, epoch), &self.list)?;
        same("size", index.remote_log_size(epoch).ok(), self.size)?;
        same("highest", index.highest_offset_for_epoch(epoch), self.highest)?;
        // An epoch that was never seen has neither.
        let seen = index.leader_epochs().any(|seen| seen == epoch);
        let refs = index.referenced(epoch).map(|(start, id)| (start, number(id))).collect();
        same("refs", seen.then_some(&refs), self.refs.as_ref())?;
        let unref = index.unreferenced(epoch).map(number).collect();
        same("unref", seen.then_some(&unref), self.unref.as_ref())
    }
}

fn run_store_step(store: &mut RemotePartitionMetadataStore, step: &StoreStep) -> anyhow::Result<()> {
    match step {
        StoreStep::Load { tp, result } => {
            store.load(&user_partition(tp)?);
            same("result", "ok", &**result)
        }
        StoreStep::Init { tp, result } => {
            let loaded = store.mark_initialised(&user_partition(tp)?);
            same("result", if loaded { "ok" } else { "NullPointerException" }, &**result)
        }
        StoreStep::Clear { tp, result } => {
            store.clear(&user_partition(tp)?);
            same("result", "ok", &**result)
        }
        &StoreStep::Add { ref tp, seg, start, end, epoch, state, ts, ref result } => {
            let event = Add {
                seg,
                start,
                end,
                epochs: vec![(epoch, start)],
                state,
                broker: 1,
                ts,
                max_ts: ts,
                size: 100,
                txn_empty: false,
                custom: None,
                result: String::new(),
            };
            let event = RawSegmentMetadata { topic_id_partition: user_partition(tp)?, ..event.event()? };
            same("result", store_result(store.apply(&RawEvent::SegmentMetadata(event))), &**result)
        }
        &StoreStep::Update { ref tp, seg, state, ts, ref result } => {
            let event = Update { seg, state, broker: 1, ts, custom: None, result: String::new() };
            let event = RawSegmentUpdate { topic_id_partition: user_partition(tp)?, ..event.event()? };
            same("result", store_result(store.apply(&RawEvent::SegmentMetadataUpdate(event))), &**result)
        }
        StoreStep::PartitionDelete { tp, state, ts, result } => {
            let event = RawPartitionDelete {
                topic_id_partition: user_partition(tp)?,
                broker_id: 1,
                event_timestamp_ms: *ts,
                state_id: *state,
            };
            same("result", store_result(store.apply(&RawEvent::PartitionDeleteMetadata(event))), &**result)
        }
        StoreStep::Query(query) => query.run(store),
    }
}

impl Query {
    fn run(&self, store: &RemotePartitionMetadataStore) -> anyhow::Result<()> {
        let partition = user_partition(&self.tp)?;
        same("initialised", store.is_initialised(&partition), self.initialized)?;
        let ask = |question: &dyn Fn(&RemoteLogSegmentIndex) -> Value| match store.index(&partition) {
            Ok(index) => question(index),
            Err(error) => json!(error.kafka_exception()),
        };
        let list_all = |index: &RemoteLogSegmentIndex| {
            let all: BTreeSet<_> = index.list_remote_log_segments().map(|s| number(s.segment_id())).collect();
            json!(all)
        };
        same("list", &ask(&list_all), &self.list_all)?;
        same("list of epoch 0", &ask(&|index| list_epoch(index, 0)), &self.list_epoch_0)?;
        same("lookup of 5", &ask(&|index| lookup(index, 0, 5)), &self.lookup_0_5)?;
        same("highest", &ask(&|index| json!(index.highest_offset_for_epoch(0))), &self.highest_0)?;
        same("next transaction index", &ask(&|index| next_txn(index, 0, 0)), &self.next_txn_0_0)
    }
}

fn cache_result(outcome: Result<ApplyOutcome, ApplyError>) -> &'static str {
    match outcome {
        Ok(ApplyOutcome::Applied) => "applied",
        Ok(_) => "dropped",
        Err(error) => error.kafka_exception(),
    }
}

fn store_result(outcome: Result<ApplyOutcome, ApplyError>) -> &'static str {
    outcome.map_or_else(|error| error.kafka_exception(), |_| "ok")
}

fn list_epoch(index: &RemoteLogSegmentIndex, epoch: i32) -> Value {
    match index.list_remote_log_segments_for_epoch(epoch) {
        Ok(segments) => segments.into_iter().map(|segment| number(segment.segment_id())).collect(),
        Err(_) => json!("RemoteResourceNotFoundException"),
    }
}

fn lookup(index: &RemoteLogSegmentIndex, epoch: i32, offset: i64) -> Value {
    numbered(index.remote_log_segment_metadata(epoch, offset))
}

fn next_txn(index: &RemoteLogSegmentIndex, epoch: i32, offset: i64) -> Value {
    match index.next_segment_with_txn_index(epoch, offset) {
        NextWithTxnIndex::Found(segment) => numbered(Some(segment)),
        NextWithTxnIndex::None => Value::Null,
        _ => json!("endless"),
    }
}

fn numbered(segment: Option<&RemoteLogSegmentMetadata>) -> Value {
    segment.map_or(Value::Null, |segment| json!(number(segment.segment_id())))
}

fn segment_id(number: u64) -> Uuid {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&SEGMENT_ID_PREFIX);
    id[8..].copy_from_slice(&number.to_be_bytes());
    Uuid(id)
}

fn number(segment_id: Uuid) -> u64 {
    segment_id.least_significant() as u64
}

fn custom(hex: Option<&str>) -> anyhow::Result<Option<Cow<'static, [u8]>>> {
    Ok(hex.map(from_hex).transpose()?.map(Cow::Owned))
}

fn partition(partition: i32) -> anyhow::Result<RawTopicIdPartition<'static>> {
    Ok(RawTopicIdPartition { topic: "orders".into(), topic_id: TOPIC_ID.parse()?, partition })
}

/// The partitions of the store scenarios: a, b and so on.
fn user_partition(name: &str) -> anyhow::Result<RawTopicIdPartition<'static>> {
    let letter = name.bytes().next().context("a partition without a name")?;
    partition(i32::from(letter) - i32::from(b'a'))
}

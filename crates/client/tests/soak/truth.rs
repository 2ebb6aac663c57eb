//! What answers may say: the logs of the cluster, as whoever changes them knows them.
//!
//! Every partition of every topic that ever was has offsets of its own, so that an answer for another partition, or for
//! the topic that had the name before, is seen at once. A change is told twice, before and after: what is asked while
//! it happens may be answered with either.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use strandline_protocol::TopicId;
use strandline_protocol::records::{BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};

/// So far apart begin the logs of two partitions.
const LOG_SPAN: i64 = 1_000_000;

/// Longer than brokers tell what is old, and answers of theirs are under way.
const LAGS_BEHIND_MAX: Duration = Duration::from_secs(3);

/// One topic that a name had, or has.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    /// `None` until the cluster has given one.
    id: Option<TopicId>,
    /// When another topic took its name.
    ended: Option<Instant>,
    logs: Vec<Log>,
}

#[derive(Clone, Copy, Debug)]
struct Log {
    start: i64,
    /// What is surely there, and what may be.
    end_min: i64,
    end_max: i64,
}

#[derive(Debug, Default)]
struct Name {
    incarnations: Vec<Incarnation>,
    /// The oldest incarnation that may still answer.
    oldest: usize,
    /// Brokers that ever had a replica of a partition.
    replicas: BTreeMap<i32, BTreeSet<i32>>,
}

/// The state of the logs when a question was asked.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    oldest: usize,
    ends: Vec<i64>,
}

/// What an answer may say.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    /// Of each incarnation that may have answered: its id, first offset, and least and greatest end.
    logs: Vec<(Option<TopicId>, i64, RangeInclusive<i64>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Truth {
    names: BTreeMap<&'static str, Name>,
    logs: i64,
}

/// The value of the record at an offset: it names where it belongs.
pub(crate) fn value(topic: &str, partition: i32, offset: i64) -> String {
    format!("{topic}-{partition}@{offset}")
}

/// A batch of the records that belong at `offsets`.
pub(crate) fn batch(topic: &str, partition: i32, offsets: std::ops::Range<i64>) -> Vec<u8> {
    let mut builder =
        BatchBuilder::new(BatchOptions { base_offset: offsets.start, ..BatchOptions::default() });
    for offset in offsets {
        let value = value(topic, partition, offset);
        let record = NewRecord { timestamp_ms: 1, value: Some(value.as_bytes()), ..NewRecord::default() };
        builder.push(record).expect("the offsets follow each other");
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes).expect("small records fit");
    bytes
}

/// Why fetched records are not those of the partition; none where they are.
pub(crate) fn wrong_records(topic: &str, partition: i32, records: &[u8]) -> Option<String> {
    let mut decompressor = Decompressor::new(1 << 20);
    for batch in Batches::new(records) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return Some(format!("{error}")),
        };
        let read = match batch.records(&mut decompressor) {
            Ok(read) => read,
            Err(error) => return Some(format!("{error}")),
        };
        for record in read {
            let record = match record {
                Ok(record) => record,
                Err(error) => return Some(format!("{error}")),
            };
            let expected = value(topic, partition, record.offset);
            if record.value != Some(expected.as_bytes()) {
                let found = record.value.map(String::from_utf8_lossy);
                return Some(format!("{found:?} where {expected} belongs"));
            }
        }
    }
    None
}

impl Truth {
    /// A topic of this name is about to be created, in the place of the one before if there is one. Gives the first
    /// offset of each partition's log.
    pub(crate) fn creating(&mut self, topic: &'static str, partitions: i32) -> Vec<i64> {
        let mut logs = Vec::new();
        for _ in 0..partitions {
            self.logs += 1;
            let start = self.logs * LOG_SPAN;
            logs.push(Log { start, end_min: start, end_max: start });
        }
        let starts = logs.iter().map(|log| log.start).collect();
        self.names.entry(topic).or_default().incarnations.push(Incarnation { id: None, ended: None, logs });
        starts
    }

    /// The newest topic of this name is there, each log at its first offset, and no other any more.
    pub(crate) fn created(&mut self, topic: &'static str, id: TopicId) {
        let name = self.name(topic);
        name.oldest = name.incarnations.len() - 1;
        for former in &mut name.incarnations[..name.oldest] {
            former.ended.get_or_insert_with(Instant::now);
        }
        name.newest().id = Some(id);
    }

    /// Records are about to be appended; gives their offsets.
    pub(crate) fn appending(
        &mut self,
        topic: &'static str,
        partition: i32,
        records: u64,
    ) -> std::ops::Range<i64> {
        let log = &mut self.name(topic).newest().logs[partition as usize];
        let first = log.end_max;
        log.end_max += records as i64;
        first..log.end_max
    }

    pub(crate) fn appended(&mut self, topic: &'static str, partition: i32) {
        let log = &mut self.name(topic).newest().logs[partition as usize];
        log.end_min = log.end_max;
    }

    /// Brokers that have a replica of a partition now.
    pub(crate) fn replicas(&mut self, topic: &'static str, partition: i32, brokers: &[i32]) {
        self.name(topic).replicas.entry(partition).or_default().extend(brokers);
    }

    /// Whether a broker ever had a replica of the partition.
    pub(crate) fn had_replica(&self, topic: &str, partition: i32, broker: i32) -> bool {
        let replicas = self.names.get(topic).and_then(|name| name.replicas.get(&partition));
        replicas.is_some_and(|brokers| brokers.contains(&broker))
    }

    /// Whether a topic of this id ever had the name.
    pub(crate) fn had_id(&self, topic: &str, id: TopicId) -> bool {
        self.names.get(topic).is_some_and(|name| name.incarnations.iter().any(|known| known.id == Some(id)))
    }

    /// The id of the topic that has the name.
    pub(crate) fn id(&self, topic: &str) -> TopicId {
        let known = self.names[topic].incarnations.iter().rev().find_map(|known| known.id);
        known.expect("the first topic of a name is created before anybody asks")
    }

    /// True for a topic that lost its name so long ago that no broker tells of it any more.
    pub(crate) fn is_long_gone(&self, topic: &str, id: TopicId) -> bool {
        let named = self.names.get(topic).into_iter().flat_map(|name| &name.incarnations);
        let ended = named.filter(|known| known.id == Some(id)).find_map(|known| known.ended);
        ended.is_some_and(|ended| ended.elapsed() > LAGS_BEHIND_MAX)
    }

    /// The name that a topic of this id has or had.
    pub(crate) fn name_of(&self, id: TopicId) -> Option<&'static str> {
        self.names.keys().copied().find(|name| self.had_id(name, id))
    }

    /// The logs of a partition as they are before a question.
    pub(crate) fn before(&self, topic: &str, partition: i32) -> Before {
        let name = &self.names[topic];
        let oldest = name.oldest;
        let ends = name.incarnations[oldest..].iter().map(|known| known.logs[partition as usize].end_min);
        Before { oldest, ends: ends.collect() }
    }

    /// What an answer may say that was asked for when the logs were as in `before`, and is here now.
    pub(crate) fn allowed(&self, topic: &str, partition: i32, before: &Before) -> Allowed {
        let since = self.names[topic].incarnations[before.oldest..].iter().enumerate();
        let logs = since.map(|(nth, known)| {
            let log = known.logs[partition as usize];
            let least = before.ends.get(nth).copied().unwrap_or(log.start);
            (known.id, log.start, least..=log.end_max)
        });
        Allowed { logs: logs.collect() }
    }

    fn name(&mut self, topic: &'static str) -> &mut Name {
        self.names.entry(topic).or_default()
    }
}

impl Name {
    fn newest(&mut self) -> &mut Incarnation {
        self.incarnations.last_mut().expect("the topic was created")
    }
}

impl Allowed {
    /// True if the topic was recreated meanwhile: then it may have been empty for a moment.
    pub(crate) fn was_recreated(&self) -> bool {
        self.logs.len() > 1
    }

    pub(crate) fn end(&self, offset: i64) -> bool {
        self.logs.iter().any(|(_, _, ends)| ends.contains(&offset)) || (self.was_recreated() && offset == 0)
    }

    pub(crate) fn start(&self, offset: i64) -> bool {
        self.logs.iter().any(|(_, start, _)| *start == offset) || (self.was_recreated() && offset == 0)
    }

    /// Whether an offset lies in the log, its end included.
    pub(crate) fn within(&self, offset: i64) -> bool {
        let inside =
            |(_, start, ends): &(_, i64, RangeInclusive<i64>)| (*start..=*ends.end()).contains(&offset);
        self.logs.iter().any(inside) || (self.was_recreated() && offset == 0)
    }

    /// The first offset of the newest log, and an offset that surely can be read up to.
    pub(crate) fn newest(&self) -> (i64, i64) {
        let (_, start, ends) = self.logs.last().expect("a name has a topic");
        (*start, *ends.start())
    }
}

#[test]
fn an_answer_is_held_to_the_logs_between_question_and_answer() {
    let mut truth = Truth::default();
    let start = truth.creating("orders", 1)[0];
    truth.created("orders", TopicId(strandline_protocol::Uuid([1; 16])));
    let before = truth.before("orders", 0);
    assert_eq!(truth.appending("orders", 0, 5), start..start + 5);
    let during = truth.allowed("orders", 0, &before);
    assert!(during.end(start) && during.end(start + 5) && !during.end(start + 6) && !during.end(0));
    truth.appended("orders", 0);
    let after = truth.allowed("orders", 0, &truth.before("orders", 0));
    assert!(!after.end(start + 4) && after.end(start + 5) && after.start(start) && !after.start(start + 1));

    let before = truth.before("orders", 0);
    let second = truth.creating("orders", 1)[0];
    let during = truth.allowed("orders", 0, &before);
    assert!(during.end(start + 5) && during.end(second) && during.end(0) && during.was_recreated());
    truth.created("orders", TopicId(strandline_protocol::Uuid([2; 16])));
    let after = truth.allowed("orders", 0, &truth.before("orders", 0));
    assert!(!after.end(start + 5) && after.end(second) && !after.end(0));
}

#[test]
fn records_of_another_partition_are_told_apart() {
    let records = batch("orders", 0, 10..13);
    assert_eq!(wrong_records("orders", 0, &records), None);
    let wrong = wrong_records("orders", 1, &records).unwrap();
    assert!(wrong.contains("orders-0@10") && wrong.contains("orders-1@10"), "{wrong}");
}

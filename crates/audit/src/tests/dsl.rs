//! A small language for tiers.
//!
//! ```text
//! now 40m                                       spans are counted from one fixed day
//! metadata-partitions 5
//! partition orders:0                            what follows is about this one; orders#2:0 is another topic id
//! copy-started a 0..=99 epochs 0:0,1:50 size 1000 max 5m custom 2a at 10m broker 1 in 3
//! copy-finished a at 11m
//! update a 7                                    any state, by number
//! partition-delete marked
//! null | undecodable | unknown-api | snapshot a | control
//! topic orders retention.ms=1000                a topic fact, with configs; `topic orders absent`
//! topics complete
//! log orders:0 start=0 local=900 end=1500 epochs=0:0,4:700 leader=1 of-file
//! local orders:0 broker=1 size=5000 segments=900:1000:10m,1000:500
//! meta partitions=5 rf=3 brokers=3 retention.ms=-1
//! store complete exact | store
//! object a log size=1000 start=0 | key some/other
//! limit copy-stuck 1m
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use strandline_tier::{
    EpochEntry, MetadataPartitioner, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentSnapshot,
    RawSegmentUpdate, RawTopicIdPartition, RecordValue, TopicId, Uuid,
};

use crate::*;

pub(crate) const DAY_ZERO: i64 = 1_700_000_000_000;

/// Everything that a script says, ready to be judged.
pub(crate) struct World {
    pub(crate) builder: TierViewBuilder,
    /// What earlier builders took in; a line `split` ends one.
    done: TierViewBuilder,
    pub(crate) facts: Facts,
    pub(crate) limits: Limits,
    pub(crate) now_ms: i64,
    pub(crate) metadata_partitions: Option<i32>,
    user_partition: (String, TopicId, i32),
    next_offsets: BTreeMap<i32, i64>,
    clock_ms: i64,
    /// Where a segment was introduced last, so that updates and objects find it.
    segments: BTreeMap<String, (i64, (String, TopicId, i32))>,
}

impl World {
    pub(crate) fn parse(script: &str) -> Self {
        let mut world = Self {
            builder: TierViewBuilder::new(),
            done: TierViewBuilder::new(),
            facts: Facts::default(),
            limits: Limits::default(),
            now_ms: DAY_ZERO + 600_000,
            metadata_partitions: None,
            user_partition: ("orders".to_owned(), topic_id("orders"), 0),
            next_offsets: BTreeMap::new(),
            clock_ms: DAY_ZERO,
            segments: BTreeMap::new(),
        };
        for line in script.lines() {
            let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "//").collect();
            if let Some((first, rest)) = words.split_first() {
                world.line(first, rest);
            }
        }
        world
    }

    pub(crate) fn view(mut self) -> (TierView, Facts) {
        self.done.merge(self.builder);
        (self.done.finish(self.metadata_partitions), self.facts)
    }

    pub(crate) fn report(self) -> Report {
        let (limits, now_ms) = (self.limits, self.now_ms);
        let (view, facts) = self.view();
        audit(&view, &facts, &limits, now_ms)
    }

    fn line(&mut self, first: &str, rest: &[&str]) {
        match first {
            "now" => self.now_ms = DAY_ZERO + span(rest[0]),
            "limit" => self.limits.set(rest[0], span(rest[1])).unwrap(),
            "metadata-partitions" => {
                let count = rest[0].parse().unwrap();
                self.metadata_partitions = Some(count);
                self.meta().partitions = Some(count);
            }
            "partition" => self.user_partition = user_partition(rest[0]),
            "copy-started" => self.base(rest),
            "copy-finished" => self.update(1, rest),
            "delete-started" => self.update(2, rest),
            "delete-finished" => self.update(3, rest),
            "update" => self.update(rest[1].parse().unwrap(), rest),
            "partition-delete" => self.partition_delete(rest),
            "null" => self.push(rest, RecordValue::NullValue, false),
            "control" => self.push(rest, RecordValue::NullValue, true),
            "undecodable" | "unknown-api" => self.push(
                rest,
                RecordValue::Undecodable {
                    bytes: Cow::Borrowed(&[1, 9]),
                    error: Cow::Borrowed("of no kind"),
                    unknown_api: first == "unknown-api",
                },
                false,
            ),
            "snapshot" => self.snapshot(rest),
            "topic" => self.topic(rest),
            "topics" => self.facts.topics_complete = rest[0] == "complete",
            "log" => self.log(rest),
            "local" => self.local(rest),
            "meta" => self.meta_line(rest),
            "store" => self.store(rest),
            "object" => self.object(rest),
            "key" => {
                let key = rest[0].to_owned();
                self.facts.objects.push(ObjectFact { key, size_bytes: Some(1), ..ObjectFact::default() });
            }
            "split" => self.done.merge(std::mem::take(&mut self.builder)),
            "partial" => self.facts.partial_read = Some("one partition was asked for".to_owned()),
            _ => panic!("no such line: {first}"),
        }
    }

    fn of(&self) -> RawTopicIdPartition<'static> {
        let (topic, topic_id, partition) = self.user_partition.clone();
        RawTopicIdPartition { topic: Cow::Owned(topic), topic_id, partition }
    }

    fn time(&mut self, rest: &[&str]) -> i64 {
        self.clock_ms = match option(rest, "at") {
            Some(at) => DAY_ZERO + span(at),
            None => self.clock_ms + 1000,
        };
        self.clock_ms
    }

    fn push(&mut self, rest: &[&str], value: RecordValue<'_>, control: bool) {
        let (_, topic_id, partition) = &self.user_partition;
        let home = self
            .metadata_partitions
            .and_then(MetadataPartitioner::new)
            .map_or(0, |partitioner| partitioner.metadata_partition(*topic_id, *partition));
        let metadata_partition = option(rest, "in").map_or(home, |text| text.parse().unwrap());
        let next = self.next_offsets.entry(metadata_partition).or_default();
        let offset = *next;
        *next += 1;
        let position = Position {
            metadata_partition: Some(metadata_partition),
            offset: Some(offset),
            timestamp_ms: Some(self.clock_ms),
        };
        let flags = Flags {
            has_key: rest.contains(&"keyed"),
            control,
            transactional: rest.contains(&"transactional"),
        };
        self.builder.push(position, flags, &value);
    }

    fn base(&mut self, rest: &[&str]) {
        let (start, end) = rest[1].split_once("..=").unwrap();
        let (start, end): (i64, i64) = (start.parse().unwrap(), end.parse().unwrap());
        let epochs = option(rest, "epochs").map_or(vec![(0, start)], pairs);
        let max = option(rest, "max").map_or(DAY_ZERO, |text| DAY_ZERO + span(text));
        let event_timestamp_ms = self.time(rest);
        self.segments.insert(rest[0].to_owned(), (start, self.user_partition.clone()));
        let event = RawSegmentMetadata {
            topic_id_partition: self.of(),
            segment_id: segment_id(rest[0]),
            start_offset: start,
            end_offset: end,
            broker_id: number(rest, "broker", 1) as i32,
            max_timestamp_ms: max,
            event_timestamp_ms,
            segment_leader_epochs: epochs
                .into_iter()
                .map(|(epoch, start_offset)| EpochEntry { epoch, start_offset })
                .collect(),
            segment_size_in_bytes: number(rest, "size", 1000) as i32,
            custom_metadata: custom(rest),
            state_id: number(rest, "state", 0) as i8,
            txn_index_empty: true,
        };
        self.push(rest, RecordValue::Event(RawEvent::SegmentMetadata(event)), false);
    }

    fn update(&mut self, state_id: i8, rest: &[&str]) {
        let event_timestamp_ms = self.time(rest);
        let event = RawSegmentUpdate {
            topic_id_partition: self.of(),
            segment_id: segment_id(rest[0]),
            broker_id: number(rest, "broker", 1) as i32,
            event_timestamp_ms,
            custom_metadata: custom(rest),
            state_id,
        };
        self.push(rest, RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)), false);
    }

    fn partition_delete(&mut self, rest: &[&str]) {
        let state_id = match rest[0] {
            "marked" => 0,
            "started" => 1,
            "finished" => 2,
            other => other.parse().unwrap(),
        };
        let event_timestamp_ms = self.time(rest);
        let event = RawPartitionDelete {
            topic_id_partition: self.of(),
            broker_id: number(rest, "broker", 1) as i32,
            event_timestamp_ms,
            state_id,
        };
        self.push(rest, RecordValue::Event(RawEvent::PartitionDeleteMetadata(event)), false);
    }

    fn snapshot(&mut self, rest: &[&str]) {
        let event = RawSegmentSnapshot {
            segment_id: segment_id(rest[0]),
            start_offset: 0,
            end_offset: 1,
            broker_id: 1,
            max_timestamp_ms: 0,
            event_timestamp_ms: 0,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
            segment_size_in_bytes: 1,
            custom_metadata: None,
            state_id: 1,
            txn_index_empty: false,
        };
        self.push(rest, RecordValue::Event(RawEvent::SegmentMetadataSnapshot(event)), false);
    }

    fn topic(&mut self, rest: &[&str]) {
        let absent = rest.contains(&"absent");
        self.facts.topics.push(TopicFact {
            topic: rest[0].split('#').next().unwrap().to_owned(),
            topic_id: (!absent).then(|| topic_id(rest[0])),
            partitions: None,
            configs: configs(&rest[1..]),
            absent,
        });
    }

    fn log(&mut self, rest: &[&str]) {
        let (topic, topic_id, partition) = user_partition(rest[0]);
        let value = |name| field(rest, name).map(|text| text.parse::<i64>().unwrap());
        self.facts.logs.push(LogFact {
            topic,
            partition,
            topic_id: rest[0].contains('#').then_some(topic_id),
            leader: value("leader").map(|id| id as i32),
            log_start_offset: value("start"),
            log_start_source: rest.contains(&"of-file").then_some(LogStartSource::LeaderEpochCheckpoint),
            local_start_offset: value("local"),
            log_end_offset: value("end"),
            leader_epochs: field(rest, "epochs").map(pairs),
            epoch_ends: field(rest, "ends").map(|text| {
                let triple = |text: &str| {
                    let parts: Vec<i64> = text.split(':').map(|part| part.parse().unwrap()).collect();
                    (parts[0] as i32, parts[1] as i32, parts[2])
                };
                text.split(',').map(triple).collect()
            }),
            ..LogFact::default()
        });
    }

    fn local(&mut self, rest: &[&str]) {
        let (topic, _, partition) = user_partition(rest[0]);
        let value = |name| field(rest, name).map(|text| text.parse::<i64>().unwrap());
        let segment = |text: &str| {
            let parts: Vec<&str> = text.split(':').collect();
            LocalSegment {
                base_offset: parts[0].parse().unwrap(),
                size_bytes: parts[1].parse().unwrap(),
                max_timestamp_ms: parts.get(2).map(|at| DAY_ZERO + span(at)),
            }
        };
        self.facts.local_segments.push(LocalSegmentsFact {
            topic,
            partition,
            topic_id: None,
            broker: value("broker").map(|id| id as i32),
            log_dir: None,
            size_bytes: value("size"),
            segments: field(rest, "segments").map(|text| text.split(',').map(segment).collect()),
            producer_snapshots: None,
        });
    }

    /// A segment of any id, copied and finished at once.
    pub(crate) fn finished_copy(&mut self, id: u128, start_offset: i64, end_offset: i64) {
        let event = RawSegmentMetadata {
            topic_id_partition: self.of(),
            segment_id: Uuid(id.to_be_bytes()),
            start_offset,
            end_offset,
            broker_id: 1,
            max_timestamp_ms: DAY_ZERO,
            event_timestamp_ms: DAY_ZERO,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset }].into_iter().collect(),
            segment_size_in_bytes: 1000,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: true,
        };
        self.push(&[], RecordValue::Event(RawEvent::SegmentMetadata(event)), false);
        let event = RawSegmentUpdate {
            topic_id_partition: self.of(),
            segment_id: Uuid(id.to_be_bytes()),
            broker_id: 1,
            event_timestamp_ms: DAY_ZERO,
            custom_metadata: None,
            state_id: 1,
        };
        self.push(&[], RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)), false);
    }

    /// The data object of a segment that nobody introduced.
    pub(crate) fn stray_object(&mut self, id: u128) {
        let (topic, topic_id, partition) = self.user_partition.clone();
        self.facts.objects.push(ObjectFact {
            key: format!("{id}.log"),
            size_bytes: Some(1),
            last_modified_ms: None,
            parsed: Some(ParsedKey {
                topic,
                topic_id,
                partition,
                segment_id: Uuid(id.to_be_bytes()),
                start_offset: None,
                role: ObjectRole::Log,
            }),
        });
    }

    fn meta(&mut self) -> &mut MetadataTopicFact {
        self.facts.metadata_topic.get_or_insert_default()
    }

    fn meta_line(&mut self, rest: &[&str]) {
        let value = |name| field(rest, name).map(|text| text.parse::<i32>().unwrap());
        let list = |name| -> Option<Vec<Option<i64>>> {
            let text = field(rest, name)?;
            Some(text.split(',').map(|part| part.parse().ok()).collect())
        };
        let partitions = |name| -> Option<Vec<i32>> {
            let text: &str = field(rest, name)?;
            Some(text.split(',').filter_map(|part| part.parse().ok()).collect())
        };
        let meta = self.meta();
        meta.partitions = value("partitions").or(meta.partitions);
        meta.configured_partitions = value("configured").or(meta.configured_partitions);
        meta.replication_factor = value("rf").or(meta.replication_factor);
        meta.brokers = value("brokers").or(meta.brokers);
        meta.log_start_offsets = list("starts").or(meta.log_start_offsets.take());
        meta.end_offsets = list("ends").or(meta.end_offsets.take());
        meta.under_replicated = partitions("under-replicated").or(meta.under_replicated.take());
        meta.offline = partitions("offline").or(meta.offline.take());
        meta.configs = configs(rest).or(meta.configs.take());
        if let Some(text) = field(rest, "truncated") {
            let file = |text: &str| TruncatedFile {
                metadata_partition: 0,
                path: "00000000000000000000.log".to_owned(),
                next_offset: Some(5),
                last: text == "last",
            };
            meta.truncated_files = Some(text.split(',').filter(|text| *text != "none").map(file).collect());
        }
    }

    fn store(&mut self, rest: &[&str]) {
        self.facts.store = Some(StoreFact {
            layout: "local".to_owned(),
            prefix: String::new(),
            complete: rest.contains(&"complete"),
            required: vec![ObjectRole::Log, ObjectRole::OffsetIndex, ObjectRole::TimeIndex],
            sizes_exact: rest.contains(&"exact"),
        });
    }

    fn object(&mut self, rest: &[&str]) {
        let (start, (topic, topic_id, partition)) =
            self.segments.get(rest[0]).cloned().unwrap_or((0, self.user_partition.clone()));
        let roles: &[(&str, ObjectRole)] = &[
            ("log", ObjectRole::Log),
            ("index", ObjectRole::OffsetIndex),
            ("timeindex", ObjectRole::TimeIndex),
            ("txnindex", ObjectRole::TransactionIndex),
        ];
        for (name, role) in roles.iter().filter(|(name, _)| rest.contains(name) || rest.contains(&"all")) {
            let size: i64 = field(rest, "size").map_or(1000, |text| text.parse().unwrap());
            self.facts.objects.push(ObjectFact {
                key: format!("{topic}-{partition}/{}.{name}", rest[0]),
                size_bytes: Some(size),
                last_modified_ms: None,
                parsed: Some(ParsedKey {
                    topic: topic.clone(),
                    topic_id,
                    partition,
                    segment_id: segment_id(rest[0]),
                    start_offset: Some(field(rest, "start").map_or(start, |text| text.parse().unwrap())),
                    role: *role,
                }),
            });
        }
    }
}

/// `damage part.gap orders:0 b 100..=199`; whatever a finding does not name is left out.
pub(crate) fn line(finding: &Finding) -> String {
    let mut line = format!("{} {}", finding.severity, finding.code);
    match (&finding.topic, finding.partition) {
        (Some(topic), Some(partition)) => line += &format!(" {topic}:{partition}"),
        (Some(topic), None) => line += &format!(" {topic}"),
        (None, _) => {}
    }
    if let Some(id) = finding.segment_id {
        line += &format!(" {}", String::from_utf8_lossy(&id.0[..1]));
    }
    if let Some(start) = finding.start_offset {
        line += &format!(" {start}..={}", finding.end_offset.map_or(String::new(), |end| end.to_string()));
    }
    line
}

/// A letter, sixteen times.
pub(crate) fn segment_id(name: &str) -> Uuid {
    Uuid([name.as_bytes()[0]; 16])
}

/// The name's letters, and after `#` which of the ids that the name had.
pub(crate) fn topic_id(name: &str) -> TopicId {
    let mut bytes = [7_u8; 16];
    for (byte, letter) in bytes.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    TopicId(Uuid(bytes))
}

fn user_partition(text: &str) -> (String, TopicId, i32) {
    let (topic, partition) = text.split_once(':').unwrap();
    (topic.split('#').next().unwrap().to_owned(), topic_id(topic), partition.parse().unwrap())
}

fn option<'a>(rest: &[&'a str], name: &str) -> Option<&'a str> {
    rest.iter().position(|word| *word == name).map(|at| rest[at + 1])
}

fn field<'a>(rest: &[&'a str], name: &str) -> Option<&'a str> {
    rest.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(rest: &[&str], name: &str, default: i64) -> i64 {
    option(rest, name).map_or(default, |text| text.parse().unwrap())
}

fn custom(rest: &[&str]) -> Option<Cow<'static, [u8]>> {
    option(rest, "custom").map(|text| Cow::Owned(text.as_bytes().to_vec()))
}

fn pairs(text: &str) -> Vec<(i32, i64)> {
    let pair = |text: &str| {
        let (epoch, start) = text.split_once(':').unwrap();
        (epoch.parse().unwrap(), start.parse().unwrap())
    };
    text.split(',').filter(|text| !text.is_empty()).map(pair).collect()
}

/// Words with a dot in their name are configs.
fn configs(rest: &[&str]) -> Option<BTreeMap<String, String>> {
    let configs: BTreeMap<String, String> = rest
        .iter()
        .filter_map(|word| word.split_once('='))
        .filter(|(name, _)| name.contains('.'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    (!configs.is_empty()).then_some(configs)
}

/// `90s`, `10m`, `2h`, `3d`, bare digits are milliseconds; may be negative.
fn span(text: &str) -> i64 {
    let (number, unit) = match text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) {
        number if number.len() < text.len() => (number, &text[number.len()..]),
        number => (number, "ms"),
    };
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        other => panic!("no such unit: {other}"),
    };
    number.parse::<i64>().unwrap() * unit
}

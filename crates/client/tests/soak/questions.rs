//! The questions, and how an answer is held against the truth.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use strandline_client::admin::{
    Admin, ConfigQuery, EpochQuery, Isolation, ListedOffset, OffsetQuery, OffsetSpec, PartitionQuery,
};
use strandline_client::reader::{
    PartitionReader, ReadError, ReadErrorKind, ReadPosition, ReadRecord, ReaderConfig,
};
use strandline_meta::routing::Subject;
use strandline_meta::{Cluster, ErrorCode, SendError, TopicId};
use strandline_protocol::messages::fetch::{FetchPartition, FetchTopic};
use strandline_protocol::messages::{DescribeClusterRequest, FetchRequest};
use tokio::time::Instant;

use crate::callers::head;
use crate::schedule::{GROUPS, Random, TOPICS};
use crate::truth::{Allowed, Before, value, wrong_records};
use crate::world::{World, committed};

/// The kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Offsets,
    Fetch,
    Configs,
    Epochs,
    Producers,
    Transactions,
    LogDirs,
    DescribeCluster,
    RefreshAll,
    RefreshTopics,
    RepairTopics,
    Groups,
    GroupDescriptions,
    Committed,
    TransactionDescriptions,
    Reader,
    Dedicated,
    OwnCluster,
}

pub(crate) const QUESTIONS: [Question; 18] = [
    Question::Offsets,
    Question::Fetch,
    Question::Configs,
    Question::Epochs,
    Question::Producers,
    Question::Transactions,
    Question::LogDirs,
    Question::DescribeCluster,
    Question::RefreshAll,
    Question::RefreshTopics,
    Question::RepairTopics,
    Question::Groups,
    Question::GroupDescriptions,
    Question::Committed,
    Question::TransactionDescriptions,
    Question::Reader,
    Question::Dedicated,
    Question::OwnCluster,
];

/// One call under way.
pub(crate) struct Caller<'a> {
    pub(crate) world: &'a World,
    pub(crate) cluster: &'a Cluster,
    pub(crate) admin: Admin,
    pub(crate) deadline: Instant,
    /// All is well, and answers must be whole.
    pub(crate) calm: bool,
}

/// The errors of one call; none if all of it was answered.
type Errors = Vec<SendError>;

fn errors_of<T>(result: Result<T, impl Into<SendError>>) -> Errors {
    result.err().map(Into::into).into_iter().collect()
}

impl Caller<'_> {
    /// Asks, and holds the answer against the truth.
    pub(crate) async fn ask(&self, question: Question, random: &mut Random) -> Errors {
        let deadline = self.deadline;
        match question {
            Question::Offsets => self.offsets(random).await,
            Question::Fetch => self.fetch(random).await,
            Question::Configs => self.configs(random).await,
            Question::Epochs => self.epochs(random).await,
            Question::Producers => self.producers(random).await,
            Question::Transactions => self.transactions().await,
            Question::LogDirs => self.log_dirs().await,
            Question::DescribeCluster => errors_of(self.admin.describe_cluster(deadline).await),
            Question::RefreshAll => errors_of(self.cluster.refresh_all(deadline).await),
            Question::RefreshTopics => self.refresh_topics(random).await,
            Question::RepairTopics => {
                let topic = random.pick(&TOPICS).name;
                errors_of(self.cluster.repair_topics(&[topic], deadline).await)
            }
            Question::Groups => self.groups().await,
            Question::GroupDescriptions => self.group_descriptions().await,
            Question::Committed => self.committed().await,
            Question::TransactionDescriptions => self.transaction_descriptions().await,
            Question::Reader => self.read(random).await,
            Question::Dedicated => self.dedicated(random).await,
            Question::OwnCluster => self.own_cluster(random).await,
        }
    }

    fn partition(&self, random: &mut Random) -> (&'static str, i32) {
        let topic = random.pick(&TOPICS);
        (topic.name, random.within(0..topic.partitions as u64) as i32)
    }

    fn before(&self, (topic, partition): (&str, i32)) -> Before {
        self.world.truth().before(topic, partition)
    }

    fn allowed(&self, (topic, partition): (&str, i32), before: &Before) -> Allowed {
        self.world.truth().allowed(topic, partition, before)
    }

    fn hold(&self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.world.violation(format!("wrong answer: {}", what()));
        }
    }

    async fn offsets(&self, random: &mut Random) -> Errors {
        let specs = [OffsetSpec::Latest, OffsetSpec::Latest, OffsetSpec::Earliest, OffsetSpec::AtTime(1)];
        let asked: Vec<((&'static str, i32), OffsetSpec)> =
            (0..random.within(1..12)).map(|_| (self.partition(random), *random.pick(&specs))).collect();
        let before: Vec<Before> = asked.iter().map(|(partition, _)| self.before(*partition)).collect();
        let query = |((topic, partition), spec): &((&'static str, i32), OffsetSpec)| OffsetQuery {
            topic: Arc::from(*topic),
            partition: *partition,
            spec: *spec,
        };
        let queries: Vec<OffsetQuery> = asked.iter().map(query).collect();
        let isolation = *random.pick(&[Isolation::ReadUncommitted, Isolation::ReadCommitted]);
        let answers = match self.admin.list_offsets(&queries, isolation, self.deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![error],
        };
        self.hold(answers.len() == queries.len(), || format!("{} of {}", answers.len(), queries.len()));
        let mut errors = Vec::new();
        for (((partition, spec), before), answer) in asked.iter().zip(&before).zip(answers) {
            match answer {
                Ok(listed) => self.check_offset(*partition, *spec, before, &listed),
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    fn check_offset(&self, partition: (&str, i32), spec: OffsetSpec, before: &Before, listed: &ListedOffset) {
        let allowed = self.allowed(partition, before);
        let right = match (spec, listed.offset) {
            (OffsetSpec::Latest, Some(offset)) => allowed.end(offset),
            (_, Some(offset)) => allowed.start(offset),
            // A topic that has just been created is empty for a moment.
            (OffsetSpec::AtTime(_), None) => allowed.was_recreated(),
            (_, None) => false,
        };
        self.hold(right, || format!("{spec:?} of {partition:?} is {listed:?}, allowed {allowed:?}"));
    }

    async fn fetch(&self, random: &mut Random) -> Errors {
        let partition @ (name, index) = self.partition(random);
        let before = self.before(partition);
        let (start, end) = self.allowed(partition, &before).newest();
        let offset = start + random.within(0..(end - start) as u64 + 1) as i64;
        let max_wait_ms = random.within(0..150) as i32;
        let id_used = Mutex::new(None);
        let build = |version: i16| {
            let view = self.cluster.snapshot();
            // The view can have lost the topic since the broker was chosen: a broker may say that it does not exist.
            let id =
                view.topic(name).and_then(|topic| topic.id).unwrap_or_else(|| self.world.truth().id(name));
            *id_used.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
            let known = view.partition(name, index).and_then(|partition| partition.leader_epoch);
            let wanted = FetchPartition {
                partition: index,
                current_leader_epoch: known.unwrap_or(-1),
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            };
            let by_id = version >= 13;
            let topic = FetchTopic {
                topic: if by_id { String::new() } else { name.to_owned() },
                topic_id: if by_id { id.0 } else { strandline_protocol::Uuid::ZERO },
                partitions: vec![wanted],
                ..FetchTopic::default()
            };
            FetchRequest {
                replica_id: -1,
                max_wait_ms,
                min_bytes: 1,
                max_bytes: 1 << 20,
                session_epoch: -1,
                topics: vec![topic],
                ..FetchRequest::default()
            }
        };
        let subject = Subject::Partition { topic: Arc::from(name), partition: index };
        let response = match self.cluster.send(subject, build, self.deadline).await {
            Ok(response) => response,
            Err(error) => return vec![error],
        };
        let allowed = self.allowed(partition, &before);
        let told = response
            .responses
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(move |told| (topic, told)));
        for (topic, told) in told {
            let id = *id_used.lock().unwrap_or_else(PoisonError::into_inner);
            let right = told.partition_index == index
                && (topic.topic == name || (topic.topic.is_empty() && Some(TopicId(topic.topic_id)) == id));
            self.hold(right, || format!("Fetch of {partition:?} ({id:?}) is answered for {topic:?}"));
            match told.error_code {
                ErrorCode::None => {
                    let records = told.records.as_deref().unwrap_or_default();
                    let wrong = wrong_records(name, index, records);
                    self.hold(wrong.is_none(), || format!("Fetch of {partition:?} at {offset}: {wrong:?}"));
                    let (mark, log_start) = (told.high_watermark, told.log_start_offset);
                    let right = allowed.within(mark) && (allowed.within(log_start) || log_start == -1);
                    self.hold(right, || format!("Fetch of {partition:?}: {told:?}, allowed {allowed:?}"));
                }
                ErrorCode::OffsetOutOfRange => {
                    self.hold(allowed.was_recreated(), || {
                        format!("Fetch of {partition:?} at {offset} is out of range, allowed {allowed:?}")
                    });
                }
                // A scripted code that says nothing about the view.
                _ if !self.calm => {}
                code => self.hold(false, || format!("Fetch of {partition:?} at {offset}: {code}")),
            }
        }
        Vec::new()
    }

    async fn configs(&self, random: &mut Random) -> Errors {
        let topic = random.pick(&TOPICS).name;
        let broker = random.within(1..self.world.setting.brokers as u64 + 1) as i32;
        let queries = [ConfigQuery::topic(topic).only(["retention.ms"]), ConfigQuery::broker(broker)];
        let answers = match self.admin.describe_configs(&queries, self.deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![error],
        };
        self.hold(answers.len() == queries.len(), || format!("{} of {}", answers.len(), queries.len()));
        let mut errors = Vec::new();
        for (query, answer) in queries.iter().zip(answers) {
            match answer {
                Ok(entries) if query.name == topic => {
                    let values: Vec<_> = entries.iter().map(|entry| entry.value.as_deref()).collect();
                    self.hold(values == [Some("86400001")], || format!("{query:?}: {entries:?}"));
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    async fn epochs(&self, random: &mut Random) -> Errors {
        let asked: Vec<(&'static str, i32)> =
            (0..random.within(1..5)).map(|_| self.partition(random)).collect();
        let before: Vec<Before> = asked.iter().map(|partition| self.before(*partition)).collect();
        let queries: Vec<EpochQuery> = asked
            .iter()
            .map(|(topic, partition)| EpochQuery {
                topic: Arc::from(*topic),
                partition: *partition,
                leader_epoch: random.within(0..4) as i32,
            })
            .collect();
        let answers = match self.admin.offsets_for_leader_epochs(&queries, self.deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![error],
        };
        self.hold(answers.len() == queries.len(), || format!("{} of {}", answers.len(), queries.len()));
        let mut errors = Vec::new();
        for (((partition, before), query), answer) in asked.iter().zip(&before).zip(&queries).zip(answers) {
            match answer {
                Ok(Some(end)) => {
                    let allowed = self.allowed(*partition, before);
                    let right = end.leader_epoch <= query.leader_epoch && allowed.within(end.end_offset);
                    self.hold(right, || format!("{query:?}: {end:?}, allowed {allowed:?}"));
                }
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    async fn producers(&self, random: &mut Random) -> Errors {
        let (topic, partition) = self.partition(random);
        let queries = [PartitionQuery { topic: Arc::from(topic), partition }];
        match self.admin.describe_producers(&queries, self.deadline).await {
            Ok(answers) => answers.into_iter().filter_map(Result::err).collect(),
            Err(error) => vec![error],
        }
    }

    async fn transactions(&self) -> Errors {
        let brokers = match self.admin.list_transactions(&[], self.deadline).await {
            Ok(brokers) => brokers,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        let mut ids = Vec::new();
        for listed in brokers.into_values() {
            match listed {
                Ok(listed) => ids.extend(listed.into_iter().map(|listing| listing.transactional_id)),
                Err(error) => errors.push(error),
            }
        }
        self.hold_all(ids, errors, "transactions")
    }

    async fn groups(&self) -> Errors {
        let brokers = match self.admin.list_groups(self.deadline).await {
            Ok(brokers) => brokers,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        let mut ids = Vec::new();
        for listed in brokers.into_values() {
            match listed {
                Ok(listed) => ids.extend(listed.into_iter().map(|listing| listing.group_id)),
                Err(error) => errors.push(error),
            }
        }
        self.hold_all(ids, errors, "groups")
    }

    /// Nothing is listed that is not there; and in calm, everything once.
    fn hold_all(&self, mut ids: Vec<String>, errors: Errors, what: &str) -> Errors {
        ids.sort();
        self.hold(ids.iter().all(|id| GROUPS.contains(&id.as_str())), || format!("{what} {ids:?}"));
        if self.calm && errors.is_empty() {
            let mut all = GROUPS;
            all.sort_unstable();
            self.hold(ids == all, || format!("{what} {ids:?} of {all:?}"));
        }
        errors
    }

    async fn group_descriptions(&self) -> Errors {
        let groups = GROUPS.map(str::to_owned);
        let answers = match self.admin.describe_groups(&groups, self.deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![error],
        };
        self.hold(answers.len() == groups.len(), || format!("{} of {}", answers.len(), groups.len()));
        let mut errors = Vec::new();
        for (group, answer) in groups.iter().zip(answers) {
            match answer {
                Ok(described) => {
                    let right = described.group_id == *group && described.state == "Stable";
                    self.hold(right, || format!("group {group}: {described:?}"));
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    async fn committed(&self) -> Errors {
        let groups = GROUPS.map(str::to_owned);
        let answers = match self.admin.committed_offsets(&groups, None, self.deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![error],
        };
        self.hold(answers.len() == groups.len(), || format!("{} of {}", answers.len(), groups.len()));
        let mut errors = Vec::new();
        for ((group, answer), nth) in groups.iter().zip(answers).zip(0..) {
            match answer {
                Ok(offsets) => {
                    let told = offsets.iter().filter_map(|offset| {
                        let next = offset.committed.as_ref().ok()?.next_offset;
                        Some((offset.topic.clone(), offset.partition, next))
                    });
                    let (mut told, mut expected): (Vec<_>, Vec<_>) = (told.collect(), committed(nth));
                    told.sort();
                    expected.sort();
                    self.hold(told == expected, || format!("group {group} committed {offsets:?}"));
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    async fn transaction_descriptions(&self) -> Errors {
        let ids = GROUPS.map(str::to_owned);
        let answers = match self.admin.describe_transactions(&ids, self.deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![error],
        };
        self.hold(answers.len() == ids.len(), || format!("{} of {}", answers.len(), ids.len()));
        let mut errors = Vec::new();
        for (id, answer) in ids.iter().zip(answers) {
            match answer {
                Ok(described) => {
                    let right = described.transactional_id == *id && described.state == "Ongoing";
                    self.hold(right, || format!("transaction {id}: {described:?}"));
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// A few pages from the start of a log: every record of it in order.
    async fn read(&self, random: &mut Random) -> Errors {
        let partition @ (name, index) = self.partition(random);
        let before = self.before(partition);
        let (start, _) = self.allowed(partition, &before).newest();
        let config = ReaderConfig { max_wait: random.millis(1..100), ..ReaderConfig::default() };
        let from = ReadPosition::at(start);
        let opened = PartitionReader::open(self.cluster, name, index, from, config, self.deadline).await;
        let mut reader = match opened {
            Ok(reader) => reader,
            Err(error) => return self.read_error(partition, &before, &error),
        };
        let mut next = start;
        for _ in 0..random.within(1..4) {
            let visit = |record: &ReadRecord<'_>| {
                let expected = value(name, index, record.offset);
                let right = record.offset == next && record.value == Some(expected.as_bytes());
                self.hold(right, || format!("{partition:?} at {next}: {} {:?}", record.offset, record.value));
                next = record.offset + 1;
                ControlFlow::Continue(())
            };
            if let Err(error) = reader.next_page(self.deadline, visit).await {
                return self.read_error(partition, &before, &error);
            }
        }
        Vec::new()
    }

    fn read_error(&self, partition: (&str, i32), before: &Before, error: &ReadError) -> Errors {
        let allowed = self.allowed(partition, before);
        let passes = match &error.kind {
            ReadErrorKind::Deadline { .. } => !self.calm && Instant::now() >= self.deadline,
            // Of a topic that was recreated meanwhile, its offsets are wrong, or it.
            ReadErrorKind::OutOfRange { .. } => allowed.was_recreated(),
            ReadErrorKind::Recreated { .. } => allowed.was_recreated() || !self.calm,
            _ => !self.calm,
        };
        self.hold(passes, || format!("{partition:?} cannot be read: {error:?}, allowed {allowed:?}"));
        self.world.count(format!("Reader {}", head(&error.kind)));
        Vec::new()
    }

    async fn log_dirs(&self) -> Errors {
        let brokers = match self.admin.describe_log_dirs(None, self.deadline).await {
            Ok(brokers) => brokers,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        for (broker, dirs) in brokers {
            match dirs {
                Ok(dirs) => {
                    let paths: Vec<&str> = dirs.iter().map(|dir| dir.path.as_str()).collect();
                    let own = format!("/embedded/broker-{broker}");
                    self.hold(paths == [own.as_str()], || format!("log dirs of broker {broker}: {paths:?}"));
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    async fn refresh_topics(&self, random: &mut Random) -> Errors {
        let topic = random.pick(&TOPICS).name;
        let view = match self.cluster.refresh_topics(&[topic], self.deadline).await {
            Ok(view) => view,
            Err(error) => return vec![error.into()],
        };
        if self.calm {
            let known =
                view.topic(topic).is_some_and(|topic| topic.partitions.iter().all(|p| p.leader.is_some()));
            self.hold(known, || format!("{topic} is not known with leaders: {:?}", view.topic_view(topic)));
        }
        Vec::new()
    }

    async fn dedicated(&self, random: &mut Random) -> Errors {
        let broker = random.within(1..self.world.setting.brokers as u64 + 1) as i32;
        let connection = match self.cluster.dedicated(broker, self.deadline).await {
            Ok(connection) => connection,
            Err(error) => return vec![error],
        };
        match connection.send(|_| DescribeClusterRequest::default(), self.deadline).await {
            Ok(_) => Vec::new(),
            Err(source) => vec![SendError::Request { peer: format!("broker {broker}"), source }],
        }
    }

    /// A client of its own, dropped at once.
    async fn own_cluster(&self, random: &mut Random) -> Errors {
        let config = self.world.client_config(random.next());
        let cluster = match Cluster::connect(config, self.deadline).await {
            Ok(cluster) => cluster,
            // Of a bootstrap list whose every address refuses, this is told at once.
            Err(error) => return vec![error.into()],
        };
        errors_of(cluster.refresh_all(self.deadline).await)
    }
}

//! A live cluster as a source.
//!
//! The order of the readings matters: the local start offsets come before the metadata's end offsets, log starts and
//! epoch ends after them, so that an upload or a deletion under way never looks like a loss. What a missing right
//! withholds is *not known*; what fails otherwise is *incomplete*.

mod who;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use strandline_audit::{
    Facts, LocalSegmentsFact, LogFact, LogStartSource, MetadataTopicFact, Need, TopicFact,
};
use strandline_client::admin::{
    Admin, ConfigEntry, ConfigQuery, EpochQuery, Isolation, ListedOffset, OffsetQuery, OffsetSpec,
};
use strandline_client::producer::ProducerConfig;
use strandline_conn::Recovery;
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _, MetadataRange, OnDeviation,
    OpenLogError, PartitionMarks, RangeError, RangeVisit, StartLogError,
};
use strandline_meta::{Cluster, ClusterConfig, ClusterSnapshot, ErrorCode, SendError, Topic};
use strandline_tier::MetadataPartitioner;
use tokio::time::Instant;

use super::reach::refresh_failure;
use super::visitor::Visitor;
use super::{Collected, Earlier, Homes, Request, chain, tell_warning};
use crate::address::Selection;
use crate::args::ConfigArgs;
use crate::config::{ClientSettings, Given, Settings};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::Incomplete;
use crate::progress::{Progress, Unit};

/// How long a reading that was told to stop may take to hand over what it has.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The topic configs that rules and screens look at.
const TOPIC_CONFIGS: [&str; 9] = [
    "cleanup.policy",
    "local.retention.bytes",
    "local.retention.ms",
    "remote.log.copy.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
];

/// What a cluster is connected to for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing leaves that could change something.
    Read,
    /// Writing.
    Write,
}

/// A cluster that was found, and the runtime that its connections live on.
#[derive(Debug)]
pub(crate) struct Live {
    runtime: tokio::runtime::Runtime,
    cluster: Cluster,
    bootstrap: String,
    warnings: Vec<String>,
    request_timeout: Duration,
}

impl Live {
    /// Reads the configuration and finds the cluster.
    pub(crate) fn connect(mut settings: Settings, purpose: Purpose) -> Result<Self, Failure> {
        let ClientSettings { bootstrap, connection, request_timeout } = settings.client()?;
        for note in &settings.notes {
            tracing::info!("{note}");
        }
        // Told before anything is sent: what they warn of may be what is sent.
        settings.warnings.iter().for_each(|warning| tell_warning(warning));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
                |error| {
                    Failure::unreachable(anyhow::Error::new(error).context("no runtime for the connections"))
                },
            )?;
        let words: Vec<String> = bootstrap.iter().map(ToString::to_string).collect();
        let config = ClusterConfig::new(bootstrap, connection).request_timeout(request_timeout);
        let config = if purpose == Purpose::Write { config.read_write() } else { config };
        let found = runtime.block_on(async {
            let deadline = Instant::now() + request_timeout;
            tokio::select! {
                found = Cluster::connect(config, deadline) => found.map_err(|error| refresh_failure(&error)),
                exit = interrupt::wait() => Err(stopped(exit)),
            }
        });
        Ok(Self {
            runtime,
            cluster: found?,
            bootstrap: words.join(","),
            warnings: settings.warnings,
            request_timeout,
        })
    }

    /// The settings of the command line, the environment and the file.
    pub(crate) fn settings(bootstrap: Option<&str>, args: &ConfigArgs) -> Result<Settings, Failure> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("STRANDLINE_") && !args.deaf_to_environment)
            .collect();
        Settings::collect(&Given {
            bootstrap,
            x: &args.x,
            file: args.command_config.as_deref(),
            environment,
            strict: args.strict_config,
        })
    }

    /// Opens the metadata topic.
    pub(crate) fn open_log(&self, topic: &str) -> Result<KafkaMetadataEventLog, Failure> {
        self.runtime.block_on(async {
            let config = self.log_config(topic);
            tokio::select! {
                log = KafkaMetadataEventLog::open_read_only(&self.cluster, config, self.deadline()) => {
                    log.map_err(open_failure)
                }
                exit = interrupt::wait() => Err(stopped(exit)),
            }
        })
    }

    /// Opens the metadata topic for writing as well, and never creates it.
    pub(crate) fn open_log_for_writing(&self, topic: &str) -> Result<KafkaMetadataEventLog, Failure> {
        self.runtime.block_on(async {
            let config = KafkaMetadataLogConfig {
                create_topic: false,
                // How the topic is set up is for `audit` to judge.
                on_deviation: OnDeviation::Adopt,
                // Nobody waits for an event longer than this, at the end neither.
                producer: ProducerConfig {
                    delivery_timeout: self.request_timeout,
                    ..ProducerConfig::default()
                },
                ..self.log_config(topic)
            };
            tokio::select! {
                log = KafkaMetadataEventLog::start(&self.cluster, config, self.deadline()) => {
                    log.map_err(start_failure)
                }
                exit = interrupt::wait() => Err(stopped(exit)),
            }
        })
    }

    fn log_config(&self, topic: &str) -> KafkaMetadataLogConfig {
        KafkaMetadataLogConfig {
            topic: topic.to_owned(),
            request_timeout: self.request_timeout,
            stall_timeout: self.request_timeout * 2,
            ..KafkaMetadataLogConfig::default()
        }
    }

    /// Where the events of the named partitions are; nothing where the cluster does not know all of them, or does not
    /// answer: then everything is read.
    pub(crate) fn homes(&self, log: &KafkaMetadataEventLog, selection: &Selection) -> Option<Homes> {
        let names: BTreeSet<&str> = selection.exact_partitions()?.into_iter().map(|(name, _)| name).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let admin = Admin::new(&self.cluster);
        let asked = async {
            tokio::select! {
                topics = admin.topics_by_name(&names, self.deadline()) => topics.ok(),
                _ = interrupt::wait() => None,
            }
        };
        let topics = self.runtime.block_on(asked)?;
        let partitions = some_partitions(log, selection, |name| topics.get(name)?.as_ref().ok())?;
        Some(Homes { partitions, certain: true })
    }

    /// The runtime that all waiting happens on.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Runtime {
        &self.runtime
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How long one request may take.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// The cluster's id.
    pub(crate) fn cluster_id(&self) -> Option<String> {
        self.cluster.snapshot().cluster_id().map(str::to_owned)
    }

    /// What was told of the settings.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// When a question that is asked now is given up.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.request_timeout * 2
    }

    /// Reads the metadata topic and everything else that the rules ask for.
    pub(super) fn collect(&self, request: &Request<'_>, earlier: Earlier) -> Result<Collected, Failure> {
        let log = self.open_log(&request.args.metadata_topic)?;
        let reading = async {
            tokio::select! {
                collected = self.read(&log, request, earlier) => collected,
                exit = async { let exit = interrupt::wait().await; tokio::time::sleep(STOP_MAX).await; exit } => {
                    Err(stopped(exit))
                }
            }
        };
        self.runtime.block_on(reading)
    }

    async fn read(
        &self,
        log: &KafkaMetadataEventLog,
        request: &Request<'_>,
        earlier: Earlier,
    ) -> Result<Collected, Failure> {
        let admin = Admin::new(&self.cluster);
        let all = admin.all_topics(self.deadline()).await.map_err(|error| refresh_failure(&error))?;
        let mut collected = Collected {
            source: self.bootstrap.clone(),
            cluster_id: self.cluster_id(),
            told: self.warnings.clone(),
            ..Collected::default()
        };
        let mut topics = Topics {
            admin: &admin,
            live: self,
            incomplete: Vec::new(),
            missing_rights: BTreeMap::new(),
            configs: BTreeMap::new(),
        };
        let tiered = topics.tiered(&all, request, log.topic()).await;
        let local_starts =
            topics.offsets(&tiered, OffsetSpec::EarliestLocal, Isolation::ReadUncommitted).await;
        let marks = self.read_events(log, &all, request, earlier, &mut collected).await?;
        if collected.ended_by.is_some() {
            return Ok(collected);
        }
        topics.facts(&tiered, &local_starts, request, &mut collected).await;
        let fact = topics.metadata_topic(log, &marks).await;
        collected.facts.metadata_topic = Some(fact);
        collected.facts.missing_rights = topics.missing_rights;
        collected.incomplete.append(&mut topics.incomplete);
        Ok(collected)
    }

    /// Reads the events up to the end offsets of now, from where an earlier reading ended; gives the marks.
    async fn read_events(
        &self,
        log: &KafkaMetadataEventLog,
        all: &ClusterSnapshot,
        request: &Request<'_>,
        mut earlier: Earlier,
        collected: &mut Collected,
    ) -> Result<Vec<PartitionMarks>, Failure> {
        let progress = Arc::new(Progress::start(request.progress, "reading events", Unit::Events));
        let only = some_partitions(log, request.selection, |name| all.topic(name));
        let (mut marks, mut refused) = (Vec::new(), Vec::new());
        for (partition, mark) in (0..).zip(log.high_water_marks().await) {
            match mark {
                Ok(mark) => marks.push(mark),
                Err(error) if only.as_ref().is_none_or(|only| only.contains(&partition)) => {
                    let what = format!("metadata partition {partition}");
                    collected.incomplete.push(Incomplete { what, reason: chain(&error) });
                    refused.push(error);
                }
                Err(_) => {}
            }
        }
        // A log that is shorter than it was is another log, and nothing that was read of it holds.
        let read_before = |mark: &PartitionMarks| earlier.metadata_offsets.get(&mark.partition).copied();
        if marks.iter().any(|mark| read_before(mark).is_some_and(|next| next > mark.high_watermark)) {
            earlier = Earlier::default();
        }
        let wanted = |mark: &&PartitionMarks| only.as_ref().is_none_or(|only| only.contains(&mark.partition));
        let ranges: Vec<(MetadataRange, Visitor<Arc<Progress>>)> = marks
            .iter()
            .filter(wanted)
            .map(|mark| (earlier.rest(mark), Visitor::new(Arc::clone(&progress))))
            .collect();
        progress.add_total(offsets_in(ranges.iter().map(|(range, _)| range)));
        let mut builders = Vec::with_capacity(ranges.len());
        let mut records = 0;
        for visit in log.visit_ranges(ranges).await {
            collected.metadata_offsets.insert(visit.range.partition, visit.outcome.next_offset);
            let RangeVisit { range, visitor, outcome, error } = visit;
            records += outcome.records;
            builders.push(visitor.builder);
            match error {
                None => {}
                Some(error) => {
                    let what =
                        format!("metadata partition {} from offset {}", range.partition, outcome.next_offset);
                    collected.incomplete.push(Incomplete { what, reason: chain(&error) });
                    refused.push(error);
                }
            }
        }
        // Empty partitions are read without a request, so they prove nothing about the others.
        if records == 0 && earlier.is_none() && !refused.is_empty() {
            return Err(nothing_read(refused));
        }
        if let Some(exit) = interrupt::pending() {
            collected.ended_by = Some(exit);
            let what = format!("the metadata topic after {}", progress.covered());
            collected.incomplete.push(Incomplete { what, reason: exit.meaning().to_owned() });
        }
        collected.view = earlier.with(builders, Some(log.partition_count()));
        if let Some(only) = only {
            let read: Vec<String> = only.iter().map(i32::to_string).collect();
            collected.facts.partial_read =
                Some(format!("only metadata partition {} was read, as the address asks", read.join(", ")));
        }
        Ok(marks)
    }
}

/// How many offsets the ranges hold. Brokers name their ends, and can name any.
fn offsets_in<'a>(ranges: impl Iterator<Item = &'a MetadataRange>) -> u64 {
    let offsets = |range: &MetadataRange| range.to.saturating_sub(range.from).max(0).unsigned_abs();
    ranges.map(offsets).fold(0, u64::saturating_add)
}

/// The metadata partitions that the named partitions hash to, where every address names one that exists.
fn some_partitions<'a>(
    log: &KafkaMetadataEventLog,
    selection: &Selection,
    topic: impl Fn(&str) -> Option<&'a Topic>,
) -> Option<BTreeSet<i32>> {
    let partitioner = MetadataPartitioner::new(log.partition_count())?;
    let home = |(name, partition): (&str, i32)| {
        let topic = topic(name)?;
        topic.partition(partition)?;
        Some(partitioner.metadata_partition(topic.id?, partition))
    };
    selection.exact_partitions()?.into_iter().map(home).collect()
}

/// Asks about user topics.
struct Topics<'a> {
    admin: &'a Admin,
    live: &'a Live,
    incomplete: Vec<Incomplete>,
    missing_rights: BTreeMap<Need, &'static str>,
    /// What was read of configs, by topic; absent where the right is missing.
    configs: BTreeMap<String, BTreeMap<String, String>>,
}

type PartitionKey = (Arc<str>, i32);

/// Facts, and the right that is needed to see them.
pub(crate) type Withheld = (&'static [Need], &'static str);

pub(crate) const TOPIC_CONFIGS_RIGHT: Withheld = (&[Need::TopicConfigs], "DESCRIBE_CONFIGS on the topic");
pub(crate) const METADATA_CONFIGS_RIGHT: Withheld =
    (&[Need::MetadataConfigs], "DESCRIBE_CONFIGS on the metadata topic");
pub(crate) const LOG_DIRS_RIGHT: Withheld = (&[Need::LocalSegments], "DESCRIBE on the cluster");
/// Without it a topic is not even known to exist, so nothing else about it can be asked.
pub(crate) const TOPIC_RIGHT: Withheld = (
    &[
        Need::TopicIds,
        Need::LogStart,
        Need::LocalStart,
        Need::LogEnd,
        Need::Leader,
        Need::LeaderEpochs,
        Need::LocalSegments,
    ],
    "DESCRIBE on the topic",
);
/// What a topic's configs take where not even the topic may be seen.
const UNSEEN_TOPIC_CONFIGS_RIGHT: Withheld =
    (&[Need::TopicConfigs], "DESCRIBE and DESCRIBE_CONFIGS on the topic");

impl Topics<'_> {
    /// The selected topics that have tiered storage on, as far as their configs may be read.
    async fn tiered(
        &mut self,
        all: &ClusterSnapshot,
        request: &Request<'_>,
        metadata_topic: &str,
    ) -> Vec<Topic> {
        let candidates: Vec<Topic> = all
            .topics()
            .filter(|topic| !topic.is_internal && &*topic.name != metadata_topic)
            .filter(|topic| {
                request.selection.addresses().is_empty() || request.selection.has_topic(&topic.name)
            })
            .cloned()
            .collect();
        self.read_configs(candidates.iter().map(|topic| &*topic.name)).await;
        let on = |topic: &Topic| {
            let configs = self.configs.get(&*topic.name);
            configs.is_some_and(|configs| {
                configs.get("remote.storage.enable").is_some_and(|value| value == "true")
            })
        };
        candidates.into_iter().filter(on).collect()
    }

    async fn read_configs(&mut self, names: impl Iterator<Item = &str>) {
        let names: Vec<String> =
            names.filter(|name| !self.configs.contains_key(*name)).map(str::to_owned).collect();
        if names.is_empty() {
            return;
        }
        let queries: Vec<ConfigQuery> =
            names.iter().map(|name| ConfigQuery::topic(name.as_str()).only(TOPIC_CONFIGS)).collect();
        match self.admin.describe_configs(&queries, self.live.deadline()).await {
            Ok(answers) => {
                for (name, answer) in names.into_iter().zip(answers) {
                    match answer {
                        Ok(entries) => drop(self.configs.insert(name, values(entries))),
                        Err(error) => {
                            self.failed(format!("the configs of topic {name}"), &error, TOPIC_CONFIGS_RIGHT)
                        }
                    }
                }
            }
            Err(error) => self.failed("topic configs".to_owned(), &error, TOPIC_CONFIGS_RIGHT),
        }
    }

    /// Notes what failed. A missing right, a topic that has gone, and a broker too old to tell are no failures: what
    /// they withhold is not known, and its rules are not checked.
    ///
    /// `needs` are the facts that the answer would have given, and the right that they take.
    fn failed(&mut self, what: String, error: &SendError, (needs, right): Withheld) {
        if error.recovery() == Recovery::Forbidden {
            self.withheld((needs, right));
        }
        let absent =
            matches!(error.code(), Some(ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId));
        let unknown = matches!(error, SendError::TooOld { .. } | SendError::NoSuchPartition { .. });
        if absent || unknown || error.recovery() == Recovery::Forbidden {
            tracing::info!("{what}: {}", chain(error));
            return;
        }
        self.incomplete.push(Incomplete { what, reason: chain(error) });
    }

    fn withheld(&mut self, (needs, right): Withheld) {
        for need in needs {
            self.missing_rights.entry(*need).or_insert(right);
        }
    }

    /// One kind of offset of every partition of the topics; without those that cannot be had.
    async fn offsets(
        &mut self,
        topics: &[Topic],
        spec: OffsetSpec,
        isolation: Isolation,
    ) -> FxHashMap<PartitionKey, ListedOffset> {
        let queries: Vec<OffsetQuery> = topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|partition| OffsetQuery {
                    topic: Arc::clone(&topic.name),
                    partition: partition.index,
                    spec,
                })
            })
            .collect();
        let mut offsets = FxHashMap::default();
        if queries.is_empty() {
            return offsets;
        }
        match self.admin.list_offsets(&queries, isolation, self.live.deadline()).await {
            Ok(answers) => {
                for (query, answer) in queries.into_iter().zip(answers) {
                    match answer {
                        Ok(offset) => drop(offsets.insert((query.topic, query.partition), offset)),
                        Err(error) => {
                            self.failed(
                                format!("an offset of {}:{}", query.topic, query.partition),
                                &error,
                                TOPIC_RIGHT,
                            );
                        }
                    }
                }
            }
            Err(error) => self.failed("offsets of user partitions".to_owned(), &error, TOPIC_RIGHT),
        }
        offsets
    }

    /// Everything about the tiered topics, and those that events name.
    async fn facts(
        &mut self,
        tiered: &[Topic],
        local_starts: &FxHashMap<PartitionKey, ListedOffset>,
        request: &Request<'_>,
        collected: &mut Collected,
    ) {
        let named: BTreeSet<String> = collected
            .view
            .partitions()
            .filter(|of| request.selection.addresses().is_empty() || request.selection.has_topic(of.topic()))
            .map(|of| of.topic().to_owned())
            .collect();
        let more = self.by_name(named, tiered, &mut collected.facts).await;
        self.read_configs(more.iter().map(|topic| &*topic.name)).await;
        let mut local_starts = local_starts.clone();
        local_starts.extend(self.offsets(&more, OffsetSpec::EarliestLocal, Isolation::ReadUncommitted).await);
        let topics: Vec<Topic> = tiered.iter().chain(&more).cloned().collect();
        let starts = self.offsets(&topics, OffsetSpec::Earliest, Isolation::ReadUncommitted).await;
        let ends = self.offsets(&topics, OffsetSpec::Latest, Isolation::ReadUncommitted).await;
        let stable = self.offsets(&topics, OffsetSpec::Latest, Isolation::ReadCommitted).await;
        let epochs = self.epoch_ends(&topics, collected).await;
        let mut held = match request.who {
            Some(of) => self.held_back(&ends, &stable, of, &mut collected.facts).await,
            None => FxHashMap::default(),
        };
        for topic in &topics {
            collected.facts.topics.push(TopicFact {
                topic: topic.name.to_string(),
                topic_id: topic.id,
                partitions: i32::try_from(topic.partitions.len()).ok(),
                configs: self.configs.get(&*topic.name).cloned(),
                absent: false,
            });
            for partition in &topic.partitions {
                let key = (Arc::clone(&topic.name), partition.index);
                let offset =
                    |of: &FxHashMap<PartitionKey, ListedOffset>| of.get(&key).and_then(|found| found.offset);
                collected.facts.logs.push(LogFact {
                    topic: topic.name.to_string(),
                    partition: partition.index,
                    topic_id: topic.id,
                    leader: partition.leader,
                    leader_epoch: partition.leader_epoch,
                    log_start_offset: offset(&starts),
                    log_start_source: offset(&starts).map(|_| LogStartSource::ListOffsets),
                    local_start_offset: offset(&local_starts),
                    log_end_offset: offset(&ends),
                    last_stable_offset: offset(&stable),
                    open_transaction: held.remove(&key),
                    leader_epochs: None,
                    epoch_ends: epochs.get(&key).cloned(),
                });
            }
        }
        self.local_bytes(&topics, &mut collected.facts).await;
        if let Some(of) = request.who {
            self.groups(&topics, of, &mut collected.facts).await;
        }
    }

    /// The topics that events name and the list did not have: known by their names, known to be absent, or not to be
    /// seen. A full list leaves out topics without DESCRIBE, so only an answer to the name proves anything.
    async fn by_name(&mut self, named: BTreeSet<String>, tiered: &[Topic], facts: &mut Facts) -> Vec<Topic> {
        let names: Vec<String> =
            named.into_iter().filter(|name| !tiered.iter().any(|topic| *topic.name == **name)).collect();
        let mut known = Vec::new();
        if names.is_empty() {
            return known;
        }
        match self.admin.topics_by_name(&names, self.live.deadline()).await {
            Ok(answers) => {
                for (name, answer) in answers {
                    match answer {
                        Ok(topic) => known.push(topic),
                        // No topic can have the second one's name.
                        Err(ErrorCode::UnknownTopicOrPartition | ErrorCode::InvalidTopicException) => {
                            facts.topics.push(TopicFact { topic: name, absent: true, ..TopicFact::default() })
                        }
                        Err(ErrorCode::TopicAuthorizationFailed) => {
                            self.withheld(TOPIC_RIGHT);
                            self.withheld(UNSEEN_TOPIC_CONFIGS_RIGHT);
                        }
                        Err(code) => self.incomplete.push(Incomplete {
                            what: format!("topic {name}"),
                            reason: format!("the cluster answers {code}"),
                        }),
                    }
                }
            }
            Err(error) => {
                let what = "the topics that events name".to_owned();
                self.incomplete.push(Incomplete { what, reason: chain(&error) });
            }
        }
        known
    }

    /// Where each epoch that events or leaders name ends in the leader's lineage.
    async fn epoch_ends(
        &mut self,
        topics: &[Topic],
        collected: &Collected,
    ) -> FxHashMap<PartitionKey, Vec<(i32, i32, i64)>> {
        let known: FxHashMap<&str, &Topic> = topics.iter().map(|topic| (&*topic.name, topic)).collect();
        let mut asked: BTreeSet<(Arc<str>, i32, i32)> = BTreeSet::new();
        for of in collected.view.partitions() {
            let Some(topic) = known.get(of.topic()).filter(|topic| topic.id == Some(of.topic_id())) else {
                continue;
            };
            let Some(partition) = topic.partition(of.partition()) else { continue };
            let current = partition.leader_epoch.into_iter();
            let seen =
                of.segments().filter_map(|segment| segment.content()).flat_map(|content| &content.epochs);
            for epoch in current.chain(seen.map(|epoch| epoch.epoch)).filter(|epoch| *epoch >= 0) {
                asked.insert((Arc::clone(&topic.name), of.partition(), epoch));
            }
        }
        let queries: Vec<EpochQuery> = asked
            .into_iter()
            .map(|(topic, partition, leader_epoch)| EpochQuery { topic, partition, leader_epoch })
            .collect();
        let mut ends: FxHashMap<PartitionKey, Vec<(i32, i32, i64)>> = FxHashMap::default();
        if queries.is_empty() {
            return ends;
        }
        match self.admin.offsets_for_leader_epochs(&queries, self.live.deadline()).await {
            Ok(answers) => {
                let mut broken = BTreeSet::new();
                for (query, answer) in queries.into_iter().zip(answers) {
                    let key = (query.topic, query.partition);
                    match answer {
                        Ok(Some(end)) => {
                            let ends = ends.entry(key).or_default();
                            ends.push((query.leader_epoch, end.leader_epoch, end.end_offset));
                        }
                        // The leader's lineage begins above this epoch: no part of it.
                        Ok(None) => ends.entry(key).or_default().push((query.leader_epoch, -1, -1)),
                        Err(error) => {
                            self.failed(format!("the epochs of {}:{}", key.0, key.1), &error, TOPIC_RIGHT);
                            broken.insert(key);
                        }
                    }
                }
                // Half a lineage would make the other half look abandoned.
                ends.retain(|key, _| !broken.contains(key));
            }
            Err(error) => self.failed("leader epochs".to_owned(), &error, TOPIC_RIGHT),
        }
        ends
    }

    /// The bytes of each replica's local log.
    async fn local_bytes(&mut self, topics: &[Topic], facts: &mut Facts) {
        let asked: Vec<(String, Vec<i32>)> = topics
            .iter()
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| partition.index);
                (topic.name.to_string(), partitions.collect())
            })
            .collect();
        if asked.is_empty() {
            return;
        }
        let brokers = match self.admin.describe_log_dirs(Some(&asked), self.live.deadline()).await {
            Ok(brokers) => brokers,
            Err(error) => {
                return self.failed("the brokers' log directories".to_owned(), &error, LOG_DIRS_RIGHT);
            }
        };
        for (broker, answer) in brokers {
            let dirs = match answer {
                Ok(dirs) => dirs,
                Err(error) => {
                    self.failed(format!("the log directories of broker {broker}"), &error, LOG_DIRS_RIGHT);
                    continue;
                }
            };
            for dir in dirs {
                for replica in dir.replicas.into_iter().filter(|replica| !replica.is_future) {
                    facts.local_segments.push(LocalSegmentsFact {
                        topic: replica.topic,
                        partition: replica.partition,
                        topic_id: None,
                        broker: Some(broker),
                        log_dir: Some(dir.path.clone()),
                        size_bytes: Some(replica.size_bytes),
                        segments: None,
                        producer_snapshots: None,
                    });
                }
            }
        }
    }

    /// The metadata topic itself.
    async fn metadata_topic(
        &mut self,
        log: &KafkaMetadataEventLog,
        marks: &[PartitionMarks],
    ) -> MetadataTopicFact {
        let view = self.live.cluster.snapshot();
        let query = ConfigQuery::topic(log.topic());
        let configs = match self.admin.describe_configs(&[query], self.live.deadline()).await {
            Ok(mut answers) => match answers.pop() {
                Some(Ok(entries)) => Some(values(entries)),
                Some(Err(error)) => {
                    self.failed(
                        "the configs of the metadata topic".to_owned(),
                        &error,
                        METADATA_CONFIGS_RIGHT,
                    );
                    None
                }
                None => None,
            },
            Err(error) => {
                self.failed("the configs of the metadata topic".to_owned(), &error, METADATA_CONFIGS_RIGHT);
                None
            }
        };
        metadata_topic_fact(&view, log, marks, configs)
    }
}

/// The metadata topic as the view, its marks and its configs tell it.
pub(crate) fn metadata_topic_fact(
    view: &ClusterSnapshot,
    log: &KafkaMetadataEventLog,
    marks: &[PartitionMarks],
    configs: Option<BTreeMap<String, String>>,
) -> MetadataTopicFact {
    let topic = view.topic(log.topic());
    let behind = |behind: fn(&strandline_meta::Partition) -> bool| {
        topic.map(|topic| topic.partitions.iter().filter(|of| behind(of)).map(|of| of.index).collect())
    };
    let each = |value: fn(&PartitionMarks) -> i64| {
        let by_partition: BTreeMap<i32, i64> =
            marks.iter().map(|mark| (mark.partition, value(mark))).collect();
        (0..log.partition_count()).map(|at| by_partition.get(&at).copied()).collect()
    };
    MetadataTopicFact {
        partitions: Some(log.partition_count()),
        configured_partitions: None,
        replication_factor: topic
            .and_then(|topic| topic.partitions.iter().map(|of| of.replicas.len()).min())
            .and_then(|replicas| i32::try_from(replicas).ok()),
        brokers: i32::try_from(view.brokers().len()).ok(),
        configs,
        log_start_offsets: Some(each(|mark| mark.log_start_offset)),
        end_offsets: Some(each(|mark| mark.high_watermark)),
        under_replicated: behind(|of| of.isr.len() < of.replicas.len()),
        offline: behind(|of| !of.offline_replicas.is_empty()),
        truncated_files: None,
    }
}

fn values(entries: Vec<ConfigEntry>) -> BTreeMap<String, String> {
    entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect()
}

/// The failure of a run that a signal ended before it had anything to show.
fn stopped(exit: Exit) -> Failure {
    Failure { exit, ..Failure::unreachable("interrupted before anything was read") }
}

fn open_failure(error: OpenLogError) -> Failure {
    match error {
        OpenLogError::NoMetadataTopic { .. } => Failure::unsupported(anyhow::Error::new(error))
            .hint("--metadata-topic NAME if the topic has another name"),
        OpenLogError::Forbidden { topic } => missing_right("DESCRIBE", &topic),
        OpenLogError::Cluster { source, .. } => refresh_failure(&source),
        // All but the topic's name is the command's own.
        OpenLogError::Config(_) => Failure::usage(anyhow::Error::new(error)),
        error => Failure::unreachable(anyhow::Error::new(error)),
    }
}

fn start_failure(error: StartLogError) -> Failure {
    match error {
        StartLogError::NoMetadataTopic { .. } => Failure::unsupported(anyhow::Error::new(error)),
        StartLogError::Forbidden { .. } => Failure::rights(anyhow::Error::new(error)),
        StartLogError::Config(_) | StartLogError::Producer(_) => {
            Failure::configuration(anyhow::Error::new(error))
        }
        error => Failure::unreachable(anyhow::Error::new(error)),
    }
}

fn missing_right(right: &str, topic: &str) -> Failure {
    Failure::rights(format!("no right to read the metadata topic {topic}: {right} on it is missing")).hint(format!(
        "grant READ and DESCRIBE: kafka-acls --add --allow-principal User:NAME --operation Read --operation Describe --topic {topic}"
    ))
}

/// The failure when not a single metadata partition could be read.
pub(crate) fn nothing_read(mut errors: Vec<RangeError>) -> Failure {
    let forbidden = errors.iter().position(|error| matches!(error, RangeError::Forbidden { .. }));
    let first = errors.swap_remove(forbidden.unwrap_or(0));
    if matches!(first, RangeError::Forbidden { .. }) {
        return Failure::rights(anyhow::Error::new(first))
            .hint("grant READ and DESCRIBE on the metadata topic");
    }
    let error = anyhow::Error::new(first);
    Failure::unreachable(error.context("no partition of the metadata topic could be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_any_size_are_counted_without_overflow() {
        let range = |from, to| MetadataRange { partition: 0, from, to };
        assert_eq!(offsets_in([range(3, 10), range(5, 5), range(9, 2)].iter()), 7);
        assert_eq!(offsets_in([range(0, i64::MAX); 5].iter()), u64::MAX);
        assert_eq!(offsets_in([range(i64::MIN, i64::MAX)].iter()), i64::MAX.unsigned_abs());
    }
}

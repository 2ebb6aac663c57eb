//! What the principal may do, tried one right after the other; which of them is missing, and what goes without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use strandline_audit::{Need, TierView, TierViewBuilder};
use strandline_client::admin::{Admin, ConfigQuery, PartitionQuery};
use strandline_client::reader::{PartitionReader, ReadErrorKind, ReadPosition, ReaderConfig};
use strandline_conn::Recovery;
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _, MetadataRange, OpenLogError,
    PartitionMarks, RangeError,
};
use strandline_meta::{Cluster, ErrorCode, SendError, Topic};
use tokio::time::Instant;

use super::check::{Check, Section};
use crate::args::ProgressKind;
use crate::exit::Exit;
use crate::progress::{Progress, Unit};
use crate::sources::{
    LOG_DIRS_RIGHT, METADATA_CONFIGS_RIGHT, TOPIC_CONFIGS_RIGHT, TOPIC_RIGHT, Visitor, chain,
};
use crate::text::count;

/// The newest records of each metadata partition that are read, to learn which topics they name.
const SAMPLE_RECORDS: i64 = 100;
/// Most topics that a detail or a `kafka-acls` line names.
const NAMED_MAX: usize = 5;

/// What the tries brought to light beside the verdicts.
#[derive(Default)]
pub(super) struct Found {
    /// The metadata topic, if it can be seen.
    pub(super) log: Option<KafkaMetadataEventLog>,
    /// Where its partitions begin and end; an error where a partition does not tell.
    pub(super) marks: Vec<Result<PartitionMarks, RangeError>>,
    /// The newest events.
    pub(super) sample: TierView,
    /// The metadata topic's configs, where they may be read.
    pub(super) configs: Option<BTreeMap<String, String>>,
    /// How many topics have tiering on, where their configs may be read.
    pub(super) tiered: Option<usize>,
    /// True where the metadata topic does not exist.
    pub(super) absent: bool,
}

/// Tries what the commands do.
pub(super) struct Rights<'a> {
    pub(super) cluster: &'a Cluster,
    /// `User:NAME`.
    pub(super) principal: String,
    /// What `kafka-acls` is pointed at.
    pub(super) bootstrap: String,
    /// How long a step may take.
    pub(super) within: Duration,
    pub(super) metadata_topic: &'a str,
    pub(super) checks: Vec<Check>,
    pub(super) found: Found,
}

impl Rights<'_> {
    pub(super) async fn check(&mut self) {
        let described = self.describe_metadata_topic().await;
        if described {
            self.read_metadata_topic().await;
            self.metadata_configs().await;
        } else {
            for right in ["READ", "DESCRIBE_CONFIGS"] {
                let check = format!("{right} on {}", self.metadata_topic);
                self.skip(check, "the topic cannot be seen");
            }
        }
        let seen = self.describe_topics().await;
        let tiered = self.topic_configs(&seen).await;
        self.log_dirs().await;
        self.producers(tiered.as_ref()).await;
        // Asking a coordinator can create its topic, and a right on one group says nothing of the next.
        let each = "not tried, since it is granted group by group: `explain` names what it may not see";
        self.skip("DESCRIBE on consumer groups", each);
        let each = "not tried, since it is granted id by id: `explain` names what it may not see";
        self.skip("DESCRIBE on transactional ids", each);
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.within
    }

    fn push(&mut self, check: Check) {
        self.checks.push(check.subject(self.principal.clone()));
    }

    fn skip(&mut self, check: impl Into<String>, why: &str) {
        self.push(Check::skipped(Section::Rights, check, why));
    }

    fn ok(&mut self, check: impl Into<String>, detail: impl Into<String>) {
        self.push(Check::ok(Section::Rights, check, detail));
    }

    /// A right without which some command shows less.
    fn missing(&mut self, check: impl Into<String>, without: &str, needs: &[Need], grant: &str) {
        let check = Check::warning(Section::Rights, check, format!("missing: {without}"));
        let help = self.grant(grant);
        self.push(check.silences(needs).help(help));
    }

    /// A right without which nothing works.
    fn refused(&mut self, check: impl Into<String>, without: &str, grant: &str) {
        let check = Check::failed(Section::Rights, check, Exit::Rights, format!("missing: {without}"));
        let help = self.grant(grant);
        self.push(check.help(help));
    }

    /// A try that failed of something else than a right.
    fn broken(&mut self, check: impl Into<String>, error: &dyn std::error::Error) {
        let detail = format!("cannot be told: {}", chain(error));
        self.push(Check::failed(Section::Rights, check, Exit::Incomplete, detail));
    }

    /// The line that grants it.
    fn grant(&self, what: &str) -> String {
        format!(
            "grant it: kafka-acls.sh --bootstrap-server {} --add --allow-principal {} {what}",
            self.bootstrap,
            shell_word(&self.principal)
        )
    }

    fn log_config(&self) -> KafkaMetadataLogConfig {
        KafkaMetadataLogConfig {
            topic: self.metadata_topic.to_owned(),
            request_timeout: self.within,
            stall_timeout: self.within,
            read_timeout: self.within,
            ..KafkaMetadataLogConfig::default()
        }
    }

    /// True where the topic is there to be seen.
    async fn describe_metadata_topic(&mut self) -> bool {
        let topic = self.metadata_topic;
        let check = format!("DESCRIBE on {topic}");
        let deadline = self.deadline();
        match KafkaMetadataEventLog::open_read_only(self.cluster, self.log_config(), deadline).await {
            Ok(log) => {
                self.ok(check, "granted");
                self.found.log = Some(log);
                return true;
            }
            Err(OpenLogError::Forbidden { .. }) => {
                let grant = format!("--operation Describe --operation Read --topic {topic}");
                self.refused(check, "no command can work without it", &grant);
            }
            Err(OpenLogError::NoMetadataTopic { .. }) => {
                self.found.absent = true;
                self.skip(check, "there is no such topic");
            }
            Err(error) => self.broken(check, &error),
        }
        false
    }

    /// Asks for what comes after the newest record: that takes the right, and brings nothing.
    async fn read_metadata_topic(&mut self) {
        let topic = self.metadata_topic;
        let check = format!("READ on {topic}");
        let Some(log) = self.found.log.clone() else { return };
        self.found.marks = log.high_water_marks().await;
        let Some(mark) = self.found.marks.iter().flatten().next().copied() else {
            match self.found.marks.iter().find_map(|mark| mark.as_ref().err()).map(chain_of) {
                Some(error) => {
                    let detail = format!("cannot be told: {error}");
                    self.push(Check::failed(Section::Rights, check, Exit::Incomplete, detail));
                }
                None => self.skip(check, "the topic has no partition"),
            }
            return;
        };
        let config = ReaderConfig {
            max_wait: Duration::from_millis(1),
            request_timeout: self.within,
            ..ReaderConfig::default()
        };
        let at = ReadPosition::at(mark.high_watermark);
        let deadline = self.deadline();
        let page = async {
            let reader =
                PartitionReader::open(self.cluster, topic, mark.partition, at, config, deadline).await;
            reader?.next_page(deadline, |_| std::ops::ControlFlow::Continue(())).await
        };
        match page.await {
            Ok(_) => self.ok(check, "granted"),
            Err(error) if matches!(error.kind, ReadErrorKind::Forbidden { .. }) => {
                let grant = format!("--operation Read --topic {topic}");
                return self.refused(check, "no command can work without it", &grant);
            }
            Err(error) => return self.broken(check, &error),
        }
        self.sample(&log).await;
    }

    /// Reads the newest events.
    async fn sample(&mut self, log: &KafkaMetadataEventLog) {
        let progress =
            Arc::new(Progress::start(ProgressKind::None, "reading the newest events", Unit::Events));
        let range = |mark: &PartitionMarks| {
            let all = mark.range();
            MetadataRange { from: all.from.max(all.to.saturating_sub(SAMPLE_RECORDS)), ..all }
        };
        let marks = self.found.marks.iter().flatten();
        let ranges = marks.map(|mark| (range(mark), Visitor::new(Arc::clone(&progress)))).collect();
        let mut builder = TierViewBuilder::new();
        for visit in log.visit_ranges(ranges).await {
            builder.merge(visit.visitor.builder);
        }
        self.found.sample = builder.finish(Some(log.partition_count()));
    }

    async fn metadata_configs(&mut self) {
        let topic = self.metadata_topic;
        let check = format!("DESCRIBE_CONFIGS on {topic}");
        let query = ConfigQuery::topic(topic);
        let answers = Admin::new(self.cluster).describe_configs(&[query], self.deadline()).await;
        match answers.and_then(|mut answers| answers.pop().unwrap_or_else(|| Ok(Vec::new()))) {
            Ok(entries) => {
                let values = entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
                self.found.configs = Some(values.collect());
                self.ok(check, "granted");
            }
            Err(error) if is_forbidden(&error) => {
                let grant = format!("--operation DescribeConfigs --topic {topic}");
                let without = "whether the topic keeps its records is not known";
                self.missing(check, without, METADATA_CONFIGS_RIGHT.0, &grant);
            }
            Err(error) => self.broken(check, &error),
        }
    }

    /// The topics that can be seen, of all and of those that events name. A full list leaves out the others without a word.
    async fn describe_topics(&mut self) -> Vec<Topic> {
        let check = "DESCRIBE on tiered topics";
        let admin = Admin::new(self.cluster);
        let deadline = self.deadline();
        let mut seen: Vec<Topic> = match admin.all_topics(deadline).await {
            Ok(view) => view.topics().filter(|topic| !topic.is_internal).cloned().collect(),
            Err(error) => {
                self.broken(check, &error);
                return Vec::new();
            }
        };
        seen.retain(|topic| *topic.name != *self.metadata_topic);
        let named: BTreeSet<String> =
            self.found.sample.partitions().map(|of| of.topic().to_owned()).collect();
        let unseen: Vec<String> =
            named.iter().filter(|name| !seen.iter().any(|topic| *topic.name == ***name)).cloned().collect();
        if named.is_empty() {
            let what =
                "no event that could be read names a topic, so those that cannot be seen are not known";
            self.skip(check, what);
            return seen;
        }
        let answers = match admin.topics_by_name(&unseen, deadline).await {
            Ok(answers) => answers,
            Err(error) => {
                self.broken(check, &error);
                return seen;
            }
        };
        let forbidden =
            |answer: &Result<Topic, ErrorCode>| matches!(answer, Err(ErrorCode::TopicAuthorizationFailed));
        let hidden: Vec<&str> =
            answers.iter().filter(|(_, answer)| forbidden(answer)).map(|(name, _)| name.as_str()).collect();
        if hidden.is_empty() {
            let there = named.iter().filter(|name| seen.iter().any(|topic| *topic.name == ***name)).count();
            let gone = match named.len() - there {
                0 => String::new(),
                gone => format!("; {gone} deleted since"),
            };
            self.ok(check, format!("granted on every topic that the newest events name ({there}){gone}"));
        } else {
            let topics: Vec<String> =
                hidden.iter().take(NAMED_MAX).map(|name| format!("--topic {name}")).collect();
            let without = format!(
                "offsets, leaders and epochs of {} are not known ({})",
                count(hidden.len() as u64, "topic"),
                some(&hidden)
            );
            let grant = format!("--operation Describe --operation DescribeConfigs {}", topics.join(" "));
            // Neither are the configs of a topic that cannot be seen.
            let needs = [TOPIC_RIGHT.0, TOPIC_CONFIGS_RIGHT.0].concat();
            self.missing(check, &without, &needs, &grant);
        }
        seen
    }

    /// A topic that has tiering on.
    async fn topic_configs(&mut self, seen: &[Topic]) -> Option<Topic> {
        let check = "DESCRIBE_CONFIGS on tiered topics";
        if seen.is_empty() {
            self.skip(check, "no topic can be seen");
            return None;
        }
        let queries: Vec<ConfigQuery> = seen
            .iter()
            .map(|topic| ConfigQuery::topic(&*topic.name).only(["remote.storage.enable"]))
            .collect();
        let answers = match Admin::new(self.cluster).describe_configs(&queries, self.deadline()).await {
            Ok(answers) => answers,
            Err(error) => {
                self.broken(check, &error);
                return None;
            }
        };
        let (mut tiered, mut hidden) = (Vec::new(), Vec::new());
        for (topic, answer) in seen.iter().zip(answers) {
            match answer {
                Ok(entries) if entries.iter().any(|entry| entry.value.as_deref() == Some("true")) => {
                    tiered.push(topic);
                }
                Ok(_) => {}
                Err(error) if is_forbidden(&error) => hidden.push(&*topic.name),
                // A topic that has gone since it was listed.
                Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
                Err(error) => {
                    self.broken(check, &error);
                    return None;
                }
            }
        }
        if hidden.is_empty() {
            self.ok(check, format!("granted on every topic that can be seen ({})", seen.len()));
            self.found.tiered = Some(tiered.len());
        } else {
            let topics: Vec<String> =
                hidden.iter().take(NAMED_MAX).map(|name| format!("--topic {name}")).collect();
            let without = format!(
                "whether tiering is on, and what retention says, is not known of {} ({})",
                count(hidden.len() as u64, "topic"),
                some(&hidden)
            );
            let grant = format!("--operation DescribeConfigs {}", topics.join(" "));
            self.missing(check, &without, TOPIC_CONFIGS_RIGHT.0, &grant);
        }
        tiered.first().copied().cloned()
    }

    /// Only the code tells: an answer without any directory is what older brokers give who may not ask.
    async fn log_dirs(&mut self) {
        let check = "DESCRIBE on the cluster";
        let asked = [(self.metadata_topic.to_owned(), vec![0])];
        let answers = match Admin::new(self.cluster).describe_log_dirs(Some(&asked), self.deadline()).await {
            Ok(answers) => answers,
            Err(error) => return self.broken(check, &error),
        };
        let (mut silent, mut told) = (Vec::new(), false);
        for (broker, answer) in answers {
            match answer {
                Err(error) if is_forbidden(&error) => {
                    let without = "how much the brokers' disks hold is not known, and a list of groups may not be whole";
                    return self.missing(check, without, LOG_DIRS_RIGHT.0, "--operation Describe --cluster");
                }
                Err(_) => silent.push(broker.to_string()),
                Ok(dirs) => told |= !dirs.is_empty(),
            }
        }
        // What ails a broker that does not answer is told where the brokers are.
        match (told, silent.is_empty()) {
            (true, true) => self.ok(check, "granted"),
            (true, false) => self.ok(check, format!("granted; no answer from broker {}", silent.join(", "))),
            (false, _) => self.skip(check, "no broker told whether it is granted"),
        }
    }

    /// READ on a topic tells the producer whose open transaction holds uploads back.
    async fn producers(&mut self, tiered: Option<&Topic>) {
        let check = "READ on tiered topics";
        let Some(topic) = tiered else {
            return self.skip(check, "no topic is known to have tiering on");
        };
        let query = PartitionQuery { topic: Arc::clone(&topic.name), partition: 0 };
        let answers = Admin::new(self.cluster).describe_producers(&[query], self.deadline()).await;
        match answers.and_then(|mut answers| answers.pop().unwrap_or_else(|| Ok(Vec::new()))) {
            Ok(_) => self.ok(check, format!("granted on {}", topic.name)),
            Err(error) if is_forbidden(&error) => {
                let without = "`explain` cannot name the producer whose transaction holds uploads back";
                self.missing(check, without, &[], &format!("--operation Read --topic {}", topic.name));
            }
            Err(error) => self.broken(check, &error),
        }
    }
}

fn is_forbidden(error: &SendError) -> bool {
    error.recovery() == Recovery::Forbidden
}

fn chain_of(error: &RangeError) -> String {
    chain(error)
}

/// Text as one word of a shell, whatever it holds.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A few names, and that there are more.
fn some(names: &[&str]) -> String {
    let more = if names.len() > NAMED_MAX { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(NAMED_MAX)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_word_of_the_shell() {
        assert_eq!(shell_word("User:ada"), "'User:ada'");
        assert_eq!(shell_word("User:o'neill; rm -rf /"), r"'User:o'\''neill; rm -rf /'");
    }
}

//! Finding the topic or creating it, and holding one that is there against the configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use strandline_client::admin::{Admin, ConfigEntry, ConfigQuery, NewTopic};
use strandline_client::producer::ProducerConfigError;
use strandline_client::reader::Backoff;
use strandline_meta::{Cluster, ErrorCode, Recovery, RefreshError, SendError, Topic, TopicView};
use strandline_protocol::TopicId;
use tokio::time::{Instant, sleep_until};

use super::config::{KafkaMetadataLogConfig, MetadataLogConfigError, OnDeviation};

/// The topic's own settings, by their names and the values that are wanted. With compaction brokers would refuse events,
/// which have no key; with a retention they would lose those of segments that live on.
const CLEANUP_POLICY: (&str, &str) = ("cleanup.policy", "delete");
const RETENTION_MS: (&str, &str) = ("retention.ms", "-1");
const RETENTION_BYTES: (&str, &str) = ("retention.bytes", "-1");
const MIN_ISR: &str = "min.insync.replicas";
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// The metadata log cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartLogError {
    /// A setting is wrong. Correct it.
    #[error(transparent)]
    Config(#[from] MetadataLogConfigError),
    /// A setting of the producer is wrong. Correct it.
    #[error(transparent)]
    Producer(#[from] ProducerConfigError),
    /// The cluster was made for reading only; make it with [`read_write`](strandline_meta::ClusterConfig::read_write), or
    /// open the log with [`open_read_only`](super::KafkaMetadataEventLog::open_read_only).
    #[error("the cluster was made for reading only, and the metadata log is to be written")]
    ReadOnlyCluster,
    /// The cluster has no such topic, and the configuration says that it is not to be
    /// [created](KafkaMetadataLogConfig::create_topic).
    #[error("the cluster has no topic {topic}, and it is not to be created")]
    NoMetadataTopic {
        /// The name looked for.
        topic: Arc<str>,
    },
    /// The principal lacks a right. Tell the user.
    #[error("topic {topic}: the right {right} is missing")]
    Forbidden {
        /// The topic.
        topic: Arc<str>,
        /// The missing right, and on what.
        right: &'static str,
        /// The broker's refusal.
        #[source]
        source: Box<SendError>,
    },
    /// The topic is there and is not as configured, and the configuration says [`OnDeviation::Strict`].
    #[error("topic {topic} is not as configured: {}", Listed(.deviations))]
    Deviates {
        /// The topic.
        topic: Arc<str>,
        /// Everything that is otherwise, and what could not be checked.
        deviations: Vec<TopicDeviation>,
    },
    /// The cluster refuses to create the topic, or gives an answer that a repetition would not better.
    #[error("topic {topic} cannot be had")]
    Refused {
        /// The topic.
        topic: Arc<str>,
        /// The refusal.
        #[source]
        source: Box<SendError>,
    },
    /// The deadline passed while something was waited for that passes by itself.
    #[error("topic {topic}: waited {waited:.1?} for {awaited}")]
    Waited {
        /// The topic.
        topic: Arc<str>,
        /// What was waited for last.
        awaited: Awaited,
        /// From the call to the giving up.
        waited: Duration,
        /// What hindered it last, if something did.
        #[source]
        source: Option<Box<SendError>>,
    },
}

/// What a start waits for while the cluster comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// Some broker that tells about the cluster.
    Metadata,
    /// Enough brokers for the topic's replicas.
    Brokers {
        /// Replicas of each partition, which is how many brokers there have to be.
        replication: i16,
        /// The brokers that were there when that was last refused.
        registered: usize,
    },
    /// The controller, to create the topic.
    Creation,
    /// Brokers that know the topic after it was created.
    Topic,
    /// The topic's configs.
    Configs,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata => f.write_str("a broker that tells about the cluster"),
            Self::Brokers { replication, registered } => {
                write!(f, "{replication} brokers to hold its replicas (there are {registered})")
            }
            Self::Creation => f.write_str("the controller to create it"),
            Self::Topic => f.write_str("the brokers to tell of it after it was created"),
            Self::Configs => f.write_str("its configs"),
        }
    }
}

/// Where a topic that was there already is not as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicDeviation {
    /// A setting has another value.
    Differs {
        /// What it is: `partitions`, `replicas`, or a topic config by its name.
        setting: &'static str,
        /// What is configured.
        wanted: String,
        /// What the topic has.
        found: String,
    },
    /// Settings could not be read, so that nothing is known of them.
    NotChecked {
        /// The topic configs, by name.
        settings: Vec<&'static str>,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for TopicDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs { setting, wanted, found } => write!(f, "{setting} {found}, wanted {wanted}"),
            Self::NotChecked { settings, reason } => {
                write!(f, "{} not checked: {reason}", settings.join(", "))
            }
        }
    }
}

pub(super) struct Listed<'a>(pub(super) &'a [TopicDeviation]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, deviation) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            deviation.fmt(f)?;
        }
        Ok(())
    }
}

/// The topic as it is.
#[derive(Debug)]
pub(super) struct Provisioned {
    pub(super) topic_id: Option<TopicId>,
    pub(super) partition_count: i32,
    pub(super) deviations: Vec<TopicDeviation>,
    /// `max.message.bytes`, where it may be read.
    pub(super) batch_bytes_max: Option<usize>,
}

/// Finds the topic, or creates it where it is not there.
pub(super) async fn provision(
    cluster: &Cluster,
    config: &KafkaMetadataLogConfig,
    deadline: Instant,
) -> Result<Provisioned, StartLogError> {
    let mut start = Start {
        admin: Admin::new(cluster),
        topic: config.topic.as_str().into(),
        config,
        deadline,
        created: false,
        announced: false,
        hindrance: None,
    };
    let began = Instant::now();
    let mut backoff = Backoff::new(config.retry_backoff, None);
    loop {
        let awaited = match start.attempt().await {
            Ok(provisioned) => return start.judge(provisioned),
            Err(Setback::Final(error)) => return Err(*error),
            Err(Setback::Wait(awaited)) => awaited,
        };
        let wait_end = Instant::now() + backoff.next_wait();
        sleep_until(wait_end.min(deadline)).await;
        if wait_end >= deadline {
            let (topic, waited) = (start.topic, began.elapsed());
            return Err(StartLogError::Waited { topic, awaited, waited, source: start.hindrance });
        }
    }
}

struct Start<'a> {
    admin: Admin,
    topic: Arc<str>,
    config: &'a KafkaMetadataLogConfig,
    deadline: Instant,
    /// This start has created the topic.
    created: bool,
    /// The controller says that the topic is there, and brokers may not have heard of it.
    announced: bool,
    /// What hindered it last.
    hindrance: Option<Box<SendError>>,
}

/// Why an attempt did not come to the topic.
enum Setback {
    /// It stays so.
    Final(Box<StartLogError>),
    /// It passes by itself.
    Wait(Awaited),
}

impl Start<'_> {
    async fn attempt(&mut self) -> Result<Provisioned, Setback> {
        loop {
            let view = match self.admin.cluster().refresh_topics(&[&self.topic], self.deadline).await {
                Ok(view) => view,
                Err(error) => return Err(self.unreachable(error)),
            };
            match view.topic_view(&self.topic) {
                TopicView::Known(topic) => return self.take(topic).await,
                TopicView::Refused { code, .. } if code != ErrorCode::UnknownTopicOrPartition => {
                    let error = SendError::Topic { topic: Arc::clone(&self.topic), code };
                    return Err(self.failed(error, "DESCRIBE on it", Awaited::Topic));
                }
                TopicView::Refused { .. } | TopicView::NotAsked if std::mem::take(&mut self.announced) => {
                    return Err(Setback::Wait(Awaited::Topic));
                }
                TopicView::Refused { .. } | TopicView::NotAsked if !self.config.create_topic => {
                    let topic = Arc::clone(&self.topic);
                    return Err(Setback::Final(Box::new(StartLogError::NoMetadataTopic { topic })));
                }
                TopicView::Refused { .. } | TopicView::NotAsked => self.create(view.brokers().len()).await?,
            }
        }
    }

    async fn create(&mut self, registered: usize) -> Result<(), Setback> {
        let KafkaMetadataLogConfig { num_partitions, replication, min_isr, topic_create_timeout, .. } =
            *self.config;
        let config = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let min_isr = min_isr.to_string();
        let configs = [CLEANUP_POLICY, RETENTION_MS, (MIN_ISR, &min_isr)].map(config).to_vec();
        let topic = NewTopic { name: self.topic.to_string(), num_partitions, replication, configs };
        let deadline = self.deadline.min(Instant::now() + topic_create_timeout);
        let Err(error) = self.admin.create_topic(&topic, deadline).await else {
            tracing::info!(topic = %self.topic, num_partitions, replication, "the metadata topic is created");
            (self.created, self.announced) = (true, true);
            return Ok(());
        };
        match error.code() {
            // Another one that starts was quicker, or an earlier try has done it whose answer was lost.
            Some(ErrorCode::TopicAlreadyExists) => {
                self.announced = true;
                Ok(())
            }
            Some(ErrorCode::InvalidReplicationFactor) => {
                self.hindrance = Some(Box::new(error));
                Err(Setback::Wait(Awaited::Brokers { replication, registered }))
            }
            // It may be done or not: the next look tells.
            Some(ErrorCode::UnknownServerError) => {
                self.hindrance = Some(Box::new(error));
                Err(Setback::Wait(Awaited::Creation))
            }
            _ => Err(self.failed(error, "CREATE on it, or on the cluster,", Awaited::Creation)),
        }
    }

    /// Takes the topic as it is.
    async fn take(&mut self, topic: &Topic) -> Result<Provisioned, Setback> {
        let partition_count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let configs = match self.configs().await {
            // It was deleted at this moment, or the broker that was asked has not heard of it.
            Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {
                self.hindrance = Some(Box::new(error));
                return Err(Setback::Wait(Awaited::Topic));
            }
            Err(error) if passes(&error) => {
                self.hindrance = Some(Box::new(error));
                return Err(Setback::Wait(Awaited::Configs));
            }
            configs => configs,
        };
        let batch_bytes_max = configs.as_ref().ok().and_then(|configs| value(configs, MAX_MESSAGE_BYTES));
        Ok(Provisioned {
            topic_id: topic.id,
            partition_count,
            batch_bytes_max: batch_bytes_max.and_then(|bytes| bytes.parse().ok()),
            deviations: if self.created { Vec::new() } else { deviations(self.config, topic, &configs) },
        })
    }

    async fn configs(&self) -> Result<Vec<ConfigEntry>, SendError> {
        let keys = [CLEANUP_POLICY.0, RETENTION_MS.0, RETENTION_BYTES.0, MIN_ISR, MAX_MESSAGE_BYTES];
        let query = ConfigQuery::topic(&*self.topic).only(keys);
        let mut results = self.admin.describe_configs(&[query], self.deadline).await?;
        results.pop().expect("one query has one result")
    }

    /// Lets the topic in, or not.
    fn judge(&self, provisioned: Provisioned) -> Result<Provisioned, StartLogError> {
        let deviations = &provisioned.deviations;
        if deviations.is_empty() {
            return Ok(provisioned);
        }
        let topic = &self.topic;
        match self.config.on_deviation {
            OnDeviation::Strict => {
                let (topic, deviations) = (Arc::clone(topic), provisioned.deviations);
                return Err(StartLogError::Deviates { topic, deviations });
            }
            OnDeviation::Warn => {
                tracing::warn!(%topic, "the metadata topic is not as configured: {}", Listed(deviations));
            }
            OnDeviation::Adopt => {}
        }
        Ok(provisioned)
    }

    fn unreachable(&mut self, error: RefreshError) -> Setback {
        // The last attempt can begin so late that it learns nothing: the one before it says what hindered.
        let learnt_nothing = matches!(error, RefreshError::Deadline { source: None, .. });
        let before = self.hindrance.take();
        let setback = self.failed(SendError::Refresh(error), "to connect", Awaited::Metadata);
        if learnt_nothing && before.is_some() {
            self.hindrance = before;
        }
        setback
    }

    /// What a failure comes to; `right` is what the question takes.
    fn failed(&mut self, error: SendError, right: &'static str, awaited: Awaited) -> Setback {
        let (topic, source) = (Arc::clone(&self.topic), Box::new(error));
        if is_forbidden(&source) {
            return Setback::Final(Box::new(StartLogError::Forbidden { topic, right, source }));
        }
        if !passes(&source) {
            return Setback::Final(Box::new(StartLogError::Refused { topic, source }));
        }
        self.hindrance = Some(source);
        Setback::Wait(awaited)
    }
}

fn is_forbidden(error: &SendError) -> bool {
    matches!(error.code(), Some(ErrorCode::TopicAuthorizationFailed | ErrorCode::ClusterAuthorizationFailed))
}

/// True for what passes by itself, and where nobody knows what came of it: the next look tells.
fn passes(error: &SendError) -> bool {
    error.may_have_been_sent()
        || !matches!(error.recovery(), Recovery::Authenticate | Recovery::Forbidden | Recovery::Fail)
}

fn value<'a>(configs: &'a [ConfigEntry], name: &str) -> Option<&'a str> {
    configs.iter().find(|config| config.name == name)?.value.as_deref()
}

/// Where a topic is not as it would have been created.
fn deviations(
    config: &KafkaMetadataLogConfig,
    topic: &Topic,
    configs: &Result<Vec<ConfigEntry>, SendError>,
) -> Vec<TopicDeviation> {
    let mut found = Vec::new();
    let mut differs = |setting, wanted: &dyn ToString, found_value: &dyn ToString| {
        let (wanted, value) = (wanted.to_string(), found_value.to_string());
        found.push(TopicDeviation::Differs { setting, wanted, found: value });
    };
    let partitions = topic.partitions.len();
    if usize::try_from(config.num_partitions) != Ok(partitions) {
        differs("partitions", &config.num_partitions, &partitions);
    }
    // More of them are no worse.
    let replicas = topic.partitions.iter().map(|partition| partition.replicas.len()).min().unwrap_or(0);
    if usize::try_from(config.replication).is_ok_and(|wanted| replicas < wanted) {
        differs("replicas", &config.replication, &replicas);
    }
    let min_isr = config.min_isr.to_string();
    let wanted = [(MIN_ISR, &*min_isr), CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES];
    let mut settings = Vec::new();
    for (setting, wanted) in wanted {
        match configs.as_ref().map(|configs| value(configs, setting)) {
            Ok(Some(value)) if value == wanted => {}
            Ok(Some(value)) => differs(setting, &wanted, &value),
            Ok(None) | Err(_) => settings.push(setting),
        }
    }
    if !settings.is_empty() {
        let reason = match configs {
            Ok(_) => "the broker does not tell".to_owned(),
            Err(error) if is_forbidden(error) => {
                "the right DESCRIBE_CONFIGS on the topic is missing".to_owned()
            }
            Err(error) => error.to_string(),
        };
        found.push(TopicDeviation::NotChecked { settings, reason });
    }
    found
}

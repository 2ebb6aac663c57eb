//! DescribeConfigs: a broker's own from that broker, all else from any.

use std::collections::HashMap;

use strandline_meta::routing::{ResourceKind, Subject};
use strandline_meta::{Call, ItemAnswer, Routed};
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
};
use tokio::time::Instant;

use super::{Admin, Results};

/// Whose configs are wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigQuery {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name; of a broker the id.
    pub name: String,
    /// The keys wanted; `None` for all.
    pub keys: Option<Vec<String>>,
}

impl ConfigQuery {
    /// All configs of a topic.
    pub fn topic(name: impl Into<String>) -> Self {
        Self { kind: ResourceKind::Topic, name: name.into(), keys: None }
    }

    /// All configs of a broker.
    pub fn broker(node_id: i32) -> Self {
        Self { kind: ResourceKind::Broker, name: node_id.to_string(), keys: None }
    }

    /// Only these keys.
    #[must_use]
    pub fn only<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys = Some(keys.into_iter().map(Into::into).collect());
        self
    }
}

/// One config with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The key.
    pub name: String,
    /// The value; `None` where the broker withholds it (a secret) or knows none.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// True where it cannot be changed while the broker runs.
    pub read_only: bool,
    /// True where the value is a secret.
    pub sensitive: bool,
}

/// Where a config's value comes from. Source: `org.apache.kafka.clients.admin.ConfigEntry.ConfigSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for this topic.
    Topic,
    /// Set for this broker while it ran.
    DynamicBroker,
    /// Set for all brokers while they ran.
    DynamicDefaultBroker,
    /// From the broker's properties file.
    StaticBroker,
    /// Nobody set it.
    Default,
    /// The level of a logger.
    DynamicBrokerLogger,
    /// Set for this subscription to client metrics.
    ClientMetrics,
    /// Set for this group.
    Group,
    /// A number that Kafka 4.4 does not know, or none (a broker that does not say).
    Other(i8),
}

impl From<i8> for ConfigSource {
    fn from(source: i8) -> Self {
        match source {
            1 => Self::Topic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicDefaultBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::DynamicBrokerLogger,
            7 => Self::ClientMetrics,
            8 => Self::Group,
            other => Self::Other(other),
        }
    }
}

impl Admin {
    /// The configs of topics, brokers and other resources, by name of the key.
    ///
    /// # Errors
    /// Per query: the resource is unknown (3), its configs may not be read (29 for a topic, 31 for a broker), or its broker
    /// cannot be reached until `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn describe_configs(
        &self,
        queries: &[ConfigQuery],
        deadline: Instant,
    ) -> Results<Vec<ConfigEntry>> {
        self.cluster().send_each(&DescribeConfigs, queries, deadline).await
    }
}

pub(super) struct DescribeConfigs;

impl Call for DescribeConfigs {
    type Request = DescribeConfigsRequest;
    type Item = ConfigQuery;
    type Answer = Vec<ConfigEntry>;

    fn subject(&self, item: &ConfigQuery) -> Subject {
        Subject::Resource { kind: item.kind, name: item.name.clone() }
    }

    fn request(&self, items: &[Routed<'_, ConfigQuery>], _version: i16) -> DescribeConfigsRequest {
        let resources = items.iter().map(|routed| DescribeConfigsResource {
            resource_type: routed.item.kind.code(),
            resource_name: routed.item.name.clone(),
            configuration_keys: routed.item.keys.clone(),
            ..DescribeConfigsResource::default()
        });
        DescribeConfigsRequest { resources: resources.collect(), ..DescribeConfigsRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, ConfigQuery>],
        response: DescribeConfigsResponse,
    ) -> Vec<ItemAnswer<Vec<ConfigEntry>>> {
        let told: HashMap<(i8, &str), _> = response
            .results
            .iter()
            .map(|result| ((result.resource_type, result.resource_name.as_str()), result))
            .collect();
        let answer = |routed: &Routed<'_, ConfigQuery>| match told
            .get(&(routed.item.kind.code(), routed.item.name.as_str()))
        {
            None => ItemAnswer::LeftOut,
            Some(result) if result.error_code != ErrorCode::None => {
                ItemAnswer::Code(result.error_code, result.error_message.clone())
            }
            Some(result) => {
                let mut entries: Vec<ConfigEntry> = result.configs.iter().map(entry).collect();
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                ItemAnswer::Answer(entries)
            }
        };
        items.iter().map(answer).collect()
    }
}

fn entry(config: &DescribeConfigsResourceResult) -> ConfigEntry {
    ConfigEntry {
        name: config.name.clone(),
        value: config.value.clone(),
        source: config.config_source.into(),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
    }
}

//! CreateTopics.

use strandline_meta::routing::Subject;
use strandline_meta::{Call, ItemAnswer, Routed, SendError, TopicId};
use strandline_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use strandline_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::Admin;

/// A topic that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions, at least 1.
    pub num_partitions: i32,
    /// How many replicas of each, at least 1.
    pub replication: i16,
    /// Its configs, by key; all others are the brokers' defaults.
    pub configs: Vec<(String, String)>,
}

/// A topic that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its name.
    pub name: String,
    /// Its id; `None` from brokers older than Kafka 2.8.
    pub id: Option<TopicId>,
}

impl Admin {
    /// Creates a topic, and waits until the cluster has it. Brokers may hear of it a moment later.
    ///
    /// # Errors
    /// The broker's refusal: the topic exists already (36), more replicas than brokers are wanted (38), a right is missing
    /// (29), and others. Where the answer was lost, or a broker does not know either, the topic may have been created all
    /// the same: that is told and not repeated.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer; the topic may be created or not.
    pub async fn create_topic(&self, topic: &NewTopic, deadline: Instant) -> Result<CreatedTopic, SendError> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let call = CreateTopics { timeout_ms: super::wire_ms(timeout) };
        let mut results = self.cluster().send_each(&call, std::slice::from_ref(topic), deadline).await?;
        results.pop().expect("one item has one result")
    }
}

pub(super) struct CreateTopics {
    pub(super) timeout_ms: i32,
}

impl Call for CreateTopics {
    type Request = CreateTopicsRequest;
    type Item = NewTopic;
    type Answer = CreatedTopic;

    fn subject(&self, _topic: &NewTopic) -> Subject {
        Subject::Cluster
    }

    fn request(&self, items: &[Routed<'_, NewTopic>], _version: i16) -> CreateTopicsRequest {
        let config = |(name, value): &(String, String)| CreatableTopicConfig {
            name: name.clone(),
            value: Some(value.clone()),
            ..CreatableTopicConfig::default()
        };
        let topics = items.iter().map(|routed| CreatableTopic {
            name: routed.item.name.clone(),
            num_partitions: routed.item.num_partitions,
            replication_factor: routed.item.replication,
            configs: routed.item.configs.iter().map(config).collect(),
            ..CreatableTopic::default()
        });
        CreateTopicsRequest {
            topics: topics.collect(),
            timeout_ms: self.timeout_ms,
            validate_only: false,
            ..CreateTopicsRequest::default()
        }
    }

    fn answers(
        &self,
        items: &[Routed<'_, NewTopic>],
        response: CreateTopicsResponse,
    ) -> Vec<ItemAnswer<CreatedTopic>> {
        let answer = |routed: &Routed<'_, NewTopic>| match response
            .topics
            .iter()
            .find(|result| result.name == routed.item.name)
        {
            None => ItemAnswer::LeftOut,
            Some(CreatableTopicResult { error_code: ErrorCode::None, topic_id, name, .. }) => {
                let id = Some(*topic_id).filter(|id| *id != Uuid::ZERO).map(TopicId);
                ItemAnswer::Answer(CreatedTopic { name: name.clone(), id })
            }
            Some(result) => ItemAnswer::Code(result.error_code, result.error_message.clone()),
        };
        items.iter().map(answer).collect()
    }
}

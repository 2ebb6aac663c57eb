//! Appending to the topic: one producer for all partitions, and what its answers say to a publisher.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use strandline_client::producer::{
    Outcome, ProduceError, ProduceErrorKind, Producer, ProducerRecord, RecordMetadata,
};
use strandline_meta::{Cluster, ErrorCode, SendError, TopicView};
use strandline_protocol::TopicId;
use tokio::time::{Instant, timeout_at};

use crate::publish::{FRAME_BYTES_MAX, PublishError};

/// Appends to one topic.
#[derive(Debug)]
pub(super) struct Publisher {
    producer: Producer,
    cluster: Cluster,
    topic: Arc<str>,
    topic_id: Option<TopicId>,
    partition_count: i32,
    /// The most bytes of a value that the topic took when the log was opened.
    pub(super) value_bytes_max: Option<usize>,
    /// Within so long every record has its answer, whatever its publisher's deadline.
    delivery_timeout: Duration,
}

impl Publisher {
    /// `batch_bytes_max` is the topic's `max.message.bytes`.
    pub(super) fn new(
        producer: Producer,
        cluster: &Cluster,
        (topic, topic_id): (Arc<str>, Option<TopicId>),
        partition_count: i32,
        batch_bytes_max: Option<usize>,
        delivery_timeout: Duration,
    ) -> Self {
        // The name alone could lead to a topic that was created anew between now and the first event.
        if let Some(id) = topic_id {
            producer.bind_topic(&topic, id);
        }
        Self {
            producer,
            cluster: cluster.clone(),
            topic,
            topic_id,
            partition_count,
            value_bytes_max: batch_bytes_max.map(|bytes| bytes.saturating_sub(FRAME_BYTES_MAX)),
            delivery_timeout,
        }
    }

    pub(super) async fn publish(
        &self,
        partition: i32,
        value: Bytes,
        deadline: Instant,
    ) -> Result<i64, PublishError> {
        let began = Instant::now();
        if !(0..self.partition_count).contains(&partition) {
            return Err(PublishError::NoSuchPartition { partition, partition_count: self.partition_count });
        }
        let no_time = |waited| PublishError::NotWritten { partition, waited, source: None };
        if began >= deadline {
            return Err(no_time(Duration::ZERO));
        }
        loop {
            let error = match self.try_once(partition, &value, deadline).await {
                Ok(Ok(RecordMetadata { offset, .. })) => return Ok(offset),
                Ok(Err(error)) => error,
                Err(NoRoom) => return Err(no_time(began.elapsed())),
            };
            // The producer gives up sooner than this publisher wants to: what is not written for certain goes again.
            let gave_up = matches!(error.kind, ProduceErrorKind::Deadline { .. });
            if gave_up && error.outcome == Outcome::NotWritten && Instant::now() < deadline {
                continue;
            }
            return Err(self.told(partition, value.len(), began, error));
        }
    }

    /// One record's way through the producer, taken back at the deadline.
    async fn try_once(
        &self,
        partition: i32,
        value: &[u8],
        deadline: Instant,
    ) -> Result<Result<RecordMetadata, ProduceError>, NoRoom> {
        let record =
            ProducerRecord { topic: &self.topic, partition, value: Some(value), ..ProducerRecord::default() };
        let mut delivery = match timeout_at(deadline, self.producer.send(record)).await {
            Ok(Ok(delivery)) => delivery,
            Ok(Err(error)) => return Ok(Err(error)),
            Err(_) => return Err(NoRoom),
        };
        match timeout_at(deadline, &mut delivery).await {
            Ok(answer) => Ok(answer),
            Err(_) => Ok(self.producer.take_back(delivery)),
        }
    }

    /// What the producer's answer says to the publisher of an event.
    fn told(&self, partition: i32, bytes: usize, began: Instant, error: ProduceError) -> PublishError {
        let waited = began.elapsed();
        match error.outcome {
            Outcome::Written => return PublishError::NoOffset { partition, source: Box::new(error) },
            Outcome::Unknown => {
                return PublishError::Unknown { partition, waited, source: Some(Box::new(error)) };
            }
            Outcome::NotWritten => {}
        }
        if let Some(right) = missing_right(&error.kind) {
            return PublishError::Forbidden { partition, right };
        }
        match &error.kind {
            ProduceErrorKind::Closed => PublishError::Closed,
            ProduceErrorKind::TooLarge { .. } => {
                PublishError::TooLarge { bytes, bytes_max: self.value_bytes_max.filter(|max| *max < bytes) }
            }
            ProduceErrorKind::LargerThanBuffer { bytes: needed, buffer_memory } => {
                let frame = needed.saturating_sub(bytes);
                PublishError::TooLarge { bytes, bytes_max: Some(buffer_memory.saturating_sub(frame)) }
            }
            ProduceErrorKind::Recreated { .. } => PublishError::Recreated { topic: Arc::clone(&self.topic) },
            ProduceErrorKind::Cluster { .. } if self.is_recreated() => {
                PublishError::Recreated { topic: Arc::clone(&self.topic) }
            }
            _ => PublishError::NotWritten { partition, waited, source: Some(Box::new(error)) },
        }
    }

    /// True if the view shows another topic of this name, or none. A producer that has names alone cannot tell.
    fn is_recreated(&self) -> bool {
        match self.cluster.snapshot().topic_view(&self.topic) {
            TopicView::Known(topic) => topic.id != self.topic_id,
            TopicView::Refused { code, .. } => code == ErrorCode::UnknownTopicOrPartition,
            TopicView::NotAsked => false,
        }
    }

    /// Accepts no further event, and returns when every accepted event has its answer, which takes no longer than the delivery timeout.
    pub(super) async fn close(&self) {
        self.producer.close(Instant::now() + self.delivery_timeout).await;
    }
}

/// The deadline passed before the producer had room for the record.
struct NoRoom;

/// The right whose lack an answer tells. To be given a producer id takes WRITE on some topic, or IDEMPOTENT_WRITE on the
/// cluster; the former is needed anyway.
///
/// Source: `KafkaApis#handleInitProducerIdRequest`.
fn missing_right(kind: &ProduceErrorKind) -> Option<&'static str> {
    match kind {
        ProduceErrorKind::Refused { code: ErrorCode::TopicAuthorizationFailed, .. } => Some("WRITE"),
        ProduceErrorKind::NoProducerId { source } if is_forbidden(source) => Some("WRITE"),
        // Whoever may not even see the topic is told by Metadata.
        ProduceErrorKind::Cluster { source } if is_forbidden(source) => Some("DESCRIBE"),
        _ => None,
    }
}

fn is_forbidden(error: &SendError) -> bool {
    matches!(error.code(), Some(ErrorCode::TopicAuthorizationFailed | ErrorCode::ClusterAuthorizationFailed))
}

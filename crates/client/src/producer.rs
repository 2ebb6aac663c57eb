//! Writing records: idempotent, acknowledged by every replica in sync, each into the partition that its caller chose.
//!
//! [`Producer::send`] accepts a record, as soon as there is room for it, and gives a [`Delivery`]: a future of the record's
//! offset, or of a [`ProduceError`] whose [`Outcome`] says whether the record is in the log: `not written`, or `unknown`
//! where it was sent and nobody told what became of it. Every accepted record has its answer within
//! [`delivery_timeout`](ProducerConfig::delivery_timeout).
//!
//! Within its partition a record comes into the log at most once, and behind all that were accepted before it. A record that
//! fails does not stop those behind it: who needs that sends the next one after the answer.
//!
//! Where is the thing that …? What is done next, without socket and clock: `core.rs`. What an error code comes to: the table
//! in `verdict.rs`. What goes over the wire: `request.rs`. The task: `task.rs`.
//!
//! Not here: transactions, a partitioner.

mod batch;
mod config;
mod core;
mod errors;
mod partition;
mod record;
mod request;
mod task;
mod verdict;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use strandline_meta::{Cluster, TopicId};
use strandline_protocol::records::NewRecord;
use tokio::sync::{TryAcquireError, oneshot, watch};
use tokio::time::Instant;

pub use config::{
    Compression, DEFAULT_BATCH_SIZE, DEFAULT_BUFFER_MEMORY, DEFAULT_DELIVERY_TIMEOUT,
    DEFAULT_MAX_IN_FLIGHT_REQUESTS, DEFAULT_MAX_REQUEST_SIZE, ProducerConfig, ProducerConfigError,
};
pub use errors::{Outcome, ProduceError, ProduceErrorKind};
pub use record::{Delivery, ProducerRecord, RecordMetadata};

use self::core::Core;
use task::{Shared, Task, Waiter};

/// The longest topic name that Kafka allows.
///
/// Source: `org.apache.kafka.common.internals.Topic`.
const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Writes records; cheap to clone, and all clones are one producer.
///
/// The cluster must be a [read-write](strandline_meta::ClusterConfig::read_write) one. When the last clone is dropped, what
/// was accepted is still delivered; [`close`](Self::close) waits for that.
///
/// ```no_run
/// use std::time::Duration;
/// use strandline_client::producer::{Producer, ProducerConfig, ProducerRecord};
/// use tokio::time::Instant;
///
/// # async fn example(cluster: &strandline_meta::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// let producer = Producer::start(cluster, ProducerConfig::default())?;
/// let record = ProducerRecord { topic: "orders", partition: 0, value: Some(b"ten apples"), ..Default::default() };
/// // Two waits: for room, and for the answer. Records share batches where their answers are awaited together.
/// let delivery = producer.send(record).await?;
/// println!("written at offset {}", delivery.await?.offset);
/// producer.close(Instant::now() + Duration::from_secs(30)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    config: Arc<ProducerConfig>,
    /// Ends with the task.
    alive: watch::Receiver<()>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close(None);
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Producer {
    /// Starts a producer; asks nobody anything until the first record comes.
    ///
    /// # Errors
    /// A setting with which no record could be delivered.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(cluster: &Cluster, config: ProducerConfig) -> Result<Self, ProducerConfigError> {
        config.check()?;
        let seed = config.jitter_seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let shared = Arc::new(Shared::new(Core::new(config.clone(), seed), config.buffer_memory));
        let config = Arc::new(config);
        let (alive_sender, alive) = watch::channel(());
        let task = Task {
            shared: Arc::clone(&shared),
            cluster: cluster.clone(),
            config: Arc::clone(&config),
            alive: alive_sender,
        };
        tokio::spawn(task.run());
        Ok(Self(Arc::new(Handle { shared, config, alive })))
    }

    /// Accepts a record, and waits for room first where [`buffer_memory`](ProducerConfig::buffer_memory) is used up.
    ///
    /// Records of one partition are written in the order in which they were accepted. Senders that wait for room get it in
    /// the order in which they came.
    ///
    /// # Errors
    /// The record was not accepted: the producer is closed, the record is larger than all its memory, or no topic can have
    /// the name. All else comes with the [`Delivery`].
    ///
    /// # Cancel safety
    /// Dropped while it waits for room, it has not accepted the record.
    pub async fn send(&self, record: ProducerRecord<'_>) -> Result<Delivery, ProduceError> {
        let bytes = self.memory_of(&record)?;
        if !self.take_room(&record, bytes)? {
            let room = self.0.shared.room.acquire_many(bytes).await;
            room.map_err(|_| not_accepted(&record, ProduceErrorKind::Closed))?.forget();
        }
        self.accept(&record, bytes)
    }

    /// As [`send`](Self::send), without a wait: `None` where there is no room.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&self, record: ProducerRecord<'_>) -> Result<Option<Delivery>, ProduceError> {
        let bytes = self.memory_of(&record)?;
        if !self.take_room(&record, bytes)? {
            return Ok(None);
        }
        self.accept(&record, bytes).map(Some)
    }

    /// Takes room for the record if there is some; where there is none, batches are sent sooner.
    fn take_room(&self, record: &ProducerRecord<'_>, bytes: u32) -> Result<bool, ProduceError> {
        match self.0.shared.room.try_acquire_many(bytes) {
            Ok(room) => room.forget(),
            Err(TryAcquireError::Closed) => return Err(not_accepted(record, ProduceErrorKind::Closed)),
            Err(TryAcquireError::NoPermits) => {
                self.hurry();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn memory_of(&self, record: &ProducerRecord<'_>) -> Result<u32, ProduceError> {
        let (bytes, buffer_memory) = (record.memory_bytes(), self.0.config.buffer_memory);
        if record.topic.is_empty() || record.topic.len() > TOPIC_NAME_BYTES_MAX {
            return Err(not_accepted(record, ProduceErrorKind::NotATopicName));
        }
        match u32::try_from(bytes) {
            Ok(needed) if bytes <= buffer_memory => Ok(needed),
            _ => Err(not_accepted(record, ProduceErrorKind::LargerThanBuffer { bytes, buffer_memory })),
        }
    }

    /// Whoever waits for room waits for what lingers.
    fn hurry(&self) {
        if !self.0.config.linger.is_zero() {
            self.0.shared.state().core.flush(Instant::now());
            self.0.shared.wake.notify_one();
        }
    }

    fn accept(&self, record: &ProducerRecord<'_>, bytes: u32) -> Result<Delivery, ProduceError> {
        let ProducerRecord { topic, partition, key, value, headers, .. } = *record;
        let timestamp_ms = record.timestamp_ms.unwrap_or_else(wall_clock_ms);
        let (sender, answer) = oneshot::channel();
        let new = NewRecord { timestamp_ms, key, value, headers };
        let shared = &self.0.shared;
        let (number, accepted) = {
            let mut state = shared.state();
            state.accepted += 1;
            let number = state.accepted;
            let waiter = Waiter { answer: sender, bytes, number };
            (number, state.core.push(Instant::now(), (topic, partition), new, bytes as usize, waiter))
        };
        match accepted {
            Ok((topic, news)) => {
                if news {
                    shared.wake.notify_one();
                }
                Ok(Delivery { topic, partition, number, answer })
            }
            Err(kind) => {
                shared.room.add_permits(bytes as usize);
                Err(not_accepted(record, kind))
            }
        }
    }

    /// Lets a topic's records go to the topic of this id alone: where the name has another one, they are refused with
    /// [`ProduceErrorKind::Recreated`]. Without this it is the topic that the first record finds.
    pub fn bind_topic(&self, topic: &str, id: TopicId) {
        self.0.shared.state().core.bind_topic(topic, id);
    }

    /// Gives up waiting for an answer, and says what is true at this moment: the answer, if it has come; `not written`, if
    /// the record is in no request and so never will be; else `unknown`, and the record is delivered or not.
    ///
    /// # Errors
    /// As the delivery's own; [`ProduceErrorKind::TakenBack`] where it had no answer yet.
    pub fn take_back(&self, mut delivery: Delivery) -> Result<RecordMetadata, ProduceError> {
        let Delivery { number, partition, .. } = delivery;
        let (outcome, source) = {
            let mut state = self.0.shared.state();
            // Answers are given under no lock: one that is on its way comes first.
            if let Ok(answer) = delivery.answer.try_recv() {
                return answer;
            }
            state.core.take_back(&delivery.topic, partition, |waiter| waiter.number == number)
        };
        let answer = delivery.answer.try_recv();
        answer.unwrap_or_else(|_| {
            let kind = ProduceErrorKind::TakenBack { source };
            Err(ProduceError { topic: delivery.topic, partition, outcome, kind })
        })
    }

    /// Sends what lingers, and returns when every record accepted before this call has its answer.
    ///
    /// # Cancel safety
    /// A dropped call has sent what lingered; no answer is lost.
    pub async fn flush(&self) {
        let flushed = {
            let mut state = self.0.shared.state();
            let flush = state.core.flush(Instant::now());
            if state.core.flushed(flush) {
                return;
            }
            let (sender, flushed) = oneshot::channel();
            state.flushes.push((flush, sender));
            flushed
        };
        self.0.shared.wake.notify_one();
        // Ends without a word where the task ends, which leaves nothing unanswered either.
        let _ = flushed.await;
    }

    /// Accepts no further record from any clone, delivers what was accepted, and returns when every record has its answer
    /// and nothing is left running. At `deadline` whatever is left is given up: its answer says whether it was sent.
    ///
    /// # Cancel safety
    /// A dropped call has closed the producer all the same, with this deadline.
    pub async fn close(&self, deadline: Instant) {
        self.0.shared.close(Some(deadline));
        // It never changes: the error says that the task has ended.
        let _ = self.0.alive.clone().changed().await;
    }

    /// Bytes of [`buffer_memory`](ProducerConfig::buffer_memory) that are free at the moment. Never waits.
    pub fn free_memory(&self) -> usize {
        self.0.shared.room.available_permits()
    }
}

fn not_accepted(record: &ProducerRecord<'_>, kind: ProduceErrorKind) -> ProduceError {
    ProduceError {
        topic: record.topic.into(),
        partition: record.partition,
        outcome: Outcome::NotWritten,
        kind,
    }
}

fn wall_clock_ms() -> i64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

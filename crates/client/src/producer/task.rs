//! The task of a producer: it carries out what the core says, and tells it what came of that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use strandline_conn::RetryEvent;
use strandline_meta::routing::Subject;
use strandline_meta::{ApiKey, Cluster, ClusterSnapshot, ItemAnswer, RefreshError, SendError};
use strandline_protocol::messages::InitProducerIdRequest;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::config::ProducerConfig;
use super::core::{Answered, Core, Outgoing, Part, PartFailure, PartResult, Place, Refresh, Retry, Work};
use super::errors::ProduceError;
use super::record::RecordMetadata;
use super::request::{Encoded, Produce};

/// Who waits for a record's answer, and what its end gives back.
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Result<RecordMetadata, ProduceError>>,
    pub(super) bytes: u32,
    /// By which its delivery knows it.
    pub(super) number: u64,
}

/// What the handles and the task share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something new is to be done.
    pub(super) wake: Notify,
    /// Bytes of `buffer_memory` that are free.
    pub(super) room: Semaphore,
}

pub(super) struct State {
    pub(super) core: Core<Waiter>,
    /// Records accepted so far.
    pub(super) accepted: u64,
    /// Who waits for which flush.
    pub(super) flushes: Vec<(u64, oneshot::Sender<()>)>,
    /// When whatever has no answer yet is given up.
    pub(super) close_by: Option<Instant>,
}

impl Shared {
    pub(super) fn new(core: Core<Waiter>, buffer_memory: usize) -> Self {
        let state = State { core, accepted: 0, flushes: Vec::new(), close_by: None };
        Self { state: Mutex::new(state), wake: Notify::new(), room: Semaphore::new(buffer_memory) }
    }

    /// Held for a few lines, never across a wait.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // The core has no state that a panic could leave half-made and that would be worse than no answer.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts no further record; what was accepted is delivered, and given up at `by`.
    pub(super) fn close(&self, by: Option<Instant>) {
        let mut state = self.state();
        state.core.close(Instant::now());
        state.close_by = state.close_by.into_iter().chain(by).min();
        drop(state);
        self.room.close();
        self.wake.notify_one();
    }

    /// Gives answers to those who wait for them, and their room back.
    fn deliver(&self, answers: Vec<Answered<Waiter>>) {
        let mut bytes = 0;
        for Answered { waiters, result } in answers {
            for (waiter, number) in waiters.into_iter().zip(0..) {
                bytes += waiter.bytes as usize;
                let answer = result.clone().map(|appended| RecordMetadata {
                    topic: appended.topic,
                    partition: appended.partition,
                    offset: appended.base_offset + number,
                    log_append_time_ms: appended.log_append_time_ms,
                });
                // Nobody may be interested.
                let _ = waiter.answer.send(answer);
            }
        }
        self.room.add_permits(bytes);
    }
}

/// What came of something that the core wanted.
enum Happened {
    Answered(u64, Vec<PartResult>),
    Refreshed(Vec<usize>, Result<(), RefreshError>),
    ProducerId(Result<(i64, i16), SendError>),
}

pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: Cluster,
    pub(super) config: Arc<ProducerConfig>,
    /// Dropped when the task has ended.
    pub(super) alive: watch::Sender<()>,
}

impl Task {
    /// Runs until the producer is closed and every record has its answer.
    pub(super) async fn run(self) {
        let mut under_way: FuturesUnordered<BoxFuture<'static, Happened>> = FuturesUnordered::new();
        loop {
            let (work, timer) = {
                let mut state = self.shared.state();
                let now = Instant::now();
                if state.close_by.is_some_and(|by| by <= now) {
                    return;
                }
                let view = self.cluster.snapshot();
                let work = state.core.poll(now, |topic, partition| place(&view, topic, partition));
                self.settle_accounts(state);
                let state = self.shared.state();
                if state.core.is_done() {
                    return;
                }
                (work, state.core.next_timer().into_iter().chain(state.close_by).min())
            };
            self.begin(work, &under_way);
            // `select!` drops the arms that lose; none of these loses anything when dropped.
            tokio::select! {
                () = self.shared.wake.notified() => {}
                Some(happened) = under_way.next() => {
                    self.happened(happened);
                    // What has ended at the same time is taken in before the next look at what to do.
                    while let Some(Some(happened)) = under_way.next().now_or_never() {
                        self.happened(happened);
                    }
                }
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {}
            }
        }
    }

    /// Gives out answers, outside of the lock.
    fn settle_accounts(&self, mut state: MutexGuard<'_, State>) {
        let answers = state.core.take_answers();
        let State { core, flushes, .. } = &mut *state;
        let flushed = flushes.extract_if(.., |(flush, _)| core.flushed(*flush)).collect::<Vec<_>>();
        drop(state);
        self.shared.deliver(answers);
        for (_, waiter) in flushed {
            let _ = waiter.send(());
        }
    }

    fn happened(&self, happened: Happened) {
        let mut state = self.shared.state();
        let now = Instant::now();
        match happened {
            Happened::Answered(number, results) => state.core.answered(now, number, results),
            Happened::Refreshed(partitions, result) => state.core.refreshed(now, &partitions, result),
            Happened::ProducerId(result) => state.core.producer_id(now, result),
        }
    }

    fn begin(&self, work: Work, under_way: &FuturesUnordered<BoxFuture<'static, Happened>>) {
        for Retry { attempt, error, decision } in work.retries {
            let (recovery, error) = (error.recovery(), &*error);
            let event = RetryEvent { api: ApiKey::Produce, attempt, error, recovery, decision };
            self.cluster.observer().on_retry(&event);
        }
        for request in work.requests {
            under_way.push(send(self.cluster.clone(), Arc::clone(&self.config), request).boxed());
        }
        for refresh in work.refreshes {
            under_way.push(look_up(self.cluster.clone(), refresh).boxed());
        }
        if work.producer_id {
            under_way.push(producer_id(self.cluster.clone()).boxed());
        }
    }
}

impl Drop for Task {
    /// However the task ends, by its deadline or with the runtime, nobody is left without an answer.
    fn drop(&mut self) {
        self.shared.room.close();
        let mut state = self.shared.state();
        state.core.abandon();
        let answers = state.core.take_answers();
        let flushes = std::mem::take(&mut state.flushes);
        drop(state);
        self.shared.deliver(answers);
        drop(flushes);
        tracing::debug!(handles = self.alive.receiver_count(), "the producer has ended");
    }
}

fn place(view: &ClusterSnapshot, topic: &Arc<str>, partition: i32) -> Result<Place, SendError> {
    let node_id = view.leader(topic, partition)?;
    Ok(Place { node_id, topic_id: view.topic(topic).and_then(|topic| topic.id) })
}

async fn send(cluster: Cluster, config: Arc<ProducerConfig>, request: Outgoing) -> Happened {
    let Outgoing { number, node_id, parts } = request;
    let mut results: Vec<Option<PartResult>> = Vec::new();
    let mut items = Vec::new();
    for part in parts {
        match encode(&part) {
            Ok(records) => {
                results.push(None);
                items.push(Encoded { part, records });
            }
            Err(failure) => results.push(Some(Err(failure))),
        }
    }
    // A broker that waits for its followers has a last chance to say so before its connection is given up.
    let timeout_ms = i32::try_from(cluster.request_timeout().mul_f64(0.8).as_millis()).unwrap_or(i32::MAX);
    let by_name = items.iter().any(|item| item.part.topic_id.is_none());
    let call = Produce { timeout_ms, by_name };
    // One answer is waited for no longer than the cluster's request timeout; this is for what comes before, such as a pause
    // that the broker has asked for.
    let deadline = Instant::now() + config.delivery_timeout + cluster.request_timeout();
    let mut outcomes = cluster.send_once(&call, node_id, &items, deadline).await.into_iter();
    let mut outcome = || match outcomes.next() {
        Some(Ok(ItemAnswer::Answer(answer))) => Ok(answer),
        Some(Ok(ItemAnswer::Code(..) | ItemAnswer::LeftOut)) | None => Err(PartFailure::LeftOut),
        Some(Err(error)) => Err(PartFailure::Send(Arc::new(error))),
    };
    Happened::Answered(
        number,
        results.into_iter().map(|result| result.unwrap_or_else(&mut outcome)).collect(),
    )
}

fn encode(part: &Part) -> Result<Bytes, PartFailure> {
    let mut bytes = Vec::with_capacity(part.records.size_bytes());
    match part.records.finish_as(Some(part.producer), &mut bytes) {
        Ok(()) => Ok(bytes.into()),
        Err(error) => Err(PartFailure::Encode(Arc::new(error))),
    }
}

async fn look_up(cluster: Cluster, refresh: Refresh) -> Happened {
    let Refresh { repair, topics, partitions } = refresh;
    let deadline = Instant::now() + cluster.request_timeout();
    let refreshed = match repair {
        true => cluster.repair_topics(&topics, deadline).await,
        false => cluster.refresh_topics(&topics, deadline).await,
    };
    Happened::Refreshed(partitions, refreshed.map(drop))
}

async fn producer_id(cluster: Cluster) -> Happened {
    let deadline = Instant::now() + cluster.request_timeout();
    // Kafka's own client sends this timeout where there is no transaction.
    let ask = |_version| InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..InitProducerIdRequest::default()
    };
    let answer = match cluster.send(Subject::Transaction(None), ask, deadline).await {
        Ok(answer) if answer.error_code.is_error() => {
            Err(SendError::Code { peer: "a broker".to_owned(), code: answer.error_code, message: None })
        }
        Ok(answer) => Ok((answer.producer_id, answer.producer_epoch)),
        Err(error) => Err(error),
    };
    Happened::ProducerId(answer)
}

//! Reading many ranges at once: by leader, over dedicated connections, until each is done or has a typed error.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use strandline_client::reader::{Backoff, Step};
use strandline_conn::Recovery;
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::TopicId;
use strandline_protocol::messages::fetch::FetchResponse;
use strandline_protocol::records::Decompressor;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::KafkaMetadataLogConfig;
use super::brokers::{Brokers, Fetcher, TopicState};
use super::page::{After, Job, fetch_request};
use crate::range::{MetadataRange, PartitionMarks, RangeError, RangeVisit};
use crate::record::MetadataEventVisitor;

/// Answers that are asked for or held at the same time, over all brokers: this bounds memory.
const CONCURRENT_FETCHES_MAX: usize = 8;

/// What the tasks of one log share.
pub(super) struct Shared<B> {
    pub(super) brokers: B,
    pub(super) topic: Arc<str>,
    pub(super) topic_id: Option<TopicId>,
    pub(super) config: KafkaMetadataLogConfig,
    pub(super) fetches: Semaphore,
}

impl<B: Brokers> Shared<B> {
    pub(super) fn new(
        brokers: B,
        topic: Arc<str>,
        topic_id: Option<TopicId>,
        config: KafkaMetadataLogConfig,
    ) -> Self {
        Self { brokers, topic, topic_id, config, fetches: Semaphore::new(CONCURRENT_FETCHES_MAX) }
    }
}

/// Reads the ranges; one answer each, in their order.
///
/// A leader's partitions are spread over `connections_per_leader` connections, each with a task of its own, so that
/// one page is decoded while another one is on its way.
pub(super) async fn visit_ranges<B: Brokers, V: MetadataEventVisitor + 'static>(
    shared: &Arc<Shared<B>>,
    ranges: Vec<(MetadataRange, V)>,
) -> Vec<RangeVisit<V>> {
    let began = Instant::now();
    let time = Time { began, deadline: began + shared.config.read_timeout };
    let mut lanes: BTreeMap<(Option<i32>, usize, usize), Vec<Job<V>>> = BTreeMap::new();
    let mut per_leader: HashMap<Option<i32>, usize> = HashMap::new();
    let mut per_partition: HashMap<i32, usize> = HashMap::new();
    let state = shared.brokers.topic();
    for (index, (range, visitor)) in ranges.into_iter().enumerate() {
        let leader = leader_of(&state, range.partition).map(|(leader, _)| leader);
        let count = per_leader.entry(leader).or_default();
        let lane = *count % shared.config.connections_per_leader.get();
        *count += 1;
        // A request can name a partition once: a further range of it has connections of its own.
        let repetition = per_partition.entry(range.partition).or_default();
        let job = Job::new(index, range, visitor, began);
        lanes.entry((leader, *repetition, lane)).or_default().push(job);
        *repetition += 1;
    }
    // Dropped with this future: what was begun for a caller who is gone ends.
    let mut tasks = JoinSet::new();
    for jobs in lanes.into_values() {
        let shared = Arc::clone(shared);
        tasks.spawn(async move { drive(&shared, jobs, time).await });
    }
    let mut done = Vec::new();
    while let Some(jobs) = tasks.join_next().await {
        match jobs {
            Ok(jobs) => done.extend(jobs),
            // Only the visitor's own panic comes this way.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    done.sort_unstable_by_key(|job| job.index);
    done.into_iter().map(Job::into_visit).collect()
}

#[derive(Clone, Copy)]
struct Time {
    began: Instant,
    deadline: Instant,
}

pub(super) fn leader_of(state: &TopicState, partition: i32) -> Option<(i32, Option<i32>)> {
    let TopicState::Known { leaders, .. } = state else { return None };
    *leaders.get(usize::try_from(partition).ok()?)?
}

/// Reads until every job is finished: from the leaders of the moment, then, as long as some are left, after back-off
/// from those that a fresh view names.
async fn drive<B: Brokers, V: MetadataEventVisitor>(
    shared: &Shared<B>,
    mut jobs: Vec<Job<V>>,
    time: Time,
) -> Vec<Job<V>> {
    let config = &shared.config;
    let mut done = Vec::new();
    let mut backoff = Backoff::new(config.retry_backoff, None);
    loop {
        check_topic(shared, &mut jobs);
        let begun_at = Instant::now();
        settle(&mut jobs, &mut done, config.stall_timeout, time);
        if jobs.is_empty() {
            return done;
        }
        let state = shared.brokers.topic();
        let mut leaderless = Vec::new();
        let mut groups: BTreeMap<i32, Vec<Job<V>>> = BTreeMap::new();
        for mut job in jobs {
            match leader_of(&state, job.range.partition) {
                Some((leader, epoch)) => {
                    job.leader_epoch = epoch;
                    groups.entry(leader).or_default().push(job);
                }
                None => {
                    let (topic, partition) = (Arc::clone(&shared.topic), job.range.partition);
                    job.hindrance = Some(SendError::NoLeader { topic, partition });
                    leaderless.push(job);
                }
            }
        }
        let sessions = groups.into_iter().map(|(leader, jobs)| session(shared, leader, jobs, time));
        jobs = join_all(sessions).await.into_iter().flatten().chain(leaderless).collect();
        let moved = jobs.iter().any(|job| job.is_finished() || job.progress_at > begun_at);
        settle(&mut jobs, &mut done, config.stall_timeout, time);
        if jobs.is_empty() {
            return done;
        }
        if moved {
            backoff.reset();
        }
        wait(&mut backoff, time).await;
        repair(shared, &mut jobs, time).await;
    }
}

/// Moves finished jobs to `done`, and ends those whose time is up.
fn settle<V: MetadataEventVisitor>(
    jobs: &mut Vec<Job<V>>,
    done: &mut Vec<Job<V>>,
    stall_timeout: Duration,
    time: Time,
) {
    let now = Instant::now();
    for job in jobs.iter_mut().filter(|job| !job.is_finished()) {
        job.check_time(now, stall_timeout, time.began, time.deadline);
    }
    done.extend(jobs.extract_if(.., |job| job.is_finished()));
}

/// Ends the jobs that the view shows to be hopeless: the topic is gone or another one, the partition is not there.
pub(super) fn check_topic<B: Brokers, V: MetadataEventVisitor>(shared: &Shared<B>, jobs: &mut [Job<V>]) {
    let state = shared.brokers.topic();
    for job in jobs.iter_mut().filter(|job| !job.is_finished()) {
        let partition = job.range.partition;
        let gone = |now| RangeError::Recreated {
            partition,
            topic: Arc::clone(&shared.topic),
            known: shared.topic_id,
            now,
        };
        match &state {
            TopicState::Known { id, .. } if *id != shared.topic_id => job.fail(gone(*id)),
            TopicState::Known { .. } if partition < 0 => job.fail(RangeError::NoSuchPartition { partition }),
            TopicState::Known { leaders, .. } => {
                match usize::try_from(partition).is_ok_and(|partition| partition < leaders.len()) {
                    true => job.not_absent(),
                    false => job.absent(RangeError::NoSuchPartition { partition }),
                }
            }
            TopicState::Refused(ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId) => {
                job.absent(gone(None));
            }
            TopicState::Refused(ErrorCode::TopicAuthorizationFailed) => {
                job.fail(RangeError::Forbidden { partition, right: "DESCRIBE" });
            }
            // Any other code passes, or ends as a stall.
            TopicState::Refused(_) => {}
        }
    }
}

async fn repair<B: Brokers, V: MetadataEventVisitor>(shared: &Shared<B>, jobs: &mut [Job<V>], time: Time) {
    let by = time.deadline.min(Instant::now() + shared.config.request_timeout);
    if let Err(error) = shared.brokers.repair(by).await {
        hinder(jobs, &error);
        jobs.iter_mut().for_each(Job::not_absent);
    }
}

/// For how long the broker wants to be left alone (KIP-219).
pub(super) fn throttle_of(response: &FetchResponse) -> Duration {
    Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0))
}

/// True for what passes by itself, or once the view is fresh.
pub(super) fn passes(error: &SendError) -> bool {
    !matches!(error.recovery(), Recovery::Authenticate | Recovery::Forbidden | Recovery::Fail)
        // A broker that has left comes back, or its partitions move.
        || matches!(error, SendError::NoSuchBroker { .. })
}

/// Notes what hinders the jobs; what does not pass by itself ends them.
fn hinder<V: MetadataEventVisitor>(jobs: &mut [Job<V>], error: &SendError) {
    let passes = passes(error);
    for job in jobs.iter_mut().filter(|job| !job.is_finished()) {
        if passes {
            job.hindrance = Some(error.clone());
        } else {
            job.fail(RangeError::of_send(job.range.partition, error.clone(), "READ"));
        }
    }
}

async fn wait(backoff: &mut Backoff, time: Time) {
    sleep_until(time.deadline.min(Instant::now() + backoff.next_wait())).await;
}

/// Reads page after page from one leader. What comes back is finished, or has to look for its leader anew.
async fn session<B: Brokers, V: MetadataEventVisitor>(
    shared: &Shared<B>,
    leader: i32,
    mut jobs: Vec<Job<V>>,
    time: Time,
) -> Vec<Job<V>> {
    let config = &shared.config;
    let mut back = Vec::new();
    let by = |wait: Duration| time.deadline.min(Instant::now() + wait);
    let connection = match shared.brokers.dial(leader, by(config.request_timeout)).await {
        Ok(connection) => connection,
        Err(error) => {
            hinder(&mut jobs, &error);
            return jobs;
        }
    };
    let peer = format!("broker {leader}");
    let mut decompressor = Decompressor::default();
    let mut backoff = Backoff::new(config.retry_backoff, None);
    loop {
        settle(&mut jobs, &mut back, config.stall_timeout, time);
        if jobs.is_empty() {
            return back;
        }
        let permit = shared.fetches.acquire().await.expect("the semaphore is never closed");
        let wanted = jobs.iter().map(|job| job.wanted(config.fetch_max_bytes));
        let request = fetch_request(&shared.topic, shared.topic_id, wanted, config);
        let asked_at = Instant::now();
        let answer = connection.fetch(request, by(config.fetch_max_wait + config.request_timeout)).await;
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                hinder(&mut jobs, &error);
                back.extend(jobs);
                return back;
            }
        };
        let throttle = throttle_of(&response);
        // A leader that moved says where to (KIP-951).
        shared.brokers.learn_leaders(&response);
        let page = take_page(response, &peer, &mut jobs, &mut decompressor);
        drop(permit);
        back.extend(page.elsewhere);
        let mut outside = page.out_of_range;
        out_of_range(shared, &mut outside, by(config.request_timeout)).await;
        back.extend(outside);
        if page.moved {
            backoff.reset();
        } else if page.retry || (!jobs.is_empty() && asked_at.elapsed() < config.fetch_max_wait) {
            // Nothing, and sooner than was asked for: without a pause a broker that says so again and again, and at
            // once, would be asked as fast as it answers.
            wait(&mut backoff, time).await;
        }
        // Whoever has all, or looks for another leader, need not wait for this one.
        if !throttle.is_zero() && jobs.iter().any(|job| !job.is_finished()) {
            throttled(&mut jobs, &peer, throttle, page.moved, config.stall_timeout, time).await;
        }
    }
}

/// Waits as the broker wishes (KIP-219). After an answer with records the time it costs is no stall; after one without any
/// it counts, and is waited for until a job has stalled at the longest.
async fn throttled<V: MetadataEventVisitor>(
    jobs: &mut [Job<V>],
    peer: &str,
    throttle: Duration,
    moved: bool,
    stall_timeout: Duration,
    time: Time,
) {
    let wait_end = Instant::now() + throttle;
    if moved {
        sleep_until(time.deadline.min(wait_end)).await;
    } else {
        let stalls = jobs.iter().map(|job| job.progress_at + stall_timeout).min();
        sleep_until(stalls.map_or(wait_end, |stall| stall.min(wait_end)).min(time.deadline)).await;
    }
    for job in jobs.iter_mut() {
        if moved {
            job.progress_at += throttle;
        }
        if throttle >= stall_timeout || job.hindrance.is_none() {
            job.hindrance = Some(SendError::Throttled { peer: peer.to_owned(), wait: throttle });
        }
    }
}

/// What an answer made of the jobs that are not in their list any more.
struct Page<V> {
    /// Their leader has to be looked for.
    elsewhere: Vec<Job<V>>,
    /// Their offset is not in the leader's log.
    out_of_range: Vec<Job<V>>,
    /// Some position moved, or some job finished.
    moved: bool,
    /// Some partition asked for patience.
    retry: bool,
}

/// Gives each job its part of the answer. Jobs that got nothing come first in the next request.
fn take_page<V: MetadataEventVisitor>(
    response: FetchResponse,
    peer: &str,
    jobs: &mut Vec<Job<V>>,
    decompressor: &mut Decompressor,
) -> Page<V> {
    let mut page = Page { elsewhere: Vec::new(), out_of_range: Vec::new(), moved: false, retry: false };
    if Step::of(response.error_code) != Step::Read {
        let error = SendError::Code { peer: peer.to_owned(), code: response.error_code, message: None };
        hinder(jobs, &error);
        page.elsewhere.append(jobs);
        return page;
    }
    let now = Instant::now();
    let parts = response.responses.into_iter().flat_map(|topic| topic.partitions);
    let mut parts: HashMap<i32, _> = parts.map(|part| (part.partition_index, part)).collect();
    let (mut unserved, mut served) = (Vec::new(), Vec::new());
    for mut job in jobs.drain(..) {
        let after = match parts.remove(&job.range.partition) {
            Some(part) => job.take(part, peer, decompressor, now),
            None => {
                job.hindrance = Some(SendError::LeftOut { peer: peer.to_owned() });
                After::Retry
            }
        };
        page.moved |= matches!(after, After::Finished | After::Progress);
        page.retry |= after == After::Retry;
        match after {
            After::Finished | After::Progress => served.push(job),
            After::Nothing | After::Retry => unserved.push(job),
            After::Follow => page.elsewhere.push(job),
            After::OutOfRange => page.out_of_range.push(job),
        }
    }
    jobs.append(&mut unserved);
    jobs.append(&mut served);
    page
}

/// Ends the jobs whose offset is outside the log, or whose last epoch the log has left. Where the offset is inside, the
/// broker that said otherwise lags behind; one that goes on saying so ends the job, too.
pub(super) async fn out_of_range<B: Brokers, V: MetadataEventVisitor>(
    shared: &Shared<B>,
    jobs: &mut [Job<V>],
    deadline: Instant,
) {
    if jobs.is_empty() {
        return;
    }
    let partitions: Vec<_> = jobs.iter().map(|job| job.range.partition).collect();
    let marks = shared.brokers.marks(&partitions, deadline).await;
    for (job, marks) in jobs.iter_mut().zip(marks) {
        let offset = job.outcome.next_offset;
        match marks {
            Ok(marks) if (marks.log_start_offset..=marks.high_watermark).contains(&offset) => {
                inside(shared, job, marks, deadline).await;
            }
            Ok(marks) => job.fail(RangeError::OffsetOutOfRange {
                partition: marks.partition,
                offset,
                log_start_offset: marks.log_start_offset,
                end_offset: marks.high_watermark,
            }),
            // The bounds cannot be had at the moment: the leader is asked again.
            Err(RangeError::Cluster { source, .. }) if passes(&source) => job.hindrance = Some(*source),
            Err(error) => job.fail(error),
        }
    }
}

/// What it means that a leader refuses an offset that its log holds. It does so too where it does not know the epoch of
/// what was read last: retention has taken that epoch, or an election the records.
async fn inside<B: Brokers, V: MetadataEventVisitor>(
    shared: &Shared<B>,
    job: &mut Job<V>,
    marks: PartitionMarks,
    deadline: Instant,
) {
    let PartitionMarks { partition, log_start_offset, high_watermark } = marks;
    let next_offset = job.outcome.next_offset;
    let Some(leader_epoch) = job.last_epoch else {
        return job.refused(Some(log_start_offset..high_watermark));
    };
    let cut = |end_offset| RangeError::Truncated { partition, next_offset, leader_epoch, end_offset };
    match shared.brokers.epoch_end(partition, leader_epoch, deadline).await {
        Ok(None) if next_offset <= log_start_offset => job.last_epoch = None,
        Ok(None) => job.fail(cut(log_start_offset)),
        Ok(Some((epoch, end_offset))) if epoch < leader_epoch || end_offset < next_offset => {
            job.fail(cut(end_offset));
        }
        Ok(Some(_)) => job.refused(Some(log_start_offset..high_watermark)),
        Err(error) if passes(&error) => job.hindrance = Some(error),
        Err(error) => job.fail(RangeError::of_send(partition, error, "DESCRIBE")),
    }
}

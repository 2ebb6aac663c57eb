//! Reading one partition from an offset.
//!
//! [`PartitionReader`] asks the partition's leader for page after page and follows the leadership. What it cannot decide for
//! the caller is a typed stop ([`ReadErrorKind`]): an offset out of range, a log that was truncated below the position, a
//! topic that was created anew, a batch that cannot be read. A stop stays: nothing is reset, nothing is skipped, and
//! nobody is asked again until the caller has decided where to go on.
//!
//! What bytes come to is [`visit_page`] and [`visit_batch`] (no socket, no clock); what a code in an answer means is
//! [`Step`]. Both serve every reader of this project, also those of many partitions at once and of files.

mod aborted;
mod backoff;
mod config;
mod errors;
mod page;
mod step;
mod walk;

use std::ops::ControlFlow;
use std::sync::Arc;

use strandline_conn::{Call, RequestError};
use strandline_meta::{Cluster, Connection, ErrorCode, Recovery, SendError, TopicId, TopicView};
use strandline_protocol::messages::fetch::{FetchResponse, PartitionData};
use strandline_protocol::records::Decompressor;
use tokio::time::{Instant, sleep_until};

use crate::admin::{Admin, EpochQuery, Isolation, OffsetQuery, OffsetSpec};

pub use backoff::Backoff;
pub use config::{ReadPosition, ReaderConfig};
pub use errors::{ReadError, ReadErrorKind};
pub use page::{Page, ReadRecord};
pub use step::Step;
pub use walk::{Ended, PageError, PageVisitor, Progress, visit_batch, visit_page};

/// So often in a row a leader may refuse an offset, or a broker say that there is no such topic, before it is believed.
const REFUSALS_MAX: u32 = 6;
const ABSENT_ANSWERS: u32 = 2;

/// So often in a row a broker may ask for patience before the view is refreshed as well.
const PATIENCE: u32 = 3;

/// The last version of Fetch that names topics by name; a Fetch without a topic id goes no higher.
pub const FETCH_BY_NAME: i16 = 12;

/// Reads one partition, page by page.
///
/// One page is in memory at a time, and of it one batch decompressed. The reader has a connection of its own, so that its
/// long polls delay nobody.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use std::time::Duration;
/// use strandline_client::reader::{PartitionReader, ReadPosition, ReaderConfig};
/// use tokio::time::Instant;
///
/// # async fn example(cluster: &strandline_meta::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// let soon = || Instant::now() + Duration::from_secs(10);
/// let from = ReadPosition::at(0);
/// let mut reader = PartitionReader::open(cluster, "orders", 0, from, ReaderConfig::default(), soon()).await?;
/// loop {
///     let page = reader
///         .next_page(soon(), |record| {
///             println!("{} {:?}", record.offset, record.value);
///             ControlFlow::Continue(())
///         })
///         .await?;
///     if reader.position().next_offset >= page.end_offset {
///         return Ok(());
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct PartitionReader {
    cluster: Cluster,
    topic: Arc<str>,
    partition: i32,
    topic_id: Option<TopicId>,
    config: ReaderConfig,
    position: ReadPosition,
    /// The leader epoch under which the position is known to be in the leader's lineage.
    validated: Option<i32>,
    leader: Option<Leader>,
    decompressor: Decompressor,
    stop: Option<ReadError>,
    backoff: Backoff,
    /// How often in a row the offset was refused.
    refusals: u32,
    /// How often in a row there was no such topic.
    absent: u32,
    /// The last refusal came with a hint at the leader, which was followed.
    followed_hint: bool,
    /// When the reading from the position began.
    since: Instant,
}

/// Who is asked, and over which connection.
#[derive(Debug)]
struct Leader {
    node_id: i32,
    epoch: Option<i32>,
    connection: Connection,
    peer: String,
}

/// Why a try gave no page.
enum Setback {
    /// It stays so.
    Stop(ReadErrorKind),
    /// The same broker may answer later.
    Wait(SendError),
    /// The view is old, or the connection gone.
    Refresh(SendError),
    /// The view has just learnt who leads now.
    Follow,
}

impl PartitionReader {
    /// A reader that stands at `from`. The topic has to exist; whether the log holds the offset turns out with the first
    /// page. A position that was read up to some other time, with its leader epoch, is first checked against the leader's
    /// lineage.
    ///
    /// # Errors
    /// There is no such topic or partition, it may not be seen, or the cluster gave no answer before `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call leaves nothing behind.
    pub async fn open(
        cluster: &Cluster,
        topic: &str,
        partition: i32,
        from: ReadPosition,
        config: ReaderConfig,
        deadline: Instant,
    ) -> Result<Self, ReadError> {
        let began = Instant::now();
        let mut reader = Self {
            cluster: cluster.clone(),
            topic: topic.into(),
            partition,
            topic_id: None,
            decompressor: Decompressor::new(config.decompressed_bytes_max),
            backoff: Backoff::new(config.retry_backoff, config.jitter_seed),
            config,
            position: from,
            validated: None,
            leader: None,
            stop: None,
            refusals: 0,
            absent: 0,
            followed_hint: false,
            since: began,
        };
        loop {
            let setback = match reader.cluster.refresh_topics(&[topic], deadline).await {
                Ok(view) => {
                    if let TopicView::Known(known) = view.topic_view(topic) {
                        reader.topic_id = known.id;
                    }
                    match reader.route() {
                        Ok(_) | Err(Setback::Refresh(SendError::NoLeader { .. })) => return Ok(reader),
                        Err(setback) => setback,
                    }
                }
                Err(error) => reader.setback(error.into()),
            };
            reader.after(setback, began, deadline).await?;
        }
    }

    /// Where the reader stands: what lies below was given out, or passed over for good reason. Kept together with its leader
    /// epoch it can be handed to [`open`](Self::open) later.
    pub fn position(&self) -> ReadPosition {
        self.position
    }

    /// The id of the topic that is read; `None` from brokers older than Kafka 2.8.
    pub fn topic_id(&self) -> Option<TopicId> {
        self.topic_id
    }

    /// Goes to another position, also after a stop: this is how a caller skips what cannot be read.
    pub fn seek(&mut self, to: ReadPosition) {
        (self.position, self.validated, self.stop) = (to, None, None);
        (self.refusals, self.absent, self.since) = (0, 0, Instant::now());
    }

    /// The next page: what the leader gives in one answer, perhaps nothing after a wait of
    /// [`max_wait`](ReaderConfig::max_wait). Records come in the order of their offsets; `Break` ends the page behind one.
    ///
    /// Transaction markers are never given out, with [`Isolation::ReadCommitted`] neither are records of aborted
    /// transactions; the position passes over both. What hinders for a time (a leader that moves, a broker that restarts) is
    /// waited for until `deadline`.
    ///
    /// # Errors
    /// [`ReadErrorKind::Deadline`], after which the next call tries again, or a stop, which stays.
    ///
    /// # Cancel safety
    /// A dropped call has given out nothing, and the position is where it was: `visit` is called only after the last wait.
    pub async fn next_page(
        &mut self,
        deadline: Instant,
        mut visit: impl FnMut(&ReadRecord<'_>) -> ControlFlow<()>,
    ) -> Result<Page, ReadError> {
        if let Some(stop) = &self.stop {
            return Err(stop.clone());
        }
        let began = Instant::now();
        loop {
            match self.fetch(deadline).await {
                Ok((data, peer)) => match self.take(data, &peer, &mut visit) {
                    Ok(page) => return Ok(page),
                    Err(setback) => self.after(setback, began, deadline).await?,
                },
                Err(setback) => self.after(setback, began, deadline).await?,
            }
        }
    }

    /// Ends in an error, or waits, with a fresh view where that helps.
    async fn after(&mut self, setback: Setback, began: Instant, deadline: Instant) -> Result<(), ReadError> {
        let (error, refresh) = match setback {
            Setback::Stop(kind) => return Err(self.stop(kind)),
            Setback::Follow => return Ok(()),
            // What lasts may come of an old view after all: a broker that knows no such epoch may not be the leader.
            Setback::Wait(error) => (error, self.backoff.failures() >= PATIENCE),
            Setback::Refresh(error) => (error, true),
        };
        tracing::debug!(topic = %self.topic, partition = self.partition, %error, "no page yet");
        let late = |reader: &Self, error: SendError| {
            let (offset, waited) = (reader.position.next_offset, began.elapsed());
            reader.error(ReadErrorKind::Deadline { offset, waited, source: Some(Box::new(error)) })
        };
        let wait_end = Instant::now() + self.backoff.next_wait();
        if Instant::now() >= deadline {
            return Err(late(self, error));
        }
        if refresh {
            // A failure is told by the next try, which finds the same view.
            if let Err(failed) = self.cluster.repair_topics(&[&self.topic], deadline).await {
                let failed = SendError::from(failed);
                if let Setback::Stop(kind) = self.setback(failed) {
                    return Err(self.stop(kind));
                }
                if Instant::now() >= deadline {
                    return Err(late(self, error));
                }
            }
        }
        sleep_until(wait_end.min(deadline)).await;
        if Instant::now() >= deadline {
            return Err(late(self, error));
        }
        Ok(())
    }

    fn stop(&mut self, kind: ReadErrorKind) -> ReadError {
        let stop = self.error(kind);
        self.stop = Some(stop.clone());
        stop
    }

    fn error(&self, kind: ReadErrorKind) -> ReadError {
        ReadError { topic: Arc::clone(&self.topic), partition: self.partition, kind }
    }

    /// The leader and its epoch, as the view has them.
    fn route(&mut self) -> Result<(i32, Option<i32>), Setback> {
        let view = self.cluster.snapshot();
        let (topic, partition) = (Arc::clone(&self.topic), self.partition);
        let known = match view.topic_view(&self.topic) {
            TopicView::Known(known) => known,
            TopicView::NotAsked => return Err(Setback::Refresh(SendError::NoLeader { topic, partition })),
            // What was said before somebody decided to read on is asked once more: rights change.
            TopicView::Refused { code, at } if at < self.since => {
                return Err(Setback::Refresh(SendError::Topic { topic, code }));
            }
            TopicView::Refused { code, .. } => {
                return Err(match Recovery::of(code) {
                    Recovery::Forbidden => Setback::Stop(ReadErrorKind::Forbidden { right: "DESCRIBE" }),
                    Recovery::Fail => {
                        let source = Box::new(SendError::Topic { topic, code });
                        Setback::Stop(ReadErrorKind::Cluster { source })
                    }
                    _ if matches!(code, ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId) => {
                        self.absent += 1;
                        if self.absent >= ABSENT_ANSWERS {
                            Setback::Stop(ReadErrorKind::Recreated { known: self.topic_id, now: None })
                        } else {
                            Setback::Refresh(SendError::Topic { topic, code })
                        }
                    }
                    _ => Setback::Refresh(SendError::Topic { topic, code }),
                });
            }
        };
        if self.topic_id.is_some() && known.id != self.topic_id {
            let (known, now) = (self.topic_id, known.id);
            return Err(Setback::Stop(ReadErrorKind::Recreated { known, now }));
        }
        let Some(found) = known.partition(partition) else {
            let count = known.partitions.len();
            self.absent += 1;
            // One answer may come from a broker that has not heard of it yet.
            return Err(if self.absent >= ABSENT_ANSWERS || partition < 0 {
                Setback::Stop(ReadErrorKind::NoSuchPartition { count })
            } else {
                Setback::Refresh(SendError::NoSuchPartition { topic, partition, count })
            });
        };
        self.absent = 0;
        match found.leader {
            Some(node_id) => Ok((node_id, found.leader_epoch)),
            None => Err(Setback::Refresh(SendError::NoLeader { topic, partition })),
        }
    }

    /// A connection to the leader of the moment, the position checked against its lineage.
    async fn leader(&mut self, deadline: Instant) -> Result<&Leader, Setback> {
        let (node_id, epoch) = self.route()?;
        if epoch.is_some() && epoch != self.validated {
            self.validate(deadline).await?;
            self.validated = epoch;
        }
        match &mut self.leader {
            Some(leader) if leader.node_id == node_id && !leader.connection.is_closed() => {
                leader.epoch = epoch;
            }
            _ => {
                self.leader = None;
                let by = deadline.min(Instant::now() + self.config.request_timeout);
                let connection =
                    self.cluster.dedicated(node_id, by).await.map_err(|error| self.setback(error))?;
                let peer = format!("broker {node_id} ({})", connection.address());
                self.leader = Some(Leader { node_id, epoch, connection, peer });
            }
        }
        Ok(self.leader.as_ref().expect("it was just set"))
    }

    /// Asks the leader where the epoch of what was read last ends in its lineage (KIP-320). The position must not lie above.
    async fn validate(&mut self, deadline: Instant) -> Result<(), Setback> {
        let ReadPosition { next_offset: offset, leader_epoch: Some(leader_epoch) } = self.position else {
            return Ok(());
        };
        let query = EpochQuery { topic: Arc::clone(&self.topic), partition: self.partition, leader_epoch };
        let by = deadline.min(Instant::now() + self.config.request_timeout);
        let admin = Admin::new(&self.cluster);
        let end = match admin.offsets_for_leader_epochs(&[query], by).await {
            Ok(mut ends) => ends.pop().expect("one query has one answer"),
            Err(error) => Err(error),
        };
        let (end_offset, end_epoch) = match end.map_err(|error| self.setback(error))? {
            Some(end) => (end.end_offset, Some(end.leader_epoch)),
            // The lineage begins above this epoch. That is so where retention has taken it, up to the position at least;
            // else what the log holds below the position is not what was read.
            None => {
                let (log_start_offset, _) = self.bounds(deadline).await?;
                if offset <= log_start_offset {
                    self.position.leader_epoch = None;
                    return Ok(());
                }
                (log_start_offset, None)
            }
        };
        if end_offset < offset || end_epoch.is_none_or(|end| end < leader_epoch) {
            let truncated = ReadErrorKind::Truncated { offset, leader_epoch, end_offset, end_epoch };
            return Err(Setback::Stop(truncated));
        }
        Ok(())
    }

    /// The log start offset, and the offset after the last that readers may have.
    async fn bounds(&self, deadline: Instant) -> Result<(i64, i64), Setback> {
        let by = deadline.min(Instant::now() + self.config.request_timeout);
        let query = |spec| OffsetQuery { topic: Arc::clone(&self.topic), partition: self.partition, spec };
        let queries = [query(OffsetSpec::Earliest), query(OffsetSpec::Latest)];
        let admin = Admin::new(&self.cluster);
        let listed = admin.list_offsets(&queries, Isolation::ReadUncommitted, by).await;
        let mut offsets = Vec::with_capacity(queries.len());
        for answer in listed.map_err(|error| self.setback(error))? {
            match answer {
                Ok(listed) => offsets.extend(listed.offset),
                Err(error) => return Err(self.setback(error)),
            }
        }
        match offsets[..] {
            [start, end] => Ok((start, end)),
            // Every log has a start and an end.
            _ => Err(Setback::Wait(SendError::LeftOut { peer: "the partition's leader".to_owned() })),
        }
    }

    /// One Fetch: this partition's part of the answer, without an error in it.
    async fn fetch(&mut self, deadline: Instant) -> Result<(PartitionData, String), Setback> {
        self.leader(deadline).await?;
        let leader = self.leader.as_ref().expect("the leader was just found");
        let now = Instant::now();
        // A broker that waits to the very deadline answers too late.
        let max_wait = self.config.max_wait.min(deadline.saturating_duration_since(now) / 2);
        let request = page::request(
            &self.topic,
            self.topic_id,
            self.partition,
            self.position,
            leader.epoch,
            &self.config,
            max_wait,
        );
        let call = Call::by(deadline).request_timeout(max_wait + self.config.request_timeout);
        let call = if self.topic_id.is_none() { call.at_most(FETCH_BY_NAME) } else { call };
        let peer = leader.peer.clone();
        let response = match leader.connection.send(|_version| request, call).await {
            Ok(response) => response,
            Err(source) => return Err(self.setback(SendError::Request { peer, source })),
        };
        // Before anything else: a leader that moved says where to, where its version has room for it (KIP-951).
        let hinted = self.cluster.learn_leaders(&response);
        let data = self.part(response, &peer).map_err(|error| self.setback(error))?;
        let code = data.error_code;
        let refused = || SendError::Code { peer: peer.clone(), code, message: None };
        match Step::of(code) {
            Step::Read => Ok((data, peer)),
            Step::Retry => Err(Setback::Wait(refused())),
            Step::RetryFewTimes => Err(self.refused(refused())),
            // A hint saves one look-up, and never the second: who is refused again asks for the whole view.
            Step::Follow if hinted && !self.followed_hint => {
                self.followed_hint = true;
                Err(Setback::Follow)
            }
            Step::Follow => Err(Setback::Refresh(refused())),
            Step::OutOfRange => Err(self.out_of_range(refused(), deadline).await),
            Step::Forbidden => Err(Setback::Stop(ReadErrorKind::Forbidden { right: "READ" })),
            Step::Fail => Err(self.setback(refused())),
        }
    }

    /// This partition's part of an answer.
    fn part(&self, response: FetchResponse, peer: &str) -> Result<PartitionData, SendError> {
        if response.error_code != ErrorCode::None {
            let (peer, code) = (peer.to_owned(), response.error_code);
            return Err(SendError::Code { peer, code, message: None });
        }
        let mut parts = response.responses.into_iter().flat_map(|topic| topic.partitions);
        parts
            .find(|part| part.partition_index == self.partition)
            .ok_or_else(|| SendError::LeftOut { peer: peer.to_owned() })
    }

    /// What an answer out of range comes to: a stop if the offset is not in the log. If it is, the broker that said so lags
    /// behind, or does not know the epoch of what was read last.
    async fn out_of_range(&mut self, error: SendError, deadline: Instant) -> Setback {
        if let Err(setback) = self.validate(deadline).await {
            return setback;
        }
        let (log_start_offset, log_end_offset) = match self.bounds(deadline).await {
            Ok(bounds) => bounds,
            Err(setback) => return setback,
        };
        let offset = self.position.next_offset;
        if !(log_start_offset..=log_end_offset).contains(&offset) {
            return Setback::Stop(ReadErrorKind::OutOfRange { offset, log_start_offset, log_end_offset });
        }
        self.refused(error)
    }

    /// Counts a refusal that should pass; a stop once there were too many.
    fn refused(&mut self, error: SendError) -> Setback {
        self.refusals += 1;
        if self.refusals < REFUSALS_MAX {
            return Setback::Wait(error);
        }
        let (offset, tries) = (self.position.next_offset, self.refusals);
        Setback::Stop(ReadErrorKind::Refused { offset, tries, source: Box::new(error) })
    }

    /// What a failed request comes to.
    fn setback(&self, error: SendError) -> Setback {
        let source = || Box::new(error.clone());
        let versions = matches!(&error, SendError::Request { source: RequestError::Version(_), .. });
        if versions
            || matches!(error, SendError::TooOld { .. })
            || error.code() == Some(ErrorCode::UnsupportedVersion)
        {
            return Setback::Stop(ReadErrorKind::Unsupported { source: source() });
        }
        match error.recovery() {
            // A broker that has left comes back, or its partitions move.
            _ if matches!(error, SendError::NoSuchBroker { .. } | SendError::NoSuchPartition { .. }) => {
                Setback::Refresh(error)
            }
            Recovery::Forbidden if error.code() == Some(ErrorCode::TopicAuthorizationFailed) => {
                Setback::Stop(ReadErrorKind::Forbidden { right: "DESCRIBE" })
            }
            Recovery::Authenticate | Recovery::Forbidden | Recovery::Fail => {
                Setback::Stop(ReadErrorKind::Cluster { source: source() })
            }
            Recovery::Retry | Recovery::Proceed => Setback::Wait(error),
            Recovery::RefreshMetadata
            | Recovery::FindCoordinator
            | Recovery::FindController
            | Recovery::RestartSession
            | Recovery::Redial
            | Recovery::Rebootstrap => Setback::Refresh(error),
        }
    }

    /// Gives out a page.
    fn take(
        &mut self,
        data: PartitionData,
        peer: &str,
        visit: &mut impl FnMut(&ReadRecord<'_>) -> ControlFlow<()>,
    ) -> Result<Page, Setback> {
        if let Some(truncated) = page::diverging(&data, self.position) {
            return Err(Setback::Stop(truncated));
        }
        let before = self.position;
        let mut progress = Progress {
            next_offset: before.next_offset,
            leader_epoch: before.leader_epoch,
            ..Progress::default()
        };
        let committed = self.config.isolation == Isolation::ReadCommitted;
        let read = page::read(&data, committed, &mut self.decompressor, &mut progress, visit);
        // Also after a failure: what stands before the damage was given out.
        self.position =
            ReadPosition { next_offset: progress.next_offset, leader_epoch: progress.leader_epoch };
        let end = match read {
            Ok(end) => end,
            Err(error) => return Err(Setback::Stop(page::stop(error, progress.next_offset, peer))),
        };
        if progress.next_offset == before.next_offset
            && !end.stopped
            && let Some(tail) = end.tail
        {
            // A leader sends the first batch whole, however large it is.
            let message = format!("a batch is cut after {} bytes", tail.bytes);
            let code = ErrorCode::CorruptMessage;
            return Err(self.refused(SendError::Code {
                peer: peer.to_owned(),
                code,
                message: Some(message),
            }));
        }
        self.backoff.reset();
        (self.refusals, self.followed_hint) = (0, false);
        Ok(Page::new(&data, committed, progress, end.stopped))
    }
}

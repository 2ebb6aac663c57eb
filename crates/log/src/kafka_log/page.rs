//! One Fetch answer: what is asked for, and what it makes of each range. No socket, no clock.

use std::sync::Arc;
use std::time::Duration;

use strandline_client::reader::{Ended, PageError, Progress, Step, visit_page};
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use strandline_protocol::records::{CutTail, Decompressor};
use strandline_protocol::{TopicId, Uuid};
use tokio::time::Instant;

use super::KafkaMetadataLogConfig;
use crate::range::{MetadataRange, RangeError, RangeOutcome, RangeVisit};
use crate::record::{EveryRecord, MetadataEventVisitor};

/// So often in a row a leader may refuse an offset before that is a typed end: with the back-off a few seconds.
const REFUSALS_MAX: u32 = 6;

/// So often in a row the cluster may say that there is no such topic or partition before it is believed.
const ABSENCES_MAX: u32 = 2;

/// One range on its way.
#[derive(Debug)]
pub(super) struct Job<V> {
    /// Its place in the call.
    pub(super) index: usize,
    pub(super) range: MetadataRange,
    pub(super) visitor: V,
    pub(super) outcome: RangeOutcome,
    pub(super) error: Option<RangeError>,
    /// The leader epoch under which the current leader is asked.
    pub(super) leader_epoch: Option<i32>,
    /// The leader epoch of what was read last, by which a leader tells whether its log still holds that (KIP-320);
    /// `None` where nothing was read yet.
    pub(super) last_epoch: Option<i32>,
    /// When the position last moved.
    pub(super) progress_at: Instant,
    /// What hindered it since.
    pub(super) hindrance: Option<SendError>,
    /// How often in a row its leader has refused its offset.
    refusals: u32,
    /// How often in a row the cluster has said that there is no such topic or partition.
    absences: u32,
}

/// What is asked of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) partition: i32,
    pub(super) next_offset: i64,
    pub(super) leader_epoch: Option<i32>,
    pub(super) last_epoch: Option<i32>,
    pub(super) bytes_max: i32,
}

/// What a partition's part of an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The range is done, stopped or failed.
    Finished,
    /// The position moved.
    Progress,
    /// Nothing came: the broker had no room for it in this answer, or has nothing yet.
    Nothing,
    /// Ask again after back-off.
    Retry,
    /// Refresh the view, follow the leader.
    Follow,
    /// Ask for the log's bounds.
    OutOfRange,
}

impl<V: MetadataEventVisitor> Job<V> {
    pub(super) fn new(index: usize, range: MetadataRange, visitor: V, now: Instant) -> Self {
        Self {
            index,
            range,
            visitor,
            outcome: RangeOutcome { next_offset: range.from, ..RangeOutcome::default() },
            error: None,
            leader_epoch: None,
            last_epoch: None,
            progress_at: now,
            hindrance: None,
            refusals: 0,
            absences: 0,
        }
    }

    pub(super) fn wanted(&self, bytes_max: i32) -> Wanted {
        Wanted {
            partition: self.range.partition,
            next_offset: self.outcome.next_offset,
            leader_epoch: self.leader_epoch,
            last_epoch: self.last_epoch,
            bytes_max,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.error.is_some() || self.outcome.stopped || self.outcome.next_offset >= self.range.to
    }

    pub(super) fn fail(&mut self, error: RangeError) {
        self.error.get_or_insert(error);
    }

    /// Counts that the leader refused the offset with the code that is the hindrance; ends the job if that was too often.
    pub(super) fn refused(&mut self, log: Option<std::ops::Range<i64>>) {
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX
            && let Some(source) = self.hindrance.take().map(Box::new)
        {
            let (partition, offset) = (self.range.partition, self.outcome.next_offset);
            self.fail(RangeError::Refused { partition, offset, tries: self.refusals, log, source });
        }
    }

    /// Counts that the view shows no such topic or partition, and ends the job once that was said twice: one answer may
    /// come from a broker that lags behind.
    pub(super) fn absent(&mut self, error: RangeError) {
        self.absences += 1;
        if self.absences >= ABSENCES_MAX {
            self.fail(error);
        }
    }

    /// The view shows the partition, or nobody could be asked again.
    pub(super) fn not_absent(&mut self) {
        self.absences = 0;
    }

    /// Ends the job if it has not moved for so long, or if its time is up.
    pub(super) fn check_time(
        &mut self,
        now: Instant,
        stall_timeout: Duration,
        began: Instant,
        deadline: Instant,
    ) {
        let (partition, next_offset) = (self.range.partition, self.outcome.next_offset);
        if now >= deadline {
            let source = self.hindrance.take().map(Box::new);
            self.fail(RangeError::Deadline { partition, next_offset, waited: now - began, source });
        } else if now.saturating_duration_since(self.progress_at) >= stall_timeout {
            let (waited, source) = (now - self.progress_at, self.hindrance.take().map(Box::new));
            self.fail(RangeError::Stalled { partition, next_offset, waited, source });
        }
    }

    pub(super) fn into_visit(self) -> RangeVisit<V> {
        RangeVisit { range: self.range, visitor: self.visitor, outcome: self.outcome, error: self.error }
    }

    /// Takes this partition's part of an answer.
    pub(super) fn take(
        &mut self,
        data: PartitionData,
        peer: &str,
        decompressor: &mut Decompressor,
        now: Instant,
    ) -> After {
        let code = data.error_code;
        let hindrance = || SendError::Code { peer: peer.to_owned(), code, message: None };
        match Step::of(code) {
            Step::Read => {}
            Step::Retry => {
                self.hindrance = Some(hindrance());
                return After::Retry;
            }
            Step::RetryFewTimes => {
                self.hindrance = Some(hindrance());
                self.refused(None);
                return if self.is_finished() { After::Finished } else { After::Retry };
            }
            Step::Follow => {
                self.hindrance = Some(hindrance());
                return After::Follow;
            }
            Step::OutOfRange => {
                self.hindrance = Some(hindrance());
                return After::OutOfRange;
            }
            Step::Forbidden => {
                self.fail(RangeError::Forbidden { partition: self.range.partition, right: "READ" });
                return After::Finished;
            }
            Step::Fail => {
                let (partition, source) = (self.range.partition, Box::new(hindrance()));
                self.fail(RangeError::Cluster { partition, source });
                return After::Finished;
            }
        }
        let before = self.outcome.next_offset;
        if let Some(error) = self.diverged(&data) {
            self.fail(error);
            return After::Finished;
        }
        let tail = match self.read(data.records.as_deref().unwrap_or(&[]), peer, decompressor) {
            Ok(tail) => tail,
            Err(error) => {
                self.fail(error);
                None
            }
        };
        let moved = self.outcome.next_offset > before;
        if moved {
            self.progress_at = now;
            self.hindrance = None;
            self.refusals = 0;
        } else if let Some(tail) = tail.filter(|_| !self.is_finished()) {
            // A leader sends the first batch whole, however large it is.
            let message = Some(format!("a batch is cut after {} bytes", tail.bytes));
            let (peer, code) = (peer.to_owned(), ErrorCode::CorruptMessage);
            self.hindrance = Some(SendError::Code { peer, code, message });
            self.refused(None);
            return if self.is_finished() { After::Finished } else { After::Retry };
        }
        match (self.is_finished(), moved) {
            (true, _) => After::Finished,
            (false, true) => After::Progress,
            (false, false) => After::Nothing,
        }
    }

    /// The end, where the leader says that its lineage has left that of what was read last.
    fn diverged(&self, data: &PartitionData) -> Option<RangeError> {
        let (partition, next_offset) = (self.range.partition, self.outcome.next_offset);
        let (leader_epoch, end_offset) = (self.last_epoch?, data.diverging_epoch.end_offset);
        (end_offset >= 0).then_some(RangeError::Truncated {
            partition,
            next_offset,
            leader_epoch,
            end_offset,
        })
    }

    /// Visits the whole batches of a page. A cut one at its end comes again, whole, with the next page.
    fn read(
        &mut self,
        records: &[u8],
        peer: &str,
        decompressor: &mut Decompressor,
    ) -> Result<Option<CutTail>, RangeError> {
        let partition = self.range.partition;
        let mut progress = Progress { leader_epoch: self.last_epoch, ..self.outcome.progress() };
        let mut visitor = EveryRecord { partition, visitor: &mut self.visitor };
        let visited = visit_page(records, self.range.to, decompressor, &mut progress, &mut visitor);
        self.outcome.take(progress);
        self.last_epoch = progress.leader_epoch;
        let origin = peer.to_owned();
        match visited {
            Ok((ended, tail)) => {
                self.outcome.stopped = ended == Some(Ended::Visitor);
                Ok(tail)
            }
            Err(PageError::Batch(source)) => Err(RangeError::Batch { partition, origin, source }),
            Err(PageError::OffsetsFall { offset, expected }) => {
                Err(RangeError::OffsetsFall { partition, origin, offset, expected })
            }
        }
    }
}

/// A Fetch request for what is wanted, in this order: a broker fills its answer in it.
///
/// Without a session (KIP-227): a range read is over after a few pages. Records of open and aborted transactions are
/// wanted too.
pub(super) fn fetch_request(
    topic: &Arc<str>,
    topic_id: Option<TopicId>,
    wanted: impl IntoIterator<Item = Wanted>,
    config: &KafkaMetadataLogConfig,
) -> FetchRequest {
    let partitions = wanted.into_iter().map(|wanted| FetchPartition {
        partition: wanted.partition,
        current_leader_epoch: wanted.leader_epoch.unwrap_or(-1),
        fetch_offset: wanted.next_offset,
        // A leader can judge what was read last only against an epoch of its own.
        last_fetched_epoch: wanted.leader_epoch.and(wanted.last_epoch).unwrap_or(-1),
        log_start_offset: -1,
        partition_max_bytes: wanted.bytes_max,
        ..FetchPartition::default()
    });
    let partitions: Vec<_> = partitions.collect();
    let topic = FetchTopic {
        topic: topic.to_string(),
        topic_id: topic_id.map_or(Uuid::ZERO, |id| id.0),
        partitions,
        ..FetchTopic::default()
    };
    let topics = if topic.partitions.is_empty() { Vec::new() } else { vec![topic] };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: i32::try_from(config.fetch_max_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: 1,
        max_bytes: config.answer_max_bytes,
        isolation_level: 0,
        session_id: 0,
        session_epoch: -1,
        topics,
        ..FetchRequest::default()
    }
}

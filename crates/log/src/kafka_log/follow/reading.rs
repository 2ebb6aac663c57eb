//! The reading of one partition, from its offset on, until something stops it for good.

use std::ops::ControlFlow;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use strandline_client::reader::Backoff;
use strandline_conn::Recovery;
use strandline_meta::SendError;
use strandline_protocol::records::Decompressor;
use tokio::time::{Instant, sleep_until};

use super::line::{Answer, Line};
use crate::kafka_log::brokers::Brokers;
use crate::kafka_log::page::{After, Job};
use crate::kafka_log::read::{Shared, check_topic, leader_of, out_of_range, passes};
use crate::range::{MetadataRange, RangeError};
use crate::record::{MetadataEventRecord, MetadataEventVisitor, OwnedMetadataEventRecord};
use crate::subscription::{PartitionSink, ReadingState};

/// So often in a row a broker may ask for patience before the view is refreshed as well: what lasts may come of an old one.
const PATIENCE: u32 = 3;

/// No page is asked for in smaller pieces than these, however small the partition's share of the queue is.
const PAGE_BYTES_MIN: usize = 64 << 10;

/// A page that becomes this many times as large, decompressed, is taken in pieces, and the rest asked for again.
const INFLATION_MAX: usize = 4;

/// The shortest back-off after refused credentials. Trying often locks accounts.
const AUTHENTICATION_BACKOFF: Duration = Duration::from_secs(10);

pub(super) struct Reading<B: Brokers> {
    shared: Arc<Shared<B>>,
    sink: PartitionSink,
    line: Line<B>,
    job: Job<Page>,
    decompressor: Decompressor,
    backoff: Backoff,
    /// A hint at the leader was followed, and nothing has come since.
    followed_hint: bool,
    /// Since when it does not go on; `None` while it does, and the subscriber sees it so.
    hindered_since: Option<Instant>,
    started: bool,
}

/// What is done after a question.
enum Next {
    /// The next question.
    Ask,
    /// Back off, with a fresh view where that helps.
    Wait { refresh: bool, at_least: Duration },
}

impl<B: Brokers> Reading<B> {
    pub(super) fn new(
        shared: Arc<Shared<B>>,
        partition: i32,
        from: i64,
        sink: PartitionSink,
        line: Line<B>,
    ) -> Self {
        let range = MetadataRange { partition, from, to: i64::MAX };
        Self {
            job: Job::new(0, range, Page::default(), Instant::now()),
            backoff: Backoff::new(shared.config.retry_backoff, None),
            decompressor: Decompressor::default(),
            followed_hint: false,
            hindered_since: None,
            started: false,
            shared,
            sink,
            line,
        }
    }

    /// Reads until something stops it for good. Every wait in here may be dropped.
    pub(super) async fn run(mut self) -> RangeError {
        loop {
            check_topic(&*self.shared, slice::from_mut(&mut self.job));
            if let Some(error) = self.job.error.take() {
                return error;
            }
            self.sink.room().await;
            let next = self.page().await;
            if let Some(error) = self.job.error.take() {
                return error;
            }
            if let Next::Wait { refresh, at_least } = next {
                self.wait(refresh, at_least).await;
            }
        }
    }

    /// Asks the leader for one page, and puts it into the queue.
    async fn page(&mut self) -> Next {
        let partition = self.job.range.partition;
        let Some((leader, epoch)) = leader_of(&self.shared.brokers.topic(), partition) else {
            let topic = Arc::clone(&self.shared.topic);
            return self.hindered(SendError::NoLeader { topic, partition });
        };
        self.job.leader_epoch = epoch;
        let page_bytes_max = self.page_bytes_max();
        let wanted = self.job.wanted(i32::try_from(page_bytes_max).unwrap_or(i32::MAX));
        match self.line.ask(leader, wanted).await {
            Ok(Some(answer)) => self.take(answer, page_bytes_max).await,
            Ok(None) => Next::Ask,
            Err(error) => self.hindered(error),
        }
    }

    /// What is fetched and not yet in the queue takes no more room than the queue itself.
    fn page_bytes_max(&self) -> usize {
        let configured = usize::try_from(self.shared.config.fetch_max_bytes).unwrap_or(0);
        self.sink.share_bytes().max(PAGE_BYTES_MIN).min(configured)
    }

    async fn take(&mut self, answer: Answer, page_bytes_max: usize) -> Next {
        let Answer { data, peer, hinted, throttle } = answer;
        let from = self.job.outcome.next_offset;
        if !data.error_code.is_error() && data.high_watermark >= 0 {
            self.sink.log_end(data.high_watermark);
        }
        self.job.visitor.bytes_max = page_bytes_max.saturating_mul(INFLATION_MAX);
        let after = self.job.take(data, &peer, &mut self.decompressor, Instant::now());
        // A page that is taken in pieces is no end of the reading.
        self.job.outcome.stopped = false;
        match after {
            After::Finished | After::Progress | After::Nothing => {
                self.goes_on();
                self.deliver(from).await;
                if throttle.is_zero() {
                    Next::Ask
                } else {
                    self.hindered(SendError::Throttled { peer: peer.to_string(), wait: throttle })
                }
            }
            After::Retry => Next::Wait { refresh: self.backoff.failures() >= PATIENCE, at_least: throttle },
            // A hint saves one look-up, and never the second: who is refused again asks for the whole view.
            After::Follow if hinted && !self.followed_hint => {
                self.followed_hint = true;
                Next::Ask
            }
            After::Follow => Next::Wait { refresh: true, at_least: throttle },
            After::OutOfRange => {
                let by = Instant::now() + self.shared.config.request_timeout;
                out_of_range(&self.shared, slice::from_mut(&mut self.job), by).await;
                Next::Wait { refresh: self.backoff.failures() >= PATIENCE, at_least: throttle }
            }
        }
    }

    /// Puts what was read into the queue, and waits for room as often as that takes.
    async fn deliver(&mut self, mut delivered: i64) {
        let page = &mut self.job.visitor;
        page.bytes = 0;
        for record in page.records.drain(..) {
            delivered = record.offset + 1;
            self.sink.record(record).await;
        }
        let next_offset = self.job.outcome.next_offset;
        if next_offset > delivered {
            self.sink.advanced(next_offset);
        }
    }

    fn goes_on(&mut self) {
        self.backoff.reset();
        self.followed_hint = false;
        self.job.hindrance = None;
        if !self.started || self.hindered_since.is_some() {
            (self.started, self.hindered_since) = (true, None);
            self.sink.state(ReadingState::Fetching);
        }
    }

    /// What a failed question comes to. A connection that cannot be had is tried again for as long as it takes, whatever
    /// hinders it: somebody may be putting it right.
    fn hindered(&mut self, error: SendError) -> Next {
        let at_least = match &error {
            SendError::Throttled { wait, .. } => *wait,
            error if error.recovery() == Recovery::Authenticate => AUTHENTICATION_BACKOFF,
            _ => Duration::ZERO,
        };
        // A broker that throttles need not be looked for.
        let refresh = !matches!(error, SendError::Throttled { .. });
        if passes(&error) || matches!(error, SendError::Dial(_)) {
            self.job.hindrance = Some(error);
        } else {
            self.job.fail(RangeError::of_send(self.job.range.partition, error, "READ"));
        }
        Next::Wait { refresh, at_least }
    }

    /// Backs off, visibly.
    async fn wait(&mut self, refresh: bool, at_least: Duration) {
        let wait_end = Instant::now() + self.backoff.next_wait().max(at_least);
        self.show_hindrance();
        if refresh {
            let by = Instant::now() + self.shared.config.request_timeout;
            if let Err(error) = self.shared.brokers.repair(by).await {
                self.job.hindrance.get_or_insert(error);
                self.job.not_absent();
                self.show_hindrance();
            }
        }
        sleep_until(wait_end).await;
    }

    fn show_hindrance(&mut self) {
        let Some(error) = &self.job.hindrance else { return };
        let since = *self.hindered_since.get_or_insert_with(Instant::now);
        let (failures, error) = (self.backoff.failures(), Arc::new(error.clone()));
        self.sink.state(ReadingState::Retrying { since, failures, error });
    }
}

/// The records of a page on their way into the queue.
#[derive(Debug, Default)]
struct Page {
    records: Vec<OwnedMetadataEventRecord>,
    bytes: usize,
    bytes_max: usize,
}

impl MetadataEventVisitor for Page {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        let record = OwnedMetadataEventRecord::from(*record);
        self.bytes += record.size_bytes();
        self.records.push(record);
        if self.bytes >= self.bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

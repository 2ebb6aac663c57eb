//! How a reading's question reaches the leader, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use strandline_client::reader::Backoff;
use strandline_conn::RequestError;
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::messages::fetch::{FetchResponse, PartitionData};
use tokio::time::Instant;

use super::connection::OwnConnection;
use super::leader::ToLeader;
use crate::kafka_log::brokers::Brokers;
use crate::kafka_log::page::Wanted;

/// The way of one reading's questions. Dropped with the question that it carries, nothing is left of that.
pub(super) enum Line<B: Brokers> {
    Own(OwnConnection<B>),
    Leader(ToLeader<B>),
}

/// One partition's part of a leader's answer.
pub(super) struct Answer {
    pub(super) data: PartitionData,
    pub(super) peer: Arc<str>,
    /// The answer has told of leaders that the view did not know (KIP-951).
    pub(super) hinted: bool,
    /// For how long the broker wants to be left alone (KIP-219).
    pub(super) throttle: Duration,
}

impl<B: Brokers> Line<B> {
    /// Asks a leader for one page. `None`: look again who leads.
    pub(super) async fn ask(&mut self, leader: i32, wanted: Wanted) -> Result<Option<Answer>, SendError> {
        match self {
            Self::Own(connection) => connection.ask(leader, wanted).await,
            Self::Leader(leaders) => leaders.ask(leader, wanted).await,
        }
    }
}

/// What the code of a whole answer says.
pub(super) fn refused(response: &FetchResponse, peer: &str) -> Option<SendError> {
    let code = response.error_code;
    (code != ErrorCode::None).then(|| SendError::Code { peer: peer.to_owned(), code, message: None })
}

/// True for a part of an answer that has neither records nor an error.
pub(super) fn is_empty(data: &PartitionData) -> bool {
    !data.error_code.is_error()
        && data.diverging_epoch.end_offset < 0
        && data.records.as_ref().is_none_or(|records| records.is_empty())
}

/// True if the connection had ended before anything was sent: a broker closes one that was idle. Asked again at once, over
/// another one, nothing is lost.
pub(super) fn ended_unsent(error: &SendError) -> bool {
    matches!(error, SendError::Request { source: RequestError::NotSent { .. }, .. })
}

/// When a leader does not answer in time, the cluster is asked whether there is another one by now.
pub(super) struct Overdue {
    /// When to ask.
    pub(super) at: Instant,
    then: Duration,
}

impl Overdue {
    /// For an answer that is due at `due`.
    pub(super) fn of(due: Instant) -> Self {
        Self { at: due + OVERDUE, then: OVERDUE }
    }

    /// The leader has not changed: the next time is later, by twice as much.
    pub(super) fn again(&mut self) {
        self.then = self.then.saturating_mul(2).min(OVERDUE_MAX);
        self.at = Instant::now() + self.then;
    }
}

/// An answer that is later by this is overdue.
const OVERDUE: Duration = Duration::from_secs(2);

/// The longest time between two such questions.
const OVERDUE_MAX: Duration = Duration::from_secs(30);

/// Keeps from asking a broker as fast as it answers that it has nothing, which it should have waited with.
pub(super) struct Pace {
    backoff: Backoff,
    not_before: Instant,
}

impl Pace {
    pub(super) fn new(first: Duration) -> Self {
        Self { backoff: Backoff::new(first, None), not_before: Instant::now() }
    }

    /// The broker may be asked from then on.
    pub(super) fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Something came, or nothing within the time that was asked for.
    pub(super) fn in_order(&mut self) {
        self.backoff.reset();
    }

    /// Nothing came, and sooner than was asked for.
    pub(super) fn hasty(&mut self) {
        let wait = self.backoff.next_wait();
        self.pause(wait);
    }

    pub(super) fn pause(&mut self, wait: Duration) {
        self.not_before = self.not_before.max(Instant::now() + wait);
    }
}

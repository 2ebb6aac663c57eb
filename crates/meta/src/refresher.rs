//! The one task that writes the view.
//!
//! Whoever needs metadata sends a wish and waits for the view that follows. Wishes that arrive while a request is under way,
//! or while the pause before the same question lasts, are joined into one request. So however many callers stumble over the
//! same partition without a leader, the cluster sees one Metadata request per pause.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use strandline_conn::{MetadataEvent, Recovery};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument as _, debug_span};

use crate::backoff::BACKOFF_MAX;
use crate::cluster::MetadataRecovery;
use crate::errors::{RefreshError, SendError};
use crate::metadata::metadata_request;
use crate::pool::{Endpoint, Purpose};
use crate::snapshot::ClusterSnapshot;
use crate::snapshot::apply::{Asked, MetadataAnswer, Notice, RejectedAnswer};
use crate::state::{Core, Taken};

/// Wishes that may wait for the refresher; further callers wait in line.
const WISHES_MAX: usize = 1024;
/// Wishes that are joined into one request.
const JOINED_MAX: usize = 4096;
/// Shortest pause before a repair, or before the same question again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// So long one broker is waited for before another is asked beside it.
const NEXT_BROKER_AFTER: Duration = Duration::from_millis(500);
/// So many learned brokers are asked in one round before the bootstrap addresses get their turn.
const LEARNED_BROKERS_PER_ROUND: usize = 5;

/// Why metadata is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Somebody wants to know.
    Look,
    /// Something contradicted the view: the topics named are marked stale until the answer.
    Repair,
    /// A broker disowned the view (KIP-1102): learned brokers are not asked, their connections are retired.
    Rebootstrap,
}

impl Reason {
    /// For observers.
    fn words(self) -> &'static str {
        match self {
            Self::Look => "a question",
            Self::Repair => "a contradiction",
            Self::Rebootstrap => "a new start",
        }
    }
}

#[derive(Debug)]
struct Wish {
    asked: Asked,
    reason: Reason,
    deadline: Instant,
    /// `None` where nobody waits.
    reply: Option<oneshot::Sender<Result<Arc<ClusterSnapshot>, RefreshError>>>,
}

impl Wish {
    fn is_given_up(&self) -> bool {
        match &self.reply {
            Some(reply) => reply.is_closed(),
            None => self.deadline <= Instant::now(),
        }
    }
}

/// The way to the refresher task, which ends when the last of these is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Refresher(mpsc::Sender<Wish>);

impl Refresher {
    pub(crate) fn start(core: Arc<Core>, recovery: MetadataRecovery) -> Self {
        let (sender, wishes) = mpsc::channel(WISHES_MAX);
        let task = Task {
            core,
            recovery,
            unchanged: 0,
            last: None,
            at: None,
            without_since: None,
            answered: Vec::new(),
        };
        tokio::spawn(task.run(wishes));
        Self(sender)
    }

    /// A view that holds the answer to a request that began after this call.
    ///
    /// # Cancel safety
    /// A dropped call takes its wish with it, unless the request is already on its way.
    pub(crate) async fn refresh(
        &self,
        asked: Asked,
        reason: Reason,
        deadline: Instant,
    ) -> Result<Arc<ClusterSnapshot>, RefreshError> {
        let began = Instant::now();
        let (reply, answer) = oneshot::channel();
        let wish = Wish { asked, reason, deadline, reply: Some(reply) };
        let answered = timeout_at(deadline, async {
            self.0.send(wish).await.map_err(|_| RefreshError::Closed)?;
            answer.await.unwrap_or(Err(RefreshError::Closed))
        });
        let late = || Err(RefreshError::Deadline { waited: began.elapsed(), source: None });
        answered.await.unwrap_or_else(|_| late())
    }

    /// Has topics that something contradicted asked for anew, by and by; nobody waits for it.
    pub(crate) fn nudge(&self, topics: Vec<Arc<str>>, deadline: Instant) {
        let wish = Wish { asked: Asked::Named(topics), reason: Reason::Repair, deadline, reply: None };
        // Where a thousand wishes wait already, the view is about to be renewed.
        let _ = self.0.try_send(wish);
    }
}

struct Task {
    core: Arc<Core>,
    recovery: MetadataRecovery,
    /// Repairs in a row that changed nothing.
    unchanged: u32,
    last: Option<Asked>,
    /// When the last request was answered.
    at: Option<Instant>,
    /// Since when metadata was wanted and not had.
    without_since: Option<Instant>,
    /// Who answered the last question, whenever it was asked again, the latest last.
    answered: Vec<Endpoint>,
}

impl Task {
    async fn run(mut self, mut wishes: mpsc::Receiver<Wish>) {
        while let Some(first) = wishes.recv().await {
            let mut joined = vec![first];
            self.collect(&mut wishes, &mut joined).await;
            joined.retain(|wish| !wish.is_given_up());
            if joined.is_empty() {
                continue;
            }
            // Not one request for both: a full list leaves out what the caller may not see, and a question by name is
            // answered with the reason. A question about brokers alone (no name) is answered by either.
            let full = joined.iter().any(|wish| wish.asked == Asked::All);
            let no_name = Asked::Named(Vec::new());
            let (listed, named): (Vec<Wish>, Vec<Wish>) = joined
                .into_iter()
                .partition(|wish| wish.asked == Asked::All || (full && wish.asked == no_name));
            for group in [listed, named].into_iter().filter(|group| !group.is_empty()) {
                let answer = self.round(&group).await;
                for wish in group {
                    if let Some(reply) = wish.reply {
                        // A caller that has given up meanwhile needs no answer.
                        let _ = reply.send(answer.clone());
                    }
                }
            }
        }
    }

    /// Takes in wishes until the pause after the last request is over.
    async fn collect(&self, wishes: &mut mpsc::Receiver<Wish>, joined: &mut Vec<Wish>) {
        while let Some(until) = self.pause_end(joined).filter(|until| Instant::now() < *until) {
            if joined.len() >= JOINED_MAX {
                sleep_until(until).await;
                break;
            }
            // `recv` loses no wish when it is dropped.
            match timeout_at(until, wishes.recv()).await {
                Ok(Some(wish)) => joined.push(wish),
                Ok(None) | Err(_) => break,
            }
        }
        while joined.len() < JOINED_MAX
            && let Ok(wish) = wishes.try_recv()
        {
            joined.push(wish);
        }
    }

    /// Repairs wait longer each time that one changed nothing, and the question that was asked last waits for the shortest
    /// pause. Any other question waits for nothing: what it asks was not asked a moment ago.
    fn pause_end(&self, joined: &[Wish]) -> Option<Instant> {
        let new = |wish: &Wish| wish.reason == Reason::Look && Some(&wish.asked) != self.last.as_ref();
        if joined.iter().all(new) {
            return None;
        }
        let repair = joined.iter().all(|wish| wish.reason == Reason::Repair);
        let failures = if repair { self.unchanged + 1 } else { 1 };
        Some(self.at? + self.core.pool.jitter.backoff(failures, PAUSE_MIN, BACKOFF_MAX))
    }

    async fn round(&mut self, joined: &[Wish]) -> Result<Arc<ClusterSnapshot>, RefreshError> {
        let asked = union(joined.iter().map(|wish| &wish.asked));
        let mut reason = joined.iter().map(|wish| wish.reason).max().unwrap_or(Reason::Look);
        let deadline = joined.iter().map(|wish| wish.deadline).max().unwrap_or_else(Instant::now);
        self.mark_stale(joined);
        let began = Instant::now();
        if let MetadataRecovery::Rebootstrap { trigger } = self.recovery
            && self.without_since.is_some_and(|since| began >= since + trigger)
        {
            // Its own timer begins anew, so that the next rounds give the learned brokers their turn.
            self.without_since = Some(began);
            reason = Reason::Rebootstrap;
        }
        if reason == Reason::Rebootstrap && self.recovery != MetadataRecovery::None {
            self.core.pool.forget_nodes();
        }
        if self.last.as_ref() != Some(&asked) {
            self.answered.clear();
        }
        let span = debug_span!("refresh", cause = reason.words());
        let outcome = self.ask_around(&asked, reason, deadline).instrument(span).await;
        self.at = Some(Instant::now());
        self.without_since = match &outcome {
            Ok(_) => None,
            Err(_) => Some(self.without_since.unwrap_or(began)),
        };
        let changed = outcome.as_ref().is_ok_and(|taken| taken.changed);
        self.tell(reason, began, &outcome);
        self.unchanged = match reason {
            Reason::Repair if !changed && self.last.as_ref() == Some(&asked) => {
                self.unchanged.saturating_add(1)
            }
            _ => 0,
        };
        self.last = Some(asked);
        outcome.map(|_| self.core.view())
    }

    fn tell(&self, reason: Reason, began: Instant, outcome: &Result<Taken, RefreshError>) {
        let mut epoch_regressions = Vec::new();
        let mut recreated_topics = Vec::new();
        for notice in outcome.iter().flat_map(|taken| &taken.notices) {
            match notice {
                Notice::LeaderEpochWentBack { topic, partition, .. } => {
                    epoch_regressions.push((&**topic, *partition));
                }
                Notice::TopicRecreated { topic, .. } => recreated_topics.push(&**topic),
            }
        }
        let view = self.core.view();
        let event = MetadataEvent {
            cause: reason.words(),
            took: began.elapsed(),
            brokers: view.brokers().len(),
            topics: view.topics().count(),
            epoch_regressions: &epoch_regressions,
            recreated_topics: &recreated_topics,
            outcome: outcome
                .as_ref()
                .map(|_| ())
                .map_err(|error| error as &(dyn std::error::Error + 'static)),
        };
        self.core.pool.observer().on_metadata(&event);
    }

    fn mark_stale(&self, joined: &[Wish]) {
        let mut stale = Vec::new();
        for wish in joined {
            if let (Asked::Named(names), true) = (&wish.asked, wish.reason != Reason::Look) {
                stale.extend(names.iter().cloned());
            }
        }
        self.core.mark_stale(&stale);
    }

    /// Asks one broker after the other, each a little after the one before it at the latest, until one gives an answer that
    /// can be used: what it brought.
    async fn ask_around(
        &mut self,
        asked: &Asked,
        reason: Reason,
        deadline: Instant,
    ) -> Result<Taken, RefreshError> {
        let began = Instant::now();
        let view = self.core.view();
        let mut candidates: VecDeque<Endpoint> = self.candidates(&view, reason).into();
        if candidates.is_empty() {
            return Err(RefreshError::NoAddress);
        }
        let mut under_way = FuturesUnordered::new();
        let mut names = Vec::new();
        let mut worst: Option<SendError> = None;
        let mut next_at = began;
        loop {
            if (under_way.is_empty() || next_at <= Instant::now())
                && let Some(endpoint) = candidates.pop_front()
            {
                names.push(self.core.pool.peer(&endpoint, &view));
                under_way.push(self.ask(endpoint, asked, &view, deadline));
                next_at = Instant::now() + NEXT_BROKER_AFTER;
                continue;
            }
            if under_way.is_empty() {
                let source = worst.expect("each of those asked has failed");
                return Err(RefreshError::NoAnswer { asked: names, source: Box::new(source) });
            }
            let wake = if candidates.is_empty() { deadline } else { next_at.min(deadline) };
            match timeout_at(wake, under_way.next()).await {
                Ok(Some((endpoint, Ok(answer)))) => match self.take_in(answer, asked) {
                    Ok(taken) => {
                        drop(under_way);
                        self.answered.retain(|other| *other != endpoint);
                        self.answered.push(endpoint);
                        return Ok(taken);
                    }
                    Err(source) => {
                        let peer = self.core.pool.peer(&endpoint, &view);
                        tracing::debug!(peer, error = %source, "metadata answer rejected");
                        match &source {
                            RejectedAnswer::OtherCluster { .. } => self.core.pool.retire(&endpoint),
                            RejectedAnswer::TopLevelError { code }
                                if Recovery::of(*code) == Recovery::Rebootstrap =>
                            {
                                self.start_again(&mut candidates);
                            }
                            _ => {}
                        }
                        worst = Some(worse(worst, SendError::BadMetadata { peer, source }));
                    }
                },
                Ok(Some((endpoint, Err(error)))) => {
                    tracing::debug!(%endpoint, %error, "no metadata");
                    if error.recovery() == Recovery::Rebootstrap {
                        self.start_again(&mut candidates);
                    }
                    worst = Some(worse(worst, error));
                }
                Ok(None) => {}
                Err(_) if Instant::now() >= deadline => {
                    let source = worst.map(Box::new);
                    return Err(RefreshError::Deadline { waited: began.elapsed(), source });
                }
                Err(_) => {}
            }
        }
    }

    /// A broker disowned the view: from now on only the bootstrap addresses are asked.
    fn start_again(&self, candidates: &mut VecDeque<Endpoint>) {
        if self.recovery != MetadataRecovery::None {
            self.core.pool.forget_nodes();
            candidates.retain(|endpoint| matches!(endpoint, Endpoint::Bootstrap(_)));
        }
    }

    /// Learned brokers first, but only so many that the bootstrap addresses get their turn in any round: all addresses of a
    /// cluster may have changed at once. Which ones is left to chance, so over several rounds each gets its turn. Where an
    /// answer was contradicted, others are asked first: a broker that lags behind may be the one that is nearest.
    fn candidates(&self, view: &ClusterSnapshot, reason: Reason) -> Vec<Endpoint> {
        let no_way_back = self.recovery == MetadataRecovery::None && view.told_at().is_some();
        let learned_max = if reason == Reason::Rebootstrap { 0 } else { LEARNED_BROKERS_PER_ROUND };
        let mut learned = 0;
        // What these told was contradicted by something: another broker may know better.
        let contradicted = if reason == Reason::Repair { self.answered.as_slice() } else { &[] };
        let mut candidates = self.core.pool.anyone_but(contradicted, view, Purpose::Control);
        candidates.retain(|endpoint| match endpoint {
            Endpoint::Bootstrap(_) => !no_way_back,
            Endpoint::Node(_) => {
                learned += 1;
                learned <= learned_max || no_way_back
            }
        });
        candidates
    }

    async fn ask(
        &self,
        endpoint: Endpoint,
        asked: &Asked,
        view: &ClusterSnapshot,
        deadline: Instant,
    ) -> (Endpoint, Result<Result<MetadataAnswer, RejectedAnswer>, SendError>) {
        let answer = async {
            let connection = self.core.pool.connection(&endpoint, Purpose::Control, view).await?;
            let limits = strandline_conn::Call::by(deadline).request_timeout(self.core.request_timeout);
            let sent = connection.send(|_version| metadata_request(asked), limits).await;
            if sent.is_ok() {
                self.core.pool.has_answered(&endpoint);
            }
            sent.map_err(|source| {
                if SendError::is_silence(&source) {
                    self.core.pool.was_silent(&endpoint);
                }
                SendError::Request { peer: self.core.pool.peer(&endpoint, view), source }
            })
        };
        let answer = answer.await.map(|response| MetadataAnswer::new(endpoint.clone(), response));
        (endpoint, answer)
    }

    fn take_in(
        &self,
        answer: Result<MetadataAnswer, RejectedAnswer>,
        asked: &Asked,
    ) -> Result<Taken, RejectedAnswer> {
        self.core.take_in(answer?, asked)
    }
}

/// Of two failures the one that says more: what waiting does not cure before what it may.
fn worse(before: Option<SendError>, now: SendError) -> SendError {
    match before {
        Some(before) if !passes(&before) || passes(&now) => before,
        _ => now,
    }
}

fn passes(error: &SendError) -> bool {
    !matches!(error.recovery(), Recovery::Fail | Recovery::Authenticate | Recovery::Forbidden)
}

fn union<'a>(asked: impl Iterator<Item = &'a Asked>) -> Asked {
    let mut names = Vec::new();
    for asked in asked {
        match asked {
            Asked::All => return Asked::All,
            Asked::Named(more) => names.extend(more.iter().cloned()),
        }
    }
    names.sort();
    names.dedup();
    Asked::Named(names)
}

//! Sends a call that is made of items to whichever brokers they belong to, and again where that failed, until each item has
//! an answer or an error that waiting does not cure, or the deadline passes.
//!
//! Items for one broker share a request; brokers are asked at the same time, and one that is slow delays only its own items.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use strandline_conn::{Recovery, RetryDecision, RetryEvent};
use strandline_protocol::{ErrorCode, Request};
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::{BACKOFF_MAX, BACKOFF_MIN};
use crate::cluster::Shared;
use crate::codes::Codes;
use crate::coordinators::Kind;
use crate::errors::{RefreshError, SendError};
use crate::pool::{Endpoint, Purpose};
use crate::refresher::Reason;
use crate::routing::{self, Destination, RetrySafety, Subject};
use crate::snapshot::ClusterSnapshot;
use crate::snapshot::apply::Asked;

mod choice;
mod exchange;

use choice::{Choice, Chooser};
pub(crate) use exchange::send_one;

/// So many answers that a topic (or partition) does not exist, all given after the call began, make it final. One may come
/// from a broker that has not yet heard of it.
const ABSENT_ANSWERS: u32 = 2;
/// So often a broker may say that it does not know the leader epoch of the view before the view is asked for anew.
const EPOCH_PATIENCE: u32 = 3;
/// So many answers that no topic has the id in the request make that final: the topic was deleted, or created again. A broker
/// may hear late of a new topic; these tries take a second and a half at least.
const WRONG_ID_ANSWERS: u32 = 5;
/// So many tries of a request that any broker can answer give the broker half of the time that is left; then all of it.
const IMPATIENT_TRIES: u32 = 2;
/// So long after the deadline a connection may take to say what became of a request that was on it: it has the same
/// deadline, and knows whether a byte was sent.
const LAST_WORD: Duration = Duration::from_millis(10);

/// A request that is made of items, each of which belongs to some broker.
///
/// The driver groups items by broker, and has each group built, sent and taken apart by these functions. They are pure.
pub trait Call: Send + Sync {
    /// The request of the protocol.
    type Request: Request<Response: Codes>;
    /// What is asked for, one at a time.
    type Item: Send + Sync;
    /// The answer to one item.
    type Answer: Send;

    /// What decides where an item goes.
    fn subject(&self, item: &Self::Item) -> Subject;

    /// Whether an item can be said in `version`, else the reason, as "offset -5 needs version 9".
    fn fits(&self, item: &Self::Item, version: i16) -> Result<(), String> {
        let (_, _) = (item, version);
        Ok(())
    }

    /// The highest version that can say what is asked, for a call whose items are not what later versions want, such as topics
    /// by name. Default: the highest that both sides know.
    fn version_max(&self) -> Option<i16> {
        None
    }

    /// Most items that one request of `version` has room for (at least 1 counts); more go as several requests, one behind
    /// the other on the same connection. Default: any number.
    fn items_per_request(&self, version: i16) -> usize {
        let _ = version;
        usize::MAX
    }

    /// One request for several items of one broker, in the version of the connection that carries it.
    fn request(&self, items: &[Routed<'_, Self::Item>], version: i16) -> Self::Request;

    /// Each item's part of the answer, in the order of `items`.
    fn answers(
        &self,
        items: &[Routed<'_, Self::Item>],
        response: <Self::Request as Request>::Response,
    ) -> Vec<ItemAnswer<Self::Answer>>;
}

/// An item on its way to a broker.
#[derive(Debug)]
pub struct Routed<'a, I> {
    /// The item.
    pub item: &'a I,
    /// For a partition the leader epoch that the view holds; a broker that knows a newer one refuses the item.
    pub leader_epoch: Option<i32>,
}

/// What a response says about one item.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemAnswer<A> {
    /// The answer.
    Answer(A),
    /// An error code, with the broker's words where the response has room for them.
    Code(ErrorCode, Option<String>),
    /// Nothing.
    LeftOut,
}

/// Drives `call`: one result per item, in the order of `items`.
pub(crate) async fn drive<C: Call>(
    shared: &Shared,
    call: &C,
    items: &[C::Item],
    deadline: Instant,
) -> Vec<Result<C::Answer, SendError>> {
    let began = Instant::now();
    let mut drive = Drive {
        shared,
        call,
        items,
        began,
        deadline,
        results: items.iter().map(|_| None).collect(),
        last: items.iter().map(|_| None).collect(),
        handed_over: items.iter().map(|_| None).collect(),
        under_way: FuturesUnordered::new(),
    };
    drive.dispatch((0..items.len()).map(Pending::new).collect(), None);
    while !drive.under_way.is_empty() {
        match timeout_at(deadline, drive.under_way.next()).await {
            Ok(Some(Step::Again(pending, refresh))) => drive.dispatch(pending, refresh),
            Ok(Some(Step::Sent(sent))) => drive.sent(sent),
            Ok(Some(Step::Found(pending))) => drive.found(pending),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    while drive.is_on_a_connection() {
        match timeout_at(deadline + LAST_WORD, drive.under_way.next()).await {
            Ok(Some(Step::Sent(sent))) => drive.sent(sent),
            Ok(Some(Step::Again(..) | Step::Found(_))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    drive.end()
}

/// An item without a result yet.
#[derive(Debug)]
struct Pending {
    index: usize,
    /// Tries that failed.
    failures: u32,
    /// Answers, given since the call began, that what it is about does not exist.
    absent: u32,
    absent_at: Option<Instant>,
    /// Answers that nobody knows the topic id in its request, or that the name has another one.
    wrong_id: u32,
    /// It went to a newer leader without a refresh, which it may do once in a row.
    followed: bool,
    /// It was sent again at once since the connection had ended before a byte was sent, which may happen once.
    resent: bool,
}

impl Pending {
    fn new(index: usize) -> Self {
        Self { index, failures: 0, absent: 0, absent_at: None, wrong_id: 0, followed: false, resent: false }
    }
}

/// Where a request went, and by which view.
struct Way {
    endpoint: Endpoint,
    view: Arc<ClusterSnapshot>,
}

struct Sent<C: Call> {
    way: Way,
    peer: String,
    pending: Vec<Pending>,
    /// In the order of `pending`.
    outcomes: Vec<Result<ItemAnswer<C::Answer>, SendError>>,
}

enum Step<C: Call> {
    Sent(Sent<C>),
    /// Coordinators were looked for; where one was not found, why.
    Found(Vec<(Pending, Option<SendError>)>),
    /// The wait is over: choose brokers anew, with the view there is. If it could not be refreshed, why.
    Again(Vec<Pending>, Option<RefreshError>),
}

/// What is done before an item is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Nothing: no byte was sent, or the view has moved on meanwhile.
    AtOnce,
    /// It waits.
    Wait,
    /// It waits, and the view is refreshed.
    Repair,
    /// It waits, and the view is refreshed from the bootstrap addresses.
    Rebootstrap,
}

/// What is done about the items of one answer.
#[derive(Default)]
struct Decisions {
    again: BTreeMap<Next, Vec<Pending>>,
    /// The first item that is given up: its tries, and why.
    given_up: Option<(u32, SendError)>,
}

struct Drive<'a, C: Call> {
    shared: &'a Shared,
    call: &'a C,
    items: &'a [C::Item],
    began: Instant,
    deadline: Instant,
    results: Vec<Option<Result<C::Answer, SendError>>>,
    last: Vec<Option<SendError>>,
    /// Of items under way: true once a byte of the request may have left.
    handed_over: Vec<Option<Arc<AtomicBool>>>,
    under_way: FuturesUnordered<BoxFuture<'a, Step<C>>>,
}

impl<'a, C: Call> Drive<'a, C> {
    fn is_on_a_connection(&self) -> bool {
        self.handed_over.iter().flatten().any(|handed_over| handed_over.load(Ordering::Relaxed))
    }

    /// The results; an item without one was late.
    fn end(self) -> Vec<Result<C::Answer, SendError>> {
        let waited = self.began.elapsed();
        let ends = self.results.into_iter().zip(self.last).zip(self.handed_over);
        let end =
            |((result, last), handed_over): ((Option<_>, Option<SendError>), Option<Arc<AtomicBool>>)| {
                result.unwrap_or_else(|| {
                    let sent_now = handed_over.is_some_and(|handed_over| handed_over.load(Ordering::Relaxed));
                    let may_have_been_sent =
                        sent_now || last.as_ref().is_some_and(SendError::may_have_been_sent);
                    Err(SendError::Deadline { waited, may_have_been_sent, source: last.map(Box::new) })
                })
            };
        ends.map(end).collect()
    }

    /// Chooses a broker for each item and sends one request to each of them.
    ///
    /// Where the view lacks something and `refresh` says why it could not be had, that is the item's failure: a wrong
    /// password must not look like a partition without a leader.
    fn dispatch(&mut self, pending: Vec<Pending>, refresh: Option<RefreshError>) {
        let core = &*self.shared.core;
        let view = core.view();
        // One choice for the whole dispatch, so that items that any broker can answer share one request.
        let mut others = core.pool.anyone(&view, Purpose::of(C::Request::API_KEY)).into_iter();
        let anyone = others.next();
        let is_only_one = others.next().is_none();
        let chooser = Chooser { core, view: &view, anyone, began: self.began };
        let mut groups: BTreeMap<(Endpoint, bool), Vec<Pending>> = BTreeMap::new();
        let mut to_find: BTreeMap<Kind, Vec<(Pending, Arc<str>)>> = BTreeMap::new();
        let mut again = Vec::new();
        for mut item in pending {
            let index = item.index;
            match chooser.choose(C::Request::API_KEY, &self.call.subject(&self.items[index])) {
                Choice::Send(endpoint) => groups.entry((endpoint, true)).or_default().push(item),
                Choice::Anyone(endpoint) => {
                    let must = is_only_one || item.failures >= IMPATIENT_TRIES || !self.is_repeatable();
                    groups.entry((endpoint, must)).or_default().push(item);
                }
                Choice::Find(kind, key) => to_find.entry(kind).or_default().push((item, key)),
                Choice::Final(error) => self.results[index] = Some(Err(error)),
                Choice::Refresh(error) => {
                    let error = refresh.clone().map_or(error, SendError::from);
                    if stays(&error) {
                        self.results[index] = Some(Err(error));
                    } else {
                        self.last[index] = Some(error);
                        again.push(item);
                    }
                }
                Choice::Absent(error, at) => {
                    if at >= self.began && item.absent_at != Some(at) {
                        item.absent += 1;
                        item.absent_at = Some(at);
                    }
                    if item.absent >= ABSENT_ANSWERS {
                        self.results[index] = Some(Err(error));
                    } else {
                        self.last[index] = Some(error);
                        again.push(item);
                    }
                }
            }
        }
        for ((endpoint, must), pending) in groups {
            // A broker that hangs must not have all the time of a call that others can answer.
            let now = Instant::now();
            let half = now + self.deadline.saturating_duration_since(now) / 2;
            let deadline = if must { self.deadline } else { half };
            self.send(Way { endpoint, view: Arc::clone(&view) }, pending, deadline);
        }
        for (kind, pending) in to_find {
            self.under_way.push(self.find(kind, pending));
        }
        // A question the view cannot answer waits for no back-off the first time: the refresher has its own pauses.
        let fresh = again.iter().all(|item| item.failures == 0 && item.absent == 0);
        for item in &mut again {
            item.failures += 1;
        }
        let wait = if fresh { Duration::ZERO } else { self.back_off(&again) };
        self.wait_and_refresh(again, wait, Some(Reason::Look));
    }

    /// Looks for the coordinators of these items; those of one kind share a look-up.
    fn find(&self, kind: Kind, pending: Vec<(Pending, Arc<str>)>) -> BoxFuture<'a, Step<C>> {
        let core = &self.shared.core;
        async move {
            let keys: BTreeSet<Arc<str>> = pending.iter().map(|(_, key)| Arc::clone(key)).collect();
            let keys: Vec<Arc<str>> = keys.into_iter().collect();
            let found = core.coordinators.find(core, kind, &keys).await;
            let outcome =
                |(item, key): (Pending, Arc<str>)| (item, found.get(&key).cloned().and_then(Result::err));
            Step::Found(pending.into_iter().map(outcome).collect())
        }
        .boxed()
    }

    fn found(&mut self, pending: Vec<(Pending, Option<SendError>)>) {
        let mut decisions = Decisions::default();
        let mut known = Vec::new();
        for (item, error) in pending {
            match error {
                Some(error) => self.failed(item, error, None, &mut decisions),
                None => known.push(item),
            }
        }
        self.carry_out(decisions);
        self.dispatch(known, None);
    }

    fn is_repeatable(&self) -> bool {
        routing::retry_safety(C::Request::API_KEY) == RetrySafety::Idempotent
    }

    fn send(&mut self, way: Way, pending: Vec<Pending>, deadline: Instant) {
        let handed_over = Arc::new(AtomicBool::new(false));
        for item in &pending {
            self.handed_over[item.index] = Some(Arc::clone(&handed_over));
        }
        let (core, call, items) = (&self.shared.core, self.call, self.items);
        let step = async move {
            let Way { endpoint, view } = &way;
            let routed: Vec<Routed<'_, C::Item>> =
                pending.iter().map(|item| routed(call, &items[item.index], view)).collect();
            let outcomes = send_one(core, call, endpoint, &routed, view, deadline, &handed_over).await;
            let peer = core.pool.peer(endpoint, view);
            Step::Sent(Sent { way, peer, pending, outcomes })
        };
        self.under_way.push(step.boxed());
    }

    fn sent(&mut self, sent: Sent<C>) {
        let Sent { way, peer, pending, outcomes } = sent;
        let mut decisions = Decisions::default();
        for (item, outcome) in pending.into_iter().zip(outcomes) {
            self.handed_over[item.index] = None;
            let error = match outcome {
                Ok(ItemAnswer::Answer(answer)) => {
                    self.results[item.index] = Some(Ok(answer));
                    continue;
                }
                Ok(ItemAnswer::Code(code, message)) => SendError::Code { peer: peer.clone(), code, message },
                Ok(ItemAnswer::LeftOut) => SendError::LeftOut { peer: peer.clone() },
                Err(error) => error,
            };
            self.disown(&way.endpoint, item.index, &error);
            self.failed(item, error, Some(&way), &mut decisions);
        }
        self.carry_out(decisions);
    }

    /// Forgets what the failure contradicts: the coordinator that disowns its key, all that a broker coordinates which
    /// cannot be reached or does not answer, the controller that is none.
    fn disown(&self, endpoint: &Endpoint, index: usize, error: &SendError) {
        let Endpoint::Node(node_id) = *endpoint else { return };
        let core = &self.shared.core;
        match (error.recovery(), error) {
            (Recovery::FindController, _) => core.controller_moved(node_id),
            (Recovery::FindCoordinator, _) => {
                match routing::destination(C::Request::API_KEY, &self.call.subject(&self.items[index])) {
                    Ok(Destination::GroupCoordinator(key)) => {
                        core.coordinators.forget(Kind::Group, &key, node_id);
                    }
                    Ok(Destination::TransactionCoordinator(key)) => {
                        core.coordinators.forget(Kind::Transaction, &key, node_id);
                    }
                    Ok(
                        Destination::Any
                        | Destination::Controller
                        | Destination::Broker(_)
                        | Destination::PartitionLeader { .. },
                    )
                    | Err(_) => {}
                }
            }
            (_, SendError::Dial(_) | SendError::Request { .. }) => {
                core.coordinators.forget_nodes(&[node_id]);
            }
            _ => {}
        }
    }

    /// Decides what is done about the failure of an item.
    fn failed(&mut self, mut item: Pending, error: SendError, way: Option<&Way>, decisions: &mut Decisions) {
        let by_partition = matches!(self.call.subject(&self.items[item.index]), Subject::Partition { .. });
        if error.code() == Some(ErrorCode::UnknownTopicOrPartition) && !by_partition {
            // Of partitions the view knows whether they exist; of all else only these answers tell.
            item.absent += 1;
        }
        if let Some(ErrorCode::UnknownTopicId | ErrorCode::InconsistentTopicId) = error.code() {
            item.wrong_id += 1;
        }
        item.failures += 1;
        match self.next(&mut item, &error, way) {
            Some(next) => {
                self.last[item.index] = Some(error);
                decisions.again.entry(next).or_default().push(item);
            }
            None => {
                decisions.given_up.get_or_insert_with(|| (item.failures, error.clone()));
                self.results[item.index] = Some(Err(error));
            }
        }
    }

    fn next(&self, item: &mut Pending, error: &SendError, way: Option<&Way>) -> Option<Next> {
        if item.absent >= ABSENT_ANSWERS || item.wrong_id >= WRONG_ID_ANSWERS {
            return None;
        }
        // An unknown outcome is told, not repeated.
        if !self.is_repeatable() && error.leaves_outcome_unknown() {
            return None;
        }
        match error.recovery() {
            // A broker that lags behind learns the epoch soon. If not, the view has it from an answer or a hint that was wrong, or
            // the epochs went back, which several answers have to say.
            Recovery::Retry
                if error.code() == Some(ErrorCode::UnknownLeaderEpoch) && item.failures >= EPOCH_PATIENCE =>
            {
                Some(Next::Repair)
            }
            // The coordinator was forgotten, and is looked for when the wait is over.
            Recovery::Retry | Recovery::FindCoordinator => Some(Next::Wait),
            Recovery::RefreshMetadata => {
                item.followed = !item.followed && way.is_some_and(|way| self.has_newer_leader(item, way));
                Some(if item.followed { Next::AtOnce } else { Next::Repair })
            }
            Recovery::Redial if error.ended_unsent() && !item.resent => {
                item.resent = true;
                Some(Next::AtOnce)
            }
            Recovery::FindController | Recovery::Redial => Some(Next::Repair),
            Recovery::Rebootstrap => Some(Next::Rebootstrap),
            Recovery::Proceed
            | Recovery::RestartSession
            | Recovery::Authenticate
            | Recovery::Forbidden
            | Recovery::Fail => None,
        }
    }

    /// True if the view names another leader than when the item was sent, in a newer epoch: the answer itself hinted at it
    /// (KIP-951), or somebody has refreshed the view meanwhile.
    fn has_newer_leader(&self, item: &Pending, way: &Way) -> bool {
        let Subject::Partition { topic, partition } = self.call.subject(&self.items[item.index]) else {
            return false;
        };
        let now = self.shared.core.view();
        match (way.view.partition(&topic, partition), now.partition(&topic, partition)) {
            (Some(then), Some(now)) => now.leader_epoch > then.leader_epoch && now.leader != then.leader,
            _ => false,
        }
    }

    fn carry_out(&self, decisions: Decisions) {
        if let Some((attempt, error)) = &decisions.given_up {
            self.tell(*attempt, error, RetryDecision::GiveUp);
        }
        for (next, items) in decisions.again {
            let (wait, reason) = match next {
                Next::AtOnce => {
                    // Whatever was followed, the topics were contradicted: they are asked for anew beside it.
                    let topics: Vec<Arc<str>> = self.topics(items.iter().filter(|item| item.followed));
                    if !topics.is_empty() {
                        self.shared
                            .refresher
                            .nudge(topics, Instant::now() + self.shared.core.request_timeout);
                    }
                    (Duration::ZERO, None)
                }
                Next::Wait => (self.back_off(&items), None),
                Next::Repair => (self.back_off(&items), Some(Reason::Repair)),
                Next::Rebootstrap => (self.back_off(&items), Some(Reason::Rebootstrap)),
            };
            if let Some((item, error)) =
                items.first().and_then(|item| Some((item, self.last[item.index].as_ref()?)))
            {
                self.tell(item.failures, error, RetryDecision::Again { after: wait });
            }
            self.wait_and_refresh(items, wait, reason);
        }
    }

    /// One event for all items that fare alike.
    fn tell(&self, attempt: u32, error: &SendError, decision: RetryDecision) {
        let (api, recovery) = (C::Request::API_KEY, error.recovery());
        let event = RetryEvent { api, attempt, error, recovery, decision };
        self.shared.core.pool.observer().on_retry(&event);
    }

    fn back_off(&self, pending: &[Pending]) -> Duration {
        let failures = pending.iter().map(|item| item.failures).max().unwrap_or(0);
        self.shared.core.pool.jitter.backoff(failures.max(1), BACKOFF_MIN, BACKOFF_MAX)
    }

    /// Lets items wait, and then for a fresh view where `reason` says so, before brokers are chosen anew.
    fn wait_and_refresh(&self, pending: Vec<Pending>, wait: Duration, reason: Option<Reason>) {
        if pending.is_empty() {
            return;
        }
        let topics = self.topics(pending.iter());
        let (shared, deadline) = (self.shared, self.deadline);
        let step = async move {
            if wait > Duration::ZERO {
                sleep(wait).await;
            }
            let Some(reason) = reason else { return Step::Again(pending, None) };
            let refreshed = shared.refresher.refresh(Asked::Named(topics), reason, deadline).await;
            Step::Again(pending, refreshed.err())
        };
        self.under_way.push(step.boxed());
    }

    /// The topics that the view has to know for these items.
    fn topics<'p>(&self, pending: impl Iterator<Item = &'p Pending>) -> Vec<Arc<str>> {
        let topics = pending.filter_map(|item| match self.call.subject(&self.items[item.index]) {
            Subject::Partition { topic, .. } => Some(topic),
            Subject::Group(_) => self.evidence_wanted(Kind::Group),
            Subject::Transaction(_) => self.evidence_wanted(Kind::Transaction),
            Subject::Cluster | Subject::Broker(_) | Subject::Resource { .. } => None,
        });
        topics.collect::<BTreeSet<Arc<str>>>().into_iter().collect()
    }

    /// The coordinators' topic, where the view has to show it before one may be looked for.
    fn evidence_wanted(&self, kind: Kind) -> Option<Arc<str>> {
        (!self.shared.core.may_look_for(kind)).then(|| kind.topic().into())
    }
}

/// True for what keeps the view from being refreshed and is not cured by waiting within a call.
fn stays(error: &SendError) -> bool {
    match error {
        SendError::Refresh(RefreshError::NoAddress | RefreshError::Closed) => true,
        _ if error.is_no_common_version() => true,
        _ => matches!(error.recovery(), Recovery::Authenticate | Recovery::Forbidden),
    }
}

fn routed<'a, C: Call>(call: &C, item: &'a C::Item, view: &ClusterSnapshot) -> Routed<'a, C::Item> {
    let leader_epoch = match call.subject(item) {
        Subject::Partition { topic, partition } => {
            view.partition(&topic, partition).and_then(|partition| partition.leader_epoch)
        }
        Subject::Cluster
        | Subject::Broker(_)
        | Subject::Resource { .. }
        | Subject::Group(_)
        | Subject::Transaction(_) => None,
    };
    Routed { item, leader_epoch }
}

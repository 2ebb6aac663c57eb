//! One connection to each leader, with a fetch session (KIP-227), for all readings whose partitions it leads.
//!
//! A reading that wants the next page says so with a [`Wish`], and is in the session until it has its answer. While it puts a
//! page into the queue, or waits for room there, it has no wish and is left out: it costs no memory here, and holds nobody up.
//!
//! A broker takes no second request from a connection before it has answered the first, so a wish that comes while the broker
//! waits for records cannot join. It goes out at once over a second connection, which waits for
//! [`LATE_WAIT`] at the most and has no session; when the first one returns, both sets become one again. So no wish waits
//! longer than that to be heard. The second connection is dialled when it is needed, and closed when it was not for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::Uuid;
use strandline_protocol::messages::fetch::{FetchRequest, FetchResponse, ForgottenTopic};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::line::{Answer, Overdue, Pace, ended_unsent, is_empty, refused};
use super::session::FetchSession;
use crate::kafka_log::brokers::{Brokers, Fetcher as _};
use crate::kafka_log::page::{Wanted, fetch_request};
use crate::kafka_log::read::{Shared, leader_of, throttle_of};

/// Longest wait of a broker for the records of a partition that came too late for the session's request.
const LATE_WAIT: Duration = Duration::from_millis(50);

/// How long the second connection may take beyond that, dialling included, before it is given up; its wishes then wait
/// for the first.
const LATE_PATIENCE: Duration = Duration::from_secs(1);

/// So long a request is held back for the readings that have just got a page: most are back by then, and join it.
const GATHER: Duration = Duration::from_millis(2);

/// After so many requests of the session without a late wish the second connection is closed.
const LATE_UNUSED_MAX: u32 = 4;

/// A reading's question.
struct Wish {
    wanted: Wanted,
    reply: oneshot::Sender<Result<Option<Answer>, SendError>>,
}

/// The connections of one subscription, by leader.
pub(super) struct Leaders<B: Brokers> {
    shared: Arc<Shared<B>>,
    partition_count: i32,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    closed: bool,
    /// Each ends once no reading holds it.
    by_leader: HashMap<i32, mpsc::WeakSender<Wish>>,
    tasks: JoinSet<()>,
}

impl<B: Brokers> Leaders<B> {
    pub(super) fn new(shared: Arc<Shared<B>>, partition_count: i32) -> Self {
        Self { shared, partition_count, open: Mutex::default() }
    }

    /// The way of one reading's questions.
    pub(super) fn line(self: &Arc<Self>) -> ToLeader<B> {
        ToLeader { leaders: Arc::clone(self), to: None }
    }

    /// Ends all connections, and returns when they have ended. Readings that begin later get none.
    pub(super) async fn close(&self) {
        let mut tasks = {
            let mut open = self.lock();
            open.closed = true;
            mem::take(&mut open.tasks)
        };
        tasks.shutdown().await;
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a leader, which is begun if there is none; `None` once all is closed.
    fn to(&self, node_id: i32) -> Option<mpsc::Sender<Wish>> {
        let mut open = self.lock();
        if open.closed {
            return None;
        }
        if let Some(sender) = open.by_leader.get(&node_id).and_then(mpsc::WeakSender::upgrade)
            && !sender.is_closed()
        {
            return Some(sender);
        }
        // Every reading has one wish at the most.
        let (sender, wishes) = mpsc::channel(usize::try_from(self.partition_count).unwrap_or(1).max(1));
        let leader = Leader::new(Arc::clone(&self.shared), node_id, wishes);
        while open.tasks.try_join_next().is_some() {}
        open.tasks.spawn(leader.run());
        open.by_leader.insert(node_id, sender.downgrade());
        Some(sender)
    }
}

/// One reading's way to whoever leads its partition.
pub(super) struct ToLeader<B: Brokers> {
    leaders: Arc<Leaders<B>>,
    to: Option<(i32, mpsc::Sender<Wish>)>,
}

impl<B: Brokers> ToLeader<B> {
    pub(super) async fn ask(&mut self, leader: i32, wanted: Wanted) -> Result<Option<Answer>, SendError> {
        let gone = || SendError::LeftOut { peer: format!("broker {leader}") };
        let kept = self.to.take().filter(|(node_id, sender)| *node_id == leader && !sender.is_closed());
        let sender = match kept {
            Some((_, sender)) => sender,
            None => self.leaders.to(leader).ok_or_else(gone)?,
        };
        let (_, sender) = self.to.insert((leader, sender));
        let (reply, answer) = oneshot::channel();
        sender.send(Wish { wanted, reply }).await.map_err(|_| gone())?;
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| Err(gone())),
            // A wish that was put into the queue while its reader went stays there.
            () = sender.closed() => Err(gone()),
        }
    }
}

/// The connection to one leader.
struct Leader<B: Brokers> {
    shared: Arc<Shared<B>>,
    node_id: i32,
    peer: Arc<str>,
    wishes: mpsc::Receiver<Wish>,
    /// Those that are on no connection.
    waiting: BTreeMap<i32, Wish>,
    session: FetchSession,
    main: Side<B>,
    late: Side<B>,
    /// Requests of the session since the second connection was used.
    late_unused: u32,
    /// The second connection has failed: until then it is not tried again.
    late_rests_until: Instant,
    /// Those that have got a page and are not back, and how long a request is held back for them.
    expected: BTreeSet<i32>,
    gather_until: Instant,
    pace: Pace,
    /// Of the session's request, while one is under way.
    overdue: Overdue,
    /// The question who leads by now, while the answer is overdue.
    looking: Option<BoxFuture<'static, Result<(), SendError>>>,
    /// The request that a connection which had ended did not take was sent again at once.
    sent_again: bool,
    /// The last answer said that the session is lost.
    session_lost: bool,
}

/// One of the two connections.
struct Side<B: Brokers> {
    fetcher: Option<Arc<B::Fetcher>>,
    poll: Option<Poll<B>>,
}

/// A request under way.
struct Poll<B: Brokers> {
    wishes: BTreeMap<i32, Wish>,
    asked_at: Instant,
    wait: Duration,
    done: BoxFuture<'static, Done<B>>,
}

struct Done<B: Brokers> {
    fetcher: Option<Arc<B::Fetcher>>,
    answer: Result<FetchResponse, SendError>,
}

impl<B: Brokers> Poll<B> {
    /// True once a broker that has nothing may say so.
    fn is_over(&self) -> bool {
        self.asked_at.elapsed() >= self.wait / 2
    }
}

impl<B: Brokers> Side<B> {
    fn new() -> Self {
        Self { fetcher: None, poll: None }
    }

    /// Waits for the end of the request that is under way, if one is.
    async fn ended(&mut self) -> (Poll<B>, Done<B>) {
        let Some(poll) = &mut self.poll else { return std::future::pending().await };
        let done = (&mut poll.done).await;
        (self.poll.take().expect("it was just waited for"), done)
    }
}

impl<B: Brokers> Leader<B> {
    fn new(shared: Arc<Shared<B>>, node_id: i32, wishes: mpsc::Receiver<Wish>) -> Self {
        let now = Instant::now();
        Self {
            node_id,
            peer: format!("broker {node_id}").into(),
            wishes,
            waiting: BTreeMap::new(),
            session: FetchSession::default(),
            main: Side::new(),
            late: Side::new(),
            late_unused: 0,
            late_rests_until: now,
            expected: BTreeSet::new(),
            // Partitions are assigned many at a time.
            gather_until: now + GATHER,
            pace: Pace::new(shared.config.retry_backoff),
            overdue: Overdue::of(now),
            looking: None,
            sent_again: false,
            session_lost: false,
            shared,
        }
    }

    /// Serves wishes until no reading is left that could have one.
    async fn run(mut self) {
        loop {
            let look_again = [self.begin(), self.begin_looking()].into_iter().flatten().min();
            tokio::select! {
                wish = self.wishes.recv() => match wish {
                    Some(wish) => self.heard(wish),
                    None => return,
                },
                (poll, done) = self.main.ended() => self.main_ended(poll, done),
                (poll, done) = self.late.ended() => self.late_ended(poll, done),
                looked = in_case(&mut self.looking) => self.looked(looked),
                () = sleep_until(look_again.unwrap_or_else(Instant::now)), if look_again.is_some() => {}
            }
            while let Ok(wish) = self.wishes.try_recv() {
                self.heard(wish);
            }
        }
    }

    fn heard(&mut self, wish: Wish) {
        self.expected.remove(&wish.wanted.partition);
        self.waiting.insert(wish.wanted.partition, wish);
    }

    /// Sends what can be sent now. Gives when to look again, where that depends on the clock.
    fn begin(&mut self) -> Option<Instant> {
        self.waiting.retain(|_, wish| !wish.reply.is_closed());
        if self.waiting.is_empty() {
            return None;
        }
        let now = Instant::now();
        if now < self.pace.not_before() {
            return Some(self.pace.not_before());
        }
        match &self.main.poll {
            None => {
                // What was begun for a new leader, or what some expect to join.
                let gathering = self.session.is_new() || !self.expected.is_empty();
                if gathering && now < self.gather_until {
                    return Some(self.gather_until);
                }
                self.poll_in_session();
                None
            }
            // One that ends soon is waited for.
            Some(main) if main.asked_at + main.wait < now + LATE_WAIT => None,
            Some(_) if self.late.poll.is_some() => None,
            Some(_) if now < self.late_rests_until => Some(self.late_rests_until),
            Some(_) => {
                self.poll_late();
                None
            }
        }
    }

    /// Asks who leads by now, if an answer is overdue. Gives when it will be.
    fn begin_looking(&mut self) -> Option<Instant> {
        if self.main.poll.is_none() || self.looking.is_some() {
            return None;
        }
        if Instant::now() < self.overdue.at {
            return Some(self.overdue.at);
        }
        let shared = Arc::clone(&self.shared);
        let by = Instant::now() + shared.config.request_timeout;
        self.looking = Some(async move { shared.brokers.repair(by).await }.boxed());
        None
    }

    /// Lets those go that have another leader. Where nobody is left, nothing is waited for any more.
    fn looked(&mut self, looked: Result<(), SendError>) {
        self.looking = None;
        self.overdue.again();
        let Some(mut poll) = self.main.poll.take() else { return };
        if looked.is_ok() {
            self.leave_if_moved(&mut poll.wishes);
            let mut waiting = mem::take(&mut self.waiting);
            self.leave_if_moved(&mut waiting);
            self.waiting = waiting;
        }
        poll.wishes.retain(|_, wish| !wish.reply.is_closed());
        if poll.wishes.is_empty() {
            self.session.begin_anew();
        } else {
            self.main.poll = Some(poll);
        }
    }

    /// Asks for all that waits, in the session.
    fn poll_in_session(&mut self) {
        let config = &self.shared.config;
        // As soon as the second connection is back, its wishes are to join.
        let wait = if self.late.poll.is_some() { LATE_WAIT } else { config.fetch_max_wait };
        self.late_unused = if self.late.poll.is_some() { 0 } else { self.late_unused + 1 };
        if self.late_unused > LATE_UNUSED_MAX {
            self.late.fetcher = None;
        }
        let stands = |fetcher: &Arc<B::Fetcher>| self.shared.brokers.stands(self.node_id, fetcher);
        let fetcher = self.main.fetcher.take().filter(stands);
        if fetcher.is_none() {
            self.session.begin_anew();
        }
        let wishes = mem::take(&mut self.waiting);
        let asked = self.session.request(wishes.values().map(|wish| wish.wanted));
        let mut request = fetch_request(&self.shared.topic, self.shared.topic_id, asked.changed, config);
        (request.session_id, request.session_epoch) = (asked.id, asked.epoch);
        if !asked.forgotten.is_empty() {
            request.forgotten_topics_data = vec![ForgottenTopic {
                topic: self.shared.topic.to_string(),
                topic_id: self.shared.topic_id.map_or(Uuid::ZERO, |id| id.0),
                partitions: asked.forgotten,
                ..ForgottenTopic::default()
            }];
        }
        let patience = wait + config.request_timeout;
        self.expected.clear();
        self.overdue = Overdue::of(Instant::now() + wait);
        self.main.poll = Some(self.poll(fetcher, request, wishes, wait, patience));
    }

    /// Asks for all that waits, beside the session.
    fn poll_late(&mut self) {
        self.late_unused = 0;
        let stands = |fetcher: &Arc<B::Fetcher>| self.shared.brokers.stands(self.node_id, fetcher);
        let fetcher = self.late.fetcher.take().filter(stands);
        let wishes = mem::take(&mut self.waiting);
        let wanted = wishes.values().map(|wish| wish.wanted);
        let request = fetch_request(&self.shared.topic, self.shared.topic_id, wanted, &self.shared.config);
        let patience = LATE_WAIT + LATE_PATIENCE;
        self.late.poll = Some(self.poll(fetcher, request, wishes, LATE_WAIT, patience));
    }

    fn poll(
        &self,
        fetcher: Option<Arc<B::Fetcher>>,
        mut request: FetchRequest,
        wishes: BTreeMap<i32, Wish>,
        wait: Duration,
        patience: Duration,
    ) -> Poll<B> {
        request.max_wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        let (shared, node_id, asked_at) = (Arc::clone(&self.shared), self.node_id, Instant::now());
        let done = async move {
            let fetcher = match fetcher {
                Some(fetcher) => fetcher,
                None => {
                    let dial_by = asked_at + patience.min(shared.config.request_timeout);
                    match shared.brokers.dial(node_id, dial_by).await {
                        Ok(fetcher) => Arc::new(fetcher),
                        Err(error) => return Done { fetcher: None, answer: Err(error) },
                    }
                }
            };
            let answer = fetcher.fetch(request, Instant::now() + patience).await;
            Done { fetcher: answer.is_ok().then_some(fetcher), answer }
        };
        Poll { wishes, asked_at, wait, done: done.boxed() }
    }

    fn main_ended(&mut self, mut poll: Poll<B>, done: Done<B>) {
        self.main.fetcher = done.fetcher;
        let response = match done.answer {
            Ok(response) => response,
            Err(error) => {
                self.session.begin_anew();
                if ended_unsent(&error) && !mem::replace(&mut self.sent_again, true) {
                    return self.wait_again(poll.wishes);
                }
                return self.refuse(poll.wishes, &error);
            }
        };
        self.sent_again = false;
        let throttle = throttle_of(&response);
        self.pace.pause(throttle);
        if let Some(error) = refused(&response, &self.peer) {
            self.session.begin_anew();
            if !is_session_lost(response.error_code) {
                return self.refuse(poll.wishes, &error);
            }
            // The next request begins another one. A leader that loses that, too, is not asked as fast as it answers.
            if mem::replace(&mut self.session_lost, true) {
                self.pace.hasty();
            }
            return self.wait_again(poll.wishes);
        }
        self.session_lost = false;
        self.session.answered(&response);
        let something = self.deliver(response, &mut poll.wishes);
        if !throttle.is_zero() {
            // Those without records see why.
            let error = SendError::Throttled { peer: self.peer.to_string(), wait: throttle };
            return self.refuse(poll.wishes, &error);
        }
        match something || poll.is_over() {
            true => self.pace.in_order(),
            false => self.pace.hasty(),
        }
        self.leave_if_moved(&mut poll.wishes);
        self.wait_again(poll.wishes);
    }

    fn late_ended(&mut self, mut poll: Poll<B>, done: Done<B>) {
        self.late.fetcher = done.fetcher;
        match done.answer {
            Ok(response) if response.error_code == ErrorCode::None => {
                self.pace.pause(throttle_of(&response));
                if !self.deliver(response, &mut poll.wishes) && !poll.is_over() {
                    self.late_rests_until = Instant::now() + self.shared.config.fetch_max_wait;
                }
            }
            // What hinders this connection need not hinder the other: the wishes wait for that one, which tells.
            Ok(_) | Err(_) => self.late_rests_until = Instant::now() + self.shared.config.fetch_max_wait,
        }
        self.wait_again(poll.wishes);
    }

    /// Gives each reading its part of an answer; true if there was anything in it.
    fn deliver(&mut self, response: FetchResponse, wishes: &mut BTreeMap<i32, Wish>) -> bool {
        let throttle = throttle_of(&response);
        let hinted = self.shared.brokers.learn_leaders(&response);
        let mut something = false;
        for data in response.responses.into_iter().flat_map(|topic| topic.partitions) {
            if matches!(data.error_code, ErrorCode::UnknownTopicId | ErrorCode::InconsistentTopicId) {
                // The session holds an id that is dead, or one that this leader does not know yet.
                self.session.begin_anew();
            }
            something |= !is_empty(&data);
            let Some(wish) = wishes.remove(&data.partition_index) else { continue };
            self.expected.insert(data.partition_index);
            let answer = Answer { data, peer: Arc::clone(&self.peer), hinted, throttle };
            // A reading that has ended does not want it any more.
            let _ = wish.reply.send(Ok(Some(answer)));
        }
        self.gather_until = Instant::now() + GATHER;
        something
    }

    /// Lets those go whose partition the view shows with another leader, or under another leader epoch.
    fn leave_if_moved(&mut self, wishes: &mut BTreeMap<i32, Wish>) {
        let view = self.shared.brokers.topic();
        let moved = |partition: &i32, wish: &mut Wish| {
            leader_of(&view, *partition) != Some((self.node_id, wish.wanted.leader_epoch))
        };
        for (_, wish) in wishes.extract_if(.., moved) {
            let _ = wish.reply.send(Ok(None));
        }
    }

    fn refuse(&mut self, wishes: BTreeMap<i32, Wish>, error: &SendError) {
        for wish in wishes.into_values() {
            let _ = wish.reply.send(Err(error.clone()));
        }
    }

    fn wait_again(&mut self, wishes: BTreeMap<i32, Wish>) {
        for (partition, wish) in wishes {
            // A reading that has ended may have a successor by now, whose wish stays.
            self.waiting.entry(partition).or_insert(wish);
        }
    }
}

/// Waits for a future, if there is one.
async fn in_case<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// True where a leader does not know the session, or knows another state of it.
fn is_session_lost(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::FetchSessionIdNotFound
            | ErrorCode::InvalidFetchSessionEpoch
            | ErrorCode::FetchSessionTopicIdError
            | ErrorCode::InconsistentTopicId
    )
}

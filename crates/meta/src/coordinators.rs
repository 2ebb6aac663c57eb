//! Which broker coordinates a group or a transactional id: found with FindCoordinator, or told by a broker's list of those that
//! it coordinates itself; kept until something contradicts it.
//!
//! Callers that look for the same key at the same time share one look-up, and a look-up asks for all keys of its caller in
//! one request where the broker can (version 4, KIP-699), else one request per key.
//!
//! An entry falls when the broker says that it is not (or no longer) the coordinator, when it cannot be reached or does not
//! answer, and when it leaves the cluster or moves to another address. There is no other reason to look again.
//!
//! A real broker answers FindCoordinator by creating the coordinators' topic where it does not exist. So a read-only cluster
//! looks only while its view shows the topic; [`Kind::topic`] says which.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use strandline_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use tokio::time::Instant;

use crate::driver::{Call, ItemAnswer, Routed, send_one};
use crate::errors::{RefreshError, SendError};
use crate::pool::Purpose;
use crate::routing::Subject;
use crate::state::Core;

/// Coordinators that are remembered. Beyond it all are forgotten, and found again as they are needed.
const KNOWN_MAX: usize = 1 << 16;
/// Keys in one FindCoordinator request. Ours: an answer has some 50 bytes for each.
const KEYS_PER_REQUEST: usize = 1_000;
/// So long one broker is waited for; it answers from memory.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(5);
/// The first version of FindCoordinator with many keys (KIP-699).
const MANY_KEYS: i16 = 4;

/// What is coordinated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A group, of whatever protocol.
    Group,
    /// A transactional id.
    Transaction,
}

impl Kind {
    /// The topic whose partitions' leaders are the coordinators.
    pub(crate) fn topic(self) -> &'static str {
        match self {
            Self::Group => "__consumer_offsets",
            Self::Transaction => "__transaction_state",
        }
    }

    /// Source: `FindCoordinatorRequest.CoordinatorType`.
    fn code(self) -> i8 {
        match self {
            Self::Group => 0,
            Self::Transaction => 1,
        }
    }
}

/// What a look-up found, by key.
type Found = Arc<HashMap<Arc<str>, Result<i32, SendError>>>;
type LookUp = Shared<BoxFuture<'static, Found>>;

#[derive(Default)]
struct State {
    known: HashMap<(Kind, Arc<str>), i32>,
    /// Weak, so that a look-up ends with the last caller that waits for it.
    under_way: HashMap<(Kind, Arc<str>), WeakShared<BoxFuture<'static, Found>>>,
}

/// The coordinators that are known, and the look-ups under way.
#[derive(Default)]
pub(crate) struct Coordinators(Mutex<State>);

impl Coordinators {
    /// The coordinator, where it is known; a broker that has just joined may not be in the view yet.
    pub(crate) fn known(&self, kind: Kind, key: &str) -> Option<i32> {
        self.lock().known.get(&(kind, Arc::from(key))).copied()
    }

    /// Forgets the coordinator of one key, if it is still this broker.
    pub(crate) fn forget(&self, kind: Kind, key: &str, node_id: i32) {
        let mut state = self.lock();
        let key = (kind, Arc::from(key));
        if state.known.get(&key) == Some(&node_id) {
            state.known.remove(&key);
        }
    }

    /// Forgets all that these brokers coordinate.
    pub(crate) fn forget_nodes(&self, gone: &[i32]) {
        if !gone.is_empty() {
            self.lock().known.retain(|_, node_id| !gone.contains(node_id));
        }
    }

    /// Looks for the coordinators of `keys`, which are all different: one result for each.
    ///
    /// What is found is known from then on. Keys that others look for at the moment are waited for with them.
    ///
    /// # Cancel safety
    /// A dropped call leaves the look-up to whoever else waits for it.
    pub(crate) async fn find(
        &self,
        core: &Arc<Core>,
        kind: Kind,
        keys: &[Arc<str>],
    ) -> BTreeMap<Arc<str>, Result<i32, SendError>> {
        let mut look_ups: Vec<(LookUp, Vec<Arc<str>>)> = Vec::new();
        {
            let mut state = self.lock();
            let mut new = Vec::new();
            for key in keys {
                let under_way = state.under_way.get(&(kind, Arc::clone(key))).and_then(WeakShared::upgrade);
                match under_way {
                    Some(look_up) => look_ups.push((look_up, vec![Arc::clone(key)])),
                    None => new.push(Arc::clone(key)),
                }
            }
            if !new.is_empty() {
                let look_up = look_up(Arc::clone(core), kind, new.clone()).shared();
                state.under_way.retain(|_, other| other.upgrade().is_some());
                if let Some(weak) = look_up.downgrade() {
                    for key in &new {
                        state.under_way.insert((kind, Arc::clone(key)), weak.clone());
                    }
                }
                look_ups.push((look_up, new));
            }
        }
        let mut results = BTreeMap::new();
        for (look_up, keys) in look_ups {
            let found = look_up.await;
            for key in keys {
                // The look-up of others has this key: it was found among theirs.
                if let Some(result) = found.get(&key) {
                    results.insert(key, result.clone());
                }
            }
        }
        results
    }

    fn learn(&self, kind: Kind, found: &HashMap<Arc<str>, Result<i32, SendError>>) {
        let mut state = self.lock();
        for (key, result) in found {
            state.under_way.remove(&(kind, Arc::clone(key)));
            if let Ok(node_id) = result {
                if state.known.len() >= KNOWN_MAX {
                    state.known.clear();
                }
                state.known.insert((kind, Arc::clone(key)), *node_id);
            }
        }
    }

    /// Takes in that a broker coordinates these keys, as its own list of them says.
    pub(crate) fn listed(&self, node_id: i32, keys: impl Iterator<Item = (Kind, Arc<str>)>) {
        let mut state = self.lock();
        for key in keys {
            if state.known.len() >= KNOWN_MAX {
                state.known.clear();
            }
            state.known.insert(key, node_id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; if it did, both maps are still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One round: whoever answers anybody is asked once. Failures are the caller's, which has a deadline and back-off.
fn look_up(core: Arc<Core>, kind: Kind, keys: Vec<Arc<str>>) -> BoxFuture<'static, Found> {
    async move {
        let view = core.view();
        let call = FindCoordinators { kind };
        let routed: Vec<Routed<'_, Arc<str>>> =
            keys.iter().map(|item| Routed { item, leader_epoch: None }).collect();
        let deadline = Instant::now() + core.request_timeout.min(LOOK_UP_PATIENCE);
        let endpoint = core.pool.anyone(&view, Purpose::Control).into_iter().next();
        let outcomes: Vec<Result<i32, SendError>> = match &endpoint {
            None => keys.iter().map(|_| Err(RefreshError::NoAddress.into())).collect(),
            Some(endpoint) => {
                let peer = core.pool.peer(endpoint, &view);
                let handed_over = AtomicBool::new(false);
                let sent = send_one(&core, &call, endpoint, &routed, &view, deadline, &handed_over).await;
                sent.into_iter().map(|outcome| found(outcome, &peer)).collect()
            }
        };
        let found = Arc::new(keys.into_iter().zip(outcomes).collect());
        core.coordinators.learn(kind, &found);
        found
    }
    .boxed()
}

fn found(outcome: Result<ItemAnswer<i32>, SendError>, peer: &str) -> Result<i32, SendError> {
    match outcome? {
        ItemAnswer::Answer(node_id) => Ok(node_id),
        ItemAnswer::Code(code, message) => Err(SendError::Code { peer: peer.to_owned(), code, message }),
        ItemAnswer::LeftOut => Err(SendError::LeftOut { peer: peer.to_owned() }),
    }
}

/// FindCoordinator as a call whose items are keys of one kind.
struct FindCoordinators {
    kind: Kind,
}

impl Call for FindCoordinators {
    type Request = FindCoordinatorRequest;
    type Item = Arc<str>;
    type Answer = i32;

    fn subject(&self, _key: &Arc<str>) -> Subject {
        Subject::Cluster
    }

    fn items_per_request(&self, version: i16) -> usize {
        if version >= MANY_KEYS { KEYS_PER_REQUEST } else { 1 }
    }

    fn request(&self, items: &[Routed<'_, Arc<str>>], version: i16) -> FindCoordinatorRequest {
        let mut keys = items.iter().map(|routed| routed.item.to_string());
        let request = FindCoordinatorRequest { key_type: self.kind.code(), ..Default::default() };
        if version >= MANY_KEYS {
            FindCoordinatorRequest { coordinator_keys: keys.collect(), ..request }
        } else {
            FindCoordinatorRequest { key: keys.next().unwrap_or_default(), ..request }
        }
    }

    fn answers(
        &self,
        items: &[Routed<'_, Arc<str>>],
        response: FindCoordinatorResponse,
    ) -> Vec<ItemAnswer<i32>> {
        if response.error_code.is_error() {
            let code = ItemAnswer::Code(response.error_code, response.error_message);
            return items.iter().map(|_| code.clone()).collect();
        }
        // Up to version 3 the whole answer is about the one key.
        if items.len() == 1 && response.coordinators.is_empty() && !response.host.is_empty() {
            return vec![ItemAnswer::Answer(response.node_id)];
        }
        let coordinators = response.coordinators.iter();
        let by_key: HashMap<&str, _> = coordinators.map(|found| (found.key.as_str(), found)).collect();
        let answer = |routed: &Routed<'_, Arc<str>>| match by_key.get(&**routed.item) {
            Some(found) if found.error_code.is_error() => {
                ItemAnswer::Code(found.error_code, found.error_message.clone())
            }
            Some(found) => ItemAnswer::Answer(found.node_id),
            None => ItemAnswer::LeftOut,
        };
        items.iter().map(answer).collect()
    }
}

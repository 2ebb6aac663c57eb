//! [`Cluster`]: the only door to a Kafka cluster.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use strandline_conn::{
    BrokerAddress, CloseReason, ConnectError, Connection, ConnectionConfig, Gate, Recovery, RequestError,
};
use strandline_protocol::{ErrorCode, Message as _, Request};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument as _, debug_span};

use crate::backoff::{BACKOFF_MAX, BACKOFF_MIN};
use crate::codes::Codes;
use crate::coordinators::Kind;
use crate::driver::{self, Call, ItemAnswer, Routed};
use crate::errors::{DialError, RefreshError, SendError};
use crate::pool::Pool;
use crate::refresher::{Reason, Refresher};
use crate::routing::{RetrySafety, Subject, retry_safety};
use crate::snapshot::ClusterSnapshot;
use crate::snapshot::apply::Asked;
use crate::state::Core;

/// The default of [`ClusterConfig::request_timeout`]: that of Kafka's `request.timeout.ms`.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The default of [`ClusterConfig::bootstrap_resolve_timeout`]: that of Kafka's `bootstrap.resolve.timeout.ms` (KIP-909).
pub const DEFAULT_BOOTSTRAP_RESOLVE_TIMEOUT: Duration = Duration::from_secs(120);

/// The default of Kafka's `metadata.recovery.rebootstrap.trigger.ms` (KIP-1102).
pub const DEFAULT_REBOOTSTRAP_TRIGGER: Duration = Duration::from_secs(300);

/// How a cluster is found and talked to.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    bootstrap: Vec<BrokerAddress>,
    connection: ConnectionConfig,
    request_timeout: Duration,
    resolve_timeout: Duration,
    recovery: MetadataRecovery,
    jitter_seed: Option<u64>,
}

impl ClusterConfig {
    /// A read-only cluster found through `bootstrap`; an address that stands there twice is asked once.
    pub fn new(bootstrap: impl IntoIterator<Item = BrokerAddress>, connection: ConnectionConfig) -> Self {
        let mut addresses = Vec::new();
        for address in bootstrap {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let connection = ConnectionConfig { gate: Gate::ReadOnly, ..connection };
        Self {
            bootstrap: addresses,
            connection,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            resolve_timeout: DEFAULT_BOOTSTRAP_RESOLVE_TIMEOUT,
            recovery: MetadataRecovery::default(),
            jitter_seed: None,
        }
    }

    /// Lets requests that change something pass.
    #[must_use]
    pub fn read_write(mut self) -> Self {
        self.connection.gate = Gate::ReadWrite;
        self
    }

    /// Longest wait for one broker's answer; then its connection is given up, and another broker asked where one can
    /// answer. Default [`DEFAULT_REQUEST_TIMEOUT`].
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// So long [`Cluster::connect`] tries again while none of the bootstrap names can be resolved; its deadline applies too.
    /// Default [`DEFAULT_BOOTSTRAP_RESOLVE_TIMEOUT`].
    #[must_use]
    pub fn bootstrap_resolve_timeout(mut self, timeout: Duration) -> Self {
        self.resolve_timeout = timeout;
        self
    }

    /// What to do once the known brokers give no metadata. Default: start again from the bootstrap addresses.
    #[must_use]
    pub fn metadata_recovery(mut self, recovery: MetadataRecovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// Makes the order of brokers and the jitter of waits repeatable.
    #[must_use]
    pub fn jitter_seed(mut self, seed: u64) -> Self {
        self.jitter_seed = Some(seed);
        self
    }
}

/// What to do once metadata cannot be had from the brokers that are known: Kafka's `metadata.recovery.strategy` (KIP-899,
/// KIP-1102).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataRecovery {
    /// Only brokers that the cluster has told of are asked once it is found.
    None,
    /// The bootstrap addresses, resolved anew, are asked whenever the known brokers that were tried have failed. Once metadata
    /// could not be had for `trigger`, or a broker says so (REBOOTSTRAP_REQUIRED), the connections to all known brokers are
    /// given up and only the bootstrap addresses asked.
    Rebootstrap {
        /// Kafka's `metadata.recovery.rebootstrap.trigger.ms`.
        trigger: Duration,
    },
}

/// [`DEFAULT_REBOOTSTRAP_TRIGGER`] and the strategy that Kafka's clients have since 4.0.
impl Default for MetadataRecovery {
    fn default() -> Self {
        Self::Rebootstrap { trigger: DEFAULT_REBOOTSTRAP_TRIGGER }
    }
}

/// What calls and their steps share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) refresher: Refresher,
}

/// A handle to a cluster; clones share view and connections. The last one dropped ends them.
///
/// Every request goes through here: the read-only gate is asked, `routing.rs` chooses the broker, the pool has the connection,
/// and what a broker answers *inside* its response is looked at, so that a stale view is refreshed and the request sent
/// again, all within the caller's deadline.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("cluster_id", &self.snapshot().cluster_id()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Finds the cluster: returns once some broker has told its brokers and cluster id.
    ///
    /// Name resolution that fails and addresses that stay silent are tried again until `deadline`, since both pass. A refused
    /// connection, refused credentials, versions that have nothing in common, a listener that hangs up for want of credentials and a peer that does not speak
    /// Kafka's protocol at every address are told at once.
    ///
    /// # Errors
    /// No bootstrap address leads to a broker ([`RefreshError`] says what failed, the worst first).
    ///
    /// # Cancel safety
    /// A dropped call leaves nothing behind.
    pub async fn connect(config: ClusterConfig, deadline: Instant) -> Result<Self, RefreshError> {
        let began = Instant::now();
        let resolve_until = began + config.resolve_timeout;
        let cluster = Self::start(config);
        let mut failures = 0;
        let mut before = None;
        loop {
            let asked = Asked::Named(Vec::new());
            match cluster.0.refresher.refresh(asked, Reason::Look, deadline).await {
                Ok(_) => return Ok(cluster),
                // The last attempt can begin so late that it learns nothing: the one before it says what hindered.
                Err(RefreshError::Deadline { source: None, .. }) if failures > 0 => {
                    return Err(RefreshError::Deadline { waited: began.elapsed(), source: before });
                }
                Err(error) if !may_pass(&error) => return Err(error),
                Err(error) if is_unresolved(&error) && Instant::now() >= resolve_until => return Err(error),
                Err(error) if failures >= HANG_UPS_MAX && hung_up_without_credentials(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    failures += 1;
                    let wait = cluster.0.core.pool.jitter.backoff(failures, BACKOFF_MIN, BACKOFF_MAX);
                    before = match error {
                        RefreshError::NoAnswer { source, .. } => Some(source),
                        RefreshError::Deadline { source, .. } => source,
                        RefreshError::NoAddress | RefreshError::Closed => None,
                    };
                    if timeout_at(deadline, sleep(wait)).await.is_err() {
                        return Err(RefreshError::Deadline { waited: began.elapsed(), source: before });
                    }
                }
            }
        }
    }

    /// A cluster that is not looked for yet: the first call finds it, within its own deadline. Until then the view is empty.
    ///
    /// Does no I/O, so it cannot fail where names cannot be resolved at the moment; [`connect`](Self::connect) says at once
    /// what is wrong with a configuration.
    pub fn start(config: ClusterConfig) -> Self {
        let ClusterConfig { bootstrap, connection, request_timeout, recovery, jitter_seed, .. } = config;
        let seed = jitter_seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let gate = connection.gate;
        let pool = Pool::new(Arc::new(connection), bootstrap, seed);
        let core = Core::new(pool, gate, request_timeout);
        let refresher = Refresher::start(Arc::clone(&core), recovery);
        Self(Arc::new(Shared { core, refresher }))
    }

    /// True if requests that change something pass: it was made with [`read_write`](ClusterConfig::read_write).
    pub fn is_read_write(&self) -> bool {
        self.0.core.gate == Gate::ReadWrite
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    /// The view as it is now: no lock, no wait, no request.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.0.core.view()
    }

    /// A view in which a broker has just listed every topic that this principal may see.
    ///
    /// Topics that the principal may not describe are left out without a word; ask for those by name.
    ///
    /// # Errors
    /// No broker gave a usable answer before the deadline. The view stays as it was.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing; the answer may still enter the view.
    pub async fn refresh_all(&self, deadline: Instant) -> Result<Arc<ClusterSnapshot>, RefreshError> {
        self.0.refresher.refresh(Asked::All, Reason::Look, deadline).await
    }

    /// A view in which a broker has just been asked for these topics by name; each is known, or refused with a code.
    ///
    /// # Errors
    /// No broker gave a usable answer before the deadline. The view stays as it was.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing; the answer may still enter the view.
    pub async fn refresh_topics<T: AsRef<str>>(
        &self,
        topics: &[T],
        deadline: Instant,
    ) -> Result<Arc<ClusterSnapshot>, RefreshError> {
        let names = topics.iter().map(|name| Arc::from(name.as_ref())).collect();
        self.0.refresher.refresh(Asked::Named(names), Reason::Look, deadline).await
    }

    /// A view in which the brokers, and these topics, were contradicted by something and have just been asked for anew.
    ///
    /// For callers with connections of their own, which see stale leaders themselves: however many call at once, and however
    /// often, the cluster is asked at a bounded pace.
    ///
    /// # Errors
    /// No broker gave a usable answer before the deadline. The view stays as it was, the topics marked stale.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing but the marks; the answer may still enter the view.
    pub async fn repair_topics<T: AsRef<str>>(
        &self,
        topics: &[T],
        deadline: Instant,
    ) -> Result<Arc<ClusterSnapshot>, RefreshError> {
        let names = topics.iter().map(|name| Arc::from(name.as_ref())).collect();
        self.0.refresher.refresh(Asked::Named(names), Reason::Repair, deadline).await
    }

    /// Takes in what a response on a connection of the caller's own says about leaders (KIP-951); true if any of it is newer
    /// than the view. [`send`](Self::send) does so by itself.
    ///
    /// The topics are marked stale at the same time, since the caller was just told that the view is old. No wait, no
    /// request: whoever is refused by the hinted leader as well has to [repair](Self::repair_topics) the view.
    pub fn learn_leaders<R: Codes>(&self, response: &R) -> bool {
        self.0.core.learn_leaders(&response.leader_hints())
    }

    /// Takes in that a broker coordinates these groups and transactional ids ([`Subject::Group`], [`Subject::Transaction`]),
    /// as its answer to ListGroups or ListTransactions says; other subjects have no coordinator and are passed over.
    ///
    /// They are not looked for then, which saves a request and the right to see the coordinators' topic. A broker that
    /// disowns one of them is forgotten as if it had been looked for.
    pub fn learn_coordinator(&self, node_id: i32, of: impl IntoIterator<Item = Subject>) {
        let keys = of.into_iter().filter_map(|subject| match subject {
            Subject::Group(group) => Some((Kind::Group, group.into())),
            Subject::Transaction(Some(id)) => Some((Kind::Transaction, id.into())),
            Subject::Transaction(None)
            | Subject::Cluster
            | Subject::Broker(_)
            | Subject::Partition { .. }
            | Subject::Resource { .. } => None,
        });
        self.0.core.coordinators.listed(node_id, keys);
    }

    /// Sends one request to the broker that `subject` and the request's kind call for.
    ///
    /// `build` makes the body for the version of the connection that carries it; it is called once per try, and once before
    /// for the gate. A response that holds a code which says that the view is stale is not returned: the view is refreshed,
    /// or the coordinator found anew, and the request sent again. Other codes inside the response are the caller's. Fetch
    /// has connections of its own.
    ///
    /// A request about a group or a transactional id goes to its coordinator, which is found first. A read-only cluster
    /// looks for one only while its view shows `__consumer_offsets` (`__transaction_state`).
    ///
    /// A Metadata request sent this way does not enter the view; [`refresh_topics`](Self::refresh_topics) does.
    ///
    /// # Errors
    /// [`SendError`]; at the deadline the last failure is its source.
    ///
    /// # Cancel safety
    /// A dropped call loses the answer. What was sent stays sent; no connection is lost.
    pub async fn send<R>(
        &self,
        subject: Subject,
        build: impl Fn(i16) -> R + Send + Sync,
        deadline: Instant,
    ) -> Result<R::Response, SendError>
    where
        R: Request,
        R::Response: Codes,
    {
        let whole = Whole { build };
        let mut results = self.send_each(&whole, &[subject], deadline).await?;
        results.pop().expect("one item has one result")
    }

    /// Sends a call that is made of items: split by broker, sent at the same time, sent again where that failed.
    ///
    /// One result per item, in the order of `items`. An item that has no answer has an error; none is ever missing. Items
    /// of a broker that stays silent, or of a partition without a leader, hold up the call until `deadline`.
    ///
    /// # Errors
    /// The gate refuses the request; all else is told per item.
    ///
    /// # Cancel safety
    /// A dropped call loses the answers. What was sent stays sent; no connection is lost.
    pub async fn send_each<C: Call>(
        &self,
        call: &C,
        items: &[C::Item],
        deadline: Instant,
    ) -> Result<Vec<Result<C::Answer, SendError>>, SendError> {
        let unrouted: Vec<Routed<'_, C::Item>> =
            items.iter().map(|item| Routed { item, leader_epoch: None }).collect();
        let request = call.request(&unrouted, C::Request::VERSIONS.last);
        self.0.core.gate.check(&request, self.0.core.evidence())?;
        let span = debug_span!("send", api = %C::Request::API_KEY, items = items.len());
        Ok(driver::drive(&self.0, call, items, deadline).instrument(span).await)
    }

    /// A connection to one broker for the caller alone, with the cluster's gate: for long polls and bulk reading, which would
    /// hold up the answers of others. It shares the broker's throttling with the cluster's own connections. Where the broker
    /// is not where the view says, the view is refreshed once, and its new address tried.
    ///
    /// The connection stays open when the broker moves or leaves: what is asked on it then is refused or not answered.
    ///
    /// # Errors
    /// No broker of this id is registered (the view is refreshed first), or it cannot be connected to.
    ///
    /// # Cancel safety
    /// A dropped call leaves no connection behind.
    pub async fn dedicated(&self, node_id: i32, deadline: Instant) -> Result<Connection, SendError> {
        let mut view = self.snapshot();
        let mut refreshed = false;
        loop {
            let failed = match view.broker(node_id) {
                None => SendError::NoSuchBroker { node_id },
                Some(broker) => match self.0.core.pool.dedicated(broker, &view, deadline).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) if passes(&error) => error,
                    Err(error) => return Err(error),
                },
            };
            if refreshed {
                return Err(failed);
            }
            let reason = if view.broker(node_id).is_some() { Reason::Repair } else { Reason::Look };
            let address = view.broker(node_id).map(|broker| broker.address.clone());
            view = match self.0.refresher.refresh(Asked::Named(Vec::new()), reason, deadline).await {
                Ok(view) => view,
                Err(_) if address.is_some() => return Err(failed),
                Err(error) => return Err(error.into()),
            };
            refreshed = true;
            // Where it is still told to be where it was not, nothing has changed.
            if address.is_some() && view.broker(node_id).map(|broker| &broker.address) == address.as_ref() {
                return Err(failed);
            }
        }
    }
}

/// True for a failure that another address may cure.
fn passes(error: &SendError) -> bool {
    matches!(error.recovery(), Recovery::Redial | Recovery::Rebootstrap)
}

/// How often a broker that hangs up at the first request is asked again before that counts as its answer: one that is being
/// stopped does so, too, and not twice.
const HANG_UPS_MAX: u32 = 2;

/// True where a listener seems to want the credentials that are not given: Kafka ends the connection without a word.
fn hung_up_without_credentials(error: &RefreshError) -> bool {
    let RefreshError::NoAnswer { source, .. } = error else { return false };
    matches!(&**source, SendError::Request { source: RequestError::NoAnswer { source, .. }, .. }
        if matches!(**source, CloseReason::ClosedUnauthenticated))
}

/// True if the failure is that a name cannot be resolved.
fn is_unresolved(error: &RefreshError) -> bool {
    let RefreshError::NoAnswer { source, .. } = error else { return false };
    matches!(&**source, SendError::Dial(DialError::Bootstrap { source, .. })
        if matches!(**source, ConnectError::Resolve { .. }))
}

/// True for failures of connecting that may pass by themselves within a start-up's deadline.
fn may_pass(error: &RefreshError) -> bool {
    let RefreshError::NoAnswer { source, .. } = error else { return false };
    match &**source {
        SendError::Dial(DialError::Bootstrap { source, .. } | DialError::Advertised { source, .. }) => {
            matches!(**source, ConnectError::Resolve { .. } | ConnectError::TimedOut { .. })
        }
        SendError::Request { source, .. } => source.recovery() != strandline_conn::Recovery::Fail,
        SendError::BadMetadata { .. } => error.recovery() != strandline_conn::Recovery::Fail,
        _ => false,
    }
}

/// One request with one answer, as a call of one item.
struct Whole<F> {
    build: F,
}

impl<R, F> Call for Whole<F>
where
    R: Request,
    R::Response: Codes,
    F: Fn(i16) -> R + Send + Sync,
{
    type Request = R;
    type Item = Subject;
    type Answer = R::Response;

    fn subject(&self, item: &Subject) -> Subject {
        item.clone()
    }

    fn request(&self, _items: &[Routed<'_, Subject>], version: i16) -> R {
        (self.build)(version)
    }

    fn answers(&self, _items: &[Routed<'_, Subject>], response: R::Response) -> Vec<ItemAnswer<R::Response>> {
        let mut done = false;
        response.visit_codes(&mut |code| done |= code == ErrorCode::None);
        // What was done in part must not be done again as a whole: the caller sees which part that was.
        let repeatable = retry_safety(R::API_KEY) == RetrySafety::Idempotent;
        vec![match response.stale_view() {
            Some(code) if repeatable || !done => ItemAnswer::Code(code, None),
            Some(_) | None => ItemAnswer::Answer(response),
        }]
    }
}

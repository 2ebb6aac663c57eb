//! The renewal of a SASL session on the living connection (KIP-368).
//!
//! A renewal begins with the first request after the session is due. While the secret is fetched, requests flow on; then
//! they are held back, those under way are answered, and the exchange has the connection to itself, as brokers demand. What
//! was held goes out when the broker has accepted.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::dial::Limits;
use crate::handshake::{Handshake, Secret, Session};
use crate::lane::Shared;
use crate::pipeline::Submission;
use crate::{BrokerVersions, ConnectError, ReauthenticateEvent};

/// After a secret could not be fetched and the session still lives, the next attempt comes no sooner than this.
const RETRY_AFTER: Duration = Duration::from_secs(1);

type Later<T> = Pin<Box<dyn Future<Output = Result<T, ConnectError>> + Send>>;

pub(crate) struct Renewal {
    shared: Arc<Shared>,
    /// What it takes to renew; `None` where the session has no end.
    means: Option<Arc<Means>>,
    session: Option<Session>,
    stage: Stage,
    begun_at: Instant,
    /// Callers' requests that wait for the end of the renewal. Each holds a permit, which bounds them.
    held: VecDeque<Submission>,
}

struct Means {
    handshake: Handshake,
    versions: BrokerVersions,
}

enum Stage {
    /// Nothing to do until the session is due.
    Resting,
    /// The secret is fetched.
    Fetching(Later<Secret>),
    /// What is under way is answered first.
    Draining(Secret),
    /// The broker is asked.
    Exchanging(Later<Option<Session>>),
}

impl Renewal {
    /// For a session without an end, until [`watch`](Self::watch) says otherwise.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            means: None,
            session: None,
            stage: Stage::Resting,
            begun_at: Instant::now(),
            held: VecDeque::new(),
        }
    }

    pub(crate) fn watch(&mut self, session: Session, handshake: Handshake, versions: BrokerVersions) {
        self.session = Some(session);
        self.means = Some(Arc::new(Means { handshake, versions }));
    }

    /// Takes a caller's request: gives it back if it may go out, and keeps it otherwise. The first one after the session is
    /// due begins the renewal.
    pub(crate) fn pass(&mut self, request: Submission) -> Option<Submission> {
        self.begin_if_due();
        if self.holds() {
            self.held.push_back(request);
            return None;
        }
        Some(request)
    }

    fn begin_if_due(&mut self) {
        let now = Instant::now();
        let (Stage::Resting, Some(session)) = (&self.stage, self.session) else { return };
        if session.renew_at > now {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let limits = limits(&shared, now);
        self.begun_at = now;
        let fetch = async move {
            let sasl = shared.config.sasl.as_ref().expect("a session comes from SASL");
            Secret::fetch(sasl, &shared.address, limits).await
        };
        self.stage = Stage::Fetching(Box::pin(fetch));
    }

    /// True while callers' requests must wait.
    pub(crate) fn holds(&self) -> bool {
        match &self.stage {
            Stage::Resting => false,
            // What is sent after the session's end makes the broker hang up.
            Stage::Fetching(_) => self.session.is_some_and(|session| session.ends_at <= Instant::now()),
            Stage::Draining(_) | Stage::Exchanging(_) => true,
        }
    }

    /// Begins the exchange if only the answers of others were waited for.
    pub(crate) fn drained(&mut self, idle: bool) {
        if !idle || !matches!(self.stage, Stage::Draining(_)) {
            return;
        }
        let (Stage::Draining(secret), Some(means)) =
            (std::mem::replace(&mut self.stage, Stage::Resting), self.means.clone())
        else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let exchange = async move {
            // A broker that mutes us reads nothing, not even this.
            shared.mute.passed().await;
            let limits = limits(&shared, Instant::now());
            means.handshake.authenticate_with(&means.versions, &secret, limits).await
        };
        self.stage = Stage::Exchanging(Box::pin(exchange));
    }

    /// Waits for the end of a stage that waits for somebody else; for ever if there is none. After it the stage has moved on.
    ///
    /// # Errors
    /// The session is not renewed, and nothing else can be sent.
    ///
    /// # Cancel safety
    /// Loses nothing.
    pub(crate) async fn step(&mut self) -> Result<(), ConnectError> {
        match &mut self.stage {
            Stage::Resting | Stage::Draining(_) => std::future::pending().await,
            Stage::Fetching(fetch) => {
                let fetched = fetch.await;
                self.fetched(fetched)
            }
            Stage::Exchanging(exchange) => {
                let renewed = exchange.await;
                self.stage = Stage::Resting;
                self.tell(renewed.as_ref().map(|_| ()));
                self.session = renewed?;
                Ok(())
            }
        }
    }

    fn fetched(&mut self, fetched: Result<Secret, ConnectError>) -> Result<(), ConnectError> {
        match fetched {
            Ok(secret) => {
                self.stage = Stage::Draining(secret);
                Ok(())
            }
            Err(error) => {
                self.stage = Stage::Resting;
                self.tell(Err(&error));
                let now = Instant::now();
                match &mut self.session {
                    // The broker still accepts the old authentication: callers lose nothing by another attempt.
                    Some(session) if session.ends_at > now && self.held.is_empty() => {
                        session.renew_at = (now + RETRY_AFTER).min(session.ends_at);
                        Ok(())
                    }
                    _ => Err(error),
                }
            }
        }
    }

    fn tell(&self, outcome: Result<(), &ConnectError>) {
        let (address, took) = (&self.shared.address, self.begun_at.elapsed());
        self.shared.config.observer.on_reauthenticate(&ReauthenticateEvent { address, took, outcome });
    }

    /// True if no renewal is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.stage, Stage::Resting)
    }

    /// The requests that wait, the oldest first; they do no longer.
    pub(crate) fn take_held(&mut self) -> impl Iterator<Item = Submission> + use<> {
        std::mem::take(&mut self.held).into_iter()
    }

    /// The earliest deadline of the requests that wait.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.held.iter().map(|request| request.deadline).min()
    }

    /// Tells those whose deadline has passed while they waited.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(at) = self.held.iter().position(|request| request.deadline <= now) {
            if let Some(request) = self.held.remove(at) {
                request.expire();
            }
        }
    }
}

/// A renewal has as much time as a connect.
fn limits(shared: &Shared, now: Instant) -> Limits {
    Limits { since: now, deadline: now + shared.config.connect_timeout }
}

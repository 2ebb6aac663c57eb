//! What happens on connections, told to whoever wants to know.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strandline_protocol::ApiKey;

use crate::{BrokerAddress, CloseReason, ConnectError, ConnectStep, Recovery, RequestError};

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(test)]
mod tests;
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::tracing::TracingObserver;

/// Hears of every happening of the cluster layer: this crate tells of connections and requests, the crates above of
/// metadata and retries.
///
/// The methods are called where things happen, some of them once per request: they must neither wait nor take long, and not panic. Each
/// does nothing unless it is implemented. [`TracingObserver`] is the default of
/// [`ConnectionConfig::observer`](crate::ConnectionConfig::observer); a `Vec` of observers is one that tells them all.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A connection is ready, or could not be made.
    fn on_connect(&self, event: &ConnectEvent<'_>) {
        let _ = event;
    }

    /// A connection that was ready has ended.
    fn on_close(&self, event: &CloseEvent<'_>) {
        let _ = event;
    }

    /// A connection's SASL session was renewed, or that failed (KIP-368).
    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        let _ = event;
    }

    /// A request has its answer, or will have none. Not told of a request whose caller has given up.
    fn on_request(&self, event: &RequestEvent<'_>) {
        let _ = event;
    }

    /// A broker throttles this client (KIP-219).
    fn on_throttle(&self, event: &ThrottleEvent<'_>) {
        let _ = event;
    }

    /// The view of the cluster was renewed, or that failed.
    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        let _ = event;
    }

    /// A request failed, and it was decided what to do next.
    fn on_retry(&self, event: &RetryEvent<'_>) {
        let _ = event;
    }
}

/// See [`Observer::on_connect`].
#[derive(Clone, Copy, Debug)]
pub struct ConnectEvent<'a> {
    /// What was dialled.
    pub address: &'a BrokerAddress,
    /// The addresses that the name had; empty if it was not resolved.
    pub resolved: &'a [SocketAddr],
    /// The address that accepted; `None` if none did.
    pub peer: Option<SocketAddr>,
    /// The steps that were finished, in order, with the time that each took. After a failure the step that failed is not
    /// among them.
    pub steps: &'a [(ConnectStep, Duration)],
    /// From the call to its end.
    pub took: Duration,
    /// How it ended.
    pub outcome: Result<(), &'a ConnectError>,
}

/// See [`Observer::on_close`].
#[derive(Clone, Copy, Debug)]
pub struct CloseEvent<'a> {
    /// The broker.
    pub address: &'a BrokerAddress,
    /// Why; [`CloseReason::is_planned`] tells a failure from what was meant to happen.
    pub reason: &'a CloseReason,
    /// How long the connection was ready.
    pub lived: Duration,
}

/// See [`Observer::on_reauthenticate`].
#[derive(Clone, Copy, Debug)]
pub struct ReauthenticateEvent<'a> {
    /// The broker.
    pub address: &'a BrokerAddress,
    /// From the first step, the fetch of a token included, to the end.
    pub took: Duration,
    /// How it ended. After an error the connection closes, unless the session still lives and the attempt is repeated.
    pub outcome: Result<(), &'a ConnectError>,
}

/// See [`Observer::on_request`].
#[derive(Clone, Copy, Debug)]
pub struct RequestEvent<'a> {
    /// The broker.
    pub address: &'a BrokerAddress,
    /// The request.
    pub api: ApiKey,
    /// The version it was, or would have been, sent with.
    pub version: i16,
    /// From the call until the request had its place on the connection: throttling and the wait for those before it.
    pub queued: Duration,
    /// From then to the end: the write, the broker's work, the read.
    pub served: Duration,
    /// How it ended. An answer that holds an error code is an answer.
    pub outcome: Result<(), &'a RequestError>,
}

/// See [`Observer::on_throttle`].
#[derive(Clone, Copy, Debug)]
pub struct ThrottleEvent<'a> {
    /// The broker.
    pub address: &'a BrokerAddress,
    /// The request whose answer said so.
    pub api: ApiKey,
    /// For how long.
    pub wait: Duration,
}

/// See [`Observer::on_metadata`].
#[derive(Clone, Copy, Debug)]
pub struct MetadataEvent<'a> {
    /// What the view was renewed for, in a few words.
    pub cause: &'a str,
    /// From the first request to the answer that was taken, or the last failure.
    pub took: Duration,
    /// Brokers in the view now.
    pub brokers: usize,
    /// Topics in the view now.
    pub topics: usize,
    /// Partitions whose leader epoch went back, as topic and partition index.
    pub epoch_regressions: &'a [(&'a str, i32)],
    /// Topics that have another id under the same name.
    pub recreated_topics: &'a [&'a str],
    /// How it ended. After an error the view is as it was.
    pub outcome: Result<(), &'a (dyn Error + 'static)>,
}

/// See [`Observer::on_retry`].
#[derive(Clone, Copy, Debug)]
pub struct RetryEvent<'a> {
    /// The request.
    pub api: ApiKey,
    /// How often it was tried so far, from 1 on.
    pub attempt: u32,
    /// What hinders it.
    pub error: &'a (dyn Error + 'static),
    /// What the error table says about that.
    pub recovery: Recovery,
    /// What is done.
    pub decision: RetryDecision,
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The request is sent again.
    Again {
        /// After this wait.
        after: Duration,
    },
    /// The caller is told.
    GiveUp,
}

impl Observer for Vec<Arc<dyn Observer>> {
    fn on_connect(&self, event: &ConnectEvent<'_>) {
        self.iter().for_each(|observer| observer.on_connect(event));
    }

    fn on_close(&self, event: &CloseEvent<'_>) {
        self.iter().for_each(|observer| observer.on_close(event));
    }

    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        self.iter().for_each(|observer| observer.on_reauthenticate(event));
    }

    fn on_request(&self, event: &RequestEvent<'_>) {
        self.iter().for_each(|observer| observer.on_request(event));
    }

    fn on_throttle(&self, event: &ThrottleEvent<'_>) {
        self.iter().for_each(|observer| observer.on_throttle(event));
    }

    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        self.iter().for_each(|observer| observer.on_metadata(event));
    }

    fn on_retry(&self, event: &RetryEvent<'_>) {
        self.iter().for_each(|observer| observer.on_retry(event));
    }
}

//! Happenings as events of the crate `tracing`.

use std::error::Error;

use tracing::{debug, trace, warn};

use super::{
    CloseEvent, ConnectEvent, MetadataEvent, Observer, ReauthenticateEvent, RequestEvent, RetryDecision,
    RetryEvent, ThrottleEvent,
};

/// Tells everything to `tracing`, under the target `strandline_conn`: answered requests at `trace`, connections, metadata
/// and retries at `debug`, what an operator should see (a session that could not be renewed, a leader epoch that went back, a topic
/// that was recreated) at `warn`. Durations are in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

/// An error with its causes, on one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Observer for TracingObserver {
    fn on_connect(&self, event: &ConnectEvent<'_>) {
        let (address, took) = (event.address, micros(event.took));
        match event.outcome {
            Ok(()) => {
                debug!(target: "strandline_conn", %address, peer = ?event.peer, steps = ?event.steps, took, "connected");
            }
            Err(error) => {
                debug!(target: "strandline_conn", %address, steps = ?event.steps, took, error = chain(error), "not connected");
            }
        }
    }

    fn on_close(&self, event: &CloseEvent<'_>) {
        let (address, lived) = (event.address, micros(event.lived));
        let planned = event.reason.is_planned();
        debug!(target: "strandline_conn", %address, lived, planned, reason = chain(event.reason), "closed");
    }

    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        let (address, took) = (event.address, micros(event.took));
        match event.outcome {
            Ok(()) => debug!(target: "strandline_conn", %address, took, "authenticated again"),
            Err(error) => {
                warn!(target: "strandline_conn", %address, took, error = chain(error), "not authenticated again");
            }
        }
    }

    fn on_request(&self, event: &RequestEvent<'_>) {
        let (address, api, version) = (event.address, event.api, event.version);
        let (queued, served) = (micros(event.queued), micros(event.served));
        match event.outcome {
            Ok(()) => trace!(target: "strandline_conn", %address, %api, version, queued, served, "answered"),
            Err(error) => {
                debug!(target: "strandline_conn", %address, %api, version, queued, served, error = chain(error), "not answered");
            }
        }
    }

    fn on_throttle(&self, event: &ThrottleEvent<'_>) {
        let (address, api) = (event.address, event.api);
        debug!(target: "strandline_conn", %address, %api, wait = micros(event.wait), "throttled");
    }

    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        let (cause, took) = (event.cause, micros(event.took));
        match event.outcome {
            Ok(()) => {
                let (brokers, topics) = (event.brokers, event.topics);
                debug!(target: "strandline_conn", cause, took, brokers, topics, "metadata renewed");
            }
            Err(error) => {
                debug!(target: "strandline_conn", cause, took, error = chain(error), "metadata not renewed")
            }
        }
        for (topic, partition) in event.epoch_regressions {
            warn!(target: "strandline_conn", topic, partition, "the leader epoch went back");
        }
        for topic in event.recreated_topics {
            warn!(target: "strandline_conn", topic, "the topic was deleted and created anew");
        }
    }

    fn on_retry(&self, event: &RetryEvent<'_>) {
        let (api, attempt, recovery) = (event.api, event.attempt, event.recovery);
        let error = event.error;
        match event.decision {
            RetryDecision::Again { after } => {
                let after = micros(after);
                debug!(target: "strandline_conn", %api, attempt, ?recovery, after, error = chain(error), "sent again");
            }
            RetryDecision::GiveUp => {
                debug!(target: "strandline_conn", %api, attempt, ?recovery, error = chain(error), "given up");
            }
        }
    }
}

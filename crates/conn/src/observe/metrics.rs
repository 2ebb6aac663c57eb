//! Happenings as metrics of the facade `metrics`.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::{
    CloseEvent, ConnectEvent, MetadataEvent, Observer, ReauthenticateEvent, RequestEvent, RetryDecision,
    RetryEvent, ThrottleEvent,
};

/// Counts and measures everything through the facade `metrics`, for whatever recorder the program has installed.
///
/// Labels are the API's name, `outcome` (`ok` or `error`), and nothing whose values are without bound: no addresses, no
/// topics. Durations are in seconds.
#[derive(Debug)]
#[non_exhaustive]
pub struct MetricsObserver;

impl MetricsObserver {
    /// Describes the metrics to the recorder that is installed now.
    pub fn new() -> Self {
        describe_counter!(CONNECTS, "Attempts to connect to a broker");
        describe_histogram!(CONNECT_SECONDS, Unit::Seconds, "Time that connecting took");
        describe_gauge!(CONNECTIONS, "Connections that are ready");
        describe_counter!(CLOSES, "Connections that ended");
        describe_counter!(REAUTHENTICATIONS, "Renewals of SASL sessions");
        describe_counter!(REQUESTS, "Requests that were answered or failed");
        describe_histogram!(QUEUED_SECONDS, Unit::Seconds, "Wait of a request before it was sent");
        describe_histogram!(SERVED_SECONDS, Unit::Seconds, "Time from sending a request to its end");
        describe_counter!(THROTTLES, "Answers that said that this client is throttled");
        describe_histogram!(THROTTLE_SECONDS, Unit::Seconds, "Time for which a broker throttled this client");
        describe_counter!(REFRESHES, "Renewals of the view of the cluster");
        describe_gauge!(BROKERS, "Brokers in the view of the cluster");
        describe_gauge!(TOPICS, "Topics in the view of the cluster");
        describe_counter!(EPOCH_REGRESSIONS, "Leader epochs that went back");
        describe_counter!(RECREATED_TOPICS, "Topics that were seen to be created anew");
        describe_counter!(RETRIES, "Failures after which a request was sent again, or given up");
        Self
    }
}

impl Default for MetricsObserver {
    fn default() -> Self {
        Self::new()
    }
}

const CONNECTS: &str = "strandline_connects_total";
const CONNECT_SECONDS: &str = "strandline_connect_seconds";
const CONNECTIONS: &str = "strandline_connections";
const CLOSES: &str = "strandline_closes_total";
const REAUTHENTICATIONS: &str = "strandline_reauthentications_total";
const REQUESTS: &str = "strandline_requests_total";
const QUEUED_SECONDS: &str = "strandline_request_queued_seconds";
const SERVED_SECONDS: &str = "strandline_request_served_seconds";
const THROTTLES: &str = "strandline_throttles_total";
const THROTTLE_SECONDS: &str = "strandline_throttle_seconds";
const REFRESHES: &str = "strandline_metadata_refreshes_total";
const BROKERS: &str = "strandline_metadata_brokers";
const TOPICS: &str = "strandline_metadata_topics";
const EPOCH_REGRESSIONS: &str = "strandline_metadata_epoch_regressions_total";
const RECREATED_TOPICS: &str = "strandline_metadata_recreated_topics_total";
const RETRIES: &str = "strandline_retries_total";

fn outcome<T, E>(result: &Result<T, E>) -> &'static str {
    if result.is_ok() { "ok" } else { "error" }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float, and counts of brokers and topics are small"
)]
fn count(count: usize) -> f64 {
    count as f64
}

impl Observer for MetricsObserver {
    fn on_connect(&self, event: &ConnectEvent<'_>) {
        counter!(CONNECTS, "outcome" => outcome(&event.outcome)).increment(1);
        histogram!(CONNECT_SECONDS).record(event.took);
        if event.outcome.is_ok() {
            gauge!(CONNECTIONS).increment(1);
        }
    }

    fn on_close(&self, event: &CloseEvent<'_>) {
        let planned = if event.reason.is_planned() { "true" } else { "false" };
        counter!(CLOSES, "planned" => planned).increment(1);
        gauge!(CONNECTIONS).decrement(1);
    }

    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        counter!(REAUTHENTICATIONS, "outcome" => outcome(&event.outcome)).increment(1);
    }

    fn on_request(&self, event: &RequestEvent<'_>) {
        let api = event.api.name();
        counter!(REQUESTS, "api" => api, "outcome" => outcome(&event.outcome)).increment(1);
        histogram!(QUEUED_SECONDS, "api" => api).record(event.queued);
        histogram!(SERVED_SECONDS, "api" => api).record(event.served);
    }

    fn on_throttle(&self, event: &ThrottleEvent<'_>) {
        counter!(THROTTLES, "api" => event.api.name()).increment(1);
        histogram!(THROTTLE_SECONDS).record(event.wait);
    }

    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        counter!(REFRESHES, "outcome" => outcome(&event.outcome)).increment(1);
        gauge!(BROKERS).set(count(event.brokers));
        gauge!(TOPICS).set(count(event.topics));
        counter!(EPOCH_REGRESSIONS).increment(event.epoch_regressions.len() as u64);
        counter!(RECREATED_TOPICS).increment(event.recreated_topics.len() as u64);
    }

    fn on_retry(&self, event: &RetryEvent<'_>) {
        let decision = match event.decision {
            RetryDecision::Again { .. } => "again",
            RetryDecision::GiveUp => "give_up",
        };
        counter!(RETRIES, "api" => event.api.name(), "decision" => decision).increment(1);
    }
}

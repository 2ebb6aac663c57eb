use std::sync::Mutex;

use super::*;

/// Counts what it hears.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<&'static str>>);

impl Observer for Heard {
    fn on_connect(&self, _: &ConnectEvent<'_>) {
        self.0.lock().unwrap().push("connect");
    }

    fn on_close(&self, _: &CloseEvent<'_>) {
        self.0.lock().unwrap().push("close");
    }

    fn on_reauthenticate(&self, _: &ReauthenticateEvent<'_>) {
        self.0.lock().unwrap().push("reauthenticate");
    }

    fn on_request(&self, _: &RequestEvent<'_>) {
        self.0.lock().unwrap().push("request");
    }

    fn on_throttle(&self, _: &ThrottleEvent<'_>) {
        self.0.lock().unwrap().push("throttle");
    }

    fn on_metadata(&self, _: &MetadataEvent<'_>) {
        self.0.lock().unwrap().push("metadata");
    }

    fn on_retry(&self, _: &RetryEvent<'_>) {
        self.0.lock().unwrap().push("retry");
    }
}

/// One of everything, the bad outcomes among them.
fn tell_all(observer: &dyn Observer) {
    let address: BrokerAddress = "broker1:9092".parse().unwrap();
    let address = &address;
    let second = Duration::from_secs(1);
    let refused = ConnectError::NoSasl { address: address.clone() };
    let steps = [(ConnectStep::Resolving, second)];
    for outcome in [Ok(()), Err(&refused)] {
        observer.on_connect(&ConnectEvent {
            address,
            resolved: &[],
            peer: None,
            steps: &steps,
            took: second,
            outcome,
        });
        observer.on_reauthenticate(&ReauthenticateEvent { address, took: second, outcome });
    }
    observer.on_close(&CloseEvent { address, reason: &CloseReason::ClosedByBroker, lived: second });
    let (api, version, queued, served) = (ApiKey::Fetch, 17, second, second);
    let failed = RequestError::NotSentInTime { api, waited: second };
    for outcome in [Ok(()), Err(&failed)] {
        observer.on_request(&RequestEvent { address, api, version, queued, served, outcome });
    }
    observer.on_throttle(&ThrottleEvent { address, api, wait: second });
    let failed: &(dyn Error + 'static) = &failed;
    for outcome in [Ok(()), Err(failed)] {
        observer.on_metadata(&MetadataEvent {
            cause: "a test",
            took: second,
            brokers: 3,
            topics: 5,
            epoch_regressions: &[("orders", 2)],
            recreated_topics: &["orders"],
            outcome,
        });
    }
    for decision in [RetryDecision::Again { after: second }, RetryDecision::GiveUp] {
        let recovery = Recovery::Retry;
        observer.on_retry(&RetryEvent { api, attempt: 1, error: failed, recovery, decision });
    }
}

#[test]
fn several_observers_hear_everything_each() {
    let (first, second) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
    let all: Vec<Arc<dyn Observer>> = vec![Arc::clone(&first) as _, Arc::clone(&second) as _];
    tell_all(&all);
    let heard = |heard: &Heard| heard.0.lock().unwrap().join(" ");
    assert_eq!(heard(&first), heard(&second));
    insta::assert_snapshot!(heard(&first), @"connect reauthenticate connect reauthenticate close request request throttle metadata metadata retry retry");
}

/// An observer that wants to know nothing needs no code.
#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {}

#[test]
fn an_observer_may_leave_everything_out() {
    tell_all(&Deaf);
}

#[test]
fn tracing_is_told_everything_with_its_causes() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let lines = Arc::clone(&lines);
        move || Lines(Arc::clone(&lines))
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(::tracing::Level::TRACE)
        .without_time()
        .with_ansi(false)
        .with_writer(writer)
        .finish();
    ::tracing::subscriber::with_default(subscriber, || tell_all(&TracingObserver));
    let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    insta::assert_snapshot!(lines, @r#"
    DEBUG strandline_conn: connected address=broker1:9092 peer=None steps=[(Resolving, 1s)] took=1000000
    DEBUG strandline_conn: authenticated again address=broker1:9092 took=1000000
    DEBUG strandline_conn: not connected address=broker1:9092 steps=[(Resolving, 1s)] took=1000000 error="broker1:9092 does not want SASL authentication"
     WARN strandline_conn: not authenticated again address=broker1:9092 took=1000000 error="broker1:9092 does not want SASL authentication"
    DEBUG strandline_conn: closed address=broker1:9092 lived=1000000 planned=false reason="the broker closed the connection"
    TRACE strandline_conn: answered address=broker1:9092 api=Fetch version=17 queued=1000000 served=1000000
    DEBUG strandline_conn: not answered address=broker1:9092 api=Fetch version=17 queued=1000000 served=1000000 error="Fetch was not sent within 1s: the connection is busy"
    DEBUG strandline_conn: throttled address=broker1:9092 api=Fetch wait=1000000
    DEBUG strandline_conn: metadata renewed cause="a test" took=1000000 brokers=3 topics=5
     WARN strandline_conn: the leader epoch went back topic="orders" partition=2
     WARN strandline_conn: the topic was deleted and created anew topic="orders"
    DEBUG strandline_conn: metadata not renewed cause="a test" took=1000000 error="Fetch was not sent within 1s: the connection is busy"
     WARN strandline_conn: the leader epoch went back topic="orders" partition=2
     WARN strandline_conn: the topic was deleted and created anew topic="orders"
    DEBUG strandline_conn: sent again api=Fetch attempt=1 recovery=Retry after=1000000 error="Fetch was not sent within 1s: the connection is busy"
    DEBUG strandline_conn: given up api=Fetch attempt=1 recovery=Retry error="Fetch was not sent within 1s: the connection is busy"
    "#);
}

struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_count_and_measure_everything() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    ::metrics::with_local_recorder(&recorder, || tell_all(&MetricsObserver::new()));
    let mut lines: Vec<String> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, description, value)| {
            assert!(description.is_some(), "{key:?} is not described");
            let labels = key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            format!("{}{{{labels}}} {value:?}", key.key().name())
        })
        .collect();
    lines.sort();
    insta::assert_snapshot!(lines.join("\n"), @"
    strandline_closes_total{planned=false} Counter(1)
    strandline_connect_seconds{} Histogram([1.0, 1.0])
    strandline_connections{} Gauge(0.0)
    strandline_connects_total{outcome=error} Counter(1)
    strandline_connects_total{outcome=ok} Counter(1)
    strandline_metadata_brokers{} Gauge(3.0)
    strandline_metadata_epoch_regressions_total{} Counter(2)
    strandline_metadata_recreated_topics_total{} Counter(2)
    strandline_metadata_refreshes_total{outcome=error} Counter(1)
    strandline_metadata_refreshes_total{outcome=ok} Counter(1)
    strandline_metadata_topics{} Gauge(5.0)
    strandline_reauthentications_total{outcome=error} Counter(1)
    strandline_reauthentications_total{outcome=ok} Counter(1)
    strandline_request_queued_seconds{api=Fetch} Histogram([1.0, 1.0])
    strandline_request_served_seconds{api=Fetch} Histogram([1.0, 1.0])
    strandline_requests_total{api=Fetch,outcome=error} Counter(1)
    strandline_requests_total{api=Fetch,outcome=ok} Counter(1)
    strandline_retries_total{api=Fetch,decision=again} Counter(1)
    strandline_retries_total{api=Fetch,decision=give_up} Counter(1)
    strandline_throttle_seconds{} Histogram([1.0])
    strandline_throttles_total{api=Fetch} Counter(1)
    ");
}

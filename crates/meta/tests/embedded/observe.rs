//! What an observer hears of the cluster layer, and what spans and metrics make of it.

use std::io;
use std::sync::{Arc, Mutex};
use strandline_conn::{MetadataEvent, Observer, RetryDecision, RetryEvent};
use strandline_meta::{ApiKey, Cluster, ClusterConfig, ConnectionConfig, ErrorCode};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Rule};

use crate::support::{address, connection, offsets, soon, start, within};

/// Writes down metadata and retries, a line each.
#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl Observer for Lines {
    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        let MetadataEvent { cause, brokers, topics, epoch_regressions, recreated_topics, outcome, .. } =
            event;
        let mut line = format!("metadata for {cause}: {brokers} brokers, {topics} topics");
        for (topic, partition) in *epoch_regressions {
            line.push_str(&format!(", {topic}:{partition} went back"));
        }
        for topic in *recreated_topics {
            line.push_str(&format!(", {topic} is another topic"));
        }
        if outcome.is_err() {
            line.push_str(", failed");
        }
        self.0.lock().unwrap().push(line);
    }

    fn on_retry(&self, event: &RetryEvent<'_>) {
        let decision = match event.decision {
            RetryDecision::Again { after } if after.is_zero() => "at once".to_owned(),
            RetryDecision::Again { .. } => "after a wait".to_owned(),
            RetryDecision::GiveUp => "not again".to_owned(),
        };
        let RetryEvent { api, attempt, recovery, .. } = event;
        self.0.lock().unwrap().push(format!("{api} failed {attempt}: {recovery:?}, {decision}"));
    }
}

async fn observed(embedded: &EmbeddedCluster, observer: Arc<dyn Observer>) -> Cluster {
    let connection = ConnectionConfig { observer, ..connection(embedded) };
    let config = ClusterConfig::new([address(embedded, 1)], connection).jitter_seed(1);
    Cluster::connect(config, soon()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn refreshes_and_retries_are_told_with_what_they_brought() {
    let embedded = start(1);
    embedded.set_leader_epoch("orders", 0, 5);
    let lines = Arc::new(Lines::default());
    let cluster = observed(&embedded, lines.clone()).await;
    offsets(&cluster, &[("orders", 0)], soon()).await;
    embedded
        .script(Rule::new(Fault::Error(ErrorCode::NotLeaderOrFollower)).api(ApiKey::ListOffsets).times(2));
    offsets(&cluster, &[("orders", 0)], soon()).await;

    embedded.recreate_topic("orders");
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    embedded.set_leader_epoch("orders", 0, 7);
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    embedded.set_leader_epoch("orders", 0, 6);
    for _ in 0..3 {
        cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    }

    embedded.freeze_view(1, |view| view.brokers.clear());
    cluster.refresh_all(soon()).await.unwrap_err();
    embedded.thaw_views();
    let refused = Fault::Error(ErrorCode::TopicAuthorizationFailed);
    embedded.script(Rule::new(refused).api(ApiKey::ListOffsets));
    offsets(&cluster, &[("orders", 0)], soon()).await;
    embedded.close_connections(1).await;
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::ListOffsets));
    offsets(&cluster, &[("orders", 0)], within(500)).await;
    insta::assert_snapshot!(lines.0.lock().unwrap().join("\n"), @r"
    metadata for a question: 1 brokers, 0 topics
    metadata for a question: 1 brokers, 1 topics
    ListOffsets failed 1: RefreshMetadata, after a wait
    metadata for a contradiction: 1 brokers, 1 topics
    ListOffsets failed 2: RefreshMetadata, after a wait
    metadata for a contradiction: 1 brokers, 1 topics
    metadata for a question: 1 brokers, 1 topics, orders is another topic
    metadata for a question: 1 brokers, 1 topics
    metadata for a question: 1 brokers, 1 topics
    metadata for a question: 1 brokers, 1 topics
    metadata for a question: 1 brokers, 1 topics, orders:0 went back
    metadata for a question: 1 brokers, 1 topics, failed
    ListOffsets failed 1: Forbidden, not again
    ListOffsets failed 1: Redial, after a wait
    ");
}

#[derive(Clone, Debug, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_is_told_inside_the_span_of_the_call_that_it_happens_for() {
    let written = Buffer::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let call = async || {
        let embedded = start(2);
        let config = ClusterConfig::new([address(&embedded, 1)], connection(&embedded)).jitter_seed(1);
        let cluster = Cluster::connect(config, soon()).await.unwrap();
        embedded.script(Rule::new(Fault::Error(ErrorCode::NotLeaderOrFollower)).api(ApiKey::ListOffsets));
        offsets(&cluster, &[("orders", 1)], soon()).await;
    };
    // Once for `tracing` to learn all places that tell something: other tests, which listen to nothing, pass them as well.
    call().await;
    tracing::callsite::rebuild_interest_cache();
    written.0.lock().unwrap().clear();
    call().await;
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let within_span =
        |span: &str, words: &str| text.lines().any(|line| line.contains(span) && line.contains(words));
    assert!(within_span("send{api=ListOffsets items=1}", "sent again"), "{text}");
    assert!(within_span("send{api=ListOffsets items=1}", "answered"), "{text}");
    assert!(within_span("refresh{cause=\"a contradiction\"}", "Metadata"), "{text}");
    assert!(within_span("dial{endpoint=broker 2 purpose=Control}", "connected"), "{text}");
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn refreshes_retries_and_requests_are_counted() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let embedded = start(2);
    let cluster = observed(&embedded, Arc::new(strandline_meta::MetricsObserver::new())).await;
    embedded.script(Rule::new(Fault::Error(ErrorCode::NotLeaderOrFollower)).api(ApiKey::ListOffsets));
    offsets(&cluster, &[("orders", 1)], soon()).await;
    let mut counted = std::collections::BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let name = key.key().name().to_owned();
        match value {
            DebugValue::Counter(count) => *counted.entry(name).or_insert(0.0) += count as f64,
            DebugValue::Gauge(value) => *counted.entry(name).or_insert(0.0) = value.into_inner(),
            DebugValue::Histogram(_) => {}
        }
    }
    assert_eq!(counted["strandline_metadata_refreshes_total"], 3.0, "{counted:?}");
    assert_eq!(counted["strandline_metadata_brokers"], 2.0, "{counted:?}");
    assert_eq!(counted["strandline_retries_total"], 1.0, "{counted:?}");
    assert!(counted["strandline_requests_total"] >= 5.0, "{counted:?}");
}

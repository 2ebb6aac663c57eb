//! Connections to the embedded cluster, in memory and with time that stands still.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use strandline_conn::{
    BearerToken, BrokerAddress, ByteStream, Call, CloseReason, ConnectError, Connection, ConnectionConfig,
    Credentials, Dialler, Dialling, Observer, Password, PeerIdentity, ReauthenticateEvent, Recovery,
    RequestError, SaslConfig, Target, TokenError, TokenFuture, TokenProvider,
};
use strandline_protocol::messages::{DescribeClusterRequest, MetadataRequest};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{
    ClusterOptions, EmbeddedCluster, Fault, KafkaVersion, Mechanism, Rule, Sasl,
};
use tokio::time::{Instant, sleep};

/// Reaches broker 1 of a cluster without a socket.
#[derive(Debug)]
struct InMemory(Arc<EmbeddedCluster>);

impl Dialler for InMemory {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }

    fn connect(&self, _: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        Box::pin(async { Ok(Box::new(self.0.connect_in_memory(1).await) as Box<dyn ByteStream>) })
    }
}

fn start(options: ClusterOptions) -> Arc<EmbeddedCluster> {
    Arc::new(EmbeddedCluster::start(options).expect("the loopback interface has ports"))
}

fn config(cluster: &Arc<EmbeddedCluster>) -> ConnectionConfig {
    ConnectionConfig { dialler: Arc::new(InMemory(Arc::clone(cluster))), ..ConnectionConfig::default() }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn address() -> BrokerAddress {
    "broker1:9092".parse().expect("it has a host and a port")
}

async fn connect(config: ConnectionConfig) -> Result<Connection, ConnectError> {
    connect_to(address(), config).await
}

async fn connect_to(target: impl Into<Target>, config: ConnectionConfig) -> Result<Connection, ConnectError> {
    Connection::connect(target, &Arc::new(config), in_seconds(10)).await
}

/// Asks for the brokers; gives how many there are.
async fn brokers(connection: &Connection, call: impl Into<Call>) -> Result<usize, RequestError> {
    let request = MetadataRequest { allow_auto_topic_creation: false, ..MetadataRequest::default() };
    Ok(connection.send(|_| request.clone(), call).await?.brokers.len())
}

fn sasl(mechanisms: &[Mechanism], session_lifetime: Option<Duration>) -> Option<Sasl> {
    let users = vec![("ada".to_owned(), "lovelace".to_owned()), ("byron".to_owned(), "token-2".to_owned())];
    Some(Sasl { users, mechanisms: mechanisms.to_vec(), session_lifetime })
}

/// Gives its tokens in turn, the last one for ever.
#[derive(Debug)]
struct Tokens(Mutex<Vec<&'static str>>);

impl TokenProvider for Tokens {
    fn token(&self) -> TokenFuture<'_> {
        let mut tokens = self.0.lock().expect("nobody panics while it is held");
        let token = if tokens.len() > 1 { tokens.remove(0) } else { tokens[0] };
        Box::pin(async move { BearerToken::new(token) })
    }
}

fn tokens(tokens: &[&'static str]) -> SaslConfig {
    SaslConfig::OAuthBearer(Arc::new(Tokens(Mutex::new(tokens.to_vec()))))
}

fn password(mechanism: fn(Credentials) -> SaslConfig, password: &str) -> SaslConfig {
    mechanism(Credentials { username: "ada".to_owned(), password: Password::new(password) })
}

const ALL: [Mechanism; 4] =
    [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512, Mechanism::OAuthBearer];

fn every_mechanism(secret: &'static str) -> [SaslConfig; 4] {
    [
        password(SaslConfig::Plain, secret),
        password(SaslConfig::ScramSha256, secret),
        password(SaslConfig::ScramSha512, secret),
        tokens(&[secret]),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_mechanism_authenticates_and_a_wrong_secret_stays_one() {
    let cluster = start(ClusterOptions { sasl: sasl(&ALL, None), ..ClusterOptions::default() });
    for mechanism in every_mechanism("lovelace") {
        let connection =
            connect(ConnectionConfig { sasl: Some(mechanism), ..config(&cluster) }).await.unwrap();
        assert_eq!(brokers(&connection, in_seconds(5)).await.unwrap(), 1);
    }
    for mechanism in every_mechanism("wrong") {
        let name = mechanism.mechanism();
        let refused =
            connect(ConnectionConfig { sasl: Some(mechanism), ..config(&cluster) }).await.unwrap_err();
        assert!(
            matches!(&refused, ConnectError::Authentication { mechanism, .. } if *mechanism == name),
            "{refused}"
        );
        assert_eq!(refused.recovery(), Recovery::Authenticate);
        assert!(!format!("{refused} {refused:?}").contains("wrong"));
    }
    let refused = connect(ConnectionConfig { sasl: Some(tokens(&["wrong"])), ..config(&cluster) }).await;
    insta::assert_snapshot!(refused.unwrap_err(), @r#"broker1:9092 refused the OAUTHBEARER credentials: {"status":"invalid_token"}"#);
}

/// Counts the renewals that went well.
#[derive(Debug, Default)]
struct Renewals(AtomicUsize);

impl Observer for Renewals {
    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        self.0.fetch_add(usize::from(event.outcome.is_ok()), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn every_mechanism_renews_its_session_again_and_again_and_no_request_is_lost() {
    let lifetime = Some(Duration::from_secs(60));
    let cluster = start(ClusterOptions { sasl: sasl(&ALL, lifetime), ..ClusterOptions::default() });
    for mechanism in every_mechanism("lovelace") {
        let renewals = Arc::new(Renewals::default());
        let observer = Arc::clone(&renewals) as _;
        let config = ConnectionConfig { sasl: Some(mechanism), observer, ..config(&cluster) };
        let connection = connect(config).await.unwrap();
        for _ in 0..600 {
            let answers = [(); 3].map(|()| brokers(&connection, in_seconds(5)));
            for answer in join_all(answers).await {
                assert_eq!(answer.unwrap(), 1);
            }
            sleep(Duration::from_secs(1)).await;
        }
        let renewed = renewals.0.load(Ordering::Relaxed);
        assert!((10..=12).contains(&renewed), "{renewed} renewals in ten minutes");
    }
    let journal = cluster.journal();
    let metadata = journal.iter().filter(|entry| entry.api == ApiKey::Metadata);
    assert!(metadata.map(|entry| entry.principal.as_deref()).all(|principal| principal == Some("User:ada")));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_at_a_renewal_ends_the_connection_as_refused_credentials() {
    let lifetime = Some(Duration::from_secs(60));
    let cluster = start(ClusterOptions { sasl: sasl(&ALL, lifetime), ..ClusterOptions::default() });
    let sasl = Some(tokens(&["lovelace", "expired"]));
    let connection = connect(ConnectionConfig { sasl, ..config(&cluster) }).await.unwrap();
    sleep(Duration::from_secs(100)).await;
    let refused = brokers(&connection, in_seconds(5)).await.unwrap_err();
    assert_eq!((refused.recovery(), refused.may_have_been_sent()), (Recovery::Authenticate, false));
    let reason = connection.closed().await;
    let CloseReason::Reauthentication(source) = &*reason else { panic!("{reason}") };
    assert!(matches!(**source, ConnectError::Authentication { .. }), "{source}");
}

#[tokio::test(start_paused = true)]
async fn every_version_of_kafka_is_spoken_to_and_the_newest_hears_who_it_is_taken_for() {
    for version in [KafkaVersion::V3_9, KafkaVersion::V4_0, KafkaVersion::V4_3, KafkaVersion::V4_4] {
        let cluster = start(ClusterOptions { version, ..ClusterOptions::default() });
        let connection = connect(config(&cluster)).await.unwrap();
        let request = connection.send(|_| DescribeClusterRequest::default(), in_seconds(5)).await.unwrap();
        let cluster_id = Some(request.cluster_id);
        for (node_id, is_it) in [(1, true), (2, false)] {
            let identity = PeerIdentity { cluster_id: cluster_id.clone(), node_id: Some(node_id) };
            let target = Target::from(address()).with_identity(identity);
            let connected = connect_to(target, config(&cluster)).await;
            // Older ones are not told, and do not mind.
            assert_eq!(connected.is_ok(), is_it || version != KafkaVersion::V4_4, "{version:?} {node_id}");
            if let Err(error) = connected {
                assert!(matches!(error, ConnectError::WrongPeer { .. }), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_throttles_is_left_alone_and_then_answers() {
    let cluster = start(ClusterOptions::default());
    cluster.script(Rule::new(Fault::Throttle(Duration::from_secs(20))).api(ApiKey::Metadata).nth(1));
    let connection = connect(config(&cluster)).await.unwrap();
    let begun = Instant::now();
    let call = || Call::by(in_seconds(60)).request_timeout(Duration::from_secs(3));
    // The second one is with the broker when that begins to mute us, longer than its own request timeout.
    let (first, second) = tokio::join!(brokers(&connection, call()), brokers(&connection, call()));
    assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
    assert!(begun.elapsed() >= Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(brokers(&connection, call()).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_broken_broker_sends_is_told_as_what_it_is() {
    for (fault, expected) in [
        (Fault::WrongCorrelationId, "correlation id"),
        (Fault::Twice, "correlation id"),
        (Fault::CloseAfter(9), "after 9 bytes of an answer"),
        (Fault::ApplyThenLose, "closed the connection"),
        (Fault::Close, "closed the connection"),
        (Fault::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), "speaks HTTP"),
        (Fault::Drop, "did not answer Metadata within 5s"),
    ] {
        let cluster = start(ClusterOptions::default());
        let connection = connect(config(&cluster)).await.unwrap();
        brokers(&connection, in_seconds(5)).await.unwrap();
        cluster.script(Rule::new(fault.clone()).api(ApiKey::Metadata).always());
        // Of an answer that comes twice the first is good, and the second ends the connection.
        let first = brokers(&connection, in_seconds(5)).await;
        assert_eq!(first.is_ok(), matches!(fault, Fault::Twice), "{fault:?}");
        let reason = connection.closed().await.to_string();
        assert!(reason.contains(expected), "{fault:?}: {reason}");
    }
    let cluster = start(ClusterOptions::default());
    cluster.script(Rule::new(Fault::Trickle { bytes: 1, pause: Duration::from_millis(5) }).always());
    let connection = connect(config(&cluster)).await.unwrap();
    assert_eq!(brokers(&connection, in_seconds(5)).await.unwrap(), 1, "a byte at a time");
    let cluster = start(ClusterOptions::default());
    cluster.script(Rule::new(Fault::Error(ErrorCode::UnknownServerError)).api(ApiKey::ApiVersions).always());
    insta::assert_snapshot!(connect(config(&cluster)).await.unwrap_err(), @"broker1:9092 answered UNKNOWN_SERVER_ERROR while it was agreeing on versions");
}

/// A provider that has no token to give.
#[derive(Debug)]
struct Nothing;

impl TokenProvider for Nothing {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async { Err(TokenError::Malformed("it is empty")) })
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_said_to_the_broker() {
    let cluster = start(ClusterOptions { sasl: sasl(&ALL, None), ..ClusterOptions::default() });
    let sasl = Some(SaslConfig::OAuthBearer(Arc::new(Nothing)));
    let error = connect(ConnectionConfig { sasl, ..config(&cluster) }).await.unwrap_err();
    insta::assert_snapshot!(error, @"there is no OAUTHBEARER token for broker1:9092");
    assert_eq!(error.recovery(), Recovery::Authenticate);
    assert!(cluster.journal().iter().all(|entry| entry.api == ApiKey::ApiVersions));
}

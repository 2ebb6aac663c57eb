//! One connection against a real Apache Kafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use strandline_conn::{
    BearerToken, BrokerAddress, PeerIdentity, Target, TokenCommand, TokenFuture, TokenProvider,
};
use strandline_conn::{
    CloseReason, ConnectError, Connection, ConnectionConfig, Credentials, Observer, Password, Pem,
    ReauthenticateEvent, Recovery, RequestError, Roots, SaslConfig, Security, TlsConfig,
};
use strandline_protocol::messages::{DescribeClusterRequest, MetadataRequest};
use strandline_testkit::apache::{ApacheKafka, Options};
use tokio::time::Instant;

/// Counts the renewals of sessions. One that fails ends its connection, and so the test.
#[derive(Debug, Default)]
struct Renewals(AtomicUsize);

impl Observer for Renewals {
    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        self.0.fetch_add(usize::from(event.outcome.is_ok()), Ordering::Relaxed);
    }
}

async fn connect(address: &str, config: ConnectionConfig) -> Result<Connection, ConnectError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    Connection::connect(&address.parse().expect("the harness gives addresses"), &Arc::new(config), deadline)
        .await
}

/// Asks for the metadata of all topics; gives how many brokers it names.
async fn brokers(connection: &Connection) -> Result<usize, RequestError> {
    let request =
        MetadataRequest { topics: None, allow_auto_topic_creation: false, ..MetadataRequest::default() };
    let answer = connection.send(|_| request, Instant::now() + Duration::from_secs(20)).await?;
    Ok(answer.brokers.len())
}

fn sasl(mechanism: fn(Credentials) -> SaslConfig, username: &str, password: &str) -> ConnectionConfig {
    let credentials = Credentials { username: username.to_owned(), password: Password::new(password) };
    ConnectionConfig { sasl: Some(mechanism(credentials)), ..ConnectionConfig::default() }
}

fn tls(kafka: &ApacheKafka) -> ConnectionConfig {
    let roots = Roots::Pem(Pem::Inline(Password::new(kafka.ca_pem())));
    let security = Security::Tls(TlsConfig { roots, ..TlsConfig::default() });
    ConnectionConfig { security, ..ConnectionConfig::default() }
}

#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn every_listener_is_reached_in_its_way_and_in_no_other() {
    // Sessions of SASL listeners end after four seconds.
    let properties = vec![("connections.max.reauth.ms".to_owned(), "4000".to_owned())];
    let kafka = ApacheKafka::start(Options { properties, ..Options::default() }).unwrap();
    let plaintext = ConnectionConfig::default;

    for (address, config) in [
        (kafka.bootstrap(), plaintext()),
        (kafka.ssl(), tls(&kafka)),
        (kafka.sasl(), sasl(SaslConfig::ScramSha512, "admin", "admin-secret")),
        (kafka.sasl(), sasl(SaslConfig::Plain, "reader", "reader-secret")),
    ] {
        let connection = connect(&address, config).await.unwrap();
        assert_eq!(brokers(&connection).await.unwrap(), 1, "{address}");
    }

    // The broker's session limit is met by authenticating again on the living connection.
    for (mechanism, user) in
        [(SaslConfig::ScramSha512 as fn(_) -> _, "admin"), (SaslConfig::Plain as fn(_) -> _, "reader")]
    {
        let renewals = Arc::new(Renewals::default());
        let config = sasl(mechanism, user, &format!("{user}-secret"));
        let config = ConnectionConfig { observer: Arc::clone(&renewals) as _, ..config };
        let connection = connect(&kafka.sasl(), config).await.unwrap();
        let renewed_twice = async {
            while renewals.0.load(Ordering::Relaxed) < 2 {
                assert_eq!(brokers(&connection).await.unwrap(), 1);
            }
        };
        tokio::time::timeout(Duration::from_secs(60), renewed_twice).await.unwrap();
        assert_eq!(brokers(&connection).await.unwrap(), 1);
    }

    for (mechanism, user) in [
        (SaslConfig::ScramSha512 as fn(_) -> _, "admin"),
        (SaslConfig::ScramSha256 as fn(_) -> _, "admin"),
        (SaslConfig::Plain as fn(_) -> _, "reader"),
    ] {
        let error = connect(&kafka.sasl(), sasl(mechanism, user, "wrong")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Authentication { .. }), "{error}");
        assert_eq!(error.recovery(), Recovery::Authenticate);
    }
    let error =
        connect(&kafka.bootstrap(), sasl(SaslConfig::Plain, "reader", "reader-secret")).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoSasl { .. }), "{error}");
    let error = connect(&kafka.ssl(), plaintext()).await.unwrap_err();
    assert!(matches!(error, ConnectError::TlsMismatch { configured_tls: false, .. }), "{error}");
    let error = connect(&kafka.bootstrap(), tls(&kafka)).await.unwrap_err();
    assert!(matches!(error, ConnectError::TlsMismatch { configured_tls: true, .. }), "{error}");

    // ApiVersions is answered before authentication, the first request after it is not.
    let connection = connect(&kafka.sasl(), plaintext()).await.unwrap();
    match brokers(&connection).await.unwrap_err() {
        RequestError::NoAnswer { source, .. } => {
            assert!(matches!(*source, CloseReason::ClosedUnauthenticated), "{source}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn an_older_and_a_newer_broker_are_spoken_to_in_their_own_versions() {
    for options in [
        Options { version: "4.0.0", ..Options::default() },
        Options { version: "4.4.0", tiered: false, ..Options::default() },
    ] {
        let version = options.version;
        let kafka = ApacheKafka::start(options).unwrap();
        let connection = connect(&kafka.bootstrap(), ConnectionConfig::default()).await.unwrap();
        assert_eq!(brokers(&connection).await.unwrap(), 1);

        // From 4.4 on a broker minds who it is taken for (KIP-1242); before, it is not told.
        let deadline = || Instant::now() + Duration::from_secs(20);
        let described = connection.send(|_| DescribeClusterRequest::default(), deadline()).await.unwrap();
        let (cluster_id, node_id) = (Some(described.cluster_id), Some(1));
        let other = || Some("bm9vbmUgaGFzIHRoaXM".to_owned());
        for (cluster_id, node_id, is_it) in
            [(cluster_id.clone(), node_id, true), (cluster_id, Some(7), false), (other(), node_id, false)]
        {
            let address: BrokerAddress = kafka.bootstrap().parse().unwrap();
            let target = Target::from(address).with_identity(PeerIdentity { cluster_id, node_id });
            let config = Arc::new(ConnectionConfig::default());
            match Connection::connect(target, &config, deadline()).await {
                Ok(connection) => {
                    assert!(is_it || version != "4.4.0", "the wrong broker was taken");
                    assert_eq!(brokers(&connection).await.unwrap(), 1);
                }
                Err(error) => {
                    assert!(!is_it && version == "4.4.0", "{error}");
                    assert!(matches!(error, ConnectError::WrongPeer { .. }), "{error}");
                    assert_eq!(error.recovery(), Recovery::Rebootstrap);
                }
            }
        }
    }
}

/// Makes a token without a signature for `admin`, good for a few seconds: what a broker without an identity provider accepts
/// (`OAuthBearerUnsecuredJws`).
#[derive(Debug)]
struct UnsecuredTokens {
    subject: &'static str,
}

impl TokenProvider for UnsecuredTokens {
    fn token(&self) -> TokenFuture<'_> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
        let claims = format!("{{\"sub\":\"{}\",\"iat\":{now},\"exp\":{}}}", self.subject, now + 5);
        let token = [r#"{"alg":"none"}"#, &claims].map(|part| BASE64.encode(part)).join(".");
        Box::pin(async move { BearerToken::new(&format!("{token}.")) })
    }
}

#[tokio::test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn oauthbearer_takes_new_tokens_while_the_connection_lives() {
    let jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                unsecuredLoginStringClaim_sub=\"admin\";";
    let properties = [
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
        ("listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config", jaas),
        ("listener.name.sasl_ssl.oauthbearer.sasl.jaas.config", jaas),
    ];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let kafka = ApacheKafka::start(Options { properties, ..Options::default() }).unwrap();

    // The session ends with the token.
    let renewals = Arc::new(Renewals::default());
    let config = ConnectionConfig {
        sasl: Some(SaslConfig::OAuthBearer(Arc::new(UnsecuredTokens { subject: "admin" }))),
        observer: Arc::clone(&renewals) as _,
        ..ConnectionConfig::default()
    };
    let connection = connect(&kafka.sasl(), config).await.unwrap();
    let renewed_twice = async {
        while renewals.0.load(Ordering::Relaxed) < 2 {
            assert_eq!(brokers(&connection).await.unwrap(), 1);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), renewed_twice).await.unwrap();

    // A token that is none is refused, in the broker's words.
    let sasl = Some(SaslConfig::OAuthBearer(Arc::new(TokenCommand::new("echo", ["nonsense"]))));
    let refused = connect(&kafka.sasl(), ConnectionConfig { sasl, ..ConnectionConfig::default() }).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, ConnectError::Authentication { .. }), "{refused}");
    assert!(refused.to_string().contains("invalid_token"), "{refused}");
}

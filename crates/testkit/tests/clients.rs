//! The project's own clients on the embedded cluster.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use strandline_client::admin::Admin;
use strandline_conn::{ClientIdentity, Credentials, Password, Pem, Roots, SaslConfig, Security, TlsConfig};
use strandline_log::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, METADATA_TOPIC, MetadataEventLog as _,
    MetadataEventRecord, MetadataRange, OpenLogError,
};
use strandline_meta::{Cluster, ClusterConfig, ConnectionConfig};
use strandline_protocol::ApiKey;
use strandline_testkit::embedded::{
    Acl, ClusterOptions, EmbeddedCluster, Fault, Held, KafkaVersion, Mechanism, Operation, Rule, Sasl, Tls,
};
use tokio::time::{Duration, Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(30);

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

async fn connect(cluster: &EmbeddedCluster) -> Cluster {
    let bootstrap = cluster.bootstrap();
    let addresses = bootstrap.split(',').map(|address| address.parse().unwrap());
    let config = ClusterConfig::new(addresses, ConnectionConfig::default()).jitter_seed(1);
    Cluster::connect(config, deadline()).await.unwrap()
}

#[tokio::test]
async fn the_metadata_log_is_read_to_its_end_while_its_leader_moves() {
    const RECORDS: i64 = 600;
    for version in KafkaVersion::ALL {
        let embedded =
            EmbeddedCluster::start(ClusterOptions { brokers: 3, version, ..ClusterOptions::default() })
                .unwrap();
        embedded.create_topic_with(METADATA_TOPIC, 1, 1, &[]);
        for number in 0..RECORDS {
            embedded.append(METADATA_TOPIC, 0, &[number.to_string().as_bytes()]);
        }
        let held = Held::default();
        embedded.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::Fetch).nth(3));
        let cluster = connect(&embedded).await;
        let config = KafkaMetadataLogConfig { fetch_max_bytes: 8_000, ..KafkaMetadataLogConfig::default() };
        let log = KafkaMetadataEventLog::open_read_only(&cluster, config, deadline()).await.unwrap();
        let marks = log.high_water_marks().await;
        assert_eq!(marks[0].as_ref().unwrap().high_watermark, RECORDS);

        let seen = Arc::new(Mutex::new(Vec::new()));
        let visitor = {
            let seen = Arc::clone(&seen);
            move |record: &MetadataEventRecord<'_>| {
                seen.lock().unwrap().push(record.offset);
                ControlFlow::Continue(())
            }
        };
        let range = MetadataRange { partition: 0, from: 0, to: RECORDS };
        let moving = async {
            let fetched = |journal: &[strandline_testkit::embedded::JournalEntry]| {
                journal.iter().filter(|entry| entry.api == ApiKey::Fetch).count() >= 3
            };
            embedded.journal_when(fetched).await;
            embedded.move_leader(METADATA_TOPIC, 0, 2);
            held.release();
        };
        let (visit, ()) =
            timeout(PATIENCE, async { tokio::join!(log.visit_range(range, visitor), moving) }).await.unwrap();
        assert!(visit.error.is_none(), "{version:?}: {:?}", visit.error);
        assert_eq!(*seen.lock().unwrap(), (0..RECORDS).collect::<Vec<_>>(), "{version:?}");
        let journal = embedded.journal();
        assert!(journal.iter().any(|entry| entry.api == ApiKey::Fetch && entry.broker == 2), "{version:?}");
        let writes = [ApiKey::Produce, ApiKey::CreateTopics, ApiKey::InitProducerId];
        assert!(!journal.iter().any(|entry| writes.contains(&entry.api)), "{version:?}");
    }
}

#[tokio::test]
async fn the_admin_client_asks_every_broker_for_its_log_dirs_and_names_the_one_that_fails() {
    let embedded =
        EmbeddedCluster::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() }).unwrap();
    embedded.create_topic("orders", 6);
    let cluster = connect(&embedded).await;
    let admin = Admin::new(&cluster);
    let dirs = admin.describe_log_dirs(None, deadline()).await.unwrap();
    assert_eq!(dirs.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert!(dirs.values().all(Result::is_ok));
    let refused = Fault::Error(strandline_protocol::ErrorCode::ClusterAuthorizationFailed);
    embedded.script(Rule::new(refused).api(ApiKey::DescribeLogDirs).broker(2).always());
    let dirs = admin.describe_log_dirs(None, deadline()).await.unwrap();
    let ok: Vec<_> = dirs.iter().map(|(id, dirs)| (*id, dirs.is_ok())).collect();
    assert_eq!(ok, [(1, true), (2, false), (3, true)]);
}

#[tokio::test]
async fn a_client_authenticates_with_each_mechanism_and_a_wrong_password_stays_one() {
    let sasl = Sasl {
        users: vec![("ada".to_owned(), "lovelace".to_owned())],
        mechanisms: vec![Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512],
        session_lifetime: None,
    };
    let embedded =
        EmbeddedCluster::start(ClusterOptions { sasl: Some(sasl), ..ClusterOptions::default() }).unwrap();
    for mechanism in [SaslConfig::Plain, SaslConfig::ScramSha256, SaslConfig::ScramSha512] {
        for (password, expected) in [("lovelace", true), ("byron", false)] {
            let credentials = Credentials { username: "ada".to_owned(), password: Password::new(password) };
            let connection =
                ConnectionConfig { sasl: Some(mechanism(credentials)), ..ConnectionConfig::default() };
            let config = ClusterConfig::new([embedded.bootstrap().parse().unwrap()], connection);
            let connected = Cluster::connect(config, deadline()).await;
            let words = connected.as_ref().err().map(|error| format!("{error:?}"));
            assert_eq!(connected.is_ok(), expected, "{words:?}");
            if let Some(words) = words {
                assert!(words.contains("source: Authentication"), "{words}");
            }
        }
    }
    let journal = embedded.journal();
    let metadata = journal.iter().filter(|entry| entry.api == ApiKey::Metadata);
    assert!(metadata.map(|entry| entry.principal.as_deref()).eq([Some("User:ada"); 3]));
}

#[tokio::test]
async fn a_client_without_credentials_is_hung_up_on() {
    let sasl = Sasl { users: vec![], mechanisms: vec![Mechanism::Plain], session_lifetime: None };
    let embedded =
        EmbeddedCluster::start(ClusterOptions { sasl: Some(sasl), ..ClusterOptions::default() }).unwrap();
    let config = ClusterConfig::new([embedded.bootstrap().parse().unwrap()], ConnectionConfig::default());
    assert!(Cluster::connect(config, deadline()).await.is_err());
}

#[tokio::test]
async fn tls_is_spoken_and_a_client_certificate_is_asked_for_where_that_is_said() {
    for tls in [Tls::Server, Tls::Mutual] {
        let embedded =
            EmbeddedCluster::start(ClusterOptions { tls: Some(tls), ..ClusterOptions::default() }).unwrap();
        let certificates = embedded.certificates().unwrap();
        let pem = |text: &str| Pem::Inline(Password::new(text));
        let shown =
            ClientIdentity { certificates: pem(&certificates.client), key: pem(&certificates.client_key) };
        for (identity, expected) in [(Some(shown), true), (None, tls == Tls::Server)] {
            let tls =
                TlsConfig { roots: Roots::Pem(pem(&certificates.ca)), identity, ..TlsConfig::default() };
            let connection = ConnectionConfig { security: Security::Tls(tls), ..ConnectionConfig::default() };
            let config = ClusterConfig::new([embedded.bootstrap().parse().unwrap()], connection);
            let connected = Cluster::connect(config, Instant::now() + Duration::from_secs(5)).await;
            assert_eq!(connected.is_ok(), expected, "{connected:?}");
        }
    }
}

#[tokio::test]
async fn read_and_describe_on_the_metadata_topic_suffice_to_read_it_and_show_no_other() {
    let embedded = EmbeddedCluster::start(ClusterOptions::default()).unwrap();
    embedded.create_topic(METADATA_TOPIC, 1);
    embedded.create_topic("orders", 1);
    embedded.append(METADATA_TOPIC, 0, &[b"an event"]);
    embedded.set_acls(Some(vec![Acl::topic("User:ANONYMOUS", METADATA_TOPIC, Operation::Read)]));
    let cluster = connect(&embedded).await;
    let view = cluster.refresh_all(deadline()).await.unwrap();
    assert_eq!(view.topics().map(|topic| topic.name.to_string()).collect::<Vec<_>>(), [METADATA_TOPIC]);
    let config = KafkaMetadataLogConfig::default();
    let log = KafkaMetadataEventLog::open_read_only(&cluster, config, deadline()).await.unwrap();
    let range = MetadataRange { partition: 0, from: 0, to: 1 };
    let visit = log.visit_range(range, |_: &MetadataEventRecord<'_>| ControlFlow::Continue(())).await;
    assert!(visit.error.is_none() && visit.outcome.records == 1, "{:?}", visit.error);
    let config = KafkaMetadataLogConfig { topic: "orders".to_owned(), ..KafkaMetadataLogConfig::default() };
    let refused = KafkaMetadataEventLog::open_read_only(&cluster, config, deadline()).await;
    assert!(matches!(refused, Err(OpenLogError::Forbidden { .. })), "{refused:?}");
    let dirs = Admin::new(&cluster).describe_log_dirs(None, deadline()).await.unwrap();
    assert!(dirs[&1].is_err());
}

//! Every step of `doctor`, healthy and broken: a table of what is wrong, and what is told of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use strandline_protocol::ApiKey;
use strandline_protocol::records::{BatchOptions, NewRecord};
use strandline_testkit::embedded::{
    Acl, ClusterOptions, EmbeddedCluster, Fault, Held, KafkaVersion, Mechanism, Network, Operation, Rule,
    Sasl, Tls,
};
use strandline_tier::{
    EpochEntry, MetadataPartitioner, RawEvent, RawSegmentMetadata, RawTopicIdPartition, Uuid, codec,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{NOW, Run, run, run_with};

const METADATA_TOPIC: &str = "__remote_log_metadata";
const HEALTHY: [(&str, &str); 3] =
    [("retention.ms", "-1"), ("min.insync.replicas", "2"), ("cleanup.policy", "delete")];
const PASSWORD: &str = "c0rrect-horse";
const USER: &str = "User:ada";

/// A cluster, and what it runs on.
struct Lab {
    cluster: EmbeddedCluster,
    runtime: tokio::runtime::Runtime,
    files: tempfile::TempDir,
}

impl Lab {
    fn start(options: ClusterOptions) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let cluster = {
            let _entered = runtime.enter();
            EmbeddedCluster::start(options).unwrap()
        };
        Self { cluster, runtime, files: tempfile::tempdir().unwrap() }
    }

    /// Three brokers with a tier that has one event in it.
    fn tiered(options: ClusterOptions, configs: &[(&str, &str)]) -> Self {
        let lab = Self::start(ClusterOptions { brokers: 3, ..options });
        lab.cluster.create_topic_with(METADATA_TOPIC, 4, 3, configs);
        let tiering = [("remote.storage.enable", "true")];
        let topic_id = lab.cluster.create_topic_with("orders", 2, 3, &tiering);
        let event_timestamp_ms = 1_795_979_974_000;
        let event = RawEvent::SegmentMetadata(RawSegmentMetadata {
            topic_id_partition: RawTopicIdPartition { topic: "orders".into(), topic_id, partition: 0 },
            segment_id: Uuid([7; 16]),
            start_offset: 0,
            end_offset: 9,
            broker_id: 1,
            max_timestamp_ms: event_timestamp_ms,
            event_timestamp_ms,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
            segment_size_in_bytes: 100,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: true,
        });
        let mut value = Vec::new();
        codec::encode(&event, &mut value).unwrap();
        let record = NewRecord { value: Some(&value), ..NewRecord::default() };
        let home = MetadataPartitioner::new(4).unwrap().metadata_partition(topic_id, 0);
        lab.cluster.append_batch(METADATA_TOPIC, home, BatchOptions::default(), &[record]);
        lab
    }

    fn secured(tls: Option<Tls>, mechanisms: &[Mechanism]) -> Self {
        let users = vec![("ada".to_owned(), PASSWORD.to_owned())];
        let sasl = Sasl { users, mechanisms: mechanisms.to_vec(), session_lifetime: None };
        let sasl = (!mechanisms.is_empty()).then_some(sasl);
        Self::tiered(ClusterOptions { tls, sasl, ..ClusterOptions::default() }, &HEALTHY)
    }

    fn bootstrap(&self) -> String {
        self.cluster.bootstrap_of(1)
    }

    /// `ssl.ca.location=…` of a file with this authority.
    fn trust(&self, pem: &str) -> String {
        let path = self.files.path().join("ca.pem");
        std::fs::write(&path, pem).unwrap();
        format!("ssl.ca.location={}", path.display())
    }

    fn trust_own(&self) -> String {
        self.trust(&self.cluster.certificates().unwrap().ca)
    }

    /// Everything that is not as it should be, and the exit code.
    fn doctor(&self, settings: &[&str]) -> String {
        let mut arguments = vec!["-b".to_owned(), self.bootstrap()];
        settings.iter().for_each(|setting| arguments.extend(["-X".to_owned(), (*setting).to_owned()]));
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        doctor(&words)
    }
}

fn doctor(arguments: &[&str]) -> String {
    let Run { code, stdout, stderr } = run(&[&["doctor", "-o", "json"][..], arguments].concat());
    assert!(!stdout.contains(PASSWORD) && !stderr.contains(PASSWORD), "{stdout}{stderr}");
    if stdout.is_empty() {
        return format!("exit {code}\n  {}", redacted(&stderr.replace('\n', "\n  ")));
    }
    assert_eq!(stderr, "");
    let envelope: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(envelope["schema"], "strandline.doctor/v1");
    let mut text = format!("exit {code}\n");
    for check in envelope["items"].as_array().unwrap() {
        let field = |name: &str| check[name].as_str().unwrap_or_default();
        if !matches!(field("verdict"), "warning" | "failed") {
            continue;
        }
        text.push_str(&format!(
            "  {} {}, {}: {}\n",
            field("verdict"),
            field("section"),
            field("check"),
            field("detail")
        ));
        if !field("help").is_empty() {
            text.push_str(&format!("    help: {}\n", field("help")));
        }
        let silences: Vec<&str> =
            check["silences"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        if !silences.is_empty() {
            text.push_str(&format!("    silences: {}\n", silences.join(", ")));
        }
    }
    redacted(text.trim_end())
}

/// What differs from run to run: ports, times, temporary directories, ids.
fn redacted(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, with) in [
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\d+\.\d ms", "N ms"),
        (r"/\S*/(ca|none)\.pem", "DIR/$1.pem"),
        (r"\d+ d( \d+ h)? ago", "N ago"),
        (r"verification time \d+", "verification time N"),
        (r"\d+ seconds ago", "N seconds ago"),
        // What a wait that was cut short had come to is a matter of moments.
        (r"(metadata partition \d+ cannot be read): [^\n]*", "$1: …"),
        (r"it was (opening the TCP connection|agreeing on versions)", "it was connecting"),
        (r"(within|longer than) [\d.]+m?s", "$1 N ms"),
    ] {
        text = regex::Regex::new(pattern).unwrap().replace_all(&text, with).into_owned();
    }
    text
}

/// A server of another kind; gives its address.
fn web_server() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            use std::io::{Read as _, Write as _};
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    address
}

/// A server that greets with bytes of its own.
fn talker(says: &'static [u8]) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            use std::io::{Read as _, Write as _};
            let _ = stream.write_all(says);
            // Until the other side has had enough.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    address
}

/// An authority, as PEM, and what signs with it.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

/// A TLS listener with a certificate of one's own making; gives its address.
fn listener(
    lab: &Lab,
    issuer: &Issuer<'static, KeyPair>,
    change: impl FnOnce(&mut CertificateParams),
) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    change(&mut params);
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = lab.runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    lab.runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // What fails here is told by the other side.
            let _ = acceptor.accept(stream).await;
        }
    });
    address
}

#[test]
fn a_healthy_cluster_is_healthy_in_every_step() {
    let lab = Lab::secured(Some(Tls::Server), &[Mechanism::ScramSha512]);
    let trust = lab.trust_own();
    let path = lab.files.path().join("client.properties");
    std::fs::write(&path, format!("security.protocol=SASL_SSL\n{trust}\nsasl.mechanism=SCRAM-SHA-512\n"))
        .unwrap();
    let bootstrap = lab.bootstrap();
    let arguments = ["doctor", "-b", &bootstrap, "-F", path.to_str().unwrap(), "-X", "sasl.username=ada"];
    let run = run_with(&arguments, "", &[("STRANDLINE_X_SASL_PASSWORD", PASSWORD)]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    assert!(!run.stdout.contains(PASSWORD));
    let screen = redacted(&run.stdout).replace(path.to_str().unwrap(), "client.properties");
    let id = regex::Regex::new("id [A-Za-z0-9_-]{22}|[A-Za-z0-9_-]{22}: ").unwrap();
    insta::assert_snapshot!(id.replace_all(&screen, "ID: "));
}

#[test]
fn each_step_that_fails_is_told_with_what_to_do() {
    let plain = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    let tls = Lab::secured(Some(Tls::Server), &[]);
    let mutual = Lab::secured(Some(Tls::Mutual), &[]);
    let sasl = Lab::secured(None, &[Mechanism::Plain, Mechanism::ScramSha512]);
    let (stranger, issuer) = authority();
    let ssl = "security.protocol=SSL";
    // Bound, so that nobody else gets it, and not listened on.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = unused.local_addr().unwrap().to_string();
    let both = format!("{},{nobody}", plain.bootstrap());
    let credentials = |mechanism: &str, user: &str, password: &str| {
        let all = ["security.protocol=SASL_PLAINTEXT".to_owned(), format!("sasl.mechanism={mechanism}")];
        [&all[..], &[format!("sasl.username={user}"), format!("sasl.password={password}")]].concat()
    };
    let sasl_with = |lab: &Lab, mechanism, user, password| {
        let settings = credentials(mechanism, user, password);
        lab.doctor(&settings.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let trusting = |lab: &Lab, address: &str| {
        let trust = lab.trust(&stranger);
        doctor(&["-b", address, "-X", ssl, "-X", &trust])
    };
    let expired = listener(&plain, &issuer, |params| params.not_after = rcgen::date_time_ymd(2025, 1, 1));
    let other_name = listener(&plain, &issuer, |params| {
        *params = CertificateParams::new(vec!["broker1.example.com".to_owned()]).unwrap();
    });
    let own_authority = listener(&plain, &issuer, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let ssh = talker(b"SSH-2.0-OpenSSH_9.9\r\n");
    let missing_file = format!("ssl.ca.location={}", plain.files.path().join("none.pem").display());
    // The system takes the connection, and nobody ever reads from it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address.to_string())).unwrap();
    let web = web_server();
    let soon = "socket.connection.setup.timeout.ms=300";

    let cases = [
        ("a name that nobody knows", doctor(&["-b", "broker1.invalid:9092"])),
        ("nobody listens", doctor(&["-b", &nobody])),
        ("one of two addresses is dead", doctor(&["-b", &both])),
        ("a listener that accepts and says nothing", doctor(&["-b", &silent.1, "-X", soon])),
        ("a web server", doctor(&["-b", &web])),
        ("an SSH server", doctor(&["-b", &ssh])),
        ("TLS against plaintext", plain.doctor(&[ssl, &plain.trust(&stranger)])),
        ("plaintext against TLS", tls.doctor(&[])),
        ("an authority that signed nothing here", tls.doctor(&[ssl, &tls.trust(&stranger)])),
        ("an expired certificate", trusting(&tls, &expired)),
        ("a certificate for another host", trusting(&tls, &other_name)),
        ("the certificate of an authority", trusting(&tls, &own_authority)),
        ("no client certificate", mutual.doctor(&[ssl, &mutual.trust_own()])),
        ("a trust store that is not there", tls.doctor(&[ssl, &missing_file])),
        ("wrong password, SCRAM", sasl_with(&sasl, "SCRAM-SHA-512", "ada", "wrong")),
        ("wrong password, PLAIN", sasl_with(&sasl, "PLAIN", "ada", "wrong")),
        ("unknown user", sasl_with(&sasl, "PLAIN", "eve", "wrong")),
        ("a mechanism that is not offered", sasl_with(&sasl, "SCRAM-SHA-256", "ada", PASSWORD)),
        ("no credentials for a SASL listener", sasl.doctor(&[])),
        ("credentials for a listener without SASL", sasl_with(&plain, "PLAIN", "ada", PASSWORD)),
        ("no such protocol", plain.doctor(&["security.protocol=TLS"])),
        ("no port", doctor(&["-b", "broker1"])),
        ("an unknown key", plain.doctor(&["sasl.mechansm=PLAIN"])),
        ("no cluster is named", doctor(&[])),
    ];
    insta::assert_snapshot!(told(&cases));
}

#[test]
fn a_certificate_that_ends_soon_is_warned_of() {
    let lab = Lab::start(ClusterOptions::default());
    let (pem, issuer) = authority();
    let soon =
        jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::UTC).date() + jiff::Span::new().days(10);
    let address = listener(&lab, &issuer, |params| {
        let (month, day) = (soon.month().unsigned_abs(), soon.day().unsigned_abs());
        params.not_after = rcgen::date_time_ymd(soon.year().into(), month, day);
    });
    let trust = lab.trust(&pem);
    let output = crate::command()
        .args(["doctor", "-b", &address, "-X", "security.protocol=SSL", "-X", &trust, "-o", "jsonl"])
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let check = stdout.lines().find(|line| line.contains("\"TLS\"")).unwrap();
    let check: Value = serde_json::from_str(check).unwrap();
    assert_eq!(check["verdict"], "warning", "{check}");
    assert!(check["help"].as_str().unwrap().contains("renew it"), "{check}");
    // What listens there speaks TLS, and nothing inside it.
    assert_eq!(output.status.code(), Some(5), "{stdout}");
}

fn told(cases: &[(&str, String)]) -> String {
    cases.iter().map(|(what, told)| format!("{what}: {told}\n")).collect()
}

#[test]
fn a_cluster_that_cannot_be_reached_as_a_whole_is_told_broker_by_broker() {
    let soon = "socket.connection.setup.timeout.ms=3000";
    let dead = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    dead.runtime.block_on(dead.cluster.set_network(2, Network::Refuse)).unwrap();
    let elsewhere = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    elsewhere.cluster.advertise(3, "broker3.internal.invalid", 9092);
    let stopped = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    stopped.runtime.block_on(stopped.cluster.stop_broker(2)).unwrap();
    let silent = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    silent.runtime.block_on(silent.cluster.set_network(2, Network::Blackhole)).unwrap();
    let cases = [
        ("a dead broker among three", dead.doctor(&[soon])),
        ("a broker that advertises a name from elsewhere", elsewhere.doctor(&[soon])),
        ("a broker that was stopped", stopped.doctor(&[soon])),
        ("a broker that hangs", silent.doctor(&[soon])),
    ];
    insta::assert_snapshot!(told(&cases));
}

#[test]
fn each_missing_right_is_told_with_what_it_silences_and_how_to_grant_it() {
    let lab = Lab::secured(None, &[Mechanism::Plain]);
    let password = format!("sasl.password={PASSWORD}");
    let ada = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=ada", &password];
    let metadata = |operation| Acl::topic(USER, METADATA_TOPIC, operation);
    let orders = |operation| Acl::topic(USER, "orders", operation);
    let read = vec![metadata(Operation::Read), metadata(Operation::Describe)];
    let most = [
        &read[..],
        &[
            metadata(Operation::DescribeConfigs),
            orders(Operation::Describe),
            Acl::cluster(USER, Operation::Describe),
        ],
    ]
    .concat();
    let all = [&most[..], &[orders(Operation::DescribeConfigs), orders(Operation::Read)]].concat();
    let cases = [
        ("none at all", Vec::new()),
        ("DESCRIBE alone", vec![metadata(Operation::Describe)]),
        ("READ and DESCRIBE on the metadata topic", read.clone()),
        ("all but those on configs and records of orders", most),
        ("all", all),
    ];
    let cases = cases.map(|(what, acls)| {
        lab.cluster.set_acls(Some(acls));
        (what, lab.doctor(&ada))
    });
    insta::assert_snapshot!(told(&cases));

    // What doctor says that a right silences is what audit then does not check for want of a right.
    lab.cluster.set_acls(Some(read));
    let bootstrap = lab.bootstrap();
    let silenced = |command: &str| {
        let mut arguments = vec![command, "-b", &bootstrap, "-o", "json"];
        ada.iter().for_each(|setting| arguments.extend(["-X", setting]));
        let run = run(&arguments);
        let envelope: Value = serde_json::from_str(&run.stdout).unwrap();
        let rules = envelope["not_checked"].as_array().unwrap().iter();
        let rules = rules.filter(|rule| rule["reason"].as_str().unwrap().contains("missing right"));
        rules.map(|rule| rule["code"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(silenced("doctor"), silenced("audit"));
}

#[test]
fn an_unhealthy_metadata_topic_is_told_by_the_rules_of_audit() {
    let none = Lab::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() });
    let empty = Lab::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() });
    empty.cluster.create_topic_with(METADATA_TOPIC, 4, 3, &HEALTHY);
    let careless = [
        ("retention.ms", "604800000"),
        ("cleanup.policy", "compact,delete"),
        ("unclean.leader.election.enable", "true"),
    ];
    let careless = Lab::tiered(ClusterOptions::default(), &careless);
    careless.cluster.set_isr(METADATA_TOPIC, 1, &[1]);
    careless.cluster.move_leader(METADATA_TOPIC, 3, -1);
    let soon = "socket.connection.setup.timeout.ms=500";
    let cases = [
        ("there is none", none.doctor(&[])),
        ("nothing in it", empty.doctor(&[])),
        ("it forgets, and a leader is missing", careless.doctor(&[soon])),
    ];
    insta::assert_snapshot!(told(&cases));
}

#[test]
fn the_store_is_tried_where_one_is_named() {
    let lab = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    let bootstrap = lab.bootstrap();
    let with = |store: &str, layout: &str| {
        let store = format!("file://{store}");
        doctor(&["-b", &bootstrap, "--store", &store, "--layout", layout])
    };
    let tier = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tier");
    assert_eq!(with(tier, "local"), "exit 0");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let empty = with(path, "local");
    std::fs::write(dir.path().join("notes.txt"), "tea").unwrap();
    let cases = [
        ("an empty directory", empty),
        ("something else", with(path, "local")),
        ("no such directory", with("/no/such/directory", "local")),
        ("no such layout", with(path, "nonsense")),
        ("no layout", doctor(&["-b", &bootstrap, "--store", "file:///tmp"])),
    ];
    insta::assert_snapshot!(told(&cases), @r#"
    an empty directory: exit 0
      warning store, listing: there is no object
        help: nothing was ever copied, or this is not the directory that the storage plugin writes to
    something else: exit 0
      warning store, listing: the first object that is seen is none of the layout: notes.txt
        help: do --store and --layout name where the storage plugin writes, and how?
    no such directory: exit 5
      failed store, open: the store's directory /no/such/directory does not exist
        help: --store names the directory of the plugin's setting `dir`, as this machine sees it
    no such layout: exit 7
      failed store, open: layout "nonsense" is not supported; these are: local
    no layout: exit 2
      failed store, open: --store needs --layout
        help: --layout local is Kafka's LocalTieredStorage
    "#);
}

#[test]
fn the_release_is_told_by_the_versions_that_are_served() {
    let told = KafkaVersion::ALL.map(|version| {
        let lab = Lab::tiered(ClusterOptions { version, ..ClusterOptions::default() }, &HEALTHY);
        let run = run(&["doctor", "-b", &lab.bootstrap(), "-o", "jsonl"]);
        assert_eq!(run.code, 0, "{version:?}: {}", run.stdout);
        let line = run.stdout.lines().find(|line| line.contains("\"versions\"")).unwrap();
        let check: Value = serde_json::from_str(line).unwrap();
        check["detail"].as_str().unwrap().to_owned()
    });
    assert_eq!(told, ["Kafka 3.9", "Kafka 4.0 to 4.2", "Kafka 4.3", "Kafka 4.4 or newer"]);
}

#[test]
fn ctrl_c_ends_the_examination_with_what_was_seen() {
    let lab = Lab::tiered(ClusterOptions::default(), &HEALTHY);
    let held = Held::default();
    lab.cluster.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::ApiVersions));
    let child = crate::command()
        .args(["doctor", "-b", &lab.bootstrap(), "--now", NOW])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // It has asked for the versions, and waits for them.
    let asked = lab.cluster.journal_when(|journal| !journal.is_empty());
    let within = std::time::Duration::from_secs(30);
    lab.runtime.block_on(async { tokio::time::timeout(within, asked).await }).unwrap();
    crate::signals::signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stdout}");
    assert!(
        stdout.starts_with("Settings\n") && stdout.ends_with("Not finished: ended by Ctrl-C.\n"),
        "{stdout}"
    );
    held.release();
}

//! Every way into a secured cluster, and every way that does not lead in: the exit code, what is said, and that no
//! secret is.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io, thread};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::Value;
use strandline_testkit::apache::{ADMIN, ApacheKafka, READER, wait_for};

use crate::command::{Run, strandline, strandline_with};
use crate::{METADATA_TOPIC, TOPIC, words};

const WITHIN: Duration = Duration::from_secs(120);
/// Sooner than any request is given up.
const AT_ONCE: Duration = Duration::from_secs(20);
const SASL: &str = "security.protocol=SASL_PLAINTEXT";

/// What it is, the arguments, the environment.
type Way<'a> = (&'static str, Vec<&'a str>, &'a [(&'a str, &'a str)]);

/// The ways in: each runs a command, which then says what it says without any security.
pub(crate) fn every_way_in_leads_to_the_same_tier(kafka: &ApacheKafka) {
    let files = Files::write(kafka);
    let expected = segments(&["-b", &kafka.bootstrap()], &[]);
    assert!(expected.len() > 5, "{expected:?}");
    let (sasl, ssl) = (kafka.sasl(), kafka.ssl());
    let (java, librdkafka, inline) = (files.path("java"), files.path("librdkafka"), files.path("inline"));
    let ca = format!("ssl.truststore.location={}", files.path("ca"));
    let ca_location = format!("ssl.ca.location={}", files.path("ca"));
    let ca_pem = format!("ssl.ca.pem={}", kafka.ca_pem());
    let folded = format!("ssl.truststore.certificates={}", kafka.ca_pem().replace('\n', " "));
    let tls = ["-b", &ssl, "-X", "security.protocol=SSL", "-X"];
    let scram = |mechanism| {
        let mechanism = format!("sasl.mechanism=SCRAM-SHA-{mechanism}");
        ["-b", &sasl, "-X", SASL, "-X", &mechanism, "-X", "sasl.username=admin"].map(str::to_owned)
    };
    let (scram_256, scram_512) = (scram(256), scram(512));
    let password = [("STRANDLINE_X_SASL_PASSWORD", ADMIN.1)];
    let named = [("STRANDLINE_BOOTSTRAP_SERVER", sasl.as_str())];
    let wrong = [("STRANDLINE_X_SASL_PASSWORD", "wrong"), ("STRANDLINE_BOOTSTRAP_SERVER", "127.0.0.1:1")];
    let right = format!("sasl.password={}", ADMIN.1);
    let ways: [Way<'_>; 11] = [
        ("a PEM file as Java names it", [&tls[..], &["ssl.truststore.type=PEM", "-X", &ca]].concat(), &[]),
        ("a PEM file as librdkafka names it", [&tls[..], &[&ca_location]].concat(), &[]),
        ("inline PEM", [&tls[..], &[&ca_pem]].concat(), &[]),
        ("inline PEM on one line", [&tls[..], &["ssl.truststore.type=PEM", "-X", &folded]].concat(), &[]),
        ("inline PEM in a file", vec!["-b", &ssl, "-F", &inline], &[]),
        ("SCRAM-SHA-256, password in the environment", words(&scram_256), &password),
        ("SCRAM-SHA-512, password in the environment", words(&scram_512), &password),
        ("Java's file with sasl.jaas.config", vec!["-b", &sasl, "-F", &java], &[]),
        ("librdkafka's file", vec!["-b", &sasl, "-F", &librdkafka], &[]),
        ("a bootstrap server in the environment", vec!["-F", &librdkafka], &named),
        (
            "-b and -X before the environment before the file",
            vec!["-b", &sasl, "-F", &librdkafka, "-X", &right],
            &wrong,
        ),
    ];
    for (way, arguments, environment) in ways {
        assert_eq!(segments(&arguments, environment), expected, "{way}");
    }
    for command in [vec!["audit"], vec!["status"], vec!["events"], vec!["explain", "orders:0"]] {
        for way in [vec!["-b", &sasl, "-F", &java], [&tls[..], &[&ca_location]].concat()] {
            let run = strandline([&command[..], &way, &["-vv"]].concat());
            assert_eq!(run.code, 0, "{command:?} {way:?}: {}", run.stderr);
            assert_no_secret(&run);
        }
    }
}

/// The ways that do not lead in: exit code and words, each at once.
pub(crate) fn every_other_way_is_told_apart(kafka: &ApacheKafka) {
    let files = Files::write(kafka);
    let (plain, sasl, ssl) = (kafka.bootstrap(), kafka.sasl(), kafka.ssl());
    // The certificate names `localhost` and 127.0.0.1.
    let other_name = forward_from("127.0.0.2:0", &ssl);
    let ca = format!("ssl.ca.location={}", files.path("ca"));
    let other_ca = format!("ssl.ca.location={}", files.path("other-ca"));
    let tls = "security.protocol=SSL";
    // Bound, so that nobody else gets it, and not listened on.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = unused.local_addr().unwrap().to_string();
    let credentials = |mechanism: &str, user: &str, password: &str| {
        let mechanism = format!("sasl.mechanism={mechanism}");
        let (user, password) = (format!("sasl.username={user}"), format!("sasl.password={password}"));
        let all = ["-X", SASL, "-X", &mechanism, "-X", &user, "-X", &password];
        all.map(str::to_owned).to_vec()
    };
    let with = |address: &str, mechanism, user, password| {
        let mut arguments = vec!["-b".to_owned(), address.to_owned()];
        arguments.extend(credentials(mechanism, user, password));
        arguments
    };
    let x = |address: &str, settings: &[&str]| {
        let mut arguments = vec!["-b".to_owned(), address.to_owned()];
        settings.iter().for_each(|setting| arguments.extend(["-X".to_owned(), (*setting).to_owned()]));
        arguments
    };
    let cases = [
        ("wrong password, PLAIN", with(&sasl, "PLAIN", READER.0, "wrong-secret")),
        ("wrong password, SCRAM-SHA-256", with(&sasl, "SCRAM-SHA-256", ADMIN.0, "wrong-secret")),
        ("wrong password, SCRAM-SHA-512", with(&sasl, "SCRAM-SHA-512", ADMIN.0, "wrong-secret")),
        ("unknown user, PLAIN", with(&sasl, "PLAIN", "nobody", "some-secret")),
        ("unknown user, SCRAM", with(&sasl, "SCRAM-SHA-512", "nobody", "some-secret")),
        ("no credentials for a SASL listener", x(&sasl, &[])),
        ("credentials for a listener without SASL", with(&plain, "PLAIN", READER.0, READER.1)),
        ("TLS against plaintext", x(&plain, &[tls, &ca])),
        ("TLS against SASL_PLAINTEXT", x(&sasl, &[tls, &ca])),
        ("plaintext against TLS", x(&ssl, &[])),
        ("SASL_PLAINTEXT against TLS", with(&ssl, "PLAIN", READER.0, READER.1)),
        ("an authority that signed nothing here", x(&ssl, &[tls, &other_ca])),
        ("the system's authorities", x(&ssl, &[tls])),
        ("a host name that the certificate lacks", x(&other_name, &[tls, &ca])),
        ("nobody listens", x(&nobody, &[])),
    ];
    let mut told = String::new();
    for (what, arguments) in cases {
        let run = strandline([&["audit", "-vv"][..], &words(&arguments)].concat());
        assert!(run.took < AT_ONCE, "{what} took {:?}", run.took);
        assert_eq!(run.stdout, "", "{what}");
        assert_no_secret(&run);
        told.push_str(&format!("{what}: {}\n", run.code));
        for line in
            run.stderr.lines().filter(|line| line.starts_with("error: ") || line.starts_with("hint: "))
        {
            let line = line
                .split_once(": cannot connect to the bootstrap address ")
                .map_or(line, |(_, rest)| rest.split_once(": ").map_or(rest, |(_, cause)| cause));
            told.push_str(&format!("  {line}\n"));
        }
    }
    for (name, address) in
        [("NOBODY", &nobody), ("PLAIN", &plain), ("SASL", &sasl), ("SSL", &ssl), ("FORWARD", &other_name)]
    {
        told = told.replace(address.as_str(), name);
    }
    insta::assert_snapshot!(told, @r#"
    wrong password, PLAIN: 4
      SASL refused the PLAIN credentials: Authentication failed: Invalid username or password
    wrong password, SCRAM-SHA-256: 4
      SASL refused the SCRAM-SHA-256 credentials: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256
    wrong password, SCRAM-SHA-512: 4
      SASL refused the SCRAM-SHA-512 credentials: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512
    unknown user, PLAIN: 4
      SASL refused the PLAIN credentials: Authentication failed: Invalid username or password
    unknown user, SCRAM: 4
      SASL refused the SCRAM-SHA-512 credentials: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512
    no credentials for a SASL listener: 4
      error: no broker of SASL gave metadata: SASL gave no answer: Metadata was sent and has no answer: the broker closed the connection at the first request; its listener may want SASL
      hint: for a SASL listener: -X security.protocol=SASL_PLAINTEXT (or SASL_SSL), sasl.mechanism, sasl.username and sasl.password; or use another port
    credentials for a listener without SASL: 4
      PLAIN does not want SASL authentication
      hint: leave SASL out: -X security.protocol=PLAINTEXT (or SSL), or use the port of the SASL listener
    TLS against plaintext: 5
      PLAIN does not speak TLS: it hung up at our TLS handshake
      hint: the listener speaks plaintext: -X security.protocol=PLAINTEXT (or SASL_PLAINTEXT), or another port
    TLS against SASL_PLAINTEXT: 5
      SASL does not speak TLS: it hung up at our TLS handshake
      hint: the listener speaks plaintext: -X security.protocol=PLAINTEXT (or SASL_PLAINTEXT), or another port
    plaintext against TLS: 5
      SSL wants TLS: it answered our plaintext request with TLS
      hint: the listener speaks TLS: -X security.protocol=SSL (or SASL_SSL), or another port
    SASL_PLAINTEXT against TLS: 5
      SSL wants TLS: it answered our plaintext request with TLS
      hint: the listener speaks TLS: -X security.protocol=SSL (or SASL_SSL), or another port
    an authority that signed nothing here: 5
      TLS with SSL failed: invalid peer certificate: BadSignature
      hint: ssl.truststore.location (or ssl.ca.location) names the PEM file of the authority that signed the broker's certificate; the certificate has to name the host that is dialled
    the system's authorities: 5
      TLS with SSL failed: invalid peer certificate: UnknownIssuer
      hint: ssl.truststore.location (or ssl.ca.location) names the PEM file of the authority that signed the broker's certificate; the certificate has to name the host that is dialled
    a host name that the certificate lacks: 5
      TLS with FORWARD failed: invalid peer certificate: certificate not valid for name "127.0.0.2"; certificate is only valid for DnsName("localhost") or IpAddress(127.0.0.1)
      hint: ssl.truststore.location (or ssl.ca.location) names the PEM file of the authority that signed the broker's certificate; the certificate has to name the host that is dialled
    nobody listens: 5
      cannot reach NOBODY: NOBODY: Connection refused (os error 111)
      hint: is the broker running, and is this its client port?
    "#);
}

/// What a principal sees without any right, and with READ and DESCRIBE on the metadata topic alone.
pub(crate) fn the_least_rights_show_all_events_and_name_what_is_missing(kafka: &ApacheKafka) {
    let files = Files::write(kafka);
    let sasl = kafka.sasl();
    let file = files.path("reader");
    let reader = ["-b", &sasl, "-F", &file];
    for command in ["audit", "status", "events", "segments"] {
        let run = strandline([&[command][..], &reader].concat());
        assert_eq!((run.code, run.stdout.as_str()), (4, ""), "{command}: {}", run.stderr);
        assert!(run.stderr.contains("DESCRIBE") && run.stderr.contains(METADATA_TOPIC), "{}", run.stderr);
    }
    let segments_run = || strandline([&["segments"][..], &reader].concat());
    grant(kafka, &["Describe"], || {
        let run = segments_run();
        run.code == 4 && run.stderr.contains("READ on")
    });
    grant(kafka, &["Read"], || segments_run().code == 0);

    let expected = segments(&["-b", &kafka.bootstrap()], &[]);
    assert_eq!(segments(&reader, &[]), expected);
    let audit = strandline([&["audit", "-o", "json"][..], &reader].concat());
    assert_least_rights(&Told::of(&audit).missing_rights);
    assert_eq!(audit.envelope("strandline.audit/v1").verdict(), (0, Vec::new()));
    let explain = strandline([&["explain", "orders:0@5"][..], &reader].concat());
    assert!(explain.code == 0 && explain.stdout.contains("of the tier serves it"), "{}", explain.stdout);
}

/// What is not checked with READ and DESCRIBE on the metadata topic alone, and for want of which right.
fn assert_least_rights(missing: &[String]) {
    insta::allow_duplicates! { insta::assert_snapshot!(missing.join("\n"), @"
    meta.cleanup-policy: DESCRIBE_CONFIGS on the metadata topic
    meta.min-isr: DESCRIBE_CONFIGS on the metadata topic
    meta.retention: DESCRIBE_CONFIGS on the metadata topic
    meta.silent-broker: DESCRIBE and DESCRIBE_CONFIGS on the topic
    meta.tiered: DESCRIBE_CONFIGS on the metadata topic
    meta.unclean-election: DESCRIBE_CONFIGS on the metadata topic
    part.copy-lag: DESCRIBE and DESCRIBE_CONFIGS on the topic
    part.diverged-tail: DESCRIBE on the topic
    part.gap-to-local: DESCRIBE on the topic
    part.no-upload: DESCRIBE and DESCRIBE_CONFIGS on the topic
    part.replica-not-purging: DESCRIBE and DESCRIBE_CONFIGS on the topic
    part.retention-blocked: DESCRIBE and DESCRIBE_CONFIGS on the topic
    part.retention-blocked: DESCRIBE on the topic
    part.retention-overdue: DESCRIBE and DESCRIBE_CONFIGS on the topic
    part.retention-overdue: DESCRIBE on the topic
    part.start-mismatch: DESCRIBE on the topic
    seg.not-in-lineage: DESCRIBE on the topic
    topic.disabled-with-data: DESCRIBE and DESCRIBE_CONFIGS on the topic
    topic.id-unknown: DESCRIBE on the topic
    ") };
}

/// The commands that read, and after each the format that has what it says about itself. One that is added to the
/// command is added here.
const READ_COMMANDS: [(&str, &[&str]); 5] = [
    ("json", &["audit"]),
    ("json", &["status"]),
    ("json", &["segments"]),
    ("jsonl", &["events"]),
    ("json", &["explain", "orders:0@5"]),
];

/// Three brokers behind SASL_SSL with SCRAM-SHA-512: as the administrator every command says what it says without any
/// security; with READ and DESCRIBE on the metadata topic alone it does what it can, and names what it could not check
/// and which right is missing; without any right it says which are missing.
pub(crate) fn every_command_works_over_sasl_ssl_as_far_as_its_rights_go(kafka: &ApacheKafka) {
    let files = Files::write(kafka);
    let (address, admin, reader) = (kafka.sasl_ssl(), files.path("admin-tls"), files.path("reader-tls"));
    let (admin, reader) = (["-b", &address, "-F", &admin], ["-b", &address, "-F", &reader]);
    for (_, command) in READ_COMMANDS {
        let run = strandline([command, &reader].concat());
        assert_eq!((run.code, run.stdout.as_str()), (4, ""), "{command:?}: {}", run.stderr);
        assert!(run.stderr.contains("DESCRIBE") && run.stderr.contains(METADATA_TOPIC), "{}", run.stderr);
        assert_no_secret(&run);
    }
    grant(kafka, &["Describe", "Read"], || strandline([&["segments"][..], &reader].concat()).code == 0);

    let bootstrap = kafka.bootstrap();
    for (format, command) in READ_COMMANDS {
        let [plain, admin, reader] = [&["-b", &bootstrap][..], &admin, &reader].map(|way| {
            let run = strandline([command, &["-o", format], way].concat());
            assert_eq!(run.code, 0, "{command:?} {way:?}: {}{}", run.stdout, run.stderr);
            assert_no_secret(&run);
            Told::of(&run)
        });
        assert!(plain.items > 0, "{command:?} says nothing");
        assert_eq!(admin, plain, "{command:?}");
        assert_eq!(reader.events, plain.events, "{command:?}");
        // `segments` and `events` judge nothing, and want nothing but the metadata topic.
        let judges = !["segments", "events"].contains(&command[0]);
        assert_eq!(reader.not_checked > 0, judges, "{command:?}");
        if judges {
            assert_least_rights(&reader.missing_rights);
        }
    }
}

/// `doctor` as the administrator, as a reader who has READ and DESCRIBE on the metadata topic, and as nobody.
pub(crate) fn doctor_gives_each_step_and_each_right_its_verdict(kafka: &ApacheKafka) {
    let files = Files::write(kafka);
    let (address, admin, reader) = (kafka.sasl_ssl(), files.path("admin-tls"), files.path("reader-tls"));
    let doctor = |file: &str, more: &[&str]| {
        let run = strandline([&["doctor", "-o", "json", "-b", &address, "-F", file][..], more].concat());
        assert_no_secret(&run);
        assert_eq!(run.stderr, "");
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(document["schema"], "strandline.doctor/v1");
        let line = |check: &Value| {
            let field = |name: &str| check[name].as_str().unwrap();
            format!("{} {}: {}\n", field("section"), field("check"), field("verdict"))
        };
        let items = document["items"].as_array().unwrap().iter();
        let items = items.filter(|check| check["section"] != "settings");
        format!("exit {}\n{}", run.code, items.map(line).collect::<String>())
    };
    let told = doctor(&admin, &[]);
    insta::assert_snapshot!(told, @"
    exit 0
    connection name: ok
    connection TCP: ok
    connection TLS: ok
    connection versions: ok
    connection SASL: ok
    cluster cluster: ok
    cluster broker 1: ok
    cluster broker 2: ok
    cluster broker 3: ok
    rights DESCRIBE on __remote_log_metadata: ok
    rights READ on __remote_log_metadata: ok
    rights DESCRIBE_CONFIGS on __remote_log_metadata: ok
    rights DESCRIBE on tiered topics: ok
    rights DESCRIBE_CONFIGS on tiered topics: ok
    rights DESCRIBE on the cluster: ok
    rights READ on tiered topics: ok
    rights DESCRIBE on consumer groups: skipped
    rights DESCRIBE on transactional ids: skipped
    metadata_topic topic: ok
    metadata_topic leaders: ok
    metadata_topic offsets: ok
    metadata_topic replicas: ok
    metadata_topic in sync: ok
    metadata_topic min ISR: ok
    metadata_topic retention: ok
    metadata_topic cleanup: ok
    metadata_topic election: ok
    metadata_topic tiering: ok
    ");
    let screen = strandline(["doctor", "-b", &address, "-F", &admin]).stdout;
    let release = screen.lines().find(|line| line.contains(" versions ")).unwrap();
    assert!(release.ends_with("Kafka 4.3"), "{screen}");
    let told = doctor(&reader, &[]);
    let warnings: Vec<&str> = told.lines().filter(|line| !line.ends_with(": ok")).collect();
    insta::assert_snapshot!(warnings.join("\n"), @"
    exit 0
    rights DESCRIBE_CONFIGS on __remote_log_metadata: warning
    rights DESCRIBE on tiered topics: warning
    rights DESCRIBE_CONFIGS on tiered topics: skipped
    rights DESCRIBE on the cluster: warning
    rights READ on tiered topics: skipped
    rights DESCRIBE on consumer groups: skipped
    rights DESCRIBE on transactional ids: skipped
    metadata_topic min ISR: skipped
    metadata_topic retention: skipped
    metadata_topic cleanup: skipped
    metadata_topic election: skipped
    ");
    let told = doctor(
        &admin,
        &[
            "-X",
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"admin\" password=\"wrong-secret\";",
        ],
    );
    let first = told.lines().filter(|line| !line.ends_with(": ok")).take(2).collect::<Vec<_>>();
    assert_eq!(first, ["exit 4", "connection SASL: failed"]);
    let told = doctor(&admin, &["-X", &format!("ssl.ca.location={}", files.path("other-ca"))]);
    let first = told.lines().filter(|line| !line.ends_with(": ok")).take(2).collect::<Vec<_>>();
    assert_eq!(first, ["exit 5", "connection TLS: failed"]);
}

/// What a run says that is the same from one moment to the next.
#[derive(Debug, PartialEq)]
struct Told {
    items: usize,
    /// What is read from the metadata topic alone: all of `segments` and of `events`.
    events: Vec<String>,
    not_checked: usize,
    missing_rights: Vec<String>,
}

impl Told {
    fn of(run: &Run) -> Self {
        let documents: Vec<Value> =
            serde_json::Deserializer::from_str(&run.stdout).into_iter().map(Result::unwrap).collect();
        let (mut items, mut events, mut reasons) = (0, Vec::new(), Vec::new());
        for document in &documents {
            for item in document["items"].as_array().map_or(std::slice::from_ref(document), Vec::as_slice) {
                items += 1;
                let id = [&item["segment_id"], &item["state"], &item["metadata_offset"]];
                events.extend((!id[0].is_null()).then(|| format!("{id:?}")));
            }
            reasons.extend(document["not_checked"].as_array().into_iter().flatten());
        }
        let mut missing_rights: Vec<String> = reasons
            .iter()
            .filter_map(|entry| {
                let right = entry["reason"].as_str().unwrap().split_once("missing right: ")?.1;
                Some(format!("{}: {right}", entry["code"].as_str().unwrap()))
            })
            .collect();
        missing_rights.sort();
        missing_rights.dedup();
        Self { items, events, not_checked: reasons.len(), missing_rights }
    }
}

/// Gives the reader rights on the metadata topic and waits until the brokers know it.
fn grant(kafka: &ApacheKafka, operations: &[&str], known: impl Fn() -> bool) {
    let principal = format!("User:{}", READER.0);
    let mut arguments = vec!["--add", "--allow-principal", &principal, "--topic", METADATA_TOPIC];
    operations.iter().for_each(|operation| arguments.extend(["--operation", operation]));
    kafka.admin_tool("org.apache.kafka.tools.AclCommand", &arguments).unwrap();
    wait_for("the rights to reach the brokers", WITHIN, || Ok(known().then_some(()))).unwrap();
}

/// Kafka's own log of requests tells what a read sends.
pub(crate) fn only_reading_requests_reach_the_broker(kafka: &ApacheKafka) {
    let loggers = ["--alter", "--entity-type", "broker-loggers", "--entity-name", "1", "--add-config"];
    let loggers = [&loggers[..], &["kafka.request.logger=DEBUG"]].concat();
    kafka.admin_tool("kafka.admin.ConfigCommand", &loggers).unwrap();
    let bootstrap = kafka.bootstrap();
    let live = ["-b", &bootstrap, "-X", "client.id=on-the-wire"];
    for (command, code) in [
        (vec!["audit"], 0),
        (vec!["status"], 0),
        (vec!["events"], 0),
        (vec!["segments"], 0),
        (vec!["explain", "orders:0"], 0),
        (vec!["explain", "ordres:0@5"], 2),
        (vec!["audit", "--metadata-topic", "no-such-topic"], 7),
    ] {
        let run = strandline([&command[..], &live].concat());
        assert_eq!(run.code, code, "{command:?}: {}", run.stderr);
    }
    let log = kafka.directory().join("server1.log");
    let mut requests: Vec<String> = Vec::new();
    wait_for("the requests to be logged", WITHIN, || {
        requests = fs::read_to_string(&log)?
            .lines()
            .filter(|line| line.contains("\"clientId\":\"on-the-wire\""))
            .map(str::to_owned)
            .collect();
        Ok(requests.iter().any(|line| line.contains("no-such-topic")).then_some(()))
    })
    .unwrap();
    let quieter = ["--alter", "--entity-type", "broker-loggers", "--entity-name", "1", "--delete-config"];
    let quieter = [&quieter[..], &["kafka.request.logger"]].concat();
    kafka.admin_tool("kafka.admin.ConfigCommand", &quieter).unwrap();

    let name = |line: &String| {
        let rest = line.split_once("\"requestApiKeyName\":\"").unwrap().1;
        rest.split_once('"').unwrap().0.to_owned()
    };
    let mut names: Vec<String> = requests.iter().map(name).collect();
    names.sort();
    names.dedup();
    insta::assert_snapshot!(names.join("\n"), @"
    API_VERSIONS
    DESCRIBE_CONFIGS
    DESCRIBE_LOG_DIRS
    FETCH
    LIST_GROUPS
    LIST_OFFSETS
    METADATA
    OFFSET_FOR_LEADER_EPOCH
    ");
    let creating =
        |line: &&String| name(line) == "METADATA" && !line.contains("\"allowAutoTopicCreation\":false");
    assert_eq!(requests.iter().find(creating), None);
    let topics = kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &["--list"]).unwrap();
    let mut topics: Vec<&str> = topics.split_whitespace().collect();
    topics.sort_unstable();
    assert_eq!(topics, [METADATA_TOPIC, TOPIC], "nothing was created");
}

/// The ids of all segments, in order.
fn segments(arguments: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let run = strandline_with([&["segments", "-o", "jsonl"][..], arguments].concat(), environment);
    assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
    assert_no_secret(&run);
    let id = |line: &str| Some(line.split_once("\"segment_id\":\"")?.1.split_once('"')?.0.to_owned());
    run.stdout.lines().filter_map(id).collect()
}

fn assert_no_secret(run: &Run) {
    for secret in [ADMIN.1, READER.1, "wrong-secret", "some-secret"] {
        assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{}", run.stderr);
    }
}

fn other_authority() -> String {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.self_signed(&key).unwrap().pem()
}

/// Passes one connection on, both ways, and gives the address that it is taken at.
fn forward_from(here: &str, there: &str) -> String {
    let listener = TcpListener::bind(here).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let there = there.to_owned();
    thread::spawn(move || -> io::Result<()> {
        let (from, _) = listener.accept()?;
        let to = TcpStream::connect(there)?;
        let (mut back_from, mut back_to) = (to.try_clone()?, from.try_clone()?);
        thread::spawn(move || io::copy(&mut back_from, &mut back_to));
        io::copy(&mut &from, &mut &to)?;
        to.shutdown(Shutdown::Both)
    });
    address
}

/// Settings in files.
struct Files(PathBuf);

impl Files {
    fn write(kafka: &ApacheKafka) -> Self {
        let dir = kafka.directory().join("settings");
        fs::create_dir_all(&dir).unwrap();
        let jaas = |module: &str, (user, password): (&str, &str)| {
            let package = "org.apache.kafka.common.security";
            format!("{package}.{module} required \\\n  username=\"{user}\" password=\"{password}\";")
        };
        let inline_pem = kafka.ca_pem().trim_end().replace('\n', "\\n\\\n");
        let tls = |user| {
            let ca = dir.join("ca").display().to_string();
            let jaas = jaas("scram.ScramLoginModule", user);
            format!(
                "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas}\n\
                 ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
            )
        };
        let java_sasl = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism";
        for (name, text) in [
            ("ca", kafka.ca_pem().to_owned()),
            ("other-ca", other_authority()),
            (
                "java",
                format!(
                    "{java_sasl}: SCRAM-SHA-512\nsasl.jaas.config={}\n",
                    jaas("scram.ScramLoginModule", ADMIN)
                ),
            ),
            (
                "reader",
                format!("{java_sasl} = PLAIN\nsasl.jaas.config={}\n", jaas("plain.PlainLoginModule", READER)),
            ),
            ("admin-tls", tls(ADMIN)),
            ("reader-tls", tls(READER)),
            (
                "librdkafka",
                format!(
                    "security.protocol=sasl_plaintext\nsasl.mechanisms=SCRAM-SHA-256\nsasl.username={}\nsasl.password={}\n",
                    ADMIN.0, ADMIN.1
                ),
            ),
            (
                "inline",
                format!(
                    "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates={inline_pem}\n"
                ),
            ),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

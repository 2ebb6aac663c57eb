//! What looks clean and may not be: another topic than the metadata topic, a clock that is wrong, events whose place cannot be
//! judged, secrets that travel unencrypted.

use serde_json::Value;
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, Mechanism, Sasl};
use strandline_tier::{MetadataPartitioner, TopicId};

use crate::{Run, events, run, run_with};

const METADATA_TOPIC: &str = "__remote_log_metadata";
const PASSWORD: &str = "c0rrect-horse";

/// A cluster on a runtime of its own: the command is another process.
struct Live {
    kafka: EmbeddedCluster,
    // Ends after the cluster, which needs it.
    _runtime: tokio::runtime::Runtime,
}

fn live(sasl: Option<Sasl>) -> Live {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kafka = {
        let _within = runtime.enter();
        EmbeddedCluster::start(ClusterOptions { sasl, ..ClusterOptions::default() }).unwrap()
    };
    Live { kafka, _runtime: runtime }
}

impl Live {
    /// A metadata topic with nothing wrong about it.
    fn create_metadata_topic(&self, partitions: usize) {
        self.kafka.create_topic_with(METADATA_TOPIC, partitions, 1, &[("retention.ms", "-1")]);
    }

    fn run(&self, args: &[&str]) -> Run {
        run(&[args, &["-b", &self.kafka.bootstrap()]].concat())
    }
}

#[test]
fn records_without_a_single_event_are_no_clean_tier() {
    let live = live(None);
    live.create_metadata_topic(2);
    live.kafka.create_topic("orders", 2);
    live.kafka.append("orders", 0, &[b"a cup", b"a saucer"]);
    live.kafka.append("orders", 1, &[b"a spoon"]);
    let wrong = ["--metadata-topic", "orders"];
    let doubt =
        "none of the 3 records that were read is an event of tiered storage: is orders the metadata topic?";
    for command in ["status", "audit"] {
        let seen = live.run(&[&[command, "--fail-on", "never"][..], &wrong].concat());
        assert_eq!(seen.code, 0, "{}", seen.stderr);
        let verdict = seen.stdout.lines().find(|line| line.starts_with("Doubtful: ")).unwrap_or_default();
        assert!(verdict.contains(doubt), "{command}: {}", seen.stdout);
        assert_eq!(seen.stderr.matches(doubt).count(), 1, "{command}: {}", seen.stderr);
        let json = live.run(&[&[command, "-o", "json", "--fail-on", "never"][..], &wrong].concat());
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert!(json["warnings"].to_string().contains(doubt), "{command}: {json}");
    }
    let status = live.run(&[&["status"][..], &wrong].concat());
    assert!(status.stdout.contains("Tier    not known: no event was read"), "{}", status.stdout);
    let named = live.run(&[&["status", "payments"][..], &wrong].concat());
    assert!(named.code == 2 && named.stderr.contains("hint: none of the 3 records"), "{}", named.stderr);

    let doctor = live.run(&[&["doctor"][..], &wrong].concat());
    assert_eq!(doctor.code, 7, "{}", doctor.stdout);
    assert!(doctor.stdout.contains("none of the 3 records"), "{}", doctor.stdout);

    // An empty topic is one to which nothing was ever copied.
    let empty = live.run(&["status"]);
    assert_eq!((empty.code, empty.stderr.as_str()), (0, ""));
    assert!(empty.stdout.contains("Tier    nothing: no segment was ever copied"), "{}", empty.stdout);
    assert!(empty.stdout.contains("\nClean: "), "{}", empty.stdout);
}

#[test]
fn an_event_file_without_an_event_is_doubted_too() {
    let odd = "{\"kind\":\"undecodable\",\"hex\":\"010900\",\"error\":\"unknown api key 9\"}\n";
    let seen = run_with(&["status", "--events", "-"], odd, &[]);
    assert!(seen.stdout.contains("Doubtful: the one record that was read is no event"), "{}", seen.stdout);
    let with_an_event = format!("{odd}{}", events());
    let seen = run_with(&["status", "--events", "-"], &with_an_event, &[]);
    assert!(!seen.stdout.contains("Doubtful") && seen.stderr.is_empty(), "{}{}", seen.stdout, seen.stderr);
}

#[test]
fn a_clock_that_is_behind_the_records_is_told() {
    let at = |now: &str| {
        let output = crate::command()
            .args(["status", "--log-dir", "tests/data/broker1", &format!("--now={now}")])
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, screen, told) = at("1970-01-01T00:00:00Z");
    assert_eq!(code, Some(0));
    assert!(told.contains("after now: what depends on the time is not to be relied on"), "{told}");
    assert!(screen.contains("Copied  last in 20786 d"), "{screen}");
    // The ends of what RFC 3339 can say, and beyond.
    for now in ["0000-01-01T00:00:00Z", "9999-12-30T22:00:00Z", "-009999-01-02T01:59:59Z"] {
        assert_eq!(at(now).0, Some(0), "{now}");
    }
    for now in ["+275760-09-13T00:00:00Z", "9999-13-01T00:00:00Z", "", "now", "2h"] {
        let (code, _, told) = at(now);
        assert_eq!(code, Some(2), "{now}: {told}");
    }
}

#[test]
fn printed_events_say_how_many_partitions_the_topic_has_so_that_strays_are_known_of_them() {
    let live = live(None);
    live.create_metadata_topic(5);
    let topic_id: TopicId = "vaZwr6blSEWMAbm7z-tW-w".parse().unwrap();
    let home = MetadataPartitioner::new(5).unwrap().metadata_partition(topic_id, 0);
    let file = events();
    for (line, at) in file.lines().zip([home, (home + 1) % 5]) {
        let (_, value) = strandline_tier::json::parse_event(line.as_bytes()).unwrap();
        let strandline_tier::RecordValue::Event(event) = value else { panic!("{line}") };
        let mut value = Vec::new();
        strandline_tier::codec::encode(&event, &mut value).unwrap();
        live.kafka.append(METADATA_TOPIC, at, &[&value]);
    }
    let printed = live.run(&["events", "-o", "jsonl"]).stdout;
    let header: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!(header["metadata_partitions"], 5, "{header}");
    let json: Value = serde_json::from_str(&live.run(&["events", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["metadata_partitions"], 5);

    let codes = |file: &str| {
        let audit = run_with(&["audit", "--events", "-", "-o", "json"], file, &[]);
        let audit: Value = serde_json::from_str(&audit.stdout).unwrap();
        let list =
            |name: &str| audit[name].as_array().unwrap().iter().any(|row| row["code"] == "event.misplaced");
        (list("items"), list("not_checked"))
    };
    let unknown =
        "not known: whether these events lie where brokers look for them: stdin does not say how many";
    let explained = |file: &str| {
        let explain = run_with(&["explain", "orders:0", "--events", "-"], file, &[]);
        assert_eq!(explain.code, 0, "{}", explain.stderr);
        let one_line = explain.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        (explain.stdout.contains("event.misplaced"), one_line.contains(unknown))
    };
    let kept = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kept.path(), &printed).unwrap();
    let again = run(&["events", "--events", kept.path().to_str().unwrap(), "-o", "jsonl"]).stdout;
    for file in [&printed, &again] {
        assert_eq!((codes(file), explained(file)), ((true, false), (true, false)), "{file}");
    }
    // Without the count, and where two runs say different ones, it is not known.
    let without: String = printed.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let two =
        format!("{printed}{}", printed.replace("\"metadata_partitions\":5", "\"metadata_partitions\":6"));
    for file in [&without, &two] {
        assert_eq!((codes(file), explained(file)), ((false, true), (false, true)), "{file}");
    }
    // What looked at the topic knows better than a header.
    let fact = "{\"kind\":\"fact\",\"fact\":\"metadata_topic\",\"partitions\":5}\n";
    assert_eq!(codes(&format!("{two}{fact}")), (true, false));
}

#[test]
fn a_password_that_travels_unencrypted_is_warned_of_once_and_never_told() {
    let users = vec![("ada".to_owned(), PASSWORD.to_owned())];
    let mechanisms = vec![Mechanism::Plain, Mechanism::ScramSha512];
    let live = live(Some(Sasl { users, mechanisms, session_lifetime: None }));
    live.create_metadata_topic(2);
    let password = format!("sasl.password={PASSWORD}");
    let warned = |command: &[&str], mechanism: &str| {
        let mechanism = format!("sasl.mechanism={mechanism}");
        let ada = ["security.protocol=SASL_PLAINTEXT", &mechanism, "sasl.username=ada", &password];
        let settings = ada.iter().flat_map(|setting| ["-X", setting]);
        let args: Vec<&str> = command.iter().copied().chain(settings).collect();
        let seen = live.run(&args);
        assert!(!format!("{}{}", seen.stdout, seen.stderr).contains(PASSWORD));
        assert_eq!(seen.code, 0, "{}{}", seen.stdout, seen.stderr);
        let warning = "has no TLS: the password (PLAIN) goes to the brokers unencrypted";
        (seen.stderr.matches(warning).count(), seen.stdout.matches(warning).count())
    };
    for command in ["status", "audit", "segments", "events"] {
        assert_eq!(warned(&[command], "PLAIN"), (1, 0), "{command}");
        assert_eq!(warned(&[command, "-o", "json"], "PLAIN"), (1, 1), "{command}");
        assert_eq!(warned(&[command, "-o", "json"], "SCRAM-SHA-512"), (0, 0), "{command}");
    }
    assert_eq!(warned(&["doctor", "-o", "json"], "PLAIN"), (0, 1));
    assert_eq!(warned(&["doctor", "-o", "json"], "SCRAM-SHA-512"), (0, 0));
}

//! `publish` against a cluster in this process: what is written, what is held back, and what is said when it fails halfway.

use std::time::Duration;

use serde_json::Value;
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Held, Rule};
use strandline_tier::json::{EventPosition, write_event};
use strandline_tier::{
    EpochEntry, MetadataPartitioner, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentUpdate,
    RawTopicIdPartition, RecordValue, TopicId, Uuid, codec,
};

use crate::{Run, run, run_with};

const TOPIC: &str = "__remote_log_metadata";
const PARTITIONS: i32 = 4;
/// A little before the time that the tests call now.
const THEN_MS: i64 = 1_795_979_974_000;
/// What changes something.
const WRITING: [ApiKey; 3] = [ApiKey::Produce, ApiKey::InitProducerId, ApiKey::CreateTopics];

struct Lab {
    kafka: EmbeddedCluster,
    orders: TopicId,
    files: tempfile::TempDir,
    // Ends after the cluster, which needs it.
    runtime: tokio::runtime::Runtime,
}

impl Lab {
    fn start() -> Self {
        let (kafka, runtime) = crate::three_brokers();
        let configs = [("retention.ms", "-1"), ("min.insync.replicas", "2"), ("cleanup.policy", "delete")];
        kafka.create_topic_with(TOPIC, PARTITIONS as usize, 3, &configs);
        let orders = kafka.create_topic_with("orders", 2, 3, &[("remote.storage.enable", "true")]);
        Self { kafka, orders, files: tempfile::tempdir().unwrap(), runtime }
    }

    fn of(&self, partition: i32) -> RawTopicIdPartition<'static> {
        RawTopicIdPartition { topic: "orders".into(), topic_id: self.orders, partition }
    }

    fn home(&self, partition: i32) -> i32 {
        MetadataPartitioner::new(PARTITIONS).unwrap().metadata_partition(self.orders, partition)
    }

    /// The copy of a segment of a partition begins.
    fn begun(&self, id: u8, partition: i32) -> RawEvent<'static> {
        RawEvent::SegmentMetadata(RawSegmentMetadata {
            topic_id_partition: self.of(partition),
            segment_id: Uuid([id; 16]),
            start_offset: 0,
            end_offset: 9,
            broker_id: 1,
            max_timestamp_ms: THEN_MS,
            event_timestamp_ms: THEN_MS,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
            segment_size_in_bytes: 100,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: true,
        })
    }

    /// A segment of a partition goes to another state.
    fn moved(&self, id: u8, partition: i32, state_id: i8) -> RawEvent<'static> {
        RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
            topic_id_partition: self.of(partition),
            segment_id: Uuid([id; 16]),
            broker_id: 1,
            event_timestamp_ms: THEN_MS + i64::from(state_id),
            custom_metadata: None,
            state_id,
        })
    }

    fn log(&self, event: &RawEvent<'_>) {
        let mut value = Vec::new();
        codec::encode(event, &mut value).unwrap();
        let partition = event.topic_id_partition().unwrap().partition;
        self.kafka.append(TOPIC, self.home(partition), &[&value]);
    }

    fn file(&self, events: &[RawEvent<'static>]) -> String {
        let mut text = Vec::new();
        for event in events {
            write_event(&mut text, &EventPosition::default(), &RecordValue::Event(event.clone()));
            text.push(b'\n');
        }
        self.file_of(&String::from_utf8(text).unwrap())
    }

    fn file_of(&self, text: &str) -> String {
        let path = self.files.path().join("events.jsonl");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn publish(&self, file: &str, more: &[&str]) -> Run {
        run(&[&["publish", file, "-b", &self.kafka.bootstrap()][..], more].concat())
    }

    /// Exit code and, of each event, what became of it, where, and why.
    fn fates(&self, file: &str, more: &[&str]) -> (i32, Vec<String>) {
        let run = self.publish(file, &[&["-o", "json"][..], more].concat());
        let envelope: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
        assert_eq!(envelope["schema"], "strandline.publish/v1");
        let fate = |row: &Value| {
            let place = format!("{}:{}", row["metadata_partition"], row["offset"]);
            let text = format!(
                "{} {place} {}",
                row["outcome"].as_str().unwrap(),
                row["reason"].as_str().unwrap_or("-")
            );
            // What a wait came to is a matter of moments.
            text.split(" within ").next().unwrap().to_owned()
        };
        (run.code, envelope["items"].as_array().unwrap().iter().map(fate).collect())
    }

    /// The metadata topic, as `events` reads it: partition, offset and state.
    fn events(&self) -> Vec<String> {
        let run = run(&["events", "-b", &self.kafka.bootstrap(), "-o", "jsonl"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let lines = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let events = lines.filter(|line| line["metadata_partition"].is_number());
        events
            .map(|event| format!("{}:{} {}", event["metadata_partition"], event["offset"], event["state"]))
            .collect()
    }

    /// A run that writes the events of a file, and goes on.
    fn writing(&self, file: &str) -> std::process::Child {
        crate::command()
            .args(["publish", file, "--yes", "-o", "json", "-b", &self.kafka.bootstrap()])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits until so many Produce requests have come.
    fn until_produced(&self, count: usize) {
        let produced = |entry: &strandline_testkit::embedded::JournalEntry| entry.api == ApiKey::Produce;
        let there = self
            .kafka
            .journal_when(move |journal| journal.iter().filter(|entry| produced(entry)).count() == count);
        self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), there).await }).unwrap();
    }

    fn asked(&self, apis: &[ApiKey]) -> usize {
        self.kafka.journal().iter().filter(|entry| apis.contains(&entry.api)).count()
    }
}

#[test]
fn without_yes_it_is_shown_what_would_be_written_and_nothing_is() {
    let lab = Lab::start();
    let file = lab.file(&[lab.begun(1, 0), lab.moved(1, 0, 1)]);
    for flags in [&[][..], &["--dry-run"]] {
        let run = lab.publish(&file, flags);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
        let screen = run.stdout.replace(&format!("append  {:<8}", lab.home(0)), "append  N       ");
        insta::allow_duplicates! { insta::assert_snapshot!(screen, @"
        LINE  WHAT    METADATA  EVENT                  SEGMENT                 PARTITION  OFFSETS
           1  append  N         COPY_SEGMENT_STARTED   AQEBAQEBAQEBAQEBAQEBAQ  orders:0   0-9
           2  append  N         COPY_SEGMENT_FINISHED  AQEBAQEBAQEBAQEBAQEBAQ  orders:0   -

        Would append 2 events. Nothing was written: --yes does it.
        ") };
    }
    assert_eq!(lab.asked(&WRITING), 0);
    assert_eq!(lab.events(), [""; 0]);
}

#[test]
fn with_yes_the_events_are_written_read_back_and_named_with_their_places() {
    let lab = Lab::start();
    lab.log(&lab.begun(1, 0));
    let (first, second) = (lab.home(0), lab.home(1));
    let file = lab.file(&[lab.begun(1, 0), lab.moved(1, 0, 1), lab.begun(2, 1), lab.moved(2, 1, 1)]);
    let (code, fates) = lab.fates(&file, &["--yes"]);
    let at = |partition: i32, offset: i32| {
        if first == second {
            format!("{first}:{offset}")
        } else {
            format!("{partition}:{}", if partition == first { offset } else { offset - 2 })
        }
    };
    let expected = [
        format!("in_log {} -", at(first, 0)),
        format!("written {} -", at(first, 1)),
        format!("written {} -", at(second, 2)),
        format!("written {} -", at(second, 3)),
    ];
    assert_eq!((code, fates), (0, expected.to_vec()));
    assert_eq!(lab.events().len(), 4);
    // Published again it changes nothing.
    let again = lab.publish(&file, &["--yes"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stdout.ends_with("Nothing to append; 4 events in the log already.\n"), "{}", again.stdout);
    assert_eq!(lab.events().len(), 4);
    let audit = run(&["audit", "-b", &lab.kafka.bootstrap(), "--fail-on", "cost"]);
    assert!(audit.code == 0 && audit.stdout.contains("\nClean: "), "{}", audit.stdout);
    // As brokers write them: idempotent, without a key.
    assert_eq!(lab.asked(&[ApiKey::CreateTopics]), 0);
    assert!(lab.asked(&[ApiKey::InitProducerId]) > 0);
}

#[test]
fn one_event_that_is_refused_holds_all_of_them_back() {
    let lab = Lab::start();
    let file = lab.file(&[lab.begun(1, 0), lab.moved(2, 0, 1)]);
    let run = lab.publish(&file, &["--yes"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("no event introduces the segment, and so none can move it to COPY_SEGMENT_FINISHED"),
        "{words}"
    );
    assert!(run.stdout.ends_with("Nothing was written: 1 of 2 events refused.\n"), "{}", run.stdout);
    assert_eq!((lab.asked(&WRITING), lab.events()), (0, Vec::new()));
}

#[test]
fn what_comes_between_the_check_and_the_writing_holds_it_back_only_if_it_is_about_the_same() {
    for (other, expected) in [(false, 0), (true, 1)] {
        let lab = Lab::start();
        lab.log(&lab.begun(1, 0));
        let file = lab.file(&[lab.moved(1, 0, 1)]);
        // The ends are asked for twice: for the check, and right before the writing.
        let held = Held::default();
        let asked = || lab.kafka.journal().iter().filter(|entry| entry.api == ApiKey::Fetch).count();
        let (code, fates) = std::thread::scope(|scope| {
            lab.kafka.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::Fetch));
            let published = scope.spawn(|| lab.fates(&file, &["--yes"]));
            let reading =
                lab.kafka.journal_when(|journal| journal.iter().any(|entry| entry.api == ApiKey::Fetch));
            let reading =
                lab.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), reading).await });
            assert!(reading.is_ok() && asked() > 0);
            // The marks of the check are known: this comes behind them.
            lab.log(&if other { lab.moved(1, 0, 2) } else { lab.begun(9, 0) });
            held.release();
            published.join().unwrap()
        });
        assert_eq!(code, expected, "{fates:?}");
        if other {
            let told = format!(
                "refused {}:null DELETE_SEGMENT_STARTED at {}:1 was written while this was checked",
                lab.home(0),
                lab.home(0)
            );
            assert_eq!(fates, [told]);
            assert_eq!(lab.asked(&[ApiKey::Produce]), 0);
        } else {
            assert_eq!(fates, [format!("written {}:2 -", lab.home(0))]);
        }
    }
}

#[test]
fn a_failure_halfway_says_what_is_written_and_what_is_not() {
    let lab = Lab::start();
    let file = lab.file(&[lab.begun(1, 0), lab.moved(1, 0, 1), lab.moved(1, 0, 2)]);
    let home = lab.home(0);
    let refuse = || Rule::new(Fault::Error(ErrorCode::TopicAuthorizationFailed)).api(ApiKey::Produce);
    lab.kafka.script(refuse());
    let (code, fates) = lab.fates(&file, &["--yes"]);
    assert_eq!(code, 4, "{fates:?}");
    assert!(fates[0].starts_with(&format!("not_written {home}:null ")), "{fates:?}");
    assert_eq!(fates[1..], [format!("not_tried {home}:null -"), format!("not_tried {home}:null -")]);

    lab.kafka.script(refuse().nth(2));
    let (code, fates) = lab.fates(&file, &["--yes"]);
    assert_eq!(code, 6, "{fates:?}");
    assert_eq!((&fates[0], &fates[2]), (&format!("written {home}:0 -"), &format!("not_tried {home}:null -")));
    assert!(fates[1].starts_with(&format!("not_written {home}:null ")), "{fates:?}");
    assert_eq!(lab.events().len(), 1);

    // Nobody hears the answers any more: it may be there or not, and the next run tells.
    lab.kafka.script(Rule::new(Fault::ApplyThenLose).api(ApiKey::Produce).always());
    let (code, fates) = lab.fates(&file, &["--yes", "-X", "request.timeout.ms=1000"]);
    assert_eq!(code, 6, "{fates:?}");
    assert!(fates[1].starts_with(&format!("unknown {home}:null ")), "{fates:?}");
    lab.kafka.clear_script();
    let (code, fates) = lab.fates(&file, &["--yes"]);
    let expected =
        [format!("in_log {home}:0 -"), format!("in_log {home}:1 -"), format!("written {home}:2 -")];
    assert_eq!((code, fates), (0, expected.to_vec()));
}

/// The outcomes that a run tells which a signal has ended.
fn interrupted(child: std::process::Child) -> Vec<String> {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = envelope["items"].as_array().unwrap().iter();
    rows.map(|row| row["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn ctrl_c_stops_behind_the_event_that_is_under_way() {
    let lab = Lab::start();
    // So many that the signal is heard long before the last: when exactly, nobody can tell.
    let repeated = |time_ms: i64| {
        let RawEvent::SegmentMetadataUpdate(event) = lab.moved(1, 0, 1) else { unreachable!("an update") };
        RawEvent::SegmentMetadataUpdate(RawSegmentUpdate { event_timestamp_ms: THEN_MS + time_ms, ..event })
    };
    let events: Vec<RawEvent<'static>> =
        std::iter::once(lab.begun(1, 0)).chain((1..3_000).map(repeated)).collect();
    let file = lab.file(&events);
    let held = Held::default();
    lab.kafka.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::Produce).nth(2));
    let child = lab.writing(&file);
    lab.until_produced(2);
    crate::signals::signal(&child, "INT");
    held.release();
    let outcomes = interrupted(child);
    let written = outcomes.iter().take_while(|outcome| *outcome == "written").count();
    assert!((2..outcomes.len()).contains(&written), "{written} of {}", outcomes.len());
    assert!(outcomes[written..].iter().all(|outcome| *outcome == "not_tried"), "{outcomes:?}");
    assert_eq!(lab.events().len(), written);
}

#[test]
fn ctrl_c_says_what_is_written_although_the_broker_does_not_answer_any_more() {
    for silent in [ApiKey::Produce, ApiKey::Fetch] {
        let lab = Lab::start();
        let file = lab.file(&[lab.begun(1, 0), lab.moved(1, 0, 1), lab.moved(1, 0, 2)]);
        let due = if silent == ApiKey::Produce { 2 } else { 3 };
        // Nothing lies in the topic that the check would have to fetch.
        let rule = Rule::new(Fault::Hold(Held::default())).api(silent);
        lab.kafka.script(if silent == ApiKey::Produce { rule.nth(2) } else { rule.always() });
        let child = lab.writing(&file);
        lab.until_produced(due);
        crate::signals::signal(&child, "INT");
        let outcomes = interrupted(child);
        let expected = match silent {
            ApiKey::Produce => ["written", "unknown", "not_tried"],
            _ => ["written_not_read_back"; 3],
        };
        assert_eq!(outcomes, expected);
    }
}

#[test]
fn an_event_that_the_topic_does_not_take_holds_all_of_them_back() {
    let lab = Lab::start();
    let RawEvent::SegmentMetadataUpdate(event) = lab.moved(1, 0, 1) else { unreachable!("an update") };
    let large = RawSegmentUpdate { custom_metadata: Some(vec![7; 1 << 20].into()), ..event };
    let file = lab.file(&[lab.begun(1, 0), RawEvent::SegmentMetadataUpdate(large)]);
    let (code, fates) = lab.fates(&file, &["--yes"]);
    let home = lab.home(0);
    assert_eq!((code, &fates[0]), (1, &format!("would_append {home}:null -")));
    assert!(
        fates[1].starts_with(&format!("refused {home}:null an event of 1048641 bytes: ")),
        "{}",
        fates[1]
    );
    assert_eq!((lab.asked(&[ApiKey::Produce]), lab.events()), (0, Vec::new()));
}

#[test]
fn a_name_that_no_topic_can_have_is_the_name_of_none() {
    let lab = Lab::start();
    let begun = |name: &str| {
        let named = RawTopicIdPartition { topic: name.to_owned().into(), ..lab.of(0) };
        let RawEvent::SegmentMetadata(event) = lab.begun(1, 0) else { unreachable!("a segment") };
        RawEvent::SegmentMetadata(RawSegmentMetadata { topic_id_partition: named, ..event })
    };
    let home = lab.home(0);
    for (name, reason) in [
        ("or/ders", "the cluster has no topic or/ders"),
        // Longer than what a request can ask for.
        (&*"o".repeat(40_000), "topic name of 40000 bytes, above 32767"),
    ] {
        let (code, fates) = lab.fates(&lab.file(&[begun(name)]), &["--yes"]);
        assert_eq!((code, fates), (1, vec![format!("refused {home}:null {reason}")]));
    }
    // Whoever wrote it all the same: what else there is can be judged.
    lab.log(&begun("or/ders"));
    let audit = run(&["audit", "-b", &lab.kafka.bootstrap(), "-o", "json", "--fail-on", "never"]);
    let envelope: Value = serde_json::from_str(&audit.stdout).unwrap();
    assert_eq!((audit.code, &envelope["incomplete"]), (0, &Value::Array(Vec::new())), "{}", audit.stderr);
}

#[test]
fn stdout_that_cannot_be_written_hides_nothing() {
    let lab = Lab::start();
    let to = |stdout: std::process::Stdio, event: RawEvent<'static>| {
        let file = lab.file(&[event]);
        let mut child = crate::command()
            .args(["publish", &file, "--yes", "-b", &lab.kafka.bootstrap()])
            .stdout(stdout)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let nobody_reads = to(std::process::Stdio::piped(), lab.moved(9, 0, 1));
    assert_eq!(nobody_reads, (Some(1), String::new()), "it was refused");
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let (code, stderr) = to(full.into(), lab.begun(1, 0));
        assert_eq!(code, Some(6));
        assert!(stderr.ends_with("hint: 1 event appended and read back.\n"), "{stderr}");
    }
}

#[test]
fn the_end_of_a_partitions_deletion_has_to_be_confirmed() {
    let lab = Lab::start();
    let deletion = |state_id: i8| {
        RawEvent::PartitionDeleteMetadata(RawPartitionDelete {
            topic_id_partition: lab.of(0),
            broker_id: 1,
            event_timestamp_ms: THEN_MS + i64::from(state_id),
            state_id,
        })
    };
    let file = lab.file(&[deletion(0), deletion(1), deletion(2)]);
    let home = lab.home(0);
    let (code, fates) = lab.fates(&file, &["--yes"]);
    assert!(code == 1 && fates[2].contains("say that none does"), "{fates:?}");
    // The cluster has the topic still, whatever is said.
    let (code, fates) = lab.fates(&file, &["--yes", "--no-broker-holds-it"]);
    assert!(code == 1 && fates[2].contains("the cluster still has topic orders"), "{fates:?}");
    lab.kafka.delete_topic("orders");
    let (code, fates) = lab.fates(&file, &["--yes", "--no-broker-holds-it"]);
    assert_eq!((code, fates), (0, (0..3).map(|at| format!("written {home}:{at} -")).collect()));
}

#[test]
fn files_of_another_cluster_cut_ones_and_topics_that_are_not_there_are_refused() {
    let lab = Lab::start();
    let refused = |text: &str, more: &[&str]| {
        let run = lab.publish(&lab.file_of(text), &[more, &["--yes"]].concat());
        assert_eq!(run.stdout, "");
        let id = lab.kafka.cluster_id();
        format!(
            "{} {}",
            run.code,
            run.stderr.replace(&id, "THIS").replace(lab.files.path().to_str().unwrap(), "DIR")
        )
    };
    let summary = "{\"kind\":\"summary\",\"count\":0}\n";
    let header = |fields: &str| format!("{{\"kind\":\"header\",{fields}}}\n{summary}");
    let told = [
        refused(&header("\"cluster_id\":\"another\""), &[]),
        refused(&header("\"metadata_partitions\":50"), &[]),
        refused("{\"kind\":\"header\"}\n", &[]),
        refused("{\"kind\":\"nonsense\"}\n", &[]),
        refused(summary, &["--metadata-topic", "elsewhere"]),
        refused(summary, &["--metadata-topic", "no/where"]),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    2 error: the events of DIR/events.jsonl are of cluster another, and this is THIS
    hint: -b names the cluster; without its header line the file is taken as it is

    2 error: DIR/events.jsonl was made where the metadata topic had 50 partitions, and here it has 4

    6 error: the end of DIR/events.jsonl is missing: it was cut: a header has no summary behind its events; nothing was written

    2 error: DIR/events.jsonl line 1: "nonsense" is no kind of event

    7 error: the cluster has no topic elsewhere: tiered storage is not in use here, or the topic has another name
    hint: --metadata-topic NAME if the topic has another name

    2 error: the metadata log's topic is "no/where"; it must be 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'
    "#);
    assert_eq!(lab.asked(&WRITING), 0);
    let nobody = run_with(&["publish", "-"], summary, &[]);
    assert_eq!(nobody.code, 2, "{}", nobody.stderr);
    let empty = run_with(&["publish", "-", "-b", &lab.kafka.bootstrap(), "--yes"], summary, &[]);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, "Nothing to append.\n"), "{}", empty.stderr);
    // What the command's own `events` prints is such a file.
    lab.log(&lab.begun(1, 0));
    let printed = run(&["events", "-b", &lab.kafka.bootstrap(), "-o", "jsonl"]).stdout;
    let (code, fates) = lab.fates(&lab.file_of(&printed), &["--yes"]);
    assert_eq!((code, fates), (0, vec![format!("in_log {}:0 -", lab.home(0))]));
}

#[test]
fn a_topic_whose_records_are_no_events_takes_none() {
    let lab = Lab::start();
    lab.kafka.create_topic("orders-of-a-shop", 1);
    lab.kafka.append("orders-of-a-shop", 0, &[b"{\"order\":1}"]);
    let file = lab.file(&[lab.begun(1, 0)]);
    let run = lab.publish(&file, &["--yes", "--metadata-topic", "orders-of-a-shop"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    assert!(run.stderr.contains("does not look like the metadata topic"), "{}", run.stderr);
    assert_eq!(lab.asked(&WRITING), 0);
}

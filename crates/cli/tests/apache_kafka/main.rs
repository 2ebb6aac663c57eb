//! The command on a real Apache Kafka: what it shows is what Kafka's own tools show, a healthy tier is clean, and
//! each planted damage is found with its offsets.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the tests do")]

mod command;
mod faults;
mod formatter;
mod security;
mod versions;
mod who;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use strandline_testkit::apache::{ApacheKafka, Options, wait_for};

use command::{Envelope, strandline};

const TOPIC: &str = "orders";
const METADATA_TOPIC: &str = "__remote_log_metadata";

/// How long anything that is waited for may take.
const WITHIN: Duration = Duration::from_secs(180);

/// Held by a test that runs a cluster: two clusters at once are too much for a small machine.
fn one_cluster() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arguments as they are passed on.
fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// One broker, secured: every way into it, and every way that does not lead in.
#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn a_secured_cluster_is_read_with_the_least_rights_and_refusals_are_told_apart() {
    let _one = one_cluster();
    let kafka = ApacheKafka::start(Options::default()).unwrap();
    kafka.create_tiered_topic(TOPIC, 3, &[]).unwrap();
    kafka.produce(TOPIC, 20_000, 500).unwrap();
    kafka.wait_until_copied(TOPIC).unwrap();

    security::every_way_in_leads_to_the_same_tier(&kafka);
    security::every_other_way_is_told_apart(&kafka);
    security::the_least_rights_show_all_events_and_name_what_is_missing(&kafka);
    security::only_reading_requests_reach_the_broker(&kafka);
}

/// One broker, and consumers that it must not lose.
#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn who_holds_uploads_back_and_who_stands_where_is_named() {
    let _one = one_cluster();
    let tier = Tier { kafka: ApacheKafka::start(Options::default()).unwrap() };
    who::groups_are_named_by_what_serves_their_next_offset_and_by_the_rights_that_it_takes(&tier.kafka);
    tier.an_open_transaction_is_named_where_it_holds_uploads_back();
}

/// Three brokers, read over SASL_SSL; then one of them dies.
#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn three_brokers_are_read_over_sasl_ssl_and_while_leaders_move_and_brokers_die() {
    let _one = one_cluster();
    let kafka = ApacheKafka::start(Options { brokers: 3, ..Options::default() }).unwrap();
    kafka.create_tiered_topic(TOPIC, 3, &[]).unwrap();
    kafka.produce(TOPIC, 20_000, 500).unwrap();
    kafka.wait_until_copied(TOPIC).unwrap();
    kafka.wait_until_quiet().unwrap();
    security::every_command_works_over_sasl_ssl_as_far_as_its_rights_go(&kafka);
    security::doctor_gives_each_step_and_each_right_its_verdict(&kafka);
    let cluster = faults::Cluster::new(kafka);
    cluster.leaders_that_move_change_no_answer();
    cluster.what_cannot_be_read_is_named_and_never_clean();
    cluster.a_signal_ends_a_wait_for_a_dead_broker();
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn older_and_newer_brokers_are_read_as_far_as_they_go() {
    let _one = one_cluster();
    versions::an_old_broker_is_audited();
    versions::a_new_broker_without_tiering_says_so();
}

/// One broker for the whole history: each section leaves the tier as healthy as it found it.
#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn the_command_agrees_with_a_real_cluster_and_finds_what_is_broken_in_it() {
    let _one = one_cluster();
    let kafka = ApacheKafka::start(Options::default()).unwrap();
    kafka.create_tiered_topic(TOPIC, 3, &[]).unwrap();
    kafka.produce(TOPIC, 40_000, 500).unwrap();
    kafka.wait_until_copied(TOPIC).unwrap();
    let tier = Tier { kafka };

    tier.assert_clean("after the first copies");
    tier.assert_events_are_those_of_kafkas_formatter();
    tier.assert_segments_are_those_of_kafkas_formatter();
    tier.a_deleted_data_object_is_missing();
    tier.stray_objects_are_told_apart();
    tier.a_partition_is_read_from_its_own_metadata_partition();
    tier.published_events_are_decoded_by_kafkas_formatter();
    tier.deleted_records_more_copies_and_retention_leave_it_clean();
    tier.a_busy_tier_is_clean_at_every_moment();
    tier.a_dead_brokers_directories_say_the_same();
}

struct Tier {
    kafka: ApacheKafka,
}

impl Tier {
    fn live(&self) -> Vec<String> {
        vec!["-b".to_owned(), self.kafka.bootstrap()]
    }

    fn dead(&self) -> Vec<String> {
        vec!["--log-dir".to_owned(), self.kafka.data_dir(1).display().to_string()]
    }

    /// `audit` with the store, of the live cluster or of the broker's directories.
    fn audit(&self, source: Vec<String>) -> Envelope {
        let store = format!("file://{}", self.kafka.tier_dir().display());
        let arguments = ["audit", "--store", &store, "--layout", "local", "-o", "json"].map(str::to_owned);
        strandline(arguments.into_iter().chain(source)).envelope("strandline.audit/v1")
    }

    fn segments(&self, source: Vec<String>) -> Envelope {
        let arguments = ["segments", TOPIC, "--state", "all", "-o", "json"].map(str::to_owned);
        let mut segments = strandline(arguments.into_iter().chain(source)).envelope("strandline.segments/v1");
        // The one field that differs from second to second.
        segments.items.iter_mut().for_each(|segment| drop(segment["age_seconds"].take()));
        segments
    }

    fn assert_clean(&self, when: &str) {
        assert_eq!(self.audit(self.live()).verdict(), (0, Vec::new()), "{when}");
    }

    fn assert_events_are_those_of_kafkas_formatter(&self) {
        let arguments = ["events", "-o", "jsonl"].map(str::to_owned);
        let output = strandline(arguments.into_iter().chain(self.live()));
        let mut ours = Vec::new();
        for line in output.stdout.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            if !["header", "summary", "fact"].contains(&event["kind"].as_str().unwrap()) {
                ours.push(formatter::line(&event));
            }
        }
        let mut kafkas = self.kafka.formatted_events().unwrap();
        assert!(kafkas.len() > 20, "{} events", kafkas.len());
        // Kafka's consumer shows the partitions in the order in which their fetches happen to come.
        ours.sort();
        kafkas.sort();
        assert_eq!(ours, kafkas);
        assert_eq!(output.code, 0, "{}", output.stderr);
    }

    fn assert_segments_are_those_of_kafkas_formatter(&self) {
        let last_states = formatter::last_states(&self.kafka.formatted_events().unwrap());
        let mut ours = BTreeMap::new();
        let arguments = ["segments", "--state", "all", "-o", "json"].map(str::to_owned);
        let all = strandline(arguments.into_iter().chain(self.live())).envelope("strandline.segments/v1");
        for segment in all.items {
            let text = |name: &str| segment[name].as_str().unwrap().to_owned();
            ours.insert(text("segment_id"), text("state"));
        }
        assert_eq!(ours, last_states);
    }

    fn a_deleted_data_object_is_missing(&self) {
        let (object, segment) = self.some_data_object();
        let aside = self.kafka.directory().join("aside");
        fs::rename(&object, &aside).unwrap();
        let audit = self.audit(self.live());
        assert_eq!(audit.verdict(), (1, vec!["obj.missing".to_owned()]));
        let finding = &audit.items[0];
        for field in ["topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset"] {
            assert_eq!(finding[field], segment[field], "{field} of {finding}");
        }
        assert_eq!(finding["severity"], "damage");

        fs::rename(&aside, &object).unwrap();
        self.assert_clean("after the object is back");
    }

    fn stray_objects_are_told_apart(&self) {
        let (object, _) = self.some_data_object();
        let partition = object.parent().unwrap();
        let name = |id: &str| format!("00000000000000000000-{id}.log");
        let foreign = partition.with_file_name("orders-0-Strandline-----------A");
        fs::create_dir(&foreign).unwrap();
        let strays = [
            ("obj.orphan", partition.join(name("Stray----------------A"))),
            ("obj.foreign-cluster", foreign.join(name("Strandline-----------Q"))),
            ("obj.unknown-key", self.kafka.tier_dir().join("notes.txt")),
        ];
        for (_, path) in &strays {
            fs::write(path, "stray").unwrap();
        }
        let (code, mut found) = self.audit(self.live()).verdict_with_info();
        found.retain(|code| code.starts_with("obj."));
        found.sort();
        assert_eq!(found, ["obj.foreign-cluster", "obj.orphan", "obj.unknown-key"]);
        assert_eq!(code, 0, "a stray object costs money and loses nothing");

        for (_, path) in &strays {
            fs::remove_file(path).unwrap();
        }
        fs::remove_dir(foreign).unwrap();
        self.assert_clean("after the strays are gone");
    }

    fn a_partition_is_read_from_its_own_metadata_partition(&self) {
        let events = |address: Option<&str>| {
            let arguments = ["events", "-o", "jsonl"].map(str::to_owned).into_iter();
            let run = strandline(arguments.chain(address.map(str::to_owned)).chain(self.live()));
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
            let mut lines: Vec<Value> =
                run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let read = lines[0]["as_of"]["metadata_offsets"].as_object().unwrap().len();
            lines.retain(|line| line["topic"] == TOPIC && line["partition"] == 0);
            (read, lines)
        };
        let (all, some) = (events(None), events(Some("orders:0")));
        assert!(all.0 > 1 && all.1.len() > 2, "{all:?}");
        assert_eq!(some, (1, all.1));
    }

    /// The life of a copy that never finished. That the broker reads on behind it, later copies and deletions show.
    fn published_events_are_decoded_by_kafkas_formatter(&self) {
        let like = self.segments(self.live()).items.swap_remove(0);
        let event = |kind: &str, state: &str, time_ms: i64| {
            serde_json::json!({
                "kind": kind,
                "topic": TOPIC,
                "topic_id": like["topic_id"],
                "partition": like["partition"],
                "segment_id": "Strandline-----------w",
                "start_offset": 90_000_000,
                "end_offset": 90_000_009,
                "broker_id": 1,
                "max_timestamp_ms": time_ms,
                "event_timestamp_ms": time_ms,
                "segment_leader_epochs": [[0, 90_000_000]],
                "segment_size_in_bytes": 100,
                "custom_metadata": null,
                "txn_index_empty": true,
                "state": state,
            })
        };
        let life = [
            event("segment_metadata", "COPY_SEGMENT_STARTED", 1_795_979_974_000),
            event("segment_metadata_update", "DELETE_SEGMENT_STARTED", 1_795_979_974_001),
            event("segment_metadata_update", "DELETE_SEGMENT_FINISHED", 1_795_979_974_002),
        ];
        let file = self.kafka.directory().join("events.jsonl");
        fs::write(&file, life.map(|event| format!("{event}\n")).concat()).unwrap();
        let publish = |more: &[&str]| {
            let command = ["publish", file.to_str().unwrap(), "-o", "json"].map(str::to_owned);
            let flags = more.iter().map(|word| (*word).to_owned());
            let arguments = command.into_iter().chain(flags).chain(self.live());
            let published = strandline(arguments).envelope("strandline.publish/v1");
            let outcomes = published.items.iter().map(|row| row["outcome"].as_str().unwrap().to_owned());
            (published.code, outcomes.collect::<Vec<_>>())
        };
        let all = |outcome: &str| (0, vec![outcome.to_owned(); 3]);
        assert_eq!(publish(&[]), all("would_append"));
        assert_eq!(publish(&["--yes"]), all("written"));
        assert_eq!(publish(&["--yes"]), all("in_log"));
        self.assert_events_are_those_of_kafkas_formatter();
        self.assert_segments_are_those_of_kafkas_formatter();
        self.assert_clean("after events were published");
    }

    fn an_open_transaction_is_named_where_it_holds_uploads_back(&self) {
        let topic = "payments";
        self.kafka.create_tiered_topic(topic, 1, &[]).unwrap();
        let reasons = || {
            let arguments = ["explain", "payments:0", "-o", "json"].map(str::to_owned);
            let explained = strandline(arguments.into_iter().chain(self.live()));
            explained.envelope("strandline.explain/v1").items[0]["reasons"].to_string()
        };
        let bootstrap = format!("bootstrap.servers={}", self.kafka.bootstrap());
        // One transaction over a rolled segment, open for four seconds.
        let written = ["--num-records", "8000", "--record-size", "500", "--throughput", "2000"];
        let transaction = ["--transactional-id", "payments-writer", "--transaction-duration-ms", "600000"];
        let producer =
            [&["--topic", topic], &written[..], &["--command-property", &bootstrap], &transaction].concat();
        std::thread::scope(|scope| {
            let producer =
                scope.spawn(|| self.kafka.tool("org.apache.kafka.tools.ProducerPerformance", &producer));
            let held = "an open transaction holds the last stable offset at 0: producer ";
            let named = "transactional id payments-writer, since offset 0, open for ";
            let described = "state Ongoing, aborted by its coordinator after ";
            wait_for("explain to name the open transaction, and rolled segments behind it", WITHIN, || {
                let told = reasons();
                let all =
                    [held, named, described, "coordinator broker 1", "rolled segments wait to be copied"]
                        .iter()
                        .all(|words| told.contains(words));
                if !all && producer.is_finished() {
                    anyhow::bail!("the producer ended, and explain says {told}");
                }
                Ok(all.then_some(()))
            })
            .unwrap();
            assert!(producer.join().unwrap().unwrap().status.success());
        });
        self.kafka.wait_until_copied(topic).unwrap();
        let after = reasons();
        assert!(!after.contains("transaction") && after.contains("in the active segment"), "{after}");
        self.assert_clean("after the transaction");
    }

    fn deleted_records_more_copies_and_retention_leave_it_clean(&self) {
        let segment = self.some_data_object().1;
        let offset = |name: &str| segment[name].as_i64().unwrap();
        let partition = i32::try_from(offset("partition")).unwrap();
        let inside = i64::midpoint(offset("start_offset"), offset("end_offset"));
        self.kafka.delete_records(TOPIC, partition, inside).unwrap();
        self.assert_clean("after records up to the middle of a segment were deleted");

        self.kafka.produce(TOPIC, 20_000, 500).unwrap();
        self.kafka.wait_until_copied(TOPIC).unwrap();
        self.assert_clean("after more copies");

        let before = self.data_objects().len();
        self.kafka.alter_topic(TOPIC, &[("retention.bytes", "5242880")]).unwrap();
        wait_for("retention to remove an object", WITHIN, || {
            Ok((self.data_objects().len() < before).then_some(()))
        })
        .unwrap();
        self.assert_clean("while retention works");
        self.kafka.wait_until_quiet().unwrap();
        self.assert_clean("after retention");
        self.assert_segments_are_those_of_kafkas_formatter();
    }

    /// Uploads, retention and the deletion of a topic go on while it is read, from the cluster and beside the broker.
    fn a_busy_tier_is_clean_at_every_moment(&self) {
        const BUSY: &str = "busy";
        let small = [("local.retention.bytes", "1048576"), ("retention.bytes", "4194304")];
        self.kafka.create_tiered_topic(BUSY, 2, &small).unwrap();
        let mut audits = 0;
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                self.kafka.produce(BUSY, 40_000, 500).unwrap();
                self.kafka.produce(BUSY, 40_000, 500).unwrap();
                let delete = ["--delete", "--topic", BUSY];
                self.kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &delete).unwrap();
            });
            wait_for("the load to end and ten segments to be retired", WITHIN, || {
                for source in [self.live(), self.dead()] {
                    let verdict = self.audit(source.clone()).verdict();
                    assert_eq!(verdict, (0, Vec::new()), "{source:?} under load");
                    audits += 1;
                }
                Ok((load.is_finished() && self.retired(BUSY) >= 10).then_some(()))
            })
            .unwrap();
        });
        assert!(audits >= 6, "{audits} audits under load prove little");
    }

    /// How many segments of a topic were deleted.
    fn retired(&self, topic: &str) -> usize {
        let arguments = ["segments", topic, "--state", "all", "-o", "json"].map(str::to_owned);
        let segments =
            strandline(arguments.into_iter().chain(self.live())).envelope("strandline.segments/v1");
        segments.items.iter().filter(|segment| segment["state"] == "DELETE_SEGMENT_FINISHED").count()
    }

    fn a_dead_brokers_directories_say_the_same(&self) {
        let live = self.segments(self.live());
        assert!(live.items.len() > 20, "{} segments", live.items.len());
        self.kafka.kill_broker(1).unwrap();
        let dead = self.segments(self.dead());
        assert_eq!((dead.code, dead.items), (live.code, live.items));
        assert_eq!(self.audit(self.dead()).verdict(), (0, Vec::new()), "the directories of a clean cluster");

        let (object, segment) = self.some_data_object_by(self.dead());
        fs::remove_file(object).unwrap();
        let audit = self.audit(self.dead());
        assert_eq!(audit.verdict(), (1, vec!["obj.missing".to_owned()]));
        assert_eq!(audit.items[0]["start_offset"], segment["start_offset"]);
    }

    /// The data object of a readable segment that lies between two others of its partition, and that segment.
    fn some_data_object(&self) -> (PathBuf, Value) {
        self.some_data_object_by(self.live())
    }

    fn some_data_object_by(&self, source: Vec<String>) -> (PathBuf, Value) {
        let mut readable: Vec<Value> = self.segments(source).items;
        readable.retain(|segment| segment["state"] == "COPY_SEGMENT_FINISHED" && segment["partition"] == 0);
        readable.sort_by_key(|segment| segment["start_offset"].as_i64());
        assert!(readable.len() >= 3, "{readable:?}");
        let segment = readable.swap_remove(1);
        let id = segment["segment_id"].as_str().unwrap();
        let object = self.data_objects().into_iter().find(|path| path.to_str().unwrap().contains(id));
        (object.unwrap(), segment)
    }

    fn data_objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for directory in entries(&self.kafka.tier_dir().join("kafka-tiered-storage")) {
            found.extend(entries(&directory));
        }
        found.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        found
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

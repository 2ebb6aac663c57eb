//! `events -f` on a cluster in this process: what is written comes, whatever befalls the topic is said.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;
use strandline_protocol::ApiKey;
use strandline_testkit::embedded::EmbeddedCluster;

use crate::signals::signal;

const TOPIC: &str = "__remote_log_metadata";
/// An update of one segment, as Kafka's bytes.
const UPDATE: &[u8] = b"\x01\x01\x00\x07orders\xbd\xa6p\xaf\xa6\xe5H\x45\x8c\x01\xb9\xbb\xcf\xebV\xfb\x00\x00\x00\x00\x00\xb9\x9d\x16\x92\xb7}F0\xb2\xe3\x0f\x1c\xaf\xc4!\xe5\x00\x00\x00\x00\x01\x00\x00\x01\x8b\xcf\xe5p\xae\x00\x01\x00";

/// A cluster, and a run that follows it.
struct Followed {
    kafka: EmbeddedCluster,
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    // Ends after the cluster, which needs it.
    runtime: tokio::runtime::Runtime,
}

impl Followed {
    /// One record is there before the run begins; this has read it, and the run waits for the next.
    fn start() -> Self {
        let (kafka, runtime) = crate::three_brokers();
        kafka.create_topic(TOPIC, 2);
        kafka.append(TOPIC, 0, &[UPDATE]);
        let mut child = crate::command()
            .args(["events", "-f", "-o", "jsonl", "-b", &kafka.bootstrap()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut followed = Self { kafka, child, lines, runtime };
        assert_eq!(followed.line()["kind"], "header");
        assert_eq!(followed.place(), (0, 0));
        followed
    }

    fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("it goes on").unwrap()).unwrap()
    }

    /// Metadata partition and offset of the next event.
    fn place(&mut self) -> (i64, i64) {
        let event = self.line();
        assert_eq!((&event["topic"], &event["state"]), (&"orders".into(), &"COPY_SEGMENT_FINISHED".into()));
        (event["metadata_partition"].as_i64().unwrap(), event["offset"].as_i64().unwrap())
    }

    fn append(&self, partition: i32) {
        self.kafka.append(TOPIC, partition, &[UPDATE]);
    }

    /// Waits until the leader of a partition has been asked for what follows `offset`.
    fn asked_from(&self, partition: i32, offset: i64) {
        let fetch = |entry: &strandline_testkit::embedded::JournalEntry| {
            entry.api == ApiKey::Fetch
                && entry.decode::<strandline_protocol::messages::FetchRequest>().is_ok_and(|request| {
                    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
                    partitions.into_iter().any(|of| of.partition == partition && of.fetch_offset == offset)
                })
        };
        let asked = self.kafka.journal_when(move |journal| journal.iter().any(fetch));
        let within = std::time::Duration::from_secs(60);
        self.runtime.block_on(async { tokio::time::timeout(within, asked).await }).unwrap();
    }

    /// The exit code, the summary and what was told.
    fn end(mut self) -> (Option<i32>, Value, String) {
        let last = self.lines.by_ref().last().unwrap().unwrap();
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (self.child.wait().unwrap().code(), serde_json::from_str(&last).unwrap(), told)
    }
}

#[test]
fn what_is_written_comes_and_a_leader_that_moves_is_followed_until_ctrl_c() {
    let mut followed = Followed::start();
    for round in 1..=3 {
        followed.append(1);
        assert_eq!(followed.place(), (1, round - 1));
        let (leader, _) = followed.kafka.leader(TOPIC, 0);
        followed.kafka.move_leader(TOPIC, 0, leader % 3 + 1);
        followed.append(0);
        assert_eq!(followed.place(), (0, round));
    }
    signal(&followed.child, "INT");
    let (code, summary, told) = followed.end();
    assert_eq!((code, told.as_str()), (Some(130), ""));
    assert_eq!((&summary["kind"], &summary["count"]), (&"summary".into(), &7.into()));
    assert_eq!(summary["incomplete"], serde_json::json!([]));
}

#[test]
fn records_that_were_removed_before_they_were_read_are_told_and_the_rest_comes() {
    let mut followed = Followed::start();
    followed.asked_from(0, 1);
    // Nobody sees a high watermark that moves, and then what is below it is gone.
    followed.kafka.hold_high_watermark(TOPIC, 0, Some(1));
    for _ in 0..5 {
        followed.append(0);
    }
    followed.kafka.delete_records(TOPIC, 0, 4);
    followed.kafka.hold_high_watermark(TOPIC, 0, None);
    assert_eq!([followed.place(), followed.place()], [(0, 4), (0, 5)]);
    signal(&followed.child, "INT");
    let (code, summary, told) = followed.end();
    assert_eq!(code, Some(130));
    assert!(told.contains("offset 1 of metadata partition 0 is outside its log"), "{told}");
    assert!(told.contains("it is followed from offset 4 on"), "{told}");
    assert_eq!(summary["incomplete"].as_array().unwrap().len(), 1, "{summary}");
}

#[test]
fn a_topic_that_is_created_anew_ends_the_following_and_is_told() {
    let followed = Followed::start();
    followed.asked_from(0, 1);
    followed.kafka.recreate_topic(TOPIC);
    let (code, summary, told) = followed.end();
    assert_eq!(code, Some(6), "{told}");
    assert!(told.contains("is another one now: its id was "), "{told}");
    assert!(told.contains("it is not followed any more"), "{told}");
    assert_eq!(summary["incomplete"].as_array().unwrap().len(), 2, "{summary}");
}

#[test]
fn a_damaged_batch_ends_the_following_of_its_partition_alone() {
    let mut followed = Followed::start();
    followed.asked_from(0, 1);
    followed.kafka.hold_high_watermark(TOPIC, 0, Some(1));
    followed.append(0);
    followed.kafka.damage(TOPIC, 0, 1, |batch| *batch.last_mut().unwrap() ^= 1);
    followed.kafka.hold_high_watermark(TOPIC, 0, None);
    followed.append(1);
    assert_eq!(followed.place(), (1, 0));
    let mut child_told = BufReader::new(followed.child.stderr.take().unwrap());
    let mut told = String::new();
    child_told.read_line(&mut told).unwrap();
    assert!(told.contains("the rest of metadata partition 0 could not be read"), "{told}");
    followed.append(1);
    assert_eq!(followed.place(), (1, 1));
    signal(&followed.child, "INT");
    assert_eq!(followed.child.wait().unwrap().code(), Some(130));
}

#[test]
fn brokers_that_are_gone_are_told_and_so_is_their_return() {
    let mut followed = Followed::start();
    followed.asked_from(0, 1);
    let mut told = BufReader::new(followed.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_for = |words: &str| told.find(|line| line.contains(words)).expect("it goes on");
    for broker in 1..=3 {
        followed.runtime.block_on(followed.kafka.stop_broker(broker)).unwrap();
    }
    let gone = wait_for("are not heard of");
    assert!(gone.starts_with("warning: ") && gone.contains("of 2 metadata partitions"), "{gone}");
    for broker in 1..=3 {
        followed.runtime.block_on(followed.kafka.restart_broker(broker)).unwrap();
    }
    wait_for("is heard of again");
    followed.append(0);
    assert_eq!(followed.place(), (0, 1));
    signal(&followed.child, "INT");
    assert_eq!(followed.child.wait().unwrap().code(), Some(130));
}

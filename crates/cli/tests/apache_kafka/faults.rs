//! Brokers that die and leaders that move while the command reads.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use strandline_testkit::apache::ApacheKafka;

use crate::TOPIC;
use crate::command::{command, strandline};

/// A topic that can stand for the metadata topic: one replica per partition, records that are no events.
const FRAGILE: &str = "fragile";

pub(crate) struct Cluster {
    pub(crate) kafka: ApacheKafka,
    bootstrap: String,
}

impl Cluster {
    /// Takes a cluster of three brokers with a tiered topic.
    pub(crate) fn new(kafka: ApacheKafka) -> Self {
        let bootstrap = [1, 2, 3].map(|id| kafka.bootstrap_of(id)).join(",");
        let create = ["--create", "--topic", FRAGILE, "--partitions", "6", "--replication-factor", "1"];
        kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &create).unwrap();
        kafka.produce(FRAGILE, 6_000, 100).unwrap();
        Self { kafka, bootstrap }
    }

    /// A broker dies while audits, look-ups and a follower run: all go on, and say the same as before.
    pub(crate) fn leaders_that_move_change_no_answer(&self) {
        let before = self.segments();
        assert!(before.len() > 5, "{before:?}");
        assert_eq!(self.audit_codes(), (0, Vec::new()));
        let mut follower = self.follow();
        let events = before.len() * 2;
        follower.read_events(events);

        let dead = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut readings = 0;
                while !dead.load(Ordering::Relaxed) || readings < 4 {
                    assert_eq!(self.segments(), before);
                    let (_, codes) = self.audit_codes();
                    // Replicas are out of sync; nothing else is wrong.
                    let others: Vec<_> =
                        codes.iter().filter(|code| *code != "meta.under-replicated").collect();
                    assert!(others.is_empty(), "{others:?}");
                    readings += 1;
                }
            });
            self.kafka.kill_broker(2).unwrap();
            dead.store(true, Ordering::Relaxed);
            reading.join().unwrap();
        });
        self.kafka.produce(TOPIC, 20_000, 500).unwrap();
        follower.read_events(2);
        let rest = follower.end_with("INT", 130);
        let summary = rest.last().unwrap();
        assert!(summary.contains("\"kind\":\"summary\",\"count\":"), "{summary}");
    }

    /// Partitions without a leader: what is left is read, what is missing is named, in bounded time.
    pub(crate) fn what_cannot_be_read_is_named_and_never_clean(&self) {
        let fragile = ["-b", &self.bootstrap, "--metadata-topic", FRAGILE, "-X", "request.timeout.ms=2000"];
        let run = |arguments: &[&str]| {
            let run = strandline([arguments, &fragile[..]].concat());
            assert!(run.took < Duration::from_secs(30), "{arguments:?} took {:?}", run.took);
            run
        };
        let audit = run(&["audit"]);
        assert_eq!(audit.code, 1, "findings win: {}", audit.stderr);
        assert!(audit.stdout.contains("Incomplete: ") && !audit.stdout.contains("Clean"), "{}", audit.stdout);
        for command in [vec!["audit", "--fail-on", "never", "-o", "json"], vec!["status", "-o", "json"]] {
            let run = run(&command);
            assert_eq!(run.code, 6, "{}", run.stderr);
            let envelope: Value = serde_json::from_str(&run.stdout).unwrap();
            let incomplete = envelope["incomplete"].as_array().unwrap();
            // Six partitions on three brokers.
            assert_eq!(incomplete.len(), 2, "{incomplete:?}");
            for entry in incomplete {
                assert!(entry["what"].as_str().unwrap().starts_with("metadata partition "), "{entry}");
            }
        }
        let events = run(&["events", "-o", "jsonl"]);
        assert_eq!(events.code, 6, "{}", events.stderr);
        let read = events.stdout.lines().filter(|line| line.contains("\"kind\":\"undecodable\"")).count();
        assert!((1..6_000).contains(&read), "{read}");
    }

    /// A read that waits for a dead broker, ended by a signal long before its time is up.
    pub(crate) fn a_signal_ends_a_wait_for_a_dead_broker(&self) {
        for (signal, code) in [("INT", 130), ("TERM", 143)] {
            let fragile = ["-b", &self.bootstrap, "--metadata-topic", FRAGILE, "-vv"];
            let mut run = Running::start([&["audit", "-o", "json"], &fragile[..]].concat());
            let to_a_broker = |line: &str| line.contains("endpoint=broker") && line.contains(": connected");
            assert!(run.stderr.by_ref().any(|line| to_a_broker(&line.unwrap())));
            let began = Instant::now();
            assert_eq!(run.end_with(signal, code), Vec::<String>::new());
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
    }

    fn segments(&self) -> Vec<String> {
        let run = strandline(["segments", TOPIC, "-b", &self.bootstrap, "-o", "jsonl"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let id = |line: &str| Some(line.split_once("\"segment_id\":\"")?.1.split_once('"')?.0.to_owned());
        run.stdout.lines().filter_map(id).collect()
    }

    fn audit_codes(&self) -> (i32, Vec<String>) {
        let audit = strandline(["audit", "-b", &self.bootstrap, "-o", "json"]);
        audit.envelope("strandline.audit/v1").verdict()
    }

    fn follow(&self) -> Running {
        Running::start(vec!["events", "-f", "-b", &self.bootstrap, "-o", "jsonl"])
    }
}

/// A run whose output is read while it goes on. Ended when it is dropped.
struct Running {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start(arguments: Vec<&str>) -> Self {
        let mut child = command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, stdout, stderr }
    }

    fn read_events(&mut self, count: usize) {
        let mut events = 0;
        while events < count {
            let line = self.stdout.next().expect("the command goes on").unwrap();
            events += usize::from(line.contains("\"kind\":\"segment_metadata"));
        }
    }

    /// Sends a signal, and gives what came until the end.
    fn end_with(mut self, signal: &str, code: i32) -> Vec<String> {
        let id = self.child.id().to_string();
        let kill = Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap();
        assert!(kill.success());
        let rest = self.stdout.by_ref().map(Result::unwrap).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

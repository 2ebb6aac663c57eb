//! The command as a user runs it: screens, machine output, exit codes. No broker is needed here; the files under
//! `tests/data` were written by Apache Kafka 4.3.1 with LocalTieredStorage.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the tests do")]

mod bad_input;
mod demo;
mod doctor;
mod doubts;
mod explain;
mod follow;
mod live;
mod machine;
mod oauthbearer;
mod publish;
mod screens;
mod signals;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster};

/// A moment a little after the files were written.
const NOW: &str = "2026-11-29T19:30:00Z";

/// What a run left behind.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

/// The binary, without the user's settings and with a fixed clock.
///
/// Where the tests run under `nohup`, it hears SIGHUP all the same.
fn command() -> Command {
    let binary = env!("CARGO_BIN_EXE_strandline");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mut command = match ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()) {
        Some(mask) if mask & 1 != 0 => {
            let mut command = Command::new("env");
            command.args(["--default-signal=HUP", binary]);
            command
        }
        _ => Command::new(binary),
    };
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env_clear().env("STRANDLINE_TEST", "1");
    command
}

/// A cluster of three brokers, and the runtime that it lives on, which must end after it: the command is another process.
fn three_brokers() -> (EmbeddedCluster, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kafka = {
        let _within = runtime.enter();
        EmbeddedCluster::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() }).unwrap()
    };
    (kafka, runtime)
}

fn run(args: &[&str]) -> Run {
    run_with(args, "", &[])
}

fn run_with(args: &[&str], stdin: &str, environment: &[(&str, &str)]) -> Run {
    let mut child = command()
        .args(args)
        .args(["--now", NOW])
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its flags ends without reading.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A copy of the broker's directory and of its tier, to be damaged.
struct Tier {
    dir: tempfile::TempDir,
}

impl Tier {
    fn copy() -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").as_path(), dir.path());
        Self { dir }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn log_dir(&self) -> String {
        self.path("broker1").display().to_string()
    }

    fn store(&self) -> String {
        format!("file://{}", self.path("tier").display())
    }

    fn audit(&self, more: &[&str]) -> Run {
        let (log_dir, store) = (self.log_dir(), self.store());
        let mut args = vec!["audit", "--log-dir", &log_dir, "--store", &store, "--layout", "local"];
        args.extend(more);
        run(&args)
    }

    /// The object of segment `id` with this suffix.
    fn object(&self, id: &str, suffix: &str) -> PathBuf {
        let mut dirs = std::fs::read_dir(self.path("tier/kafka-tiered-storage")).unwrap();
        let found = dirs.find_map(|dir| {
            let mut files = std::fs::read_dir(dir.unwrap().path()).unwrap().map(|file| file.unwrap().path());
            files.find(|path| path.to_str().unwrap().ends_with(&format!("{id}{suffix}")))
        });
        found.unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Three events of one segment, as lines of an event file.
fn events() -> String {
    let started = r#"{"metadata_partition":2,"offset":0,"timestamp_ms":1795979974000,"kind":"segment_metadata","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders","partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","start_offset":0,"end_offset":2047,"broker_id":1,"max_timestamp_ms":1795979960000,"event_timestamp_ms":1795979974000,"segment_leader_epochs":[[0,0]],"segment_size_in_bytes":1046336,"custom_metadata":null,"state":"COPY_SEGMENT_STARTED","txn_index_empty":false}"#;
    let finished = started
        .replace("\"offset\":0,\"timestamp_ms\"", "\"offset\":1,\"timestamp_ms\"")
        .replace("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED")
        .replace("\"kind\":\"segment_metadata\"", "\"kind\":\"segment_metadata_update\"");
    format!("{started}\n{finished}\n")
}

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{command, events};

/// A run whose stdin stays open and brings nothing.
fn waiting(args: &[&str]) -> Child {
    let stdio = Stdio::piped;
    command().args(args).stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap()
}

pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn follow() -> (Child, BufReader<ChildStdout>) {
    let mut child = command()
        .args(["events", "-f", "--log-dir", "tests/data/broker1", "-o", "jsonl"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

#[test]
fn ctrl_c_ends_with_what_was_covered() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let (mut child, stdout) = follow();
        let mut lines = stdout.lines();
        // The header, then 28 events: all there is, and the command waits for more.
        let read: Vec<String> = lines.by_ref().take(29).map(Result::unwrap).collect();
        assert_eq!(read.len(), 29);
        signal(&child, name);
        let summary = lines.next().unwrap().unwrap();
        assert!(summary.contains("\"kind\":\"summary\",\"count\":28"), "{summary}");
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn a_command_that_ignores_sighup_as_nohup_makes_it_goes_on() {
    let binary = env!("CARGO_BIN_EXE_strandline");
    let script = format!("trap '' HUP; exec '{binary}' events -f --log-dir tests/data/broker1 -o jsonl");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.by_ref().take(29).map(Result::unwrap).count(), 29);
    signal(&child, "HUP");
    signal(&child, "TERM");
    // SIGHUP has the lower number and would be told first.
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn ctrl_c_ends_a_wait_for_input_too() {
    let mut child = waiting(&["events", "--events", "-", "-o", "jsonl"]);
    let mut header = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut header).unwrap();
    assert!(header.contains("\"kind\":\"header\""), "{header}");
    signal(&child, "INT");
    // Stdin stays open and brings nothing: the wait for it cannot be cut short, only the process be ended.
    let stdin = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let many = events().repeat(20_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), many).unwrap();
    let mut child = command()
        .args(["events", "--events", file.path().to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("METADATA"), "{first}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::{NOW, Run, command, run, signals::signal};

/// What differs from run to run: ports and the temporary directory.
fn redacted(text: &str) -> String {
    let ports = regex::Regex::new(r"127\.0\.0\.1:\d+").unwrap().replace_all(text, "127.0.0.1:PORT");
    let directory = regex::Regex::new(r"file:///\S*strandline-demo-\w+").unwrap();
    directory.replace_all(&ports, "file:///TEMP").into_owned()
}

fn demo(seed: &str) -> String {
    let Run { code, stdout, stderr } = run(&["demo", "--seed", seed]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    redacted(&stdout)
}

#[test]
fn the_demo_shows_a_broken_tier_as_an_operator_would_see_it() {
    insta::assert_snapshot!(demo("1"));
}

#[test]
fn a_seed_gives_the_same_tier_again_and_another_seed_another_one() {
    let (first, second) = (demo("1"), demo("2"));
    assert_eq!(first, demo("1"));
    assert_ne!(first, second);
    // Other ids and offsets, the same story.
    let codes = |screen: &str| {
        let (_, story) = screen.split_once("What had been broken\n").unwrap();
        let rows = story.lines().map(|line| line.split("  ").next().unwrap().to_owned());
        rows.take_while(|code| !code.is_empty()).filter(|code| code.contains('.')).collect::<Vec<_>>()
    };
    assert_eq!(codes(&first), codes(&second));
}

/// A demo that stays.
struct Kept {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Where it puts its temporary files.
    directory: tempfile::TempDir,
}

impl Kept {
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = command()
            .args(["demo", "--keep", "--now", NOW])
            .args(arguments)
            // What a user's own cluster needs must not get in the way of this one.
            .envs([
                ("STRANDLINE_BOOTSTRAP_SERVER", "broker:1"),
                ("STRANDLINE_X_SECURITY_PROTOCOL", "SASL_SSL"),
            ])
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, directory }
    }

    /// Everything up to the line, with it.
    fn read_until(&mut self, last: &str) -> String {
        let mut text = String::new();
        loop {
            let read = self.stdout.read_line(&mut text).unwrap();
            assert!(read > 0, "it ended without {last:?}: {text}");
            if text.lines().next_back().is_some_and(|line| line.starts_with(last)) {
                return text;
            }
        }
    }

    /// The exit code, after a signal.
    fn end(mut self, name: &str) -> i32 {
        signal(&self.child, name);
        let code = self.child.wait().unwrap().code().unwrap();
        let left: Vec<PathBuf> = below(self.directory.path());
        assert_eq!(left, Vec::<PathBuf>::new(), "the temporary files are removed");
        code
    }
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { [below(&path), vec![path]].concat() } else { vec![path] })
        .collect()
}

/// Code, topic, partition: how often.
type Damage = BTreeMap<(String, String, String), usize>;

fn damage<'a>(items: impl Iterator<Item = &'a Value>) -> Damage {
    let mut damage = Damage::new();
    for item in items {
        let field = |name: &str| item[name].to_string();
        *damage.entry((field("code"), field("topic"), field("partition"))).or_default() += 1;
    }
    damage
}

#[test]
fn every_planted_damage_is_found_at_its_place_and_nothing_else() {
    for seed in ["1", "77"] {
        let mut kept = Kept::start(&["--seed", seed, "-o", "json"]);
        let demo: Value = serde_json::from_str(&kept.read_until("}")).unwrap();
        assert_eq!(demo["schema"], "strandline.demo/v1");
        let item = &demo["items"][0];
        let planted = item["planted"].as_array().unwrap();
        assert!(planted.iter().all(|planted| planted["found"] == true), "{planted:#?}");
        let codes: std::collections::BTreeSet<_> =
            planted.iter().map(|planted| planted["code"].as_str().unwrap()).collect();
        assert!(codes.len() >= 10, "{codes:?}");

        // What another process sees, over the sockets.
        let text = |name: &str| item[name].as_str().unwrap().to_owned();
        let (bootstrap, store) = (text("bootstrap_server"), text("store"));
        let source = ["-b", &bootstrap, "--store", &store, "--layout", "local"];
        let audit = run(&[&["audit", "-o", "json"][..], &source].concat());
        assert_eq!(audit.code, 1, "{}", audit.stderr);
        let envelope: Value = serde_json::from_str(&audit.stdout).unwrap();
        let findings = envelope["items"].as_array().unwrap();
        let above_info = || findings.iter().filter(|finding| finding["severity"] != "info");
        assert_eq!(damage(above_info()), damage(planted.iter()), "seed {seed}");
        for planted in planted.iter().filter(|planted| planted["end_offset"].is_number()) {
            let same = |finding: &&Value| {
                ["code", "topic", "partition", "start_offset", "end_offset", "segment_id"]
                    .iter()
                    .all(|field| finding[field] == planted[field])
            };
            assert!(findings.iter().any(|finding| same(&finding)), "{planted}");
        }
        let healthy = item["healthy_topics"].as_array().unwrap();
        assert_eq!(healthy.len(), 2);
        let sick = findings.iter().find(|finding| healthy.contains(&finding["topic"]));
        assert_eq!(sick, None, "no finding at all about a healthy topic");

        // Segments are real: their objects are what they are called.
        let objects = below(Path::new(store.strip_prefix("file://").unwrap()));
        let of_one = objects.iter().filter(|path| path.to_str().unwrap().contains("orders-0-"));
        for path in of_one.filter(|path| path.is_file()) {
            let decoded = run(&["decode", path.to_str().unwrap()]);
            assert_eq!((decoded.code, decoded.stderr.as_str()), (0, ""), "{}", path.display());
        }
        assert_eq!(kept.end("INT"), 0);
    }
}

#[test]
fn the_demo_stays_until_ctrl_c_and_its_ready_made_commands_work() {
    let mut kept = Kept::start(&[]);
    let screen = kept.read_until("  strandline rules show");
    let (_, invitation) =
        screen.split_once("The cluster stays until Ctrl-C. In another terminal:\n").unwrap();
    let mut lines = invitation.lines();
    let export = lines.next().unwrap().strip_prefix("  export ").unwrap();
    let environment = [export.split_once('=').unwrap()];
    for line in lines {
        let line = line.split_once("  # ").unwrap().0;
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        // The one that never ends has tests of its own; `--now` comes twice here otherwise.
        let words: Vec<&str> = words.into_iter().take_while(|word| *word != "--now").collect();
        if words.contains(&"-f") {
            continue;
        }
        let run = crate::run_with(&words, "", &environment);
        let expected = if words[0] == "audit" { 1 } else { 0 };
        assert_eq!((run.code, run.stderr.as_str()), (expected, ""), "{line}: {}", run.stdout);
        if words[0] == "explain" && words[1].contains('@') {
            assert!(run.stdout.contains("nothing in the tier serves it"), "{}", run.stdout);
        }
    }
    assert_eq!(kept.end("INT"), 0);
}

#[test]
fn sigterm_and_a_closed_terminal_end_the_demo_too_and_nothing_is_left() {
    for (name, code) in [("TERM", 143), ("HUP", 129)] {
        let mut kept = Kept::start(&[]);
        kept.read_until("The cluster stays");
        assert_eq!(kept.end(name), code);
    }
}

#[test]
fn ctrl_c_at_any_moment_leaves_nothing_behind() {
    for lines in [1, 20, 60] {
        let mut kept = Kept::start(&[]);
        for _ in 0..lines {
            kept.stdout.read_line(&mut String::new()).unwrap();
        }
        let code = kept.end("INT");
        assert!(code == 0 || code == 130, "{code}");
    }
}

#[test]
fn a_temporary_directory_of_any_name_will_do_and_one_that_is_not_there_is_told() {
    let parent = tempfile::tempdir().unwrap();
    let odd = parent.path().join("größe 50% & more?");
    std::fs::create_dir(&odd).unwrap();
    let with = |directory: &Path| {
        let output = command().args(["demo", "-o", "json"]).env("TMPDIR", directory).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(with(&odd), (0, String::new()));
    let (code, stderr) = with(&parent.path().join("none"));
    assert_eq!(code, 5);
    assert!(stderr.contains("cannot be set up") && stderr.contains("No such file"), "{stderr}");
    let early = command().args(["demo", "--now", "1970-01-02T00:00:00Z"]).output().unwrap();
    assert_eq!(early.status.code(), Some(2));
}

#[test]
fn a_closed_pipe_ends_the_demo_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = command()
        .arg("demo")
        .env("TMPDIR", directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("A shop's Kafka"), "{first}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
    assert_eq!(below(directory.path()), Vec::<PathBuf>::new());
}

//! Runs the command.

use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// No run needs as long.
const RUN_SECONDS_MAX: &str = "120";

/// What one run gave.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

/// The JSON envelope of one run.
pub(crate) struct Envelope {
    pub(crate) code: i32,
    pub(crate) items: Vec<Value>,
    pub(crate) incomplete: Value,
    stderr: String,
}

/// The command with nothing of the surroundings' configuration.
pub(crate) fn command(arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    cleared(Command::new(env!("CARGO_BIN_EXE_strandline")), arguments)
}

fn cleared(mut command: Command, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("STRANDLINE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs the command.
pub(crate) fn strandline(arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Run {
    strandline_with(arguments, &[])
}

/// Runs the command with some variables set.
pub(crate) fn strandline_with(
    arguments: impl IntoIterator<Item: AsRef<OsStr>>,
    environment: &[(&str, &str)],
) -> Run {
    let began = Instant::now();
    let mut bounded = Command::new("timeout");
    bounded.args([RUN_SECONDS_MAX, env!("CARGO_BIN_EXE_strandline")]);
    let output = cleared(bounded, arguments).envs(environment.iter().copied()).output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        took: began.elapsed(),
    }
}

impl Run {
    pub(crate) fn envelope(self, schema: &str) -> Envelope {
        let Self { code, stdout, stderr, .. } = self;
        let mut value: Value = serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("exit code {code}, no JSON ({error}): {stdout}\n{stderr}"));
        assert_eq!(value["schema"], schema);
        let Value::Array(items) = value["items"].take() else { panic!("no items: {stdout}") };
        Envelope { code, items, incomplete: value["incomplete"].take(), stderr }
    }
}

impl Envelope {
    /// The exit code, and the codes of all findings above info.
    pub(crate) fn verdict(&self) -> (i32, Vec<String>) {
        self.findings(|severity| severity != "info")
    }

    /// The exit code, and the codes of all findings.
    pub(crate) fn verdict_with_info(&self) -> (i32, Vec<String>) {
        self.findings(|_| true)
    }

    fn findings(&self, wanted: impl Fn(&str) -> bool) -> (i32, Vec<String>) {
        assert_eq!(self.incomplete, Value::Array(Vec::new()), "{}", self.stderr);
        let codes = self.items.iter().filter(|finding| wanted(finding["severity"].as_str().unwrap()));
        (self.code, codes.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect())
    }
}

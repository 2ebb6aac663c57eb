//! `cargo xtask test`: everything that has to pass, in the order of what fails soonest.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use strandline_testkit::apache::ApacheKafka;

use crate::fuzz;

/// Set to 1, a machine that cannot run Apache Kafka fails instead of skipping its tests.
const REQUIRE_KAFKA: &str = "STRANDLINE_REQUIRE_KAFKA";

/// The steps that are plain calls of cargo: what it is, and the arguments.
const STEPS: &[(&str, &[&str])] = &[
    ("format", &["fmt", "--all", "--check"]),
    ("format of fuzz", &["fmt", "--all", "--check", "--manifest-path", "fuzz/Cargo.toml"]),
    ("clippy", &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]),
    (
        "documentation",
        &[
            "doc",
            "--workspace",
            "--all-features",
            "--no-deps",
            "--config",
            r#"build.rustdocflags=["-Dwarnings"]"#,
        ],
    ),
    ("unit, integration and doc tests", &["test", "--workspace", "--all-features"]),
    ("golden files", &["xtask", "golden"]),
    // Two minutes are for those who changed the snapshots.
    ("kill -9 of a manager", &["xtask", "kill", "--seconds", "15"]),
];

/// Five seconds for each decoder; longer runs are for those who changed one.
const FUZZ: (&str, &[&str]) = ("fuzzing", &["xtask", "fuzz", "--seconds", "5"]);

/// The only tests that are marked `ignore` are those that need a real Apache Kafka.
const KAFKA_TESTS: (&str, &[&str]) = (
    "real Apache Kafka tests",
    &["test", "--workspace", "--all-features", "--lib", "--bins", "--tests", "--", "--ignored"],
);

/// Runs every step; the first that fails ends the run.
pub(crate) fn run() -> anyhow::Result<()> {
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?;
    let start = Instant::now();
    let mut done = Vec::new();
    for &cargo_call in STEPS {
        done.push(step(cargo_call)?);
    }
    done.push(match fuzz::lacking() {
        None => step(FUZZ)?,
        Some(lacking) => format!("skipped: {}: {lacking}", FUZZ.0),
    });
    done.push(match ApacheKafka::lacking() {
        None => step(KAFKA_TESTS)?,
        Some(lacking) if std::env::var_os(REQUIRE_KAFKA).is_some_and(|value| value == "1") => {
            bail!("{}: {lacking}, and {REQUIRE_KAFKA}=1 requires them", KAFKA_TESTS.0);
        }
        Some(lacking) => format!("skipped: {}: {lacking}", KAFKA_TESTS.0),
    });
    println!("\n{}\nall passed in {}", done.join("\n"), seconds(start.elapsed()));
    Ok(())
}

/// Runs cargo with its output on this process's own; returns the line for the closing list.
fn step((name, arguments): (&str, &[&str])) -> anyhow::Result<String> {
    println!("\n== {name}: cargo {}", arguments.join(" "));
    let start = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(arguments).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("{name} failed after {}: cargo {}", seconds(start.elapsed()), arguments.join(" "));
    }
    let line = format!("passed: {name}: {}", seconds(start.elapsed()));
    println!("== {line}");
    Ok(line)
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

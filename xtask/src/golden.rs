//! `cargo xtask golden [DIR]`: holds the code against answers of Apache Kafka, written down in golden-*.json.
//!
//! The start of a file's name says what is in it: `golden-events`, `golden-partitions`, `golden-cache`. Sections
//! may be missing or empty.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::de::DeserializeOwned;

mod cache;
mod events;
mod partitions;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder; the project's own by default
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden"), hide_default_value = true)]
    pub(crate) dir: PathBuf,
}

/// What became of the entries of one file.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    /// Name of the entry and what is different.
    failures: Vec<(String, String)>,
}

impl Tally {
    /// Notes the outcome of one entry.
    fn entry(&mut self, name: impl Into<String>, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(error) => self.failures.push((name.into(), format!("{error:#}"))),
        }
    }
}

/// Checks every golden file of a folder and prints what failed.
pub(crate) fn run(dir: &Path) -> anyhow::Result<()> {
    let mut failed = 0;
    for path in golden_files(dir)? {
        let tally = check(&path);
        println!("{}: {} passed, {} failed", path.display(), tally.passed, tally.failures.len());
        for (name, difference) in &tally.failures {
            println!("  {name}: {difference}");
        }
        failed += tally.failures.len();
    }
    ensure!(failed == 0, "{failed} entries failed");
    Ok(())
}

/// The golden files of a folder, by name; a folder without any is an error, since nothing would be checked.
fn golden_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("golden-") && name.ends_with(".json") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "no golden-*.json in {}", dir.display());
    files.sort();
    Ok(files)
}

/// Checks one file. One that cannot be read, or is of no known kind, is a failure itself.
fn check(path: &Path) -> Tally {
    check_kind(path).unwrap_or_else(|error| {
        let mut tally = Tally::default();
        tally.entry("the file", Err(error));
        tally
    })
}

fn check_kind(path: &Path) -> anyhow::Result<Tally> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("golden-events") {
        Ok(events::check(&parse(path)?))
    } else if name.starts_with("golden-partitions") {
        Ok(partitions::check(&parse(path)?))
    } else if name.starts_with("golden-cache") {
        Ok(cache::check(&parse(path)?))
    } else {
        bail!("its name begins with none of golden-events, golden-partitions, golden-cache");
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Complains with both sides when they differ.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, golden: T) -> anyhow::Result<()> {
    ensure!(ours == golden, "{what} is {ours:?} instead of {golden:?}");
    Ok(())
}

fn from_hex(hex: &str) -> anyhow::Result<Vec<u8>> {
    ensure!(hex.len().is_multiple_of(2) && hex.is_ascii(), "odd number of hex digits");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).with_context(|| format!("not hex at {at}"));
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_file_of_the_project_passes_entirely() {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden"));
        let mut passed = Vec::new();
        for path in golden_files(dir).unwrap() {
            let tally = check(&path);
            assert_eq!(tally.failures, [], "{}", path.display());
            passed.push(tally.passed);
        }
        // Cache, events, partitions: a section that is no longer read would show here.
        assert_eq!(passed, [225, 84, 130]);
    }

    #[test]
    fn a_wrong_answer_an_unknown_kind_and_a_folder_without_files_are_failures() {
        let dir = tempfile::tempdir().unwrap();
        let failure = || format!("{:#}", run(dir.path()).unwrap_err());
        assert!(failure().starts_with("no golden-*.json in "));

        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("golden-partitions.json", r#"{"vectors":[]}"#);
        write("golden-events.json", "{}");
        run(dir.path()).unwrap();

        let vector = r#"{"topic_id":"vaZwr6blSEWMAbm7z-tW-w","partition":0,"num_partitions":5,"metadata_partition":3}"#;
        write("golden-partitions.json", &format!(r#"{{"vectors":[{vector}]}}"#));
        assert_eq!(failure(), "1 entries failed");
        assert_eq!(
            check(&dir.path().join("golden-partitions.json")).failures,
            [("vaZwr6blSEWMAbm7z-tW-w:0 of 5".into(), "metadata partition is 2 instead of 3".into())]
        );

        write("golden-other.json", "{}");
        write("golden-cache.json", "{");
        assert_eq!(failure(), "3 entries failed");
    }
}

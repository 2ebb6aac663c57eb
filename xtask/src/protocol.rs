//! `cargo xtask protocol`: the messages of `crates/protocol`, generated from Kafka's own schemas.
//!
//! The schemas are the JSON files in the kafka-clients jar; Maven fetches it once into the target directory. All of
//! them are parsed; the APIs of [`APIS`] become Rust. The Rust is committed, the schemas are not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

mod generate;
mod schema;

/// The APIs whose messages are generated. Add a name, run `cargo xtask protocol`, commit both.
const APIS: &[&str] = &[
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "EndTxn",
    "DescribeConfigs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "IncrementalAlterConfigs",
    "DescribeCluster",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "DescribeTopicPartitions",
];

/// The version of Kafka whose schemas are read.
const KAFKA: &str = "4.4.0";

/// Schemas in that version, so that a half-read jar is noticed.
const SCHEMAS: usize = 203;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write nothing: fail if the committed files are not what the schemas give
    #[arg(long)]
    check: bool,
    /// Read the schemas from this folder, instead of fetching them with Maven
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let schemas = match &options.schemas {
        Some(folder) => folder.clone(),
        None => fetch(&root.join("target").join(format!("kafka-schemas-{KAFKA}")))?,
    };
    let schemas = read(&schemas)?;
    let folder = root.join("crates/protocol/src/messages");
    let mut wrong = Vec::new();
    let files = generate::files(&schemas, APIS)?;
    for (name, text) in &files {
        let text = format(root, text).with_context(|| format!("{name} cannot be formatted"))?;
        let path = folder.join(name);
        if std::fs::read_to_string(&path).is_ok_and(|committed| committed == text) {
            continue;
        }
        wrong.push(name.clone());
        if !options.check {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !files.contains_key(&name) {
            wrong.push(name);
            if !options.check {
                std::fs::remove_file(&path)?;
            }
        }
    }
    if options.check && !wrong.is_empty() {
        bail!("not what the schemas of Kafka {KAFKA} give: {}; run `cargo xtask protocol`", wrong.join(", "));
    }
    println!("{} schemas read, {} files, {} changed", schemas.len(), files.len(), wrong.len());
    Ok(())
}

/// Lets Maven unpack the schemas into `folder`, unless they are there.
fn fetch(folder: &Path) -> Result<PathBuf> {
    let schemas = folder.join("common").join("message");
    if json_files(&schemas).is_ok_and(|files| files.len() == SCHEMAS) {
        return Ok(schemas);
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let status = Command::new("mvn")
        .current_dir(folder) // The plugin leaves a marker below the current directory.
        .args(["-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack"])
        .arg(format!("-Dartifact=org.apache.kafka:kafka-clients:{KAFKA}"))
        .arg("-Dmdep.unpack.includes=common/message/*.json")
        .arg(format!("-DoutputDirectory={}", folder.display()))
        .status()
        .context("Maven (`mvn`) is needed to fetch the schemas")?;
    ensure!(status.success(), "Maven could not fetch kafka-clients {KAFKA}: {status}");
    Ok(schemas)
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

fn read(folder: &Path) -> Result<Vec<schema::Message>> {
    let files = json_files(folder)?;
    ensure!(
        files.len() == SCHEMAS,
        "{} has {} schemas; Kafka {KAFKA} has {SCHEMAS}",
        folder.display(),
        files.len()
    );
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)?;
        schema::parse(&text).with_context(|| path.display().to_string())
    };
    files.iter().map(read).collect()
}

fn format(root: &Path, text: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--config-path"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt is needed")?;
    rustfmt.stdin.take().context("stdin is a pipe")?.write_all(text.as_bytes())?;
    let output = rustfmt.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs Maven: cargo xtask test runs it"]
    fn the_committed_messages_are_what_the_schemas_of_kafka_give() {
        run(&Options { check: true, schemas: None }).unwrap();
    }
}

//! `cargo xtask example`: writes the directories under `examples/` anew with a real Apache Kafka.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use strandline_testkit::apache::{ApacheKafka, Options, wait_for};

const TOPIC: &str = "orders";
const PARTITIONS: u32 = 2;
/// Rounds of records; each but the first ends a segment, since segments here are closed by age.
const ROUNDS: usize = 10;
const RECORDS: u64 = 120;
const RECORD_BYTES: u32 = 100;

/// Runs a broker through a small history that ends with its crash in the middle of a copy, then keeps what an
/// audit reads of its directories.
pub(crate) fn run() -> anyhow::Result<()> {
    let target = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/crashed-broker"));
    let kafka = ApacheKafka::start(Options::default())?;
    let configs = [("segment.ms", "500"), ("local.retention.bytes", "16384")];
    kafka.create_tiered_topic(TOPIC, PARTITIONS, &configs)?;
    for round in 0..ROUNDS {
        println!("round {} of {ROUNDS}", round + 1);
        kafka.produce(TOPIC, RECORDS, RECORD_BYTES)?;
        kafka.wait_until_copied(TOPIC)?;
    }
    crash_in_a_copy(&kafka)?;
    lose_an_object(&kafka.tier_dir())?;

    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    copy(&kafka.data_dir(1), &target.join("broker-1"), &is_kept_of_a_broker)?;
    copy(&kafka.tier_dir(), &target.join("tier"), &|_| true)?;
    println!("wrote {}", target.display());
    Ok(())
}

/// The broker announces a copy, then waits until it has read that event itself; killed there, it leaves the copy
/// unfinished for ever.
fn crash_in_a_copy(kafka: &ApacheKafka) -> anyhow::Result<()> {
    println!("waiting for a copy to crash in");
    let before = metadata_bytes(&kafka.data_dir(1))?;
    thread::scope(|scope| {
        let producing = scope.spawn(|| kafka.produce(TOPIC, RECORDS, RECORD_BYTES));
        // Looked at without a pause: the moment is some ten milliseconds long.
        let crashed = wait_for("a copy to begin", Duration::from_secs(60), || {
            Ok((0..10_000)
                .any(|_| metadata_bytes(&kafka.data_dir(1)).is_ok_and(|now| now > before))
                .then_some(()))
        });
        kafka.kill_broker(1)?;
        // Whether all of its records arrived matters to nobody.
        let _ = producing.join();
        crashed
    })
}

fn metadata_bytes(data_dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for partition in 0..Options::default().metadata_partitions {
        let name = format!("__remote_log_metadata-{partition}/00000000000000000000.log");
        bytes += fs::metadata(data_dir.join(name))?.len();
    }
    Ok(bytes)
}

/// Removes the data object of one partition's second segment.
fn lose_an_object(tier: &Path) -> anyhow::Result<()> {
    for directory in fs::read_dir(tier.join("kafka-tiered-storage"))? {
        let mut logs = Vec::new();
        for entry in fs::read_dir(directory?.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                logs.push(path);
            }
        }
        logs.sort();
        if let [_, second, _, ..] = logs.as_slice() {
            return Ok(fs::remove_file(second)?);
        }
    }
    bail!("no partition has three segments in the tier");
}

/// Indexes are allocated at 10 MiB until a segment is closed, and no rule reads them. Of the other topics nothing
/// is needed.
fn is_kept_of_a_broker(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let top = path.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
    let wanted = top.starts_with(&format!("{TOPIC}-"))
        || top.starts_with("__remote_log_metadata-")
        || ["meta.properties", "log-start-offset-checkpoint", "replication-offset-checkpoint"].contains(&top);
    wanted && !["index", "timeindex", "deleted"].contains(&extension)
}

/// Copies the files that are wanted, by their path below the source.
fn copy(source: &Path, target: &Path, wanted: &dyn Fn(&Path) -> bool) -> anyhow::Result<()> {
    let mut pending = vec![PathBuf::new()];
    let mut bytes = 0;
    while let Some(below) = pending.pop() {
        for entry in fs::read_dir(source.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else if wanted(&path) {
                let to = target.join(&path);
                fs::create_dir_all(to.parent().context("a file below the target")?)?;
                bytes += fs::copy(entry.path(), to)?;
            }
        }
    }
    ensure!(bytes < 1 << 20, "{bytes} bytes are too many for an example");
    Ok(())
}

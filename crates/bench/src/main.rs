//! `strandline-bench`: the manager and the producer at work, measured. The last line says what came of it, as one JSON object.
//!
//! What stands beside it, how to repeat it and what one run gave: `bench/README.md`.
//!
//! ```text
//! usage: strandline-bench replay            the metadata topic into the manager, until every user partition of it is ready
//!        strandline-bench lookup SEGMENTS   who serves an offset, in one user partition
//!        strandline-bench publish one [N]   one event after the other, each awaited
//!        strandline-bench publish many [N]  1 000 on their way at any time
//!        strandline-bench write [N]         through the manager, each awaited until it can be read
//! ```
//!
//! BOOTSTRAP is an address of the cluster, TOPIC the topic that is read or written, DATA_DIR the data directory of the broker, in
//! which `replay` looks for the user partitions that it is to serve.

mod lookup;
mod publish;
mod replay;
mod write;

use std::time::Duration;

use anyhow::{Context as _, bail};
use strandline_conn::ConnectionConfig;
use strandline_meta::{Cluster, ClusterConfig};
use tokio::runtime::Builder;
use tokio::time::Instant;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // One thread carries what one socket brings; the others would only be woken for it.
    let single = || Builder::new_current_thread().enable_all().build();
    let many = || Builder::new_multi_thread().enable_all().build();
    let told = match *arguments {
        ["replay"] => many()?.block_on(replay::run())?,
        ["lookup", segments] => many()?.block_on(lookup::run(number(segments)?))?,
        ["publish", "one"] => single()?.block_on(publish::one(2_000))?,
        ["publish", "one", events] => single()?.block_on(publish::one(number(events)?))?,
        ["publish", "many"] => single()?.block_on(publish::many(100_000))?,
        ["publish", "many", events] => single()?.block_on(publish::many(number(events)?))?,
        ["write"] => single()?.block_on(write::run(2_000))?,
        ["write", events] => single()?.block_on(write::run(number(events)?))?,
        _ => bail!(
            "usage: strandline-bench replay | lookup SEGMENTS | publish one [N] | publish many [N] | write [N]"
        ),
    };
    print(&told);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result is what this is run for")]
fn print(told: &serde_json::Value) {
    println!("{told}");
}

fn number(text: &str) -> anyhow::Result<usize> {
    text.parse().with_context(|| format!("{text} is no number"))
}

/// A variable of the environment.
fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

async fn connect() -> anyhow::Result<Cluster> {
    let bootstrap = variable("BOOTSTRAP")?.parse()?;
    let config = ClusterConfig::new([bootstrap], ConnectionConfig::default()).read_write();
    Ok(Cluster::connect(config, soon()).await?)
}

/// A number of this process as the kernel tells it, in KiB: `VmHWM` is the most memory it ever had, `VmRSS` what it has now.
fn memory_kb(name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.with_context(|| format!("the kernel tells no {name}"))?.parse()?)
}

/// Percentiles of waits, in microseconds.
fn percentiles(mut waits: Vec<Duration>) -> (f64, f64) {
    waits.sort_unstable();
    let at = |percent: usize| waits[waits.len() * percent / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}

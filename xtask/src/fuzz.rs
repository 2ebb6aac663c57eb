//! `cargo xtask fuzz`: libFuzzer on the decoders, with the stable compiler.
//!
//! The targets are in `fuzz/`, a workspace of its own. A target that finds something leaves the input in
//! `fuzz/artifacts/`; `fuzz/target/TRIPLE/release/NAME FILE` runs that input again. Inputs that reach new code are
//! kept in `fuzz/corpus/`, and the next run begins with them: delete it to repeat a run by its seed.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use strandline_tier::RecordValue;
use strandline_tier::json::{EventPosition, write_event};

const TARGETS: &[&str] = &["messages", "batches", "events"];

/// Coverage that guides libFuzzer: what `cargo fuzz` asks for, without the sanitizers, which need a nightly
/// compiler. The targets themselves count what a decoder allocates.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 16 * 1024;

/// What a target may hold, libFuzzer's own tables included.
const RSS_MB_MAX: u32 = 1024;

/// An input that takes longer than this is a finding.
const INPUT_SECONDS_MAX: u32 = 10;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// Repeat a run that began with this seed [default: another one each time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seed: Option<u32>,
    /// The targets to run [default: all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
}

/// What a machine lacks to fuzz, in words; `None` where nothing is lacking.
pub(crate) fn lacking() -> Option<String> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
    let runs = Command::new(&compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    (!runs).then(|| {
        format!(
            "libFuzzer needs a C++ compiler, and {} does not run (CXX names another one)",
            compiler.display()
        )
    })
}

/// Another number, never 0, in every process.
pub(crate) fn random_seed() -> u32 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random as u32).max(1)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(lacking) = lacking() {
        bail!("{lacking}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let folder = root.join("fuzz");
    let host = host()?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--target", &host])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("RUSTFLAGS", RUSTFLAGS)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets do not build: {status}");

    let seed = options.seed.unwrap_or_else(random_seed);
    let chosen: Vec<&str> = match options.targets.as_slice() {
        [] => TARGETS.to_vec(),
        targets => targets.iter().map(String::as_str).collect(),
    };
    for &target in &chosen {
        println!("\n== {target}: {} s with --seed {seed}", options.seconds);
        one(root, &host, target, options.seconds, seed)?;
    }
    println!("\nnothing found by {} in {} s each (--seed {seed})", chosen.join(", "), options.seconds);
    Ok(())
}

fn one(root: &Path, host: &str, target: &str, seconds: u32, seed: u32) -> Result<()> {
    let folder = root.join("fuzz");
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts");
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    for (name, bytes) in seeds(root, target)? {
        std::fs::write(corpus.join(format!("seed-{name}")), bytes)?;
    }
    let status = Command::new(folder.join("target").join(host).join("release").join(target))
        .arg(format!("-seed={seed}"))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-rss_limit_mb={RSS_MB_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-artifact_prefix={}/{target}-", artifacts.display()))
        .args(["-print_final_stats=1", "-verbosity=0"])
        .arg(&corpus)
        .status()
        .with_context(|| format!("cannot run the target {target}"))?;
    if !status.success() {
        bail!("{target} found something ({status}); the input is in {}; seed {seed}", artifacts.display());
    }
    Ok(())
}

/// Inputs to begin with: what Apache Kafka wrote, behind the byte that chooses what a target does with it.
fn seeds(root: &Path, target: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    match target {
        "batches" => {
            for entry in std::fs::read_dir(root.join("crates/protocol/tests/data"))? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.ends_with(".log") {
                    seeds.push((name, [vec![0], std::fs::read(&path)?].concat()));
                }
            }
        }
        "events" => {
            let golden = std::fs::read(root.join("tests/golden/golden-events.json"))?;
            let golden: serde_json::Value = serde_json::from_slice(&golden)?;
            let vectors = golden["vectors"].as_array().context("the golden events have vectors")?;
            for (index, vector) in vectors.iter().enumerate() {
                let value = unhex(vector["hex"].as_str().context("a vector has hex")?)?;
                let mut line = vec![1];
                let event = RecordValue::from_value(Some(&value));
                write_event(&mut line, &EventPosition::default(), &event);
                seeds.push((format!("line-{index}"), line));
                seeds.push((format!("value-{index}"), [vec![0], value].concat()));
            }
        }
        _ => {}
    }
    Ok(seeds)
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(std::str::from_utf8).collect::<Result<Vec<_>, _>>()?;
    Ok(digits.into_iter().map(|pair| u8::from_str_radix(pair, 16)).collect::<Result<_, _>>()?)
}

/// The triple of this machine, named to cargo so that build scripts are not instrumented.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

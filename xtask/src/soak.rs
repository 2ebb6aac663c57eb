//! `cargo xtask soak`: the embedded cluster under random faults, with many callers, for as long as you like.
//!
//! What is held, and how, stands at the head of `crates/client/tests/soak/main.rs`. `cargo xtask test` runs the short form.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::fuzz::random_seed;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long rounds begin for each seed; the last one is finished
    #[arg(long, value_name = "N", default_value_t = 120)]
    seconds: u64,
    /// The first seed [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// How many seeds, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let first = options.seed.unwrap_or_else(random_seed);
    for seed in (0..options.seeds).map(|nth| first.wrapping_add(nth)) {
        println!("== soak with seed {seed} for {} s", options.seconds);
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "test",
                "--quiet",
                "--package",
                "strandline-client",
                "--test",
                "soak",
                "--",
                "--nocapture",
            ])
            .env("STRANDLINE_SOAK_SECONDS", options.seconds.to_string())
            .env("STRANDLINE_SOAK_SEED", seed.to_string())
            .status()
            .context("cannot run cargo")?;
        let repeat = format!("cargo xtask soak --seconds {} --seed {seed}", options.seconds);
        ensure!(
            status.success(),
            "seed {seed} found something: {status}; {repeat} brings the same faults again"
        );
    }
    println!("{} seeds found nothing", options.seeds);
    Ok(())
}

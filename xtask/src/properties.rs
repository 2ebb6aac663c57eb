//! `cargo xtask properties`: the long form of the property tests, the published codec as an oracle among them.
//!
//! Each round runs the tests of every package that has properties with the next seed, which is printed; a round with
//! that seed finds the same again.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::fuzz::random_seed;

/// The packages whose tests have properties.
const PACKAGES: &[&str] = &[
    "strandline-protocol",
    "strandline-conn",
    "strandline-meta",
    "strandline-tier",
    "strandline-log",
    "strandline-rlmm",
    "strandline-store",
    "strandline-audit",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long rounds begin; the last one is finished
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// The seed of the first round [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// The packages to test [default: all that have properties]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(PACKAGES))]
    packages: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let packages: Vec<&str> = match options.packages.as_slice() {
        [] => PACKAGES.to_vec(),
        packages => packages.iter().map(String::as_str).collect(),
    };
    let mut seed = options.seed.unwrap_or_else(random_seed);
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < until {
        println!("== properties with seed {seed}");
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["test", "--quiet", "--lib", "--tests"])
            .args(packages.iter().flat_map(|package| ["--package", package]))
            .env("PROPTEST_RNG_SEED", seed.to_string())
            .status()
            .context("cannot run cargo")?;
        ensure!(
            status.success(),
            "seed {seed} found something: {status}; cargo xtask properties --seed {seed} repeats it"
        );
        seed = seed.wrapping_add(1);
        rounds += 1;
    }
    println!("{rounds} rounds found nothing");
    Ok(())
}

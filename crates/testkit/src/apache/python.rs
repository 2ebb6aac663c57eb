//! Clients of other languages: a Python with a package of PyPI.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::Context as _;

use super::distribution::cache_folder;
use super::run::run_well;

const INSTALL_WITHIN: Duration = Duration::from_secs(300);
const RUN_WITHIN: Duration = Duration::from_secs(120);

/// A Python that has a package, on this machine.
#[derive(Clone, Debug)]
pub struct Python {
    environment: PathBuf,
}

/// Makes a virtual environment with a package, `NAME==VERSION`, in the cache folder, unless it is there.
///
/// # Errors
/// There is no `python3` with its modules `venv` and `ensurepip` (Debian has them in `python3-venv`), or the package cannot
/// be fetched.
pub fn python_with(package: &str) -> anyhow::Result<Python> {
    let cache = cache_folder()?;
    let environment = cache.join(format!("python-{package}"));
    if environment.is_dir() {
        return Ok(Python { environment });
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let lock = File::create(cache.join("python.lock"))?;
    lock.lock().context("cannot lock the cache")?;
    if !environment.is_dir() {
        let partial = Python { environment: cache.join("python.partial") };
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(&partial.environment);
        run_well(&mut venv, INSTALL_WITHIN).context("python3 cannot make a virtual environment")?;
        let mut install = partial.command();
        install.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", package]);
        run_well(&mut install, INSTALL_WITHIN).with_context(|| format!("cannot fetch {package}"))?;
        // Its Python finds its packages from where it lies itself, so that it can be moved.
        fs::rename(&partial.environment, &environment)?;
    }
    Ok(Python { environment })
}

impl Python {
    fn command(&self) -> Command {
        Command::new(self.environment.join("bin/python"))
    }

    /// Runs a script to its end; a failure is an error that shows what it wrote.
    pub fn run(&self, script: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
        run_well(self.command().arg(script).args(arguments), RUN_WITHIN)
    }
}

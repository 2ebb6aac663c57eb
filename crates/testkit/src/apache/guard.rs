//! Ends brokers and tools when the test's process ends in any way.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

/// Each line replaces the list of processes; the end of the input kills them and removes the directory.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r line; do processes=$line; done
[ -z "$processes" ] || kill -KILL $processes 2>/dev/null
[ -z "$1" ] || rm -rf -- "$1"
"#;

/// A shell that waits until its input is closed: by dropping this, or by the end of this process.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    watched: Mutex<Watched>,
}

#[derive(Debug)]
struct Watched {
    /// `None` once it is closed.
    input: Option<ChildStdin>,
    process_ids: Vec<u32>,
}

impl Guard {
    /// The directory is removed at the end, unless `STRANDLINE_KEEP_KAFKA=1`.
    pub(crate) fn start(directory: &Path) -> anyhow::Result<Self> {
        let keep = std::env::var_os("STRANDLINE_KEEP_KAFKA").is_some_and(|value| value == "1");
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "guard"])
            .arg(if keep { Path::new("") } else { directory })
            // A group of its own: a signal to the test's group must not end the guard first.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run sh")?;
        let input = child.stdin.take();
        Ok(Self { child, watched: Mutex::new(Watched { input, process_ids: Vec::new() }) })
    }

    /// This process is to end with the test.
    pub(crate) fn watch(&self, process_id: u32) -> anyhow::Result<()> {
        self.change(|ids| ids.push(process_id))
    }

    /// This process has ended, and its id may soon be another's.
    pub(crate) fn forget(&self, process_id: u32) -> anyhow::Result<()> {
        self.change(|ids| ids.retain(|&id| id != process_id))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u32>)) -> anyhow::Result<()> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut watched.process_ids);
        let ids: Vec<String> = watched.process_ids.iter().map(u32::to_string).collect();
        let input = watched.input.as_mut().expect("the input is closed by dropping only");
        input.write_all(format!("{}\n", ids.join(" ")).as_bytes()).context("the guard ended too early")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.watched.get_mut().unwrap_or_else(PoisonError::into_inner).input = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_the_pipe_closes_the_watched_processes_end_and_the_directory_goes() {
        let directory = tempfile::tempdir().unwrap().keep();
        let sleeper = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut watched, mut forgotten) = (sleeper(), sleeper());
        let guard = Guard::start(&directory).unwrap();
        guard.watch(watched.id()).unwrap();
        guard.watch(forgotten.id()).unwrap();
        guard.forget(forgotten.id()).unwrap();
        drop(guard);
        assert_eq!(watched.wait().unwrap().code(), None, "a signal ended it");
        assert!(!directory.exists());
        assert_eq!(forgotten.try_wait().unwrap(), None, "a process that is no longer listed is left alone");
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }
}

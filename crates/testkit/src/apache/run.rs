//! Processes and waits that are bounded in time.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::guard::Guard;

/// How long between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks again and again until the condition gives a value; an error of the condition ends the wait.
///
/// `what` completes "timed out waiting for".
pub fn wait_for<T>(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().with_context(|| format!("waiting for {what}"))? {
            return Ok(value);
        }
        if start.elapsed() > within {
            bail!("timed out after {within:?} waiting for {what}");
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Runs a process to its end and returns what it wrote; kills it when it takes longer than that.
///
/// A guard ends it with the test.
pub(crate) fn run(command: &mut Command, within: Duration, guard: Option<&Guard>) -> anyhow::Result<Output> {
    let name = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let id = child.id();
    guard.map_or(Ok(()), |guard| guard.watch(id))?;
    let output = output_within(&mut child, &name, within);
    guard.map_or(Ok(()), |guard| guard.forget(id))?;
    output
}

/// The process has ended and been waited for when this returns.
fn output_within(child: &mut Child, name: &str, within: Duration) -> anyhow::Result<Output> {
    let stdout = read_in_thread(child.stdout.take().expect("stdout is a pipe"));
    let stderr = read_in_thread(child.stderr.take().expect("stderr is a pipe"));
    let start = Instant::now();
    let stdout = stdout.recv_timeout(within);
    let stderr = stderr.recv_timeout(within.saturating_sub(start.elapsed()));
    let (Ok(stdout), Ok(stderr)) = (stdout, stderr) else {
        child.kill()?;
        child.wait()?;
        bail!("{name} took longer than {within:?}");
    };
    Ok(Output { status: child.wait()?, stdout, stderr })
}

fn read_in_thread(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until an error is all there is; the process's status tells the rest.
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// Like [`run`], and a failure of the process is an error that shows what it wrote.
pub(crate) fn run_well(command: &mut Command, within: Duration) -> anyhow::Result<Output> {
    let output = run(command, within, None)?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

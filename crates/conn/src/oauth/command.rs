//! Tokens from a program's standard output.

use std::fs::File;
use std::future::pending;
use std::io::{self, Read as _};
use std::process::Stdio;

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout, Command};

use super::{BearerToken, TokenError, TokenFuture, TokenProvider};

/// The longest output that is read, in bytes. Tokens are below 16 KiB.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A program that prints a token to its standard output and ends with success. It is run for each token, without a shell and
/// without input; what it prints to standard error is seen where ours is. `Debug` hides the arguments, which may be secret.
///
/// It runs in a process group of its own. One that is given up, or takes too long, is ended with all that it started in that
/// group. Once the program itself has ended, what it printed is the token: nobody waits for what it left in the background.
#[derive(Clone)]
pub struct TokenCommand {
    program: String,
    arguments: Vec<String>,
}

impl std::fmt::Debug for TokenCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

impl TokenCommand {
    /// A program, by its path or its name in `PATH`, with its arguments.
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    async fn run(&self) -> Result<BearerToken, TokenError> {
        let failed = |source| TokenError::Command { program: self.program.clone(), source };
        let mut running = Running(
            Command::new(&self.program)
                .args(&self.arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
                .map_err(failed)?,
        );
        let mut stdout = running.0.stdout.take();
        let mut output = Vec::new();
        let status = loop {
            let read = async {
                match &mut stdout {
                    Some(pipe) => pipe.read_buf(&mut output).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                read = read => match read.map_err(failed)? {
                    0 => stdout = None,
                    _ => bounded(&output)?,
                },
                status = running.0.wait() => break status.map_err(failed)?,
            }
        };
        if let Some(pipe) = stdout {
            read_what_is_there(pipe, &mut output).map_err(failed)?;
            bounded(&output)?;
        }
        if !status.success() {
            return Err(TokenError::CommandFailed { program: self.program.clone(), status });
        }
        let text = std::str::from_utf8(&output).map_err(|_| TokenError::Malformed("it is not text"))?;
        BearerToken::new(text)
    }
}

impl TokenProvider for TokenCommand {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(self.run())
    }
}

/// A command under way.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A process that was waited for has no id any more: another may have got it.
        let group = self.0.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(group) = group
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "the group of a token command that was given up cannot be ended");
        }
    }
}

fn bounded(output: &[u8]) -> Result<(), TokenError> {
    match output.len() > OUTPUT_BYTES_MAX {
        true => Err(TokenError::Malformed("it is longer than 1 MiB")),
        false => Ok(()),
    }
}

/// Reads what a program that has ended left in its pipe, which others may still hold open. Does not wait.
fn read_what_is_there(pipe: ChildStdout, output: &mut Vec<u8>) -> io::Result<()> {
    let mut pipe = File::from(pipe.into_owned_fd()?);
    let waiting = ioctl_fionread(&pipe)?;
    pipe.by_ref().take(waiting).read_to_end(output)?;
    Ok(())
}

//! The command `strandline`: reads, judges and explains Kafka tiered storage.
//!
//! [`args`] is the command line, [`exit`] the table of exit codes. A command in `commands/` asks a source in
//! `sources/` for what is known, and renders it through [`output`]; [`config`] says how to reach a cluster.

mod address;
mod args;
mod commands;
mod config;
mod decode;
mod event_file;
mod event_line;
mod exit;
mod interrupt;
mod judge;
mod moment;
mod output;
mod parallel;
mod positions;
mod progress;
mod segment_row;
mod sources;
mod text;

use std::io::Write as _;
use std::process::ExitCode;

use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    explain_panics();
    let cli = args::parse();
    listen_to_the_crates(cli.display.verbose);
    interrupt::install();
    let exit = match commands::run(cli) {
        Ok(exit) => exit,
        Err(failure) => {
            if !failure.quiet {
                tell(&failure);
            }
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

/// The error with its causes, then what to do about it. Foreign text in it cannot steer a terminal.
fn tell(failure: &Failure) {
    let mut text = format!("error: {failure}\n");
    for hint in &failure.hints {
        text.push_str(&format!("hint: {hint}\n"));
    }
    // Without a reader of stderr the exit code still speaks.
    let _ = std::io::stderr().write_all(text::escape_lines(&text).as_bytes());
}

/// A panic is a defect of this program, so it says that, and what to do. The exit code is 101.
fn explain_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        let _ = writeln!(std::io::stderr(), "error: this is {}", Exit::Bug.meaning());
    }));
}

/// What the crates below have to say goes to stderr: warnings always, more with `-v` and `-vv`.
fn listen_to_the_crates(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
}

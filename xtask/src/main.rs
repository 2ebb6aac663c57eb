//! The project's own commands: `cargo xtask COMMAND`.

#![expect(clippy::print_stdout, reason = "a command talks on stdout")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod example;
mod fuzz;
mod golden;
mod kill;
mod properties;
mod protocol;
mod soak;
mod test;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate the messages of `crates/protocol` from Kafka's own schemas
    Protocol(protocol::Options),
    /// Hold the code against Kafka's answers: every golden-*.json of a folder
    Golden(golden::Options),
    /// Write the directories under `examples/` anew with a real Apache Kafka
    Example,
    /// Let libFuzzer look for bytes that break a decoder
    Fuzz(fuzz::Options),
    /// Kill a remote log metadata manager at random moments, and hold its answers after each start against the log
    Kill(kill::Options),
    #[command(hide = true)]
    KillVictim(kill::Victim),
    /// Run the property tests again and again, each time with another seed
    Properties(properties::Options),
    /// Let random faults befall an embedded cluster while many callers ask
    Soak(soak::Options),
    /// Run every check and test, those on a real Apache Kafka included
    Test,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Protocol(options) => protocol::run(&options),
        Command::Golden(options) => golden::run(&options.dir),
        Command::Example => example::run(),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Kill(options) => kill::run(&options),
        Command::KillVictim(victim) => kill::live(&victim),
        Command::Properties(options) => properties::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Test => test::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! One file per command: asks for what is known, renders it.

mod audit;
mod decode;
mod demo;
mod doctor;
mod events;
mod explain;
mod publish;
mod rules;
mod segments;
mod status;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::moment::Clock;
use crate::output::Output;

/// Runs the command of this command line.
pub(crate) fn run(cli: Cli) -> Result<Exit, Failure> {
    let clock = Clock::new(cli.display.now.as_deref(), cli.display.tz.as_deref()).map_err(Failure::usage)?;
    let mut output = Output::new(&cli.display, clock);
    let exit = match cli.command {
        Command::Demo(args) => demo::run(&args, &cli.display, &mut output),
        Command::Status(args) => status::run(&args, &cli.display, &mut output),
        Command::Segments(args) => segments::run(&args, &cli.display, &mut output),
        Command::Explain(args) => explain::run(&args, &cli.display, &mut output),
        Command::Audit(args) => audit::run(&args, &cli.display, &mut output),
        Command::Rules(args) => rules::run(&args, &mut output),
        Command::Events(args) => events::run(&args, &cli.display, &mut output),
        Command::Decode(args) => decode::run(&args, &mut output),
        Command::Doctor(args) => doctor::run(&args, &mut output),
        Command::Publish(args) => publish::run(&args, &cli.display, &mut output),
    }?;
    output.flush()?;
    Ok(exit)
}

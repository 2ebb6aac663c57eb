//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;

/// The command line of this process; one that cannot be used ends the process with its usage (exit 2).
///
/// One segment id in 64 begins with a hyphen and looks like flags. Where the words as they stand are no command line,
/// they are read once more with such words as `id:` addresses. (clap's `allow_hyphen_values` is no way: a list of
/// addresses would swallow the flags behind it.)
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let words = std::env::args_os().map(|word| match word.to_str() {
            Some(text) if is_hyphenated_id(text) => format!("id:{text}").into(),
            _ => word,
        });
        Cli::try_parse_from(words).unwrap_or_else(|_| error.exit())
    })
}

fn is_hyphenated_id(word: &str) -> bool {
    word.starts_with('-') && word.parse::<strandline_protocol::Uuid>().is_ok()
}

/// Reads, judges and explains Kafka tiered storage (KIP-405). Reads only, but for commands that say that they write.
#[derive(Debug, Parser)]
#[command(name = "strandline", version, after_help = exit::help_table(), max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) display: DisplayArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How results are shown.
#[derive(Debug, Args)]
pub(crate) struct DisplayArgs {
    /// Form of the output
    #[arg(short, long, global = true, value_enum, default_value_t = OutputKind::Table)]
    pub(crate) output: OutputKind,
    /// Sizes to the byte instead of in IEC units
    #[arg(long, global = true)]
    pub(crate) bytes: bool,
    /// Zone of the times on screens: a name such as Europe/Berlin, or `local`; machine output is always UTC
    #[arg(long, global = true, value_name = "ZONE")]
    pub(crate) tz: Option<String>,
    /// Takes TIME (RFC 3339) for now, so that a run can be repeated
    #[arg(long, global = true, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// How long work shows itself on stderr
    #[arg(long, global = true, value_enum, default_value_t = ProgressKind::Auto)]
    pub(crate) progress: ProgressKind,
    /// Says more: all proofs of findings, notes on stderr; twice for those of the connection
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputKind {
    /// For people; on a terminal cut to its width
    Table,
    /// As table, with more columns, and never cut
    Wide,
    /// One JSON document
    Json,
    /// JSON lines: a header, rows, a summary
    Jsonl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressKind {
    /// A bar on a terminal, else a line every 10 seconds
    Auto,
    /// A line every 10 seconds
    Plain,
    /// A JSON line every 10 seconds
    Json,
    /// Nothing
    None,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A broken tier on a cluster in this process, and what there is to see of it
    Demo(DemoArgs),
    /// One screen: what is tiered, what is wrong, what to do
    Status(StatusArgs),
    /// The segments of a topic, a partition or a pattern
    Segments(SegmentsArgs),
    /// The decoded records of the metadata topic
    Events(EventsArgs),
    /// What serves an offset, or the exact reason why nothing does; what a segment or an object is
    Explain(ExplainArgs),
    /// All findings
    Audit(AuditArgs),
    /// The catalogue of findings: meaning, effect, causes, what to do
    Rules(RulesArgs),
    /// Any single artefact: a log segment, an index, a checkpoint, a raw event in hex
    Decode(DecodeArgs),
    /// Connection, cluster, rights, metadata topic: a verdict for each, and what to do
    Doctor(DoctorArgs),
    /// Appends events of a file to the metadata topic, after checking each against the log (writes: Kafka)
    Publish(PublishArgs),
}

/// Where the facts come from.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sources")]
pub(crate) struct SourceArgs {
    /// A live cluster
    #[arg(short, long, value_name = "HOST:PORT,…")]
    pub(crate) bootstrap_server: Option<String>,
    /// A broker's data directory, read without a broker; repeat it for several disks or brokers
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Vec<PathBuf>,
    /// A file of events as `events -o jsonl` prints them; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The metadata topic
    #[arg(long, value_name = "NAME", default_value = "__remote_log_metadata")]
    pub(crate) metadata_topic: String,
    /// How many partitions the brokers are configured to expect in the metadata topic
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) metadata_partitions: Option<i32>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Where the objects are.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StoreArgs {
    /// The object store: file://DIR, where DIR is the storage plugin's directory
    #[arg(long = "store", value_name = "URL", help_heading = "Sources")]
    pub(crate) url: Option<String>,
    /// How keys are made in the store
    #[arg(long, value_name = "NAME", requires = "url", help_heading = "Sources")]
    pub(crate) layout: Option<String>,
}

/// What is looked at.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SelectionArgs {
    /// TOPIC, TOPIC:P, a glob, or /regex/; everything when none is given
    #[arg(value_name = "ADDR")]
    pub(crate) addresses: Vec<String>,
    /// Leaves out topics
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Reads fail or will fail
    Damage,
    /// Something is about to go wrong
    Risk,
    /// Money or disk for nothing
    Cost,
    /// Anything at all
    Info,
    /// Findings do not change the exit code
    Never,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leaves the cluster and the store there for your own commands, until Ctrl-C
    #[arg(long)]
    pub(crate) keep: bool,
    /// Another tier; the same number gives the same one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Exit code 1 when there is a finding of this severity or worse
    #[arg(long, value_enum, default_value_t = FailOn::Never)]
    pub(crate) fail_on: FailOn,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SegmentsArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Only segments in these states (or `all`, with the deleted ones)
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    pub(crate) state: Vec<StateFilter>,
    /// Only segments with an event at or after TIME
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Also the leader epochs of each segment
    #[arg(long)]
    pub(crate) epochs: bool,
    /// Only segments that share offsets of one leader epoch with another
    #[arg(long)]
    pub(crate) overlaps: bool,
    /// Only segments beside offsets that no segment holds
    #[arg(long)]
    pub(crate) gaps: bool,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateFilter {
    #[value(name = "COPY_SEGMENT_STARTED", alias = "copy-started", alias = "copy_segment_started")]
    CopySegmentStarted,
    #[value(name = "COPY_SEGMENT_FINISHED", alias = "copy-finished", alias = "copy_segment_finished")]
    CopySegmentFinished,
    #[value(name = "DELETE_SEGMENT_STARTED", alias = "delete-started", alias = "delete_segment_started")]
    DeleteSegmentStarted,
    #[value(name = "DELETE_SEGMENT_FINISHED", alias = "delete-finished", alias = "delete_segment_finished")]
    DeleteSegmentFinished,
    #[value(name = "all")]
    All,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Goes on with what is written from now on, until Ctrl-C; `--from latest` shows nothing older
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Where to begin: TIME, earliest, latest, or METADATA_PARTITION:OFFSET
    #[arg(long, value_name = "X", default_value = "earliest")]
    pub(crate) from: String,
    /// Where to end (not included): TIME, earliest, latest, or METADATA_PARTITION:OFFSET [default: latest]
    #[arg(long, value_name = "X", conflicts_with = "follow")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// TOPIC:P@OFFSET, TOPIC:P@TIME, TOPIC:P, a segment id, or an object key
    #[arg(value_name = "ADDR")]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// How deep to look [default: objects where a store is given, else metadata]
    #[arg(long, value_enum)]
    pub(crate) level: Option<Level>,
    /// Exit code 1 when there is a finding of this severity or worse
    #[arg(long, value_enum, default_value_t = FailOn::Risk)]
    pub(crate) fail_on: FailOn,
    /// Changes a limit: copy-stuck=1h (see `rules list`)
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) limit: Vec<String>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Level {
    /// Events and cluster facts
    Metadata,
    /// Also the presence and size of objects
    Objects,
}

/// How to get to the cluster.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Kafka client configuration: Java's client.properties or librdkafka's keys
    #[arg(short = 'F', long, value_name = "FILE")]
    pub(crate) command_config: Option<PathBuf>,
    /// One setting by its Kafka name; wins over the environment and -F
    #[arg(short = 'X', value_name = "KEY=VALUE")]
    pub(crate) x: Vec<String>,
    /// Makes an unknown configuration key an error
    #[arg(long)]
    pub(crate) strict_config: bool,
    /// Hears no environment variable: the demonstration's cluster is not the one that they are about.
    #[arg(skip)]
    pub(crate) deaf_to_environment: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The cluster
    #[arg(short, long, value_name = "HOST:PORT,…")]
    pub(crate) bootstrap_server: Option<String>,
    /// The metadata topic
    #[arg(long, value_name = "NAME", default_value = "__remote_log_metadata")]
    pub(crate) metadata_topic: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The events, as `events -o jsonl` prints them; `-` is stdin
    pub(crate) file: PathBuf,
    /// Appends them; without it nothing is written
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Only checks and shows, which is what happens without --yes too
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Confirms that no broker holds the partitions whose deletion the file calls finished: DELETE_PARTITION_FINISHED ends
    /// the reading of one that does
    #[arg(long)]
    pub(crate) no_broker_holds_it: bool,
    /// The cluster
    #[arg(short, long, value_name = "HOST:PORT,…")]
    pub(crate) bootstrap_server: Option<String>,
    /// The metadata topic
    #[arg(long, value_name = "NAME", default_value = "__remote_log_metadata")]
    pub(crate) metadata_topic: String,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    pub(crate) command: RulesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Every code with its severity
    List,
    /// One code: meaning, effect, causes, what to do
    Show {
        /// The code, such as seg.copy-stuck
        code: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// The file; `-` is stdin
    pub(crate) file: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}

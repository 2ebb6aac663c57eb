//! `demo`: a cluster in this process, a tier in which things are broken, and what the command makes of it.
//!
//! `story.rs` says what is broken, `tier.rs` writes it. What is shown of it comes from the commands themselves, run as
//! they are printed: over sockets, through the read-only gate.

mod story;
mod tier;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser as _;
use serde::Serialize;
use strandline_audit::Finding;
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster};

use crate::args::{AuditArgs, Cli, Command, DemoArgs, DisplayArgs, StatusArgs};
use crate::commands::{audit, status};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::judge::Judged;
use crate::output::{About, Form, Grid, Output};
use story::{Planted, Story, TOPICS};

const SCHEMA: &str = "strandline.demo/v1";
/// The oldest record is some days old; this leaves it a year.
const EARLIEST_NOW_MS: i64 = 365 * 24 * tier::HOUR;

/// A cluster with its tier. Dropping it ends the one and removes the other.
struct Shop {
    story: Story,
    bootstrap: String,
    cluster_id: String,
    store: String,
    // In this order: the cluster ends, then what it ran on, then the files go.
    _cluster: EmbeddedCluster,
    _runtime: tokio::runtime::Runtime,
    _directory: Directory,
}

/// A temporary directory that a signal removes as well.
struct Directory(tempfile::TempDir);

impl Directory {
    fn create() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("strandline-demo-").tempdir()?;
        interrupt::remove_at_end(Some(directory.path().to_owned()));
        Ok(Self(directory))
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        interrupt::remove_at_end(None);
    }
}

impl Shop {
    fn open(seed: u64, now_ms: i64) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let directory = Directory::create()?;
        let cluster = {
            let _entered = runtime.enter();
            EmbeddedCluster::start(ClusterOptions { brokers: 3, seed, ..ClusterOptions::default() })?
        };
        let story = runtime.block_on(story::write(&cluster, &directory.path(), seed, now_ms))?;
        Ok(Self {
            story,
            bootstrap: cluster.bootstrap(),
            cluster_id: cluster.cluster_id(),
            store: store_url(&directory.path())?,
            _cluster: cluster,
            _runtime: runtime,
            _directory: directory,
        })
    }

    /// One of the brokers: any of them leads to the others.
    fn first_broker(&self) -> &str {
        self.bootstrap.split(',').next().unwrap_or_default()
    }

    /// The words of a command about this cluster and its store.
    fn words(&self, command: &[&str]) -> Vec<String> {
        let source = ["-b", self.first_broker(), "--store", &self.store, "--layout", "local"];
        std::iter::once(&"strandline").chain(command).chain(&source).map(|word| (*word).to_owned()).collect()
    }
}

/// The URL of a directory, fit for a shell and for [`StoreUrl`](strandline_store::StoreUrl): whatever is not plain is escaped.
fn store_url(directory: &std::path::Path) -> anyhow::Result<String> {
    let path = directory.to_str().context("the temporary directory's name is not UTF-8")?;
    let mut url = "file://".to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => url.push(byte.into()),
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    Ok(url)
}

/// Shows the tier as an operator would see it; with `--keep` leaves it there until Ctrl-C.
pub(crate) fn run(args: &DemoArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    let failed = |error: anyhow::Error| {
        Failure::unreachable(error.context("the demonstration's cluster cannot be set up"))
            .hint("it takes three free ports on 127.0.0.1 and a few megabytes in the temporary directory")
    };
    if output.clock.now_ms < EARLIEST_NOW_MS {
        return Err(Failure::usage(
            "--now is too early: the demonstration's records would be older than 1970",
        ));
    }
    let shop = Shop::open(args.seed, output.clock.now_ms).map_err(failed)?;
    let judged = if output.kind == Form::Table {
        introduce(&shop, args, output)?;
        step(&shop, display, output)?
    } else {
        let args = audit_args(&shop.words(&["audit"]))?;
        audit::look(&args, display, output)?
    };
    if let Some(exit) = judged.collected.ended_by {
        return Ok(exit);
    }
    let rows = compare(&shop.story.planted, &judged.report.findings);
    if output.kind == Form::Table {
        conclude(&rows, args, output)?;
        if args.keep {
            invite(&shop, display, output)?;
        }
    } else {
        machine(&shop, &rows, &judged, args, output)?;
    }
    output.flush()?;
    if let Some(row) = rows.iter().find(|row| !row.found) {
        let what = format!("the demonstration's own damage was not found: {} of {}", row.code, row.place());
        return Err(Failure { exit: Exit::Bug, ..Failure::unreachable(what) });
    }
    if !args.keep {
        return Ok(Exit::Done);
    }
    // Ctrl-C is the end that was asked for.
    match shop._runtime.block_on(interrupt::wait()) {
        Exit::Interrupted => Ok(Exit::Done),
        exit => Ok(exit),
    }
}

fn introduce(shop: &Shop, args: &DemoArgs, output: &mut Output) -> Result<(), Failure> {
    output.paragraph(
        &format!(
            "A shop's Kafka, in this process: three brokers on loopback ports, and a store for the tier beside them. \
             {} things in it were broken on purpose.",
            shop.story.planted.len()
        ),
        "",
    )?;
    output.line("")?;
    let mut grid = Grid::new(&["TOPIC", "PARTITIONS>", "WHAT THERE IS TO KNOW"]).with_prose();
    for topic in &TOPICS {
        grid.row(vec![topic.name.to_owned(), topic.partitions.to_string(), topic.about.to_owned()]);
    }
    output.table(&grid)?;
    if args.seed != 1 {
        output.line(&format!("Seed {}.", args.seed))?;
    }
    output.line("")?;
    Ok(())
}

/// Runs `status`, then `audit`, each below the command line that does the same.
fn step(shop: &Shop, display: &DisplayArgs, output: &mut Output) -> Result<Judged, Failure> {
    let words = shop.words(&["status"]);
    output.heading(&format!("$ {}", words.join(" ")))?;
    status::run(&status_args(&words)?, display, output)?;
    output.line("")?;
    output.flush()?;
    let words = shop.words(&["audit"]);
    output.heading(&format!("$ {}", words.join(" ")))?;
    let judged = audit::show(&audit_args(&words)?, display, output)?;
    output.line("")?;
    Ok(judged)
}

/// What clap makes of a command line, without the user's environment.
fn parse(words: &[String]) -> Result<Command, Failure> {
    let cli = Cli::try_parse_from(words).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(cli.command)
}

fn status_args(words: &[String]) -> Result<StatusArgs, Failure> {
    let Command::Status(mut args) = parse(words)? else { unreachable!("the words say status") };
    args.source.config.deaf_to_environment = true;
    Ok(args)
}

fn audit_args(words: &[String]) -> Result<AuditArgs, Failure> {
    let Command::Audit(mut args) = parse(words)? else { unreachable!("the words say audit") };
    args.source.config.deaf_to_environment = true;
    Ok(args)
}

/// One planted damage, held against what was found.
#[derive(Debug, Serialize)]
struct Row {
    code: &'static str,
    severity: &'static str,
    topic: Option<&'static str>,
    partition: Option<i32>,
    segment_id: Option<String>,
    start_offset: Option<i64>,
    end_offset: Option<i64>,
    what: &'static str,
    found: bool,
}

impl Row {
    fn place(&self) -> String {
        match (self.topic, self.partition) {
            (Some(topic), Some(partition)) => format!("{topic}:{partition}"),
            (Some(topic), None) => topic.to_owned(),
            (None, _) => "metadata topic".to_owned(),
        }
    }
}

fn compare(planted: &[Planted], findings: &[Finding]) -> Vec<Row> {
    let row = |planted: &Planted| Row {
        code: planted.code,
        severity: strandline_audit::rule(planted.code).map_or("", |rule| rule.severity.as_str()),
        topic: planted.topic,
        partition: planted.partition,
        segment_id: planted.segment_id.map(|id| id.to_string()),
        start_offset: planted.offsets.map(|(start, _)| start),
        end_offset: planted.offsets.map(|(_, end)| end),
        what: planted.what,
        found: findings.iter().any(|finding| is(planted, finding)),
    };
    planted.iter().map(row).collect()
}

/// True where the finding is about the planted damage: code and place are the same.
fn is(planted: &Planted, finding: &Finding) -> bool {
    let offsets = finding.start_offset.zip(finding.end_offset);
    (finding.code, finding.topic.as_deref(), finding.partition)
        == (planted.code, planted.topic, planted.partition)
        && planted.segment_id.is_none_or(|id| finding.segment_id == Some(id))
        && planted.offsets.is_none_or(|planted| offsets == Some(planted))
}

fn conclude(rows: &[Row], args: &DemoArgs, output: &mut Output) -> Result<(), Failure> {
    output.heading("What had been broken")?;
    let mut grid = Grid::new(&["CODE", "WHERE", "WHAT HAPPENED"]).with_prose();
    for row in rows {
        grid.row(vec![row.code.to_owned(), row.place(), row.what.to_owned()]);
    }
    output.table(&grid)?;
    let found = rows.iter().filter(|row| row.found).count();
    output.line(&format!("{found} of {} were found.", rows.len()))?;
    output.line("")?;
    if !args.keep {
        output.paragraph(
            "`strandline demo --keep` leaves the cluster there for your own commands; --seed N makes another one.",
            "",
        )?;
    }
    Ok(())
}

/// What can be asked of the cluster that stays.
fn invite(shop: &Shop, display: &DisplayArgs, output: &mut Output) -> Result<(), Failure> {
    let (gap, offset) = shop.story.gap;
    output.heading("The cluster stays until Ctrl-C. In another terminal:")?;
    let now = display.now.as_deref().map(|now| format!(" --now {now}")).unwrap_or_default();
    let store = format!("--store {} --layout local", shop.store);
    output.line(&format!("  export STRANDLINE_BOOTSTRAP_SERVER={}", shop.bootstrap))?;
    for (command, about) in [
        (format!("status {store}"), "the screen above"),
        (format!("audit orders shipments {store}"), "the healthy topics"),
        (format!("segments inventory:{gap} --gaps"), "the neighbours of what is lost"),
        (format!("explain inventory:{gap}@{offset}"), "why nothing serves this offset"),
        (format!("explain payments:{}", shop.story.stuck), "why nothing more is uploaded"),
        ("events -f --from latest".to_owned(), "the metadata topic, as it grows"),
        ("rules show part.gap".to_owned(), "what a finding means"),
    ] {
        output.line(&format!("  strandline {command}{now}  # {about}"))?;
    }
    Ok(())
}

/// The demonstration in one row.
#[derive(Serialize)]
struct Item<'a> {
    bootstrap_server: &'a str,
    store: &'a str,
    layout: &'static str,
    seed: u64,
    kept: bool,
    healthy_topics: Vec<&'static str>,
    planted: &'a [Row],
}

fn machine(
    shop: &Shop,
    rows: &[Row],
    judged: &Judged,
    args: &DemoArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let about = About {
        cluster_id: Some(shop.cluster_id.clone()),
        ..judged.collected.about(SCHEMA, output.clock.now_ms)
    };
    let healthy = TOPICS.iter().filter(|topic| topic.healthy).map(|topic| topic.name).collect();
    let item = Item {
        bootstrap_server: &shop.bootstrap,
        store: &shop.store,
        layout: "local",
        seed: args.seed,
        kept: args.keep,
        healthy_topics: healthy,
        planted: rows,
    };
    output.machine(&about, [item])?;
    Ok(())
}

//! `doctor`: the way to the cluster, the cluster, the rights, the metadata topic; a verdict for each, and what to do.
//!
//! It does what the other commands do, one step after the other, and goes on where they would stop. Every step has a
//! deadline; nothing is written, and no secret is shown.

mod certificate;
mod check;
mod cluster;
mod connection;
mod metadata_topic;
mod rights;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use strandline_audit::NotChecked;
use strandline_conn::{ConnectionConfig, Security};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig};
use tokio::time::Instant;

use crate::args::DoctorArgs;
use crate::config::{ClientSettings, Settings};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{About, Form, Output};
use crate::sources::{Live, refresh_failure};
use crate::text::{count, escape};
use check::{Check, Section, Verdict};
use rights::{Found, Rights};

const SCHEMA: &str = "strandline.doctor/v1";
/// Most bootstrap addresses that are looked at one by one.
const ADDRESSES_MAX: usize = 16;
/// How long the store may take to show one object.
const STORE_WITHIN: Duration = Duration::from_secs(30);
/// Most rules that the screen names as silenced by one missing right.
const RULES_SHOWN: usize = 6;

/// What is known when the command ends, however it ends.
#[derive(Default)]
struct Report {
    checks: Vec<Check>,
    cluster_id: Option<String>,
    metadata_offsets: BTreeMap<i32, i64>,
}

impl Report {
    /// Takes rows in, and prints them where people read.
    fn add(&mut self, checks: Vec<Check>, output: &mut Output) -> Result<(), Failure> {
        if output.kind == Form::Table {
            show(&checks, output)?;
            output.flush()?;
        }
        self.checks.extend(checks);
        Ok(())
    }

    fn count(&self, verdict: Verdict) -> u64 {
        self.checks.iter().filter(|check| check.verdict == verdict).count() as u64
    }
}

/// Examines, and prints each part as soon as it is known.
pub(crate) fn run(args: &DoctorArgs, output: &mut Output) -> Result<Exit, Failure> {
    let mut settings = Live::settings(args.bootstrap_server.as_deref(), &args.config)?;
    if !settings.names_a_cluster() {
        return Err(Failure::usage("no cluster is named").hint("-b HOST:PORT names one"));
    }
    let client = settings.client();
    let mut report = Report::default();
    report.add(examine_settings(&settings, client.as_ref().err()), output)?;
    let mut ended_by = None;
    if let Ok(client) = client {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::unreachable(anyhow::Error::new(error).context("no runtime for the connections"))
        })?;
        let patient = Patient::new(client, &args.metadata_topic);
        let examined = runtime.block_on(async {
            tokio::select! {
                examined = patient.examine(&mut report, output) => examined.map(|()| None),
                exit = interrupt::wait() => Ok(Some(exit)),
            }
        });
        // A look-up of a name can hang for longer than anybody waits.
        runtime.shutdown_background();
        ended_by = examined?;
    }
    if ended_by.is_none() {
        report.add(store::check(&args.store, STORE_WITHIN).into_iter().collect(), output)?;
        ended_by = interrupt::pending();
    }
    conclude(&report, ended_by, output)
}

/// Each setting in force with its origin, then what is wrong with them.
fn examine_settings(settings: &Settings, wrong: Option<&Failure>) -> Vec<Check> {
    let section = Section::Settings;
    let used = settings
        .used()
        .into_iter()
        .map(|used| Check { origin: Some(used.origin), ..Check::ok(section, used.name, used.value) });
    let warnings =
        settings.warnings.iter().map(|warning| Check::warning(section, "settings", warning.as_str()));
    let wrong = wrong.map(|failure| {
        let help = (!failure.hints.is_empty()).then(|| failure.hints.join("; "));
        Check::failed(section, "settings", failure.exit, failure.to_string()).maybe_help(help)
    });
    used.chain(warnings).chain(wrong).collect()
}

/// Who is examined.
struct Patient<'a> {
    bootstrap: Vec<BrokerAddress>,
    connection: Arc<ConnectionConfig>,
    /// How long a step may take.
    within: Duration,
    metadata_topic: &'a str,
}

impl<'a> Patient<'a> {
    fn new(client: ClientSettings, metadata_topic: &'a str) -> Self {
        let ClientSettings { bootstrap, connection, request_timeout } = client;
        let within = connection.connect_timeout.min(request_timeout);
        Self { bootstrap, connection: Arc::new(connection), within, metadata_topic }
    }

    async fn examine(&self, report: &mut Report, output: &mut Output) -> Result<(), Failure> {
        if !self.ways_in(report, output).await? {
            return self.nothing_more("no bootstrap address leads in", report, output);
        }
        let config = ClusterConfig::new(self.bootstrap.iter().cloned(), (*self.connection).clone());
        let found =
            Cluster::connect(config.request_timeout(self.within), Instant::now() + self.within * 2).await;
        let cluster = match found {
            Ok(cluster) => cluster,
            Err(error) => {
                let failure = refresh_failure(&error);
                let check = Check::failed(Section::Cluster, "cluster", failure.exit, failure.to_string());
                report.add(vec![check.maybe_help(failure.hints.first().cloned())], output)?;
                return self.nothing_more("the cluster cannot be found", report, output);
            }
        };
        report.cluster_id = cluster.snapshot().cluster_id().map(str::to_owned);
        let bootstrap: Vec<String> = self.bootstrap.iter().map(ToString::to_string).collect();
        report.add(cluster::check(&cluster, &self.connection, &bootstrap.join(",")).await, output)?;

        let mut rights = Rights {
            cluster: &cluster,
            principal: self.principal(),
            bootstrap: bootstrap.first().cloned().unwrap_or_default(),
            within: self.within,
            metadata_topic: self.metadata_topic,
            checks: Vec::new(),
            found: Found::default(),
        };
        rights.check().await;
        let Rights { checks, found, .. } = rights;
        report.add(checks, output)?;
        report.metadata_offsets =
            found.marks.iter().flatten().map(|mark| (mark.partition, mark.high_watermark)).collect();
        report.add(metadata_topic::check(&cluster, self.metadata_topic, &found, &output.clock), output)
    }

    /// The steps to each bootstrap address; true where one of them leads in.
    async fn ways_in(&self, report: &mut Report, output: &mut Output) -> Result<bool, Failure> {
        let clock = output.clock.clone();
        let some = self.bootstrap.iter().take(ADDRESSES_MAX);
        let ways = join_all(some.map(|address| connection::check(address, &self.connection, &clock))).await;
        let good = |way: &Vec<Check>| way.iter().all(|check| check.verdict != Verdict::Failed);
        let any = ways.iter().any(good);
        for way in ways {
            let way = if any { way.into_iter().map(Check::milder).collect() } else { way };
            report.add(way, output)?;
        }
        if let Some(more) = self.bootstrap.len().checked_sub(ADDRESSES_MAX).filter(|more| *more > 0) {
            let what = format!("{more} more bootstrap addresses are not looked at one by one");
            report
                .add(vec![Check::skipped(Section::Connection, "name", what).subject("the others")], output)?;
        }
        Ok(any)
    }

    /// What cannot be looked at any more, for one reason.
    fn nothing_more(&self, why: &str, report: &mut Report, output: &mut Output) -> Result<(), Failure> {
        for (section, check) in
            [(Section::Cluster, "cluster"), (Section::Rights, "rights"), (Section::MetadataTopic, "topic")]
        {
            if !report.checks.iter().any(|done| done.section == section) {
                report.add(vec![Check::skipped(section, check, why)], output)?;
            }
        }
        Ok(())
    }

    /// Whom the brokers take this client for, as far as the settings tell.
    fn principal(&self) -> String {
        match (&self.connection.sasl, &self.connection.security) {
            (Some(sasl), _) => format!("User:{}", connection::user(sasl).unwrap_or("NAME")),
            (None, Security::Tls(tls)) if tls.identity.is_some() => "User:NAME".to_owned(),
            (None, _) => "User:ANONYMOUS".to_owned(),
        }
    }
}

/// Prints rows below the heading of their section and subject.
fn show(checks: &[Check], output: &mut Output) -> Result<(), Failure> {
    let same = |a: &Check, b: &Check| (a.section, &a.subject) == (b.section, &b.subject);
    for part in checks.chunk_by(same) {
        let Some(first) = part.first() else { continue };
        let title = match (first.section, &first.subject) {
            (Section::Connection, Some(subject)) => format!("Connection to {}", escape(subject)),
            (Section::Rights, Some(subject)) => format!("Rights of {}", escape(subject)),
            (section, Some(subject)) => format!("{} {}", section.title(), escape(subject)),
            (section, None) => section.title().to_owned(),
        };
        output.heading(&title)?;
        let width = part.iter().map(|check| check.check.chars().count()).max().unwrap_or(0);
        for check in part {
            show_check(check, width, output)?;
        }
        output.line("")?;
    }
    Ok(())
}

fn show_check(check: &Check, width: usize, output: &mut Output) -> Result<(), Failure> {
    let word = output.coloured(&format!("{:<7}", check.verdict.word()), check.verdict.colour());
    let name = escape(&check.check);
    let before = format!("  {word}  {name:<width$}  ");
    let indent = width + 13;
    let origin = check.origin.as_ref().map(|origin| format!(" ({origin})")).unwrap_or_default();
    output.hanging(&before, indent, &format!("{}{origin}", check.detail))?;
    let below = " ".repeat(indent);
    if let Some(help) = &check.help {
        output.hanging(&below, indent, &format!("help: {help}"))?;
    }
    if !check.silences.is_empty() {
        let some = check.silences.iter().take(RULES_SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = match check.silences.len().saturating_sub(RULES_SHOWN) {
            0 => String::new(),
            more => format!(" and {}", count(more as u64, "other")),
        };
        output.hanging(&below, indent, &format!("not checked without it: {some}{more}"))?;
    }
    Ok(())
}

fn conclude(report: &Report, ended_by: Option<Exit>, output: &mut Output) -> Result<Exit, Failure> {
    if output.kind == Form::Table {
        let (failed, warnings) = (report.count(Verdict::Failed), report.count(Verdict::Warning));
        let words = match (ended_by, failed, warnings) {
            (Some(exit), ..) => format!("Not finished: {}.", exit.meaning()),
            (None, 0, 0) => "All is well: every command can work here.".to_owned(),
            (None, 0, _) => format!("Every command can work here; {}.", count(warnings, "warning")),
            (None, ..) => format!("{failed} failed, {}.", count(warnings, "warning")),
        };
        output.wrapped(&words, "")?;
    } else {
        let silenced = report.checks.iter().flat_map(|check| {
            let reason =
                |code: &&'static str| NotChecked { code, reason: format!("missing right: {}", check.check) };
            check.silences.iter().map(reason).collect::<Vec<_>>()
        });
        let about = About {
            schema: SCHEMA,
            cluster_id: report.cluster_id.clone(),
            as_of_ms: output.clock.now_ms,
            metadata_offsets: report.metadata_offsets.clone(),
            not_checked: silenced.collect(),
            ..About::default()
        };
        output.machine(&about, &report.checks)?;
    }
    let failed = report.checks.iter().find(|check| check.verdict == Verdict::Failed);
    Ok(ended_by.unwrap_or_else(|| failed.map_or(Exit::Done, |check| check.exit)))
}

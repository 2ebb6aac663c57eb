//! The manager and real brokers of Apache Kafka on one metadata topic: nobody is harmed by what the other writes, and Kafka's
//! own classes, given the same records, answer as the manager does.
//!
//! One cluster for all scenarios, one after the other. Each leaves a topic on which no broker has anything to do.

mod agreement;
mod both_write;
mod codecs;
mod history;
mod java_writes;
mod reading_rights;
mod topic;
mod we_write;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use strandline_testkit::apache::{ApacheKafka, Options};
use tokio::time::Instant;

/// Java programs of these tests, beside this file.
const PROGRAMS: [&str; 3] = ["CacheAnswers.java", "MoveLeaders.java", "Codecs.java"];

/// Longer than anything takes on a busy machine, a broker's death included.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

/// Held by a test that runs a cluster: two clusters at once are too much for a small machine.
static ONE_CLUSTER: Mutex<()> = Mutex::new(());

fn one_cluster() -> MutexGuard<'static, ()> {
    // The cluster of a test that failed has ended with it.
    ONE_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(options: Options) -> anyhow::Result<ApacheKafka> {
    let kafka = ApacheKafka::start(options)?;
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apache_kafka");
    kafka.compile(&PROGRAMS.map(|program| beside.join(program)))?;
    Ok(kafka)
}

fn run<F: Future<Output = anyhow::Result<()>>>(scenarios: F) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(scenarios)
}

/// Tells how long each scenario took.
struct Stopwatch(Instant);

impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self, what: &str) {
        eprintln!("{:5.1} s {what}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn on_one_topic_with_three_brokers_everybody_reads_everybody_and_all_agree() -> anyhow::Result<()> {
    let _one = one_cluster();
    run(async {
        let mut watch = Stopwatch::start();
        let kafka = start(Options { brokers: 3, ..Options::default() })?;
        let cluster = topic::connect(&kafka).await?;
        watch.lap("the brokers serve");
        let scenarios = async {
            java_writes::a_tier_under_load(&kafka, &cluster).await.context("brokers write, we read")?;
            watch.lap("brokers write, we read");
            we_write::everything_that_may_be_written(&kafka, &cluster)
                .await
                .context("we write, brokers read")?;
            watch.lap("we write, brokers read");
            reading_rights::suffice_for_reading(&kafka, &cluster).await.context("rights to read")?;
            watch.lap("rights to read");
            codecs::every_codec_both_ways(&kafka, &cluster).await.context("codecs")?;
            watch.lap("codecs");
            both_write::while_leaders_move_and_a_broker_dies(&kafka, &cluster).await.context("both write")?;
            watch.lap("both write");
            anyhow::Ok(())
        };
        scenarios.await.with_context(|| kafka.log_ends())
    })
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn an_older_broker_and_we_agree() -> anyhow::Result<()> {
    let _one = one_cluster();
    run(async {
        let mut watch = Stopwatch::start();
        let kafka = start(Options { version: "4.0.0", ..Options::default() })?;
        let cluster = topic::connect(&kafka).await?;
        watch.lap("a broker of 4.0.0 serves");
        java_writes::a_tier_under_load(&kafka, &cluster).await.context("a broker writes, we read")?;
        watch.lap("it writes, we read");
        we_write::everything_that_may_be_written(&kafka, &cluster)
            .await
            .context("we write, a broker reads")?;
        watch.lap("we write, it reads");
        Ok(())
    })
}

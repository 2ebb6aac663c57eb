//! The soak: an embedded cluster under random faults, many callers, and what must hold all the time.
//!
//! One run has rounds. A round starts a cluster, lets a schedule of faults befall it while callers ask, ends the faults,
//! asks everything once more, and drops the client. What is held all the time:
//! - every call ends within its deadline, give or take [`callers::SLACK`] and the lateness of the machine's own timers,
//!   with an answer or a typed error;
//! - an answer is right: its offsets, records and configs are those of the topic's own log (`truth.rs`);
//! - in the client's view no leader epoch goes back for a topic id, no id comes back that is gone, no broker list is empty;
//! - a client has one refresh under way at the most (its observer);
//! - no request reaches a broker that is not there for it (`watch.rs`, from the journal of the brokers);
//! - when the faults are over everything is answered, and completely;
//! - no task panics;
//! - a dropped client leaves no task, no socket and no memory behind (counted, `resources.rs`).
//!
//! `STRANDLINE_SOAK_SECONDS` is how long rounds begin (default 12), `STRANDLINE_SOAK_SEED` where chance begins (default 1);
//! `cargo xtask soak` sets both. The schedule follows from the seed alone (`schedule.rs`). A failure prints the seed, what
//! was wrong, and the last events and requests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod callers;
mod questions;
mod resources;
mod schedule;
mod truth;
mod watch;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strandline_meta::Cluster;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch as signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use callers::{call_on, one_call};
use questions::QUESTIONS;
use schedule::{Random, schedule};
use world::{SharedWorld, World};

/// How long faults befall the cluster in one round.
const FAULTS_LAST: Duration = Duration::from_secs(4);
const CALLERS: usize = 24;
/// Rounds that warm up what a process allocates once.
const WARM_UP_ROUNDS: usize = 1;
/// What a round may leave behind, all threads and runtimes included, when its client and cluster are gone. A leaked connection is
/// some 20 kB, and a round makes hundreds.
const BYTES_LEFT_MAX: usize = 256 << 10;
/// A dial that failed is told as failed for as long as its back-off, also when what ended it is well by now.
const FAILURE_REMEMBERED: Duration = Duration::from_millis(1_200);
/// How long a first connect, and the end of tasks and sockets that nobody needs, may take.
const END_WITHIN: Duration = Duration::from_secs(10);

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T
where
    T::Err: std::fmt::Debug,
{
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn a_cluster_under_random_faults_keeps_every_promise() {
    note_panics();
    let seconds = setting("STRANDLINE_SOAK_SECONDS", 12);
    let seed: u64 = setting("STRANDLINE_SOAK_SEED", 1);
    let until = std::time::Instant::now() + Duration::from_secs(seconds);
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (server, client) = (runtime(), runtime());
    let mut seeds = Random::new(seed);
    let mut total = BTreeMap::new();
    let mut base = None;
    let mut rounds = 0;
    while rounds <= WARM_UP_ROUNDS || std::time::Instant::now() < until {
        let counts = round(&server, &client, seeds.next())
            .unwrap_or_else(|failure| panic!("seed {seed}, round {rounds}\n{failure}"));
        for (what, count) in counts {
            *total.entry(what).or_insert(0) += count;
        }
        rounds += 1;
        if rounds >= WARM_UP_ROUNDS {
            let now = (resources::live_bytes(), resources::open_files());
            let (bytes, files) = *base.get_or_insert(now);
            let left = now.0.saturating_sub(bytes);
            eprintln!("round {rounds}: {} bytes live, {:?} files open", now.0, now.1);
            assert!(left <= BYTES_LEFT_MAX, "seed {seed}: {left} bytes more are live after round {rounds}");
            assert_eq!(now.1, files, "seed {seed}: files are open that were not, after round {rounds}");
        }
    }
    for (what, count) in total {
        eprintln!("{count:9} {what}");
    }
}

/// What panics said: a task that panics is otherwise only missed.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
        default(panic);
    }));
}

/// One round; what was counted, or what was wrong.
fn round(server: &Runtime, client: &Runtime, seed: u64) -> Result<BTreeMap<String, u64>, String> {
    let (setting, steps) = schedule(seed, FAULTS_LAST);
    eprintln!("round with seed {seed}: {setting:?}, {} events", steps.len());
    let world = {
        let _within = server.enter();
        Arc::new(World::start(setting).unwrap())
    };
    let idle = client.metrics().num_alive_tasks();
    let (stop, stopped) = signal::channel(false);
    let (begin, begun) = oneshot::channel();
    let faults = {
        let world = Arc::clone(&world);
        server.spawn(async move {
            // Before there is a client nothing befalls the cluster: a first connect may fail at once.
            if begun.await.is_err() {
                return Ok(());
            }
            // Whoever looks at requests looks until the round is over.
            let mut watching = JoinSet::new();
            watching.spawn(watch::requests(Arc::clone(&world)));
            world.run(steps).await?;
            world.heal().await?;
            watching.shutdown().await;
            std::io::Result::Ok(())
        })
    };
    client.block_on(asking(&world, seed, (begin, faults), &stop, &stopped));
    server.block_on(watch::read_journal(&world));
    let tasks =
        client.block_on(until_some(|| async { (client.metrics().num_alive_tasks() <= idle).then_some(()) }));
    if tasks.is_none() {
        world.violation(format!("{} tasks of the client live on", client.metrics().num_alive_tasks() - idle));
    }
    let open = server.block_on(until_some(|| async { (world.open_connections().await == 0).then_some(()) }));
    if open.is_none() {
        world.violation(format!("{} sockets live on", server.block_on(world.open_connections())));
    }
    for panic in std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner)) {
        world.violation(panic);
    }
    let outcome = match world.failure() {
        Some(failure) => Err(failure),
        None => Ok(world.counts()),
    };
    // The cluster's tasks end with it.
    let _within = server.enter();
    drop(world);
    server.block_on(until_some(|| async { (server.metrics().num_alive_tasks() == 0).then_some(()) }));
    outcome
}

/// The client's part of a round: callers while faults befall the cluster, and every question once more in calm.
async fn asking(
    world: &SharedWorld,
    seed: u64,
    (begin, faults): (oneshot::Sender<()>, JoinHandle<std::io::Result<()>>),
    stop: &signal::Sender<bool>,
    stopped: &signal::Receiver<bool>,
) {
    let mut random = Random::new(seed ^ 0x5eed);
    let connected = Cluster::connect(world.client_config(random.next()), Instant::now() + END_WITHIN).await;
    let cluster = match connected {
        Ok(cluster) => cluster,
        Err(error) => return world.violation(format!("cannot connect: {error:?}")),
    };
    // Fails only if the runtime is gone, and then `faults` says so.
    let _ = begin.send(());
    let mut watching = JoinSet::new();
    watching.spawn(watch::views(Arc::clone(world), cluster.clone()));
    let lateness = Arc::clone(world);
    watching.spawn(async move { lateness.lateness.measure().await });
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call_on(Arc::clone(world), cluster.clone(), random.split(), stopped.clone()));
    }
    match faults.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => world.violation(format!("a fault could not be made: {error}")),
        Err(error) => world.violation(format!("{error}")),
    }
    stop.send_replace(true);
    while let Some(ended) = callers.join_next().await {
        if let Err(error) = ended {
            world.violation(format!("a caller ended: {error}"));
        }
    }
    sleep(FAILURE_REMEMBERED).await;
    for question in QUESTIONS {
        if !world.is_violated() {
            one_call(world, &cluster, question, &mut random, None).await;
        }
    }
    watching.shutdown().await;
}

/// Looks until there is something, or [`END_WITHIN`] is over.
async fn until_some<T, F: Future<Output = Option<T>>>(look: impl Fn() -> F) -> Option<T> {
    let began = Instant::now();
    loop {
        match look().await {
            None if began.elapsed() < END_WITHIN => sleep(Duration::from_millis(5)).await,
            seen => return seen,
        }
    }
}

//! Whatever the cluster does, in whatever order: every send ends in time with a right answer or a typed error, nothing goes
//! where it does not belong, and once the cluster is well again so is the client.
//!
//! Time stands still, so a case is repeated by its steps. `STRANDLINE_SEED=N` tries other cases than those of every run.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use strandline_conn::{MetadataEvent, Observer};
use strandline_meta::routing::Subject;
use strandline_meta::{ApiKey, Cluster, ClusterConfig, ConnectionConfig, ErrorCode, SendError};
use strandline_protocol::messages::list_offsets::ListOffsetsRequest;
use strandline_protocol::messages::{DescribeClusterRequest, DescribeGroupsRequest};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Network, Rule};
use tokio::time::{Instant, sleep};

use crate::support::{Groups, LogDirs, Offsets, address, chain, connection, start, within};

/// Cases of every run; some two seconds.
const CASES: u32 = 48;
const BROKERS: i32 = 3;
/// A broker that leads nothing and keeps its address: without one the client has no way back when all others have moved.
const FRONT: i32 = BROKERS + 1;
const GROUPS: [&str; 4] = ["audit", "billing", "cache", "delivery"];
/// A send may end so much after its deadline: the time that connections have for a last word.
const LATE_MAX: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
enum Step {
    /// A leader moves; 0 for nobody.
    MoveLeader {
        partition: i32,
        to: i32,
    },
    MoveController {
        to: i32,
    },
    /// A broker ends, and the cluster notices.
    Stop {
        broker: i32,
    },
    Restart {
        broker: i32,
    },
    /// What befalls a broker's network, which the cluster does not notice.
    Network {
        broker: i32,
        network: Network,
    },
    Readdress {
        broker: i32,
    },
    /// A broker goes on telling what is true now.
    LagBehind {
        broker: i32,
    },
    CatchUp,
    Fault {
        broker: i32,
        api: ApiKey,
        fault: Fault,
    },
    CloseConnections {
        broker: i32,
    },
    CreateGroups,
    Pause {
        millis: u64,
    },
    Send {
        what: What,
        deadline_ms: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum What {
    Offsets,
    Groups,
    LogDirs,
    AnyBroker,
    Refresh,
}

fn broker() -> impl Strategy<Value = i32> {
    1..=BROKERS
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Drop),
        Just(Fault::Close),
        Just(Fault::ApplyThenLose),
        Just(Fault::Twice),
        Just(Fault::WrongCorrelationId),
        Just(Fault::Garbage(vec![0xff; 64])),
        (0..40usize).prop_map(Fault::CloseAfter),
        (1..2_000u64).prop_map(|millis| Fault::Delay(Duration::from_millis(millis))),
        (1..2_000u64).prop_map(|millis| Fault::Throttle(Duration::from_millis(millis))),
        prop_oneof![
            Just(ErrorCode::NotLeaderOrFollower),
            Just(ErrorCode::NotCoordinator),
            Just(ErrorCode::CoordinatorLoadInProgress),
            Just(ErrorCode::UnknownServerError),
            Just(ErrorCode::RequestTimedOut),
        ]
        .prop_map(Fault::Error),
    ]
}

fn api() -> impl Strategy<Value = ApiKey> {
    prop_oneof![
        Just(ApiKey::Metadata),
        Just(ApiKey::ListOffsets),
        Just(ApiKey::FindCoordinator),
        Just(ApiKey::DescribeGroups),
        Just(ApiKey::DescribeLogDirs),
        Just(ApiKey::ApiVersions),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let network = prop_oneof![
        3 => Just(Network::Up),
        1 => Just(Network::Refuse),
        1 => Just(Network::HalfOpen),
        1 => Just(Network::Reset),
    ];
    let what = prop_oneof![
        4 => Just(What::Offsets),
        2 => Just(What::Groups),
        1 => Just(What::LogDirs),
        1 => Just(What::AnyBroker),
        1 => Just(What::Refresh),
    ];
    prop_oneof![
        3 => (0..BROKERS, 0..=BROKERS).prop_map(|(partition, to)| Step::MoveLeader { partition, to }),
        1 => broker().prop_map(|to| Step::MoveController { to }),
        1 => broker().prop_map(|broker| Step::Stop { broker }),
        2 => broker().prop_map(|broker| Step::Restart { broker }),
        2 => (1..=FRONT, network).prop_map(|(broker, network)| Step::Network { broker, network }),
        1 => broker().prop_map(|broker| Step::Readdress { broker }),
        1 => (1..=FRONT).prop_map(|broker| Step::LagBehind { broker }),
        1 => Just(Step::CatchUp),
        3 => (1..=FRONT, api(), fault()).prop_map(|(broker, api, fault)| Step::Fault { broker, api, fault }),
        1 => broker().prop_map(|broker| Step::CloseConnections { broker }),
        1 => Just(Step::CreateGroups),
        4 => (0..1_500u64).prop_map(|millis| Step::Pause { millis }),
        8 => (what, 1..4_000u64).prop_map(|(what, deadline_ms)| Step::Send { what, deadline_ms }),
    ]
}

/// Rounds of the refresher: when each began and ended, and of which partitions it was told that their epoch went back.
#[derive(Debug, Default)]
struct Rounds(Mutex<Vec<Round>>);

#[derive(Debug)]
struct Round {
    began: Instant,
    ended: Instant,
    went_back: Vec<i32>,
}

impl Observer for Rounds {
    fn on_metadata(&self, event: &MetadataEvent<'_>) {
        let ended = Instant::now();
        let went_back = event.epoch_regressions.iter().map(|(_, partition)| *partition).collect();
        self.0.lock().unwrap().push(Round { began: ended - event.took, ended, went_back });
    }
}

/// What was true at some time.
#[derive(Default)]
struct History {
    /// Who led a partition in an epoch.
    leaders: BTreeMap<(i32, i32), i32>,
    coordinators: BTreeSet<(&'static str, i32)>,
    groups_exist_at: Option<u64>,
}

impl History {
    fn note(&mut self, embedded: &EmbeddedCluster) {
        for partition in 0..BROKERS {
            let (leader, epoch) = embedded.leader("orders", partition);
            self.leaders.insert((partition, epoch), leader);
        }
        for group in GROUPS {
            if let Some(coordinator) = embedded.group_coordinator(group) {
                self.coordinators.insert((group, coordinator));
            }
        }
        if self.groups_exist_at.is_none() && embedded.view().topics.contains_key("__consumer_offsets") {
            self.groups_exist_at = Some(embedded.journal().last().map_or(0, |entry| entry.number));
        }
    }
}

async fn carry_out(step: &Step, embedded: &EmbeddedCluster) {
    match step {
        Step::MoveLeader { partition, to } => {
            embedded.move_leader("orders", *partition, if *to == 0 { -1 } else { *to });
        }
        Step::MoveController { to } => embedded.move_controller(*to),
        Step::Stop { broker } => embedded.stop_broker(*broker).await.unwrap(),
        Step::Restart { broker } => embedded.restart_broker(*broker).await.unwrap(),
        Step::Network { broker, network } => embedded.set_network(*broker, *network).await.unwrap(),
        Step::Readdress { broker } => embedded.readdress_broker(*broker).await.unwrap(),
        Step::LagBehind { broker } => embedded.freeze_view(*broker, |_| {}),
        Step::CatchUp => embedded.thaw_views(),
        Step::Fault { broker, api, fault } => {
            embedded.script(Rule::new(fault.clone()).broker(*broker).api(*api));
        }
        Step::CloseConnections { broker } => embedded.close_connections(*broker).await,
        Step::CreateGroups => {
            for group in GROUPS {
                embedded.set_group(group, "Stable", &[]);
            }
        }
        Step::Pause { millis } => sleep(Duration::from_millis(*millis)).await,
        Step::Send { .. } => {}
    }
}

type Checked<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

fn check<T: PartialEq + std::fmt::Debug>(
    result: &Result<T, SendError>,
    right: &T,
    about: &str,
) -> Result<(), String> {
    match result {
        Ok(told) if told == right => Ok(()),
        Ok(told) => Err(format!("{about} is {right:?}, and the answer was {told:?}")),
        // Any typed error; what it says is looked at elsewhere. That it can be printed is worth a try.
        Err(error) => {
            if chain(error).is_empty() {
                Err(format!("{about}: {error:?}"))
            } else {
                Ok(())
            }
        }
    }
}

async fn send(cluster: &Cluster, what: What, millis: u64) -> Result<(), String> {
    let began = Instant::now();
    let deadline = within(millis);
    match what {
        What::Offsets => {
            let items = [("orders", 0), ("orders", 1), ("orders", 2)];
            let results = cluster.send_each(&Offsets, &items, deadline).await.map_err(|e| chain(&e))?;
            for (result, (_, partition)) in results.iter().zip(items) {
                check(result, &i64::from(partition * 10), &format!("the end of partition {partition}"))?;
            }
        }
        What::Groups => {
            let items = GROUPS.map(str::to_owned);
            let results = cluster.send_each(&Groups, &items, deadline).await.map_err(|e| chain(&e))?;
            for (result, group) in results.iter().zip(items) {
                check(result, &"Stable".to_owned(), &format!("the state of group {group}"))?;
            }
        }
        What::LogDirs => {
            let items = [1, 2, 3];
            let results = cluster.send_each(&LogDirs, &items, deadline).await.map_err(|e| chain(&e))?;
            for (result, broker) in results.iter().zip(items) {
                let right = format!("/embedded/broker-{broker}");
                check(result, &right, &format!("the directory of broker {broker}"))?;
            }
        }
        What::AnyBroker => {
            let sent = cluster.send(Subject::Cluster, |_| DescribeClusterRequest::default(), deadline).await;
            let id = sent.map(|answer| answer.cluster_id);
            let right = cluster.snapshot().cluster_id().unwrap_or_default().to_owned();
            check(&id, &right, "the cluster id")?;
        }
        What::Refresh => {
            // The view after it is looked at below, with all others.
            let _ = cluster.refresh_all(deadline).await;
        }
    }
    let late = began.elapsed().saturating_sub(Duration::from_millis(millis));
    if late > LATE_MAX { Err(format!("{what:?} within {millis} ms was {late:?} late")) } else { Ok(()) }
}

/// Leader epochs per partition, which never go back: unless several brokers lag behind and say so again and again, which is
/// told.
#[derive(Default)]
struct Epochs {
    known: BTreeMap<i32, i32>,
    /// Rounds that were looked at already.
    rounds: usize,
}

impl Epochs {
    fn check(&mut self, cluster: &Cluster, rounds: &Rounds) -> Result<(), String> {
        let view = cluster.snapshot();
        let rounds = rounds.0.lock().unwrap();
        let since: Vec<i32> =
            rounds[self.rounds..].iter().flat_map(|round| &round.went_back).copied().collect();
        self.rounds = rounds.len();
        for partition in view.topic("orders").iter().flat_map(|topic| &topic.partitions) {
            let Some(epoch) = partition.leader_epoch else { continue };
            let before = self.known.insert(partition.index, epoch).unwrap_or(epoch);
            if epoch < before && !since.contains(&partition.index) {
                return Err(format!(
                    "the epoch of partition {} went from {before} to {epoch}",
                    partition.index
                ));
            }
        }
        Ok(())
    }
}

async fn run(steps: Vec<Step>) -> Result<(), String> {
    let embedded = start(BROKERS);
    let rounds = Arc::new(Rounds::default());
    let observer: Arc<dyn Observer> = rounds.clone();
    let connection =
        ConnectionConfig { observer, connect_timeout: Duration::from_secs(2), ..connection(&embedded) };
    assert_eq!(embedded.add_broker().await.unwrap(), FRONT);
    let bootstrap = (1..=FRONT).map(|broker| address(&embedded, broker));
    let config =
        ClusterConfig::new(bootstrap, connection).jitter_seed(7).request_timeout(Duration::from_secs(1));
    let cluster = Cluster::connect(config, within(10_000)).await.map_err(|error| chain(&error))?;
    let (mut history, mut epochs) = (History::default(), Epochs::default());
    history.note(&embedded);

    let mut sends: FuturesUnordered<Checked<'_>> = FuturesUnordered::new();
    for step in &steps {
        if let Step::Send { what, deadline_ms } = *step {
            sends.push(Box::pin(send(&cluster, what, deadline_ms)));
        }
        // A moment for all that is under way, whatever the step is.
        let act = async {
            carry_out(step, &embedded).await;
            history.note(&embedded);
            sleep(Duration::from_millis(1)).await;
        };
        tokio::pin!(act);
        loop {
            tokio::select! {
                Some(sent) = sends.next() => sent?,
                () = &mut act => break,
            }
            epochs.check(&cluster, &rounds)?;
        }
        epochs.check(&cluster, &rounds)?;
    }
    while let Some(sent) = sends.next().await {
        sent?;
        epochs.check(&cluster, &rounds)?;
    }

    // All is well again, and what failed last has been forgotten.
    embedded.clear_script();
    embedded.thaw_views();
    for broker in 1..=FRONT {
        embedded.restart_broker(broker).await.unwrap();
    }
    for partition in 0..BROKERS {
        embedded.move_leader("orders", partition, partition + 1);
    }
    carry_out(&Step::CreateGroups, &embedded).await;
    history.note(&embedded);
    sleep(Duration::from_secs(2)).await;
    let all = cluster.send_each(&Offsets, &[("orders", 0), ("orders", 1), ("orders", 2)], within(60_000));
    for (partition, result) in all.await.map_err(|error| chain(&error))?.into_iter().enumerate() {
        match result {
            Ok(offset) if offset == partition as i64 * 10 => {}
            other => return Err(format!("partition {partition} after all is well again: {other:?}")),
        }
    }
    let groups = cluster.send_each(&Groups, &GROUPS.map(str::to_owned), within(60_000)).await;
    for result in groups.map_err(|error| chain(&error))? {
        result.map_err(|error| format!("a group after all is well again: {}", chain(&error)))?;
    }

    in_the_journal(&embedded, &history)?;
    let rounds = rounds.0.lock().unwrap();
    for pair in rounds.windows(2) {
        if pair[1].began < pair[0].ended {
            return Err("two refreshes were in flight at once".to_owned());
        }
    }
    Ok(())
}

/// No request ever reached a broker of another class, and none that may not leave a read-only client left it.
fn in_the_journal(embedded: &EmbeddedCluster, history: &History) -> Result<(), String> {
    for entry in embedded.journal() {
        match entry.api {
            ApiKey::ApiVersions
            | ApiKey::Metadata
            | ApiKey::DescribeCluster
            // Which broker it is for is in the answer, and looked at there.
            | ApiKey::DescribeLogDirs => {}
            ApiKey::ListOffsets => {
                let request: ListOffsetsRequest = entry.decode().unwrap();
                for partition in request.topics.iter().flat_map(|topic| &topic.partitions) {
                    let of = (partition.partition_index, partition.current_leader_epoch);
                    if history.leaders.get(&of) != Some(&entry.broker) {
                        return Err(format!("{entry}: partition and epoch {of:?} are led by {:?}", history.leaders.get(&of)));
                    }
                }
            }
            ApiKey::FindCoordinator => {
                if history.groups_exist_at.is_none_or(|at| entry.number < at) {
                    return Err(format!("{entry}: and there is no topic of coordinators"));
                }
            }
            ApiKey::DescribeGroups => {
                let request: DescribeGroupsRequest = entry.decode().unwrap();
                for group in &request.groups {
                    let was = |known: &&(&str, i32)| known.0 == group && known.1 == entry.broker;
                    if !history.coordinators.iter().any(|known| was(&known)) {
                        return Err(format!("{entry}: it never coordinated {group}"));
                    }
                }
            }
            other => return Err(format!("{entry}: {other} is not for a client that reads")),
        }
    }
    Ok(())
}

#[test]
fn whatever_the_cluster_does_every_send_ends_in_time_and_nothing_goes_astray() {
    let mut seed = [0; 32];
    if let Ok(number) = std::env::var("STRANDLINE_SEED") {
        seed[..8].copy_from_slice(&number.parse::<u64>().unwrap().to_le_bytes());
    }
    let config =
        Config { cases: CASES, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let outcome = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        runtime.block_on(run(steps)).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("    {step:?}")).collect();
            panic!("{why}, after\n{}", steps.join("\n"));
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

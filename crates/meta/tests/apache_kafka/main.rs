//! Failures that a real cluster can show, on three brokers of Apache Kafka: what the same tests on the embedded cluster say of
//! a client holds there, too.
//!
//! One cluster for all, one scenario after the other; a client that was there from the start lives through every one of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;

use std::sync::Arc;
use std::time::Duration;

use strandline_conn::{ConnectError, Credentials, Password, Pem, Roots, SaslConfig, Security, TlsConfig};
use strandline_meta::{Cluster, ConnectionConfig, ErrorCode, Recovery, SendError, TopicView};
use strandline_testkit::apache::{ADMIN, ApacheKafka, Options, READER, wait_for};
use tokio::task::block_in_place;
use tokio::time::Instant;

use calls::{
    Forwarder, Throttles, committed, connect, connect_error, coordinator_of, create_topic, delete_topic,
    end_of, fetch, own_id, produce, within,
};

const PARTITIONS: i32 = 6;
/// Records that each partition of `orders` has.
const RECORDS: i64 = 20;
/// A throttle of some length, so that what the machine adds does not count.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// How long brokers may take to notice a dead one (`broker.session.timeout.ms`, 9 s) and to choose others.
const FAIL_OVER: u64 = 120;

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn a_client_lives_through_what_befalls_a_real_cluster() -> anyhow::Result<()> {
    // Leaders move when the scenarios say so.
    let properties = vec![("auto.leader.rebalance.enable".to_owned(), "false".to_owned())];
    let mut kafka =
        ApacheKafka::start(Options { brokers: 3, tiered: false, properties, ..Options::default() })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let name = Forwarder::start(kafka.bootstrap()).await?;
        let cluster = connect(&name.address, ConnectionConfig::default()).await?;
        create_topic(&cluster, "orders", PARTITIONS).await?;
        for partition in 0..PARTITIONS {
            produce(&cluster, "orders", partition, RECORDS).await?;
        }
        let mut watch = Stopwatch::start();
        wrong_passwords_stay_wrong_passwords(&kafka).await?;
        watch.lap("a wrong password");
        tls_and_plain_text_are_told_apart_both_ways(&kafka).await;
        watch.lap("TLS mismatch");
        a_missing_right_is_named(&kafka).await?;
        watch.lap("a missing right");
        a_throttled_client_waits(&kafka, &cluster).await?;
        watch.lap("throttled by quota");
        let killed =
            a_killed_broker_takes_leaders_coordinators_and_the_controller_along(&kafka, &cluster).await?;
        watch.lap("a broker killed");
        the_same_broker_at_another_address_is_found(&mut kafka, &cluster, killed).await?;
        watch.lap("a broker at another address");
        leaders_that_move_are_followed(&kafka, &cluster, killed).await?;
        watch.lap("leaders moved");
        a_recreated_topic_is_another_topic(&cluster).await?;
        watch.lap("a topic recreated");
        when_every_address_has_changed_the_first_one_is_asked_again(&mut kafka, &cluster, &name).await?;
        watch.lap("every address changed");
        anyhow::Ok(())
    })
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

fn credentials((name, password): (&str, &str)) -> Credentials {
    Credentials { username: name.to_owned(), password: Password::new(password) }
}

fn with_sasl(sasl: SaslConfig) -> ConnectionConfig {
    ConnectionConfig { sasl: Some(sasl), ..ConnectionConfig::default() }
}

fn with_tls(kafka: &ApacheKafka) -> ConnectionConfig {
    let roots = Roots::Pem(Pem::Inline(Password::new(kafka.ca_pem())));
    let security = Security::Tls(TlsConfig { roots, ..TlsConfig::default() });
    ConnectionConfig { security, ..ConnectionConfig::default() }
}

async fn wrong_passwords_stay_wrong_passwords(kafka: &ApacheKafka) -> anyhow::Result<()> {
    for mechanism in [SaslConfig::ScramSha256, SaslConfig::ScramSha512] {
        connect(&kafka.sasl(), with_sasl(mechanism(credentials(ADMIN)))).await?;
        let began = Instant::now();
        let wrong = connect(&kafka.sasl(), with_sasl(mechanism(credentials((ADMIN.0, "wrong"))))).await;
        let wrong = wrong.expect_err("the password is wrong");
        assert_eq!(wrong.recovery(), Recovery::Authenticate, "{wrong:?}");
        assert!(matches!(connect_error(&wrong), ConnectError::Authentication { .. }), "{wrong:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "it is told at once, not at the deadline");
    }
    Ok(())
}

async fn tls_and_plain_text_are_told_apart_both_ways(kafka: &ApacheKafka) {
    let refused = connect(&kafka.bootstrap(), with_tls(kafka)).await.expect_err("the listener speaks no TLS");
    let said = connect_error(&refused);
    assert!(matches!(said, ConnectError::TlsMismatch { configured_tls: true, .. }), "{said:?}");
    let refused =
        connect(&kafka.ssl(), ConnectionConfig::default()).await.expect_err("the listener speaks TLS");
    let said = connect_error(&refused);
    assert!(matches!(said, ConnectError::TlsMismatch { configured_tls: false, .. }), "{said:?}");
}

async fn a_missing_right_is_named(kafka: &ApacheKafka) -> anyhow::Result<()> {
    let reader = connect(&kafka.sasl(), with_sasl(SaslConfig::Plain(credentials(READER)))).await?;
    let began = Instant::now();
    let refused = end_of(&reader, "orders", 0, 60).await.expect_err("no right");
    assert_eq!(refused.code(), Some(ErrorCode::TopicAuthorizationFailed), "{refused:?}");
    assert_eq!(refused.recovery(), Recovery::Forbidden, "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "it is told at once, not at the deadline");
    let view = reader.snapshot();
    let told = view.topic_view("orders");
    assert!(matches!(told, TopicView::Refused { code: ErrorCode::TopicAuthorizationFailed, .. }), "{told:?}");
    Ok(())
}

/// Kafka averages over ten seconds and asks for a pause that brings the average back to the quota (KIP-219).
async fn a_throttled_client_waits(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    let id = cluster.snapshot().topic("orders").and_then(|topic| topic.id).unwrap().0;
    let page = fetch(cluster, "orders", id, 0, Duration::from_secs(30)).await?;
    let told = &page.responses[0].partitions[0];
    let bytes = told.records.as_ref().map_or(0, |records| records.len());
    assert!(bytes as i64 >= RECORDS * 1_000, "{bytes}: {told:?}");
    // One such page is two to three seconds above it.
    let quota = format!("consumer_byte_rate={}", bytes * 10 / 125);
    let set = ["--alter", "--entity-type", "clients", "--entity-name", "slow", "--add-config", &quota];
    block_in_place(|| kafka.admin_tool("kafka.admin.ConfigCommand", &set))?;

    let throttles = Arc::new(Throttles::default());
    let observer: Arc<Throttles> = Arc::clone(&throttles);
    let config = ConnectionConfig { client_id: "slow".to_owned(), observer, ..ConnectionConfig::default() };
    let slow = connect(&kafka.bootstrap(), config).await?;
    // A broker takes the quota over a moment after it was set, and the first page may be little above it.
    let (at, wait) = loop {
        fetch(&slow, "orders", id, 0, Duration::from_secs(30)).await?;
        let last = throttles.asked.lock().unwrap().last().copied();
        if let Some(asked) = last.filter(|(at, wait)| *wait > LONG_PAUSE && at.elapsed() < *wait / 2) {
            break asked;
        }
    };
    let began = Instant::now();
    let patience = wait.saturating_sub(at.elapsed()) / 4;
    let impatient = fetch(&slow, "orders", id, 0, patience).await.expect_err("it has to wait for longer");
    let told = matches!(&impatient, SendError::Deadline { .. });
    assert!(told && impatient.recovery() == Recovery::Retry, "{impatient:?}");
    assert!(began.elapsed() < patience + Duration::from_secs(5), "{:?}", began.elapsed());
    fetch(&slow, "orders", id, 0, Duration::from_secs(60)).await?;
    assert!(
        at.elapsed() >= wait.mul_f64(0.95),
        "it went out {:?} after a throttle of {wait:?}",
        at.elapsed()
    );
    let queued = throttles.queued.lock().unwrap().iter().copied().max();
    assert!(
        queued > Some(wait / 2),
        "{queued:?} of {wait:?} were waited for before the request's clock began"
    );
    Ok(())
}

/// The broker that is the active controller dies. Gives its id.
async fn a_killed_broker_takes_leaders_coordinators_and_the_controller_along(
    kafka: &ApacheKafka,
    cluster: &Cluster,
) -> anyhow::Result<i32> {
    let status = block_in_place(|| {
        kafka.admin_tool("org.apache.kafka.tools.MetadataQuorumCommand", &["describe", "--status"])
    })?;
    let leader = status.lines().find_map(|line| line.strip_prefix("LeaderId:"));
    let victim: i32 = leader.unwrap_or_else(|| panic!("{status}")).trim().parse()?;
    let group = {
        let mut nth = 0;
        loop {
            let group = format!("group-{nth}");
            if coordinator_of(cluster, &group).await? == victim {
                break group;
            }
            nth += 1;
        }
    };
    assert_eq!(committed(cluster, &group).await?, ErrorCode::None);
    let view = cluster.refresh_topics(&["orders"], within(60)).await?;
    let led: Vec<(i32, Option<i32>)> = view
        .topic("orders")
        .unwrap()
        .partitions
        .iter()
        .filter(|partition| partition.leader == Some(victim))
        .map(|partition| (partition.index, partition.leader_epoch))
        .collect();
    assert!(!led.is_empty(), "six partitions on three brokers");

    block_in_place(|| kafka.kill_broker(victim as usize))?;
    let ends = async {
        for (partition, _) in &led {
            assert_eq!(end_of(cluster, "orders", *partition, FAIL_OVER).await?, RECORDS);
        }
        anyhow::Ok(())
    };
    let offsets = async { anyhow::Ok(committed(cluster, &group).await?) };
    // Whether a creation went through is unknown when its broker dies with it, and then it is told so, not repeated.
    let created = async {
        match create_topic(cluster, "payments", 1).await {
            Ok(_) => {}
            Err(unknown) => assert!(create_topic(cluster, "payments", 1).await.is_ok(), "after {unknown:?}"),
        }
        anyhow::Ok(())
    };
    let ((), code, ()) = tokio::try_join!(ends, offsets, created)?;
    assert_eq!(code, ErrorCode::None);
    let view = cluster.snapshot();
    for (partition, epoch) in led {
        let now = view.partition("orders", partition).unwrap();
        assert!(now.leader != Some(victim) && now.leader_epoch > epoch, "{now:?} after epoch {epoch:?}");
    }
    assert_ne!(coordinator_of(cluster, &group).await?, victim);
    Ok(victim)
}

async fn the_same_broker_at_another_address_is_found(
    kafka: &mut ApacheKafka,
    cluster: &Cluster,
    broker: i32,
) -> anyhow::Result<()> {
    let id = broker as usize;
    let before = kafka.bootstrap_of(id);
    kafka.readdress_broker(id)?;
    let after = kafka.bootstrap_of(id);
    assert_ne!(before, after);
    block_in_place(|| kafka.start_broker(id).and_then(|()| kafka.wait_until_ready()))?;
    assert_eq!(own_id(cluster, broker).await?, Some(broker.to_string()));
    assert_eq!(cluster.snapshot().broker(broker).unwrap().address.to_string(), after);
    Ok(())
}

/// The preferred replica leads again, while every broker is well.
async fn leaders_that_move_are_followed(
    kafka: &ApacheKafka,
    cluster: &Cluster,
    to: i32,
) -> anyhow::Result<()> {
    let view = cluster.refresh_topics(&["orders"], within(60)).await?;
    let moving: Vec<(i32, Option<i32>)> = view
        .topic("orders")
        .unwrap()
        .partitions
        .iter()
        .filter(|partition| partition.replicas.first() == Some(&to) && partition.leader != Some(to))
        .map(|partition| (partition.index, partition.leader_epoch))
        .collect();
    assert!(!moving.is_empty(), "a broker that comes back follows");
    // A replica that has just come back can be elected once it is in sync.
    let tool = "org.apache.kafka.tools.LeaderElectionCommand";
    let elect = ["--election-type", "preferred", "--all-topic-partitions"];
    block_in_place(|| {
        wait_for("the replicas to be in sync", Duration::from_secs(180), || {
            let again = tokio::runtime::Handle::current()
                .block_on(cluster.refresh_topics(&["orders"], within(60)))?;
            let in_sync =
                again.topic("orders").unwrap().partitions.iter().all(|partition| partition.isr.len() == 3);
            Ok(in_sync.then_some(()))
        })?;
        kafka.admin_tool(tool, &elect)
    })?;
    // The view is old now, and says nothing of it. The answers do.
    for (partition, epoch) in moving {
        assert_eq!(end_of(cluster, "orders", partition, 30).await?, RECORDS);
        let now = cluster.snapshot().partition("orders", partition).cloned().unwrap();
        assert!(now.leader == Some(to) && now.leader_epoch > epoch, "{now:?} after epoch {epoch:?}");
    }
    Ok(())
}

async fn a_recreated_topic_is_another_topic(cluster: &Cluster) -> anyhow::Result<()> {
    let old = cluster.snapshot().topic("orders").and_then(|topic| topic.id).unwrap();
    delete_topic(cluster, "orders").await?;
    // The name is free once the controller has forgotten it.
    while !create_topic(cluster, "orders", PARTITIONS).await? {}
    // The view still names the old one.
    let gone = fetch(cluster, "orders", old.0, 0, Duration::from_secs(3)).await.expect_err("the id is gone");
    assert_eq!(gone.code(), Some(ErrorCode::UnknownTopicId), "{gone:?}");
    assert_eq!(end_of(cluster, "orders", 0, 30).await?, 0);
    let view = cluster.refresh_topics(&["orders"], within(60)).await?;
    let now = view.topic("orders").unwrap();
    assert!(now.id.is_some() && now.id != Some(old), "{now:?}");
    assert_eq!(now.replaced_ids(), [old]);
    assert!(view.topic_by_id(old).is_none());
    Ok(())
}

async fn when_every_address_has_changed_the_first_one_is_asked_again(
    kafka: &mut ApacheKafka,
    cluster: &Cluster,
    name: &Forwarder,
) -> anyhow::Result<()> {
    for id in 1..=3 {
        block_in_place(|| kafka.kill_broker(id))?;
        kafka.readdress_broker(id)?;
    }
    name.redirect(kafka.bootstrap());
    let kafka = &*kafka;
    let starting = async { block_in_place(|| (1..=3).try_for_each(|id| kafka.start_broker(id))) };
    // Asked while nobody serves, and long before somebody does.
    let (started, end) = tokio::join!(starting, end_of(cluster, "orders", 0, 90));
    started?;
    assert_eq!(end?, 0);
    block_in_place(|| kafka.wait_until_ready())?;
    let view = cluster.refresh_all(within(60)).await?;
    let told: Vec<String> = view.brokers().map(|broker| broker.address.to_string()).collect();
    assert_eq!(told, (1..=3).map(|id| kafka.bootstrap_of(id)).collect::<Vec<_>>());
    Ok(())
}

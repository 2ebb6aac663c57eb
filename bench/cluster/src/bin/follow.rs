//! Following the metadata topic with a connection for each partition, and with one for each leader, in turns: sockets, requests
//! and CPU time while nothing happens, the time from a publish to its delivery, and a whole topic from its beginning.
//!
//! usage: follow ROUNDS   starts three brokers of Apache Kafka by itself
//!
//! One JSON object for each round and way, then the table of medians.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strandline_conn::{BrokerAddress, Observer, RequestEvent};
use strandline_log::{
    FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _,
    MetadataDelivery, MetadataEventLog as _, MetadataEventQueueCapacity, MetadataEventSubscription,
    ReadingState,
};
use strandline_meta::{ApiKey, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options};
use strandline_testkit::random::Random;

const PARTITIONS: i32 = 50;
const VALUE_BYTES: usize = 93;
const REPLAYED: i64 = 250_000;
const IN_FLIGHT: usize = 1_000;
const IDLE: Duration = Duration::from_secs(10);
const SINGLE_EVENTS: usize = 400;
const WAYS: [FetchConnections; 2] = [FetchConnections::PerPartition, FetchConnections::PerLeader];

#[derive(Debug, Default)]
struct Fetches(AtomicU64);

impl Observer for Fetches {
    fn on_request(&self, event: &RequestEvent<'_>) {
        self.0.fetch_add(u64::from(event.api == ApiKey::Fetch), Ordering::Relaxed);
    }
}

/// What one round measures of one way.
#[derive(Clone, Debug, Default)]
struct Measured {
    sockets: f64,
    requests_s: f64,
    cpu_ms_s: f64,
    broker_cpu_ms_s: f64,
    p50_us: f64,
    p99_us: f64,
    replay_ms: f64,
    replay_cpu_ms: f64,
}

impl Measured {
    const NAMES: [&str; 8] = [
        "sockets",
        "idle: Fetch requests a second",
        "idle: our CPU, ms a second",
        "idle: the brokers' CPU, ms a second",
        "publish to delivery, p50, µs",
        "publish to delivery, p99, µs",
        "250 000 events from the beginning, ms",
        "the same, our CPU, ms",
    ];

    fn values(&self) -> [f64; 8] {
        let Self { sockets, requests_s, cpu_ms_s, broker_cpu_ms_s, p50_us, p99_us, replay_ms, replay_cpu_ms } =
            self;
        [*sockets, *requests_s, *cpu_ms_s, *broker_cpu_ms_s, *p50_us, *p99_us, *replay_ms, *replay_cpu_ms]
    }
}

#[tokio::main]
async fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5, |rounds| rounds.parse().unwrap());
    let options = Options { brokers: 3, tiered: false, ..Options::default() };
    let kafka = tokio::task::spawn_blocking(|| ApacheKafka::start(options).unwrap()).await.unwrap();
    let writer = connect(&kafka, Arc::new(Fetches::default())).await;
    let writer = KafkaMetadataEventLog::start(&writer, config(WAYS[0]), soon()).await.unwrap();
    fill(&writer).await;
    let mut measured = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for way in 0..2 {
            // Each is first as often as second.
            let way = (way + round) % 2;
            let one = measure(&kafka, &writer, WAYS[way]).await;
            println!("{{\"round\":{round},\"way\":\"{:?}\",\"values\":{:?}}}", WAYS[way], one.values());
            measured[way].push(one);
        }
    }
    println!("| | {:?} | {:?} |\n|---|---|---|", WAYS[0], WAYS[1]);
    for (at, name) in Measured::NAMES.iter().enumerate() {
        let [first, second] = [0, 1].map(|way: usize| median(&measured[way], at));
        println!("| {name} | {first:.1} | {second:.1} |");
    }
}

fn median(measured: &[Measured], at: usize) -> f64 {
    let mut values: Vec<f64> = measured.iter().map(|one| one.values()[at]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(120)
}

fn config(fetch_connections: FetchConnections) -> KafkaMetadataLogConfig {
    KafkaMetadataLogConfig {
        num_partitions: PARTITIONS,
        fetch_connections,
        ..KafkaMetadataLogConfig::default()
    }
}

async fn connect(kafka: &ApacheKafka, fetches: Arc<Fetches>) -> Cluster {
    let bootstrap = BrokerAddress::parse_list(&kafka.bootstrap()).unwrap();
    let connection = ConnectionConfig { observer: fetches, ..ConnectionConfig::default() };
    Cluster::connect(ClusterConfig::new(bootstrap, connection).read_write(), soon()).await.unwrap()
}

fn value() -> bytes::Bytes {
    vec![b'x'; VALUE_BYTES].into()
}

async fn fill(writer: &KafkaMetadataEventLog) {
    let room = Arc::new(tokio::sync::Semaphore::new(IN_FLIGHT));
    let mut events = tokio::task::JoinSet::new();
    for event in 0..REPLAYED {
        let permit = Arc::clone(&room).acquire_owned().await.unwrap();
        let (writer, partition) = (writer.clone(), (event % i64::from(PARTITIONS)) as i32);
        events.spawn(async move {
            writer.publish(partition, value(), soon()).await.unwrap();
            drop(permit);
        });
        while let Some(done) = events.try_join_next() {
            done.unwrap();
        }
    }
    events.join_all().await;
}

async fn measure(kafka: &ApacheKafka, writer: &KafkaMetadataEventLog, way: FetchConnections) -> Measured {
    let mut measured = Measured::default();
    let fetches = Arc::new(Fetches::default());
    let cluster = connect(kafka, Arc::clone(&fetches)).await;
    let log = KafkaMetadataEventLog::open_read_only(&cluster, config(way), soon()).await.unwrap();
    let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();

    let (began, cpu) = (Instant::now(), cpu_ms("self"));
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    for marks in &marks {
        events.assignment().add(marks.partition, 0).unwrap();
    }
    let mut left: i64 = marks.iter().map(|marks| marks.high_watermark).sum();
    let mut taken = Vec::new();
    while left > 0 {
        taken.clear();
        assert!(events.next_many(&mut taken, 1024).await);
        left -= taken.iter().filter(|delivery| matches!(delivery, MetadataDelivery::Record { .. })).count()
            as i64;
    }
    measured.replay_ms = began.elapsed().as_secs_f64() * 1e3;
    measured.replay_cpu_ms = cpu_ms("self") - cpu;
    events.close().await;

    let before = sockets();
    let mut events = log.subscribe(MetadataEventQueueCapacity::default());
    for marks in &marks {
        events.assignment().add(marks.partition, marks.high_watermark).unwrap();
    }
    all_fetch(&events).await;
    // What the beginning took is over by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    measured.sockets = (sockets() - before) as f64;
    let brokers = pids_of(kafka);
    let cpu_of_brokers = || brokers.iter().map(|pid| cpu_ms(pid)).sum::<f64>();
    let (asked, cpu, broker_cpu) = (fetches.0.load(Ordering::Relaxed), cpu_ms("self"), cpu_of_brokers());
    tokio::time::sleep(IDLE).await;
    let seconds = IDLE.as_secs_f64();
    measured.requests_s = (fetches.0.load(Ordering::Relaxed) - asked) as f64 / seconds;
    measured.cpu_ms_s = (cpu_ms("self") - cpu) / seconds;
    measured.broker_cpu_ms_s = (cpu_of_brokers() - broker_cpu) / seconds;

    let mut random = Random::new(7);
    let mut times = Vec::new();
    for _ in 0..SINGLE_EVENTS {
        let partition = (random.next() % PARTITIONS as u64) as i32;
        let began = Instant::now();
        let delivered = async {
            loop {
                if let Some(MetadataDelivery::Record { .. }) = events.next().await {
                    return began.elapsed();
                }
            }
        };
        let (published, delivered) = tokio::join!(writer.publish(partition, value(), soon()), delivered);
        published.unwrap();
        times.push(delivered.as_secs_f64() * 1e6);
        tokio::time::sleep(Duration::from_millis(5 + random.next() % 15)).await;
    }
    times.sort_by(f64::total_cmp);
    (measured.p50_us, measured.p99_us) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    events.close().await;
    log.close().await;
    measured
}

async fn all_fetch(events: &MetadataEventSubscription) {
    let assignment = events.assignment();
    while !assignment.list().iter().all(|partition| matches!(partition.state, ReadingState::Fetching)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sockets that this process has open.
fn sockets() -> usize {
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// CPU time of a process, user's and system's, in a clock of 100 ticks a second.
fn cpu_ms(pid: &str) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10.0
}

/// The brokers' processes: Java, with the cluster's directory on the command line.
fn pids_of(kafka: &ApacheKafka) -> Vec<String> {
    let directory = kafka.directory().to_string_lossy().into_owned();
    let pids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let command = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            let command = String::from_utf8_lossy(&command(pid)).into_owned();
            command.split('\0').next().is_some_and(|name| name.ends_with("java"))
                && command.contains(&directory)
        })
        .collect()
}

//! Strandline's cluster layer, measured: one JSON object on the last line.
//!
//! usage: bench-cluster topics COUNT PARTITIONS   creates meta.bench.0000, … and bench.small
//!                      snapshot                  from before the connect until every topic is held
//!                      lookup                    one leader, out of all
//!                      produce TOPIC REQUESTS IN_FLIGHT   small Produce requests, each with one record
//!                      breakdown                 where the time of a snapshot goes

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use strandline_conn::{BrokerAddress, Connection};
use strandline_meta::routing::Subject;
use strandline_meta::{Cluster, ClusterConfig, ConnectionConfig, ErrorCode};
use strandline_protocol::Uuid;
use strandline_protocol::messages::create_topics::CreatableTopic;
use strandline_protocol::messages::produce::{PartitionProduceData, TopicProduceData};
use strandline_protocol::messages::{CreateTopicsRequest, MetadataRequest, ProduceRequest};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use tokio::sync::Semaphore;

const SMALL: &str = "bench.small";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| arguments[n].parse::<usize>().unwrap();
    let began = Instant::now();
    // One thread carries what one socket brings; the others would only be woken for it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match &*arguments[0] {
            "topics" => topics(number(1), number(2)).await,
            "snapshot" => snapshot(began).await,
            "lookup" => lookup().await,
            "produce" => produce(&arguments[1], number(2), number(3)).await,
            "breakdown" => breakdown().await,
            other => panic!("{other}"),
        }
    });
}

fn address() -> BrokerAddress {
    let bootstrap = std::env::var("BOOTSTRAP").unwrap_or_else(|_| "127.0.0.1:29092".to_owned());
    bootstrap.parse().unwrap()
}

fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

fn config() -> ClusterConfig {
    ClusterConfig::new([address()], ConnectionConfig::default()).read_write()
}

async fn connect() -> Cluster {
    Cluster::connect(config(), soon()).await.unwrap()
}

fn told(began: Instant, what: &str) {
    println!(r#"{{"peer":"strandline","ms":{:.3},{what}}}"#, began.elapsed().as_secs_f64() * 1e3);
}

async fn topics(count: usize, partitions: usize) {
    let began = Instant::now();
    let cluster = connect().await;
    let names: Vec<String> =
        (0..count).map(|n| format!("meta.bench.{n:04}")).chain([SMALL.to_owned()]).collect();
    for names in names.chunks(50) {
        let topic = |name: &String| CreatableTopic {
            name: name.clone(),
            num_partitions: partitions as i32,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let build = |_| CreateTopicsRequest {
            topics: names.iter().map(topic).collect(),
            timeout_ms: 60_000,
            ..CreateTopicsRequest::default()
        };
        let answer = cluster.send(Subject::Cluster, build, soon()).await.unwrap();
        for topic in answer.topics {
            let code = topic.error_code;
            let is_there = matches!(code, ErrorCode::None | ErrorCode::TopicAlreadyExists);
            assert!(is_there, "{}: {code}", topic.name);
        }
    }
    // The answer comes before the broker has made all logs; until then it tells only part of the topics.
    while told_partitions(&cluster).await < (count + 1) * partitions {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    told(began, &format!(r#""topics":{count}"#));
}

/// How many partitions with a leader a broker tells.
async fn told_partitions(cluster: &Cluster) -> usize {
    let held = cluster.refresh_all(soon()).await.unwrap();
    let partitions = held.topics().flat_map(|topic| &topic.partitions);
    partitions.filter(|partition| partition.leader.is_some()).count()
}

async fn snapshot(began: Instant) {
    // Not `connect`, which asks for the brokers first: the question about all topics tells them as well.
    let held = Cluster::start(config()).refresh_all(soon()).await.unwrap();
    let topics = held.topics().count();
    let partitions: usize = held.topics().map(|topic| topic.partitions.len()).sum();
    assert!(topics >= 1_000 && partitions >= 10_000, "{topics} topics, {partitions} partitions");
    told(began, &format!(r#""topics":{topics},"partitions":{partitions}"#));
}

async fn lookup() {
    const LOOKUPS: usize = 2_000_000;
    let cluster = connect().await;
    let held = cluster.refresh_all(soon()).await.unwrap();
    let mut wanted: Vec<(Arc<str>, i32)> = held
        .topics()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (Arc::clone(&topic.name), partition.index)))
        .collect();
    // Any order but that of the names (a multiplicative generator, a prime modulus).
    let mut at = 1_usize;
    for n in (1..wanted.len()).rev() {
        at = at * 48_271 % 0x7fff_ffff;
        wanted.swap(n, at % (n + 1));
    }
    let mut best = [f64::INFINITY; 2];
    for _ in 0..5 {
        let began = on_cpu_ns();
        for (topic, partition) in wanted.iter().cycle().take(LOOKUPS) {
            black_box(held.partition(topic, *partition).unwrap().leader);
        }
        best[0] = best[0].min((on_cpu_ns() - began) / LOOKUPS as f64);
        let began = on_cpu_ns();
        for (topic, partition) in wanted.iter().cycle().take(LOOKUPS) {
            black_box(cluster.snapshot().partition(topic, *partition).unwrap().leader);
        }
        best[1] = best[1].min((on_cpu_ns() - began) / LOOKUPS as f64);
    }
    println!(
        r#"{{"peer":"strandline","partitions":{},"ns_in_a_held_view":{:.1},"ns_with_taking_the_view":{:.1}}}"#,
        wanted.len(),
        best[0],
        best[1]
    );
}

/// Time that this process, which has one thread, was on a CPU: other work on the machine does not count.
fn on_cpu_ns() -> f64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    told.split_whitespace().next().unwrap().parse().unwrap()
}

async fn produce(topic: &str, requests: usize, in_flight: usize) {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let timestamp_ms = now.as_millis() as i64;
    batch.push(NewRecord { timestamp_ms, value: Some(&[b'x'; 100]), ..NewRecord::default() }).unwrap();
    let mut bytes = Vec::new();
    batch.finish(&mut bytes).unwrap();
    let (records, cluster) = (Bytes::from(bytes), connect().await);
    let view = cluster.refresh_topics(&[topic], soon()).await.unwrap();
    let (id, name): (Uuid, Arc<str>) = (view.topic(topic).unwrap().id.unwrap().0, topic.into());
    let send = {
        let (cluster, name) = (cluster.clone(), Arc::clone(&name));
        move || {
            let (cluster, records, name) = (cluster.clone(), records.clone(), Arc::clone(&name));
            async move {
                let build = |version| ProduceRequest {
                    acks: 1,
                    timeout_ms: 30_000,
                    topic_data: vec![TopicProduceData {
                        name: if version >= 13 { String::new() } else { name.to_string() },
                        topic_id: if version >= 13 { id } else { Uuid::ZERO },
                        partition_data: vec![PartitionProduceData {
                            index: 0,
                            records: Some(records.clone()),
                            ..PartitionProduceData::default()
                        }],
                        ..TopicProduceData::default()
                    }],
                    ..ProduceRequest::default()
                };
                let subject = Subject::Partition { topic: Arc::clone(&name), partition: 0 };
                let answer = cluster.send(subject, build, soon()).await.unwrap();
                let code = answer.responses[0].partition_responses[0].error_code;
                assert!(code == ErrorCode::None, "{code}");
            }
        }
    };
    // The first one connects.
    send().await;
    let began = Instant::now();
    let places = Arc::new(Semaphore::new(in_flight));
    for _ in 0..requests {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let sent = send();
        tokio::spawn(async move {
            sent.await;
            drop(place);
        });
    }
    let _all = places.acquire_many(in_flight as u32).await.unwrap();
    told(began, &format!(r#""requests":{requests}"#));
}

async fn breakdown() {
    let config = Arc::new(ConnectionConfig::default());
    for _ in 0..5 {
        let began = Instant::now();
        let connection = Connection::connect(&address(), &config, soon()).await.unwrap();
        let connected = began.elapsed();
        let one = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
        let one = MetadataRequest { allow_auto_topic_creation: false, ..one };
        connection.send(|_| one.clone(), soon()).await.unwrap();
        let brokers = began.elapsed();
        let all =
            MetadataRequest { topics: None, allow_auto_topic_creation: false, ..MetadataRequest::default() };
        let answer = connection.send(|_| all.clone(), soon()).await.unwrap();
        let listed = began.elapsed();
        let topics = answer.topics.len();
        let again = Instant::now();
        let cluster = connect().await;
        let cluster_connected = again.elapsed();
        cluster.refresh_all(soon()).await.unwrap();
        let held = again.elapsed();
        cluster.refresh_all(soon()).await.unwrap();
        let held_again = again.elapsed();
        println!(
            "connect {connected:?}, brokers after {brokers:?}, {topics} topics listed after {listed:?}; cluster: connect \
             {cluster_connected:?}, held after {held:?}, again after {held_again:?}"
        );
    }
}

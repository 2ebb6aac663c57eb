//! rdkafka: a snapshot of all topics; small Produce requests, each with one record, as many in flight as strandline has; events
//! published, one after the other or with 1 000 on their way; all records of TOPIC, which are counted and not decoded.
//!
//! usage: peer-rdkafka snapshot | produce TOPIC REQUESTS IN_FLIGHT | publish one|many EVENTS | consume

use std::sync::mpsc;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &*arguments[0] {
        "snapshot" => snapshot(),
        "produce" => produce(&arguments[1], arguments[2].parse().unwrap(), arguments[3].parse().unwrap()),
        "publish" => publish(&arguments[1], arguments[2].parse().unwrap()),
        "consume" => consume(),
        other => panic!("{other}"),
    }
    // Its threads take their time to end, which is not what is measured.
    std::process::exit(0);
}

fn snapshot() {
    let began = Instant::now();
    let client: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", bench_peers::bootstrap()).create().unwrap();
    let held = client.fetch_metadata(None, Duration::from_secs(30)).unwrap();
    let partitions = held.topics().iter().map(|topic| topic.partitions().len()).sum();
    bench_peers::snapshot_held("rdkafka", began, held.topics().len(), partitions);
}

struct Delivered(mpsc::Sender<bool>);

impl ClientContext for Delivered {}

impl ProducerContext for Delivered {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0.send(result.is_ok()).unwrap();
    }
}

fn produce(topic: &str, requests: usize, in_flight: usize) {
    let (delivered, deliveries) = mpsc::channel();
    let producer: ThreadedProducer<Delivered> = ClientConfig::new()
        .set("bootstrap.servers", bench_peers::bootstrap())
        .set("acks", "1")
        .set("linger.ms", "0")
        .set("batch.num.messages", "1")
        .set("max.in.flight.requests.per.connection", in_flight.to_string())
        .create_with_context(Delivered(delivered))
        .unwrap();
    let send = || {
        let record = BaseRecord::<(), [u8]>::to(topic).partition(0).payload(&[b'x'; 100][..]);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    };
    // The first one connects.
    send();
    assert!(deliveries.recv().unwrap());
    let began = Instant::now();
    let (mut sent, mut done) = (0, 0);
    while done < requests {
        while sent < requests && sent - done < in_flight {
            send();
            sent += 1;
        }
        assert!(deliveries.recv().unwrap());
        done += 1;
    }
    bench_peers::requests_answered("rdkafka", began, requests);
}

const PARTITIONS: usize = 50;

fn publish(mode: &str, events: usize) {
    let linger = std::env::var("LINGER").unwrap_or_else(|_| "5".to_owned());
    let topic = bench_peers::topic();
    let (delivered, deliveries) = mpsc::channel();
    let producer: ThreadedProducer<Delivered> = ClientConfig::new()
        .set("bootstrap.servers", bench_peers::bootstrap())
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", linger)
        .create_with_context(Delivered(delivered))
        .unwrap();
    let send = |nth: usize| {
        let value = bench_peers::value(nth);
        let partition = (nth * 7 % PARTITIONS) as i32;
        let record = BaseRecord::<(), [u8]>::to(&topic).partition(partition).payload(&value[..]);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    };
    let one = |nth| {
        send(nth);
        assert!(deliveries.recv().unwrap());
    };
    (0..500).for_each(one);
    let began = Instant::now();
    if mode == "one" {
        let waits = (0..events).map(|nth| {
            let sent_at = Instant::now();
            one(nth);
            sent_at.elapsed()
        });
        let waits = waits.collect();
        return bench_peers::published_one("rdkafka", began, waits);
    }
    let (mut sent, mut done) = (0, 0);
    while done < events {
        while sent < events && sent - done < 1_000 {
            send(sent);
            sent += 1;
        }
        assert!(deliveries.recv().unwrap());
        done += 1;
    }
    bench_peers::published_many("rdkafka", began, events);
}

fn consume() {
    let (began, topic) = (Instant::now(), bench_peers::topic());
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bench_peers::bootstrap())
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .set("queued.max.messages.kbytes", "65536")
        // Its default waits a second whenever the queue was full.
        .set("fetch.queue.backoff.ms", "0")
        .create()
        .unwrap();
    let patience = Duration::from_secs(20);
    let end = |partition: usize| consumer.fetch_watermarks(&topic, partition as i32, patience).unwrap().1;
    let ends: Vec<i64> = (0..PARTITIONS).map(end).collect();
    let mut assigned = TopicPartitionList::new();
    for partition in (0..PARTITIONS).filter(|partition| ends[*partition] > 0) {
        assigned.add_partition_offset(&topic, partition as i32, Offset::Beginning).unwrap();
    }
    consumer.assign(&assigned).unwrap();
    let (mut open, mut events) = (assigned.count(), 0);
    while open > 0 {
        let Some(message) = consumer.poll(patience) else { continue };
        let message = message.unwrap();
        events += 1;
        open -= usize::from(message.offset() + 1 == ends[message.partition() as usize]);
    }
    bench_peers::consumed("rdkafka", began, events);
}

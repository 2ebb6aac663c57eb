//! rskafka: a list of all topics with the numbers of their partitions, or all records of TOPIC, which are not decoded further.
//!
//! usage: peer-rskafka snapshot | consume

use std::sync::Arc;
use std::time::Instant;

use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};

const PARTITIONS: i32 = 50;

#[tokio::main]
async fn main() {
    let began = Instant::now();
    let client = ClientBuilder::new(vec![bench_peers::bootstrap()]).build().await.unwrap();
    if std::env::args().nth(1).as_deref() == Some("consume") {
        return consume(began, client).await;
    }
    let held = client.list_topics().await.unwrap();
    let partitions = held.iter().map(|topic| topic.partitions.len()).sum();
    bench_peers::snapshot_held("rskafka", began, held.len(), partitions);
}

async fn consume(began: Instant, client: Client) {
    let client = Arc::new(client);
    let mut tasks = Vec::new();
    for partition in 0..PARTITIONS {
        let client = Arc::clone(&client);
        tasks.push(tokio::spawn(async move {
            let topic = bench_peers::topic();
            let client = client.partition_client(topic, partition, UnknownTopicHandling::Error).await.unwrap();
            let end = client.get_offset(OffsetAt::Latest).await.unwrap();
            let (mut next, mut events) = (0, 0);
            while next < end {
                let (records, _) = client.fetch_records(next, 1..1 << 20, 500).await.unwrap();
                events += records.len();
                next = records.last().map_or(next, |last| last.offset + 1);
            }
            events
        }));
    }
    let mut events = 0;
    for task in tasks {
        events += task.await.unwrap();
    }
    bench_peers::consumed("rskafka", began, events);
}

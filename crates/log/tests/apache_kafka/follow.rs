//! Following while brokers die and come back, with both kinds of connections at once.

use std::collections::BTreeMap;
use std::time::Duration;

use strandline_log::{
    FetchConnections, KafkaMetadataEventLog, KafkaMetadataLogConfig, LiveMetadataEventLog as _,
    MetadataDelivery, MetadataEventLog as _, MetadataEventQueueCapacity, MetadataEventSubscription,
};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_testkit::apache::{ApacheKafka, Options};
use tokio::time::{Instant, sleep, timeout};

use crate::ONE_CLUSTER;

const TOPIC: &str = "metadata-followed";
const PARTITIONS: i32 = 6;

/// Longer than a broker takes to come back on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

async fn log(bootstrap: &str, fetch_connections: FetchConnections) -> KafkaMetadataEventLog {
    let bootstrap = BrokerAddress::parse_list(bootstrap).unwrap();
    let by = || Instant::now() + PATIENCE;
    let cluster = ClusterConfig::new(bootstrap, ConnectionConfig::default()).read_write();
    let cluster = Cluster::connect(cluster, by()).await.unwrap();
    let (topic, num_partitions) = (TOPIC.to_owned(), PARTITIONS);
    let config = KafkaMetadataLogConfig {
        topic,
        num_partitions,
        fetch_connections,
        ..KafkaMetadataLogConfig::default()
    };
    KafkaMetadataEventLog::start(&cluster, config, by()).await.unwrap()
}

/// What a subscriber has seen of each partition, in the order in which it came.
type Seen = BTreeMap<i32, Vec<(i64, String)>>;

async fn take(events: &mut MetadataEventSubscription, seen: &mut Seen, until: usize) {
    while seen.values().map(Vec::len).sum::<usize>() < until {
        let delivery = timeout(PATIENCE, events.next()).await;
        let delivery =
            delivery.unwrap_or_else(|_| panic!("{seen:?} of {until}: {:?}", events.assignment().list()));
        let Some(MetadataDelivery::Record { record, .. }) = delivery else { panic!("{delivery:?}") };
        let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
        seen.entry(record.partition).or_default().push((record.offset, value));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
async fn brokers_that_die_and_come_back_are_followed_without_loss_or_repetition() {
    let _one = ONE_CLUSTER.lock().await;
    let kafka = ApacheKafka::start(Options { brokers: 3, tiered: false, ..Options::default() }).unwrap();
    let bootstrap = [1, 2, 3].map(|id| kafka.bootstrap_of(id)).join(",");
    let logs = [
        log(&bootstrap, FetchConnections::PerPartition).await,
        log(&bootstrap, FetchConnections::PerLeader).await,
    ];
    let mut subscribed = Vec::new();
    for log in &logs {
        let events = log.subscribe(MetadataEventQueueCapacity::default());
        for partition in 0..PARTITIONS {
            events.assignment().add(partition, 0).unwrap();
        }
        subscribed.push((events, Seen::new()));
    }
    let mut written = Seen::new();
    let mut count = 0;
    for round in 0..4 {
        // A broker dies in the midst of it, and is back for the next round.
        let publishing = async {
            for event in 0..60 {
                let partition = event % PARTITIONS;
                let value = format!("{round}.{event}");
                let publish =
                    logs[0].publish(partition, value.clone().into(), Instant::now() + PATIENCE).await;
                written.entry(partition).or_default().push((publish.unwrap(), value));
                sleep(Duration::from_millis(5)).await;
            }
        };
        let dying = async {
            sleep(Duration::from_millis(100)).await;
            if round < 3 {
                kafka.kill_broker(round + 1).unwrap();
            }
        };
        tokio::join!(publishing, dying);
        count += 60;
        for (events, seen) in &mut subscribed {
            take(events, seen, count).await;
            assert_eq!(*seen, written, "round {round}");
        }
        if round < 3 {
            kafka.start_broker(round + 1).unwrap();
            kafka.wait_until_ready().unwrap();
        }
    }

    // What retention takes below a position that is added again is a stop, with the bounds of the log.
    kafka.delete_records(TOPIC, 0, 7).unwrap();
    for (events, _) in &mut subscribed {
        events.assignment().remove(0);
        events.assignment().add(0, 3).unwrap();
        let stopped = timeout(PATIENCE, events.next()).await.unwrap();
        let Some(MetadataDelivery::Stopped { error, .. }) = stopped else { panic!("{stopped:?}") };
        assert_eq!(
            error.to_string(),
            "offset 3 of metadata partition 0 is outside its log, which holds 7..40"
        );
    }
    for (events, _) in subscribed {
        events.close().await;
    }
    for log in logs {
        log.close().await;
    }
}

//! What the tests share: a cluster with a topic, typed calls, and the journal in words.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strandline_conn::{ByteStream, Dialler, Dialling};
use strandline_meta::routing::Subject;
use strandline_meta::{
    ApiKey, BrokerAddress, Call, Cluster, ClusterConfig, ConnectionConfig, ErrorCode, ItemAnswer, Routed,
    SendError,
};
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use strandline_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeTransactionsRequest, DescribeTransactionsResponse, FindCoordinatorRequest, MetadataRequest,
};
use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, JournalEntry, MemoryNetwork};
use tokio::time::Instant;

/// The cluster's network in memory, so that time can stand still.
#[derive(Clone, Debug)]
pub(crate) struct Memory(pub(crate) MemoryNetwork);

impl Dialler for Memory {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(std::future::ready(self.0.resolve(host, port)))
    }

    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        Box::pin(async move { Ok(Box::new(self.0.connect(address).await?) as Box<dyn ByteStream>) })
    }
}

/// Longer than any of these tests may take; time stands still in most of them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn within(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

/// So many brokers. Topic `orders` has a partition led by each of them, partition 0 by broker 1; partition n ends at
/// offset 10 n.
pub(crate) fn start(brokers: i32) -> EmbeddedCluster {
    start_with(ClusterOptions { brokers, ..ClusterOptions::default() })
}

pub(crate) fn start_with(options: ClusterOptions) -> EmbeddedCluster {
    let brokers = options.brokers;
    let embedded = EmbeddedCluster::start(options).unwrap();
    embedded.create_topic("orders", brokers as usize);
    for partition in 1..brokers {
        let records = vec![b"record".as_slice(); partition as usize * 10];
        embedded.append("orders", partition, &records);
    }
    embedded
}

pub(crate) fn address(embedded: &EmbeddedCluster, broker: i32) -> BrokerAddress {
    embedded.bootstrap_of(broker).parse().unwrap()
}

/// Connections over the network in memory.
pub(crate) fn connection(embedded: &EmbeddedCluster) -> ConnectionConfig {
    let dialler = Arc::new(Memory(embedded.memory_network()));
    ConnectionConfig { dialler, ..ConnectionConfig::default() }
}

/// Found through broker 1 alone, with a seed.
pub(crate) fn config(embedded: &EmbeddedCluster) -> ClusterConfig {
    ClusterConfig::new([address(embedded, 1)], connection(embedded)).jitter_seed(1)
}

pub(crate) async fn connect(embedded: &EmbeddedCluster) -> Cluster {
    Cluster::connect(config(embedded), soon()).await.unwrap()
}

/// The same, for a test about the answers of one broker.
pub(crate) async fn connect_to_one(embedded: &EmbeddedCluster) -> Cluster {
    assert_eq!(embedded.view().brokers.len(), 1);
    connect(embedded).await
}

/// Waits until something is so; not for ever. Time passes while it is not, in steps that cost nothing where it stands still.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = soon();
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// `BROKER API DETAIL` of every request of this API so far.
pub(crate) fn asked(embedded: &EmbeddedCluster, api: ApiKey) -> Vec<String> {
    embedded.journal().iter().filter(|entry| entry.api == api).map(line).collect()
}

/// The brokers that were asked this, each once.
pub(crate) fn brokers_asked(embedded: &EmbeddedCluster, api: ApiKey) -> Vec<i32> {
    let mut brokers: Vec<i32> =
        embedded.journal().iter().filter(|entry| entry.api == api).map(|entry| entry.broker).collect();
    brokers.sort_unstable();
    brokers.dedup();
    brokers
}

fn line(entry: &JournalEntry) -> String {
    let detail = match entry.api {
        ApiKey::Metadata => match entry.decode::<MetadataRequest>().unwrap().topics {
            None => "all".to_owned(),
            Some(topics) => topics.into_iter().filter_map(|topic| topic.name).collect::<Vec<_>>().join(","),
        },
        ApiKey::ListOffsets => {
            let request = entry.decode::<ListOffsetsRequest>().unwrap();
            let of = |topic: &ListOffsetsTopic| {
                let indexes = topic.partitions.iter().map(|partition| partition.partition_index);
                indexes.map(|index| format!("{}:{index}", topic.name)).collect::<Vec<_>>().join(",")
            };
            request.topics.iter().map(of).collect::<Vec<_>>().join(",")
        }
        ApiKey::DescribeGroups => entry.decode::<DescribeGroupsRequest>().unwrap().groups.join(","),
        ApiKey::DescribeTransactions => {
            entry.decode::<DescribeTransactionsRequest>().unwrap().transactional_ids.join(",")
        }
        ApiKey::FindCoordinator => {
            let request = entry.decode::<FindCoordinatorRequest>().unwrap();
            if entry.version >= 4 { request.coordinator_keys.join(",") } else { request.key }
        }
        _ => String::new(),
    };
    format!("{} {} {detail}", entry.broker, entry.api).trim_end().to_owned()
}

/// The end offsets of partitions.
pub(crate) struct Offsets;

impl Call for Offsets {
    type Request = ListOffsetsRequest;
    type Item = (&'static str, i32);
    type Answer = i64;

    fn subject(&self, &(topic, partition): &Self::Item) -> Subject {
        Subject::Partition { topic: topic.into(), partition }
    }

    fn request(&self, items: &[Routed<'_, Self::Item>], _version: i16) -> ListOffsetsRequest {
        let topics = items.iter().map(|routed| {
            let partition = ListOffsetsPartition {
                partition_index: routed.item.1,
                current_leader_epoch: routed.leader_epoch.unwrap_or(-1),
                timestamp: -1,
                ..Default::default()
            };
            ListOffsetsTopic {
                name: routed.item.0.to_owned(),
                partitions: vec![partition],
                ..Default::default()
            }
        });
        ListOffsetsRequest { replica_id: -1, topics: topics.collect(), ..Default::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, Self::Item>],
        response: ListOffsetsResponse,
    ) -> Vec<ItemAnswer<i64>> {
        let told = response.topics.iter().flat_map(|topic| &topic.partitions);
        let answers = told.map(|partition| match partition.error_code {
            ErrorCode::None => ItemAnswer::Answer(partition.offset),
            code => ItemAnswer::Code(code, None),
        });
        let answers: Vec<ItemAnswer<i64>> = answers.collect();
        assert_eq!(answers.len(), items.len());
        answers
    }
}

/// End offsets in words: a number, or the error with its causes.
pub(crate) async fn offsets(
    cluster: &Cluster,
    items: &[(&'static str, i32)],
    deadline: Instant,
) -> Vec<String> {
    shown(cluster.send_each(&Offsets, items, deadline).await.unwrap())
}

/// The first log directory of brokers: a call whose items are brokers.
pub(crate) struct LogDirs;

impl Call for LogDirs {
    type Request = DescribeLogDirsRequest;
    type Item = i32;
    type Answer = String;

    fn subject(&self, node_id: &i32) -> Subject {
        Subject::Broker(*node_id)
    }

    fn request(&self, _items: &[Routed<'_, i32>], _version: i16) -> DescribeLogDirsRequest {
        DescribeLogDirsRequest::default()
    }

    fn answers(
        &self,
        items: &[Routed<'_, i32>],
        response: DescribeLogDirsResponse,
    ) -> Vec<ItemAnswer<String>> {
        let answer = match (response.error_code, response.results.first()) {
            (ErrorCode::None, Some(first)) => ItemAnswer::Answer(first.log_dir.clone()),
            (ErrorCode::None, None) => ItemAnswer::LeftOut,
            (code, _) => ItemAnswer::Code(code, None),
        };
        items.iter().map(|_| answer.clone()).collect()
    }
}

/// The state of groups.
pub(crate) struct Groups;

impl Call for Groups {
    type Request = DescribeGroupsRequest;
    type Item = String;
    type Answer = String;

    fn subject(&self, group: &String) -> Subject {
        Subject::Group(group.clone())
    }

    fn request(&self, items: &[Routed<'_, String>], _version: i16) -> DescribeGroupsRequest {
        let groups = items.iter().map(|routed| routed.item.clone()).collect();
        DescribeGroupsRequest { groups, ..Default::default() }
    }

    fn answers(
        &self,
        _items: &[Routed<'_, String>],
        response: DescribeGroupsResponse,
    ) -> Vec<ItemAnswer<String>> {
        let answer =
            |group: strandline_protocol::messages::describe_groups::DescribedGroup| match group.error_code {
                ErrorCode::None => ItemAnswer::Answer(group.group_state),
                code => ItemAnswer::Code(code, group.error_message),
            };
        response.groups.into_iter().map(answer).collect()
    }
}

/// The state of transactional ids.
pub(crate) struct Transactions;

impl Call for Transactions {
    type Request = DescribeTransactionsRequest;
    type Item = String;
    type Answer = String;

    fn subject(&self, id: &String) -> Subject {
        Subject::Transaction(Some(id.clone()))
    }

    fn request(&self, items: &[Routed<'_, String>], _version: i16) -> DescribeTransactionsRequest {
        let transactional_ids = items.iter().map(|routed| routed.item.clone()).collect();
        DescribeTransactionsRequest { transactional_ids, ..Default::default() }
    }

    fn answers(
        &self,
        _items: &[Routed<'_, String>],
        response: DescribeTransactionsResponse,
    ) -> Vec<ItemAnswer<String>> {
        let states = response.transaction_states.into_iter();
        let answers = states.map(|state| match state.error_code {
            ErrorCode::None => ItemAnswer::Answer(state.transaction_state),
            code => ItemAnswer::Code(code, None),
        });
        answers.collect()
    }
}

/// An error with all its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Results on one line each, with times and ports replaced.
pub(crate) fn shown<T: std::fmt::Display>(results: Vec<Result<T, SendError>>) -> Vec<String> {
    let text = |result: Result<T, SendError>| match result {
        Ok(value) => value.to_string(),
        Err(error) => without_numbers(&chain(&error)),
    };
    results.into_iter().map(text).collect()
}

/// Replaces ports and durations, which differ from run to run.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("127.0.0.1:") {
        let (before, after) = rest.split_at(at + "127.0.0.1:".len());
        out.push_str(before);
        out.push_str("PORT");
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out.push_str(rest);
    let words = out.split(' ').map(|word| {
        let bare = word.trim_end_matches([':', ';', ',']);
        let is_time = bare.ends_with('s') && bare.starts_with(|c: char| c.is_ascii_digit());
        if is_time { word.replace(bare, "TIME") } else { word.to_owned() }
    });
    words.collect::<Vec<String>>().join(" ")
}

//! What the scenarios ask, and through what.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use strandline_conn::{ConnectError, Observer, RequestEvent, ThrottleEvent};
use strandline_meta::routing::{ResourceKind, Subject};
use strandline_meta::{
    ApiKey, BrokerAddress, Cluster, ClusterConfig, ConnectionConfig, ErrorCode, RefreshError, SendError,
};
use strandline_protocol::Uuid;
use strandline_protocol::messages::create_topics::CreatableTopic;
use strandline_protocol::messages::delete_topics::DeleteTopicState;
use strandline_protocol::messages::describe_configs::DescribeConfigsResource;
use strandline_protocol::messages::fetch::{FetchPartition, FetchTopic};
use strandline_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use strandline_protocol::messages::offset_fetch::OffsetFetchRequestGroup;
use strandline_protocol::messages::produce::{PartitionProduceData, TopicProduceData};
use strandline_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, FetchRequest, FetchResponse,
    FindCoordinatorRequest, ListOffsetsRequest, OffsetFetchRequest, ProduceRequest,
};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

pub(crate) fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// Connects with the right to write.
pub(crate) async fn connect(address: &str, connection: ConnectionConfig) -> Result<Cluster, RefreshError> {
    let address: BrokerAddress = address.parse().unwrap();
    Cluster::connect(ClusterConfig::new([address], connection).read_write(), within(60)).await
}

/// Why a connect failed, at its root.
pub(crate) fn connect_error(error: &RefreshError) -> &ConnectError {
    let mut cause: &(dyn Error + 'static) = error;
    loop {
        match (cause.downcast_ref(), cause.downcast_ref::<Arc<ConnectError>>(), cause.source()) {
            (Some(found), _, _) => return found,
            (None, Some(found), _) => return found,
            (None, None, Some(source)) => cause = source,
            (None, None, None) => panic!("no failed connect is at the root of {error:?}"),
        }
    }
}

/// The end of a partition's log.
pub(crate) async fn end_of(
    cluster: &Cluster,
    topic: &str,
    partition: i32,
    seconds: u64,
) -> Result<i64, SendError> {
    let build = |_| ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                current_leader_epoch: -1,
                timestamp: -1,
                ..ListOffsetsPartition::default()
            }],
            ..ListOffsetsTopic::default()
        }],
        ..ListOffsetsRequest::default()
    };
    let answer = cluster.send(leader_of(topic, partition), build, within(seconds)).await?;
    let told = &answer.topics[0].partitions[0];
    match told.error_code {
        ErrorCode::None => Ok(told.offset),
        code => Err(SendError::Code { peer: "the leader".to_owned(), code, message: None }),
    }
}

fn leader_of(topic: &str, partition: i32) -> Subject {
    Subject::Partition { topic: topic.into(), partition }
}

/// Appends records of 1 000 bytes, each in a batch of its own.
pub(crate) async fn produce(
    cluster: &Cluster,
    topic: &str,
    partition: i32,
    records: i64,
) -> anyhow::Result<()> {
    // Of this moment: what is older than the retention goes at once.
    let timestamp_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as i64;
    for _ in 0..records {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch.push(NewRecord { timestamp_ms, value: Some(&[b'x'; 1000]), ..NewRecord::default() })?;
        let mut bytes = Vec::new();
        batch.finish(&mut bytes)?;
        let records = Bytes::from(bytes);
        let build = |version| {
            let id = cluster.snapshot().topic(topic).and_then(|topic| topic.id);
            let by_id = version >= 13;
            ProduceRequest {
                acks: -1,
                timeout_ms: 10_000,
                topic_data: vec![TopicProduceData {
                    name: if by_id { String::new() } else { topic.to_owned() },
                    topic_id: id.filter(|_| by_id).map_or(Uuid::ZERO, |id| id.0),
                    partition_data: vec![PartitionProduceData {
                        index: partition,
                        records: Some(records.clone()),
                        ..PartitionProduceData::default()
                    }],
                    ..TopicProduceData::default()
                }],
                ..ProduceRequest::default()
            }
        };
        let answer = cluster.send(leader_of(topic, partition), build, within(30)).await?;
        let code = answer.responses[0].partition_responses[0].error_code;
        anyhow::ensure!(code == ErrorCode::None, "Produce to {topic}-{partition}: {code}");
    }
    Ok(())
}

/// One page from the start of a partition's log, of the topic with this id.
pub(crate) async fn fetch(
    cluster: &Cluster,
    topic: &str,
    topic_id: Uuid,
    partition: i32,
    patience: Duration,
) -> Result<FetchResponse, SendError> {
    let build = |_| FetchRequest {
        replica_id: -1,
        max_wait_ms: 100,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic_id,
            partitions: vec![FetchPartition {
                partition,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    cluster.send(leader_of(topic, partition), build, Instant::now() + patience).await
}

/// Creates a topic with three replicas of each partition; true if it was not there before.
pub(crate) async fn create_topic(cluster: &Cluster, topic: &str, partitions: i32) -> Result<bool, SendError> {
    let build = |_| CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.to_owned(),
            num_partitions: partitions,
            replication_factor: 3,
            ..CreatableTopic::default()
        }],
        timeout_ms: 10_000,
        ..CreateTopicsRequest::default()
    };
    let answer = cluster.send(Subject::Cluster, build, within(60)).await?;
    match answer.topics[0].error_code {
        ErrorCode::None => Ok(true),
        ErrorCode::TopicAlreadyExists => Ok(false),
        code => Err(SendError::Code { peer: "the controller".to_owned(), code, message: None }),
    }
}

pub(crate) async fn delete_topic(cluster: &Cluster, topic: &str) -> anyhow::Result<()> {
    let build = |version| DeleteTopicsRequest {
        topics: match version >= 6 {
            true => vec![DeleteTopicState { name: Some(topic.to_owned()), ..DeleteTopicState::default() }],
            false => Vec::new(),
        },
        topic_names: if version >= 6 { Vec::new() } else { vec![topic.to_owned()] },
        timeout_ms: 10_000,
        ..DeleteTopicsRequest::default()
    };
    let answer = cluster.send(Subject::Cluster, build, within(30)).await?;
    let code = answer.responses[0].error_code;
    anyhow::ensure!(code == ErrorCode::None, "DeleteTopics of {topic}: {code}");
    Ok(())
}

/// The broker that coordinates a group.
pub(crate) async fn coordinator_of(cluster: &Cluster, group: &str) -> Result<i32, SendError> {
    let build = |version| FindCoordinatorRequest {
        key: if version >= 4 { String::new() } else { group.to_owned() },
        coordinator_keys: if version >= 4 { vec![group.to_owned()] } else { Vec::new() },
        ..FindCoordinatorRequest::default()
    };
    let answer = cluster.send(Subject::Cluster, build, within(30)).await?;
    Ok(answer.coordinators[0].node_id)
}

/// What a group has committed, asked of its coordinator: nothing here.
pub(crate) async fn committed(cluster: &Cluster, group: &str) -> Result<ErrorCode, SendError> {
    let build = |_| OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            member_epoch: -1,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let answer = cluster.send(Subject::Group(group.to_owned()), build, within(60)).await?;
    Ok(answer.groups[0].error_code)
}

/// What a broker says that its id is: only it itself may answer.
pub(crate) async fn own_id(cluster: &Cluster, broker: i32) -> anyhow::Result<Option<String>> {
    let name = broker.to_string();
    let build = |_| DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: ResourceKind::Broker.code(),
            resource_name: name.clone(),
            configuration_keys: Some(vec!["node.id".to_owned()]),
            ..DescribeConfigsResource::default()
        }],
        ..DescribeConfigsRequest::default()
    };
    let subject = Subject::Resource { kind: ResourceKind::Broker, name: name.clone() };
    let answer = cluster.send(subject, build, within(60)).await?;
    anyhow::ensure!(answer.results[0].error_code == ErrorCode::None, "{:?}", answer.results[0]);
    Ok(answer.results[0].configs.first().and_then(|config| config.value.clone()))
}

/// An address that stays, before brokers whose addresses do not: what a name is in a real network.
pub(crate) struct Forwarder {
    pub(crate) address: String,
    to: Arc<Mutex<String>>,
}

impl Forwarder {
    pub(crate) async fn start(to: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let to = Arc::new(Mutex::new(to));
        let target = Arc::clone(&to);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let to = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
                tokio::spawn(async move {
                    // How a forwarded connection ends, both of its ends see.
                    if let Ok(mut there) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
                    }
                });
            }
        });
        Ok(Self { address, to })
    }

    pub(crate) fn redirect(&self, to: String) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

/// Remembers what brokers say about throttling, and how long a Fetch waited before it went out.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    pub(crate) asked: Mutex<Vec<(Instant, Duration)>>,
    pub(crate) queued: Mutex<Vec<Duration>>,
}

impl Observer for Throttles {
    fn on_throttle(&self, event: &ThrottleEvent<'_>) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), event.wait));
    }

    fn on_request(&self, event: &RequestEvent<'_>) {
        if event.api == ApiKey::Fetch && event.outcome.is_ok() {
            self.queued.lock().unwrap_or_else(PoisonError::into_inner).push(event.queued);
        }
    }
}

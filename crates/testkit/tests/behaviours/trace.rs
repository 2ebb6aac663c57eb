//! What is asked, and what is written down of the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::Peer;
use bytes::Bytes;
use strandline_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use strandline_protocol::messages::delete_topics::DeleteTopicState;
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic,
};
use strandline_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use strandline_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use strandline_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use strandline_protocol::messages::{
    ApiVersionsRequest, DeleteTopicsRequest, DescribeGroupsRequest, DescribeTransactionsRequest,
    FindCoordinatorRequest,
};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord, Producer};
use strandline_protocol::{ApiKey, ErrorCode, Uuid};
use strandline_testkit::embedded::MemoryNetwork;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Writes a line of the trace.
macro_rules! say {
    ($trace:expr, $($what:tt)*) => { std::fmt::Write::write_fmt(&mut $trace.lines, format_args!("{}\n", format_args!($($what)*))).unwrap() };
}
pub(crate) use say;

/// The configs of a topic whose records may have any time and stay in one segment.
pub(crate) const LEDGER: &[(&str, &str)] = &[("retention.ms", "-1"), ("segment.ms", "3153600000000")];

/// How often a wait looks, every 50 ms: for 20 seconds.
pub(crate) const WAITS_MAX: usize = 400;

/// A stream of bytes, whatever it runs over.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// One client, and what it was told.
pub(crate) struct Trace {
    dialler: Dialler,
    pub(crate) peer: Peer<Box<dyn ByteStream>>,
    pub(crate) lines: String,
    /// The newest version of each API that is served.
    newest: BTreeMap<i16, i16>,
}

impl Trace {
    /// Over plain TCP.
    pub(crate) async fn connect(address: &str) -> Self {
        Self::connect_by(Dialler::Tcp, address).await
    }

    pub(crate) async fn connect_by(dialler: Dialler, address: &str) -> Self {
        let peer = dialler.dial(address).await.unwrap();
        let mut trace = Self { dialler, peer, lines: String::new(), newest: BTreeMap::new() };
        let served = trace.peer.call(0, &ApiVersionsRequest::default()).await;
        trace.newest = served.api_keys.iter().map(|row| (row.api_key, row.max_version)).collect();
        trace
    }

    /// Takes another connection.
    pub(crate) async fn reconnect(&mut self, address: &str) {
        self.peer = self.dialler.dial(address).await.unwrap();
    }

    /// This version, or the newest that is served where that is older.
    pub(crate) fn at_most(&self, api: ApiKey, version: i16) -> i16 {
        self.newest.get(&api.code()).map_or(version, |newest| version.min(*newest))
    }

    pub(crate) async fn produce_one(
        &mut self,
        name: &str,
        version: i16,
        acks: i16,
        topic: &str,
        index: i32,
        records: Bytes,
    ) {
        let data = PartitionProduceData { index, records: Some(records), ..PartitionProduceData::default() };
        let topic = TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let request =
            ProduceRequest { acks, timeout_ms: 10_000, topic_data: vec![topic], ..ProduceRequest::default() };
        let response = self.peer.call(version, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        let (base, start) = (partition.base_offset, partition.log_start_offset);
        say!(self, "Produce v{version} {name}: {:?} base={base} start={start}", partition.error_code);
    }

    pub(crate) async fn end_of_epoch(&mut self, known: i32, epoch: i32) {
        let partition = OffsetForLeaderPartition {
            partition: 0,
            current_leader_epoch: known,
            leader_epoch: epoch,
            ..OffsetForLeaderPartition::default()
        };
        let topic = OffsetForLeaderTopic {
            topic: "orders".to_owned(),
            partitions: vec![partition],
            ..OffsetForLeaderTopic::default()
        };
        let request =
            OffsetForLeaderEpochRequest { topics: vec![topic], ..OffsetForLeaderEpochRequest::default() };
        let response = self.peer.call(4, &request).await;
        let end = &response.topics[0].partitions[0];
        say!(
            self,
            "OffsetForLeaderEpoch v4 known={known} epoch={epoch}: {:?} epoch={} end={}",
            end.error_code,
            end.leader_epoch,
            end.end_offset
        );
    }

    pub(crate) async fn list_offset(
        &mut self,
        version: i16,
        topic: &str,
        partition: i32,
        known: i32,
        timestamp: i64,
    ) {
        let version = self.at_most(ApiKey::ListOffsets, version);
        let found = self.look_up(version, topic, partition, known, timestamp, 0).await;
        say!(
            self,
            "ListOffsets v{version} {topic}-{partition} known={known} {timestamp}: {:?} timestamp={} offset={} epoch={}",
            found.error_code,
            found.timestamp,
            found.offset,
            found.leader_epoch
        );
    }

    /// What readers of this isolation level are told.
    pub(crate) async fn list_offset_isolated(
        &mut self,
        topic: &str,
        partition: i32,
        isolation_level: i8,
        timestamp: i64,
    ) {
        let found = self.look_up(7, topic, partition, -1, timestamp, isolation_level).await;
        let (code, offset) = (found.error_code, found.offset);
        // A marker's time is that of the broker.
        let time = if found.timestamp > 1_000_000 { "now".to_owned() } else { found.timestamp.to_string() };
        say!(
            self,
            "ListOffsets v7 {topic}-{partition} isolation={isolation_level} {timestamp}: {code:?} timestamp={time} offset={offset}"
        );
    }

    /// The offset that a special timestamp of version 8 has now.
    pub(crate) async fn offset_of(&mut self, topic: &str, partition: i32, timestamp: i64) -> i64 {
        self.look_up(8, topic, partition, -1, timestamp, 0).await.offset
    }

    async fn look_up(
        &mut self,
        version: i16,
        topic: &str,
        partition: i32,
        known: i32,
        timestamp: i64,
        isolation_level: i8,
    ) -> ListOffsetsPartitionResponse {
        let asked = ListOffsetsPartition {
            partition_index: partition,
            current_leader_epoch: known,
            timestamp,
            ..ListOffsetsPartition::default()
        };
        let asked = ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: vec![asked],
            ..ListOffsetsTopic::default()
        };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![asked],
            isolation_level,
            timeout_ms: if version >= 10 { 5_000 } else { 0 },
            ..ListOffsetsRequest::default()
        };
        self.peer.call(version, &request).await.topics.remove(0).partitions.remove(0)
    }

    /// What readers of this isolation level get of a partition.
    pub(crate) async fn fetch_isolated(
        &mut self,
        version: i16,
        topic_id: Uuid,
        partition: FetchPartition,
        isolation_level: i8,
    ) -> PartitionData {
        let topic = FetchTopic { topic_id, partitions: vec![partition], ..FetchTopic::default() };
        let request =
            FetchRequest { max_wait_ms: 50, isolation_level, topics: vec![topic], ..FetchRequest::default() };
        self.peer.call(version, &request).await.responses.remove(0).partitions.remove(0)
    }

    /// Makes a topic of two partitions and gives its id once it is led.
    pub(crate) async fn create(&mut self, name: &str, configs: &[(&str, &str)]) -> Uuid {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: name.to_string(),
            value: Some(value.to_string()),
            ..CreatableTopicConfig::default()
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: 2,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..CreatableTopic::default()
        };
        let request =
            CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..CreateTopicsRequest::default() };
        let created = self.peer.call(7, &request).await.topics.remove(0);
        assert_eq!(created.error_code, ErrorCode::None, "{:?}", created.error_message);
        let id = self.until_led_partitions(name, 2).await;
        for partition in 0..2 {
            self.until_served(name, partition).await;
        }
        id
    }

    /// Waits until the broker knows that it leads a partition, which metadata can tell a moment earlier.
    pub(crate) async fn until_served(&mut self, name: &str, partition: i32) {
        let mut code = ErrorCode::None;
        for _ in 0..WAITS_MAX {
            code = self.look_up(7, name, partition, -1, -2, 0).await.error_code;
            if code == ErrorCode::None {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{name}-{partition} is not served: {code:?}");
    }

    /// Waits until broker 1 leads so many partitions of a topic, and gives the topic's id.
    pub(crate) async fn until_led_partitions(&mut self, name: &str, count: usize) -> Uuid {
        for _ in 0..WAITS_MAX {
            let topic = self.peer.call(12, &metadata(Some(&[name]), false)).await.topics.remove(0);
            if topic.partitions.len() == count && topic.partitions.iter().all(|it| it.leader_id == 1) {
                return topic.topic_id;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("nobody leads {count} partitions of {name}");
    }

    /// Deletes a topic and waits until it is gone.
    pub(crate) async fn delete(&mut self, name: &str) {
        let topic = DeleteTopicState { name: Some(name.to_owned()), ..DeleteTopicState::default() };
        let request =
            DeleteTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..DeleteTopicsRequest::default() };
        let version = self.at_most(ApiKey::DeleteTopics, 6);
        let deleted = self.peer.call(version, &request).await.responses.remove(0);
        assert_eq!(deleted.error_code, ErrorCode::None, "{:?}", deleted.error_message);
        for _ in 0..WAITS_MAX {
            let topic = self.peer.call(12, &metadata(Some(&[name]), false)).await.topics.remove(0);
            if topic.error_code == ErrorCode::UnknownTopicOrPartition {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{name} stays");
    }

    /// Waits until a group (kind 0) or a transactional id (kind 1) has a coordinator that serves it.
    pub(crate) async fn until_coordinated(&mut self, key_type: i8, key: &str) {
        let request = FindCoordinatorRequest {
            key_type,
            coordinator_keys: vec![key.to_owned()],
            ..FindCoordinatorRequest::default()
        };
        let groups =
            DescribeGroupsRequest { groups: vec![key.to_owned()], ..DescribeGroupsRequest::default() };
        let transactions = DescribeTransactionsRequest {
            transactional_ids: vec![key.to_owned()],
            ..DescribeTransactionsRequest::default()
        };
        let mut code = ErrorCode::None;
        for _ in 0..WAITS_MAX {
            code = self.peer.call(4, &request).await.coordinators[0].error_code;
            if code == ErrorCode::None {
                code = match key_type {
                    0 => self.peer.call(5, &groups).await.groups[0].error_code,
                    _ => self.peer.call(0, &transactions).await.transaction_states[0].error_code,
                };
                if !matches!(code, ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress) {
                    return;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{key} has no coordinator: {code:?}");
    }

    pub(crate) async fn fetch_one(
        &mut self,
        version: i16,
        orders: Uuid,
        partition: FetchPartition,
    ) -> (PartitionData, Vec<i32>) {
        let topic = FetchTopic {
            topic: "orders".to_owned(),
            topic_id: orders,
            partitions: vec![partition],
            ..FetchTopic::default()
        };
        let request = FetchRequest { max_wait_ms: 50, topics: vec![topic], ..FetchRequest::default() };
        let mut response = self.peer.call(version, &request).await;
        let endpoints = response.node_endpoints.iter().map(|endpoint| endpoint.node_id).collect();
        (response.responses[0].partitions.remove(0), endpoints)
    }

    /// Waits until the peer tells that `broker` leads `orders`.
    pub(crate) async fn until_led_by(&mut self, broker: i32) {
        let mut told = None;
        for _ in 0..WAITS_MAX {
            let response = self.peer.call(12, &metadata(Some(&["orders"]), false)).await;
            told = response.topics[0].partitions.first().map(|partition| partition.leader_id);
            if told == Some(broker) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("not {broker} but {told:?} leads");
    }

    /// Waits until the peer has told this high watermark: followers learn it late.
    pub(crate) async fn until_high_watermark(&mut self, orders: Uuid, high_watermark: i64) {
        let mut told = None;
        for _ in 0..WAITS_MAX {
            let all = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
            let data = self.fetch_one(17, orders, all).await.0;
            if data.high_watermark == high_watermark {
                return;
            }
            told = Some(data);
            sleep(Duration::from_millis(50)).await;
        }
        panic!("the high watermark is not {high_watermark}: {told:?}");
    }
}

pub(crate) fn metadata(topics: Option<&[&str]>, allow_auto_topic_creation: bool) -> MetadataRequest {
    let named = |name: &&str| MetadataRequestTopic {
        name: Some(name.to_string()),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: topics.map(|topics| topics.iter().map(named).collect()),
        allow_auto_topic_creation,
        ..MetadataRequest::default()
    }
}

pub(crate) fn batch(keys: &[Option<&str>], producer: Option<Producer>, timestamp_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions { producer, ..BatchOptions::default() });
    for (key, at) in keys.iter().zip(timestamp_ms..) {
        let record = NewRecord {
            timestamp_ms: at,
            key: key.map(str::as_bytes),
            value: Some(b"value"),
            ..NewRecord::default()
        };
        builder.push(record).unwrap();
    }
    let mut out = Vec::new();
    builder.finish(&mut out).unwrap();
    out.into()
}

/// How a trace comes to a connection.
#[derive(Clone)]
pub(crate) enum Dialler {
    Tcp,
    /// TLS for `localhost`.
    Tls(Arc<ClientConfig>),
    Memory(MemoryNetwork),
}

impl Dialler {
    /// TLS that trusts this authority and shows this certificate and key, all as PEM.
    pub(crate) fn tls(ca: &str, shown: Option<(&str, &str)>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        Self::Tls(Arc::new(config))
    }

    pub(crate) async fn dial(&self, address: &str) -> std::io::Result<Peer<Box<dyn ByteStream>>> {
        Ok(Peer::over(match self {
            Self::Tcp => Box::new(TcpStream::connect(address).await?),
            Self::Memory(network) => Box::new(network.connect(address.parse().unwrap()).await?),
            Self::Tls(config) => {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::try_from("localhost").unwrap();
                Box::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?)
            }
        }))
    }
}

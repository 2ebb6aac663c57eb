//! Who may do what.

use crate::trace::{Dialler, Trace, batch, metadata, say};
use strandline_protocol::Uuid;
use strandline_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use strandline_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use strandline_protocol::messages::delete_topics::DeleteTopicState;
use strandline_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use strandline_protocol::messages::describe_topic_partitions::TopicRequest;
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use strandline_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use strandline_protocol::messages::{
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest, InitProducerIdRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use strandline_testkit::apache;
use strandline_testkit::embedded::{Acl, Operation};

/// Who a client is that shows a certificate, on a listener that wants one. `secured` is a topic; the client may do what `give`
/// lets it.
pub(crate) async fn compare_certificates(
    address: &str,
    ca: &str,
    shown: (&str, &str),
    give: impl AsyncFn(&[Acl]),
) {
    const PRINCIPAL: &str = "User:CN=client";
    let certified = Dialler::tls(ca, Some(shown));
    let mut trace = Trace::connect_by(certified, address).await;
    let request = metadata(Some(&["secured"]), false);
    let topic = trace.peer.call(12, &request).await.topics.remove(0);
    say!(trace, "Metadata v12 with a certificate: {:?}", topic.error_code);
    give(&[Acl::topic(PRINCIPAL, "secured", Operation::Describe)]).await;
    trace.until_seen("secured").await;
    let topic = trace.peer.call(12, &request).await.topics.remove(0);
    say!(trace, "Metadata v12 with a certificate and a right: {:?}", topic.error_code);
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    let response = trace.peer.call(1, &handshake).await;
    say!(trace, "SaslHandshake v1 without SASL: {:?} {:?}", response.error_code, response.mechanisms);
    let token = SaslAuthenticateRequest::default();
    let response = trace.peer.call(2, &token).await;
    say!(trace, "SaslAuthenticate v2 without SASL: {:?} {:?}", response.error_code, response.error_message);

    // With TLS 1.3 a client knows only at its first answer that its certificate was refused.
    let stranger = stranger();
    for (name, shown) in [("without a certificate", None), ("with a stranger's", Some(&stranger))] {
        let shown = shown.map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        let answered = match Dialler::tls(ca, shown).dial(address).await {
            Ok(mut peer) => peer.try_call(12, &request).await.is_ok(),
            Err(_) => false,
        };
        say!(trace, "Metadata v12 {name}: answered={answered}");
    }
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
    Metadata v12 with a certificate: TOPIC_AUTHORIZATION_FAILED
    Metadata v12 with a certificate and a right: NONE
    SaslHandshake v1 without SASL: ILLEGAL_SASL_STATE []
    SaslAuthenticate v2 without SASL: ILLEGAL_SASL_STATE Some("SaslAuthenticate request received after successful authentication")
    Metadata v12 without a certificate: answered=false
    Metadata v12 with a stranger's: answered=false
    "#) };
}

/// A certificate and its key that nobody else has signed.
fn stranger() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

impl Trace {
    /// Leaves the peer authenticated as somebody without any right.
    pub(crate) async fn strangers(&mut self, address: &str) {
        let metadata = metadata(None, false);
        let answer = self.peer.try_call(12, &metadata).await.map(|_| "answered").unwrap_or("closed");
        say!(self, "Metadata before SASL: {answer}");
        self.reconnect(address).await;
        let handshake = |mechanism: &str| SaslHandshakeRequest { mechanism: mechanism.to_owned() };
        let response = self.peer.call(1, &handshake("MAGIC")).await;
        say!(self, "SaslHandshake v1 MAGIC: {:?}", response.error_code);
        let next = self.peer.try_call(1, &handshake("PLAIN")).await.map(|_| "answered").unwrap_or("closed");
        say!(self, "  then {next}");
        for password in ["wrong", apache::READER.1] {
            self.reconnect(address).await;
            self.peer.call(1, &handshake("PLAIN")).await;
            let bytes = format!("\0{}\0{password}", apache::READER.0);
            let request =
                SaslAuthenticateRequest { auth_bytes: bytes.into(), ..SaslAuthenticateRequest::default() };
            let response = self.peer.call(2, &request).await;
            let (code, message, lifetime) =
                (response.error_code, response.error_message, response.session_lifetime_ms);
            let bytes = response.auth_bytes.len();
            say!(self, "SaslAuthenticate v2: {code:?} {message:?} bytes={bytes} lifetime={lifetime}");
            let next = self.peer.try_call(12, &metadata).await;
            say!(self, "  then {:?}", next.map(|response| response.topics.len()).map_err(|_| "closed"));
        }
    }

    pub(crate) async fn without_rights(&mut self, orders: Uuid) {
        let response = self.peer.call(12, &metadata(Some(&["orders", "nothing"]), false)).await;
        for topic in response.topics {
            let (id, partitions) = (!topic.topic_id.is_zero(), topic.partitions.len());
            say!(self, "Metadata v12 {:?}: {:?} id={id} {partitions}", topic.name, topic.error_code);
        }
        let by_id = MetadataRequestTopic { topic_id: orders, name: None, ..MetadataRequestTopic::default() };
        let request = MetadataRequest { topics: Some(vec![by_id]), ..metadata(None, false) };
        let topic = self.peer.call(12, &request).await.topics.remove(0);
        say!(
            self,
            "Metadata v12 by id: {:?} {:?} id={}",
            topic.name,
            topic.error_code,
            topic.topic_id == orders
        );
        let partition = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
        let topic = FetchTopic {
            topic: "orders".to_owned(),
            topic_id: orders,
            partitions: vec![partition],
            ..FetchTopic::default()
        };
        for version in [12, 17] {
            let request =
                FetchRequest { max_wait_ms: 50, topics: vec![topic.clone()], ..FetchRequest::default() };
            let response = self.peer.call(version, &request).await;
            let data = &response.responses[0].partitions[0];
            let (hw, aborted) = (data.high_watermark, &data.aborted_transactions);
            say!(self, "Fetch v{version}: {:?} hw={hw} aborted={aborted:?}", data.error_code);
        }
        self.list_offset(10, "orders", 0, -1, -1).await;
        let records = batch(&[Some("k")], None, 1);
        self.produce_one("without a right", 9, 1, "orders", 0, records).await;
        let request = InitProducerIdRequest {
            transactional_id: None,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdRequest::default()
        };
        say!(self, "InitProducerId v4: {:?}", self.peer.call(4, &request).await.error_code);
        let topic = CreatableTopic {
            name: "mine".to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request =
            CreateTopicsRequest { topics: vec![topic], timeout_ms: 9_000, ..CreateTopicsRequest::default() };
        say!(self, "CreateTopics v7: {:?}", self.peer.call(7, &request).await.topics[0].error_code);
        for (name, topic_id) in [(Some("orders".to_owned()), Uuid::ZERO), (None, orders)] {
            let topic = DeleteTopicState { name, topic_id, ..DeleteTopicState::default() };
            let request = DeleteTopicsRequest {
                topics: vec![topic],
                timeout_ms: 9_000,
                ..DeleteTopicsRequest::default()
            };
            let result = self.peer.call(6, &request).await.responses.remove(0);
            say!(
                self,
                "DeleteTopics v6: {:?} {:?} id={}",
                result.name,
                result.error_code,
                !result.topic_id.is_zero()
            );
        }
        let asked = DeleteRecordsTopic {
            name: "orders".to_owned(),
            partitions: vec![DeleteRecordsPartition::default()],
            ..DeleteRecordsTopic::default()
        };
        let request = DeleteRecordsRequest {
            topics: vec![asked],
            timeout_ms: 9_000,
            ..DeleteRecordsRequest::default()
        };
        say!(
            self,
            "DeleteRecords v2: {:?}",
            self.peer.call(2, &request).await.topics[0].partitions[0].error_code
        );
        for (kind, name) in [(2, "orders"), (4, "1")] {
            let resource = DescribeConfigsResource {
                resource_type: kind,
                resource_name: name.to_owned(),
                configuration_keys: None,
                ..DescribeConfigsResource::default()
            };
            let request =
                DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
            say!(
                self,
                "DescribeConfigs v4 {kind}: {:?}",
                self.peer.call(4, &request).await.results[0].error_code
            );
        }
        let logs = self.peer.call(4, &DescribeLogDirsRequest::default()).await;
        say!(self, "DescribeLogDirs v4: {:?} {}", logs.error_code, logs.results.len());
        let request = DescribeClusterRequest { endpoint_type: 1, ..DescribeClusterRequest::default() };
        say!(self, "DescribeCluster v1: {:?}", self.peer.call(1, &request).await.error_code);
        let topic = TopicRequest { name: "orders".to_owned(), ..TopicRequest::default() };
        let request = DescribeTopicPartitionsRequest {
            topics: vec![topic],
            response_partition_limit: 10,
            ..DescribeTopicPartitionsRequest::default()
        };
        say!(
            self,
            "DescribeTopicPartitions v0: {:?}",
            self.peer.call(0, &request).await.topics[0].error_code
        );
    }
}

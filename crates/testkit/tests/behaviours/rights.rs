//! What each right allows, and what it does not.

use bytes::Bytes;
use strandline_protocol::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use strandline_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use strandline_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use strandline_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use strandline_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use strandline_protocol::messages::fetch::FetchPartition;
use strandline_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use strandline_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use strandline_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use strandline_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use strandline_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use strandline_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use strandline_protocol::messages::{
    DescribeGroupsRequest, DescribeLogDirsRequest, DescribeProducersRequest, DescribeTransactionsRequest,
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ListGroupsRequest, ListTransactionsRequest,
    SaslAuthenticateRequest, SaslHandshakeRequest, describe_producers,
};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::apache::READER;
use strandline_testkit::embedded::{Acl, Operation, Resource};

use crate::trace::{Dialler, LEDGER, Trace, batch, metadata, say};

pub(crate) const PRINCIPAL: &str = "User:reader";

/// The rights on topics, each on a topic of its own.
const TOPIC_RIGHTS: [Operation; 8] = [
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];

/// The rights on the cluster, given one after the other.
const CLUSTER_RIGHTS: [Operation; 6] = [
    Operation::Describe,
    Operation::Create,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::Alter,
    Operation::ClusterAction,
];

/// `admin` may do everything and makes what is needed; the reader comes over `address` with PLAIN and has no right but those
/// that `give` adds.
pub(crate) async fn compare_rights(mut admin: Trace, address: &str, give: impl AsyncFn(&[Acl])) {
    for operation in TOPIC_RIGHTS {
        admin.create(&topic_of(operation), LEDGER).await;
    }
    admin.until_coordinated(0, "group-with-read").await;
    admin.until_coordinated(1, "id-with-write").await;
    let mut trace = Trace::connect(address).await;
    trace.become_user(address, READER).await;

    let mut rights: Vec<Acl> =
        TOPIC_RIGHTS.iter().map(|right| Acl::topic(PRINCIPAL, &topic_of(*right), *right)).collect();
    rights.extend([
        Acl::group(PRINCIPAL, "group-with-read", Operation::Read),
        Acl::group(PRINCIPAL, "group-with-describe", Operation::Describe),
        Acl::transactional_id(PRINCIPAL, "id-with-write", Operation::Write),
        Acl::transactional_id(PRINCIPAL, "id-with-describe", Operation::Describe),
    ]);
    give(&rights).await;
    trace.until_seen(&topic_of(Operation::Describe)).await;
    for operation in TOPIC_RIGHTS {
        trace.topic_right(&topic_of(operation)).await;
    }
    for group in ["group-with-read", "group-with-describe", "group-without"] {
        trace.group_right(group).await;
    }
    for id in ["id-with-write", "id-with-describe", "id-without"] {
        trace.transactional_id_right(id).await;
    }
    trace.cluster_right("with none").await;
    for operation in CLUSTER_RIGHTS {
        let marker = format!("marker-{operation:?}");
        admin.create(&marker, LEDGER).await;
        let right = Acl::cluster(PRINCIPAL, operation);
        give(&[right, Acl::topic(PRINCIPAL, &marker, Operation::Describe)]).await;
        trace.until_seen(&marker).await;
        trace.cluster_right(&format!("with {operation:?}")).await;
    }
    for operation in TOPIC_RIGHTS {
        admin.delete(&topic_of(operation)).await;
    }
    for operation in CLUSTER_RIGHTS {
        admin.delete(&format!("marker-{operation:?}")).await;
    }
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
with-Read
  allowed: Metadata ListOffsets OffsetForLeaderEpoch Fetch DescribeProducers
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
with-Write
  allowed: Metadata ListOffsets OffsetForLeaderEpoch Produce
  Fetch: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
with-Create
  allowed: 
  Metadata: TOPIC_AUTHORIZATION_FAILED
  ListOffsets: TOPIC_AUTHORIZATION_FAILED
  OffsetForLeaderEpoch: TOPIC_AUTHORIZATION_FAILED
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_ALREADY_EXISTS
with-Delete
  allowed: Metadata ListOffsets OffsetForLeaderEpoch DeleteRecords
  Fetch: TOPIC_AUTHORIZATION_FAILED
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
with-Alter
  allowed: Metadata ListOffsets OffsetForLeaderEpoch CreatePartitions
  Fetch: TOPIC_AUTHORIZATION_FAILED
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
with-Describe
  allowed: Metadata ListOffsets OffsetForLeaderEpoch
  Fetch: TOPIC_AUTHORIZATION_FAILED
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
with-DescribeConfigs
  allowed: DescribeConfigs
  Metadata: TOPIC_AUTHORIZATION_FAILED
  ListOffsets: TOPIC_AUTHORIZATION_FAILED
  OffsetForLeaderEpoch: TOPIC_AUTHORIZATION_FAILED
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  IncrementalAlterConfigs: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
with-AlterConfigs
  allowed: DescribeConfigs IncrementalAlterConfigs
  Metadata: TOPIC_AUTHORIZATION_FAILED
  ListOffsets: TOPIC_AUTHORIZATION_FAILED
  OffsetForLeaderEpoch: TOPIC_AUTHORIZATION_FAILED
  Produce: TOPIC_AUTHORIZATION_FAILED
  DescribeProducers: TOPIC_AUTHORIZATION_FAILED
  DeleteRecords: TOPIC_AUTHORIZATION_FAILED
  CreatePartitions: TOPIC_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
group-with-read
  allowed: FindCoordinator OffsetCommit DescribeGroups
  OffsetCommit of the hidden: TOPIC_AUTHORIZATION_FAILED
  OffsetFetch: NONE [("with-Read", NONE, 1)]
  OffsetFetch: NONE [("with-Create", TOPIC_AUTHORIZATION_FAILED, -1), ("with-Read", NONE, 1)]
  ListGroups: ["group-with-read"]
group-with-describe
  allowed: FindCoordinator DescribeGroups
  OffsetCommit of the hidden: GROUP_AUTHORIZATION_FAILED
  OffsetCommit: GROUP_AUTHORIZATION_FAILED
  OffsetFetch: NONE []
  OffsetFetch: NONE [("with-Create", TOPIC_AUTHORIZATION_FAILED, -1), ("with-Read", NONE, -1)]
  ListGroups: ["group-with-read"]
group-without
  allowed: 
  FindCoordinator: GROUP_AUTHORIZATION_FAILED
  OffsetCommit of the hidden: GROUP_AUTHORIZATION_FAILED
  OffsetCommit: GROUP_AUTHORIZATION_FAILED
  DescribeGroups: GROUP_AUTHORIZATION_FAILED
  OffsetFetch: GROUP_AUTHORIZATION_FAILED []
  OffsetFetch: GROUP_AUTHORIZATION_FAILED []
  ListGroups: ["group-with-read"]
id-with-write
  allowed: FindCoordinator InitProducerId DescribeTransactions
  EndTxn: INVALID_TXN_STATE
  AddPartitionsToTxn: [("with-Read", TOPIC_AUTHORIZATION_FAILED), ("with-Write", OPERATION_NOT_ATTEMPTED)]
  ListTransactions: ["id-with-write"]
id-with-describe
  allowed: FindCoordinator
  InitProducerId: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  DescribeTransactions: TRANSACTIONAL_ID_NOT_FOUND
  EndTxn: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  AddPartitionsToTxn: [("with-Read", TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ("with-Write", TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
  ListTransactions: ["id-with-write"]
id-without
  allowed: 
  FindCoordinator: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  InitProducerId: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  DescribeTransactions: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  EndTxn: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  AddPartitionsToTxn: [("with-Read", TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ("with-Write", TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
  ListTransactions: ["id-with-write"]
the cluster with none
  allowed: 
  DescribeLogDirs: CLUSTER_AUTHORIZATION_FAILED
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  IncrementalAlterConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  AddPartitionsToTxn for brokers: CLUSTER_AUTHORIZATION_FAILED
  ListGroups: 1
the cluster with Describe
  allowed: DescribeLogDirs
  CreateTopics: TOPIC_AUTHORIZATION_FAILED
  DescribeConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  IncrementalAlterConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  AddPartitionsToTxn for brokers: CLUSTER_AUTHORIZATION_FAILED
  ListGroups: 1
the cluster with Create
  allowed: DescribeLogDirs CreateTopics
  DescribeConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  IncrementalAlterConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  AddPartitionsToTxn for brokers: CLUSTER_AUTHORIZATION_FAILED
  ListGroups: 1
the cluster with DescribeConfigs
  allowed: DescribeLogDirs CreateTopics DescribeConfigs of a broker
  IncrementalAlterConfigs of a broker: CLUSTER_AUTHORIZATION_FAILED
  AddPartitionsToTxn for brokers: CLUSTER_AUTHORIZATION_FAILED
  ListGroups: 1
the cluster with AlterConfigs
  allowed: DescribeLogDirs CreateTopics DescribeConfigs of a broker IncrementalAlterConfigs of a broker
  AddPartitionsToTxn for brokers: CLUSTER_AUTHORIZATION_FAILED
  ListGroups: 1
the cluster with Alter
  allowed: DescribeLogDirs CreateTopics DescribeConfigs of a broker IncrementalAlterConfigs of a broker
  AddPartitionsToTxn for brokers: CLUSTER_AUTHORIZATION_FAILED
  ListGroups: 1
the cluster with ClusterAction
  allowed: DescribeLogDirs CreateTopics DescribeConfigs of a broker IncrementalAlterConfigs of a broker AddPartitionsToTxn for brokers
  ListGroups: 1
"#) };
}

fn topic_of(operation: Operation) -> String {
    format!("with-{operation:?}")
}

impl Trace {
    /// A new connection for a user, with PLAIN.
    pub(crate) async fn become_user(&mut self, address: &str, (user, password): (&str, &str)) {
        self.reconnect(address).await;
        self.peer.call(1, &SaslHandshakeRequest { mechanism: "PLAIN".to_owned() }).await;
        let auth_bytes = Bytes::from(format!("\0{user}\0{password}"));
        let request = SaslAuthenticateRequest { auth_bytes, ..SaslAuthenticateRequest::default() };
        assert_eq!(self.peer.call(2, &request).await.error_code, ErrorCode::None);
    }

    /// Waits until a right to describe this topic has come to the broker.
    pub(crate) async fn until_seen(&mut self, topic: &str) {
        for _ in 0..crate::trace::WAITS_MAX {
            let told = self.peer.call(12, &metadata(Some(&[topic]), false)).await.topics.remove(0);
            if told.error_code == ErrorCode::None {
                return;
            }
            tokio::time::sleep(tokio::time::Duration::from_millis(50)).await;
        }
        panic!("the right to describe {topic} does not come");
    }

    async fn topic_right(&mut self, topic: &str) {
        let name = topic.to_owned();
        let mut codes = Vec::new();
        let told = self.peer.call(12, &metadata(Some(&[topic]), false)).await.topics.remove(0);
        codes.push(("Metadata", told.error_code));
        let id = told.topic_id;

        let asked = ListOffsetsPartition { timestamp: -1, ..ListOffsetsPartition::default() };
        let asked =
            ListOffsetsTopic { name: name.clone(), partitions: vec![asked], ..ListOffsetsTopic::default() };
        let request =
            ListOffsetsRequest { replica_id: -1, topics: vec![asked], ..ListOffsetsRequest::default() };
        codes.push(("ListOffsets", self.peer.call(7, &request).await.topics[0].partitions[0].error_code));

        let asked = OffsetForLeaderPartition { partition: 0, ..OffsetForLeaderPartition::default() };
        let asked = OffsetForLeaderTopic {
            topic: name.clone(),
            partitions: vec![asked],
            ..OffsetForLeaderTopic::default()
        };
        let request =
            OffsetForLeaderEpochRequest { topics: vec![asked], ..OffsetForLeaderEpochRequest::default() };
        let epoch = self.peer.call(4, &request).await.topics[0].partitions[0].error_code;
        codes.push(("OffsetForLeaderEpoch", epoch));

        if !id.is_zero() {
            let partition = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
            codes.push(("Fetch", self.fetch_isolated(17, id, partition, 0).await.error_code));
        }

        let data = PartitionProduceData {
            records: Some(batch(&[Some("k")], None, 1)),
            ..PartitionProduceData::default()
        };
        let data = TopicProduceData {
            name: name.clone(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 9_000,
            topic_data: vec![data],
            ..ProduceRequest::default()
        };
        let produced = self.peer.call(9, &request).await.responses[0].partition_responses[0].error_code;
        codes.push(("Produce", produced));

        let asked = describe_producers::TopicRequest {
            name: name.clone(),
            partition_indexes: vec![0],
            ..describe_producers::TopicRequest::default()
        };
        let request = DescribeProducersRequest { topics: vec![asked], ..DescribeProducersRequest::default() };
        let producers = self.peer.call(0, &request).await.topics[0].partitions[0].error_code;
        codes.push(("DescribeProducers", producers));

        codes.push(("DescribeConfigs", self.configs_of(2, topic).await));
        codes.push(("IncrementalAlterConfigs", self.alter_configs_of(2, topic).await));

        let asked = DeleteRecordsTopic {
            name: name.clone(),
            partitions: vec![DeleteRecordsPartition::default()],
            ..DeleteRecordsTopic::default()
        };
        let request = DeleteRecordsRequest {
            topics: vec![asked],
            timeout_ms: 9_000,
            ..DeleteRecordsRequest::default()
        };
        let deleted = self.peer.call(2, &request).await.topics[0].partitions[0].error_code;
        codes.push(("DeleteRecords", deleted));

        let asked = CreatePartitionsTopic {
            name: name.clone(),
            count: 3,
            assignments: None,
            ..CreatePartitionsTopic::default()
        };
        let request = CreatePartitionsRequest {
            topics: vec![asked],
            timeout_ms: 9_000,
            validate_only: true,
            ..CreatePartitionsRequest::default()
        };
        codes.push(("CreatePartitions", self.peer.call(3, &request).await.results[0].error_code));

        codes.push(("CreateTopics", self.create_topic_code(topic).await));
        self.codes(topic, &codes);
    }

    fn codes(&mut self, what: &str, codes: &[(&str, ErrorCode)]) {
        say!(self, "{what}");
        let allowed: Vec<_> =
            codes.iter().filter(|(_, code)| *code == ErrorCode::None).map(|(api, _)| *api).collect();
        say!(self, "  allowed: {}", allowed.join(" "));
        for (api, code) in codes.iter().filter(|(_, code)| *code != ErrorCode::None) {
            say!(self, "  {api}: {code:?}");
        }
    }

    async fn configs_of(&mut self, resource_type: i8, name: &str) -> ErrorCode {
        let resource = DescribeConfigsResource {
            resource_type,
            resource_name: name.to_owned(),
            configuration_keys: None,
            ..DescribeConfigsResource::default()
        };
        let request =
            DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
        self.peer.call(4, &request).await.results[0].error_code
    }

    async fn alter_configs_of(&mut self, resource_type: i8, name: &str) -> ErrorCode {
        let config = if resource_type == 2 { "retention.bytes" } else { "log.cleaner.threads" };
        let config = AlterableConfig {
            name: config.to_owned(),
            value: Some("1".to_owned()),
            ..AlterableConfig::default()
        };
        let resource = AlterConfigsResource {
            resource_type,
            resource_name: name.to_owned(),
            configs: vec![config],
            ..AlterConfigsResource::default()
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![resource],
            validate_only: true,
            ..IncrementalAlterConfigsRequest::default()
        };
        self.peer.call(1, &request).await.responses[0].error_code
    }

    async fn create_topic_code(&mut self, name: &str) -> ErrorCode {
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 9_000,
            validate_only: true,
            ..CreateTopicsRequest::default()
        };
        self.peer.call(7, &request).await.topics[0].error_code
    }

    async fn coordinator_code(&mut self, key_type: i8, key: &str) -> ErrorCode {
        let request = FindCoordinatorRequest {
            key_type,
            coordinator_keys: vec![key.to_owned()],
            ..FindCoordinatorRequest::default()
        };
        self.peer.call(4, &request).await.coordinators[0].error_code
    }

    async fn group_right(&mut self, group: &str) {
        let id = group.to_owned();
        let readable = topic_of(Operation::Read);
        let hidden = topic_of(Operation::Create);
        let mut codes = vec![("FindCoordinator", self.coordinator_code(0, group).await)];
        let commit = |topic: &str| OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 1,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: id.clone(),
            generation_id_or_member_epoch: -1,
            topics: vec![commit(&readable), commit(&hidden)],
            ..OffsetCommitRequest::default()
        };
        let mut topics = self.peer.call(8, &request).await.topics;
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        codes.push(("OffsetCommit of the hidden", topics[0].partitions[0].error_code));
        codes.push(("OffsetCommit", topics[1].partitions[0].error_code));
        let request = DescribeGroupsRequest { groups: vec![id.clone()], ..DescribeGroupsRequest::default() };
        codes.push(("DescribeGroups", self.peer.call(5, &request).await.groups[0].error_code));
        self.codes(group, &codes);

        let asked = |topic: &str| OffsetFetchRequestTopics {
            name: topic.to_owned(),
            partition_indexes: vec![0],
            ..OffsetFetchRequestTopics::default()
        };
        for topics in [None, Some(vec![asked(&readable), asked(&hidden)])] {
            let asked = OffsetFetchRequestGroup {
                group_id: id.clone(),
                topics,
                member_epoch: -1,
                ..OffsetFetchRequestGroup::default()
            };
            let request = OffsetFetchRequest { groups: vec![asked], ..OffsetFetchRequest::default() };
            let fetched = self.peer.call(9, &request).await.groups.remove(0);
            let mut told: Vec<_> = fetched
                .topics
                .into_iter()
                .map(|topic| {
                    (topic.name, topic.partitions[0].error_code, topic.partitions[0].committed_offset)
                })
                .collect();
            told.sort_by(|a, b| a.0.cmp(&b.0));
            say!(self, "  OffsetFetch: {:?} {told:?}", fetched.error_code);
        }
        let mut listed: Vec<String> = self
            .peer
            .call(5, &ListGroupsRequest::default())
            .await
            .groups
            .into_iter()
            .map(|group| group.group_id)
            .filter(|id| id.starts_with("group-"))
            .collect();
        listed.sort();
        say!(self, "  ListGroups: {listed:?}");
    }

    async fn transactional_id_right(&mut self, id: &str) {
        let mut codes = vec![("FindCoordinator", self.coordinator_code(1, id).await)];
        let request = InitProducerIdRequest {
            transactional_id: Some(id.to_owned()),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdRequest::default()
        };
        let mut initialised = self.peer.call(4, &request).await;
        while initialised.error_code == ErrorCode::CoordinatorLoadInProgress {
            tokio::time::sleep(tokio::time::Duration::from_millis(50)).await;
            initialised = self.peer.call(4, &request).await;
        }
        codes.push(("InitProducerId", initialised.error_code));
        let (producer, epoch) = (initialised.producer_id, initialised.producer_epoch);
        let request = DescribeTransactionsRequest {
            transactional_ids: vec![id.to_owned()],
            ..DescribeTransactionsRequest::default()
        };
        let described = self.peer.call(0, &request).await.transaction_states.remove(0);
        codes.push(("DescribeTransactions", described.error_code));
        let request = EndTxnRequest {
            transactional_id: id.to_owned(),
            producer_id: producer,
            producer_epoch: epoch,
            committed: true,
            ..EndTxnRequest::default()
        };
        codes.push(("EndTxn", self.peer.call(3, &request).await.error_code));
        self.codes(id, &codes);
        let topic = |name: String| AddPartitionsToTxnTopic {
            name,
            partitions: vec![0],
            ..AddPartitionsToTxnTopic::default()
        };
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id.to_owned(),
            v3_and_below_producer_id: producer,
            v3_and_below_producer_epoch: epoch,
            v3_and_below_topics: vec![topic(topic_of(Operation::Write)), topic(topic_of(Operation::Read))],
            ..AddPartitionsToTxnRequest::default()
        };
        let mut added: Vec<_> = self
            .peer
            .call(3, &request)
            .await
            .results_by_topic_v3_and_below
            .into_iter()
            .map(|it| (it.name, ErrorCode::from_code(it.results_by_partition[0].partition_error_code)))
            .collect();
        added.sort_by(|a, b| a.0.cmp(&b.0));
        say!(self, "  AddPartitionsToTxn: {added:?}");
        let mut listed: Vec<String> = self
            .peer
            .call(0, &ListTransactionsRequest::default())
            .await
            .transaction_states
            .into_iter()
            .map(|it| it.transactional_id)
            .filter(|id| id.starts_with("id-"))
            .collect();
        listed.sort();
        say!(self, "  ListTransactions: {listed:?}");
    }

    async fn cluster_right(&mut self, name: &str) {
        let mut codes = Vec::new();
        let dirs = self.peer.call(4, &DescribeLogDirsRequest::default()).await;
        codes.push(("DescribeLogDirs", dirs.error_code));
        codes.push(("CreateTopics", self.create_topic_code("imagined").await));
        codes.push(("DescribeConfigs of a broker", self.configs_of(4, "1").await));
        codes.push(("IncrementalAlterConfigs of a broker", self.alter_configs_of(4, "1").await));
        let version = self.at_most(ApiKey::AddPartitionsToTxn, 5);
        let transaction = AddPartitionsToTxnTransaction {
            transactional_id: "id-with-write".to_owned(),
            verify_only: true,
            topics: vec![AddPartitionsToTxnTopic {
                name: topic_of(Operation::Write),
                partitions: vec![0],
                ..AddPartitionsToTxnTopic::default()
            }],
            ..AddPartitionsToTxnTransaction::default()
        };
        let request = AddPartitionsToTxnRequest {
            transactions: vec![transaction],
            ..AddPartitionsToTxnRequest::default()
        };
        let verified = self.peer.call(version, &request).await;
        codes.push(("AddPartitionsToTxn for brokers", verified.error_code));
        self.codes(&format!("the cluster {name}"), &codes);
        let groups = self.peer.call(5, &ListGroupsRequest::default()).await.groups;
        let own = groups.iter().filter(|group| group.group_id.starts_with("group-")).count();
        say!(self, "  ListGroups: {own}");
    }
}

/// Gives rights on a real broker with CreateAcls, by hand: the project has no use for its messages.
pub(crate) async fn give(admin: &str, rights: &[Acl]) {
    const LITERAL: u8 = 3;
    const ALLOW: u8 = 3;
    let mut body = vec![u8::try_from(rights.len() + 1).unwrap()];
    let string = |body: &mut Vec<u8>, text: &str| {
        body.push(u8::try_from(text.len() + 1).unwrap());
        body.extend(text.bytes());
    };
    for right in rights {
        let (kind, name) = match &right.resource {
            Resource::Topic(name) => (2, name.as_str()),
            Resource::Group(name) => (3, name.as_str()),
            Resource::Cluster => (4, "kafka-cluster"),
            Resource::TransactionalId(name) => (5, name.as_str()),
        };
        body.push(kind);
        string(&mut body, name);
        body.push(LITERAL);
        string(&mut body, &right.principal);
        string(&mut body, "*");
        body.push(match right.operation {
            Operation::Read => 3,
            Operation::Write => 4,
            Operation::Create => 5,
            Operation::Delete => 6,
            Operation::Alter => 7,
            Operation::Describe => 8,
            Operation::ClusterAction => 9,
            Operation::DescribeConfigs => 10,
            Operation::AlterConfigs => 11,
            Operation::IdempotentWrite => 12,
        });
        body.extend([ALLOW, 0]);
    }
    body.push(0);
    let mut peer = Dialler::Tcp.dial(admin).await.unwrap();
    peer.send_raw(ApiKey::CreateAcls, 3, &body).await.unwrap();
    let frame = peer.receive_frame().await.unwrap();
    // Correlation id, tags, throttle time, the count; then code, message and tags of each.
    let results = &frame[4 + 1 + 4 + 1..];
    assert!(results.chunks(4).take(rights.len()).all(|result| result[..2] == [0, 0]), "{results:?}");
}

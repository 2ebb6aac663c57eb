//! Topics, configs and what the cluster is.

use crate::SERVED;
use crate::trace::{Trace, metadata, say};
use strandline_protocol::messages::create_partitions::{CreatePartitionsAssignment, CreatePartitionsTopic};
use strandline_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use strandline_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use strandline_protocol::messages::delete_topics::DeleteTopicState;
use strandline_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use strandline_protocol::messages::describe_topic_partitions::{RequestCursor, TopicRequest};
use strandline_protocol::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use strandline_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use strandline_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreatePartitionsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeLogDirsRequest, DescribeProducersRequest,
    DescribeTopicPartitionsRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest, ResponseHeader,
    describe_producers,
};
use strandline_protocol::{ApiKey, Message as _, Uuid};
use tokio::time::{Duration, sleep};

/// What is asked of a broker: what nobody has set on the clusters of these traces.
const BROKER_CONFIGS: [&str; 31] = [
    "auto.create.topics.enable",
    "connections.max.idle.ms",
    "connections.max.reauth.ms",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.ms",
    "log.roll.hours",
    "log.segment.bytes",
    "max.incremental.fetch.session.cache.slots",
    "message.max.bytes",
    "num.io.threads",
    "num.partitions",
    "offsets.retention.minutes",
    "offsets.topic.num.partitions",
    "remote.log.manager.task.interval.ms",
    "remote.log.metadata.manager.class.name",
    "remote.log.storage.system.enable",
    "replica.lag.time.max.ms",
    "socket.request.max.bytes",
    "transaction.max.timeout.ms",
    "transaction.state.log.num.partitions",
    "transactional.id.expiration.ms",
    "unclean.leader.election.enable",
];

impl Trace {
    pub(crate) async fn versions(&mut self) {
        for version in [0, 3, 4] {
            let request = ApiVersionsRequest {
                client_software_name: "test".to_owned(),
                client_software_version: "1".to_owned(),
                ..ApiVersionsRequest::default()
            };
            let response = self.peer.call(version, &request).await;
            say!(self, "ApiVersions v{version}: {:?}", response.error_code);
            if version == 4 {
                let mut features = response.supported_features;
                features.sort_by(|a, b| a.name.cmp(&b.name));
                for it in features {
                    say!(self, "  feature {} {} to {}", it.name, it.min_version, it.max_version);
                }
                let mut finalized = response.finalized_features;
                finalized.sort_by(|a, b| a.name.cmp(&b.name));
                for it in finalized {
                    say!(
                        self,
                        "  finalized {} {} to {}",
                        it.name,
                        it.min_version_level,
                        it.max_version_level
                    );
                }
                let (epoch, migration) = (response.finalized_features_epoch, response.zk_migration_ready);
                say!(self, "  finalized in an epoch: {} migration={migration}", epoch >= 0);
                for row in response.api_keys {
                    let api = ApiKey::from_code(row.api_key).filter(|api| SERVED.contains(api));
                    if let (Some(api), Some(known)) = (api, api.and_then(ApiKey::versions)) {
                        let first = row.min_version.max(known.first);
                        say!(self, "  {api} {first} to {}", row.max_version);
                    }
                }
            }
        }
        let (cluster, broker) = self.identity().await;
        for (name, cluster_id, node_id) in [
            ("nobody", None, -1),
            ("this broker", Some(cluster.as_str()), broker),
            ("this cluster", Some(&cluster), -1),
            ("another cluster", Some("another"), broker),
            ("another broker", Some(&cluster), broker + 1),
            ("a broker of no cluster", None, broker + 1),
        ] {
            if self.at_most(ApiKey::ApiVersions, 5) < 5 {
                continue;
            }
            let request = ApiVersionsRequest {
                client_software_name: "test".to_owned(),
                client_software_version: "1".to_owned(),
                cluster_id: cluster_id.map(str::to_owned),
                node_id,
                ..ApiVersionsRequest::default()
            };
            let response = self.peer.call(5, &request).await;
            let rows = !response.api_keys.is_empty();
            say!(self, "ApiVersions v5 meant for {name}: {:?} rows={rows}", response.error_code);
        }
        for (name, software, version) in [("with no name", "", "1"), ("with odd letters", "a b!", "1")] {
            let request = ApiVersionsRequest {
                client_software_name: software.to_owned(),
                client_software_version: version.to_owned(),
                ..ApiVersionsRequest::default()
            };
            let response = self.peer.call(3, &request).await;
            say!(self, "ApiVersions v3 {name}: {:?} {}", response.error_code, response.api_keys.is_empty());
        }
        self.peer.send_raw(ApiKey::ApiVersions, 77, &[]).await.unwrap();
        let (_, mut frame) = self.peer.receive().await.unwrap();
        ResponseHeader::decode_prefix(&mut frame, 0).unwrap();
        let response = ApiVersionsResponse::decode(frame, 0).unwrap();
        let keys: Vec<i16> = response.api_keys.iter().map(|row| row.api_key).collect();
        say!(self, "ApiVersions v77: {:?} {keys:?}", response.error_code);
    }

    /// The ids of the cluster and of the broker that the connection is to.
    async fn identity(&mut self) -> (String, i32) {
        let request = DescribeClusterRequest { endpoint_type: 1, ..DescribeClusterRequest::default() };
        let cluster = self.peer.call(0, &request).await;
        (cluster.cluster_id, cluster.brokers[0].broker_id)
    }

    /// The id of the topic `orders`.
    pub(crate) async fn topics(&mut self) -> Uuid {
        let topic =
            |name: &str, num_partitions, replication_factor, configs: &[(&str, &str)]| CreatableTopic {
                name: name.to_owned(),
                num_partitions,
                replication_factor,
                configs: configs
                    .iter()
                    .map(|(name, value)| CreatableTopicConfig {
                        name: name.to_string(),
                        value: Some(value.to_string()),
                        ..CreatableTopicConfig::default()
                    })
                    .collect(),
                ..CreatableTopic::default()
            };
        let cases = [
            (2, false, vec![topic("orders", 2, 1, &[("retention.ms", "-1")])]),
            (7, false, vec![topic("orders", 2, 1, &[])]),
            (7, false, vec![topic("compacted", -1, -1, &[("cleanup.policy", "compact")])]),
            (7, true, vec![topic("imagined", 3, 1, &[])]),
            (5, false, vec![topic("a/b", 1, 1, &[]), topic("none", 0, 1, &[]), topic("many", 1, 9, &[])]),
            (7, false, vec![topic("odd", 1, 1, &[("colour", "red")])]),
            (7, false, vec![topic("twin", 1, 1, &[]), topic("twin", 1, 1, &[])]),
        ];
        for (version, validate_only, topics) in cases {
            let request = CreateTopicsRequest {
                topics,
                timeout_ms: 10_000,
                validate_only,
                ..CreateTopicsRequest::default()
            };
            let mut response = self.peer.call(version, &request).await;
            response.topics.sort_by(|a, b| a.name.cmp(&b.name));
            for result in response.topics {
                let (partitions, replicas) = (result.num_partitions, result.replication_factor);
                let has_id = !result.topic_id.is_zero();
                say!(
                    self,
                    "CreateTopics v{version} {}: {:?} partitions={partitions} replicas={replicas} id={has_id}",
                    result.name,
                    result.error_code,
                );
            }
        }
        loop {
            let response = self.peer.call(12, &metadata(Some(&["orders", "compacted"]), false)).await;
            let led = response.topics.iter().all(|topic| {
                !topic.partitions.is_empty()
                    && topic.partitions.iter().all(|partition| partition.leader_id == 1)
            });
            if led {
                return response
                    .topics
                    .iter()
                    .find(|topic| topic.name.as_deref() == Some("orders"))
                    .unwrap()
                    .topic_id;
            }
            // A real broker takes a moment to lead what was created.
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn metadata(&mut self) {
        for (version, topics, create) in [
            (4, Some(&["orders", "nothing", "a/b"][..]), false),
            (12, Some(&[][..]), false),
            (12, Some(&["orders", "nothing"][..]), false),
            (12, None, false),
            (9, Some(&["made-by-asking"][..]), true),
        ] {
            let mut response = self.peer.call(version, &metadata(topics, create)).await;
            response.topics.sort_by(|a, b| a.name.cmp(&b.name));
            let (brokers, controller) = (response.brokers.len(), response.controller_id);
            say!(self, "Metadata v{version} {topics:?}: brokers={brokers} controller={controller}");
            for topic in response.topics {
                let name = topic.name.unwrap();
                let partitions: Vec<_> = topic
                    .partitions
                    .iter()
                    .map(|it| {
                        (it.partition_index, it.leader_id, it.leader_epoch, &it.replica_nodes, &it.isr_nodes)
                    })
                    .collect::<std::collections::BTreeSet<_>>()
                    .into_iter()
                    .collect();
                say!(self, "  {name}: {:?} internal={} {partitions:?}", topic.error_code, topic.is_internal);
            }
        }
        let topic =
            MetadataRequestTopic { topic_id: Uuid([7; 16]), name: None, ..MetadataRequestTopic::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..metadata(None, false) };
        let response = self.peer.call(12, &request).await;
        let topic = &response.topics[0];
        say!(self, "Metadata v12 by unknown id: {:?} name={:?}", topic.error_code, topic.name);
    }

    pub(crate) async fn admin(&mut self) {
        for (kind, name) in [(2, "compacted"), (2, "nothing"), (4, "1"), (4, "2"), (4, "x"), (77, "x")] {
            let keys = vec!["cleanup.policy".to_owned(), "retention.ms".to_owned(), "colour".to_owned()];
            let resource = DescribeConfigsResource {
                resource_type: kind,
                resource_name: name.to_owned(),
                configuration_keys: (name == "compacted").then_some(keys),
                ..DescribeConfigsResource::default()
            };
            let request =
                DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
            let response = self.peer.call(4, &request).await;
            let result = &response.results[0];
            say!(self, "DescribeConfigs v4 {kind} {name}: {:?}", result.error_code);
            for config in result.configs.iter().filter(|_| kind == 2) {
                let (name, value, source, kind) =
                    (&config.name, &config.value, config.config_source, config.config_type);
                say!(self, "  {name}={value:?} source={source} type={kind}");
            }
        }
        let logs = self.peer.call(4, &DescribeLogDirsRequest::default()).await;
        let mut sizes: Vec<_> = logs.results[0]
            .topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|it| (&topic.name, it.partition_index, it.partition_size))
            })
            .filter(|(name, ..)| *name == "orders")
            .collect();
        sizes.sort();
        say!(self, "DescribeLogDirs v4: {:?} {:?} {sizes:?}", logs.error_code, logs.results[0].error_code);
        for (version, endpoint_type) in [(0, 1), (1, 1), (1, 2)] {
            let request = DescribeClusterRequest { endpoint_type, ..DescribeClusterRequest::default() };
            let response = self.peer.call(version, &request).await;
            let ids: Vec<i32> = response.brokers.iter().map(|broker| broker.broker_id).collect();
            say!(
                self,
                "DescribeCluster v{version} of {endpoint_type}: {:?} {ids:?} controller={}",
                response.error_code,
                response.controller_id
            );
        }
        let request = FindCoordinatorRequest {
            key: "g".to_owned(),
            key_type: 7,
            coordinator_keys: vec!["g".to_owned()],
            ..FindCoordinatorRequest::default()
        };
        let refused =
            self.peer.try_call(3, &FindCoordinatorRequest { coordinator_keys: vec![], ..request }).await;
        say!(
            self,
            "FindCoordinator v3 of kind 7: {:?}",
            refused.map(|response| response.error_code).map_err(|_| "closed")
        );
    }

    pub(crate) async fn delete_before(&mut self, topic: &str, partition: i32, offset: i64) {
        let asked = DeleteRecordsPartition {
            partition_index: partition,
            offset,
            ..DeleteRecordsPartition::default()
        };
        let asked = DeleteRecordsTopic {
            name: topic.to_owned(),
            partitions: vec![asked],
            ..DeleteRecordsTopic::default()
        };
        let request = DeleteRecordsRequest {
            topics: vec![asked],
            timeout_ms: 10_000,
            ..DeleteRecordsRequest::default()
        };
        let response = self.peer.call(2, &request).await;
        let result = &response.topics[0].partitions[0];
        let (code, low) = (result.error_code, result.low_watermark);
        say!(self, "DeleteRecords v2 {topic}-{partition} before {offset}: {code:?} low={low}");
    }

    pub(crate) async fn changes(&mut self, orders: Uuid) {
        for (name, count, validate_only) in [
            ("orders", 2, false),
            ("orders", 1, false),
            ("orders", 5, true),
            ("orders", 3, false),
            ("nothing", 3, false),
        ] {
            let topic =
                CreatePartitionsTopic { name: name.to_owned(), count, ..CreatePartitionsTopic::default() };
            let request = CreatePartitionsRequest {
                topics: vec![topic],
                timeout_ms: 10_000,
                validate_only,
                ..CreatePartitionsRequest::default()
            };
            let response = self.peer.call(3, &request).await;
            say!(self, "CreatePartitions v3 {name} to {count}: {:?}", response.results[0].error_code);
        }
        for (topic, partition, offset) in [
            ("orders", 0, 2),
            ("orders", 0, 1),
            ("orders", 0, 9),
            ("orders", 0, -7),
            ("orders", 0, -1),
            ("orders", 9, 0),
            ("compacted", 0, 0),
        ] {
            self.delete_before(topic, partition, offset).await;
        }
        self.list_offset(10, "orders", 0, -1, -2).await;
        self.list_offset(10, "orders", 0, -1, -3).await;
        for (kind, name, config, operation, value, validate_only) in [
            (2, "orders", "cleanup.policy", 2, Some("compact"), true),
            (2, "orders", "cleanup.policy", 2, Some("compact"), false),
            (2, "orders", "cleanup.policy", 3, Some("delete"), false),
            (2, "orders", "retention.ms", 0, Some("7"), false),
            (2, "orders", "retention.ms", 1, None, false),
            (2, "orders", "retention.ms", 9, Some("7"), false),
            (2, "orders", "colour", 0, Some("red"), false),
            (2, "nothing", "retention.ms", 0, Some("7"), false),
            (4, "9x", "retention.ms", 0, Some("7"), false),
        ] {
            let config = AlterableConfig {
                name: config.to_owned(),
                config_operation: operation,
                value: value.map(str::to_owned),
                ..AlterableConfig::default()
            };
            let resource = AlterConfigsResource {
                resource_type: kind,
                resource_name: name.to_owned(),
                configs: vec![config.clone()],
                ..AlterConfigsResource::default()
            };
            let request = IncrementalAlterConfigsRequest {
                resources: vec![resource],
                validate_only,
                ..IncrementalAlterConfigsRequest::default()
            };
            let response = self.peer.call(1, &request).await;
            let code = response.responses[0].error_code;
            say!(self, "IncrementalAlterConfigs v1 {name} {} {operation} {value:?}: {code:?}", config.name);
        }
        for (names, limit, cursor) in [
            (&["orders", "nothing"][..], 100, None),
            (&["orders", "compacted"], 2, None),
            (&["orders", "compacted"], 1, Some(("orders", 1))),
        ] {
            let topic = |name: &&str| TopicRequest { name: name.to_string(), ..TopicRequest::default() };
            let cursor = cursor.map(|(name, partition_index): (&str, i32)| RequestCursor {
                topic_name: name.to_owned(),
                partition_index,
                ..RequestCursor::default()
            });
            let request = DescribeTopicPartitionsRequest {
                topics: names.iter().map(topic).collect(),
                response_partition_limit: limit,
                cursor,
                ..DescribeTopicPartitionsRequest::default()
            };
            let response = self.peer.call(0, &request).await;
            let next = response.next_cursor.map(|next| (next.topic_name, next.partition_index));
            say!(self, "DescribeTopicPartitions v0 {names:?} limit={limit}: next={next:?}");
            for topic in response.topics {
                let partitions: Vec<_> = topic
                    .partitions
                    .iter()
                    .map(|it| (it.partition_index, it.leader_id, it.error_code))
                    .collect();
                say!(self, "  {}: {:?} {partitions:?}", topic.name.unwrap(), topic.error_code);
            }
        }
        let producers = DescribeProducersRequest {
            topics: vec![describe_producers::TopicRequest {
                name: "orders".to_owned(),
                partition_indexes: vec![1, 9],
                ..describe_producers::TopicRequest::default()
            }],
            ..DescribeProducersRequest::default()
        };
        for partition in self.peer.call(0, &producers).await.topics.remove(0).partitions {
            say!(
                self,
                "DescribeProducers v0 orders-{}: {:?}",
                partition.partition_index,
                partition.error_code
            );
            let mut producers = partition.active_producers;
            producers.sort_by_key(|producer| producer.producer_id);
            for producer in producers {
                say!(
                    self,
                    "  epoch={} last={} coordinator={} open={}",
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset
                );
            }
        }
        for (version, name, topic_id) in [
            (5, Some("nothing"), Uuid::ZERO),
            (6, Some("nothing"), Uuid::ZERO),
            (6, None, Uuid([7; 16])),
            (6, None, orders),
            (1, Some("compacted"), Uuid::ZERO),
        ] {
            let name = name.map(str::to_owned);
            let state = DeleteTopicState { name: name.clone(), topic_id, ..DeleteTopicState::default() };
            let request = DeleteTopicsRequest {
                topics: if version >= 6 { vec![state] } else { vec![] },
                topic_names: if version < 6 { vec![name.clone().unwrap()] } else { vec![] },
                timeout_ms: 10_000,
                ..DeleteTopicsRequest::default()
            };
            let response = self.peer.call(version, &request).await;
            let result = &response.responses[0];
            let (code, told, has_id) = (result.error_code, &result.name, !result.topic_id.is_zero());
            say!(self, "DeleteTopics v{version} {name:?}: {code:?} name={told:?} id={has_id}");
        }
    }

    /// A topic that gets more partitions, chosen by the broker and by hand.
    pub(crate) async fn partitions(&mut self) {
        self.create("grown", &[]).await;
        for (name, count, assignments, validate_only) in [
            ("by the broker", 3, None, true),
            ("by hand", 4, Some(&[&[1][..], &[1]][..]), true),
            ("by hand, too few", 4, Some(&[&[1][..]]), true),
            ("by hand, too many", 3, Some(&[&[1][..], &[1]]), true),
            ("by hand, none", 3, Some(&[]), true),
            ("by hand, an unknown broker", 3, Some(&[&[9][..]]), true),
            ("by hand, a broker twice", 3, Some(&[&[1, 1][..]]), true),
            ("by hand, no broker", 3, Some(&[&[][..]]), true),
            ("by the broker", 3, None, false),
            ("by hand", 4, Some(&[&[1][..]]), false),
        ] {
            let assignment = |ids: &&[i32]| CreatePartitionsAssignment {
                broker_ids: ids.to_vec(),
                ..CreatePartitionsAssignment::default()
            };
            let topic = CreatePartitionsTopic {
                name: "grown".to_owned(),
                count,
                assignments: assignments.map(|all: &[&[i32]]| all.iter().map(assignment).collect()),
                ..CreatePartitionsTopic::default()
            };
            let request = CreatePartitionsRequest {
                topics: vec![topic],
                timeout_ms: 10_000,
                validate_only,
                ..CreatePartitionsRequest::default()
            };
            let result = self.peer.call(3, &request).await.results.remove(0);
            let said = result.error_message.is_some();
            say!(self, "CreatePartitions v3 {name}, {count}: {:?} said={said}", result.error_code);
        }
        self.until_led_partitions("grown", 4).await;
        self.delete("grown").await;
    }

    /// The configs of a topic and of a broker, with where they come from.
    pub(crate) async fn topic_configs(&mut self) {
        self.create("configured", &[("retention.ms", "7")]).await;
        self.configs_of_all_kinds().await;
        self.delete("configured").await;
    }

    async fn configs_of_all_kinds(&mut self) {
        let resource = DescribeConfigsResource {
            resource_type: 2,
            resource_name: "configured".to_owned(),
            configuration_keys: None,
            ..DescribeConfigsResource::default()
        };
        let request =
            DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
        let mut configs = self.peer.call(1, &request).await.results.remove(0).configs;
        configs.sort_by(|a, b| a.name.cmp(&b.name));
        say!(self, "DescribeConfigs v1 of a topic");
        for it in configs {
            let (source, read_only, sensitive) = (it.config_source, it.read_only, it.is_sensitive);
            say!(self, "  {} {:?} source={source} {read_only} {sensitive}", it.name, it.value);
        }
        let resource = DescribeConfigsResource {
            resource_type: 4,
            resource_name: "1".to_owned(),
            configuration_keys: Some(BROKER_CONFIGS.map(str::to_owned).to_vec()),
            ..DescribeConfigsResource::default()
        };
        let request = DescribeConfigsRequest {
            resources: vec![resource],
            include_synonyms: true,
            include_documentation: false,
            ..DescribeConfigsRequest::default()
        };
        let mut configs = self.peer.call(4, &request).await.results.remove(0).configs;
        configs.sort_by(|a, b| a.name.cmp(&b.name));
        say!(self, "DescribeConfigs v4 of a broker");
        for it in configs {
            let synonyms: Vec<_> = it.synonyms.iter().map(|it| (&it.name, &it.value, it.source)).collect();
            say!(
                self,
                "  {} {:?} source={} type={} read_only={} {synonyms:?}",
                it.name,
                it.value,
                it.config_source,
                it.config_type,
                it.read_only
            );
        }
    }
}

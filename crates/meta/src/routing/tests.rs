use super::*;

/// Every API key of Kafka's schemas under its class; a new one shows up here as a difference.
#[test]
fn every_api_key_of_kafka_has_a_class() {
    let mut classes: Vec<(String, Vec<String>)> = Vec::new();
    for &key in ApiKey::ALL {
        let class = format!("{:?}", RoutingClass::of(key));
        let at = classes.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            classes.push((class, Vec::new()));
            classes.len() - 1
        });
        classes[at].1.push(key.to_string());
    }
    let table: Vec<String> =
        classes.iter().map(|(class, keys)| format!("{class}: {}", keys.join(" "))).collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    Specific(PartitionLeader): Produce Fetch ListOffsets DeleteRecords OffsetForLeaderEpoch WriteTxnMarkers DescribeProducers ShareFetch ShareAcknowledge
    Any: Metadata FindCoordinator ApiVersions DescribeAcls DescribeDelegationToken DescribeClientQuotas DescribeUserScramCredentials DescribeQuorum DescribeCluster GetTelemetrySubscriptions PushTelemetry ListConfigResources DescribeTopicPartitions
    NotForClients: LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown SaslHandshake SaslAuthenticate Vote BeginQuorumEpoch EndQuorumEpoch AlterPartition Envelope FetchSnapshot BrokerRegistration BrokerHeartbeat AllocateProducerIds ControllerRegistration AssignReplicasToDirs UpdateRaftVoter InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState ReadShareGroupStateSummary
    GroupCoordinator: OffsetCommit OffsetFetch JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups TxnOffsetCommit DeleteGroups OffsetDelete ConsumerGroupHeartbeat ConsumerGroupDescribe ShareGroupHeartbeat ShareGroupDescribe StreamsGroupHeartbeat StreamsGroupDescribe DescribeShareGroupOffsets AlterShareGroupOffsets DeleteShareGroupOffsets StreamsGroupTopologyDescriptionUpdate
    AllBrokers: ListGroups ListTransactions
    Controller: CreateTopics DeleteTopics CreateAcls DeleteAcls CreatePartitions CreateDelegationToken RenewDelegationToken ExpireDelegationToken ElectLeaders AlterPartitionReassignments ListPartitionReassignments AlterClientQuotas AlterUserScramCredentials UpdateFeatures UnregisterBroker AddRaftVoter RemoveRaftVoter UnregisterController
    TransactionCoordinator: InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn DescribeTransactions
    ByResource: DescribeConfigs AlterConfigs IncrementalAlterConfigs
    Specific(Caller): AlterReplicaLogDirs DescribeLogDirs
    ");
}

/// Kafka's own list: number, name, oldest and latest version, whether CLUSTER_ACTION is needed, whether brokers serve it.
const KAFKA_APIS: &str = include_str!("../../../../tests/golden/kafka-apis.csv");

fn kafka_apis() -> impl Iterator<Item = (ApiKey, bool, bool)> {
    KAFKA_APIS.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let key =
            ApiKey::from_code(fields[0].parse().unwrap()).unwrap_or_else(|| panic!("no key for {line}"));
        assert_eq!(key.to_string(), fields[1]);
        (key, fields[4] == "true", fields[5] == "true")
    })
}

#[test]
fn every_row_of_kafkas_list_has_a_class_that_fits_who_serves_it_and_who_may_send_it() {
    let rows: Vec<_> = kafka_apis().collect();
    assert_eq!(rows.len(), 95);
    let mut for_both = Vec::new();
    for (key, cluster_action, served_by_brokers) in rows {
        let class = RoutingClass::of(key);
        if !served_by_brokers {
            assert_eq!(class, RoutingClass::NotForClients, "{key}: no broker serves it");
        }
        if cluster_action && class != RoutingClass::NotForClients {
            for_both.push(key.to_string());
        }
    }
    // What Kafka marks as an action of the cluster is spoken between brokers, but for what an admin client sends as well.
    insta::assert_snapshot!(for_both.join(" "), @"WriteTxnMarkers DescribeQuorum UpdateFeatures");
}

/// Values that matter, of every kind.
fn subjects() -> Vec<Subject> {
    let mut subjects = vec![
        Subject::Cluster,
        Subject::Broker(3),
        Subject::Partition { topic: "orders".into(), partition: 3 },
        Subject::Group("g".into()),
        Subject::Transaction(Some("t".into())),
        Subject::Transaction(None),
    ];
    for kind in [
        ResourceKind::Topic,
        ResourceKind::Broker,
        ResourceKind::BrokerLogger,
        ResourceKind::ClientMetrics,
        ResourceKind::Group,
    ] {
        for name in ["7", "", "seven"] {
            subjects.push(Subject::Resource { kind, name: name.into() });
        }
    }
    subjects
}

#[test]
fn no_value_of_a_request_leads_it_to_a_broker_of_another_class() {
    for &key in ApiKey::ALL {
        for subject in subjects() {
            let class = RoutingClass::of(key);
            let leads = destination(key, &subject);
            let fits = match &leads {
                Err(RouteError::NotForClients { .. }) => class == RoutingClass::NotForClients,
                Err(RouteError::NeedsEveryBroker { .. }) => class == RoutingClass::AllBrokers,
                Err(RouteError::SubjectMissing { .. }) => !matches!(
                    class,
                    RoutingClass::Any
                        | RoutingClass::Controller
                        | RoutingClass::AllBrokers
                        | RoutingClass::NotForClients
                ),
                Err(RouteError::NotABrokerId { .. }) => class == RoutingClass::ByResource,
                Ok(Destination::Any) => match class {
                    RoutingClass::Any => true,
                    RoutingClass::ByResource => matches!(
                        &subject,
                        Subject::Resource { kind, name }
                            if *kind != ResourceKind::BrokerLogger
                                && (*kind != ResourceKind::Broker || name.is_empty())
                    ),
                    _ => key == ApiKey::InitProducerId && subject == Subject::Transaction(None),
                },
                Ok(Destination::Controller) => class == RoutingClass::Controller,
                Ok(Destination::Broker(id)) => match &subject {
                    Subject::Broker(named) => {
                        named == id
                            && (matches!(
                                class,
                                RoutingClass::Any
                                    | RoutingClass::AllBrokers
                                    | RoutingClass::Specific(Specific::Caller)
                            ) || key == ApiKey::Fetch)
                    }
                    Subject::Resource { name, .. } => {
                        class == RoutingClass::ByResource && *name == id.to_string()
                    }
                    _ => false,
                },
                Ok(Destination::PartitionLeader { .. }) => {
                    class == RoutingClass::Specific(Specific::PartitionLeader)
                }
                Ok(Destination::GroupCoordinator(group)) => {
                    class == RoutingClass::GroupCoordinator && subject == Subject::Group(group.clone())
                }
                Ok(Destination::TransactionCoordinator(id)) => {
                    class == RoutingClass::TransactionCoordinator
                        && subject == Subject::Transaction(Some(id.clone()))
                }
            };
            assert!(fits, "{key} about {subject:?} leads to {leads:?}, and is of class {class:?}");
        }
    }
}

#[test]
fn a_request_about_one_thing_goes_to_one_kind_of_broker_whatever_else_is_known() {
    // Every class has a subject that leads somewhere, or says why there is none.
    for &key in ApiKey::ALL {
        let leads = subjects().iter().filter(|subject| destination(key, subject).is_ok()).count();
        assert_eq!(leads > 0, RoutingClass::of(key) != RoutingClass::NotForClients, "{key}");
    }
}

#[test]
fn what_brokers_do_not_serve_is_not_for_clients() {
    for &key in ApiKey::ALL {
        if !key.served_by_brokers() {
            assert_eq!(RoutingClass::of(key), RoutingClass::NotForClients, "{key}");
        }
    }
}

#[test]
fn what_may_be_repeated_after_an_unknown_outcome_is_what_only_reads() {
    let repeatable: Vec<String> = ApiKey::ALL
        .iter()
        .filter(|&&key| retry_safety(key) == RetrySafety::Idempotent)
        .map(ToString::to_string)
        .collect();
    let odd: Vec<&String> = repeatable
        .iter()
        .filter(|name| !["Describe", "List", "Fetch", "Read"].iter().any(|start| name.starts_with(start)))
        .collect();
    insta::assert_snapshot!(format!("{odd:?}"), @r#"["Metadata", "OffsetFetch", "FindCoordinator", "ApiVersions", "OffsetForLeaderEpoch", "ConsumerGroupDescribe", "GetTelemetrySubscriptions", "ShareGroupDescribe", "StreamsGroupDescribe"]"#);
}

#[test]
fn a_key_that_no_client_sends_is_refused_whatever_its_subject() {
    for &key in ApiKey::ALL {
        let refused = destination(key, &Subject::Broker(1)) == Err(RouteError::NotForClients { key });
        assert_eq!(refused, RoutingClass::of(key) == RoutingClass::NotForClients, "{key:?}");
    }
}

#[test]
fn a_list_that_one_broker_gives_too_short_is_not_sent_to_one_broker() {
    for key in [ApiKey::ListGroups, ApiKey::ListTransactions] {
        assert_eq!(destination(key, &Subject::Cluster), Err(RouteError::NeedsEveryBroker { key }));
        assert_eq!(destination(key, &Subject::Broker(3)), Ok(Destination::Broker(3)));
    }
}

#[test]
fn configs_come_from_the_broker_they_belong_to_and_topic_configs_from_any() {
    let of = |kind, name: &str| {
        destination(ApiKey::DescribeConfigs, &Subject::Resource { kind, name: name.into() })
    };
    assert_eq!(of(ResourceKind::Topic, "7"), Ok(Destination::Any));
    assert_eq!(of(ResourceKind::Broker, "7"), Ok(Destination::Broker(7)));
    assert_eq!(of(ResourceKind::BrokerLogger, "7"), Ok(Destination::Broker(7)));
    assert_eq!(of(ResourceKind::Broker, ""), Ok(Destination::Any));
    let error = of(ResourceKind::Broker, "seven").unwrap_err();
    assert_eq!(error.to_string(), "\"seven\" is not the id of a broker");
    let error = destination(ApiKey::DescribeConfigs, &Subject::Cluster).unwrap_err();
    assert_eq!(
        error.to_string(),
        "DescribeConfigs goes to the broker that holds a resource, and the call names none"
    );
}

#[test]
fn partition_requests_go_to_the_leader_and_log_dirs_to_the_broker_named() {
    let partition = Subject::Partition { topic: "orders".into(), partition: 3 };
    let leader = Destination::PartitionLeader { topic: "orders".into(), partition: 3 };
    for key in [ApiKey::Fetch, ApiKey::ListOffsets, ApiKey::OffsetForLeaderEpoch, ApiKey::Produce] {
        assert_eq!(destination(key, &partition), Ok(leader.clone()));
        assert!(destination(key, &Subject::Cluster).is_err());
    }
    assert_eq!(destination(ApiKey::DescribeLogDirs, &Subject::Broker(2)), Ok(Destination::Broker(2)));
    assert!(destination(ApiKey::DescribeLogDirs, &Subject::Cluster).is_err());
}

#[test]
fn a_producer_id_without_a_transactional_id_comes_from_any_broker() {
    let of =
        |id: Option<&str>| destination(ApiKey::InitProducerId, &Subject::Transaction(id.map(Into::into)));
    assert_eq!(of(None), Ok(Destination::Any));
    assert_eq!(of(Some("t")), Ok(Destination::TransactionCoordinator("t".into())));
    assert!(destination(ApiKey::EndTxn, &Subject::Transaction(None)).is_err());
}

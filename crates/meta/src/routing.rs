//! Which broker answers a request. This file alone decides; nothing here awaits.
//!
//! A wrong class is not loud: a broker that is not responsible often answers with a list that is too short, and does not say
//! so. Hence no match in this file has a wildcard arm: a new API key of Kafka does not compile until somebody has looked up
//! who serves it.
//!
//! Two steps: [`RoutingClass::of`] says what *kind* of broker serves an API key, and [`destination`] turns that and the
//! [`Subject`] of one request (the values in it that matter) into a [`Destination`].
//!
//! Source: the request handlers of `kafka.server.KafkaApis`, and the node providers of `KafkaAdminClient`, in Kafka 4.4.

use strandline_protocol::messages::ApiKey;

/// The kind of broker that serves an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingClass {
    /// Any broker gives the whole answer.
    Any,
    /// The broker that the Metadata answer names as controller; it forwards to the real one.
    Controller,
    /// The coordinator of the group that the request names.
    GroupCoordinator,
    /// The coordinator of the transactional id that the request names.
    TransactionCoordinator,
    /// One certain broker.
    Specific(Specific),
    /// Every broker answers for itself alone; the whole answer is the union.
    AllBrokers,
    /// The kind of the resource in the request decides: a broker's own configs come from that broker.
    ByResource,
    /// Spoken between brokers and controllers, or by a connection about itself (SASL). No caller sends it.
    NotForClients,
}

/// Where a certain broker's id comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specific {
    /// The caller names the broker.
    Caller,
    /// The snapshot names it: the leader of the partition.
    PartitionLeader,
}

/// Whether a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety {
    /// Sending it twice is the same as sending it once: also after an unknown outcome.
    Idempotent,
    /// Only after an answer that refused it, or when it was never sent. After an unknown outcome the caller must look first.
    AfterRejectionOnly,
}

impl RoutingClass {
    /// The class of an API key.
    #[rustfmt::skip]
    pub fn of(key: ApiKey) -> Self {
        use ApiKey as K;
        const LEADER: RoutingClass = RoutingClass::Specific(Specific::PartitionLeader);
        const CALLER: RoutingClass = RoutingClass::Specific(Specific::Caller);
        match key {
            K::Produce | K::Fetch | K::ListOffsets | K::OffsetForLeaderEpoch | K::DeleteRecords
            | K::DescribeProducers | K::ShareFetch | K::ShareAcknowledge => LEADER,
            // Sent by brokers to each other, and by the admin client to abort a hanging transaction.
            K::WriteTxnMarkers => LEADER,

            // The configuration and the replicas of one broker's disks are known to that broker alone.
            K::DescribeLogDirs | K::AlterReplicaLogDirs => CALLER,

            // `BROKER` and `BROKER_LOGGER` resources are that broker's own.
            K::DescribeConfigs | K::AlterConfigs | K::IncrementalAlterConfigs => Self::ByResource,

            // Each broker lists what it coordinates itself: one alone gives a list that is silently short.
            K::ListGroups | K::ListTransactions => Self::AllBrokers,

            K::Metadata | K::ApiVersions | K::FindCoordinator | K::DescribeCluster | K::DescribeTopicPartitions
            | K::DescribeAcls | K::DescribeClientQuotas | K::DescribeUserScramCredentials
            | K::DescribeDelegationToken | K::DescribeQuorum | K::ListConfigResources
            | K::GetTelemetrySubscriptions | K::PushTelemetry => Self::Any,

            K::CreateTopics | K::DeleteTopics | K::CreatePartitions | K::CreateAcls | K::DeleteAcls
            | K::CreateDelegationToken | K::RenewDelegationToken | K::ExpireDelegationToken
            | K::ElectLeaders | K::AlterPartitionReassignments | K::ListPartitionReassignments
            | K::AlterClientQuotas | K::AlterUserScramCredentials | K::UpdateFeatures | K::UnregisterBroker
            | K::UnregisterController | K::AddRaftVoter | K::RemoveRaftVoter => Self::Controller,

            K::OffsetCommit | K::OffsetFetch | K::OffsetDelete | K::JoinGroup | K::SyncGroup | K::Heartbeat
            | K::LeaveGroup | K::DescribeGroups | K::DeleteGroups | K::TxnOffsetCommit
            | K::ConsumerGroupHeartbeat | K::ConsumerGroupDescribe
            | K::ShareGroupHeartbeat | K::ShareGroupDescribe
            | K::DescribeShareGroupOffsets | K::AlterShareGroupOffsets | K::DeleteShareGroupOffsets
            | K::StreamsGroupHeartbeat | K::StreamsGroupDescribe
            | K::StreamsGroupTopologyDescriptionUpdate => Self::GroupCoordinator,

            // InitProducerId without a transactional id goes to any broker: see `destination`.
            K::InitProducerId | K::AddPartitionsToTxn | K::AddOffsetsToTxn | K::EndTxn
            | K::DescribeTransactions => Self::TransactionCoordinator,

            // A connection's own business.
            K::SaslHandshake | K::SaslAuthenticate => Self::NotForClients,
            // Between brokers and controllers. 4 to 7 have no valid version any more.
            K::LeaderAndIsr | K::StopReplica | K::UpdateMetadata | K::ControlledShutdown
            | K::Vote | K::BeginQuorumEpoch | K::EndQuorumEpoch | K::AlterPartition | K::Envelope | K::FetchSnapshot
            | K::BrokerRegistration | K::BrokerHeartbeat | K::AllocateProducerIds | K::ControllerRegistration
            | K::AssignReplicasToDirs | K::UpdateRaftVoter
            // Between a broker that serves a share group and its share coordinator.
            | K::InitializeShareGroupState | K::ReadShareGroupState | K::WriteShareGroupState
            | K::DeleteShareGroupState | K::ReadShareGroupStateSummary => Self::NotForClients,
        }
    }
}

/// Whether requests of this API key may be sent again.
#[rustfmt::skip]
pub fn retry_safety(key: ApiKey) -> RetrySafety {
    use ApiKey as K;
    match key {
        // Nothing changes by asking. (Metadata and FindCoordinator only in the form that the read-only gate lets through.)
        K::Fetch | K::ListOffsets | K::Metadata | K::OffsetFetch | K::FindCoordinator | K::DescribeGroups | K::ListGroups
        | K::ApiVersions | K::OffsetForLeaderEpoch | K::DescribeAcls | K::DescribeConfigs | K::DescribeLogDirs
        | K::DescribeDelegationToken | K::ListPartitionReassignments | K::DescribeClientQuotas
        | K::DescribeUserScramCredentials | K::DescribeQuorum | K::DescribeCluster | K::DescribeProducers
        | K::DescribeTransactions | K::ListTransactions | K::ConsumerGroupDescribe | K::GetTelemetrySubscriptions
        | K::ListConfigResources | K::DescribeTopicPartitions | K::ShareGroupDescribe | K::StreamsGroupDescribe
        | K::DescribeShareGroupOffsets | K::FetchSnapshot | K::ReadShareGroupState
        | K::ReadShareGroupStateSummary => RetrySafety::Idempotent,

        K::Produce | K::LeaderAndIsr | K::StopReplica | K::UpdateMetadata | K::ControlledShutdown | K::OffsetCommit
        | K::JoinGroup | K::Heartbeat | K::LeaveGroup | K::SyncGroup | K::SaslHandshake | K::CreateTopics
        | K::DeleteTopics | K::DeleteRecords | K::InitProducerId | K::AddPartitionsToTxn | K::AddOffsetsToTxn
        | K::EndTxn | K::WriteTxnMarkers | K::TxnOffsetCommit | K::CreateAcls | K::DeleteAcls | K::AlterConfigs
        | K::AlterReplicaLogDirs | K::SaslAuthenticate | K::CreatePartitions | K::CreateDelegationToken
        | K::RenewDelegationToken | K::ExpireDelegationToken | K::DeleteGroups | K::ElectLeaders
        | K::IncrementalAlterConfigs | K::AlterPartitionReassignments | K::OffsetDelete | K::AlterClientQuotas
        | K::AlterUserScramCredentials | K::Vote | K::BeginQuorumEpoch | K::EndQuorumEpoch | K::AlterPartition
        | K::UpdateFeatures | K::Envelope | K::BrokerRegistration | K::BrokerHeartbeat | K::UnregisterBroker
        | K::AllocateProducerIds | K::ConsumerGroupHeartbeat | K::ControllerRegistration | K::PushTelemetry
        | K::AssignReplicasToDirs | K::ShareGroupHeartbeat | K::ShareFetch | K::ShareAcknowledge | K::AddRaftVoter
        | K::RemoveRaftVoter | K::UpdateRaftVoter | K::InitializeShareGroupState | K::WriteShareGroupState
        | K::DeleteShareGroupState | K::StreamsGroupHeartbeat | K::AlterShareGroupOffsets
        | K::DeleteShareGroupOffsets | K::StreamsGroupTopologyDescriptionUpdate
        | K::UnregisterController => RetrySafety::AfterRejectionOnly,
    }
}

/// The values in a request that decide where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// None: the API key says it all.
    Cluster,
    /// The request is for this broker.
    Broker(i32),
    /// The request is about one partition.
    Partition {
        /// Topic name.
        topic: std::sync::Arc<str>,
        /// Partition number.
        partition: i32,
    },
    /// The request is about one config resource.
    Resource {
        /// What it is.
        kind: ResourceKind,
        /// The resource's name; of a broker its id, or empty for the default of all brokers.
        name: String,
    },
    /// The request is about one group.
    Group(String),
    /// The request is about one transactional id, or (InitProducerId) about none.
    Transaction(Option<String>),
}

/// Where one request goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Whichever broker answers soonest.
    Any,
    /// The broker named as controller.
    Controller,
    /// This broker.
    Broker(i32),
    /// The leader of this partition.
    PartitionLeader {
        /// Topic name.
        topic: std::sync::Arc<str>,
        /// Partition number.
        partition: i32,
    },
    /// The coordinator of this group.
    GroupCoordinator(String),
    /// The coordinator of this transactional id.
    TransactionCoordinator(String),
}

/// No broker can be chosen for a request of this shape. Nothing was sent; the call itself has to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// Brokers and controllers, or the connection itself, speak this.
    #[error("{key:?} is not a request that a client sends")]
    NotForClients {
        /// The API key.
        key: ApiKey,
    },
    /// One broker's answer would be silently short: ask each broker and join the answers.
    #[error("{key:?} must be sent to every broker")]
    NeedsEveryBroker {
        /// The API key.
        key: ApiKey,
    },
    /// The subject given does not say what this API key needs to know.
    #[error("{key:?} goes to {needed}, and the call names none")]
    SubjectMissing {
        /// The API key.
        key: ApiKey,
        /// What has to be named.
        needed: &'static str,
    },
    /// Broker resources are named by the broker's id.
    #[error("{name:?} is not the id of a broker")]
    NotABrokerId {
        /// The name given.
        name: String,
    },
}

/// Where a request of `key` about `subject` goes.
pub fn destination(key: ApiKey, subject: &Subject) -> Result<Destination, RouteError> {
    let missing = |needed| Err(RouteError::SubjectMissing { key, needed });
    match RoutingClass::of(key) {
        RoutingClass::Any => Ok(match subject {
            // A caller that wants to know about one broker (its versions, say) may name it.
            Subject::Broker(node_id) => Destination::Broker(*node_id),
            Subject::Cluster
            | Subject::Partition { .. }
            | Subject::Resource { .. }
            | Subject::Group(_)
            | Subject::Transaction(_) => Destination::Any,
        }),
        RoutingClass::Controller => Ok(Destination::Controller),
        RoutingClass::GroupCoordinator => match subject {
            Subject::Group(group) => Ok(Destination::GroupCoordinator(group.clone())),
            Subject::Cluster
            | Subject::Broker(_)
            | Subject::Partition { .. }
            | Subject::Resource { .. }
            | Subject::Transaction(_) => missing("a group's coordinator"),
        },
        RoutingClass::TransactionCoordinator => match subject {
            Subject::Transaction(Some(id)) => Ok(Destination::TransactionCoordinator(id.clone())),
            Subject::Transaction(None) if key == ApiKey::InitProducerId => Ok(Destination::Any),
            Subject::Cluster
            | Subject::Broker(_)
            | Subject::Partition { .. }
            | Subject::Resource { .. }
            | Subject::Group(_)
            | Subject::Transaction(None) => missing("a transaction's coordinator"),
        },
        RoutingClass::Specific(Specific::Caller) => match subject {
            Subject::Broker(node_id) => Ok(Destination::Broker(*node_id)),
            Subject::Cluster
            | Subject::Partition { .. }
            | Subject::Resource { .. }
            | Subject::Group(_)
            | Subject::Transaction(_) => missing("a certain broker"),
        },
        RoutingClass::Specific(Specific::PartitionLeader) => match subject {
            Subject::Partition { topic, partition } => {
                Ok(Destination::PartitionLeader { topic: topic.clone(), partition: *partition })
            }
            // Fetching from a follower (KIP-392) is the caller's choice.
            Subject::Broker(node_id) if key == ApiKey::Fetch => Ok(Destination::Broker(*node_id)),
            Subject::Cluster
            | Subject::Broker(_)
            | Subject::Resource { .. }
            | Subject::Group(_)
            | Subject::Transaction(_) => missing("a partition's leader"),
        },
        RoutingClass::AllBrokers => match subject {
            Subject::Broker(node_id) => Ok(Destination::Broker(*node_id)),
            Subject::Cluster
            | Subject::Partition { .. }
            | Subject::Resource { .. }
            | Subject::Group(_)
            | Subject::Transaction(_) => Err(RouteError::NeedsEveryBroker { key }),
        },
        RoutingClass::ByResource => match subject {
            Subject::Resource { kind, name } => resource_destination(*kind, name),
            Subject::Cluster
            | Subject::Broker(_)
            | Subject::Partition { .. }
            | Subject::Group(_)
            | Subject::Transaction(_) => missing("the broker that holds a resource"),
        },
        RoutingClass::NotForClients => Err(RouteError::NotForClients { key }),
    }
}

/// What a config resource is.
///
/// Source: `org.apache.kafka.common.config.ConfigResource.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A topic, by name.
    Topic,
    /// A broker, by id; with an empty name the default of all brokers.
    Broker,
    /// A broker's loggers, by the broker's id.
    BrokerLogger,
    /// A subscription to client metrics, by name.
    ClientMetrics,
    /// A group, by id.
    Group,
}

impl ResourceKind {
    /// The number on the wire.
    pub const fn code(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }
}

fn resource_destination(kind: ResourceKind, name: &str) -> Result<Destination, RouteError> {
    match kind {
        ResourceKind::Broker if name.is_empty() => Ok(Destination::Any),
        ResourceKind::Broker | ResourceKind::BrokerLogger => {
            name.parse().map(Destination::Broker).map_err(|_| RouteError::NotABrokerId { name: name.into() })
        }
        ResourceKind::Topic | ResourceKind::ClientMetrics | ResourceKind::Group => Ok(Destination::Any),
    }
}

#[cfg(test)]
mod tests;

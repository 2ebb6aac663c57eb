//! The read-only gate: which requests may leave this process. An allow list: what is not named as reading is
//! refused.

use std::any::Any;

use strandline_protocol::messages::{FetchRequest, FindCoordinatorRequest, MetadataRequest};
use strandline_protocol::{ApiKey, Request};

/// Whether requests that change something on a broker may pass.
///
/// Whoever sends asks [`Gate::check`] first, before a name is resolved or a connection dialled; every
/// [`Connection`](crate::Connection) asks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Only requests that are known to change nothing, down to their content. The default.
    #[default]
    ReadOnly,
    /// Everything passes.
    ReadWrite,
}

/// What the caller has seen of the cluster that the gate may rely on.
///
/// A real broker answers FindCoordinator by creating the coordinators' internal topic where it does not
/// exist. So that request passes the read-only gate only if the caller has seen the topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `__consumer_offsets` exists: looking for a group's coordinator creates nothing.
    pub consumer_offsets_exists: bool,
    /// `__transaction_state` exists: looking for a transaction's coordinator creates nothing.
    pub transaction_state_exists: bool,
}

/// The gate refused a request; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{api} is refused: this client only reads, and {why}")]
pub struct GateRefusal {
    /// The request.
    pub api: ApiKey,
    /// What it would do.
    pub why: &'static str,
}

impl Gate {
    /// Lets `request` pass, or says why not.
    ///
    /// Pure: no I/O.
    ///
    /// # Errors
    /// This gate is [`Gate::ReadOnly`] and the request is not known to change nothing.
    pub fn check<R: Request>(self, request: &R, evidence: Evidence) -> Result<(), GateRefusal> {
        self.check_any(R::API_KEY, request, evidence)
    }

    fn check_any(self, api: ApiKey, request: &dyn Any, evidence: Evidence) -> Result<(), GateRefusal> {
        if self == Self::ReadWrite {
            return Ok(());
        }
        let why = match rule(api) {
            Rule::Reads => return Ok(()),
            Rule::Refused(why) => Some(why),
            Rule::MetadataCreatesNothing => metadata(request),
            Rule::FetchesAsConsumer => fetch(request),
            Rule::CoordinatorTopicExists => coordinator(request, evidence),
        };
        why.map_or(Ok(()), |why| Err(GateRefusal { api, why }))
    }
}

/// What the read-only gate does with an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Passes whatever it holds.
    Reads,
    /// Never passes; says what it would do.
    Refused(&'static str),
    /// Passes if it cannot create a topic.
    MetadataCreatesNothing,
    /// Passes if it does not pose as a replica.
    FetchesAsConsumer,
    /// Passes if the coordinators' topic is known to exist.
    CoordinatorTopicExists,
}

const WRITES: Rule = Rule::Refused("this request changes data or settings");
const GROUP: Rule = Rule::Refused("this request takes part in a group");
const TRANSACTION: Rule = Rule::Refused("this request takes part in a transaction");
const INTERNAL: Rule = Rule::Refused("only brokers and controllers send this request to each other");
const SHARE_STATE: Rule = Rule::Refused("this request may create a share group's state");
const TELEMETRY: Rule = Rule::Refused("this request registers the client with the broker");

/// Every API of Kafka 4.4. No wildcard: a new one does not compile until somebody has decided.
fn rule(api: ApiKey) -> Rule {
    match api {
        // Before anything else can be asked.
        ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate => Rule::Reads,

        // Reading with a condition.
        ApiKey::Metadata => Rule::MetadataCreatesNothing,
        ApiKey::Fetch => Rule::FetchesAsConsumer,
        ApiKey::FindCoordinator => Rule::CoordinatorTopicExists,

        // Reading.
        ApiKey::ListOffsets
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::DescribeCluster
        | ApiKey::DescribeTopicPartitions
        | ApiKey::DescribeConfigs
        | ApiKey::ListConfigResources
        | ApiKey::DescribeLogDirs
        | ApiKey::DescribeQuorum
        | ApiKey::DescribeAcls
        | ApiKey::DescribeClientQuotas
        | ApiKey::DescribeUserScramCredentials
        | ApiKey::DescribeDelegationToken
        | ApiKey::ListPartitionReassignments
        | ApiKey::DescribeProducers
        | ApiKey::DescribeTransactions
        | ApiKey::ListTransactions
        | ApiKey::ListGroups
        | ApiKey::DescribeGroups
        | ApiKey::ConsumerGroupDescribe
        | ApiKey::ShareGroupDescribe
        | ApiKey::StreamsGroupDescribe
        | ApiKey::OffsetFetch => Rule::Reads,

        // Records, topics, settings.
        ApiKey::Produce
        | ApiKey::CreateTopics
        | ApiKey::DeleteTopics
        | ApiKey::CreatePartitions
        | ApiKey::DeleteRecords
        | ApiKey::AlterConfigs
        | ApiKey::IncrementalAlterConfigs
        | ApiKey::AlterReplicaLogDirs
        | ApiKey::AlterPartitionReassignments
        | ApiKey::ElectLeaders
        | ApiKey::CreateAcls
        | ApiKey::DeleteAcls
        | ApiKey::AlterClientQuotas
        | ApiKey::AlterUserScramCredentials
        | ApiKey::CreateDelegationToken
        | ApiKey::RenewDelegationToken
        | ApiKey::ExpireDelegationToken
        | ApiKey::UpdateFeatures
        | ApiKey::UnregisterBroker
        | ApiKey::UnregisterController
        | ApiKey::AddRaftVoter
        | ApiKey::RemoveRaftVoter => WRITES,

        // Groups.
        ApiKey::JoinGroup
        | ApiKey::SyncGroup
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::OffsetCommit
        | ApiKey::OffsetDelete
        | ApiKey::DeleteGroups
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::ShareGroupHeartbeat
        | ApiKey::ShareFetch
        | ApiKey::ShareAcknowledge
        | ApiKey::AlterShareGroupOffsets
        | ApiKey::DeleteShareGroupOffsets
        | ApiKey::StreamsGroupHeartbeat
        | ApiKey::StreamsGroupTopologyDescriptionUpdate => GROUP,

        // The group coordinator asks the share coordinator, and looks for it with FindCoordinator.
        ApiKey::DescribeShareGroupOffsets => SHARE_STATE,

        // Producers and transactions.
        ApiKey::InitProducerId
        | ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::EndTxn
        | ApiKey::WriteTxnMarkers
        | ApiKey::TxnOffsetCommit => TRANSACTION,

        ApiKey::GetTelemetrySubscriptions | ApiKey::PushTelemetry => TELEMETRY,

        // Between brokers and controllers.
        ApiKey::LeaderAndIsr
        | ApiKey::StopReplica
        | ApiKey::UpdateMetadata
        | ApiKey::ControlledShutdown
        | ApiKey::Vote
        | ApiKey::BeginQuorumEpoch
        | ApiKey::EndQuorumEpoch
        | ApiKey::AlterPartition
        | ApiKey::Envelope
        | ApiKey::FetchSnapshot
        | ApiKey::BrokerRegistration
        | ApiKey::BrokerHeartbeat
        | ApiKey::AllocateProducerIds
        | ApiKey::ControllerRegistration
        | ApiKey::AssignReplicasToDirs
        | ApiKey::UpdateRaftVoter
        | ApiKey::InitializeShareGroupState
        | ApiKey::ReadShareGroupState
        | ApiKey::WriteShareGroupState
        | ApiKey::DeleteShareGroupState
        | ApiKey::ReadShareGroupStateSummary => INTERNAL,
    }
}

fn metadata(request: &dyn Any) -> Option<&'static str> {
    let creates = "a Metadata request that does not say allow_auto_topic_creation=false creates topics";
    match request.downcast_ref::<MetadataRequest>() {
        Some(request) if !request.allow_auto_topic_creation => None,
        _ => Some(creates),
    }
}

fn fetch(request: &dyn Any) -> Option<&'static str> {
    let replica = "a Fetch request with a replica id moves the partition's high watermark";
    match request.downcast_ref::<FetchRequest>() {
        Some(request) if request.replica_id == -1 && request.replica_state.replica_id == -1 => None,
        _ => Some(replica),
    }
}

fn coordinator(request: &dyn Any, evidence: Evidence) -> Option<&'static str> {
    const TRANSACTION_ID: i8 = 1;
    const GROUP_ID: i8 = 0;
    let creates = "looking for this coordinator may create its internal topic";
    let exists = match request.downcast_ref::<FindCoordinatorRequest>() {
        Some(request) => match request.key_type {
            GROUP_ID => evidence.consumer_offsets_exists,
            TRANSACTION_ID => evidence.transaction_state_exists,
            _ => false,
        },
        None => false,
    };
    if exists { None } else { Some(creates) }
}

#[cfg(test)]
mod tests;

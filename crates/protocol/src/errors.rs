//! The error codes of Kafka 4.4 as numbers and names, one row each. What a client does next for a code is not
//! known here.
//!
//! Source: `org.apache.kafka.common.protocol.Errors` and the exception classes that it names.

use std::fmt;

macro_rules! error_codes {
    ($($code:literal $variant:ident $name:ident $retriable:literal $invalid_metadata:literal;)*) => {
        /// An error code in a response: a number that Kafka 4.4 has a name for, or any other number, kept.
        ///
        /// Prints as Kafka spells it, `NOT_LEADER_OR_FOLLOWER`, and as `error code 1234` where there is no name.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", stringify!($name), "`, code ", stringify!($code), ".")] $variant,)*
            /// A number that Kafka 4.4 gives no name. [`ErrorCode::from_code`] never puts a named one here.
            Unknown(i16),
        }

        impl ErrorCode {
            /// Every code with a name, in the order of the numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code of a number; every number has one.
            pub fn from_code(code: i16) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }

            /// The number on the wire.
            pub fn code(self) -> i16 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// The name as Kafka spells it; `None` for a number without one.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some(stringify!($name)),)*
                    Self::Unknown(_) => None,
                }
            }

            /// True if Kafka's own client sends such a request again (its exception is a `RetriableException`).
            ///
            /// False for a number without a name.
            pub fn is_retriable(self) -> bool {
                match self {
                    $(Self::$variant => $retriable,)*
                    Self::Unknown(_) => false,
                }
            }

            /// True if the code says that the client's view of the cluster is old (its exception is an
            /// `InvalidMetadataException`). Such a code is retriable too.
            ///
            /// False for a number without a name.
            pub fn is_invalid_metadata(self) -> bool {
                match self {
                    $(Self::$variant => $invalid_metadata,)*
                    Self::Unknown(_) => false,
                }
            }
        }
    };
}

error_codes! {
    // code, our name, Kafka's name, retriable, invalid metadata
     -1 UnknownServerError                     UNKNOWN_SERVER_ERROR                       false false;
      0 None                                   NONE                                       false false;
      1 OffsetOutOfRange                       OFFSET_OUT_OF_RANGE                        false false;
      2 CorruptMessage                         CORRUPT_MESSAGE                            true  false;
      3 UnknownTopicOrPartition                UNKNOWN_TOPIC_OR_PARTITION                 true  true;
      4 InvalidFetchSize                       INVALID_FETCH_SIZE                         false false;
      5 LeaderNotAvailable                     LEADER_NOT_AVAILABLE                       true  true;
      6 NotLeaderOrFollower                    NOT_LEADER_OR_FOLLOWER                     true  true;
      7 RequestTimedOut                        REQUEST_TIMED_OUT                          true  false;
      8 BrokerNotAvailable                     BROKER_NOT_AVAILABLE                       false false;
      9 ReplicaNotAvailable                    REPLICA_NOT_AVAILABLE                      true  true;
     10 MessageTooLarge                        MESSAGE_TOO_LARGE                          false false;
     11 StaleControllerEpoch                   STALE_CONTROLLER_EPOCH                     false false;
     12 OffsetMetadataTooLarge                 OFFSET_METADATA_TOO_LARGE                  false false;
     13 NetworkException                       NETWORK_EXCEPTION                          true  true;
     14 CoordinatorLoadInProgress              COORDINATOR_LOAD_IN_PROGRESS               true  false;
     15 CoordinatorNotAvailable                COORDINATOR_NOT_AVAILABLE                  true  false;
     16 NotCoordinator                         NOT_COORDINATOR                            true  false;
     17 InvalidTopicException                  INVALID_TOPIC_EXCEPTION                    false false;
     18 RecordListTooLarge                     RECORD_LIST_TOO_LARGE                      false false;
     19 NotEnoughReplicas                      NOT_ENOUGH_REPLICAS                        true  false;
     20 NotEnoughReplicasAfterAppend           NOT_ENOUGH_REPLICAS_AFTER_APPEND           true  false;
     21 InvalidRequiredAcks                    INVALID_REQUIRED_ACKS                      false false;
     22 IllegalGeneration                      ILLEGAL_GENERATION                         false false;
     23 InconsistentGroupProtocol              INCONSISTENT_GROUP_PROTOCOL                false false;
     24 InvalidGroupId                         INVALID_GROUP_ID                           false false;
     25 UnknownMemberId                        UNKNOWN_MEMBER_ID                          false false;
     26 InvalidSessionTimeout                  INVALID_SESSION_TIMEOUT                    false false;
     27 RebalanceInProgress                    REBALANCE_IN_PROGRESS                      false false;
     28 InvalidCommitOffsetSize                INVALID_COMMIT_OFFSET_SIZE                 false false;
     29 TopicAuthorizationFailed               TOPIC_AUTHORIZATION_FAILED                 false false;
     30 GroupAuthorizationFailed               GROUP_AUTHORIZATION_FAILED                 false false;
     31 ClusterAuthorizationFailed             CLUSTER_AUTHORIZATION_FAILED               false false;
     32 InvalidTimestamp                       INVALID_TIMESTAMP                          false false;
     33 UnsupportedSaslMechanism               UNSUPPORTED_SASL_MECHANISM                 false false;
     34 IllegalSaslState                       ILLEGAL_SASL_STATE                         false false;
     35 UnsupportedVersion                     UNSUPPORTED_VERSION                        false false;
     36 TopicAlreadyExists                     TOPIC_ALREADY_EXISTS                       false false;
     37 InvalidPartitions                      INVALID_PARTITIONS                         false false;
     38 InvalidReplicationFactor               INVALID_REPLICATION_FACTOR                 false false;
     39 InvalidReplicaAssignment               INVALID_REPLICA_ASSIGNMENT                 false false;
     40 InvalidConfig                          INVALID_CONFIG                             false false;
     41 NotController                          NOT_CONTROLLER                             true  false;
     42 InvalidRequest                         INVALID_REQUEST                            false false;
     43 UnsupportedForMessageFormat            UNSUPPORTED_FOR_MESSAGE_FORMAT             false false;
     44 PolicyViolation                        POLICY_VIOLATION                           false false;
     45 OutOfOrderSequenceNumber               OUT_OF_ORDER_SEQUENCE_NUMBER               false false;
     46 DuplicateSequenceNumber                DUPLICATE_SEQUENCE_NUMBER                  false false;
     47 InvalidProducerEpoch                   INVALID_PRODUCER_EPOCH                     false false;
     48 InvalidTxnState                        INVALID_TXN_STATE                          false false;
     49 InvalidProducerIdMapping               INVALID_PRODUCER_ID_MAPPING                false false;
     50 InvalidTransactionTimeout              INVALID_TRANSACTION_TIMEOUT                false false;
     51 ConcurrentTransactions                 CONCURRENT_TRANSACTIONS                    true  false;
     52 TransactionCoordinatorFenced           TRANSACTION_COORDINATOR_FENCED             false false;
     53 TransactionalIdAuthorizationFailed     TRANSACTIONAL_ID_AUTHORIZATION_FAILED      false false;
     54 SecurityDisabled                       SECURITY_DISABLED                          false false;
     55 OperationNotAttempted                  OPERATION_NOT_ATTEMPTED                    false false;
     56 KafkaStorageError                      KAFKA_STORAGE_ERROR                        true  true;
     57 LogDirNotFound                         LOG_DIR_NOT_FOUND                          false false;
     58 SaslAuthenticationFailed               SASL_AUTHENTICATION_FAILED                 false false;
     59 UnknownProducerId                      UNKNOWN_PRODUCER_ID                        false false;
     60 ReassignmentInProgress                 REASSIGNMENT_IN_PROGRESS                   false false;
     61 DelegationTokenAuthDisabled            DELEGATION_TOKEN_AUTH_DISABLED             false false;
     62 DelegationTokenNotFound                DELEGATION_TOKEN_NOT_FOUND                 false false;
     63 DelegationTokenOwnerMismatch           DELEGATION_TOKEN_OWNER_MISMATCH            false false;
     64 DelegationTokenRequestNotAllowed       DELEGATION_TOKEN_REQUEST_NOT_ALLOWED       false false;
     65 DelegationTokenAuthorizationFailed     DELEGATION_TOKEN_AUTHORIZATION_FAILED      false false;
     66 DelegationTokenExpired                 DELEGATION_TOKEN_EXPIRED                   false false;
     67 InvalidPrincipalType                   INVALID_PRINCIPAL_TYPE                     false false;
     68 NonEmptyGroup                          NON_EMPTY_GROUP                            false false;
     69 GroupIdNotFound                        GROUP_ID_NOT_FOUND                         false false;
     70 FetchSessionIdNotFound                 FETCH_SESSION_ID_NOT_FOUND                 true  false;
     71 InvalidFetchSessionEpoch               INVALID_FETCH_SESSION_EPOCH                true  false;
     72 ListenerNotFound                       LISTENER_NOT_FOUND                         true  true;
     73 TopicDeletionDisabled                  TOPIC_DELETION_DISABLED                    false false;
     74 FencedLeaderEpoch                      FENCED_LEADER_EPOCH                        true  true;
     75 UnknownLeaderEpoch                     UNKNOWN_LEADER_EPOCH                       true  false;
     76 UnsupportedCompressionType             UNSUPPORTED_COMPRESSION_TYPE               false false;
     77 StaleBrokerEpoch                       STALE_BROKER_EPOCH                         false false;
     78 OffsetNotAvailable                     OFFSET_NOT_AVAILABLE                       true  false;
     79 MemberIdRequired                       MEMBER_ID_REQUIRED                         false false;
     80 PreferredLeaderNotAvailable            PREFERRED_LEADER_NOT_AVAILABLE             true  true;
     81 GroupMaxSizeReached                    GROUP_MAX_SIZE_REACHED                     false false;
     82 FencedInstanceId                       FENCED_INSTANCE_ID                         false false;
     83 EligibleLeadersNotAvailable            ELIGIBLE_LEADERS_NOT_AVAILABLE             true  true;
     84 ElectionNotNeeded                      ELECTION_NOT_NEEDED                        true  true;
     85 NoReassignmentInProgress               NO_REASSIGNMENT_IN_PROGRESS                false false;
     86 GroupSubscribedToTopic                 GROUP_SUBSCRIBED_TO_TOPIC                  false false;
     87 InvalidRecord                          INVALID_RECORD                             false false;
     88 UnstableOffsetCommit                   UNSTABLE_OFFSET_COMMIT                     true  false;
     89 ThrottlingQuotaExceeded                THROTTLING_QUOTA_EXCEEDED                  true  false;
     90 ProducerFenced                         PRODUCER_FENCED                            false false;
     91 ResourceNotFound                       RESOURCE_NOT_FOUND                         false false;
     92 DuplicateResource                      DUPLICATE_RESOURCE                         false false;
     93 UnacceptableCredential                 UNACCEPTABLE_CREDENTIAL                    false false;
     94 InconsistentVoterSet                   INCONSISTENT_VOTER_SET                     false false;
     95 InvalidUpdateVersion                   INVALID_UPDATE_VERSION                     false false;
     96 FeatureUpdateFailed                    FEATURE_UPDATE_FAILED                      false false;
     97 PrincipalDeserializationFailure        PRINCIPAL_DESERIALIZATION_FAILURE          false false;
     98 SnapshotNotFound                       SNAPSHOT_NOT_FOUND                         false false;
     99 PositionOutOfRange                     POSITION_OUT_OF_RANGE                      false false;
    100 UnknownTopicId                         UNKNOWN_TOPIC_ID                           true  true;
    101 DuplicateBrokerRegistration            DUPLICATE_BROKER_REGISTRATION              false false;
    102 BrokerIdNotRegistered                  BROKER_ID_NOT_REGISTERED                   false false;
    103 InconsistentTopicId                    INCONSISTENT_TOPIC_ID                      true  true;
    104 InconsistentClusterId                  INCONSISTENT_CLUSTER_ID                    false false;
    105 TransactionalIdNotFound                TRANSACTIONAL_ID_NOT_FOUND                 false false;
    106 FetchSessionTopicIdError               FETCH_SESSION_TOPIC_ID_ERROR               true  false;
    107 IneligibleReplica                      INELIGIBLE_REPLICA                         false false;
    108 NewLeaderElected                       NEW_LEADER_ELECTED                         false false;
    109 OffsetMovedToTieredStorage             OFFSET_MOVED_TO_TIERED_STORAGE             false false;
    110 FencedMemberEpoch                      FENCED_MEMBER_EPOCH                        false false;
    111 UnreleasedInstanceId                   UNRELEASED_INSTANCE_ID                     false false;
    112 UnsupportedAssignor                    UNSUPPORTED_ASSIGNOR                       false false;
    113 StaleMemberEpoch                       STALE_MEMBER_EPOCH                         false false;
    114 MismatchedEndpointType                 MISMATCHED_ENDPOINT_TYPE                   false false;
    115 UnsupportedEndpointType                UNSUPPORTED_ENDPOINT_TYPE                  false false;
    116 UnknownControllerId                    UNKNOWN_CONTROLLER_ID                      false false;
    117 UnknownSubscriptionId                  UNKNOWN_SUBSCRIPTION_ID                    false false;
    118 TelemetryTooLarge                      TELEMETRY_TOO_LARGE                        false false;
    119 InvalidRegistration                    INVALID_REGISTRATION                       false false;
    120 TransactionAbortable                   TRANSACTION_ABORTABLE                      false false;
    121 InvalidRecordState                     INVALID_RECORD_STATE                       false false;
    122 ShareSessionNotFound                   SHARE_SESSION_NOT_FOUND                    true  false;
    123 InvalidShareSessionEpoch               INVALID_SHARE_SESSION_EPOCH                true  false;
    124 FencedStateEpoch                       FENCED_STATE_EPOCH                         false false;
    125 InvalidVoterKey                        INVALID_VOTER_KEY                          false false;
    126 DuplicateVoter                         DUPLICATE_VOTER                            false false;
    127 VoterNotFound                          VOTER_NOT_FOUND                            false false;
    128 InvalidRegularExpression               INVALID_REGULAR_EXPRESSION                 false false;
    129 RebootstrapRequired                    REBOOTSTRAP_REQUIRED                       false false;
    130 StreamsInvalidTopology                 STREAMS_INVALID_TOPOLOGY                   false false;
    131 StreamsInvalidTopologyEpoch            STREAMS_INVALID_TOPOLOGY_EPOCH             false false;
    132 StreamsTopologyFenced                  STREAMS_TOPOLOGY_FENCED                    false false;
    133 ShareSessionLimitReached               SHARE_SESSION_LIMIT_REACHED                true  false;
    134 GroupDeletionFailed                    GROUP_DELETION_FAILED                      false false;
    135 StreamsTopologyDescriptionUpdateFailed STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED false false;
    136 ControllerIdNotRegistered              CONTROLLER_ID_NOT_REGISTERED               false false;
}

impl ErrorCode {
    /// True for every code but `NONE`.
    pub fn is_error(self) -> bool {
        self != Self::None
    }
}

impl Default for ErrorCode {
    /// `NONE`, code 0.
    fn default() -> Self {
        Self::None
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self::from_code(code)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "error code {}", self.code()),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_its_value_whether_or_not_it_has_a_name() {
        for code in i16::MIN..=i16::MAX {
            assert_eq!(ErrorCode::from_code(code).code(), code);
        }
        assert_eq!(ErrorCode::from_code(6).to_string(), "NOT_LEADER_OR_FOLLOWER");
        assert_eq!(ErrorCode::from_code(1234).to_string(), "error code 1234");
    }

    #[test]
    fn a_code_that_makes_metadata_stale_is_retriable() {
        for code in ErrorCode::ALL {
            assert!(!code.is_invalid_metadata() || code.is_retriable(), "{code}");
        }
        assert_eq!(ErrorCode::ALL.len(), 138);
    }
}

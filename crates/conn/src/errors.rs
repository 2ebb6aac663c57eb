//! What went wrong, and what the caller does next: one table for the codes of Kafka's answers, one enum per
//! kind of operation for everything else.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strandline_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};

use crate::{
    BrokerAddress, GateRefusal, NoCommonVersion, PeerIdentity, ScramError, TlsConfigError, TokenError,
};

/// What the caller does next after an answer with an error code, or after an error of this crate.
///
/// Repeating a request is always within the caller's deadline and with back-off. Whether it *may* be repeated
/// is for the caller to know: after a code the broker has told the outcome, after [`RequestError::NoAnswer`]
/// nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// No error: use the answer.
    Proceed,
    /// Ask the same broker again after back-off; what hinders it passes by itself.
    Retry,
    /// The view of the cluster is old: refresh it, then ask whoever it names now.
    RefreshMetadata,
    /// The coordinator moved or is not there yet: find it anew, then ask that broker.
    FindCoordinator,
    /// The controller moved: refresh the view, then ask the new controller.
    FindController,
    /// The fetch or share session is gone: begin a new one with a full request.
    RestartSession,
    /// The connection is gone or was never made: dial again (the name is resolved anew), then send again if
    /// that is safe.
    Redial,
    /// The broker disowns this client's view (KIP-1102): forget the learned brokers and start from the
    /// bootstrap addresses.
    Rebootstrap,
    /// Credentials or mechanism were refused: repeating it does not help and may lock the account. Tell the
    /// user.
    Authenticate,
    /// The principal lacks a right: name the right to the user.
    Forbidden,
    /// Nothing that is done by itself helps: tell the user.
    Fail,
}

macro_rules! recoveries {
    ($($code:literal $variant:ident $recovery:ident;)*) => {
        impl Recovery {
            /// What to do next after `code`. A number that Kafka 4.4 gives no name is [`Recovery::Fail`].
            pub fn of(code: ErrorCode) -> Self {
                match code {
                    $(ErrorCode::$variant => Self::$recovery,)*
                    ErrorCode::Unknown(_) => Self::Fail,
                }
            }
        }

        #[cfg(test)]
        const ROWS: &[(i16, ErrorCode)] = &[$(($code, ErrorCode::$variant)),*];
    };
}

// Every code of Kafka 4.4 (`org.apache.kafka.common.protocol.Errors`); the match has no wildcard, so a new
// code does not compile until it has a row. Where Kafka's own client retries (a `RetriableException`), so do
// we.
recoveries! {
    // code, name, what the caller does next
     -1 UnknownServerError                     Fail;
      0 None                                   Proceed;
      1 OffsetOutOfRange                       Fail;
      2 CorruptMessage                         Retry;
      3 UnknownTopicOrPartition                RefreshMetadata;
      4 InvalidFetchSize                       Fail;
      5 LeaderNotAvailable                     RefreshMetadata;
      6 NotLeaderOrFollower                    RefreshMetadata;
      7 RequestTimedOut                        Retry;
      8 BrokerNotAvailable                     Fail;
      9 ReplicaNotAvailable                    RefreshMetadata;
     10 MessageTooLarge                        Fail;
     11 StaleControllerEpoch                   Fail;
     12 OffsetMetadataTooLarge                 Fail;
     13 NetworkException                       RefreshMetadata;
     14 CoordinatorLoadInProgress              Retry;
     15 CoordinatorNotAvailable                FindCoordinator;
     16 NotCoordinator                         FindCoordinator;
     17 InvalidTopicException                  Fail;
     18 RecordListTooLarge                     Fail;
     19 NotEnoughReplicas                      Retry;
     20 NotEnoughReplicasAfterAppend           Retry;
     21 InvalidRequiredAcks                    Fail;
     22 IllegalGeneration                      Fail;
     23 InconsistentGroupProtocol              Fail;
     24 InvalidGroupId                         Fail;
     25 UnknownMemberId                        Fail;
     26 InvalidSessionTimeout                  Fail;
     27 RebalanceInProgress                    Fail;
     28 InvalidCommitOffsetSize                Fail;
     29 TopicAuthorizationFailed               Forbidden;
     30 GroupAuthorizationFailed               Forbidden;
     31 ClusterAuthorizationFailed             Forbidden;
     32 InvalidTimestamp                       Fail;
     33 UnsupportedSaslMechanism               Authenticate;
     34 IllegalSaslState                       Authenticate;
     35 UnsupportedVersion                     Fail;
     36 TopicAlreadyExists                     Fail;
     37 InvalidPartitions                      Fail;
     38 InvalidReplicationFactor               Fail;
     39 InvalidReplicaAssignment               Fail;
     40 InvalidConfig                          Fail;
     41 NotController                          FindController;
     42 InvalidRequest                         Fail;
     43 UnsupportedForMessageFormat            Fail;
     44 PolicyViolation                        Fail;
     45 OutOfOrderSequenceNumber               Fail;
     46 DuplicateSequenceNumber                Fail;
     47 InvalidProducerEpoch                   Fail;
     48 InvalidTxnState                        Fail;
     49 InvalidProducerIdMapping               Fail;
     50 InvalidTransactionTimeout              Fail;
     51 ConcurrentTransactions                 Retry;
     52 TransactionCoordinatorFenced           Fail;
     53 TransactionalIdAuthorizationFailed     Forbidden;
     54 SecurityDisabled                       Fail;
     55 OperationNotAttempted                  Fail;
     56 KafkaStorageError                      RefreshMetadata;
     57 LogDirNotFound                         Fail;
     58 SaslAuthenticationFailed               Authenticate;
     59 UnknownProducerId                      Fail;
     60 ReassignmentInProgress                 Fail;
     61 DelegationTokenAuthDisabled            Fail;
     62 DelegationTokenNotFound                Fail;
     63 DelegationTokenOwnerMismatch           Fail;
     64 DelegationTokenRequestNotAllowed       Fail;
     65 DelegationTokenAuthorizationFailed     Forbidden;
     66 DelegationTokenExpired                 Fail;
     67 InvalidPrincipalType                   Fail;
     68 NonEmptyGroup                          Fail;
     69 GroupIdNotFound                        Fail;
     70 FetchSessionIdNotFound                 RestartSession;
     71 InvalidFetchSessionEpoch               RestartSession;
     72 ListenerNotFound                       RefreshMetadata;
     73 TopicDeletionDisabled                  Fail;
     74 FencedLeaderEpoch                      RefreshMetadata;
     75 UnknownLeaderEpoch                     Retry;
     76 UnsupportedCompressionType             Fail;
     77 StaleBrokerEpoch                       Fail;
     78 OffsetNotAvailable                     Retry;
     79 MemberIdRequired                       Fail;
     80 PreferredLeaderNotAvailable            RefreshMetadata;
     81 GroupMaxSizeReached                    Fail;
     82 FencedInstanceId                       Fail;
     83 EligibleLeadersNotAvailable            RefreshMetadata;
     84 ElectionNotNeeded                      RefreshMetadata;
     85 NoReassignmentInProgress               Fail;
     86 GroupSubscribedToTopic                 Fail;
     87 InvalidRecord                          Fail;
     88 UnstableOffsetCommit                   Retry;
     89 ThrottlingQuotaExceeded                Retry;
     90 ProducerFenced                         Fail;
     91 ResourceNotFound                       Fail;
     92 DuplicateResource                      Fail;
     93 UnacceptableCredential                 Fail;
     94 InconsistentVoterSet                   Fail;
     95 InvalidUpdateVersion                   Fail;
     96 FeatureUpdateFailed                    Fail;
     97 PrincipalDeserializationFailure        Fail;
     98 SnapshotNotFound                       Fail;
     99 PositionOutOfRange                     Fail;
    100 UnknownTopicId                         RefreshMetadata;
    101 DuplicateBrokerRegistration            Fail;
    102 BrokerIdNotRegistered                  Fail;
    103 InconsistentTopicId                    RefreshMetadata;
    104 InconsistentClusterId                  Fail;
    105 TransactionalIdNotFound                Fail;
    106 FetchSessionTopicIdError               RestartSession;
    107 IneligibleReplica                      Fail;
    108 NewLeaderElected                       Fail;
    109 OffsetMovedToTieredStorage             Fail;
    110 FencedMemberEpoch                      Fail;
    111 UnreleasedInstanceId                   Fail;
    112 UnsupportedAssignor                    Fail;
    113 StaleMemberEpoch                       Fail;
    114 MismatchedEndpointType                 Fail;
    115 UnsupportedEndpointType                Fail;
    116 UnknownControllerId                    Fail;
    117 UnknownSubscriptionId                  Fail;
    118 TelemetryTooLarge                      Fail;
    119 InvalidRegistration                    Fail;
    120 TransactionAbortable                   Fail;
    121 InvalidRecordState                     Fail;
    122 ShareSessionNotFound                   RestartSession;
    123 InvalidShareSessionEpoch               RestartSession;
    124 FencedStateEpoch                       Fail;
    125 InvalidVoterKey                        Fail;
    126 DuplicateVoter                         Fail;
    127 VoterNotFound                          Fail;
    128 InvalidRegularExpression               Fail;
    129 RebootstrapRequired                    Rebootstrap;
    130 StreamsInvalidTopology                 Fail;
    131 StreamsInvalidTopologyEpoch            Fail;
    132 StreamsTopologyFenced                  Fail;
    133 ShareSessionLimitReached               Retry;
    134 GroupDeletionFailed                    Fail;
    135 StreamsTopologyDescriptionUpdateFailed Fail;
    136 ControllerIdNotRegistered              Fail;
}

/// What a peer seems to speak where Kafka frames were expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// The first bytes are an HTTP answer.
    Http,
    /// The first bytes are a TLS alert or handshake record.
    Tls,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Tls => "TLS",
        })
    }
}

/// Why a connection ended. Every request that waited on it learns this one reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// [`Connection::close`](crate::Connection::close) was called, or the last handle was dropped.
    #[error("closed by this client")]
    ClosedHere,
    /// The broker closed the connection between two answers: it stopped, or the connection was idle for
    /// longer than its `connections.max.idle.ms`. Dial again.
    #[error("the broker closed the connection")]
    ClosedByBroker,
    /// The broker closed the connection at its first request after ApiVersions, and no credentials were
    /// given: a SASL listener does that. Give credentials, or use the port of another listener.
    #[error("the broker closed the connection at the first request; its listener may want SASL")]
    ClosedUnauthenticated,
    /// The broker closed the connection inside an answer. Dial again.
    #[error("the broker closed the connection after {received} bytes of an answer")]
    CutAnswer {
        /// Bytes of the answer that had arrived, its length field included.
        received: usize,
    },
    /// The socket failed. Dial again.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// A request had no answer at its deadline. Answers come in the order of the requests, so nothing behind
    /// it can be had either: the socket is given up.
    #[error("the broker did not answer {api:?} within {}", Waited(*.waited))]
    TimedOut {
        /// The request that waited.
        api: ApiKey,
        /// From its acceptance to its deadline.
        waited: Duration,
    },
    /// An answer does not belong to the oldest open request. The peer is no Kafka broker, or bytes were lost.
    #[error("an answer has correlation id {received}, expected was {}", ExpectedId(*.expected))]
    CorrelationId {
        /// Id of the oldest open request; `None` if no request was open.
        expected: Option<i32>,
        /// Id in the answer.
        received: i32,
    },
    /// The length in front of an answer is negative, below the four bytes of a correlation id, or above
    /// [`ConnectionConfig::max_frame_bytes`](crate::ConnectionConfig::max_frame_bytes).
    #[error("an answer claims a length of {claimed} bytes; accepted are 4 to {max}")]
    FrameLength {
        /// The length field.
        claimed: i32,
        /// The limit in force.
        max: usize,
    },
    /// The peer does not speak Kafka's protocol on this port.
    #[error("the peer speaks {0}, not Kafka's protocol")]
    NotKafka(Dialect),
    /// An answer could not be decoded; what follows it is not trusted either.
    #[error("the answer to {api:?} version {version} is malformed")]
    Malformed {
        /// The request that was answered.
        api: ApiKey,
        /// The version it was sent with.
        version: i16,
    },
    /// Nothing was sent or received for
    /// [`ConnectionConfig::idle_timeout`](crate::ConnectionConfig::idle_timeout). Dial again when there is something to
    /// ask.
    #[error("closed by this client after {} without a request", Waited(*.0))]
    Idle(Duration),
    /// The broker limits SASL sessions (`connections.max.reauth.ms`, or the life of a token), and this one could not be
    /// renewed (KIP-368). What to do is what the error says: refused credentials stay refused.
    #[error("the SASL session could not be renewed")]
    Reauthentication(#[source] Box<ConnectError>),
    /// A task of the runtime ended early: the runtime is being shut down.
    #[error("the runtime is shutting down")]
    RuntimeGone,
}

impl CloseReason {
    /// True for an end that says nothing bad about the broker: this side meant it.
    pub fn is_planned(&self) -> bool {
        matches!(self, Self::ClosedHere | Self::Idle(_))
    }

    /// What the caller does next.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Reauthentication(error) => error.recovery(),
            _ => Recovery::Redial,
        }
    }
}

/// A span as an error tells it: to a tenth of a second from one second on, else to the millisecond.
#[derive(Clone, Copy, Debug)]
pub struct Waited(pub Duration);

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = if self.0 >= Duration::from_secs(1) { 100 } else { 1 };
        let steps = (self.0.as_micros() + step * 500) / (step * 1000);
        let rounded = Duration::from_millis(u64::try_from(steps * step).unwrap_or(u64::MAX));
        write!(f, "{rounded:?}")
    }
}

struct ExpectedId(Option<i32>);

impl fmt::Display for ExpectedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "{id}"),
            None => f.write_str("none"),
        }
    }
}

/// Why [`Connection::connect`](crate::Connection::connect) gave no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name could not be resolved, or has no address. Try another broker, or again later.
    #[error("cannot resolve {address}")]
    Resolve {
        /// What was dialled.
        address: BrokerAddress,
        /// The resolver's words.
        source: io::Error,
    },
    /// No address of the name accepted a connection. Try another broker, or again later.
    #[error("cannot reach {address}{}", Attempts(.attempts))]
    Unreachable {
        /// What was dialled.
        address: BrokerAddress,
        /// Every address of the name in the order tried, with what happened.
        attempts: Vec<(SocketAddr, io::Error)>,
    },
    /// The deadline, or the configured connect timeout, passed first. Try another broker, or again.
    #[error("connecting to {address} took longer than {}; it was {step}", Waited(*.waited))]
    TimedOut {
        /// What was dialled.
        address: BrokerAddress,
        /// What was going on.
        step: ConnectStep,
        /// From the call to the deadline.
        waited: Duration,
    },
    /// One side speaks TLS, the other does not. Choose the other security protocol, or the other port.
    #[error("{address} {}", Mismatch(*.configured_tls, *.peer))]
    TlsMismatch {
        /// What was dialled.
        address: BrokerAddress,
        /// True if this side spoke TLS.
        configured_tls: bool,
        /// What the peer was seen to speak; `None` if it only hung up.
        peer: Option<Dialect>,
    },
    /// The peer answers, in a protocol that is not Kafka's. Check the port.
    #[error("{address} speaks {peer}, not Kafka's protocol")]
    NotKafka {
        /// What was dialled.
        address: BrokerAddress,
        /// What it speaks.
        peer: Dialect,
    },
    /// The certificate was not accepted, by us or by the broker, or the handshake broke. Check the trust
    /// store, the host name and the client certificate.
    #[error("TLS with {address} failed")]
    Tls {
        /// What was dialled.
        address: BrokerAddress,
        /// The TLS layer's words.
        source: io::Error,
    },
    /// The TLS settings cannot be used. Correct them.
    #[error("the TLS settings cannot be used")]
    TlsConfig(#[from] TlsConfigError),
    /// The connection ended while versions or authentication were being agreed on. A listener that wants TLS
    /// or SASL and meets neither hangs up this way too.
    #[error("{address} ended the connection while it was {step}")]
    Closed {
        /// What was dialled.
        address: BrokerAddress,
        /// What was going on.
        step: ConnectStep,
        /// How it ended.
        source: Arc<CloseReason>,
    },
    /// The broker knows no version of a request that this client can speak.
    #[error("{address} is too old or too new")]
    Version {
        /// What was dialled.
        address: BrokerAddress,
        /// The request and both ranges.
        source: NoCommonVersion,
    },
    /// The address leads to another broker, or to another cluster, than the one that is meant (KIP-1242). Forget where
    /// brokers are, and begin with the bootstrap addresses.
    #[error("{address} is not {expected}")]
    WrongPeer {
        /// What was dialled.
        address: BrokerAddress,
        /// Who should have answered.
        expected: PeerIdentity,
    },
    /// There is no token to authenticate with.
    #[error("there is no OAUTHBEARER token for {address}")]
    Token {
        /// What was dialled.
        address: BrokerAddress,
        /// Why.
        source: TokenError,
    },
    /// The broker answered with an error code that has nothing to do with credentials.
    #[error("{address} answered {code} while it was {step}")]
    Broker {
        /// What was dialled.
        address: BrokerAddress,
        /// What was going on.
        step: ConnectStep,
        /// Its code.
        code: ErrorCode,
    },
    /// The credentials were refused. Do not try them again at once.
    #[error("{address} refused the {mechanism} credentials{}", Said(.message))]
    Authentication {
        /// What was dialled.
        address: BrokerAddress,
        /// SASL mechanism.
        mechanism: &'static str,
        /// The broker's own words, cut to 1 000 characters and without control characters; may be empty.
        message: String,
    },
    /// The SCRAM exchange ended for another reason than refused credentials, a broker that does not know the
    /// password included.
    #[error("{mechanism} authentication with {address} failed")]
    Scram {
        /// What was dialled.
        address: BrokerAddress,
        /// SASL mechanism.
        mechanism: &'static str,
        /// What was wrong.
        source: ScramError,
    },
    /// The broker does not offer the mechanism. Choose one of those it names.
    #[error("{address} does not offer {mechanism}; it offers {}", Offered(.offered))]
    Mechanism {
        /// What was dialled.
        address: BrokerAddress,
        /// The mechanism that was asked for.
        mechanism: &'static str,
        /// What the listener offers, as it names them.
        offered: Vec<String>,
    },
    /// Credentials were given, and the listener wants none. Leave them out, or use the port of the SASL
    /// listener.
    #[error("{address} does not want SASL authentication")]
    NoSasl {
        /// What was dialled.
        address: BrokerAddress,
    },
    /// An answer could not be decoded.
    #[error("{address} sent a malformed answer while it was {step}")]
    Malformed {
        /// What was dialled.
        address: BrokerAddress,
        /// What was going on.
        step: ConnectStep,
        /// Where in the answer, and what.
        source: DecodeError,
    },
    /// A request could not be encoded: a credential is longer than the protocol can carry.
    #[error("a request to {address} cannot be encoded")]
    Encode {
        /// What was dialled.
        address: BrokerAddress,
        /// Which field, and why.
        source: EncodeError,
    },
}

impl ConnectError {
    /// What the caller does next.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Resolve { .. } | Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Closed { .. } => {
                Recovery::Redial
            }
            // A broker that is being stopped hangs up during the handshake, too.
            Self::TlsMismatch { peer: None, .. } => Recovery::Redial,
            Self::Broker { code, .. } => Recovery::of(*code),
            Self::WrongPeer { .. } => Recovery::Rebootstrap,
            Self::Token { source, .. } => source.recovery(),
            Self::Authentication { .. }
            | Self::Scram { .. }
            | Self::Mechanism { .. }
            | Self::NoSasl { .. } => Recovery::Authenticate,
            Self::TlsMismatch { .. }
            | Self::NotKafka { .. }
            | Self::Tls { .. }
            | Self::TlsConfig(_)
            | Self::Version { .. }
            | Self::Malformed { .. }
            | Self::Encode { .. } => Recovery::Fail,
        }
    }
}

/// What [`Connection::connect`](crate::Connection::connect) was doing. Prints to follow "it was".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectStep {
    /// Looking up the host name.
    Resolving,
    /// Opening the TCP connection.
    Dialling,
    /// In the TLS handshake.
    Tls,
    /// Agreeing on versions (ApiVersions).
    Versions,
    /// Waiting for an OAUTHBEARER token.
    FetchingToken,
    /// Authenticating (SaslHandshake, SaslAuthenticate).
    Authenticating,
}

impl fmt::Display for ConnectStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolving => "resolving the name",
            Self::Dialling => "opening the TCP connection",
            Self::Tls => "in the TLS handshake",
            Self::Versions => "agreeing on versions",
            Self::FetchingToken => "waiting for a token",
            Self::Authenticating => "authenticating",
        })
    }
}

/// Why a request on a connection gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The read-only gate does not let it pass; nothing was sent, nothing will be.
    #[error(transparent)]
    Refused(#[from] GateRefusal),
    /// Broker and client share no version of this request (within the caller's cap); nothing was sent.
    /// Another broker may be newer or older.
    #[error(transparent)]
    Version(#[from] NoCommonVersion),
    /// The request's values do not fit the negotiated version; nothing was sent.
    #[error("{api:?} version {version} cannot be encoded")]
    Encode {
        /// The request.
        api: ApiKey,
        /// The negotiated version.
        version: i16,
        /// Which field, and why.
        source: EncodeError,
    },
    /// The connection ended before the first byte of the request was handed to the socket. Send it on another
    /// connection: that is safe for every request.
    #[error("{api:?} was not sent")]
    NotSent {
        /// The request.
        api: ApiKey,
        /// How the connection ended.
        source: Arc<CloseReason>,
    },
    /// The deadline passed before the first byte of the request was handed to the socket: too many requests
    /// were open, or the socket took no bytes. Nothing was sent.
    #[error("{api:?} was not sent within {}: the connection is busy", Waited(*.waited))]
    NotSentInTime {
        /// The request.
        api: ApiKey,
        /// From the call to the deadline.
        waited: Duration,
    },
    /// The broker throttles this client (KIP-219), and the deadline passed before it wanted to hear from it again. Nothing
    /// was sent; the connection lives.
    #[error("{api:?} was not sent within {}: the broker throttles this client", Waited(*.waited))]
    Throttled {
        /// The request.
        api: ApiKey,
        /// From the call to the deadline.
        waited: Duration,
    },
    /// The request was sent, wholly or in part, and the connection ended before its answer: whether the
    /// broker carried it out is unknown. Repeat it only if a second execution does no harm.
    #[error("{api:?} was sent and has no answer")]
    NoAnswer {
        /// The request.
        api: ApiKey,
        /// How the connection ended; [`CloseReason::TimedOut`] if the deadline passed.
        source: Arc<CloseReason>,
    },
    /// The broker answered, and the answer cannot be decoded. The connection is closed.
    #[error("the answer to {api:?} version {version} is malformed")]
    Malformed {
        /// The request.
        api: ApiKey,
        /// The negotiated version.
        version: i16,
        /// Where in the answer, and what.
        source: DecodeError,
    },
}

impl RequestError {
    /// What the caller does next.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::NotSent { source, .. } | Self::NoAnswer { source, .. } => source.recovery(),
            Self::NotSentInTime { .. } => Recovery::Redial,
            Self::Throttled { .. } => Recovery::Retry,
            Self::Refused(_) | Self::Version(_) | Self::Encode { .. } | Self::Malformed { .. } => {
                Recovery::Fail
            }
        }
    }

    /// False if it is certain that no byte of the request reached the broker, so that any request may be sent
    /// again.
    pub fn may_have_been_sent(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::Malformed { .. })
    }
}

struct Attempts<'a>(&'a [(SocketAddr, io::Error)]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (address, error)) in self.0.iter().enumerate() {
            write!(f, "{}{address}: {error}", if n == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

struct Mismatch(bool, Option<Dialect>);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (true, Some(Dialect::Http)) => f.write_str("answered our TLS handshake in plain HTTP"),
            (true, _) => f.write_str("does not speak TLS: it hung up at our TLS handshake"),
            (false, _) => f.write_str("wants TLS: it answered our plaintext request with TLS"),
        }
    }
}

struct Said<'a>(&'a str);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

struct Offered<'a>(&'a [String]);

impl fmt::Display for Offered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { f.write_str(&self.0.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_row_with_its_own_number() {
        let rows: Vec<ErrorCode> = ROWS.iter().map(|row| row.1).collect();
        assert_eq!(rows, ErrorCode::ALL);
        for (number, code) in ROWS {
            assert_eq!(code.code(), *number, "{code}");
        }
    }

    #[test]
    fn a_span_is_told_in_digits_that_mean_something() {
        let told = [30_001_269_529, 29_960_000_000, 1_249_999_999, 300_400_000, 999_700_000, 0]
            .map(|nanos| Waited(Duration::from_nanos(nanos)).to_string());
        assert_eq!(told, ["30s", "30s", "1.2s", "300ms", "1s", "0ns"]);
    }

    #[test]
    fn a_code_is_repeated_exactly_when_kafkas_own_client_repeats_it() {
        use Recovery::{FindController, FindCoordinator, RefreshMetadata, RestartSession, Retry};
        for code in ErrorCode::ALL {
            let recovery = Recovery::of(*code);
            let repeats = matches!(
                recovery,
                Retry | RefreshMetadata | FindCoordinator | FindController | RestartSession
            );
            assert_eq!(repeats, code.is_retriable(), "{code}: {recovery:?}");
            assert_eq!(recovery == RefreshMetadata, code.is_invalid_metadata(), "{code}: {recovery:?}");
        }
        assert_eq!(Recovery::of(ErrorCode::Unknown(1234)), Recovery::Fail);
    }

    #[test]
    fn a_missing_right_is_told_apart_from_every_other_failure() {
        let forbidden = ErrorCode::ALL.iter().filter(|code| Recovery::of(**code) == Recovery::Forbidden);
        let names: Vec<String> = forbidden.map(ToString::to_string).collect();
        let mut expected: Vec<String> = ErrorCode::ALL.iter().map(ToString::to_string).collect();
        expected.retain(|name| name.ends_with("_AUTHORIZATION_FAILED"));
        assert_eq!(names, expected);
    }
}

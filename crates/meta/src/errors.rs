//! Why a call on the cluster gave no answer. What to do after an error *code* is told by [`Recovery`], in `strandline-conn`.

use std::sync::Arc;
use std::time::Duration;

use strandline_conn::{
    BrokerAddress, CloseReason, ConnectError, GateRefusal, Recovery, RequestError, Waited,
};
use strandline_protocol::{ApiKey, ErrorCode, VersionRange};

use crate::routing::RouteError;
use crate::snapshot::apply::RejectedAnswer;

/// No connection to a broker could be had.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// A bootstrap address does not lead to a broker.
    #[error("cannot connect to the bootstrap address {address}")]
    Bootstrap {
        /// The address as configured.
        address: BrokerAddress,
        /// Why.
        source: Arc<ConnectError>,
    },
    /// The cluster was found, and what this broker advertises does not lead to it: its `advertised.listeners` may name an
    /// address that only works elsewhere.
    #[error(
        "cannot connect to broker {node_id} at {advertised}, the address it advertises \
         (the cluster was found through {bootstrap})"
    )]
    Advertised {
        /// The broker.
        node_id: i32,
        /// The address that the cluster tells.
        advertised: BrokerAddress,
        /// The bootstrap addresses, comma-separated.
        bootstrap: String,
        /// Why.
        source: Arc<ConnectError>,
    },
    /// The runtime is shutting down.
    #[error("the runtime is shutting down")]
    RuntimeGone,
}

impl DialError {
    /// What the caller does next.
    pub fn recovery(&self) -> Recovery {
        match self {
            // The addresses to start again from lead to another cluster: that has to be put right.
            Self::Bootstrap { source, .. } if matches!(**source, ConnectError::WrongPeer { .. }) => {
                Recovery::Fail
            }
            Self::Bootstrap { source, .. } | Self::Advertised { source, .. } => source.recovery(),
            Self::RuntimeGone => Recovery::Fail,
        }
    }
}

/// No broker gave a usable Metadata answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError {
    /// Each broker asked failed; the worst failure is the source: one that stays (credentials, TLS) before one that passes.
    #[error("no broker of {} gave metadata", .asked.join(", "))]
    NoAnswer {
        /// Who was asked, in that order.
        asked: Vec<String>,
        /// The failure that says most.
        source: Box<SendError>,
    },
    /// The deadline passed first.
    #[error("no metadata within {}", Waited(*.waited))]
    Deadline {
        /// From the call to the deadline.
        waited: Duration,
        /// What failed before, if anything did.
        source: Option<Box<SendError>>,
    },
    /// There is nobody to ask: no bootstrap address is configured.
    #[error("no bootstrap address is given")]
    NoAddress,
    /// The [`Cluster`](crate::Cluster) was dropped, or the runtime is shutting down.
    #[error("the cluster handle is closed")]
    Closed,
}

impl RefreshError {
    /// What the caller does next.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::NoAnswer { source, .. } | Self::Deadline { source: Some(source), .. } => source.recovery(),
            Self::Deadline { source: None, .. } => Recovery::Redial,
            Self::NoAddress | Self::Closed => Recovery::Fail,
        }
    }
}

/// Why one request, or one item of a call that was split by broker, has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The read-only gate does not let it pass. Nothing was resolved, dialled or sent.
    #[error(transparent)]
    Gate(#[from] GateRefusal),
    /// No broker can be chosen for a call of this shape. Nothing was sent.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The topic that coordinators keep their state in does not exist: there is no group, or no transaction, at all. A
    /// read-only client does not look for a coordinator then, since a broker answers that by creating the topic.
    #[error("topic {topic} does not exist, so nobody is coordinator, and looking for one would create it")]
    NoCoordinators {
        /// `__consumer_offsets`, or `__transaction_state`.
        topic: Arc<str>,
    },
    /// A broker answers about this topic with an error: it does not exist (3), or may not be seen (29).
    #[error("topic {topic}: {code}")]
    Topic {
        /// Topic name.
        topic: Arc<str>,
        /// The broker's code.
        code: ErrorCode,
    },
    /// The topic exists and has no such partition.
    #[error("topic {topic} has {count} partitions, and none has number {partition}")]
    NoSuchPartition {
        /// Topic name.
        topic: Arc<str>,
        /// The number asked for.
        partition: i32,
        /// Partitions that the topic has.
        count: usize,
    },
    /// The partition has no leader at present: its replicas are offline, or an election is under way.
    #[error("partition {topic}:{partition} has no leader")]
    NoLeader {
        /// Topic name.
        topic: Arc<str>,
        /// Partition number.
        partition: i32,
    },
    /// No broker of this id is registered.
    #[error("the cluster has no broker {node_id}")]
    NoSuchBroker {
        /// The id asked for.
        node_id: i32,
    },
    /// No connection could be had.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The request failed on its connection.
    #[error("{peer} gave no answer")]
    Request {
        /// Who was asked.
        peer: String,
        /// What happened.
        source: RequestError,
    },
    /// The broker refused the request, or this item of it.
    #[error("{peer} answered {code}{}", Said(.message.as_deref()))]
    Code {
        /// Who was asked.
        peer: String,
        /// The code.
        code: ErrorCode,
        /// The broker's own words, where the answer has room for them.
        message: Option<String>,
    },
    /// The broker's versions cannot say what was asked.
    #[error("{peer} knows {key} only in versions {offered}; {needed}")]
    TooOld {
        /// Who was asked.
        peer: String,
        /// The API key.
        key: ApiKey,
        /// The versions that this client and the broker share.
        offered: VersionRange,
        /// What needs which version.
        needed: String,
    },
    /// The broker asks to be left alone for so long, as it does when a quota is exceeded (KIP-219).
    #[error("{peer} throttles this client: it asks for a pause of {}", Waited(*.wait))]
    Throttled {
        /// Who was asked.
        peer: String,
        /// The pause that it asks for.
        wait: Duration,
    },
    /// The answer says nothing about this item.
    #[error("the answer of {peer} leaves this item out")]
    LeftOut {
        /// Who was asked.
        peer: String,
    },
    /// The answer is no good as the view of the cluster.
    #[error("the Metadata answer of {peer} cannot be used")]
    BadMetadata {
        /// Who was asked.
        peer: String,
        /// Why.
        source: RejectedAnswer,
    },
    /// The view of the cluster could not be refreshed.
    #[error(transparent)]
    Refresh(#[from] RefreshError),
    /// The deadline passed. Where a write was sent, its outcome may be unknown: the source says so.
    #[error("no answer within {}", Waited(*.waited))]
    Deadline {
        /// From the call to the deadline.
        waited: Duration,
        /// False if it is certain that no broker has received the request: nothing was sent.
        may_have_been_sent: bool,
        /// The failure before, if one was seen.
        source: Option<Box<Self>>,
    },
}

impl SendError {
    /// What the caller does next; [`Cluster::send`](crate::Cluster::send) has done it already as far as its deadline allowed.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Dial(error) => error.recovery(),
            Self::Request { source, .. } => source.recovery(),
            Self::Topic { code, .. } | Self::Code { code, .. } => Recovery::of(*code),
            Self::BadMetadata { source, .. } => match source {
                RejectedAnswer::TopLevelError { code } => Recovery::of(*code),
                RejectedAnswer::NoBrokers => Recovery::Retry,
                RejectedAnswer::OtherCluster { .. } | RejectedAnswer::BadAddress { .. } => Recovery::Fail,
            },
            Self::Refresh(error) => error.recovery(),
            Self::NoLeader { .. } => Recovery::RefreshMetadata,
            Self::LeftOut { .. } | Self::Throttled { .. } => Recovery::Retry,
            Self::Deadline { source: Some(source), .. } => source.recovery(),
            Self::Deadline { source: None, .. } => Recovery::Redial,
            Self::Gate(_)
            | Self::Route(_)
            | Self::NoCoordinators { .. }
            | Self::NoSuchPartition { .. }
            | Self::NoSuchBroker { .. }
            | Self::TooOld { .. } => Recovery::Fail,
        }
    }

    /// The error code of a broker that is at the root of this error, if one is.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Topic { code, .. } | Self::Code { code, .. } => Some(*code),
            Self::BadMetadata { source: RejectedAnswer::TopLevelError { code }, .. } => Some(*code),
            Self::Deadline { source: Some(source), .. }
            | Self::Refresh(
                RefreshError::NoAnswer { source, .. } | RefreshError::Deadline { source: Some(source), .. },
            ) => source.code(),
            _ => None,
        }
    }

    /// True if broker and client have no version of a request in common, which no waiting changes.
    pub(crate) fn is_no_common_version(&self) -> bool {
        match self {
            Self::Request { source: RequestError::Version(_), .. } => true,
            Self::Dial(DialError::Bootstrap { source, .. } | DialError::Advertised { source, .. }) => {
                matches!(**source, ConnectError::Version { .. })
            }
            Self::Refresh(RefreshError::NoAnswer { source, .. }) => source.is_no_common_version(),
            _ => false,
        }
    }

    /// False if it is certain that no byte of the request reached a broker: any request may be sent again then. True where a
    /// broker may have carried it out without our knowing.
    ///
    /// A broker that answered with a code has refused the request, except for the codes that say that it does not know
    /// either.
    pub fn may_have_been_sent(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.may_have_been_sent(),
            Self::Deadline { may_have_been_sent, .. } => *may_have_been_sent,
            _ => false,
        }
    }

    /// True if the broker may or may not have done what was asked.
    pub(crate) fn leaves_outcome_unknown(&self) -> bool {
        let unknown = |code| {
            matches!(
                code,
                // The broker waited in vain for others, or lost them; what it began may still be finished.
                ErrorCode::RequestTimedOut | ErrorCode::NetworkException | ErrorCode::UnknownServerError
                // Written, and not as often as wanted.
                | ErrorCode::NotEnoughReplicasAfterAppend
            )
        };
        self.may_have_been_sent() || matches!(self, Self::Code { code, .. } if unknown(*code))
            // The answer is there and says nothing about the item.
            || matches!(self, Self::LeftOut { .. })
    }

    /// True if the broker was waited for in vain, which a connection that ends does not say.
    pub(crate) fn is_silence(source: &RequestError) -> bool {
        match source {
            RequestError::NoAnswer { source, .. } => matches!(**source, CloseReason::TimedOut { .. }),
            RequestError::NotSentInTime { .. } => true,
            _ => false,
        }
    }

    /// True if the connection ended before the first byte of the request was sent.
    pub(crate) fn ended_unsent(&self) -> bool {
        matches!(self, Self::Request { source: RequestError::NotSent { .. }, .. })
    }
}

struct Said<'a>(Option<&'a str>);

impl std::fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(message) if !message.is_empty() => write!(f, ": {message}"),
            _ => Ok(()),
        }
    }
}

use std::fmt;

use crate::{BrokerAddress, Mute};

/// Who to connect to: an address, and what is known of the broker behind it. An address alone converts into one.
#[derive(Clone, Debug)]
pub struct Target {
    /// What to dial.
    pub address: BrokerAddress,
    /// Who should answer there; unknown for an address of which nothing is known yet, as a bootstrap address.
    pub identity: PeerIdentity,
    /// What the broker's throttling mutes; share one among the connections of a node.
    pub mute: Mute,
}

/// The broker that a client believes to be behind an address. Brokers since Kafka 4.4 refuse a connection that is meant for
/// another one (KIP-1242); they are told only where both halves are known, and older ones never.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// The cluster, as Metadata names it; `None` if it is not known.
    pub cluster_id: Option<String>,
    /// The broker's node id; `None` if it is not known.
    pub node_id: Option<i32>,
}

impl PeerIdentity {
    /// True if neither the cluster nor the node is known, so that no peer can be the wrong one.
    pub fn is_unknown(&self) -> bool {
        self.cluster_id.is_none() && self.node_id.is_none()
    }
}

impl fmt::Display for PeerIdentity {
    /// `broker 3 of cluster abc`, or the half of it that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.node_id, &self.cluster_id) {
            (Some(node_id), Some(cluster_id)) => write!(f, "broker {node_id} of cluster {cluster_id}"),
            (Some(node_id), None) => write!(f, "broker {node_id}"),
            (None, Some(cluster_id)) => write!(f, "a broker of cluster {cluster_id}"),
            (None, None) => f.write_str("any broker"),
        }
    }
}

impl Target {
    /// An address of which nothing else is known.
    pub fn new(address: BrokerAddress) -> Self {
        Self { address, identity: PeerIdentity::default(), mute: Mute::new() }
    }

    /// Says who should answer.
    #[must_use]
    pub fn with_identity(self, identity: PeerIdentity) -> Self {
        Self { identity, ..self }
    }

    /// Shares the broker's throttling with its other connections.
    #[must_use]
    pub fn with_mute(self, mute: Mute) -> Self {
        Self { mute, ..self }
    }
}

impl From<BrokerAddress> for Target {
    fn from(address: BrokerAddress) -> Self {
        Self::new(address)
    }
}

impl From<&BrokerAddress> for Target {
    fn from(address: &BrokerAddress) -> Self {
        Self::new(address.clone())
    }
}

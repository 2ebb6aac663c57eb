//! A Kafka cluster as a client sees it: brokers, topics, leaders, and who answers which request.
//!
//! Start at [`routing`]: it alone decides where a request goes. Then follow the path of one request from [`Cluster::send`]
//! (`cluster.rs`): the read-only gate, the driver that splits a call by broker and repeats what failed (`driver.rs`), the
//! connections (`pool.rs`), and the one task that keeps the view fresh (`refresher.rs`), which is an immutable
//! [`ClusterSnapshot`] (`snapshot.rs`).
//!
//! Not here: what a connection is (`strandline-conn`), typed calls (`strandline-client`). How clients fail here elsewhere, and
//! which tests hold this one to doing otherwise, stands in [`failures`].
//!
//! # Cancel safety
//! Dropping a future of this crate loses that call's answer, never a connection, and never what others wait for.

mod backoff;
mod cluster;
mod codes;
mod coordinators;
mod driver;
mod errors;
pub mod failures;
mod hints;
mod metadata;
mod once;
mod pool;
mod refresher;
pub mod routing;
mod snapshot;
mod state;

pub use cluster::{
    Cluster, ClusterConfig, DEFAULT_BOOTSTRAP_RESOLVE_TIMEOUT, DEFAULT_REBOOTSTRAP_TRIGGER,
    DEFAULT_REQUEST_TIMEOUT, MetadataRecovery,
};
pub use codes::Codes;
pub use driver::{Call, ItemAnswer, Routed};
pub use errors::{DialError, RefreshError, SendError};
pub use hints::LeaderHints;
pub use snapshot::apply::RejectedAnswer;
pub use snapshot::{AGREEING_ANSWERS, Broker, ClusterSnapshot, Partition, Topic, TopicView};
#[cfg(feature = "metrics")]
pub use strandline_conn::MetricsObserver;
pub use strandline_conn::{BrokerAddress, Connection, ConnectionConfig, Observer, Recovery};
pub use strandline_protocol::{ApiKey, ErrorCode, TopicId};

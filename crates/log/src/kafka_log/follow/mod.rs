//! Following partitions of the metadata topic on a cluster.
//!
//! Each assigned partition has one [`Reading`], which knows where it stands, asks the leader of the moment for the next page,
//! and puts that into the subscriber's queue. What a code in an answer comes to is the table of range reads
//! (`page.rs`). The readings differ in one thing, how a question reaches the leader ([`Line`]): each over a connection
//! of its own (`connection.rs`), or all that one leader leads over one connection, in a fetch session (`leader.rs`).

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::brokers::Brokers;
use super::config::FetchConnections;
use super::read::Shared;
use crate::range::RangeError;
use crate::subscription::{PartitionSink, PartitionSource};

mod connection;
mod leader;
mod line;
mod reading;
mod session;
#[cfg(test)]
mod tests;

use connection::OwnConnection;
use leader::Leaders;
use line::Line;
use reading::Reading;

/// Follows the partitions of one subscription.
pub(super) struct Follower<B: Brokers> {
    shared: Arc<Shared<B>>,
    partition_count: i32,
    /// With [`FetchConnections::PerLeader`].
    leaders: Option<Arc<Leaders<B>>>,
}

impl<B: Brokers> Follower<B> {
    /// One for each subscription: with [`FetchConnections::PerLeader`] its readings share connections.
    pub(super) fn new(shared: Arc<Shared<B>>, partition_count: i32) -> Self {
        let leaders = match shared.config.fetch_connections {
            FetchConnections::PerPartition => None,
            FetchConnections::PerLeader => Some(Arc::new(Leaders::new(Arc::clone(&shared), partition_count))),
        };
        Self { shared, partition_count, leaders }
    }
}

impl<B: Brokers> std::fmt::Debug for Follower<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("topic", &self.shared.topic).finish_non_exhaustive()
    }
}

impl<B: Brokers> PartitionSource for Follower<B> {
    fn partition_count(&self) -> i32 {
        self.partition_count
    }

    fn follow(&self, partition: i32, from: i64, sink: PartitionSink) -> BoxFuture<'static, RangeError> {
        let line = match &self.leaders {
            None => Line::Own(OwnConnection::new(&self.shared)),
            Some(leaders) => Line::Leader(leaders.line()),
        };
        Reading::new(Arc::clone(&self.shared), partition, from, sink, line).run().boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(leaders) = &self.leaders {
                leaders.close().await;
            }
        }
        .boxed()
    }
}

//! Where an item goes by the view there is, or what stands in its way. Pure but for what is remembered of coordinators.

use std::sync::Arc;

use strandline_conn::Recovery;
use strandline_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::coordinators::Kind;
use crate::errors::{RefreshError, SendError};
use crate::pool::Endpoint;
use crate::routing::{self, Destination, Subject};
use crate::snapshot::{ClusterSnapshot, TopicView};
use crate::state::Core;

/// Where an item goes, or what stands in its way.
pub(super) enum Choice {
    /// To this broker, and no other.
    Send(Endpoint),
    /// To this broker, as well as to any other.
    Anyone(Endpoint),
    /// To the coordinator of this key, which has to be found.
    Find(Kind, Arc<str>),
    /// Nothing that is done by itself helps.
    Final(SendError),
    /// The view lacks something.
    Refresh(SendError),
    /// The view says that the thing does not exist, since this moment.
    Absent(SendError, Instant),
}

/// What choices are made by.
pub(super) struct Chooser<'a> {
    pub(super) core: &'a Core,
    pub(super) view: &'a ClusterSnapshot,
    /// Whoever would take a request that any broker can answer.
    pub(super) anyone: Option<Endpoint>,
    /// When the call began: what was said before may be out of date.
    pub(super) began: Instant,
}

impl Chooser<'_> {
    pub(super) fn choose(&self, key: ApiKey, subject: &Subject) -> Choice {
        let destination = match routing::destination(key, subject) {
            Ok(destination) => destination,
            Err(error) => return Choice::Final(error.into()),
        };
        match destination {
            Destination::Any => self.any(),
            Destination::Controller => match self.view.controller_id() {
                Some(node_id) if self.view.broker(node_id).is_some() => Choice::Send(Endpoint::Node(node_id)),
                // With KRaft any broker forwards to the controller.
                Some(_) | None => self.any(),
            },
            Destination::Broker(node_id) => match (self.view.broker(node_id), self.view.told_at()) {
                (Some(_), _) => Choice::Send(Endpoint::Node(node_id)),
                (None, Some(at)) => Choice::Absent(SendError::NoSuchBroker { node_id }, at),
                (None, None) => Choice::Refresh(SendError::NoSuchBroker { node_id }),
            },
            Destination::PartitionLeader { topic, partition } => self.leader(topic, partition),
            Destination::GroupCoordinator(group) => self.coordinator(Kind::Group, group.into()),
            Destination::TransactionCoordinator(id) => self.coordinator(Kind::Transaction, id.into()),
        }
    }

    /// Without a bootstrap address and without a broker there is nobody to ask.
    fn any(&self) -> Choice {
        self.anyone.clone().map_or_else(|| Choice::Refresh(RefreshError::NoAddress.into()), Choice::Anyone)
    }

    fn coordinator(&self, kind: Kind, key: Arc<str>) -> Choice {
        if let Some(node_id) = self.core.coordinators.known(kind, &key) {
            if self.view.broker(node_id).is_some() {
                return Choice::Send(Endpoint::Node(node_id));
            }
            // It has just joined, or has just left: the view tells, and then the coordinator is looked for once more.
            self.core.coordinators.forget(kind, &key, node_id);
            return Choice::Refresh(SendError::NoSuchBroker { node_id });
        }
        if self.core.may_look_for(kind) {
            return Choice::Find(kind, key);
        }
        let topic: Arc<str> = kind.topic().into();
        match self.view.topic_view(&topic) {
            TopicView::Known(_) => Choice::Find(kind, key),
            TopicView::NotAsked => Choice::Refresh(SendError::NoCoordinators { topic }),
            TopicView::Refused { code: ErrorCode::UnknownTopicOrPartition, at } => {
                Choice::Absent(SendError::NoCoordinators { topic }, at)
            }
            TopicView::Refused { code, at } => self.refused(SendError::Topic { topic, code }, code, at),
        }
    }

    fn leader(&self, topic: Arc<str>, partition: i32) -> Choice {
        let known = match self.view.topic_view(&topic) {
            TopicView::Known(known) => known,
            TopicView::NotAsked => return Choice::Refresh(SendError::NoLeader { topic, partition }),
            TopicView::Refused { code, at } => {
                return self.refused(SendError::Topic { topic, code }, code, at);
            }
        };
        let Some(found) = known.partition(partition) else {
            let count = known.partitions.len();
            let error = SendError::NoSuchPartition { topic, partition, count };
            return if partition < 0 { Choice::Final(error) } else { Choice::Absent(error, known.seen_at) };
        };
        match found.leader {
            Some(node_id) if self.view.broker(node_id).is_some() => Choice::Send(Endpoint::Node(node_id)),
            Some(_) | None => Choice::Refresh(SendError::NoLeader { topic, partition }),
        }
    }

    fn refused(&self, error: SendError, code: ErrorCode, at: Instant) -> Choice {
        match Recovery::of(code) {
            // The topic exists, and its leaders are being chosen.
            _ if code == ErrorCode::LeaderNotAvailable => Choice::Refresh(error),
            Recovery::RefreshMetadata | Recovery::Retry => Choice::Absent(error, at),
            // What was said before the call began is asked once more: rights change.
            _ if at < self.began => Choice::Refresh(error),
            _ => Choice::Final(error),
        }
    }
}

//! One try: for a caller that repeats requests by rules of its own, as a producer does, which alone knows under which
//! sequence a batch goes out again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use strandline_conn::Observer;
use strandline_protocol::Message as _;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::driver::{Call, ItemAnswer, Routed, send_one};
use crate::errors::SendError;
use crate::pool::Endpoint;
use crate::snapshot::{ClusterSnapshot, TopicView};

impl ClusterSnapshot {
    /// The broker that leads a partition, by this view. Never waits.
    ///
    /// # Errors
    /// What the view lacks or says instead: [`SendError::NoLeader`] (also where nobody has asked about the topic yet),
    /// [`SendError::NoSuchPartition`], or [`SendError::Topic`] with the code that a broker gave.
    pub fn leader(&self, topic: &Arc<str>, partition: i32) -> Result<i32, SendError> {
        let known = match self.topic_view(topic) {
            TopicView::Known(known) => known,
            TopicView::NotAsked => return Err(SendError::NoLeader { topic: Arc::clone(topic), partition }),
            TopicView::Refused { code, .. } => {
                return Err(SendError::Topic { topic: Arc::clone(topic), code });
            }
        };
        let Some(found) = known.partition(partition) else {
            let count = known.partitions.len();
            return Err(SendError::NoSuchPartition { topic: Arc::clone(topic), partition, count });
        };
        let leader = found.leader.filter(|node_id| self.broker(*node_id).is_some());
        leader.ok_or_else(|| SendError::NoLeader { topic: Arc::clone(topic), partition })
    }
}

impl Cluster {
    /// Longest wait for one broker's answer.
    pub fn request_timeout(&self) -> Duration {
        self.core().request_timeout
    }

    /// Who hears of what happens: a caller that repeats requests by itself tells of it here.
    pub fn observer(&self) -> &dyn Observer {
        self.core().pool.observer()
    }

    /// Sends items to one broker, once: nothing is sent again, and no code inside the answer is acted upon, except that what it
    /// says about leaders enters the view. The caller has chosen the broker by the view, and decides what is next.
    ///
    /// One outcome per item, in the order of `items`. [`Call::answers`] decides which codes are answers.
    /// [`SendError::may_have_been_sent`] tells whether the broker may have carried out what has no answer.
    ///
    /// # Errors
    /// Told per item, a refusal of the gate included; nothing was resolved, dialled or sent then.
    ///
    /// # Cancel safety
    /// A dropped call loses the answer. What was sent stays sent; no connection is lost.
    pub async fn send_once<C: Call>(
        &self,
        call: &C,
        node_id: i32,
        items: &[C::Item],
        deadline: Instant,
    ) -> Vec<Result<ItemAnswer<C::Answer>, SendError>> {
        let core = self.core();
        let routed: Vec<Routed<'_, C::Item>> =
            items.iter().map(|item| Routed { item, leader_epoch: None }).collect();
        // Without the items: a call may want to know which of its requests is the one that leaves.
        let request = call.request(&[], C::Request::VERSIONS.last);
        if let Err(refusal) = core.gate.check(&request, core.evidence()) {
            return items.iter().map(|_| Err(refusal.into())).collect();
        }
        let handed_over = AtomicBool::new(false);
        let view = self.snapshot();
        send_one(core, call, &Endpoint::Node(node_id), &routed, &view, deadline, &handed_over).await
    }
}

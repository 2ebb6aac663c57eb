//! What the refresher, the look-up of coordinators and every call share: the view and who may write it, the connections, the
//! coordinators.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use strandline_conn::{Evidence, Gate};
use tokio::time::Instant;

use crate::coordinators::{Coordinators, Kind};
use crate::hints::LeaderHints;
use crate::pool::Pool;
use crate::snapshot::ClusterSnapshot;
use crate::snapshot::apply::{Asked, MetadataAnswer, Notice, RejectedAnswer};

pub(crate) struct Core {
    pub(crate) pool: Arc<Pool>,
    pub(crate) coordinators: Coordinators,
    /// Longest wait for one broker's answer.
    pub(crate) request_timeout: Duration,
    pub(crate) gate: Gate,
    view: ArcSwap<ClusterSnapshot>,
    /// Held from the read of the view to the store of the next, so that of two writers neither loses what the other wrote.
    writing: Mutex<()>,
}

/// What an answer brought.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) changed: bool,
    pub(crate) notices: Vec<Notice>,
}

impl Core {
    pub(crate) fn new(pool: Arc<Pool>, gate: Gate, request_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            pool,
            coordinators: Coordinators::default(),
            request_timeout,
            gate,
            view: ArcSwap::from_pointee(ClusterSnapshot::empty()),
            writing: Mutex::new(()),
        })
    }

    /// The view as it is now.
    pub(crate) fn view(&self) -> Arc<ClusterSnapshot> {
        self.view.load_full()
    }

    /// Takes in an answer of the refresher, and brings connections and coordinators in line with it.
    pub(crate) fn take_in(&self, answer: MetadataAnswer, asked: &Asked) -> Result<Taken, RejectedAnswer> {
        let told_by = answer.told_by.clone();
        let mut taken = None;
        let (before, after) = self.write(|view| {
            let applied = view.apply(answer, asked, Instant::now())?;
            taken = Some(Taken { changed: applied.changed, notices: applied.notices });
            Ok(applied.snapshot)
        })?;
        self.coordinators.forget_nodes(&gone(&before, &after));
        self.pool.follow(&after);
        self.pool.recognise(&told_by, &after);
        Ok(taken.expect("the view was written"))
    }

    /// Marks topics stale: something contradicted what the view says of them.
    pub(crate) fn mark_stale(&self, topics: &[Arc<str>]) {
        // `Err` is "nothing changes", here and below.
        let _ = self.write(|view| view.with_stale(topics).ok_or(()));
    }

    /// Takes in what an answer says about leaders (KIP-951), as far as it is newer than the view; true if anything is.
    pub(crate) fn learn_leaders(&self, hints: &LeaderHints) -> bool {
        !hints.leaders.is_empty() && self.write(|view| view.with_hints(hints).ok_or(())).is_ok()
    }

    /// Forgets the controller, if it is still this broker.
    pub(crate) fn controller_moved(&self, node_id: i32) {
        let _ = self.write(|view| view.without_controller(node_id).ok_or(()));
    }

    /// Stores what `next` makes of the view. The views before and after.
    fn write<E>(
        &self,
        next: impl FnOnce(&ClusterSnapshot) -> Result<ClusterSnapshot, E>,
    ) -> Result<(Arc<ClusterSnapshot>, Arc<ClusterSnapshot>), E> {
        // What the lock guards is whole whenever it is free.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.view.load_full();
        let after = Arc::new(next(&before)?);
        self.view.store(Arc::clone(&after));
        Ok((before, after))
    }

    /// What the gate may rely on about the coordinators' topics.
    pub(crate) fn evidence(&self) -> Evidence {
        let view = self.view.load();
        Evidence {
            consumer_offsets_exists: view.topic(Kind::Group.topic()).is_some(),
            transaction_state_exists: view.topic(Kind::Transaction.topic()).is_some(),
        }
    }

    /// Whether a coordinator may be looked for without having seen its topic.
    pub(crate) fn may_look_for(&self, kind: Kind) -> bool {
        self.gate == Gate::ReadWrite || self.view.load().topic(kind.topic()).is_some()
    }
}

/// The brokers that left between two views, or moved to another address.
fn gone(before: &ClusterSnapshot, now: &ClusterSnapshot) -> Vec<i32> {
    let kept = |node_id| now.broker(node_id).map(|broker| &broker.address);
    let gone = before.brokers().filter(|broker| kept(broker.node_id) != Some(&broker.address));
    gone.map(|broker| broker.node_id).collect()
}

//! One partition's own connection to its leader.

use std::sync::Arc;

use strandline_meta::SendError;
use strandline_protocol::messages::fetch::FetchResponse;
use tokio::time::{Instant, sleep_until};

use super::line::{Answer, Overdue, Pace, ended_unsent, is_empty, refused};
use crate::kafka_log::brokers::{Brokers, Fetcher as _};
use crate::kafka_log::page::{Wanted, fetch_request};
use crate::kafka_log::read::{Shared, leader_of, throttle_of};

pub(super) struct OwnConnection<B: Brokers> {
    shared: Arc<Shared<B>>,
    dialled: Option<Dialled<B>>,
    pace: Pace,
}

struct Dialled<B: Brokers> {
    node_id: i32,
    peer: Arc<str>,
    fetcher: B::Fetcher,
}

impl<B: Brokers> OwnConnection<B> {
    pub(super) fn new(shared: &Arc<Shared<B>>) -> Self {
        Self { shared: Arc::clone(shared), dialled: None, pace: Pace::new(shared.config.retry_backoff) }
    }

    /// Asks the leader, and gives the connection up where another one leads before it has answered.
    pub(super) async fn ask(&mut self, leader: i32, wanted: Wanted) -> Result<Option<Answer>, SendError> {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            answer = self.answer(leader, wanted) => return answer.map(Some),
            () = moved(&shared, wanted.partition, (leader, wanted.leader_epoch)) => {}
        }
        self.dialled = None;
        Ok(None)
    }

    async fn answer(&mut self, leader: i32, wanted: Wanted) -> Result<Answer, SendError> {
        sleep_until(self.pace.not_before()).await;
        let asked_at = Instant::now();
        let (mut response, peer) = match self.fetch(leader, wanted).await {
            Err(error) if ended_unsent(&error) => self.fetch(leader, wanted).await?,
            answer => answer?,
        };
        let throttle = throttle_of(&response);
        let hinted = self.shared.brokers.learn_leaders(&response);
        if let Some(error) = refused(&response, &peer) {
            return Err(error);
        }
        let mut parts = response.responses.drain(..).flat_map(|topic| topic.partitions);
        let data = parts.find(|part| part.partition_index == wanted.partition);
        let nothing = data.as_ref().is_none_or(is_empty);
        match nothing && throttle.is_zero() && asked_at.elapsed() < self.shared.config.fetch_max_wait / 2 {
            true => self.pace.hasty(),
            false => self.pace.in_order(),
        }
        match data {
            Some(data) => Ok(Answer { data, peer, hinted, throttle }),
            // A throttled client gets an answer with nothing in it.
            None if !throttle.is_zero() => {
                Err(SendError::Throttled { peer: peer.to_string(), wait: throttle })
            }
            None => Err(SendError::LeftOut { peer: peer.to_string() }),
        }
    }

    async fn fetch(&mut self, leader: i32, wanted: Wanted) -> Result<(FetchResponse, Arc<str>), SendError> {
        let shared = &self.shared;
        let by = |wait| Instant::now() + wait;
        let stands = |dialled: &Dialled<B>| {
            dialled.node_id == leader && shared.brokers.stands(leader, &dialled.fetcher)
        };
        let dialled = match self.dialled.take().filter(stands) {
            Some(dialled) => dialled,
            None => {
                let fetcher = shared.brokers.dial(leader, by(shared.config.request_timeout)).await?;
                Dialled { node_id: leader, peer: format!("broker {leader}").into(), fetcher }
            }
        };
        let request = fetch_request(&shared.topic, shared.topic_id, [wanted], &shared.config);
        let deadline = by(shared.config.fetch_max_wait + shared.config.request_timeout);
        // Kept before the wait: whoever stops waiting hangs up, or finds it.
        let dialled = self.dialled.insert(dialled);
        let response = dialled.fetcher.fetch(request, deadline).await?;
        Ok((response, Arc::clone(&dialled.peer)))
    }
}

/// Waits until the view shows another leader, or leader epoch, than was asked. The cluster is asked for it only when the answer
/// is overdue.
async fn moved<B: Brokers>(shared: &Shared<B>, partition: i32, asked: (i32, Option<i32>)) {
    let mut overdue = Overdue::of(Instant::now() + shared.config.fetch_max_wait);
    loop {
        sleep_until(overdue.at).await;
        // Who cannot be asked knows of no other.
        let looked = shared.brokers.repair(Instant::now() + shared.config.request_timeout).await;
        if looked.is_ok() && leader_of(&shared.brokers.topic(), partition) != Some(asked) {
            return;
        }
        overdue.again();
    }
}

//! A fetch session (KIP-227) as its client knows it. No socket, no clock.

use std::collections::BTreeMap;

use strandline_protocol::messages::fetch::FetchResponse;

use crate::kafka_log::page::Wanted;

/// What a leader remembers of this client's partitions between two requests: all of them are asked for once, and
/// then what changed.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    /// 0 as long as the leader has not begun one.
    id: i32,
    /// That of the next request; 0 begins a session.
    epoch: i32,
    holds: BTreeMap<i32, Wanted>,
}

/// What the next request says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SessionRequest {
    pub(super) id: i32,
    pub(super) epoch: i32,
    /// The partitions that are new, or stand elsewhere than the leader knows.
    pub(super) changed: Vec<Wanted>,
    pub(super) forgotten: Vec<i32>,
}

impl FetchSession {
    /// The next request, after which the leader knows what is wanted: of these partitions, and of no others, it tells
    /// what is new.
    pub(super) fn request(&mut self, wanted: impl IntoIterator<Item = Wanted>) -> SessionRequest {
        let wanted: BTreeMap<i32, Wanted> =
            wanted.into_iter().map(|wanted| (wanted.partition, wanted)).collect();
        let held = if self.epoch == 0 { BTreeMap::new() } else { std::mem::take(&mut self.holds) };
        let changed = wanted.iter().filter(|&(partition, wanted)| held.get(partition) != Some(wanted));
        let changed = changed.map(|(_, wanted)| *wanted).collect();
        let forgotten = held.keys().filter(|partition| !wanted.contains_key(partition)).copied().collect();
        self.holds = wanted;
        SessionRequest { id: self.id, epoch: self.epoch, changed, forgotten }
    }

    /// Takes in an answer without an error of the whole.
    pub(super) fn answered(&mut self, response: &FetchResponse) {
        if self.epoch == 0 {
            self.id = response.session_id;
            // A leader without room for one more session gives none: the next request asks for everything again.
            self.epoch = i32::from(self.id != 0);
        } else {
            self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        }
    }

    /// True before a leader has begun one.
    pub(super) fn is_new(&self) -> bool {
        self.epoch == 0
    }

    /// The session is lost, or of no use any more: the next request begins another one, which takes its place.
    pub(super) fn begin_anew(&mut self) {
        self.epoch = 0;
        self.holds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(partition: i32, next_offset: i64) -> Wanted {
        Wanted { partition, next_offset, leader_epoch: Some(3), last_epoch: None, bytes_max: 100 }
    }

    fn shown(session: &mut FetchSession, wanted: &[Wanted]) -> String {
        let SessionRequest { id, epoch, changed, forgotten } = session.request(wanted.iter().copied());
        let changed: Vec<_> =
            changed.iter().map(|wanted| format!("{}@{}", wanted.partition, wanted.next_offset)).collect();
        format!("session {id} epoch {epoch}: {} forgets {forgotten:?}", changed.join(" "))
    }

    #[test]
    fn everything_is_asked_for_once_and_then_what_changed() {
        let mut session = FetchSession::default();
        let response = |session_id| FetchResponse { session_id, ..FetchResponse::default() };
        let mut lines = Vec::new();
        for (wanted, answer) in [
            (vec![at(0, 0), at(1, 0)], 0),
            (vec![at(0, 0), at(1, 0)], 77),
            (vec![at(0, 0), at(1, 5)], 77),
            (vec![at(0, 0), at(1, 5)], 77),
            (vec![at(1, 5), at(2, 9)], 77),
            (vec![at(0, 0), at(1, 5), at(2, 9)], 77),
        ] {
            lines.push(shown(&mut session, &wanted));
            session.answered(&response(answer));
        }
        session.begin_anew();
        lines.push(shown(&mut session, &[at(1, 5)]));
        insta::assert_snapshot!(lines.join("\n"), @"
        session 0 epoch 0: 0@0 1@0 forgets []
        session 0 epoch 0: 0@0 1@0 forgets []
        session 77 epoch 1: 1@5 forgets []
        session 77 epoch 2:  forgets []
        session 77 epoch 3: 2@9 forgets [0]
        session 77 epoch 4: 0@0 forgets []
        session 77 epoch 0: 1@5 forgets []
        ");
    }

    #[test]
    fn an_epoch_after_the_highest_is_one() {
        let mut session = FetchSession { id: 7, epoch: i32::MAX, holds: BTreeMap::new() };
        session.answered(&FetchResponse { session_id: 7, ..FetchResponse::default() });
        assert_eq!(session.epoch, 1);
    }
}

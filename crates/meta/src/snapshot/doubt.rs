//! What is told and contradicts what is known to be newer (a lower leader epoch, an id that a topic had before): when it is
//! believed.

use std::time::Duration;

use tokio::time::Instant;

use crate::pool::Endpoint;

/// So many answers must say the same lower leader epoch before it replaces a higher one, or the same former id of a topic before
/// it has that one again.
///
/// One or two may come from brokers that lag behind; what is so (after an unclean recovery of the controller's log, say) is told
/// by every broker. The number is ours: three is the usual number of controllers. One broker that is asked again
/// and again does not become several: so many different brokers must have said it, or all where there are fewer, and none of the
/// others anything else; or for half a minute more brokers have said it than anything else.
pub const AGREEING_ANSWERS: u8 = 3;

/// After so long what is told counts though fewer brokers than needed could be asked, or one goes on telling something that
/// nobody else has heard of, as an epoch that came into the view with a hint. No broker that is well lags behind its
/// controller by more: it would have lost its registration (Kafka's `broker.session.timeout.ms`, 9 s) long before.
pub(super) const BELIEVED_AFTER: Duration = Duration::from_secs(30);

/// Who tells, among how many, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Teller<'a> {
    pub(super) told_by: &'a Endpoint,
    pub(super) brokers: usize,
    pub(super) now: Instant,
}

/// What is not believed yet, who told it so far, and who has said since then that what is known is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubt<T> {
    pub(super) told: T,
    since: Instant,
    answers: u8,
    told_by: Vec<Endpoint>,
    against: Vec<Endpoint>,
}

impl<T: Clone + PartialEq> Doubt<T> {
    /// The doubt in `told`: the one there is, or a new one.
    pub(super) fn of(told: T, before: Option<&Self>, now: Instant) -> Box<Self> {
        match before {
            Some(doubt) if doubt.told == told => Box::new(doubt.clone()),
            _ => Box::new(Self::new(told, now)),
        }
    }

    fn new(told: T, since: Instant) -> Self {
        Self { told, since, answers: 0, told_by: Vec::new(), against: Vec::new() }
    }

    /// Takes in one more answer; true once it counts.
    pub(super) fn confirmed(&mut self, teller: Teller<'_>) -> bool {
        self.answers = self.answers.saturating_add(1);
        if !self.told_by.contains(teller.told_by) {
            self.told_by.push(teller.told_by.clone());
        }
        self.against.retain(|other| other != teller.told_by);
        let tellers = usize::from(AGREEING_ANSWERS).min(teller.brokers);
        let all_agree = self.told_by.len() >= tellers && self.against.is_empty();
        let for_long = teller.now.saturating_duration_since(self.since) >= BELIEVED_AFTER;
        let said = all_agree || (for_long && self.told_by.len() > self.against.len());
        said && self.answers >= AGREEING_ANSWERS
    }

    /// Takes in an answer that what is known is right; `None` once nobody says anything else any more.
    pub(super) fn contradicted(mut self: Box<Self>, teller: Teller<'_>) -> Option<Box<Self>> {
        self.told_by.retain(|other| other != teller.told_by);
        if !self.against.contains(teller.told_by) {
            self.against.push(teller.told_by.clone());
        }
        (!self.told_by.is_empty()).then_some(self)
    }
}

//! What goes wrong, and when: one rule per fault.

use std::time::Duration;

use strandline_protocol::{ApiKey, ErrorCode};
use tokio::sync::watch;

use crate::random::Random;

/// What happens to a request instead of its plain answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing is done, and the answer has this code: of each item where the response has items, else of the whole.
    Error(ErrorCode),
    /// The answer comes later by this.
    Delay(Duration),
    /// The request waits, not yet acted upon, until [`Held::release`].
    Hold(Held),
    /// Nothing is done and nothing answered; later requests of the connection are answered.
    Drop,
    /// The connection closes; nothing was done.
    Close,
    /// The request is acted upon, so many bytes of the answer (its length included) are sent, then the connection
    /// closes.
    CloseAfter(usize),
    /// The request is acted upon and the answer never sent: the connection closes.
    ApplyThenLose,
    /// The answer comes in pieces of so many bytes, with a pause after each.
    Trickle {
        /// The bytes of a piece; 0 counts as 1.
        bytes: usize,
        /// The pause.
        pause: Duration,
    },
    /// These bytes come instead of the answer, as they are: no length is put in front.
    Garbage(Vec<u8>),
    /// The answer has another correlation id.
    WrongCorrelationId,
    /// The answer comes twice.
    Twice,
    /// The answer says that the client is throttled, and the connection is muted for as long (KIP-219).
    Throttle(Duration),
}

/// Holds requests of a [`Fault::Hold`] until they are let go. Clones are the same hold.
#[derive(Clone, Debug)]
pub struct Held(watch::Sender<bool>);

impl Default for Held {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Held {
    /// Lets go what is held, and all that would be.
    pub fn release(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn released(&self) {
        // The sender is in `self`, so the wait ends only with the release.
        let _ = self.0.subscribe().wait_for(|released| *released).await;
    }
}

/// Which requests a fault befalls. The default is the next request, whatever it is.
///
/// The first rule that matches a request takes it; a rule whose count is used up matches nothing more.
#[derive(Clone, Debug)]
pub struct Rule {
    broker: Option<i32>,
    api: Option<ApiKey>,
    skip: u64,
    left: u64,
    probability: Option<f64>,
    pub(crate) fault: Fault,
}

impl Rule {
    /// The fault for the next request.
    pub fn new(fault: Fault) -> Self {
        Self { broker: None, api: None, skip: 0, left: 1, probability: None, fault }
    }

    /// Only requests to this broker.
    #[must_use]
    pub fn broker(mut self, id: i32) -> Self {
        self.broker = Some(id);
        self
    }

    /// Only requests of this API.
    #[must_use]
    pub fn api(mut self, api: ApiKey) -> Self {
        self.api = Some(api);
        self
    }

    /// From the `n`-th such request on, counted from 1 when the rule is made.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// So many times. Default 1.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.left = times;
        self
    }

    /// Until the script is cleared.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// Each such request with this probability, as the cluster's seed has it.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = Some(probability);
        self
    }

    /// The fault, if this request is one for it.
    pub(crate) fn take(&mut self, broker: i32, api: ApiKey, random: &mut Random) -> Option<Fault> {
        let meant = self.broker.is_none_or(|id| id == broker) && self.api.is_none_or(|key| key == api);
        if !meant || self.left == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.probability.is_some_and(|probability| random.below_one() >= probability) {
            return None;
        }
        self.left = self.left.saturating_sub(u64::from(self.left != u64::MAX));
        Some(self.fault.clone())
    }
}

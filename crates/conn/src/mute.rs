use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Until when a broker wants to be left alone (KIP-219). Clones share one value: give the same one to every connection of
/// a node, since a broker throttles a client and not a connection.
///
/// Each answer says for how long; the longest wish counts. A request waits for the end of it before its own clock starts
/// (Kafka's `ClusterConnectionStates#throttleDelayMs`): the wait is covered by the caller's deadline and not by the
/// request timeout.
#[derive(Clone, Debug, Default)]
pub struct Mute(Arc<Mutex<Option<Instant>>>);

impl Mute {
    /// A broker that has not throttled anybody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves the broker alone for `wait` from now on, or for as long as it was to be left alone already. Never waits.
    pub fn extend(&self, wait: Duration) {
        let Some(end) = Instant::now().checked_add(wait) else { return };
        let mut until = self.lock();
        *until = (*until).max(Some(end));
    }

    /// The end of the silence; `None` if there is none, or it lies behind. Never waits.
    pub fn until(&self) -> Option<Instant> {
        (*self.lock()).filter(|until| *until > Instant::now())
    }

    /// The end of the last silence, also when it lies behind.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.lock()
    }

    /// Waits for the end of the silence, also of one that is extended meanwhile.
    ///
    /// # Cancel safety
    /// Loses nothing.
    pub async fn passed(&self) {
        while let Some(until) = self.until() {
            sleep_until(until).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_wish_counts_and_clones_share_it() {
        let (mute, begun) = (Mute::new(), Instant::now());
        assert_eq!(mute.until(), None);
        mute.passed().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        mute.extend(Duration::from_secs(5));
        mute.clone().extend(Duration::from_secs(2));
        assert_eq!(mute.until(), Some(begun + Duration::from_secs(5)));
        mute.passed().await;
        assert_eq!((begun.elapsed(), mute.until()), (Duration::from_secs(5), None));
        // A wish without end would have no instant to wait for.
        mute.extend(Duration::MAX);
        assert_eq!(mute.until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_that_is_extended_is_waited_for_to_its_end() {
        let (mute, begun) = (Mute::new(), Instant::now());
        mute.extend(Duration::from_secs(1));
        let later = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            mute.extend(Duration::from_secs(3));
        };
        tokio::join!(mute.passed(), later);
        assert_eq!(begun.elapsed(), Duration::from_millis(3_500));
    }
}

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use crate::RemoteLogMetadataManagerConfig;

/// Waits that grow from try to try, with jitter.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    tries: u32,
    /// A random number of this process: the standard library has no other source.
    random: RandomState,
}

impl Backoff {
    pub(crate) fn new(config: &RemoteLogMetadataManagerConfig) -> Self {
        let (first, max) = (config.retry_backoff, config.retry_backoff_max);
        Self { first, max, tries: 0, random: RandomState::new() }
    }

    /// As after so many tries already.
    pub(crate) fn after(config: &RemoteLogMetadataManagerConfig, tries: u32) -> Self {
        Self { tries, ..Self::new(config) }
    }

    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Waits between half and all of what is due.
    pub(crate) async fn wait(&mut self) {
        let due = self.first.saturating_mul(1 << self.tries.min(16)).min(self.max);
        let random = self.random.hash_one(self.tries) >> 32;
        self.tries = self.tries.saturating_add(1);
        let jitter = due / 2 * u32::try_from(random).unwrap_or(u32::MAX) / u32::MAX;
        tokio::time::sleep(due / 2 + jitter).await;
    }
}

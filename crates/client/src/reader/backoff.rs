//! How long to wait before the next try: growing, bounded, with jitter from a seed.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// The longest wait is the first one doubled so often.
const DOUBLINGS_MAX: u32 = 3;

/// The waits of one reader between its tries.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    failures: u32,
    state: u64,
}

impl Backoff {
    /// Waits that begin with `first`. A seed makes their jitter repeatable.
    pub fn new(first: Duration, seed: Option<u64>) -> Self {
        let state = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Self { first, failures: 0, state }
    }

    /// The wait after one more failure: doubled each time up to eight times the first, then 80 % to 120 % of it.
    pub fn next_wait(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        // A linear congruential generator: nobody has to be surprised by it, only spread.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.state >> 11) as f64 / (1_u64 << 53) as f64;
        doubled.mul_f64(0.8 + 0.4 * unit)
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A success: the next failure is the first.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_eight_times_the_first_within_a_fifth_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Some(7));
        let within = |wait: Duration, exact: u64| {
            let exact = Duration::from_millis(exact);
            assert!(wait >= exact.mul_f64(0.799) && wait <= exact.mul_f64(1.201), "{exact:?}: {wait:?}");
        };
        for exact in [100, 200, 400, 800, 800, 800] {
            within(backoff.next_wait(), exact);
        }
        backoff.reset();
        within(backoff.next_wait(), 100);
    }
}

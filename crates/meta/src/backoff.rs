//! How long to wait before the next try: growing, bounded, with jitter from a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// First wait; Kafka's `retry.backoff.ms`.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait; Kafka's `retry.backoff.max.ms`.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Doublings after which the longest wait is reached from any useful first wait.
const DOUBLINGS_MAX: u32 = 16;

/// A source of jitter that a seed makes repeatable.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The wait after `failures` failures in a row (1 or more): doubled each time up to `max`, then 80 % to 120 % of it.
    pub(crate) fn backoff(&self, failures: u32, min: Duration, max: Duration) -> Duration {
        let doubled = min.saturating_mul(1 << failures.saturating_sub(1).min(DOUBLINGS_MAX));
        doubled.min(max).mul_f64(0.8 + 0.4 * self.unit())
    }

    /// A number below `bound`, which is above 0.
    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn unit(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// SplitMix64.
    fn next(&self) -> u64 {
        let mut z =
            self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_stay_within_a_fifth_of_it() {
        let jitter = Jitter::new(7);
        for failures in 1..100 {
            let exact = Duration::from_millis(100 << (failures - 1).min(4)).min(BACKOFF_MAX);
            let wait = jitter.backoff(failures, BACKOFF_MIN, BACKOFF_MAX);
            assert!(wait >= exact.mul_f64(0.799) && wait <= exact.mul_f64(1.201), "{failures}: {wait:?}");
        }
    }

    #[test]
    fn a_seed_repeats_its_waits() {
        let waits =
            |seed| (0..5).map(|_| Jitter::new(seed).backoff(3, BACKOFF_MIN, BACKOFF_MAX)).collect::<Vec<_>>();
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}

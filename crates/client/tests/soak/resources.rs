//! What a process holds, counted: sockets, tasks, bytes; and how late its timers are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Counts every byte that this test's process has allocated and not yet freed.
#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

/// Bytes that are allocated now.
pub(crate) fn live_bytes() -> usize {
    ALLOCATOR.allocated()
}

/// File descriptors that are open now, where the system tells.
pub(crate) fn open_files() -> Option<usize> {
    // The listing itself has one open.
    std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() - 1)
}

/// How late the timers of the runtime are: what a busy machine adds to every deadline.
#[derive(Debug, Default)]
pub(crate) struct Lateness(Mutex<Vec<(Instant, Duration)>>);

/// Timers are off by a few milliseconds at any time; only more is kept.
const PUNCTUAL: Duration = Duration::from_millis(5);
const REMEMBERED: Duration = Duration::from_secs(30);

impl Lateness {
    /// Measures for as long as it is polled.
    pub(crate) async fn measure(&self) {
        loop {
            let due = Instant::now() + PUNCTUAL;
            sleep(PUNCTUAL).await;
            let now = Instant::now();
            let late = now - due;
            if late > PUNCTUAL {
                let mut seen = self.seen();
                seen.retain(|(at, _)| now - *at < REMEMBERED);
                seen.push((now, late));
            }
        }
    }

    /// All lateness seen since a moment, added up.
    pub(crate) fn since(&self, moment: Instant) -> Duration {
        self.seen().iter().filter(|(at, _)| *at >= moment).map(|(_, late)| *late).sum()
    }

    fn seen(&self) -> MutexGuard<'_, Vec<(Instant, Duration)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

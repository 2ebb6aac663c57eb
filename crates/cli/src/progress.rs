//! Long work shows itself on stderr: a bar on a terminal, a line every 10 seconds elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::ProgressKind;
use crate::text::Sizes;

/// Time between plain lines; also how long plain work goes on before the first.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time between two looks of the bar; also how long work goes on before a bar appears.
const BAR_EVERY: Duration = Duration::from_millis(200);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Events,
    Objects,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Events => "events",
            Self::Objects => "objects",
        }
    }

    fn show(self, number: u64) -> String {
        match self {
            Self::Bytes => Sizes::Iec.show(i64::try_from(number).unwrap_or(i64::MAX)),
            Self::Events | Self::Objects => crate::text::thousands(number),
        }
    }
}

/// A piece of long work. Dropping it takes the bar away.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    what: &'static str,
    unit: Unit,
    done: AtomicU64,
    total: AtomicU64,
    over: Mutex<bool>,
    wake: Condvar,
}

impl Progress {
    /// Begins to show `what` ("reading events"), counted in `unit`.
    pub(crate) fn start(kind: ProgressKind, what: &'static str, unit: Unit) -> Self {
        let shared = Arc::new(Shared {
            what,
            unit,
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            over: Mutex::new(false),
            wake: Condvar::new(),
        });
        let bar = kind == ProgressKind::Auto && std::io::stderr().is_terminal();
        let thread = (kind != ProgressKind::None).then(|| {
            let shared = Arc::clone(&shared);
            let show = move || if bar { shared.show_bar() } else { shared.show_lines(kind) };
            std::thread::Builder::new().name("progress".to_owned()).spawn(show).ok()
        });
        Self { shared, thread: thread.flatten() }
    }

    /// Adds to the whole of the work, as it becomes known.
    pub(crate) fn add_total(&self, number: u64) {
        self.shared.total.fetch_add(number, Ordering::Relaxed);
    }

    /// Adds to what is done.
    pub(crate) fn add(&self, number: u64) {
        self.shared.done.fetch_add(number, Ordering::Relaxed);
    }

    /// `12.0 MiB of 40.0 MiB` or, where the whole is not known, `12.0 MiB`.
    pub(crate) fn covered(&self) -> String {
        self.shared.covered()
    }
}

impl Shared {
    fn covered(&self) -> String {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let unit = if self.unit == Unit::Bytes { "" } else { self.unit.name() };
        let whole = if total == 0 { String::new() } else { format!(" of {}", self.unit.show(total)) };
        format!("{}{whole} {unit}", self.unit.show(done)).trim_end().to_owned()
    }

    /// Waits; true when the work is over.
    fn is_over_after(&self, wait: Duration) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(over, wait, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn show_lines(&self, kind: ProgressKind) {
        let start = Instant::now();
        while !self.is_over_after(LINE_EVERY) {
            let elapsed = start.elapsed().as_secs();
            let line = if kind == ProgressKind::Json {
                let total = self.total.load(Ordering::Relaxed);
                serde_json::json!({
                    "kind": "progress",
                    "what": self.what,
                    "unit": self.unit.name(),
                    "done": self.done.load(Ordering::Relaxed),
                    "total": (total > 0).then_some(total),
                    "elapsed_seconds": elapsed,
                })
                .to_string()
            } else {
                format!("{}: {} after {elapsed} s", self.what, self.covered())
            };
            // Nobody reads stderr any more: the work itself goes on.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    fn show_bar(&self) {
        if self.is_over_after(BAR_EVERY) {
            return;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        // How much there is may never be known, as in a directory: then only what is done is shown.
        bar.set_style(style("{prefix} {msg}"));
        bar.set_prefix(self.what);
        loop {
            let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
            if total > 0 && bar.length() != Some(total) {
                bar.set_length(total);
                bar.set_style(style("{prefix} {bar:30} {msg} {eta}"));
            }
            bar.set_position(done);
            bar.set_message(self.covered());
            bar.tick();
            if self.is_over_after(BAR_EVERY) {
                bar.finish_and_clear();
                return;
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *self.shared.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has shown itself already; the work is not hurt by it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_reads_well() {
        let progress = Progress::start(ProgressKind::None, "reading events", Unit::Events);
        progress.add(1200);
        assert_eq!(progress.covered(), "1 200 events");
        progress.add_total(5000);
        assert_eq!(progress.covered(), "1 200 of 5 000 events");
        let progress = Progress::start(ProgressKind::Plain, "reading", Unit::Bytes);
        progress.add(2048);
        assert_eq!(progress.covered(), "2.0 KiB");
    }
}

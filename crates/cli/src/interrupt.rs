//! Ctrl-C, SIGTERM and SIGHUP (the terminal was closed): the first asks for a clean end, the second ends at once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;

/// How long the command may take to notice the first signal before the process ends anyway. Only a wait that cannot
/// be cut short (stdin that brings nothing) lasts that long.
const NOTICE_MAX: Duration = Duration::from_secs(2);

static PENDING: LazyLock<watch::Sender<Option<Exit>>> = LazyLock::new(|| watch::Sender::new(None));
static NOTICED: AtomicBool = AtomicBool::new(false);
/// A directory that is to be removed when a signal ends the process at once.
static LITTER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Starts to listen for signals, on a thread of its own; returns when it listens.
pub(crate) fn install() {
    let (listening, ready) = std::sync::mpsc::sync_channel(1);
    let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(listen(listening));
        }
    });
    // An error means that the thread has ended: signals keep their default effect.
    let _ = ready.recv();
    if let Err(error) = spawned {
        tracing::debug!(%error, "signals keep their default effect");
    }
}

async fn listen(listening: SyncSender<()>) {
    let Ok(mut signals) = Signals::new() else { return };
    drop(listening);
    let first = signals.next().await;
    PENDING.send_replace(Some(first));
    tokio::select! {
        second = signals.next() => end(second),
        () = tokio::time::sleep(NOTICE_MAX) => {}
    }
    if !NOTICED.load(Ordering::Relaxed) {
        end(first);
    }
    end(signals.next().await)
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where it is ignored, and is to stay so.
    hang_up: Option<Signal>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let hang_up = if hang_up_may_be_caught() { Some(signal(SignalKind::hangup())?) } else { None };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up,
        })
    }

    async fn next(&mut self) -> Exit {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
            _ = hang_up => Exit::HungUp,
        }
    }
}

/// False under `nohup`, which ignores SIGHUP: to catch it would undo that. Where the kernel does not tell (it does on
/// Linux), the signal is left as it is.
fn hang_up_may_be_caught() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        // Bit 0 is signal 1, SIGHUP.
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 0)
    })
}

fn end(exit: Exit) -> ! {
    let litter = LITTER.lock().unwrap_or_else(PoisonError::into_inner).take();
    // Nobody is left to be told if it cannot be removed.
    let _ = litter.map(std::fs::remove_dir_all);
    std::process::exit(i32::from(exit.code()))
}

/// Removes this directory, too, when a signal ends the process at once; `None` takes that back.
pub(crate) fn remove_at_end(directory: Option<PathBuf>) {
    *LITTER.lock().unwrap_or_else(PoisonError::into_inner) = directory;
}

/// The signal that asked for an end, if one did. Cheap enough to ask between chunks of work.
///
/// Who asks takes on the clean end.
pub(crate) fn pending() -> Option<Exit> {
    let pending = *PENDING.borrow();
    if pending.is_some() {
        NOTICED.store(true, Ordering::Relaxed);
    }
    pending
}

/// Sleeps on this thread, and not a moment longer than until a signal asks for an end.
pub(crate) fn sleep(time: Duration) -> Option<Exit> {
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let until = std::time::Instant::now() + time;
    loop {
        if let Some(exit) = pending() {
            return Some(exit);
        }
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Completes when a signal asks for an end.
///
/// Cancel safety: a dropped wait loses nothing.
pub(crate) async fn wait() -> Exit {
    let mut receiver = PENDING.subscribe();
    loop {
        if let Some(exit) = pending() {
            return exit;
        }
        if receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! What the manager does, seen from outside, on the log in memory.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cut_logs;
mod faulty;
mod following;
mod golden;
mod model;
mod snapshots;
mod stress;
mod support;
mod writes;

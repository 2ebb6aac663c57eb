//! The log on an embedded cluster: how it starts, and what publishers are told, whatever befalls the cluster.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod model;
mod publish;
mod start;
#[path = "../support/mod.rs"]
mod support;

//! What the crate does, seen from outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod codec;
mod events;
mod index;
mod json;
mod memory;
mod store;

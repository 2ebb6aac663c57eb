//! Reading one partition of the embedded cluster: what goes well, and every way in which it does not.

#[path = "../support/mod.rs"]
mod support;

mod interleavings;
mod leaders;
mod pages;
mod refusals;

//! The cluster layer on the embedded cluster: brokers that move, hang, vanish and lie.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test, helpers included")]

mod bootstrap;
mod coordinators;
mod hints;
mod metadata;
mod observe;
mod outcome;
mod pool;
mod routing;
mod soundness;
mod support;

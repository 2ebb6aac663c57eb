//! [`Producer`](strandline_client::producer::Producer) on the embedded cluster.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bounds;
mod epochs;
mod model;
mod moves;
mod wire;
mod world;

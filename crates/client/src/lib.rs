//! What sits directly on a [`Cluster`](strandline_meta::Cluster): calls with typed questions and typed answers.
//!
//! Start at [`admin::Admin`], which asks about topics, configs, offsets, epochs and log directories, or at
//! [`reader::PartitionReader`], which reads one partition from an offset; both only read, but for
//! [`Admin::create_topic`](admin::Admin::create_topic). [`producer::Producer`] writes. What goes to which broker is the business of
//! `strandline-meta`.
//!
//! # Cancel safety
//! Dropping a future of this crate loses that call's answer and nothing else: a record that a producer accepted is delivered
//! all the same.

pub mod admin;
pub mod failures;
pub mod producer;
pub mod reader;

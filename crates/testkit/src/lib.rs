//! Peers: for the tests of every other crate, and for `strandline demo`.
//!
//! [`embedded`] is a Kafka cluster in this process, whose every failure is the test's to script.
//! [`apache`] starts a real Apache Kafka with tiered storage, from Maven Central, and ends it with the test.
//!
//! [`random`] is the generator of everything that has a seed. [`sources`] holds what a document says of tests against the tests.
//!
//! The command uses [`embedded`] alone, for its demonstration, and goes without the features `apache` and `certificates`.

#[cfg(feature = "apache")]
pub mod apache;
pub mod embedded;
pub mod random;
pub mod sources;

//! What a producer's core says is to be done, and what it is told came of it.

use std::sync::Arc;

use strandline_conn::RetryDecision;
use strandline_meta::{ErrorCode, SendError, TopicId};
use strandline_protocol::records::{BatchBuilder, BuildError, Producer};

use crate::producer::batch::Handover;
use crate::producer::errors::ProduceError;

/// Who leads a partition, as the view has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::producer) struct Place {
    pub(in crate::producer) node_id: i32,
    pub(in crate::producer) topic_id: Option<TopicId>,
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(in crate::producer) struct Work {
    pub(in crate::producer) requests: Vec<Outgoing>,
    pub(in crate::producer) refreshes: Vec<Refresh>,
    /// Ask for a producer id.
    pub(in crate::producer) producer_id: bool,
    /// Tell the observer.
    pub(in crate::producer) retries: Vec<Retry>,
}

/// What was decided about batches that fared alike.
#[derive(Debug)]
pub(in crate::producer) struct Retry {
    pub(in crate::producer) attempt: u32,
    pub(in crate::producer) error: Arc<SendError>,
    pub(in crate::producer) decision: RetryDecision,
}

/// One Produce request.
#[derive(Debug)]
pub(in crate::producer) struct Outgoing {
    pub(in crate::producer) number: u64,
    pub(in crate::producer) node_id: i32,
    pub(in crate::producer) parts: Vec<Part>,
}

/// The batch of one partition in a request.
#[derive(Clone, Debug)]
pub(in crate::producer) struct Part {
    pub(in crate::producer) topic: Arc<str>,
    pub(in crate::producer) topic_id: Option<TopicId>,
    pub(in crate::producer) partition: i32,
    pub(in crate::producer) producer: Producer,
    pub(in crate::producer) records: Arc<BatchBuilder>,
    pub(in crate::producer) handover: Arc<Handover>,
}

/// Topics to be looked up.
#[derive(Debug)]
pub(in crate::producer) struct Refresh {
    /// Something contradicted the view.
    pub(in crate::producer) repair: bool,
    pub(in crate::producer) topics: Vec<Arc<str>>,
    /// Who waits for it; nobody where the view has what is needed already.
    pub(in crate::producer) partitions: Vec<usize>,
}

/// What a Produce answer says about one partition.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::producer) struct PartAnswer {
    pub(in crate::producer) code: ErrorCode,
    pub(in crate::producer) message: Option<Arc<str>>,
    pub(in crate::producer) base_offset: i64,
    pub(in crate::producer) log_append_time_ms: i64,
    /// The records that the broker refuses, by their number in the batch, where it tells (KIP-467).
    pub(in crate::producer) refused_records: Vec<(usize, Option<Arc<str>>)>,
}

/// Why a part of a request has no answer.
#[derive(Clone, Debug)]
pub(in crate::producer) enum PartFailure {
    /// The answer says nothing about it.
    LeftOut,
    Send(Arc<SendError>),
    Encode(Arc<BuildError>),
}

/// What became of one part of a request.
pub(in crate::producer) type PartResult = Result<PartAnswer, PartFailure>;

/// The answer to records that travelled together.
#[derive(Debug)]
pub(in crate::producer) struct Answered<W> {
    pub(in crate::producer) waiters: Vec<W>,
    pub(in crate::producer) result: Result<Appended, ProduceError>,
}

/// Where a batch lies.
#[derive(Clone, Debug)]
pub(in crate::producer) struct Appended {
    pub(in crate::producer) topic: Arc<str>,
    pub(in crate::producer) partition: i32,
    pub(in crate::producer) base_offset: i64,
    pub(in crate::producer) log_append_time_ms: Option<i64>,
}

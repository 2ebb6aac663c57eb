//! What was asked: every request with its connection.

use std::fmt;

use bytes::Bytes;
use strandline_protocol::{ApiKey, DecodeError, Request};

/// Most entries that are kept; older ones go.
pub(crate) const JOURNAL_ENTRIES_MAX: usize = 1 << 16;

/// A request that a broker has read whole, whatever it did with it.
///
/// Prints as `broker 1 connection 7 Metadata v12`.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// Counts requests over the whole cluster, from 0, in the order in which they were read.
    pub number: u64,
    /// The broker that read it.
    pub broker: i32,
    /// The connection: no two of a cluster have the same number.
    pub connection: u64,
    /// `User:NAME`, where SASL or a certificate has told it.
    pub principal: Option<String>,
    /// What was asked.
    pub api: ApiKey,
    /// The version of the request.
    pub version: i16,
    /// The client's number for it.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<String>,
    /// The request behind its header.
    pub body: Bytes,
}

impl JournalEntry {
    /// The request itself.
    ///
    /// # Errors
    /// The bytes are not such a request.
    pub fn decode<R: Request>(&self) -> Result<R, DecodeError> {
        R::decode(self.body.clone(), self.version)
    }
}

impl fmt::Display for JournalEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { broker, connection, api, version, .. } = self;
        write!(f, "broker {broker} connection {connection} {api} v{version}")
    }
}

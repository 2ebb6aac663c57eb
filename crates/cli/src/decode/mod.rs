//! Single artefacts of a broker or a store: what kind a file is, and what it holds.
//!
//! Start at [`Kind::of`], then [`rows`], or [`log_segment_rows`] for what may be large. Each kind is a file here; every
//! reader is bounded by the bytes it gets.

mod checkpoint;
mod event;
mod index;
mod producer_snapshot;
mod segment;

use std::io::Read;

use serde_json::{Map, Value};

/// One row: field names and values, in the order of the columns.
pub(crate) type Row = Map<String, Value>;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A log segment: record batches.
    LogSegment,
    /// One record value of the metadata topic, in hex.
    EventHex,
    /// `.index`
    OffsetIndex,
    /// `.timeindex`
    TimeIndex,
    /// `.txnindex`
    TransactionIndex,
    /// `leader-epoch-checkpoint`, or `.leader_epoch_checkpoint` in a store.
    LeaderEpochCheckpoint,
    /// `log-start-offset-checkpoint` and its likes: an offset per partition.
    OffsetCheckpoint,
    /// A producer state `.snapshot`.
    ProducerSnapshot,
}

impl Kind {
    /// The kind by the file's name, else by its first bytes; `None` where neither tells.
    pub(crate) fn of(name: &str, bytes: &[u8]) -> Option<Self> {
        // A broker renames what it is about to delete, and stores put their own suffixes in front.
        let name = name.trim_end_matches(".deleted").trim_end_matches(".cleaned").trim_end_matches(".swap");
        let by_name = [
            (".log", Self::LogSegment),
            (".timeindex", Self::TimeIndex),
            (".txnindex", Self::TransactionIndex),
            (".index", Self::OffsetIndex),
            (".snapshot", Self::ProducerSnapshot),
            ("leader-epoch-checkpoint", Self::LeaderEpochCheckpoint),
            (".leader_epoch_checkpoint", Self::LeaderEpochCheckpoint),
            ("-offset-checkpoint", Self::OffsetCheckpoint),
        ];
        if let Some((_, kind)) = by_name.iter().find(|(suffix, _)| name.ends_with(suffix)) {
            return Some(*kind);
        }
        if event::is_hex(bytes) {
            return Some(Self::EventHex);
        }
        // The magic byte of a record batch stands at 16; older formats are recognised by the reader.
        if bytes.len() > 16 && bytes[16] <= 2 && bytes[..4] == [0; 4] {
            return Some(Self::LogSegment);
        }
        checkpoint::kind(bytes)
    }

    /// The word for it in messages and machine output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LogSegment => "log_segment",
            Self::EventHex => "event",
            Self::OffsetIndex => "offset_index",
            Self::TimeIndex => "time_index",
            Self::TransactionIndex => "transaction_index",
            Self::LeaderEpochCheckpoint => "leader_epoch_checkpoint",
            Self::OffsetCheckpoint => "offset_checkpoint",
            Self::ProducerSnapshot => "producer_snapshot",
        }
    }
}

/// Why an artefact, or the rest of it, cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub(crate) struct Broken {
    /// Where: a byte position, an offset or a line.
    pub(crate) place: String,
    /// What is wrong there.
    pub(crate) problem: String,
}

impl Broken {
    fn at_byte(position: u64, problem: impl Into<String>) -> Self {
        Self { place: format!("at byte {position}"), problem: problem.into() }
    }

    fn at_line(line: usize, problem: impl Into<String>) -> Self {
        Self { place: format!("line {line}"), problem: problem.into() }
    }
}

/// The rows of an artefact, read as they are asked for. An error is the last item.
///
/// `base_offset` is the number in the file's name, from which an index counts.
pub(crate) fn rows<'a>(
    kind: Kind,
    bytes: &'a [u8],
    base_offset: Option<i64>,
) -> Box<dyn Iterator<Item = Result<Row, Broken>> + 'a> {
    match kind {
        Kind::LogSegment => Box::new(segment::rows(bytes)),
        Kind::EventHex => Box::new(std::iter::once(event::row(bytes))),
        Kind::OffsetIndex => Box::new(index::offset_entries(bytes, base_offset)),
        Kind::TimeIndex => Box::new(index::time_entries(bytes, base_offset)),
        Kind::TransactionIndex => Box::new(index::aborted_transactions(bytes)),
        Kind::LeaderEpochCheckpoint => Box::new(checkpoint::leader_epochs(bytes)),
        Kind::OffsetCheckpoint => Box::new(checkpoint::offsets(bytes)),
        Kind::ProducerSnapshot => Box::new(producer_snapshot::producers(bytes)),
    }
}

/// The rows of a log segment of any size, read a chunk at a time.
pub(crate) fn log_segment_rows(reader: impl Read) -> impl Iterator<Item = Result<Row, Broken>> {
    segment::rows(reader)
}

/// The base offset that a segment's or an index's file name holds: its first 20 digits.
pub(crate) fn base_offset(name: &str) -> Option<i64> {
    name.get(..20)?.parse().ok()
}

/// A row from pairs.
fn row<const N: usize>(pairs: [(&str, Value); N]) -> Row {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A time as the contract writes it; a number that is no time stays a number of milliseconds.
fn time(ms: i64) -> Value {
    crate::moment::rfc3339(ms).map_or_else(|| ms.into(), Into::into)
}

/// The big-endian integer at `at`, where the bytes reach that far.
macro_rules! integer {
    ($bytes:expr, $at:expr, $type:ty) => {
        $bytes
            .get($at..$at + size_of::<$type>())
            .and_then(|bytes| bytes.try_into().ok())
            .map(<$type>::from_be_bytes)
    };
}
use integer;

#[cfg(test)]
mod tests;

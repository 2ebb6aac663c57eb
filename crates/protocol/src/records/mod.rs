//! Record batches of message format 2, as they lie in a segment file and in a Fetch answer.
//!
//! Start at [`Batches`]: it walks a buffer batch by batch, header first, and checks each CRC-32C.
//! [`Batch::records`] walks the records of one batch; uncompressed ones borrow from the buffer, compressed ones
//! from a [`Decompressor`] that is used again and again. Neither allocates per record. From a `bytes::Bytes`,
//! pass it by reference and use `Bytes::slice_ref` to keep a part of it.
//!
//! [`BatchBuilder`] writes a batch. Message formats 0 and 1 (before Kafka 0.11) are recognised and answered with
//! [`BatchError::LegacyBatch`], never decoded.
//!
//! Source: `org.apache.kafka.common.record.DefaultRecordBatch`, `DefaultRecord`, KIP-98.

mod batch;
mod builder;
mod compression;
mod error;
mod record;
#[cfg(test)]
mod tests;
mod varint;

pub use batch::{
    Attributes, BATCH_HEADER_BYTES, BATCH_PREFIX_BYTES, Batch, BatchHeader, Batches, CutTail, TimestampType,
};
pub use builder::{BatchBuilder, BatchOptions, BuildError, NewRecord, Producer};
pub use compression::{Compression, DEFAULT_DECOMPRESSED_BYTES_MAX, DecompressError, Decompressor};
pub use error::{BatchError, Corruption};
pub use record::{Header, Headers, Record, Records};

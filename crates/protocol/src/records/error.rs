use super::compression::DecompressError;

/// A batch cannot be read. Nothing behind it in the same buffer is given out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A message set of format 0 or 1. The metadata topic never has one; nothing to retry.
    #[error(
        "a message of format {magic} (written before Kafka 0.11) at offset {offset}, byte {position}, cannot be read"
    )]
    LegacyBatch {
        /// The offset in the message's header: of a compressed set the last one it holds, else its own.
        offset: i64,
        /// Where the message begins, in bytes from the start of what is read (file or answer).
        position: u64,
        /// The format, 0 or 1.
        magic: i8,
    },
    /// The bytes contradict themselves. Reading the same bytes again gives the same answer.
    #[error("the batch at offset {base_offset}, byte {position}, is corrupt")]
    Corrupt {
        /// The base offset as the damaged header says it; with a damaged header it can be any number.
        base_offset: i64,
        /// Where the batch begins, in bytes from the start of what is read (file or answer).
        position: u64,
        /// What is wrong with it.
        #[source]
        source: Corruption,
    },
}

impl BatchError {
    /// The offset that the batch's header names.
    pub fn offset(&self) -> i64 {
        match self {
            Self::LegacyBatch { offset, .. } => *offset,
            Self::Corrupt { base_offset, .. } => *base_offset,
        }
    }

    /// Where the batch begins, in bytes from the start of what is read.
    pub fn position(&self) -> u64 {
        match self {
            Self::LegacyBatch { position, .. } | Self::Corrupt { position, .. } => *position,
        }
    }
}

/// What is wrong with a batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// The length field is too small for a batch header.
    #[error("the length field says {length} bytes, fewer than a batch header has")]
    Length {
        /// The length field.
        length: i32,
    },
    /// The length field exceeds the reader's limit.
    #[error("the length field says {length} bytes, more than the limit of {max}")]
    TooLong {
        /// The length field.
        length: i32,
        /// The reader's limit, in bytes, of a whole batch.
        max: usize,
    },
    /// A message format that Kafka 4.4 does not know.
    #[error("unknown message format {magic}")]
    Magic {
        /// The format byte.
        magic: i8,
    },
    /// The stored CRC-32C differs from that of the bytes.
    #[error("the stored CRC-32C is {stored:08x}, that of the bytes is {computed:08x}")]
    Checksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The base offset is negative, or the last offset does not fit 63 bits.
    #[error("base offset {base_offset} with last offset delta {last_offset_delta} names no offsets")]
    Offsets {
        /// The base offset.
        base_offset: i64,
        /// The last offset delta.
        last_offset_delta: i32,
    },
    /// The record count is negative, or larger than the bytes can hold.
    #[error("{count} records cannot lie in {bytes} bytes")]
    RecordCount {
        /// The record count.
        count: i32,
        /// The bytes that hold the records.
        bytes: usize,
    },
    /// Bytes are left after the last record.
    #[error("{bytes} bytes are left after the last of {count} records")]
    BytesAfterRecords {
        /// The bytes left.
        bytes: usize,
        /// The record count of the header.
        count: i32,
    },
    /// The records cannot be decompressed.
    #[error("the records cannot be decompressed")]
    Decompress(#[source] DecompressError),
    /// A record cannot be decoded.
    #[error("record {index} of the batch: {what}")]
    Record {
        /// The record's place in the batch, 0-based.
        index: i32,
        /// What is wrong with it.
        what: &'static str,
    },
}

use std::io::{self, Read, Write};

use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::stream::raw::{Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

/// How large the records of one batch may become by default: 64 MiB, 64 times Kafka's default limit of a batch.
pub const DEFAULT_DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// The output buffer's first size; it doubles from here to what a batch needs.
const FIRST_BUFFER_BYTES: usize = 64 << 10;

/// What Java's `SnappyOutputStream` writes first, and the 8 bytes of versions that follow it.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;

/// The block size of Java's `SnappyOutputStream`.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy: in the framing of Java's `SnappyOutputStream` (xerial), or raw as other clients write it.
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    /// RFC 8878 (KIP-110).
    Zstd,
}

impl Compression {
    /// The compression with this number in the attributes; `Err` gives the number back.
    pub fn from_id(id: i16) -> Result<Self, i16> {
        Ok(match id {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            unknown => return Err(unknown),
        })
    }

    /// The number in the attributes.
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The name that Kafka's `compression.type` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Appends `records` to `out`, compressed as Kafka's own clients do it, at each codec's default level.
    pub(super) fn compress(self, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::None => out.extend_from_slice(records),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
                encoder.write_all(records)?;
                encoder.finish()?;
            }
            Self::Snappy => {
                out.extend_from_slice(&XERIAL_MAGIC);
                out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
                let mut encoder = snap::raw::Encoder::new();
                for block in records.chunks(XERIAL_BLOCK_BYTES) {
                    let block = encoder.compress_vec(block).map_err(io::Error::other)?;
                    out.extend_from_slice(&(block.len() as u32).to_be_bytes());
                    out.extend_from_slice(&block);
                }
            }
            Self::Lz4 => {
                // Kafka's reader refuses linked blocks.
                let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, out);
                encoder.write_all(records)?;
                encoder.finish().map_err(io::Error::other)?;
            }
            Self::Zstd => zstd::stream::copy_encode(records, out, zstd::DEFAULT_COMPRESSION_LEVEL)?,
        }
        Ok(())
    }
}

/// The records of a batch cannot be decompressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// A codec that Kafka 4.4 does not know.
    #[error("unknown compression {id}")]
    UnknownCodec {
        /// The number in the attributes.
        id: i16,
    },
    /// The output would exceed the cap: a bomb, or a batch larger than the reader allows.
    #[error("more than {max} bytes come out of {input} bytes of {}", codec.name())]
    TooLarge {
        /// The codec.
        codec: Compression,
        /// The compressed bytes.
        input: usize,
        /// The cap.
        max: usize,
    },
    /// The compressed bytes are damaged or cut.
    #[error("the {} data is damaged", codec.name())]
    Damaged {
        /// The codec.
        codec: Compression,
        /// What the codec says.
        #[source]
        source: io::Error,
    },
}

/// Decompresses batch after batch into one buffer, which grows to the largest batch and never beyond a cap.
///
/// The output is produced piece by piece, so that a small input with a huge output costs no more than the cap.
pub struct Decompressor {
    /// Its length is what was ever needed; what is valid is said by each call.
    buffer: Vec<u8>,
    output_bytes_max: usize,
    zstd: Option<ZstdDecoder<'static>>,
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new(DEFAULT_DECOMPRESSED_BYTES_MAX)
    }
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor")
            .field("buffer_bytes", &self.buffer.len())
            .field("output_bytes_max", &self.output_bytes_max)
            .finish_non_exhaustive()
    }
}

impl Decompressor {
    /// A decompressor whose output per batch is at most `output_bytes_max`. Allocates when first used.
    pub fn new(output_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), output_bytes_max, zstd: None }
    }

    /// The bytes that `input` holds; they stay until the next call.
    pub fn decompress(&mut self, codec: Compression, input: &[u8]) -> Result<&[u8], DecompressError> {
        let damaged = |source| DecompressError::Damaged { codec, source };
        let length = match codec {
            Compression::None => self.fill(input),
            Compression::Gzip => self.fill(MultiGzDecoder::new(input)),
            Compression::Snappy => self.snappy(input),
            Compression::Lz4 => self.fill(FrameDecoder::new(input)),
            Compression::Zstd => self.zstd(input),
        };
        match length.map_err(damaged)? {
            Some(length) => Ok(&self.buffer[..length]),
            None => Err(DecompressError::TooLarge { codec, input: input.len(), max: self.output_bytes_max }),
        }
    }

    pub(super) fn decompress_id(&mut self, id: i16, input: &[u8]) -> Result<&[u8], DecompressError> {
        let codec = Compression::from_id(id).map_err(|id| DecompressError::UnknownCodec { id })?;
        self.decompress(codec, input)
    }

    /// The bytes that the output buffer holds on to.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Makes room behind `filled` bytes; false if the cap leaves none.
    fn grow(&mut self, filled: usize) -> bool {
        if filled < self.buffer.len() {
            return true;
        }
        let length = (filled * 2).max(FIRST_BUFFER_BYTES).min(self.output_bytes_max);
        self.buffer.resize(length.max(self.buffer.len()), 0);
        filled < self.buffer.len()
    }

    /// Reads all of `reader`: the length of the output, `None` if it exceeds the cap.
    fn fill(&mut self, mut reader: impl Read) -> io::Result<Option<usize>> {
        let mut filled = 0;
        loop {
            if !self.grow(filled) {
                return Ok(if reader.read(&mut [0])? == 0 { Some(filled) } else { None });
            }
            match reader.read(&mut self.buffer[filled..])? {
                0 => return Ok(Some(filled)),
                read => filled += read,
            }
        }
    }

    fn zstd(&mut self, input: &[u8]) -> io::Result<Option<usize>> {
        let mut decoder = match self.zstd.take() {
            Some(decoder) => decoder,
            None => ZstdDecoder::new()?,
        };
        decoder.reinit()?;
        let mut input = InBuffer::around(input);
        let mut filled = 0;
        // Zero once a frame is complete, else what the decoder still waits for.
        let mut pending = 0;
        loop {
            let (read, room) = (input.pos(), self.grow(filled));
            let mut beyond = [0];
            let mut output =
                OutBuffer::around(if room { &mut self.buffer[filled..] } else { &mut beyond[..] });
            if input.pos() < input.src.len() || pending != 0 {
                pending = decoder.run(&mut input, &mut output)?;
            }
            let written = output.pos();
            if written > 0 && !room {
                return Ok(None);
            }
            filled += written;
            if input.pos() == input.src.len() && pending == 0 {
                self.zstd = Some(decoder);
                return Ok(Some(filled));
            }
            if written == 0 && input.pos() == read {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn snappy(&mut self, input: &[u8]) -> io::Result<Option<usize>> {
        let Some(mut rest) = input.strip_prefix(&XERIAL_MAGIC) else { return self.snappy_block(input, 0) };
        // Two version numbers follow; Java's reader checks only that it is not older than they ask.
        let versions = XERIAL_HEADER_BYTES - XERIAL_MAGIC.len();
        rest = rest.get(versions..).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut filled = 0;
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
            let length = u32::from_be_bytes(*length) as usize;
            let block = after.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
            rest = &after[length..];
            match self.snappy_block(block, filled)? {
                Some(length) => filled = length,
                None => return Ok(None),
            }
        }
        Ok(Some(filled))
    }

    /// Decompresses one raw block behind `filled` bytes.
    fn snappy_block(&mut self, block: &[u8], filled: usize) -> io::Result<Option<usize>> {
        let length = snap::raw::decompress_len(block).map_err(io::Error::other)?;
        // A copy of three bytes gives at most 64: a longer claim is a lie, and is refused before it costs memory.
        if length > block.len().saturating_mul(64) {
            return Err(io::Error::other("a block claims more than its bytes can hold"));
        }
        let end = filled + length;
        if end > self.output_bytes_max {
            return Ok(None);
        }
        if end > self.buffer.len() {
            self.buffer.resize(end, 0);
        }
        snap::raw::Decoder::new()
            .decompress(block, &mut self.buffer[filled..end])
            .map_err(io::Error::other)?;
        Ok(Some(end))
    }
}

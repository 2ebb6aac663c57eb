//! How a message becomes bytes and bytes a message: the traits, the errors, the primitive types.

use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::{ApiKey, VersionRange};

mod errors;
mod reader;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
mod writer;

pub use errors::{DecodeError, DecodeErrorKind, EncodeError, EncodeErrorKind};
pub(crate) use errors::{ReadFailure, WriteFailure};
pub(crate) use reader::Reader;
pub(crate) use writer::{Writer, not_in_version, null_not_allowed};

/// The longest string that Kafka reads or writes, in bytes: a 16-bit length, in flexible versions too.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// A message of Kafka's protocol in all its known versions, as owned values. All messages are generated, see
/// [`messages`](crate::messages).
///
/// A value holds the fields of every version. Decoding leaves those that the version lacks at their defaults;
/// encoding drops them where Kafka's schema calls them ignorable, and is an error where it does not and the value is
/// not the default.
pub trait Message: Wire + Clone + fmt::Debug + Default + PartialEq + Send + Sync + 'static {
    /// Kafka's name, as `FetchRequest`.
    const NAME: &'static str;

    /// The versions that can be encoded and decoded.
    const VERSIONS: VersionRange;

    /// The first version with compact lengths and tagged fields (KIP-482); `None` if no version has them.
    const FLEXIBLE_FROM: Option<i16>;

    /// Appends the message, without a header or a length, to `out`.
    ///
    /// # Errors
    /// The value cannot be said in this version ([`EncodeError`] names the field); `out` is as it was.
    fn encode(&self, version: i16, out: &mut BytesMut) -> Result<(), EncodeError> {
        if !Self::VERSIONS.contains(version) {
            let kind = EncodeErrorKind::UnknownVersion { known: Self::VERSIONS };
            return Err(EncodeError { message: Self::NAME, version, field: String::new(), kind });
        }
        let start = out.len();
        self.write(&mut Writer::new(out), version).map_err(|failure| {
            out.truncate(start);
            failure.into_error(Self::NAME, version)
        })
    }

    /// The message that `bytes` are, all of them.
    ///
    /// Fields of type `bytes` and `records` are slices of `bytes` and keep it alive; all else is copied. Whatever
    /// the bytes are, memory stays within a small multiple of their length: a count is believed only as far as the
    /// bytes left can hold so many elements.
    ///
    /// # Errors
    /// The bytes are not a message of this version, or some are left after it.
    fn decode(bytes: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&bytes);
        let message = decode_with(&mut reader, version)?;
        reader.finish().map_err(|failure| failure.into_error(Self::NAME, version))?;
        Ok(message)
    }

    /// The message that `bytes` begin with; `bytes` are then what follows it. So a header is read, and then its
    /// body.
    ///
    /// # Errors
    /// The bytes do not begin with a message of this version; `bytes` are as they were.
    fn decode_prefix(bytes: &mut Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = decode_with(&mut reader, version)?;
        let length = reader.offset();
        bytes.advance(length);
        Ok(message)
    }
}

fn decode_with<M: Message>(reader: &mut Reader<'_>, version: i16) -> Result<M, DecodeError> {
    if !M::VERSIONS.contains(version) {
        let kind = DecodeErrorKind::UnknownVersion { known: M::VERSIONS };
        return Err(DecodeError { message: M::NAME, version, field: String::new(), offset: 0, kind });
    }
    M::read(reader, version).map_err(|failure| failure.into_error(M::NAME, version))
}

/// A message that a client sends.
pub trait Request: Message {
    /// What the request asks for.
    const API_KEY: ApiKey;

    /// What a broker answers, in the version of the request.
    type Response: Response<Request = Self>;
}

/// A message that a broker answers with.
pub trait Response: Message {
    /// What was asked for.
    const API_KEY: ApiKey;

    /// What it answers.
    type Request: Request<Response = Self>;

    /// For how many milliseconds the broker wants this client to be silent after this answer (KIP-219), as on the
    /// wire: 0 for not at all, and 0 where the response, or the version it was decoded in, has no such field.
    fn throttle_time_ms(&self) -> i32;
}

/// The generated half of a message. Not for use outside of this crate.
pub trait Wire: Sized {
    #[doc(hidden)]
    fn read(r: &mut Reader<'_>, version: i16) -> Result<Self, ReadFailure>;
    #[doc(hidden)]
    fn write(&self, w: &mut Writer<'_>, version: i16) -> Result<(), WriteFailure>;
}

/// A field at the end of a structure that this code has no name for (KIP-482): kept, and written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedField {
    /// The number of the field; tags grow within a structure.
    pub tag: u32,
    /// The bytes of the field without their length.
    pub value: Bytes,
}

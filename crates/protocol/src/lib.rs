//! Kafka's bytes: primitives, the messages we use, record batches, error codes.
//!
//! Start at [`Message`], which every message of [`messages`] implements, and at [`Request`], which ties a request to
//! its response; [`ApiKey`] has the versions of every API and of the headers in front. [`records`] walks and writes
//! record batches. [`ErrorCode`] is a number and a name: what to do about one is for the layers above.
//!
//! Nothing here does I/O or waits. Bytes from a peer become a value or a typed error, and never more memory than a
//! small multiple of their length (decompressed records: than the cap that the caller sets).

mod api_key;
mod codec;
mod errors;
pub mod messages;
pub mod records;
mod uuid;

pub use api_key::VersionRange;
pub use codec::{
    DecodeError, DecodeErrorKind, EncodeError, EncodeErrorKind, Message, Request, Response, TaggedField,
};
pub use errors::ErrorCode;
pub use messages::ApiKey;
pub use uuid::{ParseUuidError, TopicId, Uuid};

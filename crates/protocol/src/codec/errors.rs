//! Why bytes are not a message, and why a message cannot be bytes.

use std::fmt;

use crate::VersionRange;

/// The bytes are not a message of this version. The peer, or the negotiated version, is wrong; the same bytes will
/// never decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} version {version}: {}byte {offset}: {kind}", Field(field))]
pub struct DecodeError {
    /// Kafka's name of the message, as `FetchResponse`.
    pub message: &'static str,
    /// The version that the bytes were read as.
    pub version: i16,
    /// Where in the message, as `responses[0].partitions[3].records`; empty for the message as a whole.
    pub field: String,
    /// Bytes from the first byte of the message (its header, if it has one, is a message of its own) to the value
    /// that is wrong.
    pub offset: usize,
    /// What is wrong.
    pub kind: DecodeErrorKind,
}

/// What is wrong with the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// Nothing is known of this version of this message.
    #[error("this version is not known; the known ones are {known}")]
    UnknownVersion {
        /// The versions that can be decoded.
        known: VersionRange,
    },
    /// The message ends inside a value.
    #[error("the value takes {needed} bytes, and {left} are left")]
    Truncated {
        /// Bytes that the value takes.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// An array says to have more elements than the bytes left can hold.
    #[error("an array of {count} elements cannot lie in the {left} bytes that are left")]
    CountTooLarge {
        /// The number of elements that the bytes claim.
        count: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A length or a count is negative and not -1, which says null.
    #[error("the length {0} is negative")]
    NegativeLength(i64),
    /// A string is longer than the 32767 bytes that Kafka allows.
    #[error("a string of {0} bytes is longer than the 32767 that are allowed")]
    StringTooLong(usize),
    /// Null in a field that cannot be null in this version.
    #[error("null where this version allows none")]
    UnexpectedNull,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A variable-length integer does not fit into 32 bits.
    #[error("a variable-length integer is longer than 32 bits")]
    VarintTooLong,
    /// The tags of tagged fields (KIP-482) must grow.
    #[error("tag {tag} follows tag {previous}: tags must grow")]
    TagOrder {
        /// The tag in the wrong place.
        tag: u32,
        /// The tag before it.
        previous: u32,
    },
    /// Bytes are left after the end of the message, or of a tagged field.
    #[error("{0} bytes are left after the end of the value")]
    TrailingBytes(usize),
}

/// The message cannot be written in this version. Choose another version, or another value; nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} version {version}: {}{kind}", Field(field))]
pub struct EncodeError {
    /// Kafka's name of the message, as `FetchRequest`.
    pub message: &'static str,
    /// The version that was asked for.
    pub version: i16,
    /// Where in the message, as `topics[0].partitions[3].timestamp`; empty for the message as a whole.
    pub field: String,
    /// What is wrong.
    pub kind: EncodeErrorKind,
}

/// Why a value cannot be written in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeErrorKind {
    /// Nothing is known of this version of this message.
    #[error("this version is not known; the known ones are {known}")]
    UnknownVersion {
        /// The versions that can be encoded.
        known: VersionRange,
    },
    /// The version has no such field, the value is not the default, and dropping it would change the meaning.
    #[error("this version has no such field, and its value matters")]
    NotInVersion,
    /// `None` in a field that cannot be null in this version.
    #[error("null where this version allows none")]
    NullNotAllowed,
    /// The value is longer than its length field can say.
    #[error("a length of {length} is more than the {max} that are allowed")]
    TooLong {
        /// Bytes of a string or of bytes; elements of an array.
        length: usize,
        /// The most that this version can say.
        max: usize,
    },
    /// The tags of the unknown tagged fields do not grow, or one is the tag of a field that this version has.
    #[error("the unknown tagged field {tag} is out of order, or a field of this version")]
    TagOrder {
        /// The tag in the wrong place.
        tag: u32,
    },
}

/// A field path in front of what is wrong with it.
struct Field<'a>(&'a str);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            path => write!(f, "{path}: "),
        }
    }
}

/// One step of a field path, innermost first while an error climbs out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Field(&'static str),
    Index(usize),
}

/// An error on its way out of a message: it gathers the path to the field. Boxed, since it is rare and large.
#[derive(Debug)]
pub struct Failure<K>(Box<(K, usize, Vec<Step>)>);

/// Reading stopped at a byte.
pub(crate) type ReadFailure = Failure<DecodeErrorKind>;

/// Writing stopped.
pub(crate) type WriteFailure = Failure<EncodeErrorKind>;

impl<K> Failure<K> {
    #[cold]
    pub(super) fn new(kind: K, offset: usize, field: &'static str) -> Self {
        let path = if field.is_empty() { Vec::new() } else { vec![Step::Field(field)] };
        Self(Box::new((kind, offset, path)))
    }

    /// The failure seen from the array element or field around it.
    #[cold]
    pub(super) fn within(mut self, step: Step) -> Self {
        self.0.2.push(step);
        self
    }

    fn into_parts(self) -> (K, usize, String) {
        let (kind, offset, steps) = *self.0;
        let mut path = String::new();
        for step in steps.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        (kind, offset, path)
    }
}

impl ReadFailure {
    #[cold]
    pub(super) fn into_error(self, message: &'static str, version: i16) -> DecodeError {
        let (kind, offset, field) = self.into_parts();
        DecodeError { message, version, field, offset, kind }
    }
}

impl WriteFailure {
    #[cold]
    pub(super) fn into_error(self, message: &'static str, version: i16) -> EncodeError {
        let (kind, _, field) = self.into_parts();
        EncodeError { message, version, field, kind }
    }
}

//! Kafka's primitive types, read.

use bytes::Bytes;

use super::errors::{DecodeErrorKind as Kind, ReadFailure, Step};
use super::{STRING_BYTES_MAX, TaggedField};
use crate::{ErrorCode, Uuid};

type Read<T> = Result<T, ReadFailure>;

/// A cursor over the bytes of one message. Every length is compared with the bytes left before anything is
/// allocated; `bytes` and `records` come out as slices of the frame, without a copy.
///
/// Each call names the field that it reads, for the error. `flexible` says which form lengths have (KIP-482): a
/// varint of the length plus one, or an integer of fixed size with -1 for null.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The whole message, of which slices are handed out.
    whole: &'a Bytes,
    /// What is left, up to the end of the message or of the tagged field that is being read.
    rest: &'a [u8],
    /// Where `rest` ends in `whole`.
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(whole: &'a Bytes) -> Self {
        Self { whole, rest: whole, end: whole.len() }
    }

    pub(super) fn offset(&self) -> usize {
        self.end - self.rest.len()
    }

    pub(super) fn finish(&self) -> Read<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.fail(Kind::TrailingBytes(self.rest.len()), ""))
    }

    #[cold]
    fn fail(&self, kind: Kind, field: &'static str) -> ReadFailure {
        ReadFailure::new(kind, self.offset(), field)
    }

    #[cold]
    fn truncated(&self, needed: usize, field: &'static str) -> ReadFailure {
        self.fail(Kind::Truncated { needed, left: self.rest.len() }, field)
    }

    fn fixed<const N: usize>(&mut self, field: &'static str) -> Read<[u8; N]> {
        let Some((value, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(N, field));
        };
        self.rest = rest;
        Ok(*value)
    }

    fn take(&mut self, length: usize, field: &'static str) -> Read<&'a [u8]> {
        let Some((value, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.truncated(length, field));
        };
        self.rest = rest;
        Ok(value)
    }

    pub(crate) fn bool(&mut self, field: &'static str) -> Read<bool> {
        Ok(self.i8(field)? != 0)
    }

    pub(crate) fn i8(&mut self, field: &'static str) -> Read<i8> {
        Ok(i8::from_be_bytes(self.fixed(field)?))
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Read<i16> {
        Ok(i16::from_be_bytes(self.fixed(field)?))
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn u16(&mut self, field: &'static str) -> Read<u16> {
        Ok(u16::from_be_bytes(self.fixed(field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Read<i32> {
        Ok(i32::from_be_bytes(self.fixed(field)?))
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn u32(&mut self, field: &'static str) -> Read<u32> {
        Ok(u32::from_be_bytes(self.fixed(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Read<i64> {
        Ok(i64::from_be_bytes(self.fixed(field)?))
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn f64(&mut self, field: &'static str) -> Read<f64> {
        Ok(f64::from_be_bytes(self.fixed(field)?))
    }

    pub(crate) fn uuid(&mut self, field: &'static str) -> Read<Uuid> {
        Ok(Uuid(self.fixed(field)?))
    }

    pub(crate) fn error_code(&mut self, field: &'static str) -> Read<ErrorCode> {
        Ok(ErrorCode::from_code(self.i16(field)?))
    }

    fn varint(&mut self, field: &'static str) -> Read<u32> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(5).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                let value = u32::try_from(value).map_err(|_| self.fail(Kind::VarintTooLong, field))?;
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        match self.rest.len() {
            left @ 0..5 => Err(self.truncated(left + 1, field)),
            _ => Err(self.fail(Kind::VarintTooLong, field)),
        }
    }

    /// A length in the form of flexible versions: `None` is null.
    fn compact_length(&mut self, field: &'static str) -> Read<Option<usize>> {
        Ok((self.varint(field)? as usize).checked_sub(1))
    }

    /// A length in the form of older versions: -1 is null.
    fn plain_length(&mut self, length: i64, field: &'static str) -> Read<Option<usize>> {
        match length {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(self.fail(Kind::NegativeLength(length), field)),
            },
        }
    }

    fn length_32(&mut self, field: &'static str, flexible: bool) -> Read<Option<usize>> {
        if flexible {
            return self.compact_length(field);
        }
        let length = self.i32(field)?;
        self.plain_length(length.into(), field)
    }

    fn not_null<T>(&self, value: Option<T>, field: &'static str) -> Read<T> {
        value.ok_or_else(|| self.fail(Kind::UnexpectedNull, field))
    }

    pub(crate) fn string(&mut self, field: &'static str, flexible: bool) -> Read<String> {
        let value = self.nullable_string(field, flexible)?;
        self.not_null(value, field)
    }

    pub(crate) fn nullable_string(&mut self, field: &'static str, flexible: bool) -> Read<Option<String>> {
        let length = match flexible {
            true => self.compact_length(field)?,
            false => {
                let length = self.i16(field)?;
                self.plain_length(length.into(), field)?
            }
        };
        let Some(length) = length else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(self.fail(Kind::StringTooLong(length), field));
        }
        let start = self.offset();
        let text = std::str::from_utf8(self.take(length, field)?)
            .map_err(|_| ReadFailure::new(Kind::NotUtf8, start, field))?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) fn bytes(&mut self, field: &'static str, flexible: bool) -> Read<Bytes> {
        let value = self.nullable_bytes(field, flexible)?;
        self.not_null(value, field)
    }

    pub(crate) fn nullable_bytes(&mut self, field: &'static str, flexible: bool) -> Read<Option<Bytes>> {
        let Some(length) = self.length_32(field, flexible)? else { return Ok(None) };
        let value = self.take(length, field)?;
        Ok(Some(self.whole.slice_ref(value)))
    }

    pub(crate) fn array<T>(
        &mut self,
        field: &'static str,
        flexible: bool,
        element_bytes_min: usize,
        read: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let value = self.nullable_array(field, flexible, element_bytes_min, read)?;
        self.not_null(value, field)
    }

    /// An array whose elements take `element_bytes_min` bytes or more, so that a count is believed only as far as
    /// the bytes left can bear it.
    pub(crate) fn nullable_array<T>(
        &mut self,
        field: &'static str,
        flexible: bool,
        element_bytes_min: usize,
        mut read: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Option<Vec<T>>> {
        let Some(count) = self.length_32(field, flexible)? else { return Ok(None) };
        let left = self.rest.len();
        if count > left / element_bytes_min.max(1) {
            return Err(self.fail(Kind::CountTooLarge { count, left }, field));
        }
        let mut elements = Vec::with_capacity(count);
        for index in 0..count {
            match read(self) {
                Ok(element) => elements.push(element),
                Err(failure) => return Err(failure.within(Step::Index(index)).within(Step::Field(field))),
            }
        }
        Ok(Some(elements))
    }

    pub(crate) fn structure<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<T> {
        read(self).map_err(|failure| failure.within(Step::Field(field)))
    }

    /// A structure behind a byte that is -1 for null.
    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn nullable_structure<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<Option<T>> {
        match self.i8(field)? {
            ..0 => Ok(None),
            _ => self.structure(field, read).map(Some),
        }
    }

    /// The tagged fields at the end of a structure. `known` reads the field of a tag it knows and says true; fields
    /// it does not know are kept.
    pub(crate) fn tagged_fields(
        &mut self,
        mut known: impl FnMut(u32, &mut Self) -> Read<bool>,
    ) -> Read<Vec<TaggedField>> {
        const FIELD: &str = "unknown_tagged_fields";
        let count = self.varint(FIELD)? as usize;
        let left = self.rest.len();
        // A tag, a length.
        if count > left / 2 {
            return Err(self.fail(Kind::CountTooLarge { count, left }, FIELD));
        }
        let mut unknown = Vec::new();
        let mut previous = None;
        for _ in 0..count {
            let start = self.offset();
            let tag = self.varint(FIELD)?;
            if let Some(previous) = previous.filter(|previous| *previous >= tag) {
                return Err(ReadFailure::new(Kind::TagOrder { tag, previous }, start, FIELD));
            }
            previous = Some(tag);
            let length = self.varint(FIELD)? as usize;
            let value = self.take(length, FIELD)?;
            let mut field = Self { whole: self.whole, rest: value, end: self.offset() };
            if known(tag, &mut field)? {
                field.finish()?;
            } else {
                unknown.push(TaggedField { tag, value: self.whole.slice_ref(value) });
            }
        }
        Ok(unknown)
    }

    /// The tagged fields of a structure that knows none.
    pub(crate) fn unknown_tagged_fields(&mut self) -> Read<Vec<TaggedField>> {
        self.tagged_fields(|_, _| Ok(false))
    }
}

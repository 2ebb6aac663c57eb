//! Kafka's primitive types, written.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::errors::{EncodeErrorKind as Kind, Step, WriteFailure};
use super::{STRING_BYTES_MAX, TaggedField};
use crate::{ErrorCode, Uuid};

type Write = Result<(), WriteFailure>;

/// Where the bytes of one message go. The calls mirror those of [`Reader`](super::Reader).
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut BytesMut,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut BytesMut) -> Self {
        Self { out }
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.out.put_u8(value.into());
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.out.put_i8(value);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.out.put_i16(value);
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn u16(&mut self, value: u16) {
        self.out.put_u16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.out.put_i32(value);
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn u32(&mut self, value: u32) {
        self.out.put_u32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.out.put_i64(value);
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn f64(&mut self, value: f64) {
        self.out.put_f64(value);
    }

    pub(crate) fn uuid(&mut self, value: Uuid) {
        self.out.put_slice(&value.0);
    }

    pub(crate) fn error_code(&mut self, value: ErrorCode) {
        self.out.put_i16(value.code());
    }

    fn varint(&mut self, value: u32) {
        let (bytes, length) = varint_bytes(value);
        self.out.put_slice(&bytes[..length]);
    }

    fn null(&mut self, flexible: bool) {
        match flexible {
            true => self.varint(0),
            false => self.i32(-1),
        }
    }

    fn length_32(&mut self, length: usize, field: &'static str, flexible: bool) -> Write {
        let max = i32::MAX as usize - 1;
        if length > max {
            return Err(WriteFailure::new(Kind::TooLong { length, max }, 0, field));
        }
        match flexible {
            true => self.varint(length as u32 + 1),
            false => self.i32(length as i32),
        }
        Ok(())
    }

    pub(crate) fn string(&mut self, value: &str, field: &'static str, flexible: bool) -> Write {
        let (length, max) = (value.len(), STRING_BYTES_MAX);
        if length > max {
            return Err(WriteFailure::new(Kind::TooLong { length, max }, 0, field));
        }
        match flexible {
            true => self.varint(length as u32 + 1),
            false => self.i16(length as i16),
        }
        self.out.put_slice(value.as_bytes());
        Ok(())
    }

    pub(crate) fn nullable_string(
        &mut self,
        value: Option<&str>,
        field: &'static str,
        flexible: bool,
    ) -> Write {
        match (value, flexible) {
            (Some(value), _) => return self.string(value, field, flexible),
            (None, true) => self.varint(0),
            (None, false) => self.i16(-1),
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, value: &Bytes, field: &'static str, flexible: bool) -> Write {
        self.length_32(value.len(), field, flexible)?;
        self.out.put_slice(value);
        Ok(())
    }

    pub(crate) fn nullable_bytes(
        &mut self,
        value: Option<&Bytes>,
        field: &'static str,
        flexible: bool,
    ) -> Write {
        match value {
            Some(value) => self.bytes(value, field, flexible),
            None => {
                self.null(flexible);
                Ok(())
            }
        }
    }

    pub(crate) fn array<T>(
        &mut self,
        elements: &[T],
        field: &'static str,
        flexible: bool,
        mut write: impl FnMut(&mut Self, &T) -> Write,
    ) -> Write {
        self.length_32(elements.len(), field, flexible)?;
        for (index, element) in elements.iter().enumerate() {
            if let Err(failure) = write(self, element) {
                return Err(failure.within(Step::Index(index)).within(Step::Field(field)));
            }
        }
        Ok(())
    }

    pub(crate) fn nullable_array<T>(
        &mut self,
        elements: Option<&[T]>,
        field: &'static str,
        flexible: bool,
        write: impl FnMut(&mut Self, &T) -> Write,
    ) -> Write {
        match elements {
            Some(elements) => self.array(elements, field, flexible, write),
            None => {
                self.null(flexible);
                Ok(())
            }
        }
    }

    pub(crate) fn structure(&mut self, field: &'static str, write: impl FnOnce(&mut Self) -> Write) -> Write {
        write(self).map_err(|failure| failure.within(Step::Field(field)))
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn nullable_structure<T>(
        &mut self,
        value: Option<&T>,
        field: &'static str,
        write: impl FnOnce(&mut Self, &T) -> Write,
    ) -> Write {
        match value {
            Some(value) => {
                self.i8(1);
                self.structure(field, |w| write(w, value))
            }
            None => {
                self.i8(-1);
                Ok(())
            }
        }
    }

    /// Begins the tagged fields at the end of a structure; [`TaggedFields::finish`] ends them.
    pub(crate) fn tagged_fields<'u>(&mut self, unknown: &'u [TaggedField]) -> TaggedFields<'u> {
        let start = self.out.len();
        self.out.put_u8(0);
        TaggedFields { start, count: 0, previous: None, unknown }
    }

    /// Replaces the placeholder byte at `at` by a varint, moving what follows if it takes more than a byte.
    fn set_varint(&mut self, at: usize, value: u32) {
        let (bytes, length) = varint_bytes(value);
        let end = self.out.len();
        self.out.put_bytes(0, length - 1);
        self.out.copy_within(at + 1..end, at + length);
        self.out[at..at + length].copy_from_slice(&bytes[..length]);
    }
}

/// The tagged fields of one structure while they are written: those the version knows and those it does not,
/// merged in the order of their tags.
#[derive(Debug)]
pub(crate) struct TaggedFields<'u> {
    start: usize,
    count: u32,
    previous: Option<u32>,
    unknown: &'u [TaggedField],
}

impl TaggedFields<'_> {
    /// Writes the field of a tag that this version knows.
    pub(crate) fn field(
        &mut self,
        w: &mut Writer<'_>,
        tag: u32,
        write: impl FnOnce(&mut Writer<'_>) -> Write,
    ) -> Write {
        self.unknown_up_to(w, tag)?;
        self.one(w, tag, write)
    }

    /// Writes the rest of the unknown fields, and the count in front.
    pub(crate) fn finish(mut self, w: &mut Writer<'_>) -> Write {
        self.unknown_up_to(w, u32::MAX)?;
        w.set_varint(self.start, self.count);
        Ok(())
    }

    fn unknown_up_to(&mut self, w: &mut Writer<'_>, tag: u32) -> Write {
        while let Some((field, rest)) = self.unknown.split_first().filter(|(field, _)| field.tag <= tag) {
            self.unknown = rest;
            self.one(w, field.tag, |w| {
                w.out.put_slice(&field.value);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn one(&mut self, w: &mut Writer<'_>, tag: u32, write: impl FnOnce(&mut Writer<'_>) -> Write) -> Write {
        if self.previous.is_some_and(|previous| previous >= tag) {
            return Err(WriteFailure::new(Kind::TagOrder { tag }, 0, "unknown_tagged_fields"));
        }
        self.previous = Some(tag);
        self.count += 1;
        w.varint(tag);
        let at = w.out.len();
        w.out.put_u8(0);
        write(w)?;
        let length = w.out.len() - at - 1;
        let max = i32::MAX as usize;
        if length > max {
            return Err(WriteFailure::new(Kind::TooLong { length, max }, 0, "unknown_tagged_fields"));
        }
        w.set_varint(at, length as u32);
        Ok(())
    }
}

/// The value has no such field in this version and may not be dropped.
#[cold]
pub(crate) fn not_in_version(field: &'static str) -> WriteFailure {
    WriteFailure::new(Kind::NotInVersion, 0, field)
}

/// The value is null where the version allows none.
#[cold]
pub(crate) fn null_not_allowed(field: &'static str) -> WriteFailure {
    WriteFailure::new(Kind::NullNotAllowed, 0, field)
}

fn varint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return (bytes, index + 1);
        }
        *byte |= 0x80;
    }
    (bytes, 5)
}

//! Values for tests, made from bytes that a property test chooses: fewer and smaller bytes give a simpler value, so
//! a failing case shrinks.

use bytes::Bytes;

use super::TaggedField;
use crate::Uuid;

/// A value with whatever a version can say, and defaults for what it cannot.
pub(crate) trait Sample: Sized {
    fn sample(s: &mut Source<'_>, version: i16) -> Self;
}

/// The bytes that decide. When they are used up, every answer is zero.
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Mostly small numbers, sometimes the extremes, sometimes any.
    fn integer(&mut self) -> i64 {
        match self.byte() {
            kind @ 0..128 => i64::from(kind) - 1,
            128..144 => i64::MAX,
            144..160 => i64::MIN,
            160..176 => i64::from(i32::MAX),
            176..192 => i64::from(i32::MIN),
            _ => i64::from_be_bytes([(); 8].map(|()| self.byte())),
        }
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn i8(&mut self) -> i8 {
        self.integer() as i8
    }

    pub(crate) fn i16(&mut self) -> i16 {
        self.integer() as i16
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn u16(&mut self) -> u16 {
        self.integer() as u16
    }

    pub(crate) fn i32(&mut self) -> i32 {
        self.integer() as i32
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn u32(&mut self) -> u32 {
        self.integer() as u32
    }

    pub(crate) fn i64(&mut self) -> i64 {
        self.integer()
    }

    #[allow(dead_code, reason = "no message that is generated now has one")]
    pub(crate) fn f64(&mut self) -> f64 {
        self.integer() as f64
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        match self.bool() {
            true => Uuid([(); 16].map(|()| self.byte())),
            false => Uuid::ZERO,
        }
    }

    /// Around every eighth is longer than 127 bytes, where a compact length takes two bytes.
    pub(crate) fn string(&mut self) -> String {
        let word = ["", "a", "orders", "größe", "__remote_log_metadata", "日本", "\u{1f30a}"];
        let kind = self.byte();
        word[usize::from(kind) % word.len()].repeat(if kind >= 224 { 40 } else { 1 })
    }

    pub(crate) fn bytes(&mut self) -> Bytes {
        let length = match self.byte() {
            kind @ 0..240 => kind % 8,
            _ => 200,
        };
        (0..length).map(|_| self.byte()).collect()
    }

    pub(crate) fn nullable<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        match self.byte() % 4 {
            0 => None,
            _ => Some(value(self)),
        }
    }

    pub(crate) fn array<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % 4).map(|_| element(self)).collect()
    }

    /// Fields with tags from `first` on, which the schema does not use.
    pub(crate) fn tagged_fields(&mut self, first: u32) -> Vec<TaggedField> {
        let count = self.byte().saturating_sub(250).into();
        (0..count).map(|index: u32| TaggedField { tag: first + 100 * index, value: self.bytes() }).collect()
    }
}

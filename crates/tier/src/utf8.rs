//! Text from bytes as Java reads it, so that a malformed topic name is the same name here and there.

use std::borrow::Cow;

/// Reads UTF-8; each malformed sequence becomes one U+FFFD.
///
/// Differs from [`String::from_utf8_lossy`] in the surrogates only: Java's decoder replaces the two or three
/// bytes of an encoded surrogate by one U+FFFD, Rust's replaces each byte.
pub(crate) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    let mut rest = bytes;
    let mut text = String::new();
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) if text.is_empty() => return Cow::Borrowed(valid),
            Ok(valid) => {
                text.push_str(valid);
                return Cow::Owned(text);
            }
            Err(error) => error,
        };
        let (valid, malformed) = rest.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(valid).expect("valid up to there"));
        text.push(char::REPLACEMENT_CHARACTER);
        let skipped = match malformed {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => error.error_len().unwrap_or(malformed.len()),
        };
        rest = &malformed[skipped..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_text_reads_as_in_java() {
        // Answers of `new String(bytes, UTF_8)` with OpenJDK 17.
        for (bytes, text) in [
            (&b"orders"[..], "orders"),
            (b"a\xffb", "a\u{fffd}b"),
            (b"\xc0\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\xa0\x80x", "\u{fffd}x"),
            (b"\xed\xa0x", "\u{fffd}x"),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xe1\x80", "\u{fffd}"),
            (b"\xf0\x9f\x98", "\u{fffd}"),
            (b"\xf0\x9f\x98A", "\u{fffd}A"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("grüße".as_bytes(), "grüße"),
        ] {
            assert_eq!(decode(bytes), text, "{bytes:x?}");
        }
    }
}

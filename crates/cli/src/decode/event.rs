//! One event of the metadata topic.

use serde_json::Value;
use strandline_tier::RecordValue;
use strandline_tier::json::{EventPosition, write_event};

use super::{Broken, Row};

/// True when the bytes are hex digits, with white space or a `0x` at most.
pub(super) fn is_hex(bytes: &[u8]) -> bool {
    let digits = digits(bytes);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)
}

fn digits(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.strip_prefix(b"0x").map(<[u8]>::to_vec).unwrap_or(digits)
}

/// The event that the hex digits hold; bytes that are no event are an undecodable one, as in the topic.
pub(super) fn row(bytes: &[u8]) -> Result<Row, Broken> {
    let digits = digits(bytes);
    if !digits.len().is_multiple_of(2) {
        return Err(Broken::at_byte(0, "an odd number of hex digits"));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
    let value: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    Ok(event_row(&EventPosition::default(), &RecordValue::from_value(Some(&value))))
}

/// The fields of an event file's line.
pub(super) fn event_row(position: &EventPosition, value: &RecordValue<'_>) -> Row {
    let mut line = Vec::with_capacity(512);
    write_event(&mut line, position, value);
    match serde_json::from_slice(&line) {
        Ok(Value::Object(row)) => row,
        _ => unreachable!("an event is written as a JSON object"),
    }
}

//! The snapshot of producer state that lies beside a segment.

use super::{Broken, Row, integer, row, time};

const VERSION: i16 = 1;
/// Version, checksum, and the number of entries stand before the entries.
const CHECKED_FROM: usize = 6;
const ENTRIES_FROM: usize = 10;
const ENTRY_BYTES: usize = 46;

/// One row per producer.
///
/// Source: `org.apache.kafka.storage.internals.log.ProducerStateManager` (snapshot version 1).
pub(super) fn producers(bytes: &[u8]) -> Box<dyn Iterator<Item = Result<Row, Broken>> + '_> {
    match entries(bytes) {
        Ok(entries) => Box::new(
            entries.map(|entry| producer(entry).ok_or_else(|| Broken::at_byte(0, "an entry is cut"))),
        ),
        Err(broken) => Box::new(std::iter::once(Err(broken))),
    }
}

fn entries(bytes: &[u8]) -> Result<std::slice::ChunksExact<'_, u8>, Broken> {
    let (Some(version), Some(checksum), Some(count)) =
        (integer!(bytes, 0, i16), integer!(bytes, 2, u32), integer!(bytes, CHECKED_FROM, i32))
    else {
        return Err(Broken::at_byte(0, "too short for a producer snapshot"));
    };
    if version != VERSION {
        return Err(Broken::at_byte(0, format!("snapshot version {version} is unknown")));
    }
    if crc32c::crc32c(&bytes[CHECKED_FROM..]) != checksum {
        return Err(Broken::at_byte(2, "the checksum is wrong"));
    }
    let rest = &bytes[ENTRIES_FROM..];
    if usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES)) != Some(rest.len()) {
        return Err(Broken::at_byte(6, format!("{count} producers do not fill {} bytes", rest.len())));
    }
    Ok(rest.chunks_exact(ENTRY_BYTES))
}

fn producer(entry: &[u8]) -> Option<Row> {
    let open = integer!(entry, 38, i64)?;
    Some(row([
        ("producer_id", integer!(entry, 0, i64)?.into()),
        ("producer_epoch", integer!(entry, 8, i16)?.into()),
        ("last_sequence", integer!(entry, 10, i32)?.into()),
        ("last_offset", integer!(entry, 14, i64)?.into()),
        ("offset_delta", integer!(entry, 22, i32)?.into()),
        ("time", time(integer!(entry, 26, i64)?)),
        ("coordinator_epoch", integer!(entry, 34, i32)?.into()),
        ("open_transaction_first_offset", (open >= 0).then_some(open).into()),
    ]))
}

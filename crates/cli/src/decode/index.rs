//! The index files of a segment: offsets, times, aborted transactions.

use super::{Broken, Row, integer, row, time};

/// Entries of 8 bytes: offset relative to the base, position in the segment file.
///
/// The file of an active segment is allocated ahead; the zeroes at its end are no entries.
/// Source: `org.apache.kafka.storage.internals.log.OffsetIndex`.
pub(super) fn offset_entries(
    bytes: &[u8],
    base_offset: Option<i64>,
) -> impl Iterator<Item = Result<Row, Broken>> + '_ {
    let mut previous = -1_i64;
    entries::<8>(bytes, move |entry, position| {
        let (Some(relative), Some(at)) = (integer!(entry, 0, i32), integer!(entry, 4, i32)) else {
            return Err(Broken::at_byte(position, "the entry is cut"));
        };
        if i64::from(relative) <= previous || at < 0 {
            return Err(Broken::at_byte(position, "offsets or positions do not ascend"));
        }
        previous = relative.into();
        Ok(row([
            ("offset", base_offset.map(|base| base.saturating_add(relative.into())).into()),
            ("relative_offset", relative.into()),
            ("position", at.into()),
        ]))
    })
}

/// Entries of 12 bytes: the largest timestamp so far, and the relative offset of the record that has it.
///
/// Source: `org.apache.kafka.storage.internals.log.TimeIndex`.
pub(super) fn time_entries(
    bytes: &[u8],
    base_offset: Option<i64>,
) -> impl Iterator<Item = Result<Row, Broken>> + '_ {
    let mut previous = i64::MIN;
    entries::<12>(bytes, move |entry, position| {
        let (Some(timestamp), Some(relative)) = (integer!(entry, 0, i64), integer!(entry, 8, i32)) else {
            return Err(Broken::at_byte(position, "the entry is cut"));
        };
        if timestamp < previous || relative < 0 {
            return Err(Broken::at_byte(position, "times or offsets do not ascend"));
        }
        previous = timestamp;
        Ok(row([
            ("time", time(timestamp)),
            ("timestamp_ms", timestamp.into()),
            ("offset", base_offset.map(|base| base.saturating_add(relative.into())).into()),
            ("relative_offset", relative.into()),
        ]))
    })
}

/// Entries of 34 bytes: version, producer id, first and last offset, last stable offset.
///
/// Source: `org.apache.kafka.storage.internals.log.AbortedTxn`.
pub(super) fn aborted_transactions(bytes: &[u8]) -> impl Iterator<Item = Result<Row, Broken>> + '_ {
    entries::<34>(bytes, |entry, position| {
        let field = |at| integer!(entry, at, i64);
        let (Some(version), Some(producer_id), Some(first), Some(last), Some(stable)) =
            (integer!(entry, 0, i16), field(2), field(10), field(18), field(26))
        else {
            return Err(Broken::at_byte(position, "the entry is cut"));
        };
        if version != 0 {
            return Err(Broken::at_byte(position, format!("entry version {version} is unknown")));
        }
        Ok(row([
            ("producer_id", producer_id.into()),
            ("first_offset", first.into()),
            ("last_offset", last.into()),
            ("last_stable_offset", stable.into()),
        ]))
    })
}

/// Whole entries of `SIZE` bytes up to the zeroes at the end; then an error if the file is cut.
fn entries<'a, const SIZE: usize>(
    bytes: &'a [u8],
    mut read: impl FnMut(&[u8], u64) -> Result<Row, Broken> + 'a,
) -> impl Iterator<Item = Result<Row, Broken>> + 'a {
    // An entry that is all zero is allowed only as the first one; the other zeroes are unused space.
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let used = used.next_multiple_of(SIZE).min(bytes.len());
    let mut position = 0_usize;
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended || position >= used {
            return None;
        }
        let entry = &bytes[position..used.min(position + SIZE)];
        let result = read(entry, position as u64);
        ended = result.is_err();
        position += SIZE;
        Some(result)
    })
}

//! Zigzag integers of variable length, with the limits of Kafka's `ByteUtils`: at most 5 (10) bytes, padded forms
//! accepted, bits beyond 32 (64) lost.

/// The unsigned 32-bit value at the front of `bytes`, and its length; `None` if it is cut or longer than 5 bytes.
#[inline]
fn read_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u32::from(first), 1));
    }
    let mut value = u32::from(first & 0x7f);
    for (index, byte) in bytes.iter().enumerate().take(5).skip(1) {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// The unsigned 64-bit value at the front of `bytes`, and its length; `None` if it is cut or longer than 10 bytes.
#[inline]
fn read_u64(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (index, byte) in bytes.iter().enumerate().take(10).skip(1) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Takes a zigzag 32-bit value off the front of `bytes`.
#[inline]
pub(super) fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    let (value, length) = read_u32(bytes)?;
    *bytes = &bytes[length..];
    Some((value >> 1) as i32 ^ -((value & 1) as i32))
}

/// Takes a zigzag 64-bit value off the front of `bytes`.
#[inline]
pub(super) fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    let (value, length) = read_u64(bytes)?;
    *bytes = &bytes[length..];
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Appends a zigzag value in its shortest form; a 32-bit value has the same bytes as its 64-bit form.
pub(super) fn put_i64(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The length of the shortest zigzag form.
pub(super) fn size_i64(value: i64) -> usize {
    let rest = ((value << 1) ^ (value >> 63)) as u64;
    (64 - (rest | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_back_and_their_size_is_known() {
        for value in [0, -1, 1, 63, 64, -64, -65, 8191, 8192, i64::from(i32::MAX), i64::from(i32::MIN)] {
            let mut bytes = Vec::new();
            put_i64(&mut bytes, value);
            assert_eq!(size_i64(value), bytes.len(), "{value}");
            assert_eq!(take_i64(&mut &bytes[..]), Some(value));
            assert_eq!(take_i32(&mut &bytes[..]), Some(value as i32));
        }
        for value in [i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_i64(&mut bytes, value);
            assert_eq!((size_i64(value), bytes.len()), (10, 10));
            assert_eq!(take_i64(&mut &bytes[..]), Some(value));
        }
    }

    #[test]
    fn a_cut_or_too_long_integer_is_refused_and_a_padded_one_is_read() {
        assert_eq!(take_i32(&mut &[][..]), None);
        assert_eq!(take_i32(&mut &[0x80, 0x80][..]), None);
        assert_eq!(take_i32(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]), None);
        assert_eq!(take_i32(&mut &[0x82, 0x80, 0x80, 0x80, 0x00][..]), Some(1));
        assert_eq!(take_i64(&mut &[0x80; 11][..]), None);
        assert_eq!(
            take_i64(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01][..]),
            Some(1 << 62)
        );
    }
}

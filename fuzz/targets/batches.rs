//! Any bytes as record batches, with right checksums, so that the records are reached; and as compressed data.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use strandline_protocol::records::{Batches, Compression, Decompressor};

const DECOMPRESSED_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// One for all inputs, as a reader keeps one: what one input leaves behind must not matter to the next.
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new(DECOMPRESSED_BYTES_MAX));
}

/// Where a batch keeps its checksum, and what it covers.
const CRC: std::ops::Range<usize> = 17..21;

fuzz_target!(|input: &[u8]| {
    let [choice, bytes @ ..] = input else { return };
    DECOMPRESSOR.with_borrow_mut(|decompressor| match choice {
        1..=4 => decompress((*choice).into(), bytes, decompressor),
        _ => walk(&with_checksums(bytes), decompressor),
    });
});

fn decompress(codec: i16, bytes: &[u8], decompressor: &mut Decompressor) {
    let codec = Compression::from_id(codec).expect("codecs are numbered 1 to 4");
    if let Ok(output) = decompressor.decompress(codec, bytes) {
        assert!(output.len() <= DECOMPRESSED_BYTES_MAX);
    }
}

fn walk(bytes: &[u8], decompressor: &mut Decompressor) {
    let mut end = 0;
    let mut batches = Batches::new(bytes);
    while let Some(batch) = batches.next() {
        let Ok(batch) = batch else { break };
        assert_eq!(batch.position, end);
        end += batch.bytes.len() as u64;
        assert!(batch.header.next_offset() > batch.header.base_offset || batch.header.last_offset_delta < 0);
        if let Ok(records) = batch.records(decompressor) {
            for record in records {
                let Ok(record) = record else { break };
                let count = record.headers.len();
                assert_eq!(record.headers.count(), count);
            }
        }
    }
    assert_eq!(batches.position(), end);
    if let Some(tail) = batches.tail() {
        assert_eq!(tail.position + tail.bytes as u64, bytes.len() as u64);
    }
}

/// The bytes with the checksum of each whole batch made right.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut rest = &mut bytes[..];
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize + 12;
        let Some((batch, behind)) = rest.split_at_mut_checked(length).filter(|_| length >= CRC.end) else {
            break;
        };
        let crc = crc32c::crc32c(&batch[CRC.end..]);
        batch[CRC].copy_from_slice(&crc.to_be_bytes());
        rest = behind;
    }
    bytes
}

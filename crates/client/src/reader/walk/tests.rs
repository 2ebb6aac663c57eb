//! Logs of any shape, cut anywhere and damaged anywhere.

use proptest::collection::vec;
use proptest::prelude::*;
use strandline_protocol::records::{BatchBuilder, BatchOptions, Compression, NewRecord};

use super::*;

/// Takes offsets, and stops behind one of them if told so.
struct Offsets {
    seen: Vec<i64>,
    stop_behind: Option<i64>,
}

impl PageVisitor for Offsets {
    fn record(&mut self, _header: &BatchHeader, record: &Record<'_>) -> ControlFlow<()> {
        self.seen.push(record.offset);
        if Some(record.offset) == self.stop_behind {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// One batch: how far it begins behind the last one, the gap before each record, how far it reaches beyond the last record.
#[derive(Clone, Debug)]
struct Shape {
    gap: i64,
    records: Vec<i64>,
    beyond: i64,
    compressed: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    (0..3_i64, vec(0..3_i64, 0..4), 0..3_i64, any::<bool>())
        .prop_map(|(gap, records, beyond, compressed)| Shape { gap, records, beyond, compressed })
}

/// The bytes of each batch, the offsets of all records, and the offset after the last batch.
fn log(shapes: &[Shape], base: i64) -> (Vec<Vec<u8>>, Vec<i64>, i64) {
    let (mut batches, mut offsets, mut next) = (Vec::new(), Vec::new(), base);
    for shape in shapes {
        let base_offset = next + shape.gap;
        let compression = if shape.compressed { Compression::Lz4 } else { Compression::None };
        let options =
            BatchOptions { base_offset, partition_leader_epoch: 3, compression, ..BatchOptions::default() };
        let mut batch = BatchBuilder::new(options);
        for gap in &shape.records {
            let offset = batch.next_offset() + gap;
            batch.push_at(offset, NewRecord { value: Some(b"value"), ..NewRecord::default() }).unwrap();
            offsets.push(offset);
        }
        batch.extend_to(batch.next_offset() + shape.beyond + 1).unwrap();
        next = batch.next_offset();
        let mut bytes = Vec::new();
        batch.finish(&mut bytes).unwrap();
        batches.push(bytes);
    }
    (batches, offsets, next)
}

/// Pages as a broker makes them: from the batch with the position on, cut after so many bytes, the first batch whole.
fn page(batches: &[Vec<u8>], from: i64, bytes_max: usize) -> Vec<u8> {
    let next = |batch: &Vec<u8>| Batches::new(batch).next().unwrap().unwrap().header.next_offset();
    let rest: Vec<&Vec<u8>> = batches.iter().filter(|batch| next(batch) > from).collect();
    let first = rest.first().map_or(0, |batch| batch.len());
    let mut bytes: Vec<u8> = rest.into_iter().flatten().copied().collect();
    bytes.truncate(bytes_max.max(first));
    bytes
}

proptest! {
    #[test]
    fn a_log_of_any_shape_is_read_once_page_by_page_however_pages_are_cut(
        shapes in vec(shape(), 1..8),
        base in prop_oneof![Just(0_i64), Just(i64::MAX - 1_000), 0..1_000_i64],
        from in 0..40_i64,
        bytes_max in 1..400_usize,
        to in prop_oneof![Just(None), (0..40_i64).prop_map(Some)],
    ) {
        let (batches, offsets, end) = log(&shapes, base);
        let from = (base + from).min(end);
        let to = to.map_or(i64::MAX, |to| from.saturating_add(to));
        let mut progress = Progress { next_offset: from, ..Progress::default() };
        let mut visitor = Offsets { seen: Vec::new(), stop_behind: None };
        let mut decompressor = Decompressor::default();
        while progress.next_offset < end.min(to) {
            let before = progress.next_offset;
            let bytes = page(&batches, before, bytes_max);
            let (ended, _) = visit_page(&bytes, to, &mut decompressor, &mut progress, &mut visitor).unwrap();
            prop_assert!(progress.next_offset > before, "no progress at {before}");
            prop_assert_eq!(ended.is_some(), progress.next_offset >= to);
        }
        let expected: Vec<i64> = offsets.into_iter().filter(|offset| (from..to).contains(offset)).collect();
        prop_assert_eq!(visitor.seen, expected);
        prop_assert_eq!(progress.leader_epoch, (progress.next_offset > from).then_some(3));
    }

    #[test]
    fn a_visitor_that_stops_anywhere_misses_nothing_and_sees_nothing_twice(shapes in vec(shape(), 1..6), stop in 0..20_usize) {
        let (batches, offsets, _) = log(&shapes, 0);
        let bytes = batches.concat();
        let stop_behind = offsets.get(stop % offsets.len().max(1)).copied();
        let mut progress = Progress::default();
        let mut visitor = Offsets { seen: Vec::new(), stop_behind };
        let mut decompressor = Decompressor::default();
        let (ended, _) = visit_page(&bytes, i64::MAX, &mut decompressor, &mut progress, &mut visitor).unwrap();
        prop_assert_eq!(ended, stop_behind.map(|_| Ended::Visitor));
        visitor.stop_behind = None;
        visit_page(&bytes, i64::MAX, &mut decompressor, &mut progress, &mut visitor).unwrap();
        prop_assert_eq!(visitor.seen, offsets);
    }

    #[test]
    fn damage_anywhere_is_an_error_or_nothing_and_the_position_never_goes_back(
        shapes in vec(shape(), 1..6),
        at: prop::sample::Index,
        bit in 0..8_u8,
        from in 0..20_i64,
    ) {
        let (batches, offsets, _) = log(&shapes, 0);
        let mut bytes = batches.concat();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut progress = Progress { next_offset: from, ..Progress::default() };
        let mut visitor = Offsets { seen: Vec::new(), stop_behind: None };
        // Damage to what the checksum does not cover can go unseen, or look like the end of the bytes.
        let _ = visit_page(&bytes, i64::MAX, &mut Decompressor::new(1 << 16), &mut progress, &mut visitor);
        prop_assert!(progress.next_offset >= from);
        prop_assert!(visitor.seen.is_sorted_by(|a, b| a < b), "{:?}", visitor.seen);
        // A batch whose base offset is damaged has right records at wrong offsets; up to it all is as it was.
        let whole: Vec<i64> = offsets.into_iter().filter(|offset| *offset >= from).collect();
        let same = visitor.seen.iter().zip(&whole).take_while(|(seen, offset)| seen == offset).count();
        let before_damage: usize = {
            let (mut passed, mut records) = (0, 0);
            for (batch, shape) in batches.iter().zip(&shapes) {
                passed += batch.len();
                if passed > at {
                    break;
                }
                records += shape.records.len();
            }
            records
        };
        let skipped = before_damage.saturating_sub(log(&shapes, 0).1.iter().filter(|offset| **offset < from).count());
        prop_assert!(same >= skipped.min(whole.len()), "{same} of {skipped} before the damage");
    }

    #[test]
    fn bytes_of_any_kind_neither_panic_nor_hang(bytes in vec(any::<u8>(), 0..400), from: i64, to: i64) {
        let mut progress = Progress { next_offset: from, ..Progress::default() };
        let mut visitor = Offsets { seen: Vec::new(), stop_behind: None };
        let _ = visit_page(&bytes, to, &mut Decompressor::new(1 << 16), &mut progress, &mut visitor);
        prop_assert!(progress.next_offset >= from);
    }
}

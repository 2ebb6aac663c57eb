//! The segments of a partition, each at a place that stays the same while it lives.

use std::hash::BuildHasher;
use std::ops::{Index, IndexMut};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{RemoteLogSegmentMetadata, Uuid};

/// The place of a segment in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// Segments stand together in so many: a list of all that grows would be copied, and leave holes in the memory.
const CHUNK: usize = 16;

type Chunk = [Option<RemoteLogSegmentMetadata>; CHUNK];

/// Segments by place and by id. The ids are stored once, in the segments.
#[derive(Debug, Default)]
pub(super) struct SegmentTable {
    #[expect(clippy::vec_box, reason = "a list of the chunks themselves would be copied when it grows")]
    chunks: Vec<Box<Chunk>>,
    /// The places that were ever taken.
    taken: usize,
    free: Vec<Slot>,
    by_id: HashTable<Slot>,
    /// Seeded anew in each process, so that nobody can choose ids that collide.
    hasher: DefaultHashBuilder,
}

impl SegmentTable {
    pub(super) fn find(&self, segment_id: Uuid) -> Option<Slot> {
        let hash = self.hasher.hash_one(segment_id);
        self.by_id.find(hash, |&slot| self[slot].segment_id() == segment_id).copied()
    }

    /// Adds a segment whose id is not in the table.
    pub(super) fn insert(&mut self, metadata: RemoteLogSegmentMetadata) {
        let hash = self.hasher.hash_one(metadata.segment_id());
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.taken.is_multiple_of(CHUNK) {
                self.chunks.push(Box::new([const { None }; CHUNK]));
            }
            self.taken += 1;
            Slot(u32::try_from(self.taken - 1).expect("fewer than 2^32 segments in a partition"))
        });
        *place(&mut self.chunks, slot) = Some(metadata);
        let Self { chunks, by_id, hasher, .. } = self;
        by_id.insert_unique(hash, slot, |&slot| hasher.hash_one(live(chunks, slot).segment_id()));
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let hash = self.hasher.hash_one(self[slot].segment_id());
        if let Ok(entry) = self.by_id.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        *place(&mut self.chunks, slot) = None;
        self.free.push(slot);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RemoteLogSegmentMetadata> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().flatten())
    }
}

fn place(chunks: &mut [Box<Chunk>], slot: Slot) -> &mut Option<RemoteLogSegmentMetadata> {
    &mut chunks[slot.0 as usize / CHUNK][slot.0 as usize % CHUNK]
}

const LIVE: &str = "slots are handed out for live segments only";

fn live(chunks: &[Box<Chunk>], slot: Slot) -> &RemoteLogSegmentMetadata {
    chunks[slot.0 as usize / CHUNK][slot.0 as usize % CHUNK].as_ref().expect(LIVE)
}

impl Index<Slot> for SegmentTable {
    type Output = RemoteLogSegmentMetadata;

    fn index(&self, slot: Slot) -> &RemoteLogSegmentMetadata {
        live(&self.chunks, slot)
    }
}

impl IndexMut<Slot> for SegmentTable {
    fn index_mut(&mut self, slot: Slot) -> &mut RemoteLogSegmentMetadata {
        place(&mut self.chunks, slot).as_mut().expect(LIVE)
    }
}

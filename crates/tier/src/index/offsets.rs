//! A sorted map from offsets, made for offsets that mostly arrive in ascending order and leave from the front.

/// How many entries stand together. Few, because a look-up reads some cache lines of a chunk; enough that the
/// outer list stays short.
const CHUNK_MAX: usize = 32;

/// A map from offsets to small values, ordered by offset.
///
/// A list of sorted chunks: 13 bytes an entry for a 4-byte value when filled in order, where a B-tree takes twice that,
/// and two short binary searches. Chunks split when full and go when empty; they do not merge, so that memory follows the
/// greatest number of entries there ever was.
#[derive(Debug)]
pub(super) struct OffsetMap<V> {
    /// The first offset of each chunk, apart from the chunks so that a search stays in the cache.
    firsts: Vec<i64>,
    chunks: Vec<Box<Chunk<V>>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<V> {
    /// Ascending; behind the last entry [`i64::MAX`], so that a search takes the same steps in each chunk and is not held up
    /// by a wrong guess of the processor.
    offsets: [i64; CHUNK_MAX],
    values: [V; CHUNK_MAX],
    len: usize,
}

impl<V> Default for OffsetMap<V> {
    fn default() -> Self {
        Self { firsts: Vec::new(), chunks: Vec::new(), len: 0 }
    }
}

impl<V: Copy + Default> Chunk<V> {
    fn new() -> Box<Self> {
        Box::new(Self { offsets: [i64::MAX; CHUNK_MAX], values: [V::default(); CHUNK_MAX], len: 0 })
    }

    fn first(&self) -> i64 {
        self.offsets[0]
    }

    fn last(&self) -> (i64, V) {
        (self.offsets[self.len - 1], self.values[self.len - 1])
    }

    /// How many entries lie at or below `offset`.
    fn up_to(&self, offset: i64) -> usize {
        self.offsets.partition_point(|&other| other <= offset).min(self.len)
    }

    /// Where `offset` is, or would be.
    fn find(&self, offset: i64) -> Result<usize, usize> {
        self.offsets[..self.len].binary_search(&offset)
    }

    fn insert(&mut self, at: usize, offset: i64, value: V) {
        self.offsets.copy_within(at..self.len, at + 1);
        self.values.copy_within(at..self.len, at + 1);
        (self.offsets[at], self.values[at]) = (offset, value);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.offsets.copy_within(at + 1..self.len, at);
        self.values.copy_within(at + 1..self.len, at);
        self.truncate(self.len - 1);
    }

    fn truncate(&mut self, len: usize) {
        self.offsets[len..].fill(i64::MAX);
        self.len = len;
    }

    /// Takes out the upper half.
    fn split(&mut self) -> Box<Self> {
        let mut upper = Self::new();
        upper.len = self.len - CHUNK_MAX / 2;
        upper.offsets[..upper.len].copy_from_slice(&self.offsets[CHUNK_MAX / 2..self.len]);
        upper.values[..upper.len].copy_from_slice(&self.values[CHUNK_MAX / 2..self.len]);
        self.truncate(CHUNK_MAX / 2);
        upper
    }

    fn iter(&self) -> impl Iterator<Item = (i64, V)> {
        std::iter::zip(self.offsets, self.values).take(self.len)
    }
}

impl<V: Copy + Default + PartialEq> OffsetMap<V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The entry with the greatest offset at or below `offset`.
    pub(super) fn floor(&self, offset: i64) -> Option<(i64, V)> {
        let chunk = &self.chunks[self.chunk_of(offset)?];
        let at = chunk.up_to(offset) - 1;
        Some((chunk.offsets[at], chunk.values[at]))
    }

    /// Sets the value of an offset.
    pub(super) fn insert(&mut self, offset: i64, value: V) {
        let Some(mut index) = self.chunk_of(offset).or((self.len > 0).then_some(0)) else {
            return self.push_chunk(offset, value);
        };
        let mut at = match self.chunks[index].find(offset) {
            Ok(at) => return self.chunks[index].values[at] = value,
            Err(at) => at,
        };
        if self.chunks[index].len == CHUNK_MAX {
            if at == CHUNK_MAX && index + 1 == self.chunks.len() {
                // Behind everything: leave the full chunk full.
                return self.push_chunk(offset, value);
            }
            let upper = self.chunks[index].split();
            self.firsts.insert(index + 1, upper.first());
            self.chunks.insert(index + 1, upper);
            if at > CHUNK_MAX / 2 {
                index += 1;
                at -= CHUNK_MAX / 2;
            }
        }
        self.chunks[index].insert(at, offset, value);
        self.firsts[index] = self.chunks[index].first();
        self.len += 1;
    }

    /// Removes the entry at `offset` if it has that value.
    pub(super) fn remove_if(&mut self, offset: i64, value: V) {
        if let Some(index) = self.chunk_of(offset)
            && let Ok(at) = self.chunks[index].find(offset)
            && self.chunks[index].values[at] == value
        {
            self.remove_at(index, at);
        }
    }

    /// Takes out the last entry if its offset is `from` or greater.
    pub(super) fn pop_last_from(&mut self, from: i64) -> Option<(i64, V)> {
        let index = self.chunks.len().checked_sub(1)?;
        let last = self.chunks[index].last();
        if last.0 < from {
            return None;
        }
        self.remove_at(index, self.chunks[index].len - 1);
        Some(last)
    }

    /// Every entry, by ascending offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The last chunk that begins at or below `offset`.
    fn chunk_of(&self, offset: i64) -> Option<usize> {
        self.firsts.partition_point(|&first| first <= offset).checked_sub(1)
    }

    fn push_chunk(&mut self, offset: i64, value: V) {
        let mut chunk = Chunk::new();
        chunk.insert(0, offset, value);
        self.firsts.push(offset);
        self.chunks.push(chunk);
        self.len += 1;
    }

    fn remove_at(&mut self, index: usize, at: usize) {
        let chunk = &mut self.chunks[index];
        chunk.remove(at);
        self.len -= 1;
        if chunk.len > 0 {
            self.firsts[index] = chunk.first();
        } else {
            self.firsts.remove(index);
            self.chunks.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_answers_as_a_sorted_map_does(
            steps in prop::collection::vec((0..4_u8, 0..600_i64), 0..1500),
            ascending in any::<bool>(),
        ) {
            let mut map = OffsetMap::default();
            let mut model = BTreeMap::new();
            for (value, (step, offset)) in (0_u32..).zip(steps) {
                match step {
                    0 | 1 => {
                        let offset = if ascending { i64::from(value) } else { offset };
                        map.insert(offset, value);
                        model.insert(offset, value);
                    }
                    2 => {
                        let held = model.get(&offset).copied().unwrap_or(value);
                        map.remove_if(offset, held);
                        model.remove(&offset);
                        map.remove_if(offset + 1, u32::MAX);
                    }
                    _ => {
                        let last = model.last_key_value().map(|(&k, &v)| (k, v)).filter(|l| l.0 >= offset);
                        prop_assert_eq!(map.pop_last_from(offset), last);
                        if last.is_some() {
                            model.pop_last();
                        }
                    }
                }
                let floor = model.range(..=offset).next_back().map(|(&k, &v)| (k, v));
                prop_assert_eq!(map.floor(offset), floor);
                prop_assert_eq!(map.len(), model.len());
            }
            prop_assert!(map.iter().eq(model));
        }
    }
}

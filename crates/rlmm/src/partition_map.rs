//! A map by user partition, which can be asked with a borrowed key.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use strandline_tier::RawTopicIdPartition;

use crate::TopicIdPartition;

/// Values by user partition. All three fields are its identity, the name too.
#[derive(Clone, Debug)]
pub(crate) struct PartitionMap<V> {
    /// Keys are shared, so that a copy of a map of shared values copies no text.
    entries: HashTable<(Arc<TopicIdPartition>, V)>,
    /// Seeded anew in each process, so that nobody can choose names that collide.
    hasher: DefaultHashBuilder,
}

impl<V> Default for PartitionMap<V> {
    fn default() -> Self {
        Self { entries: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<V> PartitionMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: &RawTopicIdPartition<'_>) -> Option<&V> {
        self.entries.find(self.hasher.hash_one(key), |(known, _)| **known == *key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &RawTopicIdPartition<'_>) -> Option<&mut V> {
        let hash = self.hasher.hash_one(key);
        self.entries.find_mut(hash, |(known, _)| **known == *key).map(|(_, value)| value)
    }

    /// Sets the value of a key that has none.
    pub(crate) fn insert(&mut self, key: TopicIdPartition, value: V) {
        let Self { entries, hasher } = self;
        let hash = hasher.hash_one(&key);
        entries.insert_unique(hash, (Arc::new(key), value), |(known, _)| hasher.hash_one(&**known));
    }

    pub(crate) fn remove(&mut self, key: &RawTopicIdPartition<'_>) -> Option<V> {
        let hash = self.hasher.hash_one(key);
        let entry = self.entries.find_entry(hash, |(known, _)| **known == *key).ok()?;
        Some(entry.remove().0.1)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicIdPartition, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&**key, value))
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&TopicIdPartition, &mut V) -> bool) {
        self.entries.retain(|(key, value)| keep(key, value));
    }
}

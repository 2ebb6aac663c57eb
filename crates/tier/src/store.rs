//! The indexes of many user partitions.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{
    ApplyError, ApplyOutcome, RawEvent, RawTopicIdPartition, RemoteLogSegmentIndex,
    RemotePartitionDeleteState,
};

/// The segment indexes of the user partitions that are loaded. Gives Kafka's answers without Kafka's waiting.
///
/// Source: `org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore`.
#[derive(Debug, Default)]
pub struct RemotePartitionMetadataStore {
    partitions: HashTable<(RawTopicIdPartition<'static>, RemoteLogSegmentIndex)>,
    /// Seeded anew in each process, so that nobody can choose names that collide.
    hasher: DefaultHashBuilder,
}

/// A partition cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The partition is not loaded. Load it first.
    #[error("the partition is not loaded")]
    NotLoaded,
    /// The partition is loaded and not all of its events have been applied. Ask again later.
    #[error("the partition's events have not all been read yet")]
    NotInitialised,
}

impl QueryError {
    /// The Java exception that Kafka answers a query with.
    pub fn kafka_exception(&self) -> &'static str {
        match self {
            Self::NotLoaded => "RemoteResourceNotFoundException",
            Self::NotInitialised => "ReplicaNotAvailableException",
        }
    }
}

impl RemotePartitionMetadataStore {
    /// A store without partitions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins an empty index for a partition that has none.
    pub fn load(&mut self, partition: &RawTopicIdPartition<'_>) {
        let Self { partitions, hasher } = self;
        let hash = hasher.hash_one(partition);
        partitions
            .entry(hash, |(known, _)| known == partition, |(known, _)| hasher.hash_one(known))
            .or_insert_with(|| (partition.clone().into_owned(), RemoteLogSegmentIndex::new()));
    }

    /// Marks that all events of the partition that were there at the start have been applied. False when the
    /// partition is not loaded; Kafka answers NullPointerException then.
    #[must_use]
    pub fn mark_initialised(&mut self, partition: &RawTopicIdPartition<'_>) -> bool {
        let index = self.loaded_mut(partition);
        let is_loaded = index.is_some();
        index.into_iter().for_each(RemoteLogSegmentIndex::mark_initialised);
        is_loaded
    }

    /// True when the partition is loaded and marked initialised.
    pub fn is_initialised(&self, partition: &RawTopicIdPartition<'_>) -> bool {
        self.loaded(partition).is_some_and(RemoteLogSegmentIndex::is_initialised)
    }

    /// Forgets the partition.
    pub fn clear(&mut self, partition: &RawTopicIdPartition<'_>) {
        let hash = self.hasher.hash_one(partition);
        if let Ok(entry) = self.partitions.find_entry(hash, |(known, _)| known == partition) {
            entry.remove();
        }
    }

    /// Takes in the next event of a metadata partition.
    ///
    /// Of the partition delete events only DELETE_PARTITION_FINISHED does something, whatever came before it:
    /// it forgets the partition. An update of an unknown segment is not an error here, as in Kafka.
    pub fn apply(&mut self, event: &RawEvent<'_>) -> Result<ApplyOutcome, ApplyError> {
        event.check()?;
        let outcome = match event {
            RawEvent::SegmentMetadata(event) => {
                let index = self.loaded_mut(&event.topic_id_partition).ok_or(ApplyError::NotLoaded)?;
                index.apply_segment_metadata(event)
            }
            RawEvent::SegmentMetadataUpdate(event) => {
                let index = self.loaded_mut(&event.topic_id_partition).ok_or(ApplyError::NotLoaded)?;
                index.apply_segment_update(event)
            }
            RawEvent::PartitionDeleteMetadata(event) => {
                if event.check()? == RemotePartitionDeleteState::DeletePartitionFinished {
                    self.clear(&event.topic_id_partition);
                }
                Ok(ApplyOutcome::Applied)
            }
            RawEvent::SegmentMetadataSnapshot(_) => Err(ApplyError::Snapshot),
        };
        match outcome {
            Err(ApplyError::UnknownSegment { .. }) => Ok(ApplyOutcome::UnknownSegment),
            outcome => outcome,
        }
    }

    /// The partition's index, ready to be asked.
    pub fn index(&self, partition: &RawTopicIdPartition<'_>) -> Result<&RemoteLogSegmentIndex, QueryError> {
        let index = self.loaded(partition).ok_or(QueryError::NotLoaded)?;
        if index.is_initialised() { Ok(index) } else { Err(QueryError::NotInitialised) }
    }

    fn loaded(&self, partition: &RawTopicIdPartition<'_>) -> Option<&RemoteLogSegmentIndex> {
        let hash = self.hasher.hash_one(partition);
        self.partitions.find(hash, |(known, _)| known == partition).map(|(_, index)| index)
    }

    fn loaded_mut(&mut self, partition: &RawTopicIdPartition<'_>) -> Option<&mut RemoteLogSegmentIndex> {
        let hash = self.hasher.hash_one(partition);
        self.partitions.find_mut(hash, |(known, _)| known == partition).map(|(_, index)| index)
    }
}

//! Which partition of the metadata topic holds the events of a user partition.
//!
//! Source: KIP-405, `RemoteLogMetadataTopicPartitioner`.

use std::num::NonZeroU32;

use crate::TopicId;

/// Chooses the metadata partition of a user partition, as every Kafka broker does.
///
/// The topic's name has no part in it. With another count of partitions nearly every user partition moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPartitioner {
    partition_count: NonZeroU32,
}

impl MetadataPartitioner {
    /// For a metadata topic of that many partitions; `None` unless there is at least one.
    pub fn new(partition_count: i32) -> Option<Self> {
        let partition_count = NonZeroU32::new(u32::try_from(partition_count).ok()?)?;
        Some(Self { partition_count })
    }

    /// The partition of the metadata topic, from 0, for the events of this user partition.
    pub fn metadata_partition(self, topic_id: TopicId, partition: i32) -> i32 {
        let positive = murmur2(user_partition_hash(topic_id, partition)) & i32::MAX;
        (positive as u32 % self.partition_count) as i32
    }
}

/// The hash of a user partition from which [`MetadataPartitioner`] starts: Java's `Objects.hash` of the
/// least significant half of the id, the most significant half, and the partition.
pub fn user_partition_hash(topic_id: TopicId, partition: i32) -> i32 {
    let fold = |half: i64| (half ^ (half as u64 >> 32) as i64) as i32;
    [fold(topic_id.0.least_significant()), fold(topic_id.0.most_significant()), partition]
        .into_iter()
        .fold(1_i32, |hash, part| hash.wrapping_mul(31).wrapping_add(part))
}

/// The second step of [`MetadataPartitioner`]: murmur2 over the four big-endian bytes of the hash.
///
/// Source: `org.apache.kafka.common.utils.Utils#murmur2`.
pub fn murmur2(hash: i32) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // Murmur2 reads little-endian words.
    let mut word = (hash as u32).swap_bytes().wrapping_mul(M);
    word ^= word >> 24;
    word = word.wrapping_mul(M);
    let mut mixed = (SEED ^ 4).wrapping_mul(M) ^ word;
    mixed ^= mixed >> 13;
    mixed = mixed.wrapping_mul(M);
    (mixed ^ mixed >> 15) as i32
}

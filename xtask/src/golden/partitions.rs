//! golden-partitions: which metadata partition holds a user partition's events.

use anyhow::Context;
use serde::Deserialize;
use strandline_tier::{MetadataPartitioner, TopicId, partitioner};

use super::{Tally, same};

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    topic_id: String,
    partition: i32,
    num_partitions: i32,
    hash: Option<i32>,
    murmur2: Option<i32>,
    metadata_partition: i32,
}

pub(super) fn check(file: &File) -> Tally {
    let mut tally = Tally::default();
    for vector in &file.vectors {
        let name = format!("{}:{} of {}", vector.topic_id, vector.partition, vector.num_partitions);
        tally.entry(name, check_vector(vector));
    }
    tally
}

fn check_vector(vector: &Vector) -> anyhow::Result<()> {
    let topic_id: TopicId = vector.topic_id.parse()?;
    let hash = partitioner::user_partition_hash(topic_id, vector.partition);
    same("hash", Some(hash), vector.hash.or(Some(hash)))?;
    let murmur2 = partitioner::murmur2(hash);
    same("murmur2", Some(murmur2), vector.murmur2.or(Some(murmur2)))?;
    let partitioner = MetadataPartitioner::new(vector.num_partitions).context("no partitions")?;
    same(
        "metadata partition",
        partitioner.metadata_partition(topic_id, vector.partition),
        vector.metadata_partition,
    )
}

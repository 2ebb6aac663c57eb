//! Whether events lie in the metadata partitions that the partitioner gives.

use strandline_tier::MetadataPartitioner;

use crate::builder::{Event, NO_PARTITION, UserPartition};

/// What the places of the events say of the metadata topic's partition count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The count, or where the events lay, is not known: no event was judged by its place.
    #[default]
    Unknown,
    /// Judged by this count; events elsewhere are misplaced.
    Judged {
        /// The topic's partition count.
        partitions: i32,
    },
    /// Events sit where another count would put them, so many of them that the count was changed. Nothing is
    /// called misplaced then.
    OtherCount {
        /// The topic's partition count.
        partitions: i32,
        /// The count that explains them.
        explains: i32,
        /// How many user partitions have events there.
        user_partitions: usize,
    },
}

/// The user partition's place, and whether events of it lie elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) metadata_partition: Option<i32>,
}

/// Where each user partition belongs, and what the events' places say as a whole.
pub(crate) fn judge(
    partitions: Option<i32>,
    user_partitions: &[UserPartition],
    events: &[Event],
) -> (Placement, Vec<Home>) {
    let partitioner = partitions.and_then(MetadataPartitioner::new);
    let (Some(partitioner), Some(partitions)) = (partitioner, partitions) else {
        return (Placement::Unknown, vec![Home { metadata_partition: None }; user_partitions.len()]);
    };
    let homes: Vec<Home> = user_partitions
        .iter()
        .map(|of| Home {
            metadata_partition: Some(partitioner.metadata_partition(of.topic_id, of.partition)),
        })
        .collect();
    if events.iter().all(|event| event.metadata_partition == NO_PARTITION) {
        return (Placement::Unknown, homes);
    }
    let mut strays: Vec<(u32, i32)> = events
        .iter()
        .filter(|event| event.metadata_partition != NO_PARTITION)
        .filter(|event| {
            Some(event.metadata_partition) != homes[event.user_partition as usize].metadata_partition
        })
        .map(|event| (event.user_partition, event.metadata_partition))
        .collect();
    strays.sort_unstable();
    strays.dedup();
    match other_count(partitions, user_partitions, &strays) {
        Some((explains, user_partitions)) => {
            (Placement::OtherCount { partitions, explains, user_partitions }, homes)
        }
        None => (Placement::Judged { partitions }, homes),
    }
}

/// Beyond this many metadata partitions no other count is looked for: Kafka's default is 50.
const COUNT_MAX: i32 = 100_000;

/// A smaller count (a topic's count only grows) that puts every stray where it is, and which would have put at
/// least half of the strays' fellows (those that the two counts place differently) there as well. One stray
/// user partition alone proves nothing.
fn other_count(
    partitions: i32,
    user_partitions: &[UserPartition],
    strays: &[(u32, i32)],
) -> Option<(i32, usize)> {
    let real = MetadataPartitioner::new(partitions).filter(|_| partitions <= COUNT_MAX)?;
    let mut stray_partitions: Vec<u32> = strays.iter().map(|(user_partition, _)| *user_partition).collect();
    stray_partitions.dedup();
    if stray_partitions.len() < 2 {
        return None;
    }
    let least =
        strays.iter().map(|(_, metadata_partition)| *metadata_partition).max()?.checked_add(1)?.max(1);
    (least..partitions).rev().find_map(|count| {
        let other = MetadataPartitioner::new(count)?;
        let explained = strays.iter().all(|(of, metadata_partition)| {
            let of = &user_partitions[*of as usize];
            other.metadata_partition(of.topic_id, of.partition) == *metadata_partition
        });
        if !explained {
            return None;
        }
        let differing = user_partitions
            .iter()
            .filter(|of| {
                real.metadata_partition(of.topic_id, of.partition)
                    != other.metadata_partition(of.topic_id, of.partition)
            })
            .count();
        (stray_partitions.len() * 2 >= differing).then_some((count, stray_partitions.len()))
    })
}

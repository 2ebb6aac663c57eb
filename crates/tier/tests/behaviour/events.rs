//! Generators of events.

use std::borrow::Cow;

use proptest::prelude::*;
use strandline_tier::{
    EpochEntries, EpochEntry, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentSnapshot,
    RawSegmentUpdate, RawTopicIdPartition, TopicId, Uuid,
};

type Custom = Option<Cow<'static, [u8]>>;

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid)
}

fn partition() -> impl Strategy<Value = RawTopicIdPartition<'static>> {
    let topic = prop_oneof!["[a-zA-Z0-9._-]{1,40}", any::<String>(), "x{120,140}"];
    (topic, uuid(), any::<i32>()).prop_map(|(topic, id, partition)| RawTopicIdPartition {
        topic: Cow::Owned(topic),
        topic_id: TopicId(id),
        partition,
    })
}

fn epochs() -> impl Strategy<Value = EpochEntries> {
    let epochs = prop::collection::btree_map(any::<i32>(), any::<i64>(), 0..6);
    epochs.prop_map(|epochs| {
        epochs.into_iter().map(|(epoch, start_offset)| EpochEntry { epoch, start_offset }).collect()
    })
}

fn custom() -> impl Strategy<Value = Custom> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..150).prop_map(Cow::Owned))
}

fn segment_metadata() -> impl Strategy<Value = RawSegmentMetadata<'static>> {
    let numbers = (any::<[i64; 4]>(), any::<[i32; 2]>(), any::<i8>(), any::<bool>());
    (partition(), uuid(), epochs(), custom(), numbers).prop_map(
        |(topic_id_partition, segment_id, segment_leader_epochs, custom_metadata, numbers)| {
            let ([start_offset, end_offset, max_timestamp_ms, event_timestamp_ms], ints, state_id, empty) =
                numbers;
            RawSegmentMetadata {
                topic_id_partition,
                segment_id,
                start_offset,
                end_offset,
                broker_id: ints[0],
                max_timestamp_ms,
                event_timestamp_ms,
                segment_leader_epochs,
                segment_size_in_bytes: ints[1],
                custom_metadata,
                state_id,
                txn_index_empty: empty,
            }
        },
    )
}

/// Any event that has a form in bytes, whether Kafka would accept it or not.
pub(crate) fn event() -> impl Strategy<Value = RawEvent<'static>> {
    (0..4, segment_metadata()).prop_map(|(kind, event)| match kind {
        0 => RawEvent::SegmentMetadata(event),
        1 => RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
            topic_id_partition: event.topic_id_partition,
            segment_id: event.segment_id,
            broker_id: event.broker_id,
            event_timestamp_ms: event.event_timestamp_ms,
            custom_metadata: event.custom_metadata,
            state_id: event.state_id,
        }),
        2 => RawEvent::PartitionDeleteMetadata(RawPartitionDelete {
            topic_id_partition: event.topic_id_partition,
            broker_id: event.broker_id,
            event_timestamp_ms: event.event_timestamp_ms,
            state_id: event.state_id,
        }),
        _ => RawEvent::SegmentMetadataSnapshot(RawSegmentSnapshot {
            segment_id: event.segment_id,
            start_offset: event.start_offset,
            end_offset: event.end_offset,
            broker_id: event.broker_id,
            max_timestamp_ms: event.max_timestamp_ms,
            event_timestamp_ms: event.event_timestamp_ms,
            segment_leader_epochs: event.segment_leader_epochs,
            segment_size_in_bytes: event.segment_size_in_bytes,
            custom_metadata: event.custom_metadata,
            state_id: event.state_id,
            txn_index_empty: event.txn_index_empty,
        }),
    })
}

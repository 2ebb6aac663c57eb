//! The store of many partitions. Kafka's own answers are in `cargo xtask golden`.

use strandline_tier::{
    ApplyError, ApplyOutcome, EpochEntry, ObjectError, QueryError, RawEvent, RawPartitionDelete,
    RawSegmentMetadata, RawSegmentSnapshot, RawTopicIdPartition, RemotePartitionMetadataStore, TopicId, Uuid,
};

fn partition(topic: &'static str) -> RawTopicIdPartition<'static> {
    RawTopicIdPartition { topic: topic.into(), topic_id: TopicId(Uuid([7; 16])), partition: 0 }
}

fn started(topic: &'static str) -> RawEvent<'static> {
    RawEvent::SegmentMetadata(RawSegmentMetadata {
        topic_id_partition: partition(topic),
        segment_id: Uuid([1; 16]),
        start_offset: 0,
        end_offset: 9,
        broker_id: 1,
        max_timestamp_ms: 0,
        event_timestamp_ms: 0,
        segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
        segment_size_in_bytes: 1,
        custom_metadata: None,
        state_id: 0,
        txn_index_empty: false,
    })
}

fn deleted(state_id: i8) -> RawEvent<'static> {
    RawEvent::PartitionDeleteMetadata(RawPartitionDelete {
        topic_id_partition: partition("orders"),
        broker_id: 1,
        event_timestamp_ms: 0,
        state_id,
    })
}

#[test]
fn a_topic_id_under_another_name_is_another_partition() {
    let mut store = RemotePartitionMetadataStore::new();
    store.load(&partition("orders"));
    assert!(store.mark_initialised(&partition("orders")));
    assert_eq!(store.apply(&started("orders")), Ok(ApplyOutcome::Applied));
    assert_eq!(store.apply(&started("ordres")), Err(ApplyError::NotLoaded));
    assert_eq!(store.index(&partition("ordres")).unwrap_err(), QueryError::NotLoaded);
    assert!(!store.mark_initialised(&partition("ordres")));
    assert_eq!(store.index(&partition("orders")).unwrap().list_remote_log_segments().count(), 1);
}

#[test]
fn many_partitions_keep_apart() {
    let mut store = RemotePartitionMetadataStore::new();
    let numbered = |number| RawTopicIdPartition { partition: number, ..partition("orders") };
    (0..1000).for_each(|number| store.load(&numbered(number)));
    for number in (0..1000).step_by(2) {
        assert!(store.mark_initialised(&numbered(number)));
    }
    (0..1000).step_by(3).for_each(|number| store.clear(&numbered(number)));
    for number in 0..1000 {
        let answer = store.index(&numbered(number)).map(|_| ());
        let expected = match (number % 3, number % 2) {
            (0, _) => Err(QueryError::NotLoaded),
            (_, 0) => Ok(()),
            _ => Err(QueryError::NotInitialised),
        };
        assert_eq!(answer, expected, "{number}");
    }
}

#[test]
fn what_kafka_would_refuse_changes_nothing() {
    let mut store = RemotePartitionMetadataStore::new();
    store.load(&partition("orders"));
    assert_eq!(store.apply(&deleted(3)), Err(ApplyError::Object(ObjectError::UnknownState { state_id: 3 })));
    let snapshot = RawEvent::SegmentMetadataSnapshot(RawSegmentSnapshot {
        segment_id: Uuid([1; 16]),
        start_offset: 0,
        end_offset: 9,
        broker_id: 1,
        max_timestamp_ms: 0,
        event_timestamp_ms: 0,
        segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 0 }].into_iter().collect(),
        segment_size_in_bytes: 1,
        custom_metadata: None,
        state_id: 0,
        txn_index_empty: false,
    });
    assert_eq!(store.apply(&snapshot), Err(ApplyError::Snapshot));
    assert!(!store.is_initialised(&partition("orders")));
    assert!(store.mark_initialised(&partition("orders")), "still loaded");
    assert_eq!(store.apply(&deleted(2)), Ok(ApplyOutcome::Applied));
    assert!(!store.mark_initialised(&partition("orders")), "no longer loaded");
}

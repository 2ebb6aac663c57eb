//! The text form that Kafka's `RemoteLogMetadataFormatter` gives to an event.

use std::collections::BTreeMap;

use serde_json::Value;

/// An event of `events -o jsonl` as Kafka's formatter would print it.
pub(crate) fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap();
    let number = |name: &str| event[name].as_i64().unwrap();
    let segment = || {
        format!(
            "remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={}:{}-{}, id={}}}",
            text("topic_id"),
            text("topic"),
            number("partition"),
            text("segment_id")
        )
    };
    assert!(event["custom_metadata"].is_null(), "LocalTieredStorage gives none: {event}");
    let value = match text("kind") {
        "segment_metadata" => format!(
            "RemoteLogSegmentMetadata{{{}, startOffset={}, endOffset={}, brokerId={}, maxTimestampMs={}, \
             eventTimestampMs={}, segmentLeaderEpochs={{{}}}, segmentSizeInBytes={}, \
             customMetadata=Optional.empty, state={}, txnIdxEmpty={}}}",
            segment(),
            number("start_offset"),
            number("end_offset"),
            number("broker_id"),
            number("max_timestamp_ms"),
            number("event_timestamp_ms"),
            epochs(&event["segment_leader_epochs"]),
            number("segment_size_in_bytes"),
            text("state"),
            event["txn_index_empty"].as_bool().unwrap()
        ),
        "segment_metadata_update" => format!(
            "RemoteLogSegmentMetadataUpdate{{{}, customMetadata=Optional.empty, state={}, \
             eventTimestampMs={}, brokerId={}}}",
            segment(),
            text("state"),
            number("event_timestamp_ms"),
            number("broker_id")
        ),
        other => panic!("a broker never writes a {other}"),
    };
    format!("partition: {}, offset: {}, value: {value}", number("metadata_partition"), number("offset"))
}

fn epochs(pairs: &Value) -> String {
    let pairs = pairs.as_array().unwrap().iter();
    let texts: Vec<String> = pairs.map(|pair| format!("{}={}", pair[0], pair[1])).collect();
    texts.join(", ")
}

/// The last state of each segment id in the lines of Kafka's formatter.
pub(crate) fn last_states(lines: &[String]) -> BTreeMap<String, String> {
    let mut in_order: Vec<(i64, &str, &str)> = lines
        .iter()
        .map(|line| {
            let after = |label: &str, end: char| {
                let rest = line.split_once(label).unwrap_or_else(|| panic!("no {label:?} in {line}")).1;
                rest.split_once(end).unwrap().0
            };
            (after("offset: ", ',').parse().unwrap(), after(", id=", '}'), after("state=", ','))
        })
        .collect();
    // All events of a segment stand in one metadata partition, so its offsets order them.
    in_order.sort_unstable();
    in_order.into_iter().map(|(_, id, state)| (id.to_owned(), state.to_owned())).collect()
}

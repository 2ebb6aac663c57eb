//! The manager's answers are those of Kafka's cache: every scenario of the golden file, through a manager that writes and
//! follows, one that starts afterwards, and one that starts again and again from its snapshot.

use serde_json::{Value, json};
use strandline_log::{InProcessMetadataEventLog, InProcessMetadataTopic};
use strandline_rlmm::{
    QueryError, RefusedWrite, Rejection, RemoteLogMetadataManager as _, TopicBasedRemoteLogMetadataManager,
    WriteError, WriteOutcome, Written,
};
use strandline_tier::{
    EpochEntry, ObjectError, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentMetadata,
};

use crate::support::{
    Event, append, caught_up, config, config_with_snapshots, number, orders, segment_id, serving, soon,
};

#[tokio::test]
async fn answers_are_the_golden_ones() {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/golden-cache.json"));
    let golden: Value = serde_json::from_slice(&text.unwrap()).unwrap();
    let scenarios = golden["scenarios"].as_array().unwrap();
    assert!(scenarios.len() > 150, "the file is whole");
    for scenario in scenarios {
        run(scenario).await;
    }
}

async fn run(scenario: &Value) {
    let name = scenario["name"].as_str().unwrap();
    let topic = InProcessMetadataTopic::with_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    let live = serving(topic.open(), config(), &[orders(0)]).await;
    let mut end = 0;
    for (number, step) in (1..).zip(scenario["steps"].as_array().unwrap()) {
        let place = format!("{name}, step {number}");
        match step["op"].as_str().unwrap() {
            "init" => {}
            "add" => {
                let event = add_event(step);
                let written = live.add_remote_log_segment_metadata(event.clone(), soon()).await;
                settle(&place, step, &topic, written, event, &mut end);
            }
            "update" => {
                let event = update_event(step);
                // The manager would keep the custom metadata, which Kafka's cache is shown to lose.
                if event.state_id >= 2 && event.custom_metadata.is_none() {
                    append(&topic, 0, event);
                    end += 1;
                    continue;
                }
                let written = live.update_remote_log_segment_metadata(event.clone(), soon()).await;
                settle(&place, step, &topic, written, event, &mut end);
            }
            "check" => {
                caught_up(&live, |_| end).await;
                check(&place, step, &live);
                let replayed = serving(topic.open(), config(), &[orders(0)]).await;
                check(&format!("{place}, replayed"), step, &replayed);
                let restarted = serving(topic.open(), config_with_snapshots(dir.path()), &[orders(0)]).await;
                check(&format!("{place}, restarted"), step, &restarted);
                let [status] = &restarted.status()[..] else { panic!("one metadata partition is read") };
                assert_eq!(status.snapshot_discarded, None, "{place}");
                restarted.close().await;
            }
            other => panic!("{place}: {other}"),
        }
    }
}

/// Holds what the writer is told against what Kafka's cache did; what is refused is written past the manager.
fn settle(
    place: &str,
    step: &Value,
    topic: &InProcessMetadataTopic,
    written: Result<Written, WriteError>,
    event: impl Into<Event>,
    end: &mut i64,
) {
    let told = match &written {
        Ok(Written { outcome: WriteOutcome::Applied, .. }) => "applied",
        // An index that was marked initialised, as a manager's is, answers so about unknown segments.
        Ok(Written { outcome: WriteOutcome::Rejected(Rejection::UnknownSegment), .. }) => {
            match &step["result"] {
                Value::String(result) if result == "RemoteResourceNotFoundException" => result,
                _ => "dropped",
            }
        }
        Ok(Written { outcome: WriteOutcome::NoOp | WriteOutcome::Rejected(_), .. }) => "dropped",
        Err(WriteError::Refused(RefusedWrite::Object(ObjectError::UnknownState { .. }))) => {
            "NullPointerException"
        }
        // Kafka's cache takes this one, and Kafka's search for a transaction index then may never end.
        Err(WriteError::Refused(RefusedWrite::EpochBeyondEnd { .. })) => "applied",
        // An update to COPY_SEGMENT_STARTED is dropped unless the segment is in that state.
        Err(WriteError::Refused(RefusedWrite::UpdateToStarted)) => step["result"].as_str().unwrap(),
        Err(WriteError::Refused(_)) => "IllegalArgumentException",
        Err(error) => panic!("{place}: {error}"),
    };
    let golden = step["result"].as_str().unwrap();
    // The deletion of a segment that is gone says nothing new.
    let is_repetition =
        told == "dropped" && golden == "RemoteResourceNotFoundException" && step["state"] == json!(3);
    assert!(told == golden || is_repetition, "{place}: {written:?}, and Kafka: {golden}");
    if written.is_err() {
        append(topic, 0, event);
    }
    *end += 1;
}

fn check(
    place: &str,
    check: &Value,
    manager: &TopicBasedRemoteLogMetadataManager<InProcessMetadataEventLog>,
) {
    let tp = orders(0);
    if let Some(golden) = check.get("all") {
        let mut all: Vec<Value> =
            manager.list_remote_log_segments(&tp).unwrap().iter().map(described).collect();
        all.sort_by_key(|segment| segment[0].as_u64());
        let mut golden = golden.as_array().unwrap().clone();
        golden.sort_by_key(|segment| segment[0].as_u64());
        assert_eq!(json!(all), json!(golden), "{place}: all");
    }
    for (epoch, golden) in check["epochs"].as_object().into_iter().flatten() {
        let place = format!("{place}, epoch {epoch}");
        let epoch = epoch.parse().unwrap();
        let list = match manager.list_remote_log_segments_for_epoch(&tp, epoch) {
            Ok(list) => json!(list.iter().map(number).collect::<Vec<_>>()),
            Err(error) => json!(error.kafka_exception()),
        };
        assert_eq!(list, golden["list"], "{place}: list");
        let size = manager.remote_log_size(&tp, epoch).ok();
        assert_eq!(json!(size), golden.get("size").cloned().unwrap_or(Value::Null), "{place}: size");
        assert_eq!(
            json!(manager.highest_offset_for_epoch(&tp, epoch).unwrap()),
            golden["highest"],
            "{place}: highest"
        );
    }
    for look_up in check["lookup"].as_array().into_iter().flatten() {
        let found = manager.remote_log_segment_metadata(&tp, int(&look_up[0]), long(&look_up[1]));
        assert_eq!(numbered(found), look_up[2], "{place}: look-up {look_up}");
    }
    for next in check["next_txn"].as_array().into_iter().flatten() {
        let found = manager.next_segment_with_txn_index(&tp, int(&next[0]), long(&next[1]));
        assert_eq!(numbered(found), next[2], "{place}: next with transaction index {next}");
    }
}

fn numbered(found: Result<Option<RemoteLogSegmentMetadata>, QueryError>) -> Value {
    json!(found.unwrap().as_ref().map(number))
}

fn described(segment: &RemoteLogSegmentMetadata) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    json!([
        number(segment),
        segment.state().id(),
        segment.broker_id(),
        segment.event_timestamp_ms(),
        segment.custom_metadata().map(hex)
    ])
}

fn add_event(step: &Value) -> RawSegmentMetadata<'static> {
    let epochs = step["epochs"].as_array().unwrap().iter();
    RawSegmentMetadata {
        topic_id_partition: orders(0),
        segment_id: segment_id(step["seg"].as_u64().unwrap()),
        start_offset: long(&step["start"]),
        end_offset: long(&step["end"]),
        broker_id: int(&step["broker"]),
        max_timestamp_ms: long(&step["max_ts"]),
        event_timestamp_ms: long(&step["ts"]),
        segment_leader_epochs: epochs
            .map(|entry| EpochEntry { epoch: int(&entry[0]), start_offset: long(&entry[1]) })
            .collect(),
        segment_size_in_bytes: int(&step["size"]),
        custom_metadata: custom(step),
        state_id: int(&step["state"]).try_into().unwrap(),
        txn_index_empty: step["txn_empty"].as_bool().unwrap(),
    }
}

fn update_event(step: &Value) -> RawSegmentUpdate<'static> {
    RawSegmentUpdate {
        topic_id_partition: orders(0),
        segment_id: segment_id(step["seg"].as_u64().unwrap()),
        broker_id: int(&step["broker"]),
        event_timestamp_ms: long(&step["ts"]),
        custom_metadata: custom(step),
        state_id: int(&step["state"]).try_into().unwrap(),
    }
}

fn custom(step: &Value) -> Option<std::borrow::Cow<'static, [u8]>> {
    let hex = step.get("custom")?.as_str()?;
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    Some((0..hex.len()).step_by(2).map(byte).collect::<Vec<_>>().into())
}

fn int(value: &Value) -> i32 {
    value.as_i64().unwrap().try_into().unwrap()
}

fn long(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

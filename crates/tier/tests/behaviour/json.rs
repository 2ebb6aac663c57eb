//! Events as lines.

use proptest::prelude::*;
use strandline_tier::json::{self, EventPosition};
use strandline_tier::{RawEvent, RecordValue};

use crate::events;

const UPDATE: &str = r#"{"metadata_partition":2,"offset":1,"timestamp_ms":3,"kind":"segment_metadata_update","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders","partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","broker_id":1,"event_timestamp_ms":1700000002222,"custom_metadata":null,"state":"COPY_SEGMENT_FINISHED"}"#;

fn line(position: &EventPosition, value: &RecordValue<'_>) -> String {
    let mut out = Vec::new();
    json::write_event(&mut out, position, value);
    String::from_utf8(out).unwrap()
}

proptest! {
    #[test]
    fn every_event_comes_back_from_its_line(
        event in events::event(),
        position in any::<(Option<i32>, Option<i64>, Option<i64>)>(),
    ) {
        let (metadata_partition, offset, timestamp_ms) = position;
        let position = EventPosition { metadata_partition, offset, timestamp_ms };
        let value = RecordValue::Event(event);
        let line = line(&position, &value);
        prop_assert!(!line.chars().any(char::is_control), "{}", line);
        prop_assert_eq!(json::parse_event(line.as_bytes()).unwrap(), (position, value));
    }

    #[test]
    fn a_record_that_is_no_event_comes_back_from_its_line(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        for value in [RecordValue::from_value(Some(&bytes)), RecordValue::NullValue] {
            let line = line(&EventPosition::default(), &value);
            prop_assert_eq!(json::parse_event(line.as_bytes()).unwrap().1, value);
        }
    }
}

#[test]
fn a_line_has_the_position_first_and_then_the_fields_of_its_kind() {
    let snapshot = r#"{"kind":"segment_metadata_snapshot","segment_id":"ERERESIiIiIzMzMzRERERA","start_offset":-5,"end_offset":-10,"broker_id":-1,"max_timestamp_ms":-1,"event_timestamp_ms":-1,"segment_leader_epochs":[[3,7],[0,-5]],"segment_size_in_bytes":-1,"custom_metadata":"0Aff","state":null,"state_id":9,"txn_index_empty":true}"#;
    let lines = [
        r#"{"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","kind":"segment_metadata","state_id":0,"offset":7,"metadata_partition":2,"timestamp_ms":1700000001300,"topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"a\"b\\\u001b\u009b\u00e9","partition":0,"start_offset":0,"end_offset":2047,"broker_id":1,"max_timestamp_ms":1700000000123,"event_timestamp_ms":1700000001234,"segment_leader_epochs":[],"segment_size_in_bytes":1046336,"custom_metadata":"","txn_index_empty":false,"later":[1]}"#,
        UPDATE,
        r#"{"kind":"partition_delete_metadata","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders","partition":0,"broker_id":4,"event_timestamp_ms":5,"state":"DELETE_PARTITION_MARKED","state_id":0}"#,
        snapshot,
        r#"{"offset":3,"kind":"null_value"}"#,
        r#"{"metadata_partition":2,"offset":2,"kind":"undecodable","hex":"010900","error":"in other words"}"#,
    ]
    .map(|text| {
        let (position, value) = json::parse_event(text.as_bytes()).unwrap();
        line(&position, &value)
    })
    .join("\n");
    insta::assert_snapshot!(lines, @r#"
    {"metadata_partition":2,"offset":7,"timestamp_ms":1700000001300,"kind":"segment_metadata","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"a\"b\\\u001b\u009bé","partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","start_offset":0,"end_offset":2047,"broker_id":1,"max_timestamp_ms":1700000000123,"event_timestamp_ms":1700000001234,"segment_leader_epochs":[],"segment_size_in_bytes":1046336,"custom_metadata":"","state":"COPY_SEGMENT_STARTED","txn_index_empty":false}
    {"metadata_partition":2,"offset":1,"timestamp_ms":3,"kind":"segment_metadata_update","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders","partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","broker_id":1,"event_timestamp_ms":1700000002222,"custom_metadata":null,"state":"COPY_SEGMENT_FINISHED"}
    {"kind":"partition_delete_metadata","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders","partition":0,"broker_id":4,"event_timestamp_ms":5,"state":"DELETE_PARTITION_MARKED"}
    {"kind":"segment_metadata_snapshot","segment_id":"ERERESIiIiIzMzMzRERERA","start_offset":-5,"end_offset":-10,"broker_id":-1,"max_timestamp_ms":-1,"event_timestamp_ms":-1,"segment_leader_epochs":[[0,-5],[3,7]],"segment_size_in_bytes":-1,"custom_metadata":"0aff","state":null,"state_id":9,"txn_index_empty":true}
    {"offset":3,"kind":"null_value"}
    {"metadata_partition":2,"offset":2,"kind":"undecodable","hex":"010900","error":"unknown api key 9"}
    "#);
}

#[test]
fn bytes_of_a_known_event_are_read_even_if_the_line_calls_them_undecodable() {
    let text = r#"{"kind":"undecodable","hex":"010200076f7264657273bda670afa6e548458c01b9bbcfeb56fb0000000000000000040000018bcfe57db30000"}"#;
    let (_, value) = json::parse_event(text.as_bytes()).unwrap();
    assert!(matches!(value, RecordValue::Event(RawEvent::PartitionDeleteMetadata(_))), "{value:?}");
}

#[test]
fn a_bad_line_is_told_by_field() {
    let with = |from: &str, to: &str| {
        assert!(UPDATE.contains(from));
        UPDATE.replace(from, to)
    };
    let epochs_twice = r#"{"kind":"segment_metadata_snapshot","segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","start_offset":0,"end_offset":9,"broker_id":1,"max_timestamp_ms":1,"event_timestamp_ms":1,"segment_leader_epochs":[[7,0],[3,2],[7,5]]}"#;
    let errors = [
        "[1]".to_owned(),
        "{\"kind\":\"segment_metadata\"".to_owned(),
        "{}".to_owned(),
        with("segment_metadata_update", "segment_update"),
        with("\"broker_id\":1,", ""),
        with("\"broker_id\":1,", "\"broker_id\":4294967296,"),
        with("\"broker_id\":1,", "\"broker_id\":1.5,"),
        with("uZ0Wkrd9RjCy4w8cr8Qh5Q", "uZ0W"),
        with("\"custom_metadata\":null", "\"custom_metadata\":\"abc\""),
        with("\"custom_metadata\":null", "\"custom_metadata\":\"+1\""),
        with("COPY_SEGMENT_FINISHED", "DELETE_PARTITION_MARKED"),
        with("\"COPY_SEGMENT_FINISHED\"", "\"COPY_SEGMENT_FINISHED\",\"state_id\":2"),
        with("\"COPY_SEGMENT_FINISHED\"", "null"),
        with("\"COPY_SEGMENT_FINISHED\"", "null,\"state_id\":300"),
        epochs_twice.to_owned(),
    ]
    .map(|text| {
        let error = json::parse_event(text.as_bytes()).unwrap_err();
        match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }
    })
    .join("\n");
    insta::assert_snapshot!(errors, @r#"
    invalid length 1, expected an object with the fields of an event (column 3)
    EOF while parsing an object (column 26)
    field kind is missing
    "segment_update" is no kind of event
    field broker_id is missing
    invalid value: integer `4294967296`, expected i32 (column 212)
    invalid type: floating point `1.5`, expected i32 (column 205)
    field segment_id: "uZ0W" is not a Kafka UUID: 22 characters of URL-safe base64 are expected
    field custom_metadata is not hex: an even number of digits 0-9 a-f is expected
    field custom_metadata is not hex: an even number of digits 0-9 a-f is expected
    "DELETE_PARTITION_MARKED" is no state of a remote log segment
    state COPY_SEGMENT_FINISHED has id 1, not the state_id 2
    field state is missing
    invalid value: integer `300`, expected i8 (column 289)
    field segment_leader_epochs names epoch 7 twice
    "#);
}

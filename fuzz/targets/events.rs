//! Any bytes as the value of a record of the metadata topic, and as a line of an event file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strandline_tier::json::{EventPosition, parse_event, write_event};
use strandline_tier::{RecordValue, codec};

fuzz_target!(|input: &[u8]| {
    let [choice, bytes @ ..] = input else { return };
    match choice & 1 {
        0 => value(bytes),
        _ => line(bytes),
    }
});

fn value(bytes: &[u8]) {
    let mut decoded = None;
    let memory = allocation_counter::measure(|| decoded = Some(codec::decode(bytes)));
    assert!(
        memory.bytes_max <= 64 * bytes.len() as u64 + 1024,
        "{} bytes allocated for {}",
        memory.bytes_max,
        bytes.len()
    );
    if let Some(Ok(event)) = decoded {
        // Whether Kafka takes the values is another question; it must have an answer.
        let _ = event.check();
        let mut again = Vec::new();
        codec::encode(&event, &mut again).expect("what was decoded can be encoded");
        assert_eq!(codec::decode(&again), Ok(event), "what was encoded decodes to the same");
    }
    written(&RecordValue::from_value(Some(bytes)));
}

fn line(bytes: &[u8]) {
    if let Ok((_, value)) = parse_event(bytes) {
        written(&value);
    }
}

/// What is written as a line reads as the same.
fn written(value: &RecordValue<'_>) {
    let position = EventPosition { metadata_partition: Some(7), offset: Some(i64::MAX), timestamp_ms: None };
    let mut line = Vec::new();
    write_event(&mut line, &position, value);
    let (position_read, value_read) = parse_event(&line).expect("a line that was written can be read");
    assert_eq!((position_read, &value_read), (position, value));
}

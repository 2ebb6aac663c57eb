//! The codec on generated, damaged and random bytes. Kafka's own answers are in `cargo xtask golden`.

use proptest::prelude::*;
use strandline_tier::codec::{self, EncodeError};
use strandline_tier::{RawEvent, RecordValue};

use crate::events;

fn encode(event: &RawEvent<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(event, &mut bytes).unwrap();
    bytes
}

/// Reads the bytes and gives back what it allocated on the way, in bytes.
fn allocated(bytes: &[u8]) -> u64 {
    allocation_counter::measure(|| {
        let value = RecordValue::from_value(Some(bytes));
        if let RecordValue::Event(event) = &value {
            let _ = event.check();
        }
    })
    .bytes_total
}

/// Growing buffers count in full, so a list of 13-byte entries that doubles on its way costs some multiple.
fn allocation_max(bytes: &[u8]) -> u64 {
    1024 + 8 * bytes.len() as u64
}

#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index),
    Cut(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    // Variable-length integers of -1, the least and the greatest value, null and malformed text.
    let hostile = prop::sample::select(vec![
        vec![0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0x80, 0x80, 0x80, 0x80, 0x08],
        vec![0xff, 0xff, 0xff, 0xff, 0x07],
        vec![0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0],
        vec![0xed, 0xa0, 0x80],
    ]);
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at(), hostile).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        at().prop_map(Damage::Remove),
        at().prop_map(Damage::Cut),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: Vec<Damage>) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        match damage {
            Damage::Set(at, byte) => *at.get_mut(&mut bytes) = byte,
            Damage::Insert(at, hostile) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, hostile);
            }
            Damage::Remove(at) => {
                bytes.remove(at.index(bytes.len()));
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn every_event_comes_back_from_its_bytes(event in events::event()) {
        let bytes = encode(&event);
        prop_assert_eq!(codec::decode(&bytes), Ok(event));
    }

    #[test]
    fn every_event_lacks_something_when_its_bytes_are_cut(event in events::event()) {
        let bytes = encode(&event);
        for end in 0..bytes.len() {
            let error = codec::decode(&bytes[..end]).unwrap_err();
            prop_assert!(error.offset <= end);
            prop_assert!(!error.is_unknown_api());
        }
    }

    #[test]
    fn damaged_bytes_neither_panic_nor_allocate_more_than_they_bring(
        event in events::event(),
        damages in prop::collection::vec(damage(), 1..5),
    ) {
        let bytes = damaged(encode(&event), damages);
        prop_assert!(allocated(&bytes) <= allocation_max(&bytes));
        if let Ok(event) = codec::decode(&bytes) {
            // Whatever was accepted has a canonical form that says the same.
            let canonical = encode(&event);
            prop_assert_eq!(codec::decode(&canonical), Ok(event));
        }
    }

    #[test]
    fn random_bytes_neither_panic_nor_allocate_more_than_they_bring(
        header in prop::option::of(0..4_u8),
        mut rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Some(api_key) = header {
            rest.splice(0..0, [1, api_key, 0]);
        }
        prop_assert!(allocated(&rest) <= allocation_max(&rest));
    }
}

#[test]
fn a_count_is_not_believed_beyond_the_bytes_left() {
    // The epochs of a segment, counted as the greatest number that there is.
    let mut bytes = vec![1, 0, 0, 2, b'a'];
    bytes.extend([0; 16 + 4 + 1 + 16 + 1 + 8 + 8 + 4 + 8 + 8]);
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0]);
    let error = codec::decode(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2147483646 elements and only 3 bytes left (segment_leader_epochs at byte 79)"
    );
    assert!(allocated(&bytes) <= allocation_max(&bytes));
}

#[test]
fn an_undecodable_record_says_what_is_wrong_and_keeps_its_bytes() {
    let error = |bytes: &[u8]| match RecordValue::from_value(Some(bytes)) {
        RecordValue::Undecodable { bytes: kept, error, unknown_api } if *kept == *bytes => {
            format!("{error}{}", if unknown_api { " [newer?]" } else { "" })
        }
        other => format!("{other:?}"),
    };
    let errors = [
        &[][..],
        &[0, 0, 0],
        &[1, 9, 0],
        &[1, 0, 1],
        &[0x80, 0x80, 0x02],
        &[0x80; 6],
        &[1, 1, 0, 0],
        &[1, 1, 0, 5, b'a'],
        &[1, 1, 0, 0x81, 0x80, 0x02],
    ]
    .map(error)
    .join("\n");
    insta::assert_snapshot!(errors, @r"
    cut off: 1 bytes are needed and 0 are left (frame_version at byte 0)
    frame version 0 instead of 1 (frame_version at byte 0)
    unknown api key 9 [newer?]
    unknown version 1 of api key 0 [newer?]
    header number 32768 is above 32767 (frame_version at byte 0)
    variable-length integer of more than 5 bytes (frame_version at byte 0)
    null where a value is needed (topic at byte 3)
    a length of 4 bytes and only 1 bytes left (topic at byte 4)
    string of 32768 bytes, above 32767 (topic at byte 3)
    ");
    assert_eq!(RecordValue::from_value(None), RecordValue::NullValue);
}

#[test]
fn a_topic_name_that_kafka_cannot_read_is_not_written() {
    let event = |length: usize| {
        RawEvent::PartitionDeleteMetadata(strandline_tier::RawPartitionDelete {
            topic_id_partition: strandline_tier::RawTopicIdPartition {
                topic: "x".repeat(length).into(),
                topic_id: Default::default(),
                partition: 0,
            },
            broker_id: 0,
            event_timestamp_ms: 0,
            state_id: 0,
        })
    };
    let mut out = b"before".to_vec();
    assert_eq!(codec::encode(&event(32_768), &mut out), Err(EncodeError::TopicTooLong { length: 32_768 }));
    assert_eq!(out, b"before");
    assert_eq!(codec::decode(&encode(&event(32_767))), Ok(event(32_767)));
}

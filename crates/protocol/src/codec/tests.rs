use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use super::sample::{Sample, Source};
use crate::messages::*;
use crate::{DecodeErrorKind, Message, Request as _, TaggedField, Uuid, VersionRange};

/// Runs a property for every version of a message. `PROPTEST_CASES` says how many cases each version gets;
/// `PROPTEST_RNG_SEED`, which a failure prints, repeats a run.
fn for_each_version<S: Strategy>(
    message: &str,
    versions: VersionRange,
    input: impl Fn() -> S,
    property: impl Fn(i16, S::Value) -> Result<(), TestCaseError>,
) where
    S::Value: Debug,
{
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("PROPTEST_RNG_SEED").unwrap_or_else(rand_seed);
    let config = Config {
        cases: number("PROPTEST_CASES").map_or(24, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    for version in versions.iter() {
        let outcome = TestRunner::new(config.clone()).run(&input(), |input| property(version, input));
        if let Err(error) = outcome {
            panic!("{message} version {version}: {error}\nrepeat it with PROPTEST_RNG_SEED={seed}");
        }
    }
}

/// Another number in every process.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

fn entropy() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(version, &mut out).unwrap();
    out.freeze()
}

/// The names of the fields that a `Debug` output shows, in their order, without underscores (where they belong
/// beside a digit is a matter of taste).
fn field_names(debug: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in debug.split([' ', '(', '{', '[']) {
        if let Some(name) = part.strip_suffix(':')
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name != "unknown_tagged_fields"
        {
            names.push(name.replace('_', ""));
        }
    }
    names
}

fn agree<O, T>(theirs: VersionRange)
where
    O: Message + Sample,
    T: Encodable + Decodable + Debug,
{
    let versions = O::VERSIONS.intersect(theirs).unwrap();
    for_each_version(O::NAME, versions, entropy, |version, entropy| {
        let ours = O::sample(&mut Source::new(&entropy), version);
        let bytes = encoded(&ours, version);
        let mut rest = bytes.clone();
        let theirs = T::decode(&mut rest, version).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(rest.is_empty(), "they left {} bytes", rest.len());
        let mut back = BytesMut::new();
        theirs.encode(&mut back, version).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&back, &bytes);
        prop_assert_eq!(O::decode(back.freeze(), version).unwrap(), ours);
        Ok(())
    });
    for version in versions.iter() {
        // One element in every array, nothing null.
        let ours = O::sample(&mut Source::new(&[1; 400]), version);
        let theirs = T::decode(&mut encoded(&ours, version), version).unwrap();
        let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
        let (mut ours, theirs) = (field_names(&ours), field_names(&theirs));
        if versions != O::VERSIONS {
            // They lack the fields of newer versions.
            ours.retain(|name| theirs.contains(name));
        }
        assert_eq!(ours, theirs, "{} version {version}", O::NAME);
    }
}

#[test]
fn the_published_codec_reads_and_writes_the_same_bytes_for_the_same_fields() {
    macro_rules! all {
        ($($name:ident,)*) => {$({
            let theirs = <kafka_protocol::messages::$name as kafka_protocol::protocol::Message>::VERSIONS;
            agree::<$name, kafka_protocol::messages::$name>(VersionRange { first: theirs.min, last: theirs.max });
        })*};
    }
    crate::for_each_message!(all);
}

fn round_trips<M: Message + Sample>() {
    for_each_version(M::NAME, M::VERSIONS, entropy, |version, entropy| {
        let message = M::sample(&mut Source::new(&entropy), version);
        let bytes = encoded(&message, version);
        prop_assert_eq!(&M::decode(bytes.clone(), version).unwrap(), &message);

        let mut two = [&bytes[..], b"rest"].concat().into();
        prop_assert_eq!(&M::decode_prefix(&mut two, version).unwrap(), &message);
        prop_assert_eq!(&two[..], b"rest");
        let error = M::decode([&bytes[..], b"rest"].concat().into(), version).unwrap_err();
        prop_assert_eq!(error.kind, DecodeErrorKind::TrailingBytes(4));
        prop_assert_eq!(error.offset, bytes.len());

        for length in 0..bytes.len() {
            prop_assert!(M::decode(bytes.slice(..length), version).is_err(), "cut at {}", length);
        }
        Ok(())
    });
}

#[test]
fn a_message_decodes_to_what_was_encoded_and_a_cut_or_longer_one_is_an_error() {
    macro_rules! all { ($($name:ident,)*) => {$(round_trips::<$name>();)*}; }
    crate::for_each_message!(all);
}

/// What a decoder may allocate for each byte it is given. The worst of the generated messages are structures of a
/// few strings, 24 bytes in memory each, which take one byte each on the wire.
const ALLOCATED_PER_BYTE_MAX: u64 = 64;

/// What it may allocate besides: an error with its path.
const ALLOCATED_BYTES_MAX: u64 = 1024;

/// What decodes can be encoded, and decodes to the same again; memory is bounded by the bytes.
fn survives<M: Message>(bytes: Bytes, version: i16) -> Result<(), TestCaseError> {
    let mut decoded = None;
    let memory = allocation_counter::measure(|| decoded = Some(M::decode(bytes.clone(), version)));
    let bound = ALLOCATED_PER_BYTE_MAX * bytes.len() as u64 + ALLOCATED_BYTES_MAX;
    prop_assert!(memory.bytes_max <= bound, "{} bytes allocated for {}", memory.bytes_max, bytes.len());
    match decoded.unwrap() {
        Ok(message) => {
            let mut again = BytesMut::new();
            message.encode(version, &mut again).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(M::decode(again.freeze(), version).unwrap(), message);
        }
        Err(error) => prop_assert!(error.offset <= bytes.len(), "{}", error),
    }
    Ok(())
}

#[test]
fn whatever_the_bytes_are_a_decoder_answers_in_bounded_memory_with_a_message_or_an_error() {
    fn one<M: Message + Sample>() {
        let input = || (entropy(), prop::collection::vec((any::<usize>(), any::<u8>()), 1..4));
        for_each_version(M::NAME, M::VERSIONS, input, |version, (entropy, damage)| {
            survives::<M>(entropy.clone().into(), version)?;
            let mut bytes = encoded(&M::sample(&mut Source::new(&entropy), version), version).to_vec();
            for (place, byte) in damage {
                let place = place % bytes.len().max(1);
                if let Some(damaged) = bytes.get_mut(place) {
                    *damaged = byte;
                }
            }
            survives::<M>(bytes.into(), version)
        });
    }
    macro_rules! all { ($($name:ident,)*) => {$(one::<$name>();)*}; }
    crate::for_each_message!(all);
}

fn fetch_response() -> FetchResponse {
    let partition = |records: &'static [u8]| fetch::PartitionData {
        records: Some(Bytes::from_static(records)),
        ..Default::default()
    };
    FetchResponse {
        responses: vec![fetch::FetchableTopicResponse {
            topic_id: Uuid([7; 16]),
            partitions: vec![partition(b"one"), partition(b"two")],
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn records_are_a_slice_of_the_frame() {
    let frame = encoded(&fetch_response(), 13);
    let response = FetchResponse::decode(frame.clone(), 13).unwrap();
    let records = response.responses[0].partitions[1].records.clone().unwrap();
    assert_eq!(records, "two");
    let range = frame.as_ptr_range();
    assert!(range.contains(&records.as_ptr()), "the bytes were copied");
}

#[test]
fn an_error_says_which_field_of_which_element_is_wrong_and_where() {
    let frame = encoded(&fetch_response(), 13);
    let cut = frame.slice(..frame.len() - 5);
    assert_eq!(
        FetchResponse::decode(cut, 13).unwrap_err().to_string(),
        "FetchResponse version 13: responses[0].partitions[1].records: byte 104: \
         the value takes 3 bytes, and 1 are left"
    );
    assert_eq!(
        FetchResponse::decode(frame, 19).unwrap_err().to_string(),
        "FetchResponse version 19: byte 0: this version is not known; the known ones are 4 to 18"
    );
}

#[test]
fn a_count_is_believed_only_as_far_as_the_bytes_left_can_bear_it() {
    // Throttle time, then 2^31 - 1 brokers.
    let bytes = Bytes::from_static(&[0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let error = MetadataResponse::decode(bytes, 3).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::CountTooLarge { count: i32::MAX as usize, left: 4 });
    assert_eq!((error.field.as_str(), error.offset), ("brokers", 8));
}

#[test]
fn a_field_that_a_version_lacks_is_dropped_if_ignorable_and_else_an_error() {
    let request = FetchRequest { rack_id: "a".to_owned(), ..Default::default() };
    assert_eq!(FetchRequest::decode(encoded(&request, 10), 10).unwrap().rack_id, "");

    let request = MetadataRequest { allow_auto_topic_creation: false, ..Default::default() };
    let mut out = BytesMut::from(&b"before"[..]);
    let error = request.encode(3, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MetadataRequest version 3: allow_auto_topic_creation: this version has no such field, and its value \
         matters"
    );
    assert_eq!(out, "before", "a failed encoding writes nothing");
}

#[test]
fn null_is_an_error_where_the_version_has_none() {
    let request = MetadataRequest { topics: None, ..Default::default() };
    let error = request.encode(0, &mut BytesMut::new()).unwrap_err();
    assert_eq!(error.to_string(), "MetadataRequest version 0: topics: null where this version allows none");
    assert_eq!(MetadataRequest::decode(encoded(&request, 1), 1).unwrap().topics, None);
    let error = MetadataRequest::decode(Bytes::from_static(&[0xff; 4]), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::UnexpectedNull);
}

#[test]
fn unknown_tagged_fields_are_kept_and_written_between_the_known_ones() {
    let field = |tag| TaggedField { tag, value: Bytes::from_static(b"x") };
    let response = ApiVersionsResponse {
        finalized_features_epoch: 5,
        zk_migration_ready: true,
        unknown_tagged_fields: vec![field(4), field(200)],
        ..Default::default()
    };
    let bytes = encoded(&response, 3);
    assert_eq!(ApiVersionsResponse::decode(bytes, 3).unwrap(), response);

    let taken = ApiVersionsResponse { unknown_tagged_fields: vec![field(1)], ..response.clone() };
    let error = taken.encode(3, &mut BytesMut::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ApiVersionsResponse version 3: unknown_tagged_fields: the unknown tagged field 1 is out of order, or a \
         field of this version"
    );
    assert!(response.encode(2, &mut BytesMut::new()).is_err(), "version 2 has no tagged fields");
}

#[test]
fn tags_must_grow_and_a_tagged_field_must_fill_its_length() {
    // No error, no keys, no throttle time, then the tagged fields.
    let decode = |tagged: &[u8]| {
        ApiVersionsResponse::decode([&[0, 0, 1, 0, 0, 0, 0], tagged].concat().into(), 3)
            .map_err(|error| error.kind)
    };
    assert!(decode(&[2, 3, 1, 1, 9, 0]).is_ok());
    assert_eq!(decode(&[2, 9, 0, 3, 1, 1]), Err(DecodeErrorKind::TagOrder { tag: 3, previous: 9 }));
    assert_eq!(decode(&[2, 9, 0, 9, 0]), Err(DecodeErrorKind::TagOrder { tag: 9, previous: 9 }));
    assert_eq!(decode(&[1, 3, 2, 1, 1]), Err(DecodeErrorKind::TrailingBytes(1)));
    assert_eq!(decode(&[1, 3, 0]), Err(DecodeErrorKind::Truncated { needed: 1, left: 0 }));
}

#[test]
fn headers_follow_the_flexible_versions_but_for_the_answer_to_api_versions() {
    assert_eq!(ApiKey::Metadata.request_header_version(8), 1);
    assert_eq!(ApiKey::Metadata.request_header_version(9), 2);
    assert_eq!(ApiKey::Metadata.response_header_version(9), 1);
    assert_eq!(ApiKey::SaslHandshake.request_header_version(1), 1);
    assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
    assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
    for key in ApiKey::ALL {
        assert_eq!(ApiKey::from_code(key.code()), Some(*key));
        let Some(versions) = key.versions() else { continue };
        let Ok(theirs) = kafka_protocol::messages::ApiKey::try_from(key.code()) else { continue };
        for version in versions.iter().filter(|version| theirs.valid_versions().max >= *version) {
            assert_eq!(key.request_header_version(version), theirs.request_header_version(version), "{key}");
            assert_eq!(
                key.response_header_version(version),
                theirs.response_header_version(version),
                "{key}"
            );
        }
    }
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let request =
        SaslAuthenticateRequest { auth_bytes: Bytes::from_static(b"\0user\0hunter2"), ..Default::default() };
    assert_eq!(format!("{request:?}"), "SaslAuthenticateRequest { auth_bytes: 13 bytes, .. }");
    assert_eq!(MetadataRequest::API_KEY, ApiKey::Metadata);
}

//! Answers that refuse, and answers that are none.

use std::ops::ControlFlow;
use std::time::Duration;

use strandline_client::reader::{PartitionReader, ReadErrorKind, ReadPosition, ReaderConfig};
use strandline_protocol::{ApiKey, ErrorCode, VersionRange};
use strandline_testkit::embedded::{Acl, Fault, Operation, Rule};

use tokio::time::Instant;

use crate::support::{asked, brisk, chain, connect, kafka, read, reader, soon};

#[tokio::test]
async fn what_passes_by_itself_is_waited_for() {
    let passing = [
        Fault::Error(ErrorCode::NotLeaderOrFollower),
        Fault::Error(ErrorCode::KafkaStorageError),
        Fault::Error(ErrorCode::UnknownLeaderEpoch),
        Fault::Error(ErrorCode::FencedLeaderEpoch),
        Fault::Error(ErrorCode::OffsetNotAvailable),
        Fault::Error(ErrorCode::ReplicaNotAvailable),
        Fault::Error(ErrorCode::UnknownTopicId),
        Fault::Error(ErrorCode::CorruptMessage),
        Fault::Close,
        Fault::CloseAfter(9),
        Fault::ApplyThenLose,
        Fault::Throttle(Duration::from_millis(20)),
        Fault::Trickle { bytes: 16, pause: Duration::from_millis(1) },
        Fault::WrongCorrelationId,
        Fault::Twice,
        Fault::Drop,
        Fault::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        Fault::Garbage(vec![0xff; 64]),
    ];
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    for fault in passing {
        let config = ReaderConfig { request_timeout: Duration::from_millis(500), ..brisk() };
        let mut reader = reader(&cluster, 0, config).await;
        let name = format!("{fault:?}");
        kafka.script(Rule::new(fault).api(ApiKey::Fetch).times(2));
        let (lines, stop) = read(&mut reader).await;
        assert_eq!((lines.join(", ").as_str(), stop.map(|stop| chain(&stop))), ("0 a", None), "{name}");
        kafka.clear_script();
    }
}

#[tokio::test]
async fn a_batch_that_the_broker_itself_calls_corrupt_is_asked_for_a_few_times_and_then_told() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    kafka.script(Rule::new(Fault::Error(ErrorCode::CorruptMessage)).api(ApiKey::Fetch).always());
    let mut reader = reader(&cluster, 0, brisk()).await;
    let (_, stop) = read(&mut reader).await;
    let stop = stop.expect("it stays corrupt");
    let text = chain(&stop).replace(&kafka.bootstrap(), "ADDRESS");
    insta::assert_snapshot!(text, @"orders:0: offset 0 was refused 6 times in a row: broker 1 (ADDRESS) answered CORRUPT_MESSAGE");
    assert_eq!(asked(&kafka, ApiKey::Fetch), 6);
}

#[tokio::test]
async fn a_missing_right_is_named_and_the_reading_stops() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let anonymous = "User:ANONYMOUS";
    let cluster = connect(&kafka).await;
    kafka.set_acls(Some(vec![Acl::topic(anonymous, "orders", Operation::Describe)]));
    let mut reader = reader(&cluster, 0, brisk()).await;
    let (_, stop) = read(&mut reader).await;
    let stop = stop.expect("READ is missing");
    assert_eq!(chain(&stop), "orders:0: no right to read: READ on the topic is missing");
    assert!(matches!(stop.kind, ReadErrorKind::Forbidden { right: "READ" }) && stop.is_stop());

    kafka.set_acls(Some(Vec::new()));
    let hidden = PartitionReader::open(&cluster, "orders", 0, ReadPosition::at(0), brisk(), soon()).await;
    let hidden = hidden.expect_err("DESCRIBE is missing");
    assert_eq!(chain(&hidden), "orders:0: no right to read: DESCRIBE on the topic is missing");
    // READ holds DESCRIBE.
    kafka.set_acls(Some(vec![Acl::topic(anonymous, "orders", Operation::Read)]));
    reader.seek(ReadPosition::at(0));
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
}

#[tokio::test]
async fn a_version_that_is_not_served_and_a_code_that_no_waiting_cures_are_told_at_once() {
    let kafka = kafka(1);
    let cluster = connect(&kafka).await;
    for code in [ErrorCode::UnsupportedVersion, ErrorCode::UnknownServerError, ErrorCode::InvalidRequest] {
        kafka.script(Rule::new(Fault::Error(code)).api(ApiKey::Fetch).always());
        let mut reader = reader(&cluster, 0, brisk()).await;
        let before = asked(&kafka, ApiKey::Fetch);
        let (_, stop) = read(&mut reader).await;
        let stop = stop.expect("it is refused");
        let unsupported = matches!(stop.kind, ReadErrorKind::Unsupported { .. });
        let failed = matches!(stop.kind, ReadErrorKind::Cluster { .. });
        assert!(if code == ErrorCode::UnsupportedVersion { unsupported } else { failed }, "{stop:?}");
        assert!(chain(&stop).ends_with(&code.to_string()), "{}", chain(&stop));
        assert_eq!(asked(&kafka, ApiKey::Fetch) - before, 1);
        kafka.clear_script();
    }
    // Frames that hold a correlation id and no Fetch answer. One with a wrong id ends its connection, the one with the right id
    // ends the reading.
    let mut reader = reader(&cluster, 0, brisk()).await;
    for correlation_id in 0..20_u8 {
        let frame = vec![0, 0, 0, 4, 0, 0, 0, correlation_id];
        kafka.script(Rule::new(Fault::Garbage(frame)).api(ApiKey::Fetch));
    }
    let (_, stop) = read(&mut reader).await;
    assert!(chain(&stop.expect("it is no answer")).contains("malformed"));
}

#[tokio::test]
async fn a_partition_that_the_topic_does_not_have_is_told() {
    let kafka = kafka(1);
    let cluster = connect(&kafka).await;
    for partition in [1, -1, i32::MAX] {
        let none = PartitionReader::open(&cluster, "orders", partition, ReadPosition::at(0), brisk(), soon());
        let none = none.await.expect_err("there is one partition");
        assert!(matches!(none.kind, ReadErrorKind::NoSuchPartition { count: 1 }), "{none:?}");
    }
}

#[tokio::test]
async fn without_topic_ids_the_topic_is_fetched_by_name_and_its_partition_found_in_the_answer() {
    let kafka = kafka(2);
    // What servers that only speak Kafka's protocol tell: no topic ids.
    for broker in [1, 2] {
        kafka.limit_versions(broker, ApiKey::Metadata, Some(VersionRange { first: 4, last: 9 }));
    }
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!((read(&mut reader).await.0, reader.topic_id()), (vec!["0 a".to_owned()], None));
    let versions: Vec<i16> = kafka
        .journal()
        .iter()
        .filter(|entry| entry.api == ApiKey::Fetch)
        .map(|entry| entry.version)
        .collect();
    assert!(!versions.is_empty() && versions.iter().all(|version| *version <= 12), "{versions:?}");
}

#[tokio::test]
async fn a_broker_without_fetch_is_told_at_once() {
    let kafka = kafka(1);
    kafka.limit_versions(1, ApiKey::Fetch, None);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    let (_, stop) = read(&mut reader).await;
    let stop = stop.expect("it cannot be served");
    assert!(matches!(stop.kind, ReadErrorKind::Unsupported { .. }), "{stop:?}");
}

#[tokio::test]
async fn a_throttle_is_waited_for_within_the_deadline_and_is_no_silence() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    // The broker's pause is longer than an answer may take.
    let pause = Duration::from_millis(900);
    let config = ReaderConfig { request_timeout: Duration::from_millis(200), ..brisk() };
    let mut reader = reader(&cluster, 0, config).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    kafka.append("orders", 0, &[b"b"]);
    kafka.script(Rule::new(Fault::Throttle(pause)).api(ApiKey::Fetch));
    let began = Instant::now();
    let connections = kafka.connections();
    // The broker tells the pause with an answer that has no records.
    let late = reader.next_page(began + Duration::from_millis(100), |_| ControlFlow::Continue(())).await;
    let late = late.expect_err("the broker wants to be left alone");
    assert!(!late.is_stop(), "{}", chain(&late));
    assert_eq!(read(&mut reader).await.0, ["1 b"]);
    assert!(began.elapsed() >= pause.mul_f64(0.5), "{:?}", began.elapsed());
    assert_eq!(kafka.connections(), connections, "a pause that was asked for is no reason to dial");
}

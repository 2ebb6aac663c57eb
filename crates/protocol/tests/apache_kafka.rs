//! The messages against a real Apache Kafka: every version that both sides know is asked and answered, and the
//! answer, written again, is the same bytes.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use strandline_protocol::messages::{describe_configs, fetch, find_coordinator, list_offsets, metadata, *};
use strandline_protocol::{Message, Request, VersionRange};
use strandline_testkit::apache::{ApacheKafka, Options, READER};

const METADATA_TOPIC: &str = "__remote_log_metadata";

fn api_versions_request() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "strandline".to_owned(),
        client_software_version: "0.1.0".to_owned(),
        ..Default::default()
    }
}

/// One connection, one request at a time.
struct Peer {
    stream: TcpStream,
    api_versions: ApiVersionsResponse,
    correlation_id: i32,
}

impl Peer {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut peer = Self { stream, api_versions: ApiVersionsResponse::default(), correlation_id: 0 };
        peer.api_versions = peer.call(3, &api_versions_request());
        peer
    }

    fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.correlation_id += 1;
        let header = RequestHeader {
            request_api_key: R::API_KEY.code(),
            request_api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some("strandline-test".to_owned()),
            ..Default::default()
        };
        let mut frame = BytesMut::from(&[0; 4][..]);
        header.encode(R::API_KEY.request_header_version(version), &mut frame).unwrap();
        request.encode(version, &mut frame).unwrap();
        let length = frame.len() as u32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).unwrap();

        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut answer).unwrap();
        let mut answer = Bytes::from(answer);
        let header_version = R::API_KEY.response_header_version(version);
        let header = ResponseHeader::decode_prefix(&mut answer, header_version).unwrap();
        assert_eq!(header.correlation_id, self.correlation_id);
        let response = R::Response::decode(answer.clone(), version).unwrap();
        let mut again = BytesMut::new();
        response.encode(version, &mut again).unwrap();
        assert_eq!(again, answer, "{} version {version} is written differently", R::NAME);
        response
    }

    /// Asks in every version that both sides know.
    fn each<R: Request>(&mut self, request: impl Fn(i16) -> R, check: impl Fn(R::Response, i16)) {
        let theirs = self.api_versions.api_keys.iter().find(|key| key.api_key == R::API_KEY.code());
        let theirs = theirs.unwrap_or_else(|| panic!("the broker has no {}", R::API_KEY));
        let theirs = VersionRange { first: theirs.min_version, last: theirs.max_version };
        for version in R::VERSIONS.intersect(theirs).unwrap().iter() {
            let response = self.call(version, &request(version));
            check(response, version);
        }
    }
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn every_version_of_every_message_is_understood_and_written_as_a_broker_writes_it() {
    let kafka = ApacheKafka::start(Options::default()).unwrap();
    let mut peer = Peer::connect(&kafka.bootstrap());
    peer.each(|_| api_versions_request(), |response, _| assert!(response.api_keys.len() > 50));

    peer.each(
        |version| MetadataRequest {
            topics: (version == 0).then(Vec::new),
            // Version 3 and older cannot forbid it; all topics are asked for, and exist.
            allow_auto_topic_creation: version < 4,
            ..Default::default()
        },
        |response, version| {
            let topic = response.topics.iter().find(|topic| topic.name.as_deref() == Some(METADATA_TOPIC));
            assert!(!topic.unwrap().partitions.is_empty(), "version {version}");
        },
    );
    let topic = peer.call(
        12,
        &MetadataRequest {
            topics: Some(vec![metadata::MetadataRequestTopic {
                name: Some(METADATA_TOPIC.to_owned()),
                ..Default::default()
            }]),
            allow_auto_topic_creation: false,
            ..Default::default()
        },
    );
    let topic_id = topic.topics[0].topic_id;
    assert!(!topic_id.is_zero());

    peer.each(|_| DescribeClusterRequest::default(), |response, _| assert_eq!(response.brokers.len(), 1));
    peer.each(
        |_| DescribeLogDirsRequest { topics: None, ..Default::default() },
        |response, _| assert!(!response.results[0].topics.is_empty()),
    );
    peer.each(
        |version| DescribeConfigsRequest {
            resources: vec![describe_configs::DescribeConfigsResource {
                resource_type: 2, // a topic
                resource_name: METADATA_TOPIC.to_owned(),
                configuration_keys: None,
                ..Default::default()
            }],
            include_synonyms: true,
            include_documentation: version >= 3,
            ..Default::default()
        },
        |response, _| {
            let configs = &response.results[0].configs;
            assert!(configs.iter().any(|config| config.name == "cleanup.policy"));
        },
    );
    peer.each(
        |_| ListOffsetsRequest {
            replica_id: -1,
            topics: vec![list_offsets::ListOffsetsTopic {
                name: METADATA_TOPIC.to_owned(),
                partitions: vec![list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() }],
                ..Default::default()
            }],
            ..Default::default()
        },
        |response, _| {
            let partition = &response.topics[0].partitions[0];
            assert!(!partition.error_code.is_error() && partition.offset >= 0);
        },
    );
    peer.each(
        |version| OffsetForLeaderEpochRequest {
            replica_id: if version >= 3 { -1 } else { -2 },
            topics: vec![offset_for_leader_epoch::OffsetForLeaderTopic {
                topic: METADATA_TOPIC.to_owned(),
                partitions: vec![offset_for_leader_epoch::OffsetForLeaderPartition::default()],
                ..Default::default()
            }],
            ..Default::default()
        },
        |response, _| assert!(!response.topics[0].partitions[0].error_code.is_error()),
    );
    peer.each(
        |_| FetchRequest {
            max_wait_ms: 1,
            topics: vec![fetch::FetchTopic {
                topic: METADATA_TOPIC.to_owned(),
                topic_id,
                partitions: vec![fetch::FetchPartition {
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        },
        |response, version| {
            let topic = &response.responses[0];
            assert!(!topic.partitions[0].error_code.is_error());
            match version {
                ..13 => assert_eq!(topic.topic, METADATA_TOPIC),
                _ => assert_eq!(topic.topic_id, topic_id),
            }
        },
    );
    peer.each(
        |_| DescribeProducersRequest {
            topics: vec![describe_producers::TopicRequest {
                name: METADATA_TOPIC.to_owned(),
                partition_indexes: vec![0],
                ..Default::default()
            }],
            ..Default::default()
        },
        |response, _| assert!(!response.topics[0].partitions[0].error_code.is_error()),
    );
    peer.each(|_| ListTransactionsRequest::default(), |response, _| assert!(!response.error_code.is_error()));
    peer.each(
        |version| FindCoordinatorRequest {
            key: if version < 4 { "a group".to_owned() } else { String::new() },
            coordinator_keys: if version < 4 { Vec::new() } else { vec!["a group".to_owned()] },
            ..Default::default()
        },
        |response, version| {
            // The topic of the coordinators may still be in the making.
            let key = |coordinator: &find_coordinator::Coordinator| coordinator.key.clone();
            let expected: &[&str] = if version < 4 { &[] } else { &["a group"] };
            assert_eq!(response.coordinators.iter().map(key).collect::<Vec<_>>(), expected);
        },
    );

    // Before it has authenticated, a client may ask for the versions once.
    let mut peer = Peer::connect(&kafka.sasl());
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    let response = peer.call(1, &handshake);
    assert!(response.mechanisms.contains(&"PLAIN".to_owned()), "{response:?}");
    let (name, password) = READER;
    let auth_bytes = format!("\0{name}\0{password}").into();
    let response = peer.call(2, &SaslAuthenticateRequest { auth_bytes, ..Default::default() });
    assert!(!response.error_code.is_error(), "{response:?}");
}

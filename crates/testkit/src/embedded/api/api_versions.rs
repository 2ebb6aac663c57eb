//! ApiVersions.
//!
//! - Versions: 0 to 4, with Kafka 4.4 to 5.
//! - Kept: a version that is not served is answered in version 0 with UNSUPPORTED_VERSION and the row of ApiVersions
//!   alone (KIP-511). The rows are those of the APIs served. From version 3 on the client's software has to have a name and a
//!   version (INVALID_REQUEST), and features are told, those of a cluster made with this Kafka. Version 5 with another cluster id or
//!   broker id than this broker's is refused with REBOOTSTRAP_REQUIRED, and with one of the two alone with INVALID_REQUEST
//!   (KIP-1242).
//! - Left out: features never change.

use bytes::{Bytes, BytesMut};
use strandline_protocol::messages::api_versions::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use strandline_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use strandline_protocol::{ApiKey, ErrorCode, Message as _};

use super::{Answer, Call, KafkaVersion, from_state, served_by};
use crate::embedded::state::State;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    from_state(call, body, respond)
}

/// Features that a Kafka knows, from level to level, and the level at which they are (0: off).
///
/// Source: what Kafka 3.9.1, 4.0.0, 4.3.1 and 4.4.0 answer.
#[rustfmt::skip]
const FEATURES: &[(KafkaVersion, &str, i16, i16, i16)] = &[
    (KafkaVersion::V3_9, "kraft.version", 0, 1, 0),
    (KafkaVersion::V3_9, "metadata.version", 1, 21, 21),
    (KafkaVersion::V4_0, "eligible.leader.replicas.version", 0, 1, 0),
    (KafkaVersion::V4_0, "group.version", 0, 1, 1),
    (KafkaVersion::V4_0, "kraft.version", 0, 1, 0),
    (KafkaVersion::V4_0, "metadata.version", 7, 25, 25),
    (KafkaVersion::V4_0, "transaction.version", 0, 2, 2),
    (KafkaVersion::V4_3, "eligible.leader.replicas.version", 0, 1, 1),
    (KafkaVersion::V4_3, "group.version", 0, 1, 1),
    (KafkaVersion::V4_3, "kraft.version", 0, 1, 0),
    (KafkaVersion::V4_3, "metadata.version", 7, 30, 30),
    (KafkaVersion::V4_3, "share.version", 0, 1, 1),
    (KafkaVersion::V4_3, "streams.version", 0, 1, 1),
    (KafkaVersion::V4_3, "transaction.version", 0, 2, 2),
    (KafkaVersion::V4_4, "eligible.leader.replicas.version", 0, 1, 1),
    (KafkaVersion::V4_4, "group.version", 0, 1, 1),
    (KafkaVersion::V4_4, "kraft.version", 0, 1, 0),
    (KafkaVersion::V4_4, "metadata.version", 7, 33, 33),
    (KafkaVersion::V4_4, "share.version", 0, 2, 2),
    (KafkaVersion::V4_4, "streams.version", 0, 1, 1),
    (KafkaVersion::V4_4, "transaction.version", 0, 2, 2),
];

/// The first version that names the client's software and tells features.
const NAMED: i16 = 3;

fn respond(call: &Call, state: &mut State, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let error_code = match call.check() {
        Err(code) => code,
        Ok(()) => refusal(call, state, &request),
    };
    let mut response =
        ApiVersionsResponse { throttle_time_ms: call.throttle_ms, error_code, ..served(call, state) };
    if error_code != ErrorCode::None {
        response.api_keys.clear();
        return response;
    }
    call.connection.authentication().versions_told();
    if call.version >= NAMED {
        let features = FEATURES.iter().filter(|(kafka, ..)| *kafka == call.shared.version);
        for (_, name, min_version, max_version, level) in features {
            response.supported_features.push(SupportedFeatureKey {
                name: (*name).to_owned(),
                min_version: *min_version,
                max_version: *max_version,
                ..SupportedFeatureKey::default()
            });
            if *level > 0 {
                response.finalized_features.push(FinalizedFeatureKey {
                    name: (*name).to_owned(),
                    min_version_level: *level,
                    max_version_level: *level,
                    ..FinalizedFeatureKey::default()
                });
            }
        }
        response.finalized_features_epoch = 1;
    }
    response
}

fn refusal(call: &Call, state: &State, request: &ApiVersionsRequest) -> ErrorCode {
    let names = [&request.client_software_name, &request.client_software_version];
    if call.version >= NAMED && !names.into_iter().all(|name| is_software_name(name)) {
        return ErrorCode::InvalidRequest;
    }
    match (&request.cluster_id, request.node_id) {
        (None, -1) => ErrorCode::None,
        (None, _) | (Some(_), -1) => ErrorCode::InvalidRequest,
        (Some(cluster), broker) if *cluster == state.cluster_id && broker == call.broker => ErrorCode::None,
        _ => ErrorCode::RebootstrapRequired,
    }
}

/// Source: `ApiVersionsRequest#isValid`.
fn is_software_name(name: &str) -> bool {
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    outer(bytes.first())
        && outer(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

fn served(call: &Call, state: &State) -> ApiVersionsResponse {
    let row = |api: &ApiKey| {
        let range = served_by(call, state, *api)?;
        let (api_key, min_version, max_version) = (api.code(), range.first, range.last);
        Some(ApiVersion { api_key, min_version, max_version, ..ApiVersion::default() })
    };
    let api_keys = ApiKey::ALL.iter().filter_map(row).collect();
    ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }
}

/// The answer to a version that is not served.
pub(super) fn unknown_version(call: &Call) -> Answer {
    let mut response = served(call, &call.shared.state());
    response.api_keys.retain(|row| row.api_key == ApiKey::ApiVersions.code());
    response.error_code = ErrorCode::UnsupportedVersion;
    let mut out = BytesMut::new();
    response.encode(0, &mut out).expect("version 0 can say rows and a code");
    Answer::OldestBody(out.freeze())
}

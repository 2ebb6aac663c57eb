//! What keeps a cluster from being reached: as an exit code, and what to do about it.

use std::sync::Arc;

use strandline_conn::{CloseReason, ConnectError, ConnectStep, Recovery};
use strandline_meta::RefreshError;

use crate::exit::{Exit, Failure};

const NO_BROKER: &str =
    "what answers there is no Kafka broker: check host and port against the `listeners` of the brokers";

/// True where the bytes that came were none of Kafka's protocol.
fn is_foreign(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::FrameLength { .. }
            | CloseReason::NotKafka(_)
            | CloseReason::CorrelationId { .. }
            | CloseReason::Malformed { .. }
    )
}

/// What to check after a connection that could not be made.
pub(crate) fn connect_hint(error: &ConnectError) -> Option<&'static str> {
    match error {
        ConnectError::TlsMismatch { configured_tls: true, .. } => Some(
            "the listener speaks plaintext: -X security.protocol=PLAINTEXT (or SASL_PLAINTEXT), or another port",
        ),
        ConnectError::TlsMismatch { configured_tls: false, .. } => {
            Some("the listener speaks TLS: -X security.protocol=SSL (or SASL_SSL), or another port")
        }
        ConnectError::Unreachable { .. } => Some("is the broker running, and is this its client port?"),
        ConnectError::NotKafka { .. } | ConnectError::Malformed { .. } => Some(NO_BROKER),
        ConnectError::Closed { source, .. } if is_foreign(source) => Some(NO_BROKER),
        ConnectError::TimedOut { step: ConnectStep::Versions | ConnectStep::Tls, .. } => Some(
            "it takes connections and says nothing: is this the port of a Kafka listener? A broker that hangs, a proxy \
             whose broker is gone and a program that waits to be spoken to in another way all look like this",
        ),
        ConnectError::Closed { .. } => {
            Some("a listener that wants SASL or TLS ends other connections: check security.protocol")
        }
        ConnectError::Tls { .. } => Some(
            "ssl.truststore.location (or ssl.ca.location) names the PEM file of the authority that signed the \
             broker's certificate; the certificate has to name the host that is dialled",
        ),
        ConnectError::NoSasl { .. } => Some(
            "leave SASL out: -X security.protocol=PLAINTEXT (or SSL), or use the port of the SASL listener",
        ),
        _ => None,
    }
}

/// What a command ends with whose connection could not be made: 3 for settings, 4 for credentials, else 5.
pub(crate) fn connect_exit(error: &ConnectError) -> Exit {
    match (error, error.recovery()) {
        (ConnectError::TlsConfig(_), _) => Exit::Configuration,
        (_, Recovery::Authenticate | Recovery::Forbidden) => Exit::Rights,
        _ => Exit::Unreachable,
    }
}

/// What keeps the cluster from being found, as an exit code: 3 for settings, 4 for credentials and rights, else 5.
pub(crate) fn refresh_failure(error: &RefreshError) -> Failure {
    let recovery = error.recovery();
    let error = anyhow::Error::new(error.clone());
    let connect = error.chain().find_map(|cause| {
        cause
            .downcast_ref::<ConnectError>()
            .or_else(|| cause.downcast_ref::<Arc<ConnectError>>().map(|error| &**error))
    });
    if let Some(ConnectError::TlsConfig(_)) = connect {
        return Failure::configuration(error);
    }
    let wants_credentials = error.chain().any(|cause| {
        let reason = cause.downcast_ref::<CloseReason>();
        let reason = reason.or_else(|| cause.downcast_ref::<Arc<CloseReason>>().map(|reason| &**reason));
        matches!(reason, Some(CloseReason::ClosedUnauthenticated))
    });
    let hint = connect.and_then(connect_hint).or_else(|| {
        wants_credentials.then_some(
            "for a SASL listener: -X security.protocol=SASL_PLAINTEXT (or SASL_SSL), sasl.mechanism, sasl.username \
             and sasl.password; or use another port",
        )
    });
    let failure = match recovery {
        Recovery::Authenticate | Recovery::Forbidden => Failure::rights(error),
        _ if wants_credentials => Failure::rights(error),
        _ => Failure::unreachable(error),
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

//! SaslAuthenticate.
//!
//! - Versions: 0 to 2.
//! - Kept: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (a token that is not accepted is told in JSON, and refused
//!   when the client has heard it); wrong credentials are SASL_AUTHENTICATION_FAILED, with a broker's words, and the connection
//!   closes; out of order it closes without an answer, and after an authentication it is ILLEGAL_SASL_STATE; the session's lifetime
//!   is told from version 1 on and holds: afterwards only SASL is answered. It is renewed by the same mechanism for the
//!   same principal (KIP-368).
//! - Left out: what a token says, delegation tokens; a broker refuses wrong credentials after a tenth of a second, this at once.

use std::time::Duration;

use bytes::Bytes;
use strandline_protocol::Message as _;
use strandline_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse};

use super::{Answer, Call, encoded, last};
use crate::embedded::sasl::Failure;

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let Ok(request) = SaslAuthenticateRequest::decode(body, call.version) else { return Answer::Close };
    let nonce = call.shared.state().random.uuid().to_string();
    let step = match call.check() {
        Err(code) => Err(Failure::Told(code, "as the script says".to_owned())),
        Ok(()) => call.connection.authentication().step(&request.auth_bytes, &nonce),
    };
    match step {
        Ok(step) => encoded(
            call,
            &SaslAuthenticateResponse {
                auth_bytes: step.bytes.into(),
                session_lifetime_ms: if call.version >= 1 { millis(step.lifetime) } else { 0 },
                ..SaslAuthenticateResponse::default()
            },
        ),
        Err(Failure::Closed) => Answer::Close,
        Err(Failure::Told(error_code, message)) => {
            let refused = encoded(
                call,
                &SaslAuthenticateResponse {
                    error_code,
                    error_message: Some(message),
                    ..SaslAuthenticateResponse::default()
                },
            );
            if call.connection.authentication().is_done() { refused } else { last(refused) }
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

//! SaslHandshake.
//!
//! - Versions: 0 to 1.
//! - Kept: the mechanisms on offer; another one is UNSUPPORTED_SASL_MECHANISM and the connection closes; on a listener
//!   without SASL, and after an authentication that holds for ever, it is ILLEGAL_SASL_STATE and the connection lives on. After
//!   version 0 the mechanism's tokens come as frames of their own, and a wrong one is answered with nothing. It comes again on a
//!   living connection where sessions have an end (KIP-368).
//! - Left out: a broker takes no second renewal within a second of the one before.

use bytes::Bytes;
use strandline_protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};
use strandline_protocol::{ErrorCode, Message as _};

use super::{Answer, Call, encoded, last};

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let Ok(request) = SaslHandshakeRequest::decode(body, call.version) else { return Answer::Close };
    let (error_code, mechanisms) = match call.check() {
        Err(code) => (code, Vec::new()),
        Ok(()) => call.connection.authentication().choose(&request.mechanism, call.version == 0),
    };
    let answer = encoded(call, &SaslHandshakeResponse { error_code, mechanisms });
    let lives = error_code == ErrorCode::None || call.connection.authentication().is_done();
    if lives { answer } else { last(answer) }
}

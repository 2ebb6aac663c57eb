//! SASL.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use ring::{hmac, pbkdf2};
use strandline_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::*;
use crate::handshake::printable;
use crate::{Credentials, Password, SaslConfig, TokenFile};

pub(super) fn with_sasl(sasl: fn(Credentials) -> SaslConfig) -> ConnectionConfig {
    let credentials = Credentials { username: "user".to_owned(), password: Password::new("pencil") };
    ConnectionConfig { sasl: Some(sasl(credentials)), ..default() }
}

pub(super) async fn serve_mechanism(
    peer: &mut Peer<DuplexStream>,
    code: ErrorCode,
    offered: &[&str],
) -> String {
    peer.serve_versions().await;
    let mechanisms = offered.iter().map(|name| (*name).to_owned()).collect();
    let answer = SaslHandshakeResponse { error_code: code, mechanisms };
    let request = peer.expect::<SaslHandshakeRequest>().await;
    assert_eq!(request.version, 1, "tokens travel inside SaslAuthenticate");
    peer.answer::<SaslHandshakeRequest>(&request, &answer).await;
    request.body::<SaslHandshakeRequest>().mechanism
}

pub(super) async fn serve_token(
    peer: &mut Peer<DuplexStream>,
    answer: impl Into<Bytes>,
    lifetime_ms: i64,
) -> Bytes {
    let answer = SaslAuthenticateResponse {
        auth_bytes: answer.into(),
        session_lifetime_ms: lifetime_ms,
        ..SaslAuthenticateResponse::default()
    };
    peer.serve::<SaslAuthenticateRequest>(&answer).await.auth_bytes
}

#[tokio::test(start_paused = true)]
async fn plain_sends_user_and_password_between_zero_bytes() {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let (connection, token) = tokio::join!(establish(with_sasl(SaslConfig::Plain), ours), async {
        assert_eq!(serve_mechanism(&mut peer, ErrorCode::None, &["PLAIN"]).await, "PLAIN");
        serve_token(&mut peer, "", 0).await
    });
    assert_eq!(token, b"\0user\0pencil"[..]);
    connection.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_told_in_the_brokers_words_and_are_no_network_error() {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let (connection, ()) = tokio::join!(establish(with_sasl(SaslConfig::Plain), ours), async {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        let answer = SaslAuthenticateResponse {
            error_code: ErrorCode::SaslAuthenticationFailed,
            error_message: Some("Invalid username or password\u{1b}[2J".to_owned()),
            ..SaslAuthenticateResponse::default()
        };
        peer.serve::<SaslAuthenticateRequest>(&answer).await;
    });
    let error = connection.unwrap_err();
    insta::assert_snapshot!(chain(&error), @"broker1:9092 refused the PLAIN credentials: Invalid username or password[2J");
    assert_eq!(error.recovery(), Recovery::Authenticate);
}

/// A broker that repeats all it was sent, and says `more` after it.
async fn repeat(peer: &mut Peer<DuplexStream>, more: &str) {
    let request = peer.expect::<SaslAuthenticateRequest>().await;
    let bytes = request.body::<SaslAuthenticateRequest>().auth_bytes;
    let answer = SaslAuthenticateResponse {
        error_code: ErrorCode::SaslAuthenticationFailed,
        error_message: Some(format!("not {}{more}", String::from_utf8_lossy(&bytes))),
        ..SaslAuthenticateResponse::default()
    };
    peer.answer::<SaslAuthenticateRequest>(&request, &answer).await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_repeats_a_secret_has_it_hidden() {
    let error = refused(with_sasl(SaslConfig::Plain), |mut peer| async move {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        repeat(&mut peer, ", pen\u{7}cil").await;
    });
    insta::assert_snapshot!(error.await, @"broker1:9092 refused the PLAIN credentials: not user[hidden], [hidden]");

    for in_challenge in [false, true] {
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "abc.def").unwrap();
        let sasl = SaslConfig::OAuthBearer(Arc::new(TokenFile::new(token.path())));
        let config = ConnectionConfig { sasl: Some(sasl), ..default() };
        let error = refused(config, |mut peer| async move {
            serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
            if in_challenge {
                serve_token(&mut peer, r#"{"status":"abc.def"}"#, 0).await;
            }
            repeat(&mut peer, "; abc.def").await;
        });
        let said = if in_challenge {
            r#"{"status":"[hidden]"}; not ; [hidden]"#
        } else {
            "not n,,auth=Bearer [hidden]; [hidden]"
        };
        assert_eq!(error.await, format!("broker1:9092 refused the OAUTHBEARER credentials: {said}"));
    }

    let error = refused(with_sasl(SaslConfig::ScramSha256), |mut peer| async move {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        serve_token(&mut peer, "e=pencil", 0).await;
    });
    insta::assert_snapshot!(error.await, @"broker1:9092 refused the SCRAM-SHA-256 credentials: [hidden]");
}

#[test]
fn a_secret_is_hidden_also_where_the_text_is_cut() {
    let text = format!("{}secret", "x".repeat(997));
    let cut = format!("{}[hi", "x".repeat(997));
    assert_eq!(printable(&text, &["secret", "sec", ""]), cut);
    assert_eq!(printable("secretsec.", &["sec", "secret"]), "[hidden][hidden].");
    assert_eq!(printable("an empty secret hides nothing", &[""]), "an empty secret hides nothing");
}

#[tokio::test(start_paused = true)]
async fn a_mechanism_that_is_not_offered_is_answered_with_those_that_are() {
    let error = refused(with_sasl(SaslConfig::ScramSha256), |mut peer| async move {
        serve_mechanism(&mut peer, ErrorCode::UnsupportedSaslMechanism, &["PLAIN", "GSSAPI"]).await;
    });
    insta::assert_snapshot!(error.await, @"broker1:9092 does not offer SCRAM-SHA-256; it offers PLAIN, GSSAPI");
    let error = refused(with_sasl(SaslConfig::Plain), |mut peer| async move {
        serve_mechanism(&mut peer, ErrorCode::IllegalSaslState, &[]).await;
    });
    insta::assert_snapshot!(error.await, @"broker1:9092 does not want SASL authentication");
}

/// The first half of SCRAM: the client's message without its header, and the broker's with its price.
async fn serve_scram_first(peer: &mut Peer<DuplexStream>, iterations: u32) -> (String, String) {
    let request = peer.expect::<SaslAuthenticateRequest>().await;
    let token = request.body::<SaslAuthenticateRequest>().auth_bytes;
    let bare = std::str::from_utf8(&token).unwrap().strip_prefix("n,,").unwrap().to_owned();
    let nonce = bare.strip_prefix("n=user,r=").unwrap();
    let first = format!("r={nonce}server,s={},i={iterations}", BASE64.encode(b"salt"));
    let answer = SaslAuthenticateResponse { auth_bytes: first.clone().into(), ..Default::default() };
    peer.answer::<SaslAuthenticateRequest>(&request, &answer).await;
    (bare, first)
}

#[tokio::test]
async fn hashing_a_password_holds_up_nobody_else() {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let script = async move {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        // The most that is accepted. This runtime has one thread: whoever hashed on it would give no turn to others.
        serve_scram_first(&mut peer, 1_000_000).await;
        let mut turns = 0_u64;
        let mut answer = Box::pin(peer.look(1));
        while futures::poll!(&mut answer).is_pending() {
            turns += 1;
            tokio::task::yield_now().await;
        }
        turns
    };
    let (refused, turns) = tokio::join!(establish(with_sasl(SaslConfig::ScramSha512), ours), script);
    assert!(refused.is_err(), "the broker hung up");
    assert!(turns > 1_000, "{turns} turns while the password was hashed");
}

/// A broker that knows `password`, up to its signature.
async fn serve_scram(peer: &mut Peer<DuplexStream>, password: &str, sha512: bool) {
    let (mac, algorithm, bytes) = match sha512 {
        true => (hmac::HMAC_SHA512, pbkdf2::PBKDF2_HMAC_SHA512, 64),
        false => (hmac::HMAC_SHA256, pbkdf2::PBKDF2_HMAC_SHA256, 32),
    };
    let chosen = serve_mechanism(peer, ErrorCode::None, &[]).await;
    assert_eq!(chosen, if sha512 { "SCRAM-SHA-512" } else { "SCRAM-SHA-256" });
    let (bare, first) = serve_scram_first(peer, 4_096).await;

    let request = peer.expect::<SaslAuthenticateRequest>().await;
    let token = request.body::<SaslAuthenticateRequest>().auth_bytes;
    let (without_proof, _) = std::str::from_utf8(&token).unwrap().split_once(",p=").unwrap();
    let mut salted = vec![0; bytes];
    let rounds = std::num::NonZeroU32::new(4_096).unwrap();
    pbkdf2::derive(algorithm, rounds, b"salt", password.as_bytes(), &mut salted);
    let server_key = hmac::sign(&hmac::Key::new(mac, &salted), b"Server Key");
    let exchange = format!("{bare},{first},{without_proof}");
    let signature = hmac::sign(&hmac::Key::new(mac, server_key.as_ref()), exchange.as_bytes());
    let last = format!("v={}", BASE64.encode(signature));
    let answer = SaslAuthenticateResponse { auth_bytes: last.into(), ..Default::default() };
    peer.answer::<SaslAuthenticateRequest>(&request, &answer).await;
}

#[tokio::test(start_paused = true)]
async fn scram_succeeds_only_with_a_broker_that_knows_the_password() {
    for (sasl, sha512) in
        [(SaslConfig::ScramSha256 as fn(_) -> _, false), (SaslConfig::ScramSha512 as fn(_) -> _, true)]
    {
        let (ours, theirs) = tokio::io::duplex(WIDE);
        let mut peer = Peer::new(theirs);
        let (connection, ()) =
            tokio::join!(establish(with_sasl(sasl), ours), serve_scram(&mut peer, "pencil", sha512));
        connection.unwrap();
    }
    let error = refused(with_sasl(SaslConfig::ScramSha256), |mut peer| async move {
        serve_scram(&mut peer, "wrong", false).await;
    });
    insta::assert_snapshot!(error.await, @"SCRAM-SHA-256 authentication with broker1:9092 failed: the broker's SCRAM signature is wrong: it does not know the password");
}

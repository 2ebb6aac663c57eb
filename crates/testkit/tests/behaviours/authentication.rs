//! Who a client is: PLAIN and SCRAM, right and wrong, and sessions that end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use ring::{digest, hmac, pbkdf2};
use strandline_protocol::ErrorCode;
use strandline_protocol::messages::{
    ApiVersionsRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};
use strandline_testkit::apache::{ADMIN, READER};
use tokio::time::{Duration, Instant, sleep, sleep_until};

use crate::trace::{Dialler, Trace, metadata, say};

const SHA_256: &str = "SCRAM-SHA-256";
const SHA_512: &str = "SCRAM-SHA-512";
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";

/// How long an authentication by SCRAM-SHA-256 holds on the clusters that this runs on.
pub(crate) const LIFETIME: Duration = Duration::from_millis(2_500);

/// A broker does not begin another authentication sooner after the one before.
const AGAIN_AFTER: Duration = Duration::from_millis(1_100);

/// The listener offers PLAIN to the reader, SCRAM to both.
pub(crate) async fn compare_authentication(address: &str) {
    let mut trace = Trace::connect(address).await;
    trace.order(address).await;
    trace.again(address).await;
    trace.plain(address).await;
    trace.scram(address).await;
    trace.handshake_of_old(address).await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
SaslAuthenticate v2, without a handshake: closed
  then closed
SaslHandshake v1 PLAIN: ILLEGAL_SASL_STATE []
  then closed
ApiVersions between: Ok(ILLEGAL_SASL_STATE)
ApiVersions before: Ok(NONE)
ApiVersions before: Err("closed")
SaslHandshake v1 plain: closed
  then closed
SaslAuthenticate v2, right: NONE Some("") bytes=false lifetime=0
SaslHandshake v1 after 0ns: Ok(ILLEGAL_SASL_STATE)
SaslAuthenticate v2, again: ILLEGAL_SASL_STATE Some("SaslAuthenticate request received after successful authentication") bytes=false lifetime=0
  then open
SaslAuthenticate v2, right: NONE Some("") bytes=false lifetime=0
SaslHandshake v1 after 1.1s: Ok(ILLEGAL_SASL_STATE)
SaslAuthenticate v2, again: ILLEGAL_SASL_STATE Some("SaslAuthenticate request received after successful authentication") bytes=false lifetime=0
  then open
SaslAuthenticate v2, right: NONE Some("") bytes=false lifetime=0
  then open
SaslAuthenticate v2, a wrong password: SASL_AUTHENTICATION_FAILED Some("Authentication failed: Invalid username or password") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, an unknown user: SASL_AUTHENTICATION_FAILED Some("Authentication failed: Invalid username or password") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, for itself: NONE Some("") bytes=false lifetime=0
  then open
SaslAuthenticate v2, for somebody else: SASL_AUTHENTICATION_FAILED Some("Authentication failed: Client requested an authorization id that is different from username") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, without a user: SASL_AUTHENTICATION_FAILED Some("Authentication failed: username not specified") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, without a password: SASL_AUTHENTICATION_FAILED Some("Authentication failed: password not specified") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, with two parts: SASL_AUTHENTICATION_FAILED Some("Invalid SASL/PLAIN response: expected 3 tokens, got 2") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, with four parts: SASL_AUTHENTICATION_FAILED Some("Invalid SASL/PLAIN response: expected 3 tokens, got 4") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, nothing: SASL_AUTHENTICATION_FAILED Some("Invalid SASL/PLAIN response: expected 3 tokens, got 1") bytes=false lifetime=0
  then closed
SCRAM-SHA-256, right: NONE Some("") iterations=4096 proved=true
  then open
SCRAM-SHA-512, right: NONE Some("") iterations=4096 proved=true
  then open
SCRAM-SHA-512, right: NONE Some("") iterations=4096 proved=true
  then open
SCRAM-SHA-256, a wrong password: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256") iterations=4096 proved=false
  then closed
SCRAM-SHA-512, a wrong password: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") iterations=4096 proved=false
  then closed
SCRAM-SHA-512, an unknown user: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") at the first message
  then closed
SaslAuthenticate v2, a first message, garbage: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
SaslAuthenticate v2, a first message, nothing: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
SaslAuthenticate v2, a first message, with channel binding: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
SaslAuthenticate v2, a first message, that could bind: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
SaslAuthenticate v2, a first message, for itself: NONE Some("") bytes=true lifetime=0
SaslAuthenticate v2, a first message, for somebody else: SASL_AUTHENTICATION_FAILED Some("Authentication failed: Client requested an authorization id that is different from username") bytes=false lifetime=0
SaslAuthenticate v2, a first message, without a nonce: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
SaslAuthenticate v2, a first message, with an extension: NONE Some("") bytes=true lifetime=0
SaslAuthenticate v2, a first message, with a must: NONE Some("") bytes=true lifetime=0
SaslAuthenticate v2, a last message, garbage: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, a last message, another nonce: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, a last message, another binding and a wrong proof: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, a last message, a wrong proof: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, a last message, no proof: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, a last message, a proof that is no base64: SASL_AUTHENTICATION_FAILED Some("Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512") bytes=false lifetime=0
  then closed
SaslAuthenticate v2, a last message, a short proof: closed
  then closed
SaslHandshake v0 PLAIN: NONE
a bare token, right: Ok(0)
  then open
SaslHandshake v0 PLAIN: NONE
a bare token, wrong: Err("closed")
  then closed
SaslHandshake v0 MAGIC: UNSUPPORTED_SASL_MECHANISM ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
  then closed
"#) };
}

/// The listener's authentications by SCRAM-SHA-256 hold for [`LIFETIME`], others for ever.
pub(crate) async fn compare_sessions(dialler: Dialler, address: &str) {
    let mut trace = Trace::connect_by(dialler, address).await;
    trace.renewals(address).await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
SCRAM-SHA-256, right: NONE Some("") iterations=4096 proved=true
  for Some(2500) ms
  then open
SCRAM-SHA-256, the same again: NONE Some("") iterations=4096 proved=true
  for Some(2500) ms
  then open
  after the first one's end
  then open
  after the second one's end
  then closed
SCRAM-SHA-256, right: NONE Some("") iterations=4096 proved=true
  for Some(2500) ms
  then open
SCRAM-SHA-512, by another mechanism: closed at the first message
  for None ms
  then closed
SCRAM-SHA-256, right: NONE Some("") iterations=4096 proved=true
  for Some(2500) ms
  then open
SCRAM-SHA-256, somebody else: SASL_AUTHENTICATION_FAILED Some("Cannot change principals during re-authentication from User.admin: User.reader") iterations=4096 proved=false
  for Some(0) ms
  then closed
SCRAM-SHA-256, right: NONE Some("") iterations=4096 proved=true
  for Some(2500) ms
  then open
SCRAM-SHA-256, a wrong password: SASL_AUTHENTICATION_FAILED Some("Authentication failed during re-authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256") iterations=4096 proved=false
  for Some(0) ms
  then closed
SCRAM-SHA-256, right: NONE Some("") iterations=4096 proved=true
SaslHandshake v1 at once: Ok(NONE)
  then answered and closed
"#) };
}

impl Trace {
    /// What is asked in the wrong order.
    async fn order(&mut self, address: &str) {
        self.reconnect(address).await;
        self.token("without a handshake", b"\0reader\0reader-secret").await;
        self.is_open().await;

        self.reconnect(address).await;
        self.handshake("PLAIN").await;
        self.handshake("PLAIN").await;
        self.is_open().await;

        self.reconnect(address).await;
        self.handshake("PLAIN").await;
        let between = self.peer.try_call(3, &api_versions()).await.map(|answer| answer.error_code);
        say!(self, "ApiVersions between: {:?}", between.map_err(|_| "closed"));

        self.reconnect(address).await;
        for _ in 0..2 {
            let twice = self.peer.try_call(3, &api_versions()).await.map(|answer| answer.error_code);
            say!(self, "ApiVersions before: {:?}", twice.map_err(|_| "closed"));
        }
        self.handshake("plain").await;
        self.is_open().await;
    }

    /// Another authentication on a living connection, where the first one holds for ever.
    async fn again(&mut self, address: &str) {
        for wait in [Duration::ZERO, AGAIN_AFTER] {
            self.reconnect(address).await;
            self.handshake("PLAIN").await;
            self.token("right", b"\0reader\0reader-secret").await;
            sleep(wait).await;
            let request = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
            let answer = self.peer.try_call(1, &request).await.map(|answer| answer.error_code);
            say!(self, "SaslHandshake v1 after {wait:?}: {:?}", answer.map_err(|_| "closed"));
            self.token("again", b"\0reader\0reader-secret").await;
            self.is_open().await;
        }
    }

    async fn plain(&mut self, address: &str) {
        for (name, token) in [
            ("right", &b"\0reader\0reader-secret"[..]),
            ("a wrong password", b"\0reader\0wrong"),
            ("an unknown user", b"\0nobody\0reader-secret"),
            ("for itself", b"reader\0reader\0reader-secret"),
            ("for somebody else", b"admin\0reader\0reader-secret"),
            ("without a user", b"\0\0reader-secret"),
            ("without a password", b"\0reader\0"),
            ("with two parts", b"reader\0reader-secret"),
            ("with four parts", b"\0reader\0reader-secret\0more"),
            ("nothing", b""),
        ] {
            self.reconnect(address).await;
            self.handshake("PLAIN").await;
            self.token(name, token).await;
            self.is_open().await;
        }
    }

    async fn scram(&mut self, address: &str) {
        for (mechanism, name, (user, password)) in [
            (SHA_256, "right", ADMIN),
            (SHA_512, "right", ADMIN),
            (SHA_512, "right", READER),
            (SHA_256, "a wrong password", (ADMIN.0, "wrong")),
            (SHA_512, "a wrong password", (ADMIN.0, "wrong")),
            (SHA_512, "an unknown user", ("nobody", "wrong")),
        ] {
            self.reconnect(address).await;
            self.handshake(mechanism).await;
            self.prove(name, mechanism, user, password).await;
            self.is_open().await;
        }
        for (name, first) in [
            ("garbage", "garbage"),
            ("nothing", ""),
            ("with channel binding", "p=tls-unique,,n=admin,r=rOprNGfwEbeRWgbNEkqO"),
            ("that could bind", "y,,n=admin,r=rOprNGfwEbeRWgbNEkqO"),
            ("for itself", "n,a=admin,n=admin,r=rOprNGfwEbeRWgbNEkqO"),
            ("for somebody else", "n,a=reader,n=admin,r=rOprNGfwEbeRWgbNEkqO"),
            ("without a nonce", "n,,n=admin"),
            ("with an extension", "n,,n=admin,r=rOprNGfwEbeRWgbNEkqO,x=y"),
            ("with a must", "n,,m=must,n=admin,r=rOprNGfwEbeRWgbNEkqO"),
        ] {
            self.reconnect(address).await;
            self.handshake(SHA_512).await;
            self.token(&format!("a first message, {name}"), first.as_bytes()).await;
        }
        for (name, last) in [
            ("garbage", "garbage"),
            ("another nonce", "c=biws,r=other,p=AAAA"),
            ("another binding and a wrong proof", "c=eSws,r=NONCE,p=LONG"),
            ("a wrong proof", "c=biws,r=NONCE,p=LONG"),
            ("no proof", "c=biws,r=NONCE"),
            ("a proof that is no base64", "c=biws,r=NONCE,p=!!"),
            ("a short proof", "c=biws,r=NONCE,p=AAAA"),
        ] {
            self.reconnect(address).await;
            self.handshake(SHA_512).await;
            let first = format!("n,,n=admin,r={NONCE}");
            let answer = self.authenticate(first.as_bytes()).await.unwrap();
            let nonce = attribute(&answer.auth_bytes, 'r');
            let last = last.replace("NONCE", &nonce).replace("LONG", &BASE64.encode([7; 64]));
            self.token(&format!("a last message, {name}"), last.as_bytes()).await;
            self.is_open().await;
        }
    }

    /// Version 0: tokens come as frames of their own.
    async fn handshake_of_old(&mut self, address: &str) {
        for (name, token) in [("right", "\0reader\0reader-secret"), ("wrong", "\0reader\0wrong")] {
            self.reconnect(address).await;
            let request = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
            let response = self.peer.call(0, &request).await;
            say!(self, "SaslHandshake v0 PLAIN: {:?}", response.error_code);
            self.peer.send_frame(token.as_bytes()).await.unwrap();
            let answer = self.peer.receive_frame().await.map(|frame| frame.len());
            say!(self, "a bare token, {name}: {:?}", answer.map_err(|_| "closed"));
            self.is_open().await;
        }
        self.reconnect(address).await;
        let request = SaslHandshakeRequest { mechanism: "MAGIC".to_owned() };
        let response = self.peer.call(0, &request).await;
        say!(self, "SaslHandshake v0 MAGIC: {:?} {:?}", response.error_code, sorted(response.mechanisms));
        self.is_open().await;
    }

    async fn renewals(&mut self, address: &str) {
        for (name, mechanism, user) in [
            ("the same again", SHA_256, ADMIN),
            ("by another mechanism", SHA_512, ADMIN),
            ("somebody else", SHA_256, READER),
            ("a wrong password", SHA_256, (ADMIN.0, "wrong")),
        ] {
            self.reconnect(address).await;
            let began = Instant::now();
            self.handshake(SHA_256).await;
            let lifetime = self.prove("right", SHA_256, ADMIN.0, ADMIN.1).await;
            say!(self, "  for {lifetime:?} ms");
            sleep_until(began + AGAIN_AFTER).await;
            self.is_open().await;
            self.handshake(mechanism).await;
            let lifetime = self.prove(name, mechanism, user.0, user.1).await;
            say!(self, "  for {lifetime:?} ms");
            self.is_open().await;
            if name == "the same again" {
                sleep_until(began + LIFETIME).await;
                say!(self, "  after the first one's end");
                self.is_open().await;
                sleep(LIFETIME).await;
                say!(self, "  after the second one's end");
                self.is_open().await;
            }
        }
        self.reconnect(address).await;
        self.handshake(SHA_256).await;
        self.prove("right", SHA_256, ADMIN.0, ADMIN.1).await;
        let at_once = SaslHandshakeRequest { mechanism: SHA_256.to_owned() };
        let answer = self.peer.try_call(1, &at_once).await.map(|answer| answer.error_code);
        say!(self, "SaslHandshake v1 at once: {:?}", answer.map_err(|_| "closed"));
        self.is_open().await;
    }

    async fn handshake(&mut self, mechanism: &str) {
        let request = SaslHandshakeRequest { mechanism: mechanism.to_owned() };
        match self.peer.try_call(1, &request).await {
            Ok(answer) if answer.error_code == ErrorCode::None => {}
            Ok(answer) => {
                let offered = sorted(answer.mechanisms);
                say!(self, "SaslHandshake v1 {mechanism}: {:?} {offered:?}", answer.error_code);
            }
            Err(_) => say!(self, "SaslHandshake v1 {mechanism}: closed"),
        }
    }

    async fn authenticate(&mut self, token: &[u8]) -> std::io::Result<SaslAuthenticateResponse> {
        let auth_bytes = Bytes::copy_from_slice(token);
        let request = SaslAuthenticateRequest { auth_bytes, ..SaslAuthenticateRequest::default() };
        self.peer.try_call(2, &request).await
    }

    async fn token(&mut self, name: &str, token: &[u8]) {
        match self.authenticate(token).await {
            Err(_) => say!(self, "SaslAuthenticate v2, {name}: closed"),
            Ok(answer) => say!(
                self,
                "SaslAuthenticate v2, {name}: {:?} {:?} bytes={} lifetime={}",
                answer.error_code,
                answer.error_message,
                !answer.auth_bytes.is_empty(),
                answer.session_lifetime_ms
            ),
        }
    }

    /// Goes through SCRAM as far as it goes; how long that holds, in milliseconds.
    async fn prove(&mut self, name: &str, mechanism: &str, user: &str, password: &str) -> Option<i64> {
        let bare = format!("n={user},r={NONCE}");
        let Ok(first) = self.authenticate(format!("n,,{bare}").as_bytes()).await else {
            say!(self, "{mechanism}, {name}: closed at the first message");
            return None;
        };
        if first.error_code != ErrorCode::None {
            let (code, message) = (first.error_code, first.error_message);
            say!(self, "{mechanism}, {name}: {code:?} {message:?} at the first message");
            return None;
        }
        let nonce = attribute(&first.auth_bytes, 'r');
        assert!(nonce.starts_with(NONCE) && nonce.len() > NONCE.len());
        let unproved = format!("c=biws,r={nonce}");
        let server_first = String::from_utf8(first.auth_bytes.to_vec()).unwrap();
        let said = format!("{bare},{server_first},{unproved}");
        let (proof, signature) = signatures(mechanism, password, &server_first, &said);
        let last = self.authenticate(format!("{unproved},p={proof}").as_bytes()).await;
        let Ok(last) = last else {
            say!(self, "{mechanism}, {name}: closed at the last message");
            return None;
        };
        let proved = last.auth_bytes == format!("v={signature}");
        let iterations = attribute(&first.auth_bytes, 'i');
        say!(
            self,
            "{mechanism}, {name}: {:?} {:?} iterations={iterations} proved={proved}",
            last.error_code,
            last.error_message
        );
        Some(last.session_lifetime_ms)
    }

    /// A request in the midst of SASL is answered before the connection closes, so it takes two.
    async fn is_open(&mut self) {
        let metadata = metadata(Some(&[]), false);
        let answered = self.peer.try_call(12, &metadata).await.is_ok();
        let open = answered && self.peer.try_call(12, &metadata).await.is_ok();
        let told = if open { "open" } else { "closed" };
        say!(self, "  then {}", if answered && !open { "answered and closed" } else { told });
    }
}

fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1".to_owned(),
        ..ApiVersionsRequest::default()
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn attribute(message: &[u8], name: char) -> String {
    let text = std::str::from_utf8(message).unwrap();
    let found = text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_default().to_owned()
}

/// The client's proof and the server's signature (RFC 5802), in base64.
fn signatures(mechanism: &str, password: &str, server_first: &str, said: &str) -> (String, String) {
    let (hmac, sha, derivation) = match mechanism {
        SHA_512 => (hmac::HMAC_SHA512, &digest::SHA512, pbkdf2::PBKDF2_HMAC_SHA512),
        _ => (hmac::HMAC_SHA256, &digest::SHA256, pbkdf2::PBKDF2_HMAC_SHA256),
    };
    let salt = BASE64.decode(attribute(server_first.as_bytes(), 's')).unwrap();
    let iterations = attribute(server_first.as_bytes(), 'i').parse().unwrap();
    let mut salted = vec![0; sha.output_len()];
    pbkdf2::derive(derivation, iterations, &salt, password.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac, key), text);
    let client_key = sign(&salted, b"Client Key");
    let stored = digest::digest(sha, client_key.as_ref());
    let signature = sign(stored.as_ref(), said.as_bytes());
    let proof: Vec<u8> = client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
    let server_key = sign(&salted, b"Server Key");
    (BASE64.encode(proof), BASE64.encode(sign(server_key.as_ref(), said.as_bytes())))
}

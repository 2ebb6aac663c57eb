//! Who a connection is: SASL as a broker speaks it (PLAIN, SCRAM, OAUTHBEARER), a state machine that owns no socket.
//!
//! Source: `SaslServerAuthenticator`, `ScramSaslServer`, `OAuthBearerSaslServer`; RFC 4616, RFC 5802, RFC 7628, KIP-368.

use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use strandline_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

/// How a SASL listener authenticates.
#[derive(Clone, Debug)]
pub struct Sasl {
    /// Names and passwords, the same for every mechanism; with OAUTHBEARER the password is the token, and what it says is
    /// not looked at.
    pub users: Vec<(String, String)>,
    /// What the broker offers.
    pub mechanisms: Vec<Mechanism>,
    /// Kafka's `connections.max.reauth.ms`: how long an authentication holds (KIP-368). Default for ever.
    pub session_lifetime: Option<Duration>,
}

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// `PLAIN`.
    Plain,
    /// `SCRAM-SHA-256`.
    ScramSha256,
    /// `SCRAM-SHA-512`.
    ScramSha512,
    /// `OAUTHBEARER`.
    OAuthBearer,
}

impl Mechanism {
    /// As Kafka spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OAuthBearer => "OAUTHBEARER",
        }
    }
}

/// Kafka's default for new SCRAM credentials.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).expect("4096 is not zero");
const SALT: &[u8] = b"a salt for tests";

/// What a connection has shown of itself.
#[derive(Debug)]
pub(crate) struct Authentication {
    sasl: Option<Sasl>,
    state: State,
    principal: Option<String>,
    /// How it was shown last: what a renewal must keep to.
    mechanism: Option<Mechanism>,
    until: Option<Instant>,
    /// Tokens come as frames of their own, since the handshake was of version 0.
    bare: bool,
}

#[derive(Debug)]
enum State {
    Start,
    /// The versions were told, once.
    Versioned,
    Chosen(Mechanism),
    Proving(Proof),
    /// A token was not accepted: the client has been told and says that it has heard it.
    Refusing,
    Done,
}

/// What a SCRAM client has to prove.
#[derive(Debug)]
struct Proof {
    mechanism: Mechanism,
    user: String,
    salted: Vec<u8>,
    nonce: String,
    /// The client's first message without its header, and the server's.
    said: String,
}

/// A step that went well.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lifetime: Duration,
}

/// What becomes of a request on a connection in its present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Answer,
    /// It is answered with ILLEGAL_SASL_STATE, and the connection closes.
    Refuse,
    Close,
}

/// How a step ends a connection: with an answer, or without one.
#[derive(Debug)]
pub(crate) enum Failure {
    Told(ErrorCode, String),
    Closed,
}

impl Authentication {
    /// `certified` is who TLS says the client is; SASL, where it is spoken, says it anew.
    pub(crate) fn new(sasl: Option<Sasl>, certified: Option<String>) -> Self {
        let (state, principal) = if sasl.is_some() { (State::Start, None) } else { (State::Done, certified) };
        Self { sasl, state, principal, mechanism: None, until: None, bare: false }
    }

    /// `User:NAME`, once it is known.
    pub(crate) fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// True if the next frame is a token and no request.
    pub(crate) fn wants_bare_token(&self) -> bool {
        self.bare && !matches!(self.state, State::Done)
    }

    /// Source: `SaslServerAuthenticator`, its states.
    pub(crate) fn admission(&self, api: ApiKey) -> Admission {
        use Admission::{Answer, Close, Refuse};
        match (&self.state, api) {
            (State::Start | State::Versioned, ApiKey::SaslHandshake)
            | (State::Start, ApiKey::ApiVersions) => Answer,
            (State::Start | State::Versioned, _) => Close,
            (State::Chosen(_) | State::Proving(_) | State::Refusing, ApiKey::SaslAuthenticate) => Answer,
            (State::Chosen(_) | State::Proving(_) | State::Refusing, _) => Refuse,
            (State::Done, ApiKey::SaslHandshake | ApiKey::SaslAuthenticate) => Answer,
            (State::Done, _) if self.until.is_some_and(|until| Instant::now() >= until) => Close,
            (State::Done, _) => Answer,
        }
    }

    /// The versions were told: before SASL that happens once.
    pub(crate) fn versions_told(&mut self) {
        if matches!(self.state, State::Start) {
            self.state = State::Versioned;
        }
    }

    /// True where everything is shown: what is asked of SASL then is refused, and the connection lives on.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The names of what is offered, and whether the client's choice is among it.
    pub(crate) fn choose(&mut self, mechanism: &str, bare: bool) -> (ErrorCode, Vec<String>) {
        let illegal = (ErrorCode::IllegalSaslState, Vec::new());
        let Some(sasl) = &self.sasl else { return illegal };
        if self.is_done() && sasl.session_lifetime.is_none() {
            return illegal;
        }
        let offered = sasl.mechanisms.iter().map(|mechanism| mechanism.name().to_owned()).collect();
        let chosen = sasl.mechanisms.iter().find(|offered| offered.name() == mechanism);
        let Some(chosen) = chosen else { return (ErrorCode::UnsupportedSaslMechanism, offered) };
        (self.state, self.bare) = (State::Chosen(*chosen), bare);
        (ErrorCode::None, offered)
    }

    /// Takes one message of the mechanism; an error ends the connection, unless everything was shown before.
    pub(crate) fn step(&mut self, message: &[u8], server_nonce: &str) -> Result<Step, Failure> {
        let Some(sasl) = self.sasl.clone().filter(|_| !self.is_done()) else {
            let words = "SaslAuthenticate request received after successful authentication";
            return Err(Failure::Told(ErrorCode::IllegalSaslState, words.to_owned()));
        };
        let renewed = self.mechanism.is_some();
        let failed = |mechanism: Mechanism| {
            let when = if renewed { "re-authentication" } else { "authentication" };
            told(&format!(
                "Authentication failed during {when} due to invalid credentials with SASL mechanism {}",
                mechanism.name()
            ))
        };
        match std::mem::replace(&mut self.state, State::Start) {
            State::Start | State::Versioned | State::Done => Err(Failure::Closed),
            // A renewal is by the same mechanism.
            State::Chosen(mechanism) if self.mechanism.is_some_and(|before| before != mechanism) => {
                Err(Failure::Closed)
            }
            State::Chosen(Mechanism::Plain) => {
                let user = plain(&sasl, message)?;
                self.done(&sasl, &user, Mechanism::Plain, Vec::new())
            }
            State::Chosen(Mechanism::OAuthBearer) => match bearer(&sasl, message) {
                Some(user) => self.done(&sasl, &user, Mechanism::OAuthBearer, Vec::new()),
                None => {
                    self.state = State::Refusing;
                    Ok(Step { bytes: INVALID_TOKEN.as_bytes().to_vec(), lifetime: Duration::ZERO })
                }
            },
            State::Refusing => Err(told(INVALID_TOKEN)),
            State::Chosen(mechanism) => {
                let first = client_first(&sasl, mechanism, message, server_nonce)?;
                let (proof, bytes) = first.ok_or_else(|| failed(mechanism))?;
                self.state = State::Proving(proof);
                Ok(Step { bytes, lifetime: Duration::ZERO })
            }
            State::Proving(proof) => {
                let signature = proof.check(message)?.ok_or_else(|| failed(proof.mechanism))?;
                let bytes = format!("v={}", BASE64.encode(signature)).into_bytes();
                self.done(&sasl, &proof.user, proof.mechanism, bytes)
            }
        }
    }

    fn done(
        &mut self,
        sasl: &Sasl,
        user: &str,
        mechanism: Mechanism,
        bytes: Vec<u8>,
    ) -> Result<Step, Failure> {
        let principal = format!("User:{user}");
        if let Some(before) = self.principal.as_ref().filter(|before| **before != principal) {
            let words = "Cannot change principals during re-authentication from";
            let dotted = |principal: &str| principal.replacen(':', ".", 1);
            return Err(told(&format!("{words} {}: {}", dotted(before), dotted(&principal))));
        }
        (self.state, self.principal, self.mechanism) = (State::Done, Some(principal), Some(mechanism));
        self.until = sasl.session_lifetime.map(|lifetime| Instant::now() + lifetime);
        Ok(Step { bytes, lifetime: sasl.session_lifetime.unwrap_or_default() })
    }
}

fn told(words: &str) -> Failure {
    Failure::Told(ErrorCode::SaslAuthenticationFailed, words.to_owned())
}

const OTHER_AUTHORIZATION_ID: &str =
    "Authentication failed: Client requested an authorization id that is different from username";

/// The user whose name and password the message has.
///
/// Source: `PlainSaslServer`.
fn plain(sasl: &Sasl, message: &[u8]) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(message);
    let tokens: Vec<&str> = text.split('\0').collect();
    let [authorization_id, user, password] = tokens[..] else {
        let count = tokens.len();
        return Err(told(&format!("Invalid SASL/PLAIN response: expected 3 tokens, got {count}")));
    };
    if user.is_empty() {
        return Err(told("Authentication failed: username not specified"));
    }
    if password.is_empty() {
        return Err(told("Authentication failed: password not specified"));
    }
    if !sasl.users.iter().any(|(name, secret)| name == user && secret == password) {
        return Err(told("Authentication failed: Invalid username or password"));
    }
    if !authorization_id.is_empty() && authorization_id != user {
        return Err(told(OTHER_AUTHORIZATION_ID));
    }
    Ok(user.to_owned())
}

/// What a broker says of a token that it does not accept: `OAuthBearerSaslServer#errorResponse`.
const INVALID_TOKEN: &str = "{\"status\":\"invalid_token\"}";

/// The user whose token the message has: RFC 7628, section 3.1.
fn bearer(sasl: &Sasl, message: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(message).ok()?;
    let pairs = text.strip_prefix("n,,\u{1}")?.strip_suffix("\u{1}\u{1}")?;
    let token = pairs.split('\u{1}').find_map(|pair| pair.strip_prefix("auth=Bearer "))?;
    sasl.users.iter().find(|(_, secret)| secret == token).map(|(name, _)| name.clone())
}

/// `None`: the message is none, or of nobody.
///
/// Source: `ScramMessages.ClientFirstMessage`, `ScramSaslServer`.
fn client_first(
    sasl: &Sasl,
    mechanism: Mechanism,
    message: &[u8],
    server_nonce: &str,
) -> Result<Option<(Proof, Vec<u8>)>, Failure> {
    let Some((authorization_id, bare, name, nonce)) = parse_client_first(message) else { return Ok(None) };
    let Some((user, password)) = sasl.users.iter().find(|(user, _)| *user == name) else { return Ok(None) };
    if !authorization_id.is_empty() && authorization_id != name {
        return Err(told(OTHER_AUTHORIZATION_ID));
    }
    let mut salted = vec![0; digest_of(mechanism).output_len()];
    let algorithm = match mechanism {
        Mechanism::ScramSha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        _ => pbkdf2::PBKDF2_HMAC_SHA256,
    };
    pbkdf2::derive(algorithm, ITERATIONS, SALT, password.as_bytes(), &mut salted);
    let nonce = format!("{nonce}{server_nonce}");
    let answer = format!("r={nonce},s={},i={ITERATIONS}", BASE64.encode(SALT));
    let said = format!("{bare},{answer}");
    Ok(Some((Proof { mechanism, user: user.clone(), salted, nonce, said }, answer.into_bytes())))
}

/// Authorization id, the message behind its header, user and nonce. Extensions are passed over.
fn parse_client_first(message: &[u8]) -> Option<(String, &str, String, &str)> {
    let unescaped = |name: &str| name.replace("=2C", ",").replace("=3D", "=");
    let (authorization_id, bare) = std::str::from_utf8(message).ok()?.strip_prefix("n,")?.split_once(',')?;
    let authorization_id = match authorization_id {
        "" => "",
        given => given.strip_prefix("a=")?,
    };
    let named = match bare.strip_prefix("m=") {
        Some(rest) => rest.split_once(',')?.1,
        None => bare,
    };
    let (name, rest) = named.strip_prefix("n=")?.split_once(",r=")?;
    let nonce = rest.split(',').next().filter(|nonce| !nonce.is_empty())?;
    Some((unescaped(authorization_id), bare, unescaped(name), nonce))
}

fn digest_of(mechanism: Mechanism) -> &'static digest::Algorithm {
    if mechanism == Mechanism::ScramSha512 { &digest::SHA512 } else { &digest::SHA256 }
}

impl Proof {
    /// The server's signature; `None` if the message is none or the proof is wrong. The channel binding is not compared.
    ///
    /// Source: `ScramMessages.ClientFinalMessage`, `ScramSaslServer#verifyClientProof`.
    fn check(&self, message: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let hmac =
            if self.mechanism == Mechanism::ScramSha512 { hmac::HMAC_SHA512 } else { hmac::HMAC_SHA256 };
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac, key), text);
        let parsed = || {
            let (unproved, proof) = std::str::from_utf8(message).ok()?.rsplit_once(",p=")?;
            let (_, rest) = unproved.strip_prefix("c=")?.split_once(",r=")?;
            let nonce = rest.split(',').next()?;
            Some((unproved, BASE64.decode(proof).ok()?, nonce == self.nonce))
        };
        let Some((unproved, proof, true)) = parsed() else { return Ok(None) };
        let said = format!("{},{unproved}", self.said);
        let client_key = sign(&self.salted, b"Client Key");
        let stored_key = digest::digest(digest_of(self.mechanism), client_key.as_ref());
        let signature = sign(stored_key.as_ref(), said.as_bytes());
        if proof.len() != signature.as_ref().len() {
            // A broker stumbles over it.
            return Err(Failure::Closed);
        }
        let expected = client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b);
        if !expected.eq(proof) {
            return Ok(None);
        }
        let server_key = sign(&self.salted, b"Server Key");
        Ok(Some(sign(server_key.as_ref(), said.as_bytes()).as_ref().to_vec()))
    }
}

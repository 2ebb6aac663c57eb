//! What is said on a fresh connection before the caller's first request: versions, then authentication.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use strandline_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest,
};
use strandline_protocol::{ApiKey, ErrorCode, Message as _, Request, VersionRange};
use tokio::time::{Instant, timeout_at};

use crate::dial::Limits;
use crate::lane::{Lane, Shared};
use crate::oauth::ERROR_SEEN;
use crate::scram::{ClientFirst, Hash};
use crate::{
    BearerToken, BrokerAddress, BrokerVersions, CloseReason, ConnectError, ConnectStep, Credentials,
    NoCommonVersion, PeerIdentity, RequestError, SaslConfig, ScramError, Security,
};

/// The version of ApiVersions that says to the broker who it is taken for (KIP-1242). Brokers before 4.4 answer it with a
/// round trip more, so it is used where there is something to say.
const API_VERSIONS_WITH_IDENTITY: i16 = 5;
/// The version of ApiVersions that is tried first where there is not.
const API_VERSIONS_FIRST: i16 = 4;

/// What the broker sees as the client's software (KIP-511).
const SOFTWARE_NAME: &str = "strandline";
const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A session is renewed after this share of its life, in per mille: between the two at random, so that the clients of a
/// broker that started do not come all at once. Those of Kafka's own client (`SaslClientAuthenticator`).
const SESSION_USED_MIN: u64 = 850;
const SESSION_USED_MAX: u64 = 950;

/// Longest text of a broker that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// How long a broker accepts an authentication (KIP-368).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// When to authenticate again: at the next request after it.
    pub(crate) renew_at: Instant,
    /// When the broker accepts nothing else any more.
    pub(crate) ends_at: Instant,
}

impl Session {
    /// From the answer's lifetime: 0 says that the session has no end.
    fn new(lifetime_ms: i64) -> Option<Self> {
        let lifetime = u64::try_from(lifetime_ms).ok().filter(|millis| *millis > 0)?;
        let lifetime = Duration::from_millis(lifetime);
        let random = RandomState::new().build_hasher().finish();
        let used = SESSION_USED_MIN + random % (SESSION_USED_MAX - SESSION_USED_MIN);
        let used = lifetime.mul_f64(used as f64 / 1000.0);
        let now = Instant::now();
        Some(Self { renew_at: now.checked_add(used)?, ends_at: now.checked_add(lifetime)? })
    }
}

/// Who speaks before the caller does.
pub(crate) struct Handshake {
    pub(crate) lane: Lane,
}

/// What a mechanism needs, fetched from wherever it comes: from here on only the broker is waited for.
pub(crate) enum Secret {
    Plain(Credentials),
    Scram(Hash, Credentials),
    Bearer(BearerToken),
}

impl Secret {
    /// What `sasl` has to show to the broker at `address` now.
    pub(crate) async fn fetch(
        sasl: &SaslConfig,
        address: &BrokerAddress,
        limits: Limits,
    ) -> Result<Self, ConnectError> {
        match sasl {
            SaslConfig::Plain(credentials) => Ok(Self::Plain(credentials.clone())),
            SaslConfig::ScramSha256(credentials) => Ok(Self::Scram(Hash::Sha256, credentials.clone())),
            SaslConfig::ScramSha512(credentials) => Ok(Self::Scram(Hash::Sha512, credentials.clone())),
            SaslConfig::OAuthBearer(provider) => match timeout_at(limits.deadline, provider.token()).await {
                Ok(Ok(token)) => Ok(Self::Bearer(token)),
                Ok(Err(source)) => Err(ConnectError::Token { address: address.clone(), source }),
                Err(_) => Err(limits.timed_out(address, ConnectStep::FetchingToken)),
            },
        }
    }

    fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain(_) => "PLAIN",
            Self::Scram(Hash::Sha256, _) => "SCRAM-SHA-256",
            Self::Scram(Hash::Sha512, _) => "SCRAM-SHA-512",
            Self::Bearer(_) => "OAUTHBEARER",
        }
    }

    /// What no error may repeat.
    fn reveal(&self) -> &str {
        match self {
            Self::Plain(credentials) | Self::Scram(_, credentials) => credentials.password.reveal(),
            Self::Bearer(token) => token.reveal(),
        }
    }
}

impl Handshake {
    fn address(&self) -> &BrokerAddress {
        &self.lane.shared.address
    }

    /// Asks for the broker's versions, with an older question where it does not know the newer one (KIP-511).
    pub(crate) async fn versions(
        &self,
        identity: &PeerIdentity,
        limits: Limits,
    ) -> Result<BrokerVersions, ConnectError> {
        let wrap = |error| connect_error(&self.lane.shared, ConnectStep::Versions, limits, error);
        // Kafka 4.4.0 answers INVALID_REQUEST to a cluster without a node, and to a node without a cluster.
        let meant = identity.cluster_id.clone().zip(identity.node_id);
        let mut version = if meant.is_some() { API_VERSIONS_WITH_IDENTITY } else { API_VERSIONS_FIRST };
        let (cluster_id, node_id) = meant.map_or((None, -1), |(cluster, node)| (Some(cluster), node));
        let request = ApiVersionsRequest {
            client_software_name: SOFTWARE_NAME.to_owned(),
            client_software_version: SOFTWARE_VERSION.to_owned(),
            cluster_id,
            node_id,
            ..ApiVersionsRequest::default()
        };
        loop {
            let patience = limits.deadline.into();
            let body =
                self.lane.exchange_bytes(&request, version, patience, &mut None).await.map_err(wrap)?;
            // A broker that does not know the version answers in version 0.
            let unsupported =
                body.len() >= 2 && (&body[..]).get_i16() == ErrorCode::UnsupportedVersion.code();
            let answered = if unsupported { 0 } else { version };
            let answer = self.lane.decode::<ApiVersionsRequest>(body, answered).map_err(wrap)?;
            if !unsupported {
                return self.accept_versions(identity, &answer);
            }
            version = fall_back(&answer, version)
                .map_err(|source| ConnectError::Version { address: self.address().clone(), source })?;
        }
    }

    fn accept_versions(
        &self,
        identity: &PeerIdentity,
        answer: &ApiVersionsResponse,
    ) -> Result<BrokerVersions, ConnectError> {
        let address = self.address().clone();
        match answer.error_code {
            ErrorCode::None => Ok(table(answer)),
            ErrorCode::RebootstrapRequired if !identity.is_unknown() => {
                Err(ConnectError::WrongPeer { address, expected: identity.clone() })
            }
            code => Err(ConnectError::Broker { address, step: ConnectStep::Versions, code }),
        }
    }

    /// Authenticates for the first time on a connection. Gives the session, if the broker limits it.
    pub(crate) async fn authenticate(
        &self,
        versions: &BrokerVersions,
        sasl: &SaslConfig,
        limits: Limits,
    ) -> Result<Option<Session>, ConnectError> {
        let secret = Secret::fetch(sasl, self.address(), limits).await?;
        self.authenticate_with(versions, &secret, limits).await
    }

    /// Authenticates, for the first time or again (KIP-368).
    pub(crate) async fn authenticate_with(
        &self,
        versions: &BrokerVersions,
        secret: &Secret,
        limits: Limits,
    ) -> Result<Option<Session>, ConnectError> {
        let exchange = Exchange { handshake: self, versions, limits, mechanism: secret.mechanism(), secret };
        exchange.choose_mechanism().await?;
        let last = match secret {
            Secret::Plain(credentials) => exchange.plain(credentials).await?,
            Secret::Scram(hash, credentials) => exchange.scram(*hash, credentials).await?,
            Secret::Bearer(token) => exchange.bearer(token).await?,
        };
        Ok(Session::new(last.session_lifetime_ms))
    }
}

/// The version to ask with next; each is lower than the one before, so this ends.
fn fall_back(answer: &ApiVersionsResponse, refused: i16) -> Result<i16, NoCommonVersion> {
    let broker = table(answer);
    // Brokers before 2.4 refuse without saying what they know; version 0 they all do.
    match broker.range(ApiKey::ApiVersions) {
        None if refused > 0 => Ok(0),
        _ => broker.pick(ApiKey::ApiVersions, ApiVersionsRequest::VERSIONS, Some(refused - 1)),
    }
}

fn table(answer: &ApiVersionsResponse) -> BrokerVersions {
    BrokerVersions::new(
        answer.api_keys.iter().map(|entry| (entry.api_key, entry.min_version, entry.max_version)),
    )
}

/// One authentication.
struct Exchange<'a> {
    handshake: &'a Handshake,
    versions: &'a BrokerVersions,
    limits: Limits,
    mechanism: &'static str,
    secret: &'a Secret,
}

impl Exchange<'_> {
    async fn choose_mechanism(&self) -> Result<(), ConnectError> {
        let request = SaslHandshakeRequest { mechanism: self.mechanism.to_owned() };
        // Version 0 would have the tokens without Kafka's framing.
        let answer = self.ask(&request, VersionRange { first: 1, last: 1 }).await?;
        match answer.error_code {
            ErrorCode::None => Ok(()),
            ErrorCode::UnsupportedSaslMechanism => Err(ConnectError::Mechanism {
                address: self.handshake.address().clone(),
                mechanism: self.mechanism,
                offered: answer.mechanisms.iter().take(32).map(|name| self.told(name)).collect(),
            }),
            // What a listener without SASL says.
            ErrorCode::IllegalSaslState => {
                Err(ConnectError::NoSasl { address: self.handshake.address().clone() })
            }
            code => Err(self.broker(code)),
        }
    }

    async fn plain(&self, credentials: &Credentials) -> Result<SaslAuthenticateResponse, ConnectError> {
        let mut token = Vec::new();
        // No authorization id: the user acts as itself (RFC 4616).
        for part in [credentials.username.as_str(), credentials.password.reveal()] {
            token.push(0);
            token.extend_from_slice(part.as_bytes());
        }
        self.token(token).await
    }

    async fn scram(
        &self,
        hash: Hash,
        credentials: &Credentials,
    ) -> Result<SaslAuthenticateResponse, ConnectError> {
        let first = ClientFirst::new(hash, &credentials.username, credentials.password.reveal());
        let first = first.map_err(|error| self.scram_error(error))?;
        let answer = self.token(first.message()).await?;
        let proof = first.server_first(&answer.auth_bytes).map_err(|error| self.scram_error(error))?;
        // Up to a second of hashing, which would hold up every task of this thread.
        let computed = tokio::task::spawn_blocking(|| proof.compute());
        let (message, signature) = match timeout_at(self.limits.deadline, computed).await {
            Ok(Ok(computed)) => computed,
            Ok(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(self.closed(CloseReason::RuntimeGone)),
            },
            Err(_) => {
                return Err(self.limits.timed_out(self.handshake.address(), ConnectStep::Authenticating));
            }
        };
        let answer = self.token(message).await?;
        signature.server_final(&answer.auth_bytes).map_err(|error| self.scram_error(error))?;
        Ok(answer)
    }

    async fn bearer(&self, token: &BearerToken) -> Result<SaslAuthenticateResponse, ConnectError> {
        let answer = self.token(token.message()).await?;
        if answer.auth_bytes.is_empty() {
            return Ok(answer);
        }
        // The broker says what is wrong, and fails the exchange when it knows that we have heard it.
        let said = self.told(&String::from_utf8_lossy(&answer.auth_bytes));
        match self.token(ERROR_SEEN.to_vec()).await {
            Err(ConnectError::Authentication { address, mechanism, message }) => {
                let message = if message.contains(&said) { message } else { format!("{said}; {message}") };
                Err(ConnectError::Authentication { address, mechanism, message })
            }
            Err(error) => Err(error),
            Ok(_) => {
                let (address, mechanism) = (self.handshake.address().clone(), self.mechanism);
                Err(ConnectError::Authentication { address, mechanism, message: said })
            }
        }
    }

    /// One step of the mechanism.
    async fn token(&self, token: Vec<u8>) -> Result<SaslAuthenticateResponse, ConnectError> {
        let request = SaslAuthenticateRequest { auth_bytes: Bytes::from(token), ..Default::default() };
        let answer = self.ask(&request, SaslAuthenticateRequest::VERSIONS).await?;
        match answer.error_code {
            ErrorCode::None => Ok(answer),
            ErrorCode::SaslAuthenticationFailed => Err(ConnectError::Authentication {
                address: self.handshake.address().clone(),
                mechanism: self.mechanism,
                message: self.told(answer.error_message.as_deref().unwrap_or_default()),
            }),
            code => Err(self.broker(code)),
        }
    }

    async fn ask<R: Request>(&self, request: &R, ours: VersionRange) -> Result<R::Response, ConnectError> {
        let address = self.handshake.address();
        let version = self
            .versions
            .pick(R::API_KEY, ours, None)
            .map_err(|source| ConnectError::Version { address: address.clone(), source })?;
        let asked = self.handshake.lane.exchange(request, version, self.limits.deadline).await;
        let shared = &self.handshake.lane.shared;
        asked.map_err(|error| connect_error(shared, ConnectStep::Authenticating, self.limits, error))
    }

    fn scram_error(&self, error: ScramError) -> ConnectError {
        let (address, mechanism) = (self.handshake.address().clone(), self.mechanism);
        match error {
            ScramError::Refused(message) => {
                ConnectError::Authentication { address, mechanism, message: self.told(&message) }
            }
            source => ConnectError::Scram { address, mechanism, source },
        }
    }

    /// The broker's words, as an error may repeat them.
    fn told(&self, text: &str) -> String {
        printable(text, &[self.secret.reveal()])
    }

    fn broker(&self, code: ErrorCode) -> ConnectError {
        let address = self.handshake.address().clone();
        ConnectError::Broker { address, step: ConnectStep::Authenticating, code }
    }

    fn closed(&self, reason: CloseReason) -> ConnectError {
        let address = self.handshake.address().clone();
        ConnectError::Closed { address, step: ConnectStep::Authenticating, source: reason.into() }
    }
}

/// A failed request of the handshake, as a failed connect.
fn connect_error(shared: &Shared, step: ConnectStep, limits: Limits, error: RequestError) -> ConnectError {
    let address = shared.address.clone();
    let tls = matches!(shared.config.security, Security::Tls(_));
    match error {
        RequestError::NoAnswer { source, .. } | RequestError::NotSent { source, .. } => match &*source {
            // A broker judges our certificate after our half of the handshake is done.
            CloseReason::Io(error) if let Some(alert) = tls_error(error) => {
                ConnectError::Tls { address, source: io::Error::other(alert.clone()) }
            }
            CloseReason::TimedOut { .. } => limits.timed_out(&address, step),
            CloseReason::NotKafka(crate::Dialect::Tls) if !tls => {
                let peer = Some(crate::Dialect::Tls);
                ConnectError::TlsMismatch { address, configured_tls: false, peer }
            }
            CloseReason::NotKafka(peer) => ConnectError::NotKafka { address, peer: *peer },
            _ => ConnectError::Closed { address, step, source },
        },
        RequestError::NotSentInTime { .. } | RequestError::Throttled { .. } => {
            limits.timed_out(&address, step)
        }
        RequestError::Malformed { source, .. } => ConnectError::Malformed { address, step, source },
        RequestError::Encode { source, .. } => ConnectError::Encode { address, source },
        RequestError::Version(source) => ConnectError::Version { address, source },
        RequestError::Refused(_) => unreachable!("the requests of the handshake do not pass the gate"),
    }
}

/// What the TLS layer said, if it was that which failed.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// A peer's text, cut, without what could steer a terminal, and with `[hidden]` for each of `secrets` that it repeats.
pub(crate) fn printable(text: &str, secrets: &[&str]) -> String {
    let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).collect() };
    let (text, secrets) = (plain(text), secrets.iter().map(|secret| plain(secret)));
    let secrets: Vec<String> = secrets.filter(|secret| !secret.is_empty()).collect();
    let mut printed = String::new();
    let mut rest = text.as_str();
    // Hidden before it is cut: half a secret is too much.
    for _ in 0..MESSAGE_CHARS_MAX {
        let repeated = secrets.iter().filter(|secret| rest.starts_with(*secret)).max_by_key(|it| it.len());
        if let Some(secret) = repeated {
            printed.push_str("[hidden]");
            rest = &rest[secret.len()..];
        } else if let Some(first) = rest.chars().next() {
            printed.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    printed.chars().take(MESSAGE_CHARS_MAX).collect()
}

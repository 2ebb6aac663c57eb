use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::{Dialler, Gate, Observer, TcpDialler, TlsConfig, TokenProvider, TracingObserver};

/// How connections are made and what may pass over them. One value, shared by all connections of a cluster.
///
/// `Debug` output holds no secret.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// What the broker logs and applies quotas to; Kafka's `client.id`. Default `strandline`.
    pub client_id: String,
    /// Plaintext or TLS. Default plaintext.
    pub security: Security,
    /// Who to authenticate as; `None` for a listener without SASL. Default `None`.
    pub sasl: Option<SaslConfig>,
    /// Longest time from the look-up of the name to the end of authentication; the caller's deadline applies
    /// too. Default [`DEFAULT_CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Longest answer that is read, in bytes. Default [`DEFAULT_MAX_FRAME_BYTES`]; at most [`i32::MAX`] has
    /// an effect.
    pub max_frame_bytes: usize,
    /// Most requests that are open (sent or about to be sent, and not answered) on one connection; further
    /// ones wait. Default [`DEFAULT_MAX_IN_FLIGHT`].
    pub max_in_flight: NonZeroUsize,
    /// A connection that carried nothing for this long is closed; [`Duration::ZERO`] for never. Default
    /// [`DEFAULT_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// Whether requests that change something may pass. Default [`Gate::ReadOnly`].
    pub gate: Gate,
    /// Who hears of what happens. Default [`TracingObserver`].
    pub observer: Arc<dyn Observer>,
    /// How names become addresses and addresses streams of bytes. Default [`TcpDialler`]; a test may have its brokers in
    /// memory.
    pub dialler: Arc<dyn Dialler>,
}

/// The default of [`ConnectionConfig::connect_timeout`]: that of Kafka's
/// `socket.connection.setup.timeout.ms`.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default of [`ConnectionConfig::max_frame_bytes`]: twice Kafka's `fetch.max.bytes` (50 MiB), which a
/// single large batch may exceed.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 100 * 1024 * 1024;

/// The default of [`ConnectionConfig::max_in_flight`]. A broker handles the requests of one connection one
/// after the other, so more would only wait there.
pub const DEFAULT_MAX_IN_FLIGHT: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not zero");

/// The default of [`ConnectionConfig::idle_timeout`]: that of Kafka's `connections.max.idle.ms` on the client, a minute
/// less than on the broker, so that it is the client that closes.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(540);

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            client_id: "strandline".to_owned(),
            security: Security::Plaintext,
            sasl: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            max_frame_bytes: DEFAULT_MAX_FRAME_BYTES,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            gate: Gate::ReadOnly,
            observer: Arc::new(TracingObserver),
            dialler: Arc::new(TcpDialler),
        }
    }
}

/// What the TCP connection carries: Kafka's `security.protocol` without its SASL half.
#[derive(Clone, Debug)]
pub enum Security {
    /// Kafka frames as they are (`PLAINTEXT`, `SASL_PLAINTEXT`).
    Plaintext,
    /// Kafka frames inside TLS (`SSL`, `SASL_SSL`).
    Tls(TlsConfig),
}

/// Which SASL mechanism to use, with what.
///
/// Where the broker limits sessions (`connections.max.reauth.ms`, or the life of a token), a connection authenticates again
/// on its own (KIP-368): with the first request after 85 to 95 per cent of the session's life.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SaslConfig {
    /// User name and password as they are: only inside TLS is this a secret.
    Plain(Credentials),
    /// SCRAM-SHA-256 (RFC 7677): the password never crosses the wire, and the broker proves that it knows it.
    ScramSha256(Credentials),
    /// SCRAM-SHA-512: the same with the longer hash.
    ScramSha512(Credentials),
    /// OAUTHBEARER (RFC 7628): a token that somebody else vouches for, asked for anew at each authentication. Only inside TLS
    /// is it a secret.
    OAuthBearer(Arc<dyn TokenProvider>),
}

impl SaslConfig {
    /// The mechanism as Kafka's `sasl.mechanism` spells it.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain(_) => "PLAIN",
            Self::ScramSha256(_) => "SCRAM-SHA-256",
            Self::ScramSha512(_) => "SCRAM-SHA-512",
            Self::OAuthBearer(_) => "OAUTHBEARER",
        }
    }
}

/// A user name and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User name; printed where an error concerns it.
    pub username: String,
    /// Password; never printed.
    pub password: Password,
}

/// A secret text. Neither `Debug` nor anything else in this crate prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientIdentity, Pem, Roots};

    #[test]
    fn debug_output_of_a_config_holds_no_secret() {
        let secret = "c0rrect-horse";
        let credentials = Credentials { username: "ada".to_owned(), password: Password::new(secret) };
        let pem = || Pem::Inline(Password::new(secret));
        let tls = TlsConfig {
            roots: Roots::Pem(pem()),
            identity: Some(ClientIdentity { certificates: pem(), key: pem() }),
            ..TlsConfig::default()
        };
        let config = ConnectionConfig {
            security: Security::Tls(tls),
            sasl: Some(SaslConfig::Plain(credentials)),
            ..ConnectionConfig::default()
        };
        let text = format!("{config:?} {config:#?}");
        assert!(text.contains("ada") && !text.contains(secret), "{text}");
    }
}

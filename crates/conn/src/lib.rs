//! One connection to one Kafka broker: TLS, SASL, versions, pipelining, deadlines, the read-only gate.
//!
//! Start at [`Connection`]: [`connect`](Connection::connect) dials a [`BrokerAddress`] as a
//! [`ConnectionConfig`] says, [`send`](Connection::send) puts a request on it and waits for the answer.
//! [`Gate`] decides what may be sent at all, [`Recovery`] says what to do after each error of a broker or of
//! this crate.
//!
//! Which broker to ask, when to dial again and what to repeat is not known here: that is the cluster layer's
//! part. It gives a [`Target`]: the address with who should answer there (KIP-1242) and what the broker's throttling mutes
//! (KIP-219). [`Observer`] hears of what happens, [`Dialler`] is where the bytes come from, [`TokenProvider`] where tokens do.
//!
//! # Cancel safety
//! Dropping a future of this crate loses that call's answer, never a connection and never half a frame.

mod address;
mod config;
mod connection;
mod dial;
mod errors;
pub mod failures;
mod frame;
mod gate;
mod handshake;
mod inspect;
mod lane;
mod mute;
mod oauth;
mod observe;
#[cfg(test)]
mod peer;
mod pipeline;
mod renewal;
mod scram;
mod target;
mod task;
mod tls;
mod versions;

pub use address::{BrokerAddress, ParseBrokerAddressError};
pub use config::{
    ConnectionConfig, Credentials, DEFAULT_CONNECT_TIMEOUT, DEFAULT_IDLE_TIMEOUT, DEFAULT_MAX_FRAME_BYTES,
    DEFAULT_MAX_IN_FLIGHT, Password, SaslConfig, Security,
};
pub use connection::{Call, Connection};
pub use dial::{ByteStream, Dialler, Dialling, TcpDialler};
pub use errors::{CloseReason, ConnectError, ConnectStep, Dialect, Recovery, RequestError, Waited};
pub use gate::{Evidence, Gate, GateRefusal};
pub use inspect::{TlsInspection, inspect_tls};
pub use mute::Mute;
#[cfg(feature = "oidc")]
pub use oauth::ClientCredentials;
pub use oauth::{BearerToken, TokenCommand, TokenError, TokenFile, TokenFuture, TokenProvider};
#[cfg(feature = "metrics")]
pub use observe::MetricsObserver;
pub use observe::{
    CloseEvent, ConnectEvent, MetadataEvent, Observer, ReauthenticateEvent, RequestEvent, RetryDecision,
    RetryEvent, ThrottleEvent, TracingObserver,
};
pub use scram::ScramError;
pub use target::{PeerIdentity, Target};
pub use tls::{ClientIdentity, Pem, Roots, TlsConfig, TlsConfigError};
pub use versions::{BrokerVersions, NoCommonVersion};

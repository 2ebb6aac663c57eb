//! Certificates of a cluster whose listeners speak TLS: an authority, a broker's, a client's; made anew for each cluster.

#[cfg(feature = "certificates")]
mod make;

#[cfg(feature = "certificates")]
pub(crate) use make::{Authority, make};

/// There is none: this build goes without what it takes.
#[cfg(not(feature = "certificates"))]
#[derive(Debug)]
pub(crate) enum Authority {}

#[cfg(not(feature = "certificates"))]
impl Authority {
    pub(crate) fn issue(&self, _: &str) -> anyhow::Result<(Certificates, Vec<u8>)> {
        match *self {}
    }
}

/// Makes no certificates: this build goes without what that takes.
#[cfg(not(feature = "certificates"))]
pub(crate) fn make(_: Tls) -> anyhow::Result<(Authority, tokio_rustls::TlsAcceptor)> {
    anyhow::bail!("the testkit was built without its feature `certificates`, so its listeners speak no TLS")
}

/// Whether listeners ask for a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// They show theirs and ask for none.
    Server,
    /// A client must show one of the cluster's own authority (mTLS). Without SASL it is then who that says, as
    /// `User:CN=client`.
    Mutual,
}

/// What a client needs, as PEM.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority that signed all others.
    pub ca: String,
    /// A client's certificate.
    pub client: String,
    /// Its key.
    pub client_key: String,
}

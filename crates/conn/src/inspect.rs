//! A TLS handshake for its own sake: what a listener shows, and whether that is accepted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ProtocolVersion;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::dial::Watched;
use crate::{BrokerAddress, ConnectError, ConnectStep, TlsConfig};

/// What a listener showed in a TLS handshake.
///
/// A client certificate is shown as the settings say; in TLS 1.3 a broker judges it after the handshake, so that a refusal
/// is met by the first request of a real connection.
#[derive(Debug)]
#[non_exhaustive]
pub struct TlsInspection {
    /// The certificates as the listener sent them, DER, its own first. Empty where the handshake did not come so far.
    pub certificates: Vec<Vec<u8>>,
    /// `TLSv1.3` and the like; `None` where the handshake failed.
    pub protocol: Option<&'static str>,
    /// Why the handshake failed, if it did: the chain, the dates, the name, or a peer that speaks no TLS.
    pub error: Option<ConnectError>,
}

/// Dials one address of a broker and does the TLS handshake that [`Connection::connect`](crate::Connection::connect) would
/// do, and nothing more: for a diagnosis that shows the certificate also where it is not accepted.
///
/// `address` is the name to verify (and to name in errors), `target` what is dialled. What fails is told in
/// [`TlsInspection::error`], the deadline included.
///
/// # Cancel safety
/// A dropped future leaves nothing behind: the socket is closed.
pub async fn inspect_tls(
    address: &BrokerAddress,
    target: SocketAddr,
    tls: &TlsConfig,
    deadline: Instant,
) -> TlsInspection {
    let since = Instant::now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handshake = timeout_at(deadline, handshake(address, target, tls, &seen)).await;
    let (protocol, error) = match handshake {
        Ok(Ok(protocol)) => (protocol, None),
        Ok(Err(error)) => (None, Some(error)),
        Err(_) => {
            let (address, waited) = (address.clone(), deadline.saturating_duration_since(since));
            (None, Some(ConnectError::TimedOut { address, step: ConnectStep::Tls, waited }))
        }
    };
    let certificates = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    TlsInspection { certificates, protocol, error }
}

async fn handshake(
    address: &BrokerAddress,
    target: SocketAddr,
    tls: &TlsConfig,
    seen: &Arc<Mutex<Vec<Vec<u8>>>>,
) -> Result<Option<&'static str>, ConnectError> {
    let unreachable = |error| {
        let (address, attempts) = (address.clone(), vec![(target, error)]);
        ConnectError::Unreachable { address, attempts }
    };
    let stream = TcpStream::connect(target).await.map_err(unreachable)?;
    let config =
        tls.client_config_with(|verifier| Arc::new(Recorder { verifier, seen: Arc::clone(seen) }))?;
    let name = tls.server_name(address.host())?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, Watched::new(stream));
    match connecting.into_fallible().await {
        Ok(stream) => Ok(stream.get_ref().1.protocol_version().and_then(|version| match version {
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            _ => None,
        })),
        Err((source, watched)) => Err(watched.explain(address, source)),
    }
}

/// Remembers the certificates, and leaves the verdict to the verifier that real connections have.
#[derive(Debug)]
struct Recorder {
    verifier: Arc<dyn ServerCertVerifier>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = std::iter::once(end_entity).chain(intermediates).map(|shown| shown.to_vec()).collect();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, Network, Tls};

    use super::*;
    use crate::peer::{chain, in_seconds};
    use crate::{Password, Pem, Roots};

    fn trusting(pem: &str) -> TlsConfig {
        TlsConfig { roots: Roots::Pem(Pem::Inline(Password::new(pem))), ..TlsConfig::default() }
    }

    fn cluster(tls: Option<Tls>) -> (EmbeddedCluster, BrokerAddress, SocketAddr) {
        let cluster = EmbeddedCluster::start(ClusterOptions { tls, ..ClusterOptions::default() }).unwrap();
        let address: BrokerAddress = cluster.bootstrap().parse().unwrap();
        let target = cluster.bootstrap().parse().unwrap();
        (cluster, address, target)
    }

    #[tokio::test]
    async fn the_certificate_is_shown_whether_it_is_accepted_or_not() {
        let (cluster, address, target) = cluster(Some(Tls::Server));
        let ours = trusting(&cluster.certificates().unwrap().ca);
        let good = inspect_tls(&address, target, &ours, in_seconds(10)).await;
        assert!(good.error.is_none(), "{good:?}");
        assert_eq!((good.protocol, good.certificates.len()), (Some("TLSv1.3"), 1));

        let other = EmbeddedCluster::start(ClusterOptions { tls: Some(Tls::Server), ..Default::default() });
        let stranger = trusting(&other.unwrap().certificates().unwrap().ca);
        let bad = inspect_tls(&address, target, &stranger, in_seconds(10)).await;
        assert_eq!(bad.certificates, good.certificates);
        let error = chain(&bad.error.unwrap());
        assert!(error.contains("invalid peer certificate"), "{error}");
    }

    #[tokio::test]
    async fn a_listener_without_tls_and_a_silent_one_are_told_apart() {
        let (plain, address, target) = cluster(None);
        let (tls, ..) = cluster(Some(Tls::Server));
        let config = trusting(&tls.certificates().unwrap().ca);
        let seen = inspect_tls(&address, target, &config, in_seconds(10)).await;
        assert!(
            matches!(seen.error, Some(ConnectError::TlsMismatch { configured_tls: true, .. })),
            "{seen:?}"
        );
        assert_eq!(seen.certificates, Vec::<Vec<u8>>::new());

        plain.set_network(1, Network::Blackhole).await.unwrap();
        let soon = Instant::now() + Duration::from_millis(50);
        let seen = inspect_tls(&address, target, &config, soon).await;
        assert!(
            matches!(seen.error, Some(ConnectError::TimedOut { step: ConnectStep::Tls, .. })),
            "{seen:?}"
        );
    }
}

//! The certificates themselves.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Certificates, Tls};

/// Who signs the certificates of one cluster.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca: String,
}

/// Makes an authority and the brokers' certificate; brokers are `localhost` and 127.0.0.1.
pub(crate) fn make(tls: Tls) -> anyhow::Result<(Authority, TlsAcceptor)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "embedded authority");
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let authority = Authority { issuer: Issuer::new(authority, authority_key), ca: ca.pem() };

    let key = KeyPair::generate()?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let broker = CertificateParams::new(names)?.signed_by(&key, &authority.issuer)?;

    let provider = Arc::new(default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match tls {
        Tls::Server => builder.with_no_client_auth(),
        Tls::Mutual => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(ca.der().to_vec()))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = builder.with_single_cert(vec![CertificateDer::from(broker.der().to_vec())], key)?;
    Ok((authority, TlsAcceptor::from(Arc::new(config))))
}

impl Authority {
    /// A client's certificate for this common name, as PEM and as DER.
    pub(crate) fn issue(&self, common_name: &str) -> anyhow::Result<(Certificates, Vec<u8>)> {
        let key = KeyPair::generate()?;
        let mut client = CertificateParams::new(Vec::new())?;
        client.distinguished_name.push(DnType::CommonName, common_name);
        let client = client.signed_by(&key, &self.issuer)?;
        let pem = Certificates { ca: self.ca.clone(), client: client.pem(), client_key: key.serialize_pem() };
        Ok((pem, client.der().to_vec()))
    }
}

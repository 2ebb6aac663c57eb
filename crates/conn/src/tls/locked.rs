//! What a password opens: PKCS #12 files (RFC 7292) and encrypted PKCS #8 keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use p12_keystore::{KeyStore, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Why something stays shut. Holds nothing of the content.
#[derive(Debug)]
pub(super) enum Shut {
    /// The password is another.
    Password,
    /// The bytes are not what they begin as.
    Broken,
    /// There is none of what was looked for.
    Empty,
}

/// Every certificate of a trust store, whether or not the tool that wrote it marked them as trusted (OpenSSL does not).
pub(super) fn pkcs12_certificates(
    bytes: &[u8],
    password: &str,
) -> Result<Vec<CertificateDer<'static>>, Shut> {
    let archive = Pkcs12Archive::from_pkcs12(bytes, password).map_err(|error| shut(&error))?;
    if archive.certs.is_empty() {
        return Err(Shut::Empty);
    }
    Ok(archive.certs.iter().map(|bag| certificate(&bag.cert)).collect())
}

/// The first key of a key store with its certificate, and those that lead to a root.
pub(super) fn pkcs12_identity(
    bytes: &[u8],
    password: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Shut> {
    let store = KeyStore::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Strict);
    let store = store.map_err(|error| shut(&error))?;
    let (_, chain) = store.private_key_chain().ok_or(Shut::Empty)?;
    let key = PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec());
    Ok((chain.certs().iter().map(certificate).collect(), key.into()))
}

fn certificate(certificate: &p12_keystore::Certificate) -> CertificateDer<'static> {
    CertificateDer::from(certificate.as_der().to_vec())
}

fn shut(error: &p12_keystore::error::Error) -> Shut {
    match error {
        p12_keystore::error::Error::MacError(_) => Shut::Password,
        _ => Shut::Broken,
    }
}

/// The key in the first `ENCRYPTED PRIVATE KEY` section of a PEM text.
pub(super) fn pem_key(pem: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, Shut> {
    let text = String::from_utf8_lossy(pem);
    let (_, rest) = text.split_once("-----BEGIN ENCRYPTED PRIVATE KEY-----").ok_or(Shut::Empty)?;
    let (body, _) = rest.split_once("-----END ENCRYPTED PRIVATE KEY-----").ok_or(Shut::Broken)?;
    let body: String = body.split_whitespace().collect();
    let der = BASE64.decode(body).map_err(|_| Shut::Broken)?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(&der[..]).map_err(|_| Shut::Broken)?;
    // A wrong password shows as padding that is none, or as a key that is none.
    let key = encrypted.decrypt(password).map_err(|_| Shut::Password)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

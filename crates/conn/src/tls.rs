use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use crate::Password;

mod ec;
#[cfg(feature = "pkcs12")]
mod locked;

#[cfg(feature = "pkcs12")]
use locked::Shut;

/// TLS 1.2 and 1.3 towards a broker.
///
/// Files are read at each dial, so a renewed certificate is used by the next connection without a restart.
/// [`check`](Self::check) reads them at once, for an early word about a wrong one.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Whose signature makes a broker's certificate good. Default: the system's.
    pub roots: Roots,
    /// What to show to a broker that asks for a client certificate; default `None`.
    pub identity: Option<ClientIdentity>,
    /// Whether the certificate must be for the host that was dialled; default true. False is Kafka's empty
    /// `ssl.endpoint.identification.algorithm`: any certificate that the roots vouch for will do, so whoever
    /// holds one can pose as the broker.
    pub verify_host_name: bool,
    /// The name to expect in the certificate and to ask for (SNI), instead of the host that is dialled.
    pub server_name: Option<String>,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self { roots: Roots::System, identity: None, verify_host_name: true, server_name: None }
    }
}

/// The certificate authorities that are trusted.
#[derive(Clone, Debug)]
pub enum Roots {
    /// Those of the operating system (or of `SSL_CERT_FILE` and `SSL_CERT_DIR`).
    System,
    /// One or more PEM certificates, and no others.
    Pem(Pem),
}

/// A client certificate with its key. Both may come from the same file: each takes its own part.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// The certificate, then those that lead to a root.
    pub certificates: Pem,
    /// The private key: PKCS #8, PKCS #1 or SEC1; encrypted only as PKCS #8, and then [`Pem::Locked`].
    pub key: Pem,
}

/// Certificates and keys: PEM text, in a file or at hand, or a PKCS #12 file with its password. `Debug` does not print the
/// text: it may hold a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Pem {
    /// A file, read at each dial.
    File(PathBuf),
    /// The text itself.
    Inline(Password),
    /// One of the two with the password that opens it: PEM with an encrypted key (what is not encrypted needs no password), or
    /// a file in PKCS #12, which is told by its bytes. Only with the feature `pkcs12`; without it, it is an error.
    Locked {
        /// What is locked; not locked twice.
        inner: Box<Self>,
        /// What opens it.
        password: Password,
    },
}

/// TLS settings that cannot be used, each with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// A file cannot be read.
    #[error("cannot read {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A Java key store. Convert it with the command in the message.
    #[error(
        "{path} is a Java key store (JKS); convert it: keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 \
         -deststoretype PKCS12 && openssl pkcs12 -in {path}.p12 -out {path}.pem -nodes",
        path = .path.display()
    )]
    Jks {
        /// The file.
        path: PathBuf,
    },
    /// A PKCS #12 file without its password (or in a build without the feature `pkcs12`). Give it, or convert the file with the
    /// command in the message.
    #[error(
        "{path} is a PKCS #12 file, and its password is missing; give it, or convert the file: openssl pkcs12 -in {path} -out \
         {path}.pem -nodes",
        path = .path.display()
    )]
    Pkcs12 {
        /// The file.
        path: PathBuf,
    },
    /// The password does not open the file or the key.
    #[error("the password does not open {origin}")]
    WrongPassword {
        /// File name, or "the inline PEM".
        origin: String,
    },
    /// A PKCS #12 file that is broken, or encrypted in a way that is not known.
    #[error("{} is a PKCS #12 file that cannot be read", .path.display())]
    BrokenPkcs12 {
        /// The file.
        path: PathBuf,
    },
    /// The text is no PEM, or a section of it is broken.
    #[error("{origin} is not valid PEM: {what}")]
    Pem {
        /// File name, or "the inline PEM".
        origin: String,
        /// What is wrong; holds nothing of the text.
        what: String,
    },
    /// The file is none of the stores that are known. Name the right file, or convert it to PEM.
    #[error("{} is neither PEM nor PKCS #12{what}", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it is instead and how it is converted, where that can be told; else empty. Begins with its own punctuation.
        what: String,
    },
    /// No `BEGIN CERTIFICATE` section.
    #[error("{origin} holds no certificate")]
    NoCertificate {
        /// File name, or "the inline PEM".
        origin: String,
    },
    /// A certificate that cannot serve as a root.
    #[error("certificate {index} of {origin} cannot be used")]
    Certificate {
        /// File name, or "the inline PEM".
        origin: String,
        /// Which one, counted from 1.
        index: usize,
        /// Why.
        source: rustls::Error,
    },
    /// No private key.
    #[error("{origin} holds no private key")]
    NoKey {
        /// File name, or "the inline PEM".
        origin: String,
    },
    /// An encrypted private key without its password, or encrypted in the way of old PEM (`Proc-Type`). Give the password, or
    /// decrypt the key with the command in the message.
    #[error(
        "the private key in {origin} is encrypted; give its password, or decrypt it: openssl pkey -in FILE -out KEY.pem"
    )]
    EncryptedKey {
        /// File name, or "the inline PEM".
        origin: String,
    },
    /// Key and certificate do not belong together, or the key's kind is not supported.
    #[error("the client certificate and its key cannot be used")]
    Identity(#[source] rustls::Error),
    /// The system's store of certificate authorities is empty or unreadable. Name a PEM file instead.
    #[error("the system has no certificate authorities that can be read: {0}")]
    SystemRoots(String),
    /// The name that the certificate should be for is no host name or IP address.
    #[error("{0:?} is not a name that a certificate can be for")]
    ServerName(String),
}

impl TlsConfig {
    /// Reads every file and checks that all fits together. Blocks on the file system.
    ///
    /// # Errors
    /// The first thing that cannot be used.
    pub fn check(&self) -> Result<(), TlsConfigError> {
        if let Some(name) = &self.server_name {
            self.server_name(name)?;
        }
        self.client_config().map(|_| ())
    }

    pub(crate) async fn connector(&self) -> Result<TlsConnector, TlsConfigError> {
        let this = self.clone();
        // Reads files.
        let built = tokio::task::spawn_blocking(move || this.client_config()).await;
        match built {
            Ok(config) => Ok(TlsConnector::from(Arc::new(config?))),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(TlsConfigError::SystemRoots("the runtime is shutting down".to_owned())),
            },
        }
    }

    /// The name to verify. The trailing dot of a fully qualified name is not part of any certificate;
    /// `ServerName` drops it.
    pub(crate) fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsConfigError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        // The scope of a link-local address is not part of it.
        let bare = name.split('%').next().unwrap_or(name);
        ServerName::try_from(bare.to_owned()).map_err(|_| TlsConfigError::ServerName(name.to_owned()))
    }

    pub(crate) fn client_config(&self) -> Result<ClientConfig, TlsConfigError> {
        self.client_config_with(|verifier| verifier)
    }

    /// The configuration of a connection, with what `wrap` makes of its verifier of certificates.
    pub(crate) fn client_config_with(
        &self,
        wrap: impl FnOnce(Arc<dyn ServerCertVerifier>) -> Arc<dyn ServerCertVerifier>,
    ) -> Result<ClientConfig, TlsConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(self.roots.load()?);
        let chain = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .expect("the roots are not empty and there are no revocation lists");
        let verifier: Arc<dyn ServerCertVerifier> =
            if self.verify_host_name { chain } else { Arc::new(AnyName(chain)) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the cipher suites of TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(wrap(verifier));
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some(identity) => {
                let (certificates, key) = (identity.certificates.certificates()?, identity.key.key()?);
                let key = ec::with_public_key(key, certificates.first());
                builder.with_client_auth_cert(certificates, key).map_err(TlsConfigError::Identity)
            }
        }
    }
}

impl Roots {
    pub(crate) fn load(&self) -> Result<RootCertStore, TlsConfigError> {
        let mut store = RootCertStore::empty();
        match self {
            Self::Pem(pem) => {
                for (n, certificate) in pem.roots()?.into_iter().enumerate() {
                    let wrap =
                        |source| TlsConfigError::Certificate { origin: pem.origin(), index: n + 1, source };
                    store.add(certificate).map_err(wrap)?;
                }
            }
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                // A system's store often holds a few that are too old to be understood.
                let (usable, _) = store.add_parsable_certificates(found.certs);
                if usable == 0 {
                    let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                    let errors =
                        if errors.is_empty() { "none were found".to_owned() } else { errors.join("; ") };
                    return Err(TlsConfigError::SystemRoots(errors));
                }
            }
        }
        Ok(store)
    }
}

/// The largest file of certificates that is read: hundreds of times those that systems come with.
const PEM_BYTES_MAX: u64 = 64 << 20;

/// Reads a file that is not without end, as a device can be, and in which nobody has to be waited for.
fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    // A pipe waits for somebody who writes, and gives the next dial nothing.
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_fifo(&kind) {
        return Err(io::Error::other("it is a pipe, and each connection reads it anew: a file is needed"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(io::Error::other("it is longer than 64 MiB"));
    }
    Ok(bytes)
}

/// What a file or a text turned out to be.
enum Content {
    Pem(Vec<u8>),
    Pkcs12(Vec<u8>, PathBuf),
}

impl Pem {
    fn origin(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Inline(_) => "the inline PEM".to_owned(),
            Self::Locked { inner, .. } => inner.origin(),
        }
    }

    fn read(&self) -> Result<Content, TlsConfigError> {
        match self {
            Self::Inline(text) => Ok(Content::Pem(text.reveal().as_bytes().to_vec())),
            Self::File(path) => {
                let bytes =
                    read_small(path).map_err(|source| TlsConfigError::File { path: path.clone(), source })?;
                recognise(path, bytes)
            }
            Self::Locked { inner, .. } => inner.read(),
        }
    }

    #[cfg(feature = "pkcs12")]
    fn password(&self) -> Option<&Password> {
        match self {
            Self::Locked { password, .. } => Some(password),
            Self::File(_) | Self::Inline(_) => None,
        }
    }

    fn broken(&self, error: &rustls::pki_types::pem::Error) -> TlsConfigError {
        use rustls::pki_types::pem::Error;
        // The crate's own words can quote the text, which may be a key.
        let what = match error {
            Error::MissingSectionEnd { .. } => "a section has no END line",
            Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
            Error::Base64Decode(_) => "a section is not base64",
            _ => "a section is malformed",
        };
        TlsConfigError::Pem { origin: self.origin(), what: what.to_owned() }
    }

    /// Certificates to trust: all that there are.
    fn roots(&self) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        match self.read()? {
            Content::Pem(bytes) => self.pem_certificates(&bytes),
            Content::Pkcs12(bytes, path) => self.open_roots(&bytes, path),
        }
    }

    /// The certificate to show, then those that lead to a root.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        match self.read()? {
            Content::Pem(bytes) => self.pem_certificates(&bytes),
            Content::Pkcs12(bytes, path) => Ok(self.open_identity(&bytes, path)?.0),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
        match self.read()? {
            Content::Pem(bytes) => self.pem_key(&bytes),
            Content::Pkcs12(bytes, path) => Ok(self.open_identity(&bytes, path)?.1),
        }
    }

    fn pem_certificates(&self, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
        let found = found.map_err(|error| self.broken(&error))?;
        if found.is_empty() {
            return Err(TlsConfigError::NoCertificate { origin: self.origin() });
        }
        Ok(found)
    }

    fn pem_key(&self, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
        use rustls::pki_types::pem::Error;
        if holds(bytes, b"Proc-Type: 4,ENCRYPTED") {
            return Err(TlsConfigError::EncryptedKey { origin: self.origin() });
        }
        match PrivateKeyDer::from_pem_slice(bytes) {
            Ok(key) => Ok(key),
            Err(Error::NoItemsFound) if holds(bytes, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") => {
                self.open_key(bytes)
            }
            Err(Error::NoItemsFound) => Err(TlsConfigError::NoKey { origin: self.origin() }),
            Err(error) => Err(self.broken(&error)),
        }
    }
}

/// What needs a password.
#[cfg(feature = "pkcs12")]
impl Pem {
    fn open_key(&self, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
        let origin = self.origin();
        let Some(password) = self.password() else { return Err(TlsConfigError::EncryptedKey { origin }) };
        locked::pem_key(bytes, password.reveal()).map_err(|shut| match shut {
            Shut::Password => TlsConfigError::WrongPassword { origin },
            Shut::Empty => TlsConfigError::NoKey { origin },
            Shut::Broken => TlsConfigError::Pem { origin, what: "the encrypted key is malformed".to_owned() },
        })
    }

    fn open_roots(
        &self,
        bytes: &[u8],
        path: PathBuf,
    ) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let origin = self.origin();
        let Some(password) = self.password() else { return Err(TlsConfigError::Pkcs12 { path }) };
        locked::pkcs12_certificates(bytes, password.reveal()).map_err(|shut| match shut {
            Shut::Password => TlsConfigError::WrongPassword { origin },
            Shut::Empty => TlsConfigError::NoCertificate { origin },
            Shut::Broken => TlsConfigError::BrokenPkcs12 { path },
        })
    }

    fn open_identity(&self, bytes: &[u8], path: PathBuf) -> Result<Identity, TlsConfigError> {
        let origin = self.origin();
        let Some(password) = self.password() else { return Err(TlsConfigError::Pkcs12 { path }) };
        locked::pkcs12_identity(bytes, password.reveal()).map_err(|shut| match shut {
            Shut::Password => TlsConfigError::WrongPassword { origin },
            Shut::Empty => TlsConfigError::NoKey { origin },
            Shut::Broken => TlsConfigError::BrokenPkcs12 { path },
        })
    }
}

/// Without the feature nothing is opened.
#[cfg(not(feature = "pkcs12"))]
impl Pem {
    fn open_key(&self, _: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
        Err(TlsConfigError::EncryptedKey { origin: self.origin() })
    }

    fn open_roots(&self, _: &[u8], path: PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        Err(TlsConfigError::Pkcs12 { path })
    }

    fn open_identity(&self, _: &[u8], path: PathBuf) -> Result<Identity, TlsConfigError> {
        Err(TlsConfigError::Pkcs12 { path })
    }
}

/// Certificates, the own one first, and their key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What a file holds, by its first bytes.
fn recognise(path: &Path, bytes: Vec<u8>) -> Result<Content, TlsConfigError> {
    let path = path.to_owned();
    match &bytes[..] {
        // JKS and JCEKS.
        [0xfe, 0xed, 0xfe, 0xed, ..] | [0xce, 0xce, 0xce, 0xce, ..] => Err(TlsConfigError::Jks { path }),
        // A DER sequence (with a length of one, two or three bytes) that begins with the integer 3: the PFX
        // of RFC 7292.
        [0x30, 0x81, _, 2, 1, 3, ..]
        | [0x30, 0x82, _, _, 2, 1, 3, ..]
        | [0x30, 0x83, _, _, _, 2, 1, 3, ..] => Ok(Content::Pkcs12(bytes, path)),
        // A sequence that begins with a sequence.
        [0x30, 0x81, _, 0x30, ..] | [0x30, 0x82, _, _, 0x30, ..] => {
            let what = format!(
                ", it looks like a certificate in DER; convert it: openssl x509 -inform DER -in {path} -out {path}.pem",
                path = path.display()
            );
            Err(TlsConfigError::Unknown { path, what })
        }
        [] => Err(TlsConfigError::Unknown { path, what: ", it is empty".to_owned() }),
        // What stands around the sections of PEM may be anything, but there is a section.
        _ if holds(&bytes, b"-----BEGIN ") => Ok(Content::Pem(bytes)),
        _ => Err(TlsConfigError::Unknown { path, what: String::new() }),
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Verifies all of a certificate but the name.
struct AnyName(Arc<WebPkiServerVerifier>);

impl fmt::Debug for AnyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyName")
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is looked at last, after the chain, the dates and the purpose.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::peer::{Peer, chain, in_seconds};
use crate::{BrokerAddress, CloseReason, Connection, ConnectionConfig, Security};

/// A certificate authority made for one test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    fn roots(&self) -> Roots {
        Roots::Pem(inline(&self.pem))
    }
}

fn inline(text: &str) -> Pem {
    Pem::Inline(Password::new(text))
}

fn server(identity: &Identity, clients: Option<&Authority>) -> TlsAcceptor {
    let certificates = inline(&identity.certificate).certificates().unwrap();
    let key = inline(&identity.key).key().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = match clients {
        None => builder.unwrap().with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(authority.roots().load().unwrap());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
            builder.unwrap().with_client_cert_verifier(verifier)
        }
    };
    TlsAcceptor::from(Arc::new(builder.with_single_cert(certificates, key).unwrap()))
}

/// A listener that serves ApiVersions over TLS to everyone who gets through.
async fn listen(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            match acceptor.accept(socket).into_fallible().await {
                Ok(stream) => {
                    let mut peer = Peer::new(stream);
                    peer.serve_versions().await;
                    // Until the client has seen enough.
                    peer.next().await;
                }
                Err((_, mut socket)) => {
                    // What the client still sends is read, so that no reset overtakes the alert.
                    let _ = socket.read_to_end(&mut Vec::new()).await;
                }
            }
        }
    });
    address
}

/// What becomes of a connect.
async fn connect(host: &str, at: SocketAddr, security: Security) -> Result<(), String> {
    let address = BrokerAddress::new(host, at.port().into()).unwrap();
    let config = Arc::new(ConnectionConfig { security, ..ConnectionConfig::default() });
    let connection = Connection::connect(&address, &config, in_seconds(10)).await;
    // Ports differ from run to run.
    connection.map(|_| ()).map_err(|error| chain(&error).replace(&at.port().to_string(), "PORT"))
}

fn tls(roots: Roots) -> TlsConfig {
    TlsConfig { roots, ..TlsConfig::default() }
}

#[tokio::test]
async fn a_certificate_is_good_only_from_a_trusted_authority_and_for_the_dialled_host() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let at = listen(server(&authority.issue("localhost"), None)).await;
    let localhost = |config| connect("localhost", at, Security::Tls(config));
    assert_eq!(localhost(tls(authority.roots())).await, Ok(()));
    insta::assert_snapshot!(localhost(tls(stranger.roots())).await.unwrap_err(), @"TLS with localhost:PORT failed: invalid peer certificate: BadSignature");

    let by_address = |config| connect("127.0.0.1", at, Security::Tls(config));
    insta::assert_snapshot!(by_address(tls(authority.roots())).await.unwrap_err(), @"TLS with 127.0.0.1:PORT failed: invalid peer certificate: certificate not valid for name \"127.0.0.1\"; certificate is only valid for DnsName(\"localhost\")");
    let named = TlsConfig { server_name: Some("localhost".to_owned()), ..tls(authority.roots()) };
    assert_eq!(by_address(named).await, Ok(()));
    let any_name = |roots| TlsConfig { verify_host_name: false, ..tls(roots) };
    assert_eq!(by_address(any_name(authority.roots())).await, Ok(()));
    assert!(by_address(any_name(stranger.roots())).await.is_err(), "the authority still counts");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_the_broker_wants_one() {
    let authority = Authority::new();
    let at = listen(server(&authority.issue("localhost"), Some(&authority))).await;
    let with = |identity| TlsConfig { identity, ..tls(authority.roots()) };
    let client = authority.issue("client");
    let client = ClientIdentity { certificates: inline(&client.certificate), key: inline(&client.key) };
    assert_eq!(connect("localhost", at, Security::Tls(with(Some(client)))).await, Ok(()));
    insta::assert_snapshot!(connect("localhost", at, Security::Tls(with(None))).await.unwrap_err(), @"TLS with localhost:PORT failed: received fatal alert: CertificateRequired");
}

#[tokio::test]
async fn a_renewed_client_certificate_is_used_by_the_next_dial() {
    let (authority, retired) = (Authority::new(), Authority::new());
    let at = listen(server(&authority.issue("localhost"), Some(&authority))).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |identity: &Identity| {
        std::fs::write(file.path(), format!("{}{}", identity.key, identity.certificate)).unwrap();
    };
    // Key and certificate from one file, as Kafka's keystore.pem has them.
    let pem = || Pem::File(file.path().to_owned());
    let identity = Some(ClientIdentity { certificates: pem(), key: pem() });
    let config = Security::Tls(TlsConfig { identity, ..tls(authority.roots()) });
    write(&retired.issue("client"));
    assert!(connect("localhost", at, config.clone()).await.is_err());
    write(&authority.issue("client"));
    assert_eq!(connect("localhost", at, config).await, Ok(()));
}

#[tokio::test]
async fn tls_against_plaintext_and_the_reverse_are_told_at_once() {
    let authority = Authority::new();
    let secure = listen(server(&authority.issue("localhost"), None)).await;
    insta::assert_snapshot!(connect("localhost", secure, Security::Plaintext).await.unwrap_err(), @"localhost:PORT wants TLS: it answered our plaintext request with TLS");

    // A plaintext Kafka listener takes a ClientHello for an absurd length, and hangs up.
    let config = || Security::Tls(tls(authority.roots()));
    let hangs_up = answer_with(b"").await;
    insta::assert_snapshot!(connect("localhost", hangs_up, config()).await.unwrap_err(), @"localhost:PORT does not speak TLS: it hung up at our TLS handshake");
    let web_server = answer_with(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    insta::assert_snapshot!(connect("localhost", web_server, config()).await.unwrap_err(), @"localhost:PORT answered our TLS handshake in plain HTTP");
    let refuses = answer_with(&[0x15, 3, 3, 0, 2, 2, 40]).await;
    insta::assert_snapshot!(connect("localhost", refuses, config()).await.unwrap_err(), @"TLS with localhost:PORT failed: received fatal alert: HandshakeFailure");
}

#[tokio::test]
async fn a_broker_that_ends_tls_without_a_goodbye_has_closed_the_connection() {
    let authority = Authority::new();
    let acceptor = server(&authority.issue("localhost"), None);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let broker = async {
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut peer = Peer::new(stream);
        peer.serve_versions().await;
        // The socket ends, and TLS has not said so.
        drop(peer);
    };
    let address = BrokerAddress::new("localhost", at.port().into()).unwrap();
    let security = Security::Tls(tls(authority.roots()));
    let config = Arc::new(ConnectionConfig { security, ..ConnectionConfig::default() });
    let (connection, ()) = tokio::join!(Connection::connect(&address, &config, in_seconds(10)), broker);
    let reason = connection.unwrap().closed().await;
    assert!(matches!(*reason, CloseReason::ClosedByBroker), "{reason}");
}

/// A listener that reads a little, answers with `bytes` and hangs up.
async fn answer_with(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_u32().await.unwrap();
        socket.write_all(bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        let _ = socket.read_to_end(&mut Vec::new()).await;
    });
    address
}

#[test]
fn a_trailing_dot_and_a_scope_are_not_part_of_the_name_in_a_certificate() {
    let name = |host| TlsConfig::default().server_name(host).unwrap().to_str().into_owned();
    assert_eq!(name("broker1.example.com."), "broker1.example.com");
    assert_eq!(name("fe80::1%eth0"), "fe80::1");
    insta::assert_snapshot!(TlsConfig::default().server_name("").unwrap_err(), @"\"\" is not a name that a certificate can be for");
}

#[test]
fn a_setting_that_cannot_be_used_is_answered_with_what_to_do() {
    let authority = Authority::new();
    let (one, other) = (authority.issue("one"), authority.issue("other"));
    let checked = |roots: Pem, identity: Option<(&str, &str)>| {
        let identity = identity
            .map(|(certificate, key)| ClientIdentity { certificates: inline(certificate), key: inline(key) });
        let config = TlsConfig { identity, ..tls(Roots::Pem(roots)) };
        config.check().map_err(|error| chain(&error))
    };
    let fails = |roots: Pem| checked(roots, None).unwrap_err();
    let identity_fails =
        |certificate: &str, key: &str| checked(inline(&authority.pem), Some((certificate, key))).unwrap_err();
    assert_eq!(checked(inline(&authority.pem), Some((&one.certificate, &one.key))), Ok(()));

    insta::assert_snapshot!(fails(Pem::File("/nowhere/ca.pem".into())), @"cannot read /nowhere/ca.pem: No such file or directory (os error 2)");
    insta::assert_snapshot!(fails(inline("no PEM at all")), @"the inline PEM holds no certificate");
    insta::assert_snapshot!(fails(inline(&one.key)), @"the inline PEM holds no certificate");
    insta::assert_snapshot!(fails(inline("-----BEGIN CERTIFICATE-----\nAAAA\n")), @"the inline PEM is not valid PEM: a section has no END line");
    insta::assert_snapshot!(fails(inline("-----BEGIN CERTIFICATE-----\n~~~\n-----END CERTIFICATE-----\n")), @"the inline PEM is not valid PEM: a section is not base64");
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    insta::assert_snapshot!(fails(inline(empty)), @"certificate 1 of the inline PEM cannot be used: invalid peer certificate: BadEncoding");
    insta::assert_snapshot!(identity_fails(&one.certificate, &other.key), @"the client certificate and its key cannot be used: keys may not be consistent: KeyMismatch");
    insta::assert_snapshot!(identity_fails(&one.certificate, &one.certificate), @"the inline PEM holds no private key");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    insta::assert_snapshot!(identity_fails(&one.certificate, encrypted), @"the private key in the inline PEM is encrypted; give its password, or decrypt it: openssl pkey -in FILE -out KEY.pem");
}

#[test]
fn a_file_without_end_is_refused() {
    let error = read_small(Path::new("/dev/zero")).unwrap_err();
    assert_eq!(error.to_string(), "it is longer than 64 MiB");
}

#[test]
fn java_key_stores_are_recognised_and_answered_with_the_command_that_converts_them() {
    let told = |bytes: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let error = tls(Roots::Pem(Pem::File(file.path().to_owned()))).check().unwrap_err().to_string();
        error.replace(&file.path().display().to_string(), "STORE")
    };
    insta::assert_snapshot!(told(&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]), @"STORE is a Java key store (JKS); convert it: keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12 && openssl pkcs12 -in STORE.p12 -out STORE.pem -nodes");
    insta::assert_snapshot!(told(&[0x30, 0x82, 9, 9, 2, 1, 3, 0x30]), @"STORE is a PKCS #12 file, and its password is missing; give it, or convert the file: openssl pkcs12 -in STORE -out STORE.pem -nodes");
}

#[cfg(feature = "pkcs12")]
mod locked {
    use super::*;

    fn testdata(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tls/testdata").join(name)
    }

    fn opened(name: &str, password: &str) -> Pem {
        Pem::Locked { inner: Box::new(Pem::File(testdata(name))), password: Password::new(password) }
    }

    fn identity(certificates: Pem, key: Pem) -> Result<(), String> {
        let identity = Some(ClientIdentity { certificates, key });
        let roots = Roots::Pem(Pem::File(testdata("client.pem")));
        TlsConfig { identity, ..tls(roots) }.check().map_err(|error| told(&error))
    }

    fn roots(pem: Pem) -> Result<(), String> {
        tls(Roots::Pem(pem)).check().map_err(|error| told(&error))
    }

    fn told(error: &TlsConfigError) -> String {
        chain(error).replace(&testdata("").display().to_string(), "DIR/")
    }

    #[test]
    fn key_stores_of_java_and_of_openssl_are_opened_with_their_password() {
        let certificate = Pem::File(testdata("client.pem")).certificates().unwrap();
        for name in ["keytool-keystore.p12", "openssl-keystore.p12", "openssl-legacy.p12"] {
            let store = || opened(name, "changeit");
            assert_eq!(store().certificates().unwrap(), certificate, "{name}");
            assert_eq!(identity(store(), store()), Ok(()), "{name}");
            assert_eq!(identity(Pem::File(testdata("client.pem")), store()), Ok(()), "{name}");
        }
        for name in ["keytool-truststore.p12", "keytool-keystore.p12", "openssl-keystore.p12"] {
            assert_eq!(opened(name, "changeit").roots().unwrap(), certificate, "{name}");
            assert_eq!(roots(opened(name, "changeit")), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_key_store_that_stays_shut_says_why() {
        let store = "keytool-keystore.p12";
        let fails = |certificates, key| identity(certificates, key).unwrap_err();
        let wrong = || opened(store, "wrong");
        insta::assert_snapshot!(fails(wrong(), wrong()), @"the password does not open DIR/keytool-keystore.p12");
        let shut = || Pem::File(testdata(store));
        insta::assert_snapshot!(fails(shut(), shut()), @"DIR/keytool-keystore.p12 is a PKCS #12 file, and its password is missing; give it, or convert the file: openssl pkcs12 -in DIR/keytool-keystore.p12 -out DIR/keytool-keystore.p12.pem -nodes");
        insta::assert_snapshot!(roots(opened("openssl-keystore.p12", "wrong")).unwrap_err(), @"the password does not open DIR/openssl-keystore.p12");
        let trusted = || opened("keytool-truststore.p12", "changeit");
        insta::assert_snapshot!(fails(trusted(), trusted()), @"DIR/keytool-truststore.p12 holds no private key");

        // Whatever is cut off or flipped, there is no panic, and no other key.
        let whole = std::fs::read(testdata(store)).unwrap();
        let good = opened(store, "changeit").key().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for at in (12..whole.len()).step_by(61) {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x55;
            for bytes in [&whole[..at], &flipped] {
                file.as_file_mut().set_len(0).unwrap();
                std::fs::write(file.path(), bytes).unwrap();
                let inner = Box::new(Pem::File(file.path().to_owned()));
                let broken = Pem::Locked { inner, password: Password::new("changeit") };
                assert!(broken.key().is_ok_and(|key| key == good) || broken.key().is_err(), "at {at}");
            }
        }
    }

    #[test]
    fn an_encrypted_pem_key_is_opened_with_its_password() {
        let certificate = || Pem::File(testdata("client.pem"));
        assert_eq!(identity(certificate(), opened("openssl-key.pem", "changeit")), Ok(()));
        let text = std::fs::read_to_string(testdata("openssl-key.pem")).unwrap();
        let text = || Box::new(inline(&text));
        let password = || Password::new("changeit");
        assert_eq!(identity(certificate(), Pem::Locked { inner: text(), password: password() }), Ok(()));
        let fails = |key| identity(certificate(), key).unwrap_err();
        insta::assert_snapshot!(fails(opened("openssl-key.pem", "wrong")), @"the password does not open DIR/openssl-key.pem");
        insta::assert_snapshot!(fails(Pem::File(testdata("openssl-key.pem"))), @"the private key in DIR/openssl-key.pem is encrypted; give its password, or decrypt it: openssl pkey -in FILE -out KEY.pem");
        let old =
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
        let old = Pem::Locked { inner: Box::new(inline(old)), password: password() };
        insta::assert_snapshot!(fails(old), @"the private key in the inline PEM is encrypted; give its password, or decrypt it: openssl pkey -in FILE -out KEY.pem");
        let broken = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let broken = Pem::Locked { inner: Box::new(inline(broken)), password: password() };
        insta::assert_snapshot!(fails(broken), @"the inline PEM is not valid PEM: the encrypted key is malformed");
        // A key that is not encrypted needs no password, and minds none.
        let issued = Authority::new().issue("client");
        let key = Pem::Locked { inner: Box::new(inline(&issued.key)), password: password() };
        assert_eq!(identity(inline(&issued.certificate), key), Ok(()));
    }
}

//! What the settings say about the connection to Kafka, checked.

use std::path::PathBuf;
use std::time::Duration;

use strandline_conn::{
    BrokerAddress, ClientIdentity, ConnectionConfig, Credentials, Password, Pem, Roots, SaslConfig, Security,
    TlsConfig, TlsConfigError,
};

use super::jaas::Jaas;
use super::{Origin, Settings};
use crate::exit::Failure;

/// All that a cluster needs to be found and talked to.
#[derive(Debug)]
pub(crate) struct ClientSettings {
    /// Where to begin, at least one.
    pub(crate) bootstrap: Vec<BrokerAddress>,
    /// How connections are made.
    pub(crate) connection: ConnectionConfig,
    /// How long one request may take.
    pub(crate) request_timeout: Duration,
}

/// A mechanism's name, the login module that goes with it, and what it becomes.
type Mechanism = (&'static str, &'static str, fn(Credentials) -> SaslConfig);

/// The mechanisms that are spoken with a user name and a password; OAUTHBEARER, which has tokens, is apart.
const MECHANISMS: [Mechanism; 3] = [
    ("PLAIN", "PlainLoginModule", SaslConfig::Plain),
    ("SCRAM-SHA-256", "ScramLoginModule", SaslConfig::ScramSha256),
    ("SCRAM-SHA-512", "ScramLoginModule", SaslConfig::ScramSha512),
];
pub(super) const MECHANISMS_HINT: &str = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are";

/// The values of `security.protocol`: name, whether it has TLS, whether it has SASL.
const PROTOCOLS: [(&str, bool, bool); 4] = [
    ("PLAINTEXT", false, false),
    ("SSL", true, false),
    ("SASL_PLAINTEXT", false, true),
    ("SASL_SSL", true, true),
];

fn is_protocol(text: &str) -> bool {
    PROTOCOLS.into_iter().any(|(name, ..)| name.eq_ignore_ascii_case(text))
}

impl Settings {
    /// The connection that the settings describe.
    pub(crate) fn client(&mut self) -> Result<ClientSettings, Failure> {
        let bootstrap = self.bootstrap()?;
        let protocol = self.value("security.protocol").unwrap_or("PLAINTEXT").to_ascii_uppercase();
        let Some((_, tls, sasl)) = PROTOCOLS.into_iter().find(|(name, ..)| *name == protocol) else {
            let what = "is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL";
            return Err(self.wrong("security.protocol", what));
        };
        self.warn_of_idle_security(&protocol, tls, sasl);
        if sasl {
            self.warn_of_open_secrets(tls);
        }
        let connection = ConnectionConfig {
            client_id: self.value("client.id").unwrap_or("strandline").to_owned(),
            security: if tls { Security::Tls(self.tls()?) } else { Security::Plaintext },
            sasl: if sasl { Some(self.sasl()?) } else { None },
            idle_timeout: self.idle_timeout()?,
            connect_timeout: self
                .millis("socket.connection.setup.timeout.ms", strandline_conn::DEFAULT_CONNECT_TIMEOUT)?,
            ..ConnectionConfig::default()
        };
        let request_timeout = self.millis("request.timeout.ms", strandline_meta::DEFAULT_REQUEST_TIMEOUT)?;
        Ok(ClientSettings { bootstrap, connection, request_timeout })
    }

    pub(super) fn wrong(&self, key: &str, what: &str) -> Failure {
        match self.origin(key) {
            Some(Origin::Flag(flag)) => Failure::usage(format!("{flag} {what}")),
            origin => {
                let origin = origin.map(Origin::to_string).unwrap_or_default();
                Failure::configuration(format!("{origin}: {key} {what}"))
            }
        }
    }

    fn bootstrap(&self) -> Result<Vec<BrokerAddress>, Failure> {
        let text = self.value("bootstrap.servers").unwrap_or_default();
        let servers: Vec<&str> = text.split(',').map(str::trim).filter(|server| !server.is_empty()).collect();
        if servers.is_empty() {
            return Err(Failure::usage("no broker is named").hint("-b HOST:PORT names one"));
        }
        let address = |server: &str| {
            let bare = match server.split_once("://") {
                // librdkafka, and listeners copied from a broker's file, have the protocol before the host.
                Some((protocol, address)) if is_protocol(protocol) => address,
                _ => server,
            };
            bare.parse().map_err(|error| self.wrong("bootstrap.servers", &format!("is wrong: {error}")))
        };
        servers.into_iter().map(address).collect()
    }

    fn warn_of_idle_security(&mut self, protocol: &str, tls: bool, sasl: bool) {
        let sasl_keys =
            ["sasl.jaas.config", "sasl.username", "sasl.password", "sasl.oauthbearer.token.endpoint.url"];
        let tls_keys = ["ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.location"];
        for (used, keys) in [(sasl, &sasl_keys[..]), (tls, &tls_keys[..])] {
            if let Some(key) = keys.iter().find(|key| !used && self.value(key).is_some()) {
                self.warnings.push(format!("{key} is set, and security.protocol {protocol} does not use it"));
            }
        }
    }

    /// Secrets that travel as they are, for everybody on the way to read. SCRAM shows none.
    fn warn_of_open_secrets(&mut self, tls: bool) {
        let secret = match self.value("sasl.mechanism") {
            Some("PLAIN") => "the password (PLAIN)",
            Some("OAUTHBEARER") => "the token (OAUTHBEARER)",
            _ => return,
        };
        if !tls {
            self.warnings.push(format!(
                "security.protocol SASL_PLAINTEXT has no TLS: {secret} goes to the brokers unencrypted; SASL_SSL protects it"
            ));
        }
        let endpoint = self.value("sasl.oauthbearer.token.endpoint.url").unwrap_or_default();
        let open = endpoint.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
        if open && self.value("sasl.mechanism") == Some("OAUTHBEARER") {
            self.warnings.push(
                "sasl.oauthbearer.token.endpoint.url is http: the client secret goes there unencrypted, and the token \
                 comes back so; https protects both"
                    .to_owned(),
            );
        }
    }

    fn millis(&self, key: &'static str, default: Duration) -> Result<Duration, Failure> {
        let Some(text) = self.value(key) else { return Ok(default) };
        match text.parse::<u64>() {
            Ok(millis) if (1..=86_400_000).contains(&millis) => Ok(Duration::from_millis(millis)),
            _ => Err(self.wrong(key, "is not a number of milliseconds from 1 to a day")),
        }
    }

    /// Java's -1 is never.
    fn idle_timeout(&self) -> Result<Duration, Failure> {
        let key = "connections.max.idle.ms";
        if self.value(key) == Some("-1") {
            return Ok(Duration::ZERO);
        }
        self.millis(key, strandline_conn::DEFAULT_IDLE_TIMEOUT)
    }

    fn sasl(&self) -> Result<SaslConfig, Failure> {
        let jaas = match self.value("sasl.jaas.config") {
            Some(text) => Some(Jaas::parse(text).map_err(|what| self.wrong("sasl.jaas.config", what))?),
            None => None,
        };
        let module = jaas.as_ref().map(|jaas| jaas.module.as_str());
        let mechanism = self.value("sasl.mechanism");
        if mechanism == Some("GSSAPI") || module == Some("Krb5LoginModule") {
            return Err(Failure::unsupported("Kerberos (GSSAPI) is not supported").hint(MECHANISMS_HINT));
        }
        if mechanism == Some("OAUTHBEARER") {
            return self.oauthbearer(jaas.as_ref());
        }
        if self.value("sasl.login.callback.handler.class").is_some() {
            return Err(Failure::unsupported("sasl.login.callback.handler.class is not supported")
                .hint("sasl.username and sasl.password hold the credentials"));
        }
        let Some(mechanism) = mechanism else {
            return Err(Failure::configuration("sasl.mechanism is missing")
                .hint("-X sasl.mechanism=PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"));
        };
        let Some((_, wanted, make)) = MECHANISMS.into_iter().find(|(name, ..)| *name == mechanism) else {
            return Err(self
                .wrong("sasl.mechanism", &format!("{mechanism:?} is not supported"))
                .hint(MECHANISMS_HINT));
        };
        if let Some(module) = module.filter(|module| *module != wanted) {
            return Err(
                self.wrong("sasl.jaas.config", &format!("names {module}, and the mechanism needs {wanted}"))
            );
        }
        let username = self.credential("sasl.username", jaas.as_ref(), "username")?;
        let password = Password::new(self.credential("sasl.password", jaas.as_ref(), "password")?);
        Ok(make(Credentials { username, password }))
    }

    /// A user name, a password or the like, which must be there.
    pub(super) fn credential(
        &self,
        key: &'static str,
        jaas: Option<&Jaas>,
        option: &str,
    ) -> Result<String, Failure> {
        self.key_or_option(key, jaas, option).map(str::to_owned).ok_or_else(|| {
            Failure::configuration(format!("{key} is missing")).hint(format!(
                "{option}=\"…\" in sasl.jaas.config, -X {key}=…, or the variable STRANDLINE_X_{}",
                key.to_ascii_uppercase().replace('.', "_")
            ))
        })
    }

    /// A value from its own key or from an option of the JAAS entry, whichever stands in the stronger source.
    pub(super) fn key_or_option<'s>(
        &'s self,
        key: &'static str,
        jaas: Option<&'s Jaas>,
        option: &str,
    ) -> Option<&'s str> {
        let in_jaas = jaas.and_then(|jaas| jaas.option(option));
        // A password may begin or end with blanks, so it is taken as it stands.
        let own = self.values.get(key).map(|setting| setting.value.as_str());
        match (own, in_jaas) {
            (Some(_), Some(jaas)) if self.origin(key) < self.origin("sasl.jaas.config") => Some(jaas),
            (Some(own), _) => Some(own),
            (None, jaas) => jaas,
        }
    }

    fn tls(&self) -> Result<TlsConfig, Failure> {
        let algorithm =
            self.values.get("ssl.endpoint.identification.algorithm").map(|setting| setting.value.trim());
        let verify_host_name = match algorithm {
            None | Some("https" | "HTTPS") => true,
            Some("" | "none") => false,
            Some(_) => {
                return Err(self.wrong("ssl.endpoint.identification.algorithm", "is neither https nor empty"));
            }
        };
        let pem = |inline, file, passwords| self.pem(inline, file, passwords);
        let roots =
            pem("ssl.truststore.certificates", "ssl.truststore.location", &["ssl.truststore.password"])
                .map_or(Roots::System, Roots::Pem);
        // In PKCS #12 the password is the store's, in PEM the key's; Java takes no other way either.
        let store_passwords = &["ssl.keystore.password", "ssl.key.password"];
        let keystore = || pem("", "ssl.keystore.location", store_passwords);
        let certificates = pem("ssl.keystore.certificate.chain", "ssl.certificate.location", &[]);
        let key = pem("ssl.keystore.key", "ssl.key.location", &["ssl.key.password"]);
        let identity = match (certificates, key) {
            (Some(certificates), Some(key)) => Some(ClientIdentity { certificates, key }),
            // One file with both, as Kafka's PEM key stores are.
            (None, None) => keystore().map(|both| ClientIdentity { certificates: both.clone(), key: both }),
            (Some(_), None) => {
                return Err(Failure::configuration("a client certificate is set without its key")
                    .hint("ssl.keystore.key or ssl.key.location names it"));
            }
            (None, Some(_)) => {
                return Err(Failure::configuration("a client key is set without its certificate")
                    .hint("ssl.keystore.certificate.chain or ssl.certificate.location names it"));
            }
        };
        let config = TlsConfig { roots, identity, verify_host_name, server_name: None };
        config.check().map_err(tls_failure)?;
        Ok(config)
    }

    /// PEM text from the key that holds it, else the file that a key names; with the first password of those that may open it.
    fn pem(&self, inline: &'static str, file: &'static str, passwords: &[&'static str]) -> Option<Pem> {
        let text = if inline.is_empty() { None } else { self.value(inline) };
        let pem = match text {
            Some(text) => Pem::Inline(Password::new(unfold_pem(text))),
            None => Pem::File(PathBuf::from(self.value(file)?)),
        };
        // Taken as it stands: it may begin or end with blanks.
        let password = passwords.iter().find_map(|key| self.values.get(key));
        Some(match password {
            Some(password) => {
                Pem::Locked { inner: Box::new(pem), password: Password::new(password.value.as_str()) }
            }
            None => pem,
        })
    }
}

/// The failure for TLS settings that cannot be used; the error's own words say what to do.
pub(super) fn tls_failure(error: TlsConfigError) -> Failure {
    Failure::configuration(anyhow::Error::new(error))
}

/// PEM as a properties file holds it, on one line or with `\n` as two characters: its blocks get their line ends.
pub(super) fn unfold_pem(text: &str) -> String {
    let text = text.replace("\\n", "\n");
    if text.contains('\n') {
        return text;
    }
    let mut lines = String::with_capacity(text.len() + 8);
    for part in text.split("-----") {
        let part = part.trim();
        if part.starts_with("BEGIN ") || part.starts_with("END ") {
            lines.push_str(&format!("-----{part}-----\n"));
        } else if !part.is_empty() {
            lines.push_str(&part.split_whitespace().collect::<Vec<_>>().join("\n"));
            lines.push('\n');
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Given, Settings};
    use super::*;

    fn client(pairs: &[&str]) -> Result<ClientSettings, Failure> {
        let x: Vec<String> = pairs.iter().map(|&pair| pair.to_owned()).collect();
        let given = Given { bootstrap: Some("localhost:9092"), x: &x, ..Given::default() };
        Settings::collect(&given)?.client()
    }

    const PLAIN: &str = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"p w\";";

    fn credentials(client: ClientSettings) -> (&'static str, String, String) {
        let sasl = client.connection.sasl.unwrap();
        let mechanism = sasl.mechanism();
        match sasl {
            SaslConfig::Plain(of) | SaslConfig::ScramSha256(of) | SaslConfig::ScramSha512(of) => {
                (mechanism, of.username, of.password.reveal().to_owned())
            }
            _ => unreachable!("three mechanisms are made here"),
        }
    }

    #[test]
    fn bootstrap_servers_are_a_list_of_hosts_and_ports() {
        let servers = |text| {
            let given = Given { bootstrap: Some(text), ..Given::default() };
            let client = Settings::collect(&given).unwrap().client()?;
            Ok::<_, Failure>(client.bootstrap.iter().map(BrokerAddress::to_string).collect::<Vec<_>>())
        };
        assert_eq!(servers("a:1, b:2,PLAINTEXT://c:3,").unwrap(), ["a:1", "b:2", "c:3"]);
        let url = servers("a:1,http://b:2").unwrap_err();
        assert!(format!("{url:?}").contains("HOST:PORT"), "{url:?}");
        assert_eq!(servers("[::1]:9092").unwrap(), ["[::1]:9092"]);
        for bad in ["a", "a:b", "a:0", ":9092", "a:70000", "::1"] {
            assert_eq!(servers(bad).unwrap_err().exit.code(), 2, "{bad}");
        }
    }

    #[test]
    fn credentials_come_from_either_dialect_and_the_stronger_source() {
        let jaas = client(&["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", PLAIN]).unwrap();
        assert_eq!(credentials(jaas), ("PLAIN", "u".to_owned(), "p w".to_owned()));
        let librdkafka = [
            "security.protocol=sasl_plaintext",
            "sasl.mechanisms=SCRAM-SHA-512",
            "sasl.username=u",
            "sasl.password= secret ",
        ];
        let expected = ("SCRAM-SHA-512", "u".to_owned(), " secret ".to_owned());
        assert_eq!(credentials(client(&librdkafka).unwrap()), expected);
        let later =
            ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", PLAIN, "sasl.password=stronger"];
        assert_eq!(credentials(client(&later).unwrap()).2, "stronger");
    }

    #[test]
    fn wrong_security_settings_are_told_apart() {
        let code = |pairs: &[&str]| client(pairs).map(|_| ()).map_err(|failure| failure.exit.code());
        let sasl = "security.protocol=SASL_PLAINTEXT";
        assert_eq!(code(&["security.protocol=TLS"]), Err(3));
        assert_eq!(code(&[sasl]), Err(3), "no mechanism");
        assert_eq!(code(&[sasl, "sasl.mechanism=PLAIN"]), Err(3), "no user");
        assert_eq!(code(&[sasl, "sasl.mechanism=SCRAM-SHA-256", PLAIN]), Err(3), "the wrong module");
        assert_eq!(code(&[sasl, "sasl.mechanism=GSSAPI"]), Err(7));
        assert_eq!(code(&[sasl, "sasl.mechanism=PLAIN", "sasl.jaas.config=nonsense"]), Err(3));
        assert_eq!(code(&["request.timeout.ms=soon"]), Err(3));
    }

    #[test]
    fn idle_security_settings_are_warned_of() {
        let x = ["sasl.username=u".to_owned(), "ssl.ca.location=/x".to_owned()];
        let given = Given { bootstrap: Some("a:1"), x: &x, ..Given::default() };
        let mut settings = Settings::collect(&given).unwrap();
        settings.client().unwrap();
        assert_eq!(settings.warnings.len(), 2, "{:?}", settings.warnings);
    }

    #[test]
    fn a_secret_that_travels_unencrypted_is_warned_of_and_never_told() {
        let warned = |pairs: &[&str]| {
            let x: Vec<String> = pairs.iter().map(|&pair| pair.to_owned()).collect();
            let given = Given { bootstrap: Some("a:1"), x: &x, ..Given::default() };
            let mut settings = Settings::collect(&given).unwrap();
            settings.client().unwrap();
            assert!(!settings.warnings.concat().contains("hush"), "{:?}", settings.warnings);
            let first = |warning: &String| warning.split(':').next().unwrap_or_default().to_owned();
            settings.warnings.iter().map(first).collect::<Vec<_>>()
        };
        let with = |protocol: &str, mechanism: &str| {
            warned(&[
                &format!("security.protocol={protocol}"),
                &format!("sasl.mechanism={mechanism}"),
                "sasl.username=ada",
                "sasl.password=hush",
            ])
        };
        let no_tls = "security.protocol SASL_PLAINTEXT has no TLS";
        assert_eq!(with("SASL_PLAINTEXT", "PLAIN"), [no_tls]);
        assert_eq!(with("SASL_PLAINTEXT", "SCRAM-SHA-512"), [""; 0]);
        assert_eq!(with("SASL_SSL", "PLAIN"), [""; 0]);
        let token = |protocol: &str, url: &str| {
            warned(&[
                &format!("security.protocol={protocol}"),
                "sasl.mechanism=OAUTHBEARER",
                &format!("sasl.oauthbearer.token.endpoint.url={url}"),
                "sasl.oauthbearer.client.id=ada",
                "sasl.oauthbearer.client.secret=hush",
            ])
        };
        let http = "sasl.oauthbearer.token.endpoint.url is http";
        assert_eq!(token("SASL_PLAINTEXT", "HTTP://login.example.com/token"), [no_tls, http]);
        assert_eq!(token("SASL_SSL", "http://login.example.com/token"), [http]);
        assert_eq!(token("SASL_SSL", "https://login.example.com/token"), [""; 0]);
        assert_eq!(token("SASL_SSL", "file:///run/token"), [""; 0]);
    }

    #[test]
    fn a_trust_store_is_told_by_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let with = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let location = format!("ssl.truststore.location={}", path.display());
            client(&["security.protocol=SSL", &location]).map(|_| ()).unwrap_err()
        };
        let jks = with("trust.jks", &[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
        assert_eq!(jks.exit.code(), 3);
        assert!(jks.to_string().contains("keytool "), "{jks}");
        let pkcs12 = with("trust.p12", &[0x30, 0x82, 4, 0, 2, 1, 3, 0x30]);
        assert_eq!(pkcs12.exit.code(), 3);
        assert!(pkcs12.to_string().contains("password is missing"), "{pkcs12}");
        assert_eq!(with("noise", b"noise").exit.code(), 3);
        let missing = ["security.protocol=SSL", "ssl.truststore.location=/no/such/file"];
        assert_eq!(client(&missing).unwrap_err().exit.code(), 3);
    }

    #[test]
    fn a_pkcs12_store_is_opened_with_the_password_of_the_store() {
        let testdata = |name: &str| format!("{}/../conn/src/tls/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
        let store = |what: &str, password: &str| {
            let location =
                format!("ssl.{what}store.location={}", testdata(&format!("keytool-{what}store.p12")));
            let password = format!("ssl.{what}store.password={password}");
            client(&["security.protocol=SSL", "ssl.truststore.type=PKCS12", &location, &password])
        };
        for what in ["key", "trust"] {
            let identity = client_tls(store(what, "changeit").unwrap()).identity;
            assert_eq!(identity.is_some(), what == "key");
            let refused = store(what, " hush").unwrap_err();
            assert_eq!(refused.exit.code(), 3);
            assert!(refused.to_string().contains("the password does not open"), "{refused}");
            assert!(!format!("{refused:?}").contains("hush"));
        }
        let chain = format!("ssl.certificate.location={}", testdata("client.pem"));
        let key = format!("ssl.key.location={}", testdata("openssl-key.pem"));
        client(&["security.protocol=SSL", &chain, &key, "ssl.key.password=changeit"]).unwrap();
        assert!(client(&["security.protocol=SSL", &chain, &key]).is_err());
    }

    fn client_tls(client: ClientSettings) -> TlsConfig {
        match client.connection.security {
            Security::Tls(tls) => tls,
            Security::Plaintext => panic!("TLS was asked for"),
        }
    }

    #[test]
    fn inline_pem_may_stand_on_one_line() {
        let pem = "-----BEGIN CERTIFICATE----- MAo= AAAA -----END CERTIFICATE-----";
        let unfolded = "-----BEGIN CERTIFICATE-----\nMAo=\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(unfold_pem(pem), unfolded);
        assert_eq!(unfold_pem(unfolded), unfolded);
        assert_eq!(unfold_pem(&unfolded.replace('\n', "\\n")), unfolded);
    }

    #[test]
    fn no_secret_shows_in_a_debug_line() {
        let client = client(&["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", PLAIN]).unwrap();
        assert!(!format!("{client:?}").contains("p w"));
    }
}

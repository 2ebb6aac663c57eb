//! What the settings say about OAUTHBEARER: where its tokens come from.
//!
//! Three ways: a token command (a key of strandline's own), a file (a `file:` URL, as Java's `FileJwtRetriever`), or an
//! identity provider with a client id and secret, in Java's keys, in its JAAS options, or in librdkafka's keys.

use std::sync::Arc;

use strandline_conn::{
    ClientCredentials, Password, Pem, Roots, SaslConfig, TlsConfig, TokenCommand, TokenError, TokenFile,
    TokenProvider,
};

use super::Settings;
use super::client::{tls_failure, unfold_pem};
use super::jaas::Jaas;
use crate::exit::Failure;

const COMMAND: &str = "sasl.oauthbearer.token.command";
const ENDPOINT: &str = "sasl.oauthbearer.token.endpoint.url";
const CLIENT_ID: &str = "sasl.oauthbearer.client.credentials.client.id";
const CLIENT_SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";
const EXTENSIONS: &str = "sasl.oauthbearer.extensions";
const HANDLER: &str = "sasl.login.callback.handler.class";
const RETRIEVER: &str = "sasl.oauthbearer.jwt.retriever.class";

/// The names of Java's classes that do what is done here.
const HANDLERS: &[&str] = &["OAuthBearerLoginCallbackHandler"];
const RETRIEVERS: &[&str] = &["DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"];

impl Settings {
    /// The mechanism with its source of tokens.
    pub(super) fn oauthbearer(&self, jaas: Option<&Jaas>) -> Result<SaslConfig, Failure> {
        if let Some(jaas) = jaas.filter(|jaas| jaas.module != "OAuthBearerLoginModule") {
            let what = format!("names {}, and the mechanism needs OAuthBearerLoginModule", jaas.module);
            return Err(self.wrong("sasl.jaas.config", &what));
        }
        self.known_class(HANDLER, HANDLERS)?;
        self.known_class(RETRIEVER, RETRIEVERS)?;
        if let Some(method) = self.value("sasl.oauthbearer.method")
            && !["oidc", "default"].contains(&method)
        {
            return Err(self.wrong("sasl.oauthbearer.method", "is neither oidc nor default"));
        }
        let provider: Arc<dyn TokenProvider> = match (self.value(COMMAND), self.value(ENDPOINT)) {
            (Some(_), Some(_)) => {
                return Err(
                    self.wrong(COMMAND, &format!("is set, and {ENDPOINT} too: one of them is enough"))
                );
            }
            (Some(command), None) => Arc::new(self.command(command)?),
            (None, Some(url)) => match url.strip_prefix("file:") {
                // `file:/path` and `file:///path` are the same place.
                Some(path) => Arc::new(TokenFile::new(path.strip_prefix("//").unwrap_or(path))),
                None => Arc::new(self.client_credentials(url, jaas)?),
            },
            (None, None) => {
                return Err(Failure::configuration("OAUTHBEARER has no source of tokens").hint(format!(
                    "-X {ENDPOINT}=https://… with {CLIENT_ID} and {CLIENT_SECRET}, or -X {COMMAND}='PROGRAM ARGUMENT…'"
                )));
            }
        };
        Ok(SaslConfig::OAuthBearer(provider))
    }

    /// A class of Java's that is named must be one whose work is done here.
    fn known_class(&self, key: &'static str, known: &[&str]) -> Result<(), Failure> {
        match self.value(key).map(|class| class.rsplit('.').next().unwrap_or(class)) {
            Some(class) if !known.contains(&class) => Err(Failure::unsupported(format!(
                "{key}={class} is not supported"
            ))
            .hint(format!("leave it out; tokens of any kind come from -X {COMMAND}='PROGRAM ARGUMENT…'"))),
            _ => Ok(()),
        }
    }

    fn command(&self, text: &str) -> Result<TokenCommand, Failure> {
        let mut words = words(text).map_err(|what| self.wrong(COMMAND, what))?.into_iter();
        let program = words.next().ok_or_else(|| self.wrong(COMMAND, "names no program"))?;
        Ok(TokenCommand::new(program, words))
    }

    fn client_credentials(&self, url: &str, jaas: Option<&Jaas>) -> Result<ClientCredentials, Failure> {
        let id = self.credential(CLIENT_ID, jaas, "clientId")?;
        let secret = Password::new(self.credential(CLIENT_SECRET, jaas, "clientSecret")?);
        let wrong = |key: &str, error: &TokenError| self.wrong(key, &format!("is wrong: {error}"));
        let mut client = ClientCredentials::new(url, id, secret).map_err(|error| wrong(ENDPOINT, &error))?;
        if let Some(scope) = self.key_or_option("sasl.oauthbearer.scope", jaas, "scope") {
            client = client.scope(scope);
        }
        match self.value("sasl.oauthbearer.header.urlencode").map(str::to_ascii_lowercase).as_deref() {
            None | Some("false") => {}
            Some("true") => client = client.url_encode_header(true),
            Some(_) => {
                return Err(self.wrong("sasl.oauthbearer.header.urlencode", "is neither true nor false"));
            }
        }
        client = client.extensions(self.extensions(jaas)?).map_err(|error| {
            let key = if self.value(EXTENSIONS).is_some() { EXTENSIONS } else { "sasl.jaas.config" };
            wrong(key, &error)
        })?;
        if let Some(roots) = self.endpoint_roots(jaas) {
            let tls = TlsConfig { roots: Roots::Pem(roots), ..TlsConfig::default() };
            tls.check().map_err(tls_failure)?;
            client = client.tls(tls);
        }
        Ok(client)
    }

    /// librdkafka's list `name=value,…`, or the options `extension_NAME` of Java's JAAS entry.
    fn extensions(&self, jaas: Option<&Jaas>) -> Result<Vec<(String, String)>, Failure> {
        if let Some(text) = self.value(EXTENSIONS) {
            let pair = |pair: &str| {
                pair.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.to_owned()))
            };
            let pairs = text.split(',').map(pair).collect::<Option<_>>();
            return pairs.ok_or_else(|| self.wrong(EXTENSIONS, "is no list name=value,name=value"));
        }
        let options = jaas.map(|jaas| jaas.options.as_slice()).unwrap_or_default();
        let extension = |(name, value): &(String, String)| {
            Some((name.strip_prefix("extension_")?.to_owned(), value.clone()))
        };
        Ok(options.iter().filter_map(extension).collect())
    }

    /// Whose signature makes the endpoint's certificate good, if not the system's: librdkafka's keys, or the option that
    /// Java's JAAS entry may have for it.
    fn endpoint_roots(&self, jaas: Option<&Jaas>) -> Option<Pem> {
        if let Some(pem) = self.value("https.ca.pem") {
            return Some(Pem::Inline(Password::new(unfold_pem(pem))));
        }
        let option = jaas.and_then(|jaas| jaas.option("ssl.truststore.location"));
        self.value("https.ca.location").or(option).map(|path| Pem::File(path.into()))
    }
}

/// The words of a command line: separated by blanks, which quotes of either kind hold together. No shell is involved.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("has a quote that is never closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::super::Given;
    use super::*;

    /// The provider that the settings make, as its `Debug` shows it.
    fn provider(pairs: &[&str]) -> Result<String, Failure> {
        let fixed = ["security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER"];
        let x: Vec<String> = fixed.iter().chain(pairs).map(|&pair| pair.to_owned()).collect();
        let given = Given { bootstrap: Some("localhost:9092"), x: &x, ..Given::default() };
        match Settings::collect(&given)?.client()?.connection.sasl {
            Some(SaslConfig::OAuthBearer(provider)) => Ok(format!("{provider:?}")),
            other => panic!("{other:?}"),
        }
    }

    fn refused(pairs: &[&str]) -> String {
        let failure = provider(pairs).unwrap_err();
        assert!(!format!("{failure:?}").contains("hush"), "a secret is told");
        format!("{}: {failure}", failure.exit.code())
    }

    const URL: &str = "sasl.oauthbearer.token.endpoint.url=https://login.example.com/token";

    #[test]
    fn an_identity_provider_is_named_in_either_dialect() {
        let java = [
            URL,
            "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=\"ada\" clientSecret=\"hush\" scope=\"kafka\" extension_logicalCluster=\"lkc-1\";",
        ];
        let newer_java = [
            URL,
            "sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
            "sasl.oauthbearer.client.credentials.client.id=ada",
            "sasl.oauthbearer.client.credentials.client.secret=hush",
            "sasl.oauthbearer.scope=kafka",
            "sasl.oauthbearer.header.urlencode=true",
        ];
        let librdkafka = [
            URL,
            "sasl.oauthbearer.method=oidc",
            "sasl.oauthbearer.client.id=ada",
            "sasl.oauthbearer.client.secret=hush",
            "sasl.oauthbearer.scope=kafka",
            "sasl.oauthbearer.extensions=logicalCluster=lkc-1,pool=p=1",
        ];
        for pairs in [&java[..], &newer_java[..], &librdkafka[..]] {
            let shown = provider(pairs).unwrap();
            assert_eq!(
                shown,
                "ClientCredentials { endpoint: \"https://login.example.com/token\", client_id: \"ada\", scope: Some(\"kafka\"), .. }"
            );
        }
    }

    #[test]
    fn tokens_come_from_a_command_or_a_file_as_well() {
        let command =
            provider(&["sasl.oauthbearer.token.command=vault read -field='the token' hush"]).unwrap();
        assert_eq!(command, "TokenCommand { program: \"vault\", .. }");
        for url in ["file:///run/token", "file:/run/token"] {
            let file = provider(&[&format!("sasl.oauthbearer.token.endpoint.url={url}")]).unwrap();
            assert_eq!(file, "TokenFile { path: \"/run/token\" }");
        }
    }

    #[test]
    fn a_command_line_is_cut_into_words_without_a_shell() {
        let cut = |text| words(text).map(|words| words.join("|"));
        assert_eq!(cut(" get  --name 'a b' x\"y z\"'' '' "), Ok("get|--name|a b|xy z|".to_owned()));
        assert_eq!(cut("a $HOME;b"), Ok("a|$HOME;b".to_owned()));
        assert_eq!(cut(""), Ok(String::new()));
        assert!(cut("a 'b").is_err());
    }

    #[test]
    fn what_is_missing_or_wrong_is_told_with_what_to_do() {
        let id = "sasl.oauthbearer.client.id=ada";
        let secret = "sasl.oauthbearer.client.secret=hush";
        insta::assert_snapshot!(refused(&[]), @"3: OAUTHBEARER has no source of tokens");
        insta::assert_snapshot!(refused(&[URL]), @"3: sasl.oauthbearer.client.credentials.client.id is missing");
        insta::assert_snapshot!(refused(&[URL, id]), @"3: sasl.oauthbearer.client.credentials.client.secret is missing");
        insta::assert_snapshot!(refused(&[URL, id, secret, "sasl.oauthbearer.token.command=x"]), @"3: -X sasl.oauthbearer.token.command: sasl.oauthbearer.token.command is set, and sasl.oauthbearer.token.endpoint.url too: one of them is enough");
        insta::assert_snapshot!(refused(&["sasl.oauthbearer.token.command='x"]), @"3: -X sasl.oauthbearer.token.command: sasl.oauthbearer.token.command has a quote that is never closed");
        insta::assert_snapshot!(refused(&["sasl.oauthbearer.token.endpoint.url=ftp://x/", id, secret]), @"3: -X sasl.oauthbearer.token.endpoint.url: sasl.oauthbearer.token.endpoint.url is wrong: the token endpoint's URL cannot be used: it does not begin with https://");
        insta::assert_snapshot!(refused(&[URL, id, secret, "sasl.oauthbearer.extensions=auth=hush"]), @"3: -X sasl.oauthbearer.extensions: sasl.oauthbearer.extensions is wrong: an extension of the token has a name or a value that SASL does not allow");
        insta::assert_snapshot!(refused(&[URL, id, secret, "sasl.oauthbearer.extensions=x"]), @"3: -X sasl.oauthbearer.extensions: sasl.oauthbearer.extensions is no list name=value,name=value");
        insta::assert_snapshot!(refused(&[URL, id, secret, "sasl.oauthbearer.method=magic"]), @"3: -X sasl.oauthbearer.method: sasl.oauthbearer.method is neither oidc nor default");
        insta::assert_snapshot!(refused(&[URL, id, secret, "https.ca.location=/no/such/file"]), @"3: cannot read /no/such/file: No such file or directory (os error 2)");
        insta::assert_snapshot!(refused(&[URL, "sasl.login.callback.handler.class=com.example.MyHandler"]), @"7: sasl.login.callback.handler.class=MyHandler is not supported");
        insta::assert_snapshot!(refused(&[URL, "sasl.jaas.config=a.PlainLoginModule required password=\"hush\";"]), @"3: -X sasl.jaas.config: sasl.jaas.config names PlainLoginModule, and the mechanism needs OAuthBearerLoginModule");
    }
}

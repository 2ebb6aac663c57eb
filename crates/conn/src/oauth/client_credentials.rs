//! Tokens from an identity provider: OAuth 2.0's client credentials grant (RFC 6749, section 4.4; KIP-768), over HTTPS.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{BearerToken, TokenError, TokenFuture, TokenProvider};
use crate::dial::stream_to;
use crate::handshake::printable;
use crate::{BrokerAddress, Dialler, Password, Security, TcpDialler, TlsConfig};

/// The longest answer that is read, in bytes. Tokens are below 16 KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A token is used again for this share of the life that its endpoint says it has: the default of Kafka's
/// `sasl.login.refresh.window.factor`.
const LIFE_USED_PERCENT: u32 = 80;

/// Asks an identity provider for tokens, with a client id and its secret: Kafka's `sasl.oauthbearer.token.endpoint.url`.
///
/// A token is shared by all connections for 80 per cent of the life that the endpoint gives it (`expires_in`), and asked for
/// by one of them at a time. Redirects are not followed. `Debug` hides the secret.
pub struct ClientCredentials {
    endpoint: Endpoint,
    client_id: String,
    client_secret: Password,
    scope: Option<String>,
    extensions: Vec<(String, String)>,
    url_encode_header: bool,
    tls: TlsConfig,
    dialler: Arc<dyn Dialler>,
    /// Held while the endpoint is asked: whoever comes second finds the first one's token.
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    token: BearerToken,
    until: Instant,
}

/// Where a token endpoint is.
struct Endpoint {
    address: BrokerAddress,
    tls: bool,
    /// As HTTP's `Host` has it.
    authority: String,
    path_and_query: String,
    /// Without the query, which may be secret.
    shown: String,
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials")
            .field("endpoint", &self.endpoint.shown)
            .field("client_id", &self.client_id)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl ClientCredentials {
    /// A client of the identity provider at `endpoint`, an `https` URL (`http` sends the secret in the clear).
    ///
    /// # Errors
    /// The URL has another scheme, no host, or holds a user name or a password.
    pub fn new(
        endpoint: &str,
        client_id: impl Into<String>,
        client_secret: Password,
    ) -> Result<Self, TokenError> {
        Ok(Self {
            endpoint: Endpoint::parse(endpoint).map_err(TokenError::InvalidEndpoint)?,
            client_id: client_id.into(),
            client_secret,
            scope: None,
            extensions: Vec::new(),
            url_encode_header: false,
            tls: TlsConfig::default(),
            dialler: Arc::new(TcpDialler),
            kept: Mutex::new(None),
        })
    }

    /// Asks for this scope: Kafka's `sasl.oauthbearer.scope`.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        Self { scope: Some(scope.into()), ..self }
    }

    /// Adds SASL extensions (KIP-342) to each token, as names and values.
    ///
    /// # Errors
    /// As [`BearerToken::with_extensions`].
    pub fn extensions(
        self,
        extensions: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, TokenError> {
        let extensions: Vec<_> = extensions.into_iter().collect();
        BearerToken::new("x")?.with_extensions(extensions.clone())?;
        Ok(Self { extensions, ..self })
    }

    /// Encodes id and secret for a URL before they become the `Authorization` header, as RFC 6749 has it and some providers
    /// want: Kafka's `sasl.oauthbearer.header.urlencode`. Default false.
    #[must_use]
    pub fn url_encode_header(self, encode: bool) -> Self {
        Self { url_encode_header: encode, ..self }
    }

    /// How the endpoint's certificate is judged. Default: by the system's roots.
    #[must_use]
    pub fn tls(self, tls: TlsConfig) -> Self {
        Self { tls, ..self }
    }

    /// How the endpoint is reached. Default [`TcpDialler`].
    #[must_use]
    pub fn dialler(self, dialler: Arc<dyn Dialler>) -> Self {
        Self { dialler, ..self }
    }

    async fn shared_token(&self) -> Result<BearerToken, TokenError> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return Ok(kept.token.clone());
        }
        let (token, life) = self.ask().await?;
        let until = life.and_then(|life| Instant::now().checked_add(life * LIFE_USED_PERCENT / 100));
        *kept = until.map(|until| Kept { token: token.clone(), until });
        Ok(token)
    }

    async fn ask(&self) -> Result<(BearerToken, Option<Duration>), TokenError> {
        let (status, body) = self.exchange().await.map_err(|source| self.endpoint.failed(source))?;
        let json = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let text =
            |name: &str| json.as_ref().and_then(|json| json.get(name)).and_then(|value| value.as_str());
        if status.is_success() {
            let token =
                text("access_token").ok_or(TokenError::Malformed("the answer has no access_token"))?;
            let token = BearerToken::new(token)?.with_extensions(self.extensions.iter().cloned())?;
            let life = json.as_ref().and_then(|json| json.get("expires_in")).and_then(seconds);
            return Ok((token, life));
        }
        let words = [text("error"), text("error_description")];
        let (pair, secret) = (self.pair(), self.client_secret.reveal());
        let secrets = [
            secret,
            &url_encoded(secret),
            &pair,
            &BASE64.encode(&pair),
            text("access_token").unwrap_or_default(),
        ];
        let words: Vec<String> =
            words.into_iter().flatten().map(|words| printable(words, &secrets)).collect();
        let said = [&[status.to_string()], &words[..]].concat().join(": ");
        // What RFC 6749 answers a client that it refuses; all else may be another matter a moment later.
        if status.is_client_error()
            && ![StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
        {
            return Err(TokenError::Refused { endpoint: self.endpoint.shown.clone(), said });
        }
        Err(self.endpoint.failed(said.into()))
    }

    /// One request on a connection of its own.
    async fn exchange(&self) -> Result<(StatusCode, Bytes), Box<dyn Error + Send + Sync>> {
        let security = match self.endpoint.tls {
            true => Security::Tls(self.tls.clone()),
            false => Security::Plaintext,
        };
        let stream = stream_to(&*self.dialler, &self.endpoint.address, &security).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = self.request()?;
        let exchange = async move {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?;
            Ok((status, body.to_bytes()))
        };
        // The connection does the work that the exchange waits for; how it ended, the exchange knows.
        let (mut exchange, mut connection) = (pin!(exchange), pin!(connection));
        tokio::select! {
            done = &mut exchange => return done,
            _ = &mut connection => {}
        }
        exchange.await
    }

    /// Id and secret, as the `Authorization` header has them inside.
    fn pair(&self) -> String {
        let (id, secret) = (self.client_id.as_str(), self.client_secret.reveal());
        match self.url_encode_header {
            true => format!("{}:{}", url_encoded(id), url_encoded(secret)),
            false => format!("{id}:{secret}"),
        }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, Box<dyn Error + Send + Sync>> {
        let mut form = "grant_type=client_credentials".to_owned();
        if let Some(scope) = &self.scope {
            form.push_str(&format!("&scope={}", url_encoded(scope)));
        }
        let mut authorization = HeaderValue::try_from(format!("Basic {}", BASE64.encode(self.pair())))?;
        authorization.set_sensitive(true);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.endpoint.path_and_query)
            .header(HOST, &self.endpoint.authority)
            .header(USER_AGENT, concat!("strandline/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(CONNECTION, "close")
            .header(AUTHORIZATION, authorization)
            .body(Full::new(Bytes::from(form)))?;
        Ok(request)
    }
}

impl TokenProvider for ClientCredentials {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(self.shared_token())
    }
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.trim().parse().map_err(|_| "it is not a URL")?;
        let (tls, default_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err("it does not begin with https://"),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it holds a user name; id and secret have settings of their own");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(default_port);
        let address = BrokerAddress::new(host, port.into()).map_err(|_| "its host is none")?;
        let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let shown = format!("{}://{authority}{}", if tls { "https" } else { "http" }, uri.path());
        Ok(Self { address, tls, authority: authority.to_string(), path_and_query, shown })
    }

    fn failed(&self, source: Box<dyn Error + Send + Sync>) -> TokenError {
        TokenError::Endpoint { endpoint: self.shown.clone(), source }
    }
}

/// A number of seconds, which some providers write as text.
fn seconds(value: &serde_json::Value) -> Option<Duration> {
    let seconds = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    Some(Duration::from_secs(seconds.min(u32::MAX.into())))
}

/// As a form has it (`application/x-www-form-urlencoded`), and Java's `URLEncoder`.
fn url_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;

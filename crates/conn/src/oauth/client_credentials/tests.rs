use std::io;
use std::net::SocketAddr;

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    DuplexStream,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;
use crate::peer::chain;
use crate::{ByteStream, Dialling, Recovery};

/// An identity provider whose answers are at hand; each dial is one request.
#[derive(Debug)]
struct Provider {
    dials: mpsc::Sender<DuplexStream>,
}

/// A request as it came over the wire.
struct Seen<S> {
    head: Vec<String>,
    form: String,
    stream: BufReader<S>,
}

impl Dialler for Provider {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }

    fn connect(&self, _: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let sent = self.dials.try_send(theirs).map_err(|_| io::ErrorKind::ConnectionRefused.into());
        Box::pin(async move { sent.map(|()| Box::new(ours) as Box<dyn ByteStream>) })
    }
}

fn provider() -> (Arc<Provider>, mpsc::Receiver<DuplexStream>) {
    let (dials, dialled) = mpsc::channel(8);
    (Arc::new(Provider { dials }), dialled)
}

fn client(provider: &Arc<Provider>) -> ClientCredentials {
    let secret = Password::new("c0rrect horse");
    let client =
        ClientCredentials::new("http://login.example.com:8080/token?tenant=t1", "ada", secret).unwrap();
    client.dialler(Arc::clone(provider) as _)
}

async fn request(dialled: &mut mpsc::Receiver<DuplexStream>) -> Seen<DuplexStream> {
    read_request(dialled.recv().await.unwrap()).await
}

async fn read_request<S: AsyncRead + Unpin>(stream: S) -> Seen<S> {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut form = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut form).await.unwrap();
    Seen { head, form: String::from_utf8(form).unwrap(), stream }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Seen<S> {
    async fn answer(mut self, status: &str, body: &str) {
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        self.stream.write_all(answer.as_bytes()).await.unwrap();
        self.stream.shutdown().await.unwrap();
    }
}

async fn told(
    client: &ClientCredentials,
    status: &str,
    body: &str,
    dialled: &mut mpsc::Receiver<DuplexStream>,
) -> String {
    let script = async { request(dialled).await.answer(status, body).await };
    let (token, ()) = tokio::join!(client.token(), script);
    let error = token.unwrap_err();
    format!("{:?}: {}", error.recovery(), chain(&error))
}

#[tokio::test(start_paused = true)]
async fn the_request_is_that_of_the_client_credentials_grant() {
    let (provider, mut dialled) = provider();
    let client =
        client(&provider).scope("kafka read").extensions([("pool".to_owned(), "p 1".to_owned())]).unwrap();
    let script = async {
        let seen = request(&mut dialled).await;
        insta::assert_snapshot!(seen.head.join("\n"), @"
        POST /token?tenant=t1 HTTP/1.1
        host: login.example.com:8080
        user-agent: strandline/0.1.0
        accept: application/json
        content-type: application/x-www-form-urlencoded
        connection: close
        authorization: Basic YWRhOmMwcnJlY3QgaG9yc2U=
        content-length: 46
        ");
        insta::assert_snapshot!(seen.form, @"grant_type=client_credentials&scope=kafka+read");
        seen.answer("200 OK", r#"{"access_token":"abc.def","token_type":"Bearer","expires_in":300}"#).await;
    };
    let (token, ()) = tokio::join!(client.token(), script);
    assert_eq!(token.unwrap().message(), b"n,,\x01auth=Bearer abc.def\x01pool=p 1\x01\x01");
    assert!(!format!("{client:?}").contains("horse"));

    let (provider, mut dialled) = self::provider();
    let client = self::client(&provider).url_encode_header(true);
    let script = async {
        let seen = request(&mut dialled).await;
        let authorization =
            seen.head.iter().find_map(|line| line.strip_prefix("authorization: Basic ")).unwrap();
        assert_eq!(BASE64.decode(authorization).unwrap(), b"ada:c0rrect+horse");
        seen.answer("200 OK", r#"{"access_token":"t"}"#).await;
    };
    tokio::join!(client.token(), script).0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_is_shared_for_four_fifths_of_its_life() {
    let (provider, mut dialled) = provider();
    let client = client(&provider);
    for round in ["one", "two"] {
        let answer = format!(r#"{{"access_token":"{round}","expires_in":"100"}}"#);
        let script = async {
            let seen = request(&mut dialled).await;
            sleep(Duration::from_secs(1)).await;
            seen.answer("200 OK", &answer).await;
        };
        // Two hundred dials at once are one question.
        let all = futures::future::join_all((0..200).map(|_| client.token()));
        let (tokens, ()) = tokio::join!(all, script);
        let expected = BearerToken::new(round).unwrap();
        assert!(tokens.into_iter().all(|token| token.unwrap() == expected));
        sleep(Duration::from_secs(79)).await;
        assert_eq!(client.token().await.unwrap(), expected);
        sleep(Duration::from_secs(1)).await;
    }
    assert!(dialled.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_an_endpoint_says_is_told_and_no_secret_with_it() {
    let (provider, mut dialled) = provider();
    let client = client(&provider);
    let invalid = r#"{"error":"invalid_client","error_description":"no such client\u001b[2J"}"#;
    insta::assert_snapshot!(told(&client, "401 Unauthorized", invalid, &mut dialled).await, @"Authenticate: the token endpoint http://login.example.com:8080/token refused: 401 Unauthorized: invalid_client: no such client[2J");
    insta::assert_snapshot!(told(&client, "400 Bad Request", "<html>", &mut dialled).await, @"Authenticate: the token endpoint http://login.example.com:8080/token refused: 400 Bad Request");
    insta::assert_snapshot!(told(&client, "503 Service Unavailable", "", &mut dialled).await, @"Redial: the token endpoint http://login.example.com:8080/token cannot be asked: 503 Service Unavailable");
    insta::assert_snapshot!(told(&client, "429 Too Many Requests", "", &mut dialled).await, @"Redial: the token endpoint http://login.example.com:8080/token cannot be asked: 429 Too Many Requests");
    insta::assert_snapshot!(told(&client, "302 Found", "", &mut dialled).await, @"Redial: the token endpoint http://login.example.com:8080/token cannot be asked: 302 Found");
    insta::assert_snapshot!(told(&client, "200 OK", "<html>", &mut dialled).await, @"Authenticate: what was given as a token is none: the answer has no access_token");
    insta::assert_snapshot!(told(&client, "200 OK", r#"{"access_token":"secret two"}"#, &mut dialled).await, @"Authenticate: what was given as a token is none: it holds a character that no bearer token has");
    let long = format!(r#"{{"access_token":"{}"}}"#, "x".repeat(ANSWER_BYTES_MAX));
    insta::assert_snapshot!(told(&client, "200 OK", &long, &mut dialled).await, @"Redial: the token endpoint http://login.example.com:8080/token cannot be asked: length limit exceeded");

    // An endpoint that hangs up, and one that is not there.
    let script = async { drop(request(&mut dialled).await) };
    let (hung_up, ()) = tokio::join!(client.token(), script);
    let hung_up = hung_up.unwrap_err();
    assert_eq!(hung_up.recovery(), Recovery::Redial);
    insta::assert_snapshot!(chain(&hung_up), @"the token endpoint http://login.example.com:8080/token cannot be asked: connection closed before message completed");
    drop(dialled);
    insta::assert_snapshot!(chain(&client.token().await.unwrap_err()), @"the token endpoint http://login.example.com:8080/token cannot be asked: cannot reach login.example.com:8080: 127.0.0.1:8080: connection refused");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_repeats_a_secret_has_it_hidden() {
    let (provider, mut dialled) = provider();
    let client = client(&provider);
    for (status, secret) in [
        ("401 Unauthorized", "c0rrect horse"),
        ("401 Unauthorized", "c0rrect+horse"),
        ("400 Bad Request", "Basic YWRhOmMwcnJlY3QgaG9yc2U="),
        ("503 Service Unavailable", "abc.def"),
    ] {
        let body = serde_json::json!({
            "error": secret,
            "error_description": format!("not {secret}!"),
            "access_token": "abc.def",
        });
        let told = told(&client, status, &body.to_string(), &mut dialled).await;
        let basic = if secret.starts_with("Basic") { "Basic " } else { "" };
        let end = format!("{status}: {basic}[hidden]: not {basic}[hidden]!");
        assert!(told.ends_with(&end), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_gives_up_lets_the_next_one_ask() {
    let (provider, mut dialled) = provider();
    let client = client(&provider);
    let first = async { tokio::time::timeout(Duration::from_secs(5), client.token()).await.is_err() };
    let silent = async { request(&mut dialled).await };
    let (gave_up, _silent) = tokio::join!(first, silent);
    assert!(gave_up);
    let script = async { request(&mut dialled).await.answer("200 OK", r#"{"access_token":"t"}"#).await };
    tokio::join!(client.token(), script).0.unwrap();
}

#[test]
fn an_endpoint_is_a_url_without_credentials() {
    let shown = |text: &str| {
        let made = ClientCredentials::new(text, "ada", Password::new("s"));
        made.map(|client| format!("{} at {}", client.endpoint.shown, client.endpoint.address))
            .map_err(|error| chain(&error))
    };
    assert_eq!(
        shown("https://login.example.com/t?secret=1"),
        Ok("https://login.example.com/t at login.example.com:443".to_owned())
    );
    assert_eq!(shown("https://[::1]:8443"), Ok("https://[::1]:8443/ at [::1]:8443".to_owned()));
    insta::assert_snapshot!(shown("login.example.com").unwrap_err(), @"the token endpoint's URL cannot be used: it does not begin with https://");
    insta::assert_snapshot!(shown("ftp://login.example.com/").unwrap_err(), @"the token endpoint's URL cannot be used: it does not begin with https://");
    insta::assert_snapshot!(shown("https://ada:secret@login.example.com/").unwrap_err(), @"the token endpoint's URL cannot be used: it holds a user name; id and secret have settings of their own");
    insta::assert_snapshot!(shown("https:///path").unwrap_err(), @"the token endpoint's URL cannot be used: it is not a URL");
}

#[tokio::test(start_paused = true)]
async fn an_https_endpoint_is_believed_only_with_a_certificate_that_is_good() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["login.example.com".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let server =
        rustls::ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));

    let (provider, mut dialled) = provider();
    let client = |host: &str, roots| {
        let client =
            ClientCredentials::new(&format!("https://{host}/token"), "ada", Password::new("s")).unwrap();
        let roots = crate::Roots::Pem(crate::Pem::Inline(Password::new(roots)));
        client.dialler(Arc::clone(&provider) as _).tls(TlsConfig { roots, ..TlsConfig::default() })
    };
    let good = client("login.example.com", cert.pem());
    let script = async {
        let stream = acceptor.accept(dialled.recv().await.unwrap()).await.unwrap();
        read_request(stream).await.answer("200 OK", r#"{"access_token":"t"}"#).await;
    };
    assert_eq!(tokio::join!(good.token(), script).0.unwrap(), BearerToken::new("t").unwrap());

    let wrong_host = client("login.example.org", cert.pem());
    let script = async { acceptor.accept(dialled.recv().await.unwrap()).await.is_err() };
    let (token, refused) = tokio::join!(wrong_host.token(), script);
    assert!(refused);
    let error = chain(&token.unwrap_err());
    assert!(error.contains("certificate not valid for name"), "{error}");
}

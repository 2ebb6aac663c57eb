//! OAUTHBEARER as a user sets it up, against a cluster in this process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster, Mechanism, Sasl};

use crate::{Run, run};

const TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.";

/// A cluster that knows one token, on a runtime of its own: the command is another process.
struct Live {
    kafka: EmbeddedCluster,
    // Ends after the cluster, which needs it.
    _runtime: tokio::runtime::Runtime,
}

fn live() -> Live {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kafka = {
        let _within = runtime.enter();
        let users = vec![("ada".to_owned(), TOKEN.to_owned())];
        let sasl = Some(Sasl { users, mechanisms: vec![Mechanism::OAuthBearer], session_lifetime: None });
        EmbeddedCluster::start(ClusterOptions { sasl, ..ClusterOptions::default() }).unwrap()
    };
    kafka.create_topic("__remote_log_metadata", 1);
    Live { kafka, _runtime: runtime }
}

/// `status` with these settings besides the mechanism.
fn status(live: &Live, settings: &[&str]) -> Run {
    let bootstrap = live.kafka.bootstrap();
    let mut args = vec!["status", "-b", &bootstrap, "-X", "security.protocol=SASL_PLAINTEXT"];
    args.extend(["-X", "sasl.mechanism=OAUTHBEARER"]);
    args.extend(settings.iter().flat_map(|setting| ["-X", setting]));
    run(&args)
}

fn principals(live: &Live) -> Vec<Option<String>> {
    let mut principals: Vec<_> = live.kafka.journal().into_iter().map(|entry| entry.principal).collect();
    principals.sort();
    principals.dedup();
    principals
}

#[test]
fn a_token_command_authenticates_every_connection() {
    let live = live();
    let command = format!("sasl.oauthbearer.token.command=/bin/echo {TOKEN}");
    let seen = status(&live, &[&command]);
    assert_eq!(seen.code, 0, "{}{}", seen.stdout, seen.stderr);
    assert_eq!(principals(&live), [None, Some("User:ada".to_owned())]);
}

#[test]
fn a_token_that_is_refused_is_exit_4_and_is_not_told() {
    let live = live();
    let seen = status(&live, &["sasl.oauthbearer.token.command=/bin/echo some-other-token"]);
    assert_eq!(seen.code, 4, "{}{}", seen.stdout, seen.stderr);
    assert!(seen.stderr.contains("invalid_token"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("some-other-token"), "{}", seen.stderr);
    let absent = status(&live, &["sasl.oauthbearer.token.command=/no/such/program"]);
    assert_eq!(absent.code, 4, "{}", absent.stderr);
    assert!(absent.stderr.contains("/no/such/program cannot be run"), "{}", absent.stderr);
}

#[test]
fn an_identity_provider_gives_the_token() {
    let live = live();
    let provider = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("sasl.oauthbearer.token.endpoint.url=http://{}/token", provider.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (stream, _) = provider.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut form = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut form).unwrap();
        let body = format!(r#"{{"access_token":"{TOKEN}","expires_in":300}}"#);
        let length = body.len();
        write!(reader.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        (head, String::from_utf8(form).unwrap())
    });
    let seen = status(
        &live,
        &[
            &url,
            "sasl.oauthbearer.client.id=ada",
            "sasl.oauthbearer.client.secret=hush",
            "sasl.oauthbearer.scope=kafka",
        ],
    );
    assert_eq!(seen.code, 0, "{}{}", seen.stdout, seen.stderr);
    let (head, form) = asked.join().unwrap();
    assert!(head.starts_with("POST /token HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Basic YWRhOmh1c2g="), "{head}");
    assert_eq!(form, "grant_type=client_credentials&scope=kafka");
}

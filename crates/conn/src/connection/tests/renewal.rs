//! SASL sessions that end, and their renewal on the living connection (KIP-368).

use std::sync::Mutex;

use strandline_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use tokio::sync::watch;

use super::authentication::{serve_mechanism, serve_token, with_sasl};
use super::*;
use crate::{BearerToken, SaslConfig, TokenError, TokenFuture, TokenProvider};

/// A connection whose session lasts a minute, as PLAIN.
async fn for_a_minute(config: ConnectionConfig) -> (Arc<Connection>, Peer<DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let (connection, _) = tokio::join!(establish(config, ours), async {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        serve_token(&mut peer, "", 60_000).await
    });
    (Arc::new(connection.unwrap()), peer)
}

fn plain() -> ConnectionConfig {
    with_sasl(SaslConfig::Plain)
}

async fn accept_mechanism(peer: &mut Peer<DuplexStream>) {
    peer.serve::<SaslHandshakeRequest>(&SaslHandshakeResponse::default()).await;
}

async fn refuse_token(peer: &mut Peer<DuplexStream>, said: &str) {
    let answer = SaslAuthenticateResponse {
        error_code: ErrorCode::SaslAuthenticationFailed,
        error_message: Some(said.to_owned()),
        ..SaslAuthenticateResponse::default()
    };
    peer.serve::<SaslAuthenticateRequest>(&answer).await;
}

async fn seconds_pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The broker's end of a renewal that it accepts for another minute; gives the token.
async fn renew(peer: &mut Peer<DuplexStream>) -> bytes::Bytes {
    accept_mechanism(peer).await;
    serve_token(peer, "", 60_000).await
}

#[tokio::test(start_paused = true)]
async fn a_session_is_renewed_on_the_living_connection_between_two_answers() {
    let (connection, mut peer) = for_a_minute(plain()).await;
    for _ in 0..3 {
        seconds_pass(50).await;
        assert_eq!(tokio::join!(ask(&connection, 5), serve(&mut peer, "before")).0, Ok("before".to_owned()));
        // It is due from somewhere between 51 and 57 seconds on.
        seconds_pass(8).await;
        let early = asking(&connection, 5);
        let request = peer.expect::<DescribeClusterRequest>().await;
        let late = asking(&connection, 5);
        seconds_pass(1).await;
        // What was asked before is answered first; what is asked meanwhile waits, and is not lost.
        reply(&mut peer, &request, "early").await;
        assert_eq!(renew(&mut peer).await, b"\0user\0pencil"[..]);
        serve(&mut peer, "late").await;
        assert_eq!(early.await.unwrap(), Ok("early".to_owned()));
        assert_eq!(late.await.unwrap(), Ok("late".to_owned()));
    }
    drop(connection);
    assert!(peer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_renews_a_session_that_is_over_before_its_next_request() {
    let (connection, mut peer) = for_a_minute(plain()).await;
    seconds_pass(300).await;
    let next = asking(&connection, 5);
    renew(&mut peer).await;
    serve(&mut peer, "next").await;
    assert_eq!(next.await.unwrap(), Ok("next".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_session_without_an_end_is_not_renewed() {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let config = ConnectionConfig { idle_timeout: Duration::ZERO, ..plain() };
    let (connection, _) = tokio::join!(establish(config, ours), async {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        serve_token(&mut peer, "", 0).await
    });
    let connection = connection.unwrap();
    seconds_pass(1_000_000).await;
    assert_eq!(tokio::join!(ask(&connection, 5), serve(&mut peer, "x")).0, Ok("x".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_ends_the_connection_as_refused_credentials() {
    // The broker may hang up right behind its refusal.
    for hangs_up in [false, true] {
        let (connection, mut peer) = for_a_minute(plain()).await;
        seconds_pass(100).await;
        let sent = connection.send(|_| DescribeClusterRequest::default(), in_seconds(5));
        let script = async {
            accept_mechanism(&mut peer).await;
            refuse_token(&mut peer, "user was deleted").await;
            if hangs_up {
                drop(peer);
            }
        };
        let (sent, ()) = tokio::join!(sent, script);
        let error = sent.unwrap_err();
        insta::allow_duplicates! {
            insta::assert_snapshot!(chain(&error), @"DescribeCluster was not sent: the SASL session could not be renewed: broker1:9092 refused the PLAIN credentials: user was deleted");
        }
        assert_eq!((error.recovery(), error.may_have_been_sent()), (Recovery::Authenticate, false));
        assert!(!connection.closed().await.is_planned());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_never_answered_holds_nobody_beyond_their_deadline() {
    let (connection, mut peer) = for_a_minute(plain()).await;
    seconds_pass(100).await;
    let begun = Instant::now();
    let held = asking(&connection, 3);
    peer.expect::<SaslHandshakeRequest>().await;
    insta::assert_snapshot!(held.await.unwrap().unwrap_err(), @"DescribeCluster was not sent within 3s: the connection is busy");
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    insta::assert_snapshot!(connection.closed().await, @"the broker did not answer SaslHandshake within 10s");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_waits_until_the_broker_wants_to_hear_from_this_client() {
    let (connection, mut peer) = for_a_minute(plain()).await;
    seconds_pass(58).await;
    let trigger = asking(&connection, 60);
    let request = peer.expect::<DescribeClusterRequest>().await;
    reply(&mut peer, &request, "x").await;
    connection.mute().extend(Duration::from_secs(40));
    let begun = Instant::now();
    renew(&mut peer).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(40));
    trigger.await.unwrap().unwrap();
}

/// Gives tokens in order, each when it is let go; the test says what each is.
#[derive(Debug)]
struct Tokens {
    given: Mutex<Vec<Result<&'static str, &'static str>>>,
    go: watch::Receiver<bool>,
}

impl TokenProvider for Tokens {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async move {
            self.go.clone().wait_for(|go| *go).await.unwrap();
            match self.given.lock().unwrap().remove(0) {
                Ok(token) => BearerToken::new(token),
                Err(error) => Err(TokenError::Other(error.into())),
            }
        })
    }
}

fn bearer(given: &[Result<&'static str, &'static str>]) -> (ConnectionConfig, watch::Sender<bool>) {
    let (go, receiver) = watch::channel(true);
    let tokens = Tokens { given: Mutex::new(given.to_vec()), go: receiver };
    (ConnectionConfig { sasl: Some(SaslConfig::OAuthBearer(Arc::new(tokens))), ..default() }, go)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_takes_a_new_token_and_requests_flow_while_it_is_fetched() {
    let (config, go) = bearer(&[Ok("first"), Ok("second")]);
    let (connection, mut peer) = for_a_minute(config).await;
    go.send_replace(false);
    seconds_pass(57).await;
    for _ in 0..3 {
        assert_eq!(tokio::join!(ask(&connection, 5), serve(&mut peer, "x")).0, Ok("x".to_owned()));
        tokio::task::yield_now().await;
    }
    // The session is over, and a request would make the broker hang up: now it waits.
    seconds_pass(4).await;
    let held = asking(&connection, 5);
    seconds_pass(1).await;
    go.send_replace(true);
    assert_eq!(renew(&mut peer).await, b"n,,\x01auth=Bearer second\x01\x01"[..]);
    serve(&mut peer, "held").await;
    assert_eq!(held.await.unwrap(), Ok("held".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_had_is_asked_for_again_while_the_session_lives() {
    let (config, _go) = bearer(&[Ok("first"), Err("the lights are out"), Ok("second")]);
    let (connection, mut peer) = for_a_minute(config).await;
    seconds_pass(57).await;
    for _ in 0..2 {
        assert_eq!(tokio::join!(ask(&connection, 5), serve(&mut peer, "x")).0, Ok("x".to_owned()));
        seconds_pass(1).await;
    }
    assert_eq!(renew(&mut peer).await, b"n,,\x01auth=Bearer second\x01\x01"[..]);

    let (config, _go) = bearer(&[Ok("first"), Err("the lights are out")]);
    let (connection, _peer) = for_a_minute(config).await;
    seconds_pass(100).await;
    let error = ask(&connection, 5).await.unwrap_err();
    insta::assert_snapshot!(error, @"DescribeCluster was not sent: the SASL session could not be renewed: there is no OAUTHBEARER token for broker1:9092: the lights are out");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_connection_ends_it_in_every_stage_of_a_renewal() {
    // While the token is fetched.
    let (config, go) = bearer(&[Ok("first"), Ok("second")]);
    let (connection, mut peer) = for_a_minute(config).await;
    go.send_replace(false);
    seconds_pass(100).await;
    let held = asking(&connection, 5);
    seconds_pass(1).await;
    held.abort();
    assert!(held.await.is_err());
    drop(connection);
    assert!(peer.next().await.is_none());

    // While others are answered, and while the broker is asked.
    for answered in [false, true] {
        let (connection, mut peer) = for_a_minute(plain()).await;
        seconds_pass(58).await;
        let early = asking(&connection, 5);
        let request = peer.expect::<DescribeClusterRequest>().await;
        if answered {
            reply(&mut peer, &request, "x").await;
            peer.expect::<SaslHandshakeRequest>().await;
        }
        early.abort();
        let _ = early.await;
        drop(connection);
        assert!(peer.next().await.is_none());
    }
}

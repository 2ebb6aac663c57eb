//! Callers, deadlines, dropped futures, throttling and renewals in any order.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy};
use proptest::{prop_oneof, proptest};
use strandline_protocol::messages::{
    DescribeClusterResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use tokio::time::{sleep, sleep_until, timeout};

use super::authentication::{serve_mechanism, serve_token, with_sasl};
use super::*;
use crate::SaslConfig;

const IN_FLIGHT: usize = 4;

/// What one caller does.
#[derive(Clone, Debug)]
struct Caller {
    comes_after: Duration,
    deadline: Duration,
    request_timeout: Option<Duration>,
    gives_up_after: Option<Duration>,
}

/// How the broker treats a request.
#[derive(Clone, Copy, Debug)]
struct Treatment {
    takes: Duration,
    throttle_time_ms: i32,
}

fn millis(max: u64) -> impl Strategy<Value = Duration> {
    (0..=max).prop_map(Duration::from_millis)
}

fn caller() -> impl Strategy<Value = Caller> {
    let maybe = |max| prop_oneof![2 => millis(max).prop_map(Some), 3 => Just(None)];
    (millis(30_000), millis(8_000), maybe(3_000), maybe(2_000)).prop_map(
        |(comes_after, deadline, request_timeout, gives_up_after)| Caller {
            comes_after,
            deadline,
            request_timeout,
            gives_up_after,
        },
    )
}

fn treatment() -> impl Strategy<Value = Treatment> {
    let takes = prop_oneof![8 => millis(100), 1 => millis(2_500)];
    let throttle = prop_oneof![8 => Just(0), 1 => 0..4_000_i32];
    (takes, throttle).prop_map(|(takes, throttle_time_ms)| Treatment { takes, throttle_time_ms })
}

/// The broker's end: answers in order, each request as it is treated, until the connection ends. Nothing but SASL may come
/// while a session is renewed, and never more than may be open.
async fn serve_all(mut peer: Peer<DuplexStream>, treatments: Vec<Treatment>) {
    let mut treatments = treatments.iter().cycle();
    let mut open: VecDeque<(Received, Treatment, Instant)> = VecDeque::new();
    let mut renewing = false;
    loop {
        let due = open.front().map(|(_, _, due)| *due);
        tokio::select! {
            request = peer.next() => {
                let Some(request) = request else { return };
                let sasl = matches!(request.api, ApiKey::SaslHandshake | ApiKey::SaslAuthenticate);
                assert!(sasl || !renewing, "{:?} while the session is renewed", request.api);
                assert!(!sasl || open.is_empty(), "{:?} before others are answered", request.api);
                renewing = sasl;
                let treatment = *treatments.next().unwrap();
                let begins = open.back().map_or_else(Instant::now, |(_, _, due)| *due);
                open.push_back((request, treatment, begins + treatment.takes));
                assert!(open.len() <= IN_FLIGHT, "{} are open", open.len());
            }
            () = async { sleep_until(due.unwrap()).await }, if due.is_some() => {
                let (request, treatment, _) = open.pop_front().unwrap();
                // The last caller gave up and closed, with answers still to come.
                if answer(&mut peer, &request, treatment, &mut renewing).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn answer(
    peer: &mut Peer<DuplexStream>,
    request: &Received,
    treatment: Treatment,
    renewing: &mut bool,
) -> std::io::Result<()> {
    match request.api {
        ApiKey::SaslHandshake => {
            peer.try_answer::<SaslHandshakeRequest>(request, &SaslHandshakeResponse::default()).await
        }
        ApiKey::SaslAuthenticate => {
            *renewing = false;
            let session_lifetime_ms = 5_000;
            let answer = SaslAuthenticateResponse { session_lifetime_ms, ..Default::default() };
            peer.try_answer::<SaslAuthenticateRequest>(request, &answer).await
        }
        _ => {
            let asked = request.body::<DescribeClusterRequest>().endpoint_type;
            let throttle_time_ms = treatment.throttle_time_ms;
            let answer = DescribeClusterResponse { throttle_time_ms, ..cluster(&asked.to_string()) };
            peer.try_answer::<DescribeClusterRequest>(request, &answer).await
        }
    }
}

async fn act(connection: Arc<Connection>, name: i8, caller: Caller) {
    sleep(caller.comes_after).await;
    let begun = Instant::now();
    let mut call = Call::by(begun + caller.deadline);
    if let Some(timeout) = caller.request_timeout {
        call = call.request_timeout(timeout);
    }
    let build = |_| DescribeClusterRequest { endpoint_type: name, ..DescribeClusterRequest::default() };
    let sent = connection.send(build, call);
    let answer = match caller.gives_up_after {
        Some(after) => match timeout(after, sent).await {
            Ok(answer) => answer,
            Err(_) => return,
        },
        None => sent.await,
    };
    // The timer's grain is a millisecond.
    assert!(begun.elapsed() <= caller.deadline + Duration::from_millis(2), "late: {:?}", begun.elapsed());
    if let Ok(answer) = answer {
        assert_eq!(answer.cluster_id, name.to_string(), "another's answer");
    }
}

async fn run(callers: Vec<Caller>, treatments: Vec<Treatment>) {
    let (ours, theirs) = tokio::io::duplex(64);
    let mut peer = Peer::new(theirs);
    let config = ConnectionConfig {
        max_in_flight: NonZeroUsize::new(IN_FLIGHT).unwrap(),
        ..with_sasl(SaslConfig::Plain)
    };
    let (connection, _) = tokio::join!(establish(config, ours), async {
        serve_mechanism(&mut peer, ErrorCode::None, &[]).await;
        serve_token(&mut peer, "", 5_000).await
    });
    let connection = Arc::new(connection.unwrap());
    let broker = tokio::spawn(serve_all(peer, treatments));
    let mut tasks = tokio::task::JoinSet::new();
    for (name, caller) in (0..).zip(callers) {
        tasks.spawn(act(Arc::clone(&connection), name, caller));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    drop(connection);
    timeout(Duration::from_secs(60), broker)
        .await
        .expect("the socket is closed with its last handle")
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_send_ends_within_its_deadline_with_its_own_answer_or_an_error(
        callers in vec(caller(), 1..40),
        treatments in vec(treatment(), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(callers, treatments));
    }
}

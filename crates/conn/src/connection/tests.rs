use std::num::NonZeroUsize;
use std::time::Duration;

use strandline_protocol::messages::{
    DescribeClusterRequest, FetchRequest, FetchResponse, ListOffsetsRequest, MetadataRequest,
};
use strandline_protocol::{ApiKey, ErrorCode, Message as _};
use tokio::io::DuplexStream;

use super::*;
use crate::Recovery;
use crate::peer::{OneStream, Peer, Received, address, ask, chain, cluster, frame, in_seconds};

mod authentication;
mod cancellation;
mod connecting;
mod idle;
mod interleavings;
mod observing;
mod races;
mod renewal;
mod throttling;

/// A pipe that takes all a test writes.
const WIDE: usize = 1 << 24;

async fn establish(config: ConnectionConfig, stream: DuplexStream) -> Result<Connection, ConnectError> {
    let config = ConnectionConfig { dialler: OneStream::new(stream), ..config };
    Connection::connect(&address(), &Arc::new(config), in_seconds(10)).await
}

/// An established connection over a pipe that holds `pipe_bytes` each way.
async fn connected(config: ConnectionConfig, pipe_bytes: usize) -> (Arc<Connection>, Peer<DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(pipe_bytes);
    let mut peer = Peer::new(theirs);
    let (connection, _) = tokio::join!(establish(config, ours), peer.serve_versions());
    (Arc::new(connection.unwrap()), peer)
}

/// What becomes of a connect when the peer does as `script` says.
async fn refused<F: Future<Output = ()>>(
    config: ConnectionConfig,
    script: impl FnOnce(Peer<DuplexStream>) -> F,
) -> String {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let (connection, ()) = tokio::join!(establish(config, ours), script(Peer::new(theirs)));
    chain(&connection.unwrap_err())
}

fn default() -> ConnectionConfig {
    ConnectionConfig::default()
}

fn in_flight(max: usize) -> ConnectionConfig {
    ConnectionConfig { max_in_flight: NonZeroUsize::new(max).unwrap(), ..default() }
}

fn asking(connection: &Arc<Connection>, seconds: u64) -> tokio::task::JoinHandle<Result<String, String>> {
    let connection = Arc::clone(connection);
    tokio::spawn(async move { ask(&connection, seconds).await })
}

async fn serve(peer: &mut Peer<DuplexStream>, name: &str) {
    peer.serve::<DescribeClusterRequest>(&cluster(name)).await;
}

async fn reply(peer: &mut Peer<DuplexStream>, request: &Received, name: &str) {
    peer.answer::<DescribeClusterRequest>(request, &cluster(name)).await;
}

// Requests and answers.

#[tokio::test(start_paused = true)]
async fn requests_go_out_without_waiting_and_each_answer_finds_its_caller() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let callers: Vec<_> = (0..5).map(|_| asking(&connection, 10)).collect();
    let mut requests = Vec::new();
    for _ in 0..5 {
        requests.push(peer.expect::<DescribeClusterRequest>().await);
    }
    let ids: Vec<i32> = requests.iter().map(|request| request.correlation_id).collect();
    assert!(ids.is_sorted_by(|a, b| a + 1 == *b), "{ids:?}");
    // All answers in one write.
    let answers = requests.iter().enumerate();
    let answers = answers.flat_map(|(n, request)| {
        frame::<DescribeClusterRequest>(request, &cluster(&n.to_string()), request.version)
    });
    peer.send(&answers.collect::<Vec<u8>>()).await;
    for (n, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.await.unwrap(), Ok(n.to_string()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_arrives_whole_through_a_narrow_pipe() {
    let (connection, mut peer) = connected(default(), 1000).await;
    let name = "n".repeat(30_000);
    let (answer, ()) = tokio::join!(ask(&connection, 10), serve(&mut peer, &name));
    assert_eq!(answer, Ok(name));
}

#[tokio::test(start_paused = true)]
async fn the_body_is_built_for_the_version_that_both_sides_speak() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let call = async |call: Call| {
        let mut seen = 0;
        let build = |version| {
            seen = version;
            FetchRequest::default()
        };
        let sent = connection.send(build, call).await.map(|_| ());
        (seen, sent.map_err(|error| chain(&error)))
    };
    let deadline = in_seconds(10);
    let serve = async |peer: &mut Peer<_>| {
        let request = peer.expect::<FetchRequest>().await;
        peer.answer::<FetchRequest>(&request, &FetchResponse::default()).await;
        request.version
    };
    let newest = FetchRequest::VERSIONS.last;
    assert_eq!(tokio::join!(call(deadline.into()), serve(&mut peer)), ((newest, Ok(())), newest));
    assert_eq!(tokio::join!(call(Call::by(deadline).at_most(12)), serve(&mut peer)), ((12, Ok(())), 12));
    let (seen, error) = call(Call::by(deadline).at_most(2)).await;
    assert_eq!(seen, 0, "no body is built without a version");
    insta::assert_snapshot!(error.unwrap_err(), @"Fetch has no version that both sides speak: this client 4 to 18 (here at most 2), the broker 4 to 18");
}

#[tokio::test(start_paused = true)]
async fn the_gate_refuses_before_a_byte_is_sent() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    // The schema's default would create topics.
    let error = connection.send(|_| MetadataRequest::default(), in_seconds(10)).await.unwrap_err();
    insta::assert_snapshot!(chain(&error), @"Metadata is refused: this client only reads, and a Metadata request that does not say allow_auto_topic_creation=false creates topics");
    assert!(!error.may_have_been_sent());
    drop(connection);
    assert!(peer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_malformed_answer_is_an_error_and_ends_the_connection() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let send = connection.send(|_| ListOffsetsRequest::default(), in_seconds(10));
    let script = async {
        let request = peer.expect::<ListOffsetsRequest>().await;
        let mut bytes = vec![0, 0, 0, 14];
        bytes.extend_from_slice(&request.correlation_id.to_be_bytes());
        // No tagged fields, throttle 0, then a topic count of 2^32 - 2.
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        peer.send(&bytes).await;
    };
    let (answer, ()) = tokio::join!(send, script);
    insta::assert_snapshot!(chain(&answer.unwrap_err()), @"the answer to ListOffsets version 11 is malformed: ListOffsetsResponse version 11: topics: byte 9: an array of 4294967294 elements cannot lie in the 0 bytes that are left");
    insta::assert_snapshot!(connection.closed().await, @"the answer to ListOffsets version 11 is malformed");
}

// Order of the answers.

#[tokio::test(start_paused = true)]
async fn an_answer_with_an_id_that_was_never_sent_ends_the_connection() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let caller = asking(&connection, 10);
    let mut request = peer.expect::<DescribeClusterRequest>().await;
    request.correlation_id += 7;
    reply(&mut peer, &request, "x").await;
    insta::assert_snapshot!(caller.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: an answer has correlation id 8, expected was 1");
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_out_of_order_ends_the_connection_for_all_who_wait() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let callers = [asking(&connection, 10), asking(&connection, 10)];
    peer.expect::<DescribeClusterRequest>().await;
    let second = peer.expect::<DescribeClusterRequest>().await;
    reply(&mut peer, &second, "x").await;
    for caller in callers {
        let error = caller.await.unwrap().unwrap_err();
        assert_eq!(
            error,
            "DescribeCluster was sent and has no answer: an answer has correlation id 2, expected was 1"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    peer.send(&[0, 0, 0, 4, 0, 0, 0, 9]).await;
    insta::assert_snapshot!(connection.closed().await, @"an answer has correlation id 9, expected was none");
}

// Deadlines.

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_the_wait_for_a_free_place() {
    let (connection, mut peer) = connected(in_flight(2), WIDE).await;
    let _open = [asking(&connection, 60), asking(&connection, 60)];
    peer.expect::<DescribeClusterRequest>().await;
    peer.expect::<DescribeClusterRequest>().await;
    let begun = Instant::now();
    assert_eq!(
        ask(&connection, 3).await,
        Err("DescribeCluster was not sent within 3s: the connection is busy".to_owned())
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert!(!connection.is_closed(), "a busy connection is not a broken one");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_the_write_and_who_was_behind_it_was_not_sent() {
    let (connection, _peer) = connected(default(), 16).await;
    let begun = Instant::now();
    let first = asking(&connection, 3);
    tokio::task::yield_now().await;
    let second = asking(&connection, 60);
    insta::assert_snapshot!(first.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: the broker did not answer DescribeCluster within 3s");
    insta::assert_snapshot!(second.await.unwrap().unwrap_err(), @"DescribeCluster was not sent: the broker did not answer DescribeCluster within 3s");
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_the_answer_and_a_late_one_ends_the_connection() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let begun = Instant::now();
    let (late, behind) = (asking(&connection, 3), asking(&connection, 60));
    insta::assert_snapshot!(late.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: the broker did not answer DescribeCluster within 3s");
    insta::assert_snapshot!(behind.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: the broker did not answer DescribeCluster within 3s");
    assert_eq!(begun.elapsed().as_secs(), 3);
    insta::assert_snapshot!(ask(&connection, 1).await.unwrap_err(), @"DescribeCluster was not sent: the broker did not answer DescribeCluster within 3s");
    peer.expect::<DescribeClusterRequest>().await;
    peer.expect::<DescribeClusterRequest>().await;
    assert!(peer.next().await.is_none(), "the socket is given up");
}

#[tokio::test(start_paused = true)]
async fn only_a_request_of_which_nothing_was_sent_is_safe_to_send_again() {
    let (connection, mut peer) = connected(in_flight(1), WIDE).await;
    let request = || connection.send(|_| DescribeClusterRequest::default(), in_seconds(5));
    let (sent, busy) = tokio::join!(request(), async {
        peer.expect::<DescribeClusterRequest>().await;
        connection.send(|_| DescribeClusterRequest::default(), in_seconds(1)).await
    });
    let after = request().await;
    let told = [sent, busy, after].map(|error| {
        let error = error.unwrap_err();
        (error.may_have_been_sent(), error.recovery())
    });
    assert_eq!(told, [(true, Recovery::Redial), (false, Recovery::Redial), (false, Recovery::Redial)]);
}

// The peer's end.

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_the_broker_closed_is_known_before_the_next_request() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    tokio::join!(ask(&connection, 1), serve(&mut peer, "x")).0.unwrap();
    assert!(connection.close_reason().is_none());
    drop(peer);
    insta::assert_snapshot!(connection.closed().await, @"the broker closed the connection");
    assert!(connection.is_closed());
    insta::assert_snapshot!(ask(&connection, 1).await.unwrap_err(), @"DescribeCluster was not sent: the broker closed the connection");
}

#[tokio::test(start_paused = true)]
async fn an_answer_cut_short_is_told_from_a_plain_close() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let caller = asking(&connection, 10);
    let request = peer.expect::<DescribeClusterRequest>().await;
    let whole = frame::<DescribeClusterRequest>(&request, &cluster("x"), request.version);
    peer.send(&whole[..9]).await;
    drop(peer);
    insta::assert_snapshot!(caller.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: the broker closed the connection after 9 bytes of an answer");
}

#[tokio::test(start_paused = true)]
async fn a_hang_up_at_the_first_request_hints_at_sasl() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let caller = asking(&connection, 10);
    peer.expect::<DescribeClusterRequest>().await;
    drop(peer);
    insta::assert_snapshot!(caller.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: the broker closed the connection at the first request; its listener may want SASL");
}

#[tokio::test(start_paused = true)]
async fn an_answer_above_the_cap_ends_the_connection_before_it_is_read() {
    let config = ConnectionConfig { max_frame_bytes: 10_000, ..default() };
    let (connection, mut peer) = connected(config, WIDE).await;
    let caller = asking(&connection, 10);
    peer.expect::<DescribeClusterRequest>().await;
    peer.send(&10_001_i32.to_be_bytes()).await;
    insta::assert_snapshot!(caller.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: an answer claims a length of 10001 bytes; accepted are 4 to 10000");
}

#[tokio::test(start_paused = true)]
async fn close_ends_every_wait_with_its_own_reason() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let caller = asking(&connection, 10);
    peer.expect::<DescribeClusterRequest>().await;
    connection.close();
    connection.close();
    insta::assert_snapshot!(caller.await.unwrap().unwrap_err(), @"DescribeCluster was sent and has no answer: closed by this client");
    assert!(matches!(*connection.closed().await, CloseReason::ClosedHere));
    assert!(peer.next().await.is_none());
}

//! A broker that throttles (KIP-219).

use strandline_protocol::messages::DescribeClusterResponse;

use super::*;

/// Takes a request and answers it with a wish to be left alone.
async fn serve_throttled(peer: &mut Peer<DuplexStream>, name: &str, throttle_time_ms: i32) {
    let answer = DescribeClusterResponse { throttle_time_ms, ..cluster(name) };
    peer.serve::<DescribeClusterRequest>(&answer).await;
}

async fn throttled(seconds: i32) -> (Arc<Connection>, Peer<DuplexStream>) {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let (answer, ()) = tokio::join!(ask(&connection, 1), serve_throttled(&mut peer, "x", seconds * 1000));
    answer.unwrap();
    (connection, peer)
}

async fn ask_within(connection: &Connection, call: Call) -> Result<String, String> {
    let answer = connection.send(|_| DescribeClusterRequest::default(), call).await;
    answer.map(|answer| answer.cluster_id).map_err(|error| chain(&error))
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_throttles_is_left_alone_before_the_request_timeout_begins() {
    let (connection, mut peer) = throttled(40).await;
    let begun = Instant::now();
    let call = Call::by(in_seconds(60)).request_timeout(Duration::from_secs(10));
    let served = async {
        let request = peer.expect::<DescribeClusterRequest>().await;
        // Nothing came before, and the whole request timeout is still there.
        let at = begun.elapsed();
        tokio::time::sleep(Duration::from_secs(9)).await;
        reply(&mut peer, &request, "later").await;
        at
    };
    let (answer, at) = tokio::join!(ask_within(&connection, call), served);
    assert_eq!((answer, at), (Ok("later".to_owned()), Duration::from_secs(40)));
}

#[tokio::test(start_paused = true)]
async fn the_callers_deadline_covers_the_throttling_and_the_connection_lives_on() {
    let (connection, mut peer) = throttled(5).await;
    let begun = Instant::now();
    let sent = connection.send(|_| DescribeClusterRequest::default(), in_seconds(2)).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    insta::assert_snapshot!(chain(&sent), @"DescribeCluster was not sent within 2s: the broker throttles this client");
    assert_eq!((sent.may_have_been_sent(), sent.recovery()), (false, Recovery::Retry));
    assert!(!connection.is_closed());
    let (answer, ()) = tokio::join!(ask(&connection, 60), serve(&mut peer, "then"));
    assert_eq!((answer, begun.elapsed()), (Ok("then".to_owned()), Duration::from_secs(5)));
}

#[tokio::test(start_paused = true)]
async fn all_connections_of_a_node_share_the_throttling() {
    let mute = Mute::new();
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let (ours, theirs) = tokio::io::duplex(WIDE);
        let mut peer = Peer::new(theirs);
        let config = Arc::new(ConnectionConfig { dialler: OneStream::new(ours), ..default() });
        let target = Target::from(&address()).with_mute(mute.clone());
        let connecting = Connection::connect(target, &config, in_seconds(10));
        let (connection, _) = tokio::join!(connecting, peer.serve_versions());
        pairs.push((connection.unwrap(), peer));
    }
    let [(first, first_peer), (second, second_peer)] = &mut pairs[..] else { unreachable!() };
    let (answer, ()) = tokio::join!(ask(first, 1), serve_throttled(first_peer, "x", 7_000));
    answer.unwrap();
    let begun = Instant::now();
    assert_eq!(second.mute().until(), Some(begun + Duration::from_secs(7)));
    let (answer, ()) = tokio::join!(ask(second, 60), serve(second_peer, "y"));
    assert_eq!((answer, begun.elapsed()), (Ok("y".to_owned()), Duration::from_secs(7)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_muted_broker_owes_has_its_time_from_the_end_of_the_mute() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let call = |deadline| Call::by(in_seconds(deadline)).request_timeout(Duration::from_secs(10));
    let (first, second) = (ask_within(&connection, call(60)), ask_within(&connection, call(60)));
    let script = async {
        let first = peer.expect::<DescribeClusterRequest>().await;
        let second = peer.expect::<DescribeClusterRequest>().await;
        let answer = DescribeClusterResponse { throttle_time_ms: 30_000, ..cluster("first") };
        peer.answer::<DescribeClusterRequest>(&first, &answer).await;
        // The broker reads nothing more for thirty seconds, and then takes its time.
        tokio::time::sleep(Duration::from_secs(39)).await;
        reply(&mut peer, &second, "second").await;
    };
    let (first, second, ()) = tokio::join!(first, second, script);
    assert_eq!((first, second), (Ok("first".to_owned()), Ok("second".to_owned())));

    // The deadline holds all the same.
    let begun = Instant::now();
    let (first, second) = (ask_within(&connection, call(60)), ask_within(&connection, call(20)));
    let script = async {
        let first = peer.expect::<DescribeClusterRequest>().await;
        peer.expect::<DescribeClusterRequest>().await;
        let answer = DescribeClusterResponse { throttle_time_ms: 30_000, ..cluster("first") };
        peer.answer::<DescribeClusterRequest>(&first, &answer).await;
    };
    let (_, second, ()) = tokio::join!(first, second, script);
    insta::assert_snapshot!(second.unwrap_err(), @"DescribeCluster was sent and has no answer: the broker did not answer DescribeCluster within 20s");
    assert_eq!(begun.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_caller_has_gone_mutes_all_the_same() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let abandoned = asking(&connection, 60);
    let request = peer.expect::<DescribeClusterRequest>().await;
    abandoned.abort();
    assert!(abandoned.await.is_err());
    let begun = Instant::now();
    let answer = DescribeClusterResponse { throttle_time_ms: 3_000, ..cluster("x") };
    let next = async {
        peer.answer::<DescribeClusterRequest>(&request, &answer).await;
        while connection.mute().until().is_none() {
            tokio::task::yield_now().await;
        }
        tokio::join!(ask(&connection, 60), serve(&mut peer, "y")).0
    };
    assert_eq!((next.await, begun.elapsed()), (Ok("y".to_owned()), Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_while_its_broker_throttles_is_known_at_once() {
    let (connection, peer) = throttled(3_600).await;
    let begun = Instant::now();
    let waiting = asking(&connection, 7_200);
    tokio::task::yield_now().await;
    drop(peer);
    insta::assert_snapshot!(waiting.await.unwrap().unwrap_err(), @"DescribeCluster was not sent: the broker closed the connection");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_a_free_place_meets_a_mute_that_came_meanwhile() {
    let (connection, mut peer) = connected(in_flight(1), WIDE).await;
    let first = asking(&connection, 60);
    let request = peer.expect::<DescribeClusterRequest>().await;
    let second = asking(&connection, 60);
    tokio::task::yield_now().await;
    // Another connection to the same node heard it.
    connection.mute().extend(Duration::from_secs(5));
    let begun = Instant::now();
    reply(&mut peer, &request, "first").await;
    serve(&mut peer, "second").await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!(
        (first.await.unwrap(), second.await.unwrap()),
        (Ok("first".to_owned()), Ok("second".to_owned()))
    );
}

//! Futures that are dropped.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_future_dropped_in_the_middle_of_its_frame_breaks_nothing() {
    // The pipe takes a few bytes: the frame is half written when its caller goes.
    let (connection, mut peer) = connected(default(), 16).await;
    let mut dropped = Box::pin(ask(&connection, 10));
    assert!(futures_poll(&mut dropped).await, "the request waits");
    tokio::task::yield_now().await;
    drop(dropped);
    let next = asking(&connection, 10);
    let first = peer.expect::<DescribeClusterRequest>().await;
    let second = peer.expect::<DescribeClusterRequest>().await;
    reply(&mut peer, &first, "for nobody").await;
    reply(&mut peer, &second, "second").await;
    assert_eq!(next.await.unwrap(), Ok("second".to_owned()));
    assert!(!connection.is_closed());
}

/// Polls once; true if there is no result yet.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending()))
        .await
}

/// The bytes of a request as these tests send it, with its length.
async fn request_bytes() -> usize {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let (_waiting, mut bytes) = (asking(&connection, 10), 0);
    while tokio::time::timeout(Duration::from_secs(1), peer.look(bytes + 1)).await.is_ok() {
        bytes += 1;
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_after_any_number_of_written_bytes_leaves_a_connection_that_works() {
    let whole = request_bytes().await;
    assert!(whole > 20, "{whole}");
    for written in 1..=whole {
        // The pipe takes one byte at a time.
        let (connection, mut peer) = connected(default(), 1).await;
        let dropped = asking(&connection, 10);
        peer.look(written).await.unwrap();
        dropped.abort();
        assert!(dropped.await.is_err());
        let next = asking(&connection, 10);
        // The rest of the frame is written all the same, and its answer is nobody's.
        let first = peer.expect::<DescribeClusterRequest>().await;
        let second = peer.expect::<DescribeClusterRequest>().await;
        reply(&mut peer, &first, "for nobody").await;
        reply(&mut peer, &second, "next").await;
        assert_eq!(next.await.unwrap(), Ok("next".to_owned()), "after {written} bytes");
        assert_eq!(tokio::join!(ask(&connection, 10), serve(&mut peer, "then")).0, Ok("then".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_after_any_number_of_read_bytes_leaves_a_connection_that_works() {
    let mut read = 0;
    loop {
        let (connection, mut peer) = connected(default(), WIDE).await;
        let dropped = asking(&connection, 10);
        let request = peer.expect::<DescribeClusterRequest>().await;
        let answer = frame::<DescribeClusterRequest>(&request, &cluster("for nobody"), request.version);
        peer.send(&answer[..read]).await;
        // The bytes are with the connection when nothing else is left to do.
        tokio::time::sleep(Duration::from_millis(1)).await;
        dropped.abort();
        let answered = dropped.await.is_ok();
        assert_eq!(answered, read == answer.len(), "after {read} bytes");
        let next = asking(&connection, 10);
        peer.send(&answer[read..]).await;
        serve(&mut peer, "next").await;
        assert_eq!(next.await.unwrap(), Ok("next".to_owned()), "after {read} bytes");
        assert!(!connection.is_closed());
        read += 1;
        if answered {
            break;
        }
    }
    assert!(read > 20, "{read}");
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_dropped_request_is_taken_until_its_answer_comes() {
    let (connection, mut peer) = connected(in_flight(1), WIDE).await;
    let first = asking(&connection, 60);
    let request = peer.expect::<DescribeClusterRequest>().await;
    first.abort();
    assert_eq!(
        ask(&connection, 1).await,
        Err("DescribeCluster was not sent within 1s: the connection is busy".to_owned())
    );
    let second = asking(&connection, 10);
    reply(&mut peer, &request, "for nobody").await;
    serve(&mut peer, "second").await;
    assert_eq!(second.await.unwrap(), Ok("second".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_keeps_its_deadline_so_that_a_silent_broker_is_noticed() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let first = asking(&connection, 5);
    peer.expect::<DescribeClusterRequest>().await;
    first.abort();
    insta::assert_snapshot!(connection.closed().await, @"the broker did not answer DescribeCluster within 5s");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_connection_ends_its_task_and_closes_the_socket() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let abandoned = asking(&connection, 60);
    peer.expect::<DescribeClusterRequest>().await;
    abandoned.abort();
    assert!(abandoned.await.is_err());
    drop(connection);
    assert!(peer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_is_given_up_while_bytes_come_ends_in_order() {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let shared =
        Arc::new(Shared { address: address(), config: Arc::new(default()), mute: crate::Mute::default() });
    let (connection, _handshake, establish) = Connection::start(&shared, Box::new(ours));
    drop(establish);
    for piece in [[0], [0], [0]] {
        peer.send(&piece).await;
        tokio::task::yield_now().await;
    }
    connection.close();
    assert_eq!(connection.closed().await.to_string(), CloseReason::ClosedHere.to_string());
}

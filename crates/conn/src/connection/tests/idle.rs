//! Connections on which nothing happens.

use super::*;
use crate::DEFAULT_IDLE_TIMEOUT;

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_by_this_side_which_is_no_failure() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    tokio::time::sleep(Duration::from_secs(500)).await;
    tokio::join!(ask(&connection, 1), serve(&mut peer, "x")).0.unwrap();
    let begun = Instant::now();
    let reason = connection.closed().await;
    assert_eq!(begun.elapsed(), DEFAULT_IDLE_TIMEOUT);
    insta::assert_snapshot!(reason, @"closed by this client after 540s without a request");
    assert!(reason.is_planned());
    assert!(peer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_for_an_answer_is_not_idle() {
    let (connection, mut peer) = connected(default(), WIDE).await;
    let waiting = asking(&connection, 3_600);
    let request = peer.expect::<DescribeClusterRequest>().await;
    tokio::time::sleep(Duration::from_secs(3_000)).await;
    reply(&mut peer, &request, "late").await;
    assert_eq!(waiting.await.unwrap(), Ok("late".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_timeout_of_zero_never_closes() {
    let config = ConnectionConfig { idle_timeout: Duration::ZERO, ..default() };
    let (connection, mut peer) = connected(config, WIDE).await;
    tokio::time::sleep(Duration::from_secs(1_000_000)).await;
    assert_eq!(tokio::join!(ask(&connection, 1), serve(&mut peer, "x")).0, Ok("x".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_meets_a_connection_closed_a_moment_ago_was_not_sent() {
    // Whichever the task of the connection sees first, the request or the end: no byte goes out.
    for order in 0..64 {
        let (connection, peer) = connected(default(), WIDE).await;
        let mut sent = Box::pin(connection.send(|_| DescribeClusterRequest::default(), in_seconds(5)));
        if order % 2 == 0 {
            assert!(futures::poll!(&mut sent).is_pending());
            drop(peer);
        } else {
            drop(peer);
            assert!(futures::poll!(&mut sent).is_pending());
        }
        let error = sent.await.unwrap_err();
        assert!(!error.may_have_been_sent(), "{}", chain(&error));
        assert!(matches!(*connection.closed().await, CloseReason::ClosedByBroker));
    }
}

//! What happens at the same moment. Each race is run many times, since nobody can say who wins.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use strandline_protocol::messages::DescribeClusterResponse;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::*;

/// Longer than any request may take; who waits longer waits for ever.
const FOR_EVER: Duration = Duration::from_secs(60);

/// A listener that hangs up as soon as it has heard anything.
#[derive(Default)]
struct HangsUp {
    asked: bool,
    reader: Option<Waker>,
}

impl AsyncRead for HangsUp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.asked {
            return Poll::Ready(Ok(()));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for HangsUp {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.asked = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_up_at_the_first_request_is_told_as_such_however_soon_it_comes() {
    let shared = Arc::new(Shared { address: address(), config: Arc::new(default()), mute: Mute::default() });
    for round in 0..200 {
        let (connection, _handshake, establish) = Connection::start(&shared, Box::new(HangsUp::default()));
        // Both are there before the connection's task has run at all.
        assert!(establish.send(Established { authenticated: false, session: None }).is_ok());
        let asked: Result<DescribeClusterResponse, _> =
            connection.lane.exchange(&DescribeClusterRequest::default(), 0, in_seconds(10)).await;
        let told = chain(&asked.unwrap_err());
        assert!(told.ends_with("its listener may want SASL"), "round {round}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_that_meets_the_end_of_its_connection_is_not_left_waiting() {
    for round in 0..2_000 {
        let (connection, peer) = connected(default(), WIDE).await;
        let callers: Vec<_> = (0..3).map(|_| asking(&connection, 10)).collect();
        drop(peer);
        for caller in callers {
            let answer = timeout(FOR_EVER, caller).await;
            let answer = answer.unwrap_or_else(|_| panic!("round {round}: a request waits for ever"));
            assert!(answer.unwrap().is_err(), "nobody answers");
        }
    }
}

//! What an observer hears.

use std::sync::Mutex;

use strandline_protocol::messages::DescribeClusterResponse;

use super::*;
use crate::{CloseEvent, Observer, ReauthenticateEvent, ThrottleEvent};

/// Writes down what happens, a line each.
#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl Lines {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join("\n")
    }
}

fn told<E: std::error::Error>(outcome: Result<(), &E>) -> String {
    outcome.map_or_else(|error| chain(error), |()| "ok".to_owned())
}

impl Observer for Lines {
    fn on_connect(&self, event: &ConnectEvent<'_>) {
        let steps = event.steps.iter().map(|(step, took)| format!("{step:?} {took:?}")).collect::<Vec<_>>();
        let (address, peer, took) = (event.address, event.peer, event.took);
        self.add(format!(
            "connect {address} {peer:?} [{}] {took:?}: {}",
            steps.join(", "),
            told(event.outcome)
        ));
    }

    fn on_close(&self, event: &CloseEvent<'_>) {
        self.add(format!("close {} after {:?}: {}", event.address, event.lived, chain(event.reason)));
    }

    fn on_reauthenticate(&self, event: &ReauthenticateEvent<'_>) {
        self.add(format!("reauthenticate {}: {}", event.address, told(event.outcome)));
    }

    fn on_request(&self, event: &RequestEvent<'_>) {
        let (api, version, queued, served) = (event.api, event.version, event.queued, event.served);
        let (address, outcome) = (event.address, told(event.outcome));
        self.add(format!("request {api} {version} to {address} {queued:?} + {served:?}: {outcome}"));
    }

    fn on_throttle(&self, event: &ThrottleEvent<'_>) {
        self.add(format!("throttle {} by {} for {:?}", event.api, event.address, event.wait));
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_a_connection_from_its_beginning_to_its_end() {
    let lines = Arc::new(Lines::default());
    let config = ConnectionConfig { observer: Arc::clone(&lines) as _, ..default() };
    let (connection, mut peer) = connected(config, WIDE).await;
    let script = async {
        let request = peer.expect::<DescribeClusterRequest>().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let answer = DescribeClusterResponse { throttle_time_ms: 1_000, ..cluster("x") };
        peer.answer::<DescribeClusterRequest>(&request, &answer).await;
    };
    tokio::join!(ask(&connection, 5), script).0.unwrap();
    tokio::join!(ask(&connection, 5), serve(&mut peer, "y")).0.unwrap();
    drop(peer);
    connection.closed().await;
    ask(&connection, 1).await.unwrap_err();
    insta::assert_snapshot!(lines.take(), @"
    connect broker1:9092 Some(127.0.0.1:9092) [Resolving 0ns, Dialling 0ns, Versions 0ns] 0ns: ok
    throttle DescribeCluster by broker1:9092 for 1s
    request DescribeCluster 2 to broker1:9092 0ns + 2s: ok
    request DescribeCluster 2 to broker1:9092 1s + 0ns: ok
    close broker1:9092 after 3s: the broker closed the connection
    request DescribeCluster 2 to broker1:9092 0ns + 0ns: DescribeCluster was not sent: the broker closed the connection
    ");
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_how_far_a_failed_connect_came() {
    let lines = Arc::new(Lines::default());
    let config = ConnectionConfig { observer: Arc::clone(&lines) as _, ..default() };
    refused(config, |mut peer| async move {
        peer.next().await;
    })
    .await;
    insta::assert_snapshot!(lines.take(), @"connect broker1:9092 Some(127.0.0.1:9092) [Resolving 0ns, Dialling 0ns] 0ns: broker1:9092 ended the connection while it was agreeing on versions: the broker closed the connection");
}

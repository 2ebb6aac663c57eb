use std::sync::Mutex;

use super::*;
use crate::peer::{address, chain, in_seconds};

/// What an address does.
#[derive(Clone, Copy, Debug)]
enum Does {
    Accepts(Duration),
    Refuses,
    StaysSilent,
}

/// A name with addresses, each with what it does; writes down when each was tried.
#[derive(Debug)]
struct Scripted {
    addresses: Vec<(SocketAddr, Does)>,
    begun: Instant,
    tried: Mutex<Vec<(SocketAddr, Duration)>>,
}

impl Scripted {
    fn new(addresses: &[(&str, Does)]) -> Self {
        let addresses = addresses.iter().map(|(address, does)| (address.parse().unwrap(), *does)).collect();
        Self { addresses, begun: Instant::now(), tried: Mutex::default() }
    }

    /// Connects; gives who answered, and the trace of attempts.
    async fn connect(&self, seconds: u64) -> (Result<String, String>, String) {
        let addresses = self.resolve("broker1", 9092).await.unwrap();
        let name = address();
        let connected = tokio::time::timeout_at(in_seconds(seconds), connect_any(self, &name, &addresses));
        let connected = match connected.await {
            Ok(Ok((_, peer))) => Ok(peer.to_string()),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err("the deadline passed".to_owned()),
        };
        let tried = self.tried.lock().unwrap();
        let trace = tried.iter().map(|(address, at)| format!("{address} at {at:?}"));
        (connected, trace.collect::<Vec<_>>().join(", "))
    }
}

impl Dialler for Scripted {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(async { Ok(self.addresses.iter().map(|(address, _)| *address).collect()) })
    }

    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        self.tried.lock().unwrap().push((address, self.begun.elapsed()));
        let does = self.addresses.iter().find(|(known, _)| *known == address).unwrap().1;
        Box::pin(async move {
            match does {
                Does::Accepts(after) => sleep(after).await,
                Does::Refuses => return Err(io::ErrorKind::ConnectionRefused.into()),
                Does::StaysSilent => std::future::pending().await,
            }
            Ok(Box::new(tokio::io::duplex(64).0) as Box<dyn ByteStream>)
        })
    }
}

const AT_ONCE: Does = Does::Accepts(Duration::ZERO);

#[tokio::test(start_paused = true)]
async fn a_silent_address_holds_the_next_one_up_for_a_quarter_of_a_second() {
    let name = Scripted::new(&[
        ("10.0.0.1:1", Does::StaysSilent),
        ("10.0.0.2:1", Does::StaysSilent),
        ("10.0.0.3:1", AT_ONCE),
    ]);
    let (connected, trace) = name.connect(10).await;
    assert_eq!(connected, Ok("10.0.0.3:1".to_owned()));
    insta::assert_snapshot!(trace, @"10.0.0.1:1 at 0ns, 10.0.0.2:1 at 250ms, 10.0.0.3:1 at 500ms");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_refuses_is_followed_by_the_next_at_once() {
    let name = Scripted::new(&[("10.0.0.1:1", Does::Refuses), ("10.0.0.2:1", AT_ONCE)]);
    let (connected, trace) = name.connect(10).await;
    assert_eq!(connected, Ok("10.0.0.2:1".to_owned()));
    insta::assert_snapshot!(trace, @"10.0.0.1:1 at 0ns, 10.0.0.2:1 at 0ns");
}

#[tokio::test(start_paused = true)]
async fn a_slow_address_still_counts_while_others_are_tried() {
    let slow = Does::Accepts(Duration::from_millis(600));
    let name = Scripted::new(&[
        ("10.0.0.1:1", slow),
        ("10.0.0.2:1", Does::Refuses),
        ("10.0.0.3:1", Does::StaysSilent),
    ]);
    let (connected, trace) = name.connect(10).await;
    assert_eq!(connected, Ok("10.0.0.1:1".to_owned()));
    insta::assert_snapshot!(trace, @"10.0.0.1:1 at 0ns, 10.0.0.2:1 at 250ms, 10.0.0.3:1 at 250ms");
}

#[tokio::test(start_paused = true)]
async fn the_address_families_take_turns() {
    let name = Scripted::new(&[
        ("[2001:db8::1]:1", Does::StaysSilent),
        ("[2001:db8::2]:1", Does::StaysSilent),
        ("10.0.0.1:1", AT_ONCE),
    ]);
    let (connected, trace) = name.connect(10).await;
    assert_eq!(connected, Ok("10.0.0.1:1".to_owned()));
    insta::assert_snapshot!(trace, @"[2001:db8::1]:1 at 0ns, 10.0.0.1:1 at 250ms");
}

#[tokio::test(start_paused = true)]
async fn every_address_of_a_name_is_tried_before_it_counts_as_unreachable() {
    let name = Scripted::new(&[("10.0.0.1:1", Does::Refuses), ("10.0.0.2:1", Does::Refuses)]);
    insta::assert_snapshot!(name.connect(10).await.0.unwrap_err(), @"cannot reach broker1:9092: 10.0.0.1:1: connection refused; 10.0.0.2:1: connection refused");
    let name = Scripted::new(&[("10.0.0.1:1", Does::Refuses), ("10.0.0.2:1", Does::StaysSilent)]);
    insta::assert_snapshot!(name.connect(10).await.0.unwrap_err(), @"the deadline passed");
}

#[tokio::test]
async fn a_socket_sends_at_once_and_notices_a_host_that_is_gone() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.and_then(prepare).unwrap();
    let socket = SockRef::from(&stream);
    assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
    #[cfg(target_os = "linux")]
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_MAX));
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_named() {
    let name: BrokerAddress = "broker1.invalid:9092".parse().unwrap();
    let error = resolve(&TcpDialler, &name).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot resolve broker1.invalid:9092");
    let nothing = Scripted::new(&[]);
    insta::assert_snapshot!(chain(&resolve(&nothing, &name).await.unwrap_err()), @"cannot resolve broker1.invalid:9092: the name has no address");
}

//! Connecting, up to authentication.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use strandline_protocol::messages::api_versions::ApiVersion;
use strandline_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::*;
use crate::{ByteStream, ConnectError, Dialler, Dialling, PeerIdentity, Target};

#[tokio::test(start_paused = true)]
async fn the_broker_learns_the_software_and_its_version() {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let (connection, request) = tokio::join!(establish(default(), ours), peer.serve_versions());
    assert_eq!(request.client_software_name, "strandline");
    assert_eq!(request.client_software_version, env!("CARGO_PKG_VERSION"));
    let connection = connection.unwrap();
    assert_eq!(connection.versions().range(ApiKey::Fetch), ApiKey::Fetch.versions());
    assert_eq!(connection.address(), &address());
}

/// The versions of ApiVersions that are asked with when the broker refuses all above `newest`, naming its own
/// range or not.
async fn asked_with(newest: i16, names_its_range: bool) -> (Vec<i16>, Result<(), String>) {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let script = async {
        let mut versions = Vec::new();
        while let Some(request) = peer.next().await {
            versions.push(request.version);
            let mut answer = ApiVersionsResponse::default();
            let accepted = request.version <= newest;
            if accepted || names_its_range {
                let entry = ApiVersion { api_key: 18, max_version: newest, ..ApiVersion::default() };
                answer.api_keys.push(entry);
            }
            if !accepted {
                answer.error_code = ErrorCode::UnsupportedVersion;
            }
            let version = if accepted { request.version } else { 0 };
            peer.answer_in::<ApiVersionsRequest>(&request, &answer, version).await;
        }
        versions
    };
    let (connection, versions) = tokio::join!(
        async { establish(default(), ours).await.map(|_| ()).map_err(|error| chain(&error)) },
        script
    );
    (versions, connection)
}

#[tokio::test(start_paused = true)]
async fn an_older_broker_is_asked_again_in_a_version_it_knows() {
    assert_eq!(asked_with(4, true).await, (vec![4], Ok(())));
    assert_eq!(asked_with(3, true).await, (vec![4, 3], Ok(())));
    assert_eq!(asked_with(2, false).await, (vec![4, 0], Ok(())));
    assert_eq!(asked_with(0, true).await, (vec![4, 0], Ok(())));
    let (asked, error) = asked_with(-1, false).await;
    assert_eq!(asked, [4, 0]);
    insta::assert_snapshot!(error.unwrap_err(), @"broker1:9092 is too old or too new: ApiVersions has no version that both sides speak: this client 0 to 5 (here at most -1), the broker none at all");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_speaks_another_protocol_is_told_by_its_name() {
    let speaks = async |bytes: &'static [u8]| {
        refused(default(), |mut peer| async move {
            peer.expect::<ApiVersionsRequest>().await;
            peer.send(bytes).await;
        })
        .await
    };
    insta::assert_snapshot!(speaks(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, @"broker1:9092 speaks HTTP, not Kafka's protocol");
    insta::assert_snapshot!(speaks(&[0x15, 3, 3, 0, 2, 2, 80]).await, @"broker1:9092 wants TLS: it answered our plaintext request with TLS");
    insta::assert_snapshot!(speaks(b"SSH-2.0-OpenSSH_9.2\r\n").await, @"broker1:9092 ended the connection while it was agreeing on versions: an answer claims a length of 1397966893 bytes; accepted are 4 to 104857600");
    insta::assert_snapshot!(speaks(&[0, 0, 0, 5, 0, 0, 0, 0, 1]).await, @"broker1:9092 sent a malformed answer while it was agreeing on versions: ApiVersionsResponse version 4: error_code: byte 0: the value takes 2 bytes, and 1 are left");
    insta::assert_snapshot!(speaks(&[]).await, @"broker1:9092 ended the connection while it was agreeing on versions: the broker closed the connection");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_never_answers_ends_the_connect_at_its_deadline() {
    let begun = Instant::now();
    let error = refused(default(), |mut peer| async move {
        peer.expect::<ApiVersionsRequest>().await;
        assert!(peer.next().await.is_none());
    });
    insta::assert_snapshot!(error.await, @"connecting to broker1:9092 took longer than 10s; it was agreeing on versions");
    assert_eq!(begun.elapsed().as_secs(), 10);
}

/// Connects to somebody in particular; the peer knows versions of ApiVersions up to `newest` and is broker 3 of cluster `abc`.
async fn meant_for(
    identity: PeerIdentity,
    newest: i16,
) -> (Vec<(i16, Option<String>, i32)>, Result<(), ConnectError>) {
    let (ours, theirs) = tokio::io::duplex(WIDE);
    let mut peer = Peer::new(theirs);
    let config = Arc::new(ConnectionConfig { dialler: OneStream::new(ours), ..default() });
    let target = Target::from(&address()).with_identity(identity);
    let script = async {
        let mut seen = Vec::new();
        while let Some(request) = peer.next().await {
            let body = request.body::<ApiVersionsRequest>();
            let mut answer = crate::peer::versions();
            let mut version = request.version;
            if request.version > newest {
                (answer.error_code, version) = (ErrorCode::UnsupportedVersion, 0);
                answer.api_keys.retain(|row| row.api_key == 18);
                answer.api_keys[0].max_version = newest;
            } else if request.version >= 5 && (body.node_id, body.cluster_id.as_deref()) != (3, Some("abc")) {
                answer.error_code = ErrorCode::RebootstrapRequired;
                answer.api_keys.clear();
            }
            seen.push((request.version, body.cluster_id, body.node_id));
            peer.answer_in::<ApiVersionsRequest>(&request, &answer, version).await;
        }
        seen
    };
    let connecting = async { Connection::connect(target, &config, in_seconds(10)).await.map(|_| ()) };
    let (connected, seen) = tokio::join!(connecting, script);
    (seen, connected)
}

#[tokio::test(start_paused = true)]
async fn a_broker_is_told_who_it_is_taken_for_and_refuses_if_it_is_another() {
    let broker = |cluster: &str, node_id| PeerIdentity {
        cluster_id: Some(cluster.to_owned()),
        node_id: Some(node_id),
    };
    let abc = || Some("abc".to_owned());
    let (seen, connected) = meant_for(broker("abc", 3), 5).await;
    assert_eq!((seen, connected.is_ok()), (vec![(5, abc(), 3)], true));

    let (seen, refused) = meant_for(broker("abc", 4), 5).await;
    let refused = refused.unwrap_err();
    assert_eq!((seen, refused.recovery()), (vec![(5, abc(), 4)], Recovery::Rebootstrap));
    insta::assert_snapshot!(chain(&refused), @"broker1:9092 is not broker 4 of cluster abc");
    let refused = meant_for(broker("other", 3), 5).await.1.unwrap_err();
    insta::assert_snapshot!(chain(&refused), @"broker1:9092 is not broker 3 of cluster other");
    assert!(matches!(refused, ConnectError::WrongPeer { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_broker_before_4_4_is_not_told_and_a_bootstrap_address_costs_it_no_round_trip() {
    let identity = PeerIdentity { cluster_id: Some("abc".to_owned()), node_id: Some(4) };
    let (seen, connected) = meant_for(identity, 4).await;
    let versions: Vec<i16> = seen.iter().map(|(version, ..)| *version).collect();
    assert_eq!((versions, connected.is_ok()), (vec![5, 4], true));
    // What version 4 cannot say is left out.
    assert_eq!(seen[1], (4, None, -1));
    let (seen, connected) = meant_for(PeerIdentity::default(), 4).await;
    assert_eq!((seen, connected.is_ok()), (vec![(4, None, -1)], true));
    // A broker of 4.4 refuses half an identity: a cluster whose node is not known is not told either.
    let cluster = PeerIdentity { cluster_id: Some("abc".to_owned()), node_id: None };
    let (seen, connected) = meant_for(cluster, 5).await;
    assert_eq!((seen, connected.is_ok()), (vec![(4, None, -1)], true));
}

/// A network in which a name moves: each time it is looked up it has another address.
#[derive(Debug, Default)]
struct Moving {
    looked_up: AtomicU16,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Dialler for Moving {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        let last = self.looked_up.fetch_add(1, Ordering::Relaxed).to_be_bytes()[1];
        Box::pin(async move { Ok(vec![SocketAddr::from(([10, 0, 0, last], port))]) })
    }

    fn connect(&self, address: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        self.dialled.lock().unwrap().push(address);
        let (ours, theirs) = tokio::io::duplex(WIDE);
        tokio::spawn(async move {
            let mut peer = Peer::new(theirs);
            peer.serve_versions().await;
            // Until the client has seen enough.
            peer.next().await;
        });
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn ByteStream>) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_resolved_anew_at_every_dial() {
    let network = Arc::new(Moving::default());
    let config = Arc::new(ConnectionConfig { dialler: Arc::clone(&network) as _, ..default() });
    for _ in 0..3 {
        Connection::connect(&address(), &config, in_seconds(10)).await.unwrap();
    }
    let dialled = network.dialled.lock().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(dialled, ["10.0.0.0:9092", "10.0.0.1:9092", "10.0.0.2:9092"]);
}

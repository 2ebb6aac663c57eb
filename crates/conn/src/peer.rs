//! The broker's end of a connection, played by a test.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use strandline_protocol::messages::api_versions::ApiVersion;
use strandline_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, DescribeClusterResponse, RequestHeader,
    ResponseHeader,
};
use strandline_protocol::{ApiKey, Message, Request};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use crate::{BrokerAddress, ByteStream, Connection, Dialler, Dialling};

/// A peer that reads requests and answers what its test tells it to.
pub(crate) struct Peer<S> {
    stream: S,
    /// Bytes that were looked at and not taken yet.
    ahead: VecDeque<u8>,
}

/// A request as it came over the wire.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    body: Bytes,
}

impl Received {
    pub(crate) fn body<R: Request>(&self) -> R {
        assert_eq!(self.api, R::API_KEY);
        R::decode(self.body.clone(), self.version).unwrap()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, ahead: VecDeque::new() }
    }

    /// Waits for so many bytes, and leaves them for [`next`](Self::next); `None` at the end of the connection.
    pub(crate) async fn look(&mut self, count: usize) -> Option<()> {
        while self.ahead.len() < count {
            self.ahead.push_back(self.stream.read_u8().await.ok()?);
        }
        Some(())
    }

    /// The next request; `None` at the end of the connection. A dropped future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        self.look(4).await?;
        let length = [0, 1, 2, 3].map(|at| self.ahead[at]);
        let whole = 4 + usize::try_from(i32::from_be_bytes(length)).unwrap();
        self.look(whole).await?;
        let frame: Vec<u8> = self.ahead.drain(..whole).skip(4).collect();
        let api = ApiKey::from_code(i16::from_be_bytes([frame[0], frame[1]])).unwrap();
        let version = i16::from_be_bytes([frame[2], frame[3]]);
        let mut body = Bytes::from(frame);
        let header = RequestHeader::decode_prefix(&mut body, api.request_header_version(version)).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("strandline"));
        Some(Received { api, version, correlation_id: header.correlation_id, body })
    }

    /// The next request, which must be an `R`.
    pub(crate) async fn expect<R: Request>(&mut self) -> Received {
        let received = self.next().await.expect("the connection ended");
        assert_eq!(received.api, R::API_KEY);
        received
    }

    pub(crate) async fn answer<R: Request>(&mut self, request: &Received, answer: &R::Response) {
        self.send(&frame::<R>(request, answer, request.version)).await;
    }

    /// Answers, unless the other side has closed.
    ///
    /// # Errors
    ///
    /// Nobody reads any more.
    pub(crate) async fn try_answer<R: Request>(
        &mut self,
        request: &Received,
        answer: &R::Response,
    ) -> io::Result<()> {
        self.stream.write_all(&frame::<R>(request, answer, request.version)).await?;
        self.stream.flush().await
    }

    /// Answers in another version than asked for.
    pub(crate) async fn answer_in<R: Request>(
        &mut self,
        request: &Received,
        answer: &R::Response,
        version: i16,
    ) {
        self.send(&frame::<R>(request, answer, version)).await;
    }

    /// Takes a request of a kind and answers it.
    pub(crate) async fn serve<R: Request>(&mut self, answer: &R::Response) -> R {
        let received = self.expect::<R>().await;
        self.answer::<R>(&received, answer).await;
        received.body()
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Agrees on the versions of [`versions`].
    pub(crate) async fn serve_versions(&mut self) -> ApiVersionsRequest {
        self.serve::<ApiVersionsRequest>(&versions()).await
    }
}

/// An answer as a broker would write it.
pub(crate) fn frame<R: Request>(request: &Received, answer: &R::Response, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let header = ResponseHeader { correlation_id: request.correlation_id, ..ResponseHeader::default() };
    header.encode(R::API_KEY.response_header_version(version), &mut bytes).unwrap();
    answer.encode(version, &mut bytes).unwrap();
    let mut frame = i32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(&bytes);
    frame
}

/// The versions that Kafka 4.4 has, but ApiVersions up to 4.
pub(crate) fn versions() -> ApiVersionsResponse {
    let mut answer = ApiVersionsResponse::default();
    for api in ApiKey::ALL {
        let Some(range) = api.versions() else { continue };
        let mut entry = ApiVersion::default();
        (entry.api_key, entry.min_version, entry.max_version) = (api.code(), range.first, range.last);
        if *api == ApiKey::ApiVersions {
            entry.max_version = 4;
        }
        answer.api_keys.push(entry);
    }
    answer
}

/// The answer to a DescribeCluster request, recognisable by `name`.
pub(crate) fn cluster(name: &str) -> DescribeClusterResponse {
    DescribeClusterResponse { cluster_id: name.to_owned(), ..DescribeClusterResponse::default() }
}

/// Asks for the cluster and gives its name, or what went wrong, with the chain of causes.
pub(crate) async fn ask(connection: &Connection, seconds: u64) -> Result<String, String> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let answer = connection.send(|_| DescribeClusterRequest::default(), deadline).await;
    answer.map(|answer| answer.cluster_id).map_err(|error| chain(&error))
}

/// An error with its causes, as a person would read it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

pub(crate) fn address() -> BrokerAddress {
    "broker1:9092".parse().unwrap()
}

pub(crate) fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// A network whose only stream is at hand.
#[derive(Debug)]
pub(crate) struct OneStream(Mutex<Option<DuplexStream>>);

impl OneStream {
    pub(crate) fn new(stream: DuplexStream) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(stream))))
    }
}

impl Dialler for OneStream {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> Dialling<'a, Vec<SocketAddr>> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }

    fn connect(&self, _: SocketAddr) -> Dialling<'_, Box<dyn ByteStream>> {
        let stream = self.0.lock().unwrap().take();
        let stream = stream.map(|stream| Box::new(stream) as Box<dyn ByteStream>);
        Box::pin(async move { stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()) })
    }
}

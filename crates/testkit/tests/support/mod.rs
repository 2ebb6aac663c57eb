//! A client of few lines: one connection, one request at a time, any version.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use strandline_protocol::messages::{RequestHeader, ResponseHeader};
use strandline_protocol::{ApiKey, Message as _, Request};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Duration, timeout};

/// Longer than anything here takes; a test that waits for ever fails instead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Peer<S> {
    stream: S,
    correlation_id: i32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, correlation_id: 0 }
    }

    /// The answer, or the kind of the error with which the connection ended.
    pub(crate) async fn try_call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> std::io::Result<R::Response> {
        self.send(version, request).await?;
        let (_, mut frame) = self.receive().await?;
        let header = R::API_KEY.response_header_version(version);
        ResponseHeader::decode_prefix(&mut frame, header).unwrap();
        Ok(<R::Response as strandline_protocol::Message>::decode(frame, version).unwrap())
    }

    pub(crate) async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.try_call(version, request)
            .await
            .unwrap_or_else(|error| panic!("{} v{version}: {error}", R::API_KEY))
    }

    pub(crate) async fn send<R: Request>(&mut self, version: i16, request: &R) -> std::io::Result<i32> {
        let mut body = BytesMut::new();
        request.encode(version, &mut body).unwrap();
        self.send_raw(R::API_KEY, version, &body).await
    }

    pub(crate) async fn send_raw(&mut self, api: ApiKey, version: i16, body: &[u8]) -> std::io::Result<i32> {
        self.correlation_id += 1;
        let header = RequestHeader {
            request_api_key: api.code(),
            request_api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some("test".to_owned()),
            ..RequestHeader::default()
        };
        let mut frame = BytesMut::new();
        frame.put_u32(0);
        header.encode(api.request_header_version(version), &mut frame).unwrap();
        frame.extend_from_slice(body);
        let length = u32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).await?;
        Ok(self.correlation_id)
    }

    /// Sends bytes as a frame that is no request.
    #[allow(dead_code, reason = "not every suite speaks SASL of old")]
    pub(crate) async fn send_frame(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut frame = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        frame.extend(bytes);
        self.stream.write_all(&frame).await
    }

    /// The correlation id of the next answer, and all of it behind its length.
    pub(crate) async fn receive(&mut self) -> std::io::Result<(i32, Bytes)> {
        let frame = self.receive_frame().await?;
        Ok((frame.clone().get_i32(), frame))
    }

    /// What lies behind the next length.
    pub(crate) async fn receive_frame(&mut self) -> std::io::Result<Bytes> {
        let received = timeout(PATIENCE, async {
            let length = self.stream.read_u32().await?;
            let mut frame = vec![0; length as usize];
            self.stream.read_exact(&mut frame).await?;
            std::io::Result::Ok(Bytes::from(frame))
        });
        received.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }
}

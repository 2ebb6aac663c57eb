//! Bytes in, bytes out: what a connection carries, and what a script does to an answer.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use strandline_protocol::messages::{RequestHeader, ResponseHeader};
use strandline_protocol::{ApiKey, Message as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::sleep;

use super::Shared;
use super::api::{self, Answer, Call};
use super::journal::{JOURNAL_ENTRIES_MAX, JournalEntry};
use super::sasl::Authentication;
use super::script::Fault;

/// Kafka's `socket.request.max.bytes`.
const REQUEST_BYTES_MAX: usize = 100 << 20;

/// What lasts as long as a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    id: u64,
    authentication: std::sync::Mutex<Authentication>,
}

impl Connection {
    /// Who it is. Held for a few lines, never across a wait.
    pub(crate) fn authentication(&self) -> std::sync::MutexGuard<'_, Authentication> {
        self.authentication.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one connection until either side ends it. Requests are handled one after the other, as a broker does.
///
/// `certified` is who the client's certificate says it is.
pub(super) async fn serve_connection(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: Arc<Shared>,
    broker: i32,
    certified: Option<String>,
) -> io::Result<()> {
    let id = {
        let mut state = shared.state();
        state.connections += 1;
        state.connections
    };
    let authentication = std::sync::Mutex::new(Authentication::new(shared.sasl.clone(), certified));
    let connection = Arc::new(Connection { id, authentication });
    serve(stream, &shared, broker, &connection).await
}

async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: &Arc<Shared>,
    broker: i32,
    connection: &Arc<Connection>,
) -> io::Result<()> {
    loop {
        let length = match stream.read_u32().await {
            Ok(length) => length as usize,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        if length > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut frame = BytesMut::new();
        while frame.len() < length {
            let mut rest = (&mut *stream).take((length - frame.len()) as u64);
            if rest.read_buf(&mut frame).await? == 0 {
                return Ok(());
            }
        }
        if connection.authentication().wants_bare_token() {
            let nonce = shared.state().random.uuid().to_string();
            let step = connection.authentication().step(&frame, &nonce);
            // Of old a broker says nothing about a token that is wrong.
            let Ok(step) = step else { return Ok(()) };
            stream.write_u32(step.bytes.len() as u32).await?;
            stream.write_all(&step.bytes).await?;
            stream.flush().await?;
            continue;
        }
        let Some(request) = Incoming::parse(frame.freeze()) else { return Ok(()) };
        let fault = note(shared, broker, connection, &request);
        if !handle(stream, shared, broker, connection, request, fault).await? {
            return Ok(());
        }
    }
}

/// A request whose header is read.
struct Incoming {
    api: ApiKey,
    version: i16,
    header: RequestHeader,
    body: Bytes,
}

impl Incoming {
    /// `None` for what a broker closes the connection at: it is no request, or of no API.
    fn parse(mut frame: Bytes) -> Option<Self> {
        let api = ApiKey::from_code(i16::from_be_bytes(*frame.first_chunk()?))?;
        let version = i16::from_be_bytes(*frame.get(2..)?.first_chunk()?);
        let header = RequestHeader::decode_prefix(&mut frame, api.request_header_version(version)).ok()?;
        Some(Self { api, version, header, body: frame })
    }
}

/// Writes the request down, and asks the script what befalls it.
fn note(shared: &Shared, broker: i32, connection: &Connection, request: &Incoming) -> Option<Fault> {
    let principal = connection.authentication().principal().map(str::to_owned);
    let mut state = shared.state();
    let state = &mut *state;
    if state.journal.len() == JOURNAL_ENTRIES_MAX {
        state.journal.pop_front();
    }
    state.journal.push_back(JournalEntry {
        number: state.journaled,
        broker,
        connection: connection.id,
        principal,
        api: request.api,
        version: request.version,
        correlation_id: request.header.correlation_id,
        client_id: request.header.client_id.clone(),
        body: request.body.clone(),
    });
    state.journaled += 1;
    let random = &mut state.random;
    let fault = state.rules.iter_mut().find_map(|rule| rule.take(broker, request.api, random));
    shared.changed();
    fault
}

/// Answers one request; false where the connection ends with it.
async fn handle(
    stream: &mut (impl AsyncWrite + Unpin),
    shared: &Arc<Shared>,
    broker: i32,
    connection: &Arc<Connection>,
    request: Incoming,
    fault: Option<Fault>,
) -> io::Result<bool> {
    let mut call = Call {
        shared: Arc::clone(shared),
        broker,
        connection: Arc::clone(connection),
        version: request.version,
        error: None,
        throttle_ms: 0,
    };
    match &fault {
        Some(Fault::Error(code)) => call.error = Some(*code),
        Some(Fault::Delay(delay)) => sleep(*delay).await,
        Some(Fault::Hold(held)) => held.released().await,
        Some(Fault::Drop) => return Ok(true),
        Some(Fault::Close) => return Ok(false),
        Some(Fault::Throttle(wait)) => {
            call.throttle_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        }
        _ => {}
    }
    let answer = api::answer(&mut call, request.api, request.body).await;
    let latency = shared.state().brokers.get(&broker).map_or(Duration::ZERO, |broker| broker.latency);
    if latency > Duration::ZERO {
        sleep(latency).await;
    }
    let ends = matches!(answer, Answer::LastBody(_));
    let (header_version, body) = match answer {
        Answer::Body(body) | Answer::LastBody(body) => {
            (request.api.response_header_version(request.version), body)
        }
        // An ApiVersions request of an unknown version is answered in the oldest one (KIP-511).
        Answer::OldestBody(body) => (request.api.response_header_version(0), body),
        Answer::Nothing => return Ok(true),
        Answer::Close => return Ok(false),
    };
    let mut correlation_id = request.header.correlation_id;
    if matches!(fault, Some(Fault::WrongCorrelationId)) {
        correlation_id ^= 0x5555;
    }
    let frame = frame(correlation_id, header_version, &body);
    Ok(send(stream, &frame, fault).await? && !ends)
}

fn frame(correlation_id: i32, header_version: i16, body: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(body.len() + 16);
    frame.put_u32(0);
    let header = ResponseHeader { correlation_id, ..ResponseHeader::default() };
    header.encode(header_version, &mut frame).expect("a response header has no value that cannot be said");
    frame.extend_from_slice(body);
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Sends the answer, as the fault has it; false where the connection ends with it.
async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    frame: &[u8],
    fault: Option<Fault>,
) -> io::Result<bool> {
    match fault {
        Some(Fault::ApplyThenLose) => return Ok(false),
        Some(Fault::CloseAfter(bytes)) => {
            stream.write_all(&frame[..bytes.min(frame.len())]).await?;
            stream.flush().await?;
            return Ok(false);
        }
        Some(Fault::Trickle { bytes, pause }) => {
            for piece in frame.chunks(bytes.max(1)) {
                stream.write_all(piece).await?;
                stream.flush().await?;
                sleep(pause).await;
            }
        }
        Some(Fault::Garbage(garbage)) => stream.write_all(&garbage).await?,
        Some(Fault::Twice) => {
            stream.write_all(frame).await?;
            stream.write_all(frame).await?;
        }
        Some(Fault::Throttle(wait)) => {
            stream.write_all(frame).await?;
            stream.flush().await?;
            sleep(wait).await;
        }
        _ => stream.write_all(frame).await?,
    }
    stream.flush().await?;
    Ok(true)
}

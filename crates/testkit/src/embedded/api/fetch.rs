//! Fetch.
//!
//! - Versions: 4 to 17 (3.9, 4.0) or 18.
//! - Kept: topics by id from version 13 (UNKNOWN_TOPIC_ID); the current leader epoch is checked; followers answer
//!   consumers from version 11 (KIP-392); the answer waits for `min_bytes` up to `max_wait_ms`, and not when there is an
//!   error; the first batch of the answer comes whole, later ones are cut at the limits; readers of committed records
//!   end at the last stable offset and get the aborted transactions; a diverging last fetched epoch is told; from
//!   version 16 the current leader is told with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
//!   Fetch sessions (KIP-227): only what changed is told, partitions that had records go to the end of the order, wrong ids
//!   and epochs are refused, and a topic that was recreated is INCONSISTENT_TOPIC_ID within a session.
//!   A throttled client gets an empty answer. What is only in the tier is read, to either isolation level; one
//!   such read ends where the tier does, as if the tier were one segment.
//! - Left out: the segments of a tier, with which a read ends; aborted transactions there are told as those on disk, which
//!   is not yet compared with Apache Kafka; racks, what followers ask; sessions live until they are ended or their broker stops.

use std::time::Duration;

use bytes::Bytes;
use strandline_protocol::messages::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartition, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};
use strandline_protocol::messages::{FetchRequest, FetchResponse};
use strandline_protocol::{ErrorCode, Message as _, Uuid};
use tokio::time::{Instant, timeout_at};

use super::{Answer, Call, Operation, encoded};
use crate::embedded::state::State;

/// The first version that names topics by id.
const BY_ID: i16 = 13;

/// The first version in which a follower answers a consumer.
const FROM_FOLLOWER: i16 = 11;

/// The first version that tells the current leader.
const LEADER_HINTS: i16 = 16;

/// A partition that a request, or a session, asks for.
#[derive(Clone, Debug)]
struct Item {
    /// `None`: the id names no topic.
    topic: Option<String>,
    topic_id: Uuid,
    wanted: FetchPartition,
}

/// What a broker remembers between the requests of a fetch session.
#[derive(Debug)]
pub(crate) struct FetchSession {
    pub(crate) broker: i32,
    /// The epoch that the next request must have.
    epoch: i32,
    by_id: bool,
    items: Vec<(Item, Option<Told>)>,
}

/// What was last told of a partition beside records: high watermark and log start.
type Told = (i64, i64);

pub(super) async fn answer(call: &Call, body: Bytes) -> Answer {
    let Ok(request) = FetchRequest::decode(body, call.version) else { return Answer::Close };
    let context = match call.error.filter(|code| is_of_session(*code)) {
        Some(code) => Err(code),
        None => context(call, &mut call.shared.state(), &request),
    };
    let (session, items) = match context {
        Ok(context) => context,
        Err(error_code) => {
            let throttle_time_ms = call.throttle_ms;
            return encoded(
                call,
                &FetchResponse { throttle_time_ms, error_code, ..FetchResponse::default() },
            );
        }
    };
    if call.throttle_ms > 0 {
        // Who has read beyond the quota gets nothing now.
        let throttle_time_ms = call.throttle_ms;
        return encoded(
            call,
            &FetchResponse { throttle_time_ms, session_id: session, ..FetchResponse::default() },
        );
    }
    let deadline = Instant::now() + Duration::from_millis(request.max_wait_ms.max(0) as u64);
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let mut changes = call.shared.changes.subscribe();
    loop {
        changes.mark_unchanged();
        let page = read(call, &mut call.shared.state(), &request, &items);
        let ready = page.bytes >= min_bytes || page.urgent || items.is_empty();
        if ready || timeout_at(deadline, changes.changed()).await.is_err() {
            return encoded(call, &respond(call, &mut call.shared.state(), session, &items, page));
        }
    }
}

/// True for what a broker says of a session, and so of a whole request.
fn is_of_session(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::FetchSessionIdNotFound
            | ErrorCode::InvalidFetchSessionEpoch
            | ErrorCode::FetchSessionTopicIdError
    )
}

/// The session that the answer belongs to, 0 for none, and what is asked for.
///
/// Source: `FetchManager#newContext`.
fn context(call: &Call, state: &mut State, request: &FetchRequest) -> Result<(i32, Vec<Item>), ErrorCode> {
    let by_id = call.version >= BY_ID;
    let asked: Vec<Item> = asked(state, request, by_id);
    if request.session_epoch <= 0 {
        state.sessions.remove(&request.session_id);
        if request.session_epoch < 0 || asked.is_empty() {
            return Ok((0, asked));
        }
        let id = (state.random.next() >> 33) as i32 | 1;
        let items = asked.iter().map(|item| (item.clone(), None)).collect();
        state.sessions.insert(id, FetchSession { broker: call.broker, epoch: 1, by_id, items });
        return Ok((id, asked));
    }
    let names = &state.topics;
    let session = state.sessions.get_mut(&request.session_id).filter(|session| session.broker == call.broker);
    let session = session.ok_or(ErrorCode::FetchSessionIdNotFound)?;
    if session.by_id != by_id {
        return Err(ErrorCode::FetchSessionTopicIdError);
    }
    if session.epoch != request.session_epoch {
        return Err(ErrorCode::InvalidFetchSessionEpoch);
    }
    session.epoch = if session.epoch == i32::MAX { 1 } else { session.epoch + 1 };
    let same = |item: &Item, topic_id: Uuid, topic: Option<&str>, partition: i32| {
        let topic = if by_id { item.topic_id == topic_id } else { item.topic.as_deref() == topic };
        topic && item.wanted.partition == partition
    };
    for new in asked {
        let topic = new.topic.as_deref();
        match session.items.iter_mut().find(|(item, _)| same(item, new.topic_id, topic, new.wanted.partition))
        {
            Some((item, _)) => item.wanted = new.wanted,
            None => session.items.push((new, None)),
        }
    }
    for gone in &request.forgotten_topics_data {
        let topic = Some(gone.topic.as_str());
        session.items.retain(|(item, _)| {
            !gone.partitions.iter().any(|partition| same(item, gone.topic_id, topic, *partition))
        });
    }
    for (item, _) in session.items.iter_mut().filter(|(item, _)| item.topic.is_none()) {
        let found = names.iter().find(|(_, topic)| topic.id.0 == item.topic_id);
        item.topic = found.map(|(name, _)| name.clone());
    }
    let items: Vec<Item> = session.items.iter().map(|(item, _)| item.clone()).collect();
    if items.is_empty() {
        state.sessions.remove(&request.session_id);
        return Ok((0, items));
    }
    Ok((request.session_id, items))
}

fn asked(state: &State, request: &FetchRequest, by_id: bool) -> Vec<Item> {
    let mut items = Vec::new();
    for topic in &request.topics {
        let name = if by_id { state.name_of(topic.topic_id) } else { Some(topic.topic.clone()) };
        let item = |wanted: &FetchPartition| Item {
            topic: name.clone(),
            topic_id: topic.topic_id,
            wanted: wanted.clone(),
        };
        items.extend(topic.partitions.iter().map(item));
    }
    items
}

struct Page {
    /// One for each item, in order.
    partitions: Vec<PartitionData>,
    endpoints: Vec<NodeEndpoint>,
    bytes: usize,
    /// There is an error or a diverging epoch, which nobody waits with.
    urgent: bool,
}

fn read(call: &Call, state: &mut State, request: &FetchRequest, items: &[Item]) -> Page {
    let mut page = Page { partitions: Vec::new(), endpoints: Vec::new(), bytes: 0, urgent: false };
    for item in items {
        let data = match &item.topic {
            Some(topic) if call.version >= BY_ID && is_other(state, topic, item.topic_id) => {
                Err(ErrorCode::InconsistentTopicId)
            }
            Some(topic) => partition(call, state, topic, &item.wanted, request, page.bytes),
            None => Err(ErrorCode::UnknownTopicId),
        };
        let mut data = data.unwrap_or_else(refused);
        data.partition_index = item.wanted.partition;
        if let Some(topic) = &item.topic {
            hint(call, state, topic, &mut data, &mut page.endpoints);
        }
        page.bytes += data.records.as_ref().map_or(0, Bytes::len);
        page.urgent |= is_urgent(&data);
        page.partitions.push(data);
    }
    page
}

/// True if the topic has another id by now.
fn is_other(state: &State, topic: &str, id: Uuid) -> bool {
    state.topics.get(topic).is_some_and(|topic| topic.id.0 != id)
}

fn is_urgent(data: &PartitionData) -> bool {
    data.error_code != ErrorCode::None || data.diverging_epoch != EpochEndOffset::default()
}

/// The page as the answer; in a session without what did not change.
fn respond(call: &Call, state: &mut State, session_id: i32, items: &[Item], page: Page) -> FetchResponse {
    let mut response = FetchResponse {
        throttle_time_ms: call.throttle_ms,
        session_id,
        node_endpoints: page.endpoints,
        ..FetchResponse::default()
    };
    let mut session = state.sessions.get_mut(&session_id);
    let mut with_records = Vec::new();
    for (item, data) in items.iter().zip(page.partitions) {
        let has_records = data.records.as_ref().is_some_and(|records| !records.is_empty());
        let now = (data.high_watermark, data.log_start_offset);
        let known = session.as_mut().and_then(|session| {
            let same = |(other, _): &&mut (Item, Option<Told>)| {
                other.topic_id == item.topic_id
                    && other.topic == item.topic
                    && other.wanted.partition == item.wanted.partition
            };
            session.items.iter_mut().find(same)
        });
        if let Some((_, told)) = known {
            let changed = *told != Some(now) || has_records || is_urgent(&data);
            *told = (data.error_code == ErrorCode::None).then_some(now);
            if has_records {
                with_records.push((item.topic_id, item.topic.clone(), item.wanted.partition));
            }
            if !changed {
                continue;
            }
        }
        let topic =
            if call.version >= BY_ID { String::new() } else { item.topic.clone().unwrap_or_default() };
        match response.responses.last_mut() {
            Some(last) if last.topic == topic && last.topic_id == item.topic_id => last.partitions.push(data),
            _ => response.responses.push(FetchableTopicResponse {
                topic,
                topic_id: item.topic_id,
                partitions: vec![data],
                ..FetchableTopicResponse::default()
            }),
        }
    }
    if let Some(session) = session {
        // Who had records comes last the next time, so that nobody starves.
        session.items.sort_by_key(|(item, _)| {
            with_records.contains(&(item.topic_id, item.topic.clone(), item.wanted.partition))
        });
    }
    response
}

fn refused(error_code: ErrorCode) -> PartitionData {
    // What the log layer refuses has null here; what is refused before has the schema's default.
    let before = matches!(
        error_code,
        ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId | ErrorCode::TopicAuthorizationFailed
    );
    PartitionData {
        error_code,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        aborted_transactions: before.then(Vec::new),
        records: Some(Bytes::new()),
        ..PartitionData::default()
    }
}

fn partition(
    call: &Call,
    state: &mut State,
    topic: &str,
    wanted: &FetchPartition,
    request: &FetchRequest,
    bytes_so_far: usize,
) -> Result<PartitionData, ErrorCode> {
    call.check_topic(state, topic, Operation::Read)?;
    let partition = match call.version >= FROM_FOLLOWER {
        true => state.replicated(call.broker, topic, wanted.partition, wanted.current_leader_epoch)?,
        false => state.led(call.broker, topic, wanted.partition, wanted.current_leader_epoch)?,
    };
    if partition.leader == -1 {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let log = &partition.log;
    let mut data = PartitionData {
        high_watermark: log.high_watermark(),
        last_stable_offset: log.last_stable_offset(),
        log_start_offset: if call.version >= 5 { log.start_offset() } else { -1 },
        aborted_transactions: None,
        records: Some(Bytes::new()),
        ..PartitionData::default()
    };
    if wanted.last_fetched_epoch >= 0 {
        let (epoch, end_offset) = log.end_of_epoch(wanted.last_fetched_epoch);
        if end_offset == -1 {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        if end_offset < wanted.fetch_offset || epoch < wanted.last_fetched_epoch {
            data.diverging_epoch = EpochEndOffset { epoch, end_offset, ..EpochEndOffset::default() };
            return Ok(data);
        }
    }
    if !(log.start_offset()..=log.end_offset()).contains(&wanted.fetch_offset) {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let committed = request.isolation_level == 1;
    let end = if committed { log.last_stable_offset() } else { log.high_watermark() };
    let room = usize::try_from(request.max_bytes).unwrap_or(0).saturating_sub(bytes_so_far);
    let bytes_max = usize::try_from(wanted.partition_max_bytes).unwrap_or(0).min(room);
    // A read from the tier ends where the tier does, and nothing is read there for no bytes at all.
    let from_tier = wanted.fetch_offset < log.local_start_offset();
    let read_end = if from_tier { end.min(log.local_start_offset()) } else { end };
    let whole_first = bytes_so_far == 0 && !(from_tier && bytes_max == 0);
    data.records = Some(log.read(wanted.fetch_offset, read_end, bytes_max, whole_first));
    if committed {
        let aborted = log.aborted(wanted.fetch_offset, end).into_iter().map(|aborted| AbortedTransaction {
            producer_id: aborted.producer_id,
            first_offset: aborted.first_offset,
            ..AbortedTransaction::default()
        });
        data.aborted_transactions = Some(aborted.collect());
    }
    Ok(data)
}

/// Tells the current leader where the error says that the client knows another.
fn hint(
    call: &Call,
    state: &State,
    topic: &str,
    data: &mut PartitionData,
    endpoints: &mut Vec<NodeEndpoint>,
) {
    let stale = matches!(data.error_code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
    if !stale || call.version < LEADER_HINTS || call.error.is_some() {
        return;
    }
    let Some((leader_id, leader_epoch, broker)) = state.told_leader(call.broker, topic, data.partition_index)
    else {
        return;
    };
    data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch, ..LeaderIdAndEpoch::default() };
    let known = endpoints.iter().any(|endpoint| endpoint.node_id == leader_id);
    if let (Some(broker), false) = (broker, known) {
        let (host, port) = (broker.host, broker.port.into());
        endpoints.push(NodeEndpoint { node_id: leader_id, host, port, ..NodeEndpoint::default() });
    }
}

//! Range reads against scripted brokers, in virtual time. The real ones are in `tests/kafka_log.rs`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use strandline_meta::{ErrorCode, SendError};
use strandline_protocol::messages::fetch::{
    FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use strandline_protocol::{TopicId, Uuid};
use tokio::time::Instant;

use super::KafkaMetadataLogConfig;
use super::brokers::{Brokers, Fetcher, TopicState};
use super::config::FetchConnections;
use super::follow::Follower;
use super::read::{Shared, visit_ranges};
use crate::range::{MetadataRange, PartitionMarks, RangeError};
use crate::record::MetadataEventRecord;
use crate::subscription::{MetadataDelivery, MetadataEventQueueCapacity, Subscriptions};

const ID: TopicId = TopicId(Uuid([7; 16]));

/// What goes wrong with one Fetch.
enum Fault {
    /// A partition answers with this code.
    Code(i32, ErrorCode),
    /// The whole answer has this code.
    TopLevel(ErrorCode),
    /// The connection ends.
    Disconnect,
    /// A partition is led by another broker from now on; its old leader says so.
    Move(i32, i32),
    /// A partition is left out of the answer.
    LeaveOut(i32),
    /// The topic is deleted and created again.
    Recreate,
    /// Nothing.
    None,
}

#[derive(Clone)]
struct Partition {
    leader: Option<i32>,
    epoch: i32,
    log_start_offset: i64,
    /// Base offset, next offset, bytes.
    batches: Vec<(i64, i64, Vec<u8>)>,
}

impl Partition {
    fn end_offset(&self) -> i64 {
        self.batches.last().map_or(self.log_start_offset, |(_, next, _)| *next)
    }
}

struct Cluster {
    id: Option<TopicId>,
    partitions: Vec<Partition>,
    view: TopicState,
    /// One per Fetch, in their order.
    faults: VecDeque<Fault>,
    /// One per repair that finds a leader for what has none.
    leaders_found: VecDeque<i32>,
    refused: Option<ErrorCode>,
    journal: Vec<String>,
    throttle_ms: i32,
    /// Answers at once also where it has nothing, as no broker does.
    hasty: bool,
}

#[derive(Clone)]
struct Scripted(Arc<Mutex<Cluster>>);

struct Connection {
    cluster: Scripted,
    node_id: i32,
}

/// Partition after partition, all led by broker 1: each number is a batch with that many records, 0 an empty batch
/// that covers ten offsets.
fn cluster(partitions: &[&[usize]]) -> Scripted {
    let partitions: Vec<_> = partitions
        .iter()
        .map(|sizes| {
            let mut base_offset = 0;
            let batches = sizes.iter().map(|&size| {
                let (next, bytes) = batch(base_offset, size);
                let base = std::mem::replace(&mut base_offset, next);
                (base, next, bytes)
            });
            Partition { leader: Some(1), epoch: 0, log_start_offset: 0, batches: batches.collect() }
        })
        .collect();
    let mut cluster = Cluster {
        id: Some(ID),
        partitions,
        view: TopicState::Refused(ErrorCode::None),
        faults: VecDeque::new(),
        leaders_found: VecDeque::new(),
        refused: None,
        journal: Vec::new(),
        throttle_ms: 0,
        hasty: false,
    };
    cluster.refresh();
    Scripted(Arc::new(Mutex::new(cluster)))
}

fn batch(base_offset: i64, size: usize) -> (i64, Vec<u8>) {
    let mut builder = BatchBuilder::new(BatchOptions { base_offset, ..BatchOptions::default() });
    for _ in 0..size {
        builder.push(NewRecord { value: Some(b"event"), ..NewRecord::default() }).unwrap();
    }
    if size == 0 {
        builder.extend_to(base_offset + 10).unwrap();
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes).unwrap();
    (builder.next_offset(), bytes)
}

impl Scripted {
    fn with(self, change: impl FnOnce(&mut Cluster)) -> Self {
        change(&mut self.0.lock().unwrap());
        self
    }

    fn faults(self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.with(|cluster| cluster.faults = faults.into_iter().collect())
    }

    fn shared(&self, config: KafkaMetadataLogConfig) -> Arc<Shared<Self>> {
        Arc::new(Shared::new(self.clone(), "metadata".into(), Some(ID), config))
    }

    /// Reads these ranges; one line each, then what the brokers saw.
    async fn read_with(&self, config: KafkaMetadataLogConfig, ranges: &[(i32, i64, i64)]) -> String {
        let visitor = || |_: &MetadataEventRecord<'_>| ControlFlow::Continue(());
        let ranges = ranges
            .iter()
            .map(|&(partition, from, to)| (MetadataRange { partition, from, to }, visitor()))
            .collect();
        let visits = visit_ranges(&self.shared(config), ranges).await;
        let mut lines = Vec::new();
        for visit in visits {
            let outcome = &visit.outcome;
            let mut line = format!(
                "{}: {} records in {} batches, next {}",
                visit.range.partition, outcome.records, outcome.batches, outcome.next_offset
            );
            let mut cause: Option<&dyn std::error::Error> = visit.error.as_ref().map(|error| error as _);
            while let Some(error) = cause {
                line = format!("{line}\n   error: {error}");
                cause = error.source();
            }
            lines.push(line);
        }
        lines.append(&mut self.0.lock().unwrap().journal);
        lines.join("\n")
    }

    async fn read(&self, ranges: &[(i32, i64, i64)]) -> String {
        self.read_with(config(), ranges).await
    }
}

fn config() -> KafkaMetadataLogConfig {
    let connections_per_leader = std::num::NonZeroUsize::MIN;
    KafkaMetadataLogConfig { connections_per_leader, ..KafkaMetadataLogConfig::default() }
}

impl Cluster {
    fn refresh(&mut self) {
        if let Some(code) = self.refused {
            self.view = TopicState::Refused(code);
            return;
        }
        let leaders = self
            .partitions
            .iter()
            .map(|partition| partition.leader.map(|leader| (leader, Some(partition.epoch))))
            .collect();
        self.view = TopicState::Known { id: self.id, leaders };
    }

    fn part(&mut self, node_id: i32, partition: i32, offset: i64, max_bytes: usize) -> PartitionData {
        let log = &self.partitions[partition as usize];
        let mut data = PartitionData { partition_index: partition, ..PartitionData::default() };
        if log.leader != Some(node_id) {
            data.error_code = ErrorCode::NotLeaderOrFollower;
        } else if offset < log.log_start_offset || offset > log.end_offset() {
            data.error_code = ErrorCode::OffsetOutOfRange;
        } else {
            let first = log.batches.partition_point(|(_, next, _)| *next <= offset);
            let whole = log.batches.get(first).map_or(0, |(_, _, bytes)| bytes.len());
            let mut bytes: Vec<u8> =
                log.batches[first..].iter().flat_map(|(_, _, bytes)| bytes).copied().collect();
            // As a broker does: the first batch whole, all else as it fits.
            bytes.truncate(max_bytes.max(whole));
            data.records = Some(Bytes::from(bytes));
        }
        data
    }
}

impl Brokers for Scripted {
    type Fetcher = Connection;

    fn topic(&self) -> TopicState {
        self.0.lock().unwrap().view.clone()
    }

    async fn repair(&self, _deadline: Instant) -> Result<(), SendError> {
        let mut cluster = self.0.lock().unwrap();
        cluster.journal.push("repair".to_owned());
        if let Some(leader) = cluster.leaders_found.pop_front() {
            cluster.partitions.iter_mut().for_each(|partition| partition.leader = Some(leader));
        }
        cluster.refresh();
        Ok(())
    }

    async fn dial(&self, node_id: i32, _deadline: Instant) -> Result<Connection, SendError> {
        self.0.lock().unwrap().journal.push(format!("dial {node_id}"));
        Ok(Connection { cluster: self.clone(), node_id })
    }

    fn learn_leaders(&self, _response: &FetchResponse) -> bool {
        false
    }

    fn stands(&self, _node_id: i32, _fetcher: &Connection) -> bool {
        true
    }

    async fn epoch_end(
        &self,
        _partition: i32,
        _leader_epoch: i32,
        _deadline: Instant,
    ) -> Result<Option<(i32, i64)>, SendError> {
        Ok(None)
    }

    async fn marks(&self, partitions: &[i32], _deadline: Instant) -> Vec<Result<PartitionMarks, RangeError>> {
        let cluster = self.0.lock().unwrap();
        let marks = |&partition: &i32| {
            let log = &cluster.partitions[partition as usize];
            let (log_start_offset, high_watermark) = (log.log_start_offset, log.end_offset());
            Ok(PartitionMarks { partition, log_start_offset, high_watermark })
        };
        partitions.iter().map(marks).collect()
    }
}

impl Fetcher for Connection {
    async fn fetch(&self, request: FetchRequest, _deadline: Instant) -> Result<FetchResponse, SendError> {
        let answer = self.answer(&request);
        let hasty = self.cluster.0.lock().unwrap().hasty;
        if !hasty
            && answer.as_ref().is_ok_and(|answer| {
                answer.responses[0]
                    .partitions
                    .iter()
                    .all(|part| part.records.as_ref().is_none_or(Bytes::is_empty))
            })
        {
            // The long poll of a broker that has nothing.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        answer
    }
}

impl Connection {
    fn answer(&self, request: &FetchRequest) -> Result<FetchResponse, SendError> {
        let mut cluster = self.cluster.0.lock().unwrap();
        let asked = &request.topics[0];
        let wanted: Vec<_> =
            asked.partitions.iter().map(|part| format!("{}@{}", part.partition, part.fetch_offset)).collect();
        cluster.journal.push(format!("fetch from {}: {}", self.node_id, wanted.join(" ")));
        let mut left_out = None;
        let mut code = None;
        let mut error_code = ErrorCode::None;
        match cluster.faults.pop_front().unwrap_or(Fault::None) {
            Fault::None => {}
            Fault::Code(partition, error) => code = Some((partition, error)),
            Fault::TopLevel(error) => error_code = error,
            Fault::Disconnect => return Err(SendError::LeftOut { peer: "a broker that hung up".to_owned() }),
            Fault::LeaveOut(partition) => left_out = Some(partition),
            Fault::Move(partition, to) => {
                let log = &mut cluster.partitions[partition as usize];
                (log.leader, log.epoch) = (Some(to), log.epoch + 1);
            }
            Fault::Recreate => cluster.id = Some(TopicId(Uuid([8; 16]))),
        }
        let known = cluster.id.map(|id| id.0) == Some(asked.topic_id);
        let mut room = request.max_bytes as usize;
        let mut partitions = Vec::new();
        for part in asked.partitions.iter().filter(|part| left_out != Some(part.partition)) {
            let max_bytes = (part.partition_max_bytes as usize).min(room);
            let mut data = if room == 0 {
                PartitionData { partition_index: part.partition, ..PartitionData::default() }
            } else {
                cluster.part(self.node_id, part.partition, part.fetch_offset, max_bytes)
            };
            if !known {
                (data.error_code, data.records) = (ErrorCode::UnknownTopicId, None);
            }
            if let Some((_, error)) = code.filter(|(partition, _)| *partition == part.partition) {
                (data.error_code, data.records) = (error, None);
            }
            room = room.saturating_sub(data.records.as_ref().map_or(0, Bytes::len));
            partitions.push(data);
        }
        let topic = FetchableTopicResponse { topic_id: asked.topic_id, partitions, ..Default::default() };
        let throttle_time_ms = cluster.throttle_ms;
        Ok(FetchResponse { throttle_time_ms, error_code, responses: vec![topic], ..Default::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn pages_follow_each_other_by_batch_ends() {
    // 80 bytes hold one batch of one record (70 bytes) and the beginning of the next.
    let cluster = cluster(&[&[1, 1, 3, 1]]);
    let config = KafkaMetadataLogConfig { fetch_max_bytes: 80, ..config() };
    insta::assert_snapshot!(cluster.read_with(config, &[(0, 0, 6)]).await, @r"
    0: 6 records in 4 batches, next 6
    dial 1
    fetch from 1: 0@0
    fetch from 1: 0@1
    fetch from 1: 0@2
    fetch from 1: 0@5
    ");
}

#[tokio::test(start_paused = true)]
async fn offsets_that_fall_within_an_answer_are_an_error_and_no_gap() {
    let falling = cluster(&[&[1, 1, 1]]).with(|cluster| {
        let batches = &mut cluster.partitions[0].batches;
        let last = std::mem::take(&mut batches[2].2);
        batches[2].2 = std::mem::replace(&mut batches[1].2, last);
    });
    insta::assert_snapshot!(falling.read(&[(0, 0, 4)]).await, @r"
    0: 2 records in 2 batches, next 3
       error: metadata partition 0, from broker 1: a batch at offset 1 follows one that ends at 3
    dial 1
    fetch from 1: 0@0
    ");
}

#[tokio::test(start_paused = true)]
async fn many_partitions_share_a_request_and_the_one_without_room_comes_first_next_time() {
    let cluster = cluster(&[&[1, 1], &[1, 1], &[1, 1]]);
    let config = KafkaMetadataLogConfig { answer_max_bytes: 150, ..config() };
    insta::assert_snapshot!(cluster.read_with(config, &[(0, 0, 2), (1, 0, 2), (2, 0, 2)]).await, @r"
    0: 2 records in 2 batches, next 2
    1: 2 records in 2 batches, next 2
    2: 2 records in 2 batches, next 2
    dial 1
    fetch from 1: 0@0 1@0 2@0
    fetch from 1: 2@0 1@1
    ");
}

#[tokio::test(start_paused = true)]
async fn empty_batches_and_gaps_move_the_position_on() {
    let cluster = cluster(&[&[1, 0, 0, 1]]);
    let config = KafkaMetadataLogConfig { fetch_max_bytes: 1, ..config() };
    insta::assert_snapshot!(cluster.read_with(config, &[(0, 0, 22)]).await, @r"
    0: 2 records in 4 batches, next 22
    dial 1
    fetch from 1: 0@0
    fetch from 1: 0@1
    fetch from 1: 0@11
    fetch from 1: 0@21
    ");
}

#[tokio::test(start_paused = true)]
async fn a_range_may_begin_and_end_inside_a_batch() {
    let cluster = cluster(&[&[5, 5]]);
    insta::assert_snapshot!(cluster.read(&[(0, 3, 7)]).await, @r"
    0: 4 records in 2 batches, next 7
    dial 1
    fetch from 1: 0@3
    ");
    assert_eq!(cluster.read(&[(0, 4, 4)]).await, "0: 0 records in 0 batches, next 4", "nobody is asked");
}

#[tokio::test(start_paused = true)]
async fn two_ranges_of_one_partition_are_read_apart() {
    let cluster = cluster(&[&[5, 5]]);
    let shown = cluster.read(&[(0, 0, 3), (0, 7, 9)]).await;
    let (answers, journal): (Vec<_>, Vec<_>) = shown.lines().partition(|line| line.starts_with("0: "));
    assert_eq!(answers, ["0: 3 records in 1 batches, next 3", "0: 2 records in 1 batches, next 9"]);
    assert!(journal.contains(&"fetch from 1: 0@0") && journal.contains(&"fetch from 1: 0@7"), "{journal:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_moves_is_followed() {
    let cluster = cluster(&[&[1], &[1]]).faults([Fault::Move(0, 2)]);
    insta::assert_snapshot!(cluster.read(&[(0, 0, 1), (1, 0, 1)]).await, @r"
    0: 1 records in 1 batches, next 1
    1: 1 records in 1 batches, next 1
    dial 1
    fetch from 1: 0@0 1@0
    repair
    dial 2
    fetch from 2: 0@0
    ");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_is_dialled_anew_where_the_position_stands() {
    let cluster = cluster(&[&[1, 1]]).faults([Fault::None, Fault::Disconnect]);
    let config = KafkaMetadataLogConfig { fetch_max_bytes: 1, ..config() };
    insta::assert_snapshot!(cluster.read_with(config, &[(0, 0, 2)]).await, @r"
    0: 2 records in 2 batches, next 2
    dial 1
    fetch from 1: 0@0
    fetch from 1: 0@1
    repair
    dial 1
    fetch from 1: 0@1
    ");
}

#[tokio::test(start_paused = true)]
async fn codes_that_pass_are_waited_out() {
    let cluster = cluster(&[&[1]]).faults([
        Fault::Code(0, ErrorCode::OffsetNotAvailable),
        Fault::Code(0, ErrorCode::KafkaStorageError),
        Fault::Code(0, ErrorCode::OffsetOutOfRange),
        Fault::LeaveOut(0),
        Fault::TopLevel(ErrorCode::UnknownTopicId),
    ]);
    insta::assert_snapshot!(cluster.read(&[(0, 0, 1)]).await, @r"
    0: 1 records in 1 batches, next 1
    dial 1
    fetch from 1: 0@0
    fetch from 1: 0@0
    repair
    dial 1
    fetch from 1: 0@0
    repair
    dial 1
    fetch from 1: 0@0
    fetch from 1: 0@0
    repair
    dial 1
    fetch from 1: 0@0
    ");
}

#[tokio::test(start_paused = true)]
async fn an_offset_outside_the_log_is_an_error_with_its_bounds() {
    let cluster = cluster(&[&[1, 1, 1], &[1]]).with(|cluster| cluster.partitions[0].log_start_offset = 2);
    insta::assert_snapshot!(cluster.read(&[(0, 0, 3), (1, 0, 1)]).await, @r"
    0: 0 records in 0 batches, next 0
       error: offset 0 of metadata partition 0 is outside its log, which holds 2..3
    1: 1 records in 1 batches, next 1
    dial 1
    fetch from 1: 0@0 1@0
    ");
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_anew_is_never_read_as_the_old_one() {
    let cluster = cluster(&[&[1, 1]]).faults([Fault::None, Fault::Recreate]);
    let config = KafkaMetadataLogConfig { fetch_max_bytes: 1, ..config() };
    insta::assert_snapshot!(cluster.read_with(config, &[(0, 0, 2)]).await, @r"
    0: 1 records in 1 batches, next 1
       error: topic metadata is another one now: its id was BwcHBwcHBwcHBwcHBwcHBw and is CAgICAgICAgICAgICAgICA
    dial 1
    fetch from 1: 0@0
    fetch from 1: 0@1
    repair
    ");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_and_a_missing_right_and_partition_are_said_plainly() {
    let moved = || cluster(&[&[1]]).faults([Fault::Move(0, 2)]);
    let shown = [
        moved()
            .with(|cluster| cluster.refused = Some(ErrorCode::UnknownTopicOrPartition))
            .read(&[(0, 0, 1)])
            .await,
        moved()
            .with(|cluster| cluster.refused = Some(ErrorCode::TopicAuthorizationFailed))
            .read(&[(0, 0, 1)])
            .await,
        cluster(&[&[1]])
            .faults([Fault::Code(0, ErrorCode::TopicAuthorizationFailed)])
            .read(&[(0, 0, 1)])
            .await,
        cluster(&[&[1]]).faults([Fault::Code(0, ErrorCode::UnknownServerError)]).read(&[(0, 0, 1)]).await,
        cluster(&[&[1]]).read(&[(5, 0, 1), (-1, 0, 1)]).await,
    ];
    insta::assert_snapshot!(shown.join("\n--\n"), @r"
    0: 0 records in 0 batches, next 0
       error: topic metadata does not exist any more
    dial 1
    fetch from 1: 0@0
    repair
    repair
    --
    0: 0 records in 0 batches, next 0
       error: no right to read metadata partition 0: DESCRIBE on the metadata topic is missing
    dial 1
    fetch from 1: 0@0
    repair
    --
    0: 0 records in 0 batches, next 0
       error: no right to read metadata partition 0: READ on the metadata topic is missing
    dial 1
    fetch from 1: 0@0
    --
    0: 0 records in 0 batches, next 0
       error: metadata partition 0 cannot be read
       error: broker 1 answered UNKNOWN_SERVER_ERROR
    dial 1
    fetch from 1: 0@0
    --
    5: 0 records in 0 batches, next 0
       error: metadata partition 5 is not here
    -1: 0 records in 0 batches, next 0
       error: metadata partition -1 is not here
    repair
    ");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_batch_ends_its_partition_and_no_other() {
    let cluster = cluster(&[&[1, 1, 1], &[1]]).with(|cluster| cluster.partitions[0].batches[1].2[65] ^= 1);
    insta::assert_snapshot!(cluster.read(&[(0, 0, 3), (1, 0, 1)]).await, @r"
    0: 1 records in 1 batches, next 1
       error: metadata partition 0, from broker 1
       error: the batch at offset 1, byte 73, is corrupt
       error: the stored CRC-32C is 6ebc68fc, that of the bytes is 278015db
    1: 1 records in 1 batches, next 1
    dial 1
    fetch from 1: 0@0 1@0
    ");
}

#[tokio::test(start_paused = true)]
async fn a_range_that_does_not_move_is_an_error_after_the_stall_time() {
    let began = Instant::now();
    let shown = cluster(&[&[1], &[1]]).read(&[(0, 0, 5), (1, 0, 1)]).await;
    assert!(began.elapsed() < Duration::from_secs(62));
    let answers: Vec<_> = shown.lines().filter(|line| !line.starts_with("fetch")).collect();
    insta::assert_snapshot!(answers.join("\n"), @r"
    0: 1 records in 1 batches, next 1
       error: metadata partition 0 has not moved from offset 1 for 60.0s
    1: 1 records in 1 batches, next 1
    dial 1
    ");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_nothing_and_says_so_at_once_is_asked_with_pauses() {
    let hasty = cluster(&[&[1]]).with(|cluster| cluster.hasty = true);
    let shown = hasty.read(&[(0, 0, 5)]).await;
    let fetches = shown.lines().filter(|line| line.starts_with("fetch")).count();
    assert!((5..200).contains(&fetches), "{fetches} requests in the stall time");
    assert!(shown.contains("has not moved from offset 1 for 6"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_nothing_and_says_so_at_once_is_followed_with_pauses() {
    for fetch_connections in [FetchConnections::PerPartition, FetchConnections::PerLeader] {
        let hasty = cluster(&[&[1]]).with(|cluster| cluster.hasty = true);
        let shared = hasty.shared(KafkaMetadataLogConfig { fetch_connections, ..config() });
        let subscriptions = Subscriptions::default();
        let follower = Arc::new(Follower::new(shared, 1));
        let mut events = subscriptions.open(follower, MetadataEventQueueCapacity::default());
        events.assignment().add(0, 0).unwrap();
        assert!(matches!(events.next().await, Some(MetadataDelivery::Record { .. })));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let fetches = hasty.0.lock().unwrap().journal.iter().filter(|line| line.starts_with("fetch")).count();
        assert!((20..80).contains(&fetches), "{fetches} requests within a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_without_a_leader_is_waited_for_and_named_at_the_deadline() {
    let orphaned = || {
        cluster(&[&[1]]).with(|cluster| {
            cluster.partitions[0].leader = None;
            cluster.refresh();
        })
    };
    let found = orphaned().with(|cluster| cluster.leaders_found = [1].into());
    insta::assert_snapshot!(found.read(&[(0, 0, 1)]).await, @r"
    0: 1 records in 1 batches, next 1
    repair
    dial 1
    fetch from 1: 0@0
    ");
    let config = KafkaMetadataLogConfig { read_timeout: Duration::from_secs(5), ..config() };
    let shown = orphaned().read_with(config, &[(0, 0, 1)]).await;
    let answers: Vec<_> = shown.lines().filter(|line| *line != "repair").collect();
    insta::assert_snapshot!(answers.join("\n"), @r"
    0: 0 records in 0 batches, next 0
       error: metadata partition 0 was read up to offset 0 within 5.0s
       error: partition metadata:0 has no leader
    ");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_reader_waits_before_it_asks_again() {
    let began = Instant::now();
    let cluster = cluster(&[&[1, 1, 1]]).with(|cluster| cluster.throttle_ms = 5_000);
    let config = KafkaMetadataLogConfig { fetch_max_bytes: 1, ..config() };
    let shown = cluster.read_with(config, &[(0, 0, 3)]).await;
    assert!(shown.starts_with("0: 3 records in 3 batches, next 3"), "{shown}");
    assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_throttle_of_hours_with_nothing_to_read_is_a_stall_and_named() {
    let began = Instant::now();
    let cluster = cluster(&[&[1]]).with(|cluster| cluster.throttle_ms = 7_200_000);
    insta::assert_snapshot!(cluster.read(&[(0, 1, 2)]).await, @r"
    0: 0 records in 0 batches, next 1
       error: metadata partition 0 has not moved from offset 1 for 60.0s
       error: broker 1 throttles this client: it asks for a pause of 7200s
    dial 1
    fetch from 1: 0@1
    ");
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
    // The last page is there: nothing is left to wait for.
    assert!(cluster.read(&[(0, 0, 1)]).await.starts_with("0: 1 records"));
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_refuses_an_offset_of_its_log_again_and_again_is_an_error_after_a_few_tries() {
    for code in [ErrorCode::OffsetOutOfRange, ErrorCode::CorruptMessage] {
        let began = Instant::now();
        let cluster = cluster(&[&[1, 1]]).faults((0..100).map(|_| Fault::Code(0, code)));
        let shown = cluster.read(&[(0, 1, 2)]).await;
        let fetches = shown.lines().filter(|line| line.starts_with("fetch")).count();
        assert!((3..=8).contains(&fetches) && began.elapsed() < Duration::from_secs(15), "{shown}");
        let log = if code == ErrorCode::OffsetOutOfRange { ", although its log holds 0..2" } else { "" };
        let error = format!("metadata partition 0 cannot be read at offset 1{log}: 6 tries in a row failed");
        assert!(shown.contains(&error) && shown.contains(&format!("broker 1 answered {code}")), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_visitor_that_has_enough_ends_its_own_range() {
    let cluster = cluster(&[&[3], &[3]]);
    let visitor = |stop_at: i64| {
        move |record: &MetadataEventRecord<'_>| {
            if record.offset == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    };
    let range = |partition| MetadataRange { partition, from: 0, to: 3 };
    let ranges = vec![(range(0), visitor(1)), (range(1), visitor(9))];
    let visits = visit_ranges(&cluster.shared(config()), ranges).await;
    let reached: Vec<_> =
        visits.iter().map(|visit| (visit.outcome.stopped, visit.outcome.next_offset)).collect();
    assert_eq!(reached, [(true, 2), (false, 3)]);
}

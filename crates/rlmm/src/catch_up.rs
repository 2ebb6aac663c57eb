//! Reading what was in the log before a user partition is served: once for all that begin together, beside the running
//! reading of the same metadata partition, which never waits for it.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use strandline_log::{
    LiveMetadataEventLog, MetadataEventRecord, MetadataEventVisitor, MetadataRange, PartitionMarks,
    RangeError,
};
use strandline_tier::RecordValue;

use crate::backoff::Backoff;
use crate::metadata_partition::{
    CatchUpRound, MetadataPartition, PassedOver, RecordMark, SNAPSHOT_IN_TOPIC, not_an_event,
};
use crate::partition_map::PartitionMap;
use crate::snapshot::Discarded;
use crate::topic_based::Shared;
use crate::user_partition::{Effect, State, UserPartition};

/// So often it is looked whether somebody still wants what is read.
const RECORDS_PER_LOOK: u64 = 4096;

/// What is read of a metadata partition for the user partitions of one round.
#[derive(Debug)]
pub(crate) struct CatchUp {
    partition: i32,
    pub(crate) members: PartitionMap<CaughtUp>,
    /// A record that has to come, where a snapshot says what was read last.
    expected: Option<RecordMark>,
    /// Another record came in its place.
    differs: Option<i64>,
    pub(crate) passed_over: PassedOver,
    /// The records read.
    pub(crate) records: u64,
    /// The offsets read.
    pub(crate) read: Option<Range<i64>>,
    last_offset: Option<i64>,
    /// The value of that record: its checksum is wanted of the last one alone.
    last_value: Vec<u8>,
}

/// A user partition on its way.
#[derive(Debug)]
pub(crate) struct CaughtUp {
    pub(crate) user: Arc<UserPartition>,
    /// `None` after DELETE_PARTITION_FINISHED: the partition is gone.
    pub(crate) state: Option<State>,
    /// The first offset that the state does not know.
    next_offset: i64,
}

impl CatchUp {
    /// From the start of the log, for the users of a round.
    fn new(partition: i32, round: CatchUpRound, log_start_offset: i64) -> Self {
        let mut members = PartitionMap::default();
        for user in round.users {
            let (id, state) = (user.id.clone(), Some(State::empty()));
            members.insert(id, CaughtUp { user, state, next_offset: log_start_offset });
        }
        Self {
            partition,
            members,
            expected: None,
            differs: None,
            passed_over: round.counted,
            records: 0,
            read: None,
            last_offset: None,
            last_value: Vec::new(),
        }
    }

    /// All over again, from the start of the log and without a snapshot.
    fn restart(&mut self, log_start_offset: i64) {
        for (_, caught_up) in self.members.iter_mut() {
            (caught_up.state, caught_up.next_offset) = (Some(State::empty()), log_start_offset);
        }
        (self.expected, self.differs, self.last_offset, self.read) = (None, None, None, None);
        self.passed_over = PassedOver { counted: self.passed_over.counted.clone(), ..PassedOver::default() };
        self.records = 0;
    }

    /// Where the reading has to begin.
    fn from(&self) -> Option<i64> {
        let members = self.members.values().map(|member| member.next_offset);
        members.chain(self.expected.map(|mark| mark.offset)).min()
    }

    /// The offset of the record that had to come, if another one came, or none although everything below `end` was read.
    fn other_record(&self, end: i64) -> Option<i64> {
        let missing = || self.expected.filter(|expected| expected.offset < end && self.is_wanted());
        self.differs.or_else(|| missing().map(|expected| expected.offset))
    }

    /// The last record that was read.
    pub(crate) fn last_record(&self) -> Option<RecordMark> {
        self.last_offset.map(|offset| RecordMark::new(offset, Some(&self.last_value)))
    }

    fn is_wanted(&self) -> bool {
        self.members.values().any(|member| !member.user.is_gone())
    }
}

impl MetadataEventVisitor for CatchUp {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        let offset = record.offset;
        if let Some(expected) = self.expected.take_if(|expected| expected.offset <= offset)
            && expected != RecordMark::new(offset, record.value)
        {
            self.differs = Some(expected.offset);
            return ControlFlow::Break(());
        }
        self.records += 1;
        self.last_offset = Some(offset);
        self.last_value.clear();
        self.last_value.extend_from_slice(record.value.unwrap_or_default());
        if record.control {
            return ControlFlow::Continue(());
        }
        let event = match RecordValue::from_value(record.value) {
            RecordValue::Event(event) => event,
            other => {
                if !self.passed_over.is_counted(offset) {
                    self.passed_over.report(self.partition, offset, not_an_event(&other));
                }
                return ControlFlow::Continue(());
            }
        };
        let refusal = match event.topic_id_partition() {
            None if self.passed_over.is_counted(offset) => None,
            None => Some(SNAPSHOT_IN_TOPIC.to_owned()),
            Some(id) => match self.members.get_mut(id).filter(|member| member.next_offset <= offset) {
                None => None,
                Some(member) => match &mut member.state {
                    None => Some("an event of a partition whose deletion was finished".to_owned()),
                    Some(state) => {
                        let effect = state.apply(offset, &event);
                        if effect == Effect::PartitionDeleted {
                            member.state = None;
                        }
                        effect.refusal().map(|error| error.to_string())
                    }
                },
            },
        };
        if let Some(reason) = refusal {
            self.passed_over.report(self.partition, offset, reason);
        }
        match self.records.is_multiple_of(RECORDS_PER_LOOK) && !self.is_wanted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Serves everybody who waits for a catch-up in this metadata partition, round after round, until nobody does.
///
/// Where the metadata partition is not read yet, `marks` (or an answer of the log) say where its running reading begins:
/// at the end, so that writes are read back at once, while the catch-up reads what lies before.
pub(crate) async fn run<L: LiveMetadataEventLog>(
    shared: Arc<Shared<L>>,
    partition: Arc<MetadataPartition>,
    mut marks: Option<PartitionMarks>,
) {
    let mut backoff = Backoff::new(&shared.config);
    loop {
        let round = {
            let mut reading = partition.lock();
            let round = reading.next_round();
            if round.is_none() && (reading.position.is_some() || reading.members.is_empty()) {
                reading.catching_up = false;
                return;
            }
            round
        };
        let done = match round {
            None => begin(&shared, &partition, marks.take()).await,
            Some(round) => catch_up(&shared, &partition, round, &mut backoff).await,
        };
        match done {
            Ok(()) => {
                backoff.reset();
                partition.lock().hindrance = None;
            }
            Err(error) => {
                let error = Arc::new(error);
                tracing::warn!(partition = partition.partition, error = ?error, "the metadata topic cannot be read");
                partition.lock().hindrance = Some(error);
                backoff.wait().await;
            }
        }
    }
}

/// Begins the running reading at the end of the log.
async fn begin<L: LiveMetadataEventLog>(
    shared: &Shared<L>,
    metadata_partition: &MetadataPartition,
    marks: Option<PartitionMarks>,
) -> Result<(), RangeError> {
    let partition = metadata_partition.partition;
    let marks = match marks {
        Some(marks) => marks,
        None => {
            let mut marks = shared.log.high_water_marks().await;
            let index = usize::try_from(partition).unwrap_or(usize::MAX);
            match index < marks.len() {
                true => marks.swap_remove(index)?,
                false => return Err(RangeError::NoSuchPartition { partition }),
            }
        }
    };
    let mut reading = metadata_partition.lock();
    if reading.begin(marks.log_start_offset, marks.high_watermark) {
        shared.follow(&mut reading, partition, marks.high_watermark);
    }
    Ok(())
}

/// One round. An error leaves its members where they are for the next one.
async fn catch_up<L: LiveMetadataEventLog>(
    shared: &Arc<Shared<L>>,
    metadata_partition: &Arc<MetadataPartition>,
    round: CatchUpRound,
    backoff: &mut Backoff,
) -> Result<(), RangeError> {
    let partition = metadata_partition.partition;
    let mut end = round.end;
    let mut log_start_offset = metadata_partition.lock().log_start_offset;
    let mut catch_up = CatchUp::new(partition, round, log_start_offset);
    load_snapshot(shared, metadata_partition, &mut catch_up, log_start_offset, end).await;
    let Some(mut from) = catch_up.from() else { return Ok(()) };
    let mut begun_at = from;
    loop {
        if from < end {
            let visit = shared.log.visit_range(MetadataRange { partition, from, to: end }, catch_up).await;
            catch_up = visit.visitor;
            from = visit.outcome.next_offset;
            let restart_at = match visit.error {
                // Nothing below the log's start is there for a broker that starts now, so it is not here either.
                Some(RangeError::OffsetOutOfRange { log_start_offset, end_offset, .. })
                    if end_offset >= end =>
                {
                    Some((log_start_offset, Discarded::BehindLogStart { log_start_offset }))
                }
                Some(error @ (RangeError::OffsetOutOfRange { .. } | RangeError::Truncated { .. })) => {
                    // The log ends below what the running reading has read: it begins anew, and this with it.
                    shared.read_anew(metadata_partition, &error);
                    return Ok(());
                }
                Some(error) => {
                    // What was read stays; the reading goes on from there.
                    let error = Arc::new(error);
                    tracing::warn!(partition, error = ?error, "the metadata topic cannot be read");
                    metadata_partition.lock().hindrance = Some(error);
                    backoff.wait().await;
                    continue;
                }
                None => {
                    let other = catch_up.other_record(end);
                    other.map(|offset| (log_start_offset, Discarded::RecordDiffers { offset }))
                }
            };
            backoff.reset();
            if let Some((start, reason)) = restart_at {
                discarded(metadata_partition, &reason);
                log_start_offset = start;
                metadata_partition.lock().log_start_offset = start;
                catch_up.restart(start);
                (from, begun_at) = (start, start);
                continue;
            }
        }
        catch_up.read = Some(begun_at.min(end)..end);
        let (again, deleted) = metadata_partition.lock().finish_round(partition, &mut catch_up, end);
        deleted.iter().for_each(|user| shared.forget(user));
        match again {
            Some(later) => (from, begun_at, end) = (end, end, later),
            None => return Ok(()),
        }
    }
}

/// Puts what the snapshot of the metadata partition knows into the catch-up, if it fits the log.
async fn load_snapshot<L: LiveMetadataEventLog>(
    shared: &Arc<Shared<L>>,
    metadata_partition: &MetadataPartition,
    catch_up: &mut CatchUp,
    log_start_offset: i64,
    end: i64,
) {
    let Some(snapshots) = shared.snapshots.load_full() else { return };
    let (partition, mut wanted) = (metadata_partition.partition, PartitionMap::default());
    catch_up.members.iter_mut().for_each(|(id, _)| wanted.insert(id.clone(), ()));
    let loaded = tokio::task::spawn_blocking(move || snapshots.load(partition, &wanted)).await;
    let loaded = match loaded {
        Ok(loaded) => loaded.and_then(|loaded| match loaded {
            Some(loaded) => loaded.check(log_start_offset, end).map(Some),
            None => Ok(None),
        }),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => return,
    };
    match loaded {
        Ok(None) => {}
        Ok(Some(loaded)) => {
            if let Some(reason) = &loaded.cut {
                tracing::info!(partition, %reason, "the end of a snapshot is not used: it was being written");
            }
            // Where the log's start has passed the last record there is nothing left to know it by.
            catch_up.expected = loaded.last_record.filter(|mark| mark.offset >= log_start_offset);
            for user in loaded.users {
                if let Some(member) = catch_up.members.get_mut(&user.id) {
                    (member.state, member.next_offset) = (Some(user.state), user.next_offset);
                }
            }
            metadata_partition.lock().snapshot_discarded = None;
        }
        Err(reason) => discarded(metadata_partition, &reason),
    }
}

fn discarded(metadata_partition: &MetadataPartition, reason: &Discarded) {
    let partition = metadata_partition.partition;
    tracing::warn!(partition, %reason, "a snapshot is not used, and its metadata partition read from the start");
    metadata_partition.lock().snapshot_discarded = Some(reason.to_string());
}

//! Random lives of segments, with everything that a writer may write: overlaps, repetitions, updates that readers drop.

use std::borrow::Cow;

use strandline_testkit::random::Random;
use strandline_tier::{
    EpochEntry, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentUpdate, RemoteLogSegmentIndex,
    RemoteLogSegmentState, RemotePartitionDeleteState, Uuid,
};

use strandline_rlmm::TopicIdPartition;

/// The events of one user partition, one after the other.
pub(crate) struct History {
    pub(crate) about: TopicIdPartition,
    random: Random,
    /// Every event that it gave out, as readers apply them.
    index: RemoteLogSegmentIndex,
    /// Every segment's announcement, those of deleted ones included.
    announced: Vec<RawSegmentMetadata<'static>>,
    epoch: i32,
    now_ms: i64,
}

impl History {
    pub(crate) fn new(about: TopicIdPartition, seed: u64) -> Self {
        let mut index = RemoteLogSegmentIndex::new();
        index.mark_initialised();
        let (announced, now_ms) = (Vec::new(), 1_700_000_000_000);
        Self { about, random: Random::new(seed), index, announced, epoch: 0, now_ms }
    }

    /// An event that no reader ends at, and that a manager writes.
    pub(crate) fn next(&mut self) -> RawEvent<'static> {
        self.now_ms += 1 + self.below(1000);
        let event = match (self.below(20), self.announced.is_empty()) {
            (0..7, _) | (_, true) => RawEvent::SegmentMetadata(self.announcement()),
            (7, _) => {
                let again = self.any_announced().clone();
                RawEvent::SegmentMetadata(RawSegmentMetadata { event_timestamp_ms: self.now_ms, ..again })
            }
            (8, _) => RawEvent::SegmentMetadataUpdate(self.update(self.announced[0].segment_id, 1)),
            (9, _) => {
                // Of a segment that nobody knows.
                let (id, state) = (self.random.uuid(), self.any_state());
                RawEvent::SegmentMetadataUpdate(self.update(id, state))
            }
            (10..13, _) => {
                let (id, state) = (self.any_announced().segment_id, self.any_state());
                RawEvent::SegmentMetadataUpdate(self.update(id, state))
            }
            _ => {
                let id = self.any_announced().segment_id;
                let state = self.index.segment(id).map(|segment| segment.state().id() + 1);
                RawEvent::SegmentMetadataUpdate(self.update(id, state.unwrap_or(3)))
            }
        };
        // What readers drop is dropped here.
        let _dropped = match &event {
            RawEvent::SegmentMetadata(event) => self.index.apply_segment_metadata(event),
            RawEvent::SegmentMetadataUpdate(event) => self.index.apply_segment_update(event),
            other => unreachable!("{other:?}"),
        };
        event
    }

    /// The deletion of the whole partition, which stays harmless up to its last step.
    pub(crate) fn partition_delete(
        &mut self,
        state: RemotePartitionDeleteState,
    ) -> RawPartitionDelete<'static> {
        self.now_ms += 1;
        RawPartitionDelete {
            topic_id_partition: self.about.clone(),
            broker_id: 7,
            event_timestamp_ms: self.now_ms,
            state_id: state.id(),
        }
    }

    fn below(&mut self, bound: u64) -> i64 {
        i64::try_from(self.random.next() % bound).expect("bounds are small")
    }

    fn any_announced(&mut self) -> &RawSegmentMetadata<'static> {
        let which = self.random.next() % self.announced.len() as u64;
        &self.announced[usize::try_from(which).expect("an index")]
    }

    /// Any but COPY_SEGMENT_STARTED.
    fn any_state(&mut self) -> i8 {
        i8::try_from(1 + self.below(3)).expect("1 to 3")
    }

    fn announcement(&mut self) -> RawSegmentMetadata<'static> {
        let last = self.announced.last().map_or(-1, |segment| segment.end_offset);
        // Mostly behind the last one; now and then over what is there, as after an unclean election.
        let back = if self.below(4) == 0 { self.below(150) } else { 0 };
        let start_offset = (last + 1 - back).max(0);
        let end_offset = start_offset + self.below(100);
        if self.below(8) == 0 {
            self.epoch += 1;
        }
        let mut segment_leader_epochs = vec![EpochEntry { epoch: self.epoch, start_offset }];
        while self.below(4) == 0 {
            self.epoch += 1;
            // Up to right behind the end, where an epoch is empty.
            let start_offset = start_offset + self.below(102).min(end_offset - start_offset + 1);
            let last = segment_leader_epochs.last().map_or(0, |entry: &EpochEntry| entry.start_offset);
            segment_leader_epochs
                .push(EpochEntry { epoch: self.epoch, start_offset: start_offset.max(last) });
        }
        let announcement = RawSegmentMetadata {
            topic_id_partition: self.about.clone(),
            segment_id: self.random.uuid(),
            start_offset,
            end_offset,
            broker_id: 1 + i32::try_from(self.below(3)).expect("small"),
            max_timestamp_ms: self.now_ms - self.below(5000),
            event_timestamp_ms: self.now_ms,
            segment_leader_epochs: segment_leader_epochs.into_iter().collect(),
            segment_size_in_bytes: i32::try_from(self.below(1 << 30)).expect("below 2 GiB"),
            custom_metadata: self.custom_metadata(),
            state_id: RemoteLogSegmentState::CopySegmentStarted.id(),
            txn_index_empty: self.below(3) > 0,
        };
        self.announced.push(announcement.clone());
        announcement
    }

    fn update(&mut self, segment_id: Uuid, state_id: i8) -> RawSegmentUpdate<'static> {
        // A deletion keeps it: the manager would not let it be lost.
        let kept = self.index.segment(segment_id).and_then(|segment| segment.custom_metadata());
        let kept = kept.map(|bytes| bytes.to_vec().into());
        let deletes = state_id >= RemoteLogSegmentState::DeleteSegmentStarted.id();
        let custom_metadata = if deletes { kept } else { self.custom_metadata() };
        RawSegmentUpdate {
            topic_id_partition: self.about.clone(),
            segment_id,
            broker_id: 1 + i32::try_from(self.below(3)).expect("small"),
            event_timestamp_ms: self.now_ms,
            custom_metadata,
            state_id,
        }
    }

    /// Absent, empty, or some bytes.
    fn custom_metadata(&mut self) -> Option<Cow<'static, [u8]>> {
        let length = usize::try_from(self.below(6)).expect("small");
        (length > 0).then(|| vec![0x2a; length - 1].into())
    }
}

/// An event at its place, as Kafka's formatter prints it.
pub(crate) fn formatted(partition: i32, offset: i64, event: &RawEvent<'_>) -> String {
    let segment = |id: Uuid, about: &dyn std::fmt::Display| {
        format!("remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={about}, id={id}}}")
    };
    let about = event
        .topic_id_partition()
        .map(|about| format!("{}:{}-{}", about.topic_id, about.topic, about.partition));
    let about = about.unwrap_or_default();
    let segment_state = |id| RemoteLogSegmentState::from_id(id).map_or("?", RemoteLogSegmentState::name);
    let custom = |custom: &Option<Cow<'_, [u8]>>| match custom {
        Some(bytes) => format!("Optional[CustomMetadata{{{} bytes}}]", bytes.len()),
        None => "Optional.empty".to_owned(),
    };
    let value = match event {
        RawEvent::SegmentMetadata(event) => {
            let epochs: Vec<_> = event
                .segment_leader_epochs
                .iter()
                .map(|entry| format!("{}={}", entry.epoch, entry.start_offset))
                .collect();
            format!(
                "RemoteLogSegmentMetadata{{{}, startOffset={}, endOffset={}, brokerId={}, maxTimestampMs={}, \
                 eventTimestampMs={}, segmentLeaderEpochs={{{}}}, segmentSizeInBytes={}, customMetadata={}, \
                 state={}, txnIdxEmpty={}}}",
                segment(event.segment_id, &about),
                event.start_offset,
                event.end_offset,
                event.broker_id,
                event.max_timestamp_ms,
                event.event_timestamp_ms,
                epochs.join(", "),
                event.segment_size_in_bytes,
                custom(&event.custom_metadata),
                segment_state(event.state_id),
                event.txn_index_empty,
            )
        }
        RawEvent::SegmentMetadataUpdate(event) => format!(
            "RemoteLogSegmentMetadataUpdate{{{}, customMetadata={}, state={}, eventTimestampMs={}, brokerId={}}}",
            segment(event.segment_id, &about),
            custom(&event.custom_metadata),
            segment_state(event.state_id),
            event.event_timestamp_ms,
            event.broker_id,
        ),
        RawEvent::PartitionDeleteMetadata(event) => format!(
            "RemotePartitionDeleteMetadata{{topicPartition={about}, state={}, eventTimestampMs={}, brokerId={}}}",
            RemotePartitionDeleteState::from_id(event.state_id).map_or("?", RemotePartitionDeleteState::name),
            event.event_timestamp_ms,
            event.broker_id,
        ),
        RawEvent::SegmentMetadataSnapshot(_) => unreachable!("it has no place in the topic"),
    };
    format!("partition: {partition}, offset: {offset}, value: {value}")
}

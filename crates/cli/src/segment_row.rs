//! A segment as a row: the same values in every table and every JSON document.

use serde::Serialize;
use strandline_audit::{EventView, SegmentView, state_name};

use crate::moment::{Clock, rfc3339};
use crate::output::{Grid, Output};

/// A segment with what its events say of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SegmentRow {
    pub(crate) topic: String,
    pub(crate) topic_id: String,
    pub(crate) partition: i32,
    pub(crate) segment_id: String,
    /// The state of its last event; null for a number without a name, which `state_id` holds.
    pub(crate) state: Option<&'static str>,
    pub(crate) state_id: i8,
    /// The state that brokers have it in, where that differs from its last event's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted_state: Option<Option<&'static str>>,
    pub(crate) start_offset: Option<i64>,
    pub(crate) end_offset: Option<i64>,
    pub(crate) size_bytes: Option<i64>,
    pub(crate) leader_epochs: Vec<(i32, i64)>,
    /// The time of its newest record.
    pub(crate) max_time: Option<String>,
    pub(crate) first_event_time: Option<String>,
    pub(crate) last_event_time: Option<String>,
    pub(crate) age_seconds: Option<i64>,
    pub(crate) broker_id: Option<i32>,
    /// True when a look-up of some offset gives this segment.
    pub(crate) readable: bool,
    pub(crate) txn_index_empty: Option<bool>,
    pub(crate) custom_metadata: Option<String>,
    pub(crate) events: usize,
    #[serde(skip)]
    max_timestamp_ms: Option<i64>,
    #[serde(skip)]
    last_event_ms: Option<i64>,
}

impl SegmentRow {
    /// The row of a segment; `readable` is whether look-ups find it.
    pub(crate) fn of(segment: &SegmentView<'_>, readable: bool, now_ms: i64) -> Self {
        let content = segment.content();
        let last_state = state_name(segment.last_state_id());
        let accepted = segment.state().map(|state| state.name());
        let (first, last) = (segment.events().next(), segment.events().next_back());
        let last_event_ms = last.map(|event| event.timestamp_ms());
        Self {
            topic: segment.topic().to_owned(),
            topic_id: segment.topic_id().to_string(),
            partition: segment.partition(),
            segment_id: segment.id().to_string(),
            state: last_state,
            state_id: segment.last_state_id(),
            accepted_state: (accepted != last_state).then_some(accepted),
            start_offset: segment.start_offset(),
            end_offset: segment.end_offset(),
            size_bytes: content.map(|content| content.size_in_bytes.into()),
            leader_epochs: content
                .map(|content| content.epochs.iter().map(|epoch| (epoch.epoch, epoch.start_offset)).collect())
                .unwrap_or_default(),
            max_time: content.and_then(|content| rfc3339(content.max_timestamp_ms)),
            first_event_time: first.and_then(|event| rfc3339(event.timestamp_ms())),
            last_event_time: last_event_ms.and_then(rfc3339),
            age_seconds: last_event_ms.map(|ms| now_ms.saturating_sub(ms) / 1000),
            broker_id: last.map(|event| event.broker_id()),
            readable,
            txn_index_empty: content.map(|content| content.txn_index_empty),
            custom_metadata: segment.custom_metadata().map(hex),
            events: segment.events().len(),
            max_timestamp_ms: content.map(|content| content.max_timestamp_ms),
            last_event_ms,
        }
    }

    /// The state in words, also where it is unknown or brokers see another one.
    pub(crate) fn state_words(&self) -> String {
        let last = self.state.map_or_else(|| format!("state {} (unknown)", self.state_id), str::to_owned);
        match &self.accepted_state {
            None => last,
            Some(accepted) => format!("{last} (brokers: {})", accepted.unwrap_or("unknown")),
        }
    }

    /// `0-2047`, or `-` where the segment was never introduced.
    pub(crate) fn offsets(&self) -> String {
        match (self.start_offset, self.end_offset) {
            (Some(start), Some(end)) => format!("{start}-{end}"),
            _ => "-".to_owned(),
        }
    }

    /// `0@0, 4@700`: each leader epoch with its first offset.
    pub(crate) fn epochs(&self) -> String {
        let epochs: Vec<String> =
            self.leader_epochs.iter().map(|(epoch, start)| format!("{epoch}@{start}")).collect();
        epochs.join(", ")
    }
}

/// The table of segments; leader epochs on demand.
pub(crate) fn grid<'a>(rows: impl Iterator<Item = &'a SegmentRow>, epochs: bool, output: &Output) -> Grid {
    let mut headings =
        vec!["PARTITION", "OFFSETS", "SEGMENT", "STATE", "SIZE>", "NEWEST RECORD", "LAST EVENT", "BROKER>"];
    if epochs || output.wide {
        headings.push("LEADER EPOCHS");
    }
    if output.wide {
        headings.push("TOPIC ID");
    }
    let mut grid = Grid::new(&headings);
    for row in rows {
        let clock: &Clock = &output.clock;
        let dash = || "-".to_owned();
        let mut cells = vec![
            format!("{}:{}", row.topic, row.partition),
            row.offsets(),
            row.segment_id.clone(),
            row.state_words(),
            row.size_bytes.map_or_else(dash, |bytes| output.sizes.show(bytes)),
            row.max_timestamp_ms.map_or_else(dash, |ms| clock.show(ms)),
            row.last_event_ms.map_or_else(dash, |ms| clock.ago(ms)),
            row.broker_id.map_or_else(dash, |id| id.to_string()),
        ];
        if epochs || output.wide {
            cells.push(row.epochs());
        }
        if output.wide {
            cells.push(row.topic_id.clone());
        }
        grid.row(cells);
    }
    grid
}

/// An event of a segment, for its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EventRow {
    pub(crate) metadata_partition: Option<i32>,
    pub(crate) offset: Option<i64>,
    pub(crate) time: Option<String>,
    pub(crate) state: Option<&'static str>,
    pub(crate) state_id: i8,
    pub(crate) broker_id: i32,
    /// What a broker that reads the event makes of it.
    pub(crate) outcome: String,
    #[serde(skip)]
    pub(crate) timestamp_ms: i64,
}

impl EventRow {
    /// The row of an event.
    pub(crate) fn of(event: &EventView<'_>) -> Self {
        Self {
            metadata_partition: event.metadata_partition(),
            offset: event.offset(),
            time: rfc3339(event.timestamp_ms()),
            state: event.state_name(),
            state_id: event.state_id(),
            broker_id: event.broker_id(),
            outcome: outcome(event).to_owned(),
            timestamp_ms: event.timestamp_ms(),
        }
    }
}

fn outcome(event: &EventView<'_>) -> &'static str {
    use strandline_audit::Outcome;
    match event.outcome() {
        Outcome::Applied => "applied",
        Outcome::Repeated => "repeated",
        Outcome::AlreadyKnown => "dropped: the segment is known already",
        Outcome::UnknownSegment => "ignored: the segment is not known",
        Outcome::InvalidTransition => "dropped: no such change of state",
        Outcome::Fatal => "ends the metadata reading of brokers with this partition",
        Outcome::Refused => "ends the metadata reading of every broker",
        Outcome::Misplaced => "in the wrong metadata partition",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

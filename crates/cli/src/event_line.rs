//! Events on their way out: which ones are wanted, and how they are written, a chunk at a time.

use std::borrow::Cow;

use rustc_hash::FxHashSet;
use strandline_tier::json::{EventPosition, write_event};
use strandline_tier::{
    RawEvent, RawTopicIdPartition, RecordValue, RemoteLogSegmentState, RemotePartitionDeleteState, Uuid,
};

use crate::address::Selection;
use crate::moment::{Clock, Millis};
use crate::output::{Form, cut};
use crate::text::escape;

/// How many topic names are kept for "did you mean".
const NAMES_MAX: usize = 10_000;

/// An end of what is read: `--from` or `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The oldest record.
    Earliest,
    /// Where the log ends when reading begins.
    Latest,
    /// The first record written at or after this time, in milliseconds since 1970.
    Time(Millis),
    /// An offset of one metadata partition; the others are not read.
    Offset(i32, i64),
}

impl Bound {
    /// TIME, `earliest`, `latest`, or `METADATA_PARTITION:OFFSET`.
    pub(crate) fn parse(text: &str, clock: &Clock) -> Result<Self, String> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.to_owned());
        match text {
            "earliest" => return Ok(Self::Earliest),
            "latest" => return Ok(Self::Latest),
            _ => {}
        }
        if let Some((partition, offset)) = text.split_once(':')
            && let (Some(partition), Some(offset)) = (number(partition), number(offset))
            && let (Ok(partition), Ok(offset)) = (partition.parse(), offset.parse())
        {
            return Ok(Self::Offset(partition, offset));
        }
        clock.parse(text).map(Self::Time).map_err(|_| {
            format!("{text:?} is none of TIME (RFC 3339 or a span such as 2h), earliest, latest, METADATA_PARTITION:OFFSET")
        })
    }
}

/// What lies between `--from` and `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Where it begins.
    pub(crate) from: Bound,
    /// Where it ends, exclusive.
    pub(crate) to: Bound,
}

impl Window {
    /// The one metadata partition that a bound names.
    pub(crate) fn metadata_partition(&self) -> Option<i32> {
        [self.from, self.to].into_iter().find_map(|bound| match bound {
            Bound::Offset(partition, _) => Some(partition),
            _ => None,
        })
    }

    /// The offsets of a metadata partition that can lie in the window, out of those it has.
    pub(crate) fn offsets(&self, partition: i32, log_start: i64, log_end: i64) -> std::ops::Range<i64> {
        if self.metadata_partition().is_some_and(|named| named != partition) {
            return log_end..log_end;
        }
        let offset = |bound, otherwise| match bound {
            Bound::Earliest => log_start,
            Bound::Latest => log_end,
            Bound::Offset(_, offset) => offset.clamp(log_start, log_end),
            Bound::Time(_) => otherwise,
        };
        offset(self.from, log_start)..offset(self.to, log_end)
    }

    /// True when a record is inside, as far as its own position tells. `time_ms` is when it was written.
    fn holds(&self, position: &EventPosition, time_ms: Option<Millis>) -> bool {
        let after = |bound: Bound, otherwise: bool| match bound {
            Bound::Time(limit) => time_ms.is_some_and(|time| time >= limit),
            Bound::Offset(partition, limit) => {
                position.metadata_partition == Some(partition)
                    && position.offset.is_some_and(|offset| offset >= limit)
            }
            Bound::Earliest | Bound::Latest => otherwise,
        };
        let in_partition =
            self.metadata_partition().is_none_or(|named| position.metadata_partition == Some(named));
        in_partition && after(self.from, true) && !after(self.to, false)
    }
}

/// What a run of `events` wants, shared by the workers.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Which partitions and segments.
    pub(crate) selection: Selection,
    /// Which part of the log.
    pub(crate) window: Window,
    /// How events are written.
    pub(crate) kind: Form,
    /// The zone of times on screens.
    pub(crate) clock: Clock,
    /// How wide the terminal is, where there is one.
    pub(crate) width: Option<u16>,
}

/// The events of one chunk, written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// What goes to stdout. In JSON each event has its separator before it.
    pub(crate) bytes: Vec<u8>,
    /// How many events that is.
    pub(crate) count: u64,
    /// True when the selection names something that was seen, inside the window or not.
    pub(crate) matched: bool,
    /// Topics that were seen, where a selection may have missed them.
    pub(crate) topics: FxHashSet<String>,
}

/// What an event is about, for the selection.
struct Subject<'a> {
    partition: Option<&'a RawTopicIdPartition<'a>>,
    segment_id: Option<Uuid>,
    event_time_ms: Option<Millis>,
}

impl<'a> Subject<'a> {
    fn of(value: &'a RecordValue<'a>) -> Self {
        let (partition, segment_id, event_time_ms) = match value {
            RecordValue::Event(RawEvent::SegmentMetadata(event)) => {
                (Some(&event.topic_id_partition), Some(event.segment_id), Some(event.event_timestamp_ms))
            }
            RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)) => {
                (Some(&event.topic_id_partition), Some(event.segment_id), Some(event.event_timestamp_ms))
            }
            RecordValue::Event(RawEvent::PartitionDeleteMetadata(event)) => {
                (Some(&event.topic_id_partition), None, Some(event.event_timestamp_ms))
            }
            RecordValue::Event(RawEvent::SegmentMetadataSnapshot(event)) => {
                (None, Some(event.segment_id), Some(event.event_timestamp_ms))
            }
            RecordValue::NullValue | RecordValue::Undecodable { .. } => (None, None, None),
        };
        Self { partition, segment_id, event_time_ms }
    }
}

impl Wanted {
    /// Writes the event if it is wanted.
    pub(crate) fn write(&self, position: &EventPosition, value: &RecordValue<'_>, to: &mut Written) {
        let subject = Subject::of(value);
        if !self.selection.is_everything() {
            let selected = match (subject.partition, subject.segment_id) {
                (Some(of), Some(id)) => self.selection.has_segment(&of.topic, of.partition, id),
                (Some(of), None) => self.selection.has_partition(&of.topic, of.partition),
                (None, Some(id)) => self.selection.has_segment("", -1, id),
                // What belongs to nobody belongs to no selection.
                (None, None) => false,
            };
            if !selected {
                if let Some(of) = subject.partition
                    && !to.topics.contains(&*of.topic)
                    && to.topics.len() < NAMES_MAX
                {
                    to.topics.insert(of.topic.clone().into_owned());
                }
                return;
            }
        }
        to.matched = true;
        if !self.window.holds(position, position.timestamp_ms.or(subject.event_time_ms)) {
            return;
        }
        to.count += 1;
        match self.kind {
            Form::Jsonl => {
                write_event(&mut to.bytes, position, value);
                to.bytes.push(b'\n');
            }
            Form::Json => {
                to.bytes.extend_from_slice(b",\n    ");
                write_event(&mut to.bytes, position, value);
            }
            Form::Table => {
                let line = table_line(&self.clock, position, value, &subject);
                to.bytes.extend_from_slice(fit(&line, self.width).as_bytes());
            }
        }
    }
}

/// The line, cut to the terminal.
pub(crate) fn fit(line: &str, width: Option<u16>) -> Cow<'_, str> {
    let Some(width) = width else { return Cow::Borrowed(line) };
    match cut(line.trim_end_matches('\n'), usize::from(width)) {
        Cow::Borrowed(_) => Cow::Borrowed(line),
        Cow::Owned(line) => Cow::Owned(format!("{line}\n")),
    }
}

/// The headings over [`table_line`].
pub(crate) fn table_heading() -> String {
    line(["METADATA", "TIME", "EVENT", "SEGMENT", "OFFSETS", "BROKER", "PARTITION"].map(str::to_owned))
}

fn line([at, time, event, segment, offsets, broker, partition]: [String; 7]) -> String {
    format!("{at:<12}  {time:<20}  {event:<26}  {segment:<22}  {offsets:<19}  {broker:<6}  {partition}\n")
}

/// An event as a line of the table.
pub(crate) fn event_line(clock: &Clock, position: &EventPosition, value: &RecordValue<'_>) -> String {
    table_line(clock, position, value, &Subject::of(value))
}

fn table_line(
    clock: &Clock,
    position: &EventPosition,
    value: &RecordValue<'_>,
    subject: &Subject<'_>,
) -> String {
    let dash = || "-".to_owned();
    let at = match (position.metadata_partition, position.offset) {
        (Some(partition), Some(offset)) => format!("{partition}:{offset}"),
        (None, Some(offset)) => format!("?:{offset}"),
        _ => dash(),
    };
    let time = subject.event_time_ms.or(position.timestamp_ms).map_or_else(dash, |ms| clock.show(ms));
    let segment_state = |id: i8| {
        RemoteLogSegmentState::from_id(id)
            .map_or_else(|| format!("state {id} (unknown)"), |state| state.to_string())
    };
    let (event, offsets, broker, extra) = match value {
        RecordValue::Event(RawEvent::SegmentMetadata(event)) => {
            let offsets = format!("{}-{}", event.start_offset, event.end_offset);
            (segment_state(event.state_id), offsets, Some(event.broker_id), None)
        }
        RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)) => {
            (segment_state(event.state_id), dash(), Some(event.broker_id), None)
        }
        RecordValue::Event(RawEvent::PartitionDeleteMetadata(event)) => {
            let state = RemotePartitionDeleteState::from_id(event.state_id);
            let state = state
                .map_or_else(|| format!("state {} (unknown)", event.state_id), |state| state.to_string());
            (state, dash(), Some(event.broker_id), None)
        }
        RecordValue::Event(RawEvent::SegmentMetadataSnapshot(event)) => {
            let offsets = format!("{}-{}", event.start_offset, event.end_offset);
            ("segment snapshot".to_owned(), offsets, Some(event.broker_id), None)
        }
        RecordValue::NullValue => ("no value".to_owned(), dash(), None, None),
        RecordValue::Undecodable { error, .. } => {
            ("undecodable".to_owned(), dash(), None, Some(escape(error)))
        }
    };
    let partition = match (subject.partition, extra) {
        (Some(of), _) => format!("{}:{}", escape(&of.topic), of.partition),
        (None, Some(error)) => error.into_owned(),
        (None, None) => dash(),
    };
    let segment = subject.segment_id.map_or_else(dash, |id| id.to_string());
    line([at, time, event, segment, offsets, broker.map_or_else(dash, |id| id.to_string()), partition])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_time_a_word_or_an_offset_of_a_metadata_partition() {
        let clock = Clock::new(Some("2026-01-01T00:00:00Z"), None).unwrap();
        let parse = |text| Bound::parse(text, &clock);
        assert_eq!(parse("earliest"), Ok(Bound::Earliest));
        assert_eq!(parse("latest"), Ok(Bound::Latest));
        assert_eq!(parse("7:1200"), Ok(Bound::Offset(7, 1200)));
        assert_eq!(parse("1h"), Ok(Bound::Time(clock.now_ms - 3_600_000)));
        assert_eq!(parse("2025-12-31T23:00:00Z"), Ok(Bound::Time(clock.now_ms - 3_600_000)));
        for bad in ["", "7", "7:", ":7", "-1:0", "7:99999999999999999999", "soon"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_is_cut_to_the_terminal_and_whole_in_a_pipe() {
        let line = "4:4  COPY_SEGMENT_STARTED  orders:1\n";
        assert_eq!(fit(line, None), line);
        assert_eq!(fit(line, Some(80)), line);
        assert_eq!(fit(line, Some(20)), "4:4  COPY_SEGMENT_S…\n");
    }

    #[test]
    fn a_window_ends_before_its_upper_bound_and_names_the_offsets_to_read() {
        let window = |from, to| Window { from, to };
        let at =
            |offset| EventPosition { metadata_partition: Some(2), offset: Some(offset), timestamp_ms: None };
        let some = window(Bound::Offset(2, 5), Bound::Offset(2, 8));
        assert_eq!([4, 5, 7, 8].map(|offset| some.holds(&at(offset), None)), [false, true, true, false]);
        let timed = window(Bound::Time(100), Bound::Time(200));
        assert_eq!(
            [99, 100, 199, 200].map(|time| timed.holds(&at(0), Some(time))),
            [false, true, true, false]
        );
        assert!(!timed.holds(&at(0), None), "a record without a time is in no span of time");
        assert_eq!(some.offsets(2, 0, 100), 5..8);
        assert_eq!(some.offsets(3, 0, 100), 100..100);
        assert_eq!(some.offsets(2, 6, 7), 6..7);
        assert_eq!(window(Bound::Earliest, Bound::Latest).offsets(0, 3, 9), 3..9);
        assert_eq!(window(Bound::Latest, Bound::Latest).offsets(0, 3, 9), 9..9);
        assert_eq!(timed.offsets(0, 3, 9), 3..9);
    }
}

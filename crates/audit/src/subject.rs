//! One user partition with all that is known of it.

use strandline_tier::{RemoteLogSegmentState, TopicId};

use crate::facts::{LocalSegmentsFact, LogFact, TopicFact};
use crate::readable::Intervals;
use crate::view::{PartitionView, SegmentView};

/// Whether the cluster has a topic id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existence {
    Present,
    Gone,
    Unknown,
}

/// One leader epoch of the leader, both offsets inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaderEpoch {
    pub(crate) epoch: i32,
    pub(crate) start: i64,
    /// The last offset; `None` for the newest epoch of a log whose end is not known.
    pub(crate) end: Option<i64>,
}

/// The leader's epochs, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    epochs: Vec<LeaderEpoch>,
    log_end_offset: Option<i64>,
}

impl Lineage {
    pub(crate) fn of(log: &LogFact) -> Option<Self> {
        let mut epochs: Vec<LeaderEpoch> = match (&log.leader_epochs, &log.epoch_ends) {
            (Some(starts), _) => {
                let mut starts = starts.clone();
                starts.sort_unstable();
                let ends = starts.iter().skip(1).map(|(_, next)| Some(next.saturating_sub(1)));
                let ends: Vec<Option<i64>> = ends.chain([None]).collect();
                starts
                    .iter()
                    .zip(ends)
                    .map(|((epoch, start), end)| LeaderEpoch { epoch: *epoch, start: *start, end })
                    .collect()
            }
            (None, Some(answers)) => {
                // A leader answers for epochs older than its own with the older epoch and its own start: such an
                // epoch ends at or below the log start, and nothing that can be read belongs to it.
                let log_start = log.log_start_offset.unwrap_or(i64::MIN);
                let mut answers: Vec<_> = answers
                    .iter()
                    .filter(|(asked, answered, next)| asked == answered && *next > log_start)
                    .collect();
                answers.sort_unstable();
                // An epoch begins where the one before it ends. An epoch between them that was not asked for
                // is in no segment either, so that its offsets are nobody's wherever they are counted.
                let mut start = 0;
                let mut epochs = Vec::with_capacity(answers.len());
                for (epoch, _, next) in answers {
                    epochs.push(LeaderEpoch { epoch: *epoch, start, end: Some(next.saturating_sub(1)) });
                    start = *next;
                }
                epochs
            }
            (None, None) => return None,
        };
        if let (Some(last), Some(log_end)) = (epochs.last_mut(), log.log_end_offset)
            && last.end.is_none()
        {
            last.end = Some(log_end.saturating_sub(1));
        }
        Some(Self { epochs, log_end_offset: log.log_end_offset })
    }

    pub(crate) fn epochs(&self) -> &[LeaderEpoch] {
        &self.epochs
    }

    pub(crate) fn epoch(&self, epoch: i32) -> Option<&LeaderEpoch> {
        let at = self.epochs.binary_search_by_key(&epoch, |entry| entry.epoch).ok()?;
        Some(&self.epochs[at])
    }

    pub(crate) fn earliest(&self) -> Option<i32> {
        self.epochs.first().map(|entry| entry.epoch)
    }

    /// True where all of the segment that the leader can still know of is the leader's: retention goes by it.
    pub(crate) fn owns(&self, segment: SegmentView<'_>) -> bool {
        let (Some(content), Some(earliest)) = (segment.content(), self.earliest()) else { return false };
        let mut any = false;
        for (epoch, start, end) in content.epoch_ranges().filter(|(epoch, ..)| *epoch >= earliest) {
            let Some(leader) = self.epoch(epoch) else { return false };
            // The first epoch's start moves with the log start, so a segment may begin below it.
            let begins_late = epoch == earliest || start >= leader.start;
            if !begins_late || leader.end.is_some_and(|last| end > last) {
                return false;
            }
            any = true;
        }
        any && self.log_end_offset.is_none_or(|log_end| content.end_offset < log_end)
    }
}

/// One user partition: its events, where there are any, and the facts about it.
pub(crate) struct Subject<'a> {
    pub(crate) topic: &'a str,
    pub(crate) topic_id: Option<TopicId>,
    pub(crate) partition: i32,
    pub(crate) view: Option<PartitionView<'a>>,
    pub(crate) existence: Existence,
    pub(crate) fact: Option<&'a TopicFact>,
    pub(crate) log: Option<&'a LogFact>,
    pub(crate) local: Vec<&'a LocalSegmentsFact>,
    pub(crate) lineage: Option<Lineage>,
    /// What look-ups return in the leader's lineage, or at any epoch where that is not known.
    pub(crate) readable: Intervals,
    /// What finished segments hold of the leader's lineage, or at all where that is not known.
    pub(crate) held: Intervals,
    pub(crate) deleted: bool,
}

impl<'a> Subject<'a> {
    #[expect(clippy::too_many_arguments, reason = "each is one field, and there is one caller")]
    pub(crate) fn new(
        topic: &'a str,
        topic_id: Option<TopicId>,
        partition: i32,
        view: Option<PartitionView<'a>>,
        existence: Existence,
        fact: Option<&'a TopicFact>,
        log: Option<&'a LogFact>,
        local: Vec<&'a LocalSegmentsFact>,
        lineage: Option<Lineage>,
    ) -> Self {
        let readable = view.map(|view| readable(view, lineage.as_ref())).unwrap_or_default();
        let held = view.map(|view| held(view, lineage.as_ref())).unwrap_or_default();
        let deleted =
            view.and_then(|view| view.last_partition_delete()).is_some_and(|event| event.state_id() == 2);
        Self {
            topic,
            topic_id,
            partition,
            view,
            existence,
            fact,
            log,
            local,
            lineage,
            readable,
            held,
            deleted,
        }
    }

    /// `orders:0`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.topic, self.partition)
    }

    /// True for an offset of the log that lies in a hole of the tier, or between it and the local log.
    pub(crate) fn lacks(&self, offset: i64) -> bool {
        let (Some(first), Some(last)) = (self.readable.first(), self.readable.last()) else { return false };
        let from = self.log_start().map_or(first, |start| start.max(first));
        let to = self.local_start().map_or(last, |local| local.saturating_sub(1).max(last));
        (from..=to).contains(&offset) && !self.readable.hold(offset, offset)
    }

    /// True where only `topic.id-unknown` and the `delete-stuck` rules speak: the topic id is gone from the
    /// cluster, or the partition's deletion is complete.
    pub(crate) fn is_gone(&self) -> bool {
        self.existence == Existence::Gone || self.deleted
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentView<'a>> + use<'a> {
        self.view.into_iter().flat_map(|view| view.segments())
    }

    pub(crate) fn config(&self, name: &str) -> Option<&'a str> {
        self.fact?.configs.as_ref()?.get(name).map(String::as_str)
    }

    /// A number of the topic's configs; `None` where absent or not a number.
    pub(crate) fn config_number(&self, name: &str) -> Option<i64> {
        self.config(name)?.trim().parse().ok()
    }

    pub(crate) fn log_start(&self) -> Option<i64> {
        self.log?.log_start_offset
    }

    pub(crate) fn local_start(&self) -> Option<i64> {
        self.log?.local_start_offset
    }

    /// The lowest offset that the log can still start at: its start offset, or, since a segment whose first
    /// leader epoch begins inside it was copied after the records below had been deleted, that epoch's start.
    pub(crate) fn proven_log_start(&self) -> Option<i64> {
        let copied_later = self
            .segments()
            .filter(|segment| segment.is_finished())
            .filter(|segment| self.in_lineage(*segment))
            .filter_map(|segment| {
                let content = segment.content()?;
                let first = content.epochs.first()?.start_offset;
                (content.start_offset < first && first <= content.end_offset).then_some(first)
            })
            .max();
        self.log_start().max(copied_later)
    }

    /// True where the segment ends below the log start: it awaits the cleaner, and nothing is asked of it.
    pub(crate) fn awaits_cleaner(&self, segment: SegmentView<'_>) -> bool {
        matches!((segment.end_offset(), self.log_start()), (Some(end), Some(start)) if end < start)
    }

    /// True where an epoch of the segment is the leader's, or the leader's are not known.
    pub(crate) fn in_lineage(&self, segment: SegmentView<'_>) -> bool {
        let Some(lineage) = &self.lineage else { return true };
        segment
            .content()
            .is_some_and(|content| content.epochs.iter().any(|entry| lineage.epoch(entry.epoch).is_some()))
    }

    /// The finished segments that count as of the leader's lineage.
    pub(crate) fn lineage_segments(&self) -> impl Iterator<Item = SegmentView<'a>> + '_ {
        self.segments().filter(|segment| segment.is_finished()).filter(|segment| match &self.lineage {
            Some(lineage) => lineage.owns(*segment),
            None => true,
        })
    }

    /// When the segment's copy was finished, by its event.
    pub(crate) fn copy_finished_ms(segment: SegmentView<'_>) -> Option<i64> {
        segment.events().filter(|event| event.finishes_copy()).map(|event| event.timestamp_ms()).min()
    }
}

fn readable(view: PartitionView<'_>, lineage: Option<&Lineage>) -> Intervals {
    let clip = |epoch: i32, start: i64, end: i64| match lineage {
        None => Some((start, end)),
        Some(lineage) => {
            let leader = lineage.epoch(epoch)?;
            Some((start.max(leader.start), leader.end.map_or(end, |last| end.min(last))))
        }
    };
    let parts = view
        .readable()
        .ranges()
        .iter()
        .filter_map(|range| {
            let content = view.segment_of(range).content()?;
            // A look-up below the segment's start returns it all the same; the records are not in it.
            let start = range.start_offset.max(content.start_offset);
            clip(range.epoch, start, range.end_offset.min(content.end_offset))
        })
        .collect();
    Intervals::new(parts)
}

fn held(view: PartitionView<'_>, lineage: Option<&Lineage>) -> Intervals {
    let mut parts = Vec::new();
    for segment in view.segments().filter(|segment| segment.is_finished()) {
        parts.extend(held_ranges(segment, lineage));
    }
    Intervals::new(parts)
}

/// What one segment holds of the leader's lineage.
pub(crate) fn held_ranges<'a>(
    segment: SegmentView<'a>,
    lineage: Option<&'a Lineage>,
) -> impl Iterator<Item = (i64, i64)> + 'a {
    let ranges = segment.content().into_iter().flat_map(|content| content.epoch_ranges());
    ranges.filter_map(move |(epoch, start, end)| {
        let Some(lineage) = lineage else { return Some((start, end)) };
        let leader = lineage.epoch(epoch)?;
        let (start, end) = (start.max(leader.start), leader.end.map_or(end, |last| end.min(last)));
        (start <= end).then_some((start, end))
    })
}

/// True for a state that brokers hold.
pub(crate) fn is(segment: SegmentView<'_>, state: RemoteLogSegmentState) -> bool {
    segment.state() == Some(state) && segment.last_state_id() == state.id()
}

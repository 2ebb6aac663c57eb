//! A segment by its id.

use strandline_audit::SegmentView;
use strandline_tier::{RemoteLogSegmentState as State, Uuid};

use super::offset::epoch_at;
use super::{Asked, Explanation, Served};
use crate::segment_row::EventRow;

impl Asked<'_> {
    /// One answer for each user partition that events give the segment to.
    pub(super) fn segment(&self, id: Uuid) -> Vec<Explanation> {
        self.judged.collected.view.segment(id).map(|segment| self.one_segment(&segment)).collect()
    }

    fn one_segment(&self, segment: &SegmentView<'_>) -> Explanation {
        let of = self.judged.collected.view.partition(segment.topic(), segment.partition());
        let of = of.into_iter().find(|of| of.topic_id() == segment.topic_id());
        let mut explanation = Explanation {
            kind: "segment",
            subject: format!(
                "segment {} of {}:{} (topic id {})",
                segment.id(),
                segment.topic(),
                segment.partition(),
                segment.topic_id()
            ),
            events: segment.events().map(|event| EventRow::of(&event)).collect(),
            objects: self.objects(segment.id()),
            findings: self.findings(|finding| finding.segment_id == Some(segment.id())),
            ..Explanation::default()
        };
        if let Some(of) = of {
            explanation.segments.push(self.row(&of, segment));
            let log = self.log(&of);
            let served =
                of.readable().ranges().iter().filter(|range| of.segment_of(range).id() == segment.id());
            explanation.served_by = served
                .map(|range| Served {
                    leader_epoch: range.epoch,
                    in_lineage: log
                        .and_then(|log| epoch_at(log, range.start_offset))
                        .map(|epoch| epoch == range.epoch),
                    segment_id: segment.id().to_string(),
                    start_offset: range.start_offset,
                    end_offset: range.end_offset,
                })
                .collect();
        }
        explanation.summary = self.segment_summary(segment, explanation.served_by.is_empty());
        explanation
    }

    fn segment_summary(&self, segment: &SegmentView<'_>, unserved: bool) -> String {
        let last = segment.events().next_back();
        let when = last.map_or_else(String::new, |event| {
            format!(" {}, by broker {}", self.output.clock.ago(event.timestamp_ms()), event.broker_id())
        });
        if segment.content().is_none() {
            return "no event introduces it: brokers ignore what later events say of it".to_owned();
        }
        match State::from_id(segment.last_state_id()) {
            Some(State::CopySegmentStarted) => format!("its copy was started{when}, and has not finished"),
            Some(State::CopySegmentFinished) if unserved => {
                format!("its copy was finished{when}, yet no look-up returns it")
            }
            Some(State::CopySegmentFinished) => format!("readable: its copy was finished{when}"),
            Some(State::DeleteSegmentStarted) => {
                format!("no longer readable: its deletion was started{when}")
            }
            Some(State::DeleteSegmentFinished) => format!("gone: its deletion was finished{when}"),
            None => format!("its last event names state {}, which nobody knows", segment.last_state_id()),
        }
    }
}

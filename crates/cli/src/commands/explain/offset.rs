//! `TOPIC:P@OFFSET` and `TOPIC:P@TIME`.

use strandline_audit::{Finding, LogFact, PartitionView, SegmentView};
use strandline_tier::RemoteLogSegmentState as State;

use super::uploads::Uploads;
use super::{Asked, Explanation, Served};
use crate::address::{At, TopicPattern};
use crate::moment::Millis;
use crate::positions::holds;

/// What a consumer gets for an offset that the leader does not have and the tier does not return.
/// Source: `RemoteLogManager#read`.
const OUT_OF_RANGE: &str =
    "a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it";

impl<'a> Asked<'a> {
    /// One answer for each partition that the pattern names.
    pub(super) fn offset(&self, topic: &TopicPattern, partition: i32, at: At) -> Vec<Explanation> {
        let named =
            self.view_partitions().filter(|of| of.partition() == partition && topic.matches(of.topic()));
        let mut answers: Vec<Explanation> = named
            .map(|of| match at {
                At::Offset(offset) => self.at_offset(&of, offset),
                At::Time(time) => self.at_time(&of, time),
            })
            .collect();
        // A partition that the sources know and the metadata does not.
        for log in &self.judged.collected.facts.logs {
            let seen =
                self.view_partitions().any(|of| of.topic() == log.topic && of.partition() == log.partition);
            if !seen && log.partition == partition && topic.matches(&log.topic) {
                answers.push(self.at_uncopied(log, at));
            }
        }
        answers
    }

    /// A place in a partition of which nothing was ever copied.
    fn at_uncopied(&self, log: &'a LogFact, at: At) -> Explanation {
        let place = match at {
            At::Offset(offset) => format!("offset {offset}"),
            At::Time(time) => format!("at {}", self.output.clock.show(time)),
        };
        let mut explanation = Explanation {
            kind: "offset",
            subject: format!("{}:{} {place}", log.topic, log.partition),
            summary: "if there is such a record, it is in the leader's local log".to_owned(),
            reasons: vec!["nothing of the partition was ever copied to the tier".to_owned()],
            ..Explanation::default()
        };
        let At::Offset(offset) = at else { return explanation };
        let groups = |explanation: &mut Explanation| {
            self.add_groups_at(explanation, offset, &log.topic, log.partition, None, Some(log));
        };
        if outside(log, offset, &mut explanation) {
            groups(&mut explanation);
            return explanation;
        }
        match log.local_start_offset {
            Some(start) if offset >= start => {
                explanation.summary =
                    format!("the leader's local log serves it (local offsets begin at {start})");
                let uploads =
                    Uploads { topic: &log.topic, partition: log.partition, view: None, log: Some(log) };
                explanation.reasons.push(self.local_place(&uploads, offset));
            }
            Some(start) => {
                explanation.summary = format!(
                    "nothing serves it: the leader's local log begins at {start}, and the tier is empty"
                );
                explanation.effect = Some(OUT_OF_RANGE.to_owned());
            }
            None => {}
        }
        groups(&mut explanation);
        explanation
    }

    fn at_time(&self, of: &PartitionView<'a>, time: Millis) -> Explanation {
        let shown = self.output.clock.show(time);
        let mut ranges = of.readable().ranges().to_vec();
        ranges.sort_by_key(|range| range.start_offset);
        let reaches = |range: &&strandline_audit::ReadableRange| {
            of.segment_of(range).content().is_some_and(|content| content.max_timestamp_ms >= time)
        };
        let subject = format!("{}:{} at {shown}", of.topic(), of.partition());
        let Some(range) = ranges.iter().find(reaches) else {
            return Explanation {
                kind: "offset",
                subject,
                summary: "no readable segment holds a record of that time or later: if there is one, it is in the local log"
                    .to_owned(),
                ..Explanation::default()
            };
        };
        let segment = of.segment_of(range);
        let newest = segment.content().map(|content| self.output.clock.show(content.max_timestamp_ms));
        let mut explanation = self.at_offset(of, range.start_offset);
        explanation.reasons.insert(
            0,
            format!(
                "the first record at or after {shown} lies in segment {}, between offsets {} and {} (its newest record is of {})",
                segment.id(),
                range.start_offset,
                range.end_offset,
                newest.unwrap_or_default()
            ),
        );
        explanation.subject = subject;
        explanation
    }

    fn at_offset(&self, of: &PartitionView<'a>, offset: i64) -> Explanation {
        let log = self.log(of);
        let lineage = log.and_then(|log| epoch_at(log, offset));
        let served: Vec<(i32, SegmentView<'_>)> = of.find_at_any_epoch(offset).collect();
        let holders: Vec<SegmentView<'_>> = of.segments().filter(|segment| holds(segment, offset)).collect();
        let by_lineage = match lineage {
            Some(epoch) => served.iter().find(|(of, _)| *of == epoch),
            None => served.last(),
        };
        let mut explanation = Explanation {
            kind: "offset",
            subject: format!(
                "{}:{} offset {offset} (topic id {})",
                of.topic(),
                of.partition(),
                of.topic_id()
            ),
            served_by: served
                .iter()
                .filter_map(|(epoch, segment)| {
                    let range = of.readable().find(*epoch, offset)?;
                    Some(Served {
                        leader_epoch: *epoch,
                        in_lineage: lineage.map(|lineage| lineage == *epoch),
                        segment_id: segment.id().to_string(),
                        start_offset: range.start_offset,
                        end_offset: range.end_offset,
                    })
                })
                .collect(),
            segments: holders.iter().map(|segment| self.row(of, segment)).collect(),
            findings: self.findings(|finding| is_about(finding, of, offset, &holders)),
            ..Explanation::default()
        };
        if let [only] = &holders[..] {
            explanation.objects = self.objects(only.id());
        } else if let Some((_, segment)) = by_lineage {
            explanation.objects = self.objects(segment.id());
        }
        self.answer(&mut explanation, of, offset, log, by_lineage, &holders);
        self.add_groups_at(&mut explanation, offset, of.topic(), of.partition(), Some(of), log);
        explanation
    }

    /// Says who serves the offset, in the order in which a broker asks: its log, then the tier.
    fn answer(
        &self,
        explanation: &mut Explanation,
        of: &PartitionView<'a>,
        offset: i64,
        log: Option<&'a LogFact>,
        by_lineage: Option<&(i32, SegmentView<'_>)>,
        holders: &[SegmentView<'_>],
    ) {
        let local_start = log.and_then(|log| log.local_start_offset);
        let facts = &self.judged.collected.facts;
        if facts.topics.iter().any(|topic| topic.absent && topic.topic == of.topic()) {
            explanation.summary = "not readable: the cluster has no topic of this name any more".to_owned();
            if by_lineage.is_none() {
                explanation
                    .reasons
                    .extend(holders.iter().map(|segment| self.why_not(of, segment, offset, log)));
            }
            return;
        }
        if log.is_some_and(|log| outside(log, offset, explanation)) {
            return;
        }
        let local = local_start.filter(|start| offset >= *start);
        if let Some(start) = local {
            explanation.summary = format!(
                "the leader's local log serves it (local offsets begin at {start}); the tier is not asked"
            );
            let uploads = Uploads { topic: of.topic(), partition: of.partition(), view: Some(*of), log };
            let copied = if by_lineage.is_some() {
                "the tier holds it too".to_owned()
            } else if holders.is_empty() {
                self.local_place(&uploads, offset)
            } else {
                "the tier does not serve it".to_owned()
            };
            explanation.reasons.push(copied);
        } else if let Some((epoch, segment)) = by_lineage {
            explanation.summary =
                format!("segment {} of the tier serves it, at leader epoch {epoch}", segment.id());
            if local_start.is_none() {
                explanation
                    .reasons
                    .push("whether the leader's local log holds it too is not known here".to_owned());
            }
            if explanation.served_by.len() > 1
                && explanation.served_by.iter().any(|row| row.in_lineage.is_none())
            {
                explanation.reasons.push(
                    "the leader's epochs are not known here: of the epochs below, a broker serves the one that its own lineage has at this offset"
                        .to_owned(),
                );
            }
        } else {
            explanation.summary = "nothing in the tier serves it".to_owned();
            explanation.effect = Some(match local_start {
                Some(_) => OUT_OF_RANGE.to_owned(),
                None => format!("unless the leader's local log holds it, {OUT_OF_RANGE}"),
            });
        }
        if by_lineage.is_none() {
            explanation.reasons.extend(holders.iter().map(|segment| self.why_not(of, segment, offset, log)));
            if holders.is_empty() {
                explanation.reasons.push(no_holder(of, offset));
            }
        }
    }

    /// Why a segment whose offsets include this one does not serve it.
    fn why_not(
        &self,
        of: &PartitionView<'_>,
        segment: &SegmentView<'_>,
        offset: i64,
        log: Option<&LogFact>,
    ) -> String {
        let id = segment.id();
        let last = segment.events().next_back();
        let when = last.map_or_else(String::new, |event| {
            format!(" {} by broker {}", self.output.clock.ago(event.timestamp_ms()), event.broker_id())
        });
        match State::from_id(segment.last_state_id()) {
            Some(State::CopySegmentStarted) => {
                format!("segment {id} holds it, and its copy has not finished (started{when})")
            }
            Some(State::DeleteSegmentStarted) => {
                format!("segment {id} holds it and is being deleted (begun{when})")
            }
            Some(State::DeleteSegmentFinished) => format!("segment {id} held it and was deleted{when}"),
            Some(State::CopySegmentFinished) if !segment.is_finished() => {
                format!("segment {id} says that its copy finished, and brokers dropped that event")
            }
            Some(State::CopySegmentFinished) => {
                let epoch = log.and_then(|log| epoch_at(log, offset));
                let found = of.find_at_any_epoch(offset).filter(|(_, found)| found.id() == id);
                let others: Vec<String> = found.map(|(epoch, _)| epoch.to_string()).collect();
                match (epoch, others.is_empty()) {
                    (Some(epoch), false) => format!(
                        "segment {id} holds it at leader epoch {}, and the leader has this offset at epoch {epoch}: another lineage",
                        others.join(", ")
                    ),
                    _ => match displacer(of, segment) {
                        Some(other) => format!(
                            "segment {id} holds it and is finished, yet no look-up returns it: the later, overlapping upload {} took its place",
                            other.id()
                        ),
                        None => {
                            format!("segment {id} holds it, but none of its leader epochs covers this offset")
                        }
                    },
                }
            }
            None => format!("segment {id} is in state {}, which has no name", segment.last_state_id()),
        }
    }
}

/// Says so where the log does not reach the offset: below its start, or not written yet.
fn outside(log: &LogFact, offset: i64, explanation: &mut Explanation) -> bool {
    if let Some(start) = log.log_start_offset.filter(|start| offset < *start) {
        explanation.summary = format!("not readable: below the log start offset {start}");
        explanation.reasons.push("retention or a DeleteRecords request removed it on purpose".to_owned());
        explanation.effect = Some(OUT_OF_RANGE.to_owned());
        return true;
    }
    if let Some(end) = log.log_end_offset.filter(|end| offset >= *end) {
        explanation.summary = format!("not written yet: the log ends at offset {end}");
        return true;
    }
    false
}

/// The epoch that the leader's lineage has at an offset.
pub(super) fn epoch_at(log: &LogFact, offset: i64) -> Option<i32> {
    if let Some(epochs) = &log.leader_epochs {
        // Ascending, and there can be as many as a segment has: no walk for each look-up.
        let at = epochs.partition_point(|(_, start)| *start <= offset).checked_sub(1)?;
        return Some(epochs[at].0);
    }
    // The answers to OffsetForLeaderEpoch: an epoch is in the lineage where the answer is about the epoch asked.
    let ends = log.epoch_ends.as_ref()?.iter().filter(|(asked, answered, _)| asked == answered);
    ends.filter(|(.., end)| *end > offset).map(|(epoch, ..)| *epoch).min()
}

/// A readable segment that overlaps this one.
fn displacer<'a>(of: &PartitionView<'a>, segment: &SegmentView<'_>) -> Option<SegmentView<'a>> {
    let (start, end) = (segment.start_offset()?, segment.end_offset()?);
    let overlaps =
        |range: &&strandline_audit::ReadableRange| range.start_offset <= end && start <= range.end_offset;
    let mut found = of.readable().ranges().iter().filter(overlaps).map(|range| of.segment_of(range));
    found.rfind(|other| other.id() != segment.id())
}

/// Where an offset lies that no segment holds.
fn no_holder(of: &PartitionView<'_>, offset: i64) -> String {
    let ranges = of.readable().ranges();
    let below = ranges.iter().filter(|range| range.end_offset < offset).max_by_key(|range| range.end_offset);
    let above =
        ranges.iter().filter(|range| range.start_offset > offset).min_by_key(|range| range.start_offset);
    match (below, above) {
        (None, None) => "the tier holds nothing of this partition that is readable".to_owned(),
        (None, Some(above)) => {
            format!("it is older than everything in the tier, which begins at {}", above.start_offset)
        }
        (Some(below), None) => {
            format!("it is newer than everything in the tier, which ends at {}", below.end_offset)
        }
        (Some(below), Some(above)) => format!(
            "it lies in a gap: segment {} ends at {}, segment {} begins at {}",
            of.segment_of(below).id(),
            below.end_offset,
            of.segment_of(above).id(),
            above.start_offset
        ),
    }
}

fn is_about(finding: &Finding, of: &PartitionView<'_>, offset: i64, holders: &[SegmentView<'_>]) -> bool {
    let here = finding.topic.as_deref() == Some(of.topic())
        && finding.partition == Some(of.partition())
        && finding.topic_id.is_none_or(|id| id == of.topic_id());
    let segment = finding.segment_id.is_some_and(|id| holders.iter().any(|holder| holder.id() == id));
    let offsets = match (finding.start_offset, finding.end_offset) {
        (Some(start), Some(end)) => (start..=end).contains(&offset),
        _ => false,
    };
    here && (segment || offsets)
}

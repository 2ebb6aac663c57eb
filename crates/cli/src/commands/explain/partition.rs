//! `TOPIC:P`: what is where, and why nothing more is uploaded.

use strandline_audit::{Facts, Intervals, LogFact, PartitionView, SegmentView};

use super::uploads::Uploads;
use super::{Asked, Explanation, TransactionRow};
use crate::moment::rfc3339;

/// How many ranges of offsets are named.
const SPANS_MAX: usize = 4;

impl<'a> Asked<'a> {
    /// One answer for each partition that is meant.
    pub(super) fn partitions(&self, meant: impl Fn(&str, i32) -> bool) -> Vec<Explanation> {
        let mut answers: Vec<Explanation> = self
            .view_partitions()
            .filter(|of| meant(of.topic(), of.partition()))
            .map(|of| self.partition(&of))
            .collect();
        // A partition that the sources know and the metadata does not: nothing was ever copied.
        for log in &self.facts().logs {
            let seen =
                self.view_partitions().any(|of| of.topic() == log.topic && of.partition() == log.partition);
            if !seen && meant(&log.topic, log.partition) {
                answers.push(self.never_copied(log));
            }
        }
        answers
    }

    fn facts(&self) -> &'a Facts {
        &self.judged.collected.facts
    }

    fn never_copied(&self, log: &'a LogFact) -> Explanation {
        let uploads = Uploads { topic: &log.topic, partition: log.partition, view: None, log: Some(log) };
        let nothing = Intervals::default();
        let mut reasons = self.what_is_where(Some(log), &nothing);
        reasons.extend(self.why_no_more(&uploads, &nothing));
        let mut explanation = Explanation {
            kind: "partition",
            subject: format!("{}:{}", log.topic, log.partition),
            open_transaction: open_transaction(Some(log)),
            summary: "nothing of it was ever copied to the tier".to_owned(),
            reasons,
            findings: self.findings(|finding| {
                finding.topic.as_deref() == Some(log.topic.as_str())
                    && finding.partition.is_none_or(|partition| partition == log.partition)
            }),
            ..Explanation::default()
        };
        self.add_groups(&mut explanation, &log.topic, log.partition, None, Some(log));
        explanation
    }

    fn partition(&self, of: &PartitionView<'a>) -> Explanation {
        let log = self.log(of);
        let tier = in_tier(of);
        let counts = of.counts();
        let remote = match (tier.first(), tier.last()) {
            (Some(start), Some(end)) => format!(
                "the tier serves offsets from {start} to {end}{} ({}, {})",
                match tier.missing(start, end) {
                    missing if missing.is_empty() => String::new(),
                    missing => format!(" without {}", spans(&missing)),
                },
                crate::text::count(counts.copy_finished, "readable segment"),
                self.output.sizes.show(i64::try_from(counts.copy_finished_bytes).unwrap_or(i64::MAX))
            ),
            _ => "the tier serves nothing of it".to_owned(),
        };
        let under_way: Vec<SegmentView<'_>> =
            of.segments().filter(|segment| segment.is_live() && !segment.is_finished()).collect();
        let mut reasons = self.what_is_where(log, &tier);
        let uploads = Uploads { topic: of.topic(), partition: of.partition(), view: Some(*of), log };
        reasons.extend(self.why_no_more(&uploads, &tier));
        let mut explanation = Explanation {
            kind: "partition",
            open_transaction: open_transaction(log),
            subject: format!("{}:{} (topic id {})", of.topic(), of.partition(), of.topic_id()),
            summary: remote,
            reasons,
            segments: under_way.iter().map(|segment| self.row(of, segment)).collect(),
            findings: self.findings(|finding| {
                finding.topic.as_deref() == Some(of.topic())
                    && finding.partition.is_none_or(|partition| partition == of.partition())
                    && finding.topic_id.is_none_or(|id| id == of.topic_id())
            }),
            ..Explanation::default()
        };
        self.add_groups(&mut explanation, of.topic(), of.partition(), Some(of), log);
        explanation
    }

    /// Offsets by where they are: remote, local, both, neither.
    fn what_is_where(&self, log: Option<&LogFact>, tier: &Intervals) -> Vec<String> {
        let Some(log) = log else {
            return vec![
                "what the local log holds, and so what is not uploaded, is not known from these sources"
                    .to_owned(),
            ];
        };
        let mut places = Vec::new();
        if let Some(log_start) = log.log_start_offset.filter(|start| *start > 0) {
            places.push(format!(
                "the log starts at offset {log_start}: what lies below is deleted for readers"
            ));
        }
        let (Some(local), Some(log_end)) = (log.local_start_offset, log.log_end_offset) else {
            return places;
        };
        let (below, last) = (local.saturating_sub(1), log_end.saturating_sub(1));
        let first = tier.first().map_or(local, |start| start.max(log.log_start_offset.unwrap_or(start)));
        for (what, ranges) in [
            ("only in the tier", tier.within(first, below)),
            ("in the tier and local", tier.within(first.max(local), last)),
            ("in neither", tier.missing(first, below)),
            ("only local", tier.missing(local, last)),
        ] {
            if !ranges.is_empty() {
                places.push(format!("{what}: offsets {}", spans(&ranges)));
            }
        }
        if local >= log_end {
            places.push(format!("the local log holds no record (it would begin at {local})"));
        }
        places
    }
}

/// What look-ups find in the tier, at any leader epoch.
fn in_tier(of: &PartitionView<'_>) -> Intervals {
    let ranges = of.readable().ranges();
    Intervals::new(ranges.iter().map(|range| (range.start_offset, range.end_offset)).collect())
}

/// `0 to 99, 200 to 299`, the first few of them.
fn spans(ranges: &[(i64, i64)]) -> String {
    let shown = ranges.iter().take(SPANS_MAX).map(|(start, end)| format!("{start} to {end}"));
    let more = match ranges.len().saturating_sub(SPANS_MAX) {
        0 => String::new(),
        more => format!(" and {} more", crate::text::count(more as u64, "range")),
    };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

fn open_transaction(log: Option<&LogFact>) -> Option<TransactionRow> {
    let transaction = log?.open_transaction.clone()?;
    Some(TransactionRow {
        transactional_id: transaction.transactional_id,
        producer_id: transaction.producer_id,
        coordinator: transaction.coordinator,
        state: transaction.state,
        first_offset: transaction.first_offset,
        start_time: transaction.start_ms.and_then(rfc3339),
        timeout_ms: transaction.timeout_ms,
        last_write_time: transaction.last_timestamp_ms.and_then(rfc3339),
    })
}

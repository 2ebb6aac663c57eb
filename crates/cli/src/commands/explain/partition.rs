//! `TOPIC:P`: what is where, and why nothing more is uploaded.

use strandline_audit::{Facts, LogFact, PartitionView, SegmentView};

use super::uploads::Uploads;
use super::{Asked, Explanation, TransactionRow};
use crate::moment::rfc3339;

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
        let mut reasons = self.what_is_where(Some(log), None, None);
        reasons.extend(self.why_no_more(&uploads));
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
        let ranges = of.readable().ranges();
        let remote_start = ranges.iter().map(|range| range.start_offset).min();
        let remote_end = ranges.iter().map(|range| range.end_offset).max();
        let counts = of.counts();
        let remote = match (remote_start, remote_end) {
            (Some(start), Some(end)) => format!(
                "the tier serves offsets from {start} to {end} ({}, {})",
                crate::text::count(counts.copy_finished, "readable segment"),
                self.output.sizes.show(i64::try_from(counts.copy_finished_bytes).unwrap_or(i64::MAX))
            ),
            _ => "the tier serves nothing of it".to_owned(),
        };
        let under_way: Vec<SegmentView<'_>> =
            of.segments().filter(|segment| segment.is_live() && !segment.is_finished()).collect();
        let mut reasons = self.what_is_where(log, remote_start, remote_end);
        let uploads = Uploads { topic: of.topic(), partition: of.partition(), view: Some(*of), log };
        reasons.extend(self.why_no_more(&uploads));
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
    fn what_is_where(&self, log: Option<&LogFact>, start: Option<i64>, end: Option<i64>) -> Vec<String> {
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
        let first = start.map(|start| start.max(log.log_start_offset.unwrap_or(start)));
        let mut range = |what: &str, from: i64, to: i64| {
            if from <= to {
                places.push(format!("{what}: offsets {from} to {to}"));
            }
        };
        let last = log_end.saturating_sub(1);
        match (first, end) {
            (Some(first), Some(end)) => {
                range("only in the tier", first, end.min(local.saturating_sub(1)));
                range("in the tier and local", first.max(local), end.min(last));
                range("in neither", end.saturating_add(1), local.saturating_sub(1));
                range("only local", local.max(end.saturating_add(1)), last);
            }
            _ => range("only local", local, last),
        }
        if local >= log_end {
            places.push(format!("the local log holds no record (it would begin at {local})"));
        }
        places
    }
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

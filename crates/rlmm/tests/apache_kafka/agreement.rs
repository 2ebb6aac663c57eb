//! The answers of Kafka's own store and cache, and ours to the same questions.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use strandline_log::LiveMetadataEventLog;
use strandline_rlmm::{
    QueryError, RemoteLogMetadataManager as _, TopicBasedRemoteLogMetadataManager, TopicIdPartition,
};
use strandline_testkit::apache::ApacheKafka;
use strandline_tier::{RemoteLogSegmentIndex, RemoteLogSegmentMetadata};
use tokio::task::block_in_place;

use crate::soon;

const PROGRAM: &str = "org.apache.kafka.server.log.remote.metadata.storage.CacheAnswers";
/// Differences that are shown; there may be thousands.
const SHOWN_MAX: usize = 10;
/// A topic that has as few questions was not read.
const QUESTIONS_MIN: usize = 200;

/// What Kafka's classes make of a metadata topic that nobody writes to at the moment.
pub(crate) struct Told {
    /// By metadata partition.
    pub(crate) end_offsets: Vec<i64>,
    questions: Vec<Question>,
}

/// A question, and the answer of Kafka's classes.
struct Question {
    about: TopicIdPartition,
    ask: String,
    epoch: Option<i32>,
    offset: Option<i64>,
    answer: Value,
}

impl Told {
    /// Compiled before: see [`crate::PROGRAMS`].
    pub(crate) fn by_java(kafka: &ApacheKafka) -> anyhow::Result<Self> {
        let output =
            block_in_place(|| kafka.tool(PROGRAM, &[&kafka.bootstrap(), strandline_log::METADATA_TOPIC]))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{PROGRAM}: {}\n{stderr}", output.status);
        let (mut end_offsets, mut questions) = (Vec::new(), Vec::new());
        for line in std::str::from_utf8(&output.stdout)?.lines() {
            let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            ensure!(line.get("ends_the_reading").is_none(), "a broker's reading ends at {line}");
            match line.get("end_offsets") {
                Some(ends) => end_offsets = serde_json::from_value(ends.clone())?,
                None => questions.push(Question::parse(&line).with_context(|| line.to_string())?),
            }
        }
        Ok(Self { end_offsets, questions })
    }

    /// The user partitions of which the topic has events.
    pub(crate) fn partitions(&self) -> Vec<TopicIdPartition> {
        let mut partitions: Vec<_> = self.questions.iter().map(|question| question.about.clone()).collect();
        partitions.dedup();
        partitions
    }

    /// Asks a manager the same about every partition, once it has read as far; an answer that differs is an error, which
    /// shows both. The manager serves all of these partitions from here on.
    pub(crate) async fn hold_against<L: LiveMetadataEventLog>(
        &self,
        manager: &TopicBasedRemoteLogMetadataManager<L>,
    ) -> anyhow::Result<()> {
        let partitions = self.partitions();
        manager.on_partition_leadership_changes(&partitions, &[])?;
        for partition in &partitions {
            match manager.wait_until_ready(partition, soon()).await {
                // Deleted: nothing is known of it, as the answers then say.
                Ok(()) | Err(QueryError::NotAssigned(_)) => {}
                Err(error) => return Err(error).context("a manager that catches up"),
            }
        }
        self.is_read_by(manager).await?;
        for status in manager.status() {
            // Kafka's classes took every record.
            ensure!(status.passed_over == 0 && status.stopped.is_none(), "{status:?}");
        }
        let (mut differences, mut count) = (Vec::new(), 0);
        for question in &self.questions {
            let (kafkas, ours) = (settled(&question.ask, &question.answer), question.ask(manager));
            if kafkas != ours {
                count += 1;
                if differences.len() < SHOWN_MAX {
                    differences.push(format!("{question}\n  Kafka: {kafkas}\n  ours:  {ours}"));
                }
            }
        }
        let all = self.questions.len();
        ensure!(all > QUESTIONS_MIN, "{all} questions are too few");
        ensure!(count == 0, "{count} of {all} answers differ:\n{}", differences.join("\n"));
        Ok(())
    }

    async fn is_read_by<L: LiveMetadataEventLog>(
        &self,
        manager: &TopicBasedRemoteLogMetadataManager<L>,
    ) -> anyhow::Result<()> {
        let deadline = soon();
        loop {
            let behind = manager.status().into_iter().find(|status| {
                let end =
                    usize::try_from(status.partition).ok().and_then(|index| self.end_offsets.get(index));
                status.next_offset < end.copied()
            });
            let Some(behind) = behind else { return Ok(()) };
            ensure!(tokio::time::Instant::now() < deadline, "it does not read on: {behind:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Question {
    fn parse(line: &Value) -> anyhow::Result<Self> {
        let number = |name: &str| line.get(name).and_then(Value::as_i64);
        let text =
            |name: &str| line.get(name).and_then(Value::as_str).context("an answer without a question");
        let about = TopicIdPartition {
            topic: text("topic")?.to_owned().into(),
            topic_id: text("topic_id")?.parse()?,
            partition: number("partition").context("no partition")?.try_into()?,
        };
        Ok(Self {
            about,
            ask: text("ask")?.to_owned(),
            epoch: number("epoch").map(i32::try_from).transpose()?,
            offset: number("offset"),
            answer: line.get("answer").context("no answer")?.clone(),
        })
    }

    /// Our answer.
    fn ask<L: LiveMetadataEventLog>(&self, manager: &TopicBasedRemoteLogMetadataManager<L>) -> Value {
        let (about, epoch, offset) = (&self.about, self.epoch.unwrap_or(-7), self.offset.unwrap_or(-7));
        let segments = |list: Vec<_>| json!(list.iter().map(described).collect::<Vec<_>>());
        let index = |ask: fn(&RemoteLogSegmentIndex, i32) -> Value| {
            manager.with_index(about, |index| ask(index, epoch))
        };
        let answer = match &*self.ask {
            "list" => manager.list_remote_log_segments(about).map(segments),
            "epochs" => index(|index, _| json!(index.leader_epochs().collect::<Vec<_>>())),
            "referenced" => index(|index, epoch| ids(index.referenced(epoch).map(|(_, id)| id))),
            "unreferenced" => index(|index, epoch| ids(index.unreferenced(epoch))),
            "highest" => manager.highest_offset_for_epoch(about, epoch).map(|offset| json!(offset)),
            "list_epoch" => manager.list_remote_log_segments_for_epoch(about, epoch).map(segments),
            "size" => manager.remote_log_size(about, epoch).map(|bytes| json!(bytes)),
            "metadata" => manager.remote_log_segment_metadata(about, epoch, offset).map(found),
            "next_txn" => manager.next_segment_with_txn_index(about, epoch, offset).map(found),
            other => panic!("nobody can answer {other}"),
        };
        settled(&self.ask, &answer.unwrap_or_else(|error| json!({ "error": error.kafka_exception() })))
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { about, ask, epoch, offset, .. } = self;
        let TopicIdPartition { topic, topic_id, partition } = about;
        write!(f, "{ask} of {topic}-{partition} ({topic_id})")?;
        epoch.map_or(Ok(()), |epoch| write!(f, ", leader epoch {epoch}"))?;
        offset.map_or(Ok(()), |offset| write!(f, ", offset {offset}"))
    }
}

fn found(segment: Option<RemoteLogSegmentMetadata>) -> Value {
    json!(segment.map(|segment| segment.segment_id().to_string()))
}

fn ids(ids: impl Iterator<Item = strandline_tier::Uuid>) -> Value {
    json!(ids.map(|id| id.to_string()).collect::<Vec<_>>())
}

/// As the Java program describes one.
fn described(segment: &RemoteLogSegmentMetadata) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let epochs = segment.segment_leader_epochs();
    json!([
        segment.segment_id().to_string(),
        segment.start_offset(),
        segment.end_offset(),
        segment.broker_id(),
        segment.max_timestamp_ms(),
        segment.event_timestamp_ms(),
        epochs.map(|entry| json!([entry.epoch, entry.start_offset])).collect::<Vec<_>>(),
        segment.segment_size_in_bytes(),
        segment.custom_metadata().map(hex),
        segment.state().name(),
        segment.txn_index_empty(),
    ])
}

/// An answer with its arbitrary orders settled: that of sets, and in an epoch's list that of segments with one start.
fn settled(ask: &str, answer: &Value) -> Value {
    let Value::Array(entries) = answer else { return answer.clone() };
    let mut entries = entries.clone();
    let by_text = |a: &Value, b: &Value| a.to_string().cmp(&b.to_string());
    match ask {
        "list" | "unreferenced" => entries.sort_by(by_text),
        "list_epoch" => entries.chunk_by_mut(|a, b| a[1] == b[1]).for_each(|run| run.sort_by(by_text)),
        _ => {}
    }
    Value::Array(entries)
}

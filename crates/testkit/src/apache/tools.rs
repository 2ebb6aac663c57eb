//! Kafka's own tools, and what tests do with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::run::{run, run_well, wait_for};
use super::{ApacheKafka, COPY_WITHIN, wire};

const TOOL_WITHIN: Duration = Duration::from_secs(240);
/// ListOffsets' special timestamps.
const LATEST: i64 = -1;
const LAST_TIERED: i64 = -5;
const METADATA_TOPIC: &str = "__remote_log_metadata";
/// A broker with a task interval of a second that has written no event for so long has nothing to do.
const QUIET_FOR: Duration = Duration::from_secs(4);

const FORMATTER: &str = "org.apache.kafka.server.log.remote.metadata.storage.serialization.\
                         RemoteLogMetadataSerde$RemoteLogMetadataFormatter";

impl ApacheKafka {
    /// Compiles a test's own Java programs against Kafka's classes; [`tool`](Self::tool) then runs them.
    ///
    /// Uses the compiler that is a module of the Java runtime, so no JDK has to be there where the runtime has that
    /// module, as Debian's has.
    pub fn compile(&self, sources: &[PathBuf]) -> anyhow::Result<()> {
        let mut java = self.distribution.java(256);
        java.args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d"]).arg(self.classes()).args(sources);
        run_well(&mut java, TOOL_WITHIN).map(drop)
    }

    fn classes(&self) -> PathBuf {
        self.directory.join("classes")
    }

    /// Runs one of Kafka's tools (`org.apache.kafka.tools.TopicCommand`, …), or a program that was
    /// [compiled](Self::compile), and returns what it wrote and how it ended. Its log goes to stderr.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut java = self.distribution.java_and(&self.classes(), 256);
        java.arg(format!("-Dlog4j2.configurationFile={}", self.directory.join("log4j2.yaml").display()));
        run(java.arg(class).args(arguments), TOOL_WITHIN, Some(&self.guard))
    }

    /// Like [`tool`](Self::tool), with `--bootstrap-server` added; a failure is an error that shows what the tool
    /// wrote. Returns its stdout.
    pub fn admin_tool(&self, class: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let bootstrap = self.bootstrap();
        let output = self.tool(class, &[&["--bootstrap-server", bootstrap.as_str()], arguments].concat())?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!(
                "{class} {arguments:?}: {}\n{stdout}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(stdout)
    }

    /// Creates a tiered topic with segments of 1 MiB, the smallest that Kafka allows, and a local retention of
    /// 2 MiB; `configs` come on top of that and win.
    ///
    /// The replication factor is 3 where there are as many brokers, else 1.
    pub fn create_tiered_topic(
        &self,
        topic: &str,
        partitions: u32,
        configs: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let mut all = BTreeMap::from([
            ("remote.storage.enable", "true"),
            ("segment.bytes", "1048576"),
            ("local.retention.bytes", "2097152"),
        ]);
        all.extend(configs.iter().copied());
        let configs: Vec<String> = all.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let partitions = partitions.to_string();
        let replication = if self.options.brokers >= 3 { "3" } else { "1" };
        let mut arguments = vec!["--create", "--topic", topic, "--partitions", &partitions];
        arguments.extend(["--replication-factor", replication]);
        for config in &configs {
            arguments.extend(["--config", config]);
        }
        self.admin_tool("org.apache.kafka.tools.TopicCommand", &arguments).map(drop)
    }

    /// Writes records of that many bytes, spread over the topic's partitions.
    pub fn produce(&self, topic: &str, records: u64, record_bytes: u32) -> anyhow::Result<()> {
        let (records, size) = (records.to_string(), record_bytes.to_string());
        let bootstrap = format!("bootstrap.servers={}", self.bootstrap());
        let mut arguments = vec!["--topic", topic, "--num-records", &records, "--record-size", &size];
        arguments.extend(["--throughput", "-1", "--producer-props", &bootstrap]);
        let output = self.tool("org.apache.kafka.tools.ProducerPerformance", &arguments)?;
        if !output.status.success() {
            bail!("ProducerPerformance: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Waits until every rolled segment of the topic is copied and its copy is recorded as finished. Returns how
    /// many segments' offsets the tier has reached, as the last tiered offset of each partition.
    pub fn wait_until_copied(&self, topic: &str) -> anyhow::Result<BTreeMap<i32, i64>> {
        let what = format!("every rolled segment of {topic} to be copied");
        let copied = wait_for(&what, COPY_WITHIN, || {
            let view = wire::metadata(self.broker(1).ports.plain)?;
            let mut last_tiered = BTreeMap::new();
            for partition in view.topics.get(topic).with_context(|| format!("no topic {topic}"))? {
                let leader = usize::try_from(partition.leader)?;
                let port = self.broker(leader).ports.plain;
                let tiered = wire::list_offset(port, topic, partition.partition, LAST_TIERED)?;
                // The active segment is the one with the highest base offset, and is never copied.
                if tiered + 1 != self.active_segment(leader, topic, partition.partition)? {
                    return Ok(None);
                }
                last_tiered.insert(partition.partition, tiered);
            }
            Ok(Some(last_tiered))
        });
        copied.with_context(|| self.log_ends())
    }

    /// The end offset of each partition of `__remote_log_metadata`, by index.
    pub fn metadata_end_offsets(&self) -> anyhow::Result<Vec<i64>> {
        let view = wire::metadata(self.broker(1).ports.plain)?;
        let mut partitions = view.topics.get(METADATA_TOPIC).context("no metadata topic")?.clone();
        partitions.sort_by_key(|partition| partition.partition);
        let end = |partition: &wire::PartitionView| {
            let port = self.broker(usize::try_from(partition.leader)?).ports.plain;
            wire::list_offset(port, METADATA_TOPIC, partition.partition, LATEST)
        };
        partitions.iter().map(end).collect()
    }

    /// Waits until the brokers have written no event for some turns of their task, so that nothing is on its way.
    pub fn wait_until_quiet(&self) -> anyhow::Result<()> {
        let mut last = (Vec::new(), Instant::now());
        wait_for("the brokers to have nothing to copy or delete", COPY_WITHIN, || {
            let now = self.metadata_end_offsets()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            Ok((last.1.elapsed() > QUIET_FOR).then_some(()))
        })
    }

    /// Every event of the metadata topic up to its present end, as Kafka's own formatter prints it.
    ///
    /// `partition: 1, offset: 0, value: RemoteLogSegmentMetadata{…}`, in no order across partitions.
    pub fn formatted_events(&self) -> anyhow::Result<Vec<String>> {
        let events: i64 = self.metadata_end_offsets()?.iter().sum();
        let events = events.to_string();
        let arguments = ["--topic", METADATA_TOPIC, "--from-beginning", "--max-messages", &events]
            .into_iter()
            .chain(["--timeout-ms", "60000", "--formatter", FORMATTER])
            .collect::<Vec<_>>();
        let stdout = self.admin_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments)?;
        Ok(stdout.lines().map(str::to_owned).collect())
    }

    /// Sets configs of a topic.
    pub fn alter_topic(&self, topic: &str, configs: &[(&str, &str)]) -> anyhow::Result<()> {
        let configs: Vec<String> = configs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let configs = configs.join(",");
        let arguments =
            ["--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", &configs];
        self.admin_tool("kafka.admin.ConfigCommand", &arguments).map(drop)
    }

    /// Deletes the records of a partition below an offset.
    pub fn delete_records(&self, topic: &str, partition: i32, before_offset: i64) -> anyhow::Result<()> {
        let file = self.directory.join("delete-records.json");
        let json = format!(
            r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":{partition},"offset":{before_offset}}}]}}"#
        );
        fs::write(&file, json)?;
        let file = file.to_str().context("a path that is UTF-8")?;
        let class = "org.apache.kafka.tools.DeleteRecordsCommand";
        let stdout = self.admin_tool(class, &["--offset-json-file", file])?;
        ensure!(!stdout.to_lowercase().contains("error"), "{class}: {stdout}");
        Ok(())
    }

    /// The base offset of a partition's active segment in one broker's directory.
    fn active_segment(&self, id: usize, topic: &str, partition: i32) -> anyhow::Result<i64> {
        let directory = self.data_dir(id).join(format!("{topic}-{partition}"));
        let mut highest = None;
        for entry in fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))? {
            let name = entry?.file_name();
            let base = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse::<i64>().ok());
            highest = highest.max(base);
        }
        highest.with_context(|| format!("no segment in {}", directory.display()))
    }
}

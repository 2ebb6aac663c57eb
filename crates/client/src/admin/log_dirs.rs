//! DescribeLogDirs of every broker: each knows its own disks alone.

use std::collections::BTreeMap;

use strandline_meta::routing::Subject;
use strandline_meta::{Call, ErrorCode, ItemAnswer, Routed, SendError};
use strandline_protocol::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
};
use tokio::time::Instant;

use super::{Admin, known};

/// Version that tells a missing right from a disk without partitions.
const CODE_OF_THE_WHOLE: i16 = 3;

/// One log directory of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDir {
    /// The absolute path on the broker.
    pub path: String,
    /// Why the directory is offline; `None` for a good one.
    pub error: Option<ErrorCode>,
    /// Size of the volume in bytes, where the broker tells it.
    pub total_bytes: Option<i64>,
    /// Free space of the volume in bytes, where the broker tells it.
    pub usable_bytes: Option<i64>,
    /// The replicas in it.
    pub replicas: Vec<LogDirReplica>,
}

/// One replica in a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirReplica {
    /// Topic name.
    pub topic: String,
    /// Partition number.
    pub partition: i32,
    /// Bytes of its segments on this disk; what lies in the tier does not count.
    pub size_bytes: i64,
    /// Records that it is behind.
    pub offset_lag: i64,
    /// True for a copy that is being moved here from another directory.
    pub is_future: bool,
}

impl Admin {
    /// The log directories of every broker, with the replicas of `topics` (topic and partitions), or of all topics.
    ///
    /// # Errors
    /// The list of brokers could not be had. Per broker, always named: it cannot be reached until `deadline`, the right to
    /// DESCRIBE the cluster is missing (31), or it is older than Kafka 3.2 and would tell a missing right as an empty disk.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn describe_log_dirs(
        &self,
        topics: Option<&[(String, Vec<i32>)]>,
        deadline: Instant,
    ) -> Result<BTreeMap<i32, Result<Vec<LogDir>, SendError>>, SendError> {
        let view = self.cluster().refresh_topics::<&str>(&[], deadline).await?;
        let brokers: Vec<i32> = view.brokers().map(|broker| broker.node_id).collect();
        let topics = topics.map(|topics| topics.iter().map(described).collect());
        let results = self.cluster().send_each(&DescribeLogDirs { topics }, &brokers, deadline).await?;
        Ok(brokers.into_iter().zip(results).collect())
    }
}

fn described((topic, partitions): &(String, Vec<i32>)) -> DescribableLogDirTopic {
    DescribableLogDirTopic {
        topic: topic.clone(),
        partitions: partitions.clone(),
        ..DescribableLogDirTopic::default()
    }
}

pub(super) struct DescribeLogDirs {
    pub(super) topics: Option<Vec<DescribableLogDirTopic>>,
}

impl Call for DescribeLogDirs {
    type Request = DescribeLogDirsRequest;
    type Item = i32;
    type Answer = Vec<LogDir>;

    fn subject(&self, node_id: &i32) -> Subject {
        Subject::Broker(*node_id)
    }

    fn fits(&self, _item: &i32, version: i16) -> Result<(), String> {
        if version < CODE_OF_THE_WHOLE {
            return Err(format!("version {CODE_OF_THE_WHOLE} is the first to tell a missing right"));
        }
        Ok(())
    }

    fn request(&self, _items: &[Routed<'_, i32>], _version: i16) -> DescribeLogDirsRequest {
        DescribeLogDirsRequest { topics: self.topics.clone(), ..DescribeLogDirsRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, i32>],
        response: DescribeLogDirsResponse,
    ) -> Vec<ItemAnswer<Vec<LogDir>>> {
        let answer = match response.error_code {
            ErrorCode::None => ItemAnswer::Answer(response.results.into_iter().map(log_dir).collect()),
            code => ItemAnswer::Code(code, None),
        };
        vec![answer; items.len()]
    }
}

fn log_dir(result: DescribeLogDirsResult) -> LogDir {
    let replicas = result.topics.into_iter().flat_map(|topic| {
        let name = topic.name;
        topic.partitions.into_iter().map(move |partition| LogDirReplica {
            topic: name.clone(),
            partition: partition.partition_index,
            size_bytes: partition.partition_size,
            offset_lag: partition.offset_lag,
            is_future: partition.is_future_key,
        })
    });
    LogDir {
        path: result.log_dir,
        error: (result.error_code != ErrorCode::None).then_some(result.error_code),
        total_bytes: known(result.total_bytes),
        usable_bytes: known(result.usable_bytes),
        replicas: replicas.collect(),
    }
}

//! The form in memory.

use strandline_log::{InProcessMetadataEventLog, InProcessMetadataTopic};

use crate::Form;

pub(crate) struct InProcess(InProcessMetadataTopic);

impl Form for InProcess {
    type Log = InProcessMetadataEventLog;

    async fn new(partition_count: i32) -> Self {
        Self(InProcessMetadataTopic::with_partitions(partition_count))
    }

    async fn open(&self) -> Self::Log {
        self.0.open()
    }

    async fn open_read_only(&self) -> Self::Log {
        self.0.open_read_only()
    }

    async fn leave_offsets_without_events(&self, partition: i32, count: u32) {
        self.0.skip_offsets(partition, count);
    }

    async fn advance_log_start(&self, partition: i32, offset: i64) {
        self.0.advance_log_start(partition, offset);
    }

    async fn truncate(&self, partition: i32, offset: i64) {
        self.0.truncate(partition, offset);
    }
}

//! From the records of the metadata topic to the view, the same for a cluster and for a disk.

use std::borrow::Borrow;
use std::ops::ControlFlow;

use strandline_audit::{Flags, Position, TierViewBuilder};
use strandline_log::{MetadataEventRecord, MetadataEventVisitor};
use strandline_tier::RecordValue;

use crate::interrupt;
use crate::progress::Progress;

/// How many records pass between two looks at the clock and the signals.
const RECORDS_BETWEEN_LOOKS: u64 = 1024;

/// What the records of one metadata partition become.
pub(crate) struct Visitor<P> {
    pub(crate) builder: TierViewBuilder,
    progress: P,
    records: u64,
}

impl<P: Borrow<Progress>> Visitor<P> {
    pub(crate) fn new(progress: P) -> Self {
        Self { builder: TierViewBuilder::new(), progress, records: 0 }
    }
}

impl<P: Borrow<Progress> + Send> MetadataEventVisitor for Visitor<P> {
    fn visit(&mut self, record: &MetadataEventRecord<'_>) -> ControlFlow<()> {
        let (position, flags) = place(record);
        self.builder.push(position, flags, &RecordValue::from_value(record.value));
        self.records += 1;
        if self.records.is_multiple_of(RECORDS_BETWEEN_LOOKS) {
            self.progress.borrow().add(RECORDS_BETWEEN_LOOKS);
            if interrupt::pending().is_some() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// A record's place and flags, for the view.
fn place(record: &MetadataEventRecord<'_>) -> (Position, Flags) {
    let position = Position {
        metadata_partition: Some(record.partition),
        offset: Some(record.offset),
        timestamp_ms: (record.timestamp_ms >= 0).then_some(record.timestamp_ms),
    };
    let flags =
        Flags { has_key: record.key.is_some(), control: record.control, transactional: record.transactional };
    (position, flags)
}

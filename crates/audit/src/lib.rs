//! Findings: rules over tiered storage metadata, objects and cluster facts. Plain values in, findings out.
//!
//! Start at [`TierViewBuilder`], which is fed the records of the metadata topic and keeps every event, then at
//! [`Facts`], what else is known of the cluster and the store, then at [`audit`], which judges both.
//! [`RULES`] is the one table of rules; each rule is a function in the file of its group (`events.rs`,
//! `segments.rs`, `partitions.rs`, `objects.rs`, `metadata_topic.rs`).
//!
//! Not here: I/O, sockets, clocks (`now_ms` is a parameter), screens. A rule whose facts are absent is listed in
//! [`Report::not_checked`], never passed over in silence.
//!
//! ```
//! use strandline_audit::{Facts, Flags, Limits, Position, TierViewBuilder, audit};
//! use strandline_tier::RecordValue;
//!
//! let mut builder = TierViewBuilder::new();
//! let position = Position { metadata_partition: Some(3), offset: Some(17), timestamp_ms: None };
//! builder.push(position, Flags::default(), &RecordValue::from_value(None));
//! let report = audit(&builder.finish(Some(50)), &Facts::default(), &Limits::default(), 1_700_000_000_000);
//! assert_eq!(report.findings[0].code, "event.poison");
//! assert!(!report.is_clean());
//! ```

mod builder;
mod events;
mod facts;
mod finding;
mod judge;
mod limits;
mod metadata_topic;
mod objects;
mod partitions;
mod placement;
mod readable;
mod rules;
mod segments;
mod subject;
mod view;

pub use builder::{Flags, Position, SegmentContent, TierViewBuilder};
pub use facts::{
    Fact, FactError, Facts, GroupOffsetFact, GroupsFact, LocalSegment, LocalSegmentsFact, LogFact,
    LogStartSource, MetadataTopicFact, NotKnown, ObjectFact, ObjectRole, OpenTransaction, ParsedKey,
    StoreFact, TopicFact, TopicsFact, TruncatedFile,
};
pub use finding::{Evidence, Finding, NotChecked, Report, Severity};
pub use judge::{audit, audit_within};
pub use limits::{LimitError, Limits};
pub use placement::Placement;
pub use readable::{Intervals, Readable, ReadableRange};
pub use rules::{Group, Need, RULES, Recheck, Rule, rule};
pub use view::{
    EventKind, EventView, MetadataPartitionStats, OddRecord, OddValue, Outcome, PartitionView, SegmentView,
    StateCounts, TierView, state_name,
};

#[cfg(test)]
mod tests;

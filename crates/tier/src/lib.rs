//! KIP-405 metadata as values: event types, codec, partitioner, state machines, segment index. No I/O.
//!
//! Start at [`RecordValue::from_value`], which reads a record of the metadata topic, and at [`RawEvent`], what
//! it finds there. [`codec`] has the bytes, [`json`] the lines of an event file. [`RemoteLogSegmentIndex`]
//! answers a broker's questions about one user partition, [`RemotePartitionMetadataStore`] holds the indexes of
//! many, and [`MetadataPartitioner`] says where a user partition's events are.
//!
//! ```
//! use strandline_tier::{RawEvent, RecordValue, RemoteLogSegmentIndex, json};
//!
//! let started = br#"{"kind":"segment_metadata","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders",
//!     "partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","start_offset":0,"end_offset":2047,"broker_id":1,
//!     "max_timestamp_ms":1700000000123,"event_timestamp_ms":1700000001234,"segment_leader_epochs":[[0,0]],
//!     "segment_size_in_bytes":1046336,"custom_metadata":null,"state":"COPY_SEGMENT_STARTED",
//!     "txn_index_empty":false}"#;
//! let finished = br#"{"kind":"segment_metadata_update","topic_id":"vaZwr6blSEWMAbm7z-tW-w","topic":"orders",
//!     "partition":0,"segment_id":"uZ0Wkrd9RjCy4w8cr8Qh5Q","broker_id":1,"event_timestamp_ms":1700000002222,
//!     "custom_metadata":null,"state":"COPY_SEGMENT_FINISHED"}"#;
//!
//! let mut index = RemoteLogSegmentIndex::new();
//! for line in [&started[..], finished] {
//!     match json::parse_event(line)?.1 {
//!         RecordValue::Event(RawEvent::SegmentMetadata(event)) => index.apply_segment_metadata(&event)?,
//!         RecordValue::Event(RawEvent::SegmentMetadataUpdate(event)) => index.apply_segment_update(&event)?,
//!         other => panic!("{other:?}"),
//!     };
//! }
//! let serves = index.remote_log_segment_metadata(0, 1000).expect("the copy is finished");
//! assert_eq!(serves.end_offset(), 2047);
//! assert!(index.remote_log_segment_metadata(0, 2048).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything here is a pure function or structure: nothing waits, nothing reads a clock.

pub mod codec;
mod index;
pub mod json;
mod metadata;
pub mod partitioner;
mod raw;
mod states;
mod store;
mod utf8;

pub use codec::ObjectError;
pub use index::{
    ApplyError, ApplyOutcome, DanglingSegment, NextWithTxnIndex, RemoteLogSegmentIndex,
    RemoteLogSegmentIndexBuilder, RestoreError,
};
pub use metadata::RemoteLogSegmentMetadata;
pub use partitioner::MetadataPartitioner;
pub use raw::{
    EpochEntries, EpochEntry, RawEvent, RawPartitionDelete, RawSegmentMetadata, RawSegmentSnapshot,
    RawSegmentUpdate, RawTopicIdPartition, RecordValue,
};
pub use states::{RemoteLogSegmentState, RemotePartitionDeleteState};
pub use store::{QueryError, RemotePartitionMetadataStore};
pub use strandline_protocol::{ParseUuidError, TopicId, Uuid};

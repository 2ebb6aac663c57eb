//! Appending, event by event, and reading back what was appended.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use strandline_log::{LiveMetadataEventLog, MetadataEventRecord, MetadataRange, PublishError};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::interrupt;
use crate::sources::chain;

/// What became of an event that was to be appended.
#[derive(Debug)]
pub(super) enum Fate {
    /// It is in the log at this offset. Why that could not be seen by reading it back, if it could not.
    Written { offset: i64, not_read_back: Option<String> },
    /// No acknowledgement came: it may be in the log.
    Unknown(PublishError),
    /// It is certainly not in the log.
    NotWritten(PublishError),
    /// It was not tried any more.
    NotTried,
}

/// Events that were appended, or not, and the signal that ended it early.
pub(super) struct Appended {
    /// In the order of the events.
    pub(super) fates: Vec<Fate>,
    /// The signal.
    pub(super) ended_by: Option<Exit>,
}

/// Appends the values to their metadata partitions, each when the one before is acknowledged, and stops at the first that is
/// not. A signal stops it behind the one that is under way. What was appended is then read back.
pub(super) async fn append<L: LiveMetadataEventLog>(
    log: &L,
    values: &[(i32, Bytes)],
    within: Duration,
) -> Appended {
    let mut appended = Appended { fates: Vec::with_capacity(values.len()), ended_by: None };
    for (partition, value) in values {
        appended.ended_by = interrupt::pending();
        if appended.ended_by.is_some() {
            break;
        }
        let fate = match log.publish(*partition, value.clone(), Instant::now() + within).await {
            Ok(offset) => Fate::Written { offset, not_read_back: None },
            Err(error) if error.may_be_written() => Fate::Unknown(error),
            Err(error) => Fate::NotWritten(error),
        };
        let written = matches!(fate, Fate::Written { .. });
        appended.fates.push(fate);
        if !written {
            break;
        }
    }
    appended.fates.resize_with(values.len(), || Fate::NotTried);
    read_back(log, values, &mut appended.fates).await;
    appended
}

/// The values that a reading met, by offset.
type Found = Arc<Mutex<BTreeMap<i64, Option<Bytes>>>>;

/// Reads what was written, and holds it against what was to be written.
async fn read_back<L: LiveMetadataEventLog>(log: &L, values: &[(i32, Bytes)], fates: &mut [Fate]) {
    let mut ranges: BTreeMap<i32, MetadataRange> = BTreeMap::new();
    for ((partition, _), fate) in values.iter().zip(&*fates) {
        let Fate::Written { offset, .. } = fate else { continue };
        let new = MetadataRange { partition: *partition, from: *offset, to: offset.saturating_add(1) };
        let range = ranges.entry(*partition).or_insert(new);
        (range.from, range.to) = (range.from.min(new.from), range.to.max(new.to));
    }
    let mut seen: BTreeMap<i32, (Found, Option<String>)> = BTreeMap::new();
    let visitors = ranges.into_values().map(|range| {
        let found = Found::default();
        seen.insert(range.partition, (Arc::clone(&found), None));
        let visitor = move |record: &MetadataEventRecord<'_>| {
            let value = record.value.map(Bytes::copy_from_slice);
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(record.offset, value);
            ControlFlow::Continue(())
        };
        (range, visitor)
    });
    let visitors: Vec<_> = visitors.collect();
    for visit in log.visit_ranges(visitors).await {
        if let (Some((_, failed)), Some(error)) = (seen.get_mut(&visit.range.partition), visit.error) {
            *failed = Some(chain(&error));
        }
    }
    for ((partition, value), fate) in values.iter().zip(fates) {
        let Fate::Written { offset, not_read_back } = fate else { continue };
        let Some((found, failed)) = seen.get(partition) else { continue };
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        *not_read_back = match found.get(offset) {
            Some(Some(there)) if there == value => None,
            Some(_) => Some("another record is at its offset".to_owned()),
            None => Some(failed.clone().unwrap_or_else(|| "no record is at its offset".to_owned())),
        };
    }
}

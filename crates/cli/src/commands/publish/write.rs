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

/// How long what is under way may take once a signal has asked for an end.
const STOP_MAX: Duration = Duration::from_secs(2);

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
/// not. A signal stops it behind the one that is under way, which is not waited for much longer. What was appended is then
/// read back.
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
        let began = Instant::now();
        let published = tokio::select! {
            published = log.publish(*partition, value.clone(), began + within) => published,
            () = overdue() => {
                Err(PublishError::Unknown { partition: *partition, waited: began.elapsed(), source: None })
            }
        };
        let fate = match published {
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
    appended.ended_by = appended.ended_by.or_else(interrupt::pending);
    appended
}

/// Completes when a signal has asked for an end, and what is under way then has had its time.
pub(super) async fn overdue() {
    interrupt::wait().await;
    tokio::time::sleep(STOP_MAX).await;
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
    tokio::select! {
        visits = log.visit_ranges(visitors) => {
            for visit in visits {
                if let (Some((_, failed)), Some(error)) = (seen.get_mut(&visit.range.partition), visit.error) {
                    *failed = Some(chain(&error));
                }
            }
        }
        () = overdue() => {
            let failed = seen.values_mut().map(|(_, failed)| failed);
            failed.for_each(|failed| *failed = Some("a signal ended the reading back".to_owned()));
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

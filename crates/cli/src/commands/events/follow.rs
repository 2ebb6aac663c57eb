//! `-f` on a cluster: each metadata partition is followed from where the first reading ended.

use std::ops::ControlFlow;
use std::time::Duration;

use strandline_log::{
    LiveMetadataEventLog as _, MetadataAssignment, MetadataDelivery, MetadataEventQueueCapacity, RangeError,
    ReadingState,
};

use super::Stream;
use super::chunk::Chunk;
use super::log::{LiveLog, Reading};
use crate::exit::Failure;
use crate::interrupt;
use crate::output::Incomplete;
use crate::sources::{chain, tell_warning};

/// Most deliveries that are taken at once.
const AT_ONCE_MAX: usize = 1024;

/// How often it is looked whether something hinders the following, and how long it may do so before it is said: a leader
/// that moves takes no longer.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Prints what comes, until a signal, or until no partition is followed any more.
///
/// The log skips nothing by itself. What was removed before it was read, and what was cut off behind it, is said, and the
/// partition goes on where it can; what no reading gets past is said, and ends the following of its partition.
pub(super) fn follow(
    live: &LiveLog<'_>,
    reading: &Reading<'_, LiveLog<'_>>,
    stream: &mut Stream<'_>,
) -> Result<(), Failure> {
    live.live.runtime().block_on(async {
        let mut events = live.log.subscribe(MetadataEventQueueCapacity::default());
        let assignment = events.assignment();
        let mut followed = 0_usize;
        for (partition, from) in &reading.next {
            match assignment.add(*partition, *from) {
                Ok(_) => followed += 1,
                Err(error) => stream.incomplete(Incomplete {
                    what: format!("metadata partition {partition} from offset {from}"),
                    reason: chain(&error),
                }),
            }
        }
        let mut taken = Vec::new();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut hindered = false;
        while followed > 0 {
            let open = tokio::select! {
                open = events.next_many(&mut taken, AT_ONCE_MAX) => open,
                _ = interrupt::wait() => false,
                _ = look.tick() => {
                    tell_hindrance(&assignment, &mut hindered);
                    continue;
                }
            };
            let mut chunk = Chunk::default();
            for delivery in taken.drain(..) {
                match delivery {
                    MetadataDelivery::Record { record, .. } => {
                        chunk.push(&record.as_record());
                    }
                    MetadataDelivery::Stopped { partition, error, .. } => {
                        // What came before it is printed before it is told.
                        reading.print(&std::mem::take(&mut chunk), stream)?;
                        if stopped(&assignment, partition, &error, stream).is_break() {
                            followed -= 1;
                        }
                    }
                    _ => {}
                }
            }
            reading.print(&chunk, stream)?;
            stream.flush()?;
            if !open {
                break;
            }
        }
        events.close().await;
        Ok(())
    })
}

/// Says once that partitions are not heard of, and once that they are again: what passes by itself stops nothing.
fn tell_hindrance(assignment: &MetadataAssignment, told: &mut bool) {
    let partitions = assignment.list();
    let hindrance = |state: &ReadingState| match state {
        ReadingState::Retrying { since, error, .. } if since.elapsed() >= LOOK_EVERY => Some(chain(&**error)),
        _ => None,
    };
    let mut silent = partitions.iter().filter_map(|partition| hindrance(&partition.state));
    match (silent.next(), *told) {
        (Some(error), false) => tell_warning(&format!(
            "{} of {} metadata partitions are not heard of: {error}; they are tried again for as long as it takes",
            1 + silent.count(),
            partitions.len()
        )),
        (None, true) => tell_warning("every metadata partition that is followed is heard of again"),
        (Some(_), true) | (None, false) => return,
    }
    *told = !*told;
}

/// Says why a partition stopped, and lets it go on where that can be; `Break` where it cannot.
fn stopped(
    assignment: &MetadataAssignment,
    partition: i32,
    error: &RangeError,
    stream: &mut Stream<'_>,
) -> ControlFlow<()> {
    assignment.remove(partition);
    let goes_on = match *error {
        RangeError::OffsetOutOfRange { offset, log_start_offset, .. } if offset < log_start_offset => {
            Some(log_start_offset)
        }
        RangeError::OffsetOutOfRange { end_offset, .. } | RangeError::Truncated { end_offset, .. } => {
            Some(end_offset)
        }
        _ => None,
    };
    let goes_on = goes_on.filter(|from| assignment.add(partition, *from).is_ok());
    let (what, then) = match goes_on {
        Some(from) => (
            format!("a part of metadata partition {partition}"),
            format!("; it is followed from offset {from} on"),
        ),
        None => (
            format!("the rest of metadata partition {partition}"),
            "; it is not followed any more".to_owned(),
        ),
    };
    stream.incomplete(Incomplete { what, reason: format!("{}{then}", chain(error)) });
    match goes_on {
        Some(_) => ControlFlow::Continue(()),
        None => ControlFlow::Break(()),
    }
}

//! The running reading: what comes of all followed metadata partitions is applied here, record by record.

use std::sync::Arc;

use strandline_log::{LiveMetadataEventLog, MetadataDelivery, MetadataEventSubscription, RangeError};

use crate::backoff::Backoff;
use crate::metadata_partition::MetadataPartition;
use crate::topic_based::Shared;

/// Deliveries taken at once.
const DELIVERIES_MAX: usize = 256;

pub(crate) async fn run<L: LiveMetadataEventLog>(
    shared: Arc<Shared<L>>,
    mut events: MetadataEventSubscription,
) {
    let mut deliveries = Vec::with_capacity(DELIVERIES_MAX);
    while events.next_many(&mut deliveries, DELIVERIES_MAX).await {
        for delivery in deliveries.drain(..) {
            let Some(partition) = shared.metadata_partition(delivery.partition()) else { continue };
            let mut reading = partition.lock();
            if reading.assignment != Some(delivery.assignment()) {
                // Of a reading that was ended while this lay here.
                continue;
            }
            match delivery {
                MetadataDelivery::Record { record, .. } => {
                    let deleted = reading.take(record.partition, &record);
                    drop(reading);
                    if let Some(user) = deleted {
                        shared.forget(&user);
                    }
                }
                MetadataDelivery::Advanced { next_offset, .. } => reading.advance(next_offset),
                MetadataDelivery::Stopped { error, .. } => {
                    drop(reading);
                    stopped(&shared, partition, error);
                }
                _ => {}
            }
        }
    }
}

/// What the manager does about a reading that has stopped.
fn stopped<L: LiveMetadataEventLog>(
    shared: &Arc<Shared<L>>,
    metadata_partition: &Arc<MetadataPartition>,
    error: Arc<RangeError>,
) {
    let partition = metadata_partition.partition;
    match *error {
        // What was read is not what the log holds, or something is missing between: begin again.
        RangeError::OffsetOutOfRange { .. } | RangeError::Truncated { .. } => {
            shared.read_anew(metadata_partition, &error);
        }
        // Offsets of another topic mean nothing. What is known stays, as a broker's cache does; nothing is written.
        RangeError::Recreated { .. } => {
            tracing::error!(partition, error = ?error, "the metadata topic is not the one that was opened");
            metadata_partition.lock().stopped = Some(error);
        }
        // What can be repaired, or passes: a damaged replica whose leader moves, a right that comes back.
        _ => {
            tracing::warn!(partition, error = ?error, "the metadata partition is not read for now");
            let mut reading = metadata_partition.lock();
            let tries = reading.stops_in_a_row;
            reading.stops_in_a_row = tries.saturating_add(1);
            reading.stopped = Some(Arc::clone(&error));
            drop(reading);
            let (shared_too, metadata_partition) = (Arc::clone(shared), Arc::clone(metadata_partition));
            shared.spawn(async move {
                Backoff::after(&shared_too.config, tries).wait().await;
                let mut reading = metadata_partition.lock();
                let unchanged = reading.stopped.as_ref().is_some_and(|stopped| Arc::ptr_eq(stopped, &error));
                if let (true, Some(position)) = (unchanged, reading.position) {
                    shared_too.follow(&mut reading, partition, position);
                }
            });
        }
    }
}

//! Writing an event, and waiting until it is read back.

use std::sync::Arc;

use bytes::Bytes;
use strandline_log::{LiveMetadataEventLog, RangeError};
use strandline_tier::{RawEvent, RemoteLogSegmentState, codec};
use tokio::time::{Instant, timeout_at};

use crate::TopicIdPartition;
use crate::errors::{Partition, RefusedWrite, WriteError, WriteOutcome, Written};
use crate::metadata_partition::{Claim, MetadataPartition, NotSeen};
use crate::topic_based::Shared;
use crate::user_partition::UserPartition;

impl<L: LiveMetadataEventLog> Shared<L> {
    /// Writes an event that was checked.
    pub(crate) async fn write(
        &self,
        partition: &TopicIdPartition,
        mut event: RawEvent<'static>,
        deadline: Instant,
    ) -> Result<Written, WriteError> {
        let began = Instant::now();
        let not_assigned = || match self.is_closed() {
            true => WriteError::Closed,
            false => WriteError::NotAssigned(Partition(partition.clone())),
        };
        let user = self.user(partition).ok_or_else(not_assigned)?;
        match timeout_at(deadline, user.ready()).await {
            Ok(true) => {}
            Ok(false) => return Err(not_assigned()),
            Err(_) => {
                let (partition, waited) = (Partition(partition.clone()), began.elapsed());
                return Err(WriteError::NotReady { partition, waited });
            }
        }
        let metadata_partition = self.metadata_partition(user.metadata_partition).ok_or_else(not_assigned)?;
        keep_custom_metadata(&user, &mut event);
        let mut value = Vec::new();
        codec::encode(&event, &mut value).map_err(RefusedWrite::Encode)?;
        let expected = Expected::new(metadata_partition, value.into())?;
        let value = expected.value.clone();
        let offset = self.log.publish(metadata_partition.partition, value, deadline).await?;
        let outcome = expected.outcome(&user, offset, began, deadline).await?;
        Ok(Written { metadata_partition: metadata_partition.partition, offset, outcome })
    }
}

/// Java's readers forget a segment's custom metadata with an update that has none, and then cannot delete its objects.
fn keep_custom_metadata(user: &UserPartition, event: &mut RawEvent<'static>) {
    let RawEvent::SegmentMetadataUpdate(update) = event else { return };
    let deletes = [RemoteLogSegmentState::DeleteSegmentStarted, RemoteLogSegmentState::DeleteSegmentFinished];
    if update.custom_metadata.is_none() && deletes.iter().any(|state| state.id() == update.state_id) {
        let state = user.read();
        let segment = state.index.segment(update.segment_id);
        let custom_metadata = segment.and_then(|segment| segment.custom_metadata());
        update.custom_metadata = custom_metadata.map(|bytes| bytes.to_vec().into());
    }
}

/// An event on its way. From here until this is dropped the reading keeps what it made of such an event, so that an
/// acknowledgement that comes later than the event itself finds it.
struct Expected<'m> {
    metadata_partition: &'m MetadataPartition,
    value: Bytes,
}

impl<'m> Expected<'m> {
    fn new(metadata_partition: &'m MetadataPartition, value: Bytes) -> Result<Self, WriteError> {
        let mut reading = metadata_partition.lock();
        // A stop that passes is waited for; after this one nothing can be read back any more.
        if let Some(error) = &reading.stopped
            && matches!(**error, RangeError::Recreated { .. })
        {
            let (metadata_partition, source) = (metadata_partition.partition, Arc::clone(error));
            return Err(WriteError::ReadingStopped { metadata_partition, source });
        }
        reading.expect(&value);
        drop(reading);
        Ok(Self { metadata_partition, value })
    }

    async fn outcome(
        &self,
        user: &Arc<UserPartition>,
        offset: i64,
        began: Instant,
        deadline: Instant,
    ) -> Result<WriteOutcome, WriteError> {
        let metadata_partition = self.metadata_partition.partition;
        let claim = self.metadata_partition.lock().claim(user, &self.value, offset);
        let seen = match claim {
            Claim::Seen(outcome) => Ok(outcome),
            Claim::NotSeen(reason) => Err(reason),
            Claim::Wait(answer) => {
                let waiting = Waiting { expected: self, offset };
                let answer = timeout_at(deadline, answer).await;
                drop(waiting);
                match answer {
                    Ok(seen) => seen.unwrap_or(Err(NotSeen::Unassigned)),
                    Err(_) => {
                        let waited = began.elapsed();
                        return Err(WriteError::NotReadBack { metadata_partition, offset, waited });
                    }
                }
            }
        };
        seen.map_err(|reason| match reason {
            NotSeen::Unassigned => WriteError::Unassigned { partition: Partition(user.id.clone()), offset },
            NotSeen::ReadAnew => WriteError::ReadAnew { metadata_partition, offset },
        })
    }
}

/// A writer that waits for its event; dropped, it waits no more.
struct Waiting<'w, 'm> {
    expected: &'w Expected<'m>,
    offset: i64,
}

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        self.expected.metadata_partition.lock().forget_waiter(self.offset);
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.metadata_partition.lock().expect_no_more(&self.value);
    }
}

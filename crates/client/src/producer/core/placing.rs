//! Which request a batch goes into, and what is done where the view names no leader for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use strandline_meta::{ErrorCode, Recovery, RefreshError, SendError};
use strandline_protocol::records::Producer;
use tokio::time::Instant;

use super::{Core, Part, Place, Refresh};
use crate::producer::errors::ProduceErrorKind;
use crate::producer::partition::Status;

/// So many answers in a row that a topic or partition does not exist make it final. One may come from a broker that has not
/// heard of it yet.
const ABSENT_ANSWERS: u32 = 2;

/// The requests that one [`Core::poll`] makes.
#[derive(Default)]
pub(super) struct Departure {
    pub(super) requests: BTreeMap<u64, (i32, Vec<Part>, Vec<usize>)>,
    /// The request of each broker that still has room, and the bytes in it.
    open: HashMap<i32, (u64, usize)>,
}

/// Why a partition has no leader to send to.
pub(super) enum Unplaced {
    Refresh { repair: bool },
    Final(ProduceErrorKind),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Absence {
    Passes,
    /// Final, once enough answers said so.
    AfterAnswers,
    Final,
}

impl<W> Core<W> {
    /// What the view says of a partition, and what follows from it.
    pub(super) fn judge_place(
        &mut self,
        now: Instant,
        at: usize,
        placed: Result<Place, SendError>,
        refreshes: &mut Vec<Refresh>,
    ) -> Result<Place, Unplaced> {
        let partition = &mut self.partitions[at];
        let known = self.topics.get_mut(&partition.topic).map(|topic| &mut topic.id);
        let bound = known.as_ref().and_then(|id| **id);
        let error = match placed {
            Ok(place) => {
                match (known, place.topic_id) {
                    (Some(Some(known)), Some(now)) if *known != now => {
                        let (known, now) = (*known, Some(now));
                        return Err(Unplaced::Final(ProduceErrorKind::Recreated { known, now }));
                    }
                    (Some(known @ None), Some(id)) => *known = Some(id),
                    _ => {}
                }
                // A hint may have moved the leader already. It is believed once: who is refused twice asks.
                let refused_by = partition.refused_by.take();
                if refused_by.is_some_and(|node_id| node_id == place.node_id || partition.failures > 1) {
                    return Err(Unplaced::Refresh { repair: true });
                }
                (partition.looked_up, partition.absent) = (false, 0);
                if refused_by.is_some() {
                    // The view was old, whoever is right: it is refreshed beside the next try.
                    join(refreshes, true, &partition.topic);
                }
                return Ok(place);
            }
            Err(error) => error,
        };
        partition.refused_by = None;
        let looked_up = std::mem::take(&mut partition.looked_up);
        let absence = match &error {
            SendError::NoSuchPartition { partition, .. } if *partition < 0 => Absence::Final,
            SendError::NoSuchPartition { .. } => Absence::AfterAnswers,
            SendError::Topic { code: ErrorCode::LeaderNotAvailable, .. } => Absence::Passes,
            SendError::Topic { code, .. } => match Recovery::of(*code) {
                Recovery::RefreshMetadata | Recovery::Retry => Absence::AfterAnswers,
                // What was said before the record came is asked once more: rights change.
                _ if looked_up => Absence::Final,
                _ => Absence::Passes,
            },
            _ => Absence::Passes,
        };
        partition.absent += u32::from(looked_up && absence == Absence::AfterAnswers);
        let last = Arc::new(error);
        partition.last = Some(Arc::clone(&last));
        if absence == Absence::Final || partition.absent >= ABSENT_ANSWERS {
            partition.absent = 0;
            return Err(Unplaced::Final(match (bound, &*last) {
                (Some(known), SendError::Topic { code: ErrorCode::UnknownTopicOrPartition, .. }) => {
                    ProduceErrorKind::Recreated { known, now: None }
                }
                _ => ProduceErrorKind::Cluster { source: last },
            }));
        }
        if looked_up {
            self.back_off(now, at);
        }
        Err(Unplaced::Refresh { repair: false })
    }

    /// Puts the first batch of a partition into a request to its leader, or lets it wait for one.
    pub(super) fn board(&mut self, at: usize, place: Place, departure: &mut Departure) {
        let partition = &mut self.partitions[at];
        let known = self.producer_id.known;
        let fresh = known.map(|(id, epoch)| Producer { id, epoch, base_sequence: 0 });
        let Some(head) = partition.queue.front() else { return };
        let (size, next) = (head.size_bytes(), head.producer.or(partition.sequence).or(fresh));
        let Some(producer) = next else {
            partition.status = Status::AwaitingId;
            self.producer_id.awaited_by.push(at);
            return;
        };
        let in_flight = self.in_flight.entry(place.node_id).or_default();
        let open = departure
            .open
            .get(&place.node_id)
            .copied()
            .filter(|(_, bytes)| bytes.saturating_add(size) <= self.config.max_request_size);
        let number = match open {
            Some((number, _)) => number,
            None if *in_flight < self.config.max_in_flight_requests => {
                *in_flight += 1;
                self.next_request += 1;
                departure.requests.insert(self.next_request, (place.node_id, Vec::new(), Vec::new()));
                self.next_request
            }
            None => {
                partition.status = Status::Blocked;
                self.blocked.entry(place.node_id).or_default().push(at);
                return;
            }
        };
        let bytes = open.map_or(0, |(_, bytes)| bytes);
        departure.open.insert(place.node_id, (number, bytes.saturating_add(size)));
        partition.sequence.get_or_insert(producer);
        let Some(part) = partition.take_off(producer, place.topic_id) else { return };
        if let Some((_, parts, partitions)) = departure.requests.get_mut(&number) {
            parts.push(part);
            partitions.push(at);
        }
    }

    pub(super) fn await_refresh(
        &mut self,
        now: Instant,
        at: usize,
        repair: bool,
        refreshes: &mut Vec<Refresh>,
    ) {
        if repair && self.partitions[at].not_before.is_none_or(|not_before| not_before <= now) {
            let failures = self.partitions[at].failures;
            self.partitions[at].not_before = Some(now + self.wait(failures));
        }
        let partition = &mut self.partitions[at];
        partition.status = Status::Refreshing;
        join(refreshes, repair, &partition.topic).partitions.push(at);
    }

    /// The view was refreshed for these partitions, or could not be.
    pub(in crate::producer) fn refreshed(
        &mut self,
        now: Instant,
        partitions: &[usize],
        result: Result<(), RefreshError>,
    ) {
        let failure = result.err().map(|error| Arc::new(SendError::Refresh(error)));
        for at in partitions.iter().copied() {
            self.partitions[at].status = Status::Idle;
            match &failure {
                None => self.partitions[at].looked_up = true,
                Some(error) => {
                    self.partitions[at].last = Some(Arc::clone(error));
                    match error.recovery() {
                        Recovery::Authenticate | Recovery::Forbidden => {
                            let source = Arc::clone(error);
                            self.refuse_queue(at, &ProduceErrorKind::Cluster { source });
                        }
                        _ => self.back_off(now, at),
                    }
                }
            }
            self.settle(now, at);
        }
    }
}

/// The refresh of that kind, with this topic in it.
fn join<'a>(refreshes: &'a mut Vec<Refresh>, repair: bool, topic: &Arc<str>) -> &'a mut Refresh {
    let at = refreshes.iter().position(|refresh| refresh.repair == repair).unwrap_or_else(|| {
        refreshes.push(Refresh { repair, topics: Vec::new(), partitions: Vec::new() });
        refreshes.len() - 1
    });
    let refresh = &mut refreshes[at];
    if !refresh.topics.contains(topic) {
        refresh.topics.push(Arc::clone(topic));
    }
    refresh
}

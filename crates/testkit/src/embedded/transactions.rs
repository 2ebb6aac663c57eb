//! Transactions as their coordinator keeps them: a state machine that owns no log. What it decides about partitions it gives
//! back as markers to write.
//!
//! Here markers are written at once, so the states in between (PrepareCommit, PrepareAbort) are seen only where a test sets them.
//!
//! Source: `TransactionCoordinator`, `TransactionMetadata`; KIP-98, KIP-360, KIP-890.

use strandline_protocol::ErrorCode;

/// Kafka's default of `transaction.max.timeout.ms`.
const TIMEOUT_MS_MAX: i32 = 900_000;

/// No epoch is above it: the next is of another producer id.
///
/// Source: `TransactionMetadata#isEpochExhausted`.
const EPOCH_MAX: i16 = i16::MAX - 1;

/// A transaction as its coordinator tells of it.
#[derive(Clone, Debug)]
pub(crate) struct TransactionState {
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    /// The epoch before the last bump; -1 for none. Who repeats a request with it has lost an answer.
    pub(crate) last_epoch: i16,
    /// As Kafka spells it: `Empty`, `Ongoing`, `CompleteAbort`, …
    pub(crate) state: String,
    /// -1 where no transaction was begun since the last initialisation.
    pub(crate) start_ms: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) partitions: Vec<(String, i32)>,
}

/// What ends a transaction in its partitions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Markers {
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) commit: bool,
    pub(crate) partitions: Vec<(String, i32)>,
}

/// True if a producer may ask for this timeout.
pub(crate) fn is_valid_timeout(timeout_ms: i32) -> bool {
    (1..=TIMEOUT_MS_MAX).contains(&timeout_ms)
}

impl TransactionState {
    pub(crate) fn new(producer_id: i64, timeout_ms: i32) -> Self {
        Self {
            producer_id,
            producer_epoch: 0,
            last_epoch: -1,
            state: "Empty".to_owned(),
            start_ms: -1,
            timeout_ms,
            partitions: Vec::new(),
        }
    }

    fn is(&self, states: &[&str]) -> bool {
        states.contains(&self.state.as_str())
    }

    /// A producer begins anew under this transactional id. `known` is what it knows of itself, `next_id` a producer id
    /// that nobody has.
    ///
    /// An open transaction is aborted, and the producer has to ask again: CONCURRENT_TRANSACTIONS with markers.
    pub(crate) fn initialise(
        &mut self,
        known: Option<(i64, i16)>,
        timeout_ms: i32,
        next_id: impl FnOnce() -> i64,
    ) -> Result<(), (ErrorCode, Option<Markers>)> {
        if known.is_some_and(|(id, _)| id != self.producer_id) {
            return Err((ErrorCode::ProducerFenced, None));
        }
        if self.is(&["PrepareCommit", "PrepareAbort"]) {
            return Err((ErrorCode::ConcurrentTransactions, None));
        }
        let epoch = known.map(|(_, epoch)| epoch);
        if epoch.is_some_and(|epoch| epoch != self.producer_epoch && epoch != self.last_epoch) {
            return Err((ErrorCode::ProducerFenced, None));
        }
        if self.is(&["Ongoing"]) {
            self.producer_epoch += 1;
            return Err((ErrorCode::ConcurrentTransactions, Some(self.complete(false))));
        }
        // Who knows the epoch before has lost the answer that told the present one.
        if epoch.is_none_or(|epoch| epoch == self.producer_epoch) {
            self.last_epoch = epoch.unwrap_or(-1);
            self.bump(next_id);
        }
        self.state = "Empty".to_owned();
        (self.start_ms, self.timeout_ms) = (-1, timeout_ms);
        self.partitions.clear();
        Ok(())
    }

    fn bump(&mut self, next_id: impl FnOnce() -> i64) {
        if self.producer_epoch >= EPOCH_MAX {
            (self.producer_id, self.producer_epoch) = (next_id(), 0);
        } else {
            self.producer_epoch += 1;
        }
    }

    /// Source: `TransactionCoordinator#handleAddPartitionsToTransaction`.
    pub(crate) fn check_producer(&self, id: i64, epoch: i16) -> Result<(), ErrorCode> {
        if id != self.producer_id {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        if epoch != self.producer_epoch {
            return Err(ErrorCode::ProducerFenced);
        }
        Ok(())
    }

    /// Takes partitions into the transaction, which begins with the first.
    pub(crate) fn add(&mut self, partitions: &[(String, i32)], now_ms: i64) -> Result<(), ErrorCode> {
        if self.is(&["PrepareCommit", "PrepareAbort"]) {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        if !self.is(&["Ongoing"]) {
            self.state = "Ongoing".to_owned();
            self.start_ms = now_ms;
            self.partitions.clear();
        }
        for partition in partitions {
            if !self.partitions.contains(partition) {
                self.partitions.push(partition.clone());
            }
        }
        Ok(())
    }

    /// Ends the transaction for the producer that began it. With `bumps` (a client that knows KIP-890) each end gives the
    /// producer its next epoch, and aborting nothing is an end as well.
    pub(crate) fn end(
        &mut self,
        (id, epoch): (i64, i16),
        commit: bool,
        bumps: bool,
        next_id: impl FnOnce() -> i64,
    ) -> Result<Option<Markers>, ErrorCode> {
        if id != self.producer_id {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        // Whose answer was lost sends the epoch that the end has left behind.
        let repeated = bumps && epoch >= 0 && epoch == self.last_epoch && !self.is(&["Ongoing"]);
        if epoch != self.producer_epoch && !repeated {
            return Err(ErrorCode::ProducerFenced);
        }
        match (self.state.as_str(), commit) {
            ("Ongoing", _) => {
                if bumps {
                    self.last_epoch = epoch;
                    self.bump(next_id);
                }
                Ok(Some(self.complete(commit)))
            }
            ("CompleteCommit", true) | ("CompleteAbort", false) if repeated || !bumps => Ok(None),
            ("Empty" | "CompleteCommit" | "CompleteAbort", false) if bumps && !repeated => {
                self.last_epoch = epoch;
                self.bump(next_id);
                Ok(Some(self.complete(false)))
            }
            ("PrepareCommit", true) | ("PrepareAbort", false) => Err(ErrorCode::ConcurrentTransactions),
            _ => Err(ErrorCode::InvalidTxnState),
        }
    }

    fn complete(&mut self, commit: bool) -> Markers {
        self.state = if commit { "CompleteCommit" } else { "CompleteAbort" }.to_owned();
        Markers {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            commit,
            partitions: std::mem::take(&mut self.partitions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_id_whose_epochs_are_used_up_gives_way_to_another() {
        let mut transaction = TransactionState::new(7, 60_000);
        transaction.producer_epoch = EPOCH_MAX;
        assert_eq!(transaction.initialise(Some((7, EPOCH_MAX)), 60_000, || 8), Ok(()));
        assert_eq!((transaction.producer_id, transaction.producer_epoch), (8, 0));
    }

    #[test]
    fn what_is_being_ended_is_neither_begun_anew_nor_added_to() {
        let mut transaction = TransactionState::new(7, 60_000);
        transaction.state = "PrepareCommit".to_owned();
        let concurrent = ErrorCode::ConcurrentTransactions;
        assert_eq!(transaction.initialise(None, 60_000, || 8), Err((concurrent, None)));
        assert_eq!(transaction.add(&[("orders".to_owned(), 0)], 0), Err(concurrent));
        assert_eq!(transaction.end((7, 0), true, true, || 8), Err(concurrent));
        assert_eq!(transaction.end((7, 0), false, true, || 8), Err(ErrorCode::InvalidTxnState));
    }
}

//! Which batches of a Fetch answer belong to transactions that were aborted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use strandline_protocol::messages::fetch::AbortedTransaction;
use strandline_protocol::records::{Batch, BatchError, Decompressor};

/// The type in a transaction marker's key. Source: `org.apache.kafka.common.record.ControlRecordType`.
const ABORT: i16 = 0;

/// Follows one answer, batch by batch, in the order of offsets.
///
/// The broker lists every aborted transaction that reaches into the answer, in no order that could be relied on. From its
/// first offset on, batches of its producer are aborted, up to the marker. A marker whose transaction is not in the list
/// changes nothing: the transaction began and ended below the answer, or had no records here.
/// Source: `org.apache.kafka.clients.consumer.internals.CompletedFetch`.
#[derive(Debug, Default)]
pub(super) struct AbortedTransactions {
    /// First offset and producer of those that have not begun yet, the lowest first.
    ahead: BinaryHeap<Reverse<(i64, i64)>>,
    /// Producers whose transaction is open here, and was aborted.
    open: HashSet<i64>,
}

impl AbortedTransactions {
    pub(super) fn new(listed: &[AbortedTransaction]) -> Self {
        let ahead = listed.iter().map(|aborted| Reverse((aborted.first_offset, aborted.producer_id)));
        Self { ahead: ahead.collect(), open: HashSet::new() }
    }

    /// True if the records of this data batch were aborted.
    pub(super) fn is_aborted(&mut self, batch: &Batch<'_>) -> bool {
        self.reach(batch);
        let header = &batch.header;
        header.attributes.is_transactional() && self.open.contains(&header.producer_id)
    }

    /// Takes note of a control batch: an abort marker ends its producer's transaction.
    pub(super) fn control(
        &mut self,
        batch: &Batch<'_>,
        decompressor: &mut Decompressor,
    ) -> Result<(), BatchError> {
        self.reach(batch);
        // Compaction may have taken the marker out of its batch; then nothing below it is left to be aborted.
        let Some(marker) = batch.records(decompressor)?.next().transpose()? else { return Ok(()) };
        if marker.key.and_then(control_type) == Some(ABORT) {
            self.open.remove(&batch.header.producer_id);
        }
        Ok(())
    }

    fn reach(&mut self, batch: &Batch<'_>) {
        let next_offset = batch.header.next_offset();
        while let Some(Reverse((_, producer))) =
            self.ahead.peek().copied().filter(|Reverse((first, _))| *first < next_offset)
        {
            self.ahead.pop();
            self.open.insert(producer);
        }
    }
}

/// The type of a control record: the second of the two numbers in its key.
fn control_type(key: &[u8]) -> Option<i16> {
    Some(i16::from_be_bytes(*key.get(2..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use strandline_protocol::records::{BatchBuilder, BatchOptions, Batches, NewRecord, Producer};

    use super::*;

    fn batch(base_offset: i64, producer: i64, marker: Option<&[u8]>) -> Vec<u8> {
        let mut batch = BatchBuilder::new(BatchOptions {
            base_offset,
            producer: Some(Producer { id: producer, epoch: 0, base_sequence: -1 }),
            transactional: true,
            control: marker.is_some(),
            ..BatchOptions::default()
        });
        batch.push(NewRecord { key: marker, ..NewRecord::default() }).unwrap();
        let mut bytes = Vec::new();
        batch.finish(&mut bytes).unwrap();
        bytes
    }

    fn listed(entries: &[(i64, i64)]) -> AbortedTransactions {
        let entry = |(producer_id, first_offset): &(i64, i64)| AbortedTransaction {
            producer_id: *producer_id,
            first_offset: *first_offset,
            ..AbortedTransaction::default()
        };
        AbortedTransactions::new(&entries.iter().map(entry).collect::<Vec<_>>())
    }

    fn is_aborted(transactions: &mut AbortedTransactions, bytes: &[u8]) -> bool {
        transactions.is_aborted(&Batches::new(bytes).next().unwrap().unwrap())
    }

    fn control(transactions: &mut AbortedTransactions, bytes: &[u8]) {
        let batch = Batches::new(bytes).next().unwrap().unwrap();
        transactions.control(&batch, &mut Decompressor::default()).unwrap();
    }

    #[test]
    fn the_list_counts_in_the_order_of_offsets_however_it_comes() {
        let mut transactions = listed(&[(1, 20), (2, 5), (1, 0)]);
        assert!(is_aborted(&mut transactions, &batch(0, 1, None)));
        assert!(!is_aborted(&mut transactions, &batch(1, 2, None)), "its aborted transaction begins at 5");
        assert!(is_aborted(&mut transactions, &batch(5, 2, None)));
        control(&mut transactions, &batch(6, 1, Some(&[0, 0, 0, 0])));
        assert!(!is_aborted(&mut transactions, &batch(7, 1, None)), "its next transaction is committed");
        control(&mut transactions, &batch(8, 1, Some(&[0, 0, 0, 1])));
        assert!(is_aborted(&mut transactions, &batch(20, 1, None)));
        assert!(is_aborted(&mut transactions, &batch(21, 2, None)), "no marker has ended it");
    }

    #[test]
    fn markers_without_an_entry_with_odd_keys_and_without_records_change_nothing() {
        let mut transactions = listed(&[(1, 0)]);
        control(&mut transactions, &batch(0, 9, Some(&[0, 0, 0, 0])));
        for key in [&[][..], &[0], &[0, 0, 0], &[0, 0, 0, 7]] {
            control(&mut transactions, &batch(1, 1, Some(key)));
        }
        let mut bytes = Vec::new();
        let options = BatchOptions { base_offset: 2, control: true, ..BatchOptions::default() };
        BatchBuilder::new(options).finish(&mut bytes).unwrap();
        control(&mut transactions, &bytes);
        assert!(is_aborted(&mut transactions, &batch(3, 1, None)));
    }
}

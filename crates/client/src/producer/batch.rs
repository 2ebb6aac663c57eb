//! Records of one partition that travel together, with those who wait for their answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use strandline_protocol::records::{
    BatchBuilder, BatchOptions, Batches, BuildError, Compression, Decompressor, NewRecord, Producer,
};
use tokio::time::Instant;

/// One batch. `W` is who waits for a record's answer.
#[derive(Debug)]
pub(super) struct Batch<W> {
    pub(super) records: Arc<BatchBuilder>,
    /// One for each record, in their order.
    pub(super) waiters: Vec<W>,
    /// When its first record was accepted.
    pub(super) accepted_at: Instant,
    /// Which flush it belongs to.
    pub(super) generation: u64,
    /// Under which sequence it was sent first. It keeps it, so that a broker knows it again.
    pub(super) producer: Option<Producer>,
    /// It takes no further records.
    pub(super) sealed: bool,
    /// Some try ended such that the broker may have appended it.
    pub(super) in_doubt: bool,
    /// The numbers of records that were taken back: they are left out before the batch is sent.
    pub(super) taken_back: BTreeSet<usize>,
    compression: Compression,
}

impl<W> Batch<W> {
    pub(super) fn new(compression: Compression, accepted_at: Instant, generation: u64) -> Self {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        Self {
            records: Arc::new(BatchBuilder::new(options)),
            waiters: Vec::new(),
            accepted_at,
            generation,
            producer: None,
            sealed: false,
            in_doubt: false,
            taken_back: BTreeSet::new(),
            compression,
        }
    }

    pub(super) fn push(&mut self, record: NewRecord<'_>, waiter: W) -> Result<(), BuildError> {
        // Nobody else holds the records of a batch that is not sealed.
        Arc::make_mut(&mut self.records).push(record)?;
        self.waiters.push(waiter);
        Ok(())
    }

    /// Bytes before compression.
    pub(super) fn size_bytes(&self) -> usize {
        self.records.size_bytes()
    }

    /// How many sequence numbers it takes, also when its records were answered already.
    pub(super) fn record_count(&self) -> usize {
        self.records.record_count()
    }

    /// What is left of a batch that somebody else has taken over.
    pub(super) fn take(&mut self) -> Self {
        let empty = Self::new(self.compression, self.accepted_at, self.generation);
        std::mem::replace(self, empty)
    }

    /// Two batches that were never sent: of the records whose number `first` accepts, and of the others.
    ///
    /// # Errors
    /// The batch as it was, which cannot be encoded.
    pub(super) fn divide(
        mut self,
        first: impl Fn(usize) -> bool,
    ) -> Result<(Self, Self), Box<(Self, BuildError)>> {
        let part = || Self::new(self.compression, self.accepted_at, self.generation);
        let mut parts = (part(), part());
        if let Err(error) = self.divide_records(&first, &mut parts) {
            return Err(Box::new((self, error)));
        }
        for (number, waiter) in self.waiters.drain(..).enumerate() {
            let part = if first(number) { &mut parts.0 } else { &mut parts.1 };
            part.waiters.push(waiter);
        }
        (parts.0.sealed, parts.1.sealed) = (true, true);
        Ok(parts)
    }

    fn divide_records(
        &self,
        first: &impl Fn(usize) -> bool,
        parts: &mut (Self, Self),
    ) -> Result<(), BuildError> {
        let mut bytes = Vec::new();
        self.records.finish(&mut bytes)?;
        let mut decompressor = Decompressor::new(self.size_bytes());
        let batch = Batches::new(&bytes).next().expect("there is the batch").expect("it was just written");
        let records = batch.records(&mut decompressor).expect("it was just written");
        for (number, record) in records.enumerate() {
            let record = record.expect("it was just written");
            let key = |key| std::str::from_utf8(key).expect("it was a str");
            let headers: Vec<(&str, Option<&[u8]>)> =
                record.headers.map(|header| (key(header.key), header.value)).collect();
            let record = NewRecord {
                timestamp_ms: record.timestamp_ms,
                key: record.key,
                value: record.value,
                headers: &headers,
            };
            let part = if first(number) { &mut parts.0 } else { &mut parts.1 };
            Arc::make_mut(&mut part.records).push(record)?;
        }
        Ok(())
    }
}

/// Whether a batch that was given out is in a request already: decided once, by the side that comes first.
#[derive(Debug, Default)]
pub(super) struct Handover(AtomicU8);

const IN_A_REQUEST: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Handover {
    /// Puts the batch into a request; false if it was withdrawn.
    pub(super) fn begin(&self) -> bool {
        self.decide(IN_A_REQUEST) != WITHDRAWN
    }

    /// Takes the batch back; false if it is in a request.
    pub(super) fn withdraw(&self) -> bool {
        self.decide(WITHDRAWN) != IN_A_REQUEST
    }

    /// What was decided.
    fn decide(&self, wanted: u8) -> u8 {
        match self.0.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => wanted,
            Err(decided) => decided,
        }
    }
}

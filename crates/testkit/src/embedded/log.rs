//! One partition's log: raw batches in memory, and what a broker knows about them.
//!
//! The replicas of a partition share one log. What lags behind is said by numbers (high watermark, log start), not
//! by copies.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use strandline_protocol::ErrorCode;
use strandline_protocol::records::{
    BATCH_HEADER_BYTES, Batch, BatchBuilder, BatchHeader, BatchOptions, Batches, Decompressor, NewRecord,
    Producer,
};

/// How many batches of a producer are remembered to recognise one that is sent again.
///
/// Source: `ProducerStateEntry#NUM_BATCHES_TO_RETAIN`.
const BATCHES_REMEMBERED: usize = 5;

/// Why a compacted topic refuses a record.
pub(crate) const NO_KEY: &str = "a record without a key in a compacted topic";

/// A batch as it lies in the log. The bytes may be anything; the offsets say where they stand.
#[derive(Clone, Debug)]
struct StoredBatch {
    base_offset: i64,
    last_offset: i64,
    bytes: Bytes,
}

/// What a leader remembers of an idempotent producer.
#[derive(Clone, Debug)]
pub(crate) struct ProducerEntry {
    pub(crate) epoch: i16,
    pub(crate) last_timestamp_ms: i64,
    /// The epoch of the coordinator that wrote the last marker; -1 before.
    pub(crate) coordinator_epoch: i32,
    /// First sequence, last sequence and base offset of the last batches, the oldest first.
    batches: Vec<(i32, i32, i64)>,
}

impl ProducerEntry {
    /// The last sequence number; -1 before the first batch.
    pub(crate) fn last_sequence(&self) -> i32 {
        self.batches.last().map_or(-1, |batch| batch.1)
    }
}

/// A transaction that was aborted, for the reader of committed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first_offset: i64,
    /// The offset of the marker.
    pub(crate) last_offset: i64,
}

/// What a look-up by time finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) timestamp_ms: i64,
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionLog {
    batches: Vec<StoredBatch>,
    start_offset: i64,
    end_offset: i64,
    /// The first offset that is on the broker's disk, where older ones are only in the tier.
    local_start_offset: Option<i64>,
    /// The last offset in the tier.
    tiered_offset: Option<i64>,
    /// Where the high watermark is held; otherwise it is the end.
    held_high_watermark: Option<i64>,
    /// Leader epoch and the first offset of each.
    epochs: Vec<(i32, i64)>,
    producers: BTreeMap<i64, ProducerEntry>,
    /// Open transactions: producer id and first offset.
    open: BTreeMap<i64, i64>,
    aborted: Vec<Aborted>,
}

impl PartitionLog {
    pub(crate) fn start_offset(&self) -> i64 {
        self.start_offset
    }

    pub(crate) fn end_offset(&self) -> i64 {
        self.end_offset
    }

    pub(crate) fn local_start_offset(&self) -> i64 {
        self.local_start_offset.unwrap_or(self.start_offset).max(self.start_offset)
    }

    pub(crate) fn tiered_offset(&self) -> Option<i64> {
        self.tiered_offset
    }

    pub(crate) fn high_watermark(&self) -> i64 {
        self.held_high_watermark.unwrap_or(self.end_offset).min(self.end_offset)
    }

    /// The offset up to which every transaction is decided.
    pub(crate) fn last_stable_offset(&self) -> i64 {
        self.open.values().copied().min().map_or(i64::MAX, |first| first).min(self.high_watermark())
    }

    pub(crate) fn size_bytes(&self) -> i64 {
        self.batches.iter().map(|batch| batch.bytes.len() as i64).sum()
    }

    pub(crate) fn producers(&self) -> impl Iterator<Item = (i64, &ProducerEntry, Option<i64>)> {
        self.producers.iter().map(|(id, entry)| (*id, entry, self.open.get(id).copied()))
    }

    pub(crate) fn hold_high_watermark(&mut self, at: Option<i64>) {
        self.held_high_watermark = at;
    }

    /// Says which offsets are in the tier and which still on disk.
    pub(crate) fn set_tiered(&mut self, last_tiered: Option<i64>, local_start: Option<i64>) {
        (self.tiered_offset, self.local_start_offset) = (last_tiered, local_start);
    }

    /// A leader begins its epoch at the end of the log.
    pub(crate) fn begin_epoch(&mut self, epoch: i32) {
        if self.latest_epoch().is_none_or(|latest| latest < epoch) {
            self.epochs.push((epoch, self.end_offset));
        }
    }

    pub(crate) fn latest_epoch(&self) -> Option<i32> {
        self.epochs.last().map(|(epoch, _)| *epoch)
    }

    /// The epoch that wrote `offset`; -1 if none is known.
    pub(crate) fn epoch_of(&self, offset: i64) -> i32 {
        self.epochs.iter().rev().find(|(_, first)| *first <= offset).map_or(-1, |(epoch, _)| *epoch)
    }

    /// The largest known epoch up to `epoch`, and the offset after its last; (-1, -1) if that cannot be told.
    ///
    /// Source: `LeaderEpochFileCache#endOffsetFor`.
    pub(crate) fn end_of_epoch(&self, epoch: i32) -> (i32, i64) {
        match self.latest_epoch() {
            _ if epoch < 0 => (-1, -1),
            Some(latest) if latest == epoch => (epoch, self.end_offset),
            Some(latest) if latest > epoch => {
                let higher = self.epochs.iter().find(|(other, _)| *other > epoch);
                let end = higher.map_or(-1, |(_, first)| *first);
                let floor = self.epochs.iter().rev().find(|(other, _)| *other <= epoch);
                (floor.map_or(epoch, |(floor, _)| *floor), end)
            }
            _ => (-1, -1),
        }
    }

    /// Appends records as one batch, as a producer of this broker would.
    pub(crate) fn append_records(
        &mut self,
        options: BatchOptions,
        records: &[NewRecord<'_>],
    ) -> Result<i64, String> {
        let epoch = self.latest_epoch().unwrap_or(0);
        let base_offset = self.end_offset;
        let options = BatchOptions { base_offset, partition_leader_epoch: epoch, ..options };
        let mut builder = BatchBuilder::new(options);
        for record in records {
            builder.push(*record).map_err(|error| error.to_string())?;
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes).map_err(|error| error.to_string())?;
        self.remember_producer(&options, records.len());
        self.store(base_offset, builder.next_offset() - 1, bytes.into());
        Ok(base_offset)
    }

    fn remember_producer(&mut self, options: &BatchOptions, records: usize) {
        let Some(producer) = options.producer else { return };
        if options.transactional && !options.control {
            self.open.entry(producer.id).or_insert(self.end_offset);
        }
        if producer.base_sequence >= 0 {
            let last = producer.base_sequence.wrapping_add(records as i32 - 1);
            self.remember(producer.id, producer.epoch, (producer.base_sequence, last, self.end_offset), -1);
        }
    }

    /// Appends bytes as they are, whatever they are, as a batch of these offsets; those between the end of the log
    /// and `base_offset` become a gap.
    pub(crate) fn append_raw(&mut self, base_offset: i64, last_offset: i64, bytes: Bytes) {
        self.store(base_offset.max(self.end_offset), last_offset.max(self.end_offset), bytes);
    }

    fn store(&mut self, base_offset: i64, last_offset: i64, bytes: Bytes) {
        self.end_offset = last_offset + 1;
        self.batches.push(StoredBatch { base_offset, last_offset, bytes });
    }

    /// Writes a transaction marker, and gives its offset.
    pub(crate) fn end_transaction(
        &mut self,
        producer: Producer,
        commit: bool,
        coordinator_epoch: i32,
    ) -> Result<i64, String> {
        let first = self.open.remove(&producer.id);
        let key = [0, 0, 0, u8::from(commit)];
        let mut value = [0; 6];
        value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
        let timestamp_ms = now_ms();
        let record = NewRecord { timestamp_ms, key: Some(&key), value: Some(&value), ..NewRecord::default() };
        let producer = Producer { base_sequence: -1, ..producer };
        let options = BatchOptions {
            producer: Some(producer),
            transactional: true,
            control: true,
            ..BatchOptions::default()
        };
        let offset = self.append_records(options, &[record])?;
        let entry = self.producer(producer.id, producer.epoch);
        (entry.coordinator_epoch, entry.last_timestamp_ms) = (coordinator_epoch, timestamp_ms);
        if let (false, Some(first_offset)) = (commit, first) {
            self.aborted.push(Aborted { producer_id: producer.id, first_offset, last_offset: offset });
        }
        Ok(offset)
    }

    /// True if this producer has an open transaction here in this epoch.
    pub(crate) fn is_open(&self, id: i64, epoch: i16) -> bool {
        self.open.contains_key(&id) && self.producers.get(&id).is_some_and(|entry| entry.epoch == epoch)
    }

    /// What a leader does with the batch of a Produce request: the first offset, of the earlier append if it is there already.
    ///
    /// Source: `LogValidator`, `ProducerAppendInfo#checkSequence`, `ProducerStateEntry#findDuplicateBatch`.
    pub(crate) fn produce(
        &mut self,
        records: &Bytes,
        epoch: i32,
        compacted: bool,
        append_time_ms: Option<i64>,
    ) -> Result<i64, (ErrorCode, &'static str)> {
        let mut batches = Batches::new(records);
        let batch = match batches.next() {
            Some(Ok(batch)) => batch,
            Some(Err(_)) => return Err((ErrorCode::CorruptMessage, "the batch is corrupt")),
            None => return Err((ErrorCode::InvalidRecord, "no batch")),
        };
        if batches.next().is_some() || batches.tail().is_some() {
            return Err((ErrorCode::InvalidRecord, "more than one batch for a partition"));
        }
        let header = batch.header;
        if header.attributes.is_control() || header.record_count <= 0 {
            return Err((ErrorCode::InvalidRecord, "a control batch or an empty one"));
        }
        check_records(&batch, compacted)?;
        if let Some(base_offset) = self.check_sequence(&header)? {
            return Ok(base_offset);
        }
        let base_offset = self.end_offset;
        let mut bytes = BytesMut::from(&records[..]);
        bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        if let Some(time) = append_time_ms {
            stamp(&mut bytes, time);
        }
        if header.producer_id >= 0 {
            let last = last_sequence(&header);
            let entry = (header.base_sequence, last, base_offset);
            self.remember(header.producer_id, header.producer_epoch, entry, header.max_timestamp_ms);
            if header.attributes.is_transactional() {
                self.open.entry(header.producer_id).or_insert(base_offset);
            }
        }
        self.store(base_offset, base_offset + i64::from(header.last_offset_delta), bytes.freeze());
        Ok(base_offset)
    }

    /// The base offset of the same batch if it is here already.
    fn check_sequence(&self, header: &BatchHeader) -> Result<Option<i64>, (ErrorCode, &'static str)> {
        if header.producer_id < 0 {
            return Ok(None);
        }
        let Some(entry) = self.producers.get(&header.producer_id) else { return Ok(None) };
        if header.producer_epoch < entry.epoch {
            return Err((ErrorCode::InvalidProducerEpoch, "an epoch below the producer's current one"));
        }
        let out_of_order = Err((ErrorCode::OutOfOrderSequenceNumber, "the sequence has a gap"));
        if header.producer_epoch > entry.epoch {
            return if header.base_sequence == 0 { Ok(None) } else { out_of_order };
        }
        let (first, last) = (header.base_sequence, last_sequence(header));
        if let Some(same) = entry.batches.iter().find(|batch| (batch.0, batch.1) == (first, last)) {
            return Ok(Some(same.2));
        }
        let expected = if entry.last_sequence() == i32::MAX { 0 } else { entry.last_sequence() + 1 };
        if first == expected { Ok(None) } else { out_of_order }
    }

    /// What is known of a producer; nothing of it in another epoch.
    fn producer(&mut self, id: i64, epoch: i16) -> &mut ProducerEntry {
        let fresh =
            || ProducerEntry { epoch, last_timestamp_ms: -1, coordinator_epoch: -1, batches: Vec::new() };
        let entry = self.producers.entry(id).or_insert_with(fresh);
        if entry.epoch != epoch {
            *entry = ProducerEntry { coordinator_epoch: entry.coordinator_epoch, ..fresh() };
        }
        entry
    }

    fn remember(&mut self, id: i64, epoch: i16, batch: (i32, i32, i64), last_timestamp_ms: i64) {
        let entry = self.producer(id, epoch);
        if entry.batches.len() == BATCHES_REMEMBERED {
            entry.batches.remove(0);
        }
        entry.batches.push(batch);
        entry.last_timestamp_ms = last_timestamp_ms;
    }

    /// The bytes from the batch with `offset` on, below `end`. The first batch comes whole if `whole_first`; what
    /// follows ends at `bytes_max`, in the middle of a batch too, as a broker sends it.
    pub(crate) fn read(&self, offset: i64, end: i64, bytes_max: usize, whole_first: bool) -> Bytes {
        let from = self.batches.partition_point(|batch| batch.last_offset < offset);
        let mut out = BytesMut::new();
        for batch in self.batches[from..].iter().take_while(|batch| batch.last_offset < end) {
            let room = bytes_max.saturating_sub(out.len());
            if out.is_empty() && batch.bytes.len() > room {
                return if whole_first { batch.bytes.clone() } else { Bytes::new() };
            }
            out.extend_from_slice(&batch.bytes[..batch.bytes.len().min(room)]);
            if out.len() == bytes_max {
                break;
            }
        }
        out.freeze()
    }

    /// Transactions aborted within what a reader of `from..end` gets.
    pub(crate) fn aborted(&self, from: i64, end: i64) -> Vec<Aborted> {
        let overlaps = |aborted: &&Aborted| aborted.last_offset >= from && aborted.first_offset < end;
        self.aborted.iter().filter(overlaps).copied().collect()
    }

    /// The first record whose timestamp is `timestamp_ms` or later.
    pub(crate) fn first_at_or_after(&self, timestamp_ms: i64) -> Option<Found> {
        self.timestamps()
            .find(|found| found.offset >= self.start_offset && found.timestamp_ms >= timestamp_ms)
    }

    /// The first record on disk that has the largest timestamp, also where the log starts behind it by now.
    pub(crate) fn largest_timestamp(&self) -> Option<Found> {
        let local_start = self.local_start_offset.unwrap_or(0);
        self.timestamps()
            .filter(|found| found.offset >= local_start)
            .reduce(|best, next| if next.timestamp_ms > best.timestamp_ms { next } else { best })
    }

    /// Every record's timestamp, a marker's too, and the epoch in its batch, as a broker has it. Batches that cannot be read
    /// have none.
    fn timestamps(&self) -> impl Iterator<Item = Found> {
        let readable = self.batches.iter().flat_map(|stored| Batches::new(&stored.bytes).flatten());
        readable.flat_map(|batch| {
            let leader_epoch = batch.header.partition_leader_epoch;
            let mut decompressor = Decompressor::default();
            let mut found = Vec::new();
            if let Ok(records) = batch.records(&mut decompressor) {
                found.extend(records.flatten().map(|record| Found {
                    timestamp_ms: record.timestamp_ms,
                    offset: record.offset,
                    leader_epoch,
                }));
            }
            found
        })
    }

    /// Moves the log start; batches wholly before it go, as with a segment.
    pub(crate) fn delete_before(&mut self, offset: i64) {
        self.move_start(offset);
        self.batches.retain(|batch| batch.last_offset >= self.start_offset);
    }

    /// Moves the log start; the batches before it stay where they are, as in a segment that is still written.
    pub(crate) fn move_start(&mut self, offset: i64) {
        self.start_offset = self.start_offset.max(offset.min(self.end_offset));
        let start = self.start_offset;
        let current = self.epochs.iter().rposition(|(_, first)| *first <= start).unwrap_or(0);
        self.epochs.drain(..current);
        if let Some(first) = self.epochs.first_mut() {
            first.1 = first.1.max(start);
        }
    }

    /// Loses every batch that reaches `offset` or beyond, as an unclean election does.
    pub(crate) fn truncate_to(&mut self, offset: i64) {
        self.batches.retain(|batch| batch.last_offset < offset);
        self.end_offset = self.batches.last().map_or(self.start_offset, |batch| batch.last_offset + 1);
        let end = self.end_offset;
        self.epochs.retain(|(_, first)| *first <= end);
        self.open.retain(|_, first| *first < end);
        self.reload_producers();
    }

    /// Knows of producers what the batches that are left say.
    ///
    /// Source: `ProducerStateManager#truncateAndReload`.
    fn reload_producers(&mut self) {
        self.producers.clear();
        let headers: Vec<BatchHeader> =
            self.batches.iter().filter_map(|batch| header_of(&batch.bytes)).collect();
        for header in
            headers.into_iter().filter(|header| header.producer_id >= 0 && header.base_sequence >= 0)
        {
            let batch = (header.base_sequence, last_sequence(&header), header.base_offset);
            self.remember(header.producer_id, header.producer_epoch, batch, header.max_timestamp_ms);
        }
    }

    /// Lets `change` damage the bytes of the batch that holds `offset`; false if there is none.
    pub(crate) fn damage(&mut self, offset: i64, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let holds = |batch: &&mut StoredBatch| (batch.base_offset..=batch.last_offset).contains(&offset);
        let Some(batch) = self.batches.iter_mut().find(holds) else { return false };
        let mut bytes = batch.bytes.to_vec();
        change(&mut bytes);
        batch.bytes = bytes.into();
        true
    }

    /// Removes the batch that holds `offset`, as compaction does: its offsets become a gap.
    pub(crate) fn compact_away(&mut self, offset: i64) {
        self.batches.retain(|batch| !(batch.base_offset..=batch.last_offset).contains(&offset));
    }
}

/// Makes a batch's time that of its append: the bit in the attributes, the largest timestamp, and the CRC over both.
fn stamp(batch: &mut [u8], append_time_ms: i64) {
    const LOG_APPEND_TIME: u8 = 1 << 3;
    batch[22] |= LOG_APPEND_TIME;
    batch[35..43].copy_from_slice(&append_time_ms.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn last_sequence(header: &BatchHeader) -> i32 {
    let last = i64::from(header.base_sequence) + i64::from(header.last_offset_delta);
    i32::try_from(last).unwrap_or_else(|_| (last - i64::from(i32::MAX) - 1) as i32)
}

fn check_records(batch: &Batch<'_>, compacted: bool) -> Result<(), (ErrorCode, &'static str)> {
    let corrupt = (ErrorCode::CorruptMessage, "the records are corrupt");
    let mut decompressor = Decompressor::default();
    for record in batch.records(&mut decompressor).map_err(|_| corrupt)? {
        if record.map_err(|_| corrupt)?.key.is_none() && compacted {
            return Err((ErrorCode::InvalidRecord, NO_KEY));
        }
    }
    Ok(())
}

/// The header of a batch, if the bytes begin with one.
pub(crate) fn header_of(bytes: &[u8]) -> Option<BatchHeader> {
    bytes.first_chunk::<BATCH_HEADER_BYTES>().and_then(|header| BatchHeader::decode(header, 0).ok())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

//! The bytes of a snapshot file, version 2.
//!
//! ```text
//! file    = "STRLRLMM", version u16, frame…
//! frame   = length u32 of the payload, CRC-32C u32 of the payload, payload
//! payload = kind u8, fields
//! ```
//! All numbers are big-endian; a text is its length u16 and UTF-8 bytes, an id its 16 bytes. Of the kinds there come, in
//! this order: one HEADER, then one section or more. A section is, for each user partition, one USER_PARTITION, any number of
//! SEGMENTS and EPOCH, one USER_PARTITION_END; and one END. A segment is api key 3 of the metadata topic's own codec, which
//! Kafka keeps for snapshots.
//!
//! The first section has every user partition. A later one was appended: it has those that changed, in place of what the file
//! had of them before, and its END says up to which offset nothing happened to the others. One that is not whole was being
//! appended when the process or the machine stopped, and is as if it were not there. A file of version 1 has one section, whose
//! END does not tell the offset, and nothing behind it.
//!
//! Reading takes a frame at a time into memory, as far as the file has bytes for it, and believes no count.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;

use strandline_log::MetadataLogIdentity;
use strandline_tier::{
    RawEvent, RawSegmentMetadata, RawSegmentSnapshot, RemoteLogSegmentIndex, RemoteLogSegmentIndexBuilder,
    RemoteLogSegmentMetadata, RestoreError, TopicId, Uuid, codec,
};

use super::Discarded;
use crate::TopicIdPartition;
use crate::metadata_partition::RecordMark;
use crate::user_partition::State;

const MAGIC: &[u8; 8] = b"STRLRLMM";
/// The version that is written. Each that was ever written is read.
const VERSION: u16 = 2;

const HEADER: u8 = 1;
const USER_PARTITION: u8 = 2;
const SEGMENTS: u8 = 3;
const EPOCH: u8 = 4;
const USER_PARTITION_END: u8 = 5;
const END: u8 = 6;

/// Where a frame of segments or of one epoch is full.
const FRAME_BYTES: usize = 64 << 10;
/// No frame is larger: a segment in it cannot be, since the metadata topic would not have taken its event.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// What the file says of itself first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) identity: MetadataLogIdentity,
    pub(super) metadata_partition: i32,
}

pub(super) struct Writer<W> {
    out: W,
    frame: Vec<u8>,
    user_partitions: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a file with its first section.
    pub(super) fn new(mut out: W, header: &Header) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_be_bytes())?;
        let mut writer = Self::appending(out);
        let Header { identity, metadata_partition } = header;
        writer.begin(HEADER);
        writer.frame.push(u8::from(identity.cluster_id.is_some()));
        writer.text(identity.cluster_id.as_deref().unwrap_or_default())?;
        writer.frame.extend(identity.topic_id.map_or([0; 16], |id| id.0.0));
        writer.frame.extend(identity.partition_count.to_be_bytes());
        writer.frame.extend(metadata_partition.to_be_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Begins a further section, of a file that is whole.
    pub(super) fn appending(out: W) -> Self {
        Self { out, frame: Vec::new(), user_partitions: 0 }
    }

    /// One user partition, of which every event below `next_offset` is in the index.
    pub(super) fn user_partition(
        &mut self,
        id: &TopicIdPartition,
        next_offset: i64,
        state: &State,
    ) -> io::Result<()> {
        self.begin(USER_PARTITION);
        self.text(&id.topic)?;
        self.frame.extend(id.topic_id.0.0);
        self.frame.extend(id.partition.to_be_bytes());
        self.frame.extend(next_offset.to_be_bytes());
        self.frame.extend(state.last_applied.to_be_bytes());
        self.end()?;
        let segments = self.segments(&state.index)?;
        let entries = self.epochs(&state.index)?;
        self.begin(USER_PARTITION_END);
        self.frame.extend(segments.to_be_bytes());
        self.frame.extend(entries.to_be_bytes());
        self.end()?;
        self.user_partitions += 1;
        Ok(())
    }

    fn segments(&mut self, index: &RemoteLogSegmentIndex) -> io::Result<u64> {
        let (mut count, mut bytes) = (0, Vec::new());
        self.begin(SEGMENTS);
        for segment in index.list_remote_log_segments() {
            bytes.clear();
            codec::encode(&RawEvent::SegmentMetadataSnapshot(raw(segment)), &mut bytes)
                .map_err(io::Error::other)?;
            self.frame.extend(length(bytes.len())?.to_be_bytes());
            self.frame.extend(&bytes);
            count += 1;
            if self.frame.len() >= FRAME_BYTES {
                self.end()?;
                self.begin(SEGMENTS);
            }
        }
        self.end()?;
        Ok(count)
    }

    /// An epoch is one frame or several, each of which says which epoch it belongs to.
    fn epochs(&mut self, index: &RemoteLogSegmentIndex) -> io::Result<u64> {
        let mut count = 0;
        for epoch in index.leader_epochs() {
            let highest_offset = index.highest_offset_for_epoch(epoch);
            self.begin_epoch(epoch, highest_offset);
            let referenced = index.referenced(epoch).map(|(start_offset, id)| (Some(start_offset), id));
            for (start_offset, id) in referenced.chain(index.unreferenced(epoch).map(|id| (None, id))) {
                if self.frame.len() >= FRAME_BYTES {
                    self.end()?;
                    self.begin_epoch(epoch, highest_offset);
                }
                optional(&mut self.frame, start_offset);
                self.frame.extend(id.0);
                count += 1;
            }
            self.end()?;
        }
        Ok(count)
    }

    fn begin_epoch(&mut self, epoch: i32, highest_offset: Option<i64>) {
        self.begin(EPOCH);
        self.frame.extend(epoch.to_be_bytes());
        optional(&mut self.frame, highest_offset);
    }

    /// The last frame of a section: with it the file is whole, and of the user partitions that the section does not have every
    /// event below `position` is in it. Gives the output back, to be made durable.
    pub(super) fn finish(mut self, position: i64, last_record: Option<RecordMark>) -> io::Result<W> {
        let user_partitions = self.user_partitions;
        self.begin(END);
        self.frame.extend(user_partitions.to_be_bytes());
        optional(&mut self.frame, last_record.map(|mark| mark.offset));
        self.frame.extend(last_record.map_or(0, |mark| mark.value_crc).to_be_bytes());
        self.frame.extend(position.to_be_bytes());
        self.end()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u8) {
        self.frame.clear();
        self.frame.push(kind);
    }

    fn end(&mut self) -> io::Result<()> {
        let frame_bytes = length(self.frame.len())?;
        if frame_bytes > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {frame_bytes} bytes")));
        }
        self.out.write_all(&frame_bytes.to_be_bytes())?;
        self.out.write_all(&crc32c::crc32c(&self.frame).to_be_bytes())?;
        self.out.write_all(&self.frame)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u16::try_from(text.len()).map_err(io::Error::other)?;
        self.frame.extend(length.to_be_bytes());
        self.frame.extend(text.as_bytes());
        Ok(())
    }
}

impl Writer<Vec<u8>> {
    /// Hands on what is in memory so far.
    pub(super) fn flush_into(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(io::Error::other)
}

fn optional(frame: &mut Vec<u8>, value: Option<i64>) {
    frame.push(u8::from(value.is_some()));
    frame.extend(value.unwrap_or_default().to_be_bytes());
}

fn raw(segment: &RemoteLogSegmentMetadata) -> RawSegmentSnapshot<'_> {
    RawSegmentSnapshot {
        segment_id: segment.segment_id(),
        start_offset: segment.start_offset(),
        end_offset: segment.end_offset(),
        broker_id: segment.broker_id(),
        max_timestamp_ms: segment.max_timestamp_ms(),
        event_timestamp_ms: segment.event_timestamp_ms(),
        segment_leader_epochs: segment.segment_leader_epochs().collect(),
        segment_size_in_bytes: segment.segment_size_in_bytes(),
        custom_metadata: segment.custom_metadata().map(Into::into),
        state_id: segment.state().id(),
        txn_index_empty: segment.txn_index_empty(),
    }
}

/// Reads a file frame by frame.
pub(super) struct Reader<R> {
    input: R,
    version: u16,
    frame: Vec<u8>,
    position: u64,
}

/// What comes next in a file.
pub(super) enum Next {
    /// A user partition begins; [`Reader::user_partition`] or [`Reader::skip_user_partition`] has to follow.
    UserPartition { id: TopicIdPartition, next_offset: i64, last_applied: i64 },
    /// The section is whole. Of the user partitions that it does not have every event below `position` is known.
    End { user_partitions: u32, position: i64, last_record: Option<RecordMark> },
}

impl<R: BufRead> Reader<R> {
    /// Reads what the file says of itself.
    pub(super) fn new(mut input: R) -> Result<(Self, Header), Discarded> {
        let mut begin = [0; 10];
        input.read_exact(&mut begin).map_err(cut)?;
        let [magic @ .., high, low] = begin;
        if magic != *MAGIC {
            return Err(Discarded::NotASnapshot);
        }
        let version = u16::from_be_bytes([high, low]);
        if !(1..=VERSION).contains(&version) {
            return Err(Discarded::UnknownVersion { version });
        }
        let mut reader = Self { input, version, frame: Vec::new(), position: 10 };
        let header = reader.header()?;
        Ok((reader, header))
    }

    fn header(&mut self) -> Result<Header, Discarded> {
        let mut fields = self.expect(HEADER)?;
        let has_cluster_id = fields.bool()?;
        let cluster_id: Arc<str> = fields.text()?.into();
        let topic_id = TopicId(fields.uuid()?);
        let identity = MetadataLogIdentity {
            cluster_id: has_cluster_id.then_some(cluster_id),
            topic_id: (!topic_id.0.is_zero()).then_some(topic_id),
            partition_count: fields.i32()?,
        };
        let header = Header { identity, metadata_partition: fields.i32()? };
        fields.end()?;
        Ok(header)
    }

    pub(super) fn next(&mut self) -> Result<Next, Discarded> {
        self.frame()?;
        let mut fields = Fields::new(&self.frame);
        let next = match fields.u8()? {
            USER_PARTITION => {
                let topic = fields.text()?.to_owned().into();
                let topic_id = TopicId(fields.uuid()?);
                let id = TopicIdPartition { topic, topic_id, partition: fields.i32()? };
                Next::UserPartition { id, next_offset: fields.i64()?, last_applied: fields.i64()? }
            }
            END => {
                let user_partitions = fields.u32()?;
                let offset = fields.optional()?;
                let value_crc = fields.u32()?;
                let last_record = offset.map(|offset| RecordMark { offset, value_crc });
                // Version 1 has one section, and so nobody who is in an earlier one alone.
                let position = if self.version == 1 { 0 } else { fields.i64()? };
                Next::End { user_partitions, position, last_record }
            }
            kind => return Err(malformed(format!("a frame of kind {kind} out of its place"))),
        };
        fields.end()?;
        Ok(next)
    }

    /// True for files to which sections are appended.
    pub(super) fn is_appended_to(&self) -> bool {
        self.version > 1
    }

    /// True if another section follows the one that has ended.
    pub(super) fn has_more(&mut self) -> Result<bool, Discarded> {
        let more = !self.input.fill_buf().map_err(Discarded::Io)?.is_empty();
        match more && self.version == 1 {
            true => Err(malformed("bytes behind the end".to_owned())),
            false => Ok(more),
        }
    }

    /// The index of the user partition that has begun.
    pub(super) fn user_partition(
        &mut self,
        id: &TopicIdPartition,
    ) -> Result<RemoteLogSegmentIndex, Discarded> {
        let mut builder = RemoteLogSegmentIndexBuilder::new();
        let (mut segments, mut entries) = (0_u64, 0_u64);
        loop {
            self.frame()?;
            let mut fields = Fields::new(&self.frame);
            match fields.u8()? {
                SEGMENTS => {
                    while !fields.is_empty() {
                        let bytes = fields.u32()? as usize;
                        builder.segment(segment(id, fields.bytes(bytes)?)?).map_err(inconsistent)?;
                        segments += 1;
                    }
                }
                EPOCH => {
                    let epoch = fields.i32()?;
                    builder.epoch(epoch, fields.optional()?);
                    while !fields.is_empty() {
                        match (fields.optional()?, fields.uuid()?) {
                            (Some(start_offset), id) => {
                                builder.referenced(epoch, start_offset, id).map_err(inconsistent)?;
                            }
                            (None, id) => builder.unreferenced(epoch, id),
                        }
                        entries += 1;
                    }
                }
                USER_PARTITION_END => {
                    let counts = (fields.u64()?, fields.u64()?);
                    fields.end()?;
                    if counts != (segments, entries) {
                        return Err(malformed(format!("{segments} segments instead of {}", counts.0)));
                    }
                    return Ok(builder.build());
                }
                kind => return Err(malformed(format!("a frame of kind {kind} out of its place"))),
            }
        }
    }

    /// Passes over the user partition that has begun.
    pub(super) fn skip_user_partition(&mut self) -> Result<(), Discarded> {
        loop {
            self.frame()?;
            match self.frame[0] {
                SEGMENTS | EPOCH => {}
                USER_PARTITION_END => return Ok(()),
                kind => return Err(malformed(format!("a frame of kind {kind} out of its place"))),
            }
        }
    }

    fn expect(&mut self, kind: u8) -> Result<Fields<'_>, Discarded> {
        self.frame()?;
        let mut fields = Fields::new(&self.frame);
        match fields.u8()? {
            found if found == kind => Ok(fields),
            found => Err(malformed(format!("a frame of kind {found} out of its place"))),
        }
    }

    /// Reads the next frame; it has at least one byte then.
    fn frame(&mut self) -> Result<(), Discarded> {
        let mut begin = [0; 8];
        self.input.read_exact(&mut begin).map_err(cut)?;
        let [a, b, c, d, e, f, g, h] = begin;
        let (frame_bytes, crc) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        if !(1..=FRAME_BYTES_MAX).contains(&frame_bytes) {
            return Err(malformed(format!("a frame of {frame_bytes} bytes at byte {}", self.position)));
        }
        self.frame.clear();
        // Grows with what is read and not with what the length claims.
        let read = self.input.by_ref().take(u64::from(frame_bytes)).read_to_end(&mut self.frame);
        if read.map_err(Discarded::Io)? < frame_bytes as usize {
            return Err(Discarded::Cut);
        }
        if crc32c::crc32c(&self.frame) != crc {
            return Err(Discarded::Checksum { position: self.position });
        }
        self.position += 8 + u64::from(frame_bytes);
        Ok(())
    }
}

fn segment(id: &TopicIdPartition, bytes: &[u8]) -> Result<RemoteLogSegmentMetadata, Discarded> {
    let event = codec::decode(bytes).map_err(|error| malformed(format!("a segment: {error}")))?;
    let RawEvent::SegmentMetadataSnapshot(segment) = event else {
        return Err(malformed("an event in place of a segment".to_owned()));
    };
    let raw = RawSegmentMetadata {
        topic_id_partition: id.clone(),
        segment_id: segment.segment_id,
        start_offset: segment.start_offset,
        end_offset: segment.end_offset,
        broker_id: segment.broker_id,
        max_timestamp_ms: segment.max_timestamp_ms,
        event_timestamp_ms: segment.event_timestamp_ms,
        segment_leader_epochs: segment.segment_leader_epochs,
        segment_size_in_bytes: segment.segment_size_in_bytes,
        custom_metadata: segment.custom_metadata,
        state_id: segment.state_id,
        txn_index_empty: segment.txn_index_empty,
    };
    RemoteLogSegmentMetadata::new(&raw).map_err(|error| malformed(format!("a segment: {error}")))
}

fn cut(error: io::Error) -> Discarded {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Discarded::Cut,
        _ => Discarded::Io(error),
    }
}

fn malformed(what: String) -> Discarded {
    Discarded::Malformed { what }
}

fn inconsistent(error: RestoreError) -> Discarded {
    malformed(error.to_string())
}

/// The fields of a frame.
struct Fields<'a> {
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(frame: &'a [u8]) -> Self {
        Self { left: frame }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn end(&self) -> Result<(), Discarded> {
        if self.is_empty() { Ok(()) } else { Err(malformed("bytes behind the fields of a frame".to_owned())) }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Discarded> {
        let (bytes, left) = self
            .left
            .split_at_checked(count)
            .ok_or_else(|| malformed("a frame that ends within a field".to_owned()))?;
        self.left = left;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Discarded> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }

    fn u8(&mut self) -> Result<u8, Discarded> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn bool(&mut self) -> Result<bool, Discarded> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(malformed(format!("{other} in place of a yes or no"))),
        }
    }

    fn i32(&mut self) -> Result<i32, Discarded> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Discarded> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, Discarded> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Discarded> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn optional(&mut self) -> Result<Option<i64>, Discarded> {
        let present = self.bool()?;
        let value = self.i64()?;
        Ok(present.then_some(value))
    }

    fn uuid(&mut self) -> Result<Uuid, Discarded> {
        Ok(Uuid(self.array()?))
    }

    fn text(&mut self) -> Result<&'a str, Discarded> {
        let bytes = usize::from(u16::from_be_bytes(self.array()?));
        let text = std::str::from_utf8(self.bytes(bytes)?);
        text.map_err(|error| malformed(error.to_string()))
    }
}

//! The two requests with which a wait asks a broker, in the versions that Kafka 4.0 to 4.4 all serve.
//!
//! By hand and apart from the project's own codec, so that a bug there cannot hide in the test's own waits, and
//! without a Java start for each look.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};

const TIMEOUT: Duration = Duration::from_secs(5);
const FRAME_BYTES_MAX: usize = 16 << 20;
const METADATA: i16 = 3;
const LIST_OFFSETS: i16 = 2;

/// What a broker knows of the cluster.
#[derive(Debug)]
pub(super) struct View {
    pub(super) brokers: Vec<i32>,
    pub(super) topics: BTreeMap<String, Vec<PartitionView>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionView {
    pub(super) partition: i32,
    /// -1 while there is none.
    pub(super) leader: i32,
}

/// Metadata, version 1, of all topics: creates nothing.
pub(super) fn metadata(port: u16) -> anyhow::Result<View> {
    let response = call(port, METADATA, 1, false, &(-1_i32).to_be_bytes())?;
    let mut read = Reader(&response);
    let mut brokers = Vec::new();
    for _ in 0..read.i32()? {
        brokers.push(read.i32()?);
        read.string()?;
        read.i32()?;
        read.string()?;
    }
    read.i32()?;
    let mut topics = BTreeMap::new();
    for _ in 0..read.i32()? {
        read.i16()?;
        let name = read.string()?;
        read.take(1)?;
        let mut partitions = Vec::new();
        for _ in 0..read.i32()? {
            read.i16()?;
            partitions.push(PartitionView { partition: read.i32()?, leader: read.i32()? });
            for _replicas_then_isr in 0..2 {
                let count = read.i32()?;
                read.take(4 * usize::try_from(count)?)?;
            }
        }
        topics.insert(name, partitions);
    }
    Ok(View { brokers, topics })
}

/// The offset that a leader gives for one of ListOffsets' special timestamps (version 9: down to -5, the last
/// tiered offset); -1 when there is none.
pub(super) fn list_offset(port: u16, topic: &str, partition: i32, timestamp: i64) -> anyhow::Result<i64> {
    let mut body = Vec::new();
    body.extend((-1_i32).to_be_bytes());
    body.push(0); // read_uncommitted
    body.push(2); // one topic
    body.push(u8::try_from(topic.len() + 1).context("a topic's name of 127 bytes or more")?);
    body.extend(topic.as_bytes());
    body.push(2); // one partition
    body.extend(partition.to_be_bytes());
    body.extend((-1_i32).to_be_bytes());
    body.extend(timestamp.to_be_bytes());
    body.extend([0, 0, 0]); // no tagged fields: partition, topic, request
    let response = call(port, LIST_OFFSETS, 9, true, &body)?;
    let mut read = Reader(&response);
    read.take(1 + 4 + 1)?; // header tags, throttle time, topic count
    let name_bytes = usize::from(read.take(1)?[0]) - 1;
    read.take(name_bytes + 1 + 4)?; // name, partition count, partition
    let error = read.i16()?;
    ensure!(error == 0, "ListOffsets of {topic}-{partition}: error code {error}");
    read.take(8)?;
    Ok(i64::from_be_bytes(read.take(8)?.try_into()?))
}

fn call(port: u16, api: i16, version: i16, flexible: bool, body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut request = Vec::new();
    request.extend(api.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    if flexible {
        request.push(0);
    }
    request.extend(body);
    let mut frame = u32::try_from(request.len())?.to_be_bytes().to_vec();
    frame.extend(request);

    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&frame)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length))?;
    ensure!((4..FRAME_BYTES_MAX).contains(&length), "a frame of {length} bytes");
    let mut response = vec![0; length];
    stream.read_exact(&mut response)?;
    response.drain(..4);
    Ok(response)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> anyhow::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("a response that ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> anyhow::Result<i16> {
        Ok(i16::from_be_bytes(self.take(2)?.try_into()?))
    }

    fn i32(&mut self) -> anyhow::Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into()?))
    }

    /// Null reads as empty.
    fn string(&mut self) -> anyhow::Result<String> {
        let length = self.i16()?.max(0);
        Ok(String::from_utf8(self.take(usize::try_from(length)?)?.to_vec())?)
    }
}

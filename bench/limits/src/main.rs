//! Floors: what any reader of the same bytes must do at least. Prints one JSON object.
//!
//! `fetch`: a hand-written client of Fetch version 4 that checks each CRC-32C and walks the records. `files`: the segment
//! files, read whole, with each CRC-32C checked. One thread; nothing is decoded or kept.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Instant;

/// Partitions of the generated topics.
const PARTITIONS: usize = 50;
/// Most bytes of one partition in one answer, and of one answer.
const PARTITION_BYTES_MAX: i32 = 1 << 20;
const ANSWER_BYTES_MAX: i32 = 50 << 20;
/// The header of a batch; where its length, its CRC and what the CRC covers, and its record count stand.
const HEADER_BYTES: usize = 61;
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 17;
const CHECKED_FROM: usize = 21;
const LAST_OFFSET_DELTA_AT: usize = 23;
const COUNT_AT: usize = 57;

fn main() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let topic = variable("TOPIC");
    let began = Instant::now();
    let what = std::env::args().nth(1).unwrap_or_default();
    let (events, bytes) = match what.as_str() {
        "fetch" => fetch(&variable("BOOTSTRAP"), &topic),
        "files" => files(&PathBuf::from(variable("DATA_DIR")), &topic),
        _ => panic!("usage: bench-limits fetch | files"),
    };
    let ms = began.elapsed().as_secs_f64() * 1e3;
    println!(r#"{{"peer":"{what}","events":{events},"bytes":{bytes},"ms":{ms:.3}}}"#);
}

fn files(data: &std::path::Path, topic: &str) -> (u64, u64) {
    let (mut events, mut bytes, mut buffer) = (0, 0, Vec::new());
    for partition in 0..PARTITIONS {
        for entry in fs::read_dir(data.join(format!("{topic}-{partition}"))).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "log") {
                buffer.clear();
                fs::File::open(path).unwrap().read_to_end(&mut buffer).unwrap();
                bytes += buffer.len() as u64;
                for batch in Batches(&buffer) {
                    events += int32(batch, COUNT_AT) as u64;
                }
            }
        }
    }
    (events, bytes)
}

fn fetch(bootstrap: &str, topic: &str) -> (u64, u64) {
    let mut socket = TcpStream::connect(bootstrap).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut answer = Vec::new();
    let end = end_offsets(&mut socket, topic, &mut answer);
    let (mut next, mut events, mut bytes) = ([0_i64; PARTITIONS], 0, 0);
    // Answers are filled in the order of the request: those that had no room come first in the next one.
    let mut first = 0;
    while (0..PARTITIONS).any(|at| next[at] < end[at]) {
        let order = (0..PARTITIONS).map(|at| (at + first) % PARTITIONS);
        let wanted: Vec<usize> = order.filter(|&at| next[at] < end[at]).collect();
        first += 7;
        let mut body = Vec::new();
        for field in [-1, 500, 1, ANSWER_BYTES_MAX] {
            body.extend(i32::to_be_bytes(field));
        }
        body.push(0);
        topic_head(&mut body, topic, wanted.len());
        for &partition in &wanted {
            body.extend((partition as i32).to_be_bytes());
            body.extend(next[partition].to_be_bytes());
            body.extend(PARTITION_BYTES_MAX.to_be_bytes());
        }
        ask(&mut socket, 1, 4, &body, &mut answer);
        bytes += answer.len() as u64;
        let mut at = 14 + topic.len() + 4;
        for _ in &wanted {
            let partition = int32(&answer, at) as usize;
            assert_eq!(int16(&answer, at + 4), 0, "error code");
            let aborted = int32(&answer, at + 22).max(0) as usize;
            at += 26 + 16 * aborted;
            let size = int32(&answer, at).max(0) as usize;
            at += 4;
            for batch in Batches(&answer[at..at + size]) {
                events += int32(batch, COUNT_AT) as u64;
                walk(batch);
                next[partition] = int64(batch, 0) + i64::from(int32(batch, LAST_OFFSET_DELTA_AT)) + 1;
            }
            at += size;
        }
    }
    (events, bytes)
}

fn end_offsets(socket: &mut TcpStream, topic: &str, answer: &mut Vec<u8>) -> [i64; PARTITIONS] {
    let mut body = Vec::from((-1_i32).to_be_bytes());
    topic_head(&mut body, topic, PARTITIONS);
    for partition in 0..PARTITIONS as i32 {
        body.extend(partition.to_be_bytes());
        body.extend((-1_i64).to_be_bytes());
    }
    ask(socket, 2, 1, &body, answer);
    let mut end = [0; PARTITIONS];
    let first = 10 + topic.len() + 4;
    for at in (0..PARTITIONS).map(|nth| first + 22 * nth) {
        assert_eq!(int16(answer, at + 4), 0, "error code");
        end[int32(answer, at) as usize] = int64(answer, at + 14);
    }
    end
}

/// One topic, its name, and how many partitions follow.
fn topic_head(body: &mut Vec<u8>, topic: &str, partitions: usize) {
    body.extend(1_i32.to_be_bytes());
    string(body, topic);
    body.extend((partitions as i32).to_be_bytes());
}

fn ask(socket: &mut TcpStream, api_key: i16, version: i16, body: &[u8], answer: &mut Vec<u8>) {
    let mut request = Vec::new();
    for field in [api_key, version] {
        request.extend(field.to_be_bytes());
    }
    request.extend(1_i32.to_be_bytes());
    string(&mut request, "floor");
    request.extend(body);
    let mut frame = Vec::from((request.len() as i32).to_be_bytes());
    frame.extend(request);
    socket.write_all(&frame).unwrap();
    let mut size = [0; 4];
    socket.read_exact(&mut size).unwrap();
    answer.resize(i32::from_be_bytes(size) as usize, 0);
    socket.read_exact(answer).unwrap();
}

/// The whole batches of a buffer, each with a right CRC.
struct Batches<'a>(&'a [u8]);

impl<'a> Iterator for Batches<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.len() < HEADER_BYTES {
            return None;
        }
        let size = int32(self.0, LENGTH_AT) as usize + 12;
        if size < HEADER_BYTES || size > self.0.len() {
            return None;
        }
        let (batch, rest) = self.0.split_at(size);
        self.0 = rest;
        assert_eq!(crc32c::crc32c(&batch[CHECKED_FROM..]), int32(batch, CRC_AT) as u32);
        Some(batch)
    }
}

/// Goes through the fields of each record up to its value.
fn walk(batch: &[u8]) {
    let mut at = HEADER_BYTES;
    for _ in 0..int32(batch, COUNT_AT) {
        let size = varint(batch, &mut at) as usize;
        let end = at + size;
        at += 1;
        varint(batch, &mut at);
        varint(batch, &mut at);
        at += varint(batch, &mut at).max(0) as usize;
        at += varint(batch, &mut at).max(0) as usize;
        std::hint::black_box(at);
        at = end;
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> i64 {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return ((value >> 1) as i64) ^ -((value & 1) as i64);
        }
    }
}

fn string(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as i16).to_be_bytes());
    to.extend(text.as_bytes());
}

fn int16(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn int32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn int64(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

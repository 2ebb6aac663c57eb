//! What the drivers share: where the broker is, and the line that `run.py` reads.

use std::time::{Duration, Instant};

/// The broker's address.
pub fn bootstrap() -> String {
    std::env::var("BOOTSTRAP").unwrap_or_else(|_| "127.0.0.1:29092".to_owned())
}

/// The topic that is read or written.
pub fn topic() -> String {
    std::env::var("TOPIC").expect("TOPIC is set")
}

/// The value of an event that is published.
pub fn value(nth: usize) -> [u8; 93] {
    let mut value = [0; 93];
    value[..8].copy_from_slice(&nth.to_be_bytes());
    value
}

/// The line about a snapshot that is held now.
pub fn snapshot_held(peer: &str, began: Instant, topics: usize, partitions: usize) {
    assert!(topics >= 1_000 && partitions >= 10_000, "{topics} topics, {partitions} partitions");
    told(peer, began, &format!(r#""topics":{topics},"partitions":{partitions}"#));
}

/// The line about so many requests that are answered now.
pub fn requests_answered(peer: &str, began: Instant, requests: usize) {
    told(peer, began, &format!(r#""requests":{requests}"#));
}

/// The line about a topic that was read to its end.
pub fn consumed(peer: &str, began: Instant, events: usize) {
    told(peer, began, &format!(r#""events":{events},"hwm_kb":{}"#, hwm_kb()));
}

/// The line about events that were published one after the other.
pub fn published_one(peer: &str, began: Instant, mut waits: Vec<Duration>) {
    let events_s = waits.len() as f64 / began.elapsed().as_secs_f64();
    waits.sort_unstable();
    let us = |percent: usize| waits[waits.len() * percent / 100].as_secs_f64() * 1e6;
    let (p50_us, p99_us) = (us(50), us(99));
    let what = format!(r#""events_s":{events_s:.1},"p50_us":{p50_us:.1},"p99_us":{p99_us:.1},"hwm_kb":{}"#, hwm_kb());
    told(peer, began, &what);
}

/// The line about events that were published with many on their way.
pub fn published_many(peer: &str, began: Instant, events: usize) {
    let events_s = events as f64 / began.elapsed().as_secs_f64();
    told(peer, began, &format!(r#""events_s":{events_s:.1},"hwm_kb":{}"#, hwm_kb()));
}

/// The most memory that this process ever had.
fn hwm_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn told(peer: &str, began: Instant, what: &str) {
    println!(r#"{{"peer":"{peer}","ms":{:.3},{what}}}"#, began.elapsed().as_secs_f64() * 1e3);
}

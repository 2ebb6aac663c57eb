//! Events of 93 bytes, pinned to 50 partitions in turns, written by the producer: idempotent, acks=all, each awaited.

use std::time::Instant;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use strandline_client::producer::{Delivery, Producer, ProducerConfig, ProducerRecord};

use crate::{connect, memory_kb, percentiles, variable};

const PARTITIONS: usize = 50;
const VALUE_BYTES: usize = 93;
const WARM_UP_EVENTS: usize = 500;
const IN_FLIGHT: usize = 1_000;

struct Publisher {
    producer: Producer,
    topic: String,
}

impl Publisher {
    /// Connected, warmed up.
    async fn start() -> anyhow::Result<Self> {
        let producer = Producer::start(&connect().await?, ProducerConfig::default())?;
        let this = Self { producer, topic: variable("TOPIC")? };
        for nth in 0..WARM_UP_EVENTS {
            this.send(nth).await?.await?;
        }
        Ok(this)
    }

    async fn send(&self, nth: usize) -> anyhow::Result<Delivery> {
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&nth.to_be_bytes());
        let partition = (nth * 7 % PARTITIONS) as i32;
        let record =
            ProducerRecord { topic: &self.topic, partition, value: Some(&value), ..Default::default() };
        Ok(self.producer.send(record).await?)
    }
}

pub(crate) async fn one(events: usize) -> anyhow::Result<Value> {
    let publisher = Publisher::start().await?;
    let mut waits = Vec::with_capacity(events);
    let began = Instant::now();
    for nth in 0..events {
        let sent_at = Instant::now();
        publisher.send(nth).await?.await?;
        waits.push(sent_at.elapsed());
    }
    let events_s = events as f64 / began.elapsed().as_secs_f64();
    let (p50_us, p99_us) = percentiles(waits);
    let hwm_kb = memory_kb("VmHWM")?;
    Ok(
        json!({ "peer": "strandline", "events_s": events_s, "p50_us": p50_us, "p99_us": p99_us, "hwm_kb": hwm_kb }),
    )
}

pub(crate) async fn many(events: usize) -> anyhow::Result<Value> {
    let publisher = Publisher::start().await?;
    let mut under_way = FuturesUnordered::new();
    let began = Instant::now();
    for nth in 0..events {
        if under_way.len() == IN_FLIGHT
            && let Some(delivered) = under_way.next().await
        {
            delivered?;
        }
        under_way.push(publisher.send(nth).await?);
    }
    while let Some(delivered) = under_way.next().await {
        delivered?;
    }
    let events_s = events as f64 / began.elapsed().as_secs_f64();
    Ok(json!({ "peer": "strandline", "events_s": events_s, "hwm_kb": memory_kb("VmHWM")? }))
}

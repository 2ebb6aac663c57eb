//! The story: the topics of a shop, what is healthy among them, and what was broken on purpose.

use std::path::Path;

use strandline_testkit::embedded::EmbeddedCluster;
use strandline_tier::{TopicId, Uuid};

use super::tier::{Fate, HOUR, History, MINUTE, SEGMENT_BYTES, Segment, Tier};
use Fate::{
    Astray, Copied, Copying, Deleting, Emptied, Forgotten, FromTheFuture, Retired, Waiting, WithoutIndex,
};

/// The topic that the events go to.
const METADATA_TOPIC: &str = "__remote_log_metadata";
/// Replicas that must have an event: what a topic has where nobody sets it.
const MIN_ISR: i16 = 1;

/// A topic of the shop.
pub(super) struct Topic {
    /// Its name.
    pub(super) name: &'static str,
    /// How many partitions it has.
    pub(super) partitions: i32,
    /// How long its records are kept.
    retention_hours: i64,
    /// What it is for, and how it is.
    pub(super) about: &'static str,
    /// True where nothing of it may be found wrong.
    pub(super) healthy: bool,
}

/// The topics, as the demo introduces them.
#[rustfmt::skip]
pub(super) const TOPICS: [Topic; 7] = [
    Topic { name: "orders", partitions: 3, retention_hours: 24, healthy: true, about: "healthy: tiered, retained, led by another broker since yesterday" },
    Topic { name: "shipments", partitions: 2, retention_hours: 72, healthy: true, about: "healthy, and quiet" },
    Topic { name: "payments", partitions: 2, retention_hours: 24, healthy: false, about: "one partition is no longer uploaded" },
    Topic { name: "clickstream", partitions: 4, retention_hours: 6, healthy: false, about: "short retention, a bucket that was tidied by hand, a clock gone wrong" },
    Topic { name: "inventory", partitions: 2, retention_hours: 72, healthy: false, about: "its books were migrated by a script" },
    Topic { name: "sessions", partitions: 2, retention_hours: 12, healthy: false, about: "tiering was switched off" },
    Topic { name: "carts", partitions: 2, retention_hours: 24, healthy: false, about: "the topic was deleted" },
];

/// One kind of damage: the finding that has to come of it, and where.
#[derive(Clone, Debug)]
pub(super) struct Planted {
    /// The code of the finding.
    pub(super) code: &'static str,
    /// The topic that the finding names, if it names one.
    pub(super) topic: Option<&'static str>,
    /// The partition that it names.
    pub(super) partition: Option<i32>,
    /// The segment that it names.
    pub(super) segment_id: Option<Uuid>,
    /// First and last offset that it names.
    pub(super) offsets: Option<(i64, i64)>,
    /// What happened.
    pub(super) what: &'static str,
}

impl Planted {
    fn new(code: &'static str, what: &'static str) -> Self {
        Self { code, topic: None, partition: None, segment_id: None, offsets: None, what }
    }

    fn topic(self, topic: &'static str) -> Self {
        Self { topic: Some(topic), ..self }
    }

    fn at(self, topic: &'static str, partition: i32) -> Self {
        Self { topic: Some(topic), partition: Some(partition), ..self }
    }

    fn segment(self, segment: &Segment) -> Self {
        let offsets = Some((segment.start_offset, segment.end_offset));
        Self { segment_id: Some(segment.id), offsets, ..self }
    }
}

/// The segments that the demo's commands are about.
pub(super) struct Story {
    /// What was broken, in the order in which it is told.
    pub(super) planted: Vec<Planted>,
    /// A partition of `inventory` and an offset of it that nothing serves.
    pub(super) gap: (i32, i64),
    /// The partition of `payments` that is no longer uploaded.
    pub(super) stuck: i32,
}

/// What a partition of a topic went through that has nothing wrong.
const HEALTHY: [Fate; 8] = [Retired, Retired, Copied, Copied, Copied, Copied, Copied, Copied];

/// Writes the shop's tier into the cluster, and into the storage plugin's directory `store`.
pub(super) async fn write(
    cluster: &EmbeddedCluster,
    store: &Path,
    seed: u64,
    now_ms: i64,
) -> anyhow::Result<Story> {
    let mut shop = Shop { cluster, tier: Tier::new(cluster, store, seed, now_ms), planted: Vec::new() };
    shop.plant(Planted::new(
        "meta.min-isr",
        "the metadata topic was made by Kafka 4.0, which does not set min.insync.replicas",
    ));
    shop.healthy()?;
    let stuck = shop.payments()?;
    shop.clickstream()?;
    let gap = shop.inventory()?;
    shop.sessions()?;
    shop.carts()?;
    shop.tier.foreign_record(2 * HOUR + 11 * MINUTE, br#"{"service":"billing","status":"UP"}"#);
    shop.plant(Planted::new("event.undecodable", "a service wrote its heartbeat into the metadata topic"));
    shop.tier.publish(METADATA_TOPIC, MIN_ISR).await?;
    Ok(Story { planted: shop.planted, gap, stuck })
}

struct Shop<'a> {
    cluster: &'a EmbeddedCluster,
    tier: Tier<'a>,
    planted: Vec<Planted>,
}

impl Shop<'_> {
    fn plant(&mut self, planted: Planted) {
        self.planted.push(planted);
    }

    /// Creates a topic of the table, with tiering on or off.
    fn create(&self, name: &str, tiering: &str) -> (&'static Topic, TopicId) {
        let topic = TOPICS.iter().find(|topic| topic.name == name).expect("the table has every topic");
        let retention = (topic.retention_hours * HOUR).to_string();
        let local = (topic.retention_hours * HOUR / 4).to_string();
        let configs = [
            ("remote.storage.enable", tiering),
            ("retention.ms", &retention),
            ("local.retention.ms", &local),
            ("segment.bytes", SEGMENT_BYTES),
        ];
        (topic, self.cluster.create_topic_with(topic.name, topic.partitions as usize, 3, &configs))
    }

    /// A partition's history up to now, two of its copied segments still on disk.
    fn partition(
        &mut self,
        (topic, topic_id): (&'static Topic, TopicId),
        partition: i32,
        fates: &[Fate],
    ) -> anyhow::Result<Vec<Segment>> {
        self.tier.write(&History {
            topic: topic.name,
            topic_id,
            partition,
            retention_ms: topic.retention_hours * HOUR,
            idle_ms: if topic.name == "carts" { 50 * HOUR } else { 0 },
            fates,
            local: 2,
            leader_change: (topic.name == "orders").then_some(5),
        })
    }

    fn healthy(&mut self) -> anyhow::Result<()> {
        let orders = self.create("orders", "true");
        let mut committed = Vec::new();
        for partition in 0..orders.0.partitions {
            let segments = self.partition(orders, partition, &HEALTHY)?;
            committed.push(("orders", partition, segments[6].start_offset));
        }
        self.cluster.set_group("billing", "Stable", &committed);
        let shipments = self.create("shipments", "true");
        for partition in 0..shipments.0.partitions {
            self.partition(shipments, partition, &[Retired, Copied, Copied, Copied, Copied])?;
        }
        Ok(())
    }

    /// The upload of one partition hangs.
    fn payments(&mut self) -> anyhow::Result<i32> {
        let topic = self.create("payments", "true");
        let stuck = self.tier.between(0, topic.0.partitions.into()) as i32;
        for partition in 0..topic.0.partitions {
            if partition != stuck {
                self.partition(topic, partition, &HEALTHY)?;
                continue;
            }
            let fates = [Retired, Copied, Copied, Copied, Copied, Copied, Copying, Waiting];
            let segments = self.partition(topic, partition, &fates)?;
            let hangs = "the store took the beginning of an upload and never answered";
            self.plant(Planted::new("seg.copy-stuck", hangs).at("payments", partition).segment(&segments[6]));
            let fills = "behind it nothing is uploaded, and the local disk fills";
            self.plant(Planted::new("part.no-upload", fills).at("payments", partition));
        }
        Ok(stuck)
    }

    /// Objects deleted by hand, a deletion that never ended, a producer whose clock was a year ahead.
    fn clickstream(&mut self) -> anyhow::Result<()> {
        let topic = self.create("clickstream", "true");
        let first = self.tier.between(0, 4) as i32;
        let [emptied, cut, deleting, future] = [0, 1, 2, 3].map(|step| (first + step) % 4);
        let damaged = self.tier.between(3, 6) as usize;

        let mut fates = HEALTHY;
        fates[damaged] = Emptied;
        let segments = self.partition(topic, emptied, &fates)?;
        let tidied = "somebody tidied the bucket";
        self.plant(
            Planted::new("obj.missing", tidied).at("clickstream", emptied).segment(&segments[damaged]),
        );

        let mut fates = HEALTHY;
        fates[damaged] = WithoutIndex;
        let segments = self.partition(topic, cut, &fates)?;
        let index = "and removed an index as well";
        self.plant(Planted::new("obj.partial-set", index).at("clickstream", cut).segment(&segments[damaged]));

        let mut fates = HEALTHY;
        fates[0] = Deleting;
        let segments = self.partition(topic, deleting, &fates)?;
        let restarted = "a broker was restarted while it deleted a segment";
        self.plant(
            Planted::new("seg.delete-stuck", restarted).at("clickstream", deleting).segment(&segments[0]),
        );

        let mut fates = HEALTHY;
        fates[2] = FromTheFuture;
        let segments = self.partition(topic, future, &fates)?;
        let ahead = "a phone sent a click from next year";
        self.plant(
            Planted::new("seg.timestamp-future", ahead).at("clickstream", future).segment(&segments[2]),
        );
        let behind = "and retention waits for that year to come";
        self.plant(
            Planted::new("part.retention-blocked", behind).at("clickstream", future).segment(&segments[2]),
        );
        Ok(())
    }

    /// A script that moved the books lost a segment of one partition and hashed another into the wrong place.
    fn inventory(&mut self) -> anyhow::Result<(i32, i64)> {
        let topic = self.create("inventory", "true");
        let forgotten = self.tier.between(0, 2) as i32;
        let astray = 1 - forgotten;
        let lost = self.tier.between(2, 5) as usize;
        let mut fates = [Retired, Copied, Copied, Copied, Copied, Copied, Copied, Copied];
        fates[lost] = Forgotten;
        let segments = self.partition(topic, forgotten, &fates)?;
        let segment = &segments[lost];
        let offsets = Some((segment.start_offset, segment.end_offset));
        let lost_events = "a migration script lost the events of a segment";
        let gap = Planted::new("part.gap", lost_events).at("inventory", forgotten);
        self.plant(Planted { offsets, ..gap });
        let orphan =
            Planted::new("obj.orphan", "whose objects now belong to nobody").at("inventory", forgotten);
        self.plant(Planted { segment_id: Some(segment.id), ..orphan });
        let reader = (segment.start_offset + segment.end_offset) / 2;
        self.cluster.set_group("stock-replay", "Stable", &[("inventory", forgotten, reader)]);

        fates[lost] = Astray;
        let segments = self.partition(topic, astray, &fates)?;
        let wrong = "the script wrote another's events into the wrong metadata partition";
        self.plant(Planted::new("event.misplaced", wrong).at("inventory", astray));
        let unseen = Planted::new("part.gap", "where no broker looks for them").at("inventory", astray);
        let offsets = Some((segments[lost].start_offset, segments[lost].end_offset));
        self.plant(Planted { offsets, ..unseen });
        Ok((forgotten, reader))
    }

    fn sessions(&mut self) -> anyhow::Result<()> {
        let topic = self.create("sessions", "false");
        for partition in 0..topic.0.partitions {
            self.partition(topic, partition, &[Copied, Copied, Copied, Copied])?;
        }
        let off = "tiering was switched off, and the remote data left behind";
        self.plant(Planted::new("topic.disabled-with-data", off).topic("sessions"));
        Ok(())
    }

    fn carts(&mut self) -> anyhow::Result<()> {
        let topic = self.create("carts", "true");
        for partition in 0..topic.0.partitions {
            self.partition(topic, partition, &[Copied, Copied, Copied])?;
        }
        self.cluster.delete_topic("carts");
        let deleted = "the topic was deleted while its remote data could not be";
        self.plant(Planted::new("topic.id-unknown", deleted).topic("carts"));
        Ok(())
    }
}

//! `explain` of a cluster in this process: open transactions, consumer groups, and the rights that they take.

use std::time::Duration;

use strandline_protocol::messages::OffsetFetchRequest;
use strandline_protocol::records::{BatchOptions, NewRecord, Producer};
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Held, Rule};
use strandline_tier::{
    EpochEntry, MetadataPartitioner, RawEvent, RawSegmentMetadata, RawTopicIdPartition, TopicId, Uuid,
};

use crate::{Run, run};

const METADATA_TOPIC: &str = "__remote_log_metadata";

/// A cluster of three brokers, on a runtime of its own: the command is another process.
struct Live {
    kafka: EmbeddedCluster,
    // Ends after the cluster, which needs it.
    runtime: tokio::runtime::Runtime,
}

/// Of `orders:0`, 12 records of which the tier has 0 to 3 and 6 to 7, and the local log 8 to 11; a transaction is open from 10
/// on. Four groups have committed offsets.
fn live() -> Live {
    let (kafka, runtime) = crate::three_brokers();
    kafka.create_topic(METADATA_TOPIC, 3);
    kafka.create_topic_with("returns", 1, 3, &[("remote.storage.enable", "true")]);
    let orders = kafka.create_topic_with("orders", 1, 3, &[("remote.storage.enable", "true")]);
    kafka.append("orders", 0, &[&b"x"[..]; 10]);
    let producer = Producer { id: 7, epoch: 1, base_sequence: 0 };
    let options = BatchOptions { producer: Some(producer), transactional: true, ..BatchOptions::default() };
    let record = NewRecord { timestamp_ms: 1_795_980_000_000, value: Some(b"x"), ..NewRecord::default() };
    kafka.append_batch("orders", 0, options, &[record, record]);
    kafka.set_transaction("pay-1", producer, "Ongoing", 1_795_980_000_000, &[("orders", 0)]);
    for (start, end) in [(0, 3), (6, 7)] {
        copied(&kafka, orders, start, end);
    }
    kafka.set_tiered("orders", 0, Some(7), Some(8));
    kafka.set_group("replay", "Stable", &[("orders", 0, 2)]);
    kafka.set_group("stuck", "Stable", &[("orders", 0, 5)]);
    kafka.set_group("billing", "Stable", &[("orders", 0, 10)]);
    kafka.set_group("elsewhere", "Stable", &[("returns", 0, 5)]);
    Live { kafka, runtime }
}

/// The two events of a segment whose copy has finished.
fn copied(kafka: &EmbeddedCluster, topic_id: TopicId, start_offset: i64, end_offset: i64) {
    let metadata = RawSegmentMetadata {
        topic_id_partition: RawTopicIdPartition { topic: "orders".into(), topic_id, partition: 0 },
        segment_id: Uuid([u8::try_from(start_offset).unwrap() + 1; 16]),
        start_offset,
        end_offset,
        broker_id: 1,
        max_timestamp_ms: 1_795_979_000_000,
        event_timestamp_ms: 1_795_979_000_000,
        segment_leader_epochs: [EpochEntry { epoch: 0, start_offset }].into_iter().collect(),
        segment_size_in_bytes: 100,
        custom_metadata: None,
        state_id: 0,
        txn_index_empty: true,
    };
    let update = strandline_tier::RawSegmentUpdate {
        topic_id_partition: metadata.topic_id_partition.clone(),
        segment_id: metadata.segment_id,
        broker_id: 1,
        event_timestamp_ms: 1_795_979_000_000,
        custom_metadata: None,
        state_id: 1,
    };
    let partition = MetadataPartitioner::new(3).unwrap().metadata_partition(topic_id, 0);
    for event in [RawEvent::SegmentMetadata(metadata), RawEvent::SegmentMetadataUpdate(update)] {
        let mut value = Vec::new();
        strandline_tier::codec::encode(&event, &mut value).unwrap();
        kafka.append(METADATA_TOPIC, partition, &[&value]);
    }
}

impl Live {
    fn explain(&self, address: &str, more: &[&str]) -> Run {
        let bootstrap = self.kafka.bootstrap();
        let mut arguments = vec!["explain", address, "-b", &bootstrap];
        arguments.extend(more);
        run(&arguments)
    }

    fn reasons(&self) -> (i32, String) {
        let run = self.explain("orders:0", &["-o", "json"]);
        let value: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let lines = |list: &serde_json::Value| {
            let lines: Vec<String> = list.as_array().unwrap().iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        let (item, incomplete) = (&value["items"][0], lines(&value["incomplete"]));
        (run.code, format!("{}\n{}\n{incomplete}", lines(&item["reasons"]), lines(&item["not_known"])))
    }

    fn asked(&self, api: ApiKey) -> usize {
        self.kafka.journal().iter().filter(|entry| entry.api == api).count()
    }
}

#[test]
fn explain_names_the_open_transaction_and_the_groups_that_need_the_tier_or_stand_in_a_hole() {
    let live = live();
    let run = live.explain("orders:0", &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let screen = run.stdout.split("\n\ndamage").next().unwrap().to_owned();
    let coordinator =
        live.kafka.journal().iter().rfind(|entry| entry.api == ApiKey::DescribeTransactions).unwrap().broker;
    let topic_id = live.kafka.view().topics["orders"].id.to_string();
    let screen = screen
        .replace(&format!("coordinator broker {coordinator}"), "coordinator broker N")
        .replace(&topic_id, "TOPIC-ID");
    insta::assert_snapshot!(screen, @"
    orders:0 (topic id TOPIC-ID)
    the tier serves offsets from 0 to 7 without 4 to 5 (2 readable segments, 200 B)
      - only in the tier: offsets 0 to 3, 6 to 7
      - in neither: offsets 4 to 5
      - only local: offsets 8 to 11
      - not uploaded: offsets 8 to 11, in the active segment, which is never copied, as far as sizes tell: about
      218 B are left, and a segment is rolled at 1.0 GiB (segment.bytes)
      - an open transaction holds the last stable offset at 10: producer 7, transactional id pay-1, since offset
      10, open for 10 min (since 2026-11-29 19:20:00Z), state Ongoing, aborted by its coordinator after 1 min,
      coordinator broker N; no segment that reaches beyond it is copied before it ends
      - 1 consumer group stands where nothing serves the next offset
      - 1 consumer group stands where only the tier has the next offset
    effect: a group that stands where nothing serves gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset
    sends it

    CONSUMER GROUP  STATE   NEXT OFFSET  LAG  WHERE
    replay          Stable            2   10  only in the tier, segment AQEBAQEBAQEBAQEBAQEBAQ
    stuck           Stable            5    7  in a hole: nothing serves it
    ");

    let at = live.explain("orders:0@5", &[]).stdout;
    let at = at.split("\n\ndamage").next().unwrap().replace(&topic_id, "TOPIC-ID");
    insta::assert_snapshot!(at, @"
    orders:0 offset 5 (topic id TOPIC-ID)
    nothing in the tier serves it
      - it lies in a gap: segment AQEBAQEBAQEBAQEBAQEBAQ ends at 3, segment BwcHBwcHBwcHBwcHBwcHBw begins at 6
      - 1 consumer group stands exactly here
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    CONSUMER GROUP  STATE   NEXT OFFSET  LAG  WHERE
    stuck           Stable            5    7  in a hole: nothing serves it
    ");
}

#[test]
fn only_explain_asks_who_holds_and_who_stands_where_and_nothing_is_written() {
    let live = live();
    let bootstrap = live.kafka.bootstrap();
    let audit = run(&["audit", "-b", &bootstrap, "--fail-on", "never"]);
    assert_eq!(audit.code, 0, "{}", audit.stderr);
    for api in [ApiKey::ListGroups, ApiKey::OffsetFetch, ApiKey::DescribeProducers, ApiKey::FindCoordinator] {
        assert_eq!(live.asked(api), 0, "{api}");
    }
    live.explain("orders:0", &[]);
    assert_eq!(
        live.asked(ApiKey::ListGroups),
        3,
        "every broker is asked once, also where rules need a second look"
    );
    // Of the partitions that are asked about, and no others; of a segment nobody stands anywhere.
    live.explain("orders", &[]);
    assert_eq!(live.asked(ApiKey::ListGroups), 6);
    live.explain("id:AQEBAQEBAQEBAQEBAQEBAQ", &[]);
    assert_eq!(live.asked(ApiKey::ListGroups), 6);
    for entry in live.kafka.journal().iter().filter(|entry| entry.api == ApiKey::OffsetFetch) {
        let request: OffsetFetchRequest = entry.decode().unwrap();
        for group in request.groups {
            let topics = group.topics.expect("named topics");
            assert!(matches!(&topics[..], [topic] if topic.name == "orders"), "{topics:?}");
        }
    }
    let reading = [
        ApiKey::ApiVersions,
        ApiKey::Metadata,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::OffsetForLeaderEpoch,
        ApiKey::DescribeConfigs,
        ApiKey::DescribeLogDirs,
        ApiKey::DescribeProducers,
        ApiKey::ListTransactions,
        ApiKey::DescribeTransactions,
        ApiKey::ListGroups,
        ApiKey::OffsetFetch,
        ApiKey::FindCoordinator,
    ];
    for entry in live.kafka.journal() {
        assert!(reading.contains(&entry.api), "{entry}");
    }
}

#[test]
fn without_groups_and_transactions_no_coordinator_is_looked_for() {
    let live = live();
    live.kafka.delete_topic("__consumer_offsets");
    live.kafka.delete_topic("__transaction_state");
    let (code, told) = live.reasons();
    assert_eq!(code, 0);
    assert!(told.contains("no consumer group has committed an offset"), "{told}");
    assert!(told.contains("the transactional id of producer 7"), "{told}");
    assert_eq!(live.asked(ApiKey::FindCoordinator), 0);
    assert!(!live.kafka.view().topics.contains_key("__consumer_offsets"));
}

#[test]
fn what_may_not_be_seen_of_transactions_and_groups_is_named_with_the_right_and_is_no_failure() {
    let refusals = [
        (ApiKey::DescribeProducers, ErrorCode::TopicAuthorizationFailed, "READ on the topic is missing"),
        (
            ApiKey::DescribeTransactions,
            ErrorCode::TransactionalIdAuthorizationFailed,
            "DESCRIBE on the transactional id is missing",
        ),
        (ApiKey::OffsetFetch, ErrorCode::GroupAuthorizationFailed, "DESCRIBE on the group is missing"),
        (
            ApiKey::DescribeLogDirs,
            ErrorCode::ClusterAuthorizationFailed,
            "whether there are more consumer groups",
        ),
    ];
    let live = live();
    for (api, code, right) in refusals {
        live.kafka.script(Rule::new(Fault::Error(code)).api(api).always());
        let (exit, told) = live.reasons();
        assert_eq!(exit, 0, "{api}: {told}");
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("\"reason\"")).collect();
        assert!(matches!(lines[..], [line] if line.contains(right)), "{api}: {lines:?}");
        live.kafka.clear_script();
    }
    // On the screen it stands with the reasons.
    live.kafka.script(
        Rule::new(Fault::Error(ErrorCode::TopicAuthorizationFailed)).api(ApiKey::DescribeProducers).always(),
    );
    let screen = live.explain("orders:0", &[]).stdout;
    assert!(
        screen.contains(
            "- not known: who holds the last stable offset of orders:0: READ on the topic is missing"
        ),
        "{screen}"
    );
}

#[test]
fn a_broker_that_cannot_list_its_groups_or_transactions_makes_the_answer_incomplete() {
    let live = live();
    for (api, what) in [
        (ApiKey::ListGroups, "the consumer groups of broker 2"),
        (ApiKey::ListTransactions, "the transactions of broker 2"),
    ] {
        live.kafka.script(Rule::new(Fault::Error(ErrorCode::UnknownServerError)).api(api).broker(2).always());
        let (exit, told) = live.reasons();
        assert!(exit == 6 && told.contains(what), "{exit}: {told}");
        live.kafka.clear_script();
    }
}

#[test]
fn a_transaction_is_said_to_hang_only_where_it_is_open_still_after_its_coordinator_called_it_over() {
    let live = live();
    let producer = Producer { id: 7, epoch: 1, base_sequence: 0 };
    let set = |state: &str| live.kafka.set_transaction("pay-1", producer, state, -1, &[("orders", 0)]);
    set("CompleteAbort");
    let (_, told) = live.reasons();
    let hangs = "state CompleteAbort, aborted by its coordinator after 1 min";
    assert!(
        told.contains(hangs)
            && told.contains("kafka-transactions abort --topic orders --partition 0 --start-offset 10"),
        "{told}"
    );
    assert_eq!(live.asked(ApiKey::DescribeProducers), 2);

    // It ends between the two questions: the coordinator's answer is held back until the marker is written.
    let held = Held::default();
    live.kafka.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::DescribeTransactions));
    let before = live.asked(ApiKey::DescribeTransactions);
    let ending = std::thread::scope(|scope| {
        let explained = scope.spawn(|| live.reasons());
        let asked = live.kafka.journal_when(|journal| {
            journal.iter().filter(|entry| entry.api == ApiKey::DescribeTransactions).count() > before
        });
        let asked =
            live.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), asked).await });
        live.kafka.end_transaction("orders", 0, producer, false);
        held.release();
        assert!(asked.is_ok(), "nobody asked the coordinator");
        explained.join().unwrap()
    });
    assert!(ending.0 == 0 && !ending.1.contains("kafka-transactions"), "{}", ending.1);

    // A coordinator that has forgotten the id since it listed it is no failure.
    live.kafka.append_batch(
        "orders",
        0,
        BatchOptions { producer: Some(producer), transactional: true, ..BatchOptions::default() },
        &[NewRecord { value: Some(b"x"), ..NewRecord::default() }],
    );
    live.kafka.script(
        Rule::new(Fault::Error(ErrorCode::TransactionalIdNotFound)).api(ApiKey::DescribeTransactions),
    );
    let (code, told) = live.reasons();
    assert!(code == 0 && told.contains("state Dead"), "{code}: {told}");
}

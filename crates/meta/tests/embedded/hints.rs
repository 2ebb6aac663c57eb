//! Leaders as brokers name them in their refusals (KIP-951): followed at once where they are newer, and never believed twice.

use strandline_meta::routing::Subject;
use strandline_meta::{ApiKey, Call, ErrorCode, ItemAnswer, Routed};
use strandline_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Held, Rule};

use crate::support::{asked, connect, eventually, shown, soon, start, within};

/// Fetches the high watermark of partitions of `orders`, in the leader epoch of the view.
struct Fetches {
    id: strandline_protocol::Uuid,
}

impl Fetches {
    fn of(embedded: &EmbeddedCluster) -> Self {
        Self { id: embedded.view().topics["orders"].id.0 }
    }
}

impl Call for Fetches {
    type Request = FetchRequest;
    type Item = i32;
    type Answer = i64;

    fn subject(&self, partition: &i32) -> Subject {
        Subject::Partition { topic: "orders".into(), partition: *partition }
    }

    fn request(&self, items: &[Routed<'_, i32>], _version: i16) -> FetchRequest {
        let partitions = items.iter().map(|routed| FetchPartition {
            partition: *routed.item,
            current_leader_epoch: routed.leader_epoch.unwrap_or(-1),
            partition_max_bytes: 1_000_000,
            ..Default::default()
        });
        let topic = FetchTopic { topic_id: self.id, partitions: partitions.collect(), ..Default::default() };
        FetchRequest { topics: vec![topic], ..Default::default() }
    }

    fn answers(&self, _items: &[Routed<'_, i32>], response: FetchResponse) -> Vec<ItemAnswer<i64>> {
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let answers = partitions.map(|partition| match partition.error_code {
            ErrorCode::None => ItemAnswer::Answer(partition.high_watermark),
            code => ItemAnswer::Code(code, None),
        });
        answers.collect()
    }
}

fn fetched(embedded: &EmbeddedCluster) -> Vec<i32> {
    let journal = embedded.journal();
    journal.iter().filter(|entry| entry.api == ApiKey::Fetch).map(|entry| entry.broker).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_followed_at_once_while_the_view_is_asked_for_beside_it() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    let call = Fetches::of(&embedded);
    assert_eq!(shown(cluster.send_each(&call, &[1], soon()).await.unwrap()), ["10"]);
    embedded.move_leader("orders", 1, 3);
    // No Metadata is to be had.
    let held = Held::default();
    embedded.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::Metadata).always());
    let metadata = asked(&embedded, ApiKey::Metadata).len();
    assert_eq!(shown(cluster.send_each(&call, &[1], within(1_000)).await.unwrap()), ["10"]);
    assert_eq!(fetched(&embedded), [2, 2, 3]);
    let partition = cluster.snapshot().partition("orders", 1).unwrap().clone();
    assert_eq!((partition.leader, partition.leader_epoch), (Some(3), Some(1)));
    assert!(cluster.snapshot().topic("orders").unwrap().stale, "a hint makes nothing look fresh");
    // The hint suppressed no refresh.
    eventually("a refresh beside it", async || asked(&embedded, ApiKey::Metadata).len() > metadata).await;
    held.release();
    eventually("a fresh view", async || !cluster.snapshot().topic("orders").unwrap().stale).await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_may_name_a_broker_that_the_view_does_not_know() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    let call = Fetches::of(&embedded);
    cluster.send_each(&call, &[1], soon()).await.unwrap();
    let new = embedded.add_broker().await.unwrap();
    embedded.move_leader("orders", 1, new);
    let held = Held::default();
    embedded.script(Rule::new(Fault::Hold(held)).api(ApiKey::Metadata).always());
    assert_eq!(shown(cluster.send_each(&call, &[1], within(1_000)).await.unwrap()), ["10"]);
    assert_eq!(fetched(&embedded), [2, 2, new]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_hint_is_followed_once_and_then_the_view_is_refreshed() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    let call = Fetches::of(&embedded);
    cluster.send_each(&call, &[1], soon()).await.unwrap();
    embedded.move_leader("orders", 1, 3);
    // The old leader sends to broker 1 for ever, in an epoch that nobody has reached.
    embedded.freeze_view(2, |view| {
        let partition = &mut view.topics.get_mut("orders").unwrap().partitions[1];
        (partition.leader, partition.leader_epoch) = (1, 8);
    });
    let metadata = asked(&embedded, ApiKey::Metadata).len();
    assert_eq!(shown(cluster.send_each(&call, &[1], within(60_000)).await.unwrap()), ["10"]);
    assert_eq!(fetched(&embedded)[..3], [2, 2, 1], "the hint was followed");
    assert_eq!(fetched(&embedded).last(), Some(&3));
    assert!(asked(&embedded, ApiKey::Metadata).len() > metadata);
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_not_newer_changes_nothing() {
    let embedded = start(3);
    for _ in 0..5 {
        embedded.move_leader("orders", 1, 2);
    }
    let cluster = connect(&embedded).await;
    let call = Fetches::of(&embedded);
    cluster.send_each(&call, &[1], soon()).await.unwrap();
    // The leader moves, and the old one still believes what was long ago.
    embedded.move_leader("orders", 1, 3);
    embedded.freeze_view(2, |view| {
        let partition = &mut view.topics.get_mut("orders").unwrap().partitions[1];
        (partition.leader, partition.leader_epoch) = (1, 4);
    });
    assert_eq!(shown(cluster.send_each(&call, &[1], within(60_000)).await.unwrap()), ["10"]);
    assert!(!fetched(&embedded).contains(&1), "{:?}", fetched(&embedded));
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_connection_of_its_own_can_give_the_hints_of_its_answers() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    let connection = cluster.dedicated(2, soon()).await.unwrap();
    embedded.move_leader("orders", 1, 3);
    let call = Fetches::of(&embedded);
    let routed = [Routed { item: &1, leader_epoch: Some(0) }];
    let answer = connection.send(|version| call.request(&routed, version), soon()).await.unwrap();
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::FencedLeaderEpoch);
    assert!(cluster.learn_leaders(&answer));
    assert!(!cluster.learn_leaders(&answer), "the same hint is not newer than itself");
    assert_eq!(cluster.snapshot().partition("orders", 1).unwrap().leader, Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_topic_id_that_no_topic_has_any_more_is_told_after_a_few_refreshes_and_does_not_spin() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    let old = Fetches::of(&embedded);
    cluster.send_each(&old, &[0], soon()).await.unwrap();
    embedded.recreate_topic("orders");
    let began = tokio::time::Instant::now();
    let results = cluster.send_each(&old, &[0], within(600_000)).await.unwrap();
    assert_eq!(results[0].as_ref().unwrap_err().code(), Some(ErrorCode::UnknownTopicId));
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert!(fetched(&embedded).len() <= 6, "{:?}", fetched(&embedded));
    // By then the view has the new topic, and says instead of which.
    let view = cluster.snapshot();
    assert!(view.topic_instead_of(strandline_meta::TopicId(old.id)).is_some());
    assert_eq!(shown(cluster.send_each(&Fetches::of(&embedded), &[0], soon()).await.unwrap()), ["0"]);
}

//! The view: what enters it, what does not, how often it is asked for.

use futures::future::join_all;
use strandline_meta::{ApiKey, Cluster, ErrorCode, Recovery, TopicView};
use strandline_protocol::messages::MetadataRequest;
use strandline_testkit::embedded::{Acl, EmbeddedCluster, Fault, Held, Operation, Rule};

use crate::support::{
    address, asked, chain, config, connect, connect_to_one, offsets, soon, start, within, without_numbers,
};

const ORDERS: [(&str, i32); 1] = [("orders", 0)];

#[tokio::test(start_paused = true)]
async fn no_metadata_request_on_the_wire_lets_a_broker_create_a_topic() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    offsets(&cluster, &[("ordres", 0), ("orders", 0)], soon()).await;
    let journal = embedded.journal();
    let metadata: Vec<MetadataRequest> = journal
        .iter()
        .filter(|entry| entry.api == ApiKey::Metadata)
        .map(|entry| entry.decode().unwrap())
        .collect();
    assert!(metadata.len() >= 3 && metadata.iter().all(|request| !request.allow_auto_topic_creation));
    assert!(!embedded.view().topics.contains_key("ordres"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_on_a_broker_that_just_joined_is_found() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &ORDERS, soon()).await;
    let new = embedded.add_broker().await.unwrap();
    embedded.move_leader("orders", 0, new);
    assert_eq!(offsets(&cluster, &ORDERS, soon()).await, ["0"]);
    assert_eq!(asked(&embedded, ApiKey::ListOffsets).last().unwrap(), "2 ListOffsets orders:0");
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_one_topic_brings_its_brokers_and_its_controller() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    embedded.add_broker().await.unwrap();
    embedded.move_controller(2);
    let view = cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    assert_eq!(view.brokers().map(|broker| broker.node_id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(view.controller_id(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_look_ups_of_a_partition_without_a_leader_ask_for_metadata_at_one_bounded_pace() {
    let embedded = start(1);
    embedded.move_leader("orders", 0, -1);
    let cluster = connect(&embedded).await;
    let calls = join_all((0..200).map(|_| offsets(&cluster, &ORDERS, within(1_000)))).await;
    assert!(
        calls.iter().all(|result| result[0].contains("partition orders:0 has no leader")),
        "{:?}",
        calls[0]
    );
    let asked = asked(&embedded, ApiKey::Metadata).len();
    assert!(asked <= 25, "{asked} Metadata requests in a second");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_look_ups_of_a_topic_that_nobody_asked_about_send_a_handful_of_requests() {
    let embedded = start(3);
    let cluster = connect(&embedded).await;
    let calls = join_all((0..200).map(|_| offsets(&cluster, &ORDERS, soon()))).await;
    assert!(calls.iter().all(|result| result == &["0"]));
    let asked = asked(&embedded, ApiKey::Metadata);
    assert!(asked.len() <= 4, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_partition_without_a_leader_is_answered_as_soon_as_it_has_one() {
    let embedded = start(1);
    embedded.move_leader("orders", 0, -1);
    let cluster = connect(&embedded).await;
    let election = async {
        embedded
            .journal_when(|journal| journal.iter().filter(|entry| entry.api == ApiKey::Metadata).count() > 1)
            .await;
        embedded.move_leader("orders", 0, 1);
    };
    assert_eq!(tokio::join!(offsets(&cluster, &ORDERS, soon()), election).0, ["0"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_while_nothing_is_stale() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &ORDERS, soon()).await;
    let before = embedded.journal().len();
    tokio::time::advance(std::time::Duration::from_secs(7_200)).await;
    for _ in 0..50 {
        offsets(&cluster, &ORDERS, soon()).await;
    }
    let since = &embedded.journal()[before..];
    assert!(since.iter().all(|entry| entry.api != ApiKey::Metadata), "{since:?}");
}

#[tokio::test(start_paused = true)]
async fn a_contradiction_that_answers_do_not_settle_is_asked_about_ever_more_slowly() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &ORDERS, soon()).await;
    // The leader says that it is none, and every Metadata answer says that it is.
    let refused = Fault::Error(ErrorCode::NotLeaderOrFollower);
    embedded.script(Rule::new(refused).api(ApiKey::ListOffsets).always());
    let before = asked(&embedded, ApiKey::Metadata).len();
    offsets(&cluster, &ORDERS, within(20_000)).await;
    let asked = asked(&embedded, ApiKey::Metadata).len() - before;
    assert!((8..=30).contains(&asked), "{asked} Metadata requests in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_does_not_exist_and_one_that_may_not_be_seen_are_told_apart() {
    let embedded = start(1);
    embedded.create_topic("secret", 1);
    embedded.set_acls(Some(vec![
        Acl::topic("User:ANONYMOUS", "orders", Operation::Describe),
        Acl::topic("User:ANONYMOUS", "ordres", Operation::Describe),
    ]));
    let cluster = connect(&embedded).await;
    let view = cluster.refresh_topics(&["orders", "ordres", "secret"], soon()).await.unwrap();
    let code = |name| match view.topic_view(name) {
        TopicView::Refused { code, .. } => Some(code),
        TopicView::Known(_) | TopicView::NotAsked => None,
    };
    assert_eq!(code("orders"), None);
    assert_eq!(code("ordres"), Some(ErrorCode::UnknownTopicOrPartition));
    assert_eq!(code("secret"), Some(ErrorCode::TopicAuthorizationFailed));
    let results = offsets(&cluster, &[("ordres", 0), ("secret", 0), ("orders", 7)], soon()).await;
    insta::assert_snapshot!(results.join("\n"), @r"
    topic ordres: UNKNOWN_TOPIC_OR_PARTITION
    topic secret: TOPIC_AUTHORIZATION_FAILED
    topic orders has 1 partitions, and none has number 7
    ");
}

#[tokio::test(start_paused = true)]
async fn a_question_by_name_keeps_its_answer_beside_a_question_for_all() {
    let embedded = start(1);
    embedded.create_topic("secret", 1);
    embedded.set_acls(Some(vec![Acl::topic("User:ANONYMOUS", "orders", Operation::Describe)]));
    let cluster = connect(&embedded).await;
    let (all, named) = tokio::join!(cluster.refresh_all(soon()), cluster.refresh_topics(&["secret"], soon()));
    assert!(all.unwrap().topic("orders").is_some());
    let named = named.unwrap();
    let TopicView::Refused { code, .. } = named.topic_view("secret") else { panic!("not asked by name") };
    assert_eq!(code, ErrorCode::TopicAuthorizationFailed);
}

#[tokio::test(start_paused = true)]
async fn a_code_for_the_whole_answer_leaves_the_view_as_it_was_and_another_broker_is_asked() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    let before = cluster.snapshot();
    // A broker that is told to refuse says so of each topic; the code of the whole comes with version 13.
    embedded.script(Rule::new(Fault::Error(ErrorCode::RebootstrapRequired)).api(ApiKey::Metadata).always());
    let error = cluster.refresh_all(within(2_000)).await.unwrap_err();
    assert!(chain(&error).contains("REBOOTSTRAP_REQUIRED"), "{}", chain(&error));
    let after = cluster.snapshot();
    assert_eq!(after.topic("orders"), before.topic("orders"));
    assert_eq!(after.brokers().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_brokers_leaves_the_view_as_it_was_and_is_no_success() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    embedded.freeze_view(1, |view| view.brokers.clear());
    let error = cluster.refresh_all(within(5_000)).await.unwrap_err();
    assert!(chain(&error).ends_with("the Metadata answer names no broker"), "{}", chain(&error));
    assert_eq!(cluster.snapshot().brokers().len(), 1);
    assert!(cluster.snapshot().topic("orders").is_some());
    embedded.thaw_views();
    cluster.refresh_all(soon()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_belongs_to_another_cluster_now_is_an_error_and_never_the_view() {
    let embedded = start(1);
    // Older than KIP-1242: only the Metadata answer tells.
    embedded.set_version(1, strandline_testkit::embedded::KafkaVersion::V4_0);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    embedded.freeze_view(1, |view| {
        view.cluster_id = "another".to_owned();
        view.topics.clear();
    });
    let error = cluster.refresh_all(within(5_000)).await.unwrap_err();
    let text = without_numbers(&chain(&error)).replace(&embedded.cluster_id(), "ours");
    assert!(
        text.ends_with("belongs to cluster another, but this client is connected to cluster ours"),
        "{text}"
    );
    assert_eq!(error.recovery(), Recovery::Fail);
    assert!(cluster.snapshot().topic("orders").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_created_again_starts_anew_and_both_ids_can_be_had() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    embedded.set_leader_epoch("orders", 0, 7);
    let old = cluster.refresh_topics(&["orders"], soon()).await.unwrap().topic("orders").unwrap().id.unwrap();
    let new = embedded.recreate_topic("orders");
    let view = cluster.refresh_topics(&["orders"], soon()).await.unwrap();
    let topic = view.topic("orders").unwrap();
    assert_eq!((topic.id, topic.partitions[0].leader_epoch), (Some(new), Some(0)));
    assert_eq!(topic.replaced_ids(), [old]);
    assert!(view.topic_by_id(old).is_none());
    assert_eq!(view.topic_instead_of(old).unwrap().id, Some(new));
    assert!(view.topic_instead_of(new).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_a_full_list_left_out_keeps_its_epochs_when_a_lagging_broker_brings_it_back() {
    let embedded = start(1);
    embedded.set_leader_epoch("orders", 0, 5);
    let cluster = connect(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    embedded.freeze_view(1, |view| view.topics.clear());
    assert!(cluster.refresh_all(soon()).await.unwrap().topic("orders").is_none());
    embedded.thaw_views();
    embedded.set_leader_epoch("orders", 0, 3);
    let view = cluster.refresh_all(soon()).await.unwrap();
    assert_eq!(view.partition("orders", 0).unwrap().leader_epoch, Some(5));
}

#[tokio::test(start_paused = true)]
async fn concurrent_refreshes_of_different_topics_lose_none() {
    let embedded = start(3);
    let names: Vec<String> = (0..40).map(|number| format!("topic-{number}")).collect();
    for name in &names {
        embedded.create_topic(name, 1);
    }
    let cluster = connect(&embedded).await;
    let refreshed =
        join_all(names.iter().map(|name| cluster.refresh_topics(std::slice::from_ref(name), soon()))).await;
    assert!(refreshed.iter().all(Result::is_ok));
    let view = cluster.snapshot();
    assert!(names.iter().all(|name| view.topic(name).is_some()));
    assert!(asked(&embedded, ApiKey::Metadata).len() <= 6);
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_metadata_waits_for_a_request_that_begins_after_it() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    let held = Held::default();
    embedded.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::Metadata));
    let first = cluster.refresh_topics(&["orders"], soon());
    let second = async {
        embedded
            .journal_when(|journal| journal.iter().filter(|e| e.api == ApiKey::Metadata).count() > 1)
            .await;
        let second = cluster.refresh_topics(&["orders"], soon());
        let change = async {
            // The request of the first is on its way, and may not see what happens now.
            tokio::task::yield_now().await;
            embedded.move_leader("orders", 0, -1);
            held.release();
        };
        tokio::join!(second, change).0.unwrap()
    };
    let (first, second) = tokio::join!(first, second);
    first.unwrap();
    assert_eq!(second.partition("orders", 0).unwrap().leader, None);
    assert_eq!(asked(&embedded, ApiKey::Metadata).len(), 3);
}

/// A cluster of one broker in which partition 0 is in this epoch, and a client that knows it.
async fn in_epoch(epoch: i32) -> (EmbeddedCluster, Cluster) {
    let embedded = start(1);
    embedded.set_leader_epoch("orders", 0, epoch);
    let cluster = connect_to_one(&embedded).await;
    cluster.refresh_all(soon()).await.unwrap();
    (embedded, cluster)
}

#[tokio::test(start_paused = true)]
async fn an_older_epoch_from_a_lagging_broker_is_ignored_until_enough_answers_agree() {
    let (embedded, cluster) = in_epoch(9).await;
    embedded.set_leader_epoch("orders", 0, 4);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let view = cluster.refresh_topics(&["orders"], soon()).await.unwrap();
        seen.push(view.partition("orders", 0).unwrap().leader_epoch.unwrap());
    }
    assert_eq!(seen, [9, 9, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_through_after_an_election_that_lost_the_epochs() {
    let (embedded, cluster) = in_epoch(9).await;
    embedded.set_leader_epoch("orders", 0, 4);
    // The leader refuses the epoch that is too new (UNKNOWN_LEADER_EPOCH), which a broker that lags behind does as well.
    assert_eq!(offsets(&cluster, &ORDERS, within(60_000)).await, ["0"]);
}

#[tokio::test(start_paused = true)]
async fn not_leader_marks_the_topic_stale_even_if_the_leader_stays_the_same() {
    let (embedded, cluster) = in_epoch(1).await;
    let before = asked(&embedded, ApiKey::Metadata).len();
    embedded.script(Rule::new(Fault::Error(ErrorCode::NotLeaderOrFollower)).api(ApiKey::ListOffsets));
    // The refresh that follows is held, so that the mark can be seen.
    let held = Held::default();
    embedded.script(Rule::new(Fault::Hold(held.clone())).api(ApiKey::Metadata));
    let look = async {
        let asked_again = |journal: &[strandline_testkit::embedded::JournalEntry]| {
            journal.iter().filter(|entry| entry.api == ApiKey::Metadata).count() > before
        };
        embedded.journal_when(asked_again).await;
        let stale = cluster.snapshot().topic("orders").unwrap().stale;
        held.release();
        stale
    };
    let (results, stale) = tokio::join!(offsets(&cluster, &ORDERS, soon()), look);
    assert!(stale);
    assert_eq!(results, ["0"]);
    assert!(!cluster.snapshot().topic("orders").unwrap().stale);
}

#[tokio::test(start_paused = true)]
async fn a_storage_error_refreshes_the_view_and_is_tried_again() {
    let (embedded, cluster) = in_epoch(1).await;
    let before = asked(&embedded, ApiKey::Metadata).len();
    embedded.script(Rule::new(Fault::Error(ErrorCode::KafkaStorageError)).api(ApiKey::ListOffsets));
    assert_eq!(offsets(&cluster, &ORDERS, soon()).await, ["0"]);
    assert_eq!(asked(&embedded, ApiKey::Metadata).len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_asks_the_next_broker_when_one_is_silent_for_half_a_second() {
    let embedded = start(3);
    let cluster = Cluster::connect(config(&embedded), soon()).await.unwrap();
    assert!(address(&embedded, 1).port() > 0);
    cluster.refresh_all(soon()).await.unwrap();
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::Metadata).broker(1).always());
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::Metadata).broker(2).always());
    let began = tokio::time::Instant::now();
    cluster.refresh_all(soon()).await.unwrap();
    assert!(began.elapsed().as_millis() < 2_000, "{:?}", began.elapsed());
}

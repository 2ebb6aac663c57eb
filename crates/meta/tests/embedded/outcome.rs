//! What became of a request: every call ends in time, and never says less or more than is known.

use std::time::Duration;

use strandline_meta::routing::Subject;
use strandline_meta::{ApiKey, Cluster, ErrorCode, SendError};
use strandline_protocol::messages::create_topics::CreatableTopic;
use strandline_protocol::messages::{CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest};
use strandline_protocol::messages::{FetchRequest, MetadataRequest};
use strandline_testkit::embedded::{EmbeddedCluster, Fault, Network, Rule};
use tokio::time::Instant;

use crate::support::{asked, chain, config, connect, offsets, soon, start, within};

async fn read_write(embedded: &EmbeddedCluster) -> Cluster {
    let config = config(embedded).read_write().request_timeout(Duration::from_secs(2));
    Cluster::connect(config, soon()).await.unwrap()
}

fn create(names: &[&str]) -> impl Fn(i16) -> CreateTopicsRequest + Send + Sync + use<> {
    let topics: Vec<CreatableTopic> = names
        .iter()
        .map(|name| CreatableTopic {
            name: name.to_string(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        })
        .collect();
    move |_version| CreateTopicsRequest { topics: topics.clone(), timeout_ms: 1_000, ..Default::default() }
}

async fn create_orders(cluster: &Cluster, deadline: Instant) -> Result<ErrorCode, SendError> {
    let answer = cluster.send(Subject::Cluster, create(&["payments"]), deadline).await?;
    Ok(answer.topics[0].error_code)
}

#[tokio::test(start_paused = true)]
async fn a_topic_whose_creation_lost_its_answer_is_not_created_again() {
    let embedded = start(3);
    let cluster = read_write(&embedded).await;
    for fault in [Fault::ApplyThenLose, Fault::CloseAfter(3), Fault::Drop, Fault::Garbage(vec![0; 64])] {
        let before = asked(&embedded, ApiKey::CreateTopics).len();
        let fault_words = format!("{fault:?}");
        embedded.script(Rule::new(fault).api(ApiKey::CreateTopics));
        let error = create_orders(&cluster, soon()).await.unwrap_err();
        assert!(error.may_have_been_sent(), "{fault_words}: {}", chain(&error));
        assert_eq!(asked(&embedded, ApiKey::CreateTopics).len(), before + 1, "{fault_words}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_was_refused_is_tried_again_and_one_that_may_be_under_way_is_not() {
    let embedded = start(1);
    let cluster = read_write(&embedded).await;
    let refused = Fault::Error(ErrorCode::NotController);
    embedded.script(Rule::new(refused).api(ApiKey::CreateTopics).times(2));
    assert_eq!(create_orders(&cluster, soon()).await.unwrap(), ErrorCode::None);
    // The controller waits in vain for others: the topic may appear yet.
    let unknown = Fault::Error(ErrorCode::RequestTimedOut);
    embedded.script(Rule::new(unknown).api(ApiKey::CreateTopics));
    let answer = create_orders(&cluster, soon()).await.unwrap();
    assert_eq!(answer, ErrorCode::RequestTimedOut, "the caller is told what the broker says");
    assert_eq!(asked(&embedded, ApiKey::CreateTopics).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_in_part_is_not_done_again_as_a_whole() {
    let embedded = start(1);
    let cluster = read_write(&embedded).await;
    embedded.create_topic("payments", 1);
    // One of the two is gone already, which for the other codes of its kind is a reason to refresh and repeat.
    let delete = |version| {
        let names = ["payments", "nothing"];
        match version >= 6 {
            true => DeleteTopicsRequest {
                topics: names
                    .iter()
                    .map(|name| strandline_protocol::messages::delete_topics::DeleteTopicState {
                        name: Some(name.to_string()),
                        ..Default::default()
                    })
                    .collect(),
                timeout_ms: 1_000,
                ..Default::default()
            },
            false => DeleteTopicsRequest {
                topic_names: names.iter().map(|name| name.to_string()).collect(),
                timeout_ms: 1_000,
                ..Default::default()
            },
        }
    };
    let answer = cluster.send(Subject::Cluster, delete, soon()).await.unwrap();
    let codes: Vec<ErrorCode> = answer.responses.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]);
    assert_eq!(asked(&embedded, ApiKey::DeleteTopics).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_could_not_be_sent_is_told_apart_from_one_without_an_answer() {
    let embedded = start(1);
    let cluster = read_write(&embedded).await;
    embedded.set_network(1, Network::Refuse).await.unwrap();
    embedded.close_connections(1).await;
    let error = create_orders(&cluster, within(2_000)).await.unwrap_err();
    assert!(matches!(error, SendError::Deadline { .. }), "{error:?}");
    assert!(!error.may_have_been_sent(), "{}", chain(&error));

    embedded.set_network(1, Network::Up).await.unwrap();
    offsets(&cluster, &[("orders", 0)], soon()).await;
    embedded.script(Rule::new(Fault::Drop).api(ApiKey::CreateTopics).always());
    // With the deadline of the call before that of the request, and the reverse.
    for millis in [500, 10_000] {
        let error = create_orders(&cluster, within(millis)).await.unwrap_err();
        assert!(error.may_have_been_sent(), "{millis}: {}", chain(&error));
    }
}

#[tokio::test(start_paused = true)]
async fn a_moved_controller_is_looked_up_and_the_request_sent_there() {
    let embedded = start(3);
    let cluster = read_write(&embedded).await;
    assert_eq!(create_orders(&cluster, soon()).await.unwrap(), ErrorCode::None);
    embedded.move_controller(3);
    embedded.script(
        Rule::new(Fault::Error(ErrorCode::NotController)).api(ApiKey::CreateTopics).broker(1).always(),
    );
    let answer = cluster.send(Subject::Cluster, create(&["more"]), soon()).await.unwrap();
    assert_eq!(answer.topics[0].error_code, ErrorCode::None);
    assert_eq!(cluster.snapshot().controller_id(), Some(3));
    assert_eq!(
        asked(&embedded, ApiKey::CreateTopics),
        ["1 CreateTopics", "1 CreateTopics", "3 CreateTopics"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_moved_while_no_broker_says_where_is_not_asked_again() {
    let embedded = start(2);
    let cluster = read_write(&embedded).await;
    // Every broker goes on naming the old one.
    embedded.script(
        Rule::new(Fault::Error(ErrorCode::NotController)).api(ApiKey::CreateTopics).broker(1).times(3),
    );
    assert_eq!(create_orders(&cluster, soon()).await.unwrap(), ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_even_if_no_broker_says_a_word() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    for network in [Network::HalfOpen, Network::Blackhole, Network::Refuse, Network::Reset] {
        embedded.set_network(1, network).await.unwrap();
        for millis in [1, 30, 300, 3_000] {
            let began = Instant::now();
            let results = offsets(&cluster, &[("orders", 0)], within(millis)).await;
            assert!(results[0].starts_with("no answer within"), "{results:?}");
            let late = began.elapsed().saturating_sub(Duration::from_millis(millis));
            assert!(late <= Duration::from_millis(20), "{network:?} {millis}: {late:?} late");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_wait_behind_other_requests() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    offsets(&cluster, &[("orders", 0)], soon()).await;
    embedded.set_latency(1, Duration::from_secs(20));
    let began = Instant::now();
    let calls = (0..40).map(|_| offsets(&cluster, &[("orders", 0)], within(300)));
    let results = futures::future::join_all(calls).await;
    assert!(results.iter().all(|result| result[0].starts_with("no answer within")));
    assert!(began.elapsed() <= Duration::from_millis(320), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_gate_refuses_before_anything_is_resolved_dialled_or_sent() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    let before = (embedded.connections(), embedded.journal().len());
    let creating = |_| MetadataRequest { allow_auto_topic_creation: true, ..MetadataRequest::default() };
    let refused = cluster.send(Subject::Cluster, creating, soon()).await.unwrap_err();
    assert!(matches!(refused, SendError::Gate(_)), "{refused}");
    let replica = |_| FetchRequest { replica_id: 5, ..FetchRequest::default() };
    let partition = Subject::Partition { topic: "orders".into(), partition: 0 };
    let refused = cluster.send(partition, replica, soon()).await.unwrap_err();
    assert!(matches!(refused, SendError::Gate(_)), "{refused}");
    let refused = cluster.send(Subject::Cluster, create(&["payments"]), soon()).await.unwrap_err();
    assert!(matches!(refused, SendError::Gate(_)), "{refused}");
    assert_eq!(before, (embedded.connections(), embedded.journal().len()));
    // Nor does a cluster that was never looked for have to be found for that.
    let cluster = Cluster::start(config(&embedded));
    let refused = cluster.send(Subject::Cluster, creating, soon()).await.unwrap_err();
    assert!(matches!(refused, SendError::Gate(_)), "{refused}");
    assert_eq!(before, (embedded.connections(), embedded.journal().len()));
}

#[tokio::test(start_paused = true)]
async fn a_dedicated_connection_has_the_same_gate() {
    let embedded = start(2);
    let cluster = connect(&embedded).await;
    let connection = cluster.dedicated(2, soon()).await.unwrap();
    let creating = |_| MetadataRequest { allow_auto_topic_creation: true, ..MetadataRequest::default() };
    let refused = connection.send(creating, soon()).await.unwrap_err();
    assert!(matches!(refused, strandline_conn::RequestError::Refused(_)), "{refused}");
    let unknown = cluster.dedicated(9, soon()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "the cluster has no broker 9");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_answer_is_told_and_the_socket_is_not_used_again() {
    let embedded = start(1);
    let cluster = connect(&embedded).await;
    embedded.script(Rule::new(Fault::WrongCorrelationId).api(ApiKey::DescribeCluster));
    let describe = |_| DescribeClusterRequest::default();
    let answer = cluster.send(Subject::Cluster, describe, soon()).await.unwrap();
    assert_eq!(answer.cluster_id, embedded.cluster_id());
    let journal = embedded.journal();
    let tries: Vec<u64> = journal
        .iter()
        .filter(|entry| entry.api == ApiKey::DescribeCluster)
        .map(|entry| entry.connection)
        .collect();
    assert!(tries.len() == 2 && tries[0] != tries[1], "{tries:?}");
}

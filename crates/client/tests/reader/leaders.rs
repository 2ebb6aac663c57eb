//! Leaders that move, brokers that go, logs that are cut, topics that are created anew.

use std::ops::ControlFlow;
use std::time::Duration;

use strandline_client::reader::{PartitionReader, ReadErrorKind, ReadPosition, ReaderConfig};
use strandline_protocol::messages::FetchRequest;
use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Fault, Network, Rule};
use tokio::time::{Instant, timeout};

use crate::support::{asked, brisk, chain, connect, kafka, line, read, reader, soon};

#[tokio::test]
async fn reading_follows_the_leader_without_loss_or_repetition() {
    let kafka = kafka(3);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    let mut lines = Vec::new();
    for round in 0..9 {
        kafka.append("orders", 0, &[b"x", b"y"]);
        let (more, stop) = read(&mut reader).await;
        assert!(stop.is_none(), "round {round}: {}", chain(&stop.unwrap()));
        lines.extend(more);
        kafka.move_leader("orders", 0, round % 3 + 1);
    }
    let offsets: Vec<String> = lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(offsets, (0..18).map(|offset| offset.to_string()).collect::<Vec<_>>());
    assert_eq!(reader.position().leader_epoch, Some(8));
}

#[tokio::test]
async fn a_broker_that_stops_is_waited_for_or_left_for_the_next_leader() {
    let kafka = kafka(3);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    let (leader, _) = kafka.leader("orders", 0);
    kafka.stop_broker(leader).await.unwrap();
    kafka.append("orders", 0, &[b"b"]);
    assert_eq!(read(&mut reader).await.0, ["1 b"]);
    assert_ne!(kafka.leader("orders", 0).0, leader);
}

#[tokio::test]
async fn a_partition_without_a_leader_is_waited_for_until_the_deadline_and_read_once_it_has_one() {
    let kafka = kafka(2);
    kafka.append("orders", 0, &[b"a"]);
    kafka.move_leader("orders", 0, -1);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    let before = Instant::now();
    let deadline = before + Duration::from_millis(200);
    let late = reader.next_page(deadline, |_| ControlFlow::Continue(())).await.expect_err("no leader");
    assert!(!late.is_stop() && matches!(late.kind, ReadErrorKind::Deadline { offset: 0, .. }), "{late:?}");
    assert!(chain(&late).ends_with("partition orders:0 has no leader"), "{}", chain(&late));
    assert!(before.elapsed() >= Duration::from_millis(200), "{:?}", before.elapsed());
    kafka.move_leader("orders", 0, 2);
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
}

#[tokio::test]
async fn a_silent_broker_costs_no_more_than_the_deadline() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    kafka.set_network(1, Network::Blackhole).await.unwrap();
    let before = Instant::now();
    let late = reader
        .next_page(before + Duration::from_millis(300), |_| ControlFlow::Continue(()))
        .await
        .expect_err("nobody answers");
    assert!(!late.is_stop(), "{late:?}");
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    kafka.set_network(1, Network::Up).await.unwrap();
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
}

#[tokio::test]
async fn a_log_truncated_below_the_position_is_told_on_leader_change_before_anything_is_read() {
    let kafka = kafka(2);
    kafka.append("orders", 0, &[b"a", b"b", b"c"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0.len(), 3);
    let position = reader.position();
    // An unclean election: the new leader lacks the last batch and writes others, beyond the position.
    kafka.truncate("orders", 0, 0);
    kafka.move_leader("orders", 0, 2);
    kafka.append("orders", 0, &[b"p", b"q", b"r", b"s", b"t"]);
    let (lines, stop) = read(&mut reader).await;
    let stop = stop.expect("offsets 0 to 2 are others now");
    insta::assert_snapshot!(chain(&stop), @"orders:0: the log was truncated: the leader's lineage leaves that of offset 3 (leader epoch 0) at offset 0");
    assert!(lines.is_empty() && stop.is_stop(), "{lines:?}");
    // A position that was kept is checked too, before its first page.
    let mut resumed = PartitionReader::open(&cluster, "orders", 0, position, brisk(), soon()).await.unwrap();
    let (lines, stop) = read(&mut resumed).await;
    assert!(matches!(stop.expect("it is checked").kind, ReadErrorKind::Truncated { .. }));
    assert!(lines.is_empty());
    // The caller decides where to go on.
    resumed.seek(ReadPosition::at(0));
    assert_eq!(read(&mut resumed).await.0.len(), 5);
}

#[tokio::test]
async fn a_leader_whose_lineage_has_left_the_last_epoch_read_says_so_in_its_answer() {
    let kafka = kafka(2);
    kafka.append("orders", 0, &[b"a"]);
    kafka.move_leader("orders", 0, 2);
    kafka.append("orders", 0, &[b"b"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a", "1 b"]);
    let looked_up = asked(&kafka, ApiKey::OffsetForLeaderEpoch);
    // The same leader, in the same epoch, has lost a batch: nothing in the view tells.
    kafka.truncate("orders", 0, 1);
    let (_, stop) = read(&mut reader).await;
    let stop = stop.expect("offset 1 is gone");
    insta::assert_snapshot!(chain(&stop), @"orders:0: the log was truncated: the leader's lineage leaves that of offset 2 (leader epoch 1) at offset 1");
    assert_eq!(asked(&kafka, ApiKey::OffsetForLeaderEpoch), looked_up, "the Fetch answer said it");
}

#[tokio::test]
async fn an_epoch_that_retention_has_taken_is_no_truncation() {
    let kafka = kafka(2);
    kafka.append("orders", 0, &[b"a", b"b"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0.len(), 2);
    kafka.move_leader("orders", 0, 2);
    kafka.append("orders", 0, &[b"c"]);
    // What was read is deleted, and with it the epoch under which it was written.
    kafka.delete_records("orders", 0, 2);
    let (lines, stop) = read(&mut reader).await;
    assert_eq!((lines.join(", ").as_str(), stop.map(|stop| chain(&stop))), ("2 c", None));
}

#[tokio::test]
async fn a_topic_created_anew_under_its_name_is_a_stop_with_both_ids() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    let old = reader.topic_id().expect("topics have ids");
    let new = kafka.recreate_topic("orders");
    kafka.append("orders", 0, &[b"p", b"q"]);
    let (lines, stop) = read(&mut reader).await;
    let stop = stop.expect("it is another topic");
    assert_eq!(
        chain(&stop),
        format!("orders:0: the topic is another one now: its id was {old} and is {new}")
    );
    assert!(lines.is_empty(), "{lines:?}");
    let fetches = asked(&kafka, ApiKey::Fetch);
    assert!(read(&mut reader).await.1.is_some());
    assert_eq!(asked(&kafka, ApiKey::Fetch), fetches, "a stop asks nobody");

    kafka.delete_topic("orders");
    let gone = PartitionReader::open(&cluster, "orders", 0, ReadPosition::at(0), brisk(), soon()).await;
    assert_eq!(chain(&gone.expect_err("it is deleted")), "orders:0: the topic does not exist");
}

#[tokio::test]
async fn a_topic_that_is_deleted_while_it_is_read_is_a_stop_and_not_created_again() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    kafka.delete_topic("orders");
    let (_, stop) = read(&mut reader).await;
    let stop = stop.expect("it is gone");
    assert!(matches!(stop.kind, ReadErrorKind::Recreated { known: Some(_), now: None }), "{stop:?}");
    assert!(!kafka.view().topics.contains_key("orders"));
}

#[tokio::test]
async fn an_offset_outside_the_log_is_told_with_its_bounds_and_nothing_is_reset() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a", b"b"]);
    kafka.append("orders", 0, &[b"c", b"d"]);
    kafka.delete_records("orders", 0, 2);
    let cluster = connect(&kafka).await;
    for offset in [0, 1, 5, i64::MAX, -1, i64::MIN] {
        let mut reader = reader(&cluster, offset, brisk()).await;
        let (lines, stop) = read(&mut reader).await;
        let stop = stop.expect("it is outside");
        assert_eq!(chain(&stop), format!("orders:0: offset {offset} is out of range: the log holds 2..4"));
        assert_eq!((lines.len(), reader.position(), stop.is_stop()), (0, ReadPosition::at(offset), true));
    }
    let mut at_end = reader(&cluster, 4, brisk()).await;
    assert_eq!(read(&mut at_end).await.0, Vec::<String>::new());
}

#[tokio::test]
async fn retention_that_overtakes_a_reader_is_told() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    kafka.append("orders", 0, &[b"b"]);
    kafka.append("orders", 0, &[b"c"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, ReaderConfig { max_bytes: 1, ..brisk() }).await;
    let mut lines = Vec::new();
    let mut visit = |record: &strandline_client::reader::ReadRecord<'_>| {
        lines.push(line(record));
        ControlFlow::Continue(())
    };
    reader.next_page(soon(), &mut visit).await.unwrap();
    kafka.delete_records("orders", 0, 3);
    let stop = reader.next_page(soon(), &mut visit).await.expect_err("offset 1 is deleted");
    assert!(
        matches!(stop.kind, ReadErrorKind::OutOfRange { offset: 1, log_start_offset: 3, log_end_offset: 3 }),
        "{stop:?}"
    );
    assert_eq!(lines, ["0 a"]);
}

#[tokio::test]
async fn a_broker_that_lags_behind_and_calls_an_offset_out_of_range_is_asked_again() {
    let kafka = kafka(1);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let out_of_range = || Rule::new(Fault::Error(ErrorCode::OffsetOutOfRange)).api(ApiKey::Fetch);
    kafka.script(out_of_range().times(3));
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    kafka.script(out_of_range().always());
    let (_, stop) = read(&mut reader).await;
    assert!(matches!(stop.expect("always").kind, ReadErrorKind::Refused { offset: 1, tries: 6, .. }));
}

#[tokio::test]
async fn a_page_dropped_while_it_waits_has_given_out_nothing_and_loses_nothing() {
    let kafka = kafka(1);
    let cluster = connect(&kafka).await;
    let config = ReaderConfig { max_wait: Duration::from_secs(10), ..brisk() };
    let mut reader = reader(&cluster, 0, config).await;
    for round in 0..3 {
        let before = asked(&kafka, ApiKey::Fetch);
        let waiting = reader.next_page(soon(), |_| ControlFlow::Continue(()));
        tokio::select! {
            page = waiting => panic!("there is nothing to read: {page:?}"),
            _ = kafka.journal_when(|journal| {
                journal.iter().filter(|entry| entry.api == ApiKey::Fetch).count() > before
            }) => {}
        }
        assert_eq!(reader.position().next_offset, round, "round {round}");
        kafka.append("orders", 0, &[b"x"]);
        assert_eq!(read(&mut reader).await.0, [format!("{round} x")]);
    }
}

#[tokio::test]
async fn a_long_poll_delays_nobody_else() {
    let kafka = kafka(1);
    let cluster = connect(&kafka).await;
    let config = ReaderConfig { max_wait: Duration::from_secs(15), ..brisk() };
    let mut reader = reader(&cluster, 0, config).await;
    let polling = tokio::spawn(async move { reader.next_page(soon(), |_| ControlFlow::Continue(())).await });
    kafka.journal_when(|journal| journal.iter().any(|entry| entry.api == ApiKey::Fetch)).await;
    let quick = timeout(Duration::from_secs(5), cluster.refresh_all(soon())).await;
    quick.expect("a question does not wait for the poll").unwrap();
    kafka.append("orders", 0, &[b"a"]);
    assert_eq!(polling.await.unwrap().unwrap().records, 1);
}

#[tokio::test]
async fn a_leader_is_asked_under_the_epoch_that_the_view_names() {
    let kafka = kafka(2);
    kafka.move_leader("orders", 0, 2);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    read(&mut reader).await;
    read(&mut reader).await;
    let asked: Vec<(i32, i32, i32)> = kafka
        .journal()
        .iter()
        .filter(|entry| entry.api == ApiKey::Fetch)
        .map(|entry| {
            let request: FetchRequest = entry.decode().unwrap();
            let partition = &request.topics[0].partitions[0];
            (entry.broker, partition.current_leader_epoch, partition.last_fetched_epoch)
        })
        .collect();
    assert_eq!(asked, [(2, 1, -1), (2, 1, 1)]);
}

#[tokio::test]
async fn a_hint_at_the_new_leader_is_followed_without_asking_anybody() {
    let kafka = kafka(3);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    let (leader, _) = kafka.leader("orders", 0);
    let before = asked(&kafka, ApiKey::Metadata);
    kafka.move_leader("orders", 0, leader % 3 + 1);
    kafka.append("orders", 0, &[b"b"]);
    assert_eq!(read(&mut reader).await.0, ["1 b"]);
    assert_eq!(asked(&kafka, ApiKey::Metadata), before, "the refusal said who leads now");
}

#[tokio::test]
async fn a_wrong_hint_does_not_pin_the_reader() {
    let kafka = kafka(3);
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    let (leader, _) = kafka.leader("orders", 0);
    let (next, wrong) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    kafka.move_leader("orders", 0, next);
    // The old leader names one that is none, and goes on to do so.
    kafka.freeze_view(leader, |view| {
        view.topics.get_mut("orders").unwrap().partitions[0].leader = wrong;
    });
    kafka.append("orders", 0, &[b"b"]);
    let (lines, stop) = read(&mut reader).await;
    assert_eq!((lines.join(", ").as_str(), stop.map(|stop| chain(&stop))), ("1 b", None));
}

#[tokio::test]
async fn a_leader_epoch_that_goes_back_is_followed_once_brokers_agree_and_nothing_is_called_truncated() {
    let kafka = kafka(2);
    for broker in [2, 1, 2] {
        kafka.move_leader("orders", 0, broker);
    }
    kafka.append("orders", 0, &[b"a"]);
    let cluster = connect(&kafka).await;
    let mut reader = reader(&cluster, 0, brisk()).await;
    assert_eq!(read(&mut reader).await.0, ["0 a"]);
    assert_eq!(reader.position().leader_epoch, Some(3));
    // The controllers lost their log and came back with an older one; the brokers' logs are as they were.
    kafka.set_leader_epoch("orders", 0, 1);
    kafka.append("orders", 0, &[b"b"]);
    let (lines, stop) = read(&mut reader).await;
    assert_eq!((lines.join(", ").as_str(), stop.map(|stop| chain(&stop))), ("1 b", None));
    assert_eq!(
        cluster.snapshot().partition("orders", 0).and_then(|partition| partition.leader_epoch),
        Some(1)
    );
}

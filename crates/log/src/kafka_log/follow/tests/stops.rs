//! What ends a reading for good: typed, with offsets, and nothing is reset or skipped.

use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{Acl, Fault, Operation, Rule};
use tokio::time::{Duration, sleep};

use super::{TOPIC, World, both_ways, capacity, expected, is_fetching, records, stop, until, view};
use crate::kafka_log::config::FetchConnections;
use crate::subscription::MetadataEventSubscription;

both_ways! {
    an_offset_outside_the_log_stops_its_partition_with_the_bounds
    a_log_start_that_moves_past_the_position_is_told
    a_log_truncated_by_an_unclean_election_is_told_before_anything_of_it_is_read
    a_leader_that_has_lost_what_was_read_says_so_in_its_answer
    an_epoch_that_retention_has_taken_is_no_truncation
    a_topic_created_anew_is_a_stop_with_both_ids
    a_deleted_topic_is_a_stop_and_stays_away
    a_topic_that_one_answer_does_not_know_is_no_stop
    a_damaged_batch_stops_its_partition_behind_what_stands_before_it
    a_batch_of_an_old_format_is_a_stop_with_its_offset
    a_missing_right_is_named
    a_leader_that_refuses_an_offset_of_its_log_again_and_again_is_told_after_a_few_tries
    a_code_that_no_waiting_cures_is_told_at_once
}

/// Reads to the end, so that the epoch of what was read last is known.
async fn caught_up(world: &World, partitions: i32, count: i64) -> MetadataEventSubscription {
    for partition in 0..partitions {
        world.append(partition, 0..count);
    }
    let mut events = world.follow(0..partitions);
    let mut seen = records(&mut events, usize::try_from(count * i64::from(partitions)).unwrap()).await;
    seen.sort();
    events
}

async fn an_offset_outside_the_log_stops_its_partition_with_the_bounds(ways: FetchConnections) {
    let world = World::new(ways, 1, 2).await;
    world.append(0, 0..10);
    world.kafka.delete_records(TOPIC, 0, 4);
    let mut events = world.follow([1]);
    for (round, outside) in (0..).zip([3, 11, -1]) {
        events.assignment().add(0, outside).unwrap();
        let (seen, told) = stop(&mut events).await;
        let bounds =
            format!("offset {outside} of metadata partition 0 is outside its log, which holds 4..10");
        assert_eq!((seen, told), (Vec::new(), bounds));
        assert!(view(&events, 0).state.is_stopped());
        events.assignment().remove(0);
        // The others go on.
        world.append(1, round..round + 1);
        assert_eq!(records(&mut events, 1).await, expected(1, round..round + 1));
    }
    for inside in [4, 10] {
        events.assignment().add(0, inside).unwrap();
        until("it fetches", || is_fetching(&events, 0)).await;
        events.assignment().remove(0);
    }
}

async fn a_log_start_that_moves_past_the_position_is_told(ways: FetchConnections) {
    // Each page is one batch.
    let world = World::with(ways, 1, 1, |config| config.fetch_max_bytes = 1).await;
    world.append(0, 0..20);
    let mut events = world.subscribe(capacity(2));
    events.assignment().add(0, 0).unwrap();
    until("a full queue", || view(&events, 0).queued_records == 2).await;
    world.kafka.delete_records(TOPIC, 0, 15);
    let (seen, told) = stop(&mut events).await;
    let next_offset = seen.len();
    assert!(seen.into_iter().eq((0..next_offset).map(|offset| offset.to_string())));
    let expected =
        format!("offset {next_offset} of metadata partition 0 is outside its log, which holds 15..20");
    assert_eq!(told, expected);
}

async fn a_log_truncated_by_an_unclean_election_is_told_before_anything_of_it_is_read(
    ways: FetchConnections,
) {
    let world = World::new(ways, 2, 1).await;
    let mut events = caught_up(&world, 1, 10).await;
    world.kafka.truncate(TOPIC, 0, 6);
    world.kafka.move_leader(TOPIC, 0, 2);
    world.append(0, 6..20);
    let (seen, told) = stop(&mut events).await;
    let expected = "metadata partition 0 was read up to offset 10 in leader epoch 0, of which the log holds no more than 6";
    assert_eq!((seen, told.as_str()), (Vec::new(), expected));
}

async fn a_leader_that_has_lost_what_was_read_says_so_in_its_answer(ways: FetchConnections) {
    let world = World::new(ways, 2, 1).await;
    let mut events = caught_up(&world, 1, 10).await;
    // The same leader in the same epoch: nothing in the view tells.
    world.kafka.truncate(TOPIC, 0, 6);
    let (seen, told) = stop(&mut events).await;
    let expected = "metadata partition 0 was read up to offset 10 in leader epoch 0, of which the log holds no more than 6";
    assert_eq!((seen, told.as_str()), (Vec::new(), expected));
}

async fn an_epoch_that_retention_has_taken_is_no_truncation(ways: FetchConnections) {
    let world = World::new(ways, 2, 1).await;
    let mut events = caught_up(&world, 1, 3).await;
    world.kafka.move_leader(TOPIC, 0, 2);
    // What was read is deleted, and with it the epoch under which it was written.
    world.append(0, 3..4);
    world.kafka.delete_records(TOPIC, 0, 3);
    assert_eq!(records(&mut events, 1).await, expected(0, 3..4));
}

async fn a_topic_created_anew_is_a_stop_with_both_ids(ways: FetchConnections) {
    let world = World::new(ways, 2, 2).await;
    let mut events = caught_up(&world, 2, 3).await;
    let old = world.shared.topic_id.unwrap();
    let new = world.kafka.recreate_topic(TOPIC);
    for partition in 0..2 {
        world.kafka.append(TOPIC, partition, &[b"another"]);
    }
    for _ in 0..2 {
        let (seen, told) = stop(&mut events).await;
        let expected = format!("topic {TOPIC} is another one now: its id was {old} and is {new}");
        assert_eq!((seen, told), (Vec::new(), expected));
    }
    // Who has stopped asks nobody.
    let before = world.fetches().len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fetches().len(), before);
}

async fn a_deleted_topic_is_a_stop_and_stays_away(ways: FetchConnections) {
    let world = World::new(ways, 2, 1).await;
    let mut events = caught_up(&world, 1, 3).await;
    world.kafka.delete_topic(TOPIC);
    let (seen, told) = stop(&mut events).await;
    assert_eq!((seen, told.as_str()), (Vec::new(), "topic metadata does not exist any more"));
    assert!(!world.kafka.view().topics.contains_key(TOPIC), "nobody has created it");
}

async fn a_topic_that_one_answer_does_not_know_is_no_stop(ways: FetchConnections) {
    let world = World::new(ways, 2, 1).await;
    let mut events = caught_up(&world, 1, 3).await;
    let unknown = || Rule::new(Fault::Error(ErrorCode::UnknownTopicOrPartition));
    world.kafka.script(unknown().api(ApiKey::Fetch));
    world.kafka.script(unknown().api(ApiKey::Metadata));
    world.append(0, 3..5);
    assert_eq!(records(&mut events, 2).await, expected(0, 3..5));
}

async fn a_damaged_batch_stops_its_partition_behind_what_stands_before_it(ways: FetchConnections) {
    let world = World::new(ways, 1, 2).await;
    world.append(0, 0..5);
    world.append(1, 0..1);
    world.kafka.damage(TOPIC, 0, 3, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let mut events = world.follow([0]);
    let (seen, told) = stop(&mut events).await;
    assert_eq!(seen, ["0", "1", "2"]);
    assert!(told.starts_with("metadata partition 0, from broker 1: the batch at offset 3, byte 2"), "{told}");
    assert!(told.contains("CRC-32C"), "{told}");
    // The others go on.
    events.assignment().add(1, 0).unwrap();
    assert_eq!(records(&mut events, 1).await, expected(1, 0..1));
}

async fn a_batch_of_an_old_format_is_a_stop_with_its_offset(ways: FetchConnections) {
    for magic in [0_u8, 1] {
        let world = World::new(ways, 1, 1).await;
        world.append(0, 0..1);
        // Offset, length, CRC, format: what the two old formats have in common.
        let mut message = vec![0; 40];
        message[..8].copy_from_slice(&1_i64.to_be_bytes());
        message[8..12].copy_from_slice(&28_i32.to_be_bytes());
        message[16] = magic;
        world.kafka.append_raw(TOPIC, 0, message);
        let mut events = world.follow([0]);
        let (seen, told) = stop(&mut events).await;
        assert_eq!(seen, ["0"]);
        let format = format!("a message of format {magic} (written before Kafka 0.11) at offset 1");
        assert!(told.contains(&format), "{told}");
    }
}

async fn a_missing_right_is_named(ways: FetchConnections) {
    let world = World::new(ways, 1, 1).await;
    let mut events = caught_up(&world, 1, 2).await;
    let right = |operation| Acl::topic("User:ANONYMOUS", TOPIC, operation);
    world.kafka.set_acls(Some(vec![right(Operation::Describe)]));
    world.append(0, 2..3);
    let (_, told) = stop(&mut events).await;
    assert_eq!(told, "no right to read metadata partition 0: READ on the metadata topic is missing");
    world.kafka.set_acls(Some(vec![right(Operation::Read)]));
    events.assignment().remove(0);
    events.assignment().add(0, 2).unwrap();
    assert_eq!(records(&mut events, 1).await, expected(0, 2..3));
}

async fn a_leader_that_refuses_an_offset_of_its_log_again_and_again_is_told_after_a_few_tries(
    ways: FetchConnections,
) {
    for code in [ErrorCode::OffsetOutOfRange, ErrorCode::CorruptMessage] {
        let world = World::new(ways, 1, 1).await;
        let mut events = caught_up(&world, 1, 2).await;
        until("a long poll", || is_fetching(&events, 0)).await;
        world.kafka.script(Rule::new(Fault::Error(code)).api(ApiKey::Fetch).always());
        world.append(0, 2..3);
        // The poll under way may still bring it.
        let (_, told) = stop(&mut events).await;
        assert!(told.contains("6 tries in a row failed: broker 1 answered"), "{told}");
        assert!(told.ends_with(&code.to_string()), "{told}");
    }
}

async fn a_code_that_no_waiting_cures_is_told_at_once(ways: FetchConnections) {
    let world = World::new(ways, 1, 1).await;
    world.kafka.script(Rule::new(Fault::Error(ErrorCode::UnknownServerError)).api(ApiKey::Fetch).always());
    let mut events = world.follow([0]);
    let (_, told) = stop(&mut events).await;
    assert_eq!(told, "metadata partition 0 cannot be read: broker 1 answered UNKNOWN_SERVER_ERROR");
}

use strandline_meta::ErrorCode;
use strandline_protocol::records::{Batches, Decompressor};

use super::*;

/// A core, its clock, and what its brokers are told.
struct World {
    core: Core<u32>,
    now: Instant,
    next: u32,
    leaders: HashMap<i32, i32>,
}

/// Every partition of `orders` is led by broker 1.
fn world(change: impl FnOnce(&mut ProducerConfig)) -> World {
    let mut config = ProducerConfig::default();
    change(&mut config);
    World { core: Core::new(config, 1), now: Instant::now(), next: 0, leaders: HashMap::new() }
}

impl World {
    /// Accepts a record that waits under the next number.
    fn push(&mut self, partition: i32, value: &str) -> bool {
        let record = NewRecord { value: Some(value.as_bytes()), ..NewRecord::default() };
        self.next += 1;
        let at = ("orders", partition);
        self.core.push(self.now, at, record, value.len() + 40, self.next).expect("it is accepted").1
    }

    fn poll(&mut self) -> Work {
        let leaders = &self.leaders;
        let place = |_: &Arc<str>, partition: i32| {
            Ok(Place { node_id: leaders.get(&partition).copied().unwrap_or(1), topic_id: None })
        };
        self.core.poll(self.now, place)
    }

    /// As [`poll`](Self::poll), and gives a producer id where one is asked for.
    fn poll_with_id(&mut self) -> Vec<Outgoing> {
        let work = self.poll();
        if !work.producer_id {
            return work.requests;
        }
        self.core.producer_id(self.now, Ok((7, 0)));
        self.poll().requests
    }

    fn answer(&mut self, request: &Outgoing, answer: impl Fn(&Part) -> PartResult) {
        let results = request.parts.iter().map(answer).collect();
        self.core.answered(self.now, request.number, results);
    }

    /// `1,2 -> 5` for records 1 and 2 at offset 5 and 6, `3 -> not written` for one that is not.
    fn answers(&mut self) -> Vec<String> {
        let told = |answered: Answered<u32>| {
            let numbers: Vec<String> = answered.waiters.iter().map(ToString::to_string).collect();
            let result = match answered.result {
                Ok(appended) => appended.base_offset.to_string(),
                Err(error) => error.outcome.to_string(),
            };
            format!("{} -> {result}", numbers.join(","))
        };
        self.core.take_answers().into_iter().map(told).collect()
    }
}

fn said(code: ErrorCode, base_offset: i64) -> PartAnswer {
    PartAnswer { code, message: None, base_offset, log_append_time_ms: -1, refused_records: Vec::new() }
}

/// `0:7/0+3 a b` for a batch of partition 0, producer 7 in epoch 0, from sequence 3, with records a and b.
fn shown(part: &Part) -> String {
    let Producer { id, epoch, base_sequence } = part.producer;
    let mut bytes = Vec::new();
    part.records.finish(&mut bytes).unwrap();
    let mut decompressor = Decompressor::default();
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    let values: Vec<String> = batch
        .records(&mut decompressor)
        .unwrap()
        .map(|record| String::from_utf8_lossy(record.unwrap().value.unwrap()).into_owned())
        .collect();
    format!("{}:{id}/{epoch}+{base_sequence} {}", part.partition, values.join(" "))
}

fn all(requests: &[Outgoing]) -> Vec<String> {
    requests.iter().flat_map(|request| &request.parts).map(shown).collect()
}

#[test]
fn a_broker_has_no_more_requests_than_allowed_and_another_broker_is_not_held_up() {
    let mut world = world(|config| {
        config.max_in_flight_requests = 2;
        config.max_request_size = 1;
    });
    world.leaders.insert(4, 2);
    for partition in 0..6 {
        world.push(partition, "x");
    }
    let first = world.poll_with_id();
    let nodes = |requests: &[Outgoing]| -> Vec<(i32, i32)> {
        requests.iter().map(|request| (request.node_id, request.parts[0].partition)).collect()
    };
    assert_eq!(nodes(&first), [(1, 0), (1, 1), (2, 4)]);
    assert_eq!(world.poll().requests.len(), 0);
    world.answer(&first[0], |_| Ok(said(ErrorCode::None, 0)));
    assert_eq!(nodes(&world.poll().requests), [(1, 2)]);
    world.answer(&first[1], |_| Ok(said(ErrorCode::None, 0)));
    assert_eq!(nodes(&world.poll().requests), [(1, 3)]);
}

#[test]
fn only_the_first_record_of_a_batch_wakes_the_task() {
    let mut world = world(|config| config.linger = Duration::from_millis(5));
    assert!(world.push(0, "a"), "a clock begins to run");
    assert!(!world.push(0, "b"));
    assert!(!world.push(1, "c"), "its clock runs behind the first one's");
    world.now += Duration::from_millis(5);
    let requests = world.poll_with_id();
    assert_eq!(all(&requests), ["0:7/0+0 a b", "1:7/0+0 c"]);
    assert!(!world.push(0, "d"), "what is under way decides");
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 0)));
    world.now += Duration::from_millis(5);
    let requests = world.poll().requests;
    assert_eq!(all(&requests), ["0:7/0+2 d"]);
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 2)));
    assert_eq!(world.answers(), ["1,2 -> 0", "3 -> 0", "4 -> 2"]);
    assert_eq!(world.core.next_timer(), None, "there is nothing to wait for");
    assert!(world.core.flushed(0));
}

#[test]
fn the_records_that_a_broker_names_are_refused_and_the_others_are_written_in_their_place() {
    let mut world = world(|config| config.linger = Duration::from_millis(1));
    for value in ["a", "bad", "c", "worse"] {
        world.push(0, value);
    }
    world.now += Duration::from_millis(1);
    let requests = world.poll_with_id();
    let flush = world.core.flush(world.now);
    world.answer(&requests[0], |_| {
        let refused_records = vec![(3, None), (1, Some("no key".into()))];
        Ok(PartAnswer { refused_records, ..said(ErrorCode::InvalidRecord, -1) })
    });
    assert_eq!(world.answers(), ["2 -> not written", "4 -> not written"]);
    assert!(!world.core.flushed(flush));
    let requests = world.poll().requests;
    assert_eq!(all(&requests), ["0:7/0+0 a c"], "the refused batch used no sequence");
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 9)));
    assert_eq!(world.answers(), ["1,3 -> 9"]);
    assert!(world.core.flushed(flush));
}

#[test]
fn records_that_a_broker_names_out_of_the_batch_refuse_it_whole() {
    for named in [vec![(9, None)], vec![(0, None), (1, None)]] {
        let mut world = world(|config| config.linger = Duration::from_millis(1));
        world.push(0, "a");
        world.push(0, "b");
        world.now += Duration::from_millis(1);
        let requests = world.poll_with_id();
        world.answer(&requests[0], |_| {
            Ok(PartAnswer { refused_records: named.clone(), ..said(ErrorCode::InvalidRecord, -1) })
        });
        assert_eq!(world.answers(), ["1,2 -> not written"]);
    }
}

#[test]
fn the_last_epoch_is_followed_by_a_new_producer_id() {
    let mut world = world(|_| ());
    world.push(0, "a");
    assert!(world.poll().producer_id);
    world.core.producer_id(world.now, Ok((7, i16::MAX)));
    let requests = world.poll().requests;
    assert_eq!(all(&requests), [format!("0:7/{}+0 a", i16::MAX)]);
    world.answer(&requests[0], |_| Ok(said(ErrorCode::OutOfOrderSequenceNumber, -1)));
    assert!(world.poll().producer_id, "that id is used up");
    world.core.producer_id(world.now, Ok((8, 0)));
    assert_eq!(all(&world.poll().requests), ["0:8/0+0 a"]);
}

#[test]
fn waits_grow_between_tries_and_begin_anew_after_a_success() {
    let mut world = world(|_| ());
    world.push(0, "a");
    let mut requests = world.poll_with_id();
    for expected_ms in [100, 200, 400, 800, 1000, 1000] {
        world.answer(&requests[0], |_| Ok(said(ErrorCode::NotEnoughReplicas, -1)));
        assert!(world.poll().requests.is_empty());
        let wait = world.core.next_timer().unwrap() - world.now;
        let exact = Duration::from_millis(expected_ms);
        assert!(wait >= exact.mul_f64(0.79) && wait <= exact.mul_f64(1.21), "{exact:?}: {wait:?}");
        world.now += wait;
        requests = world.poll().requests;
        assert_eq!(all(&requests), ["0:7/0+0 a"]);
    }
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 0)));
    world.push(0, "b");
    assert_eq!(all(&world.poll().requests), ["0:7/0+1 b"]);
}

#[test]
fn a_batch_that_waits_for_its_connection_at_the_deadline_is_taken_back_for_certain() {
    let mut world = world(|_| ());
    world.push(0, "a");
    world.push(1, "b");
    let requests = world.poll_with_id();
    // The request that is built now has one of them.
    assert!(requests[0].parts[1].handover.begin());
    world.now += world.core.config.delivery_timeout;
    assert!(world.poll().requests.is_empty());
    assert_eq!(world.answers(), ["1 -> not written", "2 -> unknown whether written"]);
    assert!(!requests[0].parts[0].handover.begin(), "it can no longer be put into a request");
    // Both partitions wait for the end of the request all the same.
    world.push(0, "c");
    world.push(1, "d");
    assert!(world.poll().requests.is_empty());
    world.answer(&requests[0], |_| Err(PartFailure::LeftOut));
    world.now += Duration::from_secs(5);
    let work = world.poll();
    let sent: Vec<String> = all(&work.requests);
    assert_eq!(sent, ["0:7/0+0 c", "1:7/1+0 d"]);
}

#[test]
fn a_record_that_comes_late_in_the_life_of_a_batch_begins_the_next_one() {
    let mut world = world(|config| config.max_in_flight_requests = 1);
    world.push(0, "first");
    let under_way = world.poll_with_id();
    world.push(0, "early");
    world.now += world.core.config.delivery_timeout / 2;
    world.push(0, "late");
    world.now += world.core.config.delivery_timeout / 2;
    world.poll();
    assert_eq!(world.answers(), ["1 -> not written", "2 -> not written"]);
    drop(under_way);
    world.now += world.core.config.delivery_timeout / 2;
    world.poll();
    assert_eq!(world.answers(), ["3 -> not written"]);
}

#[test]
fn an_answer_that_comes_twice_or_for_nobody_changes_nothing() {
    let mut world = world(|_| ());
    world.push(0, "a");
    let requests = world.poll_with_id();
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 3)));
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 4)));
    world.core.answered(world.now, 99, Vec::new());
    assert_eq!(world.answers(), ["1 -> 3"]);
    assert_eq!(world.core.in_flight[&1], 0);
}

#[test]
fn an_offset_that_no_log_has_is_none() {
    for base_offset in [-1, i64::MIN, i64::MAX] {
        let mut world = world(|_| ());
        world.push(0, "a");
        let requests = world.poll_with_id();
        world.answer(&requests[0], |_| Ok(said(ErrorCode::None, base_offset)));
        assert_eq!(world.answers(), ["1 -> written"]);
    }
}

#[test]
fn a_producer_id_that_is_none_is_asked_for_again_and_nothing_goes_out_without_one() {
    for nonsense in [(-1, 0), (5, -1), (i64::MIN, i16::MIN)] {
        let mut world = world(|_| ());
        world.push(0, "a");
        assert!(world.poll().producer_id);
        world.core.producer_id(world.now, Ok(nonsense));
        let work = world.poll();
        assert!(work.requests.is_empty() && !work.producer_id);
        world.now = world.core.next_timer().unwrap();
        assert!(world.poll().producer_id);
        world.core.producer_id(world.now, Ok((7, 0)));
        assert_eq!(all(&world.poll().requests), ["0:7/0+0 a"]);
    }
}

impl World {
    fn take_back(&mut self, number: u32) -> Outcome {
        self.core.take_back("orders", 0, |waiter| *waiter == number).0
    }
}

#[test]
fn a_record_that_is_taken_back_while_it_waits_is_left_out_of_its_batch() {
    let mut world = world(|config| config.linger = Duration::from_millis(5));
    for value in ["a", "b", "c", "d"] {
        world.push(0, value);
    }
    assert_eq!([2, 4].map(|number| world.take_back(number)), [Outcome::NotWritten; 2]);
    world.now += Duration::from_millis(5);
    let requests = world.poll_with_id();
    assert_eq!(all(&requests), ["0:7/0+0 a c"]);
    assert_eq!(world.answers(), ["2,4 -> not written"]);
    world.answer(&requests[0], |_| Ok(said(ErrorCode::None, 5)));
    assert_eq!(world.answers(), ["1,3 -> 5"]);
    assert_eq!(world.take_back(1), Outcome::Unknown, "it has its answer");
}

#[test]
fn of_a_batch_that_is_taken_back_whole_nothing_is_sent_and_nothing_is_waited_for() {
    let mut world = world(|config| config.linger = Duration::from_millis(5));
    for value in ["a", "b"] {
        world.push(0, value);
    }
    assert_eq!([1, 2].map(|number| world.take_back(number)), [Outcome::NotWritten; 2]);
    let flush = world.core.flush(world.now);
    assert!(world.poll_with_id().is_empty());
    assert_eq!(world.answers(), ["1,2 -> not written"]);
    assert!(world.core.flushed(flush));
    world.push(0, "c");
    world.core.flush(world.now);
    assert_eq!(all(&world.poll_with_id()), ["0:7/0+0 c"]);
}

#[test]
fn a_record_that_is_taken_back_on_its_way_to_a_connection_goes_into_no_request_and_the_others_go_on() {
    let mut world = world(|_| ());
    world.push(0, "a");
    let first = world.poll_with_id();
    for value in ["b", "c"] {
        world.push(0, value);
    }
    world.answer(&first[0], |_| Ok(said(ErrorCode::None, 5)));
    let second = world.poll().requests;
    assert_eq!(all(&second), ["0:7/0+1 b c"]);
    // The connection is being dialled.
    assert_eq!(world.take_back(2), Outcome::NotWritten);
    assert!(!second[0].parts[0].handover.begin(), "it is left out of the request");
    assert!(
        world.poll().requests.is_empty(),
        "until that request has ended nothing of its partition is sent"
    );
    world.answer(&second[0], |_| Err(PartFailure::LeftOut));
    assert_eq!(all(&world.poll().requests), ["0:7/0+1 c"]);
    assert_eq!(world.answers(), ["1 -> 5", "2 -> not written"]);
}

#[test]
fn a_record_in_a_request_cannot_be_taken_back_and_one_that_was_refused_for_certain_can() {
    let mut world = world(|_| ());
    for value in ["a", "b"] {
        world.push(0, value);
    }
    let first = world.poll_with_id();
    assert!(first[0].parts[0].handover.begin());
    assert_eq!(world.take_back(1), Outcome::Unknown);
    world.answer(&first[0], |_| Ok(said(ErrorCode::NotEnoughReplicas, -1)));
    assert_eq!(world.take_back(1), Outcome::NotWritten);
    world.now += Duration::from_secs(1);
    let second = world.poll().requests;
    assert_eq!(all(&second), ["0:7/0+0 b"]);
    assert!(second[0].parts[0].handover.begin());
    world.answer(&second[0], |_| Ok(said(ErrorCode::NotEnoughReplicasAfterAppend, -1)));
    assert_eq!(world.take_back(2), Outcome::Unknown, "it may be in the log");
    world.now += Duration::from_secs(1);
    let third = world.poll().requests;
    assert_eq!(all(&third), ["0:7/0+0 b"]);
    world.answer(&third[0], |_| Ok(said(ErrorCode::None, 5)));
    assert_eq!(world.answers(), ["1 -> not written", "2 -> 5"]);
}

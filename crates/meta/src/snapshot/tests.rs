//! Answers are written as one line each: `brokers 1 2; orders#1 0=1/5 1=2/7` is a full answer in which topic `orders` has
//! id 1, and partition 0 is led by broker 1 in epoch 5. `-` is "none" (no leader, no epoch), `orders!3` is error code 3. Broker 1
//! gives the answer, or another as in `from:2`.

use proptest::prelude::*;
use strandline_protocol::Uuid;

use super::apply::*;
use super::*;
use crate::hints::{HintedTopic, LeaderHint, LeaderHints};
use crate::pool::Endpoint;

fn id(n: u8) -> TopicId {
    let mut bytes = [0; 16];
    bytes[15] = n;
    TopicId::from(Uuid(bytes))
}

fn number(text: &str) -> Option<i32> {
    (text != "-").then(|| text.parse().unwrap())
}

fn topic_answer(text: &str) -> TopicAnswer {
    let mut words = text.split_whitespace();
    let head = words.next().unwrap();
    let (name, code, topic_id) = match (head.split_once('!'), head.split_once('#')) {
        (Some((name, code)), _) => (name, code.parse().unwrap(), None),
        (None, Some((name, topic_id))) => (name, 0, Some(id(topic_id.parse().unwrap()))),
        (None, None) => (head, 0, None),
    };
    let partitions = words.map(|word| {
        let (index, leader) = word.split_once('=').unwrap();
        let (leader, epoch) = leader.split_once('/').unwrap();
        PartitionAnswer {
            index: index.parse().unwrap(),
            leader: number(leader),
            leader_epoch: number(epoch),
            replicas: vec![1, 2],
            isr: vec![1],
            offline_replicas: vec![],
        }
    });
    TopicAnswer {
        error: ErrorCode::from_code(code),
        name: name.into(),
        id: topic_id,
        is_internal: false,
        partitions: partitions.collect(),
    }
}

fn answer(text: &str) -> MetadataAnswer {
    let mut sections = text.split(';').map(str::trim);
    let head: Vec<&str> = sections.next().unwrap().split_whitespace().collect();
    let brokers = head.iter().filter_map(|word| word.parse().ok()).map(|node_id| Broker {
        node_id,
        address: BrokerAddress::new(&format!("host{node_id}"), 9092).unwrap(),
        rack: None,
    });
    let told_by = head.iter().find_map(|word| word.strip_prefix("from:")).map_or(1, |id| id.parse().unwrap());
    MetadataAnswer {
        told_by: Endpoint::Node(told_by),
        error: ErrorCode::None,
        cluster_id: Some(head.iter().find_map(|word| word.strip_prefix("cluster:")).unwrap_or("c1").into()),
        controller_id: Some(1),
        brokers: brokers.collect(),
        topics: sections.filter(|section| !section.is_empty()).map(topic_answer).collect(),
    }
}

struct World {
    view: ClusterSnapshot,
    now: Instant,
    notices: Vec<String>,
}

impl World {
    fn new() -> Self {
        Self { view: ClusterSnapshot::empty(), now: Instant::now(), notices: Vec::new() }
    }

    fn take(&mut self, asked: &Asked, text: &str) -> bool {
        self.now += Duration::from_secs(1);
        let applied = self.view.apply(answer(text), asked, self.now).unwrap();
        self.view = applied.snapshot;
        self.notices.extend(applied.notices.iter().map(|notice| match notice {
            Notice::LeaderEpochWentBack { topic, partition, from, to } => {
                format!("{topic}:{partition} epoch {from} -> {to}")
            }
            Notice::TopicRecreated { topic, from, to } => {
                format!("{topic} id {} -> {}", from.0.0[15], to.0.0[15])
            }
        }));
        applied.changed
    }

    /// An answer to a question about the topics that it holds.
    fn named(&mut self, text: &str) -> bool {
        let names = answer(text).topics.iter().map(|topic| Arc::clone(&topic.name)).collect();
        self.take(&Asked::Named(names), text)
    }

    fn all(&mut self, text: &str) -> bool {
        self.take(&Asked::All, text)
    }

    /// The view in the form of the answers.
    fn show(&self) -> String {
        let shown = |value: Option<i32>| value.map_or("-".to_owned(), |value| value.to_string());
        let mut lines =
            vec![format!("brokers {:?}", self.view.brokers().map(|b| b.node_id).collect::<Vec<_>>())];
        for name in self.view.topics.keys() {
            match self.view.topic_view(name) {
                TopicView::Known(topic) => {
                    let partitions: Vec<String> = topic
                        .partitions
                        .iter()
                        .map(|p| format!("{}={}/{}", p.index, shown(p.leader), shown(p.leader_epoch)))
                        .collect();
                    let stale = if topic.stale { " stale" } else { "" };
                    lines.push(format!("{name} {}{stale}", partitions.join(" ")));
                }
                TopicView::Refused { code, .. } => lines.push(format!("{name} {code}")),
                TopicView::NotAsked => {}
            }
        }
        lines.join("; ")
    }
}

#[test]
fn brokers_of_an_answer_about_one_topic_are_taken_in() {
    let mut world = World::new();
    world.named("1; orders#1 0=1/0");
    assert!(world.named("1 2; orders#1 0=2/1"), "a new leader on a new broker is a change");
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=2/1");
    assert!(!world.named("1 2; orders#1 0=2/1"), "the same answer again changes nothing");
}

#[test]
fn an_answer_with_an_error_without_brokers_or_of_another_cluster_changes_nothing() {
    let mut world = World::new();
    world.all("1; orders#1 0=1/0");
    let mut refused = answer("1; ");
    refused.error = ErrorCode::from_code(13);
    let messages: Vec<String> = [refused, answer(""), answer("cluster:c2 1; ")]
        .into_iter()
        .map(|bad| world.view.apply(bad, &Asked::All, world.now).unwrap_err().to_string())
        .collect();
    assert_eq!(
        messages,
        [
            "the broker answered Metadata with NETWORK_EXCEPTION",
            "the Metadata answer names no broker",
            "the broker belongs to cluster c2, but this client is connected to cluster c1",
        ]
    );
    assert_eq!(world.show(), "brokers [1]; orders 0=1/0");
}

#[test]
fn an_older_epoch_from_a_lagging_broker_is_ignored_with_its_leader() {
    let mut world = World::new();
    world.named("1 2; orders#1 0=2/5");
    world.named("1 2; orders#1 0=1/4");
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=2/5");
}

#[test]
fn a_leaderless_answer_without_an_epoch_keeps_the_last_real_epoch_and_a_later_answer_clears_it() {
    let mut world = World::new();
    world.named("1 2; orders#1 0=2/5");
    world.named("1 2; orders#1 0=-/-");
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=-/5");
    world.named("1 2; orders#1 0=1/6");
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=1/6");
}

#[test]
fn a_lower_epoch_is_accepted_after_three_agreeing_answers_and_reported() {
    let mut world = World::new();
    world.named("1 2; orders#1 0=2/5");
    world.named("1 2; orders#1 0=1/3");
    world.named("1 2 from:2; orders#1 0=1/3");
    world.named("1 2; orders#1 0=1/4");
    world.named("1 2 from:2; orders#1 0=1/4");
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=2/5", "3, 3, 4, 4: no three in a row agree");
    world.named("1 2; orders#1 0=1/4");
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=1/4");
    assert_eq!(world.notices, ["orders:0 epoch 5 -> 4"]);
}

#[test]
fn a_lower_epoch_that_one_broker_tells_again_and_again_counts_once_others_agree() {
    let mut world = World::new();
    world.named("1 2 3; orders#1 0=2/5");
    for _ in 0..10 {
        world.named("1 2 3; orders#1 0=1/4");
    }
    world.named("1 2 3 from:2; orders#1 0=1/4");
    assert_eq!(world.show(), "brokers [1, 2, 3]; orders 0=2/5", "two of three may lag behind");
    world.named("1 2 3 from:3; orders#1 0=1/4");
    assert_eq!(world.show(), "brokers [1, 2, 3]; orders 0=1/4");

    let mut shrunk = World::new();
    shrunk.named("1 2 3; orders#1 0=2/5");
    for answer in 0..30 {
        assert_eq!(shrunk.view.partition("orders", 0).unwrap().leader_epoch, Some(5), "{answer}");
        shrunk.named("1; orders#1 0=1/4");
    }
    shrunk.named("1; orders#1 0=1/4");
    assert_eq!(shrunk.show(), "brokers [1]; orders 0=1/4", "nobody said anything else for half a minute");

    let mut alone = World::new();
    for epoch in [5, 4, 4, 4] {
        alone.named(&format!("1; orders#1 0=1/{epoch}"));
    }
    assert_eq!(alone.show(), "brokers [1]; orders 0=1/4", "nobody else is there to agree");
}

#[test]
fn an_answer_that_agrees_with_the_view_ends_the_count_of_lower_epochs() {
    let mut world = World::new();
    for epoch in [5, 3, 3, 5, 3, 3] {
        world.named(&format!("1 2; orders#1 0=1/{epoch}"));
    }
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=1/5");
}

#[test]
fn a_broker_that_goes_on_telling_an_epoch_nobody_else_has_heard_of_is_outvoted_in_time() {
    let mut world = World::new();
    world.named("1 2 3; orders#1 0=2/5");
    // 1 has it from somewhere, and 2 and 3 have not. An answer takes a second here.
    for round in 0..9 {
        for (broker, epoch) in [(2, 4), (1, 5), (3, 4)] {
            world.named(&format!("1 2 3 from:{broker}; orders#1 0=2/{epoch}"));
        }
        assert_eq!(world.show(), "brokers [1, 2, 3]; orders 0=2/5", "{round}");
    }
    for _ in 0..2 {
        world.named("1 2 3 from:1; orders#1 0=2/5");
        world.named("1 2 3 from:2; orders#1 0=2/4");
        world.named("1 2 3 from:3; orders#1 0=2/4");
    }
    assert_eq!(world.show(), "brokers [1, 2, 3]; orders 0=2/4");

    let mut split = World::new();
    split.named("1 2 3 4; orders#1 0=2/5");
    for _ in 0..30 {
        for (broker, epoch) in [(1, 3), (2, 3), (3, 5), (4, 5)] {
            split.named(&format!("1 2 3 4 from:{broker}; orders#1 0=2/{epoch}"));
        }
    }
    assert_eq!(split.show(), "brokers [1, 2, 3, 4]; orders 0=2/5", "two against two");
}

/// `topic:partition=leader/epoch`, and brokers that come with it.
fn hint(text: &str, brokers: &[i32]) -> LeaderHints {
    let (topic, rest) = text.split_once(':').unwrap();
    let (partition, rest) = rest.split_once('=').unwrap();
    let (leader, epoch) = rest.split_once('/').unwrap();
    let topic = match topic.strip_prefix('#') {
        Some(number) => HintedTopic::Id(id(number.parse().unwrap())),
        None => HintedTopic::Name(topic.into()),
    };
    let broker = |node_id: &i32| Broker {
        node_id: *node_id,
        address: BrokerAddress::new("hinted", 9092).unwrap(),
        rack: None,
    };
    LeaderHints {
        leaders: vec![LeaderHint {
            topic,
            partition: partition.parse().unwrap(),
            leader: leader.parse().unwrap(),
            leader_epoch: epoch.parse().unwrap(),
        }],
        brokers: brokers.iter().map(broker).collect(),
    }
}

#[test]
fn a_hint_counts_only_in_a_newer_epoch_for_what_is_known_and_makes_nothing_look_fresh() {
    let mut world = World::new();
    world.named("1 2; orders#1 0=1/5");
    for nothing in
        ["orders:0=2/5", "orders:0=2/4", "orders:7=2/6", "payments:0=2/6", "#9:0=2/6", "orders:0=3/6"]
    {
        assert!(world.view.with_hints(&hint(nothing, &[])).is_none(), "{nothing}");
    }
    world.view = world.view.with_hints(&hint("orders:0=2/6", &[])).unwrap();
    assert_eq!(world.show(), "brokers [1, 2]; orders 0=2/6 stale");
    // By id, to a broker that comes with the hint; where broker 1 is does not change by a hint.
    world.view = world.view.with_hints(&hint("#1:0=3/7", &[1, 3])).unwrap();
    assert_eq!(world.show(), "brokers [1, 2, 3]; orders 0=3/7 stale");
    assert_eq!(world.view.broker(1).unwrap().address.host(), "host1");
    // What Metadata says later in an older epoch does not undo it.
    world.named("from:2 1 2 3; orders#1 0=1/5");
    assert_eq!(world.view.partition("orders", 0).unwrap().leader, Some(3));
}

#[test]
fn another_topic_id_is_another_topic_and_the_old_id_never_comes_back() {
    let mut world = World::new();
    world.named("1; orders#1 0=1/50 1=1/50");
    world.named("1; orders#2 0=1/0");
    assert_eq!(world.show(), "brokers [1]; orders 0=1/0");
    assert!(world.view.topic_by_id(id(1)).is_none());
    world.named("1; orders#1 0=1/50 1=1/50");
    assert_eq!(world.show(), "brokers [1]; orders 0=1/0", "from a broker that lags behind");
    assert_eq!(world.view.topic_by_id(id(2)).unwrap().name.as_ref(), "orders");
    assert_eq!(world.notices, ["orders id 1 -> 2"]);
}

#[test]
fn an_id_that_a_lagging_broker_brought_goes_again_once_others_agree() {
    let mut world = World::new();
    world.named("1 2 3; orders#1 0=1/0");
    // Created anew twice; broker 3 has heard of the first time only.
    world.named("1 2 3; orders#3 0=1/0");
    world.named("1 2 3 from:3; orders#2 0=3/0");
    let id_of = |world: &World| world.view.topic("orders").unwrap().id.unwrap().0.0[15];
    for (teller, expected) in [(1, 2), (2, 2), (1, 2), (3, 3)] {
        world.named(&format!("1 2 3 from:{teller}; orders#3 0=1/0"));
        assert_eq!(id_of(&world), expected, "as broker {teller} tells");
    }
    let replaced = world.view.topic("orders").unwrap().replaced_ids();
    assert_eq!(replaced, [id(1), id(2)]);
    assert_eq!(world.notices, ["orders id 1 -> 3", "orders id 3 -> 2", "orders id 2 -> 3"]);
    world.named("1 2 3 from:3; orders#2 0=3/0");
    assert_eq!(id_of(&world), 3);
}

#[test]
fn a_refusal_is_kept_with_its_code_and_a_good_answer_clears_it() {
    let mut world = World::new();
    world.named("1; orders#1 0=1/5; gone!3; secret!29");
    world.named("1; orders!3");
    assert_eq!(
        world.show(),
        "brokers [1]; gone UNKNOWN_TOPIC_OR_PARTITION; orders UNKNOWN_TOPIC_OR_PARTITION; secret TOPIC_AUTHORIZATION_FAILED"
    );
    world.named("1; orders#1 0=1/4");
    assert_eq!(
        world.view.partition("orders", 0).unwrap().leader_epoch,
        Some(5),
        "the same topic: epochs stay monotone"
    );
}

#[test]
fn a_full_list_forgets_what_it_leaves_out_and_a_named_answer_does_not() {
    let mut world = World::new();
    world.all("1; orders#1 0=1/0; payments#2 0=1/0");
    world.named("1; orders#1 0=1/1");
    assert_eq!(world.show(), "brokers [1]; orders 0=1/1; payments 0=1/0");
    world.all("1; payments#2 0=1/0");
    assert_eq!(world.show(), "brokers [1]; payments 0=1/0");
    assert!(matches!(world.view.topic_view("orders"), TopicView::NotAsked));
}

#[test]
fn a_partition_that_an_answer_leaves_out_stays() {
    let mut world = World::new();
    world.named("1; orders#1 0=1/0 1=1/0");
    world.named("1; orders#1 0=1/2");
    assert_eq!(world.show(), "brokers [1]; orders 0=1/2 1=1/0");
}

#[test]
fn an_answer_about_one_topic_makes_no_other_look_fresh() {
    let mut world = World::new();
    world.all("1; orders#1 0=1/0; payments#2 0=1/0");
    world.named("1; orders#1 0=1/0");
    world.named("1; orders#1 0=1/0");
    let age = |name: &str| world.view.topic(name).unwrap().age(world.now).as_secs();
    assert_eq!((age("orders"), age("payments")), (0, 2));
    assert_eq!(world.view.age(world.now), Some(Duration::ZERO));
}

#[test]
fn invalidation_marks_stale_and_takes_nothing_away() {
    let mut world = World::new();
    world.all("1; orders#1 0=1/0; payments#2 0=1/0");
    world.view = world.view.with_stale(&["orders".into(), "unheard-of".into()]).unwrap();
    assert!(world.view.with_stale(&["orders".into(), "unheard-of".into()]).is_none());
    assert_eq!(world.show(), "brokers [1]; orders 0=1/0 stale; payments 0=1/0");
    world.named("1; orders#1 0=1/0");
    assert_eq!(world.show(), "brokers [1]; orders 0=1/0; payments 0=1/0");
}

fn arbitrary_answer() -> impl Strategy<Value = String> {
    let value = || prop_oneof![1 => Just("-".to_owned()), 6 => (0..6i32).prop_map(|n| n.to_string())];
    let partition =
        (0..3i32, value(), value()).prop_map(|(index, leader, epoch)| format!("{index}={leader}/{epoch}"));
    let topic = prop_oneof![
        8 => (1..4u8, prop::collection::vec(partition, 0..4)).prop_map(|(id, partitions)| {
            format!("orders#{id} {}", partitions.join(" "))
        }),
        1 => Just("orders!3".to_owned()),
        1 => Just("orders!29".to_owned()),
    ];
    (prop::collection::vec(1..4i32, 1..3), topic).prop_map(|(brokers, topic)| {
        format!("{}; {topic}", brokers.iter().map(i32::to_string).collect::<Vec<_>>().join(" "))
    })
}

proptest! {
    /// Whatever brokers answer, in whatever order: for one topic id a partition's epoch goes back only with a notice, an
    /// epoch once known is never lost, partitions never vanish, and an id once replaced comes back only with a notice.
    #[test]
    fn the_view_is_monotone_for_a_topic_id(answers in prop::collection::vec(arbitrary_answer(), 1..40)) {
        let mut world = World::new();
        let mut before: Option<Topic> = None;
        let mut replaced = Vec::new();
        for text in answers {
            world.notices.clear();
            world.named(&text);
            let Some(topic) = world.view.topic("orders").cloned() else { continue };
            let topic_id = topic.id.unwrap();
            let told = world.notices.iter().any(|n| n.ends_with(&format!("-> {}", topic_id.0.0[15])));
            prop_assert!(!replaced.contains(&topic_id) || told, "{text}");
            replaced.retain(|id| *id != topic_id);
            match &before {
                Some(old) if old.id == topic.id => {
                    for partition in &old.partitions {
                        let now = topic.partition(partition.index);
                        prop_assert!(now.is_some(), "{text}");
                        let reported = world.notices.iter().any(|n| n.starts_with(&format!("orders:{} ", partition.index)));
                        prop_assert!(now.unwrap().leader_epoch >= partition.leader_epoch || reported, "{text}");
                    }
                }
                Some(old) => replaced.push(old.id.unwrap()),
                None => {}
            }
            before = Some(topic);
        }
    }
}

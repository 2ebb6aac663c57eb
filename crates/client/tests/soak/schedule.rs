//! What befalls the cluster, and when: a pure function of the seed.

use std::time::Duration;

use strandline_protocol::{ApiKey, ErrorCode};
use strandline_testkit::embedded::{KafkaVersion, Network};
use strandline_testkit::random;

/// What a round draws, so that it can be had again by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(random::Random::new(seed))
    }

    /// Another generator, so that what one task draws changes nothing for another.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number from `range`, which is not empty.
    pub(crate) fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub(crate) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.within(0..n) == 0
    }

    /// One of `items`, which are not empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.within(0..items.len() as u64) as usize]
    }
}

/// How the listeners are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    Plaintext,
    /// SCRAM, with sessions that end within the round.
    Scram,
    Tls,
}

/// What holds for a whole round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) brokers: i32,
    pub(crate) version: KafkaVersion,
    pub(crate) protection: Protection,
    /// From which topic ids and the embedded cluster's own chance follow.
    pub(crate) cluster_seed: u64,
}

/// A topic of every round.
pub(crate) struct TopicShape {
    pub(crate) name: &'static str,
    pub(crate) partitions: i32,
    /// Whether it is deleted and created again.
    pub(crate) recreated: bool,
}

pub(crate) const TOPICS: [TopicShape; 3] = [
    TopicShape { name: "orders", partitions: 8, recreated: false },
    TopicShape { name: "payments", partitions: 3, recreated: false },
    TopicShape { name: "sessions", partitions: 2, recreated: true },
];

/// Consumer groups and transactional ids of every round.
pub(crate) const GROUPS: [&str; 4] = ["billing", "shipping", "search", "reports"];

/// One thing that befalls the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Network {
        broker: i32,
        network: Network,
    },
    Latency {
        broker: i32,
        latency: Duration,
    },
    CloseConnections {
        broker: i32,
    },
    Stop {
        broker: i32,
    },
    Restart {
        broker: i32,
    },
    Readdress {
        broker: i32,
    },
    /// The broker advertises a port where nobody listens; or what it serves at again.
    AdvertiseNowhere {
        broker: i32,
    },
    AdvertiseTruth {
        broker: i32,
    },
    /// One more broker than at the start, or no longer.
    AddBroker,
    RemoveBroker,
    /// To another replica, counted from the present leader.
    MoveLeader {
        topic: &'static str,
        partition: i32,
        steps: u64,
    },
    LoseLeader {
        topic: &'static str,
        partition: i32,
    },
    MoveController {
        broker: i32,
    },
    MoveCoordinator {
        group: &'static str,
        steps: u64,
    },
    Append {
        topic: &'static str,
        partition: i32,
        records: u64,
    },
    Recreate {
        topic: &'static str,
    },
    /// What the broker tells stays as it is now, or is wrong.
    View {
        broker: i32,
        lie: Lie,
    },
    Truth {
        broker: i32,
    },
    Fault {
        rule: FaultRule,
    },
    /// Held requests go on.
    Release,
    ClearFaults,
}

/// How a broker's view differs from the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It only grows old.
    Stale,
    NoBrokers,
    /// Each leader is another replica.
    WrongLeaders,
    NoTopics,
    NoEpochs,
}

/// A fault and whom it befalls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FaultRule {
    pub(crate) kind: FaultKind,
    pub(crate) broker: Option<i32>,
    pub(crate) api: Option<ApiKey>,
    pub(crate) times: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FaultKind {
    Error(ErrorCode),
    Delay(Duration),
    Hold,
    Drop,
    Close,
    CloseAfter(usize),
    ApplyThenLose,
    Trickle(usize, Duration),
    Garbage(Vec<u8>),
    WrongCorrelationId,
    Twice,
    Throttle(Duration),
}

/// When something happens, from the start of the faults.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) event: Event,
}

/// What a seed brings in one round of this length.
pub(crate) fn schedule(seed: u64, length: Duration) -> (Setting, Vec<Step>) {
    let mut random = Random::new(seed);
    let protections = [Protection::Plaintext, Protection::Plaintext, Protection::Scram, Protection::Tls];
    let setting = Setting {
        brokers: random.within(3..6) as i32,
        version: *random.pick(&KafkaVersion::ALL),
        protection: *random.pick(&protections),
        cluster_seed: random.next(),
    };
    let mut plan = Plan {
        random,
        setting,
        steps: Vec::new(),
        troubled: Vec::new(),
        extra_until: Duration::ZERO,
        lying: Vec::new(),
    };
    let mut at = Duration::ZERO;
    while at < length {
        plan.draw(at);
        at += plan.random.millis(5..90);
    }
    // Stable: of two at one moment the one drawn first comes first.
    plan.steps.sort_by_key(|step| step.at);
    (setting, plan.steps)
}

/// So many brokers tell something old or wrong at once.
const LIARS_MAX: usize = 2;

struct Plan {
    random: Random,
    setting: Setting,
    steps: Vec<Step>,
    /// Brokers whose trouble is under way, and until when; no second trouble befalls them meanwhile.
    troubled: Vec<(i32, Duration)>,
    extra_until: Duration,
    /// Until when brokers lie.
    lying: Vec<Duration>,
}

impl Plan {
    fn add(&mut self, at: Duration, event: Event) {
        self.steps.push(Step { at, event });
    }

    fn draw(&mut self, at: Duration) {
        match self.random.within(0..100) {
            0..12 => self.trouble(at),
            12..15 => {
                let broker = self.broker();
                self.add(at, Event::CloseConnections { broker });
            }
            15..19 => self.view(at),
            19..36 => {
                let (topic, partition) = self.partition();
                let steps = self.random.within(1..3);
                self.add(at, Event::MoveLeader { topic, partition, steps });
            }
            36..39 => {
                let (topic, partition) = self.partition();
                self.add(at, Event::LoseLeader { topic, partition });
                let until = at + self.random.millis(20..700);
                self.add(until, Event::MoveLeader { topic, partition, steps: 1 });
            }
            39..42 => {
                let broker = self.broker();
                self.add(at, Event::MoveController { broker });
            }
            42..46 => {
                let (group, steps) = (*self.random.pick(&GROUPS), self.random.within(1..3));
                self.add(at, Event::MoveCoordinator { group, steps });
            }
            46..60 => {
                let (topic, partition) = self.partition();
                let records = self.random.within(1..20);
                self.add(at, Event::Append { topic, partition, records });
            }
            60..63 => {
                let recreated: Vec<&'static str> =
                    TOPICS.iter().filter(|topic| topic.recreated).map(|topic| topic.name).collect();
                let topic = *self.random.pick(&recreated);
                self.add(at, Event::Recreate { topic });
            }
            63..66 => self.extra_broker(at),
            66..70 => self.add(at, Event::ClearFaults),
            _ => self.fault(at),
        }
    }

    fn broker(&mut self) -> i32 {
        self.random.within(1..self.setting.brokers as u64 + 1) as i32
    }

    fn partition(&mut self) -> (&'static str, i32) {
        let topic = self.random.pick(&TOPICS);
        (topic.name, self.random.within(0..topic.partitions as u64) as i32)
    }

    /// Something that lasts, at a broker that has no such trouble now.
    fn trouble(&mut self, at: Duration) {
        self.troubled.retain(|(_, until)| *until > at);
        let broker = self.broker();
        if self.troubled.iter().any(|(troubled, _)| *troubled == broker) {
            return;
        }
        let until = at + self.random.millis(30..1_500);
        let network = |network| Event::Network { broker, network };
        let (begin, end) = match self.random.within(0..8) {
            0 => (network(Network::Refuse), network(Network::Up)),
            1 => (network(Network::Blackhole), network(Network::Up)),
            2 => (network(Network::Reset), network(Network::Up)),
            3 | 4 => (Event::Stop { broker }, Event::Restart { broker }),
            5 => {
                let latency = self.random.millis(1..400);
                (Event::Latency { broker, latency }, Event::Latency { broker, latency: Duration::ZERO })
            }
            // The address of broker 1 is what the client was given: where all addresses change at once, only a name
            // that resolves anew helps, and there is none here.
            6 if broker != 1 => (Event::Readdress { broker }, Event::CloseConnections { broker }),
            _ if broker != 1 => (Event::AdvertiseNowhere { broker }, Event::AdvertiseTruth { broker }),
            _ => return,
        };
        self.add(at, begin);
        self.add(until, end);
        self.troubled.push((broker, until + Duration::from_millis(1)));
    }

    fn extra_broker(&mut self, at: Duration) {
        if at < self.extra_until {
            return;
        }
        self.extra_until = at + self.random.millis(100..1_500);
        self.add(at, Event::AddBroker);
        self.add(self.extra_until, Event::RemoveBroker);
    }

    fn view(&mut self, at: Duration) {
        let lies = [
            Lie::Stale,
            Lie::Stale,
            Lie::Stale,
            Lie::NoBrokers,
            Lie::WrongLeaders,
            Lie::NoTopics,
            Lie::NoEpochs,
        ];
        // Where most brokers tell the same old story, no client can know better: two lie at once at the most, and one of
        // three brokers tells the truth.
        self.lying.retain(|until| *until > at);
        if self.lying.len() == LIARS_MAX {
            return;
        }
        let (broker, lie) = (self.broker(), *self.random.pick(&lies));
        self.add(at, Event::View { broker, lie });
        let until = at + self.random.millis(20..1_000);
        self.add(until, Event::Truth { broker });
        self.lying.push(until);
    }

    fn fault(&mut self, at: Duration) {
        let kind = self.fault_kind();
        if kind == FaultKind::Hold {
            let until = at + self.random.millis(10..1_000);
            self.add(until, Event::Release);
        }
        let broker = if self.random.one_in(2) { Some(self.broker()) } else { None };
        let api = if self.random.one_in(3) { None } else { Some(*self.random.pick(&APIS)) };
        let times = if self.random.one_in(5) { self.random.within(3..12) } else { 1 };
        self.add(at, Event::Fault { rule: FaultRule { kind, broker, api, times } });
    }

    fn fault_kind(&mut self) -> FaultKind {
        match self.random.within(0..22) {
            0..8 => FaultKind::Error(*self.random.pick(&CODES)),
            8 => FaultKind::Delay(self.random.millis(1..600)),
            9 => FaultKind::Hold,
            10 => FaultKind::Drop,
            11 => FaultKind::Close,
            12 | 13 => FaultKind::CloseAfter(self.random.within(0..200) as usize),
            14 => FaultKind::ApplyThenLose,
            15 => {
                let bytes = self.random.within(1..40) as usize;
                FaultKind::Trickle(bytes, self.random.millis(0..10))
            }
            16 => FaultKind::Garbage(self.garbage()),
            17 => FaultKind::WrongCorrelationId,
            18 => FaultKind::Twice,
            _ => FaultKind::Throttle(self.random.millis(1..500)),
        }
    }

    /// Bytes that are no answer: another protocol's, a frame that is too long, or any.
    fn garbage(&mut self) -> Vec<u8> {
        match self.random.within(0..4) {
            0 => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            1 => vec![0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x46],
            2 => vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1],
            _ => {
                let length = self.random.within(1..60);
                (0..length).map(|_| self.random.next() as u8).collect()
            }
        }
    }
}

const APIS: [ApiKey; 12] = [
    ApiKey::Metadata,
    ApiKey::Metadata,
    ApiKey::ListOffsets,
    ApiKey::ListOffsets,
    ApiKey::Fetch,
    ApiKey::Fetch,
    ApiKey::ApiVersions,
    ApiKey::DescribeConfigs,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::FindCoordinator,
    ApiKey::DescribeLogDirs,
    ApiKey::ListTransactions,
];

/// Codes that say something about the moment, of every kind that a client treats apart.
const CODES: [ErrorCode; 14] = [
    ErrorCode::NotLeaderOrFollower,
    ErrorCode::NotLeaderOrFollower,
    ErrorCode::LeaderNotAvailable,
    ErrorCode::FencedLeaderEpoch,
    ErrorCode::UnknownLeaderEpoch,
    ErrorCode::UnknownTopicOrPartition,
    ErrorCode::RequestTimedOut,
    ErrorCode::KafkaStorageError,
    ErrorCode::NotController,
    ErrorCode::NotCoordinator,
    ErrorCode::CoordinatorLoadInProgress,
    ErrorCode::CoordinatorNotAvailable,
    ErrorCode::RebootstrapRequired,
    ErrorCode::UnknownServerError,
];

#[test]
fn a_seed_repeats_its_schedule_and_another_seed_brings_another() {
    let length = Duration::from_secs(60);
    assert_eq!(schedule(7, length), schedule(7, length));
    assert_ne!(schedule(7, length), schedule(8, length));
}

#[test]
fn a_long_schedule_has_every_kind_of_event() {
    let (_, steps) = schedule(1, Duration::from_secs(600));
    let kinds: std::collections::HashSet<_> =
        steps.iter().map(|step| std::mem::discriminant(&step.event)).collect();
    assert_eq!(kinds.len(), 21);
    let faults: std::collections::HashSet<_> = steps
        .iter()
        .filter_map(|step| match &step.event {
            Event::Fault { rule } => Some(std::mem::discriminant(&rule.kind)),
            _ => None,
        })
        .collect();
    assert_eq!(faults.len(), 12);
}

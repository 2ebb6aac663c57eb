//! Older and newer brokers.

use strandline_testkit::apache::{ApacheKafka, Options};

use crate::command::strandline;
use crate::{METADATA_TOPIC, TOPIC};

/// Kafka 4.0.0 writes the same events with older requests.
pub(crate) fn an_old_broker_is_audited() {
    let kafka = ApacheKafka::start(Options { version: "4.0.0", ..Options::default() }).unwrap();
    kafka.create_tiered_topic(TOPIC, 1, &[]).unwrap();
    kafka.produce(TOPIC, 8_000, 500).unwrap();
    kafka.wait_until_copied(TOPIC).unwrap();
    let store = format!("file://{}", kafka.tier_dir().display());
    let bootstrap = kafka.bootstrap();
    let audit = ["audit", "-b", &bootstrap, "--store", &store, "--layout", "local", "-o", "json"];
    assert_eq!(strandline(audit).envelope("strandline.audit/v1").verdict(), (0, Vec::new()));
    let segments = strandline(["segments", "-b", &bootstrap, "-o", "json"]);
    let finished = segments.stdout.matches("COPY_SEGMENT_FINISHED").count();
    assert!(finished >= 3, "{}{}", segments.stdout, segments.stderr);
}

/// Kafka 4.4.0 without tiered storage: said plainly; and a topic of that name holding something else is no crash.
pub(crate) fn a_new_broker_without_tiering_says_so() {
    let kafka =
        ApacheKafka::start(Options { version: "4.4.0", tiered: false, ..Options::default() }).unwrap();
    let bootstrap = kafka.bootstrap();
    for command in [vec!["audit"], vec!["status"], vec!["events"], vec!["segments"], vec!["explain", "a:0"]] {
        let run = strandline([&command[..], &["-b", &bootstrap]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (7, ""), "{command:?}: {}", run.stderr);
        assert!(run.stderr.contains("\nhint: --metadata-topic"), "{}", run.stderr);
    }
    let create = ["--create", "--topic", METADATA_TOPIC, "--partitions", "2", "--replication-factor", "1"];
    kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &create).unwrap();
    kafka.produce(METADATA_TOPIC, 10, 20).unwrap();
    let audit = strandline(["audit", "-b", &bootstrap, "-o", "json"]).envelope("strandline.audit/v1");
    let (code, mut codes) = audit.verdict();
    codes.dedup();
    assert_eq!(code, 1);
    assert!(codes.contains(&"event.undecodable".to_owned()), "{codes:?}");
    assert!(codes.iter().all(|code| code.starts_with("event.") || code.starts_with("meta.")), "{codes:?}");
}

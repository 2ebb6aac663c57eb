//! The harness itself, on a real Apache Kafka.

use std::fs;

use strandline_testkit::apache::{ApacheKafka, Options};

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn a_broker_copies_segments_and_comes_back_after_a_crash() -> anyhow::Result<()> {
    let kafka = ApacheKafka::start(Options::default())?;
    kafka.create_tiered_topic("orders", 2, &[])?;
    kafka.produce("orders", 10_000, 500)?;
    let last_tiered = kafka.wait_until_copied("orders")?;
    assert!(last_tiered.len() == 2 && last_tiered.values().any(|&offset| offset > 0), "{last_tiered:?}");
    assert!(kafka.tier_dir().join("kafka-tiered-storage").is_dir());

    kafka.kill_broker(1)?;
    assert!(kafka.data_dir(1).join("orders-0").is_dir());
    kafka.start_broker(1)?;
    kafka.wait_until_ready()?;
    let topics = kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &["--list"])?;
    assert!(topics.lines().any(|line| line == "orders"), "{topics}");

    let directory = kafka.directory().to_owned();
    kafka.stop_broker(1)?;
    drop(kafka);
    assert!(!fs::exists(directory)?);
    Ok(())
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn three_brokers_and_the_neighbouring_versions_start() -> anyhow::Result<()> {
    for options in [
        Options { brokers: 3, ..Options::default() },
        Options { version: "4.0.0", ..Options::default() },
        Options { version: "4.4.0", tiered: false, ..Options::default() },
    ] {
        let kafka = ApacheKafka::start(options)?;
        assert!(kafka.bootstrap().starts_with("127.0.0.1:"));
    }
    Ok(())
}

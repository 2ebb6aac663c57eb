//! Who holds uploads back, who stands where, and the rights that it takes to see that.

use serde_json::Value;
use strandline_testkit::apache::{ApacheKafka, READER, wait_for};

use crate::WITHIN;
use crate::command::strandline;

const TOPIC: &str = "clicks";

/// `explain ADDRESS -o json`: its one item.
fn explain(address: &str, source: &[String]) -> Value {
    let arguments = ["explain", address, "-o", "json"].map(str::to_owned);
    let mut told =
        strandline(arguments.into_iter().chain(source.iter().cloned())).envelope("strandline.explain/v1");
    assert_eq!((told.code, told.incomplete.to_string().as_str()), (0, "[]"));
    told.items.swap_remove(0)
}

/// `GROUP NEXT-OFFSET PLACE`, by offset.
fn groups(item: &Value) -> Vec<String> {
    let rows = item["groups"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.map(|row| format!("{} {} {}", text(&row["group"]), row["next_offset"], text(&row["place"])))
        .collect()
}

fn not_known(item: &Value) -> Vec<String> {
    let rows = item["not_known"].as_array().unwrap().iter();
    rows.map(|row| format!("{}: {}", row["what"].as_str().unwrap(), row["reason"].as_str().unwrap()))
        .collect()
}

/// Reads so many records as a group, which commits where it stands.
fn consume(kafka: &ApacheKafka, group: &str, records: u32, protocol: &str) {
    let (records, protocol) = (records.to_string(), format!("group.protocol={protocol}"));
    let arguments = ["--topic", TOPIC, "--from-beginning", "--max-messages", &records, "--group", group];
    let arguments = [&arguments[..], &["--timeout-ms", "60000", "--command-property", &protocol]].concat();
    kafka.admin_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments).unwrap();
}

fn grant(kafka: &ApacheKafka, operation: &str, on: &[&str]) {
    let principal = format!("User:{}", READER.0);
    let arguments = ["--add", "--allow-principal", &principal, "--operation", operation];
    kafka.admin_tool("org.apache.kafka.tools.AclCommand", &[&arguments[..], on].concat()).unwrap();
}

/// Groups where only the tier, the local log, and nothing serves the next offset; then as somebody who gets one right after
/// the other.
pub(crate) fn groups_are_named_by_what_serves_their_next_offset_and_by_the_rights_that_it_takes(
    kafka: &ApacheKafka,
) {
    kafka.create_tiered_topic(TOPIC, 1, &[]).unwrap();
    kafka.produce(TOPIC, 16_000, 500).unwrap();
    kafka.wait_until_copied(TOPIC).unwrap();
    consume(kafka, "replay", 10, "classic");
    consume(kafka, "billing", 16_000, "consumer");
    let live = vec!["-b".to_owned(), kafka.bootstrap()];
    wait_for("the head of the log to be only in the tier", WITHIN, || {
        let here = groups(&explain("clicks:0", &live));
        Ok((here == ["replay 10 tier", "billing 16000 local"]).then_some(()))
    })
    .unwrap();
    let at = explain("clicks:0@10", &live);
    assert_eq!(groups(&at), ["replay 10 tier"]);
    assert!(at["reasons"].to_string().contains("1 consumer group stands exactly here"), "{at}");

    // The rights, one after the other. READ on the topic holds DESCRIBE.
    for topic in ["__remote_log_metadata", TOPIC] {
        grant(kafka, "Read", &["--topic", topic]);
        grant(kafka, "DescribeConfigs", &["--topic", topic]);
    }
    let credentials = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"].map(str::to_owned);
    let credentials = credentials
        .into_iter()
        .chain([format!("sasl.username={}", READER.0), format!("sasl.password={}", READER.1)])
        .flat_map(|setting| ["-X".to_owned(), setting]);
    let reader: Vec<String> = ["-b".to_owned(), kafka.sasl()].into_iter().chain(credentials).collect();
    let without = "whether there are more consumer groups: DESCRIBE on the cluster is missing, without which groups that \
                   this principal may not describe are left out";
    let seen = || {
        let item = explain("clicks:0", &reader);
        (groups(&item), not_known(&item))
    };
    assert_eq!(seen(), (Vec::new(), vec![without.to_owned()]));
    grant(kafka, "Describe", &["--group", "replay"]);
    assert_eq!(seen(), (vec!["replay 10 tier".to_owned()], vec![without.to_owned()]));
    grant(kafka, "Describe", &["--cluster"]);
    let withheld = "the offsets of consumer group billing: DESCRIBE on the group is missing";
    assert_eq!(seen(), (vec!["replay 10 tier".to_owned()], vec![withheld.to_owned()]));
    grant(kafka, "Describe", &["--group", "billing"]);
    assert_eq!(seen(), (vec!["replay 10 tier".to_owned(), "billing 16000 local".to_owned()], Vec::new()));

    kafka.delete_records(TOPIC, 0, 50).unwrap();
    wait_for("the deletion to be seen", WITHIN, || {
        let item = explain("clicks:0", &live);
        let refused = item["effect"].as_str().is_some_and(|effect| effect.contains("OFFSET_OUT_OF_RANGE"));
        Ok((refused && groups(&item)[0] == "replay 10 below-log-start").then_some(()))
    })
    .unwrap();
}

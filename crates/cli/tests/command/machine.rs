use serde_json::Value;

use crate::{Tier, events, run, run_with};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_envelope_says_what_was_read_and_when() {
    let run = run(&["segments", "orders:0", "--log-dir", "tests/data/broker1", "-o", "json"]);
    assert_eq!(run.code, 0);
    insta::assert_snapshot!(run.stdout, @r#"
    {
      "schema": "strandline.segments/v1",
      "cluster_id": "QfVKGe3uQkOyyYiLFWc-dQ",
      "as_of": {"time":"2026-11-29T19:30:00.000Z","metadata_offsets":{"1":2}},
      "items": [
        {"topic":"orders","topic_id":"5IXF0LfsSAut-R4jyG-tIw","partition":0,"segment_id":"D4Ifn6EDSYKyEYXxHYFpeg","state":"COPY_SEGMENT_FINISHED","state_id":1,"start_offset":0,"end_offset":19,"size_bytes":1001,"leader_epochs":[[0,0]],"max_time":"2026-11-29T19:19:24.433Z","first_event_time":"2026-11-29T19:19:27.370Z","last_event_time":"2026-11-29T19:19:27.433Z","age_seconds":632,"broker_id":1,"readable":true,"txn_index_empty":true,"custom_metadata":null,"events":2}
      ],
      "warnings": [],
      "not_checked": [],
      "incomplete": []
    }
    "#);
}

#[test]
fn json_lines_have_a_header_and_a_summary() {
    let run = run(&["segments", "--log-dir", "tests/data/broker1", "-o", "jsonl"]);
    let lines = lines(&run.stdout);
    assert_eq!(lines.len(), 16);
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["schema"]),
        (&"header".into(), &"strandline.segments/v1".into())
    );
    assert_eq!(lines[0]["as_of"]["time"], "2026-11-29T19:30:00.000Z");
    assert_eq!((&lines[15]["kind"], &lines[15]["count"]), (&"summary".into(), &14.into()));
}

#[test]
fn every_command_prints_one_json_document() {
    let source = ["--log-dir", "tests/data/broker1"];
    for command in
        [vec!["status"], vec!["segments"], vec!["audit"], vec!["events"], vec!["explain", "orders:0"]]
    {
        let mut args = command.clone();
        args.extend(source);
        args.extend(["-o", "json"]);
        let run = run(&args);
        let document: Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        for field in ["schema", "cluster_id", "as_of", "items", "warnings", "not_checked", "incomplete"] {
            assert!(document.get(field).is_some(), "{command:?} lacks {field}");
        }
        assert_eq!(document["schema"], format!("strandline.{}/v1", command[0]));
        assert!(document["items"].is_array());
    }
}

#[test]
fn printed_events_are_an_event_file_again() {
    let first = run(&["events", "--log-dir", "tests/data/broker1", "-o", "jsonl"]).stdout;
    let again = run_with(&["events", "--events", "-", "-o", "jsonl"], &first, &[]).stdout;
    let events = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("\"segment_id\"")).map(str::to_owned).collect()
    };
    assert_eq!(events(&first).len(), 28);
    assert_eq!(events(&first), events(&again));
    let segments = |source: &[&str], stdin: &str| {
        let mut args = vec!["segments", "-o", "jsonl"];
        args.extend(source);
        run_with(&args, stdin, &[]).stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(segments(&["--log-dir", "tests/data/broker1"], ""), segments(&["--events", "-"], &first));
}

#[test]
fn a_finding_holds_its_proof() {
    let tier = Tier::copy();
    std::fs::remove_file(tier.object("ne-v4sU_RpG8tiuqX394FQ", ".log")).unwrap();
    let run = tier.audit(&["-o", "json"]);
    assert_eq!(run.code, 1);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let missing: Vec<&Value> = document["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["code"] == "obj.missing")
        .collect();
    assert_eq!(missing.len(), 1);
    let finding = missing[0];
    assert_eq!((&finding["severity"], &finding["topic"]), (&"damage".into(), &"orders".into()));
    assert_eq!((&finding["start_offset"], &finding["end_offset"]), (&20.into(), &39.into()));
    assert_eq!(finding["segment_id"], "ne-v4sU_RpG8tiuqX394FQ");
    assert!(!finding["evidence"].as_array().unwrap().is_empty());
}

#[test]
fn a_stray_object_is_an_orphan_or_unknown() {
    let tier = Tier::copy();
    let known = tier.object("ne-v4sU_RpG8tiuqX394FQ", ".log");
    let orphan = known.with_file_name("00000000000000000900-uZ0Wkrd9RjCy4w8cr8Qh5Q.log");
    std::fs::copy(&known, orphan).unwrap();
    std::fs::write(known.with_file_name("notes.txt"), "hello").unwrap();
    let run = tier.audit(&["-o", "jsonl", "--fail-on", "cost"]);
    assert_eq!(run.code, 1);
    let codes: Vec<Value> = lines(&run.stdout).iter().map(|line| line["code"].clone()).collect();
    assert!(codes.contains(&"obj.orphan".into()), "{codes:?}");
    assert!(codes.contains(&"obj.unknown-key".into()), "{codes:?}");
    assert_eq!(tier.audit(&["--fail-on", "risk"]).code, 0, "an orphan costs, and breaks nothing");
}

#[test]
fn an_address_of_a_partition_reads_less_and_says_so() {
    let run = run(&["audit", "orders:0", "--log-dir", "tests/data/broker1", "-o", "json"]);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let offsets = document["as_of"]["metadata_offsets"].as_object().unwrap();
    assert_eq!(offsets.keys().collect::<Vec<_>>(), ["1"], "orders:0 belongs into metadata partition 1");
    let not_checked = document["not_checked"].as_array().unwrap();
    assert!(not_checked.iter().any(|rule| rule["code"] == "event.misplaced"), "{not_checked:?}");
}

#[test]
fn facts_of_an_event_file_reach_the_rules() {
    let fact = r#"{"kind":"fact","fact":"log","topic":"orders","partition":0,"log_start_offset":0,"local_start_offset":5000,"log_end_offset":9000,"leader_epochs":[[0,0]]}"#;
    let file = format!("{}{fact}\n", events());
    let run = run_with(&["audit", "--events", "-", "-o", "jsonl"], &file, &[]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    let gap = lines(&run.stdout).into_iter().find(|line| line["code"] == "part.gap-to-local").unwrap();
    assert_eq!((&gap["start_offset"], &gap["end_offset"]), (&2048.into(), &4999.into()));
}

#[test]
fn artefacts_are_decoded() {
    let tier = Tier::copy();
    let rows = |path: std::path::PathBuf| {
        let run = run(&["decode", path.to_str().unwrap(), "-o", "jsonl"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        lines(&run.stdout)
    };
    let events = rows(tier.path("broker1/__remote_log_metadata-4/00000000000000000000.log"));
    assert_eq!(events[1]["kind"], "segment_metadata");
    assert_eq!(events.len(), 2 + 26);
    let id = "ne-v4sU_RpG8tiuqX394FQ";
    assert_eq!(rows(tier.object(id, ".log"))[1]["base_offset"], 20);
    assert_eq!(rows(tier.object(id, ".timeindex"))[1]["offset"], 39);
    assert_eq!(
        rows(tier.object(id, ".snapshot"))[2]["last_offset"],
        39,
        "the second producer wrote this segment"
    );
    assert_eq!(rows(tier.object(id, ".leader_epoch_checkpoint"))[1]["epoch"], 0);
    assert_eq!(rows(tier.path("broker1/log-start-offset-checkpoint"))[1]["topic"], "orders");
    let hex = "010909";
    assert_eq!(lines(&run_with(&["decode", "-", "-o", "jsonl"], hex, &[]).stdout)[1]["kind"], "undecodable");
}

#[test]
fn events_of_a_partition_are_read_only_from_where_it_hashes_to() {
    let events = |address: &[&str]| {
        let mut args = vec!["events", "--log-dir", "tests/data/broker1", "-o", "jsonl"];
        args.extend(address);
        let run = run(&args);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
        let lines = lines(&run.stdout);
        let read =
            lines[0]["as_of"]["metadata_offsets"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let seen: Vec<String> = lines[1..lines.len() - 1]
            .iter()
            .map(|event| format!("{}:{}", event["topic"].as_str().unwrap(), event["partition"]))
            .collect();
        (read.join(","), seen.len(), seen.into_iter().collect::<std::collections::BTreeSet<_>>().len())
    };
    assert_eq!(events(&[]), ("0,1,2,3,4".to_owned(), 28, 3));
    assert_eq!(events(&["orders:0"]), ("1".to_owned(), 2, 1));
    assert_eq!(events(&["orders:0", "orders:1"]), ("1,4".to_owned(), 14, 2));
    assert_eq!(events(&["orders"]), ("0,1,2,3,4".to_owned(), 14, 2));
    // A wrong count sends the reading to the wrong place, and then everywhere.
    assert_eq!(events(&["orders:0", "--metadata-partitions", "4"]).1, 2);
}

#[test]
fn events_of_an_offset_or_a_time_are_those_of_its_segment() {
    let ids = |command: &str, address: &str| {
        let run = run(&[command, address, "--log-dir", "tests/data/broker1", "-o", "jsonl"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
        let lines = lines(&run.stdout);
        lines[1..lines.len() - 1]
            .iter()
            .map(|row| row["segment_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let id = "ne-v4sU_RpG8tiuqX394FQ";
    assert_eq!(ids("events", "orders:1@25"), [id, id]);
    assert_eq!(ids("events", "orders:1@2026-11-29T19:19:04Z"), [id, id]);
    assert_eq!(ids("events", id), [id, id]);
    assert_eq!(ids("segments", "orders:1@25"), [id]);
    assert!(ids("segments", "orders:1@5000").is_empty());

    let refused = |args: &[&str]| {
        let run = run(&[args, &["--log-dir", "tests/data/broker1"]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        run.stderr
    };
    insta::assert_snapshot!(refused(&["events", "orders:1@5000"]), @"
    error: no event names a segment that holds this offset, or a record of this time or later
    hint: `explain` says where it is
    ");
    insta::assert_snapshot!(refused(&["events", "orders:1@25", "-f"]), @"
    error: -f cannot follow an offset or a time of a partition
    hint: follow the whole partition, TOPIC:P
    ");
    insta::assert_snapshot!(refused(&["events", "orders:9@25"]), @"
    error: nothing here is called orders:9@25
    hint: orders has other partitions, not this one
    ");
}

//! Each answer of `explain`, from events and facts as data.

use serde_json::json;

use crate::{Tier, run, run_with};

/// The topic id of all events here.
const ID: &str = "vaZwr6blSEWMAbm7z-tW-w";
/// Ten minutes before the clock of these tests.
const TIME: i64 = 1_795_980_000_000;

/// The event file of a script, a line for each segment or fact of `orders:0`:
///
/// ```text
/// a 0..=99 epochs 0@0,1@50 finished       a segment: started, stuck, finished, deleting, deleted
/// log start=0 local=100 end=200 epochs=0@0 stable=150 leader=1
/// transaction producer=7 id=pay first=150 start=1795980000000 timeout=60000 state=Ongoing coordinator=2 last=1795980000000
/// group name=billing next=150 state=Stable
/// groups                                  no other group committed anything
/// files 100:1000,150:500 snapshots=150    the local segment files, base offset and size
/// bytes 1500                              what a broker tells of them
/// topic segment.bytes=1000
/// ```
fn event_file(script: &str) -> String {
    let mut lines = Vec::new();
    let mut log = json!({"kind": "fact", "fact": "log", "topic": "orders", "partition": 0});
    let mut offset = 0;
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let field = |name: &str| {
            rest.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let number = |name: &str| field(name).map(|value| value.parse::<i64>().unwrap());
        match first {
            "log" => {
                log["log_start_offset"] = json!(number("start"));
                log["local_start_offset"] = json!(number("local"));
                log["log_end_offset"] = json!(number("end"));
                log["last_stable_offset"] = json!(number("stable"));
                log["leader"] = json!(number("leader"));
                log["leader_epochs"] = json!(field("epochs").map(|text| pairs(&text, '@')));
            }
            "transaction" => {
                log["open_transaction"] = json!({
                    "producer_id": number("producer"), "transactional_id": field("id"), "first_offset": number("first"),
                    "start_ms": number("start"), "timeout_ms": number("timeout"), "state": field("state"),
                    "coordinator": number("coordinator"), "last_timestamp_ms": number("last")
                });
            }
            "group" => lines.push(json!({
                "kind": "fact", "fact": "group_offset", "group": field("name"), "topic": "orders", "partition": 0,
                "next_offset": number("next"), "state": field("state")
            })),
            "groups" => lines.push(json!({"kind": "fact", "fact": "groups", "complete": true})),
            "files" => {
                let files = pairs(rest.split(' ').next().unwrap(), ':');
                let files = files.iter().map(|[base, size]| json!({"base_offset": base, "size_bytes": size}));
                let snapshots: Option<Vec<i64>> =
                    field("snapshots").map(|text| text.split(',').filter_map(|at| at.parse().ok()).collect());
                lines.push(json!({
                    "kind": "fact", "fact": "local_segments", "topic": "orders", "partition": 0, "broker": 1,
                    "segments": files.collect::<Vec<_>>(), "producer_snapshots": snapshots
                }));
            }
            "bytes" => lines.push(json!({
                "kind": "fact", "fact": "local_segments", "topic": "orders", "partition": 0, "broker": 1,
                "size_bytes": rest.parse::<i64>().unwrap()
            })),
            "topic" => {
                let configs: serde_json::Map<_, _> = rest
                    .split(' ')
                    .map(|pair| {
                        pair.split_once('=').map(|(name, value)| (name.to_owned(), json!(value))).unwrap()
                    })
                    .collect();
                lines.push(json!({"kind": "fact", "fact": "topic", "topic": "orders", "topic_id": ID, "configs": configs}));
            }
            letter => {
                let words: Vec<&str> = rest.split(' ').collect();
                let (start, end) = words[0].split_once("..=").unwrap();
                let start: i64 = start.parse().unwrap();
                let end: i64 = end.parse().unwrap();
                let state = words[3];
                let mut push = |kind: &str, name: &str| {
                    lines.push(json!({
                        "metadata_partition": 0, "offset": offset, "kind": kind, "topic_id": ID, "topic": "orders",
                        "partition": 0, "segment_id": format!("Segment{}-------------A", letter.to_uppercase()),
                        "start_offset": start, "end_offset": end, "broker_id": 1, "max_timestamp_ms": TIME,
                        "event_timestamp_ms": if state == "stuck" { TIME - 7_200_000 } else { TIME + offset }, "segment_leader_epochs": pairs(words[2], '@'),
                        "segment_size_in_bytes": 1000, "custom_metadata": null, "state": name, "txn_index_empty": true
                    }));
                    offset += 1;
                };
                push("segment_metadata", "COPY_SEGMENT_STARTED");
                let later: &[&str] = match state {
                    "started" | "stuck" => &[],
                    "finished" => &["COPY_SEGMENT_FINISHED"],
                    "deleting" => &["COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED"],
                    "deleted" => {
                        &["COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"]
                    }
                    other => panic!("no state {other}"),
                };
                later.iter().for_each(|state| push("segment_metadata_update", state));
            }
        }
    }
    lines.push(log);
    // The events are where they belong.
    lines.push(json!({"kind": "fact", "fact": "metadata_topic", "partitions": 1}));
    let without_nulls = |mut line: serde_json::Value| {
        if line["kind"] == "fact" {
            line.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        }
        format!("{line}\n")
    };
    lines.into_iter().map(without_nulls).collect()
}

fn pairs(text: &str, separator: char) -> Vec<[i64; 2]> {
    let pair = |pair: &str| {
        let (a, b) = pair.split_once(separator).unwrap();
        [a.parse().unwrap(), b.parse().unwrap()]
    };
    text.split(',').map(pair).collect()
}

/// The answer up to its first table or finding.
fn answer(script: &str, address: &str) -> String {
    let run = run_with(&["explain", address, "--events", "-"], &event_file(script), &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    run.stdout.split("\n\n").next().unwrap().trim_end().to_owned()
}

/// Two segments with a gap between them, and a local log with a rolled segment and the active one.
const TIER: &str = "
    a 0..=99 epochs 0@0 finished
    b 200..=299 epochs 0@200 finished
    log start=20 local=250 end=450 epochs=0@0 stable=450 leader=1
    files 250:1000,300:1000,400:500 snapshots=300,400
";

#[test]
fn an_offset_has_an_answer_wherever_it_lies() {
    let at = |offset: i64| answer(TIER, &format!("orders:0@{offset}"));
    // Below the log start, in a segment, in the gap, in both, only local, in the active segment, not written yet.
    insta::assert_snapshot!([10, 50, 150, 260, 350, 420, 450].map(at).join("\n\n"), @"
    orders:0 offset 10 (topic id vaZwr6blSEWMAbm7z-tW-w)
    not readable: below the log start offset 20
      - retention or a DeleteRecords request removed it on purpose
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    orders:0 offset 50 (topic id vaZwr6blSEWMAbm7z-tW-w)
    segment SegmentA-------------A of the tier serves it, at leader epoch 0

    orders:0 offset 150 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - it lies in a gap: segment SegmentA-------------A ends at 99, segment SegmentB-------------A begins at 200
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    orders:0 offset 260 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the leader's local log serves it (local offsets begin at 250); the tier is not asked
      - the tier holds it too

    orders:0 offset 350 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the leader's local log serves it (local offsets begin at 250); the tier is not asked
      - the tier does not hold it: it is in a rolled segment that waits to be copied; `explain orders:0` says why
      - it is newer than everything in the tier, which ends at 299

    orders:0 offset 420 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the leader's local log serves it (local offsets begin at 250); the tier is not asked
      - the tier does not hold it: it is in the active segment, which is never copied
      - it is newer than everything in the tier, which ends at 299

    orders:0 offset 450 (topic id vaZwr6blSEWMAbm7z-tW-w)
    not written yet: the log ends at offset 450
    ");
}

#[test]
fn an_offset_in_a_hole_is_told_from_one_in_a_gap() {
    let script = "
        a 0..=99 epochs 0@0 finished
        b 0..=49 epochs 0@0 finished
        log start=0 local=100 end=100 epochs=0@0
    ";
    insta::assert_snapshot!(answer(script, "orders:0@70"), @"
    orders:0 offset 70 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment SegmentA-------------A holds it and is finished, yet no look-up returns it: the later, overlapping
      upload SegmentB-------------A took its place
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it
    ");
}

#[test]
fn an_offset_of_another_lineage_names_both_epochs() {
    let script = |epochs: &str| {
        format!(
            "
            a 0..=99 epochs 0@0 finished
            b 50..=99 epochs 3@50 finished
            log start=0 local=100 end=100 {epochs}"
        )
    };
    // The leader has epoch 7 there, which no segment has; epoch 3; and what it has is not known.
    let cases = ["epochs=0@0,7@50", "epochs=0@0,3@50", ""];
    insta::assert_snapshot!(cases.map(|epochs| answer(&script(epochs), "orders:0@60")).join("\n\n"), @"
    orders:0 offset 60 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment SegmentA-------------A holds it at leader epoch 0, and the leader has this offset at epoch 7:
      another lineage
      - segment SegmentB-------------A holds it at leader epoch 3, and the leader has this offset at epoch 7:
      another lineage
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    orders:0 offset 60 (topic id vaZwr6blSEWMAbm7z-tW-w)
    segment SegmentB-------------A of the tier serves it, at leader epoch 3

    orders:0 offset 60 (topic id vaZwr6blSEWMAbm7z-tW-w)
    segment SegmentB-------------A of the tier serves it, at leader epoch 3
      - the leader's epochs are not known here: of the epochs below, a broker serves the one that its own lineage
      has at this offset
    ");
}

#[test]
fn an_offset_of_a_segment_that_goes_or_has_gone_says_since_when() {
    let script =
        |state: &str| format!("a 0..=99 epochs 0@0 {state}\nlog start=0 local=100 end=150 epochs=0@0");
    let states = ["started", "deleting", "deleted"];
    insta::assert_snapshot!(states.map(|state| answer(&script(state), "orders:0@60")).join("\n\n"), @"
    orders:0 offset 60 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment SegmentA-------------A holds it, and its copy has not finished (started 10 min ago by broker 1)
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    orders:0 offset 60 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment SegmentA-------------A holds it and is being deleted (begun 9 min 59 s ago by broker 1)
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    orders:0 offset 60 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment SegmentA-------------A held it and was deleted 9 min 59 s ago by broker 1
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it
    ");
}

#[test]
fn an_offset_of_a_partition_that_was_never_copied_is_local_or_nowhere() {
    let script = "
        log start=0 local=50 end=150 leader=1
        files 50:1000,100:500
    ";
    let at = |offset: &str| answer(script, &format!("orders:0@{offset}"));
    insta::assert_snapshot!(["20", "70", "120", "200", "1h"].map(at).join("\n\n"), @"
    orders:0 offset 20
    nothing serves it: the leader's local log begins at 50, and the tier is empty
      - nothing of the partition was ever copied to the tier
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    orders:0 offset 70
    the leader's local log serves it (local offsets begin at 50)
      - nothing of the partition was ever copied to the tier
      - the tier does not hold it: it is in a rolled segment that waits to be copied; `explain orders:0` says why

    orders:0 offset 120
    the leader's local log serves it (local offsets begin at 50)
      - nothing of the partition was ever copied to the tier
      - the tier does not hold it: it is in the active segment, which is never copied

    orders:0 offset 200
    not written yet: the log ends at offset 150
      - nothing of the partition was ever copied to the tier

    orders:0 at 2026-11-29 18:30:00Z
    if there is such a record, it is in the leader's local log
      - nothing of the partition was ever copied to the tier
    ");
}

#[test]
fn what_is_not_uploaded_is_in_the_active_segment_of_a_healthy_partition() {
    let script = "
        a 0..=99 epochs 0@0 finished
        log start=0 local=100 end=120 epochs=0@0 stable=120 leader=1
        files 100:500 snapshots=100
    ";
    insta::assert_snapshot!(answer(script, "orders:0"), @"
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 99 (1 readable segment, 1000 B)
      - only in the tier: offsets 0 to 99
      - only local: offsets 100 to 119
      - not uploaded: offsets 100 to 119, in the active segment, which is never copied
    ");
    let all = script.replace("end=120", "end=100").replace("stable=120", "stable=100");
    insta::assert_snapshot!(answer(&all, "orders:0"), @"
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 99 (1 readable segment, 1000 B)
      - only in the tier: offsets 0 to 99
      - the local log holds no record (it would begin at 100)
      - nothing is left to upload: all that is written is in the tier
    ");
    // A broker tells sizes, and no files.
    let sizes = |bytes: &str| {
        let files = format!("bytes {bytes}\ntopic segment.bytes=1000 remote.storage.enable=true");
        answer(&script.replace("files 100:500 snapshots=100", &files), "orders:0")
    };
    insta::assert_snapshot!(["400", "2400"].map(sizes).join("\n\n"), @"
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 99 (1 readable segment, 1000 B)
      - only in the tier: offsets 0 to 99
      - only local: offsets 100 to 119
      - not uploaded: offsets 100 to 119, in the active segment, which is never copied, as far as sizes tell:
      about 400 B are left, and a segment is rolled at 1000 B (segment.bytes)

    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 99 (1 readable segment, 1000 B)
      - only in the tier: offsets 0 to 99
      - only local: offsets 100 to 119
      - not uploaded: offsets 100 to 119, about 2.3 KiB: more than the active segment holds (segment.bytes is 1000
      B), so rolled segments wait to be copied
      - whether a producer snapshot is missing, without which a broker copies no further, only its directories
      tell (--log-dir)
      - nothing here holds them back: the leader looks for them every remote.log.manager.task.interval.ms; if they
      stay, look for RemoteLogManager in the log of broker 1
    ");
}

#[test]
fn what_the_tier_lacks_in_its_middle_is_told() {
    let script = "
        a 0..=99 epochs 0@0 finished
        b 200..=299 epochs 0@200 finished
        log start=0 local=150 end=350 epochs=0@0 stable=350 leader=1
        bytes 2400
        topic segment.bytes=1000 remote.storage.enable=true
    ";
    insta::assert_snapshot!(answer(script, "orders:0"), @"
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - only in the tier: offsets 0 to 99
      - in the tier and local: offsets 200 to 299
      - in neither: offsets 100 to 149
      - only local: offsets 150 to 199, 300 to 349
      - not uploaded: offsets 300 to 349; how much of that is the active segment, which is never copied, is not
      known: the tier lacks offsets that the local log has, and sizes do not tell them apart (its files would:
      --log-dir)
    ");
    let all = script.replace("end=350", "end=300").replace("stable=350", "stable=300");
    insta::assert_snapshot!(answer(&all, "orders:0"), @"
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - only in the tier: offsets 0 to 99
      - in the tier and local: offsets 200 to 299
      - in neither: offsets 100 to 149
      - only local: offsets 150 to 199
      - nothing is left to upload above the tier's end; what is missing below it is not copied any more
    ");
}

#[test]
fn rolled_segments_that_wait_have_a_reason() {
    let with = |change: &str, to: &str| answer(&TIER.replace(change, to), "orders:0");
    let answers = [
        ("nothing", "", ""),
        ("no snapshot", "snapshots=300,400", "snapshots=300"),
        ("offline", "stable=450 leader=1", ""),
        (
            "a transaction",
            "stable=450 leader=1",
            "stable=330 leader=1\n transaction producer=7 id=pay-1 first=330",
        ),
        ("a producer not known", "stable=450", "stable=330"),
        ("switched off", "files", "topic remote.log.copy.disable=true remote.storage.enable=true\n files"),
        ("tiering off", "files", "topic remote.storage.enable=false\n files"),
        ("stuck", "log", "c 300..=399 epochs 0@300 stuck\n log"),
        ("under way", "log", "c 300..=399 epochs 0@300 started\n log"),
    ]
    .map(|(name, change, to)| format!("== {name}\n{}", with(change, to)));
    insta::assert_snapshot!(answers.join("\n\n"), @"
    == nothing
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied
      - nothing here holds them back: the leader looks for them every remote.log.manager.task.interval.ms; if they
      stay, look for RemoteLogManager in the log of broker 1

    == no snapshot
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - the producer snapshot at its end, 00000000000000000400.snapshot, is not there: without it a broker copies
      neither this segment nor a later one
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied

    == offline
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied
      - whether an open transaction holds them back is not known from these sources: ask the cluster (-b)

    == a transaction
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied
      - an open transaction holds the last stable offset at 330: producer 7, transactional id pay-1, since offset
      330; no segment that reaches beyond it is copied before it ends

    == a producer not known
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied
      - an open transaction holds the last stable offset at 330: who holds it is not known (the leader's list of
      producers would tell); no segment that reaches beyond it is copied before it ends

    == switched off
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - copying is switched off for the topic (remote.log.copy.disable=true)
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied

    == tiering off
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - tiered storage is switched off for the topic (remote.storage.enable=false)
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied

    == stuck
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - a copy is stuck, and later ones may wait for it: segment SegmentC-------------A, started 2 h 10 min ago by
      broker 1
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied

    == under way
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - a copy is under way: segment SegmentC-------------A, started 9 min 59 s ago by broker 1
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied
    ");
}

#[test]
fn a_partition_that_was_never_copied_says_why() {
    let script = "
        log start=0 local=0 end=150 stable=150 leader=1
        topic remote.log.copy.disable=true remote.storage.enable=true
        files 0:1000,100:500 snapshots=100
    ";
    insta::assert_snapshot!(answer(script, "orders:0"), @"
    orders:0
    nothing of it was ever copied to the tier
      - only local: offsets 0 to 149
      - copying is switched off for the topic (remote.log.copy.disable=true)
      - not uploaded: offsets 0 to 99, in 1 rolled segment (1000 B), of which 00000000000000000000.log is the next
      - not uploaded: offsets 100 to 149, in the active segment, which is never copied
    ");
}

#[test]
fn a_missing_producer_snapshot_is_seen_in_the_brokers_directory() {
    let tier = Tier::copy();
    let partition = tier.path("broker1/payments.eu-0");
    let files = |from: &str, to: &str| {
        for suffix in ["log", "index", "timeindex"] {
            std::fs::rename(
                partition.join(format!("{from}.{suffix}")),
                partition.join(format!("{to}.{suffix}")),
            )
            .ok();
        }
    };
    // A log file that reaches from 70 to 72 and a new, empty active segment behind it, without a snapshot at 73.
    let some = std::fs::read(tier.object("6JA7LhfNQ7WsZbxtrNkk7Q", ".log")).unwrap();
    files("00000000000000000070", "00000000000000000080");
    std::fs::write(partition.join("00000000000000000070.log"), rebased(&some, 70)).unwrap();
    let explained = |tier: &Tier| run(&["explain", "payments.eu:0", "--log-dir", &tier.log_dir()]).stdout;
    insta::assert_snapshot!(explained(&tier), @"
    payments.eu:0 (topic id lCn6nvT-TVKEPdubz_5ktQ)
    the tier serves offsets from 0 to 69 (7 readable segments, 3.7 KiB)
      - only in the tier: offsets 0 to 69
      - only local: offsets 70 to 79
      - not uploaded: offsets 70 to 79, in 1 rolled segment (592 B), of which 00000000000000000070.log is the next
      - the producer snapshot at its end, 00000000000000000080.snapshot, is not there: without it a broker copies
      neither this segment nor a later one
    ");
    std::fs::write(partition.join("00000000000000000080.snapshot"), "").unwrap();
    assert!(!explained(&tier).contains("producer snapshot"), "{}", explained(&tier));
}

/// The batches of a segment, moved to other offsets: the base offset is outside the checksum.
fn rebased(segment: &[u8], offset: i64) -> Vec<u8> {
    let mut bytes = segment.to_vec();
    let first = i64::from_be_bytes(bytes[..8].try_into().unwrap());
    let mut at = 0;
    while at < bytes.len() {
        let base = i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        bytes[at..at + 8].copy_from_slice(&(base - first + offset).to_be_bytes());
        at += 12 + i32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    bytes
}

/// Groups at every kind of place of [`TIER`].
const STANDING: &str = "
    group name=lost next=10 state=Empty
    group name=replay next=50 state=Stable
    group name=stuck next=150 state=Stable
    group name=nightly next=160 state=Empty
    group name=slow next=249 state=Stable
    group name=billing next=440 state=Stable
    group name=idle next=450 state=Stable
    group name=ahead next=460 state=Empty
    groups
";

fn whole(script: &str, address: &str) -> String {
    let run = run_with(&["explain", address, "--events", "-"], &event_file(script), &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    run.stdout
}

#[test]
fn groups_whose_next_offset_lies_in_a_hole_or_only_in_the_tier_are_named() {
    insta::assert_snapshot!(whole(&format!("{TIER}{STANDING}"), "orders:0"), @"
    orders:0 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the tier serves offsets from 0 to 299 without 100 to 199 (2 readable segments, 2.0 KiB)
      - the log starts at offset 20: what lies below is deleted for readers
      - only in the tier: offsets 20 to 99, 200 to 249
      - in the tier and local: offsets 250 to 299
      - in neither: offsets 100 to 199
      - only local: offsets 300 to 449
      - not uploaded: offsets 300 to 399, in 1 rolled segment (1000 B), of which 00000000000000000300.log is the
      next
      - not uploaded: offsets 400 to 449, in the active segment, which is never copied
      - nothing here holds them back: the leader looks for them every remote.log.manager.task.interval.ms; if they
      stay, look for RemoteLogManager in the log of broker 1
      - 4 consumer groups stand where nothing serves the next offset
      - 2 consumer groups stand where only the tier has the next offset
    effect: a group that stands where nothing serves gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset
    sends it

    CONSUMER GROUP  STATE   NEXT OFFSET  LAG  WHERE
    lost            Empty            10  440  below the log start: nothing serves it
    replay          Stable           50  400  only in the tier, segment SegmentA-------------A
    stuck           Stable          150  300  in a hole: nothing serves it
    nightly         Empty           160  290  in a hole: nothing serves it
    slow            Stable          249  201  only in the tier, segment SegmentB-------------A
    ahead           Empty           460    0  beyond the end of the log

    damage part.gap: Offsets missing between two segments
      offsets 100 to 199 of orders:0 are missing between two segments
        proof: the leader's local log starts at 250 (and 3 more, with -v)
      effect: Where the leader's local log does not hold them, or no longer, a consumer that reaches these offsets
      fails with OFFSET_OUT_OF_RANGE or a storage error, and resets or stops.
      next: Look for objects of these offsets in the store, and keep those; if a replica still has them locally,
      keep it from deleting them: raise local.retention.ms and local.retention.bytes of the topic.
    ");
    // Who has read everything, or reads from the local log, needs no word.
    let well = answer(&format!("{TIER} group name=billing next=440 state=Stable\n groups"), "orders:0");
    assert!(well.ends_with("1 consumer group: none needs the tier for its next offset"), "{well}");
    let nobody = answer(&format!("{TIER} groups"), "orders:0");
    assert!(nobody.ends_with("no consumer group has committed an offset"), "{nobody}");
    // Where groups were not asked about, nothing is said of them.
    assert!(!answer(TIER, "orders:0").contains("group"));
}

#[test]
fn who_stands_at_an_offset_or_in_the_same_hole_or_segment_is_named() {
    let script = format!("{TIER}{STANDING}");
    let at = |offset: i64| whole(&script, &format!("orders:0@{offset}"));
    insta::assert_snapshot!([150, 50, 440, 455].map(at).join("\n=====\n"), @"
    orders:0 offset 150 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - it lies in a gap: segment SegmentA-------------A ends at 99, segment SegmentB-------------A begins at 200
      - 1 consumer group stands exactly here
      - 1 consumer group stands in the same hole
    effect: a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes where its auto.offset.reset sends it

    CONSUMER GROUP  STATE   NEXT OFFSET  LAG  WHERE
    stuck           Stable          150  300  in a hole: nothing serves it
    nightly         Empty           160  290  in a hole: nothing serves it

    damage part.gap: Offsets missing between two segments
      offsets 100 to 199 of orders:0 are missing between two segments
        proof: the leader's local log starts at 250 (and 3 more, with -v)
      effect: Where the leader's local log does not hold them, or no longer, a consumer that reaches these offsets
      fails with OFFSET_OUT_OF_RANGE or a storage error, and resets or stops.
      next: Look for objects of these offsets in the store, and keep those; if a replica still has them locally,
      keep it from deleting them: raise local.retention.ms and local.retention.bytes of the topic.

    =====
    orders:0 offset 50 (topic id vaZwr6blSEWMAbm7z-tW-w)
    segment SegmentA-------------A of the tier serves it, at leader epoch 0
      - 1 consumer group stands exactly here

    LEADER EPOCH  IN LINEAGE  SERVED BY               OFFSETS
               0  yes         SegmentA-------------A  0-99

    CONSUMER GROUP  STATE   NEXT OFFSET  LAG  WHERE
    replay          Stable           50  400  only in the tier, segment SegmentA-------------A

    PARTITION  OFFSETS  SEGMENT                 STATE                    SIZE  NEWEST RECORD         LAST EVENT      BROKER  LEADER EPOCHS
    orders:0   0-99     SegmentA-------------A  COPY_SEGMENT_FINISHED  1000 B  2026-11-29 19:20:00Z  9 min 59 s ago       1  0@0

    =====
    orders:0 offset 440 (topic id vaZwr6blSEWMAbm7z-tW-w)
    the leader's local log serves it (local offsets begin at 250); the tier is not asked
      - the tier does not hold it: it is in the active segment, which is never copied
      - it is newer than everything in the tier, which ends at 299
      - 1 consumer group stands exactly here

    CONSUMER GROUP  STATE   NEXT OFFSET  LAG  WHERE
    billing         Stable          440   10  in the local log

    =====
    orders:0 offset 455 (topic id vaZwr6blSEWMAbm7z-tW-w)
    not written yet: the log ends at offset 450
      - 1 consumer group stands there as well

    CONSUMER GROUP  STATE  NEXT OFFSET  LAG  WHERE
    ahead           Empty          460    0  beyond the end of the log
    ");
}

#[test]
fn groups_of_a_topic_that_was_created_anew_are_not_told_of_the_old_one() {
    let script = format!("{TIER} group name=stuck next=150 state=Stable\n topic a=b");
    let file = event_file(&script);
    let lines = file.lines().map(|line| match line.contains("\"fact\":\"topic\"") {
        true => line.replace(ID, "AAAAAAAAAAAAAAAAAAAAAQ"),
        false => line.to_owned(),
    });
    let file = lines.collect::<Vec<_>>().join("\n");
    let run = run_with(&["explain", "orders:0", "--events", "-"], &file, &[]);
    assert!(run.stdout.contains("the tier serves") && !run.stdout.contains("stuck"), "{}", run.stdout);
}

#[test]
fn the_transaction_that_holds_uploads_back_is_told_with_its_coordinator_and_one_that_hangs_with_its_end() {
    let with = |transaction: &str| {
        let script = TIER.replace("stable=450", "stable=330") + transaction;
        let answer = answer(&script, "orders:0");
        let from = answer.find("- an open transaction").unwrap();
        answer[from..].to_owned()
    };
    let transactions = [
        "transaction producer=7 id=pay-1 first=330 start=1795980000000 timeout=900000 state=Ongoing coordinator=2",
        "transaction producer=7 id=pay-1 first=330 state=CompleteAbort coordinator=2 last=1795980000000",
        "transaction producer=7 first=330 last=1795980000000",
    ];
    insta::assert_snapshot!(transactions.map(with).join("\n\n"), @"
    - an open transaction holds the last stable offset at 330: producer 7, transactional id pay-1, since offset
      330, open for 10 min (since 2026-11-29 19:20:00Z), state Ongoing, aborted by its coordinator after 15 min,
      coordinator broker 2; no segment that reaches beyond it is copied before it ends

    - an open transaction holds the last stable offset at 330: producer 7, transactional id pay-1, since offset
      330, last wrote 10 min ago, state CompleteAbort, coordinator broker 2, which calls it over, so it hangs
      here: kafka-transactions abort --topic orders --partition 0 --start-offset 330 ends it; no segment that
      reaches beyond it is copied before it ends

    - an open transaction holds the last stable offset at 330: producer 7, transactional id not known, since
      offset 330, last wrote 10 min ago; no segment that reaches beyond it is copied before it ends
    ");
}

#[test]
fn machines_get_transaction_and_groups_as_fields() {
    let script = TIER.replace("stable=450", "stable=330")
        + "transaction producer=7 id=pay-1 first=330 start=1795980000000 timeout=900000 state=Ongoing coordinator=2\n"
        + "group name=stuck next=150 state=Stable\ngroup name=replay next=50";
    let run = run_with(&["explain", "orders:0", "--events", "-", "-o", "json"], &event_file(&script), &[]);
    let value: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let item = &value["items"][0];
    insta::assert_snapshot!(format!("{}\n{}", item["open_transaction"], item["groups"]), @r#"
    {"transactional_id":"pay-1","producer_id":7,"coordinator":2,"state":"Ongoing","first_offset":330,"start_time":"2026-11-29T19:20:00.000Z","timeout_ms":900000,"last_write_time":null}
    [{"group":"replay","state":null,"next_offset":50,"place":"tier","segment_id":"SegmentA-------------A","lag":400},{"group":"stuck","state":"Stable","next_offset":150,"place":"hole","segment_id":null,"lag":300}]
    "#);
}

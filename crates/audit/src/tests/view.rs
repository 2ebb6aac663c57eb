//! What screens ask a view.

use strandline_tier::RecordValue;

use super::dsl::{World, segment_id, topic_id};
use crate::*;

fn view(script: &str) -> TierView {
    World::parse(script).view().0
}

/// Each segment with its range, state, and the outcome of each event.
fn histories(view: &TierView) -> String {
    let mut text = String::new();
    for partition in view.partitions() {
        text += &format!("{}:{}\n", partition.topic(), partition.partition());
        for segment in partition.segments() {
            let state = segment.state().map_or("-", |state| state.name());
            let range = format!("{:?}..={:?}", segment.start_offset(), segment.end_offset());
            let range = range.replace("Some(", "").replace(')', "");
            let name = segment.id().0[0] as char;
            text += &format!("  {name} {range} {state}");
            for event in segment.events() {
                text += &format!(" {}:{:?}", event.offset().unwrap(), event.outcome());
            }
            text.push('\n');
        }
    }
    text
}

/// Every look-up, as ranges.
fn readable(script: &str) -> String {
    let view = view(script);
    let partition = view.partitions().next().unwrap();
    let mut text = String::new();
    for range in partition.readable().ranges() {
        let name = partition.segment_of(range).id().0[0] as char;
        text += &format!("epoch {} {}..={} {name}\n", range.epoch, range.start_offset, range.end_offset);
    }
    for epoch in partition.readable().leader_epochs() {
        text += &format!("highest of {epoch} {:?}\n", partition.readable().highest_offset(epoch).unwrap());
    }
    text
}

#[test]
fn every_event_is_kept_with_what_a_broker_makes_of_it() {
    let view = view(
        "
        copy-started b 100..=199
        copy-started a 0..=99
        copy-finished a
        copy-finished a
        copy-finished c
        copy-started a 0..=99
        delete-finished a
        delete-started a
        delete-finished a
        delete-finished a
        copy-finished a
        update b 0
        update b 9
        partition-delete marked
    ",
    );
    assert_eq!(view.event_count(), 14);
    insta::assert_snapshot!(histories(&view), @"
    orders:0
      a 0..=99 DELETE_SEGMENT_FINISHED 1:Applied 2:Applied 3:Repeated 5:AlreadyKnown 6:InvalidTransition 7:Applied 8:Applied 9:Repeated 10:InvalidTransition
      b 100..=199 COPY_SEGMENT_STARTED 0:Applied 11:Fatal 12:Refused
      c None..=None - 4:UnknownSegment
    ");
}

#[test]
fn builders_of_metadata_partitions_merge_into_what_one_would_have_built() {
    let script = |keep: &[&str]| {
        let lines = [
            ("0", "copy-started a 0..=99 custom x in 0"),
            ("0", "copy-finished a custom xy in 0"),
            ("0", "null in 0"),
            ("1", "partition payments:0"),
            ("1", "copy-started b 0..=99 in 1"),
            ("1", "copy-finished b custom z in 1"),
            ("1", "delete-started b custom z in 1"),
            ("2", "partition orders:1"),
            ("2", "copy-started c 0..=99 epochs 0:0,1:10,2:20 in 2"),
            ("2", "copy-finished c in 2 keyed transactional"),
        ];
        let mut world = "copy-started z 0..=1 at 0m in 0\n".to_owned();
        if !keep.contains(&"0") {
            world.clear();
        }
        for (part, line) in lines {
            if keep.contains(&part) {
                world += &format!("{line}\n");
            }
        }
        World::parse(&world).builder
    };
    let whole = script(&["0", "1", "2"]).finish(None);
    let orders = [["0", "1", "2"], ["2", "0", "1"], ["1", "2", "0"]];
    for (order, by_view) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        let mut merged = TierViewBuilder::new();
        for part in order {
            merged.merge(script(&[part]));
            if by_view {
                merged = TierViewBuilder::from(&merged.finish(None));
            }
        }
        let merged = merged.finish(None);
        assert_eq!(histories(&merged), histories(&whole));
        let counts = |view: &TierView| -> Vec<(Option<i32>, u64, u64, u64)> {
            let stats = view.metadata_partitions().iter();
            stats
                .map(|of| (of.metadata_partition, of.records, of.null_keys, of.transactional_records))
                .collect()
        };
        assert_eq!(counts(&merged), counts(&whole));
        let custom =
            |name| merged.segment(segment_id(name)).next().unwrap().custom_metadata().map(<[u8]>::to_vec);
        assert_eq!(
            [custom("a"), custom("b"), custom("c")],
            [Some(b"xy".to_vec()), Some(b"z".to_vec()), None]
        );
    }
}

#[test]
fn a_partition_is_found_by_name_and_counts_its_states() {
    let view = view(
        "
        copy-started a 0..=99 size 10
        copy-finished a
        copy-started b 100..=199 size 20
        delete-started b
        copy-started c 200..=299 size 40
        delete-started c
        delete-finished c
        copy-started d 300..=399 size -5
        partition orders#2:0
        copy-started e 0..=99
    ",
    );
    let ids: Vec<_> = view.partition("orders", 0).map(|of| of.topic_id()).collect();
    assert_eq!(ids, [topic_id("orders"), topic_id("orders#2")]);
    let partition = view.partition("orders", 0).next().unwrap();
    assert_eq!(
        partition.counts(),
        StateCounts {
            copy_started: 1,
            copy_finished: 1,
            delete_started: 1,
            delete_finished: 1,
            unknown: 0,
            copy_finished_bytes: 10,
            live_bytes: 30,
        }
    );
    assert!(view.partition("orders", 1).next().is_none());
}

#[test]
fn look_ups_answer_as_the_index_of_a_broker_does() {
    insta::assert_snapshot!(readable("
        copy-started a 0..=99 epochs 0:0,1:50
        copy-finished a
        copy-started b 80..=149 epochs 1:80
        copy-finished b
        copy-started c 100..=120 epochs 1:100
        copy-finished c
        copy-started d 200..=299 epochs 2:200
        copy-finished d
        delete-started d
    "), @"
    epoch 0 0..=49 a
    epoch 1 50..=79 a
    epoch 1 80..=99 b
    epoch 1 100..=120 c
    highest of 0 49
    highest of 1 149
    highest of 2 299
    ");
}

#[test]
fn a_look_up_finds_the_segment_at_its_epoch_alone() {
    let view = view(
        "
        copy-started a 0..=99 epochs 0:0,1:50
        copy-finished a
        copy-started b 50..=149 epochs 2:50
        copy-finished b
    ",
    );
    let partition = view.partitions().next().unwrap();
    let found = |epoch, offset| partition.find(epoch, offset).map(|of| of.id().0[0] as char);
    assert_eq!(
        [found(0, 49), found(0, 50), found(1, 50), found(1, 100), found(2, 149), found(3, 0)],
        [Some('a'), None, Some('a'), None, Some('b'), None]
    );
    let any: Vec<_> =
        partition.find_at_any_epoch(60).map(|(epoch, of)| (epoch, of.id().0[0] as char)).collect();
    assert_eq!(any, [(1, 'a'), (2, 'b')]);
}

#[test]
fn misplaced_events_are_kept_apart_from_what_brokers_know() {
    let view = view(
        "
        metadata-partitions 50
        copy-started a 0..=99
        copy-finished a in 49
    ",
    );
    assert_eq!(view.placement(), Placement::Judged { partitions: 50 });
    let segment = view.segment(segment_id("a")).next().unwrap();
    assert!(!segment.is_finished());
    assert_eq!(segment.events().last().unwrap().outcome(), Outcome::Misplaced);
}

#[test]
fn an_event_larger_than_any_view_shows_stays_bounded() {
    let mut builder = TierViewBuilder::new();
    builder.push(
        Position::default(),
        Flags::default(),
        &RecordValue::Undecodable {
            bytes: vec![0; 1 << 20].into(),
            error: "x".repeat(1 << 20).into(),
            unknown_api: false,
        },
    );
    let view = builder.finish(None);
    let OddValue::Undecodable { bytes, error, .. } = &view.odd_records()[0].value else { panic!() };
    assert_eq!((bytes.len(), error.len()), (256, 256));
}

#[test]
fn facts_written_as_lines_read_back_the_same() {
    let script = "
        topic orders retention.ms=1000
        topic payments absent
        topics complete
        log orders:0 start=0 local=900 end=1500 epochs=0:0,4:700 leader=1
        log orders:1 ends=0:0:100,1:0:100
        local orders:0 broker=1 size=5000 segments=900:1000:10m,1000:500
        meta partitions=5 rf=3 brokers=3 starts=0,-,5 retention.ms=-1 truncated=last
        store complete exact
        object a log size=5
        key other
    ";
    let facts = World::parse(script).facts;
    let mut read = Facts::default();
    for fact in facts.iter() {
        let line = serde_json::to_string(&fact.to_json()).unwrap();
        assert!(line.starts_with(r#"{"kind":"fact","fact":""#), "{line}");
        read.add(Fact::from_json(serde_json::from_str(&line).unwrap()).unwrap());
    }
    assert_eq!(read, facts);
}

#[test]
fn the_contracts_fact_lines_are_read() {
    let lines = [
        r#"{"kind":"fact","fact":"topic","topic":"orders","topic_id":"vaZwr6blSEWMAbm7z-tW-w","partitions":3,"configs":{"retention.ms":"604800000"}}"#,
        r#"{"kind":"fact","fact":"log","topic":"orders","partition":0,"leader":1,"leader_epoch":4,"log_start_offset":0,"local_start_offset":900,"log_end_offset":1500,"leader_epochs":[[0,0],[4,700]]}"#,
        r#"{"kind":"fact","fact":"topics","complete":true}"#,
        r#"{"kind":"fact","fact":"metadata_topic","partitions":50,"replication_factor":3,"configs":{},"log_start_offsets":[0,1],"end_offsets":[5,null]}"#,
    ];
    let mut facts = Facts::default();
    for line in lines {
        facts.add(Fact::from_json(serde_json::from_str(line).unwrap()).unwrap());
    }
    assert_eq!(facts.logs[0].leader_epochs, Some(vec![(0, 0), (4, 700)]));
    assert_eq!(facts.metadata_topic.unwrap().end_offsets, Some(vec![Some(5), None]));
}

#[test]
fn a_bad_fact_line_says_what_is_wrong() {
    let error = |line: &str| {
        let error = Fact::from_json(serde_json::from_str(line).unwrap()).unwrap_err();
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        format!("{error}{source}")
    };
    insta::assert_snapshot!(
        [
            error(r#"{"kind":"fact"}"#),
            error(r#"{"kind":"fact","fact":"weather"}"#),
            error(r#"{"kind":"fact","fact":"topic"}"#),
            error(r#"{"kind":"fact","fact":"topic","topic":"orders","topic_id":"x"}"#),
            error(r#"{"kind":"fact","fact":"log","topic":"orders","partition":0,"log_start":5}"#),
        ]
        .join("\n"),
        @r#"
    the fact has no field "fact" that names what it is about
    no fact is called "weather"; there are topic, log, topics, metadata_topic, local_segments, store, object, group_offset, groups
    the fact "topic" cannot be read: missing field `topic`
    the fact "topic" cannot be read: "x" is not a Kafka UUID: 22 characters of URL-safe base64 are expected
    the fact "log" cannot be read: unknown field `log_start`, expected one of `topic`, `partition`, `topic_id`, `leader`, `leader_epoch`, `log_start_offset`, `log_start_source`, `local_start_offset`, `log_end_offset`, `last_stable_offset`, `open_transaction`, `leader_epochs`, `epoch_ends`
    "#
    );
}

#[test]
fn candidates_that_a_second_reading_does_not_show_are_dropped() {
    let first = "
        undecodable
        copy-started a 0..=99
        copy-finished a
        copy-started b 200..=299
        copy-finished b
        copy-started c 400..=499
        copy-finished c
    ";
    let second = format!(
        "
        {first}
        copy-started d 100..=199
        copy-finished d
    "
    );
    let mut report = World::parse(first).report();
    let candidates: Vec<_> = report.candidates().map(|(finding, recheck)| (finding.code, recheck)).collect();
    assert_eq!(
        candidates,
        [("part.gap", Recheck::LogOffsetsAndNewestEvents), ("part.gap", Recheck::LogOffsetsAndNewestEvents)]
    );
    report.retain_confirmed(&World::parse(&second).report());
    let left: Vec<_> = report.findings.iter().map(super::dsl::line).collect();
    assert_eq!(
        left,
        ["damage event.undecodable", "damage part.gap orders:0 300..=399", "info meta.null-keys"]
    );
    assert!(!report.is_clean());
}

#[test]
fn a_foreign_record_shows_how_it_begins_as_text_where_it_is_text() {
    let shown = |value: &[u8]| {
        let mut builder = TierViewBuilder::new();
        builder.push(Position::default(), Flags::default(), &RecordValue::from_value(Some(value)));
        let report = audit(&builder.finish(None), &Facts::default(), &Limits::default(), 0);
        let finding =
            report.findings.into_iter().find(|finding| finding.code == "event.undecodable").unwrap();
        finding.evidence[0].what.clone()
    };
    assert_eq!(shown(br#"{"status":"UP"}"#), r#"the value is text: {"status":"UP"}"#);
    let long = b"http://example.com/a/very/long/path".as_slice();
    assert_eq!(shown(long), "the value is text: http://example.com/a/very/long/p…");
    assert_eq!(shown(b"\x1b[2Jhidden"), "value begins 1b5b324a68696464656e");
    assert_eq!(shown(&[0xff, 0]), "value begins ff00");
}

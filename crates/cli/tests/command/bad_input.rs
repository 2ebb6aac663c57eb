use crate::{Run, Tier, events, run, run_with};

/// Exit code and the first words of the error.
fn refusal(run: &Run) -> String {
    let first = run.stderr.lines().find(|line| line.starts_with("error")).unwrap_or_default();
    format!("{} {first}", run.code)
}

#[test]
fn flags_that_make_no_sense_are_exit_2() {
    let refused = [
        vec!["audit"],
        vec!["nonsense"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--events", "-"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--store", "file://tests/data/tier"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--store", "tests/data/tier", "--layout", "local"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--level", "objects"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--limit", "copy-stuck=soon"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--limit", "patience=1h"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--metadata-partitions", "0"],
        vec!["events", "--log-dir", "tests/data/broker1", "--from", "yesterday"],
        vec!["events", "--log-dir", "tests/data/broker1", "--from", "1:0", "--to", "2:0"],
        vec!["events", "--log-dir", "tests/data/broker1", "--from", "9:0"],
        vec!["events", "--events", "-", "-f"],
        vec!["audit", "--log-dir", "tests/data/broker1", "--tz", "Middle/Earth"],
        vec!["rules", "show", "seg.copy-stuk"],
    ]
    .map(|args| format!("{}\n  {}", args.join(" "), refusal(&run(&args))));
    insta::assert_snapshot!(refused.join("\n"), @r#"
    audit
      2 error: no source is named
    nonsense
      2 error: unrecognized subcommand 'nonsense'
    audit --log-dir tests/data/broker1 --events -
      2 error: --log-dir and --events exclude each other
    audit --log-dir tests/data/broker1 --store file://tests/data/tier
      2 error: --store needs --layout
    audit --log-dir tests/data/broker1 --store tests/data/tier --layout local
      2 error: "tests/data/tier" is not the URL of a store: file://DIR is expected
    audit --log-dir tests/data/broker1 --level objects
      2 error: --level objects needs a store
    audit --log-dir tests/data/broker1 --limit copy-stuck=soon
      2 error: --limit copy-stuck: "soon" is not a span such as 30m or 2h
    audit --log-dir tests/data/broker1 --limit patience=1h
      2 error: no limit is called "patience"; there are copy-stuck, delete-stuck, no-upload, overdue-slack, copy-lag, silent-broker, clock-skew
    audit --log-dir tests/data/broker1 --metadata-partitions 0
      2 error: invalid value '0' for '--metadata-partitions <N>': 0 is not in 1..=2147483647
    events --log-dir tests/data/broker1 --from yesterday
      2 error: "yesterday" is none of TIME (RFC 3339 or a span such as 2h), earliest, latest, METADATA_PARTITION:OFFSET
    events --log-dir tests/data/broker1 --from 1:0 --to 2:0
      2 error: --from names metadata partition 1 and --to names 2
    events --log-dir tests/data/broker1 --from 9:0
      2 error: there is no metadata partition 9 here
    events --events - -f
      2 error: - has an end: nothing can follow it
    audit --log-dir tests/data/broker1 --tz Middle/Earth
      2 error: --tz "Middle/Earth" is not a time zone of this system
    rules show seg.copy-stuk
      2 error: there is no rule "seg.copy-stuk"
    "#);
}

#[test]
fn an_address_that_names_nothing_is_exit_2_and_helped() {
    let mut shown = Vec::new();
    for address in [
        "ordres",
        "orders:7",
        "orders:0@x",
        "uZ0Wkrd9RjCy4w8cr8Qh5Q",
        "id:uZ0Wkrd9RjCy4w8cr8Qh5Q",
        "nope*",
        "a/b",
    ] {
        let run = run(&["explain", address, "--log-dir", "tests/data/broker1"]);
        shown.push(format!("{address}\n  {} {}", run.code, run.stderr.trim_end().replace('\n', "\n  ")));
    }
    for command in ["segments", "audit", "events", "status"] {
        let run = run(&[command, "ordres", "--log-dir", "tests/data/broker1"]);
        assert_eq!(run.code, 2, "{command}");
        assert!(run.stderr.contains("did you mean orders?"), "{command}: {}", run.stderr);
    }
    insta::assert_snapshot!(shown.join("\n"), @r#"
    ordres
      2 error: nothing here is called ordres
      hint: did you mean orders?
    orders:7
      2 error: nothing here is called orders:7
      hint: orders has other partitions, not this one
    orders:0@x
      2 error: "x" is not a TIME: RFC 3339 such as 2026-01-31T12:00:00Z, or a span back from now such as 2h
      hint: an address is TOPIC, TOPIC:P, TOPIC:P@OFFSET, TOPIC:P@TIME, a segment id of 22 characters, or an object key
    uZ0Wkrd9RjCy4w8cr8Qh5Q
      2 error: nothing here is called uZ0Wkrd9RjCy4w8cr8Qh5Q
    id:uZ0Wkrd9RjCy4w8cr8Qh5Q
      2 error: nothing here is called uZ0Wkrd9RjCy4w8cr8Qh5Q
    nope*
      2 error: nothing here is called nope*
    a/b
      2 error: "a/b" is neither an object here nor a key of a known layout
      hint: a key of LocalTieredStorage is kafka-tiered-storage/TOPIC-PARTITION-TOPICID/OFFSET-SEGMENTID.SUFFIX
    "#);
}

#[test]
fn a_bad_line_of_an_event_file_is_named() {
    let file = format!("{}{{\"kind\":\"segment_metadata\"}}\n", events());
    for command in ["audit", "events", "segments"] {
        let run = run_with(&[command, "--events", "-"], &file, &[]);
        assert_eq!(run.code, 2, "{command}");
        assert!(run.stderr.contains("stdin line 3: "), "{command}: {}", run.stderr);
    }
    let fact = r#"{"kind":"fact","fact":"log","topic":"orders","partition":"zero"}"#;
    let run = run_with(&["audit", "--events", "-"], fact, &[]);
    assert_eq!((run.code, run.stderr.contains("stdin line 1: ")), (2, true), "{}", run.stderr);
    assert_eq!(crate::run(&["audit", "--events", "/no/such/file"]).code, 2);
    assert_eq!(crate::run(&["audit", "--events", "tests/data"]).code, 2);
}

#[test]
fn an_address_may_begin_with_a_hyphen_as_one_segment_id_in_64_does() {
    let id = "-CLP1CvdQLquWmtZBkUaSg";
    let file = events().replace("uZ0Wkrd9RjCy4w8cr8Qh5Q", id);
    for command in ["explain", "segments", "audit", "events", "status"] {
        let run = run_with(&[command, id, "--events", "-", "-o", "json"], &file, &[]);
        assert!([0, 1].contains(&run.code), "{command}: {} {}", run.code, run.stderr);
        let absent = run_with(&[command, "-DLP1CvdQLquWmtZBkUaSg", "--events", "-"], &file, &[]);
        assert_eq!(absent.code, 2, "{command}: {}", absent.stderr);
        assert!(absent.stderr.contains("-DLP1CvdQLquWmtZBkUaSg"), "{command}: {}", absent.stderr);
        // Flags before, between and behind addresses are flags still.
        let behind = run_with(&[command, "--events", "-", id, "-o", "json"], &file, &[]);
        assert_eq!((behind.code, behind.stdout), (run.code, run.stdout), "{command}: {}", behind.stderr);
    }
    let run = run_with(&["segments", "orders", id, "-o", "jsonl", "--events", "-"], &file, &[]);
    assert!(run.code == 0 && run.stdout.contains(id), "{}", run.stderr);
    for wrong in ["--nonsense", "-Z"] {
        let run = run_with(&["segments", "--events", "-", wrong], &file, &[]);
        assert_eq!(run.code, 2, "{wrong}: {}", run.stderr);
    }
}

/// A file as `events -o jsonl` writes it, with this summary line.
fn file_with_summary(summary: &str) -> String {
    format!("{{\"kind\":\"header\",\"schema\":\"strandline.events/v1\"}}\n{}{summary}", events())
}

#[test]
fn an_event_file_that_says_that_it_is_not_complete_is_not_read_as_complete() {
    let said = file_with_summary(
        "{\"kind\":\"summary\",\"count\":2,\"warnings\":[\"a clock is wrong\"],\"not_checked\":[],\"incomplete\":[{\"what\":\"metadata partition 3\",\"reason\":\"no leader\"}]}\n",
    );
    let cut = file_with_summary("");
    let two = format!("{cut}{}", file_with_summary("{\"kind\":\"summary\",\"count\":2}\n"));
    let cases = [
        (said.as_str(), "warning: stdin: metadata partition 3 could not be read: no leader\n"),
        (&cut, "warning: the end of stdin could not be read: it was cut"),
        (&two, "warning: the end of stdin could not be read: it was cut"),
        ("", "warning: stdin could not be read: it holds no event"),
        ("\n\n", "warning: stdin could not be read: it holds no event"),
    ];
    for (file, told) in cases {
        for args in [
            &["status"][..],
            &["audit", "--fail-on", "never"],
            &["segments"],
            &["segments", "orders"],
            &["explain", "orders:0"],
            &["events"],
        ] {
            let run = run_with(&[args, &["--events", "-"]].concat(), file, &[]);
            assert_eq!((run.code, run.stderr.contains(told)), (6, true), "{args:?} {told} {}", run.stderr);
        }
    }
    let run = run_with(&["segments", "--events", "-"], &said, &[]);
    assert!(run.stderr.contains("warning: stdin: a clock is wrong\n"), "{}", run.stderr);
    // What is written anew from such a file says it again.
    let again = run_with(&["events", "--events", "-", "-o", "jsonl"], &said, &[]).stdout;
    assert_eq!(run_with(&["segments", "--events", "-"], &again, &[]).code, 6);
}

#[test]
fn an_event_file_that_ends_with_its_summary_or_has_no_header_is_complete() {
    let whole = file_with_summary("{\"kind\":\"summary\",\"count\":2,\"incomplete\":[]}\n");
    let empty = "{\"kind\":\"header\"}\n{\"kind\":\"summary\",\"count\":0}\n";
    for file in [whole.as_str(), &whole.repeat(2), &events(), empty] {
        for command in ["status", "segments", "events"] {
            let run = run_with(&[command, "--events", "-"], file, &[]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{command} {file}");
        }
    }
}

#[test]
fn directories_that_are_no_data_directories_are_told_apart() {
    let tier = Tier::copy();
    let of = |path: &str| run(&["audit", "--log-dir", tier.path(path).to_str().unwrap()]);
    assert_eq!(of("nowhere").code, 2);
    assert_eq!(of("tier").code, 2);
    let partition = of("broker1/orders-0");
    assert_eq!((partition.code, partition.stderr.contains("name the broker's data directory")), (2, true));
    let log_dir = tier.log_dir();
    let other_name = run(&["audit", "--log-dir", &log_dir, "--metadata-topic", "elsewhere"]);
    assert_eq!((other_name.code, other_name.stderr.contains("--metadata-topic")), (7, true));
}

#[test]
fn stores_that_cannot_be_read_are_told_apart() {
    let of = |store: &str, layout: &str| {
        run(&["audit", "--log-dir", "tests/data/broker1", "--store", store, "--layout", layout]).code
    };
    assert_eq!(of("file:///no/such/directory", "local"), 5);
    assert_eq!(of("file://tests/data/tier", "nonsense"), 7);
    assert_eq!(of("s3://bucket", "local"), 7);
    assert_eq!(of("ftp://host", "local"), 2);
}

#[test]
fn an_empty_metadata_topic_against_a_full_store_is_the_wrong_cluster() {
    let tier = Tier::copy();
    for partition in [1, 4] {
        let log = format!("broker1/__remote_log_metadata-{partition}/00000000000000000000.log");
        std::fs::write(tier.path(&log), "").unwrap();
    }
    let run = tier.audit(&[]);
    assert_eq!(run.code, 7, "{}", run.stdout);
    assert!(run.stderr.contains("wrong cluster"), "{}", run.stderr);
}

#[test]
fn a_damaged_metadata_partition_is_never_clean() {
    let tier = Tier::copy();
    let path = tier.path("broker1/__remote_log_metadata-4/00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    let log_dir = tier.log_dir();
    let run = run(&["audit", "--log-dir", &log_dir, "--fail-on", "never"]);
    assert_eq!(run.code, 6, "{}", run.stdout);
    assert!(run.stdout.contains("Incomplete: "), "{}", run.stdout);
    assert!(run.stderr.contains("warning: metadata partition 4 from offset "), "{}", run.stderr);
    let events = crate::run(&["events", "--log-dir", &log_dir, "-o", "jsonl"]);
    assert_eq!(events.code, 6);
    assert!(events.stdout.lines().last().unwrap().contains("\"incomplete\":[{"), "the summary says so");
}

#[test]
fn a_missing_metadata_partition_is_never_clean() {
    let tier = Tier::copy();
    std::fs::remove_dir_all(tier.path("broker1/__remote_log_metadata-2")).unwrap();
    let log_dir = tier.log_dir();
    let run = run(&["audit", "--log-dir", &log_dir]);
    assert_eq!(run.code, 6, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("metadata partitions 2 could not be read"), "{}", run.stderr);
}

#[test]
fn a_metadata_partition_with_an_absurd_number_costs_nothing_and_is_never_clean() {
    for number in ["2147483646", "2147483647"] {
        let tier = Tier::copy();
        std::fs::create_dir(tier.path(&format!("broker1/__remote_log_metadata-{number}"))).unwrap();
        let run = run(&["audit", "--log-dir", &tier.log_dir(), "--fail-on", "never"]);
        assert_eq!(run.code, 6, "{}{}", run.stdout, run.stderr);
        let told = run.stderr.contains("metadata partitions 5-2147483645 could not be read")
            || run.stderr.contains("metadata partitions 5-2147483646 could not be read");
        assert!(told, "{}", run.stderr);
    }
    let told = run(&["audit", "--log-dir", "tests/data/broker1", "--metadata-partitions", "2147483647"]);
    assert!(matches!(told.code, 1 | 6), "{} {}", told.code, told.stderr);
}

#[test]
fn offsets_at_the_ends_of_their_type_are_explained_without_overflow() {
    for (local, end) in [(i64::MIN, i64::MIN), (0, i64::MIN), (i64::MAX, i64::MAX), (i64::MIN, i64::MAX)] {
        let file = format!(
            "{}{{\"kind\":\"fact\",\"fact\":\"log\",\"topic\":\"orders\",\"partition\":0,\"log_start_offset\":{local},\"local_start_offset\":{local},\"log_end_offset\":{end},\"last_stable_offset\":{end}}}\n",
            events()
        );
        for address in ["orders:0", "orders:0@5"] {
            let run = run_with(&["explain", address, "--events", "-"], &file, &[]);
            assert_eq!(run.code, 0, "{address} {local} {end}: {}", run.stderr);
        }
    }
}

#[test]
fn a_segment_with_very_many_epochs_is_explained_in_one_walk() {
    let epochs: Vec<String> = (0..100_000).map(|epoch| format!("[{epoch},{epoch}]")).collect();
    let epochs = epochs.join(",");
    let events = events().replace("\"end_offset\":2047", "\"end_offset\":100000").replace("[0,0]", &epochs);
    let file = format!(
        "{events}{{\"kind\":\"fact\",\"fact\":\"log\",\"topic\":\"orders\",\"partition\":0,\"leader_epochs\":[{epochs}]}}\n"
    );
    // Ten thousand million steps would not end while anybody waits.
    let begun = std::time::Instant::now();
    let run = run_with(&["explain", "id:uZ0Wkrd9RjCy4w8cr8Qh5Q", "--events", "-", "-o", "jsonl"], &file, &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("\"leader_epoch\":99999,\"in_lineage\":true"), "the last epoch is there");
    assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn an_absurd_number_of_partitions_in_a_fact_costs_no_time() {
    let fact = r#"{"kind":"fact","fact":"topic","topic":"payments","partitions":2147483647}"#;
    let file = format!("{}{fact}\n", events());
    let of = |address: &str| run_with(&["segments", address, "--events", "-"], &file, &[]).code;
    assert_eq!((of("payments:2147483646"), of("payments:2147483647"), of("refunds:0")), (0, 2, 2));
}

#[test]
fn a_file_that_is_no_artefact_is_exit_2_and_a_cut_one_exit_6() {
    let noise = run(&["decode", "Cargo.toml"]);
    assert_eq!((noise.code, noise.stdout.as_str()), (2, ""));
    let tier = Tier::copy();
    let log = tier.object("ne-v4sU_RpG8tiuqX394FQ", ".log");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, [0xff; 64]).unwrap();
    assert_eq!(run(&["decode", log.to_str().unwrap(), "-o", "json"]).code, 2);
    let path = tier.path("broker1/__remote_log_metadata-4/00000000000000000000.log");
    let events = std::fs::read(&path).unwrap();
    std::fs::write(&path, &events[..events.len() - 1]).unwrap();
    let cut = run(&["decode", path.to_str().unwrap(), "-o", "jsonl"]);
    assert_eq!(cut.code, 6, "{}", cut.stderr);
    assert!(cut.stdout.lines().last().unwrap().contains("the last batch is cut"), "{}", cut.stdout);
    drop(bytes);
}

#[test]
fn nobody_listening_is_exit_5_and_settings_are_exit_3() {
    assert_eq!(run(&["audit", "-b", "127.0.0.1:1"]).code, 5);
    assert_eq!(run(&["audit", "-b", "127.0.0.1"]).code, 2);
    assert_eq!(run(&["audit", "-b", "127.0.0.1:1", "-F", "/no/such/file"]).code, 3);
    assert_eq!(run(&["audit", "-b", "127.0.0.1:1", "-X", "security.protocol=NONE"]).code, 3);
    assert_eq!(run(&["audit", "-b", "127.0.0.1:1", "-X", "nonsense"]).code, 2);
    let kerberos =
        ["audit", "-b", "127.0.0.1:1", "-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=GSSAPI"];
    assert_eq!(run(&kerberos).code, 7);
    let strict = ["audit", "-b", "127.0.0.1:1", "-X", "no.such.key=1", "--strict-config"];
    assert_eq!(run(&strict).code, 3);
    let environment = [("STRANDLINE_BOOTSTRAP_SERVER", "127.0.0.1:1")];
    assert_eq!(run_with(&["audit"], "", &environment).code, 5, "the environment names the cluster");
    let offline = run_with(&["status", "--log-dir", "tests/data/broker1"], "", &environment);
    assert_eq!(offline.code, 0, "a source that a flag names wins");
}

#[test]
fn foreign_names_cannot_steer_a_terminal() {
    let file = events().replace("\"topic\":\"orders\"", "\"topic\":\"or\\u001b[31mders\"");
    for command in ["segments", "events", "audit", "status"] {
        let run = run_with(&[command, "--events", "-"], &file, &[]);
        assert!(!run.stdout.contains('\u{1b}') && !run.stderr.contains('\u{1b}'), "{command}");
    }
}

#[test]
fn copies_of_a_partition_that_differ_are_warned_of() {
    let (one, two) = (Tier::copy(), Tier::copy());
    let of = || run(&["audit", "--log-dir", &one.log_dir(), "--log-dir", &two.log_dir()]);
    let same = of();
    assert_eq!((same.code, same.stderr.as_str()), (0, ""), "{}", same.stdout);
    // The last batch of the second copy is lost, as on a replica that lags: nothing differs as far as both reach.
    let path = two.path("broker1/__remote_log_metadata-4/00000000000000000000.log");
    let bytes = std::fs::read(&path).unwrap();
    let batches: Vec<usize> = batch_starts(&bytes);
    std::fs::write(&path, &bytes[..*batches.last().unwrap()]).unwrap();
    assert_eq!(of().stderr, "");
    // The first batch says something else, and its checksum agrees with that.
    let mut other = bytes.clone();
    let end = batches[1];
    other[end - 2] ^= 1;
    let checksum = crc32c::crc32c(&other[21..end]).to_be_bytes();
    other[17..21].copy_from_slice(&checksum);
    std::fs::write(&path, other).unwrap();
    let differing = of();
    assert!(differing.stderr.contains("warning: metadata partition 4: "), "{}", differing.stderr);
    assert!(differing.stderr.contains("differ"), "{}", differing.stderr);
}

/// Where each batch begins: its length stands at byte 8, and counts what follows.
fn batch_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        starts.push(at);
        at += 12 + u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    starts
}

#[test]
fn another_partition_count_than_the_brokers_are_configured_for_is_damage() {
    let count = |number| run(&["audit", "--log-dir", "tests/data/broker1", "--metadata-partitions", number]);
    assert_eq!(count("5").code, 0);
    for wrong in ["3", "50"] {
        let run = count(wrong);
        assert_eq!(run.code, 1, "{wrong}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("damage meta.partition-count"), "{wrong}: {}", run.stdout);
        assert!(!run.stdout.contains("event.misplaced:"), "{wrong}: {}", run.stdout);
    }
}

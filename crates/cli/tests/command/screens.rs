use crate::{Tier, events, run, run_with};

const DATA: [&str; 6] =
    ["--log-dir", "tests/data/broker1", "--store", "file://tests/data/tier", "--layout", "local"];

fn screen(args: &[&str]) -> String {
    let mut all = args.to_vec();
    all.extend(DATA);
    let run = run(&all);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    run.stdout
}

/// A segment, and a shorter one of the same start that came later and took its place.
fn displaced() -> String {
    let later = events()
        .replace("uZ0Wkrd9RjCy4w8cr8Qh5Q", "be4dae5a6c8e427d9822aA")
        .replace("\"end_offset\":2047", "\"end_offset\":99")
        .replace("\"offset\":0,", "\"offset\":2,")
        .replace("\"offset\":1,", "\"offset\":3,");
    format!("{}{later}", events())
}

#[test]
fn a_healthy_tier_gets_a_short_screen() {
    insta::assert_snapshot!(screen(&["status"]), @"
    Cluster QfVKGe3uQkOyyYiLFWc-dQ, from tests/data/broker1
    As of   2026-11-29 19:30:00Z
    Tier    14 readable segments in 3 partitions of 2 topics, 10.6 KiB
    Copied  last 10 min 25 s ago
    Store   70 objects, 13.2 KiB

    Clean: 1 info. Looked at 28 events about 14 segments in 3 partitions.
    Not checked: 14 rules; `audit` says why.
    ");
}

#[test]
fn segments_are_listed_by_offset() {
    insta::assert_snapshot!(screen(&["segments", "orders:1", "--epochs"]), @"
    PARTITION  OFFSETS  SEGMENT                 STATE                     SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:1   0-19     t2tqfGs6S9m9BcgsT8rZBg  COPY_SEGMENT_FINISHED   1001 B  2026-11-29 19:19:00Z  10 min 56 s ago       1  0@0
    orders:1   20-39    ne-v4sU_RpG8tiuqX394FQ  COPY_SEGMENT_FINISHED  1.0 KiB  2026-11-29 19:19:05Z  10 min 51 s ago       1  0@20
    orders:1   40-59    Ofo-dsGtS0qQ0mGtE60Ytg  COPY_SEGMENT_FINISHED   1001 B  2026-11-29 19:19:10Z  10 min 47 s ago       1  0@40
    orders:1   60-79    5CyFQ5HHR-6d2CoYdkTCwQ  COPY_SEGMENT_FINISHED   1001 B  2026-11-29 19:19:13Z  10 min 43 s ago       1  0@60
    orders:1   80-99    UE_-5HAISZCTBtHqk_k7lw  COPY_SEGMENT_FINISHED   1001 B  2026-11-29 19:19:19Z  10 min 37 s ago       1  0@80
    orders:1   100-119  RriAWh5YRMakhr4nFXJccw  COPY_SEGMENT_FINISHED   1001 B  2026-11-29 19:19:29Z  10 min 27 s ago       1  0@100
    6 segments, 5.9 KiB
    ");
    insta::assert_snapshot!(screen(&["segments", "orders", "--state", "copy-started"]), @"No segment passes the filters.");
    insta::assert_snapshot!(screen(&["segments", "pay*", "--bytes", "--tz", "Asia/Tokyo", "--since", "2026-11-29T19:19:30Z"]), @"
    PARTITION      OFFSETS  SEGMENT                 STATE                  SIZE  NEWEST RECORD              LAST EVENT       BROKER
    payments.eu:0  50-59    G7YlomI3T7e1ECbYsVJf6Q  COPY_SEGMENT_FINISHED   531  2026-11-30 04:19:27+09:00  10 min 29 s ago       1
    payments.eu:0  60-69    7v6EFMzJRaGxd3icHWCUUQ  COPY_SEGMENT_FINISHED   531  2026-11-30 04:19:30+09:00  10 min 25 s ago       1
    2 segments, 1062
    ");
}

#[test]
fn an_offset_is_explained_by_what_serves_it() {
    insta::assert_snapshot!(screen(&["explain", "orders:1@25"]), @"
    orders:1 offset 25 (topic id 5IXF0LfsSAut-R4jyG-tIw)
    segment ne-v4sU_RpG8tiuqX394FQ of the tier serves it, at leader epoch 0

    LEADER EPOCH  IN LINEAGE  SERVED BY               OFFSETS
               0  yes         ne-v4sU_RpG8tiuqX394FQ  20-39

    PARTITION  OFFSETS  SEGMENT                 STATE                     SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:1   20-39    ne-v4sU_RpG8tiuqX394FQ  COPY_SEGMENT_FINISHED  1.0 KiB  2026-11-29 19:19:05Z  10 min 51 s ago       1  0@20

    OBJECT                      SIZE  KEY
    offset-index                 0 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.index
    leader-epoch-checkpoint      8 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.leader_epoch_checkpoint
    log                      1.0 KiB  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.log
    producer-snapshot          102 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.snapshot
    time-index                  12 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.timeindex
    ");
    insta::assert_snapshot!(screen(&["explain", "orders:1@9000"]), @"
    orders:1 offset 9000 (topic id 5IXF0LfsSAut-R4jyG-tIw)
    not written yet: the log ends at offset 120
    ");
    insta::assert_snapshot!(screen(&["explain", "orders:1@2026-11-29T19:19:12Z"]), @"
    orders:1 at 2026-11-29 19:19:12Z
    segment 5CyFQ5HHR-6d2CoYdkTCwQ of the tier serves it, at leader epoch 0
      - the first record at or after 2026-11-29 19:19:12Z lies in segment 5CyFQ5HHR-6d2CoYdkTCwQ, between offsets
      60 and 79 (its newest record is of 2026-11-29 19:19:13Z)

    LEADER EPOCH  IN LINEAGE  SERVED BY               OFFSETS
               0  yes         5CyFQ5HHR-6d2CoYdkTCwQ  60-79

    PARTITION  OFFSETS  SEGMENT                 STATE                    SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:1   60-79    5CyFQ5HHR-6d2CoYdkTCwQ  COPY_SEGMENT_FINISHED  1001 B  2026-11-29 19:19:13Z  10 min 43 s ago       1  0@60

    OBJECT                     SIZE  KEY
    offset-index                0 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000060-5CyFQ5HHR-6d2CoYdkTCwQ.index
    leader-epoch-checkpoint     8 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000060-5CyFQ5HHR-6d2CoYdkTCwQ.leader_epoch_checkpoint
    log                      1001 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000060-5CyFQ5HHR-6d2CoYdkTCwQ.log
    producer-snapshot         194 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000060-5CyFQ5HHR-6d2CoYdkTCwQ.snapshot
    time-index                 12 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000060-5CyFQ5HHR-6d2CoYdkTCwQ.timeindex
    ");
}

#[test]
fn a_partition_is_explained_by_what_is_where() {
    insta::assert_snapshot!(screen(&["explain", "payments.eu:0"]), @"
    payments.eu:0 (topic id lCn6nvT-TVKEPdubz_5ktQ)
    the tier serves offsets from 0 to 69 (7 readable segments, 3.7 KiB)
      - only in the tier: offsets 0 to 69
      - the local log holds no record (it would begin at 70)
      - nothing is left to upload: all that is written is in the tier
    ");
}

#[test]
fn a_segment_and_its_object_are_explained_by_their_history() {
    insta::assert_snapshot!(screen(&["explain", "ne-v4sU_RpG8tiuqX394FQ"]), @"
    segment ne-v4sU_RpG8tiuqX394FQ of orders:1 (topic id 5IXF0LfsSAut-R4jyG-tIw)
    readable: its copy was finished 10 min 51 s ago, by broker 1

    LEADER EPOCH  IN LINEAGE  SERVED BY               OFFSETS
               0  yes         ne-v4sU_RpG8tiuqX394FQ  20-39

    PARTITION  OFFSETS  SEGMENT                 STATE                     SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:1   20-39    ne-v4sU_RpG8tiuqX394FQ  COPY_SEGMENT_FINISHED  1.0 KiB  2026-11-29 19:19:05Z  10 min 51 s ago       1  0@20

    METADATA  TIME                  SINCE PREVIOUS  EVENT                  BROKER  OUTCOME
    4:4       2026-11-29 19:19:08Z               -  COPY_SEGMENT_STARTED        1  applied
    4:5       2026-11-29 19:19:08Z           77 ms  COPY_SEGMENT_FINISHED       1  applied

    OBJECT                      SIZE  KEY
    offset-index                 0 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.index
    leader-epoch-checkpoint      8 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.leader_epoch_checkpoint
    log                      1.0 KiB  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.log
    producer-snapshot          102 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.snapshot
    time-index                  12 B  kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.timeindex
    ");
    let key = "kafka-tiered-storage/orders-1-5IXF0LfsSAut-R4jyG-tIw/00000000000000000020-ne-v4sU_RpG8tiuqX394FQ.log";
    let explained = screen(&["explain", key]);
    assert!(explained.contains("it is the log of segment ne-v4sU_RpG8tiuqX394FQ of orders:1"), "{explained}");
    assert!(explained.contains("the object is there"), "{explained}");
}

#[test]
fn events_are_shown_in_the_order_of_their_log() {
    let args = ["events", "--log-dir", "tests/data/broker1", "--from", "4:4", "--to", "4:8"];
    insta::assert_snapshot!(run(&args).stdout, @"
    METADATA      TIME                  EVENT                       SEGMENT                 OFFSETS              BROKER  PARTITION
    4:4           2026-11-29 19:19:08Z  COPY_SEGMENT_STARTED        ne-v4sU_RpG8tiuqX394FQ  20-39                1       orders:1
    4:5           2026-11-29 19:19:08Z  COPY_SEGMENT_FINISHED       ne-v4sU_RpG8tiuqX394FQ  -                    1       orders:1
    4:6           2026-11-29 19:19:10Z  COPY_SEGMENT_STARTED        6JA7LhfNQ7WsZbxtrNkk7Q  10-19                1       payments.eu:0
    4:7           2026-11-29 19:19:10Z  COPY_SEGMENT_FINISHED       6JA7LhfNQ7WsZbxtrNkk7Q  -                    1       payments.eu:0
    ");
}

#[test]
fn a_clean_audit_says_so() {
    insta::assert_snapshot!(screen(&["audit"]), @"
    info meta.null-keys: 28 of 28 records have no key
    not checked: 14 rules (-v names them): the topic's configs not known; the metadata topic's configs not known;
    the metadata topic's replication factor and the number of brokers not known; the metadata topic's replicas in
    sync not known

    Clean: 1 info. Looked at 28 events about 14 segments in 3 partitions.
    ");
}

#[test]
fn a_deleted_object_is_damage_with_its_offsets() {
    let tier = Tier::copy();
    std::fs::remove_file(tier.object("ne-v4sU_RpG8tiuqX394FQ", ".log")).unwrap();
    let run = tier.audit(&[]);
    assert_eq!(run.code, 1);
    insta::assert_snapshot!(run.stdout, @"
    damage obj.missing: The data object of a readable segment is gone
      orders:1 20-39: the data object of segment ne-v4sU_RpG8tiuqX394FQ is gone; 4 objects of it in the store, gone are log
        proof: 4:5 2026-11-29 19:19:08Z COPY_SEGMENT_FINISHED by broker 1
      effect: A consumer that reaches the segment's offsets fails.
      next: Look for an older version of the object in the store, or for a replica that still has the offsets
      locally.

    info meta.null-keys: 28 of 28 records have no key
    not checked: 14 rules (-v names them): the topic's configs not known; the metadata topic's configs not known;
    the metadata topic's replication factor and the number of brokers not known; the metadata topic's replicas in
    sync not known

    Findings: 1 damage, 1 info. Looked at 28 events about 14 segments in 3 partitions.
    ");
}

#[test]
fn what_stands_in_an_event_file_is_judged_as_well() {
    insta::assert_snapshot!(run_with(&["audit", "--events", "-"], &events(), &[]).stdout, @"
    info meta.null-keys: 2 of 2 records have no key
    not checked: 30 rules (-v names them): the metadata topic's partition count not known; the leader's epochs not
    known; the leader's log start offset not known; the leader's local start offset not known; the topic's configs
    not known; the cluster's topics and their ids not known; the store's listing not known; the metadata topic's
    log start offsets not known; the metadata topic's configs not known; the metadata topic's replication factor
    and the number of brokers not known; the metadata topic's replicas in sync not known; the metadata topic's
    files not known

    Clean: 1 info. Looked at 2 events about 1 segment in 1 partition.
    ");
}

#[test]
fn a_rule_explains_itself() {
    insta::assert_snapshot!(run(&["rules", "show", "seg.copy-stuck"]).stdout, @"
    seg.copy-stuck (risk): A copy that was started and never finished

    Meaning
      COPY_SEGMENT_STARTED older than `copy-stuck`, no later event, and no finished copy covers the segment's
      offsets. Not below the log start offset.

    Effect
      Uploads of the partition may stand still; local disk fills, since what is not copied is not deleted.

    Causes
      The broker stopped or lost leadership during the copy, or the store refuses it.

    What to do
      Look at the log of the broker that started it, at the time given. If the partition copies on, the next
      retention run removes the leftover.

    Needs
      the events alone
    ");
}

#[test]
fn the_help_names_what_there_is() {
    insta::assert_snapshot!(run(&["--help"]).stdout, @"
    Reads, judges and explains Kafka tiered storage (KIP-405). Reads only, but for commands that say
    that they write

    Usage: strandline [OPTIONS] <COMMAND>

    Commands:
      demo      A broken tier on a cluster in this process, and what there is to see of it
      status    One screen: what is tiered, what is wrong, what to do
      segments  The segments of a topic, a partition or a pattern
      events    The decoded records of the metadata topic
      explain   What serves an offset, or the exact reason why nothing does; what a segment or an object
                is
      audit     All findings
      rules     The catalogue of findings: meaning, effect, causes, what to do
      decode    Any single artefact: a log segment, an index, a checkpoint, a raw event in hex
      doctor    Connection, cluster, rights, metadata topic: a verdict for each, and what to do
      publish   Appends events of a file to the metadata topic, after checking each against the log
                (writes: Kafka)
      help      Print this message or the help of the given subcommand(s)

    Options:
      -o, --output <OUTPUT>
              Form of the output

              Possible values:
              - table: For people; on a terminal cut to its width
              - wide:  As table, with more columns, and never cut
              - json:  One JSON document
              - jsonl: JSON lines: a header, rows, a summary
              
              [default: table]

          --bytes
              Sizes to the byte instead of in IEC units

          --tz <ZONE>
              Zone of the times on screens: a name such as Europe/Berlin, or `local`; machine output is
              always UTC

          --now <TIME>
              Takes TIME (RFC 3339) for now, so that a run can be repeated

          --progress <PROGRESS>
              How long work shows itself on stderr

              Possible values:
              - auto:  A bar on a terminal, else a line every 10 seconds
              - plain: A line every 10 seconds
              - json:  A JSON line every 10 seconds
              - none:  Nothing
              
              [default: auto]

      -v, --verbose...
              Says more: all proofs of findings, notes on stderr; twice for those of the connection

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Exit codes:
        0  done, nothing at or above --fail-on
        1  findings at or above --fail-on (wins over 6)
        2  usage: a flag, an address that names nothing, an input file that cannot be read or parsed
        3  configuration
        4  authentication or rights
        5  Kafka or store unreachable
        6  incomplete: something could not be read, and nothing at or above --fail-on so far
        7  not supported (no tiered storage here, unknown layout)
      101  a defect of strandline (it panicked): please report it, with what RUST_BACKTRACE=1 shows
      129  ended by SIGHUP: the terminal was closed
      130  ended by Ctrl-C
      143  ended by SIGTERM
    ");
}

#[test]
fn colour_is_for_terminals_and_for_those_who_ask() {
    let tier = Tier::copy();
    std::fs::remove_file(tier.object("ne-v4sU_RpG8tiuqX394FQ", ".log")).unwrap();
    let (log_dir, store) = (tier.log_dir(), tier.store());
    let args = ["audit", "--log-dir", &log_dir, "--store", &store, "--layout", "local"];
    let coloured = |environment| run_with(&args, "", environment).stdout.contains("\x1b[31mdamage\x1b[0m");
    assert!(!coloured(&[]), "a pipe gets none");
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")]));
}

#[test]
fn a_segment_file_of_the_metadata_topic_is_shown_as_events() {
    let file = "tests/data/broker1/__remote_log_metadata-1/00000000000000000000.log";
    insta::assert_snapshot!(run(&["decode", file]).stdout, @"
    METADATA      TIME                  EVENT                       SEGMENT                 OFFSETS              BROKER  PARTITION
    1:0           2026-11-29 19:19:27Z  COPY_SEGMENT_STARTED        D4Ifn6EDSYKyEYXxHYFpeg  0-19                 1       orders:0
    1:1           2026-11-29 19:19:27Z  COPY_SEGMENT_FINISHED       D4Ifn6EDSYKyEYXxHYFpeg  -                    1       orders:0
    ");
    let file = "tests/data/broker1/replication-offset-checkpoint";
    insta::assert_snapshot!(run(&["decode", file]).stdout, @"
    TOPIC                  PARTITION  OFFSET
    __remote_log_metadata          0       0
    __remote_log_metadata          4      26
    orders                         0      20
    __remote_log_metadata          3       0
    orders                         1     120
    __remote_log_metadata          1       2
    __remote_log_metadata          2       0
    payments.eu                    0      70
    ");
}

#[test]
fn an_offset_that_nothing_serves_has_an_exact_reason() {
    let started = events().lines().next().unwrap().to_owned() + "\n";
    let partitions = r#"{"kind":"fact","fact":"metadata_topic","partitions":5}"#;
    let reason = |file: &str, address: &str| {
        run_with(&["explain", address, "--events", "-"], &format!("{file}{partitions}\n"), &[]).stdout
    };
    insta::assert_snapshot!(reason(&started, "orders:0@5"), @"
    orders:0 offset 5 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment uZ0Wkrd9RjCy4w8cr8Qh5Q holds it, and its copy has not finished (started 10 min 26 s ago by broker
      1)
    effect: unless the leader's local log holds it, a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes
    where its auto.offset.reset sends it

    PARTITION  OFFSETS  SEGMENT                 STATE                       SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:0   0-2047   uZ0Wkrd9RjCy4w8cr8Qh5Q  COPY_SEGMENT_STARTED  1021.8 KiB  2026-11-29 19:19:20Z  10 min 26 s ago       1  0@0
    ");
    insta::assert_snapshot!(reason(&events(), "orders:0@2048"), @"
    orders:0 offset 2048 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - it is newer than everything in the tier, which ends at 2047
    effect: unless the leader's local log holds it, a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes
    where its auto.offset.reset sends it
    ");
    let gone =
        format!("{}{}\n", events(), r#"{"kind":"fact","fact":"topic","topic":"orders","absent":true}"#);
    insta::assert_snapshot!(reason(&gone, "orders:0@5"), @"
    orders:0 offset 5 (topic id vaZwr6blSEWMAbm7z-tW-w)
    not readable: the cluster has no topic of this name any more

    LEADER EPOCH  IN LINEAGE  SERVED BY               OFFSETS
               0  not known   uZ0Wkrd9RjCy4w8cr8Qh5Q  0-2047

    PARTITION  OFFSETS  SEGMENT                 STATE                        SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:0   0-2047   uZ0Wkrd9RjCy4w8cr8Qh5Q  COPY_SEGMENT_FINISHED  1021.8 KiB  2026-11-29 19:19:20Z  10 min 26 s ago       1  0@0
    ");
    insta::assert_snapshot!(reason(&displaced(), "orders:0@500"), @"
    orders:0 offset 500 (topic id vaZwr6blSEWMAbm7z-tW-w)
    nothing in the tier serves it
      - segment uZ0Wkrd9RjCy4w8cr8Qh5Q holds it and is finished, yet no look-up returns it: the later, overlapping
      upload be4dae5a6c8e427d9822aA took its place
    effect: unless the leader's local log holds it, a consumer that asks for it gets OFFSET_OUT_OF_RANGE and goes
    where its auto.offset.reset sends it

    PARTITION  OFFSETS  SEGMENT                 STATE                        SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS
    orders:0   0-2047   uZ0Wkrd9RjCy4w8cr8Qh5Q  COPY_SEGMENT_FINISHED  1021.8 KiB  2026-11-29 19:19:20Z  10 min 26 s ago       1  0@0

    damage part.hole-in-epoch: Offsets that a segment holds and no look-up returns
      offsets 100 to 2047 of orders:0 are in segment uZ0Wkrd9RjCy4w8cr8Qh5Q and no look-up returns it
        proof: 2:1 2026-11-29 19:19:34Z COPY_SEGMENT_FINISHED by broker 1 (and 2 more, with -v)
      effect: A consumer that reaches these offsets fails, although the object store has them.
      next: The data is there: it can be read from the object. A repeated COPY_SEGMENT_FINISHED of the longer
      segment brings it back into the index.

    cost seg.shadowed: A finished copy that nothing finds
      orders:0 0-2047: no look-up and no list of an epoch returns segment uZ0Wkrd9RjCy4w8cr8Qh5Q
        proof: 2:1 2026-11-29 19:19:34Z COPY_SEGMENT_FINISHED by broker 1
      effect: Neither reads nor retention ever find it: it is paid for until the topic is deleted.
      next: Check that its offsets are served by others (`part.hole-in-epoch` says if not).
    ");
}

#[test]
fn many_findings_of_a_kind_are_one_group_with_the_first_few() {
    let stuck = |at: u8| {
        let line = events().lines().next().unwrap().to_owned() + "\n";
        line.replace("uZ0Wkrd9RjCy4w8cr8Qh5Q", &format!("Stuck---------------{}A", char::from(b'a' + at)))
            .replace(
                "\"start_offset\":0,\"end_offset\":2047",
                &format!("\"start_offset\":{at}000,\"end_offset\":{at}999"),
            )
            .replace("[[0,0]]", &format!("[[0,{at}000]]"))
            .replace("\"offset\":0,", &format!("\"offset\":{at},"))
            .replace("1795979974000", "1795970000000")
    };
    let file: String = (1..=8).map(stuck).collect();
    let run = run_with(&["audit", "--events", "-"], &file, &[]);
    assert_eq!(run.code, 1);
    insta::assert_snapshot!(run.stdout, @"
    risk seg.copy-stuck: A copy that was started and never finished (8 findings)
      orders:0 1000-1999: the copy of segment Stuck---------------bA was started 2 h 56 min ago and neither finished nor replaced
        proof: 2:1 2026-11-29 16:33:20Z COPY_SEGMENT_STARTED by broker 1
      orders:0 2000-2999: the copy of segment Stuck---------------cA was started 2 h 56 min ago and neither finished nor replaced
        proof: 2:2 2026-11-29 16:33:20Z COPY_SEGMENT_STARTED by broker 1
      orders:0 3000-3999: the copy of segment Stuck---------------dA was started 2 h 56 min ago and neither finished nor replaced
        proof: 2:3 2026-11-29 16:33:20Z COPY_SEGMENT_STARTED by broker 1
      orders:0 4000-4999: the copy of segment Stuck---------------eA was started 2 h 56 min ago and neither finished nor replaced
        proof: 2:4 2026-11-29 16:33:20Z COPY_SEGMENT_STARTED by broker 1
      orders:0 5000-5999: the copy of segment Stuck---------------fA was started 2 h 56 min ago and neither finished nor replaced
        proof: 2:5 2026-11-29 16:33:20Z COPY_SEGMENT_STARTED by broker 1
      … and 3 more: -o json has all, an address narrows them down
      effect: Uploads of the partition may stand still; local disk fills, since what is not copied is not deleted.
      next: Look at the log of the broker that started it, at the time given. If the partition copies on, the next
      retention run removes the leftover.

    info meta.null-keys: 8 of 8 records have no key
    not checked: 30 rules (-v names them): the metadata topic's partition count not known; the leader's epochs not
    known; the leader's log start offset not known; the leader's local start offset not known; the topic's configs
    not known; the cluster's topics and their ids not known; the store's listing not known; the metadata topic's
    log start offsets not known; the metadata topic's configs not known; the metadata topic's replication factor
    and the number of brokers not known; the metadata topic's replicas in sync not known; the metadata topic's
    files not known

    Findings: 8 risk, 1 info. Looked at 8 events about 8 segments in 1 partition.
    ");
    let all = run_with(&["audit", "--events", "-", "-o", "jsonl"], &file, &[]);
    assert_eq!(all.stdout.matches("\"seg.copy-stuck\"").count(), 8);
}

#[test]
fn details_of_an_audit_are_for_those_who_ask() {
    insta::assert_snapshot!(screen(&["audit", "-v"]), @"
    info meta.null-keys: The metadata topic's records have no keys
      28 of 28 records have no key
      effect: The topic cannot be compacted.
      next: Nothing. Never set cleanup.policy=compact.

    not checked: part.retention-blocked, part.retention-overdue, part.no-upload, part.copy-lag,
    part.replica-not-purging, meta.silent-broker (the topic's configs not known (orders:0, orders:1,
    payments.eu:0))
    not checked: topic.disabled-with-data (the topic's configs not known (orders, payments.eu))
    not checked: meta.retention, meta.cleanup-policy, meta.min-isr, meta.unclean-election, meta.tiered (the
    metadata topic's configs not known)
    not checked: meta.rf, meta.min-isr (the metadata topic's replication factor and the number of brokers not
    known)
    not checked: meta.under-replicated (the metadata topic's replicas in sync not known)

    Clean: 1 info. Looked at 28 events about 14 segments in 3 partitions.
    ");
}

#[test]
fn a_selection_leaves_out_the_reasons_of_others() {
    let audit = screen(&["audit", "orders:0", "-v"]);
    assert!(audit.contains("the topic's configs not known (orders:0)"), "{audit}");
    assert!(!audit.contains("orders:1") && !audit.contains("payments"), "{audit}");
}

#[test]
fn a_wide_table_has_more_columns() {
    insta::assert_snapshot!(screen(&["segments", "orders:0", "-o", "wide"]), @"
    PARTITION  OFFSETS  SEGMENT                 STATE                    SIZE  NEWEST RECORD         LAST EVENT       BROKER  LEADER EPOCHS  TOPIC ID
    orders:0   0-19     D4Ifn6EDSYKyEYXxHYFpeg  COPY_SEGMENT_FINISHED  1001 B  2026-11-29 19:19:24Z  10 min 32 s ago       1  0@0            5IXF0LfsSAut-R4jyG-tIw
    1 segment, 1001 B
    ");
}

#[test]
fn with_v_all_that_proves_a_finding_is_shown() {
    let displaced = displaced();
    for command in [&["audit"][..], &["explain", "orders:0@500"]] {
        let proofs = |more: &[&str]| {
            let arguments = [command, &["--events", "-"], more].concat();
            let screen = run_with(&arguments, &displaced, &[]).stdout;
            let proofs = screen.lines().map(str::trim).filter(|line| line.starts_with("proof: "));
            proofs.map(str::to_owned).collect::<Vec<_>>()
        };
        let (brief, whole) = (proofs(&[]), proofs(&["-v"]));
        assert!(brief.iter().any(|proof| proof.ends_with("(and 2 more, with -v)")), "{brief:?}");
        assert!(whole.len() >= brief.len() + 2, "{whole:?}");
        assert!(!whole.iter().any(|proof| proof.contains("more, with")), "{whole:?}");
    }
}

//! The metadata topic read from directories, whole and damaged.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;

use proptest::prelude::*;
use strandline_log::data_dir::DataDir;
use strandline_log::{
    METADATA_TOPIC, MetadataEventLog, MetadataEventRecord, MetadataRange, OnDiskMetadataLog, OpenDirError,
    RangeError, RangeVisit, RangeWarning,
};
use strandline_protocol::records::{BatchBuilder, BatchOptions, Compression, NewRecord};
use tempfile::TempDir;

/// A batch with one record per value.
fn batch(base_offset: i64, values: &[&str]) -> Vec<u8> {
    batch_as(BatchOptions { base_offset, ..BatchOptions::default() }, values)
}

fn batch_as(options: BatchOptions, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder
            .push(NewRecord { timestamp_ms: 1, value: Some(value.as_bytes()), ..NewRecord::default() })
            .unwrap();
    }
    let mut out = Vec::new();
    builder.finish(&mut out).unwrap();
    out
}

/// A data directory with these files; a path that starts with a number is one of that metadata partition.
fn data_dir(files: &[(&str, &[u8])]) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("meta.properties"), "version=1\nnode.id=1\ncluster.id=c\n").unwrap();
    for (name, bytes) in files {
        let path = if name.starts_with(|first: char| first.is_ascii_digit()) {
            dir.path().join(format!("{METADATA_TOPIC}-{name}"))
        } else {
            dir.path().join(name)
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

/// A segment file of partition 0.
fn segment(base_offset: i64) -> String {
    format!("0/{base_offset:020}.log")
}

fn collect() -> impl FnMut(&MetadataEventRecord<'_>) -> ControlFlow<()> + Send {
    |_| ControlFlow::Continue(())
}

/// What a visit came to, without the directory's name.
fn show<V>(dir: &TempDir, visit: &RangeVisit<V>) -> String {
    let mut shown = String::new();
    let outcome = &visit.outcome;
    let counts = (outcome.records, outcome.batches, outcome.next_offset);
    write!(shown, "{} records in {} batches, next {}", counts.0, counts.1, counts.2).unwrap();
    for warning in &outcome.warnings {
        write!(shown, "\nwarning: {warning}").unwrap();
    }
    let mut cause: Option<&dyn std::error::Error> = visit.error.as_ref().map(|error| error as _);
    while let Some(error) = cause {
        write!(shown, "\nerror: {error}").unwrap();
        cause = error.source();
    }
    shown.replace(&format!("{}/", dir.path().display()), "")
}

/// Reads partition 0.
fn read(files: &[(&str, &[u8])]) -> String {
    let dir = data_dir(files);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    show(&dir, &log.visit_partition_blocking(0, collect()))
}

/// The values of a range of partition 0, each with its offset.
fn values(log: &OnDiskMetadataLog, from: i64, to: i64) -> String {
    let mut seen = Vec::new();
    let visitor = |record: &MetadataEventRecord<'_>| {
        let value = std::str::from_utf8(record.value.unwrap()).unwrap();
        seen.push(format!("{}={value}", record.offset));
        ControlFlow::Continue(())
    };
    let visit = log.visit_range_blocking(MetadataRange { partition: 0, from, to }, visitor);
    assert!(visit.error.is_none(), "{:?}", visit.error);
    let next_offset = visit.outcome.next_offset;
    format!("{}, next {next_offset}", seen.join(" "))
}

#[test]
fn all_segment_files_are_read_in_order_and_nothing_else() {
    let dir = data_dir(&[
        (&segment(3), &batch(3, &["d"])),
        (&segment(0), &[batch(0, &["a", "b"]), batch(2, &["c"])].concat()),
        ("0/00000000000000000004.log.deleted", b"x"),
        ("0/00000000000000000004.log.cleaned", b"x"),
        ("0/00000000000000000004.log.swap", b"x"),
        ("0/00000000000000000004.index", b"x"),
        ("0/4.log", b"x"),
        ("1.0123-delete/00000000000000000000.log", b"x"),
    ]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    assert_eq!(log.partitions().collect::<Vec<_>>(), [0]);
    assert_eq!(values(&log, 0, i64::MAX), "0=a 1=b 2=c 3=d, next 4");
}

#[test]
fn a_range_is_half_open_and_may_begin_and_end_inside_a_batch_or_file() {
    let dir = data_dir(&[
        (&segment(0), &[batch(0, &["a", "b", "c"]), batch(3, &["d", "e"])].concat()),
        (&segment(5), &batch(5, &["f", "g"])),
    ]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    let shown: Vec<_> = [(1, 2), (2, 4), (4, 6), (6, 9), (7, 9), (3, 3)]
        .map(|(from, to)| format!("{from}..{to}: {}", values(&log, from, to)))
        .into();
    insta::assert_snapshot!(shown.join("\n"), @r"
    1..2: 1=b, next 2
    2..4: 2=c 3=d, next 4
    4..6: 4=e 5=f, next 6
    6..9: 6=g, next 7
    7..9: , next 7
    3..3: , next 3
    ");
}

#[test]
fn a_range_outside_the_log_is_an_error_that_names_the_log() {
    let dir = data_dir(&[
        (&segment(10), &batch(10, &["a", "b"])),
        ("log-start-offset-checkpoint", format!("0\n1\n{METADATA_TOPIC} 0 11\n").as_bytes()),
    ]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    let marks = log.marks_blocking(0).unwrap();
    assert_eq!((marks.log_start_offset, marks.high_watermark), (11, 12));
    for from in [0, 10, 13] {
        let visit = log.visit_range_blocking(MetadataRange { partition: 0, from, to: 20 }, collect());
        assert!(
            matches!(
                visit.error,
                Some(RangeError::OffsetOutOfRange { log_start_offset: 11, end_offset: 12, offset, .. })
                    if offset == from
            ),
            "{:?}",
            visit.error
        );
        assert_eq!(visit.outcome.records, 0);
    }
    let whole = log.visit_partition_blocking(0, collect());
    assert_eq!(whole.range, marks.range(), "records below the log start are not read");
    assert_eq!(whole.outcome.records, 1);
}

#[test]
fn a_last_batch_cut_at_any_byte_is_reported_and_costs_nothing_else() {
    let (first, second) = (batch(0, &["a"]), batch(1, &["b", "c"]));
    for cut in 1..second.len() {
        let dir = data_dir(&[(&segment(0), &[&first[..], &second[..cut]].concat())]);
        let log = OnDiskMetadataLog::open(dir.path()).unwrap();
        let visit = log.visit_partition_blocking(0, collect());
        let position = first.len();
        // Few bytes of a batch can all be zero, since offsets are small.
        let what = if cut <= 7 { "has no batch but" } else { "ends inside the batch at offset 1, byte" };
        let shown = show(&dir, &visit);
        assert!(
            shown.starts_with("1 records in 1 batches, next 1\nwarning: ") && shown.contains(what),
            "{shown}"
        );
        assert!(shown.contains(&position.to_string()), "{shown}");
        assert!(!shown.contains("error"), "{shown}");
        assert!(!visit.outcome.warnings[0].loses_events());
        assert_eq!(log.marks_blocking(0).unwrap().high_watermark, 1);
    }
}

#[test]
fn oddities_between_files_are_told_apart() {
    let (a, b) = (batch(0, &["a"]), batch(1, &["b"]));
    let shown = [
        (
            "cut below the last file",
            read(&[(&segment(0), &[&a[..], &b[..20]].concat()), (&segment(2), &batch(2, &["c"]))]),
        ),
        ("gap", read(&[(&segment(0), &a), (&segment(5), &batch(5, &["f"]))])),
        ("overlap", read(&[(&segment(0), &batch(0, &["a", "b"])), (&segment(1), &batch(1, &["b", "c"]))])),
        ("zeroes at the end", read(&[(&segment(0), &[&a[..], &[0; 3 << 20]].concat())])),
        (
            "zeroes below the last file",
            read(&[(&segment(0), &[&a[..], &[0; 100]].concat()), (&segment(1), &b)]),
        ),
        ("empty file", read(&[(&segment(7), &[])])),
    ]
    .map(|(name, shown)| format!("{name}: {shown}"));
    insta::assert_snapshot!(shown.join("\n"), @r"
    cut below the last file: 2 records in 2 batches, next 3
    warning: __remote_log_metadata-0/00000000000000000000.log ends inside the batch at offset 1, byte 69, although later segment files exist
    warning: __remote_log_metadata-0/00000000000000000002.log begins at offset 2, but the file before it ends at 1
    gap: 2 records in 2 batches, next 6
    warning: __remote_log_metadata-0/00000000000000000005.log begins at offset 5, but the file before it ends at 1
    overlap: 3 records in 2 batches, next 3
    warning: __remote_log_metadata-0/00000000000000000001.log begins at offset 1, although the file before it reaches to 2
    zeroes at the end: 1 records in 1 batches, next 1
    warning: __remote_log_metadata-0/00000000000000000000.log has no batch but 3145728 zero bytes from byte 69 on
    zeroes below the last file: 2 records in 2 batches, next 2
    warning: __remote_log_metadata-0/00000000000000000000.log ends inside the batch at offset 1, byte 69, although later segment files exist
    empty file: 0 records in 0 batches, next 7
    ");
}

#[test]
fn damage_ends_a_partition_with_its_place_after_what_came_before() {
    let (a, b, c) = (batch(0, &["a"]), batch(1, &["b"]), batch(2, &["c"]));
    let mut flipped = b.clone();
    flipped[65] ^= 1;
    let mut legacy = b.clone();
    legacy[16] = 1;
    let mut long = b.clone();
    long[9] = 1;
    let mut endless = b.clone();
    endless[8] = 0x7f;
    let with = |middle: &[u8]| read(&[(&segment(0), &[&a[..], middle, &c[..]].concat())]);
    let shown = [
        ("checksum", with(&flipped)),
        ("format 1", with(&legacy)),
        ("length beyond the file", with(&long)),
        ("length beyond reason", with(&endless)),
        ("zeroes in the middle", with(&[0; 100])),
        ("offsets fall", with(&a)),
        ("text", read(&[(&segment(0), b"this is a text and not a log segment")])),
        ("short text", read(&[(&segment(0), b"text")])),
        ("another file's batches", read(&[(&segment(5), &a)])),
    ]
    .map(|(name, shown)| format!("{name}: {shown}"));
    insta::assert_snapshot!(shown.join("\n"), @r"
    checksum: 1 records in 1 batches, next 1
    error: metadata partition 0, from __remote_log_metadata-0/00000000000000000000.log
    error: the batch at offset 1, byte 69, is corrupt
    error: the stored CRC-32C is 90f6646c, that of the bytes is 4db3ced4
    format 1: 1 records in 1 batches, next 1
    error: metadata partition 0, from __remote_log_metadata-0/00000000000000000000.log
    error: a message of format 1 (written before Kafka 0.11) at offset 1, byte 69, cannot be read
    length beyond the file: 1 records in 1 batches, next 1
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000000.log is damaged: the batch at byte 69 claims 65605 bytes, but another batch begins 69 bytes later
    length beyond reason: 1 records in 1 batches, next 1
    error: metadata partition 0, from __remote_log_metadata-0/00000000000000000000.log
    error: the batch at offset 1, byte 69, is corrupt
    error: the length field says 2130706501 bytes, more than the limit of 134217728
    zeroes in the middle: 1 records in 1 batches, next 1
    error: metadata partition 0, from __remote_log_metadata-0/00000000000000000000.log
    error: the batch at offset 0, byte 69, is corrupt
    error: the length field says 0 bytes, fewer than a batch header has
    offsets fall: 1 records in 1 batches, next 1
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000000.log is damaged: the batch at byte 69 has offset 0, after one that ends at 1
    text: 0 records in 0 batches, next 0
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000000.log is not a log segment: no batch at offset 0 stands at its beginning
    short text: 0 records in 0 batches, next 0
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000000.log is not a log segment: no batch at offset 0 stands at its beginning
    another file's batches: 0 records in 0 batches, next 5
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000005.log is not a log segment: it holds a batch at offset 0
    ");
}

#[test]
fn a_partition_that_cannot_be_read_does_not_keep_the_others_from_it() {
    let dir = data_dir(&[
        (&segment(0), &batch(0, &["a"])),
        ("1/00000000000000000000.log", b"\x89PNG\r\n\x1a\n, and so on, long enough for a header"),
        ("2/00000000000000000000.log", &batch(0, &["c", "d"])),
        ("3/00000000000000000000.log/is-a-directory", b""),
    ]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    for threads in [1, 2, 16] {
        let visits = log.visit_all_blocking(NonZeroUsize::new(threads).unwrap(), |_| collect());
        let shown: Vec<_> =
            visits.iter().map(|visit| format!("{}: {}", visit.range.partition, show(&dir, visit))).collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(shown.join("\n"), @r"
    0: 1 records in 1 batches, next 1
    1: 0 records in 0 batches, next 0
    error: metadata partition 1
    error: __remote_log_metadata-1/00000000000000000000.log is not a log segment: no batch at offset 0 stands at its beginning
    2: 2 records in 1 batches, next 2
    3: 0 records in 0 batches, next 0
    error: metadata partition 3
    error: __remote_log_metadata-3/00000000000000000000.log cannot be read
    error: Is a directory (os error 21)
    ");
        }
    }
    let missing = log.visit_partition_blocking(9, collect());
    assert!(matches!(missing.error, Some(RangeError::NoSuchPartition { partition: 9 })));
}

/// What `work` comes to; fails where it waits for something that never comes.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(std::time::Duration::from_secs(30)).expect("it waits for ever")
}

fn make_pipe(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let dir = data_dir(&[(&segment(0), &batch(0, &["a"]))]);
    let partition = dir.path().join(format!("{METADATA_TOPIC}-0"));
    make_pipe(&partition.join("00000000000000000001.log"));
    let shown = in_time(move || {
        let log = OnDiskMetadataLog::open(dir.path()).unwrap();
        show(&dir, &log.visit_partition_blocking(0, collect()))
    });
    insta::assert_snapshot!(shown, @r"
    1 records in 1 batches, next 1
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000001.log cannot be read
    error: it is a pipe, a socket or a device
    ");
    for name in ["meta.properties", "log-start-offset-checkpoint"] {
        let dir = data_dir(&[(&segment(0), &batch(0, &["a"]))]);
        let _ = fs::remove_file(dir.path().join(name));
        make_pipe(&dir.path().join(name));
        assert!(in_time(move || OnDiskMetadataLog::open(dir.path())).is_err(), "{name}");
    }
}

#[test]
fn a_file_larger_than_any_segment_is_not_read_through() {
    let dir = data_dir(&[(&segment(0), &batch(0, &["a"]))]);
    let path = dir.path().join(format!("{METADATA_TOPIC}-0/00000000000000000000.log"));
    // A hole: it takes no space, and would take hours to read.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    insta::assert_snapshot!(show(&dir, &log.visit_partition_blocking(0, collect())), @r"
    0 records in 0 batches, next 0
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000000.log is not a log segment: it has 4398046511104 bytes, and a segment has at most 2147483647
    ");
    assert!(log.marks_blocking(0).is_err());
}

#[test]
fn a_link_that_leads_nowhere_is_something_that_cannot_be_read() {
    let dir = data_dir(&[(&segment(0), &batch(0, &["a"]))]);
    let link = |name: &str| {
        std::os::unix::fs::symlink("not-mounted", dir.path().join(format!("{METADATA_TOPIC}-{name}")))
            .unwrap();
    };
    link("0/00000000000000000001.log");
    link("1");
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    let shown = [0, 1].map(|partition| show(&dir, &log.visit_partition_blocking(partition, collect())));
    insta::assert_snapshot!(shown.join("\n"), @r"
    0 records in 0 batches, next 0
    error: metadata partition 0
    error: __remote_log_metadata-0/00000000000000000001.log cannot be read
    error: No such file or directory (os error 2)
    0 records in 0 batches, next 0
    error: metadata partition 1
    error: __remote_log_metadata-1 cannot be read
    error: No such file or directory (os error 2)
    ");
}

#[test]
fn a_batch_larger_than_a_chunk_is_read() {
    let long = "x".repeat(5 << 20);
    let dir = data_dir(&[(&segment(0), &[batch(0, &["a"]), batch(1, &[&long]), batch(2, &["c"])].concat())]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    assert_eq!(show(&dir, &log.visit_partition_blocking(0, collect())), "3 records in 3 batches, next 3");
}

#[test]
fn compressed_control_and_transactional_batches_are_given_out_as_what_they_are() {
    let options = |base_offset| BatchOptions { base_offset, ..BatchOptions::default() };
    let dir = data_dir(&[(
        &segment(0),
        &[
            batch_as(BatchOptions { compression: Compression::Zstd, ..options(0) }, &["a", "b"]),
            batch_as(BatchOptions { transactional: true, ..options(2) }, &["c"]),
            batch_as(BatchOptions { transactional: true, control: true, ..options(3) }, &["marker"]),
        ]
        .concat(),
    )]);
    let mut seen = Vec::new();
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    log.visit_partition_blocking(0, |record: &MetadataEventRecord<'_>| {
        seen.push((record.offset, record.control, record.transactional));
        ControlFlow::Continue(())
    });
    assert_eq!(seen, [(0, false, false), (1, false, false), (2, false, true), (3, true, true)]);
}

#[test]
fn a_visitor_that_has_enough_ends_the_reading() {
    let dir = data_dir(&[(&segment(0), &[batch(0, &["a", "b"]), batch(2, &["c"])].concat())]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    let visit = log.visit_partition_blocking(0, |_: &MetadataEventRecord<'_>| ControlFlow::Break(()));
    assert!(visit.outcome.stopped && visit.error.is_none());
    assert_eq!((visit.outcome.records, visit.outcome.next_offset), (1, 1));
}

#[test]
fn of_several_copies_the_one_that_reaches_farthest_is_read() {
    let short = data_dir(&[(&segment(0), &batch(0, &["a"]))]);
    let long = data_dir(&[(&segment(0), &[batch(0, &["a"]), batch(1, &["b"])].concat())]);
    let broken =
        data_dir(&[(&segment(0), b"no log segment, but long enough for a batch header, which it is not")]);
    let open = |dirs: &[&TempDir]| {
        let dirs = dirs.iter().map(|dir| DataDir::open(dir.path()).unwrap()).collect();
        OnDiskMetadataLog::from_data_dirs(dirs, METADATA_TOPIC).unwrap()
    };
    for dirs in [[&short, &long], [&long, &short]] {
        assert_eq!(values(&open(&dirs), 0, 9), "0=a 1=b, next 2");
    }
    let visit = open(&[&broken, &long]).visit_partition_blocking(0, collect());
    let shown = show(&broken, &visit);
    assert!(shown.starts_with("2 records in 2 batches, next 2\nwarning: the copy in "), "{shown}");
    assert!(shown.contains("is not a log segment"), "{shown}");
}

#[test]
fn copies_that_differ_below_the_shorter_ones_end_are_a_warning() {
    let tail: Vec<u8> = (2..9000).flat_map(|offset| batch(offset, &["c"])).collect();
    let same = [batch(0, &["a"]), batch(1, &["b"])].concat();
    let other = [batch(0, &["a"]), batch(1, &["x"])].concat();
    let long = data_dir(&[(&segment(0), &[&same[..], &tail[..]].concat())]);
    let warnings = |copy: &TempDir| {
        let dirs = [copy, &long].map(|dir| DataDir::open(dir.path()).unwrap()).into();
        let log = OnDiskMetadataLog::from_data_dirs(dirs, METADATA_TOPIC).unwrap();
        let visit = log.visit_partition_blocking(0, collect());
        assert_eq!(visit.outcome.next_offset, 9000);
        visit.outcome.warnings
    };
    assert_eq!(warnings(&data_dir(&[(&segment(0), &same)])), []);
    assert_eq!(
        warnings(&data_dir(&[(&segment(1), &batch(1, &["b"]))])),
        [],
        "an earlier start is no difference"
    );
    for different in [other.clone(), [&other[..], &tail[..]].concat()] {
        let warnings = warnings(&data_dir(&[(&segment(0), &different)]));
        assert!(matches!(warnings[..], [RangeWarning::CopiesDiffer { offset: 1, .. }]), "{warnings:?}");
    }
}

#[test]
fn a_directory_without_the_topic_says_what_it_is_instead() {
    let other = data_dir(&[("orders-0/00000000000000000000.log", b"")]);
    let error = |path: &Path| OnDiskMetadataLog::open(path).unwrap_err().to_string();
    assert!(matches!(OnDiskMetadataLog::open(other.path()), Err(OpenDirError::NoMetadataTopic { .. })));
    let empty = TempDir::new().unwrap();
    let with_topic = data_dir(&[(&segment(0), b"")]);
    let shown = [
        error(other.path()),
        error(&other.path().join("orders-0")),
        error(empty.path()),
        error(&empty.path().join("absent")),
        error(&with_topic.path().join(format!("{METADATA_TOPIC}-0"))),
    ]
    .join("\n");
    let shown = [&other, &empty, &with_topic]
        .iter()
        .fold(shown, |shown, dir| shown.replace(&dir.path().display().to_string(), "DIR"));
    insta::assert_snapshot!(shown, @r"
    no partition of __remote_log_metadata lies in DIR: tiered storage is off here, or the topic has another name
    DIR/orders-0 is the directory of one partition: name the broker's data directory, the one above it
    DIR is not a Kafka data directory: it has neither meta.properties nor a directory named TOPIC-PARTITION with segment files
    the directory DIR/absent cannot be read
    DIR/__remote_log_metadata-0 is the directory of one partition: name the broker's data directory, the one above it
    ");
}

#[tokio::test]
async fn the_trait_reads_what_the_blocking_calls_read() {
    let dir =
        data_dir(&[(&segment(0), &batch(0, &["a"])), ("2/00000000000000000000.log", &batch(0, &["c", "d"]))]);
    let log = OnDiskMetadataLog::open(dir.path()).unwrap();
    assert_eq!(log.partition_count(), 3);
    let marks: Vec<_> = log.high_water_marks().await.into_iter().map(Result::unwrap).collect();
    let ranges = marks.iter().map(|marks| (marks.range(), collect())).collect();
    let visits = log.visit_ranges(ranges).await;
    let reached: Vec<_> =
        visits.iter().map(|visit| (visit.range.partition, visit.outcome.next_offset)).collect();
    assert_eq!(reached, [(0, 1), (2, 2)]);
    let visit = log.visit_range(marks[1].range(), collect()).await;
    assert_eq!(visit.outcome, visits[1].outcome);
    log.close().await;
}

proptest! {
    #[test]
    fn a_damaged_file_never_gives_more_than_it_held(flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4), cut in 0usize..400) {
        let mut bytes = [batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["d"])].concat();
        for (at, with) in flips {
            let at = at % bytes.len();
            bytes[at] ^= with;
        }
        bytes.truncate(cut.max(1));
        let dir = data_dir(&[(&segment(0), &bytes)]);
        let log = OnDiskMetadataLog::open(dir.path()).unwrap();
        let visit = log.visit_partition_blocking(0, collect());
        prop_assert!(visit.outcome.records <= 4);
        let _ = log.marks_blocking(0);
    }
}

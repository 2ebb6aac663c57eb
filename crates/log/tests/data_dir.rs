//! What a data directory tells beside its records.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fs;
use std::path::Path;

use strandline_log::data_dir::{DataDir, PartitionDir, SegmentFile};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord};
use tempfile::TempDir;

fn batch(base_offset: i64, timestamp_ms: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { base_offset, ..BatchOptions::default() });
    builder.push(NewRecord { timestamp_ms, value: Some(b"v"), ..NewRecord::default() }).unwrap();
    let mut out = Vec::new();
    builder.finish(&mut out).unwrap();
    out
}

fn write(dir: &Path, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// A data directory with one partition, `orders-x-0`, and these files.
fn orders(files: &[(&str, &[u8])]) -> (TempDir, Result<PartitionDir, String>) {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("orders-x-0")).unwrap();
    write(dir.path(), &[("meta.properties", b"#\nnode.id=1\ncluster.id=abc\ndirectory.id=d\nversion=1\n")]);
    write(dir.path(), files);
    let read = DataDir::open(dir.path())
        .map_err(|error| error.to_string())
        .and_then(|opened| opened.read_partition(&opened.partitions[0]).map_err(|error| error.to_string()));
    let read = read.map_err(|error| error.replace(&format!("{}/", dir.path().display()), ""));
    (dir, read)
}

#[test]
fn a_partition_tells_its_topic_id_epochs_offsets_and_files() {
    let (dir, read) = orders(&[
        ("log-start-offset-checkpoint", b"0\n2\norders-x 0 7\norders 0 1\n"),
        ("replication-offset-checkpoint", b"0\n1\norders-x 0 11\n"),
        ("recovery-point-offset-checkpoint", b"0\n1\norders-x 0 10\n"),
        ("orders-x-0/partition.metadata", b"version: 0\ntopic_id: vaZwr6blSEWMAbm7z-tW-w"),
        ("orders-x-0/leader-epoch-checkpoint", b"0\n2\n0 0\n3 8\n"),
        ("orders-x-0/00000000000000000005.log", &[batch(5, 100), batch(6, 90)].concat()),
        (
            "orders-x-0/00000000000000000007.log",
            &[batch(7, 110), batch(10, 120), batch(11, 130)[..30].to_vec()].concat(),
        ),
        ("orders-x-0/00000000000000000007.snapshot", b""),
        ("orders-x-0/00000000000000000000.log.deleted", b""),
        ("orders-x-1.0f2c-delete/00000000000000000000.log", b""),
    ]);
    let read = read.unwrap();
    assert_eq!((read.topic.as_str(), read.partition), ("orders-x", 0));
    assert_eq!(read.topic_id.unwrap().to_string(), "vaZwr6blSEWMAbm7z-tW-w");
    assert_eq!(read.leader_epochs, Some(vec![(0, 0), (3, 8)]));
    assert_eq!(read.checkpointed_log_start_offset, Some(7));
    assert_eq!(read.checkpointed_high_watermark, Some(11));
    assert_eq!(read.recovery_point_offset, Some(10));
    assert_eq!(read.producer_snapshots, [7]);
    assert_eq!(read.segments.iter().map(|segment| segment.base_offset).collect::<Vec<_>>(), [5, 7]);
    assert_eq!((read.local_start_offset(), read.log_end_offset().unwrap()), (7, 11));
    assert_eq!(read.segments[0].verify().unwrap(), (7, 0));
    assert_eq!(read.segments[1].verify().unwrap(), (11, 30));

    let opened = DataDir::open(dir.path()).unwrap();
    assert_eq!(opened.partitions.len(), 1);
    let meta = opened.meta_properties.unwrap();
    assert_eq!(
        (meta.node_id, meta.cluster_id.as_deref(), meta.directory_id.as_deref()),
        (Some(1), Some("abc"), Some("d"))
    );
}

#[test]
fn a_segment_deleted_since_it_was_listed_is_looked_for_again() {
    let whole = batch(0, 10);
    let (dir, read) = orders(&[("orders-x-0/00000000000000000000.log", &whole)]);
    let listed = read.unwrap();
    let partition = dir.path().join("orders-x-0");
    fs::remove_file(partition.join("00000000000000000000.log")).unwrap();
    fs::write(partition.join("00000000000000000001.log"), batch(1, 20)).unwrap();
    let (files, end) = listed.clone().to_its_end().unwrap().unwrap();
    assert_eq!((files.local_start_offset(), end), (1, 2));

    fs::remove_dir_all(&partition).unwrap();
    assert!(listed.to_its_end().unwrap().is_none());
}

#[test]
fn what_is_not_there_says_nothing() {
    let (_dir, read) = orders(&[]);
    let read = read.unwrap();
    assert_eq!(
        (read.topic_id, read.leader_epochs.clone(), read.checkpointed_log_start_offset),
        (None, None, None)
    );
    assert_eq!((read.local_start_offset(), read.log_end_offset().unwrap()), (0, 0));
}

#[test]
fn text_that_is_not_in_kafkas_form_is_an_error_with_its_line() {
    let cases: [(&str, &[u8]); 9] = [
        ("log-start-offset-checkpoint", b"1\n0\n"),
        ("log-start-offset-checkpoint", b"0\nmany\n"),
        ("log-start-offset-checkpoint", b"0\n2\norders 0 5\n"),
        ("log-start-offset-checkpoint", b"0\n1\norders zero 5\n"),
        ("log-start-offset-checkpoint", b"\xff\xfe"),
        ("orders-x-0/leader-epoch-checkpoint", b"0\n1\n0 0 0\n"),
        ("orders-x-0/partition.metadata", b"version: 0\ntopic_id: short"),
        ("orders-x-0/partition.metadata", b""),
        ("meta.properties", b"node.id=one\n"),
    ];
    let shown: Vec<_> = cases.iter().map(|case| orders(&[*case]).1.unwrap_err()).collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    log-start-offset-checkpoint, line 1: a checkpoint of version 0 is expected, this one says "1"
    log-start-offset-checkpoint, line 2: the number of entries is expected
    log-start-offset-checkpoint, line 2: 2 entries are announced, 1 follow
    log-start-offset-checkpoint, line 3: TOPIC PARTITION OFFSET is expected, not "orders zero 5"
    log-start-offset-checkpoint, line 1: the file is not text
    orders-x-0/leader-epoch-checkpoint, line 3: EPOCH START_OFFSET is expected, not "0 0 0"
    orders-x-0/partition.metadata, line 2: "short" is not a Kafka UUID: 22 characters of URL-safe base64 are expected
    orders-x-0/partition.metadata, line 1: no line says topic_id
    meta.properties, line 1: "one" is no node id
    "#);
}

fn max_timestamp(log: &[u8], time_index: Option<&[u8]>) -> Option<i64> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("00000000000000000000.log");
    fs::write(&path, log).unwrap();
    if let Some(entries) = time_index {
        fs::write(path.with_extension("timeindex"), entries).unwrap();
    }
    let metadata = fs::metadata(&path).unwrap();
    let (size_bytes, modified) = (metadata.len(), metadata.modified().unwrap());
    SegmentFile { base_offset: 0, path, size_bytes, modified }.max_timestamp_ms().unwrap()
}

#[test]
fn the_largest_timestamp_comes_from_the_time_index_or_from_the_batches() {
    let log = [batch(0, 500), batch(1, 300)].concat();
    let entry = |timestamp_ms: i64| [&timestamp_ms.to_be_bytes()[..], &[0, 0, 0, 1]].concat();
    let cases = [
        ("no index", max_timestamp(&log, None)),
        ("empty index", max_timestamp(&log, Some(&[]))),
        ("index", max_timestamp(&log, Some(&[entry(400), entry(501)].concat()))),
        ("index of an active segment", max_timestamp(&log, Some(&[entry(400), vec![0; 120]].concat()))),
        ("torn index", max_timestamp(&log, Some(&entry(400)[..11]))),
        ("no batches", max_timestamp(&[], None)),
    ];
    insta::assert_snapshot!(cases.map(|(name, time)| format!("{name}: {time:?}")).join("\n"), @r"
    no index: Some(500)
    empty index: Some(500)
    index: Some(501)
    index of an active segment: Some(500)
    torn index: Some(500)
    no batches: None
    ");
}

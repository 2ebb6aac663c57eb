use std::io::{BufReader, Read as _};

use strandline_tier::{EpochEntry, RawEvent, RawSegmentMetadata, RawSegmentUpdate, TopicId, Uuid};

use super::*;

fn identity() -> MetadataLogIdentity {
    let topic_id: TopicId = "nM8pU2dTQoq0XzWk1sRy5A".parse().unwrap();
    MetadataLogIdentity {
        cluster_id: Some("a cluster".into()),
        topic_id: Some(topic_id),
        partition_count: 50,
    }
}

fn user(partition: i32) -> TopicIdPartition {
    let topic_id = "vaZwr6blSEWMAbm7z-tW-w".parse().unwrap();
    TopicIdPartition { topic: "orders".into(), topic_id, partition }
}

fn id(number: u64) -> Uuid {
    let mut id = [7; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    Uuid(id)
}

/// Segments in every state that is kept, displaced and dangling ones, with and without custom metadata, in `count` turns.
fn state(id_of: &TopicIdPartition, count: u64) -> State {
    let mut state = State::empty();
    let mut offset = 0;
    let mut apply = |event: RawEvent<'_>| {
        state.apply(offset, &event);
        offset += 1;
    };
    let started = |segment: u64, start_offset: i64, end_offset: i64, epochs: &[(i32, i64)]| {
        RawEvent::SegmentMetadata(RawSegmentMetadata {
            topic_id_partition: id_of.clone(),
            segment_id: id(segment),
            start_offset,
            end_offset,
            broker_id: 3,
            max_timestamp_ms: 1_700_000_000_000,
            event_timestamp_ms: 1_700_000_000_600,
            segment_leader_epochs: epochs
                .iter()
                .map(|&(epoch, start_offset)| EpochEntry { epoch, start_offset })
                .collect(),
            segment_size_in_bytes: 4096,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: segment.is_multiple_of(2),
        })
    };
    let update = |segment: u64, state_id: i8, custom: Option<&'static [u8]>| {
        RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
            topic_id_partition: id_of.clone(),
            segment_id: id(segment),
            broker_id: 4,
            event_timestamp_ms: 1_700_000_000_900,
            custom_metadata: custom.map(Into::into),
            state_id,
        })
    };
    for turn in 0..count {
        let (first, begin) = (turn * 5, i64::try_from(turn).unwrap() * 1000);
        let epochs = [(1, begin), (2, begin + 50)];
        for segment in 0..4 {
            let start = begin + 100 * i64::try_from(segment).unwrap();
            apply(started(first + segment, start, start + 99, if segment == 0 { &epochs } else { &[] }));
            apply(started(first + segment, start, start + 99, &[(2, start)]));
        }
        apply(update(first, 1, None));
        apply(update(first + 1, 1, Some(b"where it lies")));
        apply(update(first + 2, 2, Some(b"")));
        // Over what the second one holds.
        apply(started(first + 4, begin + 50, begin + 250, &[(2, begin + 50)]));
        apply(update(first + 4, 1, None));
        // Gone, and still named by the epoch that it had first.
        apply(update(first, 2, None));
        apply(update(first, 3, None));
    }
    state
}

fn told(state: &State) -> Vec<String> {
    let index = &state.index;
    let mut told: Vec<_> = index.list_remote_log_segments().map(|segment| format!("{segment:?}")).collect();
    told.sort();
    for epoch in index.leader_epochs() {
        let mut unreferenced: Vec<_> = index.unreferenced(epoch).collect();
        unreferenced.sort_unstable();
        let referenced: Vec<_> = index.referenced(epoch).collect();
        let highest_offset = index.highest_offset_for_epoch(epoch);
        told.push(format!("{epoch} {highest_offset:?} {referenced:?} {unreferenced:?}"));
    }
    told.push(state.last_applied.to_string());
    told
}

const MARK: RecordMark = RecordMark { offset: 99, value_crc: 0x0102_0304 };

fn written(counts: &[u64]) -> Vec<u8> {
    let header = Header { identity: identity(), metadata_partition: 7 };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for (partition, &count) in (0..).zip(counts) {
        let (user, state) = (user(partition), state(&user(partition), count));
        writer.user_partition(&user, 100 + state.last_applied, &state).unwrap();
    }
    writer.finish(50, Some(MARK)).unwrap()
}

/// A further section, with these partitions in these turns.
fn section(users: &[(i32, u64)], position: i64, mark: RecordMark) -> Vec<u8> {
    let mut writer = Writer::appending(Vec::new());
    for &(partition, count) in users {
        let (user, state) = (user(partition), state(&user(partition), count));
        writer.user_partition(&user, position.max(state.last_applied + 1), &state).unwrap();
    }
    writer.finish(position, Some(mark)).unwrap()
}

/// Reads a file as a manager of `identity` does that wants partitions 0 and 2.
fn load(bytes: &[u8], identity: MetadataLogIdentity, partition: i32) -> Result<Loaded, Discarded> {
    let dir = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(dir.path().to_owned(), identity).unwrap();
    fs::write(snapshots.path(partition), bytes).unwrap();
    let mut wanted = PartitionMap::default();
    wanted.insert(user(0), ());
    wanted.insert(user(2), ());
    Ok(snapshots.load(partition, &wanted)?.expect("there is a file"))
}

#[test]
fn what_was_written_is_read_for_those_who_are_wanted() {
    // The second is passed over, the third needs several frames.
    let loaded = load(&written(&[1, 3, 2000]), identity(), 7).unwrap();
    assert_eq!(loaded.last_record, Some(MARK));
    let [first, third] = &loaded.users[..] else { panic!("two were wanted") };
    for (loaded, (partition, count)) in [first, third].into_iter().zip([(0, 1), (2, 2000)]) {
        let state = state(&user(partition), count);
        assert_eq!(loaded.id, user(partition));
        assert_eq!(loaded.next_offset, 100 + state.last_applied);
        assert_eq!(told(&loaded.state), told(&state), "partition {partition}");
    }
    assert!(load(&written(&[]), identity(), 7).unwrap().users.is_empty());
}

#[test]
fn what_was_appended_takes_the_place_of_what_was_there_and_moves_the_others_on() {
    let later = RecordMark { offset: 6000, value_crc: 7 };
    let file = [
        written(&[1, 1, 1]),
        section(&[(0, 2)], 5000, MARK),
        section(&[(1, 2)], 6000, later),
        section(&[(0, 3)], 6001, later),
    ]
    .concat();
    let loaded = load(&file, identity(), 7).unwrap();
    assert_eq!(loaded.last_record, Some(later));
    assert!(loaded.cut.is_none());
    let known: Vec<_> = loaded.users.iter().map(|user| (user.id.partition, user.next_offset)).collect();
    assert_eq!(known, [(0, 6001), (2, 6001)]);
    assert_eq!(told(&loaded.users[0].state), told(&state(&user(0), 3)));
    assert_eq!(told(&loaded.users[1].state), told(&state(&user(2), 1)));
}

#[test]
fn a_section_that_is_not_whole_is_as_if_it_were_not_there() {
    let first = written(&[1, 0, 1]);
    let before = load(&first, identity(), 7).unwrap();
    let later = section(&[(0, 2)], 5000, RecordMark { offset: 4999, value_crc: 7 });
    let same_as_before = |file: &[u8], what: &str| {
        let loaded = load(file, identity(), 7).unwrap();
        assert!(loaded.cut.is_some(), "{what}");
        assert_eq!(loaded.last_record, before.last_record, "{what}");
        for (loaded, before) in loaded.users.iter().zip(&before.users) {
            assert_eq!((&loaded.id, loaded.next_offset), (&before.id, before.next_offset), "{what}");
            assert_eq!(told(&loaded.state), told(&before.state), "{what}");
        }
        assert_eq!(loaded.users.len(), before.users.len(), "{what}");
    };
    for cut in (1..later.len()).step_by(7) {
        same_as_before(&[&first, &later[..cut]].concat(), &format!("cut at {cut}"));
    }
    for at in 0..later.len() {
        let mut damaged = later.clone();
        damaged[at] ^= 1 << (at % 8);
        same_as_before(&[&first, &damaged[..]].concat(), &format!("byte {at} flipped"));
    }
    same_as_before(&[&first, &[0; 4096][..]].concat(), "zeroes");
    // A section is whole by itself: what comes behind one that is not cannot be placed.
    same_as_before(&[&first, &later[1..], &later].concat(), "a whole one behind it");
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success(), "{}", path.display());
    };
    let dir = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(dir.path().to_owned(), identity()).unwrap();
    pipe(&snapshots.path(7));
    pipe(&snapshots.path(7).with_extension("snapshot.new"));
    let loaded = snapshots.load(7, &PartitionMap::default());
    assert!(matches!(loaded, Err(Discarded::Io(_))), "{loaded:?}");
    let dir = tempfile::tempdir().unwrap();
    pipe(&dir.path().join(".lock"));
    let opened = Snapshots::open(dir.path().to_owned(), identity());
    assert!(matches!(opened, Err(StartError::SnapshotDir { .. })), "{opened:?}");
}

#[test]
fn a_snapshot_of_format_version_1_is_read() {
    // Written by the first program that had the format; later ones must go on to read it.
    let loaded = load(include_bytes!("fixtures/version-1.snapshot"), identity(), 7).unwrap();
    let [first] = &loaded.users[..] else { panic!("one was wanted and is there") };
    assert_eq!(first.id, user(0));
    assert_eq!(told(&first.state), told(&state(&user(0), 2)));
    assert_eq!(loaded.last_record, Some(MARK));
    let longer = [include_bytes!("fixtures/version-1.snapshot"), &b"\0"[..]].concat();
    assert!(load(&longer, identity(), 7).is_err());
}

#[test]
fn no_flipped_bit_and_no_cut_goes_unnoticed() {
    let bytes = written(&[2]);
    for at in 0..bytes.len() {
        assert!(load_in_memory(&bytes[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(load_in_memory(&damaged).is_err(), "bit {bit} of byte {at}");
        }
    }
}

/// As [`Snapshots::load`], without a file.
fn load_in_memory(bytes: &[u8]) -> Result<(), Discarded> {
    let (mut reader, _) = Reader::new(bytes)?;
    loop {
        match reader.next()? {
            Next::UserPartition { id, .. } => drop(reader.user_partition(&id)?),
            Next::End { .. } => return Ok(()),
        }
    }
}

#[test]
fn a_length_that_the_file_has_no_bytes_for_takes_no_memory() {
    let mut bytes = written(&[])[..10].to_vec();
    bytes.extend((60_u32 << 20).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([1; 100]);
    assert!(matches!(load_in_memory(&bytes), Err(Discarded::Cut)));
    for frame_bytes in [0, u32::MAX] {
        let mut bytes = written(&[])[..10].to_vec();
        bytes.extend(frame_bytes.to_be_bytes());
        bytes.extend([0; 4]);
        // A file without an end.
        let endless = BufReader::new(bytes.chain(std::io::repeat(0)));
        assert!(matches!(Reader::new(endless).map(|_| ()), Err(Discarded::Malformed { .. })));
    }
}

#[test]
fn frames_that_are_whole_and_say_what_cannot_be_are_refused() {
    let bytes = written(&[1]);
    let frames = frames(&bytes);
    let kinds: Vec<u8> = frames.iter().map(|frame| frame[0]).collect();
    assert_eq!(kinds, [1, 2, 3, 4, 4, 5, 6]);
    let without = |left_out: usize| -> Vec<Vec<u8>> {
        let keep = |&(at, _): &(usize, &Vec<u8>)| at != left_out;
        frames.iter().enumerate().filter(keep).map(|(_, frame)| frame.clone()).collect()
    };
    for left_out in 0..frames.len() {
        assert!(load_in_memory(&joined(&without(left_out))).is_err(), "without frame {left_out}");
    }
    for swapped in 1..frames.len() {
        let mut frames = frames.clone();
        frames.swap(swapped - 1, swapped);
        let result = load(&joined(&frames), identity(), 7);
        // The two epochs may come in any order, and the first reads from nothing.
        assert_eq!(result.is_ok(), [3, 4].contains(&swapped), "frames {swapped} and the one before it");
    }
    for twice in 0..frames.len() {
        let mut frames = frames.clone();
        frames.insert(twice, frames[twice].clone());
        let result = load(&joined(&frames), identity(), 7);
        // The second end is a section without its user partitions.
        assert_eq!(result.is_ok_and(|loaded| loaded.cut.is_some()), twice == 6, "frame {twice} twice");
    }
    // A whole frame of any content is an error or not, and never a panic.
    for (at, frame) in frames.iter().enumerate() {
        for byte in 0..frame.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut frames = frames.clone();
                frames[at][byte] = value;
                let _either = load_in_memory(&joined(&frames));
            }
            let mut frames = frames.clone();
            frames[at].truncate(byte.max(1));
            let _either = load_in_memory(&joined(&frames));
        }
    }
}

/// The payloads of a file's frames.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut frames, mut left) = (Vec::new(), &bytes[10..]);
    while !left.is_empty() {
        let length = u32::from_be_bytes(left[..4].try_into().unwrap()) as usize;
        frames.push(left[8..8 + length].to_vec());
        left = &left[8 + length..];
    }
    frames
}

fn joined(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = written(&[])[..10].to_vec();
    for frame in frames {
        bytes.extend(u32::try_from(frame.len()).unwrap().to_be_bytes());
        bytes.extend(crc32c::crc32c(frame).to_be_bytes());
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn what_is_of_another_log_or_of_no_log_is_told() {
    let bytes = written(&[1]);
    let reason =
        |bytes: &[u8], identity, partition| load(bytes, identity, partition).unwrap_err().to_string();
    let elsewhere = MetadataLogIdentity { cluster_id: None, ..identity() };
    assert_eq!(
        reason(&bytes, elsewhere, 7),
        "the snapshot is of topic nM8pU2dTQoq0XzWk1sRy5A of 50 partitions in cluster a cluster, \
         and the log is topic nM8pU2dTQoq0XzWk1sRy5A of 50 partitions in cluster without an id"
    );
    assert_eq!(reason(&bytes, identity(), 8), "the snapshot is of metadata partition 7 instead of 8");
    assert_eq!(reason(b"a text of some length", identity(), 7), "the file is no snapshot");
    assert_eq!(reason(b"short", identity(), 7), "the file ends too early");
    let mut later = bytes.clone();
    later[9] = 3;
    assert_eq!(
        reason(&later, identity(), 7),
        "the file has format version 3, which this program does not know"
    );
}

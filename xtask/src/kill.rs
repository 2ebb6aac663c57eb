//! `cargo xtask kill`: a manager that writes snapshots all the time is killed at random moments, again and again. After
//! each start its answers must be those of the log, and no snapshot may have become unusable.
//!
//! The log lies in the memory of the process that is killed, so it is made from a seed: event `i` is a function of seed
//! and `i`, and the killed process says beforehand up to which event it goes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use strandline_log::{InProcessMetadataEventLog, InProcessMetadataTopic, InProcessRecord};
use strandline_rlmm::{
    RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, SnapshotConfig,
    TopicBasedRemoteLogMetadataManager, TopicIdPartition,
};
use strandline_tier::{
    EpochEntry, MetadataPartitioner, RawEvent, RawSegmentMetadata, RawSegmentUpdate, RecordValue,
    RemoteLogSegmentIndex, RemotePartitionMetadataStore, Uuid, codec,
};

use crate::fuzz::random_seed;

const METADATA_PARTITIONS: i32 = 3;
const USER_PARTITIONS: u64 = 8;
/// Events that are written between two lines of the killed process.
const EVENTS_PER_LINE: u64 = 20;
/// With so many events a new log begins, so that starts stay short.
const EVENTS_MAX: u64 = 20_000;
/// The longest life of a process.
const LIFE_MAX: Duration = Duration::from_millis(600);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long processes are started and killed
    #[arg(long, value_name = "N", default_value_t = 120)]
    seconds: u64,
    /// The seed of the first log [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
}

/// The process that is killed; not for a person to start.
#[derive(clap::Args)]
pub(crate) struct Victim {
    dir: PathBuf,
    seed: u64,
    events: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let first_seed = options.seed.unwrap_or_else(random_seed);
    println!("first seed {first_seed}");
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let (mut seed, mut kills, mut checks, mut with_snapshot) = (u64::from(first_seed), 0_u64, 0_u64, 0_u64);
    while Instant::now() < until {
        let dir = tempfile::tempdir()?;
        let mut events = 0;
        while events < EVENTS_MAX && Instant::now() < until {
            let life = LIFE_MAX.mul_f64(mix(seed, kills) as f64 / u64::MAX as f64);
            let told = kill_one(dir.path(), seed, events, life)
                .with_context(|| format!("seed {seed}, {events} events, killed after {life:?}"))?;
            events = told.events;
            kills += 1;
            checks += u64::from(told.checked);
            with_snapshot += u64::from(told.with_snapshot);
        }
        seed += 1;
    }
    println!(
        "{kills} kills, {checks} starts checked, {with_snapshot} of them from snapshots: no wrong answer"
    );
    ensure!(with_snapshot * 10 >= kills, "too few starts lived long enough to say anything");
    Ok(())
}

struct Told {
    events: u64,
    checked: bool,
    with_snapshot: bool,
}

fn kill_one(dir: &Path, seed: u64, events: u64, life: Duration) -> Result<Told> {
    let mut victim = Command::new(std::env::current_exe()?)
        .arg("kill-victim")
        .arg(dir)
        .args([seed.to_string(), events.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process")?;
    let lines = BufReader::new(victim.stdout.take().context("it has an output")?);
    std::thread::sleep(life);
    // SIGKILL: nothing of it is told to the process.
    victim.kill()?;
    let mut told = Told { events, checked: false, with_snapshot: false };
    for line in lines.lines() {
        // The last line can be cut.
        match line?.split_once(' ') {
            Some(("events", number)) if number.ends_with('.') => {
                told.events = number.trim_end_matches('.').parse()?;
            }
            Some(("checked", snapshots)) => {
                told.checked = true;
                told.with_snapshot = snapshots != "0";
            }
            _ => {}
        }
    }
    ended_by_the_kill(&mut victim)?;
    Ok(told)
}

fn ended_by_the_kill(victim: &mut Child) -> Result<()> {
    let status = victim.wait()?;
    match status.code() {
        // Ended by a signal, it has none.
        None => Ok(()),
        Some(code) => bail!("the process ended by itself with code {code}"),
    }
}

/// The life of a process that is killed: start, check, then write until the end comes.
pub(crate) fn live(victim: &Victim) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(life(victim))
}

async fn life(&Victim { ref dir, seed, events }: &Victim) -> Result<()> {
    let topic = InProcessMetadataTopic::with_partitions(METADATA_PARTITIONS);
    (0..events).try_for_each(|number| append(&topic, seed, number))?;
    let files = std::fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let snapshots = files.filter(|name| name.as_encoded_bytes().ends_with(b".snapshot")).count();
    let config = RemoteLogMetadataManagerConfig {
        snapshots: Some(SnapshotConfig {
            records: const { NonZeroU64::new(10).expect("not zero") },
            check_interval: Duration::from_millis(1),
            ..SnapshotConfig::new(dir)
        }),
        ..RemoteLogMetadataManagerConfig::default()
    };
    let manager = TopicBasedRemoteLogMetadataManager::start(topic.open(), config)?;
    let users: Vec<_> = (0..USER_PARTITIONS).map(user).collect();
    manager.on_partition_leadership_changes(&users, &[])?;
    for user in &users {
        manager.wait_until_ready(user, tokio::time::Instant::now() + Duration::from_secs(60)).await?;
    }
    check(&manager, &users, seed, events)?;
    say(&format!("checked {snapshots}"))?;
    for begin in (events..).step_by(EVENTS_PER_LINE as usize) {
        say(&format!("events {}.", begin + EVENTS_PER_LINE))?;
        (begin..begin + EVENTS_PER_LINE).try_for_each(|number| append(&topic, seed, number))?;
        if mix(seed, begin).is_multiple_of(50) {
            // One leaves and comes back: the next snapshots are with it, without it, and with it again.
            let user = user(begin % USER_PARTITIONS);
            manager.on_stop_partitions(std::slice::from_ref(&user));
            tokio::task::yield_now().await;
            manager.on_partition_leadership_changes(&[user], &[])?;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Holds every answer against the events themselves.
fn check(
    manager: &TopicBasedRemoteLogMetadataManager<InProcessMetadataEventLog>,
    users: &[TopicIdPartition],
    seed: u64,
    events: u64,
) -> Result<()> {
    for status in manager.status() {
        if let Some(reason) = status.snapshot_discarded {
            bail!("the snapshot of metadata partition {} was not used: {reason}", status.partition);
        }
    }
    let mut store = RemotePartitionMetadataStore::new();
    users.iter().for_each(|user| store.load(user));
    for number in 0..events {
        // What Kafka refuses or drops changes nothing there either.
        let _outcome = store.apply(&event(seed, number));
    }
    for user in users {
        ensure!(store.mark_initialised(user), "{user:?} was loaded");
        let expected = told(store.index(user)?);
        let found = manager.with_index(user, told)?;
        ensure!(found == expected, "{user:?}: the manager says\n{found}\nand the log\n{expected}");
    }
    Ok(())
}

/// Everything that an index knows, in words.
fn told(index: &RemoteLogSegmentIndex) -> String {
    let mut lines: Vec<_> = index.list_remote_log_segments().map(|segment| format!("{segment:?}")).collect();
    lines.sort_unstable();
    for epoch in index.leader_epochs() {
        let mut unreferenced: Vec<_> = index.unreferenced(epoch).collect();
        unreferenced.sort_unstable();
        let referenced: Vec<_> = index.referenced(epoch).collect();
        let highest_offset = index.highest_offset_for_epoch(epoch);
        lines.push(format!("epoch {epoch}: {highest_offset:?} {referenced:?} {unreferenced:?}"));
    }
    lines.join("\n")
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn append(topic: &InProcessMetadataTopic, seed: u64, number: u64) -> Result<()> {
    let event = event(seed, number);
    let user = event.topic_id_partition().context("every event has a partition")?;
    let partitioner = MetadataPartitioner::new(METADATA_PARTITIONS).context("there are some")?;
    let partition = partitioner.metadata_partition(user.topic_id, user.partition);
    let mut value = Vec::new();
    codec::encode(&event, &mut value)?;
    ensure!(matches!(RecordValue::from_value(Some(&value)), RecordValue::Event(_)), "an event is one");
    topic.append(partition, InProcessRecord { value: Some(value.into()), ..InProcessRecord::default() });
    Ok(())
}

/// Event `number` of the log with this seed: every third announces a segment, the others change one of the last ones.
fn event(seed: u64, number: u64) -> RawEvent<'static> {
    let random = mix(seed, number);
    let segment = if random.is_multiple_of(3) { number } else { number.saturating_sub(random / 3 % 90) };
    let topic_id_partition = user(mix(seed, !segment) % USER_PARTITIONS);
    let segment_id = Uuid((u128::from(segment) << 64 | u128::from(seed)).to_be_bytes());
    let event_timestamp_ms = i64::try_from(number).unwrap_or(i64::MAX);
    if random.is_multiple_of(3) {
        // They begin where others have ended, mostly, and some lie over others.
        let start_offset = event_timestamp_ms / 8 * 100 + i64::try_from(random / 7 % 120).unwrap_or(0);
        let end_offset = start_offset + 99;
        let epochs = [(random / 11 % 3, start_offset), (3, start_offset + 50)];
        let entry =
            |(epoch, start_offset)| EpochEntry { epoch: i32::try_from(epoch).unwrap_or(0), start_offset };
        let count = 1 + usize::from(random.is_multiple_of(5));
        return RawEvent::SegmentMetadata(RawSegmentMetadata {
            topic_id_partition,
            segment_id,
            start_offset,
            end_offset,
            broker_id: 1,
            max_timestamp_ms: event_timestamp_ms,
            event_timestamp_ms,
            segment_leader_epochs: epochs.into_iter().take(count).map(entry).collect(),
            segment_size_in_bytes: 100,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: random.is_multiple_of(2),
        });
    }
    RawEvent::SegmentMetadataUpdate(RawSegmentUpdate {
        topic_id_partition,
        segment_id,
        broker_id: 1,
        event_timestamp_ms,
        custom_metadata: Some(number.to_be_bytes().to_vec().into()),
        state_id: i8::try_from(1 + random / 1000 % 3).unwrap_or(1),
    })
}

fn user(number: u64) -> TopicIdPartition {
    let partition = i32::try_from(number).unwrap_or(0);
    TopicIdPartition { topic: "orders".into(), topic_id: strandline_tier::TopicId(Uuid([9; 16])), partition }
}

/// A number that looks random, and is the same for the same two. Source: the finisher of SplitMix64.
fn mix(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

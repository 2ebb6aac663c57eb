//! Everything at once, on several threads: writes, reads, partitions that come and go, cuts of the log, snapshots. In the
//! end the answers are those of the log.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strandline_log::{InProcessMetadataTopic, MetadataEventLog as _};
use strandline_rlmm::{
    QueryError, RemoteLogMetadataManager as _, RemoteLogMetadataManagerConfig, SnapshotConfig,
    TopicBasedRemoteLogMetadataManager, TopicIdPartition, WriteError,
};

use crate::support::{
    Manager, answers, append_copied, config, home, orders, serve, serving, soon, started, until, update,
    within,
};

const USERS: i32 = 6;

fn start(topic: &InProcessMetadataTopic, dir: &std::path::Path) -> Arc<Manager> {
    let snapshots = SnapshotConfig {
        records: NonZeroU64::new(20).unwrap(),
        check_interval: Duration::from_millis(1),
        ..SnapshotConfig::new(dir)
    };
    let config = RemoteLogMetadataManagerConfig { snapshots: Some(snapshots), ..config() };
    Arc::new(TopicBasedRemoteLogMetadataManager::start(topic.open(), config).unwrap())
}

/// Copies and deletes segments, as long as nothing but the expected hinders.
async fn write(manager: Arc<Manager>, tp: TopicIdPartition, first: u64) {
    for turn in 0..60 {
        let (segment, begin) = (first + turn, i64::try_from(turn).unwrap() * 10);
        let mut done = vec![
            manager.add_remote_log_segment_metadata(started(&tp, segment, begin..=begin + 9), soon()).await,
            manager.update_remote_log_segment_metadata(update(&tp, segment, 1), soon()).await,
        ];
        if turn % 3 == 0 {
            done.push(manager.update_remote_log_segment_metadata(update(&tp, segment, 2), soon()).await);
        }
        for written in done {
            match written {
                Ok(_) => {}
                Err(
                    WriteError::NotAssigned(_) | WriteError::Unassigned { .. } | WriteError::ReadAnew { .. },
                ) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Asks as long as the others are busy: an answer or a typed error, never a wait.
async fn read(manager: Arc<Manager>, busy: Arc<AtomicBool>) -> u64 {
    let mut answers = 0;
    while busy.load(Ordering::Relaxed) {
        for user in 0..USERS {
            let tp = orders(user);
            for offset in [0, 155, 590] {
                match manager.remote_log_segment_metadata(&tp, 0, offset) {
                    Ok(Some(segment)) => {
                        assert!((segment.start_offset()..=segment.end_offset()).contains(&offset));
                        answers += 1;
                    }
                    Ok(None) | Err(QueryError::NotAssigned(_) | QueryError::NotReady(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let _either = manager.list_remote_log_segments(&tp);
        }
        let _statuses = manager.status();
        tokio::task::yield_now().await;
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_readers_comers_goers_and_cuts_at_once_end_in_the_answers_of_the_log() {
    for round in 0..4_u64 {
        let topic = InProcessMetadataTopic::with_partitions(2);
        let dir = tempfile::tempdir().unwrap();
        let manager = start(&topic, dir.path());
        let users: Vec<_> = (0..USERS).map(orders).collect();
        serve(&*manager, &users).await;
        let busy = Arc::new(AtomicBool::new(true));
        let readers: Vec<_> =
            (0..2).map(|_| tokio::spawn(read(Arc::clone(&manager), Arc::clone(&busy)))).collect();
        let writers: Vec<_> = (0..8_u64)
            .map(|writer| {
                let tp = users[usize::try_from(writer).unwrap() % 3].clone();
                tokio::spawn(write(Arc::clone(&manager), tp, writer * 1000))
            })
            .collect();
        for turn in 0..200_i32 {
            let tp = &users[usize::try_from(turn % USERS).unwrap()];
            manager.on_stop_partitions(std::slice::from_ref(tp));
            if turn % 2 == 0 {
                tokio::task::yield_now().await;
            }
            manager.on_partition_leadership_changes(std::slice::from_ref(tp), &[]).unwrap();
            append_copied(&topic, &users[3], 100_000 + u64::try_from(turn).unwrap(), 0..=9);
            if round % 2 == 1 && turn % 40 == 39 {
                // The end of the log goes, and something else comes in its place.
                let partition = turn / 40 % 2;
                let end = end_of(&topic, partition);
                topic.truncate(partition, end - 5);
                for other in users.iter().filter(|tp| home(&topic, tp) == partition) {
                    append_copied(&topic, other, 200_000 + u64::try_from(turn).unwrap(), 150..=159);
                }
            }
            tokio::task::yield_now().await;
        }
        for writer in writers {
            within("a writer", writer).await.unwrap();
        }
        serve(&*manager, &users).await;
        let fresh = serving(topic.open(), config(), &users).await;
        for tp in &users {
            until("both agree", || answers(&*manager, tp) == answers(&fresh, tp)).await;
        }
        busy.store(false, Ordering::Relaxed);
        for reader in readers {
            assert!(within("a reader", reader).await.unwrap() > 0);
        }
        manager.close().await;
        // And what was kept leads to the same.
        let restarted = start(&topic, dir.path());
        serve(&*restarted, &users).await;
        for tp in &users {
            assert_eq!(answers(&*restarted, tp), answers(&fresh, tp), "{tp:?} after a restart");
        }
        restarted.close().await;
    }
}

fn end_of(topic: &InProcessMetadataTopic, partition: i32) -> i64 {
    let log = topic.open();
    let marks = futures::FutureExt::now_or_never(log.high_water_marks());
    let marks = marks.expect("a log in memory waits for nothing");
    marks[usize::try_from(partition).unwrap()].as_ref().unwrap().high_watermark
}

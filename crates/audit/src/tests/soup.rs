//! Events at random: what never may happen.

use proptest::prelude::*;

use super::dsl::World;
use super::{above_info, findings};

/// A line of a script; letters and numbers are few, so that events meet.
fn any_line() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "d"]);
    let offset = prop::sample::select(vec![i64::MIN, -1, 0, 1, 50, 99, 100, 150, i64::MAX - 1, i64::MAX]);
    let epoch = prop::sample::select(vec![i32::MIN, -1, 0, 1, 2, i32::MAX]);
    let base = (segment.clone(), offset.clone(), offset.clone(), prop::collection::vec((epoch, offset.clone()), 0..4))
        .prop_flat_map(|(segment, start, end, mut epochs)| {
            epochs.sort_unstable();
            epochs.dedup_by_key(|(epoch, _)| *epoch);
            let epochs: Vec<String> = epochs.iter().map(|(epoch, start)| format!("{epoch}:{start}")).collect();
            let epochs = epochs.join(",");
            (any::<i32>(), -1_i8..5, any::<i32>()).prop_map(move |(size, state, max)| {
                format!("copy-started {segment} {start}..={end} epochs ,{epochs} size {size} state {state} max {max}")
            })
        });
    let update = (segment.clone(), -1_i8..5, any::<i32>())
        .prop_map(|(segment, state, at)| format!("update {segment} {state} at {at}"));
    let partition = (0..3, 0..2).prop_map(|(id, partition)| format!("partition orders#{id}:{partition}"));
    let log = (offset.clone(), offset.clone(), offset.clone(), offset.clone()).prop_map(|(a, b, c, d)| {
        format!("log orders:0 start={a} local={b} end={c} epochs=0:0,1:{d},2:100 leader=1")
    });
    let ends = (offset.clone(), offset.clone())
        .prop_map(|(a, b)| format!("log orders:1 ends=0:0:{a},1:0:{a},2:2:{b} start=0 local=50 end={b}"));
    let local = (offset.clone(), offset, any::<i32>()).prop_map(|(a, b, size)| {
        format!("local orders:0 broker=1 size={size} segments={a}:{size}:5m,{b}:{size}")
    });
    let topic = (any::<i32>(), any::<i64>()).prop_map(|(ms, bytes)| {
        format!("topic orders#1 remote.storage.enable=true retention.ms={ms} retention.bytes={bytes} segment.bytes=10 local.retention.ms={ms} local.retention.bytes={bytes}")
    });
    prop_oneof![
        4 => base,
        6 => update,
        2 => partition,
        1 => (0..4_i8).prop_map(|state| format!("partition-delete {state}")),
        1 => prop::sample::select(vec![
            "null", "control", "undecodable", "unknown-api", "snapshot a", "topics complete", "store complete exact",
            "store", "object a all", "object b log size=5 start=1", "key x", "metadata-partitions 5", "partial",
            "now -20000d", "now 90000d", "topic orders absent",
            "meta starts=5,0 ends=1 rf=1 brokers=9 retention.ms=5 configured=7 truncated=last,inner",
        ]).prop_map(str::to_owned),
        1 => log,
        1 => ends,
        1 => local,
        1 => topic,
    ]
}

/// The life of one partition as brokers write it: copies in order, some retried, retention from the low end,
/// leaders that change, and in the end every fact that a live cluster gives.
fn legal_life() -> impl Strategy<Value = String> {
    let step = (0..10_u32, 1..200_i64);
    prop::collection::vec(step, 1..60).prop_map(|steps| {
        let (mut script, mut next, mut epoch, mut epoch_start) = (String::new(), 0_i64, 0_i32, 0_i64);
        let mut lineage = vec![(0_i32, 0_i64)];
        let mut live: Vec<(char, i64)> = Vec::new();
        let mut names = ('A'..='Z').chain('a'..='z').chain('\u{00}'..='\u{1f}');
        let mut log_start = 0;
        for (kind, len) in steps {
            match kind {
                0 => {
                    epoch += 1;
                    epoch_start = epoch_start.max(next + len / 2);
                    if let Some(last) = lineage.last_mut()
                        && last.1 == epoch_start
                    {
                        last.0 = epoch;
                    } else {
                        lineage.push((epoch, epoch_start));
                    }
                }
                1 | 2 if live.len() > 1 => {
                    let (name, end) = live.remove(0);
                    log_start = end + 1;
                    script += &format!("delete-started {name}\ndelete-finished {name}\n");
                }
                _ => {
                    let Some(name) = names.next() else { break };
                    if name.is_control() {
                        break;
                    }
                    let end = next.max(epoch_start) + len;
                    let epochs: Vec<String> = lineage
                        .iter()
                        .enumerate()
                        .filter(|(at, (_, start))| {
                            *start <= end && lineage.get(at + 1).is_none_or(|(_, later)| *later > next)
                        })
                        .map(|(_, (epoch, start))| format!("{epoch}:{}", (*start).max(next)))
                        .collect();
                    if kind == 3
                        && let Some(failed) = names.next()
                    {
                        script +=
                            &format!("copy-started {failed} {next}..={end} epochs {}\n", epochs.join(","));
                        script += &format!("delete-started {failed}\ndelete-finished {failed}\n");
                    }
                    script += &format!("copy-started {name} {next}..={end} epochs {}\n", epochs.join(","));
                    script += &format!("copy-finished {name}\n");
                    live.push((name, end));
                    next = end + 1;
                }
            }
        }
        let cut: Vec<String> = lineage
            .iter()
            .enumerate()
            .filter(|(at, _)| lineage.get(at + 1).is_none_or(|(_, later)| *later > log_start))
            .map(|(_, (epoch, start))| format!("{epoch}:{}", (*start).max(log_start)))
            .collect();
        let end = next.max(epoch_start) + 10;
        script += &format!(
            "log orders:0 start={log_start} local={next} end={end} epochs={} leader=1\n",
            cut.join(",")
        );
        script += &format!("local orders:0 broker=1 segments={next}:100:0m\n");
        script += "now 25m\nmetadata-partitions 5\n";
        script +=
            "topic orders remote.storage.enable=true retention.ms=-1 segment.bytes=1000\ntopics complete\n";
        script += "store complete exact\n";
        for (name, _) in live {
            script += &format!("object {name} all\n");
        }
        script.replace("metadata-partitions 5\n", "")
    })
}

proptest! {
    #[test]
    fn no_soup_of_events_and_facts_makes_the_judge_panic(lines in prop::collection::vec(any_line(), 0..40)) {
        let script = lines.join("\n");
        let found = findings(&script);
        prop_assert_eq!(findings(&script), found, "the same values give the same report");
    }

    #[test]
    fn reading_in_several_builders_changes_nothing(
        lines in prop::collection::vec(any_line(), 0..40),
        splits in prop::collection::vec(0..40_usize, 1..4),
    ) {
        let mut split = lines.clone();
        for at in splits {
            split.insert(at.min(split.len()), "split".to_owned());
        }
        prop_assert_eq!(World::parse(&split.join("\n")).report(), World::parse(&lines.join("\n")).report());
    }

    #[test]
    fn a_legal_life_gives_nothing_above_info(script in legal_life()) {
        prop_assert_eq!(above_info(&script), "", "{}", script);
    }
}

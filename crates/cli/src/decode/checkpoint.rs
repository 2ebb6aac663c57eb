//! The text files of checkpoints: a version, a count, and as many lines.

use super::{Broken, Kind, Row, row};

/// Lines of `epoch start_offset`.
///
/// Source: `org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile`.
pub(super) fn leader_epochs(bytes: &[u8]) -> impl Iterator<Item = Result<Row, Broken>> + '_ {
    lines(bytes, |words| match words {
        [epoch, start] => Some(row([
            ("epoch", epoch.parse::<i32>().ok()?.into()),
            ("start_offset", start.parse::<i64>().ok()?.into()),
        ])),
        _ => None,
    })
}

/// Lines of `topic partition offset`.
///
/// Source: `org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile`.
pub(super) fn offsets(bytes: &[u8]) -> impl Iterator<Item = Result<Row, Broken>> + '_ {
    lines(bytes, |words| match words {
        [topic, partition, offset] => Some(row([
            ("topic", (*topic).into()),
            ("partition", partition.parse::<i32>().ok()?.into()),
            ("offset", offset.parse::<i64>().ok()?.into()),
        ])),
        _ => None,
    })
}

/// The kind of checkpoint that the bytes are, by the words on the first line after the count.
pub(super) fn kind(bytes: &[u8]) -> Option<Kind> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let (version, count) = (lines.next()?.trim(), lines.next()?.trim());
    if version != "0" || count.parse::<u64>().is_err() {
        return None;
    }
    match lines.next().map_or(2, |line| line.split_whitespace().count()) {
        2 => Some(Kind::LeaderEpochCheckpoint),
        3 => Some(Kind::OffsetCheckpoint),
        _ => None,
    }
}

fn lines<'a>(
    bytes: &'a [u8],
    read: impl Fn(&[&str]) -> Option<Row> + 'a,
) -> impl Iterator<Item = Result<Row, Broken>> + 'a {
    let text = std::str::from_utf8(bytes).ok();
    let mut lines = text.unwrap_or_default().lines().enumerate();
    let mut head = Some(match text {
        None => Err(Broken::at_line(1, "not text")),
        Some(_) => header(&mut lines),
    });
    let mut expected = 0_u64;
    let mut seen = 0_u64;
    std::iter::from_fn(move || {
        match head.take() {
            Some(Err(broken)) => return Some(Err(broken)),
            Some(Ok(count)) => expected = count,
            None => {}
        }
        let Some((index, line)) = lines.by_ref().find(|(_, line)| !line.trim().is_empty()) else {
            let missing = expected.checked_sub(seen).filter(|missing| *missing > 0)?;
            expected = seen;
            return Some(Err(Broken {
                place: "at the end".to_owned(),
                problem: format!("{missing} of the lines that its second line promises are missing"),
            }));
        };
        let ended = |lines: &mut std::iter::Enumerate<std::str::Lines<'_>>, expected: &mut u64| {
            lines.by_ref().for_each(drop);
            *expected = seen;
        };
        if seen == expected {
            ended(&mut lines, &mut expected);
            return Some(Err(Broken::at_line(index + 1, "more lines than its second line promises")));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(row) = read(&words) else {
            ended(&mut lines, &mut expected);
            return Some(Err(Broken::at_line(index + 1, format!("{line:?} is not an entry"))));
        };
        seen += 1;
        Some(Ok(row))
    })
}

fn header<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<u64, Broken> {
    let mut number = |what: &str| {
        let (index, line) =
            lines.next().ok_or_else(|| Broken::at_line(1, format!("the {what} is missing")))?;
        let number = line.trim().parse::<u64>();
        number.map_err(|_| Broken::at_line(index + 1, format!("{line:?} is not the {what}")))
    };
    match number("version")? {
        0 => number("count"),
        version => Err(Broken::at_line(1, format!("version {version} is unknown"))),
    }
}

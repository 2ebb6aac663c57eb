//! `segments`: what the tier holds, segment by segment.

use rustc_hash::FxHashSet;
use serde::Serialize;
use strandline_audit::{Limits, PartitionView, SegmentView, state_name};
use strandline_tier::Uuid;

use crate::address::Selection;
use crate::args::{DisplayArgs, SegmentsArgs, StateFilter};
use crate::exit::{Exit, Failure};
use crate::judge::{Judged, judge};
use crate::output::{Form, Output};
use crate::positions;
use crate::segment_row::{SegmentRow, grid};
use crate::sources::{Request, Source, StoreSource};
use crate::text::count;

const SCHEMA: &str = "strandline.segments/v1";

/// A row of the list, with what the filters found out about it.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    segment: SegmentRow,
    /// Segments that hold offsets of one of its leader epochs too (`--overlaps`).
    #[serde(skip_serializing_if = "Option::is_none")]
    overlaps: Option<Vec<String>>,
    /// The offsets before it that no finished segment holds (`--gaps`).
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_before: Option<[i64; 2]>,
    /// The offsets after it that no finished segment holds (`--gaps`).
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_after: Option<[i64; 2]>,
}

/// Prints the segments that the address and the filters name.
pub(crate) fn run(args: &SegmentsArgs, display: &DisplayArgs, output: &mut Output) -> Result<Exit, Failure> {
    let clock = output.clock.clone();
    let selection = Selection::parse(&args.selection.addresses, &args.selection.exclude, &clock)?;
    let since = args.since.as_deref().map(|text| clock.parse(text).map_err(Failure::usage)).transpose()?;
    let source = Source::choose(&args.source)?;
    let store = StoreSource::open(&args.source.store)?;
    let request = Request {
        args: &args.source,
        selection: &selection,
        now_ms: clock.now_ms,
        who: None,
        progress: display.progress,
    };
    let judged = judge(&source, store.as_ref(), &request, &Limits::default())?;
    let mut rows = Vec::new();
    let segments = positions::resolved(&selection, &judged.collected.view);
    // Without an address everything is meant, so positions that no segment holds must not leave none behind.
    if selection.addresses().is_empty() || !segments.addresses().is_empty() {
        for partition in judged.collected.view.partitions() {
            rows.extend(partition_rows(&partition, args, &segments, since, clock.now_ms));
        }
    }
    show(&rows, args, &judged, output)?;
    Ok(judged.collected.exit())
}

fn partition_rows(
    partition: &PartitionView<'_>,
    args: &SegmentsArgs,
    selection: &Selection,
    since: Option<i64>,
    now_ms: i64,
) -> Vec<Row> {
    let wanted: Vec<SegmentView<'_>> = partition
        .segments()
        .filter(|segment| selection.has_segment(segment.topic(), segment.partition(), segment.id()))
        .filter(|segment| has_state(segment, &args.state))
        .filter(|segment| {
            since.is_none_or(|since| {
                segment.events().next_back().is_some_and(|event| event.timestamp_ms() >= since)
            })
        })
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let readable: FxHashSet<Uuid> =
        partition.readable().ranges().iter().map(|range| partition.segment_of(range).id()).collect();
    let overlaps = if args.overlaps { overlaps(partition) } else { Vec::new() };
    let gaps = if args.gaps { gaps(partition) } else { Vec::new() };
    let row = |segment: SegmentView<'_>| {
        let id = segment.id();
        let others: Vec<String> = overlaps
            .iter()
            .filter_map(|&(a, b)| if a == id { Some(b) } else { (b == id).then_some(a) })
            .map(|other| other.to_string())
            .collect();
        let before = gaps.iter().find(|gap| gap.after == id).map(|gap| gap.offsets);
        let after = gaps.iter().find(|gap| gap.before == id).map(|gap| gap.offsets);
        Row {
            segment: SegmentRow::of(&segment, readable.contains(&id), now_ms),
            overlaps: args.overlaps.then_some(others),
            gap_before: before,
            gap_after: after,
        }
    };
    let kept = |row: &Row| {
        let overlaps = row.overlaps.as_ref().is_none_or(|others| !others.is_empty());
        overlaps && (!args.gaps || row.gap_before.is_some() || row.gap_after.is_some())
    };
    wanted.into_iter().map(row).filter(kept).collect()
}

fn has_state(segment: &SegmentView<'_>, states: &[StateFilter]) -> bool {
    if states.is_empty() {
        return segment.is_live();
    }
    states.iter().any(|state| {
        let id = match state {
            StateFilter::All => return true,
            StateFilter::CopySegmentStarted => 0,
            StateFilter::CopySegmentFinished => 1,
            StateFilter::DeleteSegmentStarted => 2,
            StateFilter::DeleteSegmentFinished => 3,
        };
        debug_assert!(state_name(id).is_some(), "the filters are the states");
        segment.last_state_id() == id
    })
}

/// Pairs of finished segments that hold offsets of one leader epoch twice. A segment among many that contain it is
/// paired with the one that reaches farthest before it.
fn overlaps(partition: &PartitionView<'_>) -> Vec<(Uuid, Uuid)> {
    let mut ranges: Vec<(i32, i64, i64, Uuid)> = Vec::new();
    for segment in partition.segments().filter(SegmentView::is_finished) {
        let Some(content) = segment.content() else { continue };
        for (at, epoch) in content.epochs.iter().enumerate() {
            let next = content.epochs.get(at + 1).map(|next| next.start_offset.saturating_sub(1));
            let end = next.unwrap_or(content.end_offset);
            if epoch.start_offset <= end {
                ranges.push((epoch.epoch, epoch.start_offset, end, segment.id()));
            }
        }
    }
    ranges.sort_unstable();
    let mut pairs = Vec::new();
    let mut farthest: Option<(i32, i64, Uuid)> = None;
    for (epoch, start, end, id) in ranges {
        match farthest {
            Some((same, reach, other)) if same == epoch && start <= reach => {
                if other != id {
                    pairs.push((other, id));
                }
                if end > reach {
                    farthest = Some((epoch, end, id));
                }
            }
            _ => farthest = Some((epoch, end, id)),
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Offsets between two finished segments that no finished segment holds.
struct Gap {
    before: Uuid,
    after: Uuid,
    offsets: [i64; 2],
}

fn gaps(partition: &PartitionView<'_>) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut farthest: Option<(i64, Uuid)> = None;
    for segment in partition.segments().filter(SegmentView::is_finished) {
        let (Some(start), Some(end)) = (segment.start_offset(), segment.end_offset()) else { continue };
        if let Some((reach, before)) = farthest
            && start > reach.saturating_add(1)
        {
            gaps.push(Gap { before, after: segment.id(), offsets: [reach + 1, start - 1] });
        }
        if farthest.is_none_or(|(reach, _)| end > reach) {
            farthest = Some((end, segment.id()));
        }
    }
    gaps
}

fn show(rows: &[Row], args: &SegmentsArgs, judged: &Judged, output: &mut Output) -> Result<(), Failure> {
    let collected = &judged.collected;
    collected.tell();
    if output.kind != Form::Table {
        output.machine(&collected.about(SCHEMA, output.clock.now_ms), rows)?;
        return Ok(());
    }
    if rows.is_empty() {
        let filtered = !args.state.is_empty() || args.since.is_some() || args.overlaps || args.gaps;
        output.line(match (filtered, collected.view.segment_count()) {
            (_, 0) => "No segments: the metadata names none.",
            (true, _) => "No segment passes the filters.",
            (false, _) => "No live segments here; --state all shows the deleted ones.",
        })?;
        return Ok(());
    }
    let table = grid(rows.iter().map(|row| &row.segment), args.epochs, output);
    output.table(&table)?;
    for row in rows.iter().filter(|row| row.overlaps.as_ref().is_some_and(|others| !others.is_empty())) {
        let others = row.overlaps.as_ref().map(|others| others.join(", ")).unwrap_or_default();
        output.wrapped(&format!("{} shares offsets with {others}", row.segment.segment_id), "")?;
    }
    for row in rows {
        if let Some([from, to]) = row.gap_after {
            let place = format!("{}:{}", row.segment.topic, row.segment.partition);
            output.wrapped(&format!("{place}: no finished segment holds offsets {from}-{to}"), "")?;
        }
    }
    let bytes: i64 = rows.iter().filter_map(|row| row.segment.size_bytes).fold(0, i64::saturating_add);
    output.line(&format!("{}, {}", count(rows.len() as u64, "segment"), output.sizes.show(bytes)))?;
    Ok(())
}

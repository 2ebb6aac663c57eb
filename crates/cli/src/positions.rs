//! `TOPIC:P@OFFSET` and `TOPIC:P@TIME` where a list is asked for: the segments that hold the offset, or the first record
//! of that time or later.

use strandline_audit::{PartitionView, SegmentView, TierView};
use strandline_tier::Uuid;

use crate::address::{Address, At, Selection};

/// The selection with each position replaced by the ids of its segments, deleted ones included.
pub(crate) fn resolved(selection: &Selection, view: &TierView) -> Selection {
    selection.with_positions(|topic, partition, at| {
        let named = view.partitions().filter(|of| of.partition() == partition && topic.matches(of.topic()));
        named.flat_map(|of| segments_at(&of, at)).collect()
    })
}

/// True when an address names a position.
pub(crate) fn any(selection: &Selection) -> bool {
    selection.addresses().iter().any(|address| matches!(address, Address::Position(..)))
}

fn segments_at(of: &PartitionView<'_>, at: At) -> Vec<Uuid> {
    let offset = match at {
        At::Offset(offset) => Some(offset),
        At::Time(time) => of
            .segments()
            .filter(|segment| segment.content().is_some_and(|content| content.max_timestamp_ms >= time))
            .filter_map(|segment| segment.start_offset())
            .min(),
    };
    let Some(offset) = offset else { return Vec::new() };
    of.segments().filter(|segment| holds(segment, offset)).map(|segment| segment.id()).collect()
}

/// True when the segment's offsets include this one, whether a look-up returns it or not.
pub(crate) fn holds(segment: &SegmentView<'_>, offset: i64) -> bool {
    segment.start_offset().is_some_and(|start| start <= offset)
        && segment.end_offset().is_some_and(|end| offset <= end)
}

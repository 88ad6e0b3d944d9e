use super::{COLD, HOT, Pages, Placement, PlacementBuild, Subject, WithPages};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of M4.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "m4",
    summary: "segment-based: a victim's pages are cold if its utilization is under the average",
    parameters: &[],
    source: "FMS J sec. 4, M4",
    build: |_, _| WithPages::boxed(SegmentBased::new()),
};

/// M4, segment-based: all copies of a victim go to the cold stream if its utilization is under the average of
/// the segments in use, else to the hot stream, which also takes the host's writes.
///
/// Source: J sec. 4, M4; "under the average is cold" is what the printed text says and the only form that
/// meets the tables (spec sec. 3 and 5). Keeps nothing per page. O(1).
#[derive(Clone, Copy, Debug)]
pub struct SegmentBased {
    target: u8,
}

impl SegmentBased {
    /// The policy. It has no parameters.
    pub const fn new() -> Self {
        Self { target: HOT }
    }
}

impl Default for SegmentBased {
    fn default() -> Self {
        Self::new()
    }
}

impl Placement for SegmentBased {
    type Info = ();

    const HOST_STREAM: Option<u8> = Some(HOT);

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        2
    }

    #[inline(always)]
    fn write(&mut self, _: &Segments, _: Now, _: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        (HOT, ())
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, _: Now, _: Pages<'_, ()>) {
        let valid = u64::from(segments.valid[victim.index()]);
        let is_cold = valid * u64::from(segments.in_use) < segments.total_valid;
        self.target = if is_cold { COLD } else { HOT };
    }

    #[inline(always)]
    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        self.target
    }
}

use super::{COLD, HOT, Placement, PlacementBuild, Subject, WithPages};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of SepGC.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "sepgc",
    summary: "separates host writes from copies: pages that survive a cleaning go to a stream of their own",
    parameters: &[],
    source: "Van Houdt 2014; the baseline of SepBIT (Wang et al., FAST 2022)",
    build: |_, _| WithPages::boxed(SepGc),
};

/// SepGC: one stream for host writes, one for copies. Keeps nothing per page. O(1).
#[derive(Clone, Copy, Debug)]
struct SepGc;

impl Placement for SepGc {
    type Info = ();

    const HOST_STREAM: Option<u8> = Some(HOT);

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        2
    }

    fn write(&mut self, _: &Segments, _: Now, _: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        (HOT, ())
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        COLD
    }
}

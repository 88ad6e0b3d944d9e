use crate::age::Now;
use crate::placement::{Placement, PlacementBuild, Subject, WithPages};
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of the sequential allocator.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "sequential",
    summary: "everything goes to one segment after the other, copies too",
    parameters: &[],
    source: "YAFFS",
    build: |_, _| WithPages::boxed(Sequential),
};

/// One stream for everything, opened on first use.
#[derive(Clone, Copy, Debug)]
struct Sequential;

impl Placement for Sequential {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        1
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, _: Now, _: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        (0, ())
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        0
    }
}

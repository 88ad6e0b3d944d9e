use super::{COLD, HOT, Pages, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of M5.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "m5",
    summary: "page-based: a copied page is cold unless updated more often than the mean",
    parameters: &[],
    source: "FMS J sec. 4, M5 (block-based)",
    build: |_, _| WithPages::boxed(PageBased::default()),
};

/// M5, page-based ("block-based" in the papers): a copied page is hot if it was updated more often than the
/// mean of all pages.
///
/// Source: J sec. 4, M5; "count above the mean count" (spec sec. 3). 4 bytes per page; the sum of counts is
/// kept as pages are written and trimmed, so O(1).
#[derive(Clone, Copy, Debug, Default)]
pub struct PageBased {
    updates: u64,
    mean: f64,
}

impl Placement for PageBased {
    type Info = u32;

    const HOST_STREAM: Option<u8> = Some(HOT);

    const HEAT_KIND: u8 = heat::UPDATES;

    fn pack(&self, count: u32) -> u32 {
        count
    }

    fn unpack(&mut self, count: u32, _: Now, _: Now) -> u32 {
        self.updates += u64::from(count);
        count
    }

    fn encode(&self, count: u32, _: Now) -> (u64, u32) {
        (0, count)
    }

    fn decode(&mut self, (_, count): (u64, u32), now: Now) -> u32 {
        self.unpack(count, now, now)
    }

    fn streams(&self) -> u8 {
        2
    }

    #[inline]
    fn write(&mut self, _: &Segments, _: Now, _: Subject, old: Option<(SegmentId, u32)>) -> (u8, u32) {
        let Some((_, count)) = old else { return (HOT, 0) };
        let next = count.saturating_add(1);
        self.updates += u64::from(next - count);
        (HOT, next)
    }

    fn trimmed(&mut self, _: Now, count: u32) {
        self.updates -= u64::from(count);
    }

    fn begin_cleaning(&mut self, segments: &Segments, _: SegmentId, _: Now, _: Pages<'_, u32>) {
        self.mean = self.updates as f64 / segments.total_valid.max(1) as f64;
    }

    #[inline]
    fn copy(&self, _: &Segments, _: SegmentId, _: Now, count: u32, _: u64) -> u8 {
        if f64::from(count) > self.mean { HOT } else { COLD }
    }
}

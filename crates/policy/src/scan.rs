//! Every selection policy whose answer depends on the segments alone, as a full scan. Tests prove that the fast indexes
//! give the same answers.

use crate::age::Now;
use crate::segments::{Segments, Sizing};
use crate::selection::{ScanKey, Selection, SelectionSpec};
use margay_flash::SegmentId;

/// A [`Selection`] that scans all segments at every selection and answers the candidate with the smallest key.
#[derive(Clone, Debug)]
pub struct Scan {
    spec: SelectionSpec,
    key: ScanKey,
    sizing: Sizing,
    needs_invalidations: bool,
}

impl Scan {
    /// The scan of a policy; `None` if its answer depends on more than the segments.
    pub fn new(sizing: Sizing, spec: SelectionSpec) -> Option<Self> {
        let needs_invalidations = spec.build(sizing).needs_invalidations();
        spec.row().build.scan.map(|key| Self { spec, key, sizing, needs_invalidations })
    }
}

impl Selection for Scan {
    fn needs_invalidations(&self) -> bool {
        self.needs_invalidations
    }

    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}
    fn invalidated(&mut self, _: &Segments, _: SegmentId, _: u32) {}
    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        let key = |id: &SegmentId| (self.key)(&self.spec.args(), self.sizing, segments, *id, now);
        let order = |a: &SegmentId, b: &SegmentId| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        segments.ids().filter(|id| segments.is_candidate(*id)).min_by(order)
    }
}

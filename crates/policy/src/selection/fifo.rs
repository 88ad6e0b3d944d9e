use super::{Selection, SelectionBuild};
use crate::age::Now;
use crate::index::{BucketBits, OpenOrder};
use crate::segments::{Segments, Sizing};
use crate::spec::Row;
use alloc::boxed::Box;
use margay_flash::SegmentId;

/// The row of FIFO.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "fifo",
    summary: "opened first (also called LRU, circular)",
    parameters: &[],
    source: "Robinson 1996; Desnoyers 2012",
    build: SelectionBuild {
        new: |_, sizing| Box::new(Fifo::new(sizing)),
        scan: Some(|_, _, segments, id, _| (segments.opened_sequence[id.index()] as f64, id.0.into())),
    },
};

/// FIFO (also called LRU or circular): the candidate that was opened first.
///
/// Source: Desnoyers 2012; Robinson 1996. A segment without an invalid page is not a candidate, and keeps its place.
/// O(1).
#[derive(Clone, Debug)]
pub struct Fifo {
    order: OpenOrder,
    candidates: BucketBits,
}

impl Fifo {
    /// The policy for a device of the given size.
    pub fn new(sizing: Sizing) -> Self {
        let order = OpenOrder::new(sizing.segments);
        let candidates = BucketBits::new(1, order.columns());
        Self { order, candidates }
    }
}

impl Selection for Fifo {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        if self.order.open(segment) {
            self.candidates.clear_all();
            for id in segments.ids().filter(|id| segments.is_candidate(*id)) {
                self.candidates.set(0, self.order.column(id));
            }
        }
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        if segments.valid[segment.index()] < segments.data_pages {
            self.candidates.set(0, self.order.column(segment));
        }
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        if valid + 1 == segments.data_pages {
            self.candidates.set(0, self.order.column(segment));
        }
    }

    fn taken(&mut self, _: &Segments, segment: SegmentId) {
        self.candidates.clear(0, self.order.column(segment));
        self.order.release(segment);
    }

    fn select(&mut self, _: &Segments, _: Now) -> Option<SegmentId> {
        self.candidates.first(0).map(|column| self.order.segment(column))
    }
}

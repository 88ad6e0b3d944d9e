use super::{Selection, Tie};
use crate::age::Now;
use crate::index::{BucketBits, OpenOrder};
use crate::segments::{Segments, Sizing, State};
use margay_flash::SegmentId;

/// Greedy: the candidate with the fewest valid pages.
///
/// Source: J sec. 2; Rosenblum and Ousterhout 1992. Ties: the lowest segment number, or with `tie=oldest` the
/// segment opened first. O(1) per invalidation and per selection: a bitmap of segments per valid count with
/// summaries above, and a cursor at the lowest count that is not empty.
#[derive(Clone, Debug)]
pub struct Greedy {
    bits: BucketBits,
    order: Option<OpenOrder>,
    lowest: u32,
}

impl Greedy {
    /// For a device of the given numbers.
    pub fn new(sizing: Sizing, tie: Tie) -> Self {
        let order = (tie == Tie::Oldest).then(|| OpenOrder::new(sizing.segments));
        let columns = order.as_ref().map_or(sizing.segments as usize, OpenOrder::columns);
        let bits = BucketBits::new(sizing.data_pages as usize + 1, columns);
        Self { bits, order, lowest: sizing.data_pages }
    }

    #[inline(always)]
    fn column(&self, segment: SegmentId) -> u32 {
        match &self.order {
            None => segment.0,
            Some(order) => order.column(segment),
        }
    }
}

impl Selection for Greedy {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        let Some(order) = &mut self.order else { return };
        if order.open(segment) {
            self.bits.clear_all();
            for id in segments.ids().filter(|id| segments.state[id.index()] == State::Sealed) {
                self.sealed(segments, id);
            }
        }
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        let valid = segments.valid[segment.index()];
        self.bits.set(valid, self.column(segment));
        self.lowest = self.lowest.min(valid);
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId) {
        let (valid, column) = (segments.valid[segment.index()], self.column(segment));
        self.bits.clear(valid + 1, column);
        self.bits.set(valid, column);
        if valid < self.lowest {
            self.lowest = valid;
        }
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        self.bits.clear(segments.valid[segment.index()], self.column(segment));
        if let Some(order) = &mut self.order {
            order.release(segment);
        }
    }

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        while self.lowest < segments.data_pages {
            if let Some(column) = self.bits.first(self.lowest) {
                return Some(self.order.as_ref().map_or(SegmentId(column), |order| order.segment(column)));
            }
            self.lowest += 1;
        }
        None
    }
}

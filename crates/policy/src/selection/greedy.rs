use super::{Selection, Tie};
use crate::age::Now;
use crate::index::{MinTree, OpenOrder};
use crate::segments::{Segments, Sizing, State};
use margay_flash::SegmentId;

/// Greedy: the candidate with the fewest valid pages.
///
/// Source: J sec. 2; Rosenblum and Ousterhout 1992. Ties: the lowest segment number, or with `tie=oldest` the
/// segment opened first.
///
/// A tree of minima over the valid counts: an invalidation is one store and one comparison unless the segment
/// has become the emptiest of its eight; a selection walks one path down, at most 8 comparisons for each factor
/// of 8 in the number of segments, once per cleaning.
#[derive(Clone, Debug)]
pub struct Greedy {
    valid: MinTree,
    order: Option<OpenOrder>,
}

impl Greedy {
    /// For a device of the given numbers.
    pub fn new(sizing: Sizing, tie: Tie) -> Self {
        let order = (tie == Tie::Oldest).then(|| OpenOrder::new(sizing.segments));
        let columns = order.as_ref().map_or(sizing.segments as usize, OpenOrder::columns);
        Self { valid: MinTree::new(columns), order }
    }

    #[inline(always)]
    fn column(&self, segment: SegmentId) -> usize {
        match &self.order {
            None => segment.index(),
            Some(order) => order.column(segment) as usize,
        }
    }
}

impl Selection for Greedy {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        let Some(order) = &mut self.order else { return };
        if order.open(segment) {
            self.valid.clear();
            for id in segments.ids().filter(|id| segments.state[id.index()] == State::Sealed) {
                self.sealed(segments, id);
            }
        }
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.valid.lower(self.column(segment), segments.valid[segment.index()]);
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId) {
        self.valid.lower(self.column(segment), segments.valid[segment.index()]);
    }

    fn taken(&mut self, _: &Segments, segment: SegmentId) {
        self.valid.set(self.column(segment), u32::MAX);
        if let Some(order) = &mut self.order {
            order.release(segment);
        }
    }

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        if self.valid.minimum() >= segments.data_pages {
            return None;
        }
        let column = self.valid.first()? as u32;
        Some(self.order.as_ref().map_or(SegmentId(column), |order| order.segment(column)))
    }
}

//! Every selection policy as a full scan in a few lines: what the fast ones are proved equal to.

use crate::age::{AgeFunction, Now};
use crate::segments::{Segments, Sizing};
use crate::selection::{AgeOf, Selection, SelectionSpec, Tie, cat_price, cost_benefit_key};
use margay_flash::SegmentId;

/// A [`Selection`] that scans all segments at every selection: the candidate with the smallest key.
#[derive(Clone, Debug)]
pub struct Scan<const INVALIDATIONS: bool> {
    spec: SelectionSpec,
    sizing: Sizing,
}

impl<const INVALIDATIONS: bool> Scan<INVALIDATIONS> {
    /// The scan of a policy whose answer depends on the segments alone: greedy, cost-benefit, CAT, FIFO.
    pub fn new(sizing: Sizing, spec: SelectionSpec) -> Option<Self> {
        use SelectionSpec as S;
        let pure = matches!(spec, S::Greedy { .. } | S::CostBenefit { .. } | S::Cat { .. } | S::Fifo);
        pure.then_some(Self { spec, sizing })
    }
}

impl<const INVALIDATIONS: bool> Selection for Scan<INVALIDATIONS> {
    const NEEDS_INVALIDATIONS: bool = INVALIDATIONS;

    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}
    fn invalidated(&mut self, _: &Segments, _: SegmentId) {}
    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        let key = |id: SegmentId| -> (f64, u64) {
            let (i, index) = (id.index(), u64::from(id.0));
            let (valid, sequence) = (segments.valid[i], segments.opened_sequence[i]);
            match self.spec {
                SelectionSpec::Greedy { tie: Tie::Index } => (f64::from(valid), index),
                SelectionSpec::Greedy { tie: Tie::Oldest } => (f64::from(valid), sequence),
                SelectionSpec::CostBenefit { age, shape, scale } => {
                    debug_assert!(INVALIDATIONS || age == AgeOf::Opened);
                    let function = AgeFunction::new(shape, scale, self.sizing.exported_pages);
                    cost_benefit_key(segments, id, age, &function, now)
                }
                SelectionSpec::Cat { shape, scale } => {
                    let function = AgeFunction::new(shape, scale, self.sizing.exported_pages);
                    let benefit = function.of(segments.age(id, function.clock, now));
                    let price = cat_price(valid, segments.data_pages, segments.erases[i], benefit);
                    (price, if valid == 0 { index } else { sequence })
                }
                _ => (sequence as f64, index),
            }
        };
        let order = |a: &SegmentId, b: &SegmentId| {
            let (a, b) = (key(*a), key(*b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        segments.ids().filter(|id| segments.is_candidate(*id)).min_by(order)
    }
}

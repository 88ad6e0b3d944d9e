use super::{
    AgeOf, Cat, CostBenefit, CostBenefitLists, DChoices, Fifo, Greedy, Selection, SelectionSpec, WindowedGreedy,
};
use crate::age::{AgeFunction, Now};
use crate::segments::{Segments, Sizing};
use margay_flash::SegmentId;

/// Any selection policy, chosen at run time: a branch per call, for users whose writes cost more than that.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum AnySelection {
    Greedy(Greedy),
    CostBenefit(CostBenefit),
    CostBenefitLists(CostBenefitLists),
    Cat(Cat),
    Fifo(Fifo),
    DChoices(DChoices),
    WindowedGreedy(WindowedGreedy),
}

impl AnySelection {
    /// The policy of that name.
    pub fn new(spec: SelectionSpec, sizing: Sizing) -> Self {
        let age = |shape, scale| AgeFunction::new(shape, scale, sizing.exported_pages);
        match spec {
            SelectionSpec::Greedy { tie } => Self::Greedy(Greedy::new(sizing, tie)),
            SelectionSpec::CostBenefit { age: AgeOf::Opened, shape, scale } => {
                Self::CostBenefit(CostBenefit::new(sizing, age(shape, scale)))
            }
            SelectionSpec::CostBenefit { age: AgeOf::Invalidated, shape, scale } => {
                Self::CostBenefitLists(CostBenefitLists::new(sizing, age(shape, scale)))
            }
            SelectionSpec::Cat { shape, scale } => Self::Cat(Cat::new(sizing, age(shape, scale))),
            SelectionSpec::Fifo => Self::Fifo(Fifo::new(sizing)),
            SelectionSpec::Random => Self::DChoices(DChoices::new(sizing, 1)),
            SelectionSpec::DChoices { d } => Self::DChoices(DChoices::new(sizing, d)),
            SelectionSpec::WindowedGreedy { window_ratio } => {
                Self::WindowedGreedy(WindowedGreedy::new(sizing, window_ratio))
            }
        }
    }
}

macro_rules! each {
    ($any:expr, $policy:ident => $call:expr) => {
        match $any {
            AnySelection::Greedy($policy) => $call,
            AnySelection::CostBenefit($policy) => $call,
            AnySelection::CostBenefitLists($policy) => $call,
            AnySelection::Cat($policy) => $call,
            AnySelection::Fifo($policy) => $call,
            AnySelection::DChoices($policy) => $call,
            AnySelection::WindowedGreedy($policy) => $call,
        }
    };
}

impl Selection for AnySelection {
    const NEEDS_INVALIDATIONS: bool = true;

    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        each!(self, policy => policy.opened(segments, segment));
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        each!(self, policy => policy.sealed(segments, segment));
    }

    fn invalidated(&mut self, segments: &Segments, segment: SegmentId) {
        each!(self, policy => policy.invalidated(segments, segment));
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        each!(self, policy => policy.taken(segments, segment));
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        each!(self, policy => policy.select(segments, now))
    }
}

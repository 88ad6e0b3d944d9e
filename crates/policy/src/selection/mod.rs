//! Selection: which segment is the next victim.

mod any;
mod cat;
mod cost_benefit;
mod d_choices;
mod fifo;
mod greedy;
mod windowed;

pub use any::AnySelection;
pub use cat::Cat;
pub(crate) use cat::price as cat_price;
pub(crate) use cost_benefit::scan_key as cost_benefit_key;
pub use cost_benefit::{CostBenefit, CostBenefitLists};
pub use d_choices::DChoices;
pub use fifo::Fifo;
pub use greedy::Greedy;
pub use windowed::WindowedGreedy;

use crate::age::{Now, Scale, Shape};
use crate::index::{BucketBits, OpenOrder};
use crate::segments::Segments;
use alloc::format;
use core::fmt;
use margay_flash::SegmentId;

/// A selection policy, told of every event that can change its answer.
///
/// A *candidate* is a sealed segment with at least one invalid page; only candidates are answered, and one is
/// answered whenever there is one.
pub trait Selection {
    /// Whether [`Segments`] has to keep the time of the last invalidation.
    const NEEDS_INVALIDATIONS: bool = false;

    /// A segment was opened.
    fn opened(&mut self, segments: &Segments, segment: SegmentId);

    /// An open segment was sealed.
    fn sealed(&mut self, segments: &Segments, segment: SegmentId);

    /// A sealed segment has lost one valid page; its count is lowered already.
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId);

    /// A sealed segment was taken for cleaning; called before its state changes.
    fn taken(&mut self, segments: &Segments, segment: SegmentId);

    /// The victim now, if there is a candidate.
    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId>;
}

/// How greedy chooses among segments with equally few valid pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// The lowest segment number (a scan with strict `<`; what the FMS tables need).
    Index,
    /// The segment that was opened first.
    Oldest,
}

impl Tie {
    pub(crate) const NAMES: &'static [(&'static str, Self)] = &[("index", Self::Index), ("oldest", Self::Oldest)];
}

/// What the age in cost-benefit is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeOf {
    /// The opening of the segment.
    Opened,
    /// The last invalidation of a page in it (the text of the papers, read literally).
    Invalidated,
}

impl AgeOf {
    pub(crate) const NAMES: &'static [(&'static str, Self)] =
        &[("opened", Self::Opened), ("invalidated", Self::Invalidated)];
}

/// A selection policy with its parameters, as the registry reads and prints it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum SelectionSpec {
    Greedy { tie: Tie },
    CostBenefit { age: AgeOf, shape: Shape, scale: Scale },
    Cat { shape: Shape, scale: Scale },
    Fifo,
    Random,
    DChoices { d: u32 },
    WindowedGreedy { window_ratio: f64 },
}

impl fmt::Display for SelectionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::spec::name_of;
        match *self {
            Self::Greedy { tie: Tie::Index } => f.write_str("greedy"),
            Self::Greedy { tie } => write!(f, "greedy:tie={}", name_of(&tie, Tie::NAMES)),
            Self::CostBenefit { age, shape, scale } => {
                let age = if age == AgeOf::Opened { "" } else { &format!("age={},", name_of(&age, AgeOf::NAMES)) };
                write!(f, "cost-benefit:{age}shape={},scale={scale}", name_of(&shape, Shape::NAMES))
            }
            Self::Cat { shape, scale } => write!(f, "cat:shape={},scale={scale}", name_of(&shape, Shape::NAMES)),
            Self::Fifo => f.write_str("fifo"),
            Self::Random => f.write_str("random"),
            Self::DChoices { d } => write!(f, "d-choices:d={d}"),
            Self::WindowedGreedy { window_ratio } => write!(f, "windowed-greedy:window={window_ratio}"),
        }
    }
}

/// Candidates in a row per valid count, each row sorted by the order of opening, but fully invalid ones by
/// segment number (a scan finds the first of many equal ones; FMS sequential needs it).
#[derive(Clone, Debug)]
pub(crate) struct OpenBuckets {
    pub order: OpenOrder,
    /// Rows 1 to data_pages by column of `order`; row 0 holds every candidate.
    bits: BucketBits,
    /// Fully invalid segments by number.
    empty: BucketBits,
    /// No row below this has a bit.
    lowest: u32,
}

impl OpenBuckets {
    pub fn new(segments: u32, data_pages: u32) -> Self {
        let order = OpenOrder::new(segments);
        let bits = BucketBits::new(data_pages as usize + 1, order.columns());
        Self { order, bits, empty: BucketBits::new(1, segments as usize), lowest: data_pages }
    }

    pub fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        if self.order.open(segment) {
            self.bits.clear_all();
            for id in segments.ids().filter(|id| segments.state[id.index()] == crate::State::Sealed) {
                self.sealed(segments, id);
            }
        }
    }

    pub fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        let (valid, column) = (segments.valid[segment.index()], self.order.column(segment));
        if valid < segments.data_pages {
            self.bits.set(0, column);
        }
        self.put(valid, segment, column);
    }

    #[inline]
    fn put(&mut self, valid: u32, segment: SegmentId, column: u32) {
        if valid == 0 {
            self.empty.set(0, segment.0);
        } else {
            self.bits.set(valid, column);
            self.lowest = self.lowest.min(valid);
        }
    }

    #[inline]
    pub fn invalidated(&mut self, segments: &Segments, segment: SegmentId) {
        let (valid, column) = (segments.valid[segment.index()], self.order.column(segment));
        self.bits.clear(valid + 1, column);
        if valid + 1 == segments.data_pages {
            self.bits.set(0, column);
        }
        self.put(valid, segment, column);
    }

    pub fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        let (valid, column) = (segments.valid[segment.index()], self.order.column(segment));
        self.bits.clear(0, column);
        if valid == 0 {
            self.empty.clear(0, segment.0);
        } else {
            self.bits.clear(valid, column);
        }
        self.order.release(segment);
    }

    /// The fully invalid segment with the lowest number.
    pub fn first_empty(&self) -> Option<SegmentId> {
        self.empty.first(0).map(SegmentId)
    }

    /// The lowest row of at least 1 that holds a candidate.
    pub fn lowest(&mut self, data_pages: u32) -> u32 {
        while self.lowest < data_pages && self.bits.is_empty(self.lowest) {
            self.lowest += 1;
        }
        self.lowest
    }

    /// The oldest segment with this many valid pages.
    pub fn first(&self, valid: u32) -> Option<u32> {
        self.bits.first(valid)
    }

    /// The oldest candidate.
    pub fn oldest(&self) -> Option<SegmentId> {
        self.bits.first(0).map(|column| self.order.segment(column))
    }
}

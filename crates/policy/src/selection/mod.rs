//! Selection: which segment is the next victim. One file per policy, one row in `SELECTIONS`.

mod cat;
mod cost_benefit;
mod cost_hotness;
mod d_choices;
mod fifo;
mod greedy;
mod grouped;
mod lifetime;
mod multilog;
mod windowed;

pub use cat::Cat;
pub use cost_benefit::{AgeOf, CostBenefit, CostBenefitLists};
pub use d_choices::DChoices;
pub use fifo::Fifo;
pub use greedy::{Greedy, GreedyOldest};
pub use windowed::WindowedGreedy;

use crate::age::Now;
use crate::index::{BucketBits, OpenOrder};
use crate::segments::{Segments, Sizing};
use crate::spec::{Args, PolicyKind, Row, Spec};
use alloc::boxed::Box;
use core::fmt;
use margay_flash::SegmentId;

/// All selection policies.
#[rustfmt::skip] // one row a line
static SELECTIONS: &[Row<SelectionBuild>] = &[
    greedy::ROW,
    cost_benefit::ROW,
    cat::ROW,
    fifo::ROW,
    d_choices::RANDOM,
    d_choices::ROW,
    windowed::ROW,
    cost_hotness::ROW,
    multilog::ROW,
    lifetime::ROW,
    grouped::ROW,
];

/// A selection policy. The engine tells it of every event that can change its answer.
///
/// A *candidate* is a sealed segment with at least one invalid page. The victim is always a candidate, and there is a
/// victim whenever there is a candidate.
pub trait Selection: fmt::Debug + Send {
    /// Whether [`Segments`] has to keep the time of each segment's last invalidation.
    fn needs_invalidations(&self) -> bool {
        false
    }

    /// A segment was opened.
    fn opened(&mut self, segments: &Segments, segment: SegmentId);

    /// An open segment was sealed.
    fn sealed(&mut self, segments: &Segments, segment: SegmentId);

    /// A sealed segment has lost one valid page; `valid` are left. This is the only call for each host write.
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32);

    /// Sealed segments have lost one valid page for each entry, in this order: the segment, and how many were left. One
    /// call for many host writes; `segments` is the account after the last of them.
    fn invalidated_run(&mut self, segments: &Segments, run: &[(SegmentId, u32)]) {
        run.iter().for_each(|(segment, valid)| self.invalidated(segments, *segment, *valid));
    }

    /// A sealed segment becomes a victim of cleaning or leveling. Called before its state changes.
    fn taken(&mut self, segments: &Segments, segment: SegmentId);

    /// The victim at this moment; `None` if there is no candidate.
    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId>;

    /// Called after each choice of a victim, before anything else changes the account. A policy that shows arrays of the
    /// account to a program, which may go on reading them, leaves those arrays to it and puts copies in their place.
    fn chosen(&mut self, _segments: &mut Segments) {}

    /// Mean number of index entries that a selection looked at so far. Only policies without a bound below a full scan
    /// count it.
    fn lookups_per_selection(&self) -> Option<f64> {
        None
    }
}

/// The rule of a selection as a key of a segment: the candidate with the smallest key is the victim. A full scan by
/// this key ([`crate::scan::Scan`]) is what the fast index is tested against.
pub type ScanKey = fn(&Args, Sizing, &Segments, SegmentId, Now) -> (f64, u64);

/// How a selection policy is built.
#[derive(Clone, Copy, Debug)]
pub struct SelectionBuild {
    /// Builds the policy for a device of the given size.
    pub new: fn(&Args, Sizing) -> Box<dyn Selection>,
    /// Its rule as a key, if its answer depends on the segments alone.
    pub scan: Option<ScanKey>,
}

/// The table of selection policies.
#[derive(Debug)]
pub enum SelectionKind {}

impl PolicyKind for SelectionKind {
    const WHAT: &'static str = "selection policy";
    const USUAL: &'static [&'static str] = &["greedy", "cost-benefit", "cat", "lifetime"];
    type Build = SelectionBuild;

    fn rows() -> impl Iterator<Item = &'static Row<SelectionBuild>> + Clone {
        SELECTIONS.iter()
    }
}

/// A selection policy with its parameters.
///
/// ```
/// use margay_policy::SelectionSpec;
///
/// let selection: SelectionSpec = "cost-benefit:age=invalidated".parse()?;
/// assert_eq!(selection.name(), "cost-benefit");
/// // What it is printed as can be parsed again, and names the parameters that are not the usual ones.
/// assert_eq!(selection.to_string().parse(), Ok(selection));
/// // An unknown name is an error that lists the known ones.
/// let error = "greediest".parse::<SelectionSpec>().unwrap_err();
/// assert!(error.to_string().contains("greedy"));
/// # Ok::<(), margay_policy::SpecError>(())
/// ```
pub type SelectionSpec = Spec<SelectionKind>;

impl SelectionSpec {
    /// Builds the policy for a device of the given size.
    pub fn build(&self, sizing: Sizing) -> Box<dyn Selection> {
        (self.row().build.new)(&self.args(), sizing)
    }
}

/// Candidates in one row of bits for each number of valid pages, each row in the order of opening. Fully invalid
/// segments are in the order of segment numbers instead, as a scan finds the first of many equal ones; the published
/// results of FMS with m1 depend on it.
#[derive(Clone, Debug)]
pub(crate) struct OpenBuckets {
    pub order: OpenOrder,
    /// Rows 1 to data_pages by column of `order`; row 0 holds every candidate.
    bits: BucketBits,
    /// Fully invalid segments by segment number.
    empty: BucketBits,
    /// No row below this one has a bit set.
    lowest: u32,
}

impl OpenBuckets {
    pub fn new(segments: u32, data_pages: u32) -> Self {
        let order = OpenOrder::new(segments);
        let bits = BucketBits::new(data_pages as usize + 1, order.columns());
        Self { order, bits, empty: BucketBits::new(1, segments as usize), lowest: data_pages }
    }

    /// Gives the segment the next column. True if that took renumbering, so that all sealed segments were entered anew.
    pub fn opened(&mut self, segments: &Segments, segment: SegmentId) -> bool {
        let moved = self.order.open(segment);
        if moved {
            self.bits.clear_all();
            for id in segments.ids().filter(|id| segments.state[id.index()] == crate::State::Sealed) {
                self.sealed(segments, id);
            }
        }
        moved
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

    #[inline(always)]
    pub fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        let column = self.order.column(segment);
        self.bits.clear(valid + 1, column);
        if valid + 1 == segments.data_pages {
            self.bits.set(0, column);
        }
        self.put(valid, segment, column);
    }

    pub fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        self.remove(segments, segment);
        self.order.release(segment);
    }

    /// Takes a sealed segment out of the rows; it keeps its column.
    pub fn remove(&mut self, segments: &Segments, segment: SegmentId) {
        let (valid, column) = (segments.valid[segment.index()], self.order.column(segment));
        self.bits.clear(0, column);
        if valid == 0 {
            self.empty.clear(0, segment.0);
        } else {
            self.bits.clear(valid, column);
        }
    }

    /// The fully invalid segment with the lowest number.
    pub fn first_empty(&self) -> Option<SegmentId> {
        self.empty.first(0).map(SegmentId)
    }

    /// The lowest row, from 1 on, that holds a candidate.
    pub fn lowest(&mut self, data_pages: u32) -> u32 {
        while self.lowest < data_pages && self.bits.is_empty(self.lowest) {
            self.lowest += 1;
        }
        self.lowest
    }

    /// The column of the oldest segment with this many valid pages.
    pub fn first(&self, valid: u32) -> Option<u32> {
        self.bits.first(valid)
    }

    /// The oldest candidate.
    pub fn oldest(&self) -> Option<SegmentId> {
        self.bits.first(0).map(|column| self.order.segment(column))
    }
}

use super::{Selection, SelectionBuild};
use crate::age::Now;
use crate::index::{MinTree, OpenOrder};
use crate::segments::{Segments, Sizing, State};
use crate::spec::{Args, Parameter, Row};
use alloc::boxed::Box;
use margay_flash::SegmentId;

/// The row of greedy.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "greedy",
    summary: "fewest valid pages",
    parameters: &[Parameter::choice("tie", Tie::NAMES, "which of equal segments")],
    source: "Rosenblum and Ousterhout 1992; FMS J sec. 2",
    build: SelectionBuild {
        new: |args, sizing| match args.choice("tie", &Tie::ALL) {
            Tie::Index => Box::new(Greedy::new(sizing)),
            Tie::Oldest => Box::new(GreedyOldest::new(sizing)),
        },
        scan: Some(scan_key),
    },
};

fn scan_key(args: &Args, _: Sizing, segments: &Segments, id: SegmentId, _: Now) -> (f64, u64) {
    let order = match args.choice("tie", &Tie::ALL) {
        Tie::Index => id.0.into(),
        Tie::Oldest => segments.opened_sequence[id.index()],
    };
    (segments.valid[id.index()].into(), order)
}

/// How greedy chooses among segments with equally few valid pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    /// The lowest segment number (a scan with strict `<`; what the FMS tables need).
    Index,
    /// The segment that was opened first.
    Oldest,
}

impl Tie {
    const ALL: [Self; 2] = [Self::Index, Self::Oldest];
    const NAMES: &'static [&'static str] = &["index", "oldest"];
}

/// Greedy: the candidate with the fewest valid pages.
///
/// Source: J sec. 2; Rosenblum and Ousterhout 1992. Ties: the lowest segment number.
///
/// A tree of minima over the valid counts: an invalidation is one store and one comparison unless the segment
/// has become the emptiest of its eight; a selection walks one path down, at most 8 comparisons for each factor
/// of 8 in the number of segments, once per cleaning.
#[derive(Clone, Debug)]
pub struct Greedy {
    valid: MinTree,
}

impl Greedy {
    /// For a device of the given numbers.
    pub fn new(sizing: Sizing) -> Self {
        Self { valid: MinTree::new(sizing.segments as usize) }
    }
}

impl Selection for Greedy {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.valid.lower(segment.index(), segments.valid[segment.index()]);
    }

    #[inline]
    fn invalidated(&mut self, _: &Segments, segment: SegmentId, valid: u32) {
        self.valid.lower(segment.index(), valid);
    }

    fn taken(&mut self, _: &Segments, segment: SegmentId) {
        self.valid.set(segment.index(), u32::MAX);
    }

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        if self.valid.minimum() >= segments.data_pages {
            return None;
        }
        Some(SegmentId(self.valid.first()? as u32))
    }
}

/// [`Greedy`] with the segment that was opened first among those with equally few valid pages.
#[derive(Clone, Debug)]
pub struct GreedyOldest {
    /// By column of `order`.
    valid: MinTree,
    order: OpenOrder,
}

impl GreedyOldest {
    /// For a device of the given numbers.
    pub fn new(sizing: Sizing) -> Self {
        let order = OpenOrder::new(sizing.segments);
        Self { valid: MinTree::new(order.columns()), order }
    }
}

impl Selection for GreedyOldest {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        if self.order.open(segment) {
            self.valid.clear();
            for id in segments.ids().filter(|id| segments.state[id.index()] == State::Sealed) {
                self.sealed(segments, id);
            }
        }
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.valid.lower(self.order.column(segment) as usize, segments.valid[segment.index()]);
    }

    #[inline]
    fn invalidated(&mut self, _: &Segments, segment: SegmentId, valid: u32) {
        self.valid.lower(self.order.column(segment) as usize, valid);
    }

    fn taken(&mut self, _: &Segments, segment: SegmentId) {
        self.valid.set(self.order.column(segment) as usize, u32::MAX);
        self.order.release(segment);
    }

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        if self.valid.minimum() >= segments.data_pages {
            return None;
        }
        Some(self.order.segment(self.valid.first()? as u32))
    }
}

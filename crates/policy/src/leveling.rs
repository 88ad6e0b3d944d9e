//! Leveling: keeping the erase counts of segments close to each other. One row per policy in `LEVELINGS`.

use crate::index::MinTree;
use crate::segments::Segments;
use crate::spec::{Args, Parameter, PolicyKind, Row, Spec};
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::SegmentId;

/// All leveling policies; the first does nothing.
static LEVELINGS: &[Row<LevelingBuild>] = &[
    Row { name: "none", summary: "no leveling", parameters: &[], source: "", build: |_, _| None },
    Row {
        name: "swap",
        summary: "give the data of the least-worn segment to one that was erased often, near the end of life",
        parameters: &[
            Parameter::number("from", 90_000, 1..=u32::MAX, "erases of a segment from which it is swapped"),
            Parameter::number("rest", 1000, 1..=u32::MAX, "erases of a segment before it is swapped again"),
            Parameter::number("gap", 10, 1..=u32::MAX, "smallest difference of erase counts that is worth a swap"),
        ],
        source: "FMS J sec. 3; each segment once in `rest` of its erases, because a literal swap has no end",
        build: |args, segments| {
            let (from, rest, gap) = (args.number("from"), args.number("rest"), args.number("gap"));
            let never = vec![0; segments as usize];
            let (fresh, gives_from) = (LeastWorn::new(segments), never.clone());
            Some(Box::new(Swap { fresh, from, rest, gap, takes_from: never, gives_from }))
        },
    },
    Row {
        name: "threshold",
        summary: "relocate the data of the least-worn segment when erase counts spread too far",
        parameters: &[Parameter::number("spread", 100, 1..=u32::MAX, "largest spread left alone")],
        source: "static leveling, e.g. Chang and Kuo 2002",
        build: |args, segments| {
            Some(Box::new(Threshold { fresh: LeastWorn::new(segments), spread: args.number("spread") }))
        },
    },
];

/// How a leveling policy is built for a device with this number of segments; `None` if it never does anything.
pub type LevelingBuild = fn(&Args, u32) -> Option<Box<dyn Leveling>>;

/// The table of leveling policies.
#[derive(Debug)]
pub enum LevelingKind {}

impl PolicyKind for LevelingKind {
    const WHAT: &'static str = "leveling policy";
    type Build = LevelingBuild;

    fn rows() -> impl Iterator<Item = &'static Row<LevelingBuild>> + Clone {
        LEVELINGS.iter()
    }
}

/// A leveling policy with its parameters. The default is no leveling.
pub type LevelingSpec = Spec<LevelingKind>;

impl LevelingSpec {
    /// Builds the policy for a device of `segments` segments; `None` if it never does anything.
    pub fn build(&self, segments: u32) -> Option<Box<dyn Leveling>> {
        (self.row().build)(&self.args(), segments)
    }
}

/// What the engine is to do after an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelAction {
    /// Nothing.
    Rest,
    /// Move the valid pages of this sealed segment, which is little worn, to the most-worn free segment and erase it:
    /// data that is hardly ever rewritten then rests on worn flash.
    Relocate(SegmentId),
    /// Move the valid pages of a sealed segment that is little worn to the segment that was just given free, which is
    /// worn, and erase it: the two have then changed places.
    Swap {
        /// The segment that was given free.
        worn: SegmentId,
        /// The segment with the fewest erases.
        fresh: SegmentId,
    },
}

/// A leveling policy. It is told of sealed segments and asked after each erase; nothing is called per page.
pub trait Leveling: fmt::Debug + Send {
    /// An open segment was sealed.
    fn sealed(&mut self, segments: &Segments, segment: SegmentId);

    /// A sealed segment was taken for cleaning or leveling.
    fn taken(&mut self, segment: SegmentId);

    /// What to do now that a segment was cleaned and given free.
    fn after_erase(&mut self, segments: &Segments, erased: SegmentId) -> LevelAction;
}

/// The sealed segments by erase count, the least worn first. O(log segments) per sealing and cleaning.
#[derive(Clone, Debug)]
struct LeastWorn(MinTree);

impl LeastWorn {
    fn new(segments: u32) -> Self {
        Self(MinTree::new(segments as usize))
    }

    fn insert(&mut self, segments: &Segments, segment: SegmentId) {
        // The key u32::MAX means absent.
        self.0.set(segment.index(), segments.erases[segment.index()].min(u32::MAX - 1));
    }

    fn remove(&mut self, segment: SegmentId) {
        self.0.set(segment.index(), u32::MAX);
    }

    /// The least-worn segment, if it has at least `gap` erases less than `erases`.
    fn first_below(&self, segments: &Segments, erases: u32, gap: u32) -> Option<SegmentId> {
        let first = self.0.first().map(|at| SegmentId(at as u32))?;
        (erases.saturating_sub(segments.erases[first.index()]) >= gap).then_some(first)
    }
}

/// Static leveling: when the most-worn segment has `spread` erases more than the least-worn sealed one, the data of
/// the latter is relocated to the most-worn free segment.
#[derive(Clone, Debug)]
struct Threshold {
    fresh: LeastWorn,
    spread: u32,
}

impl Leveling for Threshold {
    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.fresh.insert(segments, segment);
    }

    fn taken(&mut self, segment: SegmentId) {
        self.fresh.remove(segment);
    }

    fn after_erase(&mut self, segments: &Segments, _: SegmentId) -> LevelAction {
        let fresh = self.fresh.first_below(segments, segments.max_erases, self.spread.saturating_add(1));
        fresh.map_or(LevelAction::Rest, LevelAction::Relocate)
    }
}

/// The papers' swap of a worn segment and the least-worn one near the end of life (J sec. 3). Taken literally, the most-
/// and the least-worn segment would be swapped after each erase for ever, because the least-worn one soon holds hot data
/// (spec sec. 3). So a segment takes the data of another one when it was erased and has `from` erases itself, and of the two
/// none does so again before it has `rest` erases more. Nor is the other one, which gets hot data, chosen again before that
/// for what it holds; the one with the cold data may be, when others are worn more.
#[derive(Clone, Debug)]
struct Swap {
    /// Those that may be swapped.
    fresh: LeastWorn,
    from: u32,
    rest: u32,
    gap: u32,
    /// The erases of each segment from which it may take the data of another one.
    takes_from: Vec<u32>,
    /// The erases of each segment from which its data may be given to another one.
    gives_from: Vec<u32>,
}

impl Leveling for Swap {
    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        if segments.erases[segment.index()] >= self.gives_from[segment.index()] {
            self.fresh.insert(segments, segment);
        }
    }

    fn taken(&mut self, segment: SegmentId) {
        self.fresh.remove(segment);
    }

    fn after_erase(&mut self, segments: &Segments, erased: SegmentId) -> LevelAction {
        let erases = segments.erases[erased.index()];
        if erases < self.from || erases < self.takes_from[erased.index()] {
            return LevelAction::Rest;
        }
        let Some(fresh) = self.fresh.first_below(segments, erases, self.gap) else { return LevelAction::Rest };
        let rested = |segment: SegmentId| segments.erases[segment.index()].saturating_add(self.rest);
        for segment in [erased, fresh] {
            self.takes_from[segment.index()] = rested(segment);
        }
        self.gives_from[fresh.index()] = rested(fresh);
        LevelAction::Swap { worn: erased, fresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::State;

    /// A leveling policy on a device whose segments have these erase counts, and are sealed but for the first.
    fn leveling(spec: &str, erases: &[u32]) -> (Box<dyn Leveling>, Segments) {
        let mut segments = Segments::new(erases.len() as u32, 4, false);
        let mut leveling = spec.parse::<LevelingSpec>().unwrap().build(erases.len() as u32).unwrap();
        for (segment, count) in segments.ids().zip(erases) {
            segments.erases[segment.index()] = *count;
            segments.max_erases = segments.max_erases.max(*count);
            if segment.0 > 0 {
                segments.state[segment.index()] = State::Sealed;
                leveling.sealed(&segments, segment);
            }
        }
        (leveling, segments)
    }

    /// What is done after the erase of the first segment.
    fn action(spec: &str, erases: &[u32]) -> LevelAction {
        let (mut leveling, segments) = leveling(spec, erases);
        leveling.after_erase(&segments, SegmentId(0))
    }

    const SWAP: LevelAction = LevelAction::Swap { worn: SegmentId(0), fresh: SegmentId(1) };

    #[test]
    fn erase_counts_at_their_end_are_counts_like_others() {
        assert_eq!(action("swap:from=5", &[u32::MAX, 7, 9]), SWAP);
        assert_eq!(action("swap:from=5,gap=1", &[u32::MAX, u32::MAX - 2, u32::MAX - 1]), SWAP);
        assert_eq!(action("swap:from=5,gap=1", &[u32::MAX; 3]), LevelAction::Rest);
        assert_eq!(action("threshold:spread=5", &[u32::MAX, 7, u32::MAX]), LevelAction::Relocate(SegmentId(1)));
        assert_eq!(action("threshold:spread=5", &[u32::MAX; 3]), LevelAction::Rest);
    }

    #[test]
    fn only_a_segment_that_is_worn_itself_is_swapped_and_only_for_one_that_is_worn_much_less() {
        assert_eq!(action("swap:from=30,gap=10", &[30, 20, 99]), SWAP);
        assert_eq!(action("swap:from=30,gap=10", &[29, 5, 99]), LevelAction::Rest, "another one is worn");
        assert_eq!(action("swap:from=30,gap=10", &[30, 21, 99]), LevelAction::Rest, "the difference is small");
    }

    #[test]
    fn a_segment_is_swapped_once_in_so_many_of_its_erases() {
        let (mut leveling, mut segments) = leveling("swap:from=30,rest=5,gap=10", &[30, 3, 12, 40, 40]);
        let after_erase = |leveling: &mut Box<dyn Leveling>, segments: &Segments, worn: u32| {
            leveling.taken(SegmentId(worn));
            match leveling.after_erase(segments, SegmentId(worn)) {
                LevelAction::Swap { fresh, .. } => {
                    leveling.taken(fresh);
                    Some(fresh.0)
                }
                _ => None,
            }
        };
        assert_eq!(after_erase(&mut leveling, &segments, 0), Some(1));
        // The least-worn segment holds hot data now, and is erased and sealed again soon.
        segments.erases[1] = 7;
        leveling.sealed(&segments, SegmentId(1));
        assert_eq!(after_erase(&mut leveling, &segments, 3), Some(2));
        segments.erases[1] = 8;
        leveling.sealed(&segments, SegmentId(1));
        assert_eq!(after_erase(&mut leveling, &segments, 4), Some(1));
        // And so of the worn one.
        segments.erases[2] = 17;
        leveling.sealed(&segments, SegmentId(2));
        for erases in 31..=35 {
            segments.erases[0] = erases;
            let swapped = after_erase(&mut leveling, &segments, 0);
            assert_eq!(swapped, (erases == 35).then_some(2), "{erases} erases");
        }
    }
}

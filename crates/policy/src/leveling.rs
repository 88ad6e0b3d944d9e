//! Leveling: keeping the erase counts of segments close to each other. One row per policy in `LEVELINGS`.

use crate::index::MinTree;
use crate::segments::{Segments, State};
use crate::spec::{Args, Parameter, PolicyKind, Row, Spec};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;
use margay_flash::SegmentId;

/// All leveling policies; the first does nothing.
static LEVELINGS: &[Row<LevelingBuild>] = &[
    Row { name: "none", summary: "no leveling", parameters: &[], source: "", build: |_, _| None },
    Row {
        name: "swap",
        summary: "swap the data of the most- and least-worn segments near the end of life",
        parameters: &[
            Parameter::number("from", 90_000, 1..=u32::MAX, "erase count from which segments are swapped"),
            Parameter::number("rest", 1000, 1..=u32::MAX, "erases of the device before a segment is swapped again"),
        ],
        source: "FMS J sec. 3; bounded as in the spec",
        build: |args, segments| {
            let (worn, resting) = (Worn::new(segments), VecDeque::new());
            Some(Box::new(Swap { worn, resting, from: args.number("from"), rest: args.number("rest") }))
        },
    },
    Row {
        name: "threshold",
        summary: "relocate the data of the least-worn segment when erase counts spread too far",
        parameters: &[Parameter::number("spread", 100, 1..=u32::MAX, "largest spread left alone")],
        source: "static leveling, e.g. Chang and Kuo 2002",
        build: |args, segments| Some(Box::new(Threshold { worn: Worn::new(segments), spread: args.number("spread") })),
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
    /// Exchange the data of the most-worn and the least-worn sealed segments.
    Swap {
        /// The segment with the most erases.
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

    /// What to do now that a segment was erased.
    fn after_erase(&mut self, segments: &Segments) -> LevelAction;
}

/// Sealed segments by erase count. O(log segments) per sealing and cleaning.
#[derive(Clone, Debug)]
struct Worn {
    least_worn: MinTree,
    /// Keys are complements of the erase counts.
    most_worn: MinTree,
}

impl Worn {
    fn new(segments: u32) -> Self {
        Self { least_worn: MinTree::new(segments as usize), most_worn: MinTree::new(segments as usize) }
    }

    fn insert(&mut self, segments: &Segments, segment: SegmentId) {
        // The key u32::MAX means absent.
        let erases = segments.erases[segment.index()].min(u32::MAX - 1);
        self.least_worn.set(segment.index(), erases);
        self.most_worn.set(segment.index(), u32::MAX - 1 - erases);
    }

    fn remove(&mut self, segment: SegmentId) {
        self.least_worn.set(segment.index(), u32::MAX);
        self.most_worn.set(segment.index(), u32::MAX);
    }
}

/// Static leveling: when the most-worn segment has `spread` erases more than the least-worn sealed one, the data of
/// the latter is relocated to the most-worn free segment.
#[derive(Clone, Debug)]
struct Threshold {
    worn: Worn,
    spread: u32,
}

impl Leveling for Threshold {
    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.worn.insert(segments, segment);
    }

    fn taken(&mut self, segment: SegmentId) {
        self.worn.remove(segment);
    }

    fn after_erase(&mut self, segments: &Segments) -> LevelAction {
        match self.worn.least_worn.first() {
            Some(at) if segments.max_erases.saturating_sub(segments.erases[at]) > self.spread => {
                LevelAction::Relocate(SegmentId(at as u32))
            }
            _ => LevelAction::Rest,
        }
    }
}

/// The papers' swap of the most- and the least-worn segment near the end of life (J sec. 3): once some segment has
/// `from` erases, after each erase. Taken literally the same pair would be swapped for ever (spec sec. 3), so a
/// swapped segment rests for `rest` erases of the device.
#[derive(Clone, Debug)]
struct Swap {
    worn: Worn,
    from: u32,
    rest: u32,
    /// Segments that were swapped, with the erase of the device at which they may be swapped again.
    resting: VecDeque<(u64, SegmentId)>,
}

impl Swap {
    fn wake(&mut self, segments: &Segments) {
        while let Some((until, segment)) = self.resting.front().copied() {
            if until > segments.total_erases {
                return;
            }
            self.resting.pop_front();
            if segments.state[segment.index()] == State::Sealed {
                self.worn.insert(segments, segment);
            }
        }
    }
}

impl Leveling for Swap {
    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        if !self.resting.iter().any(|(_, resting)| *resting == segment) {
            self.worn.insert(segments, segment);
        }
    }

    fn taken(&mut self, segment: SegmentId) {
        self.worn.remove(segment);
    }

    fn after_erase(&mut self, segments: &Segments) -> LevelAction {
        if segments.max_erases < self.from {
            return LevelAction::Rest;
        }
        self.wake(segments);
        let (Some(fresh), Some(worn)) = (self.worn.least_worn.first(), self.worn.most_worn.first()) else {
            return LevelAction::Rest;
        };
        if segments.erases[worn].saturating_sub(segments.erases[fresh]) <= 1 {
            return LevelAction::Rest;
        }
        let (fresh, worn) = (SegmentId(fresh as u32), SegmentId(worn as u32));
        for segment in [fresh, worn] {
            self.resting.push_back((segments.total_erases + u64::from(self.rest), segment));
        }
        LevelAction::Swap { worn, fresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done on a device whose sealed segments have these erase counts.
    fn action(spec: &str, erases: &[u32]) -> LevelAction {
        let mut segments = Segments::new(erases.len() as u32, 4, false);
        let mut leveling = spec.parse::<LevelingSpec>().unwrap().build(erases.len() as u32).unwrap();
        for (segment, count) in segments.ids().zip(erases) {
            (segments.state[segment.index()], segments.erases[segment.index()]) = (State::Sealed, *count);
            segments.max_erases = segments.max_erases.max(*count);
            leveling.sealed(&segments, segment);
        }
        leveling.after_erase(&segments)
    }

    #[test]
    fn erase_counts_at_their_end_are_counts_like_others() {
        let swap = LevelAction::Swap { worn: SegmentId(1), fresh: SegmentId(0) };
        assert_eq!(action("swap:from=5", &[7, u32::MAX, 9]), swap);
        assert_eq!(action("swap:from=5", &[u32::MAX - 2, u32::MAX, u32::MAX - 1]), swap);
        assert_eq!(action("swap:from=5", &[u32::MAX; 3]), LevelAction::Rest);
        assert_eq!(action("threshold:spread=5", &[u32::MAX, 7, u32::MAX]), LevelAction::Relocate(SegmentId(1)));
        assert_eq!(action("threshold:spread=5", &[u32::MAX; 3]), LevelAction::Rest);
    }
}

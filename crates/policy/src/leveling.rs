//! Leveling: keeping the erase counts of segments close to each other.

use crate::index::MinTree;
use crate::segments::{Segments, State};
use alloc::collections::VecDeque;
use core::fmt;
use margay_flash::SegmentId;

/// What the engine shall do after an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelAction {
    /// Nothing.
    Rest,
    /// Move the valid pages of a little-worn sealed segment to the most-worn free segment and erase it, so that
    /// the data that kept it unworn rests on worn flash.
    Relocate(SegmentId),
    /// Exchange the data of the most-worn and the least-worn sealed segments.
    Swap {
        /// The segment with the most erases.
        worn: SegmentId,
        /// The segment with the fewest erases.
        fresh: SegmentId,
    },
}

/// A leveling policy with its parameters, as the registry reads and prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelingSpec {
    /// No leveling.
    None,
    /// The papers' swap of the most- and the least-worn segment near the end of life (J sec. 3): once some
    /// segment has `from` erases, after each erase. Taken literally the same pair would be swapped for ever
    /// (spec sec. 3), so a swapped segment rests for `rest` erases of the device.
    Swap {
        /// Erase count of the most-worn segment from which on segments are swapped.
        from: u32,
        /// Erases of the device during which a swapped segment is not swapped again.
        rest: u32,
    },
    /// Static leveling: when the most-worn segment has `spread` erases more than the least-worn sealed one,
    /// the data of the latter is relocated to the most-worn free segment.
    Threshold {
        /// Largest difference of erase counts that is left alone.
        spread: u32,
    },
}

impl fmt::Display for LevelingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Swap { from, rest } => write!(f, "swap:from={from},rest={rest}"),
            Self::Threshold { spread } => write!(f, "threshold:spread={spread}"),
        }
    }
}

/// A leveling policy at work. O(log segments) per sealing and cleaning, nothing per page.
#[derive(Clone, Debug)]
pub struct Leveler {
    spec: LevelingSpec,
    /// Sealed segments by erase count, and by its complement.
    fewest: MinTree,
    most: MinTree,
    /// Segments that were swapped, with the erase of the device at which they may be swapped again.
    resting: VecDeque<(u64, SegmentId)>,
}

impl Leveler {
    /// For a device of `segments` segments.
    pub fn new(spec: LevelingSpec, segments: u32) -> Self {
        let len = if spec == LevelingSpec::None { 0 } else { segments as usize };
        Self { spec, fewest: MinTree::new(len), most: MinTree::new(len), resting: VecDeque::new() }
    }

    /// An open segment was sealed.
    pub fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        if self.spec != LevelingSpec::None && !self.resting.iter().any(|(_, s)| *s == segment) {
            self.list(segment, segments.erases[segment.index()]);
        }
    }

    /// A sealed segment was taken for cleaning or leveling.
    pub fn taken(&mut self, segment: SegmentId) {
        if self.spec != LevelingSpec::None {
            self.fewest.set(segment.index(), u32::MAX);
            self.most.set(segment.index(), u32::MAX);
        }
    }

    /// What to do now that a segment was erased.
    pub fn after_erase(&mut self, segments: &Segments) -> LevelAction {
        match self.spec {
            LevelingSpec::None => LevelAction::Rest,
            LevelingSpec::Threshold { spread } => match self.fewest.first() {
                Some(at) if segments.max_erases - segments.erases[at] > spread => {
                    LevelAction::Relocate(SegmentId(at as u32))
                }
                _ => LevelAction::Rest,
            },
            LevelingSpec::Swap { from, rest } => {
                if segments.max_erases < from {
                    return LevelAction::Rest;
                }
                self.wake(segments);
                let (Some(fresh), Some(worn)) = (self.fewest.first(), self.most.first()) else {
                    return LevelAction::Rest;
                };
                if segments.erases[worn] <= segments.erases[fresh] + 1 {
                    return LevelAction::Rest;
                }
                let (fresh, worn) = (SegmentId(fresh as u32), SegmentId(worn as u32));
                for segment in [fresh, worn] {
                    self.resting.push_back((segments.total_erases + u64::from(rest), segment));
                }
                LevelAction::Swap { worn, fresh }
            }
        }
    }

    fn wake(&mut self, segments: &Segments) {
        while let Some((until, segment)) = self.resting.front().copied() {
            if until > segments.total_erases {
                return;
            }
            self.resting.pop_front();
            if segments.state[segment.index()] == State::Sealed {
                self.list(segment, segments.erases[segment.index()]);
            }
        }
    }

    fn list(&mut self, segment: SegmentId, erases: u32) {
        self.fewest.set(segment.index(), erases);
        self.most.set(segment.index(), u32::MAX - 1 - erases);
    }
}

use super::{Selection, SelectionBuild};
use crate::age::Now;
use crate::segments::{Segments, Sizing};
use crate::spec::{Parameter, Row};
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The row of random selection.
pub(super) const RANDOM: Row<SelectionBuild> = Row {
    name: "random",
    summary: "uniformly among sealed segments",
    parameters: &[],
    source: "Van Houdt 2013, d = 1",
    build: SelectionBuild { new: |_, sizing| Box::new(DChoices::new(sizing, 1)), scan: None },
};

/// The row of d-choices.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "d-choices",
    summary: "fewest valid pages among d drawn at random",
    parameters: &[Parameter::number("d", 30, 1..=100_000, "segments drawn")],
    source: "Van Houdt 2013",
    build: SelectionBuild { new: |args, sizing| Box::new(DChoices::new(sizing, args.number("d"))), scan: None },
};

/// d-choices: of d sealed segments drawn uniformly with replacement the one with the fewest valid pages;
/// with d = 1 this is random selection.
///
/// Source: Van Houdt 2013. Ties: the one drawn first. If none of the d has an invalid page the draw is
/// repeated (the mean field without this rule lets a fully valid victim through; only d = 1 notices). O(d).
#[derive(Clone, Debug)]
pub struct DChoices {
    d: u32,
    sealed: Vec<SegmentId>,
    place: Vec<u32>,
    candidates: u32,
    generator: Xoshiro256PlusPlus,
}

impl DChoices {
    /// After this many repeated draws a scan finds one of the few candidates.
    const REDRAWS: u32 = 1000;

    /// The policy for a device of the given size. Draws are seeded by `sizing.seed`.
    pub fn new(sizing: Sizing, d: u32) -> Self {
        Self {
            d,
            sealed: Vec::with_capacity(sizing.segments as usize),
            place: vec![0; sizing.segments as usize],
            candidates: 0,
            generator: Xoshiro256PlusPlus::seed_from_u64(sizing.seed),
        }
    }

    fn draw(&mut self) -> SegmentId {
        let random = self.generator.next_u64() >> 32;
        self.sealed[((random * self.sealed.len() as u64) >> 32) as usize]
    }
}

impl Selection for DChoices {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.place[segment.index()] = self.sealed.len() as u32;
        self.sealed.push(segment);
        self.candidates += u32::from(segments.valid[segment.index()] < segments.data_pages);
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, _: SegmentId, valid: u32) {
        self.candidates += u32::from(valid + 1 == segments.data_pages);
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        let place = self.place[segment.index()] as usize;
        self.sealed.swap_remove(place);
        if let Some(moved) = self.sealed.get(place) {
            self.place[moved.index()] = place as u32;
        }
        self.candidates -= u32::from(segments.valid[segment.index()] < segments.data_pages);
    }

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        if self.candidates == 0 {
            return None;
        }
        for _ in 0..Self::REDRAWS {
            let mut best = self.draw();
            for _ in 1..self.d {
                let other = self.draw();
                if segments.valid[other.index()] < segments.valid[best.index()] {
                    best = other;
                }
            }
            if segments.is_candidate(best) {
                return Some(best);
            }
        }
        self.sealed.iter().copied().find(|segment| segments.is_candidate(*segment))
    }
}

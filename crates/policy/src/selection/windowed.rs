use super::{Greedy, Selection, SelectionBuild};
use crate::age::Now;
use crate::segments::{Segments, Sizing, State};
use crate::spec::{Parameter, Row};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of windowed greedy.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "windowed-greedy",
    summary: "fewest valid pages among the segments sealed first",
    parameters: &[Parameter::share("window", 0.75, "share of the segments that is looked at")],
    source: "Hu et al. 2009",
    build: SelectionBuild {
        new: |args, sizing| Box::new(WindowedGreedy::new(sizing, args.share("window"))),
        scan: None,
    },
};

/// Windowed greedy: greedy among the `window` segments that were sealed first.
///
/// Source: Hu et al. 2009; a window of one segment is FIFO, of all segments greedy. `window` is a share of the
/// device's segments. While no segment of the window has an invalid page, the window is extended by the next
/// one. Ties: the lowest segment number. O(1).
#[derive(Clone, Debug)]
pub struct WindowedGreedy {
    greedy: Greedy,
    window: u32,
    inside: u32,
    is_inside: Vec<bool>,
    /// Sealed segments that are not in the window yet, oldest first. Some may have been taken meanwhile; they are
    /// skipped.
    waiting: VecDeque<SegmentId>,
}

impl WindowedGreedy {
    /// The policy for a device of the given size and a window of `window_ratio` of its segments.
    pub fn new(sizing: Sizing, window_ratio: f64) -> Self {
        Self {
            greedy: Greedy::new(sizing),
            window: (window_ratio * f64::from(sizing.segments)).clamp(1.0, f64::from(sizing.segments)) as u32,
            inside: 0,
            is_inside: vec![false; sizing.segments as usize],
            waiting: VecDeque::with_capacity(sizing.segments as usize),
        }
    }

    /// Number of segments in the window now.
    pub fn inside(&self) -> u32 {
        self.inside
    }

    fn admit(&mut self, segments: &Segments) -> bool {
        while let Some(segment) = self.waiting.pop_front() {
            if segments.state[segment.index()] == State::Sealed && !self.is_inside[segment.index()] {
                self.is_inside[segment.index()] = true;
                self.inside += 1;
                self.greedy.sealed(segments, segment);
                return true;
            }
        }
        false
    }
}

impl Selection for WindowedGreedy {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.waiting.push_back(segment);
        while self.inside < self.window && self.admit(segments) {}
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        if self.is_inside[segment.index()] {
            self.greedy.invalidated(segments, segment, valid);
        }
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        if core::mem::replace(&mut self.is_inside[segment.index()], false) {
            self.greedy.taken(segments, segment);
            self.inside -= 1;
        } else {
            // Otherwise the segment could be sealed again before its old entry is skipped.
            self.waiting.retain(|waiting| *waiting != segment);
        }
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        while self.inside < self.window && self.admit(segments) {}
        loop {
            if let Some(segment) = self.greedy.select(segments, now) {
                return Some(segment);
            }
            if !self.admit(segments) {
                return None;
            }
        }
    }
}

//! Explicit cleaning, on request.

use crate::{Fs, FsError};
use alloc::vec::Vec;
use margay_flash::SegmentId;
use margay_format::Store;
use margay_log::Uniformity;
use margay_policy::State;

/// What an explicit cleaning cost, and the state before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExplicitCleaning {
    /// Utilization, invalidity and uniformity before.
    pub before: Uniformity,
    /// Valid pages before.
    pub valid_pages: u64,
    /// Segments erased.
    pub erases: u64,
    /// Pages copied.
    pub copies: u64,
}

impl<D: Store> Fs<D> {
    /// Cleans every segment that holds an invalid page now, the one with the most invalid pages first.
    pub fn clean_all(&mut self) -> Result<ExplicitCleaning, FsError> {
        self.begin()?;
        let before = self.log.uniformity();
        let valid_pages = self.log.segments().total_valid;
        self.log.seal_mixed()?;
        let segments = self.log.segments();
        let mut victims: Vec<(u32, SegmentId)> = segments
            .ids()
            .filter(|id| segments.state[id.index()] == State::Sealed)
            .map(|id| (segments.valid[id.index()], id))
            .filter(|(valid, _)| *valid < segments.data_pages)
            .collect();
        victims.sort();
        let counters = self.log.counters().clone();
        for (_, victim) in victims {
            self.log.clean_segment(&mut self.index, victim)?;
        }
        let done = self.log.counters().since(&counters);
        Ok(ExplicitCleaning { before, valid_pages, erases: done.erases, copies: done.copies })
    }

    /// The cleaning that YAFFS does in normal mode at a page write: of the next `window` segments from `from` on, the
    /// one with the fewest valid pages is cleaned if it has fewer than `fewer_than`. Returns where the next window
    /// begins.
    pub fn clean_window(&mut self, from: u32, window: u32, fewer_than: u32) -> Result<u32, FsError> {
        let segments = self.log.segments();
        let count = segments.len();
        let ids = (0..window.min(count)).map(|i| SegmentId((from + i) % count));
        let sealed = ids.filter(|id| segments.state[id.index()] == State::Sealed);
        let best = sealed.min_by_key(|id| segments.valid[id.index()]);
        if let Some(victim) = best.filter(|id| segments.valid[id.index()] < fewer_than) {
            self.log.clean_segment(&mut self.index, victim)?;
        }
        Ok((from + window) % count)
    }
}

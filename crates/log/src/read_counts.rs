//! Reads of segments since they were erased: reading a page very often wears on the others of its segment (read disturb).

use crate::Owner;
use crate::log::Log;
use alloc::vec;
use alloc::vec::Vec;
use margay_flash::{Ppn, SegmentId};
use margay_format::Store;
use margay_policy::State;

/// Counts since the log was made or restored; none are kept without a limit.
#[derive(Debug, Default)]
pub(crate) struct ReadCounts {
    /// Pages read of a segment, since its erase, from which on it is to be rewritten; 0 for never.
    max: u32,
    reads: Vec<u32>,
    /// Segments that have reached it.
    due: Vec<SegmentId>,
    rewritten: u64,
}

impl ReadCounts {
    #[inline]
    pub fn note(&mut self, segment: SegmentId, pages: u32) {
        if let Some(reads) = self.reads.get_mut(segment.index()) {
            let before = *reads;
            *reads = before.saturating_add(pages);
            if before < self.max && *reads >= self.max {
                self.due.push(segment);
            }
        }
    }

    /// The pages of a segment are gone.
    #[inline]
    pub fn erased(&mut self, segment: SegmentId) {
        if let Some(reads) = self.reads.get_mut(segment.index()) {
            *reads = 0;
            self.due.retain(|due| *due != segment);
        }
    }
}

impl<D: Store, O: Owner> Log<D, O> {
    /// From now on counts the pages that are read of each segment, and rewrites a segment in idle time once so many were read
    /// since its erase. 0 for never. Counts are not kept on flash.
    pub fn limit_reads(&mut self, max_reads: u32) {
        let segments = if max_reads == 0 { 0 } else { self.geometry.segments() as usize };
        let due = Vec::with_capacity(segments);
        self.reads = ReadCounts { max: max_reads, reads: vec![0; segments], due, rewritten: self.reads.rewritten };
    }

    /// How many segments were read so often that they were rewritten.
    pub fn rewritten_segments(&self) -> u64 {
        self.reads.rewritten
    }

    #[inline]
    pub(crate) fn note_reads(&mut self, first: Ppn, pages: u32) {
        if self.reads.max > 0 {
            // Pages that are read together follow each other, and mostly lie in one segment.
            for ppn in (first.0..first.0 + pages).map(Ppn) {
                self.reads.note(self.geometry.segment_of(ppn), 1);
            }
        }
    }

    /// Puts a segment that was read too often before others to be cleaned, unless one is being cleaned or room is short.
    pub(crate) fn clean_read_often(&mut self) {
        if self.reads.due.is_empty() || self.victim.is_some() || self.free.len() as u32 <= self.config.low_water {
            return;
        }
        let is_sealed = |id: &SegmentId| self.segments.state[id.index()] == State::Sealed;
        let Some(at) = self.reads.due.iter().position(is_sealed) else { return };
        let segment = self.reads.due.swap_remove(at);
        self.reads.reads[segment.index()] = 0;
        if !self.clean_first.contains(&segment) {
            self.reads.rewritten += 1;
            self.clean_first.push_back(segment);
        }
    }
}

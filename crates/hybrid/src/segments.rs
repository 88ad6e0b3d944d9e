//! Segments coming into use and going out of it.

use crate::hybrid::Stream;
use crate::{Hybrid, HybridError, Persistence};
use margay_flash::{FlashError, SegmentId};
use margay_format::{FreeSegment, Freed, SegmentInfo, Store};

impl<D: Store> Hybrid<D> {
    /// An erased segment that is begun. If there is none, the list of retired segments gives up its own.
    pub(crate) fn take_free(&mut self, stream: Stream) -> Result<SegmentId, HybridError> {
        match self.take_from_list(stream) {
            Err(HybridError::WornOut { .. }) if self.give_up_list() => self.take_from_list(stream),
            result => result,
        }
    }

    fn take_from_list(&mut self, stream: Stream) -> Result<SegmentId, HybridError> {
        let mut opening = self.free.opening();
        while let Some(mut free) = self.free.pop() {
            let error = match self.begin(&mut free, stream) {
                Ok(()) => return Ok(free.segment),
                Err(error) => error,
            };
            if self.free.put_back(free, error, &mut opening)? {
                self.counters.retired_segments += 1;
            }
        }
        Err(self.worn_out())
    }

    fn begin(&mut self, free: &mut FreeSegment, stream: Stream) -> Result<(), FlashError> {
        self.erase_if_needed(free)?;
        let info = SegmentInfo {
            erases: self.erases[free.segment.index()],
            total_erases: self.total_erases,
            stream: stream as u8,
            opened_us: 0,
            opened_writes: self.writes,
        };
        let begun = self.store.begin(free.segment, info);
        free.needs_erase |= begun.is_err();
        begun
    }

    /// Erases a segment that was taken out of the free ones, if it has to be erased before use.
    pub(crate) fn erase_if_needed(&mut self, free: &mut FreeSegment) -> Result<(), FlashError> {
        let info = self.info_after_erase(free.segment);
        if self.free.make_erased(&mut self.store, free, info)? {
            self.count_erase(free.segment, info);
        }
        Ok(())
    }

    /// Gives a segment free that holds nothing any more, or retires it. Also after an error it is one or the other.
    pub(crate) fn release(&mut self, segment: SegmentId) -> Result<(), HybridError> {
        if let Some(at) = self.retire_queue.iter().position(|other| *other == segment) {
            self.retire_queue.swap_remove(at);
            self.retire(segment);
            return Ok(());
        }
        // What replaces it must be durable before it goes, which is worth waiting for until it is needed.
        let waits = self.config.persistence == Persistence::Persistent && self.store.defers_erases();
        let info = self.info_after_erase(segment);
        match self.free.give(&mut self.store, segment, info, waits.then_some(self.seq))? {
            Freed::Erased => self.count_erase(segment, info),
            Freed::Waits => {}
            Freed::Retired => self.counters.retired_segments += 1,
        }
        Ok(())
    }

    /// A segment is not used any more.
    pub(crate) fn retire(&mut self, segment: SegmentId) {
        self.free.retire(segment);
        self.counters.retired_segments += 1;
    }

    /// What follows when a segment could not be filled with the pages of a block, none of which counts there: it is retired
    /// if a program failed for good, and then another one can be tried. After any other error it is free, and is erased
    /// before it is used.
    pub(crate) fn abandon(&mut self, segment: SegmentId, error: FlashError) -> Result<(), HybridError> {
        self.store.finish(segment, self.ppn(segment.0, self.pages))?;
        if matches!(error, FlashError::ProgramFailed { .. }) {
            self.retire(segment);
            return Ok(());
        }
        self.free.push(FreeSegment { segment, needs_erase: true, freed_seq: self.seq });
        Err(error.into())
    }

    fn info_after_erase(&self, segment: SegmentId) -> SegmentInfo {
        // A damaged tag may have said any number.
        let erases = self.erases[segment.index()].saturating_add(1);
        SegmentInfo { erases, total_erases: self.total_erases + 1, ..SegmentInfo::default() }
    }

    fn count_erase(&mut self, segment: SegmentId, info: SegmentInfo) {
        self.counters.erases += 1;
        (self.erases[segment.index()], self.total_erases) = (info.erases, info.total_erases);
    }
}

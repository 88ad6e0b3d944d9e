//! Free segments: giving them free, erasing them and opening them.

use crate::log::{Head, Log};
use crate::{LogError, Owner};
use margay_flash::{FlashError, Ppn, SegmentId};
use margay_format::{FreeSegment, Freed, SegmentInfo, Store};
use margay_policy::{Segments, State};

impl<D: Store, O: Owner> Log<D, O> {
    /// Opens the next free segment for a stream. Segments that fail at it for good are retired; one that cannot be erased
    /// now waits behind the others.
    pub(crate) fn open(&mut self, stream: u8) -> Result<(), LogError> {
        let mut opening = self.free.opening();
        while let Some(mut free) = self.free.pop() {
            if self.relocation.is_kept(free.segment) && !self.free.is_empty() {
                self.free.push(free);
                continue;
            }
            let error = match self.open_segment(&mut free, stream) {
                Ok(head) => {
                    self.heads[stream as usize] = head;
                    return self.lend_if_wanted();
                }
                Err(error) => error,
            };
            if self.free.put_back(free, error, &mut opening)? {
                self.note_retired(free.segment);
            }
        }
        Err(self.no_space())
    }

    /// Makes a free segment an open one and programs its header.
    pub(crate) fn open_segment(&mut self, free: &mut FreeSegment, stream: u8) -> Result<Head, FlashError> {
        let segment = free.segment;
        let i = segment.index();
        let info = info_after_erase(&self.segments, segment);
        self.adapt_to_syncs(*free);
        if self.free.make_erased(&mut self.device, free, info)? {
            self.count_erase(segment, info);
        }
        self.segments.stream[i] = stream;
        self.segments.opened_us[i] = self.now.us;
        self.segments.opened_writes[i] = self.now.writes;
        if let Err(error) = self.device.begin(segment, self.segment_info(segment)) {
            free.needs_erase = true;
            return Err(error);
        }
        self.counters.metadata_pages += u64::from(self.config.header_pages);
        self.openings += 1;
        self.segments.state[i] = State::Open;
        self.segments.opened_sequence[i] = self.openings;
        self.segments.in_use += 1;
        // All data pages count as valid from the start, so that writing one changes no count.
        self.segments.valid[i] = self.segments.data_pages;
        let first = self.geometry.first_page(segment).0;
        let next = first + self.config.header_pages;
        let end = next + self.segments.data_pages;
        self.valid.fill(next, end, true);
        self.selection.opened(&self.segments, segment);
        if self.keeps_pages {
            // Entries of the segment's earlier pages must not be taken for those of pages not yet written.
            self.placement.clear(Ppn(first), self.geometry.pages_per_segment());
        }
        Ok(Head { segment, next, end })
    }

    /// Lends the device a segment if it wants one and enough are free.
    #[inline]
    pub(crate) fn lend_if_wanted(&mut self) -> Result<(), LogError> {
        let is_wanted = D::KEEPS_INFO && self.device.wants_segment();
        // Of an exchange there are as many free as before.
        if is_wanted && self.free.len() > usize::from(self.device.lacks_segment()) { self.lend() } else { Ok(()) }
    }

    /// Lends the device the next free segment for pages of its own, in exchange for one that it has used.
    #[cold]
    pub(crate) fn lend(&mut self) -> Result<(), LogError> {
        let next = self.free.iter().position(|free| !self.relocation.is_kept(free.segment));
        let erased = next.map_or(Ok(None), |next| self.erase_free(next));
        let segment = match erased {
            Ok(Some((segment, true))) => segment,
            // There will be another one.
            Ok(_) | Err(FlashError::Io { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.free.remove(segment);
        self.segments.state[segment.index()] = State::Reserved;
        self.note_lent();
        let Some(returned) = self.device.lend(segment, self.segments.erases[segment.index()]) else { return Ok(()) };
        self.segments.state[returned.segment.index()] = State::Free;
        if returned.is_bad {
            self.retire(returned.segment);
        } else {
            self.free.push(FreeSegment::unknown(returned.segment));
        }
        Ok(())
    }

    /// Counts the erases of lent segments, which the device erases itself.
    fn note_lent(&mut self) {
        for (segment, erases) in self.device.lent() {
            let before = core::mem::replace(&mut self.segments.erases[segment.index()], erases);
            self.segments.total_erases += u64::from(erases.saturating_sub(before));
            self.segments.max_erases = self.segments.max_erases.max(erases);
            self.counters.erases += u64::from(erases.saturating_sub(before));
        }
    }

    /// Counts the pages that the device has programmed for itself.
    #[inline]
    pub(crate) fn note_programs(&mut self) {
        if D::KEEPS_INFO {
            self.counters.metadata_pages += u64::from(self.device.take_programs());
        }
    }

    /// Gives a segment without valid pages free, or retires it. It is erased at once, or, where that needs a sync, before
    /// it is used again: one sync does for all that are free by then.
    pub(crate) fn erase(&mut self, segment: SegmentId) -> Result<(), LogError> {
        let i = segment.index();
        debug_assert_eq!(self.segments.valid[i], 0);
        self.segments.in_use -= 1;
        if let Some(at) = self.retire_queue.iter().position(|retired| *retired == segment) {
            self.retire_queue.swap_remove(at);
            self.retire(segment);
            return Ok(());
        }
        self.segments.state[i] = State::Free;
        let info = info_after_erase(&self.segments, segment);
        let freed_seq = self.device.defers_erases().then_some(self.seq);
        let given = self.free.give(&mut self.device, segment, info, freed_seq);
        self.note_programs();
        match given? {
            Freed::Erased => self.count_erase(segment, info),
            Freed::Waits => {}
            Freed::Retired => self.note_retired(segment),
        }
        self.lend_if_wanted()
    }

    /// Erases a segment and counts it.
    pub(crate) fn erase_on_device(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let info = info_after_erase(&self.segments, segment);
        let erased = self.device.erase(segment, info);
        self.note_programs();
        erased?;
        self.count_erase(segment, info);
        Ok(())
    }

    #[inline]
    fn count_erase(&mut self, segment: SegmentId, info: SegmentInfo) {
        self.counters.erases += 1;
        self.reads.erased(segment);
        self.segments.erases[segment.index()] = info.erases;
        self.segments.total_erases = info.total_erases;
        self.segments.max_erases = self.segments.max_erases.max(info.erases);
    }

    /// Erases ahead, in idle time, a segment that was given free since the start. False if there is none.
    pub(crate) fn erase_ahead(&mut self) -> Result<bool, LogError> {
        let segments = &self.segments;
        let erased = self.free.erase_ahead(&mut self.device, |id| info_after_erase(segments, id))?;
        Ok(erased.map(|(free, is_free)| self.note_erased(free, is_free)).is_some())
    }

    /// Erases the free segment at this place of the list, if it has to be erased before use. Returns it, or `None` if the
    /// list ends before.
    pub(crate) fn erase_free(&mut self, at: usize) -> Result<Option<(SegmentId, bool)>, FlashError> {
        let segments = &self.segments;
        let erased = self.free.erase_at(&mut self.device, at, |id| info_after_erase(segments, id))?;
        Ok(erased.map(|(free, is_free)| self.note_erased(free, is_free)))
    }

    /// Whether a segment is free and has to be erased before use. O(free segments).
    pub fn needs_erase(&self, segment: SegmentId) -> bool {
        self.free.iter().any(|free| free.segment == segment && free.needs_erase)
    }

    /// Counts what became of a free segment that was to be erased. Returns it, and whether it is still free.
    fn note_erased(&mut self, free: FreeSegment, is_free: bool) -> (SegmentId, bool) {
        if !is_free {
            self.note_retired(free.segment);
        } else if free.needs_erase {
            self.count_erase(free.segment, info_after_erase(&self.segments, free.segment));
        }
        (free.segment, is_free)
    }

    /// The page of a stream that is next may hold anything: its program has failed.
    #[cold]
    pub(crate) fn spend_page(&mut self, stream: u8) {
        let head = &mut self.heads[stream as usize];
        self.valid.clear(Ppn(head.next));
        self.segments.valid[head.segment.index()] -= 1;
        head.next += 1;
    }

    /// What follows from a failed program of the next page of a stream: `Ok` if the page may be programmed elsewhere.
    #[cold]
    pub(crate) fn after_failed_program(&mut self, stream: u8, error: FlashError) -> Result<(), LogError> {
        if matches!(error, FlashError::ProgramFailed { .. }) {
            return self.retire_head(stream);
        }
        let head = self.heads[stream as usize];
        if !self.device.was_begun(Ppn(head.next)) {
            return Err(error.into());
        }
        let first = self.geometry.first_page(head.segment).0 + self.config.header_pages;
        if head.next == first && !self.device.defers_erases() {
            // On a chip a mount takes a segment for empty whose first page is.
            self.heads[stream as usize] = Head::CLOSED;
            self.seal(head)?;
            self.take(head.segment);
            self.erase(head.segment)?;
        } else {
            self.spend_page(stream);
        }
        Err(error.into())
    }
}

/// What holds of a segment once it is erased.
#[inline]
fn info_after_erase(segments: &Segments, segment: SegmentId) -> SegmentInfo {
    // A count that was read from flash may be any.
    let before = segments.erases[segment.index()];
    let erases = before.saturating_add(1);
    let total_erases = segments.total_erases + u64::from(erases - before);
    SegmentInfo { erases, total_erases, ..SegmentInfo::default() }
}

//! Free segments: giving them free, erasing them and opening them.

use crate::log::{Head, Log};
use crate::{LogError, Owner};
use margay_flash::{FlashError, Ppn, SegmentId};
use margay_format::{SegmentInfo, Store};
use margay_policy::State;

/// A segment is retired when so many erases of it have failed, each while others succeeded.
const MAX_FAILED_ERASES: u8 = 3;

impl<D: Store, O: Owner> Log<D, O> {
    /// Opens the next free segment for a stream. Segments that fail at it for good are retired; one that cannot be erased
    /// now waits behind the others.
    pub(crate) fn open(&mut self, stream: u8) -> Result<(), LogError> {
        let mut tries = self.free.len();
        let mut first_error = None;
        loop {
            let Some(segment) = self.free.pop_front() else { return Err(self.no_space()) };
            match self.open_segment(segment, stream) {
                Ok(head) => {
                    self.heads[stream as usize] = head;
                    return Ok(());
                }
                Err(LogError::Flash(FlashError::ProgramFailed { .. } | FlashError::EraseFailed { .. })) => {
                    self.retire(segment);
                }
                Err(error) => {
                    self.free.push_back(segment);
                    tries = tries.saturating_sub(1);
                    let first = *first_error.get_or_insert(error);
                    if tries == 0 || error == LogError::Flash(FlashError::Stopped) {
                        return Err(first);
                    }
                }
            }
        }
    }

    /// Makes a free segment an open one and programs its header.
    pub(crate) fn open_segment(&mut self, segment: SegmentId, stream: u8) -> Result<Head, LogError> {
        let i = segment.index();
        self.make_erased(segment)?;
        self.segments.stream[i] = stream;
        self.segments.opened_us[i] = self.now.us;
        self.segments.opened_writes[i] = self.now.writes;
        if let Err(error) = self.device.begin(segment, self.segment_info(segment)) {
            self.set_needs_erase(segment, true);
            return Err(error.into());
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

    /// Erases a free segment if it has to be erased before use. Waits first until all that supersedes what it holds is
    /// known to be durable.
    pub(crate) fn make_erased(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        if !self.needs_erase(segment) {
            return Ok(());
        }
        self.device.record(self.freed_seq(segment))?;
        match self.erase_on_device(segment) {
            Ok(()) => {
                self.set_needs_erase(segment, false);
                self.has_erase_failed = false;
                self.failed_erases.retain(|(id, _)| *id != segment);
                Ok(())
            }
            Err(error @ (FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. })) => Err(error),
            Err(error) => Err(self.after_failed_erase(segment, error)),
        }
    }

    /// An erase failed and may succeed another time. A segment at which it fails again and again while others can be erased
    /// has failed for good.
    #[cold]
    fn after_failed_erase(&mut self, segment: SegmentId, error: FlashError) -> FlashError {
        if core::mem::replace(&mut self.has_erase_failed, true) {
            return error;
        }
        let at = self.failed_erases.iter().position(|(id, _)| *id == segment).unwrap_or_else(|| {
            self.failed_erases.push((segment, 0));
            self.failed_erases.len() - 1
        });
        self.failed_erases[at].1 += 1;
        if self.failed_erases[at].1 < MAX_FAILED_ERASES {
            return error;
        }
        self.failed_erases.swap_remove(at);
        FlashError::EraseFailed { segment }
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
        let mut result = Ok(());
        if !self.device.defers_erases() {
            match self.erase_on_device(segment) {
                Ok(()) => {
                    self.segments.state[i] = State::Free;
                    self.free.push_back(segment);
                    return Ok(());
                }
                Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                    self.retire(segment);
                    return Ok(());
                }
                // It is tried again when the segment is used.
                Err(FlashError::Io { .. }) => {}
                Err(error) => result = Err(error.into()),
            }
        }
        self.set_needs_erase(segment, true);
        self.freed_seq.resize(self.segments.len() as usize, 0);
        self.freed_seq[i] = self.seq;
        self.segments.state[i] = State::Free;
        self.free.push_back(segment);
        result
    }

    /// Erases a segment and counts it.
    #[inline(always)]
    pub(crate) fn erase_on_device(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let i = segment.index();
        // A count that was read from flash may be any.
        let erases = self.segments.erases[i].saturating_add(1);
        let total_erases = self.segments.total_erases + u64::from(erases - self.segments.erases[i]);
        self.device.erase(segment, SegmentInfo { erases, total_erases, ..SegmentInfo::default() })?;
        self.counters.erases += 1;
        self.segments.erases[i] = erases;
        self.segments.total_erases = total_erases;
        self.segments.max_erases = self.segments.max_erases.max(erases);
        Ok(())
    }

    /// Erases ahead, in idle time, a segment that was given free since the start and for which no sync is needed. False if
    /// there is none.
    pub(crate) fn erase_ahead(&mut self) -> Result<bool, LogError> {
        let is_due = |id: &SegmentId| {
            let freed = self.freed_seq(*id);
            freed > 0 && self.needs_erase(*id)
        };
        let Some(segment) = self.free.iter().copied().find(is_due) else { return Ok(false) };
        match self.make_erased(segment) {
            Ok(()) => Ok(true),
            Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                self.free.retain(|id| *id != segment);
                self.retire(segment);
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
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
        if self.device.was_begun(Ppn(self.heads[stream as usize].next)) {
            self.spend_page(stream);
        }
        Err(error.into())
    }

    fn freed_seq(&self, segment: SegmentId) -> u64 {
        self.freed_seq.get(segment.index()).copied().unwrap_or(0)
    }

    /// Whether a free segment has to be erased before use.
    #[inline]
    pub fn needs_erase(&self, segment: SegmentId) -> bool {
        self.needs_erase.get(segment.index()).is_some_and(|needs_erase| *needs_erase)
    }

    fn set_needs_erase(&mut self, segment: SegmentId, needs_erase: bool) {
        self.needs_erase.resize(self.segments.len() as usize, false);
        self.needs_erase[segment.index()] = needs_erase;
    }
}

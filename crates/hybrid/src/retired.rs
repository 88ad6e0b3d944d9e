//! The list of retired segments, in a segment of its own, so that a mount does not use them again.

use crate::copies::Copy;
use crate::hybrid::Stream;
use crate::logs::NONE;
use crate::{Hybrid, HybridError, OpenError, Persistence};
use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, Lpn, SegmentId};
use margay_format::{Formatted, FreeSegment, Store, decode_retired, encode_retired};

/// Where the list is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetiredList {
    /// The segment that holds it, or [`NONE`].
    pub segment: u32,
    /// Where the next one is programmed in that segment.
    next: u32,
    /// Segments that it names.
    len: usize,
}

impl RetiredList {
    /// No segment has been retired.
    pub const EMPTY: Self = Self { segment: NONE, next: 0, len: 0 };
}

impl<D: Store> Hybrid<D> {
    /// Segments that are used no more because programs or erases of them have failed, those included that earlier mounts
    /// have retired.
    pub fn retired_segments(&self) -> &[SegmentId] {
        self.free.retired()
    }

    /// The error of what needs a segment more than is left.
    pub(crate) fn worn_out(&self) -> HybridError {
        HybridError::WornOut { retired_segments: self.free.retired().len() as u32 }
    }

    /// The owner of the list: the number behind the pages of the host.
    pub(crate) const fn list_owner(&self) -> Lpn {
        Lpn(self.config.logical_pages)
    }

    /// Writes the list of retired segments if it has grown. If there is no room for it, or the device fails for the moment,
    /// the next write tries again: without the list a mount uses those segments again, and they fail again.
    pub(crate) fn save_retired(&mut self) -> Result<(), HybridError> {
        let is_kept = D::KEEPS_INFO && self.config.persistence == Persistence::Persistent;
        if !is_kept || self.report.is_worn_out || self.free.retired().len() == self.list.len {
            return Ok(());
        }
        match self.write_retired() {
            Err(HybridError::Flash(FlashError::Io { .. }) | HybridError::WornOut { .. }) => Ok(()),
            result => result,
        }
    }

    #[cold]
    fn write_retired(&mut self) -> Result<(), HybridError> {
        let RetiredList { segment, next, .. } = self.list;
        if segment != NONE && next < self.pages {
            let programmed = self.program_retired(segment, next);
            self.list.next += 1;
            match programmed {
                Ok(()) => return self.finish_list(),
                Err(FlashError::ProgramFailed { .. }) => {
                    self.list.next = self.pages;
                    self.retire_queue.push(SegmentId(segment));
                }
                Err(error) => return Err(error.into()),
            }
        }
        while self.has_room_for_list() {
            let segment = self.take_free(Stream::RetiredList)?;
            match self.program_retired(segment.0, 0) {
                Ok(()) => {
                    let old = core::mem::replace(&mut self.list.segment, segment.0);
                    self.list.next = 1;
                    self.finish_list()?;
                    return if old == NONE { Ok(()) } else { self.release(SegmentId(old)) };
                }
                Err(error) => self.abandon(segment, error)?,
            }
        }
        Ok(())
    }

    /// Gives the segment of the list free, because it is needed for pages. False if there is none. The list is written again
    /// once there is room for it.
    pub(crate) fn give_up_list(&mut self) -> bool {
        let segment = SegmentId(self.list.segment);
        if self.list.segment == NONE || self.retire_queue.contains(&segment) {
            return false;
        }
        self.list = RetiredList::EMPTY;
        self.free.push(FreeSegment { segment, needs_erase: true, freed_seq: self.seq });
        true
    }

    fn program_retired(&mut self, segment: u32, position: u32) -> Result<(), FlashError> {
        let mut page = core::mem::take(&mut self.scratch);
        encode_retired(self.free.retired(), &mut page);
        let programmed = self.program(self.ppn(segment, position), self.list_owner(), &page);
        self.scratch = page;
        if programmed.is_ok() {
            self.list.len = self.free.retired().len();
        }
        programmed
    }

    fn finish_list(&mut self) -> Result<(), HybridError> {
        let RetiredList { segment, next, .. } = self.list;
        if next == self.pages {
            self.store.finish(SegmentId(segment), self.ppn(segment, next))?;
        }
        Ok(())
    }

    /// Whether a segment can be spared for the list: besides it, the data blocks and as few log blocks as there can be, one
    /// to merge into and one to recover into are left.
    fn has_room_for_list(&self) -> bool {
        let usable = self.geometry.segments() - self.config.reserved_segments - self.free.retired().len() as u32;
        self.free.len() >= 2 && usable >= self.data.len() as u32 + self.config.min_log_blocks() + 3
    }
}

impl<F: Flash> Hybrid<Formatted<F>> {
    /// Takes the segments out of use that the latest of these lists names that can be read.
    pub(crate) fn recover_retired(&mut self, mut lists: Vec<Copy>, page: &mut [u8]) -> Result<(), OpenError> {
        lists.sort_unstable_by_key(|list| core::cmp::Reverse(list.seq));
        for list in lists {
            match self.store.read(self.ppn(list.segment, list.position), self.list_owner().0.into(), page) {
                Ok(_) => {}
                Err(error) if error.is_unreadable() => continue,
                Err(error) => return Err(error.into()),
            }
            let Some(retired) = decode_retired(page, self.geometry.segments()) else { continue };
            let is_possible = |id: &SegmentId| id.0 >= self.config.reserved_segments && id.0 != list.segment;
            retired.into_iter().filter(is_possible).for_each(|id| self.free.retire(id));
            // Nothing is programmed behind what a power cut may have left.
            self.list = RetiredList { segment: list.segment, next: self.pages, len: self.free.retired().len() };
            break;
        }
        Ok(())
    }

    /// Whether a segment holds pages of the host, or is free.
    pub(crate) fn is_ordinary(&self, segment: u32) -> bool {
        self.list.segment != segment && !self.free.retired().contains(&SegmentId(segment))
    }
}

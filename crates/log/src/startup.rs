//! Formatting a device, and starting to write one that was used before.

use crate::log::{Head, Log};
use crate::mount_scan::Suspect;
use crate::recovery::{StartWork, is_outdated};
use crate::restore::Restored;
use crate::{Client, Config, LogError, Owner, Policies};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{Anchor, CheckpointAt, Formatted, FreeSegment, Place, Record, Store, Superblock};
use margay_policy::State;

impl<F: Flash, O: Owner> Log<Formatted<F>, O> {
    /// Formats a device for a client with `owners` owners: all that is on it is lost. A segment that cannot be erased
    /// is retired. Erases are counted on from those of [`Formatted::erases_before`]. `copy` is the owner of the copy of the superblock, which is the first page of the log.
    ///
    /// # Errors
    /// Those of the device, except that a segment fails; [`LogError::Config`] if the log cannot hold a page for each
    /// owner.
    pub fn format<C: Client<O>>(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        owners: u32,
        client: &mut C,
        copy: O,
    ) -> Result<(Self, Anchor), LogError> {
        // What cannot work is refused before anything is erased.
        let mut log = Self::closed(device, config, policies, owners)?;
        log.device.reset_mark()?;
        for segment in core::mem::take(&mut log.free).iter().map(|free| free.segment) {
            match log.device.erase_for_format(segment) {
                Ok(()) => log.free.push(FreeSegment::erased(segment)),
                Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => log.retire(segment),
                Err(error) => return Err(error.into()),
            }
        }
        log.count_erases_before();
        let mut anchor = Anchor::new(log.device.erases_before().first().copied().unwrap_or(0));
        log.device.write_anchor(&mut anchor, superblock, &Record::InUse)?;
        log.open_first()?;
        let mut page = vec![0; log.geometry.page_bytes() as usize];
        let bytes = log.device.superblock();
        page[..bytes.len()].copy_from_slice(bytes);
        log.write_own(client, copy, &page)?;
        log.write_pending(client)?;
        log.device.sync()?;
        Ok((log, anchor))
    }

    /// Goes on counting the erases of segments that were erased before, and for the formatting once more.
    fn count_erases_before(&mut self) {
        for (id, before) in (0..).map(SegmentId).zip(self.device.erases_before()).take(self.segments.erases.len()) {
            if matches!(self.segments.state[id.index()], State::Free | State::Bad) {
                let erases = before.saturating_add(1);
                self.segments.erases[id.index()] = erases;
                self.segments.total_erases += u64::from(erases);
                self.segments.max_erases = self.segments.max_erases.max(erases);
            }
        }
    }

    /// Before anything else is written to a device after [`Log::restore`]: sees to it that no older checkpoint is used
    /// again, writes the page again that was programmed last, because after a power cut it may not stay readable, and
    /// makes sure that a segment is free. Returns the anchor that the next stop needs; `None` if nothing may be written, because
    /// neither the anchor nor the checkpoint that it names can be erased any more, and no page be copied that would outdate it: a later
    /// mount would go by that checkpoint.
    pub fn start<C: Client<O>>(
        &mut self,
        client: &mut C,
        superblock: &Superblock,
        restored: &Restored<O>,
        work: StartWork,
    ) -> Result<Option<Anchor>, LogError> {
        let StartWork { mut anchor, checkpoint, suspect, void } = work;
        let device = self.device_mut();
        device.settle(restored.seq, &void)?;
        match &checkpoint {
            Some(at) if device.layout().place == Place::Table => {
                if device.forget_record(at)? {
                    // Nothing may be on flash before that is.
                    device.sync()?;
                } else {
                    // It is outdated once a segment was opened after it.
                    self.close_all()?;
                }
            }
            // On a fresh anchor: the page behind the last record may have been half programmed.
            checkpoint => {
                device.renew_anchor(&mut anchor, superblock)?;
                if let Some(at) = checkpoint.as_ref().filter(|_| anchor.is_broken())
                    && !Self::forget_checkpoint(device, at)?
                    && !self.outdate_checkpoint(client, restored, at)?
                {
                    return Ok(None);
                }
            }
        }
        for (segment, restored) in (0..).map(SegmentId).zip(&restored.segments) {
            if restored.state == State::Free && !restored.needs_erase {
                self.device_mut().note_free(segment, restored.erases);
            }
        }
        if self.free_segments() == 0 {
            self.fill_on(restored)?;
        }
        if let Some(Suspect { ppn, page, data }) = suspect {
            if !self.has_room() {
                self.erase_empty()?;
            }
            match self.write_again(client, ppn, page, &data) {
                // A device that is worn out is still to be read.
                Ok(()) | Err(LogError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
            self.device_mut().sync()?;
        }
        while self.free_segments() == 0 && self.erase_empty()? {}
        if checkpoint.is_none() {
            self.regain_free(client)?;
        }
        Ok(Some(anchor))
    }

    /// A power cut takes the rest of each open segment, so that many of them, with few writes in between, would use up all
    /// free segments: the emptiest segments are cleaned, as far as what they hold fits where there is room, until one is free
    /// to be opened and one for a victim.
    fn regain_free<C: Client<O>>(&mut self, client: &mut C) -> Result<(), LogError> {
        while self.free_segments() < 2 {
            let in_heads: u32 = self.heads.iter().map(Head::room).sum();
            let room = in_heads + self.free_segments() * self.segments.data_pages;
            let candidates = self.segments.ids().filter(|id| self.segments.is_candidate(*id));
            let emptiest = candidates.min_by_key(|id| self.segments.valid[id.index()]);
            let fits = |id: &SegmentId| self.segments.valid[id.index()] <= room.min(self.segments.data_pages - 1);
            let Some(segment) = emptiest.filter(fits) else { return Ok(()) };
            match self.clean_segment(client, segment) {
                Ok(true) => {}
                // The client names an owner that is unknown once it writes.
                Ok(false) | Err(LogError::NoSpace { .. } | LogError::OwnerUnknown { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The anchor has failed and goes on saying that the device was stopped: its checkpoint must not be whole. False if no part of
    /// it can be erased.
    fn forget_checkpoint(device: &mut Formatted<F>, at: &CheckpointAt) -> Result<bool, LogError> {
        let mut is_forgotten = false;
        for segment in &at.segments {
            is_forgotten |= device.erase_if_it_can_be(*segment)?;
        }
        device.sync()?;
        Ok(is_forgotten)
    }

    /// Neither the anchor nor the checkpoint that it names can be erased: a page is copied to where that checkpoint says that an open
    /// segment is filled next, so that no mount goes by it again. False if there is no such place with room, or the copy failed.
    fn outdate_checkpoint<C: Client<O>>(
        &mut self,
        client: &mut C,
        restored: &Restored<O>,
        at: &CheckpointAt,
    ) -> Result<bool, LogError> {
        let Some(stream) = self.heads.iter().position(|head| head.is_open() && !head.is_full()) else {
            return Ok(false);
        };
        if let Some((ppn, owner)) = self.any_live_page(client)? {
            self.copy_page(client, ppn, owner, stream as u8)?;
        }
        let device = self.device_mut();
        device.sync()?;
        Ok(is_outdated(device, at, &restored.segments, &restored.free)?.0)
    }

    fn any_live_page<C: Client<O>>(&mut self, client: &mut C) -> Result<Option<(Ppn, O)>, LogError> {
        for segment in (0..self.segments.len()).map(SegmentId) {
            let first = self.geometry.first_page(segment).0;
            let pages = if self.valid_pages_of(segment) > 0 { self.geometry.pages_per_segment() } else { 0 };
            for ppn in (first..first + pages).map(Ppn) {
                match self.live_owner(client, ppn) {
                    Ok(Some(owner)) => return Ok(Some((ppn, owner))),
                    // The map cannot be read there; another page does.
                    Ok(None) | Err(LogError::OwnerUnknown { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }

    /// Makes room for all that the log and its device can come to hold, as a program with fixed memory wants it: writing,
    /// trimming, reading and cleaning allocate nothing from now on. Two cases, which only failing devices meet, still do: more
    /// than 32 writes that are refused between two cleanings, and room that has to be made without a free segment, which
    /// is [`LogError::NoSpace`] if there is no memory for it.
    pub fn reserve(&mut self) {
        self.reserve_lists();
        self.device.reserve(self.heads.len());
    }

    fn fill_on(&mut self, restored: &Restored<O>) -> Result<(), LogError> {
        let mut next = Vec::with_capacity(restored.segments.len());
        for (id, segment) in (0..).map(SegmentId).zip(&restored.segments) {
            next.push(match segment.state {
                State::Sealed => self.device_mut().first_blank_page(id, segment.next)?,
                _ => segment.next,
            });
        }
        if let Some((id, info)) = self.reopen_partly_filled(|id| next[id.index()]) {
            self.device_mut().resume(id, info, &[]);
        }
        Ok(())
    }
}

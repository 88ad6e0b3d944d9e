//! Formatting a device, and starting to write one that was used before.

use crate::log::Log;
use crate::mount_scan::Suspect;
use crate::recovery::StartWork;
use crate::restore::Restored;
use crate::{Client, Config, LogError, Owner, Policies};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, SegmentId};
use margay_format::{Anchor, CheckpointAt, Formatted, FreeSegment, Place, Record, Store, Superblock};
use margay_policy::State;

impl<F: Flash, O: Owner> Log<Formatted<F>, O> {
    /// Formats a device for a client with `owners` owners: all that is on it is lost. A segment that cannot be erased
    /// is retired. `copy` is the owner of the copy of the superblock, which is the first page of the log.
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
        let mut anchor = Anchor::default();
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

    /// Before anything else is written to a device after [`Log::restore`]: sees to it that no older checkpoint is used
    /// again, writes the page again that was programmed last, because after a power cut it may not stay readable, and
    /// makes sure that a segment is free. Returns the anchor that the next stop needs.
    pub fn start<C: Client<O>>(
        &mut self,
        client: &mut C,
        superblock: &Superblock,
        restored: &Restored<O>,
        work: StartWork,
    ) -> Result<Anchor, LogError> {
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
                if let Some(at) = checkpoint.as_ref().filter(|_| anchor.is_broken()) {
                    Self::forget_checkpoint(device, at)?;
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
        Ok(anchor)
    }

    /// The anchor has failed and goes on saying that the device was stopped: its checkpoint must not be whole.
    fn forget_checkpoint(device: &mut Formatted<F>, at: &CheckpointAt) -> Result<(), LogError> {
        // One that cannot be erased is outdated once something else is programmed, too (see `is_outdated`).
        at.segments.iter().try_for_each(|segment| device.erase_if_it_can_be(*segment).map(drop))?;
        Ok(device.sync()?)
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
            self.device_mut().resume(id, info, Vec::new());
        }
        Ok(())
    }
}

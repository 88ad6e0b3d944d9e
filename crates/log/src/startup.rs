//! Starting and stopping a log on a device in margay's format.

use crate::Progress;
use crate::log::{Client, Log, LogError, Owner};
use crate::restore::Restored;
use crate::survey::{StopRecord, Suspect};
use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, SegmentId};
use margay_format::{Anchor, CheckpointAt, Formatted, Place, Record, Store, Superblock};
use margay_policy::State;

impl<F: Flash, O: Owner> Log<Formatted<F>, O> {
    /// Makes what a power cut left safe before anything else is done: no older checkpoint is found again, the page
    /// that was programmed last is written again, because it may not stay readable, and a segment is free.
    pub fn start<C: Client<O>>(
        &mut self,
        client: &mut C,
        superblock: &Superblock,
        restored: &Restored<O>,
        stop: &mut StopRecord,
        suspect: Option<Suspect>,
    ) -> Result<(), LogError> {
        let device = self.device_mut();
        device.note_seq(restored.seq);
        match &stop.checkpoint {
            Some(at) if device.layout().place == Place::Table => {
                if !device.forget_record(at)? {
                    // It is outdated once a segment was opened after it.
                    self.close_all()?;
                }
            }
            // On a fresh anchor: the page behind the last record may have been half programmed.
            checkpoint => {
                device.renew_anchor(&mut stop.anchor, superblock)?;
                if let Some(at) = checkpoint.as_ref().filter(|_| stop.anchor.is_broken()) {
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
                self.erase_empty(client)?;
            }
            match self.write_again(client, ppn, page, &data) {
                // A device that is worn out is still to be read.
                Ok(()) | Err(LogError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
            self.device_mut().sync()?;
        }
        while self.free_segments() == 0 && self.erase_empty(client)? {}
        Ok(())
    }

    /// The anchor has failed and goes on saying that the device was stopped: its checkpoint must not be whole.
    fn forget_checkpoint(device: &mut Formatted<F>, at: &CheckpointAt) -> Result<(), LogError> {
        for segment in &at.segments {
            match device.device_mut().erase(*segment) {
                // It is outdated once something else is programmed, too (Thawed::is_outdated).
                Ok(()) | Err(FlashError::EraseFailed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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

    /// Writes a checkpoint of what `encode` makes, if there is room for one; the log must not be used after that.
    /// `encode` is asked twice: for the length, and when nothing changes any more.
    pub fn stop<C: Client<O>>(
        &mut self,
        client: &mut C,
        anchor: &mut Anchor,
        superblock: &Superblock,
        encode: impl Fn(&Self, &C) -> Vec<u8>,
    ) -> Result<bool, LogError> {
        self.write_pending(client)?;
        let len_bytes = encode(self, client).len();
        let device = self.device();
        let count = device.checkpoint_pages(len_bytes).div_ceil(device.layout().data_pages(device.geometry()));
        if count > Record::max_segments(device.geometry().page_bytes()) {
            return Ok(false);
        }
        // One segment stays free for the cleaner of the next life.
        while self.free_segments() < count + 1 {
            match self.clean_step(client, u32::MAX) {
                Ok(Progress::NothingToClean) | Err(LogError::NoSpace { .. }) => return Ok(false),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        self.write_pending(client)?;
        self.device_mut().sync()?;
        let Some(segments) = self.reserve_free(client, count)? else { return Ok(false) };
        let bytes = encode(self, client);
        let seq = self.seq();
        let device = self.device_mut();
        let at = match device.write_checkpoint(&bytes, seq, &segments) {
            Ok(at) => at,
            // The next mount looks into every segment, as it would after a power cut.
            Err(FlashError::ProgramFailed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        device.write_anchor(anchor, superblock, &Record::Stopped(at))?;
        Ok(!anchor.is_broken())
    }
}

use crate::summaries::LentSegment;
use crate::tag::{PageInfo, SegmentInfo};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// What became of a copied page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// It was copied.
    Whole,
    /// It could not be read; in its place is a page that says so.
    Lost,
}

/// What the log writes pages through: a device, and what is kept of pages beside their data.
pub trait Store {
    /// Whether the information on pages is kept, so that the device can be mounted again.
    const KEEPS_INFO: bool;

    /// The shape of the device.
    fn geometry(&self) -> &Geometry;

    /// Announces that an erased segment is filled from now on.
    fn begin(&mut self, segment: SegmentId, info: SegmentInfo) -> Result<(), FlashError>;

    /// Programs a page of a segment that was begun.
    fn program(&mut self, ppn: Ppn, data: &[u8], page: PageInfo) -> Result<(), FlashError>;

    /// Copies a page to one of a segment that was begun, where it gets the sequence number `seq`.
    fn copy(&mut self, from: Ppn, to: Ppn, owner: u64, seq: u64) -> Result<Copied, FlashError>;

    /// Nothing more will be programmed in a segment that was begun; `next` is its first page left empty. After an error the segment
    /// should be cleaned soon, and be retired after [`FlashError::ProgramFailed`].
    fn finish(&mut self, segment: SegmentId, next: Ppn) -> Result<(), FlashError>;

    /// Reads the page of an owner.
    fn read(&mut self, ppn: Ppn, owner: u64, data: &mut [u8]) -> Result<ReadStatus, FlashError>;

    /// Reads pages that follow each other, of these owners, if all of them are clean and the device has a faster way than
    /// one by one. False says nothing of any of them, and leaves anything in `data`.
    fn read_run(&mut self, _first: Ppn, _owners: &mut dyn Iterator<Item = u64>, _data: &mut [u8]) -> bool {
        false
    }

    /// The owner that the tag of a page names; `None` if it has none that can be read.
    fn owner_of(&mut self, _ppn: Ppn) -> Result<Option<u64>, FlashError> {
        Ok(None)
    }

    /// Erases a segment, which then has been erased `info.erases` times.
    fn erase(&mut self, segment: SegmentId, info: SegmentInfo) -> Result<(), FlashError>;

    /// Returns when everything done so far survives a power cut.
    fn sync(&mut self) -> Result<(), FlashError>;

    /// As [`Flash::hold`].
    fn hold(&mut self, _on: bool) -> Result<(), FlashError> {
        Ok(())
    }

    /// Whether the program of this page, which returned an error, was begun, so that the page may hold anything. False if
    /// it was refused before.
    fn was_begun(&self, _ppn: Ppn) -> bool {
        true
    }

    /// Whether erases wait until what supersedes the erased pages is known to be durable, which takes a sync.
    fn defers_erases(&self) -> bool {
        false
    }

    /// Returns when it is known on flash that everything up to the sequence number `seq` is durable, as it must be before
    /// a segment is erased that was in use then.
    fn record(&mut self, _seq: u64) -> Result<(), FlashError> {
        Ok(())
    }

    /// Whether [`Store::record`] returns at once.
    fn is_recorded(&mut self, _seq: u64) -> bool {
        true
    }

    /// Begins to make durable what was done so far, if it is not by itself and nothing of the kind is under way, so that
    /// [`Store::record`] need not wait later.
    fn begin_sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }

    /// Whether the last program failed for a moment, so that the next one may, too.
    fn has_just_failed(&self) -> bool {
        false
    }

    /// Segments that the log has lent it for pages of its own, with their erases.
    fn lent(&self) -> Vec<(SegmentId, u32)> {
        Vec::new()
    }

    /// Whether the log should lend it another one, if it can.
    fn wants_segment(&self) -> bool {
        false
    }

    /// Whether it wants one even if one less is free then.
    fn lacks_segment(&self) -> bool {
        false
    }

    /// Is lent an erased segment that was erased so often. Returns one in exchange, if it has enough, which has to be erased before
    /// use.
    fn lend(&mut self, _segment: SegmentId, _erases: u32) -> Option<LentSegment> {
        None
    }

    /// Returns when there is a place for what makes a whole segment durable that is going to be written.
    fn make_place(&mut self) -> Result<(), FlashError> {
        Ok(())
    }

    /// A segment is never used again, and nothing is needed of what it holds.
    fn forget(&mut self, _segment: SegmentId) {}

    /// Pages that it has programmed for itself since that was asked last, those of summaries apart.
    fn take_programs(&mut self) -> u32 {
        0
    }

    /// Nothing is programmed any more: what is in memory is not what is on flash.
    fn stop_writing(&mut self) {}
}

/// A device whose pages carry no information: for measurement. Header and summary pages are left blank.
#[derive(Debug)]
pub struct Plain<F> {
    device: F,
    scratch: Vec<u8>,
}

impl<F: Flash> Plain<F> {
    /// Uses a device.
    pub fn new(device: F) -> Self {
        let scratch = vec![0; if device.has_payload() { device.geometry().page_bytes() as usize } else { 0 }];
        Self { device, scratch }
    }

    /// The device.
    pub fn device(&self) -> &F {
        &self.device
    }
}

impl<F: Flash> Store for Plain<F> {
    const KEEPS_INFO: bool = false;

    #[inline(always)]
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    #[inline(always)]
    fn begin(&mut self, _: SegmentId, _: SegmentInfo) -> Result<(), FlashError> {
        Ok(())
    }

    #[inline(always)]
    fn program(&mut self, ppn: Ppn, data: &[u8], _: PageInfo) -> Result<(), FlashError> {
        self.device.program(ppn, data, &[])
    }

    #[inline(always)]
    fn copy(&mut self, from: Ppn, to: Ppn, _: u64, _: u64) -> Result<Copied, FlashError> {
        if self.device.has_payload() {
            self.device.read(from, &mut self.scratch, &mut [])?;
        }
        self.device.program(to, &self.scratch, &[])?;
        Ok(Copied::Whole)
    }

    #[inline(always)]
    fn finish(&mut self, _: SegmentId, _: Ppn) -> Result<(), FlashError> {
        Ok(())
    }

    fn read(&mut self, ppn: Ppn, _: u64, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read(ppn, data, &mut [])
    }

    #[inline(always)]
    fn erase(&mut self, segment: SegmentId, _: SegmentInfo) -> Result<(), FlashError> {
        self.device.erase(segment)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.device.sync()
    }
}

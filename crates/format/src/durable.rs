//! What is durable of a device that is cached: the order of erases and syncs (FORMAT.md, "The mark, and what is in doubt").

use crate::crc::crc32c;
use crate::formatted::Formatted;
use crate::layout::{Layout, Place, TAG_BYTES};
use crate::scan::FoundPage;
use crate::tag::Decoded;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Ppn, SegmentId};

/// A sync is forced when this many pages were programmed since the last one that is marked, so that a mount has a
/// bounded number of pages to verify.
const MAX_UNMARKED: u64 = 4096;
/// One is begun when it is this many.
const SOON_UNMARKED: u64 = MAX_UNMARKED / 2;
/// Reads of a page before an error of the host, or a wrong checksum, counts as one.
const READ_TRIES: u32 = 3;
/// So many failed programs one after the other stop all writing.
const MAX_FAILURES: u32 = 16;

/// What is known of the order in which things reach a device.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    pub is_cached: bool,
    /// Something was done since the last sync.
    is_dirty: bool,
    /// A sync or too many programs have failed.
    is_stopped: bool,
    /// The last mark that was given to the device.
    marked: u64,
    /// The mark that is known to be on flash.
    recorded: u64,
    /// The sync that was begun and is not known to have ended.
    under_way: Option<UnderWay>,
    /// Pages whose programs failed, so that anything may be in them. They are made void before the next sync: a page
    /// that is older than the mark is believed.
    given_up: Vec<Ppn>,
    /// Failed programs since the last that succeeded.
    failures: u32,
    /// The page whose program was begun last.
    begun: Option<Ppn>,
    /// The device may keep programs in memory.
    is_holding: bool,
}

/// A sync that was begun.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    /// The sequence number of the last program before it.
    seq: u64,
    /// The mark that was given to the device before it.
    marked: u64,
}

impl Durable {
    pub fn new(is_cached: bool) -> Self {
        Self { is_cached, ..Self::default() }
    }

    /// An error if nothing may be written any more.
    pub fn check(&self) -> Result<(), FlashError> {
        if self.is_stopped { Err(FlashError::Stopped) } else { Ok(()) }
    }

    /// Whether the last program failed for a moment.
    pub fn has_just_failed(&self) -> bool {
        self.failures > 0
    }

    /// Nothing may be written any more.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Something is going to be done.
    pub fn touch(&mut self) {
        self.is_dirty = true;
    }

    /// The program of a page is begun.
    pub fn begin(&mut self, ppn: Ppn) {
        self.is_dirty = true;
        self.begun = Some(ppn);
    }

    /// What became of that program.
    pub fn end(&mut self, ppn: Ppn, result: &Result<(), FlashError>) {
        match result {
            Ok(()) => self.failures = 0,
            // The segment is retired.
            Err(FlashError::ProgramFailed { .. }) => {}
            Err(_) => {
                self.failures += 1;
                self.is_stopped |= self.failures >= MAX_FAILURES;
            }
        }
        if result.is_err() && self.is_cached {
            self.given_up.push(ppn);
        }
    }

    pub fn was_begun(&self, ppn: Ppn) -> bool {
        self.begun == Some(ppn)
    }

    /// Whether it is known to be on flash that everything up to this sequence number is durable.
    pub fn is_recorded(&self, seq: u64) -> bool {
        !self.is_cached || self.recorded >= seq
    }

    /// Programs since the last mark, if marks are kept and the program `seq` comes next.
    pub fn unmarked(&self, seq: u64) -> u64 {
        if self.is_cached { seq.saturating_sub(self.marked + 1) } else { 0 }
    }
}

/// What is to be made of pages that were programmed after the mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Those that count, ascending: the longest row without a gap, each of which is whole.
    pub pages: Vec<FoundPage>,
    /// The last sequence number that counts.
    pub seq: u64,
    /// Those that must never count.
    pub void: Vec<Ppn>,
    /// Reads that it took.
    pub reads: u32,
}

impl<F: Flash> Formatted<F> {
    /// Finds out which of the pages with sequence numbers over `mark` count: up to the first that is missing or not whole,
    /// so that what counts is what there was after some program.
    pub fn verify_after(&mut self, mark: u64, mut pages: Vec<FoundPage>) -> Result<Verified, FlashError> {
        pages.sort_unstable_by_key(|page| (page.seq, page.ppn));
        let mut verified = Verified { seq: mark, ..Verified::default() };
        let mut data = vec![0; self.geometry.page_bytes() as usize];
        let mut has_gap = false;
        for page in pages {
            has_gap |= page.seq.saturating_sub(1 + u64::from(page.skipped)) > verified.seq;
            if !has_gap && page.seq > verified.seq && self.is_whole(&page, &mut data, &mut verified.reads)? {
                verified.seq = page.seq;
                verified.pages.push(page);
            } else {
                verified.void.push(page.ppn);
            }
        }
        Ok(verified)
    }

    /// Whether a page reads as it was programmed.
    fn is_whole(&mut self, page: &FoundPage, data: &mut [u8], reads: &mut u32) -> Result<bool, FlashError> {
        let mut tries = 0;
        loop {
            *reads += 1;
            tries += 1;
            match self.read_tagged(page.ppn, data) {
                Ok((Decoded::Tag(tag), _)) if tag.page.seq == page.seq && tag.data_crc == crc32c(data) => {
                    return Ok(true);
                }
                Err(error) if tries == READ_TRIES && !error.is_unreadable() => return Err(error),
                Ok(_) | Err(_) if tries == READ_TRIES => return Ok(false),
                _ => {}
            }
        }
    }

    /// Returns when everything done so far survives a power cut. After an error no later call succeeds, because nothing
    /// is known of what was done since the last sync.
    pub(crate) fn sync_device(&mut self) -> Result<(), FlashError> {
        self.durable.check()?;
        // An error of these programs is none of the sync: they are tried again.
        self.hand_over()?;
        self.end_sync(true)?;
        self.void_given_up()?;
        if self.durable.is_dirty || !self.durable.is_cached {
            self.wait_for_device()?;
        }
        if self.durable.is_cached && self.last_seq > self.durable.marked {
            // Without the new mark the old one holds, so that an error does not matter here.
            let _ = self.set_mark(self.last_seq);
        }
        Ok(())
    }

    /// Sees to it, before the program `seq`, that a mount has a bounded number of pages to verify.
    pub(crate) fn keep_mark(&mut self, seq: u64) -> Result<(), FlashError> {
        match self.durable.unmarked(seq) {
            MAX_UNMARKED.. => self.sync_device(),
            SOON_UNMARKED.. => self.begin_sync(),
            _ => Ok(()),
        }
    }

    /// See [`Flash::hold`].
    pub(crate) fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        self.durable.is_holding = on;
        self.device.hold(on)
    }

    fn hand_over(&mut self) -> Result<(), FlashError> {
        if let Some((summaries, device)) = self.device.summaries() {
            summaries.flush(device)?;
        }
        self.device.hold(false)?;
        if self.durable.is_holding { self.device.hold(true) } else { Ok(()) }
    }

    fn void_given_up(&mut self) -> Result<(), FlashError> {
        while let Some(ppn) = self.durable.given_up.last().copied() {
            self.void(ppn)?;
            self.durable.given_up.pop();
        }
        Ok(())
    }

    fn wait_for_device(&mut self) -> Result<(), FlashError> {
        let marked = self.durable.marked;
        self.device.sync().inspect_err(|_| self.durable.stop())?;
        (self.durable.is_dirty, self.durable.recorded) = (false, marked);
        Ok(())
    }

    /// Begins to make durable what was done so far, and its mark, unless a sync is under way.
    pub(crate) fn begin_sync(&mut self) -> Result<(), FlashError> {
        self.durable.check()?;
        if !self.durable.is_cached || !self.end_sync(false)? {
            return Ok(());
        }
        if self.hand_over().is_err() || self.void_given_up().is_err() {
            // Nothing waits for it yet. The next one tries again.
            return Ok(());
        }
        self.device.begin_sync().inspect_err(|_| self.durable.stop())?;
        self.durable.under_way = Some(UnderWay { seq: self.last_seq, marked: self.durable.marked });
        self.durable.is_dirty = false;
        Ok(())
    }

    /// Whether no sync is under way any more, which is waited for with `wait`.
    pub(crate) fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        self.durable.check()?;
        let Some(begun) = self.durable.under_way else { return Ok(true) };
        if !self.device.end_sync(wait).inspect_err(|_| self.durable.stop())? {
            return Ok(false);
        }
        (self.durable.under_way, self.durable.recorded) = (None, begun.marked);
        if begun.seq > self.durable.marked {
            // As after a sync that was waited for.
            let _ = self.set_mark(begun.seq);
        }
        Ok(true)
    }

    fn set_mark(&mut self, mark: u64) -> Result<(), FlashError> {
        self.device.set_mark(Some(mark))?;
        self.durable.marked = mark;
        Ok(())
    }

    /// Returns when it is known on flash that everything up to the sequence number `seq` is durable. Before that nothing
    /// may be erased that a page up to `seq` has superseded: a mount believes later pages only as far as all of those
    /// before them are there.
    pub(crate) fn record_durable(&mut self, seq: u64) -> Result<(), FlashError> {
        if self.durable.is_recorded(seq) {
            return Ok(());
        }
        // The one that is under way may do.
        self.end_sync(true)?;
        if self.durable.is_recorded(seq) {
            return Ok(());
        }
        self.sync_device()?;
        if self.durable.recorded < seq {
            if self.durable.marked < seq {
                self.set_mark(self.last_seq)?;
            }
            self.wait_for_device()?;
        }
        Ok(())
    }

    /// The first thing that is written to a device that was used before: makes durable what was found on it up to the
    /// sequence number `seq`, and makes the `void` pages, which were found and do not count, void for good.
    pub fn settle(&mut self, seq: u64, void: &[Ppn]) -> Result<(), FlashError> {
        self.note_seq(seq);
        self.durable.touch();
        if !self.durable.is_cached {
            // It is used in a way that no mark keeps up with.
            self.device.set_mark(None)?;
            return void.iter().try_for_each(|ppn| self.void(*ppn));
        }
        void.iter().try_for_each(|ppn| self.void(*ppn))?;
        self.wait_for_device()?;
        self.set_mark(seq)?;
        self.wait_for_device()
    }

    /// Nothing of what was done in a segment matters once it is erased.
    pub(crate) fn forget_pages_of(&mut self, segment: SegmentId) {
        let geometry = self.geometry;
        let is_elsewhere = |ppn: &Ppn| geometry.segment_of(*ppn) != segment;
        self.durable.given_up.retain(is_elsewhere);
        self.durable.begun = self.durable.begun.filter(is_elsewhere);
    }

    /// Says that a device that is being formatted holds nothing.
    pub fn reset_mark(&mut self) -> Result<(), FlashError> {
        if let Some((summaries, _)) = self.device.summaries() {
            summaries.start_empty();
        }
        self.device.set_mark(self.durable.is_cached.then_some(0))
    }

    /// Leaves nothing in a page that anybody would take for one.
    fn void(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        match self.layout.place {
            Place::Spare => self.device.void_page(ppn),
            Place::Table => {
                let (header, offset) = self.table_entry(ppn);
                self.device.program_part(header, offset, &[0; TAG_BYTES])
            }
        }
    }

    /// Offset of the tag of a page in the table of its segment's header, and the header's page (NOR).
    pub(crate) fn table_entry(&self, ppn: Ppn) -> (Ppn, u32) {
        let segment = self.geometry.segment_of(ppn);
        let index = self.geometry.page_in_segment(ppn) - self.layout.header_pages;
        let at = Layout::HEADER_TABLE + index * TAG_BYTES as u32;
        let page_bytes = self.geometry.page_bytes();
        (Ppn(self.geometry.first_page(segment).0 + at / page_bytes), at % page_bytes)
    }
}

//! Page-mapped translation: a disk on the log. Maps each logical page to the physical page that holds it.
//!
//! On a [`margay_format::Plain`] device nothing survives (measurement); on a [`margay_format::Formatted`] one, made by
//! [`Ftl::format`], [`Ftl::mount`] recovers everything.
#![no_std]
extern crate alloc;

mod error;
mod map;
mod mount;
mod paged;
mod recovery;
mod tally;

use alloc::{boxed::Box, vec, vec::Vec};
pub use error::FtlError;
use map::{Map, UNMAPPED};
use margay_flash::{FlashError, Lpn, Ppn, ReadStatus};
pub use margay_format::OwnPages;
use margay_format::Store;
use margay_log::Client as _;
pub use margay_log::MountReport;
use margay_log::{AuditError, Config, Content, Hint, Log, LogError, Policies, Progress};
pub use mount::{Loaded, MountError, load};
pub use paged::{MapCounters, PagedFtl, PagedLoaded, load_paged, min_map_bytes};
use tally::{Tallied, Tally};

/// Pages of the trim map that may be unwritten at once.
const MAX_DIRTY: usize = 8;

/// A disk of `exported_pages` pages on a log.
#[derive(Debug)]
pub struct Ftl<D> {
    log: Log<D, Lpn>,
    map: Map,
    /// Copies by group, if they are counted.
    tally: Option<Box<Tally>>,
}

impl<D: Store> Ftl<D> {
    /// An empty disk on an erased device. With cleaning spread over the writes it keeps pages of its own, so
    /// that it does on any device what it does on one that survives power cuts; `superblock` is the first.
    pub fn new(
        device: D,
        config: Config,
        policies: Policies,
        exported_pages: u32,
        superblock: &[u8],
    ) -> Result<Self, FtlError> {
        let page_bytes = device.geometry().page_bytes();
        if !config.is_paced() {
            let log = Log::new(device, config, policies, exported_pages)?;
            return Ok(Self { log, map: Map::volatile(exported_pages), tally: None });
        }
        let own = OwnPages::new(exported_pages, page_bytes);
        let log = Log::new(device, config, policies, own.owners())?;
        let mut ftl = Self { log, map: Map::durable(own, vec![UNMAPPED; own.owners() as usize]), tally: None };
        let mut page = vec![0; page_bytes as usize];
        page[..superblock.len()].copy_from_slice(superblock);
        ftl.log.write_own(&mut ftl.map, own.superblock(), &page)?;
        Ok(ftl)
    }

    /// Pages exported.
    pub fn exported_pages(&self) -> u32 {
        self.map.exported
    }

    #[inline(always)]
    fn check(&self, lpn: Lpn) -> Result<(), FtlError> {
        if lpn.0 >= self.map.exported {
            return Err(FtlError::OutOfRange { lpn, exported_pages: self.exported_pages() });
        }
        Ok(())
    }

    fn mapped(&self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        self.check(lpn)?;
        Ok(self.map.locate(lpn))
    }

    /// Writes a page. `data` is one page, or empty on a device without payload.
    #[inline(always)]
    pub fn write(&mut self, lpn: Lpn, data: &[u8], hint: Hint, now_us: u64) -> Result<(), FtlError> {
        self.check(lpn)?;
        match self.log.write(&mut self.map, lpn, Content::Page, data, hint, now_us) {
            Ok(_) => Ok(()),
            Err(error) => {
                if self.map.locate(lpn).is_none() {
                    // It may be on flash nevertheless; as far as anybody knows it is not.
                    self.map.trimmed(lpn);
                }
                Err(self.worn_out(error))
            }
        }
    }

    /// Writes pages without a payload, one after the other, each at its time. Returns when `writes` has ended, or, with
    /// true, after a write that opened a segment: only such a write causes more than its own program. Quicker than
    /// [`Ftl::write`] for each, with the same result.
    ///
    /// # Errors
    ///
    /// Those of [`Ftl::write`], for the item that was taken from `writes` last. What was taken before is written.
    #[inline(always)]
    pub fn write_run(&mut self, writes: &mut impl Iterator<Item = (Lpn, u64)>) -> Result<bool, FtlError> {
        let (exported, openings) = (self.map.exported, self.log.openings());
        if !self.log.takes_runs() {
            for (lpn, now_us) in writes {
                self.write(lpn, &[], Hint::None, now_us)?;
                if self.log.openings() != openings {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        loop {
            let mut refused = None;
            let fits = writes.by_ref().map_while(|write| {
                refused = Some(write).filter(|(lpn, _)| lpn.0 >= exported);
                refused.is_none().then_some(write)
            });
            self.log.write_run(&mut self.map, fits)?;
            let Some((lpn, now_us)) = refused.or_else(|| writes.next()) else { return Ok(false) };
            self.write(lpn, &[], Hint::None, now_us)?;
            if self.log.openings() != openings {
                return Ok(true);
            }
        }
    }

    /// As [`Ftl::write_run`], with a hint for each write; counts the copies that it causes, if [`Ftl::count_copies_by`] was
    /// called. It is slower.
    ///
    /// # Errors
    ///
    /// Those of [`Ftl::write_run`].
    pub fn write_run_hinted(&mut self, writes: &mut impl Iterator<Item = (Lpn, Hint, u64)>) -> Result<bool, FtlError> {
        let openings = self.log.openings();
        for (lpn, hint, now_us) in writes {
            self.check(lpn)?;
            if let Self { log, map, tally: Some(tally) } = self {
                let mut client = Tallied { map, tally };
                let written = log.write(&mut client, lpn, Content::Page, &[], hint, now_us);
                if written.is_ok() {
                    client.written(lpn);
                }
                written.map_err(|error| self.worn_out(error))?;
            } else {
                self.write(lpn, &[], hint, now_us)?;
            }
            if self.log.openings() != openings {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An error of a device that lost segments says so.
    #[cold]
    fn worn_out(&self, error: LogError) -> FtlError {
        worn_out(error, self.log.retired_segments().len())
    }

    /// Writes a page of the initial content: at time 0, and not counted as a host write.
    pub fn fill(&mut self, lpn: Lpn, data: &[u8], hint: Hint) -> Result<(), FtlError> {
        if let Some(old) = self.mapped(lpn)? {
            self.log.trim(old, 0);
            self.map.pages[lpn.index()] = UNMAPPED;
        }
        self.log.fill(&mut self.map, lpn, Content::Page, data, hint)?;
        Ok(())
    }

    /// Reads a page; `None`, with `data` untouched, if it was never written or was trimmed. A page that the ECC
    /// had to correct is rewritten soon.
    pub fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<Option<ReadStatus>, FtlError> {
        let Some(ppn) = self.mapped(lpn)? else { return Ok(None) };
        Ok(Some(self.log.read(ppn, data)?))
    }

    /// Reads the page `first` and as many of the next ones as lie behind it on flash and have room in `data`, which has room
    /// for one. Returns how many pages were read; 0, with `data` untouched, if `first` was never written or was trimmed.
    /// The error is that of the first page that cannot be read.
    pub fn read_run(&mut self, first: Lpn, data: &mut [u8]) -> Result<usize, FtlError> {
        let Some(ppn) = self.mapped(first)? else { return Ok(0) };
        let (map, lpns) = (&self.map, first.0 + 1..self.map.exported);
        let next = lpns.map(|lpn| map.locate(Lpn(lpn)));
        Ok(self.log.read_run(ppn, next, data)?)
    }

    /// Where a page lives.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        self.mapped(lpn).ok().flatten()
    }

    /// Whether a page was written and not trimmed since.
    pub fn is_mapped(&self, lpn: Lpn) -> bool {
        matches!(self.mapped(lpn), Ok(Some(_)))
    }

    /// Forgets a page. Trimming an unmapped page does nothing. It survives a power cut after the next flush.
    pub fn trim(&mut self, lpn: Lpn, now_us: u64) -> Result<(), FtlError> {
        if let Some(ppn) = self.mapped(lpn)? {
            self.log.trim(ppn, now_us);
            self.map.pages[lpn.index()] = UNMAPPED;
            if self.map.trimmed(lpn) >= MAX_DIRTY {
                self.log.write_pending(&mut self.map).map_err(|error| self.worn_out(error))?;
            }
        }
        Ok(())
    }

    /// Returns when everything written and trimmed so far survives a power cut: at most one page is programmed
    /// for each page of the trim map that changed. If there is no room for them on a device that is worn out, that is the
    /// error, and trims may be undone by a power cut.
    pub fn flush(&mut self) -> Result<(), FtlError> {
        self.log.flush_pending(&mut self.map).map_err(|error| self.worn_out(error))?;
        self.log.sync().map_err(|error| self.worn_out(error))
    }

    /// With `on`, pages written from now on may reach the device together; without, returns when they have. See
    /// [`margay_flash::Flash::hold`].
    pub fn hold(&mut self, on: bool) -> Result<(), FtlError> {
        Ok(self.log.device_mut().hold(on).map_err(LogError::from)?)
    }

    /// Cleans a little; see [`Log::clean_step`].
    pub fn clean_step(&mut self, budget_pages: u32) -> Result<Progress, FtlError> {
        Ok(self.log.clean_step(&mut self.map, budget_pages)?)
    }

    /// Work for idle time: rewrites a page that was hard to read, or cleans ahead. False if there is none.
    pub fn idle_step(&mut self, budget_pages: u32) -> Result<bool, FtlError> {
        Ok(self.log.idle_step(&mut self.map, budget_pages)?)
    }

    /// Segments that were retired.
    pub fn retired_segments(&self) -> &[margay_flash::SegmentId] {
        self.log.retired_segments()
    }

    /// See [`Log::limit_reads`].
    pub fn limit_reads(&mut self, max_reads: u32) {
        self.log.limit_reads(max_reads);
    }

    /// The log below.
    pub fn log(&self) -> &Log<D, Lpn> {
        &self.log
    }

    /// The device, for reads that are no host reads.
    pub fn device_mut(&mut self) -> &mut D {
        self.log.device_mut()
    }

    /// Gives the device back, as after a power cut.
    pub fn into_device(self) -> D {
        self.log.into_device()
    }

    /// Counts the copies that [`Ftl::write_run_hinted`] causes by groups of logical pages: `groups` has the group of each page, 0
    /// behind its end.
    pub fn count_copies_by(&mut self, groups: Vec<u16>) {
        self.tally = Some(Box::new(Tally::new(groups)));
    }

    /// Whether copies are counted.
    pub fn counts_copies(&self) -> bool {
        self.tally.is_some()
    }

    /// Copies by group since [`Ftl::count_copies_by`]; none if it was not called.
    pub fn copies_by_group(&self) -> &[u64] {
        self.tally.as_ref().map_or(&[], |tally| &tally.copies)
    }

    /// Resets the counters; erase counts are kept.
    pub fn reset_counters(&mut self) {
        self.log.reset_counters();
    }

    /// Recomputes every count and compares. O(pages).
    pub fn audit(&self) -> Result<(), AuditError> {
        self.log.audit(|lpn: Lpn, ppn| self.map.pages.get(lpn.index()) == Some(&ppn.0))
    }

    /// Bytes of memory held per page of flash, the map included.
    pub fn memory_bytes(&self) -> u64 {
        self.log.memory_bytes() + self.map.pages.capacity() as u64 * 4
    }
}

fn worn_out(error: LogError, retired_segments: usize) -> FtlError {
    match (error, retired_segments as u32) {
        (LogError::NoSpace { .. }, retired_segments @ 1..) => FtlError::WornOut { retired_segments },
        _ => error.into(),
    }
}

/// Whether an error of the device means that a page cannot be read.
pub fn is_unreadable(error: &FtlError) -> bool {
    matches!(
        error,
        FtlError::Log(LogError::Flash(
            FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. } | FlashError::Lost { .. }
        ))
    )
}

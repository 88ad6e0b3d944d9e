//! A disk whose map is on flash: translation pages in a stream of their own, of which a few are in memory, and changes of
//! them that are not on flash yet ([decision 13](../../../docs/decisions/0013-map-on-flash.md)).

mod cache;
mod changes;
mod map;
mod mount;
mod recovery;

use crate::FtlError;
use crate::map::UNMAPPED;
use alloc::format;
use alloc::{vec, vec::Vec};
use map::{PagedMap, Sizes};
use margay_flash::{Flash, FlashError, Lpn, Ppn, ReadStatus, SegmentId};
use margay_format::{Formatted, OwnPages, PageKind, Store as _, decode_translation};
use margay_log::{AuditError, Client as _, Content, Hint, Log, LogError};
pub use mount::{PagedLoaded, load_paged};

/// What a map on flash has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounters {
    /// Pages of which it was asked where they are.
    pub lookups: u64,
    /// Those for which a translation page was read.
    pub misses: u64,
    /// Translation pages read.
    pub reads: u64,
    /// Translation pages written. They are part of the log's metadata pages.
    pub writes: u64,
    /// Translation pages that could not be read and were made again from the tags of all pages.
    pub rebuilt: u64,
}

/// A disk whose map is on flash. It does what [`crate::Ftl`] does, in less memory and with more reads and writes.
#[derive(Debug)]
pub struct PagedFtl<F> {
    log: Log<Formatted<F>, Lpn>,
    map: PagedMap,
    counters: MapCounters,
    /// A translation page.
    page: Vec<u8>,
    /// Groups of pages without a place whose writes were refused and may be on flash all the same.
    refused: Vec<u32>,
}

/// The least memory that the map of a disk with these pages can have on flash, in bytes.
pub fn min_map_bytes(own: OwnPages) -> u64 {
    Sizes::min_bytes(own)
}

impl<F: Flash> PagedFtl<F> {
    fn with(log: Log<Formatted<F>, Lpn>, map: PagedMap) -> Self {
        let page = vec![0; log.device().geometry().page_bytes() as usize];
        Self { log, map, counters: MapCounters::default(), page, refused: Vec::new() }
    }

    /// Pages exported.
    pub fn exported_pages(&self) -> u32 {
        self.map.own.exported()
    }

    fn check(&self, lpn: Lpn) -> Result<(), FtlError> {
        if lpn.0 >= self.exported_pages() {
            return Err(FtlError::OutOfRange { lpn, exported_pages: self.exported_pages() });
        }
        Ok(())
    }

    /// Where a page lives; `None` if it was never written or was trimmed. Reads a translation page if it has to.
    ///
    /// # Errors
    /// [`FtlError::OutOfRange`], and those of the device.
    pub fn place(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        self.check(lpn)?;
        self.counters.lookups += 1;
        if self.map.changes.get(lpn).is_none() {
            let before = self.counters.reads;
            self.load(self.map.own.group_of(lpn))?;
            self.counters.misses += self.counters.reads - before;
        }
        Ok(self.map.locate(lpn))
    }

    /// Brings the translation page of a group into the cache.
    fn load(&mut self, group: u32) -> Result<(), FtlError> {
        if self.map.cache.touch(group) {
            return Ok(());
        }
        let mut entries = self.map.make_room();
        let owner = self.map.own.trims(group);
        if let Some(ppn) = self.map.locate(owner) {
            self.counters.reads += 1;
            let is_read = match self.log.read_own(ppn, owner, &mut self.page) {
                Ok(()) => decode_translation(group, &self.page)
                    .map(|(_, read)| entries.iter_mut().zip(read).for_each(|(entry, read)| *entry = read)),
                Err(LogError::Flash(error)) if error.is_unreadable() => None,
                Err(error) => return Err(error.into()),
            };
            if is_read.is_none() {
                self.rebuild(group, &mut entries)?;
                // It is written again soon.
                self.map.make_due(group);
            }
        } else {
            entries.fill(UNMAPPED);
        }
        self.map.cache.insert(group, entries);
        Ok(())
    }

    /// A translation page cannot be read: the tags of the valid pages say what it said.
    #[cold]
    fn rebuild(&mut self, group: u32, entries: &mut [u32]) -> Result<(), FtlError> {
        self.counters.rebuilt += 1;
        entries.fill(UNMAPPED);
        let pages = self.map.own.pages_of(group);
        for segment in (0..self.log.device().geometry().segments()).map(SegmentId) {
            let found = self.log.device_mut().scan_segment(segment, None).map_err(LogError::from)?;
            for page in found.pages.iter().filter(|page| page.kind == PageKind::Data && self.log.is_valid(page.ppn)) {
                if let Some(lpn) = u32::try_from(page.owner).ok().filter(|lpn| pages.contains(lpn)) {
                    entries[(lpn - pages.start) as usize] = page.ppn.0;
                }
            }
        }
        Ok(())
    }

    /// The cleaner does not know whose a page is, because its tag cannot be read: the map says so.
    #[cold]
    fn name_unknown(&mut self, ppn: Ppn) -> Result<(), FtlError> {
        let own = self.map.places.iter().position(|place| *place == ppn.0);
        let own = own.map(|at| Lpn(self.exported_pages() + at as u32));
        let changed = || self.map.changes.iter().find(|(_, place)| *place == ppn.0).map(|(lpn, _)| lpn);
        let mut owner = own.or_else(changed);
        let mut group = 0;
        while owner.is_none() && group < self.map.own.groups() {
            self.load(group)?;
            owner = self.map.own.pages_of(group).map(Lpn).find(|lpn| self.map.place(*lpn) == ppn.0);
            group += 1;
        }
        match owner {
            Some(owner) => self.log.name_owner(owner),
            None => self.log.give_up_unknown(),
        }
        Ok(())
    }

    /// What has to be done before the map changes: there is room for changes, and nothing is unknown.
    fn prepare(&mut self) -> Result<(), FtlError> {
        self.log.begin_work();
        if let Some(ppn) = self.log.unknown_owner() {
            self.name_unknown(ppn)?;
        }
        while let Some(group) = self.refused.last().copied() {
            self.load(group)?;
            self.map.make_due(group);
            self.refused.pop();
        }
        // The other half of the work that is allowed is for what follows. More changes than there should be are a matter of
        // memory alone, and the more there are the fewer pages hold them.
        let max_pages = u64::from(self.log.config().max_pages_per_write / 2).max(1);
        while self.map.changes.len() > self.map.max_changes && self.log.work_pages() < max_pages {
            if !self.write_changes()? {
                break;
            }
        }
        Ok(())
    }

    /// Writes the translation page of a group with changes. False if there is no room for it, which whoever writes next is
    /// told.
    fn write_changes(&mut self) -> Result<bool, FtlError> {
        let Some(group) = self.map.next_group() else { return Ok(false) };
        self.load(group)?;
        self.map.writing = Some(group);
        let result = self.log.write_own_in_step(&mut self.map);
        self.map.writing = None;
        match result {
            Ok(is_written) => {
                self.counters.writes += u64::from(is_written);
                Ok(true)
            }
            Err(LogError::OwnerUnknown { ppn }) => self.name_unknown(ppn).map(|()| true),
            Err(LogError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a page.
    ///
    /// # Errors
    /// As [`crate::Ftl::write`].
    pub fn write(&mut self, lpn: Lpn, data: &[u8], hint: Hint, now_us: u64) -> Result<(), FtlError> {
        self.check(lpn)?;
        self.prepare()?;
        self.place(lpn)?;
        let mut result = self.log.write(&mut self.map, lpn, Content::Page, data, hint, now_us);
        if let Err(LogError::OwnerUnknown { ppn }) = result {
            self.name_unknown(ppn)?;
            self.place(lpn)?;
            result = self.log.write(&mut self.map, lpn, Content::Page, data, hint, now_us);
        }
        result.map(drop).map_err(|error| {
            // It may be on flash nevertheless; as far as anybody knows it is not.
            let place = self.map.place(lpn);
            self.map.changes.insert(lpn, place);
            if place == UNMAPPED {
                self.refused.push(self.map.own.group_of(lpn));
            }
            self.worn_out(error)
        })
    }

    /// An error of a device that lost segments says so.
    #[cold]
    fn worn_out(&self, error: LogError) -> FtlError {
        crate::worn_out(error, self.log.retired_segments().len())
    }

    /// Reads a page; `None`, with `data` untouched, if it was never written or was trimmed. A page that the ECC had to
    /// correct is rewritten soon.
    ///
    /// # Errors
    /// As [`crate::Ftl::read`].
    pub fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<Option<ReadStatus>, FtlError> {
        let Some(ppn) = self.place(lpn)? else { return Ok(None) };
        Ok(Some(self.log.read_of(ppn, lpn, data)?))
    }

    /// As [`crate::Ftl::read_run`].
    ///
    /// # Errors
    /// As [`crate::Ftl::read_run`].
    pub fn read_run(&mut self, first: Lpn, data: &mut [u8]) -> Result<usize, FtlError> {
        let Some(ppn) = self.place(first)? else { return Ok(0) };
        let map = &self.map;
        // As far as that is known without another translation page.
        let known = (first.0 + 1..map.own.exported()).map(Lpn).take_while(|lpn| map.knows(*lpn));
        Ok(self.log.read_run_of(ppn, known.map(|lpn| map.locate(lpn)), |at| Lpn(first.0 + at), data)?)
    }

    /// Whether a page was written and not trimmed since.
    ///
    /// # Errors
    /// Those of the device.
    pub fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(self.place(lpn)?.is_some())
    }

    /// Forgets a page. Trimming an unmapped page does nothing. It survives a power cut after the next flush.
    ///
    /// # Errors
    /// As [`crate::Ftl::trim`].
    pub fn trim(&mut self, lpn: Lpn, now_us: u64) -> Result<(), FtlError> {
        if self.place(lpn)?.is_none() {
            return Ok(());
        }
        self.prepare()?;
        let group = self.map.own.group_of(lpn);
        if self.map.must_write_before(group) {
            self.log.write_pending(&mut self.map).map_err(|error| self.worn_out(error))?;
        }
        self.load(group)?;
        if let Some(ppn) = self.map.locate(lpn) {
            self.log.trim(ppn, now_us);
            self.map.changes.insert(lpn, UNMAPPED);
            self.map.make_due(group);
        }
        Ok(())
    }

    /// Returns when everything written and trimmed so far survives a power cut: at most one page is programmed for each
    /// translation page that has trims. If there is no room for them on a device that is worn out, that is the error, and
    /// trims may be undone by a power cut.
    ///
    /// # Errors
    /// Those of the device.
    pub fn flush(&mut self) -> Result<(), FtlError> {
        self.prepare()?;
        self.log.flush_pending(&mut self.map).map_err(|error| self.worn_out(error))?;
        self.log.sync().map_err(|error| self.worn_out(error))
    }

    /// As [`crate::Ftl::hold`].
    ///
    /// # Errors
    /// Those of the device.
    pub fn hold(&mut self, on: bool) -> Result<(), FtlError> {
        Ok(self.log.device_mut().hold(on).map_err(LogError::from)?)
    }

    /// Work for idle time: rewrites a page that was hard to read, or cleans ahead. False if there is none.
    ///
    /// # Errors
    /// Those of the device.
    pub fn idle_step(&mut self, budget_pages: u32) -> Result<bool, FtlError> {
        match self.prepare() {
            // Whoever writes is told.
            Err(FtlError::Log(LogError::Flash(FlashError::Stopped))) => return Ok(false),
            result => result?,
        }
        Ok(self.log.idle_step(&mut self.map, budget_pages)?)
    }

    /// What the map has done.
    pub fn map_counters(&self) -> MapCounters {
        self.counters
    }

    /// See [`Log::limit_reads`].
    pub fn limit_reads(&mut self, max_reads: u32) {
        self.log.limit_reads(max_reads);
    }

    /// The log below.
    pub fn log(&self) -> &Log<Formatted<F>, Lpn> {
        &self.log
    }

    /// The device, for reads that are no host reads.
    pub fn device_mut(&mut self) -> &mut Formatted<F> {
        self.log.device_mut()
    }

    /// Gives the device back, as after a power cut.
    pub fn into_device(self) -> Formatted<F> {
        self.log.into_device()
    }

    /// Resets the counters; erase counts are kept.
    pub fn reset_counters(&mut self) {
        self.counters = MapCounters::default();
        self.log.reset_counters();
    }

    /// Recomputes every count and compares. O(pages); reads every translation page.
    ///
    /// # Errors
    /// What differs, or cannot be read.
    pub fn audit(&mut self) -> Result<(), AuditError> {
        self.log.audit(|_, _| true)?;
        let counters = self.counters;
        let mut count = 0u64;
        let mut taken = vec![0u64; self.log.device().geometry().pages().div_ceil(64) as usize];
        for owner in (0..self.map.own.owners()).map(Lpn) {
            let place = match owner.0 < self.exported_pages() {
                true => self.place(owner).map_err(|error| AuditError::new(format!("page {owner}: {error}")))?,
                false => self.map.locate(owner),
            };
            let Some(ppn) = place else { continue };
            if !self.log.is_valid(ppn) {
                return Err(AuditError::new(format!("page {owner} is mapped to page {ppn}, which is not valid")));
            }
            let (word, bit) = (&mut taken[ppn.index() / 64], 1 << (ppn.0 % 64));
            if *word & bit != 0 {
                return Err(AuditError::new(format!("page {owner} is mapped to page {ppn}, as another page is")));
            }
            *word |= bit;
            count += 1;
        }
        self.counters = counters;
        let valid = self.log.segments().total_valid;
        if count != valid {
            return Err(AuditError::new(format!("mapped pages: {count}, of {valid} that are valid")));
        }
        Ok(())
    }

    /// Bytes of memory held for the map and for pages of flash.
    pub fn memory_bytes(&self) -> u64 {
        self.log.memory_bytes() + self.map_memory_bytes()
    }

    /// Bytes of memory held for the map.
    pub fn map_memory_bytes(&self) -> u64 {
        self.map.memory_bytes() as u64
    }
}

use crate::logs::{LogBlock, NONE, Tables};
use crate::retired::RetiredList;
use crate::{Host, HybridConfig, HybridCounters, HybridError, HybridMountReport, Mapping, NoCache, Persistence};
use alloc::collections::VecDeque;
use alloc::{vec, vec::Vec};
use margay_flash::{FlashError, Geometry, Lpn, Ppn, ReadStatus, SegmentId};
use margay_format::{FreeList, FreeSegment, PageInfo, Store};

/// What a segment was opened for, as its stream in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stream {
    Data = 0,
    Random = 1,
    Sequential = 2,
    RetiredList = 3,
}

/// A hybrid-mapped store of `config.logical_pages` pages.
#[derive(Debug)]
pub struct Hybrid<D> {
    pub(crate) store: D,
    pub(crate) config: HybridConfig,
    pub(crate) geometry: Geometry,
    /// Pages in a block.
    pub(crate) pages: u32,
    /// By block, the segment of its data block.
    pub(crate) data: Vec<u32>,
    /// By page, one bit: its newest copy is in the data block.
    pub(crate) present: Vec<u64>,
    pub(crate) tables: Tables,
    /// The slots; the last one is the sequential log block if there is one.
    pub(crate) logs: Vec<LogBlock>,
    /// Random log blocks in use, oldest first.
    pub(crate) order: VecDeque<u32>,
    /// Slots not in use. A mount after a power cut may have made some more.
    pub(crate) idle: Vec<u32>,
    /// BAST: by block, its log block.
    pub(crate) owned: Vec<u32>,
    pub(crate) free: FreeList,
    /// Segments that are not to be programmed any more, though some still hold pages.
    pub(crate) retire_queue: Vec<SegmentId>,
    pub(crate) list: RetiredList,
    pub(crate) erases: Vec<u32>,
    pub(crate) total_erases: u64,
    pub(crate) seq: u64,
    pub(crate) writes: u64,
    pub(crate) counters: HybridCounters,
    pub(crate) report: HybridMountReport,
    /// Swap: pages whose copy was given up for a write that then failed.
    pub(crate) not_written: Vec<Lpn>,
    pub(crate) plan: Vec<crate::MergeAction>,
    pub(crate) scratch: Vec<u8>,
}

impl<D: Store> Hybrid<D> {
    /// An empty store on an erased device.
    pub fn new(store: D, config: HybridConfig) -> Result<Self, HybridError> {
        let mut hybrid = Self::without_segments(store, config)?;
        let segments = config.reserved_segments..hybrid.geometry.segments();
        segments.for_each(|segment| hybrid.free.push(FreeSegment::erased(SegmentId(segment))));
        Ok(hybrid)
    }

    pub(crate) fn without_segments(store: D, config: HybridConfig) -> Result<Self, HybridError> {
        let geometry = *store.geometry();
        config.check(&geometry)?;
        let (pages, blocks) = (config.pages_per_block(&geometry), config.blocks(&geometry));
        let owned = if config.mapping == Mapping::Bast { blocks as usize } else { 0 };
        Ok(Self {
            config,
            geometry,
            pages,
            data: vec![NONE; blocks as usize],
            present: vec![0; config.logical_pages.div_ceil(64) as usize],
            tables: Tables::new(blocks, pages),
            logs: vec![LogBlock::idle(pages); config.log_blocks as usize],
            order: VecDeque::new(),
            idle: (0..config.random_log_blocks()).rev().collect(),
            owned: vec![NONE; owned],
            free: FreeList::default(),
            retire_queue: Vec::new(),
            list: RetiredList::EMPTY,
            erases: vec![0; geometry.segments() as usize],
            total_erases: 0,
            seq: 0,
            writes: 0,
            counters: HybridCounters::default(),
            report: HybridMountReport::default(),
            not_written: Vec::new(),
            plan: Vec::new(),
            scratch: vec![0; geometry.page_bytes() as usize],
            store,
        })
    }

    /// What it was made with.
    pub const fn config(&self) -> &HybridConfig {
        &self.config
    }

    /// What was done so far.
    pub const fn counters(&self) -> &HybridCounters {
        &self.counters
    }

    /// What opening the device has found.
    pub const fn mount_report(&self) -> &HybridMountReport {
        &self.report
    }

    /// Resets the counters; erase counts are kept.
    pub fn reset_counters(&mut self) {
        self.counters = HybridCounters::default();
    }

    /// Pages in a block.
    pub const fn pages_per_block(&self) -> u32 {
        self.pages
    }

    /// By segment, how often it was erased.
    pub fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// The device.
    pub fn store(&self) -> &D {
        &self.store
    }

    /// The device, for its own operations.
    pub fn store_mut(&mut self) -> &mut D {
        &mut self.store
    }

    /// Gives the device back, as after a power cut.
    pub fn into_store(self) -> D {
        self.store
    }

    /// Bytes of memory held: the map, the log blocks, the wear.
    pub fn memory_bytes(&self) -> u64 {
        let words = self.data.capacity() + self.owned.capacity() + self.erases.capacity();
        let logs = self.logs.iter().map(|log| 4 * log.owners.capacity() + size_of::<LogBlock>()).sum::<usize>();
        self.tables.memory_bytes() + (words * 4 + self.present.capacity() * 8 + logs) as u64
    }

    pub(crate) fn sequential_slot(&self) -> Option<u32> {
        match self.config.mapping {
            Mapping::Fast { sequential: true, .. } => Some(self.config.log_blocks - 1),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn block_of(&self, lpn: Lpn) -> u32 {
        lpn.0 / self.pages
    }

    /// Pages that a block exports: the last may be shorter.
    pub(crate) fn pages_of(&self, block: u32) -> u32 {
        self.pages.min(self.config.logical_pages - block * self.pages)
    }

    pub(crate) fn ppn(&self, segment: u32, position: u32) -> Ppn {
        Ppn(self.geometry.first_page(SegmentId(segment)).0 + self.config.header_pages + position)
    }

    #[inline]
    pub(crate) fn is_present(&self, lpn: Lpn) -> bool {
        self.present[lpn.index() / 64] >> (lpn.0 % 64) & 1 != 0
    }

    #[inline]
    pub(crate) fn set_present(&mut self, lpn: Lpn, is: bool) {
        let bit = 1 << (lpn.0 % 64);
        let word = &mut self.present[lpn.index() / 64];
        *word = if is { *word | bit } else { *word & !bit };
    }

    /// Where the newest copy of a page is.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        if lpn.0 >= self.config.logical_pages {
            return None;
        }
        match self.tables.get(lpn) {
            Some((slot, position)) => Some(self.ppn(self.logs[slot as usize].segment, position)),
            None if self.is_present(lpn) => Some(self.ppn(self.data[self.block_of(lpn) as usize], lpn.0 % self.pages)),
            None => None,
        }
    }

    /// Whether flash has a copy of a page.
    #[inline]
    pub fn is_on_flash(&self, lpn: Lpn) -> bool {
        lpn.0 < self.config.logical_pages && (self.is_present(lpn) || self.tables.get(lpn).is_some())
    }

    /// Blocks that a log block holds a newest copy of a page of. O(blocks).
    pub fn blocks_in(&self, slot: u32) -> impl Iterator<Item = u32> {
        (0..self.data.len() as u32).filter(move |block| self.tables.holds(slot, *block))
    }

    fn check(&self, lpn: Lpn) -> Result<(), HybridError> {
        if lpn.0 < self.config.logical_pages {
            return Ok(());
        }
        Err(HybridError::OutOfRange { lpn, logical_pages: self.config.logical_pages })
    }

    /// Reads a page; `None`, with `data` untouched, if flash has none.
    ///
    /// # Errors
    ///
    /// Those of the device, such as [`FlashError::Uncorrectable`]; [`HybridError::NotWritten`] if the last write of a page
    /// of a swap store has failed.
    pub fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<Option<ReadStatus>, HybridError> {
        self.check(lpn)?;
        let Some(ppn) = self.place(lpn) else {
            return if self.not_written.contains(&lpn) { Err(HybridError::NotWritten { lpn }) } else { Ok(None) };
        };
        self.counters.host_reads += 1;
        Ok(Some(self.store.read(ppn, lpn.0.into(), data)?))
    }

    /// Writes a page. `data` is one page, or empty on a device without payload.
    ///
    /// # Errors
    ///
    /// [`HybridError::Flash`] with [`FlashError::Io`] if the device failed for the moment: the write can be tried again. A
    /// persistent store then has the page as it was, a swap store none, which reading it says.
    pub fn write<H: Host>(&mut self, lpn: Lpn, data: &[u8], host: &mut H) -> Result<(), HybridError> {
        self.check(lpn)?;
        if self.report.is_worn_out {
            return Err(self.worn_out());
        }
        self.save_retired()?;
        let is_volatile = self.config.persistence == Persistence::Volatile;
        let is_given_up = is_volatile && self.forget(lpn, host);
        self.writes += 1;
        if let Err(error) = self.put(lpn, data, host) {
            if is_given_up {
                self.not_written.push(lpn);
            }
            return Err(error);
        }
        self.note_written(lpn);
        self.counters.host_writes += 1;
        Ok(())
    }

    fn put<H: Host>(&mut self, lpn: Lpn, data: &[u8], host: &mut H) -> Result<(), HybridError> {
        loop {
            let slot = match self.config.mapping {
                Mapping::Bast => self.own_slot(lpn, host)?,
                Mapping::Fast { leave_open, .. } => match self.sequential_place(lpn, leave_open, host)? {
                    Some(slot) => slot,
                    None => self.random_slot(host)?,
                },
            };
            if self.append(slot, lpn, data, host)? {
                return Ok(());
            }
        }
    }

    /// Returns when everything written so far survives a power cut.
    pub fn sync(&mut self) -> Result<(), HybridError> {
        self.save_retired()?;
        Ok(self.store.sync()?)
    }

    /// Gives up the content of a page of a swap store.
    pub fn discard<H: Host>(&mut self, lpn: Lpn, host: &mut H) -> Result<(), HybridError> {
        self.check(lpn)?;
        if self.config.persistence == Persistence::Persistent {
            return Err(HybridError::WouldLose { lpn });
        }
        self.forget(lpn, host);
        self.note_written(lpn);
        Ok(())
    }

    /// Writes the pages for which `has` returns true to data blocks, block by block, as the state before a run; the store holds
    /// no others. The places of the others stay empty, and a block without any page has no data block. On a device with payload the pages
    /// are zeros. After an error the blocks before are written, and the others are as they were.
    pub fn preload<H: Host>(&mut self, host: &mut H, has: impl Fn(Lpn) -> bool) -> Result<(), HybridError> {
        for block in 0..self.data.len() as u32 {
            let first = block * self.pages;
            let lpns = (first..first + self.pages_of(block)).map(Lpn).filter(|lpn| has(*lpn));
            if lpns.clone().next().is_none() {
                continue;
            }
            let segment = loop {
                let segment = self.take_free(Stream::Data)?;
                let zeros = core::mem::take(&mut self.scratch);
                let mut program = |lpn: Lpn| self.program(self.ppn(segment.0, lpn.0 - first), lpn, &zeros);
                let programmed = lpns.clone().try_for_each(&mut program);
                self.scratch = zeros;
                match programmed {
                    Ok(()) => break segment,
                    Err(error) => self.abandon(segment, error)?,
                }
            };
            for lpn in lpns {
                self.forget(lpn, host);
                self.set_present(lpn, true);
                host.on_flash(lpn, true);
            }
            let old = core::mem::replace(&mut self.data[block as usize], segment.0);
            self.store.finish(segment, self.ppn(segment.0, self.pages))?;
            if old != NONE {
                self.release(SegmentId(old))?;
            }
        }
        Ok(())
    }

    /// The log block that is to take a page: that of its own block (BAST).
    fn own_slot<H: Host>(&mut self, lpn: Lpn, host: &mut H) -> Result<u32, HybridError> {
        let block = self.block_of(lpn);
        loop {
            let slot = self.owned[block as usize];
            if slot != NONE && self.logs[slot as usize].has_room() {
                return Ok(slot);
            }
            if slot != NONE {
                let at =
                    self.order.iter().position(|other| *other == slot).expect("a log block in use is in the order");
                self.merge_random(at, host)?;
            } else if self.may_open_random() {
                return self.open_random(block);
            } else {
                self.merge_victim(host)?;
            }
        }
    }

    /// The sequential log block, if it is to take the page; it may be merged for that.
    fn sequential_place<H: Host>(
        &mut self,
        lpn: Lpn,
        leave_open: bool,
        host: &mut H,
    ) -> Result<Option<u32>, HybridError> {
        let Some(slot) = self.sequential_slot() else { return Ok(None) };
        let (block, offset) = (self.block_of(lpn), lpn.0 % self.pages);
        if offset == 0 {
            if self.logs[slot as usize].is_in_use() {
                self.merge_sequential(host)?;
            }
            while !self.has_free_for_log() {
                self.merge_victim(host)?;
            }
            self.open(slot, block, Stream::Sequential)?;
            return Ok(Some(slot));
        }
        let log = &self.logs[slot as usize];
        if log.is_in_use() && log.block == block {
            if log.next == offset && log.has_room() {
                return Ok(Some(slot));
            }
            if !leave_open || !log.has_room() {
                self.merge_sequential(host)?;
            }
        }
        Ok(None)
    }

    /// A random log block with room.
    fn random_slot<H: Host>(&mut self, host: &mut H) -> Result<u32, HybridError> {
        loop {
            if let Some(newest) = self.order.back().filter(|slot| self.logs[**slot as usize].has_room()) {
                return Ok(*newest);
            }
            if self.may_open_random() {
                return self.open_random(NONE);
            }
            self.merge_victim(host)?;
        }
    }

    /// A log block may be opened only if a segment to merge into is left.
    fn has_free_for_log(&self) -> bool {
        self.free.len() >= 2
    }

    fn may_open_random(&self) -> bool {
        self.has_free_for_log() && self.order.len() < self.config.random_log_blocks() as usize
    }

    pub(crate) fn open_random(&mut self, block: u32) -> Result<u32, HybridError> {
        let slot = *self.idle.last().expect("asked for before");
        self.open(slot, block, Stream::Random)?;
        self.idle.pop();
        self.order.push_back(slot);
        if block != NONE {
            self.owned[block as usize] = slot;
        }
        Ok(slot)
    }

    fn open(&mut self, slot: u32, block: u32, stream: Stream) -> Result<(), HybridError> {
        let segment = self.take_free(stream)?.0;
        let log = &mut self.logs[slot as usize];
        (log.segment, log.next, log.end, log.valid, log.block) = (segment, 0, self.pages, 0, block);
        Ok(())
    }

    /// Programs a page under the next sequence number. One that was given to a program that failed is used up, because
    /// the page may be there all the same.
    pub(crate) fn program(&mut self, ppn: Ppn, lpn: Lpn, data: &[u8]) -> Result<(), FlashError> {
        self.seq += 1;
        let page = PageInfo { owner: lpn.0.into(), seq: self.seq, version: self.writes, ..PageInfo::default() };
        let programmed = self.store.program(ppn, data, page);
        self.note_refused(ppn, &programmed);
        programmed
    }

    /// A program that was refused before it was begun has used no sequence number.
    pub(crate) fn note_refused<T>(&mut self, ppn: Ppn, programmed: &Result<T, FlashError>) {
        if programmed.is_err() && !self.store.was_begun(ppn) {
            self.seq -= 1;
        }
    }

    /// Programs a page behind the others of a log block. False if the program failed for good, so that the log block
    /// takes no more pages and another one has to be found. After any other error all is as before, but that the log
    /// block has a page less to give if its program was begun: that page may hold anything.
    pub(crate) fn append<H: Host>(
        &mut self,
        slot: u32,
        lpn: Lpn,
        data: &[u8],
        host: &mut H,
    ) -> Result<bool, HybridError> {
        let log = &self.logs[slot as usize];
        let (segment, position) = (SegmentId(log.segment), log.next);
        let ppn = self.ppn(log.segment, position);
        if let Err(error) = self.program(ppn, lpn, data) {
            return self.after_failed_append(slot, ppn, error);
        }
        // The old copy was good until now; in a swap store it is gone already.
        self.forget(lpn, host);
        let log = &mut self.logs[slot as usize];
        log.owners[position as usize] = lpn.0;
        log.next += 1;
        let is_full = !log.has_room();
        self.link(lpn, slot, position, host);
        if is_full {
            self.store.finish(segment, Ppn(ppn.0 + 1))?;
        }
        Ok(true)
    }

    #[cold]
    fn after_failed_append(&mut self, slot: u32, ppn: Ppn, error: FlashError) -> Result<bool, HybridError> {
        if matches!(error, FlashError::ProgramFailed { .. }) {
            self.spoil(slot);
            return Ok(false);
        }
        if self.store.was_begun(ppn) {
            let log = &mut self.logs[slot as usize];
            log.owners[log.next as usize] = NONE;
            log.next += 1;
            let (segment, is_full) = (SegmentId(log.segment), !log.has_room());
            if is_full {
                self.store.finish(segment, Ppn(ppn.0 + 1))?;
            }
        }
        Err(error.into())
    }

    pub(crate) fn link<H: Host>(&mut self, lpn: Lpn, slot: u32, position: u32, host: &mut H) {
        let block = self.block_of(lpn);
        if !self.tables.holds(slot, block) {
            host.linked(slot, block, true);
        }
        self.tables.set(lpn, slot, position);
        self.logs[slot as usize].valid += 1;
        host.on_flash(lpn, true);
    }

    /// Takes a page out of its log block. False if it is in none.
    pub(crate) fn unlink<H: Host>(&mut self, lpn: Lpn, host: &mut H) -> bool {
        let Some((slot, _)) = self.tables.remove(lpn) else { return false };
        let block = self.block_of(lpn);
        self.logs[slot as usize].valid -= 1;
        if !self.tables.holds(slot, block) {
            host.linked(slot, block, false);
        }
        true
    }

    /// The newest copy of a page is given up. False if there is none.
    pub(crate) fn forget<H: Host>(&mut self, lpn: Lpn, host: &mut H) -> bool {
        let is_in_log = self.unlink(lpn, host);
        if !is_in_log {
            if !self.is_present(lpn) {
                return false;
            }
            self.set_present(lpn, false);
        }
        host.on_flash(lpn, false);
        true
    }

    /// A page is on flash, or is not wanted there.
    #[inline]
    pub(crate) fn note_written(&mut self, lpn: Lpn) {
        if !self.not_written.is_empty() {
            self.not_written.retain(|other| *other != lpn);
        }
    }

    /// A program failed: the log block takes no more, and its segment is retired once it is merged.
    pub(crate) fn spoil(&mut self, slot: u32) {
        let log = &mut self.logs[slot as usize];
        log.end = log.next;
        self.retire_queue.push(SegmentId(log.segment));
    }
}

impl<D: Store> Hybrid<D> {
    /// Writes a page with no cache above.
    pub fn write_alone(&mut self, lpn: Lpn, data: &[u8]) -> Result<(), HybridError> {
        self.write(lpn, data, &mut NoCache)
    }
}

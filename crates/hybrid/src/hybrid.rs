use crate::logs::{LogBlock, NONE, Tables};
use crate::{Counters, Host, HybridConfig, HybridError, Mapping, NoCache, Persistence};
use alloc::collections::VecDeque;
use alloc::{vec, vec::Vec};
use margay_flash::{FlashError, Geometry, Lpn, Ppn, ReadStatus, SegmentId};
use margay_format::{PageInfo, SegmentInfo, Store};

/// What a segment was opened for, as its stream in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stream {
    Data = 0,
    Random = 1,
    Sequential = 2,
}

/// A segment that is not in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Free {
    pub segment: SegmentId,
    /// It may hold anything.
    pub needs_erase: bool,
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
    pub(crate) free: VecDeque<Free>,
    /// Segments that are not to be programmed any more, though some still hold pages.
    pub(crate) retire_queue: Vec<SegmentId>,
    pub(crate) erases: Vec<u32>,
    pub(crate) total_erases: u64,
    pub(crate) seq: u64,
    pub(crate) writes: u64,
    pub(crate) counters: Counters,
    pub(crate) doubtful_programs: u32,
    pub(crate) plan: Vec<crate::Move>,
    pub(crate) scratch: Vec<u8>,
}

impl<D: Store> Hybrid<D> {
    /// An empty store on an erased device.
    pub fn new(store: D, config: HybridConfig) -> Result<Self, HybridError> {
        let mut hybrid = Self::without_segments(store, config)?;
        let segments = config.reserved_segments..hybrid.geometry.segments();
        hybrid.free.extend(segments.map(|segment| Free { segment: SegmentId(segment), needs_erase: false }));
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
            free: VecDeque::new(),
            retire_queue: Vec::new(),
            erases: vec![0; geometry.segments() as usize],
            total_erases: 0,
            seq: 0,
            writes: 0,
            counters: Counters::default(),
            doubtful_programs: 0,
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
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Programs found at opening that cannot be read and may be what a power cut interrupted: the version before is
    /// taken in their place. If there was no power cut, a page is older than it should be for each of them.
    pub const fn doubtful_programs(&self) -> u32 {
        self.doubtful_programs
    }

    /// Counts from zero; wear stays.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
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
    pub fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<Option<ReadStatus>, HybridError> {
        self.check(lpn)?;
        let Some(ppn) = self.place(lpn) else { return Ok(None) };
        self.counters.host_reads += 1;
        Ok(Some(self.store.read(ppn, lpn.0.into(), data)?))
    }

    /// Writes a page. `data` is one page, or empty on a device without payload.
    pub fn write<H: Host>(&mut self, lpn: Lpn, data: &[u8], host: &mut H) -> Result<(), HybridError> {
        self.check(lpn)?;
        if self.config.persistence == Persistence::Volatile {
            self.forget(lpn, host);
        }
        self.writes += 1;
        loop {
            let slot = match self.config.mapping {
                Mapping::Bast => self.own_slot(lpn, host)?,
                Mapping::Fast { leave_open, .. } => match self.sequential_place(lpn, leave_open, host)? {
                    Some(slot) => slot,
                    None => self.random_slot(host)?,
                },
            };
            match self.append(slot, lpn, data, host) {
                Ok(()) => break,
                Err(HybridError::Flash(FlashError::ProgramFailed { .. })) => self.spoil(slot),
                Err(error) => return Err(error),
            }
        }
        self.counters.host_writes += 1;
        Ok(())
    }

    /// Returns when everything written so far survives a power cut.
    pub fn sync(&mut self) -> Result<(), HybridError> {
        Ok(self.store.sync()?)
    }

    /// Gives up the content of a page of a swap store.
    pub fn discard<H: Host>(&mut self, lpn: Lpn, host: &mut H) -> Result<(), HybridError> {
        self.check(lpn)?;
        if self.config.persistence == Persistence::Persistent {
            return Err(HybridError::WouldLose { lpn });
        }
        self.forget(lpn, host);
        Ok(())
    }

    /// Writes every page of the store to data blocks, block by block, as the state before a run. On a device with
    /// payload the pages are zeros.
    pub fn preload<H: Host>(&mut self, host: &mut H) -> Result<(), HybridError> {
        for block in 0..self.data.len() as u32 {
            let segment = self.take_free(Stream::Data)?;
            for offset in 0..self.pages_of(block) {
                let lpn = Lpn(block * self.pages + offset);
                self.forget(lpn, host);
                let zeros = core::mem::take(&mut self.scratch);
                let programmed = self.program(self.ppn(segment.0, offset), lpn, &zeros);
                self.scratch = zeros;
                programmed?;
                self.set_present(lpn, true);
                host.on_flash(lpn, true);
            }
            self.store.finish(segment, self.ppn(segment.0, self.pages))?;
            let old = core::mem::replace(&mut self.data[block as usize], segment.0);
            if old != NONE {
                self.erase(SegmentId(old))?;
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

    pub(crate) fn program(&mut self, ppn: Ppn, lpn: Lpn, data: &[u8]) -> Result<(), FlashError> {
        self.seq += 1;
        let page = PageInfo { owner: lpn.0.into(), seq: self.seq, version: self.writes, ..PageInfo::default() };
        self.store.program(ppn, data, page)
    }

    pub(crate) fn append<H: Host>(
        &mut self,
        slot: u32,
        lpn: Lpn,
        data: &[u8],
        host: &mut H,
    ) -> Result<(), HybridError> {
        let log = &self.logs[slot as usize];
        let (segment, position) = (log.segment, log.next);
        self.program(self.ppn(segment, position), lpn, data)?;
        // The old copy was good until now; in a swap store it is gone already.
        self.forget(lpn, host);
        let log = &mut self.logs[slot as usize];
        log.owners[position as usize] = lpn.0;
        log.next += 1;
        let is_full = !log.has_room();
        self.link(lpn, slot, position, host);
        if is_full {
            self.store.finish(SegmentId(segment), self.ppn(segment, position + 1))?;
        }
        Ok(())
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

    /// The newest copy of a page is given up.
    fn forget<H: Host>(&mut self, lpn: Lpn, host: &mut H) {
        if self.unlink(lpn, host) {
            host.on_flash(lpn, false);
        } else if self.is_present(lpn) {
            self.set_present(lpn, false);
            host.on_flash(lpn, false);
        }
    }

    /// A program failed: the log block takes no more, and its segment is retired once it is merged.
    pub(crate) fn spoil(&mut self, slot: u32) {
        let log = &mut self.logs[slot as usize];
        log.end = log.next;
        self.retire_queue.push(SegmentId(log.segment));
    }

    /// An erased segment that is begun.
    pub(crate) fn take_free(&mut self, stream: Stream) -> Result<SegmentId, HybridError> {
        while let Some(free) = self.free.pop_front() {
            let id = free.segment;
            if free.needs_erase && !self.erase_on_device(id)? {
                continue;
            }
            let info = SegmentInfo {
                erases: self.erases[id.index()],
                total_erases: self.total_erases,
                stream: stream as u8,
                opened_us: 0,
                opened_writes: self.writes,
            };
            match self.store.begin(id, info) {
                Ok(()) => return Ok(id),
                Err(FlashError::ProgramFailed { .. }) => self.counters.retired_segments += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Err(HybridError::WornOut { retired_segments: self.counters.retired_segments })
    }

    /// Erases a segment that holds nothing any more: it is free then, or retired. Counts as an erase either way.
    pub(crate) fn erase(&mut self, segment: SegmentId) -> Result<(), HybridError> {
        if let Some(at) = self.retire_queue.iter().position(|other| *other == segment) {
            self.retire_queue.swap_remove(at);
            self.counters.retired_segments += 1;
            return Ok(());
        }
        if self.config.persistence == Persistence::Persistent {
            // What replaces it must be there before it goes.
            self.store.record(self.seq)?;
        }
        if self.erase_on_device(segment)? {
            self.free.push_back(Free { segment, needs_erase: false });
        }
        Ok(())
    }

    fn erase_on_device(&mut self, segment: SegmentId) -> Result<bool, HybridError> {
        // A damaged tag may have said any number.
        let (erases, total_erases) = (self.erases[segment.index()].saturating_add(1), self.total_erases + 1);
        let info = SegmentInfo { erases, total_erases, ..SegmentInfo::default() };
        match self.store.erase(segment, info) {
            Ok(()) => {
                self.counters.erases += 1;
                (self.erases[segment.index()], self.total_erases) = (erases, total_erases);
                Ok(true)
            }
            Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                self.counters.retired_segments += 1;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl<D: Store> Hybrid<D> {
    /// Writes a page with no cache above.
    pub fn write_alone(&mut self, lpn: Lpn, data: &[u8]) -> Result<(), HybridError> {
        self.write(lpn, data, &mut NoCache)
    }
}

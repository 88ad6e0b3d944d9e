//! What is done at a fault.

use crate::frames::{AnonymousMapping, Buffer};
use crate::uffd::{Fault, Uffd};
use crate::{PAGE_BYTES, PagerError, PagerStats, StoreForks};
use margay_flash::Lpn;
use margay_format::Store;
use margay_hybrid::Hybrid;
use margay_vm::{Cache, CacheRegion};
use std::ops::Range;
use std::sync::Arc;

/// The pages of a memory, wherever they are. Who holds this may not touch the memory: a fault would wait for ever.
pub(crate) trait Pages: Send {
    /// Serves the faults that wait.
    fn serve(&mut self) -> Result<(), PagerError>;

    /// What was done up to now.
    fn stats(&self) -> PagerStats;

    /// Gives up the content of pages: they read as zeros. Pages that were left to the kernel are taken over again.
    fn discard(&mut self, pages: Range<usize>) -> Result<(), PagerError>;

    /// Leaves pages to the kernel, with what is in them.
    fn leave(&mut self, pages: Range<usize>) -> Result<(), PagerError>;

    /// With `holds`, pages that are in the address space stay there as long as there is any other to be evicted. Returns
    /// the number of pages that were ever taken out.
    fn hold(&mut self, holds: bool) -> u64;

    /// How the store is shared with forked children; `None` if it cannot be.
    fn forks(&mut self) -> Option<&mut dyn StoreForks>;

    /// This process is a forked child, and its faults are handled by itself from now on.
    fn became_child(&mut self) -> Result<(), PagerError>;
}

pub(crate) struct Handler<D> {
    memory: Arc<AnonymousMapping>,
    uffd: Arc<Uffd>,
    cache: Cache<Buffer>,
    store: Hybrid<D>,
    counts: PagerStats,
    page: Vec<u8>,
    /// By page, whether it was left to the kernel.
    left: Vec<u64>,
    forks: Option<Box<dyn StoreForks>>,
    /// The process is a forked child, and has not used the pager yet.
    is_new_child: bool,
    /// The page behind the one that was brought in last, and how many were brought in one behind the other.
    next: usize,
    run: u32,
}

/// Maximum number of pages that are brought in ahead.
const MAX_AHEAD: usize = 15;

impl<D: Store + Send> Handler<D> {
    pub fn new(
        memory: Arc<AnonymousMapping>,
        uffd: Arc<Uffd>,
        cache: Cache<Buffer>,
        store: Hybrid<D>,
        forks: Option<Box<dyn StoreForks>>,
    ) -> Self {
        let left = vec![0; (memory.bytes / PAGE_BYTES).div_ceil(64)];
        let (counts, page) = (PagerStats::default(), vec![0; PAGE_BYTES]);
        Self { memory, uffd, cache, store, counts, page, left, forks, is_new_child: false, next: 0, run: 0 }
    }

    fn is_left(&self, page: usize) -> bool {
        self.left[page / 64] >> (page % 64) & 1 != 0
    }

    fn is_mapped(&self, page: usize) -> bool {
        matches!(self.cache.region(Lpn(page as u32)), Some(CacheRegion::Initial | CacheRegion::Mru))
    }

    /// Called before the store is read, or changed.
    fn use_store(&mut self, change: bool) -> Result<(), PagerError> {
        let Some(forks) = &mut self.forks else { return Ok(()) };
        forks.before_use(change).map_err(|error| PagerError::System { what: "copying the store for a child", error })
    }

    /// What a forked child does before it moves its first page.
    fn ready(&mut self) -> Result<(), PagerError> {
        if !std::mem::take(&mut self.is_new_child) {
            return Ok(());
        }
        // Nothing was write-protected since the fork, so any mapped page may have been written.
        let mapped: Vec<Lpn> = self.cache.pages().take_while(|lpn| self.is_mapped(lpn.index())).collect();
        for lpn in mapped {
            self.cache.wrote(lpn);
        }
        // What fork itself touches in the child before this library can do anything must have been mapped.
        match self.memory.present(|page| !self.is_mapped(page) && !self.is_left(page))? {
            Some(_) => Err(PagerError::EarlyUse),
            None => Ok(()),
        }
    }

    fn fault(&mut self, fault: &Fault) -> Result<(), PagerError> {
        let page = (fault.address - self.memory.start as usize) / PAGE_BYTES;
        if self.is_left(page) {
            return self.uffd.wake(self.memory.page(page));
        }
        let (lpn, write) = (Lpn(page as u32), fault.write || fault.protected);
        self.counts.faults += 1;
        match self.cache.region(lpn) {
            Some(CacheRegion::Initial | CacheRegion::Mru) => self.mapped(lpn, fault.protected),
            Some(CacheRegion::Lru) => self.bring_back(lpn, write),
            None => {
                self.bring_in(lpn, write)?;
                self.bring_in_ahead(page, write)
            }
        }
    }

    /// Brings in what comes next, half as many pages as came one behind the other before, for writing if the last one was
    /// wanted for that. What is not on flash costs no reading, so that nothing is gained.
    fn bring_in_ahead(&mut self, page: usize, write: bool) -> Result<(), PagerError> {
        self.run = if page == self.next { self.run + 1 } else { 0 };
        self.next = page + 1;
        // Not so many that the first would have to go before it was used.
        let ahead = MAX_AHEAD.min(self.run as usize / 2).min(self.cache.mru_target() as usize / 4);
        let last = (page + ahead).min(self.memory.bytes / PAGE_BYTES - 1);
        for next in page + 1..=last {
            let lpn = Lpn(next as u32);
            if self.is_left(next) || self.cache.frame(lpn).is_some() || !self.store.is_on_flash(lpn) {
                break;
            }
            self.bring_in(lpn, write)?;
            self.counts.ahead += 1;
            self.next = next + 1;
            self.run += 1;
        }
        Ok(())
    }

    /// The page is mapped: either it is written for the first time, or another fault has brought it in.
    fn mapped(&mut self, lpn: Lpn, protected: bool) -> Result<(), PagerError> {
        let page = self.memory.page(lpn.index());
        if protected {
            self.counts.write_faults += 1;
            self.cache.wrote(lpn);
            return self.uffd.protect(page, false);
        }
        self.counts.late_faults += 1;
        self.page.fill(0);
        // It is not there if the program has told the kernel that it does not need it: then it reads as zeros.
        if self.uffd.copy(page, &self.page, true)? {
            self.cache.wrote(lpn);
            return Ok(());
        }
        self.uffd.wake(page)
    }

    fn bring_back(&mut self, lpn: Lpn, write: bool) -> Result<(), PagerError> {
        let frame = self.cache.frame(lpn).expect("a page of the LRU region has a frame");
        self.cache.touch(lpn, write);
        let writable = self.cache.is_dirty(lpn);
        let buffer = self.cache.frames_mut();
        buffer.map(lpn, buffer.bytes(frame), writable)?;
        buffer.release(frame);
        Ok(())
    }

    fn bring_in(&mut self, lpn: Lpn, write: bool) -> Result<(), PagerError> {
        self.make_room()?;
        self.load(lpn)?;
        self.cache.insert(lpn, write);
        self.cache.frames_mut().map(lpn, &self.page, write)?;
        Ok(())
    }

    /// Evicts a page if no frame is free.
    fn make_room(&mut self) -> Result<(), PagerError> {
        if !self.cache.is_full() {
            return Ok(());
        }
        let Some(evicted) = self.cache.evict() else { return Ok(()) };
        if evicted.dirty {
            self.page.copy_from_slice(self.cache.frames_mut().bytes(evicted.frame));
        }
        self.cache.frames_mut().release(evicted.frame);
        if evicted.dirty {
            self.use_store(true)?;
            self.store.write(evicted.lpn, &self.page, &mut self.cache)?;
        }
        Ok(())
    }

    /// Reads a page that is not cached.
    fn load(&mut self, lpn: Lpn) -> Result<(), PagerError> {
        if self.store.is_on_flash(lpn) {
            self.use_store(false)?;
        }
        if self.store.read(lpn, &mut self.page)?.is_none() {
            self.page.fill(0);
        }
        Ok(())
    }

    /// A page is neither cached nor on flash from now on. What is mapped stays mapped.
    fn forget(&mut self, lpn: Lpn) -> Result<(), PagerError> {
        if let Some(frame) = self.cache.forget(lpn) {
            self.cache.frames_mut().release(frame);
        }
        Ok(self.store.discard(lpn, &mut self.cache)?)
    }
}

impl<D: Store + Send> Pages for Handler<D> {
    fn serve(&mut self) -> Result<(), PagerError> {
        self.ready()?;
        while let Some(fault) = self.uffd.fault()? {
            self.fault(&fault)?;
        }
        Ok(())
    }

    fn stats(&self) -> PagerStats {
        let counters = self.store.counters();
        PagerStats {
            cache: *self.cache.stats(),
            reads: counters.host_reads + counters.copies,
            programs: counters.host_writes + counters.copies + counters.cache_writes,
            erases: counters.erases,
            ..self.counts
        }
    }

    fn discard(&mut self, pages: Range<usize>) -> Result<(), PagerError> {
        self.ready()?;
        for page in pages.clone() {
            self.forget(Lpn(page as u32))?;
        }
        if pages.clone().any(|page| self.is_left(page)) {
            self.memory.renew(&pages)?;
            let registered = self.uffd.register(self.memory.page(pages.start), pages.len() * PAGE_BYTES);
            registered.map_err(|error| PagerError::System { what: "taking over memory again", error })?;
            pages.for_each(|page| self.left[page / 64] &= !(1 << (page % 64)));
        } else {
            self.memory.drop_pages(&pages);
        }
        Ok(())
    }

    fn leave(&mut self, pages: Range<usize>) -> Result<(), PagerError> {
        self.ready()?;
        for page in pages.clone().filter(|page| !self.is_left(*page)).collect::<Vec<_>>() {
            let lpn = Lpn(page as u32);
            match self.cache.region(lpn) {
                Some(CacheRegion::Initial | CacheRegion::Mru) => {}
                Some(CacheRegion::Lru) => {
                    let frame = self.cache.frame(lpn).expect("a page of the LRU region has a frame");
                    let buffer = self.cache.frames_mut();
                    buffer.map(lpn, buffer.bytes(frame), true)?;
                }
                None if self.store.is_on_flash(lpn) => {
                    self.load(lpn)?;
                    self.uffd.copy(self.memory.page(page), &self.page, true)?;
                }
                None => {}
            }
            self.forget(lpn)?;
            self.left[page / 64] |= 1 << (page % 64);
            self.counts.left_pages += 1;
        }
        self.uffd.unregister(self.memory.page(pages.start), pages.len() * PAGE_BYTES)
    }

    fn hold(&mut self, holds: bool) -> u64 {
        self.cache.hold(holds);
        self.cache.frames_mut().taken_out
    }

    fn forks(&mut self) -> Option<&mut dyn StoreForks> {
        match &mut self.forks {
            Some(forks) => Some(&mut **forks),
            None => None,
        }
    }

    fn became_child(&mut self) -> Result<(), PagerError> {
        self.is_new_child = true;
        self.counts = PagerStats::default();
        self.cache.reset_stats();
        self.store.reset_counters();
        let own = Uffd::open(0)?;
        let mut page = 0;
        let pages = self.memory.bytes / PAGE_BYTES;
        while page < pages {
            let start = page;
            let is_left = self.is_left(start);
            page = (start..pages).find(|page| self.is_left(*page) != is_left).unwrap_or(pages);
            if !is_left {
                own.register(self.memory.page(start), (page - start) * PAGE_BYTES)
                    .map_err(PagerError::NoWriteProtection)?;
            }
        }
        self.uffd.replace(&own)
    }
}

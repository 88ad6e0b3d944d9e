//! The thread that serves faults.

use crate::frames::{AnonymousMapping, Buffer};
use crate::uffd::Uffd;
use crate::{PAGE_BYTES, PagerError, PagerStats};
use margay_flash::Lpn;
use margay_format::Store;
use margay_hybrid::Hybrid;
use margay_vm::{Cache, CacheRegion};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

pub(crate) struct Handler<D> {
    memory: Arc<AnonymousMapping>,
    uffd: Arc<Uffd>,
    stop: OwnedFd,
    cache: Cache<Buffer>,
    store: Hybrid<D>,
    stats: Arc<Mutex<PagerStats>>,
    counts: PagerStats,
    page: Vec<u8>,
}

impl<D: Store> Handler<D> {
    pub fn new(
        memory: Arc<AnonymousMapping>,
        uffd: Arc<Uffd>,
        stop: OwnedFd,
        cache: Cache<Buffer>,
        store: Hybrid<D>,
        stats: Arc<Mutex<PagerStats>>,
    ) -> Self {
        Self { memory, uffd, stop, cache, store, stats, counts: PagerStats::default(), page: vec![0; PAGE_BYTES] }
    }

    /// Serves faults until the stop event is set or the store fails.
    pub fn run(&mut self) -> Result<(), PagerError> {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut waits = [poll(self.uffd.as_raw_fd()), poll(self.stop.as_raw_fd())];
        loop {
            // SAFETY: two entries that live as long as the call.
            let ready = unsafe { libc::poll(waits.as_mut_ptr(), 2, -1) };
            if ready < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return Err(PagerError::last("waiting for faults"));
            }
            if waits[1].revents != 0 {
                return Ok(());
            }
            while let Some(fault) = self.uffd.fault()? {
                let lpn = Lpn(((fault.address - self.memory.start as usize) / PAGE_BYTES) as u32);
                self.fault(lpn, fault.write || fault.protected, fault.protected)?;
            }
            self.publish();
        }
    }

    fn publish(&mut self) {
        let counters = self.store.counters();
        self.counts.cache = *self.cache.stats();
        self.counts.reads = counters.host_reads + counters.copies;
        self.counts.programs = counters.host_writes + counters.copies + counters.cache_writes;
        self.counts.erases = counters.erases;
        if let Ok(mut stats) = self.stats.lock() {
            *stats = self.counts;
        }
    }

    fn fault(&mut self, lpn: Lpn, write: bool, protected: bool) -> Result<(), PagerError> {
        self.counts.faults += 1;
        match self.cache.region(lpn) {
            Some(CacheRegion::Initial | CacheRegion::Mru) => self.mapped(lpn, protected),
            Some(CacheRegion::Lru) => self.bring_back(lpn, write),
            None => self.bring_in(lpn, write),
        }
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
        if self.cache.is_full()
            && let Some(evicted) = self.cache.evict()
        {
            if evicted.dirty {
                self.page.copy_from_slice(self.cache.frames_mut().bytes(evicted.frame));
            }
            self.cache.frames_mut().release(evicted.frame);
            if evicted.dirty {
                self.store.write(evicted.lpn, &self.page, &mut self.cache)?;
            }
        }
        if self.store.read(lpn, &mut self.page)?.is_none() {
            self.page.fill(0);
        }
        self.cache.insert(lpn, write);
        self.cache.frames_mut().map(lpn, &self.page, write)
    }
}

use crate::frames::{AnonymousMapping, Buffer};
use crate::handler::{Handler, Pages};
use crate::thread::Thread;
use crate::uffd::{Uffd, high};
use crate::{PAGE_BYTES, PagerError, StoreForks};
use margay_format::Store;
use margay_hybrid::Hybrid;
use margay_vm::{Cache, CacheConfig, LruRegion, Scheme, Stats};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Minimum number of pages of RAM.
const MIN_FRAMES: u32 = 16;

/// How memory is paged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes of memory; rounded up to pages.
    pub bytes: u64,
    /// Maximum number of its pages that are in RAM.
    pub frames: u32,
    /// How the store is cleaned.
    pub scheme: Scheme,
    /// The lowest number for the pager's descriptors. Programs may use low numbers without asking whether they are taken.
    pub first_descriptor: RawFd,
}

/// What the pager did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PagerStats {
    /// Faults that were served.
    pub faults: u64,
    /// Of these, first writes to clean pages.
    pub write_faults: u64,
    /// Faults on pages that another fault had brought in by the time they were served.
    pub late_faults: u64,
    /// Pages that were brought in without a fault, ahead of their use.
    pub ahead: u64,
    /// Pages that were left to the kernel ([`PagedMemory::leave`]).
    pub left_pages: u64,
    /// What the page cache did. Hits outside the LRU region cause no fault and are not counted.
    pub cache: Stats,
    /// Pages read from flash.
    pub reads: u64,
    /// Pages programmed: evicted pages, copies, and pages written in merges.
    pub programs: u64,
    /// Segments erased.
    pub erases: u64,
}

type Failed = dyn Fn(&PagerError) + Send + Sync;

/// Memory whose pages are in RAM or on flash. It reads as zeros until it is written.
pub struct PagedMemory {
    memory: Arc<AnonymousMapping>,
    uffd: Arc<Uffd>,
    stop: Arc<OwnedFd>,
    pages: Arc<Mutex<dyn Pages>>,
    failed: Arc<Failed>,
    thread: Mutex<Option<Thread>>,
}

impl std::fmt::Debug for PagedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PagedMemory").field("bytes", &self.memory.bytes).finish_non_exhaustive()
    }
}

/// A new event.
pub(crate) fn event(first_descriptor: RawFd) -> Result<OwnedFd, PagerError> {
    // SAFETY: a new descriptor, or an error.
    let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if event < 0 {
        return Err(PagerError::last("making an event"));
    }
    // SAFETY: the descriptor is valid and nobody else's.
    Ok(high(unsafe { OwnedFd::from_raw_fd(event) }, first_descriptor))
}

/// Calls `work` with all signals blocked. A handler that ran in between could touch memory whose pager waits for `work`.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all zeros are a set of signals; the calls change the mask of this thread alone, and change it back.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Serves faults until the stop event is set or the store fails.
fn run(pages: &Mutex<dyn Pages>, uffd: &Uffd, stop: &OwnedFd) -> Result<(), PagerError> {
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut waits = [poll(uffd.as_raw_fd()), poll(stop.as_raw_fd())];
    loop {
        // SAFETY: two entries that live as long as the call.
        let ready = unsafe { libc::poll(waits.as_mut_ptr(), 2, -1) };
        if ready < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return Err(PagerError::last("waiting for faults"));
        }
        if waits[1].revents != 0 {
            return Ok(());
        }
        pages.lock().unwrap_or_else(PoisonError::into_inner).serve()?;
    }
}

impl PagedMemory {
    /// Makes memory over an empty store. With `forks`, forked children can have it ([`PagedMemory::before_fork`]).
    ///
    /// `failed` is called on the pager's thread when the store fails. The thread that waits for the page then waits for
    /// ever, so `failed` should end the process.
    ///
    /// # Errors
    ///
    /// If the kernel does not let the process handle its faults, if the pages of the system or of the store are not of
    /// 4096 bytes, if the store is smaller than the memory, if there is too little RAM, or if the scheme writes pages
    /// that are in use.
    pub fn new<D: Store + Send + 'static>(
        store: Hybrid<D>,
        options: &Options,
        forks: Option<Box<dyn StoreForks>>,
        failed: impl Fn(&PagerError) + Send + Sync + 'static,
    ) -> Result<Self, PagerError> {
        // SAFETY: asks for a number.
        let system = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        if system != PAGE_BYTES {
            return Err(PagerError::PageSize(system));
        }
        let page_bytes = store.store().geometry().page_bytes();
        if page_bytes as usize != PAGE_BYTES {
            return Err(PagerError::StorePageBytes { page_bytes });
        }
        let memory_pages = options.bytes.div_ceil(PAGE_BYTES as u64).max(1);
        let store_pages = store.config().logical_pages;
        if memory_pages > u64::from(store_pages) {
            return Err(PagerError::StoreTooSmall { store_pages, memory_pages });
        }
        if options.frames < MIN_FRAMES {
            return Err(PagerError::TooFewFrames { frames: options.frames, min_frames: MIN_FRAMES });
        }
        if options.scheme.writes_pages_in_use() {
            return Err(PagerError::Scheme(options.scheme));
        }
        let memory = Arc::new(AnonymousMapping::new(memory_pages as usize * PAGE_BYTES)?);
        let uffd = Arc::new(Uffd::open(options.first_descriptor)?);
        uffd.register(memory.start, memory.bytes).map_err(PagerError::NoWriteProtection)?;
        memory.inherit(false);
        let mut config = CacheConfig::new(options.frames, options.scheme);
        // A merge takes pages from the LRU region only, so there has to be one.
        config.lru_region = LruRegion::ADAPTIVE;
        config.costs.pages_per_block = f64::from(store.pages_per_block());
        let buffer = Buffer::new(memory.clone(), uffd.clone(), options.frames)?;
        let mut cache = Cache::with_frames(config, store_pages, store.pages_per_block(), buffer);
        cache.adjust_at_hits();
        cache.set_random_log_blocks(store.config().random_log_blocks());
        let stop = Arc::new(event(options.first_descriptor)?);
        let pages = Arc::new(Mutex::new(Handler::new(memory.clone(), uffd.clone(), cache, store, forks)));
        let made = Self { memory, uffd, stop, pages, failed: Arc::new(failed), thread: Mutex::new(None) };
        made.begin()?;
        Ok(made)
    }

    /// Starts the pager's thread.
    pub(crate) fn begin(&self) -> Result<libc::pthread_t, PagerError> {
        let (pages, uffd, stop, failed) =
            (self.pages.clone(), self.uffd.clone(), self.stop.clone(), self.failed.clone());
        let thread = Thread::start(move || {
            // SAFETY: gives the thread a name.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"margay-pager".as_ptr()) };
            if let Err(error) = run(&pages, &uffd, &stop) {
                failed(&error);
            }
        })?;
        let id = thread.id();
        let before = self.thread.lock().unwrap_or_else(PoisonError::into_inner).replace(thread);
        // After a fork, that is a thread of the parent, of which the child has nothing.
        if let Some(before) = before {
            before.forget();
        }
        Ok(id)
    }

    pub(crate) fn pages(&self) -> MutexGuard<'_, dyn Pages + 'static> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) -> &OwnedFd {
        &self.stop
    }

    pub(crate) fn inherit(&self, is_inherited: bool) {
        self.memory.inherit(is_inherited);
    }

    /// The descriptors that the memory lives by.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.uffd.as_raw_fd(), self.stop.as_raw_fd()]
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.memory.start
    }

    /// The pager's thread. What it allocates must not be in this memory: it would wait for itself.
    pub fn pager_thread(&self) -> Option<libc::pthread_t> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Thread::id)
    }

    /// Size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// The whole memory as bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable as a whole, zeroed or written before, and this value's own.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start, self.memory.bytes) }
    }

    /// Gives up the content of whole pages, by number: they read as zeros, and cost nothing. Pages that were left to the
    /// kernel are paged again.
    ///
    /// # Errors
    ///
    /// If the system or the store fails.
    ///
    /// # Panics
    ///
    /// If the memory has no such pages.
    pub fn discard(&self, pages: Range<usize>) -> Result<(), PagerError> {
        without_signals(|| if pages.is_empty() { Ok(()) } else { self.pages().discard(pages) })
    }

    /// Leaves whole pages, by number, to the kernel, with what is in them: they are ordinary memory from now on, which can be
    /// locked and protected, until they are discarded.
    ///
    /// # Errors
    ///
    /// If the system or the store fails.
    ///
    /// # Panics
    ///
    /// If the memory has no such pages.
    pub fn leave(&self, pages: Range<usize>) -> Result<(), PagerError> {
        without_signals(|| if pages.is_empty() { Ok(()) } else { self.pages().leave(pages) })
    }

    /// What the pager did up to now; `None` while it serves a fault.
    pub fn try_stats(&self) -> Option<PagerStats> {
        self.pages.try_lock().ok().map(|pages| pages.stats())
    }

    /// What the pager did up to the last fault that it served.
    pub fn stats(&self) -> PagerStats {
        without_signals(|| self.pages().stats())
    }
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of a local go to an event of our own.
        unsafe { libc::write(self.stop.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        drop(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

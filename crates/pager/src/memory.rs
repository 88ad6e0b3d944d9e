use crate::frames::{AnonymousMapping, Buffer};
use crate::handler::Handler;
use crate::uffd::Uffd;
use crate::{PAGE_BYTES, PagerError};
use margay_format::Store;
use margay_hybrid::Hybrid;
use margay_vm::{Cache, CacheConfig, LruRegion, Scheme, Stats};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

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
    /// What the page cache did. Hits outside the LRU region cause no fault and are not counted.
    pub cache: Stats,
    /// Pages read from flash.
    pub reads: u64,
    /// Pages programmed: evicted pages, copies, and pages written in merges.
    pub programs: u64,
    /// Segments erased.
    pub erases: u64,
}

/// Memory whose pages are in RAM or on flash. It reads as zeros until it is written.
pub struct PagedMemory {
    memory: Arc<AnonymousMapping>,
    stop: OwnedFd,
    stats: Arc<Mutex<PagerStats>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for PagedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PagedMemory").field("bytes", &self.memory.bytes).finish_non_exhaustive()
    }
}

impl PagedMemory {
    /// Makes memory over an empty store.
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
        failed: impl Fn(&PagerError) + Send + 'static,
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
        let uffd = Arc::new(Uffd::new(memory.start, memory.bytes)?);
        let mut config = CacheConfig::new(options.frames, options.scheme);
        // A merge takes pages from the LRU region only, so there has to be one.
        config.lru_region = LruRegion::ADAPTIVE;
        config.costs.pages_per_block = f64::from(store.pages_per_block());
        let buffer = Buffer::new(memory.clone(), uffd.clone(), options.frames)?;
        let mut cache = Cache::with_frames(config, store_pages, store.pages_per_block(), buffer);
        cache.set_random_log_blocks(store.config().random_log_blocks());
        // SAFETY: a new descriptor, owned from here on.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if stop < 0 {
            return Err(PagerError::last("making an event"));
        }
        // SAFETY: the descriptor is valid and nobody else's.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let stats = Arc::new(Mutex::new(PagerStats::default()));
        let stop_fd = stop.try_clone().map_err(|error| PagerError::System { what: "copying an event", error })?;
        let mut handler = Handler::new(memory.clone(), uffd, stop_fd, cache, store, stats.clone());
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("margay-pager".into())
            .spawn(move || {
                // The other side waits for this, so sending cannot fail.
                let _ = ready.send(());
                if let Err(error) = handler.run() {
                    failed(&error);
                }
            })
            .map_err(|error| PagerError::System { what: "starting the pager's thread", error })?;
        // The start of a thread allocates. It is to be over before the program's heap moves into this memory.
        let _ = is_ready.recv();
        Ok(Self { memory, stop, stats, thread: Some(thread) })
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.memory.start
    }

    /// The pager's thread. What it allocates must not be in this memory: it would wait for itself.
    pub fn pager_thread(&self) -> Option<libc::pthread_t> {
        self.thread.as_ref().map(JoinHandleExt::as_pthread_t)
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

    /// What the pager did up to the last fault that it served.
    ///
    /// # Panics
    ///
    /// If the pager's thread panicked.
    pub fn stats(&self) -> PagerStats {
        *self.stats.lock().expect("the pager's thread does not panic")
    }
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of a local go to an event of our own.
        unsafe { libc::write(self.stop.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its thread.
            let _ = thread.join();
        }
    }
}

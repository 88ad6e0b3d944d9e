use crate::{Cache, CacheConfig};
use margay_flash::Lpn;
use margay_format::Store;
use margay_hybrid::{Hybrid, HybridConfig, HybridError};

/// A page cache over a hybrid-mapped store, for measurement: its pages have no bytes.
#[derive(Debug)]
pub struct Paging<D> {
    cache: Cache,
    store: Hybrid<D>,
}

impl<D: Store> Paging<D> {
    /// An empty cache over a store that holds the pages for which `on_flash` returns true.
    ///
    /// # Errors
    ///
    /// If the store does not fit the device, or the device fails.
    pub fn new(
        device: D,
        config: HybridConfig,
        cache: CacheConfig,
        on_flash: impl Fn(Lpn) -> bool,
    ) -> Result<Self, HybridError> {
        let mut store = Hybrid::new(device, config)?;
        let mut cache = Cache::new(cache, config.logical_pages, store.pages_per_block());
        cache.set_random_log_blocks(config.random_log_blocks());
        store.preload(&mut cache, on_flash)?;
        store.reset_counters();
        Ok(Self { cache, store })
    }

    /// Reads or writes a page.
    ///
    /// # Errors
    ///
    /// If the store stops: the device failed or is worn out.
    ///
    /// # Panics
    ///
    /// If the page is past the end.
    #[inline]
    pub fn reference(&mut self, lpn: Lpn, write: bool) -> Result<(), HybridError> {
        if self.cache.touch(lpn, write) {
            return Ok(());
        }
        self.miss(lpn, write)
    }

    #[cold]
    fn miss(&mut self, lpn: Lpn, write: bool) -> Result<(), HybridError> {
        if self.cache.is_full()
            && let Some(evicted) = self.cache.evict()
            && evicted.dirty
        {
            self.store.write(evicted.lpn, &[], &mut self.cache)?;
        }
        self.cache.insert(lpn, write);
        self.store.read(lpn, &mut []).map(drop)
    }

    /// The cache.
    pub const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The store.
    pub const fn store(&self) -> &Hybrid<D> {
        &self.store
    }
}

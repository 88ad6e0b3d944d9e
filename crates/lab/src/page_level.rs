use margay_flash::{Geometry, Lpn, Ppn, SegmentId};
use margay_format::Store;
use margay_hybrid::{Host, MergeAction, Victim};
use margay_log::{Client, Config, Content, Hint, Log, LogError, Policies};
use margay_policy::{Segments, State};
use margay_vm::{BlockMerge, Cache, CacheConfig, GcTotals, Stats};

const UNMAPPED: u32 = u32::MAX;

/// The map of the log. It lets the cleaner drop pages that the cache holds.
#[derive(Debug)]
struct Map {
    places: Vec<u32>,
    cache: Cache,
    geometry: Geometry,
    drops: u64,
    duplicates: u64,
}

impl Map {
    /// Whether cleaning drops the copy of a page on flash, because the cache holds the page.
    fn is_dropped(&self, lpn: Lpn) -> bool {
        self.cache.decide(lpn, Victim::Random, true) == MergeAction::Drop
    }
}

impl Client<Lpn> for Map {
    const GIVES_UP: bool = true;

    fn relocated(&mut self, lpn: Lpn, to: Ppn) {
        self.places[lpn.index()] = to.0;
        if !self.cache.is_on_flash(lpn) {
            self.cache.on_flash(lpn, true);
        }
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        Some(Ppn(self.places[lpn.index()])).filter(|place| place.0 != UNMAPPED)
    }

    fn gives_up(&mut self, lpn: Lpn) -> bool {
        self.duplicates += u64::from(self.cache.frame(lpn).is_some());
        let gives_up = self.is_dropped(lpn);
        if gives_up {
            self.places[lpn.index()] = UNMAPPED;
            self.cache.on_flash(lpn, false);
            self.cache.moved(lpn, MergeAction::Drop);
            self.drops += 1;
        }
        gives_up
    }

    /// The sealed segment with the fewest pages to copy, the one opened first among equals.
    fn victim(&self, segments: &Segments) -> Option<SegmentId> {
        let mut copied = segments.valid.clone();
        if self.cache.config().scheme.merge != BlockMerge::Unaware {
            for place in self.cache.pages().filter(|lpn| self.is_dropped(*lpn)).filter_map(|lpn| self.locate(lpn)) {
                copied[self.geometry.segment_of(place).index()] -= 1;
            }
        }
        let has_gain =
            |id: &SegmentId| segments.state[id.index()] == State::Sealed && copied[id.index()] < segments.data_pages;
        segments.ids().filter(has_gain).min_by_key(|id| (copied[id.index()], segments.opened_sequence[id.index()]))
    }
}

/// The page cache over the page-mapped log. When a segment is cleaned, a page that the cache holds is dropped from flash
/// (DA-GC) or copied as any other page (DU-GC), and the victim is the segment with the fewest pages to copy. Cleaning never
/// writes pages of the cache.
#[derive(Debug)]
pub struct PageLevel<D> {
    log: Log<D, Lpn>,
    map: Map,
}

impl<D: Store> PageLevel<D> {
    /// An empty cache over an erased device. With `preload` every page is written to flash first.
    ///
    /// # Errors
    ///
    /// If the log does not fit the device, or the device fails.
    pub fn new(
        device: D,
        config: Config,
        policies: Policies,
        pages: u32,
        cache: CacheConfig,
        preload: bool,
    ) -> Result<Self, LogError> {
        let geometry = *device.geometry();
        let cache = Cache::new(cache, pages, geometry.pages_per_segment());
        let map = Map { places: vec![UNMAPPED; pages as usize], cache, geometry, drops: 0, duplicates: 0 };
        let log = Log::new(device, config, policies, pages)?;
        let mut paging = Self { log, map };
        if preload {
            for lpn in (0..pages).map(Lpn) {
                paging.log.fill(&mut paging.map, lpn, Content::Page, &[], Hint::None)?;
            }
            paging.log.reset_counters();
        }
        Ok(paging)
    }

    /// Reads or writes a page.
    ///
    /// # Errors
    ///
    /// If the log stops: the device failed or is worn out.
    ///
    /// # Panics
    ///
    /// If the page is past the end.
    #[inline]
    pub fn reference(&mut self, lpn: Lpn, write: bool) -> Result<(), LogError> {
        if self.map.cache.touch(lpn, write) {
            return Ok(());
        }
        self.miss(lpn, write)
    }

    #[cold]
    fn miss(&mut self, lpn: Lpn, write: bool) -> Result<(), LogError> {
        if self.map.cache.is_full()
            && let Some(evicted) = self.map.cache.evict()
            && evicted.dirty
        {
            self.log.write(&mut self.map, evicted.lpn, Content::Page, &[], Hint::None, 0)?;
        }
        self.map.cache.insert(lpn, write);
        Ok(())
    }

    /// The counts of the cache, and what cleaning did as that of random log blocks.
    pub fn stats(&self) -> Stats {
        let counters = self.log.counters();
        let mut stats = *self.map.cache.stats();
        stats.random = GcTotals {
            count: counters.cleanings,
            copies: counters.copies,
            cache_writes: 0,
            drops: self.map.drops,
            duplicates: self.map.duplicates,
            erases: counters.erases,
        };
        stats
    }

    /// The cache.
    pub const fn cache(&self) -> &Cache {
        &self.map.cache
    }

    /// The log.
    pub const fn log(&self) -> &Log<D, Lpn> {
        &self.log
    }
}

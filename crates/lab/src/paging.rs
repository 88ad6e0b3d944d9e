//! Page references through the page cache and the store below.

use crate::{LabError, PageLevel};
use core::fmt;
use core::str::FromStr;
use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_hybrid::{HybridConfig, HybridError, Mapping};
use margay_log::Policies;
use margay_media::{DeviceError, NullFlash};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};
use margay_trace::vm::References;
use margay_vm::{CacheConfig, Paging, Stats};
use serde::Serialize;

/// What the cache sits on. As text: `page` or `page-level`, or a mapping of the hybrid store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagingStore {
    /// Hybrid-mapped.
    Hybrid(Mapping),
    /// The page-mapped log with one stream, on the segments that the referenced pages fill and as many more as the hybrid store
    /// has log blocks and to merge into; the victim is the segment with the fewest pages to copy.
    PageLevel,
}

impl fmt::Display for PagingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hybrid(mapping) => mapping.fmt(f),
            Self::PageLevel => f.write_str("page-level"),
        }
    }
}

impl FromStr for PagingStore {
    type Err = HybridError;

    fn from_str(text: &str) -> Result<Self, HybridError> {
        match text {
            "page" | "page-level" => Ok(Self::PageLevel),
            mapping => mapping.parse().map(Self::Hybrid),
        }
    }
}

/// A run of page references.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagingSetup {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Log blocks.
    pub log_blocks: u32,
    /// What the cache sits on.
    pub store: PagingStore,
    /// The cache and its scheme.
    pub cache: CacheConfig,
    /// Whether every page that the trace references is written to flash before the run.
    pub preload: bool,
    /// Number of times that the trace is replayed.
    pub passes: u32,
    /// Whether handing pages of the cache over to flash in merges counts as I/O time; in the cost of a merge it always does.
    pub counts_handover: bool,
}

impl PagingSetup {
    /// The paper's device and the recommended reading of it: pages of 2 KiB, 64 to a block, FAST with a sequential
    /// log block, everything on flash before.
    pub const fn new(log_blocks: u32, cache: CacheConfig) -> Self {
        let store = PagingStore::Hybrid(Mapping::Fast { sequential: true, leave_open: false });
        Self {
            page_bytes: 2048,
            pages_per_block: 64,
            log_blocks,
            store,
            cache,
            preload: true,
            passes: 1,
            counts_handover: false,
        }
    }
}

/// The result of a run. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct PagingRow {
    pub margay_version: String,
    pub seed: u64,
    pub trace: String,
    /// xxh3 of the trace file, as 16 hexadecimal digits.
    pub trace_xxh3: String,
    pub only_written: bool,
    pub page_map: String,
    pub scheme: String,
    pub store: String,
    pub page_bytes: u32,
    pub pages_per_block: u32,
    pub logical_pages: u32,
    /// Pages that the trace references; the others of a block have no copy on flash.
    pub referenced_pages: u32,
    pub log_blocks: u32,
    pub cache_frames: u32,
    pub lru_region: String,
    pub replacement: String,
    pub window: String,
    pub rules_sequential: bool,
    pub evicts_unduplicated: bool,
    pub ignores_updates: bool,
    pub preload: bool,
    pub passes: u32,
    pub counts_handover: bool,

    pub references: u64,
    pub misses: u64,
    pub lru_hits: u64,
    pub swap_ins: u64,
    pub dirty_evictions: u64,
    pub clean_evictions: u64,
    /// Merges of random log blocks and of the sequential one.
    pub gcs: u64,
    pub random_gcs: u64,
    pub sequential_gcs: u64,
    pub migrations: u64,
    pub cache_writes: u64,
    pub drops: u64,
    /// Pages that merges copied, wrote or dropped although the cache held them; per merge this is Ndup.
    pub duplicates: u64,
    pub random_duplicates: u64,
    pub erases: u64,
    pub gc_cost_us: f64,
    pub random_gc_cost_us: f64,
    pub random_migrations: u64,
    pub random_erases: u64,
    pub io_us: f64,
    /// What handing pages of the cache over took; it is in `io_us` if `counts_handover` says so.
    pub handover_us: f64,
    pub swap_in_us: f64,
    pub merges_empty: u64,
    pub merges_switch: u64,
    pub merges_partial: u64,
    pub merges_full: u64,
    pub memory_bytes_per_frame: f64,
    pub seconds: f64,
}

impl PagingRow {
    /// Ndup: mean number of pages that a merge met on flash and in the cache.
    pub fn duplicates_per_gc(&self) -> f64 {
        self.duplicates as f64 / (self.gcs as f64).max(1.0)
    }

    /// Mean cost of a merge, in microseconds.
    pub fn cost_per_gc(&self) -> f64 {
        self.gc_cost_us / (self.gcs as f64).max(1.0)
    }
}

/// A trace with its name and hash, as result rows state them.
#[derive(Clone, Debug)]
pub struct PagingTrace {
    /// Its name.
    pub name: String,
    /// xxh3 of its file.
    pub xxh3: String,
    /// Whether pages that are never written were left out.
    pub only_written: bool,
    /// How pages are numbered.
    pub page_map: String,
    /// The references.
    pub references: References,
}

/// References between two calls of the watcher.
const REPORT_EVERY: usize = 1 << 20;

impl PagingTrace {
    /// Replays the trace. `keep_on` is called with the number of references done, and returns false to stop.
    ///
    /// # Errors
    ///
    /// If the store does not fit the device or stops, or if `keep_on` returned false.
    pub fn run(&self, setup: &PagingSetup, keep_on: &mut dyn FnMut(u64) -> bool) -> Result<PagingRow, LabError> {
        let references = &self.references;
        // A page-mapped store has no place for pages that are never referenced.
        let pages = match setup.store {
            PagingStore::Hybrid(_) => references.pages(),
            PagingStore::PageLevel => references.distinct_pages(),
        };
        let blocks = pages.div_ceil(setup.pages_per_block);
        let segments = blocks + setup.log_blocks + 1;
        let geometry = Geometry::new(segments, setup.pages_per_block, setup.page_bytes).map_err(DeviceError::from)?;
        let flash = NullFlash::new(geometry);
        let start = std::time::Instant::now();
        match setup.store {
            PagingStore::Hybrid(mapping) => {
                let config = HybridConfig { mapping, ..HybridConfig::swap(pages, setup.log_blocks) };
                let mut paging = Paging::new(Plain::new(flash), config, setup.cache, |lpn| {
                    setup.preload && references.is_referenced(lpn.0)
                })?;
                self.passes(setup, keep_on, |lpn, write| Ok(paging.reference(Lpn(lpn), write)?))?;
                let counters = paging.store().counters();
                let mut row = self.row(setup, paging.cache().stats(), paging.cache().memory_bytes());
                let merges = [counters.random, counters.sequential];
                let sum = |count: fn(&margay_hybrid::Merges) -> u64| merges.iter().map(count).sum();
                row.merges_empty = sum(|merges| merges.empty);
                row.merges_switch = sum(|merges| merges.switch);
                row.merges_partial = sum(|merges| merges.partial);
                row.merges_full = sum(|merges| merges.full);
                row.seconds = start.elapsed().as_secs_f64();
                Ok(row)
            }
            PagingStore::PageLevel => {
                let config = margay_log::Config { low_water: 1, high_water: 1, ..margay_log::Config::default() };
                let sizing = Sizing {
                    segments,
                    data_pages: setup.pages_per_block,
                    exported_pages: pages,
                    seed: setup.cache.seed,
                };
                let policies =
                    Policies::new(SelectionSpec::known("greedy:tie=oldest"), PlacementSpec::default(), sizing);
                let device = Plain::new(flash);
                let mut paging = PageLevel::new(device, config, policies, pages, setup.cache, setup.preload)?;
                let ranks = references.ranks();
                self.passes(setup, keep_on, |lpn, write| Ok(paging.reference(Lpn(ranks[lpn as usize]), write)?))?;
                let mut row = self.row(setup, &paging.stats(), paging.cache().memory_bytes());
                row.seconds = start.elapsed().as_secs_f64();
                Ok(row)
            }
        }
    }

    fn passes(
        &self,
        setup: &PagingSetup,
        keep_on: &mut dyn FnMut(u64) -> bool,
        mut reference: impl FnMut(u32, bool) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut done = 0;
        for _ in 0..setup.passes {
            for chunk in self.references.chunks(REPORT_EVERY) {
                for value in chunk {
                    reference(value >> 1, value & 1 != 0)?;
                }
                done += chunk.len() as u64;
                if !keep_on(done) {
                    return Err(LabError::Interrupted { writes: done });
                }
            }
        }
        Ok(())
    }

    fn row(&self, setup: &PagingSetup, stats: &Stats, memory: (u64, u64)) -> PagingRow {
        let cache = &setup.cache;
        let costs = &cache.costs;
        let gc = stats.gc();
        let handover_us = gc.cache_writes as f64 * costs.cache_us;
        PagingRow {
            margay_version: env!("CARGO_PKG_VERSION").into(),
            seed: cache.seed,
            trace: self.name.clone(),
            trace_xxh3: self.xxh3.clone(),
            only_written: self.only_written,
            page_map: self.page_map.clone(),
            scheme: cache.scheme.name.into(),
            store: setup.store.to_string(),
            page_bytes: setup.page_bytes,
            pages_per_block: setup.pages_per_block,
            logical_pages: self.references.pages(),
            referenced_pages: self.references.distinct_pages(),
            log_blocks: setup.log_blocks,
            cache_frames: cache.frames,
            lru_region: cache.lru_region.to_string(),
            replacement: cache.replacement.to_string(),
            window: cache.window.to_string(),
            rules_sequential: cache.rules_sequential,
            evicts_unduplicated: cache.evicts_unduplicated,
            ignores_updates: cache.ignores_updates,
            preload: setup.preload,
            passes: setup.passes,
            counts_handover: setup.counts_handover,
            references: stats.references(),
            misses: stats.misses,
            lru_hits: stats.lru_hits,
            swap_ins: stats.swap_ins,
            dirty_evictions: stats.dirty_evictions,
            clean_evictions: stats.clean_evictions,
            gcs: gc.count,
            random_gcs: stats.random.count,
            sequential_gcs: stats.sequential.count,
            migrations: gc.migrations(),
            cache_writes: gc.cache_writes,
            drops: gc.drops,
            duplicates: gc.duplicates,
            random_duplicates: stats.random.duplicates,
            erases: gc.erases,
            gc_cost_us: gc.cost_us(costs),
            random_gc_cost_us: stats.random.cost_us(costs),
            random_migrations: stats.random.migrations(),
            random_erases: stats.random.erases,
            io_us: stats.io_us(costs) + if setup.counts_handover { handover_us } else { 0.0 },
            handover_us,
            swap_in_us: stats.swap_ins as f64 * costs.read_us,
            merges_empty: 0,
            merges_switch: 0,
            merges_partial: 0,
            merges_full: 0,
            memory_bytes_per_frame: memory.0 as f64 / f64::from(cache.frames),
            seconds: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_prints_as_something_that_parses_to_the_same() {
        let mappings = margay_hybrid::mappings().map(|info| info.name);
        for text in mappings.chain(["fast:sequential=no,open=yes", "page", "page-level"]) {
            let store: PagingStore = text.parse().unwrap();
            assert_eq!(store.to_string().parse(), Ok(store), "{text}");
        }
        assert!("slow".parse::<PagingStore>().unwrap_err().to_string().contains("bast"));
    }
}

use crate::cost::Costs;
use margay_hybrid::Merged;

/// Totals over the merges of one kind of log block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GcTotals {
    /// Number of merges.
    pub count: u64,
    /// Pages copied from flash to flash.
    pub copies: u64,
    /// Pages written from the cache.
    pub cache_writes: u64,
    /// Pages dropped.
    pub drops: u64,
    /// Those of the pages copied, written or dropped that the cache held at that moment ("Ndup" if divided by the merges).
    pub duplicates: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl GcTotals {
    pub(crate) fn count(&mut self, merged: &Merged, duplicates: u64) {
        self.count += 1;
        self.copies += u64::from(merged.copies);
        self.cache_writes += u64::from(merged.cache_writes);
        self.drops += u64::from(merged.drops);
        self.duplicates += duplicates;
        self.erases += u64::from(merged.erases);
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            copies: self.copies + other.copies,
            cache_writes: self.cache_writes + other.cache_writes,
            drops: self.drops + other.drops,
            duplicates: self.duplicates + other.duplicates,
            erases: self.erases + other.erases,
        }
    }

    /// Pages migrated: copied or written from the cache.
    pub const fn migrations(&self) -> u64 {
        self.copies + self.cache_writes
    }

    /// Cost of the merges by the paper's equations, in microseconds, handing pages over from the cache included.
    pub fn cost_us(&self, costs: &Costs) -> f64 {
        self.io_us(costs) + self.cache_writes as f64 * costs.cache_us
    }

    /// Time of their reads, writes and erases, in microseconds.
    pub fn io_us(&self, costs: &Costs) -> f64 {
        self.copies as f64 * (costs.read_us + costs.write_us)
            + self.cache_writes as f64 * costs.write_us
            + self.erases as f64 * costs.erase_us
    }
}

/// Counters of a page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// References that found their page outside the LRU region.
    pub mru_hits: u64,
    /// References that found their page in the LRU region.
    pub lru_hits: u64,
    /// References whose page was not cached.
    pub misses: u64,
    /// Misses whose page was read from flash.
    pub swap_ins: u64,
    /// Pages that were evicted dirty, and written.
    pub dirty_evictions: u64,
    /// Pages that were evicted clean.
    pub clean_evictions: u64,
    /// Merges of random log blocks.
    pub random: GcTotals,
    /// Merges of the sequential log block.
    pub sequential: GcTotals,
}

impl Stats {
    /// Page references.
    pub const fn references(&self) -> u64 {
        self.mru_hits + self.lru_hits + self.misses
    }

    /// All merges.
    pub const fn gc(&self) -> GcTotals {
        self.random.plus(&self.sequential)
    }

    /// Time of reads, writes and erases of merges and of the writes of evicted pages, in microseconds. Pages read
    /// for misses are not in it.
    pub fn io_us(&self, costs: &Costs) -> f64 {
        self.gc().io_us(costs) + self.dirty_evictions as f64 * costs.write_us
    }
}

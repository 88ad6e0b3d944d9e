/// How a merge was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeKind {
    /// The log block held no valid page: it is erased.
    Empty,
    /// It holds its whole block in order: it becomes the data block.
    Switch,
    /// It holds the first pages of its block in order: the rest is copied behind them.
    Partial,
    /// The newest copies are collected in new blocks.
    Full,
}

/// Merges by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merges {
    /// Log blocks without a valid page.
    pub empty: u64,
    /// Switch merges.
    pub switch: u64,
    /// Partial merges.
    pub partial: u64,
    /// Full merges.
    pub full: u64,
}

impl Merges {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.empty + self.switch + self.partial + self.full
    }

    pub(crate) fn count(&mut self, kind: MergeKind) {
        match kind {
            MergeKind::Empty => self.empty += 1,
            MergeKind::Switch => self.switch += 1,
            MergeKind::Partial => self.partial += 1,
            MergeKind::Full => self.full += 1,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HybridCounters {
    /// Pages written by the host.
    pub host_writes: u64,
    /// Pages read by the host.
    pub host_reads: u64,
    /// Merges of random log blocks, or of BAST's.
    pub random: Merges,
    /// Merges of the sequential log block.
    pub sequential: Merges,
    /// Pages copied from flash to flash in merges.
    pub copies: u64,
    /// Pages written from the cache in merges.
    pub cache_writes: u64,
    /// Pages dropped from flash in merges because the cache holds them.
    pub drops: u64,
    /// Segments erased.
    pub erases: u64,
    /// Copies whose page could not be read.
    pub lost_pages: u64,
    /// Segments that failed.
    pub retired_segments: u32,
}

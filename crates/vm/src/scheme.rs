use crate::cost::Costs;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// Which log block is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The oldest ("RR").
    RoundRobin,
    /// The one that costs least by the equations ("LDA-VBS").
    LeastCost,
}

/// What a merge does with a page that the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMerge {
    /// It is copied as any other (DU-BM, duplication-unaware).
    Unaware,
    /// It is dropped from flash, and dirty from then on (DA-BM, duplication-aware).
    Duplication,
    /// It is dropped, but a clean page of the LRU region is copied (LDA-BM, locality- and duplication-aware).
    Locality,
    /// A dirty page is written from the cache, a clean one copied (buffer-aware, our reading of BA-GC).
    Buffer,
}

/// A way of cleaning (Table II of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the paper.
    pub name: &'static str,
    /// Which log block is merged.
    pub selection: Selection,
    /// What becomes of duplicates.
    pub merge: BlockMerge,
    /// LRU dirty page eviction: a dirty page of the LRU region that flash has a copy of is written in the merge.
    pub evicts_dirty: bool,
}

const fn scheme(name: &'static str, selection: Selection, merge: BlockMerge, evicts_dirty: bool) -> Scheme {
    Scheme { name, selection, merge, evicts_dirty }
}

/// The schemes of the paper's Table II, and the buffer-aware baseline.
pub const SCHEMES: [Scheme; 8] = [
    scheme("DU-GC", Selection::RoundRobin, BlockMerge::Unaware, false),
    scheme("DA-GC", Selection::RoundRobin, BlockMerge::Duplication, false),
    scheme("LDA-GC1", Selection::LeastCost, BlockMerge::Duplication, false),
    scheme("LDA-GC2", Selection::RoundRobin, BlockMerge::Locality, false),
    scheme("LDA-GC3", Selection::LeastCost, BlockMerge::Locality, false),
    scheme("LDA-GC4", Selection::RoundRobin, BlockMerge::Locality, true),
    scheme("LDA-GC5", Selection::LeastCost, BlockMerge::Locality, true),
    scheme("BA-GC", Selection::RoundRobin, BlockMerge::Buffer, false),
];

/// No scheme has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScheme(pub String);

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown scheme '{}'; the known ones are", self.0)?;
        SCHEMES.iter().enumerate().try_for_each(|(i, scheme)| {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, scheme.name.to_ascii_lowercase())
        })
    }
}

impl core::error::Error for UnknownScheme {}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        let found = SCHEMES.into_iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownScheme(name.to_string()))
    }
}

/// Which page leaves a full cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used.
    Lru,
    /// The least recently used clean page of the LRU region, or else the least recently used (CFLRU, Park et al.
    /// 2006, whose window is the LRU region here).
    CleanFirst,
}

/// How large the LRU region is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizing {
    /// There is none: plain LRU.
    None,
    /// This share of the cache.
    Fixed(f64),
    /// Adjusted once in as many misses as the cache has frames: if more than `high` of the pages that fell into the
    /// region were hit there, the rest of the cache grows by 1/32, if fewer than `low`, it shrinks by that.
    Adaptive {
        /// The lower threshold.
        low: f64,
        /// The upper threshold.
        high: f64,
    },
}

/// How many of the oldest log blocks least-cost selection looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All of them.
    All,
    /// So many.
    Static(u32),
    /// A number that is doubled and halved at random, and kept where cleaning got cheaper.
    Adaptive {
        /// The first.
        start: u32,
    },
}

/// A page cache and how it answers merges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheConfig {
    /// Pages it holds.
    pub frames: u32,
    /// Which page leaves.
    pub replacement: Replacement,
    /// How large the LRU region is.
    pub sizing: Sizing,
    /// How merges are done.
    pub scheme: Scheme,
    /// How many log blocks least-cost selection looks at.
    pub window: Window,
    /// Whether the rules for duplicates hold for merges of the sequential log block too.
    pub rules_sequential: bool,
    /// Whether a dirty page of the LRU region is written in a merge although flash has no copy of it.
    pub evicts_unduplicated: bool,
    /// The probability that a page is written again counts as 0 in the equations.
    pub ignores_updates: bool,
    /// Costs of operations.
    pub costs: Costs,
    /// Of the adaptive window.
    pub seed: u64,
}

impl CacheConfig {
    /// The recommended reading of the paper.
    pub const fn new(frames: u32, scheme: Scheme) -> Self {
        Self {
            frames,
            replacement: Replacement::Lru,
            sizing: Sizing::Adaptive { low: 0.10, high: 0.20 },
            scheme,
            window: Window::All,
            rules_sequential: true,
            evicts_unduplicated: false,
            ignores_updates: false,
            costs: Costs::PAPER,
            seed: 1,
        }
    }
}

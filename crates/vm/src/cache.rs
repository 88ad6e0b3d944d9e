use crate::chain::LruEnd;
use crate::list::{List, NONE};
use crate::tally::PageClass;
use crate::window::Size;
use crate::{CacheConfig, Chain, LruRegion, Replacement, Stats, Tally, VictimSelection};
use alloc::{vec, vec::Vec};
use margay_flash::Lpn;

const DIRTY: u8 = 1;
const IN_LRU: u8 = 2;
/// Written since it came to the front.
const WRITTEN: u8 = 4;
/// Hit since it came into the cache.
const REUSED: u8 = 8;

/// The part of the cache that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRegion {
    /// In the MRU region, and not referenced again since it came into the cache.
    Initial,
    /// In the MRU region: referenced recently.
    Mru,
    /// In the LRU region: among the least recently used.
    Lru,
}

/// Holds the bytes of the cached pages.
pub trait Frames {
    /// Called when a page falls into the LRU region, and when one is evicted that is not in it.
    fn fell(&mut self, frame: u32, lpn: Lpn, dirty: bool);

    /// Copies the bytes of a page of the LRU region into `data`.
    fn copy(&self, frame: u32, data: &mut [u8]);
}

/// Frames without bytes, for measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFrames;

impl Frames for NoFrames {
    fn fell(&mut self, _: u32, _: Lpn, _: bool) {}
    fn copy(&self, _: u32, _: &mut [u8]) {}
}

/// A page that was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The page.
    pub lpn: Lpn,
    /// The frame it was in. The frame holds the page's bytes until another page is brought in.
    pub frame: u32,
    /// Whether it has to be written.
    pub dirty: bool,
}

/// A page cache: one strict LRU list whose tail is the LRU region, with a record of which pages the store below has
/// copies of.
#[derive(Debug)]
pub struct Cache<F = NoFrames> {
    pub(crate) config: CacheConfig,
    pub(crate) frames: F,
    list: List,
    lpns: Vec<u32>,
    flags: Vec<u8>,
    /// By page, its frame.
    frame_of: Vec<u32>,
    free: Vec<u32>,
    /// The most recently used frame of the LRU region.
    boundary: u32,
    /// Frames before it.
    mru_frames: u32,
    mru_target: u32,
    /// Pages that fell into the LRU region, and hits there, since the sizes were adjusted.
    fell: u64,
    /// Hits in the LRU region count as misses do for the adjustment.
    adjusts_at_hits: bool,
    /// No page falls unless one has to be evicted.
    holds: bool,
    hits: u64,
    misses: u64,
    on_flash: Vec<u64>,
    pages_per_block: u32,
    chain: Chain,
    tally: Tally,
    tracks: bool,
    pub(crate) window: Size,
    pub(crate) random_log_blocks: u32,
    pub(crate) stats: Stats,
    /// Cached pages that the merge under way has moved or dropped so far.
    pub(crate) duplicates: u64,
}

impl Cache<NoFrames> {
    /// An empty cache for a store of `pages` pages, `pages_per_block` to a block.
    ///
    /// # Panics
    ///
    /// If the configuration has no frame.
    pub fn new(config: CacheConfig, pages: u32, pages_per_block: u32) -> Self {
        Self::with_frames(config, pages, pages_per_block, NoFrames)
    }
}

impl<F: Frames> Cache<F> {
    /// The same as [`Cache::new`], with frames that hold the bytes.
    ///
    /// # Panics
    ///
    /// If the configuration has no frame.
    pub fn with_frames(config: CacheConfig, pages: u32, pages_per_block: u32, frames: F) -> Self {
        assert!(config.frames > 0, "a cache has at least one frame");
        let count = config.frames;
        let mru_target = match config.lru_region {
            LruRegion::None => count,
            LruRegion::Fixed { percent } => count - ((f64::from(count) * (percent / 100.0)) as u32).clamp(1, count),
            LruRegion::Adaptive { .. } => count / 2,
        };
        Self {
            frames,
            list: List::new(count),
            lpns: vec![NONE; count as usize],
            flags: vec![0; count as usize],
            frame_of: vec![NONE; pages as usize],
            free: (0..count).rev().collect(),
            boundary: NONE,
            mru_frames: 0,
            mru_target,
            fell: 0,
            adjusts_at_hits: false,
            holds: false,
            hits: 0,
            misses: 0,
            on_flash: vec![0; pages.div_ceil(64) as usize],
            pages_per_block,
            chain: Chain::new(count),
            tally: Tally::new(pages.div_ceil(pages_per_block)),
            tracks: config.scheme.selection == VictimSelection::LeastCost,
            window: Size::new(config.window, config.seed),
            random_log_blocks: u32::MAX,
            stats: Stats::default(),
            duplicates: 0,
            config,
        }
    }

    /// The configuration.
    pub const fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// What the cache did since it was made or its counters were reset.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Resets the counters; what is cached stays.
    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// Sets the number of random log blocks, which is the maximum size of the adaptive window.
    pub fn set_random_log_blocks(&mut self, random_log_blocks: u32) {
        self.random_log_blocks = random_log_blocks;
    }

    /// Adjusts the target of the MRU region after as many hits in the LRU region and misses together as there are frames, and
    /// not after as many misses alone: for a cache in which such a hit costs nearly as much as a miss.
    pub fn adjust_at_hits(&mut self) {
        self.adjusts_at_hits = true;
    }

    /// The frames.
    pub fn frames_mut(&mut self) -> &mut F {
        &mut self.frames
    }

    /// P_MRU and P_LRU of the paper: the probabilities that a page of each region is written before it is evicted.
    pub fn probabilities(&self) -> (f64, f64) {
        if self.config.ignores_updates { (0.0, 0.0) } else { self.chain.probabilities() }
    }

    /// Number of frames that the MRU region is to have.
    pub const fn mru_target(&self) -> u32 {
        self.mru_target
    }

    /// The counts that least-cost selection uses. They are kept only under a scheme with that selection.
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Bytes of memory held for all frames, and for all pages of the store.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let frames = self.list.memory_bytes() + (4 * self.lpns.capacity() + self.flags.capacity()) as u64;
        (frames, (4 * self.frame_of.capacity() + 8 * self.on_flash.capacity()) as u64)
    }

    /// The frame of a page; `None` if it is not cached.
    pub fn frame(&self, lpn: Lpn) -> Option<u32> {
        let frame = self.frame_of[lpn.index()];
        (frame != NONE).then_some(frame)
    }

    /// The region of a page; `None` if it is not cached.
    pub fn region(&self, lpn: Lpn) -> Option<CacheRegion> {
        let flags = self.flags[self.frame(lpn)? as usize];
        Some(match (flags & IN_LRU, flags & REUSED) {
            (0, 0) => CacheRegion::Initial,
            (0, _) => CacheRegion::Mru,
            _ => CacheRegion::Lru,
        })
    }

    /// Whether a cached page has to be written when it leaves.
    pub fn is_dirty(&self, lpn: Lpn) -> bool {
        self.frame(lpn).is_some_and(|frame| self.flags[frame as usize] & DIRTY != 0)
    }

    /// Whether no frame is free.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// The cached pages, the most recently used first.
    pub fn pages(&self) -> impl Iterator<Item = Lpn> {
        let next = |frame: &u32| Some(self.list.next(*frame)).filter(|frame| *frame != NONE);
        let first = Some(self.list.head).filter(|frame| *frame != NONE);
        core::iter::successors(first, next).map(|frame| Lpn(self.lpns[frame as usize]))
    }

    /// Whether flash holds a copy of the page.
    pub fn is_on_flash(&self, lpn: Lpn) -> bool {
        self.on_flash[lpn.index() / 64] >> (lpn.0 % 64) & 1 != 0
    }

    fn class(&self, lpn: Lpn) -> PageClass {
        match self.frame_of[lpn.index()] {
            NONE => PageClass::Uncached,
            frame => match self.flags[frame as usize] & (DIRTY | IN_LRU) {
                0 => PageClass::CleanMru,
                DIRTY => PageClass::DirtyMru,
                IN_LRU => PageClass::CleanLru,
                _ => PageClass::DirtyLru,
            },
        }
    }

    /// Makes a change that the class of a page may depend on, and keeps the counts.
    #[inline]
    fn reclass(&mut self, lpn: Lpn, change: impl FnOnce(&mut Self)) {
        if self.tracks && self.is_on_flash(lpn) {
            let block = lpn.0 / self.pages_per_block;
            let before = self.class(lpn);
            change(self);
            let after = self.class(lpn);
            if before != after {
                self.tally.lost(block, before);
                self.tally.gained(block, after);
            }
        } else {
            change(self);
        }
    }

    pub(crate) fn set_on_flash(&mut self, lpn: Lpn, is: bool) {
        let bit = 1 << (lpn.0 % 64);
        let word = &mut self.on_flash[lpn.index() / 64];
        *word = if is { *word | bit } else { *word & !bit };
        if self.tracks {
            let (block, class) = (lpn.0 / self.pages_per_block, self.class(lpn));
            if is { self.tally.gained(block, class) } else { self.tally.lost(block, class) }
        }
    }

    pub(crate) fn link(&mut self, slot: u32, block: u32, is: bool) {
        if self.tracks {
            self.tally.linked(slot, block, is);
        }
    }

    /// References a page. False if it is not cached: then it has to be brought in ([`Cache::insert`]).
    #[inline]
    pub fn touch(&mut self, lpn: Lpn, write: bool) -> bool {
        let frame = self.frame_of[lpn.index()];
        if frame == NONE {
            return false;
        }
        let flags = self.flags[frame as usize];
        if flags & IN_LRU != 0 {
            self.hit_in_lru(lpn, frame, write);
            return true;
        }
        self.stats.mru_hits += 1;
        if write && flags & (DIRTY | WRITTEN) != DIRTY | WRITTEN {
            self.reclass(lpn, |cache| cache.flags[frame as usize] |= DIRTY | WRITTEN);
        }
        self.flags[frame as usize] |= REUSED;
        if self.list.head != frame {
            self.list.remove(frame);
            self.list.push_front(frame);
        }
        true
    }

    fn hit_in_lru(&mut self, lpn: Lpn, frame: u32, write: bool) {
        self.stats.lru_hits += 1;
        self.hits += 1;
        self.chain.left_lru(if write { LruEnd::Written } else { LruEnd::Read });
        if self.boundary == frame {
            self.boundary = self.list.next(frame);
        }
        self.reclass(lpn, |cache| {
            let flags = &mut cache.flags[frame as usize];
            *flags = *flags & DIRTY | REUSED | if write { DIRTY } else { 0 };
        });
        self.list.remove(frame);
        self.list.push_front(frame);
        self.mru_frames += 1;
        if self.adjusts_at_hits {
            self.adjust();
        }
        self.keep_target();
    }

    /// Pages beyond the target of the MRU region fall into the LRU region.
    fn keep_target(&mut self) {
        while !self.holds && self.mru_frames > self.mru_target {
            let frame = match self.boundary {
                NONE => self.list.tail,
                boundary => self.list.prev(boundary),
            };
            let (lpn, flags) = (Lpn(self.lpns[frame as usize]), self.flags[frame as usize]);
            self.chain.left_mru(flags & WRITTEN != 0);
            self.frames.fell(frame, lpn, flags & DIRTY != 0);
            self.reclass(lpn, |cache| cache.flags[frame as usize] |= IN_LRU);
            self.boundary = frame;
            self.mru_frames -= 1;
            self.fell += 1;
        }
    }

    /// Evicts the page that the rule of replacement chooses; `None` if the cache is empty.
    pub fn evict(&mut self) -> Option<Evicted> {
        let frame = self.choose()?;
        let (lpn, flags) = (Lpn(self.lpns[frame as usize]), self.flags[frame as usize]);
        if flags & IN_LRU != 0 {
            self.chain.left_lru(LruEnd::Evicted);
            if self.boundary == frame {
                self.boundary = self.list.next(frame);
            }
        } else {
            self.chain.left_mru(flags & WRITTEN != 0);
            self.frames.fell(frame, lpn, flags & DIRTY != 0);
            self.mru_frames -= 1;
        }
        self.list.remove(frame);
        self.reclass(lpn, |cache| cache.frame_of[lpn.index()] = NONE);
        self.free.push(frame);
        let dirty = flags & DIRTY != 0;
        *(if dirty { &mut self.stats.dirty_evictions } else { &mut self.stats.clean_evictions }) += 1;
        Some(Evicted { lpn, frame, dirty })
    }

    fn choose(&self) -> Option<u32> {
        let tail = Some(self.list.tail).filter(|frame| *frame != NONE)?;
        if self.config.replacement == Replacement::CleanFirst && self.boundary != NONE {
            let mut frame = tail;
            while frame != NONE && self.flags[frame as usize] & IN_LRU != 0 {
                if self.flags[frame as usize] & DIRTY == 0 {
                    return Some(frame);
                }
                frame = self.list.prev(frame);
            }
        }
        Some(tail)
    }

    /// Brings a page in. Returns its frame.
    ///
    /// # Panics
    ///
    /// If no frame is free.
    pub fn insert(&mut self, lpn: Lpn, write: bool) -> u32 {
        debug_assert_eq!(self.frame_of[lpn.index()], NONE);
        let frame = self.free.pop().expect("a frame was made free");
        self.stats.misses += 1;
        if self.is_on_flash(lpn) {
            self.stats.swap_ins += 1;
        }
        self.lpns[frame as usize] = lpn.0;
        self.reclass(lpn, |cache| {
            cache.frame_of[lpn.index()] = frame;
            cache.flags[frame as usize] = if write { DIRTY } else { 0 };
        });
        self.list.push_front(frame);
        self.mru_frames += 1;
        self.adjust();
        self.keep_target();
        frame
    }

    /// Adjusts the target of the MRU region once in as many calls as there are frames: misses, and hits if they count.
    fn adjust(&mut self) {
        let LruRegion::Adaptive { low_percent, high_percent } = self.config.lru_region else { return };
        self.misses += 1;
        let frames = self.config.frames;
        if self.misses < u64::from(frames) {
            return;
        }
        if self.fell > 0 {
            let rate = self.hits as f64 / self.fell as f64;
            let (step, min_frames) = ((frames / 32).max(1), (frames / 16).max(1));
            if rate > high_percent / 100.0 {
                self.mru_target = (self.mru_target + step).min(frames - min_frames);
            } else if rate < low_percent / 100.0 {
                self.mru_target = self.mru_target.saturating_sub(step).max(min_frames);
            }
        }
        (self.misses, self.fell, self.hits) = (0, 0, 0);
    }

    /// With `holds`, pages of the MRU region stay there, unless one has to be evicted and there is no page in the LRU region.
    /// Without, those beyond its target fall.
    pub fn hold(&mut self, holds: bool) {
        self.holds = holds;
        self.keep_target();
    }

    /// Forgets a page whose content is of no use any more, or that others keep from now on: it is not cached, and not
    /// counted as evicted. Returns the frame it was in; `None` if it was not cached.
    pub fn forget(&mut self, lpn: Lpn) -> Option<u32> {
        let frame = self.frame(lpn)?;
        if self.flags[frame as usize] & IN_LRU == 0 {
            self.mru_frames -= 1;
        } else if self.boundary == frame {
            self.boundary = self.list.next(frame);
        }
        self.list.remove(frame);
        self.reclass(lpn, |cache| cache.frame_of[lpn.index()] = NONE);
        self.free.push(frame);
        Some(frame)
    }

    /// Marks a cached page as written without a new reference: it is dirty.
    pub fn wrote(&mut self, lpn: Lpn) {
        self.mark(lpn, true);
        if let Some(frame) = self.frame(lpn) {
            self.flags[frame as usize] |= WRITTEN;
        }
    }

    pub(crate) fn mark(&mut self, lpn: Lpn, dirty: bool) {
        let Some(frame) = self.frame(lpn) else { return };
        self.reclass(lpn, |cache| {
            let flags = &mut cache.flags[frame as usize];
            *flags = if dirty { *flags | DIRTY } else { *flags & !DIRTY };
        });
    }
}

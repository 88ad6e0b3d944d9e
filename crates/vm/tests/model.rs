//! The cache and its counts against recomputing everything.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_hybrid::{HybridConfig, Mapping};
use margay_media::{NullFlash, Strict};
use margay_vm::cost::MergePages;
use margay_vm::{CacheConfig, CacheRegion, LruRegion, Paging, Replacement, VictimSelection, Window, schemes};
use proptest::prelude::*;

const PAGES: u32 = 90;

fn mapping() -> impl Strategy<Value = Mapping> {
    let fast = (any::<bool>(), any::<bool>());
    prop_oneof![Just(Mapping::Bast), fast.prop_map(|(sequential, leave_open)| Mapping::Fast { sequential, leave_open })]
}

fn lru_region() -> impl Strategy<Value = LruRegion> {
    prop_oneof![
        Just(LruRegion::None),
        (5.0..95.0f64).prop_map(|percent| LruRegion::Fixed { percent }),
        Just(LruRegion::ADAPTIVE),
    ]
}

fn window() -> impl Strategy<Value = Window> {
    prop_oneof![Just(Window::All), (1..5u32).prop_map(Window::Static), Just(Window::Adaptive { start: 1 })]
}

/// What a merge of a log block would meet, by a look at every page.
fn recount(paging: &Paging<Plain<Strict<NullFlash>>>, slot: u32) -> MergePages {
    let (cache, store) = (paging.cache(), paging.store());
    let mut pages = MergePages::default();
    let blocks: Vec<u32> = store.blocks_in(slot).collect();
    pages.blocks = blocks.len() as u32;
    let size = store.pages_per_block();
    for lpn in blocks.into_iter().flat_map(|block| block * size..PAGES.min((block + 1) * size)).map(Lpn) {
        if store.is_on_flash(lpn) {
            match (cache.region(lpn), cache.is_dirty(lpn)) {
                (None, _) => pages.uncached += 1,
                (Some(CacheRegion::Lru), false) => pages.clean_lru += 1,
                (Some(CacheRegion::Lru), true) => pages.dirty_lru += 1,
                (Some(_), false) => pages.clean_mru += 1,
                (Some(_), true) => {}
            }
        }
    }
    pages
}

proptest! {
    #[test]
    fn counts_kept_with_every_change_equal_a_full_recount(
        scheme in 0..schemes().len(),
        least_cost in any::<bool>(),
        mapping in mapping(),
        log_blocks in 2..6u32,
        frames in 3..40u32,
        lru_region in lru_region(),
        clean_first in any::<bool>(),
        window in window(),
        rules_sequential in any::<bool>(),
        evicts_unduplicated in any::<bool>(),
        held in prop_oneof![Just(0), Just(1), 2..20u32],
        references in proptest::collection::vec((0..PAGES, 0..8u32, any::<bool>()), 1..400),
    ) {
        let mut scheme = schemes().nth(scheme).unwrap();
        // Only least-cost selection keeps the counts; with it every way of merging has to keep them right.
        if least_cost {
            scheme.selection = VictimSelection::LeastCost;
        }
        let keeps_counts = scheme.selection == VictimSelection::LeastCost;
        let config = HybridConfig { mapping, ..HybridConfig::swap(PAGES, log_blocks) };
        let segments = config.segments(&Geometry::new(2, 8, 2048).unwrap()) as u32;
        let flash = NullFlash::new(Geometry::new(segments, 8, 2048).unwrap());
        let replacement = if clean_first { Replacement::CleanFirst } else { Replacement::Lru };
        let cache = CacheConfig {
            replacement, lru_region, window, rules_sequential, evicts_unduplicated, ..CacheConfig::new(frames, scheme)
        };
        let is_held = |lpn: u32| held > 0 && lpn.is_multiple_of(held);
        let mut paging = Paging::new(Plain::new(Strict::new(flash)), config, cache, |lpn| is_held(lpn.0)).unwrap();
        let mut oracle: Vec<u32> = Vec::new();
        let mut known: [bool; PAGES as usize] = core::array::from_fn(|lpn| is_held(lpn as u32));
        let mut referenced = known;
        for (first, run, write) in references {
            for lpn in first..PAGES.min(first + 1 + run) {
                let full = oracle.len() == frames as usize;
                let hit = oracle.iter().position(|page| *page == lpn).map(|at| oracle.remove(at)).is_some();
                if !hit && full && !clean_first {
                    oracle.pop();
                }
                paging.reference(Lpn(lpn), write).unwrap();
                oracle.insert(0, lpn);
                known[lpn as usize] |= write;
                referenced[lpn as usize] = true;
            }
            if clean_first {
                oracle = paging.cache().pages().map(|lpn| lpn.0).collect();
            }
        }
        // The cache is a strict LRU list.
        prop_assert_eq!(paging.cache().pages().map(|lpn| lpn.0).collect::<Vec<_>>(), oracle);
        // The LRU region is its tail.
        let is_lru = |lpn| paging.cache().region(lpn) == Some(CacheRegion::Lru);
        let regions: Vec<bool> = paging.cache().pages().map(is_lru).collect();
        prop_assert!(regions.is_sorted(), "{:?}", regions);
        prop_assert!(regions.iter().filter(|is| !**is).count() <= paging.cache().mru_target() as usize);
        paging.store().audit().unwrap();
        for lpn in (0..PAGES).map(Lpn) {
            // What was ever written is in the cache, dirty, or on flash.
            let is_safe = paging.store().is_on_flash(lpn) || paging.cache().is_dirty(lpn);
            prop_assert!(is_safe || !known[lpn.index()], "page {} is lost", lpn);
            prop_assert!(referenced[lpn.index()] || !paging.store().is_on_flash(lpn), "page {} came from nowhere", lpn);
        }
        for slot in (0..log_blocks).filter(|_| keeps_counts) {
            prop_assert_eq!(paging.cache().tally().pages(slot), recount(&paging, slot), "log block {}", slot);
        }
    }
}

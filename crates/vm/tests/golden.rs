//! Figures 1 to 3 of the paper: one merge of two blocks, by each way of merging.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_hybrid::{HybridConfig, Mapping};
use margay_media::{NullFlash, Strict};
use margay_vm::{CacheConfig, CacheRegion, GcTotals, LruRegion, Paging, Scheme, scheme_rows};

type Device = Plain<Strict<NullFlash>>;

/// Blocks of 4 pages, all on flash; a log block that holds two pages of block 0 and two of block 1. Of these blocks
/// the cache holds page 0 clean and page 4 dirty in its LRU region, page 1 clean and page 5 dirty outside it. Then
/// a dirty page of another block is evicted, for which the log block has to be merged.
fn merge(scheme: &str) -> (GcTotals, Paging<Device>) {
    let scheme: Scheme = scheme.parse().unwrap();
    let mapping = Mapping::Fast { sequential: false, leave_open: false };
    let config = HybridConfig { mapping, ..HybridConfig::swap(32, 1) };
    let flash = NullFlash::new(Geometry::new(10, 4, 2048).unwrap());
    let cache = CacheConfig { lru_region: LruRegion::Fixed { percent: 50.0 }, ..CacheConfig::new(8, scheme) };
    let mut paging = Paging::new(Plain::new(Strict::new(flash)), config, cache, |_| true).unwrap();
    let mut refer = |write: bool, pages: &[u32]| {
        pages.iter().for_each(|page| paging.reference(Lpn(*page), write).unwrap());
    };
    refer(true, &[1, 2, 5, 6]);
    refer(false, &[8, 9, 10, 11, 12, 13, 14, 15]);
    refer(true, &[16]);
    refer(false, &[0]);
    refer(true, &[4]);
    refer(false, &[20, 1]);
    refer(true, &[5]);
    refer(false, &[21, 22]);
    let states = [0, 4, 1, 5].map(|page| (paging.cache().region(Lpn(page)), paging.cache().is_dirty(Lpn(page))));
    let (lru, first) = (Some(CacheRegion::Lru), Some(CacheRegion::Initial));
    assert_eq!(states, [(lru, false), (lru, true), (first, false), (first, true)]);
    assert_eq!(paging.cache().stats().random, GcTotals::default());
    paging.reference(Lpn(23), false).unwrap();
    (paging.cache().stats().random, paging)
}

/// Of pages 0, 4, 1 and 5: dirty, on flash.
fn states(paging: &Paging<Device>) -> [(bool, bool); 4] {
    [0, 4, 1, 5].map(|page| (paging.cache().is_dirty(Lpn(page)), paging.store().is_on_flash(Lpn(page))))
}

#[test]
fn a_merge_migrates_and_erases_what_the_figures_show() {
    let (clean, stale, dropped) = ((false, true), (true, true), (true, false));
    // With one log block every selection chooses it, so each least-cost scheme does what its round-robin twin does.
    let expected = [
        ("du-gc", 8, [clean, stale, clean, stale]),
        ("da-gc", 4, [dropped, dropped, dropped, dropped]),
        ("lda-gc1", 4, [dropped, dropped, dropped, dropped]),
        ("lda-gc2", 5, [clean, dropped, dropped, dropped]),
        ("lda-gc3", 5, [clean, dropped, dropped, dropped]),
        ("lda-gc4", 6, [clean, clean, dropped, dropped]),
        ("lda-gc5", 6, [clean, clean, dropped, dropped]),
        ("ba-gc", 8, [clean, clean, clean, clean]),
    ];
    let names: Vec<_> = scheme_rows().map(|info| info.name).collect();
    assert_eq!(expected.map(|(name, _, _)| name)[..], names, "every scheme has its figures here");
    for (scheme, migrations, after) in expected {
        let (gc, paging) = merge(scheme);
        assert_eq!((gc.count, gc.migrations(), gc.erases), (1, migrations, 3), "{scheme}");
        assert_eq!(states(&paging), after, "{scheme}");
        paging.store().audit().unwrap();
    }
}

//! The store under a cache that decides at random, against a plain map.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_hybrid::{
    Host, Hybrid, HybridConfig, HybridError, Mapping, MergeAction, Merged, NoCache, Persistence, Victim,
};
use margay_media::{RamFlash, Strict};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet, VecDeque};

const PAGES: u32 = 27;

/// A cache that holds some pages, some of them dirty, and answers by a number that changes.
#[derive(Default)]
struct Cache {
    pages: HashMap<u32, (u8, bool)>,
    mood: u32,
    on_flash: HashSet<u32>,
    /// Pairs of log block and block.
    links: HashSet<(u32, u32)>,
    merged: Vec<Merged>,
}

impl Host for Cache {
    fn decide(&self, lpn: Lpn, _: Victim, on_flash: bool) -> MergeAction {
        assert_eq!(self.on_flash.contains(&lpn.0), on_flash, "page {lpn}");
        match self.pages.get(&lpn.0) {
            _ if !on_flash => MergeAction::Leave,
            None => MergeAction::Copy,
            Some((_, true)) if (self.mood ^ lpn.0) & 1 == 0 => MergeAction::Write,
            Some((_, true)) => MergeAction::Drop,
            Some((_, false)) if (self.mood ^ lpn.0) & 2 == 0 => MergeAction::Copy,
            Some((_, false)) => MergeAction::Drop,
        }
    }
    fn fill(&mut self, lpn: Lpn, data: &mut [u8]) {
        data.fill(self.pages[&lpn.0].0);
    }
    fn moved(&mut self, lpn: Lpn, how: MergeAction) {
        if let Some((_, dirty)) = self.pages.get_mut(&lpn.0) {
            match how {
                MergeAction::Write => *dirty = false,
                MergeAction::Drop => *dirty = true,
                MergeAction::Copy | MergeAction::Leave => {}
            }
        }
    }
    fn on_flash(&mut self, lpn: Lpn, is: bool) {
        if is {
            self.on_flash.insert(lpn.0)
        } else {
            self.on_flash.remove(&lpn.0)
        };
    }
    fn linked(&mut self, slot: u32, block: u32, is: bool) {
        let changed = if is { self.links.insert((slot, block)) } else { self.links.remove(&(slot, block)) };
        assert!(changed, "a link is told once: {slot} {block} {is}");
    }
    fn victim(&mut self, oldest_first: &VecDeque<u32>) -> usize {
        self.mood = self.mood.wrapping_mul(747_796_405).wrapping_add(1);
        (self.mood >> 16) as usize % oldest_first.len()
    }
    fn merged(&mut self, merged: &Merged) {
        self.merged.push(*merged);
    }
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let fast = (any::<bool>(), any::<bool>());
    prop_oneof![Just(Mapping::Bast), fast.prop_map(|(sequential, leave_open)| Mapping::Fast { sequential, leave_open })]
}

fn store(config: HybridConfig) -> Hybrid<Plain<Strict<RamFlash>>> {
    let geometry = Geometry::new(12, 4, 16).unwrap();
    let segments = config.segments(&geometry) as u32;
    let geometry = Geometry::new(segments, 4, 16).unwrap();
    Hybrid::new(Plain::new(Strict::new(RamFlash::new(geometry))), config).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    /// The cache takes a page in and changes it.
    Change(u32, u8),
    /// The cache takes a page in unchanged.
    Load(u32),
    /// The cache gives a page up, and writes it if it is dirty.
    Evict(u32),
    /// Pages from the first of a block on go through the cache in order.
    Run(u32, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..PAGES, any::<u8>()).prop_map(|(lpn, byte)| Step::Change(lpn, byte)),
        2 => (0..PAGES).prop_map(Step::Load),
        4 => (0..PAGES).prop_map(Step::Evict),
        1 => (0..PAGES.div_ceil(4), 1..5u32).prop_map(|(block, count)| Step::Run(block, count)),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn a_swap_store_and_its_cache_together_hold_every_page(
        mapping in mapping(),
        log_blocks in 2..6u32,
        preload in any::<bool>(),
        holes in 1..7u32,
        steps in steps(),
    ) {
        let config = HybridConfig { mapping, ..HybridConfig::swap(PAGES, log_blocks) };
        let mut store = store(config);
        let mut cache = Cache::default();
        let mut oracle: HashMap<u32, u8> = HashMap::new();
        if preload {
            let has = |lpn: u32| lpn.is_multiple_of(holes);
            store.preload(&mut cache, |lpn| has(lpn.0)).unwrap();
            oracle.extend((0..PAGES).filter(|lpn| has(*lpn)).map(|lpn| (lpn, 0)));
        }
        let evict = |store: &mut Hybrid<_>, cache: &mut Cache, lpn: u32| {
            if let Some((byte, true)) = cache.pages.remove(&lpn) {
                store.write(Lpn(lpn), &[byte; 16], cache).unwrap();
            }
        };
        for step in steps {
            match step {
                Step::Change(lpn, byte) => {
                    cache.pages.insert(lpn, (byte, true));
                    oracle.insert(lpn, byte);
                }
                Step::Load(lpn) if !cache.pages.contains_key(&lpn) => {
                    let mut page = [0; 16];
                    if store.read(Lpn(lpn), &mut page).unwrap().is_some() {
                        cache.pages.insert(lpn, (page[0], false));
                    }
                }
                Step::Load(_) => {}
                Step::Evict(lpn) => evict(&mut store, &mut cache, lpn),
                Step::Run(block, count) => for lpn in (block * 4..PAGES).take(count as usize) {
                    let byte = lpn as u8 ^ 0x5A;
                    cache.pages.insert(lpn, (byte, true));
                    oracle.insert(lpn, byte);
                    evict(&mut store, &mut cache, lpn);
                },
            }
        }
        store.audit().unwrap();
        for lpn in 0..PAGES {
            let mut page = [0; 16];
            let on_flash = store.read(Lpn(lpn), &mut page).unwrap().is_some();
            prop_assert_eq!(on_flash, cache.on_flash.contains(&lpn));
            let held = match cache.pages.get(&lpn) {
                Some((byte, dirty)) => {
                    prop_assert!(*dirty || (on_flash && page == [*byte; 16]), "clean page {} differs from flash", lpn);
                    Some(*byte)
                }
                None => on_flash.then_some(page[0]),
            };
            prop_assert_eq!(held, oracle.get(&lpn).copied(), "page {}", lpn);
        }
        let sum = |count: fn(&Merged) -> u32| cache.merged.iter().map(|merged| u64::from(count(merged))).sum::<u64>();
        let counters = *store.counters();
        prop_assert_eq!(sum(|merged| merged.copies), counters.copies);
        prop_assert_eq!(sum(|merged| merged.cache_writes), counters.cache_writes);
        prop_assert_eq!(sum(|merged| merged.drops), counters.drops);
        prop_assert_eq!(sum(|merged| merged.erases), counters.erases);
        prop_assert_eq!(cache.merged.len() as u64, counters.random.total() + counters.sequential.total());
    }

    #[test]
    fn a_disk_holds_every_page(mapping in mapping(), log_blocks in 2..6u32, writes in proptest::collection::vec((0..PAGES, any::<u8>()), 1..300)) {
        let mut store = store(HybridConfig { mapping, persistence: Persistence::Persistent, ..HybridConfig::swap(PAGES, log_blocks) });
        let mut oracle = HashMap::new();
        for (lpn, byte) in writes {
            store.write_alone(Lpn(lpn), &[byte; 16]).unwrap();
            oracle.insert(lpn, byte);
        }
        store.audit().unwrap();
        for lpn in 0..PAGES {
            let mut page = [0; 16];
            let found = store.read(Lpn(lpn), &mut page).unwrap().map(|_| page[0]);
            prop_assert_eq!(found, oracle.get(&lpn).copied());
        }
    }
}

fn write_run(store: &mut Hybrid<Plain<Strict<RamFlash>>>, lpns: impl IntoIterator<Item = u32>) {
    for lpn in lpns {
        store.write_alone(Lpn(lpn), &[lpn as u8; 16]).unwrap();
    }
}

#[test]
fn a_block_written_in_order_becomes_the_data_block_and_half_of_one_is_completed() {
    let mut store = store(HybridConfig::swap(PAGES, 3));
    write_run(&mut store, 0..4);
    write_run(&mut store, [4, 0, 1, 8]);
    let merges = store.counters().sequential;
    // Block 0, then the one page of block 1, then two pages of block 0.
    assert_eq!((merges.switch, merges.partial, merges.full), (1, 2, 0));
    // Only the last had an old data block, of which it copied two pages.
    assert_eq!((store.counters().erases, store.counters().copies), (1, 2));
}

#[test]
fn a_write_out_of_order_merges_the_sequential_block_unless_it_is_left_open() {
    for (leave_open, merges) in [(false, 1), (true, 0)] {
        let mapping = Mapping::Fast { sequential: true, leave_open };
        let mut store = store(HybridConfig { mapping, ..HybridConfig::swap(PAGES, 3) });
        write_run(&mut store, [0, 1, 3]);
        assert_eq!(store.counters().sequential.total(), merges);
    }
}

/// Wants everything dropped.
struct Dropper;

impl Host for Dropper {
    fn decide(&self, _: Lpn, _: Victim, on_flash: bool) -> MergeAction {
        if on_flash { MergeAction::Drop } else { MergeAction::Leave }
    }
    fn fill(&mut self, _: Lpn, _: &mut [u8]) {}
    fn moved(&mut self, _: Lpn, _: MergeAction) {}
    fn on_flash(&mut self, _: Lpn, _: bool) {}
    fn linked(&mut self, _: u32, _: u32, _: bool) {}
    fn victim(&mut self, oldest_first: &VecDeque<u32>) -> usize {
        NoCache.victim(oldest_first)
    }
    fn merged(&mut self, _: &Merged) {}
}

#[test]
fn a_disk_refuses_to_drop_what_may_be_the_only_copy() {
    let mut store = store(HybridConfig { persistence: Persistence::Persistent, ..HybridConfig::swap(PAGES, 2) });
    let mut written = Ok(());
    for lpn in (1..PAGES).cycle().take(200) {
        written = store.write(Lpn(lpn), &[lpn as u8; 16], &mut Dropper);
        if written.is_err() {
            break;
        }
    }
    assert!(matches!(written, Err(HybridError::WouldLose { .. })), "{written:?}");
    assert!(matches!(store.discard(Lpn(1), &mut NoCache), Err(HybridError::WouldLose { .. })));
    store.audit().unwrap();
    let mut page = [0; 16];
    assert!(store.read(Lpn(1), &mut page).unwrap().is_some() && page == [1; 16]);
}

#[test]
fn impossible_configurations_are_refused_with_their_numbers() {
    let flash = || Plain::new(RamFlash::new(Geometry::new(8, 4, 16).unwrap()));
    let few = Hybrid::new(flash(), HybridConfig::swap(8, 1)).unwrap_err();
    assert_eq!(few, HybridError::TooFewLogBlocks { log_blocks: 1, min_log_blocks: 2 });
    let large = Hybrid::new(flash(), HybridConfig::swap(32, 4)).unwrap_err();
    assert_eq!(large, HybridError::TooSmall { needed_segments: 13, segments: 8 });
    let error = "fast:sequential=perhaps".parse::<Mapping>().unwrap_err().to_string();
    assert!(error.contains("sequential=yes|no"), "{error}");
}

//! Where pages are that are not where their translation pages on flash say.

use alloc::{vec, vec::Vec};
use core::ops::Range;
use margay_flash::Lpn;

/// Marks an empty slot; no disk has so many pages.
const EMPTY: u32 = u32::MAX;

/// A table of places by logical page: open addressing in one array, so that its memory is known.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    /// Logical page and place.
    slots: Vec<(u32, u32)>,
    len: usize,
    /// Where [`Changes::next`] goes on.
    hand: usize,
}

impl Changes {
    /// A table with room for `count` changes, which grows if there are more.
    pub fn new(count: usize) -> Self {
        Self { slots: vec![(EMPTY, 0); Self::slots_for(count)], len: 0, hand: 0 }
    }

    /// Slots of a table for so many changes: three quarters of them are used.
    pub const fn slots_for(count: usize) -> usize {
        count + count / 3 + 4
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<(u32, u32)>()
    }

    fn home(&self, lpn: u32) -> usize {
        let hash = u64::from(lpn.wrapping_mul(0x9E37_79B1));
        ((hash * self.slots.len() as u64) >> 32) as usize
    }

    const fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// The slot of a page, or the empty one where it would be.
    fn find(&self, lpn: u32) -> usize {
        let mut slot = self.home(lpn);
        while self.slots[slot].0 != lpn && self.slots[slot].0 != EMPTY {
            slot = self.after(slot);
        }
        slot
    }

    /// Where a page is; `None` if it has not changed.
    pub fn get(&self, lpn: Lpn) -> Option<u32> {
        let (found, place) = self.slots[self.find(lpn.0)];
        (found == lpn.0).then_some(place)
    }

    pub fn insert(&mut self, lpn: Lpn, place: u32) {
        let slot = self.find(lpn.0);
        if self.slots[slot].0 == lpn.0 {
            self.slots[slot].1 = place;
            return;
        }
        if (self.len + 1) * 8 > self.slots.len() * 7 {
            self.grow();
            return self.insert(lpn, place);
        }
        self.slots[slot] = (lpn.0, place);
        self.len += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::new(self.len * 2 + 8);
        self.iter().for_each(|(lpn, place)| larger.insert(lpn, place));
        *self = larger;
    }

    pub fn remove(&mut self, lpn: Lpn) {
        let mut hole = self.find(lpn.0);
        if self.slots[hole].0 != lpn.0 {
            return;
        }
        self.len -= 1;
        let count = self.slots.len();
        let mut next = self.after(hole);
        while self.slots[next].0 != EMPTY {
            // What lies behind the hole moves into it unless its search begins behind the hole.
            let home = self.home(self.slots[next].0);
            if (next + count - home) % count >= (next + count - hole) % count {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.slots[hole].0 = EMPTY;
    }

    pub fn iter(&self) -> impl Iterator<Item = (Lpn, u32)> + '_ {
        self.slots.iter().filter(|(lpn, _)| *lpn != EMPTY).map(|(lpn, place)| (Lpn(*lpn), *place))
    }

    /// The changes of a range of pages, by whichever is shorter: looking at all changes, or for each of the pages.
    pub fn of(&self, pages: Range<u32>) -> impl Iterator<Item = (Lpn, u32)> + '_ {
        let walks = self.slots.len() <= 2 * pages.len();
        let walked = if walks { &self.slots[..] } else { &[] };
        let looked_up = if walks { 0..0 } else { pages.clone() };
        let walked = walked.iter().filter(move |(lpn, _)| pages.contains(lpn)).map(|(lpn, place)| (Lpn(*lpn), *place));
        walked.chain(looked_up.filter_map(|lpn| self.get(Lpn(lpn)).map(|place| (Lpn(lpn), place))))
    }

    /// A page that has changed, another one each time until all were named.
    pub fn next(&mut self) -> Option<Lpn> {
        if self.len == 0 {
            return None;
        }
        loop {
            self.hand = self.after(self.hand);
            let lpn = self.slots[self.hand].0;
            if lpn != EMPTY {
                return Some(Lpn(lpn));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeMap, BTreeSet};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_of_changes_is_a_map(
            steps in proptest::collection::vec((0u32..60, proptest::option::of(0u32..9)), 1..300),
            room in 0usize..20,
        ) {
            let (mut changes, mut oracle) = (Changes::new(room), BTreeMap::new());
            for (lpn, place) in steps {
                // Numbers far apart, and some that share their homes.
                let lpn = Lpn(lpn * 0x0400_0001 % 4_000_000_007);
                match place {
                    Some(place) => {
                        changes.insert(lpn, place);
                        oracle.insert(lpn.0, place);
                    }
                    None => {
                        changes.remove(lpn);
                        oracle.remove(&lpn.0);
                    }
                }
                prop_assert_eq!(changes.len(), oracle.len());
                prop_assert_eq!(changes.get(lpn), oracle.get(&lpn.0).copied());
            }
            let listed: BTreeMap<_, _> = changes.iter().map(|(lpn, place)| (lpn.0, place)).collect();
            prop_assert_eq!(&listed, &oracle);
            let named: BTreeSet<_> = (0..changes.len()).filter_map(|_| changes.next()).map(|lpn| lpn.0).collect();
            for pages in [0..50, 5..60, 0..4_000_000_000] {
                if pages.end < 1000 || changes.slots.len() < 1000 {
                    let found: BTreeMap<_, _> = changes.of(pages.clone()).map(|(lpn, place)| (lpn.0, place)).collect();
                    let expected = oracle.range(pages).map(|(lpn, place)| (*lpn, *place));
                    prop_assert_eq!(found, expected.collect::<BTreeMap<_, _>>());
                }
            }
            prop_assert_eq!(named, oracle.keys().copied().collect::<BTreeSet<_>>());
        }
    }
}

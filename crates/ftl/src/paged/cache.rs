//! The translation pages that are in memory, as they are on flash.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

#[derive(Debug)]
struct Cached {
    group: u32,
    entries: Box<[u32]>,
    /// It was used since the hand passed.
    is_recent: bool,
}

/// Translation pages by group; the one that is dropped was not used for a while (second chance).
#[derive(Debug)]
pub(crate) struct Cache {
    /// Entries of a page.
    entries: usize,
    /// Pages that are kept, unless more are pinned.
    capacity: usize,
    pages: Vec<Cached>,
    places: BTreeMap<u32, usize>,
    hand: usize,
}

impl Cache {
    pub fn new(capacity: usize, entries: usize) -> Self {
        Self { entries, capacity: capacity.max(1), pages: Vec::new(), places: BTreeMap::new(), hand: 0 }
    }

    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn memory_bytes(&self) -> usize {
        self.pages.len() * self.entries * 4 + self.pages.capacity() * size_of::<Cached>()
    }

    pub fn get(&self, group: u32) -> Option<&[u32]> {
        self.places.get(&group).map(|place| &*self.pages[*place].entries)
    }

    pub fn get_mut(&mut self, group: u32) -> Option<&mut [u32]> {
        self.places.get(&group).map(|place| &mut *self.pages[*place].entries)
    }

    /// Whether a page is there; it is used now.
    pub fn touch(&mut self, group: u32) -> bool {
        let place = self.places.get(&group);
        if let Some(place) = place {
            self.pages[*place].is_recent = true;
        }
        place.is_some()
    }

    /// Memory for another page: that of pages that are dropped, which no pinned one is, or new memory as long as there is
    /// room or nothing can be dropped.
    pub fn make_room(&mut self, is_pinned: impl Fn(u32) -> bool) -> Box<[u32]> {
        let mut room = None;
        while self.pages.len() >= self.capacity
            && let Some(place) = self.choose(&is_pinned)
        {
            room = Some(self.drop_page(place));
        }
        room.unwrap_or_else(|| vec![0; self.entries].into_boxed_slice())
    }

    /// Drops pages as long as there are more than there is room for, and some are not pinned.
    pub fn shrink(&mut self, is_pinned: impl Fn(u32) -> bool) {
        while self.pages.len() > self.capacity
            && let Some(place) = self.choose(&is_pinned)
        {
            self.drop_page(place);
        }
    }

    fn choose(&mut self, is_pinned: impl Fn(u32) -> bool) -> Option<usize> {
        // Twice round, because the first time all may have been used.
        for _ in 0..2 * self.pages.len() {
            self.hand = (self.hand + 1) % self.pages.len();
            let page = &mut self.pages[self.hand];
            if !core::mem::take(&mut page.is_recent) && !is_pinned(page.group) {
                return Some(self.hand);
            }
        }
        None
    }

    fn drop_page(&mut self, place: usize) -> Box<[u32]> {
        let dropped = self.pages.swap_remove(place);
        self.places.remove(&dropped.group);
        if let Some(moved) = self.pages.get(place) {
            self.places.insert(moved.group, place);
        }
        dropped.entries
    }

    /// Keeps a page, in memory that [`Cache::make_room`] gave.
    pub fn insert(&mut self, group: u32, entries: Box<[u32]>) {
        self.places.insert(group, self.pages.len());
        self.pages.push(Cached { group, entries, is_recent: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &mut Cache, group: u32, pinned: &[u32]) {
        let mut room = cache.make_room(|group| pinned.contains(&group));
        room.fill(group);
        cache.insert(group, room);
    }

    #[test]
    fn what_was_not_used_is_dropped_and_what_is_pinned_never() {
        let mut cache = Cache::new(2, 4);
        put(&mut cache, 1, &[]);
        put(&mut cache, 2, &[]);
        put(&mut cache, 3, &[1]);
        assert!(cache.touch(1) && !cache.touch(2) && cache.touch(3));
        assert_eq!(cache.get(3), Some(&[3; 4][..]));
        put(&mut cache, 4, &[1, 3]);
        assert!((1..=4).filter(|group| cache.touch(*group)).eq([1, 3, 4]), "nothing could be dropped");
        put(&mut cache, 5, &[5]);
        assert_eq!((1..=5).filter(|group| cache.touch(*group)).count(), 2, "there is no more than its capacity again");
        assert_eq!(cache.get(5), Some(&[5; 4][..]));
        put(&mut cache, 6, &[4, 5]);
        put(&mut cache, 7, &[4, 5, 6, 7]);
        cache.shrink(|group| group == 7);
        assert!(cache.touch(7) && cache.pages.len() == 2, "{:?}", cache.pages);
    }
}

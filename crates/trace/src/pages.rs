//! A number for each page of a trace.

use crate::hash::FastMap;

/// Pages side by side that are found together: their numbers fill a cache line.
const GROUP_PAGES: usize = 16;
/// Groups that are made at once.
const SLAB_GROUPS: usize = 1 << 12;
/// Bytes of an entry of the directory, with what a hash table leaves free.
const ENTRY_BYTES: u64 = 29;

type Group = [u32; GROUP_PAGES];

/// A table of numbers, one for each page of each device, that are 0 until they are set. It takes from 6 to 10 bytes a page, where
/// neighbours are used too, and up to some 150 where none are, and no more than half of the machine's memory.
#[derive(Debug)]
pub struct PageTable {
    /// The group of the pages of a device from a number on.
    directory: FastMap<(u32, u64), u32>,
    slabs: Vec<Box<[Group]>>,
    /// The group that was used last. Requests reach over several pages.
    last: Option<((u32, u64), u32)>,
    max_bytes: u64,
}

impl Default for PageTable {
    fn default() -> Self {
        let max_bytes = margay_host::memory_bytes().unwrap_or(8 << 30) / 2;
        Self { directory: FastMap::default(), slabs: Vec::new(), last: None, max_bytes }
    }
}

impl PageTable {
    /// The number of a page, if the page or a neighbour was used before; 0 otherwise.
    #[inline]
    pub fn get(&mut self, device: u32, page: u64) -> u32 {
        self.find((device, page / GROUP_PAGES as u64)).map_or(0, |group| *self.at(group, page))
    }

    /// The number of a page, to be set; `None` if there is no memory for it.
    #[inline]
    pub fn entry(&mut self, device: u32, page: u64) -> Option<&mut u32> {
        let key = (device, page / GROUP_PAGES as u64);
        let group = match self.find(key) {
            Some(group) => group,
            None => self.add(key)?,
        };
        Some(self.at(group, page))
    }

    /// All numbers that are not 0, in no meaningful order.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        self.slabs.iter().flatten().flatten().copied().filter(|value| *value != 0)
    }

    #[inline]
    fn find(&mut self, key: (u32, u64)) -> Option<u32> {
        if let Some((last, group)) = self.last
            && last == key
        {
            return Some(group);
        }
        let group = *self.directory.get(&key)?;
        self.last = Some((key, group));
        Some(group)
    }

    #[inline]
    fn at(&mut self, group: u32, page: u64) -> &mut u32 {
        let group = group as usize;
        &mut self.slabs[group / SLAB_GROUPS][group % SLAB_GROUPS][page as usize % GROUP_PAGES]
    }

    #[cold]
    fn add(&mut self, key: (u32, u64)) -> Option<u32> {
        let group = u32::try_from(self.directory.len()).ok()?;
        let is_full = self.directory.len() == self.directory.capacity();
        if is_full || group as usize / SLAB_GROUPS == self.slabs.len() {
            // While a full directory grows, it is there twice, once in double size.
            let directory = self.directory.capacity() as u64 * ENTRY_BYTES * if is_full { 3 } else { 1 };
            let slabs = (self.slabs.len() as u64 + 1) * (SLAB_GROUPS * size_of::<Group>()) as u64;
            if directory + slabs > self.max_bytes {
                return None;
            }
        }
        if group as usize / SLAB_GROUPS == self.slabs.len() {
            let mut slab = Vec::new();
            slab.try_reserve_exact(SLAB_GROUPS).ok()?;
            slab.resize(SLAB_GROUPS, [0; GROUP_PAGES]);
            self.slabs.push(slab.into());
        }
        self.directory.try_reserve(1).ok()?;
        self.directory.insert(key, group);
        self.last = Some((key, group));
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn numbers_are_those_that_were_set_last() {
        let (mut table, mut model) = (PageTable::default(), HashMap::new());
        let mut state = 3u64;
        for step in 1..200_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few devices; near pages, far pages, and the last there are.
            let device = (state >> 62) as u32;
            let page = [state >> 50, state >> 20, u64::MAX - (state >> 52)][step as usize % 3];
            assert_eq!(table.get(device, page), model.get(&(device, page)).copied().unwrap_or(0));
            *table.entry(device, page).unwrap() = step;
            model.insert((device, page), step);
        }
        let mut values: Vec<u32> = model.into_values().collect();
        let mut found: Vec<u32> = table.values().collect();
        values.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, values);
    }

    #[test]
    fn pages_without_neighbours_are_refused_before_they_take_more_than_the_bound() {
        let mut table = PageTable { max_bytes: 64 << 20, ..PageTable::default() };
        let pages = (0..).take_while(|page| table.entry(0, page << 20).is_some()).count() as u64;
        // As many as fit, and not so many that their groups alone are more.
        assert!((200_000..(64 << 20) / size_of::<Group>() as u64).contains(&pages), "{pages}");
        assert!(table.entry(0, 5).is_some(), "a neighbour of what is there has room");
        let mut dense = PageTable { max_bytes: 64 << 20, ..PageTable::default() };
        let pages = (0..).take_while(|page| dense.entry(0, *page).is_some()).count() as u64;
        assert!(pages > (64 << 20) / 10, "{pages}");
    }
}

//! A map of which only a part is in memory. Where a page is say, in this order: the changes, which are in memory; its
//! translation page, as it is in the cache or on flash.

use super::cache::Cache;
use super::changes::Changes;
use crate::map::UNMAPPED;
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use margay_flash::{Lpn, Ppn};
use margay_format::{OwnPages, decode_translation, encode_translation, translation_entry};
use margay_log::{Client, LogError, OwnReader};

/// Groups with trims that are not on flash, at the most.
const MAX_DUE: usize = 8;
/// Of so many groups with changes the one with most of them is written.
const LOOKED_AT: usize = 4;

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Translation pages in the cache.
    pub cached_pages: usize,
    /// Changes, beyond which translation pages are written.
    pub max_changes: usize,
    /// Changes that one write may add.
    pub slack: usize,
}

impl Sizes {
    /// The least memory that a map can have: the places of its own pages, two translation pages and one more to write, and a
    /// change for each of them.
    pub fn min_bytes(own: OwnPages) -> u64 {
        let groups = u64::from(own.groups());
        groups * 4 + 3 * u64::from(own.pages_of_a_group()) * 4 + Changes::slots_for(groups.max(8) as usize) as u64 * 8
    }

    /// Half of what the places of its own pages leave is for translation pages, half for changes.
    pub fn new(own: OwnPages, memory_bytes: u64, slack: usize) -> Self {
        let spare = memory_bytes.saturating_sub(Self::min_bytes(own)) as usize;
        let page_bytes = own.pages_of_a_group() as usize * 4;
        let groups = own.groups() as usize;
        // Of more translation pages than there are nothing is gained.
        let more_pages = (spare / 2 / page_bytes).min(groups.saturating_sub(2));
        let more_changes = (spare - more_pages * page_bytes) / 8 * 3 / 4;
        Self { cached_pages: 2 + more_pages, max_changes: groups.max(8) + more_changes, slack }
    }
}

#[derive(Debug)]
pub(crate) struct PagedMap {
    pub own: OwnPages,
    /// Places of the disk's own pages: of the superblock's copy, the list of retired segments and the translation pages.
    pub places: Vec<u32>,
    pub cache: Cache,
    pub changes: Changes,
    pub max_changes: usize,
    /// Groups that have to be on flash before the next segment is erased, because pages of them were trimmed. They are in
    /// the cache.
    due: Vec<u32>,
    /// The group that is being written. It is in the cache.
    pub writing: Option<u32>,
    /// What was encoded last.
    staged: Box<[u32]>,
    /// A group whose translation page could not be read while the log asked for it.
    pub unreadable: Option<u32>,
    /// Translation pages that were read for the log.
    pub reads: u64,
}

impl PagedMap {
    pub fn new(own: OwnPages, sizes: Sizes) -> Self {
        let entries = own.pages_of_a_group() as usize;
        Self {
            own,
            places: vec![UNMAPPED; (own.owners() - own.exported()) as usize],
            cache: Cache::new(sizes.cached_pages, entries),
            changes: Changes::new(sizes.max_changes + sizes.slack),
            max_changes: sizes.max_changes,
            due: Vec::new(),
            writing: None,
            staged: vec![UNMAPPED; entries].into_boxed_slice(),
            unreadable: None,
            reads: 0,
        }
    }

    pub fn memory_bytes(&self) -> usize {
        (self.places.capacity() + self.staged.len()) * 4 + self.cache.memory_bytes() + self.changes.memory_bytes()
    }

    /// Whether [`Client::locate`] knows where an exported page is.
    pub fn knows(&self, lpn: Lpn) -> bool {
        self.changes.get(lpn).is_some() || self.cache.get(self.own.group_of(lpn)).is_some()
    }

    fn entry(&self, lpn: Lpn) -> usize {
        (lpn.0 % self.own.pages_of_a_group()) as usize
    }

    /// The place of an exported page, `UNMAPPED` if it has none or if that is not known.
    pub fn place(&self, lpn: Lpn) -> u32 {
        self.changes.get(lpn).unwrap_or_else(|| {
            self.cache.get(self.own.group_of(lpn)).map_or(UNMAPPED, |entries| entries[self.entry(lpn)])
        })
    }

    /// Memory for a translation page.
    pub fn make_room(&mut self) -> Box<[u32]> {
        let (due, writing) = (&self.due, self.writing);
        self.cache.make_room(|group| due.contains(&group) || writing == Some(group))
    }

    /// Drops translation pages beyond those that there is room for: more had to be kept for a while.
    pub fn shrink(&mut self) {
        let (due, writing) = (&self.due, self.writing);
        self.cache.shrink(|group| due.contains(&group) || writing == Some(group));
    }

    /// The group, which is in the cache, has to be on flash before the next segment is erased.
    pub fn make_due(&mut self, group: u32) {
        if !self.due.contains(&group) {
            self.due.push(group);
        }
    }

    /// Reads the translation page of a group that is not in the cache; `None` if there is none.
    fn read_group<'a>(&mut self, group: u32, reader: &'a mut dyn OwnReader<Lpn>) -> Result<Option<&'a [u8]>, LogError> {
        let owner = self.own.trims(group);
        let Some(ppn) = self.locate(owner) else { return Ok(None) };
        self.reads += 1;
        match reader.read(ppn, owner) {
            Ok(page) if decode_translation(group, page).is_some() => Ok(Some(page)),
            Err(error) if !error.is_unreadable() => Err(error.into()),
            // It is made again before the log goes on.
            Ok(_) | Err(_) => {
                self.unreadable = Some(group);
                Err(LogError::OwnerUnknown { ppn })
            }
        }
    }

    /// Whether what is due has to be written before another group can be.
    pub fn must_write_before(&self, group: u32) -> bool {
        !self.due.contains(&group) && self.due.len() >= MAX_DUE.min(self.cache.capacity() / 2)
    }

    /// The group that is to be written to have fewer changes: of the next few the one that has most.
    pub fn next_group(&mut self) -> Option<u32> {
        let mut best: Option<(usize, u32)> = None;
        for _ in 0..LOOKED_AT {
            let group = self.own.group_of(self.changes.next()?);
            if best.is_none_or(|(_, best)| best != group) {
                let count = self.changes.of(self.own.pages_of(group)).count();
                best = best.max(Some((count, group)));
            }
        }
        best.map(|(_, group)| group)
    }

    /// Fills `page` with the translation page of a group as it is now.
    fn encode(&mut self, group: u32, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        let cached = self.cache.get(group);
        debug_assert!(cached.is_some(), "translation page {group} is to be written and is not in memory");
        self.staged.copy_from_slice(cached?);
        let pages = self.own.pages_of(group);
        for (lpn, place) in self.changes.of(pages.clone()) {
            self.staged[(lpn.0 - pages.start) as usize] = place;
        }
        encode_translation(group, seq, self.staged.iter().copied(), page);
        Some(self.own.trims(group))
    }
}

impl Client<Lpn> for PagedMap {
    fn relocated(&mut self, owner: Lpn, to: Ppn) {
        match owner.0.checked_sub(self.own.exported()) {
            Some(own) => self.places[own as usize] = to.0,
            None => self.changes.insert(owner, to.0),
        }
    }

    fn locate(&self, owner: Lpn) -> Option<Ppn> {
        let place = match owner.0.checked_sub(self.own.exported()) {
            Some(own) => self.places[own as usize],
            None => self.place(owner),
        };
        (place != UNMAPPED).then_some(Ppn(place))
    }

    /// Sorts them, so that each translation page is read once, and not through the cache: the cleaner comes by with every victim,
    /// and would drop what the host needs.
    fn keep_current(&mut self, pages: &mut Vec<(Lpn, Ppn)>, reader: &mut dyn OwnReader<Lpn>) -> Result<(), LogError> {
        pages.sort_unstable();
        let (mut at, mut kept) = (0, 0);
        while let Some((first, _)) = pages.get(at).copied() {
            if first.0 >= self.own.exported() {
                // Tags of pages that are not on any disk of this size are those of no owner.
                let own = (first.0 - self.own.exported()) as usize;
                if self.places.get(own) == Some(&pages[at].1.0) {
                    pages[kept] = pages[at];
                    kept += 1;
                }
                at += 1;
                continue;
            }
            let group = self.own.group_of(first);
            let end = at + pages[at..].partition_point(|(lpn, _)| *lpn < Lpn(self.own.pages_of(group).end));
            let is_known = |(lpn, _): &(Lpn, Ppn)| self.changes.get(*lpn).is_some();
            let page = match self.cache.get(group).is_some() || pages[at..end].iter().all(is_known) {
                true => None,
                false => self.read_group(group, reader)?,
            };
            while at < end {
                let (lpn, ppn) = pages[at];
                let place = self.changes.get(lpn).unwrap_or_else(|| match (self.cache.get(group), page) {
                    (Some(entries), _) => entries[self.entry(lpn)],
                    (None, Some(page)) => translation_entry(page, self.entry(lpn) as u32).unwrap_or(UNMAPPED),
                    (None, None) => UNMAPPED,
                });
                if place == ppn.0 {
                    pages[kept] = (lpn, ppn);
                    kept += 1;
                }
                at += 1;
            }
        }
        pages.truncate(kept);
        Ok(())
    }

    fn pending(&mut self, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        let group = *self.due.last()?;
        self.encode(group, seq, page)
    }

    fn own_page(&mut self, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        let group = self.writing?;
        self.encode(group, seq, page)
    }

    fn pending_written(&mut self, owner: Lpn) {
        let group = owner.0 - self.own.trims(0).0;
        let pages = self.own.pages_of(group);
        // What was moved while room was made for the page is in the changes still.
        let is_written = |(lpn, place): &(Lpn, u32)| self.staged[(lpn.0 - pages.start) as usize] == *place;
        let written: Vec<_> = self.changes.of(pages.clone()).filter(is_written).collect();
        written.into_iter().for_each(|(lpn, _)| self.changes.remove(lpn));
        if let Some(cached) = self.cache.get_mut(group) {
            cached.copy_from_slice(&self.staged);
        }
        self.due.retain(|due| *due != group);
        self.writing = self.writing.filter(|writing| *writing != group);
    }

    fn retired_list(&self) -> Option<Lpn> {
        Some(self.own.retired())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_format::{ClientKind, Superblock, decode_translation};

    /// The map of 100 pages, 10 to a translation page, of which two and eight changes are in memory.
    fn map() -> PagedMap {
        let geometry = margay_flash::Geometry::new(32, 8, 512).unwrap();
        let own = OwnPages::of(&Superblock { map_entries: 10, ..Superblock::new(geometry, ClientKind::Disk, 100) });
        assert_eq!(own.groups(), 10);
        PagedMap::new(own, Sizes { cached_pages: 2, max_changes: 8, slack: 8 })
    }

    fn cache_blank(map: &mut PagedMap, group: u32) {
        let mut entries = map.make_room();
        entries.fill(UNMAPPED);
        map.cache.insert(group, entries);
    }

    #[test]
    fn a_page_that_is_moved_while_its_translation_page_is_written_stays_a_change() {
        let mut map = map();
        cache_blank(&mut map, 1);
        for (lpn, place) in [(10, 50), (11, 51), (19, 52), (20, 53)] {
            map.relocated(Lpn(lpn), Ppn(place));
        }
        map.writing = Some(1);
        let mut page = [0; 512];
        let owner = map.own_page(7, &mut page).unwrap();
        assert_eq!(owner, map.own.trims(1));
        // Room is made for it.
        map.relocated(Lpn(11), Ppn(60));
        map.relocated(Lpn(12), Ppn(61));
        map.relocated(owner, Ppn(62));
        map.pending_written(owner);
        let (seq, entries) = decode_translation(1, &page).unwrap();
        let entries: Vec<_> = entries.take(10).collect();
        assert_eq!((seq, entries[0], entries[1], entries[2], entries[9]), (7, 50, 51, UNMAPPED, 52));
        let places: Vec<_> = [10, 11, 12, 13, 19, 20].map(|lpn| map.locate(Lpn(lpn)).map(|ppn| ppn.0)).into();
        assert_eq!(places, [Some(50), Some(60), Some(61), None, Some(52), Some(53)]);
        assert_eq!((map.changes.len(), map.writing, map.locate(owner)), (3, None, Some(Ppn(62))));
    }

    #[test]
    fn what_is_due_is_pending_until_it_is_written_and_is_not_dropped() {
        let mut map = map();
        let mut page = [0; 512];
        assert_eq!(map.pending(1, &mut page), None);
        cache_blank(&mut map, 3);
        map.make_due(3);
        map.make_due(3);
        assert!(!map.must_write_before(3) && map.must_write_before(4));
        for group in [5, 6, 7] {
            cache_blank(&mut map, group);
        }
        assert!(map.cache.get(3).is_some() && map.cache.get(5).is_none());
        assert_eq!(map.own_page(1, &mut page), None, "it is no page that is written for want of room");
        assert_eq!(map.pending(1, &mut page), Some(map.own.trims(3)));
        map.pending_written(map.own.trims(3));
        assert_eq!(map.pending(1, &mut page), None);
    }

    #[test]
    fn the_group_with_most_changes_is_written_first() {
        let mut map = map();
        for lpn in [1, 41, 42, 43, 44, 45, 46, 47, 99] {
            map.relocated(Lpn(lpn), Ppn(lpn));
        }
        let groups: Vec<_> = (0..9).filter_map(|_| map.next_group()).collect();
        assert!(groups.iter().filter(|group| **group == 4).count() >= 6, "{groups:?}");
    }
}

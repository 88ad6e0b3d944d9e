use crate::holes::{HoleMap, Holes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use margay_flash::Ppn;
use margay_format::{HolePage, MAX_DATA_CHUNKS};

const UNMAPPED: u32 = u32::MAX;
const GROUP: u32 = 256;

/// The map from the chunks of a file to pages: groups of 256 entries, which exist only where a chunk was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    groups: Vec<(u32, Vec<u32>)>,
    mapped: u32,
    /// Of a file with holes.
    holes: Option<Box<Holes>>,
}

/// A page of holes that a mount found.
#[derive(Debug)]
pub(crate) struct FoundMap {
    pub group: u32,
    pub at: Ppn,
    pub bits: Box<[u8]>,
    /// Whether it is older than the header, which then lists what has become a hole since.
    pub is_older: bool,
}

impl Chunks {
    fn find(&self, group: u32) -> Result<usize, usize> {
        self.groups.binary_search_by_key(&group, |(group, _)| *group)
    }

    pub fn get(&self, chunk: u32) -> Option<Ppn> {
        let at = self.find(chunk / GROUP).ok()?;
        self.groups[at].1.get((chunk % GROUP) as usize).copied().filter(|page| *page != UNMAPPED).map(Ppn)
    }

    pub fn set(&mut self, chunk: u32, ppn: Ppn) {
        let at = self.find(chunk / GROUP).unwrap_or_else(|at| {
            self.groups.insert(at, (chunk / GROUP, Vec::new()));
            at
        });
        let (slots, slot) = (&mut self.groups[at].1, (chunk % GROUP) as usize);
        if slots.len() <= slot {
            slots.resize(slot + 1, UNMAPPED);
        }
        if slots[slot] == UNMAPPED {
            self.mapped += 1;
            if let Some(holes) = &mut self.holes {
                holes.fill(chunk);
            }
        }
        slots[slot] = ppn.0;
    }

    /// Mapped chunks with their pages, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Ppn)> + '_ {
        self.groups.iter().flat_map(|(group, slots)| {
            let mapped = (group * GROUP..).zip(slots).filter(|(_, page)| **page != UNMAPPED);
            mapped.map(|(chunk, page)| (chunk, Ppn(*page)))
        })
    }

    /// Unmaps the chunks from `first` on, behind which the file ends from now on, and returns their pages, those that say
    /// what are holes included.
    pub fn truncate(&mut self, first: u32) -> Vec<Ppn> {
        let mut gone = Vec::new();
        while let Some((group, slots)) = self.groups.last_mut() {
            let keep = first.saturating_sub(*group * GROUP).min(slots.len() as u32) as usize;
            gone.extend(slots.drain(keep..).filter(|page| *page != UNMAPPED).map(Ppn));
            if keep > 0 {
                break;
            }
            self.groups.pop();
        }
        self.mapped -= gone.len() as u32;
        if let Some(holes) = &mut self.holes {
            gone.extend(holes.truncate(first));
        }
        self.forget_no_holes();
        gone
    }

    /// Unmaps the chunks of a range before the end of the file and returns their pages.
    pub fn punch(&mut self, first: u32, end: u32, page_bytes: u32) -> Vec<Ppn> {
        let mut gone = Vec::new();
        let from = self.groups.partition_point(|(group, _)| (*group + 1) * GROUP <= first);
        for (group, slots) in self.groups[from..].iter_mut().take_while(|(group, _)| *group * GROUP < end) {
            let start = *group * GROUP;
            let last = (end - start).min(slots.len() as u32) as usize;
            let within = slots.get_mut(first.saturating_sub(start) as usize..last).unwrap_or_default();
            gone.extend(within.iter().filter(|page| **page != UNMAPPED).map(|page| Ppn(*page)));
            within.fill(UNMAPPED);
        }
        let mut at = from;
        while self.groups.get(at).is_some_and(|(group, _)| *group * GROUP < end) {
            if self.groups[at].1.iter().all(|page| *page == UNMAPPED) {
                self.groups.remove(at);
            } else {
                at += 1;
            }
        }
        self.mapped -= gone.len() as u32;
        self.holes_mut(page_bytes).add(first, end);
        gone
    }

    /// The file has become longer: of the chunks of a range those are holes that are not mapped.
    pub fn grow(&mut self, mut first: u32, end: u32, page_bytes: u32) {
        while first < end {
            let hole = self.next_hole(first).min(end);
            first = self.next_data(hole).unwrap_or(end).min(end);
            if hole < first {
                self.holes_mut(page_bytes).add(hole, first);
            }
        }
        self.forget_no_holes();
    }

    fn holes_mut(&mut self, page_bytes: u32) -> &mut Holes {
        self.holes.get_or_insert_with(|| Box::new(Holes::new(HolePage::chunks(page_bytes))))
    }

    fn forget_no_holes(&mut self) {
        self.holes.take_if(|holes| holes.is_empty());
    }

    /// The first chunk from `chunk` on that is mapped.
    pub fn next_data(&self, chunk: u32) -> Option<u32> {
        let from = self.groups.partition_point(|(group, _)| (*group + 1) * GROUP <= chunk);
        self.groups[from..].iter().find_map(|(group, slots)| {
            let start = chunk.saturating_sub(group * GROUP);
            let mapped = (start..slots.len() as u32).find(|slot| slots[*slot as usize] != UNMAPPED);
            mapped.map(|slot| group * GROUP + slot)
        })
    }

    /// The first chunk from `chunk` on that is not mapped.
    pub fn next_hole(&self, mut chunk: u32) -> u32 {
        while let Ok(at) = self.find(chunk / GROUP) {
            let slots = &self.groups[at].1;
            let start = chunk % GROUP;
            match slots.iter().skip(start as usize).position(|page| *page == UNMAPPED) {
                Some(more) => return chunk + more as u32,
                None if slots.len() < GROUP as usize => return chunk.max(chunk - start + slots.len() as u32),
                None => chunk += GROUP - start,
            }
        }
        chunk
    }

    /// Number of mapped chunks.
    pub fn count(&self) -> u32 {
        self.mapped
    }

    /// What a header has to list: the ranges of unmapped chunks among the first `len`, each with its end (exclusive), and
    /// the groups with pages of holes, by the numbers of their chunks.
    pub fn holes(&self, len: u32) -> Vec<(u32, u32)> {
        let Some(holes) = &self.holes else { return Vec::new() };
        let groups = holes.groups().map(|(first, end)| (MAX_DATA_CHUNKS + first, MAX_DATA_CHUNKS + end));
        holes.ranges(len).chain(groups).collect()
    }

    /// How many these are up to the end of the file.
    pub fn hole_count(&self) -> usize {
        self.holes.as_ref().map_or(0, |holes| holes.count())
    }

    /// The group of chunks that is to be described by a page of holes, so that a header has to list fewer.
    pub fn crowded_group(&self) -> Option<u32> {
        self.holes.as_ref()?.crowded_group()
    }

    /// Bits of a group's page of holes: all chunks that are not mapped, also behind the end of the file.
    pub fn hole_bits(&self, group: u32, page_bytes: u32) -> Box<[u8]> {
        let count = HolePage::chunks(page_bytes);
        let mut bits = alloc::vec![0xFF; count as usize / 8].into_boxed_slice();
        let mut next = group * count;
        while let Some(chunk) = self.next_data(next).filter(|chunk| *chunk < (group + 1) * count) {
            let at = chunk - group * count;
            bits[at as usize / 8] &= !(1 << (at % 8));
            next = chunk + 1;
        }
        bits
    }

    /// Pages of holes with their groups.
    pub fn maps(&self) -> impl Iterator<Item = (u32, &HoleMap)> + '_ {
        self.holes.iter().flat_map(|holes| holes.maps())
    }

    /// Where a group's page of holes is.
    pub fn map_at(&self, group: u32) -> Option<Ppn> {
        Some(self.holes.as_ref()?.map(group)?.at)
    }

    /// A group's page of holes lives at `at` from now on.
    pub fn move_map(&mut self, group: u32, at: Ppn, page_bytes: u32) {
        let holes = self.holes_mut(page_bytes);
        match holes.map_mut(group) {
            Some(map) => map.at = at,
            // What it covers is said once it is known to be on flash.
            None => holes.enter(group, HoleMap::new(at, Box::default())),
        }
    }

    /// A page of holes with these bits is on flash.
    pub fn mapped(&mut self, group: u32, bits: Box<[u8]>) {
        if let Some(holes) = &mut self.holes {
            holes.mapped(group, bits);
        }
    }

    /// Whether a file of `len` chunks has pages of holes and no hole any more.
    pub fn has_useless_maps(&self, len: u32) -> bool {
        self.mapped >= len && self.maps().next().is_some()
    }

    /// Forgets all pages of holes, and returns them.
    pub fn take_maps(&mut self) -> Vec<Ppn> {
        let gone = self.maps().map(|(_, map)| map.at).collect();
        self.holes = None;
        gone
    }

    /// What a mount found of a file with `len` chunks: its pages of holes, and the holes that its header lists.
    pub fn settle(&mut self, len: u32, page_bytes: u32, listed: &[(u32, u32)], maps: Vec<FoundMap>) {
        let mut runs = Vec::new();
        let mut next = 0;
        while next < len {
            let hole = self.next_hole(next).min(len);
            next = self.next_data(hole).unwrap_or(len).min(len);
            if hole < next {
                runs.push((hole, next));
            }
        }
        if runs.is_empty() && maps.is_empty() {
            return;
        }
        let count = HolePage::chunks(page_bytes);
        let covered = maps.into_iter().map(|FoundMap { group, at, bits, is_older }| {
            let (start, mut map) = (group * count, HoleMap::new(at, bits));
            // Behind the end there may be pages that were programmed since, and cut off.
            let behind = len.saturating_sub(start).min(count)..count;
            behind.for_each(|at| map.uncover(at));
            let mut next = start;
            while let Some(chunk) = self.next_data(next).filter(|chunk| *chunk < start + count) {
                map.uncover(chunk - start);
                next = chunk + 1;
            }
            for (first, end) in listed.iter().filter(|_| is_older) {
                let within = (*first).max(start)..(*end).min(start + count);
                within.for_each(|chunk| map.uncover(chunk - start));
            }
            (group, map)
        });
        self.holes = Some(Box::new(Holes::found(count, runs, covered.collect())));
    }

    pub fn memory_bytes(&self) -> usize {
        let slots: usize = self.groups.iter().map(|(_, slots)| slots.capacity() * 4).sum();
        let holes = self.holes.as_ref().map_or(0, |holes| holes.memory_bytes());
        holes + slots + self.groups.capacity() * size_of::<(u32, Vec<u32>)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunks_are_found_where_they_were_put_and_the_rest_are_holes() {
        let mut chunks = Chunks::default();
        for chunk in [0, 1, 300, 5000] {
            chunks.set(chunk, Ppn(chunk + 7));
        }
        chunks.grow(0, 5001, 512);
        assert_eq!(chunks.get(300), Some(Ppn(307)));
        assert_eq!((chunks.get(2), chunks.get(301), chunks.count()), (None, None, 4));
        assert_eq!(chunks.holes(400), [(2, 300), (301, 400)]);
        assert_eq!((chunks.next_data(2), chunks.next_data(5001)), (Some(300), None));
        assert_eq!((chunks.next_hole(0), chunks.next_hole(300), chunks.next_hole(5000)), (2, 301, 5001));
        assert_eq!(chunks.truncate(300), [Ppn(5007), Ppn(307)]);
        assert_eq!(chunks.iter().collect::<Vec<_>>(), [(0, Ppn(7)), (1, Ppn(8))]);
        assert_eq!(chunks.holes(300), [(2, 300)]);
        assert_eq!(chunks.truncate(0).len(), 2);
        chunks.grow(0, 3, 512);
        assert_eq!(chunks.holes(3), [(0, 3)]);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Set(u32),
        Grow(u32),
        Punch(u32, u32),
        Truncate(u32),
        Map(u32),
    }

    /// Pages that hold no more than 64 bits, so that there are many groups.
    const PAGE_BYTES: u32 = 24 + 8;

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..700u32).prop_map(Op::Set),
            2 => (0..700u32).prop_map(Op::Grow),
            2 => (0..700u32, 1..200u32).prop_map(|(first, len)| Op::Punch(first, len)),
            1 => (0..700u32).prop_map(Op::Truncate),
            1 => (0..11u32).prop_map(Op::Map),
        ]
    }

    proptest! {
        #[test]
        fn every_hole_is_in_a_range_or_covered_by_a_page_that_was_written_after_it(
            ops in prop::collection::vec(op(), 1..120)
        ) {
            let (mut chunks, mut len, mut next_page) = (Chunks::default(), 0u32, 1u32);
            let mut mapped = alloc::collections::BTreeSet::new();
            // What pages of holes on flash still say truly.
            let mut covered = alloc::collections::BTreeSet::new();
            for op in ops {
                match op {
                    Op::Set(chunk) => {
                        next_page += 1;
                        chunks.set(chunk, Ppn(next_page));
                        chunks.grow(len, chunk + 1, PAGE_BYTES);
                        len = len.max(chunk + 1);
                        mapped.insert(chunk);
                        covered.remove(&chunk);
                    }
                    Op::Grow(to) => {
                        chunks.grow(len, to, PAGE_BYTES);
                        len = len.max(to);
                    }
                    Op::Punch(first, count) => {
                        let (first, end) = (first.min(len), (first + count).min(len));
                        if first < end {
                            let gone = chunks.punch(first, end, PAGE_BYTES);
                            assert_eq!(gone.len(), mapped.range(first..end).count());
                            mapped.retain(|chunk| !(first..end).contains(chunk));
                        }
                    }
                    Op::Truncate(to) => {
                        if to < len {
                            chunks.truncate(to);
                            mapped.retain(|chunk| *chunk < to);
                            // Pages of groups behind the end are gone.
                            covered.retain(|chunk| chunk / 64 < to.div_ceil(64));
                            len = to;
                        }
                    }
                    Op::Map(group) => {
                        let bits = chunks.hole_bits(group, PAGE_BYTES);
                        chunks.move_map(group, Ppn(group), PAGE_BYTES);
                        chunks.mapped(group, bits);
                        covered.extend((group * 64..(group + 1) * 64).filter(|chunk| !mapped.contains(chunk)));
                    }
                }
                let ranges: Vec<_> = chunks.holes(len).into_iter().filter(|(first, _)| *first < len).collect();
                let is_listed = |chunk: u32| ranges.iter().any(|(first, end)| (*first..*end).contains(&chunk));
                for chunk in 0..len {
                    let is_hole = !mapped.contains(&chunk);
                    assert_eq!(chunks.get(chunk).is_none(), is_hole);
                    assert!(!is_listed(chunk) || is_hole, "{chunk} is listed and not a hole");
                    assert!(!is_hole || is_listed(chunk) || covered.contains(&chunk), "{chunk} is a hole that nothing says");
                }
                assert_eq!(ranges.len(), chunks.hole_count());
                assert_eq!(chunks.count() as usize, mapped.len());
            }
        }
    }
}

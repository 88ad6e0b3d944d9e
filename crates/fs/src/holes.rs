//! What a file does not have: ranges that its header lists, and pages of holes that say so for a group of chunks.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use margay_flash::Ppn;

/// A page of holes that is on flash.
#[derive(Clone, Debug)]
pub(crate) struct HoleMap {
    pub at: Ppn,
    /// Chunks of which nothing was programmed since the page says that they are holes.
    covered: Box<[u8]>,
}

/// Whether the bit of a chunk is set.
pub(crate) fn bit(bits: &[u8], at: u32) -> bool {
    bits.get(at as usize / 8).is_some_and(|byte| byte & 1 << (at % 8) != 0)
}

impl HoleMap {
    pub fn new(at: Ppn, covered: Box<[u8]>) -> Self {
        Self { at, covered }
    }

    pub fn covers(&self, at: u32) -> bool {
        bit(&self.covered, at)
    }

    /// Something was programmed for a chunk.
    pub fn uncover(&mut self, at: u32) {
        if self.covers(at) {
            self.covered[at as usize / 8] &= !(1 << (at % 8));
        }
    }
}

/// The holes of a file. Every chunk before its end that it does not have is in a range or covered by a page; chunks in a
/// range may be covered as well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    /// The first chunk of a range, and the one behind the last; they neither overlap nor touch.
    ranges: BTreeMap<u32, u32>,
    /// Pages of holes by group.
    maps: BTreeMap<u32, HoleMap>,
    /// Chunks of a group.
    group_chunks: u32,
}

impl Holes {
    pub fn new(group_chunks: u32) -> Self {
        Self { group_chunks, ..Self::default() }
    }

    /// Whether nothing has to be known of the file's holes.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.maps.is_empty()
    }

    /// The ranges before `len`.
    pub fn ranges(&self, len: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.range(..len).map(move |(first, end)| (*first, (*end).min(len)))
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    fn is_covered(&self, chunk: u32) -> bool {
        let map = self.maps.get(&(chunk / self.group_chunks));
        map.is_some_and(|map| map.covers(chunk % self.group_chunks))
    }

    /// Whether pages of holes say of all chunks of a range that they are holes.
    fn are_covered(&self, first: u32, end: u32) -> bool {
        !self.maps.is_empty() && (first..end).all(|chunk| self.is_covered(chunk))
    }

    /// The chunks of a range, none of which the file has, are holes from now on.
    pub fn add(&mut self, mut first: u32, mut end: u32) {
        if first >= end || self.are_covered(first, end) {
            return;
        }
        while let Some((other, other_end)) = self.ranges.range(..=end).next_back().map(|(a, b)| (*a, *b))
            && other_end >= first
        {
            self.ranges.remove(&other);
            (first, end) = (first.min(other), end.max(other_end));
        }
        self.ranges.insert(first, end);
    }

    /// Takes chunks out of the ranges.
    fn cut(&mut self, first: u32, end: u32) {
        while let Some((other, other_end)) = self.ranges.range(..end).next_back().map(|(a, b)| (*a, *b))
            && other_end > first
        {
            self.ranges.remove(&other);
            if other_end > end {
                self.ranges.insert(end, other_end);
            }
            if other < first {
                self.ranges.insert(other, first);
            }
        }
    }

    /// A chunk was programmed.
    pub fn fill(&mut self, chunk: u32) {
        if let Some(map) = self.maps.get_mut(&(chunk / self.group_chunks)) {
            map.uncover(chunk % self.group_chunks);
        }
        self.cut(chunk, chunk + 1);
    }

    /// The file ends before `len`; returns the pages of holes that are of no use any more.
    pub fn truncate(&mut self, len: u32) -> Vec<Ppn> {
        self.cut(len, u32::MAX);
        let gone = self.maps.split_off(&len.div_ceil(self.group_chunks));
        gone.into_values().map(|map| map.at).collect()
    }

    /// The first group with a page of holes and the one behind the last: of these a header says that they count.
    pub fn groups(&self) -> Option<(u32, u32)> {
        // One that is just being written is not said to be there.
        let mut groups = self.maps.iter().filter(|(_, map)| !map.covered.is_empty()).map(|(group, _)| *group);
        let first = groups.next()?;
        Some((first, groups.next_back().unwrap_or(first) + 1))
    }

    pub fn map(&self, group: u32) -> Option<&HoleMap> {
        self.maps.get(&group)
    }

    pub fn map_mut(&mut self, group: u32) -> Option<&mut HoleMap> {
        self.maps.get_mut(&group)
    }

    /// Pages of holes with their groups.
    pub fn maps(&self) -> impl Iterator<Item = (u32, &HoleMap)> + '_ {
        self.maps.iter().map(|(group, map)| (*group, map))
    }

    /// Enters a page of holes.
    pub fn enter(&mut self, group: u32, map: HoleMap) {
        self.maps.insert(group, map);
    }

    /// A page of holes with these bits is on flash: the ranges need not hold what it covers.
    pub fn mapped(&mut self, group: u32, bits: Box<[u8]>) {
        if let Some(map) = self.maps.get_mut(&group) {
            *map = HoleMap::new(map.at, bits);
        }
        let first = group * self.group_chunks;
        self.cut(first, first + self.group_chunks);
    }

    /// What a mount found: `runs` of chunks that the file does not have, of which those in no range and in no page are of
    /// unknown origin, and `maps` of what is covered.
    pub fn found(group_chunks: u32, runs: Vec<(u32, u32)>, maps: BTreeMap<u32, HoleMap>) -> Self {
        let mut holes = Self { ranges: BTreeMap::new(), maps, group_chunks };
        for (first, end) in runs {
            let uncovered = |chunk: &u32| !holes.is_covered(*chunk);
            if let Some(first) = (first..end).find(uncovered) {
                let last = (first..end).rev().find(uncovered).unwrap_or(first);
                holes.ranges.insert(first, last + 1);
            }
        }
        holes
    }

    /// The group whose page of holes makes the list of ranges shorter, or nearer to that.
    pub fn crowded_group(&self) -> Option<u32> {
        let group = |chunk: u32| chunk / self.group_chunks;
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        let inside = self.ranges.iter().filter(|(first, end)| group(**first) == group(**end - 1));
        inside.for_each(|(first, _)| *counts.entry(group(*first)).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(group, _)| group);
        most.or_else(|| self.ranges.iter().min_by_key(|(first, end)| **end - **first).map(|(first, _)| group(*first)))
    }

    pub fn memory_bytes(&self) -> usize {
        let maps: usize = self.maps.values().map(|map| map.covered.len() + size_of::<HoleMap>() + 8).sum();
        size_of::<Self>() + maps + self.ranges.len() * 12
    }
}

use alloc::vec::Vec;
use margay_flash::Ppn;

const UNMAPPED: u32 = u32::MAX;
const GROUP: u32 = 256;

/// The map from the chunks of a file to pages: groups of 256 entries, which exist only where a chunk was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    groups: Vec<(u32, Vec<u32>)>,
    mapped: u32,
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
        self.mapped += u32::from(slots[slot] == UNMAPPED);
        slots[slot] = ppn.0;
    }

    /// Mapped chunks with their pages, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Ppn)> + '_ {
        self.groups.iter().flat_map(|(group, slots)| {
            let mapped = (group * GROUP..).zip(slots).filter(|(_, page)| **page != UNMAPPED);
            mapped.map(|(chunk, page)| (chunk, Ppn(*page)))
        })
    }

    /// Unmaps the chunks from `first` on and returns their pages.
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
        gone
    }

    /// Number of mapped chunks.
    pub fn count(&self) -> u32 {
        self.mapped
    }

    /// The ranges of unmapped chunks among the first `len`, each with its end (exclusive).
    pub fn holes(&self, len: u32) -> Vec<(u32, u32)> {
        let mut holes = Vec::new();
        // The common case: no hole, and no chunk beyond the end.
        if self.mapped == len
            && self.groups.last().is_none_or(|(group, slots)| group * GROUP + slots.len() as u32 == len)
        {
            return holes;
        }
        let mut next = 0;
        for (chunk, _) in self.iter().take_while(|(chunk, _)| *chunk < len) {
            if chunk > next {
                holes.push((next, chunk));
            }
            next = chunk + 1;
        }
        if next < len {
            holes.push((next, len));
        }
        holes
    }

    pub fn memory_bytes(&self) -> usize {
        let slots: usize = self.groups.iter().map(|(_, slots)| slots.capacity() * 4).sum();
        slots + self.groups.capacity() * size_of::<(u32, Vec<u32>)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_where_they_were_put_and_the_rest_are_holes() {
        let mut chunks = Chunks::default();
        for chunk in [0, 1, 300, 5000] {
            chunks.set(chunk, Ppn(chunk + 7));
        }
        assert_eq!(chunks.get(300), Some(Ppn(307)));
        assert_eq!((chunks.get(2), chunks.get(301), chunks.count()), (None, None, 4));
        assert_eq!(chunks.holes(400), [(2, 300), (301, 400)]);
        assert_eq!(chunks.truncate(300), [Ppn(5007), Ppn(307)]);
        assert_eq!(chunks.iter().collect::<Vec<_>>(), [(0, Ppn(7)), (1, Ppn(8))]);
        assert_eq!(chunks.truncate(0).len(), 2);
        assert_eq!(chunks.holes(3), [(0, 3)]);
    }
}

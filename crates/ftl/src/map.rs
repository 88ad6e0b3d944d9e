use alloc::{vec, vec::Vec};
use margay_flash::{Lpn, Ppn, SegmentId};
use margay_log::Client;

pub(crate) const UNMAPPED: u32 = u32::MAX;
/// Bytes of a page of the trim map before its bits.
pub(crate) const TRIM_HEADER: usize = 16;
const TRIM_MAGIC: &[u8; 4] = b"TRIM";
const BAD_MAGIC: &[u8; 4] = b"BADS";

/// The pages that a disk keeps for itself behind the exported ones (FORMAT.md, "Owners").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnPages {
    exported: u32,
    /// Bits of a page of the trim map.
    group: u32,
}

impl OwnPages {
    /// Those of a disk of `exported` pages on pages of `page_bytes` bytes.
    pub const fn new(exported: u32, page_bytes: u32) -> Self {
        Self { exported, group: (page_bytes - TRIM_HEADER as u32) * 8 }
    }

    /// Number of pages of the trim map.
    pub const fn groups(&self) -> u32 {
        self.exported.div_ceil(self.group)
    }

    /// The copy of the superblock.
    pub const fn superblock(&self) -> Lpn {
        Lpn(self.exported)
    }

    /// The list of retired segments.
    pub const fn bad(&self) -> Lpn {
        Lpn(self.exported + 1)
    }

    /// A page of the trim map.
    pub const fn trims(&self, group: u32) -> Lpn {
        Lpn(self.exported + 2 + group)
    }

    /// Number of owners, exported pages included.
    pub const fn owners(&self) -> u32 {
        self.exported + 2 + self.groups()
    }

    /// The page of the trim map that knows a page.
    const fn group_of(&self, lpn: Lpn) -> u32 {
        lpn.0 / self.group
    }

    /// The pages that a page of the trim map knows.
    pub fn pages_of(&self, group: u32) -> core::ops::Range<u32> {
        group * self.group..self.exported.min((group + 1).saturating_mul(self.group))
    }
}

/// The map from logical to physical pages, and the pages of its own that are yet to be written.
#[derive(Debug)]
pub(crate) struct Map {
    pub pages: Vec<u32>,
    pub exported: u32,
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    pages: OwnPages,
    /// Pages of the trim map that differ from what is on flash.
    dirty: Vec<u32>,
    bad: Vec<SegmentId>,
    bad_dirty: bool,
}

impl Map {
    /// A map without pages of its own: nothing survives.
    pub fn volatile(exported: u32) -> Self {
        Self { pages: vec![UNMAPPED; exported as usize], exported, own: None }
    }

    /// A map whose trims and retired segments survive.
    pub fn durable(own: OwnPages, pages: Vec<u32>, bad: Vec<SegmentId>) -> Self {
        let exported = own.exported;
        Self { pages, exported, own: Some(Own { pages: own, dirty: Vec::new(), bad, bad_dirty: false }) }
    }

    pub fn bad(&self) -> &[SegmentId] {
        self.own.as_ref().map_or(&[], |own| &own.bad)
    }

    /// A page was unmapped; says how many pages of the trim map are to be written.
    pub fn trimmed(&mut self, lpn: Lpn) -> usize {
        let Some(own) = &mut self.own else { return 0 };
        let group = own.pages.group_of(lpn);
        if !own.dirty.contains(&group) {
            own.dirty.push(group);
        }
        own.dirty.len()
    }

    fn encode_trims(&self, own: &OwnPages, group: u32, seq: u64, page: &mut [u8]) {
        page.fill(0);
        page[..4].copy_from_slice(TRIM_MAGIC);
        page[4..8].copy_from_slice(&group.to_le_bytes());
        page[8..16].copy_from_slice(&seq.to_le_bytes());
        let bits = &mut page[TRIM_HEADER..];
        for (bit, lpn) in own.pages_of(group).enumerate() {
            bits[bit / 8] |= u8::from(self.pages[lpn as usize] == UNMAPPED) << (bit % 8);
        }
    }
}

/// Reads a page of the trim map: pages that were unmapped when `seq` was the last program.
pub(crate) fn decode_trims<'a>(
    own: &OwnPages,
    group: u32,
    page: &'a [u8],
) -> Option<(u64, impl Iterator<Item = Lpn> + use<'a>)> {
    if &page[..4] != TRIM_MAGIC || page[4..8] != group.to_le_bytes() {
        return None;
    }
    let mut seq = [0; 8];
    seq.copy_from_slice(&page[8..16]);
    let bits = &page[TRIM_HEADER..];
    let unmapped = own.pages_of(group).enumerate().filter(move |(bit, _)| bits[bit / 8] >> (bit % 8) & 1 == 1);
    Some((u64::from_le_bytes(seq), unmapped.map(|(_, lpn)| Lpn(lpn))))
}

/// Writes the list of retired segments; those that do not fit are found out anew.
fn encode_bad(bad: &[SegmentId], page: &mut [u8]) {
    page.fill(0);
    let fits = &bad[..bad.len().min((page.len() - 8) / 4)];
    page[..4].copy_from_slice(BAD_MAGIC);
    page[4..8].copy_from_slice(&(fits.len() as u32).to_le_bytes());
    for (slot, segment) in page[8..].chunks_exact_mut(4).zip(fits) {
        slot.copy_from_slice(&segment.0.to_le_bytes());
    }
}

/// Reads the list of retired segments of a device of `segments` segments.
pub(crate) fn decode_bad(page: &[u8], segments: u32) -> Option<Vec<SegmentId>> {
    let word =
        |at: usize| page.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    if &page[..4] != BAD_MAGIC {
        return None;
    }
    let count = word(4).filter(|count| *count <= segments)?;
    (0..count as usize).map(|i| word(8 + i * 4).filter(|id| *id < segments).map(SegmentId)).collect()
}

impl Client<Lpn> for Map {
    #[inline(always)]
    fn relocated(&mut self, owner: Lpn, to: Ppn) {
        self.pages[owner.index()] = to.0;
    }

    #[inline]
    fn locate(&self, owner: Lpn) -> Option<Ppn> {
        Some(self.pages[owner.index()]).filter(|page| *page != UNMAPPED).map(Ppn)
    }

    fn pending(&mut self, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        let own = self.own.as_mut()?;
        if core::mem::take(&mut own.bad_dirty) {
            encode_bad(&own.bad, page);
            return Some(own.pages.bad());
        }
        let group = own.dirty.pop()?;
        let pages = own.pages;
        self.encode_trims(&pages, group, seq, page);
        Some(pages.trims(group))
    }

    fn retired(&mut self, segment: SegmentId) {
        if let Some(own) = &mut self.own {
            own.bad.push(segment);
            own.bad_dirty = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_and_retired_segments_are_read_as_written() {
        let own = OwnPages::new(5000, 512);
        assert_eq!((own.groups(), own.owners()), (2, 5004));
        let mut map = Map::durable(own, vec![0; 5004], Vec::new());
        for lpn in [3, 3967, 3968, 4999] {
            map.pages[lpn as usize] = UNMAPPED;
            map.trimmed(Lpn(lpn));
        }
        map.retired(SegmentId(7));
        let mut page = [0; 512];
        assert_eq!(map.pending(9, &mut page), Some(own.bad()));
        assert_eq!(decode_bad(&page, 8), Some(vec![SegmentId(7)]));
        assert_eq!(decode_bad(&page, 7), None, "a segment past the end");
        assert_eq!(map.pending(10, &mut page), Some(own.trims(1)));
        let (seq, lpns) = decode_trims(&own, 1, &page).unwrap();
        assert_eq!((seq, lpns.collect::<Vec<_>>()), (10, vec![Lpn(3968), Lpn(4999)]));
        assert!(decode_trims(&own, 0, &page).is_none());
        assert_eq!(map.pending(11, &mut page), Some(own.trims(0)));
        let (_, lpns) = decode_trims(&own, 0, &page).unwrap();
        assert_eq!(lpns.collect::<Vec<_>>(), [Lpn(3), Lpn(3967)]);
        assert_eq!(map.pending(12, &mut page), None);
    }
}

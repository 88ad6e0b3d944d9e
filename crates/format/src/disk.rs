//! What a disk keeps on flash for itself: its own pages, the trim map, its checkpoint.

use crate::bytes::{PutBytes, Reader};
use crate::layout::Layout;
use crate::log_state::LogState;
use crate::superblock::Superblock;
use alloc::vec::Vec;
use margay_flash::{Lpn, Ppn};

/// Bytes of a page of the trim map before its bits.
const TRIM_HEADER_BYTES: usize = 16;
const TRIM_MAGIC: &[u8; 4] = b"TRIM";
const CHECKPOINT_MAGIC: [u8; 4] = *b"MGC2";
/// That of checkpoints that list every owner without a page.
const LONG_CHECKPOINT_MAGIC: [u8; 4] = *b"MGCK";
/// In a checkpoint: the owner has no page.
const UNMAPPED: u32 = u32::MAX;

/// The pages that a disk keeps for itself behind the exported ones (FORMAT.md, "Owners of the disk").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnPages {
    exported: u32,
    /// Bits of a page of the trim map, or entries of a translation page.
    group: u32,
}

impl OwnPages {
    /// Those of a disk of `exported` pages on pages of `page_bytes` bytes.
    pub const fn new(exported: u32, page_bytes: u32) -> Self {
        Self { exported, group: (page_bytes - TRIM_HEADER_BYTES as u32) * 8 }
    }

    /// Those of the disk that a superblock describes.
    pub const fn of(superblock: &Superblock) -> Self {
        match superblock.map_entries {
            0 => Self::new(superblock.exported_pages, superblock.geometry.page_bytes()),
            entries => Self { exported: superblock.exported_pages, group: entries },
        }
    }

    /// The most entries of a translation page, or bits of a page of the trim map, that one of them has.
    pub const fn pages_of_a_group(&self) -> u32 {
        self.group
    }

    /// Number of exported pages.
    pub const fn exported(&self) -> u32 {
        self.exported
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
    pub const fn retired(&self) -> Lpn {
        Lpn(self.exported + 1)
    }

    /// A page of the trim map. Where the map is on flash, translation pages are in their place: this is the one of the group.
    pub const fn trims(&self, group: u32) -> Lpn {
        Lpn(self.exported + 2 + group)
    }

    /// Number of owners, exported pages included.
    pub const fn owners(&self) -> u32 {
        self.exported + 2 + self.groups()
    }

    /// The page of the trim map that knows a page.
    pub const fn group_of(&self, lpn: Lpn) -> u32 {
        lpn.0 / self.group
    }

    /// The pages that a page of the trim map knows.
    pub fn pages_of(&self, group: u32) -> core::ops::Range<u32> {
        group * self.group..self.exported.min((group + 1).saturating_mul(self.group))
    }

    /// Writes a page of the trim map: which pages hold no data after the program `seq`.
    pub fn encode_trims(&self, group: u32, seq: u64, is_unmapped: impl Fn(Lpn) -> bool, page: &mut [u8]) {
        page.fill(0);
        let mut bits = page;
        bits.put(TRIM_MAGIC);
        bits.put_u32(group);
        bits.put_uint(seq, 8);
        for (bit, lpn) in self.pages_of(group).enumerate() {
            bits[bit / 8] |= u8::from(is_unmapped(Lpn(lpn))) << (bit % 8);
        }
    }

    /// Reads a page of the trim map: a sequence number, and the pages that held no data after that program. `None` if it
    /// is not this page of the map.
    pub fn decode_trims<'a>(&self, group: u32, page: &'a [u8]) -> Option<(u64, impl Iterator<Item = Lpn> + use<'a>)> {
        let mut reader = Reader::new(page);
        if reader.take(4)? != TRIM_MAGIC || reader.u32()? != group {
            return None;
        }
        let (seq, bits) = (reader.u64()?, reader.rest());
        let is_set = move |bit: usize| bits.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        let unmapped = self.pages_of(group).enumerate().filter(move |(bit, _)| is_set(*bit));
        Some((seq, unmapped.map(|(_, lpn)| Lpn(lpn))))
    }
}

/// A page of a disk, as its checkpoint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPage {
    /// Its logical number.
    pub owner: Lpn,
    /// Where it is.
    pub ppn: Ppn,
    /// What the placement keeps for it; `None` if nothing was kept or by another placement.
    pub heat: Option<(u64, u32)>,
}

/// Writes the checkpoint of a disk: `pages` says where the page of each owner is, `heat` what the placement keeps for a
/// page, if it keeps anything.
pub fn encode_disk_checkpoint(
    superblock: &Superblock,
    log: &LogState,
    pages: impl ExactSizeIterator<Item = Option<Ppn>>,
    heat: Option<impl Fn(Ppn) -> (u64, u32)>,
) -> Vec<u8> {
    // An owner without a page between two that have one takes the most; a list that grows would take memory twice.
    let owner_bytes = if heat.is_some() { 16 } else { 6 };
    let mut bytes =
        Vec::with_capacity(log.max_encoded_bytes() + superblock.placement.len() + pages.len() * owner_bytes);
    log.encode_clocks(CHECKPOINT_MAGIC, superblock, &mut bytes);
    bytes.put_u32(pages.len() as u32);
    bytes.put(&[u8::from(heat.is_some()), superblock.placement.len() as u8]);
    bytes.put(superblock.placement.as_bytes());
    log.encode_segments(&mut bytes);
    let mut pages = pages.peekable();
    while let Some(page) = pages.next() {
        let Some(ppn) = page else {
            let more = core::iter::from_fn(|| pages.next_if(Option::is_none)).count();
            bytes.put_u32(UNMAPPED);
            bytes.put_u32(1 + more as u32);
            continue;
        };
        bytes.put_u32(ppn.0);
        if let Some(heat) = &heat {
            let (value, count) = heat(ppn);
            bytes.put_uint(value, 8);
            bytes.put_u32(count);
        }
    }
    bytes
}

/// Reads the checkpoint of a disk: the log, and the pages in the order of their owners, `None` where the bytes end too
/// early. `None` if it is another device's or makes no sense.
pub fn decode_disk_checkpoint<'a>(
    bytes: &'a [u8],
    superblock: &Superblock,
    layout: &Layout,
) -> Option<(LogState, impl Iterator<Item = Option<DiskPage>> + use<'a>)> {
    let mut reader = Reader::new(bytes);
    let is_long = bytes.starts_with(&LONG_CHECKPOINT_MAGIC);
    let magic = if is_long { LONG_CHECKPOINT_MAGIC } else { CHECKPOINT_MAGIC };
    let mut log = LogState::decode_clocks(magic, superblock, &mut reader)?;
    let owners = reader.u32().filter(|owners| *owners == OwnPages::of(superblock).owners())?;
    let (has_heat, placement_bytes) = (reader.u8()? == 1, reader.u8()?);
    let same_placement = reader.take(placement_bytes.into())? == superblock.placement.as_bytes();
    log.decode_segments(&mut reader, &superblock.geometry, layout)?;
    // How many owners an entry is of, and the page of the one that has one.
    let mut entry = move |owner: u32| {
        let ppn = reader.u32()?;
        if ppn == UNMAPPED {
            let count = if is_long { 1 } else { reader.u32()? };
            return (1..=owners - owner).contains(&count).then_some((count, None));
        }
        let heat = if has_heat { Some((reader.u64()?, reader.u32()?)) } else { None };
        Some((1, Some(DiskPage { owner: Lpn(owner), ppn: Ppn(ppn), heat: heat.filter(|_| same_placement) })))
    };
    let mut owner = 0;
    let pages = core::iter::from_fn(move || {
        while owner < owners {
            let Some((count, page)) = entry(owner) else {
                owner = owners;
                return Some(None);
            };
            owner += count;
            if page.is_some() {
                return Some(page);
            }
        }
        None
    });
    Some((log, pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_are_read_as_written() {
        let own = OwnPages::new(5000, 512);
        assert_eq!((own.groups(), own.owners()), (2, 5004));
        assert_eq!((own.superblock(), own.retired(), own.trims(1)), (Lpn(5000), Lpn(5001), Lpn(5003)));
        let unmapped = [Lpn(3), Lpn(3967), Lpn(3968), Lpn(4999)];
        let mut page = [0xFF; 512];
        for (group, expected) in [(0, &unmapped[..2]), (1, &unmapped[2..])] {
            own.encode_trims(group, 1 << 40, |lpn| unmapped.contains(&lpn), &mut page);
            let (seq, lpns) = own.decode_trims(group, &page).unwrap();
            assert_eq!((seq, &*lpns.collect::<Vec<_>>()), (1 << 40, expected));
            assert!(own.decode_trims(1 - group, &page).is_none());
        }
        assert!(own.decode_trims(0, &page[..7]).is_none(), "too short");
    }

    #[test]
    fn a_checkpoint_is_read_as_written_and_is_short_where_nothing_is_mapped() {
        let geometry = margay_flash::Geometry::new(4096, 64, 4096).unwrap().with_spare(256);
        let superblock = Superblock { geometry, exported_pages: 200_000, ..crate::superblock::tests::superblock() };
        let layout = Layout::new(&geometry, 200_000).unwrap();
        let log = crate::log_state::tests::unused(4096);
        let owners = OwnPages::of(&superblock).owners() as usize;
        let mapped = [0, 1, 500, owners / 2, owners - 1];
        let heat = |ppn: Ppn| (u64::from(ppn.0) + 1, ppn.0 + 2);
        for with_heat in [false, true] {
            let place = |owner: usize| mapped.contains(&owner).then_some(Ppn(owner as u32 + 100));
            let bytes = encode_disk_checkpoint(&superblock, &log, (0..owners).map(place), with_heat.then_some(heat));
            assert!(bytes.len() < 4096 * 25 + 300, "{} bytes", bytes.len());
            let (read, pages) = decode_disk_checkpoint(&bytes, &superblock, &layout).unwrap();
            assert_eq!(read, log);
            let expected = mapped.iter().map(|owner| {
                let ppn = Ppn(*owner as u32 + 100);
                Some(DiskPage { owner: Lpn(*owner as u32), ppn, heat: with_heat.then_some(heat(ppn)) })
            });
            assert_eq!(pages.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            // Cut short, or with a run that is too long, it says that the rest is missing.
            let (_, pages) = decode_disk_checkpoint(&bytes[..bytes.len() - 1], &superblock, &layout).unwrap();
            assert_eq!(pages.last(), Some(None));
            let run = bytes.windows(4).position(|word| word == [0xFF; 4]).unwrap() + 4;
            for count in [0, owners as u32] {
                let mut bytes = bytes.clone();
                bytes[run..run + 4].copy_from_slice(&count.to_le_bytes());
                let (_, pages) = decode_disk_checkpoint(&bytes, &superblock, &layout).unwrap();
                assert_eq!(pages.last(), Some(None), "{count}");
            }
        }
    }
}

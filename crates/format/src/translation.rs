//! What a disk whose map is on flash keeps there: translation pages, and the checkpoint that says where they are.

use crate::bytes::{PutBytes, Reader};
use crate::disk::OwnPages;
use crate::layout::Layout;
use crate::log_state::{LogState, SegmentState};
use crate::superblock::Superblock;
use alloc::vec::Vec;
use margay_flash::{Geometry, Lpn, SegmentId};

/// Bytes of a translation page before its entries.
const HEADER_BYTES: u32 = 16;
const MAGIC: &[u8; 4] = b"MAPP";
const CHECKPOINT_MAGIC: [u8; 4] = *b"MGC4";
/// That of a checkpoint with a bit for each page of the device.
const CHECKPOINT_WITH_BITS: [u8; 4] = *b"MGC3";

/// The most entries of a translation page of so many bytes.
pub const fn max_map_entries(page_bytes: u32) -> u32 {
    (page_bytes - HEADER_BYTES) / 4
}

/// Writes the translation page of a group: where the pages of the group are, as of the program `seq`.
///
/// # Panics
/// If there are more entries than the page has room for.
pub fn encode_translation(group: u32, seq: u64, entries: impl Iterator<Item = u32>, page: &mut [u8]) {
    page.fill(0);
    let mut bytes = page;
    bytes.put(MAGIC);
    bytes.put_u32(group);
    bytes.put_uint(seq, 8);
    entries.for_each(|entry| bytes.put_u32(entry));
}

/// Reads a translation page: the sequence number as of which it holds, and its entries. `None` if it is not the one of
/// the group.
pub fn decode_translation(group: u32, page: &[u8]) -> Option<(u64, impl Iterator<Item = u32>)> {
    let mut reader = Reader::new(page);
    if reader.take(4)? != MAGIC || reader.u32()? != group {
        return None;
    }
    let seq = reader.u64()?;
    Some((seq, core::iter::from_fn(move || reader.u32())))
}

/// The entry of a translation page that was found to be its group's, by its place in the group. `None` if the page ends before.
pub fn translation_entry(page: &[u8], place: u32) -> Option<u32> {
    Reader::new(page.get(HEADER_BYTES as usize + place as usize * 4..)?).u32()
}

/// What the checkpoint of a disk says whose map is on flash. Places are numbers of pages; `u32::MAX` stands for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapState {
    /// Where the disk's own pages are, in the order of their owners: behind the exported pages.
    pub own: Vec<u32>,
    /// Where exported pages are, if not where their translation pages say.
    pub changes: Vec<(Lpn, u32)>,
    /// How many pages of each segment are valid.
    pub counts: Vec<u32>,
}

/// Writes the checkpoint of a disk whose map is on flash.
pub fn encode_map_checkpoint(
    superblock: &Superblock,
    log: &LogState,
    own: &[u32],
    changes: impl Iterator<Item = (Lpn, u32)>,
    counts: impl Iterator<Item = u32>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    log.encode_clocks(CHECKPOINT_MAGIC, superblock, &mut bytes);
    bytes.put_u32(own.len() as u32);
    log.encode_segments(&mut bytes);
    own.iter().for_each(|page| bytes.put_u32(*page));
    let count_at = bytes.len();
    bytes.put_u32(0);
    let mut count = 0u32;
    for (lpn, page) in changes {
        bytes.put_u32(lpn.0);
        bytes.put_u32(page);
        count += 1;
    }
    bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    counts.for_each(|count| bytes.put_u32(count));
    bytes
}

/// Reads the checkpoint of a disk whose map is on flash; `None` if it is another device's or makes no sense.
pub fn decode_map_checkpoint(bytes: &[u8], superblock: &Superblock, layout: &Layout) -> Option<(LogState, MapState)> {
    let mut reader = Reader::new(bytes);
    let has_bits = bytes.starts_with(&CHECKPOINT_WITH_BITS);
    let magic = if has_bits { CHECKPOINT_WITH_BITS } else { CHECKPOINT_MAGIC };
    let mut log = LogState::decode_clocks(magic, superblock, &mut reader)?;
    let own = OwnPages::of(superblock);
    let owns = reader.u32().filter(|owns| *owns == own.owners() - own.exported())?;
    log.decode_segments(&mut reader, &superblock.geometry, layout)?;
    let own_pages: Option<_> = (0..owns).map(|_| reader.u32()).collect();
    let count = reader.u32().filter(|count| *count <= own.exported())?;
    let change = |_| Some((Lpn(reader.u32().filter(|lpn| *lpn < own.exported())?), reader.u32()?));
    let changes: Option<_> = (0..count).map(change).collect();
    let geometry = &superblock.geometry;
    let counts = match has_bits {
        true => count_bits(&mut reader, geometry)?,
        false => (0..geometry.segments()).map(|_| reader.u32()).collect::<Option<_>>()?,
    };
    let is_possible = |(id, count): (u32, &u32)| {
        let data_pages = layout.data_pages(geometry);
        *count
            <= match log.segments[id as usize].state {
                SegmentState::Sealed => data_pages,
                SegmentState::Open => {
                    let open = log.open.iter().find(|open| open.segment.0 == id);
                    let first = geometry.first_page(SegmentId(id)).0 + layout.header_pages;
                    open.map_or(0, |open| open.next.0.saturating_sub(first).min(data_pages))
                }
                _ => 0,
            }
    };
    let state = MapState { own: own_pages?, changes: changes?, counts };
    (0..).zip(&state.counts).all(is_possible).then_some((log, state))
}

/// How many of the bits of each segment are set, of a bit for each page.
fn count_bits(reader: &mut Reader<'_>, geometry: &Geometry) -> Option<Vec<u32>> {
    let mut counts = alloc::vec![0; geometry.segments() as usize];
    for word in 0..geometry.pages().div_ceil(64) {
        let bits = reader.u64()?;
        for page in (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit) {
            *counts.get_mut((page / geometry.pages_per_segment()) as usize)? += 1;
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::superblock;

    #[test]
    fn a_translation_page_is_read_as_written_and_no_other_page_is_taken_for_it() {
        let mut page = [0xFF; 512];
        assert_eq!(max_map_entries(512), 124);
        let entries: Vec<u32> = (0..124).map(|entry| entry * 7).collect();
        encode_translation(3, 1 << 40, entries.iter().copied(), &mut page);
        let (seq, read) = decode_translation(3, &page).unwrap();
        assert_eq!((seq, read.collect::<Vec<_>>()), (1 << 40, entries));
        let entries = [0, 123, 124].map(|place| translation_entry(&page, place));
        assert_eq!(entries, [Some(0), Some(123 * 7), None]);
        assert!(decode_translation(2, &page).is_none());
        assert!(decode_translation(3, &page[..15]).is_none(), "too short");
        page[0] ^= 1;
        assert!(decode_translation(3, &page).is_none());
    }

    #[test]
    fn a_checkpoint_of_a_map_on_flash_is_read_as_written_and_never_half() {
        let superblock = Superblock { map_entries: 1000, ..superblock() };
        let layout = Layout::new(&superblock.geometry, 6000).unwrap();
        let mut log = crate::log_state::tests::unused(superblock.geometry.segments());
        log.segments[5].state = SegmentState::Sealed;
        let own = OwnPages::of(&superblock);
        assert_eq!((own.groups(), own.owners()), (6, 5529 + 8));
        let state = MapState {
            own: (100..108).collect(),
            changes: alloc::vec![(Lpn(5528), 17), (Lpn(0), u32::MAX)],
            counts: (0..192).map(|segment| if segment == 5 { 31 } else { 0 }).collect(),
        };
        let encode = |state: &MapState| {
            let (changes, counts) = (state.changes.iter().copied(), state.counts.iter().copied());
            encode_map_checkpoint(&superblock, &log, &state.own, changes, counts)
        };
        let bytes = encode(&state);
        for (segment, count) in [(5, 33), (6, 1)] {
            let mut impossible = state.clone();
            impossible.counts[segment] = count;
            assert_eq!(decode_map_checkpoint(&encode(&impossible), &superblock, &layout), None, "{segment}");
        }
        // As earlier versions wrote it: with a bit for each page.
        let mut with_bits = bytes[..bytes.len() - 192 * 4].to_vec();
        with_bits[..4].copy_from_slice(b"MGC3");
        let word = |word: usize| if word == 5 * 32 / 64 { u64::MAX << 33 } else { 0 };
        (0..192 * 32 / 64).for_each(|at| with_bits.put_uint(word(at), 8));
        assert_eq!(decode_map_checkpoint(&with_bits, &superblock, &layout), Some((log.clone(), state.clone())));
        assert_eq!(decode_map_checkpoint(&bytes, &superblock, &layout), Some((log, state)));
        for len in 0..bytes.len() {
            assert_eq!(decode_map_checkpoint(&bytes[..len], &superblock, &layout), None, "{len} bytes");
        }
        let other = Superblock { map_entries: 500, ..superblock };
        assert_eq!(decode_map_checkpoint(&bytes, &other, &layout), None);
    }
}

//! The bytes of a summary page (FORMAT.md, "Summaries").

use crate::bytes::{PutBytes, Reader};
use crate::crc::crc32c_of_two;
use crate::layout::TAG_BYTES;
use alloc::vec::Vec;
use margay_flash::{Ppn, SegmentId};

const MAGIC: &[u8; 4] = b"MGSU";
/// Bytes before the first run.
const HEADER_BYTES: usize = 28;
/// Bytes of a tag that have one bit in the first mask of its difference.
const GROUP: usize = 8;
/// Bytes of a run before its entries.
const RUN_BYTES: usize = 8;
/// The most bytes that an entry takes: its distance, the masks, and a whole tag.
const MAX_ENTRY_BYTES: usize = 2 + TAG_BYTES / GROUP + TAG_BYTES;

/// The bytes of a tag.
pub type TagBytes = [u8; TAG_BYTES];

/// The tag of a page, by the number of the page in its segment.
pub type Tagged = (u32, TagBytes);

/// What a summary page says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// All tags of its segment are in it, and nothing is programmed behind it.
    pub is_final: bool,
    /// Ascending over the device's life.
    pub number: u64,
    /// No summary with a smaller number says anything of another segment that is needed.
    pub low: u64,
}

/// A summary page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryPage {
    pub head: Head,
    /// Tags of pages of segments, ascending in each.
    pub runs: Vec<(SegmentId, Vec<Tagged>)>,
}

impl SummaryPage {
    /// Writes it to `page`, for the page `ppn` of the device with this UUID. False if it does not fit.
    pub fn encode(&self, uuid: &[u8; 16], ppn: Ppn, page: &mut [u8]) -> bool {
        let mut bytes = Vec::with_capacity(page.len());
        bytes.put(MAGIC);
        bytes.put_u32(0); // the CRC's place
        bytes.put(&[u8::from(self.head.is_final), 0]);
        bytes.put_uint(self.runs.len() as u64, 2);
        for number in [self.head.number, self.head.low] {
            bytes.put_uint(number, 8);
        }
        let mut before = [0; TAG_BYTES];
        for (segment, entries) in &self.runs {
            bytes.put_u32(segment.0);
            bytes.put_uint(entries.first().map_or(0, |first| first.0).into(), 2);
            bytes.put_uint(entries.len() as u64, 2);
            let mut last = None;
            for (index, tag) in entries {
                if let Some(last) = last.replace(*index) {
                    put_distance(index - last, &mut bytes);
                }
                put_difference(&before, tag, &mut bytes);
                before = *tag;
            }
            if bytes.len() > page.len() {
                return false;
            }
        }
        page[..bytes.len()].copy_from_slice(&bytes);
        page[bytes.len()..].fill(0);
        let crc = crc(uuid, ppn, page);
        page[4..8].copy_from_slice(&crc.to_le_bytes());
        true
    }

    /// As [`SummaryPage::decode`], for a page that may have a flipped bit which the ECC has missed: that is corrected. CRC-32C tells
    /// pages of up to 8 KiB apart that differ in fewer than four bits.
    pub fn repair(uuid: &[u8; 16], ppn: Ppn, page: &mut [u8]) -> Option<Self> {
        let flipped: u32 = page.iter().zip(MAGIC).map(|(byte, magic)| (byte ^ magic).count_ones()).sum();
        if flipped > 1 {
            return None;
        }
        if let Some(summary) = Self::decode(uuid, ppn, page) {
            return Some(summary);
        }
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            if let Some(summary) = Self::decode(uuid, ppn, page) {
                return Some(summary);
            }
            page[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// Reads it; `None` if the page holds none, or one of another page or device.
    pub fn decode(uuid: &[u8; 16], ppn: Ppn, page: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(page);
        if reader.take(4)? != MAGIC || reader.u32()? != crc(uuid, ppn, page) {
            return None;
        }
        let (is_final, _, runs) = (reader.u8()? == 1, reader.u8()?, reader.u16()?);
        let head = Head { is_final, number: reader.u64()?, low: reader.u64()? };
        let mut before = [0; TAG_BYTES];
        let mut read_run = || {
            let segment = SegmentId(reader.u32()?);
            let (mut index, count) = (u32::from(reader.u16()?), reader.u16()?);
            let mut entries = Vec::new();
            for number in 0..count {
                if number > 0 {
                    index += distance(&mut reader)?;
                }
                before = difference(&before, &mut reader)?;
                entries.push((index, before));
            }
            Some((segment, entries))
        };
        let runs = (0..runs).map(|_| read_run()).collect::<Option<_>>()?;
        Some(Self { head, runs })
    }
}

/// Bytes that the tag of a page takes behind that of the page before it.
pub fn entry_bytes(before: &TagBytes, tag: &TagBytes) -> usize {
    let mut bytes = Vec::with_capacity(MAX_ENTRY_BYTES);
    put_difference(before, tag, &mut bytes);
    bytes.len() + 1
}

/// Whether one more tag, whatever it is, fits a page behind those of a segment that take `bytes`.
pub const fn has_room(page_bytes: usize, bytes: usize) -> bool {
    HEADER_BYTES + RUN_BYTES + bytes + MAX_ENTRY_BYTES <= page_bytes
}

fn crc(uuid: &[u8; 16], ppn: Ppn, page: &[u8]) -> u32 {
    let mut salt = [0; 20];
    salt[..16].copy_from_slice(uuid);
    salt[16..].copy_from_slice(&ppn.0.to_le_bytes());
    crc32c_of_two(&salt, &page[8..])
}

/// A distance of pages, at least 1: a byte, or 0 and two bytes.
fn put_distance(distance: u32, bytes: &mut Vec<u8>) {
    match u8::try_from(distance) {
        Ok(short) => bytes.put(&[short]),
        Err(_) => {
            bytes.put(&[0]);
            bytes.put_uint(distance.into(), 2);
        }
    }
}

fn distance(reader: &mut Reader<'_>) -> Option<u32> {
    match reader.u8()? {
        0 => reader.u16().map(u32::from),
        short => Some(short.into()),
    }
}

/// What differs: a bit for each group of 8 bytes, then for each such group a bit for each byte, and those bytes.
fn put_difference(before: &TagBytes, tag: &TagBytes, bytes: &mut Vec<u8>) {
    let at = bytes.len();
    bytes.put(&[0]);
    for (group, (before, tag)) in before.chunks_exact(GROUP).zip(tag.chunks_exact(GROUP)).enumerate() {
        let mask = (0..GROUP).fold(0, |mask, byte| mask | u8::from(before[byte] != tag[byte]) << byte);
        if mask != 0 {
            bytes[at] |= 1 << group;
            bytes.put(&[mask]);
            (0..GROUP).filter(|byte| mask >> byte & 1 == 1).for_each(|byte| bytes.put(&[tag[byte]]));
        }
    }
}

fn difference(before: &TagBytes, reader: &mut Reader<'_>) -> Option<TagBytes> {
    let mut tag = *before;
    let groups = reader.u8()?;
    for group in (0..TAG_BYTES / GROUP).filter(|group| groups >> group & 1 == 1) {
        let mask = reader.u8()?;
        for byte in (0..GROUP).filter(|byte| mask >> byte & 1 == 1) {
            tag[group * GROUP + byte] = reader.u8()?;
        }
    }
    Some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> SummaryPage {
        let tag = |n: u8| core::array::from_fn(|at| if at % 5 == 0 { n } else { 0x6D });
        let runs = alloc::vec![
            (SegmentId(7), alloc::vec![(0, tag(1)), (1, tag(2)), (400, [0; TAG_BYTES])]),
            (SegmentId(9), alloc::vec![(3, tag(9))]),
        ];
        SummaryPage { head: Head { is_final: true, number: 1 << 41, low: 17 }, runs }
    }

    #[test]
    fn a_summary_is_read_as_written_and_nowhere_else_and_damage_is_noticed() {
        let mut bytes = [0xFF; 512];
        assert!(page().encode(&[5; 16], Ppn(80), &mut bytes));
        assert_eq!(SummaryPage::decode(&[5; 16], Ppn(80), &bytes), Some(page()));
        assert_eq!(SummaryPage::decode(&[5; 16], Ppn(81), &bytes), None);
        assert_eq!(SummaryPage::decode(&[6; 16], Ppn(80), &bytes), None);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SummaryPage::decode(&[5; 16], Ppn(80), &bytes), None, "bit {bit}");
            assert_eq!(SummaryPage::repair(&[5; 16], Ppn(80), &mut bytes), Some(page()), "bit {bit}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_has_room_fits() {
        assert!(!page().encode(&[5; 16], Ppn(80), &mut [0; 100]));
        let mut tags: Vec<Tagged> = Vec::new();
        let (mut bytes, mut before) = (0, [0; TAG_BYTES]);
        while has_room(512, bytes) {
            // Every byte of a tag differs from that of the one before.
            let tag = [tags.len() as u8 + 1; TAG_BYTES];
            bytes += entry_bytes(&before, &tag);
            before = tag;
            tags.push((tags.len() as u32, tag));
        }
        assert!(tags.len() > 4);
        let full = SummaryPage { head: Head::default(), runs: alloc::vec![(SegmentId(1), tags)] };
        assert!(full.encode(&[5; 16], Ppn(80), &mut [0; 512]));
    }
}

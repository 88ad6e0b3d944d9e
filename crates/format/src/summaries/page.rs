//! The bytes of the pages that hold tags (FORMAT.md, "Summaries").

use crate::bytes::{PutBytes, Reader};
use crate::crc::crc32c_of_two;
use crate::layout::SHORT_TAG_BYTES;
use alloc::vec::Vec;
use margay_flash::{Geometry, Ppn, SegmentId};

const SUMMARY_MAGIC: &[u8; 4] = b"MGSU";
const JOURNAL_MAGIC: &[u8; 4] = b"MGJO";
/// Bytes before what a summary page holds, and a journal page.
const HEADER_BYTES: usize = 32;
const JOURNAL_HEADER_BYTES: usize = 48;
/// Bytes of a tag in a journal page: the number of its page, and itself.
const ENTRY_BYTES: usize = 4 + SHORT_TAG_BYTES;
const LENT_BYTES: usize = 8;

/// Segments that hold the journal or are kept for it. One is filled, the others are at hand, because they may fail.
pub(crate) const LENT_SEGMENTS: u32 = 4;
/// Segments without a summary whose tags must fit a segment of the journal: one for each stream, and some that power cuts left.
const MIN_OPEN: u32 = 9;

/// The bytes of a tag.
pub(super) type TagBytes = [u8; SHORT_TAG_BYTES];

/// Pages at the end of each segment that hold the tags of the others, where spare areas have no room for any tag; `None` on other
/// devices, and where a segment has too few pages or too small ones.
pub(crate) fn summary_pages(geometry: &Geometry) -> Option<u32> {
    let has_place = geometry.is_byte_programmable() || geometry.spare_bytes() as usize >= SHORT_TAG_BYTES;
    if has_place || geometry.page_bytes() < 512 {
        return None;
    }
    let pages = geometry.pages_per_segment();
    let summary_pages = pages.div_ceil(tags_of_page(geometry.page_bytes()) as u32 + 1);
    // Half of the anchor are tags, too.
    let data_pages = pages.checked_sub(summary_pages).filter(|data_pages| *data_pages >= pages / 2)?;
    let in_journal = u64::from(pages.saturating_sub(3)) * journal_tags(geometry.page_bytes()) as u64;
    (in_journal >= u64::from(MIN_OPEN) * u64::from(data_pages)).then_some(summary_pages)
}

/// Tags that a summary page holds.
pub(super) const fn tags_of_page(page_bytes: u32) -> usize {
    (page_bytes as usize - HEADER_BYTES) / SHORT_TAG_BYTES
}

/// Tags for which a journal page has room.
pub(super) const fn journal_tags(page_bytes: u32) -> usize {
    (page_bytes as usize - JOURNAL_HEADER_BYTES - LENT_SEGMENTS as usize * LENT_BYTES) / ENTRY_BYTES
}

/// A journal page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JournalPage {
    /// Ascending over the device's life.
    pub number: u64,
    /// The number of the journal page before it. What has another number between the two does not count.
    pub before: u64,
    /// No journal page with a smaller number is needed.
    pub start: u64,
    /// Summaries with numbers up to this one count, but of segments that a journal page behind them has tags of.
    pub settled: u64,
    /// The segments of the journal and those kept for it, in the order of their use, with their erases.
    pub lent: Vec<(SegmentId, u32)>,
    /// A segment that is erased next, of which no earlier tag counts.
    pub erased: Option<SegmentId>,
    /// Tags by pages, in the order of their programs.
    pub tags: Vec<(Ppn, TagBytes)>,
}

/// A summary page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SummaryPage {
    /// Journal pages before it have smaller numbers.
    pub number: u64,
    /// Tags of pages that follow each other, erased for those that have none.
    pub tags: Vec<TagBytes>,
}

fn crc(uuid: &[u8; 16], ppn: Ppn, page: &[u8]) -> u32 {
    let mut salt = [0; 20];
    salt[..16].copy_from_slice(uuid);
    salt[16..].copy_from_slice(&ppn.0.to_le_bytes());
    crc32c_of_two(&salt, &page[8..])
}

fn seal(uuid: &[u8; 16], ppn: Ppn, page: &mut [u8]) {
    let crc = crc(uuid, ppn, page);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// What is behind the checksum, if that is right.
fn open<'a>(magic: &[u8; 4], uuid: &[u8; 16], ppn: Ppn, page: &'a [u8]) -> Option<Reader<'a>> {
    let mut reader = Reader::new(page);
    (reader.take(4)? == magic && reader.u32()? == crc(uuid, ppn, page)).then_some(reader)
}

impl JournalPage {
    /// Writes it for the page `ppn` of the device with this UUID. It has to fit.
    pub fn encode(&self, uuid: &[u8; 16], ppn: Ppn, page: &mut [u8]) {
        page.fill(0);
        let mut rest = &mut *page;
        rest.put(JOURNAL_MAGIC);
        rest.put_u32(0); // the CRC's place
        for number in [self.number, self.before, self.start, self.settled] {
            rest.put_uint(number, 8);
        }
        rest.put_u32(self.erased.map_or(u32::MAX, |segment| segment.0));
        rest.put_uint(self.lent.len() as u64, 2);
        rest.put_uint(self.tags.len() as u64, 2);
        for (segment, erases) in &self.lent {
            rest.put_u32(segment.0);
            rest.put_u32(*erases);
        }
        for (ppn, tag) in &self.tags {
            rest.put_u32(ppn.0);
            rest.put(tag);
        }
        seal(uuid, ppn, page);
    }

    /// Reads it; `None` if the page holds none, or one of another page or device.
    pub fn decode(uuid: &[u8; 16], ppn: Ppn, page: &[u8]) -> Option<Self> {
        let mut reader = open(JOURNAL_MAGIC, uuid, ppn, page)?;
        let (number, before, start, settled) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let erased = Some(SegmentId(reader.u32()?)).filter(|segment| segment.0 != u32::MAX);
        let (lent, tags) = (reader.u16()?, reader.u16()?);
        let lent = (0..lent).map(|_| Some((SegmentId(reader.u32()?), reader.u32()?))).collect::<Option<_>>()?;
        let mut tag = || Some((Ppn(reader.u32()?), reader.take(SHORT_TAG_BYTES)?.try_into().ok()?));
        let tags = (0..tags).map(|_| tag()).collect::<Option<_>>()?;
        Some(Self { number, before, start, settled, lent, erased, tags })
    }
}

impl SummaryPage {
    /// Writes it for the page `ppn` of the device with this UUID. It has to fit.
    pub fn encode(&self, uuid: &[u8; 16], ppn: Ppn, page: &mut [u8]) {
        page.fill(0xFF);
        let mut rest = &mut *page;
        rest.put(SUMMARY_MAGIC);
        rest.put_u32(0); // the CRC's place
        rest.put_uint(self.number, 8);
        rest.put(&[0; HEADER_BYTES - 16]);
        self.tags.iter().for_each(|tag| rest.put(tag));
        seal(uuid, ppn, page);
    }

    /// Reads it; `None` if the page holds none, or one of another page or device.
    pub fn decode(uuid: &[u8; 16], ppn: Ppn, page: &[u8]) -> Option<Self> {
        let mut reader = open(SUMMARY_MAGIC, uuid, ppn, page)?;
        let number = reader.u64()?;
        let tags = page[HEADER_BYTES..].chunks_exact(SHORT_TAG_BYTES);
        Some(Self { number, tags: tags.map(|tag| tag.try_into().expect("a chunk has this size")).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn summaries_take_one_page_of_64_with_2048_bytes_and_two_of_32_with_512() {
        let pages = |pages, bytes, spare| summary_pages(&Geometry::new(64, pages, bytes).unwrap().with_spare(spare));
        assert_eq!([pages(64, 2048, 10), pages(64, 2048, 31), pages(64, 2048, 32)], [Some(1), Some(1), None]);
        assert_eq!([pages(32, 512, 16), pages(128, 2048, 0), pages(64, 4096, 0)], [Some(2), Some(2), Some(1)]);
        assert_eq!([pages(4, 512, 0), pages(64, 256, 0)], [None, None]);
        assert_eq!(summary_pages(&Geometry::new(64, 64, 2048).unwrap().byte_programmable()), None);
    }

    #[test]
    fn pages_are_read_as_written_full_or_not_and_damage_is_noticed() {
        let (uuid, ppn) = ([5; 16], Ppn(80));
        let tags = |count: usize| (0..count).map(|tag| (Ppn(tag as u32), [tag as u8; SHORT_TAG_BYTES])).collect();
        let lent = (1..=LENT_SEGMENTS).map(|id| (SegmentId(id), 7 * id)).collect::<Vec<_>>();
        let mut page = [0; 512];
        for (erased, tags) in [(Some(SegmentId(3)), tags(journal_tags(512))), (None, Vec::new())] {
            let written = JournalPage { number: 9, before: 8, start: 7, settled: 9, lent: lent.clone(), erased, tags };
            written.encode(&uuid, ppn, &mut page);
            assert_eq!(JournalPage::decode(&uuid, ppn, &page), Some(written));
            assert_eq!(
                (JournalPage::decode(&uuid, Ppn(81), &page), SummaryPage::decode(&uuid, ppn, &page)),
                (None, None)
            );
            page[300] ^= 1;
            assert_eq!(JournalPage::decode(&uuid, ppn, &page), None);
        }
        let written = SummaryPage { number: 3, tags: vec![[8; SHORT_TAG_BYTES]; tags_of_page(512)] };
        written.encode(&uuid, ppn, &mut page);
        assert_eq!(SummaryPage::decode(&uuid, ppn, &page), Some(written));
        assert_eq!(SummaryPage::decode(&[6; 16], ppn, &page), None);
        page[511] ^= 1;
        assert_eq!(SummaryPage::decode(&uuid, ppn, &page), None);
    }
}

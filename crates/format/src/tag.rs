use crate::bytes::{PutBytes, Reader};
use crate::crc::crc32c_of_two;
use crate::layout::{Layout, SHORT_TAG_BYTES, TAG_BYTES, VERSION};
use margay_flash::{Ppn, SegmentId};

const MAGIC: u8 = 0x6D;
const NO_SEGMENT: u32 = u32::MAX;
/// A distance in a window that does not fit.
const FAR: u16 = u16::MAX;
/// Offset of the CRC of the tag, which covers all of it but itself.
const CRC_AT: usize = TAG_BYTES - 4;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// A page of a client.
    Data = 1,
    /// A page of a checkpoint.
    Checkpoint = 2,
    /// A record of the anchor.
    Anchor = 3,
}

impl PageKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Data, Self::Checkpoint, Self::Anchor].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What is known of a segment when a page of it is programmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its erases.
    pub erases: u32,
    /// Erases of the whole device.
    pub total_erases: u64,
    /// The stream it was opened for.
    pub stream: u8,
    /// Time it was opened, in microseconds of the client's clock (48 bits).
    pub opened_us: u64,
    /// Host page writes when it was opened (48 bits).
    pub opened_writes: u64,
}

impl SegmentInfo {
    /// Parts that short tags have of it by turns.
    pub const PARTS: u32 = 8;

    /// All of its parts; numbers that do not fit are the largest. The first and the last are the erase count.
    fn parts(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let mut rest = &mut bytes[..];
        let erases = u64::from(self.erases.min(0xFF_FFFF));
        rest.put_uint(erases, 3);
        rest.put_uint(self.total_erases.min(u64::from(u32::MAX)), 4);
        rest.put(&[self.stream, 0]);
        rest.put_u48(self.opened_writes);
        rest.put_u48(self.opened_us);
        rest.put_uint(erases, 3);
        bytes
    }

    /// What a part of it says; the rest is 0.
    fn of_part(number: usize, part: &[u8]) -> Option<Self> {
        let mut bytes = [0; 24];
        bytes[number * 3..][..3].copy_from_slice(part);
        let mut reader = Reader::new(&bytes);
        let first = reader.uint(3)?;
        let (total_erases, stream, _) = (reader.uint(4)?, reader.u8()?, reader.u8()?);
        let (opened_writes, opened_us) = (reader.uint(6)?, reader.uint(6)?);
        let erases = (first | reader.uint(3)?) as u32;
        Some(Self { erases, total_erases, stream, opened_us, opened_writes })
    }

    /// What two parts say of the same segment.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            erases: self.erases | other.erases,
            total_erases: self.total_erases | other.total_erases,
            stream: self.stream | other.stream,
            opened_us: self.opened_us | other.opened_us,
            opened_writes: self.opened_writes | other.opened_writes,
        }
    }
}

/// What is known of a page beside its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageInfo {
    /// Whose page it is.
    pub owner: u64,
    /// Number of the program, ascending over the device's life (48 bits).
    pub seq: u64,
    /// Number of the host write that the data comes from; copies keep it (48 bits).
    pub version: u64,
    /// Time of that write, in microseconds (48 bits).
    pub time_us: u64,
    /// What the placement keeps for the page, in 32 bits.
    pub heat: u32,
    /// What those bits mean; 0 for nothing, below 4.
    pub heat_kind: u8,
    /// The page could not be read when it was copied: its data is lost.
    pub lost: bool,
}

/// All that is kept of a page (FORMAT.md, "Tag").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// What the page holds.
    pub kind: PageKind,
    /// Of the page.
    pub page: PageInfo,
    /// Of its segment.
    pub segment: SegmentInfo,
    /// CRC-32C of the data.
    pub data_crc: u32,
    /// Entries of the window that are used.
    pub window: u8,
    /// How many sequence numbers before this one were given to programs that failed, so that no page has them.
    pub skipped: u8,
}

/// What the bytes of a tag are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A tag.
    Tag(Tag),
    /// All bits are 1: nothing was programmed.
    Erased,
    /// All bits are 0: the page was given up and holds nothing.
    Void,
    /// A tag of a later version of the format.
    Newer(u8),
    /// Neither.
    Damaged,
}

/// A page in the window of a later page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Its owner.
    pub owner: u64,
    /// Its sequence number, unless it is too far from that of the page behind it.
    pub seq: Option<u64>,
}

/// Checksums of whole words are quickest.
#[repr(align(8))]
struct Aligned([u8; 4 + CRC_AT]);

impl Tag {
    /// The greatest number of sequence numbers that a tag can say were skipped.
    pub const MAX_SKIPPED: u8 = 31;

    /// Writes the tag of the page `ppn`, with the erased segments of the ledger, latest first, and the pages of the window as
    /// (owner, sequence number), ascending; those that do not fit are left out. What is over [`crate::U48_MAX`] is
    /// written as that.
    pub fn encode(
        &self,
        layout: &Layout,
        ppn: Ppn,
        ledger: &[(SegmentId, u32)],
        before: &[(u64, u64)],
        bytes: &mut [u8],
    ) {
        if layout.has_short_tags {
            return self.encode_short(ppn, bytes);
        }
        let owner_bytes = usize::from(layout.owner_bytes);
        let before = &before[before.len().saturating_sub(layout.window.into())..];
        let skipped = self.skipped.min(Self::MAX_SKIPPED);
        let flags = u8::from(self.page.lost) | (skipped & 7) << 1 | self.page.heat_kind << 4 | (skipped >> 3) << 6;
        let len = bytes.len();
        let mut rest = &mut *bytes;
        rest.put(&[MAGIC, VERSION << 4 | layout.owner_bytes, self.kind as u8, flags]);
        rest.put(&[self.segment.stream, before.len() as u8]);
        rest.put_uint(self.segment.total_erases.min(u64::from(u32::MAX)), 4);
        rest.put_u32(self.segment.erases);
        rest.put_uint(self.page.owner, 8);
        rest.put_u48(self.page.seq);
        rest.put_u48(self.page.version);
        rest.put_u48(self.page.time_us);
        rest.put_u32(self.page.heat);
        rest.put_u32(self.data_crc);
        rest.put_u48(self.segment.opened_us);
        rest.put_u48(self.segment.opened_writes);
        rest.put_u32(0); // the CRC's place
        let unused = core::iter::repeat((SegmentId(NO_SEGMENT), u32::MAX));
        for (segment, erases) in ledger.iter().copied().chain(unused).take(layout.ledger.into()) {
            rest.put_u32(segment.0);
            rest.put_u32(erases);
        }
        let (mut at, end) = (len - rest.len(), layout.tag_bytes());
        let mut after = self.page.seq;
        let entry_bytes = owner_bytes + 2;
        for (owner, seq) in before.iter().rev() {
            let gap = after.checked_sub(*seq).map_or(FAR, |gap| gap.min(FAR.into()) as u16);
            after = *seq;
            // A copy whose length is not known is a call: eight bytes are stored, and what is too much is written over.
            match bytes[..end].get_mut(at..at + 8) {
                Some(wide) if entry_bytes <= 8 => {
                    wide.copy_from_slice(&(owner | u64::from(gap) << (8 * owner_bytes)).to_le_bytes());
                }
                _ => {
                    bytes[at..at + owner_bytes].copy_from_slice(&owner.to_le_bytes()[..owner_bytes]);
                    bytes[at + owner_bytes..at + entry_bytes].copy_from_slice(&gap.to_le_bytes());
                }
            }
            at += entry_bytes;
        }
        bytes[at..end].fill(0xFF);
        let crc = Self::crc(layout, ppn, &bytes[..end]);
        bytes[CRC_AT..TAG_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// The tag without ledger, window, time and heat, and with one part of what is known of the segment (FORMAT.md, "Short tags").
    #[cold]
    fn encode_short(&self, ppn: Ppn, bytes: &mut [u8]) {
        let mut rest = &mut *bytes;
        let kind = self.kind as u8 | u8::from(self.page.lost) << 2;
        rest.put(&[MAGIC, VERSION << 4 | kind, self.skipped.min(Self::MAX_SKIPPED)]);
        for number in [self.page.owner, self.page.seq, self.page.version] {
            rest.put_u48(number);
        }
        rest.put_u32(self.data_crc);
        rest.put(&self.segment.parts()[(ppn.0 % SegmentInfo::PARTS) as usize * 3..][..3]);
        let crc = Self::short_crc(ppn, bytes);
        bytes[SHORT_TAG_BYTES - 4..SHORT_TAG_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    fn short_crc(ppn: Ppn, bytes: &[u8]) -> u32 {
        crc32c_of_two(&ppn.0.to_le_bytes(), &bytes[..SHORT_TAG_BYTES - 4])
    }

    fn decode_short(ppn: Ppn, bytes: &[u8]) -> Option<Decoded> {
        let mut reader = Reader::new(bytes);
        let (magic, kind, skipped) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let (owner, seq, version) = (reader.uint(6)?, reader.uint(6)?, reader.uint(6)?);
        let (data_crc, part) = (reader.u32()?, reader.take(3)?);
        if magic != MAGIC || reader.u32()? != Self::short_crc(ppn, bytes) {
            return None;
        }
        if kind >> 4 > VERSION {
            return Some(Decoded::Newer(kind >> 4));
        }
        let page = PageInfo { owner, seq, version, lost: kind & 4 != 0, ..PageInfo::default() };
        let segment = SegmentInfo::of_part((ppn.0 % SegmentInfo::PARTS) as usize, part)?;
        let kind = PageKind::from_byte(kind & 3)?;
        Some(Decoded::Tag(Self { kind, page, segment, data_crc, window: 0, skipped }))
    }

    /// The CRC of a tag and, where the layout says so, of its page's number before it: a tag that was put elsewhere is
    /// damaged.
    fn crc(layout: &Layout, ppn: Ppn, bytes: &[u8]) -> u32 {
        let mut head = Aligned([0; 4 + CRC_AT]);
        head.0[..4].copy_from_slice(&ppn.0.to_le_bytes());
        head.0[4..].copy_from_slice(&bytes[..CRC_AT]);
        let head = if layout.names_place { &head.0[..] } else { &head.0[4..] };
        crc32c_of_two(head, &bytes[TAG_BYTES..])
    }

    /// Reads the tag of the page `ppn`. `bytes` has at least the length of one.
    pub fn decode(layout: &Layout, ppn: Ppn, bytes: &[u8]) -> Decoded {
        let bytes = &bytes[..layout.tag_bytes()];
        if bytes.iter().all(|byte| *byte == 0xFF) {
            return Decoded::Erased;
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Decoded::Void;
        }
        let decoded = match layout.has_short_tags {
            true => Self::decode_short(ppn, bytes),
            false => Self::decode_fields(layout, ppn, bytes),
        };
        decoded.unwrap_or(Decoded::Damaged)
    }

    /// Reads the fields of a tag whose bytes are not all erased.
    fn decode_fields(layout: &Layout, ppn: Ppn, bytes: &[u8]) -> Option<Decoded> {
        let mut reader = Reader::new(bytes);
        let (magic, version, kind, flags) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        let (stream, window) = (reader.u8()?, reader.u8()?);
        let (total_erases, erases) = (reader.uint(4)?, reader.u32()?);
        let owner = reader.u64()?;
        let (seq, version_number, time_us) = (reader.uint(6)?, reader.uint(6)?, reader.uint(6)?);
        let (heat, data_crc) = (reader.u32()?, reader.u32()?);
        let (opened_us, opened_writes) = (reader.uint(6)?, reader.uint(6)?);
        let crc = reader.u32()?;
        if magic != MAGIC || crc != Self::crc(layout, ppn, bytes) {
            return None;
        }
        if version >> 4 > VERSION {
            return Some(Decoded::Newer(version >> 4));
        }
        let kind = PageKind::from_byte(kind)?;
        if version & 15 != layout.owner_bytes || window > layout.window {
            return None;
        }
        let page = PageInfo {
            owner,
            seq,
            version: version_number,
            time_us,
            heat,
            heat_kind: flags >> 4 & 3,
            lost: flags & 1 != 0,
        };
        let segment = SegmentInfo { erases, total_erases, stream, opened_us, opened_writes };
        let skipped = flags >> 1 & 7 | flags >> 6 << 3;
        Some(Decoded::Tag(Self { kind, page, segment, data_crc, window, skipped }))
    }

    /// Finds the one flipped bit that makes damaged bytes a tag again and corrects it. CRC-32C tells every pair
    /// of tags that differ in fewer than 5 bits apart, so a single flip has one explanation.
    pub fn repair(layout: &Layout, ppn: Ppn, bytes: &mut [u8]) -> Option<Self> {
        for bit in 0..layout.tag_bytes() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Decoded::Tag(tag) = Self::decode(layout, ppn, bytes) {
                return Some(tag);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// The pages before this one, nearest first, from the bytes that the tag was decoded from.
    pub fn earlier<'a>(&self, layout: &Layout, bytes: &'a [u8]) -> impl Iterator<Item = Earlier> + use<'a> {
        let owner_bytes = usize::from(layout.owner_bytes);
        let start = layout.window_at();
        let window = &bytes[start..][..usize::from(self.window) * (owner_bytes + 2)];
        let mut after = Some(self.page.seq);
        let mut reader = Reader::new(window);
        core::iter::from_fn(move || {
            let (owner, gap) = (reader.uint(owner_bytes)?, reader.u16()?);
            after = if gap == FAR { None } else { after.and_then(|after| after.checked_sub(gap.into())) };
            Some(Earlier { owner, seq: after })
        })
    }

    /// The segments that were erased and not yet used when the page was programmed, with their erase counts.
    pub fn ledger<'a>(layout: &Layout, bytes: &'a [u8]) -> impl Iterator<Item = (SegmentId, u32)> + use<'a> {
        let ledger = &bytes[..layout.window_at()];
        let ledger = &ledger[ledger.len() - usize::from(layout.ledger) * 8..];
        let mut reader = Reader::new(ledger);
        let entries = core::iter::from_fn(move || Some((SegmentId(reader.u32()?), reader.u32()?)));
        entries.filter(|(segment, _)| segment.0 != NO_SEGMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::U48_MAX;
    use margay_flash::Geometry;

    const PPN: Ppn = Ppn(0x0012_3456);

    fn tag() -> Tag {
        let page = PageInfo {
            owner: 4711,
            seq: 1 << 40 | 9,
            version: 77,
            time_us: 1 << 45,
            heat: 0xDEAD_BEEF,
            heat_kind: 2,
            lost: true,
        };
        let segment =
            SegmentInfo { erases: 5, total_erases: 1000, stream: 3, opened_us: 12, opened_writes: (1 << 48) - 1 };
        Tag { kind: PageKind::Data, page, segment, data_crc: 0x0102_0304, window: 2, skipped: 21 }
    }

    fn encoded() -> (Layout, [u8; 256]) {
        let layout = Layout::new(&Geometry::new(9, 32, 4096).unwrap().with_spare(256), 60_000).unwrap();
        let mut bytes = [0xFF; 256];
        tag().encode(&layout, PPN, &[(SegmentId(8), 6)], &[(5, (1 << 40) - 70_000), (6, 1 << 40)], &mut bytes);
        (layout, bytes)
    }

    #[test]
    fn what_is_written_is_read_with_ledger_and_window() {
        let (layout, bytes) = encoded();
        assert_eq!(Tag::decode(&layout, PPN, &bytes), Decoded::Tag(tag()));
        let earlier: alloc::vec::Vec<_> = tag().earlier(&layout, &bytes).collect();
        assert_eq!(earlier, [Earlier { owner: 6, seq: Some(1 << 40) }, Earlier { owner: 5, seq: None }]);
        let ledger: alloc::vec::Vec<_> = Tag::ledger(&layout, &bytes).collect();
        assert_eq!(ledger, [(SegmentId(8), 6)]);
    }

    #[test]
    fn the_largest_numbers_are_read_as_written_and_larger_ones_as_the_largest() {
        let geometry = Geometry::new(9, 32, 4096).unwrap().with_spare(256);
        // Two bytes are enough for 65,536 owners, eight for all.
        for (owners, owner) in [(1 << 16, (1 << 16) - 1), (u64::MAX, u64::MAX)] {
            let layout = Layout::new(&geometry, owners).unwrap();
            let page = PageInfo {
                owner,
                seq: U48_MAX,
                version: U48_MAX,
                time_us: U48_MAX,
                heat: u32::MAX,
                heat_kind: 3,
                lost: true,
            };
            let segment = SegmentInfo {
                erases: u32::MAX,
                total_erases: u32::MAX.into(),
                stream: u8::MAX,
                opened_us: U48_MAX,
                opened_writes: U48_MAX,
            };
            let tag = Tag { kind: PageKind::Data, page, segment, data_crc: u32::MAX, window: 3, skipped: 31 };
            let before = [(owner, 0), (owner, U48_MAX - 1 - 0xFFFE), (owner, U48_MAX - 1)];
            let ledger = [(SegmentId(u32::MAX - 1), u32::MAX)];
            let mut bytes = [0xFF; 256];
            tag.encode(&layout, PPN, &ledger, &before, &mut bytes);
            assert_eq!(Tag::decode(&layout, PPN, &bytes), Decoded::Tag(tag), "{owners} owners");
            let seqs: alloc::vec::Vec<_> = tag.earlier(&layout, &bytes).map(|earlier| earlier.seq).collect();
            assert_eq!(seqs, [Some(U48_MAX - 1), Some(U48_MAX - 1 - 0xFFFE), None]);
            assert!(tag.earlier(&layout, &bytes).all(|earlier| earlier.owner == owner));
            assert!(Tag::ledger(&layout, &bytes).eq(ledger));

            let over = SegmentInfo { total_erases: u64::MAX, opened_us: 1 << 48, opened_writes: u64::MAX, ..segment };
            let over = Tag { page: PageInfo { version: 1 << 48, time_us: u64::MAX, ..page }, segment: over, ..tag };
            over.encode(&layout, PPN, &ledger, &before, &mut bytes);
            assert_eq!(Tag::decode(&layout, PPN, &bytes), Decoded::Tag(tag), "larger ones are not small ones");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_corrected() {
        let (layout, bytes) = encoded();
        for bit in 0..layout.tag_bytes() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tag::decode(&layout, PPN, &damaged), Decoded::Damaged, "bit {bit}");
            assert_eq!(Tag::repair(&layout, PPN, &mut damaged), Some(tag()), "bit {bit}");
            assert_eq!(damaged, bytes);
        }
    }

    fn short() -> Layout {
        let layout = Layout::new(&Geometry::new(16, 64, 2048).unwrap().with_spare(34), 1 << 48).unwrap();
        assert!(layout.has_short_tags);
        layout
    }

    /// A short tag has no time and heat.
    fn without_time(tag: Tag) -> Tag {
        let page = PageInfo { time_us: 0, heat: 0, heat_kind: 0, ..tag.page };
        Tag { page, window: 0, ..tag }
    }

    #[test]
    fn short_tags_say_all_of_a_page_and_eight_in_a_row_all_of_the_segment() {
        let layout = short();
        let largest = PageInfo { owner: U48_MAX, seq: U48_MAX, version: U48_MAX, lost: true, ..PageInfo::default() };
        let info = SegmentInfo {
            erases: 0xFF_FFFF,
            total_erases: u32::MAX.into(),
            stream: u8::MAX,
            opened_us: U48_MAX,
            opened_writes: U48_MAX,
        };
        let most =
            Tag { kind: PageKind::Anchor, page: largest, segment: info, data_crc: u32::MAX, window: 0, skipped: 31 };
        for tag in [tag(), most] {
            let mut segment = None::<SegmentInfo>;
            for ppn in (37..45).map(Ppn) {
                let mut bytes = [0xFF; SHORT_TAG_BYTES];
                tag.encode(&layout, ppn, &[], &[(4711, 1 << 40)], &mut bytes);
                let Decoded::Tag(read) = Tag::decode(&layout, ppn, &bytes) else { panic!("page {ppn}") };
                assert_eq!(Tag { segment: tag.segment, ..read }, without_time(tag));
                assert_eq!(read.segment.erases > 0, [0, 7].contains(&(ppn.0 % 8)), "a part of page {ppn}");
                segment = Some(segment.map_or(read.segment, |before| before.and(read.segment)));
                assert_eq!((read.earlier(&layout, &bytes).count(), Tag::ledger(&layout, &bytes).count()), (0, 0));
            }
            assert_eq!(segment, Some(tag.segment));
        }
        let over = SegmentInfo { erases: 1 << 24, ..info };
        let mut bytes = [0xFF; SHORT_TAG_BYTES];
        Tag { segment: over, ..most }.encode(&layout, Ppn(8), &[], &[], &mut bytes);
        let Decoded::Tag(read) = Tag::decode(&layout, Ppn(8), &bytes) else { panic!("no tag") };
        assert_eq!(read.segment.erases, 0xFF_FFFF, "larger ones are not small ones");
    }

    #[test]
    fn every_flipped_bit_of_a_short_tag_and_every_other_place_is_noticed() {
        let layout = short();
        let mut bytes = [0xFF; SHORT_TAG_BYTES];
        assert_eq!(Tag::decode(&layout, PPN, &bytes), Decoded::Erased);
        assert_eq!(Tag::decode(&layout, PPN, &[0; SHORT_TAG_BYTES]), Decoded::Void);
        tag().encode(&layout, PPN, &[], &[], &mut bytes);
        let whole = Tag::decode(&layout, PPN, &bytes);
        for bit in 0..SHORT_TAG_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tag::decode(&layout, PPN, &damaged), Decoded::Damaged, "bit {bit}");
            assert_eq!(Tag::repair(&layout, PPN, &mut damaged).map(Decoded::Tag), Some(whole), "bit {bit}");
        }
        for bits in (0..32).flat_map(|one| (0..=one).map(move |other| 1u32 << one | 1 << other)) {
            let elsewhere = Ppn(PPN.0 ^ bits);
            assert_eq!(Tag::decode(&layout, elsewhere, &bytes), Decoded::Damaged, "{bits:x}");
            assert_eq!(Tag::repair(&layout, elsewhere, &mut bytes.clone()), None, "{bits:x}");
        }
        bytes[1] = (VERSION + 1) << 4 | 1;
        let crc = Tag::short_crc(PPN, &bytes).to_le_bytes();
        bytes[SHORT_TAG_BYTES - 4..].copy_from_slice(&crc);
        assert_eq!(Tag::decode(&layout, PPN, &bytes), Decoded::Newer(VERSION + 1));
    }

    #[test]
    fn erased_and_newer_tags_are_told_apart() {
        let (layout, mut bytes) = encoded();
        assert_eq!(Tag::decode(&layout, PPN, &[0xFF; 256]), Decoded::Erased);
        assert_eq!(Tag::decode(&layout, PPN, &[0; 256]), Decoded::Void);
        bytes[1] = (VERSION + 1) << 4 | 2;
        let crc = Tag::crc(&layout, PPN, &bytes[..layout.tag_bytes()]).to_le_bytes();
        bytes[CRC_AT..TAG_BYTES].copy_from_slice(&crc);
        assert_eq!(Tag::decode(&layout, PPN, &bytes), Decoded::Newer(VERSION + 1));
    }

    #[test]
    fn the_tag_of_another_page_is_damaged_and_no_flipped_bit_explains_it() {
        let geometry = Geometry::new(16, 64, 4096).unwrap().with_spare(256);
        let layout = Layout::new(&geometry, 1000).unwrap();
        let mut bytes = [0; 256];
        tag().encode(&layout, PPN, &[], &[], &mut bytes);
        for bits in (0..32).flat_map(|one| (0..=one).map(move |other| 1u32 << one | 1 << other)) {
            let elsewhere = Ppn(PPN.0 ^ bits);
            assert_eq!(Tag::decode(&layout, elsewhere, &bytes), Decoded::Damaged, "{bits:x}");
            assert_eq!(Tag::repair(&layout, elsewhere, &mut bytes.clone()), None, "{bits:x}");
        }
        let before = Layout { names_place: false, ..layout };
        tag().encode(&before, PPN, &[], &[], &mut bytes);
        assert!(matches!(Tag::decode(&before, Ppn(1), &bytes), Decoded::Tag(_)), "as it was before");
    }
}

//! The anchor: segment 0 of devices that cannot be programmed byte by byte. Page 0 holds the superblock, the pages
//! behind it records, of which the last one counts. On NOR the record is the last page of the checkpoint.

use crate::bytes::{PutBytes, Reader, U48_MAX};
use crate::crc::crc32c;
use crate::formatted::Formatted;
use crate::shown::{PAIRED_SPARE_BYTES, pairs_geometry};
use crate::store::Store;
use crate::superblock::{Superblock, SuperblockError};
use crate::tag::{Decoded, PageInfo, PageKind, SegmentInfo};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, SegmentId};

const MAGIC: &[u8; 4] = b"MGRC";
/// Owner of the record page in a checkpoint.
pub(crate) const RECORD_OWNER: u64 = 0xFFFF;

/// What an anchor's record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The device is in use; earlier records no longer hold.
    InUse,
    /// The device was stopped cleanly, with this checkpoint.
    Stopped(CheckpointAt),
}

/// Where a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointAt {
    /// Sequence number of the last program before it.
    pub seq: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// CRC-32C of its bytes.
    pub crc: u32,
    /// The segments that hold it, in order, from their first data page on.
    pub segments: Vec<SegmentId>,
}

impl Record {
    /// Writes the record into a page.
    pub fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        let mut rest = &mut *page;
        rest.put(MAGIC);
        rest.put_u32(0); // the CRC's place
        match self {
            Self::InUse => rest.put_u32(1),
            Self::Stopped(at) => {
                rest.put_u32(2);
                rest.put_uint(at.seq, 8);
                rest.put_uint(at.len_bytes, 8);
                rest.put_u32(at.crc);
                rest.put_u32(at.segments.len() as u32);
                at.segments.iter().for_each(|segment| rest.put_u32(segment.0));
            }
        }
        let crc = crc32c(&page[8..]).to_le_bytes();
        page[4..8].copy_from_slice(&crc);
    }

    /// Reads a record of a device of `segments` segments; `None` if the page holds none that is whole.
    pub fn decode(page: &[u8], segments: u32) -> Option<Self> {
        let mut reader = Reader::new(page);
        if reader.take(4)? != MAGIC || reader.u32()? != crc32c(reader.rest()) {
            return None;
        }
        match reader.u32()? {
            1 => Some(Self::InUse),
            2 => {
                let (seq, len_bytes, crc) = (reader.u64()?, reader.u64()?, reader.u32()?);
                let segments = reader.segments(segments)?;
                (seq <= U48_MAX).then_some(Self::Stopped(CheckpointAt { seq, len_bytes, crc, segments }))
            }
            _ => None,
        }
    }

    /// The largest number of segments that a checkpoint may take with pages of this size.
    pub const fn max_segments(page_bytes: u32) -> u32 {
        (page_bytes - 40) / 4
    }
}

/// The anchor of a device, and where its next record goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// The next page; 0 if the anchor has to be written anew.
    next: u32,
    erases: u32,
    seq: u64,
    /// Programs or erases of it failed: the device is always mounted by scanning.
    broken: bool,
}

impl Anchor {
    /// That of a device that is formatted, whose first segment was erased so often before.
    pub fn new(erases: u32) -> Self {
        Self { erases, ..Self::default() }
    }

    /// Whether it was given up because a program or an erase of it failed.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Erases of its segment.
    pub fn erases(&self) -> u32 {
        self.erases
    }
}

impl<F: Flash> Formatted<F> {
    /// Reads the anchor. Returns it, its last record if that is whole and nothing is behind it, and the number of reads.
    pub fn read_anchor(&mut self) -> Result<(Anchor, Option<Record>, u32), FlashError> {
        let found = self.scan_segment(SegmentId(0), None)?;
        let mut reads = found.reads;
        let info = found.info.unwrap_or_default();
        let mut anchor = Anchor { next: 0, erases: info.erases, seq: 0, broken: false };
        let whole = found.pages.last().is_some_and(|page| page.ppn == Ppn(0)) && found.damaged.is_empty();
        let Some(last) = found.pages.first().filter(|_| whole) else { return Ok((anchor, None, reads)) };
        anchor.next = found.next.0;
        anchor.seq = last.seq;
        let pages: Vec<_> = found.pages.iter().rev().map(|page| (page.owner, page.seq)).collect();
        self.resume(SegmentId(0), info, &pages);
        let mut page = vec![0; self.geometry.page_bytes() as usize];
        reads += 1;
        let record = match self.read_tagged(last.ppn, &mut page) {
            Ok((Decoded::Tag(tag), _)) if tag.kind == PageKind::Anchor && tag.data_crc == crc32c(&page) => {
                Record::decode(&page, self.geometry.segments())
            }
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok((anchor, record, reads))
    }

    /// Erases the anchor and writes it again, with the record that the device is in use.
    pub fn renew_anchor(&mut self, anchor: &mut Anchor, superblock: &Superblock) -> Result<(), FlashError> {
        anchor.next = 0;
        self.write_anchor(anchor, superblock, &Record::InUse)
    }

    /// Appends a record; an anchor that is full is erased and written again first. One that fails is given up, which is
    /// no error: the device is then always mounted by scanning.
    pub fn write_anchor(
        &mut self,
        anchor: &mut Anchor,
        superblock: &Superblock,
        record: &Record,
    ) -> Result<(), FlashError> {
        if anchor.broken || self.layout.reserved_segments == 0 {
            return Ok(());
        }
        match self.try_write_anchor(anchor, superblock, record) {
            Err(
                FlashError::ProgramFailed { .. } | FlashError::EraseFailed { .. } | FlashError::NumbersSpent { .. },
            ) => {
                anchor.broken = true;
                Ok(())
            }
            result => result,
        }
    }

    fn try_write_anchor(
        &mut self,
        anchor: &mut Anchor,
        superblock: &Superblock,
        record: &Record,
    ) -> Result<(), FlashError> {
        if anchor.seq + 2 > U48_MAX {
            return Err(FlashError::NumbersSpent { ppn: Ppn(0) });
        }
        let mut page = vec![0; self.geometry.page_bytes() as usize];
        if anchor.next == 0 || anchor.next >= self.layout.anchor_pages(&self.geometry) {
            let erases = anchor.erases.saturating_add(1);
            let info = SegmentInfo { erases, ..SegmentInfo::default() };
            Store::sync(self)?;
            self.durable.touch();
            self.device.erase(SegmentId(0))?;
            anchor.erases = erases;
            self.begin_kind(PageKind::Anchor, SegmentId(0), info)?;
            let bytes = superblock.encode().expect("a superblock that was encoded once can be encoded again");
            page[..bytes.len()].copy_from_slice(&bytes);
            anchor.next = 0;
            self.append_anchor(anchor, &page)?;
        }
        record.encode(&mut page);
        self.append_anchor(anchor, &page)?;
        Store::sync(self)
    }

    fn append_anchor(&mut self, anchor: &mut Anchor, page: &[u8]) -> Result<(), FlashError> {
        anchor.seq += 1;
        let info = PageInfo { owner: anchor.next.into(), seq: anchor.seq, ..PageInfo::default() };
        self.program_kind(PageKind::Anchor, Ppn(anchor.next), page, info)?;
        anchor.next += 1;
        Ok(())
    }
}

/// Finds the superblock of a device: on page 0, in the segment headers (NOR), or in the copy among the data.
/// `owner_of_copy` says, for a superblock, which owner its copy has and how many owners there are.
pub fn find_superblock<F: Flash>(
    device: &mut F,
    owner_of_copy: impl Fn(&Superblock) -> (u64, u64),
) -> Result<Superblock, FindError> {
    let geometry = *device.geometry();
    let mut page = vec![0; geometry.page_bytes() as usize];
    let mut why = SuperblockError::NotMargay;
    if geometry.is_byte_programmable() {
        let mut bytes = [0; crate::SUPERBLOCK_BYTES];
        for segment in 0..geometry.segments() {
            let header = geometry.first_page(SegmentId(segment));
            match device.read_part(header, crate::Layout::HEADER_SUPERBLOCK, &mut bytes) {
                Ok(_) => {}
                Err(FlashError::Uncorrectable { .. }) => continue,
                Err(error) => return Err(FindError::Flash(error)),
            }
            match Superblock::decode(&bytes) {
                Ok(superblock) => return check_shape(superblock, &geometry),
                Err(SuperblockError::NotMargay) => {}
                Err(error) => why = error,
            }
        }
        return Err(FindError::Superblock(why));
    }
    match device.read(Ppn(0), &mut page, &mut []) {
        Ok(_) => match Superblock::decode(&page) {
            Ok(superblock) => return check_shape(superblock, &geometry),
            Err(error @ (SuperblockError::Newer { .. } | SuperblockError::UnknownFeatures { .. })) => {
                return Err(FindError::Superblock(error));
            }
            Err(error) => why = error,
        },
        Err(FlashError::Uncorrectable { .. }) => why = SuperblockError::Damaged,
        Err(error) => return Err(FindError::Flash(error)),
    }
    // The anchor was being written when the power failed, or is broken.
    for ppn in (0..geometry.pages()).map(Ppn) {
        match device.read(ppn, &mut page, &mut []) {
            Ok(_) => {}
            Err(FlashError::Uncorrectable { .. }) => continue,
            Err(error) => return Err(FindError::Flash(error)),
        }
        let Ok(superblock) = Superblock::decode(&page) else { continue };
        let superblock = match check_shape(superblock, &geometry) {
            Ok(superblock) => superblock,
            Err(FindError::Superblock(error)) => {
                // Nothing proves this one, but it says more than that there is none.
                if why == SuperblockError::NotMargay {
                    why = error;
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        // Data of a user may look like one; only its own tag proves it.
        let (owner, owners) = owner_of_copy(&superblock);
        let Ok(encoded) = superblock.encode() else { continue };
        let Ok(mut formatted) = Formatted::new(&mut *device, owners, encoded) else { continue };
        let Some(ppn) = formatted.device.shown_page(ppn) else { continue };
        match formatted.read_tagged(ppn, &mut []) {
            Ok((Decoded::Tag(tag), _)) if tag.page.owner == owner && tag.data_crc == crc32c(&page) => {
                return Ok(superblock);
            }
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {}
            Err(error) => return Err(FindError::Flash(error)),
        }
    }
    Err(FindError::Superblock(why))
}

/// Whether a device of this shape can be what the superblock was written for: as it is, or in pairs.
fn check_shape(superblock: Superblock, geometry: &Geometry) -> Result<Superblock, FindError> {
    let formatted = superblock.geometry;
    if formatted == *geometry || pairs_geometry(geometry) == Some(formatted) {
        return Ok(superblock);
    }
    let is_paired = formatted.spare_bytes() == PAIRED_SPARE_BYTES;
    let found = pairs_geometry(geometry).filter(|_| is_paired).unwrap_or(*geometry);
    Err(FindError::Superblock(SuperblockError::OtherShape { formatted, found }))
}

/// Why no superblock was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindError {
    /// There is none that can be used.
    Superblock(SuperblockError),
    /// The device failed.
    Flash(FlashError),
}

impl core::fmt::Display for FindError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Superblock(error) => error.fmt(f),
            Self::Flash(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FindError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written_and_damage_is_noticed() {
        let stopped = Record::Stopped(CheckpointAt {
            seq: 1 << 40,
            len_bytes: 70_000,
            crc: 7,
            segments: vec![SegmentId(3), SegmentId(9)],
        });
        let mut page = [0; 512];
        for record in [Record::InUse, stopped] {
            record.encode(&mut page);
            assert_eq!(Record::decode(&page, 10), Some(record));
            for bit in 0..page.len() * 8 {
                page[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::decode(&page, 10), None);
                page[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(Record::decode(&page, 9), None, "a segment past the end");
    }
}

//! Pages of a checkpoint on flash: a stream of bytes in segments of their own.

use crate::anchor::{CheckpointAt, RECORD_OWNER, Record};
use crate::crc::crc32c;
use crate::formatted::Formatted;
use crate::layout::Place;
use crate::scan::OpenedAt;
use crate::store::Store;
use crate::tag::{Decoded, PageInfo, PageKind, SegmentInfo};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Ppn, SegmentId};

impl<F: Flash> Formatted<F> {
    /// Pages that a checkpoint of `len_bytes` bytes takes, including its record where the device has no anchor.
    pub fn checkpoint_pages(&self, len_bytes: usize) -> u32 {
        len_bytes.div_ceil(self.geometry.page_bytes() as usize) as u32 + u32::from(self.layout.reserved_segments == 0)
    }

    fn checkpoint_place(&self, segments: &[SegmentId], index: u32) -> Option<Ppn> {
        let data_pages = self.layout.data_pages(&self.geometry);
        let segment = segments.get((index / data_pages) as usize)?;
        Some(Ppn(self.geometry.first_page(*segment).0 + self.layout.header_pages + index % data_pages))
    }

    /// Writes a checkpoint to erased segments; with each comes what is kept on flash of it. Returns where it is.
    pub fn write_checkpoint(
        &mut self,
        bytes: &[u8],
        seq: u64,
        segments: &[(SegmentId, SegmentInfo)],
    ) -> Result<CheckpointAt, FlashError> {
        let ids: Vec<_> = segments.iter().map(|(id, _)| *id).collect();
        let at = CheckpointAt { seq, len_bytes: bytes.len() as u64, crc: crc32c(bytes), segments: ids.clone() };
        for (id, info) in segments {
            self.begin_kind(PageKind::Checkpoint, *id, *info)?;
        }
        let page_bytes = self.geometry.page_bytes() as usize;
        let mut page = vec![0; page_bytes];
        let put = |store: &mut Self, index: u32, owner: u64, page: &[u8]| {
            let ppn =
                store.checkpoint_place(&ids, index).expect("a checkpoint fits the segments that were counted for it");
            let info = PageInfo { owner, seq: seq + 1 + u64::from(index), ..PageInfo::default() };
            store.program_kind(PageKind::Checkpoint, ppn, page, info)
        };
        let mut count = 0;
        for chunk in bytes.chunks(page_bytes) {
            page[..chunk.len()].copy_from_slice(chunk);
            page[chunk.len()..].fill(0);
            put(self, count, u64::from(count % 0xFFFF), &page)?;
            count += 1;
        }
        if self.layout.reserved_segments == 0 {
            Record::Stopped(at.clone()).encode(&mut page);
            put(self, count, RECORD_OWNER, &page)?;
        }
        for (id, _) in segments {
            self.finish(*id, Ppn(0))?;
        }
        if let Some((summaries, _)) = self.device.summaries() {
            summaries.settle();
        }
        Store::sync(self)?;
        Ok(at)
    }

    /// Reads a checkpoint. Returns its bytes, `None` if it is not whole, and the number of reads.
    pub fn read_checkpoint(&mut self, at: &CheckpointAt) -> Result<(Option<Vec<u8>>, u32), FlashError> {
        let page_bytes = u64::from(self.geometry.page_bytes());
        let pages = at.len_bytes.div_ceil(page_bytes);
        if pages > at.segments.len() as u64 * u64::from(self.geometry.pages_per_segment()) {
            return Ok((None, 0));
        }
        // A checkpoint that memory has no room for counts as none: the device was stopped on a larger machine.
        let mut bytes: Vec<u8> = Vec::new();
        if usize::try_from(pages * page_bytes).map_or(true, |len| bytes.try_reserve_exact(len).is_err()) {
            return Ok((None, 0));
        }
        for index in 0..pages as u32 {
            let Some(ppn) = self.checkpoint_place(&at.segments, index) else { return Ok((None, index)) };
            let start = bytes.len();
            bytes.resize(start + page_bytes as usize, 0);
            match self.read_tagged(ppn, &mut bytes[start..]) {
                Ok((Decoded::Tag(tag), _)) if tag.kind == PageKind::Checkpoint => {}
                Ok(_) | Err(FlashError::Uncorrectable { .. }) => return Ok((None, index + 1)),
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(at.len_bytes as usize);
        let whole = crc32c(&bytes) == at.crc;
        Ok((whole.then_some(bytes), pages as u32))
    }

    /// Looks for the record of a clean stop in the segments of checkpoints (NOR). Returns the latest one, `None` also if a
    /// segment was opened after the stop, and the number of reads of parts and pages.
    pub fn find_record(&mut self) -> Result<(Option<CheckpointAt>, u32), FlashError> {
        if self.layout.place != Place::Table {
            return Ok((None, 0));
        }
        let (mut found, mut reads) = (None, 0);
        let mut opened = Vec::new();
        let mut page = vec![0; self.geometry.page_bytes() as usize];
        for segment in (0..self.geometry.segments()).map(SegmentId) {
            reads += 1;
            let record_opened = match self.segment_opened(segment)? {
                Some((PageKind::Checkpoint, at)) => at,
                Some((_, at)) => {
                    opened.push(at);
                    continue;
                }
                None => continue,
            };
            let scan = self.scan_segment(segment, None)?;
            reads += scan.reads;
            let Some(last) = scan.pages.first().filter(|page| page.owner == RECORD_OWNER) else { continue };
            reads += 1;
            match self.read_tagged(last.ppn, &mut page) {
                Ok((Decoded::Tag(tag), _)) if tag.data_crc == crc32c(&page) => {}
                Ok(_) | Err(FlashError::Uncorrectable { .. }) => continue,
                Err(error) => return Err(error),
            }
            if let Some(Record::Stopped(at)) = Record::decode(&page, self.geometry.segments())
                && found.as_ref().is_none_or(|(best, _): &(CheckpointAt, OpenedAt)| best.seq < at.seq)
            {
                found = Some((at, record_opened));
            }
        }
        // The low bits tell up to 2^31 programs apart; before that many, every segment was erased more than once. After an
        // unclean end the device's erases may be known too low, but not by so many.
        let max_erases = u64::from(self.geometry.segments());
        let is_outdated = |(at, record): &(CheckpointAt, OpenedAt)| {
            opened.iter().any(|segment| {
                (segment.seq.wrapping_sub(at.seq as u32) as i32) > 0
                    || segment.total_erases > record.total_erases + max_erases
            })
        };
        Ok((found.filter(|found| !is_outdated(found)).map(|(at, _)| at), reads))
    }

    /// Erases the record that [`Formatted::find_record`] found, so that the next mount does not use its checkpoint. False
    /// if its segment cannot be erased.
    pub fn forget_record(&mut self, at: &CheckpointAt) -> Result<bool, FlashError> {
        let index = at.len_bytes.div_ceil(u64::from(self.geometry.page_bytes())) as u32;
        let Some(ppn) = self.checkpoint_place(&at.segments, index) else { return Ok(true) };
        let segment = self.geometry.segment_of(ppn);
        self.erase_if_it_can_be(segment)
    }

    /// Erases a segment of a checkpoint; false if it has failed for good.
    pub fn erase_if_it_can_be(&mut self, segment: SegmentId) -> Result<bool, FlashError> {
        self.durable.touch();
        match self.device.erase(segment) {
            Ok(()) => Ok(true),
            Err(FlashError::EraseFailed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_flash::{Geometry, ReadStatus};
    use margay_media::RamFlash;

    /// The largest chip that there can be, and nothing can be read of it.
    struct Unreadable(Geometry);

    impl Flash for Unreadable {
        fn geometry(&self) -> &Geometry {
            &self.0
        }
        fn read(&mut self, _: Ppn, _: &mut [u8], _: &mut [u8]) -> Result<ReadStatus, FlashError> {
            Err(FlashError::PowerLost)
        }
        fn program(&mut self, _: Ppn, _: &[u8], _: &[u8]) -> Result<(), FlashError> {
            Err(FlashError::PowerLost)
        }
        fn erase(&mut self, _: SegmentId) -> Result<(), FlashError> {
            Err(FlashError::PowerLost)
        }
    }

    #[test]
    fn a_record_that_stayed_on_flash_does_not_count_again_after_2_to_the_31_programs() {
        let geometry = Geometry::new(8, 18, 512).unwrap().byte_programmable();
        for (later, erases, counts) in
            [(0, 0, true), (5, 0, false), (1 << 31, 200_000_000, false), (1 << 32, 400_000_000, false)]
        {
            let device = RamFlash::new(geometry);
            let mut device = Formatted::new(device, 1, [0; crate::SUPERBLOCK_BYTES]).unwrap();
            let info = SegmentInfo { erases: 3, total_erases: 30, ..SegmentInfo::default() };
            let written = device.write_checkpoint(b"all", 1000, &[(SegmentId(2), info)]).unwrap();
            device.last_seq = written.seq + later;
            let info = SegmentInfo { total_erases: 30 + erases, ..info };
            device.begin_kind(PageKind::Data, SegmentId(5), info).unwrap();
            assert_eq!(device.find_record().unwrap().0, counts.then_some(written), "{later} programs later");
        }
    }

    #[test]
    fn a_checkpoint_that_memory_has_no_room_for_is_not_read() {
        let geometry = Geometry::new(0xFFFF, 0x1_0000, 0x1_0000).unwrap().with_spare(64);
        let mut device = Formatted::new(Unreadable(geometry), 1, [0; crate::SUPERBLOCK_BYTES]).unwrap();
        let at = |len_bytes| CheckpointAt {
            seq: 0,
            len_bytes,
            crc: 0,
            segments: (0..geometry.segments()).map(SegmentId).collect(),
        };
        assert_eq!(device.read_checkpoint(&at(geometry.bytes())), Ok((None, 0)));
        assert_eq!(device.read_checkpoint(&at(1)), Err(FlashError::PowerLost), "a small one is read");
    }
}

use crate::bytes::{PutBytes, Reader, U48_MAX};
use crate::crc::crc32c;
use crate::durable::Durable;
use crate::layout::{Layout, LayoutError, Place, VERSION};
use crate::shown::Shown;
use crate::store::{Copied, Store};
use crate::summaries::LentSegment;
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::tag::{Decoded, PageInfo, PageKind, SegmentInfo, Tag};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

const ERASED_MARK: u8 = 0x65;
const OPENED_MARK: u8 = 0x6F;
/// Offset of the mark of opening in a segment header (NOR).
const OPENED_AT: u32 = 16;
/// Bytes of both marks together.
pub(crate) const MARKS_BYTES: usize = 48;

/// Stands in a window for a page that was given up: no distance leads to it, so that its own tag is read.
const GIVEN_UP: (u64, u64) = (0, U48_MAX);

/// A segment that is being filled.
#[derive(Debug)]
struct Filling {
    segment: SegmentId,
    info: SegmentInfo,
    /// Owner and sequence number of its pages so far.
    pages: Vec<(u64, u64)>,
}

/// A device in margay's format.
#[derive(Debug)]
pub struct Formatted<F> {
    pub(crate) device: Shown<F>,
    pub(crate) geometry: Geometry,
    pub(crate) layout: Layout,
    superblock: [u8; SUPERBLOCK_BYTES],
    /// Erases of each segment before the device is formatted; empty for a new one.
    erases_before: Vec<u32>,
    filling: Vec<Filling>,
    /// Lists of pages of segments that are filled no more, to be used again.
    unused_lists: Vec<Vec<(u64, u64)>>,
    /// Segments that were erased and are not in use, latest first, with their erases.
    ledger: Vec<(SegmentId, u32)>,
    /// Sequence number of the last program that succeeded.
    pub(crate) last_seq: u64,
    pub(crate) durable: Durable,
    pub(crate) spare: Vec<u8>,
    scratch: Vec<u8>,
    /// Spare areas of pages that are read together.
    spares: Vec<u8>,
    /// Single flipped bits of tags that were corrected.
    pub(crate) repaired_tags: u64,
}

/// The marks at the start of a segment header (NOR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Erase count of the segment and erases of the device, if the mark of erasing is whole.
    pub erased: Option<(u32, u64)>,
    /// Whether any byte is not erased.
    pub touched: bool,
    /// What the segment was opened for, if the mark of opening is whole.
    pub opened: Option<(PageKind, SegmentInfo)>,
    /// The low 32 bits of the sequence number of the last program before that.
    pub opened_seq: u32,
}

impl Marks {
    pub fn decode(bytes: &[u8]) -> Self {
        let touched = bytes.iter().any(|byte| *byte != 0xFF);
        let (erased, opened) = bytes.split_at(OPENED_AT as usize);
        let opened = Self::decode_opened(opened);
        Self {
            erased: Self::decode_erased(erased),
            touched,
            opened: opened.map(|(kind, info, _)| (kind, info)),
            opened_seq: opened.map_or(0, |(.., seq)| seq),
        }
    }

    /// Reads the mark of erasing: erase count of the segment and erases of the device.
    fn decode_erased(bytes: &[u8]) -> Option<(u32, u64)> {
        let mut reader = Reader::new(bytes);
        let (magic, _, erases, total_erases) = (reader.u8()?, reader.take(3)?, reader.u32()?, reader.uint(4)?);
        (magic == ERASED_MARK && reader.u32()? == crc32c(&bytes[..12])).then_some((erases, total_erases))
    }

    fn decode_opened(bytes: &[u8]) -> Option<(PageKind, SegmentInfo, u32)> {
        let mut reader = Reader::new(bytes);
        let (magic, _, kind, stream) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        let (erases, opened_us, opened_writes) = (reader.u32()?, reader.uint(6)?, reader.uint(6)?);
        let (total_erases, opened_seq) = (reader.uint(4)?, reader.u32()?);
        if magic != OPENED_MARK || reader.u32()? != crc32c(&bytes[..28]) {
            return None;
        }
        let kind = if kind == PageKind::Checkpoint as u8 { PageKind::Checkpoint } else { PageKind::Data };
        Some((kind, SegmentInfo { erases, total_erases, stream, opened_us, opened_writes }, opened_seq))
    }
}

impl<F: Flash> Formatted<F> {
    /// Uses a device with the layout for `owners` different owners. `superblock` says whether its pages are in pairs, and is
    /// copied into each segment header of a byte-programmable device.
    pub fn new(device: F, owners: u64, superblock: [u8; SUPERBLOCK_BYTES]) -> Result<Self, LayoutError> {
        let known = Superblock::decode(&superblock).map(|superblock| (superblock.geometry, superblock.uuid));
        let (shape, uuid) = known.unwrap_or_else(|_| (*device.geometry(), [0; 16]));
        let device = Shown::new(device, &shape, uuid);
        let geometry = *device.geometry();
        let layout = Layout::new(&geometry, owners)?;
        let layout = Layout { names_place: Superblock::names_place(&superblock), ..layout };
        let tag_bytes = layout.tag_bytes();
        let durable = Durable::new(device.is_cached());
        Ok(Self {
            durable,
            device,
            geometry,
            layout,
            superblock,
            erases_before: Vec::new(),
            filling: Vec::new(),
            unused_lists: Vec::new(),
            ledger: Vec::with_capacity(usize::from(layout.ledger) * 4 + 1),
            last_seq: 0,
            spare: vec![0xFF; tag_bytes],
            scratch: vec![0; geometry.page_bytes() as usize],
            spares: Vec::new(),
            repaired_tags: 0,
        })
    }

    /// The same device, whose segments were erased so often before it is formatted.
    pub fn used_before(self, erases: Vec<u32>) -> Self {
        Self { erases_before: erases, ..self }
    }

    /// Erases of each segment before the device is formatted, by number; empty for a new one.
    pub fn erases_before(&self) -> &[u32] {
        &self.erases_before
    }

    /// The mark of a device that is cached: up to this sequence number everything is on flash as it was programmed.
    pub fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        self.device.mark()
    }

    /// Whether the device is cached; see [`Flash::is_cached`].
    pub fn is_cached(&self) -> bool {
        self.durable.is_cached
    }

    /// Where everything lies on the device.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device.
    pub fn device(&self) -> &F {
        self.device.device()
    }

    /// What a mount has written was durable before, elsewhere, and need not be for a flush.
    pub fn note_start(&mut self) {
        if let Some((summaries, _)) = self.device.summaries() {
            summaries.note_start();
        }
    }

    /// The segments that are lent for journal pages, with their erases, as far as the device says so.
    pub fn find_lent(&mut self) -> Result<Vec<(SegmentId, u32)>, FlashError> {
        if let Some((summaries, device)) = self.device.summaries() {
            summaries.scan(device)?;
        }
        Ok(self.lent())
    }

    /// Tells the device of segments that are never used again and hold nothing that is needed. After a stop, when that is certain.
    pub fn give_up(&mut self, retired: &[SegmentId]) -> Result<(), FlashError> {
        retired.iter().try_for_each(|segment| self.device.retire(*segment))
    }

    /// The device, for its own operations.
    pub fn device_mut(&mut self) -> &mut F {
        self.device.device_mut()
    }

    /// Returns the device.
    pub fn into_device(self) -> F {
        self.device.into_device()
    }

    /// The bytes of the superblock.
    pub fn superblock(&self) -> &[u8; SUPERBLOCK_BYTES] {
        &self.superblock
    }

    /// Enters a segment that is erased and not in use into the ledger that the next tags carry.
    pub fn note_free(&mut self, segment: SegmentId, erases: u32) {
        self.ledger.insert(0, (segment, erases));
        self.ledger.truncate(usize::from(self.layout.ledger) * 4);
    }

    /// Sets the sequence number of the last program; a lower one than before is ignored.
    pub fn note_seq(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// Continues to fill a segment that holds these pages already (owner and sequence number).
    pub fn resume(&mut self, segment: SegmentId, info: SegmentInfo, pages: &[(u64, u64)]) {
        let mut list = self.unused_lists.pop().unwrap_or_default();
        list.extend(pages);
        self.filling.push(Filling { segment, info, pages: list });
    }

    /// Makes room for filling so many segments at a time, so that nothing is allocated for it later.
    pub fn reserve(&mut self, open_segments: usize) {
        let pages = self.geometry.pages_per_segment() as usize;
        let more = open_segments.saturating_sub(self.filling.len());
        self.filling.reserve_exact(more);
        for filling in &mut self.filling {
            filling.pages.reserve_exact(pages.saturating_sub(filling.pages.len()));
        }
        self.unused_lists.reserve_exact(open_segments);
        while self.unused_lists.len() < more {
            self.unused_lists.push(Vec::with_capacity(pages));
        }
    }

    /// A segment is filled no more.
    fn end_filling(&mut self, segment: SegmentId) {
        if let Some(at) = self.filling.iter().position(|filling| filling.segment == segment) {
            let mut pages = self.filling.swap_remove(at).pages;
            pages.clear();
            self.unused_lists.push(pages);
        }
    }

    /// Owner and sequence number of the pages of a segment that is being filled.
    pub fn filled(&self, segment: SegmentId) -> &[(u64, u64)] {
        self.filling.iter().find(|filling| filling.segment == segment).map_or(&[], |filling| &filling.pages)
    }

    /// Begins to fill an erased segment with pages of the given kind.
    pub fn begin_kind(&mut self, kind: PageKind, segment: SegmentId, info: SegmentInfo) -> Result<(), FlashError> {
        self.durable.check()?;
        self.durable.touch();
        self.ledger.retain(|(id, _)| *id != segment);
        self.end_filling(segment);
        self.resume(segment, info, &[]);
        if self.layout.place == Place::Table {
            let mut mark = [0xFF; MARKS_BYTES - OPENED_AT as usize];
            let mut rest = &mut mark[..];
            rest.put(&[OPENED_MARK, VERSION, kind as u8, info.stream]);
            rest.put_u32(info.erases);
            rest.put_u48(info.opened_us);
            rest.put_u48(info.opened_writes);
            rest.put_uint(info.total_erases.min(u64::from(u32::MAX)), 4);
            rest.put_uint(self.last_seq, 4);
            let crc = crc32c(&mark[..28]);
            mark[28..].copy_from_slice(&crc.to_le_bytes());
            let header = self.geometry.first_page(segment);
            self.device.program_part(header, OPENED_AT, &mark)?;
            self.device.program_part(header, Layout::HEADER_SUPERBLOCK, &self.superblock)?;
        }
        Ok(())
    }

    /// Programs a page of the given kind in a segment that was begun. [`FlashError::NumbersSpent`], with nothing
    /// programmed, if its numbers do not fit a tag: cut short they would be those of an older page.
    pub fn program_kind(&mut self, kind: PageKind, ppn: Ppn, data: &[u8], page: PageInfo) -> Result<(), FlashError> {
        self.put(kind, ppn, data, page, crc32c(data))
    }

    fn put(&mut self, kind: PageKind, ppn: Ppn, data: &[u8], page: PageInfo, data_crc: u32) -> Result<(), FlashError> {
        if page.seq.max(page.version) > U48_MAX {
            return Err(FlashError::NumbersSpent { ppn });
        }
        self.durable.check()?;
        if kind == PageKind::Data {
            self.keep_mark(page.seq)?;
        }
        let segment = self.geometry.segment_of(ppn);
        let at = self.filling.iter().position(|filling| filling.segment == segment);
        let at = at.expect("pages are programmed in segments that were begun");
        let filling = &self.filling[at];
        // The anchor counts its pages apart.
        let is_counted = kind != PageKind::Anchor;
        let skipped = page.seq.saturating_sub(self.last_seq + 1).min(Tag::MAX_SKIPPED.into());
        let skipped = if is_counted { skipped as u8 } else { 0 };
        let tag = Tag { kind, page, segment: filling.info, data_crc, window: 0, skipped };
        tag.encode(&self.layout, ppn, &self.ledger, &filling.pages, &mut self.spare);
        self.durable.begin(ppn);
        let programmed = match self.layout.place {
            Place::Spare => self.device.program(ppn, data, &self.spare),
            Place::Table => self.device.program(ppn, data, &[]).and_then(|()| {
                let (header, offset) = self.table_entry(ppn);
                self.device.program_part(header, offset, &self.spare)
            }),
        };
        self.durable.end(ppn, &programmed);
        // What is told of a page in later ones must be true: one that failed is told nothing of.
        self.filling[at].pages.push(if programmed.is_ok() { (page.owner, page.seq) } else { GIVEN_UP });
        if programmed.is_ok() && is_counted {
            self.last_seq = self.last_seq.max(page.seq);
        }
        programmed
    }

    /// Reads a page, or its tag alone if `data` is empty. The bytes of the tag stay in `self.spare`.
    pub fn read_tagged(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<(Decoded, ReadStatus), FlashError> {
        let mut status = match self.layout.place {
            Place::Spare => self.device.read(ppn, data, &mut self.spare)?,
            _ => {
                let status = if data.is_empty() { ReadStatus::Clean } else { self.device.read(ppn, data, &mut [])? };
                let (header, offset) = self.table_entry(ppn);
                match self.device.read_part(header, offset, &mut self.spare)? {
                    ReadStatus::Corrected => ReadStatus::Corrected,
                    ReadStatus::Clean => status,
                }
            }
        };
        let mut decoded = Tag::decode(&self.layout, ppn, &self.spare);
        if decoded == Decoded::Damaged
            && let Some(tag) = Tag::repair(&self.layout, ppn, &mut self.spare)
        {
            self.repaired_tags += 1;
            (decoded, status) = (Decoded::Tag(tag), ReadStatus::Corrected);
        }
        Ok((decoded, status))
    }
}

impl<F: Flash> Store for Formatted<F> {
    const KEEPS_INFO: bool = true;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn owner_of(&mut self, ppn: Ppn) -> Result<Option<u64>, FlashError> {
        let mut tries = 2;
        loop {
            tries -= 1;
            match self.read_tagged(ppn, &mut []) {
                Ok((Decoded::Tag(tag), _)) => return Ok(Some(tag.page.owner)),
                Ok(_) if tries == 0 => return Ok(None),
                Err(error) if error.is_unreadable() && tries == 0 => return Ok(None),
                Err(error) if !error.is_unreadable() => return Err(error),
                _ => {}
            }
        }
    }

    fn begin(&mut self, segment: SegmentId, info: SegmentInfo) -> Result<(), FlashError> {
        self.begin_kind(PageKind::Data, segment, info)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], page: PageInfo) -> Result<(), FlashError> {
        self.program_kind(PageKind::Data, ppn, data, page)
    }

    fn copy(&mut self, from: Ppn, to: Ppn, owner: u64, seq: u64) -> Result<Copied, FlashError> {
        let mut scratch = core::mem::take(&mut self.scratch);
        let is_wanted = |decoded: &Decoded| matches!(decoded, Decoded::Tag(tag) if tag.page.owner == owner);
        let mut read = self.read_tagged(from, &mut scratch);
        if read.as_ref().map_or_else(FlashError::is_unreadable, |(decoded, _)| !is_wanted(decoded)) {
            // It is given up for good, so it is tried once more.
            read = self.read_tagged(from, &mut scratch);
        }
        let (page, data_crc, copied) = match read {
            Ok((Decoded::Tag(tag), _)) if tag.page.owner == owner => {
                let copied = if tag.page.lost { Copied::Lost } else { Copied::Whole };
                (PageInfo { seq, ..tag.page }, tag.data_crc, copied)
            }
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => {
                scratch.fill(0);
                let page = PageInfo { owner, seq, lost: true, ..PageInfo::default() };
                (page, crc32c(&scratch), Copied::Lost)
            }
            Err(error) => {
                self.scratch = scratch;
                return Err(error);
            }
        };
        let result = self.put(PageKind::Data, to, &scratch, page, data_crc);
        self.scratch = scratch;
        if let Some((summaries, _)) = self.device.summaries().filter(|_| result.is_ok()) {
            summaries.note_copy(to);
        }
        result.map(|()| copied)
    }

    fn finish(&mut self, segment: SegmentId, _: Ppn) -> Result<(), FlashError> {
        self.end_filling(segment);
        match self.device.summaries() {
            Some((summaries, device)) => summaries.finish(device, segment),
            None => Ok(()),
        }
    }

    fn lent(&self) -> Vec<(SegmentId, u32)> {
        let lent = self.device.summaries_ref().map(|summaries| summaries.lent());
        lent.map_or_else(Vec::new, |lent| lent.map(|lent| (lent.segment, lent.erases)).collect())
    }

    fn wants_segment(&self) -> bool {
        self.device.summaries_ref().is_some_and(|summaries| summaries.wants_segment())
    }

    fn lacks_segment(&self) -> bool {
        self.device.summaries_ref().is_some_and(|summaries| summaries.lacks_segment())
    }

    fn lend(&mut self, segment: SegmentId, erases: u32) -> Option<LentSegment> {
        self.device.summaries().and_then(|(summaries, _)| summaries.lend(segment, erases))
    }

    fn make_place(&mut self) -> Result<(), FlashError> {
        self.device.summaries().map_or(Ok(()), |(summaries, device)| summaries.make_place(device))
    }

    fn forget(&mut self, segment: SegmentId) {
        if let Some((summaries, _)) = self.device.summaries() {
            summaries.forget(segment);
        }
    }

    fn take_programs(&mut self) -> u32 {
        self.device.summaries().map_or(0, |(summaries, _)| summaries.take_programs())
    }

    fn read(&mut self, ppn: Ppn, owner: u64, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        match self.read_tagged(ppn, data)? {
            (Decoded::Tag(tag), _) if tag.page.lost && tag.page.owner == owner => Err(FlashError::Lost { ppn }),
            (Decoded::Tag(tag), status) if tag.page.owner == owner && tag.data_crc == crc32c(data) => Ok(status),
            _ => Err(FlashError::Corrupt { ppn }),
        }
    }

    fn read_run(&mut self, first: Ppn, owners: &mut dyn Iterator<Item = u64>, data: &mut [u8]) -> bool {
        if self.layout.place != Place::Spare {
            return false;
        }
        let (page_bytes, spare_bytes) = (self.geometry.page_bytes() as usize, self.geometry.spare_bytes() as usize);
        self.spares.resize(data.len() / page_bytes * spare_bytes, 0);
        if !self.device.read_run(first, data, &mut self.spares) {
            return false;
        }
        let pages = data.chunks_exact(page_bytes).zip(self.spares.chunks_exact(spare_bytes)).zip(owners);
        (first.0..).zip(pages).all(|(ppn, ((data, spare), owner))| {
            let decoded = Tag::decode(&self.layout, Ppn(ppn), spare);
            let is_of = |tag: &Tag| !tag.page.lost && tag.page.owner == owner && tag.data_crc == crc32c(data);
            matches!(decoded, Decoded::Tag(tag) if is_of(&tag))
        })
    }

    fn erase(&mut self, segment: SegmentId, info: SegmentInfo) -> Result<(), FlashError> {
        self.erase_and_mark(segment, info)?;
        self.note_free(segment, info.erases);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.sync_device()
    }

    fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        Formatted::hold(self, on)
    }

    fn was_begun(&self, ppn: Ppn) -> bool {
        self.durable.was_begun(ppn)
    }

    fn defers_erases(&self) -> bool {
        self.durable.is_cached
    }

    fn record(&mut self, seq: u64) -> Result<(), FlashError> {
        self.record_durable(seq)
    }

    fn is_recorded(&mut self, seq: u64) -> bool {
        // An error is told to whoever needs the sync.
        self.durable.is_recorded(seq) || (self.end_sync(false).is_ok() && self.durable.is_recorded(seq))
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        Formatted::begin_sync(self)
    }

    fn has_just_failed(&self) -> bool {
        self.durable.has_just_failed()
    }

    fn stop_writing(&mut self) {
        self.durable.stop();
    }
}

impl<F: Flash> Formatted<F> {
    /// Erases a segment of a device that is being formatted; unlike others it enters no ledger.
    pub fn erase_for_format(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let erases = self.erases_before.get(segment.index()).map_or(1, |before| before.saturating_add(1));
        self.erase_and_mark(segment, SegmentInfo { erases, ..SegmentInfo::default() })
    }

    /// Erases a segment and marks it as erased where the layout has such marks.
    fn erase_and_mark(&mut self, segment: SegmentId, info: SegmentInfo) -> Result<(), FlashError> {
        self.durable.check()?;
        self.durable.touch();
        self.device.erase(segment)?;
        self.forget_pages_of(segment);
        if self.layout.place == Place::Table {
            let mut mark = [0; OPENED_AT as usize];
            let mut rest = &mut mark[..];
            rest.put(&[ERASED_MARK, VERSION, 0, 0]);
            rest.put_u32(info.erases);
            rest.put_uint(info.total_erases.min(u64::from(u32::MAX)), 4);
            let crc = crc32c(&mark[..12]);
            mark[12..].copy_from_slice(&crc.to_le_bytes());
            self.device.program_part(self.geometry.first_page(segment), 0, &mark)?;
        }
        Ok(())
    }
}

//! Finding everything again: from a checkpoint after a clean stop, else by looking into every segment.

use crate::map::{Map, OwnPages, UNMAPPED, decode_bad, decode_trims};
use crate::{Ftl, FtlError, checkpoint};
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Lpn, Ppn, SegmentId};
use margay_format::{
    Anchor, Decoded, Formatted, FoundSegment, Kind, PageInfo, Place, Record, Store, Superblock, VERSION, crc32c,
};
use margay_log::{Config, Kept, Log, LogError, Progress, Restored, RestoredSegment};
use margay_policy::{Now, Placement, Selection, State};

/// What a mount found and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// It was stopped cleanly, and the checkpoint of the stop was used.
    pub from_checkpoint: bool,
    /// Reads of pages, of their spare areas or of parts of them.
    pub reads: u32,
    /// Pages that were programmed and cannot be read, nor is it known whose they were. One is normal after a
    /// power cut: the page that was just being programmed.
    pub damaged: Vec<Ppn>,
    /// Free segments whose erase count was not recorded and is the mean of the others.
    pub estimated_erase_counts: u32,
    /// Segments retired before.
    pub retired_segments: u32,
}

/// Why a device could not be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountError {
    /// It holds pages of a later version of the format.
    Newer {
        /// That version.
        version: u8,
        /// A segment that holds one.
        segment: SegmentId,
    },
    /// The device or the log failed.
    Ftl(FtlError),
}

impl From<FlashError> for MountError {
    fn from(error: FlashError) -> Self {
        Self::Ftl(LogError::from(error).into())
    }
}

impl From<FtlError> for MountError {
    fn from(error: FtlError) -> Self {
        Self::Ftl(error)
    }
}

impl From<LogError> for MountError {
    fn from(error: LogError) -> Self {
        Self::Ftl(error.into())
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { version, segment } => write!(
                f,
                "segment {segment} was written by a later version: its format is {version}, this margay knows formats up to {VERSION}"
            ),
            Self::Ftl(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for MountError {}

/// What was found on a device.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub(crate) restored: Restored<Lpn>,
    pub(crate) map: Vec<u32>,
    pub(crate) bad: Vec<SegmentId>,
    /// The page that was programmed last and may not stay readable, with what it holds.
    suspect: Option<(Ppn, PageInfo, Vec<u8>)>,
    /// The checkpoint that must not be found again.
    checkpoint: Option<margay_format::CheckpointAt>,
    pub(crate) anchor: Anchor,
    /// What it found and cost.
    pub report: MountReport,
}

/// Finds out what a device holds, with `by_checkpoint` from the checkpoint of a clean stop if there is one.
pub fn load<F: Flash>(
    device: &mut Formatted<F>,
    superblock: &Superblock,
    by_checkpoint: bool,
) -> Result<Loaded, MountError> {
    let own = OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
    let mut anchor = Anchor::default();
    let (stopped, mut reads) = if device.layout().reserved_segments > 0 {
        let (found, record, reads) = device.read_anchor()?;
        anchor = found;
        (record, reads)
    } else {
        let (found, reads) = device.find_record()?;
        (found.map(Record::Stopped), reads)
    };
    if let Some(Record::Stopped(at)) = stopped.filter(|_| by_checkpoint) {
        let (bytes, checkpoint_reads) = device.read_checkpoint(&at)?;
        reads += checkpoint_reads;
        if let Some(mut loaded) = bytes.and_then(|bytes| checkpoint::decode(&bytes, superblock, own, device)) {
            for segment in &at.segments {
                loaded.restored.segments[segment.index()].must_be_erased = true;
            }
            let last = u64::from(device.checkpoint_pages(at.len_bytes as usize));
            loaded.restored.seq = loaded.restored.seq.max(at.seq + last);
            loaded.report.reads = reads;
            loaded.anchor = anchor;
            loaded.checkpoint = Some(at);
            return Ok(loaded);
        }
    }
    let mut unreadable = Vec::new();
    let mut loaded = loop {
        match Scan::new(own, superblock, &unreadable).run(device, &mut reads)? {
            Ok(loaded) => break loaded,
            Err(last) => unreadable.push(last),
        }
    };
    loaded.report.damaged.extend(unreadable);
    loaded.report.reads = reads;
    loaded.anchor = anchor;
    Ok(loaded)
}

/// Latest pages that may turn out to be unreadable, one after the other, before a mount gives up looking for a
/// better one: a power cut leaves one, and one more for each time that the recovery is cut too.
const MOST_UNREADABLE: usize = 16;

/// What is being found out by looking into every segment.
struct Scan<'a> {
    own: OwnPages,
    /// Pages that were found to be unreadable though their tags are not.
    unreadable: &'a [Ppn],
    segments: Vec<RestoredSegment>,
    /// Whether a segment's erase count was found.
    known: Vec<bool>,
    /// By owner: place and sequence number of the latest page, and what is kept of it.
    map: Vec<u32>,
    seqs: Vec<u64>,
    infos: Vec<Option<PageInfo>>,
    /// The latest page of all, and the ledger of the latest tag that was read.
    last: Option<(u64, Ppn)>,
    /// The highest sequence number, of unreadable pages too.
    seq: u64,
    ledger: (u64, Vec<(SegmentId, u32)>),
    now: Now,
    total_erases: u64,
    report: MountReport,
}

impl<'a> Scan<'a> {
    fn new(own: OwnPages, superblock: &Superblock, unreadable: &'a [Ppn]) -> Self {
        let count = superblock.geometry.segments() as usize;
        let free = RestoredSegment {
            state: State::Free,
            must_be_erased: true,
            erases: 0,
            stream: 0,
            opened_us: 0,
            opened_writes: 0,
            opened_sequence: 0,
            next: Ppn(0),
        };
        let owners = own.owners() as usize;
        Self {
            own,
            unreadable,
            segments: vec![free; count],
            known: vec![false; count],
            map: vec![UNMAPPED; owners],
            seqs: vec![0; owners],
            infos: vec![None; owners],
            last: None,
            seq: 0,
            ledger: (0, Vec::new()),
            now: Now::default(),
            total_erases: 0,
            report: MountReport::default(),
        }
    }

    /// What was found, or the latest page if it cannot be read.
    fn run<F: Flash>(mut self, device: &mut Formatted<F>, reads: &mut u32) -> Result<Result<Loaded, Ppn>, MountError> {
        let reserved = device.layout().reserved_segments;
        for segment in (0..self.segments.len() as u32).map(SegmentId) {
            if segment.0 < reserved {
                self.segments[segment.index()].state = State::Reserved;
                self.known[segment.index()] = true;
                continue;
            }
            let found = device.scan_segment(segment)?;
            *reads += found.reads;
            if let Some(version) = found.newer {
                return Err(MountError::Newer { version, segment });
            }
            self.take_segment(segment, found);
        }
        let suspect = match self.last {
            None => None,
            Some((_, ppn)) => match self.read_last(device, ppn, reads)? {
                None if self.unreadable.len() < MOST_UNREADABLE => return Ok(Err(ppn)),
                found => found,
            },
        };
        self.apply_trims(device, &suspect, reads)?;
        let bad = self.apply_bad(device, &suspect, reads)?;
        self.fill_in_erase_counts();
        Ok(Ok(self.finish(bad, suspect)))
    }

    /// Reads the page that was programmed last.
    fn read_last<F: Flash>(
        &self,
        device: &mut Formatted<F>,
        ppn: Ppn,
        reads: &mut u32,
    ) -> Result<Option<(Ppn, PageInfo, Vec<u8>)>, MountError> {
        let mut data = vec![0; device.geometry().page_bytes() as usize];
        *reads += 1;
        match device.read_tagged(ppn, &mut data) {
            Ok((Decoded::Tag(tag), _)) if tag.data_crc == crc32c(&data) => Ok(Some((ppn, tag.page, data))),
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn take_segment(&mut self, id: SegmentId, found: FoundSegment) {
        let segment = &mut self.segments[id.index()];
        let is_data = |page: &&margay_format::FoundPage| page.kind == Kind::Data;
        if found.pages.iter().any(|page| page.kind == Kind::Data) {
            segment.state = State::Sealed;
            segment.must_be_erased = false;
        } else {
            segment.must_be_erased = found.erased.is_none();
        }
        if let Some(info) = found.info {
            segment.erases = info.erases;
            segment.stream = info.stream;
            segment.opened_us = info.opened_us;
            segment.opened_writes = info.opened_writes;
            self.known[id.index()] = true;
            self.total_erases = self.total_erases.max(info.total_erases);
            self.now.us = self.now.us.max(info.opened_us);
            self.now.writes = self.now.writes.max(info.opened_writes);
        }
        segment.next = found.next;
        segment.opened_sequence = found.pages.iter().map(|page| page.seq).min().unwrap_or(0);
        if let Some(page) = found.pages.first().filter(|page| page.seq > self.ledger.0) {
            self.ledger = (page.seq, found.ledger);
        }
        for page in found.pages.iter().filter(is_data) {
            self.seq = self.seq.max(page.seq);
            if self.unreadable.contains(&page.ppn) {
                continue;
            }
            if self.last.is_none_or(|(seq, _)| seq < page.seq) {
                self.last = Some((page.seq, page.ppn));
            }
            if let Some(info) = page.info {
                self.now.us = self.now.us.max(info.time_us);
                self.now.writes = self.now.writes.max(info.version);
            }
            let Some(seq) = usize::try_from(page.owner).ok().and_then(|owner| self.seqs.get_mut(owner)) else {
                self.report.damaged.push(page.ppn);
                continue;
            };
            let owner = page.owner as usize;
            if *seq <= page.seq {
                *seq = page.seq;
                self.map[owner] = page.ppn.0;
                self.infos[owner] = page.info;
            }
        }
        if segment.state == State::Sealed {
            self.report.damaged.extend(found.damaged);
        }
    }

    fn read_own<F: Flash>(
        &self,
        device: &mut Formatted<F>,
        owner: Lpn,
        suspect: &Option<(Ppn, PageInfo, Vec<u8>)>,
        reads: &mut u32,
        page: &mut [u8],
    ) -> Result<bool, MountError> {
        let at = self.map[owner.index()];
        if at == UNMAPPED {
            return Ok(false);
        }
        // It may not be readable a second time.
        if let Some((_, _, data)) = suspect.as_ref().filter(|(ppn, ..)| ppn.0 == at) {
            page.copy_from_slice(data);
            return Ok(true);
        }
        *reads += 1;
        match device.read(Ppn(at), owner.0.into(), page) {
            Ok(_) => Ok(true),
            Err(FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. } | FlashError::Lost { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn apply_trims<F: Flash>(
        &mut self,
        device: &mut Formatted<F>,
        suspect: &Option<(Ppn, PageInfo, Vec<u8>)>,
        reads: &mut u32,
    ) -> Result<(), MountError> {
        let mut page = vec![0; device.geometry().page_bytes() as usize];
        for group in 0..self.own.groups() {
            let owner = self.own.trims(group);
            if !self.read_own(device, owner, suspect, reads, &mut page)? {
                if self.map[owner.index()] != UNMAPPED {
                    self.report.damaged.push(Ppn(self.map[owner.index()]));
                }
                continue;
            }
            let Some((seq, unmapped)) = decode_trims(&self.own, group, &page) else { continue };
            for lpn in unmapped.map(Lpn::index) {
                if self.seqs[lpn] <= seq {
                    self.map[lpn] = UNMAPPED;
                }
            }
        }
        Ok(())
    }

    fn apply_bad<F: Flash>(
        &mut self,
        device: &mut Formatted<F>,
        suspect: &Option<(Ppn, PageInfo, Vec<u8>)>,
        reads: &mut u32,
    ) -> Result<Vec<SegmentId>, MountError> {
        let mut page = vec![0; device.geometry().page_bytes() as usize];
        if !self.read_own(device, self.own.bad(), suspect, reads, &mut page)? {
            return Ok(Vec::new());
        }
        let mut bad = decode_bad(&page, self.segments.len() as u32).unwrap_or_default();
        let mut valid = vec![false; self.segments.len()];
        let geometry = *device.geometry();
        for page in self.map.iter().filter(|page| **page != UNMAPPED) {
            valid[geometry.segment_of(Ppn(*page)).index()] = true;
        }
        bad.sort_unstable();
        bad.dedup();
        // Nothing is retired before it is empty.
        bad.retain(|id| !valid[id.index()] && self.segments[id.index()].state != State::Reserved);
        for id in &bad {
            self.segments[id.index()].state = State::Bad;
        }
        Ok(bad)
    }

    /// Erase counts of segments without a readable page: from the ledger of the last tag, else what is missing
    /// from the total, spread evenly.
    fn fill_in_erase_counts(&mut self) {
        for (id, erases) in &self.ledger.1 {
            if let Some(known) = self.known.get_mut(id.index()).filter(|known| !**known) {
                *known = true;
                self.segments[id.index()].erases = *erases;
            }
        }
        let known: u64 = self.segments.iter().map(|segment| u64::from(segment.erases)).sum();
        let unknown = self.known.iter().filter(|known| !**known).count() as u64;
        if unknown == 0 {
            return;
        }
        let share = (self.total_erases.saturating_sub(known) / unknown).min(u32::MAX.into()) as u32;
        for (segment, _) in self.segments.iter_mut().zip(&self.known).filter(|(_, known)| !**known) {
            segment.erases = share;
        }
        // The share of a single segment is exact.
        self.report.estimated_erase_counts = if unknown > 1 { unknown as u32 } else { 0 };
    }

    fn finish(mut self, bad: Vec<SegmentId>, suspect: Option<(Ppn, PageInfo, Vec<u8>)>) -> Loaded {
        let seq = self.seq;
        let suspect = suspect.filter(|(ppn, ..)| self.map.contains(&ppn.0));
        let mapped = self.map.iter().enumerate().filter(|(_, page)| **page != UNMAPPED);
        let pages = mapped.map(|(owner, page)| {
            let kept = self.infos[owner].map_or(Kept::Nothing, Kept::OnFlash);
            (Ppn(*page), Lpn(owner as u32), kept)
        });
        let pages = pages.collect();
        self.report.retired_segments = bad.len() as u32;
        // What was erased first is used first.
        let free = self.ledger.1.iter().rev().map(|(id, _)| *id).collect();
        let restored = Restored { segments: self.segments, pages, now: self.now, seq, free };
        Loaded {
            restored,
            map: self.map,
            bad,
            suspect,
            checkpoint: None,
            anchor: Anchor::default(),
            report: self.report,
        }
    }
}

impl Loaded {
    /// Where a page lives.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        self.map.get(lpn.index()).copied().filter(|page| *page != UNMAPPED).map(Ppn)
    }

    /// From a checkpoint.
    pub(crate) fn from_checkpoint(restored: Restored<Lpn>, map: Vec<u32>, bad: Vec<SegmentId>) -> Self {
        let report =
            MountReport { from_checkpoint: true, retired_segments: bad.len() as u32, ..MountReport::default() };
        Self { restored, map, bad, suspect: None, checkpoint: None, anchor: Anchor::default(), report }
    }
}

impl<F: Flash, S: Selection, P: Placement> Ftl<Formatted<F>, S, P> {
    /// Mounts a device as it was found. Without `read_only`, makes what a power cut left safe first: the page
    /// that was programmed last is written again, because it may not stay readable.
    pub fn mount(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        selection: S,
        placement: P,
        loaded: Loaded,
        read_only: bool,
    ) -> Result<(Self, Anchor), MountError> {
        let own = OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
        let Loaded { restored, map, bad, suspect, checkpoint, mut anchor, .. } = loaded;
        let mut log =
            Log::restore(device, config, selection, placement, own.owners(), &restored).map_err(FtlError::from)?;
        let mut map = Map::durable(own, map, bad);
        if !read_only {
            let device = log.device_mut();
            device.note_seq(restored.seq);
            match &checkpoint {
                Some(at) if device.layout().place == Place::Table => {
                    if !device.forget_record(at)? {
                        // It is outdated once a segment was opened after it.
                        log.close_all()?;
                    }
                }
                // On a fresh anchor: the page behind the last record may have been half programmed.
                _ => device.renew_anchor(&mut anchor, superblock)?,
            }
            for (segment, restored) in restored.segments.iter().enumerate() {
                if restored.state == State::Free && !restored.must_be_erased {
                    log.device_mut().note_free(SegmentId(segment as u32), restored.erases);
                }
            }
            Self::make_safe(&mut log, &mut map, &restored, suspect)?;
        }
        Ok((Self { log, map, scrubs: Vec::new() }, anchor))
    }

    /// After a power cut: writes the page that was programmed last again, before anything is erased, and sees to
    /// it that a segment is free.
    fn make_safe(
        log: &mut Log<Formatted<F>, S, P, Lpn>,
        map: &mut Map,
        restored: &Restored<Lpn>,
        suspect: Option<(Ppn, PageInfo, Vec<u8>)>,
    ) -> Result<(), MountError> {
        if log.free_segments() == 0 {
            let mut next = Vec::with_capacity(restored.segments.len());
            for (id, segment) in (0..).map(SegmentId).zip(&restored.segments) {
                next.push(match segment.state {
                    State::Sealed => log.device_mut().first_blank_page(id, segment.next)?,
                    _ => segment.next,
                });
            }
            if let Some((id, info)) = log.reopen_partly_filled(|id| next[id.index()]) {
                log.device_mut().resume(id, info, Vec::new());
            }
        }
        if let Some((ppn, page, data)) = suspect {
            if !log.has_room() {
                log.erase_empty(map)?;
            }
            match log.write_again(map, ppn, page, &data) {
                // A device that is worn out is still to be read.
                Ok(()) | Err(LogError::NoSpace { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            log.device_mut().sync()?;
        }
        while log.free_segments() == 0 && log.erase_empty(map)? {}
        Ok(())
    }

    /// Stops cleanly: writes all that is pending and a checkpoint, if there is room for one, so that the next
    /// mount is fast. The disk must not be used any more.
    pub fn stop(&mut self, anchor: &mut Anchor, superblock: &Superblock) -> Result<bool, FtlError> {
        self.flush()?;
        let bytes = checkpoint::encode(self, superblock);
        let device = self.log.device();
        let count = device.checkpoint_pages(bytes.len()).div_ceil(device.layout().data_pages(device.geometry()));
        if count > Record::most_segments(device.geometry().page_bytes()) {
            return Ok(false);
        }
        // One segment stays free for the cleaner of the next life.
        while self.log.free_segments() < count + 1 {
            match self.log.clean_step(&mut self.map, u32::MAX) {
                Ok(Progress::NothingToClean) | Err(LogError::NoSpace { .. }) => return Ok(false),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.flush()?;
        self.write_checkpoint(anchor, superblock, count)
    }

    fn write_checkpoint(&mut self, anchor: &mut Anchor, superblock: &Superblock, count: u32) -> Result<bool, FtlError> {
        let Some(segments) = self.log.reserve_free(&mut self.map, count)? else { return Ok(false) };
        let bytes = checkpoint::encode(self, superblock);
        let seq = self.log.seq();
        let device = self.log.device_mut();
        let at = match device.write_checkpoint(&bytes, seq, &segments) {
            Ok(at) => at,
            // The next mount looks into every segment, as it would after a power cut.
            Err(FlashError::ProgramFailed { .. }) => return Ok(false),
            Err(error) => return Err(LogError::from(error).into()),
        };
        device.write_anchor(anchor, superblock, &Record::Stopped(at)).map_err(LogError::from)?;
        Ok(!anchor.is_broken())
    }
}

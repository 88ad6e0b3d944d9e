//! The mount scan: looking into every segment of a device, which a mount does without a checkpoint.

use crate::recovery::OwnerMap;
use crate::restore::RestoredSegment;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{
    Decoded, Formatted, FoundPage, FoundSegment, PageInfo, PageKind, Store, Superblock, VERSION, crc32c,
};
use margay_policy::{Now, State};

/// What a mount found and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// The device was stopped cleanly, and the checkpoint of that stop was used.
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
    /// Of a device that is cached: pages that were programmed after the last sync that is known, are whole and count.
    pub verified: u32,
    /// Of a device that is cached: pages that were programmed after that and do not count, because they or pages
    /// programmed before them are not whole or missing.
    pub rolled_back: u32,
}

/// Why the state of a device could not be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// It holds pages of a later version of the format.
    Newer {
        /// That version.
        version: u8,
        /// A segment that holds one.
        segment: SegmentId,
    },
    /// The device failed.
    Flash(FlashError),
}

impl From<FlashError> for ScanError {
    fn from(error: FlashError) -> Self {
        Self::Flash(error)
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { version, segment } => write!(
                f,
                "segment {segment} was written by a later version: its format is {version}, this margay knows formats up to {VERSION}"
            ),
            Self::Flash(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ScanError {}

/// The page that was programmed last; it may not stay readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Where it is.
    pub ppn: Ppn,
    /// What is kept of it.
    pub page: PageInfo,
    /// Its data.
    pub data: Vec<u8>,
}

/// What is known of the segments of a device: from the mount scan, or from a checkpoint.
#[derive(Debug)]
pub(crate) struct MountScan {
    pub segments: Vec<RestoredSegment>,
    /// The page that was programmed last.
    pub suspect: Option<Suspect>,
    /// The highest sequence number.
    pub seq: u64,
    pub now: Now,
    /// Free segments, the one that was erased first in front, as far as known.
    pub free: Vec<SegmentId>,
    pub report: MountReport,
    /// Segments whose erase counts are known.
    known: Vec<bool>,
    total_erases: u64,
    /// The ledger of erased segments in the latest tag that was read, and its sequence number.
    ledger: (u64, Vec<(SegmentId, u32)>),
    /// The latest page of all.
    last: Option<(u64, Ppn)>,
    /// Pages that were found and must not count.
    pub void: Vec<Ppn>,
    /// Latest pages that cannot be read, of a device without a mark.
    left_out: Vec<Ppn>,
    /// The mark of the device and the pages after it that count, if it has one.
    verified: Option<(u64, BTreeSet<Ppn>)>,
}

/// Latest pages that may turn out to be unreadable, one after the other, before a mount gives up looking for a
/// better one: a power cut leaves one, and one more for each time that the recovery is cut too.
const MAX_UNREADABLE: usize = 16;

impl MountScan {
    /// Looks into every segment.
    pub fn run<F: Flash, M: OwnerMap>(
        device: &mut Formatted<F>,
        superblock: &Superblock,
    ) -> Result<(Self, M), ScanError> {
        match device.mark()? {
            Some(mark) => Self::run_after_mark(device, superblock, mark),
            None => Self::run_in_order(device, superblock),
        }
    }

    /// On a device that was cached. Up to the sequence number `mark` everything counts; of what was programmed after it,
    /// the longest row without a gap, each page of which is whole. So what is found is what there was after some program.
    fn run_after_mark<F: Flash, M: OwnerMap>(
        device: &mut Formatted<F>,
        superblock: &Superblock,
        mark: u64,
    ) -> Result<(Self, M), ScanError> {
        let (mut scan, mut map) = (Self::empty(device.geometry().segments()), M::empty(superblock));
        let mut doubtful = Vec::new();
        for segment in scan.scanned(device)? {
            let mut found = device.scan_segment(segment, Some(mark))?;
            scan.report.reads += found.reads;
            if let Some(version) = found.newer {
                return Err(ScanError::Newer { version, segment });
            }
            scan.void.append(&mut found.torn);
            let after = |page: &&FoundPage| page.kind == PageKind::Data && page.seq > mark;
            doubtful.extend(found.pages.iter().filter(after).copied());
            scan.take_segment(segment, found, &mut map, |page| page.seq > mark);
        }
        scan.fill_in_erase_counts();
        let verified = device.verify_after(mark, doubtful)?;
        scan.report.reads += verified.reads;
        scan.report.verified = verified.pages.len() as u32;
        scan.seq = verified.seq;
        verified.pages.iter().for_each(|page| scan.take_page(page, &mut map));
        scan.void.extend(verified.void);
        scan.verified = Some((mark, verified.pages.iter().map(|page| page.ppn).collect()));
        Ok((scan, map))
    }

    /// The mark that the device had when it was scanned.
    pub fn mark(&self) -> Option<u64> {
        self.verified.as_ref().map(|(mark, _)| *mark)
    }

    /// Whether a page that was found is one of those that were taken.
    pub fn counts(&self, page: &FoundPage) -> bool {
        page.kind == PageKind::Data
            && match &self.verified {
                Some((mark, verified)) => page.seq <= *mark || verified.contains(&page.ppn),
                None => !self.left_out.contains(&page.ppn),
            }
    }

    /// After the mark of a device, finds pages behind older ones of a segment whose erase did not become durable. They are
    /// in segments without any of the `valid` pages, because nothing else is erased.
    pub fn look_for_hidden<F: Flash>(
        &mut self,
        device: &mut Formatted<F>,
        valid: impl Iterator<Item = Ppn>,
    ) -> Result<(), FlashError> {
        let Some((mark, verified)) = self.verified.take() else { return Ok(()) };
        let in_use = self.in_use(device, valid);
        for segment in (0..).map(SegmentId).take(self.segments.len()) {
            if self.segments[segment.index()].state == State::Sealed && !in_use[segment.index()] {
                let (hidden, reads) = device.pages_after(segment, mark)?;
                // Of those that count the ones after them may need them, although they hold nothing any more.
                self.void.extend(hidden.into_iter().filter(|ppn| !verified.contains(ppn)));
                self.report.reads += reads;
            }
        }
        self.void.sort_unstable();
        self.void.dedup();
        self.report.rolled_back = self.void.len() as u32;
        Ok(())
    }

    /// By segment, whether it holds any of the `valid` pages.
    fn in_use<F: Flash>(&self, device: &Formatted<F>, valid: impl Iterator<Item = Ppn>) -> Vec<bool> {
        let mut in_use = vec![false; self.segments.len()];
        valid.for_each(|ppn| in_use[device.geometry().segment_of(ppn).index()] = true);
        in_use
    }

    /// The segments that may hold data; the reserved ones, and those lent to the device, are noted as such.
    fn scanned<F: Flash>(&mut self, device: &mut Formatted<F>) -> Result<Vec<SegmentId>, FlashError> {
        let reserved = (0..device.layout().reserved_segments).map(|id| (SegmentId(id), 0));
        for (segment, erases) in reserved.chain(device.find_lent()?) {
            if let Some(found) = self.segments.get_mut(segment.index()) {
                (found.state, found.erases) = (State::Reserved, erases);
                self.known[segment.index()] = true;
            }
        }
        let ids = (0..).map(SegmentId).zip(&self.segments);
        Ok(ids.filter(|(_, found)| found.state != State::Reserved).map(|(id, _)| id).collect())
    }

    /// On a chip, which does one operation after the other.
    fn run_in_order<F: Flash, M: OwnerMap>(
        device: &mut Formatted<F>,
        superblock: &Superblock,
    ) -> Result<(Self, M), ScanError> {
        let mut unreadable = Vec::new();
        let mut reads = 0;
        loop {
            let (mut scan, mut map) = (Self::empty(device.geometry().segments()), M::empty(superblock));
            match scan.look(device, &mut map, &unreadable, &mut reads)? {
                Some(last) if unreadable.len() < MAX_UNREADABLE => unreadable.push(last),
                _ => {
                    scan.report.damaged.extend(&unreadable);
                    scan.left_out.clone_from(&unreadable);
                    // Nothing can be done about them on a chip.
                    scan.void = if device.is_cached() { unreadable } else { Vec::new() };
                    scan.report.reads = reads;
                    return Ok((scan, map));
                }
            }
        }
    }

    fn empty(segments: u32) -> Self {
        let free = RestoredSegment {
            state: State::Free,
            needs_erase: true,
            erases: 0,
            stream: 0,
            opened_us: 0,
            opened_writes: 0,
            opened_sequence: 0,
            next: Ppn(0),
        };
        Self {
            segments: vec![free; segments as usize],
            suspect: None,
            seq: 0,
            now: Now::default(),
            free: Vec::new(),
            report: MountReport::default(),
            known: vec![false; segments as usize],
            total_erases: 0,
            ledger: (0, Vec::new()),
            last: None,
            void: Vec::new(),
            left_out: Vec::new(),
            verified: None,
        }
    }

    /// What a checkpoint says, as if the mount scan had found it.
    pub fn from_checkpoint(segments: Vec<RestoredSegment>, free: Vec<SegmentId>, seq: u64, now: Now) -> Self {
        let report = MountReport { from_checkpoint: true, ..MountReport::default() };
        Self { segments, free, seq, now, report, ..Self::empty(0) }
    }

    /// Fills itself in; the latest page if that cannot be read.
    fn look<F: Flash, M: OwnerMap>(
        &mut self,
        device: &mut Formatted<F>,
        map: &mut M,
        unreadable: &[Ppn],
        reads: &mut u32,
    ) -> Result<Option<Ppn>, ScanError> {
        for segment in self.scanned(device)? {
            let found = device.scan_segment(segment, None)?;
            *reads += found.reads;
            if let Some(version) = found.newer {
                return Err(ScanError::Newer { version, segment });
            }
            self.take_segment(segment, found, map, |page| unreadable.contains(&page.ppn));
        }
        self.fill_in_erase_counts();
        let Some((_, ppn)) = self.last else { return Ok(None) };
        let mut data = vec![0; device.geometry().page_bytes() as usize];
        *reads += 1;
        match device.read_tagged(ppn, &mut data) {
            Ok((Decoded::Tag(tag), _)) if tag.data_crc == crc32c(&data) => {
                self.suspect = Some(Suspect { ppn, page: tag.page, data });
                Ok(None)
            }
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => Ok(Some(ppn)),
            Err(error) => Err(error.into()),
        }
    }

    fn take_segment<M: OwnerMap>(
        &mut self,
        id: SegmentId,
        found: FoundSegment,
        map: &mut M,
        is_left_out: impl Fn(&FoundPage) -> bool,
    ) {
        let segment = &mut self.segments[id.index()];
        if found.pages.iter().any(|page| page.kind == PageKind::Data) {
            segment.state = State::Sealed;
            segment.needs_erase = false;
        } else {
            segment.needs_erase = found.erased.is_none();
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
        for page in found.pages.iter().filter(|page| page.kind == PageKind::Data) {
            self.seq = self.seq.max(page.seq);
            if !is_left_out(page) {
                self.take_page(page, map);
            }
        }
        if self.segments[id.index()].state == State::Sealed || found.has_lost_tags {
            self.report.damaged.extend(found.damaged);
        }
    }

    fn take_page<M: OwnerMap>(&mut self, page: &FoundPage, map: &mut M) {
        if self.last.is_none_or(|(seq, _)| seq < page.seq) {
            self.last = Some((page.seq, page.ppn));
        }
        if let Some(info) = page.info {
            self.now.us = self.now.us.max(info.time_us);
            self.now.writes = self.now.writes.max(info.version);
        }
        if !map.found(page) {
            self.report.damaged.push(page.ppn);
        }
    }

    /// Takes the `listed` segments out of use that hold none of the `valid` pages; says which.
    pub fn retire<F: Flash>(
        &mut self,
        device: &Formatted<F>,
        listed: Vec<SegmentId>,
        valid: impl Iterator<Item = Ppn>,
    ) -> Vec<SegmentId> {
        let in_use = self.in_use(device, valid);
        let mut retired = listed;
        retired.sort_unstable();
        retired.dedup();
        // Nothing is retired before it is empty.
        retired.retain(|id| !in_use[id.index()] && self.segments[id.index()].state != State::Reserved);
        retired.iter().for_each(|id| self.segments[id.index()].state = State::Bad);
        self.report.retired_segments = retired.len() as u32;
        retired
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
        // What was erased first is used first.
        self.free = self.ledger.1.iter().rev().map(|(id, _)| *id).collect();
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
}

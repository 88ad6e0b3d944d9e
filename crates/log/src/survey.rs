//! Looking into every segment of a device in margay's format: what a mount does without a checkpoint.

use crate::restore::RestoredSegment;
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{
    Anchor, CheckpointAt, Decoded, Formatted, FoundPage, FoundSegment, Kind, PageInfo, Record, Store, VERSION, crc32c,
};
use margay_policy::{Now, State};

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

/// Why a device could not be looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyError {
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

impl From<FlashError> for SurveyError {
    fn from(error: FlashError) -> Self {
        Self::Flash(error)
    }
}

impl fmt::Display for SurveyError {
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

impl core::error::Error for SurveyError {}

/// Takes note of every data page that is found; the latest page of each owner counts.
pub trait Census {
    /// A page was found. False if there can be no such owner.
    fn found(&mut self, page: &FoundPage) -> bool;
}

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

/// What was found in all segments.
#[derive(Debug)]
pub struct Survey<T> {
    /// The pages.
    pub census: T,
    /// The segments.
    pub segments: Vec<RestoredSegment>,
    /// The page that was programmed last.
    pub suspect: Option<Suspect>,
    /// The highest sequence number.
    pub seq: u64,
    /// The clocks.
    pub now: Now,
    /// Free segments, those erased first first, as far as known.
    pub free: Vec<SegmentId>,
    /// What it found and cost.
    pub report: MountReport,
    /// Segments whose erase counts are known.
    known: Vec<bool>,
    total_erases: u64,
    ledger: (u64, Vec<(SegmentId, u32)>),
    /// The latest page of all.
    last: Option<(u64, Ppn)>,
}

/// What says where a checkpoint is.
#[derive(Clone, Debug, Default)]
pub struct StopRecord {
    /// The anchor, on devices that have one.
    pub anchor: Anchor,
    /// The checkpoint of a clean stop.
    pub checkpoint: Option<CheckpointAt>,
    /// Reads that it took.
    pub reads: u32,
}

impl StopRecord {
    /// Reads it.
    pub fn find<F: Flash>(device: &mut Formatted<F>) -> Result<Self, FlashError> {
        if device.layout().reserved_segments == 0 {
            let (checkpoint, reads) = device.find_record()?;
            return Ok(Self { anchor: Anchor::default(), checkpoint, reads });
        }
        let (anchor, record, reads) = device.read_anchor()?;
        let checkpoint = match record {
            Some(Record::Stopped(at)) => Some(at),
            _ => None,
        };
        Ok(Self { anchor, checkpoint, reads })
    }
}

/// Latest pages that may turn out to be unreadable, one after the other, before a mount gives up looking for a
/// better one: a power cut leaves one, and one more for each time that the recovery is cut too.
const MOST_UNREADABLE: usize = 16;

impl<T: Census> Survey<T> {
    /// Looks into every segment. `census` makes an empty census.
    pub fn run<F: Flash>(device: &mut Formatted<F>, census: impl Fn() -> T) -> Result<Self, SurveyError> {
        let mut unreadable = Vec::new();
        let mut reads = 0;
        loop {
            let mut survey = Self::empty(device.geometry().segments(), census());
            match survey.look(device, &unreadable, &mut reads)? {
                Some(last) if unreadable.len() < MOST_UNREADABLE => unreadable.push(last),
                _ => {
                    survey.report.damaged.extend(unreadable);
                    survey.report.reads = reads;
                    return Ok(survey);
                }
            }
        }
    }

    fn empty(segments: u32, census: T) -> Self {
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
            census,
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
        }
    }

    /// What a checkpoint says, as if it had been found in the segments.
    pub fn thawed(census: T, segments: Vec<RestoredSegment>, free: Vec<SegmentId>, seq: u64, now: Now) -> Self {
        let report = MountReport { from_checkpoint: true, ..MountReport::default() };
        Self { segments, free, seq, now, report, ..Self::empty(0, census) }
    }

    /// Fills itself in; the latest page if that cannot be read.
    fn look<F: Flash>(
        &mut self,
        device: &mut Formatted<F>,
        unreadable: &[Ppn],
        reads: &mut u32,
    ) -> Result<Option<Ppn>, SurveyError> {
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
                return Err(SurveyError::Newer { version, segment });
            }
            self.take_segment(segment, found, unreadable);
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

    fn take_segment(&mut self, id: SegmentId, found: FoundSegment, unreadable: &[Ppn]) {
        let segment = &mut self.segments[id.index()];
        if found.pages.iter().any(|page| page.kind == Kind::Data) {
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
        for page in found.pages.iter().filter(|page| page.kind == Kind::Data) {
            self.seq = self.seq.max(page.seq);
            if unreadable.contains(&page.ppn) {
                continue;
            }
            if self.last.is_none_or(|(seq, _)| seq < page.seq) {
                self.last = Some((page.seq, page.ppn));
            }
            if let Some(info) = page.info {
                self.now.us = self.now.us.max(info.time_us);
                self.now.writes = self.now.writes.max(info.version);
            }
            if !self.census.found(page) {
                self.report.damaged.push(page.ppn);
            }
        }
        if segment.state == State::Sealed {
            self.report.damaged.extend(found.damaged);
        }
    }

    /// Reads the page of an owner; false if it cannot be read.
    pub fn read<F: Flash>(
        &mut self,
        device: &mut Formatted<F>,
        ppn: Ppn,
        owner: u64,
        page: &mut [u8],
    ) -> Result<bool, FlashError> {
        // It may not be readable a second time.
        if let Some(suspect) = self.suspect.as_ref().filter(|suspect| suspect.ppn == ppn) {
            page.copy_from_slice(&suspect.data);
            return Ok(true);
        }
        self.report.reads += 1;
        match device.read(ppn, owner, page) {
            Ok(_) => Ok(true),
            Err(FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. } | FlashError::Lost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes out of use the segments of `bad` that hold none of the `valid` pages; says which.
    pub fn retire<F: Flash>(
        &mut self,
        device: &Formatted<F>,
        mut bad: Vec<SegmentId>,
        valid: impl Iterator<Item = Ppn>,
    ) -> Vec<SegmentId> {
        let mut in_use = vec![false; self.segments.len()];
        valid.for_each(|ppn| in_use[device.geometry().segment_of(ppn).index()] = true);
        bad.sort_unstable();
        bad.dedup();
        // Nothing is retired before it is empty.
        bad.retain(|id| !in_use[id.index()] && self.segments[id.index()].state != State::Reserved);
        bad.iter().for_each(|id| self.segments[id.index()].state = State::Bad);
        self.report.retired_segments = bad.len() as u32;
        bad
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

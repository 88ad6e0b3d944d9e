//! Recovering what a device holds: from the checkpoint of a clean stop, else by the mount scan. One flow for every
//! client of the log, which adds only its own map.

use crate::Owner;
use crate::mount_scan::{MountReport, MountScan, ScanError, Suspect};
use crate::restore::{Restored, RestoredSegment, ValidPages};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, SegmentId};
use margay_format::{
    Anchor, CheckpointAt, Decoded, Formatted, FoundPage, Layout, LogState, PageKind, Place, Record, SegmentInfo,
    SegmentState, Store, Superblock, decode_retired,
};
use margay_policy::{Now, State};

/// What a client adds to the recovery of its device: where the page of each owner is.
pub trait OwnerMap: Sized {
    /// Whose a page is.
    type Owner: Owner;

    /// A map of the device that the superblock describes, before any page is found.
    fn empty(superblock: &Superblock) -> Self;

    /// The mount scan found a data page; of each owner the page with the highest sequence number counts. False if
    /// there can be no such owner.
    fn found(&mut self, page: &FoundPage) -> bool;

    /// Reads a checkpoint; `None` if it is another device's or makes no sense.
    fn decode_checkpoint(bytes: &[u8], superblock: &Superblock, layout: &Layout) -> Option<(LogState, Self)>;

    /// The pages of all owners, as they were found or as the checkpoint says; of a map on flash those that it has in memory.
    fn places(&self) -> impl Iterator<Item = Ppn> + '_;

    /// Where the list of retired segments is, and its owner; `None` if none was written.
    fn retired_list(&self) -> Option<(Ppn, Self::Owner)>;

    /// Reads the client's own pages and applies what they say.
    fn settle<F: Flash>(&mut self, pages: &mut PageReader<'_, F>) -> Result<(), FlashError>;

    /// All valid pages; asked once, at the end.
    fn take_pages(&mut self) -> ValidPages<Self::Owner>;
}

/// Reads pages of a device that is being recovered.
#[derive(Debug)]
pub struct PageReader<'a, F> {
    device: &'a mut Formatted<F>,
    scan: &'a mut MountScan,
}

impl<F: Flash> PageReader<'_, F> {
    /// The shape of the device.
    pub fn geometry(&self) -> Geometry {
        *self.device.geometry()
    }

    /// Data pages of a segment.
    pub fn data_pages(&self) -> u32 {
        self.device.layout().data_pages(self.device.geometry())
    }

    /// Whether a checkpoint said what there is; else the mount scan found it.
    pub fn is_from_checkpoint(&self) -> bool {
        self.scan.report.from_checkpoint
    }

    /// Reads the page of an owner; false if it cannot be read or is another owner's.
    pub fn read<O: Owner>(&mut self, ppn: Ppn, owner: O, page: &mut [u8]) -> Result<bool, FlashError> {
        // It may not be readable a second time.
        if let Some(suspect) = self.scan.suspect.as_ref().filter(|suspect| suspect.ppn == ppn) {
            page.copy_from_slice(&suspect.data);
            return Ok(true);
        }
        self.scan.report.reads += 1;
        match self.device.read(ppn, owner.to_u64(), page) {
            Ok(_) => Ok(true),
            Err(FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. } | FlashError::Lost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks into every segment once more and calls `found` for each data page that counts, as [`OwnerMap::found`] was
    /// called for it by the mount scan. Pages that are not readable now as they were then are left out.
    pub fn look_again(&mut self, mut found: impl FnMut(&FoundPage)) -> Result<(), FlashError> {
        let mark = self.scan.mark();
        for segment in (0..self.scan.segments.len() as u32).map(SegmentId) {
            if self.scan.segments[segment.index()].state != State::Sealed {
                continue;
            }
            let again = self.device.scan_segment(segment, mark)?;
            self.scan.report.reads += again.reads;
            again.pages.iter().filter(|page| self.scan.counts(page)).for_each(&mut found);
        }
        Ok(())
    }

    /// The sequence number of the first page of a segment; `None` if none holds data.
    pub fn first_seq(&self, segment: SegmentId) -> Option<u64> {
        let segment = &self.scan.segments[segment.index()];
        (segment.state == State::Sealed).then_some(segment.opened_sequence)
    }

    /// Reports a page that was programmed and cannot be read.
    pub fn report_damaged(&mut self, ppn: Ppn) {
        self.scan.report.damaged.push(ppn);
    }
}

/// What a device holds.
#[derive(Clone, Debug)]
pub struct Recovered<M: OwnerMap> {
    /// The client's map.
    pub map: M,
    /// What the log goes on with.
    pub restored: Restored<M::Owner>,
    /// What is to be done before anything is written.
    pub work: StartWork,
    /// What was found and what it cost.
    pub report: MountReport,
}

/// What is to be done before a recovered device is written; see [`crate::Log::start`].
#[derive(Clone, Debug)]
pub struct StartWork {
    pub(crate) anchor: Anchor,
    /// The checkpoint that was used.
    pub(crate) checkpoint: Option<CheckpointAt>,
    pub(crate) suspect: Option<Suspect>,
    /// Pages that were found and must never count.
    pub(crate) void: Vec<Ppn>,
}

impl<M: OwnerMap> Recovered<M> {
    /// Erases of each segment, by number, as far as they are known.
    pub fn erases(&self) -> Vec<u32> {
        let anchor = self.work.anchor.erases();
        let of = |segment: &RestoredSegment| if segment.state == State::Reserved { anchor } else { segment.erases };
        self.restored.segments.iter().map(of).collect()
    }
}

/// Finds out what a device holds: with `by_checkpoint` from the checkpoint of a clean stop if there is one, else by
/// looking into every segment. Writes nothing.
pub fn recover<F: Flash, M: OwnerMap>(
    device: &mut Formatted<F>,
    superblock: &Superblock,
    by_checkpoint: bool,
) -> Result<Recovered<M>, ScanError> {
    let (anchor, stop, mut reads) = find_stop_record(device)?;
    let mut found = None;
    if let Some(at) = stop.filter(|_| by_checkpoint) {
        found = read_checkpoint(device, superblock, &at, &mut reads)?.map(|found| (found, at));
    }
    let (mut scan, mut map, listed, checkpoint) = match found {
        Some(((scan, map, retired), at)) => (scan, map, Some(retired), Some(at)),
        None => {
            let (scan, map) = MountScan::run::<F, M>(device, superblock)?;
            (scan, map, None, None)
        }
    };
    scan.report.reads += reads;
    let mut pages = PageReader { device, scan: &mut scan };
    map.settle(&mut pages)?;
    let listed = match listed {
        Some(listed) => listed,
        None => read_retired(&map, &mut pages)?,
    };
    let mut suspect = scan.suspect.take();
    let is_on_flash = superblock.map_entries > 0;
    if is_on_flash {
        // The page that was programmed last is in memory in any case.
        suspect.take_if(|suspect| map.places().all(|ppn| ppn != suspect.ppn));
    }
    let pages = map.take_pages();
    suspect.take_if(|suspect| !is_on_flash && pages.places.iter().all(|(ppn, _)| *ppn != suspect.ppn));
    let valid = pages.by_segment(device.geometry());
    scan.look_for_hidden(device, &valid)?;
    let retired = scan.retire(listed, &valid);
    let MountScan { segments, now, seq, free, report, void, .. } = scan;
    let restored = Restored { segments, pages, now, seq, free, retired };
    Ok(Recovered { map, restored, work: StartWork { anchor, checkpoint, suspect, void }, report })
}

/// The anchor, where the checkpoint of a clean stop is, and the reads that it took.
fn find_stop_record<F: Flash>(device: &mut Formatted<F>) -> Result<(Anchor, Option<CheckpointAt>, u32), FlashError> {
    if device.layout().reserved_segments == 0 {
        let (checkpoint, reads) = device.find_record()?;
        return Ok((Anchor::default(), checkpoint, reads));
    }
    let (anchor, record, reads) = device.read_anchor()?;
    let checkpoint = match record {
        Some(Record::Stopped(at)) => Some(at),
        _ => None,
    };
    Ok((anchor, checkpoint, reads))
}

/// What the checkpoint `at` says: of the segments, of the client's pages, and which segments are retired. `None` if it
/// is not whole, makes no sense or is outdated.
fn read_checkpoint<F: Flash, M: OwnerMap>(
    device: &mut Formatted<F>,
    superblock: &Superblock,
    at: &CheckpointAt,
    reads: &mut u32,
) -> Result<Option<(MountScan, M, Vec<SegmentId>)>, FlashError> {
    let (bytes, more) = device.read_checkpoint(at)?;
    *reads += more;
    let Some((log, map)) = bytes.and_then(|bytes| M::decode_checkpoint(&bytes, superblock, device.layout())) else {
        return Ok(None);
    };
    let mut segments = restored_segments(&log);
    if !are_places_possible(device, &segments, map.places(), superblock.map_entries == 0) {
        return Ok(None);
    }
    // After the checkpoint was read, its segments are free but not blank.
    at.segments.iter().for_each(|segment| segments[segment.index()].needs_erase = true);
    let (is_outdated, more) = is_outdated(device, at, &segments, &log.free)?;
    *reads += more;
    if is_outdated {
        return Ok(None);
    }
    let total_erases = segments.iter().map(|segment| u64::from(segment.erases)).sum();
    for open in log.open {
        let RestoredSegment { erases, stream, opened_us, opened_writes, .. } = segments[open.segment.index()];
        let info = SegmentInfo { erases, total_erases, stream, opened_us, opened_writes };
        device.resume(open.segment, info, &open.pages);
    }
    let seq = log.seq.max(at.seq + u64::from(device.checkpoint_pages(at.len_bytes as usize)));
    let now = Now { us: log.time_us, writes: log.host_writes };
    Ok(Some((MountScan::from_checkpoint(segments, log.free, seq, now), map, log.retired)))
}

fn restored_segments(log: &LogState) -> Vec<RestoredSegment> {
    let segments = log.segments.iter().map(|segment| RestoredSegment {
        state: match segment.state {
            SegmentState::Free => State::Free,
            SegmentState::Open => State::Open,
            SegmentState::Sealed => State::Sealed,
            SegmentState::Reserved => State::Reserved,
            SegmentState::Bad => State::Bad,
        },
        needs_erase: segment.needs_erase,
        erases: segment.erases,
        stream: segment.stream,
        opened_us: segment.opened_us,
        opened_writes: segment.opened_writes,
        opened_sequence: segment.opened_sequence,
        next: Ppn(0),
    });
    let mut segments: Vec<_> = segments.collect();
    log.open.iter().for_each(|open| segments[open.segment.index()].next = open.next);
    segments
}

/// Whether each of these pages can hold data, and none is named twice: data is in segments in use, before the place
/// that is written next. Of a map on flash only some are known, and a bit for each page of the device is not spent on them.
fn are_places_possible<F: Flash>(
    device: &Formatted<F>,
    segments: &[RestoredSegment],
    places: impl Iterator<Item = Ppn>,
    is_all: bool,
) -> bool {
    let (geometry, layout) = (device.geometry(), device.layout());
    let data = layout.header_pages..geometry.pages_per_segment() - layout.summary_pages;
    let mut taken = vec![0u64; if is_all { geometry.pages().div_ceil(64) as usize } else { 0 }];
    let mut is_possible = |ppn: Ppn| {
        if ppn.0 >= geometry.pages() {
            return false;
        }
        let segment = &segments[geometry.segment_of(ppn).index()];
        let may_hold_data = data.contains(&geometry.page_in_segment(ppn))
            && match segment.state {
                State::Sealed => true,
                State::Open => ppn < segment.next,
                _ => false,
            };
        let is_new = taken.get_mut(ppn.index() / 64).is_none_or(|word| {
            let before = core::mem::replace(word, *word | 1 << (ppn.0 % 64));
            before != *word
        });
        may_hold_data && is_new
    };
    places.into_iter().all(&mut is_possible)
}

/// Whether pages were programmed after the checkpoint `at`, which an anchor that failed since goes on naming: then
/// the first of them are where open segments are filled next, or in the first free ones. Says how many reads it took, too.
pub(crate) fn is_outdated<F: Flash>(
    device: &mut Formatted<F>,
    at: &CheckpointAt,
    segments: &[RestoredSegment],
    free: &[SegmentId],
) -> Result<(bool, u32), FlashError> {
    let mut reads = 0;
    if device.layout().place == Place::Table {
        // The record itself says so there.
        return Ok((false, reads));
    }
    let last = at.seq + u64::from(device.checkpoint_pages(at.len_bytes as usize));
    let geometry = *device.geometry();
    let open = segments.iter().filter(|segment| segment.state == State::Open).map(|segment| segment.next);
    let inside = |ppn: &Ppn| ppn.0 < geometry.pages() && geometry.page_in_segment(*ppn) > 0;
    let places: Vec<(Ppn, bool)> = open.filter(inside).map(|ppn| (ppn, true)).collect();
    let free = free.iter().take(2).map(|id| (geometry.first_page(*id), false));
    for (ppn, must_be_blank) in places.into_iter().chain(free) {
        reads += 1;
        let is_later = match device.read_tagged(ppn, &mut []) {
            Ok((Decoded::Erased, _)) => false,
            Ok((Decoded::Tag(tag), _)) => must_be_blank || tag.kind == PageKind::Data && tag.page.seq > last,
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => must_be_blank,
            Err(error) => return Err(error),
        };
        if is_later {
            return Ok((true, reads));
        }
    }
    Ok((false, reads))
}

fn read_retired<F: Flash, M: OwnerMap>(map: &M, pages: &mut PageReader<'_, F>) -> Result<Vec<SegmentId>, FlashError> {
    let Some((ppn, owner)) = map.retired_list() else { return Ok(Vec::new()) };
    let geometry = pages.geometry();
    let mut page = vec![0; geometry.page_bytes() as usize];
    if !pages.read(ppn, owner, &mut page)? {
        return Ok(Vec::new());
    }
    Ok(decode_retired(&page, geometry.segments()).unwrap_or_default())
}

//! The tags of pages on NAND whose spare areas have no room for them (FORMAT.md, "Summaries"): the last page of a segment
//! holds those of all its pages, and what is programmed before that is written down when it has to be durable.

mod page;
mod scan;

use crate::layout::TAG_BYTES;
use crate::summaries::page::{Head, SummaryPage, TagBytes, Tagged, entry_bytes, has_room};
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Segments whose summaries are kept in memory.
const CACHED: usize = 16;
/// What was written down in another segment is written down again after so many summaries, so that a mount has a bounded number
/// of them to look at.
const MAX_AGE: u64 = 256;
/// Programs of summaries that fail for a moment, one after the other, before that is an error.
const MAX_TRIES: u32 = 3;
/// As many stop all writing: each of them has cost a page, and they are needed.
const MAX_FAILURES: u32 = 6;
/// Segments behind those of the log, for summaries that have no other place: where all open segments are full, and after programs
/// that failed.
const KEPT_SEGMENTS: u32 = 2;
/// Bytes of a summary page that a page of a segment may take, as a rule.
pub(crate) const BYTES_A_PAGE: u32 = 32;

/// The shape that the format sees of a device whose tags are in summaries; `None` if it needs none, or a summary has no room for
/// the tags of a segment.
pub fn summaries_geometry(raw: &Geometry) -> Option<Geometry> {
    let has_place = raw.is_byte_programmable() || raw.spare_bytes() as usize >= TAG_BYTES;
    let pages = raw.pages_per_segment();
    let fits = raw.page_bytes() >= 512 && (4..=u32::from(u16::MAX)).contains(&pages);
    if has_place || !fits || pages * BYTES_A_PAGE > raw.page_bytes() {
        return None;
    }
    let segments = raw.segments().checked_sub(KEPT_SEGMENTS)?;
    Geometry::new(segments, pages, raw.page_bytes()).ok().map(|shown| shown.with_spare(TAG_BYTES as u32))
}

/// Where the tag of a page was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cover {
    /// The segment that the summary is in.
    holder: SegmentId,
    /// The number of the summary.
    number: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The page in its segment.
    index: u32,
    tag: TagBytes,
    /// Ascending in the order of programs.
    order: u64,
    /// `None` if it is in memory only, or was written down where it will not stay.
    cover: Option<Cover>,
}

/// A segment without a final summary.
#[derive(Clone, Debug)]
struct Filled {
    segment: SegmentId,
    /// The first page that nothing was programmed in.
    next: u32,
    /// No more pages of the log come into it.
    is_finished: bool,
    /// It is kept for summaries, and reads as erased, as it also does after an erase that a power cut has interrupted.
    needs_erase: bool,
    /// Its summary may have no room for another tag.
    is_closed: bool,
    entries: Vec<Entry>,
    /// Bytes of its tags in a summary.
    bytes: usize,
    /// Pages without a tag that cannot be read.
    unreadable: Vec<u32>,
}

impl Filled {
    fn new(segment: SegmentId) -> Self {
        Self {
            segment,
            next: 0,
            is_finished: false,
            needs_erase: false,
            is_closed: false,
            entries: Vec::new(),
            bytes: 0,
            unreadable: Vec::new(),
        }
    }

    fn push(&mut self, entry: Entry, page_bytes: u32) {
        let before = self.entries.last().map_or([0; TAG_BYTES], |last| last.tag);
        self.bytes += entry_bytes(&before, &entry.tag);
        self.is_closed |= !has_room(page_bytes as usize, self.bytes);
        self.entries.push(entry);
    }

    /// Where the tag is written down in another segment.
    fn elsewhere(&self, entry: &Entry) -> Option<Cover> {
        entry.cover.filter(|cover| cover.holder != self.segment)
    }

    fn uncovered(&self) -> usize {
        self.entries.iter().filter(|entry| entry.cover.is_none()).count()
    }
}

/// The summary of a segment that was read.
#[derive(Clone, Debug)]
struct Sealed {
    segment: SegmentId,
    entries: Vec<Tagged>,
    number: u64,
    /// Pages up to the summary, that included.
    pages: u32,
    /// The ECC had to correct it.
    is_corrected: bool,
}

/// What is known of the pages of a segment.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Page in the segment and tag, ascending.
    pub tags: Vec<Tagged>,
    /// The first page that nothing was programmed in.
    pub next: u32,
    /// Pages without a tag that cannot be read.
    pub unreadable: Vec<u32>,
}

/// Tags of pages, in memory until summaries hold them.
#[derive(Clone, Debug)]
pub struct Summaries {
    geometry: Geometry,
    uuid: [u8; 16],
    is_scanned: bool,
    /// The device was stopped cleanly before it was opened.
    was_stopped: bool,
    /// The latest summary before the device was opened, which a power cut may have interrupted: it may not stay readable.
    doubtful: Option<u64>,
    /// Segments that the log goes on to fill.
    resumed: Vec<SegmentId>,
    /// That of the next summary.
    number: u64,
    order: u64,
    filled: Vec<Filled>,
    /// Segments that have their final summary before the log has closed them.
    full: Vec<SegmentId>,
    /// Segments whose final summary is not in their last page.
    early: BTreeMap<SegmentId, u32>,
    /// Those read last, the latest one first.
    cache: Vec<Sealed>,
    /// Programs of summaries that failed for a moment since the last that did not.
    failures: u32,
    /// A sync has failed, or many programs.
    is_stopped: bool,
    /// The log has to skip pages.
    has_taken: bool,
    page: Vec<u8>,
}

/// A summary that is about to be programmed.
struct Draft {
    at: usize,
    is_final: bool,
    /// Positions of segment and tag.
    included: Vec<(usize, usize)>,
}

impl Summaries {
    /// Of a device with this shape and UUID.
    pub fn new(geometry: Geometry, uuid: [u8; 16]) -> Self {
        Self {
            geometry,
            uuid,
            is_scanned: false,
            was_stopped: false,
            doubtful: None,
            resumed: Vec::new(),
            number: 1,
            order: 1,
            filled: Vec::new(),
            full: Vec::new(),
            early: BTreeMap::new(),
            cache: Vec::new(),
            failures: 0,
            is_stopped: false,
            has_taken: false,
            page: vec![0xFF; geometry.page_bytes() as usize],
        }
    }

    /// The device is being formatted: nothing on it counts.
    pub fn start_empty(&mut self) {
        *self = Self { is_scanned: true, ..Self::new(self.geometry, self.uuid) };
        self.keep_segments();
    }

    /// Lists the segments that are kept for summaries, as far as they are not.
    fn keep_segments(&mut self) {
        for segment in (self.geometry.segments()..).map(SegmentId).take(KEPT_SEGMENTS as usize) {
            if self.position(segment).is_none() {
                self.filled.push(Filled { needs_erase: true, ..Filled::new(segment) });
            }
        }
    }

    /// The device was stopped cleanly, so that no program was interrupted.
    pub fn note_clean_stop(&mut self) {
        self.was_stopped = true;
    }

    /// The log goes on to fill a segment.
    pub fn resume(&mut self, segment: SegmentId) {
        match self.filled.iter_mut().find(|filled| filled.segment == segment) {
            Some(filled) => filled.is_finished = false,
            None if self.is_scanned => {}
            None => self.resumed.push(segment),
        }
    }

    /// Whether pages were taken for summaries since this was asked last.
    pub fn has_taken(&mut self) -> bool {
        core::mem::take(&mut self.has_taken)
    }

    /// The page of a segment that is being filled which the log may program next: those before it are taken.
    pub fn next_page(&self, segment: SegmentId) -> Option<Ppn> {
        if self.full.contains(&segment) {
            return Some(self.ppn(segment, self.last_index()));
        }
        let filled = self.filled.iter().find(|filled| filled.segment == segment)?;
        let next = if filled.is_closed { self.last_index().max(filled.next) } else { filled.next };
        Some(self.ppn(segment, next))
    }

    /// Programs a page; its tag is in memory until a summary holds it.
    pub fn program<F: Flash>(&mut self, device: &mut F, ppn: Ppn, data: &[u8], tag: &[u8]) -> Result<(), FlashError> {
        let (segment, index) = (self.geometry.segment_of(ppn), self.geometry.page_in_segment(ppn));
        if segment.0 == 0 {
            // What the anchor says must not be true before what it speaks of is there.
            self.cover(device)?;
            let (first, second) = self.anchor_pages(ppn)?;
            device.program(first, data, &[])?;
            self.page.fill(0xFF);
            self.page[..tag.len()].copy_from_slice(tag);
            return device.program(second, &self.page, &[]);
        }
        self.scan(device)?;
        let at = self.filling(device, segment, index)?;
        let filled = &mut self.filled[at];
        assert!(index >= filled.next, "page {ppn} was taken for a summary");
        let programmed = device.program(ppn, data, &[]);
        (filled.next, filled.is_finished) = (index + 1, false);
        programmed?;
        let tag = tag.try_into().expect("the layout has tags of this length");
        filled.push(Entry { index, tag, order: self.order, cover: None }, self.geometry.page_bytes());
        self.order += 1;
        self.has_taken |= filled.is_closed;
        Ok(())
    }

    /// The place in the list of a segment that is being filled.
    fn filling<F: Flash>(&mut self, device: &mut F, segment: SegmentId, index: u32) -> Result<usize, FlashError> {
        if let Some(at) = self.position(segment) {
            return Ok(at);
        }
        let mut filled = Filled::new(segment);
        if index > 0
            && let Some(sealed) = self.sealed(device, segment)?
        {
            // It goes on behind its summary.
            let cover = Some(Cover { holder: segment, number: sealed.number });
            filled.next = sealed.pages;
            for (index, tag) in sealed.entries.clone() {
                filled.push(Entry { index, tag, order: 0, cover }, self.geometry.page_bytes());
            }
        }
        self.forget(segment);
        self.filled.push(filled);
        Ok(self.filled.len() - 1)
    }

    /// Nothing more comes into a segment: its final summary is programmed, if that is possible now. Otherwise its tags are written
    /// down when they have to be.
    ///
    /// # Errors
    /// [`FlashError::PowerLost`].
    pub fn finish<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<(), FlashError> {
        self.full.retain(|full| *full != segment);
        let Some(at) = self.position(segment) else { return Ok(()) };
        self.filled[at].is_finished = true;
        if self.filled[at].entries.is_empty() {
            self.filled.swap_remove(at);
            return Ok(());
        }
        let older = if self.draft(at, true).is_some() { Ok(()) } else { self.cover_elsewhere(device, Some(segment)) };
        let draft = older.map(|()| self.position(segment).and_then(|at| self.draft(at, true)));
        match draft.and_then(|draft| draft.map_or(Ok(()), |draft| self.write(device, draft))) {
            Err(FlashError::PowerLost) => Err(FlashError::PowerLost),
            _ => Ok(()),
        }
    }

    fn position(&self, segment: SegmentId) -> Option<usize> {
        self.filled.iter().position(|filled| filled.segment == segment)
    }

    /// Erases a segment, when everything that was programmed before is durable, and what it says of others is elsewhere.
    pub fn erase<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<(), FlashError> {
        self.scan(device)?;
        let at = self.position(segment);
        let mut own = at.map(|at| self.filled.swap_remove(at));
        for entry in self.filled.iter_mut().flat_map(|filled| &mut filled.entries) {
            entry.cover = entry.cover.filter(|cover| cover.holder != segment);
        }
        let mut erased = self.cover(device);
        if erased.is_ok() {
            erased = device.erase(segment);
            // One that failed may have left anything.
            own.iter_mut().for_each(|own| own.next = self.geometry.pages_per_segment());
        }
        match erased {
            Ok(()) => self.forget(segment),
            Err(_) => self.filled.extend(own),
        }
        erased
    }

    /// Writes down all tags that are in memory only, in the order of their programs, so that after a power cut there is what
    /// there was after some program.
    pub fn cover<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        self.cover_elsewhere(device, None)
    }

    /// The same for a flush. What was there when the device was opened need not be written down again for one.
    pub fn flush<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        let flushed = self.cover(device);
        let is_new = |entry: &Entry| entry.cover.is_none() && entry.order > 0;
        match flushed {
            Err(FlashError::NoPlace) if !self.filled.iter().any(|filled| filled.entries.iter().any(is_new)) => Ok(()),
            result => result,
        }
    }

    /// The same without those of a segment, and without taking a page of it.
    fn cover_elsewhere<F: Flash>(&mut self, device: &mut F, except: Option<SegmentId>) -> Result<(), FlashError> {
        self.scan(device)?;
        self.settle_doubt();
        let number = self.number;
        let kept: Vec<_> = self.half_full().into_iter().map(|at| self.filled[at].segment).collect();
        for filled in &mut self.filled {
            let segment = filled.segment;
            let is_aged = |cover: &Cover| cover.holder != segment && cover.number + MAX_AGE < number;
            let is_old = |cover: &Cover| is_aged(cover) || kept.contains(&cover.holder);
            filled.entries.iter_mut().for_each(|entry| entry.cover = entry.cover.filter(|cover| !is_old(cover)));
        }
        let mut failed = None;
        for tries in 1.. {
            let is_left = |filled: &Filled| Some(filled.segment) != except && filled.uncovered() > 0;
            if !self.filled.iter().any(is_left) {
                return self.renew_kept(device);
            }
            let draft = match self.next_draft(except) {
                Some(draft) => draft,
                None => self.draft_on_kept(device).map_err(|error| failed.unwrap_or(error))?,
            };
            match self.write(device, draft) {
                Ok(()) => self.failures = 0,
                Err(FlashError::ProgramFailed { .. }) => {}
                Err(error @ FlashError::Io { .. }) => {
                    self.failures += 1;
                    self.is_stopped |= self.failures >= MAX_FAILURES;
                    if tries >= MAX_TRIES {
                        return Err(error);
                    }
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What the latest summary says is written down again: nothing may be done that relies on it.
    fn settle_doubt(&mut self) {
        let Some(number) = self.doubtful.take() else { return };
        for entry in self.filled.iter_mut().flat_map(|filled| &mut filled.entries) {
            entry.cover = entry.cover.filter(|cover| cover.number != number);
        }
    }

    /// The next summary, in the place that suits best: of a segment that is complete, else of the one of which most has to be
    /// written down.
    fn next_draft(&self, except: Option<SegmentId>) -> Option<Draft> {
        let has_place = |at: &usize| {
            let filled = &self.filled[*at];
            let is_free = (1..=self.last_index()).contains(&filled.next) && !self.is_kept(*at);
            is_free && Some(filled.segment) != except
        };
        let mut places: Vec<_> = (0..self.filled.len()).filter(has_place).collect();
        let key = |at: &usize| {
            let uncovered = self.filled[*at].uncovered();
            (uncovered == 0, !self.is_complete(*at), core::cmp::Reverse(uncovered))
        };
        places.sort_by_key(key);
        let best = places.iter().find_map(|at| self.draft(*at, self.is_complete(*at)));
        // Else the last page of a segment holds what is older.
        best.or_else(|| places.iter().find_map(|at| self.draft(*at, false)))
    }

    /// One in the segments that are kept for summaries, where no other has room.
    fn draft_on_kept<F: Flash>(&mut self, device: &mut F) -> Result<Draft, FlashError> {
        for at in (0..self.filled.len()).filter(|at| self.is_kept(*at)).collect::<Vec<_>>() {
            if self.filled[at].needs_erase {
                self.erase_kept(device, at)?;
            }
            if let Some(draft) = self.draft(at, false) {
                return Ok(draft);
            }
        }
        Err(FlashError::NoPlace)
    }

    /// Whether a segment of the list is one that the log does not see.
    fn is_kept(&self, at: usize) -> bool {
        self.filled[at].segment.0 >= self.geometry.segments()
    }

    /// Erases a segment that is kept for summaries. One that fails is not used any more.
    fn erase_kept<F: Flash>(&mut self, device: &mut F, at: usize) -> Result<(), FlashError> {
        let erased = device.erase(self.filled[at].segment);
        let filled = &mut self.filled[at];
        (filled.next, filled.needs_erase) = (0, false);
        match erased {
            Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                filled.next = self.geometry.pages_per_segment();
                Ok(())
            }
            Err(error) => {
                filled.needs_erase = true;
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Erases those of them that are half full and hold nothing that is needed.
    fn renew_kept<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        for at in self.half_full() {
            let segment = self.filled[at].segment;
            let is_held = |entry: &Entry| entry.cover.is_some_and(|cover| cover.holder == segment);
            if !self.filled.iter().any(|filled| filled.entries.iter().any(is_held)) {
                self.erase_kept(device, at)?;
            }
        }
        Ok(())
    }

    /// Segments kept for summaries that are half full and were not given up.
    fn half_full(&self) -> Vec<usize> {
        let pages = self.geometry.pages_per_segment() / 2..self.geometry.pages_per_segment();
        (0..self.filled.len()).filter(|at| self.is_kept(*at) && pages.contains(&self.filled[*at].next)).collect()
    }

    /// Whether no page of the log can come into a segment any more.
    fn is_complete(&self, at: usize) -> bool {
        let filled = &self.filled[at];
        !filled.entries.is_empty() && (filled.is_finished || filled.next >= self.last_index())
    }

    /// A summary behind the last page of a segment, with as many uncovered tags as fit, the oldest first. `None` if it were final
    /// and would leave out an older tag than one of its segment's, or if nothing fits.
    fn draft(&self, at: usize, is_final: bool) -> Option<Draft> {
        if self.filled[at].next > self.last_index() {
            return None;
        }
        let mut uncovered = Vec::new();
        for (number, filled) in self.filled.iter().enumerate().filter(|(number, _)| !is_final || *number != at) {
            let entries = filled.entries.iter().enumerate().filter(|(_, entry)| entry.cover.is_none());
            uncovered.extend(entries.map(|(entry, found)| (found.order, (number, entry))));
        }
        uncovered.sort_unstable();
        let included = |count: usize| uncovered[..count].iter().map(|(_, place)| *place).collect();
        let fits = |count: usize| self.runs(&Draft { at, is_final, included: included(count) }, 0, 0).is_some();
        // As many as fit, found by halving.
        let (mut least, mut most) = (0, uncovered.len());
        if !fits(0) {
            return None;
        }
        while least < most {
            let middle = (least + most).div_ceil(2);
            if fits(middle) { least = middle } else { most = middle - 1 }
        }
        let newest_own =
            self.filled[at].entries.iter().filter(|entry| entry.cover.is_none()).map(|entry| entry.order).max();
        let is_in_order = |own: u64| uncovered[least..].iter().all(|(order, _)| *order > own);
        let is_good = if is_final { newest_own.is_none_or(is_in_order) } else { least > 0 };
        is_good.then(|| Draft { at, is_final, included: included(least) })
    }

    /// The bytes of a summary; `None` if it does not fit its page.
    fn runs(&self, draft: &Draft, number: u64, low: u64) -> Option<Vec<u8>> {
        let mut chosen: Vec<(SegmentId, u32, TagBytes)> = Vec::new();
        let filled = &self.filled[draft.at];
        if draft.is_final {
            chosen.extend(filled.entries.iter().map(|entry| (filled.segment, entry.index, entry.tag)));
        }
        for (at, entry) in &draft.included {
            let entry = &self.filled[*at].entries[*entry];
            chosen.push((self.filled[*at].segment, entry.index, entry.tag));
        }
        chosen.sort_by_key(|(segment, index, _)| (*segment != filled.segment, segment.0, *index));
        let mut runs: Vec<(SegmentId, Vec<Tagged>)> = Vec::new();
        for (segment, index, tag) in chosen {
            match runs.last_mut() {
                Some((last, tags)) if *last == segment => tags.push((index, tag)),
                _ => runs.push((segment, vec![(index, tag)])),
            }
        }
        let page = SummaryPage { head: Head { is_final: draft.is_final, number, low }, runs };
        let mut bytes = vec![0; self.geometry.page_bytes() as usize];
        let ppn = self.ppn(filled.segment, filled.next);
        page.encode(&self.uuid, ppn, &mut bytes).then_some(bytes)
    }

    /// The smallest number of a summary that is needed for another segment once a summary is there.
    fn low(&self, draft: &Draft) -> u64 {
        let filled = self.filled.iter().enumerate().filter(|(at, _)| !draft.is_final || *at != draft.at);
        let covers = filled.flat_map(|(_, filled)| filled.entries.iter().filter_map(|entry| filled.elsewhere(entry)));
        covers.map(|cover| cover.number).min().unwrap_or(self.number).min(self.number)
    }

    fn write<F: Flash>(&mut self, device: &mut F, draft: Draft) -> Result<(), FlashError> {
        if self.is_stopped {
            return Err(FlashError::Stopped);
        }
        let bytes = self.runs(&draft, self.number, self.low(&draft)).expect("it was tried");
        self.sync_cached(device)?;
        let (segment, index) = (self.filled[draft.at].segment, self.filled[draft.at].next);
        self.filled[draft.at].next += 1;
        self.has_taken |= !self.filled[draft.at].is_finished;
        device.program(self.ppn(segment, index), &bytes, &[])?;
        self.sync_cached(device)?;
        let cover = Some(Cover { holder: segment, number: self.number });
        for (at, entry) in draft.included {
            self.filled[at].entries[entry].cover = cover;
        }
        if draft.is_final {
            let filled = self.filled.swap_remove(draft.at);
            if !filled.is_finished {
                self.full.push(segment);
            }
            let entries = filled.entries.into_iter().map(|entry| (entry.index, entry.tag)).collect();
            self.keep(Sealed { segment, entries, number: self.number, pages: index + 1, is_corrected: false });
            if index != self.last_index() {
                self.early.insert(segment, index);
            }
        }
        self.number += 1;
        Ok(())
    }

    /// Of a device that is cached each summary comes after all before it. After a failed sync nothing is written any more: what
    /// was written since the last one may be lost.
    fn sync_cached<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        if !device.is_cached() {
            return Ok(());
        }
        device.sync().inspect_err(|_| self.is_stopped = true)
    }

    /// Reads the tag of a page into `tag`, which is left erased if it has none.
    pub fn read<F: Flash>(&mut self, device: &mut F, ppn: Ppn, tag: &mut [u8]) -> Result<ReadStatus, FlashError> {
        tag.fill(0xFF);
        let (segment, index) = (self.geometry.segment_of(ppn), self.geometry.page_in_segment(ppn));
        if segment.0 == 0 {
            let Ok((_, second)) = self.anchor_pages(ppn) else { return Ok(ReadStatus::Clean) };
            let status = device.read(second, &mut self.page, &mut [])?;
            tag[..TAG_BYTES].copy_from_slice(&self.page[..TAG_BYTES]);
            return Ok(status);
        }
        self.scan(device)?;
        if let Some(filled) = self.filled.iter().find(|filled| filled.segment == segment) {
            match filled.entries.binary_search_by_key(&index, |entry| entry.index) {
                Ok(at) => tag[..TAG_BYTES].copy_from_slice(&filled.entries[at].tag),
                Err(_) if filled.unreadable.contains(&index) => return Err(FlashError::Uncorrectable { ppn }),
                Err(_) => {}
            }
            return Ok(ReadStatus::Clean);
        }
        let Some(sealed) = self.sealed(device, segment)? else { return Ok(ReadStatus::Clean) };
        if let Ok(at) = sealed.entries.binary_search_by_key(&index, |(index, _)| *index) {
            tag[..TAG_BYTES].copy_from_slice(&sealed.entries[at].1);
        }
        Ok(if sealed.is_corrected { ReadStatus::Corrected } else { ReadStatus::Clean })
    }

    /// What is known of the pages of a segment that is not the anchor.
    pub fn contents<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<Contents, FlashError> {
        self.scan(device)?;
        if let Some(filled) = self.filled.iter().find(|filled| filled.segment == segment) {
            let tags = filled.entries.iter().map(|entry| (entry.index, entry.tag)).collect();
            return Ok(Contents { tags, next: filled.next, unreadable: filled.unreadable.clone() });
        }
        let sealed = self.sealed(device, segment);
        match sealed {
            Ok(sealed) => Ok(sealed.map_or_else(Contents::default, |sealed| Contents {
                tags: sealed.entries.clone(),
                next: sealed.pages,
                unreadable: Vec::new(),
            })),
            Err(FlashError::Uncorrectable { ppn }) => {
                let index = self.geometry.page_in_segment(ppn);
                Ok(Contents { tags: Vec::new(), next: index + 1, unreadable: vec![index] })
            }
            Err(error) => Err(error),
        }
    }

    /// The summary of a segment, from memory if it is there; `None` if the segment is erased.
    fn sealed<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<Option<&Sealed>, FlashError> {
        if let Some(at) = self.cache.iter().position(|sealed| sealed.segment == segment) {
            self.cache[..=at].rotate_right(1);
            return Ok(self.cache.first());
        }
        let index = self.early.get(&segment).copied().unwrap_or(self.last_index());
        let ppn = self.ppn(segment, index);
        let status = device.read(ppn, &mut self.page, &mut [])?;
        if self.page.iter().all(|byte| *byte == 0xFF) {
            return Ok(None);
        }
        let summary = SummaryPage::repair(&self.uuid, ppn, &mut self.page).filter(|summary| summary.head.is_final);
        let Some(summary) = summary else { return Err(FlashError::Uncorrectable { ppn }) };
        let number = summary.head.number;
        let entries = summary.runs.into_iter().find(|(of, _)| *of == segment).map_or_else(Vec::new, |(_, tags)| tags);
        let is_corrected = status == ReadStatus::Corrected;
        self.keep(Sealed { segment, entries, number, pages: index + 1, is_corrected });
        Ok(self.cache.first())
    }

    fn keep(&mut self, sealed: Sealed) {
        self.cache.truncate(CACHED - 1);
        self.cache.insert(0, sealed);
    }

    fn forget(&mut self, segment: SegmentId) {
        self.cache.retain(|sealed| sealed.segment != segment);
        self.full.retain(|full| *full != segment);
        self.early.remove(&segment);
    }

    fn ppn(&self, segment: SegmentId, index: u32) -> Ppn {
        Ppn(self.geometry.first_page(segment).0 + index)
    }

    fn last_index(&self) -> u32 {
        self.geometry.pages_per_segment() - 1
    }

    /// The pages of the anchor that hold its page `ppn` and the tag of that: there they come in pairs.
    pub fn anchor_pages(&self, ppn: Ppn) -> Result<(Ppn, Ppn), FlashError> {
        let pages = self.geometry.pages_per_segment() / 2;
        if ppn.0 < pages {
            Ok((Ppn(2 * ppn.0), Ppn(2 * ppn.0 + 1)))
        } else {
            Err(FlashError::PageOutOfRange { ppn, pages })
        }
    }
}

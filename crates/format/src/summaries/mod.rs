//! The tags of pages on NAND whose spare areas have no room for them (FORMAT.md, "Summaries").
//!
//! The last pages of a segment, its summary, hold the tags of all others. Until that is programmed tags are in memory, and in
//! journal pages once they have to be durable: before a flush is answered, and before anything is erased. Journal pages are in
//! segments that the log lends.

mod page;
mod scan;

use crate::layout::SHORT_TAG_BYTES;
use crate::summaries::page::{JournalPage, SummaryPage, TagBytes, journal_tags, tags_of_page};
pub(crate) use crate::summaries::page::{LENT_SEGMENTS, summary_pages};
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Segments whose summaries are kept in memory.
const CACHED: usize = 16;
/// Programs of journal pages that fail for a moment, one after the other, before that is an error.
const MAX_TRIES: u32 = 3;
/// Pages that are left in a segment of the journal when all that is needed of the one before is in it.
const ROOM: u32 = 3;

const NO_TAG: TagBytes = [0xFF; SHORT_TAG_BYTES];

#[derive(Clone, Debug)]
struct Entry {
    /// The page in its segment.
    index: u32,
    tag: TagBytes,
    /// Ascending in the order of programs.
    order: u64,
    /// What it is a copy of stays there until it is durable.
    is_copy: bool,
}

/// A segment without a summary.
#[derive(Clone, Debug)]
struct Open {
    segment: SegmentId,
    /// Ascending.
    entries: Vec<Entry>,
    /// A summary was tried, or the places for it may hold anything.
    is_closed: bool,
}

impl Open {
    fn tag(&self, index: u32) -> Option<&TagBytes> {
        let at = self.entries.binary_search_by_key(&index, |entry| entry.index).ok()?;
        Some(&self.entries[at].tag)
    }
}

/// The summary of a segment that was read.
#[derive(Clone, Debug)]
struct Sealed {
    segment: SegmentId,
    tags: Vec<TagBytes>,
    /// The ECC had to correct it.
    is_corrected: bool,
}

/// A segment that the log has lent for the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentSegment {
    /// Which one.
    pub segment: SegmentId,
    /// Its erases.
    pub erases: u32,
    /// A program or an erase of it has failed for good.
    pub is_bad: bool,
    needs_erase: bool,
}

/// Tags of pages, in memory until a summary holds them.
#[derive(Clone, Debug)]
pub struct Summaries {
    geometry: Geometry,
    uuid: [u8; 16],
    summary_pages: u32,
    is_scanned: bool,
    /// A sync of a device that is cached has failed.
    is_stopped: bool,
    open: Vec<Open>,
    /// That of the next program.
    order: u64,
    /// What was programmed before it is in the journal.
    written: u64,
    /// What was programmed before it was there when the device was opened.
    found: u64,
    /// A segment that is going to be erased, which the journal has to say.
    erased: Option<SegmentId>,
    /// The journal has to say something although nothing was programmed.
    must_write: bool,
    /// What was programmed last before the device was opened, which a power cut may have interrupted, is not all written again.
    is_doubtful: bool,
    /// Segments that journal pages which are needed speak of.
    in_journal: BTreeSet<SegmentId>,
    /// That of the next journal page.
    number: u64,
    /// That of the last one that was programmed.
    last: u64,
    /// The first one that is needed.
    start: u64,
    /// Summaries with numbers up to this one are not in doubt.
    settled: u64,
    /// The segments with journal pages that are needed; the last one is filled, from `next` on.
    journal: Vec<LentSegment>,
    next: u32,
    /// Those that are used next, in this order.
    spares: Vec<LentSegment>,
    /// One of them was used, and another one should take its place, so that all segments wear alike.
    wants_segment: bool,
    /// A journal page that is needed cannot be read.
    has_gap: bool,
    /// Those read last, the latest one first.
    cache: Vec<Sealed>,
    /// Journal pages programmed since that was asked.
    programs: u32,
    page: Vec<u8>,
}

impl Summaries {
    /// Of a device with this shape and UUID.
    pub fn new(geometry: Geometry, uuid: [u8; 16], summary_pages: u32) -> Self {
        Self {
            geometry,
            uuid,
            summary_pages,
            is_scanned: false,
            is_stopped: false,
            open: Vec::new(),
            order: 0,
            written: 0,
            found: 0,
            erased: None,
            must_write: false,
            is_doubtful: false,
            in_journal: BTreeSet::new(),
            number: 1,
            last: 0,
            start: 1,
            settled: 0,
            journal: Vec::new(),
            next: 0,
            spares: Vec::new(),
            wants_segment: false,
            has_gap: false,
            cache: Vec::new(),
            programs: 0,
            page: vec![0xFF; geometry.page_bytes() as usize],
        }
    }

    /// The device is being formatted: nothing on it counts.
    pub fn start_empty(&mut self) {
        *self = Self { is_scanned: true, ..Self::new(self.geometry, self.uuid, self.summary_pages) };
    }

    /// The segments that the log has lent, in the order of their use.
    pub fn lent(&self) -> impl Iterator<Item = &LentSegment> {
        self.journal.iter().chain(&self.spares)
    }

    /// Whether the log should lend another segment, if it can.
    pub fn wants_segment(&self) -> bool {
        self.wants_segment || self.lacks_segment()
    }

    /// Whether a segment has failed, so that it is wanted even if one less is free then.
    pub fn lacks_segment(&self) -> bool {
        self.lent().filter(|lent| !lent.is_bad).count() < LENT_SEGMENTS as usize
    }

    /// Takes an erased segment. Returns one that is not needed any more, once the next journal page is on flash, as it is before
    /// anything is erased.
    pub fn lend(&mut self, segment: SegmentId, erases: u32) -> Option<LentSegment> {
        self.wants_segment = false;
        let is_enough = self.lent().count() >= LENT_SEGMENTS as usize;
        let at = self.spares.iter().position(|spare| spare.is_bad).or(self.spares.len().checked_sub(1));
        let returned = at.filter(|_| is_enough).map(|at| self.spares.remove(at));
        self.spares.push(LentSegment { segment, erases, is_bad: false, needs_erase: false });
        self.must_write = true;
        returned
    }

    /// The next [`Summaries::cover`] writes a journal page in any case, so that no summary is in doubt.
    pub fn settle(&mut self) {
        self.must_write = true;
    }

    /// Journal pages that were programmed since this was asked last.
    pub fn take_programs(&mut self) -> u32 {
        core::mem::take(&mut self.programs)
    }

    /// Programs a page; its tag is in memory until a summary or the journal holds it.
    pub fn program<F: Flash>(&mut self, device: &mut F, ppn: Ppn, data: &[u8], tag: &[u8]) -> Result<(), FlashError> {
        let (segment, index) = (self.geometry.segment_of(ppn), self.geometry.page_in_segment(ppn));
        if segment.0 == 0 {
            let (first, second) = self.anchor_pages(ppn)?;
            device.program(first, data, &[])?;
            self.page.fill(0xFF);
            self.page[..tag.len()].copy_from_slice(tag);
            return device.program(second, &self.page, &[]);
        }
        self.scan(device)?;
        if self.is_stopped {
            return Err(FlashError::Stopped);
        }
        if let Err(error) = device.program(ppn, data, &[]) {
            if matches!(error, FlashError::ProgramFailed { .. }) {
                // Nothing more may be programmed in it.
                self.opened(segment).is_closed = true;
            }
            return Err(error);
        }
        let tag = tag.try_into().expect("the layout has tags of this length");
        let entry = Entry { index, tag, order: self.order, is_copy: false };
        self.order += 1;
        self.opened(segment).entries.push(entry);
        Ok(())
    }

    fn opened(&mut self, segment: SegmentId) -> &mut Open {
        let at = self.position(segment).unwrap_or_else(|| {
            self.open.push(Open { segment, entries: Vec::new(), is_closed: false });
            self.open.len() - 1
        });
        &mut self.open[at]
    }

    /// A segment that is never used again holds nothing that is needed.
    pub fn forget(&mut self, segment: SegmentId) {
        self.open.retain(|open| open.segment != segment);
    }

    /// Nothing more comes into a segment: its summary is programmed, if it has none. After an error it has none, and the journal
    /// goes on holding its tags, until it is erased: that should be soon.
    pub fn finish<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<(), FlashError> {
        let Some(at) = self.position(segment) else { return Ok(()) };
        if self.open[at].is_closed {
            return Err(FlashError::NoPlace);
        }
        let latest = self.open[at].entries.iter().map(|entry| entry.order).max().unwrap_or(0);
        let is_earlier = |entry: &Entry| (self.written..latest).contains(&entry.order);
        // With the summary the pages of this segment become durable: those programmed before them have to be.
        let has_earlier = |other: &Open| other.segment != segment && other.entries.iter().any(is_earlier);
        if self.is_doubtful || self.open.iter().any(has_earlier) {
            self.cover(device)?;
        }
        self.sync_cached(device)?;
        self.open[at].is_closed = true;
        let first = self.data_pages();
        let mut tags = vec![NO_TAG; first as usize];
        self.open[at].entries.iter().for_each(|entry| tags[entry.index as usize] = entry.tag);
        let mut left = &tags[..];
        for index in first..self.geometry.pages_per_segment() {
            let ppn = self.ppn(segment, index);
            let (tags, rest) = left.split_at(left.len().min(tags_of_page(self.geometry.page_bytes())));
            left = rest;
            let summary = SummaryPage { number: self.number, tags: tags.to_vec() };
            summary.encode(&self.uuid, ppn, &mut self.page);
            device.program(ppn, &self.page, &[])?;
        }
        self.open.swap_remove(at);
        self.keep(Sealed { segment, tags, is_corrected: false });
        Ok(())
    }

    fn position(&self, segment: SegmentId) -> Option<usize> {
        self.open.iter().position(|open| open.segment == segment)
    }

    /// Erases a segment, when everything that was programmed before is durable.
    pub fn erase<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<(), FlashError> {
        self.scan(device)?;
        self.cache.retain(|sealed| sealed.segment != segment);
        let own = self.position(segment).map(|at| self.open.swap_remove(at));
        self.erased = self.in_journal.contains(&segment).then_some(segment);
        let mut erased = self.cover(device).and_then(|()| self.sync_cached(device));
        self.erased = None;
        if erased.is_ok() {
            self.in_journal.remove(&segment);
            erased = device.erase(segment);
        }
        if let Some(mut own) = own.filter(|_| erased.is_err()) {
            // It may still hold what is needed, and the journal says that it does not.
            own.is_closed = true;
            for entry in &mut own.entries {
                entry.order = self.order;
                self.order += 1;
            }
            self.open.push(own);
            // If that fails it is tried again with whatever comes next.
            let _ = self.cover(device);
        }
        erased
    }

    /// Makes the tags durable that are in memory only, in the order of their programs, so that after a power cut there is what
    /// there was after some program.
    pub fn cover<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        self.scan(device)?;
        if self.is_stopped {
            return Err(FlashError::Stopped);
        }
        let mut tries = 0;
        loop {
            let tags = self.tags_from(self.written);
            if tags.is_empty() && self.erased.is_none() && !self.must_write {
                return Ok(());
            }
            let Some(current) = self.journal.last().filter(|_| self.next < self.geometry.pages_per_segment()) else {
                // All of them are in the next segment then.
                self.switch(device)?;
                continue;
            };
            let (segment, index) = (current.segment, self.next);
            self.next += 1;
            let count = tags.len().min(journal_tags(self.geometry.page_bytes()));
            let is_all = count == tags.len();
            // Only with the last tags of the copies of what it held.
            let erased = self.erased.filter(|_| is_all);
            match self.put(device, self.ppn(segment, index), (self.start, is_all), erased, &tags[..count]) {
                Ok(()) => {
                    self.written = tags[..count].last().map_or(self.written, |(order, ..)| order + 1);
                    if is_all {
                        (self.erased, self.must_write, self.is_doubtful) = (None, false, false);
                    }
                }
                Err(FlashError::ProgramFailed { .. }) => {
                    self.next = self.geometry.pages_per_segment();
                    self.journal.iter_mut().filter(|lent| lent.segment == segment).for_each(|lent| lent.is_bad = true);
                }
                Err(FlashError::Io { .. }) if tries < MAX_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same for a flush. What was there when the device was opened need not be written down again for one, nor copies.
    pub fn flush<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        let covered = self.cover(device);
        let is_new = |entry: &Entry| entry.order >= self.found.max(self.written) && !entry.is_copy;
        match covered {
            Err(FlashError::NoPlace) if !self.open.iter().any(|open| open.entries.iter().any(is_new)) => Ok(()),
            result => result,
        }
    }

    /// What was programmed so far was there, elsewhere, when the device was opened.
    pub fn note_start(&mut self) {
        self.found = self.order;
    }

    /// A page that was just programmed is a copy.
    pub fn note_copy(&mut self, ppn: Ppn) {
        if let Some(at) = self.position(self.geometry.segment_of(ppn)) {
            self.open[at].entries.last_mut().into_iter().for_each(|entry| entry.is_copy = true);
        }
    }

    /// Returns when the journal has room for the tags of a whole segment.
    pub fn make_place<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        self.cover(device)?;
        let pages = self.geometry.pages_per_segment();
        let needed = pages.div_ceil(journal_tags(self.geometry.page_bytes()) as u32) + ROOM;
        if self.next + needed > pages {
            self.switch(device)?;
        }
        if self.next + needed > pages { Err(FlashError::NoPlace) } else { Ok(()) }
    }

    /// Goes on with the journal in the next segment, which gets all that is needed of those before.
    fn switch<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        loop {
            let at = self.spares.iter().position(|spare| !spare.is_bad).ok_or(FlashError::NoPlace)?;
            let mut spare = self.spares.remove(at);
            let erased = if spare.needs_erase { device.erase(spare.segment) } else { Ok(()) };
            if erased.is_ok() {
                spare.erases = spare.erases.saturating_add(spare.needs_erase.into());
                let before = (self.journal.clone(), self.next);
                self.journal.push(spare);
                match self.snapshot(device, spare.segment) {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        (self.journal, self.next) = before;
                        spare.needs_erase = true;
                        spare.is_bad = matches!(error, FlashError::ProgramFailed { .. });
                        self.spares.push(spare);
                        if !spare.is_bad {
                            return Err(error);
                        }
                    }
                }
                continue;
            }
            spare.is_bad = matches!(erased, Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }));
            // The next try is with another one.
            self.spares.push(spare);
            if !spare.is_bad {
                return erased;
            }
        }
    }

    /// Writes all tags to an erased segment, so that no journal page in another one is needed any more.
    fn snapshot<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<(), FlashError> {
        let (first, mut tries) = (self.number, 0);
        let tags = self.tags_from(0);
        let mut left = &tags[..];
        for index in 0..self.geometry.pages_per_segment() - ROOM {
            let count = left.len().min(journal_tags(self.geometry.page_bytes()));
            let is_last = count == left.len();
            let start = if is_last { first } else { self.start };
            match self.put(device, self.ppn(segment, index), (start, is_last), None, &left[..count]) {
                Ok(()) => left = &left[count..],
                // By its first page a segment of the journal is found.
                Err(FlashError::Io { .. }) if tries < MAX_TRIES && index > 0 => {
                    tries += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if is_last {
                let current = self.journal.pop();
                for lent in core::mem::take(&mut self.journal) {
                    self.spares.push(LentSegment { needs_erase: true, ..lent });
                }
                self.journal.extend(current);
                (self.start, self.next, self.written) = (first, index + 1, self.order);
                (self.erased, self.must_write, self.is_doubtful) = (None, false, false);
                self.wants_segment = true;
                self.in_journal = self.open.iter().map(|open| open.segment).collect();
                return Ok(());
            }
        }
        Err(FlashError::NoPlace)
    }

    /// Programs a journal page, which may be the last one of several. Also if that fails it may be there.
    fn put<F: Flash>(
        &mut self,
        device: &mut F,
        ppn: Ppn,
        (start, is_last): (u64, bool),
        erased: Option<SegmentId>,
        tags: &[(u64, Ppn, TagBytes)],
    ) -> Result<(), FlashError> {
        let number = self.number;
        let page = JournalPage {
            number,
            before: self.last,
            start,
            settled: if self.is_doubtful && !is_last { self.settled } else { number },
            lent: self.lent().map(|lent| (lent.segment, lent.erases)).collect(),
            erased,
            tags: tags.iter().map(|(_, ppn, tag)| (*ppn, *tag)).collect(),
        };
        page.encode(&self.uuid, ppn, &mut self.page);
        self.in_journal.extend(page.tags.iter().map(|(ppn, _)| self.geometry.segment_of(*ppn)));
        self.number += 1;
        self.programs += 1;
        self.sync_cached(device)?;
        device.program(ppn, &self.page, &[])?;
        self.sync_cached(device)?;
        (self.last, self.settled) = (number, page.settled);
        Ok(())
    }

    /// The tags of programs from `order` on that no summary holds, in their order.
    fn tags_from(&self, order: u64) -> Vec<(u64, Ppn, TagBytes)> {
        let of = |open: &Open| {
            let first = self.geometry.first_page(open.segment).0;
            let entries = open.entries.iter().filter(|entry| entry.order >= order);
            entries.map(|entry| (entry.order, Ppn(first + entry.index), entry.tag)).collect::<Vec<_>>()
        };
        let mut tags: Vec<_> = self.open.iter().flat_map(of).collect();
        tags.sort_unstable_by_key(|(order, ..)| *order);
        tags
    }

    /// Of a device that is cached each page that holds tags comes after all before it. After a failed sync nothing is written any
    /// more: what was written since the last one may be lost.
    fn sync_cached<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        if self.is_stopped {
            return Err(FlashError::Stopped);
        }
        if !device.is_cached() {
            return Ok(());
        }
        device.sync().inspect_err(|_| self.is_stopped = true)
    }

    /// Reads the tag of a page into the start of `tag`, which is left erased if it has none.
    pub fn read<F: Flash>(&mut self, device: &mut F, ppn: Ppn, tag: &mut [u8]) -> Result<ReadStatus, FlashError> {
        tag.fill(0xFF);
        let len = tag.len().min(SHORT_TAG_BYTES);
        let (segment, index) = (self.geometry.segment_of(ppn), self.geometry.page_in_segment(ppn));
        if segment.0 == 0 {
            let Ok((_, second)) = self.anchor_pages(ppn) else { return Ok(ReadStatus::Clean) };
            let status = device.read(second, &mut self.page, &mut [])?;
            tag[..len].copy_from_slice(&self.page[..len]);
            return Ok(status);
        }
        self.scan(device)?;
        if let Some(at) = self.position(segment) {
            if let Some(found) = self.open[at].tag(index) {
                tag[..len].copy_from_slice(&found[..len]);
            }
            return Ok(ReadStatus::Clean);
        }
        let Some(sealed) = self.sealed(device, segment)? else { return Ok(ReadStatus::Clean) };
        if let Some(found) = sealed.tags.get(index as usize) {
            tag[..len].copy_from_slice(&found[..len]);
        }
        Ok(if sealed.is_corrected { ReadStatus::Corrected } else { ReadStatus::Clean })
    }

    /// Whether a segment has a summary, or can get none: no page may be programmed in it.
    pub fn is_closed<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<bool, FlashError> {
        self.scan(device)?;
        match self.position(segment) {
            Some(at) => Ok(self.open[at].is_closed),
            None => Ok(self.sealed(device, segment)?.is_some()),
        }
    }

    /// Whether pages of a segment may have had tags that cannot be read any more.
    pub fn may_lack_tags(&self, segment: SegmentId) -> bool {
        self.has_gap && self.position(segment).is_some()
    }

    /// The summary of a segment, from memory if it is there; `None` if it has none.
    fn sealed<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<Option<&Sealed>, FlashError> {
        if let Some(at) = self.cache.iter().position(|sealed| sealed.segment == segment) {
            self.cache[..=at].rotate_right(1);
            return Ok(self.cache.first());
        }
        let ppn = self.ppn(segment, self.geometry.pages_per_segment() - 1);
        let status = device.read(ppn, &mut self.page, &mut [])?;
        let Some(last) = SummaryPage::decode(&self.uuid, ppn, &self.page) else { return Ok(None) };
        let (tags, is_corrected) = self.whole_summary(device, segment, last)?;
        self.keep(Sealed { segment, tags, is_corrected: is_corrected || status == ReadStatus::Corrected });
        Ok(self.cache.first())
    }

    /// All tags of a segment whose last summary page is this one, and whether the ECC had to correct one of the others.
    fn whole_summary<F: Flash>(
        &mut self,
        device: &mut F,
        segment: SegmentId,
        last: SummaryPage,
    ) -> Result<(Vec<TagBytes>, bool), FlashError> {
        let (mut tags, mut is_corrected) = (last.tags, false);
        let last = self.geometry.pages_per_segment() - 1;
        for index in (last + 1 - self.summary_pages..last).rev() {
            let ppn = self.ppn(segment, index);
            is_corrected |= device.read(ppn, &mut self.page, &mut [])? == ReadStatus::Corrected;
            // It was programmed before the last one.
            let page = SummaryPage::decode(&self.uuid, ppn, &self.page).ok_or(FlashError::Uncorrectable { ppn })?;
            tags.splice(0..0, page.tags);
        }
        Ok((tags, is_corrected))
    }

    fn keep(&mut self, sealed: Sealed) {
        self.cache.truncate(CACHED - 1);
        self.cache.insert(0, sealed);
    }

    fn data_pages(&self) -> u32 {
        self.geometry.pages_per_segment() - self.summary_pages
    }

    fn ppn(&self, segment: SegmentId, index: u32) -> Ppn {
        Ppn(self.geometry.first_page(segment).0 + index)
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

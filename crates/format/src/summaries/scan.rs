//! Finding out, when a device is opened, which segments have no summary, and what the journal says of them.

use crate::summaries::page::{JournalPage, SummaryPage};
use crate::summaries::{Entry, LentSegment, NO_TAG, Summaries};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, SegmentId};

/// How far numbers of journal pages go on behind the last one that is known: programs that failed, and one that was interrupted, may
/// be on flash with numbers behind it.
const UNSEEN: u64 = 256;

/// What a page holds.
enum Look {
    Blank,
    Summary(SummaryPage),
    Journal(JournalPage),
    Other,
    Unreadable,
}

/// A page of the journal, and its place in its segment.
struct Found {
    segment: SegmentId,
    index: u32,
    page: JournalPage,
}

impl Summaries {
    /// Reads the journal of a device that was just opened: one or two reads for each segment, and all pages of the journal.
    pub fn scan<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        if self.is_scanned {
            return Ok(());
        }
        let last = self.geometry.pages_per_segment() - 1;
        let mut found = BTreeMap::new();
        let mut summaries = Vec::new();
        // Those with the highest number, of which one may be in doubt.
        let mut newest: (u64, Vec<(SegmentId, SummaryPage)>) = Default::default();
        for segment in (1..self.geometry.segments()).map(SegmentId) {
            if device.is_known_erased(segment) {
                continue;
            }
            let is_journal = match self.look(device, segment, last)? {
                Look::Summary(summary) => {
                    summaries.push((segment, summary.number));
                    if summary.number > newest.0 {
                        newest = (summary.number, Vec::new());
                    }
                    if summary.number == newest.0 {
                        newest.1.push((segment, summary));
                    }
                    continue;
                }
                Look::Journal(_) => true,
                _ => matches!(self.look(device, segment, 0)?, Look::Journal(_) | Look::Unreadable),
            };
            for index in (0..=last).filter(|_| is_journal) {
                if let Look::Journal(page) = self.look(device, segment, index)? {
                    found.insert(page.number, Found { segment, index, page });
                }
            }
        }
        if let Some(latest) = found.last_key_value().map(|(number, _)| *number) {
            let named = self.replay(device, found, latest)?;
            for (segment, number) in summaries {
                // One that was in doubt once stays so: it was written down again.
                if number <= self.settled && named.get(&segment).is_none_or(|named| *named < number) {
                    self.open.retain(|open| open.segment != segment);
                }
            }
            // One behind the last journal page may be what a power cut has interrupted: it may not stay readable.
            let doubtful = if newest.0 > self.settled { newest.1 } else { Vec::new() };
            for (segment, summary) in doubtful {
                let (tags, _) = self.whole_summary(device, segment, summary)?;
                self.opened(segment).is_closed = true;
                let tags = (0..).zip(tags).filter(|(_, tag)| *tag != NO_TAG);
                tags.for_each(|(index, tag)| self.enter(segment, index, tag));
            }
            for at in 0..self.open.len() {
                let segment = self.open[at].segment;
                for index in self.geometry.pages_per_segment() - self.summary_pages..=last {
                    self.open[at].is_closed |= !matches!(self.look(device, segment, index)?, Look::Blank);
                }
            }
        }
        self.found = self.order;
        self.is_scanned = true;
        Ok(())
    }

    /// Takes over what the journal says, up to its latest page, which is to be written again: a power cut may have interrupted it.
    /// Returns the segments that it has tags of, with the last page that has.
    fn replay<F: Flash>(
        &mut self,
        device: &mut F,
        mut found: BTreeMap<u64, Found>,
        latest: u64,
    ) -> Result<BTreeMap<SegmentId, u64>, FlashError> {
        let mut pages = Vec::new();
        let (mut number, start) = (latest, found[&latest].page.start.min(latest));
        while let Some(next) = found.remove(&number).filter(|_| number >= start) {
            number = next.page.before;
            pages.push(next);
        }
        self.has_gap = number >= start;
        if self.has_gap {
            // What is before the page that cannot be read says what it can.
            pages.extend(found.split_off(&start).into_values().rev().filter(|found| found.page.number < number));
        }
        let mut named = BTreeMap::new();
        for found in pages.iter().rev() {
            if found.page.number == latest {
                self.written = self.order;
            }
            self.open.retain(|open| Some(open.segment) != found.page.erased);
            for (ppn, tag) in &found.page.tags {
                let (segment, index) = (self.geometry.segment_of(*ppn), self.geometry.page_in_segment(*ppn));
                // What is nonsense is damaged.
                if ppn.0 < self.geometry.pages() && index < self.data_pages() && segment.0 > 0 {
                    self.in_journal.insert(segment);
                    named.insert(segment, found.page.number);
                    self.enter(segment, index, *tag);
                }
            }
        }
        let Found { segment, index, page } = &pages[0];
        let lent = |(segment, erases): &(SegmentId, u32)| LentSegment {
            segment: *segment,
            erases: *erases,
            is_bad: false,
            needs_erase: true,
        };
        let is_possible = |lent: &SegmentId| (1..self.geometry.segments()).contains(&lent.0);
        let mut others: Vec<_> = page.lent.iter().copied().filter(|(lent, _)| is_possible(lent)).collect();
        // Those behind the one that is filled come first: the ones before it were used last.
        let at = others.iter().position(|(lent, _)| lent == segment);
        let current = at.map_or((*segment, 0), |at| others.remove(at));
        others.rotate_left(at.unwrap_or(0));
        let is_needed = |lent: &(SegmentId, u32)| pages.iter().any(|found| found.segment == lent.0);
        self.journal.extend(others.iter().filter(|lent| is_needed(lent)).chain([&current]).map(lent));
        self.spares.extend(others.iter().filter(|other| !is_needed(other)).map(lent));
        let (segment, first) = (*segment, *index + 1);
        let mut next = first;
        for index in first..self.geometry.pages_per_segment() {
            if !matches!(self.look(device, segment, index)?, Look::Blank) {
                next = index + 1;
            }
        }
        // The page behind what looks touched may have been, too.
        self.next = next + 1;
        (self.number, self.last, self.start, self.settled) =
            (latest.saturating_add(UNSEEN), latest, start, page.settled);
        (self.must_write, self.is_doubtful) = (true, true);
        Ok(named)
    }

    /// Enters a tag that is on flash.
    fn enter(&mut self, segment: SegmentId, index: u32, tag: [u8; crate::layout::SHORT_TAG_BYTES]) {
        let entry = Entry { index, tag, order: self.order, is_copy: false };
        self.order += 1;
        let entries = &mut self.opened(segment).entries;
        match entries.binary_search_by_key(&index, |entry| entry.index) {
            Ok(at) => entries[at] = entry,
            Err(at) => entries.insert(at, entry),
        }
    }

    fn look<F: Flash>(&mut self, device: &mut F, segment: SegmentId, index: u32) -> Result<Look, FlashError> {
        let ppn = self.ppn(segment, index);
        match device.read(ppn, &mut self.page, &mut []) {
            Ok(_) => {}
            Err(FlashError::Uncorrectable { .. }) => return Ok(Look::Unreadable),
            Err(error) => return Err(error),
        }
        if self.page.iter().all(|byte| *byte == 0xFF) {
            return Ok(Look::Blank);
        }
        let journal = JournalPage::decode(&self.uuid, ppn, &self.page).map(Look::Journal);
        let summary = || SummaryPage::decode(&self.uuid, ppn, &self.page).map(Look::Summary);
        Ok(journal.or_else(summary).unwrap_or(Look::Other))
    }
}

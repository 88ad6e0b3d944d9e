//! Finding out, when a device is opened, what its summaries say.

use crate::crc::crc32c;
use crate::summaries::page::{Head, SummaryPage, TagBytes};
use crate::summaries::{Cover, Entry, Filled, KEPT_SEGMENTS, Summaries};
use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};

/// What a page holds.
enum Look {
    Blank,
    Summary(SummaryPage),
    /// Data with this checksum.
    Data(u32),
    Unreadable,
}

/// A segment without a final summary behind all its pages.
struct Scanned {
    segment: SegmentId,
    pages: Vec<Look>,
}

impl Scanned {
    /// The first page that nothing was programmed in.
    fn next(&self) -> usize {
        self.pages.iter().rposition(|page| !matches!(page, Look::Blank)).map_or(0, |last| last + 1)
    }

    fn summaries(&self) -> impl Iterator<Item = (SegmentId, &SummaryPage)> {
        self.pages.iter().filter_map(|page| match page {
            Look::Summary(summary) => Some((self.segment, summary)),
            _ => None,
        })
    }

    /// Its final summary, if that is the last thing in it.
    fn last_final(&self) -> Option<(u32, &SummaryPage)> {
        let last = self.next().checked_sub(1)?;
        let Look::Summary(summary) = &self.pages[last] else { return None };
        summary.head.is_final.then_some((last as u32, summary))
    }
}

/// The latest summary, the segment that it is in, and its page if it is a final one.
#[derive(Default)]
struct Latest(Option<(SegmentId, Option<u32>, SummaryPage)>);

impl Latest {
    fn see(&mut self, segment: SegmentId, index: Option<u32>, summary: &SummaryPage) {
        if self.0.as_ref().is_none_or(|(.., latest)| summary.head.number > latest.head.number) {
            self.0 = Some((segment, index, summary.clone()));
        }
    }
}

/// What a summary says of a page of a segment that is not complete.
struct Candidate {
    segment: SegmentId,
    index: u32,
    tag: TagBytes,
    cover: Cover,
}

/// Adds what a summary says of the pages of some segments.
fn add(candidates: &mut Vec<Candidate>, holder: SegmentId, page: &SummaryPage, is_wanted: impl Fn(SegmentId) -> bool) {
    let cover = Cover { holder, number: page.head.number };
    for (segment, tags) in page.runs.iter().filter(|(segment, _)| is_wanted(*segment)) {
        candidates.extend(tags.iter().map(|(index, tag)| Candidate {
            segment: *segment,
            index: *index,
            tag: *tag,
            cover,
        }));
    }
}

impl Candidate {
    fn seq(&self) -> u64 {
        (22..28).rev().fold(0, |seq, at| seq << 8 | u64::from(self.tag[at]))
    }

    fn data_crc(&self) -> u32 {
        u32::from_le_bytes(core::array::from_fn(|at| self.tag[44 + at]))
    }
}

impl Summaries {
    /// Reads the summaries of a device that was just opened: one read for each segment, and each page of those that were not
    /// complete.
    pub(super) fn scan<F: Flash>(&mut self, device: &mut F) -> Result<(), FlashError> {
        if self.is_scanned {
            return Ok(());
        }
        let last = self.last_index();
        let (mut open, mut sealed) = (Vec::new(), Vec::new());
        // What a power cut has interrupted may be readable this once.
        let mut latest = Latest::default();
        for segment in (1..self.geometry.segments() + KEPT_SEGMENTS).map(SegmentId) {
            if device.is_known_erased(segment) {
                continue;
            }
            match self.look(device, self.ppn(segment, last))? {
                Look::Summary(summary) if summary.head.is_final => {
                    sealed.push((segment, last, summary.head));
                    latest.see(segment, Some(last), &summary);
                    continue;
                }
                Look::Blank if matches!(self.look(device, self.ppn(segment, 0))?, Look::Blank) => continue,
                _ => {}
            }
            let scanned = self.scan_pages(device, segment)?;
            match scanned.last_final() {
                Some((index, summary)) => {
                    self.early.insert(segment, index);
                    sealed.push((segment, index, summary.head));
                    latest.see(segment, Some(index), summary);
                }
                None => {
                    scanned.summaries().for_each(|(segment, summary)| latest.see(segment, None, summary));
                    open.push(scanned);
                }
            }
        }
        if let Some((segment, index, summary)) = latest.0 {
            self.number = summary.head.number + 1;
            let mut candidates = self.candidates(device, &open, &sealed, (segment, &summary))?;
            // What was written down again after a final summary is not to be read from that alone: it was in doubt.
            let is_doubted = |(of, _, head): &(SegmentId, u32, Head)| {
                candidates.iter().any(|found| found.segment == *of && found.cover.number > head.number)
            };
            let doubted: Vec<_> =
                sealed.iter().filter(|found| is_doubted(found)).map(|(segment, ..)| *segment).collect();
            for segment in doubted {
                self.early.remove(&segment);
                let scanned = self.scan_pages(device, segment)?;
                for (_, page) in scanned.summaries() {
                    add(&mut candidates, segment, page, |of| of == segment);
                }
                open.push(scanned);
            }
            candidates.retain(|found| open.iter().any(|scanned| scanned.segment == found.segment));
            self.take_over(&open, &mut candidates);
            // A power cut may have interrupted it.
            if !self.was_stopped {
                self.doubtful = Some(summary.head.number);
                if let Some(index) = index {
                    self.reopen(segment, index, summary);
                }
            }
        }
        self.keep_segments();
        self.has_taken = true;
        self.is_scanned = true;
        Ok(())
    }

    /// Keeps the tags of a segment in memory although it has its final summary.
    fn reopen(&mut self, segment: SegmentId, index: u32, summary: SummaryPage) {
        let cover = Some(Cover { holder: segment, number: summary.head.number });
        let mut filled = Filled { next: index + 1, is_finished: true, ..Filled::new(segment) };
        for (index, tag) in summary.runs.into_iter().filter(|(of, _)| *of == segment).flat_map(|(_, tags)| tags) {
            filled.push(Entry { index, tag, order: 0, cover }, self.geometry.page_bytes());
        }
        self.early.remove(&segment);
        self.filled.push(filled);
    }

    fn look<F: Flash>(&mut self, device: &mut F, ppn: Ppn) -> Result<Look, FlashError> {
        match device.read(ppn, &mut self.page, &mut []) {
            Ok(_) if self.page.iter().all(|byte| *byte == 0xFF) => Ok(Look::Blank),
            Ok(_) => Ok(match SummaryPage::repair(&self.uuid, ppn, &mut self.page) {
                Some(summary) => Look::Summary(summary),
                None => Look::Data(crc32c(&self.page)),
            }),
            Err(FlashError::Uncorrectable { .. }) => Ok(Look::Unreadable),
            Err(error) => Err(error),
        }
    }

    fn scan_pages<F: Flash>(&mut self, device: &mut F, segment: SegmentId) -> Result<Scanned, FlashError> {
        let pages = (0..self.geometry.pages_per_segment()).map(|index| self.look(device, self.ppn(segment, index)));
        Ok(Scanned { segment, pages: pages.collect::<Result<_, _>>()? })
    }

    /// What the summaries that are needed say of pages of other segments.
    fn candidates<F: Flash>(
        &mut self,
        device: &mut F,
        open: &[Scanned],
        sealed: &[(SegmentId, u32, Head)],
        (of_latest, latest): (SegmentId, &SummaryPage),
    ) -> Result<Vec<Candidate>, FlashError> {
        let mut candidates = Vec::new();
        for (holder, page) in open.iter().flat_map(Scanned::summaries) {
            add(&mut candidates, holder, page, |_| true);
        }
        let low = latest.head.low;
        for (segment, index, head) in sealed.iter().filter(|(.., head)| head.number >= low) {
            let page = if *segment == of_latest {
                latest.clone()
            } else {
                match self.look(device, self.ppn(*segment, *index))? {
                    Look::Summary(page) if page.head == *head => page,
                    _ => continue,
                }
            };
            let own = page.runs.iter().find(|(of, _)| of == segment).map_or(&[][..], |(_, tags)| tags);
            for other in (0..*index).filter(|other| own.binary_search_by_key(other, |(index, _)| *index).is_err()) {
                if let Look::Summary(page) = self.look(device, self.ppn(*segment, other))?
                    && page.head.number >= low
                {
                    add(&mut candidates, *segment, &page, |_| true);
                }
            }
            // What it says of its own segment is known.
            add(&mut candidates, *segment, &page, |of| of != *segment);
        }
        Ok(candidates)
    }

    /// Keeps in memory what is known of the segments that are not complete.
    fn take_over(&mut self, open: &[Scanned], candidates: &mut Vec<Candidate>) {
        // Of several the latest program, and what was written down last.
        candidates
            .sort_by_key(|found| (found.segment.0, found.index, core::cmp::Reverse((found.seq(), found.cover.number))));
        candidates.dedup_by_key(|found| (found.segment, found.index));
        for scanned in open {
            let mut filled = Filled::new(scanned.segment);
            filled.next = scanned.next() as u32;
            let mut latest = 0;
            for found in candidates.iter().filter(|found| found.segment == scanned.segment) {
                let is_of_page = match scanned.pages.get(found.index as usize) {
                    Some(Look::Data(crc)) => found.cover.holder == found.segment || *crc == found.data_crc(),
                    Some(Look::Unreadable) => true,
                    _ => false,
                };
                // Others are of an earlier life of the segment.
                if is_of_page && found.seq() > latest {
                    latest = found.seq();
                    let Candidate { index, tag, cover, .. } = *found;
                    let entry = Entry { index, tag, order: 0, cover: Some(cover) };
                    filled.push(entry, self.geometry.page_bytes());
                }
            }
            // One without tags was taken for summaries and may be open in the log, which has programmed nothing in it.
            filled.is_finished = !filled.entries.is_empty() && !self.resumed.contains(&scanned.segment);
            let has_tag = |index: u32| filled.entries.binary_search_by_key(&index, |entry| entry.index).is_ok();
            let pages = (0..).zip(&scanned.pages);
            let unreadable = pages.filter(|(index, page)| matches!(page, Look::Unreadable) && !has_tag(*index));
            filled.unreadable = unreadable.map(|(index, _)| index).collect();
            self.filled.push(filled);
        }
    }
}

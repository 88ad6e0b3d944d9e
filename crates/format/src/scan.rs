//! Finding out what a segment holds, in as few reads as the layout allows.

use crate::formatted::{Formatted, MARKS_BYTES, Marks};
use crate::layout::{Layout, Place, TAG_BYTES};
use crate::tag::{Decoded, Earlier, PageInfo, PageKind, SegmentInfo, Tag};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Ppn, ReadStatus, SegmentId};

/// A page that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundPage {
    /// Where it is.
    pub ppn: Ppn,
    /// What it holds.
    pub kind: PageKind,
    /// Its owner.
    pub owner: u64,
    /// Its sequence number.
    pub seq: u64,
    /// The rest, if its own tag was read.
    pub info: Option<PageInfo>,
    /// How many sequence numbers before its own no page has, as its own tag says.
    pub skipped: u8,
}

impl FoundPage {
    fn of(ppn: Ppn, tag: &Tag) -> Self {
        let PageInfo { owner, seq, .. } = tag.page;
        Self { ppn, kind: tag.kind, owner, seq, info: Some(tag.page), skipped: tag.skipped }
    }

    fn in_window(ppn: Ppn, kind: PageKind, owner: u64, seq: u64) -> Self {
        Self { ppn, kind, owner, seq, info: None, skipped: 0 }
    }
}

/// What a segment holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundSegment {
    /// What its pages say of it.
    pub info: Option<SegmentInfo>,
    /// Erase count, if nothing was programmed since an erase that is known to be whole.
    pub erased: Option<u32>,
    /// Pages whose tags or owners are known, last one first.
    pub pages: Vec<FoundPage>,
    /// The place behind the last page that was programmed.
    pub next: Ppn,
    /// Something was programmed.
    pub touched: bool,
    /// Pages that should have a tag and have none that can be read, and are in no window.
    pub damaged: Vec<Ppn>,
    /// Pages of a device that has a mark, that may be what a power cut left of a program or an erase after the mark.
    pub torn: Vec<Ppn>,
    /// Its summary cannot be read, so that it is not known what its pages are.
    pub has_lost_tags: bool,
    /// Format version of tags that are newer than this margay.
    pub newer: Option<u8>,
    /// Erase counts of other segments that were erased and unused when its last page was programmed.
    pub ledger: Vec<(SegmentId, u32)>,
    /// Reads that it took.
    pub reads: u32,
}

impl FoundSegment {
    /// What a tag says of its segment: all of it, or one part.
    fn see_info(&mut self, layout: &Layout, info: SegmentInfo) {
        match self.info {
            Some(before) if layout.has_short_tags => self.info = Some(before.and(info)),
            Some(_) => {}
            None => self.info = Some(info),
        }
    }

    /// Pages behind newer ones are of an earlier life of the segment: its erase did not become durable. All they held is
    /// superseded, and what their tags say of the pages before them is true no more.
    fn drop_stale(&mut self) {
        let mut latest = 0;
        let mut kept = Vec::with_capacity(self.pages.len());
        for page in self.pages.drain(..).rev() {
            if page.seq < latest {
                self.torn.push(page.ppn);
            } else {
                latest = page.seq;
                kept.push(page);
            }
        }
        kept.reverse();
        self.pages = kept;
    }
}

/// Failed programs in a row stop all writing after so many, so that no more pages are empty before one that is not.
const MAX_BLANKS: u32 = 17;

enum Seen {
    Tag(Tag),
    Erased,
    Void,
    Damaged,
}

/// When a segment was opened (NOR).
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedAt {
    /// The low 32 bits of the sequence number of the last program before.
    pub seq: u32,
    /// Erases of the device.
    pub total_erases: u64,
}

impl<F: Flash> Formatted<F> {
    /// Finds the pages of a segment: with a spare area by the windows of few pages, on NOR by its table.
    ///
    /// With the `mark` of a device that is cached, everything up to that sequence number is on flash as it was
    /// programmed, and anything may be missing of what came after. A segment that may hold such pages is read page by
    /// page.
    pub fn scan_segment(&mut self, segment: SegmentId, mark: Option<u64>) -> Result<FoundSegment, FlashError> {
        let mut found = FoundSegment { next: self.geometry.first_page(segment), ..FoundSegment::default() };
        if self.layout.place == Place::Table {
            self.scan_table(segment, mark, &mut found)?;
            return Ok(found);
        }
        if self.device.is_known_erased(segment) {
            return Ok(found);
        }
        if self.layout.has_summaries() && segment.0 > 0 {
            self.scan_summary(segment, &mut found)?;
            return Ok(found);
        }
        let last = self.see(self.geometry.first_page(segment).0 + self.geometry.pages_per_segment() - 1, &mut found)?;
        match mark {
            Some(mark) if !matches!(&last, Seen::Tag(tag) if tag.page.seq <= mark) => {
                self.scan_every_page(segment, mark, &mut found)?;
            }
            _ => self.scan_spare(segment, last, &mut found)?,
        }
        // Of few pages none may say it.
        found.info = found.info.filter(|info| info.erases > 0 || !self.layout.has_short_tags);
        Ok(found)
    }

    /// The pages of a segment that were programmed after the mark of the device, by reading each of them. They can be
    /// behind older ones, which an erase that did not become durable has left: those stand for a whole segment in
    /// [`Formatted::scan_segment`].
    pub fn pages_after(&mut self, segment: SegmentId, mark: u64) -> Result<(Vec<Ppn>, u32), FlashError> {
        let mut found = FoundSegment::default();
        if self.layout.place == Place::Spare {
            self.scan_every_page(segment, mark, &mut found)?;
        }
        let after = found.pages.iter().filter(|page| page.seq > mark).map(|page| page.ppn);
        Ok((after.chain(found.torn.iter().copied()).collect(), found.reads))
    }

    /// The pages that were programmed before a page in its segment, nearest first, as far as its tag's window names
    /// them; none if its tag cannot be read.
    pub fn earlier_pages(&mut self, ppn: Ppn) -> Result<Vec<Earlier>, FlashError> {
        match self.read_tagged(ppn, &mut []) {
            Ok((Decoded::Tag(tag), _)) => Ok(tag.earlier(&self.layout, &self.spare).collect()),
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Whether the place of a page's tag is erased but for at most so many bits. False if it cannot be read.
    pub fn is_tag_erased(&mut self, ppn: Ppn, max_flipped_bits: u32) -> Result<bool, FlashError> {
        match self.read_tagged(ppn, &mut []) {
            Ok(_) => {
                let tag = &self.spare[..self.layout.tag_bytes()];
                Ok(tag.iter().map(|byte| byte.count_zeros()).sum::<u32>() <= max_flipped_bits)
            }
            Err(FlashError::Uncorrectable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn see(&mut self, page: u32, found: &mut FoundSegment) -> Result<Seen, FlashError> {
        found.reads += 1;
        Ok(match self.read_tagged(Ppn(page), &mut []) {
            Ok((Decoded::Tag(tag), _)) => Seen::Tag(tag),
            Ok((Decoded::Erased, _)) => Seen::Erased,
            Ok((Decoded::Void, _)) => Seen::Void,
            Ok((Decoded::Newer(version), _)) => {
                found.newer = Some(version);
                Seen::Damaged
            }
            Ok((Decoded::Damaged, _)) | Err(FlashError::Uncorrectable { .. }) => Seen::Damaged,
            Err(error) => return Err(error),
        })
    }

    /// `seen` is what was just read of the last page.
    fn scan_spare(&mut self, segment: SegmentId, mut seen: Seen, found: &mut FoundSegment) -> Result<(), FlashError> {
        let first = self.geometry.first_page(segment).0;
        let last = first + self.geometry.pages_per_segment() - 1;
        // The last programmed page, found by halving unless the segment is full. What was read of it is kept.
        let (mut low, mut high) = (last, last);
        if matches!(seen, Seen::Erased) {
            low = first;
            seen = self.see(first, found)?;
            if matches!(seen, Seen::Erased) {
                return Ok(());
            }
        }
        let mut spare = self.spare.clone();
        while low < last {
            // One page may have been left empty after a power cut: the place behind it decides.
            let middle = if high - low > 1 { low.midpoint(high) } else { low + 2 };
            if middle > last {
                break;
            }
            match self.see(middle, found)? {
                Seen::Erased if middle > high => break,
                Seen::Erased => high = middle,
                other => {
                    (low, high, seen) = (middle, if middle > high { last } else { high }, other);
                    spare.copy_from_slice(&self.spare);
                }
            }
        }
        // Programs that failed one after the other may have left more than one empty.
        let mut page = low + 3;
        while page <= last.min(low + MAX_BLANKS) {
            match self.see(page, found)? {
                Seen::Erased => {}
                other => {
                    (low, seen) = (page, other);
                    spare.copy_from_slice(&self.spare);
                }
            }
            page += 1;
        }
        let mut kept = Some((seen, spare));
        found.touched = true;
        found.next = Ppn(low + 1);
        let mut at = i64::from(low);
        while at >= i64::from(first) {
            let page = at as u32;
            let (seen, bytes) = match kept.take() {
                Some(kept) => kept,
                None => (self.see(page, found)?, self.spare.clone()),
            };
            let Seen::Tag(tag) = seen else {
                // One that is erased was given up before anything was in it.
                if matches!(seen, Seen::Damaged) {
                    found.damaged.push(Ppn(page));
                }
                at -= 1;
                continue;
            };
            if found.info.is_none() {
                found.ledger = Tag::ledger(&self.layout, &bytes).collect();
            }
            found.see_info(&self.layout, tag.segment);
            found.pages.push(FoundPage::of(Ppn(page), &tag));
            let window: Vec<_> = tag.earlier(&self.layout, &bytes).collect();
            at -= 1;
            for earlier in window {
                // Behind a distance that did not fit, pages are read one by one.
                let Some(seq) = earlier.seq else { break };
                if at < i64::from(first) {
                    break;
                }
                found.pages.push(FoundPage::in_window(Ppn(at as u32), tag.kind, earlier.owner, seq));
                at -= 1;
            }
        }
        Ok(())
    }

    /// Reads the tag of every page, from the last one down. What later tags say of a page counts only if its own cannot
    /// be read and it is not newer than the mark.
    fn scan_every_page(&mut self, segment: SegmentId, mark: u64, found: &mut FoundSegment) -> Result<(), FlashError> {
        let first = self.geometry.first_page(segment).0;
        let mut latest = 0;
        let mut is_before_old = false;
        let mut infos = Vec::new();
        // The nearest page behind with a tag, and what that says of those before it.
        let mut behind: (u32, PageKind, Vec<Earlier>) = (0, PageKind::Data, Vec::new());
        for page in (first..first + self.geometry.pages_per_segment()).rev() {
            let seen = self.see(page, found)?;
            if !matches!(seen, Seen::Erased) && !found.touched {
                (found.touched, found.next) = (true, Ppn(page + 1));
            }
            match seen {
                Seen::Erased | Seen::Void => {}
                Seen::Tag(tag) => {
                    // In a segment whose erase was lost in part, the newer pages tell of it.
                    if self.layout.has_short_tags {
                        infos.push((tag.page.seq, tag.segment));
                    }
                    if found.info.is_none() || tag.page.seq > latest {
                        latest = tag.page.seq;
                        found.info = Some(tag.segment);
                        found.ledger = Tag::ledger(&self.layout, &self.spare).collect();
                    }
                    is_before_old |= tag.page.seq <= mark;
                    found.pages.push(FoundPage::of(Ppn(page), &tag));
                    behind = (page, tag.kind, tag.earlier(&self.layout, &self.spare).collect());
                }
                Seen::Damaged => {
                    let (from, kind, window) = &behind;
                    let named = window.get(from.saturating_sub(page + 1) as usize);
                    match named.and_then(|earlier| Some((earlier.owner, earlier.seq?))) {
                        Some((owner, seq)) if seq <= mark => {
                            found.pages.push(FoundPage::in_window(Ppn(page), *kind, owner, seq));
                        }
                        None if is_before_old => found.damaged.push(Ppn(page)),
                        _ => found.torn.push(Ppn(page)),
                    }
                }
            }
        }
        found.drop_stale();
        if self.layout.has_short_tags {
            found.info = None;
            let first = found.pages.last().map_or(0, |page| page.seq);
            let of_this_life = infos.iter().filter(|(seq, _)| *seq >= first);
            of_this_life.for_each(|(_, info)| found.see_info(&self.layout, *info));
        }
        Ok(())
    }

    /// What the summary of a segment says, or the journal.
    fn scan_summary(&mut self, segment: SegmentId, found: &mut FoundSegment) -> Result<(), FlashError> {
        found.reads += 1;
        let first = self.geometry.first_page(segment).0;
        let may_lack_tags = self.device.summaries_ref().is_some_and(|summaries| summaries.may_lack_tags(segment));
        for page in (first..first + self.layout.data_pages(&self.geometry)).rev().map(Ppn) {
            match self.read_tagged(page, &mut []) {
                Ok((Decoded::Tag(tag), _)) => {
                    found.see_info(&self.layout, tag.segment);
                    found.pages.push(FoundPage::of(page, &tag));
                }
                // Behind the last tag is what a power cut took.
                Ok((Decoded::Erased, _)) if found.pages.is_empty() || !may_lack_tags => continue,
                Ok((Decoded::Newer(version), _)) => found.newer = Some(version),
                Ok(_) => found.damaged.push(page),
                Err(FlashError::Uncorrectable { .. }) => {
                    // The same holds of all of them.
                    found.has_lost_tags = true;
                    found.damaged.push(page);
                    break;
                }
                Err(error) => return Err(error),
            }
            if !found.touched {
                (found.touched, found.next) = (true, Ppn(page.0 + 1));
            }
        }
        found.info = found.info.filter(|info| info.erases > 0);
        Ok(())
    }

    fn scan_table(
        &mut self,
        segment: SegmentId,
        mark: Option<u64>,
        found: &mut FoundSegment,
    ) -> Result<(), FlashError> {
        let (first, page_bytes) = (self.geometry.first_page(segment).0, self.geometry.page_bytes());
        let header_pages = self.layout.header_pages;
        let data_pages = self.layout.data_pages(&self.geometry);
        let len = Layout::HEADER_TABLE + data_pages * TAG_BYTES as u32;
        let mut header = vec![0xFF; (header_pages * page_bytes) as usize];
        for page in 0..header_pages {
            let from = page * page_bytes;
            let to = len.min(from + page_bytes);
            let bytes = &mut header[from as usize..to as usize];
            found.reads += 1;
            match self.device.read_part(Ppn(first + page), 0, bytes) {
                Ok(ReadStatus::Clean | ReadStatus::Corrected) => {}
                Err(FlashError::Uncorrectable { .. }) => bytes.fill(0),
                Err(error) => return Err(error),
            }
        }
        let marks = Marks::decode(&header[..MARKS_BYTES]);
        found.touched = header.iter().any(|byte| *byte != 0xFF);
        found.info = marks.opened.map(|(_, info)| info);
        if let Some((erases, total_erases)) = marks.erased {
            found.info.get_or_insert(SegmentInfo { erases, total_erases, ..SegmentInfo::default() });
            let blank_behind = header[16..].iter().all(|byte| *byte == 0xFF);
            // What an erase that is not durable has left behind the header cannot be told.
            found.erased = (blank_behind && mark.is_none()).then_some(erases);
        }
        let table = &mut header[Layout::HEADER_TABLE as usize..len as usize];
        for (index, bytes) in (0..).zip(table.chunks_exact_mut(TAG_BYTES)) {
            let ppn = Ppn(first + header_pages + index);
            let tag = match Tag::decode(&self.layout, ppn, bytes) {
                Decoded::Erased => continue,
                Decoded::Void => {
                    found.next = Ppn(ppn.0 + 1);
                    continue;
                }
                Decoded::Tag(tag) => Some(tag),
                Decoded::Newer(version) => {
                    found.newer = Some(version);
                    None
                }
                Decoded::Damaged => Tag::repair(&self.layout, ppn, bytes),
            };
            found.next = Ppn(ppn.0 + 1);
            let Some(tag) = tag else {
                found.damaged.push(ppn);
                continue;
            };
            found.info.get_or_insert(tag.segment);
            found.pages.push(FoundPage::of(ppn, &tag));
        }
        found.pages.reverse();
        if let Some(mark) = mark {
            let old = found.pages.iter().find(|page| page.seq <= mark).map_or(Ppn(0), |page| page.ppn);
            (found.damaged, found.torn) = found.damaged.iter().partition(|ppn| **ppn < old);
        }
        Ok(())
    }

    /// The page of a segment, from `next` on, behind which every page reads as erased.
    pub fn first_blank_page(&mut self, segment: SegmentId, next: Ppn) -> Result<Ppn, FlashError> {
        let end = self.geometry.first_page(segment).0 + self.geometry.pages_per_segment() - self.layout.summary_pages;
        if let Some((summaries, device)) = self.device.summaries()
            && summaries.is_closed(device, segment)?
        {
            return Ok(Ppn(end));
        }
        let mut data = vec![0; self.geometry.page_bytes() as usize];
        let mut spare = vec![0; self.geometry.spare_bytes() as usize];
        let mut blank = next;
        for page in next.0..end {
            let is_blank = match self.device.read(Ppn(page), &mut data, &mut spare) {
                Ok(_) => data.iter().chain(&spare).all(|byte| *byte == 0xFF),
                Err(FlashError::Uncorrectable { .. }) => false,
                Err(error) => return Err(error),
            };
            if !is_blank {
                blank = Ppn(page + 1);
            }
        }
        Ok(blank)
    }

    /// What a segment was opened for, and when, by the first bytes of its header (NOR only).
    pub(crate) fn segment_opened(&mut self, segment: SegmentId) -> Result<Option<(PageKind, OpenedAt)>, FlashError> {
        let mut bytes = [0xFF; MARKS_BYTES];
        match self.device.read_part(self.geometry.first_page(segment), 0, &mut bytes) {
            Ok(_) => {
                let marks = Marks::decode(&bytes);
                let seq = marks.opened_seq;
                Ok(marks.opened.map(|(kind, info)| (kind, OpenedAt { seq, total_erases: info.total_erases })))
            }
            Err(FlashError::Uncorrectable { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

//! Finding a disk again by the tags of its pages. The latest copy of a page by sequence number is its newest; what
//! an interrupted merge left is either complete, and then counts, or worth nothing, because the pages it was made
//! of are still there: nothing is erased before what replaces it is complete.

use crate::copies::{Copies, Copy};
use crate::hybrid::Stream;
use crate::logs::{LogBlock, NONE};
use crate::unreadable::{Seen, Unreadable};
use crate::{Hybrid, HybridError, NoCache, OpenError, Persistence};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Lpn, Ppn, SegmentId};
use margay_format::{Decoded, Formatted, FoundPage, FreeSegment, PageInfo, PageKind, SegmentInfo, Store};

/// Bits that the tag of an erased page may have lost. A tag that was programmed has some hundred zeros.
const MAX_FLIPPED_BITS: u32 = 8;

/// What the tags say.
struct Found {
    copies: Copies,
    unreadable: Unreadable,
    /// Lists of retired segments.
    lists: Vec<Copy>,
    /// Pages that were programmed after the mark of a device that was cached, with the copies that they are if they count.
    later: Vec<(FoundPage, Option<Copy>)>,
}

/// The page that was programmed last on a device that was not cached.
#[derive(Default)]
struct Latest {
    /// The page and its data, if it can be read.
    suspect: Option<(Copy, Vec<u8>)>,
    /// Segments with pages that cannot be read and claim to be later.
    torn: Vec<u32>,
    /// Those pages, where pages can be made void; or what was programmed after the mark and must not count.
    void: Vec<Ppn>,
}

impl<F: Flash> Hybrid<Formatted<F>> {
    pub(crate) fn recover(&mut self) -> Result<(), OpenError> {
        let mark = self.store.mark()?;
        let mut found = self.read_tags(mark)?;
        if self.config.persistence == Persistence::Volatile {
            self.store.settle(self.seq, &[])?;
            for segment in (self.config.reserved_segments..self.geometry.segments()).map(SegmentId) {
                self.free.push(FreeSegment::unknown(segment));
            }
            return Ok(());
        }
        let mut page = vec![0; self.geometry.page_bytes() as usize];
        let Latest { suspect, mut torn, void } = match mark {
            Some(mark) => {
                let void = self.verify_after(mark, &mut found)?;
                self.leave_retired_out(&mut found, &mut page)?;
                Latest { void, ..Latest::default() }
            }
            None => {
                found.copies.all.append(&mut found.unreadable.known);
                self.leave_retired_out(&mut found, &mut page)?;
                self.find_suspect(&mut found.copies, &mut page)?
            }
        };
        if self.store.is_cached() {
            // What is void needs no other care.
            torn.clear();
        }
        self.store.settle(self.seq, &void)?;
        let Found { mut copies, unreadable, .. } = found;
        self.report.doubtful_programs += unreadable.unknown.len() as u32;
        for (copy, is_last) in unreadable.in_target {
            // What was programmed last may be half programmed although its target was completed.
            let counts = if is_last { !copies.has(copy.lpn) } else { copies.is_completed(&copy) };
            if counts {
                copies.all.push(copy);
            } else if is_last {
                self.report.doubtful_programs += 1;
            }
        }
        copies.index(self.config.logical_pages);
        self.erase_unfinished(&mut copies, &mut page)?;
        if let Some((Copy { segment, .. }, _)) = suspect
            && copies.alive[segment as usize]
            && copies.is_target[segment as usize]
            && copies.is_copy(segment)
        {
            copies.alive[segment as usize] = false;
            self.erase_now(SegmentId(segment))?;
        }
        self.drop_unreadable(&mut copies, &mut page)?;
        self.rebuild(&copies);
        match self.make_safe(&copies, suspect, torn) {
            // It can be read, and nothing on it changes any more.
            Err(OpenError::Hybrid(HybridError::WornOut { .. })) => {
                self.report.is_worn_out = true;
                Ok(())
            }
            result => result,
        }
    }

    /// What has to be written before anything else is: the page that was programmed last, what replaces torn segments, and
    /// merges until there are no more log blocks than there may be.
    fn make_safe(
        &mut self,
        copies: &Copies,
        suspect: Option<(Copy, Vec<u8>)>,
        torn: Vec<u32>,
    ) -> Result<(), OpenError> {
        if let Some((copy, page)) = suspect
            && self.place(copy.lpn) == Some(self.ppn(copy.segment, copy.position))
        {
            // Until then the copy before it is the only one that is sure to last; what else its segment was made of is
            // worth keeping too.
            let sources = copies.sources_of(copy.segment);
            let before = copies.of(copy.lpn).rev().find(|other| other.seq < copy.seq).map(|before| before.segment);
            self.free.sort_by_key(|free| (before == Some(free.segment.0), sources[free.segment.index()]));
            self.write_at_once(copy.lpn, &page, copies)?;
        }
        for segment in torn {
            self.clear(segment)?;
        }
        for at in (0..self.order.len()).rev() {
            if self.logs[self.order[at] as usize].valid == 0 {
                self.merge_random(at, &mut NoCache)?;
            }
        }
        while self.order.len() > self.config.random_log_blocks() as usize {
            self.merge_random(0, &mut NoCache)?;
        }
        Ok(self.sync()?)
    }

    /// Retired segments, and the one that names them, hold nothing that counts.
    fn leave_retired_out(&mut self, found: &mut Found, page: &mut [u8]) -> Result<(), OpenError> {
        self.recover_retired(core::mem::take(&mut found.lists), page)?;
        self.report.retired_segments = self.free.retired().len() as u32;
        found.copies.all.retain(|copy| self.is_ordinary(copy.segment));
        found.unreadable.in_target.retain(|(copy, _)| self.is_ordinary(copy.segment));
        found.unreadable.unknown.retain(|(ppn, _)| self.is_ordinary(self.geometry.segment_of(*ppn).0));
        Ok(())
    }

    /// The page that was programmed last may be half programmed, and readable now and not later: it is to be written
    /// again. If it cannot be read it does not count, and its segment has to be cleared; it may have been an earlier
    /// mount's attempt to write such a page again.
    fn find_suspect(&mut self, copies: &mut Copies, page: &mut [u8]) -> Result<Latest, OpenError> {
        let mut latest = Latest::default();
        let mut lpn = None;
        while let Some(copy) = copies.all.iter().copied().max_by_key(|copy| copy.seq) {
            if lpn.is_some_and(|lpn| lpn != copy.lpn) {
                break;
            }
            let ppn = self.ppn(copy.segment, copy.position);
            match self.store.read(ppn, copy.lpn.0.into(), page) {
                Ok(_) => {
                    latest.suspect = Some((copy, page.to_vec()));
                    break;
                }
                Err(FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. }) => {}
                // It says that it was lost before.
                Err(FlashError::Lost { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            lpn = Some(copy.lpn);
            copies.all.retain(|other| other.seq != copy.seq);
            if self.store.is_cached() {
                latest.void.push(ppn);
            }
            if !latest.torn.contains(&copy.segment) {
                latest.torn.push(copy.segment);
            }
        }
        self.report.doubtful_programs += latest.torn.len() as u32;
        Ok(latest)
    }

    /// On a device that was cached: up to the sequence number `mark` everything counts; of what was programmed after it the
    /// longest row without a gap, each page of which is whole, so that what is found is what there was after some
    /// program. Returns the pages that must never count.
    fn verify_after(&mut self, mark: u64, found: &mut Found) -> Result<Vec<Ppn>, OpenError> {
        let list_owner = self.list_owner();
        let Found { copies, unreadable, lists, later } = found;
        let verified = self.store.verify_after(mark, later.iter().map(|(page, _)| *page).collect())?;
        let (mut void, later) = (verified.void, core::mem::take(later));
        self.seq = verified.seq;
        for (page, copy) in later {
            let at = verified.pages.binary_search_by_key(&page.seq, |other| other.seq);
            if at.is_ok_and(|at| verified.pages[at].ppn == page.ppn) {
                self.writes = self.writes.max(page.info.map_or(0, |info| info.version));
                let all = if copy.is_some_and(|copy| copy.lpn == list_owner) { &mut *lists } else { &mut copies.all };
                all.extend(copy);
                self.report.verified += 1;
            }
        }
        // What cannot be read and was programmed after the mark is no loss.
        let mut is_old = |copy: &Copy| {
            let is_old = copy.seq <= mark;
            if !is_old {
                void.push(self.ppn(copy.segment, copy.position));
            }
            is_old
        };
        unreadable.known.retain(&mut is_old);
        unreadable.in_target.retain(|(copy, _)| is_old(copy));
        void.extend(unreadable.unknown.iter().filter(|(_, is_old)| !is_old).map(|(ppn, _)| *ppn));
        self.report.rolled_back = void.len() as u32;
        copies.all.append(&mut unreadable.known);
        void.extend(copies.drop_leftovers().iter().map(|copy| self.ppn(copy.segment, copy.position)));
        Ok(void)
    }

    /// Reads every tag, and what it says of its segment.
    fn read_tags(&mut self, mark: Option<u64>) -> Result<Found, OpenError> {
        let segments = self.geometry.segments();
        let (copies, unreadable) = (Copies::new(segments), Unreadable::default());
        let mut found = Found { copies, unreadable, lists: Vec::new(), later: Vec::new() };
        let mut known = vec![false; segments as usize];
        let mut seen = vec![Seen::Nothing; self.pages as usize];
        for segment in self.config.reserved_segments..segments {
            seen.fill(Seen::Nothing);
            for position in 0..self.pages {
                let ppn = self.ppn(segment, position);
                let tag = match self.store.read_tagged(ppn, &mut []) {
                    Ok((Decoded::Tag(tag), _)) if tag.kind == PageKind::Data => tag,
                    Ok((Decoded::Newer(version), _)) => return Err(OpenError::Newer { version }),
                    Ok((Decoded::Damaged, _)) | Err(FlashError::Uncorrectable { .. }) => {
                        // Merges leave holes, and a hole may have lost bits.
                        if !self.store.is_tag_erased(ppn, MAX_FLIPPED_BITS)? {
                            seen[position as usize] = Seen::Unreadable;
                        }
                        continue;
                    }
                    Ok(_) => continue,
                    Err(error) => return Err(error.into()),
                };
                seen[position as usize] = Seen::Tag(tag);
                let id = segment as usize;
                self.erases[id] = tag.segment.erases.max(if known[id] { self.erases[id] } else { 0 });
                known[id] = true;
                self.total_erases = self.total_erases.max(tag.segment.total_erases);
                let PageInfo { owner, seq, version, .. } = tag.page;
                let is_list = tag.segment.stream == Stream::RetiredList as u8;
                let lpn = u32::try_from(owner).ok().map(Lpn);
                let lpn = lpn.filter(|lpn| *lpn < self.list_owner() || is_list && *lpn == self.list_owner());
                let (erases, is_target) = (tag.segment.erases, tag.segment.stream == Stream::Data as u8);
                let copy = lpn.map(|lpn| Copy { lpn, seq, version, segment, position, erases, is_target });
                if mark.is_some_and(|mark| seq > mark) {
                    let (info, skipped) = (Some(tag.page), tag.skipped);
                    found.later.push((FoundPage { ppn, kind: tag.kind, owner, seq, info, skipped }, copy));
                } else {
                    self.seq = self.seq.max(seq);
                    self.writes = self.writes.max(version);
                    let all = if is_list { &mut found.lists } else { &mut found.copies.all };
                    all.extend(copy);
                }
                if self.config.persistence == Persistence::Volatile {
                    break;
                }
            }
            if self.config.persistence == Persistence::Persistent {
                self.attribute(segment, &seen, mark, &mut found.unreadable)?;
            }
        }
        // Of a segment without a tag nothing is known; the mean is the best guess.
        let count = known.iter().filter(|known| **known).count() as u64;
        let sum: u64 = self.erases.iter().zip(&known).filter(|(_, known)| **known).map(|(n, _)| u64::from(*n)).sum();
        let mean = sum.checked_div(count).unwrap_or(0) as u32;
        self.erases.iter_mut().zip(&known).filter(|(_, known)| !**known).for_each(|(erases, _)| *erases = mean);
        Ok(found)
    }

    /// Erases the targets of merges that were not completed, the latest first: their last page may not be readable
    /// again, and must not be taken for the newest of its kind later.
    fn erase_unfinished(&mut self, copies: &mut Copies, page: &mut [u8]) -> Result<(), OpenError> {
        let mut targets = vec![(0, 0); copies.alive.len()];
        for copy in copies.all.iter().filter(|copy| copies.is_target[copy.segment as usize]) {
            let entry: &mut (u64, u32) = &mut targets[copy.segment as usize];
            *entry = (entry.0.max(copy.seq), self.block_of(copy.lpn));
        }
        let mut targets: Vec<_> = (0..).zip(targets).filter(|(_, (latest, _))| *latest > 0).collect();
        targets.sort_unstable_by_key(|(_, (latest, _))| core::cmp::Reverse(*latest));
        for (segment, (latest, block)) in targets {
            let first = block * self.pages;
            let lpns = (first..first + self.pages_of(block)).map(Lpn);
            // The segments that it was made of are there, unless it was completed and they are erased in part.
            if copies.is_unfinished(segment, latest, lpns) && self.is_elsewhere(copies, segment, page)? {
                copies.alive[segment as usize] = false;
                self.erase_now(SegmentId(segment))?;
            }
        }
        Ok(())
    }

    /// Erases a segment that must not be found by another mount. Where erases wait, it need not be: what counts then is
    /// what can be read.
    fn erase_now(&mut self, segment: SegmentId) -> Result<(), OpenError> {
        self.release(segment)?;
        if !self.store.defers_erases()
            && let Some(mut free) = self.free.remove(segment)
        {
            let erased = self.erase_if_needed(&mut free);
            self.free.push(free);
            erased?;
        }
        Ok(())
    }

    /// Decides which segments are data blocks, which log blocks and which free.
    fn rebuild(&mut self, copies: &Copies) {
        let segments = self.geometry.segments() as usize;
        // By segment: newest copies in it, the latest of their numbers, its block if all its pages are in place.
        let (mut newest, mut latest) = (vec![0u32; segments], vec![0u64; segments]);
        let mut block = vec![NONE; segments];
        let mut in_place = vec![true; segments];
        for copy in &copies.all {
            let id = copy.segment as usize;
            let own = self.block_of(copy.lpn);
            in_place[id] &= copy.position == copy.lpn.0 % self.pages && (block[id] == NONE || block[id] == own);
            block[id] = own;
            latest[id] = latest[id].max(copy.seq);
        }
        for lpn in (0..self.config.logical_pages).map(Lpn) {
            if let Some(copy) = copies.newest(lpn) {
                newest[copy.segment as usize] += 1;
            }
        }
        for id in (0..segments).filter(|id| newest[*id] > 0 && in_place[*id]) {
            let best = &mut self.data[block[id] as usize];
            let rank = |id: usize| (newest[id], latest[id]);
            if *best == NONE || rank(id) > rank(*best as usize) {
                *best = id as u32;
            }
        }
        let is_data = |id: u32, data: &[u32]| block[id as usize] != NONE && data[block[id as usize] as usize] == id;
        let ids = self.config.reserved_segments..self.geometry.segments();
        let mut logs: Vec<u32> =
            ids.clone().filter(|id| newest[*id as usize] > 0 && !is_data(*id, &self.data)).collect();
        logs.sort_unstable_by_key(|id| latest[*id as usize]);
        let mut slots = vec![NONE; segments];
        for id in logs {
            let slot = self.idle.pop().unwrap_or_else(|| {
                self.logs.push(LogBlock::idle(self.pages));
                self.logs.len() as u32 - 1
            });
            slots[id as usize] = slot;
            self.logs[slot as usize].segment = id;
            self.order.push_back(slot);
            if !self.owned.is_empty() {
                self.logs[slot as usize].block = block[id as usize];
                self.owned[block[id as usize] as usize] = slot;
            }
        }
        for copy in &copies.all {
            let slot = slots[copy.segment as usize];
            if slot != NONE {
                let log = &mut self.logs[slot as usize];
                log.owners[copy.position as usize] = copy.lpn.0;
                // Nothing is programmed behind what a power cut may have left.
                log.next = log.next.max(copy.position + 1);
                log.end = log.next;
            }
        }
        for lpn in (0..self.config.logical_pages).map(Lpn) {
            let Some(copy) = copies.newest(lpn) else { continue };
            match slots[copy.segment as usize] {
                NONE => self.set_present(lpn, true),
                slot => self.link(lpn, slot, copy.position, &mut NoCache),
            }
        }
        let is_used = |id: &u32| slots[*id as usize] != NONE || is_data(*id, &self.data);
        let is_free = |id: &u32| copies.alive[*id as usize] && !is_used(id) && self.is_ordinary(*id);
        let free: Vec<u32> = ids.filter(is_free).collect();
        for segment in free.into_iter().map(SegmentId) {
            self.free.push(FreeSegment::unknown(segment));
        }
    }

    /// Writes a page to a log block of its own, before anything is merged: a merge would read the copy that may not be
    /// readable again. This is what the second segment is for that a disk has beyond its blocks. If earlier mounts took
    /// it for the same and were interrupted, a log block is filled on: one segment has to be left to merge into.
    fn write_at_once(&mut self, lpn: Lpn, page: &[u8], copies: &Copies) -> Result<(), OpenError> {
        let mut may_fill_on = true;
        loop {
            let fill_on = if may_fill_on && self.free.len() < 2 { self.fill_on(copies)? } else { None };
            may_fill_on = fill_on.is_some();
            let slot = match fill_on {
                Some(slot) => slot,
                None => {
                    if self.idle.is_empty() {
                        self.logs.push(LogBlock::idle(self.pages));
                        self.idle.push(self.logs.len() as u32 - 1);
                    }
                    self.open_random(if self.owned.is_empty() { NONE } else { self.block_of(lpn) })?
                }
            };
            self.writes += 1;
            if self.append(slot, lpn, page, &mut NoCache)? {
                return Ok(());
            }
        }
    }

    /// Makes room for one page in the log block filled least, a page behind what an interrupted program may have left.
    fn fill_on(&mut self, copies: &Copies) -> Result<Option<u32>, OpenError> {
        let mut slots: Vec<u32> = self.order.iter().copied().collect();
        slots.sort_by_key(|slot| self.logs[*slot as usize].next);
        for slot in slots {
            let LogBlock { segment, next, .. } = self.logs[slot as usize];
            let id = SegmentId(segment);
            if copies.is_target[segment as usize] || self.retire_queue.contains(&id) || next >= self.pages {
                continue;
            }
            let blank = self.store.first_blank_page(id, self.ppn(segment, next))?;
            let position = blank.0 - self.ppn(segment, 0).0 + 1;
            if position >= self.pages {
                continue;
            }
            let mut pages: Vec<_> = copies.all.iter().filter(|copy| copy.segment == segment).collect();
            pages.sort_unstable_by_key(|copy| copy.seq);
            let info = SegmentInfo {
                erases: self.erases[id.index()],
                total_erases: self.total_erases,
                stream: Stream::Random as u8,
                opened_us: 0,
                opened_writes: self.writes,
            };
            let pages: Vec<_> = pages.iter().map(|copy| (copy.lpn.0.into(), copy.seq)).collect();
            self.store.resume(id, info, &pages);
            let log = &mut self.logs[slot as usize];
            (log.next, log.end) = (position, position + 1);
            return Ok(Some(slot));
        }
        Ok(None)
    }

    /// Sees to it that nothing of a segment is found by another mount: it holds a page that was half programmed,
    /// with a tag that claims to be newer than the page's good copy.
    fn clear(&mut self, segment: u32) -> Result<(), OpenError> {
        if self.free.remove(SegmentId(segment)).is_some() {
            self.erase_now(SegmentId(segment))?;
        } else if let Some(at) = self.order.iter().position(|slot| self.logs[*slot as usize].segment == segment) {
            self.merge_random(at, &mut NoCache)?;
        } else if let Some(block) = self.data.iter().position(|data| *data == segment) {
            let mut merged = crate::Merged {
                victim: crate::Victim::Random,
                kind: crate::MergeKind::Full,
                copies: 0,
                cache_writes: 0,
                drops: 0,
                erases: 0,
            };
            self.collect(block as u32, NONE, &mut merged, &mut NoCache)?;
        }
        Ok(())
    }
}

//! Finding a disk again by the tags of its pages. The latest copy of a page by sequence number is its newest; what
//! an interrupted merge left is either complete, and then counts, or worth nothing, because the pages it was made
//! of are still there: nothing is erased before what replaces it is complete.

use crate::hybrid::{Free, Stream};
use crate::logs::{LogBlock, NONE};
use crate::unreadable::{Seen, Unreadable};
use crate::{Hybrid, HybridError, NoCache, OpenError, Persistence};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Lpn, SegmentId};
use margay_format::{Decoded, Formatted, Kind, SegmentInfo, Store};

/// Bits that the tag of an erased page may have lost. A tag that was programmed has some hundred zeros.
const MAX_FLIPPED_BITS: u32 = 8;

/// A copy of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub lpn: Lpn,
    pub seq: u64,
    pub version: u64,
    pub segment: u32,
    pub position: u32,
}

/// All copies, by page and age.
struct Copies {
    all: Vec<Copy>,
    /// By page, its first copy.
    first: Vec<u32>,
    /// By segment: it counts.
    alive: Vec<bool>,
    /// By segment, it was filled by merges.
    is_target: Vec<bool>,
}

impl Copies {
    fn of(&self, lpn: Lpn) -> impl DoubleEndedIterator<Item = &Copy> {
        let range = self.first[lpn.index()] as usize..self.first[lpn.index() + 1] as usize;
        self.all[range].iter().filter(|copy| self.alive[copy.segment as usize])
    }

    fn newest(&self, lpn: Lpn) -> Option<&Copy> {
        self.of(lpn).next_back()
    }

    /// Whether a target of merges was not completed: a page of its block is missing that was there when the last one
    /// of it was programmed. All it holds is then elsewhere too, in the same version, because its sources are erased
    /// after that.
    fn is_unfinished(&self, segment: u32, latest: u64, lpns: impl Iterator<Item = Lpn> + Clone) -> bool {
        let is_missing = |lpn| self.newest(lpn).is_some_and(|copy| copy.segment != segment && copy.seq < latest);
        let is_elsewhere = |lpn| {
            let own = self.of(lpn).find(|copy| copy.segment == segment);
            own.is_none_or(|own| self.of(lpn).any(|copy| copy.segment != segment && copy.version == own.version))
        };
        lpns.clone().any(is_missing) && lpns.clone().all(is_elsewhere)
    }

    fn has(&self, lpn: Lpn) -> bool {
        self.all.iter().any(|copy| copy.lpn == lpn)
    }

    /// Whether a target of merges was completed: it holds a page that no other segment has in the same version, and
    /// nothing is erased before the target is complete.
    fn is_completed(&self, segment: u32) -> bool {
        self.all.iter().filter(|copy| copy.segment == segment).any(|own| {
            let is_same = |copy: &&Copy| (copy.lpn, copy.version) == (own.lpn, own.version);
            self.all.iter().filter(is_same).all(|copy| copy.segment == segment)
        })
    }

    /// Whether all that a target of merges holds is also, in the same version, in segments that hold more: none of
    /// them can have been erased by half.
    fn is_copy(&self, target: u32) -> bool {
        let mut holds_more = vec![false; self.alive.len()];
        for lpn in (0..self.first.len() as u32 - 1).map(Lpn) {
            if let Some(copy) = self.newest(lpn) {
                holds_more[copy.segment as usize] |= copy.segment != target;
            }
        }
        let mut own = self.all.iter().filter(|copy| copy.segment == target);
        own.all(|copy| {
            let mut same = self.of(copy.lpn).filter(|other| other.version == copy.version);
            same.any(|other| other.segment != target && holds_more[other.segment as usize])
        })
    }

    /// Segments that hold what another one holds, in the same version.
    fn sources_of(&self, segment: u32) -> Vec<bool> {
        let mut sources = vec![false; self.alive.len()];
        for copy in self.all.iter().filter(|copy| copy.segment == segment) {
            let same = self.of(copy.lpn).filter(|other| other.version == copy.version);
            same.for_each(|other| sources[other.segment as usize] = true);
        }
        sources
    }
}

impl<F: Flash> Hybrid<Formatted<F>> {
    pub(crate) fn recover(&mut self) -> Result<(), OpenError> {
        let (mut copies, in_target) = self.read_tags()?;
        if self.config.persistence == Persistence::Volatile {
            for segment in (self.config.reserved_segments..self.geometry.segments()).map(SegmentId) {
                self.free.push_back(Free { segment, needs_erase: true });
            }
            return Ok(());
        }
        let mut page = vec![0; self.geometry.page_bytes() as usize];
        let (suspect, torn) = self.find_suspect(&mut copies, &mut page)?;
        self.doubtful_programs += torn.len() as u32;
        for (copy, is_last) in in_target {
            // What was programmed last may be half programmed although its target was completed.
            let counts = if is_last { !copies.has(copy.lpn) } else { copies.is_completed(copy.segment) };
            if counts {
                copies.all.push(copy);
            } else if is_last {
                self.doubtful_programs += 1;
            }
        }
        self.index(&mut copies);
        self.erase_unfinished(&mut copies)?;
        if let Some(Copy { segment, .. }) = suspect
            && copies.alive[segment as usize]
            && copies.is_target[segment as usize]
            && copies.is_copy(segment)
        {
            copies.alive[segment as usize] = false;
            self.erase(SegmentId(segment))?;
        }
        self.rebuild(&copies);
        if let Some(copy) = suspect
            && self.place(copy.lpn) == Some(self.ppn(copy.segment, copy.position))
        {
            // Until then the copy before it is the only one that is sure to last; what else its segment was made of is
            // worth keeping too.
            let sources = copies.sources_of(copy.segment);
            let before = copies.of(copy.lpn).rev().find(|other| other.seq < copy.seq).map(|before| before.segment);
            let worth = |free: &Free| (before == Some(free.segment.0), sources[free.segment.index()]);
            self.free.make_contiguous().sort_by_key(worth);
            self.write_at_once(copy.lpn, &page, &copies)?;
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

    /// The page that was programmed last may be half programmed, and readable now and not later: it is to be written
    /// again. If it cannot be read it does not count, and its segment has to be cleared; it may have been an
    /// earlier mount's attempt to write such a page again.
    fn find_suspect(&mut self, copies: &mut Copies, page: &mut [u8]) -> Result<(Option<Copy>, Vec<u32>), OpenError> {
        let mut torn: Vec<u32> = Vec::new();
        let mut lpn = None;
        while let Some(copy) = copies.all.iter().copied().max_by_key(|copy| copy.seq) {
            if lpn.is_some_and(|lpn| lpn != copy.lpn) {
                break;
            }
            match self.store.read(self.ppn(copy.segment, copy.position), copy.lpn.0.into(), page) {
                Ok(_) => return Ok((Some(copy), torn)),
                Err(FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. }) => {}
                // It says that it was lost before.
                Err(FlashError::Lost { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            lpn = Some(copy.lpn);
            copies.all.retain(|other| other.seq != copy.seq);
            if !torn.contains(&copy.segment) {
                torn.push(copy.segment);
            }
        }
        Ok((None, torn))
    }

    /// Reads every tag, and what it says of its segment. Returns apart from the copies the pages of targets of merges
    /// that cannot be read, each with whether it is the last of its target.
    fn read_tags(&mut self) -> Result<(Copies, Vec<(Copy, bool)>), OpenError> {
        let segments = self.geometry.segments();
        let mut copies = Copies {
            all: Vec::new(),
            first: Vec::new(),
            alive: vec![true; segments as usize],
            is_target: vec![false; segments as usize],
        };
        let mut known = vec![false; segments as usize];
        let mut unreadable = Unreadable::default();
        let mut seen = vec![Seen::Nothing; self.pages as usize];
        for segment in self.config.reserved_segments..segments {
            seen.fill(Seen::Nothing);
            for position in 0..self.pages {
                let tag = match self.store.read_tagged(self.ppn(segment, position), &mut []) {
                    Ok((Decoded::Tag(tag), _)) if tag.kind == Kind::Data => tag,
                    Ok((Decoded::Newer(version), _)) => return Err(OpenError::Newer { version }),
                    Ok((Decoded::Damaged, _)) | Err(FlashError::Uncorrectable { .. }) => {
                        // Merges leave holes, and a hole may have lost bits.
                        if !self.store.is_tag_erased(self.ppn(segment, position), MAX_FLIPPED_BITS)? {
                            seen[position as usize] = Seen::Unreadable;
                        }
                        continue;
                    }
                    Ok(_) => continue,
                    Err(error) => return Err(error.into()),
                };
                seen[position as usize] = Seen::Tag(tag);
                let id = segment as usize;
                (self.erases[id], known[id]) = (tag.segment.erases, true);
                self.total_erases = self.total_erases.max(tag.segment.total_erases);
                self.seq = self.seq.max(tag.page.seq);
                self.writes = self.writes.max(tag.page.version);
                copies.is_target[id] = tag.segment.stream == Stream::Data as u8;
                if tag.page.owner < u64::from(self.config.logical_pages) {
                    let (lpn, seq, version) = (Lpn(tag.page.owner as u32), tag.page.seq, tag.page.version);
                    copies.all.push(Copy { lpn, seq, version, segment, position });
                }
                if self.config.persistence == Persistence::Volatile {
                    break;
                }
            }
            if self.config.persistence == Persistence::Persistent {
                self.attribute(segment, &seen, &mut unreadable)?;
            }
        }
        copies.all.append(&mut unreadable.known);
        self.doubtful_programs = unreadable.unknown;
        // Of a segment without a tag nothing is known; the mean is the best guess.
        let count = known.iter().filter(|known| **known).count() as u64;
        let sum: u64 = self.erases.iter().zip(&known).filter(|(_, known)| **known).map(|(n, _)| u64::from(*n)).sum();
        let mean = sum.checked_div(count).unwrap_or(0) as u32;
        self.erases.iter_mut().zip(&known).filter(|(_, known)| !**known).for_each(|(erases, _)| *erases = mean);
        self.store.note_seq(self.seq);
        Ok((copies, unreadable.in_target))
    }

    fn index(&self, copies: &mut Copies) {
        copies.all.sort_unstable_by_key(|copy| (copy.lpn, copy.seq));
        copies.first = vec![0; self.config.logical_pages as usize + 1];
        for copy in &copies.all {
            copies.first[copy.lpn.index() + 1] += 1;
        }
        for lpn in 0..self.config.logical_pages as usize {
            copies.first[lpn + 1] += copies.first[lpn];
        }
    }

    /// Erases the targets of merges that were not completed, the latest first: their last page may not be readable
    /// again, and must not be taken for the newest of its kind later.
    fn erase_unfinished(&mut self, copies: &mut Copies) -> Result<(), OpenError> {
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
            if copies.is_unfinished(segment, latest, lpns) {
                copies.alive[segment as usize] = false;
                self.erase(SegmentId(segment))?;
            }
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
        for id in ids.filter(|id| copies.alive[*id as usize] && !is_used(id)) {
            self.free.push_back(Free { segment: SegmentId(id), needs_erase: true });
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
            match self.append(slot, lpn, page, &mut NoCache) {
                Ok(()) => return Ok(()),
                Err(HybridError::Flash(FlashError::ProgramFailed { .. })) => self.spoil(slot),
                Err(error) => return Err(error.into()),
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
            self.store.resume(id, info, pages.iter().map(|copy| (copy.lpn.0.into(), copy.seq)).collect());
            let log = &mut self.logs[slot as usize];
            (log.next, log.end) = (position, position + 1);
            return Ok(Some(slot));
        }
        Ok(None)
    }

    /// Sees to it that nothing of a segment is found by another mount: it holds a page that was half programmed,
    /// with a tag that claims to be newer than the page's good copy.
    fn clear(&mut self, segment: u32) -> Result<(), OpenError> {
        if let Some(at) = self.free.iter().position(|free| free.segment.0 == segment) {
            self.free.remove(at);
            self.erase(SegmentId(segment))?;
        } else if let Some(at) = self.order.iter().position(|slot| self.logs[*slot as usize].segment == segment) {
            self.merge_random(at, &mut NoCache)?;
        } else if let Some(block) = self.data.iter().position(|data| *data == segment) {
            let mut merged = crate::Merged {
                victim: crate::Victim::Random,
                class: crate::Class::Full,
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

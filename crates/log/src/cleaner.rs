use crate::log::{Client, Head, Log, LogError};
use margay_flash::{Flash, Ppn, SegmentId};
use margay_policy::{Pages, Placement, Selection, State};

/// A victim whose pages are being copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaning {
    pub victim: SegmentId,
    /// The next page of the victim, or the next entry of the sorted list.
    next: u32,
}

/// How far [`Log::clean_step`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The victim has valid pages left.
    Copying,
    /// The victim was erased.
    Erased(SegmentId),
    /// No segment has an invalid page.
    NothingToClean,
}

impl<F: Flash, S: Selection, P: Placement, O: Copy + Default> Log<F, S, P, O> {
    /// Cleans one victim to the end. False if there is none.
    pub(crate) fn clean_one<C: Client<O>>(&mut self, client: &mut C) -> Result<bool, LogError> {
        Ok(self.clean_step(client, u32::MAX)? != Progress::NothingToClean)
    }

    /// Cleans a little: chooses a victim if there is none at work, copies at most `budget_pages` of its pages,
    /// and erases it once it holds no valid page. For cleaning in idle time or in proportion to writes.
    pub fn clean_step<C: Client<O>>(&mut self, client: &mut C, budget_pages: u32) -> Result<Progress, LogError> {
        let Some(mut cleaning) = self.cleaning.or_else(|| self.begin_cleaning()) else {
            return Ok(Progress::NothingToClean);
        };
        let copied = if P::SORTS {
            self.copy_sorted(client, &mut cleaning, budget_pages)
        } else {
            self.copy_in_place_order(client, &mut cleaning, budget_pages)
        };
        self.cleaning = Some(cleaning);
        copied?;
        if self.segments.valid[cleaning.victim.index()] > 0 {
            return Ok(Progress::Copying);
        }
        self.cleaning = None;
        self.erase(cleaning.victim)?;
        self.counters.cleanings += 1;
        self.level(client)?;
        Ok(Progress::Erased(cleaning.victim))
    }

    fn begin_cleaning(&mut self) -> Option<Cleaning> {
        let victim = self.selection.select(&self.segments, self.now)?;
        debug_assert!(self.segments.is_candidate(victim), "segment {victim} was selected and is no candidate");
        self.take(victim);
        self.counters.victims[self.segments.valid[victim.index()] as usize] += 1;
        let pages = Pages::new(&self.infos, &self.valid, self.geometry.pages_per_segment());
        self.placement.begin_cleaning(&self.segments, victim, self.now, pages);
        if P::SORTS {
            let first = self.geometry.first_page(victim).0;
            self.sorted.clear();
            for page in 0..self.geometry.pages_per_segment() {
                if self.is_valid(victim, page) {
                    let info = self.infos[(first + page) as usize];
                    self.sorted.push((self.placement.sort_key(self.now, info), page));
                }
            }
            self.sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        Some(Cleaning { victim, next: 0 })
    }

    /// A sealed segment leaves the candidates.
    pub(crate) fn take(&mut self, segment: SegmentId) {
        self.selection.taken(&self.segments, segment);
        self.leveler.taken(segment);
        self.segments.state[segment.index()] = State::Victim;
    }

    #[inline]
    pub(crate) fn is_valid(&self, segment: SegmentId, page: u32) -> bool {
        let word = self.valid[segment.index() * self.words_per_segment + page as usize / 64];
        word >> (page % 64) & 1 == 1
    }

    fn copy_in_place_order<C: Client<O>>(
        &mut self,
        client: &mut C,
        cleaning: &mut Cleaning,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        let victim = cleaning.victim;
        let first = self.geometry.first_page(victim).0;
        let mut left = budget_pages;
        let words = self.geometry.pages_per_segment().div_ceil(64);
        for word in cleaning.next / 64..words {
            let at = victim.index() * self.words_per_segment + word as usize;
            let mut bits = self.valid[at];
            while bits != 0 {
                cleaning.next = word * 64 + bits.trailing_zeros();
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                self.copy_page(client, victim, Ppn(first + cleaning.next))?;
                bits &= bits - 1;
                self.valid[at] = bits;
            }
            cleaning.next = word * 64 + 64;
        }
        Ok(())
    }

    fn copy_sorted<C: Client<O>>(
        &mut self,
        client: &mut C,
        cleaning: &mut Cleaning,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        let victim = cleaning.victim;
        let first = self.geometry.first_page(victim).0;
        let mut left = budget_pages;
        while let Some((_, page)) = self.sorted.get(cleaning.next as usize).copied() {
            // The host may have written it again since the victim was chosen.
            if self.is_valid(victim, page) {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                self.copy_page(client, victim, Ppn(first + page))?;
                self.valid[victim.index() * self.words_per_segment + page as usize / 64] &= !(1 << (page % 64));
            }
            cleaning.next += 1;
        }
        Ok(())
    }

    #[inline]
    fn copy_page<C: Client<O>>(&mut self, client: &mut C, victim: SegmentId, from: Ppn) -> Result<(), LogError> {
        let info = self.infos[from.index()];
        let stream = match self.read_only {
            Some(read_only) if self.segments.stream[victim.index()] == read_only => read_only,
            _ => self.placement.copy(&self.segments, victim, self.now, info),
        };
        let stream = if self.heads[stream as usize].is_full() { self.room_for_copy(stream)? } else { stream };
        let owner = self.owners[from.index()];
        let to = self.put(stream, owner, info);
        self.segments.valid[victim.index()] -= 1;
        self.counters.copies += 1;
        self.device.copy(from, to, &mut self.scratch)?;
        client.relocated(owner, from, to);
        Ok(())
    }

    /// A stream with room for a copy: the one asked for if a segment can be had for it, else any.
    #[cold]
    fn room_for_copy(&mut self, stream: u8) -> Result<u8, LogError> {
        if !self.free.is_empty() {
            let head = core::mem::replace(&mut self.heads[stream as usize], Head::CLOSED);
            if head.is_open() {
                self.seal(head)?;
            }
            self.open(stream)?;
            return Ok(stream);
        }
        let other = self.heads.iter().position(|head| !head.is_full()).ok_or_else(|| self.no_space())?;
        self.counters.misplaced_copies += 1;
        Ok(other as u8)
    }

    /// Erases a segment without valid pages; it is free from then on.
    pub(crate) fn erase(&mut self, segment: SegmentId) -> Result<(), LogError> {
        let i = segment.index();
        debug_assert_eq!(self.segments.valid[i], 0);
        self.device.erase(segment)?;
        self.counters.erases += 1;
        self.segments.erases[i] += 1;
        self.segments.total_erases += 1;
        self.segments.max_erases = self.segments.max_erases.max(self.segments.erases[i]);
        self.segments.state[i] = State::Free;
        self.segments.in_use -= 1;
        self.free.push_back(segment);
        Ok(())
    }
}

use crate::log::{Client, Head, Log, LogError};
use margay_flash::{Flash, Ppn, SegmentId};
use margay_policy::{Pages, Placement, Selection, State};

/// `&all[source..]` as far as it goes without the `run` entries from `target` on, and those. They do not
/// overlap: pages are copied from one segment to another.
fn split<T>(all: &mut [T], source: usize, target: usize, run: usize) -> (&[T], &mut [T]) {
    if source < target {
        let (low, high) = all.split_at_mut(target);
        (&low[source..], &mut high[..run])
    } else {
        let (low, high) = all.split_at_mut(source);
        (high, &mut low[target..target + run])
    }
}

/// The numbers of the bits that are set.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let one = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        one
    })
}

/// At most so many of the bits that are set, the lowest.
fn lowest(bits: u64, count: u32) -> u64 {
    if bits.count_ones() <= count {
        return bits;
    }
    ones(bits).take(count as usize).fold(0, |kept, bit| kept | 1 << bit)
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
    ///
    /// A victim is left half copied only while a free segment is kept for the rest of it; without one it is
    /// cleaned to the end whatever the budget, because the host could take the room that its pages need.
    pub fn clean_step<C: Client<O>>(&mut self, client: &mut C, budget_pages: u32) -> Result<Progress, LogError> {
        let victim = match self.victim {
            Some(victim) => victim,
            None => match self.begin_cleaning() {
                Some(victim) => victim,
                None => return Ok(Progress::NothingToClean),
            },
        };
        self.copy_valid(client, victim, budget_pages)?;
        if self.free.is_empty() {
            self.copy_valid(client, victim, u32::MAX)?;
        }
        if self.segments.valid[victim.index()] > 0 {
            return Ok(Progress::Copying);
        }
        self.victim = None;
        self.erase(victim)?;
        self.counters.cleanings += 1;
        self.level(client)?;
        Ok(Progress::Erased(victim))
    }

    fn begin_cleaning(&mut self) -> Option<SegmentId> {
        let victim = self.selection.select(&self.segments, self.now)?;
        debug_assert!(self.segments.is_candidate(victim), "segment {victim} was selected and is no candidate");
        self.take(victim);
        self.victim = Some(victim);
        self.counters.victims[self.segments.valid[victim.index()] as usize] += 1;
        let pages = Pages::new(&self.infos, &self.valid, self.geometry.pages_per_segment());
        self.placement.begin_cleaning(&self.segments, victim, self.now, pages);
        if P::SORTS {
            self.sort_valid(victim);
        }
        Some(victim)
    }

    /// Lists the valid pages of a victim in the order in which the placement wants them copied.
    fn sort_valid(&mut self, victim: SegmentId) {
        let first = self.geometry.first_page(victim).0;
        let mut sorted = core::mem::take(&mut self.sorted);
        sorted.clear();
        sorted.extend((0..self.geometry.pages_per_segment()).filter(|page| self.is_valid(victim, *page)));
        let key = |page: &u32| self.placement.sort_key(self.now, self.infos[(first + page) as usize]);
        // Taken from the end.
        sorted.sort_by(|a, b| key(b).total_cmp(&key(a)));
        self.sorted = sorted;
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

    /// Copies up to `budget_pages` valid pages of the victim to where the placement wants them.
    fn copy_valid<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        let mut left = budget_pages;
        while P::SORTS && left > 0 {
            let Some(page) = self.sorted.pop() else { return Ok(()) };
            // The host may have written it again since the victim was chosen.
            if self.is_valid(victim, page) {
                left -= self.copy_together(client, victim, page / 64, 1 << (page % 64), left)?;
            }
        }
        for word in 0..self.geometry.pages_per_segment().div_ceil(64) {
            loop {
                let bits = self.valid[victim.index() * self.words_per_segment + word as usize];
                if bits == 0 || left == 0 {
                    break;
                }
                left -= self.copy_together(client, victim, word, bits, left)?;
            }
        }
        Ok(())
    }

    fn copy_stream(&self, victim: SegmentId, page: u32) -> u8 {
        match self.read_only {
            Some(read_only) if self.segments.stream[victim.index()] == read_only => read_only,
            _ => {
                let from = self.geometry.first_page(victim).index() + page as usize;
                self.placement.copy(&self.segments, victim, self.now, self.infos[from])
            }
        }
    }

    /// Of the pages `bits` in one word of the victim's bitmap, copies those that go where the first of them
    /// goes, as many as fit the head and `most`. Returns how many. Within a stream pages keep their order.
    fn copy_together<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        word: u32,
        bits: u64,
        most: u32,
    ) -> Result<u32, LogError> {
        let wanted = self.copy_stream(victim, word * 64 + bits.trailing_zeros());
        let stream = if self.heads[wanted as usize].is_full() { self.room_for_copy(wanted)? } else { wanted };
        let mut together = bits;
        if !P::ONE_STREAM_PER_VICTIM {
            for page in ones(bits).skip(1) {
                let goes_along = self.copy_stream(victim, word * 64 + page) == wanted;
                together &= !(u64::from(!goes_along) << page);
            }
        }
        let head = self.heads[stream as usize];
        let together = lowest(together, most.min(head.end - head.next));
        let copied = self.copy_pages(client, victim, word, together, head.next);
        let done = copied.as_ref().map_or_else(|(done, _)| *done, |()| together.count_ones());
        self.heads[stream as usize].next += done;
        self.counters.copies += u64::from(done);
        copied.map(|()| done).map_err(|(_, error)| error)
    }

    /// Copies the pages `bits` of one word of a segment's bitmap to `to` and after. On an error says how many
    /// were copied.
    pub(crate) fn copy_pages<C: Client<O>>(
        &mut self,
        client: &mut C,
        from: SegmentId,
        word: u32,
        bits: u64,
        to: u32,
    ) -> Result<(), (u32, LogError)> {
        let first = self.geometry.first_page(from).0 + word * 64;
        let run = bits.count_ones() as usize;
        let (source, target) = split(&mut self.owners, first as usize, to as usize, run);
        let mut result = Ok(());
        for ((page, slot), place) in ones(bits).zip(target).zip(to..) {
            let owner = source[page as usize];
            *slot = owner;
            if let Err(error) = self.device.copy(Ppn(first + page), Ppn(place), &mut self.scratch) {
                result = Err((place - to, error.into()));
                break;
            }
            client.relocated(owner, Ppn(first + page), Ppn(place));
        }
        if size_of::<P::Info>() > 0 {
            let (source, target) = split(&mut self.infos, first as usize, to as usize, run);
            for (page, slot) in ones(bits).zip(target) {
                *slot = source[page as usize];
            }
        }
        let done = result.as_ref().map_or_else(|(done, _)| *done, |()| run as u32);
        let at = from.index() * self.words_per_segment + word as usize;
        self.valid[at] &= !lowest(bits, done);
        self.segments.valid[from.index()] -= done;
        result
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

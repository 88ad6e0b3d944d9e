use crate::log::{Head, Log};
use crate::valid::ValidBits;
use crate::{Client, LogError, Owner};
use alloc::vec::Vec;
use core::num::NonZeroU64;
use margay_flash::{FlashError, Ppn, SegmentId};
use margay_format::{Copied, FreeSegment, PageInfo, Store, U48_MAX};
use margay_policy::State;
use margay_policy::placement::word_and_run;

/// Tries to erase a segment whose pages are in memory only.
const ERASE_TRIES: u32 = 3;

/// What [`Log::clean_step`] has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The victim still has valid pages.
    Copying,
    /// The victim was erased.
    Erased(SegmentId),
    /// No sealed segment has an invalid page.
    NothingToClean,
}

impl<D: Store, O: Owner> Log<D, O> {
    /// Cleans one victim completely. False if there is none.
    pub(crate) fn clean_one<C: Client<O>>(&mut self, client: &mut C) -> Result<bool, LogError> {
        Ok(self.clean_step(client, u32::MAX)? != Progress::NothingToClean)
    }

    /// One bounded step of cleaning: chooses a victim if there is none, copies at most `budget_pages` of its pages, and
    /// erases it once it holds no valid page. For cleaning in idle time or in proportion to writes.
    ///
    /// A victim is left half copied only while one free segment is kept for the rest of it, or while the open segments
    /// have room for it. Otherwise it is cleaned completely, whatever the budget, because host writes could take that
    /// room.
    pub fn clean_step<C: Client<O>>(&mut self, client: &mut C, budget_pages: u32) -> Result<Progress, LogError> {
        let victim = match self.victim {
            Some(victim) => victim,
            None => match self.begin_cleaning(client) {
                Some(victim) => {
                    if C::GIVES_UP {
                        self.ask_client(client, victim);
                    }
                    victim
                }
                None => return Ok(Progress::NothingToClean),
            },
        };
        if D::KEEPS_INFO && self.config.owners_on_flash {
            self.read_owners_of(victim)?;
        }
        self.copy_victim(client, victim, budget_pages)?;
        if self.free.is_empty() && !self.may_wait(victim) {
            self.copy_victim(client, victim, u32::MAX)?;
        }
        if self.victim.is_none() {
            self.end_relocation()?;
            return Ok(Progress::Erased(victim));
        }
        if self.segments.valid[victim.index()] > 0 {
            return Ok(Progress::Copying);
        }
        if D::KEEPS_INFO || self.config.is_paced() {
            // What was trimmed is recorded on flash first: after a power cut an older copy must not count as the
            // latest.
            self.write_pending(client)?;
            // Writing those pages may have cleaned the victim in place.
            if self.victim.is_none() {
                self.end_relocation()?;
                return Ok(Progress::Erased(victim));
            }
        }
        self.victim = None;
        if self.relocation.is_under_way {
            self.end_relocation()?;
            self.counters.leveling_erases += 1;
        }
        self.erase(victim)?;
        if D::KEEPS_INFO || self.config.is_paced() {
            // The pages for which there was no room before the erase.
            self.write_pending(client)?;
        }
        self.counters.cleanings += 1;
        self.level(client, victim)?;
        Ok(Progress::Erased(victim))
    }

    /// Cleans one segment completely, after the current victim if there is one. False if the segment is not sealed.
    pub fn clean_segment<C: Client<O>>(&mut self, client: &mut C, segment: SegmentId) -> Result<bool, LogError> {
        if self.victim.is_some() {
            self.clean_one(client)?;
        }
        if self.segments.state[segment.index()] != State::Sealed {
            return Ok(false);
        }
        // One whose program has failed waits there to be cleaned, and must not be cleaned twice.
        self.clean_first.retain(|waiting| *waiting != segment);
        self.clean_first.push_front(segment);
        self.clean_one(client)
    }

    /// Seals a segment that is open and full, which otherwise happens when the next page is written to its stream. False
    /// if it is not.
    ///
    /// # Errors
    /// Those of the device.
    pub fn seal_full(&mut self, segment: SegmentId) -> Result<bool, LogError> {
        let is_full = |head: &&mut Head| head.is_open() && head.is_full() && head.segment == segment;
        let Some(head) = self.heads.iter_mut().find(is_full) else { return Ok(false) };
        let head = core::mem::replace(head, Head::CLOSED);
        self.seal(head)?;
        Ok(true)
    }

    /// Seals the open segments that hold invalid pages, so that they can be cleaned.
    pub fn seal_mixed(&mut self) -> Result<(), LogError> {
        for stream in 0..self.heads.len() {
            let head = self.heads[stream];
            // Pages that are not written yet count as valid.
            if head.is_open() && self.segments.valid[head.segment.index()] < self.segments.data_pages {
                self.heads[stream] = Head::CLOSED;
                self.seal(head)?;
            }
        }
        Ok(())
    }

    /// Copies up to `budget_pages` valid pages of the victim.
    fn copy_victim<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        if self.relocation.is_under_way {
            self.copy_for_leveling(client, victim, budget_pages)
        } else {
            self.copy_valid(client, victim, budget_pages)
        }
    }

    /// Whether the rest of a victim may wait although no segment is free, because its pages fit the open segments.
    fn may_wait(&self, victim: SegmentId) -> bool {
        let room: u32 = self.heads.iter().map(Head::room).sum();
        let valid = self.segments.valid[victim.index()];
        self.config.is_paced() && (room >= valid + 2 || self.relocation.head.room() >= valid)
    }

    fn begin_cleaning<C: Client<O>>(&mut self, client: &C) -> Option<SegmentId> {
        self.segments.sums.clear();
        self.segments.sums.extend_from_slice(self.placement.sums());
        let mut chosen = self.chosen_victim();
        if C::GIVES_UP && chosen.is_none() {
            chosen = client.victim(&self.segments);
        }
        let victim = match chosen {
            Some(victim) => victim,
            None => {
                self.copy_bounds();
                let selected = self.selection.select(&self.segments, self.now);
                self.selection.chosen(&mut self.segments);
                selected?
            }
        };
        debug_assert!(chosen.is_some() || self.segments.is_candidate(victim), "segment {victim} is no candidate");
        self.take(victim);
        self.victim = Some(victim);
        let valid = self.segments.valid[victim.index()];
        self.counters.victims[valid as usize] += 1;
        self.rate_pages = valid.div_ceil((self.segments.data_pages - valid).max(1)).max(1);
        self.placement.begin_cleaning(&self.segments, victim, self.now, self.valid.words());
        if self.placement.sorts() {
            self.sort_valid(victim);
        }
        Some(victim)
    }

    /// Shows the selection what the placement says of its streams, if that has changed.
    fn copy_bounds(&mut self) {
        if let Some(bounds) = self.placement.bounds()
            && bounds.version != self.segments.bounds.version
        {
            self.segments.bounds.clone_from(bounds);
        }
    }

    /// Asks the client which pages of a victim it gives up, and invalidates those.
    fn ask_client<C: Client<O>>(&mut self, client: &mut C, victim: SegmentId) {
        let first = self.geometry.first_page(victim).0;
        for page in first..first + self.geometry.pages_per_segment() {
            if self.valid.is_set(Ppn(page)) && client.gives_up(self.owners[page as usize]) {
                self.invalidate(Ppn(page));
                self.segments.total_valid -= 1;
            }
        }
    }

    /// A victim that the selection does not choose: a segment to be cleaned first, or, while enough segments are free,
    /// the one that leveling wants cleaned.
    fn chosen_victim(&mut self) -> Option<SegmentId> {
        if let Some(segment) = self.clean_first.pop_front() {
            return Some(segment);
        }
        self.leveling_victim()
    }

    /// Lists the valid pages of a victim in the order in which the placement wants them copied.
    fn sort_valid(&mut self, victim: SegmentId) {
        let first = self.geometry.first_page(victim).0;
        let mut sorted = core::mem::take(&mut self.sorted);
        sorted.clear();
        let pages = first..first + self.geometry.pages_per_segment();
        sorted.extend(pages.filter(|page| self.valid.is_set(Ppn(*page))));
        // `copy_valid` takes pages from the end.
        self.placement.sort(self.now, &mut sorted);
        self.sorted = sorted;
    }

    /// Makes a sealed segment a victim, so that the policies no longer consider it.
    pub(crate) fn take(&mut self, segment: SegmentId) {
        self.selection.taken(&self.segments, segment);
        if let Some(leveling) = &mut self.leveling {
            leveling.taken(segment);
        }
        self.clean_first.retain(|waiting| *waiting != segment);
        self.segments.state[segment.index()] = State::Victim;
        self.read_owners.forget();
    }

    /// Gives a victim back that is not cleaned after all: it is sealed again.
    fn give_back(&mut self, segment: SegmentId) {
        self.selection.opened(&self.segments, segment);
        self.segments.state[segment.index()] = State::Sealed;
        self.selection.sealed(&self.segments, segment);
        if let Some(leveling) = &mut self.leveling {
            leveling.sealed(&self.segments, segment);
        }
    }

    /// Copies up to `budget_pages` valid pages of the victim to the streams that the placement chooses.
    pub(crate) fn copy_valid<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        let mut left = budget_pages;
        let sorts = self.placement.sorts();
        while sorts && left > 0 {
            let Some(page) = self.sorted.pop() else { return Ok(()) };
            // The host may have overwritten it since the victim was chosen.
            if self.valid.is_set(Ppn(page)) {
                let stream = self.copy_stream(victim, page, 1).0;
                let copied = self.copy_together(client, victim, page, stream, 1, left);
                // It is yet to be copied, if not now then by the next step.
                if !matches!(copied, Ok((1.., _))) && self.victim.is_some() {
                    self.sorted.push(page);
                }
                left -= copied?.0;
            }
        }
        let mut first = self.geometry.first_page(victim).0;
        let end = first + self.geometry.pages_per_segment();
        while first < end {
            let mut bits = self.valid.part(first, end);
            let mut known = None;
            while bits != 0 {
                if left == 0 || self.victim.is_none() {
                    return Ok(());
                }
                let (stream, together) = known.unwrap_or_else(|| self.copy_stream(victim, first, bits));
                let (count, copied) = self.copy_together(client, victim, first, stream, together, left)?;
                left -= count;
                bits &= !copied;
                // What does not go to one of two streams goes to the other.
                known = (self.has_two_streams && copied == together).then_some((stream ^ 1, bits));
            }
            first = ValidBits::next_part(first);
        }
        Ok(())
    }

    /// Copies up to `budget_pages` valid pages of the victim to one stream, in their order.
    pub(crate) fn copy_valid_to<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        stream: u8,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        let mut left = budget_pages;
        let mut first = self.geometry.first_page(victim).0;
        let end = first + self.geometry.pages_per_segment();
        while first < end {
            let mut bits = self.valid.part(first, end);
            while bits != 0 {
                if left == 0 || self.victim.is_none() {
                    return Ok(());
                }
                let (count, copied) = self.copy_together(client, victim, first, stream, bits, left)?;
                left -= count;
                bits &= !copied;
            }
            first = ValidBits::next_part(first);
        }
        Ok(())
    }

    /// Among the pages of a victim that `bits` marks, counted from `first`: the stream of the lowest one, and all that
    /// go to the same stream.
    #[inline]
    fn copy_stream(&self, victim: SegmentId, first: u32, bits: u64) -> (u8, u64) {
        match self.stream_apart(victim) {
            Some(apart) => (apart, bits),
            _ if self.is_undivided => (0, bits),
            _ => {
                let owner = |page: u32| self.owner_in_victim(Ppn(first + page)).to_u64();
                self.placement.split(&self.segments, victim, self.now, Ppn(first), bits, &owner)
            }
        }
    }

    /// Copies pages of a victim, which `bits` marks, counted from `first`, to a stream: as many as fit its open segment,
    /// and at most `max_pages`. Returns how many, and which are done with. Within a stream pages keep their order.
    #[inline(always)]
    fn copy_together<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        first: u32,
        wanted: u8,
        bits: u64,
        max_pages: u32,
    ) -> Result<(u32, u64), LogError> {
        let (mut stream, mut bits, mut gone) = (wanted, bits, 0);
        if self.heads[wanted as usize].is_full() {
            stream = self.room_for_copy(client, wanted)?;
            if self.victim.is_none() {
                return Ok((0, 0));
            }
            // What is pending may have been written meanwhile, and an older version of it lie here.
            gone = bits & !self.valid.part(first, first + 64);
            bits &= !gone;
        }
        let head = self.heads[stream as usize];
        let end = head.end.min(head.next.saturating_add(max_pages));
        let (copied, result) = self.copy_pages(client, victim, first, bits, head.next, end);
        let count = copied.1 - head.next;
        self.heads[stream as usize].next += count;
        self.counters.copies += u64::from(count);
        if let Err(error) = result {
            self.after_failed_program(stream, error)?;
        }
        Ok((count, copied.0 | gone))
    }

    /// Copies pages that `bits` marks, counted from `first`, all of segment `from`, to `to` and the pages after it, as many
    /// as there is room for up to `end`. Returns which were copied, and the page after the last one programmed.
    #[inline]
    pub(crate) fn copy_pages<C: Client<O>>(
        &mut self,
        client: &mut C,
        from: SegmentId,
        first: u32,
        bits: u64,
        to: u32,
        end: u32,
    ) -> ((u64, u32), Result<(), FlashError>) {
        let (mut word, mut read) = (None, None);
        // A device without tags pays nothing for this.
        let (source, target) = match D::KEEPS_INFO && self.owners.is_empty() {
            false => word_and_run(&mut self.owners, first, to, end - to, &mut word),
            true => self.read_owners.word_and_run(&self.geometry, first, end - to, &mut read),
        };
        let mut result = Ok(());
        let (mut left, mut place) = (NonZeroU64::new(bits), to);
        let mut slots = target.iter_mut();
        while let Some(set) = left
            && let Some(slot) = slots.next()
        {
            let page = set.trailing_zeros();
            let owner = source[page as usize];
            *slot = owner;
            if D::KEEPS_INFO {
                self.seq += 1;
            }
            match self.device.copy(Ppn(first + page), Ppn(place), owner.to_u64(), self.seq) {
                Ok(Copied::Whole) => {}
                Ok(Copied::Lost) => self.counters.lost_pages += 1,
                Err(error) => {
                    if D::KEEPS_INFO && !self.device.was_begun(Ppn(place)) {
                        self.seq -= 1;
                    }
                    result = Err(error);
                    break;
                }
            }
            client.relocated(owner, Ppn(place));
            place += 1;
            left = NonZeroU64::new(set.get() & (set.get() - 1));
        }
        let (copied, count) = (bits & !left.map_or(0, NonZeroU64::get), place - to);
        if self.keeps_pages {
            self.placement.moved(Ppn(first), copied, Ppn(to), count);
        }
        self.valid.clear_part(first, copied);
        self.segments.valid[from.index()] -= count;
        ((copied, place), result)
    }

    /// A stream with room for a copy: the one asked for if a segment can be opened for it, otherwise any other.
    #[cold]
    fn room_for_copy<C: Client<O>>(&mut self, client: &mut C, stream: u8) -> Result<u8, LogError> {
        if !self.free.is_empty() {
            let head = core::mem::replace(&mut self.heads[stream as usize], Head::CLOSED);
            if head.is_open() {
                self.seal(head)?;
            }
            match self.open(stream) {
                // All that were left failed.
                Err(LogError::NoSpace { .. }) => {}
                result => return result.map(|()| stream),
            }
        }
        if let Some(other) = self.heads.iter().position(|head| !head.is_full()) {
            self.counters.misplaced_copies += 1;
            return Ok(other as u8);
        }
        self.make_room_in_place(client, stream)?;
        Ok(stream)
    }

    /// An empty list with room for `len` items; [`LogError::NoSpace`] if there is no memory for it.
    fn with_room<T>(&self, len: usize) -> Result<Vec<T>, LogError> {
        let mut list = Vec::new();
        list.try_reserve_exact(len).map_err(|_| self.no_space())?;
        Ok(list)
    }

    /// The segment that was opened for the victim's pages has failed, and no other is free: reads the valid pages of a
    /// segment into memory, erases it, and writes them back, so that the stream has room again. This is the only moment
    /// at which a power cut loses data. Without it the device could never be written again.
    #[cold]
    pub(crate) fn make_room_in_place<C: Client<O>>(&mut self, client: &mut C, stream: u8) -> Result<(), LogError> {
        if !self.config.is_paced() {
            return Err(self.no_space());
        }
        if self.device.has_just_failed() {
            // What is read into memory now could perhaps not be written back. The device is opened again when it works.
            self.device.stop_writing();
            return Err(FlashError::Stopped.into());
        }
        let victim = self.victim.filter(|victim| !self.retire_queue.contains(victim));
        let may = |id: &SegmentId| self.segments.is_candidate(*id) && !self.retire_queue.contains(id);
        let emptiest = || self.segments.ids().filter(may).min_by_key(|id| self.segments.valid[id.index()]);
        let segment = victim.or_else(emptiest).ok_or_else(|| self.no_space())?;
        if self.config.owners_on_flash {
            self.read_owners_of(segment)?;
        }
        let first = self.geometry.first_page(segment).0;
        let end = first + self.geometry.pages_per_segment();
        let valid = (first..end).map(Ppn).filter(|ppn| self.valid.is_set(*ppn));
        // On a microcontroller there may be no memory for a whole segment.
        let mut pages = self.with_room(valid.clone().count())?;
        pages.extend(valid);
        // What cannot be written back must not be erased.
        if D::KEEPS_INFO && self.seq.saturating_add(pages.len() as u64) > U48_MAX {
            return Err(FlashError::NumbersSpent { ppn: self.geometry.first_page(segment) }.into());
        }
        let page_bytes = self.geometry.page_bytes() as usize;
        let mut kept = self.with_room(pages.len())?;
        for ppn in &pages {
            let mut data = self.with_room(page_bytes)?;
            data.resize(page_bytes, 0);
            let lost = self.is_lost(*ppn, &mut data)?;
            kept.push((self.owner_in_victim(*ppn), lost, data));
        }
        self.placement.detach(&pages);
        // Until here nothing has changed, so that whoever meets an error of the host can try again.
        self.device.record(self.seq)?;
        self.device.make_place()?;
        let is_final = |result: &Result<(), FlashError>| {
            matches!(result, Ok(()) | Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }))
        };
        let mut erased = self.erase_on_device(segment);
        for _ in 1..ERASE_TRIES {
            if !is_final(&erased) {
                erased = self.erase_on_device(segment);
            }
        }
        if erased == Err(FlashError::NoPlace) {
            // It was not tried.
            return Err(FlashError::NoPlace.into());
        }
        if !is_final(&erased) {
            // It may be erased or not, and what it held is nowhere else.
            self.device.stop_writing();
            return Err(erased.expect_err("it is final otherwise").into());
        }
        match victim {
            Some(_) => {
                self.victim = None;
                self.sorted.clear();
            }
            None => self.take(segment),
        }
        if erased.is_err() {
            // It stays readable; nothing more is programmed in it.
            self.give_back(segment);
            self.retire_queue.push(segment);
            return Err(self.no_space());
        }
        self.valid.fill(first, end, false);
        self.segments.valid[segment.index()] = 0;
        self.segments.in_use -= 1;
        let full = core::mem::replace(&mut self.heads[stream as usize], Head::CLOSED);
        if full.is_open() {
            self.seal(full)?;
        }
        self.heads[stream as usize] = match self.open_segment(&mut FreeSegment::erased(segment), stream) {
            Ok(head) => head,
            Err(error) => {
                // What it held is nowhere but here.
                self.device.stop_writing();
                return Err(error.into());
            }
        };
        for (number, (owner, lost, data)) in kept.into_iter().enumerate() {
            let to = Ppn(self.heads[stream as usize].next);
            self.placement.attach(number, to);
            let page = PageInfo { lost, heat: self.placement.pack_at(to), ..self.own_page_info(owner) };
            let to = match self.program_kept(stream, to, &data, page) {
                Ok(to) => to,
                Err(error) => {
                    // The pages that are left are nowhere but here.
                    self.device.stop_writing();
                    return Err(error);
                }
            };
            self.heads[stream as usize].next += 1;
            self.counters.copies += 1;
            self.counters.lost_pages += u64::from(lost);
            self.note_owner(to, owner);
            client.relocated(owner, to);
        }
        if self.config.owners_on_flash
            && let Some(victim) = self.victim
        {
            self.read_owners_of(victim)?;
        }
        // The segment may have held what a trim outdated that is not on flash yet, and older copies may be elsewhere.
        let written = self.write_pending(client);
        // Until then what was durable before is nowhere on a device that is cached.
        self.sync()?;
        written
    }

    /// Programs a page that is on flash no more: at `to`, or behind it if that fails for a moment. Returns where.
    fn program_kept(&mut self, stream: u8, mut to: Ppn, data: &[u8], page: PageInfo) -> Result<Ppn, LogError> {
        loop {
            let Err(error) = self.program(to, data, page) else { return Ok(to) };
            if matches!(error, FlashError::ProgramFailed { .. }) || !self.device.was_begun(to) {
                return Err(error.into());
            }
            self.spend_page(stream);
            if self.heads[stream as usize].is_full() {
                return Err(error.into());
            }
            to = Ppn(self.heads[stream as usize].next);
        }
    }

    /// Reads a valid page whose segment is erased next. Whether it is lost: it was tried twice, and the chip says that
    /// the page cannot be read. Any other error is no reason to erase it.
    fn is_lost(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<bool, FlashError> {
        let owner = self.owner_in_victim(ppn).to_u64();
        for _ in 0..2 {
            match self.device.read(ppn, owner, data) {
                Ok(_) => return Ok(false),
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

//! Writing on a device that may lose its power at any moment: a page is invalidated once its successor is on flash,
//! cleaning is spread over the writes, and one free segment is always kept for a half-copied victim.

use crate::log::{Head, Log};
use crate::{Client, Content, Hint, LogError, Owner, Progress};
use margay_flash::{FlashError, Ppn, SegmentId};
use margay_format::{FreeSegment, PageInfo, Store, encode_retired};
use margay_policy::State;

/// Pages that wait to be rewritten because they were hard to read.
pub(crate) const MAX_SCRUBS: usize = 64;
/// Segments that are cleaned ahead because syncs take long: at most these, and a quarter of those that hold nothing valid.
const MAX_AHEAD: u32 = 64;
/// One less is cleaned ahead after so many openings.
const FEWER_AHEAD_AFTER: u64 = 64;

impl<D: Store, O: Owner> Log<D, O> {
    #[inline(never)]
    pub(crate) fn put_paced<C: Client<O>>(
        &mut self,
        client: &mut C,
        owner: O,
        content: Content,
        data: &[u8],
        hint: Hint,
    ) -> Result<Ppn, LogError> {
        // The counters hold this host write already, although its page is programmed only now.
        self.programs_before_write =
            self.work_began.take().unwrap_or_else(|| self.counters.programs().saturating_sub(1));
        let old = client.locate(owner);
        let stream = self.stream_of(owner, content, hint, old);
        let page = self.page_info(owner);
        let to = match self.program_in(client, stream, data, page) {
            Ok(to) => to,
            Err(error) => {
                self.note_refused(owner);
                return Err(error);
            }
        };
        self.note_owner(to, owner);
        if self.keeps_pages {
            self.placement.put(to);
        }
        self.supersede(client, owner);
        client.relocated(owner, to);
        client.written(owner);
        self.keep_pace(client, self.config.max_pages_per_write)?;
        Ok(to)
    }

    /// Invalidates an owner's page after its successor was programmed. The cleaner may have moved the page meanwhile,
    /// so the client is asked where it is.
    pub(crate) fn supersede<C: Client<O>>(&mut self, client: &C, owner: O) {
        match client.locate(owner) {
            Some(old) => self.invalidate(old),
            None => self.segments.total_valid += 1,
        }
    }

    /// Programs a page in a stream. A segment whose program fails is closed and retired later, and the next one is
    /// tried.
    fn program_in<C: Client<O>>(
        &mut self,
        client: &mut C,
        stream: u8,
        data: &[u8],
        page: PageInfo,
    ) -> Result<Ppn, LogError> {
        loop {
            let mut stream = stream;
            if self.heads[stream as usize].is_full() {
                stream = self.room_for_write(client, stream)?;
            }
            let to = Ppn(self.heads[stream as usize].next);
            match self.program(to, data, page) {
                Ok(()) => {
                    self.heads[stream as usize].next += 1;
                    return Ok(to);
                }
                Err(error) => self.after_failed_program(stream, error)?,
            }
        }
    }

    /// Closes the head whose next page could not be programmed: the segment is sealed, cleaned before any other, and
    /// then retired.
    pub(crate) fn retire_head(&mut self, stream: u8) -> Result<(), LogError> {
        let mut head = core::mem::replace(&mut self.heads[stream as usize], Head::CLOSED);
        self.valid.clear(Ppn(head.next));
        self.segments.valid[head.segment.index()] -= 1;
        head.next += 1;
        self.seal(head)?;
        self.clean_soon(head.segment, true);
        Ok(())
    }

    /// A segment that is in no list is not used any more.
    pub(crate) fn retire(&mut self, segment: SegmentId) {
        self.free.retire(segment);
        self.note_retired(segment);
    }

    /// A segment was retired.
    pub(crate) fn note_retired(&mut self, segment: SegmentId) {
        self.device.forget(segment);
        self.segments.state[segment.index()] = State::Bad;
        self.counters.retired_segments += 1;
        self.retired_changed = true;
    }

    /// Segments that are used no more because programs or erases of them failed.
    pub fn retired_segments(&self) -> &[SegmentId] {
        self.free.retired()
    }

    /// A stream with room for a host write: the one asked for, in a segment that is not the last free one; or any open
    /// stream of the placement, if making room now would take more work than the bound on a write allows.
    #[cold]
    pub(crate) fn room_for_write<C: Client<O>>(&mut self, client: &mut C, stream: u8) -> Result<u8, LogError> {
        let left = self.victim.map_or(self.segments.data_pages, |victim| self.segments.valid[victim.index()]);
        if self.free.len() < 2
            && left >= self.config.max_pages_per_write
            && let Some(other) = self.open_stream_with_room()
        {
            self.counters.misplaced_writes += 1;
            return Ok(other);
        }
        // The cleaner may open a segment for this stream itself, and fill it.
        while self.heads[stream as usize].is_full() {
            let head = core::mem::replace(&mut self.heads[stream as usize], Head::CLOSED);
            if head.is_open() {
                self.seal(head)?;
            }
            while self.free.len() < 2 {
                self.counters.forced_cleanings += 1;
                if !self.clean_one(client)? {
                    return Err(self.no_space());
                }
            }
            if !self.heads[stream as usize].is_open() {
                match self.open(stream) {
                    // All that were free have failed: the cleaner wins others.
                    Err(LogError::NoSpace { data_pages: 1.., .. }) => {}
                    result => result?,
                }
            }
        }
        Ok(stream)
    }

    /// The open stream of the placement with the most room; `None` if none has room.
    fn open_stream_with_room(&self) -> Option<u8> {
        let room = |stream: &u8| self.heads[usize::from(*stream)].end - self.heads[usize::from(*stream)].next;
        (0..self.placement.streams()).max_by_key(room).filter(|stream| room(stream) > 0)
    }

    /// Cleans as much as is due after a write, as long as fewer than `max_pages` are programmed for it. A full device is no error here: the
    /// write that needs the room will report it.
    #[inline(never)]
    pub(crate) fn keep_pace<C: Client<O>>(&mut self, client: &mut C, max_pages: u32) -> Result<(), LogError> {
        let free = self.free.len() as u32;
        let enough = if self.is_cleaning { self.config.high_water } else { self.config.low_water };
        let lent = D::KEEPS_INFO && self.device.lacks_segment();
        let more = u32::from(self.relocation.wants_room()) + u32::from(lent);
        self.is_cleaning = free < enough + self.ahead + more;
        if self.is_cleaning || self.has_victim_at_hand() {
            self.clean_in_step(client, max_pages)?;
        }
        let work = self.counters.programs() - self.programs_before_write;
        self.counters.max_pages_of_a_write = self.counters.max_pages_of_a_write.max(work);
        Ok(())
    }

    /// A segment is to be opened, which waits for a sync if it was given free after the last one: more are then cleaned
    /// ahead, so that later ones need not, and fewer again once none has waited for long.
    pub(crate) fn adapt_to_syncs(&mut self, next: FreeSegment) {
        let filled = self.segments.total_valid.div_ceil(self.segments.data_pages.into()) as u32;
        let spare = (self.segments.in_use + self.free.len() as u32).saturating_sub(filled);
        if next.needs_erase && !self.device.is_recorded(next.freed_seq) {
            self.ahead += 2;
        } else if self.openings.is_multiple_of(FEWER_AHEAD_AFTER) {
            self.ahead = self.ahead.saturating_sub(1);
        }
        self.ahead = self.ahead.min(MAX_AHEAD).min(spare / 4);
    }

    fn has_victim_at_hand(&self) -> bool {
        self.victim.is_some() || !self.clean_first.is_empty() || self.relocation.victim.is_some()
    }

    /// Copies enough pages to keep the cleaning in step with the writes: the victim's valid pages divided by the pages
    /// that its cleaning gains, and as many as the bound allows when that would be too slow.
    fn clean_in_step<C: Client<O>>(&mut self, client: &mut C, max_pages: u32) -> Result<(), LogError> {
        let work = self.counters.programs() - self.programs_before_write;
        let bound = u64::from(max_pages).saturating_sub(work) as u32;
        let left = self.victim.map_or(self.segments.data_pages, |victim| self.segments.valid[victim.index()]);
        // The open segment that is full first will need a free segment.
        let own = self.own_stream.map(|own| &self.heads[usize::from(own)]);
        let open = self.heads[..usize::from(self.placement.streams())].iter().chain(own).filter(|head| head.is_open());
        let writes = open.map(|head| head.end - head.next).min().unwrap_or(1).max(1);
        let due = match self.free.len() {
            0 => bound,
            1 => self.rate_pages.max(left.div_ceil(writes)),
            _ => self.rate_pages,
        };
        let budget = due.min(bound);
        match self.clean_step(client, budget) {
            // The write that needs the room will report it, and the client asks what is unknown before the next one.
            Ok(_) | Err(LogError::NoSpace { .. } | LogError::OwnerUnknown { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Works in idle time: rewrites a page that the ECC had to correct, else cleans at most `budget_pages` pages, until
    /// one segment more than the high-water mark is free. False if there is nothing to do.
    pub fn idle_step<C: Client<O>>(&mut self, client: &mut C, budget_pages: u32) -> Result<bool, LogError> {
        let before = (self.counters.copies, self.counters.erases);
        let result = self.idle_work(client, budget_pages);
        self.counters.idle_copies += self.counters.copies - before.0;
        self.counters.idle_erases += self.counters.erases - before.1;
        match result {
            // Whoever writes is told; in idle time there is nothing left to be done.
            Err(LogError::Flash(FlashError::Stopped)) => Ok(false),
            result => result,
        }
    }

    fn idle_work<C: Client<O>>(&mut self, client: &mut C, budget_pages: u32) -> Result<bool, LogError> {
        while let Some(ppn) = self.scrubs.pop() {
            // It may have been overwritten or moved since.
            if self.live_owner(client, ppn)?.is_some() {
                self.rewrite(client, ppn)?;
                return Ok(true);
            }
        }
        if self.erase_ahead()? {
            return Ok(true);
        }
        self.clean_read_often();
        let enough = self.free.len() as u32 > self.config.high_water;
        if enough && !self.has_victim_at_hand() {
            return Ok(false);
        }
        match self.clean_step(client, budget_pages) {
            Ok(progress) => Ok(progress != Progress::NothingToClean),
            Err(LogError::NoSpace { .. } | LogError::OwnerUnknown { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next page that must be on flash before another segment is erased: fills `page` and returns its owner, and whether
    /// it is the list of retired segments.
    fn pending<C: Client<O>>(&mut self, client: &mut C, page: &mut [u8]) -> Option<(O, bool)> {
        if self.retired_changed
            && let Some(owner) = client.retired_list()
        {
            encode_retired(self.free.retired(), page);
            return Some((owner, true));
        }
        client.pending(self.seq, page).map(|owner| (owner, false))
    }

    /// The write of an owner's page was refused, although it may be on a chip all the same, as the latest one.
    #[cold]
    fn note_refused(&mut self, owner: O) {
        // A device that is cached makes such pages void, and what has no pages on flash is never mounted.
        let is_new = self.refused.iter().all(|refused| refused.to_u64() != owner.to_u64());
        if is_new && D::KEEPS_INFO && !self.device.defers_erases() {
            self.refused.push(owner);
        }
    }

    /// Writes pages again that a mount would else take to be older than a write that was refused, as far as there is room
    /// without cleaning. What is trimmed is told by the client.
    fn outdate_refused<C: Client<O>>(&mut self, client: &mut C) -> Result<(), LogError> {
        while self.has_room()
            && let Some(owner) = self.refused.last().copied()
        {
            if let Some(from) = client.locate(owner) {
                let stream = self.stream_with_room(client)?;
                // Room may have been made in place.
                let from = client.locate(owner).unwrap_or(from);
                if !self.copy_page(client, from, owner, stream)? {
                    continue;
                }
            }
            self.refused.pop();
        }
        Ok(())
    }

    /// Writes the list of retired segments if it has changed and the pages that the client must have on flash, as far as
    /// there is room without cleaning. One whose write fails stays pending.
    pub fn write_pending<C: Client<O>>(&mut self, client: &mut C) -> Result<(), LogError> {
        if self.scratch.is_empty() {
            // It is being done, and made room.
            return Ok(());
        }
        let mut data = core::mem::take(&mut self.scratch);
        let mut result = self.outdate_refused(client);
        while result.is_ok()
            && self.has_room()
            && let Some((owner, is_list)) = self.pending(client, &mut data)
        {
            // More segments may be retired meanwhile.
            self.retired_changed &= !is_list;
            result = self.write_own(client, owner, &data);
            match result {
                Ok(()) if is_list => {}
                Ok(()) => client.pending_written(owner),
                Err(_) => self.retired_changed |= is_list,
            }
        }
        self.scratch = data;
        result
    }

    /// Writes the pages that the client must have on flash, and cleans where there is no room for them. The list of retired
    /// segments is written as far as there is room.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] if there is no room and none can be made: then not all of them are on flash.
    pub fn flush_pending<C: Client<O>>(&mut self, client: &mut C) -> Result<(), LogError> {
        loop {
            self.write_pending(client)?;
            let mut page = core::mem::take(&mut self.scratch);
            let is_done = client.pending(self.seq, &mut page).is_none();
            self.scratch = page;
            if is_done {
                return Ok(());
            }
            self.stream_with_room(client)?;
        }
    }

    /// Writes a metadata page of the client.
    pub fn write_own<C: Client<O>>(&mut self, client: &mut C, owner: O, data: &[u8]) -> Result<(), LogError> {
        let page = self.own_page_info(owner);
        self.counters.metadata_pages += 1;
        self.program_anywhere(client, owner, page, None, data)
    }

    /// Writes a valid page again, from memory. A mount does this before anything else, because the page that was
    /// programmed last before a power cut may not stay readable.
    pub fn write_again<C: Client<O>>(
        &mut self,
        client: &mut C,
        ppn: Ppn,
        page: PageInfo,
        data: &[u8],
    ) -> Result<(), LogError> {
        self.counters.copies += 1;
        let on_flash = O::from_u64(page.owner).unwrap_or_default();
        let owner = self.owners.get(ppn.index()).copied().unwrap_or(on_flash);
        self.program_anywhere(client, owner, page, Some(ppn), data)
    }

    /// Programs a page in any stream that has room, for which even the last free segment may be opened. `from` is where
    /// the same page was before, if it was anywhere.
    fn program_anywhere<C: Client<O>>(
        &mut self,
        client: &mut C,
        owner: O,
        page: PageInfo,
        from: Option<Ppn>,
        data: &[u8],
    ) -> Result<(), LogError> {
        loop {
            let stream = self.stream_with_room(client)?;
            let to = Ppn(self.heads[stream as usize].next);
            if let Err(error) = self.program(to, data, page) {
                self.after_failed_program(stream, error)?;
                continue;
            }
            self.heads[stream as usize].next += 1;
            self.note_owner(to, owner);
            // Making room may have moved it.
            match from.and_then(|_| client.locate(owner)) {
                Some(from) => self.placement.moved(from, 1, to, 1),
                None => self.placement.clear(to, 1),
            }
            self.supersede(client, owner);
            client.relocated(owner, to);
            return Ok(());
        }
    }

    /// Any stream that has room, for which even the last free segment may be opened.
    fn stream_with_room<C: Client<O>>(&mut self, client: &mut C) -> Result<u8, LogError> {
        loop {
            if let Some(stream) = self.heads.iter().position(|head| !head.is_full()) {
                return Ok(stream as u8);
            }
            let head = core::mem::replace(&mut self.heads[0], Head::CLOSED);
            if head.is_open() {
                self.seal(head)?;
            }
            match self.open(0) {
                // What is pending may take all the room that is made.
                Err(LogError::NoSpace { .. }) => self.make_room_in_place(client, 0)?,
                result => result?,
            }
        }
    }

    /// A page was read that the ECC had to correct: it is rewritten in idle time, unless too many wait already.
    #[cold]
    pub(crate) fn note_corrected(&mut self, ppn: Ppn) {
        if self.scrubs.len() < MAX_SCRUBS && !self.scrubs.contains(&ppn) {
            self.scrubs.push(ppn);
        }
    }

    /// Copies one valid page to another place, because it is hard to read. [`Log::idle_step`] does so for the pages that
    /// the ECC had to correct.
    pub fn rewrite<C: Client<O>>(&mut self, client: &mut C, ppn: Ppn) -> Result<(), LogError> {
        let Some(owner) = self.live_owner(client, ppn)? else { return Ok(()) };
        let wanted = self.stream_apart(self.geometry.segment_of(ppn)).unwrap_or(0);
        loop {
            let mut stream = wanted;
            if self.heads[stream as usize].is_full() {
                stream = self.room_for_write(client, stream)?;
            }
            // The cleaning may have moved it.
            if self.live_owner(client, ppn)?.map(Owner::to_u64) != Some(owner.to_u64()) {
                return Ok(());
            }
            match self.copy_page(client, ppn, owner, stream) {
                // A segment that fails is retired, and the next one is tried.
                Ok(false) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Copies a valid page to the next place of a stream that has room. False if it has to be tried again, because the
    /// segment has failed.
    pub(crate) fn copy_page<C: Client<O>>(
        &mut self,
        client: &mut C,
        from: Ppn,
        owner: O,
        stream: u8,
    ) -> Result<bool, LogError> {
        let to = Ppn(self.heads[stream as usize].next);
        let seq = self.seq + 1;
        let copied = self.device.copy(from, to, owner.to_u64(), seq);
        if copied.is_ok() || self.device.was_begun(to) {
            self.seq = seq;
        }
        if let Err(error) = copied {
            self.after_failed_program(stream, error)?;
            return Ok(false);
        }
        self.heads[stream as usize].next += 1;
        self.counters.copies += 1;
        self.note_owner(to, owner);
        self.placement.moved(from, 1, to, 1);
        self.invalidate(from);
        client.relocated(owner, to);
        Ok(true)
    }
}

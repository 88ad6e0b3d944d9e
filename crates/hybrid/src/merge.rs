//! Merges: a log block becomes a data block, or its pages are collected into new ones.

use crate::hybrid::Stream;
use crate::logs::NONE;
use crate::{Host, Hybrid, HybridError, Mapping, MergeAction, MergeKind, Merged, Persistence, Victim};
use margay_flash::{FlashError, Lpn, SegmentId};
use margay_format::{Copied, Store};

impl<D: Store> Hybrid<D> {
    /// Merges the log block that the host chooses.
    pub(crate) fn merge_victim<H: Host>(&mut self, host: &mut H) -> Result<(), HybridError> {
        if self.order.is_empty() {
            return Err(self.worn_out());
        }
        let at = host.victim(&self.order);
        self.merge_random(at, host)
    }

    /// Merges the random log block at this place of the order. After an error it is still there, with the pages that are
    /// not merged yet, unless only giving a segment free has failed.
    pub(crate) fn merge_random<H: Host>(&mut self, at: usize, host: &mut H) -> Result<(), HybridError> {
        let slot = self.order[at];
        let (merged, old) = self.merge(slot, Victim::Random, host)?;
        self.order.remove(at);
        self.idle.push(slot);
        self.counters.random.count(merged.kind);
        host.merged(&merged);
        old.map_or(Ok(()), |old| self.release(old))
    }

    /// Merges the sequential log block.
    pub(crate) fn merge_sequential<H: Host>(&mut self, host: &mut H) -> Result<(), HybridError> {
        let slot = self.sequential_slot().expect("asked for where there is one");
        let (merged, old) = self.merge(slot, Victim::Sequential, host)?;
        self.counters.sequential.count(merged.kind);
        host.merged(&merged);
        old.map_or(Ok(()), |old| self.release(old))
    }

    /// How a log block can be merged.
    fn merge_kind(&self, slot: u32) -> MergeKind {
        let log = &self.logs[slot as usize];
        if log.valid == 0 {
            return MergeKind::Empty;
        }
        let first = log.owners[0];
        let owners = &log.owners[..log.next as usize];
        let is_in_order = first != NONE
            && first.is_multiple_of(self.pages)
            && owners.iter().zip(first..).all(|(owner, lpn)| *owner == lpn);
        if !is_in_order || log.valid != log.next {
            return MergeKind::Full;
        }
        let belongs = self.config.mapping == Mapping::Bast || Some(slot) == self.sequential_slot();
        let is_sound = !self.retire_queue.contains(&SegmentId(log.segment));
        match log.next == self.pages_of(first / self.pages) {
            true => MergeKind::Switch,
            // Nothing is programmed behind a failed program, or where the power was cut.
            false if belongs && is_sound && log.end == self.pages => MergeKind::Partial,
            false => MergeKind::Full,
        }
    }

    /// Merges a log block. Returns also the segment that nothing is worth keeping of any more, which is to be released.
    fn merge<H: Host>(
        &mut self,
        slot: u32,
        victim: Victim,
        host: &mut H,
    ) -> Result<(Merged, Option<SegmentId>), HybridError> {
        let mut merged =
            Merged { victim, kind: self.merge_kind(slot), copies: 0, cache_writes: 0, drops: 0, erases: 0 };
        let mut old = None;
        if matches!(merged.kind, MergeKind::Switch | MergeKind::Partial) {
            match self.promote(slot, &mut merged, host)? {
                Some(data) => old = (data != NONE).then_some(SegmentId(data)),
                None => merged.kind = MergeKind::Full,
            }
        }
        let log = &self.logs[slot as usize];
        let (segment, next, end, owner) = (log.segment, log.next, log.end, log.block);
        if merged.kind == MergeKind::Full {
            for position in 0..next {
                let lpn = Lpn(self.logs[slot as usize].owners[position as usize]);
                if lpn.0 != NONE && self.tables.get(lpn) == Some((slot, position)) {
                    self.collect(self.block_of(lpn), slot, &mut merged, host)?;
                }
            }
        }
        if matches!(merged.kind, MergeKind::Full | MergeKind::Empty) {
            if next < end {
                self.store.finish(SegmentId(segment), self.ppn(segment, next))?;
            }
            old = Some(SegmentId(segment));
        }
        if owner != NONE && self.owned.get(owner as usize) == Some(&slot) {
            self.owned[owner as usize] = NONE;
        }
        self.close(slot);
        merged.erases += u32::from(old.is_some());
        Ok((merged, old))
    }

    fn close(&mut self, slot: u32) {
        let log = &mut self.logs[slot as usize];
        debug_assert_eq!(log.valid, 0, "what a merged log block held is elsewhere");
        (log.segment, log.next, log.end, log.block) = (NONE, 0, 0, NONE);
    }

    /// Asks the host what becomes of the pages of a block from an offset on.
    fn plan<H: Host>(&mut self, block: u32, from: u32, victim: Victim, host: &H) -> Result<(), HybridError> {
        self.plan.clear();
        for offset in from..self.pages_of(block) {
            let lpn = Lpn(block * self.pages + offset);
            let action = host.decide(lpn, victim, self.is_on_flash(lpn));
            if action == MergeAction::Drop && self.config.persistence == Persistence::Persistent {
                return Err(HybridError::WouldLose { lpn });
            }
            self.plan.push(action);
        }
        Ok(())
    }

    /// Programs the pages that are planned into a segment. An error changes nothing but that segment.
    fn carry_out<H: Host>(
        &mut self,
        block: u32,
        from: u32,
        segment: SegmentId,
        host: &mut H,
    ) -> Result<(), FlashError> {
        for index in 0..self.plan.len() {
            let offset = from + index as u32;
            let (lpn, to) = (Lpn(block * self.pages + offset), self.ppn(segment.0, offset));
            match self.plan[index] {
                MergeAction::Copy => {
                    let source = self.place(lpn).expect("what is to be copied is on flash");
                    self.seq += 1;
                    let copied = self.store.copy(source, to, lpn.0.into(), self.seq);
                    self.note_refused(to, &copied);
                    if copied? == Copied::Lost {
                        self.counters.lost_pages += 1;
                    }
                }
                MergeAction::Write => {
                    let mut page = core::mem::take(&mut self.scratch);
                    host.fill(lpn, &mut page);
                    self.writes += 1;
                    let programmed = self.program(to, lpn, &page);
                    self.scratch = page;
                    programmed?;
                }
                MergeAction::Leave | MergeAction::Drop => {}
            }
        }
        self.store.finish(segment, self.ppn(segment.0, self.pages))
    }

    /// The pages that were planned are where they were carried to: the segment is their data block.
    fn commit<H: Host>(&mut self, block: u32, from: u32, merged: &mut Merged, host: &mut H) {
        let before = *merged;
        for index in 0..self.plan.len() {
            let lpn = Lpn(block * self.pages + from + index as u32);
            let action = self.plan[index];
            let was_on_flash = self.unlink(lpn, host) || self.is_present(lpn);
            let is_on_flash = matches!(action, MergeAction::Copy | MergeAction::Write);
            self.set_present(lpn, is_on_flash);
            if was_on_flash != is_on_flash {
                host.on_flash(lpn, is_on_flash);
            }
            match action {
                MergeAction::Copy => merged.copies += 1,
                MergeAction::Write => merged.cache_writes += 1,
                MergeAction::Drop => merged.drops += 1,
                MergeAction::Leave => continue,
            }
            host.moved(lpn, action);
        }
        self.counters.copies += u64::from(merged.copies - before.copies);
        self.counters.cache_writes += u64::from(merged.cache_writes - before.cache_writes);
        self.counters.drops += u64::from(merged.drops - before.drops);
        if !self.not_written.is_empty() {
            let not_written = core::mem::take(&mut self.not_written);
            self.not_written = not_written.into_iter().filter(|lpn| !self.is_present(*lpn)).collect();
        }
    }

    /// Switch and partial merge: the log block becomes the data block. Returns the segment of the data block before it,
    /// or [`NONE`]; nothing if a program failed for good behind its pages. After any other error the log block takes no
    /// more pages if something was programmed behind those that it has.
    fn promote<H: Host>(&mut self, slot: u32, merged: &mut Merged, host: &mut H) -> Result<Option<u32>, HybridError> {
        let log = &self.logs[slot as usize];
        let (segment, next, block) = (SegmentId(log.segment), log.next, log.owners[0] / self.pages);
        if merged.kind == MergeKind::Partial {
            self.plan(block, next, merged.victim, host)?;
            let seq = self.seq;
            if let Err(error) = self.carry_out(block, next, segment, host) {
                if self.seq != seq {
                    self.logs[slot as usize].end = next;
                    self.store.finish(segment, self.ppn(segment.0, self.pages))?;
                }
                if matches!(error, FlashError::ProgramFailed { .. }) {
                    self.retire_queue.push(segment);
                    return Ok(None);
                }
                return Err(error.into());
            }
            self.commit(block, next, merged, host);
        }
        for offset in 0..next {
            let lpn = Lpn(block * self.pages + offset);
            self.unlink(lpn, host);
            self.set_present(lpn, true);
        }
        Ok(Some(core::mem::replace(&mut self.data[block as usize], segment.0)))
    }

    /// Full merge of one block: its newest pages are collected in a new data block.
    pub(crate) fn collect<H: Host>(
        &mut self,
        block: u32,
        slot: u32,
        merged: &mut Merged,
        host: &mut H,
    ) -> Result<(), HybridError> {
        self.plan(block, 0, merged.victim, host)?;
        let moves = self.plan.iter().any(|action| matches!(action, MergeAction::Copy | MergeAction::Write));
        let mut target = NONE;
        while moves && target == NONE {
            let segment = self.take_free(Stream::Data)?;
            match self.carry_out(block, 0, segment, host) {
                Ok(()) => target = segment.0,
                Err(error) => self.abandon(segment, error)?,
            }
        }
        self.commit(block, 0, merged, host);
        let old = core::mem::replace(&mut self.data[block as usize], target);
        let emptied = self.close_emptied_sequential(slot)?;
        let mut released = Ok(());
        for old in [old, emptied].into_iter().filter(|old| *old != NONE) {
            merged.erases += 1;
            released = released.and(self.release(SegmentId(old)));
        }
        released
    }

    /// Closes the sequential log block if the merge of another slot has taken all of its pages. Its segment, or [`NONE`].
    fn close_emptied_sequential(&mut self, slot: u32) -> Result<u32, HybridError> {
        let Some(sequential) = self.sequential_slot().filter(|sequential| *sequential != slot) else { return Ok(NONE) };
        let log = &self.logs[sequential as usize];
        if !log.is_in_use() || log.valid > 0 {
            return Ok(NONE);
        }
        let (segment, next) = (log.segment, log.next);
        if log.has_room() {
            self.store.finish(SegmentId(segment), self.ppn(segment, next))?;
        }
        self.close(sequential);
        Ok(segment)
    }
}

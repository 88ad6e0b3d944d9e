//! Merges: a log block becomes a data block, or its pages are collected into new ones.

use crate::hybrid::{Free, Stream};
use crate::logs::NONE;
use crate::{Class, Host, Hybrid, HybridError, Mapping, Merged, Move, Persistence, Victim};
use margay_flash::{FlashError, Lpn, SegmentId};
use margay_format::{Copied, Store};

impl<D: Store> Hybrid<D> {
    /// Merges the log block that the host chooses.
    pub(crate) fn merge_victim<H: Host>(&mut self, host: &mut H) -> Result<(), HybridError> {
        if self.order.is_empty() {
            return Err(HybridError::WornOut { retired_segments: self.counters.retired_segments });
        }
        let at = host.victim(&self.order);
        self.merge_random(at, host)
    }

    /// Merges the random log block at this place of the order.
    pub(crate) fn merge_random<H: Host>(&mut self, at: usize, host: &mut H) -> Result<(), HybridError> {
        let slot = self.order[at];
        let merged = self.merge(slot, Victim::Random, host)?;
        self.order.remove(at);
        self.idle.push(slot);
        self.counters.random.count(merged.class);
        host.merged(&merged);
        Ok(())
    }

    /// Merges the sequential log block.
    pub(crate) fn merge_sequential<H: Host>(&mut self, host: &mut H) -> Result<(), HybridError> {
        let slot = self.sequential_slot().expect("asked for where there is one");
        let merged = self.merge(slot, Victim::Sequential, host)?;
        self.counters.sequential.count(merged.class);
        host.merged(&merged);
        Ok(())
    }

    /// How a log block can be merged.
    fn class(&self, slot: u32) -> Class {
        let log = &self.logs[slot as usize];
        if log.valid == 0 {
            return Class::Empty;
        }
        let first = log.owners[0];
        let owners = &log.owners[..log.next as usize];
        let is_in_order = first != NONE
            && first.is_multiple_of(self.pages)
            && owners.iter().zip(first..).all(|(owner, lpn)| *owner == lpn);
        if !is_in_order || log.valid != log.next {
            return Class::Full;
        }
        let belongs = self.config.mapping == Mapping::Bast || Some(slot) == self.sequential_slot();
        let is_sound = !self.retire_queue.contains(&SegmentId(log.segment));
        match log.next == self.pages_of(first / self.pages) {
            true => Class::Switch,
            // Nothing is programmed behind a failed program, or where the power was cut.
            false if belongs && is_sound && log.end == self.pages => Class::Partial,
            false => Class::Full,
        }
    }

    fn merge<H: Host>(&mut self, slot: u32, victim: Victim, host: &mut H) -> Result<Merged, HybridError> {
        let mut merged = Merged { victim, class: self.class(slot), copies: 0, cache_writes: 0, drops: 0, erases: 0 };
        if matches!(merged.class, Class::Switch | Class::Partial) && !self.promote(slot, &mut merged, host)? {
            merged.class = Class::Full;
        }
        let log = &self.logs[slot as usize];
        let (segment, next, end, owner) = (log.segment, log.next, log.end, log.block);
        if merged.class == Class::Full {
            for position in 0..next {
                let lpn = Lpn(self.logs[slot as usize].owners[position as usize]);
                if lpn.0 != NONE && self.tables.get(lpn) == Some((slot, position)) {
                    self.collect(self.block_of(lpn), slot, &mut merged, host)?;
                }
            }
        }
        if matches!(merged.class, Class::Full | Class::Empty) {
            if next < end {
                self.store.finish(SegmentId(segment), self.ppn(segment, next))?;
            }
            self.erase_counted(SegmentId(segment), &mut merged)?;
        }
        if owner != NONE && self.owned.get(owner as usize) == Some(&slot) {
            self.owned[owner as usize] = NONE;
        }
        self.close(slot);
        Ok(merged)
    }

    fn close(&mut self, slot: u32) {
        let log = &mut self.logs[slot as usize];
        debug_assert_eq!(log.valid, 0, "what a merged log block held is elsewhere");
        (log.segment, log.next, log.end, log.block) = (NONE, 0, 0, NONE);
    }

    fn erase_counted(&mut self, segment: SegmentId, merged: &mut Merged) -> Result<(), HybridError> {
        merged.erases += 1;
        self.erase(segment)
    }

    /// Asks the host what becomes of the pages of a block from an offset on.
    fn plan<H: Host>(&mut self, block: u32, from: u32, victim: Victim, host: &H) -> Result<(), HybridError> {
        self.plan.clear();
        for offset in from..self.pages_of(block) {
            let lpn = Lpn(block * self.pages + offset);
            let how = host.decide(lpn, victim, self.is_on_flash(lpn));
            if how == Move::Drop && self.config.persistence == Persistence::Persistent {
                return Err(HybridError::WouldLose { lpn });
            }
            self.plan.push(how);
        }
        Ok(())
    }

    /// Programs the pages that are planned into a segment. On a failed program nothing has changed but that.
    fn carry_out<H: Host>(
        &mut self,
        block: u32,
        from: u32,
        segment: SegmentId,
        host: &mut H,
    ) -> Result<(), HybridError> {
        for index in 0..self.plan.len() {
            let offset = from + index as u32;
            let (lpn, to) = (Lpn(block * self.pages + offset), self.ppn(segment.0, offset));
            match self.plan[index] {
                Move::Copy => {
                    let source = self.place(lpn).expect("what is to be copied is on flash");
                    self.seq += 1;
                    if self.store.copy(source, to, lpn.0.into(), self.seq)? == Copied::Lost {
                        self.counters.lost_pages += 1;
                    }
                }
                Move::Write => {
                    let mut page = core::mem::take(&mut self.scratch);
                    host.fill(lpn, &mut page);
                    self.writes += 1;
                    let programmed = self.program(to, lpn, &page);
                    self.scratch = page;
                    programmed?;
                }
                Move::Leave | Move::Drop => {}
            }
        }
        self.store.finish(segment, self.ppn(segment.0, self.pages))?;
        Ok(())
    }

    /// The pages that were planned are where they were carried to: the segment is their data block.
    fn commit<H: Host>(&mut self, block: u32, from: u32, merged: &mut Merged, host: &mut H) {
        for index in 0..self.plan.len() {
            let lpn = Lpn(block * self.pages + from + index as u32);
            let how = self.plan[index];
            let was_on_flash = self.unlink(lpn, host) || self.is_present(lpn);
            let is_on_flash = matches!(how, Move::Copy | Move::Write);
            self.set_present(lpn, is_on_flash);
            if was_on_flash != is_on_flash {
                host.on_flash(lpn, is_on_flash);
            }
            match how {
                Move::Copy => merged.copies += 1,
                Move::Write => merged.cache_writes += 1,
                Move::Drop => merged.drops += 1,
                Move::Leave => continue,
            }
            host.moved(lpn, how);
        }
        let count = |how| self.plan.iter().filter(|planned| **planned == how).count() as u64;
        self.counters.copies += count(Move::Copy);
        self.counters.cache_writes += count(Move::Write);
        self.counters.drops += count(Move::Drop);
    }

    /// Switch and partial merge: the log block becomes the data block. False if a program failed behind its pages.
    fn promote<H: Host>(&mut self, slot: u32, merged: &mut Merged, host: &mut H) -> Result<bool, HybridError> {
        let log = &self.logs[slot as usize];
        let (segment, next, block) = (SegmentId(log.segment), log.next, log.owners[0] / self.pages);
        if merged.class == Class::Partial {
            self.plan(block, next, merged.victim, host)?;
            match self.carry_out(block, next, segment, host) {
                Ok(()) => {}
                Err(HybridError::Flash(FlashError::ProgramFailed { .. })) => {
                    self.retire_queue.push(segment);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            self.commit(block, next, merged, host);
        }
        for offset in 0..next {
            let lpn = Lpn(block * self.pages + offset);
            self.unlink(lpn, host);
            self.set_present(lpn, true);
        }
        let old = core::mem::replace(&mut self.data[block as usize], segment.0);
        if old != NONE {
            self.erase_counted(SegmentId(old), merged)?;
        }
        Ok(true)
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
        let moves = self.plan.iter().any(|how| matches!(how, Move::Copy | Move::Write));
        let mut target = NONE;
        while moves && target == NONE {
            let segment = self.take_free(Stream::Data)?;
            match self.carry_out(block, 0, segment, host) {
                Ok(()) => target = segment.0,
                Err(HybridError::Flash(FlashError::ProgramFailed { .. })) => self.counters.retired_segments += 1,
                Err(error) => {
                    self.free.push_back(Free { segment, needs_erase: true });
                    return Err(error);
                }
            }
        }
        self.commit(block, 0, merged, host);
        let old = core::mem::replace(&mut self.data[block as usize], target);
        if old != NONE {
            self.erase_counted(SegmentId(old), merged)?;
        }
        let Some(sequential) = self.sequential_slot().filter(|sequential| *sequential != slot) else { return Ok(()) };
        let log = &self.logs[sequential as usize];
        if log.is_in_use() && log.valid == 0 {
            let (segment, next) = (log.segment, log.next);
            if log.has_room() {
                self.store.finish(SegmentId(segment), self.ppn(segment, next))?;
            }
            self.close(sequential);
            self.erase_counted(SegmentId(segment), merged)?;
        }
        Ok(())
    }
}

//! What a mount finds: copies of pages, and what follows from those that belong together.

use crate::Hybrid;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Lpn};
use margay_format::{Formatted, Store};

/// A copy of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub lpn: Lpn,
    pub seq: u64,
    pub version: u64,
    pub segment: u32,
    pub position: u32,
    /// Erases of its segment when it was programmed.
    pub erases: u32,
    /// Its segment was being filled by merges.
    pub is_target: bool,
}

/// All copies, by page and age.
#[derive(Debug)]
pub(crate) struct Copies {
    pub all: Vec<Copy>,
    /// By page, its first copy.
    first: Vec<u32>,
    /// By segment: it counts.
    pub alive: Vec<bool>,
    /// By segment, it was filled by merges.
    pub is_target: Vec<bool>,
}

impl Copies {
    pub fn new(segments: u32) -> Self {
        let by_segment = |value| vec![value; segments as usize];
        Self { all: Vec::new(), first: Vec::new(), alive: by_segment(true), is_target: by_segment(false) }
    }

    /// Sorts the copies, so that those of a page can be asked for.
    pub fn index(&mut self, logical_pages: u32) {
        self.all.sort_unstable_by_key(|copy| (copy.lpn, copy.seq));
        self.first = vec![0; logical_pages as usize + 1];
        self.is_target.fill(false);
        let mut latest = vec![0; self.alive.len()];
        for copy in &self.all {
            self.first[copy.lpn.index() + 1] += 1;
            let id = copy.segment as usize;
            if copy.seq >= latest[id] {
                (latest[id], self.is_target[id]) = (copy.seq, copy.is_target);
            }
        }
        for lpn in 0..logical_pages as usize {
            self.first[lpn + 1] += self.first[lpn];
        }
    }

    /// Drops what is left in segments from before an erase that was not durable, where pages were programmed after it
    /// that count: those are later than the erase, so that it counts too. Returns what is dropped; what it says of the pages
    /// before it is true no more.
    pub fn drop_leftovers(&mut self) -> Vec<Copy> {
        self.all.sort_unstable_by_key(|copy| (copy.segment, copy.position));
        let (mut kept, mut dropped) = (Vec::with_capacity(self.all.len()), Vec::new());
        for copies in self.all.chunk_by(|a, b| a.segment == b.segment) {
            let erases = copies.iter().max_by_key(|copy| copy.seq).map(|latest| latest.erases);
            let mut seq = 0;
            for copy in copies {
                // Pages are programmed in ascending order.
                let is_of_this_life = Some(copy.erases) == erases && copy.seq >= seq;
                if is_of_this_life { &mut kept } else { &mut dropped }.push(*copy);
                if is_of_this_life {
                    seq = copy.seq;
                }
            }
        }
        self.all = kept;
        dropped
    }

    pub fn of(&self, lpn: Lpn) -> impl DoubleEndedIterator<Item = &Copy> {
        let range = self.first[lpn.index()] as usize..self.first[lpn.index() + 1] as usize;
        self.all[range].iter().filter(|copy| self.alive[copy.segment as usize])
    }

    pub fn newest(&self, lpn: Lpn) -> Option<&Copy> {
        self.of(lpn).next_back()
    }

    /// Whether a target of merges was not completed: a page of its block is missing that was there when the last one
    /// of it was programmed. All it holds is then elsewhere too, in the same version, because its sources are erased
    /// after that.
    pub fn is_unfinished(&self, segment: u32, latest: u64, lpns: impl Iterator<Item = Lpn> + Clone) -> bool {
        let is_missing = |lpn| self.newest(lpn).is_some_and(|copy| copy.segment != segment && copy.seq < latest);
        let is_elsewhere = |lpn| {
            let own = self.of(lpn).find(|copy| copy.segment == segment);
            own.is_none_or(|own| self.of(lpn).any(|copy| copy.segment != segment && copy.version == own.version))
        };
        lpns.clone().any(is_missing) && lpns.clone().all(is_elsewhere)
    }

    pub fn has(&self, lpn: Lpn) -> bool {
        self.all.iter().any(|copy| copy.lpn == lpn)
    }

    /// Whether the target of merges that a copy is in was completed: it holds a page that no other segment has in the same
    /// version, and nothing is erased before the target is complete.
    pub fn is_completed(&self, target: &Copy) -> bool {
        let is_own = |copy: &&Copy| (copy.segment, copy.erases) == (target.segment, target.erases);
        self.all.iter().filter(is_own).any(|own| {
            let is_same = |copy: &&Copy| (copy.lpn, copy.version) == (own.lpn, own.version);
            self.all.iter().filter(is_same).all(|copy| copy.segment == target.segment)
        })
    }

    /// Whether all that a target of merges holds is also, in the same version, in segments that hold more: none of
    /// them can have been erased by half.
    pub fn is_copy(&self, target: u32) -> bool {
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
    pub fn sources_of(&self, segment: u32) -> Vec<bool> {
        let mut sources = vec![false; self.alive.len()];
        for copy in self.all.iter().filter(|copy| copy.segment == segment) {
            let same = self.of(copy.lpn).filter(|other| other.version == copy.version);
            same.for_each(|other| sources[other.segment as usize] = true);
        }
        sources
    }
}

impl<F: Flash> Hybrid<Formatted<F>> {
    /// Whether the data of a copy can be read, or is known to be lost.
    fn is_readable(&mut self, copy: &Copy, page: &mut [u8]) -> Result<bool, FlashError> {
        let ppn = self.ppn(copy.segment, copy.position);
        for _ in 0..2 {
            match self.store.read(ppn, copy.lpn.0.into(), page) {
                Ok(_) | Err(FlashError::Lost { .. }) => return Ok(true),
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Whether all that a segment holds can be read elsewhere too, in the same version.
    pub(crate) fn is_elsewhere(&mut self, copies: &Copies, segment: u32, page: &mut [u8]) -> Result<bool, FlashError> {
        for own in copies.all.iter().filter(|copy| copy.segment == segment) {
            let is_same = |copy: &&Copy| copy.segment != segment && copy.version == own.version;
            let mut found = false;
            for copy in copies.of(own.lpn).filter(is_same) {
                found |= self.is_readable(copy, page)?;
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drops the newest copies of pages that cannot be read although other copies of the same version can be: they are in
    /// segments that were given free and are erased in part.
    pub(crate) fn drop_unreadable(&mut self, copies: &mut Copies, page: &mut [u8]) -> Result<(), FlashError> {
        loop {
            let mut dropped = Vec::new();
            for lpn in (0..self.config.logical_pages).map(Lpn) {
                let Some(newest) = copies.newest(lpn).copied() else { continue };
                let has_other = copies.of(lpn).rev().skip(1).any(|copy| copy.version == newest.version);
                if has_other && !self.is_readable(&newest, page)? {
                    dropped.push((newest.segment, newest.position));
                }
            }
            if dropped.is_empty() {
                return Ok(());
            }
            copies.all.retain(|copy| !dropped.contains(&(copy.segment, copy.position)));
            copies.index(self.config.logical_pages);
        }
    }
}
